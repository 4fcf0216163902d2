"""From MySQL's stored forms to the wire forms of ``libs.types.value``, each value computed once.

Two readings lead here: the binlog's binary row image (``row_image``) and the text protocol's answer to a snapshot's
SELECT (``text_row``). Both give the same wire form for the same stored value; that is tested over every type.

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
    whole, unscaled, place = precision - scale, 0, 0
    groups = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    for digits in groups:
        if digits:
            size = _DIGIT_BYTES[digits]
            unscaled = unscaled * 10**digits + int.from_bytes(data[place : place + size], "big")
            place += size
    return unscaled if is_positive else -unscaled


def decimal_from_binary(precision: int, scale: int) -> Callable[[int], str]:
    """A binary DECIMAL, read as one big-endian number, → base64.

    Amounts seldom repeat, so nothing is memoised: the sum of the groups of digits is written out for each precision and
    scale, one shift, mask and product a group.
    """
    bits, groups = 8 * decimal_size(precision, scale), _decimal_groups(precision, scale)
    sign, magnitude = 1 << (bits - 1), (1 << (bits - 1)) - 1

    def negative(stored: int) -> str:
        rest = stored ^ magnitude  # a negative number has all its bits inverted
        return unscaled_to_base64(-sum((rest >> shift & mask) * weight for shift, mask, weight in groups))

    total = " + ".join(f"(stored >> {shift} & {mask}) * {weight}" for shift, mask, weight in groups)
    source = f"""
def convert(stored):
    if not stored & {sign}:
        return negative(stored)
    stored ^= {sign}
    unscaled = {total}
    return b2a(unscaled.to_bytes((unscaled.bit_length() >> 3) + 1, "big"), newline=False).decode()
"""
    scope: dict[str, Any] = {"b2a": binascii.b2a_base64, "negative": negative}
    exec(compile(source, "<decimal converter>", "exec"), scope)  # noqa: S102 - made of our own numbers alone
    convert: Callable[[int], str] = scope["convert"]
    return convert


def _decimal_groups(precision: int, scale: int) -> tuple[tuple[int, int, int], ...]:
    """(shift, mask, weight in the unscaled number) of each group of digits."""
    whole = precision - scale
    digits = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    groups: list[tuple[int, int, int]] = []
    shift, weight = 0, 1
    for count in reversed(digits):
        if count:
            size = 8 * _DIGIT_BYTES[count]
            groups.append((shift, (1 << size) - 1, weight))
            shift, weight = shift + size, weight * 10**count
    return tuple(groups)


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


def _date_of_days(days: int) -> tuple[int, int, int]:
    days += 719468
    era = days // 146097
    day_of_era = days - era * 146097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_of_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_of_march + 2) // 5 + 1
    month = month_of_march + (3 if month_of_march < 10 else -9)
    return year_of_era + era * 400 + (month <= 2), month, day


def date_from_binary(zero: int | None) -> Memo:
    """DATE's three bytes (day 5 bits, month 4, year 15) → days; ``zero`` stands for a date without month or day."""

    def compute(stored: bytes) -> int | None:
        packed = int.from_bytes(stored, "little")
        day, month, year = packed & 31, (packed >> 5) & 15, packed >> 9
        return days_since_1970(year, month, day) if month and day else zero

    return Memo(compute)


def date_from_text(zero: int | None) -> Memo:
    """``2024-01-31`` as bytes → days; ``zero`` stands for a date without month or day."""

    def compute(text: bytes) -> int | None:
        year, month, day = map(int, text.split(b"-"))
        return days_since_1970(year, month, day) if month and day else zero

    return Memo(compute)


