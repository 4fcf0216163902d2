"""A transaction mined once more, by itself and whole, where its rows cannot be trusted. Blocks."""

from collections.abc import Collection
from pathlib import Path

from libs.errors import PipelineHalted
from libs.oracle.log_rows import Operation
from libs.source.oracle.settings import MiningSettings, OracleDatabaseSettings
from libs.types.table import TableId
from services.logminer_reader.log_steps import Committed
from services.logminer_reader.transactions import OpenTransaction, OpenTransactions
from services.logminer_reader.windows import Windows


class Remining:
    """Mines by connections of its own, for one transaction at a time."""

    def __init__(
        self,
        database: OracleDatabaseSettings,
        settings: MiningSettings,
        resetlogs_id: int,
        transactions: OpenTransactions,
        spill_dir: Path | None,
    ) -> None:
        """``transactions``: those whose rows are mined in the first place; times are read as they read them."""
        self._database = database
        self._settings = settings
        self._resetlogs_id = resetlogs_id
        self._transactions = transactions
        self._spill_dir = spill_dir

    def mined_again(self, committed: Committed, tables: Collection[TableId]) -> OpenTransaction:
        """The transaction with the rows that one session gives of it; the caller closes it.

        Raises:
            MissingRedo: a log of its beginning is gone.
            SourceUnavailable, AccessDenied, PipelineHalted: as ``Windows.rows``.
        """
        former = committed.transaction
        windows = Windows(self._database, self._settings, self._resetlogs_id)
        found = self._transactions.alike(self._spill_dir)
        try:
            window = windows.whole(former.first_scn - 1, committed.scn)
            for rows in windows.rows_of(window, tables, [former.xid]):
                for row in rows:
                    if row.operation not in (Operation.COMMIT, Operation.DDL):
                        found.add(row)
            again = found.ended(former.xid, committed.scn)
            if again is None:
                raise PipelineHalted(
                    f"LogMiner gives no row of transaction {former.xid.hex()} when it is asked again: re-snapshot the source"
                )
            return again
        finally:
            found.close()
            windows.close()
