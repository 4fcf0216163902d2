"""A table of every type: its rows, the changes that a test makes to it, and its rows as MySQL gives them."""

import base64
import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import orjson

from tests.conftest import MysqlServer

Row = dict[str, Any]

TABLE: Final = "every_type"
COLUMNS: Final = {
    "id": "BIGINT NOT NULL PRIMARY KEY",
    "tiny": "TINYINT UNSIGNED",
    "flag": "TINYINT(1)",
    "small": "SMALLINT",
    "medium": "MEDIUMINT UNSIGNED",
    "num": "INT",
    "positive": "INT UNSIGNED",
    "big": "BIGINT",
    "amount": "DECIMAL(20,4)",
    "part": "FLOAT",
    "ratio": "DOUBLE",
    "one_bit": "BIT(1)",
    "day": "DATE",
    "clock": "TIME(6)",
    "seen": "DATETIME",
    "seen3": "DATETIME(3)",
    "seen6": "DATETIME(6)",
    "stamped": "TIMESTAMP(3) NULL",
    "made": "YEAR",
    "code": "BINARY(4)",
    "raw_bytes": "VARBINARY(20)",
    "pile": "BLOB",
    "kind": "ENUM('a','b''c','ü')",
    "tags": "SET('x','y','z')",
    "letter": "CHAR(5) CHARACTER SET latin1",
    "name": "VARCHAR(60)",
    "note": "TEXT",
    "doc": "JSON",
}
_COPIED: Final = (
    "(1, 255, 1, -32768, 16777215, -2147483648, 4294967295, -9223372036854775808, '1234567890123456.7891', 0.25, 0.1, b'1', "
    "'2024-02-29', '12:34:56.789012', '2024-02-29 12:34:56', '2024-02-29 12:34:56.5', '2024-02-29 12:34:56.123456', "
    "'2024-02-29 12:34:56.789', 2024, x'00ff0102', x'fbff3f', x'0102fe', 'b''c', 'x,z', 'é', 'naïve 𝄞', 'line\\nbreak', "
    '\'{"a": [1, 2.5, null], "ü": "é"}\')',
    "(2, 0, 0, 32767, 0, 2147483647, 0, 9223372036854775807, -0.0001, -1.5, -1e300, b'0', '1970-01-01', '00:00:00', "
    "'1970-01-01 00:00:00', '1969-12-31 23:59:59.999', '1969-12-31 23:59:59.999999', '1970-01-01 00:00:01', 1901, "
    "x'61626364', x'', '', 'a', '', '', '', '', '[]')",
    f"(3{(len(COLUMNS) - 1) * ', NULL'})",
    "(4, 7, 1, 7, 7, 7, 7, 7, 7, 7, 7, b'1', '2038-01-19', '23:59:59.999999', '9999-12-31 23:59:59', "
    "'1000-01-01 00:00:00', '2262-04-12 00:00:00.000001', '2038-01-19 03:14:07.999', 2155, x'00000000', 'x', 'y', 'ü', 'y', "
    "'a b', 'gone', 'gone', '7')",
)
_CHANGES: Final = (
    f"INSERT INTO {TABLE} SELECT 5, tiny, flag, small, medium, num, positive, big, amount, part, ratio, one_bit, day, clock, "
    "seen, seen3, seen6, stamped, made, code, raw_bytes, pile, kind, tags, letter, 'inserted', note, doc "
    f"FROM {TABLE} WHERE id = 1",
    f"INSERT INTO {TABLE} (id) VALUES (6)",
    f"UPDATE {TABLE} SET amount = amount + 1, note = NULL, doc = JSON_SET(doc, '$.b', TRUE), day = '2000-01-01' WHERE id = 1",
    f"UPDATE {TABLE} SET name = 'filled', kind = 'ü', raw_bytes = x'80', clock = '23:59:59' WHERE id = 3",
    f"UPDATE {TABLE} SET id = 8 WHERE id = 2",
    f"DELETE FROM {TABLE} WHERE id = 4",
    f"ALTER TABLE {TABLE} ADD COLUMN extra INT NOT NULL DEFAULT 7",
    f"INSERT INTO {TABLE} (id, name, extra) VALUES (9, 'later', 11)",
    f"UPDATE {TABLE} SET extra = 12 WHERE id = 6",
)
COPIED: Final = len(_COPIED)
CHANGED: Final = {"c": 2 + 1 + 1, "u": 2 + 1, "d": 1 + 1}
"""Events of the changes: a change of key is a delete and an insert."""
TOMBSTONES: Final = CHANGED["d"]
RECORDS: Final = COPIED + sum(CHANGED.values()) + TOMBSTONES


