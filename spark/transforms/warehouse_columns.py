"""A warehouse's table as rows are written for it: its columns, the value of rows from before one, the end of all rows."""

from collections.abc import Mapping
from dataclasses import dataclass

from libs.warehouse.schema_changes import StoredColumn


@dataclass(frozen=True, slots=True)
class Fill:
    """The value that the source gave the rows from before a column was added, without an event for any of them."""

    since_version: int
    """The schema version that brought the column."""
    expression: str
    """A constant in Spark SQL, of the column's type."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column that the warehouse's table has; the source's may be narrower, or gone."""

    sql_type: str
    """Spark's."""
    fill: Fill | None = None
    stored: StoredColumn | None = None
    """Its type in ``libs.warehouse.schema_changes``; sinks always set it."""
    sources: Mapping[int, str] | None = None
    """By schema version: the source's column whose values it takes; none in a version that is missing. None: in every version
    the one of its own name."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """All rows of a smaller order went."""

    order: str
    committed_at_us: int
