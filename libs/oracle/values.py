"""A column's values as JSON: the one form in which the log's rows and the snapshot's rows end.

SQL_REDO (``printed_values``), Oracle's storage formats (``internal_values``) and the driver (``printed_values``) give
``OracleValue``; a writer for each column makes JSON of it. Forms: Debezium's Oracle connector 3.6.1
(``tests/golden/oracle/value_converters.json``). It writes null for a TIMESTAMP beyond 64 bits of nanoseconds, and fails for
BINARY_DOUBLE's NaN and for years before 1; here the first fails and the others have a form.
"""

import base64
import math
import struct
from collections.abc import Callable
from decimal import Context, Decimal, Inexact
from typing import Final, TypeVar

import orjson

from libs.oracle.internal_values import (
    DaySecondInterval,
    OracleTimestamp,
    YearMonthInterval,
    ZonedOracleTimestamp,
)
from libs.types.table import Column
from libs.types.value import LogicalKind, LogicalType

OracleValue = (
    Decimal
    | float
    | str
    | bytes
    | OracleTimestamp
    | ZonedOracleTimestamp
    | YearMonthInterval
    | DaySecondInterval
    | bool
    | None
)
"""A value of any column: NUMBER is a Decimal, BINARY_FLOAT and BINARY_DOUBLE a float, None is NULL."""
WriteJson = Callable[[OracleValue], bytes]
_T = TypeVar("_T")


class UnwritableValue(ValueError):
    """A sound value that the form of its column cannot hold; the text has the remedy, and no value."""


_EXACT: Final = Context(prec=300, traps=[Inexact])
"""A NUMBER(38,127) as an integer of its last digit, and 1E125 as an integer, have fewer digits."""
_PLAIN_DIGITS: Final = 40
"""An integer of more is written with a negative scale: Oracle prints it with an exponent."""
_DAY_NS: Final = 86_400_000_000_000
_INT64: Final = range(-(1 << 63), 1 << 63)
_MONTH_US: Final = 2_629_800_000_000
"""365.25 / 12 days (io.debezium.time.MicroDuration)."""
_INTEGER_BITS: Final = {LogicalKind.INT8: 8, LogicalKind.INT16: 16, LogicalKind.INT32: 32, LogicalKind.INT64: 64}
_MOMENT_UNITS_NS: Final = {
    LogicalKind.TIMESTAMP_MS: 1_000_000,
    LogicalKind.CONNECT_TIMESTAMP: 1_000_000,
    LogicalKind.TIMESTAMP_US: 1_000,
    LogicalKind.TIMESTAMP_NS: 1,
}
_BYTES_WRITERS: Final[dict[LogicalKind, Callable[[bytes], bytes]]] = {
    LogicalKind.BYTES: base64.b64encode,
    LogicalKind.BASE64: base64.b64encode,
    LogicalKind.BASE64_URL: base64.urlsafe_b64encode,
    LogicalKind.HEX: lambda data: data.hex().encode(),
}


def json_writer(column: Column) -> WriteJson:
    """The function that writes the column's values.

    It raises UnwritableValue where the form cannot hold a value, and TypeError where the value is of another type.
    """
    write = _writer(column.logical_type)
    return lambda value: b"null" if value is None else write(value)


def _writer(logical_type: LogicalType) -> WriteJson:
    kind = logical_type.kind
    match kind:
        case _ if kind in _INTEGER_BITS:
            bits = _INTEGER_BITS[kind]
            return lambda value: _integer_json(_number(value), bits)
        case LogicalKind.DECIMAL:
            return lambda value: _base64_json(unscaled(_number(value), logical_type.scale))
        case LogicalKind.VARIABLE_SCALE_DECIMAL:
            return lambda value: _own_scale_json(_number(value))
        case LogicalKind.DECIMAL_TEXT:
            return lambda value: _decimal_text_json(_number(value), logical_type)
        case LogicalKind.FLOAT64 | LogicalKind.FLOAT32:
            is_single = kind is LogicalKind.FLOAT32
            return lambda value: _float_json(value, is_single=is_single)
        case LogicalKind.BOOLEAN:
            return lambda value: b"true" if _typed(value, bool) else b"false"
        case _ if kind in _BYTES_WRITERS:
            write_bytes = _BYTES_WRITERS[kind]
            return lambda value: b'"%b"' % write_bytes(_typed(value, bytes))
        case _ if kind in _MOMENT_UNITS_NS:
            unit_ns = _MOMENT_UNITS_NS[kind]
            return lambda value: _moment_json(_typed(value, OracleTimestamp), unit_ns)
        case LogicalKind.ISO_TIMESTAMP:
            return lambda value: b'"%b"' % _iso_text(_typed(value, OracleTimestamp)).encode()
        case LogicalKind.ZONED_TIMESTAMP:
            digits = logical_type.scale
            return lambda value: b'"%b"' % _zoned_text(_typed(value, ZonedOracleTimestamp), digits).encode()
        case LogicalKind.MICRO_DURATION:
            return lambda value: b"%d" % _duration_us(value)
        case LogicalKind.INTERVAL:
            return lambda value: b'"%b"' % _interval_text(value).encode()
        case _:
            return lambda value: orjson.dumps(_typed(value, str))


