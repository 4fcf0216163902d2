"""How the binlog's row images of one table version are read: a ``Reading`` for each column.

The table map says how wide each value is and which type it has; the schema gives the value its meaning. Both must agree. From
the readings ``row_events`` (compiled) makes the decoder that reads the images.

Layout: MySQL source ``libbinlogevents/include/rows_event.h`` and ``sql/field.cc`` (``pack``); the types and their
metadata in ``Table_map_event``. Wire forms: ``libs.types.value``.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import orjson

from libs.errors import SchemaContradiction, UndecodableValue
from libs.mysql import row_events
from libs.mysql.charsets import python_codec
from libs.mysql.column_type import MysqlType, parse_column_type
from libs.mysql.json_binary import changed_json_text, json_text
from libs.mysql.row_events import RowsDecoder
from libs.mysql.text_row import default_json
from libs.mysql.values import (
    BINARY_KINDS,
    Memo,
    Moment,
    binary_writer,
    bits_base64,
    decimal_groups,
    decimal_size,
    decimal_unscaled,
    decimal_writer,
    failure_reason,
    geometry_value,
    moment_from_date,
    moment_from_datetime2,
    moment_writer,
    null_value,
    point_value,
    set_from_binary,
    shortest_float32,
    time_from_time2,
    time_writer,
    unscaled_to_base64,
    vector_value,
    zero_moment,
)
from libs.types.table import Column, TableSchema
from libs.types.value import LogicalKind

# Column types in a table map (MySQL source include/field_types.h).
TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24 = 1, 2, 3, 4, 5, 8, 9
DATE, YEAR, VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 10, 13, 15, 16, 17, 18, 19
JSON, NEWDECIMAL, ENUM, SET, BLOB, STRING = 245, 246, 247, 248, 252, 254
VECTOR, GEOMETRY = 242, 255

_TYPE_OF_NAME: Final = {
    "tinyint": (TINY,),
    "smallint": (SHORT,),
    "mediumint": (INT24,),
    "int": (LONG,),
    "bigint": (LONGLONG,),
    "decimal": (NEWDECIMAL,),
    "float": (FLOAT,),
    "double": (DOUBLE,),
    "bit": (BIT,),
    "char": (STRING, VARCHAR),
    "binary": (STRING, VARCHAR),
    "varchar": (VARCHAR,),
    "varbinary": (VARCHAR,),
    "date": (DATE,),
    "time": (TIME2,),
    "datetime": (DATETIME2,),
    "timestamp": (TIMESTAMP2,),
    "year": (YEAR,),
    "json": (JSON,),
    "enum": (ENUM,),
    "set": (SET,),
    "vector": (VECTOR,),
} | {f"{size}{kind}": (BLOB,) for size in ("tiny", "", "medium", "long") for kind in ("text", "blob")}


@dataclass(frozen=True, slots=True)
class WireColumn:
    """A column as the table map describes it."""

    wire_type: int
    """The real type: ENUM, SET and CHAR travel under STRING and are distinguished here."""
    length_bytes: int = 0
    """Width of the length that opens a variable-length value; 0: fixed width."""
    size: int = 0
    """Bytes of a fixed-width value; declared bytes of a CHAR or BINARY."""
    fractional_digits: int = 0
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """How one column's cells become JSON."""

    kind: int
    """One of ``row_events``'s kinds."""
    size: int
    """Bytes of a fixed-width value, or of the length that opens a variable one."""
    is_variable: bool = False
    padded_bytes: int = 0
    """Of a BINARY(n), whose zero bytes at the end the log drops; a shorter cell is converted."""
    fractional_digits: int = 0
    units_per_s: int = 0
    """The unit that a TIME or DATETIME counts in."""
    decimal_groups: tuple[tuple[int, int], ...] = ()
    """Bytes and weight (a power of ten) of each group of digits, in stored order."""
    decimal_scale: int = 0
    """Digits after the point, of a DECIMAL_TEXT."""
    null: bytes = b"null"
    """JSON of NULL."""
    zero: bytes = b"null"
    """JSON of a date without month or day."""
    members: tuple[bytes, ...] = ()
    """JSON of an ENUM's members, by index."""
    merge: Callable[[bytes, bytes], bytes] | None = None
    """Of JSON: the stored document before, and the changes to it, → JSON of the document after."""
    default: bytes | None = None
    """JSON of a new row's value where its INSERT named none; None: the log must hold it."""
    convert: Callable[[bytes], bytes] | None = None
    """The cell's bytes → JSON: of CONVERTED, of TEXT that is neither ASCII nor UTF-8, of a BINARY to be padded."""


