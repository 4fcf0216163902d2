"""The MySQL source: a snapshot where one is due, then the log, as batches.

This module wires: ``client`` reads bytes, ``decode`` makes rows of them, ``snapshot`` copies, ``libs.mysql.ddl`` follows
schemas, schema_history keeps them. MySQL's connections block, so they are used in threads, one call at a time.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import structlog

from libs.errors import PositionPurged, SourceMisconfigured
from libs.events.batch import MAX_BATCH_BYTES, OP_TRUNCATE, BatchBuilder, BatchIdentity, RowRun
from libs.events.envelope import MysqlSourceBlock, event_tail, json_text, source_place, source_tail
from libs.events.schema_change import SchemaChangeKind
from libs.events.schema_change_event import schema_change_key, schema_change_value
from libs.failpoints import failpoint
from libs.mysql.ddl import TableChange, TableChangeKind, apply_database_ddl, apply_ddl, show_create_to_schema
from libs.mysql.ddl_syntax import DdlNotUnderstood, StatementContext
from libs.mysql.gtid import ExecutedGtids, GtidSet
from libs.mysql.logical import in_value_modes
from libs.mysql.packets import Packets
from libs.mysql.preflight import check_source
from libs.mysql.sql_lexer import SqlMode
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.mysql.client import (
    Connection,
    PacketReader,
    connect,
    query,
    raise_error_packet,
    start_dump,
)
from libs.source.mysql.snapshot import (
    Chunk,
    CopiedAt,
    Place,
    ReadView,
    append_rows,
    captured_tables,
    create_statement,
    database_charsets,
    estimated_rows,
    is_chunked,
    log_end,
    open_read_view,
    read_chunk,
    read_whole,
    statement_context,
)
from libs.source.port import ReadBatch, ResumePoint
from libs.source.signal_topic import SignalTopic
from libs.source.signals import InvalidSignal, LogMessage, Signal, parse_signal, signal_of
from libs.telemetry import metrics
from libs.types.checkpoint import Checkpoint, IncrementalSnapshot, SnapshotProgress
from libs.types.order import EventOrder
from libs.types.position import SourcePartition
from libs.types.table import TableId, TableSchema
from services.binlog_reader.decode import DdlStatement, LogDecoder
from services.binlog_reader.incremental import (
    IncrementalCopy,
    TableRefused,
    prepare_connection,
    read_between_watermarks,
)
from services.binlog_reader.position import BinlogPosition, decode_position, encode_position
from services.binlog_reader.settings import BinlogReaderSettings, SnapshotMode

log = structlog.get_logger()

# MySQL source sql/system_variables.h.
_MODE_ANSI_QUOTES: Final = 4
_MODE_NO_BACKSLASH_ESCAPES: Final = 1 << 20
SOURCE_PARTITION: Final = "0"
"""A MySQL server has one log."""
_ROWS_PER_SNAPSHOT_BATCH: Final = 2_000
_SIGNAL_POLL_S: Final = 0.2
_MAX_GATHERING_S: Final = 0.1
"""While more of the log waits, a batch is gathered until it is full, but no longer than this: it bounds latency."""


class BinlogSource:
    """One MySQL server as a ``libs.source.port.Source``."""

    def __init__(self, settings: BinlogReaderSettings, schema_history: SchemaHistoryClient) -> None:
        self._settings = settings
        self._schema_history = schema_history
        self._created_ms = time.time_ns() // 1_000_000
        self.partition = SourcePartition(source=settings.source, name=SOURCE_PARTITION)

    @asynccontextmanager
    async def open(self, resume_from: Checkpoint | None, identity: BatchIdentity) -> AsyncIterator["BinlogChangeLog"]:
        """See ``libs.source.port.Source.open``."""
        position = decode_position(resume_from.position) if resume_from is not None else None
        await asyncio.to_thread(require_sound_source, self._settings, position)
        change_log = BinlogChangeLog(
            self._settings, self._schema_history, resume_from, identity, signals_since_ms=self._created_ms
        )
        try:
            yield change_log
        finally:
            await asyncio.shield(asyncio.to_thread(change_log.close))


def require_sound_source(settings: BinlogReaderSettings, position: BinlogPosition | None) -> None:
    """The pre-flight: everything the server must offer, before anything is read. Blocks.

    Raises SourceMisconfigured or PositionPurged with every fault and its mend; SourceUnavailable, AccessDenied.
    """
    connection = connect(settings.database)
    try:
        report = check_source(connection, resume_from=GtidSet.parse(position.gtid_set) if position else None)
    finally:
        connection.close()
    for warning in report.warnings:
        log.warning("source_preflight_warned", fault=warning.what, mend=warning.mend)
    if report.faults:
        listed = "\n".join(f"  - {fault.what}; mend: {fault.mend}" for fault in report.faults)
        where = f"{settings.database.host}:{settings.database.port}"
        kind = PositionPurged if all(fault.is_purged for fault in report.faults) else SourceMisconfigured
        raise kind(f"MySQL at {where} cannot be followed, {len(report.faults)} fault(s):\n{listed}")


def capture_filter(settings: BinlogReaderSettings) -> Callable[[TableId], bool]:
    """Whether a table is captured, by the settings' regular expressions."""
    include = [re.compile(pattern) for pattern in settings.include_tables]
    exclude = [re.compile(pattern) for pattern in settings.exclude_tables]
    system = frozenset({"mysql", "sys", "information_schema", "performance_schema"})
    known: dict[TableId, bool] = {}

    def is_captured(table_id: TableId) -> bool:
        if table_id not in known:
            name = str(table_id)
            known[table_id] = (
                table_id.database not in system
                and (name == settings.signal_table or any(pattern.fullmatch(name) for pattern in include))
                and not any(pattern.fullmatch(name) for pattern in exclude)
            )
        return known[table_id]

    return is_captured


