"""Which Spark type holds a column's values: the base of every warehouse's own types. No Spark is needed to ask.

A value without a type of Spark's keeps a form that holds it whole: a DECIMAL of more than 38 digits is text, a TIME is
microseconds, a geometry is its JSON. A source's handling modes change its events, not the tables: a time in any form has one
type. ``spark/transforms/value_types.py`` makes the values.
"""

from typing import Final

from libs.types.table import Column
from libs.types.value import LogicalKind, LogicalType

MAX_DECIMAL_DIGITS: Final = 38
"""Of Spark's and Iceberg's DECIMAL; MySQL's has up to 65."""
UNSIGNED_BIGINT: Final = "decimal(20,0)"
VARIANT_TYPE: Final = "variant"
"""A parsed document, which Spark, Iceberg from format 3 on and Delta have."""

DATES: Final = frozenset({LogicalKind.DATE, LogicalKind.CONNECT_DATE, LogicalKind.ISO_DATE})
TIMES: Final = frozenset(
    {
        LogicalKind.TIME_MS,
        LogicalKind.MICRO_TIME,
        LogicalKind.TIME_NS,
        LogicalKind.CONNECT_TIME,
        LogicalKind.ISO_TIME,
    }
)
DATETIMES: Final = frozenset(
    {
        LogicalKind.TIMESTAMP_MS,
        LogicalKind.TIMESTAMP_US,
        LogicalKind.TIMESTAMP_NS,
        LogicalKind.CONNECT_TIMESTAMP,
        LogicalKind.ISO_TIMESTAMP,
    }
)
BINARIES: Final = frozenset({LogicalKind.BYTES, LogicalKind.BASE64, LogicalKind.BASE64_URL, LogicalKind.HEX})

_PLAIN: Final = {
    LogicalKind.BOOLEAN: "boolean",
    LogicalKind.INT8: "int",
    LogicalKind.INT16: "int",
    LogicalKind.INT32: "int",
    LogicalKind.INT64: "bigint",
    LogicalKind.FLOAT32: "float",
    LogicalKind.FLOAT64: "double",
    LogicalKind.STRING: "string",
    LogicalKind.ZONED_TIMESTAMP: "timestamp",
    LogicalKind.MICRO_DURATION: "bigint",
    LogicalKind.INTERVAL: "string",
    LogicalKind.XML: "string",
    LogicalKind.VARIABLE_SCALE_DECIMAL: "string",
    LogicalKind.YEAR: "int",
    LogicalKind.JSON: "string",
    LogicalKind.JSON_VARIANT: VARIANT_TYPE,
    LogicalKind.ENUM: "string",
    LogicalKind.ENUM_SET: "string",
    LogicalKind.BITS: "binary",
    LogicalKind.GEOMETRY: "string",
    LogicalKind.POINT: "string",
    LogicalKind.FLOAT_VECTOR: "string",
    **dict.fromkeys(DATES, "date"),
    **dict.fromkeys(TIMES, "bigint"),
    **dict.fromkeys(DATETIMES, "timestamp_ntz"),
    **dict.fromkeys(BINARIES, "binary"),
}


def spark_type(column: Column) -> str:
    """The SQL type that holds every value of the column."""
    logical_type = column.logical_type
    match logical_type.kind:
        case LogicalKind.INT64 if is_unsigned_bigint(column):
            return UNSIGNED_BIGINT
        case LogicalKind.DECIMAL | LogicalKind.DECIMAL_TEXT:
            digits = decimal_digits(logical_type)
            if digits is None or digits[0] > MAX_DECIMAL_DIGITS:
                return "string"
            return f"decimal({digits[0]},{digits[1]})"
        case kind:
            return _PLAIN[kind]


def decimal_digits(logical_type: LogicalType) -> tuple[int, int] | None:
    """All digits of a decimal, and those after the point, where its scale is neither negative nor larger than all of them.

    None: each value has a scale of its own. Oracle's NUMBER(3,-2) has values up to 99,900, its NUMBER(2,5) up to 0.00099.

    >>> from libs.types.value import LogicalKind
    >>> decimal_digits(LogicalType(kind=LogicalKind.DECIMAL, precision=18, scale=-2))
    (20, 0)
    >>> decimal_digits(LogicalType(kind=LogicalKind.DECIMAL, precision=2, scale=5))
    (5, 5)
    """
    precision, scale = logical_type.precision, logical_type.scale
    if not precision or logical_type.kind is LogicalKind.VARIABLE_SCALE_DECIMAL:
        return None
    return (precision - scale, 0) if scale < 0 else (max(precision, scale), scale)


def is_unsigned_bigint(column: Column) -> bool:
    """Whether its numbers reach to 2**64-1."""
    return column.source_type.startswith("bigint") and "unsigned" in column.source_type
