"""Rows of the binlog as DTS prints them: the stand-in's own reading of row images, by no code of the readers.

The decoder's differential test compares events of these prints with the binlog reader's events of the same log. So
nothing here may use ``libs.mysql.row_events`` or ``values``; only the layout of a table map is shared.

Prints: seed document 004 (DataType of each column type, zone of TIMESTAMP, scientific notation of FLOAT and DOUBLE). Layout of
images: MySQL source ``sql/field.cc`` (``pack``), ``sql-common/my_time.cc``, ``strings/decimal.cc``.
"""

import datetime
import re
import struct
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final

from libs.mysql import row_image as layout
from libs.mysql.column_type import MysqlType, parse_column_type, set_text
from libs.mysql.json_binary import json_text
from libs.mysql.row_image import WireColumn
from libs.types.table import Column
from protos.dts import subscription_pb2 as pb

_SIGNED_TYPES: Final = {
    1: pb.DATA_TYPE_INT8,
    2: pb.DATA_TYPE_INT16,
    3: pb.DATA_TYPE_INT32,
    4: pb.DATA_TYPE_INT32,
    8: pb.DATA_TYPE_INT64,
}
"""By the number of bytes."""
_UNSIGNED_TYPES: Final = {
    1: pb.DATA_TYPE_UINT8,
    2: pb.DATA_TYPE_UINT16,
    3: pb.DATA_TYPE_UINT32,
    4: pb.DATA_TYPE_UINT32,
    8: pb.DATA_TYPE_UINT64,
}
_INTEGERS: Final = frozenset((layout.TINY, layout.SHORT, layout.INT24, layout.LONG, layout.LONGLONG))
_NULL: Final = pb.Data()


