"""How the rows of a snapshot's SELECT are read: a ``TextReading`` for each column of a table version.

The text protocol sends each value as its printed text after a length (MySQL manual, "Text Resultset Row"). From the readings
``text_rows`` (compiled) makes the decoder; every value ends in the wire form that the log's row images give it.
``select_list`` asks for each column in the one form that loses nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from libs.errors import UndecodableValue
from libs.mysql import text_rows
from libs.mysql.charsets import python_codec
from libs.mysql.column_type import MysqlType, parse_column_type
from libs.mysql.identifiers import quote_identifier
from libs.mysql.sql_lexer import bytes_of_literal
from libs.mysql.text_rows import TextRowsDecoder
from libs.mysql.values import (
    BINARY_KINDS,
    EPOCH_TEXT,
    Memo,
    binary_writer,
    bits_base64,
    compact_json,
    decimal_from_text,
    decimal_writer,
    failure_reason,
    float32_from_text,
    geometry_value,
    moment_from_text,
    moment_writer,
    null_value,
    point_value,
    time_from_text,
    time_writer,
    timestamp_from_text,
    unscaled_to_base64,
    vector_value,
)
from libs.types.table import Column, TableSchema
from libs.types.value import LogicalKind

_WRAP: Final = 1 << 64


def select_list(schema: TableSchema) -> str:
    """The columns to SELECT, in order.

    A FLOAT or DOUBLE is cast: MySQL prints six digits of a FLOAT and stores up to nine, it rounds a ``DOUBLE(10,2)`` and pads
    one with ZEROFILL. A text of a charset that is no part of UTF-8 comes as
    it is stored: it is decoded as the log's is, and the server can put no question mark for a character that it cannot
    convert.
    """
    return ", ".join(map(selected, schema.columns))


def selected(column: Column) -> str:
    """The column in that list."""
    name = quote_identifier(column.name)
    if parse_column_type(column.source_type).name in ("float", "double"):
        return f"CAST({name} AS DOUBLE)"
    return f"CAST({name} AS BINARY)" if stored_codec(column) else name


def checksum_expression(schema: TableSchema) -> str:
    """SQL for a number of a row that hardly any other has: ``text_rows.row_checksum`` of it as ``select_list`` has it. Each
    column has its own CRC-32, so that no row is too long for ``max_allowed_packet``, and NULL is not ''."""
    summed = [_checksummed(column) for column in schema.columns if _is_summed(column)]
    return f"CRC32(CONCAT_WS(',', {', '.join(summed)}))" if summed else "0"


def summed_columns(schema: TableSchema) -> bytes:
    """Which columns ``checksum_expression`` takes in, as ``text_rows.row_checksum`` wants it."""
    return bytes(map(_is_summed, schema.columns))


def _is_summed(column: Column) -> bool:
    """The server prints a FLOAT or DOUBLE otherwise where it makes a text of it than where it sends it."""
    return parse_column_type(column.source_type).name not in ("float", "double")


def _checksummed(column: Column) -> str:
    sent = selected(column)
    is_text = parse_column_type(column.source_type).name in _TEXTS
    if is_text and stored_codec(column) is None and column.charset not in _SENT_AS_STORED:
        sent = f"CONVERT({sent} USING utf8mb4)"  # as the session has it sent
    return f"IFNULL(CRC32({sent}), '-')"


_SENT_AS_STORED: Final = frozenset({"utf8mb4", "utf8mb3", "ascii"})


def stored_codec(column: Column) -> str | None:
    """The codec of a text that is sent as stored; None: it comes as UTF-8."""
    if column.logical_type.kind is not LogicalKind.STRING or column.charset in (None, *_SENT_AS_STORED):
        return None
    return python_codec(column.charset or "")


@dataclass(frozen=True, slots=True)
class TextReading:
    """How one column's printed values become JSON."""

    kind: int
    """One of ``text_rows``'s kinds."""
    convert: Callable[[bytes], bytes]
    """The printed value → JSON: of CONVERTED, and of values that are unusual for their kind."""
    units_per_s: int = 0
    """What a DATETIME counts in."""
    zero: bytes = b"null"
    """JSON of a date without month or day."""
    null: bytes = b"null"
    """JSON of NULL."""


def text_rows_decoder(schema: TableSchema) -> TextRowsDecoder:
    """The decoder for rows of ``SELECT select_list(schema)`` in a session with utf8mb4 and time zone +00:00.

    Columns that the SELECT has after those of the schema are passed over.
    """
    places = {column.name: index for index, column in enumerate(schema.columns)}
    return TextRowsDecoder(
        [replace(_reading(column), null=_null(column)) for column in schema.columns],
        [orjson.dumps(column.name) for column in schema.columns],
        [places[name] for name in schema.key],
    )


