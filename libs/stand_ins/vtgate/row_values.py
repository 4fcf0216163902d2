"""Row images of the binlog as the text that VStream carries them in.

Layout: MySQL source ``rows_event.h`` and ``field.cc`` (``pack``). Text: Vitess source ``go/mysql/binlog/rbr.go``
(``CellValue``): MySQL's printed form, but FLOAT and DOUBLE in shortest exponent form.
"""

import datetime
import math
import struct
from collections.abc import Callable, Sequence

from libs.mysql.column_type import parse_column_type
from libs.mysql.json_binary import json_text
from libs.mysql.row_image import (
    BIT,
    DATE,
    DATETIME2,
    DOUBLE,
    ENUM,
    FLOAT,
    JSON,
    NEWDECIMAL,
    SET,
    TIME2,
    TIMESTAMP2,
    YEAR,
    WireColumn,
)
from libs.mysql.values import decimal_unscaled, shortest_float32
from protos.vitess.query_pb2 import Field, MySqlFlag, Row, Type

Render = Callable[[bytes], bytes]


class RowReader:
    """Reads the row images of one table under one layout of the log."""

    def __init__(self, columns: Sequence[WireColumn], fields: Sequence[Field], *, enum_as_text: bool) -> None:
        self._columns = columns
        self._renders = [
            _render(column, field, enum_as_text=enum_as_text) for column, field in zip(columns, fields, strict=True)
        ]

    def read(self, data: bytes, place: int, present: int) -> tuple[Row, int]:
        """One row image, and the place after it. A bit of ``present`` says that a column is in it; others read as NULL."""
        logged = [index for index in range(len(self._columns)) if present >> index & 1]
        nulls = int.from_bytes(data[place : place + (len(logged) + 7) // 8], "little")
        place += (len(logged) + 7) // 8
        lengths = [-1] * len(self._columns)
        values: list[bytes] = []
        for nth, index in enumerate(logged):
            if nulls >> nth & 1:
                continue
            column = self._columns[index]
            size = column.size
            if column.length_bytes:
                size = int.from_bytes(data[place : place + column.length_bytes], "little")
                place += column.length_bytes
            text = self._renders[index](data[place : place + size])
            place += size
            lengths[index] = len(text)
            values.append(text)
        return Row(lengths=lengths, values=b"".join(values)), place


def _render(column: WireColumn, field: Field, *, enum_as_text: bool) -> Render:
    match column.wire_type:
        case _ if column.wire_type == FLOAT:
            return lambda stored: _exponent_form(shortest_float32(stored))
        case _ if column.wire_type == DOUBLE:
            return lambda stored: _exponent_form(struct.unpack("<d", stored)[0])
        case _ if column.wire_type == NEWDECIMAL:
            return lambda stored: _decimal(decimal_unscaled(stored, column.precision, column.scale), column.scale)
        case _ if column.wire_type == YEAR:
            return lambda stored: str(1900 + stored[0] if stored[0] else "0000").encode()
        case _ if column.wire_type == DATE:
            return lambda stored: _date(int.from_bytes(stored, "little"))
        case _ if column.wire_type in (TIMESTAMP2, DATETIME2, TIME2):
            clock = {TIMESTAMP2: _timestamp, DATETIME2: _datetime, TIME2: _time}[column.wire_type]
            return lambda stored: clock(stored, column.fractional_digits)
        case _ if column.wire_type in (ENUM, SET):
            return _members(column, field, as_text=enum_as_text)
        case _ if column.wire_type == JSON:
            return lambda stored: _spaced_json(json_text(stored))
        case _ if column.wire_type == BIT or column.length_bytes:
            # MySQL's log drops the zero bytes at the end of a BINARY.
            width = field.column_length if field.type == Type.BINARY else 0
            return lambda stored: stored.ljust(width, b"\0")
    is_signed = not field.flags & MySqlFlag.UNSIGNED_FLAG
    return lambda stored: b"%d" % int.from_bytes(stored, "little", signed=is_signed)


def _exponent_form(value: float) -> bytes:
    """As Go's ``strconv.FormatFloat(value, 'E', -1, …)``: the shortest digits that read back, two digits of exponent."""
    if value == 0:
        return b"-0E+00" if math.copysign(1, value) < 0 else b"0E+00"
    sign, digits, exponent = _decimal_digits(value)
    mantissa = digits[0] + (f".{digits[1:]}" if digits[1:] else "")
    return f"{sign}{mantissa}E{exponent:+03d}".encode()


def _decimal_digits(value: float) -> tuple[str, str, int]:
    text = repr(abs(value))
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    first = len(whole) - 1 if whole != "0" else -(len(fraction) - len(fraction.lstrip("0")) + 1)
    return "-" if value < 0 else "", digits.rstrip("0") or "0", first + int(exponent or 0)


def _decimal(unscaled: int, scale: int) -> bytes:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return f"{'-' if unscaled < 0 else ''}{text}".encode()


def _date(packed: int) -> bytes:
    return f"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}".encode()


def _fraction(stored: bytes, digits: int) -> str:
    """The digits after the point: big-endian hundredths, ten-thousandths or millionths."""
    if not digits:
        return ""
    return "." + str(int.from_bytes(stored, "big")).rjust(2 * len(stored), "0")[:digits]


def _timestamp(stored: bytes, digits: int) -> bytes:
    seconds = int.from_bytes(stored[:4], "big")
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    text = f"{moment:%Y-%m-%d %H:%M:%S}" if seconds else "0000-00-00 00:00:00"
    return (text + _fraction(stored[4:], digits)).encode()


def _datetime(stored: bytes, digits: int) -> bytes:
    packed = int.from_bytes(stored[:5], "big") - 0x8000000000
    year, month = divmod(packed >> 22, 13)
    text = f"{year:04d}-{month:02d}-{packed >> 17 & 31:02d} {packed >> 12 & 31:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}"
    return (text + _fraction(stored[5:], digits)).encode()


def _time(stored: bytes, digits: int) -> bytes:
    """A negative TIME is stored as the complement of the whole, fraction included."""
    width = len(stored) - 3
    packed = int.from_bytes(stored, "big") - (0x800000 << 8 * width)
    magnitude = abs(packed)
    clock, fraction = magnitude >> 8 * width, magnitude & ((1 << 8 * width) - 1)
    text = f"{clock >> 12 & 1023:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}"
    return f"{'-' if packed < 0 else ''}{text}{_fraction(fraction.to_bytes(width, 'big'), digits)}".encode()


def _members(column: WireColumn, field: Field, *, as_text: bool) -> Render:
    if not as_text or not field.column_type:
        return lambda stored: b"%d" % int.from_bytes(stored, "little")
    members = [member.encode() for member in parse_column_type(field.column_type).members]
    if column.wire_type == ENUM:
        return lambda stored: (b"", *members)[int.from_bytes(stored, "little")]
    return lambda stored: b",".join(
        member for bit, member in enumerate(members) if int.from_bytes(stored, "little") >> bit & 1
    )


def _spaced_json(compact: str) -> bytes:
    """MySQL's own form has a space after each comma and colon; numbers keep their digits."""
    parts: list[str] = []
    is_text = is_escaped = False
    for character in compact:
        parts.append(character)
        if is_text:
            is_text = is_escaped or character != '"'
            is_escaped = character == "\\" and not is_escaped
        elif character == '"':
            is_text = True
        elif character in ",:":
            parts.append(" ")
    return "".join(parts).encode()