def _typed(value: OracleValue, expected: type[_T]) -> _T:
    if not isinstance(value, expected):
        raise TypeError(f"a {type(value).__name__} where the column holds {expected.__name__}")
    return value


# --- numbers --------------------------------------------------------------------------------------------------------


def _number(value: OracleValue) -> Decimal:
    number = _typed(value, Decimal)
    if not number.is_finite():
        raise UnwritableValue("an infinite NUMBER has no form; repair the row at the source")
    return number


def unscaled(number: Decimal, scale: int) -> int:
    """The integer that the number is with so many digits after its point.

    Raises:
        UnwritableValue: it has more digits after the point.
    """
    try:
        whole = number.scaleb(scale, _EXACT)
        if whole == (integer := int(whole)):
            return integer
    except Inexact:
        pass
    raise UnwritableValue(
        f"a NUMBER has more than {scale} digits after its point; read the table's definition again (snapshot signal)"
    )


def _integer_json(number: Decimal, bits: int) -> bytes:
    integer = unscaled(number, 0)
    if not -(1 << bits - 1) <= integer < 1 << bits - 1:
        raise UnwritableValue(f"a NUMBER exceeds {bits} bits; read the table's definition again (snapshot signal)")
    return b"%d" % integer


def _base64_json(integer: int) -> bytes:
    """The shortest big-endian two's complement."""
    size = ((integer if integer >= 0 else ~integer).bit_length() >> 3) + 1
    return b'"%b"' % base64.b64encode(integer.to_bytes(size, "big", signed=True))


def _shortest(number: Decimal) -> tuple[int, int]:
    """Unscaled value and scale: no zeros at the end of a fraction, nor at the end of an integer of more than 40 digits."""
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "the number is finite"
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return 0, 0
    stripped = text.rstrip("0")
    exponent += len(text) - len(stripped)
    if 0 < exponent <= _PLAIN_DIGITS - len(stripped):
        stripped, exponent = stripped + "0" * exponent, 0
    return int(stripped) * (-1 if sign else 1), -exponent


def _own_scale_json(number: Decimal) -> bytes:
    integer, scale = _shortest(number)
    return b'{"scale":%d,"value":%b}' % (scale, _base64_json(integer))


def _decimal_text_json(number: Decimal, logical_type: LogicalType) -> bytes:
    if logical_type.precision:
        integer, scale = unscaled(number, logical_type.scale), logical_type.scale
    else:
        integer, scale = _shortest(number)
    return b'"%b"' % f"{Decimal(integer).scaleb(-scale, _EXACT):f}".encode()


def _float_json(value: OracleValue, *, is_single: bool) -> bytes:
    """NaN and the infinities are texts, as Connect's JsonConverter has them."""
    if not isinstance(value, Decimal | float):
        raise TypeError(f"a {type(value).__name__} where the column holds a number")
    number = float(value)
    if math.isnan(number):
        return b'"NaN"'
    if math.isinf(number):
        return b'"Infinity"' if number > 0 else b'"-Infinity"'
    return orjson.dumps(_shortest_single(number) if is_single else number)


def _shortest_single(number: float) -> float:
    """The number with the fewest digits that is the same BINARY_FLOAT."""
    stored = struct.pack("<f", number)
    for digits in range(1, 9):
        candidate = float(f"{number:.{digits}g}")
        if abs(candidate) < 3.4028236e38 and struct.pack("<f", candidate) == stored:
            return candidate
    return float(f"{number:.9g}")


