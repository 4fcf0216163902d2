"""Readers of one source partition in a simulated world: the loop that owns it, fences, resumes and publishes.

``libs.source.follow`` and its publisher are the product's, and so are checkpoint_committer's decisions (``leases``, ``judge``,
``Partitions``). Its log, its calls and the source are played here. A run has two or three readers, of which each begins again
when it ends; they are killed, frozen beyond their lease and thawed, the committer begins again and its answers get lost.

At each commit: every change of the source once and in order, the checkpoint beside it says where it ends, no two owners have
one token, and the position in force never goes back.
"""

import asyncio
import contextlib
import itertools
import queue
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

import libs.kafka.topic_id
import libs.source.follow
import libs.source.publish_queue
import libs.source.publisher
import libs.source.transactional_producer
import services.checkpoint_committer.partitions
from libs.config.connections import KafkaSettings
from libs.errors import Fenced, HeadwaterError, PipelineHalted, ServiceUnavailable
from libs.events.batch import BatchIdentity
from libs.events.checkpoint_codec import decode_checkpoint
from libs.events.names import CHECKPOINTS_TOPIC, changes_topic
from libs.kafka.tail import LogRecord
from libs.source.port import ReadBatch, ResumePoint
from libs.types.checkpoint import Checkpoint, FencingToken
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from services.checkpoint_committer.leases import Granted, LeaseRequest, decide_grant, given_up
from services.checkpoint_committer.log import encode
from services.checkpoint_committer.partitions import Partitions
from tests.simulation import clients, kafka, scheduler
from tests.simulation.kafka import Committed, Kafka, Place
from tests.simulation.log import LOG
from tests.simulation.scheduler import Process, Scheduler, Threading, here
from tests.simulation.violation import Violation

PARTITION: Final = SourcePartition(source="s", name="0")
CHANGES: Final = Place(changes_topic("s"), 0)
CHECKPOINTS: Final = Place(CHECKPOINTS_TOPIC, 0)
_LEASE_S: Final = 10.0
_HEAD: Final = struct.Struct(">43sqhiiH")
"""Of a record batch, as ``kafka`` looks at it: producer id, epoch, sequence, count; then the key's length."""
_PATIENCE_S: Final = 300.0
_SERVICE_ID: Final = -2


class Producer:
    """``confluent_kafka.Producer`` of one transactional id. It asks again by itself where an answer is lost."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._wire: clients.Wire = here().wire  # type: ignore[attr-defined]
        self._id = config["transactional.id"]
        self._timeout_s = config["transaction.timeout.ms"] / 1000
        self._producer = (-1, -1)
        self._sequences: dict[Place, int] = {}
        self._buffered: list[tuple[Place, bytes, bytes]] = []
        self._added: set[Place] = set()

    def __len__(self) -> int:
        return len(self._buffered)

    def poll(self, _timeout: float) -> int:
        """Reports of failures; nothing fails by itself."""
        return 0

    def init_transactions(self, _timeout: float) -> None:
        """Fence the producer that has the id."""

        def init() -> int:
            error, producer_id, epoch = self._wire.kafka.init_producer(self._id, self._timeout_s)
            self._producer = (producer_id, epoch)
            return error

        self._ask(init)

    def begin_transaction(self) -> None:
        """Kafka hears of it with the first record."""
        self._added, self._buffered = set(), []

    def produce(self, topic: str, *, value: bytes, key: bytes | None, partition: int, on_delivery: object) -> None:
        """Sent at once, or at the commit."""
        self._buffered.append((Place(topic, max(partition, 0)), key or b"", value))
        if self._wire.happens(0.3):
            self._send()

    def _send(self) -> None:
        for place, key, value in self._buffered:
            if place not in self._added:
                self._ask(lambda place=place: self._wire.kafka.add_partitions(self._id, *self._producer, [place])[0][1])
                self._added.add(place)
            sequence = self._sequences.get(place, 0)
            payload = _HEAD.pack(b"", *self._producer, sequence, 1, len(key)) + key + value
            self._ask(lambda place=place, payload=payload: self._wire.kafka.produce(self._id, place, payload)[0])
            self._sequences[place] = sequence + 1
        self._buffered = []

    def commit_transaction(self, _timeout: float) -> None:
        """Returns when Kafka has decided."""
        self._send()
        self._ask(lambda: self._wire.kafka.end_transaction(self._id, *self._producer, commits=True))

    def abort_transaction(self, _timeout: float) -> None:
        """As ``commit_transaction``."""
        self._ask(lambda: self._wire.kafka.end_transaction(self._id, *self._producer, commits=False))

    def _ask(self, what: Callable[[], int]) -> None:
        wire, sleep = self._wire, self._wire.scheduler.sleep
        while True:
            sleep(wire.delay_s())
            if wire.happens(wire.faults.lost):
                continue
            error = what()
            sleep(wire.delay_s())
            if wire.happens(wire.faults.unanswered) or error == kafka.CONCURRENT_TRANSACTIONS:
                sleep(0.02)
                continue
            if error == kafka.INVALID_PRODUCER_EPOCH:
                raise KafkaException(KafkaError(KafkaError._FENCED, fatal=True))
            if error:
                raise KafkaException(KafkaError(KafkaError._STATE))
            return


class Queue:
    """``queue.Queue``."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._items: list[Any] = []
        self._changed = scheduler.Event()

    def qsize(self) -> int:
        """How many wait."""
        return len(self._items)

    def put_nowait(self, item: Any) -> None:
        """Raises Full."""
        if len(self._items) >= self._most:
            raise queue.Full
        self._items.append(item)
        self._changed.set()

    def put(self, item: Any, timeout: float) -> None:
        """Up to a time."""
        deadline_s = here().now_s + timeout
        while len(self._items) >= self._most:
            if here().now_s >= deadline_s:
                raise queue.Full
            here().sleep(0.01)
        self.put_nowait(item)

    def get_nowait(self) -> Any:
        """Raises Empty."""
        if not self._items:
            raise queue.Empty
        return self._items.pop(0)

    def get(self) -> Any:
        """Waits."""
        while not self._items:
            self._changed = scheduler.Event()
            self._changed.wait()
        return self._items.pop(0)


