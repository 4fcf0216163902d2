"""When parked tables are tried again."""

import msgspec
import pytest

from libs.sink_state.progress import ParkedTable
from spark.pending.retries import FIRST_WAIT_S, LONGEST_WAIT_S, Retries, first_piece, left_behind, with_joined


def test_a_table_is_tried_at_the_start_for_a_new_version_and_ever_more_rarely() -> None:
    """Each try reads everything since the table was parked: not at each batch."""
    now_s = [0.0]
    retries = Retries(clock=lambda: now_s[0])

    def tried_at(*times_s: float, version: int = 1) -> list[float]:
        due = []
        for at_s in times_s:
            now_s[0] = at_s
            due += [at_s] if retries.is_due("t", version) else []
        return due

    assert tried_at(0, 1, 59, 60, 61, 179, 180, 419, 420) == [0, 60, 180, 420]
    assert tried_at(421, 422, version=2) == [421]
    assert tried_at(423, version=1) == []
    assert tried_at(481, version=2) == [481]
    assert retries.is_due("another", 1)
    for _ in range(10):
        now_s[0] += LONGEST_WAIT_S
        assert retries.is_due("t", 2)


def test_whether_a_try_is_due_can_be_asked_without_one() -> None:
    """Of tables that were never tried, that are due again, and that were written since."""
    now_s = [0.0]
    retries = Retries(clock=lambda: now_s[0])

    assert not retries.is_any_due([])
    assert retries.is_any_due(["a"])
    assert retries.is_due("a", 1)
    assert not retries.is_any_due(["a"])
    assert retries.is_any_due(["a", "b"])
    now_s[0] = FIRST_WAIT_S
    assert retries.is_any_due(["a"])
    assert retries.is_due("a", 1)
    retries.written("a")
    assert retries.is_any_due(["a"])
    assert retries.is_due("a", 1)


@pytest.mark.parametrize(
    ("begins", "ends", "limit", "piece"),
    [
        ({0: 5}, {0: 105}, 100, {0: 105}),
        ({0: 5}, {0: 106}, 100, {0: 105}),
        ({0: 0, 1: 0}, {0: 900, 1: 100}, 100, {0: 90, 1: 10}),
        ({0: 0, 1: 7}, {0: 900, 1: 7}, 1, {0: 1, 1: 7}),
        ({}, {0: 3}, 2, {0: 2}),  # a Kafka partition that came later is read from its begin
    ],
)
def test_a_piece_gets_on_and_never_beyond_the_end(
    begins: dict[int, int], ends: dict[int, int], limit: int, piece: dict[int, int]
) -> None:
    assert first_piece(begins, ends, limit) == piece


@pytest.mark.parametrize(
    ("ends", "waits_from"),
    [({0: 40}, {0: 40, 1: 3}), ({0: 90}, {0: 90, 1: 3}), ({0: 5, 1: 7}, {0: 10, 1: 7}), ({0: 90, 1: 7}, None)],
)
def test_what_is_left_waits_from_where_the_writing_ended(
    ends: dict[int, int], waits_from: dict[int, int] | None
) -> None:
    """Never from before where it began. The written part holds every row of a copy that stands in it."""
    waiting = ParkedTable(
        because="so", from_offsets={0: 10, 1: 3}, to_offsets={0: 90, 1: 7}, copies_from={0: 8, 1: 3}, piece_offsets=5
    )

    left = left_behind(waiting, ends)

    copies_from = {0: max(8, ends.get(0, 0)), 1: max(3, ends.get(1, 0))}
    assert left == (
        None
        if waits_from is None
        else msgspec.structs.replace(waiting, from_offsets=waits_from, copies_from=copies_from, is_catching_up=True)
    )


def test_what_joins_waits_from_where_it_lies() -> None:
    """After the waiting events, as a rule, or where nothing waits yet; events that a cut lets go may lie before. Rows of a copy
    that stand between are not waiting."""
    waiting = ParkedTable(because="so", from_offsets={0: 10, 1: 3}, to_offsets={0: 12, 1: 4}, copies_from={0: 9, 1: 2})

    joined = with_joined(waiting, {0: 5, 1: 4, 2: 8}, {0: 7, 1: 6, 2: 9})

    assert (joined.from_offsets, joined.to_offsets) == ({0: 5, 1: 3, 2: 8}, {0: 12, 1: 6, 2: 9})
    assert joined.copies_from == waiting.copies_from


def test_pieces_come_to_the_end() -> None:
    """Of Kafka partitions of any size."""
    begins, ends, pieces = {0: 0, 1: 10}, {0: 1_001, 1: 13}, 0
    while begins != ends:
        begins, pieces = first_piece(begins, ends, 100), pieces + 1
        assert all(begins[partition] <= end for partition, end in ends.items())

    assert pieces == 11


def test_a_table_that_is_asked_for_is_tried_at_once() -> None:
    """Its pauses begin again after that, and it is no more than a try: a table that nobody asked for waits on."""
    now_s = [0.0]
    retries = Retries(clock=lambda: now_s[0])
    for _ in range(5):
        assert retries.is_due("a", 1)
        now_s[0] += LONGEST_WAIT_S
    now_s[0] -= LONGEST_WAIT_S - 1
    assert not retries.is_due("a", 1)

    assert retries.is_due("a", 1, is_asked_for=True)

    assert not retries.is_due("a", 1)
    now_s[0] += FIRST_WAIT_S
    assert retries.is_due("a", 1)
