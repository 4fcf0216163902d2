"""A model of an Oracle database: tables with every version of their rows, transactions, and the redo that they write.

Two connections may be served at once; a lock keeps each statement whole.
"""

import itertools
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from libs.oracle.log_rows import NO_ROW_ID, Operation
from libs.stand_ins.oracle import redo
from libs.stand_ins.oracle.answers import Column, OracleError, Value
from libs.stand_ins.oracle.logs import Incarnation, Log, RedoRow, RedoThread, Session, first_log
from libs.stand_ins.oracle.redo import Piece
from libs.stand_ins.oracle.sql import Table
from libs.stand_ins.oracle.tables import ModelTable, Named, Row, Version

_FIRST_OBJECT: Final = 73_196
_FIRST_SCN: Final = 1_000_000
_RESETLOGS_ID: Final = 1_014_585_229
_BEGUN: Final = datetime(2026, 1, 1)
_LOCK_WAIT_S: Final = 10.0


class Change(NamedTuple):
    """A row's change within an open transaction."""

    table: ModelTable
    row_id: str
    before: Row | None
    after: Row | None


class Model:
    """The database. Every record of redo has an SCN of its own, and grows it; only ``commit_together`` shares one."""

    def __init__(
        self,
        *,
        threads: int = 1,
        clock: Callable[[], datetime] | None = None,
        pdb: str | None = None,
        resetlogs_id: int = _RESETLOGS_ID,
    ) -> None:
        """``pdb``: the tables are those of this pluggable database, and LogMiner names it; None: no container database.

        ``resetlogs_id``: RESETLOGS_ID of the first incarnation.
        """
        self.pdb = pdb
        self.scn = _FIRST_SCN
        self.undo_from = 0
        """The undo of SCNs below is gone."""
        self.tables: dict[tuple[str, str], ModelTable] = {}
        self.incarnations = [Incarnation(1, 1, resetlogs_id, 0)]
        self.threads = [self._thread(number, 1) for number in range(1, threads + 1)]
        self.open: dict[tuple[bytes, str | None], Transaction] = {}
        """Transactions that have written, by XID and pluggable database."""
        self.waiting = 0
        """Sessions that wait for a row."""
        self.lock = threading.Condition(threading.RLock())
        self._clock = clock
        self._numbers = {name: itertools.count(first) for name, first in _COUNTERS.items()}
        self._records = 0

    @property
    def thread(self) -> RedoThread:
        """The first one."""
        return self.threads[0]

    @property
    def redo(self) -> list[RedoRow]:
        """Every record that was ever written, in the order of SCNs."""
        rows = [row for thread in self.threads for log in thread.logs for row in log.rows]
        return sorted(rows, key=lambda row: row.scn)

    @property
    def now(self) -> datetime:
        """The server's clock, in UTC."""
        return self._clock() if self._clock is not None else _BEGUN + timedelta(seconds=self._records // 1_000)

    def create(self, owner: str, name: str, columns: Sequence[Column], key: Sequence[str] | None = None) -> ModelTable:
        """A table, without a record of its DDL. ``key``: its primary key; None: none."""
        number = self.new_object_id()
        table = ModelTable(Named(owner, name, tuple(columns)), number, tuple(key or ()), number)
        self.tables[owner, name] = table
        return table

    def new_object_id(self) -> int:
        """One that no object has had."""
        return next(self._numbers["object"])

    def begin(self, user: str = "APP", thread: int = 1, *, like: "Transaction | None" = None) -> "Transaction":
        """A transaction. Its first change writes its START.

        ``like``: another pluggable database's transaction, which has the same XID as this one, as with local undo.
        """
        transaction = Transaction(self, next(self._numbers["transaction"]), user, thread)
        if like is not None:
            transaction.xid, transaction.pdb = like.xid, "OTHER"
        return transaction

    def switch_logs(self, thread: int | None = None, *, archives: bool = True) -> None:
        """Go on in the next redo log, of one thread or of all that are open."""
        with self.lock:
            self.scn += 1
            for each in self.threads:
                if each.is_open and thread in (None, each.number):
                    each.switch(self.scn, archives=archives)

    def commit_together(self, transactions: Sequence["Transaction"]) -> int:
        """Their COMMITs at one SCN, as instances of a cluster may write them."""
        with self.lock:
            self.scn += 1
            for transaction in transactions:
                transaction.commit(at_scn=self.scn)
            return self.scn

    # Instances and incarnations

    def open_thread(self) -> RedoThread:
        """One more instance; its number is the next one."""
        with self.lock:
            self.scn += 1
            thread = self._thread(len(self.threads) + 1, self.scn)
            thread.enabled_scn = thread.checkpoint_scn = self.scn
            self.threads.append(thread)
            return thread

    def close_thread(self, number: int, *, disables: bool = False) -> None:
        """An instance is shut down cleanly: its changes are in the data files."""
        with self.lock:
            thread = self.threads[number - 1]
            for transaction in list(self.open.values()):
                if transaction.thread == number:
                    transaction.roll_back()
            self.scn += 1
            thread.is_open = False
            thread.checkpoint_scn = self.scn
            thread.disabled_scn = self.scn if disables else 0

    def reset_logs(self, to_scn: int | None = None) -> Incarnation:
        """ALTER DATABASE OPEN RESETLOGS, after a recovery up to this SCN. What was committed above it is gone."""
        with self.lock:
            for transaction in list(self.open.values()):
                transaction.roll_back()
            to_scn = self.scn if to_scn is None else to_scn
            for table in self.tables.values():
                for row_id, versions in table.versions.items():
                    table.versions[row_id] = [version for version in versions if version.scn <= to_scn]
            self.scn = to_scn + 1
            before = self.incarnations[-1]
            number = len(self.incarnations) + 1
            self.incarnations.append(Incarnation(number, self.scn, before.resetlogs_id + 1_000, before.resetlogs_scn))
            for thread in self.threads:
                thread.reset(self.incarnations[-1], self.scn)
            return self.incarnations[-1]

    def rows_of(self, logs: Sequence[Log], start: int, end: int) -> list[RedoRow]:
        """The records of some logs from one SCN to another, and all rows of a change that one of them is of; in the order of
        SCNs, then of threads."""
        found = (row for log in logs for row in log.between(start, end))
        return sorted(found, key=lambda row: (row.scn, row.thread))

    def table(self, owner: str, name: str, scn: int | None) -> Table:
        """A table's rows.

        Raises:
            OracleError: 942, there is none; 1555, the undo of then is gone; 8181, the SCN is none yet; 1466, its definition
                was another one.
        """
        with self.lock:
            found = self.tables.get((owner, name))
            if found is None:
                raise OracleError(942, "table or view does not exist")
            if scn is not None and scn > self.scn + 1:  # V$THREAD shows this one as written, too
                raise OracleError(8181, "specified number is not a valid system change number")
            if scn is not None and scn < self.undo_from:
                raise OracleError(1555, "snapshot too old")
            if scn is not None and scn < found.changed_at_scn:
                raise OracleError(1466, "unable to read data - table definition has changed")
            return table_of(found, found.at(self.scn if scn is None else scn))

    def waited(self, table: ModelTable, row_ids: Sequence[str], transaction: "Transaction") -> bool:
        """Wait until nobody else has changed the rows; whether that took any time.

        Raises:
            OracleError: 60, it lasts; a deadlock is called so too.
        """
        with self.lock:
            kept = [row_id for row_id in row_ids if _is_kept(table, row_id, transaction)]
            self.waiting += bool(kept)
            try:
                for row_id in kept:
                    if not self.lock.wait_for(partial(_is_free, table, row_id, transaction), _LOCK_WAIT_S):
                        raise OracleError(60, "deadlock detected while waiting for resource")
            finally:
                self.waiting -= bool(kept)
            return bool(kept)

    def write(
        self,
        transaction: "Transaction",
        pieces: Sequence[Piece],
        *,
        table: ModelTable | None = None,
        at_scn: int | None = None,
        info: str | None = None,
    ) -> int:
        """Records of redo; the SCN of the last."""
        change = next(self._numbers["change"]) if len(pieces) > 1 else 0
        for piece in pieces:
            self.scn = self.scn + 1 if at_scn is None else at_scn
            self._records += 1
            log = self.threads[transaction.thread - 1].current
            row = RedoRow(
                scn=self.scn,
                xid=transaction.xid,
                thread=transaction.thread,
                rs_id=f" 0x{log.sequence:06x}.{self._records:08x}.0010 ",
                ssn=0,
                piece=piece,
                timestamp=self.now,
                session=Session(transaction.user, transaction.client),
                table=table,
                named=table.named if table is not None else None,
                object_version=table.object_version if table is not None else 0,
                change=change,
                pdb=transaction.pdb,
                info=info,
            )
            log.rows.append(row)
        return self.scn

    def _thread(self, number: int, scn: int) -> RedoThread:
        return RedoThread(number, [first_log(self.incarnations[-1], number, groups=3, scn=scn)])


_COUNTERS: Final = {"object": _FIRST_OBJECT, "transaction": 1, "change": 1}


def _is_free(table: ModelTable, row_id: str, transaction: "Transaction") -> bool:
    return not _is_kept(table, row_id, transaction)


def _is_kept(table: ModelTable, row_id: str, transaction: "Transaction") -> bool:
    return row_id in table.pending and not transaction.has_changed(table, row_id)


def table_of(table: ModelTable, rows: Mapping[str, Row]) -> Table:
    """Rows as a query reads them."""
    names = [column.name for column in table.named.columns]
    return Table(table.named.columns, [[row[name] for name in names] for row in rows.values()], list(rows))


class Transaction:
    """Changes of one client, until COMMIT or ROLLBACK."""

    def __init__(self, model: Model, number: int, user: str, thread: int) -> None:
        self._model = model
        self.user = user
        self.thread = thread
        self.pdb = model.pdb
        self.client: str | None = None
        """CLIENT_ID, by DBMS_SESSION.SET_IDENTIFIER."""
        self.xid = bytes([9 + thread, 0, number % 48, 0]) + (1_000 + number).to_bytes(4, "little")
        """Undo segment, slot, and sequence."""
        self.start_scn = 0
        """SCN of its START; 0: it has written nothing."""
        self._changes: list[Change] = []
        self._locks: dict[int, dict[str, int]] = {}
        """By the table's identity: how many changes each row has, in the order in which they were locked."""

    @property
    def changes(self) -> Sequence[Change]:
        """Those that are left, in their order."""
        return self._changes

    def insert(self, table: ModelTable, row: Row) -> str:
        """A new row; its ROWID.

        Raises:
            OracleError: 1, the key is there.
        """
        with self._model.lock:
            whole = {column.name: row.get(column.name) for column in table.named.columns}
            self._check_key(table, whole, None)
            row_id = table.new_row_id()
            self._change(Change(table, row_id, None, whole))
            return row_id

    def update(self, table: ModelTable, row_id: str, values: Mapping[str, Value]) -> None:
        """Some columns of a row.

        Raises:
            OracleError: 1, the key is there; 60, another transaction keeps the row locked.
        """
        with self._model.lock:
            self._model.waited(table, [row_id], self)
            before = table.row(row_id)
            after = {**before, **values}
            if any(before[name] != after[name] for name in table.key):
                self._check_key(table, after, row_id)
            self._change(Change(table, row_id, before, after))

    def delete(self, table: ModelTable, row_id: str) -> None:
        """A row goes.

        Raises:
            OracleError: 60, another transaction keeps the row locked.
        """
        with self._model.lock:
            self._model.waited(table, [row_id], self)
            self._change(Change(table, row_id, table.row(row_id), None))

    def changed(self, table: ModelTable) -> list[str]:
        """The rows of a table that this transaction has changed, and that are there."""
        return [row_id for row_id in self._touched(table) if table.pending[row_id] is not None]

    def has_changed(self, table: ModelTable, row_id: str) -> bool:
        """It has the row locked."""
        return row_id in self._touched(table)

    def seen(self, table: ModelTable, only: Collection[str] | None = None) -> dict[str, Row]:
        """The rows of a table as this transaction sees them now; ``only``: none but these."""
        rows = table.at(self._model.scn, only)
        for row_id in self._touched(table) if only is None else self._touched(table).keys() & set(only):
            state = table.pending[row_id]
            if state is None:
                rows.pop(row_id, None)
            else:
                rows[row_id] = state
        return rows

    def savepoint(self) -> int:
        """A place to roll back to."""
        return len(self._changes)

    def roll_back_to(self, savepoint: int) -> None:
        """Take the changes since then back, the newest first. Each writes an undo row."""
        with self._model.lock:
            while len(self._changes) > savepoint:
                change = self._changes.pop()
                change.table.pending[change.row_id] = change.before
                if self._unlocked(change):
                    del change.table.pending[change.row_id]
                self._model.write(self, [redo.undo(*change)], table=change.table)
            self._model.lock.notify_all()

    def commit(self, *, at_scn: int | None = None) -> int | None:
        """The SCN of the COMMIT; None where the transaction wrote nothing."""
        with self._model.lock:
            if not self.start_scn:
                return None
            scn = self._model.write(self, [_ended(Operation.COMMIT, "commit;")], at_scn=at_scn)
            for table in self._tables():
                for row_id in self._touched(table):
                    table.versions.setdefault(row_id, []).append(Version(scn, table.pending[row_id]))
            self._end()
            return scn

    def roll_back(self) -> None:
        """Take everything back."""
        with self._model.lock:
            if self.start_scn:
                self.roll_back_to(0)
                self._model.write(self, [_ended(Operation.ROLLBACK, "rollback;")])
                self._end()

    def write_ddl(self, table: ModelTable, text: str) -> int:
        """A statement that changes a table's definition. It is a transaction of its own."""
        with self._model.lock:
            self._start()
            info = "USER DDL (PlSql=0 RecDep=0)"
            self._model.write(self, [_ended(Operation.DDL, f"{text};")], table=table, info=info)
            scn = self.commit()
            assert scn is not None
            return scn

    def _tables(self) -> list[ModelTable]:
        return list({id(change.table): change.table for change in self._changes}.values())

    def _touched(self, table: ModelTable) -> Mapping[str, int]:
        """The rows whose locks the transaction has, in the order in which it took them."""
        return self._locks.get(id(table), {})

    def _unlocked(self, change: Change) -> bool:
        """A change is taken back; whether the row's lock goes with it."""
        locks = self._locks[id(change.table)]
        locks[change.row_id] -= 1
        if locks[change.row_id]:
            return False
        del locks[change.row_id]
        return True

    def _check_key(self, table: ModelTable, row: Row, row_id: str | None) -> None:
        if not table.key:
            return
        having = table.by_key.setdefault(table.key_of(row), set())
        others = (table.newest(other) for other in having if other != row_id)
        if any(other is not None and table.key_of(other) == table.key_of(row) for other in others):
            raise OracleError(1, f"unique constraint ({table.named.owner}.{table.named.name}_PK) violated")

    def _start(self) -> None:
        if not self.start_scn:
            text = "set transaction read write;"
            self.start_scn = self._model.write(self, [_ended(Operation.START, text)])
            self._model.open[self.xid, self.pdb] = self

    def _change(self, change: Change) -> None:
        self._start()
        self._changes.append(change)
        locks = self._locks.setdefault(id(change.table), {})
        locks[change.row_id] = locks.get(change.row_id, 0) + 1
        if change.after is not None:
            change.table.by_key.setdefault(change.table.key_of(change.after), set()).add(change.row_id)
        change.table.pending[change.row_id] = change.after
        self._model.write(self, redo.pieces(*change), table=change.table)

    def _end(self) -> None:
        for table in self._tables():
            for row_id in self._touched(table):
                del table.pending[row_id]
        self._changes.clear()
        self._locks.clear()
        self.start_scn = 0
        del self._model.open[self.xid, self.pdb]
        self._model.lock.notify_all()


def _ended(operation: Operation, text: str) -> Piece:
    return Piece(operation, NO_ROW_ID, text, text)
