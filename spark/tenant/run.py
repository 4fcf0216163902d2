"""One start of a tenant's query, up to its end: its batches, in the turns that the job deals."""

import secrets
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from libs.telemetry.metrics import SINK_INTERVAL
from libs.types.tenant import SinkSettings
from spark.batch.apply import apply_batch
from spark.batch.pace import Pace, first_pace, next_pace
from spark.batch.tenant_sink import TenantSink
from spark.jvm.java import activate
from spark.kafka.topic_ends import Ends
from spark.pending.progress import load_progress, report_faults
from spark.sinks.port import BatchIdentity
from spark.tenant.lineage import TenantLineage
from spark.tenant.stream import TenantStream
from spark.tenant.turns import Turns

_STOP_POLL_S: Final = 0.05

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Schedule:
    """When a batch may begin."""

    pace: Pace
    due_at_s: float = 0.0
    last_took_s: float = 0.0

    def after(
        self, settings: SinkSettings, started_s: float, ended_s: float, *, rows: int, is_full: bool
    ) -> "_Schedule":
        """After a batch between these times; ``rows`` and ``is_full`` as in ``next_pace``."""
        took_s = ended_s - started_s
        pace = next_pace(settings, self.pace, rows=rows, took_s=took_s, is_full=is_full)
        return _Schedule(pace, max(started_s + settings.trigger_s, ended_s + pace.pause_s), took_s)


class QueryRun:
    """One start of the query, up to its end."""

    def __init__(
        self,
        sink: TenantSink,
        stream: TenantStream,
        turns: Turns,
        lineage: TenantLineage | None,
        is_over: threading.Event,
        stop_timeout_s: float,
    ) -> None:
        """``is_over``: set when the query is stopped. ``stop_timeout_s``: how long ``stop`` waits for a batch to end."""
        self._is_over = is_over
        self._stop_timeout_s = stop_timeout_s
        self._sink = sink
        self._stream = stream
        self._turns = turns
        self._group = f"headwater-{secrets.token_hex(8)}"
        """Of Spark's jobs, by which they are cancelled."""
        self.lineage = lineage
        self._schedule = _Schedule(first_pace(sink.settings))
        self.applied_batches = 0
        self.parked: frozenset[str] = frozenset()
        """Topics of tables that are parked now."""
        self.is_applying = False
        """A batch is at work; that may outlast the query's end."""
        self.failure: BaseException | None = None
        """The error that ended it."""

    @property
    def tenant(self) -> str:
        return self._sink.tenant.tenant

    @property
    def warehouse(self) -> str:
        return self._sink.settings.warehouse

    @property
    def due_at_s(self) -> float:
        return self._schedule.due_at_s

    @property
    def last_took_s(self) -> float:
        return self._schedule.last_took_s

    @property
    def trigger_s(self) -> float:
        return self._sink.settings.trigger_s

    @property
    def looks_again(self) -> bool:
        return self._stream.may_have_lost

    @property
    def query_id(self) -> str:
        return self._stream.query_id

    def has_new(self, ends: Ends) -> bool:
        return not self._is_over.is_set() and self._stream.has_new(ends)

    def run(self, spark: SparkSession, ends: Ends) -> bool:
        """One batch, in a turn of the tenant's."""
        self.is_applying = True
        try:
            if self._is_over.is_set():
                return False
            with structlog.contextvars.bound_contextvars(tenant=self.tenant), self._sink.query.metered():
                self._run(spark, ends)
        except BaseException as error:
            if not self._is_over.is_set():
                self.failure = error
            return False
        finally:
            self.is_applying = False
        return not self._is_over.is_set()

    def _run(self, spark: SparkSession, ends: Ends) -> None:
        started_s = time.monotonic()
        activate(spark)
        # Of this thread, and of those that go through the batch's tables.
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.tenant)
        spark.sparkContext.setJobGroup(self._group, f"a micro-batch of {self.tenant}")
        batch_id = self._stream.next_batch(ends, self._turns.begins_of)
        rows = apply_batch(self._sink, BatchIdentity(self.query_id, batch_id), spark)
        self._stream.done()
        self.note_parked()
        self.applied_batches += 1
        self._schedule = self._schedule.after(
            self._sink.settings, started_s, time.monotonic(), rows=rows, is_full=self._stream.is_full
        )
        SINK_INTERVAL.labels(self.tenant, self.warehouse).set(self._schedule.pace.interval_s)

    def join(self) -> None:
        """Have turns from now on."""
        self._turns.join(self)

    def note_parked(self) -> None:
        """Learn from the progress file which tables are, and report the tenant's faults."""
        progress = load_progress(self._sink.state.folder, self._sink.tenant.tenant)
        self.parked = progress.parked_topics
        report_faults(progress)

    def is_idle(self) -> bool:
        """Whether no batch is at work, and none is due."""
        return self._turns.is_idle(self.tenant)

    @property
    def has_due_retries(self) -> bool:
        """Whether a parked table is to be tried again."""
        return self._sink.pending.retries.is_any_due(self.parked)

    def interrupt(self) -> None:
        """Begin no further batch, and cancel Spark's jobs of the one that runs."""
        self._is_over.set()
        self._turns.leave(self)
        if self.is_applying:
            with suppress(Py4JJavaError):
                self._turns.cancel(self._group)

    def stop(self) -> None:
        """End the query, in the middle of a batch if need be; see ``is_applying``."""
        self.interrupt()
        deadline_s = time.monotonic() + self._stop_timeout_s
        while self.is_applying and time.monotonic() < deadline_s:
            time.sleep(_STOP_POLL_S)
        if self.is_applying:  # the other tenants go on
            log.warning("sink_query_stops_slowly", tenant=self.tenant)
