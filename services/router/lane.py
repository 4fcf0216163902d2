"""A lane: one partition of a changes topic, routed exactly once by a thread with an event loop and a transactional producer of
its own.

Faust's agent hands batches over (``offer``); the thread takes what waits and, in one Kafka transaction, writes the records
for all tenants and the consumer offset behind them. So a record and the offset that says it was written become visible
together or not at all, and a router killed anywhere resumes without a gap or a repeat.

Opening, in this order and in no other:

1. open the producer under the partition's transactional id: Kafka aborts what an older owner left open and refuses whatever it
   still sends;
2. read the committed offset: only now is it final. (The other order was seen to deliver past the committed offset.)

A lane that finds itself fenced stops and waits for Kafka to take the partition away or to give it anew; it never makes a new
producer by itself. Any other error ends the process, and its supervisor starts it again.
"""

import asyncio
import collections
import functools
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from aiokafka import TopicPartition
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as OffsetOf

from libs.config.connections import KafkaSettings
from libs.config.mask_keys import NO_KEYS, MaskKeys
from libs.errors import BrokerUnavailable, Fenced, HeadwaterError, PipelineHalted, ServiceUnavailable
from libs.failpoints import failpoint
from libs.kafka.clients import TopicSpec, client_config, create_topics
from libs.telemetry import metrics
from libs.types.order import EventOrder
from libs.types.tenant import TenantSpec
from protos.headwater.changes.v1.change_batch_pb2 import TableChange, TransactionBoundary
from services.router.changes import Run
from services.router.deliver import Announced, BatchPlace, Changes, Delivery, deliver_batch, read_changes, targets_of
from services.router.encode import SchemaIds
from services.router.match import NO_REGISTRY, FetchTableSchema, RouteBook, Target, TopicClaims
from services.router.record_batch import payload_size
from services.router.settings import LaneSettings
from services.router.writer import TransactionWriter

log = structlog.get_logger()

_OFFSET_TIMEOUT_S: Final = 30.0  # below the time that a lane may take to open
_POLL_S: Final = 0.2
"""How long a lane waits before it asks again for a topic or a schema."""
_LONGEST_PAUSE_S: Final = 5.0
"""Between two questions to schema_history or the schema registry; the pauses double up to it."""
_SCHEMA_RETRY_S: Final = 30.0
"""How long schema_history or the schema registry may be away before the process ends and is started again with back-off."""
_REFUSED_RETRY_S: Final = 60.0
"""How often Kafka is asked again for topics that it refused: brokers or grants may have come."""
_REFUSAL_PATIENCE_S: Final = 10.0
"""How long a topic's first refusal is doubted; all tenants of the lane wait so long, once for each such topic."""
_BROKERS_CHOICE: Final = -1
_MAX_TRANSACTION_BATCHES: Final = 32
_MAX_WRITING_S: Final = 2.0
"""With many tenants 32 batches take long: a transaction ends after the batch in which so much time has passed."""


@dataclass(frozen=True, slots=True)
class WaitingBatch:
    """A ChangeBatch as Faust hands it over."""

    offset: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class LanePosition:
    """How far a lane got: what its last committed transaction made visible."""

    next_offset: int
    """Of the changes topic."""
    moved_at_s: float
    """``time.monotonic()`` of the last step."""
    source: str = ""
    source_partition: str = ""
    committed_at_us: int = 0
    """Commit time, at the source, of the newest change routed."""
    order: EventOrder | None = None
    rows: Mapping[str, int] = field(default_factory=dict)
    """Row events written since the lane opened, by tenant; a tenant without any has 0."""


@dataclass(frozen=True, slots=True)
class LaneDependencies:
    """What all lanes of a process share."""

    kafka: KafkaSettings
    group: str
    settings: LaneSettings
    tenants: Callable[[], tuple[TenantSpec, ...]]
    """The tenants in force now; the same tuple as long as nothing changed."""
    fetch_schema: Callable[[str], FetchTableSchema]
    """For a source: how its table schemas are looked up."""
    claims: TopicClaims
    on_failure: Callable[[HeadwaterError], None]
    """Called once, from a lane's thread, with an error that must end the process."""
    keys: MaskKeys = NO_KEYS
    """Of the tenants' masks."""
    registry: SchemaIds = NO_REGISTRY
    """Of the schemas of Avro events."""


