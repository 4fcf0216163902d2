"""A lane: one partition of a changes topic, routed exactly once by a thread with an event loop and a transactional producer of
its own.

Faust's agent hands batches over (``offer``); the thread takes waiting ones and, in one Kafka transaction, writes the records
for all tenants and the consumer offset after them. So a record and the offset that says it was written become visible
together or not at all, and a router killed anywhere resumes without a gap or a repeat.

A tenant that cannot keep up does not hold the others back: it lags and is carried on by ``stragglers`` until it can
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
import functools
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import structlog
from aiokafka import TopicPartition
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as OffsetOf

from libs.errors import BrokerUnavailable, Fenced, HeadwaterError, PipelineHalted
from libs.kafka.clients import client_config
from libs.kafka.topic_id import topic_id
from libs.telemetry.faults import (
    CHANGES_RECORD_SET_ASIDE,
    CHANGES_TOPIC_REPLACED,
    lift_fault,
    raise_again,
    raise_fault,
)
from libs.types.fault import FaultScope
from services.router.kafka.awaited import PassedPartitions, awaited_ends
from services.router.kafka.straggler_offsets import committed_offsets, find_stragglers, is_anyone_behind, noted_topic_id
from services.router.kafka.writer import TransactionWriter
from services.router.lane.worker import LaneWorker, Stretch
from services.router.routes.refusals import RecordsFate
from services.router.stragglers.thread import Stragglers
from services.router.transactions.inbox import Inbox, call_in
from services.router.transactions.lane_state import LanePosition, LaneState, TenantPosition
from services.router.transactions.outputs import LaneDependencies, WaitingBatch

log = structlog.get_logger()

_OFFSET_TIMEOUT_S: Final = 30.0  # below the time that a lane may take to open
_POLL_S: Final = 0.2
"""How long a lane waits before it asks again how far others are."""
_LONGEST_PAUSE_S: Final = 5.0
_MAX_TRANSACTION_BATCHES: Final = 32
_LONGEST_AWAITING_PAUSE_S: Final = 2.0
"""Between two looks at how far others are."""


class Assignment(NamedTuple):
    """One partition of a changes topic, as Kafka gave it to this process."""

    source: str
    topic: str
    kafka_partition: int
    generation: int
    """Of the consumer group: batches fetched under another one are not this lane's."""

    @property
    def place(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.kafka_partition)


