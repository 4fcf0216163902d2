"""A table compared chunk by chunk: rows next to one another in its key, no more of them than are to be read at once.

Where a chunk ends the source says, by its index; then both ends are asked for the rows between two places of the key
(``places``). Rows that have no place are in the last chunk, with those that come after all others. A key whose first column
the ends do not order alike makes the table one chunk.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from libs.check.key_order import is_behind, is_between, is_up_to
from libs.check.places import (
    Order,
    Place,
    PlaceColumn,
    can_stand_in,
    place_columns,
    share_between,
    source_literals,
    source_plain,
    text_span,
    warehouse_key,
    warehouse_plain,
)
from libs.check.projection import ExpectedColumn, SourceTable
from libs.check.source import SummingSource
from libs.mysql.identifiers import quote_identifier
from libs.warehouse_readers.warehouse import KeyCondition, KeySpans, StoredTable

CHUNK_ROWS: Final = 200_000
"""About a second of a MySQL's work."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows after one place of the key, up to another."""

    columns: tuple[PlaceColumn, ...]
    """That places are of; empty: the chunk is the whole table."""
    after: Place | None
    """None: from the first row on."""
    up_to: Place | None
    """None: to the last row, and all rows that have no place."""
    first: Place
    """About where its rows begin at the source, and where they end: parts are cut between the two."""
    last: Place
    rows: int
    """At most, at the source, of those that have a place."""
    share: float
    """How much of the table's key lies before its end, about."""

    @property
    def is_first(self) -> bool:
        return self.after is None

    @property
    def is_last(self) -> bool:
        return self.up_to is None

    @property
    def is_whole(self) -> bool:
        """All rows are in it."""
        return self.is_first and self.is_last

    @property
    def may_hold_placeless(self) -> bool:
        """Rows without a place are in it, with any numbers in their keys."""
        return self.is_last and bool(source_plain(self.columns))

    @property
    def cut_column(self) -> int:
        """Which of ``columns`` its parts are ranges of: the first that is not the same in all of its rows."""
        pairs = enumerate(zip(self.first, self.last, strict=True))
        return next((nth for nth, (first, last) in pairs if first != last), len(self.columns) - 1)


def chunk_behind(source: SummingSource | None, table: SourceTable, after: Place | None, rows: int) -> Chunk:
    """The next chunk, of ``rows`` rows at most where places distinguish rows. ``source``: None: it finds no places."""
    columns = place_columns(table)
    if source is None or not columns:
        return Chunk((), None, None, (), (), 0, 1.0)
    up_to = source.key_behind(table, columns, after, rows)
    nowhere: Place = tuple(0 if column.order is Order.NUMBERS else "" for column in columns)
    lowest = source.end_of_key(table, columns, is_last=False) or nowhere
    highest = source.end_of_key(table, columns, is_last=True) or lowest
    first = lowest if after is None else after
    last = max(first, highest if up_to is None else up_to)
    share = 1.0 if up_to is None else share_between(lowest, highest, last)
    return Chunk(columns, after, up_to, first, last, rows, share)


def can_be_bounded(chunk: Chunk, columns: Sequence[ExpectedColumn], stored: StoredTable | None) -> bool:
    """Whether a tenant's table can be asked for the rows of ``chunk`` alone: it has the columns of places, unmasked."""
    by_name = {column.name: column for column in columns}
    types = {} if stored is None else stored.types()
    return bool(chunk.columns) and all(
        (column := by_name.get(of_place.name)) is not None
        and column.mask is None
        and (stored is None or can_stand_in(of_place, types[column.seen_as]))
        for of_place in chunk.columns
    )


def source_bounds(chunk: Chunk) -> str | None:
    """SQL for the source: true of the chunk's rows; None: all are."""
    if chunk.is_whole:
        return None
    names = [quote_identifier(column.name) for column in chunk.columns]
    plain = source_plain(chunk.columns)
    bounds = [] if chunk.after is None else [is_behind(names, source_literals(chunk.columns, chunk.after))]
    if chunk.up_to is None:
        return f"({' OR '.join([*bounds, *(f'NOT {each}' for each in plain)])})"
    bounds.append(is_up_to(names, source_literals(chunk.columns, chunk.up_to)))
    return f"({' AND '.join([*bounds, *plain])})"


def warehouse_bounds(chunk: Chunk, columns: Sequence[ExpectedColumn], stored: StoredTable) -> KeyCondition:
    """The same for the warehouse, whose rows that the source lacks are in one chunk too."""
    seen_as = {column.name: column.seen_as for column in columns}
    keys = [warehouse_key(column, stored, seen_as[column.name]) for column in chunk.columns]
    plain = [warehouse_plain(column, stored, seen_as[column.name]) for column in chunk.columns]
    sql = is_between(keys, chunk.after, chunk.up_to, [each for each in plain if each is not None])
    if chunk.may_hold_placeless or chunk.is_whole:
        return KeyCondition(sql)
    low = None if chunk.after is None else chunk.after[0]
    high = None if chunk.up_to is None else chunk.up_to[0]
    first = chunk.columns[0]
    if isinstance(low, str) or isinstance(high, str):
        span = text_span(first, seen_as[first.name], str(low or ""), str(high))
        return KeyCondition(sql, texts=() if span is None else (span,))
    return KeyCondition(sql, (KeySpans(seen_as[first.name], ((low, high),)),))
