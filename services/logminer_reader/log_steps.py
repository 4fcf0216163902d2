"""Mined rows as steps: a transaction that was committed, a statement of DDL, in the order of the log.

Rows come by SCN. Those of the newest SCN are held until another SCN or the window's end has come: several commits at
one SCN are brought into their order, and an error within an SCN leaves nothing half taken.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from libs.errors import PipelineHalted
from libs.oracle.log_position import COMMITS_OF_AN_SCN, LogminerPosition
from libs.oracle.log_rows import Operation
from services.logminer_reader.mined_rows import MinedDdl, MinedRow
from services.logminer_reader.transactions import OpenTransaction, OpenTransactions


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction that is to be delivered. The receiver closes ``transaction``."""

    transaction: OpenTransaction
    scn: int
    nth: int
    """Its number among the commits of the SCN."""
    time_us: int
    """Microseconds since 1970."""
    low_scn: int | None
    """``LogminerPosition.low_scn`` once it is delivered; ``done_scn`` and ``done_commits`` are its own SCN and ``nth + 1``."""
    start_scn: int | None = None
    """Of its START; None: no window had it, or windows are mined without them."""
    is_whole: bool = False
    """The window of its COMMIT has its START too."""


Step = Committed | MinedDdl


_SLOT_BYTES: Final = 4


class _Place(NamedTuple):
    """The order of records within an SCN."""

    thread: int
    rs_id: str
    ssn: int


class _Start(NamedTuple):
    """The beginning of an open transaction, of whatever tables."""

    xid: bytes
    scn: int
    window: int
    """Number of the window that had it."""
    is_wanted: bool
    """Its transaction is not passed over."""


@dataclass(slots=True)
class PassedOver:
    """Transactions that do not count, by the user or client of their START."""

    is_wanted: Callable[[MinedRow], bool] | None
    """Of a START, whether its transaction counts; None: all do."""
    rows: int = 0
    """Of captured tables, so far."""
    starts: dict[bytes, int] = field(default_factory=dict)
    """SCN of the START of each open one that has such rows, by undo segment and slot: a restart has to see it again."""


