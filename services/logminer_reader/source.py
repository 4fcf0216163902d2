"""The Oracle source: a copy as of one SCN where one is due, then the redo from that SCN on, as batches.

Oracle's connections block, so they are used in threads, one call at a time.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import structlog

from libs.errors import PositionPurged, SourceUnavailable
from libs.events.batch import BatchIdentity
from libs.oracle.log_position import snapshot_order
from libs.oracle.redo_logs import oldest_scn
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.oracle.client import Connection, connect, connect_to_tables, hang_up, query
from libs.source.oracle.preflight import require_sound_source
from libs.source.port import ReadBatch
from libs.source.snapshot_mode import Beginning, beginning
from libs.types.checkpoint import Checkpoint
from libs.types.order import EventOrder
from libs.types.position import SourcePartition
from services.logminer_reader.gather import Gatherer
from services.logminer_reader.incremental import IncrementalCopy
from services.logminer_reader.initial_copy import InitialCopy
from services.logminer_reader.log_following import BesideLog, LogFollowing
from services.logminer_reader.log_views import incarnation, next_incarnation, read_log_views
from services.logminer_reader.position import SOURCE_PARTITION, LogminerPosition, decode_position
from services.logminer_reader.schema_changes import SchemaChanges
from services.logminer_reader.schemas import SourceSchemas
from services.logminer_reader.settings import LogminerReaderSettings
from services.logminer_reader.signals import Signals
from services.logminer_reader.windows import Windows

log = structlog.get_logger()

_OLDEST_OPEN: Final = "SELECT MIN(START_SCN) FROM GV$TRANSACTION"


class OracleSource:
    """One Oracle database as a ``libs.source.port.Source``."""

    def __init__(self, settings: LogminerReaderSettings, schema_history: SchemaHistoryClient) -> None:
        self._settings = settings
        self._schema_history = schema_history
        self._has_begun = False
        self.partition = SourcePartition(source=settings.source, name=SOURCE_PARTITION)

    @asynccontextmanager
    async def open(self, resume_from: Checkpoint | None, identity: BatchIdentity) -> AsyncIterator["OracleChangeLog"]:
        """See ``libs.source.port.Source.open``."""
        start = await asyncio.to_thread(self._find_beginning, resume_from)
        change_log = OracleChangeLog(self._settings, self._schema_history, resume_from, identity, start)
        self._has_begun = True
        try:
            yield change_log
        finally:
            await asyncio.shield(change_log.close())

    def _find_beginning(self, resume_from: Checkpoint | None) -> Beginning:
        """The first step. Blocks.

        Raises:
            PositionPurged: the redo to resume from is gone, and ``snapshot.mode`` copies nothing again.
        """
        require_sound_source(self._settings)
        mode = self._settings.snapshot.mode
        starts_over = resume_from is not None and resume_from.starts_over
        missing = None if resume_from is None or starts_over else self._missing_redo(resume_from)
        start = beginning(
            mode,
            has_checkpoint=resume_from is not None and not starts_over,
            is_copying=resume_from is not None and resume_from.snapshot is not None,
            is_purged=missing is not None,
            is_process_start=not self._has_begun,
        )
        if starts_over and resume_from is not None:
            log.warning("checkpoint_was_reset", position=resume_from.position.token.decode(errors="replace"))
            return replace(start, starts_over=True)
        if missing is not None:
            if not start.starts_over:
                raise missing
            log.warning("snapshot_needed", reason=str(missing))
        return start

    def _missing_redo(self, resume_from: Checkpoint) -> PositionPurged | None:
        position = decode_position(resume_from.position)
        windows = Windows(self._settings.database, self._settings.mining, position.resetlogs_id)
        try:
            after = next_incarnation(windows.views, position)
            windows.ends_before = None if after is None else after.resetlogs_change
            windows.next(position.mined_from - 1)
        except PositionPurged as error:
            return error
        finally:
            windows.close()
        return None


@dataclass(frozen=True, slots=True)
class _Base:
    """Where a copy begins: a place from which each transaction that was open at the copy's SCN is mined whole."""

    dbid: int
    resetlogs_change: int
    resetlogs_id: int
    low_scn: int
    current_scn: int

    def at(self, scn: int, epoch: int) -> LogminerPosition:
        """The position of a copy that is as of an SCN."""
        return LogminerPosition(
            dbid=self.dbid,
            resetlogs_change=self.resetlogs_change,
            resetlogs_id=self.resetlogs_id,
            epoch=epoch,
            done_scn=scn,
            low_scn=min(self.low_scn, scn),
        )


@dataclass(frozen=True, slots=True)
class _At:
    """A place to go on from."""

    position: LogminerPosition
    order: EventOrder
    """Of the last event before it."""
    committed_at_us: int


