"""Outcomes of signals: kept until the end of each copy is durable, served by ReaderControl, waited for by the command."""

import secrets

import msgspec
import pytest

from libs.operations.signal_wait import SignalEnd, SignalProgress, end_at
from libs.operations.status import IncrementalStatus, SignalStatus, SourceStatus
from libs.source.control import ReaderControl
from libs.source.incremental import chunk_delivered, take_signal
from libs.source.signal_outcomes import (
    STOPPED,
    SignalOutcome,
    durable,
    note_finished,
    note_given_up,
    note_refused,
    note_taken,
    recent_signals,
)
from libs.source.signals import ExecuteSnapshot, PauseSnapshot, Signal, StopSnapshot
from libs.source.status import ReaderStatus
from libs.types.checkpoint import NO_INCREMENTAL, IncrementalSnapshot
from libs.types.position import SourcePartition
from protos.headwater.reader_control.v1 import reader_control_pb2 as pb

CAPTURED = ["shop.customers", "shop.orders"]
BOTH = ExecuteSnapshot("s1", ("shop\\..*",))


class Reader:
    """The bookkeeping of one reader, without a log."""

    def __init__(self) -> None:
        self.place = (secrets.token_hex(4), "0")
        self.state = NO_INCREMENTAL

    def takes(self, signal: Signal) -> list[str]:
        self.state, notes = take_signal(self.state, signal, CAPTURED)
        note_taken(self.place, signal, self.state, notes)
        return notes

    def finishes(self, rows: int) -> None:
        """The first table, not durably yet."""
        copy = self.state.tables[0]
        read = msgspec.structs.replace(copy, rows_read=rows)
        self.state = chunk_delivered(self.state, read, is_last=True)
        note_finished(self.place, read)

    def commits(self, state: IncrementalSnapshot | None = None) -> None:
        durable(self.place, state if state is not None else self.state)

    def outcome(self, signal_id: str) -> SignalOutcome:
        return next(each for each in recent_signals(self.place) if each.signal_id == signal_id)


def test_a_copy_is_over_once_its_end_is_durable() -> None:
    reader = Reader()
    reader.takes(BOTH)
    before = reader.state
    reader.finishes(7)
    reader.commits(before)  # a transaction of before is committed
    early = reader.outcome("s1")
    assert (early.tables, early.finished, early.is_over) == (2, 0, False)

    reader.commits()
    half = reader.outcome("s1")
    assert (half.finished, half.is_over) == (1, False)

    reader.finishes(5)
    reader.commits()
    whole = reader.outcome("s1")

    assert (whole.finished, whole.rows_read, whole.is_over) == (2, 12, True)


def test_a_signal_that_asks_for_what_waits_already_waits_for_it() -> None:
    """One copy serves both."""
    reader = Reader()
    reader.takes(BOTH)
    reader.takes(ExecuteSnapshot("s2", ("shop.orders",)))

    assert list(reader.outcome("s2").waiting) == [("shop.orders", "s1")]
    reader.finishes(1)
    reader.finishes(2)
    reader.commits()
    assert (reader.outcome("s2").rows_read, reader.outcome("s2").is_over) == (2, True)


def test_other_rows_of_the_same_table_are_another_copy() -> None:
    reader = Reader()
    reader.takes(ExecuteSnapshot("all", ("shop.orders",)))
    reader.takes(ExecuteSnapshot("some", ("shop.orders",), (("shop.orders", "id > 2"),)))

    assert list(reader.outcome("some").waiting) == [("shop.orders", "some")]


def test_a_stop_and_a_refused_table_end_copies_with_their_reasons() -> None:
    """A copy that was never in a checkpoint too."""
    reader = Reader()
    reader.takes(BOTH)
    note_given_up(reader.place, reader.state.tables[:1], "shop.customers is not captured any more")
    reader.state = msgspec.structs.replace(reader.state, tables=reader.state.tables[1:])
    reader.takes(StopSnapshot("s3"))
    reader.commits()

    ended = reader.outcome("s1")
    assert ended.given_up == {"shop.customers": "shop.customers is not captured any more", "shop.orders": STOPPED}
    assert (ended.finished, ended.given_up_count, ended.is_over) == (0, 2, True)
    assert reader.outcome("s3").is_over


