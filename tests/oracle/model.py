"""A model of an Oracle database: tables with every version of their rows, transactions, and the redo that they write.

Two connections may be served at once; a lock keeps each statement whole.

Limits: one thread of redo, no LOBs, no DDL.
"""

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from libs.oracle.log_rows import NO_ROW_ID, Operation
from tests.oracle import logs, redo
from tests.oracle.answers import Column, OracleError, OracleType, Value
from tests.oracle.logs import RedoThread
from tests.oracle.redo import Named, RedoRow, Row
from tests.oracle.sql import Table

_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_FIRST_OBJECT: Final = 73_196
_FIRST_SCN: Final = 1_000_000
_RESETLOGS_ID: Final = 1_014_585_229
_BEGUN: Final = datetime(2026, 1, 1)


class Version(NamedTuple):
    """A row from a commit on, until the next version's."""

    scn: int
    row: Row | None
    """None: it is deleted."""


@dataclass(slots=True)
class ModelTable:
    """A table, its committed rows at every SCN, and those that open transactions changed."""

    named: Named
    object_id: int
    versions: dict[str, list[Version]] = field(default_factory=dict)
    """By ROWID."""
    pending: dict[str, Row | None] = field(default_factory=dict)
    """By ROWID: the state in the one open transaction that changed the row, which has it locked."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def new_row_id(self) -> str:
        """A place that no row has had."""
        number = next(self.numbers)
        return f"{_in_64(self.object_id, 6)}{_in_64(4, 3)}{_in_64(143 + number // 700, 6)}{_in_64(number % 700, 3)}"

    def at(self, scn: int) -> dict[str, Row]:
        """The committed rows as of an SCN, its own commits included."""
        found = {}
        for row_id, versions in self.versions.items():
            seen = [version.row for version in versions if version.scn <= scn]
            if seen and seen[-1] is not None:
                found[row_id] = seen[-1]
        return found

    def row(self, row_id: str) -> Row:
        """A row as its writer sees it.

        Raises:
            KeyError: there is none.
        """
        found = self.pending[row_id] if row_id in self.pending else self.versions[row_id][-1].row
        if found is None:
            raise KeyError(row_id)
        return found


class Change(NamedTuple):
    """A row's change within an open transaction."""

    table: ModelTable
    row_id: str
    before: Row | None
    after: Row | None


