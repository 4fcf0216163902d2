"""The changes of a committed transaction: without those that it took back, and each with all of its values in one.

A change of a row with large values is several rows of the log: the INSERT, a locator for each large column, the pieces of
its value, a last UPDATE. They become one change.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

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
from libs.oracle.log_rows import LARGE_VALUE_BEGINS, ROW_ENDS, ROW_OPERATIONS, LogRow, Operation
from libs.oracle.redo_sql import read_statement
from libs.oracle.redo_values import NOT_LOGGED, Expression, Quoted, RedoValue, UnreadableRedo, is_empty_lob
from libs.oracle.undo import changes_left
from services.logminer_reader.transactions import OpenTransaction, StoredRow

_TEMPORARY: Final = "/* No SQL_REDO for temporary tables */"


class RowChange(NamedTuple):
    """One change of one row."""

    rows: tuple[StoredRow, ...]
    """The log's rows that it is made of, in their order."""
    operation: int
    """INSERT, UPDATE or DELETE; UNSUPPORTED where the log says no more than that the row changed."""
    row_id: str | None

    @property
    def is_statement(self) -> bool:
        """The text of one row holds all of it."""
        rows, operation, _ = self
        return len(rows) == 1 and rows[0].operation == operation and operation in ROW_OPERATIONS


@dataclass(slots=True)
class ChangedValues:
    """Values of a change's columns, by the names that the log has."""

    before: dict[str, RedoValue] = field(default_factory=dict)
    """A column that is missing is one that the log does not hold."""
    after: dict[str, RedoValue] = field(default_factory=dict)
    """Of an UPDATE the columns that it set."""


def row_changes(transaction: OpenTransaction) -> Iterator[RowChange]:
    """The changes that are left, in the order of the log.

    A transaction without undo whose changes are a row each is not held in memory.

    Raises:
        UndoContradiction: the rows do not fit each other.
    """
    if not transaction.has_undo and not transaction.has_pieces:
        for row in transaction.stored():
            if row.operation != ROW_ENDS and not _is_temporary(row):
                yield RowChange((row,), row.operation, row.row_id)
        return
    rows = list(transaction.stored())
    for group in changes_left(log_row(row) for row in rows):
        yield RowChange(tuple([rows[nth] for nth in group.nths]), group.operation, group.row_id)


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


def values_of(change: RowChange) -> ChangedValues:
    """The values that the rows of an INSERT, an UPDATE or a DELETE hold together.

    Raises:
        UnreadableRedo: a row's text has no form that is known.
    """
    found = ChangedValues()
    _add_rows(found, change)
    return found


@dataclass(slots=True)
class _LargeValue:
    column: LargeColumn
    pieces: list[Fragment] = field(default_factory=list)
    unknown: bool = False
    """It is trimmed, erased, or written where its content before is not known."""


def _add_rows(found: ChangedValues, change: RowChange) -> None:
    is_insert = change.operation == Operation.INSERT
    values: dict[str, _LargeValue] = {}
    value: _LargeValue | None = None
    for row in change.rows:
        operation = Operation(row.operation)
        match operation:
            case Operation.INSERT | Operation.UPDATE | Operation.DELETE:
                _add_statement(found, row, is_insert=is_insert)
            case Operation.LOB_LOCATOR | Operation.XML_BEGIN | Operation.LONG_TEXT_BEGIN:
                column = _large_column(row)
                value = values.setdefault(column.column, _LargeValue(column))
                for name, each in column.row.items():
                    found.before.setdefault(name, each) if not is_insert else None
            case _ if value is not None:
                _add_piece(value, operation, row.sql)
    for name, large in values.items():
        found.after[name] = _value_of(large, found.after.get(name, NOT_LOGGED))


def _add_statement(found: ChangedValues, row: StoredRow, *, is_insert: bool) -> None:
    statement = read_statement(row.sql)
    for name, value in statement.before.items():
        if not is_insert:
            found.before.setdefault(name, value)
    for name, value in statement.after.items():
        # A later row of the group repeats a LOB as EMPTY_CLOB() whose content came in between.
        if not (is_empty_lob(value) and name in found.after):
            found.after[name] = value


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
