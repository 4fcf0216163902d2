"""Statements of MySQL that change rows unseen, found by the tables before and after them."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from libs.mysql.ddl import TableChange, computed_columns, cut_columns
from libs.source.unseen_policy import SHADOW_TABLES
from libs.types.table import TableId, TableSchema
from libs.types.unseen_rows import UnseenRows


def renamed_unseen(
    changes: Sequence[TableChange],
    before: Mapping[TableId, TableSchema],
    is_captured: Callable[[TableId], bool],
    *,
    is_strict: bool,
    shadow_tables: Sequence[str] = SHADOW_TABLES,
) -> Iterator[UnseenRows]:
    """Renames to a captured name: the rows of before came under another one, or nobody delivered them. A shadow table has the
    rows of the one whose place it takes, as its columns can hold them."""
    renames = {change.table_id: change for change in changes if change.previous_id is not None}
    for table_id, previous in _origins(changes).items():
        old, new = before.get(table_id), renames[table_id].schema
        if not is_captured(table_id):
            continue
        if any(re.fullmatch(pattern, previous.table) for pattern in shadow_tables):
            cut = cut_columns(old, new, is_strict=is_strict) if old is not None and new is not None else []
            if cut:
                yield UnseenRows(f"RENAME of {previous} to it: {', '.join(cut)}", (table_id,))
        elif is_captured(previous) and previous in before:
            yield UnseenRows(f"RENAME of {previous} to it, whose rows came under that name", (table_id,))
        else:
            yield UnseenRows(f"RENAME of {previous}, whose rows were not captured, to it", (table_id,))


def _origins(changes: Iterable[TableChange]) -> Mapping[TableId, TableId]:
    """By the name that a statement gave a table in the end, the one that it had; tables that exchange their names by a third
    one among them."""
    origins: dict[TableId, TableId] = {}
    for change in changes:
        if change.previous_id is not None:
            origins[change.table_id] = origins.pop(change.previous_id, change.previous_id)
    return {table_id: previous for table_id, previous in origins.items() if table_id != previous}


def redefined_unseen(
    changes: Iterable[TableChange], before: Mapping[TableId, TableSchema], *, is_strict: bool
) -> Iterator[UnseenRows]:
    """Tables whose columns cannot hold all that they held, or whose new columns the server filled, by definitions alone."""
    for change in changes:
        if change.schema is not None and change.table_id in before:
            old = before[change.table_id]
            clauses = [*cut_columns(old, change.schema, is_strict=is_strict), *computed_columns(old, change.schema)]
            if clauses:
                yield UnseenRows(", ".join(clauses), (change.table_id,))
