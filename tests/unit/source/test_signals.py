"""Signals in Debezium's form, and their changes to the snapshot that is under way."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from libs.source.incremental import begin_again, chunk_delivered, drop_first, drop_table, take_signal, taken_over
from libs.source.signals import (
    ExecuteSnapshot,
    InvalidSignal,
    LogMessage,
    PauseSnapshot,
    ResumeSnapshot,
    Signal,
    StopSnapshot,
    parse_signal,
    signal_of,
)
from libs.types.checkpoint import FinishedCopy, IncrementalSnapshot, TableCopy

SIGNALS = json.loads(Path("tests/golden/cases/f_incremental_snapshot.json").read_text(encoding="utf-8"))["signals"]
CAPTURED = ["p.a", "p.b", "p.c", "q.a"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("execute", ExecuteSnapshot("", ("db.table",))),
        ("stop", StopSnapshot("", ("db.table",))),
        ("pause", PauseSnapshot("")),
        ("resume", ResumeSnapshot("")),
    ],
)
def test_the_recorded_signals_are_understood(name: str, expected: Signal) -> None:
    assert parse_signal(json.dumps(SIGNALS[name])) == expected


def test_conditions_and_surrogate_key() -> None:
    """The older form of one condition is for every table."""
    data = {
        "data-collections": ["p.a", r"q\..*"],
        "additional-conditions": [
            {"data-collection": "p.a", "filter": "v = 1"},
            {"data-collection": "q.a", "filter": " "},
        ],
        "surrogate-key": "seq",
        "type": "incremental",
    }
    assert signal_of("s1", "execute-snapshot", data) == ExecuteSnapshot(
        "s1", ("p.a", r"q\..*"), (("p.a", "v = 1"),), "seq"
    )
    old = {"data-collections": ["p.a"], "additional-condition": "v = 2"}
    assert signal_of("s2", "execute-snapshot", json.dumps(old)) == ExecuteSnapshot("s2", ("p.a",), ((".*", "v = 2"),))
    assert signal_of("s3", "log", '{"message": "hello"}') == LogMessage("s3", "hello")
    assert signal_of("s4", "stop-snapshot", None) == StopSnapshot("s4")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not JSON"),
        ("[1]", "must be a JSON object"),
        ('{"type": "execute-snapshott"}', "known: execute-snapshot"),
        ('{"type": "pause-snapshot", "dat": {}}', "unknown member(s) dat"),
        ('{"type": "execute-snapshot"}', "data-collections: must be a list"),
        ('{"type": "execute-snapshot", "data": {"data-collections": "p.a"}}', "data-collections: must be a list"),
        (
            '{"type": "execute-snapshot", "data": {"data-collections": ["p.("]}}',
            "neither a name nor a regular expression",
        ),
        ('{"type": "execute-snapshot", "data": {"data-collections": [], "type": "BLOCKING"}}', "BLOCKING"),
        ('{"type": "execute-snapshot", "data": "{"}', "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (
            '{"type": "execute-snapshot", "data": {"data-collections": ["p.a"], "tenants": []}}',
            "tenants: must be a list of tenants' names; leave it out for all",
        ),
        (
            '{"type": "execute-snapshot", "data": {"data-collections": ["p.a"], "tenants": "acme"}}',
            "tenants: must be a list",
        ),
    ],
)
def test_a_signal_that_cannot_act_is_refused_with_its_mistake(text: str | bytes, says: str) -> None:
    with pytest.raises(InvalidSignal) as refused:
        parse_signal(text)

    assert says in str(refused.value)


def test_tables_are_queued_once_and_unknown_ones_are_told_of() -> None:
    """The recorded scenarios invalid-table-in-list and correlation-latest-wins: each table keeps its own signal's id."""
    state, notes = take(IncrementalSnapshot(), ExecuteSnapshot("s1", ("p.none", "p.a", "p.b", "p.a")))
    state, _ = take(state, ExecuteSnapshot("s2", ("p.b", r".*\.c")))

    assert [(copy.table, copy.signal_id) for copy in state.tables] == [("p.a", "s1"), ("p.b", "s1"), ("p.c", "s2")]
    assert notes == ["p.none: no captured table has this name"]


