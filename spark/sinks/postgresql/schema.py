"""PostgreSQL's types: which one a column has, which may be changed in place, and the text form that COPY reads.

Types go by the names that ``format_type`` gives (PostgreSQL manual 9.27). Plain functions; ``sink`` carries changes out.
"""

import re
from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as sf

from libs.types.value import LogicalKind
from spark.sinks.port import SinkColumn
from spark.transforms.sql_text import quoted as spark_quoted

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
_SPARK_TYPES: Final = {**{own: spark for spark, own in _TYPES.items()}, "json": "string"}
_JSON_KINDS: Final = frozenset({LogicalKind.JSON, LogicalKind.GEOMETRY, LogicalKind.POINT, LogicalKind.FLOAT_VECTOR})
_DECIMAL_KINDS: Final = frozenset({LogicalKind.DECIMAL, LogicalKind.DECIMAL_TEXT})
_NUMERIC: Final = re.compile(r"(?:numeric|decimal)\((\d+),\s*(\d+)\)")
_SPARK_DECIMAL_DIGITS: Final = 38
_INTEGER_DIGITS: Final = {"integer": 10, "bigint": 19}
_WIDENINGS: Final = frozenset({("integer", "bigint"), ("real", "double precision"), ("json", "text")})


def type_of(column: SinkColumn) -> str:
    """The type of a column: Spark's, but for those that PostgreSQL has and Spark has not.

    ``json`` and not ``jsonb``: it keeps the document as it was, numbers of any length and the order of names included.
    """
    logical_type = column.logical_type
    if logical_type is not None and logical_type.kind in _JSON_KINDS and column.sql_type == "string":
        return "json"
    if logical_type is not None and logical_type.kind in _DECIMAL_KINDS and column.sql_type == "string":
        return f"numeric({logical_type.precision},{logical_type.scale})"
    if number := _NUMERIC.fullmatch(column.sql_type):
        return f"numeric({number[1]},{number[2]})"
    return _TYPES[column.sql_type]


def sql_type(own_type: str) -> str | None:
    """Spark's type for values of ``own_type``; None: a type that this sink makes no columns of."""
    if number := _NUMERIC.fullmatch(own_type):
        return f"decimal({number[1]},{number[2]})" if int(number[1]) <= _SPARK_DECIMAL_DIGITS else "string"
    return _SPARK_TYPES.get(own_type)


def is_wider(new: str, old: str) -> bool:
    """Whether every value of ``old`` fits ``new``; PostgreSQL then turns the one into the other in place.

    >>> is_wider("numeric(20,0)", "bigint"), is_wider("numeric(12,4)", "numeric(10,2)"), is_wider("bigint", "text")
    (True, True, False)
    """
    if (old, new) in _WIDENINGS:
        return True
    wide = _NUMERIC.fullmatch(new)
    if wide is None or new == old:
        return False
    whole, scale = int(wide[1]) - int(wide[2]), int(wide[2])
    if old in _INTEGER_DIGITS:
        return whole >= _INTEGER_DIGITS[old]
    narrow = _NUMERIC.fullmatch(old)
    return narrow is not None and whole >= int(narrow[1]) - int(narrow[2]) and scale >= int(narrow[2])


def as_text(value: SparkColumn, spark_type: str) -> SparkColumn:
    """A value as PostgreSQL's input functions read it. The session's zone is UTC here and there."""
    match spark_type:
        case "binary":
            return sf.concat(sf.lit("\\x"), sf.hex(value))
        case _:
            return value.cast("string")


def copy_line(columns: Mapping[str, str]) -> SparkColumn:
    """A row as a line of COPY's text format (PostgreSQL manual, "COPY", File Formats); ``columns``: Spark's types by name."""
    fields = [_copy_field(sf.col(spark_quoted(name)), kind) for name, kind in columns.items()]
    return sf.concat(sf.concat_ws("\t", *fields), sf.lit("\n"))


def _copy_field(value: SparkColumn, spark_type: str) -> SparkColumn:
    text = as_text(value, spark_type)
    if spark_type == "binary":
        text = sf.concat(sf.lit("\\"), text)
    elif spark_type == "string":
        for character, escaped in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
            text = sf.replace(text, sf.lit(character), sf.lit(escaped))
    return sf.coalesce(text, sf.lit("\\N"))
