"""The query of one tenant: its micro-batches. Started, watched, restarted with back-off, or halted for a human.

``sink_job`` holds one for each tenant and calls ``supervise`` once a second; ``turns`` gives it the turns in which its batches
run. A failure here is this tenant's only.
"""

import secrets
import threading
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from libs.errors import Fenced, PipelineHalted, TransientError
from libs.sink_state.progress import SinkProgress
from libs.telemetry.faults import BATCH_FAILS, lift_fault, raise_fault
from libs.telemetry.metrics import (
    SINK_HALTED,
    SINK_INTERVAL,
    SINK_LAG,
    SINK_PARKED_KEYS,
    SINK_PARKED_TABLES,
    SINK_QUERY_FAILURES,
    SINK_SERVED,
)
from libs.types.fault import FaultScope
from libs.types.tenant import TenantSpec
from spark.batch.apply import apply_batch
from spark.batch.events_at_hand import Decoders
from spark.batch.files import cut_file, read_ahead_file
from spark.batch.goes_on import made_again
from spark.batch.newest_events import NewestEvents
from spark.batch.pace import batch_limit, first_pace, next_pace
from spark.batch.table_batch import TenantSink
from spark.jvm.containment import is_of_job
from spark.jvm.errors import described, lost_partitions
from spark.jvm.java import activate
from spark.kafka.delivered_schemas import DeliveredSchemas
from spark.kafka.topic_ends import Ends
from spark.kafka.topic_ids import topic_ids
from spark.owed.parked_keys import ParkedKeysFile
from spark.owed.progress import load_progress, store_progress, tell_faults
from spark.owed.resync_answers import ResyncAnswers
from spark.owed.retries import Retries
from spark.owed.table_failures import TableFailures
from spark.settings import SinkJobSettings
from spark.sinks.port import BatchIdentity, Sink
from spark.tenant.cpu_meter import CpuMeter
from spark.tenant.kept_states import KeptStates
from spark.tenant.lineage import Lineage, TenantLineage
from spark.tenant.stream import TenantStream
from spark.tenant.stream_log import StreamLog
from spark.tenant.turns import Turns
from spark.tenant.wake import wake

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
# With pauses of 1, 2, 4, … 60 s, the same batch has failed for six minutes. A server that does not answer (TransientError) may
# be away for longer, and ends no tenant.
_FAILURES_BEFORE_HALT: Final = 10
_STOP_POLL_S: Final = 0.05
_STOP_TIMEOUT: Final = "spark.sql.streaming.stopTimeout"

log = structlog.get_logger()


class _Run:
    """One start of the query, up to its end."""

    def __init__(
        self,
        context: TenantSink,
        stream: TenantStream,
        turns: Turns,
        lineage: TenantLineage | None,
        is_over: threading.Event,
        stop_timeout_s: float,
    ) -> None:
        """``is_over``: set when the query is stopped. ``stop_timeout_s``: how long ``stop`` waits for a batch to end."""
        self._is_over = is_over
        self._stop_timeout_s = stop_timeout_s
        self._context = replace(context, is_stopping=is_over.is_set)
        self._stream = stream
        self._turns = turns
        self._group = f"headwater-{secrets.token_hex(8)}"
        """Of Spark's jobs, by which they are cancelled."""
        self.lineage = lineage
        self._pace = first_pace(context.settings)
        self.due_at_s = 0.0
        """When its next batch may begin."""
        self.last_took_s = 0.0
        self.applied_batches = 0
        self.parked: frozenset[str] = frozenset()
        """Topics of tables that are parked now."""
        self.woken_behind = -1
        """How many batches were applied when it was woken last."""
        self.wake_at_s = 0.0
        """Not before."""
        self.is_waking = False
        self.kept_behind = 0
        """How many batches were applied, and noted, when the state was kept at rest last."""
        self.keep_at_s = 0.0
        """Not before."""
        self.is_keeping = False
        self.look_at_s = 0.0
        """When to look at the topics next."""
        self.is_looking = False
        self.is_applying = False
        """A batch is at work; that may outlast the query's end."""
        self.failure: BaseException | None = None
        """The error that ended it."""

    @property
    def tenant(self) -> str:
        return self._context.tenant.tenant

    @property
    def warehouse(self) -> str:
        return self._context.settings.warehouse

    @property
    def trigger_s(self) -> float:
        return self._context.settings.trigger_s

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
            with structlog.contextvars.bound_contextvars(tenant=self.tenant), self._context.metered():
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
        rows = apply_batch(self._context, BatchIdentity(self.query_id, batch_id), spark)
        self._stream.done()
        self.note_parked()
        self.applied_batches += 1
        ended_s = time.monotonic()
        self.last_took_s = ended_s - started_s
        self._pace = next_pace(
            self._context.settings, self._pace, rows=rows, took_s=self.last_took_s, is_full=self._stream.is_full
        )
        self.due_at_s = max(started_s + self.trigger_s, ended_s + self._pace.pause_s)
        SINK_INTERVAL.labels(self.tenant, self._context.settings.warehouse).set(self._pace.interval_s)

    def join(self) -> None:
        """Have turns from now on."""
        self._turns.join(self)

    def note_parked(self) -> None:
        """Learn from the progress file which tables are, and report the tenant's faults."""
        progress = load_progress(self._context.state_dir, self._context.tenant.tenant)
        self.parked = progress.parked_topics
        tell_faults(progress)

    def is_idle(self) -> bool:
        """Whether no batch is at work, and none is due."""
        return self._turns.is_idle(self.tenant)

    @property
    def has_due_retries(self) -> bool:
        """Whether a parked table is to be tried again."""
        return self._context.retries.is_any_due(self.parked)

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
        if self.is_applying:  # the other tenants need not wait
            log.warning("sink_query_stops_slowly", tenant=self.tenant)


