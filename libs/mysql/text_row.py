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
    base64_text,
    bits_base64,
    compact_json,
    date_from_text,
    datetime_from_text,
    decimal_from_text,
    float32_from_text,
    time_from_text,
    timestamp_from_text,
)
from libs.types.table import Column, TableSchema
from libs.types.value import LogicalKind

DecodeTextRow = Callable[[bytes], tuple[bytes, bytes, tuple[bytes | None, ...]]]
"""packet → (row as a JSON object, key as a JSON object or b"", the key's columns as printed)."""

_INTEGERS: Final = frozenset({LogicalKind.INT16, LogicalKind.INT32, LogicalKind.INT64, LogicalKind.YEAR})
_WRAP: Final = 1 << 64


def select_list(schema: TableSchema) -> str:
    """The columns to SELECT, in order.

    A FLOAT is cast: MySQL prints six digits of it and stores up to nine.
    """
    return ", ".join(
        f"CAST({quote_identifier(column.name)} AS DOUBLE)"
        if column.logical_type.kind is LogicalKind.FLOAT32
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
            f"        t{index} = v{index} = None",
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
    zero = None if column.is_optional else 0
    zero_text = None if column.is_optional else "1970-01-01T00:00:00Z"
    name = f"_c{index}"
    match kind:
        case LogicalKind.INT64 if parse_column_type(column.source_type).is_unsigned:
            scope["_wrapped"] = _wrapped
            return "_wrapped(int({t}))"
        case _ if kind in _INTEGERS:
            return "int({t})"
        case LogicalKind.FLOAT64:
            return "float({t})"
        case LogicalKind.BOOLEAN:
            return "({t} != b'\\0' and {t} != b'0')"
        case LogicalKind.BITS:
            scope[name] = bits_base64
            return f"{name}({{t}})"
        case LogicalKind.BYTES:
            scope[name] = base64_text
            return f"{name}({{t}})"
        case LogicalKind.JSON:
            scope[name] = compact_json
            return f"{name}({{t}})"
        case LogicalKind.DECIMAL:
            scope[name] = decimal_from_text()
        case LogicalKind.FLOAT32:
            scope[name] = float32_from_text()
        case LogicalKind.DATE:
            scope[name] = date_from_text(zero)
        case LogicalKind.TIMESTAMP_MS:
            scope[name] = datetime_from_text(units_per_s=1_000, zero=zero)
        case LogicalKind.TIMESTAMP_US:
            scope[name] = datetime_from_text(units_per_s=1_000_000, zero=zero)
        case LogicalKind.ZONED_TIMESTAMP:
            scope[name] = timestamp_from_text(zero=zero_text)
        case LogicalKind.MICRO_TIME:
            scope[name] = time_from_text()
        case _:
            return "{t}.decode()"
    return f"{name}[{{t}}]"


def _wrapped(value: int) -> int:
    return value - _WRAP if value >= _WRAP >> 1 else value
