"""Rows of a snapshot's SELECT → JSON: one generated decoder for each table version.

The text protocol sends each value as its printed text behind a length (MySQL manual, "Text Resultset Row"). Integers are
copied; everything else goes through the same kind of memoised converters as the log's row images, and ends in the same
wire form. ``select_list`` asks for each column in the one form that loses nothing.

    image, key, last_key = decode(packet)
"""

from collections.abc import Callable
from typing import Any, Final

import orjson

from libs.mysql.column_type import parse_column_type
from libs.mysql.identifiers import quote_identifier
from libs.mysql.values import (
    BINARY_KINDS,
    EPOCH_TEXT,
    Memo,
    binary_writer,
    bits_base64,
    compact_json,
    decimal_from_text,
    decimal_writer,
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

DecodeTextRow = Callable[[bytes], tuple[bytes, bytes, tuple[bytes | None, ...]]]
"""packet → (row as a JSON object, key as a JSON object or b"", the key's columns as printed)."""

_WRAP: Final = 1 << 64


def select_list(schema: TableSchema) -> str:
    """The columns to SELECT, in order.

    A FLOAT is cast: MySQL prints six digits of it and stores up to nine.
    """
    return ", ".join(
        f"CAST({quote_identifier(column.name)} AS DOUBLE)"
        if parse_column_type(column.source_type).name == "float"
        else quote_identifier(column.name)
        for column in schema.columns
    )


def compile_text_decoder(schema: TableSchema) -> DecodeTextRow:
    """The decoder for rows of ``SELECT select_list(schema)`` in a session with utf8mb4 and time zone +00:00."""
    scope: dict[str, Any] = {"_dumps": orjson.dumps, "_int": int.from_bytes}
    lines = ["def decode(packet):", "    place = 0"]
    for index, column in enumerate(schema.columns):
        expression = _expression(column, scope, index)
        lines += [
            "    n = packet[place]",
            "    if n < 251:",
            "        place += 1",
            "    elif n != 251:",
            "        width = n - 250 if n != 254 else 8",
            "        n = _int(packet[place + 1 : place + 1 + width], 'little')",
            "        place += 1 + width",
            "    else:",
            "        place += 1",
            "        n = -1",
            "    if n < 0:",
            f"        t{index} = None",
            f"        v{index} = {null_value(column.logical_type, is_optional=column.is_optional)!r}",
            "    else:",
            f"        t{index} = packet[place : place + n]",
            "        place += n",
            f"        v{index} = {expression.replace('{t}', f't{index}')}",
        ]
    places = {column.name: index for index, column in enumerate(schema.columns)}
    members = ", ".join(f"{column.name!r}: v{index}" for index, column in enumerate(schema.columns))
    key_members = ", ".join(f"{name!r}: v{places[name]}" for name in schema.key)
    key = f"_dumps({{{key_members}}})" if schema.key else "b''"
    last_key = "(" + "".join(f"t{places[name]}, " for name in schema.key) + ")"
    lines.append(f"    return _dumps({{{members}}}), {key}, {last_key}")
    # The text is made of column names as Python literals and of our own expressions; no value of a row enters it.
    exec(compile("\n".join(lines), "<text row decoder>", "exec"), scope)  # noqa: S102
    decode: DecodeTextRow = scope["decode"]
    return decode


def _expression(column: Column, scope: dict[str, Any], index: int) -> str:
    """An expression over ``{t}``, the printed text, that yields the JSON value."""
    kind = column.logical_type.kind
    declared = parse_column_type(column.source_type)
    name = f"_c{index}"
    match declared.name:
        case "bigint" if kind is LogicalKind.DECIMAL:
            scope[name] = decimal_from_text(unscaled_to_base64)
        case "bigint" if kind is LogicalKind.DECIMAL_TEXT:
            return "{t}.decode()"
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
            return bytes.decode


def _wrapped(value: int) -> int:
    return value - _WRAP if value >= _WRAP >> 1 else value
