"""The snapshot where one is due: rows of one read view, in chunks, with a resume point after each."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Final

import msgspec
import structlog

from libs.events.batch import RowRun
from libs.failpoints import failpoint
from libs.source.kept_faults import report_copy
from libs.source.mysql.key_ranges import table_ranges
from libs.source.mysql.replica_lag import ReplicaThrottle
from libs.source.mysql.settings import SnapshotLock
from libs.source.mysql.snapshot import Place, ReadView, append_rows, estimated_rows
from libs.source.mysql.table_copy import CopiedChunk, Readers, TableRange, open_readers
from libs.source.port import ReadBatch
from libs.source.table_reports import TableReports
from libs.types.checkpoint import RangeProgress, SnapshotProgress
from libs.types.table import TableSchema
from services.binlog_reader.gather import Gatherer
from services.binlog_reader.incremental import TableRefused
from services.binlog_reader.settings import BinlogReaderSettings
from services.binlog_reader.source_schemas import SourceSchemas

log = structlog.get_logger()

_RANGES_PER_READER: Final = 4
"""More than one, so that a reader whose ranges were small goes on with another's."""


class InitialCopy:
    """The snapshot's readers, and the copy by them."""

    def __init__(
        self,
        settings: BinlogReaderSettings,
        schemas: SourceSchemas,
        gatherer: Gatherer,
        reports: TableReports,
        throttle: ReplicaThrottle,
    ) -> None:
        self._settings = settings
        self._schemas = schemas
        self._gatherer = gatherer
        self._reports = reports
        self._throttle = throttle
        self._readers: Readers | None = None

    def close(self) -> None:
        """End the readers. Blocks shortly."""
        if self._readers is not None:
            self._readers.close()
            self._readers = None

    async def open_readers(self, *, epoch: int, is_position: bool, copies: bool) -> Readers:
        """``is_position``: the log is followed from the views' position on."""
        snapshot = self._settings.snapshot
        self._readers = await asyncio.to_thread(
            open_readers,
            self._settings.database,
            epoch=epoch,
            processes=snapshot.readers if copies else 1,
            lock_wait_s=snapshot.lock_wait_s if snapshot.lock is SnapshotLock.MINIMAL else 0,
            waits_for_xa=is_position,
        )
        return self._readers

    async def begin(self, readers: Readers, *, copies_again: bool) -> None:
        """Before rows are copied: the progress to go on from, and the view's position with the quarantines of now."""
        if self._gatherer.progress is None or copies_again:
            self._gatherer.progress = SnapshotProgress(
                tables=len(self._schemas.captured), rows_estimated=await self._estimate(readers.view)
            )
        readers.view = await self._with_quarantines(readers.view, self._gatherer.progress)

    async def _with_quarantines(self, view: ReadView, progress: SnapshotProgress) -> ReadView:
        """``view`` at a position with the tables that the log up to it left quarantined.

        A table of which no row was copied yet is read from its beginning: with the definition that the source has now its
        quarantine ends. Any other stays quarantined, and its rest is not copied.
        """
        begun = {*progress.finished_tables, progress.current_table, *(each.table for each in progress.ranges)}
        left: dict[str, str] = {}
        for table, reason in self._reports.quarantined.items():
            table_id = next((table_id for table_id in self._schemas.tables.schemas if str(table_id) == table), None)
            if table_id is None or table in begun:
                left[table] = reason
                continue
            try:
                await self._schemas.take_definition(
                    table_id, position=view.position, order=view.order, committed_at_us=view.taken_at_us
                )
            except TableRefused as error:
                log.warning("table_not_readmitted", table=table, reason=str(error))
                left[table] = reason
        self._reports.report_quarantined(left)
        unseen = {table: happened for table, happened in self._reports.unseen.items() if table in begun}
        self._reports.report_unseen(unseen)
        return replace(view, position=msgspec.structs.replace(view.position, quarantined=left, unseen=unseen))

    async def _estimate(self, view: ReadView) -> int:
        return await asyncio.to_thread(
            estimated_rows, view.connection, tuple(schema.table_id for schema in self._schemas.captured)
        )

    async def copy(self, readers: Readers) -> AsyncIterator[ReadBatch]:
        """The rows still to be copied, with a resume point after each chunk."""
        progress = self._gatherer.progress or SnapshotProgress()
        parts = await self._ranges_left(readers, progress)
        left = {
            number: RangeProgress(table=part.name, last_key=part.behind, until=part.until)
            for number, part in enumerate(parts)
        }
        begun = {each.table for each in progress.ranges}
        marked = set(begun)
        """Tables whose first row has been sent: a chunk may consist of rows that are left out."""
        chunks = readers.copy_all(
            parts,
            source=self._settings.source,
            chunk_rows=self._settings.snapshot.chunk_rows,
            leaves_out=self._gatherer.goes_on,
            wait=self._throttle.wait,
        )
        async for number, chunk in chunks:
            table = parts[number].name
            begins = table not in marked
            begun.add(table)
            if chunk.rows:
                marked.add(table)
            if chunk.is_last:
                del left[number]
            elif chunk.last_key:
                left[number] = msgspec.structs.replace(left[number], last_key=chunk.last_key)
            ends = all(each.table != table for each in left.values())
            place = Place(
                is_first_table=progress.rows_copied == 0, is_last_table=not left, begins_table=begins, ends_table=ends
            )
            progress = SnapshotProgress(
                finished_tables=(*progress.finished_tables, table) if ends else progress.finished_tables,
                current_table="" if ends else table,
                tables=progress.tables,
                rows_copied=progress.rows_copied + chunk.rows,
                rows_estimated=progress.rows_estimated,
                ranges=tuple(each for each in left.values() if each.table in begun),
            )
            self._gatherer.progress = progress if left else None
            can_resume = chunk.is_last or bool(chunk.last_key)
            async for batch in self._chunk_batches(readers.view, parts[number].schema, chunk, place, can_resume):
                yield batch
            failpoint("reader_between_snapshot_chunks")
        if not parts:
            self._gatherer.progress = None
            yield self._gatherer.take(
                self._gatherer.resume_point(readers.view.position, readers.view.order, readers.view.taken_at_us)
            )
        log.info("snapshot_finished", rows=progress.rows_copied, tables=len(progress.finished_tables))

    async def _ranges_left(self, readers: Readers, progress: SnapshotProgress) -> list[TableRange]:
        """Those that an earlier run left, then the tables that it had not begun."""
        snapshot = self._settings.snapshot
        parts: list[TableRange] = []
        for schema in self._schemas.captured:
            name = str(schema.table_id)
            select = snapshot.select_overrides.get(name, "")
            kept = [each for each in progress.ranges if each.table == name]
            if name in progress.finished_tables or name in self._reports.quarantined:
                continue
            if kept:
                parts += [TableRange(schema, each.last_key, each.until, select) for each in kept]
            elif progress.current_table == name and progress.last_key:  # a checkpoint of an earlier release
                parts.append(TableRange(schema, progress.last_key, select=select))
            else:
                parts += await asyncio.to_thread(
                    table_ranges,
                    readers.view.connection,
                    schema,
                    parts=_RANGES_PER_READER * snapshot.readers if snapshot.readers > 1 else 1,
                    chunk_rows=snapshot.chunk_rows,
                    select=select,
                )
        return parts

    async def _chunk_batches(
        self, view: ReadView, schema: TableSchema, chunk: CopiedChunk, place: Place, can_resume: bool
    ) -> AsyncIterator[ReadBatch]:
        for unread in chunk.left_out:
            self._gatherer.leave_out(schema, unread, view)
        report_copy(self._settings.source, str(schema.table_id), chunk.contradiction)
        run = RowRun(
            table_id=schema.table_id,
            schema_version=schema.version,
            transaction_id="",
            first_order=view.order.after(),
            committed_at_us=view.taken_at_us,
            is_snapshot=True,
        )
        append_edge = partial(
            append_rows, self._gatherer.entries, source=self._settings.source, schema=schema, view=view
        )
        is_only = chunk.rows == 1
        if chunk.first is not None:
            append_edge([chunk.first], marker=place.of_part(is_first=True, is_last=is_only).marker)
        for rows in chunk.runs:
            if self._gatherer.entries.is_full:
                yield self._gatherer.take(None)
            self._gatherer.entries.add_encoded(run, rows)
        if chunk.last is not None:
            append_edge([chunk.last], marker=place.of_part(is_first=is_only, is_last=True).marker)
        resume = self._gatherer.resume_point(view.position, view.order, view.taken_at_us) if can_resume else None
        yield self._gatherer.take(resume)
