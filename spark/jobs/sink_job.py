"""The sink job: tenants' topics into their warehouse tables. ``python -m spark.jobs.sink_job --settings FILE``.

One Spark session serves one tenant or several packed. Each has a query of its own (``spark.tenant.query``), whose micro-batches
run in turns that all share (``spark.tenant.turns``). This module only wires: settings, session, the tenants'
documents, SIGTERM.

Exit codes are those of every service: 0 stopped, 1 start again, 2 settings, 3 every tenant is halted, or another job has one.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import structlog
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from libs.config.load import load_settings
from libs.errors import Fenced, InvalidSettings, PipelineHalted, TransientError, refusal_of
from libs.telemetry.endpoint import start_endpoint
from libs.telemetry.faults import SINK_HALTED, lasting_faults, raise_fault
from libs.telemetry.log import configure_logging
from libs.telemetry.metrics import (
    SINK_EXECUTOR_CORES,
    SINK_EXECUTOR_FAILED_TASKS,
    SINK_EXECUTOR_STORAGE,
    SINK_EXECUTOR_STORAGE_USED,
    SINK_EXECUTOR_TASKS,
    SINK_EXECUTORS,
)
from libs.tenants.document import TenantFolder, TenantSet
from libs.types.fault import FaultScope
from libs.types.tenant import TenantSpec
from spark.batch.events_at_hand import Decoders
from spark.jobs.told_faults import ToldFaults
from spark.jobs.told_resyncs import ToldResyncs
from spark.jobs.told_waits import LASTING_S, ToldWaits
from spark.jvm.containment import is_of_job
from spark.session.code_cache import CodeCacheWatch
from spark.session.executors import ExecutorCounts, delete_left, executor_counts
from spark.session.start import lock_state, open_session
from spark.settings import SinkJobSettings
from spark.sinks.port import KeepsFiles, Sink
from spark.sinks.registry import open_sinks
from spark.tenant.cpu_meter import CpuMeter
from spark.tenant.handovers import tell_resyncs, tell_sink_faults, tell_waits
from spark.tenant.kept_states import KeptStates
from spark.tenant.lineage import open_lineage
from spark.tenant.moves import Moves
from spark.tenant.query import TenantQuery
from spark.tenant.state_store import StateStore
from spark.tenant.turns import Turns

NAME: Final = "sink_job"
EXIT_RESTART: Final = 1
EXIT_INVALID_SETTINGS: Final = 2
EXIT_HALTED: Final = 3
_SUPERVISE_EVERY_S: Final = 1.0
# They report that often; asking the JVM takes milliseconds for each.
_LOOK_AT_CODE_CACHE_EVERY_S: Final = 10.0
_COUNT_EXECUTORS_EVERY_S: Final = 10.0
# The loop waits for nothing longer than the start of a query; a session that hangs for this long will not come back.
_STALLED_AFTER_S: Final = 120.0
# Of the 10 s that a supervisor gives. Nothing is lost by leaving in the middle: a batch that is cut off comes again.
_STOP_WITHIN_S: Final = 9.0

log = structlog.get_logger()


def main(argv: Sequence[str]) -> int:
    """Run until SIGTERM; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m spark.jobs.sink_job")
    parser.add_argument("--settings", type=Path, help="YAML file; HEADWATER_<NAME> in the environment wins over it")
    arguments = parser.parse_args(argv)
    stop = threading.Event()
    _stop_on_signals(stop)
    try:
        settings = load_settings(SinkJobSettings, path=arguments.settings, environ=os.environ, subject=NAME)
        configure_logging(NAME, settings.telemetry)
        mistakes: list[str] = []
        shared_dirs = settings.session.shared_dirs if settings.session.has_executors else None
        sinks = open_sinks(settings.warehouses, mistakes=mistakes, shared_dirs=shared_dirs)
        mistakes += gone_with_the_job(settings, sinks)
        if mistakes:
            raise InvalidSettings(NAME, mistakes)
        serve(settings, sinks, stop)
    except InvalidSettings as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_INVALID_SETTINGS
    except Exception as error:
        code = EXIT_HALTED if isinstance(error, PipelineHalted | Fenced) else EXIT_RESTART
        log.error("service_failed", error=type(error).__name__, reason=str(error), exit_code=code, exc_info=True)
        return 0 if stop.is_set() else code
    log.info("service_stopped")
    return 0


