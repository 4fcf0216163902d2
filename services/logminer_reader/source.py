"""The Oracle source: a copy as of one SCN where one is due, then the redo from that SCN on, as batches.

Oracle's connections block, so they are used in threads, one call at a time.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from libs.errors import PositionPurged, SourceMisconfigured
from libs.events.batch import BatchIdentity
from libs.oracle.log_position import snapshot_order
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.oracle.client import Connection, connect, connect_to_tables, hang_up, query
from libs.source.oracle.preflight import require_sound_source
from libs.source.oracle.settings import OFFERED_MODES
from libs.source.port import ReadBatch
from libs.source.snapshot_mode import Beginning, beginning
from libs.types.checkpoint import Checkpoint
from libs.types.position import SourcePartition
from services.logminer_reader.gather import Gatherer
from services.logminer_reader.incremental import IncrementalCopy
from services.logminer_reader.initial_copy import InitialCopy
from services.logminer_reader.log_following import BesideLog, LogFollowing
from services.logminer_reader.log_views import incarnation
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
            SourceMisconfigured: a mode that is not offered.
        """
        require_sound_source(self._settings)
        mode = self._settings.snapshot.mode
        if mode not in OFFERED_MODES:
            offered = ", ".join(each.value for each in OFFERED_MODES)
            raise SourceMisconfigured(f"snapshot.mode {mode.value} is not offered for Oracle: use one of {offered}")
        begins_anew = resume_from is not None and resume_from.begins_anew
        missing = None if resume_from is None or begins_anew else self._missing_redo(resume_from)
        start = beginning(
            mode,
            has_checkpoint=resume_from is not None and not begins_anew,
            is_copying=resume_from is not None and resume_from.snapshot is not None,
            is_purged=missing is not None,
            is_process_start=not self._has_begun,
        )
        if begins_anew:
            return Beginning(learns_schemas=True, copies=start.copies, begins_anew=True, follows_log=start.follows_log)
        if missing is not None:
            if not start.begins_anew:
                raise missing
            log.warning("snapshot_needed", reason=str(missing))
        return start

    def _missing_redo(self, resume_from: Checkpoint) -> PositionPurged | None:
        position = decode_position(resume_from.position)
        windows = Windows(self._settings.database, self._settings.mining, position.resetlogs_id)
        try:
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
        checkpoint, start = self._resume_from, self._start
        if checkpoint is None or start.begins_anew:
            epoch = 0 if checkpoint is None else decode_position(checkpoint.position).epoch + 1
            position, taken_at_us = await self._begin(epoch)
            order = snapshot_order(epoch, position.done_scn)
            if not start.copies:
                yield self._gatherer.take(self._gatherer.resume_point(position, order, taken_at_us))
        else:
            position, order, taken_at_us = (
                decode_position(checkpoint.position),
                checkpoint.order,
                checkpoint.committed_at_us,
            )
            self._gatherer.progress, self._gatherer.incremental = checkpoint.snapshot, checkpoint.incremental
            await self._schemas.resume(order, position, taken_at_us)
        if start.copies:
            connection = await asyncio.to_thread(self._open_tables)
            async for batch in self._copy.copy(connection, position, taken_at_us):
                yield batch
        await asyncio.to_thread(self._close_tables)
        if not start.follows_log:
            log.info("snapshot_only_finished", mode=self._settings.snapshot.mode.value)
            await asyncio.Event().wait()
        self._signals.open()
        async for batch in self._log.batches(position, order, taken_at_us):
            yield batch

    async def _begin(self, epoch: int) -> tuple[LogminerPosition, int]:
        """Learn the tables; the position of their SCN, and when it was."""
        base = await asyncio.to_thread(self._base)
        connection = await asyncio.to_thread(self._open_tables)
        found = await self._schemas.begin(connection, lambda scn: base.at(scn, epoch))
        position = msgspec.structs.replace(base.at(found.scn, epoch), quarantined=dict(self._schemas.quarantined))
        return position, found.taken_at_us

    def _base(self) -> _Base:
        """Asked before the copy's SCN is chosen: a transaction that is open then began before, or begins after this."""
        connection = connect(self._settings.database)
        try:
            found = incarnation(connection)
            [(oldest,)] = query(connection, _OLDEST_OPEN)
        finally:
            hang_up(connection)
        low_scn = found.current_scn if oldest is None else min(int(oldest), found.current_scn)
        return _Base(found.dbid, found.resetlogs_change, found.resetlogs_id, low_scn)

    def _open_tables(self) -> Connection:
        if self._tables is None:
            self._tables = connect_to_tables(self._settings.database)
        return self._tables

    def _close_tables(self) -> None:
        if self._tables is not None:
            hang_up(self._tables)
            self._tables = None
