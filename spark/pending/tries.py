"""The result of a try of a parked table: noted before it is written, asked for before the table is met again (ADR 24).

Waiting events of a parked table are written under the identity of the batch that tries it. Killed after that write, the batch
comes again, and may not try the table any more, or may try other events of it: the next batch would write them under its own
identity, and a log or a history have them twice. So the try is noted with the progress, which still has the table parked, and
a batch that begins with a noted try asks the warehouse first. If the warehouse has it, the table goes on from there.

    begin ▶ write ▶ store_progress        killed between: settle ▶ pass over | try
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from libs.sink_state.progress import SinkProgress, TableProgress, Try
from libs.sink_state.stream_offsets import joined_offsets
from libs.types.warehouse import WarehouseTable, table_named
from spark.jvm.errors import described
from spark.pending.progress import store_progress
from spark.pending.retries import left_behind
from spark.sinks.port import BatchIdentity, Sink, TableRefused

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Settled:
    """A tenant's progress when its tries were asked for."""

    progress: SinkProgress
    """With those that were found, of this batch too; its tries are those that the warehouse did not answer for."""
    stored: SinkProgress
    """The file's content while the batch runs: a table whose try was of this very batch is parked there, with the try, so
    that it is found once more should the batch come again."""
    of_batch: frozenset[str]
    """Topics of those tables: all that the batch has of them is written."""
    of_earlier: frozenset[str]
    """For tables whose try was an earlier batch's: they go on with later events."""
    not_found: Mapping[str, Try]
    """By topic: the warehouse has nothing of these. Dead letters that they took up wait as before."""

    @property
    def places(self) -> tuple[WarehouseTable, ...]:
        """Where those tables lie whose try was found."""
        found = sorted({*self.of_batch, *self.of_earlier})
        return tuple(table_named(self.progress.tables[topic].warehouse_table) for topic in found)


def settle(sink: Sink, spark: SparkSession, batch: BatchIdentity, progress: SinkProgress, *, may_wait: bool) -> Settled:
    """Ask for every try that is noted. Of one that the warehouse does not answer for the next batch asks again; without
    ``may_wait`` that is raised.

    Raises:
        TransientError, PipelineHalted: as ``Sink.is_applied``.
    """
    tables = dict(progress.tables)
    of_batch: set[str] = set()
    of_earlier: set[str] = set()
    unknown, not_found = {}, {}
    for topic, tried in progress.tries.items():
        identity = BatchIdentity(tried.query_id, tried.batch_id)
        try:
            place = table_named(tried.becomes.warehouse_table)
            is_written = sink.is_applied(spark, place, identity, tried.offsets)
        except (PySparkException, Py4JJavaError, TableRefused) as error:
            if not may_wait:
                raise
            log.error("sink_try_unknown", topic=topic, batch_id=tried.batch_id, reason=described(error))
            unknown[topic] = tried
            continue
        if not is_written:
            not_found[topic] = tried
            continue
        log.info("sink_try_found", topic=topic, batch_id=tried.batch_id)
        tables[topic] = table_behind(tables[topic], tried)
        (of_batch if identity == batch else of_earlier).add(topic)
    rows = progress.rows + sum(tables[topic].rows - progress.tables[topic].rows for topic in of_batch | of_earlier)
    earlier_rows = sum(tables[topic].rows - progress.tables[topic].rows for topic in of_earlier)
    stored = msgspec.structs.replace(
        progress,
        rows=progress.rows + earlier_rows,
        tables={**progress.tables, **{topic: tables[topic] for topic in of_earlier}},
        tries={topic: tried for topic, tried in progress.tries.items() if topic not in of_earlier},
    )
    settled = msgspec.structs.replace(progress, rows=rows, tables=tables, tries=unknown)
    return Settled(settled, stored, frozenset(of_batch), frozenset(of_earlier), not_found)


def table_behind(known: TableProgress, tried: Try) -> TableProgress:
    """A parked table whose try is in the warehouse. Events may have joined the waiting ones since."""
    if known.parked is None:
        return known
    before, after = known.parked, tried.becomes.parked
    to_offsets = joined_offsets(before.to_offsets, {} if after is None else after.to_offsets, choose=max)
    waiting = msgspec.structs.replace(before, to_offsets=to_offsets)
    return msgspec.structs.replace(tried.becomes, parked=left_behind(waiting, tried.ends))


@dataclass(slots=True)
class Tries:
    """Of the batch that runs; for any thread."""

    state_dir: Path
    settled: Settled
    keep: Callable[[], None]
    """Called after each note; its exceptions reach the caller."""
    _open: dict[str, Try] = field(init=False)
    _stored: SinkProgress = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._open = dict(self.settled.progress.tries)
        self._stored = self.settled.stored

    def is_unknown(self, topic: str) -> bool:
        """Whether the warehouse did not answer for a try of it: until it does, nothing of the table is written."""
        return topic in self.settled.progress.tries

    def is_parked(self, topic: str) -> bool:
        """Whether it was parked when the batch began."""
        return topic in self.settled.progress.parked_topics

    def begin(self, topic: str, tried: Try) -> None:
        """Note durably that a table which was parked is written now, and have it kept."""
        with self._lock:
            tables = {**self._stored.tables, topic: self.settled.progress.tables[topic]}
            tries = {**self._stored.tries, topic: tried}
            self._stored = msgspec.structs.replace(self._stored, tables=tables, tries=tries)
            self._open[topic] = tried
            store_progress(self.state_dir, self._stored)
        self.keep()

    def leave(self, topic: str, tried: Try) -> None:
        """Nobody knows whether a table that is parked for that was written: noted with the batch's end."""
        with self._lock:
            self._open.setdefault(topic, tried)

    @property
    def open(self) -> Mapping[str, Try]:
        """Tries with an unknown result."""
        return self._open


def no_tries() -> Tries:
    """Between batches: no table is parked, and nothing was tried."""
    nothing = SinkProgress(tenant="")
    return Tries(Path(), Settled(nothing, nothing, frozenset(), frozenset(), {}), lambda: None)
