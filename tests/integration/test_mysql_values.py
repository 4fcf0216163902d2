"""Every MySQL type with its edges, on a real server: the log's form of a row is the snapshot's, in every handling mode."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from libs.errors import UndecodableValue
from libs.events.dead_letter import decode_undecoded_row
from libs.mysql.charsets import python_codec
from libs.mysql.values import compact_json
from libs.source.failure_policy import FailureHandling
from libs.telemetry.faults import lasting_faults
from libs.types.value import UNAVAILABLE_VALUE
from libs.types.value_modes import BinaryMode, DecimalMode, TimePrecision, UnsignedBigintMode, ValueModes
from tests.conftest import MysqlServer
from tests.integration.log_reading import Event, LogReading

COLUMNS = """
  id INT PRIMARY KEY,
  ti TINYINT, tiu TINYINT UNSIGNED, bo BOOLEAN, si SMALLINT, siu SMALLINT UNSIGNED ZEROFILL, mi MEDIUMINT,
  miu MEDIUMINT UNSIGNED, i INT, iu INT UNSIGNED, bi BIGINT, biu BIGINT UNSIGNED,
  d1 DECIMAL(12,2), d2 DECIMAL(65,30), d3 DECIMAL(18,18), d4 DECIMAL(5,0) UNSIGNED ZEROFILL, f FLOAT, fm FLOAT(7,4), d DOUBLE,
  b1 BIT(1), b7 BIT(7), b9 BIT(9), b64 BIT(64),
  ch CHAR(10), vc VARCHAR(300), l1 VARCHAR(50) CHARACTER SET latin1, gb VARCHAR(50) CHARACTER SET gbk,
  sj CHAR(20) CHARACTER SET sjis, u2 VARCHAR(20) CHARACTER SET ucs2, u16 TEXT CHARACTER SET utf16,
  u32 VARCHAR(20) CHARACTER SET utf32, m3 VARCHAR(20) CHARACTER SET utf8mb3, kc VARCHAR(20) CHARACTER SET keybcs2,
  ci VARCHAR(20) COLLATE utf8mb4_bin, ltx LONGTEXT,
  bn BINARY(4), vb VARBINARY(16), bl BLOB, tb TINYBLOB,
  da DATE, t0 TIME, t2 TIME(2), t6 TIME(6), dt0 DATETIME, dt3 DATETIME(3), dt6 DATETIME(6),
  ts0 TIMESTAMP NULL, ts3 TIMESTAMP(3) NULL, ts6 TIMESTAMP(6) NULL, y YEAR,
  en ENUM('a','b','with,comma','ź') CHARACTER SET latin2, st SET('x','y','z'), js JSON,
  pt POINT, ge GEOMETRY, ls LINESTRING, pg POLYGON SRID 4326, gc GEOMETRYCOLLECTION, ve VECTOR(3),
  dm DOUBLE(11,2), dzf DOUBLE(10,2) ZEROFILL, bz BIGINT ZEROFILL, b0 BINARY(0), se SET('','x','y'),
  eb ENUM('a','b') CHARACTER SET binary, sb SET('a','b') CHARACTER SET binary,
  gv INT AS (i + 1) VIRTUAL, gs VARCHAR(20) AS (CONCAT('<', ti, '>')) STORED, hidden INT DEFAULT 5 INVISIBLE
