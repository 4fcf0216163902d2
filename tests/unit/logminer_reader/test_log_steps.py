"""Mined rows as steps: the order of commits, restarts within an SCN, gaps, incomplete transaction ids."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import pytest

from libs.errors import PipelineHalted
from libs.oracle.log_position import LogminerPosition, commit_order, snapshot_order
from libs.oracle.log_rows import Operation
from services.logminer_reader.log_steps import Committed, LogSteps
from services.logminer_reader.mined_rows import MinedDdl, MinedRow
from services.logminer_reader.transactions import OpenTransactions

FIRST = LogminerPosition(dbid=1, resetlogs_change=1, resetlogs_id=1, done_scn=100)


def xid(number: int, sequence: int | None = None) -> bytes:
    return number.to_bytes(4, "big") + (b"\xff" * 4 if sequence is None else sequence.to_bytes(4, "little"))


def row(scn: int, transaction: bytes, operation: Operation = Operation.INSERT, thread: int = 1) -> MinedRow:
    return MinedRow(
        scn=scn,
        xid=transaction,
        thread=thread,
        rs_id=f" 0x000001.{scn:08x}.0010 ",
        ssn=0,
        operation=operation.value,
        is_undo=0,
        goes_on=0,
        status=0,
        object_id=7,
        object_version=1,
        row_id="A",
        timestamp=datetime(2026, 1, 1, 2),
        user="APP",
        sequence=1,
        owner="SHOP",
        table="ORDERS",
        info=None,
        sql="text",
    )


def steps_from(position: LogminerPosition) -> LogSteps:
    transactions = OpenTransactions(
        None, memory_bytes=1 << 20, whole_from_scn=position.done_scn, server_offset=timedelta(hours=2)
    )
    return LogSteps(position, transactions)


def taken(steps: LogSteps, rows: Sequence[MinedRow], end: int = 0) -> list[tuple[int, int, bytes]]:
    found, nth = steps.take(rows)
    assert nth == len(rows)
    found += steps.end_window(end)
    return [(step.scn, step.nth, step.transaction.xid) for step in found if isinstance(step, Committed)]


A, B, C, OTHER = xid(1, 1), xid(2, 1), xid(3, 1), xid(9, 1)


def test_commits_of_one_scn_are_ordered_by_thread_whatever_their_rows_order_is() -> None:
    """Those of other tables are counted too, so the numbers depend on nothing that is captured."""
    rows = [
        row(100, A, thread=2),
        row(101, B),
        row(105, A, Operation.COMMIT, thread=2),
        row(105, OTHER, Operation.COMMIT),
        row(105, B, Operation.COMMIT),
    ]

    assert taken(steps_from(FIRST), rows) == [(105, 1, B), (105, 2, A)]


def test_a_restart_between_two_commits_of_one_scn_gives_the_second_alone() -> None:
    """Fault 1: the ranks are those of before, too."""
    rows = [row(101, A), row(102, B), row(105, A, Operation.COMMIT), row(105, B, Operation.COMMIT, thread=2)]
    position = msgspec.structs.replace(FIRST, done_scn=105, done_commits=1, low_scn=102)

    assert taken(steps_from(FIRST), rows) == [(105, 0, A), (105, 1, B)]
    assert taken(steps_from(position), rows) == [(105, 1, B)]
    assert commit_order(0, 105, 1) > commit_order(0, 105, 0) > snapshot_order(0, 104)


def test_a_commit_at_the_scn_of_the_copy_comes_and_is_above_the_copied_rows() -> None:
    """Fault 3: whether the copy has it is not documented."""
    rows = [row(100, A), row(100, A, Operation.COMMIT)]

    assert taken(steps_from(FIRST), rows) == [(100, 0, A)]
    first_event = msgspec.structs.replace(commit_order(0, 100, 0), tx_ordinal=1)
    assert first_event > snapshot_order(0, 100)


def test_the_low_scn_is_the_oldest_open_transactions() -> None:
    steps = steps_from(FIRST)
    rows = [row(101, A), row(102, B), row(103, C), row(104, B, Operation.COMMIT), row(105, A, Operation.ROLLBACK)]
    found, _ = steps.take([*rows, row(110, C)])

    assert [step.low_scn for step in found if isinstance(step, Committed)] == [101]
    steps.end_window(120)
    assert (steps.done, steps.low_scn, steps.rolled_back) == ((121, 0), 103, 1)


def test_the_low_scn_is_not_above_redo_that_is_still_to_be_mined_again() -> None:
    """After a restart windows begin before the position. A transaction of theirs may have no row yet in the first of them."""
    steps = steps_from(msgspec.structs.replace(FIRST, done_scn=120, low_scn=100))

    assert taken(steps, [], end=101) == []

    assert (steps.done, steps.low_scn) == ((120, 0), 102)
    assert taken(steps, [row(103, A), row(125, A, Operation.COMMIT)], end=130) == [(125, 0, A)]
    assert steps.low_scn is None


def test_the_rows_of_an_scn_that_broke_off_are_taken_once() -> None:
    """An error after half of an SCN's rows: they come again, with the rest."""
    steps = steps_from(FIRST)
    steps.take([row(101, A), row(105, A), row(105, A)])
    steps.drop_held()

    assert steps.mined_scn == 101
    found, _ = steps.take([row(105, A), row(105, A), row(105, A), row(106, A, Operation.COMMIT)])
    (step,) = (*found, *steps.end_window(106))
    assert isinstance(step, Committed) and step.transaction.rows == 4


