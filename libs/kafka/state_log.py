"""A topic as the only truth of a service's state: read to its end, then changed by one writer, decision by decision.

Used by schema_history and checkpoint_committer. The argument:

* ``run`` first fences every earlier instance (fixed transactional id), then reads the topic to its end: what is then
  known is complete, because nobody else may write decisions.
* Where others write to the topic, too, one of them may have died in the midst of a transaction, which hides everything
  after it for minutes. Decisions after it are read all the same, by their keys; the rest is seen once
  that transaction has ended, as at any other time (``barrier``).
* ``submit`` runs decisions one after another. What a decision writes is durable before it is applied, and applied
  before it is answered and before the next one decides.
* An instance that was fenced fails at its next decision and stops. Until then it goes on following the topic, so its
  answers after a ``barrier`` are right, too.
* If the outcome of a write is unknown, the process stops; a new start reads the topic again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NoReturn, TypeVar

import structlog

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable, Fenced, HeadwaterError, ServiceUnavailable
from libs.failpoints import failpoint
from libs.kafka.tail import LogIdentity, LogRecord, LogTail
from libs.kafka.writer import OutcomeUnknown, OutgoingRecord, TransactionalWriter

_Answer = TypeVar("_Answer")

QUEUED_DECISIONS: Final = 1_000
PROBE_INTERVAL_S: Final = 5.0
PROBE_TIMEOUT_S: Final = 10.0
STUCK_AFTER_S: Final = 60.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Decision(Generic[_Answer]):
    """A decision's records (none: nothing changes), and the answer once they are durable."""

    answer: _Answer
    records: Sequence[OutgoingRecord] = ()


@dataclass(frozen=True, slots=True)
class StateLogSpec:
    """Which topic, under which transactional id, and the failpoint between write and answer."""

    topic: str
    transactional_id: str
    failpoint: str
    is_decision: Callable[[bytes], bool] | None = None
    """Where others write to the topic, too: whether a record with this key is a decision. It is then taken in at the start
    even from after another's open transaction, where it may stem from a transaction of this writer that was aborted:
    it must do no harm to take it for a decision that was made and not answered."""


