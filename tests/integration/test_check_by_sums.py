"""Checksums find the same differences as reading every row, for all values and kinds of difference, and read little.

The source is a real MySQL; the tables are Iceberg's and Delta's files, a real PostgreSQL's and those of ClickHouse's own
engine. The rows of both ends come from one list of values, written with their edges; differences are planted at random. Parts
are made small, so that they are cut again.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from libs.check import checksums, compared
from libs.check.canonical_text import column_text
from libs.check.compared import stack_compared
from libs.check.mysql_rows import MysqlRows, consistent_snapshot
from libs.check.projection import expected_tables
from libs.check.run import CheckReport, TableCheck, check
from libs.clickhouse import names as clickhouse_names
from libs.mesh.documents import read_documents
from libs.mesh.home import Home, home_at
from libs.postgresql.names import quoted
from libs.postgresql.settings import PostgresqlWarehouse
from libs.source.mysql.settings import DatabaseSettings
from libs.types.table import TableId
from libs.types.tenant import SourceSelection
from libs.types.warehouse import WarehouseTable, warehouse_table
from libs.warehouse_readers.clickhouse import ClickhouseTable
from libs.warehouse_readers.delta import DeltaWarehouse
from libs.warehouse_readers.postgresql import stored_table
from libs.warehouse_readers.warehouse import IcebergWarehouse, SqlDialect, StoredTable
from tests import clickhouse
from tests.clickhouse import ClickhouseServer
from tests.conftest import MysqlServer, PostgresqlServer
from tests.headwater_command import write_shop
from tests.marks import gate
from tests.unit.warehouse_readers.warehouse_files import write_table

Cell = tuple[str, Any]
"""A value as MySQL's SQL has it, and as Arrow should."""
TEXTS = ("", "-", ",", "1:a,-", "é, Ⅻ 😀", "it's \\ %s", "a\nb", "trailing ", "3", "NULL", '"')
DOCUMENTS = ('{"c": [1, 2.5, null, {}], "a, b": ": \\"x\\", \\\\"}', "[]", '"plain, text: x"', '{"k": "}, {"}', "true")
DOUBLES = (0.1, 1e20, 123456789.125, 2.0, 0.30000000000000004, 0.0, 7e-20)


@dataclass(frozen=True, slots=True)
class Kind:
    """A column's type, its column in the warehouse, and how to make a value."""

    mysql: str
    arrow: pa.DataType
    make: Callable[[random.Random], Cell]
    is_summed: bool = True


def text_of(text: str) -> Cell:
    return f"_utf8mb4 X'{text.encode().hex()}'", text


def number_between(low: int, high: int) -> Callable[[random.Random], Cell]:
    return lambda chance: (str(value := chance.choice((low, high, 0, chance.randint(low, high)))), value)


def number_as_decimal(chance: random.Random) -> Cell:
    value = chance.choice((0, 2**64 - 1, 2**63, chance.randrange(2**64)))
    return str(value), Decimal(value)


def decimal_of(digits: int, scale: int, *, is_text: bool = False) -> Callable[[random.Random], Cell]:
    def make(chance: random.Random) -> Cell:
        unscaled = chance.choice((0, 10**scale, -(10**digits) + 1, chance.randrange(-(10**digits), 10**digits)))
        value = Decimal(unscaled).scaleb(-scale) if digits < 28 else Decimal(f"{unscaled}E-{scale}")
        return f"{value:f}", f"{value:f}" if is_text else value

    return make


def double(chance: random.Random) -> Cell:
    value = chance.choice((*DOUBLES, chance.uniform(-1e3, 1e3), chance.random() * 10 ** chance.randint(-3, 14)))
    return f"{value!r}e0" if "e" not in repr(value) else repr(value), value


def single(chance: random.Random) -> Cell:
    value = pa.array([chance.choice((0.1, 1e10, 1.5, -3.0, chance.uniform(-9, 9)))], pa.float32())[0].as_py()
    return f"{value!r}e0" if "e" not in repr(value) else repr(value), value


