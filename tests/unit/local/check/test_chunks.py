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

from libs.local.check.canonical_text import End
from libs.local.check.chunks import Chunk, Place, can_be_bounded, chunk_behind, place_columns, source_bounds
from libs.local.check.key_order import is_between
from libs.local.check.parts import number_key
from libs.local.check.projection import ExpectedColumn, SourceTable
from libs.types.table import TableId
from libs.types.tenant import ColumnMask

SMALL = st.integers(-2, 2)
ROW = st.tuples(st.none() | SMALL, st.none() | SMALL)
PLACES = st.lists(st.tuples(SMALL, SMALL), max_size=4, unique=True).map(sorted)


def table(*key: str, **types: str) -> SourceTable:
    return SourceTable(TableId(database="shop", table="items"), tuple(types.items()), key, frozenset(key))


def is_true(condition: str, row: tuple[int | None, int | None]) -> bool:
    with duckdb.connect() as connection:
        statement = f"SELECT {condition} FROM (SELECT CAST(? AS BIGINT) AS a, CAST(? AS BIGINT) AS b)"
        [[answer]] = connection.execute(statement, list(row)).fetchall()
    return answer is True


@given(places=PLACES, row=ROW)
def test_every_row_of_a_warehouse_is_in_one_chunk(places: list[Place], row: tuple[int | None, int | None]) -> None:
    """The source's condition finds its rows in the same one."""
    bounds = [None, *places, None]
    keys = [number_key(name, End.DUCKDB) for name in ("a", "b")]
    conditions = [is_between(keys, after, up_to) for after, up_to in itertools.pairwise(bounds)]

    found = [is_true(condition, row) for condition in conditions]

    assert found.count(True) == 1
    if None not in row:
        chunks = itertools.pairwise(bounds)
        at_source = [source_bounds(Chunk(("a", "b"), *pair, (), (), 9, 1.0)) or "true" for pair in chunks]
        assert [is_true(condition.replace("`", ""), row) for condition in at_source] == found


@dataclass
class Keys:
    """A source of these keys, which are counted as they are walked."""

    keys: Sequence[Place]
    asked: list[str] = field(default_factory=list)

    def key_behind(self, _table: object, columns: Sequence[str], after: Place | None, rows: int) -> Place | None:
        left = [key[: len(columns)] for key in self.keys if after is None or key[: len(columns)] > after]
        return left[rows - 1] if rows <= len(left) else None

    def last_key(self, _table: object, columns: Sequence[str]) -> Place | None:
        return self.keys[-1][: len(columns)] if self.keys else None


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
        assert all(chunk.first[nth] <= key[nth] <= chunk.last[nth] for key in own)
        assert all(key[:nth] == chunk.first[:nth] for key in own)


def test_a_key_is_bounded_by_the_whole_numbers_that_it_begins_with() -> None:
    types = {"a": "int", "b": "varchar", "c": "bigint", "d": "decimal"}

    assert place_columns(table("a", "c", "b", **types)) == ("a", "c")
    assert place_columns(table("a", "b", "c", **types)) == ("a",)
    assert place_columns(table("b", "a", **types)) == place_columns(table("d", **types)) == place_columns(table()) == ()
    whole = chunk_behind(Keys([]), table("b", **types), None, 5)  # type: ignore[arg-type]
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
    class Stored:
        def types(self) -> dict[str, pa.DataType]:
            return {"A": held}

    chunk = Chunk(("a",), (1,), (2,), (1,), (2,), 9, 1.0)

    assert can_be_bounded(chunk, [column], Stored()) is can  # type: ignore[arg-type]
