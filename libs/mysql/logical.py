"""MySQL columns as Headwater's: which logical type a MySQL type has, and one way to build a ``Column``.

Both roads to a schema, a table's definition at the snapshot and DDL in the log, go through ``column``, so that they give
*equal* columns: type text and DEFAULT are brought to the form that ``SHOW CREATE TABLE`` has.
The mapping is Debezium's (debezium.io, MySQL connector, "Data type mappings"), but for three
types where Debezium goes by the spelling: REAL is a double, FLOAT4 a float, and BOOLEAN, a TINYINT(1) to the
server, is the int16 that it is in Debezium's own snapshot. ``column`` maps with the default handling modes;
``in_value_modes`` gives a whole schema those of its source, once, before anybody sees it.
"""

import datetime
import math
import re
import struct
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Final

import msgspec

from libs.mysql.column_type import MysqlType, is_character_type, parse_column_type, set_text
from libs.mysql.json_binary import double_text
from libs.mysql.sql_lexer import bytes_of_literal
from libs.types.table import Column, TableSchema
from libs.types.value import LogicalKind, LogicalType
from libs.types.value_modes import (
    DEFAULT_MODES,
    BinaryMode,
    DecimalMode,
    TimePrecision,
    UnsignedBigintMode,
    ValueModes,
)

_SIGNED: Final = {
    "tinyint": LogicalKind.INT16,
    "smallint": LogicalKind.INT16,
    "mediumint": LogicalKind.INT32,
    "int": LogicalKind.INT32,
    "bigint": LogicalKind.INT64,
}
_UNSIGNED: Final = {**_SIGNED, "smallint": LogicalKind.INT32, "int": LogicalKind.INT64}

_PLAIN: Final = {
    "double": LogicalKind.FLOAT64,
    "year": LogicalKind.YEAR,
    "json": LogicalKind.JSON,
    "vector": LogicalKind.FLOAT_VECTOR,
    "point": LogicalKind.POINT,
}
_TEXT: Final = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BINARY: Final = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_BINARY_KINDS: Final = {
    BinaryMode.BYTES: LogicalKind.BYTES,
    BinaryMode.BASE64: LogicalKind.BASE64,
    BinaryMode.BASE64_URL_SAFE: LogicalKind.BASE64_URL,
    BinaryMode.HEX: LogicalKind.HEX,
}
_DATE_KINDS: Final = {
    TimePrecision.CONNECT: LogicalKind.CONNECT_DATE,
    TimePrecision.ISO_STRING: LogicalKind.ISO_DATE,
}
_TIME_KINDS: Final = {
    TimePrecision.CONNECT: LogicalKind.CONNECT_TIME,
    TimePrecision.ISO_STRING: LogicalKind.ISO_TIME,
    TimePrecision.NANOSECONDS: LogicalKind.TIME_NS,
}
_DATETIME_KINDS: Final = {
    TimePrecision.CONNECT: LogicalKind.CONNECT_TIMESTAMP,
    TimePrecision.ISO_STRING: LogicalKind.ISO_TIMESTAMP,
    TimePrecision.MICROSECONDS: LogicalKind.TIMESTAMP_US,
    TimePrecision.NANOSECONDS: LogicalKind.TIMESTAMP_NS,
}


