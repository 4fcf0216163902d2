"""PostgreSQL's types: which one a column has, and which may be changed in place.

Types go by the names that ``format_type`` gives (PostgreSQL manual 9.27).
"""

import re
from collections.abc import Mapping
from typing import Final

from libs.types.value import LogicalKind, LogicalType
from libs.warehouse.spark_types import MAX_DECIMAL_DIGITS, decimal_digits

_TYPES: Final[Mapping[str, str]] = {
    "boolean": "boolean",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "date": "date",
    "timestamp_ntz": "timestamp without time zone",
    "timestamp": "timestamp with time zone",
    "string": "text",
    "binary": "bytea",
}
_ANY_NUMBER: Final = "numeric"
_MOST_DIGITS: Final = 1000
"""Of ``numeric(p,s)`` (PostgreSQL manual 8.1.2)."""
_SPARK_TYPES: Final = {**{own: spark for spark, own in _TYPES.items()}, "json": "string", _ANY_NUMBER: "string"}
_JSON_KINDS: Final = frozenset({LogicalKind.JSON, LogicalKind.GEOMETRY, LogicalKind.POINT, LogicalKind.FLOAT_VECTOR})
_DECIMAL_KINDS: Final = frozenset({LogicalKind.DECIMAL, LogicalKind.DECIMAL_TEXT, LogicalKind.VARIABLE_SCALE_DECIMAL})
_NUMERIC: Final = re.compile(r"(?:numeric|decimal)\((\d+),\s*(\d+)\)")
_INTEGER_DIGITS: Final = {"integer": 10, "bigint": 19}
_WIDENINGS: Final = frozenset({("integer", "bigint"), ("real", "double precision"), ("json", "text")})


def own_type(sql_type: str, logical_type: LogicalType | None) -> str:
    """The type of a column: Spark's, but for those that PostgreSQL alone has.

    ``json`` and not ``jsonb``: it keeps the document as it was, numbers of any length and the order of names included.
    """
    if logical_type is not None and logical_type.kind in _JSON_KINDS and sql_type == "string":
        return "json"
    if logical_type is not None and logical_type.kind in _DECIMAL_KINDS and sql_type == "string":
        digits = decimal_digits(logical_type)
        return _ANY_NUMBER if digits is None or digits[0] > _MOST_DIGITS else f"numeric({digits[0]},{digits[1]})"
    if number := _NUMERIC.fullmatch(sql_type):
        return f"numeric({number[1]},{number[2]})"
    return _TYPES[sql_type]


def sql_type(own_type: str) -> str | None:
    """Spark's type for values of ``own_type``; None: a type that the sink makes no columns of."""
    if number := _NUMERIC.fullmatch(own_type):
        return f"decimal({number[1]},{number[2]})" if int(number[1]) <= MAX_DECIMAL_DIGITS else "string"
    return _SPARK_TYPES.get(own_type)


def is_wider(new: str, old: str) -> bool:
    """Whether every value of ``old`` fits ``new``; PostgreSQL then turns the one into the other in place.

    >>> is_wider("numeric(20,0)", "bigint"), is_wider("numeric(12,4)", "numeric(10,2)"), is_wider("bigint", "text")
    (True, True, False)
    """
    if (old, new) in _WIDENINGS:
        return True
    if new == _ANY_NUMBER:
        return old in _INTEGER_DIGITS or _NUMERIC.fullmatch(old) is not None
    wide = _NUMERIC.fullmatch(new)
    if wide is None or new == old:
        return False
    whole, scale = int(wide[1]) - int(wide[2]), int(wide[2])
    if old in _INTEGER_DIGITS:
        return whole >= _INTEGER_DIGITS[old]
    narrow = _NUMERIC.fullmatch(old)
    return narrow is not None and whole >= int(narrow[1]) - int(narrow[2]) and scale >= int(narrow[2])