class BinlogChangeLog:
    """An open MySQL source (``libs.source.port.ChangeLog``)."""

    def __init__(
        self,
        settings: BinlogReaderSettings,
        schema_history: SchemaHistoryClient,
        resume_from: Checkpoint | None,
        identity: BatchIdentity,
        *,
        signals_since_ms: int,
    ) -> None:
        self._settings = settings
        self._schema_history = schema_history
        self._resume_from = resume_from
        self._incremental = IncrementalCopy(
            resume_from.incremental if resume_from else IncrementalSnapshot(),
            signal_table=settings.signal_table or "",
        )
        self._signals_since_ms = signals_since_ms
        self._signal_topic: SignalTopic | None = None
        self._chunk_connection: Connection | None = None
        self._batch = BatchBuilder(identity)
        self._is_captured = capture_filter(settings)
        self._schemas: dict[TableId, TableSchema] = {}
        self._progress: SnapshotProgress | None = None
        self._followed_databases: set[str] = set()
        self._database_charsets: Mapping[str, str] = {}
        self._statement_context = StatementContext()
        self._connections: list[Connection] = []

    def close(self) -> None:
        """Close every connection. Blocks shortly."""
        if self._signal_topic is not None:
            self._signal_topic.close()
        while self._connections:
            connection = self._connections.pop()
            if connection.open:
                connection.close()

    async def batches(self) -> AsyncIterator[ReadBatch]:
        """See ``libs.source.port.ChangeLog.batches``."""
        checkpoint = self._resume_from
        if checkpoint is None:
            view = await self._open_view(epoch=0)
            position = view.position
            await self._learn_schemas(view)
            if self._settings.snapshot.mode is SnapshotMode.INITIAL:
                self._progress = SnapshotProgress(rows_estimated=await self._estimate(view))
        else:
            position = decode_position(checkpoint.position)
            self._progress = checkpoint.snapshot
            schemas = await self._schema_history.list_tables(self._settings.source, checkpoint.order)
            self._schemas = {schema.table_id: schema for schema in schemas}
            self._follow_databases_of(self._schemas)
            view = None
        if self._progress is not None:
            if view is None:
                view = await self._open_view(epoch=position.epoch)
                async for batch in self._log(position, until=GtidSet.parse(view.position.gtid_set)):
                    yield batch
                position = view.position
            async for batch in self._copy(view):
                yield batch
            self._progress = None
        elif view is not None:  # no_data: the schemas alone are published
            yield self._take(self._resume_point(position, view.order, view.taken_at_us))
        if view is not None:
            await asyncio.to_thread(view.connection.close)
        self._signal_topic = SignalTopic(
            self._settings.kafka,
            self._settings.source,
            from_offset=self._incremental.state.signals_offset,
            since_ms=self._signals_since_ms,
        )
        async for batch in self._log(position, until=None):
            yield batch

    def _take(self, resume: ResumePoint | None) -> ReadBatch:
        payload, rows = self._batch.take(time.time_ns() // 1_000)
        return ReadBatch(payload=payload, rows=rows, resume=resume)

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

    def _captured_schemas(self) -> list[TableSchema]:
        return [schema for table_id, schema in sorted(self._schemas.items()) if self._is_captured(table_id)]

    # --- schemas -----------------------------------------------------------------------------------------------------------

    async def _open_view(self, *, epoch: int) -> ReadView:
        view = await asyncio.to_thread(open_read_view, self._settings.database, epoch=epoch)
        self._connections.append(view.connection)
        return view

    async def _learn_schemas(self, view: ReadView) -> None:
        """Record every captured table as it is now; published at the front of the snapshot.

        A table that changes between the view and this is found out when its rows are read: MySQL refuses the view then.
        """
        tables = await asyncio.to_thread(captured_tables, view.connection)
        self._follow_databases_of(tables)
        if not self._followed_databases:
            raise SourceMisconfigured(
                "no table of the source matches include_tables "
                f"({', '.join(self._settings.include_tables)}): correct the pattern (it must match database.table)"
            )
        for table_id in filter(self._is_followed, tables):
            statement, charset = await asyncio.to_thread(create_statement, view.connection, table_id)
            schema = show_create_to_schema(table_id, statement, charset)
            await self._record(
                table_id,
                SchemaChangeKind.SNAPSHOT,
                schema,
                order=view.order,
                position=view.position,
                committed_at_us=view.taken_at_us,
                ddl=statement,
                source_block=self._source_block(view.position, table_id, view.taken_at_us, is_snapshot=True),
            )

    async def _record(
        self,
        table_id: TableId,
        kind: SchemaChangeKind,
        schema: TableSchema | None,
        *,
        order: EventOrder,
        position: BinlogPosition,
        committed_at_us: int,
        ddl: str,
        source_block: bytes,
        renamed_from: TableId | None = None,
    ) -> None:
        """Make a change of a captured table durable in the history, put it into force, and into the batch."""
        if schema is not None:
            schema = in_value_modes(schema, self._settings.values)
        version = await self._schema_history.record_schema_change(
            source=self._settings.source,
            table_id=table_id,
            kind=kind,
            order=order,
            position=encode_position(position),
            committed_at_us=committed_at_us,
            ddl=ddl,
            table_schema=schema,
            renamed_from=renamed_from,
        )
        failpoint("reader_after_schema_recorded_before_publish")
        if schema is None:
            self._schemas.pop(table_id, None)
        else:
            schema = self._schemas[table_id] = msgspec.structs.replace(schema, version=version)
        if not self._is_captured(table_id):
            return
        metrics.READER_SCHEMA_CHANGES.labels(self._settings.source, SOURCE_PARTITION).inc()
        self._batch.add_table_change(
            table_id,
            schema_version=version if schema is not None else 0,
            order=order,
            committed_at_us=committed_at_us,
            is_snapshot=kind is SchemaChangeKind.SNAPSHOT,
            key=schema_change_key(table_id.database),
            value=schema_change_value(
                source_block=source_block,
                ts_ms=time.time_ns() // 1_000_000,
                database=table_id.database,
                ddl=ddl,
                table_id=table_id,
                schema=schema,
                kind="CREATE" if kind in (SchemaChangeKind.SNAPSHOT, SchemaChangeKind.CREATE) else kind.name,
            ),
        )

    def _source_block(
        self,
        position: BinlogPosition,
        table_id: TableId,
        time_us: int,
        *,
        is_snapshot: bool = False,
        server_id: int = 0,
        gtid: str | None = None,
        thread_id: int | None = None,
    ) -> bytes:
        head = MysqlSourceBlock(self._settings.source, table_id.database, table_id.table).head(
            time_us=time_us,
            snapshot=b'"true"' if is_snapshot else b'"false"',
            server_id=server_id,
            gtid=b"null" if gtid is None else json_text(gtid),
            file=json_text(position.file),
        )
        return head + source_place(position.pos, 0) + source_tail(thread_id)

    async def _apply(self, decoder: LogDecoder, ddl: DdlStatement) -> None:
        """A DDL statement of the log, at its place: nothing behind it is decoded before its schemas are durable."""
        decoder.flush()
        applied: dict[TableId, TableSchema | None] = {}
        for change in await self._changes_of(decoder.schemas, ddl):
            if change.kind is TableChangeKind.TRUNCATE:
                if self._is_captured(change.table_id):
                    truncated = self._schemas[change.table_id]
                    self._append_truncate(ddl, truncated)
                    self._incremental.table_changed(change.table_id, truncated, truncated)
                continue
            for table_id, kind, schema in _records_of(change):
                if not self._is_followed(table_id):
                    continue
                block_position = msgspec.structs.replace(ddl.position, pos=ddl.event_position)
                await self._record(
                    table_id,
                    kind,
                    schema,
                    order=ddl.order,
                    position=ddl.position,
                    committed_at_us=ddl.committed_at_us,
                    ddl=ddl.statement,
                    source_block=self._source_block(
                        block_position,
                        table_id,
                        ddl.committed_at_us // 1_000 * 1_000,
                        server_id=ddl.server_id,
                        gtid=ddl.gtid,
                    ),
                    renamed_from=change.previous_id if kind is SchemaChangeKind.ALTER else None,
                )
                applied[table_id] = self._schemas.get(table_id)
        for table_id, after in applied.items():
            self._incremental.table_changed(table_id, decoder.schemas.get(table_id), after)
        decoder.apply_schemas(applied)

    async def _changes_of(self, schemas: Mapping[TableId, TableSchema], ddl: DdlStatement) -> Sequence[TableChange]:
        """What the statement does; where its text is not understood, what the source itself says of the tables now.

        The source may be further than the log. Then the next table map does not fit, which halts with the remedy: no row
        is read by a wrong schema.
        """
        context = replace(
            self._statement_context,
            sql_mode=SqlMode(
                ansi_quotes=bool(ddl.sql_mode & _MODE_ANSI_QUOTES),
                backslash_escapes=not ddl.sql_mode & _MODE_NO_BACKSLASH_ESCAPES,
            ),
        )
        try:
            charsets = self._database_charsets
            self._database_charsets = apply_database_ddl(charsets, ddl.database, ddl.statement, context=context)
            changes = apply_ddl(
                schemas, ddl.database, ddl.statement, database_charsets=self._database_charsets, context=context
            )
            # A table renamed from one that is not followed is known to the source alone.
            unknown = [c.table_id for c in changes if c.kind is TableChangeKind.RENAME and c.schema is None]
            learned = await asyncio.to_thread(self._changes_from_source, list(filter(self._is_followed, unknown)))
            return [*(c for c in changes if c.table_id not in unknown), *learned]
        except DdlNotUnderstood as error:
            concerned = [table_id for table_id in error.table_ids if self._is_captured(table_id)]
            if not concerned and error.table_ids:
                return ()
            log.warning("ddl_not_understood", reason=str(error), gtid=ddl.gtid)
            if not concerned:
                raise
            return await asyncio.to_thread(self._changes_from_source, concerned)

    def _changes_from_source(self, tables: Sequence[TableId]) -> list[TableChange]:
        connection = connect(self._settings.database)
        try:
            existing = set(captured_tables(connection))
            return [
                TableChange(
                    TableChangeKind.ALTER,
                    table_id,
                    show_create_to_schema(table_id, *create_statement(connection, table_id)),
                )
                if table_id in existing
                else TableChange(TableChangeKind.DROP, table_id, None)
                for table_id in tables
            ]
        finally:
            connection.close()

    def _append_truncate(self, ddl: DdlStatement, schema: TableSchema) -> None:
        run = self._batch.open_run(
            RowRun(
                table_id=schema.table_id,
                schema_version=schema.version,
                transaction_id=ddl.gtid,
                first_order=msgspec.structs.replace(ddl.order, tx_ordinal=1),
                committed_at_us=ddl.committed_at_us,
                is_snapshot=False,
            )
        )
        block = self._source_block(
            msgspec.structs.replace(ddl.position, pos=ddl.event_position),
            schema.table_id,
            ddl.committed_at_us,
            server_id=ddl.server_id,
            gtid=ddl.gtid,
            thread_id=ddl.thread_id,
        )
        run.rows.append(
            OP_TRUNCATE,
            b"",
            b'{"before":null,"after":null,"source":%b,"transaction":null%b' % (block, event_tail("t", time.time_ns())),
        )
        self._batch.close_run()

    # --- snapshot ----------------------------------------------------------------------------------------------------------

    async def _estimate(self, view: ReadView) -> int:
        return await asyncio.to_thread(
            estimated_rows, view.connection, tuple(schema.table_id for schema in self._captured_schemas())
        )

    async def _copy(self, view: ReadView) -> AsyncIterator[ReadBatch]:
        """The rows still to be copied, with a resume point behind each chunk."""
        progress = self._progress or SnapshotProgress()
        tables = [schema.table_id for schema in self._captured_schemas()]
        began_s, copied_before = time.monotonic(), progress.rows_copied
        for index, table_id in enumerate(tables):
            if str(table_id) in progress.finished_tables:
                continue
            schema = self._schemas[table_id]
            last_key = progress.last_key if progress.current_table == str(table_id) else b""
            async for chunk, begins, ends in self._chunks(view, schema, last_key):
                place = Place(
                    is_first_table=index == 0,
                    is_last_table=index == len(tables) - 1,
                    begins_table=begins,
                    ends_table=ends,
                )
                finished = (*progress.finished_tables, str(table_id)) if ends else progress.finished_tables
                progress = SnapshotProgress(
                    finished_tables=finished,
                    current_table="" if ends else str(table_id),
                    last_key=chunk.last_key,
                    rows_copied=progress.rows_copied + len(chunk.rows),
                    rows_estimated=progress.rows_estimated,
                )
                is_done = len(finished) == len(tables)
                self._progress = None if is_done else progress
                can_resume = ends or bool(chunk.last_key)
                async for batch in self._chunk_batches(view, schema, chunk, place, can_resume):
                    yield batch
                self._observe(progress, copied_before, time.monotonic() - began_s)
                failpoint("reader_between_snapshot_chunks")
        log.info("snapshot_finished", rows=progress.rows_copied, tables=len(tables))

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
        while True:
            chunk = await asyncio.to_thread(read_chunk, view, schema, last_key, self._settings.snapshot.chunk_rows)
            yield chunk, begins, not chunk.has_more
            if not chunk.has_more:
                return
            last_key, begins = chunk.last_key, False

    async def _chunk_batches(
        self, view: ReadView, schema: TableSchema, chunk: Chunk, place: Place, can_resume: bool
    ) -> AsyncIterator[ReadBatch]:
        size = _ROWS_PER_SNAPSHOT_BATCH
        parts: Sequence[int] = range(0, len(chunk.rows), size) or (0,)
        for start in parts:
            is_last = start + size >= len(chunk.rows)
            append_rows(
                self._batch,
                chunk.rows[start : start + size],
                source=self._settings.source,
                schema=schema,
                view=view,
                marker=place.of_part(is_first=start == 0, is_last=is_last).marker,
            )
            resume = self._resume_point(view.position, view.order, view.taken_at_us) if is_last and can_resume else None
            yield self._take(resume)
            await asyncio.sleep(0)

    def _observe(self, progress: SnapshotProgress, copied_before: int, elapsed_s: float) -> None:
        labels = (self._settings.source, SOURCE_PARTITION)
        rate = (progress.rows_copied - copied_before) / elapsed_s if elapsed_s else 0.0
        left = max(0, progress.rows_estimated - progress.rows_copied)
        metrics.SNAPSHOT_ROWS.labels(*labels).set(progress.rows_copied)
        metrics.SNAPSHOT_ROWS_ESTIMATED.labels(*labels).set(progress.rows_estimated)
        metrics.SNAPSHOT_REMAINING.labels(*labels).set(left / rate if rate and self._progress is not None else 0.0)

    # --- log ---------------------------------------------------------------------------------------------------------------

    async def _log(self, position: BinlogPosition, until: GtidSet | None) -> AsyncIterator[ReadBatch]:
        """The log behind ``position``; up to and with the transactions ``until``, or without end."""
        executed = ExecutedGtids(GtidSet.parse(position.gtid_set))
        if until is not None and executed.snapshot().is_superset(until):
            return
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
            gtid_set=executed.snapshot().encode_binary(),
            replica_server_id=self._settings.replica_server_id,
            heartbeat_s=self._settings.database.heartbeat_s,
            spill_dir=Path(self._settings.spill_dir),
        )
        decoder = LogDecoder(
            self._settings.source,
            position,
            executed,
            self._schemas,
            is_captured=self._is_captured,
            batch=self._batch,
            checksum_bytes=4 if str(checksum[0][0]).upper() == "CRC32" else 0,
            transaction_metadata=self._settings.transaction_metadata,
            watch=self._incremental,
        )
        log.info("log_opened", gtid_set=position.gtid_set, file=position.file, pos=position.pos)
        async for batch in self._decoded(reader, decoder, until):
            yield batch
        await asyncio.to_thread(connection.close)

    async def _decoded(
        self, reader: PacketReader, decoder: LogDecoder, until: GtidSet | None
    ) -> AsyncIterator[ReadBatch]:
        labels = (self._settings.source, SOURCE_PARTITION)
        received, transactions = metrics.READER_BYTES.labels(*labels), metrics.READER_TRANSACTIONS.labels(*labels)
        transactions_counted = transactions_told = transactions_until = 0
        gathers_until_s = 0.0
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
            if isinstance(packets, Packets):
                received.inc(len(packets.data))
                events = packets.behind_ok()
                steps = decoder.feed(events)
            else:
                steps = decoder.feed_compressed(packets)
            for ddl in steps:
                if ddl is not None:
                    await self._apply(decoder, ddl)
                for row in self._incremental.table_signals():
                    self._take_signal_row(row)
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
                    if GtidSet.parse(decoder.position.gtid_set).is_superset(until):
                        yield self._drained(decoder)
                        return
            if isinstance(packets, Packets):
                _require_events(packets, len(events))
            else:
                packets.close()
            if not more_waits or time.monotonic() > gathers_until_s:
                batch = self._drained(decoder)
                if batch.payload or decoder.transactions != transactions_told:
                    transactions_told = decoder.transactions
                    yield batch
                gathers_until_s = time.monotonic() + _MAX_GATHERING_S
            transactions.inc(decoder.transactions - transactions_counted)
            transactions_counted = decoder.transactions

    def _drained(self, decoder: LogDecoder) -> ReadBatch:
        """Everything decoded so far: nothing waits for more of the log to come."""
        decoder.flush()
        return self._take(self._decoder_resume_point(decoder))

    def _decoder_resume_point(self, decoder: LogDecoder) -> ResumePoint | None:
        if not decoder.is_between_transactions:
            return None
        return self._resume_point(decoder.position, decoder.last_order, decoder.committed_at_us)

    # --- incremental snapshots ---------------------------------------------------------------------------------------------

    async def _beside_log(
        self, decoder: LogDecoder, receiving: asyncio.Future[tuple[Packets | BinaryIO, bool]]
    ) -> AsyncIterator[ReadBatch]:
        """Between two transactions: act on signals, and read a chunk; on and on until more of the log has come."""
        while True:
            if self._take_signals():
                yield self._drained(decoder)  # nothing else may come, and what a signal did is to be kept
            if self._incremental.wants_chunk:
                await self._read_chunk(decoder)
                if self._incremental.is_due:
                    async for batch in self._due_chunk(decoder):
                        yield batch
                    yield self._drained(decoder)
                    failpoint("reader_between_incremental_chunks")
            if receiving.done():
                return
            pause_s = 0.0 if self._incremental.wants_chunk else _SIGNAL_POLL_S
            await asyncio.wait({receiving}, timeout=pause_s)

    def _take_signals(self) -> bool:
        """Whether any came."""
        records = self._signal_topic.records() if self._signal_topic is not None else []
        for record in records:
            if record.text is not None:
                try:
                    self._act_on(parse_signal(record.text))
                except InvalidSignal as error:
                    self._refuse_signal(error)
            self._incremental.state = msgspec.structs.replace(
                self._incremental.state, signals_offset=record.next_offset
            )
        return bool(records)

    def _take_signal_row(self, row: tuple[object, ...]) -> None:
        """A row of the signal table: acts once, because its place in the log is passed once."""
        try:
            if len(row) != 3:
                raise InvalidSignal(f"the signal table has {len(row)} columns; it needs three: id, type, data")
            signal_id, kind, data = row
            self._act_on(signal_of(str(signal_id), kind, data))
        except InvalidSignal as error:
            self._refuse_signal(error)

    def _refuse_signal(self, error: InvalidSignal) -> None:
        log.warning("signal_refused", reason=str(error))
        metrics.SIGNALS.labels(self._settings.source, SOURCE_PARTITION, "refused").inc()

    def _act_on(self, signal: Signal) -> None:
        if isinstance(signal, LogMessage):
            log.info("signal_logged", signal_id=signal.signal_id, message=signal.message)
        else:
            captured = [str(schema.table_id) for schema in self._captured_schemas()]
            notes = self._incremental.take(signal, captured)
            log.info("signal_taken", signal=type(signal).__name__, signal_id=signal.signal_id, not_done=notes)
        metrics.SIGNALS.labels(self._settings.source, SOURCE_PARTITION, "taken").inc()

    async def _read_chunk(self, decoder: LogDecoder) -> None:
        """Read the next chunk of the first table that waits, the log standing still."""
        copy = self._incremental.state.tables[0]
        try:
            schema = next((s for s in self._captured_schemas() if str(s.table_id) == copy.table), None)
            if schema is None:
                raise TableRefused(f"{copy.table} is not captured any more")
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
                chunk_rows=self._settings.snapshot.incremental_chunk_rows,
            )
            if chunk is None:
                await asyncio.sleep(_SIGNAL_POLL_S)
                return
            self._incremental.take_chunk(chunk, caught_up=not chunk.window.unseen)
        except TableRefused as error:
            log.error("incremental_table_refused", table=copy.table, reason=str(error))
            self._incremental.refuse(copy.table)

    async def _due_chunk(self, decoder: LogDecoder) -> AsyncIterator[ReadBatch]:
        """Put what is left of the chunk into the log at this place, in batches."""
        decoder.flush()
        position = decoder.position
        chunk = self._incremental.deliver()
        if chunk is None:
            return
        low = chunk.window.low
        view = CopiedAt(
            position=msgspec.structs.replace(position, gtid_set=str(low)),
            order=EventOrder(epoch=position.epoch, rank=low.transaction_count(), tx_ordinal=0),
            taken_at_us=time.time_ns() // 1_000,
        )
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
        if chunk.is_last:
            log.info("incremental_table_finished", table=chunk.copy.table, rows_read=chunk.copy.rows_read)


