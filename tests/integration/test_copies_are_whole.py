"""A copy has every row of its table, with every kind of key: random keys on a real MySQL, in small chunks, against one SELECT.

Both kinds of snapshot are read, the initial one also in ranges; the server is the oracle for rows and their number.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import orjson
import pytest

from libs.mysql.binlog_position import BinlogPosition
from libs.mysql.chunk_query import pack_key
from libs.mysql.ddl import show_create_to_schema
from libs.mysql.gtid import GtidSet
from libs.mysql.identifiers import quote_table
from libs.mysql.logical import in_value_modes
from libs.mysql.text_row import select_list, text_rows_decoder
from libs.source.incremental import is_read
from libs.source.mysql import table_copy
from libs.source.mysql.client import Connection, connect, select_raw
from libs.source.mysql.key_ranges import table_ranges
from libs.source.mysql.settings import DatabaseSettings
from libs.source.mysql.snapshot import CopiedAt, ReadView, create_statement, is_chunked, read_chunk
from libs.source.mysql.table_copy import TableRange, copy_range
from libs.types.checkpoint import TableCopy
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from libs.types.value_modes import DecimalMode, TimePrecision, ValueModes
from protos.headwater.changes.v1.change_batch_pb2 import Run
from services.binlog_reader.incremental import prepare_connection, read_between_watermarks
from tests.conftest import MysqlServer

Row = tuple[bytes, bytes]
"""Image and key, as JSON in one spelling."""

_DATES: Final = (
    "'0000-00-00'", "'1970-01-01'", "'1969-12-31'", "'2024-02-31'", "'2024-03-02'", "'2024-00-15'", "'2024-05-00'",
    "'0000-01-01'", "'1000-01-01'", "'9999-12-31'", "'2024-02-29'", "'0001-01-01'",
)  # fmt: skip
_CLOCKS: Final = (
    "00:00:00",
    "00:00:00.000001",
    "00:00:00.0005",
    "23:59:59.999999",
    "12:00:00.123456",
    "12:00:00.123457",
)
_TEXT: Final = (
    "''", "'a'", "'A'", "'b'", "'ß'", "'ss'", "'É'", "'é'", "'z'", "'Z'", "'a b'", "'a\\tb'", "'%'", "'_'", "'\\\\'", "'\"'",
    "'it''s'", "'0'", "'-1'", "'NULL'", "'ż'", "'中'", "'日本'", "'😀'", "'~'", "CHAR(1)", "'aa'", "'a-b'",
)  # fmt: skip
_AT: Final = CopiedAt(
    BinlogPosition(gtid_set="", file="f", pos=4), EventOrder(epoch=0, rank=0, tx_ordinal=0), 1_700_000_000_000_000
)
TYPES: Final[dict[str, tuple[str, ...]]] = {
    "TINYINT": ("-128", "-1", "0", "1", "127", "50"),
    "SMALLINT UNSIGNED ZEROFILL": ("0", "1", "10", "65535", "300"),
    "INT": ("-2147483648", "-1", "0", "5", "2147483647"),
    "BIGINT UNSIGNED": (
        "0",
        "1",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551614",
    ),
    "BIGINT": ("-9223372036854775808", "-9223372036854775807", "0", "9223372036854775807", "9007199254740993"),
    "DECIMAL(20,0)": ("0", "-1", *(f"{12_345_678_901_234_567_890 + n}" for n in range(8))),
    "DECIMAL(30,10) ZEROFILL": ("0", "1.5", "0.0000000001", "12345678901234567890.0000000001"),
    "FLOAT": ("0", "-0e0", "0.1", "16777216", "16777217", "16777218", "1e-45", "3.4e38", "-1.17549435e-38", "123456.7"),
    "FLOAT(7,3)": ("0", "0.001", "1.1", "9999.999", "-9999.999", "1.005"),
    "DOUBLE": (
        "0e0",
        "-0e0",
        "0.1",
        "0.30000000000000004",
        "0.3",
        "5e-324",
        "1.7976931348623157e308",
        "1e15",
        "999999999999999.9",
    ),
    "DOUBLE(11,2)": ("4.56", "4.57", "0.29", "-0.29", "0.57", "1.15", "99999999.99", "0"),
    "DOUBLE(10,2) ZEROFILL": ("1.5", "4.56", "0", "0.29"),
    "BIT(1)": ("b'0'", "b'1'"),
    "BIT(9)": ("b'0'", "b'1'", "b'111111111'", "b'100000000'"),
    "BIT(64)": ("b'0'", "b'1'", "0xFFFFFFFFFFFFFFFF", "0x8000000000000000", "0x7FFFFFFFFFFFFFFF"),
    "YEAR": ("0", "1901", "1970", "2000", "2069", "2155"),
    "DATE": _DATES,
    "TIME": ("'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:01'", "'100:00:00'", "'23:59:59'"),
    "TIME(6)": (
        "'-838:59:59'",
        "'-00:00:00.000001'",
        "'00:00:00'",
        "'00:00:00.000001'",
        "'00:00:00.0009'",
        "'24:00:00.5'",
    ),
    "DATETIME": tuple(f"{day[:-1]} {clock}'" for day in _DATES for clock in ("00:00:00", "23:59:59")),
    "DATETIME(6)": tuple(f"{day[:-1]} {clock}'" for day in _DATES for clock in _CLOCKS),
    "TIMESTAMP(3) DEFAULT '2000-01-01'": (
        "'0000-00-00'",
        "'1970-01-01 00:00:01'",
        "'2038-01-19 03:14:07.999'",
        "'2024-01-01'",
    ),
    "CHAR(8)": _TEXT,
    "VARCHAR(20) COLLATE utf8mb4_general_ci": _TEXT,
    "VARCHAR(20) COLLATE utf8mb4_bin": _TEXT,
    "VARCHAR(20) COLLATE utf8mb4_ja_0900_as_cs": _TEXT,
    "VARCHAR(20) CHARACTER SET utf8mb3": _TEXT,
    "VARCHAR(20) CHARACTER SET latin1": _TEXT,
    "VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_german2_ci": _TEXT,
    "CHAR(9) CHARACTER SET cp1251": _TEXT,
    "VARCHAR(20) CHARACTER SET latin2 COLLATE latin2_bin": _TEXT,
    "VARCHAR(20) CHARACTER SET sjis": _TEXT,
    "VARCHAR(20) CHARACTER SET gbk": _TEXT,
    "VARCHAR(20) CHARACTER SET utf16": _TEXT,
    "VARCHAR(20) CHARACTER SET ucs2": _TEXT,
    "CHAR(5) CHARACTER SET utf32": _TEXT,
    "VARCHAR(20) CHARACTER SET gb18030": _TEXT,
    "BINARY(3)": ("x''", "x'00'", "x'0000'", "x'20'", "x'FF'", "x'FF00'", "'a'", "'A'", "x'612000'"),
    "VARBINARY(9)": ("x''", "x'00'", "x'0000'", "x'20'", "x'FF'", "'a'", "'a '", "x'6100'"),
    "ENUM('b','','a')": ("'b'", "''", "'a'", "'no member'"),
    "ENUM('x','X1','10','2','it''s','ź') CHARACTER SET latin2": (
        "'x'",
        "'X1'",
        "'10'",
        "'2'",
        "'it''s'",
        "'ź'",
        "'none'",
    ),
    "INT AS (CAST(doc->>'$.n' AS SIGNED)) STORED": (),
    "VARCHAR(40) AS (doc->>'$.s') STORED": (),
}
EXAMPLES: Final = (
    ("INT", "DATE"),
    ("ENUM('b','','a')", "INT"),
    ("ENUM('b','','a')",),
    ("DATETIME(6)",),
    ("DECIMAL(20,0)",),
    ("DOUBLE(11,2)",),
    ("TIMESTAMP(3) DEFAULT '2000-01-01'", "FLOAT(7,3)"),
)
"""Keys that lost rows once."""
MODES: Final = (ValueModes(time_precision=TimePrecision.CONNECT, decimal=DecimalMode.DOUBLE), ValueModes())


def test_every_row_of_any_key_comes_once(mysql_server: MysqlServer, database: str) -> None:
    """Single and compound keys, primary and unique, of each type with its edges; and the first keys that went wrong."""
    chance = random.Random(33)
    keys = [*EXAMPLES, *((name,) for name in TYPES), *(_some_types(chance) for _ in range(12))]
    settings = DatabaseSettings(host=mysql_server.host, port=mysql_server.port, user="root")
    connection, beside = connect(settings), connect(settings)
    prepare_connection(connection)
    try:
        for number, key in enumerate(keys):
            _fill(mysql_server, database, f"t{number}", key, chance)
            # Connect's Time is of one day.
            modes = ValueModes() if any(of.startswith("TIME") for of in key) else MODES[number % 2]
            schema = _schema(connection, TableId(database=database, table=f"t{number}"), modes)
            rows = _rows(connection, schema)
            [(count,)] = mysql_server.execute(f"SELECT COUNT(*) FROM t{number}", database=database)
            assert rows.total() == count
            size = chance.choice((3, 8))
            for road, copied in (
                ("incremental", _incremental(connection, schema, size, "")),
                ("along a surrogate key", _incremental(connection, schema, size, "few")),
                ("initial", _initial(connection, [TableRange(schema)], size)),
                ("ranges", _initial(connection, _ranges(beside, schema), size)),
                ("chunk by chunk", _chunks(connection, schema, size)),
            ):
                assert Counter(copied) == rows, f"{road}, chunks of {size}, key {key}: {schema.table_id}"
    finally:
        connection.close()
        beside.close()


def test_every_row_comes_where_a_key_holds_the_first_characters(mysql_server: MysqlServer, database: str) -> None:
    """MySQL's own range over such an index leaves rows out, in a collation that distinguishes accents."""
    chance = random.Random(7)
    settings = DatabaseSettings(host=mysql_server.host, port=mysql_server.port, user="root")
    connection = connect(settings)
    prepare_connection(connection)
    letters = "aàáâAÀbcçéeEéèßs"
    collations = (
        "utf8mb4_0900_as_ci",
        "utf8mb4_0900_as_cs",
        "utf8mb4_ja_0900_as_cs",
        "utf8mb4_0900_ai_ci",
        "utf8mb4_bin",
    )
    try:
        for number, collation in enumerate(collations):
            texts = sorted({"".join(chance.choices(letters, k=chance.choice((1, 2, 3, 5)))) for _ in range(300)})
            rows = ", ".join(f"({n}, '{text}')" for n, text in enumerate(texts))
            mysql_server.execute(
                "SET NAMES utf8mb4",
                f"CREATE TABLE t{number} (few INT NOT NULL, k VARCHAR(20) COLLATE {collation} NOT NULL, PRIMARY KEY (k(2)))",
                f"INSERT IGNORE INTO t{number} VALUES {rows}",
                database=database,
            )
            schema = _schema(connection, TableId(database=database, table=f"t{number}"), ValueModes())
            stored = _rows(connection, schema)
            for size in (1, 3, 8):
                for road, copied in (
                    ("incremental", _incremental(connection, schema, size, "")),
                    ("initial", _initial(connection, [TableRange(schema)], size)),
                    ("ranges", _initial(connection, _ranges(connection, schema), size)),
                ):
                    assert Counter(copied) == stored, f"{road}, chunks of {size}, {collation}"
    finally:
        connection.close()


