"""Whether the server that is followed still has the history that was read: asked every few seconds, beside the log.

A dump that was open when the log was reset stays silent for good, and one does not show transactions that somebody declared
as executed. Neither would be noticed before the next start.
"""

from collections.abc import Callable

from libs.errors import SourceUnavailable
from libs.mysql.binlog_position import rank_of_place
from libs.mysql.gtid import GtidSet
from libs.source.mysql.client import Connection, query
from libs.source.mysql.snapshot import log_end
from services.binlog_reader.connections import Connections
from services.binlog_reader.position import BinlogPosition


class ServerHistory:
    """Compares what the server says of its transactions with what it said before, and with what was read."""

    def __init__(self, connections: Connections, where: str, is_gtid_passed: Callable[[str], bool]) -> None:
        """``where``: host and port, for messages. ``is_gtid_passed``: of servers whose transactions are passed over, by uuid.
        Their absence from the log is no fault."""
        self._connections = connections
        self._is_gtid_passed = is_gtid_passed
        self._where = where
        self._connection: Connection | None = None
        self._executed = GtidSet()
        """When the server was asked last."""
        self._executed_when_missed: GtidSet | None = None
        """When it first had purged transactions that were not read. None: it has none."""

    def begin(self, position: BinlogPosition) -> None:
        """The log is opened at ``position``, of which the pre-flight found that the server has it."""
        self._executed = self._asked_for(position.gtid_set)
        self._executed_when_missed = None

    def require(self, position: BinlogPosition, seen: GtidSet) -> None:
        """``seen``: transactions that the log has delivered, up to ``position``. Blocks.

        Raises:
            SourceUnavailable: the server has lost transactions that it had, or counts some as executed that its log does not
                bring. The log is opened again, and the pre-flight names the fault.
        """
        if self._connection is None:
            self._connection = self._connections.open()
        if position.by_file:
            file, pos = log_end(self._connection)
            if rank_of_place(file, pos) < rank_of_place(position.file, position.pos):
                raise SourceUnavailable(
                    f"the log of MySQL at {self._where} ends at {file}:{pos}, before {position.file}:{position.pos}, up to "
                    "which it was read: it was reset, or another one answers"
                )
            return
        [sets] = query(self._connection, "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged")
        executed, purged = (self._asked_for(str(each)) for each in sets)
        lost = self._executed.subtract(executed)
        self._executed = executed
        if lost:
            raise SourceUnavailable(
                f"MySQL at {self._where} no longer has transactions that it had ({lost}): its log was reset, or another one "
                "answers"
            )
        self._require_read(purged.subtract(seen), seen)

    def _asked_for(self, gtid_set: str) -> GtidSet:
        return GtidSet.parse(gtid_set).without(self._is_gtid_passed)

    def _require_read(self, missed: GtidSet, seen: GtidSet) -> None:
        """Purged transactions may be on their way still: they are missed once all others of the same time were read."""
        if not missed:
            self._executed_when_missed = None
        elif self._executed_when_missed is None:
            self._executed_when_missed = self._executed
        elif seen.is_superset(self._executed_when_missed.subtract(missed)):
            raise SourceUnavailable(
                f"MySQL at {self._where} counts transactions as executed that its log does not hold ({missed}): gtid_purged "
                "was set, or the log was purged before it was read"
            )
