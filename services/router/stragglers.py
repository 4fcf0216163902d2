"""Tenants that are behind the others in a partition of a changes topic, each with a cursor of its own.

The lane goes on for all others while a tenant cannot or may not keep up: it is over its limits, a topic of it cannot be
written, the registry does not know its schema. Its missed batches are read from the changes topic again, from its cursor
on, and written for it alone, by a thread and a transactional producer beside the lane's. When only the last few batches are
missing, and nothing is in the way, the lane takes the tenant in again and writes these with its next transaction.

A tenant belongs to the lane or to the stragglers, never to both. It leaves and comes back in the lane's transactions alone;
its cursor moves in the stragglers' transactions alone, each with the records that it covers. So nothing is lost or repeated,
and each topic has its events in log order, through any kill (``straggler_offsets`` says where the state lies).

Turns are given by weight: the ready tenant that took the least CPU for its weight is next. A turn ends after some batches,
and all
pause for as long as it took CPU, so that turns leave at least half of a core to the lanes. Work that may have to wait for a
server (schemas, topics) is done before a turn, beside others' turns.
"""

import asyncio
import collections
import enum
import functools
import math
import threading
import time
from collections.abc import Callable, Container, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka import TopicPartition
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as OffsetOf

from libs.errors import BrokerUnavailable, Fenced, HeadwaterError, PipelineHalted, ServiceUnavailable, refusal_of
from libs.events.names import STRAGGLING, straggler_group
from libs.failpoints import failpoint
from libs.kafka.clients import client_config
from libs.telemetry import metrics
from libs.types.tenant import TenantSpec
from services.router.awaited import LACKS, PassedPartitions, awaited_ends
from services.router.covered import offset_after
from services.router.deliver import Changes, read_record
from services.router.match import RouteBook
from services.router.metering import Meter
from services.router.outputs import (
    LaneDependencies,
    Outputs,
    Reached,
    WaitingBatch,
    reached_by,
    tell_refused_schemas,
)
from services.router.writer import TopicsRefused, TransactionWriter

_OPEN_TIMEOUT_S: Final = 35.0  # below the time that a lane may take to open
_JOIN_TIMEOUT_S: Final = 4.0
_TURN_BATCHES: Final = 32
_TURN_BYTES: Final = 2_000_000
_TURN_WRITING_S: Final = 0.2
_KEPT_BYTES: Final = 8_000_000
_JOINING_BATCHES: Final = 8
"""So few may be missing when a tenant is taken in again: the others wait while they are written."""
_JOINING_AT_ONCE: Final = 4
"""Each costs the lane's transaction two more questions to Kafka."""
_NEAR_S: Final = 0.2
"""How long a tenant that could be taken in waits for that, before it goes on by itself: the source may be silent."""
_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
"""Longest pause between two attempts; the pauses double up to it."""
_REFUSAL_PATIENCE_S: Final = 10.0
"""How long a topic's first refusal is doubted: a broker that is away for a moment makes Kafka refuse topics too."""
_UNAVAILABLE_PATIENCE_S: Final = 20.0
"""How long a server that a tenant needs may be away before its team is informed: a restarted one is back by then."""
_REFUSED_RETRY_S: Final = 60.0
"""How often Kafka is asked again for topics that it refused."""
_TOUCH_S: Final = 3_600.0
"""How often a cursor that does not move is written again: Kafka forgets offsets after ``offsets.retention.minutes``, 7 days."""
_READ_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.5
_AT_ONCE: Final = 8
"""So many tenants are made ready beside each other; more wait. Each holds a turn's batches."""


class ChangesLost(HeadwaterError):
    """A tenant's missed batches are no longer in the changes topic."""


class _State(enum.Enum):
    IDLE = enum.auto()
    PREPARING = enum.auto()
    READY = enum.auto()
    JOINING = enum.auto()
    """The lane has it in hand."""


