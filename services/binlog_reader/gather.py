"""The batches of a reader: all its parts gather here, and each batch is cut with the place to resume from."""

import time

from libs.events.batch import BatchBuilder, BatchIdentity
from libs.events.dead_letter import UndecodedRow, encode_undecoded_row
from libs.source.failure_handling import LeftOut
from libs.source.mysql.snapshot import CopiedAt, ReadView
from libs.source.mysql.table_copy import UnreadRow
from libs.source.port import ReadBatch, ResumePoint
from libs.source.table_reports import TableReports
from libs.types.checkpoint import SnapshotProgress
from libs.types.order import EventOrder
from libs.types.table import TableSchema
from services.binlog_reader.decode import LogDecoder
from services.binlog_reader.incremental import IncrementalCopy
from services.binlog_reader.position import SOURCE_PARTITION, BinlogPosition, encode_position
from services.binlog_reader.settings import BinlogReaderSettings


class Gatherer:
    """Rows, schema changes and rows left out, in log order, until they are taken as a batch."""

    def __init__(
        self,
        settings: BinlogReaderSettings,
        identity: BatchIdentity,
        incremental: IncrementalCopy,
        reports: TableReports,
    ) -> None:
        self._source = settings.source
        self._reports = reports
        self._incremental = incremental
        self._left_out = LeftOut(settings.failure_handling, settings.source, SOURCE_PARTITION)
        self.entries = BatchBuilder(identity)
        self.progress: SnapshotProgress | None = None
        """Of the initial snapshot, while it is unfinished: each resume point holds it."""

    def is_due(self, decoder: LogDecoder) -> bool:
        """A batch is full, and the log may be cut here."""
        return self.entries.is_full and (decoder.is_between_transactions or self.entries.is_overfull)

    @property
    def goes_on(self) -> bool:
        """A row that cannot be read is left out, and the others go on."""
        return self._left_out.goes_on

    def take(self, resume: ResumePoint | None) -> ReadBatch:
        """Everything gathered, as one batch."""
        payload, rows = self.entries.take(time.time_ns() // 1_000)
        return ReadBatch(payload=payload, rows=rows, resume=resume, dead_letters=self._left_out.taken())

    def resume_point(self, position: BinlogPosition, order: EventOrder, committed_at_us: int) -> ResumePoint:
        """A place to go on from, with the snapshots' progress."""
        return ResumePoint(
            position=encode_position(position),
            order=order,
            committed_at_us=committed_at_us,
            snapshot=self.progress,
            incremental=self._incremental.state,
        )

    def set_aside(self, row: UndecodedRow) -> None:
        """A row that could not be read, of the log or of a snapshot."""
        if not row.is_snapshot:
            self._incremental.row_set_aside(f"{row.database}.{row.table}")
        self._left_out.add(row.reason, encode_undecoded_row(row), table=f"{row.database}.{row.table}")

    def leave_out(self, schema: TableSchema, unread: UnreadRow, view: ReadView | CopiedAt) -> None:
        """A row of a snapshot that could not be read."""
        self.set_aside(
            UndecodedRow(
                source=self._source,
                source_partition=SOURCE_PARTITION,
                database=schema.table_id.database,
                table=schema.table_id.table,
                column=unread.column,
                schema_version=schema.version,
                reason=unread.reason,
                transaction_id="",
                order=view.order.after(),
                file=view.position.file,
                position=view.position.pos,
                row=0,
                images=unread.packet,
                is_snapshot=True,
            )
        )

    def drained(self, decoder: LogDecoder) -> ReadBatch:
        """Everything decoded so far: nothing waits for more of the log to come."""
        return self.take(self.decoder_resume_point(decoder))

    def decoder_resume_point(self, decoder: LogDecoder) -> ResumePoint | None:
        """The decoder's place, once its quarantines are reported; None inside a transaction."""
        if not decoder.is_between_transactions:
            return None
        self._reports.report_quarantined(decoder.tables.quarantined)
        self._reports.report_unseen(decoder.tables.unseen)
        return self.resume_point(decoder.position, decoder.progress.last_order, decoder.progress.committed_at_us)
