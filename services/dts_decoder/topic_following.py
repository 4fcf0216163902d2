"""The topic, from a place on: messages joined, decoded, and gathered into batches."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import structlog

from libs.errors import InvalidEvent, PipelineHalted, PositionPurged, UndecodableMessage
from libs.mysql.gtid import GtidSet
from libs.source.mysql.snapshot import ReadView, without_places
from libs.source.port import ReadBatch, ResumePoint
from libs.telemetry import metrics
from libs.types.order import EventOrder
from services.dts_decoder.assembly import Assembler, KafkaMessage, WholeMessage
from services.dts_decoder.capture import capture_filter
from services.dts_decoder.client import SubscriptionClient
from services.dts_decoder.decode import SubscriptionDecoder
from services.dts_decoder.found import DdlStatement, RolledBack, UnknownTable
from services.dts_decoder.gather import Gatherer
from services.dts_decoder.position import DtsPosition, decode_position
from services.dts_decoder.settings import DtsDecoderSettings
from services.dts_decoder.tables import SubscribedTables
from services.dts_decoder.topic_figures import TopicFigures

log = structlog.get_logger()

_RECEIVE_TIMEOUT_S: Final = 0.5
_MAX_GATHERING_S: Final = 0.1
"""While more messages wait, a batch is gathered until it is full, but no longer than this: it bounds latency."""


class TopicFollowing:
    """Reads the topic with a new decoder each time, and confirms to DTS the part of it that is durable."""

    def __init__(
        self,
        settings: DtsDecoderSettings,
        client: SubscriptionClient,
        tables: SubscribedTables,
        gatherer: Gatherer,
        figures: TopicFigures,
        rolled_back: set[tuple[int, int]],
    ) -> None:
        """``rolled_back``: places of transactions that the source rolled back; one that is met is added."""
        self._settings = settings
        self._labels = (settings.source, str(settings.subscription.partition))
        self._is_captured = capture_filter(settings)
        self._client = client
        self._tables = tables
        self._gatherer = gatherer
        self._figures = figures
        self._rolled_back = rolled_back
        self._confirmable: list[int] = []
        self.end: tuple[DtsPosition, EventOrder] | None = None
        """Where ``batches`` ended, when it was to end."""

    async def confirm(self, durable: ResumePoint) -> None:
        """Set the consumer group after the newest CHECKPOINT that is durable with everything before it."""
        offset = decode_position(durable.position).offset
        reached = [each for each in self._confirmable if each <= offset]
        if reached:
            await asyncio.to_thread(self._client.confirm, reached[-1])
            self._confirmable = [each for each in self._confirmable if each > offset]

    async def batches(
        self, position: DtsPosition, order: EventOrder, until: ReadView | None
    ) -> AsyncIterator[ReadBatch]:
        """The topic from ``position`` on; until it has brought the view's transactions, or without end."""
        subscription = self._settings.subscription
        assembler = Assembler(
            last_ps=position.ps,
            spill_bytes=subscription.held_message_bytes,
            max_bytes=subscription.max_message_bytes,
            spill_dir=Path(self._settings.spill_dir),
            begins_anywhere=position.ps is None,
        )
        self._figures.begin()
        decoder = SubscriptionDecoder(
            self._settings.source,
            position,
            order,
            self._tables.schemas,
            is_captured=self._is_captured,
            batch=self._gatherer.entries,
            transaction_metadata=self._settings.transaction_metadata,
            rolled_back=frozenset(self._rolled_back),
            set_aside=self._gatherer.set_aside if self._gatherer.goes_on else None,
            set_row_aside=self._gatherer.set_aside if self._gatherer.goes_on_after_rows else None,
        )
        await asyncio.to_thread(self._client.begin, position.offset)
        log.info("log_opened", topic=position.topic, partition=position.partition, offset=position.offset)
        taken = position.offset, position.entry
        gathers_until_s = 0.0
        while True:
            if until is not None and decoder.is_between_transactions and _has_brought(decoder.position, until):
                self.end = decoder.position, decoder.progress.last_order
                yield self._gatherer.drained(decoder)
                return
            received = await asyncio.to_thread(self._client.receive, _RECEIVE_TIMEOUT_S)
            decoder.tick(time.time_ns())
            try:
                for message in received.messages:
                    for whole in self._assembled(assembler, message):
                        async for batch in self._decoded(decoder, whole):
                            taken = decoder.position.offset, decoder.position.entry
                            yield batch
                            gathers_until_s = time.monotonic() + _MAX_GATHERING_S
            except (InvalidEvent, PipelineHalted):
                if decoder.is_between_transactions:
                    yield self._gatherer.drained(decoder)  # everything before the fault is good
                raise
            await self._figures.report(received, assembler, decoder)
            if not received.more_waits or time.monotonic() > gathers_until_s:
                stands = decoder.position.offset, decoder.position.entry
                if received.messages and (stands != taken or not self._gatherer.is_empty):
                    taken = stands
                    yield self._gatherer.drained(decoder)
                gathers_until_s = time.monotonic() + _MAX_GATHERING_S

    def _assembled(self, assembler: Assembler, message: KafkaMessage) -> Sequence[WholeMessage]:
        metrics.READER_BYTES.labels(*self._labels).inc(len(message.value))
        try:
            whole = assembler.take(message)
        except PositionPurged:
            metrics.DTS_GAPS.labels(*self._labels).inc()
            raise
        except UndecodableMessage as error:
            if not self._gatherer.goes_on:
                raise
            for offset, value in assembler.set_aside():
                self._gatherer.set_message_aside(offset, str(error), value)
            self._gatherer.set_message_aside(message.offset, str(error), message.value)
            return ()
        return () if whole is None else (whole,)

    async def _decoded(self, decoder: SubscriptionDecoder, message: WholeMessage) -> AsyncIterator[ReadBatch]:
        before = decoder.progress.confirmable_offset
        try:
            for handed_out in decoder.feed(message):
                if isinstance(handed_out, DdlStatement):
                    known = dict(self._tables.schemas)
                    applied = await self._tables.apply(handed_out)
                    self._gatherer.progress = without_places(self._gatherer.progress, known, applied)
                    decoder.apply_schemas(applied)
                elif isinstance(handed_out, UnknownTable):
                    decoder.apply_schemas(await self._tables.learn_one(handed_out))
                if self._gatherer.is_due(decoder):
                    yield self._gatherer.take(self._gatherer.decoder_resume_point(decoder))
                    await asyncio.sleep(0)
        except RolledBack as error:
            self._rolled_back.add(error.place)
            raise
        if decoder.progress.confirmable_offset is not None and decoder.progress.confirmable_offset != before:
            self._confirmable.append(decoder.progress.confirmable_offset)


def _has_brought(position: DtsPosition, view: ReadView) -> bool:
    """Whether every transaction of the view has come: its own, or as DTS says of those that nobody subscribed to."""
    wanted = GtidSet.parse(view.position.gtid_set)
    if not wanted:
        raise PipelineHalted(
            "a snapshot that was interrupted can be gone on with only at a server with GTIDs: headwater reset SOURCE begins "
            "it again"
        )
    return GtidSet.parse(position.gtid_set).union(GtidSet.parse(position.synced_gtid_set)).is_superset(wanted)
