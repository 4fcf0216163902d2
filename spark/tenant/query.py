"""The query of one tenant: its micro-batches. Started, watched, restarted with back-off, or halted for a human.

``sink_job`` holds one for each tenant and calls ``supervise`` once a second; ``turns`` gives it the turns in which its batches
run. A failure here is this tenant's only.
"""

import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog
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
from libs.types.tenant import SinkSettings, TenantSpec
from spark.batch.events_at_hand import Decoders
from spark.batch.files import batch_files
from spark.batch.newest_events import NewestEvents
from spark.batch.pace import batch_limit
from spark.batch.tenant_sink import BatchLimits, QueryHooks, StateFolder, TenantSink
from spark.jvm.containment import is_of_job
from spark.jvm.errors import described, lost_partitions
from spark.kafka.delivered_schemas import DeliveredSchemas
from spark.pending.progress import load_progress, report_faults, store_progress
from spark.pending.table_failures import TableFailures
from spark.pending.work import pending_work_in
from spark.settings import SinkJobSettings
from spark.sinks.port import Sink
from spark.tenant.at_rest import AtRest
from spark.tenant.cpu_meter import CpuMeter
from spark.tenant.kept_states import KeptStates
from spark.tenant.lineage import Lineage, TenantLineage
from spark.tenant.run import QueryRun
from spark.tenant.stream import TenantStream
from spark.tenant.stream_log import StreamLog
from spark.tenant.turns import Turns

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
# With pauses of 1, 2, 4, … 60 s, the same batch has failed for six minutes. A server that does not answer (TransientError) may
# be away for longer, and ends no tenant.
_FAILURES_BEFORE_HALT: Final = 10
_STOP_POLL_S: Final = 0.05
_STOP_TIMEOUT: Final = "spark.sql.streaming.stopTimeout"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Job:
    """The parts of a job that its tenants' queries share."""

    spark: SparkSession
    settings: SinkJobSettings
    lineage: Lineage | None
    kept: KeptStates | None
    cpu: CpuMeter | None
    turns: Turns | None
    decoders: Decoders


