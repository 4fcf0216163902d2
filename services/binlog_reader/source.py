"""The MySQL source: a snapshot where one is due, then the log, as batches.

This module wires: ``client`` reads bytes, ``decode`` makes rows of them, ``snapshot`` copies, ``libs.mysql.ddl`` follows
schemas, schema_history keeps them. MySQL's connections block, so they are used in threads, one call at a time.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import structlog

from libs.errors import (
    DefinitionTooLarge,
    HeadwaterError,
    PositionPurged,
    SourceMisconfigured,
    SourceUnavailable,
)
from libs.events.batch import MAX_BATCH_BYTES, BatchBuilder, BatchIdentity, RowRun
from libs.events.dead_letter import UndecodedRow, encode_undecoded_row
from libs.events.envelope import MysqlSourceBlock, json_text, source_place, source_tail
from libs.events.schema_change import SchemaChangeKind
from libs.failpoints import failpoint
from libs.mysql.binlog_events import QueryEvent
from libs.mysql.ddl import (
    TableChange,
    TableChangeKind,
    UnseenRows,
    apply_database_ddl,
    apply_ddl,
    changed_database,
    computed_columns,
    cut_columns,
    show_create_to_schema,
    unseen_rows,
)
from libs.mysql.ddl_syntax import DdlNotUnderstood, SentIn, StatementContext
from libs.mysql.gtid import ExecutedGtids, GtidSet, server_filter
from libs.mysql.packets import Packets
from libs.mysql.preflight import check_source, unlogged_cascades
from libs.mysql.reached_names import reached_names
from libs.mysql.sql_lexer import first_words, names_in, sql_mode_of
from libs.mysql.watermarks import open_low, set_high
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.failure_handling import LeftOut
from libs.source.incremental import has_begun, is_same_copy
from libs.source.kept_faults import report_copy
from libs.source.mysql.client import (
    Connection,
    PacketReader,
    connect,
    hang_up,
    purged,
    query,
    raise_error_packet,
    servers_of,
    start_dump,
)
from libs.source.mysql.key_ranges import table_ranges
from libs.source.mysql.replica_lag import ReplicaThrottle
from libs.source.mysql.settings import DatabaseSettings, SnapshotLock
from libs.source.mysql.snapshot import (
    CopiedAt,
    Place,
    ReadView,
    append_rows,
    captured_tables,
    database_charsets,
    estimated_rows,
    executed_gtids,
    log_end,
    oldest_position,
    reaching_definitions,
    source_tables,
    statement_context,
    table_definitions,
    without_places,
)
from libs.source.mysql.snapshot_mode import Beginning, beginning
from libs.source.mysql.table_copy import CopiedChunk, Readers, TableRange, UnreadRow, open_readers
from libs.source.mysql.table_schemas import TableSchemas, is_made_again
from libs.source.port import ReadBatch, ResumePoint
from libs.source.signal_outcomes import note_finished, note_given_up, note_refused, note_taken
from libs.source.signal_topic import SignalTopic
from libs.source.signals import (
    ExecuteSnapshot,
    InvalidSignal,
    LogMessage,
    Signal,
    id_of,
    matches,
    parse_signal,
    signal_of,
)
from libs.source.unseen_rows import UnseenAction, action_for, report_unseen_rows
from libs.telemetry import metrics
from libs.telemetry.faults import (
    CASCADES_NOT_LOGGED,
    CHANGES_LOST,
    COPY_REFUSED,
    ROWS_CHANGED_UNSEEN,
    ROWS_SET_ASIDE,
    TABLE_QUARANTINED,
    keep_faults,
    lasting_faults,
    lift_fault,
    raise_fault,
)
from libs.types.checkpoint import Checkpoint, IncrementalSnapshot, RangeProgress, SnapshotProgress, TableCopy
from libs.types.fault import FaultScope
from libs.types.order import EventOrder
from libs.types.position import SourcePartition
from libs.types.table import TableId, TableSchema
from services.binlog_reader.decode import DdlStatement, LogDecoder, Passed, RowStatement, UnknownTable, shortened
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
from services.binlog_reader.position import SOURCE_PARTITION, BinlogPosition, decode_position, encode_position
from services.binlog_reader.same_history import require_same_history
from services.binlog_reader.settings import BinlogReaderSettings

log = structlog.get_logger()

_ROWS_PER_SNAPSHOT_BATCH: Final = 2_000
_SIGNAL_POLL_S: Final = 0.2
_NAMES_FOREIGN_KEY: Final = re.compile(r"\b(foreign\s+key|references|constraint)\b", re.IGNORECASE)
_HISTORY_LOOK_S: Final = 5.0
"""How often the server is asked whether it still has its transactions: one short query."""
_RANGES_PER_READER: Final = 4
"""More than one, so that a reader whose ranges were small goes on with another's."""
_MAX_GATHERING_S: Final = 0.1
"""While more of the log waits, a batch is gathered until it is full, but no longer than this: it bounds latency."""


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
        position = decode_position(resume_from.position) if resume_from is not None else None
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
        if resume_from is not None and resume_from.begins_anew:
            log.warning("checkpoint_was_reset", position=resume_from.position.token.decode(errors="replace"))
            first = beginning(
                self._settings.snapshot.mode,
                has_checkpoint=False,
                is_copying=False,
                is_purged=False,
                is_process_start=not self._has_begun,
            )
            return sound_server(self._settings, None), replace(first, begins_anew=True)
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
            if not start.begins_anew:
                raise missing
            log.warning("snapshot_needed", reason=str(missing))
        return database, start


def sound_server(settings: BinlogReaderSettings, position: BinlogPosition | None) -> DatabaseSettings:
    """The first of the source's servers that can be followed from ``position`` on. Blocks.

    Raises what ``require_sound_source`` raises for the servers: SourceUnavailable while one of them may still become sound,
    else the first one's fault.
    """
    errors: list[HeadwaterError] = []
    for database in servers_of(settings.database):
        try:
            require_sound_source(msgspec.structs.replace(settings, database=database), position)
        except (SourceUnavailable, PositionPurged) as error:
            errors.append(error)
            log.warning("server_passed_over", server=f"{database.host}:{database.port}", reason=str(error))
        else:
            return database
    raise next((error for error in errors if isinstance(error, SourceUnavailable)), errors[0])


def require_sound_source(settings: BinlogReaderSettings, position: BinlogPosition | None) -> None:
    """The pre-flight: everything the server must offer, before anything is read. Blocks.

    Raises SourceMisconfigured or PositionPurged with every fault and its mend; SourceUnavailable, AccessDenied.
    """
    connection = connect(settings.database)
    try:
        report = check_source(
            connection,
            resume_from=position,
            is_gtid_passed=gtid_filter(settings),
            needs_full_images=settings.values.unavailable_placeholder is None,
            replica_server_id=settings.replica_server_id,
        )
        keep_cascade_faults(settings, connection)
    finally:
        connection.close()
    for warning in report.warnings:
        log.warning("source_preflight_warned", fault=warning.what, mend=warning.mend)
    if report.faults:
        listed = "\n".join(f"  - {fault.what}; mend: {fault.mend}" for fault in report.faults)
        where = f"{settings.database.host}:{settings.database.port}"
        if all(fault.is_behind for fault in report.faults):
            raise SourceUnavailable(f"MySQL at {where} is a replica that lags behind what was read already:\n{listed}")
        kind = PositionPurged if all(fault.is_purged for fault in report.faults) else SourceMisconfigured
        raise kind(f"MySQL at {where} cannot be followed, {len(report.faults)} fault(s):\n{listed}")


