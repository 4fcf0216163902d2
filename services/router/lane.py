"""A lane: one partition of a changes topic, routed exactly once by a thread with an event loop and a transactional producer of
its own.

Faust's agent hands batches over (``offer``); the thread takes waiting ones and, in one Kafka transaction, writes the records
for all tenants and the consumer offset after them. So a record and the offset that says it was written become visible
together or not at all, and a router killed anywhere resumes without a gap or a repeat.

A tenant that cannot keep up does not hold the others back: it falls behind and is carried on by ``stragglers`` until it can
come back. That it leaves, and that it comes back, is part of the transaction from which on it does.

Opening, in this order and in no other:

1. open the producer under the partition's transactional id: Kafka aborts an older owner's open transaction and refuses all
that it
   still sends;
2. read the committed offset: only now is it final. (The other order was seen to deliver past the committed offset.)
3. the same for the tenants that lag: read their names, open the producer that moves their cursors, read the cursors.

A lane that finds itself fenced stops and waits for Kafka to take the partition away or to give it again; it never makes a new
producer by itself. Any other error ends the process, and its supervisor starts it again.
"""

import asyncio
import collections
import functools
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import structlog
from aiokafka import TopicPartition
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as OffsetOf

from libs.errors import BrokerUnavailable, Fenced, HeadwaterError, PipelineHalted, ServiceUnavailable
from libs.events.names import STRAGGLING, straggler_group
from libs.failpoints import failpoint
from libs.kafka.clients import client_config
from libs.kafka.topic_id import topic_id
from libs.telemetry import metrics
from libs.telemetry.faults import CHANGES_RECORD_SET_ASIDE, CHANGES_TOPIC_REPLACED, lift_fault, raise_fault
from libs.types.fault import FaultScope
from libs.types.order import EventOrder
from libs.types.table import TableId
from libs.types.tenant import TenantSpec
from services.router.awaited import LACKS, PassedPartitions, awaited_ends, stretches
from services.router.covered import OffsetNotWritten, offset_after
from services.router.deliver import Changes, gone_tables, read_record, unseen_addressees
from services.router.encode import KnownSchemas
from services.router.match import RouteBook
from services.router.metering import Meter, fetch_cpu_ns
from services.router.outputs import LaneDependencies, Outputs, Reached, WaitingBatch, reached_by, tell_refused_schemas
from services.router.refusals import RecordsFate
from services.router.route_memory import RouteMemory
from services.router.settings import UnreadableRecords
from services.router.straggler_offsets import (
    committed_offsets,
    find_stragglers,
    is_anyone_behind,
    noted_topic_id,
    own_note,
)
from services.router.stragglers import Straggler, Stragglers
from services.router.writer import TopicsRefused, TransactionWriter

log = structlog.get_logger()

_OFFSET_TIMEOUT_S: Final = 30.0  # below the time that a lane may take to open
_POLL_S: Final = 0.2
"""How long a lane waits before it asks again for a topic or a schema."""
_LONGEST_PAUSE_S: Final = 5.0
"""Between two questions to schema_history or the schema registry; the pauses double up to it."""
_SCHEMA_RETRY_S: Final = 30.0
"""How long schema_history or the schema registry may be away before the process ends and is started again with back-off."""
_REFUSED_RETRY_S: Final = 60.0
"""How often tenants whose schemas are refused, or whose tables' topics others have, are looked at again."""
_MAX_TRANSACTION_BATCHES: Final = 32
_LONGEST_AWAITING_PAUSE_S: Final = 2.0
"""Between two looks at how far others are."""
_MAX_WRITING_S: Final = 2.0
"""With many tenants 32 batches take long: a transaction ends after the batch in which so much time has passed."""


@dataclass(frozen=True, slots=True)
class LanePosition:
    """How far a lane got: the end of its last committed transaction."""

    next_offset: int
    """Of the changes topic."""
    moved_at_s: float
    """``time.monotonic()`` of the last step."""
    source: str = ""
    source_partition: str = ""
    committed_at_us: int = 0
    """Commit time, at the source, of the newest change routed."""
    order: EventOrder | None = None
    tenants: frozenset[str] = frozenset()
    """The tenants of the source."""


