"""MySQL's binary JSON → text: the document as MySQL prints it, without the spaces between its parts.

Numbers are printed as ``CAST(column AS CHAR)`` prints them, so that a row has one form in snapshot and log.
Format: MySQL source ``sql-common/json_binary.h`` (layout) and ``json_dom.cc`` (printing).
"""

import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from libs.errors import UndecodableValue
from libs.mysql.binlog_events import read_packed
from libs.mysql.values import base64_text, decimal_size, decimal_unscaled, unscaled_text

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY = 0x00, 0x01, 0x02, 0x03
_LITERAL, _INT16, _UINT16, _INT32, _UINT32 = 0x04, 0x05, 0x06, 0x07, 0x08
_INT64, _UINT64, _DOUBLE, _STRING, _OPAQUE = 0x09, 0x0A, 0x0B, 0x0C, 0x0F
_LITERALS: Final = {0x00: "null", 0x01: "true", 0x02: "false"}
_NUMBERS: Final = {_INT16: "<h", _UINT16: "<H", _INT32: "<i", _UINT32: "<I", _INT64: "<q", _UINT64: "<Q"}
_MAX_DEPTH: Final = 100  # MySQL's own limit (json_dom.cc, JSON_DOCUMENT_MAX_DEPTH)

# Field types inside an opaque value (MySQL source, include/field_types.h).
_TIMESTAMP, _DATE, _TIME, _DATETIME, _DECIMAL = 7, 10, 11, 12, 246
_MAX_DECIMAL_POINT_PLACE: Final = 15  # my_gcvt: beyond this many digits before the point an exponent is printed


def json_text(stored: bytes) -> str:
    """The JSON text of a binary JSON column.

    Raises:
        UndecodableValue: the bytes are no complete binary JSON; the row is damaged.
    """
    if not stored:
        # MySQL leaves a value of zero length in a NOT NULL column that an ALTER added.
        return "null"
    try:
        return _value(stored, stored[0], 1, 0)
    except (IndexError, struct.error, UnicodeDecodeError, KeyError, RecursionError) as error:
        raise UndecodableValue("binary JSON is truncated or damaged") from error


_REPLACE, _INSERT, _REMOVE = 0, 1, 2
_LEG: Final = re.compile(r'\.(?:("(?:[^"\\]|\\.)*")|([^.\["]+))|\[\s*(last)?\s*(?:-\s*)?(\d+)?\s*\]', re.DOTALL)


class _Number(str):
    """A number as it is printed."""


@dataclass(frozen=True, slots=True)
class _FromEnd:
    """A cell of an array, counted from its last one: ``[last]`` is 0, ``[last-2]`` is 2."""

    cells: int


_Leg = str | int | _FromEnd


def changed_json_text(before: bytes, diffs: bytes) -> str:
    """The JSON text of a document that the log holds as changes to the one before it (``PARTIAL_JSON``).

    Layout: MySQL source ``sql-common/json_diff.h`` (operation, path, value). Object members stay in MySQL's order: by length,
    then by bytes.

    Raises:
        UndecodableValue: the changes do not fit the document; the row is damaged.
    """
    document = json.loads(json_text(before), parse_float=_Number, parse_int=_Number)
    place = 0
    try:
        while place < len(diffs):
            operation = diffs[place]
            length, place = read_packed(diffs, place + 1)
            legs = _path_legs(_exactly(diffs, place, length).decode("utf-8"))
            place += length
            value = None
            if operation != _REMOVE:
                length, place = read_packed(diffs, place)
                text = json_text(_exactly(diffs, place, length))
                value = json.loads(text, parse_float=_Number, parse_int=_Number)
                place += length
            _change(document, legs, operation, value)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise UndecodableValue("a partial JSON update does not fit the document before it") from error
    return _printed(document)


