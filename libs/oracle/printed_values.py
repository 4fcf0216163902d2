"""Values as LogMiner prints them, and as the driver gives them: both become ``OracleValue``, so that both end in one form.

LogMiner prints numbers and moments as the reader's session is set: a decimal point, ``SYYYY-MM-DD HH24:MI:SS`` and UTC. The
default formats of a server (``27-MAR-22 12.34.56.007890 PM``) are read too. A column that the log prints as HEXTORAW
although it holds no bytes is in Oracle's storage format.
"""

import datetime
import math
import re
import zoneinfo
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from libs.oracle import internal_values
from libs.oracle.column_type import OracleType, parse_column_type
from libs.oracle.internal_values import (
    DaySecondInterval,
    OracleTimestamp,
    YearMonthInterval,
    ZonedOracleTimestamp,
)
from libs.oracle.redo_values import Expression, Quoted, RedoValue, UnreadableRedo, bytes_of, text_of
from libs.oracle.values import OracleValue, moment_of_nanoseconds, nanoseconds_since_1970
from libs.types.table import Column

ReadRedo = Callable[[RedoValue], OracleValue]
ReadDriver = Callable[[Any], OracleValue]
_ReadText = Callable[[str], OracleValue]
_ReadBytes = Callable[[bytes], OracleValue]

_CALL: Final = re.compile(r"([A-Z_]+)\(\s*'((?:[^']|'')*)'\s*(?:,\s*'[^']*'\s*)?\)", re.IGNORECASE)
_HEX_TO_RAW: Final = "HEXTORAW("
_NATIONAL: Final = frozenset({"NCHAR", "NVARCHAR2", "NCLOB"})
_BYTES: Final = frozenset({"RAW", "LONG RAW", "BLOB"})
_EMPTY: Final = re.compile(r"EMPTY_[CB]LOB\(\)", re.IGNORECASE)
_NOTE: Final = re.compile(r"\A/\*.*?\*/\s*", re.DOTALL)
_XML: Final = re.compile(r"XMLTYPE\((.*)\)", re.DOTALL | re.IGNORECASE)
_CHARSETS: Final = {
    "AL32UTF8": "utf-8",
    "UTF8": "utf-8",
    "US7ASCII": "ascii",
    "AL16UTF16": "utf-16-be",
    "WE8ISO8859P1": "iso8859-1",
    "WE8ISO8859P15": "iso8859-15",
    "WE8MSWIN1252": "cp1252",
    "EE8MSWIN1250": "cp1250",
    "EE8ISO8859P2": "iso8859-2",
    "CL8MSWIN1251": "cp1251",
    "CL8ISO8859P5": "iso8859-5",
    "JA16SJIS": "cp932",
    "JA16EUC": "euc_jp",
    "KO16MSWIN949": "cp949",
    "ZHS16GBK": "gbk",
    "ZHT16BIG5": "big5",
}
"""Python's codecs by Oracle's names."""


def redo_reader(column: Column) -> ReadRedo:
    """The function that reads the column's values in SQL_REDO.

    It raises UnreadableRedo where a value has another form than its column's type, or is ``Unsupported Type``.
    """
    oracle_type = parse_column_type(column.source_type)
    read_bytes = _stored_reader(oracle_type, column.charset)
    if oracle_type.name in _BYTES:
        return _no_null(_redo_bytes)
    read_text = _text_reader(oracle_type)

    def read(value: RedoValue) -> OracleValue:
        match value:
            case Quoted(text):
                return read_text(text)
            case Expression(sql) if sql.upper().startswith(_HEX_TO_RAW):
                return read_bytes(bytes_of(value))
            case Expression():
                return read_text(_printed(value, oracle_type))
            case _:
                raise UnreadableRedo("a value that the log holds", 0)

    return _no_null(read)