"""
NAMES = [
    part.split()[0] for part in COLUMNS.replace("\n", " ").split(", ") if part.strip() and part.split()[0].islower()
]
ROWS = [
    {},
    {
        "ti": "-128", "tiu": "255", "bo": "TRUE", "si": "-32768", "siu": "7", "mi": "-8388608", "miu": "16777215",
        "i": "-2147483648", "iu": "4294967295", "bi": "-9223372036854775808", "biu": "18446744073709551615",
        "d1": "-9999999999.99", "d2": "-99999999999999999999999999999999999.999999999999999999999999999999",
        "d3": "0.123456789012345678", "d4": "7", "f": "-3.4028235e38", "fm": "1.1", "d": "5e-324",
        "b1": "b'1'", "b7": "b'1010101'", "b9": "b'100000001'", "b64": "0xFFFFFFFFFFFFFFFE",
        "ch": "'ąę😀   '", "vc": "CONCAT('q\"\\\\\\\\/', CHAR(0,1,31,127), '\\n\\t😀')", "l1": "'€café ÿ'",
        "gb": "'中文 abc'", "sj": "'日本語ﾊﾝｶｸ'", "u2": "'żółw'", "u16": "'😀x'", "u32": "'😀y'", "m3": "'漢字'",
        "kc": "'Čaršíř'", "ci": "'ß'", "ltx": "REPEAT('ż', 70000)",
        "dm": "4.56", "dzf": "1.5", "bz": "42", "b0": "''", "se": "3", "eb": "'b'", "sb": "'a,b'",
        "bn": "x'DE000000'", "vb": "x'00FFFBEF'", "bl": "REPEAT(x'AB', 300)", "tb": "x''",
        "da": "'9999-12-31'", "t0": "'01:02:03'", "t2": "'23:59:59.99'", "t6": "'12:34:56.789012'",
        "dt0": "'2024-02-29 23:59:59'", "dt3": "'2024-02-29 12:34:56.700'", "dt6": "'1969-12-31 23:59:59.999999'",
        "ts0": "'2038-01-19 03:14:07'", "ts3": "'2001-09-09 01:46:40.120'", "ts6": "'1970-01-01 00:00:01.000001'",
        "y": "2155", "en": "'with,comma'", "st": "'x,z'",
        "js": "'{\"b\": [1, 1.0, -1.5e-7, 1e300, null, true, \"q\\\\\"ż😀\"], \"aa\": {}, \"big\": 18446744073709551615}'",
        "pt": "ST_GeomFromText('POINT(-180 -90)')", "ge": "ST_GeomFromText('POINT(1 2)', 4326)",
        "ls": "ST_GeomFromText('LINESTRING(0 0,1.5 2.5)', 3857)",
        "pg": "ST_GeomFromText('POLYGON((0 0,0 1,1 1,0 0))', 4326)",
        "gc": "ST_GeomFromText('GEOMETRYCOLLECTION EMPTY')", "ve": "TO_VECTOR('[1.5,-2.25,3.4e38]')", "hidden": "9",
    },
    {
        "f": "1e-45", "d": "-0.0", "d1": "-0.01", "d2": "0.000000000000000000000000000001", "biu": "9223372036854775808",
        "da": "'2024-02-31'", "dt0": "'2023-02-31 10:00:00'", "dt3": "'0001-01-01 00:00:00.001'",
        "y": "0", "en": "'no member'", "st": "''", "vc": "''", "dm": "0.29", "se": "6",
        "sb": "''", "ch": "''", "bl": "''", "b64": "0", "bn": "''",
        "js": "JSON_OBJECT('t', CAST('-12:34:56.789' AS TIME(6)), 'd', CAST(12.3400 AS DECIMAL(10,4)),"
        " 'x', CAST(x'CAFE' AS BINARY), 'm', CAST('2024-01-02 03:04:05.6' AS DATETIME(6)))",
        "t0": "'00:00:00'", "t6": "'00:00:00.000001'",
    },
    {"da": "'0000-00-00'", "dt0": "'0000-00-00'", "dt3": "'2024-00-10'", "dt6": "'0000-00-00'", "ts0": "'0000-00-00'",
     "ts6": "'0000-00-00'", "js": "'null'"},
]  # fmt: skip
LONG_TIMES = {
    "t0": "'-838:59:59'",
    "t2": "'838:59:58.99'",
    "t6": "'-00:00:00.000001'",
    "dt6": "'9999-12-31 23:59:59.999999'",
}
MODES = [
    ValueModes(),
    ValueModes(time_precision=TimePrecision.ADAPTIVE, decimal=DecimalMode.STRING, binary=BinaryMode.BASE64),
    ValueModes(time_precision=TimePrecision.CONNECT, decimal=DecimalMode.DOUBLE, binary=BinaryMode.HEX),
    ValueModes(time_precision=TimePrecision.ISO_STRING, unsigned_bigint=UnsignedBigintMode.PRECISE),
    ValueModes(time_precision=TimePrecision.MICROSECONDS, binary=BinaryMode.BASE64_URL_SAFE),
    ValueModes(time_precision=TimePrecision.NANOSECONDS, decimal=DecimalMode.STRING),
]
LENIENT = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"


def reading_of(server: MysqlServer, database: str, **settings: Any) -> LogReading:
    return LogReading(server, settings={"include_tables": (rf"{database}\..*",), **settings})


def insert(database: str, first_id: int, rows: list[dict[str, str]]) -> list[str]:
    return [
        f"INSERT INTO {database}.t (id{''.join(', ' + name for name in row)}) "
        f"VALUES ({first_id + place}{''.join(', ' + value for value in row.values())})"
        for place, row in enumerate(rows)
    ]


async def snapshot(reading: LogReading) -> list[Event]:
    events: list[Event] = []

    def is_done(seen: list[Event]) -> bool:
        events[:] = seen
        return reading.checkpoint is not None and reading.checkpoint.snapshot is None

    await reading.read(is_done)
    return events


@pytest.mark.parametrize("modes", MODES, ids=lambda modes: modes.time_precision.value)
async def test_a_row_has_one_form_in_snapshot_and_log(
    mysql_server: MysqlServer, database: str, modes: ValueModes
) -> None:
    """Each row stands before the snapshot and is written again after it; the two differ in their ids alone."""
    match modes.time_precision:
        case TimePrecision.CONNECT:
            rows = ROWS
        case TimePrecision.NANOSECONDS:  # 64 bits of them reach back to 1678
            rows = [{name: text for name, text in row.items() if "0001-" not in text} for row in ROWS]
        case _:
            rows = [*ROWS, LONG_TIMES]
    reading = reading_of(mysql_server, database, values=modes)
    mysql_server.execute(
        LENIENT, f"CREATE TABLE {database}.t ({COLUMNS}) CHARACTER SET utf8mb4", *insert(database, 1, rows)
    )

    copied = [event.after for event in await snapshot(reading)]
    mysql_server.execute(LENIENT, *insert(database, 101, rows))
    logged = [event.after for event in await reading.read(lambda events: len(events) >= len(rows))]

    assert len(copied) == len(rows)
    for before, after in zip(copied, logged, strict=True):
        assert {**after, "id": 0} == {**before, "id": 0}
    assert list(copied[1]) == list(logged[1])
    assert None not in copied[1].values()


async def test_values_that_a_mode_cannot_hold_are_named_errors(mysql_server: MysqlServer, database: str) -> None:
    """Connect's Time has one day: the error names place, column and remedy, and not the value."""
    reading = reading_of(
        mysql_server,
        database,
        values=ValueModes(time_precision=TimePrecision.CONNECT),
        failure_handling=FailureHandling.FAIL,
    )
    mysql_server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, t TIME)")
    await snapshot(reading)
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (1, '-01:00:00')")

    with pytest.raises(UndecodableValue) as failed:
        await reading.read(lambda events: bool(events))

    for word in (f"{database}.t.t", "time_precision", "binlog.", "transaction ", "row 0"):
        assert word in str(failed.value)
    assert "-01" not in str(failed.value)