def _path_legs(path: str) -> list[_Leg]:
    """``$.a."b c"[2]`` → a, b c, 2."""
    legs: list[_Leg] = []
    place = 1 if path.startswith("$") else 0
    while place < len(path):
        leg = _LEG.match(path, place)
        if leg is None:
            raise ValueError("no path")
        quoted, bare, last, index = leg.groups()
        if last is not None:
            legs.append(_FromEnd(int(index or 0)))
        else:
            legs.append(int(index) if index is not None else json.loads(quoted) if quoted is not None else bare)
        place = leg.end()
    return legs


def _member(parent: Any, leg: _Leg) -> str | int:
    """The leg as ``parent`` counts."""
    if not isinstance(leg, _FromEnd):
        return leg
    if not isinstance(parent, list) or leg.cells >= len(parent):
        raise IndexError(leg.cells)
    return len(parent) - 1 - leg.cells


def _insert_place(array: Sequence[Any], leg: _Leg) -> int:
    """Where a new cell goes: ``[last-9]`` of a shorter array is its beginning (``json_path.h``, ``Json_array_index``)."""
    if isinstance(leg, _FromEnd):
        return max(0, len(array) - 1 - leg.cells)
    return int(leg)


def _change(document: Any, legs: Sequence[_Leg], operation: int, value: Any) -> None:
    parent = document
    for leg in legs[:-1]:
        parent = parent[_member(parent, leg)]
    if operation == _INSERT and isinstance(parent, list):
        parent.insert(_insert_place(parent, legs[-1]), value)
        return
    last = _member(parent, legs[-1])
    if operation == _REMOVE:
        del parent[last]
    elif operation == _INSERT:
        parent[last] = value
        for name in sorted(parent, key=lambda name: (len(name.encode()), name.encode())):
            parent[name] = parent.pop(name)
    elif operation == _REPLACE:
        parent[last]  # it must be there
        parent[last] = value
    else:
        raise ValueError("no operation")


def _printed(value: Any) -> str:
    match value:
        case dict():
            return "{" + ",".join(f"{_quoted(name)}:{_printed(member)}" for name, member in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_printed, value)) + "]"
        case _Number():
            return str(value)
        case str():
            return _quoted(value)
        case None:
            return "null"
        case _:
            return "true" if value else "false"


def _value(data: bytes, kind: int, place: int, depth: int) -> str:
    if kind <= _LARGE_ARRAY:
        return _container(data, kind, place, depth)
    if kind == _LITERAL:
        return _LITERALS[data[place]]
    if kind in _NUMBERS:
        return str(struct.unpack_from(_NUMBERS[kind], data, place)[0])
    if kind == _DOUBLE:
        return double_text(struct.unpack_from("<d", data, place)[0])
    if kind == _STRING:
        length, place = _variable_length(data, place)
        return _quoted(_exactly(data, place, length).decode("utf-8"))
    if kind == _OPAQUE:
        length, start = _variable_length(data, place + 1)
        return _opaque(data[place], _exactly(data, start, length))
    raise KeyError(kind)


def _container(data: bytes, kind: int, start: int, depth: int) -> str:
    if depth > _MAX_DEPTH:
        raise RecursionError
    is_large = kind in (_LARGE_OBJECT, _LARGE_ARRAY)
    size, code = (4, "<I") if is_large else (2, "<H")
    count, total = (struct.unpack_from(code, data, start + offset)[0] for offset in (0, size))
    if start + total > len(data):
        raise IndexError(total)
    place = start + 2 * size
    keys: list[str] = []
    if kind in (_SMALL_OBJECT, _LARGE_OBJECT):
        for _ in range(count):
            (offset,) = struct.unpack_from(code, data, place)
            (length,) = struct.unpack_from("<H", data, place + size)
            keys.append(_exactly(data, start + offset, length).decode("utf-8"))
            place += size + 2
    values: list[str] = []
    for _ in range(count):
        value_kind = data[place]
        values.append(_value(data, value_kind, _value_place(data, value_kind, start, place + 1, is_large), depth + 1))
        place += 1 + size
    if keys:
        return "{" + ",".join(f"{_quoted(key)}:{value}" for key, value in zip(keys, values, strict=True)) + "}"
    return "{}" if kind in (_SMALL_OBJECT, _LARGE_OBJECT) else "[" + ",".join(values) + "]"