class TenantQuery:
    """One tenant's query over the life of the job."""

    def __init__(
        self,
        spark: SparkSession,
        settings: SinkJobSettings,
        tenant: TenantSpec,
        sink: Sink,
        lineage: Lineage | None = None,
        *,
        behind: "TenantQuery | None" = None,
        kept: KeptStates | None = None,
        cpu: CpuMeter | None = None,
        turns: Turns | None = None,
        decoders: Decoders | None = None,
    ) -> None:
        """``behind``: the tenant's query before this one, stopped; its last batch is waited for. ``kept``: has the tenant's
        state, open; None: the job's folder alone has. ``cpu``: of the session; None: the tenant's CPU is not measured.
        ``turns``, ``decoders``: those of the job, which it shares with others; None: it has its own."""
        assert tenant.sink is not None
        self._kept = kept
        self._cpu = cpu
        self.fenced: Fenced | None = None
        """Another job has the tenant."""
        self._lineage = lineage
        self.tenant = tenant
        self._sink_settings = tenant.sink
        self._spark = spark
        self._settings = settings
        self._sink = sink
        self._behind = behind
        self._turns = turns
        self._decoders = Decoders() if decoders is None else decoders
        self._own_turns: Turns | None = None
        self._run: _Run | None = None
        self._stopped: _Run | None = None
        self._failures: list[bool] = []
        """Of the batch, in a row: whether each is anything but a server's silence."""
        self._table_failures = TableFailures()
        self._start_at_s = 0.0
        self._halted_because: str | None = None
        self._labels = (tenant.tenant, tenant.sink.warehouse)
        self._tell_halted(None)
        SINK_SERVED.labels(tenant.tenant).set(1)

    @property
    def is_running(self) -> bool:
        """Whether the query stands."""
        return self._run is not None

    @property
    def is_halted(self) -> bool:
        """Whether a human is needed."""
        return self._halted_because is not None

    def supervise(self) -> None:
        """Start the query when it is due; notice its end."""
        if self.fenced is not None or self._halted_because is not None or not self._is_first_at_rest():
            return
        try:
            self._look_after()
        except Exception as error:
            if is_of_job(error):
                raise
            log.error("refused_unforeseen", tenant=self.tenant.tenant, exc_info=error)
            self.stop()
            self._note_failure(error)

    def _look_after(self) -> None:
        if self._run is None:
            if time.monotonic() >= self._start_at_s:
                try:
                    self._run = self._start()
                except PipelineHalted as error:  # of this tenant only: its log of batches
                    self._note_failure(error)
            return
        if self._run.applied_batches:
            self._failures.clear()
            lift_fault(BATCH_FAILS, FaultScope(tenant=self.tenant.tenant))
        if self._run.failure is None:
            if self._run.is_idle():
                SINK_LAG.labels(*self._labels).set(0)
                self._wake(self._run)
                self._look_at_topics(self._run)
                self._keep_at_rest(self._run)
            return
        failed, self._run = self._run, None
        self._stopped = failed
        if failed.lineage is not None:
            failed.lineage.failed(described(failed.failure))
        self._note_failure(failed.failure)

    def interrupt(self) -> None:
        """Have ``stop`` wait for less: of several queries, each ends while the others do."""
        if self._run is not None:
            self._run.interrupt()

    def stop(self) -> None:
        """End the query, in the middle of a batch if need be: a batch that is cut off comes again."""
        if self._run is not None:
            self._stopped, self._run = self._run, None
            self._stopped.stop()
            if self._stopped.lineage is not None:
                self._stopped.lineage.stopped()
        own, self._own_turns = self._own_turns, None
        if own is not None:
            own.close()

    @property
    def is_at_rest(self) -> bool:
        """Stopped, and the batch that was cut off has ended too: nothing of the tenant is written any more."""
        stands = self._run is not None or (self._stopped is not None and self._stopped.is_applying)
        return not stands and self._is_first_at_rest()

    def forget(self) -> None:
        """Nobody serves the tenant here any more: its gauges would stand still for ever."""
        SINK_SERVED.remove(self.tenant.tenant)
        for gauge in (SINK_HALTED, SINK_INTERVAL, SINK_LAG, SINK_PARKED_KEYS, SINK_PARKED_TABLES):
            gauge.remove(*self._labels)
        tell_faults(SinkProgress(tenant=self.tenant.tenant))
        lift_fault(BATCH_FAILS, FaultScope(tenant=self.tenant.tenant))

    def _is_first_at_rest(self) -> bool:
        if self._behind is not None and self._behind.is_at_rest:
            self._behind = None
        return self._behind is None

    def _start(self) -> _Run:
        name = self.tenant.tenant
        state_dir = Path(self._settings.state_dir)
        lineage = None if self._lineage is None else TenantLineage(self._lineage, self._settings, self.tenant)
        limit = batch_limit(self._sink_settings, self._settings.max_offsets_per_trigger)
        fails_on_loss = name not in self._settings.accepts_losses_of
        is_over, kept = threading.Event(), self._kept
        keep = (lambda: None) if kept is None else partial(kept.keep, name, is_over.is_set)
        context = TenantSink(
            tenant=self.tenant,
            settings=self._sink_settings,
            sink=self._sink,
            kafka=self._settings.kafka,
            schemas=DeliveredSchemas(self._settings.kafka, name, json_as_variant=self._sink_settings.json_as_variant),
            state_dir=state_dir,
            tables_in_parallel=self._settings.tables_in_parallel,
            retries=Retries(),
            parked_keys=ParkedKeysFile(state_dir, name, keep=keep),
            max_parked_keys=self._settings.max_parked_keys,
            resyncs=ResyncAnswers(state_dir, name, keep=keep),
            newest_events=NewestEvents(self._settings.kafka),
            cut_file=cut_file(state_dir, name),
            read_ahead_file=read_ahead_file(state_dir, name),
            batch_limit=limit,
            fails_on_loss=fails_on_loss,
            failures=self._table_failures,
            decoders=self._decoders,
            keep=keep,
            confirm=(lambda: None) if kept is None else partial(kept.confirm, name, is_over.is_set),
            metered=nullcontext if self._cpu is None else partial(self._cpu.driving, name),
            tell_applied=(lambda _: None) if lineage is None else lineage.applied,
        )
        stream = TenantStream(StreamLog(state_dir, name), self.tenant, limit=limit, fails_on_loss=fails_on_loss)
        run = _Run(context, stream, self._shared_turns(), lineage, is_over, _stop_timeout_s(self._spark))
        run.note_parked()
        if lineage is not None:  # before the first batch's report
            lineage.started()
        run.join()
        log.info("sink_query_started", tenant=name, query_id=run.query_id, mode=self._sink_settings.mode.value)
        return run

    def _shared_turns(self) -> Turns:
        if self._turns is not None:
            return self._turns
        if self._own_turns is None:
            self._own_turns = Turns(self._spark, self._settings.kafka, at_once=1)
        return self._own_turns

    def _wake(self, run: _Run) -> None:
        """Once, until the batch has come. Beside the job's loop: while Kafka is away it would stand for every such tenant."""
        is_woken = run.is_waking or run.woken_behind == run.applied_batches
        if is_woken or time.monotonic() < run.wake_at_s or not run.has_due_retries:
            return
        run.is_waking = True
        threading.Thread(target=self._send_wake, args=(run, run.applied_batches), daemon=True).start()

    def _send_wake(self, run: _Run, applied_batches: int) -> None:
        try:
            wake(self._spark, self._settings.kafka, self.tenant)
            run.woken_behind = applied_batches
        except Exception as error:
            run.wake_at_s = time.monotonic() + _LONGEST_PAUSE_S
            reason = described(error)
            log.warning("sink_not_woken", tenant=self.tenant.tenant, reason=reason, retry_in_s=_LONGEST_PAUSE_S)
        finally:
            run.is_waking = False

    def _look_at_topics(self, run: _Run) -> None:
        """Once a minute: a topic that was made again, and ends where the old one did, brings no batch."""
        if run.is_looking or run.is_waking or time.monotonic() < run.look_at_s:
            return
        run.is_looking = True
        threading.Thread(target=self._look_now, args=(run,), daemon=True).start()

    def _look_now(self, run: _Run) -> None:
        name = self.tenant.tenant
        try:
            tables = load_progress(Path(self._settings.state_dir), name).tables
            known = {topic: table for topic, table in tables.items() if table.topic_id and table.parked is None}
            ids = topic_ids(self._spark, self._settings.kafka, known)
            if any(made_again(name, known[topic], found) for topic, found in ids.items()):
                wake(self._spark, self._settings.kafka, self.tenant)
        except Exception as error:
            log.warning("sink_topics_not_looked_at", tenant=name, reason=described(error), retry_in_s=_LONGEST_PAUSE_S)
        finally:
            run.look_at_s = time.monotonic() + _LONGEST_PAUSE_S
            run.is_looking = False

    def _keep_at_rest(self, run: _Run) -> None:
        """Once Spark has noted the last batch: else a job that begins from the object would take it once more, maybe when Kafka
        has its events no longer. Beside the job's loop, as ``_wake``."""
        is_kept = self._kept is None or run.is_keeping or run.kept_behind == run.applied_batches
        if is_kept or time.monotonic() < run.keep_at_s:
            return
        run.is_keeping = True
        threading.Thread(target=self._keep_now, args=(run, run.applied_batches), daemon=True).start()

    def _keep_now(self, run: _Run, applied_batches: int) -> None:
        assert self._kept is not None
        try:
            self._kept.keep_now(self.tenant.tenant)
            run.kept_behind = applied_batches
        except Fenced as error:
            self.fenced = error
        except Exception as error:
            run.keep_at_s = time.monotonic() + _LONGEST_PAUSE_S
            reason = described(error)
            log.warning("sink_state_not_kept", tenant=self.tenant.tenant, reason=reason, retry_in_s=_LONGEST_PAUSE_S)
        finally:
            run.is_keeping = False

    def _note_failure(self, error: BaseException | None) -> None:
        if isinstance(error, Fenced):
            self.fenced = error
            return
        reason = described(error)
        self._failures.append(not isinstance(error, TransientError))
        SINK_QUERY_FAILURES.labels(*self._labels).inc()
        if isinstance(error, PipelineHalted):
            self._halt(reason)
        elif (lost := lost_partitions(error)) is not None:
            self._halt(
                f"Kafka has no more what was to be read next of {lost}: its retention took it, or the topic was deleted. Raise "
                f"the retention; then start the job once with accepts_losses_of: [{self.tenant.tenant}], and headwater check "
                f"{self.tenant.tenant} tells which tables to resync"
            )
        elif sum(self._failures) >= _FAILURES_BEFORE_HALT:
            self._halt(
                f"the same batch failed {sum(self._failures)} times, at last with: {reason}; mend that and restart the job"
            )
        else:
            pause_s = min(_FIRST_PAUSE_S * 2 ** min(len(self._failures) - 1, 10), _LONGEST_PAUSE_S)
            self._start_at_s = time.monotonic() + pause_s
            log.warning(
                "sink_query_failed",
                tenant=self.tenant.tenant,
                reason=reason,
                failures=len(self._failures),
                retry_in_s=pause_s,
            )
            if len(self._failures) > 1:
                raise_fault(BATCH_FAILS, FaultScope(tenant=self.tenant.tenant), happened=reason)

    def _halt(self, reason: str) -> None:
        lift_fault(BATCH_FAILS, FaultScope(tenant=self.tenant.tenant))
        self._halted_because = reason
        log.error("sink_query_halted", tenant=self.tenant.tenant, reason=reason)
        self._tell_halted(reason)

    def _tell_halted(self, because: str | None) -> None:
        """To the metrics and to readers of the progress file. None: not, or not any more."""
        SINK_HALTED.labels(*self._labels).set(because is not None)
        state_dir = Path(self._settings.state_dir)
        progress = load_progress(state_dir, self.tenant.tenant)
        if progress.halted_because != because:
            progress = msgspec.structs.replace(progress, halted_because=because)
            store_progress(state_dir, progress)
        tell_faults(progress)


def _stop_timeout_s(spark: SparkSession) -> float:
    """Spark's own setting for how long the stop of a query waits, in seconds."""
    return float(str(spark.conf.get(_STOP_TIMEOUT, "8s")).removesuffix("s"))