class StateLog:
    """See the module. One task runs ``run``; handlers call ``barrier`` and ``submit``."""

    def __init__(
        self,
        settings: KafkaSettings,
        spec: StateLogSpec,
        identity: LogIdentity,
        apply: Callable[[LogRecord], None],
        *,
        from_offsets: Mapping[int, int],
    ) -> None:
        """``apply`` gets each record once, in the order of its key; it must not raise for others' records."""
        self._spec = spec
        self._apply = apply
        self._writer = TransactionalWriter(settings, spec.topic, spec.transactional_id)
        self._tail = LogTail(settings, spec.topic, identity, from_offsets=from_offsets)
        self._applied_early: set[tuple[int, int]] = set()
        self._queue: asyncio.Queue[tuple[Callable[[], Awaitable[Decision[Any]]], asyncio.Future[Any]]] = asyncio.Queue(
            QUEUED_DECISIONS
        )
        self._unreachable: str | None = "the log is being read"

    @property
    def passed(self) -> Mapping[int, int]:
        """By Kafka partition, the offset below which everything has been applied."""
        return self._tail.passed

    def alive(self) -> str | None:
        """Health check: None, or why a restart would help."""
        if self._tail.idle_s > STUCK_AFTER_S:
            return f"topic {self._spec.topic} has not been read for {self._tail.idle_s:.0f} s"
        return None

    def ready(self) -> str | None:
        """Health check: None, or why answers cannot be given now."""
        return self._unreachable

    async def run(self, *, loaded: asyncio.Event, load_timeout_s: float) -> None:
        """Fence earlier instances, read the topic to its end, set ``loaded``, then serve decisions until cancelled.

        Raises:
            BrokerUnavailable, OutcomeUnknown: start again.
            Fenced: another instance took over: stop.
        """
        try:
            await self._writer.open()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._tail.follow(self._apply_all))
                await self._load(load_timeout_s)
                self._unreachable = None
                loaded.set()
                tasks.create_task(self._probe())
                await self._decide()
        finally:
            self._refuse_waiting()
            self._writer.close()
            await self._tail.close()

    async def _load(self, timeout_s: float) -> None:
        is_decision = self._spec.is_decision
        if is_decision is None:
            await self._tail.barrier(timeout_s)
            return
        await self._tail.stable_barrier(timeout_s)
        decisions = [record for record in await self._tail.held_back(timeout_s) if is_decision(record.key)]
        for record in decisions:
            if self._tail.passed[record.kafka_partition] <= record.offset:  # else the transaction ended meanwhile
                self._apply_early(record)
        if decisions:
            log.info("decisions_read_behind_open_transactions", topic=self._spec.topic, decisions=len(decisions))

    async def barrier(self, timeout_s: float, *, keys: Sequence[bytes] = ()) -> None:
        """As ``LogTail.barrier``."""
        await self._tail.barrier(timeout_s, keys=keys)

    async def submit(self, decide: Callable[[], Awaitable[Decision[_Answer]]]) -> _Answer:
        """Decide on the newest state, make that durable, apply it, answer. Decisions never overlap.

        A caller that goes away does not stop its decision.

        Raises:
            ServiceUnavailable: too many wait, or the process stops; try again.
            BrokerUnavailable: nothing was written; try again.
            HeadwaterError: any error of ``decide``.
        """
        answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        try:
            self._queue.put_nowait((decide, answer))
        except asyncio.QueueFull as error:
            raise ServiceUnavailable(f"{QUEUED_DECISIONS} calls wait already") from error
        return await answer

    async def _decide(self) -> None:
        while True:
            decide, answer = await self._queue.get()
            try:
                decision = await decide()
            except HeadwaterError as error:
                _refuse(answer, error)
                continue
            try:
                await self._write(decision.records)
            except (Fenced, OutcomeUnknown):
                _refuse(answer, ServiceUnavailable(f"the writer of {self._spec.topic} stops; ask again"))
                raise
            except BrokerUnavailable as error:
                _refuse(answer, error)
                continue
            if not answer.done():
                answer.set_result(decision.answer)

    async def _write(self, records: Sequence[OutgoingRecord]) -> None:
        if not records:
            return
        placed = await self._writer.write(records)
        for record, (kafka_partition, offset) in zip(records, placed, strict=True):
            if self._tail.passed[kafka_partition] <= offset:  # else the tail was faster
                self._apply_early(LogRecord(kafka_partition, offset, record.key, record.value))
        failpoint(self._spec.failpoint)

    def _apply_early(self, record: LogRecord) -> None:
        """Before the tail comes to it, which then leaves it out."""
        self._applied_early.add((record.kafka_partition, record.offset))
        self._apply(record)

    def _apply_all(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            place = (record.kafka_partition, record.offset)
            if place in self._applied_early:
                self._applied_early.remove(place)
            else:
                self._apply(record)

    async def _probe(self) -> NoReturn:
        """Keeps ``ready`` true to the facts, also while nobody asks.

        Only whether Kafka answers: after an open transaction reads wait, but leases must still be renewed here.
        """
        while True:
            await asyncio.sleep(PROBE_INTERVAL_S)
            try:
                await self._tail.end_offsets(PROBE_TIMEOUT_S)
            except BrokerUnavailable as error:
                if self._unreachable is None:
                    log.warning("kafka_lost", topic=self._spec.topic, reason=str(error))
                self._unreachable = str(error)
            else:
                if self._unreachable is not None:
                    log.info("kafka_found_again", topic=self._spec.topic)
                self._unreachable = None

    def _refuse_waiting(self) -> None:
        while not self._queue.empty():
            _, answer = self._queue.get_nowait()
            _refuse(answer, ServiceUnavailable(f"the writer of {self._spec.topic} stops; ask again"))


def _refuse(answer: asyncio.Future[Any], error: HeadwaterError) -> None:
    if not answer.done():  # done: the caller went away
        answer.set_exception(error)
