"""Routers in a simulated world: lanes, stragglers and awaited partitions, as they are, over a simulated Kafka.

A run: a source publishes batches to one or two partitions of a changes topic, some in transactions that it aborts, some that
await another partition. One or two routers route them for three tenants, one of which has a limit for a while. Meanwhile
routers are killed (at named failpoints too), frozen and thawed, requests get lost or take long, topics are refused. Then
everything is mended, and all that was committed must arrive.

``Ledger`` looks at each transaction that is decided: each tenant's rows come once and in order, and no offset is above the
rows that are written.
"""

import asyncio
import bisect
import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiokafka.producer.producer
from aiokafka.record.default_records import DefaultRecordBatch

import libs.kafka.topic_id
import services.router.kafka.awaited
import services.router.kafka.next_record
import services.router.kafka.straggler_offsets
import services.router.kafka.writer
import services.router.lane.lane
import services.router.lane.lanes
import services.router.lane.routes
import services.router.lane.worker
import services.router.routes.refusals
import services.router.stragglers.missed_batches
import services.router.stragglers.straggler_set
import services.router.stragglers.thread
import services.router.stragglers.turns
import services.router.transactions.inbox
import services.router.transactions.outputs
import services.router.transactions.rate_limits
import services.router.transactions.tenant_topics
from libs.config.connections import KafkaSettings
from libs.errors import HeadwaterError, PipelineHalted, ServiceUnavailable
from libs.events.batch import BatchBuilder, BatchIdentity, RowRun
from libs.events.dead_letter import decode_dead_letter
from libs.events.names import changes_topic, is_straggling, straggler_group
from libs.types.order import EventOrder
from libs.types.table import Column, TableId, TableSchema
from libs.types.tenant import SourceSelection, TenantLimits, TenantSpec
from libs.types.value import LogicalKind, LogicalType
from services.router.lane.lanes import ChangesPartition, Lanes
from services.router.routes.topic_claims import TopicClaims
from services.router.settings import LaneSettings, TenantLimitSettings
from services.router.transactions.outputs import LaneDependencies, WaitingBatch
from services.router.transactions.rate_limits import RateLimits
from tests.simulation import clients, scheduler
from tests.simulation.kafka import Committed, Kafka, Place, Stored
from tests.simulation.log import LOG
from tests.simulation.scheduler import Process, Scheduler, Threading
from tests.simulation.violation import Violation

SOURCE: Final = "s"
GROUP: Final = "router"
TENANTS: Final = ("acme", "globex", "slow")
CHANGES: Final = changes_topic(SOURCE)
_ORDERS: Final = TableId(database="shop", table="orders")
PROFILES: Final = ("any", "take-over", "slow", "passes")
"""The kind of event that a run has more of, by its seed."""
_SESSION_S: Final = 7.0
_TIMEOUT_S: Final = 60.0
"""Kafka aborts a transaction after so long: sooner than by default, so that runs have it."""
_STUCK_S: Final = 45.0
"""Three quarters of it, as the watchdog of transactions has it."""
_ABORTED: Final = 1_000_000
"""Ids from here on stand in transactions that the source aborts."""
_PATIENCE_S: Final = 400.0
"""By the simulation's clock: so long after everything is mended all rows must have come."""


def _schema() -> TableSchema:
    column = Column(name="id", source_type="int", logical_type=LogicalType(kind=LogicalKind.INT32))
    return TableSchema(table_id=_ORDERS, columns=(column,), key=("id",), version=1)


_SCHEMA: Final = _schema()


@functools.lru_cache(maxsize=4096)
def _payload(first: int, count: int, awaited: tuple[tuple[int, int], ...] = ()) -> bytes:
    batch = BatchBuilder(
        BatchIdentity(source=SOURCE, source_partition="0", connector="mysql", run_id="r", fencing_token=1)
    )
    if awaited:
        batch.await_others(dict(awaited))
    run = RowRun(
        table_id=_ORDERS,
        schema_version=1,
        transaction_id=f"gtid:{first}",
        first_order=EventOrder(epoch=1, rank=first + 1, tx_ordinal=1),
        committed_at_us=1_000_000,
        is_snapshot=False,
    )
    for number in range(first, first + count):
        key = b'{"id":%d}' % number
        run.rows.append(ord("c"), key, b'{"before":null,"after":{"id":%d},"source":{},"op":"c"}' % number)
    batch.open_run(run)
    return batch.take(2_000_000)[0]


