"""Comparing two streams of rows."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.check.compare import MISSING, Difference, compare_as_bags, compare_by_key, compare_sorted

COLUMNS = ("id", "v")


def differences(source: list[tuple[Any, ...]], warehouse: list[tuple[Any, ...]]) -> list[Difference]:
    return compare_sorted(source, warehouse, columns=COLUMNS, key=("id",), limit=100).first


def test_equal_streams_have_no_difference() -> None:
    """Rows and values are counted."""
    rows = [(1, "a"), (2, None)]

    found = compare_sorted(rows, list(rows), columns=COLUMNS, key=("id",), limit=10)

    assert (found.rows_compared, found.rows_different, found.cells_compared) == (2, 0, 4)


def test_each_kind_of_difference_is_told() -> None:
    """A value, a row that is missing, a row too many, each with its key."""
    found = differences([(1, "a"), (2, "b"), (3, "c")], [(1, "x"), (3, "c"), (4, "d")])

    assert found == [
        Difference((1,), "v", "a", "x"),
        Difference((2,), None, (2, "b"), MISSING),
        Difference((4,), None, MISSING, (4, "d")),
    ]


def test_null_differs_from_empty() -> None:
    """And from zero."""
    assert len(differences([(1, None), (2, None)], [(1, ""), (2, 0)])) == 2


def test_a_row_twice_is_a_difference() -> None:
    """A duplicate in the warehouse breaks "once"."""
    assert differences([(1, "a")], [(1, "a"), (1, "a")]) == [Difference((1,), None, MISSING, (1, "a"))]


def test_the_limit_bounds_what_is_kept_not_what_is_counted() -> None:
    """A table that is all wrong does not fill the memory."""
    found = compare_sorted(
        [(number, "a") for number in range(1000)],
        [(number, "b") for number in range(1000)],
        columns=COLUMNS,
        key=("id",),
        limit=3,
    )

    assert (found.rows_different, len(found.first)) == (1000, 3)


def test_a_stream_out_of_order_is_refused() -> None:
    """Silence would be a wrong answer."""
    with pytest.raises(ValueError, match="warehouse"):
        differences([(1, "a"), (2, "a")], [(2, "a"), (1, "a")])


rows = st.dictionaries(st.integers(0, 30), st.sampled_from(["a", "b", None]), max_size=20)


@given(source=rows, warehouse=rows)
def test_merging_finds_what_a_dictionary_finds(source: dict[int, Any], warehouse: dict[int, Any]) -> None:
    """The streaming comparison agrees with the plain one on every pair of tables."""
    expected = sum(source.get(key, MISSING) != warehouse.get(key, MISSING) for key in source.keys() | warehouse.keys())

    found = compare_sorted(sorted(source.items()), sorted(warehouse.items()), columns=COLUMNS, key=("id",), limit=0)
    shuffled = compare_by_key(
        list(source.items())[::-1], list(warehouse.items()), columns=COLUMNS, key=("id",), limit=0
    )

    assert found.rows_different == shuffled.rows_different == expected
    assert found.rows_compared == len(source.keys() | warehouse.keys())


def test_bags_count_repeats() -> None:
    """Without a key, a row must stand as often on one side as on the other."""
    found = compare_as_bags([("a",), ("a",), ("b",)], [("b",), ("a",), ("c",)], limit=10)

    assert found.rows_different == 2


def test_bags_take_equal_values_for_equal() -> None:
    """1.50 is 1.5, and a document's names have no order."""
    found = compare_as_bags([(Decimal("1.50"), {"a": 1, "b": 2.0})], [(Decimal("1.5"), {"b": 2, "a": 1})], limit=10)

    assert found.rows_different == 0
