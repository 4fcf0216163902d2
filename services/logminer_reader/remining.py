"""A transaction mined once more, by itself and whole, where its rows cannot be trusted. Blocks."""

from pathlib import Path
from typing import Final

from libs.errors import HeadwaterError, PipelineHalted
from libs.oracle.log_position import LogminerPosition
from libs.oracle.log_rows import Operation
from libs.source.oracle.settings import MiningSettings, OracleDatabaseSettings
from services.logminer_reader.log_steps import Committed
from services.logminer_reader.mined_rows import CapturedTables
from services.logminer_reader.transactions import OpenTransaction, OpenTransactions
from services.logminer_reader.windows import Windows


class TornTransaction(Exception):
    """A transaction's beginning is not to be found. The message has the transaction and the remedy."""


_FIRST_REACH: Final = 10_000
"""SCNs before a transaction's first row in which its START is looked for at first."""
_REACH_GROWS: Final = 8


class Remining:
    """Mines by connections of its own, for one transaction at a time."""

    def __init__(
        self,
        database: OracleDatabaseSettings,
        settings: MiningSettings,
        position: LogminerPosition,
        transactions: OpenTransactions,
        spill_dir: Path | None,
        ends_before: int | None = None,
    ) -> None:
        """``transactions``: those whose rows are mined in the first place; times are read as they read them.

        ``ends_before``: as ``Windows.ends_before``.
        """
        self._windows = Windows(database, settings, position.resetlogs_id)
        self._windows.ends_before = ends_before
        self._first_scn = position.resetlogs_change
        self._transactions = transactions
        self._spill_dir = spill_dir

    def close(self) -> None:
        """Close the connections. No thread uses them."""
        self._windows.close()

    def interrupt(self) -> None:
        """End the call that another thread is in; it raises SourceUnavailable."""
        self._windows.interrupt()

    def mined_again(self, committed: Committed, captured: CapturedTables) -> OpenTransaction:
        """The transaction with the rows that one session gives of it; the caller closes it.

        Raises:
            TornTransaction: with large values, and no log has its START.
            MissingRedo: a log of its beginning is gone.
            SourceUnavailable, AccessDenied, PipelineHalted: as ``Windows.rows``.
        """
        former = committed.transaction
        found = self._transactions.alike(self._spill_dir)
        try:
            first_scn = committed.start_scn
            if first_scn is None:
                first_scn = self._start_of(former) if captured.has_large else former.first_scn
            window = self._windows.whole(first_scn - 1, committed.scn)
            for rows in self._windows.rows_of(window, captured, former.xid):
                for row in rows:
                    if row.operation not in _NO_ROWS:
                        found.add(row)
            again = found.ended(former.xid, committed.scn)
            if again is None:
                raise PipelineHalted(
                    f"LogMiner gives no row of transaction {former.xid.hex()} when it is asked again: re-snapshot the source"
                )
            return again
        except HeadwaterError:
            self._windows.close()
            raise
        finally:
            found.close()

    def _start_of(self, transaction: OpenTransaction) -> int:
        """The SCN of its START, looked for in older and older redo."""
        end, reach = transaction.first_scn, _FIRST_REACH
        while end >= self._first_scn:
            begin = max(end - reach, self._first_scn - 1)
            window = self._windows.whole(begin, end)
            for rows in self._windows.rows_of(window, CapturedTables((), has_large=True), transaction.xid):
                for row in rows:
                    if row.operation == Operation.START:
                        return row.scn
            end, reach = begin, reach * _REACH_GROWS
        raise TornTransaction(
            f"transaction {transaction.xid.hex()} has large values, and no log has its START: snapshot its tables again"
        )


_NO_ROWS: Final = frozenset({Operation.START, Operation.COMMIT, Operation.DDL})
