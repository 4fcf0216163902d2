"""A table compared chunk by chunk: rows next to one another in its key, no more of them than are to be read at once.

Where a chunk ends the source says, by its index; then both ends are asked for the rows between two places of the key
(``run``). A place is made of the whole numbers that the key begins with: of these both ends have the same order. A key that
begins with something else (of texts each end has an order of its own) makes the table one chunk.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from libs.local.check.canonical_text import WHOLE_NUMBERS, End
from libs.local.check.key_order import is_behind, is_between, is_up_to
from libs.local.check.parts import number_key
from libs.local.check.projection import ExpectedColumn, SourceTable
from libs.local.check.source import AskedSource
from libs.local.warehouse import KeyCondition, KeySpans, StoredTable
from libs.mysql.identifiers import quote_identifier

CHUNK_ROWS: Final = 200_000
"""About a second of a MySQL's work."""

Place = tuple[int, ...]
"""Of a row in a table's key: the whole numbers that this begins with."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows behind one place of the key, up to another."""

    columns: tuple[str, ...]
    """That places are of; empty: the chunk is the whole table."""
    after: Place | None
    """None: from the first row on."""
    up_to: Place | None
    """None: to the last row."""
    first: Place
    """About where its rows begin at the source, and where they end: parts are cut between the two."""
    last: Place
    rows: int
    """At most, at the source."""
    share: float
    """How much of the table's key lies before its end, about."""

    @property
    def is_first(self) -> bool:
        return self.after is None

    @property
    def is_last(self) -> bool:
        return self.up_to is None

    @property
    def cut_column(self) -> int:
        """Which of ``columns`` its parts are ranges of: the first that is not the same in all of its rows."""
        pairs = enumerate(zip(self.first, self.last, strict=True))
        return next((nth for nth, (first, last) in pairs if first != last), len(self.columns) - 1)


def place_columns(table: SourceTable) -> tuple[str, ...]:
    """Those that a place is made of."""
    types = dict(table.columns)
    found: list[str] = []
    for name in table.key:
        if types.get(name) not in WHOLE_NUMBERS:
            break
        found.append(name)
    return tuple(found)


def chunk_behind(source: AskedSource, table: SourceTable, after: Place | None, rows: int) -> Chunk:
    """The next chunk, of ``rows`` rows at most where the key's numbers tell rows apart."""
    columns = place_columns(table)
    if not columns:
        return Chunk((), None, None, (), (), 0, 1.0)
    up_to = source.key_behind(table, columns, after, rows)
    lowest = source.key_behind(table, columns, None, 1) or (0,) * len(columns)
    highest = source.last_key(table, columns) or lowest
    first = lowest if after is None else after
    last = max(first, highest if up_to is None else up_to)
    width = highest[0] - lowest[0]
    share = 1.0 if up_to is None or width <= 0 else min(1.0, max(0.0, (last[0] - lowest[0]) / width))
    return Chunk(columns, after, up_to, first, last, rows, share)


def can_be_bounded(chunk: Chunk, columns: Sequence[ExpectedColumn], stored: StoredTable | None) -> bool:
    """Whether a tenant's table can be asked for the rows of ``chunk`` alone: it has the numbers, unmasked."""
    by_name = {column.name: column for column in columns}
    types = {} if stored is None else stored.types()
    return bool(chunk.columns) and all(
        (column := by_name.get(name)) is not None
        and column.mask is None
        and (stored is None or _is_whole_number(types[column.seen_as]))
        for name in chunk.columns
    )


def source_bounds(chunk: Chunk) -> str | None:
    """SQL for the source: true of the chunk's rows; None: all are."""
    names = [quote_identifier(name) for name in chunk.columns]
    bounds = [] if chunk.after is None else [is_behind(names, list(map(str, chunk.after)))]
    bounds += [] if chunk.up_to is None else [is_up_to(names, list(map(str, chunk.up_to)))]
    return f"({' AND '.join(bounds)})" if bounds else None


def warehouse_bounds(chunk: Chunk, columns: Sequence[ExpectedColumn], stored: StoredTable) -> KeyCondition:
    """The same for the warehouse, of which also what the source has not is in one chunk."""
    seen_as = {column.name: column.seen_as for column in columns}
    end = End(stored.sql_dialect.value)
    keys = [number_key(stored.sql_name(seen_as[name]), end) for name in chunk.columns]
    span = (None if chunk.after is None else chunk.after[0], None if chunk.up_to is None else chunk.up_to[0])
    within = KeySpans(seen_as[chunk.columns[0]], (span,))
    return KeyCondition(is_between(keys, chunk.after, chunk.up_to), () if span == (None, None) else (within,))


def _is_whole_number(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(arrow_type) or (pa.types.is_decimal(arrow_type) and arrow_type.scale == 0))
