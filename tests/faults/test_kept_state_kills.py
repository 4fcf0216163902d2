"""Spark jobs whose state is in an object store: killed with their folder, two at once, and cut off from the store.

One is a process that is killed; at the other points a life in the shared session ends instead (``tests.session_job``).
"""

import contextlib
import fcntl
import random
import re
import secrets
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import pytest

from libs.mysql.logical import column
from libs.servers.ports import free_port
from libs.servers.process import Running, start, stop, wait_ready
from libs.sink_state.parked_keys import decode_parked_keys, parked_keys_path
from libs.types.table import TableSchema
from libs.types.tenant import SinkMode
from libs.types.warehouse import warehouse_table
from spark.sinks.iceberg.settings import Settings
from spark.tenant.kept_states import KeptState
from tests.bank import TABLES, TOTAL, Auditor, Bank, audit_of_snapshots
from tests.cluster import programs
from tests.faults.test_sink_kills import assert_exact
from tests.object_store import REGION, ObjectStore
from tests.session_job import SessionJob, session_job
from tests.sink_job import LIFE_TIMEOUT_S, POLL_S, STOP_TIMEOUT_S, SinkJob, Tenant, write_tenant
from tests.sink_topics import SOURCE, table_id, without_own_columns
from tests.spark_session import read_rows, shared_spark

pytestmark = [
    pytest.mark.spark,
    pytest.mark.rest(because="its object store is built first; see unit/spark/test_kept_states.py"),
]

READY_TIMEOUT_S = 60.0
BUCKET, JOB = "state", "own"


@dataclass(slots=True)
class Store:
    """An object store that can be unplugged."""

    store: ObjectStore
    running: Running
    log_dir: Path

    def kept(self, tenant: Tenant) -> KeptState | None:
        """A tenant's state in the store."""
        file = self.store.file_of(f"s3://{BUCKET}/jobs/{JOB}/{tenant.name}.json")
        try:
            return msgspec.json.decode(file.read_bytes(), type=KeptState)
        except (FileNotFoundError, msgspec.DecodeError):  # or it is being replaced
            return None

    def unplug(self) -> None:
        stop(self.running, STOP_TIMEOUT_S)

    def plug_in(self) -> None:
        self.running = start(self.running.spec, self.log_dir, dies_with_parent=True)
        wait_ready(self.running, READY_TIMEOUT_S)


@contextlib.contextmanager
def store_in(folder: Path) -> Iterator[Store]:
    """One that runs, with the bucket."""
    program = programs.build_object_store()
    if program is None:
        pytest.fail("the object store cannot be built: see above; `make cluster-programs` tries again")
    served = ObjectStore(program, folder / "store", free_port())
    logs = folder / "store-logs"
    made = Store(served, start(served.spec(), logs, dies_with_parent=True), logs)
    try:
        wait_ready(made.running, READY_TIMEOUT_S)
        served.make_bucket(BUCKET)
        yield made
    finally:
        stop(made.running, STOP_TIMEOUT_S)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_in(tmp_path) as made:
        yield made


def kept_in(store: Store, *, takeover_wait_s: float) -> dict[str, object]:
    """The store as a job's settings name it."""
    return {
        "uri": f"s3://{BUCKET}/jobs",
        "job": JOB,
        "endpoint": store.store.uri,
        "region": REGION,
        "is_path_style": True,
        "takeover_wait_s": takeover_wait_s,
    }