def keep_cascade_faults(settings: BinlogReaderSettings, connection: Connection) -> None:
    """Raise a fault for each captured table that a foreign key changes without the log, and lift it of others. Blocks."""
    is_captured = capture_filter(settings)
    found = {table_id: by for table_id, by in unlogged_cascades(connection).items() if is_captured(table_id)}
    scopes = {FaultScope(source=settings.source, table=str(table)): f"{table}: {by}" for table, by in found.items()}
    keep_faults({CASCADES_NOT_LOGGED: scopes}, lambda scope: scope.source == settings.source)


def gtid_filter(settings: BinlogReaderSettings) -> Callable[[str], bool]:
    """Whether rows of transactions that a server (its uuid) numbered are passed over."""
    return server_filter(settings.gtid_source_includes, settings.gtid_source_excludes)


def capture_filter(settings: BinlogReaderSettings) -> Callable[[TableId], bool]:
    """Whether a table is captured, by the settings' regular expressions."""
    include = [re.compile(pattern) for pattern in settings.include_tables]
    exclude = [re.compile(pattern) for pattern in settings.exclude_tables]
    shadow = [re.compile(pattern) for pattern in settings.shadow_tables]
    system = frozenset({"mysql", "sys", "information_schema", "performance_schema"})
    known: dict[TableId, bool] = {}

    def is_captured(table_id: TableId) -> bool:
        if table_id not in known:
            name = str(table_id)
            known[table_id] = (
                table_id.database not in system
                and (name == settings.signal_table or any(pattern.fullmatch(name) for pattern in include))
                and not any(pattern.fullmatch(name) for pattern in exclude)
                and not any(pattern.fullmatch(table_id.table) for pattern in shadow)
            )
        return known[table_id]

    return is_captured


def context_of(query: QueryEvent, server: StatementContext) -> StatementContext:
    """The settings that give a statement its meaning: the session's in the log, else the server's present ones."""
    explicit = query.explicit_defaults_for_timestamp
    return replace(
        server,
        sql_mode=sql_mode_of(query.sql_mode),
        server_charset=query.server_charset or server.server_charset,
        database_charset=query.database_charset,
        sent_in=SentIn(query.client_charset, query.connection_charset),
        explicit_defaults_for_timestamp=server.explicit_defaults_for_timestamp if explicit is None else explicit,
        may_have_made_nothing=not query.has_ddl_number,
    )


