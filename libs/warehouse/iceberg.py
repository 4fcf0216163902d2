"""Iceberg's types by their Spark names, and which of them a table may be changed between."""

import re
from collections.abc import Mapping
from typing import Final

_ICEBERG_NAMES: Final[Mapping[str, str]] = {
    "boolean": "boolean",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "timestamp_ntz": "timestamp",
    "timestamp": "timestamptz",
    "string": "string",
    "binary": "binary",
    "variant": "variant",
}
_SPARK_NAMES: Final = {iceberg: spark for spark, iceberg in _ICEBERG_NAMES.items()}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")
METADATA_COLUMNS: Final = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
"""Iceberg specification, "Reserved Field IDs": no MERGE runs on a table that has one of them for its own."""
_WIDENINGS: Final = frozenset({("int", "bigint"), ("float", "double")})
"""Besides a DECIMAL's precision, all that Iceberg allows in place (specification v2, "Schema Evolution")."""


def iceberg_type(sql_type: str) -> str:
    """Iceberg's name of a Spark type."""
    return sql_type if _DECIMAL.fullmatch(sql_type) else _ICEBERG_NAMES[sql_type]


def sql_type(iceberg_name: str) -> str:
    """Spark's name of an Iceberg type, as ``Type.toString`` gives it."""
    match = _DECIMAL.fullmatch(iceberg_name)
    return f"decimal({match[1]},{match[2]})" if match else _SPARK_NAMES[iceberg_name]


def is_wider(new: str, old: str) -> bool:
    """Whether every value of ``old`` fits ``new``, and Iceberg can turn the one into the other in place."""
    if (old, new) in _WIDENINGS:
        return True
    wide, narrow = _DECIMAL.fullmatch(new), _DECIMAL.fullmatch(old)
    return bool(wide and narrow and wide[2] == narrow[2] and int(wide[1]) > int(narrow[1]))
