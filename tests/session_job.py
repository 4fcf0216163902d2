"""The sink job's lives in the test run's own Spark session: a failpoint ends one as a kill ends a process.

Each life opens its warehouse, its queries and its state again, as a process does that starts. Where it ends nothing is done any
more, but for Python's ``finally``: ``tests/faults`` kills a process on each warehouse too. A life costs queries, not a JVM.
"""

import contextlib
import functools
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from pyspark.sql import SparkSession

from libs import failpoints
from libs.config.load import load_settings
from libs.servers.ports import LOOPBACK
from libs.sink_state.progress import SinkProgress
from libs.tenants.document import TenantFolder
from libs.types.tenant import TenantSpec
from libs.types.warehouse import WarehouseTable, warehouse_table
from spark.pending.progress import load_progress
from spark.session.start import lock_state
from spark.settings import SinkJobSettings
from spark.sinks.delta.settings import Settings as DeltaSettings
from spark.sinks.port import Sink
from spark.sinks.registry import open_sinks
from spark.tenant.kept_states import KeptStates
from spark.tenant.moves import Moves
from spark.tenant.query import TenantQuery
from spark.tenant.state_store import StateStore
from tests import clickhouse
from tests.clickhouse import ClickhouseServer
from tests.conftest import PostgresqlServer
from tests.contract.test_sinks import delta_rows, postgresql_rows
from tests.sink_job import SinkJob, Tenant, job_document
from tests.sink_topics import SOURCE, Model
from tests.spark_session import Row, session_settings, shared_spark

LIFE_TIMEOUT_S = 500.0
POLL_S = 0.2
STOP_TIMEOUT = "120s"


@dataclass(slots=True)
class SessionJob:
    """Several lives on one state and warehouse; see ``tests.sink_job.SinkJob``, which has them as processes."""

    folder: Path
    bootstrap_servers: str
    warehouse: str
    warehouse_settings: dict[str, Any]
    read_rows: Callable[[WarehouseTable], list[Row]]
    settings: Mapping[str, object] = field(default_factory=dict)
    """Further ones of the job."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """With the settings that stand in no file."""
    life: "_Life | None" = None

    def start(self, *, failpoints: str = "") -> None:
        """Begin a life. ``failpoints``: which end it."""
        assert self.life is None
        document = job_document(self, self.settings, msgspec.to_builtins(session_settings(self.folder)))
        file = self.folder / "session_job.yaml"
        file.write_text(yaml.safe_dump(document))
        settings = load_settings(SinkJobSettings, path=file, environ=self.environ, subject="sink_job")
        self.life = _Life(settings, failpoints)

    def wait_until_killed(self) -> None:
        """Returns when the armed failpoint has ended the life, and nothing of it is at work any more."""
        self.wait_until(lambda: self.life is not None and self.life.ended_at is not None)
        self.stop()

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Returns when ``holds``. Fails when a tenant halts before, or on a timeout."""
        assert self.life is not None
        deadline_s = time.monotonic() + LIFE_TIMEOUT_S
        while not holds():
            assert time.monotonic() < deadline_s, self.life
            self.life.go_on()
            time.sleep(POLL_S)

    def stop(self) -> None:
        """End the life, in the middle of a batch if need be; returns when it writes nothing any more."""
        life, self.life = self.life, None
        if life is not None:
            life.end()

    def lose_folder(self) -> None:
        """As a pod loses it."""
        assert self.life is None
        shutil.rmtree(self.folder / "state")

    def progress(self, tenant: Tenant) -> SinkProgress:
        return load_progress(self.folder / "state", tenant.name)

    def rows(self, tenant: Tenant, model: Model) -> list[Row]:
        return self.read_rows(self.place(tenant, model))

    def place(self, tenant: Tenant, model: Model) -> WarehouseTable:
        return warehouse_table(tenant.name, SOURCE, model.schema.table_id)


