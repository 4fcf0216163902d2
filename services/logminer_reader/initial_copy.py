"""The snapshot: every row of the captured tables AS OF one SCN, without a lock, a range of ROWIDs at a time.

All SELECTs name the same SCN, so the copy is of one moment, and goes on with that SCN after a crash: the checkpoint holds the
ranges that are left. Commits at that SCN and above come from the log, with greater orders.

Undo lasts for a while only. A table whose rows of then are gone (ORA-01555), or whose definition has changed since
(ORA-01466), is not begun again at a later SCN: changes between the two SCNs would come after newer rows. What was copied stays,
and the table goes on as an incremental snapshot once the log is followed.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec
import structlog

from libs.errors import HeadwaterError
from libs.failpoints import failpoint
from libs.oracle.error_codes import Treatment, treatment_of
from libs.oracle.log_position import LogminerPosition, snapshot_order
from libs.oracle.row_ids import Extent, RowIdRange, ranges_of
from libs.oracle.snapshot_query import Select, can_page_by, page_select, place_of, range_select
from libs.oracle.table_schema import row_key
from libs.source.incremental import take_signal
from libs.source.oracle.client import Connection, fetch, oracle_error_code, query
from libs.source.oracle.settings import OracleSourceSettings
from libs.source.port import ReadBatch
from libs.source.signals import ExecuteSnapshot
from libs.types.checkpoint import RangeProgress, SnapshotProgress
from libs.types.table import TableId, TableSchema
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
from services.logminer_reader.schemas import SourceSchemas

log = structlog.get_logger()

_SEGMENTS: Final = (
    "SELECT SUBOBJECT_NAME, DATA_OBJECT_ID FROM DBA_OBJECTS WHERE OWNER = :1 AND OBJECT_NAME = :2 "
    "AND OBJECT_TYPE IN ('TABLE', 'TABLE PARTITION', 'TABLE SUBPARTITION') AND DATA_OBJECT_ID IS NOT NULL"
)
_EXTENTS: Final = (
    "SELECT PARTITION_NAME, RELATIVE_FNO, BLOCK_ID, BLOCKS, BYTES "
    "FROM DBA_EXTENTS WHERE OWNER = :1 AND SEGMENT_NAME = :2"
)
_INDEX_ORGANIZED: Final = "SELECT IOT_TYPE FROM DBA_TABLES WHERE OWNER = :1 AND TABLE_NAME = :2"
_MB: Final = 1 << 20
_ROWS_AT_ONCE: Final = 2_000
_MOVED_ON: Final = frozenset({Treatment.UNDO_GONE, Treatment.DEFINITION_CHANGED})
_NO_SUCH_COLUMN: Final = 904


def table_ranges(connection: Connection, table_id: TableId, range_bytes: int) -> list[RangeProgress]:
    """A table's rows as ranges of ROWIDs that leave none out; one range without bounds where its ROWIDs are no places.

    Blocks. Raises SourceUnavailable, AccessDenied.
    """
    binds = [table_id.database, table_id.table]
    name = str(table_id)
    if query(connection, _INDEX_ORGANIZED, binds) == [("IOT",)]:
        return [RangeProgress(table=name)]
    extents: dict[str | None, list[Extent]] = {}
    for partition, *extent in query(connection, _EXTENTS, binds):
        extents.setdefault(partition, []).append(Extent(*map(int, extent)))
    segments = query(connection, _SEGMENTS, binds)
    return [
        RangeProgress(table=name, last_key=part.first.encode(), until=part.last.encode())
        for partition, data_object_id in sorted(segments, key=lambda segment: int(segment[1]))
        for part in ranges_of(int(data_object_id), extents.get(partition, []), range_bytes)
    ]


def is_moved_on(error: HeadwaterError) -> bool:
    """The table's rows as of an SCN are no longer to be had by the definition of then."""
    code = oracle_error_code(error)
    return treatment_of(code) in _MOVED_ON or code == _NO_SUCH_COLUMN


