"""One canonical Python value for each Oracle type, reached from both ends: Oracle's answer and the warehouse's Arrow.

As ``values`` has it for MySQL. A column's type is Oracle's own text, such as ``NUMBER(9,2)``: in capitals, where MySQL's
names are small. The way from Oracle shares no code with the reader's decoders.

    NUMBER, FLOAT         Decimal, compared by value
    BINARY_FLOAT, BINARY_DOUBLE   float; NaN is equal to NaN
    CHAR … NCLOB, LONG, XMLTYPE, ROWID   str
    RAW, BLOB             bytes
    DATE, TIMESTAMP       datetime without zone, cut to microseconds, as warehouses hold it
    TIMESTAMP … TIME ZONE   the same, of UTC
    INTERVAL              microseconds; a month is Debezium's, 30.4375 days
    JSON                  the parsed document, as MySQL's
    BOOLEAN               bool
"""

import datetime
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from libs.check.json_values import parsed_document
from libs.oracle.column_type import OracleType, parse_column_type

Convert = Callable[[Any], Any]

_NUMBERS: Final = frozenset({"NUMBER", "FLOAT"})
_FLOATS: Final = frozenset({"BINARY_FLOAT", "BINARY_DOUBLE"})
_BYTES: Final = frozenset({"RAW", "LONG RAW", "BLOB"})
_CHARACTERS: Final = frozenset({"CHAR", "VARCHAR2", "NCHAR", "NVARCHAR2"})
_NATIONAL: Final = frozenset({"NCHAR", "NVARCHAR2"})
_WALL_CLOCK: Final = frozenset({"DATE", "TIMESTAMP"})
_ZONED: Final = frozenset({"TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH LOCAL TIME ZONE"})
_INTERVALS: Final = frozenset({"INTERVAL YEAR TO MONTH", "INTERVAL DAY TO SECOND"})
_NAN: Final = "NaN"
_MONTH_US: Final = 2_629_800_000_000
_DAY_US: Final = 86_400_000_000
_PRINTED_DAYS: Final = re.compile(r"([+-]?)(\d+) (\d+):(\d+):(\d+)(?:\.(\d+))?")
_PRINTED_MONTHS: Final = re.compile(r"([+-]?)(\d+)-(\d+)")
_ISO_INTERVAL: Final = re.compile(r"P(-?\d+)Y(-?\d+)M(-?\d+)DT(-?\d+)H(-?\d+)M(-?)(\d+)(?:\.(\d+))?S")
_MICROSECOND_DIGITS: Final = 6
_EPOCH: Final = datetime.datetime(1970, 1, 1)


def is_oracle_type(data_type: str) -> bool:
    """Whether a column's type is one of Oracle's, whose names are in capitals."""
    return data_type[:1].isupper()


def select_expression(data_type: str, quoted_name: str) -> str:
    """The expression to SELECT, so that the answer is exact."""
    oracle_type = parse_column_type(data_type)
    match oracle_type.name:
        case name if name in _NUMBERS or name in _INTERVALS:
            return f"TO_CHAR({quoted_name})"
        case name if name in _WALL_CLOCK:
            return f"TO_CHAR({quoted_name}, '{_format(oracle_type)}')"
        case name if name in _ZONED:
            return f"TO_CHAR(SYS_EXTRACT_UTC({quoted_name}), '{_format(oracle_type)}')"
        case "XMLTYPE":
            return f"XMLSERIALIZE(CONTENT {quoted_name} AS CLOB)"
        case "JSON":
            return f"JSON_SERIALIZE({quoted_name} RETURNING CLOB)"
        case _:
            return quoted_name


def _format(oracle_type: OracleType) -> str:
    digits = 0 if oracle_type.name == "DATE" else oracle_type.size or 0
    return "SYYYY-MM-DD HH24:MI:SS" + (f".FF{digits}" if digits else "")


def order_expression(data_type: str, quoted_name: str) -> str:
    """The expression to ORDER BY, so that Oracle's order is that of canonical values: text by its bytes in the database's
    character set, which of AL32UTF8 is that of code points."""
    return f"TO_CHAR({quoted_name})" if parse_column_type(data_type).name in _NATIONAL else quoted_name


def key_literal(data_type: str, value: object) -> str | None:
    """A canonical value of a key as Oracle's SQL has it; None: it may not find its row again."""
    name = parse_column_type(data_type).name
    match value:
        case int() | Decimal() if name == "NUMBER":
            return f"{Decimal(value):f}"
        case str() if name in _CHARACTERS:
            return text_literal(value)
        case bytes() if name == "RAW":
            return f"HEXTORAW('{value.hex().upper()}')"
        case datetime.datetime() if name in _WALL_CLOCK and not _is_finer(data_type):
            return moment_literal(value)
        case _:
            return None


def _is_finer(data_type: str) -> bool:
    """Values may have digits beyond a microsecond."""
    return (parse_column_type(data_type).size or 0) > _MICROSECOND_DIGITS


def text_literal(text: str) -> str:
    """A text that is not empty, as Oracle reads it."""
    quoted = text.replace("'", "''")
    return f"'{quoted}'"


