"""A sink's fill as a ``stored_rows.Cell``: the few forms of ``spark.transforms.fill``, read without Spark."""

import json
import re
from decimal import Decimal
from typing import Any, Final

from libs.mysql.column_type import parse_column_type
from libs.types.table import Column
from libs.types.value import LogicalKind
from tests.fuzz.source.stored_rows import double_cell, moment_cell, wrapped

UNREADABLE: Final = object()
_TIMES: Final = (LogicalKind.TIME_MS, LogicalKind.MICRO_TIME, LogicalKind.TIME_NS, LogicalKind.CONNECT_TIME)
_CAST: Final = re.compile(r"CAST\('([^']*)' AS [^)]*\)?\)")


def value_of(expression: str, column: Column) -> Any:
    """The cell; ``UNREADABLE`` where the form is another one."""
    kind = column.logical_type.kind
    if expression in ("true", "false"):
        return expression == "true"
    if match := re.fullmatch(r"X'([0-9a-f]*)'", expression):
        value = bytes.fromhex(match[1])
        return int.from_bytes(value, "little") if kind is LogicalKind.BITS else value
    if match := re.fullmatch(r"(-?\d+)L", expression):
        return int(match[1])
    if expression.startswith("'"):
        text = re.sub(r"\\(.)", r"\1", expression[1:-1])
        if kind is LogicalKind.FLOAT_VECTOR:
            return b"" if text == "[]" else UNREADABLE
        return json.loads(text, parse_float=str, parse_int=str) if kind is LogicalKind.JSON else text
    if match := _CAST.fullmatch(expression):
        return _cast(match[1], column)
    return UNREADABLE


def _cast(text: str, column: Column) -> Any:
    match column.logical_type.kind:
        case LogicalKind.INT16 | LogicalKind.INT32 | LogicalKind.INT64 | LogicalKind.YEAR:
            return wrapped(int(Decimal(text)))
        case LogicalKind.DECIMAL:
            return int(Decimal(text).scaleb(column.logical_type.scale))
        case LogicalKind.DECIMAL_TEXT:
            number = Decimal(text)
            return f"{number:.{column.logical_type.scale}f}"
        case LogicalKind.FLOAT32 | LogicalKind.FLOAT64:
            return double_cell(float(text), is_single=parse_column_type(column.source_type).name == "float")
        case kind if kind in _TIMES:
            return int(text)
        case LogicalKind.ISO_TIME:
            return UNREADABLE
        case _:
            return moment_cell(text, column)