class LogSteps:
    """Takes rows, and gives steps. Commits before ``position`` are passed over, and so are statements."""

    def __init__(
        self,
        position: LogminerPosition,
        transactions: OpenTransactions,
        is_wanted: Callable[[MinedRow], bool] | None = None,
    ) -> None:
        """``is_wanted``: of a START, whether rows of its transaction count; None: all do."""
        self._begun = position
        self._transactions = transactions
        self._held: list[MinedRow] = []
        """All of one SCN."""
        self._starts: dict[bytes, _Start] = {}
        """By undo segment and slot, which one transaction has at a time."""
        self._window = 0
        self.mined_scn = position.mined_from - 1
        """Every row up to this SCN was taken."""
        self.commits = 0
        """Of all transactions, captured or not."""
        self.rolled_back = 0
        self.passed_over = PassedOver(is_wanted)
        self.done: tuple[int, int] = (position.done_scn, position.done_commits)
        """As ``LogminerPosition.done_scn`` and ``done_commits``."""
        self.committed_at_us = 0
        """When the newest of them was committed."""

    @property
    def low_scn(self) -> int | None:
        """As ``LogminerPosition.low_scn``."""
        needed = self.mined_scn + 1  # after a restart, rows from here to ``done`` are still to come
        oldest = self._transactions.oldest
        if oldest is not None:
            start = self._start(oldest.xid)
            needed = min(needed, oldest.first_scn if start is None else min(start.scn, oldest.first_scn))
        needed = min([needed, *self.passed_over.starts.values()])
        return None if needed >= self.done[0] else needed

    def begin_window(self) -> None:
        """The next rows are of another session of LogMiner. It does not show a change of several rows that it has a part of."""
        self._window += 1

    def take(self, rows: Sequence[MinedRow], begin: int = 0) -> tuple[list[Step], int]:
        """The steps that are complete with these rows from the ``begin``th on, and the row to go on with.

        It ends early after an SCN that has DDL: the statement may change which rows are to be mined.

        Raises:
            PipelineHalted: the log has a gap, its rows are not by SCN, or too many transactions committed at one SCN.
            DiskFull: as ``OpenTransactions.add``.
        """
        steps: list[Step] = []
        for nth in range(begin, len(rows)):
            row = rows[nth]
            if self._held and row.scn != self._held[0].scn:
                if row.scn < self._held[0].scn:
                    raise PipelineHalted(
                        f"LogMiner gave a row of SCN {row.scn} after rows of SCN {self._held[0].scn}: report it, with the "
                        "release of the database"
                    )
                steps += self._release()
                if steps and isinstance(steps[-1], MinedDdl):
                    return steps, nth
            self._held.append(row)
        return steps, len(rows)

    def end_window(self, end: int) -> list[Step]:
        """The steps of rows that are still held; then every commit up to SCN ``end`` is done."""
        steps = list(self._release())
        self.mined_scn = max(self.mined_scn, end)
        if self.mined_scn + 1 > self.done[0]:
            self.done = (self.mined_scn + 1, 0)
        return steps

    def drop_held(self) -> None:
        """A window broke off: rows of its last SCN come again, because some of them may be missing."""
        self._held.clear()

    def _release(self) -> Iterator[Step]:
        """All of an SCN: its commits in their order, then its DDL. A transaction commits before DDL of its session begins."""
        held, self._held = self._held, []
        ends: list[MinedRow] = []
        statements: list[MinedRow] = []
        for row in held:
            match row.operation:
                case Operation.COMMIT:
                    ends.append(row)
                case Operation.START:
                    is_wanted = self.passed_over.is_wanted is None or self.passed_over.is_wanted(row)
                    self._starts[row.xid[:_SLOT_BYTES]] = _Start(row.xid, row.scn, self._window, is_wanted)
                case Operation.ROLLBACK:
                    self._starts.pop(row.xid[:_SLOT_BYTES], None)
                    self.passed_over.starts.pop(row.xid[:_SLOT_BYTES], None)
                    if (transaction := self._transactions.ended(row.xid, row.scn)) is not None:
                        transaction.close()
                        self.rolled_back += 1
                case Operation.DDL:
                    statements.append(row)
                case Operation.MISSING_SCN:
                    raise PipelineHalted(
                        f"the redo of thread {row.thread} has a gap at SCN {row.scn} ({row.info or 'MISSING_SCN'}): "
                        "restore the log that is missing, or re-snapshot the source"
                    )
                case _ if self.passed_over.is_wanted is None or self._counts(row):
                    self._transactions.add(row)
        if len(ends) > COMMITS_OF_AN_SCN:
            raise PipelineHalted(f"{len(ends)} transactions committed at SCN {ends[0].scn}: no order has room for them")
        if held:
            self.mined_scn = held[0].scn
        for nth, row in enumerate(sorted(ends, key=_place)):
            yield from self._commit(row, nth)
        if statements and statements[0].scn >= self._begun.done_scn:
            yield from (_ddl(row, self._transactions.time_us(row.timestamp)) for row in sorted(statements, key=_place))

    def _commit(self, row: MinedRow, nth: int) -> Iterator[Step]:
        self.commits += 1
        transaction = self._transactions.ended(row.xid, row.scn)
        start = self._start(row.xid if transaction is None else transaction.xid)
        self._starts.pop(row.xid[:_SLOT_BYTES], None)
        self.passed_over.starts.pop(row.xid[:_SLOT_BYTES], None)
        if self._begun.has(row.scn, nth):
            if transaction is not None:
                transaction.close()
            return
        self.done = (row.scn, nth + 1)
        self.committed_at_us = self._transactions.time_us(row.timestamp)
        if transaction is not None:
            yield Committed(
                transaction,
                row.scn,
                nth,
                self.committed_at_us,
                self.low_scn,
                start_scn=None if start is None else start.scn,
                is_whole=start is not None and start.window == self._window,
            )

    def _counts(self, row: MinedRow) -> bool:
        """A row is of no transaction that is passed over."""
        start = self._start(row.xid)
        if start is None or start.is_wanted:
            return True
        self.passed_over.rows += 1
        self.passed_over.starts.setdefault(row.xid[:_SLOT_BYTES], start.scn)
        return False

    def _start(self, xid: bytes) -> _Start | None:
        start = self._starts.get(xid[:_SLOT_BYTES])
        return start if start is not None and start.xid == xid else None


def _place(row: MinedRow) -> _Place:
    return _Place(row.thread, row.rs_id, row.ssn)


def _ddl(row: MinedRow, time_us: int) -> MinedDdl:
    return MinedDdl(
        scn=row.scn,
        thread=row.thread,
        rs_id=row.rs_id,
        committed_at_us=time_us,
        user=row.user or "",
        owner=row.owner or "",
        table=row.table or "",
        object_id=row.object_id,
        object_version=row.object_version,
        sql=row.sql or "",
        info=row.info or "",
    )
