"""The value that MySQL gives existing rows when a column is added, as a constant in Spark SQL.

``ALTER TABLE … ADD COLUMN`` writes no row events: every row there is has the new column's DEFAULT from then on, or its
type's implicit default where it is NOT NULL without one (MySQL 8.4 manual 13.6, "Data Type Default Values").
"""

import re
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Final

import msgspec

from libs.types.table import Column, TableSchema
from libs.types.value import LogicalKind
from libs.warehouse.spark_types import BINARIES, DATES, DATETIMES, TIMES, spark_type
from spark.transforms.sql_text import literal
from spark.transforms.warehouse_columns import Fill

_NUMBERS: Final = frozenset(
    {
        LogicalKind.INT8,
        LogicalKind.INT16,
        LogicalKind.INT32,
        LogicalKind.INT64,
        LogicalKind.FLOAT32,
        LogicalKind.FLOAT64,
        LogicalKind.DECIMAL,
        LogicalKind.DECIMAL_TEXT,
        LogicalKind.VARIABLE_SCALE_DECIMAL,
        LogicalKind.YEAR,
    }
    | TIMES
)
_FLOATS: Final = frozenset({LogicalKind.FLOAT32, LogicalKind.FLOAT64})
_DECIMALS: Final = frozenset({LogicalKind.DECIMAL, LogicalKind.DECIMAL_TEXT})
_PLAIN_NUMBERS: Final = _NUMBERS - TIMES - {LogicalKind.YEAR}
_TEXTS: Final = frozenset({LogicalKind.STRING, LogicalKind.ENUM, LogicalKind.ENUM_SET})
_TIME: Final = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_DATETIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_HEX: Final = re.compile(r"0x((?:[0-9A-Fa-f]{2})*)")
_BITS: Final = re.compile(r"b'([01]+)'")
_FIXED_BINARY: Final = re.compile(r"binary\((\d+)\)")


def fill_of(column: Column, versions: Sequence[TableSchema]) -> Fill | None:
    """The value in ``column`` of rows that are older than it; None: NULL, or a value that only the source knows.

    It is the value of the version that brought the column, also after later changes of its default, type and name. Where
    nobody knows how it came, that is the first of ``versions`` that has it.
    """
    if column.born is not None:
        born = column.born
        since_version = born.after_version + 1
        first = msgspec.structs.replace(
            column,
            source_type=born.source_type,
            logical_type=born.logical_type,
            is_optional=born.is_optional,
            default_expression=born.default_expression,
            is_default_computed=born.is_default_computed,
        )
    else:
        since_version, first = next(
            (
                (version.version, each)
                for version in versions
                for each in version.columns
                if each.name.lower() == column.name_at(version.version).lower()
            ),
            (versions[-1].version, column),
        )
    expression = _carried(first, column)
    return None if expression is None else Fill(since_version, expression)


def _carried(first: Column, column: Column) -> str | None:
    """The fill of a column that came as ``first``, in the type that it has now; None: NULL, or MySQL's conversion of it is not
    known here. It is that for a number that a day, a TIME or an ENUM became: Spark's CAST is another one, or there is none."""
    expression, now = fill_expression(first), spark_type(column)
    if expression is None or (_family(first) == _family(column) and spark_type(first) == now):
        return expression
    kinds = first.logical_type.kind, column.logical_type.kind
    is_known = (kinds[0] in DATES and kinds[1] in DATETIMES) or _is_same_number(first, column)
    return f"TRY_CAST({expression} AS {now.upper()})" if is_known else None


def _family(column: Column) -> tuple[object, ...]:
    """Columns of one family and one ``spark_type`` have the same expression for a value."""
    match column.logical_type.kind:
        case kind if kind in _PLAIN_NUMBERS:
            return ("number",)
        case kind if kind in _TEXTS:
            return ("text",)
        case kind if kind in BINARIES:
            return "bytes", _FIXED_BINARY.fullmatch(column.source_type) and column.source_type
        case LogicalKind.BITS:
            return "bits", column.logical_type.precision
        case kind if kind in TIMES | DATETIMES:  # of fewer digits it is rounded
            return kind in TIMES, column.source_type
        case kind:
            return (kind in DATES or kind,)