@pytest.mark.parametrize(
    "begun",
    [
        TableCopy(table="p.a", last_key=b"k", maximum_key=b"m"),
        TableCopy(table="p.a", maximum_key=b"m"),
        TableCopy(table="p.a", last_key=b"k"),  # a reader that asks nobody where the table ends
    ],
)
def test_a_table_that_is_being_read_is_read_again_behind(begun: TableCopy) -> None:
    state = IncrementalSnapshot(tables=(begun,))

    state, _ = take(state, ExecuteSnapshot("s2", ("p.a",)))

    assert state.tables == (begun, TableCopy(table="p.a", signal_id="s2"))


def test_rows_of_a_request_that_was_stopped_do_not_move_the_next_one_on() -> None:
    """It is of the same table, under other conditions: not one row of it was read."""
    state, _ = take(IncrementalSnapshot(), ExecuteSnapshot("s1", ("p.a",), conditions=(("p.a", "id < 9"),)))
    (stopped,) = state.tables
    state, _ = take(state, StopSnapshot("", ("p.a",)))
    state, _ = take(state, ExecuteSnapshot("s2", ("p.a",)))

    assert chunk_delivered(state, msgspec.structs.replace(stopped, last_key=b"k"), is_last=True) == state


def test_of_two_requests_of_a_table_one_is_refused_alone() -> None:
    state, _ = take(IncrementalSnapshot(), ExecuteSnapshot("s1", ("p.a",), conditions=(("p.a", "no SQL"),)))
    state, _ = take(state, ExecuteSnapshot("s2", ("p.a",)))

    assert drop_first(state).tables == (TableCopy(table="p.a", signal_id="s2"),)


def test_pausing_stopping_and_going_on() -> None:
    state, _ = take(IncrementalSnapshot(signals_offset=7), ExecuteSnapshot("s", ("p.a", "p.b", "p.c")))
    state, _ = take(state, PauseSnapshot(""))
    assert state.is_paused
    state, _ = take(state, ResumeSnapshot(""))
    state, notes = take(state, StopSnapshot("", ("p.b", "q.a")))
    assert not state.is_paused
    assert [copy.table for copy in state.tables] == ["p.a", "p.c"]
    assert notes == ["q.a: no snapshot of it to stop"]
    state, _ = take(state, StopSnapshot(""))
    assert state == IncrementalSnapshot(signals_offset=7)


def test_chunks_move_the_first_table_on_and_its_last_takes_it_off() -> None:
    state, _ = take(IncrementalSnapshot(), ExecuteSnapshot("s", ("p.a", "p.b")))
    moved = msgspec.structs.replace(state.tables[0], last_key=b"k", rows_read=5)

    state = chunk_delivered(state, moved, is_last=False)
    assert state.tables[0] == moved
    assert begin_again(state, "p.a").tables[0].last_key == b""
    assert chunk_delivered(state, TableCopy(table="p.x"), is_last=True) == state  # it was stopped meanwhile
    state = chunk_delivered(state, moved, is_last=True)
    assert [copy.table for copy in state.tables] == ["p.b"]
    assert drop_table(state, "p.b").tables == ()


def test_only_a_table_that_was_read_to_its_end_is_finished() -> None:
    """A program that has a table built from a copy must know its end from a stop, or from a table that could not be read."""
    state, _ = take(IncrementalSnapshot(), ExecuteSnapshot("s", ("p.a", "p.b", "p.c")))
    state = drop_table(state, "p.a")
    state, _ = take(state, StopSnapshot("", ("p.b",)))
    state = chunk_delivered(state, msgspec.structs.replace(state.tables[0], rows_read=5), is_last=True)

    assert state.finished == (FinishedCopy(table="p.c", signal_id="s", rows_read=5),)