class Lane:
    """One assigned partition's thread, from its opening to its end. ``Inbox`` holds its batches, ``LaneWorker`` routes them.

    ``offer`` and ``close`` belong to the event loop, the rest to the thread."""

    def __init__(self, assignment: Assignment, shared: LaneDependencies) -> None:
        self.assignment = assignment
        self.state = LaneState()
        """May be read from any thread."""
        self._shared = shared
        self._rows: dict[str, int] = {}
        self._inbox = Inbox(shared.settings)
        self._worker: LaneWorker | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        source, topic, kafka_partition, _ = assignment
        self._log = log.bind(source=source, topic=topic, kafka_partition=kafka_partition)
        self._stragglers = Stragglers(source, assignment.place, shared, self._rows, self._log, self._fail)
        self._thread = threading.Thread(target=self._run, name=f"lane-{topic}-{kafka_partition}", daemon=True)
        self._thread.start()

    # --- from any thread

    @property
    def rows(self) -> Mapping[str, int]:
        """Row events committed since the lane opened, by tenant; a tenant without any may be missing."""
        return dict(self._rows)

    @property
    def behind(self) -> Mapping[str, TenantPosition]:
        """The tenants that lag the others."""
        return {each.tenant: each.position for each in self._stragglers.tenants.all()}

    @property
    def refused_topics(self) -> Mapping[str, str]:
        """Tenants' topics that Kafka would not create, or whose schemas the registry refused, with the reason. Their events
        are set aside. Lifted refusals are left out, even before the next row."""
        refused = dict(self.state.refused_topics)
        for each in self._stragglers.tenants.all():
            refused |= each.routes.refused_topics
        if not refused:
            return refused
        standing = self._shared.refusals.topics_of(self.assignment.source, self._shared.tenants())
        return {topic: reason for topic, reason in refused.items() if topic in standing}

    @property
    def records_fate(self) -> RecordsFate | None:
        """Whose records cannot be written; None: the lane is not open, or another router has the partition."""
        position = self.state.position
        if position is None or self.state.is_fenced:
            return None
        behind = self.behind
        return RecordsFate(
            self.assignment.source,
            self.assignment.kafka_partition,
            refused={tenant: own.refusal for tenant, own in behind.items() if own.refusal is not None},
            untried={
                tenant for tenant, own in behind.items() if not own.is_tried and own.next_offset < position.next_offset
            },
        )

    def may_write_apart_for(self, tenant: str, gone_since_s: float) -> bool:
        """``StragglerSet.may_write_for``."""
        return self._stragglers.tenants.may_write_for(tenant, gone_since_s)

    @property
    def transactions(self) -> Sequence[tuple[float, float]]:
        """``time.monotonic()`` of the begin and of the last step of each transaction that runs: a step is its begin, or a batch
        that Kafka took."""
        moved_s = 0.0 if self._worker is None else self._worker.moved_s
        # A straggler's writes to few topics: its begin counts.
        steps = ((self.state.transaction_began_s, moved_s), (self._stragglers.transaction_began_s, 0.0))
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
            topic, kafka_partition = self.assignment.place
            raise BrokerUnavailable(f"the lane of {topic}/{kafka_partition} did not open in time") from error

    async def wait_for_room(self, payload_bytes: int) -> None:
        """Return when a batch of this size has room; at once when the lane is closing or fenced."""
        await self._inbox.wait_for_room(payload_bytes)

    async def offer(self, batch: WaitingBatch) -> None:
        """Hand a batch over; waits while the lane holds its fill. A closing or fenced lane drops it: another owner, or
        this one after the next assignment, reads it again."""
        await self._inbox.put(batch)

    async def close(self) -> None:
        """Let the running transaction end, then stop and drop waiting batches. After ``close_timeout_s`` the thread is left
        alone: its writes are refused once the next owner has fenced it."""
        self._inbox.close()
        await asyncio.to_thread(self._thread.join, self._shared.settings.close_timeout_s)
        if self._thread.is_alive():
            self._log.warning("lane_abandoned", reason="its transaction did not end in time")
        if self._opened.done() and not self._opened.cancelled():
            self._opened.exception()  # retrieved: on_failure has it

    def let_go(self, tenant: str) -> None:
        """Nothing is routed to ``tenant`` any more: its topics may be deleted. Called from any thread."""
        if self._worker is not None:
            self._inbox.call_in_lane(functools.partial(self._worker.forget_topics, f"{tenant}."))
        self._stragglers.forget_topics(f"{tenant}.")
        self._inbox.wake_lane()

    # --- the thread's side

    def _run(self) -> None:
        try:
            asyncio.run(self._follow())
        except Fenced as error:
            self.state.is_fenced = True
            self._inbox.drop_all()
            self._log.warning("lane_fenced", reason=str(error))
            self._note_opened(error)
        except HeadwaterError as error:
            self._fail(error)
        except Exception as error:
            self._log.exception("lane_failed")
            topic, kafka_partition = self.assignment.place
            self._fail(
                PipelineHalted(
                    f"the router failed on {topic}/{kafka_partition} with {type(error).__name__}; see the log"
                )
            )
        finally:
            self._inbox.wake_agent()

    async def _follow(self) -> None:
        """Open, then route waiting batches until the lane is to close."""
        self._inbox.open()
        source, topic, _, generation = self.assignment
        place = self.assignment.place
        shared, state = self._shared, self.state
        writer = await TransactionWriter.open(shared.kafka, shared.group, place, shared.settings)
        try:
            next_offset = _committed_offset(place, shared)
            own_id = topic_id(shared.kafka, topic)
            noted = noted_topic_id(committed_offsets(shared.kafka, [shared.group], place)[shared.group].note)
            if noted and own_id and noted != own_id:
                state.position = LanePosition(next_offset, time.monotonic(), source=source)
                await self._park(noted, own_id)
                return
            lift_fault(CHANGES_TOPIC_REPLACED, FaultScope(source=source))
            raise_again(CHANGES_RECORD_SET_ASIDE, lambda scope: scope.source == source)
            looked_s = time.monotonic()
            stragglers = self._stragglers
            found: Mapping[str, int] = {}
            if is_anyone_behind(shared.kafka, shared.group, place):
                stragglers.open()  # nobody else moves cursors from now on
                found = find_stragglers(shared.kafka, shared.group, place)
            worker = LaneWorker(
                source, place, next_offset, own_id, writer, shared, self._rows, stragglers, found, self._log
            )
            self._worker = worker
            state.position = LanePosition(next_offset, time.monotonic(), source=source)
            self._note_opened(None)
            self._log.info("lane_opened", next_offset=next_offset, generation=generation)
            passed = PassedPartitions(shared.kafka, shared.group)
            # A tenant that is gone at a waking may come back before a row does.
            while waiting := await self._inbox.take(_MAX_TRANSACTION_BATCHES, worker.take_in_tenants):
                if own_id and time.monotonic() - looked_s >= shared.settings.topic_look_s:
                    looked_s = time.monotonic()
                    if (found_id := await asyncio.to_thread(topic_id, shared.kafka, topic)) != own_id:
                        await self._park(own_id, found_id)
                        return
                for stretch in worker.stretches(waiting):
                    if (lacking := await self._await_others(stretch, passed)) is None:
                        break
                    state.routing_since_s = time.monotonic()
                    state.position = await worker.route(stretch, lacking, self._transaction_began)
                    state.refused_topics = worker.refused_topics
                    state.unreadable = worker.unreadable
                    state.routing_since_s = None
        finally:
            await asyncio.to_thread(self._stragglers.close)
            await writer.close()

    async def _park(self, noted: str, found: str) -> None:
        """Route nothing, and let all that comes go by, until the lane shall close: other lanes do not wait for this one."""
        group, (source, topic, _, _) = self._shared.group, self.assignment
        self.state.parked = (
            f"{topic} was deleted and made again: its id is {found}, and the offset of group {group} is of {noted}; "
            "batches that only the old one had are lost"
        )
        servers = self._shared.kafka.bootstrap_servers
        remedy = (
            f"stop the routers, set the offset (kafka-consumer-groups.sh --bootstrap-server {servers} --group {group} "
            f"--topic {topic} --reset-offsets --to-earliest --execute), start them, then resync the tables of the "
            "source"
        )
        raise_fault(CHANGES_TOPIC_REPLACED, FaultScope(source=source), happened=self.state.parked, remedy=remedy)
        self._inbox.drop_all()
        self._note_opened(None)
        while not self._inbox.is_closing:
            await self._inbox.rest(_LONGEST_PAUSE_S)

    async def _await_others(self, stretch: Stretch, passed: PassedPartitions) -> Collection[str] | None:
        """Return when the awaited records are routed, with the tenants that lack them; None: the lane is to close."""
        ends = awaited_ends(stretch.batches[0], self.assignment.topic)
        if not ends:
            return ()
        self.state.awaits = ", ".join(f"partition {place.partition} up to {end}" for place, end in sorted(ends.items()))
        self._log.info("lane_awaits_partitions", offset=stretch.waiting[0].offset, awaits=self.state.awaits)
        began_s, pause_s = time.monotonic(), _POLL_S
        try:
            while not self._inbox.is_closing:
                try:
                    if passed.is_passed(ends):
                        lacking = passed.behind(ends)
                        self._log.info(
                            "lane_goes_on", awaited_s=round(time.monotonic() - began_s, 1), lacking=len(lacking)
                        )
                        return lacking
                except BrokerUnavailable as error:
                    self._log.warning("awaited_partitions_unknown", reason=str(error))
                await self._inbox.rest(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_AWAITING_PAUSE_S)
        finally:
            self.state.awaits = None
        return None

    def _transaction_began(self, began_s: float | None) -> None:
        self.state.transaction_began_s = began_s

    def _fail(self, error: HeadwaterError) -> None:
        if self._inbox.is_closing:
            self._log.warning("lane_closed_amid_a_failure", reason=str(error))
        else:
            self._shared.on_failure(error)
        self._note_opened(error)

    def _note_opened(self, error: HeadwaterError | None) -> None:
        def note() -> None:
            if not self._opened.done():
                if error is None:
                    self._opened.set_result(None)
                else:
                    self._opened.set_exception(error)

        call_in(self._opened.get_loop(), note)


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