@pytest.mark.parametrize("behind", ["0", "30"], ids=["twice", "left out"])
def test_a_copy_that_reads_rows_twice_or_not_at_all_says_so(
    mysql_server: MysqlServer, database: str, monkeypatch: pytest.MonkeyPatch, behind: str
) -> None:
    """The view's own count contradicts a place that a chunk goes on from wrongly."""
    mysql_server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)",
        f"INSERT INTO t VALUES {', '.join(f'({key})' for key in range(1, 41))}",
        database=database,
    )
    connection = connect(DatabaseSettings(host=mysql_server.host, port=mysql_server.port, user="root"))
    places = iter([pack_key([behind.encode()])])
    right = table_copy.place_of
    monkeypatch.setattr(table_copy, "place_of", lambda *given: next(places, None) or right(*given))
    try:
        schema = _schema(connection, TableId(database=database, table="t"), ValueModes())
        chunks = list(copy_range(connection, TableRange(schema), _AT, source="s", chunk_rows=10, leaves_out=False))
    finally:
        connection.close()

    read = {"0": 50, "30": 20}[behind]
    assert [chunk.contradiction for chunk in chunks if chunk.is_last] == [
        f"{database}.t: the copy read {read} rows, and its read view has 40 of them"
    ]


def _some_types(chance: random.Random) -> tuple[str, ...]:
    return tuple(chance.choice([*TYPES]) for _ in range(chance.choice((2, 2, 3))))