def test_a_chunk_of_a_stopped_copy_moves_no_other_copy_of_the_table_on() -> None:
    """It would begin in the middle, and deliver to whom the stopped one was for."""
    state, _ = take(IncrementalSnapshot(), ExecuteSnapshot("all", ("p.a",)))
    chunk = msgspec.structs.replace(state.tables[0], last_key=b"k", rows_read=5)
    state, _ = take(state, StopSnapshot("", ("p.a",)))
    state, _ = take(state, ExecuteSnapshot("one", ("p.a",), for_tenants=("acme",)))

    assert chunk_delivered(state, chunk, is_last=False) == state
    assert chunk_delivered(state, chunk, is_last=True) == state


def test_tenants_of_a_signal_are_those_of_its_copies() -> None:
    signal = parse_signal(
        '{"id": "j", "type": "execute-snapshot", "data": {"data-collections": ["p.a"], "tenants": ["b", "a", "b"]}}'
    )
    state, _ = take(IncrementalSnapshot(), signal)

    assert [copy.for_tenants for copy in state.tables] == [("a", "b")]
    assert chunk_delivered(state, state.tables[0], is_last=True).finished[0].for_tenants == ("a", "b")


def test_a_copy_for_one_tenant_serves_no_other_and_not_all() -> None:
    state = IncrementalSnapshot()
    for signal_id, tenants in (("1", ("a",)), ("2", ("b",)), ("3", ()), ("4", ("a",))):
        state, _ = take(state, ExecuteSnapshot(signal_id, ("p.a",), for_tenants=tenants))

    assert [(copy.signal_id, copy.for_tenants) for copy in state.tables] == [("1", ("a",)), ("2", ("b",)), ("3", ())]


def test_a_signal_for_tenants_that_is_sent_again_acts_once() -> None:
    """A sender that was killed between sending and noting it sends it again: while the table waits, is read, or was read."""
    signal = ExecuteSnapshot("join-1", ("p.a",), for_tenants=("acme",))
    waiting, _ = take(IncrementalSnapshot(), signal)
    begun = chunk_delivered(
        waiting, msgspec.structs.replace(waiting.tables[0], last_key=b"k", maximum_key=b"m"), is_last=False
    )
    finished = chunk_delivered(begun, begun.tables[0], is_last=True)

    for state in (waiting, begun, finished):
        assert take(state, signal) == (state, [])


def test_of_finished_tables_the_newest_are_kept() -> None:
    state = IncrementalSnapshot()
    for number in range(50):
        state, _ = take(state, ExecuteSnapshot(f"s{number}", ("p.a",)))
        state = chunk_delivered(state, state.tables[0], is_last=True)

    assert [copy.signal_id for copy in state.finished] == [f"s{number}" for number in range(30, 50)]


def take(state: IncrementalSnapshot, signal: Any) -> tuple[IncrementalSnapshot, list[str]]:
    return take_signal(state, signal, CAPTURED)


def test_who_goes_on_for_several_does_all_that_one_of_them_had_not_finished() -> None:
    """From the beginning; signals from where the slowest stood, so that none is lost."""
    begun = TableCopy(
        table="p.a", signal_id="1", last_key=b"k", maximum_key=b"m", rows_read=3, rows_estimated=9, chunks_read=1
    )
    waiting = TableCopy(table="p.b", signal_id="2", condition="v = 1")
    ends = [FinishedCopy(table="p.c", signal_id=str(number)) for number in range(2)]
    slow = IncrementalSnapshot(tables=(begun, waiting), signals_offset=5, is_paused=True, finished=tuple(ends))
    fast = IncrementalSnapshot(tables=(waiting,), signals_offset=8, finished=(ends[1],))

    state = taken_over([fast, slow])

    assert state.tables == (TableCopy(table="p.a", signal_id="1"), waiting)
    assert (state.signals_offset, state.is_paused) == (5, True)
    assert state.finished == (ends[1],)
    assert taken_over([]) == IncrementalSnapshot()
