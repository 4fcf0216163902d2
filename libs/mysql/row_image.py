"""Row images of the binlog → JSON: one generated decoder for each table version and pattern of NULLs.

Decoding is the whole cost of following a log, so nothing is decided twice. The bytes of a row image are laid out by the
table's columns and by which of them are NULL; the pattern of NULLs repeats from row to row. For each pattern a function is
generated once that reads neighbouring fixed-width columns (and the length that opens a variable one) by a single
precompiled ``struct`` call, slices what varies, and hands one dictionary to orjson. No cell is dispatched at run time.

    image, key, end = decoder.variants[null_bitmap](data, place)

Layout: MySQL source ``libbinlogevents/include/rows_event.h`` and ``sql/field.cc`` (``pack``); the types and their
metadata in ``Table_map_event``. Wire forms: ``libs.types.value``.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from libs.errors import SchemaContradiction, UndecodableValue
from libs.mysql.charsets import python_codec
from libs.mysql.column_type import MysqlType, parse_column_type
from libs.mysql.json_binary import json_text
from libs.mysql.values import (
    Memo,
    base64_text,
    bits_base64,
    date_from_binary,
    datetime_from_binary,
    decimal_from_binary,
    decimal_size,
    enum_from_binary,
    float32_from_binary,
    set_from_binary,
    time_from_binary,
    timestamp_from_binary,
)
from libs.types.table import Column, TableSchema
from libs.types.value import LogicalKind

DecodeImage = Callable[[bytes, int], tuple[bytes, bytes, int]]
"""(data, place of the first value) → (row as a JSON object, key as a JSON object or b"", place after the image)."""

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
class _Reading:
    """How one column is read: a struct code, and an expression over its variable that yields the JSON value."""

    code: str
    expression: str
    is_variable: bool = False
    """The code reads a length; the expression is over the bytes that follow it."""


class RowDecoder:
    """Decodes row images of one table version, for one layout of the binlog.

    ``variants`` maps a NULL bitmap to the function that reads such an image; it grows by itself.
    """

    __slots__ = ("_names", "_readings", "bitmap_bytes", "schema", "variants")

    def __init__(self, schema: TableSchema, wire_columns: Sequence[WireColumn]) -> None:
        """Raises SchemaContradiction where the log's columns are not those of ``schema``."""
        _require_agreement(schema, wire_columns)
        self.schema = schema
        self.bitmap_bytes = (len(schema.columns) + 7) // 8
        self._names: dict[str, Any] = {"_dumps": orjson.dumps, "_int": int.from_bytes}
        self._readings = [
            _reading(column, wire, self._names, place)
            for place, (column, wire) in enumerate(zip(schema.columns, wire_columns, strict=True))
        ]
        self.variants: Memo = Memo(self._compile)
        """NULL bitmap → DecodeImage."""

    def undecodable_column(self, data: bytes, place: int, bitmap: bytes) -> str:
        """Name of the first column of the image at ``place`` that cannot be read."""
        for count in range(1, len(self.schema.columns) + 1):
            source = _variant_source(self.schema, self._readings, bitmap, only_first=count)
            try:
                _define(source, self._names)(data, place)
            except Exception:
                return self.schema.columns[count - 1].name
        return "?"

    def _compile(self, bitmap: bytes) -> DecodeImage:
        return _define(_variant_source(self.schema, self._readings, bitmap), self._names)


def undecodable(decoder: RowDecoder, data: bytes, place: int, bitmap: bytes, where: str) -> UndecodableValue:
    """The error to raise when ``variants[bitmap]`` failed; names table and column, never the value."""
    column = decoder.undecodable_column(data, place, bitmap)
    return UndecodableValue(
        f"{decoder.schema.table_id}.{column} at {where}: the stored bytes do not fit its type "
        f"{_type_of(decoder.schema, column)}; repair the row at the source, or exclude the table"
    )


def _type_of(schema: TableSchema, column: str) -> str:
    return next((known.source_type for known in schema.columns if known.name == column), "?")


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


_LENGTH_CODES: Final = {1: "B", 2: "H", 3: "3s", 4: "I"}
_SIGNED: Final = {TINY: "b", SHORT: "h", LONG: "i", LONGLONG: "q"}
_UNSIGNED: Final = {TINY: "B", SHORT: "H", LONG: "I", LONGLONG: "q"}  # bigint unsigned wraps: see LogicalKind.INT64


