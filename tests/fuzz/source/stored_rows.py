"""The server's own words: definitions from information_schema, and each cell in a form that no code of ours chose.

``Cell`` values are compared: the server's by ``stored_rows``, ours by ``cell_of`` from an event's JSON.
"""

import base64
import datetime
import json
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from libs.mysql.column_type import parse_column_type
from libs.mysql.identifiers import quote_identifier, quote_table
from libs.mysql.sql_lexer import as_utf8mb3
from libs.source.mysql.client import Connection, query
from libs.types.table import Column, TableId, TableSchema
from libs.types.value import LogicalKind

Cell = Any
UNCERTAIN: Final = "not compared"
"""A cell whose form this module does not judge, as a 31st of February."""
_EPOCH: Final = datetime.date(1970, 1, 1)
_MOMENT: Final = re.compile(r"(\d+)-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d+))?)?Z?")
_TIME: Final = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?Z?")
_WRAP: Final = 1 << 64
_TEXTS: Final = frozenset({LogicalKind.STRING, LogicalKind.ENUM, LogicalKind.ENUM_SET})
_BINARIES: Final = frozenset({LogicalKind.BYTES, LogicalKind.BASE64, LogicalKind.BASE64_URL, LogicalKind.HEX})
_AS_HEX: Final = _BINARIES | {LogicalKind.BITS, LogicalKind.GEOMETRY, LogicalKind.POINT, LogicalKind.FLOAT_VECTOR}


@dataclass(frozen=True, slots=True)
class ServerColumn:
    """A column as information_schema has it, in the words of ours that say the same."""

    name: str
    source_type: str
    is_optional: bool
    charset: str | None
    extra: frozenset[str]
    comment: str | None
    default: str | None


@dataclass(frozen=True, slots=True)
class ServerTable:
    columns: tuple[ServerColumn, ...]
    primary_key: tuple[str, ...]


def server_tables(connection: Connection, databases: Sequence[str]) -> dict[TableId, ServerTable]:
    """The base tables of ``databases``."""
    names = ", ".join(f"'{name}'" for name in databases)
    columns: dict[TableId, list[ServerColumn]] = {}
    for row in query(
        connection,
        "SELECT c.TABLE_SCHEMA, c.TABLE_NAME, c.COLUMN_NAME, c.COLUMN_TYPE, c.IS_NULLABLE, c.CHARACTER_SET_NAME, c.EXTRA, "
        "c.COLUMN_COMMENT, c.COLUMN_DEFAULT FROM information_schema.COLUMNS c JOIN information_schema.TABLES t "
        "USING (TABLE_SCHEMA, TABLE_NAME) "
        f"WHERE c.TABLE_SCHEMA IN ({names}) AND t.TABLE_TYPE = 'BASE TABLE' ORDER BY 1, 2, c.ORDINAL_POSITION",
    ):
        database, table, name, source_type, nullable, charset, extra, comment, default = row
        words = {
            "auto_increment",
            "on update",
            "VIRTUAL GENERATED",
            "STORED GENERATED",
            "INVISIBLE",
            "DEFAULT_GENERATED",
        }
        columns.setdefault(TableId(database=database, table=table), []).append(
            ServerColumn(
                name,
                str(parse_column_type(_text(source_type))),
                nullable == "YES",
                charset,
                frozenset(word for word in words if word in extra),
                comment or None,
                None if default is None else _text(default),
            )
        )
    keys: dict[TableId, list[str]] = {}
    for database, table, column in query(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.STATISTICS "
        f"WHERE TABLE_SCHEMA IN ({names}) AND INDEX_NAME = 'PRIMARY' ORDER BY 1, 2, SEQ_IN_INDEX",
    ):
        keys.setdefault(TableId(database=database, table=table), []).append(column)
    return {
        table_id: ServerTable(tuple(each), tuple(keys.get(table_id, ()))) for table_id, each in sorted(columns.items())
    }


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def as_server_has_it(schema: TableSchema) -> tuple[tuple[Any, ...], ...]:
    """The model's columns, as ``ServerColumn`` without the default."""
    return tuple(
        (
            column.name,
            as_utf8mb3(column.source_type),  # as information_schema shows an ENUM's members
            column.is_optional,
            "binary" if column.charset == "binary" else column.charset,
            frozenset(
                word
                for word, holds in (
                    ("auto_increment", column.is_auto_increment),
                    ("on update", column.has_on_update),
                    ("VIRTUAL GENERATED", column.is_generated and column.is_virtual),
                    ("STORED GENERATED", column.is_generated and not column.is_virtual),
                    ("INVISIBLE", column.is_invisible),
                )
                if holds
            ),
            column.comment,
        )
        for column in schema.columns
    )