def day(chance: random.Random) -> Cell:
    days = chance.choice((None, None, -354286, 2932896, 0, *range(30, 30_000, 500)))
    if days is None:
        return chance.choice(("'0000-00-00'", "'2024-00-31'")), None
    value = pa.scalar(days, pa.date32()).as_py()
    return f"'{value}'", value


def moment(chance: random.Random) -> Cell:
    micros = chance.choice((None, -1, 253402214400000001, -30610223999500000, chance.randrange(0, 2 * 10**15)))
    if micros is None:
        return "'0000-00-00 00:00:00'", None
    value = pa.scalar(micros, pa.timestamp("us")).as_py()
    return f"'{value}'", value


def instant(chance: random.Random) -> Cell:
    value = pa.scalar(chance.randrange(10**15, 2 * 10**15), pa.timestamp("us")).as_py()
    return f"'{value:%Y-%m-%d %H:%M:%S.%f}'", value


def clock(chance: random.Random) -> Cell:
    micros = chance.choice((0, -1, -500_000, 3_600_000_001, chance.randrange(-3_000_000_000_000, 3_000_000_000_000)))
    seconds, fraction = divmod(abs(micros), 1_000_000)
    sign = "-" if micros < 0 else ""
    return f"'{sign}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}'", micros


def some_bytes(chance: random.Random) -> Cell:
    value = chance.choice((b"", b"\x00", b"\xff,\x00", chance.randbytes(9)))
    return f"X'{value.hex()}'" if value else "''", value


def document(chance: random.Random) -> Cell:
    """The warehouse has it without spaces."""
    text = chance.choice((*DOCUMENTS, json.dumps({"n": chance.randrange(99), "t": chance.choice(TEXTS)})))
    return text_of(text)[0], json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)


def bits(chance: random.Random) -> Cell:
    value = chance.randrange(2**9)
    return f"b'{value:b}'", value.to_bytes(2, "little")


def second_of(number: int) -> Cell:
    value = pa.scalar(number * 10**9, pa.timestamp("us")).as_py()
    return f"'{value}'", value


KINDS = (
    Kind("TINYINT", pa.int32(), number_between(-128, 127)),
    Kind("BIGINT", pa.int64(), number_between(-(2**63), 2**63 - 1)),
    Kind("BIGINT UNSIGNED", pa.decimal128(20, 0), number_as_decimal),
    Kind("INT UNSIGNED ZEROFILL", pa.int64(), number_between(0, 2**32 - 1)),
    Kind("YEAR", pa.int32(), number_between(1901, 2155)),
    Kind("DECIMAL(20,5)", pa.decimal128(20, 5), decimal_of(20, 5)),
    Kind("DECIMAL(9,0)", pa.decimal128(9, 0), decimal_of(9, 0)),
    Kind("DECIMAL(50,20)", pa.string(), decimal_of(50, 20, is_text=True)),
    Kind("DOUBLE", pa.float64(), double),
    Kind("FLOAT", pa.float32(), single),
    Kind("DATE", pa.date32(), day),
    Kind("TIME(6)", pa.int64(), clock),
    Kind("DATETIME(6)", pa.timestamp("us"), moment),
    Kind("TIMESTAMP(6)", pa.timestamp("us", "UTC"), instant),
    Kind("VARCHAR(60) CHARACTER SET utf8mb4", pa.string(), lambda chance: text_of(chance.choice(TEXTS))),
    Kind("TEXT CHARACTER SET latin1", pa.string(), lambda chance: text_of(chance.choice(("é", "", "café", "ÿ,1:")))),
    Kind("ENUM('x','y,z')", pa.string(), lambda chance: text_of(chance.choice(("x", "y,z")))),
    Kind("VARBINARY(20)", pa.binary(), some_bytes),
    Kind("JSON", pa.string(), document),
    Kind("BIT(1)", pa.bool_(), lambda chance: chance.choice((("1", True), ("0", False)))),
    Kind("BIT(9)", pa.binary(), bits, is_summed=False),
)
KEYS = (
    ("INT", pa.int32(), lambda number: (str(number), number)),
    ("BIGINT", pa.int64(), lambda number: (str(v := (number - 200) * 10**14), v)),
    ("BIGINT UNSIGNED", pa.decimal128(20, 0), lambda number: (str(v := 2**64 - 1 - number**3), Decimal(v))),
    ("VARCHAR(20) COLLATE utf8mb4_0900_ai_ci", pa.string(), lambda number: text_of(f"{'Zaé'[number % 3]} {number}")),
    ("BINARY(4)", pa.binary(), lambda number: (f"X'{number:08x}'", number.to_bytes(4, "big"))),
    ("DECIMAL(9,2)", pa.decimal128(9, 2), lambda number: (f"{number}.50", Decimal(f"{number}.50"))),
    ("DATETIME(6)", pa.timestamp("us"), second_of),
)