def serve(settings: SinkJobSettings, sinks: Mapping[str, Sink], stop: threading.Event) -> None:
    """Serve the tenants until ``stop``.

    Raises:
        TransientError: the session died; start the job again.
        PipelineHalted: every tenant is halted; the log has each one's reason.
        Fenced: another job writes the state of a tenant of this one.
        InvalidSettings: the tenants' folder or the jars are missing.
    """
    folder = TenantFolder(Path(settings.tenants_dir), state_folder=Path(settings.state_dir) / "tenants")
    fleet = _Fleet(settings, sinks)
    endpoint = start_endpoint(settings.telemetry, alive=fleet.stalled, ready=fleet.not_ready)
    try:
        fleet.open()
        _stop_on_signals(stop)  # pyspark has taken SIGINT for itself
        log.info("service_started", http_port=endpoint.port, master=settings.session.master)
        while not stop.wait(_SUPERVISE_EVERY_S):
            tenants = folder.refresh()
            if tenants is not None:
                fleet.take_in(tenants)
            fleet.serve_tenants()
            fleet.supervise()
    finally:
        fleet.close()
        endpoint.close()


def _stop_on_signals(stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _ask_to_stop(stop))


def _ask_to_stop(stop: threading.Event) -> None:
    last_resort = threading.Timer(_STOP_WITHIN_S, os._exit, args=(0,))
    last_resort.daemon = True
    last_resort.start()
    stop.set()  # last: a signal that comes while this very thread is inside ``stop.wait`` would wait for itself


class _Told(NamedTuple):
    """What an operator hears of this job."""

    waits: ToldWaits
    faults: ToldFaults
    resyncs: ToldResyncs