async def test_other_modes_at_a_restart_make_a_new_version(mysql_server: MysqlServer, database: str) -> None:
    """Rows from there on have the new form under a schema that says so; those before keep theirs."""
    reading = reading_of(mysql_server, database)
    mysql_server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, d DECIMAL(6,2), n INT)")
    await snapshot(reading)
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (1, 1.50, 1)")
    before = await reading.read(lambda events: bool(events))
    reading.settings["values"] = ValueModes(decimal=DecimalMode.STRING)
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (2, 2.50, 2)")

    after = await reading.read(lambda events: bool(events))
    versions = len(reading.history.changes)
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (3, 3.50, 3)")
    again = await reading.read(lambda events: bool(events))

    assert [event.after["d"] for event in (*before, *after, *again)] == ["AJY=", "2.50", "3.50"]
    schemas = [schema for _, _, schema in reading.history.changes if schema is not None]
    assert [schema.column("d").logical_type.kind.value for schema in schemas] == ["decimal", "decimal_text"]
    assert len(reading.history.changes) == versions


async def test_every_mode_but_fail_goes_on_behind_a_bad_row(mysql_server: MysqlServer, database: str) -> None:
    """The rows around it arrive with the orders they always have; the dead letter says where it stood."""
    values = ValueModes(time_precision=TimePrecision.CONNECT)
    mysql_server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, t TIME)")
    bad = [FailureHandling.WARN, FailureHandling.SKIP, FailureHandling.DEAD_LETTER]
    readings = {mode: reading_of(mysql_server, database, values=values, failure_handling=mode) for mode in bad}
    healthy = reading_of(mysql_server, database)
    for each in (*readings.values(), healthy):
        await snapshot(each)
    mysql_server.execute(
        f"INSERT INTO {database}.t VALUES (1, '01:00:00'), (2, '25:00:00'), (3, '03:00:00'), (4, '-04:00:00'), (5, NULL)",
        f"UPDATE {database}.t SET t = '30:00:00' WHERE id = 3",
        f"INSERT INTO {database}.t VALUES (6, '06:00:00')",
    )
    whole = {event.after["id"]: event for event in await healthy.read(lambda events: len(events) >= 7)}

    for mode, each in readings.items():
        events = await each.read(lambda events: len(events) >= 4)

        assert [event.after["id"] for event in events] == [1, 3, 5, 6]
        assert [event.order for event in events if event.op == "c" and event.after["id"] != 3] == [
            whole[row].order for row in (1, 5, 6)
        ]
        letters = [decode_undecoded_row(letter) for batch in each.batches for letter in batch.dead_letters]
        if mode is not FailureHandling.DEAD_LETTER:
            assert not letters
            continue
        assert [(row.table, row.column, row.row, row.order.tx_ordinal) for row in letters] == [
            ("t", "t", 1, 2),
            ("t", "t", 3, 4),
            ("t", "t", 0, 1),
        ]
        assert all(row.transaction_id and row.file.startswith("binlog.") and row.images for row in letters)


