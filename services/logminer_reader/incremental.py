"""Incremental snapshots: tables read again, a chunk at a time, while the log is followed.

A chunk is read AS OF an SCN h, so it is exact at h, and belongs where every commit below h was delivered and none at h or
above. No watermark is written, no window is kept, and no row of a chunk is dropped. Its rows have the order of h: whatever
commits at h or above wins. The current SCN grows by itself, so the place comes with the next window of redo.

A chunk is read with the definition that the log has reached. A statement that the log brings before the chunk's place has it
read again. How far each table got travels in the checkpoint (``libs.source.incremental``), with the rows that it covers.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from libs.errors import HeadwaterError, PipelineHalted, UndecodableValue
from libs.failpoints import failpoint
from libs.oracle.log_position import LogminerPosition, snapshot_order
from libs.oracle.snapshot_query import ROW_ID, can_page_by, page_select, place_of
from libs.oracle.table_schema import row_key
from libs.source.incremental import begin_again, chunk_delivered, drop_first, drop_table, is_same_copy, put_first
from libs.source.oracle.client import Connection, connect_to_tables, hang_up, query
from libs.source.oracle.settings import OracleSourceSettings
from libs.source.port import ReadBatch
from libs.source.signal_outcomes import note_finished, note_given_up
from libs.telemetry import metrics
from libs.telemetry.faults import COPY_REFUSED, lift_fault, raise_fault
from libs.types.checkpoint import IncrementalSnapshot, TableCopy
from libs.types.fault import FaultScope
from libs.types.table import TableSchema
from services.logminer_reader.copied_rows import (
    CopiedAt,
    CopiedRow,
    RowWriter,
    UnreadRow,
    append_rows,
    undecoded,
    written,
)
from services.logminer_reader.gather import Gatherer
from services.logminer_reader.initial_copy import is_moved_on
from services.logminer_reader.position import SOURCE_PARTITION
from services.logminer_reader.schemas import SourceSchemas

log = structlog.get_logger()

_BEGUN: Final = b"begun"
"""``TableCopy.maximum_key`` of a copy that has begun: no table has an end to remember, because each chunk is exact."""
_CURRENT_SCN: Final = "SELECT CURRENT_SCN FROM V$DATABASE"


class TableRefused(Exception):
    """A table's copy cannot go on; the others do. The message has the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one table, exact at an SCN."""

    copy: TableCopy
    """The table's progress once these rows are delivered."""
    schema: TableSchema
    at: CopiedAt
    rows: tuple[CopiedRow | UnreadRow, ...]
    is_last: bool


