"""What Iceberg's schemas and formats may hold of a table."""

from collections.abc import Sequence
from typing import Any

from spark.sinks.port import SinkColumn


def identifier_columns(columns: Sequence[SinkColumn], key: Sequence[str]) -> tuple[str, ...]:
    """The key's columns as identifier fields; none where one is a float or may be NULL, which Iceberg does not allow."""
    key_columns = [column for column in columns if column.name in key]
    unfit = any(column.sql_type in ("float", "double") or column.is_optional for column in key_columns)
    return () if unfit else tuple(key)


def format_version_of(iceberg_table: Any) -> int:
    """Of a table that is there; new ones have that of the settings."""
    return int(iceberg_table.operations().current().formatVersion())
