"""ClickHouse's types: which one a column has, and which may be changed in place.

Types go by Spark's names, with two that Spark lacks: ``ubigint``, and decimals of more than 38 digits. ClickHouse's own names
would not do: a text and bytes are both ``String`` there, a time with and without a zone both ``DateTime64(6, 'UTC')``.
"""

import re
from collections.abc import Mapping
from typing import Final

from libs.types.value import LogicalKind, LogicalType
from libs.warehouse.spark_types import MAX_DECIMAL_DIGITS, UNSIGNED_BIGINT, decimal_digits

_UBIGINT: Final = "ubigint"
_SHOWN: Final[Mapping[str, str]] = {
    "boolean": "Bool",
    "int": "Int32",
    "bigint": "Int64",
    _UBIGINT: "UInt64",
    "float": "Float32",
    "double": "Float64",
    "date": "Date32",
    "timestamp_ntz": "DateTime64(6, 'UTC')",
    "timestamp": "DateTime64(6, 'UTC')",
    "string": "String",
    "binary": "String",
}
_DECIMAL_KINDS: Final = frozenset({LogicalKind.DECIMAL, LogicalKind.DECIMAL_TEXT})
_MOST_DIGITS: Final = 76
"""Of a Decimal256 (ClickHouse manual, "Decimal")."""
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_WIDENINGS: Final = frozenset({("int", "bigint"), ("float", "double")})
_INTEGER_DIGITS: Final = {"int": 10, "bigint": 19, _UBIGINT: 20}


def own_type(sql_type: str, logical_type: LogicalType | None) -> str:
    """The type of a column: Spark's, but for numbers that ClickHouse has better types for."""
    kind = None if logical_type is None else logical_type.kind
    if kind is LogicalKind.INT64 and sql_type == UNSIGNED_BIGINT:
        return _UBIGINT
    if logical_type is not None and kind in _DECIMAL_KINDS and sql_type == "string":
        digits = decimal_digits(logical_type)
        return sql_type if digits is None or digits[0] > _MOST_DIGITS else f"decimal({digits[0]},{digits[1]})"
    return sql_type


def sql_type(own_type: str) -> str:
    """Spark's type for values of ``own_type``."""
    if own_type == _UBIGINT:
        return UNSIGNED_BIGINT
    if (number := _DECIMAL.fullmatch(own_type)) and int(number[1]) > MAX_DECIMAL_DIGITS:
        return "string"
    return own_type


def clickhouse_type(own_type: str) -> str:
    """ClickHouse's name of the type.

    >>> clickhouse_type("decimal(65,30)"), clickhouse_type("ubigint")
    ('Decimal(65,30)', 'UInt64')
    """
    if number := _DECIMAL.fullmatch(own_type):
        return f"Decimal({number[1]},{number[2]})"
    return _SHOWN[own_type]


def is_wider(new: str, old: str) -> bool:
    """Whether every value of ``old`` fits ``new``; ClickHouse then turns the one into the other in place.

    >>> is_wider("decimal(20,0)", "ubigint"), is_wider("decimal(12,4)", "decimal(10,2)"), is_wider("ubigint", "bigint")
    (True, True, False)
    """
    if (old, new) in _WIDENINGS:
        return True
    wide, narrow = _DECIMAL.fullmatch(new), _DECIMAL.fullmatch(old)
    if wide is None or new == old:
        return False
    whole = int(wide[1]) - int(wide[2])
    if old in _INTEGER_DIGITS:
        return whole >= _INTEGER_DIGITS[old]
    return narrow is not None and whole >= int(narrow[1]) - int(narrow[2]) and int(wide[2]) >= int(narrow[2])