def compared(column: ServerColumn, ours: Column) -> tuple[Any, ...]:
    """``as_server_has_it`` of ``ours``, if it is right. A type without characters has no charset there."""
    charset = ours.charset if column.charset is None and ours.charset == "binary" else column.charset
    extra = column.extra - {"DEFAULT_GENERATED"}
    return (column.name, column.source_type, column.is_optional, charset, extra, column.comment)


def default_differs(column: ServerColumn, ours: Column) -> bool:
    """Whether the DEFAULT is another constant. A TIMESTAMP's is that of SHOW CREATE: here it is as its session wrote it."""
    if ours.is_default_computed or ours.is_generated or parse_column_type(column.source_type).name in _SHOWN_OTHERWISE:
        return False
    server = column.default or ""
    if column.source_type.startswith("char("):
        server = server.rstrip(" ")  # of a session with PAD_CHAR_TO_FULL_LENGTH
    return server != as_utf8mb3(ours.default_expression or "")


_SHOWN_OTHERWISE: Final = ("timestamp", "binary", "varbinary", "json", "text", "blob", "geometry")


# --- cells ---------------------------------------------------------------------------------------------------------------


def stored_rows(connection: Connection, schema: TableSchema) -> list[tuple[Cell, ...]]:
    """The rows, in no order. ``connection`` has utf8mb4 and time zone +00:00."""
    asked = ", ".join(_expression(column) for column in schema.columns)
    rows = query(connection, f"SELECT {asked} FROM {quote_table(schema.table_id)}")
    readings = [_server_reading(column) for column in schema.columns]
    return [
        tuple(None if cell is None else read(_text(cell)) for read, cell in zip(readings, row, strict=True))
        for row in rows
    ]


def _expression(column: Column) -> str:
    name, kind = quote_identifier(column.name), column.logical_type.kind
    declared = parse_column_type(column.source_type).name
    if declared in ("float", "double"):
        return f"CAST(CAST({name} AS DOUBLE) AS CHAR)"
    if kind in _TEXTS:
        return f"HEX(CONVERT({name} USING utf8mb4))"
    if kind in _AS_HEX:
        return f"HEX({name})" if declared != "bit" else f"CAST({name} + 0 AS CHAR)"
    return f"CAST({name} + 0 AS CHAR)" if kind is LogicalKind.BOOLEAN else f"CAST({name} AS CHAR)"


def _server_reading(column: Column) -> Callable[[str], Cell]:
    kind = column.logical_type.kind
    declared = parse_column_type(column.source_type)
    match kind:
        case _ if kind in _TEXTS:
            return lambda text: bytes.fromhex(text).decode()
        case LogicalKind.BOOLEAN:
            return lambda text: text != "0"
        case LogicalKind.BITS:
            return int
        case _ if kind in _AS_HEX:
            return bytes.fromhex
        case LogicalKind.FLOAT64 | LogicalKind.FLOAT32:
            return lambda text: double_cell(float(text), is_single=declared.name == "float")
        case LogicalKind.INT16 | LogicalKind.INT32 | LogicalKind.INT64 | LogicalKind.YEAR:
            return lambda text: wrapped(int(text))
        case LogicalKind.DECIMAL:
            return lambda text: _unscaled(text, column.logical_type.scale)
        case LogicalKind.DECIMAL_TEXT:
            return lambda text: str(int(text)) if declared.name == "bigint" else _decimal_text(text)
        case LogicalKind.JSON:
            return lambda text: json.loads(text, parse_float=str, parse_int=str)
        case _ if declared.name == "time":
            return _time_us
        case _:
            return lambda text: moment_cell(text, column)


