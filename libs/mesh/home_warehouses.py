"""Which warehouse a tenant's tables are in."""

from collections.abc import Mapping
from typing import Any

from libs.errors import InvalidSettings
from libs.mesh.documents import CLICKHOUSE, DELTA, ICEBERG, POSTGRESQL, Documents
from libs.mesh.home import Home
from libs.mesh.processes import postgresql_settings, warehouse_settings
from libs.mesh.state import read_ports
from libs.warehouse_readers.clickhouse import ClickhouseTables
from libs.warehouse_readers.delta import DeltaWarehouse
from libs.warehouse_readers.postgresql import PostgresqlWarehouse
from libs.warehouse_readers.warehouse import IcebergWarehouse, Warehouse


def warehouse_of(home: Home, documents: Documents, tenant: str) -> Warehouse:
    """Where the tables of ``tenant`` are; of one without a document, where most are.

    Raises:
        InvalidSettings: nothing was ever written there.
    """
    kind = warehouse_kind(documents, tenant)
    if kind == DELTA:
        return DeltaWarehouse(home.delta_dir)
    if kind == CLICKHOUSE and documents.servers.clickhouse is not None:  # else there is no such document
        return ClickhouseTables(documents.servers.clickhouse)
    if kind != POSTGRESQL:
        return IcebergWarehouse(home.catalog_file, home.warehouse_dir)
    settings = postgresql_settings(documents, read_ports(home))
    if settings is None:
        raise _never_started(tenant)
    return PostgresqlWarehouse(settings)


def warehouse_kind(documents: Documents, tenant: str) -> str:
    """Its name; of a tenant without a document, that where most are."""
    spec = documents.tenants.get(tenant)
    return ICEBERG if spec is None or spec.sink is None else spec.sink.warehouse


def job_settings(home: Home, documents: Documents, tenant: str) -> Mapping[str, dict[str, Any]]:
    """``warehouses`` of a job that works on the tables of ``tenant`` alone, by that one name.

    Raises:
        InvalidSettings: nothing was ever written there.
    """
    kind = warehouse_kind(documents, tenant)
    settings = warehouse_settings(home, documents, read_ports(home)).get(kind)
    if settings is None:
        raise _never_started(tenant)
    return {kind: settings}


def _never_started(tenant: str) -> InvalidSettings:
    return InvalidSettings(
        f"tenant {tenant}", ["its PostgreSQL was never started: start the stack (`headwater up --detach`)"]
    )
