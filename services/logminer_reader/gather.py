"""The batches of a reader: all its parts gather here, and each batch is cut with the place to resume from."""

import time

from libs.events.batch import BatchBuilder, BatchIdentity
from libs.events.dead_letter import UndecodedRow, encode_undecoded_row
from libs.source.failure_handling import LeftOut
from libs.source.failure_policy import FailureHandling
from libs.source.port import ReadBatch, ResumePoint
from libs.types.checkpoint import NO_INCREMENTAL, IncrementalSnapshot, SnapshotProgress
from libs.types.order import EventOrder
from services.logminer_reader.position import SOURCE_PARTITION, LogminerPosition, encode_position


class Gatherer:
    """Rows, schema changes and rows left out, in log order, until they are taken as a batch."""

    def __init__(self, source: str, handling: FailureHandling, identity: BatchIdentity) -> None:
        self._left_out = LeftOut(handling, source, SOURCE_PARTITION)
        self.entries = BatchBuilder(identity)
        self.progress: SnapshotProgress | None = None
        """Of the initial snapshot, while it is unfinished: each resume point holds it."""
        self.incremental: IncrementalSnapshot = NO_INCREMENTAL
        """Each resume point holds it too."""

    @property
    def goes_on(self) -> bool:
        """A row that cannot be read is left out, and the others go on."""
        return self._left_out.goes_on

    @property
    def is_empty(self) -> bool:
        """Nothing waits to be taken."""
        return self.entries.is_empty and self._left_out.is_empty

    def take(self, resume: ResumePoint | None) -> ReadBatch:
        """Everything gathered, as one batch."""
        payload, rows = self.entries.take(time.time_ns() // 1_000)
        return ReadBatch(payload=payload, rows=rows, resume=resume, dead_letters=self._left_out.taken())

    def resume_point(self, position: LogminerPosition, order: EventOrder, committed_at_us: int) -> ResumePoint:
        """A place to go on from, with the snapshots' progress."""
        return ResumePoint(
            position=encode_position(position),
            order=order,
            committed_at_us=committed_at_us,
            snapshot=self.progress,
            incremental=self.incremental,
        )

    def set_aside(self, row: UndecodedRow) -> None:
        """A row that could not be read, of the log or of a snapshot."""
        self._left_out.add(row.reason, encode_undecoded_row(row), table=f"{row.database}.{row.table}")
