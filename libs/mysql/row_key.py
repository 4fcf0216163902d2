"""What tells a table's rows apart at the source, whatever key a reader gives their events."""

from libs.types.table import TableSchema


def row_key(schema: TableSchema) -> tuple[str, ...]:
    """The primary key, else the first unique key without NULLs, in the order in which the server prefers them; empty: none.

    ``schema.key`` is the same, unless the source's ``key_columns`` chose another for the events.
    """
    optional = {column.name for column in schema.columns if column.is_optional}
    usable = (index.columns for index in schema.indexes if index.is_unique and optional.isdisjoint(index.columns))
    return next(usable, ())


def has_row_in_key(schema: TableSchema) -> bool:
    """The events' key tells rows apart, because the row's own is part of it."""
    own = row_key(schema)
    return bool(own) and set(own) <= set(schema.key)