def test_ddl_comes_after_the_commits_of_its_scn_and_ends_the_taking() -> None:
    steps = steps_from(FIRST)
    rows = [row(101, A), row(105, B, Operation.DDL), row(105, A, Operation.COMMIT), row(106, B), row(107, B)]

    found, nth = steps.take(rows)

    assert [type(step) for step in found] == [Committed, MinedDdl]
    assert rows[nth].scn == 106
    assert steps.mined_scn == 105


def test_ddl_before_the_position_is_passed_over() -> None:
    position = msgspec.structs.replace(FIRST, low_scn=90)
    found, _ = steps_from(position).take([row(95, A, Operation.DDL), row(100, A, Operation.DDL), row(101, A)])

    assert [step.scn for step in found] == [100]


def test_times_are_of_the_servers_clock() -> None:
    (step,) = steps_from(FIRST).take([row(101, A), row(102, A, Operation.COMMIT), row(103, B)])[0]

    assert isinstance(step, Committed)
    assert step.time_us == step.transaction.first_time_us == 1_767_225_600_000_000  # midnight in UTC


def test_a_gap_in_the_redo_halts() -> None:
    with pytest.raises(PipelineHalted, match="gap at SCN 101"):
        steps_from(FIRST).take([row(101, A, Operation.MISSING_SCN), row(102, A)])


def test_rows_that_are_not_by_scn_halt() -> None:
    with pytest.raises(PipelineHalted, match="SCN 101 after"):
        steps_from(FIRST).take([row(102, A), row(101, B)])


def test_a_row_with_half_of_its_transaction_id_goes_to_the_only_one_that_begins_so() -> None:
    rows = [row(101, A), row(102, xid(1)), row(103, B), row(104, xid(1), Operation.COMMIT)]

    assert taken(steps_from(FIRST), rows) == [(104, 0, A)]


def test_the_end_may_have_the_whole_id_where_the_first_rows_had_half_of_it() -> None:
    """The window began within the transaction. Such rows were lost once, with no word."""
    rows = [row(101, xid(1)), row(102, B), row(103, A), row(104, A, Operation.COMMIT)]
    steps = steps_from(FIRST)
    found, _ = steps.take(rows)
    found += steps.end_window(0)

    assert [
        (step.scn, step.transaction.xid, step.transaction.rows) for step in found if isinstance(step, Committed)
    ] == [(104, A, 2)]
    assert steps.low_scn is None or steps.low_scn == 102


def test_half_of_a_transaction_id_that_may_be_of_two_halts() -> None:
    steps = steps_from(FIRST)

    with pytest.raises(PipelineHalted, match="2 open transactions"):
        taken(steps, [row(101, xid(1, 1)), row(102, xid(1, 2)), row(103, xid(1))])
