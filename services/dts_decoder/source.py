"""The DTS source: a snapshot of the MySQL server behind the subscription where one is due, then the topic, as batches.

``client`` reads messages, ``assembly`` joins them, ``decode`` makes rows of them, ``tables`` follows schemas. This wires.

**Snapshot and topic meet by GTID.** The topic's end is noted *before* the read view is opened. DTS is always behind the server,
so whatever stands before that end is in the view, and whatever is not in the view stands behind it: reading begins there, and
drops the transactions that the view holds.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import structlog
from prometheus_client import Counter

from libs.errors import InvalidEvent, PipelineHalted, PositionPurged, UndecodableMessage
from libs.events.batch import BatchBuilder, BatchIdentity
from libs.failpoints import failpoint
from libs.mysql.gtid import GtidSet
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.failure_handling import LeftOut
from libs.source.kept_faults import report_copy
from libs.source.mysql.client import hang_up, query
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
    without_places,
)
from libs.source.mysql.table_copy import contradiction
from libs.source.port import ReadBatch, ResumePoint
from libs.source.status import ReaderStatus
from libs.telemetry import metrics
from libs.types.checkpoint import Checkpoint, SnapshotProgress
from libs.types.order import EventOrder
from libs.types.position import SourcePartition
from libs.types.table import TableId, TableSchema
from services.dts_decoder.assembly import Assembler, KafkaMessage, WholeMessage
from services.dts_decoder.client import Received, SubscriptionClient
from services.dts_decoder.dead_letters import encode_message, encode_set_aside
from services.dts_decoder.decode import SubscriptionDecoder
from services.dts_decoder.found import DdlStatement, RolledBack, UnknownTable
from services.dts_decoder.position import SOURCE_KIND, DtsPosition, decode_position, encode_position
from services.dts_decoder.retention import Headroom, Look
from services.dts_decoder.set_aside import SetAside
from services.dts_decoder.settings import DtsDecoderSettings, SnapshotMode
from services.dts_decoder.tables import SubscribedTables

log = structlog.get_logger()

_RECEIVE_TIMEOUT_S: Final = 0.5
_MAX_GATHERING_S: Final = 0.1
"""While more messages wait, a batch is gathered until it is full, but no longer than this: it bounds latency."""
_LOOK_EVERY_S: Final = 15.0
_ROWS_PER_SNAPSHOT_BATCH: Final = 2_000


class DtsSource:
    """One partition of a subscription as a ``libs.source.port.Source``."""

    def __init__(
        self, settings: DtsDecoderSettings, schema_history: SchemaHistoryClient, status: ReaderStatus | None = None
    ) -> None:
        self._settings = settings
        self._schema_history = schema_history
        self._status = status
        self._rolled_back: set[tuple[int, int]] = set()
        self.partition = SourcePartition(source=settings.source, name=str(settings.subscription.partition))

    @asynccontextmanager
    async def open(self, resume_from: Checkpoint | None, identity: BatchIdentity) -> AsyncIterator["DtsChangeLog"]:
        """See ``libs.source.port.Source.open``."""
        position = decode_position(resume_from.position) if resume_from is not None else None
        subscription = self._settings.subscription
        if position is not None and (position.topic, position.partition) != (
            subscription.topic,
            subscription.partition,
        ):
            raise PipelineHalted(
                f"the checkpoint is of topic {position.topic}[{position.partition}], and the settings name "
                f"{subscription.topic}[{subscription.partition}]: give this source another name, or reset its checkpoint"
            )
        client = SubscriptionClient(subscription)
        change_log = DtsChangeLog(
            self._settings, self._schema_history, client, resume_from, identity, self._rolled_back, self._status
        )
        try:
            await asyncio.to_thread(client.require_partition)
            yield change_log
        finally:
            await asyncio.shield(asyncio.to_thread(change_log.close))


def capture_filter(settings: DtsDecoderSettings) -> Callable[[TableId], bool]:
    """Whether a table is captured, by the settings' regular expressions."""
    include = [re.compile(pattern) for pattern in settings.include_tables]
    exclude = [re.compile(pattern) for pattern in settings.exclude_tables]
    # __tencentdb__ is DTS's own (Tencent Cloud document 571/39531).
    hidden = frozenset({"mysql", "sys", "information_schema", "performance_schema", "__tencentdb__"})
    known: dict[TableId, bool] = {}

    def is_captured(table_id: TableId) -> bool:
        if table_id not in known:
            name = str(table_id)
            known[table_id] = (
                table_id.database not in hidden
                and any(pattern.fullmatch(name) for pattern in include)
                and not any(pattern.fullmatch(name) for pattern in exclude)
            )
        return known[table_id]

    return is_captured


