"""A tenant's tables by programs that share no code with Spark: pyiceberg, DuckDB, Polars and delta-rs."""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec
import pytest
from deltalake import DeltaTable

from libs.config.connections import KafkaSettings
from libs.types.table import TableId
from libs.types.tenant import SinkSettings, SourceSelection, TenantSpec
from libs.types.warehouse import WarehouseTable, warehouse_table
from spark.pending.progress import load_progress
from spark.settings import SinkJobSettings
from spark.sinks.delta.sink import open_sink as open_delta_sink
from spark.sinks.port import Sink
from spark.tenant.query import TenantQuery
from tests.consumers import every_type
from tests.consumers.conftest import Publish
from tests.consumers.polars_package import polars
from tests.consumers.published import Published
from tests.sink_query import run_until
from tests.spark_session import SharedSpark, session_settings, shared_spark

pytestmark = pytest.mark.rest(because="contract/test_sinks.py reads each warehouse's tables by pyiceberg and delta-rs")
EVENTS: Final = every_type.COPIED + sum(every_type.CHANGED.values())
Rows = Iterable[Mapping[str, Any]]


def test_readers_of_iceberg_find_the_sources_rows(publish: Publish, tmp_path: Path) -> None:
    """pyiceberg, DuckDB on its scan, and Polars."""
    shared = shared_spark()
    source = publish({}, {"plain": {}})
    place = _written(source, shared, shared.sink, "iceberg", tmp_path)
    with shared.loaded(place) as table:
        readers: dict[str, Callable[[], Rows]] = {
            "pyiceberg": lambda: table.scan().to_arrow().to_pylist(),
            "DuckDB": lambda: _by_duckdb(table.scan().to_duckdb("t")),
            "Polars": lambda: polars().scan_iceberg(table).collect().to_dicts(),
        }
        _compare(readers, source)


def test_readers_of_delta_find_the_sources_rows(publish: Publish, tmp_path: Path) -> None:
    """delta-rs, also on its way into pandas, and Polars; of a table that is made for other readers (``wide``)."""
    shared = shared_spark()
    source = publish({}, {"plain": {}})
    sink = open_delta_sink(msgspec.structs.replace(shared.delta, wide=(r".*",)))
    place = _written(source, shared, sink, "delta", tmp_path)
    path = "/".join((shared.delta.warehouse_dir, *place.identifier))
    _compare(
        {
            "delta-rs": lambda: DeltaTable(path).to_pyarrow_table().to_pylist(),
            "Polars": lambda: polars().read_delta(path).to_dicts(),
        },
        source,
    )
    assert sorted(DeltaTable(path).to_pandas()["id"]) == sorted(source.stored())


def _written(source: Published, shared: SharedSpark, sink: Sink, kind: str, folder: Path) -> WarehouseTable:
    """The tenant's mirror, all events in it."""
    tenant = source.tenants["plain"]
    spec = TenantSpec(
        tenant=tenant,
        sources=(SourceSelection(name=source.source),),
        sink=SinkSettings(warehouse=kind, trigger_s=0.5),
    )
    settings = SinkJobSettings(
        tenants_dir="unused",
        kafka=KafkaSettings(bootstrap_servers=source.kafka.bootstrap_servers),
        warehouses={},
        state_dir=str(folder / "state"),
        session=session_settings(folder),
    )

    def progress() -> Any:
        return load_progress(Path(settings.state_dir), tenant)

    query = TenantQuery(shared.session, settings, spec, sink)
    run_until(query, lambda: progress().rows >= EVENTS, why=progress)
    return warehouse_table(tenant, source.source, TableId(database=source.database, table=every_type.TABLE))


def _by_duckdb(connection: duckdb.DuckDBPyConnection) -> Rows:
    try:
        found = connection.execute("SET TimeZone = 'UTC'; SELECT * FROM t")
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    finally:
        connection.close()


def _compare(readers: Mapping[str, Callable[[], Rows]], source: Published) -> None:
    expected = source.stored()
    for name, read in readers.items():
        found = {row["id"]: _plain(row) for row in read()}
        assert every_type.differences(found, expected) == [], name


def _plain(row: Mapping[str, Any]) -> every_type.Row:
    """A stored row in the form of all; a TIME is stored in microseconds."""
    own = {name: value for name, value in row.items() if not name.startswith("_headwater_")}
    if own["clock"] is not None:
        own["clock"] = (dt.datetime.min + dt.timedelta(microseconds=own["clock"])).time()
    return every_type.plain(own)