def logical_type(mysql_type: MysqlType, charset: str | None = None, modes: ValueModes = DEFAULT_MODES) -> LogicalType:
    """The kind of the type's values."""
    name = mysql_type.name
    match name:
        case "decimal":
            return _decimal_type(mysql_type.precision or 0, mysql_type.scale or 0, modes.decimal)
        case "bigint" if mysql_type.is_unsigned and modes.unsigned_bigint is UnsignedBigintMode.PRECISE:
            return LogicalType(kind=LogicalKind.DECIMAL, precision=20)
        case "bigint" if mysql_type.is_unsigned and modes.unsigned_bigint is UnsignedBigintMode.STRING:
            return LogicalType(kind=LogicalKind.DECIMAL_TEXT, precision=20)
        case "float":
            # The server keeps a FLOAT(M,D) in as many bits; Debezium declares it a double.
            return LogicalType(kind=LogicalKind.FLOAT32 if mysql_type.precision is None else LogicalKind.FLOAT64)
        case "bit" if mysql_type.length == 1:
            return LogicalType(kind=LogicalKind.BOOLEAN)
        case "bit":
            return LogicalType(kind=LogicalKind.BITS, precision=mysql_type.length or 1)
        case "date":
            return LogicalType(kind=_DATE_KINDS.get(modes.time_precision, LogicalKind.DATE))
        case "time":
            is_coarse = modes.time_precision is TimePrecision.ADAPTIVE and mysql_type.fractional_digits <= 3
            adaptive = LogicalKind.TIME_MS if is_coarse else LogicalKind.MICRO_TIME
            return LogicalType(kind=_TIME_KINDS.get(modes.time_precision, adaptive))
        case "datetime":
            adaptive = LogicalKind.TIMESTAMP_US if mysql_type.fractional_digits > 3 else LogicalKind.TIMESTAMP_MS
            return LogicalType(kind=_DATETIME_KINDS.get(modes.time_precision, adaptive))
        case "timestamp":
            return LogicalType(kind=LogicalKind.ZONED_TIMESTAMP, scale=mysql_type.fractional_digits)
        case "enum":
            return LogicalType(kind=LogicalKind.ENUM, allowed=mysql_type.members)
        case "set":
            return LogicalType(kind=LogicalKind.ENUM_SET, allowed=mysql_type.members)
        case _ if name in _BINARY or (name in _TEXT and charset == "binary"):
            return LogicalType(kind=_BINARY_KINDS[modes.binary])
        case _ if name in _TEXT:
            return LogicalType(kind=LogicalKind.STRING)
        case _ if name in _SIGNED:
            return LogicalType(kind=(_UNSIGNED if mysql_type.is_unsigned else _SIGNED)[name])
        case _ if name in _PLAIN:
            return LogicalType(kind=_PLAIN[name])
        case _:
            return LogicalType(kind=LogicalKind.GEOMETRY)  # of one of seven names


def _decimal_type(precision: int, scale: int, mode: DecimalMode) -> LogicalType:
    if mode is DecimalMode.DOUBLE:
        return LogicalType(kind=LogicalKind.FLOAT64)
    kind = LogicalKind.DECIMAL if mode is DecimalMode.PRECISE else LogicalKind.DECIMAL_TEXT
    return LogicalType(kind=kind, precision=precision, scale=scale)


def in_value_modes(schema: TableSchema, modes: ValueModes) -> TableSchema:
    """``schema`` with its columns' logical types as ``modes`` have them, replacing earlier ones."""
    columns = tuple(
        msgspec.structs.replace(
            column, logical_type=logical_type(parse_column_type(column.source_type), column.charset, modes)
        )
        for column in schema.columns
    )
    return schema if columns == schema.columns else msgspec.structs.replace(schema, columns=columns)


def column(
    name: str,
    source_type: str | MysqlType,
    *,
    charset: str | None = None,
    is_optional: bool = True,
    is_generated: bool = False,
    is_virtual: bool = False,
    is_invisible: bool = False,
    is_auto_increment: bool = False,
    has_on_update: bool = False,
    default_expression: str | None = None,
    is_default_computed: bool = False,
    comment: str | None = None,
) -> Column:
    """A column with its type and DEFAULT in canonical form.

    ``default_expression`` is a literal without quotes, ``b'101'`` or ``0x4D`` for bits and bytes, or
    ``CURRENT_TIMESTAMP(n)``. ``charset`` counts only for types that have one.

    Raises:
        UnknownColumnType: this release does not know the type.
    """
    mysql_type = source_type if isinstance(source_type, MysqlType) else parse_column_type(source_type)
    column_charset = canonical_charset(charset) if charset and is_character_type(mysql_type) else None
    return Column(
        name=name,
        source_type=str(mysql_type),
        logical_type=logical_type(mysql_type, column_charset),
        is_optional=is_optional,
        charset=column_charset,
        is_generated=is_generated,
        is_virtual=is_virtual,
        is_invisible=is_invisible,
        is_auto_increment=is_auto_increment,
        has_on_update=has_on_update,
        default_expression=None if default_expression is None else canonical_default(mysql_type, default_expression),
        is_default_computed=is_default_computed,
        comment=comment or None,
    )


def canonical_charset(name: str) -> str:
    """The name that MySQL 8.0.30 and later use: ``utf8`` is utf8mb3 (manual, "The utf8mb3 Character Set")."""
    return "utf8mb3" if name.lower() == "utf8" else name.lower()


def charset_of_collation(collation: str) -> str:
    """The charset of a collation; its name begins with it (manual, "Collation Naming Conventions").

    >>> charset_of_collation("utf8mb4_0900_ai_ci"), charset_of_collation("binary")
    ('utf8mb4', 'binary')
    """
    return canonical_charset(collation.partition("_")[0])


_CURRENT_TIMESTAMP: Final = re.compile(
    r"(?:NOW|CURRENT_TIMESTAMP|LOCALTIME|LOCALTIMESTAMP)\s*(?:\(\s*(\d?)\s*\))?", re.IGNORECASE
)