def rows_decoder(schema: TableSchema, columns: Sequence[WireColumn], *, unavailable: str | None = None) -> RowsDecoder:
    """The decoder for one table version under one layout of the log.

    ``unavailable`` stands for a value that the log does not hold; None: a row with such a value is an error.

    Raises SchemaContradiction where the log's columns are not those of ``schema``, PipelineHalted for an unknown charset.
    """
    _require_agreement(schema, columns)
    places = {column.name: index for index, column in enumerate(schema.columns)}
    return RowsDecoder(
        [
            replace(
                _reading(column, wire),
                null=orjson.dumps(null_value(column.logical_type, is_optional=column.is_optional)),
                default=default_json(column),
            )
            for column, wire in zip(schema.columns, columns, strict=True)
        ],
        [orjson.dumps(column.name) for column in schema.columns],
        [places[name] for name in schema.key],
        None if unavailable is None else orjson.dumps(unavailable),
    )


def undecodable(schema: TableSchema, decoder: RowsDecoder, error: Exception) -> UndecodableValue:
    """The error to raise when ``decoder`` failed with ``error``: names table, row and column, never the value."""
    column = schema.columns[decoder.column]
    return UndecodableValue(f"{schema.table_id}.{column.name} at row {decoder.row}: {failure_reason(column, error)}")


def wire_columns(types: bytes, metadata: bytes) -> list[WireColumn]:
    """A table map's column types and metadata as records (MySQL source rows_event.h, Table_map_event)."""
    columns: list[WireColumn] = []
    place = 0
    for wire_type in types:
        column, place = _wire_column(wire_type, metadata, place)
        columns.append(column)
    return columns


_FIXED_SIZES: Final = {TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8, DATE: 3, YEAR: 1}
_TEMPORAL_BASE_SIZES: Final = {TIMESTAMP2: 4, DATETIME2: 5, TIME2: 3}


def _wire_column(wire_type: int, metadata: bytes, place: int) -> tuple[WireColumn, int]:
    if wire_type in _FIXED_SIZES:
        return WireColumn(wire_type=wire_type, size=_FIXED_SIZES[wire_type]), place
    if wire_type in (FLOAT, DOUBLE):
        return WireColumn(wire_type=wire_type, size=metadata[place]), place + 1
    if wire_type in _TEMPORAL_BASE_SIZES:
        digits = metadata[place]
        size = _TEMPORAL_BASE_SIZES[wire_type] + (digits + 1) // 2
        return WireColumn(wire_type=wire_type, size=size, fractional_digits=digits), place + 1
    if wire_type in (BLOB, JSON, GEOMETRY, VECTOR):
        return WireColumn(wire_type=wire_type, length_bytes=metadata[place]), place + 1
    first, second = metadata[place], metadata[place + 1]
    if wire_type == NEWDECIMAL:
        size = decimal_size(first, second)
        return WireColumn(wire_type=wire_type, size=size, precision=first, scale=second), place + 2
    if wire_type == VARCHAR:
        declared = first | second << 8
        return WireColumn(wire_type=wire_type, size=declared, length_bytes=1 if declared < 256 else 2), place + 2
    if wire_type == BIT:
        return WireColumn(wire_type=wire_type, size=second + (first > 0)), place + 2
    if wire_type == STRING and first in (ENUM, SET):
        return WireColumn(wire_type=first, size=second), place + 2
    if wire_type == STRING:
        # Two bits of the length hide, inverted, in the type byte (log_event.cc, Field_string::do_save_field_metadata).
        declared = (((first & 0x30) ^ 0x30) << 4) | second
        return WireColumn(wire_type=wire_type, size=declared, length_bytes=1 if declared < 256 else 2), place + 2
    raise SchemaContradiction(
        f"the log holds a column of type {wire_type}, written by a server before MySQL 5.6.4: "
        "rebuild the table (ALTER TABLE … FORCE) and re-snapshot"
    )