def name_of(place: int) -> str:
    """Of a column: the first ones have names that a statement of sums could use itself."""
    return ("part", "value")[place] if place < 2 else f"c{place}"


@dataclass(slots=True)
class Rows:
    """A table's rows at both ends, made from one list."""

    kinds: Sequence[Kind]
    key: tuple[str, pa.DataType, Callable[[int], Cell]]
    source: list[list[str]] = field(default_factory=list)
    warehouse: list[list[Any]] = field(default_factory=list)

    def make(self, chance: random.Random, count: int) -> None:
        """Keys from 0 to ``count``, with gaps and an outlier; a NULL now and then."""
        numbers = sorted({*chance.sample(range(count * 2), count), count * 50})
        for number in numbers:
            cells = [("NULL", None) if chance.random() < 0.1 else kind.make(chance) for kind in self.kinds]
            cells.insert(0, self.key[2](number))
            self.source.append([literal for literal, _ in cells])
            self.warehouse.append([value for _, value in cells])

    def plant(self, chance: random.Random, faults: int) -> None:
        """Other values, rows lost, rows too many, rows twice; of a key one of these, because nothing says which of two rows
        that share it is the right one."""
        planted = []
        for _ in range(faults):
            row = chance.choice([nth for nth, cells in enumerate(self.warehouse) if cells[0] not in planted])
            planted.append(self.warehouse[row][0])
            match chance.choice(("value", "null", "lost", "extra", "twice")):
                case "value":
                    place = chance.randrange(len(self.kinds))
                    self.warehouse[row][place + 1] = self.kinds[place].make(chance)[1]
                case "null":
                    self.warehouse[row][1 + chance.randrange(len(self.kinds))] = None
                case "lost":
                    self.warehouse.pop(row)
                case "extra":
                    key = self.key[2](chance.randrange(3000, 3500))[1]
                    planted.append(key)
                    self.warehouse.append([key, *self.warehouse[row][1:]])
                case "twice":
                    self.warehouse.append(list(self.warehouse[row]))

    def create(self, server: MysqlServer, database: str) -> None:
        """At the source."""
        columns = "".join(f", {name_of(place)} {kind.mysql} NULL" for place, kind in enumerate(self.kinds))
        rows = ", ".join(f"({', '.join(row)})" for row in self.source)
        server.execute(
            f"CREATE DATABASE {database}",
            "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'",
            f"CREATE TABLE {database}.t (k {self.key[0]} NOT NULL PRIMARY KEY{columns}) CHARACTER SET utf8mb4",
            f"INSERT INTO {database}.t VALUES {rows}",
        )

    def arrow(self) -> pa.Table:
        """As the warehouse holds them."""
        types = [self.key[1], *(kind.arrow for kind in self.kinds)]
        names = ["k", *(name_of(place) for place in range(len(self.kinds)))]
        columns = [pa.array(cells, kind) for cells, kind in zip(zip(*self.warehouse, strict=True), types, strict=True)]
        return pa.table(dict(zip(names, columns, strict=True)))