class _Life:
    """The objects of one start, as ``spark.jobs.sink_job`` has them."""

    def __init__(self, settings: SinkJobSettings, text: str) -> None:
        """``text``: the failpoints that are armed."""
        mistakes: list[str] = []
        self._settings, self._text = settings, text
        self._sinks: Mapping[str, Sink] = open_sinks(settings.warehouses, mistakes=mistakes)
        assert not mistakes
        self._spark = _session_over(self._sinks.values())
        self._folder = TenantFolder(Path(settings.tenants_dir), state_folder=Path(settings.state_dir) / "tenants")
        self._documents: dict[str, TenantSpec] = {}
        self._queries: dict[str, TenantQuery] = {}
        self._leaving: list[TenantQuery] = []
        store, state_dir = settings.state_store, Path(settings.state_dir)
        self._lock = lock_state(self._spark, state_dir, timeout_s=settings.lock_timeout_s)
        self._kept = None if store is None else KeptStates(store, state_dir, StateStore(store))
        self._moves = Moves(self._spark, settings, self._sinks, self._kept)
        self._ends = contextlib.ExitStack()
        self._armed = self._ends.enter_context(failpoints.armed(text))

    def __repr__(self) -> str:
        states = {name: load_progress(Path(self._settings.state_dir), name) for name in self._documents}
        return f"armed: {self._text!r}, ended at {self.ended_at}, {states}"

    @property
    def ended_at(self) -> str | None:
        return self._armed.ended_at

    def go_on(self) -> None:
        """As a turn of the job's loop."""
        tenants = self._folder.refresh()
        if tenants is not None:
            assert not tenants.refused
            self._documents = {spec.tenant: spec for spec in tenants.tenants}
        with contextlib.suppress(failpoints.Ended):
            placed = self._moves.look(self._documents, self._is_at_rest)
            for name in self._queries.keys() - placed:
                self._queries[name].stop()
                self._leaving.append(self._queries.pop(name))
            for name in placed - self._queries.keys():
                spec = self._documents[name]
                assert spec.sink is not None
                sink = self._sinks[spec.sink.warehouse]
                self._queries[name] = TenantQuery(self._spark, self._settings, spec, sink, kept=self._kept)
        for query in self._queries.values():
            if self.ended_at is None:
                query.supervise()
                assert not query.is_halted, query.tenant.tenant
                assert query.fenced is None

    def end(self) -> None:
        for query in self._queries.values():
            query.stop()
        deadline_s = time.monotonic() + LIFE_TIMEOUT_S
        while not all(query.is_at_rest for query in (*self._queries.values(), *self._leaving)):
            assert time.monotonic() < deadline_s
            time.sleep(POLL_S)
        self._moves.close()
        self._ends.close()
        self._lock.acquiredBy().close()  # and with the channel the lock

    def _is_at_rest(self, name: str) -> bool:
        leaving = [query for query in self._leaving if query.tenant.tenant == name]
        return name not in self._queries and all(query.is_at_rest for query in leaving)


def _session_over(sinks: Iterable[Sink]) -> SparkSession:
    """One that shares everything with the test run's, but has the catalogs that ``sinks`` name."""
    session = shared_spark().session.newSession()
    session.conf.set("spark.sql.streaming.stopTimeout", STOP_TIMEOUT)
    for sink in sinks:
        for name, value in sink.session_config().items():
            if name.startswith("spark.sql.catalog."):
                session.conf.set(name, value)
    return session


@dataclass(frozen=True, slots=True)
class Place:
    """Where the shared session's tables of a kind of warehouse are."""

    settings: dict[str, Any]
    """As a job's settings have it."""
    read_rows: Callable[[WarehouseTable], list[Row]]


def place_of(kind: str, request: pytest.FixtureRequest) -> Place:
    """Of the session's own tables, or of the test run's server."""
    match kind:
        case "clickhouse":
            clickhouse_server: ClickhouseServer = request.getfixturevalue("clickhouse_server")
            where = {"host": LOOPBACK, "port": clickhouse_server.port}
            return Place(where, functools.partial(clickhouse.rows_of, clickhouse_server))
        case "delta":
            delta = DeltaSettings(warehouse_dir=shared_spark().delta.warehouse_dir)
            return Place({"warehouse_dir": delta.warehouse_dir}, functools.partial(delta_rows, delta))
        case "iceberg":
            iceberg = shared_spark().iceberg
            catalog = {"kind": iceberg.catalog.kind.value, "file": iceberg.catalog.file}
            return Place({"warehouse_dir": iceberg.warehouse_dir, "catalog": catalog}, shared_spark().rows)
        case _:
            server: PostgresqlServer = request.getfixturevalue("postgresql_server")
            where = {name: getattr(server.settings, name) for name in ("host", "port", "database", "user")}
            return Place(where, functools.partial(postgresql_rows, server))


@contextlib.contextmanager
def life_of(job: SinkJob) -> Iterator[SessionJob]:
    """``job`` in the shared session, before its process is started or after that was killed; it ends with the block."""
    following = SessionJob(
        job.folder,
        job.bootstrap_servers,
        job.warehouse,
        job.warehouse_settings,
        job.read_rows,
        job.settings,
        job.environ,
    )
    try:
        yield following
    finally:
        following.stop()


@contextlib.contextmanager
def session_job(
    kind: str, folder: Path, bootstrap_servers: str, request: pytest.FixtureRequest
) -> Iterator[SessionJob]:
    """One that ends with the block."""
    (folder / "tenants").mkdir(parents=True, exist_ok=True)
    where = place_of(kind, request)
    job = SessionJob(folder, bootstrap_servers, kind, where.settings, where.read_rows)
    try:
        yield job
    finally:
        job.stop()
