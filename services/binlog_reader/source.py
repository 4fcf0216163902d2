"""The MySQL source: a snapshot where one is due, then the log, as batches.

``initial_copy`` reads the snapshot, ``log_following`` the log with ``decode``; ``schema_changes`` follows DDL, ``signals`` and
``chunks`` copy again beside the log, and ``gather`` cuts the batches. MySQL's connections block, so they are used in threads,
one call at a time.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import structlog

from libs.errors import PositionPurged
from libs.events.batch import BatchIdentity
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.incremental import has_begun
from libs.source.mysql.replica_lag import ReplicaThrottle
from libs.source.mysql.settings import DatabaseSettings
from libs.source.mysql.snapshot import CopiedAt, oldest_position
from libs.source.mysql.table_copy import Readers
from libs.source.port import ReadBatch
from libs.source.snapshot_mode import Beginning, beginning
from libs.source.table_reports import TableReports
from libs.types.checkpoint import Checkpoint, IncrementalSnapshot
from libs.types.position import SourcePartition
from services.binlog_reader.chunks import Chunks
from services.binlog_reader.connections import Connections
from services.binlog_reader.gather import Gatherer
from services.binlog_reader.incremental import IncrementalCopy
from services.binlog_reader.initial_copy import InitialCopy
from services.binlog_reader.log_following import LogFollowing
from services.binlog_reader.position import SOURCE_PARTITION, BinlogPosition, decode_position
from services.binlog_reader.preflight import sound_server
from services.binlog_reader.same_history import require_same_history
from services.binlog_reader.schema_changes import SchemaChanges
from services.binlog_reader.settings import BinlogReaderSettings
from services.binlog_reader.signals import Signals
from services.binlog_reader.source_schemas import SourceSchemas

log = structlog.get_logger()


class BinlogSource:
    """One MySQL server as a ``libs.source.port.Source``."""

    def __init__(self, settings: BinlogReaderSettings, schema_history: SchemaHistoryClient) -> None:
        self._settings = settings
        self._schema_history = schema_history
        self._has_begun = False
        self.partition = SourcePartition(source=settings.source, name=SOURCE_PARTITION)

    @asynccontextmanager
    async def open(self, resume_from: Checkpoint | None, identity: BatchIdentity) -> AsyncIterator["BinlogChangeLog"]:
        """See ``libs.source.port.Source.open``."""
        position = None
        if resume_from is not None and not resume_from.starts_over:
            position = decode_position(resume_from.position)
        database, start = await asyncio.to_thread(self._find_beginning, resume_from, position)
        change_log = BinlogChangeLog(
            msgspec.structs.replace(self._settings, database=database),
            self._schema_history,
            resume_from,
            identity,
            beginning=start,
        )
        self._has_begun = True
        try:
            yield change_log
        finally:
            await asyncio.shield(asyncio.to_thread(change_log.close))

    def _find_beginning(
        self, resume_from: Checkpoint | None, position: BinlogPosition | None
    ) -> tuple[DatabaseSettings, Beginning]:
        """The server to follow, and the first step. Raises as ``sound_server``."""
        database, missing = self._settings.database, None
        if resume_from is not None and resume_from.starts_over:
            log.warning("checkpoint_was_reset", position=resume_from.position.token.decode(errors="replace"))
            first = beginning(
                self._settings.snapshot.mode,
                has_checkpoint=False,
                is_copying=False,
                is_purged=False,
                is_process_start=not self._has_begun,
            )
            return sound_server(self._settings, None), replace(first, starts_over=True)
        try:
            database = sound_server(self._settings, position)
            if position is not None:
                require_same_history(msgspec.structs.replace(self._settings, database=database), position)
        except PositionPurged as error:
            missing = error
        start = beginning(
            self._settings.snapshot.mode,
            has_checkpoint=resume_from is not None,
            is_copying=resume_from is not None and resume_from.snapshot is not None,
            is_purged=missing is not None,
            is_process_start=not self._has_begun,
        )
        if missing is not None:
            if not start.starts_over:
                raise missing
            log.warning("snapshot_needed", reason=str(missing))
        return database, start


class BinlogChangeLog:
    """An open MySQL source (``libs.source.port.ChangeLog``): its parts, and the order of its phases."""

    def __init__(
        self,
        settings: BinlogReaderSettings,
        schema_history: SchemaHistoryClient,
        resume_from: Checkpoint | None,
        identity: BatchIdentity,
        *,
        beginning: Beginning,
    ) -> None:
        self._settings = settings
        self._resume_from = resume_from
        self._beginning = beginning
        incremental = IncrementalCopy(
            resume_from.incremental if resume_from else IncrementalSnapshot(),
            signal_table=settings.signal_table or "",
        )
        partition = SourcePartition(source=settings.source, name=SOURCE_PARTITION)
        throttle = ReplicaThrottle(settings.database, settings.snapshot, partition)
        self._connections = Connections(settings.database)
        self._reports = reports = TableReports(partition)
        self._gatherer = gatherer = Gatherer(settings, identity, incremental, reports)
        self._schemas = schemas = SourceSchemas(settings, schema_history, gatherer, reports)
        self._copy = InitialCopy(settings, schemas, gatherer, reports, throttle)
        changes = SchemaChanges(settings, schemas, gatherer, incremental)
        self._signals = Signals(settings, schemas, incremental)
        chunks = Chunks(settings, self._connections, schemas, gatherer, incremental, reports, changes)
        self._log = LogFollowing(
            settings,
            self._connections,
            schemas,
            changes,
            gatherer,
            incremental,
            self._signals,
            chunks,
            throttle,
            reports,
        )

    def close(self) -> None:
        """Close every connection. Blocks shortly."""
        self._signals.close()
        self._copy.close()
        self._connections.close()

    @property
    def quarantined(self) -> Mapping[str, str]:
        """See ``libs.source.port.QuarantinesTables``."""
        return self._reports.quarantined

    async def batches(self) -> AsyncIterator[ReadBatch]:
        """See ``libs.source.port.ChangeLog.batches``."""
        checkpoint, start = self._resume_from, self._beginning
        readers: Readers | None = None
        if checkpoint is None or start.starts_over:
            epoch = 0 if checkpoint is None else _epoch_after(checkpoint)
            if start.from_oldest_log:
                position = await asyncio.to_thread(oldest_position, self._settings.database, epoch=epoch)
            else:
                readers = await self._open_readers(epoch=epoch, is_position=True)
                async for batch in self._schemas.learn_all(readers.view, readers.view):
                    yield batch
                position = msgspec.structs.replace(readers.view.position, quarantined=self._reports.quarantined)
        else:
            position = await self._resume(checkpoint)
            if start.learns_schemas:
                readers = await self._open_readers(epoch=position.epoch, is_position=False)
                at = CopiedAt(position, checkpoint.order, checkpoint.committed_at_us)
                async for batch in self._schemas.learn_all(readers.view, at):
                    yield batch
                position = msgspec.structs.replace(position, quarantined=self._reports.quarantined)
                yield self._gatherer.take(
                    self._gatherer.resume_point(position, checkpoint.order, checkpoint.committed_at_us)
                )
                await asyncio.to_thread(self._copy.close)
                readers = None
        if start.copies:
            if readers is None:
                readers = await self._open_readers(epoch=position.epoch, is_position=True)
                async for batch in self._log.batches(position, until=readers.view.position):
                    yield batch
            await self._copy.begin(readers, copies_again=start.copies_again)
            position = readers.view.position
            async for batch in self._copy.copy(readers):
                yield batch
            self._gatherer.progress = None
        elif readers is not None:  # no_data: the schemas alone are published
            view = readers.view
            yield self._gatherer.take(self._gatherer.resume_point(position, view.order, view.taken_at_us))
        await asyncio.to_thread(self._copy.close)
        if not start.follows_log:
            log.info("snapshot_only_finished", mode=self._settings.snapshot.mode.value)
            await asyncio.Event().wait()
        self._signals.open()
        async for batch in self._log.batches(position, until=None):
            yield batch

    async def _open_readers(self, *, epoch: int, is_position: bool) -> Readers:
        return await self._copy.open_readers(epoch=epoch, is_position=is_position, copies=self._beginning.copies)

    async def _resume(self, checkpoint: Checkpoint) -> BinlogPosition:
        """Take up the checkpoint's state; its position."""
        position = decode_position(checkpoint.position)
        self._gatherer.progress = checkpoint.snapshot
        await self._schemas.resume(checkpoint, position)
        begun = (copy.table for copy in checkpoint.incremental.tables if has_begun(copy))
        self._reports.resume(position.quarantined, position.unseen, begun)
        return position


def _epoch_after(checkpoint: Checkpoint) -> int:
    """Above all events so far. After a reset the position does not count: it may be of another kind of source."""
    if checkpoint.starts_over:
        return checkpoint.order.epoch + 1
    return decode_position(checkpoint.position).epoch + 1