@dataclass(slots=True)
class Published:
    """The rows that the source committed to one partition."""

    ids: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    """Of each row's batch."""

    def below(self, offset: int) -> int:
        """How many rows stand below an offset."""
        return bisect.bisect_left(self.offsets, offset)


class Ledger:
    """The rows that each tenant got, compared with the published ones at each commit."""

    def __init__(self, partitions: int, *, in_one_order: bool) -> None:
        self.published = [Published() for _ in range(partitions)]
        self.got = {tenant: [0] * partitions for tenant in TENANTS}
        """Rows of each partition."""
        self._partition_of: dict[int, tuple[int, int]] = {}
        """Of an id: its partition and place there."""
        self._in_one_order = in_one_order
        self._last = dict.fromkeys(TENANTS, -1)
        self._reached: dict[tuple[str, str, int], int] = {}
        """Offsets of the tenants' topics, by the partition whose rows stand there."""
        self._main: dict[int, int] = {}
        self._behind: dict[tuple[str, int], int] = {}

    def publish(self, partition: int, offset: int, ids: Sequence[int]) -> None:
        """The source committed these rows."""
        published = self.published[partition]
        for number in ids:
            self._partition_of[number] = (partition, len(published.ids))
            published.ids.append(number)
            published.offsets.append(offset)

    def commit(self, committed: Committed) -> None:
        """A transaction of the router's became visible. Raises Violation."""
        got: dict[tuple[str, int], list[int]] = {}
        for place, stored in committed.batches:
            tenant, _, rest = place.topic.partition(".")
            if rest in ("s.shop.orders", "dead-letter"):  # what is set aside stands there instead, and once
                self._read(tenant, rest, stored, got)
        for (tenant, partition), places in got.items():
            self._take(tenant, partition, sorted(places))
        for (group, place), (offset, note) in committed.offsets.items():
            self._move(group, place.number, offset, note)
        for (_, place), _ in committed.offsets.items():
            self._compare(place.number)

    def _read(self, tenant: str, topic: str, stored: Stored, got: dict[tuple[str, int], list[int]]) -> None:
        """Note which rows a batch holds; those of one partition in their order."""
        before = -1
        for record in DefaultRecordBatch(bytes(stored.payload)):
            if topic == "dead-letter":
                order = decode_dead_letter(record.value).order
                number = order.rank + order.tx_ordinal - 2  # as ``_payload`` has it
            else:
                number = int(record.key[6:-1])  # {"id":7}
            if number not in self._partition_of:
                raise Violation(f"{tenant} got row {number}, which the source aborted")
            partition, place = self._partition_of[number]
            if stored.offset < self._reached.get((tenant, topic, partition), 0):
                raise Violation(f"a transaction of {tenant} is decided before one that stands before it in its topic")
            self._reached[tenant, topic, partition] = stored.offset
            if place <= before:
                raise Violation(f"{tenant} got row {number} after the row of place {before} of partition {partition}")
            before = place
            got.setdefault((tenant, partition), []).append(place)

    def _take(self, tenant: str, partition: int, places: Sequence[int]) -> None:
        """A transaction's rows for one tenant, which go on where the last one's ended."""
        ids = self.published[partition].ids
        for place in places:
            expected = self.got[tenant][partition]
            if place < expected:
                raise Violation(f"{tenant} got row {ids[place]} of partition {partition} again")
            if place > expected:
                raise Violation(f"{tenant} got row {ids[place]} of partition {partition} before row {ids[expected]}")
            self.got[tenant][partition] = expected + 1
            if self._in_one_order and ids[place] < self._last[tenant]:
                raise Violation(f"{tenant} got row {ids[place]} after row {self._last[tenant]}")
            self._last[tenant] = max(self._last[tenant], ids[place])

    def _move(self, group: str, partition: int, offset: int, note: str) -> None:
        if group == GROUP:
            if offset < self._main.get(partition, 0):
                raise Violation(f"the offset of partition {partition} went back to {offset}")
            self._main[partition] = offset
            return
        tenant = group.removeprefix(straggler_group(GROUP, ""))
        if is_straggling(note):
            self._behind[tenant, partition] = offset
        else:
            self._behind.pop((tenant, partition), None)

    def _compare(self, partition: int) -> None:
        for tenant in TENANTS:
            offset = self._behind.get((tenant, partition), self._main.get(partition, 0))
            expected, got = self.published[partition].below(offset), self.got[tenant][partition]
            if got < expected:
                lost = self.published[partition].ids[got]
                raise Violation(
                    f"the offset {offset} of partition {partition} is committed, and row {lost} is not in the topic of {tenant}"
                )
            if got > expected:
                raise Violation(f"{tenant} got rows of partition {partition} that stand at offset {offset} and above")

    @property
    def lacks(self) -> str | None:
        """A row that is missing, in words; None: none is."""
        for tenant, got in self.got.items():
            for partition, count in enumerate(got):
                published = self.published[partition]
                if count < len(published.ids):
                    return f"row {published.ids[count]} of partition {partition} is missing at {tenant}"
        return None