class BinlogChangeLog:
    """An open MySQL source (``libs.source.port.ChangeLog``)."""

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
        self._incremental = IncrementalCopy(
            resume_from.incremental if resume_from else IncrementalSnapshot(),
            signal_table=settings.signal_table or "",
        )
        self._beginning = beginning
        self._readers: Readers | None = None
        self._signal_topic: SignalTopic | None = None
        self._chunk_connection: Connection | None = None
        self._set_aside_in_copy: set[str] = set()
        """Tables that are being copied, and of which this copy left rows out."""
        self._count_connection: Connection | None = None
        self._history_connection: Connection | None = None
        self._server_executed = GtidSet()
        """When the server was asked last."""
        self._counting: tuple[TableCopy, asyncio.Future[Counted | None]] | None = None
        """The copy whose rows the source counts."""
        self._batch = BatchBuilder(identity)
        self._left_out = LeftOut(settings.failure_handling, settings.source, SOURCE_PARTITION)
        self._is_captured = capture_filter(settings)
        self._tables = TableSchemas(
            SourcePartition(source=settings.source, name=SOURCE_PARTITION),
            schema_history,
            self._batch,
            self._is_captured,
            settings.values,
            settings.key_columns,
        )
        self._throttle = ReplicaThrottle(
            settings.database,
            settings.snapshot,
            SourcePartition(source=settings.source, name=SOURCE_PARTITION),
        )
        self._progress: SnapshotProgress | None = None
        self._followed_databases: set[str] = set()
        self._database_charsets: Mapping[str, str] = {}
        self._statement_context = StatementContext()
        self._connections: list[Connection] = []
        self._unseen: Mapping[str, str] = {}
        """Tables of which rows changed unseen, as they were reported last."""
        self._has_reported_unseen = False
        self._read_again: set[str] = set()
        """Tables that were read again for everybody, from begin to end, since the log was opened."""
        self._partly_read: frozenset[str] = frozenset()
        """Tables of which an earlier life had read a part."""
        self._unseen_since: set[str] = set()
        """Those of them where that came after a copy had begun, which so has not read all of it."""
        self._to_resync: list[TableId] = []
        self._reported: Mapping[str, str] = {}
        """Reported quarantined tables."""
        self._keep_quarantine_faults({})  # those of an earlier connection, which the checkpoint may not have
        self._readmitted: set[tuple[str, str]] = set()
        """Tables, and the signals that had them read again."""

    def close(self) -> None:
        """Close every connection. Blocks shortly."""
        if self._signal_topic is not None:
            self._signal_topic.close()
        if self._readers is not None:
            self._readers.close()
        while self._connections:
            hang_up(self._connections.pop())

    @property
    def quarantined(self) -> Mapping[str, str]:
        """See ``libs.source.port.QuarantinesTables``."""
        return self._reported

    async def batches(self) -> AsyncIterator[ReadBatch]:
        """See ``libs.source.port.ChangeLog.batches``."""
        checkpoint, start = self._resume_from, self._beginning
        readers: Readers | None = None
        if checkpoint is None or start.begins_anew:
            epoch = 0 if checkpoint is None else decode_position(checkpoint.position).epoch + 1
            if start.from_oldest_log:
                position = await asyncio.to_thread(oldest_position, self._settings.database, epoch=epoch)
            else:
                readers = await self._open_readers(epoch=epoch, is_position=True)
                async for batch in self._learn_schemas(readers.view, readers.view):
                    yield batch
                position = msgspec.structs.replace(readers.view.position, quarantined=self._reported)
        else:
            position = decode_position(checkpoint.position)
            self._progress = checkpoint.snapshot
            await self._tables.resume(checkpoint.order)
            self._follow_databases_of(self._tables.schemas)
            await self._follow_settings(checkpoint, position)
            self._report_quarantined(position.quarantined)
            self._report_unseen_rows(position.unseen)
            begun = (copy.table for copy in checkpoint.incremental.tables if has_begun(copy))
            self._partly_read = frozenset(begun)
            if start.learns_schemas:
                readers = await self._open_readers(epoch=position.epoch, is_position=False)
                at = CopiedAt(position, checkpoint.order, checkpoint.committed_at_us)
                async for batch in self._learn_schemas(readers.view, at):
                    yield batch
                position = msgspec.structs.replace(position, quarantined=self._reported)
                yield self._take(self._resume_point(position, checkpoint.order, checkpoint.committed_at_us))
                await self._close_readers()
                readers = None
        if start.copies:
            if readers is None:
                readers = await self._open_readers(epoch=position.epoch, is_position=True)
                async for batch in self._log(position, until=readers.view.position):
                    yield batch
            if self._progress is None or start.copies_again:
                self._progress = SnapshotProgress(
                    tables=len(self._tables.captured), rows_estimated=await self._estimate(readers.view)
                )
            readers.view = await self._with_quarantines(readers.view, self._progress)
            position = readers.view.position
            async for batch in self._copy(readers):
                yield batch
            self._progress = None
        elif readers is not None:  # no_data: the schemas alone are published
            yield self._take(self._resume_point(position, readers.view.order, readers.view.taken_at_us))
        await self._close_readers()
        if not start.follows_log:
            log.info("snapshot_only_finished", mode=self._settings.snapshot.mode.value)
            await asyncio.Event().wait()
        self._signal_topic = SignalTopic(
            self._settings.kafka,
            SourcePartition(source=self._settings.source, name=SOURCE_PARTITION),
            from_offset=self._incremental.state.signals_offset,
        )
        async for batch in self._log(position, until=None):
            yield batch

    def _take(self, resume: ResumePoint | None) -> ReadBatch:
        payload, rows = self._batch.take(time.time_ns() // 1_000)
        return ReadBatch(payload=payload, rows=rows, resume=resume, dead_letters=self._left_out.taken())

    def _set_aside(self, row: UndecodedRow) -> None:
        if not row.is_snapshot:
            self._incremental.row_set_aside(f"{row.database}.{row.table}")
        self._left_out.add(row.reason, encode_undecoded_row(row), table=f"{row.database}.{row.table}")

    def _leave_out(self, schema: TableSchema, unread: UnreadRow, view: ReadView | CopiedAt) -> None:
        """A row of a snapshot that could not be read."""
        self._set_aside(
            UndecodedRow(
                source=self._settings.source,
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

    def _resume_point(self, position: BinlogPosition, order: EventOrder, committed_at_us: int) -> ResumePoint:
        return ResumePoint(
            position=encode_position(position),
            order=order,
            committed_at_us=committed_at_us,
            snapshot=self._progress,
            incremental=self._incremental.state,
        )

    def _follow_databases_of(self, tables: Iterable[TableId]) -> None:
        """A captured table may once have been another one: tools for online schema changes build a shadow table and rename
        it. So the schemas of all tables beside a captured one are followed, though no row of them is decoded."""
        self._followed_databases = {table.database for table in tables if self._is_captured(table)}

    def _is_followed(self, table_id: TableId) -> bool:
        return table_id.database in self._followed_databases or self._is_captured(table_id)

    # --- schemas -----------------------------------------------------------------------------------------------------------

    async def _open_readers(self, *, epoch: int, is_position: bool) -> Readers:
        """``is_position``: the log is followed from the views' position on."""
        snapshot = self._settings.snapshot
        self._readers = await asyncio.to_thread(
            open_readers,
            self._settings.database,
            epoch=epoch,
            processes=snapshot.readers if self._beginning.copies else 1,
            lock_wait_s=snapshot.lock_wait_s if snapshot.lock is SnapshotLock.MINIMAL else 0,
            waits_for_xa=is_position,
        )
        return self._readers

    async def _close_readers(self) -> None:
        if self._readers is not None:
            await asyncio.to_thread(self._readers.close)
            self._readers = None

    async def _learn_schemas(self, view: ReadView, at: ReadView | CopiedAt) -> AsyncIterator[ReadBatch]:
        """Record every table beside a captured one as it is now. Raises SourceMisconfigured: nothing is captured."""
        tables = await asyncio.to_thread(captured_tables, view.connection)
        self._follow_databases_of(tables)
        if not self._followed_databases:
            raise SourceMisconfigured(
                "no table of the source matches include_tables "
                f"({', '.join(self._settings.include_tables)}): correct the pattern (it must match database.table)"
            )
        learned = self._tables.learn(
            view.connection,
            filter(self._is_followed, tables),
            order=at.order,
            position=encode_position(at.position),
            taken_at_us=at.taken_at_us,
            source_block=partial(self._source_block, at.position, time_us=at.taken_at_us, is_snapshot=True),
            refuse=self._refuse_definition,
        )
        async for _ in learned:
            if self._batch.is_full:
                yield self._take(None)

    def _refuse_definition(self, table_id: TableId, error: DefinitionTooLarge) -> None:
        """Of a table that the reader learns before it follows the log: its rows are passed over from there on."""
        log.warning("definition_refused", table=str(table_id), reason=str(error))
        if self._is_captured(table_id):
            self._report_quarantined({**self._reported, str(table_id): _remedied(error)})

    async def _follow_settings(self, checkpoint: Checkpoint, position: BinlogPosition) -> None:
        """Where ``values`` or ``key_columns`` were changed since the schemas were recorded: a new version of each table that it
        concerns, from here on. Rows that were delivered keep the form and the key they had."""
        modes = msgspec.json.encode(self._settings.values).decode()
        for schema in self._tables.captured:
            now = self._tables.as_set(schema)
            if now != schema:
                log.info("table_settings_changed", table=str(schema.table_id), key=list(now.key))
                await self._tables.record(
                    schema.table_id,
                    SchemaChangeKind.ALTER,
                    schema,
                    order=checkpoint.order,
                    position=encode_position(position),
                    committed_at_us=checkpoint.committed_at_us,
                    # No statement did it; the text distinguishes this change from another at the same place.
                    ddl=f"/* Headwater: values = {modes}, key = {', '.join(now.key)} */",
                    source_block=self._source_block(
                        position, schema.table_id.database, schema.table_id.table, time_us=checkpoint.committed_at_us
                    ),
                )

    def _source_block(
        self,
        position: BinlogPosition,
        database: str,
        table: str | None,
        *,
        time_us: int,
        is_snapshot: bool = False,
        server_id: int = 0,
        gtid: str | None = None,
        thread_id: int | None = None,
    ) -> bytes:
        head = MysqlSourceBlock(self._settings.source, database, table).head(
            time_us=time_us,
            snapshot=b'"true"' if is_snapshot else b'"false"',
            server_id=server_id,
            gtid=b"null" if gtid is None else json_text(gtid),
            file=json_text(position.file),
        )
        return head + source_place(position.pos, 0) + source_tail(thread_id)

    async def _apply(self, decoder: LogDecoder, ddl: DdlStatement) -> None:
        """A DDL statement of the log, at its place: nothing after it is decoded before its schemas are durable."""
        decoder.flush()
        applied: dict[TableId, TableSchema | None] = {}
        changes, database = await self._changes_of(decoder, ddl)
        block_of = partial(
            self._source_block,
            msgspec.structs.replace(ddl.position, pos=ddl.event_position),
            time_us=ddl.committed_at_us // 1_000 * 1_000,
            server_id=ddl.server_id,
            gtid=ddl.gtid,
        )
        if database is not None:
            if first_words(ddl.statement, sql_mode_of(ddl.query.sql_mode), count=1) == (
                "CREATE",
            ):  # the log has all of it from here on
                self._followed_databases.add(database)
            self._tables.tell_database(
                database,
                ddl.statement,
                order=ddl.order,
                committed_at_us=ddl.committed_at_us,
                source_block=block_of(database, None),
            )
        for change in changes:
            if change.kind is TableChangeKind.TRUNCATE and self._is_captured(change.table_id):
                truncated = self._tables.schemas[change.table_id]
                self._append_truncate(ddl, truncated)
                decoder.seen_again(str(change.table_id))
                self._incremental.table_changed(change.table_id, truncated, truncated)
        for record in _records_of(changes, self._tables.schemas):
            if not self._is_followed(record.table_id):
                continue
            try:
                await self._tables.record(
                    record.table_id,
                    record.kind,
                    record.schema,
                    order=ddl.order,
                    position=encode_position(ddl.position),
                    committed_at_us=ddl.committed_at_us,
                    ddl=ddl.statement,
                    source_block=block_of(record.table_id.database, record.table_id.table),
                    renamed_from=record.renamed_from,
                    is_told=database is None
                    and not (record.renamed_to is not None and self._is_captured(record.renamed_to)),
                )
            except DefinitionTooLarge as error:
                self._pass_over(decoder, record.table_id, error)
                continue
            made = applied[record.table_id] = self._tables.schemas.get(record.table_id)
            if made is not None and self._is_captured(record.table_id) and is_made_again(record.kind, made):
                self._append_truncate(ddl, made)
        self._progress = without_places(self._progress, decoder.schemas, applied)
        for table_id, after in applied.items():
            self._incremental.table_changed(table_id, decoder.schemas.get(table_id), after)
        decoder.apply_schemas(applied, ddl.statement)
        if _NAMES_FOREIGN_KEY.search(ddl.statement) or self._cascading() & {str(table_id) for table_id in applied}:
            await asyncio.to_thread(self._look_at_cascades)
        self._resync_unseen(decoder, ddl)
        for table_id in filter(self._is_captured, applied):
            await self._learn_database(decoder, table_id.database)

    def _cascading(self) -> set[str]:
        """Tables that foreign keys change without the log, as far as is known."""
        source = self._settings.source
        return {
            fault.scope.table
            for fault in lasting_faults()
            if fault.id == CASCADES_NOT_LOGGED.id and fault.scope.source == source
        }

    def _look_at_cascades(self) -> None:
        connection = connect(self._settings.database)
        try:
            keep_cascade_faults(self._settings, connection)
        finally:
            connection.close()

    def _pass_over(self, decoder: LogDecoder, table_id: TableId, error: DefinitionTooLarge) -> None:
        """A table whose definition the history cannot hold, from here on; all others go on. What was known of it stays."""
        log.warning("definition_refused", table=str(table_id), reason=str(error))
        if self._is_captured(table_id):
            decoder.quarantine(table_id, _remedied(error))

    async def _learn_database(self, decoder: LogDecoder, database: str) -> None:
        """Take up the tables of a database of which none was captured when the reader began: its settings were changed since.

        They are recorded as the source has them now. The log may not have come so far: then the next table map of such a table
        contradicts that, and quarantines it. Of a database that was followed all along nothing is learned: what is unknown of
        it was lost, which is for a person to mend.
        """
        if database in self._followed_databases or not self._tables.schemas:
            return
        self._followed_databases.add(database)
        tables = await asyncio.to_thread(source_tables, self._settings.database)
        new = [table_id for table_id in tables if table_id.database == database and table_id not in decoder.schemas]
        await self._learn_tables(decoder, new)
        log.info("database_learned", database=database, tables=len(new))

    async def _learn_tables(self, decoder: LogDecoder, new: Sequence[TableId]) -> None:
        """Record tables that are unknown as the source has them now."""
        definitions = await asyncio.to_thread(table_definitions, self._settings.database, new)
        for table_id, (statement, charset) in definitions.items():
            try:
                schema = show_create_to_schema(table_id, statement, charset)
            except DdlNotUnderstood as error:
                log.warning("table_not_learned", table=str(table_id), reason=str(error))
                continue
            try:
                await self._tables.record(
                    table_id,
                    SchemaChangeKind.CREATE,
                    schema,
                    order=decoder.last_order,
                    position=encode_position(decoder.position),
                    committed_at_us=decoder.committed_at_us,
                    ddl=statement,
                    source_block=self._source_block(
                        decoder.position, table_id.database, table_id.table, time_us=decoder.committed_at_us
                    ),
                )
            except DefinitionTooLarge as error:
                self._pass_over(decoder, table_id, error)
                continue
            decoder.learn(self._tables.schemas[table_id])

    async def _changes_of(self, decoder: LogDecoder, ddl: DdlStatement) -> tuple[Sequence[TableChange], str | None]:
        """The statement's effect, and its database, if it has one; where its text is not understood,
        the source's own definitions of the tables now.

        The source may be further than the log. Then the next table map does not fit, and the table is quarantined: no row is
        read by a wrong schema.
        """
        context = context_of(ddl.query, self._statement_context)
        try:
            charsets = self._database_charsets
            self._database_charsets = apply_database_ddl(charsets, ddl.database, ddl.statement, context=context)
            changes = apply_ddl(
                decoder.schemas, ddl.database, ddl.statement, database_charsets=self._database_charsets, context=context
            )
            # A table renamed from one that is not followed is known to the source alone.
            unknown = [c.table_id for c in changes if c.kind is TableChangeKind.RENAME and c.schema is None]
            learned = await self._changes_from_source(decoder, ddl, list(filter(self._is_followed, unknown)))
            self._report_unseen(decoder, ddl, changes, context)
            database = changed_database(ddl.database, ddl.statement, context=context)
            return [*(c for c in changes if c.table_id not in unknown), *learned], database
        except DdlNotUnderstood as error:
            concerned = [table_id for table_id in error.table_ids if self._is_followed(table_id)]
            if not concerned and error.table_ids:
                return (), None
            log.warning("ddl_not_understood", reason=str(error), transaction=ddl.transaction_id)
            if not concerned:
                raise
            now = await self._changes_from_source(decoder, ddl, concerned)
            self._tell_unseen(decoder, ddl, _cut_by(now, decoder.schemas, is_strict=context.sql_mode.is_strict))
            return now, None

    def _report_unseen(
        self, decoder: LogDecoder, ddl: DdlStatement, changes: Sequence[TableChange], context: StatementContext
    ) -> None:
        """Rows that came, went or changed without the log; a chunk that has some of them is read again."""
        by_statement = unseen_rows(ddl.database, ddl.statement, tables=decoder.schemas, context=context)
        renamed = self._renamed_unseen(decoder, changes, context)
        self._tell_unseen(decoder, ddl, [*filter(None, [by_statement]), *renamed])

    def _tell_unseen(self, decoder: LogDecoder, ddl: DdlStatement, found: Iterable[UnseenRows]) -> None:
        at = f"{ddl.transaction_id}, {ddl.position.file}:{ddl.event_position}"
        for each in found:
            for table_id in report_unseen_rows(
                each,
                source=self._settings.source,
                source_partition=SOURCE_PARTITION,
                is_captured=self._is_captured,
                at=at,
                policies=self._settings.on_unseen_change,
            ):
                decoder.note_unseen(table_id, f"{each.clause} at {at}")
                if any(copy.table == str(table_id) and copy.chunks_read for copy in self._incremental.state.tables):
                    self._unseen_since.add(str(table_id))
                if action_for(self._settings.on_unseen_change, table_id) is UnseenAction.RESYNC:
                    self._to_resync.append(table_id)
                if (schema := decoder.schemas.get(table_id)) is not None:
                    self._incremental.table_changed(table_id, schema, schema)

    def _renamed_unseen(
        self, decoder: LogDecoder, changes: Sequence[TableChange], context: StatementContext
    ) -> Iterator[UnseenRows]:
        """Renames to a captured name: the rows of before came under another one, or nobody delivered them. A shadow table has
        the rows of the one whose place it takes, as its columns can hold them."""
        renames = {change.table_id: change for change in changes if change.previous_id is not None}
        for table_id, previous in _origins(changes).items():
            if not self._is_captured(table_id):
                continue
            before, after = decoder.schemas.get(table_id), renames[table_id].schema
            if self._is_captured(previous):
                yield UnseenRows(f"RENAME of {previous} to it, whose rows came under that name", (table_id,))
            elif not any(re.fullmatch(pattern, previous.table) for pattern in self._settings.shadow_tables):
                yield UnseenRows(f"RENAME of {previous}, whose rows were not captured, to it", (table_id,))
            elif before is not None and after is not None:
                cut = cut_columns(before, after, is_strict=context.sql_mode.is_strict)
                if cut:
                    yield UnseenRows(f"RENAME of {previous} to it: {', '.join(cut)}", (table_id,))

    def _resync_unseen(self, decoder: LogDecoder, ddl: DdlStatement) -> None:
        """Empty the tenants' tables and read them again, where the policy says so."""
        to_resync, self._to_resync = self._to_resync, []
        for table_id in to_resync:
            schema = self._tables.schemas.get(table_id)
            if schema is None:
                continue
            self._append_truncate(ddl, schema)
            signal = ExecuteSnapshot(signal_id=f"unseen-{ddl.transaction_id}", tables=(str(table_id),))
            self._incremental.take(signal, [str(each.table_id) for each in self._tables.captured])
            log.info("unseen_rows_resync", table=str(table_id), transaction=ddl.transaction_id)

    async def _changes_from_source(
        self, decoder: LogDecoder, ddl: DdlStatement, tables: Sequence[TableId]
    ) -> list[TableChange]:
        """The source's definitions of ``tables`` now; a captured one without a usable one is quarantined."""
        definitions = await asyncio.to_thread(table_definitions, self._settings.database, tables) if tables else {}
        # With row-based logging the rows of CREATE TABLE … SELECT stand behind a CREATE TABLE without the SELECT.
        lacks_rows = {"create", "select"} <= names_in(ddl.statement, sql_mode_of(ddl.query.sql_mode))
        changes = []
        for table_id in tables:
            definition = definitions.get(table_id)
            reason = "its rows were logged as a statement (binlog_format is not ROW)" if lacks_rows else ""
            try:
                schema = show_create_to_schema(table_id, *definition) if definition is not None else None
            except DdlNotUnderstood as error:
                schema, reason = decoder.schemas.get(table_id), str(error)
            if schema is None:
                changes.append(TableChange(TableChangeKind.DROP, table_id, None))
                continue
            changes.append(TableChange(TableChangeKind.ALTER, table_id, schema))
            if reason and self._is_captured(table_id):
                decoder.quarantine(
                    table_id,
                    f"{table_id}: {reason} (transaction {ddl.transaction_id}, {ddl.position.file}:{ddl.event_position}, "
                    f"statement: {shortened(ddl.statement)}); re-snapshot the table",
                )
        return changes

    def _append_truncate(self, ddl: DdlStatement, schema: TableSchema) -> None:
        if "t" in self._settings.skipped_operations:
            return
        place = msgspec.structs.replace(ddl.position, pos=ddl.event_position)
        self._tables.append_truncate(
            schema,
            transaction_id=ddl.transaction_id,
            order=ddl.order,
            committed_at_us=ddl.committed_at_us,
            source_block=self._source_block(
                place,
                schema.table_id.database,
                schema.table_id.table,
                time_us=ddl.committed_at_us,
                server_id=ddl.server_id,
                gtid=ddl.gtid,
                thread_id=ddl.thread_id,
            ),
        )

    # --- snapshot ----------------------------------------------------------------------------------------------------------

    async def _with_quarantines(self, view: ReadView, progress: SnapshotProgress) -> ReadView:
        """``view`` at a position with the tables that the log up to it left quarantined.

        A table of which no row was copied yet is read from its beginning: with the definition that the source has now its
        quarantine ends. Any other stays quarantined, and its rest is not copied.
        """
        begun = {*progress.finished_tables, progress.current_table, *(each.table for each in progress.ranges)}
        left: dict[str, str] = {}
        for table, reason in self._reported.items():
            table_id = next((table_id for table_id in self._tables.schemas if str(table_id) == table), None)
            if table_id is None or table in begun:
                left[table] = reason
                continue
            try:
                await self._take_definition(
                    table_id, position=view.position, order=view.order, committed_at_us=view.taken_at_us
                )
            except TableRefused as error:
                log.warning("table_not_readmitted", table=table, reason=str(error))
                left[table] = reason
        self._report_quarantined(left)
        unseen = {table: happened for table, happened in self._unseen.items() if table in begun}
        self._report_unseen_rows(unseen)
        return replace(view, position=msgspec.structs.replace(view.position, quarantined=left, unseen=unseen))

    async def _estimate(self, view: ReadView) -> int:
        return await asyncio.to_thread(
            estimated_rows, view.connection, tuple(schema.table_id for schema in self._tables.captured)
        )

    async def _copy(self, readers: Readers) -> AsyncIterator[ReadBatch]:
        """The rows still to be copied, with a resume point after each chunk."""
        progress = self._progress or SnapshotProgress()
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
            leaves_out=self._left_out.goes_on,
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
            self._progress = progress if left else None
            can_resume = chunk.is_last or bool(chunk.last_key)
            async for batch in self._chunk_batches(readers.view, parts[number].schema, chunk, place, can_resume):
                yield batch
            failpoint("reader_between_snapshot_chunks")
        if not parts:
            self._progress = None
            yield self._take(self._resume_point(readers.view.position, readers.view.order, readers.view.taken_at_us))
        log.info("snapshot_finished", rows=progress.rows_copied, tables=len(progress.finished_tables))

    async def _ranges_left(self, readers: Readers, progress: SnapshotProgress) -> list[TableRange]:
        """Those that an earlier run left, then the tables that it had not begun."""
        snapshot = self._settings.snapshot
        parts: list[TableRange] = []
        for schema in self._tables.captured:
            name = str(schema.table_id)
            select = snapshot.select_overrides.get(name, "")
            kept = [each for each in progress.ranges if each.table == name]
            if name in progress.finished_tables or name in self._reported:
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
            self._leave_out(schema, unread, view)
        report_copy(self._settings.source, str(schema.table_id), chunk.contradiction)
        run = RowRun(
            table_id=schema.table_id,
            schema_version=schema.version,
            transaction_id="",
            first_order=view.order.after(),
            committed_at_us=view.taken_at_us,
            is_snapshot=True,
        )
        append_edge = partial(append_rows, self._batch, source=self._settings.source, schema=schema, view=view)
        is_only = chunk.rows == 1
        if chunk.first is not None:
            append_edge([chunk.first], marker=place.of_part(is_first=True, is_last=is_only).marker)
        for rows in chunk.runs:
            if self._batch.is_full:
                yield self._take(None)
            self._batch.add_encoded(run, rows)
        if chunk.last is not None:
            append_edge([chunk.last], marker=place.of_part(is_first=is_only, is_last=True).marker)
        resume = self._resume_point(view.position, view.order, view.taken_at_us) if can_resume else None
        yield self._take(resume)

    # --- log ---------------------------------------------------------------------------------------------------------------

    async def _log(self, position: BinlogPosition, until: BinlogPosition | None) -> AsyncIterator[ReadBatch]:
        """The log after ``position``; until it has reached another one, or without end."""
        if until is not None and position.has_reached(until):
            return
        is_gtid_passed = gtid_filter(self._settings)
        connection = await asyncio.to_thread(connect, self._settings.database)
        self._connections.append(connection)
        checksum = await asyncio.to_thread(query, connection, "SELECT @@GLOBAL.binlog_checksum")
        self._statement_context = await asyncio.to_thread(statement_context, connection)
        self._database_charsets = await asyncio.to_thread(database_charsets, connection)
        if not position.file:
            file, pos = await asyncio.to_thread(log_end, connection)
            position = msgspec.structs.replace(position, file=file, pos=pos)
        reader = await asyncio.to_thread(
            start_dump,
            connection,
            position,
            # The log may lack skipped transactions: the server would refuse to go on without them.
            also_done=(await asyncio.to_thread(purged, connection)).without(lambda uuid: not is_gtid_passed(uuid)),
            replica_server_id=self._settings.replica_server_id,
            heartbeat_s=self._settings.database.heartbeat_s,
            spill_dir=Path(self._settings.spill_dir),
        )
        decoder = LogDecoder(
            self._settings.source,
            position,
            None if position.by_file else ExecutedGtids(GtidSet.parse(position.gtid_set)),
            self._tables.schemas,
            is_captured=self._is_captured,
            batch=self._batch,
            checksum_bytes=4 if str(checksum[0][0]).upper() == "CRC32" else 0,
            transaction_metadata=self._settings.transaction_metadata,
            unavailable_placeholder=self._settings.values.unavailable_placeholder,
            set_aside=self._set_aside if self._left_out.goes_on else None,
            watch=self._incremental,
            passed=Passed(
                frozenset(self._settings.skipped_operations), is_gtid_passed, heard=self._settings.signal_table or ""
            ),
            spill_dir=Path(self._settings.spill_dir),
        )
        log.info("log_opened", gtid_set=position.gtid_set, file=position.file, pos=position.pos)
        async for batch in self._decoded(reader, decoder, until):
            yield batch
        await asyncio.to_thread(hang_up, connection)

    async def _decoded(
        self, reader: PacketReader, decoder: LogDecoder, until: BinlogPosition | None
    ) -> AsyncIterator[ReadBatch]:
        labels = (self._settings.source, SOURCE_PARTITION)
        received, transactions = metrics.READER_BYTES.labels(*labels), metrics.READER_TRANSACTIONS.labels(*labels)
        transactions_counted = transactions_told = transactions_until = 0
        gathers_until_s = 0.0
        heartbeat_s = looked_s = time.monotonic()
        while True:
            receiving = asyncio.ensure_future(asyncio.to_thread(reader.receive))
            try:
                if until is None and decoder.is_between_transactions:
                    async for batch in self._beside_log(decoder, receiving):
                        yield batch
                packets, more_waits = await receiving
            finally:
                receiving.cancel()
            decoder.tick(time.time_ns())
            if time.monotonic() - looked_s >= _HISTORY_LOOK_S and not decoder.position.by_file:
                looked_s = time.monotonic()
                await asyncio.to_thread(self._require_server_keeps_history)
            if isinstance(packets, Packets):
                received.inc(len(packets.data))
                events = packets.behind_ok()
                steps = decoder.feed(events)
            else:
                steps = decoder.feed_compressed(packets)
            for step in steps:
                if isinstance(step, UnknownTable):
                    await self._learn_database(decoder, step.table_id.database)
                elif isinstance(step, RowStatement):
                    definitions = await asyncio.to_thread(reaching_definitions, self._settings.database)
                    decoder.quarantine_reached(step, reached_names(step.names, definitions))
                elif step is not None:
                    await self._apply(decoder, step)
                for row in self._incremental.table_signals():
                    await self._take_signal_row(decoder, row)
                if self._incremental.is_due:
                    async for batch in self._due_chunk(decoder):
                        yield batch
                if self._batch.is_full and (decoder.is_between_transactions or self._batch.is_overfull):
                    transactions_told = decoder.transactions
                    yield self._take(self._decoder_resume_point(decoder))
                    gathers_until_s = time.monotonic() + _MAX_GATHERING_S
                    await asyncio.sleep(0)
                if until is not None and decoder.is_between_transactions and decoder.transactions != transactions_until:
                    transactions_until = decoder.transactions
                    if decoder.position.has_reached(until):
                        yield self._drained(decoder)
                        return
            if isinstance(packets, Packets):
                _require_events(packets, len(events))
            else:
                packets.close()
            # The rest of a transaction is on its way: the server sends it whole, and nothing of it can be published before.
            if decoder.is_between_transactions and (not more_waits or time.monotonic() > gathers_until_s):
                batch = self._drained(decoder)
                is_heartbeat = 0 < self._settings.heartbeat_interval_s <= time.monotonic() - heartbeat_s
                if batch.payload or decoder.transactions != transactions_told or (is_heartbeat and batch.resume):
                    heartbeat_s = time.monotonic()
                    transactions_told = decoder.transactions
                    yield batch
                gathers_until_s = time.monotonic() + _MAX_GATHERING_S
            transactions.inc(decoder.transactions - transactions_counted)
            transactions_counted = decoder.transactions

    def _require_server_keeps_history(self) -> None:
        """Blocks. Raises SourceUnavailable where the server has lost transactions that it had: the log is opened again, and the
        pre-flight names the fault. A dump that was open when the log was reset would stay silent for good."""
        if self._history_connection is None:
            self._history_connection = connect(self._settings.database)
            self._connections.append(self._history_connection)
        executed = executed_gtids(self._history_connection)
        lost = self._server_executed.subtract(executed)
        self._server_executed = executed
        if lost:
            where = f"{self._settings.database.host}:{self._settings.database.port}"
            raise SourceUnavailable(
                f"MySQL at {where} no longer has transactions that it had ({lost}): its log was reset, or another one answers"
            )

    def _drained(self, decoder: LogDecoder) -> ReadBatch:
        """Everything decoded so far: nothing waits for more of the log to come."""
        decoder.flush()
        return self._take(self._decoder_resume_point(decoder))

    def _decoder_resume_point(self, decoder: LogDecoder) -> ResumePoint | None:
        if not decoder.is_between_transactions:
            return None
        self._report_quarantined(decoder.quarantined)
        self._report_unseen_rows(decoder.unseen)
        return self._resume_point(decoder.position, decoder.last_order, decoder.committed_at_us)

    def _report_unseen_rows(self, unseen: Mapping[str, str]) -> None:
        if unseen == self._unseen and self._has_reported_unseen:
            return
        self._has_reported_unseen = True
        source = self._settings.source
        scopes = {FaultScope(source=source, table=table): happened for table, happened in unseen.items()}
        keep_faults({ROWS_CHANGED_UNSEEN: scopes}, lambda scope: scope.source == source)
        self._unseen = dict(unseen)

    def _report_quarantined(self, quarantined: Mapping[str, str]) -> None:
        if quarantined == self._reported:
            return
        self._keep_quarantine_faults(quarantined)
        for table, reason in quarantined.items():
            if table not in self._reported:
                log.error("table_quarantined", table=table, reason=reason)
        for table in self._reported:
            if table not in quarantined:
                log.info("table_released", table=table)
        self._reported = dict(quarantined)
        metrics.READER_QUARANTINED_TABLES.labels(self._settings.source, SOURCE_PARTITION).set(len(quarantined))

    def _keep_quarantine_faults(self, quarantined: Mapping[str, str]) -> None:
        source = self._settings.source
        scopes = {FaultScope(source=source, table=table): reason for table, reason in quarantined.items()}
        keep_faults({TABLE_QUARANTINED: scopes}, lambda scope: scope.source == source)

    # --- incremental snapshots ---------------------------------------------------------------------------------------------

    async def _beside_log(
        self, decoder: LogDecoder, receiving: asyncio.Future[tuple[Packets | BinaryIO, bool]]
    ) -> AsyncIterator[ReadBatch]:
        """Between two transactions: act on signals, and read a chunk; on and on until more of the log has come."""
        while True:
            if await self._take_signals(decoder):
                yield self._drained(decoder)  # nothing else may come, and a signal's effect is to be kept
            reads = self._incremental.wants_chunk and not self._is_counting and self._throttle.lets_read()
            if reads:
                before = self._incremental.state
                await self._read_chunk(decoder)
                if self._incremental.is_due:
                    async for batch in self._due_chunk(decoder):
                        yield batch
                if self._incremental.state != before:  # rows were delivered, or a table was refused
                    yield self._drained(decoder)
            if receiving.done():
                return
            pause_s = 0.0 if reads and self._incremental.wants_chunk else _SIGNAL_POLL_S
            await asyncio.wait({receiving}, timeout=pause_s)

    async def _take_signals(self, decoder: LogDecoder) -> bool:
        """Whether any came."""
        records = self._signal_topic.records() if self._signal_topic is not None else []
        for record in records:
            if record.text is not None:
                try:
                    await self._act_on(decoder, parse_signal(record.text))
                except InvalidSignal as error:
                    self._refuse_signal(id_of(record.text), error)
            self._incremental.state = msgspec.structs.replace(
                self._incremental.state, signals_offset=record.next_offset
            )
        return bool(records)

    async def _take_signal_row(self, decoder: LogDecoder, row: tuple[object, ...]) -> None:
        """A row of the signal table: acts once, because its place in the log is passed once."""
        own_id = ""
        try:
            if len(row) != 3:
                raise InvalidSignal(f"the signal table has {len(row)} columns; it needs three: id, type, data")
            signal_id, kind, data = row
            own_id = str(signal_id)
            await self._act_on(decoder, signal_of(own_id, kind, data))
        except InvalidSignal as error:
            self._refuse_signal(own_id, error)

    def _refuse_signal(self, signal_id: str, error: InvalidSignal) -> None:
        note_refused(self._place, signal_id, str(error))
        log.warning("signal_refused", reason=str(error))
        metrics.SIGNALS.labels(self._settings.source, SOURCE_PARTITION, "refused").inc()

    async def _act_on(self, decoder: LogDecoder, signal: Signal) -> None:
        if isinstance(signal, LogMessage):
            log.info("signal_logged", signal_id=signal.signal_id, message=signal.message)
            note_taken(self._place, signal, self._incremental.state)
        else:
            if isinstance(signal, ExecuteSnapshot):
                await self._learn_asked_for(decoder, signal)
            captured = [str(schema.table_id) for schema in self._tables.captured]
            notes = self._incremental.take(signal, captured)
            log.info("signal_taken", signal=type(signal).__name__, signal_id=signal.signal_id, not_done=notes)
            note_taken(self._place, signal, self._incremental.state, notes)
        metrics.SIGNALS.labels(self._settings.source, SOURCE_PARTITION, "taken").inc()

    async def _learn_asked_for(self, decoder: LogDecoder, signal: ExecuteSnapshot) -> None:
        """A database that is captured only now, and of which the log has shown nothing yet; and tables that the history could
        not hold."""
        refused = {table for table in decoder.quarantined if any(matches(pattern, table) for pattern in signal.tables)}
        if refused := refused - {str(schema.table_id) for schema in self._tables.captured}:
            tables = await asyncio.to_thread(source_tables, self._settings.database)
            await self._learn_tables(decoder, [table_id for table_id in tables if str(table_id) in refused])
        known = [str(schema.table_id) for schema in self._tables.captured]
        unknown = [pattern for pattern in signal.tables if not any(matches(pattern, name) for name in known)]
        if not unknown:
            return
        for table_id in await asyncio.to_thread(source_tables, self._settings.database):
            if self._is_captured(table_id) and any(matches(pattern, str(table_id)) for pattern in unknown):
                await self._learn_database(decoder, table_id.database)

    async def _read_chunk(self, decoder: LogDecoder) -> None:
        """Read the next chunk of the first table that waits, the log standing still."""
        copy = self._incremental.state.tables[0]
        try:
            schema = next((s for s in self._tables.captured if str(s.table_id) == copy.table), None)
            if schema is None:
                raise TableRefused(f"{copy.table} is not captured any more")
            if decoder.position.by_file:
                raise TableRefused(f"{copy.table}: the source has no GTIDs to read it between; set gtid_mode=ON there")
            if copy.table in decoder.quarantined:
                schema = await self._readmit(decoder, schema.table_id, copy)
            if self._incremental.wants_count:
                chunk = await self._counted(decoder, schema, copy)
                if chunk is not None:
                    self._incremental.take_chunk(chunk, caught_up=not chunk.window.unseen)
                return
            if self._chunk_connection is None:
                self._chunk_connection = await asyncio.to_thread(connect, self._settings.database)
                self._connections.append(self._chunk_connection)
                await asyncio.to_thread(prepare_connection, self._chunk_connection)
            chunk = await asyncio.to_thread(
                read_between_watermarks,
                self._chunk_connection,
                schema,
                copy,
                seen=decoder.executed,
                chunk_rows=self._incremental.chunk_rows(self._settings.snapshot.incremental_chunk_rows),
                leaves_out=self._left_out.goes_on,
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
        note_given_up(self._place, refused, str(error))
        self._incremental.refuse(table)

    @property
    def _place(self) -> tuple[str, str]:
        """As metrics and outcomes of signals name this reader."""
        return self._settings.source, SOURCE_PARTITION

    @property
    def _is_counting(self) -> bool:
        return self._counting is not None and not self._counting[1].done()

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
            self._count_connection = await asyncio.to_thread(connect, self._settings.database)
            self._connections.append(self._count_connection)
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
        reason = decoder.quarantined[copy.table]
        if copy.chunks_read or (copy.table, copy.signal_id) in self._readmitted:
            raise TableRefused(f"{copy.table} was quarantined while it was read: {reason}")
        statement = await self._take_definition(
            table_id,
            position=decoder.position,
            order=decoder.last_order,
            committed_at_us=decoder.committed_at_us,
        )
        decoder.apply_schemas({table_id: self._tables.schemas[table_id]}, statement)
        decoder.release(table_id)
        self._readmitted.add((copy.table, copy.signal_id))
        log.info("table_readmitted", table=copy.table, signal_id=copy.signal_id)
        return self._tables.schemas[table_id]

    async def _take_definition(
        self, table_id: TableId, *, position: BinlogPosition, order: EventOrder, committed_at_us: int
    ) -> str:
        """Record the definition that the source has of a known table now, where it is another one; the statement.

        Raises:
            TableRefused: the source has none, or one that cannot be read.
        """
        definitions = await asyncio.to_thread(table_definitions, self._settings.database, [table_id])
        if table_id not in definitions:
            raise TableRefused(f"{table_id} is not at the source any more")
        statement, charset = definitions[table_id]
        try:
            schema = self._tables.as_set(show_create_to_schema(table_id, statement, charset))
        except DdlNotUnderstood as error:
            raise TableRefused(f"{table_id} cannot be read: {error}") from error
        known = self._tables.schemas[table_id]
        if msgspec.structs.replace(schema, version=known.version) != known:
            block = self._source_block(position, table_id.database, table_id.table, time_us=committed_at_us)
            try:
                await self._tables.record(
                    table_id,
                    SchemaChangeKind.ALTER,
                    schema,
                    order=order,
                    position=encode_position(position),
                    committed_at_us=committed_at_us,
                    ddl=statement,
                    source_block=block,
                )
            except DefinitionTooLarge as error:
                raise TableRefused(str(error)) from error
        return statement

    async def _due_chunk(self, decoder: LogDecoder) -> AsyncIterator[ReadBatch]:
        """Put the rest of the chunk into the log at this place, in batches."""
        decoder.flush()
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
            order=decoder.last_order,
            taken_at_us=time.time_ns() // 1_000,
        )
        for unread in chunk.left_out:
            self._set_aside_in_copy.add(chunk.copy.table)
            self._leave_out(chunk.schema, unread, view)
        for rows in _parts(list(chunk.rows.values())):
            if self._batch.is_full:
                yield self._take(None)
            append_rows(
                self._batch,
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
            if not chunk.copy.for_tenants and not chunk.copy.condition and chunk.copy.table not in self._unseen_since:
                decoder.seen_again(chunk.copy.table)
            self._unseen_since.discard(chunk.copy.table)
            lift_fault(COPY_REFUSED, FaultScope(source=self._settings.source, table=chunk.copy.table))
            is_for_all = not chunk.copy.condition and not chunk.copy.for_tenants
            if is_for_all:
                self._note_read_again(chunk.copy.table)
            if is_for_all and chunk.copy.table not in self._set_aside_in_copy:
                lift_fault(ROWS_SET_ASIDE, FaultScope(source=self._settings.source, table=chunk.copy.table))
            self._set_aside_in_copy.discard(chunk.copy.table)
            log.info("incremental_table_finished", table=chunk.copy.table, rows_read=chunk.copy.rows_read)
            note_finished(self._place, chunk.copy)

    def _note_read_again(self, table: str) -> None:
        """A fault about the whole source ends when each of its tables was read again."""
        if table in self._partly_read:
            self._partly_read -= {table}
            return
        self._read_again.add(table)
        if self._read_again.issuperset(str(schema.table_id) for schema in self._tables.captured):
            lift_fault(CHANGES_LOST, FaultScope(source=self._settings.source))


def _parts(rows: Sequence[tuple[bytes, bytes]]) -> Iterator[Sequence[tuple[bytes, bytes]]]:
    """``rows`` in parts that fit into a batch."""
    begin, size = 0, 0
    for end, (image, _) in enumerate(rows, start=1):
        size += len(image)
        if size >= MAX_BATCH_BYTES or end - begin == _ROWS_PER_SNAPSHOT_BATCH or end == len(rows):
            yield rows[begin:end]
            begin, size = end, 0


def _require_events(packets: Packets, events: int) -> None:
    """All packets held an event. Raises as ``raise_error_packet``, SourceUnavailable.

    What the server lacks it says by an error; an end without one is a shutdown, or a dump thread that somebody ended.
    """
    if events < len(packets):
        raise_error_packet(packets.data, *packets[events])
        raise SourceUnavailable("MySQL ended the log: the server shuts down, or the reader's dump thread was ended")


@dataclass(frozen=True, slots=True)
class _Record:
    """A statement's effect on one table name, as the history keeps it."""

    table_id: TableId
    kind: SchemaChangeKind
    schema: TableSchema | None
    renamed_from: TableId | None = None
    renamed_to: TableId | None = None
    """The event under which, as with Debezium, the end of this name is sent."""


def _records_of(changes: Iterable[TableChange], before: Mapping[TableId, TableSchema]) -> Sequence[_Record]:
    """The state of each name after the statement: a rename is the end of one name and a new version of the other.

    ``RENAME TABLE t TO _t_del, _t_gho TO t``, the last step of an online schema change, is one change of ``t``.
    """
    records: dict[TableId, _Record] = {}
    for change in changes:
        if change.kind is TableChangeKind.TRUNCATE:
            continue
        if change.previous_id is not None:
            records.pop(change.previous_id, None)
            records[change.previous_id] = _Record(
                change.previous_id, SchemaChangeKind.DROP, None, renamed_to=change.table_id
            )
        kind = _HISTORY_KIND.get(change.kind, SchemaChangeKind.ALTER)
        records.pop(change.table_id, None)  # after what it takes the place of
        records[change.table_id] = _Record(change.table_id, kind, change.schema, change.previous_id)
    return [record for record in records.values() if record.schema is not None or record.table_id in before]


def _cut_by(
    changes: Iterable[TableChange], before: Mapping[TableId, TableSchema], *, is_strict: bool
) -> Iterator[UnseenRows]:
    """Tables whose columns cannot hold all that they held, or whose new columns the server filled, by definitions alone."""
    for change in changes:
        if change.schema is not None and change.table_id in before:
            old = before[change.table_id]
            cut = [*cut_columns(old, change.schema, is_strict=is_strict), *computed_columns(old, change.schema)]
            if cut:
                yield UnseenRows(", ".join(cut), (change.table_id,))


def _origins(changes: Iterable[TableChange]) -> Mapping[TableId, TableId]:
    """By the name that a statement gave a table in the end, the one that it had; tables that exchange their names by a third
    one among them."""
    origins: dict[TableId, TableId] = {}
    for change in changes:
        if change.previous_id is not None:
            origins[change.table_id] = origins.pop(change.previous_id, change.previous_id)
    return {table_id: previous for table_id, previous in origins.items() if table_id != previous}


_HISTORY_KIND: Final = {
    TableChangeKind.CREATE: SchemaChangeKind.CREATE,
    TableChangeKind.DROP: SchemaChangeKind.DROP,
}


def _remedied(error: DefinitionTooLarge) -> str:
    return f"{error}; then re-snapshot the table"