def moment_literal(value: datetime.datetime) -> str:
    """A DATE's or TIMESTAMP's value."""
    return f"TIMESTAMP '{value.isoformat(sep=' ', timespec='microseconds')}'"


def from_oracle(data_type: str) -> Convert | None:
    """From the driver's value of ``select_expression`` to the canonical one; None: it is that already."""
    match parse_column_type(data_type).name:
        case name if name in _NUMBERS:
            return Decimal
        case name if name in _FLOATS:
            return _with_equal_nan
        case name if name in _WALL_CLOCK or name in _ZONED:
            return _moment_of_text
        case "INTERVAL YEAR TO MONTH":
            return _microseconds_of_months
        case "INTERVAL DAY TO SECOND":
            return _microseconds_of_days
        case "JSON":
            return parsed_document
        case _:
            return None


def from_arrow(data_type: str, arrow_type: pa.DataType) -> Convert | None:
    """See ``values.from_arrow``."""
    name, types = parse_column_type(data_type).name, pa.types
    is_text = bool(types.is_string(arrow_type) or types.is_large_string(arrow_type) or types.is_string_view(arrow_type))
    if name in _NUMBERS:
        if types.is_integer(arrow_type) or types.is_decimal(arrow_type):
            return None
        if is_text:
            return Decimal
        if types.is_floating(arrow_type):
            return lambda number: Decimal(repr(number))  # `decimal: double` leaves 15 digits
    elif name in _FLOATS:
        if types.is_floating(arrow_type):
            return _with_equal_nan
    elif name in _WALL_CLOCK or name in _ZONED:
        if types.is_timestamp(arrow_type):
            return None if arrow_type.tz is None else _utc_without_zone
    elif name in _INTERVALS:
        if types.is_integer(arrow_type):
            return None
        if is_text:
            return _microseconds_of_iso
    elif name in _BYTES:
        if _is_bytes(arrow_type):
            return None
    elif name == "BOOLEAN":
        if types.is_boolean(arrow_type):
            return None
    elif is_text:
        return parsed_document if name == "JSON" else None
    raise TypeError(f"an Oracle {data_type} cannot stand in a column of type {arrow_type}")


def event_text(data_type: str, value: Any) -> str:
    """The text of a value in an event, from the driver's: digits of a number, units since 1970."""
    oracle_type = parse_column_type(data_type)
    if oracle_type.name in _NUMBERS:
        return f"{Decimal(value):.{max(oracle_type.scale or 0, 0)}f}"
    if oracle_type.name in _WALL_CLOCK:
        digits = 0 if oracle_type.name == "DATE" else oracle_type.size or 0
        unit = datetime.timedelta(microseconds=1 if digits > 3 else 1000)
        return str((_moment_of_text(value) - _EPOCH) // unit)
    return str(value)


def is_hashed_by_spelling(data_type: str) -> bool:
    """Whether the text in an event is one of several right ones."""
    oracle_type = parse_column_type(data_type)
    if oracle_type.name == "NUMBER":
        return oracle_type.scale is None
    return oracle_type.name not in _CHARACTERS | _BYTES | _WALL_CLOCK | {"CLOB", "NCLOB"} or _is_finer(data_type)


def _is_bytes(arrow_type: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(arrow_type)
        or types.is_large_binary(arrow_type)
        or types.is_binary_view(arrow_type)
        or types.is_fixed_size_binary(arrow_type)
    )


def _with_equal_nan(value: float) -> object:
    return _NAN if value != value else value


def _moment_of_text(text: str) -> datetime.datetime:
    """Oracle prints a blank where a year before Christ has a sign."""
    return datetime.datetime.fromisoformat(text.lstrip())


def _utc_without_zone(value: datetime.datetime) -> datetime.datetime:
    return value.astimezone(datetime.UTC).replace(tzinfo=None)


def _microseconds_of_months(text: str) -> int:
    """Of ``+01-03``."""
    match = _PRINTED_MONTHS.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no INTERVAL YEAR TO MONTH")
    months = 12 * int(match[2]) + int(match[3])
    return (-months if match[1] == "-" else months) * _MONTH_US


def _microseconds_of_days(text: str) -> int:
    """Of ``+01 02:03:04.500000``."""
    match = _PRINTED_DAYS.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no INTERVAL DAY TO SECOND")
    sign, days, hours, minutes, seconds, fraction = match.groups()
    micros = _clock_us(int(days), int(hours), int(minutes), int(seconds)) + _fraction_us(fraction)
    return -micros if sign == "-" else micros


def _microseconds_of_iso(text: str) -> int:
    match = _ISO_INTERVAL.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no interval")
    years, months, days, hours, minutes, sign, seconds, fraction = match.groups()
    last_us = int(seconds) * 1_000_000 + _fraction_us(fraction)
    of_days = _clock_us(int(days), int(hours), int(minutes), 0) + (-last_us if sign else last_us)
    return (12 * int(years) + int(months)) * _MONTH_US + of_days


def _clock_us(days: int, hours: int, minutes: int, seconds: int) -> int:
    return days * _DAY_US + ((hours * 60 + minutes) * 60 + seconds) * 1_000_000


def _fraction_us(digits: str | None) -> int:
    return int((digits or "")[:_MICROSECOND_DIGITS].ljust(_MICROSECOND_DIGITS, "0"))
