"""The DTS source: a snapshot of the subscription's MySQL server where one is due, then the topic, as batches.

``client`` reads messages, ``assembly`` joins them, ``decode`` makes rows of them, ``tables`` follows schemas.
``topic_following`` and ``initial_copy`` gather them into batches. This module wires.

**Snapshot and topic meet by GTID.** The topic's end is noted *before* the read view is opened. DTS always lags the server. So
the view holds everything before that end, and the topic brings everything else after it: reading begins there, and drops the
transactions that the view holds.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import structlog

from libs.errors import PipelineHalted
from libs.events.batch import BatchIdentity
from libs.mysql.gtid import GtidSet
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.mysql.client import query
from libs.source.mysql.snapshot import ReadView
from libs.source.port import ReadBatch, ResumePoint
from libs.source.status import ReaderStatus
from libs.types.checkpoint import Checkpoint
from libs.types.order import EventOrder
from libs.types.position import SourcePartition
from services.dts_decoder.capture import capture_filter
from services.dts_decoder.client import SubscriptionClient
from services.dts_decoder.gather import Gatherer
from services.dts_decoder.initial_copy import InitialCopy
from services.dts_decoder.position import DtsPosition, decode_position
from services.dts_decoder.settings import DtsDecoderSettings, SnapshotMode
from services.dts_decoder.tables import SubscribedTables
from services.dts_decoder.topic_figures import TopicFigures
from services.dts_decoder.topic_following import TopicFollowing

log = structlog.get_logger()


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
        subscription = self._settings.subscription
        if resume_from is not None and resume_from.starts_over:
            log.warning("checkpoint_was_reset", position=resume_from.position.token.decode(errors="replace"))
        elif resume_from is not None:
            position = decode_position(resume_from.position)
            if (position.topic, position.partition) != (subscription.topic, subscription.partition):
                raise PipelineHalted(
                    f"the checkpoint is of topic {position.topic}[{position.partition}], and the settings name "
                    f"{subscription.topic}[{subscription.partition}]: give this source another name, or copy it again: "
                    f"headwater reset {self._settings.source}"
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


class DtsChangeLog:
    """An open partition of a subscription (``libs.source.port.ChangeLog``): its parts, and the order of its phases."""

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
        partition = SourcePartition(source=settings.source, name=str(settings.subscription.partition))
        labels = (partition.source, partition.name)
        self._gatherer = gatherer = Gatherer(settings, identity, labels)
        self._tables = tables = SubscribedTables(
            partition,
            settings.database,
            schema_history,
            gatherer.entries,
            capture_filter(settings),
            settings.values,
            settings.on_unseen_change,
        )
        self._copy = InitialCopy(settings, gatherer, labels)
        figures = TopicFigures(settings.subscription, client, status, labels)
        self._topic = TopicFollowing(settings, client, tables, gatherer, figures, rolled_back)

    def close(self) -> None:
        """Close every connection. Blocks shortly."""
        self._client.close()
        self._copy.close()

    async def confirm(self, durable: ResumePoint) -> None:
        """See ``libs.source.port.ConfirmsPosition.confirm``."""
        await self._topic.confirm(durable)

    async def batches(self) -> AsyncIterator[ReadBatch]:
        """See ``libs.source.port.ChangeLog.batches``."""
        checkpoint, gatherer = self._resume_from, self._gatherer
        view: ReadView | None = None
        epoch = 0 if checkpoint is None else checkpoint.order.epoch + 1
        if checkpoint is not None and not checkpoint.starts_over:
            position, order = decode_position(checkpoint.position), checkpoint.order
            gatherer.progress = checkpoint.snapshot
            await self._tables.resume(order)
        elif self._settings.database is None:
            if checkpoint is not None:  # messages alone do not say which columns may be NULL: what is known is kept
                await self._tables.resume(checkpoint.order)
            position, order = await self._first_position(epoch), EventOrder(epoch=epoch, rank=0, tx_ordinal=0)
        else:
            view, position = await self._begin_copy(epoch)
            order = view.order
            async for batch in self._learn_tables(view, position):
                yield batch
        await self._tables.learn_context()
        if gatherer.progress is not None:
            if view is None:
                view = await self._copy.open_view(position.epoch)
                async for batch in self._topic.batches(position, order, until=view):
                    yield batch
                assert self._topic.end is not None
                position, order = _after_view(*self._topic.end, view)
            async for batch in self._copy.copy(view, self._tables.captured, position):
                yield batch
            gatherer.progress = None
        elif view is not None:  # no_data: the schemas alone are published
            yield gatherer.take(gatherer.resume_point(position, order, view.taken_at_us))
        await self._copy.leave()
        async for batch in self._topic.batches(position, order, until=None):
            yield batch

    async def _first_position(self, epoch: int) -> DtsPosition:
        """Without a server to copy from: where the consumer group stands, else the oldest message."""
        offset = await asyncio.to_thread(self._client.group_offset)
        low, _ = await asyncio.to_thread(self._client.ends)
        return self._position_at(low if offset is None else max(offset, low), epoch)

    async def _begin_copy(self, epoch: int) -> tuple[ReadView, DtsPosition]:
        _, end = await asyncio.to_thread(self._client.ends)
        view = await self._copy.open_view(epoch)
        [(server_id,)] = await asyncio.to_thread(query, view.connection, "SELECT @@GLOBAL.server_id")
        position = msgspec.structs.replace(
            self._position_at(end, epoch),
            gtid_set=view.position.gtid_set,
            server_id=int(server_id),
            file=view.position.file,
            pos=view.position.pos,
        )
        return view, position

    async def _learn_tables(self, view: ReadView, position: DtsPosition) -> AsyncIterator[ReadBatch]:
        async for _ in self._tables.learn_all(view, position):
            if self._gatherer.entries.is_full:
                yield self._gatherer.take(None)
        if self._settings.snapshot.mode is SnapshotMode.INITIAL:
            await self._copy.begin(view, self._tables.captured)

    def _position_at(self, offset: int, epoch: int) -> DtsPosition:
        subscription = self._settings.subscription
        return DtsPosition(topic=subscription.topic, partition=subscription.partition, offset=offset, epoch=epoch)


def _after_view(position: DtsPosition, order: EventOrder, view: ReadView) -> tuple[DtsPosition, EventOrder]:
    """Where the topic goes on once the view is copied: its transactions do not count again."""
    executed = GtidSet.parse(position.gtid_set).union(GtidSet.parse(view.position.gtid_set))
    return msgspec.structs.replace(position, gtid_set=str(executed)), max(order, view.order)
