"""The columns that distinguish a table's rows at the source, under any key of their events."""

import datetime
from typing import Any, Final

import orjson

from libs.mysql.column_type import MysqlType, parse_column_type
from libs.types.table import Column, TableSchema
from libs.types.value import LogicalKind


def row_key(schema: TableSchema) -> tuple[str, ...]:
    """The primary key, else the first unique key without NULLs, in the order in which the server prefers them; empty: none.

    ``schema.key`` is the same, unless the source's ``key_columns`` chose another for the events.
    """
    optional = {column.name for column in schema.columns if column.is_optional}
    usable = (index.columns for index in schema.indexes if index.is_unique and optional.isdisjoint(index.columns))
    return next(usable, ())


def has_row_in_key(schema: TableSchema) -> bool:
    """The events' key distinguishes rows, because the row's own is part of it."""
    own = row_key(schema)
    return bool(own) and set(own) <= set(schema.key)


def may_be_shared(schema: TableSchema, key_json: bytes) -> bool:
    """Rows with different keys at the source may both have this key as JSON: an object by column, or a list of ``row_key``.

    ``0000-00-00`` and ``1970-01-01``, for example, are both the day 0, and a double holds fewer digits than a DECIMAL(20,0).
    """
    own = row_key(schema)
    values = orjson.loads(key_json)
    by_name = values if isinstance(values, dict) else dict(zip(own, values, strict=True))
    return any(_is_shared(schema.column(name), by_name[name]) for name in own)


def _is_shared(column: Column, value: Any) -> bool:
    declared, kind = parse_column_type(column.source_type), column.logical_type.kind
    match declared.name:
        case "enum":
            return value == "" and "" in declared.members  # an invalid value is "" too
        case "decimal":
            return kind is LogicalKind.FLOAT64 and (declared.precision or 0) > _EXACT_DIGITS
        case "time":
            return _drops_digits(declared, kind)
        case "date" | "datetime":
            return _drops_digits(declared, kind) or _is_shared_day(value, kind)
    return False


_EXACT_DIGITS: Final = 15
"""Of a decimal number in a double."""
_IN_MS: Final = frozenset(
    {LogicalKind.TIME_MS, LogicalKind.CONNECT_TIME, LogicalKind.TIMESTAMP_MS, LogicalKind.CONNECT_TIMESTAMP}
)
_UNITS_A_DAY: Final = {
    LogicalKind.DATE: 1,
    LogicalKind.CONNECT_DATE: 1,
    LogicalKind.TIMESTAMP_MS: 86_400_000,
    LogicalKind.CONNECT_TIMESTAMP: 86_400_000,
    LogicalKind.TIMESTAMP_US: 86_400_000_000,
    LogicalKind.TIMESTAMP_NS: 86_400_000_000_000,
}
_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()
_DAYS_OVER: Final = {3: 3, 5: 1, 7: 1, 10: 1, 12: 1}
"""Of a month, the first days as which a day past the end of the month before is written: 2024-02-31 as 2024-03-02."""


def _drops_digits(declared: MysqlType, kind: LogicalKind) -> bool:
    return kind in _IN_MS and declared.fractional_digits > 3


def _is_shared_day(value: Any, kind: LogicalKind) -> bool:
    """A date without month or day is written as 1970-01-01, a day past the month's end as one of the next month's first."""
    if isinstance(value, str):
        year, month, day = int(value[:4]), int(value[5:7]), int(value[8:10])
    else:
        ordinal = value // _UNITS_A_DAY[kind] + _EPOCH
        if ordinal < 1:
            return True  # of the year 0, which Python's calendar lacks
        at = datetime.date.fromordinal(ordinal)
        year, month, day = at.year, at.month, at.day
    return (year, month, day) == (1970, 1, 1) or day <= _DAYS_OVER.get(month, 0)
