"""Values in Oracle's own storage formats, as ``HEXTORAW('c109')`` brings them where LogMiner's dictionary does not fit.

LogMiner prints such rows under the names ``COL 1``, ``COL 2``; the reader knows the columns from its own history.
Formats: Oracle Call Interface Programmer's Guide, "Oracle Data Types" (NUMBER, VARNUM, DATE); the output of ``DUMP`` for
TIMESTAMP, INTERVAL, BINARY_FLOAT and BINARY_DOUBLE.
"""

import struct
from decimal import Context, Decimal
from typing import Final, NamedTuple

from libs.oracle.redo_values import UnreadableRedo


class OracleTimestamp(NamedTuple):
    """A wall clock. Years are astronomical: 4712 BC is -4711, because Oracle has no year 0."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    nanosecond: int = 0


class ZonedOracleTimestamp(NamedTuple):
    """TIMESTAMP WITH TIME ZONE: the wall clock of UTC, and the zone that it was written in."""

    utc: OracleTimestamp
    offset_minutes: int


class YearMonthInterval(NamedTuple):
    """INTERVAL YEAR TO MONTH."""

    months: int


class DaySecondInterval(NamedTuple):
    """INTERVAL DAY TO SECOND."""

    nanoseconds: int


_ZERO: Final = 0x80
_POSITIVE_INFINITY: Final = b"\xff\x65"
_NEGATIVE_INFINITY: Final = b"\x00"
_EXACT: Final = Context(prec=60)
"""A NUMBER has up to 40 digits."""
_INTERVAL_BIAS: Final = 1 << 31
_REGION: Final = 0x80
_DATE_BYTES: Final = 7
_TIMESTAMP_BYTES: Final = 11
_ZONED_BYTES: Final = 13
_YEAR_MONTH_BYTES: Final = 5
_DAY_SECOND_BYTES: Final = 11


def read_number(data: bytes) -> Decimal:
    """NUMBER, FLOAT, INTEGER: an exponent of 100, then digits of base 100.

    Raises:
        UnreadableRedo: the bytes are no NUMBER.
    """
    if data == bytes([_ZERO]):
        return Decimal(0)
    if data in (_POSITIVE_INFINITY, _NEGATIVE_INFINITY):
        return Decimal("Infinity") if data == _POSITIVE_INFINITY else Decimal("-Infinity")
    if len(data) < 2:
        raise UnreadableRedo("a NUMBER", 0)
    is_positive = data[0] >= _ZERO
    exponent = data[0] - 193 if is_positive else 62 - data[0]
    digits = [byte - 1 for byte in data[1:]] if is_positive else [101 - byte for byte in data[1:].removesuffix(b"\x66")]
    if not digits or not all(0 <= digit < 100 for digit in digits):
        raise UnreadableRedo("digits of base 100", 1)
    unscaled = int("".join(f"{digit:02}" for digit in digits))
    scale = 2 * (exponent - len(digits) + 1)
    return Decimal(unscaled if is_positive else -unscaled).scaleb(scale, _EXACT)


def read_date(data: bytes) -> OracleTimestamp:
    """DATE and TIMESTAMP(0): seven bytes; TIMESTAMP(1) to (9): four more of nanoseconds.

    Raises:
        UnreadableRedo: the bytes are no date.
    """
    if len(data) not in (_DATE_BYTES, _TIMESTAMP_BYTES):
        raise UnreadableRedo("7 or 11 bytes of a date", 0)
    year = (data[0] - 100) * 100 + (data[1] - 100)
    nanosecond = int.from_bytes(data[7:11], "big")
    moment = OracleTimestamp(
        year if year > 0 else year + 1, data[2], data[3], data[4] - 1, data[5] - 1, data[6] - 1, nanosecond
    )
    is_date = 1 <= moment.month <= 12 and 1 <= moment.day <= 31
    is_clock = 0 <= moment.hour < 24 and 0 <= moment.minute < 60 and 0 <= moment.second < 60
    if not (is_date and is_clock and nanosecond < 1_000_000_000):
        raise UnreadableRedo("a date", 0)
    return moment


def read_zoned_timestamp(data: bytes) -> ZonedOracleTimestamp:
    """TIMESTAMP WITH TIME ZONE: the moment in UTC, and its offset.

    Raises:
        UnreadableRedo: the bytes are no such timestamp, or name a region: its number means nothing without the server's
            time zone file. The caller reads the row again at the source.
    """
    if len(data) != _ZONED_BYTES:
        raise UnreadableRedo("13 bytes of a TIMESTAMP WITH TIME ZONE", 0)
    if data[11] & _REGION:
        raise UnreadableRedo("an offset, not the number of a region", 11)
    return ZonedOracleTimestamp(read_date(data[:11]), (data[11] - 20) * 60 + (data[12] - 60))


def read_year_month(data: bytes) -> YearMonthInterval:
    """INTERVAL YEAR TO MONTH.

    Raises:
        UnreadableRedo: the bytes are no such interval.
    """
    if len(data) != _YEAR_MONTH_BYTES:
        raise UnreadableRedo("5 bytes of an INTERVAL YEAR TO MONTH", 0)
    return YearMonthInterval(12 * (int.from_bytes(data[:4], "big") - _INTERVAL_BIAS) + data[4] - 60)


def read_day_second(data: bytes) -> DaySecondInterval:
    """INTERVAL DAY TO SECOND.

    Raises:
        UnreadableRedo: the bytes are no such interval.
    """
    if len(data) != _DAY_SECOND_BYTES:
        raise UnreadableRedo("11 bytes of an INTERVAL DAY TO SECOND", 0)
    days = int.from_bytes(data[:4], "big") - _INTERVAL_BIAS
    seconds = ((24 * days + data[4] - 60) * 60 + data[5] - 60) * 60 + data[6] - 60
    return DaySecondInterval(1_000_000_000 * seconds + int.from_bytes(data[7:], "big") - _INTERVAL_BIAS)


def read_binary_float(data: bytes) -> float:
    """BINARY_FLOAT, as the double of the same value.

    Raises:
        UnreadableRedo: the bytes are not four.
    """
    return _read_float(data, ">f", 4)


def read_binary_double(data: bytes) -> float:
    """BINARY_DOUBLE.

    Raises:
        UnreadableRedo: the bytes are not eight.
    """
    return _read_float(data, ">d", 8)


def _read_float(data: bytes, form: str, size: int) -> float:
    """Positive numbers have their sign bit set and negative ones all bits turned, so that bytes sort as numbers do."""
    if len(data) != size:
        raise UnreadableRedo(f"{size} bytes of a binary number", 0)
    bits = bytes([data[0] & 0x7F]) + data[1:] if data[0] & 0x80 else bytes(byte ^ 0xFF for byte in data)
    number: float = struct.unpack(form, bits)[0]
    return number
