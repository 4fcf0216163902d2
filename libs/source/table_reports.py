"""Tables that the reader passes over, or of which it lacks rows: kept as faults from change to change."""

from collections.abc import Iterable, Mapping

import structlog

from libs.telemetry import metrics
from libs.telemetry.faults import (
    CHANGES_LOST,
    ROWS_CHANGED_UNSEEN,
    TABLE_QUARANTINED,
    keep_faults,
    lift_fault,
    raise_fault,
)
from libs.types.fault import FaultScope
from libs.types.position import SourcePartition

log = structlog.get_logger()


class TableReports:
    """The last report of each table of a source."""

    def __init__(self, partition: SourcePartition) -> None:
        self._source = partition.source
        self._quarantined_tables = metrics.READER_QUARANTINED_TABLES.labels(partition.source, partition.name)
        self.quarantined: Mapping[str, str] = {}
        """Tables that are passed over, each with the reason."""
        self.unseen: Mapping[str, str] = {}
        """Tables of which rows changed unseen, each with the cause."""
        self._has_reported_unseen = False
        self._read_again: set[str] = set()
        """Tables that were read again for everybody, from begin to end, after the log was opened."""
        self._partly_read: frozenset[str] = frozenset()
        self._keep_quarantine_faults({})  # those of an earlier connection, which the checkpoint may not have

    def resume(self, quarantined: Mapping[str, str], unseen: Mapping[str, str], partly_read: Iterable[str]) -> None:
        """As the checkpoint has them; ``partly_read``: tables of which an earlier life had read a part."""
        self.report_quarantined(quarantined)
        self.report_unseen(unseen)
        self._partly_read = frozenset(partly_read)

    def report_unseen(self, unseen: Mapping[str, str]) -> None:
        if unseen == self.unseen and self._has_reported_unseen:
            return
        self._has_reported_unseen = True
        scopes = {FaultScope(source=self._source, table=table): happened for table, happened in unseen.items()}
        keep_faults({ROWS_CHANGED_UNSEEN: scopes}, lambda scope: scope.source == self._source)
        self.unseen = dict(unseen)

    def report_quarantined(self, quarantined: Mapping[str, str]) -> None:
        if quarantined == self.quarantined:
            return
        self._keep_quarantine_faults(quarantined)
        for table, reason in quarantined.items():
            if table not in self.quarantined:
                log.error("table_quarantined", table=table, reason=reason)
        for table in self.quarantined:
            if table not in quarantined:
                log.info("table_released", table=table)
        self.quarantined = dict(quarantined)
        self._quarantined_tables.set(len(quarantined))

    def _keep_quarantine_faults(self, quarantined: Mapping[str, str]) -> None:
        scopes = {FaultScope(source=self._source, table=table): reason for table, reason in quarantined.items()}
        keep_faults({TABLE_QUARANTINED: scopes}, lambda scope: scope.source == self._source)

    def note_changes_lost(self, happened: str, partly_read: Iterable[str]) -> None:
        """Rows of the source changed, and nobody knows of which tables; ``partly_read``: those of which a copy has begun."""
        log.error("changes_lost", source=self._source, reason=happened)
        raise_fault(CHANGES_LOST, FaultScope(source=self._source), happened=happened)
        self._read_again.clear()
        self._partly_read |= frozenset(partly_read)

    def note_read_again(self, table: str, captured: Iterable[str]) -> None:
        """A fault about the whole source ends when each of its tables was read again."""
        if table in self._partly_read:
            self._partly_read -= {table}
            return
        self._read_again.add(table)
        if self._read_again.issuperset(captured):
            lift_fault(CHANGES_LOST, FaultScope(source=self._source))
