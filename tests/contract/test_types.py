"""Every type of MySQL, with its edges: from a real server through the reader's events into each warehouse, and back.

Each value that another engine reads from the warehouse equals the one that MySQL prints, by the conversions of ``headwater
check``, which share no code with reader and sink; ``docs/types.md`` is held to it.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from libs.check.mysql_rows import MysqlRows, consistent_snapshot
from libs.check.projection import ExpectedTable, expected_tables
from libs.check.source import AskedSource
from libs.check.values import from_arrow
from libs.mysql.column_type import parse_column_type
from libs.source.mysql.settings import DatabaseSettings
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from libs.types.tenant import SourceSelection
from libs.types.value_modes import TimePrecision, ValueModes
from libs.types.warehouse import WarehouseTable
from libs.warehouse.json_variants import with_variants
from libs.warehouse.types_page import FAMILIES, loss
from libs.warehouse_readers.postgresql import PostgresqlWarehouse
from protos.headwater.changes.v1.change_batch_pb2 import Entry
from spark.sinks.clickhouse.sink import open_sink as open_clickhouse_sink
from spark.sinks.delta.sink import open_sink as open_delta_sink
from spark.sinks.postgresql.sink import open_sink as open_postgresql_sink
from spark.sinks.registry import SINKS
from tests import clickhouse
from tests.clickhouse import ClickhouseServer
from tests.conftest import MysqlServer, PostgresqlServer
from tests.contract.sink_harness import WarehouseHarness
from tests.contract.test_sinks import postgresql_settings
from tests.integration.log_reading import Event, LogReading
from tests.integration.test_mysql_values import (
    COLUMNS,
    LENIENT,
    LONG_TIMES,
    MODES,
    ROWS,
    insert,
    reading_of,
    snapshot,
)
from tests.integration.test_variant_columns import kept_in
from tests.marks import rest
from tests.spark_session import shared_spark
from tests.unit.spark.events import Record, record

pytestmark = pytest.mark.servers

MORE_COLUMNS = """
  tt TINYTEXT, mt MEDIUMTEXT, mb MEDIUMBLOB, lb LONGBLOB, d38 DECIMAL(38,19), dz DOUBLE(9,3), t4 TIME(4), dt4 DATETIME(4),
  mp MULTIPOINT, ml MULTILINESTRING, mg MULTIPOLYGON,
  dn DATE NOT NULL, dtn DATETIME(6) NOT NULL, tsn TIMESTAMP NOT NULL
"""
MORE: list[dict[str, str]] = [
    {},
    {
        "tt": "'Ⅻ'", "mt": "REPEAT('mt', 9)", "mb": "x'00'", "lb": "x'FF00'",
        "d38": "-9999999999999999999.9999999999999999999", "dz": "-1.005", "t4": "'23:59:59.9999'",
        "dt4": "'1970-01-01 00:00:00.0001'", "mp": "ST_GeomFromText('MULTIPOINT((0 0),(1 2))')",
        "ml": "ST_GeomFromText('MULTILINESTRING((0 0,1 1))', 3857)",
        "mg": "ST_GeomFromText('MULTIPOLYGON(((0 0,0 1,1 1,0 0)))', 4326)",
        "dn": "'2000-02-29'", "dtn": "'1969-12-31 23:59:59.999999'", "tsn": "'2038-01-19 03:14:07'",
    },
]  # fmt: skip
"""Columns that are left out have MySQL's own zeros: dates that are none."""

DOCUMENTS = (
    *("NULL", "'null'", "'true'", "'{}'", "'[]'", "'\"\"'", "'0'", "'-9223372036854775808'", "'18446744073709551615'"),
    *(
        "'1.0'",
        "'-0.5'",
        "'0.1'",
        "'1e300'",
        "'5e-324'",
        "'-1.7976931348623157e308'",
        "'0.30000000000000004'",
        "'1e20'",
    ),
    f"CAST(CAST('{'9' * 38}' AS DECIMAL(38,0)) AS JSON)",
    f"CAST(CAST('-0.{'123' * 10}' AS DECIMAL(38,30)) AS JSON)",
    f"JSON_ARRAY(CAST('12345.{'0' * 30}' AS DECIMAL(65,30)), CAST(1.50 AS DECIMAL(5,2)))",
    "JSON_OBJECT('d', CAST('9999-12-31' AS DATE), 't', CAST('-838:59:59' AS TIME(6)), 'm', CAST('0001-01-01' AS DATETIME(6)))",
    "JSON_ARRAY(x'00CAFE', b'101', ST_GeomFromText('POINT(1 2)'))",
    "JSON_OBJECT('b', 1, 'aa', 2, 'é', JSON_ARRAY('\\\\\"/\\n', '😀'), '', JSON_OBJECT())",
    f"""'{"[" * 99}{"]" * 99}'""",
    "JSON_ARRAY(REPEAT('long ', 300000))",
    "JSON_OBJECT(REPEAT('k', 40000), 1)",
)
"""As MySQL's SQL has them."""