def datetime_from_binary(fractional_digits: int, *, units_per_s: int, zero: int | None) -> Callable[[int], int | None]:
    """DATETIME2's 5 to 8 bytes, read as one big-endian number, → milliseconds or microseconds (``units_per_s``).

    40 bits: sign, year*13+month (17), day (5), hour (5), minute (6), second (6); then the fraction, in units of 10**-2,
    10**-4 or 10**-6 s. Dates and minutes repeat, whole datetimes do not: they are memoised apart, so that the tables stay small
    enough for the processor's cache.
    """
    fraction_bits = 8 * ((fractional_digits + 1) // 2)
    fraction_mask, fraction_us = (1 << fraction_bits) - 1, 10 ** (6 - 2 * ((fractional_digits + 1) // 2))

    def of_date(date: int) -> int | None:
        year, month = divmod((date >> 5) - (0x8000000000 >> 22), 13)
        day = date & 31
        return days_since_1970(year, month, day) * 86400 * units_per_s if month and day else None

    def of_minute(clock: int) -> int:
        return ((clock >> 6) * 60 + (clock & 63)) * 60 * units_per_s

    dates, minutes = Memo(of_date), Memo(of_minute)
    date_shift, minute_shift = fraction_bits + 17, fraction_bits + 6

    def convert(stored: int) -> int | None:
        date: int | None = dates[stored >> date_shift]
        if date is None:
            return zero
        whole: int = date + minutes[stored >> minute_shift & 0x7FF] + (stored >> fraction_bits & 63) * units_per_s
        return whole + (stored & fraction_mask) * fraction_us * units_per_s // 1_000_000 if fraction_bits else whole

    return convert


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


def timestamp_from_binary(fractional_digits: int, *, zero: str | None) -> Callable[[int], str | None]:
    """TIMESTAMP2's 4 to 7 bytes (seconds UTC, then the fraction), read as one big-endian number, → ISO 8601 text.

    The text has as many digits of the second as the column. Days and minutes are memoised apart.
    """
    fraction_bytes = (fractional_digits + 1) // 2
    fraction_bits, fraction_us = 8 * fraction_bytes, 10 ** (6 - 2 * fraction_bytes)
    fraction_mask = (1 << fraction_bits) - 1

    def of_day(days: int) -> str:
        year, month, day = _date_of_days(days)
        return f"{year:04d}-{month:02d}-{day:02d}T"

    days, minutes = Memo(of_day), Memo(lambda minute: f"{minute // 60:02d}:{minute % 60:02d}:")

    # Looking digits up costs a third of formatting them.
    seconds = [f"{second:02d}" for second in range(60)]
    milliseconds = [f"{number:03d}"[:fractional_digits] for number in range(1_000)]
    microseconds = [f"{number:03d}"[: max(0, fractional_digits - 3)] for number in range(1_000)]

    def convert(stored: int) -> str | None:
        if not stored:
            return zero
        minute, second = divmod(stored >> fraction_bits, 60)
        day, minute = divmod(minute, 1440)
        if not fraction_bits:
            return f"{days[day]}{minutes[minute]}{seconds[second]}Z"
        millisecond, microsecond = divmod((stored & fraction_mask) * fraction_us, 1_000)
        return f"{days[day]}{minutes[minute]}{seconds[second]}.{milliseconds[millisecond]}{microseconds[microsecond]}Z"

    return convert


def timestamp_from_text(*, zero: str | None) -> Memo:
    """``2024-01-31 12:34:56.789`` as bytes, in a session at +00:00 → ISO 8601 text."""

    def compute(text: bytes) -> str | None:
        if text.startswith(b"0000-00-00"):
            return zero
        return text.decode("ascii").replace(" ", "T") + "Z"

    return Memo(compute)


def time_from_binary(fractional_digits: int) -> Memo:
    """TIME2's 3 to 6 bytes → microseconds.

    24 bits offset by 0x800000: hour (10), minute (6), second (6); with a fraction the whole is one number of that
    many more bytes, negative values being its two's complement.
    """
    fraction_bytes = (fractional_digits + 1) // 2
    offset = 0x800000 << (8 * fraction_bytes)
    fraction_unit_us = 10 ** (6 - 2 * fraction_bytes)

    def compute(stored: bytes) -> int:
        packed = int.from_bytes(stored, "big") - offset
        magnitude = abs(packed)
        clock = magnitude >> (8 * fraction_bytes)
        fraction = magnitude & ((1 << (8 * fraction_bytes)) - 1)
        seconds = (clock >> 12) * 3600 + ((clock >> 6) & 63) * 60 + (clock & 63)
        microseconds: int = seconds * 1_000_000 + fraction * fraction_unit_us
        return microseconds if packed >= 0 else -microseconds

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


def float32_from_binary() -> Memo:
    """FLOAT's four bytes → a number."""
    return Memo(shortest_float32)


def float32_from_text() -> Memo:
    """A FLOAT that the SELECT cast to DOUBLE, as bytes → a number."""
    return Memo(lambda text: shortest_float32(struct.pack("<f", float(text))))


def base64_text(stored: bytes) -> str:
    """Bytes → base64."""
    return binascii.b2a_base64(stored, newline=False).decode("ascii")


def bits_base64(stored: bytes) -> str:
    """BIT(n)'s big-endian bytes → Debezium's Bits: little-endian, in base64."""
    return base64_text(stored[::-1])


def enum_from_binary(members: tuple[str, ...]) -> Memo:
    """An ENUM's index (0: the empty string that MySQL stores for an invalid value) → its text."""
    return Memo(lambda index: members[index - 1] if index else "")


def set_from_binary(members: tuple[str, ...]) -> Memo:
    """A SET's bits → its members joined by commas."""
    return Memo(lambda bits: ",".join(member for place, member in enumerate(members) if bits >> place & 1))


_JSON_SPACE = re.compile(rb'("(?:[^"\\]|\\.)*")|([,:]) ', re.DOTALL)


def compact_json(text: bytes) -> str:
    """MySQL's printed JSON without the space after each comma and colon outside strings."""
    return _JSON_SPACE.sub(rb"\1\2", text).decode("utf-8")
