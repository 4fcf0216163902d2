"""A second look at the rows that differ, so that a source that is written to meanwhile can be compared too.

    the source's rows ▶ wait until the tables hold that moment ▶ the warehouse's rows ▶ the source's rows again

A row differs if the warehouse has it in another form than the source had before *and* after: between the two, the tables
passed a moment at which they had to be equal. One that the source has changed meanwhile says nothing and is looked at again.
(A row that was changed and changed back between the two would be judged wrongly.) They are the low and the high watermark of an
incremental snapshot, with the row itself in the place of the log.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from libs.check.compare import MISSING, MOST_SUSPECTS, Comparison, Difference, Row, as_logged, cells, note
from libs.check.delivered import OtherType, delivered_rows, unlogged_columns
from libs.check.projection import ExpectedColumn, ExpectedTable
from libs.check.source import AskedSource
from libs.check.source_sql import MYSQL_SQL, SourceSql
from libs.types.tenant import SinkSettings
from libs.warehouse_readers.warehouse import StoredTable

Ask = Callable[[], AbstractContextManager[AskedSource]]

LOOKS: Final = 5
"""A row that was changed at each of them stays undecided."""
_KEYS_OF_A_STATEMENT: Final = 500


@dataclass(frozen=True, slots=True)
class Suspected:
    """A table with rows that differed at the first look."""

    table: ExpectedTable
    columns: tuple[ExpectedColumn, ...]
    """Those that both sides have."""
    sink: SinkSettings
    load: Callable[[], StoredTable | None]
    """The warehouse's table as it is now."""
    first: Comparison
    sql: SourceSql = MYSQL_SQL
    """The source's dialect."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def is_distinguishable(self) -> bool:
        """Its rows can be found again by their keys, all of them."""
        types = self.key_types
        return (
            bool(self.table.key)
            and not self.table.is_key_masked
            and self.first.rows_different == len(self.first.suspects) < MOST_SUSPECTS
            and all(self._literals(types, key) is not None for key in self.first.suspects)
        )

    @property
    def key_types(self) -> tuple[str, ...]:
        """The source's types of the key's columns."""
        types = {column.name: column.data_type for column in self.columns}
        return tuple(types[name] for name in self.table.key)

    def conditions(self, keys: Iterable[Row]) -> Iterator[str]:
        """SQL that is true of the rows of ``keys``, some hundred at a time."""
        names = ", ".join(self.sql.quoted(name) for name in self.table.key)
        types, several = self.key_types, iter(keys)
        while part := [self._literals(types, key) for key in itertools.islice(several, _KEYS_OF_A_STATEMENT)]:
            rows = (", ".join(literals) for literals in part if literals is not None)
            yield f"({names}) IN ({', '.join(f'({row})' for row in rows)})"

    def _literals(self, types: Sequence[str], key: Row) -> tuple[str, ...] | None:
        """A key of columns of ``types`` as SQL has it; None: its row cannot be found by it."""
        found = [self.sql.key_literal(data_type, value) for data_type, value in zip(types, key, strict=True)]
        return None if None in found else tuple(literal for literal in found if literal is not None)


@dataclass(slots=True)
class Verdict:
    """The findings of further looks."""

    comparison: Comparison
    """Of the rows that differ for certain."""
    undecided: int = 0
    """Rows that the source changed at each look."""


def look_again(
    suspected: Sequence[Suspected],
    ask: Ask,
    wait_for_all: Callable[[], object],
    *,
    limit: int,
    temporary_dir: Path,
) -> list[Verdict]:
    """Judge the rows that differed, table by table, in the order of ``suspected``; each ``is_distinguishable``.

    ``ask`` gives the source, with a view of this moment; ``wait_for_all`` returns when the tables hold all that the source
    has committed by now. Of each table ``limit`` differences are kept.

    Raises:
        NotCaughtUp: the tables do not follow.
    """
    waiting = [set(table.first.suspects) for table in suspected]
    verdicts = [Verdict(_without_rows(table.first)) for table in suspected]
    for _ in range(LOOKS):
        if not any(waiting):
            break
        before = _rows_of_source(suspected, waiting, ask)
        wait_for_all()
        delivered = [
            _rows_of_warehouse(table, keys, temporary_dir) if keys else {}
            for table, keys in zip(suspected, waiting, strict=True)
        ]
        after = _rows_of_source(suspected, waiting, ask)
        for nth, table in enumerate(suspected):
            for key in sorted(waiting[nth]):
                was, has, holds = before[nth].get(key), after[nth].get(key), delivered[nth].get(key)
                if has is not None and holds is not None:
                    holds = as_logged(holds, has, unlogged_columns(table.sink, table.columns))
                if holds in (was, has):
                    waiting[nth].discard(key)
                elif was == has:
                    waiting[nth].discard(key)
                    note(verdicts[nth].comparison, _differences(table, key, has, holds), limit)
    for verdict, keys in zip(verdicts, waiting, strict=True):
        verdict.undecided = len(keys)
    return verdicts


def _without_rows(first: Comparison) -> Comparison:
    return Comparison(rows_compared=first.rows_compared, cells_compared=first.cells_compared)


def _differences(table: Suspected, key: Row, source: Row | None, warehouse: Row | None) -> list[Difference]:
    if source is None:
        return [Difference(key, None, MISSING, warehouse)]
    if warehouse is None:
        return [Difference(key, None, source, MISSING)]
    return cells(key, source, warehouse, table.names)


def _rows_of_source(suspected: Sequence[Suspected], waiting: Sequence[set[Row]], ask: Ask) -> list[dict[Row, Row]]:
    found: list[dict[Row, Row]] = []
    with ask() as source:
        for table, keys in zip(suspected, waiting, strict=True):
            rows = (
                row
                for condition in table.conditions(sorted(keys))
                for row in source.rows_of(table.table, table.columns, condition)
            )
            found.append(_by_key(table, rows, keys))
    return found


def _rows_of_warehouse(table: Suspected, keys: set[Row], temporary_dir: Path) -> Mapping[Row, Row]:
    firsts = {key[0] for key in keys}
    among = firsts if all(isinstance(value, int | str) for value in firsts) else None
    try:
        rows = delivered_rows(table.load(), table.sink, table.table, table.columns, temporary_dir, among=among)
        return _by_key(table, rows, keys)
    except OtherType:  # a change after the first look: the next check reports it
        return {}


def _by_key(table: Suspected, rows: Iterable[Row], keys: set[Row]) -> dict[Row, Row]:
    places = tuple(table.names.index(name) for name in table.table.key)
    keyed = ((tuple(row[place] for place in places), row) for row in rows)
    return {key: row for key, row in keyed if key in keys}