@dataclass(frozen=True, slots=True)
class TenantPosition:
    """How far one tenant got that is behind the others."""

    next_offset: int
    """Of the changes topic."""
    reached: Reached
    reason: str
    """Why it is behind."""
    is_stuck: bool
    """Somebody has to see to it."""
    refusal: str | None = None
    """Why its records cannot be written, as was tried last; no time mends that."""
    is_tried: bool = True
    """They were, because the lane opened."""


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
        self.parked: str | None = None
        """Why the lane routes nothing until a person has acted and the router was started again."""
        self.awaits: str | None = None
        """Offsets of other partitions that are routed first, while the lane waits for them."""
        self.unreadable: str | None = None
        """The last record that nobody can read and that was set aside, because the lane opened."""
        self._refused_topics: Mapping[str, str] = {}
        self._shared = shared
        self._rows: dict[str, int] = {}
        self._waiting: collections.deque[WaitingBatch] = collections.deque()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        """Of the waiting batches."""
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
        place = TopicPartition(topic, kafka_partition)
        self._stragglers = Stragglers(source, place, shared, self._rows, self._log, self._fail)
        self._thread = threading.Thread(target=self._run, name=f"lane-{topic}-{kafka_partition}", daemon=True)
        self._thread.start()

    # --- from any thread

    @property
    def rows(self) -> Mapping[str, int]:
        """Row events committed since the lane opened, by tenant; a tenant without any may be missing."""
        return dict(self._rows)

    @property
    def behind(self) -> Mapping[str, TenantPosition]:
        """The tenants that are behind the others."""
        return {
            each.tenant: TenantPosition(
                each.cursor, each.reached, each.reason, each.is_stuck, each.refusal, each.is_tried
            )
            for each in self._stragglers.all()
        }

    @property
    def refused_topics(self) -> Mapping[str, str]:
        """Tenants' topics that Kafka would not create, or whose schemas the registry refused, with the reason. Their events
        are set aside. Lifted refusals are left out, even before the next row."""
        refused = dict(self._refused_topics)
        for each in self._stragglers.all():
            refused |= each.refused_topics
        if not refused:
            return refused
        standing = self._shared.refusals.topics_of(self.source, self._shared.tenants())
        return {topic: reason for topic, reason in refused.items() if topic in standing}

    @property
    def records_fate(self) -> RecordsFate | None:
        """Whose records cannot be written; None: the lane is not open, or another router has the partition."""
        position = self.position
        if position is None or self.is_fenced:
            return None
        behind = self.behind
        return RecordsFate(
            self.source,
            self.kafka_partition,
            refused={tenant: own.refusal for tenant, own in behind.items() if own.refusal is not None},
            untried={
                tenant for tenant, own in behind.items() if not own.is_tried and own.next_offset < position.next_offset
            },
        )

    def may_write_apart_for(self, tenant: str, gone_since_s: float) -> bool:
        """``Stragglers.may_write_for``."""
        return self._stragglers.may_write_for(tenant, gone_since_s)

    @property
    def transactions(self) -> Sequence[tuple[float, float]]:
        """``time.monotonic()`` of the begin and of the last step of each transaction that runs: a step is its begin, or a batch
        that Kafka took."""
        moved_s = 0.0 if self._worker is None else self._worker._writer.moved_s
        # A straggler's writes to few topics: its begin counts.
        steps = ((self.transaction_began_s, moved_s), (self._stragglers.transaction_began_s, 0.0))
        return [(began_s, max(began_s, moved_s)) for began_s, moved_s in steps if began_s is not None]

    # --- the event loop's side

    async def opened(self) -> None:
        """Wait until the old owner is fenced and the committed offset is known.

        Raises:
            BrokerUnavailable: it took longer than ``ready_timeout_s``.
            HeadwaterError: the lane failed with this error.
        """
        try:
            async with asyncio.timeout(self._shared.settings.ready_timeout_s):
                await asyncio.shield(self._opened)
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
        if self._closing or self.is_fenced or self.parked:
            return
        with self._lock:
            self._waiting.append(batch)
            self._waiting_bytes += len(batch.payload)
        self._wake_thread()

    def _has_room(self, size: int) -> bool:
        settings = self._shared.settings
        if self._closing or self.is_fenced or self.parked or not self._waiting:
            return True
        return len(self._waiting) < settings.queued_batches and self._waiting_bytes + size <= settings.queued_bytes

    async def close(self) -> None:
        """Let the running transaction end, then stop and drop waiting batches. After ``close_timeout_s`` the thread is left
        behind: its writes are refused once the next owner has fenced it."""
        self._closing = True
        self._wake_thread()
        self._room.set()
        await asyncio.to_thread(self._thread.join, self._shared.settings.close_timeout_s)
        if self._thread.is_alive():
            self._log.warning("lane_abandoned", reason="its transaction did not end in time")
        if self._opened.done() and not self._opened.cancelled():
            self._opened.exception()  # retrieved: on_failure has it

    def let_go(self, tenant: str) -> None:
        """Nothing is routed to ``tenant`` any more: its topics may be deleted. Called from any thread."""
        if self._lane_loop is not None and self._worker is not None:
            _call_in(self._lane_loop, functools.partial(self._worker.forget_topics, f"{tenant}."))
        self._stragglers.forget_topics(f"{tenant}.")
        self._wake_thread()

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
        """Open, then route waiting batches until the lane is to close."""
        self._lane_loop = asyncio.get_running_loop()
        place = TopicPartition(self.topic, self.kafka_partition)
        shared = self._shared
        writer = await TransactionWriter.open(shared.kafka, shared.group, place, shared.settings)
        try:
            next_offset = _committed_offset(place, shared)
            own_id = topic_id(shared.kafka, self.topic)
            noted = noted_topic_id(committed_offsets(shared.kafka, [shared.group], place)[shared.group].note)
            if noted and own_id and noted != own_id:
                self.position = LanePosition(next_offset, time.monotonic(), source=self.source)
                await self._park(noted, own_id)
                return
            lift_fault(CHANGES_TOPIC_REPLACED, FaultScope(source=self.source))
            looked_s = time.monotonic()
            stragglers = self._stragglers
            found: Mapping[str, int] = {}
            if is_anyone_behind(shared.kafka, shared.group, place):
                stragglers.open()  # nobody else moves cursors from now on
                found = find_stragglers(shared.kafka, shared.group, place)
            worker = _LaneWorker(
                self.source, place, next_offset, own_id, writer, shared, self._rows, stragglers, found, self._log
            )
            self._worker = worker
            self.position = LanePosition(next_offset, time.monotonic(), source=self.source)
            self._tell_opened(None)
            self._log.info("lane_opened", next_offset=next_offset, generation=self.generation)
            passed = PassedPartitions(shared.kafka, shared.group)
            while waiting := await self._take(worker):
                if own_id and time.monotonic() - looked_s >= shared.settings.topic_look_s:
                    looked_s = time.monotonic()
                    if (found_id := await asyncio.to_thread(topic_id, shared.kafka, self.topic)) != own_id:
                        await self._park(own_id, found_id)
                        return
                for stretch in worker.stretches(waiting):
                    if (behind := await self._await_others(stretch, passed)) is None:
                        break
                    self.routing_since_s = time.monotonic()
                    self.position = await worker.route(stretch, behind, self._transaction_began)
                    self._refused_topics = worker.refused_topics
                    self.unreadable = worker.unreadable
                    self.routing_since_s = None
        finally:
            await asyncio.to_thread(self._stragglers.close)
            await writer.close()

    async def _park(self, noted: str, found: str) -> None:
        """Route nothing, and let all that comes go by, until the lane shall close: other lanes do not wait for this one."""
        group = self._shared.group
        self.parked = (
            f"{self.topic} was deleted and made again: its id is {found}, and the offset of group {group} is of {noted}; "
            "batches that only the old one had are lost"
        )
        servers = self._shared.kafka.bootstrap_servers
        remedy = (
            f"stop the routers, set the offset (kafka-consumer-groups.sh --bootstrap-server {servers} --group {group} "
            f"--topic {self.topic} --reset-offsets --to-earliest --execute), start them, then resync the tables of the "
            "source"
        )
        raise_fault(CHANGES_TOPIC_REPLACED, FaultScope(source=self.source), happened=self.parked, remedy=remedy)
        with self._lock:
            self._waiting.clear()
            self._waiting_bytes = 0
        self._wake_agent()
        self._tell_opened(None)
        while not self._closing:
            await self._rest(_LONGEST_PAUSE_S)

    async def _take(self, worker: "_LaneWorker") -> list[WaitingBatch]:
        """Waiting batches, up to a transaction's bound; waits for the first. Empty: the lane is to close."""
        while not self._waiting and not self._closing:
            self._work.clear()
            if not self._waiting and not self._closing:
                await self._work.wait()
                worker.take_in_tenants()  # a tenant that is gone now may come back before a row does
        if self._closing:
            return []
        with self._lock:
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MAX_TRANSACTION_BATCHES))]
            self._waiting_bytes -= sum(len(batch.payload) for batch in taken)
        self._wake_agent()
        return taken

    async def _await_others(self, stretch: "Stretch", passed: PassedPartitions) -> Collection[str] | None:
        """Return when the awaited records are routed, with the tenants that lack them; None: the lane is to close."""
        ends = awaited_ends(stretch.batches[0], self.topic)
        if not ends:
            return ()
        self.awaits = ", ".join(f"partition {place.partition} up to {end}" for place, end in sorted(ends.items()))
        self._log.info("lane_awaits_partitions", offset=stretch.waiting[0].offset, awaits=self.awaits)
        began_s, pause_s = time.monotonic(), _POLL_S
        try:
            while not self._closing:
                try:
                    if passed.is_passed(ends):
                        lacking = passed.behind(ends)
                        self._log.info(
                            "lane_goes_on", awaited_s=round(time.monotonic() - began_s, 1), lacking=len(lacking)
                        )
                        return lacking
                except BrokerUnavailable as error:
                    self._log.warning("awaited_partitions_unknown", reason=str(error))
                await self._rest(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_AWAITING_PAUSE_S)
        finally:
            self.awaits = None
        return None

    async def _rest(self, pause_s: float) -> None:
        """Return after a pause, or sooner when the lane shall close."""
        deadline_s = time.monotonic() + pause_s
        while not self._closing and (left_s := deadline_s - time.monotonic()) > 0:
            self._work.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._work.wait()

    def _wake_agent(self) -> None:
        _call_in(self._loop, self._room.set)

    def _transaction_began(self, began_s: float | None) -> None:
        self.transaction_began_s = began_s

    def _fail(self, error: HeadwaterError) -> None:
        if self._closing:
            self._log.warning("lane_closed_amid_a_failure", reason=str(error))
        else:
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
    """Routes a lane's batches for all tenants that keep up; used by the lane's thread alone."""

    def __init__(
        self,
        source: str,
        place: TopicPartition,
        next_offset: int,
        topic_id: str,
        writer: TransactionWriter,
        shared: LaneDependencies,
        rows: MutableMapping[str, int],
        stragglers: Stragglers,
        found: Mapping[str, int],
        logger: Any,
    ) -> None:
        """``found``: the tenants that were behind when the lane opened, with their cursors. ``topic_id``: of the changes
        topic."""
        self._source = source
        self._place = place
        self._next_offset = next_offset
        self._topic_id = topic_id
        self._writer = writer
        self._shared = shared
        self._log = logger
        self._outputs = Outputs(source, place, writer, shared, rows, Meter(), logger)
        self._stragglers = stragglers
        self._behind: set[str] = set()
        """The tenants among the stragglers, by committed state."""
        self._released: set[str] = set()
        """Former stragglers that are no longer tenants: the next transaction notes it in Kafka."""
        self._reached = Reached()
        self._source_partition = ""
        self.unreadable: str | None = None
        """Of the last record that was set aside since the lane opened: where, and why."""
        self._tenants: tuple[TenantSpec, ...] | None = None
        self._memory = RouteMemory()
        self._book: RouteBook
        self._book_made_s = 0.0
        self._ended_by_then = 0
        """``Refusals.ended`` when the book was made."""
        self._told_schemas: set[str] = set()
        """Of the book's refused schemas, those that were logged."""
        self._told_unseen: set[tuple[str, TableId]] = set()
        """Tenants that could not get rows addressed to them, by the book."""
        self._specs: dict[str, TenantSpec] = {}
        self._current_book()
        for tenant, cursor in found.items():
            if tenant in self._specs:
                self._behind.add(tenant)
                stragglers.add(self._specs[tenant], cursor, "was behind before the router started", Reached())
            else:
                self._released.add(tenant)
        stragglers.advance(next_offset, next_offset, ())

    def stretches(self, waiting: Sequence[WaitingBatch]) -> Iterator["Stretch"]:
        """The unrouted part of ``waiting``, cut before each batch that awaits others."""
        fresh = [batch for batch in waiting if batch.offset >= self._next_offset]
        batches = [read_record(batch.payload, self._source) for batch in fresh]
        self._judge_unreadable(fresh, batches)
        for first, behind in stretches(batches):
            yield Stretch(fresh[first:behind], batches[first:behind])

    def _judge_unreadable(self, waiting: Sequence[WaitingBatch], batches: Sequence[Changes]) -> None:
        """Raises PipelineHalted where they are not to be set aside."""
        if self._shared.settings.unreadable_records is not UnreadableRecords.HALT:
            return
        for each, batch in zip(waiting, batches, strict=True):
            if batch.unreadable is not None:
                raise PipelineHalted(
                    f"{self._place.topic}/{self._place.partition}: the record at offset {each.offset} is no ChangeBatch "
                    f"({batch.unreadable}); if a newer reader wrote it, bring this router to its release; else set "
                    "lane.unreadable_records: set_aside to pass it over, and resync the source's tables"
                )

    async def route(
        self, stretch: "Stretch", lacking: Collection[str], transaction_began: Callable[[float | None], None]
    ) -> LanePosition:
        """Write the outputs of ``stretch`` and the offset after them, transaction by transaction.

        A tenant that cannot keep up falls behind, and those that can again come back. So do those that are ``lacking`` what
        the stretch awaits.

        Raises:
            Fenced: another owner has the partition; nothing of it became visible.
            BrokerUnavailable, ServiceUnavailable, PipelineHalted: nothing of it became visible.
        """
        fresh, batches = stretch
        book = self._book_for(batches)
        step = _Step(self._prepare(batches, book), lacking=lacking)
        done = 0
        while done < len(batches):
            began_s = time.monotonic()
            transaction_began(began_s)
            first = done
            self._take_joining(step, batches[first:])
            await self._outputs.learn_topics()
            await self._writer.begin()
            try:
                await self._write_backlogs(step)
                self._leave(step, fresh[first].offset, self._reached)
                # One batch at least: the backlogs alone may have taken all the time.
                while done < len(batches) and (done == first or time.monotonic() - began_s < _MAX_WRITING_S):
                    self._leave_over_limits(step, fresh[done].offset, book)
                    await self._outputs.write(batches[done], fresh[done].offset, book)
                    step.reached = reached_by(batches[done], step.reached or self._reached)
                    done += 1
                next_offset = self._offset_after(fresh[first:done], step)
                await self._commit(next_offset, step)
            except TopicsRefused as error:
                await self._writer.abort()
                self._outputs.forget()
                refused = self._outputs.tenants_of(error.topics, book)
                if not refused - (self._behind - step.joining.keys()):
                    raise
                self._stay(step, dict.fromkeys(refused, str(error)))
                step = _Step(dict.fromkeys(refused, str(error)), lacking=step.lacking)
                done = first
                continue
            transaction_began(None)
            failpoint("router_after_commit")
            self._settle(step, next_offset, fresh[first:done])
            self._tell_unreadable(batches[first:done], fresh[first:done])
            self._note_refusals(batches[first:done])
            self._count(batches[first:done], fresh[first:done], time.monotonic() - began_s)
            step = _Step({})
        return self._position(batches)

    def _tell_unreadable(self, batches: Sequence[Changes], waiting: Sequence[WaitingBatch]) -> None:
        """The committed transaction passed them over."""
        for each, batch in zip(waiting, batches, strict=True):
            if batch.unreadable is None:
                continue
            metrics.ROUTER_UNREADABLE_RECORDS.labels(self._source).inc()
            self.unreadable = (
                f"{self._place.topic}/{self._place.partition}: the record at offset {each.offset} is no ChangeBatch "
                f"({batch.unreadable}) and was set aside: find out who wrote it, and resync the source's tables if a reader did"
            )
            raise_fault(CHANGES_RECORD_SET_ASIDE, FaultScope(source=self._source), happened=self.unreadable)
            self._log.error(
                "changes_record_set_aside",
                offset=each.offset,
                size_bytes=len(each.payload),
                reason=batch.unreadable,
            )

    def take_in_tenants(self) -> None:
        """Between two transactions: forget stragglers that are no longer tenants."""
        self._current_book()

    def _current_book(self) -> RouteBook:
        """The routes for the tenants in force; a change of tenants applies from the next transaction on."""
        tenants = self._shared.tenants()
        if tenants is not self._tenants:
            self._tenants = tenants
            self._specs = {
                spec.tenant: spec for spec in tenants if any(each.name == self._source for each in spec.sources)
            }
            self._shared.limits.set_tenants(tenants)
            self._shared.registry.forget_refusals()
            self._book = self._new_book(tenants)
        elif (self._book.refused_schemas or self._book.has_collisions) and (
            time.monotonic() > self._book_made_s + _REFUSED_RETRY_S
            or self._shared.refusals.ended != self._ended_by_then
        ):
            self._book = self._new_book(tenants)
        gone = self._stragglers.take_gone(self._specs)
        self._released.update(gone)
        self._behind.difference_update(gone)
        return self._book

    def _book_for(self, batches: Sequence[Changes]) -> RouteBook:
        """The current book. Rows that are addressed to a tenant were asked for when its document said that it gets them: where
        the book does not say so, the document is newer than the last look, and is looked at before the rows pass."""
        book = self._current_book()
        if all(unseen_addressees(batch, book) <= self._told_unseen for batch in batches):
            return book
        self._shared.look_at_tenants()
        book = self._current_book()
        unseen = {each for batch in batches for each in unseen_addressees(batch, book)}
        for tenant, table_id in sorted(unseen - self._told_unseen):
            self._log.warning(
                "copy_not_delivered",
                tenant_id=tenant,
                table=str(table_id),
                reason="rows were copied for this tenant alone, and by its document in force it does not see the table",
            )
        self._told_unseen |= unseen
        return book

    def _new_book(self, tenants: tuple[TenantSpec, ...]) -> RouteBook:
        shared = self._shared
        fetch_schema, registry = shared.fetch_schema(self._source), KnownSchemas(shared.registry)
        self._book_made_s, self._ended_by_then = time.monotonic(), shared.refusals.ended
        self._told_schemas.clear()
        self._told_unseen.clear()
        book = RouteBook(self._source, tenants, fetch_schema, shared.claims, shared.keys, registry, self._memory)
        book.leave_out(self._behind)
        return book

    def forget_topics(self, prefix: str) -> None:
        """As if topics that begin so had never been seen."""
        self._outputs.forget_topics(prefix)
        self._writer.forget_topics(prefix)

    @property
    def refused_topics(self) -> Mapping[str, str]:
        """Topics whose schemas the registry would not have, with the reason."""
        return {topic: refused.reason for topic, refused in self._book.refused_schemas.items()}

    def _prepare(self, batches: Sequence[Changes], book: RouteBook) -> dict[str, str]:
        """Look schemas up and make topics before the transaction begins, so that neither can make it old. Returns the tenants
        for which that cannot be done at once, each with the reason: nobody waits for them."""
        book.leave_out(self._behind)
        stuck: dict[str, str] = {}
        for batch in batches:
            began_s, pause_s = time.monotonic(), _POLL_S
            while True:
                try:
                    refused = self._outputs.create_for(batch, book)
                except ServiceUnavailable as error:
                    if time.monotonic() > began_s + _SCHEMA_RETRY_S:
                        raise
                    self._log.warning("schema_lookup_retried", reason=str(error))
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                    continue
                stuck |= {target.tenant: str(error) for target, error in refused}
                stuck |= {tenant: reason for tenant, reason in book.unready.items() if tenant not in self._behind}
                if not refused:
                    break
                book.leave_out(self._behind | stuck.keys())  # once more: the others' topics
        tell_refused_schemas(book, self._told_schemas, self._log)
        return stuck

    # --- tenants that fall behind, and that come back

    def _leave(self, step: "_Step", offset: int, reached: Reached) -> None:
        """Those that cannot go on fall behind from ``offset`` on."""
        for tenant, reason in step.stuck.items():
            if tenant not in step.left and (tenant not in self._behind or tenant in step.joining):
                step.left[tenant] = Left(offset, reason, reached, is_stuck=True)
        for tenant in step.lacking:
            if tenant in self._specs and tenant not in self._left_out(step):
                step.left[tenant] = Left(offset, LACKS, reached)
        self._book.leave_out(self._left_out(step))

    def _leave_over_limits(self, step: "_Step", offset: int, book: RouteBook) -> None:
        if self._shared.limits.is_empty:
            return
        for tenant in self._shared.limits.over():
            if tenant in self._specs and tenant not in self._left_out(step):
                step.left[tenant] = Left(offset, "is over its limits", step.reached or self._reached)
        book.leave_out(self._left_out(step))

    def _left_out(self, step: "_Step") -> frozenset[str]:
        return frozenset(self._behind - step.joining.keys() | step.left.keys())

    def _take_joining(self, step: "_Step", batches: Sequence[Changes]) -> None:
        """Tenants that may come back, once everything is there for their missed and later events."""
        for straggler, backlog in self._stragglers.take_joining():
            tenant = straggler.tenant
            missed = [(each.offset, read_record(each.payload, self._source)) for each in backlog]
            if tenant in step.lacking or any(batch.head.awaited for _, batch in missed):
                self._stragglers.stay(straggler, None)  # it finds out itself when that is routed
                continue
            self._book.leave_out(self._specs.keys() - {tenant})
            needed = (*(batch for _, batch in missed), *batches)
            try:
                refused = [each for batch in needed for each in self._outputs.create_for(batch, self._book)]
            except ServiceUnavailable as error:  # schema_history; it is asked again where nobody waits
                self._stragglers.stay(straggler, str(error))
                continue
            if refused or tenant in self._book.unready or tenant in step.stuck:
                reasons = (str(error) for _, error in refused)
                self._stragglers.stay(
                    straggler, next(reasons, None) or self._book.unready.get(tenant, straggler.reason)
                )
            else:
                step.joining[tenant] = straggler
                step.backlogs[tenant] = missed

    async def _write_backlogs(self, step: "_Step") -> None:
        for tenant, missed in step.backlogs.items():
            self._book.leave_out(self._specs.keys() - {tenant})
            for offset, batch in missed:
                await self._outputs.write(batch, offset, self._book)

    def _offset_after(self, done: Sequence[WaitingBatch], step: "_Step") -> int:
        """Write, after this transaction's records, the backlogs of returning tenants, then ``done``. Raises
        OffsetNotWritten."""
        written, before = self._outputs.take_written(), 0
        try:
            for tenant, missed in step.backlogs.items():
                own = written[before : before + len(missed)]
                # A tenant's missed events end before the first batch that it gets with the others.
                end = offset_after(step.joining[tenant].cursor, [offset for offset, _ in missed], own)
                offset_after(end, [each.offset for each in done[:1]], [each.offset for each in done[:1]])
                before += len(missed)
            return offset_after(self._next_offset, [each.offset for each in done], written[before:])
        except OffsetNotWritten as error:
            place = f"{self._place.topic}/{self._place.partition}"
            raise OffsetNotWritten(
                f"{place}: {error}; nothing of it was committed. Start the router again, and report this with its log"
            ) from error

    async def _commit(self, next_offset: int, step: "_Step") -> None:
        await self._writer.send_gathered()
        failpoint("router_after_produce_before_offsets")
        behind = self._behind - step.joining.keys() | step.left.keys()
        await self._writer.send_offset(next_offset, note=own_note(behind, self._topic_id))
        for tenant in step.joining.keys() - step.left.keys() | self._released:
            await self._writer.send_offset(next_offset, group=straggler_group(self._shared.group, tenant))
        for tenant, left in step.left.items():
            group = straggler_group(self._shared.group, tenant)
            await self._writer.send_offset(left.cursor, group=group, note=STRAGGLING)
        if step.left or step.joining:
            failpoint("router_after_leaving_before_commit")
        failpoint("router_after_offsets_before_commit")
        await self._writer.commit()
        if step.left:
            failpoint("router_after_leaving_committed")

    def _settle(self, step: "_Step", next_offset: int, done: Sequence[WaitingBatch]) -> None:
        """The transaction is committed: it is as it says."""
        before, self._next_offset = self._next_offset, next_offset
        self._released.clear()
        for tenant, straggler in step.joining.items():
            self._stragglers.joined(straggler)
            self._behind.discard(tenant)
        for tenant, left in step.left.items():
            self._behind.add(tenant)
            self._stragglers.add(self._specs[tenant], left.cursor, left.reason, left.reached, is_stuck=left.is_stuck)
        self._stragglers.advance(before, self._next_offset, done)
        self._reached = step.reached or self._reached
        self._book.leave_out(self._behind)

    def _note_refusals(self, batches: Sequence[Changes]) -> None:
        """By the events that the committed transaction set aside, or did not."""
        refusals = self._shared.refusals
        for table_id in (table_id for batch in batches for table_id in gone_tables(batch)):
            refusals.forget_table(self._source, table_id)
            if self._shared.claims.release(self._source, table_id):
                self._tenants = None  # so that the next book is made again: its topic may be another's now
        refusals.take_in(self._book)

    def _stay(self, step: "_Step", refused: Mapping[str, str]) -> None:
        """The transaction was aborted: nobody comes back by it."""
        for tenant, straggler in step.joining.items():
            self._stragglers.stay(straggler, refused.get(tenant))
        self._book.leave_out(self._behind)

    def _count(self, batches: Sequence[Changes], waiting: Sequence[WaitingBatch], took_s: float) -> None:
        source_partition = self._source_partition = self._partition_of(batches)
        metrics.ROUTER_TRANSACTION_SECONDS.labels(self._source, source_partition).observe(took_s)
        metrics.ROUTER_BATCHES.labels(self._source, source_partition).inc(len(batches))
        self._outputs.count(fetch_cpu_ns(waiting))

    def _partition_of(self, batches: Sequence[Changes]) -> str:
        """The source's, of the last batch that says it."""
        said = (batch.head.source_partition for batch in reversed(batches))
        return next(filter(None, said), self._source_partition)

    def _position(self, batches: Sequence[Changes]) -> LanePosition:
        return LanePosition(
            next_offset=self._next_offset,
            moved_at_s=time.monotonic(),
            source=self._source,
            source_partition=self._partition_of(batches),
            committed_at_us=self._reached.committed_at_us,
            order=self._reached.order,
            tenants=frozenset(self._specs),
        )


class Stretch(NamedTuple):
    """Batches one after the other, of which none but the first awaits others."""

    waiting: Sequence[WaitingBatch]
    batches: Sequence[Changes]


@dataclass(frozen=True, slots=True)
class Left:
    """A tenant that a transaction leaves behind."""

    cursor: int
    reason: str
    reached: Reached
    is_stuck: bool = False


@dataclass(slots=True)
class _Step:
    """The changes of one transaction to the set of stragglers."""

    stuck: dict[str, str]
    """Tenants that cannot go on, with the reason."""
    lacking: Collection[str] = ()
    """Tenants that still lack the first batch's awaited records."""
    left: dict[str, Left] = field(default_factory=dict)
    joining: dict[str, Straggler] = field(default_factory=dict)
    backlogs: dict[str, list[tuple[int, Changes]]] = field(default_factory=dict)
    """The missed batches of returning tenants, by offset."""
    reached: Reached | None = None
    """By its records written so far; None: there are none."""
