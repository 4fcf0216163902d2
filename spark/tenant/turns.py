"""Whose micro-batch runs next: all tenants of a job share a few turns (ADR 17).

    one look at Kafka for all ▶ tenants with changed topics ▶ the one that has waited longest ▶ a turn

A turn is a thread with a Spark session of its own, and the memory of one batch. Tenants without anything new cost nothing but
their part of the look. A tenant has one turn at most, so one that fails takes nothing else from the others. A batch that runs
for too long gives its turn to somebody else and goes on without (``turn_shares``). Tenants whose batches are long have to wait
longer for the last turn that is free, so that short batches go on beside them.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar

import structlog
from pyspark.sql import SparkSession

from libs.config.connections import KafkaSettings
from libs.errors import TransientError
from libs.telemetry.faults import BATCH_OVERDUE, KAFKA_UNREACHABLE, lift_fault, raise_fault
from libs.telemetry.metrics import SINK_OVERDUE_BATCHES, SINK_TENANTS_WAITING, SINK_TURNS, SINK_TURNS_TAKEN
from libs.types.fault import FaultScope
from spark.jvm.errors import described
from spark.jvm.java import java_class
from spark.kafka.topic_ends import Ends, TopicEnds
from spark.tenant.turn_shares import SHARE_S, TurnShares

_BYTES_OF_TURN: Final = 160 * 2**20
"""Heap that a batch wants, with all that the JVM has besides: four fit a default heap of 832 MB. Its events go to disk where
they do not fit, but plans, statistics of tables and files that are being written do not."""
_TURNS_PER_CORE: Final = 2
"""A batch waits for Kafka and for commits about as long as it works."""
_LOOKS_PER_TRIGGER: Final = 4
_LEAST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 1.0
_SHARE_OF_LOOKING: Final = 20
"""The pause after a look is so many times as long as the look took: where topics are many, they are looked at less often."""
_MOST_PAUSE_S: Final = 30.0
"""However long a look took: the next one may be quick."""
_LONG_BATCH_S: Final = 10.0
_SHARES_BEFORE_FAULT: Final = 6
"""A batch is a fault after so many times its share; a first copy on a busy machine is none."""
_ASK_HEAP_AGAIN_S: Final = 30.0

Name = TypeVar("Name")

log = structlog.get_logger()


class Turn(Protocol):
    """A tenant that wants turns. ``run`` is called in a turn's thread, all else in the thread that deals turns."""

    @property
    def tenant(self) -> str: ...
    @property
    def warehouse(self) -> str:
        """Its name in the job's settings."""
        ...

    @property
    def trigger_s(self) -> float:
        """From the start of a batch to that of the next, at least."""
        ...

    @property
    def due_at_s(self) -> float:
        """Not before, by ``time.monotonic``."""
        ...

    @property
    def last_took_s(self) -> float:
        """How long its last batch took."""
        ...

    def has_new(self, ends: Ends) -> bool:
        """Whether there is a batch to run where topics end at ``ends``; also where that is an error that is to be raised."""
        ...

    @property
    def looks_again(self) -> bool:
        """Whether ``has_new`` may answer otherwise though no topic changes."""
        ...

    def run(self, spark: SparkSession, ends: Ends) -> bool:
        """One batch. Returns whether the tenant wants further turns. It does not raise."""
        ...


