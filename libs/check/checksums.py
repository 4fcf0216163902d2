"""Which parts of a table differ, by counts and checksums that source and warehouse compute themselves.

    cut the key into parts ▶ both ends count and sum their rows by part ▶ parts that differ: cut those with many rows again
      ▶ the rest is read row by row (``run``)

The sum of a part is that of its rows' fingerprints (60 bits of a SHA-256 over a text of all columns, ``canonical_text``), so
rows that stand twice count twice and their order does not matter. Equal counts and sums mean equal rows, but for a chance of
one in 10**18.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from libs.check.canonical_text import WHOLE_NUMBERS, ColumnText, End, column_text, fingerprint, row_texts
from libs.check.delivered import delivered_sums
from libs.check.parts import Chosen, Cut, KeySql, Part, hash_digits, number_key, ranges
from libs.check.projection import ExpectedColumn, ExpectedTable
from libs.check.source import SummingSource
from libs.mysql.identifiers import quote_identifier
from libs.types.tenant import SinkSettings
from libs.warehouse_readers.warehouse import KeyCondition, KeySpans, StoredTable, all_of

ROWS_OF_A_PART: Final = 500
"""Target of the first cut: the cost of finding one row that differs."""
MOST_PARTS: Final = 4096
"""Of one answer; vtgate gives 10,000 rows at once."""
MANY_ROWS: Final = 5_000
"""A part with more that differs is cut again before it is read."""

Sums = dict[Part, tuple[int, int]]
"""Count and sum of each part that has rows."""
_NO_ROWS: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class Summable:
    """How a table's rows become sums at both ends."""

    columns: tuple[ExpectedColumn, ...]
    """Those that the sums are over."""
    by_row: tuple[ExpectedColumn, ...]
    """Those without a text that is the same at both ends."""
    source_key: KeySql
    warehouse_key: KeySql
    source_row: str
    warehouse_row: str
    number: str
    """The source's name of the column that is cut, where that is a whole number; empty: parts are by hash."""


@dataclass(frozen=True, slots=True)
class Differing:
    """The result of the sums."""

    rows_equal: int
    """Rows of the source in parts that are equal."""
    chosen: Chosen
    """Parts that are not, or may not be."""
    rows_chosen: int
    """In those, at either end the more."""

    @property
    def is_most(self) -> bool:
        """Reading all rows at once costs no more."""
        return self.rows_chosen > self.rows_equal


def summable(
    table: ExpectedTable, columns: Sequence[ExpectedColumn], stored: StoredTable, *, cut_by: str | None = None
) -> Summable | None:
    """How to sum the rows; None: sums cannot distinguish them, or a column holds values that do not fit it.

    ``cut_by``: a column of the key, by which parts are cut where it is of whole numbers; None: the first of the key.
    """
    types, dialect = stored.types(), stored.sql_dialect
    try:
        texts = {
            column.name: column_text(column, types[column.seen_as], stored.sql_name(column.seen_as), dialect)
            for column in columns
        }
    except TypeError:
        return None
    known = {name: text for name, text in texts.items() if text is not None}
    if not table.key or table.is_key_masked or not set(table.key) <= set(known):
        return None
    end = End(dialect.value)
    source_row, warehouse_row = row_texts(list(known.values()), dialect)
    source_key, warehouse_key, number = _keys(table, columns, known, stored, cut_by or table.key[0])
    return Summable(
        columns=tuple(column for column in columns if column.name in known),
        by_row=tuple(column for column in columns if column.name not in known),
        source_key=source_key,
        warehouse_key=warehouse_key,
        source_row=fingerprint(source_row, End.MYSQL),
        warehouse_row=fingerprint(warehouse_row, end),
        number=number,
    )


def _keys(
    table: ExpectedTable,
    columns: Sequence[ExpectedColumn],
    known: Mapping[str, ColumnText],
    stored: StoredTable,
    cut_by: str,
) -> tuple[KeySql, KeySql, str]:
    end = End(stored.sql_dialect.value)
    [cut] = [column for column in columns if column.name == cut_by]
    if cut.data_type in WHOLE_NUMBERS:
        number = number_key(stored.sql_name(cut.seen_as), end)
        return KeySql(quote_identifier(cut.name), End.MYSQL), number, cut.name
    source, warehouse = row_texts([known[name] for name in table.key], stored.sql_dialect)
    return KeySql(source, End.MYSQL), KeySql(warehouse, end), ""


