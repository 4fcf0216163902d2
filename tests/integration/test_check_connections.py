"""A check that goes on for ever, of a catalog that is a database, holds no connections of its last looks."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog

from libs.check.cluster_mesh import compared_cluster
from libs.mesh.mesh_settings import mesh_settings
from libs.mesh.recorded_checkpoints import RecordedCheckpoints
from libs.types.table import TableId
from libs.types.warehouse import CATALOG, warehouse_table
from libs.warehouse_readers.warehouse import TableStore
from tests.conftest import PostgresqlServer

LOOKS = 12
AT_MOST = 2
"""One that is in use, and one that the server has not yet seen end."""


@pytest.fixture
def without_collections() -> Iterator[None]:
    """Connections that nobody closes stay open, as in a process that collects seldom."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collections")
def test_connections_of_earlier_looks_are_let_go(postgresql_server: PostgresqlServer, tmp_path: Path) -> None:
    where = postgresql_server.settings
    address = f"{where.host}:{where.port}/{where.database}"
    SqlCatalog(CATALOG, uri=f"postgresql+psycopg://{where.user}@{address}", warehouse=str(tmp_path)).close()
    (tmp_path / "tenants").mkdir()
    document = "tenant: acme\nsources: [{name: shop}]\nsink: {}\n"
    (tmp_path / "tenants" / "acme.yaml").write_text(document)
    catalog = {"kind": "jdbc", "uri": f"jdbc:postgresql://{address}?ApplicationName=looks", "user": where.user}
    told = {
        "kafka": {},
        "sources": {"shop": {"database": {"host": "db", "user": "checker"}}},
        "warehouses": {"iceberg": {"warehouse_dir": str(tmp_path), "catalog": catalog}},
        "tenants_dir": str(tmp_path / "tenants"),
    }
    (tmp_path / "mesh.yaml").write_text(yaml.safe_dump(told))
    settings = mesh_settings(tmp_path / "mesh.yaml", {})
    checkpoints, stores = RecordedCheckpoints(settings.kafka), dict[str, TableStore]()
    place = warehouse_table("acme", "shop", TableId(database="shop", table="orders"))

    for _ in range(LOOKS):
        mesh = compared_cluster(settings, {}, (), checkpoints, stores)
        assert mesh.warehouse_of("acme").load(place) is None

    [(connections,)] = postgresql_server.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'looks'"
    )
    assert 1 <= connections <= AT_MOST
