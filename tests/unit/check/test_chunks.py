"""Chunks of a table: each row is in one of them, at both ends in the same, and so are rows that the source cannot have."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.check.chunks import Chunk, can_be_bounded, chunk_behind, source_bounds, warehouse_bounds
from libs.check.places import Order, Place, PlaceColumn
from libs.check.projection import ExpectedColumn, SourceTable
from libs.types.table import TableId
from libs.types.tenant import ColumnMask
from libs.warehouse_readers.warehouse import SqlDialect

SMALL = st.integers(-2, 2)
PLAIN = st.text("b9-", max_size=2)
OWNERS = PlaceColumn("a", Order.NUMBERS)
NUMBERS = PlaceColumn("b", Order.NUMBERS)
TEXTS = PlaceColumn("b", Order.SMALL_LETTERS)
SECONDS = ((NUMBERS, "BIGINT", SMALL, SMALL), (TEXTS, "VARCHAR", PLAIN, st.text("bB9-é_\n", max_size=2)))
"""A key's second column, its type, and elements and values that it can have."""


def table(*key: str, **types: str) -> SourceTable:
    return SourceTable(TableId(database="shop", table="items"), tuple(types.items()), key, frozenset(key))


@dataclass(frozen=True, slots=True)
class Stored:
    """A warehouse's table; DuckDB asks it."""

    column: pa.DataType
    sql_dialect: SqlDialect = SqlDialect.DUCKDB

    def types(self) -> dict[str, pa.DataType]:
        return {"A": self.column}

    def sql_name(self, column: str) -> str:
        return column


def is_true(condition: str, row: Sequence[object], second_type: str) -> bool:
    statement = f"SELECT {condition} FROM (SELECT CAST(? AS BIGINT) AS a, CAST(? AS {second_type}) AS b)"
    [[answer]] = duckdb.execute(statement, list(row)).fetchall()
    return answer is True


@given(data=st.data(), second=st.sampled_from(SECONDS))
def test_every_row_of_a_warehouse_is_in_one_chunk(
    data: st.DataObject, second: tuple[PlaceColumn, str, st.SearchStrategy[Any], st.SearchStrategy[Any]]
) -> None:
    """Also one with NULL in its key, and one that has no place. Of numbers the source's condition finds its rows in the same
    one; of texts MySQL is asked (tests/integration/test_check_in_chunks.py)."""
    column, held, elements, values = second
    places = data.draw(st.lists(st.tuples(SMALL, elements), max_size=4, unique=True).map(sorted))
    row = data.draw(st.tuples(st.none() | SMALL, st.none() | values))
    key = (OWNERS, column)
    chunks = [Chunk(key, *pair, (), (), 9, 1.0) for pair in itertools.pairwise([None, *places, None])]
    expected = [ExpectedColumn(each.name, "", None, each.name) for each in key]

    bounds = [warehouse_bounds(chunk, expected, Stored(pa.int64())) for chunk in chunks]  # type: ignore[arg-type]
    found = [is_true(each.sql, row, held) for each in bounds]

    assert found.count(True) == 1
    key_first = [
        Chunk((column,), *pair, (), (), 9, 1.0)
        for pair in itertools.pairwise([None, *sorted({(b,) for _, b in places}), None])
    ]
    for chunk in key_first if column is TEXTS else ():
        own = warehouse_bounds(chunk, expected, Stored(pa.int64()))  # type: ignore[arg-type]
        if is_true(own.sql, row, held):
            assert all(row[1] is not None and span.low <= row[1] <= span.high for span in own.texts)
    for condition in (each for each, is_in in zip(bounds, found, strict=True) if is_in):
        for spans in condition.within:
            [(low, high)] = spans.spans
            assert row[0] is None or ((low is None or low <= row[0]) and (high is None or row[0] <= high))
    if column is NUMBERS and None not in row:
        at_source = [source_bounds(chunk) or "true" for chunk in chunks]
        assert [is_true(condition.replace("`", ""), row, held) for condition in at_source] == found


