"""A sink job's memory of written events, over a model warehouse, with crashes in each gap.

The product's are the functions that remember: tries of parked tables (``settle``, ``Tries``, ``table_behind``), waiting events
(``first_piece``, ``with_joined``, ``left_behind``, ``Retries``), and the progress (``with_batch``, its file). Played here are
Kafka, Spark's batches, logs of two tables, and the order in which ``spark.batch.apply`` calls those functions. A table refuses
writes for a while; a write may come and not be answered; a question may be refused; the job dies anywhere.

At each write: no event is written twice, and all in the order of the topic. At the end all are written.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import spark.pending.progress
import spark.pending.tries
from libs.sink_state.progress import BatchTimings, ParkedTable, TableProgress, TableTimings, Try
from spark.pending import retries
from spark.pending.progress import (
    TableCommit,
    TableOutcome,
    has_noted,
    known_table,
    store_progress,
    table_after,
    with_batch,
)
from spark.pending.tries import Tries, settle
from spark.sinks.port import BatchIdentity, TableRefused
from tests.simulation import scheduler
from tests.simulation.log import LOG
from tests.simulation.violation import Violation

TOPICS: Final = ("a.s.shop.items", "a.s.shop.orders")
_QUERY: Final = "q"
_BATCHES: Final = 120


class Crash(Exception):
    """The job is killed here."""


class NotAnswered(TableRefused):
    """A write was sent, and nobody heard whether it came."""


class Warehouse:
    """Logs of tables, each write with the identity of its batch."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.rows: dict[str, list[int]] = {topic: [] for topic in TOPICS}
        self._noted: set[tuple[str, BatchIdentity]] = set()
        self.refusing: set[str] = set()

    def is_applied(self, _spark: object, place: Any, batch: BatchIdentity, _offsets: object) -> bool:
        """As ``Sink.is_applied``. Raises TableRefused."""
        topic = str(place)
        if topic in self.refusing and self._world.happens(0.5):
            raise TableRefused(f"{topic} does not say")
        return (topic, batch) in self._noted

    def write(self, topic: str, batch: BatchIdentity, events: Sequence[int]) -> None:
        """One commit. Raises TableRefused, NotAnswered."""
        world = self._world
        world.gap("before a commit")
        if topic in self.refusing:
            raise TableRefused(f"{topic} refuses")
        for event in events:
            if event != len(self.rows[topic]):
                what = "again" if event < len(self.rows[topic]) else f"before event {len(self.rows[topic])}"
                raise Violation(f"{topic}: event {event} is written {what}, by batch {batch.batch_id}")
            self.rows[topic].append(event)
        self._noted.add((topic, batch))
        world.note(f"{topic} has events up to {len(self.rows[topic])}")
        world.gap("after a commit")
        if world.happens(world.unanswered):
            raise NotAnswered(f"{topic} does not answer")


class _File:
    def __init__(self, world: "World") -> None:
        self._world = world

    def read_bytes(self) -> bytes:
        """Raises FileNotFoundError."""
        if self._world.stored is None:
            raise FileNotFoundError
        return self._world.stored