ReadTable = Callable[[WarehouseTable], pa.Table]
_tenants = itertools.count()


def _cases() -> Iterator[Any]:
    """Warehouses and modes. A mode's values have types that those of the first mode have too, so that the gate has the first
    on each warehouse, and each of the others on Iceberg."""
    because = "the gate has each mode on Iceberg, and its types on each warehouse"
    for kind, (number, modes) in itertools.product(sorted(SINKS), enumerate(MODES)):
        is_in_gate = number == 0 or kind == "iceberg"
        marks = () if is_in_gate else pytest.mark.rest(because=because)
        yield pytest.param(kind, modes, id=f"{kind}-{modes.time_precision.value}", marks=marks)


@pytest.fixture
def warehouse(request: pytest.FixtureRequest) -> tuple[WarehouseHarness, ReadTable]:
    """A tenant in each kind of warehouse, and another engine that reads it."""
    shared, tenant = shared_spark(), f"types-{request.param}-{next(_tenants)}"
    match request.param:
        case "clickhouse":
            clickhouse_server: ClickhouseServer = request.getfixturevalue("clickhouse_server")
            clickhouse_sink = open_clickhouse_sink(clickhouse.settings_of(clickhouse_server))
            harness = WarehouseHarness(shared.session, clickhouse_sink, _unused, tenant)
            return harness, lambda place: clickhouse.arrow_table(clickhouse_server, place)
        case "delta":

            def read(place: WarehouseTable) -> pa.Table:
                table = DeltaTable("/".join((shared.delta.warehouse_dir, *place.identifier)))
                return pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())

            return WarehouseHarness(shared.session, open_delta_sink(shared.delta), _unused, tenant), read
        case "iceberg":

            def read_iceberg(place: WarehouseTable) -> pa.Table:
                with shared.loaded(place) as table:
                    return table.scan().to_arrow()

            return WarehouseHarness(shared.session, shared.sink, _unused, tenant), read_iceberg
        case "postgresql":
            server: PostgresqlServer = request.getfixturevalue("postgresql_server")
            settings = postgresql_settings(server)
            stored = PostgresqlWarehouse(settings)

            def read_postgresql(place: WarehouseTable) -> pa.Table:
                table = stored.load(place)
                assert table is not None
                return table.rows()

            sink = open_postgresql_sink(settings)
            return WarehouseHarness(shared.session, sink, _unused, tenant, holds_nul=False), read_postgresql
        case kind:
            raise AssertionError(f"{kind} has no reader")


def _unused(_: WarehouseTable) -> list[dict[str, Any]]:
    raise AssertionError("read by Arrow here")


@pytest.mark.parametrize(("warehouse", "modes"), [*_cases()], indirect=["warehouse"])
async def test_every_value_comes_back_as_it_was(
    warehouse: tuple[WarehouseHarness, ReadTable],
    modes: ValueModes,
    mysql_server: MysqlServer,
    unique_name: Callable[[str], str],
) -> None:
    """In every handling mode, of snapshot and log; values that the page calls lost differ, and nothing else."""
    harness, read_table = warehouse
    database = unique_name("types")
    rows = rows_for(modes, holds_nul=harness.holds_nul)
    mysql_server.execute(
        f"CREATE DATABASE {database}",
        LENIENT,
        f"CREATE TABLE {database}.t ({COLUMNS}, {MORE_COLUMNS}) CHARACTER SET utf8mb4",
        *insert(database, 1, rows),
    )
    reading = reading_of(mysql_server, database, values=modes)
    await snapshot(reading)
    mysql_server.execute(LENIENT, *insert(database, 101, rows))
    await reading.read(partial(_are_enough, len(rows)))
    schema = _schema_of(reading, modes)

    harness.append_records(schema, list(records_of(reading.entries)))

    settings = DatabaseSettings(host=mysql_server.host, port=mysql_server.port, user="root")
    with consistent_snapshot(settings) as connection:
        found, printed = found_and_printed(read_table(harness.place(schema)), MysqlRows(connection), database)
    assert sorted(found["id"]) == sorted(printed["id"]) == [*range(1, len(rows) + 1), *range(101, 101 + len(rows))]
    differing = {name for name in printed if by_id(found, name) != by_id(printed, name)}
    assert differing == {item.name for item in schema.columns if loss(item) is not None}, modes.time_precision
    types = {parse_column_type(item.source_type).name for item in schema.columns}
    assert types == {parse_column_type(example).name for family in FAMILIES for example in family.examples}