def cell_of(column: Column, value: Any) -> Cell:
    """The cell that an event's value says."""
    if value is None:
        return None
    kind = column.logical_type.kind
    match kind:
        case LogicalKind.BITS:
            return int.from_bytes(base64.b64decode(value), "little")
        case LogicalKind.HEX:
            return bytes.fromhex(value)
        case LogicalKind.BASE64_URL:
            return base64.urlsafe_b64decode(value)
        case _ if kind in _BINARIES:
            return base64.b64decode(value)
        case LogicalKind.GEOMETRY | LogicalKind.POINT:
            return int(value["srid"] or 0).to_bytes(4, "little") + base64.b64decode(value["wkb"])
        case LogicalKind.FLOAT_VECTOR:
            return struct.pack(f"<{len(value)}f", *value)
        case LogicalKind.FLOAT64 | LogicalKind.FLOAT32:
            return double_cell(float(value), is_single=parse_column_type(column.source_type).name == "float")
        case LogicalKind.DECIMAL:
            return int.from_bytes(base64.b64decode(value), "big", signed=True)
        case LogicalKind.JSON:
            return json.loads(value, parse_float=str, parse_int=str)
        case LogicalKind.ZONED_TIMESTAMP | LogicalKind.ISO_DATE | LogicalKind.ISO_TIMESTAMP:
            return moment_cell(value, column)
        case LogicalKind.ISO_TIME:
            return _time_us(value)
        case _ if kind in _UNITS_US:
            return value * _UNITS_US[kind]
        case _:
            return value


_UNITS_US: Final = {
    LogicalKind.DATE: 86_400_000_000,
    LogicalKind.TIME_MS: 1_000,
    LogicalKind.MICRO_TIME: 1,
    LogicalKind.TIMESTAMP_MS: 1_000,
    LogicalKind.TIMESTAMP_US: 1,
}


def is_same(server: Cell, ours: Cell, column: Column) -> bool:
    """Whether a cell of the server's is that of an event. A date that no calendar has is judged as null or the first day."""
    if server != UNCERTAIN:
        return bool(server == ours)
    return column.logical_type.kind in _MOMENTS


_MOMENTS: Final = frozenset(
    {
        LogicalKind.DATE,
        LogicalKind.ISO_DATE,
        LogicalKind.TIMESTAMP_MS,
        LogicalKind.TIMESTAMP_US,
        LogicalKind.ISO_TIMESTAMP,
    }
)


def wrapped(number: int) -> int:
    """A BIGINT UNSIGNED as 64 bits with a sign."""
    return number if number < _WRAP >> 1 else number - _WRAP


def double_cell(number: float, *, is_single: bool) -> bytes:
    """Its bits, so that -0.0 is not 0.0."""
    return struct.pack("<f", number) if is_single else struct.pack("<d", number)


def _unscaled(text: str, scale: int) -> int:
    whole, _, fraction = text.partition(".")
    return int(whole + fraction.ljust(scale, "0"))


def _decimal_text(text: str) -> str:
    """Without the zeros of ZEROFILL."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, point, fraction = digits.partition(".")
    return sign + (whole.lstrip("0") or "0") + point + fraction


def loose(cell: Cell, column: Column) -> tuple[str, Any]:
    """The value without its type: its sort (``""``: not known), and a form in which two of one sort can be compared."""
    kind = column.logical_type.kind
    declared = parse_column_type(column.source_type)
    if cell is None:
        return ("null", None)
    if declared.name in ("date", "datetime", "timestamp"):
        return ("", None) if cell == UNCERTAIN else ("moment", cell)
    if declared.name == "time":
        return ("time", cell)
    if kind in _TEXTS:
        try:
            number = Decimal(cell)
        except InvalidOperation:
            return ("text", cell)
        return ("number", number) if number.is_finite() else ("text", cell)
    if kind is LogicalKind.DECIMAL:
        return ("number", Decimal(cell).scaleb(-column.logical_type.scale))
    if isinstance(cell, bytes) and declared.name in ("float", "double"):
        return ("number", Decimal(repr(struct.unpack("<f" if len(cell) == 4 else "<d", cell)[0])))
    if isinstance(cell, (bool, int)) or kind is LogicalKind.DECIMAL_TEXT:
        return ("number", Decimal(cell))
    return ("", None)


def _time_us(text: str) -> int:
    match = _TIME.fullmatch(text)
    assert match is not None, text
    sign, hours, minutes, seconds, fraction = match.groups()
    whole = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((fraction or "").ljust(6, "0")[:6])
    return -whole if sign else whole


def moment_cell(text: str, column: Column) -> Cell:
    """Microseconds since 1970; a date without month or day is null, or 1970 where the column may not be NULL."""
    match = _MOMENT.fullmatch(text)
    assert match is not None, text
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    micros = int((match[7] or "").ljust(6, "0")[:6])
    if not (month and day):
        return None if column.is_optional else 0
    try:
        days = (datetime.date(year, month, day) - _EPOCH).days
    except ValueError:
        return UNCERTAIN
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + micros
