"""When a partition counts as standing still."""

from services.router.lane.lanes import ChangesPartition
from services.router.liveness import Standing, standing_partitions

P0, P1 = ChangesPartition("changes", 0), ChangesPartition("changes", 1)


def test_partition_at_its_end_does_not_stand() -> None:
    """A position at the end leaves nothing to do."""
    assert standing_partitions({}, {P0: 5}, {P0: 5}, {}, 10.0) == {}


def test_partition_behind_its_end_stands_since_it_was_first_seen_there() -> None:
    """The clock starts at the first look and runs on, however far the end moves away."""
    first = standing_partitions({}, {P0: 5}, {P0: 7}, {}, 10.0)
    second = standing_partitions(first, {P0: 5}, {P0: 900}, {}, 20.0)

    assert first == {P0: Standing(5, 7, 10.0)}
    assert second == {P0: Standing(5, 900, 10.0)}


def test_any_step_starts_the_clock_anew() -> None:
    """A slow lane is no stalled one."""
    before = {P0: Standing(5, 900, 10.0)}

    assert standing_partitions(before, {P0: 6}, {P0: 900}, {}, 20.0) == {P0: Standing(6, 900, 20.0)}


def test_end_with_only_markers_before_it_does_not_count_until_it_moves() -> None:
    """Aborted batches and transaction markers take offsets, and are no work."""
    nothing_behind = {P0: 7}

    assert standing_partitions({}, {P0: 5}, {P0: 7}, nothing_behind, 10.0) == {}
    assert standing_partitions({}, {P0: 5}, {P0: 8}, nothing_behind, 10.0) == {P0: Standing(5, 8, 10.0)}


def test_partitions_are_judged_each_by_itself() -> None:
    """One stalled lane is not hidden by another that moves."""
    before = {P0: Standing(5, 9, 1.0), P1: Standing(5, 9, 1.0)}

    now = standing_partitions(before, {P0: 5, P1: 6}, {P0: 9, P1: 9}, {}, 2.0)

    assert (now[P0].since_s, now[P1].since_s) == (1.0, 2.0)
