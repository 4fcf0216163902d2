"""The limits of Iceberg's schemas and formats for a table."""

from collections.abc import Sequence

from spark.sinks.port import SinkColumn


def identifier_columns(columns: Sequence[SinkColumn], key: Sequence[str]) -> tuple[str, ...]:
    """The key's columns as identifier fields; none where one is a float or may be NULL, which Iceberg does not allow."""
    key_columns = [column for column in columns if column.name in key]
    unfit = any(column.sql_type in ("float", "double") or column.is_optional for column in key_columns)
    return () if unfit else tuple(key)