@dataclass(frozen=True, slots=True)
class BackOff:
    """How often a query has failed in a row, and what follows from it."""

    failures: int = 0
    refusals: int = 0
    """Those among them that are anything but a server's silence."""
    start_at_s: float = 0.0
    """The query is not started before, by ``time.monotonic``."""
    halted_because: str | None = None
    """A human is needed; None: not."""


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
        self.fenced: Fenced | None = None
        """Another job has the tenant."""
        self.tenant = tenant
        self._job = _Job(spark, settings, lineage, kept, cpu, turns, Decoders() if decoders is None else decoders)
        self._sink = sink
        self._behind = behind
        self._own_turns: Turns | None = None
        self._run: QueryRun | None = None
        self._at_rest: AtRest | None = None
        """Of ``_run``."""
        self._stopped: QueryRun | None = None
        self._table_failures = TableFailures()
        self._back_off = BackOff()
        self._labels = (tenant.tenant, tenant.sink.warehouse)
        self._report_halted(None)
        SINK_SERVED.labels(tenant.tenant).set(1)

    @property
    def _sink_settings(self) -> SinkSettings:
        assert self.tenant.sink is not None
        return self.tenant.sink

    @property
    def is_running(self) -> bool:
        """Whether the query stands."""
        return self._run is not None

    @property
    def is_halted(self) -> bool:
        """Whether a human is needed."""
        return self._back_off.halted_because is not None

    def supervise(self) -> None:
        """Start the query when it is due; notice its end."""
        if self.fenced is not None or self._back_off.halted_because is not None or not self._is_first_at_rest():
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
            if time.monotonic() >= self._back_off.start_at_s:
                try:
                    self._run = self._start()
                except PipelineHalted as error:  # of this tenant only: its log of batches
                    self._note_failure(error)
            return
        if self._run.applied_batches:
            self._back_off = BackOff()
            lift_fault(BATCH_FAILS, FaultScope(tenant=self.tenant.tenant))
        if self._run.failure is None:
            if self._run.is_idle():
                SINK_LAG.labels(*self._labels).set(0)
                assert self._at_rest is not None
                self._at_rest.look_after()
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
        report_faults(SinkProgress(tenant=self.tenant.tenant))
        lift_fault(BATCH_FAILS, FaultScope(tenant=self.tenant.tenant))

    def _is_first_at_rest(self) -> bool:
        if self._behind is not None and self._behind.is_at_rest:
            self._behind = None
        return self._behind is None

    def _start(self) -> QueryRun:
        name = self.tenant.tenant
        state_dir = Path(self._job.settings.state_dir)
        lineage = (
            None if self._job.lineage is None else TenantLineage(self._job.lineage, self._job.settings, self.tenant)
        )
        limit = batch_limit(self._sink_settings, self._job.settings.max_offsets_per_trigger)
        fails_on_loss = name not in self._job.settings.accepts_losses_of
        is_over, kept = threading.Event(), self._job.kept
        keep = (lambda: None) if kept is None else partial(kept.keep, name, is_over.is_set)
        confirm = (lambda: None) if kept is None else partial(kept.confirm, name, is_over.is_set)
        sink = TenantSink(
            tenant=self.tenant,
            settings=self._sink_settings,
            sink=self._sink,
            kafka=self._job.settings.kafka,
            schemas=DeliveredSchemas(
                self._job.settings.kafka, name, json_as_variant=self._sink_settings.json_as_variant
            ),
            state=StateFolder(state_dir, keep, confirm),
            pending=pending_work_in(state_dir, name, keep=keep, failures=self._table_failures),
            limits=BatchLimits(
                offsets=limit,
                parked_keys=self._job.settings.max_parked_keys,
                tables_in_parallel=self._job.settings.tables_in_parallel,
                fails_on_loss=fails_on_loss,
            ),
            files=batch_files(state_dir, name),
            newest_events=NewestEvents(self._job.settings.kafka),
            query=QueryHooks(
                report_applied=(lambda _: None) if lineage is None else lineage.applied,
                metered=nullcontext if self._job.cpu is None else partial(self._job.cpu.driving, name),
                is_stopping=is_over.is_set,
            ),
            decoders=self._job.decoders,
        )
        stream = TenantStream(StreamLog(state_dir, name), self.tenant, limit=limit, fails_on_loss=fails_on_loss)
        run = QueryRun(sink, stream, self._shared_turns(), lineage, is_over, _stop_timeout_s(self._job.spark))
        self._at_rest = AtRest(self._job.spark, self._job.settings, self.tenant, run, kept, self._note_fenced)
        run.note_parked()
        if lineage is not None:  # before the first batch's report
            lineage.started()
        run.join()
        log.info("sink_query_started", tenant=name, query_id=run.query_id, mode=self._sink_settings.mode.value)
        return run

    def _shared_turns(self) -> Turns:
        if self._job.turns is not None:
            return self._job.turns
        if self._own_turns is None:
            self._own_turns = Turns(self._job.spark, self._job.settings.kafka, at_once=1)
        return self._own_turns

    def _note_fenced(self, error: Fenced) -> None:
        self.fenced = error

    def _note_failure(self, error: BaseException | None) -> None:
        if isinstance(error, Fenced):
            self.fenced = error
            return
        reason = described(error)
        refusals = self._back_off.refusals + (not isinstance(error, TransientError))
        self._back_off = replace(self._back_off, failures=self._back_off.failures + 1, refusals=refusals)
        SINK_QUERY_FAILURES.labels(*self._labels).inc()
        if isinstance(error, PipelineHalted):
            self._halt(reason)
        elif (lost := lost_partitions(error)) is not None:
            self._halt(
                f"Kafka lacks the next events of {lost}: its retention took it, or the topic was deleted. Raise "
                f"the retention; then start the job once with accepts_losses_of: [{self.tenant.tenant}], and headwater check "
                f"{self.tenant.tenant} shows which tables to resync"
            )
        elif self._back_off.refusals >= _FAILURES_BEFORE_HALT:
            self._halt(
                f"the same batch failed {self._back_off.refusals} times, at last with: {reason}; mend that and restart the job"
            )
        else:
            pause_s = min(_FIRST_PAUSE_S * 2 ** min(self._back_off.failures - 1, 10), _LONGEST_PAUSE_S)
            self._back_off = replace(self._back_off, start_at_s=time.monotonic() + pause_s)
            log.warning(
                "sink_query_failed",
                tenant=self.tenant.tenant,
                reason=reason,
                failures=self._back_off.failures,
                retry_in_s=pause_s,
            )
            if self._back_off.failures > 1:
                raise_fault(BATCH_FAILS, FaultScope(tenant=self.tenant.tenant), happened=reason)

    def _halt(self, reason: str) -> None:
        lift_fault(BATCH_FAILS, FaultScope(tenant=self.tenant.tenant))
        self._back_off = replace(self._back_off, halted_because=reason)
        log.error("sink_query_halted", tenant=self.tenant.tenant, reason=reason)
        self._report_halted(reason)

    def _report_halted(self, because: str | None) -> None:
        """To the metrics and to readers of the progress file. None: not, or not any more."""
        SINK_HALTED.labels(*self._labels).set(because is not None)
        state_dir = Path(self._job.settings.state_dir)
        progress = load_progress(state_dir, self.tenant.tenant)
        if progress.halted_because != because:
            progress = msgspec.structs.replace(progress, halted_because=because)
            store_progress(state_dir, progress)
        report_faults(progress)


def _stop_timeout_s(spark: SparkSession) -> float:
    """Spark's own setting for how long the stop of a query waits, in seconds."""
    return float(str(spark.conf.get(_STOP_TIMEOUT, "8s")).removesuffix("s"))
