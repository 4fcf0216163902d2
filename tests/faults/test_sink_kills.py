"""The sink job killed at each of its failpoints, in one life after another: tables are exact nonetheless."""

import random
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from libs.local.cache import cache_dir
from libs.local.jars import jars_dir
from libs.local.java import find_java
from libs.local.process import ProcessSpec, Running, is_alive, last_log_lines, start, stop
from libs.mysql.logical import column
from libs.types.table import TableSchema
from libs.types.tenant import SinkMode
from libs.types.warehouse import SinkProgress, WarehouseTable, warehouse_table
from spark.jobs.progress import load_progress
from spark.sinks.delta.settings import Settings as DeltaSettings
from spark.sinks.iceberg.settings import Settings
from tests.conftest import PostgresqlServer
from tests.contract.test_sinks import delta_rows, postgresql_rows
from tests.sink_topics import SOURCE, Model, TenantTopics, table_id, without_own_columns
from tests.spark_session import Row, read_rows

REPOSITORY = Path(__file__).parents[2]
BETWEEN_COMMITS = (
    "sink_before_merge",
    "sink_after_merge_before_next_table",
    "sink_after_batch_before_spark_commit",
)
FAILPOINTS = {
    "delta": BETWEEN_COMMITS,
    "iceberg": BETWEEN_COMMITS,
    "postgresql": ("sink_before_commit", *BETWEEN_COMMITS),
}
LIFE_TIMEOUT_S = 180.0  # a cold Spark on two busy cores, which waits for its predecessor's JVM to end
STOP_TIMEOUT_S = 15.0
POLL_S = 0.2


@dataclass(slots=True)
class Tenant:
    """A tenant's topics, and what its tables should hold."""

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
    running: Running | None = None

    def start(self, *, failpoints: str = "") -> None:
        """Begin a life; the JVM of the one before may still be ending."""
        cache = cache_dir()
        settings = self.folder / "sink_job.yaml"
        document = {
            "tenants_dir": str(self.folder / "tenants"),
            "kafka": {"bootstrap_servers": self.bootstrap_servers},
            "warehouses": {self.warehouse: self.warehouse_settings},
            "state_dir": str(self.folder / "state"),
            "session": {"java_home": str(find_java(cache).home), "jars_dir": str(jars_dir("spark", cache))},
            "max_offsets_per_trigger": 120,
        }
        settings.write_text(yaml.safe_dump(document))
        spec = ProcessSpec(
            name="sink_job",
            command=(sys.executable, "-m", "spark.jobs.sink_job", "--settings", str(settings)),
            environ={"HEADWATER_FAILPOINTS": failpoints, "PYTHONPATH": str(REPOSITORY)},
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

    def progress(self, tenant: Tenant) -> SinkProgress:
        return load_progress(self.folder / "state", tenant.name)

    def rows(self, tenant: Tenant, model: Model) -> list[Row]:
        return self.read_rows(warehouse_table(tenant.name, SOURCE, model.schema.table_id))


@pytest.fixture(params=sorted(FAILPOINTS))
def job(request: pytest.FixtureRequest, bootstrap_servers: str, tmp_path: Path) -> Iterator[SinkJob]:
    (tmp_path / "tenants").mkdir()
    if request.param == "delta":
        where = {"warehouse_dir": str(tmp_path / "warehouse")}
        job = SinkJob(tmp_path, bootstrap_servers, "delta", where, partial(delta_rows, DeltaSettings(**where)))
    elif request.param == "iceberg":
        where = {"warehouse_dir": str(tmp_path / "warehouse"), "catalog_file": str(tmp_path / "catalog.db")}
        job = SinkJob(tmp_path, bootstrap_servers, "iceberg", where, partial(read_rows, Settings(**where)))
    else:
        server: PostgresqlServer = request.getfixturevalue("postgresql_server")
        where = {name: getattr(server.settings, name) for name in ("host", "port", "database", "user")}
        job = SinkJob(tmp_path, bootstrap_servers, "postgresql", where, partial(postgresql_rows, server))
    yield job
    if job.running is not None:
        stop(job.running, STOP_TIMEOUT_S)


@pytest.mark.timeout(5 * LIFE_TIMEOUT_S)
def test_killed_at_every_failpoint_the_tables_are_exact(job: SinkJob) -> None:
    """A mirror of two tables and an append table, one job. It dies before a merge, within its transaction where the
    warehouse has one, between two tables of a batch, and between a batch and Spark's commit of it, while more is written:
    mirrors equal a plain model, and the append table has every change once.
    """
    chance = random.Random(41)
    mirror = _tenant(job, f"m{secrets.token_hex(3)}", SinkMode.MIRROR, "orders", "items")
    append = _tenant(job, f"a{secrets.token_hex(3)}", SinkMode.APPEND, "visits")
    for failpoint in FAILPOINTS[job.warehouse]:
        for tenant in (mirror, append):
            tenant.write(chance, transactions=10)
        # On the second pass: of the tables of a batch, or of the batches, one is committed by then.
        job.start(failpoints=f"{failpoint}=kill@2")
        job.wait_until_killed()

    job.start()
    job.wait_until(lambda: all(job.progress(tenant).rows >= tenant.changes for tenant in (mirror, append)))

    for model in mirror.models:
        assert without_own_columns(job.rows(mirror, model)) == model.sorted_rows(), model.schema.table_id
    stored = [str(row["_headwater_order"]) for row in job.rows(append, append.models[0])]
    assert sorted(stored) == sorted(append.models[0].orders)
    assert job.progress(mirror).rows == mirror.changes
    assert job.progress(append).rows == append.changes


def _tenant(job: SinkJob, name: str, mode: SinkMode, *tables: str) -> Tenant:
    """A tenant with its document and topics, and the schemas told."""
    document = {"tenant": name, "sources": [{"name": SOURCE}], "sink": {}}
    document["sink"] = {"warehouse": job.warehouse, "mode": mode.value, "trigger_s": 0.5}
    (job.folder / "tenants" / f"{name}.yaml").write_text(yaml.safe_dump(document))
    columns = (column("id", "int", is_optional=False), column("note", "varchar(40)", charset="utf8mb4"))
    schemas = [TableSchema(table_id=table_id(table), columns=columns, key=("id",), version=1) for table in tables]
    topics = TenantTopics(job.bootstrap_servers, name)
    for schema in schemas:
        topics.create_table(schema)
    with topics.transaction() as first:
        for schema in schemas:
            first.schema(schema)
    return Tenant(topics, [Model(schema) for schema in schemas])