def _require_agreement(schema: TableSchema, columns: Sequence[WireColumn]) -> None:
    if len(columns) != len(schema.columns):
        raise SchemaContradiction(
            f"{schema.table_id}: the log has {len(columns)} columns where version {schema.version} of the schema has "
            f"{len(schema.columns)}; re-snapshot the table"
        )
    for column, wire in zip(schema.columns, columns, strict=True):
        declared = parse_column_type(column.source_type)
        # Only the geometry family is left out of the table of names: it has many.
        agrees = wire.wire_type in _TYPE_OF_NAME.get(declared.name, (GEOMETRY,)) and (
            declared.name != "decimal" or (declared.precision, declared.scale) == (wire.precision, wire.scale)
        )
        if not agrees:
            raise SchemaContradiction(
                f"{schema.table_id}.{column.name}: the log has type {wire.wire_type} where version {schema.version} of "
                f"the schema has {column.source_type}; re-snapshot the table"
            )


_INTEGERS: Final = {TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8}


def _reading(column: Column, wire: WireColumn) -> Reading:
    declared = parse_column_type(column.source_type)
    if wire.wire_type in _INTEGERS:
        return _integer_reading(column, declared, wire)
    if wire.length_bytes:
        return _variable_reading(column, declared, wire)
    match wire.wire_type:
        case _ if wire.wire_type == DOUBLE:
            return _converted(wire.size, lambda stored: struct.unpack("<d", stored)[0])
        case _ if wire.wire_type == FLOAT:
            return _converted(wire.size, Memo(shortest_float32).__getitem__)
        case _ if wire.wire_type == YEAR:
            return Reading(row_events.YEAR, wire.size)
        case _ if wire.wire_type == BIT and column.logical_type.kind is LogicalKind.BOOLEAN:
            return Reading(row_events.BOOLEAN, wire.size)
        case _ if wire.wire_type == BIT:
            return _converted(wire.size, bits_base64)
        case _ if wire.wire_type == ENUM:
            members = ("", *declared.members)  # index 0: MySQL stores it for an invalid value
            return Reading(row_events.ENUM, wire.size, members=tuple(map(orjson.dumps, members)))
        case _ if wire.wire_type == SET:
            of_bits = set_from_binary(declared.members)
            return _converted(wire.size, lambda stored: of_bits[int.from_bytes(stored, "little")])
        case _ if wire.wire_type == NEWDECIMAL:
            return _decimal_reading(column, wire.precision, wire.scale)
    return _temporal_reading(column, wire)


def _integer_reading(column: Column, declared: MysqlType, wire: WireColumn) -> Reading:
    if column.logical_type.kind is LogicalKind.DECIMAL:
        in_base64 = Memo(unscaled_to_base64)
        return _converted(wire.size, lambda stored: in_base64[int.from_bytes(stored, "little")])
    if column.logical_type.kind is LogicalKind.DECIMAL_TEXT:
        return _converted(wire.size, lambda stored: str(int.from_bytes(stored, "little")))
    # bigint unsigned wraps: see LogicalKind.INT64
    is_unsigned = declared.is_unsigned and wire.wire_type != LONGLONG
    return Reading(row_events.UNSIGNED if is_unsigned else row_events.INTEGER, wire.size)


def _decimal_reading(column: Column, precision: int, scale: int) -> Reading:
    size = decimal_size(precision, scale)
    is_short = precision <= row_events.MAX_DECIMAL_DIGITS
    match column.logical_type.kind:
        case LogicalKind.DECIMAL if is_short:
            return Reading(row_events.DECIMAL, size, decimal_groups=decimal_groups(precision, scale))
        case LogicalKind.DECIMAL_TEXT if is_short:
            groups = decimal_groups(precision, scale)
            return Reading(row_events.DECIMAL_TEXT, size, decimal_groups=groups, decimal_scale=scale)
        case _:
            write = decimal_writer(column.logical_type, scale)
            memo = Memo(lambda stored: write(decimal_unscaled(stored, precision, scale)))
            return _converted(size, memo.__getitem__)


_UNITS_PER_S: Final = {
    LogicalKind.TIME_MS: 1_000,
    LogicalKind.MICRO_TIME: 1_000_000,
    LogicalKind.TIMESTAMP_MS: 1_000,
    LogicalKind.CONNECT_TIMESTAMP: 1_000,
    LogicalKind.TIMESTAMP_US: 1_000_000,
}
"""Kinds that are counted in compiled code."""