class DtsChangeLog:
    """An open partition of a subscription (``libs.source.port.ChangeLog``)."""

    def __init__(
        self,
        settings: DtsDecoderSettings,
        schema_history: SchemaHistoryClient,
        client: SubscriptionClient,
        resume_from: Checkpoint | None,
        identity: BatchIdentity,
        rolled_back: set[tuple[int, int]],
        status: ReaderStatus | None,
    ) -> None:
        self._settings = settings
        self._client = client
        self._resume_from = resume_from
        self._rolled_back = rolled_back
        self._status = status
        self._batch = BatchBuilder(identity)
        self._labels = (settings.source, str(settings.subscription.partition))
        self._is_captured = capture_filter(settings)
        self._tables = SubscribedTables(
            SourcePartition(source=settings.source, name=self._labels[1]),
            settings.database,
            schema_history,
            self._batch,
            self._is_captured,
            settings.values,
            settings.on_unseen_change,
        )
        self._progress: SnapshotProgress | None = None
        self._view: ReadView | None = None
        self._left_out = LeftOut(settings.failure_handling, *self._labels)
        self._confirmable: list[int] = []
        self._headroom = Headroom(settings.subscription.retention_h * 3600)
        self._looked_at_s = 0.0
        self._counted: dict[Counter, int] = {}

    def close(self) -> None:
        """Close every connection. Blocks shortly."""
        self._client.close()
        if self._view is not None:
            hang_up(self._view.connection)

    async def confirm(self, durable: ResumePoint) -> None:
        """Set the consumer group after the newest CHECKPOINT that is durable with everything before it."""
        offset = decode_position(durable.position).offset
        reached = [each for each in self._confirmable if each <= offset]
        if reached:
            await asyncio.to_thread(self._client.confirm, reached[-1])
            self._confirmable = [each for each in self._confirmable if each > offset]

    async def batches(self) -> AsyncIterator[ReadBatch]:
        """See ``libs.source.port.ChangeLog.batches``."""
        checkpoint = self._resume_from
        if checkpoint is not None:
            position, order = decode_position(checkpoint.position), checkpoint.order
            self._progress = checkpoint.snapshot
            await self._tables.resume(order)
        elif self._settings.database is None:
            position, order = await self._first_position(), EventOrder(epoch=0, rank=0, tx_ordinal=0)
        else:
            view, position = await self._begin_copy()
            order = view.order
            async for batch in self._learn_tables(view, position):
                yield batch
        await self._tables.learn_context()
        if self._progress is not None:
            if self._view is None:
                self._view = await self._open_view(position.epoch)
                async for batch in self._log(position, order, until=self._view):
                    yield batch
                assert self._log_end is not None
                position, order = _behind_view(*self._log_end, self._view)
            async for batch in self._copy(self._view, position):
                yield batch
            self._progress = None
        elif self._view is not None:  # no_data: the schemas alone are published
            yield self._take(self._resume_point(position, order, self._view.taken_at_us))
        if self._view is not None:
            await asyncio.to_thread(self._view.connection.close)
        async for batch in self._log(position, order, until=None):
            yield batch

    # --- beginning -------------------------------------------------------------------------------------------------------

    async def _first_position(self) -> DtsPosition:
        """Without a server behind it: where the consumer group stands, else the oldest message."""
        offset = await asyncio.to_thread(self._client.group_offset)
        low, _ = await asyncio.to_thread(self._client.ends)
        return self._position_at(low if offset is None else max(offset, low))

    async def _begin_copy(self) -> tuple[ReadView, DtsPosition]:
        _, end = await asyncio.to_thread(self._client.ends)
        view = self._view = await self._open_view(0)
        [(server_id,)] = await asyncio.to_thread(query, view.connection, "SELECT @@GLOBAL.server_id")
        position = msgspec.structs.replace(
            self._position_at(end),
            gtid_set=view.position.gtid_set,
            server_id=int(server_id),
            file=view.position.file,
            pos=view.position.pos,
        )
        return view, position

    async def _learn_tables(self, view: ReadView, position: DtsPosition) -> AsyncIterator[ReadBatch]:
        async for _ in self._tables.learn_all(view, position):
            if self._batch.is_full:
                yield self._take(None)
        if self._settings.snapshot.mode is SnapshotMode.INITIAL:
            tables = [schema.table_id for schema in self._tables.captured]
            estimate = await asyncio.to_thread(estimated_rows, view.connection, tables)
            self._progress = SnapshotProgress(tables=len(tables), rows_estimated=estimate)

    def _position_at(self, offset: int) -> DtsPosition:
        subscription = self._settings.subscription
        return DtsPosition(topic=subscription.topic, partition=subscription.partition, offset=offset)

    async def _open_view(self, epoch: int) -> ReadView:
        if self._settings.database is None:
            raise PipelineHalted("the snapshot is unfinished, and the settings name no database: name it again")
        return await asyncio.to_thread(open_read_view, self._settings.database, epoch=epoch)

    # --- snapshot --------------------------------------------------------------------------------------------------------

    async def _copy(self, view: ReadView, position: DtsPosition) -> AsyncIterator[ReadBatch]:
        """The rows still to be copied, with a resume point after each chunk."""
        progress = self._progress or SnapshotProgress()
        schemas = self._tables.captured
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
                self._progress = None if len(finished) == len(schemas) else progress
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
        behind, read = last_key, 0
        while True:
            chunk = await asyncio.to_thread(read_chunk, view, schema, last_key, self._settings.snapshot.chunk_rows)
            read += len(chunk.rows)
            if not chunk.has_more and last_key != behind:  # one SELECT's answer is whole by itself
                counted = await asyncio.to_thread(rows_in_view, view.connection, schema, behind=behind)
                name = str(schema.table_id)
                report_copy(self._settings.source, name, contradiction(name, counted, read))
            yield chunk, begins, not chunk.has_more
            if not chunk.has_more:
                return
            last_key, begins = chunk.last_key, False

    async def _chunk_batches(
        self, view: ReadView, schema: TableSchema, chunk: Chunk, place: Place, position: DtsPosition | None
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
                connector=SOURCE_KIND,
            )
            resume = None
            if is_last and position is not None:
                resume = self._resume_point(position, view.order, view.taken_at_us)
            yield self._take(resume)
            await asyncio.sleep(0)

    # --- topic -----------------------------------------------------------------------------------------------------------

    _log_end: tuple[DtsPosition, EventOrder] | None = None
    """Where ``_log`` ended, when it was to end."""

    async def _log(self, position: DtsPosition, order: EventOrder, until: ReadView | None) -> AsyncIterator[ReadBatch]:
        """The topic from ``position`` on; until it has brought what the view holds, or without end."""
        subscription = self._settings.subscription
        assembler = Assembler(
            last_ps=position.ps,
            spill_bytes=subscription.held_message_bytes,
            max_bytes=subscription.max_message_bytes,
            spill_dir=Path(self._settings.spill_dir),
            begins_anywhere=position.ps is None,
        )
        self._counted.clear()
        decoder = SubscriptionDecoder(
            self._settings.source,
            position,
            order,
            self._tables.schemas,
            is_captured=self._is_captured,
            batch=self._batch,
            transaction_metadata=self._settings.transaction_metadata,
            rolled_back=frozenset(self._rolled_back),
            set_aside=self._set_aside if self._left_out.goes_on else None,
        )
        await asyncio.to_thread(self._client.begin, position.offset)
        log.info("log_opened", topic=position.topic, partition=position.partition, offset=position.offset)
        told = position.offset, position.entry
        gathers_until_s = 0.0
        while True:
            if until is not None and decoder.is_between_transactions and _has_brought(decoder.position, until):
                self._log_end = decoder.position, decoder.progress.last_order
                yield self._drained(decoder)
                return
            received = await asyncio.to_thread(self._client.receive, _RECEIVE_TIMEOUT_S)
            decoder.tick(time.time_ns())
            try:
                for message in received.messages:
                    for whole in self._assembled(assembler, message):
                        async for batch in self._decoded(decoder, whole):
                            told = decoder.position.offset, decoder.position.entry
                            yield batch
                            gathers_until_s = time.monotonic() + _MAX_GATHERING_S
            except (InvalidEvent, PipelineHalted):
                if decoder.is_between_transactions:
                    yield self._drained(decoder)  # what stands before the fault is good
                raise
            await self._observe(received, assembler, decoder)
            if not received.more_waits or time.monotonic() > gathers_until_s:
                stands = decoder.position.offset, decoder.position.entry
                if received.messages and (not self._batch.is_empty or stands != told or not self._left_out.is_empty):
                    told = stands
                    yield self._drained(decoder)
                gathers_until_s = time.monotonic() + _MAX_GATHERING_S

    def _assembled(self, assembler: Assembler, message: KafkaMessage) -> Sequence[WholeMessage]:
        metrics.READER_BYTES.labels(*self._labels).inc(len(message.value))
        try:
            whole = assembler.take(message)
        except PositionPurged:
            metrics.DTS_GAPS.labels(*self._labels).inc()
            raise
        except UndecodableMessage as error:
            if not self._left_out.goes_on:
                raise
            for offset, value in assembler.set_aside():
                self._left_out.add(
                    str(error), encode_message(message.topic, message.partition, offset, str(error), value)
                )
            letter = encode_message(message.topic, message.partition, message.offset, str(error), message.value)
            self._left_out.add(str(error), letter)
            return ()
        return () if whole is None else (whole,)

    async def _decoded(self, decoder: SubscriptionDecoder, message: WholeMessage) -> AsyncIterator[ReadBatch]:
        before = decoder.progress.confirmable_offset
        try:
            for handed_out in decoder.feed(message):
                if isinstance(handed_out, DdlStatement):
                    known = dict(self._tables.schemas)
                    applied = await self._tables.apply(handed_out)
                    self._progress = without_places(self._progress, known, applied)
                    decoder.apply_schemas(applied)
                elif isinstance(handed_out, UnknownTable):
                    decoder.apply_schemas(await self._tables.learn_one(handed_out))
                if self._batch.is_full and (decoder.is_between_transactions or self._batch.is_overfull):
                    yield self._take(self._decoder_resume_point(decoder))
                    await asyncio.sleep(0)
        except RolledBack as error:
            self._rolled_back.add(error.place)
            raise
        if decoder.progress.confirmable_offset is not None and decoder.progress.confirmable_offset != before:
            self._confirmable.append(decoder.progress.confirmable_offset)

    def _take(self, resume: ResumePoint | None) -> ReadBatch:
        payload, rows = self._batch.take(time.time_ns() // 1_000)
        return ReadBatch(payload=payload, rows=rows, resume=resume, dead_letters=self._left_out.taken())

    def _drained(self, decoder: SubscriptionDecoder) -> ReadBatch:
        """Everything decoded so far: nothing waits for more messages to come."""
        decoder.flush()
        return self._take(self._decoder_resume_point(decoder))

    def _decoder_resume_point(self, decoder: SubscriptionDecoder) -> ResumePoint | None:
        if not decoder.is_between_transactions:
            return None
        return self._resume_point(decoder.position, decoder.progress.last_order, decoder.progress.committed_at_us)

    def _resume_point(self, position: DtsPosition, order: EventOrder, committed_at_us: int) -> ResumePoint:
        return ResumePoint(
            position=encode_position(position), order=order, committed_at_us=committed_at_us, snapshot=self._progress
        )

    # --- what is set aside, and what is seen -----------------------------------------------------------------------------

    def _set_aside(self, found: SetAside) -> None:
        subscription = self._settings.subscription
        self._left_out.add(found.reason, encode_set_aside(subscription.topic, subscription.partition, found))

    async def _observe(self, received: Received, assembler: Assembler, decoder: SubscriptionDecoder) -> None:
        metrics.DTS_PARTS_WAITING.labels(*self._labels).set(assembler.parts_waiting)
        for counter, total in (
            (metrics.DTS_PARTS_DISCARDED, assembler.discarded),
            (metrics.DTS_CHECKPOINTS, decoder.progress.checkpoints),
            (metrics.DTS_REPEATS, assembler.repeats + decoder.progress.repeats),
            (metrics.READER_TRANSACTIONS, decoder.progress.transactions),
        ):
            before = self._counted.get(counter, 0)
            counter.labels(*self._labels).inc(max(0, total - before))
            self._counted[counter] = total
        if time.monotonic() - self._looked_at_s < _LOOK_EVERY_S:
            return
        self._looked_at_s = time.monotonic()
        low, high = await asyncio.to_thread(self._client.ends)
        position = received.messages[-1].offset + 1 if received.messages else high
        age_s = max(0.0, time.time() - received.newest_at_ms / 1000) if received.more_waits else 0.0
        left_s = self._headroom.seen(Look(time.monotonic(), low, position, age_s))
        metrics.DTS_HEADROOM.labels(*self._labels).set(left_s)
        if self._status is not None:
            is_short = left_s < self._settings.subscription.warn_headroom_h * 3600
            self._status.warning = headroom_warning(left_s) if is_short else None


def headroom_warning(left_s: float) -> str:
    """What an operator is told when little time is left."""
    return (
        f"DTS deletes messages that were not read in {left_s / 3600:.1f} h at the present rate: give the decoder more CPU, or "
        "exclude tables; what is lost needs a new snapshot"
    )


def _has_brought(position: DtsPosition, view: ReadView) -> bool:
    """Whether every transaction of the view has come: its own, or as DTS says of those that nobody subscribed to."""
    wanted = GtidSet.parse(view.position.gtid_set)
    if not wanted:
        raise PipelineHalted(
            "a snapshot that was interrupted can be gone on with only at a server with GTIDs: reset the checkpoint, which "
            "begins it anew"
        )
    return GtidSet.parse(position.gtid_set).union(GtidSet.parse(position.synced_gtid_set)).is_superset(wanted)


def _behind_view(position: DtsPosition, order: EventOrder, view: ReadView) -> tuple[DtsPosition, EventOrder]:
    """Where the topic goes on once the view is copied: what the view holds does not count again."""
    executed = GtidSet.parse(position.gtid_set).union(GtidSet.parse(view.position.gtid_set))
    return msgspec.structs.replace(position, gtid_set=str(executed)), max(order, view.order)
