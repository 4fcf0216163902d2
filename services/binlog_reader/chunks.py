"""Chunks of incremental snapshots on the reader's side: read while the log stands still, delivered at their place in it.

``incremental`` has the algorithm and the windows; this opens connections, lifts quarantines and faults, and fills batches.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

import msgspec
import structlog

from libs.events.batch import MAX_BATCH_BYTES
from libs.failpoints import failpoint
from libs.mysql.gtid import GtidSet
from libs.mysql.watermarks import open_low, set_high
from libs.source.incremental import is_same_copy
from libs.source.mysql.client import Connection
from libs.source.mysql.snapshot import CopiedAt, append_rows
from libs.source.port import ReadBatch
from libs.source.signal_outcomes import note_finished, note_given_up
from libs.source.table_reports import TableReports
from libs.telemetry import metrics
from libs.telemetry.faults import COPY_REFUSED, ROWS_SET_ASIDE, lift_fault, raise_fault
from libs.types.checkpoint import TableCopy
from libs.types.fault import FaultScope
from libs.types.table import TableId, TableSchema
from services.binlog_reader.connections import Connections
from services.binlog_reader.decode import LogDecoder
from services.binlog_reader.gather import Gatherer
from services.binlog_reader.incremental import (
    Chunk,
    Counted,
    IncrementalCopy,
    TableRefused,
    count_rows,
    counted_chunk,
    prepare_connection,
    read_between_watermarks,
)
from services.binlog_reader.position import SOURCE_PARTITION
from services.binlog_reader.schema_changes import SchemaChanges
from services.binlog_reader.settings import BinlogReaderSettings
from services.binlog_reader.source_schemas import SourceSchemas

log = structlog.get_logger()

_ROWS_PER_SNAPSHOT_BATCH: Final = 2_000
_SIGNAL_POLL_S: Final = 0.2


class Chunks:
    """The chunks of one reader's incremental snapshots."""

    def __init__(
        self,
        settings: BinlogReaderSettings,
        connections: Connections,
        schemas: SourceSchemas,
        gatherer: Gatherer,
        incremental: IncrementalCopy,
        reports: TableReports,
        changes: SchemaChanges,
    ) -> None:
        self._settings = settings
        self._connections = connections
        self._schemas = schemas
        self._gatherer = gatherer
        self._incremental = incremental
        self._reports = reports
        self._changes = changes
        self._chunk_connection: Connection | None = None
        self._count_connection: Connection | None = None
        self._counting: tuple[TableCopy, asyncio.Future[Counted | None]] | None = None
        """The copy whose rows the source counts."""
        self._set_aside_in_copy: set[str] = set()
        """Tables that are being copied, and of which this copy left rows out."""
        self._readmitted: set[tuple[str, str]] = set()
        """Tables, and the signals that had them read again."""

    @property
    def is_counting(self) -> bool:
        """The source counts a table's rows: no chunk is read meanwhile."""
        return self._counting is not None and not self._counting[1].done()

    async def read(self, decoder: LogDecoder) -> None:
        """Read the next chunk of the first table that waits, the log standing still."""
        copy = self._incremental.state.tables[0]
        try:
            schema = next((s for s in self._schemas.captured if str(s.table_id) == copy.table), None)
            if schema is None:
                raise TableRefused(f"{copy.table} is not captured any more")
            if decoder.position.by_file:
                raise TableRefused(f"{copy.table}: the source has no GTIDs to read it between; set gtid_mode=ON there")
            if copy.table in decoder.tables.quarantined:
                schema = await self._readmit(decoder, schema.table_id, copy)
            if self._incremental.wants_count:
                chunk = await self._counted(decoder, schema, copy)
                if chunk is not None:
                    self._incremental.take_chunk(chunk, caught_up=not chunk.window.unseen)
                return
            if self._chunk_connection is None:
                self._chunk_connection = await asyncio.to_thread(self._connections.open)
                await asyncio.to_thread(prepare_connection, self._chunk_connection)
            chunk = await asyncio.to_thread(
                read_between_watermarks,
                self._chunk_connection,
                schema,
                copy,
                seen=decoder.executed,
                chunk_rows=self._incremental.chunk_rows(self._settings.snapshot.incremental_chunk_rows),
                leaves_out=self._gatherer.goes_on,
            )
            if chunk is None:
                await asyncio.sleep(_SIGNAL_POLL_S)
                return
            self._incremental.take_chunk(chunk, caught_up=not chunk.window.unseen)
        except TableRefused as error:
            self._refuse(copy.table, error)

    def _refuse(self, table: str, error: TableRefused) -> None:
        log.error("incremental_table_refused", table=table, reason=str(error))
        raise_fault(COPY_REFUSED, FaultScope(source=self._settings.source, table=table), happened=str(error))
        refused = [copy for copy in self._incremental.state.tables if copy.table == table]
        note_given_up((self._settings.source, SOURCE_PARTITION), refused, str(error))
        self._incremental.refuse(table)

    async def _counted(self, decoder: LogDecoder, schema: TableSchema, copy: TableCopy) -> Chunk | None:
        """The end of a copy that was read whole; None: its rows are being counted, while the log goes on."""
        if (
            self._settings.skipped_operations
            or self._settings.gtid_source_includes
            or self._settings.gtid_source_excludes
        ):
            # The log is passed over in part, so it does not show each row that comes.
            return Chunk(
                copy=copy, schema=schema, window=set_high(open_low(GtidSet()), GtidSet(), GtidSet()), is_last=True
            )
        known, self._counting = self._counting, None
        if known is not None and is_same_copy(known[0], copy) and (counted := known[1].result()) is not None:
            return counted_chunk(schema, copy, counted, seen=decoder.executed)
        if self._count_connection is None:
            self._count_connection = await asyncio.to_thread(self._connections.open)
        counting = asyncio.ensure_future(asyncio.to_thread(count_rows, self._count_connection, schema, copy))
        self._counting = copy, counting
        await asyncio.wait({counting}, timeout=_SIGNAL_POLL_S)
        return None

    async def _readmit(self, decoder: LogDecoder, table_id: TableId, copy: TableCopy) -> TableSchema:
        """End a quarantine, because a signal has the table read again: from here on with the definition that the source has
        now.

        Should the log not have come so far, its next table map contradicts that, and the table is quarantined again.

        Raises:
            TableRefused: the quarantine began while the table was read, or the definition cannot be read.
        """
        reason = decoder.tables.quarantined[copy.table]
        if copy.chunks_read or (copy.table, copy.signal_id) in self._readmitted:
            raise TableRefused(f"{copy.table} was quarantined while it was read: {reason}")
        statement = await self._schemas.take_definition(
            table_id,
            position=decoder.position,
            order=decoder.progress.last_order,
            committed_at_us=decoder.progress.committed_at_us,
        )
        decoder.tables.apply_schemas({table_id: self._schemas.tables.schemas[table_id]}, statement)
        decoder.tables.release(table_id)
        self._readmitted.add((copy.table, copy.signal_id))
        log.info("table_readmitted", table=copy.table, signal_id=copy.signal_id)
        return self._schemas.tables.schemas[table_id]

    async def deliver_due(self, decoder: LogDecoder) -> AsyncIterator[ReadBatch]:
        """Put the rest of the chunk into the log at this place, in batches."""
        position = decoder.position
        try:
            chunk = self._incremental.deliver()
        except TableRefused as error:
            self._refuse(self._incremental.state.tables[0].table, error)
            return
        if chunk is None:
            return
        view = CopiedAt(
            position=msgspec.structs.replace(position, gtid_set=str(chunk.window.low)),
            order=decoder.progress.last_order,
            taken_at_us=time.time_ns() // 1_000,
        )
        for unread in chunk.left_out:
            self._set_aside_in_copy.add(chunk.copy.table)
            self._gatherer.leave_out(chunk.schema, unread, view)
        for rows in _parts(list(chunk.rows.values())):
            if self._gatherer.entries.is_full:
                yield self._gatherer.take(None)
            append_rows(
                self._gatherer.entries,
                rows,
                source=self._settings.source,
                schema=chunk.schema,
                view=view,
                marker=lambda row, of: b'"incremental"',
                for_tenants=chunk.copy.for_tenants,
            )
        labels = (self._settings.source, SOURCE_PARTITION)
        metrics.INCREMENTAL_CHUNKS.labels(*labels).inc()
        metrics.INCREMENTAL_ROWS_DROPPED.labels(*labels).inc(chunk.dropped_rows)
        log.info(
            "incremental_chunk_delivered",
            table=chunk.copy.table,
            chunk=chunk.copy.chunks_read,
            rows=len(chunk.rows),
            dropped_rows=chunk.dropped_rows,
            rows_read=chunk.copy.rows_read,
        )
        failpoint("reader_between_incremental_chunks")
        if chunk.is_last:
            self._finish(decoder, chunk)

    def _finish(self, decoder: LogDecoder, chunk: Chunk) -> None:
        """A table was read to its end: the faults that this mends are lifted."""
        if (
            not chunk.copy.for_tenants
            and not chunk.copy.condition
            and chunk.copy.table not in self._changes.unseen_in_copy
        ):
            decoder.tables.seen_again(chunk.copy.table)
        self._changes.unseen_in_copy.discard(chunk.copy.table)
        lift_fault(COPY_REFUSED, FaultScope(source=self._settings.source, table=chunk.copy.table))
        is_for_all = not chunk.copy.condition and not chunk.copy.for_tenants
        if is_for_all:
            self._reports.note_read_again(chunk.copy.table, (str(schema.table_id) for schema in self._schemas.captured))
        if is_for_all and chunk.copy.table not in self._set_aside_in_copy:
            lift_fault(ROWS_SET_ASIDE, FaultScope(source=self._settings.source, table=chunk.copy.table))
        self._set_aside_in_copy.discard(chunk.copy.table)
        log.info("incremental_table_finished", table=chunk.copy.table, rows_read=chunk.copy.rows_read)
        note_finished((self._settings.source, SOURCE_PARTITION), chunk.copy)


def _parts(rows: Sequence[tuple[bytes, bytes]]) -> Iterator[Sequence[tuple[bytes, bytes]]]:
    """``rows`` in parts that fit into a batch."""
    begin, size = 0, 0
    for end, (image, _) in enumerate(rows, start=1):
        size += len(image)
        if size >= MAX_BATCH_BYTES or end - begin == _ROWS_PER_SNAPSHOT_BATCH or end == len(rows):
            yield rows[begin:end]
            begin, size = end, 0