@pytest.mark.parametrize(
    "kind", ["iceberg", *rest("delta", because="integration/test_variant_columns.py has documents in Delta")]
)
async def test_every_document_comes_back_from_a_variant(
    kind: str, mysql_server: MysqlServer, unique_name: Callable[[str], str]
) -> None:
    """Of snapshot and log, with every kind of value that MySQL's JSON holds; documents that a VARIANT does not hold are
    refused elsewhere."""
    database, kept = unique_name("types"), kept_in(kind, f"types-variant-{kind}")
    rows = [{"js": document} for document in DOCUMENTS]
    mysql_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, js JSON)",
        *insert(database, 1, rows),
    )
    reading = reading_of(mysql_server, database)
    await snapshot(reading)
    mysql_server.execute(*insert(database, 101, rows))
    await reading.read(partial(_are_enough, len(rows)))
    schema = with_variants(_schema_of(reading, ValueModes()), [".*"])

    kept.harness.append_records(schema, list(records_of(reading.entries)))

    settings = DatabaseSettings(host=mysql_server.host, port=mysql_server.port, user="root")
    with consistent_snapshot(settings) as connection:
        stored = pa.Table.from_pylist(kept.rows(kept.harness.place(schema)))
        found, printed = found_and_printed(stored, MysqlRows(connection), database)
    assert kept.types(schema)["js"] == "variant"
    assert len(found["id"]) == 2 * len(rows)
    assert by_id(found, "js") == by_id(printed, "js")


def _are_enough(count: int, events: list[Event]) -> bool:
    return len(events) >= count


def rows_for(modes: ValueModes, *, holds_nul: bool) -> list[dict[str, str]]:
    """Those that the modes have forms for, and the warehouse."""
    rows = [{**row, **more} for row, more in itertools.zip_longest(ROWS, MORE, fillvalue={})]
    if modes.time_precision is not TimePrecision.CONNECT:
        rows.append(LONG_TIMES)
    if modes.time_precision is TimePrecision.NANOSECONDS:  # 64 bits of them reach from 1678 to 2261
        rows = [
            {name: text for name, text in row.items() if "0001-" not in text and "9999-" not in text} for row in rows
        ]
    if not holds_nul:
        rows = [{name: text.replace("CHAR(0,", "CHAR(") for name, text in row.items()} for row in rows]
    return rows


def _schema_of(reading: LogReading, modes: ValueModes) -> TableSchema:
    """The table under a name that no other modes have."""
    [schema] = [schema for _, _, schema in reading.history.changes if schema is not None]
    table_id = TableId(database="types", table=modes.time_precision.value)
    return msgspec.structs.replace(schema, table_id=table_id, version=1)


def records_of(entries: Iterable[Entry]) -> Iterable[Record]:
    """The events as they stood in the batches, byte by byte."""
    values = [value for entry in entries for value in entry.run.values]
    for number, value in enumerate(values):
        made = record("t", None, order=EventOrder(epoch=0, rank=1, tx_ordinal=number).sort_key(), offset=number)
        yield (*made[:4], value, made[5])


Cells = dict[str, list[Any]]


def found_and_printed(table: pa.Table, source: AskedSource, database: str) -> tuple[Cells, Cells]:
    """The warehouse's cells, and those that the source prints of its only table, both in canonical form, by column."""
    [expected] = [_plain(each) for each in source.tables() if each.table_id.database == database]
    rows = list(source.rows(expected, expected.columns))
    printed = {item.name: [row[place] for row in rows] for place, item in enumerate(expected.columns)}
    found: Cells = {}
    for item in expected.columns:
        cells = table[item.name].to_pylist()
        convert = from_arrow(item.data_type, table[item.name].type)
        found[item.name] = cells if convert is None else [None if cell is None else convert(cell) for cell in cells]
    return found, printed


def _plain(table: Any) -> ExpectedTable:
    [expected] = expected_tables(SourceSelection(name="src"), [table])
    return expected


def by_id(cells: Cells, name: str) -> dict[int, Any]:
    return dict(zip(cells["id"], cells[name], strict=True))