class Lane:
    """One partition of a changes topic. ``offer`` and ``close`` belong to the event loop, the rest to the thread."""

    def __init__(
        self, source: str, topic: str, kafka_partition: int, generation: int, shared: LaneDependencies
    ) -> None:
        self.source = source
        self.topic = topic
        self.kafka_partition = kafka_partition
        self.generation = generation
        """Of the consumer group: batches fetched under another one are not this lane's."""
        self.transaction_began_s: float | None = None
        """``time.monotonic()`` at the begin of the running transaction; the watchdog looks at it."""
        self.routing_since_s: float | None = None
        """``time.monotonic()`` before the lane looked whom the batches are for that it routes now; None: it routes none."""
        self.position: LanePosition | None = None
        """None until the lane is open."""
        self.is_fenced = False
        self.refused_topics: Mapping[str, str] = {}
        """Tenants' topics that Kafka would not create, or whose schemas the registry would not have, with the reason: what was
        meant for them is set aside."""
        self._shared = shared
        self._waiting: collections.deque[WaitingBatch] = collections.deque()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        """Of what waits."""
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._lane_loop: asyncio.AbstractEventLoop | None = None
        """The thread's; None until it runs."""
        self._worker: _LaneWorker | None = None
        self._work = asyncio.Event()
        """Of the thread's loop: something waits, or the lane shall close."""
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._log = log.bind(source=source, topic=topic, kafka_partition=kafka_partition)
        self._thread = threading.Thread(target=self._run, name=f"lane-{topic}-{kafka_partition}", daemon=True)
        self._thread.start()

    # --- the event loop's side

    async def opened(self) -> None:
        """Wait until the old owner is fenced and the committed offset is known.

        Raises:
            BrokerUnavailable: it took longer than ``ready_timeout_s``.
            HeadwaterError: what went wrong in the lane.
        """
        try:
            await asyncio.wait_for(asyncio.shield(self._opened), self._shared.settings.ready_timeout_s)
        except TimeoutError as error:
            raise BrokerUnavailable(f"the lane of {self.topic}/{self.kafka_partition} did not open in time") from error

    async def wait_for_room(self, payload_bytes: int) -> None:
        """Return when a batch of this size has room; at once when the lane is closing or fenced."""
        while not self._has_room(payload_bytes):
            self._room.clear()
            if self._has_room(payload_bytes):
                return
            await self._room.wait()

    async def offer(self, batch: WaitingBatch) -> None:
        """Hand a batch over; waits while the lane holds its fill. A closing or fenced lane drops it: another owner, or
        this one after the next assignment, reads it again."""
        await self.wait_for_room(len(batch.payload))
        if self._closing or self.is_fenced:
            return
        with self._lock:
            self._waiting.append(batch)
            self._waiting_bytes += len(batch.payload)
        self._wake_thread()

    def _has_room(self, size: int) -> bool:
        settings = self._shared.settings
        if self._closing or self.is_fenced or not self._waiting:
            return True
        return len(self._waiting) < settings.queued_batches and self._waiting_bytes + size <= settings.queued_bytes

    async def close(self) -> None:
        """Let the running transaction end, then stop; what waits is dropped. After ``close_timeout_s`` the thread is left
        behind: whatever it still tries is refused once the next owner has fenced it."""
        self._closing = True
        self._wake_thread()
        self._room.set()
        await asyncio.to_thread(self._thread.join, self._shared.settings.close_timeout_s)
        if self._thread.is_alive():
            self._log.warning("lane_abandoned", reason="its transaction did not end in time")
        if self._opened.done() and not self._opened.cancelled():
            self._opened.exception()  # retrieved: it was told to on_failure

    def let_go(self, tenant: str) -> None:
        """Nothing is routed to ``tenant`` any more: its topics may be deleted. Called from any thread."""
        if self._lane_loop is not None and self._worker is not None:
            _call_in(self._lane_loop, functools.partial(self._worker.forget_topics, f"{tenant}."))

    def _wake_thread(self) -> None:
        if self._lane_loop is not None:
            _call_in(self._lane_loop, self._work.set)

    # --- the thread's side

    def _run(self) -> None:
        try:
            asyncio.run(self._follow())
        except Fenced as error:
            self.is_fenced = True
            self._log.warning("lane_fenced", reason=str(error))
            self._tell_opened(error)
        except HeadwaterError as error:
            self._fail(error)
        except Exception as error:
            self._log.exception("lane_failed")
            self._fail(
                PipelineHalted(
                    f"the router failed on {self.topic}/{self.kafka_partition} with {type(error).__name__}; see the log"
                )
            )
        finally:
            self._wake_agent()

    async def _follow(self) -> None:
        """Open, then route what waits until the lane shall close."""
        self._lane_loop = asyncio.get_running_loop()
        place = TopicPartition(self.topic, self.kafka_partition)
        shared = self._shared
        writer = await TransactionWriter.open(shared.kafka, shared.group, place, shared.settings)
        try:
            next_offset = _committed_offset(place, shared)
            worker = _LaneWorker(self.source, place, next_offset, writer, shared, self._log)
            self._worker = worker
            self.position = LanePosition(next_offset, time.monotonic(), source=self.source)
            self._tell_opened(None)
            self._log.info("lane_opened", next_offset=next_offset, generation=self.generation)
            while batches := await self._take():
                self.routing_since_s = time.monotonic()
                self.position = await worker.route(batches, self._transaction_began) or self.position
                self.refused_topics = dict(worker.refused_topics)
                self.routing_since_s = None
        finally:
            await writer.close()

    async def _take(self) -> list[WaitingBatch]:
        """What waits, up to a transaction's bound; waits for the first. Empty: the lane shall close."""
        while not self._waiting and not self._closing:
            self._work.clear()
            if not self._waiting and not self._closing:
                await self._work.wait()
        if self._closing:
            return []
        with self._lock:
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MAX_TRANSACTION_BATCHES))]
            self._waiting_bytes -= sum(len(batch.payload) for batch in taken)
        self._wake_agent()
        return taken

    def _wake_agent(self) -> None:
        _call_in(self._loop, self._room.set)

    def _transaction_began(self, began_s: float | None) -> None:
        self.transaction_began_s = began_s

    def _fail(self, error: HeadwaterError) -> None:
        if not self._closing:
            self._shared.on_failure(error)
        self._tell_opened(error)

    def _tell_opened(self, error: HeadwaterError | None) -> None:
        def tell() -> None:
            if not self._opened.done():
                if error is None:
                    self._opened.set_result(None)
                else:
                    self._opened.set_exception(error)

        _call_in(self._loop, tell)


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:  # the loop has ended: nobody waits any more
        return