@pytest.fixture
def job(
    tmp_path: Path,
    bootstrap_servers: str,
    store: Store,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[SessionJob]:
    """One whose lives are the shared session's."""
    for name, value in store.store.environ.items():
        monkeypatch.setenv(name, value)
    with session_job("iceberg", tmp_path, bootstrap_servers, request) as opened:
        opened.settings = {"state_store": kept_in(store, takeover_wait_s=0.3)}
        yield opened


def job_in(folder: Path, shared: Path, bootstrap_servers: str, store: Store) -> SinkJob:
    """A process with a folder of its own; tenants and warehouse in ``shared``."""
    folder.mkdir(exist_ok=True)
    (shared / "tenants").mkdir(exist_ok=True)
    catalog = {"kind": "sqlite", "file": str(shared / "catalog.db")}
    where = {"warehouse_dir": str(shared / "warehouse"), "catalog": catalog}
    return SinkJob(
        folder,
        bootstrap_servers,
        "iceberg",
        where,
        partial(read_rows, msgspec.convert(where, Settings)),
        environ=store.store.environ,
        settings={"state_store": kept_in(store, takeover_wait_s=3.0), "tenants_dir": str(shared / "tenants")},
    )


@contextlib.contextmanager
def ended(*jobs: SinkJob) -> Iterator[None]:
    try:
        yield
    finally:
        for job in jobs:
            if job.running is not None:
                stop(job.running, STOP_TIMEOUT_S)


def lose_folder(job: SinkJob) -> None:
    """As a pod loses it: when all of its processes have ended, of which the JVM holds the state's lock."""
    deadline_s = time.monotonic() + STOP_TIMEOUT_S
    with (job.folder / "state" / "session.lock").open("rb+") as lock:
        while True:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                assert time.monotonic() < deadline_s
                time.sleep(POLL_S)
    shutil.rmtree(job.folder / "state")


@pytest.mark.timeout(3 * LIFE_TIMEOUT_S)
def test_killed_with_its_folder_a_job_goes_on_from_the_store(store: Store, job: SessionJob) -> None:
    """Between the two tables of its second batch, which is not full. More is written then, and the batch that comes again has
    none of it, because one table has that batch's number: each event is in a log once. The first life is a process."""
    chance = random.Random(42)
    job.settings = {**job.settings, "tables_in_parallel": 1}
    killed = SinkJob(
        job.folder,
        job.bootstrap_servers,
        job.warehouse,
        job.warehouse_settings,
        job.read_rows,
        environ=store.store.environ,
        settings=job.settings,
    )
    tenant = write_tenant(job, f"a{secrets.token_hex(3)}", SinkMode.APPEND, "visits", "clicks")
    tenant.write(chance, transactions=9)  # of 20 changes each; a batch has 120
    with ended(killed):
        killed.start(failpoints="sink_after_merge_before_next_table=kill@3")
        killed.wait_until_killed()
    assert (kept := store.kept(tenant)) is not None
    assert f"checkpoints/{tenant.name}/offsets/1" in kept.files
    lose_folder(killed)
    tenant.write(chance, transactions=9)

    job.start()
    job.wait_until(lambda: job.progress(tenant).rows >= tenant.changes)

    assert_exact(job, tenant, SinkMode.APPEND)
    # At rest it knows that the last batch is over: Kafka may have deleted its events when a job begins again.
    last = f"checkpoints/{tenant.name}/commits/{job.progress(tenant).batch_id}"
    job.wait_until(lambda: (kept := store.kept(tenant)) is not None and last in kept.files)


@pytest.mark.timeout(7 * LIFE_TIMEOUT_S)
def test_killed_at_every_failpoint_with_its_folder_the_tables_are_exact(job: SessionJob) -> None:
    """A mirror, a log and a history, of which more is written before each life. Of the five tables or three tenants that each
    life has to do with, twice, about half are done when it ends."""
    chance = random.Random(43)
    mirror = write_tenant(job, f"m{secrets.token_hex(3)}", SinkMode.MIRROR, "orders", "items")
    append = write_tenant(job, f"a{secrets.token_hex(3)}", SinkMode.APPEND, "visits", "clicks")
    history = write_tenant(job, f"h{secrets.token_hex(3)}", SinkMode.HISTORY, "prices")
    tenants, modes = [mirror, append, history], [SinkMode.MIRROR, SinkMode.APPEND, SinkMode.HISTORY]
    for failpoint, on_pass in (
        ("sink_after_merge_before_next_table", 6),
        ("sink_before_state_kept", 4),
        ("sink_after_state_kept", 4),
        ("sink_after_rows_before_commit", 5),
        ("sink_before_merge", 6),
        ("sink_after_batch_before_spark_commit", 4),
    ):
        for tenant in tenants:
            tenant.write(chance, transactions=10)
        job.start(failpoints=f"{failpoint}=end@{on_pass}")
        job.wait_until_killed()
        job.lose_folder()

    job.start()
    job.wait_until(lambda: all(job.progress(tenant).rows >= tenant.changes for tenant in tenants))

    for tenant, mode in zip(tenants, modes, strict=True):
        assert_exact(job, tenant, mode)


@pytest.mark.timeout(4 * LIFE_TIMEOUT_S)
def test_what_is_parked_is_known_though_the_folder_is_lost(job: SessionJob) -> None:
    """The job dies after the commit that left the refused event out: later events of its key wait for it nonetheless."""
    tenant = write_tenant(job, f"l{secrets.token_hex(3)}", SinkMode.APPEND, "orders")
    first = tenant.models[0].schema
    schema = TableSchema(
        table_id=first.table_id, columns=(*first.columns, column("n", "int")), key=first.key, version=2
    )

    def write(*changes: tuple[int, str, object]) -> None:
        with tenant.topics.transaction() as transaction:
            transaction.schema(schema)
            for key, note, n in changes:
                transaction.change(schema, op="u", after={"id": key, "note": note, "n": n})

    def letters() -> int:
        return sum(table.dead_letters for table in job.progress(tenant).tables.values())

    write((1, "a", 1), (2, "bad", "no number"), (3, "b", 2))
    job.start(failpoints="sink_after_merge_before_next_table=end")
    job.wait_until_killed()
    job.lose_folder()
    write((2, "later", 3), (4, "c", 4))

    job.start()
    job.wait_until(lambda: job.progress(tenant).rows + letters() >= 5)

    assert sorted(row["note"] for row in job.rows(tenant, tenant.models[0])) == ["a", "b", "c"]
    parked = decode_parked_keys(parked_keys_path(job.folder / "state", tenant.name).read_bytes())
    [table] = parked.tables.values()
    assert [key.letters for key in table.keys.values()] == [2]


@pytest.mark.timeout(7 * LIFE_TIMEOUT_S)
def test_tables_that_move_together_do_so_though_the_folder_is_lost(job: SessionJob) -> None:
    """Where a batch is cut, and which of its tables are to be shown, is known when it is begun again. Nobody who sums both
    finds money that is not there, or is there twice."""
    chance = random.Random(46)
    document = {"consistency": "transaction", "max_batch_rows": 9}
    tenant = write_tenant(job, f"b{secrets.token_hex(3)}", SinkMode.MIRROR, topics={"transactions": True}, **document)
    bank = Bank(tenant.topics)
    job.start(failpoints="sink_after_merge_before_next_table=end@1")
    job.wait_until_killed()
    job.lose_folder()
    with Auditor(partial(audit_of_snapshots, tenant.name, shared_spark().loaded)) as auditor:
        for failpoint in (
            "sink_after_cut_before_tables",
            "sink_between_shown_tables",
            "sink_after_showing_before_maintenance",
        ):
            bank.move(chance, transactions=1)
            job.start(failpoints=f"{failpoint}=end@1")
            job.wait_until_killed()
            job.lose_folder()
        job.start()
        job.wait_until(lambda: job.progress(tenant).rows >= bank.events)

    assert set(auditor.sums) == {TOTAL}
    assert len(auditor.batches) > 1
    for table in TABLES:
        place = warehouse_table(tenant.name, SOURCE, table_id(table))
        assert without_own_columns(job.read_rows(place)) == bank.rows(table)
    assert job.progress(tenant).rows == bank.events


@pytest.mark.timeout(4 * LIFE_TIMEOUT_S)
def test_of_two_jobs_the_first_ends_by_name_and_nothing_is_written_twice(
    tmp_path: Path, bootstrap_servers: str, store: Store
) -> None:
    """It is stopped in the midst of a batch, as a pod is that nobody reaches, and goes on when the other has taken over."""
    chance = random.Random(44)
    first = job_in(tmp_path / "first", tmp_path, bootstrap_servers, store)
    second = job_in(tmp_path / "second", tmp_path, bootstrap_servers, store)
    written = SinkJob(tmp_path, bootstrap_servers, "iceberg", {}, first.read_rows)
    mirror = write_tenant(written, f"m{secrets.token_hex(3)}", SinkMode.MIRROR, "orders")
    append = write_tenant(written, f"a{secrets.token_hex(3)}", SinkMode.APPEND, "visits")
    tenants, modes = [mirror, append], [SinkMode.MIRROR, SinkMode.APPEND]
    for tenant in tenants:
        tenant.write(chance, transactions=30)

    def is_frozen() -> bool:
        """A tenant's third batch is kept, and nothing of it written."""
        assert first.running is not None
        return Path(f"/proc/{first.running.popen.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    with ended(first, second):
        first.start(failpoints="sink_after_state_kept=freeze@5")
        assert first.running is not None
        first.wait_until(is_frozen)
        try:
            second.start()
            second.wait_until(lambda: all(second.progress(each).rows >= each.changes for each in tenants))
        finally:
            first.running.popen.send_signal(signal.SIGCONT)
        for tenant in tenants:
            tenant.write(chance, transactions=5)

        assert first.running.popen.wait(LIFE_TIMEOUT_S) == 3
        second.wait_until(lambda: all(second.progress(each).rows >= each.changes for each in tenants))

        log = first.running.log_path.read_text()
        assert re.search(r'"error": ?"Fenced".*another process has written the state of tenant', log)
        for tenant, mode in zip(tenants, modes, strict=True):
            assert_exact(second, tenant, mode)


@pytest.mark.timeout(3 * LIFE_TIMEOUT_S)
def test_while_the_store_is_away_nothing_is_written_and_it_is_told(
    tmp_path: Path, bootstrap_servers: str, store: Store
) -> None:
    """The job's own health stays good, because a restart would help nothing; when the store is back, it goes on."""
    chance = random.Random(45)
    job = job_in(tmp_path, tmp_path, bootstrap_servers, store)
    tenant = write_tenant(job, f"a{secrets.token_hex(3)}", SinkMode.APPEND, "visits")
    [model] = tenant.models
    with ended(job):
        tenant.write(chance, transactions=2)
        job.start()
        job.wait_until(lambda: job.progress(tenant).rows >= tenant.changes)
        before = tenant.changes
        store.unplug()
        tenant.write(chance, transactions=2)

        job.wait_until(lambda: job.asked("/readyz")[0] == 503)
        assert job.running is not None
        log = job.running.log_path.read_text()
        assert re.search(
            rf'"tenant": ?"{tenant.name}".*cannot be read or written.*see that the object store answers', log
        )
        assert store.store.secret not in log
        assert f'headwater_sink_waits{{tenant="{tenant.name}"}} 1.0' in job.asked("/metrics")[1]
        assert job.asked("/healthz")[0] == 200
        assert len(job.rows(tenant, model)) == before

        store.plug_in()
        job.wait_until(lambda: job.progress(tenant).rows >= tenant.changes)
        job.wait_until(lambda: job.asked("/readyz")[0] == 200)
        assert_exact(job, tenant, SinkMode.APPEND)
