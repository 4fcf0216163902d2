"""The changes of a committed transaction: without those that it took back, and each with all of its values in one.

A change of a row with large values is several rows of the log: the INSERT, a locator for each large column, the pieces of
its value, a last UPDATE. They become one change.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from libs.oracle.large_values import (
    Fragment,
    LargeColumn,
    UnknownContent,
    assembled,
    read_lob_locator,
    read_lob_write,
    read_long_text,
    read_xml_locator,
    read_xml_write,
)
from libs.oracle.log_rows import LARGE_VALUE_BEGINS, ROW_ENDS, LogRow, Operation
from libs.oracle.redo_sql import read_statement
from libs.oracle.redo_values import NOT_LOGGED, Expression, Quoted, RedoValue, UnreadableRedo, is_empty_lob
from libs.oracle.undo import ChangeGroup, changes_left
from services.logminer_reader.transactions import OpenTransaction, StoredRow

_TEMPORARY: Final = "/* No SQL_REDO for temporary tables */"


@dataclass(slots=True)
class RowChange:
    """One change of one row."""

    row: StoredRow
    """The first of the log's rows that it was made of."""
    operation: Operation
    """INSERT, UPDATE or DELETE; UNSUPPORTED where the log says no more than that the row changed."""
    row_id: str | None
    before: dict[str, RedoValue] = field(default_factory=dict)
    """A column that is missing is one that the log does not hold."""
    after: dict[str, RedoValue] = field(default_factory=dict)
    """Of an UPDATE the columns that it set."""
    unreadable: UnreadableRedo | None = None
    """The log's text has no form that is known; then there are no values."""


def row_changes(transaction: OpenTransaction) -> Iterator[RowChange]:
    """The changes that are left, in the order of the log.

    A transaction without undo whose changes are a row each is not held in memory.

    Raises:
        UndoContradiction: the rows do not fit each other.
    """
    if not transaction.has_undo and not transaction.has_pieces:
        for row in transaction.stored():
            if row.operation != ROW_ENDS and not _is_temporary(row):
                yield change_of([row], Operation(row.operation), row.row_id)
        return
    rows = list(transaction.stored())
    for group in changes_left(log_row(row) for row in rows):
        yield _merged(group, rows)


def log_row(row: StoredRow) -> LogRow:
    """The row without its text."""
    operation = Operation(row.operation)
    column = ""
    if operation in LARGE_VALUE_BEGINS:
        with contextlib.suppress(UnreadableRedo):  # the change fails by name when its values are read
            column = _large_column(row).column
    return LogRow(
        operation,
        row.object_id,
        row.row_id,
        row.is_undo,
        row.sequence,
        row.rs_id,
        column,
        is_temporary=_is_temporary(row),
    )


def change_of(rows: Sequence[StoredRow], operation: Operation, row_id: str | None) -> RowChange:
    """The change that rows of one group make."""
    change = RowChange(rows[0], operation, row_id)
    if operation is Operation.UNSUPPORTED:
        return change
    try:
        _add_rows(change, rows)
    except UnreadableRedo as error:
        change.before, change.after, change.unreadable = {}, {}, error
    return change


def _merged(group: ChangeGroup, rows: Sequence[StoredRow]) -> RowChange:
    return change_of([rows[nth] for nth in group.nths], group.operation, group.row_id)


@dataclass(slots=True)
class _LargeValue:
    column: LargeColumn
    pieces: list[Fragment] = field(default_factory=list)
    unknown: bool = False
    """It is trimmed, erased, or written where its content before is not known."""


def _add_rows(change: RowChange, rows: Sequence[StoredRow]) -> None:
    values: dict[str, _LargeValue] = {}
    value: _LargeValue | None = None
    for row in rows:
        operation = Operation(row.operation)
        match operation:
            case Operation.INSERT | Operation.UPDATE | Operation.DELETE:
                _add_statement(change, row)
            case Operation.LOB_LOCATOR | Operation.XML_BEGIN | Operation.LONG_TEXT_BEGIN:
                column = _large_column(row)
                value = values.setdefault(column.column, _LargeValue(column))
                for name, each in column.row.items():
                    change.before.setdefault(name, each) if change.operation is not Operation.INSERT else None
            case _ if value is not None:
                _add_piece(value, operation, row.sql)
    for name, large in values.items():
        change.after[name] = _value_of(large, change.after.get(name, NOT_LOGGED))


def _add_statement(change: RowChange, row: StoredRow) -> None:
    statement = read_statement(row.sql)
    for name, value in statement.before.items():
        if change.operation is not Operation.INSERT:
            change.before.setdefault(name, value)
    for name, value in statement.after.items():
        # A later row of the group repeats a LOB as EMPTY_CLOB() whose content came in between.
        if not (is_empty_lob(value) and name in change.after):
            change.after[name] = value


def _large_column(row: StoredRow) -> LargeColumn:
    match row.operation:
        case Operation.XML_BEGIN:
            return read_xml_locator(row.sql)
        case Operation.LONG_TEXT_BEGIN:
            return read_long_text(row.sql)
    return read_lob_locator(row.sql)


def _add_piece(value: _LargeValue, operation: Operation, sql: str) -> None:
    match operation:
        case Operation.LOB_WRITE | Operation.LONG_TEXT_WRITE:
            value.pieces.append(read_lob_write(sql))
        case Operation.XML_WRITE:
            data = read_xml_write(sql)
            end = sum(len(piece.data) for piece in value.pieces)
            value.pieces.append(Fragment(end, data))
        case Operation.LOB_TRIM | Operation.LOB_ERASE:
            value.unknown = True


def _value_of(large: _LargeValue, first: RedoValue) -> RedoValue:
    """The value as the log would print it whole."""
    if large.unknown:
        return NOT_LOGGED
    found = assembled(first, large.pieces)
    match found:
        case UnknownContent():
            return NOT_LOGGED
        case bytes():
            return Expression(f"HEXTORAW('{found.hex()}')")
        case str():
            return Quoted(found)
    return None


def _is_temporary(row: StoredRow) -> bool:
    return row.sql.startswith(_TEMPORARY)