def _reading(column: Column, wire: WireColumn, names: dict[str, Any], place: int) -> _Reading:
    """How ``column`` is read; converters that it needs are put into ``names`` under a name with its place."""
    declared = parse_column_type(column.source_type)
    if wire.wire_type in _SIGNED:
        return _Reading((_UNSIGNED if declared.is_unsigned else _SIGNED)[wire.wire_type], "{v}")
    if wire.length_bytes:
        return _variable_reading(column, declared, wire, names, place)
    match wire.wire_type:
        case _ if wire.wire_type == INT24:
            return _Reading("3s", "_int({v}, 'little')" if declared.is_unsigned else "_int({v}, 'little', signed=True)")
        case _ if wire.wire_type == DOUBLE:
            return _Reading("d", "{v}")
        case _ if wire.wire_type == YEAR:
            return _Reading("B", "({v} + 1900 if {v} else 0)")
        case _ if wire.wire_type == BIT and column.logical_type.kind is LogicalKind.BOOLEAN:
            return _Reading("B", "({v} != 0)")
        case _ if wire.wire_type == BIT:
            names[f"_c{place}"] = bits_base64
            return _Reading(f"{wire.size}s", f"_c{place}({{v}})")
        case _ if wire.wire_type == ENUM:
            names[f"_c{place}"] = enum_from_binary(declared.members)
            return _Reading("BH"[wire.size - 1], f"_c{place}[{{v}}]")
        case _ if wire.wire_type == SET and wire.size in (1, 2, 4, 8):
            names[f"_c{place}"] = set_from_binary(declared.members)
            return _Reading({1: "B", 2: "H", 4: "I", 8: "Q"}[wire.size], f"_c{place}[{{v}}]")
        case _ if wire.wire_type == SET:
            names[f"_c{place}"] = set_from_binary(declared.members)
            return _Reading(f"{wire.size}s", f"_c{place}[_int({{v}}, 'little')]")
    return _packed_reading(column, wire, names, place)


def _packed_reading(column: Column, wire: WireColumn, names: dict[str, Any], place: int) -> _Reading:
    """Types whose bytes are one big-endian number, read as such and taken apart by an expression."""
    number = "_int({v}, 'big')"
    code = f"{wire.size}s"
    # A zero date is NULL, or the epoch where the column may not be NULL (Debezium's rule).
    match wire.wire_type:
        case _ if wire.wire_type == NEWDECIMAL:
            names[f"_c{place}"] = decimal_from_binary(wire.precision, wire.scale)
            return _Reading(code, f"_c{place}({number})")
        case _ if wire.wire_type == FLOAT:
            names[f"_c{place}"] = float32_from_binary()
            return _Reading(code, f"_c{place}[{{v}}]")
        case _ if wire.wire_type == DATE:
            names[f"_c{place}"] = date_from_binary(None if column.is_optional else 0)
            return _Reading(code, f"_c{place}[{{v}}]")
        case _ if wire.wire_type == DATETIME2:
            names[f"_c{place}"] = datetime_from_binary(
                wire.fractional_digits,
                units_per_s=1_000 if column.logical_type.kind is LogicalKind.TIMESTAMP_MS else 1_000_000,
                zero=None if column.is_optional else 0,
            )
            return _Reading(code, f"_c{place}({number})")
        case _ if wire.wire_type == TIMESTAMP2:
            zero = None if column.is_optional else "1970-01-01T00:00:00Z"
            names[f"_c{place}"] = timestamp_from_binary(wire.fractional_digits, zero=zero)
            return _Reading(code, f"_c{place}({number})")
        case _ if wire.wire_type == TIME2:
            names[f"_c{place}"] = time_from_binary(wire.fractional_digits)
            return _Reading(code, f"_c{place}[{{v}}]")
    raise SchemaContradiction(f"column {column.name}: no reading for wire type {wire.wire_type}")