def create(server: MysqlServer, database: str) -> None:
    """The table with the rows that a snapshot finds."""
    columns = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
    server.execute(
        f"CREATE TABLE {TABLE} ({columns}) DEFAULT CHARSET utf8mb4",
        f"INSERT INTO {TABLE} VALUES {', '.join(_COPIED)}",
        database=database,
    )


def change(server: MysqlServer, database: str) -> None:
    """Inserts, updates, a change of key, a delete, and a column that comes later."""
    server.execute("SET time_zone = '+00:00'", *_CHANGES, database=database)


def stored(server: MysqlServer, database: str) -> dict[int, Row]:
    """Each row by its id, in Python's values: the truth.

    A FLOAT as its own double (MySQL prints six digits), a BIT(1) as a bool, documents parsed, times of day as a time.
    """
    names = [*COLUMNS, "extra"]
    chosen = ", ".join({"part": "CAST(part AS DOUBLE)", "one_bit": "one_bit + 0"}.get(name, name) for name in names)
    rows = server.execute("SET time_zone = '+00:00'", f"SELECT {chosen} FROM {TABLE}", database=database)
    return {row[0]: plain(dict(zip(names, row, strict=True))) for row in rows}


def plain(row: Mapping[str, Any]) -> Row:
    """A row of a database's driver in one form for all of them."""
    return {name: _plain(name, value) for name, value in row.items()}


def in_modes(rows: Mapping[int, Row], modes: Mapping[str, str]) -> dict[int, Row]:
    """Rows as a source's value modes give them, where a mode gives less than the type or another type."""
    return {key: {name: _in_modes(value, modes) for name, value in row.items()} for key, row in rows.items()}


def _in_modes(value: Any, modes: Mapping[str, str]) -> Any:
    match value:
        case dt.datetime() | dt.time() if modes.get("time_precision") == "connect":  # milliseconds
            return value.replace(microsecond=value.microsecond // 1_000 * 1_000)
        case Decimal() if modes.get("decimal") == "string":
            return str(value)
        case bytes() if modes.get("binary") == "base64":
            return base64.b64encode(value).decode()
        case _:
            return value


def differences(found: Mapping[int, Row], expected: Mapping[int, Row]) -> list[tuple[int, str, Any, Any]]:
    """Row, column, the value found and the one that is right."""
    return [
        (key, name, found.get(key, {}).get(name), expected.get(key, {}).get(name))
        for key in sorted({*found, *expected})
        for name in [*COLUMNS, "extra"]
        if found.get(key, {}).get(name) != expected.get(key, {}).get(name) or (key in found) != (key in expected)
    ]


def _plain(name: str, value: Any) -> Any:
    match value:
        case None:
            return None
        case dt.timedelta():
            return (dt.datetime.min + value).time()
        case dt.datetime(tzinfo=dt.tzinfo()):
            return value.astimezone(dt.UTC).replace(tzinfo=None)
        case str() if name == "doc":
            return orjson.loads(value)
        case bytearray() | memoryview():
            return bytes(value)
        case int() if name in ("one_bit", "flag"):
            return bool(value)
        case _:
            return value
