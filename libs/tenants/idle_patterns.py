"""Patterns of a tenant's document that match nothing: a mask, an exclusion or a filter that holds nothing back.

``customer\\.email`` without its database reads well and masks no column. Such a document is refused unless the pattern
stands in ``may_match_nothing`` too, because a table that comes later may be meant.
"""

from collections.abc import Iterator
from typing import NamedTuple

from libs.tenants.known_tables import KnownTables
from libs.types.tenant import SourceSelection


class IdlePattern(NamedTuple):
    """A pattern that matches no table or column."""

    place: str
    """In the selection: ``masks[0].columns``."""
    pattern: str


def idle_patterns(selection: SourceSelection, tables: KnownTables) -> Iterator[IdlePattern]:
    """Every one that hides, filters or renames, and matches none of ``tables`` under any name that it has or had.

    ``tables``: all tables of the source, captured or not. ``include_tables`` and ``include_columns`` are left out: tables
    that they do not match do not come, which everybody sees.
    """
    for place, pattern in _of_tables(selection):
        if pattern not in selection.may_match_nothing and not tables.has_table(pattern):
            yield IdlePattern(place, pattern)
    for place, pattern in _of_columns(selection):
        if pattern not in selection.may_match_nothing and not tables.has_column(pattern):
            yield IdlePattern(place, pattern)


def _of_tables(selection: SourceSelection) -> Iterator[tuple[str, str]]:
    for index, pattern in enumerate(selection.exclude_tables):
        yield f"exclude_tables[{index}]", pattern
    for index, each in enumerate(selection.row_filters):
        yield f"row_filters[{index}].tables", each.tables


def _of_columns(selection: SourceSelection) -> Iterator[tuple[str, str]]:
    for index, pattern in enumerate(selection.exclude_columns):
        yield f"exclude_columns[{index}]", pattern
    for index, mask in enumerate(selection.masks):
        yield f"masks[{index}].columns", mask.columns
    for index, rename in enumerate(selection.rename_columns):
        yield f"rename_columns[{index}].columns", rename.columns


def idle_pattern_mistake(found: IdlePattern) -> str:
    """The remedy for a person."""
    form = "database.table.column" if found.place.partition("[")[0] in _COLUMN_LISTS else "database.table"
    return (
        f"{found.place}: {found.pattern!r} matches no {form} of the source: correct it, or name it in may_match_nothing too, "
        "if its tables come later"
    )


_COLUMN_LISTS = ("exclude_columns", "masks", "rename_columns")