class Group:
    """The consumer group: its members, and the partitions of each."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.generation = 0
        self._seen_s: dict[Process, float] = {}
        self._assigned: dict[Process, list[ChangesPartition]] = {}

    def beat(self, member: Process) -> int:
        """A member is there; returns the generation."""
        is_new = member not in self._seen_s
        self._seen_s[member] = self._world.scheduler.now_s
        if is_new:
            self.deal()
        self._expire()
        return self.generation

    def leave(self, member: Process) -> None:
        """A member ends."""
        if self._seen_s.pop(member, None) is not None:
            self.deal()

    def assigned(self, member: Process) -> list[ChangesPartition]:
        """A member's partitions in this generation."""
        return self._assigned.get(member, [])

    def _expire(self) -> None:
        now_s = self._world.scheduler.now_s
        silent = [member for member, seen_s in self._seen_s.items() if now_s - seen_s > _SESSION_S]
        for member in silent:
            del self._seen_s[member]
        if silent:
            self.deal()

    def deal(self) -> None:
        """Give partitions to members, to others than before: a rebalance."""
        self.generation += 1
        members = list(self._seen_s)
        self._assigned = {member: [] for member in members}
        for number in range(self._world.partitions):
            if members:
                turn = (number + self.generation) % len(members)
                self._assigned[members[turn]].append(ChangesPartition(CHANGES, number))


class Router:
    """One router process after another of one name, as its supervisor starts them."""

    def __init__(self, world: "World", name: str) -> None:
        self._world = world
        self.name = name
        self.process: Process
        self.starts = 0

    def start(self) -> None:
        """A new process."""
        self.starts += 1
        self.process = Process(f"{self.name}#{self.starts}")
        process = self.process
        self._world.scheduler.spawn(process, "main", lambda: self._run(process))

    def _run(self, process: Process) -> None:
        world = self._world
        try:
            asyncio.run(self._serve(process))
        except HeadwaterError as error:
            world.scheduler.note(f"{self.name} ends: {error!r}")
            if isinstance(error, PipelineHalted):
                raise Violation(f"{self.name} halts: {error}") from error
        world.group.leave(process)
        world.scheduler.kill(process)  # tasks that it left running end with it

    async def _serve(self, process: Process) -> None:
        world = self._world
        loop = asyncio.get_running_loop()
        failure: asyncio.Future[None] = loop.create_future()

        def fail(error: HeadwaterError) -> None:
            def tell() -> None:
                if not failure.done():
                    failure.set_exception(error)

            loop.call_soon_threadsafe(tell)

        shared = LaneDependencies(
            kafka=KafkaSettings(),
            group=GROUP,
            settings=LaneSettings(compression="none", transaction_timeout_s=_TIMEOUT_S),
            tenants=lambda: world.tenants,
            fetch_schema=lambda _source: world.fetch_schema,
            claims=TopicClaims(),
            limits=RateLimits(TenantLimitSettings(), clock=lambda: world.scheduler.now_s),
            on_failure=fail,
        )
        lanes = Lanes({CHANGES: SOURCE}, shared)
        while True:
            generation = world.group.beat(process)
            mine = world.group.assigned(process)
            await lanes.open(mine, generation)
            heart = asyncio.ensure_future(self._beat(process, generation, lanes))
            tasks = [heart]
            try:
                opened = asyncio.ensure_future(lanes.opened())
                await asyncio.wait([heart, opened, failure], return_when=asyncio.FIRST_COMPLETED)
                _raise_ended(failure)
                if opened.done():
                    opened.result()
                    tasks += [asyncio.ensure_future(self._feed(lanes, each, generation)) for each in mine]
                else:
                    opened.cancel()
                await asyncio.wait([*tasks, failure], return_when=asyncio.FIRST_COMPLETED)
                _raise_ended(failure)
                for task in tasks:
                    if task.done():
                        task.result()
            finally:
                heart.cancel()
                lingers_s = world.scheduler.random.choice(world.lingers_s)
                for task in tasks[1:]:  # batches that Faust has fetched still come, perhaps when there are new lanes
                    loop.call_later(lingers_s, task.cancel)
                beating = asyncio.ensure_future(self._keep_alive(process))
                await lanes.close()
                beating.cancel()

    async def _beat(self, process: Process, generation: int, lanes: Lanes) -> None:
        """Until there is another generation. Ends the process as the watchdog of transactions does."""
        world = self._world
        while world.group.beat(process) == generation:
            now_s = world.scheduler.now_s
            if any(now_s - began_s > _STUCK_S for lane in lanes.all() for began_s, _ in lane.transactions):
                world.scheduler.note("a transaction is stuck")
                world.group.leave(process)
                world.scheduler.kill(process)
            await asyncio.sleep(0.5)

    async def _keep_alive(self, process: Process) -> None:
        while True:
            self._world.group.beat(process)
            await asyncio.sleep(0.5)

    async def _feed(self, lanes: Lanes, partition: ChangesPartition, generation: int) -> None:
        """Fetch from the committed offset on, as Faust does."""
        world = self._world
        place = Place(CHANGES, partition.kafka_partition)
        await asyncio.sleep(world.wire.delay_s())
        committed = world.kafka.committed_offset(GROUP, place)
        offset = 0 if committed is None else committed[0]
        while True:
            world.kafka.tick()
            for stored in list(world.kafka.logs[place].committed_from(offset)):
                await lanes.wait_for_room(partition, len(stored.payload))
                await lanes.offer(partition, generation, WaitingBatch(stored.offset, stored.payload))
                offset = stored.offset + 1
            await asyncio.sleep(world.scheduler.random.uniform(0.005, 0.1))