@dataclass
class Keys:
    """A source of these keys, which are counted as they are walked."""

    keys: Sequence[Place]
    asked: list[str] = field(default_factory=list)

    def key_behind(
        self, _table: object, columns: Sequence[PlaceColumn], after: Place | None, rows: int
    ) -> Place | None:
        left = [key[: len(columns)] for key in self.keys if after is None or key[: len(columns)] > after]
        return left[rows - 1] if rows <= len(left) else None

    def end_of_key(self, _table: object, columns: Sequence[PlaceColumn], *, is_last: bool) -> Place | None:
        return self.keys[-1 if is_last else 0][: len(columns)] if self.keys else None


def chunks_of(source: Any, of: SourceTable, rows: int) -> list[Chunk]:
    found = [chunk_behind(source, of, None, rows)]
    while not found[-1].is_last:
        found.append(chunk_behind(source, of, found[-1].up_to, rows))
    return found


@given(keys=st.lists(st.tuples(SMALL, SMALL), unique=True).map(sorted), rows=st.integers(1, 9))
def test_a_chunk_has_no_more_rows_than_are_asked_for(keys: list[Place], rows: int) -> None:
    """They follow one another, and the numbers between which parts are cut hold all of its rows."""
    found = chunks_of(Keys(keys), table("a", "b", a="int", b="bigint"), rows)

    assert [chunk.after for chunk in found] == [None, *(chunk.up_to for chunk in found[:-1])]
    assert (found[0].is_first, found[-1].share) == (True, 1.0)
    for chunk in found:
        own = [
            key
            for key in keys
            if (chunk.after is None or key > chunk.after) and (chunk.up_to is None or key <= chunk.up_to)
        ]
        assert len(own) <= rows == chunk.rows
        nth = chunk.cut_column
        assert all(chunk.first[nth : nth + 1] <= key[nth : nth + 1] <= chunk.last[nth : nth + 1] for key in own)
        assert all(key[:nth] == chunk.first[:nth] for key in own)


def test_a_key_that_begins_with_what_has_no_order_at_both_ends_makes_one_chunk() -> None:
    whole = chunk_behind(Keys([]), table("b", a="int", b="decimal"), None, 5)  # type: ignore[arg-type]

    assert (whole.columns, whole.is_first, whole.is_last, source_bounds(whole)) == ((), True, True, None)


def test_how_far_a_table_is_goes_by_its_keys() -> None:
    """Of a table that was emptied meanwhile nothing is left."""
    of = table("a", a="bigint")
    source = Keys([(number,) for number in range(100, 201)])

    assert [chunk.share for chunk in chunks_of(source, of, 25)] == [0.24, 0.49, 0.74, 0.99, 1.0]
    gone = chunk_behind(Keys([(5,), (7,)]), of, (900,), 25)  # type: ignore[arg-type]
    assert (gone.first, gone.last, gone.share) == ((900,), (900,), 1.0)


MASKED = ColumnMask(columns=".*", constant="x")


@pytest.mark.parametrize(
    ("column", "held", "can"),
    [
        (ExpectedColumn("a", "bigint", None, "A"), pa.int64(), True),
        (ExpectedColumn("a", "bigint", None, "A"), pa.decimal128(20, 0), True),
        (ExpectedColumn("a", "bigint", None, "A"), pa.string(), False),
        (ExpectedColumn("a", "bigint", MASKED, "A"), pa.int64(), False),
        (ExpectedColumn("b", "bigint", None, "A"), pa.int64(), False),
    ],
)
def test_a_table_is_asked_for_a_chunk_where_it_has_its_numbers(
    column: ExpectedColumn, held: pa.DataType, can: bool
) -> None:
    chunk = Chunk((OWNERS,), (1,), (2,), (1,), (2,), 9, 1.0)

    assert can_be_bounded(chunk, [column], Stored(held)) is can  # type: ignore[arg-type]
