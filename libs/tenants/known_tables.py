"""A source's tables, found by the patterns of documents without a look at each.

A thousand documents over ten thousand tables are ten million looks, and nearly every pattern begins with letters that few names
begin with.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from operator import itemgetter
from typing import TypeVar

from libs.types.patterns import any_table, literal_prefix, matches_column, matches_table
from libs.types.table import TableSchema
from libs.types.tenant import SourceSelection

_T = TypeVar("_T")


class KnownTables:
    """Those of one source, in their order. The indexes are made with the first question, once for all documents."""

    def __init__(self, tables: Iterable[TableSchema]) -> None:
        self.all: Sequence[TableSchema] = tuple(tables)

    def selected(self, selection: SourceSelection) -> list[TableSchema]:
        """Those that ``is_selected``."""
        found = {
            place: name
            for pattern in selection.include_tables
            for name, place in _beginning(self._names, literal_prefix(pattern))
            if matches_table(pattern, name)
        }
        return [self.all[place] for place in sorted(found) if not any_table(selection.exclude_tables, found[place])]

    def has_table(self, pattern: str) -> bool:
        """Whether one of them has, or had, a name that the pattern is for."""
        named = _beginning(self._all_names, literal_prefix(pattern))
        return any(matches_table(pattern, name) for name, _ in named)

    def has_column(self, pattern: str) -> bool:
        """Whether a column of theirs has, or had, a name that the pattern is for."""
        plain, others = self._columns
        # Without case: of letters beyond ASCII some are the same as one of it (``re``: "K" and the sign of Kelvin).
        prefix = literal_prefix(pattern)
        ascii_part = next((prefix[:place] for place, each in enumerate(prefix) if not each.isascii()), prefix)
        named = _beginning(plain, ascii_part.lower())
        return any(matches_column(pattern, name) for _, name in named) or any(
            matches_column(pattern, name) for name in others
        )

    @cached_property
    def _names(self) -> list[tuple[str, int]]:
        return sorted((str(table.table_id), place) for place, table in enumerate(self.all))

    @cached_property
    def _all_names(self) -> list[tuple[str, str]]:
        names = {str(table_id) for table in self.all for table_id in table.all_ids}
        return [(name, name) for name in sorted(names)]

    @cached_property
    def _columns(self) -> tuple[list[tuple[str, str]], list[str]]:
        """Names of ASCII alone, by their small letters; and the others."""
        names = {
            f"{table_id}.{name}"
            for table in self.all
            for table_id in table.all_ids
            for column in table.columns
            for name in column.all_names
        }
        plain = sorted((name.lower(), name) for name in names if name.isascii())
        return plain, sorted(name for name in names if not name.isascii())


def _beginning(names: Sequence[tuple[str, _T]], prefix: str) -> Iterator[tuple[str, _T]]:
    """Those of sorted ``names`` that begin so."""
    for place in range(bisect_left(names, prefix, key=itemgetter(0)), len(names)):
        if not names[place][0].startswith(prefix):
            return
        yield names[place]