def differing_parts(
    source: SummingSource,
    stored: StoredTable,
    sink: SinkSettings,
    table: ExpectedTable,
    rows: Summable,
    temporary_dir: Path,
    *,
    cut: Cut | None = None,
    only: KeyCondition | None = None,
) -> Differing:
    """Compare both ends part by part; the warehouse is read once where all is equal.

    ``cut``: the first one; None: the source is asked how many rows there are. ``only``: which rows of the warehouse are meant,
    as ``table`` says which of the source are.
    """
    chosen, among = Chosen(), None
    rows_equal = rows_chosen = 0
    cut = cut or _first_cut(source, table, rows)
    while cut is not None:
        left = _source_sums(source, table, rows, cut, among)
        right = _warehouse_sums(stored, sink, table, rows, cut, among, only, temporary_dir)
        rows_equal += sum(count for part, (count, total) in left.items() if right.get(part) == (count, total))
        sizes = {
            part: max(left.get(part, _NO_ROWS)[0], right.get(part, _NO_ROWS)[0])
            for part in left.keys() | right.keys()
            if left.get(part) != right.get(part)
        }
        large = {part for part, size in sizes.items() if size > MANY_ROWS and cut.is_divisible(part)}
        # Where very many differ, cutting them finds no less to read.
        finer = cut.finer(MOST_PARTS // len(large)) if 0 < len(large) <= MOST_PARTS // 16 else None
        read = sizes.keys() if finer is None else sizes.keys() - large
        chosen.add(cut, read)
        rows_chosen += sum(sizes[part] for part in read)
        among = Chosen([(cut, frozenset(large))])
        cut = finer
    return Differing(rows_equal, chosen, rows_chosen)


def source_condition(rows: Summable, chosen: Chosen) -> str:
    """SQL for the source: true of the rows of parts."""
    return chosen.condition(rows.source_key)


def warehouse_condition(rows: Summable, table: ExpectedTable, chosen: Chosen) -> KeyCondition:
    """The same for the warehouse."""
    names = {column.name: column.seen_as for column in table.columns}
    spans = tuple(chosen.spans()) if rows.number else ()
    within = (KeySpans(names[rows.number], spans),) if spans else ()
    return KeyCondition(chosen.condition(rows.warehouse_key), within)


def _first_cut(source: SummingSource, table: ExpectedTable, rows: Summable) -> Cut:
    if not rows.number:
        [*counts] = (int(str(count)) for (count,) in source.answers(table, "COUNT(*)"))
        return hash_cut(sum(counts))
    key = rows.source_key.expression
    lows, highs, count = [], [], 0
    for low, high, found in source.answers(table, f"MIN({key}), MAX({key}), COUNT(*)"):
        count += int(str(found))
        if low is not None and high is not None:
            lows.append(int(low))
            highs.append(int(high))
    return range_cut(min(lows, default=0), max(highs, default=0), count)


def range_cut(low: int, high: int, rows: int) -> Cut:
    """The first one of ``rows`` rows, about, whose numbers are from ``low`` to ``high`` at the source."""
    return ranges(low, high, _parts_of(rows))


def hash_cut(rows: int) -> Cut:
    """The first one of ``rows`` rows, about, by the hash of their key."""
    return hash_digits(_parts_of(rows))


def _parts_of(count: int) -> int:
    return min(max(count // ROWS_OF_A_PART, 1), MOST_PARTS)


def _source_sums(source: SummingSource, table: ExpectedTable, rows: Summable, cut: Cut, among: Chosen | None) -> Sums:
    condition = None if among is None else source_condition(rows, among)
    selected = f"{cut.name(rows.source_key)}, COUNT(*), SUM({rows.source_row})"
    # By its place: a name could be one of the table's columns.
    return _added(cut, source.answers(table, selected, condition=condition, group_by="1"))


def _warehouse_sums(
    stored: StoredTable,
    sink: SinkSettings,
    table: ExpectedTable,
    rows: Summable,
    cut: Cut,
    among: Chosen | None,
    only: KeyCondition | None,
    temporary_dir: Path,
) -> Sums:
    condition = all_of(only, None if among is None else warehouse_condition(rows, table, among))
    part = cut.name(rows.warehouse_key)
    found = delivered_sums(
        stored, sink, table, rows.columns, temporary_dir, part=part, value=rows.warehouse_row, only=condition
    )
    return _added(cut, found)


def _added(cut: Cut, answers: Iterable[tuple[object, ...]]) -> Sums:
    """A part may come once from each shard. A row without a fingerprint, too large for its database, makes no sum."""
    found: Sums = {}
    for printed, count, total in answers:
        part = cut.parse(printed)
        before = found.get(part, _NO_ROWS)
        found[part] = (before[0] + int(str(count)), before[1] + (0 if total is None else int(str(total))))
    return found