def read_chunk(
    connection: Connection, schema: TableSchema, copy: TableCopy, *, epoch: int, limit: int, leaves_out: bool
) -> Chunk:
    """The next rows of a copy, as of now. Blocks.

    Raises:
        TableRefused: the table cannot be read along its key, or a row of it cannot be written and none is left out.
        SourceUnavailable: connection lost.
        PipelineHalted, AccessDenied: Oracle refuses the SELECT.
    """
    key = _key_of(schema, copy)
    [(scn,)] = query(connection, _CURRENT_SCN)
    at = CopiedAt(int(scn), epoch, time.time_ns() // 1_000)
    select = page_select(schema, at.scn, key, copy.last_key, limit, copy.condition)
    found = query(connection, select.sql, select.binds)
    try:
        rows = tuple(written(RowWriter(schema), found, leaves_out=leaves_out))
    except UndecodableValue as error:
        raise TableRefused(f"{error}; mend the row, or set failure_handling, then ask for the table again") from error
    progress = msgspec.structs.replace(
        copy,
        maximum_key=_BEGUN,
        last_key=place_of(schema, key, found[-1]) if found else copy.last_key,
        rows_read=copy.rows_read + len(found),
        chunks_read=copy.chunks_read + 1,
    )
    return Chunk(progress, schema, at, rows, is_last=len(found) < limit)


def _key_of(schema: TableSchema, copy: TableCopy) -> tuple[str, ...]:
    """The columns along which a copy is read. Raises TableRefused."""
    if copy.surrogate_key:
        names = {column.name for column in schema.columns}
        if copy.surrogate_key not in names or not can_page_by(schema, (copy.surrogate_key,)):
            raise TableRefused(f"{copy.table} cannot be read along {copy.surrogate_key}: name a column with an order")
        # A page may end between rows that share a value: the key orders them.
        own = row_key(schema)
        key = (copy.surrogate_key, *(name for name in own if name != copy.surrogate_key))
        if not own or not can_page_by(schema, key):
            raise TableRefused(f"{copy.table} cannot be read along {copy.surrogate_key}: it has no key besides")
        return key
    key = row_key(schema)
    return key if can_page_by(schema, key) else (ROW_ID,)


class IncrementalCopy:
    """The chunk on its way, and the tables that wait."""

    def __init__(self, source: str, settings: OracleSourceSettings, schemas: SourceSchemas, gatherer: Gatherer) -> None:
        self._source = source
        self._settings = settings
        self._schemas = schemas
        self._gatherer = gatherer
        self._chunk: Chunk | None = None

    @property
    def due_scn(self) -> int | None:
        """The chunk on its way belongs before the first commit or statement at this SCN or above; None: there is none."""
        return None if self._chunk is None else self._chunk.at.scn

    @property
    def _state(self) -> IncrementalSnapshot:
        return self._gatherer.incremental

    def forget_chunk(self) -> None:
        """The database is another incarnation from here on: the chunk on its way is read again."""
        self._chunk = None

    async def read_next(self, epoch: int) -> None:
        """Read a chunk, where a table waits and none is on its way. A table that cannot be read is reported, and left out."""
        if self._chunk is not None or self._state.is_paused or not self._state.tables:
            return
        copy = self._state.tables[0]
        schema = self._schema_of(copy.table)
        if schema is None:
            self._refuse(copy, TableRefused(f"{copy.table} is not captured, or is quarantined"))
            return
        connection = await asyncio.to_thread(connect_to_tables, self._settings.database)
        try:
            self._chunk = await asyncio.to_thread(
                read_chunk,
                connection,
                schema,
                copy,
                epoch=epoch,
                limit=self._settings.snapshot.incremental_chunk_rows,
                leaves_out=self._gatherer.goes_on,
            )
        except TableRefused as error:
            self._refuse(copy, error)
        except PipelineHalted as error:
            if not is_moved_on(error):
                self._refuse(copy, TableRefused(f"{copy.table} cannot be read: {error}"))
            else:  # the log is about to show the statement
                log.info("incremental_chunk_postponed", table=copy.table, reason=str(error))
        except HeadwaterError as error:
            if not is_moved_on(error):
                raise
            log.info("incremental_chunk_postponed", table=copy.table, reason=str(error))
        finally:
            hang_up(connection)
        failpoint("reader_between_watermarks")

    def _schema_of(self, table: str) -> TableSchema | None:
        if table in self._schemas.quarantined:
            return None
        return next((schema for schema in self._schemas.captured if str(schema.table_id) == table), None)

    def tables_changed(self, before: Mapping[str, TableSchema]) -> None:
        """After a statement: a chunk that was read by another definition is read again. ``before``: captured tables by
        ``SCHEMA.TABLE``, as they were."""
        now = {str(schema.table_id): schema for schema in self._schemas.captured}
        for table, schema in before.items():
            if table not in now:
                self._gatherer.incremental = drop_table(self._state, table)
            elif row_key(schema) != row_key(now[table]):
                self._gatherer.incremental = begin_again(self._state, table)
        if self._chunk is not None and now.get(self._chunk.copy.table) is not self._chunk.schema:
            log.info("incremental_chunk_stale", table=self._chunk.copy.table)
            self._chunk = None

    async def deliver(self, position: LogminerPosition) -> AsyncIterator[ReadBatch]:
        """Put the chunk into the log at this place: every commit below ``due_scn`` was delivered, and none at or above it.

        ``position``: of this place.
        """
        chunk, self._chunk = self._chunk, None
        if chunk is None or not self._state.tables or not is_same_copy(self._state.tables[0], chunk.copy):
            return  # it was stopped
        for row in chunk.rows:
            if isinstance(row, UnreadRow):
                self._gatherer.set_aside(undecoded(self._source, chunk.schema, row, chunk.at))
        good = [row for row in chunk.rows if isinstance(row, CopiedRow)]
        if good:
            append_rows(
                self._gatherer.entries,
                chunk.schema,
                good,
                chunk.at,
                block=self._schemas.block,
                marker=lambda _: "incremental",
                for_tenants=chunk.copy.for_tenants,
            )
        self._gatherer.incremental = chunk_delivered(
            put_first(self._state, chunk.copy), chunk.copy, is_last=chunk.is_last
        )
        metrics.INCREMENTAL_CHUNKS.labels(self._source, SOURCE_PARTITION).inc()
        log.info(
            "incremental_chunk_delivered",
            table=chunk.copy.table,
            chunk=chunk.copy.chunks_read,
            rows=len(good),
            scn=chunk.at.scn,
        )
        order = snapshot_order(position.epoch, chunk.at.scn)
        yield self._gatherer.take(self._gatherer.resume_point(position, order, chunk.at.taken_at_us))
        failpoint("reader_between_incremental_chunks")
        if chunk.is_last:
            lift_fault(COPY_REFUSED, FaultScope(source=self._source, table=chunk.copy.table))
            log.info("incremental_table_finished", table=chunk.copy.table, rows_read=chunk.copy.rows_read)
            note_finished((self._source, SOURCE_PARTITION), chunk.copy)

    def _refuse(self, copy: TableCopy, error: TableRefused) -> None:
        log.warning("incremental_table_refused", table=copy.table, reason=str(error))
        raise_fault(COPY_REFUSED, FaultScope(source=self._source, table=copy.table), happened=str(error))
        note_given_up((self._source, SOURCE_PARTITION), [copy], str(error))
        self._gatherer.incremental = drop_first(self._state)
