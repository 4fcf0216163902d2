"""The tenants of a sink job: their queries begun, looked after and ended, on one session."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import structlog
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from libs.errors import PipelineHalted, TransientError, refusal_of
from libs.telemetry.faults import SINK_HALTED, lasting_faults, raise_fault
from libs.tenants.document import TenantSet
from libs.types.fault import FaultScope
from libs.types.tenant import TenantSpec
from spark.batch.events_at_hand import Decoders
from spark.jobs.reported_faults import ReportedFaults
from spark.jobs.reported_resyncs import ReportedResyncs
from spark.jobs.reported_waits import LASTING_S, ReportedWaits
from spark.jvm.containment import is_of_job
from spark.session.executors import delete_left
from spark.session.start import lock_state, open_session
from spark.session.watch import SessionWatch
from spark.settings import SinkJobSettings
from spark.sinks.port import Sink
from spark.tenant.cpu_meter import CpuMeter
from spark.tenant.handovers import write_resyncs, write_sink_faults, write_waits
from spark.tenant.kept_states import KeptStates
from spark.tenant.lineage import open_lineage
from spark.tenant.moves import Moves
from spark.tenant.query import TenantQuery
from spark.tenant.state_store import StateStore
from spark.tenant.turns import Turns

# The loop waits for nothing longer than the start of a query; a session that hangs for this long will not come back.
_STALLED_AFTER_S: Final = 120.0

log = structlog.get_logger()


class OperatorReports(NamedTuple):
    """What an operator hears of this job."""

    waits: ReportedWaits
    faults: ReportedFaults
    resyncs: ReportedResyncs


@dataclass(frozen=True, slots=True)
class Parts:
    """A session and the parts of the job upon it, which all tenants share."""

    lock: object
    """Of the job's state; held as long as it is referred to."""
    cpu: CpuMeter
    watch: SessionWatch
    kept: KeptStates | None
    """None: the state lies on a volume of the job's own."""
    reports: OperatorReports
    moves: Moves
    turns: Turns
    decoders: Decoders


def open_parts(spark: SparkSession, settings: SinkJobSettings, sinks: Mapping[str, Sink]) -> Parts:
    """Raises TransientError where another job holds the state."""
    lock = lock_state(spark, Path(settings.state_dir), timeout_s=settings.lock_timeout_s)
    store = settings.state_store
    kept = None if store is None else KeptStates(store, Path(settings.state_dir), StateStore(store))
    if settings.session.has_executors:
        delete_left(spark)
    return Parts(
        lock=lock,
        cpu=CpuMeter(spark),
        watch=SessionWatch(spark, has_executors=settings.session.has_executors),
        kept=kept,
        reports=OperatorReports(
            ReportedWaits(partial(write_waits, spark, settings.kafka)),
            ReportedFaults(partial(write_sink_faults, spark, settings.kafka)),
            ReportedResyncs(partial(write_resyncs, spark, settings.kafka), Path(settings.state_dir)),
        ),
        moves=Moves(spark, settings, sinks, kept),
        turns=Turns(spark, settings.kafka),
        decoders=Decoders(),
    )


