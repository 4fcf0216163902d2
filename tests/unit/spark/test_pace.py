"""The adaptive trigger and the limits of rows, batch by batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.sink_state.stream_offsets import StreamOffsets
from libs.types.tenant import SinkSettings
from spark.batch.pace import Pace, batch_limit, first_pace, is_full_batch, next_pace

ADAPTIVE = SinkSettings(trigger_s=5, trigger_max_s=60, trigger_rows=1000)
LIMIT = 250_000


def intervals(sink: SinkSettings, *batches: tuple[int, float]) -> list[float]:
    """The interval that is chosen after each batch of (rows, seconds)."""
    pace, found = first_pace(sink), []
    for rows, took_s in batches:
        pace = next_pace(sink, pace, rows=rows, took_s=took_s, is_full=rows >= LIMIT)
        found.append(pace.interval_s)
    return found


def test_small_batches_come_further_and_further_apart() -> None:
    """Up to the longest that is allowed."""
    assert intervals(ADAPTIVE, *[(10, 0.5)] * 5) == [10, 20, 40, 60, 60]


def test_large_batches_come_sooner_and_a_backlog_at_once() -> None:
    """Never sooner than the shortest."""
    grown = [(10, 0.5)] * 4

    assert intervals(ADAPTIVE, *grown, (1000, 2), (5000, 2))[4:] == [30, 15]
    assert intervals(ADAPTIVE, *grown, (LIMIT, 20), (5000, 2))[4:] == [5, 5]


def test_without_a_longest_the_trigger_is_fixed() -> None:
    """And nothing waits after a batch."""
    sink = SinkSettings(trigger_s=5)

    assert intervals(sink, (10, 0.1), (LIMIT, 9), (3, 7)) == [5, 5, 5]
    assert next_pace(sink, first_pace(sink), rows=10, took_s=0.1, is_full=False) == Pace(5, 0)


def test_the_wait_is_what_is_left_of_the_interval() -> None:
    """Nothing where the batch took longer."""
    assert next_pace(ADAPTIVE, Pace(20), rows=10, took_s=1.5, is_full=False) == Pace(40, 38.5)
    assert next_pace(ADAPTIVE, Pace(60), rows=10, took_s=61, is_full=False) == Pace(60, 0)


def test_a_batch_holds_what_the_least_limit_allows() -> None:
    """The job's, the tenant's, or its rate's for one trigger."""
    assert batch_limit(SinkSettings(), LIMIT) == LIMIT
    assert batch_limit(SinkSettings(max_batch_rows=900), LIMIT) == 900
    assert batch_limit(SinkSettings(max_batch_rows=900, max_rows_per_s=100.5, trigger_s=2), LIMIT) == 201
    assert batch_limit(SinkSettings(max_rows_per_s=0.01, trigger_s=2), LIMIT) == 1


@given(
    rate=st.floats(0.5, 1e6),
    longest_s=st.none() | st.floats(5, 600),
    batches=st.lists(st.tuples(st.integers(0, 100_000), st.floats(0.01, 100)), min_size=1, max_size=30),
)
def test_no_rate_is_exceeded_and_no_bound_left(
    rate: float, longest_s: float | None, batches: list[tuple[int, float]]
) -> None:
    """Over each batch with its pause."""
    sink = SinkSettings(trigger_s=5, trigger_max_s=longest_s, max_rows_per_s=rate)
    pace, limit = first_pace(sink), batch_limit(sink, LIMIT)
    for rows, took_s in batches:
        rows = min(rows, limit)
        pace = next_pace(sink, pace, rows=rows, took_s=took_s, is_full=rows == limit)
        assert 5 <= pace.interval_s <= (longest_s or 5)
        assert rows <= rate * (took_s + pace.pause_s) * (1 + 1e-9)
        assert pace.pause_s <= max(pace.interval_s, rows / rate)


@pytest.mark.parametrize("took_s", [0.0, 4.0])
def test_a_rate_is_held_within_the_shortest_interval(took_s: float) -> None:
    """Spark may begin the next batch at once where the tick is near."""
    sink = SinkSettings(trigger_s=5, max_rows_per_s=100)

    assert next_pace(sink, first_pace(sink), rows=500, took_s=took_s, is_full=True).pause_s == 5 - took_s


@pytest.mark.parametrize(
    ("ends", "ends_before", "expected"),
    [
        ({"t": {0: 1000}}, {"t": {0: 0}}, True),
        ({"t": {0: 900, 1: 100}}, {"t": {0: 0, 1: 2}}, True),  # as Spark deals 1000 out to two partitions
        ({"t": {0: 900, 1: 100}}, {"t": {0: 0, 1: 3}}, False),
        ({"t": {0: 600}, "u": {0: 900}}, {"t": {0: 100}, "u": {0: 400}}, True),
        ({"t": {0: 5000}}, {}, False),
        ({"t": {0: 10}, "new": {0: 5000}}, {"t": {0: 10}}, False),
        ({}, {}, False),
    ],
)
def test_a_full_batch_is_one_that_took_as_many_offsets_as_it_could(
    ends: StreamOffsets, ends_before: StreamOffsets, expected: bool
) -> None:
    """Of which a third may be the marks of transactions: events alone never reach the limit."""
    assert is_full_batch(ends, ends_before, 1000) is expected