async def test_a_bad_value_in_a_table_that_nobody_captures_stops_nothing(
    mysql_server: MysqlServer, database: str, unique_name: Callable[[str], str]
) -> None:
    """Its rows are not decoded at all: not even a damaged text is seen."""
    mysql_server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, t TIME)")
    mysql_server.execute(
        f"CREATE TABLE {database}.other (id INT PRIMARY KEY, t TIME, v VARCHAR(20) CHARACTER SET sjis)",
    )
    reading = LogReading(
        mysql_server,
        settings={
            "include_tables": (rf"{database}\.t",),
            "values": ValueModes(time_precision=TimePrecision.CONNECT),
        },
    )
    await snapshot(reading)
    mysql_server.execute(
        f"INSERT INTO {database}.other VALUES (1, '-838:59:59', 'x')",
        f"INSERT INTO {database}.t VALUES (1, '01:00:00')",
    )

    events = await reading.read(lambda events: bool(events))

    assert [(event.table, event.after["t"]) for event in events] == [(f"{database}.t", 3_600_000)]


async def test_partial_json_updates_give_the_whole_document(mysql_server: MysqlServer, database: str) -> None:
    """``binlog_row_value_options=PARTIAL_JSON``: every kind of change in place comes out as the server prints the document."""
    document = json.dumps({"a": 1, "bb": [1, 2, {"c": "x" * 300}], "key with space": {"q": None}, "n": 1.5})
    changes = [
        "JSON_SET(j, '$.a', 12.5, '$.bb[2].c', 'y')",
        "JSON_REPLACE(j, '$.n', CAST('2024-01-02' AS DATE))",
        "JSON_REMOVE(j, '$.bb[0]')",
        "JSON_SET(j, '$.\"key with space\".q', true, '$.zz', CAST(1.50 AS DECIMAL(5,2)))",
        "JSON_SET(j, '$.bb[9]', 'end')",
        "JSON_SET(j, '$.bb[last]', 'at the end', '$.bb[last-1]', 'before it')",
        "JSON_REMOVE(j, '$.bb[last]')",
        "JSON_ARRAY_INSERT(j, '$.bb[last]', 7)",
        "JSON_ARRAY_APPEND(j, '$.bb', 8)",
        "JSON_REMOVE(j, '$.bb[last-1]', '$.bb[0]')",
        "JSON_SET(j, '$.a[0]', 3, '$.a[last]', 4)",
        "JSON_SET(j, '$.zz', 1006569242078552.2e0, '$.n', 999999999999999.9e0)",
        "JSON_REMOVE(j, '$.bb[last]', '$.bb[last]')",
        "JSON_SET(j, '$.bb[last-99]', 'before all', '$.zz[last-1]', 'before it')",
    ]
    reading = reading_of(mysql_server, database)
    mysql_server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, j JSON, k JSON, n INT)",
        f"INSERT INTO {database}.t VALUES (1, '{document}', '{document}', 1)",
    )
    await snapshot(reading)
    printed = []
    with mysql_server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'")
        for change in changes:
            cursor.execute(f"UPDATE t SET j = {change}, n = n + 1 WHERE id = 1")
            cursor.execute("SELECT j, k FROM t")
            printed.append(cursor.fetchone())

    events = await reading.read(lambda events: len(events) >= len(changes))

    assert [(event.after["j"], event.after["k"]) for event in events] == [
        (compact_json(changed.encode()), compact_json(kept.encode())) for changed, kept in printed
    ]
    assert [event.after["n"] for event in events] == [*range(2, 2 + len(changes))]


