"""A column's values of a copy's SELECT as JSON.

``libs.oracle`` reads and writes every value. Whole numbers, texts and moments are most of a table's values, and their printed
forms are near JSON, so these have a shorter way. It takes the plain forms alone, and leaves all others to ``libs.oracle``.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import orjson

from libs.oracle.printed_values import driver_reader
from libs.oracle.values import json_writer
from libs.types.table import Column
from libs.types.value import LogicalKind

WriteCell = Callable[[Any], bytes]

_PLAIN_DIGITS: Final = {LogicalKind.INT8: 2, LogicalKind.INT16: 4, LogicalKind.INT32: 9, LogicalKind.INT64: 18}
"""Any number of so many digits fits."""
_FRACTION_DIGITS: Final[Mapping[LogicalKind, int]] = {
    LogicalKind.TIMESTAMP_MS: 3,
    LogicalKind.TIMESTAMP_US: 6,
    LogicalKind.TIMESTAMP_NS: 9,
}
_EPOCH: Final = datetime(1970, 1, 1)
_DAY_S: Final = 86_400
_PLAIN_MOMENT: Final = re.compile(
    r" ((?:19[789]|2[01]\d)\d-[01]\d-[0-3]\d [0-2]\d:[0-5]\d:[0-5]\d)(?:\.(\d{1,9}))?", re.ASCII
)
"""Oracle prints a blank where a year before Christ has a minus sign. Nanoseconds of 64 bits end in 2262."""


def cell_writer(column: Column) -> WriteCell:
    """The function that writes the column's values, as ``libs.oracle.snapshot_query`` selects them.

    It raises ValueError, TypeError or ArithmeticError for a value that does not fit the column.
    """
    read, write = driver_reader(column), json_writer(column)

    def whole(value: Any) -> bytes:
        return write(read(value))

    kind = column.logical_type.kind
    if kind in _PLAIN_DIGITS:
        return _of_integer(_PLAIN_DIGITS[kind], whole)
    if kind in _FRACTION_DIGITS:
        return _of_moment(_FRACTION_DIGITS[kind], whole)
    if kind is LogicalKind.STRING:
        return lambda value: orjson.dumps(value) if type(value) is str else whole(value)
    return whole


def _of_integer(most_digits: int, whole: WriteCell) -> WriteCell:
    def write(value: Any) -> bytes:
        if type(value) is str and value.isascii():
            digits = value[1:] if value.startswith("-") else value
            if digits.isdigit() and len(digits) <= most_digits and (digits[0] != "0" or value == "0"):
                return value.encode()
        return whole(value)

    return write


def _of_moment(digits: int, whole: WriteCell) -> WriteCell:
    """Milliseconds and the like since 1970, of a wall clock from then on."""
    scale = 10**digits

    def write(value: Any) -> bytes:
        found = _PLAIN_MOMENT.fullmatch(value) if type(value) is str else None
        if found is None:
            return whole(value)
        since = datetime.fromisoformat(found[1]) - _EPOCH
        fraction = (found[2] or "")[:digits].ljust(digits, "0")
        return b"%d" % ((since.days * _DAY_S + since.seconds) * scale + int(fraction))

    return write