def _value_place(data: bytes, kind: int, start: int, entry: int, is_large: bool) -> int:
    """Small scalars stand in the entry itself, everything else where the entry's offset says."""
    is_inline = kind in (_LITERAL, _INT16, _UINT16) or (is_large and kind in (_INT32, _UINT32))
    if is_inline:
        return entry
    return start + int(struct.unpack_from("<I" if is_large else "<H", data, entry)[0])


def _variable_length(data: bytes, place: int) -> tuple[int, int]:
    length = shift = 0
    while True:
        byte = data[place]
        place += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return length, place
        shift += 7


def _exactly(data: bytes, place: int, length: int) -> bytes:
    if place + length > len(data):
        raise IndexError(length)
    return data[place : place + length]


def _quoted(text: str) -> str:
    return orjson.dumps(text).decode("utf-8")


def double_text(value: float) -> str:
    """A DOUBLE as MySQL prints it within JSON: shortest digits, ``.0`` on whole numbers.

    Beyond 15 places it is ``1.5e300``, unless it has a fraction.

    MySQL source ``strings/dtoa.cc``, ``my_gcvt``.
    """
    digits = repr(value)
    mantissa, _, exponent = digits.partition("e")
    point_place = int(exponent) + 1 if exponent else _point_place(digits)
    has_fraction = not exponent and not digits.endswith(".0")  # then as it is, also 16 digits before the point
    if has_fraction or -_MAX_DECIMAL_POINT_PLACE < point_place <= _MAX_DECIMAL_POINT_PLACE:
        if "e" not in digits:
            return digits
        return _expanded(mantissa, int(exponent))
    if "e" not in digits:  # 16 or 17 digits before the point: repr prints them all, MySQL does not
        significant = digits.removesuffix(".0").lstrip("-").replace(".", "").rstrip("0")
        mantissa = ("-" if value < 0 else "") + significant[0] + ("." + significant[1:] if significant[1:] else "")
        exponent = str(point_place - 1)
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def _point_place(digits: str) -> int:
    """Of a number without exponent: digits before its point, or less than 1 where zeros come first; 1 for zero."""
    whole, _, fraction = digits.lstrip("-").partition(".")
    if whole != "0" or not fraction.strip("0"):
        return len(whole)
    return len(fraction.lstrip("0")) - len(fraction)


def _expanded(mantissa: str, exponent: int) -> str:
    sign = "-" if mantissa.startswith("-") else ""
    significant = mantissa.lstrip("-").replace(".", "")
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{significant}"
    return f"{sign}{significant.ljust(exponent + 1, '0')}.0"


def _opaque(field_type: int, stored: bytes) -> str:
    if field_type == _DECIMAL:
        precision, scale = stored[0], stored[1]
        unscaled = decimal_unscaled(_exactly(stored, 2, decimal_size(precision, scale)), precision, scale)
        return unscaled_text(unscaled, scale)
    if field_type in (_DATE, _DATETIME, _TIMESTAMP, _TIME):
        return _quoted(_temporal(field_type, struct.unpack("<q", stored)[0]))
    return _quoted(f"base64:type{field_type}:{base64_text(stored)}")


def _temporal(field_type: int, packed: int) -> str:
    """MySQL source ``my_time.cc``: the packed in-memory form, 24 bits of microseconds at its end."""
    magnitude = abs(packed)
    microseconds, clock = magnitude & 0xFFFFFF, magnitude >> 24
    if field_type == _TIME:
        sign = "-" if packed < 0 else ""
        return f"{sign}{clock >> 12:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{microseconds:06d}"
    year, month = divmod(clock >> 22, 13)
    date = f"{year:04d}-{month:02d}-{clock >> 17 & 31:02d}"
    if field_type == _DATE:
        return date
    return f"{date} {clock >> 12 & 31:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{microseconds:06d}"
