"""Facts about tenants that lag, without a broker."""

import pytest

from libs.events.names import is_straggling
from libs.types.order import EventOrder
from services.router.kafka.straggler_offsets import noted_topic_id, own_note, straggler_count
from services.router.progress import tenants_progress
from services.router.stragglers import straggler
from services.router.stragglers.missed_batches import RecentBatches
from services.router.stragglers.straggler import Obstacle
from services.router.transactions.lane_state import LanePosition, TenantPosition
from services.router.transactions.outputs import Reached, WaitingBatch


def batches(*offsets: int, size: int = 10) -> list[WaitingBatch]:
    """Of these offsets."""
    return [WaitingBatch(offset, b"x" * size) for offset in offsets]


def offsets(found: list[WaitingBatch] | None) -> list[int] | None:
    """Of the batches that were found."""
    return None if found is None else [batch.offset for batch in found]


def test_recent_batches_are_found_whole_or_not_at_all() -> None:
    """Over several chunks, with the gaps that transaction marks leave; a stretch that may have a hole is not given."""
    recent = RecentBatches()
    recent.add(10, 14, batches(10, 12, 13))
    recent.add(14, 21, batches(15, 20))
    recent.add(30, 31, batches(30))

    assert offsets(recent.between(11, 21)) == [12, 13, 15, 20]
    assert offsets(recent.between(14, 20)) == [15]
    assert offsets(recent.between(21, 21)) == []
    assert recent.between(9, 14) is None
    assert recent.between(20, 31) is None
    assert offsets(recent.at(12, 40)) == [12, 13]
    assert recent.at(25, 40) == []


def test_recent_batches_take_bounded_memory() -> None:
    """The oldest go first."""
    recent = RecentBatches(most_bytes=100)
    for offset in range(20):
        recent.add(offset, offset + 1, batches(offset, size=30))

    assert recent.between(10, 20) is None
    assert offsets(recent.between(17, 20)) == [17, 18, 19]


def test_a_server_that_is_away_for_longer_than_a_restart_takes_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then its error is tried again, and is no refusal."""
    obstacle = Obstacle("slow")

    obstacle.lack_server("the registry is away")
    assert (obstacle.is_stuck, obstacle.refusal) == (True, None)

    monkeypatch.setattr(straggler, "_UNAVAILABLE_PATIENCE_S", 0.0)
    obstacle.lack_server("the registry is away")
    assert obstacle.refusal == "the registry is away"


@pytest.mark.parametrize(("behind", "note"), [((), ""), (("a", "b", "c"), "straggling=3;")])
def test_how_many_are_behind_stands_beside_the_offset(behind: tuple[str, ...], note: str) -> None:
    """And is read back."""
    assert own_note(behind) == note
    assert straggler_count(note) == len(behind)
    assert noted_topic_id(note) == ""


@pytest.mark.parametrize("behind", [(), ("a", "b", "c")])
def test_the_topics_id_stands_beside_the_offset(behind: tuple[str, ...]) -> None:
    """After the count, and by itself no sign that a tenant lags."""
    note = own_note(behind, "Xy_-19")

    assert noted_topic_id(note + "7\x01") == "Xy_-19"
    assert straggler_count(note) == len(behind)
    assert is_straggling(note) is bool(behind)


def test_what_stands_behind_a_note_in_memory_is_no_part_of_it() -> None:
    """confluent-kafka 2.16 gives notes with the bytes that follow them; an older release wrote no sign after the number."""
    assert is_straggling("straggling\x01")
    assert straggler_count("straggling=12;7\x01") == 12
    assert straggler_count("straggling=12\x01") == 12
    assert not is_straggling("")
    assert not is_straggling(None)


@pytest.mark.parametrize("note", ["", "-", "by hand", "straggling", "straggling=x"])
def test_another_note_says_nothing(note: str) -> None:
    """An older release writes none, and people may write any text."""
    assert straggler_count(note) == 0


def test_progress_of_one_behind_is_its_own() -> None:
    """Others' is the lane's; where nothing is known since the lane opened, nothing is said."""
    here, there = (EventOrder(epoch=0, rank=rank, tx_ordinal=1) for rank in (9, 4))
    position = LanePosition(
        90,
        0.0,
        source="shop",
        source_partition="0",
        committed_at_us=900,
        order=here,
        tenants=frozenset({"quiet", "noisy", "unknown"}),
    )
    behind = {
        "noisy": TenantPosition(40, Reached(400, there), "is over its limits", is_stuck=False),
        "unknown": TenantPosition(1, Reached(), "lagged before the router started", is_stuck=False),
    }

    reports = {
        each.tenant: each for each in tenants_progress(position, behind, {"noisy": 4, "quiet": 9}, {"noisy": 100})
    }

    assert reports.keys() == {"quiet", "noisy"}
    assert (reports["quiet"].order, reports["quiet"].committed_at_us, reports["quiet"].rows) == (here, 900, 9)
    assert (reports["noisy"].order, reports["noisy"].committed_at_us, reports["noisy"].rows) == (there, 400, 104)