def _temporal_reading(column: Column, wire: WireColumn) -> Reading:
    kind, is_optional = column.logical_type.kind, column.is_optional
    zero = orjson.dumps(zero_moment(kind, is_optional=is_optional))
    match wire.wire_type:
        case _ if wire.wire_type == DATE and kind is LogicalKind.ISO_DATE:
            return _moment_reading(column, wire, moment_from_date)
        case _ if wire.wire_type == DATE:
            return Reading(row_events.DATE, wire.size, zero=zero)
        case _ if wire.wire_type == TIME2 and kind in _UNITS_PER_S:
            units_per_s = _UNITS_PER_S[kind]
            return Reading(
                row_events.TIME, wire.size, fractional_digits=wire.fractional_digits, units_per_s=units_per_s
            )
        case _ if wire.wire_type == TIME2:
            write = time_writer(kind)
            memo = Memo(lambda stored: write(time_from_time2(stored)))
            return _converted(wire.size, memo.__getitem__)
        case _ if wire.wire_type == DATETIME2 and kind in _UNITS_PER_S:
            return Reading(
                row_events.DATETIME,
                wire.size,
                fractional_digits=wire.fractional_digits,
                units_per_s=_UNITS_PER_S[kind],
                zero=zero,
            )
        case _ if wire.wire_type == DATETIME2:
            return _moment_reading(column, wire, moment_from_datetime2)
        case _ if wire.wire_type == TIMESTAMP2:
            return Reading(row_events.TIMESTAMP, wire.size, fractional_digits=wire.fractional_digits, zero=zero)
    raise SchemaContradiction(f"column {column.name}: no reading for wire type {wire.wire_type}")


def _moment_reading(column: Column, wire: WireColumn, read: Callable[[bytes], Moment]) -> Reading:
    write = moment_writer(column.logical_type.kind, is_optional=column.is_optional)
    memo = Memo(lambda stored: write(read(stored)))
    return _converted(wire.size, memo.__getitem__)


_WHOLE_VALUES: Final[dict[LogicalKind, Callable[[bytes], object]]] = {
    LogicalKind.GEOMETRY: geometry_value,
    LogicalKind.POINT: point_value,
    LogicalKind.FLOAT_VECTOR: vector_value,
}


def _variable_reading(column: Column, declared: MysqlType, wire: WireColumn) -> Reading:
    kind = column.logical_type.kind
    if declared.name == "json":
        document = _converted(wire.length_bytes, json_text, is_variable=True)
        return replace(document, merge=lambda before, diffs: orjson.dumps(changed_json_text(before, diffs)))
    if kind in _WHOLE_VALUES:
        return _converted(wire.length_bytes, _WHOLE_VALUES[kind], is_variable=True)
    if kind in BINARY_KINDS:
        return _binary_reading(column, declared, wire)
    codec = python_codec(column.charset or "utf8mb4")
    if codec == "utf-8":
        return Reading(row_events.TEXT, wire.length_bytes, is_variable=True)
    decoded = _converted(wire.length_bytes, lambda stored: stored.decode(codec), is_variable=True)
    if _ASCII.decode(codec, "replace") != _ASCII.decode():
        return decoded
    return Reading(row_events.TEXT, wire.length_bytes, is_variable=True, convert=decoded.convert)


def _binary_reading(column: Column, declared: MysqlType, wire: WireColumn) -> Reading:
    size = _binary_bytes(declared) if declared.name == "binary" else 0
    write = binary_writer(column.logical_type.kind)
    converted = _converted(wire.length_bytes, lambda stored: write(stored.ljust(size, b"\0")), is_variable=True)
    if column.logical_type.kind not in (LogicalKind.BYTES, LogicalKind.BASE64):
        return converted
    return Reading(row_events.BINARY, wire.length_bytes, is_variable=True, padded_bytes=size, convert=converted.convert)


def _binary_bytes(declared: MysqlType) -> int:
    """Of BINARY(n): 1 where no n is named, and BINARY(0) has none."""
    return 1 if declared.length is None else declared.length


_ASCII: Final = bytes(range(128))


def _converted(size: int, convert: Callable[[bytes], object], *, is_variable: bool = False) -> Reading:
    return Reading(
        row_events.CONVERTED, size, is_variable=is_variable, convert=lambda stored: orjson.dumps(convert(stored))
    )