async def test_a_byte_that_its_charset_does_not_map_stops_one_row_and_is_told(
    mysql_server: MysqlServer, database: str
) -> None:
    """MySQL stores it. By default the row is a dead letter and a fault, and every other row comes."""
    reading = reading_of(mysql_server, database)
    mysql_server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET cp1251)")
    await snapshot(reading)
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (1, 'a'), (2, x'98'), (3, 'c')")

    events = await reading.read(lambda events: len(events) >= 2)

    assert [event.after["id"] for event in events] == [1, 3]
    told = [
        fault for fault in lasting_faults() if fault.id == "rows_set_aside" and fault.scope.table == f"{database}.t"
    ]
    assert len(told) == 1
    assert "no cp1251 text" in told[0].happened


async def test_a_new_row_has_the_defaults_that_its_image_lacks(mysql_server: MysqlServer, database: str) -> None:
    """``binlog_row_image=MINIMAL`` leaves out columns that an INSERT does not name, and the server's own row has their values.
    A JSON document that changed in part, and is in no image, is an error: the placeholder would say that it did not change."""
    modes = ValueModes(unavailable_placeholder=UNAVAILABLE_VALUE, decimal=DecimalMode.STRING)
    reading = reading_of(mysql_server, database, values=modes, failure_handling=FailureHandling.FAIL)
    mysql_server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY AUTO_INCREMENT, n INT, d INT DEFAULT 7, nn INT NOT NULL, "
        "v VARCHAR(20) NOT NULL DEFAULT 'x', l CHAR(3) CHARACTER SET latin2 DEFAULT 'ż', w VARCHAR(9) NOT NULL, "
        "e INT DEFAULT (1 + 1), ts TIMESTAMP DEFAULT CURRENT_TIMESTAMP, tu DATETIME NULL ON UPDATE CURRENT_TIMESTAMP, "
        "g INT AS (n + 1) STORED, b BLOB, j JSON, en ENUM('a','b') NOT NULL, ed ENUM('a','b') DEFAULT 'b', "
        "st SET('a','b') DEFAULT 'a,b', f FLOAT DEFAULT 1.5, dc DECIMAL(9,3) DEFAULT 2.5, da DATE DEFAULT '2024-01-02', "
        "dn DATE NOT NULL, dt DATETIME(3) DEFAULT '2024-01-02 03:04:05.6', t TIME DEFAULT '-01:00:00', y YEAR DEFAULT 1999)"
    )
    await snapshot(reading)
    with mysql_server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_row_image = MINIMAL, sql_mode = ''")
        cursor.execute("INSERT INTO t (n) VALUES (1)")
        cursor.execute("INSERT INTO t () VALUES ()")
    again = reading_of(mysql_server, database, values=modes)

    logged = await reading.read(lambda events: len(events) >= 2)
    stored = await snapshot(again)
    with mysql_server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = ''")
        cursor.execute('INSERT INTO t (j) VALUES (\'{"a": 1, "b": "long enough to be changed in part"}\')')
        cursor.execute("SET SESSION binlog_row_image = MINIMAL, binlog_row_value_options = 'PARTIAL_JSON'")
        cursor.execute("UPDATE t SET j = JSON_SET(j, '$.a', 2) WHERE j IS NOT NULL")

    assert [event.after for event in logged] == [event.after for event in stored]
    with pytest.raises(UndecodableValue, match=r"t\.j at row 0: .*lacks the document"):
        await reading.read(lambda events: len(events) >= 2)


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
async def test_what_a_row_image_lacks_is_unavailable(mysql_server: MysqlServer, database: str, image: str) -> None:
    """An unchanged column that the image before holds is that; a column that neither holds is the placeholder, or an error
    where none was chosen or the row has a new key, and never NULL."""
    reading = reading_of(mysql_server, database, values=ValueModes(unavailable_placeholder=UNAVAILABLE_VALUE))
    strict = reading_of(mysql_server, database, failure_handling=FailureHandling.FAIL)
    mysql_server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, n INT, v VARCHAR(20), b LONGTEXT, j JSON)",
        f"INSERT INTO {database}.t VALUES (1, 1, 'v', 'blob', '[1]')",
    )
    for each in (reading, strict):
        await snapshot(each)
    with mysql_server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION binlog_row_image = {image}")
        cursor.execute("UPDATE t SET n = 2 WHERE id = 1")
        cursor.execute("UPDATE t SET id = 2, b = NULL WHERE id = 1")
        cursor.execute("DELETE FROM t WHERE id = 2")

    events = await reading.read(lambda events: len(events) >= 2)

    with pytest.raises(UndecodableValue, match="binlog_row_image = FULL"):
        await strict.read(lambda events: len(events) >= 4)
    lacking = UNAVAILABLE_VALUE
    others = {"v": lacking, "j": lacking} if image == "MINIMAL" else {"v": "v", "j": "[1]"}
    assert events[0].after == {"id": 1, "n": 2, "b": lacking, **others}
    if image == "MINIMAL":
        assert [event.value["op"] for event in events] == ["u", "d"]
        (fault,) = [fault for fault in lasting_faults() if fault.id == "rows_set_aside"]
        assert "the row's key changed" in fault.happened
    else:
        assert [event.value["op"] for event in events] == ["u", "d", "c", "d"]
        assert events[2].after["id"] == 2
        assert events[2].after["b"] is None
    assert events[-1].value["before"]["id"] == 2