def _raise_ended(failure: "asyncio.Future[None]") -> None:
    if failure.done():
        failure.result()


class World:
    """One run."""

    def __init__(self, seed: int, *, traces: bool = False) -> None:
        self.scheduler = Scheduler(seed, traces=traces)
        random = self.random = self.scheduler.random
        self.kafka = Kafka(self.scheduler)
        self.wire = clients.Wire(self.scheduler, self.kafka)
        self.scheduler.wire = self.wire  # type: ignore[attr-defined]
        self._profile = PROFILES[seed % len(PROFILES)]
        self.partitions = 2 if self._profile == "passes" else random.choice((1, 1, 2))
        self.passes = self._profile == "passes" or (self.partitions > 1 and random.random() < 0.5)
        """Rows pass from one partition to another, and each first batch there awaits the other."""
        self.ledger = Ledger(self.partitions, in_one_order=self.passes)
        self.kafka.on_commit = self._committed
        self.kafka.create_topic(CHANGES, self.partitions)
        self.wire.refused = set()  # type: ignore[attr-defined]
        self.group = Group(self)
        count = 2 if self._profile == "take-over" else random.choice((1, 1, 2))
        self.routers = [Router(self, f"router-{number}") for number in range(count)]
        self.is_mended = False
        self._has_schemas = True
        self.lingers_s = (0.5, 3.0) if self._profile == "take-over" else (0.0, 0.0, 0.5, 3.0)
        """How long after a rebalance batches come that were fetched before it."""
        self._failpoints = random.choice((0.0, 0.0, 0.05, 0.3))
        self._slow_rate = random.choice((0.5, 5.0) if self._profile == "slow" else (None, 0.5, 5.0, 20.0))
        self.tenants: tuple[TenantSpec, ...] = self._documents()
        self._next_id = 0

    @property
    def steps(self) -> int:
        """See ``tests.simulation.run.World``."""
        return self.scheduler.steps

    @property
    def trace(self) -> Sequence[str]:
        """See ``tests.simulation.run.World``."""
        return self.scheduler.trace

    # --- requests of the routers

    def fetch_schema(self, _table_id: TableId, _version: int) -> TableSchema:
        """schema_history."""
        self.scheduler.sleep(self.wire.delay_s())
        if not self._has_schemas or self.wire.happens(self.wire.faults.unavailable):
            raise ServiceUnavailable("schema_history does not answer")
        return _SCHEMA

    def failpoint(self, name: str) -> None:
        """A named gap of the product's: perhaps the process dies in it."""
        self.scheduler.step()
        if not self.is_mended and self.scheduler.random.random() < self._failpoints:
            self.scheduler.note(f"failpoint {name}")
            process = self.scheduler.current.process
            self.scheduler.kill(process)
            raise scheduler.Killed

    def _documents(self) -> tuple[TenantSpec, ...]:
        limits = {"slow": TenantLimits(events_per_s=self._slow_rate)}
        return tuple(
            TenantSpec(
                tenant=name, sources=(SourceSelection(name=SOURCE),), limits=limits.get(name, TenantLimits()), sink=None
            )
            for name in TENANTS
        )

    def _committed(self, committed: Committed) -> None:
        if committed.transactional_id.startswith(GROUP):
            try:
                self.ledger.commit(committed)
            except Exception as error:
                self.scheduler.fail(error)

    # --- events of a run

    def run(self) -> None:
        """Raises Violation, and any other error."""
        with simulated(self):
            self.scheduler.run(self._main)

    def _main(self) -> None:
        random, sched = self.random, self.scheduler
        self._break()
        for router in self.routers:
            router.start()
        current = 0
        for _ in range(random.randrange(4, 30 if self._profile == "take-over" else 16)):
            sched.sleep(random.choice((0.01, 0.1, 0.3) if self._profile == "take-over" else (0.0, 0.01, 0.3, 2.0)))
            if self.passes and random.random() < 0.4:
                current = 1 - current
                self._publish(current, awaits=1 - current)
            elif self.passes:
                self._publish(current)
            else:
                self._publish(random.randrange(self.partitions))
            if self._profile != "take-over" or random.random() < 0.3:
                self._disturb()
            elif random.random() < 0.5:
                self.group.deal()
            self._revive()
        sched.sleep(random.choice((0.0, 1.0, 10.0)))
        self._mend()
        self._wait()

    def _publish(self, partition: int, *, awaits: int | None = None) -> None:
        """One transaction of the source's, of some batches."""
        place, log = Place(CHANGES, partition), self.kafka.logs[Place(CHANGES, partition)]
        for _ in range(self.random.choice((1, 1, 3) if self._profile == "take-over" else (1, 1, 3, 8))):
            if self.random.random() < 0.15:
                log.append(_payload(_ABORTED, 1), 1, producer_id=-1)
                log.mark(-1, commits=False)
            count = self.random.choice((1, 2, 5))
            awaited = () if awaits is None else ((awaits, self.kafka.logs[Place(CHANGES, awaits)].end),)
            stored = log.append(_payload(self._next_id, count, awaited), 1, producer_id=-1)
            self.ledger.publish(partition, stored.offset, range(self._next_id, self._next_id + count))
            self._next_id += count
            log.mark(-1, commits=True)
            awaits = None
        self.scheduler.note(f"published up to row {self._next_id - 1} in {place}")

    def _break(self) -> None:
        random, faults = self.random, self.wire.faults
        if random.random() < 0.7:
            faults.slow = random.choice((0.0, 0.02, 0.1))
            faults.longest_s = random.choice((2.0, 4.0))
            faults.lost = random.choice((0.0, 0.01, 0.05))
            faults.unanswered = random.choice((0.0, 0.01, 0.05))
            faults.moved = random.choice((0.0, 0.02, 0.1))
            faults.unavailable = random.choice((0.0, 0.0, 0.05))
        if self._profile == "slow":
            faults.slow, faults.longest_s = random.choice((0.2, 0.3)), 6.0
        elif self._profile == "take-over":
            faults.slow, faults.longest_s = random.choice((0.1, 0.3)), 1.0
        longest_s = random.choice((0.05, 1.0, 2.0) if self._profile == "take-over" else (0.0, 0.0, 0.05, 1.0))
        self.kafka.marker_delay_s = lambda: random.random() * longest_s
        self.kafka.group_delay_s = lambda: random.random() * min(longest_s, 0.2)

    def _disturb(self) -> None:
        random, sched = self.random, self.scheduler
        router = random.choice(self.routers)
        match random.randrange(14):
            case 0:
                sched.kill(router.process)
                if random.random() < 0.5:
                    self.group.leave(router.process)  # else the group finds out by its session
            case 1 if not router.process.is_dead and not router.process.is_frozen:
                sched.freeze(router.process)
                frozen = router.process
                pause_s = random.choice((0.5, 5.0, 12.0, 70.0))
                sched.spawn(Process("operator"), f"thaws {frozen.name}", lambda: self._thaw(frozen, pause_s))
            case 2:
                self._slow_rate = random.choice((None, 0.5, 5.0, 100.0))
                self.tenants = self._documents()
                sched.note(f"slow may have {self._slow_rate} events/s")
            case 3:
                topic = f"{random.choice(TENANTS)}.s.shop.orders"
                self.wire.refused = {topic}  # type: ignore[attr-defined]
            case 4:
                topic = f"{random.choice(TENANTS)}.s.shop.orders"
                self.kafka.unauthorized = {topic}
                sched.note(f"{topic} may not be written")
            case 8:
                self.kafka.too_small = {f"{random.choice(TENANTS)}.s.shop.orders"}
                sched.note(f"{self.kafka.too_small} take no batch")
            case 5:
                self.kafka.unauthorized, self.kafka.too_small = set(), set()
                self.wire.refused = set()  # type: ignore[attr-defined]
            case 6:
                self._has_schemas = not self._has_schemas
            case 7 if len(self.routers) > 1:
                self.group.deal()
            case _:
                pass

    def _thaw(self, process: Process, pause_s: float) -> None:
        self.scheduler.sleep(pause_s)
        if not process.is_dead and process.is_frozen:
            self.scheduler.thaw(process)

    def _revive(self) -> None:
        """As a supervisor does."""
        for router in self.routers:
            if router.process.is_dead and self.random.random() < 0.6:
                router.start()

    def _mend(self) -> None:
        self.scheduler.note("everything is mended")
        self.is_mended = True
        self.wire.faults = clients.Faults()
        self.kafka.marker_delay_s = self.kafka.group_delay_s = lambda: 0.0
        self.kafka.unauthorized, self.kafka.too_small = set(), set()
        self._has_schemas, self._slow_rate = True, None
        self.wire.refused = set()  # type: ignore[attr-defined]
        self.tenants = self._documents()
        for router in self.routers:
            if router.process.is_frozen:
                self.scheduler.thaw(router.process)

    def _wait(self) -> None:
        deadline_s = self.scheduler.now_s + _PATIENCE_S
        while self.ledger.lacks is not None:
            for router in self.routers:
                if router.process.is_dead:
                    router.start()
            if self.scheduler.now_s > deadline_s:
                raise Violation(f"{_PATIENCE_S:.0f} s after everything was mended {self.ledger.lacks}")
            self.scheduler.sleep(0.5)