def canonical_default(mysql_type: MysqlType, text: str) -> str:
    """A DEFAULT as ``SHOW CREATE TABLE`` has it, without quotes: ``1.2`` of a decimal(8,3) is ``1.200``.

    A text that cannot be brought to that form is returned as it is: the default of a column never stops a
    pipeline.
    """
    try:
        return _canonical_literal(mysql_type, text)
    except (ValueError, InvalidOperation, OverflowError):
        return text


def _canonical_literal(mysql_type: MysqlType, text: str) -> str:
    match mysql_type.name:
        case "tinyint" | "smallint" | "mediumint" | "int" | "bigint":
            digits = str(_in_range(mysql_type, int(_number(text).to_integral_value(ROUND_HALF_UP))))
            return digits.zfill(mysql_type.length or 0) if mysql_type.is_zerofill else digits
        case "decimal" | "float" | "double":
            return _canonical_fraction(mysql_type, text)
        case "bit":
            return f"b'{int(_number(text).to_integral_value(ROUND_HALF_UP)):b}'"
        case "year":
            return _canonical_year(int(_number(text).to_integral_value(ROUND_HALF_UP)))
        case "datetime" | "timestamp":
            if match := _CURRENT_TIMESTAMP.fullmatch(text):
                digits = match[1] or "0"
                return "CURRENT_TIMESTAMP" + ("" if digits == "0" else f"({digits})")
            moment = _canonical_datetime(text, mysql_type.fractional_digits)
            is_none = mysql_type.name == "timestamp" and "00" in (
                moment[5:7],
                moment[8:10],
            )  # it takes no month or day 0
            return re.sub(r"\d", "0", moment) if is_none else moment
        case "date":
            return _canonical_datetime(text, 0)[:10]
        case "time":
            return _canonical_time(text, mysql_type.fractional_digits)
        case "set":
            chosen = set(text.split(","))
            return set_text(member for member in mysql_type.members if member in chosen)
        case name if name in _BINARY:
            return _canonical_bytes(mysql_type, text)
        case _:
            return text


_EXACT: Final = Context(prec=130)
"""A DECIMAL has 65 digits; a literal may have as many before the point as after it."""


def _number(text: str) -> Decimal:
    """A literal's number: ``' 29 '``, ``true``, ``0x1F``, ``b'101'``."""
    if (value := bytes_of_literal(text)) is not None:
        return Decimal(int.from_bytes(value, "big"))
    words = {"TRUE": "1", "FALSE": "0"}
    return Decimal(words.get(text.strip().upper(), text.strip()))


_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}


def _in_range(mysql_type: MysqlType, number: int) -> int:
    """The nearest number that the type has: an expression's value beyond it is cut without strict mode."""
    bits = _BITS[mysql_type.name]
    low, high = (0, 1 << bits) if mysql_type.is_unsigned else (-1 << bits - 1, 1 << bits - 1)
    return max(low, min(number, high - 1))


def _as_single(number: float) -> float:
    """The nearest FLOAT: zero for one that is too small. Raises OverflowError, which no server's default does."""
    (single,) = struct.unpack("<f", struct.pack("<f", number))
    return float(single)


def _canonical_fraction(mysql_type: MysqlType, text: str) -> str:
    number = _number(text)
    if mysql_type.scale is not None:
        if mysql_type.name != "decimal":  # rounded as the double that it is
            whole = math.floor(float(number))
            part = round((float(number) - whole) * 10**mysql_type.scale)
            number = whole + Decimal(part).scaleb(-mysql_type.scale)
        rounded = number.quantize(Decimal(1).scaleb(-mysql_type.scale), ROUND_HALF_UP, _EXACT)
        if mysql_type.name == "decimal":
            most = Decimal(10 ** (mysql_type.precision or 0) - 1).scaleb(-mysql_type.scale, _EXACT)
            rounded = max(min(rounded, most), Decimal(0) if mysql_type.is_unsigned else -most)
        is_exact = mysql_type.name == "decimal"  # whose point is beside its digits, and whose zero has no sign
        digits = f"{abs(rounded) if is_exact and not rounded else rounded:f}"
        width = (mysql_type.precision or 0) + (1 if mysql_type.scale and is_exact else 0)
        return digits.zfill(width) if mysql_type.is_zerofill else digits
    # The server prints a float in at most 6 digits, a double in as few as give it back (seen on 9.7).
    shown = f"{_as_single(float(number)):.6g}" if mysql_type.name == "float" else repr(float(number))
    return double_text(float(shown)).removesuffix(".0")


def _canonical_year(year: int) -> str:
    """Two digits are 1970 to 2069 (manual, "2-Digit Years in Dates")."""
    if 0 < year < 70:
        year += 2000
    elif 70 <= year < 100:
        year += 1900
    return f"{year:04d}"