@dataclass(frozen=True, slots=True)
class Loaded:
    """A warehouse of one table."""

    table: StoredTable

    def load(self, _: WarehouseTable) -> StoredTable:
        return self.table


Store = Callable[[Home, str, pa.Table], StoredTable | None]


def store_iceberg(home: Home, database: str, rows: pa.Table) -> StoredTable | None:
    write_table(home, "acme", "shop", f"{database}.t", rows)
    return IcebergWarehouse(home.catalog_file, home.warehouse_dir).load(place_of(database))


def store_delta(home: Home, database: str, rows: pa.Table) -> StoredTable | None:
    folder = home.delta_dir.joinpath(*place_of(database).identifier)
    folder.mkdir(parents=True)
    write_deltalake(str(folder), rows)
    return DeltaWarehouse(home.delta_dir).load(place_of(database))


POSTGRESQL_TYPES = {
    pa.int32(): "integer", pa.int64(): "bigint", pa.float32(): "real", pa.float64(): "double precision", pa.string(): "text",
    pa.binary(): "bytea", pa.bool_(): "boolean", pa.date32(): "date", pa.timestamp("us"): "timestamp",
    pa.timestamp("us", "UTC"): "timestamptz",
}  # fmt: skip


def store_postgresql(server: PostgresqlServer) -> Store:
    def store(_: Home, database: str, rows: pa.Table) -> StoredTable | None:
        place = quoted("public", database)
        with server.connect() as connection, connection.cursor() as cursor:
            columns = ", ".join(
                f"{quoted(item.name)} "
                + (
                    f"numeric({item.type.precision},{item.type.scale})"
                    if pa.types.is_decimal(item.type)
                    else POSTGRESQL_TYPES[item.type]
                )
                for item in rows.schema
            )
            cursor.execute(f"CREATE TABLE {place} ({columns})")
            with cursor.copy(f"COPY {place} FROM STDIN") as copy:
                for row in rows.to_pylist():
                    copy.write_row(list(row.values()))
        settings = PostgresqlWarehouse(
            **{name: getattr(server.settings, name) for name in server.settings.__struct_fields__}
        )
        return stored_table(settings, place, rows.schema.names)

    return store


CLICKHOUSE_TYPES = {
    pa.int32(): "Int32", pa.int64(): "Int64", pa.float32(): "Float32", pa.float64(): "Float64", pa.string(): "String",
    pa.binary(): "String", pa.bool_(): "Bool", pa.date32(): "Date32", pa.timestamp("us"): "DateTime64(6, 'UTC')",
    pa.timestamp("us", "UTC"): "DateTime64(6, 'UTC')",
}  # fmt: skip


def store_clickhouse(server: ClickhouseServer) -> Store:
    def store(_: Home, database: str, rows: pa.Table) -> StoredTable | None:
        own = {
            item.name: f"Decimal({item.type.precision},{item.type.scale})"
            if pa.types.is_decimal(item.type)
            else CLICKHOUSE_TYPES[item.type]
            for item in rows.schema
        }
        columns = ", ".join(f"{clickhouse_names.quoted(name)} Nullable({kind})" for name, kind in own.items())
        server.execute(
            f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t ({columns}) ENGINE = MergeTree ORDER BY ()"
        )
        client = server.client()
        try:
            client.insert_arrow(f"{database}.t", rows)
        finally:
            client.close()
        known = {item.name: item.type for item in rows.schema}
        return ClickhouseTable(clickhouse.settings_of(server), f"{database}.t", known, is_final=False)

    return store


def place_of(database: str) -> WarehouseTable:
    return warehouse_table("acme", "shop", TableId(database=database, table="t"))


STORES = ("iceberg", "delta", "postgresql", "clickhouse")
EACH_STORE = "test_equal_ends_are_found_equal_without_reading_a_row is of each store"