def turns_of(cores: int, heap_bytes: int) -> int:
    """How many batches run at once.

    >>> turns_of(cores=2, heap_bytes=832 * 2**20), turns_of(2, 256 * 2**20), turns_of(16, 832 * 2**20)
    (4, 1, 5)
    """
    return max(1, min(_TURNS_PER_CORE * cores, heap_bytes // _BYTES_OF_TURN))


def turns_of_session(spark: SparkSession) -> int:
    """``turns_of`` the session as it runs."""
    heap_bytes = int(java_class(spark, "java.lang.Runtime").getRuntime().maxMemory())
    return turns_of(spark.sparkContext.defaultParallelism, heap_bytes)


def next_turn(
    waiting: Mapping[Name, float], *, now_s: float, is_long: Callable[[Name], bool], free: int, of: int
) -> Name | None:
    """The tenant of the next of ``free`` turns, out of ``of``: the due one that has waited longest. None: there is none.

    ``waiting``: from when on each is due. For the last free turn those whose batches are long wait ten seconds more.

    >>> next_turn({"a": 3.0, "b": 1.0, "c": 9.0}, now_s=5.0, is_long=lambda name: False, free=1, of=4)
    'b'
    >>> next_turn({"a": 3.0, "b": 1.0}, now_s=5.0, is_long=lambda name: name == "b", free=1, of=4)
    'a'
    >>> next_turn({"a": 13.0, "b": 1.0}, now_s=15.0, is_long=lambda name: name == "b", free=1, of=4)
    'b'
    """
    is_last = free == 1 and of > 1
    due = {name: due_at_s + _LONG_BATCH_S * (is_last and is_long(name)) for name, due_at_s in waiting.items()}
    first = min(due, key=due.__getitem__, default=None)
    return first if first is not None and due[first] <= now_s else None


def pause_after_look(trigger_s: float, *, took_s: float, is_silent: bool) -> float:
    """Until the next look at Kafka. ``trigger_s``: the least of the tenants'; ``is_silent``: Kafka did not answer this one.

    >>> pause_after_look(1.0, took_s=0.01, is_silent=False), pause_after_look(60.0, took_s=0.5, is_silent=False)
    (0.25, 10.0)
    >>> pause_after_look(1.0, took_s=12.0, is_silent=False), pause_after_look(1.0, took_s=60.0, is_silent=True)
    (30.0, 0.25)
    """
    pause_s = min(_LONGEST_PAUSE_S, max(_LEAST_PAUSE_S, trigger_s / _LOOKS_PER_TRIGGER))
    return pause_s if is_silent else min(_MOST_PAUSE_S, max(pause_s, took_s * _SHARE_OF_LOOKING))


def has_turn(member: Turn, ends: Ends) -> bool:
    """Whether the tenant is to have a turn. One that fails at the question is: there the error is raised again, and is its own;
    here it would end the turns of all."""
    try:
        return member.has_new(ends)
    except Exception as error:
        log.warning("sink_turn_not_judged", tenant=member.tenant, reason=described(error))
        return True


class Turns:
    """Of one job."""

    def __init__(
        self, spark: SparkSession, kafka: KafkaSettings, *, at_once: int | None = None, share_s: float = SHARE_S
    ) -> None:
        """``at_once``: how many batches run at a time; None: ``turns_of_session``. ``share_s``: after that a batch is
        overdue."""
        self._of = turns_of_session(spark) if at_once is None else at_once
        self._shares = TurnShares(self._of, share_s=share_s)
        self._share_s = share_s
        self._heap = _Heap(spark)
        self._spark = spark
        self._core: Any = spark.sparkContext._jsc.sc()
        self._sessions = [_session_like(spark) for _ in range(self._of)]
        self._ends = TopicEnds(spark, kafka)
        self.begins_of = self._ends.begins
        """Asks Kafka where partitions begin; for any thread."""
        self._members: dict[str, Turn] = {}
        self._waiting: dict[str, float] = {}
        """From when on each is due, of those that have something new."""
        self._unseen: set[str] = set()
        """Whose topics have changed, or whose batch has ended, because ``has_new`` was asked."""
        self._changed = threading.Condition()
        self._is_closed = False
        self._look_at_s = 0.0
        self._is_silent = False
        self._seen: set[str] = set()
        """Members whose topics a look has covered since they joined."""
        self.failure: BaseException | None = None
        """The error that ended the dealing of turns; the job has to begin again."""
        self._pool = ThreadPoolExecutor(self._shares.most_running, thread_name_prefix="sink-turn")
        self._dealer = threading.Thread(target=self._deal, name="sink-turns", daemon=True)
        self._dealer.start()
        SINK_TURNS.set(self._of)

    def join(self, member: Turn) -> None:
        """Serve the tenant from now on."""
        with self._changed:
            self._members[member.tenant] = member
            self._unseen.add(member.tenant)
            self._seen.discard(member.tenant)
            self._look_at_s = 0.0  # its topics were not looked at
            self._changed.notify_all()

    def leave(self, member: Turn) -> None:
        """Begin no further batch of it; one may be running."""
        with self._changed:
            if self._members.get(member.tenant) is member:
                del self._members[member.tenant]
                self._waiting.pop(member.tenant, None)
                self._shares.forget(member.tenant)

    def is_idle(self, tenant: str) -> bool:
        """Whether no batch of it is running, and none is due by the last look."""
        with self._changed:
            return tenant not in self._shares.running and tenant not in self._waiting and tenant not in self._unseen

    def cancel(self, group: str) -> None:
        """Cancel Spark's jobs of that group, those to come too."""
        self._core.cancelJobGroupAndFutureJobs(group)

    @property
    def does_not_answer(self) -> bool:
        """Whether Kafka did not say, at the last look, where topics end."""
        return self._is_silent

    def close(self) -> None:
        """Begin no further batch, and look no more; batches that run are not waited for."""
        with self._changed:
            self._is_closed = True
            self._members.clear()
            self._waiting.clear()
            self._changed.notify_all()
        self._pool.shutdown(wait=False)
        if self._dealer is not threading.current_thread():
            self._dealer.join(timeout=_LONGEST_PAUSE_S)
        self._ends.close()

    def _deal(self) -> None:
        try:
            while True:
                with self._changed:
                    if self._is_closed:
                        return
                    members = list(self._members.values())
                    is_due = bool(members) and time.monotonic() >= self._look_at_s
                changed = self._look(members) if is_due else ()
                with self._changed:
                    self._unseen |= self._members.keys() & set(changed)
                    self._sort()
                    self._report_overdue()
                    self._begin_turns()
                    if not self._is_closed:
                        self._changed.wait(self._pause_s())
        except BaseException as error:
            with self._changed:
                if self._is_closed:
                    return
            log.error("sink_turns_ended", reason=described(error), exc_info=True)
            self.failure = error

    def _look(self, members: Sequence[Turn]) -> Iterable[str]:
        started_s = time.monotonic()
        try:
            changed: Iterable[str] = self._ends.look([member.tenant for member in members])
            self._report_silence(None)
            with self._changed:
                self._seen |= {member.tenant for member in members if self._members.get(member.tenant) is member}
        except TransientError as error:
            changed = ()
            self._report_silence(str(error))
        ended_s = time.monotonic()
        with self._changed:
            trigger_s = min((member.trigger_s for member in self._members.values()), default=1.0)
            if set(map(id, self._members.values())) <= set(map(id, members)):  # else somebody joined meanwhile
                took_s = ended_s - started_s
                self._look_at_s = ended_s + pause_after_look(trigger_s, took_s=took_s, is_silent=self._is_silent)
        return changed

    def _report_silence(self, reason: str | None) -> None:
        if reason is not None and not self._is_silent:
            log.warning("sink_kafka_silent", reason=reason)
            raise_fault(KAFKA_UNREACHABLE, FaultScope(), happened=reason)
        if reason is None and self._is_silent:
            log.info("sink_kafka_answers")
            lift_fault(KAFKA_UNREACHABLE, FaultScope())
        self._is_silent = reason is not None

    def _sort(self) -> None:
        """Those that were not asked since something changed: whether they have a batch to run. While Kafka is away nobody
        is asked: the last look does not show losses."""
        if self._is_silent:
            return
        running = set(self._shares.running)
        self._unseen &= self._members.keys() | running
        again = set()
        for tenant in self._unseen - running:
            member = self._members[tenant]
            if tenant not in self._seen:
                again.add(tenant)
                continue
            if tenant not in self._waiting and has_turn(member, self._ends.of(tenant)):
                self._waiting[tenant] = max(member.due_at_s, time.monotonic())
            elif member.looks_again:
                again.add(tenant)
        self._unseen = (self._unseen & running) | again
        SINK_TENANTS_WAITING.set(len(self._waiting))

    def _begin_turns(self) -> None:
        now_s = time.monotonic()
        while (tenant := self._next(now_s)) or self._lends(now_s):
            if tenant is not None:
                member = self._members[tenant]
                del self._waiting[tenant]
                self._shares.begin(tenant, member.warehouse, now_s=now_s)
                self._note_taken()
                self._pool.submit(self._run, member, self._ends.of(tenant))

    def _next(self, now_s: float) -> str | None:
        free, members = self._shares.free, self._members
        if free <= 0:
            return None
        may_begin = {
            name: due_at_s
            for name, due_at_s in self._waiting.items()
            if self._shares.may_begin(name, members[name].warehouse)
        }
        return next_turn(
            may_begin,
            now_s=now_s,
            is_long=lambda name: members[name].last_took_s >= _LONG_BATCH_S,
            free=free,
            of=self._of,
        )

    def _lends(self, now_s: float) -> bool:
        """An overdue batch gives its turn, if somebody waits and the heap has room for a batch more; whether one does."""
        is_wanted = any(due_at_s <= now_s for due_at_s in self._waiting.values())
        return is_wanted and self._shares.can_lend and self._heap.has_room() and self._shares.lend()

    def _report_overdue(self) -> None:
        now_s, reported_after_s = time.monotonic(), self._share_s * _SHARES_BEFORE_FAULT
        if self._shares.look(now_s=now_s):
            self._note_taken()
        for tenant, warehouse in self._shares.longer_than(reported_after_s, now_s=now_s).items():
            happened = f"its batch in warehouse {warehouse} has run for more than {reported_after_s:g} s"
            raise_fault(BATCH_OVERDUE, FaultScope(tenant=tenant), happened=happened)

    def _note_taken(self) -> None:
        SINK_TURNS_TAKEN.set(self._shares.at_work)
        SINK_OVERDUE_BATCHES.set(len(self._shares.overdue))

    def _run(self, member: Turn, ends: Ends) -> None:
        with self._changed:
            session = self._sessions.pop() if self._sessions else None
        wants_more = False
        try:
            if session is None:  # an overdue batch has one of them
                session = _session_like(self._spark)
            wants_more = member.run(session, ends)
        except BaseException as error:  # a fault of the code: a tenant would wait for ever, and nobody know
            self.failure = error
        finally:
            with self._changed:
                if session is not None:
                    self._sessions.append(session)
                self._shares.end(member.tenant)
                self._note_taken()
                lift_fault(BATCH_OVERDUE, FaultScope(tenant=member.tenant))
                if wants_more or self._members.get(member.tenant) is not member:
                    self._unseen.add(member.tenant)
                else:
                    self._members.pop(member.tenant, None)
                self._changed.notify_all()

    def _pause_s(self) -> float:
        now_s = time.monotonic()
        until_s = [self._look_at_s] if self._members else []
        if self._shares.free > 0:
            # One that is due and has no turn gets it when a batch ends.
            until_s += [due_at_s for due_at_s in self._waiting.values() if due_at_s > now_s]
        return min(_LONGEST_PAUSE_S, max(0.0, min(until_s, default=math.inf) - now_s))


def _session_like(spark: SparkSession) -> SparkSession:
    """One with the same settings and catalogs, whose own settings change nothing of ``spark``: a batch is named there."""
    return SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())


class _Heap:
    """The driver's."""

    def __init__(self, spark: SparkSession) -> None:
        self._runtime: Any = java_class(spark, "java.lang.Runtime").getRuntime()
        self._asks_again_at_s = 0.0

    def has_room(self) -> bool:
        """Whether a batch more fits beside all that lives now. Asks the collector seldom: it stops all threads."""
        now_s = time.monotonic()
        if self._room() >= _BYTES_OF_TURN:
            return True
        if now_s < self._asks_again_at_s:
            return False
        self._asks_again_at_s = now_s + _ASK_HEAP_AGAIN_S
        self._runtime.gc()
        return self._room() >= _BYTES_OF_TURN

    def _room(self) -> int:
        """Bytes that are free, as far as the collector has looked."""
        return int(self._runtime.maxMemory() - self._runtime.totalMemory() + self._runtime.freeMemory())
