"""A reader's mining over the stand-in, without Kafka: transactions in, tables out, restarted from its position at any time."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

import msgspec

from libs.config.load import Secret
from libs.oracle.log_position import LogminerPosition
from libs.oracle.log_rows import LogRow, Operation
from libs.oracle.undo import changes_left
from libs.source.oracle.settings import MiningSettings, OracleDatabaseSettings
from libs.stand_ins.oracle.server import Listener
from libs.types.table import TableId
from services.logminer_reader.log_steps import Committed, LogSteps, Step
from services.logminer_reader.mined_rows import CapturedTables, MinedDdl
from services.logminer_reader.mining import mine
from services.logminer_reader.position import decode_position, encode_position
from services.logminer_reader.transactions import OpenTransactions
from services.logminer_reader.windows import Windows
from tests.oracle.traffic import Rows, apply

FAST = MiningSettings(min_pause_s=0.0)
RESETLOGS_ID = 1_014_585_229
Place = tuple[int, int]
"""SCN of a commit, and its number there."""


def database(listener: Listener) -> OracleDatabaseSettings:
    """How the stand-in is reached."""
    return OracleDatabaseSettings(
        host="127.0.0.1", port=listener.port, service_name="ORCLCDB", user="c##headwater", password=Secret("secret")
    )


def position_at(scn: int) -> LogminerPosition:
    """Everything up to an SCN is done."""
    return LogminerPosition(dbid=1, resetlogs_change=1, resetlogs_id=RESETLOGS_ID, done_scn=scn + 1)


@dataclass
class Reader:
    """Mines from its position; delivered rows outlive it, as if they were published."""

    listener: Listener
    tables: Collection[TableId]
    position: LogminerPosition
    settings: MiningSettings = FAST
    memory_bytes: int = 64 << 20
    rows: dict[int, Rows] = field(default_factory=lambda: defaultdict(dict))
    """By object id and ROWID."""
    places: list[Place] = field(default_factory=list)
    """Of the transactions that were delivered."""
    ddl: list[MinedDdl] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def mine(self, until: Callable[["Reader"], bool] = lambda reader: False) -> None:
        """To the end of the redo, or to the transaction after which ``until`` holds; then all memory is lost, as by a kill.

        The position is kept with each transaction, as Kafka keeps both or none.
        """
        windows = Windows(database(self.listener), self.settings, self.position.resetlogs_id)
        transactions = OpenTransactions(None, memory_bytes=self.memory_bytes, whole_from_scn=self.position.done_scn)
        steps = LogSteps(self.position, transactions)
        try:
            for each in mine(windows, steps, lambda: CapturedTables(tuple(self.tables)), self.settings):
                for step in each.steps:
                    self._act_on(step)
                    if until(self):
                        return
                if each.ends_window:
                    self._keep(*steps.done, steps.low_scn)
                self.pauses.append(each.pause_s)
                if not each.steps and not each.ends_window and windows.next(steps.mined_scn) is None:
                    return
        finally:
            windows.close()
            transactions.close()

    def _act_on(self, step: Step) -> None:
        if isinstance(step, MinedDdl):
            self.ddl.append(step)
            return
        self.places.append((step.scn, step.nth))
        for object_id, row_id, text in _changes(step):
            apply(self.rows[object_id], row_id, text)
        step.transaction.close()
        self._keep(step.scn, step.nth + 1, step.low_scn)

    def _keep(self, done_scn: int, done_commits: int, low_scn: int | None) -> None:
        position = msgspec.structs.replace(self.position, done_scn=done_scn, done_commits=done_commits, low_scn=low_scn)
        self.position = decode_position(encode_position(position))


def _changes(step: Committed) -> Iterator[tuple[int, str, str]]:
    stored = list(step.transaction.stored())
    assert len(stored) == step.transaction.rows
    rows = [LogRow(Operation(row.operation), row.object_id, row.row_id, row.is_undo, rs_id=row.rs_id) for row in stored]
    for group in changes_left(rows):
        assert group.row_id is not None
        yield group.object_id, group.row_id, stored[group.nths[0]].sql
