"""Catalogs other than the embedded stack's: a job over a real one, restarted, and its tables read by pyiceberg."""

import contextlib
import random
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table

from libs.local.process import stop
from libs.types.tenant import SinkMode
from libs.types.warehouse import CATALOG, WarehouseTable
from spark.sinks.iceberg.settings import Settings
from tests.conftest import PostgresqlServer
from tests.sink_job import LIFE_TIMEOUT_S, STOP_TIMEOUT_S, SinkJob, write_tenant
from tests.sink_topics import without_own_columns
from tests.spark_session import Row

KEPT = {"rewrite_at_delete_files": 2, "keep_snapshots": 2, "orphans_every_commits": 4}


@pytest.fixture
def postgresql_catalog(postgresql_server: PostgresqlServer) -> dict[str, str]:
    where = postgresql_server.settings
    uri = f"jdbc:postgresql://{where.host}:{where.port}/{where.database}"
    return {"kind": "jdbc", "uri": uri, "user": where.user}


def read(warehouse: Mapping[str, Any], place: WarehouseTable) -> list[Row]:
    with table_in(warehouse, place) as table:
        return table.scan().to_arrow().to_pylist()


@contextlib.contextmanager
def table_in(warehouse: Mapping[str, Any], place: WarehouseTable) -> Iterator[Table]:
    catalog = msgspec.convert(warehouse, Settings).catalog
    if catalog.uri is None:
        folder = Path(warehouse["warehouse_dir"]).joinpath(*place.identifier)
        newest = (folder / "metadata" / "version-hint.text").read_text()
        yield StaticTable.from_metadata(f"file://{folder}/metadata/v{newest}.metadata.json")
        return
    address = catalog.uri.removeprefix("jdbc:postgresql://")
    opened = SqlCatalog(CATALOG, uri=f"postgresql+psycopg://{catalog.user}@{address}", init_catalog_tables="false")
    try:
        yield opened.load_table(place.identifier)
    finally:
        opened.close()


@pytest.mark.timeout(4 * LIFE_TIMEOUT_S)
@pytest.mark.parametrize(("kind", "format_version"), [("hadoop", 3), ("jdbc", 2)])
def test_a_job_lives_twice_on_another_catalog(
    kind: str, format_version: int, bootstrap_servers: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Tables, maintenance and the batch's identity are there as in the catalog that is a file; of both formats."""
    (tmp_path / "tenants").mkdir()
    catalog = {"kind": "hadoop"} if kind == "hadoop" else request.getfixturevalue("postgresql_catalog")
    warehouse = {
        "warehouse_dir": str(tmp_path / "warehouse"),
        "catalog": catalog,
        "format_version": format_version,
        **KEPT,
    }
    job = SinkJob(tmp_path, bootstrap_servers, "iceberg", warehouse, lambda place: read(warehouse, place))
    chance = random.Random(7)
    layout = {"partition_by": ["bucket(2, id)"], "sort_by": ["note desc"]}
    tenant = write_tenant(job, f"k{secrets.token_hex(3)}", SinkMode.MIRROR, "orders", layouts=[layout])

    tenant.write(chance, transactions=15)
    job.start(failpoints="sink_after_merge_before_next_table=kill@2")
    job.wait_until_killed()
    tenant.write(chance, transactions=15)
    job.start()
    job.wait_until(lambda: job.progress(tenant).rows >= tenant.changes)
    assert job.running is not None
    stop(job.running, STOP_TIMEOUT_S)

    [model] = tenant.models
    assert without_own_columns(job.rows(tenant, model)) == model.sorted_rows()
    with table_in(warehouse, job.place(tenant, model)) as table:
        assert table.metadata.format_version == format_version
        assert [str(field.transform) for field in table.spec().fields] == ["bucket[2]"]
        assert [str(field.direction) for field in table.sort_order().fields] == ["DESC"]
        assert int(table.properties["headwater.orphans-removed-at"]) > 0
        assert len(table.metadata.snapshots) < 2 * KEPT["keep_snapshots"] + 2
