"""Which warehouse a tenant's tables are in."""

from libs.errors import InvalidSettings
from libs.local.delta_warehouse import DeltaWarehouse
from libs.local.documents import DELTA, ICEBERG, POSTGRESQL, Documents
from libs.local.home import Home
from libs.local.plan import postgresql_settings
from libs.local.postgresql_warehouse import PostgresqlWarehouse
from libs.local.state import read_ports
from libs.local.warehouse import IcebergWarehouse, Warehouse


def warehouse_of(home: Home, documents: Documents, tenant: str) -> Warehouse:
    """Where the tables of ``tenant`` are; of one without a document, where most are.

    Raises:
        InvalidSettings: nothing was ever written there.
    """
    spec = documents.tenants.get(tenant)
    kind = ICEBERG if spec is None or spec.sink is None else spec.sink.warehouse
    if kind == DELTA:
        return DeltaWarehouse(home)
    if kind != POSTGRESQL:
        return IcebergWarehouse(home)
    settings = postgresql_settings(documents, read_ports(home))
    if settings is None:
        raise InvalidSettings(
            f"tenant {tenant}", ["its PostgreSQL was never started: start the stack (`headwater up --detach`)"]
        )
    return PostgresqlWarehouse(settings)
