"""Iceberg schemas: types by their Spark names, and which of them a table may be changed between. Plain functions over names."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from spark.sinks.port import SinkColumn, SinkTable, TableRefused

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
}
_SPARK_NAMES: Final = {iceberg: spark for spark, iceberg in _ICEBERG_NAMES.items()}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_METADATA_COLUMNS: Final = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
"""Iceberg specification, "Reserved Field IDs"."""
_WIDENINGS: Final = frozenset({("int", "bigint"), ("float", "double")})
"""Besides a DECIMAL's precision, all that Iceberg allows in place (specification v2, "Schema Evolution")."""


def iceberg_type(sql_type: str) -> str:
    """Iceberg's name of a Spark type."""
    return sql_type if _DECIMAL.fullmatch(sql_type) else _ICEBERG_NAMES[sql_type]


def sql_type(iceberg_name: str) -> str:
    """Spark's name of an Iceberg type, as ``Type.toString`` gives it."""
    match = _DECIMAL.fullmatch(iceberg_name)
    return f"decimal({match[1]},{match[2]})" if match else _SPARK_NAMES[iceberg_name]


def check_names(table: SinkTable) -> None:
    """Raises TableRefused for a column named like one of Iceberg's own: no MERGE would run."""
    for column in table.columns:
        if column.name.lower() in _METADATA_COLUMNS:
            raise TableRefused(f"{table.table}.{column.name}: Iceberg keeps this name for itself; exclude the column")


def is_wider(new: str, old: str) -> bool:
    """Whether every value of ``old`` fits ``new``, and Iceberg can turn the one into the other in place."""
    if (old, new) in _WIDENINGS:
        return True
    wide, narrow = _DECIMAL.fullmatch(new), _DECIMAL.fullmatch(old)
    return bool(wide and narrow and wide[2] == narrow[2] and int(wide[1]) > int(narrow[1]))


def identifier_columns(columns: Sequence[SinkColumn], key: Sequence[str]) -> tuple[str, ...]:
    """The key's columns as identifier fields; none where one is a float or may be NULL, which Iceberg does not allow."""
    key_columns = [column for column in columns if column.name in key]
    unfit = any(column.sql_type in ("float", "double") or column.is_optional for column in key_columns)
    return () if unfit else tuple(key)