@pytest.fixture(params=gate(["iceberg"], STORES, because=EACH_STORE))
def store(request: pytest.FixtureRequest) -> Store:
    match request.param:
        case "iceberg":
            return store_iceberg
        case "delta":
            return store_delta
        case "clickhouse":
            return store_clickhouse(request.getfixturevalue("clickhouse_server"))
        case _:
            return store_postgresql(request.getfixturevalue("postgresql_server"))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So that some hundred rows are cut as millions would be."""
    monkeypatch.setattr(checksums, "ROWS_OF_A_PART", 20)
    monkeypatch.setattr(checksums, "MOST_PARTS", 64)
    monkeypatch.setattr(checksums, "MANY_ROWS", 10)
    yield


@dataclass(frozen=True, slots=True)
class Rig:
    """A source and its table in a warehouse."""

    home: Home
    stored: StoredTable

    def check(self, monkeypatch: pytest.MonkeyPatch, *, reads_all: bool) -> TableCheck:
        monkeypatch.setattr(compared, "warehouse_of", lambda *_: Loaded(self.stored))
        mesh = stack_compared(self.home, read_documents(self.home), is_up=False)
        report: CheckReport = check(mesh, ["acme"], limit=10_000, reads_all=reads_all)
        [table] = report.tables
        return table


def rig_of(rows: Rows, server: MysqlServer, database: str, store: Store, folder: Path) -> Rig:
    home = home_at(folder / "home")
    write_shop(home, server, database, {"acme": "{mode: mirror}"})
    rows.create(server, database)
    stored = store(home, database, rows.arrow())
    assert stored is not None
    return Rig(home, stored)


def found_in(table: TableCheck) -> tuple[object, ...]:
    """All that is reported to a person."""
    comparison = table.comparison
    differences = sorted(repr((each.key, each.column, each.source, each.warehouse)) for each in comparison.first)
    return differences, comparison.rows_different, comparison.rows_compared, sorted(comparison.suspects), table.faults


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("seed", range(len(KEYS)))
def test_checksums_find_what_reading_every_row_finds(
    seed: int,
    store: Store,
    mysql_server: MysqlServer,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of every type of a key and a column; fewer rows are read than there are."""
    chance = random.Random(seed)
    rows = Rows([*(kind for kind in KINDS if kind.is_summed)], KEYS[seed])
    rows.make(chance, 300)
    rows.plant(chance, chance.choice((1, 2, 5)))
    rig = rig_of(rows, mysql_server, unique_name("sums"), store, tmp_path)

    by_sums, by_rows = (rig.check(monkeypatch, reads_all=reads_all) for reads_all in (False, True))

    assert found_in(by_sums) == found_in(by_rows)
    assert by_rows.comparison.rows_different
    assert (by_sums.is_summed, by_sums.read_columns, by_rows.is_summed) == (True, (), False)
    assert 0 < by_sums.rows_read < by_rows.rows_read == by_rows.comparison.rows_compared


