"""How the binlog's row images of one table version are read: a ``Reading`` for each column.

The table map says how wide each value is and which type it has; the schema says what the value means. Both must agree. From
the readings ``row_events`` (compiled) makes the decoder that reads the images.

Layout: MySQL source ``libbinlogevents/include/rows_event.h`` and ``sql/field.cc`` (``pack``); the types and their
metadata in ``Table_map_event``. Wire forms: ``libs.types.value``.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from libs.errors import SchemaContradiction, UndecodableValue
from libs.mysql import row_events
from libs.mysql.charsets import python_codec
from libs.mysql.column_type import MysqlType, parse_column_type
from libs.mysql.json_binary import json_text
from libs.mysql.row_events import RowsDecoder
from libs.mysql.values import (
    Memo,
    base64_text,
    bits_base64,
    decimal_groups,
    decimal_size,
    decimal_unscaled,
    set_from_binary,
    shortest_float32,
    unscaled_to_base64,
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
    """The real type: ENUM, SET and CHAR travel under STRING and are told apart here."""
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
    """What a DATETIME counts in."""
    decimal_groups: tuple[tuple[int, int], ...] = ()
    """Bytes and weight (a power of ten) of each group of digits, in stored order."""
    zero: bytes = b"null"
    """JSON of a date without month or day."""
    members: tuple[bytes, ...] = ()
    """JSON of an ENUM's members, by index."""
    convert: Callable[[bytes], bytes] | None = None
    """The cell's bytes → JSON: of CONVERTED, of TEXT that is neither ASCII nor UTF-8, of a BINARY to be padded."""


def rows_decoder(schema: TableSchema, columns: Sequence[WireColumn]) -> RowsDecoder:
    """The decoder for one table version under one layout of the log.

    Raises SchemaContradiction where the log's columns are not those of ``schema``, PipelineHalted for an unknown charset.
    """
    _require_agreement(schema, columns)
    places = {column.name: index for index, column in enumerate(schema.columns)}
    return RowsDecoder(
        [_reading(column, wire) for column, wire in zip(schema.columns, columns, strict=True)],
        [orjson.dumps(column.name) for column in schema.columns],
        [places[name] for name in schema.key],
    )


def undecodable(schema: TableSchema, decoder: RowsDecoder) -> UndecodableValue:
    """The error to raise when ``decoder`` failed: names table, row and column, never the value."""
    column = schema.columns[decoder.column]
    return UndecodableValue(
        f"{schema.table_id}.{column.name} at row {decoder.row}: the stored bytes do not fit its type "
        f"{column.source_type}; repair the row at the source, or exclude the table"
    )


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
        # bigint unsigned wraps: see LogicalKind.INT64
        is_unsigned = declared.is_unsigned and wire.wire_type != LONGLONG
        return Reading(row_events.UNSIGNED if is_unsigned else row_events.INTEGER, wire.size)
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
            members = ("", *declared.members)  # index 0: what MySQL stores for an invalid value
            return Reading(row_events.ENUM, wire.size, members=tuple(map(orjson.dumps, members)))
        case _ if wire.wire_type == SET:
            of_bits = set_from_binary(declared.members)
            return _converted(wire.size, lambda stored: of_bits[int.from_bytes(stored, "little")])
        case _ if wire.wire_type == NEWDECIMAL:
            return _decimal_reading(wire.precision, wire.scale)
    return _temporal_reading(column, wire)


def _decimal_reading(precision: int, scale: int) -> Reading:
    size = decimal_size(precision, scale)
    if precision <= row_events.MAX_DECIMAL_DIGITS:
        return Reading(row_events.DECIMAL, size, decimal_groups=decimal_groups(precision, scale))
    return _converted(size, lambda stored: unscaled_to_base64(decimal_unscaled(stored, precision, scale)))


def _temporal_reading(column: Column, wire: WireColumn) -> Reading:
    # A zero date is NULL, or the epoch where the column may not be NULL (Debezium's rule).
    match wire.wire_type:
        case _ if wire.wire_type == DATE:
            return Reading(row_events.DATE, wire.size, zero=b"null" if column.is_optional else b"0")
        case _ if wire.wire_type == TIME2:
            return Reading(row_events.TIME, wire.size, fractional_digits=wire.fractional_digits)
        case _ if wire.wire_type == DATETIME2:
            return Reading(
                row_events.DATETIME,
                wire.size,
                fractional_digits=wire.fractional_digits,
                units_per_s=1_000 if column.logical_type.kind is LogicalKind.TIMESTAMP_MS else 1_000_000,
                zero=b"null" if column.is_optional else b"0",
            )
        case _ if wire.wire_type == TIMESTAMP2:
            return Reading(
                row_events.TIMESTAMP,
                wire.size,
                fractional_digits=wire.fractional_digits,
                zero=b"null" if column.is_optional else b'"1970-01-01T00:00:00Z"',
            )
    raise SchemaContradiction(f"column {column.name}: no reading for wire type {wire.wire_type}")


def _variable_reading(column: Column, declared: MysqlType, wire: WireColumn) -> Reading:
    if declared.name == "json":
        return _converted(wire.length_bytes, json_text, is_variable=True)
    if column.logical_type.kind in (LogicalKind.BYTES, LogicalKind.UNSUPPORTED):
        size = (declared.length or 1) if declared.name == "binary" else 0
        return Reading(
            row_events.BINARY,
            wire.length_bytes,
            is_variable=True,
            padded_bytes=size,
            convert=lambda stored: orjson.dumps(base64_text(stored.ljust(size, b"\0"))),
        )
    codec = python_codec(column.charset or "utf8mb4")
    if codec == "utf-8":
        return Reading(row_events.TEXT, wire.length_bytes, is_variable=True)
    decoded = _converted(wire.length_bytes, lambda stored: stored.decode(codec), is_variable=True)
    if _ASCII.decode(codec, "replace") != _ASCII.decode():
        return decoded
    return Reading(row_events.TEXT, wire.length_bytes, is_variable=True, convert=decoded.convert)


_ASCII: Final = bytes(range(128))


def _converted(size: int, convert: Callable[[bytes], object], *, is_variable: bool = False) -> Reading:
    return Reading(
        row_events.CONVERTED, size, is_variable=is_variable, convert=lambda stored: orjson.dumps(convert(stored))
    )