class InitialCopy:
    """Copies the captured tables, one range after another."""

    def __init__(self, source: str, settings: OracleSourceSettings, schemas: SourceSchemas, gatherer: Gatherer) -> None:
        self._source = source
        self._settings = settings
        self._schemas = schemas
        self._gatherer = gatherer

    async def copy(
        self, connection: Connection, position: LogminerPosition, taken_at_us: int
    ) -> AsyncIterator[ReadBatch]:
        """The rows still to be copied, with a resume point after each range.

        ``position.done_scn`` is the copy's SCN. ``connection`` is used by nobody else meanwhile.

        Raises:
            SourceUnavailable: connection lost; resume.
            AccessDenied: a table is not to be read; the message has the grant.
            UndecodableValue: a value does not fit its column, and ``failure_handling`` leaves nothing out.
        """
        at = CopiedAt(position.done_scn, position.epoch, taken_at_us)
        progress = self._gatherer.progress or SnapshotProgress(tables=len(self._schemas.captured))
        for schema in self._schemas.captured:
            name = str(schema.table_id)
            if name in progress.finished_tables or name in self._schemas.quarantined:
                continue
            left = [each for each in progress.ranges if each.table == name] or await asyncio.to_thread(
                table_ranges, connection, schema.table_id, self._settings.snapshot.range_mb * _MB
            )
            try:
                while left:
                    progress = msgspec.structs.replace(progress, current_table=name, ranges=tuple(left))
                    async for rows in self._range_rows(connection, schema, left[0], at):
                        if self._gatherer.entries.is_full:
                            yield self._gatherer.take(None)
                        progress = self._append(schema, rows, at, progress)
                    del left[0]
                    if left:
                        yield self._resumable(progress, left, at, position)
                    failpoint("reader_between_snapshot_chunks")
            except HeadwaterError as error:
                if not is_moved_on(error):
                    raise
                self._go_on_later(name, at, error)
            progress = msgspec.structs.replace(
                progress, finished_tables=(*progress.finished_tables, name), current_table="", ranges=()
            )
            yield self._resumable(progress, (), at, position)
        self._gatherer.progress = None
        yield self._gatherer.take(
            self._gatherer.resume_point(position, snapshot_order(at.epoch, at.scn), at.taken_at_us)
        )
        log.info("snapshot_finished", rows=progress.rows_copied, tables=len(progress.finished_tables), scn=at.scn)

    def _resumable(
        self, progress: SnapshotProgress, left: Sequence[RangeProgress], at: CopiedAt, position: LogminerPosition
    ) -> ReadBatch:
        self._gatherer.progress = msgspec.structs.replace(progress, ranges=tuple(left))
        order = snapshot_order(at.epoch, at.scn)
        return self._gatherer.take(self._gatherer.resume_point(position, order, at.taken_at_us))

    def _append(
        self, schema: TableSchema, rows: Sequence[CopiedRow | UnreadRow], at: CopiedAt, progress: SnapshotProgress
    ) -> SnapshotProgress:
        for row in rows:
            if isinstance(row, UnreadRow):
                self._gatherer.set_aside(undecoded(self._source, schema, row, at))
        good = [row for row in rows if isinstance(row, CopiedRow)]
        if good:
            is_first = progress.rows_copied == 0
            append_rows(
                self._gatherer.entries,
                schema,
                good,
                at,
                block=self._schemas.block,
                marker=lambda nth: "first" if is_first and nth == 0 else "true",
            )
        return msgspec.structs.replace(progress, rows_copied=progress.rows_copied + len(good))

    async def _range_rows(
        self, connection: Connection, schema: TableSchema, part: RangeProgress, at: CopiedAt
    ) -> AsyncIterator[list[CopiedRow | UnreadRow]]:
        """Some rows of a range at a time."""
        condition = self._settings.snapshot.select_overrides.get(str(schema.table_id), "")
        writer = RowWriter(schema)
        if part.until:
            found = RowIdRange(part.last_key.decode(), part.until.decode())
            async for rows in self._selected(connection, writer, range_select(schema, at.scn, found, condition)):
                yield [row for _, row in rows]
            return
        key, behind = row_key(schema), part.last_key
        assert can_page_by(schema, key), "an index-organized table has a primary key"
        while True:
            limit = self._settings.snapshot.chunk_rows
            count, last = 0, None
            select = page_select(schema, at.scn, key, behind, limit, condition)
            async for rows in self._selected(connection, writer, select):
                count += len(rows)
                last = rows[-1][0]
                yield [row for _, row in rows]
            if last is None or count < limit:
                return
            behind = place_of(schema, key, last)

    async def _selected(
        self, connection: Connection, writer: RowWriter, select: Select
    ) -> AsyncIterator[list[tuple[Sequence[Any], CopiedRow | UnreadRow]]]:
        answer = fetch(connection, select.sql, select.binds, rows=_ROWS_AT_ONCE)
        leaves_out = self._gatherer.goes_on

        def take() -> list[tuple[Sequence[Any], CopiedRow | UnreadRow]]:
            rows = next(answer, [])
            return list(zip(rows, written(writer, rows, leaves_out=leaves_out), strict=True))

        try:
            while rows := await asyncio.to_thread(take):
                yield rows
        finally:
            await asyncio.to_thread(answer.close)  # type: ignore[attr-defined]

    def _go_on_later(self, table: str, at: CopiedAt, error: HeadwaterError) -> None:
        """The rest of a table comes by an incremental snapshot: its rows as of the copy's SCN are not to be had any more."""
        log.warning("table_goes_on_as_incremental_snapshot", table=table, scn=at.scn, reason=str(error))
        signal = ExecuteSnapshot(signal_id=f"snapshot-{at.scn}", tables=(table,))
        self._gatherer.incremental, _ = take_signal(self._gatherer.incremental, signal, [table])