@contextlib.contextmanager
def simulated(world: World) -> Iterator[None]:
    """The machine below the router is the simulation's."""
    router = services.router
    with (
        scheduler.simulated_clock(),
        scheduler.replaced(
            (router.lane.lane, "threading", Threading),
            (router.stragglers.thread, "threading", Threading),
            (router.transactions.inbox, "threading", Threading),
            (router.stragglers.missed_batches, "threading", Threading),
            (router.stragglers.straggler_set, "threading", Threading),
            (router.stragglers.turns, "ThreadPoolExecutor", scheduler.Executor),
            (router.lane.lane, "Consumer", clients.Consumer),
            (router.stragglers.missed_batches, "Consumer", clients.Consumer),
            (router.kafka.next_record, "Consumer", clients.Consumer),
            (router.kafka.straggler_offsets, "AdminClient", clients.AdminClient),
            (libs.kafka.topic_id, "AdminClient", clients.AdminClient),
            (router.transactions.tenant_topics, "create_topics", clients.create_topics),
            (router.kafka.writer, "AIOKafkaProducer", clients.Producer),
            (aiokafka.producer.producer, "AIOKafkaClient", clients.Client),
            (router.lane.worker, "failpoint", world.failpoint),
            (router.stragglers.turns, "failpoint", world.failpoint),
            (router.lane.lane, "log", LOG),
            (router.lane.lanes, "log", LOG),
            (router.transactions.rate_limits, "log", LOG),
            (router.routes.refusals, "log", LOG),
        ),
    ):
        yield
