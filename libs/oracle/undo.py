"""The changes of a transaction that are left after its partial rollbacks.

ROLLBACK TO SAVEPOINT, and a statement that fails, write rows with ROLLBACK = 1. Each takes back the newest change that
is left, in strict reverse order. A change may be several rows: an INSERT with an empty ROW_ID, then the pieces of its
LOBs. A last UPDATE or INTERNAL row has the ROW_ID. Such rows are a group, and an undo row takes a whole group.
``tests/golden/oracle`` has the recordings that the rule was found in.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from libs.oracle.log_rows import LARGE_VALUE_BEGINS, LARGE_VALUE_PARTS, ROW_OPERATIONS, LogRow, Operation

_TAKEN_BACK_BY: Final = {
    Operation.INSERT: Operation.DELETE,
    Operation.UPDATE: Operation.UPDATE,
    Operation.DELETE: Operation.INSERT,
}


class UndoContradiction(ValueError):
    """A row takes back a change that is not the newest one, or goes on with none.

    The caller mines the transaction once more from its beginning. If it contradicts itself again, the transaction is
    left out by ``failure_handling``.
    """

    def __init__(self, nth: int, row: LogRow, because: str) -> None:
        super().__init__(f"row {nth} ({row.operation.name}, RS_ID {row.rs_id or 'unknown'}): {because}")
        self.nth = nth


@dataclass(slots=True)
class ChangeGroup:
    """One statement's change of one row of a table."""

    operation: Operation
    """INSERT, UPDATE or DELETE. Pieces of a LOB without an INSERT are an UPDATE."""
    object_id: int
    row_id: str | None
    """None until a row of the group has it."""
    rs_id: str
    nths: list[int] = field(default_factory=list)
    """Places of its rows in the transaction, ascending; INTERNAL rows are not among them."""
    columns: set[str] = field(default_factory=set)
    """Columns whose content came in rows of its own."""
    is_open: bool = True
    """Later rows may belong to it."""


def changes_left(rows: Iterable[LogRow]) -> list[ChangeGroup]:
    """The changes of a transaction in the order of the log, without those that it took back.

    Rows of temporary tables are passed over; the caller leaves out rows of tables that are not captured.

    Raises:
        UndoContradiction: the rows do not fit each other.
    """
    groups: list[ChangeGroup] = []
    for nth, row in enumerate(rows):
        if row.is_temporary:
            continue
        if row.is_undo:
            _take_back(groups, nth, row)
        elif row.operation is Operation.INTERNAL:
            _name(groups, row)
        elif row.operation in LARGE_VALUE_PARTS:
            _go_on(groups, nth, row)
        elif row.operation in LARGE_VALUE_BEGINS:
            _begin_value(groups, nth, row)
        elif row.operation in ROW_OPERATIONS:
            _change(groups, nth, row)
    return groups


def _take_back(groups: list[ChangeGroup], nth: int, row: LogRow) -> None:
    if not groups:
        raise UndoContradiction(nth, row, "takes back a change where none is left")
    newest = groups[-1].rs_id
    for place in range(len(groups) - 1, -1, -1):
        group = groups[place]
        if place < len(groups) - 1 and not (newest and group.rs_id == newest):
            break
        if (
            group.object_id == row.object_id
            and group.row_id in (None, row.row_id)
            and _TAKEN_BACK_BY[group.operation] is row.operation
        ):
            del groups[place]
            return
    raise UndoContradiction(nth, row, "takes back a change that is not the newest")


def _name(groups: list[ChangeGroup], row: LogRow) -> None:
    """An INTERNAL row says where an open change was stored; one with SEQUENCE# = 1 does not end it."""
    group = _open(groups, row)
    if group is not None and group.row_id in (None, row.row_id):
        group.row_id = row.row_id
        group.is_open = row.sequence == 1


def _go_on(groups: list[ChangeGroup], nth: int, row: LogRow) -> None:
    group = _open(groups, row)
    if group is None:
        raise UndoContradiction(nth, row, "is a piece of a value that no row began")
    group.nths.append(nth)


def _begin_value(groups: list[ChangeGroup], nth: int, row: LogRow) -> None:
    group = _open(groups, row)
    if group is None or row.column in group.columns or row.row_id not in (None, group.row_id):
        group = ChangeGroup(Operation.UPDATE, row.object_id, row.row_id, row.rs_id)
        groups.append(group)
    group.nths.append(nth)
    group.columns.add(row.column)


def _change(groups: list[ChangeGroup], nth: int, row: LogRow) -> None:
    group = _open(groups, row)
    ends_group = (
        group is not None
        and row.operation is Operation.UPDATE
        and row.row_id is not None
        and group.row_id in (None, row.row_id)
    )
    if group is None or not ends_group:
        group = ChangeGroup(row.operation, row.object_id, None, row.rs_id)
        groups.append(group)
    group.nths.append(nth)
    group.row_id = row.row_id
    group.is_open = row.row_id is None


def _open(groups: list[ChangeGroup], row: LogRow) -> ChangeGroup | None:
    if groups and groups[-1].is_open and groups[-1].object_id == row.object_id:
        return groups[-1]
    return None
