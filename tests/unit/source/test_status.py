"""A reader's report on its snapshots: how far, and how long yet."""

import pytest
from prometheus_client import REGISTRY

from libs.source.port import ResumePoint
from libs.source.publisher import Published
from libs.source.status import ReaderState, ReaderStatus
from libs.telemetry.faults import READER_HALTED, lasting_faults, lift_fault
from libs.types.checkpoint import NO_INCREMENTAL, IncrementalSnapshot, SnapshotProgress, TableCopy
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of day, set by a test."""
    now_s = [100.0]
    monkeypatch.setattr("libs.source.status.time.monotonic", lambda: now_s[0])
    return now_s


def published(snapshot: SnapshotProgress | None = None, incremental: IncrementalSnapshot = NO_INCREMENTAL) -> Published:
    resume = ResumePoint(
        position=SourcePosition(source_kind="mysql", token=b"p"),
        order=EventOrder(epoch=0, rank=0, tx_ordinal=0),
        committed_at_us=0,
        snapshot=snapshot,
        incremental=incremental,
    )
    return Published(resume=resume, rows_published=0)


def test_a_reader_that_is_resumed_is_what_it_was() -> None:
    """One that halted while it was paused stays halted after each resume."""
    status = ReaderStatus(SourcePartition(source="held", name="0"))
    status.connected(None)
    status.pause()
    status.pause()
    status.interrupted("refused", retry_s=0.5)
    status.connected(None)
    states = [status.state]
    status.resume()
    states.append(status.state)
    status.pause()
    status.halted("AccessDenied")
    status.resume()

    assert [*states, status.state] == [ReaderState.PAUSED, ReaderState.SNAPSHOTTING, ReaderState.HALTED]


def test_an_interrupted_reader_says_why_and_since_when() -> None:
    """The first failure of a row gives the time; a connection ends it."""
    status = ReaderStatus(SourcePartition(source="away", name="0"))
    status.connecting()
    states = [status.state]
    status.interrupted("refused", retry_s=0.5)
    first = status.interruption
    status.interrupted("timed out", retry_s=1.0)
    status.connecting()
    states.append(status.state)
    told = [fault.happened for fault in lasting_faults() if fault.scope.source == "away"]
    again = status.interruption
    status.connected(None)

    assert states == [ReaderState.CONNECTING, ReaderState.DISCONNECTED]
    assert first is not None
    assert again is not None
    assert (again.error, again.since_us) == ("timed out", first.since_us)
    assert again.next_try_us - again.since_us >= 1_000_000
    assert told == ["timed out"]
    assert (status.state, status.interruption) == (ReaderState.SNAPSHOTTING, None)
    assert [fault for fault in lasting_faults() if fault.scope.source == "away"] == []


def test_a_halted_reader_is_seen_by_the_alert() -> None:
    """``headwater_halted`` is 0 until then."""
    status = ReaderStatus(SourcePartition(source="broken", name="0"))
    before = REGISTRY.get_sample_value("headwater_halted", {"source": "broken"})
    status.halted("AccessDenied: correct user and password")
    told = [fault for fault in lasting_faults() if fault.scope.source == "broken"]
    lift_fault(READER_HALTED, told[0].scope)

    assert (before, REGISTRY.get_sample_value("headwater_halted", {"source": "broken"})) == (0, 1)
    assert (status.state, told[0].id) == (ReaderState.HALTED, "reader_halted")


def test_a_snapshot_tells_how_long_it_takes_yet(clock: list[float]) -> None:
    """By the rate of this run, once there is one; nothing of a table whose rows nobody estimated, or when it is done."""
    status = ReaderStatus(SourcePartition(source="eta", name="0"))
    remaining = []

    for now_s, rows in ((100.0, 500), (110.0, 600), (120.0, 900), (130.0, 1_100)):
        clock[0] = now_s
        status.published(published(SnapshotProgress(rows_copied=rows, rows_estimated=1_000)))
        remaining.append(status.snapshot_remaining_s)
    assert remaining == [None, 40.0, 5.0, 0.0]
    labels = {"source": "eta", "source_partition": "0"}
    assert REGISTRY.get_sample_value("headwater_snapshot_rows", labels) == 1_100
    assert status.state is ReaderState.SNAPSHOTTING

    status.published(published())
    assert (status.snapshot_remaining_s, status.state) == (None, ReaderState.STREAMING)
    assert REGISTRY.get_sample_value("headwater_snapshot_remaining_seconds", labels) == 0

    clock[0] = 140.0
    status.published(published(SnapshotProgress(rows_copied=1_200)))
    assert status.snapshot_remaining_s is None


def test_each_table_of_an_incremental_snapshot_has_a_rate_of_its_own(clock: list[float]) -> None:
    """And begins again after a pause, or where the table does."""
    status = ReaderStatus(SourcePartition(source="eta2", name="0"))
    remaining = []

    for now_s, table, rows, is_paused in (
        (100.0, "a", 0, False),
        (110.0, "a", 10, False),
        (120.0, "b", 0, False),
        (121.0, "b", 50, True),
        (130.0, "b", 50, False),
        (131.0, "b", 75, False),
        (132.0, "b", 0, False),
        (142.0, "b", 20, False),
    ):
        clock[0] = now_s
        copy = TableCopy(table=table, rows_read=rows, rows_estimated=100)
        status.published(published(incremental=IncrementalSnapshot(tables=(copy,), is_paused=is_paused)))
        remaining.append(status.incremental_remaining_s)

    assert remaining == [None, 90.0, None, None, None, 1.0, None, 40.0]