_DATETIME: Final = re.compile(
    r"(\d{1,4})[^\d](\d{1,2})[^\d](\d{1,2})(?:[T ]+(\d{1,2})(?:[^\d](\d{1,2}))?(?:[^\d](\d{1,2}))?)?(?:\.(\d*))?"
)
_PACKED_DATETIME: Final = re.compile(r"(\d{4}|\d{2})(\d\d)(\d\d)(?:(\d\d)(\d\d)(\d\d))?(?:\.(\d*))?")
_PACKED_WIDTHS: Final = (6, 8, 12, 14)
"""Digits of YYMMDD, YYYYMMDD, and both with a time (manual, "Date and Time Literals")."""


def _canonical_datetime(text: str, fractional_digits: int) -> str:
    text = text.strip()
    whole, point, fraction = text.partition(".")
    is_packed = f"{whole}{fraction}".isdigit()
    if is_packed:
        width = next((width for width in _PACKED_WIDTHS if len(whole) <= width), len(whole))
        text = whole.zfill(width if int(whole) else 8) + point + fraction
    match = (_PACKED_DATETIME if is_packed else _DATETIME).fullmatch(text)
    if match is None:
        raise ValueError("no date")
    # Of two digits, and no more or fewer, a century is left out; but not where all is zero (manual, "2-Digit Years in Dates").
    is_short = len(match[1]) == 2 and any(digit in text for digit in "123456789")
    year = int(match[1]) + (0 if not is_short else 2000 if match[1] < "70" else 1900)
    month, day, hour, minute, second = (int(part or 0) for part in match.groups()[1:6])
    micros = _rounded_micros(match[7] or "", fractional_digits)
    if micros == 1_000_000:
        moment = datetime.datetime(year, month, day, hour, minute, second) + datetime.timedelta(seconds=1)
        return f"{moment:%Y-%m-%d %H:%M:%S}{_fraction(0, fractional_digits)}"
    date = f"{year:04d}-{month:02d}-{day:02d}"
    return f"{date} {hour:02d}:{minute:02d}:{second:02d}{_fraction(micros, fractional_digits)}"


_TIME: Final = re.compile(r"(-?)(?:(\d+) )?(\d+):(\d{1,2})(?::(\d{1,2}))?(?:\.(\d*))?")
_PACKED_TIME: Final = re.compile(r"(-?)()(\d*?)(\d{0,2}?)(\d{1,2})(?:\.(\d*))?(?: \d+)?")
_EXPONENT: Final = re.compile(r"[+-]?[\d.]+[eE][+-]?\d+")


def _canonical_time(text: str, fractional_digits: int) -> str:
    """``8:00`` and ``80000`` are 08:00:00 (manual, "The TIME Type")."""
    text = text.strip()
    if _EXPONENT.fullmatch(text):
        text = f"{Decimal(text):f}"
    whole = text.partition(".")[0]
    if ((moment := _DATETIME.fullmatch(text)) and moment[4]) or (whole.isdigit() and len(whole) in (12, 14)):
        return _canonical_datetime(text, fractional_digits)[11:]
    match = _TIME.fullmatch(text) or _PACKED_TIME.fullmatch(text)
    if match is None:
        raise ValueError("no time")
    sign, days, hours, minutes, seconds, fraction = match.groups()
    micros = _rounded_micros(fraction or "", fractional_digits)
    total_s = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    total_s, micros = total_s + micros // 1_000_000, micros % 1_000_000
    clock = f"{total_s // 3600:02d}:{total_s // 60 % 60:02d}:{total_s % 60:02d}"
    is_zero = not (total_s or micros)
    return f"{'' if is_zero else sign}{clock}{_fraction(micros, fractional_digits)}"


def _rounded_micros(fraction: str, fractional_digits: int) -> int:
    """Microseconds of the digits after the point, rounded to the column's precision."""
    unit = int(10 ** (6 - fractional_digits))
    digits = fraction.ljust(7, "0")
    micros = int(digits[:6]) + (digits[6] >= "5")
    return (micros + unit // 2) // unit * unit


def _fraction(micros: int, fractional_digits: int) -> str:
    return "." + f"{micros:06d}"[:fractional_digits] if fractional_digits else ""


def _canonical_bytes(mysql_type: MysqlType, text: str) -> str:
    """Hex, because a text could not hold every byte; a BINARY is padded with zeros, as it is stored."""
    value = bytes_of_literal(text)
    if value is None:
        value = text.encode()
    if mysql_type.name == "binary":
        value = value.ljust(mysql_type.length or 0, b"\0")
    return "0x" + value.hex().upper()
