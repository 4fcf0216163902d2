"""The content of one writer's transactions: existing topics, records of batches, and the count of both by tenant.

Used for all tenants together (``lane``) and for a single one that lags (``stragglers``).
"""

import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka import TopicPartition

from libs.config.connections import KafkaSettings
from libs.errors import HeadwaterError
from libs.telemetry import metrics
from libs.tenants.mask_keys import NO_KEYS, MaskKeys
from libs.types.order import EventOrder
from libs.types.tenant import TenantSpec
from protos.headwater.changes.v1.change_batch_pb2 import TableChange, TransactionBoundary
from services.router.batches.batch_reading import Changes
from services.router.batches.changes import Run
from services.router.delivery.deliver import deliver_batch
from services.router.delivery.delivery import Announced, BatchPlace
from services.router.kafka.writer import TransactionWriter
from services.router.records.record_batch import payload_size
from services.router.routes.book import RouteBook, RouteView
from services.router.routes.encode import SchemaIds
from services.router.routes.match import NO_REGISTRY, FetchTableSchema
from services.router.routes.refusals import Refusals
from services.router.routes.topic_claims import TopicClaims
from services.router.routes.topic_quotas import TopicQuotas
from services.router.settings import LaneSettings
from services.router.transactions.metering import Meter
from services.router.transactions.rate_limits import RateLimits
from services.router.transactions.tally import TransactionTally
from services.router.transactions.tenant_topics import TenantTopics


@dataclass(frozen=True, slots=True)
class WaitingBatch:
    """A ChangeBatch as it lies in its changes topic."""

    offset: int
    payload: bytes
    fetch_cpu_ns: int = 0
    """The CPU time of its fetch and hand-over."""


@dataclass(frozen=True, slots=True)
class LaneDependencies:
    """The common parts of all lanes of a process."""

    kafka: KafkaSettings
    group: str
    settings: LaneSettings
    tenants: Callable[[], tuple[TenantSpec, ...]]
    """The tenants in force now; the same tuple as long as nothing changed."""
    fetch_schema: Callable[[str], FetchTableSchema]
    """For a source: how its table schemas are looked up."""
    claims: TopicClaims
    limits: RateLimits
    on_failure: Callable[[HeadwaterError], None]
    """Called once, from a lane's thread, with an error that must end the process."""
    keys: MaskKeys = NO_KEYS
    """Of the tenants' masks."""
    registry: SchemaIds = NO_REGISTRY
    """Of the schemas of Avro events."""
    refusals: Refusals = field(default_factory=Refusals)
    """Of all sources."""
    topic_quotas: TopicQuotas = field(default_factory=TopicQuotas)
    """Of all tenants."""
    look_at_tenants: Callable[[], None] = lambda: None
    """Update ``tenants`` from the documents at this moment; blocks shortly. From any thread."""


class Outputs:
    """Writes batches into a writer's open transaction. Made and used in the writer's thread, but for ``topics``."""

    def __init__(
        self,
        source: str,
        place: TopicPartition,
        writer: TransactionWriter,
        shared: LaneDependencies,
        rows: MutableMapping[str, int],
        meter: Meter,
        logger: Any,
    ) -> None:
        """``rows``: by tenant, the committed rows since the lane opened; one of its users at a time writes to a tenant.
        ``meter``: of the writer's thread."""
        self.topics = TenantTopics(source, shared.kafka, shared.topic_quotas)
        self._place = place
        self._writer = writer
        self._max_event_bytes = shared.settings.max_event_bytes
        self._limits = shared.limits
        self._announced = Announced()
        self._tally = TransactionTally(source, rows, meter, logger)
        self._written: list[int] = []
        """Offsets of the batches that stand in the running transaction, in the order in which they were written."""

    def take_written(self) -> Sequence[int]:
        """The offsets of the batches that the running transaction holds; to be asked once, before its offset is sent."""
        taken, self._written = self._written, []
        return taken

    async def learn_topics(self) -> None:
        """Let the writer know the topics that were made."""
        await self._writer.learn_topics(self.topics.known)

    async def write(self, batch: Changes, offset: int, view: RouteView) -> None:
        """Write a batch's records for the view's tenants.

        Raises:
            TopicsRefused: also where dead letters have no place; see ``TransactionWriter`` for the others.
        """
        place = BatchPlace(self._place.topic, self._place.partition, offset)
        limits = self._limits
        before_ns = time.thread_time_ns()
        for delivery in deliver_batch(batch, view, self._announced, place, max_event_bytes=self._max_event_bytes):
            if delivery.dead_letters:
                self.topics.create_for_dead_letters(delivery.targets)
            size = payload_size(delivery.records)
            await self._writer.write(delivery.records, [target.topic.name for target in delivery.targets])
            now_ns = time.thread_time_ns()
            share_ns, before_ns = (now_ns - before_ns) / len(delivery.targets), now_ns
            for target in delivery.targets:
                self._tally.add(target.tenant, delivery, size, share_ns)
                if not limits.is_empty:
                    limits.take(target.tenant, delivery.rows + delivery.dead_letters, size)
        self._written.append(offset)

    def report(self) -> None:
        """See ``TransactionTally.report``: the commit comes next."""
        self._tally.report()

    def count(self, others_ns: int = 0) -> float:
        """See ``TransactionTally.count``: the transaction is committed."""
        return self._tally.count(others_ns)

    def forget(self) -> None:
        """The transaction was aborted: nothing of it became visible."""
        self._tally.forget()
        self._written.clear()
        self._announced = Announced()


def log_refused_schemas(book: RouteBook, logged: set[str], logger: Any) -> bool:
    """Log a book's refused schemas that are not among ``logged`` yet; returns whether there were any."""
    new = [(topic, refused) for topic, refused in book.refused_schemas.items() if topic not in logged]
    for topic, refused in new:
        logged.add(topic)
        logger.error("tenant_schema_refused", tenant_id=refused.tenant, refused=topic, reason=refused.reason)
        metrics.TENANT_SCHEMAS_REFUSED.labels(refused.tenant).inc()
    return bool(new)


@dataclass(frozen=True, slots=True)
class Reached:
    """How far something got in a source's log."""

    committed_at_us: int = 0
    """Commit time, at the source, of the newest change."""
    order: EventOrder | None = None
    """Of the newest change; None: not known since the lane opened."""


def reached_by(batch: Changes, before: Reached) -> Reached:
    """The place after a batch, for one that was at ``before``."""
    committed_at_us, order = 0, before.order
    for entry in reversed(batch.entries):
        committed_at_us = committed_at_us or entry.committed_at_us
        if not isinstance(entry, TransactionBoundary):
            order = _order_at_end(entry)
            break
    return Reached(committed_at_us or before.committed_at_us, order)


def _order_at_end(change: Run | TableChange) -> EventOrder:
    if isinstance(change, Run):
        ordinal = change.first_tx_ordinal + (0 if change.is_snapshot else len(change) - 1)
    else:
        ordinal = change.tx_ordinal
    return EventOrder(epoch=change.epoch, rank=int(change.rank), tx_ordinal=ordinal)
