"""The content of one writer's transactions: existing topics, records of batches, and the count of both by tenant.

Used for all tenants together (``lane``) and for a single one that lags (``stragglers``).
"""

import collections
import time
import weakref
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import TopicPartition

from libs.config.connections import KafkaSettings
from libs.errors import HeadwaterError, PipelineHalted
from libs.kafka.clients import TopicSpec, create_topics
from libs.telemetry import metrics
from libs.telemetry.faults import EVENTS_SET_ASIDE, lift_fault, raise_fault
from libs.tenants.mask_keys import NO_KEYS, MaskKeys
from libs.types.fault import FaultScope
from libs.types.order import EventOrder
from libs.types.tenant import TenantSpec
from protos.headwater.changes.v1.change_batch_pb2 import TableChange, TransactionBoundary
from services.router.changes import Run
from services.router.deliver import (
    Announced,
    BatchPlace,
    Changes,
    Delivery,
    deliver_batch,
    route_targets,
    routes_of,
    targets_without_rows,
)
from services.router.encode import SchemaIds
from services.router.match import NO_REGISTRY, FetchTableSchema, RouteBook, TableRoutes, Target
from services.router.metering import Meter
from services.router.rate_limits import RateLimits
from services.router.record_batch import payload_size
from services.router.refusals import Refusals
from services.router.settings import LaneSettings
from services.router.topic_claims import TopicClaims
from services.router.topic_quotas import TopicQuotas
from services.router.writer import TopicsRefused, TransactionWriter

_BROKERS_CHOICE: Final = -1


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


RefusedTopics = Sequence[tuple[Target, PipelineHalted]]