@dataclass(slots=True, eq=False)
class Straggler:
    """One tenant that lags. Fields that are not called safe belong to the thread, or to the lane while it is joining."""

    spec: TenantSpec
    cursor: int
    """The next offset of the changes topic that the tenant needs; safe to read."""
    reason: str
    """Why it fell behind, or why it still is; safe to read."""
    reached: Reached
    """Safe to read."""
    virtual_s: float
    """CPU that its turns took, divided by its weight."""
    is_stuck: bool = False
    """It is not its limits: somebody has to see to it; safe to read."""
    refusal: str | None = None
    """Why its records could not be written, as was tried last, and cannot until somebody sees to it; safe to read."""
    is_tried: bool = False
    """They were, because it is here; safe to read."""
    lacks_server_since_s: float | None = None
    """``time.monotonic()`` since which its requests have failed."""
    state: _State = _State.IDLE
    due_s: float = 0.0
    """``time.monotonic()`` before which nothing is done for it."""
    pause_s: float = _PAUSE_S
    near_since_s: float | None = None
    touched_s: float = field(default_factory=time.monotonic)
    book: RouteBook | None = None
    book_spec: TenantSpec | None = None
    ended_by_then: int = 0
    """``Refusals.ended`` when the book was made."""
    """The document that the book was made of."""
    outputs: Outputs | None = None
    ready: list[tuple[WaitingBatch, Changes]] = field(default_factory=list)
    refused_topics: Mapping[str, str] = field(default_factory=dict)
    refused_since_s: float = 0.0
    prepared_ns: int = 0
    """CPU that was spent for it beside the thread, and is not counted yet."""
    told: set[str] = field(default_factory=set)

    @property
    def tenant(self) -> str:
        """Its name."""
        return self.spec.tenant

    def fail(self, reason: str) -> None:
        """Try again after a pause, longer each time."""
        self.is_stuck = True
        self.put_off(reason)

    def refuse(self, reason: str) -> None:
        """As ``fail``, for a lasting cause."""
        self.refusal, self.is_tried = reason, True
        self.fail(reason)

    def lack_server(self, reason: str) -> None:
        """As ``fail``, of a server that does not answer; of one that does not for longer than a restart takes as ``refuse``."""
        now_s = time.monotonic()
        if self.lacks_server_since_s is None:
            self.lacks_server_since_s = now_s
        if now_s - self.lacks_server_since_s < _UNAVAILABLE_PATIENCE_S:
            self.fail(reason)
        else:
            self.refuse(reason)

    def put_off(self, reason: str) -> None:
        """The same, and nobody has to see to it."""
        self.reason = reason
        self.ready = []
        self.due_s = time.monotonic() + self.pause_s
        self.pause_s = min(2 * self.pause_s, _LONGEST_PAUSE_S)