def _committed_offset(place: TopicPartition, shared: LaneDependencies) -> int:
    """Where the group goes on in the partition. Blocks.

    librdkafka asks: it can ask for stable offsets only, so that an open transaction's is waited for; aiokafka cannot.

    Raises:
        BrokerUnavailable: Kafka did not say.
    """
    consumer = Consumer(
        client_config(shared.kafka)
        | {"group.id": shared.group, "enable.auto.commit": False, "isolation.level": "read_committed"}
    )
    try:
        (committed,) = consumer.committed([OffsetOf(*place)], _OFFSET_TIMEOUT_S)
    except KafkaException as error:
        raise BrokerUnavailable(f"the committed offset of {place.topic}/{place.partition} cannot be read") from error
    finally:
        consumer.close()
    return max(committed.offset, 0)  # negative: nothing was committed yet


class _LaneWorker:
    """Routes what a lane hands it, and knows what that takes; used by the lane's thread alone."""

    def __init__(
        self,
        source: str,
        place: TopicPartition,
        next_offset: int,
        writer: TransactionWriter,
        shared: LaneDependencies,
        logger: Any,
    ) -> None:
        self._source = source
        self._place = place
        self._next_offset = next_offset
        self._writer = writer
        self._shared = shared
        self._log = logger
        self._announced = Announced()
        self._known_topics: set[str] = set()
        self._rows: dict[str, int] = {}
        self._tallies: collections.defaultdict[str, _Tally] = collections.defaultdict(_Tally)
        """What the running transaction holds for each tenant; counted once it is committed."""
        self._last_order: EventOrder | None = None
        self._tenants: tuple[TenantSpec, ...] | None = None
        self._book: RouteBook
        self._refused_at_s = 0.0
        self._refused_before: set[str] = set()
        self._told_schemas: set[str] = set()
        """Of the book's refused schemas, those that were logged."""

    async def route(
        self, waiting: Sequence[WaitingBatch], transaction_began: Callable[[float | None], None]
    ) -> LanePosition | None:
        """Write the outputs of ``waiting`` and the offset behind them in one transaction; None when all are old.

        Raises:
            Fenced: another owner has the partition; nothing of it became visible.
            BrokerUnavailable, ServiceUnavailable, PipelineHalted: nothing of it became visible.
        """
        fresh = [batch for batch in waiting if batch.offset >= self._next_offset]
        if not fresh:
            return None
        batches = [read_changes(batch.payload) for batch in fresh]
        book = self._current_book()
        self._prepare(batches, book)
        await self._writer.learn_topics(self._known_topics)
        done = 0
        while done < len(batches):
            began_s = time.monotonic()
            transaction_began(began_s)
            first = done
            await self._writer.begin()
            while done < len(batches) and time.monotonic() - began_s < _MAX_WRITING_S:
                await self._write(batches[done], fresh[done].offset, book)
                done += 1
            await self._commit(fresh[done - 1].offset + 1)
            transaction_began(None)
            failpoint("router_after_commit")
            self._count(batches[first:done], time.monotonic() - began_s)
        return self._position(batches, book)

    def _current_book(self) -> RouteBook:
        """The routes for the tenants in force; a change of tenants applies from the next transaction on."""
        tenants = self._shared.tenants()
        if tenants is not self._tenants or self._is_time_to_ask_again():
            self._tenants = tenants
            self._refused_at_s = 0.0
            fetch_schema = self._shared.fetch_schema(self._source)
            shared = self._shared
            self._book = RouteBook(self._source, tenants, fetch_schema, shared.claims, shared.keys, shared.registry)
            self._told_schemas.clear()
        return self._book

    def forget_topics(self, prefix: str) -> None:
        """As if topics that begin so had never been seen."""
        self._known_topics = {topic for topic in self._known_topics if not topic.startswith(prefix)}
        self._writer.forget_topics(prefix)

    @property
    def refused_topics(self) -> Mapping[str, str]:
        """Topics that Kafka would not create, or whose schemas the registry would not have, with the reason."""
        schemas = {topic: refused.reason for topic, refused in self._book.refused_schemas.items()}
        return schemas | self._book.refused_topics

    def _is_time_to_ask_again(self) -> bool:
        return self._refused_at_s > 0 and time.monotonic() - self._refused_at_s > _REFUSED_RETRY_S

    def _prepare(self, batches: Sequence[Changes], book: RouteBook) -> None:
        """Look schemas up and make topics before the transaction begins, so that neither can make it old."""
        began_s = time.monotonic()
        pause_s = _POLL_S
        for batch in batches:
            while True:
                try:
                    refused = self._create(targets_of(batch, book))
                    if not refused:
                        break
                    if self._is_new(refused) and time.monotonic() < began_s + _REFUSAL_PATIENCE_S:
                        time.sleep(_POLL_S)
                        continue
                    self._refuse(refused, book)  # once more: schemas and rows of other tables may hang on it
                except ServiceUnavailable as error:
                    if time.monotonic() > began_s + _SCHEMA_RETRY_S:
                        raise
                    self._log.warning("schema_lookup_retried", reason=str(error))
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        self._tell_refused_schemas(book)

    def _tell_refused_schemas(self, book: RouteBook) -> None:
        for topic, refused in book.refused_schemas.items():
            if topic not in self._told_schemas:
                self._told_schemas.add(topic)
                self._refused_at_s = time.monotonic()
                self._log.error("tenant_schema_refused", tenant_id=refused.tenant, refused=topic, reason=refused.reason)
                metrics.TENANT_SCHEMAS_REFUSED.labels(refused.tenant).inc()

    def _create(self, targets: Iterable[Target]) -> list[tuple[Target, PipelineHalted]]:
        """Make the topics that are missing; those that Kafka will not have as their tenants' documents want them.

        Raises:
            BrokerUnavailable: Kafka does not answer.
        """
        missing = {target.topic.name: target for target in targets if target.topic.name not in self._known_topics}
        errors = create_topics(self._shared.kafka, [target.topic for target in missing.values()])
        self._known_topics.update(missing.keys() - errors.keys())
        refused = []
        for name, error in errors.items():
            if not isinstance(error, PipelineHalted):
                raise error
            refused.append((missing[name], error))
        return refused

    def _is_new(self, refused: Iterable[tuple[Target, PipelineHalted]]) -> bool:
        """Not all of it was refused before: a broker that is away for a moment makes Kafka refuse topics too."""
        return not {target.topic.name for target, _ in refused} <= self._refused_before

    def _refuse(self, refused: Iterable[tuple[Target, PipelineHalted]], book: RouteBook) -> None:
        for target, error in refused:
            book.refuse_topic(target.topic.name, str(error))
            self._refused_before.add(target.topic.name)
            self._log.error(
                "tenant_topic_refused", tenant_id=target.tenant, refused=target.topic.name, reason=str(error)
            )
            metrics.TENANT_TOPICS_REFUSED.labels(target.tenant).inc()
        self._refused_at_s = time.monotonic()

    def _create_dead_letters(self, targets: Iterable[Target]) -> None:
        """Where they go is made as the broker likes it, if need be: what is set aside must lie somewhere.

        Raises:
            PipelineHalted: not even so.
        """
        refused = self._create(targets)
        simplest = [
            Target(target.tenant, TopicSpec(name=target.topic.name, replication_factor=_BROKERS_CHOICE))
            for target, _ in refused
        ]
        for _, error in self._create(simplest):
            raise error

    async def _write(self, batch: Changes, offset: int, book: RouteBook) -> None:
        place = BatchPlace(self._place.topic, self._place.partition, offset)
        limit = self._shared.settings.max_event_bytes
        for delivery in deliver_batch(batch, book, self._announced, place, max_event_bytes=limit):
            if delivery.dead_letters:
                self._create_dead_letters(delivery.targets)
            size = payload_size(delivery.records)
            await self._writer.write(delivery.records, [target.topic.name for target in delivery.targets])
            for target in delivery.targets:
                self._tallies[target.tenant].add(delivery, size)

    async def _commit(self, next_offset: int) -> None:
        await self._writer.send_gathered()
        failpoint("router_after_produce_before_offsets")
        await self._writer.send_offset(next_offset)
        failpoint("router_after_offsets_before_commit")
        await self._writer.commit()
        self._next_offset = next_offset

    def _count(self, batches: Sequence[Changes], took_s: float) -> None:
        labels = (self._source, batches[-1].head.source_partition)
        metrics.ROUTER_BATCHES.labels(*labels).inc(len(batches))
        metrics.ROUTER_TRANSACTION_SECONDS.labels(*labels).observe(took_s)
        for tenant, tally in self._tallies.items():
            self._rows[tenant] = self._rows.get(tenant, 0) + tally.rows
            metrics.ROUTER_EVENTS.labels(tenant).inc(tally.rows)
            metrics.ROUTER_BYTES.labels(tenant).inc(tally.size_bytes)
            metrics.ROUTER_FILTERED.labels(tenant).inc(tally.filtered)
            if tally.dead_letters:
                metrics.DEAD_LETTERS.labels(tenant).inc(tally.dead_letters)
                self._log.warning("event_dead_lettered", tenant_id=tenant, events=tally.dead_letters)
        self._tallies.clear()

    def _position(self, batches: Sequence[Changes], book: RouteBook) -> LanePosition:
        committed_at_us, order = 0, self._last_order
        for entry in reversed(batches[-1].entries):
            committed_at_us = committed_at_us or entry.committed_at_us
            if not isinstance(entry, TransactionBoundary):
                order = _order_at_end(entry)
                break
        self._last_order = order
        return LanePosition(
            next_offset=self._next_offset,
            moved_at_s=time.monotonic(),
            source=self._source,
            source_partition=batches[-1].head.source_partition,
            committed_at_us=committed_at_us,
            order=order,
            rows={subscriber.tenant: self._rows.get(subscriber.tenant, 0) for subscriber in book.subscribers},
        )


@dataclass(slots=True)
class _Tally:
    """What one transaction holds for one tenant."""

    rows: int = 0
    size_bytes: int = 0
    filtered: int = 0
    dead_letters: int = 0

    def add(self, delivery: Delivery, size_bytes: int) -> None:
        self.rows += delivery.rows
        self.size_bytes += size_bytes
        self.filtered += delivery.filtered
        self.dead_letters += delivery.dead_letters


def _order_at_end(change: Run | TableChange) -> EventOrder:
    if isinstance(change, Run):
        ordinal = change.first_tx_ordinal + (0 if change.is_snapshot else len(change) - 1)
    else:
        ordinal = change.tx_ordinal
    return EventOrder(epoch=change.epoch, rank=int(change.rank), tx_ordinal=ordinal)
