"""From MySQL's stored forms to the wire forms of ``libs.types.value``, each value computed once.

Two readings lead here: the types of the binlog's row image that are not read in compiled code (``row_image``) and the text
protocol's answer to a snapshot's SELECT (``text_row``). Both give the same wire form for the same stored value; that is
tested over every type.

Dates, decimals and clock times repeat within a log far more than they differ, and computing them is the dearest
part of a row. So each converter is a dictionary that computes what it lacks: a hit costs one look-up. A table is emptied
when it is full; values are immutable, so nothing can go stale.

Formats: MySQL source ``sql-common/my_time.cc`` (packed temporal types) and ``strings/decimal.cc`` (binary decimals).
"""

import binascii
import math
import re
import struct
from collections.abc import Callable
from typing import Any, Final

_MAX_MEMOISED = 50_000
"""Entries of one converter: at about 150 bytes each, 7 MB at most."""

_DIGIT_BYTES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes that hold 0 to 9 decimal digits (decimal.cc, dig2bytes)."""


class Memo(dict[Any, Any]):
    """A bounded dictionary that computes what it lacks."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, stored: Any) -> Any:
        if len(self) >= _MAX_MEMOISED:
            self.clear()
        value = self[stored] = self._compute(stored)
        return value


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


def _decimal_text_to_base64(text: bytes) -> str:
    return unscaled_to_base64(int(text.replace(b".", b"")))


def decimal_from_text() -> Memo:
    """``-12.30`` as bytes (with all digits of its scale, as MySQL prints it) → base64."""
    return Memo(_decimal_text_to_base64)


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


def date_from_text(zero: int | None) -> Memo:
    """``2024-01-31`` as bytes → days; ``zero`` stands for a date without month or day."""

    def compute(text: bytes) -> int | None:
        year, month, day = map(int, text.split(b"-"))
        return days_since_1970(year, month, day) if month and day else zero

    return Memo(compute)


def datetime_from_text(*, units_per_s: int, zero: int | None) -> Memo:
    """``2024-01-31 12:34:56.789`` as bytes → milliseconds or microseconds since 1970."""

    def compute(text: bytes) -> int | None:
        date, _, clock = text.partition(b" ")
        year, month, day = map(int, date.split(b"-"))
        if not (month and day):
            return zero
        microseconds = _clock_us(clock)
        return days_since_1970(year, month, day) * 86400 * units_per_s + microseconds * units_per_s // 1_000_000

    return Memo(compute)


def timestamp_from_text(*, zero: str | None) -> Memo:
    """``2024-01-31 12:34:56.789`` as bytes, in a session at +00:00 → ISO 8601 text."""

    def compute(text: bytes) -> str | None:
        if text.startswith(b"0000-00-00"):
            return zero
        return text.decode("ascii").replace(" ", "T") + "Z"

    return Memo(compute)


def time_from_text() -> Memo:
    """``-838:59:58.9`` as bytes → microseconds."""
    return Memo(lambda text: -_clock_us(text[1:]) if text.startswith(b"-") else _clock_us(text))


def _clock_us(clock: bytes) -> int:
    whole, _, fraction = clock.partition(b".")
    hours, minutes, seconds = map(int, whole.split(b":"))
    return (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + (int(fraction.ljust(6, b"0")) if fraction else 0)


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


def bits_base64(stored: bytes) -> str:
    """BIT(n)'s big-endian bytes → Debezium's Bits: little-endian, in base64."""
    return base64_text(stored[::-1])


def set_from_binary(members: tuple[str, ...]) -> Memo:
    """A SET's bits → its members joined by commas."""
    return Memo(lambda bits: ",".join(member for place, member in enumerate(members) if bits >> place & 1))


_JSON_SPACE = re.compile(rb'("(?:[^"\\]|\\.)*")|([,:]) ', re.DOTALL)


def compact_json(text: bytes) -> str:
    """MySQL's printed JSON without the space after each comma and colon outside strings."""
    return _JSON_SPACE.sub(rb"\1\2", text).decode("utf-8")