def _parts(rows: Sequence[tuple[bytes, bytes]]) -> Iterator[Sequence[tuple[bytes, bytes]]]:
    """``rows`` in parts that fit into a batch."""
    begin, size = 0, 0
    for end, (image, _) in enumerate(rows, start=1):
        size += len(image)
        if size >= MAX_BATCH_BYTES or end - begin == _ROWS_PER_SNAPSHOT_BATCH or end == len(rows):
            yield rows[begin:end]
            begin, size = end, 0


def _require_events(packets: Packets, events: int) -> None:
    """All packets held an event. Raises as ``raise_error_packet``, PositionPurged."""
    if events < len(packets):
        raise_error_packet(packets.data, *packets[events])
        raise PositionPurged("MySQL ended the log: the server shuts down or the file is gone")


def _records_of(change: TableChange) -> Iterator[tuple[TableId, SchemaChangeKind, TableSchema | None]]:
    """A change as the history records it: a rename is the end of one name and a new version of the other."""
    match change.kind:
        case TableChangeKind.CREATE:
            yield change.table_id, SchemaChangeKind.CREATE, change.schema
        case TableChangeKind.DROP:
            yield change.table_id, SchemaChangeKind.DROP, None
        case TableChangeKind.RENAME:
            assert change.previous_id is not None
            yield change.previous_id, SchemaChangeKind.DROP, None
            yield change.table_id, SchemaChangeKind.ALTER, change.schema
        case _:
            yield change.table_id, SchemaChangeKind.ALTER, change.schema