def row_cells(packet: bytes) -> list[bytes | None]:
    """The printed values of a row; None: NULL. For the few rows that are looked into."""
    cells: list[bytes | None] = []
    place = 0
    while place < len(packet):
        size = packet[place]
        place += 1
        if size == _NULL:
            cells.append(None)
            continue
        if size > _NULL:
            width = 8 if size == 0xFE else size - 0xFA
            size = int.from_bytes(packet[place : place + width], "little")
            place += width
        cells.append(packet[place : place + size])
        place += size
    return cells


def _reading(column: Column) -> TextReading:
    """Compiled where the form is a common one; a form that a handling mode chose is converted."""
    declared = parse_column_type(column.source_type)
    convert, kind = _converter(column), column.logical_type.kind
    date_zero = b"null" if column.is_optional else b"0"
    match kind:
        case LogicalKind.INT64 if declared.name == "bigint" and declared.is_unsigned:
            return TextReading(text_rows.WRAPPED, convert)
        case LogicalKind.INT16 | LogicalKind.INT32 | LogicalKind.INT64 | LogicalKind.YEAR if declared.name in _PRINTED:
            return TextReading(text_rows.INTEGER, convert)
        case LogicalKind.FLOAT64 if declared.name == "double":
            return TextReading(text_rows.DOUBLE, convert)
        case LogicalKind.DECIMAL if declared.name == "decimal" and (declared.precision or 99) <= _MAX_DECIMAL_DIGITS:
            return TextReading(text_rows.DECIMAL, convert)
        case LogicalKind.DATE if declared.name == "date":
            return TextReading(text_rows.DATE, convert, zero=date_zero)
        case LogicalKind.TIMESTAMP_MS if declared.name == "datetime":
            return TextReading(text_rows.DATETIME, convert, units_per_s=1_000, zero=date_zero)
        case LogicalKind.TIMESTAMP_US if declared.name == "datetime":
            return TextReading(text_rows.DATETIME, convert, units_per_s=1_000_000, zero=date_zero)
        case LogicalKind.ZONED_TIMESTAMP if declared.name == "timestamp":
            epoch = b"null" if column.is_optional else orjson.dumps(EPOCH_TEXT)
            return TextReading(text_rows.TIMESTAMP, convert, zero=epoch)
        case LogicalKind.STRING if stored_codec(column) is not None:
            return TextReading(text_rows.CONVERTED, convert)
        case LogicalKind.STRING | LogicalKind.ENUM | LogicalKind.ENUM_SET if declared.name in _TEXTS:
            return TextReading(text_rows.TEXT, convert)
        case LogicalKind.BYTES if declared.name in _BYTES:
            return TextReading(text_rows.BINARY, convert)
        case _:
            return TextReading(text_rows.CONVERTED, convert)


_NULL: Final = 0xFB
_MAX_DECIMAL_DIGITS: Final = 18  # they fit into 64 bits
_PRINTED: Final = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint", "year"))
_TEXTS: Final = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"))
_BYTES: Final = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"))


def _null(column: Column) -> bytes:
    return orjson.dumps(null_value(column.logical_type, is_optional=column.is_optional))


def _converter(column: Column) -> Callable[[bytes], bytes]:
    scope: dict[str, Any] = {}
    expression = _expression(column, scope, 0).replace("{t}", "text")
    # Made of our own expressions; neither a column's name nor a value enters it.
    value: Callable[[bytes], object] = eval(f"lambda text: {expression}", scope)  # noqa: S307
    return lambda text: orjson.dumps(value(text))


def default_json(column: Column) -> bytes | None:
    """JSON of a new row's value where its INSERT named none; None: only the server knows.

    MySQL leaves such columns out of a row image under ``binlog_row_image = MINIMAL``. Defaults that it computes are in it.
    """
    declared, text = parse_column_type(column.source_type), column.default_expression
    if text is None and column.is_optional:
        return b"null"
    if text is None and declared.name == "enum":
        return orjson.dumps(declared.members[0])
    if text is None and (zero := _printed_zero(declared)) is not None:
        return _converter(column)(zero)
    if text is None:
        return None if column.logical_type.kind in _WITHOUT_ZERO else _null(column)
    if (stored := _printed_bytes(declared, text)) is not None:
        return _converter(column)(stored)
    if declared.name not in _WITH_PRINTED_DEFAULT or text.upper().startswith(_COMPUTED):
        return None
    try:
        return _converter(column)(text.encode(stored_codec(column) or "utf-8"))
    except (ValueError, ArithmeticError):
        return None


