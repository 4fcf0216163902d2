"""The sink job as a process of its own, over a folder that several of its lives share.

``tests.session_job`` has the same lives in the test run's own session, for a tenth of the CPU seconds.
"""

import random
import re
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml

from libs.mesh.processes import SINK_JAVA_OPTIONS
from libs.mysql.logical import column
from libs.servers.ports import LOOPBACK
from libs.servers.process import ProcessSpec, Running, is_alive, last_log_lines, start, stop
from libs.setup.spark_toolchain import find_toolchain
from libs.sink_state.progress import SinkProgress
from libs.types.table import TableSchema
from libs.types.tenant import SinkMode
from libs.types.warehouse import WarehouseTable, warehouse_table
from spark.pending.progress import load_progress
from tests.sink_topics import SOURCE, Model, TenantTopics, table_id
from tests.spark_session import Row

REPOSITORY = Path(__file__).parents[1]
LIFE_TIMEOUT_S = 900.0  # a cold Spark on two busy cores, which waits for its predecessor's JVM to end
STOP_TIMEOUT_S = 60.0
POLL_S = 0.2


@dataclass(slots=True)
class Tenant:
    """A tenant's topics, and models of its tables."""

    topics: TenantTopics
    models: list[Model]

    @property
    def name(self) -> str:
        return self.topics.tenant

    @property
    def changes(self) -> int:
        """How many row events it was sent so far."""
        return sum(len(model.orders) for model in self.models)

    def write(self, chance: random.Random, *, transactions: int) -> None:
        for _ in range(transactions):
            with self.topics.transaction() as transaction:
                for _ in range(20):
                    chance.choice(self.models).change_at_random(transaction, chance, keys=40)


@dataclass(slots=True)
class SinkJob:
    """``python -m spark.jobs.sink_job``, several lives on one state and warehouse."""

    folder: Path
    bootstrap_servers: str
    warehouse: str
    warehouse_settings: dict[str, Any]
    read_rows: Callable[[WarehouseTable], list[Row]]
    environ: Mapping[str, str] = field(default_factory=dict)
    """Of every life, besides."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Further ones of the job."""
    session: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of it."""
    running: Running | None = None

    def start(self, *, failpoints: str = "") -> None:
        """Begin a life; the JVM of the one before may still be ending."""
        settings = self.folder / "sink_job.yaml"
        session = {**find_toolchain().session, "java_options": SINK_JAVA_OPTIONS, **self.session}
        document = job_document(self, self.settings, session)
        settings.write_text(yaml.safe_dump(document))
        spec = ProcessSpec(
            name="sink_job",
            command=(sys.executable, "-m", "spark.jobs.sink_job", "--settings", str(settings)),
            environ={"HEADWATER_FAILPOINTS": failpoints, "PYTHONPATH": str(REPOSITORY), **self.environ},
            working_dir=self.folder / "work",
            ready=None,
        )
        self.running = start(spec, self.folder / "logs", dies_with_parent=True)

    def wait_until_killed(self) -> None:
        """Returns when the armed failpoint has ended it. Fails on any other end."""
        assert self.running is not None
        exit_code = self.running.popen.wait(LIFE_TIMEOUT_S)
        assert exit_code == -signal.SIGKILL, last_log_lines(self.running)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Returns when ``holds``. Fails when the job ends before, or on a timeout."""
        assert self.running is not None
        deadline_s = time.monotonic() + LIFE_TIMEOUT_S
        while not holds():
            assert is_alive(self.running), last_log_lines(self.running)
            assert time.monotonic() < deadline_s, last_log_lines(self.running)
            time.sleep(POLL_S)

    def stop(self) -> None:
        """End the life, if there is one; its JVM may still be ending."""
        if self.running is not None:
            stop(self.running, STOP_TIMEOUT_S)

    def asked(self, path: str) -> tuple[int, str]:
        """An answer of the job's endpoint: status and text; 0 while its session starts, which has logged no endpoint."""
        assert self.running is not None
        ports = re.findall(r'"http_port": ?(\d+)', self.running.log_path.read_text())
        if not ports:
            return 0, ""
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{ports[-1]}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def progress(self, tenant: Tenant) -> SinkProgress:
        return load_progress(self.folder / "state", tenant.name)

    def rows(self, tenant: Tenant, model: Model) -> list[Row]:
        return self.read_rows(self.place(tenant, model))

    def place(self, tenant: Tenant, model: Model) -> WarehouseTable:
        return warehouse_table(tenant.name, SOURCE, model.schema.table_id)


class Job(Protocol):
    """A sink job, whatever it runs in."""

    @property
    def folder(self) -> Path: ...
    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def warehouse(self) -> str: ...
    @property
    def warehouse_settings(self) -> dict[str, Any]: ...
    def progress(self, tenant: Tenant) -> SinkProgress: ...
    def rows(self, tenant: Tenant, model: Model) -> list[Row]: ...


def job_document(job: Job, settings: Mapping[str, object], session: Mapping[str, Any]) -> dict[str, Any]:
    """The job's settings; ``settings`` win."""
    return {
        "tenants_dir": str(job.folder / "tenants"),
        "kafka": {"bootstrap_servers": job.bootstrap_servers},
        "warehouses": {job.warehouse: job.warehouse_settings},
        "state_dir": str(job.folder / "state"),
        "session": dict(session),
        "max_offsets_per_trigger": 120,
        **settings,
    }


def told_cpu_s(job: SinkJob) -> dict[str, float]:
    """By tenant, the CPU seconds that its metrics report."""
    line = r'^headwater_sink_tenant_cpu_seconds_total{tenant="(\w+)"} (\S+)$'
    return {tenant: float(seconds) for tenant, seconds in re.findall(line, job.asked("/metrics")[1], re.MULTILINE)}


def write_tenant(
    job: Job, name: str, mode: SinkMode, *tables: str, topics: dict[str, object] | None = None, **sink: object
) -> Tenant:
    """A tenant with its document, its topics and their schemas; ``sink``: further settings of it."""
    settings = {"warehouse": job.warehouse, "mode": mode.value, "trigger_s": 0.5, **sink}
    document = {"tenant": name, "sources": [{"name": SOURCE}], "sink": settings, "topics": topics or {}}
    (job.folder / "tenants" / f"{name}.yaml").write_text(yaml.safe_dump(document))
    columns = (column("id", "int", is_optional=False), column("note", "varchar(40)", charset="utf8mb4"))
    schemas = [TableSchema(table_id=table_id(table), columns=columns, key=("id",), version=1) for table in tables]
    written = TenantTopics(job.bootstrap_servers, name)
    for schema in schemas:
        written.create_table(schema)
    with written.transaction() as first:
        for schema in schemas:
            first.schema(schema)
    return Tenant(written, [Model(schema) for schema in schemas])