def _variable_reading(
    column: Column, declared: MysqlType, wire: WireColumn, names: dict[str, Any], place: int
) -> _Reading:
    code = _LENGTH_CODES[wire.length_bytes]
    if declared.name == "json":
        names["_json"] = json_text
        return _Reading(code, "_json({v})", is_variable=True)
    if column.logical_type.kind in (LogicalKind.BYTES, LogicalKind.UNSUPPORTED):
        names["_b64"] = base64_text
        if declared.name == "binary":  # the log drops the zero bytes at the end of a BINARY(n)
            return _Reading(code, f"_b64({{v}}.ljust({declared.length or 1}, b'\\0'))", is_variable=True)
        return _Reading(code, "_b64({v})", is_variable=True)
    codec = python_codec(column.charset or "utf8mb4")
    return _Reading(code, f"{{v}}.decode({codec!r})" if codec != "utf-8" else "{v}.decode()", is_variable=True)


def _variant_source(
    schema: TableSchema, readings: Sequence[_Reading], bitmap: bytes, *, only_first: int | None = None
) -> tuple[str, dict[str, Any]]:
    """Source of the function that reads an image with this NULL bitmap, and the structs that it needs.

    ``only_first`` reads just so many columns: to find the one that cannot be read.
    """
    is_null = [bool(bitmap[i >> 3] >> (i & 7) & 1) for i in range(len(readings))]
    structs: dict[str, Any] = {}
    lines = ["def decode(data, place):"]
    group: list[tuple[str, str]] = []  # (struct code, variable) of the fixed parts not read yet

    def read_group() -> None:
        if group:
            name = f"_u{len(structs)}"
            layout = struct.Struct("<" + "".join(code for code, _ in group))
            structs[name] = layout.unpack_from
            lines.append(f"    {', '.join(variable for _, variable in group)}, = {name}(data, place)")
            lines.append(f"    place += {layout.size}")
            group.clear()

    expressions: dict[int, str] = {}
    for index, reading in enumerate(readings[:only_first]):
        if is_null[index]:
            expressions[index] = "None"
            continue
        variable = f"v{index}"
        expressions[index] = reading.expression.replace("{v}", variable)
        if not reading.is_variable:
            group.append((reading.code, variable))
            continue
        group.append((reading.code, f"n{index}"))
        read_group()
        length = f"_int(n{index}, 'little')" if reading.code == "3s" else f"n{index}"
        lines.append(f"    end = place + {length}")
        lines.append(f"    {variable} = data[place:end]")
        lines.append("    place = end")
    read_group()
    _append_result(lines, schema, expressions, is_whole=only_first is None)
    return "\n".join(lines), structs


def _append_result(lines: list[str], schema: TableSchema, expressions: dict[int, str], *, is_whole: bool) -> None:
    places = {column.name: index for index, column in enumerate(schema.columns)}
    key_places = [places[name] for name in schema.key] if is_whole else []
    for index in key_places:  # used twice: converted once
        lines.append(f"    k{index} = {expressions[index]}")
        expressions[index] = f"k{index}"
    members = ", ".join(f"{schema.columns[index].name!r}: {text}" for index, text in expressions.items())
    lines.append(f"    return _dumps({{{members}}}), {_key_expression(schema, key_places)}, place")


def _key_expression(schema: TableSchema, key_places: Sequence[int]) -> str:
    if not key_places:
        return "b''"
    columns = [schema.columns[index] for index in key_places]
    integers = (LogicalKind.INT16, LogicalKind.INT32, LogicalKind.INT64)
    if all(column.logical_type.kind in integers and not column.is_optional for column in columns):
        names = (orjson.dumps(column.name).replace(b"%", b"%%") for column in columns)
        template = b"{" + b",".join(name + b":%d" for name in names) + b"}"
        return f"{template!r} % ({', '.join(f'k{index}' for index in key_places)},)"
    members = ", ".join(f"{schema.columns[index].name!r}: k{index}" for index in key_places)
    return f"_dumps({{{members}}})"


def _define(source: tuple[str, dict[str, Any]], names: dict[str, Any]) -> DecodeImage:
    text, structs = source
    scope = names | structs
    # The text is made of column names as Python literals and of our own expressions; no value of a row enters it.
    exec(compile(text, "<row image decoder>", "exec"), scope)  # noqa: S102
    decode: DecodeImage = scope["decode"]
    return decode