def _printed_bytes(declared: MysqlType, text: str) -> bytes | None:
    """The DEFAULT of bytes or bits as the server prints it; None: of another type, or no literal."""
    value = b"" if text == "0x" else bytes_of_literal(text)
    match declared.name:
        case "varbinary":
            return value
        case "binary" if value is not None:
            return value.ljust(1 if declared.length is None else declared.length, b"\0")
        case "bit" if value is not None:
            return value.rjust(((declared.length or 1) + 7) // 8, b"\0")
        case _:
            return None


def _printed_zero(declared: MysqlType) -> bytes | None:
    """As the server prints the zero of a type whose JSON is not that of an empty value: ``0.0``, or as many bytes as it has."""
    match declared.name:
        case "float" | "double":
            return b"0"
        case "binary":
            return bytes(1 if declared.length is None else declared.length)
        case "bit":
            return bytes(((declared.length or 1) + 7) // 8)
        case _:
            return None


_WITHOUT_ZERO: Final = frozenset({LogicalKind.JSON, LogicalKind.GEOMETRY, LogicalKind.POINT, LogicalKind.FLOAT_VECTOR})
_WITH_PRINTED_DEFAULT: Final = frozenset(
    (*_PRINTED, "decimal", "float", "double", "date", "datetime", "time", "char", "varchar", "enum", "set")
)
"""Types whose DEFAULT the definition has as the server prints a value of them. A TIMESTAMP's is in somebody's time zone."""
_COMPUTED: Final = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIME")


def undecodable_text(schema: TableSchema, decoder: TextRowsDecoder, error: Exception) -> UndecodableValue:
    """The error to raise when ``decoder`` failed with ``error``: names table and column, never the value."""
    column = schema.columns[decoder.column]
    return UndecodableValue(f"{schema.table_id}.{column.name} in the snapshot: {failure_reason(column, error)}")


def _expression(column: Column, scope: dict[str, Any], index: int) -> str:
    """An expression over ``{t}``, the printed text, that yields the JSON value."""
    kind = column.logical_type.kind
    declared = parse_column_type(column.source_type)
    name = f"_c{index}"
    match declared.name:
        case "bigint" if kind is LogicalKind.DECIMAL:
            scope[name] = decimal_from_text(unscaled_to_base64)
        case "bigint" if kind is LogicalKind.DECIMAL_TEXT:
            return "str(int({t}))"  # ZEROFILL pads it
        case "bigint" if declared.is_unsigned:
            scope["_wrapped"] = _wrapped
            return "_wrapped(int({t}))"
        case "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "year":
            return "int({t})"
        case "double":
            return "float({t})"
        case "float":
            scope[name] = float32_from_text()
        case "decimal":
            scope[name] = decimal_from_text(decimal_writer(column.logical_type, declared.scale or 0))
        case "bit" if kind is LogicalKind.BOOLEAN:
            return "({t} != b'\\0' and {t} != b'0')"
        case "date" | "datetime":
            write_moment = moment_writer(kind, is_optional=column.is_optional)
            scope[name] = Memo(lambda text: write_moment(moment_from_text(text)))
        case "timestamp":
            scope[name] = timestamp_from_text(zero=None if column.is_optional else EPOCH_TEXT)
        case "time":
            write_time = time_writer(kind)
            scope[name] = Memo(lambda text: write_time(time_from_text(text)))
        case _:
            scope[name] = _whole_value(column)
            return f"{name}({{t}})"
    return f"{name}[{{t}}]"


def _whole_value(column: Column) -> Callable[[bytes], Any]:
    """For values that seldom repeat: no memory is kept of them."""
    match column.logical_type.kind:
        case LogicalKind.BITS:
            return bits_base64
        case LogicalKind.JSON:
            return compact_json
        case LogicalKind.GEOMETRY:
            return geometry_value
        case LogicalKind.POINT:
            return point_value
        case LogicalKind.FLOAT_VECTOR:
            return vector_value
        case kind if kind in BINARY_KINDS:
            return binary_writer(kind)
        case _:
            codec = stored_codec(column) or "utf-8"
            return lambda stored: stored.decode(codec)


def _wrapped(value: int) -> int:
    return value - _WRAP if value >= _WRAP >> 1 else value