class Model:
    """The database. Every record of redo has an SCN of its own, and grows it."""

    def __init__(self) -> None:
        self.scn = _FIRST_SCN
        self.undo_from = 0
        """The undo of SCNs below is gone."""
        self.tables: dict[tuple[str, str], ModelTable] = {}
        self.thread = RedoThread()
        self.redo: list[RedoRow] = []
        self.lock = threading.RLock()
        self._objects = itertools.count(_FIRST_OBJECT)
        self._transactions = itertools.count(1)

    def create(self, owner: str, name: str, columns: Sequence[Column]) -> ModelTable:
        """A table, without a record of its DDL."""
        table = ModelTable(Named(owner, name, columns), next(self._objects))
        self.tables[owner, name] = table
        return table

    def begin(self, user: str = "APP") -> "Transaction":
        """A transaction. Its first change writes its START."""
        return Transaction(self, next(self._transactions), user)

    def switch_logs(self, *, archives: bool = True) -> None:
        """Go on in the next redo log."""
        with self.lock:
            self.scn += 1
            self.thread.switch(self.scn, archives=archives)

    def table(self, owner: str | None, name: str, scn: int | None) -> Table:
        """A table's rows, or a view.

        Raises:
            OracleError: 942, there is none; 1555, the undo of then is gone; 8181, the SCN is none yet.
        """
        with self.lock:
            if (view := self._view(name)) is not None:
                return view
            found = self.tables.get((owner or "", name))
            if found is None:
                raise OracleError(942, "table or view does not exist")
            if scn is not None and scn > self.scn:
                raise OracleError(8181, "specified number is not a valid system change number")
            if scn is not None and scn < self.undo_from:
                raise OracleError(1555, "snapshot too old")
            rows = found.at(self.scn if scn is None else scn)
            names = [column.name for column in found.named.columns]
            return Table(found.named.columns, [[row[name] for name in names] for row in rows.values()], list(rows))

    def _view(self, name: str) -> Table | None:
        match name:
            case "V$DATABASE":
                number = Column("CURRENT_SCN", OracleType.NUMBER, 22)
                return Table(
                    [number, Column("LOG_MODE"), Column("DBID", OracleType.NUMBER)], [(self.scn, "ARCHIVELOG", 1)]
                )
            case "V$THREAD":
                return logs.v_thread([self.thread], self.scn)
            case "V$LOG":
                return logs.v_log([self.thread])
            case "V$LOGFILE":
                return logs.v_logfile([self.thread])
            case "V$ARCHIVED_LOG":
                return logs.v_archived_log([self.thread], _RESETLOGS_ID)
        return None

    def write(
        self,
        transaction: "Transaction",
        operation: Operation,
        *,
        table: ModelTable | None = None,
        row_id: str = NO_ROW_ID,
        text: str | None = None,
        is_undo: bool = False,
    ) -> int:
        """A record of redo; its SCN."""
        self.scn += 1
        number = len(self.redo) + 1
        self.redo.append(
            RedoRow(
                scn=self.scn,
                xid=transaction.xid,
                thread=self.thread.number,
                rs_id=f" 0x{self.thread.current.sequence:06x}.{number:08x}.0010 ",
                ssn=0,
                operation=operation,
                is_undo=is_undo,
                object_id=table.object_id if table else 0,
                object_version=1 if table else 0,
                row_id=row_id,
                timestamp=_BEGUN + timedelta(seconds=number // 1_000),
                user=transaction.user,
                owner=table.named.owner if table else None,
                table=table.named.name if table else None,
                sequence=1,
                text=text,
            )
        )
        return self.scn


class Transaction:
    """Changes of one client, until COMMIT or ROLLBACK."""

    def __init__(self, model: Model, number: int, user: str) -> None:
        self._model = model
        self.user = user
        self.xid = bytes([10, 0, number % 48, 0]) + (1_000 + number).to_bytes(4, "little")
        """Undo segment, slot, and sequence."""
        self._changes: list[Change] = []
        self._has_begun = False

    def insert(self, table: ModelTable, row: Row) -> str:
        """A new row; its ROWID."""
        with self._model.lock:
            row_id = table.new_row_id()
            self._change(Change(table, row_id, None, row), Operation.INSERT, redo.insert(table.named, row))
            return row_id

    def update(self, table: ModelTable, row_id: str, values: Mapping[str, Value]) -> None:
        """Some columns of a row."""
        with self._model.lock:
            before = table.row(row_id)
            after = {**before, **values}
            self._change(
                Change(table, row_id, before, after), Operation.UPDATE, redo.update(table.named, before, after)
            )

    def delete(self, table: ModelTable, row_id: str) -> None:
        """A row goes."""
        with self._model.lock:
            before = table.row(row_id)
            self._change(Change(table, row_id, before, None), Operation.DELETE, redo.delete(table.named, before))

    def changed(self, table: ModelTable) -> list[str]:
        """The rows of a table that this transaction has changed, and that are there."""
        return [row_id for row_id in self._touched(table) if table.pending[row_id] is not None]

    def savepoint(self) -> int:
        """A place to roll back to."""
        return len(self._changes)

    def roll_back_to(self, savepoint: int) -> None:
        """Take the changes since then back, the newest first. Each writes an undo row."""
        with self._model.lock:
            while len(self._changes) > savepoint:
                change = self._changes.pop()
                change.table.pending[change.row_id] = change.before
                if change.row_id not in self._touched(change.table):  # its lock goes too
                    del change.table.pending[change.row_id]
                operation, text = _undo(change)
                self._model.write(self, operation, table=change.table, row_id=change.row_id, text=text, is_undo=True)

    def commit(self) -> int | None:
        """The SCN of the COMMIT; None where the transaction wrote nothing."""
        with self._model.lock:
            if not self._has_begun:
                return None
            scn = self._model.write(self, Operation.COMMIT, text="commit;")
            for table in self._model.tables.values():
                for row_id in self._touched(table):
                    table.versions.setdefault(row_id, []).append(Version(scn, table.pending[row_id]))
            self._end()
            return scn

    def roll_back(self) -> None:
        """Take everything back."""
        with self._model.lock:
            if self._has_begun:
                self.roll_back_to(0)
                self._model.write(self, Operation.ROLLBACK, text="rollback;")
                self._end()

    def _touched(self, table: ModelTable) -> dict[str, None]:
        """The rows whose locks the transaction has, in the order in which it took them."""
        return dict.fromkeys(change.row_id for change in self._changes if change.table is table)

    def _change(self, change: Change, operation: Operation, text: str) -> None:
        if not self._has_begun:
            self._model.write(self, Operation.START, text="set transaction read write;")
            self._has_begun = True
        self._changes.append(change)
        change.table.pending[change.row_id] = change.after
        self._model.write(self, operation, table=change.table, row_id=change.row_id, text=text)

    def _end(self) -> None:
        for table in self._model.tables.values():
            for row_id in self._touched(table):
                del table.pending[row_id]
        self._changes.clear()
        self._has_begun = False


def _undo(change: Change) -> tuple[Operation, str]:
    named = change.table.named
    if change.before is None:
        return Operation.DELETE, redo.undo_of_insert(named, change.row_id)
    if change.after is None:
        return Operation.INSERT, redo.insert(named, change.before)
    return Operation.UPDATE, redo.undo_of_update(named, change.before, change.after, change.row_id)


def _in_64(number: int, digits: int) -> str:
    text = ""
    for _ in range(digits):
        number, digit = divmod(number, 64)
        text = _ALPHABET[digit] + text
    return text