def _fill(server: MysqlServer, database: str, table: str, key: tuple[str, ...], chance: random.Random) -> None:
    names = [f"k{number}" for number in range(len(key))]
    columns = ", ".join(f"{name} {of} NOT NULL" for name, of in zip(names, key, strict=True))
    kind = chance.choice(("PRIMARY KEY", "UNIQUE KEY"))
    rows = []
    for number in range(40):
        document = f'\'{{"n": {chance.randrange(-9, 99)}, "s": "{chance.choice("aAbßé")}{number}"}}\''
        values = [chance.choice(TYPES[of]) if TYPES[of] else "DEFAULT" for of in key]
        rows.append(f"({', '.join([*values, document, str(number % 4)])})")
    # Wrong values are wanted: invalid members, days past the month's end, characters that a charset lacks.
    server.execute(
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'",
        "SET NAMES utf8mb4",
        f"CREATE TABLE {table} ({columns}, doc JSON, few INT NOT NULL, {kind} ({', '.join(names)}))",
        f"INSERT IGNORE INTO {table} ({', '.join(names)}, doc, few) VALUES {', '.join(rows)}",
        database=database,
    )


def _schema(connection: Connection, table_id: TableId, modes: ValueModes) -> TableSchema:
    schema = show_create_to_schema(table_id, *create_statement(connection, table_id))
    assert is_chunked(schema)
    return in_value_modes(schema, modes)