def _is_same_number(first: Column, column: Column) -> bool:
    """Whether the fill is a number in both, one that its new type holds as it is. A text may be one of them."""
    was, now = first.logical_type.kind, column.logical_type.kind
    text = "0" if first.default_expression is None else first.default_expression
    if was not in _NUMBERS - TIMES | {LogicalKind.STRING} or not _NUMBER.fullmatch(text):
        return False
    if now is LogicalKind.STRING:
        return was not in _FLOATS and "zerofill" not in first.source_type
    if was is LogicalKind.STRING and first.default_expression is None:
        return False
    if now in _FLOATS:
        return True
    scale = column.logical_type.scale if now in _DECIMALS else 0
    return now in _PLAIN_NUMBERS and (number := Decimal(text).scaleb(scale)) == number.to_integral_value()


def fill_expression(column: Column) -> str | None:
    """The constant, of the column's ``spark_type``; None: NULL, or a value that only the source knows.

    Not known are generated columns, DEFAULT CURRENT_TIMESTAMP (the time of the ALTER), and every TIMESTAMP literal (it
    stands in the time zone of the session that ran the ALTER).
    """
    if column.is_generated:
        return None
    if column.default_expression is None:
        return None if column.is_optional or column.is_default_computed else _implicit_default(column)
    return _literal(column, column.default_expression)


def _implicit_default(column: Column) -> str | None:
    logical_type = column.logical_type
    match logical_type.kind:
        case kind if kind in _NUMBERS:
            return _cast("0", column)
        case LogicalKind.BOOLEAN:
            return "false"
        case LogicalKind.STRING | LogicalKind.ENUM_SET:
            return "''"
        case LogicalKind.ENUM if logical_type.allowed:
            return literal(logical_type.allowed[0])
        case kind if kind in BINARIES:
            fixed = _FIXED_BINARY.fullmatch(column.source_type)
            return _bytes(bytes(int(fixed[1]))) if fixed else _bytes(b"")
        case LogicalKind.BITS:
            return _bytes(bytes((logical_type.precision + 7) // 8))
        case kind if kind in DATES | DATETIMES or kind is LogicalKind.ZONED_TIMESTAMP:
            return _cast("1970-01-01", column)  # a zero date, as events have it
        case LogicalKind.JSON:
            return "'null'"
        case LogicalKind.JSON_VARIANT:
            return "parse_json('null')"
        case LogicalKind.FLOAT_VECTOR:
            return "'[]'"
        case _:
            return None


def _literal(column: Column, text: str) -> str | None:
    match column.logical_type.kind:
        case kind if kind in TIMES:
            return _microseconds(text)
        case kind if kind in DATES:
            return _day(text, column) if _DATE.fullmatch(text) else None
        case kind if kind in DATETIMES:
            return _day(text, column) if _DATETIME.fullmatch(text) else None
        case LogicalKind.ZONED_TIMESTAMP if text.startswith("0000-00-00") and not column.is_optional:
            return _cast("1970-01-01", column)  # in every time zone
        case LogicalKind.BOOLEAN:
            bits = _BITS.fullmatch(text)
            return None if bits is None else str(int(bits[1], 2) == 1).lower()
        case LogicalKind.BITS:
            bits = _BITS.fullmatch(text)
            width = (column.logical_type.precision + 7) // 8
            return None if bits is None else _bytes(int(bits[1], 2).to_bytes(width, "little"))
        case kind if kind in BINARIES:
            digits = _HEX.fullmatch(text)
            return None if digits is None else _bytes(bytes.fromhex(digits[1]))
        case LogicalKind.STRING | LogicalKind.ENUM | LogicalKind.ENUM_SET | LogicalKind.JSON | LogicalKind.XML:
            return literal(text)
        case LogicalKind.JSON_VARIANT:
            return f"parse_json({literal(text)})"
        case kind if kind in _NUMBERS:
            return _cast(text, column) if _NUMBER.fullmatch(text) else None
        case _:
            return None


def _microseconds(text: str) -> str | None:
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    sign, hours, minutes, seconds, fraction = match.groups()
    whole = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    return f"{sign}{whole}L"


def _day(text: str, column: Column) -> str | None:
    """As events have it (docs/types.md): a date without month or day is NULL, or 1970-01-01 where the column is NOT NULL; a
    day past the month's end runs into the next."""
    year, month, day = map(int, text[:10].split("-"))
    if not (month and day):
        return None if column.is_optional else _cast("1970-01-01", column)
    if not year:
        return None  # no day that Python has
    return _cast(f"{date(year, month, 1) + timedelta(days=day - 1)}{text[10:]}", column)


def _cast(text: str, column: Column) -> str:
    return f"CAST('{text}' AS {spark_type(column).upper()})"


def _bytes(value: bytes) -> str:
    return f"X'{value.hex()}'"