def read_image(data: bytes, place: int, columns: Sequence[tuple[Column, WireColumn]]) -> tuple[list[pb.Data], int]:
    """The values of the row at ``place``, and where the next one begins."""
    nulls = data[place : place + (len(columns) + 7) // 8]
    place += len(nulls)
    cells: list[pb.Data] = []
    for index, (column, wire) in enumerate(columns):
        if nulls[index >> 3] >> (index & 7) & 1:
            cells.append(_NULL)
            continue
        size = wire.size
        if wire.length_bytes:
            size = int.from_bytes(data[place : place + wire.length_bytes], "little")
            place += wire.length_bytes
        cells.append(_cell(column, wire, data[place : place + size]))
        place += size
    return cells, place


def _cell(column: Column, wire: WireColumn, stored: bytes) -> pb.Data:
    declared = parse_column_type(column.source_type)
    kind = wire.wire_type
    if kind in _INTEGERS:
        types = _UNSIGNED_TYPES if declared.is_unsigned else _SIGNED_TYPES
        number = int.from_bytes(stored, "little", signed=not declared.is_unsigned)
        return pb.Data(dataType=types[wire.size], sv=str(number))
    if kind == layout.YEAR:
        return pb.Data(dataType=pb.DATA_TYPE_INT64, sv=str(1900 + stored[0] if stored[0] else 0))
    if kind == layout.BIT:
        return pb.Data(dataType=pb.DATA_TYPE_INT64, sv=str(int.from_bytes(stored, "big", signed=len(stored) == 8)))
    if kind == layout.FLOAT:
        return pb.Data(dataType=pb.DATA_TYPE_FLOAT32, sv=print_float(_shortest(stored)))
    if kind == layout.DOUBLE:
        return pb.Data(dataType=pb.DATA_TYPE_FLOAT64, sv=print_float(struct.unpack("<d", stored)[0]))
    if kind == layout.NEWDECIMAL:
        return pb.Data(dataType=pb.DATA_TYPE_DECIMAL, sv=_decimal(stored, wire.precision, wire.scale))
    if kind == layout.JSON:
        return pb.Data(dataType=pb.DATA_TYPE_BYTES, bv=_spaced(json_text(stored)))
    if kind in (layout.BLOB, layout.GEOMETRY, layout.VECTOR):
        if column.charset is None or column.charset == "binary":
            return pb.Data(dataType=pb.DATA_TYPE_BYTES, bv=stored)
        return pb.Data(dataType=pb.DATA_TYPE_STRING, charset=_dts_charset(column.charset), bv=stored)
    if kind in (layout.STRING, layout.VARCHAR):
        charset = "binary" if declared.name in ("binary", "varbinary") else column.charset or "binary"
        return pb.Data(dataType=pb.DATA_TYPE_STRING, charset=_dts_charset(charset), bv=stored)
    return _text(_printed(declared, wire, stored))


def _text(text: str) -> pb.Data:
    return pb.Data(dataType=pb.DATA_TYPE_STRING, charset="utf8", bv=text.encode())


def _dts_charset(charset: str) -> str:
    """MySQL 5.7, which DTS grew up with, calls utf8mb3 ``utf8``."""
    return "utf8" if charset == "utf8mb3" else charset


def _printed(declared: MysqlType, wire: WireColumn, stored: bytes) -> str:
    kind = wire.wire_type
    if kind == layout.ENUM:
        index = int.from_bytes(stored, "little")
        return declared.members[index - 1] if index else ""
    if kind == layout.SET:
        bits = int.from_bytes(stored, "little")
        return set_text(member for place, member in enumerate(declared.members) if bits >> place & 1)
    if kind == layout.DATE:
        packed = int.from_bytes(stored, "little")
        return f"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}"
    if kind == layout.TIME2:
        return _time(stored, wire.fractional_digits)
    if kind == layout.DATETIME2:
        packed = int.from_bytes(stored[:5], "big") - (1 << 39)
        year, month = divmod(packed >> 22, 13)
        clock = f"{packed >> 12 & 31:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}"
        return f"{year:04d}-{month:02d}-{packed >> 17 & 31:02d} {clock}{_fraction(stored[5:], wire.fractional_digits)}"
    if kind == layout.TIMESTAMP2:
        seconds = int.from_bytes(stored[:4], "big")
        if not any(stored):
            return f"0000-00-00 00:00:00{_fraction(stored[4:], wire.fractional_digits)} +00:00"
        moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
        return f"{moment:%Y-%m-%d %H:%M:%S}{_fraction(stored[4:], wire.fractional_digits)} +00:00"
    raise ValueError(f"no print for the binlog's type {kind}")


def _fraction(stored: bytes, digits: int) -> str:
    if not digits:
        return ""
    return "." + f"{int.from_bytes(stored, 'big'):0{2 * len(stored)}d}"[:digits]


def _time(stored: bytes, digits: int) -> str:
    bits = 8 * (len(stored) - 3)
    packed = int.from_bytes(stored, "big") - (0x800000 << bits)
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    clock, fraction = packed >> bits, packed & ((1 << bits) - 1)
    text = _fraction(fraction.to_bytes(bits // 8, "big"), digits)
    return f"{sign}{clock >> 12:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}{text}"


_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def _decimal(stored: bytes, precision: int, scale: int) -> str:
    is_negative = not stored[0] & 0x80
    data = bytes([stored[0] ^ 0x80]) + stored[1:]
    if is_negative:
        data = bytes(byte ^ 0xFF for byte in data)
    groups = _groups(precision - scale, scale)
    digits, place = "", 0
    for count in groups:
        size = _DIGIT_BYTES[count]
        digits += f"{int.from_bytes(data[place : place + size], 'big'):0{count}d}"
        place += size
    whole = digits[: precision - scale].lstrip("0") or "0"
    return ("-" if is_negative else "") + whole + (f".{digits[precision - scale :]}" if scale else "")


def _groups(whole: int, fraction: int) -> Iterator[int]:
    yield from (count for count in (whole % 9, *[9] * (whole // 9), *[9] * (fraction // 9), fraction % 9) if count)


def _shortest(stored: bytes) -> float:
    """The FLOAT's number in as few digits as distinguish it from its neighbours."""
    number = struct.unpack("<f", stored)[0]
    for digits in range(1, 10):
        shown = float(f"{number:.{digits}g}")
        if abs(shown) < 3.402824e38 and struct.pack("<f", shown) == stored:
            return shown
    return float(number)


def print_float(number: float) -> str:
    """Scientific below 1e-4 and from 1e+6 on: ``1e+06``, ``-1.5e-05``, else ``2.25``."""
    magnitude = abs(number)
    plain = repr(number)
    if magnitude == 0:
        return plain.removesuffix(".0")
    if 1e-4 <= magnitude < 1e6:
        return f"{Decimal(plain):f}".removesuffix(".0")
    sign, digits, exponent = Decimal(plain).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    power = len(text) - 1 + exponent
    mantissa = text[0] + (f".{text[1:]}" if len(text) > 1 else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"


_SEPARATOR: Final = re.compile(r'("(?:[^"\\]|\\.)*")|([,:])', re.DOTALL)


def _spaced(compact: str) -> bytes:
    """JSON with a space after each comma and colon, as MySQL prints it."""
    return _SEPARATOR.sub(lambda match: match[1] or f"{match[2]} ", compact).encode()