class RecentBatches:
    """The changes topic's latest batches, so that tenants with a small lag do not read them again. Thread-safe."""

    def __init__(self, most_bytes: int = _KEPT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._chunks: collections.deque[tuple[int, int, tuple[WaitingBatch, ...]]] = collections.deque()
        """From one offset up to another, all that is committed between the two; the newest last."""
        self._size_bytes = 0

    def add(self, start: int, end: int, batches: Sequence[WaitingBatch]) -> None:
        """Keep all that is committed at ``start`` and above, and below ``end``."""
        with self._lock:
            self._chunks.append((start, end, tuple(batches)))
            self._size_bytes += sum(len(batch.payload) for batch in batches)
            while self._size_bytes > self._most_bytes:
                self._size_bytes -= sum(len(batch.payload) for batch in self._chunks.popleft()[2])

    def between(self, start: int, end: int) -> list[WaitingBatch] | None:
        """All that is committed at ``start`` and above, and below ``end``; None: not all of it is here."""
        found: list[WaitingBatch] = []
        while start < end:
            chunk = self._chunk_at(start)
            if chunk is None:
                return None
            found.extend(batch for batch in chunk[2] if start <= batch.offset < end)
            start = chunk[1]
        return found

    def at(self, start: int, end: int) -> list[WaitingBatch]:
        """The first batches at ``start`` and above, and below ``end``, as far as they are here in one piece."""
        chunk = self._chunk_at(start)
        return [] if chunk is None else [batch for batch in chunk[2] if start <= batch.offset < end]

    def _chunk_at(self, offset: int) -> tuple[int, int, tuple[WaitingBatch, ...]] | None:
        with self._lock:
            return next((chunk for chunk in reversed(self._chunks) if chunk[0] <= offset < chunk[1]), None)


class Stragglers:
    """Those of one lane. Its thread and its producer begin with the first of them."""

    def __init__(
        self,
        source: str,
        place: TopicPartition,
        shared: LaneDependencies,
        rows: MutableMapping[str, int],
        logger: Any,
        on_failure: Callable[[HeadwaterError], None],
    ) -> None:
        self._source = source
        self._place = place
        self._shared = shared
        self._rows = rows
        self._log = logger
        self._on_failure = on_failure
        self._lock = threading.Lock()
        """Of the tenants here and their states."""
        self._stragglers: dict[str, Straggler] = {}
        self._recent = RecentBatches()
        self._end = 0
        """The lane's offset: records below it are committed, and done for the others."""
        self._closing = False
        self._opened = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._executor = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="straggler")
        self._reading = threading.Lock()
        self._consumer: Consumer | None = None
        self._reads_at: int | None = None
        self._failed = False
        self._others = PassedPartitions(shared.kafka, shared.group)
        self._meter: Meter
        """Of the thread; made in it."""
        self._tenants: object = None
        self._writer: TransactionWriter | None = None
        self._looked_at_documents_s = -math.inf
        """``time.monotonic()`` before the thread last read the tenants."""
        self._rests_until_s = 0.0
        self.transaction_began_s: float | None = None
        """``time.monotonic()`` at the begin of the running transaction; the watchdog looks at it."""

    # --- the lane's side

    def open(self) -> None:
        """Begin, and fence the process that moved cursors before. Blocks. Raises BrokerUnavailable."""
        self._begin()
        if not self._opened.wait(_OPEN_TIMEOUT_S) or self._failed:
            raise BrokerUnavailable(
                f"the producer of tenants that are behind in {self._place.topic} did not open in time"
            )

    def add(self, spec: TenantSpec, cursor: int, reason: str, reached: Reached, *, is_stuck: bool = False) -> None:
        """A tenant fell behind, by a committed transaction."""
        with self._lock:
            least_s = min((each.virtual_s for each in self._stragglers.values()), default=0.0)
            self._stragglers[spec.tenant] = Straggler(spec, cursor, reason, reached, least_s, is_stuck)
        self._log.info("tenant_behind", tenant_id=spec.tenant, cursor=cursor, reason=reason)
        self._begin()
        self._rouse()

    def advance(self, start: int, end: int, batches: Sequence[WaitingBatch]) -> None:
        """The lane's committed offset went from ``start`` to ``end`` by ``batches``."""
        if self._stragglers:
            self._recent.add(start, end, batches)
        self._end = end
        if self._stragglers:
            self._rouse()

    def take_gone(self, tenants: Container[str]) -> list[str]:
        """Tenants that no longer exist, and are forgotten here. One with a turn just now is not gone yet: its cursor
        would be written once more."""
        with self._lock:
            gone = [
                tenant
                for tenant, straggler in self._stragglers.items()
                if tenant not in tenants and straggler.state is _State.IDLE
            ]
            for tenant in gone:
                del self._stragglers[tenant]
        return gone

    def take_joining(self) -> list[tuple[Straggler, list[WaitingBatch]]]:
        """Those that may come back now, with the few batches that they miss: the lane's, until ``joined`` or ``stay``."""
        taken: list[tuple[Straggler, list[WaitingBatch]]] = []
        with self._lock:
            for straggler in self._stragglers.values():
                backlog = self._joinable(straggler)
                if backlog is not None and len(taken) < _JOINING_AT_ONCE:
                    straggler.state = _State.JOINING
                    taken.append((straggler, backlog))
        return taken

    def _joinable(self, straggler: Straggler) -> list[WaitingBatch] | None:
        if straggler.state is not _State.IDLE or straggler.is_stuck or straggler.refused_topics:
            return None
        if self._shared.limits.wait_s(straggler.tenant, to_rejoin=True) > 0:
            return None
        backlog = self._recent.between(straggler.cursor, self._end)
        return backlog if backlog is not None and len(backlog) <= _JOINING_BATCHES else None

    def joined(self, straggler: Straggler) -> None:
        """The lane has committed its missed batches, and goes on for it."""
        with self._lock:
            self._stragglers.pop(straggler.tenant, None)
        self._log.info("tenant_caught_up", tenant_id=straggler.tenant, cursor=straggler.cursor)

    def stay(self, straggler: Straggler, reason: str | None) -> None:
        """The lane did not take it in; with a reason it has to go on by itself first, which finds the obstacle."""
        with self._lock:
            if reason is not None:
                straggler.reason, straggler.is_stuck = reason, True
            straggler.state = _State.IDLE
        self._rouse()

    def all(self) -> tuple[Straggler, ...]:
        """Those now. May be called from any thread."""
        with self._lock:
            return tuple(self._stragglers.values())

    def may_write_for(self, tenant: str, gone_since_s: float) -> bool:
        """Whether records may yet come for a tenant whose document went away at that ``time.monotonic()``. From any thread."""
        with self._lock:
            straggler = self._stragglers.get(tenant)
            if straggler is None:
                return False
            return straggler.state is not _State.IDLE or self._looked_at_documents_s <= gone_since_s

    def forget_topics(self, prefix: str) -> None:
        """See ``TransactionWriter.forget_topics``; for tenants without topics. From any thread."""
        if self._writer is not None:
            self._call(functools.partial(self._writer.forget_topics, prefix))

    def close(self) -> None:
        """Let the running transaction end, then stop. Blocks for some seconds at most."""
        self._closing = True
        self._rouse()
        if self._thread is not None:
            self._thread.join(_JOIN_TIMEOUT_S)
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        if self._thread is None:
            name = f"stragglers-{self._place.topic}-{self._place.partition}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def _rouse(self) -> None:
        self._call(self._wake.set)

    def _call(self, what: Callable[[], object]) -> None:
        """In the thread's loop, while there is one."""
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(what)
            except RuntimeError:  # the loop has ended
                return

    # --- the thread's side

    def _run(self) -> None:
        try:
            asyncio.run(self._follow())
        except Fenced as error:  # the lane's own producer will find out too
            self._log.warning("stragglers_fenced", reason=str(error))
        except HeadwaterError as error:
            self._fail(error)
        except Exception as error:
            self._log.exception("stragglers_failed")
            self._fail(PipelineHalted(f"the router failed on tenants behind with {type(error).__name__}; see the log"))
        finally:
            if not self._opened.is_set():
                self._failed = True
                self._opened.set()

    def _fail(self, error: HeadwaterError) -> None:
        if not self._closing:
            self._on_failure(error)

    async def _follow(self) -> None:
        self._loop = asyncio.get_running_loop()
        shared = self._shared
        writer = await TransactionWriter.open(
            shared.kafka, shared.group, self._place, shared.settings, part="-stragglers"
        )
        self._writer, self._meter = writer, Meter()
        tasks: set[asyncio.Task[None]] = set()
        try:
            self._opened.set()
            while not self._closing:
                self._wake.clear()
                self._take_documents()
                for straggler in self._to_prepare():
                    tasks.add(asyncio.create_task(self._prepare(straggler, writer)))
                for task in [task for task in tasks if task.done()]:
                    tasks.discard(task)
                    task.result()
                ready = [each for each in self.all() if each.state is _State.READY]
                if ready:
                    await asyncio.sleep(max(0.0, self._rests_until_s - time.monotonic()))
                    await self._take_turn(min(ready, key=lambda each: each.virtual_s), writer)
                else:
                    await self._pause()
        finally:
            for task in tasks:
                task.cancel()
            await writer.close()

    def _take_documents(self) -> None:
        """Try at once: a changed document may remove the obstacle."""
        looked_s = time.monotonic()
        tenants = self._shared.tenants()
        if tenants is not self._tenants:
            self._tenants = tenants
            self._take_changed(tenants)
        self._looked_at_documents_s = looked_s

    def _take_changed(self, tenants: tuple[TenantSpec, ...]) -> None:
        self._shared.limits.set_tenants(tenants)
        specs = {spec.tenant: spec for spec in tenants}
        with self._lock:
            for tenant, straggler in self._stragglers.items():
                spec = specs.get(tenant)
                if spec is None:
                    straggler.due_s = math.inf
                elif straggler.spec != spec:
                    straggler.spec, straggler.due_s = spec, 0.0

    async def _pause(self) -> None:
        """Seconds until something is to be done, by present knowledge."""
        now_s = time.monotonic()
        waits_s = [each.due_s - now_s for each in self.all() if each.cursor < self._end and each.state is _State.IDLE]
        timeout_s = max(0.01, min([_POLL_S, *(wait_s if wait_s > 0 else _NEAR_S / 4 for wait_s in waits_s)]))
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return

    def _to_prepare(self) -> list[Straggler]:
        """Those for whom something can be done; theirs are the free places."""
        now_s = time.monotonic()
        chosen: list[Straggler] = []
        with self._lock:
            free = _AT_ONCE - sum(each.state in (_State.PREPARING, _State.READY) for each in self._stragglers.values())
            for straggler in sorted(self._stragglers.values(), key=lambda each: each.virtual_s):
                if len(chosen) < free and self._is_due(straggler, now_s):
                    straggler.state = _State.PREPARING
                    chosen.append(straggler)
        return chosen

    def _is_due(self, straggler: Straggler, now_s: float) -> bool:
        if straggler.state is not _State.IDLE or straggler.due_s > now_s:
            return False
        if straggler.cursor >= self._end:
            return now_s - straggler.touched_s > _TOUCH_S
        if self._joinable(straggler) is not None:
            if straggler.near_since_s is None:
                straggler.near_since_s = now_s
            return now_s - straggler.near_since_s > _NEAR_S
        wait_s = self._shared.limits.wait_s(straggler.tenant)
        if wait_s > 0:
            straggler.due_s = now_s + wait_s
            return False
        return True

    async def _prepare(self, straggler: Straggler, writer: TransactionWriter) -> None:
        """Read a tenant's next batches, and prepare their writing, beside the thread."""
        if straggler.outputs is None:
            straggler.outputs = Outputs(
                self._source, self._place, writer, self._shared, self._rows, self._meter, self._log
            )
        straggler.ready = []
        state = _State.IDLE
        try:
            if time.monotonic() - straggler.touched_s < _TOUCH_S:
                loop = asyncio.get_running_loop()
                straggler.ready = await loop.run_in_executor(self._executor, self._made_ready, straggler)
        except _Awaits as error:
            straggler.put_off(str(error))
        except ServiceUnavailable as error:
            self._tell(straggler, str(error))
            straggler.lack_server(str(error))
        except _NotYet as error:
            self._tell(straggler, str(error))
            straggler.fail(str(error))
        except ChangesLost as error:
            self._tell(straggler, str(error))
            straggler.refuse(str(error))
        except Exception as error:  # of this tenant's document, or a name: the others take their turns
            if isinstance(error, HeadwaterError):
                raise
            self._log.error("refused_unforeseen", tenant_id=straggler.tenant, exc_info=error)
            straggler.refuse(refusal_of(error))
        else:
            straggler.lacks_server_since_s = None
            state = _State.READY
        with self._lock:
            straggler.state = state
        self._wake.set()

    def _made_ready(self, straggler: Straggler) -> list[tuple[WaitingBatch, Changes]]:
        began_ns = time.thread_time_ns()
        waiting = self._read(straggler.cursor)
        batches = self._passed([(each, read_record(each.payload, self._source)) for each in waiting], straggler.tenant)
        book = self._book_of(straggler)
        for _, batch in batches:
            self._prepare_batch(straggler, batch, book)
        straggler.refused_topics = {
            topic: refused.reason for topic, refused in book.refused_schemas.items()
        } | book.refused_topics
        self._shared.refusals.take_in(book)
        if tell_refused_schemas(book, straggler.told, self._log):
            straggler.refused_since_s = time.monotonic()
        straggler.prepared_ns += time.thread_time_ns() - began_ns
        return batches

    def _passed(
        self, batches: Sequence[tuple[WaitingBatch, Changes]], tenant: str
    ) -> list[tuple[WaitingBatch, Changes]]:
        """Up to the first batch whose awaited records the tenant lacks. Raises _Awaits: it is the first one."""
        passed: list[tuple[WaitingBatch, Changes]] = []
        for waiting, batch in batches:
            ends = awaited_ends(batch, self._place.topic)
            try:
                if ends and not self._others.is_passed_by(tenant, ends):
                    break
            except BrokerUnavailable as error:
                self._log.warning("awaited_partitions_unknown", reason=str(error))
                break
            passed.append((waiting, batch))
        if batches and not passed:
            raise _Awaits(LACKS)
        return passed

    def _book_of(self, straggler: Straggler) -> RouteBook:
        """The routes of one tenant; made again with its document, and when a refusal may be over."""
        book, ended = straggler.book, self._shared.refusals.ended
        is_refused = straggler.refused_topics or (book is not None and book.has_collisions)
        is_due = is_refused and (
            time.monotonic() - straggler.refused_since_s > _REFUSED_RETRY_S or ended != straggler.ended_by_then
        )
        if book is None or straggler.book_spec is not straggler.spec or is_due:
            shared = self._shared
            straggler.book_spec, straggler.ended_by_then = straggler.spec, ended
            book = RouteBook(
                self._source,
                (straggler.spec,),
                shared.fetch_schema(self._source),
                shared.claims,
                shared.keys,
                shared.registry,
            )
            straggler.book = book
            straggler.told.clear()
        return book

    def _prepare_batch(self, straggler: Straggler, batch: Changes, book: RouteBook) -> None:
        """Raises ServiceUnavailable, and _NotYet for a topic that was refused a moment ago."""
        assert straggler.outputs is not None
        while refused := straggler.outputs.create_for(batch, book):
            names = [target.topic.name for target, _ in refused]
            now_s = time.monotonic()
            if not set(names) <= straggler.refused_topics.keys():
                straggler.refused_topics = {target.topic.name: str(error) for target, error in refused}
                straggler.refused_since_s = now_s
            if now_s < straggler.refused_since_s + _REFUSAL_PATIENCE_S and not straggler.told & set(names):
                raise _NotYet(str(refused[0][1]))
            for target, error in refused:
                book.refuse_topic(target.topic.name, str(error))
                straggler.told.add(target.topic.name)
                self._log.error(
                    "tenant_topic_refused", tenant_id=target.tenant, refused=target.topic.name, reason=str(error)
                )
                metrics.TENANT_TOPICS_REFUSED.labels(target.tenant).inc()
            straggler.refused_since_s = now_s

    async def _take_turn(self, straggler: Straggler, writer: TransactionWriter) -> None:
        """One transaction for one tenant: records and cursor."""
        outputs, book = straggler.outputs, straggler.book
        assert outputs is not None
        assert book is not None
        began_s = time.monotonic()
        self.transaction_began_s = began_s
        reached, done = straggler.reached, 0
        try:
            await outputs.learn_topics()
            await writer.begin()
            for waiting, batch in straggler.ready:
                await outputs.write(batch, waiting.offset, book)
                reached, done = reached_by(batch, reached), done + 1
                if self._shared.limits.wait_s(straggler.tenant) > 0 or time.monotonic() > began_s + _TURN_WRITING_S:
                    break
            planned = [waiting.offset for waiting, _ in straggler.ready[:done]]
            cursor = offset_after(straggler.cursor, planned, outputs.take_written())
            await writer.send_gathered()
            failpoint("router_straggler_after_produce_before_offset")
            group = straggler_group(self._shared.group, straggler.tenant)
            await writer.send_offset(cursor, group=group, note=STRAGGLING)
            failpoint("router_straggler_after_offset_before_commit")
            await writer.commit()
            failpoint("router_straggler_after_commit")
        except TopicsRefused as error:
            await writer.abort()
            outputs.forget()
            self._tell(straggler, str(error))
            straggler.refuse(str(error))
        else:
            self._done(straggler, cursor, reached, [waiting for waiting, _ in straggler.ready[:done]])
        finally:
            self.transaction_began_s = None
        with self._lock:
            straggler.state = _State.IDLE

    def _done(self, straggler: Straggler, cursor: int, reached: Reached, batches: Sequence[WaitingBatch]) -> None:
        assert straggler.outputs is not None
        cpu_s = straggler.outputs.count(straggler.prepared_ns)
        straggler.prepared_ns = 0
        now_s = time.monotonic()
        straggler.cursor, straggler.reached = cursor, reached
        straggler.ready = []
        straggler.touched_s = now_s
        if not batches:
            return
        straggler.refusal, straggler.is_tried = None, True
        straggler.virtual_s += cpu_s / self._shared.limits.weight(straggler.tenant)
        self._rests_until_s = now_s + cpu_s
        straggler.pause_s, straggler.near_since_s = _PAUSE_S, None
        if straggler.is_stuck:
            straggler.is_stuck, straggler.reason = False, "catches up"
            self._log.info("tenant_goes_on", tenant_id=straggler.tenant, cursor=cursor)

    def _tell(self, straggler: Straggler, reason: str) -> None:
        if reason != straggler.reason or not straggler.is_stuck:
            self._log.warning("tenant_stuck", tenant_id=straggler.tenant, cursor=straggler.cursor, reason=reason)

    # --- reading

    def _read(self, start: int) -> list[WaitingBatch]:
        """The next batches at and above an offset, as many as a turn takes. Blocks."""
        end = self._end
        found = self._recent.at(start, end)
        if not found and start < end:
            with self._reading:
                found = self._recent.at(start, end) or self._fetch(start, end)
        taken, size_bytes = [], 0
        for batch in found[:_TURN_BATCHES]:
            taken.append(batch)
            size_bytes += len(batch.payload)
            if size_bytes > _TURN_BYTES:
                break
        return taken

    def _fetch(self, start: int, end: int) -> list[WaitingBatch]:
        """Raises ServiceUnavailable where Kafka does not give it, ChangesLost where it has deleted it."""
        consumer = self._consumer = self._consumer or _open_consumer(self._shared)
        if self._reads_at != start:
            consumer.assign([OffsetOf(self._place.topic, self._place.partition, start)])
        self._reads_at = None
        batches: list[WaitingBatch] = []
        size_bytes, deadline_s = 0, time.monotonic() + _READ_TIMEOUT_S
        while len(batches) < _TURN_BATCHES and size_bytes < _TURN_BYTES:
            message = consumer.poll(_POLL_S)
            if message is None:
                if time.monotonic() > deadline_s or self._closing:
                    break
                continue
            if (error := message.error()) is not None:
                if error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise ChangesLost(
                        f"what stood at offset {start} of {self._place.topic} and is not delivered yet was deleted by its "
                        "retention; take the tenant's document away and put it back, then resync its tables"
                    )
                raise ServiceUnavailable(f"{self._place.topic} cannot be read: {error}")
            offset, value = message.offset(), message.value()
            if offset is None:
                continue
            batches.append(WaitingBatch(offset, value or b""))
            size_bytes += len(value or b"")
            if offset + 1 >= end:
                break
        if not batches:
            raise ServiceUnavailable(f"{self._place.topic} gave nothing at offset {start} in time")
        self._reads_at = batches[-1].offset + 1
        self._recent.add(start, self._reads_at, batches)
        return [batch for batch in batches if batch.offset < end]


class _NotYet(HeadwaterError):
    """Perhaps in a moment."""


class _Awaits(HeadwaterError):
    """The next batch waits until the tenant has another partition's records."""


def _open_consumer(shared: LaneDependencies) -> Consumer:
    """Reads from a given offset on; a member of no group."""
    return Consumer(
        client_config(shared.kafka)
        | {
            "group.id": shared.group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": 2_000_000,
            "queued.max.messages.kbytes": 4_096,
        }
    )