def driver_reader(column: Column) -> ReadDriver:
    """The function that reads the column's values of a SELECT by python-oracledb.

    Moments and intervals may come as Python's objects or as texts: the driver's have no offset, no nanoseconds and no year
    before 1. The function raises TypeError for any other object.
    """
    oracle_type = parse_column_type(column.source_type)
    read_text = None if oracle_type.name in _BYTES else _text_reader(oracle_type)
    is_zoned = oracle_type.name.endswith("TIME ZONE")
    is_binary_number = oracle_type.name.startswith("BINARY_")

    def read(value: Any) -> OracleValue:
        match value:
            case None | bool() | Decimal() | bytes():
                return value
            case int() | float():
                return float(value) if is_binary_number else Decimal(repr(value))
            case str() if read_text is not None:
                return read_text(value)
            case datetime.datetime():
                moment = _moment_of_datetime(value)
                return ZonedOracleTimestamp(moment, 0) if is_zoned else moment
            case datetime.timedelta():
                return DaySecondInterval((value // datetime.timedelta(microseconds=1)) * 1_000)
            case tuple((years, months)):  # oracledb.IntervalYM
                return YearMonthInterval(12 * years + months)
            case _:
                raise TypeError(f"a {type(value).__name__} in a column of type {oracle_type}")

    return read


def _no_null(read: ReadRedo) -> ReadRedo:
    return lambda value: None if value is None else read(value)


def _redo_bytes(value: RedoValue) -> OracleValue:
    if not isinstance(value, Expression):
        raise UnreadableRedo("HEXTORAW", 0)
    return b"" if _EMPTY.fullmatch(value.sql) else bytes_of(value)


def _printed(value: Expression, oracle_type: OracleType) -> str:
    """The text of a call (``TO_DATE('…')``), of UNISTR, of an empty LOB, or of a bare number."""
    sql = _NOTE.sub("", value.sql)
    if _EMPTY.fullmatch(sql):
        return ""
    if (called := _CALL.fullmatch(sql)) and called[1].upper() != "UNISTR":
        return called[2].replace("''", "'")
    if oracle_type.name in _NUMBERS:
        return sql
    if document := _XML.fullmatch(sql):
        sql = document[1]
    return text_of(Expression(sql))


def _stored_reader(oracle_type: OracleType, charset: str | None) -> _ReadBytes:
    """Of Oracle's storage format."""
    name = oracle_type.name
    if (read := _STORED.get(name)) is not None:
        return read
    codec = "utf-16-be" if name in _NATIONAL else _CHARSETS.get(charset or "AL32UTF8")

    def read_text(data: bytes) -> OracleValue:
        if codec is None or name not in _TEXTS:
            raise UnreadableRedo(f"a form of {oracle_type} that is known", 0)
        try:
            return data.decode(codec)
        except UnicodeDecodeError as error:
            raise UnreadableRedo(f"a text of {charset or 'AL32UTF8'}", 0) from error

    return read_text


def _text_reader(oracle_type: OracleType) -> _ReadText:
    return _PRINTED.get(oracle_type.name, str)


# --- numbers --------------------------------------------------------------------------------------------------------


def _read_number(text: str) -> Decimal:
    try:
        return Decimal(text.strip())
    except InvalidOperation as error:
        raise UnreadableRedo("a number", 0) from error


_SPECIAL: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def _read_float(text: str) -> float:
    """Oracle prints ``Nan``, ``Inf`` and ``-Inf``."""
    if (special := _SPECIAL.get(text.strip().lower())) is not None:
        return special
    return float(_read_number(text))


def _read_boolean(text: str) -> bool:
    match text.strip().upper():
        case "TRUE" | "1":
            return True
        case "FALSE" | "0":
            return False
        case _:
            raise UnreadableRedo("TRUE or FALSE", 0)


# --- moments --------------------------------------------------------------------------------------------------------

_ISO: Final = re.compile(r"\s*(-?)(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{0,9}))?)?(?:\s*(\S.*?))?\s*")
_ENGLISH: Final = re.compile(
    r"\s*(\d\d)-([A-Z]{3})-(\d\d|\d{4})(?: (\d\d)\.(\d\d)\.(\d\d)(?:\.(\d{0,9}))? ([AP]M))?(?:\s+(\S.*?))?\s*",
    re.IGNORECASE,
)
_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_OFFSET: Final = re.compile(r"([+-])(\d\d):(\d\d)")
_LAST_YEAR_OF_2000S: Final = 49
"""Two digits above it are of the 1900s (RR; Oracle Database SQL Language Reference, "The RR Datetime Format Element")."""


def _read_moment(text: str) -> OracleTimestamp:
    moment, zone = _split(text)
    if zone:
        raise UnreadableRedo("a moment without a zone", 0)
    return moment


def _read_zoned(text: str) -> ZonedOracleTimestamp:
    """A moment without a zone is in UTC, the session's."""
    local, zone = _split(text)
    offset = _OFFSET.fullmatch(zone)
    if offset:
        minutes = (60 * int(offset[2]) + int(offset[3])) * (-1 if offset[1] == "-" else 1)
    else:
        minutes = _minutes_of_region(zone, local) if zone not in ("", "Z", "UTC") else 0
    utc = moment_of_nanoseconds(nanoseconds_since_1970(local) - minutes * 60_000_000_000)
    return ZonedOracleTimestamp(utc, minutes)


def _minutes_of_region(zone: str, local: OracleTimestamp) -> int:
    """``Europe/Prague``, or ``Europe/Prague CEST``: the abbreviation distinguishes the two hours of autumn."""
    region, _, abbreviation = zone.partition(" ")
    try:
        info = zoneinfo.ZoneInfo(region)
        wall = datetime.datetime(*local[:6], tzinfo=info)
    except (ValueError, zoneinfo.ZoneInfoNotFoundError) as error:
        raise UnreadableRedo("an offset, or a region that the time zone database has", 0) from error
    if abbreviation and wall.tzname() != abbreviation:
        wall = wall.replace(fold=1)
    offset = wall.utcoffset() or datetime.timedelta()
    return int(offset // datetime.timedelta(minutes=1))


def _split(text: str) -> tuple[OracleTimestamp, str]:
    """A wall clock, and the text of the zone after it."""
    if found := _ISO.fullmatch(text):
        is_before_christ, *parts, fraction, zone = found.groups()
        numbers = [int(part or 0) for part in parts]
        if is_before_christ:
            numbers[0] = 1 - numbers[0]
    elif found := _ENGLISH.fullmatch(text):
        day_text, name, year_text, *clock, fraction, half, zone = found.groups()
        if name.upper() not in _MONTHS:
            raise UnreadableRedo("a month's English name", 0)
        numbers = [
            _whole_year(year_text),
            _MONTHS.index(name.upper()) + 1,
            int(day_text),
            *(int(part or 0) for part in clock),
        ]
        numbers[3] = _hour(numbers[3], half)
    else:
        raise UnreadableRedo("a date", 0)
    year, month, day, hour, minute, second = numbers
    moment = OracleTimestamp(year, month, day, hour, minute, second, int((fraction or "").ljust(9, "0")))
    is_date = 1 <= moment.month <= 12 and 1 <= moment.day <= 31
    if not (is_date and moment.hour < 24 and moment.minute < 60 and moment.second < 60):
        raise UnreadableRedo("a date", 0)
    return moment, zone or ""


def _whole_year(text: str) -> int:
    year = int(text)
    if len(text) == 4:
        return year
    return year + (2000 if year <= _LAST_YEAR_OF_2000S else 1900)


def _hour(hour: int, half: str | None) -> int:
    return hour if half is None else hour % 12 + (12 if half.upper() == "PM" else 0)


def _moment_of_datetime(value: datetime.datetime) -> OracleTimestamp:
    if value.tzinfo is not None:
        value = value.astimezone(datetime.UTC)
    return OracleTimestamp(
        value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond * 1_000
    )


# --- intervals ------------------------------------------------------------------------------------------------------

_YEAR_MONTH: Final = re.compile(r"\s*([+-]?)(\d+)-(\d+)\s*")
_DAY_SECOND: Final = re.compile(r"\s*([+-]?)(\d+) (\d+):(\d+):(\d+)(?:\.(\d{0,9}))?\s*")


def _read_year_month(text: str) -> YearMonthInterval:
    found = _YEAR_MONTH.fullmatch(text)
    if found is None:
        raise UnreadableRedo("years and months", 0)
    months = 12 * int(found[2]) + int(found[3])
    return YearMonthInterval(-months if found[1] == "-" else months)


def _read_day_second(text: str) -> DaySecondInterval:
    found = _DAY_SECOND.fullmatch(text)
    if found is None:
        raise UnreadableRedo("days and a time", 0)
    days, hours, minutes, seconds = (int(found[place]) for place in range(2, 6))
    whole = ((24 * days + hours) * 60 + minutes) * 60 + seconds
    nanoseconds = whole * 1_000_000_000 + int((found[6] or "").ljust(9, "0"))
    return DaySecondInterval(-nanoseconds if found[1] == "-" else nanoseconds)


_NUMBERS: Final = frozenset({"NUMBER", "FLOAT", "BINARY_FLOAT", "BINARY_DOUBLE", "BOOLEAN"})
_TEXTS: Final = frozenset({"CHAR", "VARCHAR2", "NCHAR", "NVARCHAR2", "CLOB", "NCLOB", "LONG"})
_PRINTED: Final[dict[str, _ReadText]] = {
    "NUMBER": _read_number,
    "FLOAT": _read_number,
    "BINARY_FLOAT": _read_float,
    "BINARY_DOUBLE": _read_float,
    "BOOLEAN": _read_boolean,
    "DATE": _read_moment,
    "TIMESTAMP": _read_moment,
    "TIMESTAMP WITH TIME ZONE": _read_zoned,
    "TIMESTAMP WITH LOCAL TIME ZONE": _read_zoned,
    "INTERVAL YEAR TO MONTH": _read_year_month,
    "INTERVAL DAY TO SECOND": _read_day_second,
}
"""By Oracle's name; a text is what it is."""
_STORED: Final[dict[str, _ReadBytes]] = {
    "NUMBER": internal_values.read_number,
    "FLOAT": internal_values.read_number,
    "BINARY_FLOAT": internal_values.read_binary_float,
    "BINARY_DOUBLE": internal_values.read_binary_double,
    "DATE": internal_values.read_date,
    "TIMESTAMP": internal_values.read_date,
    "TIMESTAMP WITH TIME ZONE": internal_values.read_zoned_timestamp,
    "TIMESTAMP WITH LOCAL TIME ZONE": lambda data: ZonedOracleTimestamp(internal_values.read_date(data), 0),
    "INTERVAL YEAR TO MONTH": internal_values.read_year_month,
    "INTERVAL DAY TO SECOND": internal_values.read_day_second,
    "RAW": bytes,
}