def _rows(connection: Connection, schema: TableSchema) -> Counter[Row]:
    statement = f"SELECT {select_list(schema)} FROM {quote_table(schema.table_id)}"
    return Counter(map(_spelt, map(text_rows_decoder(schema).row, select_raw(connection, statement, 60.0))))


def _spelt(row: tuple[bytes, bytes]) -> Row:
    image, key = row
    return orjson.dumps(orjson.loads(image)), key


def _incremental(connection: Connection, schema: TableSchema, size: int, surrogate: str) -> Iterator[Row]:
    copy, is_done = TableCopy(table=str(schema.table_id), surrogate_key=surrogate), False
    read = 0
    while not is_done:
        chunk = read_between_watermarks(connection, schema, copy, seen=GtidSet(), chunk_rows=size, leaves_out=False)
        assert chunk is not None
        assert not chunk.is_stale
        yield from map(_spelt, chunk.rows.values())
        read += len(chunk.rows)
        copy, is_done = chunk.copy, chunk.is_last or is_read(chunk.copy)
        assert copy.rows_read == read
        assert copy.chunks_read < 200, "the copy does not end"


def _ranges(connection: Connection, schema: TableSchema) -> list[TableRange]:
    return table_ranges(connection, schema, parts=4, chunk_rows=1)


def _initial(connection: Connection, parts: Iterable[TableRange], size: int) -> Iterator[Row]:
    for part in parts:
        for chunk in copy_range(connection, part, _AT, source="s", chunk_rows=size, leaves_out=False):
            yield from map(_spelt, filter(None, (chunk.first, chunk.last)))
            assert not chunk.contradiction
            assert not chunk.left_out
            for run in chunk.runs:
                sent = Run.FromString(run.encoded())
                for key, value in zip(sent.keys, sent.values, strict=True):
                    yield orjson.dumps(orjson.loads(value)["after"]), key


def _chunks(connection: Connection, schema: TableSchema, size: int) -> Iterator[Row]:
    view = ReadView(
        connection, BinlogPosition(gtid_set="", file="f", pos=4), EventOrder(epoch=0, rank=0, tx_ordinal=0), 0
    )
    last_key, has_more = b"", True
    while has_more:
        chunk = read_chunk(view, schema, last_key, size)
        yield from map(_spelt, chunk.rows)
        last_key, has_more = chunk.last_key, chunk.has_more