ONE_BYTE = (
    "armscii8 ascii cp1250 cp1251 cp1256 cp1257 cp850 cp852 cp866 dec8 geostd8 greek hebrew hp8 keybcs2 koi8r koi8u latin1 "
    "latin2 latin5 latin7 macce macroman swe7 tis620"
)
WIDE = "big5 cp932 eucjpms euckr gb18030 gb2312 gbk sjis ujis"


@pytest.mark.parametrize("charset", f"{ONE_BYTE} {WIDE}".split())
def test_every_character_is_read_as_the_server_reads_it(mysql_server: MysqlServer, charset: str) -> None:
    """Each byte, and each pair of bytes, that the server can convert to UTF-8."""
    stored = [bytes([byte]) for byte in range(256)]
    if charset in WIDE.split():
        stored += [bytes([first, second]) for first in range(0x81, 0xFF) for second in range(0x40, 0xFF)]
    codec = python_codec(charset)
    differing = []
    with mysql_server.connect() as connection, connection.cursor() as cursor:
        for begin in range(0, len(stored), 3000):
            part = stored[begin : begin + 3000]
            cursor.execute("SET SESSION sql_mode = ''")
            values = ", ".join(f"ROW(x'{each.hex()}')" for each in part)
            cursor.execute(
                f"SELECT HEX(column_0), HEX(CONVERT(CONVERT(column_0 USING {charset}) USING utf8mb4)), "
                f"HEX(CONVERT(column_0 USING {charset})) FROM (VALUES {values}) AS v"
            )
            for bytes_hex, text_hex, back_hex in cursor.fetchall():
                text = bytes.fromhex(text_hex or "").decode("utf-8", "replace")
                is_known = back_hex == bytes_hex and len(text) == 1 and text != "\ufffd"
                if is_known and (text != "?" or bytes_hex == "3F"):
                    try:
                        ours = bytes.fromhex(bytes_hex).decode(codec)
                    except UnicodeDecodeError:
                        ours = ""
                    if ours != text:
                        differing.append((bytes_hex, text, ours))

    assert differing == []


def test_a_row_of_every_edge_names_every_column() -> None:
    """But the generated ones: none is forgotten when a column is added."""
    assert set(ROWS[1]) | {"id", "gv", "gs"} >= set(NAMES)