# --- moments and intervals ------------------------------------------------------------------------------------------


def days_since_1970(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 in the proleptic Gregorian calendar; years are astronomical. Algorithm: days from civil."""
    era, year_of_era = divmod(year - (month <= 2), 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def date_of_days(days: int) -> tuple[int, int, int]:
    """Year, month and day: the inverse of ``days_since_1970``. Algorithm: civil from days."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def nanoseconds_since_1970(moment: OracleTimestamp) -> int:
    """Of a wall clock, as if it were UTC's."""
    seconds = (moment.hour * 60 + moment.minute) * 60 + moment.second
    days = days_since_1970(moment.year, moment.month, moment.day)
    return days * _DAY_NS + seconds * 1_000_000_000 + moment.nanosecond


def moment_of_nanoseconds(nanoseconds: int) -> OracleTimestamp:
    """The inverse of ``nanoseconds_since_1970``."""
    days, rest = divmod(nanoseconds, _DAY_NS)
    seconds, nanosecond = divmod(rest, 1_000_000_000)
    return OracleTimestamp(*date_of_days(days), seconds // 3600, seconds // 60 % 60, seconds % 60, nanosecond)


def _moment_json(moment: OracleTimestamp, unit_ns: int) -> bytes:
    """Finer parts than the unit are cut off, towards the past."""
    count = nanoseconds_since_1970(moment) // unit_ns
    if count not in _INT64:
        raise UnwritableValue(
            "64 bits of nanoseconds hold the years 1678 to 2261 alone; "
            "name another values.time_precision, such as microseconds"
        )
    return b"%d" % count


def _clock_text(moment: OracleTimestamp) -> str:
    year = f"{moment.year:04d}" if moment.year >= 0 else f"-{-moment.year:04d}"
    return f"{year}-{moment.month:02d}-{moment.day:02d}T{moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}"


def _iso_text(moment: OracleTimestamp) -> str:
    fraction = f".{moment.nanosecond:09d}".rstrip("0") if moment.nanosecond else ""
    return f"{_clock_text(moment)}{fraction}Z"


def _zoned_text(moment: ZonedOracleTimestamp, digits: int) -> str:
    """At least so many digits of the second."""
    local = moment_of_nanoseconds(nanoseconds_since_1970(moment.utc) + moment.offset_minutes * 60_000_000_000)
    fraction = f"{local.nanosecond:09d}".rstrip("0").ljust(digits, "0")
    return f"{_clock_text(local)}{'.' if fraction else ''}{fraction}{offset_text(moment.offset_minutes) or 'Z'}"


def offset_text(minutes: int) -> str:
    """``+05:30``; empty for UTC."""
    hours, rest = divmod(abs(minutes), 60)
    return f"{'-' if minutes < 0 else '+'}{hours:02d}:{rest:02d}" if minutes else ""


def _duration_us(value: OracleValue) -> int:
    match value:
        case YearMonthInterval(months):
            return months * _MONTH_US
        case DaySecondInterval(nanoseconds):
            return int(math.copysign(1, nanoseconds)) * (abs(nanoseconds) // 1_000)
        case _:
            raise TypeError(f"a {type(value).__name__} where the column holds an interval")


def _interval_text(value: OracleValue) -> str:
    """Each part but 0 has the interval's sign."""
    match value:
        case YearMonthInterval(months):
            sign = "-" if months < 0 else ""
            years, rest = divmod(abs(months), 12)
            return f"P{_signed(sign, years)}Y{_signed(sign, rest)}M0DT0H0M0S"
        case DaySecondInterval(nanoseconds):
            sign = "-" if nanoseconds < 0 else ""
            whole_s, fraction = divmod(abs(nanoseconds), 1_000_000_000)
            minutes, seconds = divmod(whole_s, 60)
            hours, minutes = divmod(minutes, 60)
            days, hours = divmod(hours, 24)
            decimals = f".{fraction:09d}".rstrip("0") if fraction else ""
            clock = f"{_signed(sign, hours)}H{_signed(sign, minutes)}M"
            is_negative = bool(sign and (seconds or fraction))
            return f"P0Y0M{_signed(sign, days)}DT{clock}{'-' if is_negative else ''}{seconds}{decimals}S"
        case _:
            raise TypeError(f"a {type(value).__name__} where the column holds an interval")


def _signed(sign: str, part: int) -> str:
    return f"{sign}{part}" if part else "0"