class Fleet:
    """The session and the queries of the job's tenants."""

    def __init__(self, settings: SinkJobSettings, sinks: Mapping[str, Sink]) -> None:
        self._settings = settings
        self._sinks = sinks
        self._lineage = open_lineage(settings)
        self._spark: SparkSession | None = None
        self._parts: Parts | None = None
        self._queries: dict[str, TenantQuery] = {}
        self._leaving: dict[str, TenantQuery] = {}
        """Of tenants whose document is away, until their last batch has ended."""
        self._documents: dict[str, TenantSpec] = {}
        self._is_serving = False
        """Queries of all tenants were begun once."""
        self._supervised_at_s = time.monotonic()

    def open(self) -> None:
        """Start the session, which takes 5 to 20 s; raises as ``open_session`` and ``open_parts``."""
        self._spark = open_session(self._settings.session, self._sinks.values(), name="headwater-sink")
        self._parts = open_parts(self._spark, self._settings, self._sinks)

    def take_in(self, tenants: TenantSet) -> None:
        """The documents as they are now."""
        for refused in tenants.refused:
            log.warning("tenant_document_refused", file=refused.file.name, mistakes=list(refused.mistakes))
        self._documents = {spec.tenant: spec for spec in tenants.tenants if self._is_ours(spec)}

    def serve_tenants(self) -> None:
        """Begin, restart and end queries, as documents and places have it now."""
        assert self._parts is not None
        try:
            placed = self._parts.moves.look(self._documents, self._is_at_rest)
        except (Py4JError, ConnectionError) as error:
            raise _session_gone() from error
        self._report_to_operator(placed)
        wanted = {name: spec for name, spec in self._documents.items() if name in placed}
        for name, query in list(self._queries.items()):
            if wanted.get(name) != query.tenant:
                query.stop()
                self._leaving[name] = self._queries.pop(name)
        for name, spec in wanted.items():
            if name not in self._queries:
                self._begin(name, spec)
        self._is_serving = True

    def _begin(self, name: str, spec: TenantSpec) -> None:
        """A tenant whose query cannot be made is tried again with the next look; it holds up no other."""
        try:
            self._queries[name] = self._query_of(spec, self._leaving.get(name))
        except Exception as error:
            if is_of_job(error):
                raise
            scope = FaultScope(tenant=name)
            if all((each.id, each.scope) != (SINK_HALTED.id, scope) for each in lasting_faults()):
                log.error("refused_unforeseen", tenant=name, exc_info=error)
            raise_fault(SINK_HALTED, scope, happened=f"its query cannot be made: {refusal_of(error)}")
        else:
            self._leaving.pop(name, None)

    def _query_of(self, spec: TenantSpec, behind: TenantQuery | None) -> TenantQuery:
        assert self._spark is not None
        assert self._parts is not None
        assert spec.sink is not None
        return TenantQuery(
            self._spark,
            self._settings,
            spec,
            self._sinks[spec.sink.warehouse],
            self._lineage,
            behind=behind,
            kept=self._parts.kept,
            cpu=self._parts.cpu,
            turns=self._parts.turns,
            decoders=self._parts.decoders,
        )

    def _report_to_operator(self, placed: Collection[str]) -> None:
        """For a job with places of its tenants: an operator reads the report."""
        assert self._parts is not None
        reports, kept = self._parts.reports, self._parts.kept
        if (places := self._parts.moves.places) is None:
            return
        reports.faults.look(places, lasting_faults())
        reports.resyncs.look(places)
        if kept is None:
            return
        # In this order: a tenant that begins to wait in between is in neither.
        faults, served = kept.faults(lasting_s=LASTING_S), set(placed) - set(kept.waiting)
        reports.waits.look(places, faults, served)

    def _is_at_rest(self, name: str) -> bool:
        return name not in self._queries and name not in self._leaving

    def _is_ours(self, spec: TenantSpec) -> bool:
        if spec.sink is None or (self._settings.tenants and spec.tenant not in self._settings.tenants):
            return False
        if spec.sink.warehouse not in self._sinks:
            log.warning("tenant_document_refused", tenant=spec.tenant, mistakes=[self._unknown_warehouse(spec)])
            return False
        return True

    def _unknown_warehouse(self, spec: TenantSpec) -> str:
        assert spec.sink is not None
        return f"sink.warehouse: {spec.sink.warehouse!r} is none of this job's: {', '.join(sorted(self._sinks))}"

    def supervise(self) -> None:
        """Look after each query, and after the session."""
        assert self._parts is not None
        try:
            self._parts.watch.check_stands()
            if self._parts.turns.failure is not None:
                raise TransientError(
                    "the job deals no turns any more; its log has the reason"
                ) from self._parts.turns.failure
            self._parts.cpu.count_tasks()
            for query in self._queries.values():
                query.supervise()
                if query.fenced is not None:
                    raise query.fenced
            self._forget_let_go()
            self._parts.watch.look()
        except (Py4JError, ConnectionError) as error:
            raise _session_gone() from error
        if self._queries and all(query.is_halted for query in self._queries.values()):
            raise PipelineHalted(
                "every tenant of this job is halted; each one's log line sink_query_halted has the remedy"
            )
        self._supervised_at_s = time.monotonic()

    def _forget_let_go(self) -> None:
        """Erasing a tenant waits for that."""
        for name in [name for name, query in self._leaving.items() if query.is_at_rest]:
            self._leaving.pop(name).forget()
            log.info("tenant_let_go", tenant=name)

    def stalled(self) -> str | None:
        """For /healthz: why a restart would help."""
        silent_s = time.monotonic() - self._supervised_at_s
        return f"the job's loop has stood for {silent_s:.0f} s" if silent_s > _STALLED_AFTER_S else None

    def not_ready(self) -> str | None:
        """For /readyz: the parts that do not run."""
        parts = self._parts
        if parts is None or not self._is_serving:
            return "the Spark session is starting"
        if not parts.watch.has_workers:
            return "no executor has come yet: see `kubectl get pods -l headwater.dev/role=sink-executor`"
        if parts.turns.does_not_answer:
            return "Kafka does not say where topics end; the log line sink_kafka_silent has the reason"
        waiting = [name for name, query in self._queries.items() if not query.is_running]
        waiting += sorted(parts.moves.waiting)
        waiting += sorted(set(parts.kept.waiting) - set(waiting)) if parts.kept is not None else []
        return f"not running: {', '.join(waiting)}" if waiting else None

    def close(self) -> None:
        """End the queries and the session; the JVM may be gone already."""
        try:
            if self._parts is not None:
                self._parts.turns.close()
            for query in self._queries.values():
                query.interrupt()
            for query in self._queries.values():
                query.stop()
            if self._parts is not None:
                self._parts.moves.close()
            if self._lineage is not None:
                self._lineage.close()
            if self._spark is not None:
                self._spark.stop()
        except (Py4JError, ConnectionError) as error:
            log.warning("session_stop_failed", reason=type(error).__name__)


def _session_gone() -> TransientError:
    return TransientError("the JVM of the Spark session is gone; out of memory? see session.driver_memory")