class Committer:
    """checkpoint_committer, and its client: the product's decisions over the simulated log."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._partitions = Partitions()
        self._next = 0
        """Of the checkpoints topic."""
        self._owners: dict[FencingToken, str] = {}
        self._position = 0

    def begin_anew(self) -> None:
        """The service begins again, and knows the records of its topic."""
        self._world.scheduler.note("checkpoint_committer begins again")
        self._partitions, self._next = Partitions(), 0
        for stored in self._world.kafka.logs[CHECKPOINTS].entries:
            if stored.producer_id == _SERVICE_ID and stored.state == "committed":
                self._apply(stored)  # leases are known at once, also where a dead reader left a transaction open

    async def acquire(self, partition: SourcePartition, owner: str, lease_s: float) -> FencingToken:
        """See ``CheckpointCommitterClient``."""
        await self._travel()
        state, now_s = self._partitions.state(partition), self._world.scheduler.now_s
        wanted = LeaseRequest(partition, owner, int(lease_s * 1000))
        decided = decide_grant(state.holding, wanted, newest_token=state.newest_token, now_s=now_s, now_us=0)
        if not isinstance(decided, Granted):
            await self._travel()
            raise Fenced(f"{partition} is owned by {decided.owner}")
        token = decided.lease.fencing_token
        if self._owners.setdefault(token, owner) != owner:
            self._world.scheduler.fail(Violation(f"{owner} and {self._owners[token]} have token {token}"))
        self._write(decided.lease)
        await self._travel(done=True)
        return token

    async def release(self, partition: SourcePartition, owner: str, token: FencingToken) -> None:
        """See ``CheckpointCommitterClient``."""
        await self._travel()
        holding = self._partitions.state(partition).holding
        if holding is not None and (holding.lease.owner, holding.lease.fencing_token) == (owner, token):
            self._write(given_up(holding.lease, fencing_token=token, now_us=0))
        await self._travel(done=True)

    async def checkpoint(self, partition: SourcePartition) -> Checkpoint | None:
        """After a read barrier: all that was committed when asked is taken in."""
        await self._travel()
        log = self._world.kafka.logs[CHECKPOINTS]
        end = log.end
        while log.stable_end < end:
            self._world.kafka.tick()
            await asyncio.sleep(0.02)
        self.follow()
        found = self._partitions.state(partition).standing.checkpoint
        await self._travel(done=True)
        return found

    def follow(self) -> None:
        """Take the log in, as far as it is decided. Raises Violation where the position goes back."""
        for stored in list(self._world.kafka.logs[CHECKPOINTS].committed_from(self._next)):
            self._apply(stored)
            self._next = stored.offset + 1
        checkpoint = self._partitions.state(PARTITION).standing.checkpoint
        position = int(checkpoint.position.token) if checkpoint is not None else 0
        if position < self._position:
            self._world.scheduler.fail(
                Violation(f"the position in force went back from {self._position} to {position}")
            )
        self._position = position

    def _write(self, lease: Any) -> None:
        record = encode(lease)
        log = self._world.kafka.logs[CHECKPOINTS]
        payload = _HEAD.pack(b"", _SERVICE_ID, 0, 0, 1, len(record.key)) + record.key + (record.value or b"")
        stored = log.append(payload, 1, _SERVICE_ID)
        log.mark(_SERVICE_ID, commits=True)
        self._apply(stored)
        self._world.scheduler.note(f"lease {lease.fencing_token} of {lease.owner or 'nobody'}")

    def _apply(self, stored: kafka.Stored) -> None:
        key, value = _record(stored)
        self._partitions.apply(LogRecord(key=key, value=value, kafka_partition=0, offset=stored.offset))

    async def _travel(self, *, done: bool = False) -> None:
        wire = self._world.wire
        await asyncio.sleep(wire.delay_s())
        if wire.happens(wire.faults.unanswered if done else wire.faults.lost):
            raise ServiceUnavailable("checkpoint_committer does not answer")


def _record(stored: kafka.Stored) -> tuple[bytes, bytes]:
    size = _HEAD.unpack_from(stored.payload)[-1]
    return stored.payload[_HEAD.size : _HEAD.size + size], stored.payload[_HEAD.size + size :]


class ModelSource:
    """A log of numbered changes, of which some stand in one source transaction of two batches."""

    partition = PARTITION

    def __init__(self, world: "World") -> None:
        self._world = world

    @contextlib.asynccontextmanager
    async def open(self, resume_from: Checkpoint | None, _identity: BatchIdentity) -> AsyncIterator["_ModelLog"]:
        """Stand at a checkpoint."""
        await asyncio.sleep(self._world.wire.delay_s())
        yield _ModelLog(self._world, int(resume_from.position.token) if resume_from is not None else 0)


class _ModelLog:
    def __init__(self, world: "World", position: int) -> None:
        self._world, self._position = world, position

    async def batches(self) -> AsyncIterator[ReadBatch]:
        """From the position on, for ever."""
        while True:
            if self._position >= self._world.source_end:
                await asyncio.sleep(0.05)
                continue
            self._position += 1
            number = self._position
            position = SourcePosition(source_kind="mysql", token=b"%d" % number)
            resume = ResumePoint(position, EventOrder(epoch=0, rank=number, tx_ordinal=0), committed_at_us=0)
            yield ReadBatch(b"%08d" % number, 1, None if number % 5 == 1 else resume)


class World:
    """One run."""

    def __init__(self, seed: int, *, traces: bool = False) -> None:
        self.scheduler = Scheduler(seed, traces=traces)
        random = self.random = self.scheduler.random
        self.kafka = Kafka(self.scheduler)
        self.kafka.on_commit = self._committed
        self.wire = clients.Wire(self.scheduler, self.kafka)
        self.scheduler.wire = self.wire  # type: ignore[attr-defined]
        for place in (CHANGES, CHECKPOINTS):
            self.kafka.create_topic(place.topic)
        self.source_end = 0
        self._published = 0
        self._committer = Committer(self)
        self._processes: list[Process] = []
        self._numbers = itertools.count()
        self._failpoints = random.choice((0.0, 0.05, 0.2))
        self._is_mended = False

    @property
    def steps(self) -> int:
        """See ``tests.simulation.run.World``."""
        return self.scheduler.steps

    @property
    def trace(self) -> Sequence[str]:
        """See ``tests.simulation.run.World``."""
        return self.scheduler.trace

    def _committed(self, committed: Committed) -> None:
        try:
            self._compare(committed)
        except Exception as error:
            self.scheduler.fail(error)

    def _compare(self, committed: Committed) -> None:
        for place, stored in committed.batches:
            if place == CHANGES:
                _, value = _record(stored)
                for first in range(0, len(value), 8):  # batches of a transaction are joined
                    number = int(value[first : first + 8])
                    if number != self._published + 1:
                        raise Violation(f"change {number} is published after change {self._published}")
                    self._published = number
        for place, stored in committed.batches:
            if place == CHECKPOINTS:
                position = int(decode_checkpoint(_record(stored)[1]).position.token)
                if position != self._published:
                    raise Violation(
                        f"the checkpoint says {position}, and change {self._published} is the last published"
                    )

    def failpoint(self, name: str) -> None:
        """A named gap: perhaps the process dies in it."""
        self.scheduler.step()
        if not self._is_mended and self.random.random() < self._failpoints:
            self.scheduler.note(f"failpoint {name}")
            self.scheduler.kill(self.scheduler.current.process)
            raise scheduler.Killed

    # --- events of a run

    def run(self) -> None:
        """Raises Violation, and any other error."""
        with self._simulated():
            self.scheduler.run(self._main)

    def _main(self) -> None:
        random, sched = self.random, self.scheduler
        faults = self.wire.faults
        faults.lost, faults.unanswered = random.choice((0.0, 0.02, 0.1)), random.choice((0.0, 0.02, 0.1))
        faults.slow, faults.longest_s = random.choice((0.0, 0.05)), 3.0
        longest_s = random.choice((0.0, 0.05, 1.0))
        self.kafka.marker_delay_s = lambda: random.random() * longest_s
        self._processes = [self._start() for _ in range(random.choice((2, 2, 3)))]
        for _ in range(random.randrange(5, 20)):
            self.source_end += random.choice((0, 1, 5, 20))
            sched.sleep(random.choice((0.0, 0.1, 1.0, 4.0)))
            self._disturb()
        self._mend()
        deadline_s = sched.now_s + _PATIENCE_S
        end = self.source_end - (self.source_end % 5 == 1)  # the rest of a source transaction is to come
        while self._published < end:
            self._revive()
            if sched.now_s > deadline_s:
                raise Violation(
                    f"{_PATIENCE_S:.0f} s after everything was mended change {self._published + 1} is missing"
                )
            sched.sleep(0.5)
        self._committer.follow()

    def _disturb(self) -> None:
        random, sched = self.random, self.scheduler
        process = random.choice(self._processes)
        match random.randrange(8):
            case 0 if not process.is_dead:
                sched.kill(process)
            case 1 | 2 if not process.is_dead and not process.is_frozen:
                sched.freeze(process)
                pause_s = random.choice((1.0, 12.0, 30.0, 90.0))
                sched.spawn(Process("operator"), f"thaws {process.name}", lambda: self._thaw(process, pause_s))
            case 3:
                self._committer.begin_anew()
            case 4:
                self._committer.follow()
        self._revive()

    def _thaw(self, process: Process, pause_s: float) -> None:
        self.scheduler.sleep(pause_s)
        if process.is_frozen and not process.is_dead:
            self.scheduler.thaw(process)

    def _mend(self) -> None:
        self.scheduler.note("everything is mended")
        self._is_mended = True
        self.wire.faults = clients.Faults()
        self.kafka.marker_delay_s = lambda: 0.0
        for process in self._processes:
            if process.is_frozen:
                self.scheduler.thaw(process)

    def _revive(self) -> None:
        self._processes = [self._start() if each.is_dead else each for each in self._processes]

    def _start(self) -> Process:
        process = Process(f"reader-{next(self._numbers)}")
        self.scheduler.spawn(process, "main", lambda: self._read(process))
        return process

    def _read(self, process: Process) -> None:
        status: Any = SimpleNamespace(run_id="r", quarantined=None, shards=None)
        for name in ("published", "resumed", "connecting", "connected", "interrupted"):
            setattr(status, name, lambda *_, **__: None)

        async def never_paused() -> None:
            return

        status.while_paused = never_paused
        try:
            asyncio.run(
                libs.source.follow.follow(
                    ModelSource(self),  # type: ignore[arg-type]
                    connector=process.name,
                    kafka=KafkaSettings(),
                    committer=self._committer,  # type: ignore[arg-type]
                    lease_s=_LEASE_S,
                    status=status,
                )
            )
        except HeadwaterError as error:
            self.scheduler.note(f"ends: {error!r}")
            if isinstance(error, PipelineHalted):
                raise Violation(f"{process.name} halts: {error}") from error
        self.scheduler.kill(process)

    @contextlib.contextmanager
    def _simulated(self) -> Iterator[None]:
        publisher, follow = libs.source.publisher, libs.source.follow
        batches, producer = libs.source.publish_queue, libs.source.transactional_producer
        names = itertools.count()
        with (
            scheduler.simulated_clock(),
            scheduler.replaced(
                (producer, "Producer", Producer),
                (producer, "threading", Threading),
                (producer, "failpoint", self.failpoint),
                (batches, "threading", Threading),
                (batches, "queue", SimpleNamespace(Queue=Queue, Empty=queue.Empty, Full=queue.Full)),
                (libs.kafka.topic_id, "AdminClient", clients.AdminClient),
                (publisher, "threading", Threading),
                (publisher, "queue", SimpleNamespace(Queue=Queue, Empty=queue.Empty, Full=queue.Full)),
                (publisher.Publisher, "require_no_open_transaction", _has_every_marker),
                (follow, "ensure_topics", lambda *_: None),
                (follow, "uuid", SimpleNamespace(uuid4=lambda: next(names))),
                (follow, "log", LOG),
                (services.checkpoint_committer.partitions, "log", LOG),
            ),
        ):
            yield


async def _has_every_marker(_publisher: Any) -> None:
    """The simulated Kafka forgets no transaction's end."""
