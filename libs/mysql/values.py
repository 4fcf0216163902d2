"""From MySQL's stored forms to the wire forms of ``libs.types.value``, each value computed once.

Two readings lead here: the types of the binlog's row image that are not read in compiled code (``row_image``) and the text
protocol's answer to a snapshot's SELECT (``text_row``). Both give the same wire form for the same stored value; that is
tested over every type.

Dates, decimals and clock times repeat within a log far more than they differ, and computing them is the dearest
part of a row. So each converter is a dictionary that computes missing entries: a hit costs one look-up. A table is emptied
when it is full; values are immutable, so nothing can go stale.

Formats: MySQL source ``sql-common/my_time.cc`` (packed temporal types) and ``strings/decimal.cc`` (binary decimals).
"""

import base64
import binascii
import calendar
import math
import re
import struct
from collections.abc import Callable
from typing import Any, Final

from libs.mysql.column_type import set_text
from libs.types.table import Column
from libs.types.value import LogicalKind, LogicalType


class UnwritableValue(ValueError):
    """A sound value that the wire form chosen for its column cannot hold; the message holds the remedy, and no value."""


def failure_reason(column: Column, error: Exception) -> str:
    """Why a value of ``column`` could not be decoded, and the remedy: ``error`` in words that hold no value."""
    remedy = "repair the row at the source, or exclude the table"
    if isinstance(error, UnwritableValue):
        return str(error)
    if isinstance(error, UnicodeDecodeError) and column.charset is not None:
        return f"the stored bytes are no {column.charset} text; {remedy}"
    return f"the stored bytes do not fit its type {column.source_type}; {remedy}"


_MAX_MEMOISED = 50_000
"""Entries of one converter: at about 150 bytes each, 7 MB at most."""

_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes that hold 0 to 9 decimal digits (decimal.cc, dig2bytes)."""


class Memo(dict[Any, Any]):
    """A bounded dictionary that computes missing entries."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, stored: Any) -> Any:
        if len(self) >= _MAX_MEMOISED:
            self.clear()
        value = self[stored] = self._compute(stored)
        return value


def null_value(logical_type: LogicalType, *, is_optional: bool) -> Any:
    """The form of NULL: in a column that may not be NULL the type's own zero, because a consumer's schema has no room
    for null there (Debezium's rule; MySQL does not store one).
    """
    kind = logical_type.kind
    if is_optional:
        return None
    if kind in _MOMENT_WRITERS or kind is LogicalKind.ZONED_TIMESTAMP:
        return zero_moment(kind, is_optional=False)
    if kind in _TIME_WRITERS:
        return time_writer(kind)(0)
    if kind in BINARY_KINDS:
        return ""
    match kind:
        case LogicalKind.DECIMAL | LogicalKind.DECIMAL_TEXT:
            return decimal_writer(logical_type, logical_type.scale)(0)
        case LogicalKind.BOOLEAN:
            return False
        case LogicalKind.STRING | LogicalKind.ENUM | LogicalKind.ENUM_SET | LogicalKind.BITS:
            return ""
        case LogicalKind.JSON:
            return "{}"
        case LogicalKind.GEOMETRY | LogicalKind.POINT | LogicalKind.FLOAT_VECTOR:
            return None
        case _:
            return 0


# --- decimals -------------------------------------------------------------------------------------------------------


def unscaled_to_base64(unscaled: int) -> str:
    """Connect's Decimal in JSON: the unscaled number as the shortest big-endian two's complement, in base64."""
    length = ((unscaled if unscaled >= 0 else ~unscaled).bit_length() >> 3) + 1
    return binascii.b2a_base64(unscaled.to_bytes(length, "big", signed=True), newline=False).decode("ascii")


