"""Parts of a key: every key is in one, finer parts lie inside coarser ones, and conditions say which."""

import functools

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.check.canonical_text import End
from libs.check.parts import Chosen, Cut, HashDigits, KeySql, Part, hash_digits, ranges

NUMBER = KeySql("CAST(k AS HUGEINT)", End.DUCKDB)
TEXT = KeySql("CAST(k AS TEXT)", End.DUCKDB)
KEYS = st.integers(-(2**63), 2**64 - 1)


@functools.cache
def a_connection() -> duckdb.DuckDBPyConnection:
    """One for all: a database of its own, with its threads, costs more than a thousand questions."""
    return duckdb.connect(config={"threads": 1})


def asked(sql: str, key: int | None) -> object:
    """DuckDB's answer for one key."""
    [answer] = a_connection().execute(f"SELECT {sql} FROM (SELECT CAST(? AS HUGEINT) AS k)", [key]).fetchall()
    return answer[0]


def part_of(cut: Cut, key: KeySql, value: int | None) -> Part:
    return cut.parse(asked(cut.name(key), value))


@given(low=KEYS, high=KEYS, count=st.integers(1, 4096), value=KEYS, times=st.integers(2, 999))
def test_a_number_is_in_the_part_whose_condition_it_meets(
    low: int, high: int, count: int, value: int, times: int
) -> None:
    """Also outside of all ranges; its finer part lies in it."""
    cut = ranges(min(low, high), max(low, high), count)
    finer = cut.finer(times)
    part = part_of(cut, NUMBER, value)

    assert isinstance(part, int)
    assert -1 <= part <= cut.count <= count
    assert (0 <= part < cut.count) == (cut.low <= value <= cut.high)
    assert asked(cut.condition(NUMBER, [part]), value) is True
    assert asked(cut.condition(NUMBER, {part - 1, part + 1}), value) is False
    assert cut.is_divisible(part) == (0 <= part < cut.count and cut.width > 1)
    if finer is not None and 0 <= part < cut.count:
        [(first, last)] = cut.spans([part]) or ()
        [(inner_first, inner_last)] = finer.spans([part_of(finer, NUMBER, value)]) or ()
        assert first <= inner_first <= value <= inner_last <= last
        assert last - first + 1 <= times * (inner_last - inner_first + 1)
    elif finer is None:
        assert cut.width == 1


@given(value=KEYS, count=st.integers(1, 5000))
def test_a_hash_has_as_many_parts_as_its_digits(value: int, count: int) -> None:
    """Its condition finds it; more digits go on where the fewer end."""
    cut = hash_digits(count)
    part = part_of(cut, TEXT, value)

    assert 16**cut.digits <= max(count, 16)
    assert asked(cut.condition(TEXT, [part]), value) is True
    finer = cut.finer(17)
    assert finer == HashDigits(cut.digits + 1)
    assert str(part_of(finer, TEXT, value)).startswith(str(part))
    assert cut.finer(15) is None


def test_neighbouring_ranges_are_one_span() -> None:
    """Of several cuts all of them; where one has no bounds, there are no spans."""
    cut = ranges(0, 79, 10)
    chosen = Chosen()
    chosen.add(cut, {1, 2, 5})
    assert chosen.spans() == [(8, 23), (40, 47)]

    chosen.add(cut, {-1})
    assert chosen.spans() == []
    assert Chosen().condition(NUMBER) == "(1 = 0)"


@pytest.mark.parametrize(("value", "is_meant"), [(None, True), (-5, True), (3, False), (99, False)])
def test_a_key_without_a_value_is_before_all_others(value: int | None, is_meant: bool) -> None:
    """A warehouse can hold keys that the source cannot."""
    cut = ranges(0, 79, 10)

    assert (part_of(cut, NUMBER, value) == -1) == is_meant
    assert asked(cut.condition(NUMBER, [-1]), value) is is_meant
