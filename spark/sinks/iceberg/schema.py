"""What Iceberg's schemas may hold of a table. Plain functions over names."""

from collections.abc import Sequence
from typing import Final

from spark.sinks.port import SinkColumn, SinkTable, TableRefused

_METADATA_COLUMNS: Final = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
"""Iceberg specification, "Reserved Field IDs"."""


def check_names(table: SinkTable) -> None:
    """Raises TableRefused for a column named like one of Iceberg's own: no MERGE would run."""
    for column in table.columns:
        if column.name.lower() in _METADATA_COLUMNS:
            raise TableRefused(f"{table.table}.{column.name}: Iceberg keeps this name for itself; exclude the column")


def identifier_columns(columns: Sequence[SinkColumn], key: Sequence[str]) -> tuple[str, ...]:
    """The key's columns as identifier fields; none where one is a float or may be NULL, which Iceberg does not allow."""
    key_columns = [column for column in columns if column.name in key]
    unfit = any(column.sql_type in ("float", "double") or column.is_optional for column in key_columns)
    return () if unfit else tuple(key)