class Outputs:
    """Writes batches into a writer's open transaction. Made and used in the writer's thread, but for ``create``."""

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
        self._source = source
        self._place = place
        self._writer = writer
        self._shared = shared
        self._rows = rows
        self._log = logger
        self._announced = Announced()
        self._known_topics: set[str] = set()
        self._complete: weakref.WeakValueDictionary[int, TableRoutes] = weakref.WeakValueDictionary()
        """Routes whose topics are all known, by their identity: with 1,000 tenants each batch has 2,000 to look at."""
        self._meter = meter
        self._tallies: collections.defaultdict[str, _Tally] = collections.defaultdict(_Tally)
        """The running transaction's records for each tenant; counted once it is committed."""
        self._set_aside: dict[tuple[str, str], int] = {}
        """By tenant and table: the dead letters of its events since the start, or since a copy of the table."""
        self._written: list[int] = []
        """Offsets of the batches that stand in the running transaction, in the order in which they were written."""

    def create_for(self, batch: Changes, book: RouteBook) -> RefusedTopics:
        """``create`` what a batch may need by its book; looks up and registers the schemas that it needs.

        Raises:
            SchemaUnknown, ServiceUnavailable: see ``RouteBook.routes``.
        """
        new = [routes for routes in routes_of(batch, book) if id(routes) not in self._complete]
        targets = (target for routes in new for target in route_targets(routes))
        refused = self.create((*targets, *targets_without_rows(batch, book)))
        if not refused:
            self._complete.update((id(routes), routes) for routes in new)
        return refused

    def create(self, targets: Iterable[Target]) -> RefusedTopics:
        """Make the topics that are missing; those that Kafka will not have as their tenants' documents want them, or that are
        more than their tenants may have.

        Raises:
            BrokerUnavailable: Kafka does not answer.
        """
        missing = {target.topic.name: target for target in targets if target.topic.name not in self._known_topics}
        beyond = self._shared.topic_quotas.beyond(self._source, missing.values())
        errors = beyond | create_topics(
            self._shared.kafka, [target.topic for name, target in missing.items() if name not in beyond]
        )
        self._known_topics.update(missing.keys() - errors.keys())
        refused = []
        for name, error in errors.items():
            if not isinstance(error, PipelineHalted):
                raise error
            refused.append((missing[name], error))
        return refused

    def forget_topics(self, prefix: str) -> None:
        """As if topics that begin so had never been seen."""
        self._known_topics = {topic for topic in self._known_topics if not topic.startswith(prefix)}
        self._complete.clear()

    def take_written(self) -> Sequence[int]:
        """The offsets of the batches that the running transaction holds; to be asked once, before its offset is sent."""
        taken, self._written = self._written, []
        return taken

    async def learn_topics(self) -> None:
        """Let the writer know the topics that were made."""
        await self._writer.learn_topics(self._known_topics)

    async def write(self, batch: Changes, offset: int, book: RouteBook) -> None:
        """Write a batch's records for the book's tenants.

        Raises:
            TopicsRefused: also where dead letters have no place; see ``TransactionWriter`` for the others.
        """
        place = BatchPlace(self._place.topic, self._place.partition, offset)
        limit, limits = self._shared.settings.max_event_bytes, self._shared.limits
        before_ns = time.thread_time_ns()
        for delivery in deliver_batch(batch, book, self._announced, place, max_event_bytes=limit):
            if delivery.dead_letters:
                self._create_dead_letters(delivery.targets)
            size = payload_size(delivery.records)
            await self._writer.write(delivery.records, [target.topic.name for target in delivery.targets])
            now_ns = time.thread_time_ns()
            share_ns, before_ns = (now_ns - before_ns) / len(delivery.targets), now_ns
            for target in delivery.targets:
                self._tallies[target.tenant].add(delivery, size, share_ns)
                if delivery.table and (delivery.reason or self._set_aside):
                    self._note_set_aside(target.tenant, delivery)
                if not limits.is_empty:
                    limits.take(target.tenant, delivery.rows + delivery.dead_letters, size)
        self._written.append(offset)

    def _create_dead_letters(self, targets: Iterable[Target]) -> None:
        """The topic is created with the broker's defaults if need be: letters must lie somewhere."""
        refused = self.create(targets)
        simplest = [
            Target(target.tenant, TopicSpec(name=target.topic.name, replication_factor=_BROKERS_CHOICE))
            for target, _ in refused
        ]
        still_refused = self.create(simplest)
        if still_refused:
            names = frozenset(target.topic.name for target, _ in still_refused)
            raise TopicsRefused("; ".join(str(error) for _, error in still_refused), names)

    def _note_set_aside(self, tenant: str, delivery: Delivery) -> None:
        """A copy of the table brings earlier letters' rows again, or sets them aside again."""
        place = (tenant, delivery.table)
        if delivery.reason:
            tally = self._tallies[tenant]
            tally.set_aside[delivery.table] = delivery.reason
            self._set_aside[place] = self._set_aside.get(place, 0) + delivery.dead_letters
        elif self._set_aside.pop(place, None) is not None:
            lift_fault(EVENTS_SET_ASIDE, FaultScope(source=self._source, tenant=tenant, table=delivery.table))

    def tenants_of(self, topics: Iterable[str], book: RouteBook) -> set[str]:
        """Whose topics they are: their names begin with their tenants'."""
        tenants = {subscriber.tenant for subscriber in book.subscribers}
        return {topic.partition(".")[0] for topic in topics} & tenants

    def count(self, others_ns: int = 0) -> float:
        """Count committed records in the metrics, and their CPU seconds, with ``others_ns`` of other threads."""
        cpu_s = self._meter.divide({tenant: tally.cpu_ns for tenant, tally in self._tallies.items()}, others_ns)
        for tenant, tally in self._tallies.items():
            self._rows[tenant] = self._rows.get(tenant, 0) + tally.rows
            metrics.ROUTER_EVENTS.labels(tenant).inc(tally.rows)
            metrics.ROUTER_BYTES.labels(tenant).inc(tally.size_bytes)
            metrics.ROUTER_FILTERED.labels(tenant).inc(tally.filtered)
            if tally.dead_letters:
                metrics.DEAD_LETTERS.labels(tenant).inc(tally.dead_letters)
                self._log.warning("event_dead_lettered", tenant_id=tenant, events=tally.dead_letters)
            for table, reason in tally.set_aside.items():
                count = self._set_aside.get((tenant, table), 1)
                happened = f"{table}: {count} {'event is a dead letter' if count == 1 else 'events are dead letters'}: {reason}"
                scope = FaultScope(source=self._source, tenant=tenant, table=table)
                raise_fault(EVENTS_SET_ASIDE, scope, happened=happened)
        self._tallies.clear()
        return cpu_s

    def forget(self) -> None:
        """The transaction was aborted: nothing of it became visible."""
        self._tallies.clear()
        self._written.clear()
        self._announced = Announced()


def tell_refused_schemas(book: RouteBook, told: set[str], logger: Any) -> bool:
    """Log a book's refused schemas that are not among ``told`` yet; returns whether there were any."""
    new = [(topic, refused) for topic, refused in book.refused_schemas.items() if topic not in told]
    for topic, refused in new:
        told.add(topic)
        logger.error("tenant_schema_refused", tenant_id=refused.tenant, refused=topic, reason=refused.reason)
        metrics.TENANT_SCHEMAS_REFUSED.labels(refused.tenant).inc()
    return bool(new)


@dataclass(slots=True)
class _Tally:
    """One transaction's records for one tenant."""

    rows: int = 0
    size_bytes: int = 0
    filtered: int = 0
    dead_letters: int = 0
    set_aside: dict[str, str] = field(default_factory=dict)
    """By table: why its last dead letter is one."""
    cpu_ns: float = 0.0
    """Its part of the work for it alone, or for a group of alike tenants."""

    def add(self, delivery: Delivery, size_bytes: int, cpu_ns: float) -> None:
        self.cpu_ns += cpu_ns
        self.rows += delivery.rows
        self.size_bytes += size_bytes
        self.filtered += delivery.filtered
        self.dead_letters += delivery.dead_letters


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