class World:
    """One run."""

    def __init__(self, seed: int, *, traces: bool = False) -> None:
        self.random = random.Random(seed)
        self.steps = 0
        self.trace: list[str] = []
        self._traces = traces
        self.stored: bytes | None = None
        """The progress file."""
        self.unanswered = self.random.choice((0.0, 0.1, 0.3))
        self._crashes = self.random.choice((0.0, 0.03, 0.1))
        self._warehouse = Warehouse(self)
        self._ends = dict.fromkeys(TOPICS, 0)
        """Of the topics."""
        self._dealt: list[dict[str, tuple[int, int]]] = []
        """The offsets of Spark's batches, by their number."""
        self._done = 0
        """Batches that Spark knows to be done."""
        self._now_s = 0.0
        self._limit = 4
        """Offsets that a piece of the waiting events has, about; the job's settings, which may be others in its next life."""

    def note(self, text: str) -> None:
        """One line of the trace."""
        if self._traces:
            self.trace.append(f"{len(self._dealt) - 1:4}  {text}")

    def happens(self, share: float) -> bool:
        """A choice of the seed's."""
        self.steps += 1
        return self.random.random() < share

    def gap(self, where: str) -> None:
        """Perhaps the job dies here."""
        if self.happens(self._crashes):
            self.note(f"dies {where}")
            raise Crash

    def _replace(self, _file: object, content: bytes) -> None:
        self.gap("before the progress is stored")
        self.stored = content
        self.gap("after the progress is stored")

    def run(self) -> None:
        """Raises Violation."""
        with scheduler.replaced(
            (spark.pending.progress, "progress_path", lambda *_: _File(self)),
            (spark.pending.progress, "replace_durably", self._replace),
            (spark.pending.tries, "log", LOG),
        ):
            rounds = self.random.randrange(5, 40)
            for number in range(_BATCHES + rounds):
                if number < rounds:
                    self._disturb()
                else:
                    self._crashes = self.unanswered = 0.0
                    self._warehouse.refusing.clear()
                    self._now_s += 10_000.0
                    if all(len(self._warehouse.rows[topic]) == end for topic, end in self._ends.items()):
                        return
                self._live()
        missing = {topic: end - len(self._warehouse.rows[topic]) for topic, end in self._ends.items()}
        raise Violation(f"after {_BATCHES} batches of a whole warehouse there are events yet to be written: {missing}")

    def _disturb(self) -> None:
        for topic in TOPICS:
            self._ends[topic] += self.random.choice((0, 0, 1, 3, 12))
            if self.happens(0.2):
                self._warehouse.refusing ^= {topic}
        self._now_s += self.random.choice((1.0, 100.0))

    def _live(self) -> None:
        """One life of the job: some batches."""
        self._limit = self.random.choice((2, 4, 9))
        tried = retries.Retries(clock=lambda: self._now_s)
        try:
            for _ in range(self.random.choice((1, 2, 5))):
                if self._done == len(self._dealt):
                    before = self._dealt[-1] if self._dealt else dict.fromkeys(TOPICS, (0, 0))
                    self._dealt.append({topic: (before[topic][1], end) for topic, end in self._ends.items()})
                self._batch(self._done, tried)
                self._done += 1
        except Crash:
            return

    # --- as spark.batch.apply

    def _batch(self, number: int, tried: retries.Retries) -> None:
        folder, batch = Path(), BatchIdentity(_QUERY, number)
        progress = spark.pending.progress.load_progress(folder, "a")
        sink: Any = self._warehouse
        spark_session: Any = None
        parked = progress.parked_topics
        settled = settle(sink, spark_session, batch, progress, may_wait=True)
        if settled.of_earlier:
            store_progress(folder, settled.stored)
        for topic in sorted(settled.of_batch | settled.of_earlier):
            tried.written(topic)
        tries = Tries(folder, settled, lambda: self.gap("after a try is noted"))
        progress = settled.progress
        fresh = {topic: span for topic, span in self._dealt[number].items() if span[1] > span[0]}
        self.note(f"batch {number}: {fresh}, parked {sorted(parked)}")
        topics = sorted({*fresh, *parked} - settled.of_batch)
        outcomes = [
            outcome
            for topic in topics
            if (outcome := self._table(batch, progress, tries, tried, topic, fresh.get(topic))) is not None
        ]
        store_progress(
            folder,
            with_batch(
                progress,
                batch,
                outcomes,
                timings=BatchTimings(),
                now_us=1,
                tries=tries.open,
                settled=settled.of_batch,
            ),
        )

    def _table(
        self,
        batch: BatchIdentity,
        progress: Any,
        tries: Tries,
        tried: retries.Retries,
        topic: str,
        span: tuple[int, int] | None,
    ) -> TableOutcome | None:
        known = progress.tables.get(topic)
        parked = None if known is None else known.parked
        if parked is not None and parked.is_catching_up and has_noted(progress, batch):
            return None
        is_retry = parked is not None and tried.is_due(topic, 1) and not tries.is_unknown(topic)
        if span is None and not is_retry:
            return None
        fresh_from, fresh_to = ({}, {}) if span is None else ({0: span[0]}, {0: span[1]})
        rest, read_to = None, fresh_to
        first, last = (0, 0) if span is None else span
        if parked is not None:
            parked = retries.with_joined(parked, fresh_from, fresh_to)
            if is_retry:
                read_to = retries.first_piece(parked.from_offsets, parked.to_offsets, self._limit)
                rest = retries.left_behind(parked, read_to)
                first, last = parked.from_offsets[0], read_to[0]
        if parked is not None and not is_retry:
            return _outcome(topic, 0, parked=parked)
        commit = TableCommit(1, TableTimings())
        becomes = self._becomes(progress, topic, last - first, commit, rest)
        offered = Try(query_id=batch.query_id, batch_id=batch.batch_id, offsets=read_to, ends=read_to, becomes=becomes)
        is_asked = False
        try:
            if self._warehouse.is_applied(None, topic, batch, read_to):
                return _outcome(topic, last - first, commit=TableCommit(1), parked=rest)
            is_asked = True
            if tries.is_parked(topic):
                tries.begin(topic, offered)
            self._warehouse.write(topic, batch, range(first, last))
        except TableRefused as refused:
            if isinstance(refused, NotAnswered) or not is_asked:
                tries.leave(topic, offered)
            if parked is None:
                waits = ParkedTable(because=str(refused), from_offsets=fresh_from, to_offsets=fresh_to)
                return _outcome(topic, 0, parked=waits)
            return _outcome(topic, 0, parked=parked)
        tried.written(topic)
        return _outcome(topic, last - first, commit=commit, parked=rest)

    def _becomes(
        self, progress: Any, topic: str, rows: int, commit: TableCommit, rest: ParkedTable | None
    ) -> TableProgress:
        outcome = _outcome(topic, rows, commit=commit, parked=rest)
        return table_after(known_table(progress, outcome), outcome, commit, is_repeat=False, now_us=1)


def _outcome(
    topic: str, rows: int, *, commit: TableCommit | None = None, parked: ParkedTable | None = None
) -> TableOutcome:
    return TableOutcome(topic, "s", topic, topic, rows, "", 0, {}, commit=commit, parked=parked)