class OracleChangeLog:
    """An open Oracle source (``libs.source.port.ChangeLog``): its parts, and the order of its phases."""

    def __init__(
        self,
        settings: LogminerReaderSettings,
        schema_history: SchemaHistoryClient,
        resume_from: Checkpoint | None,
        identity: BatchIdentity,
        start: Beginning,
    ) -> None:
        self._settings = settings
        self._resume_from = resume_from
        self._start = start
        self._gatherer = Gatherer(settings.source, settings.failure_handling, identity)
        self._schemas = SourceSchemas(settings.source, settings, schema_history, self._gatherer.entries)
        self._copy = InitialCopy(settings.source, settings, self._schemas, self._gatherer)
        self._signals = Signals(settings.source, settings.kafka, self._schemas, self._gatherer)
        beside = BesideLog(
            SchemaChanges(settings.source, settings, self._schemas),
            IncrementalCopy(settings.source, settings, self._schemas, self._gatherer),
            self._signals,
        )
        self._log = LogFollowing(settings, self._schemas, beside, self._gatherer)
        self._tables: Connection | None = None

    async def close(self) -> None:
        """Close every connection."""
        self._signals.close()
        await self._log.close()
        self._close_tables()

    @property
    def quarantined(self) -> Mapping[str, str]:
        """See ``libs.source.port.QuarantinesTables``."""
        return self._schemas.quarantined

    async def batches(self) -> AsyncIterator[ReadBatch]:
        """See ``libs.source.port.ChangeLog.batches``."""
        start = self._start
        if self._resume_from is not None:
            # Also at a new beginning: signals that were acted upon are not followed again.
            self._gatherer.incremental = self._resume_from.incremental
        if self._resume_from is None or start.starts_over:
            epoch = 0 if self._resume_from is None else _epoch_after(self._resume_from)
            at = await (self._begin_at_oldest_log(epoch) if start.from_oldest_log else self._begin(epoch))
            is_kept = not start.copies and not start.from_oldest_log
        else:
            at = await self._resume(self._resume_from)
            is_kept = start.learns_schemas
        if is_kept:  # the schemas alone are published
            yield self._gatherer.take(self._gatherer.resume_point(at.position, at.order, at.committed_at_us))
        if start.copies_again:
            begun, copy_at = at, await self._copy_again_at(at)
            until_scn = copy_at.position.done_scn
            async for batch in self._log.batches(begun.position, begun.order, begun.committed_at_us, until_scn):
                yield batch
            at = self._with_quarantine(copy_at)
        if start.copies:
            connection = await asyncio.to_thread(self._open_tables)
            async for batch in self._copy.copy(connection, at.position, at.committed_at_us):
                yield batch
        await asyncio.to_thread(self._close_tables)
        if not start.follows_log:
            log.info("snapshot_only_finished", mode=self._settings.snapshot.mode.value)
            await asyncio.Event().wait()
        self._signals.open()
        async for batch in self._log.batches(at.position, at.order, at.committed_at_us):
            yield batch

    async def _begin(self, epoch: int) -> _At:
        """Learn the tables; the place of their SCN."""
        base = await asyncio.to_thread(self._base)
        connection = await asyncio.to_thread(self._open_tables)
        found = await self._schemas.begin(connection, lambda scn: base.at(scn, epoch))
        position = base.at(found.scn, epoch)
        return self._with_quarantine(_At(position, snapshot_order(epoch, found.scn), found.taken_at_us))

    async def _begin_at_oldest_log(self, epoch: int) -> _At:
        """The first SCN whose redo is there; the log brings the tables' definitions."""
        base = await asyncio.to_thread(self._base)
        connection = await asyncio.to_thread(self._open_tables)
        await self._schemas.await_tables(connection)
        scn = await asyncio.to_thread(self._oldest_scn, base.resetlogs_id)
        log.info("log_begins", scn=scn)
        return _At(base.at(scn, epoch), snapshot_order(epoch, scn), 0)

    async def _resume(self, checkpoint: Checkpoint) -> _At:
        """Take up the checkpoint's state."""
        at = _At(decode_position(checkpoint.position), checkpoint.order, checkpoint.committed_at_us)
        self._gatherer.progress = checkpoint.snapshot
        learns_all = self._start.learns_schemas
        await self._schemas.resume(at.order, at.position, at.committed_at_us, learns_all=learns_all)
        return self._with_quarantine(at)

    async def _copy_again_at(self, at: _At) -> _At:
        """The place of a new copy: of now, and not before all that was delivered."""
        base = await asyncio.to_thread(self._base)
        delivered_scn = at.position.done_scn + bool(at.position.done_commits)
        scn, epoch = max(base.current_scn, delivered_scn), at.position.epoch
        log.info("copying_again", scn=scn)
        position = msgspec.structs.replace(base.at(scn, epoch), dropped=at.position.dropped)
        return _At(position, snapshot_order(epoch, scn), time.time_ns() // 1_000)

    def _with_quarantine(self, at: _At) -> _At:
        position = msgspec.structs.replace(at.position, quarantined=dict(self._schemas.quarantined))
        return replace(at, position=position)

    def _base(self) -> _Base:
        """Asked before a copy's SCN is chosen: a transaction that is open then began before, or begins after this."""
        connection = connect(self._settings.database)
        try:
            found = incarnation(connection)
            [(oldest,)] = query(connection, _OLDEST_OPEN)
        finally:
            hang_up(connection)
        low_scn = found.current_scn if oldest is None else min(int(oldest), found.current_scn)
        return _Base(found.dbid, found.resetlogs_change, found.resetlogs_id, low_scn, found.current_scn)

    def _oldest_scn(self, resetlogs_id: int) -> int:
        connection = connect(self._settings.database)
        try:
            views = read_log_views(connection, resetlogs_id, with_archived=True)
        finally:
            hang_up(connection)
        found = oldest_scn(views, self._settings.mining.archive_destinations)
        if found is None:
            raise SourceUnavailable("no view lists a redo log")
        return found

    def _open_tables(self) -> Connection:
        if self._tables is None:
            self._tables = connect_to_tables(self._settings.database)
        return self._tables

    def _close_tables(self) -> None:
        if self._tables is not None:
            hang_up(self._tables)
            self._tables = None


def _epoch_after(checkpoint: Checkpoint) -> int:
    """Above all events so far. After a reset the position does not count: it may be of another kind of source."""
    if checkpoint.starts_over:
        return checkpoint.order.epoch + 1
    return decode_position(checkpoint.position).epoch + 1
