"""How far the redo is read, as metrics, and the fault of a transaction that stays open."""

import time
from datetime import UTC, datetime
from typing import Final

from libs.oracle.log_position import LogminerPosition
from libs.telemetry import metrics
from libs.telemetry.faults import TRANSACTION_OPEN_LONG, lift_fault, raise_fault
from libs.types.fault import FaultScope
from services.logminer_reader.log_steps import LogSteps
from services.logminer_reader.position import SOURCE_PARTITION
from services.logminer_reader.transactions import OpenTransactions

_LONG_S: Final = 4 * 3_600.0


class LogReports:
    """Of one source."""

    def __init__(self, source: str) -> None:
        self._scope = FaultScope(source=source)
        self._labels = (source, SOURCE_PARTITION)
        self._rolled_back = self._passed_over = 0

    def window_ended(self, position: LogminerPosition, steps: LogSteps, transactions: OpenTransactions) -> None:
        """A window was gathered whole; ``position`` is that of its end."""
        metrics.ORACLE_WINDOWS.labels(*self._labels).inc()
        metrics.ORACLE_DONE_SCN.labels(*self._labels).set(position.done_scn)
        metrics.ORACLE_MINED_FROM_SCN.labels(*self._labels).set(position.mined_from)
        metrics.ORACLE_OPEN_TRANSACTIONS.labels(*self._labels).set(len(transactions))
        metrics.ORACLE_ROLLED_BACK.labels(*self._labels).inc(steps.rolled_back - self._rolled_back)
        metrics.ORACLE_PASSED_OVER.labels(*self._labels).inc(steps.passed_over.rows - self._passed_over)
        self._rolled_back, self._passed_over = steps.rolled_back, steps.passed_over.rows
        oldest = transactions.oldest
        age_s = 0.0 if oldest is None else max(0.0, time.time() - oldest.first_time_us / 1e6)
        metrics.ORACLE_OLDEST_TRANSACTION.labels(*self._labels).set(age_s)
        if oldest is None or age_s < _LONG_S:
            lift_fault(TRANSACTION_OPEN_LONG, self._scope)
            return
        since = datetime.fromtimestamp(oldest.first_time_us / 1e6, UTC)
        happened = (
            f"{oldest.xid.hex()} of user {oldest.user}, since SCN {oldest.first_scn} ({since:%Y-%m-%d %H:%M:%S} UTC)"
        )
        raise_fault(TRANSACTION_OPEN_LONG, self._scope, happened=happened)