@pytest.mark.usefixtures("small_parts")
def test_a_column_without_a_checksum_is_compared_row_by_row_beside_them(
    store: Store,
    mysql_server: MysqlServer,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fault in it is found in a part whose sums are equal, and in one whose sums are not; it is reported by name."""
    chance = random.Random(7)
    rows = Rows([kind for kind in KINDS if kind.mysql in ("TINYINT", "BIT(9)")], KEYS[0])
    rows.make(chance, 300)
    rows.warehouse[5][2] = rows.warehouse[200][2] = b"\xff\xff"
    rows.warehouse[6][1] = 77
    rig = rig_of(rows, mysql_server, unique_name("sums"), store, tmp_path)

    by_sums, by_rows = (rig.check(monkeypatch, reads_all=reads_all) for reads_all in (False, True))

    assert found_in(by_sums) == found_in(by_rows)
    assert by_rows.comparison.rows_different == 3
    assert by_sums.read_columns == ("value",)


@pytest.mark.parametrize("store", STORES, indirect=True)
def test_equal_ends_are_found_equal_without_reading_a_row(
    store: Store,
    mysql_server: MysqlServer,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each type's text is the same at both ends."""
    rows = Rows([kind for kind in KINDS if kind.is_summed], KEYS[0])
    rows.make(random.Random(3), 200)
    rig = rig_of(rows, mysql_server, unique_name("sums"), store, tmp_path)

    found = rig.check(monkeypatch, reads_all=False)

    assert (found.comparison.rows_different, found.faults) == (0, ())
    assert (found.is_summed, found.rows_read, found.comparison.rows_compared) == (True, 0, len(rows.source))
    assert found.comparison.cells_compared == len(rows.source) * (len(rows.kinds) + 1)


@pytest.mark.usefixtures("small_parts")
def test_values_that_are_spelled_otherwise_are_read_and_found_equal(
    store: Store,
    mysql_server: MysqlServer,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A day that is none, doubles with another number of zeros, a document in another order; the rest is not read."""
    rows = Rows([kind for kind in KINDS if kind.mysql in ("DATE", "DOUBLE", "JSON")], KEYS[0])
    rows.make(random.Random(4), 300)
    march = pa.scalar(19784, pa.date32()).as_py()
    rows.source[7][1:], rows.warehouse[7][1:] = ["1e15", "'2024-02-31'", "'[]'"], [1e15, march, "[]"]
    rows.source[8][1:], rows.warehouse[8][1:] = (
        ["-1.5e-9", "NULL", '\'{"ab":1,"c":2}\''],
        [-1.5e-9, None, '{"ab": 1.0, "c":2}'],
    )
    rig = rig_of(rows, mysql_server, unique_name("sums"), store, tmp_path)

    found = rig.check(monkeypatch, reads_all=False)

    assert (found.comparison.rows_different, found.is_summed) == (0, True)
    assert 0 < found.rows_read < 40


@pytest.mark.usefixtures("small_parts")
def test_a_day_that_is_none_does_not_hide_a_null(
    store: Store,
    mysql_server: MysqlServer,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """February's 31st is a day in March, of dates and of moments, and a warehouse without it lacks something."""
    rows = Rows([kind for kind in KINDS if kind.mysql in ("DATE", "DATETIME(6)")], KEYS[0])
    rows.make(random.Random(5), 300)
    rows.source[7][1], rows.warehouse[7][1] = "'2024-02-31'", None
    rows.source[200][2], rows.warehouse[200][2] = "'2024-02-31 01:00:00'", None
    rig = rig_of(rows, mysql_server, unique_name("sums"), store, tmp_path)

    found = rig.check(monkeypatch, reads_all=False)

    assert (found.comparison.rows_different, found.is_summed) == (2, True)


def test_neighbouring_doubles_have_other_texts(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> None:
    """MySQL prints as many digits as distinguish a double from the next, inside an expression too."""
    chance = random.Random(1)
    values = [chance.uniform(0, 1) * 10.0 ** chance.randint(-30, 30) for _ in range(500)]
    neighbours = [pair for value in values for pair in (value, value * (1 + 2**-52))]
    database = unique_name("doubles")
    mysql_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (n INT PRIMARY KEY, d DOUBLE, f FLOAT)",
        f"INSERT INTO {database}.t VALUES " + ", ".join(f"({n}, {v!r}, {n})" for n, v in enumerate(neighbours)),
    )
    with consistent_snapshot(
        DatabaseSettings(host=mysql_server.host, port=mysql_server.port, user="root")
    ) as connection:
        [table] = [each for each in MysqlRows(connection).tables() if each.table_id.database == database]
        [expected] = expected_tables(SourceSelection(name="shop"), [table])
        text = column_text(expected.columns[1], pa.float64(), "d", SqlDialect.DUCKDB)
        assert text is not None
        printed = [row[0] for row in MysqlRows(connection).answers(expected, f"CONCAT({text.source}, '')")]

    assert [float(str(each)) for each in printed] == neighbours