class _Fleet:
    """The session and the queries of the job's tenants."""

    def __init__(self, settings: SinkJobSettings, sinks: Mapping[str, Sink]) -> None:
        self._settings = settings
        self._sinks = sinks
        self._spark: SparkSession | None = None
        self._lock: object = None
        self._lineage = open_lineage(settings)
        self._turns: Turns | None = None
        self._decoders = Decoders()
        self._queries: dict[str, TenantQuery] = {}
        self._leaving: dict[str, TenantQuery] = {}
        """Of tenants whose document is away, until their last batch has ended."""
        self._documents: dict[str, TenantSpec] = {}
        self._cpu: CpuMeter | None = None
        self._code_cache: CodeCacheWatch | None = None
        self._looked_at_s = 0.0
        self._kept: KeptStates | None = None
        self._moves: Moves | None = None
        self._told: _Told | None = None
        self._is_told = False
        self._has_executors = not settings.session.has_executors
        """One at least; where there are none by its settings the driver works itself."""
        self._counted_at_s = 0.0
        self._supervised_at_s = time.monotonic()

    def open(self) -> None:
        self._spark = open_session(self._settings.session, self._sinks.values(), name="headwater-sink")
        self._lock = lock_state(self._spark, Path(self._settings.state_dir), timeout_s=self._settings.lock_timeout_s)
        self._cpu = CpuMeter(self._spark)
        self._code_cache = CodeCacheWatch(self._spark)
        if (kept_in := self._settings.state_store) is not None:
            self._kept = KeptStates(kept_in, Path(self._settings.state_dir), StateStore(kept_in))
        self._told = _Told(
            ToldWaits(partial(tell_waits, self._spark, self._settings.kafka)),
            ToldFaults(partial(tell_sink_faults, self._spark, self._settings.kafka)),
            ToldResyncs(partial(tell_resyncs, self._spark, self._settings.kafka), Path(self._settings.state_dir)),
        )
        self._turns = Turns(self._spark, self._settings.kafka)
        self._moves = Moves(self._spark, self._settings, self._sinks, self._kept)
        if self._settings.session.has_executors:
            delete_left(self._spark)

    def take_in(self, tenants: TenantSet) -> None:
        """The documents as they are now."""
        for refused in tenants.refused:
            log.warning("tenant_document_refused", file=refused.file.name, mistakes=list(refused.mistakes))
        self._documents = {spec.tenant: spec for spec in tenants.tenants if self._is_ours(spec)}

    def serve_tenants(self) -> None:
        """Begin, restart and end queries, as documents and places have it now."""
        assert self._spark is not None
        assert self._moves is not None
        try:
            placed = self._moves.look(self._documents, self._is_at_rest)
        except (Py4JError, ConnectionError) as error:
            raise _session_gone() from error
        self._tell_operator(placed)
        wanted = {name: spec for name, spec in self._documents.items() if name in placed}
        for name, query in list(self._queries.items()):
            if wanted.get(name) != query.tenant:
                query.stop()
                self._leaving[name] = self._queries.pop(name)
        for name, spec in wanted.items():
            if name not in self._queries:
                self._begin(name, spec)
        self._is_told = True

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
        assert spec.sink is not None
        return TenantQuery(
            self._spark,
            self._settings,
            spec,
            self._sinks[spec.sink.warehouse],
            self._lineage,
            behind=behind,
            kept=self._kept,
            cpu=self._cpu,
            turns=self._turns,
            decoders=self._decoders,
        )

    def _tell_operator(self, placed: Collection[str]) -> None:
        """For a job with places of its tenants: an operator reads the report."""
        assert self._moves is not None
        if self._told is None or (places := self._moves.places) is None:
            return
        self._told.faults.look(places, lasting_faults())
        self._told.resyncs.look(places)
        if self._kept is None:
            return
        # In this order: a tenant that begins to wait in between is in neither.
        faults, served = self._kept.faults(lasting_s=LASTING_S), set(placed) - set(self._kept.waiting)
        self._told.waits.look(places, faults, served)

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
        assert self._spark is not None
        assert self._cpu is not None
        try:
            if self._spark.sparkContext._jsc.sc().isStopped():
                raise TransientError("the Spark session ended by itself; its log has the reason")
            if self._turns is not None and self._turns.failure is not None:
                raise TransientError("the job deals no turns any more; its log has the reason") from self._turns.failure
            self._cpu.tell_tasks()
            for query in self._queries.values():
                query.supervise()
                if query.fenced is not None:
                    raise query.fenced
            self._tell_let_go()
            now_s = time.monotonic()
            if self._code_cache is not None and now_s - self._looked_at_s >= _LOOK_AT_CODE_CACHE_EVERY_S:
                self._looked_at_s = now_s
                self._code_cache.look()
            is_due = not self._has_executors or now_s - self._counted_at_s >= _COUNT_EXECUTORS_EVERY_S
            if self._settings.session.has_executors and is_due:
                self._counted_at_s = now_s
                self._tell_executors(executor_counts(self._spark))
        except (Py4JError, ConnectionError) as error:
            raise _session_gone() from error
        if self._queries and all(query.is_halted for query in self._queries.values()):
            raise PipelineHalted(
                "every tenant of this job is halted; each one's log line sink_query_halted has the remedy"
            )
        self._supervised_at_s = time.monotonic()

    def _tell_let_go(self) -> None:
        """Erasing a tenant waits for that."""
        for name in [name for name, query in self._leaving.items() if query.is_at_rest]:
            self._leaving.pop(name).forget()
            log.info("tenant_let_go", tenant=name)

    def _tell_executors(self, found: ExecutorCounts) -> None:
        self._has_executors = found.executors > 0
        SINK_EXECUTORS.set(found.executors)
        SINK_EXECUTOR_CORES.set(found.cores)
        SINK_EXECUTOR_TASKS.set(found.running_tasks)
        SINK_EXECUTOR_FAILED_TASKS.set(found.failed_tasks)
        SINK_EXECUTOR_STORAGE_USED.set(found.storage_used_bytes)
        SINK_EXECUTOR_STORAGE.set(found.storage_bytes)

    def stalled(self) -> str | None:
        """For /healthz: why a restart would help."""
        silent_s = time.monotonic() - self._supervised_at_s
        return f"the job's loop has stood for {silent_s:.0f} s" if silent_s > _STALLED_AFTER_S else None

    def not_ready(self) -> str | None:
        """For /readyz: the parts that do not run."""
        if not self._is_told:
            return "the Spark session is starting"
        if not self._has_executors:
            return "no executor has come yet: `kubectl get pods -l headwater.dev/role=sink-executor` tells why"
        if self._turns is not None and self._turns.does_not_answer:
            return "Kafka does not say where topics end; the log line sink_kafka_silent has the reason"
        waiting = [name for name, query in self._queries.items() if not query.is_running]
        waiting += sorted(self._moves.waiting) if self._moves is not None else []
        waiting += sorted(set(self._kept.waiting) - set(waiting)) if self._kept is not None else []
        return f"not running: {', '.join(waiting)}" if waiting else None

    def close(self) -> None:
        """End the queries and the session; the JVM may be gone already."""
        try:
            if self._turns is not None:
                self._turns.close()
            for query in self._queries.values():
                query.interrupt()
            for query in self._queries.values():
                query.stop()
            if self._moves is not None:
                self._moves.close()
            if self._lineage is not None:
                self._lineage.close()
            if self._spark is not None:
                self._spark.stop()
        except (Py4JError, ConnectionError) as error:
            log.warning("session_stop_failed", reason=type(error).__name__)


def gone_with_the_job(settings: SinkJobSettings, sinks: Mapping[str, Sink]) -> list[str]:
    """Mistakes: warehouses on a volume that need not outlive the job, because its state is kept elsewhere. Their rows would be
    gone, and the state say that they are written."""
    if settings.state_store is None or settings.own_volume is None:
        return []
    volume = Path(settings.own_volume).resolve()
    return [
        f"warehouses.{name}: lies in {folder}, on the job's own volume, and with state_store that need not outlive the job; "
        "have it in an object store or a folder that jobs share, or leave state_store out"
        for name, sink in sinks.items()
        if isinstance(sink, KeepsFiles)
        for folder in sink.folders
        if folder.resolve().is_relative_to(volume)
    ]


def _session_gone() -> TransientError:
    return TransientError("the JVM of the Spark session is gone; out of memory? see session.driver_memory")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