def decimal_size(precision: int, scale: int) -> int:
    """Bytes of a binary DECIMAL(precision, scale)."""
    whole, fraction = precision - scale, scale
    return (whole // 9) * 4 + _DIGIT_BYTES[whole % 9] + (fraction // 9) * 4 + _DIGIT_BYTES[fraction % 9]


def decimal_unscaled(stored: bytes, precision: int, scale: int) -> int:
    """The unscaled number of a binary DECIMAL.

    Groups of nine digits take four bytes each, the odd digits at both ends fewer; the first bit is the inverted sign
    and a negative number has all bits inverted.
    """
    is_positive = stored[0] & 0x80
    data = bytes([stored[0] ^ 0x80, *stored[1:]])
    if not is_positive:
        data = bytes(byte ^ 0xFF for byte in data)
    unscaled = place = 0
    for size, weight in decimal_groups(precision, scale):
        unscaled = unscaled * weight + int.from_bytes(data[place : place + size], "big")
        place += size
    return unscaled if is_positive else -unscaled


def decimal_groups(precision: int, scale: int) -> tuple[tuple[int, int], ...]:
    """Bytes and weight (ten to the number of digits) of each group of a binary DECIMAL, in stored order."""
    whole = precision - scale
    digits = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    return tuple((_DIGIT_BYTES[count], 10**count) for count in digits if count)


def unscaled_text(unscaled: int, scale: int) -> str:
    """``-12345`` with scale 2 → ``-123.45``."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


def decimal_writer(logical_type: LogicalType, scale: int) -> Callable[[int], str | float]:
    """The unscaled number of a DECIMAL of the given scale → its wire form."""
    match logical_type.kind:
        case LogicalKind.DECIMAL_TEXT:
            return lambda unscaled: unscaled_text(unscaled, scale)
        case LogicalKind.FLOAT64:
            return lambda unscaled: float(unscaled_text(unscaled, scale))
        case _:
            return unscaled_to_base64


def decimal_from_text(write: Callable[[int], str | float]) -> Memo:
    """``-12.30`` as bytes (with all digits of its scale, as MySQL prints it) → its wire form."""
    return Memo(lambda text: write(int(text.replace(b".", b""))))


# --- dates and times -------------------------------------------------------------------------------------------------


def days_since_1970(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 in the proleptic Gregorian calendar; a day past the month's end runs into the next.

    MySQL with ``ALLOW_INVALID_DATES`` stores such days; running on keeps them apart and in order, and loses none.
    Algorithm: days from civil, with years that begin in March.
    """
    shifted = year - (month <= 2)
    era = shifted // 400
    year_of_era = shifted - era * 400
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146097 + day_of_era - 719468


Moment = tuple[int, int, int, int]
"""Year, month, day, and microseconds of the day, as MySQL stores them: the day may be one that the calendar lacks."""

EPOCH_TEXT: Final = "1970-01-01T00:00:00Z"
"""The form of a zero TIMESTAMP that may not be NULL (Debezium's rule)."""
_DAY_US: Final = 86_400_000_000
_INT64_MAX: Final = (1 << 63) - 1


def zero_moment(kind: LogicalKind, *, is_optional: bool) -> int | str | None:
    """The form of a date without month or day: NULL, or the epoch where the column may not be NULL (Debezium's rule)."""
    if is_optional:
        return None
    match kind:
        case LogicalKind.ISO_DATE:
            return "1970-01-01Z"
        case LogicalKind.ISO_TIMESTAMP | LogicalKind.ZONED_TIMESTAMP:
            return EPOCH_TEXT
        case _:
            return 0


def moment_writer(kind: LogicalKind, *, is_optional: bool) -> Callable[[Moment], int | str | None]:
    """A DATE or DATETIME → its wire form.

    The function raises UnwritableValue where the form cannot hold the value: a year that 64 bits of nanoseconds do not reach.
    """
    zero = zero_moment(kind, is_optional=is_optional)
    write = _MOMENT_WRITERS[kind]
    return lambda moment: write(moment) if moment[1] and moment[2] else zero


def _date_text(moment: Moment) -> str:
    """As every other form has it: a day past the month's end runs into the next."""
    year, month, day, _ = moment
    days_over = day - calendar.monthrange(year or 4, month)[1]  # 0 is a leap year; Python's calendar begins at 1
    if days_over > 0:
        month, day = month + 1, days_over  # never December, whose 31 days no stored day exceeds
    return f"{year:04d}-{month:02d}-{day:02d}"


def _epoch_us(moment: Moment) -> int:
    return days_since_1970(moment[0], moment[1], moment[2]) * _DAY_US + moment[3]


def _epoch_ns(moment: Moment) -> int:
    nanoseconds = _epoch_us(moment) * 1000
    if not -_INT64_MAX - 1 <= nanoseconds <= _INT64_MAX:
        raise UnwritableValue(
            "the value does not fit into 64 bits of nanoseconds; set values.time_precision to another mode"
        )
    return nanoseconds


_MOMENT_WRITERS: Final[dict[LogicalKind, Callable[[Moment], int | str]]] = {
    LogicalKind.DATE: lambda moment: days_since_1970(*moment[:3]),
    LogicalKind.CONNECT_DATE: lambda moment: days_since_1970(*moment[:3]),
    LogicalKind.ISO_DATE: lambda moment: f"{_date_text(moment)}Z",
    LogicalKind.TIMESTAMP_MS: lambda moment: _epoch_us(moment) // 1000,
    LogicalKind.CONNECT_TIMESTAMP: lambda moment: _epoch_us(moment) // 1000,
    LogicalKind.TIMESTAMP_US: _epoch_us,
    LogicalKind.TIMESTAMP_NS: _epoch_ns,
    LogicalKind.ISO_TIMESTAMP: lambda moment: f"{_date_text(moment)}T{_clock_text(moment[3])}Z",
}


def moment_from_text(text: bytes) -> Moment:
    """``2024-01-31`` or ``2024-01-31 12:34:56.789`` as MySQL prints it."""
    date, _, clock = text.partition(b" ")
    year, month, day = map(int, date.split(b"-"))
    return year, month, day, _clock_us(clock) if clock else 0


def moment_from_date(stored: bytes) -> Moment:
    """DATE's three bytes: day 5 bits, month 4, year 15."""
    packed = int.from_bytes(stored, "little")
    return packed >> 9, packed >> 5 & 15, packed & 31, 0


def moment_from_datetime2(stored: bytes) -> Moment:
    """DATETIME2: 40 bits (sign, year * 13 + month in 17, day 5, hour 5, minute 6, second 6), then the fraction."""
    packed = int.from_bytes(stored[:5], "big") - (1 << 39)
    year, month = divmod(packed >> 22, 13)
    seconds = ((packed >> 12 & 31) * 60 + (packed >> 6 & 63)) * 60 + (packed & 63)
    return year, month, packed >> 17 & 31, seconds * 1_000_000 + _stored_fraction_us(stored[5:])


def timestamp_from_text(*, zero: str | None) -> Memo:
    """``2024-01-31 12:34:56.789`` as bytes, in a session at +00:00 → ISO 8601 text."""

    def compute(text: bytes) -> str | None:
        if text.startswith(b"0000-00-00"):
            return zero
        return text.decode("ascii").replace(" ", "T") + "Z"

    return Memo(compute)


def time_writer(kind: LogicalKind) -> Callable[[int], int | str]:
    """Microseconds of a TIME → its wire form.

    The function raises UnwritableValue where the form cannot hold the value: Connect's Time is of one day.
    """
    return _TIME_WRITERS[kind]


def _connect_time(us: int) -> int:
    if not 0 <= us < _DAY_US:
        raise UnwritableValue(
            "the value is no time of day, which Connect's Time is; set values.time_precision to another mode"
        )
    return us // 1000


def _iso_time(us: int) -> str:
    return f"{'-' if us < 0 else ''}{_clock_text(abs(us))}Z"


_TIME_WRITERS: Final[dict[LogicalKind, Callable[[int], int | str]]] = {
    LogicalKind.TIME_MS: lambda us: us // 1000,
    LogicalKind.MICRO_TIME: lambda us: us,
    LogicalKind.TIME_NS: lambda us: us * 1000,
    LogicalKind.CONNECT_TIME: _connect_time,
    LogicalKind.ISO_TIME: _iso_time,
}


def time_from_text(text: bytes) -> int:
    """``-838:59:58.9`` as MySQL prints it → microseconds."""
    return -_clock_us(text[1:]) if text.startswith(b"-") else _clock_us(text)


def time_from_time2(stored: bytes) -> int:
    """TIME2's bytes → microseconds: 24 bits offset by 0x800000 (hour 10, minute 6, second 6), then the fraction; the whole
    is one number, and a negative value its two's complement."""
    bits = 8 * (len(stored) - 3)
    packed = int.from_bytes(stored, "big") - (0x800000 << bits)
    magnitude = abs(packed).to_bytes(len(stored), "big")
    clock = int.from_bytes(magnitude[:3], "big")
    us = ((clock >> 12) * 3600 + (clock >> 6 & 63) * 60 + (clock & 63)) * 1_000_000 + _stored_fraction_us(magnitude[3:])
    return -us if packed < 0 else us


def _stored_fraction_us(stored: bytes) -> int:
    """A fraction of a second, in 0 to 3 bytes that hold 0, 2, 4 or 6 digits."""
    return int.from_bytes(stored, "big") * int(10 ** (6 - 2 * len(stored)))


def _clock_us(clock: bytes) -> int:
    whole, _, fraction = clock.partition(b".")
    hours, minutes, seconds = map(int, whole.split(b":"))
    return (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + (int(fraction.ljust(6, b"0")) if fraction else 0)


def _clock_text(us: int) -> str:
    """``12:34:56.5``: without zeros at the end, as Java prints ISO times."""
    seconds, fraction = divmod(us, 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{clock}.{fraction:06d}".rstrip("0") if fraction else clock


# --- numbers, bits, bytes ----------------------------------------------------------------------------------------------


def shortest_float32(stored: bytes) -> float:
    """The number with the fewest digits that is this FLOAT (four bytes, little-endian).

    A float32 widened to a double shows digits that the column never held (1.1 → 1.100000023841858).
    """
    (value,) = struct.unpack("<f", stored)
    for digits in range(1, 10):
        candidate = float(f"{value:.{digits}g}")
        if math.isfinite(candidate) and abs(candidate) < 3.4028236e38 and struct.pack("<f", candidate) == stored:
            return candidate
    return float(value)


def float32_from_text() -> Memo:
    """A FLOAT that the SELECT cast to DOUBLE, as bytes → a number."""
    return Memo(lambda text: shortest_float32(struct.pack("<f", float(text))))


def base64_text(stored: bytes) -> str:
    """Bytes → base64."""
    return binascii.b2a_base64(stored, newline=False).decode("ascii")


def _base64_url_text(stored: bytes) -> str:
    return base64.urlsafe_b64encode(stored).decode("ascii")


_BINARY_WRITERS: Final[dict[LogicalKind, Callable[[bytes], str]]] = {
    LogicalKind.BYTES: base64_text,
    LogicalKind.BASE64: base64_text,
    LogicalKind.BASE64_URL: _base64_url_text,
    LogicalKind.HEX: bytes.hex,
}
BINARY_KINDS: Final = frozenset(_BINARY_WRITERS)


def binary_writer(kind: LogicalKind) -> Callable[[bytes], str]:
    """The bytes of a BINARY, VARBINARY or BLOB → their wire form."""
    return _BINARY_WRITERS[kind]


def bits_base64(stored: bytes) -> str:
    """BIT(n)'s big-endian bytes → Debezium's Bits: little-endian, in base64."""
    return base64_text(stored[::-1])


def set_from_binary(members: tuple[str, ...]) -> Memo:
    """A SET's bits → its members joined by commas. Raises ValueError for a bit that has no member."""

    def compute(bits: int) -> str:
        if bits >> len(members):
            raise ValueError("a SET has a bit beyond its members")
        return set_text(member for place, member in enumerate(members) if bits >> place & 1)

    return Memo(compute)


_SRID_BYTES: Final = 4
_POINT_BYTES: Final = 21


def geometry_value(stored: bytes) -> dict[str, Any]:
    """MySQL's geometry (SRID, then well-known binary) → Debezium's Geometry; SRID 0 is none.

    Manual, "Supported Spatial Data Formats", Internal Geometry Storage Format. Raises ValueError for fewer bytes than the
    smallest geometry has.
    """
    if len(stored) < _SRID_BYTES + 5:
        raise ValueError("no geometry")
    srid = int.from_bytes(stored[:_SRID_BYTES], "little")
    return {"wkb": base64_text(stored[_SRID_BYTES:]), "srid": srid or None}


def point_value(stored: bytes) -> dict[str, Any]:
    """MySQL's POINT → Debezium's Point, whose x and y are those of the well-known binary."""
    if len(stored) != _SRID_BYTES + _POINT_BYTES or stored[_SRID_BYTES] not in (0, 1):
        raise ValueError("no point")
    x, y = struct.unpack_from("<dd" if stored[_SRID_BYTES] else ">dd", stored, _SRID_BYTES + 5)
    return {"x": x, "y": y, **geometry_value(stored)}


def vector_value(stored: bytes) -> list[float]:
    """A VECTOR's little-endian floats → numbers."""
    if len(stored) % 4:
        raise ValueError("no vector")
    numbers = [shortest_float32(stored[place : place + 4]) for place in range(0, len(stored), 4)]
    if not all(map(math.isfinite, numbers)):
        raise ValueError("JSON has no infinite numbers")
    return numbers


_JSON_SPACE = re.compile(rb'("(?:[^"\\]|\\.)*")|([,:]) ', re.DOTALL)


def compact_json(text: bytes) -> str:
    """MySQL's printed JSON without the space after each comma and colon outside strings."""
    return _JSON_SPACE.sub(rb"\1\2", text).decode("utf-8")