def test_parts_that_failed_and_refusals_are_kept() -> None:
    reader = Reader()
    reader.takes(ExecuteSnapshot("s1", ("shop.nowhere",)))
    note_refused(reader.place, "s2", "type 'x' is unknown")

    assert reader.outcome("s1").not_done == ("shop.nowhere: no captured table has this name",)
    assert reader.outcome("s1").is_over
    assert reader.outcome("s2").refused_because == "type 'x' is unknown"


def test_only_the_newest_signals_are_kept() -> None:
    reader = Reader()
    for number in range(60):
        reader.takes(PauseSnapshot(str(number)))

    kept = [each.signal_id for each in recent_signals(reader.place)]
    assert (kept[0], kept[-1], len(kept)) == ("10", "59", 50)


async def test_a_reader_serves_its_outcomes() -> None:
    """As ``GetStatus`` has them."""
    reader = Reader()
    reader.takes(ExecuteSnapshot("s1", ("shop.orders", "shop.nowhere")))
    control = ReaderControl(ReaderStatus(SourcePartition(source=reader.place[0], name=reader.place[1])), lambda _: 0)

    (told,) = (await control.GetStatus(pb.GetStatusRequest(), None)).signals  # type: ignore[arg-type]

    assert (told.signal_id, told.kind, told.tables, told.waiting) == ("s1", "execute-snapshot", 1, 1)
    assert list(told.not_done) == ["shop.nowhere: no captured table has this name"]
    assert list(told.copied_by) == ["s1"]


TAKEN = SignalStatus(signal_id="s1", kind="execute-snapshot", at_us=1, tables=2)
READING = IncrementalStatus(table="shop.orders", signal_id="s1", chunks_read=1, rows_read=40, rows_estimated=100)
STREAMING = SourceStatus(source="shop", source_partition="0", state="streaming", signals_offset=5)


def reader_with(**facts: object) -> SourceStatus:
    return msgspec.structs.replace(STREAMING, **facts)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (reader_with(state="unknown", detail="does not answer (UNAVAILABLE)"), "does not answer"),
        (reader_with(signals_offset=None), "has yet to reach the signal"),
        (reader_with(signals_offset=4, signals=(TAKEN,)), "has yet to reach the signal"),  # another one of this id
        (
            reader_with(signals=(msgspec.structs.replace(TAKEN, waiting=2),), incremental=(READING,)),
            "reads shop.orders",
        ),
        (reader_with(incremental=(READING,)), "1 table(s) to go"),  # started again since
    ],
)
def test_a_reader_without_an_outcome_is_waited_for(status: SourceStatus, said: str) -> None:
    found = end_at("reader-shop", status, "s1", 4)

    assert isinstance(found, SignalProgress)
    assert said in found.said


@pytest.mark.parametrize(
    ("status", "is_done", "rows", "said"),
    [
        (reader_with(signals=(msgspec.structs.replace(TAKEN, finished=2, rows_read=9),)), True, 9, ""),
        (reader_with(signals=(msgspec.structs.replace(TAKEN, refused_because="no"),)), False, 0, "refused: no"),
        (reader_with(signals=(msgspec.structs.replace(TAKEN, not_done=("x: no",)),)), False, 0, "not done: x: no"),
        (
            reader_with(signals=(msgspec.structs.replace(TAKEN, given_up={"shop.t": "no key"}, given_up_count=3),)),
            False,
            0,
            "shop.t: given up: no key",
        ),
        (reader_with(finished_copies={"s1": 12}), True, 12, ""),  # started again since
        (reader_with(), False, 0, "passed the signal before its process was started again"),
        (reader_with(state="halted", detail="1045 Access denied"), False, 0, "is halted"),
    ],
)
def test_an_outcome_has_its_rows_and_its_failures(status: SourceStatus, is_done: bool, rows: int, said: str) -> None:
    found = end_at("reader-shop", status, "s1", 4)

    assert isinstance(found, SignalEnd)
    assert (found.is_done, found.rows_read) == (is_done, rows)
    assert said in " ".join(found.failures)
