"""The snapshot where one is due: rows of one read view, in chunks, with a resume point after each."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

import structlog

from libs.errors import PipelineHalted
from libs.failpoints import failpoint
from libs.source.kept_faults import report_copy
from libs.source.mysql.client import hang_up
from libs.source.mysql.snapshot import (
    Chunk,
    Place,
    ReadView,
    append_rows,
    estimated_rows,
    is_chunked,
    open_read_view,
    read_chunk,
    read_whole,
    rows_in_view,
)
from libs.source.mysql.table_copy import contradiction
from libs.source.port import ReadBatch
from libs.telemetry import metrics
from libs.types.checkpoint import SnapshotProgress
from libs.types.table import TableSchema
from services.dts_decoder.gather import Gatherer
from services.dts_decoder.position import SOURCE_KIND, DtsPosition
from services.dts_decoder.settings import DtsDecoderSettings

log = structlog.get_logger()

_ROWS_PER_BATCH: Final = 2_000


class InitialCopy:
    """The snapshot's read view, and the copy out of it."""

    def __init__(self, settings: DtsDecoderSettings, gatherer: Gatherer, labels: tuple[str, str]) -> None:
        self._settings = settings
        self._gatherer = gatherer
        self._labels = labels
        self._view: ReadView | None = None

    def close(self) -> None:
        """Hang up on the server. Blocks shortly."""
        if self._view is not None:
            hang_up(self._view.connection)

    async def leave(self) -> None:
        """The view is not needed any more."""
        if self._view is not None:
            await asyncio.to_thread(self._view.connection.close)

    async def open_view(self, epoch: int) -> ReadView:
        """A consistent view of the server.

        Raises:
            PipelineHalted: the settings name no server. The rest as ``open_read_view``.
        """
        if self._settings.database is None:
            raise PipelineHalted("the snapshot is unfinished, and the settings name no database: name it again")
        self._view = await asyncio.to_thread(open_read_view, self._settings.database, epoch=epoch)
        return self._view

    async def begin(self, view: ReadView, schemas: Sequence[TableSchema]) -> None:
        """Rows of these tables are to be copied: each resume point says so from here on."""
        tables = [schema.table_id for schema in schemas]
        estimate = await asyncio.to_thread(estimated_rows, view.connection, tables)
        self._gatherer.progress = SnapshotProgress(tables=len(tables), rows_estimated=estimate)

    async def copy(
        self, view: ReadView, schemas: Sequence[TableSchema], position: DtsPosition
    ) -> AsyncIterator[ReadBatch]:
        """The rows still to be copied, with a resume point after each chunk."""
        progress = self._gatherer.progress or SnapshotProgress()
        for index, schema in enumerate(schemas):
            name = str(schema.table_id)
            if name in progress.finished_tables:
                continue
            last_key = progress.last_key if progress.current_table == name else b""
            async for chunk, begins, ends in self._chunks(view, schema, last_key):
                finished = (*progress.finished_tables, name) if ends else progress.finished_tables
                progress = SnapshotProgress(
                    finished_tables=finished,
                    current_table="" if ends else name,
                    last_key=chunk.last_key,
                    tables=progress.tables,
                    rows_copied=progress.rows_copied + len(chunk.rows),
                    rows_estimated=progress.rows_estimated,
                )
                self._gatherer.progress = None if len(finished) == len(schemas) else progress
                place = Place(
                    is_first_table=index == 0,
                    is_last_table=index == len(schemas) - 1,
                    begins_table=begins,
                    ends_table=ends,
                )
                can_resume = ends or bool(chunk.last_key)
                async for batch in self._chunk_batches(view, schema, chunk, place, position if can_resume else None):
                    yield batch
                metrics.SNAPSHOT_ROWS.labels(*self._labels).set(progress.rows_copied)
                metrics.SNAPSHOT_ROWS_ESTIMATED.labels(*self._labels).set(progress.rows_estimated)
                failpoint("reader_between_snapshot_chunks")
        log.info("snapshot_finished", rows=progress.rows_copied, tables=len(schemas))

    async def _chunks(
        self, view: ReadView, schema: TableSchema, last_key: bytes
    ) -> AsyncIterator[tuple[Chunk, bool, bool]]:
        """(chunk, begins the table, ends it)."""
        begins = not last_key
        if not is_chunked(schema):
            parts = read_whole(view, schema)
            rows: list[tuple[bytes, bytes]] | None = await asyncio.to_thread(next, parts)
            while rows is not None:
                following = await asyncio.to_thread(next, parts, None)
                yield Chunk(rows=rows, last_key=b"", has_more=following is not None), begins, following is None
                rows, begins = following, False
            return
        first_key, read = last_key, 0
        while True:
            chunk = await asyncio.to_thread(read_chunk, view, schema, last_key, self._settings.snapshot.chunk_rows)
            read += len(chunk.rows)
            if not chunk.has_more and last_key != first_key:  # one SELECT's answer is whole by itself
                counted = await asyncio.to_thread(rows_in_view, view.connection, schema, behind=first_key)
                name = str(schema.table_id)
                report_copy(self._settings.source, name, contradiction(name, counted, read))
            yield chunk, begins, not chunk.has_more
            if not chunk.has_more:
                return
            last_key, begins = chunk.last_key, False

    async def _chunk_batches(
        self, view: ReadView, schema: TableSchema, chunk: Chunk, place: Place, position: DtsPosition | None
    ) -> AsyncIterator[ReadBatch]:
        size = _ROWS_PER_BATCH
        parts: Sequence[int] = range(0, len(chunk.rows), size) or (0,)
        for start in parts:
            is_last = start + size >= len(chunk.rows)
            append_rows(
                self._gatherer.entries,
                chunk.rows[start : start + size],
                source=self._settings.source,
                schema=schema,
                view=view,
                marker=place.of_part(is_first=start == 0, is_last=is_last).marker,
                connector=SOURCE_KIND,
            )
            resume = None
            if is_last and position is not None:
                resume = self._gatherer.resume_point(position, view.order, view.taken_at_us)
            yield self._gatherer.take(resume)
            await asyncio.sleep(0)
