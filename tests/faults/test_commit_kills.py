"""The sink job killed within a commit, in the warehouse's own code: tables are exact nonetheless.

Failpoints (``test_sink_kills``) end a life before and after a commit. Here a process is killed, and the next one goes on; of
Iceberg the shared session (``tests.session_job``). The commit itself is held: PostgreSQL's server keeps it waiting for a lock
of the test's, be it of Iceberg's catalog there or of the sink's own tables, and Delta's waits in the ``rename`` that makes it
visible. One kill meets the commits of several tenants, a mirror and a log at least for each of the fates below.
"""

import contextlib
import json
import os
import random
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from libs.servers.process import kill
from libs.setup.cache import cache_dir
from libs.setup.compiled_modules import c_compiler
from libs.setup.step import Progress
from libs.types.tenant import SinkMode
from libs.types.warehouse import BATCH_PROPERTY, CONSISTENT_TABLE, WarehouseTable, warehouse_table
from spark.sinks.delta.settings import Settings as DeltaSettings
from tests import own_network
from tests.bank import TABLES, TOTAL, Bank, audit_of_snapshots
from tests.conftest import PostgresqlServer
from tests.contract.test_sinks import delta_rows, postgresql_rows
from tests.faults.test_sink_kills import assert_exact
from tests.iceberg_catalogs import HeldCommit
from tests.integration.test_iceberg_catalogs import postgresql_catalog, rest_catalog
from tests.marks import rest
from tests.session_job import SessionJob, life_of
from tests.sink_job import LIFE_TIMEOUT_S, REPOSITORY, SinkJob, Tenant, write_tenant
from tests.sink_topics import SOURCE, table_id, without_own_columns
from tests.spark_session import Row

pytestmark = pytest.mark.spark

POLL_S = 0.1
END_TIMEOUT_S = 60.0
LOCK_TIMEOUT_S = 600.0  # longer than a life takes: a held commit goes on when the test says so
MODES = {mode.value: mode for mode in SinkMode}
SESSION = {"master": "local[8]", "driver_memory": "3g"}
"""As many turns as tenants wait in a commit at once: sixteen."""
TOGETHER = "together"
"""A mirror whose two tables are shown at once."""
MODES_TOGETHER = {**MODES, TOGETHER: SinkMode.MIRROR}

Kinds = Mapping[str, SinkMode]
Tenants = Mapping[str, Tenant]
"""By kind."""


@contextlib.contextmanager
def ended(job: SinkJob) -> Iterator[SinkJob]:
    """The job ends with the block, however the block ends."""
    (job.folder / "tenants").mkdir()
    try:
        yield job
    finally:
        job.stop()


def tenants_of(job: SinkJob, fates: Sequence[str], kinds: Kinds = MODES) -> dict[str, Tenants]:
    """A tenant of each kind for each fate, served by a job that runs and is at rest: their tables are there."""
    run = secrets.token_hex(3)
    tenants = {fate: {kind: tenant_of(job, kind, f"{fate}-{kind}-{run}") for kind in kinds} for fate in fates}
    job.start()
    write_to(tenants)
    wait_until_written(job, tenants)
    return tenants


def tenant_of(job: SinkJob, kind: str, name: str) -> Tenant:
    if kind != TOGETHER:
        return write_tenant(job, name, MODES[kind], "orders")
    topics = {"transactions": True}
    tenant = write_tenant(job, name, SinkMode.MIRROR, "orders", "items", topics=topics, consistency="transaction")
    tenant.topics.create_boundaries()
    return tenant


def write_to(tenants: Mapping[str, Tenants]) -> None:
    for tenant in every(tenants):
        tenant.write(random.Random(tenant.changes), transactions=2)


def every(tenants: Mapping[str, Tenants]) -> list[Tenant]:
    return [tenant for of_fate in tenants.values() for tenant in of_fate.values()]


def wait_until_written(job: SinkJob | SessionJob, tenants: Mapping[str, Tenants]) -> None:
    job.wait_until(lambda: all(job.progress(tenant).rows >= tenant.changes for tenant in every(tenants)))


def assert_all_exact(job: SinkJob, tenants: Mapping[str, Tenants]) -> None:
    for of_fate in tenants.values():
        for kind, tenant in of_fate.items():
            assert_exact(job, tenant, MODES_TOGETHER[kind])


def kill_whole(job: SinkJob) -> None:
    """The job at once, and its JVM; returns when nothing of it is left."""
    assert job.running is not None
    processes = psutil.Process(job.running.pid).children(recursive=True)
    assert "java" in {process.name() for process in processes}
    kill(job.running)
    _, alive = psutil.wait_procs(processes, END_TIMEOUT_S)
    assert not alive


@dataclass(frozen=True, slots=True)
class Gate:
    """A session of PostgreSQL's that others wait for."""

    server: PostgresqlServer
    connection: "psycopg.Connection[Any]"

    @property
    def waiting(self) -> dict[int, str]:
        """By process id: the query of each session that waits for it."""
        return waiting_for(self.server, [self.connection.info.backend_pid])

    def open(self) -> None:
        """They go on."""
        self.connection.rollback()


@contextlib.contextmanager
def gates(server: PostgresqlServer, locks: Mapping[str, str]) -> Iterator[dict[str, Gate]]:
    """By fate, sessions that have each taken its locks, by a statement."""
    with ExitStack() as connections:
        opened = {}
        for fate, statement in locks.items():
            connection = connections.enter_context(server.connect())
            connection.autocommit = False
            connection.execute(statement)  # type: ignore[call-overload]
            opened[fate] = Gate(server, connection)
        yield opened


def waiting_for(server: PostgresqlServer, processes: Sequence[int]) -> dict[int, str]:
    """By process id: the query of each session that waits for a lock of one of ``processes``."""
    waiting = "SELECT pid, query FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    return dict(server.execute(f"{waiting} AND pg_blocking_pids(pid) && ARRAY{[*processes]}::int[]"))


def end(server: PostgresqlServer, processes: Sequence[int]) -> None:
    """End sessions, in the middle of their statements."""
    timeout_ms = round(END_TIMEOUT_S * 1000)
    ends = server.execute(f"SELECT pg_terminate_backend(pid, {timeout_ms}) FROM unnest(ARRAY{[*processes]}) pid")
    assert ends == [(True,)] * len(processes)


def wait_until_gone(server: PostgresqlServer, processes: Sequence[int]) -> None:
    """Sessions whose client is dead end when their statement is done."""
    deadline_s = time.monotonic() + END_TIMEOUT_S
    left = f"SELECT pid, state, query FROM pg_stat_activity WHERE pid = ANY(ARRAY{[*processes]})"
    while still := server.execute(left):
        assert time.monotonic() < deadline_s, still
        time.sleep(POLL_S)


@dataclass(frozen=True, slots=True)
class Metadata:
    """Of an Iceberg table whose catalog is in PostgreSQL: the file that is in force, and those that there are."""

    current: Path
    files: frozenset[Path]

    @property
    def batch(self) -> str:
        """That the newest snapshot is of."""
        return batch_of(self.current)


def batch_of(metadata: Path) -> str:
    document = json.loads(metadata.read_bytes())
    [newest] = [each for each in document["snapshots"] if each["snapshot-id"] == document["current-snapshot-id"]]
    return str(newest["summary"][BATCH_PROPERTY])


def metadata_of(server: PostgresqlServer, tenants: Mapping[str, Tenants]) -> dict[str, list[Metadata]]:
    """Of each fate's tables, kind by kind."""
    found = {}
    for fate, of_fate in tenants.items():
        found[fate] = []
        for tenant in of_fate.values():
            ((location,),) = server.execute(
                f"SELECT metadata_location FROM iceberg_tables WHERE table_namespace LIKE '{tenant.name}.%'"
            )
            current = Path(location.removeprefix("file:"))
            found[fate].append(Metadata(current, frozenset(current.parent.glob("*.metadata.json"))))
    return found


@pytest.mark.promise("killed sink")
@pytest.mark.parametrize(
    "kinds",
    [
        {mode.value: mode for mode in (SinkMode.MIRROR, SinkMode.APPEND)},
        *rest(MODES, because="a history's commit that was left under way is in unit/spark/test_history.py"),
    ],
    ids="+".join,
)
@pytest.mark.timeout(3 * LIFE_TIMEOUT_S)
def test_killed_within_a_commit_of_icebergs_the_tables_are_exact(
    bootstrap_servers: str, postgresql_server: PostgresqlServer, tmp_path: Path, kinds: Kinds
) -> None:
    """Data, manifests and metadata are written, and the catalog's UPDATE waits in PostgreSQL. When the job is killed then, the
    UPDATE is lost with its session, or goes through though nobody waits for it any more: before the next life begins, or when
    that is at its own commit of the same table.
    """
    catalog = postgresql_catalog(postgresql_server)
    properties = {"clients": "16"}  # by default two commits of a session's wait at once
    where = {
        "warehouse_dir": str(tmp_path / "warehouse"),
        "catalog": {**catalog.settings["catalog"], "properties": properties},
    }

    def rows(place: WarehouseTable) -> list[Row]:
        with catalog.load(place) as table:
            return table.scan().to_arrow().to_pylist()

    with ended(SinkJob(tmp_path, bootstrap_servers, "iceberg", where, rows, session=SESSION)) as job:
        tenants = tenants_of(job, ["lost", "kept", "late"], kinds)
        before = metadata_of(postgresql_server, tenants)
        locks = {
            fate: f"SELECT 1 FROM iceberg_tables WHERE table_namespace LIKE '{fate}-%' FOR UPDATE" for fate in tenants
        }
        with gates(postgresql_server, locks) as gate:
            write_to(tenants)
            job.wait_until(lambda: all(len(gate[fate].waiting) == len(kinds) for fate in tenants))
            held = {fate: gate[fate].waiting for fate in tenants}
            assert all(query.startswith("UPDATE iceberg_tables") for each in held.values() for query in each.values())
            kill_whole(job)
            assert {fate: gate[fate].waiting for fate in tenants} == held

            written = metadata_of(postgresql_server, tenants)
            for fate in tenants:
                for then, now in zip(before[fate], written[fate], strict=True):
                    [pending] = now.files - then.files
                    assert (now.current, batch_of(pending) != now.batch) == (then.current, True)
            end(postgresql_server, [*held["lost"]])
            for fate in ("lost", "kept"):
                gate[fate].open()
            wait_until_gone(postgresql_server, [*held["kept"]])
            after = metadata_of(postgresql_server, tenants)
            assert after["lost"] == written["lost"]
            for then, now in zip(before["kept"], after["kept"], strict=True):
                assert {now.current} == now.files - then.files

            write_to(tenants)
            with life_of(job) as following:
                following.start()
                following.wait_until(lambda: len(waiting_for(postgresql_server, [*held["late"]])) == len(kinds))
                gate["late"].open()
                wait_until_written(following, tenants)

        assert_all_exact(job, tenants)


@pytest.mark.rest(because="the gate kills within a commit of Iceberg's")
@pytest.mark.timeout(3 * LIFE_TIMEOUT_S)
def test_killed_within_a_commit_of_a_rest_catalogs_the_tables_are_exact(bootstrap_servers: str, tmp_path: Path) -> None:
    """A commit's request is on its way. When the job is killed then, it is lost, or reaches the catalog though nobody waits for
    the answer: before the next life begins, or when that is at its own commit of the same table.
    """
    if reason := own_network.why_not():
        pytest.skip(f"the catalog listens on all interfaces, and may have no network of its own here: {reason}")
    with ExitStack() as servers:
        catalog = rest_catalog(tmp_path, servers)
        gate = catalog.gate
        assert gate is not None

        def rows(place: WarehouseTable) -> list[Row]:
            with catalog.load(place) as table:
                return table.scan().to_arrow().to_pylist()

        def batches() -> dict[str, list[str]]:
            found: dict[str, list[str]] = {}
            for fate, of_fate in tenants.items():
                for tenant in of_fate.values():
                    with catalog.load(job.place(tenant, tenant.models[0])) as table:
                        batch_of_snapshot = [each.summary[BATCH_PROPERTY] for each in reversed(table.snapshots())]
                        found.setdefault(fate, []).append(str(next(filter(None, batch_of_snapshot))))
            return found

        def held(fate: str, since: int = 0) -> list[HeldCommit]:
            return [each for each in gate.held[since:] if f"/{fate}-" in each.path]

        job = servers.enter_context(
            ended(
                SinkJob(
                    tmp_path,
                    bootstrap_servers,
                    "iceberg",
                    catalog.settings,
                    rows,
                    environ=catalog.environ,
                    session=SESSION,
                )
            )
        )
        tenants = tenants_of(job, ["lost", "kept", "late"])
        before = batches()
        gate.holds_commits = True
        write_to(tenants)
        job.wait_until(lambda: all(len(held(fate)) == len(MODES) for fate in tenants))
        kill_whole(job)
        first, gate.holds_commits = len(gate.held), False

        for each in held("lost"):
            each.drop()
        for each in held("kept"):
            each.go_on()
        for each in (*held("lost"), *held("kept")):
            assert each.is_done.wait(END_TIMEOUT_S)
        after = batches()
        assert {fate for fate in tenants if after[fate] != before[fate]} == {"kept"}
        assert not {*after["kept"]} & {*before["kept"]}

        gate.holds_commits = True
        write_to(tenants)
        job.start()
        job.wait_until(lambda: len(held("late", first)) == len(MODES))
        gate.holds_commits = False
        for each in gate.held:  # those of the life before, then those of this one
            each.go_on()
            assert each.is_done.wait(END_TIMEOUT_S)
        wait_until_written(job, tenants)

        assert_all_exact(job, tenants)


POINTS = ("written", "told", "shown", "showing")
"""Where a tenant's tables that move together are held: the rows of one wait to be on its branch; the snapshots that belong
together to be named; the first table to be shown; the second one, the first being shown."""


@pytest.mark.rest(because="the gate kills within a commit of Iceberg's")
@pytest.mark.timeout(3 * LIFE_TIMEOUT_S)
def test_killed_within_the_commits_of_tables_that_move_together_no_sum_is_wrong(
    bootstrap_servers: str, postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    """Money moves between two tables, and one of the commits that a batch is made of waits in Iceberg's catalog. When the job
    is killed then, the commit goes through though nobody waits for it any more: before the next life begins, or when that is
    at its own. That it is lost is as a kill at a failpoint (``test_consistency_kills``). Every reader sums right.
    """
    server = postgresql_server
    catalog = postgresql_catalog(server)
    where = {
        "warehouse_dir": str(tmp_path / "warehouse"),
        "catalog": {**catalog.settings["catalog"], "properties": {"clients": "16"}},
    }
    chance, run = random.Random(13), secrets.token_hex(3)
    fates = [f"{point}{end}" for point in POINTS for end in ("kept", "late")]

    def rows(place: WarehouseTable) -> list[Row]:
        with catalog.load(place) as table:
            return table.scan().to_arrow().to_pylist()

    with (
        ended(SinkJob(tmp_path, bootstrap_servers, "iceberg", where, rows, session=SESSION)) as job,
        ExitStack() as opened,
    ):
        document: dict[str, Any] = {"consistency": "transaction", "topics": {"transactions": True}}
        tenants = {fate: write_tenant(job, f"{fate}-{run}", SinkMode.MIRROR, **document) for fate in fates}
        banks = {fate: Bank(tenant.topics) for fate, tenant in tenants.items()}

        def move() -> None:
            for bank in banks.values():
                bank.move(chance, transactions=2)

        def is_all_written() -> bool:
            assert_no_sum_is_wrong()
            return all(job.progress(tenants[fate]).rows >= banks[fate].events for fate in fates)

        def assert_no_sum_is_wrong() -> None:
            audits = {fate: audit_of_snapshots(tenant.name, catalog.load) for fate, tenant in tenants.items()}
            assert {fate: audit.total for fate, audit in audits.items() if audit} == dict.fromkeys(audits, TOTAL)

        def lock(fate: str, table: str) -> str:
            named = f"starts_with(table_namespace, '{fate}-') AND table_name = '{table}'"
            return f"SELECT 1 FROM iceberg_tables WHERE {named} FOR UPDATE"

        job.start()
        job.wait_until(lambda: all(job.progress(tenants[fate]).rows >= banks[fate].events for fate in fates))
        first, second = sorted(TABLES)
        at_first = {fate: lock(fate, first if fate.startswith("written") else CONSISTENT_TABLE) for fate in fates}
        gate = opened.enter_context(gates(server, at_first))
        move()
        job.wait_until(lambda: all(len(gate[fate].waiting) == 1 for fate in fates))
        to_show = {fate: lock(fate, first if fate.startswith("shown") else second) for fate in fates if "show" in fate}
        further = opened.enter_context(gates(server, to_show))
        for fate in to_show:
            gate[fate].open()
        gate |= further
        job.wait_until(lambda: all(len(gate[fate].waiting) == 1 for fate in fates))
        held = {fate: gate[fate].waiting for fate in fates}
        assert all(query.startswith("UPDATE iceberg_tables") for each in held.values() for query in each.values())
        kill_whole(job)
        assert {fate: gate[fate].waiting for fate in fates} == held
        assert_no_sum_is_wrong()

        kept, late = ([fate for fate in fates if fate.endswith(end)] for end in ("kept", "late"))
        for fate in kept:
            gate[fate].open()
        wait_until_gone(server, [process for fate in kept for process in held[fate]])
        assert_no_sum_is_wrong()
        move()
        job.start()
        job.wait_until(lambda: all(waiting_for(server, [*held[fate]]) for fate in late))
        assert_no_sum_is_wrong()
        for fate in late:
            gate[fate].open()
        job.wait_until(is_all_written)

        for fate, bank in banks.items():
            for table in TABLES:
                place = warehouse_table(tenants[fate].name, SOURCE, table_id(table))
                assert without_own_columns(rows(place)) == bank.rows(table), (fate, table)
            assert job.progress(tenants[fate]).rows == bank.events, fate


GATE_FUNCTION = "headwater.wait_at_gate"
NOTING = "noting"
COMMITTING = "committing"
_GATES = f"""
CREATE FUNCTION {GATE_FUNCTION}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  PERFORM pg_advisory_xact_lock_shared(hashtext(TG_NAME), hashtext(split_part(NEW.name, '-', 1)));
  RETURN NEW;
END $$;
CREATE TRIGGER {NOTING} BEFORE UPDATE OF batch_id ON headwater.tables FOR EACH ROW EXECUTE FUNCTION {GATE_FUNCTION}();
CREATE CONSTRAINT TRIGGER {COMMITTING} AFTER UPDATE OF batch_id ON headwater.tables DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION {GATE_FUNCTION}();
"""


@contextlib.contextmanager
def gates_in_transactions(server: PostgresqlServer) -> Iterator[None]:
    """A transaction that notes a batch passes a gate in that statement, and one in COMMIT, by the tenant's fate."""
    server.execute(_GATES)
    try:
        yield
    finally:
        server.execute(f"DROP FUNCTION {GATE_FUNCTION} CASCADE")


@pytest.mark.rest(because="the gate kills within a commit of Iceberg's")
@pytest.mark.timeout(3 * LIFE_TIMEOUT_S)
def test_killed_within_a_commit_of_postgresqls_the_tables_are_exact(
    bootstrap_servers: str, postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    """A batch waits where it is noted, its rows being written, or in COMMIT, that of both tables where they move together. When
    the job is killed then, the former is rolled back though the statement goes through; COMMIT is lost with its session, or
    goes through: before the next life begins, or when that waits for it.
    """
    server = postgresql_server
    where = {name: getattr(server.settings, name) for name in ("host", "port", "database", "user")}
    where["lock_timeout_s"] = LOCK_TIMEOUT_S
    trigger_of = {"noted": NOTING, "lost": COMMITTING, "kept": COMMITTING, "late": COMMITTING}
    job = SinkJob(tmp_path, bootstrap_servers, "postgresql", where, partial(postgresql_rows, server), session=SESSION)

    with ended(job), ExitStack() as triggers:
        tenants = tenants_of(job, [*trigger_of], MODES_TOGETHER)
        triggers.enter_context(gates_in_transactions(server))
        before = batches_of(server, tenants)
        locks = {
            fate: f"SELECT pg_advisory_xact_lock(hashtext('{trigger}'), hashtext('{fate}'))"
            for fate, trigger in trigger_of.items()
        }
        with gates(server, locks) as gate:
            write_to(tenants)
            job.wait_until(lambda: all(len(gate[fate].waiting) == len(MODES_TOGETHER) for fate in tenants))
            held = {fate: gate[fate].waiting for fate in tenants}
            assert all(query.startswith("UPDATE headwater.tables") for query in held["noted"].values())
            assert {query for fate in ("lost", "kept", "late") for query in held[fate].values()} == {"COMMIT"}
            kill_whole(job)
            assert {fate: gate[fate].waiting for fate in tenants} == held

            end(server, [*held["lost"]])
            for fate in ("noted", "lost", "kept"):
                gate[fate].open()
            wait_until_gone(server, [*held["noted"], *held["kept"]])
            after = batches_of(server, tenants)
            assert {fate for fate in tenants if after[fate] != before[fate]} == {"kept"}
            assert all(now > then for then, now in zip(before["kept"], after["kept"], strict=True))

            write_to(tenants)
            job.start()
            job.wait_until(lambda: len(waiting_for(server, [*held["late"]])) == len(MODES_TOGETHER))
            gate["late"].open()
        wait_until_written(job, tenants)

        assert_all_exact(job, tenants)


def batches_of(server: PostgresqlServer, tenants: Mapping[str, Tenants]) -> dict[str, list[int]]:
    """The last batches of each fate's tables, kind by kind."""

    def noted(tenant: Tenant) -> int:
        found = server.execute(f"SELECT batch_id FROM headwater.tables WHERE starts_with(name, '{tenant.name}.')")
        [(batch_id,)] = {*found}
        return int(batch_id)

    return {fate: [noted(tenant) for tenant in of_fate.values()] for fate, of_fate in tenants.items()}


HELD_RENAME = Path(__file__).with_name("held_rename.c")


@pytest.fixture(scope="session")
def held_rename(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of ``held_rename.c``."""
    library = tmp_path_factory.mktemp("held-rename") / "held_rename.so"
    compiler, environ = c_compiler(cache_dir(), REPOSITORY, Progress())
    command = [*compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, HELD_RENAME, "-ldl"]
    subprocess.run(command, env={**os.environ, **environ}, check=True, timeout=END_TIMEOUT_S)
    return library


@pytest.mark.rest(because="the gate kills within a commit of Iceberg's")
@pytest.mark.timeout(3 * LIFE_TIMEOUT_S)
def test_killed_within_a_commit_of_deltas_the_tables_are_exact(
    bootstrap_servers: str, held_rename: Path, tmp_path: Path
) -> None:
    """A job is killed when the commit is a whole file under a name that nobody reads, and when it has its name, but no process
    has had the answer.
    """
    where = {"warehouse_dir": str(tmp_path / "warehouse")}
    rows = partial(delta_rows, DeltaSettings(**where))
    job = SinkJob(
        tmp_path, bootstrap_servers, "delta", where, rows, environ={"LD_PRELOAD": str(held_rename)}, session=SESSION
    )

    with ended(job):
        tenants = tenants_of(job, ["before", "after"])
        folders = {
            fate: [
                Path(where["warehouse_dir"], *job.place(each, each.models[0]).identifier) for each in of_fate.values()
            ]
            for fate, of_fate in tenants.items()
        }
        markers = [folder / f"_hold_{fate}" for fate in folders for folder in folders[fate]]
        commits = {folder: commits_of(folder) for fate in folders for folder in folders[fate]}
        for marker in markers:
            marker.touch()
        write_to(tenants)
        job.wait_until(lambda: all(marker.with_name("_held").exists() for marker in markers))
        kill_whole(job)

        for folder in folders["before"]:
            [pending] = folder.glob("_delta_log/.*.json.*.tmp")
            assert (commits_of(folder), is_of_batch(pending)) == (commits[folder], True)
        for folder in folders["after"]:
            [written] = commits_of(folder) - commits[folder]
            assert is_of_batch(written)
            assert not written.with_suffix(".crc").exists()
        for marker in markers:
            marker.unlink()

        write_to(tenants)
        job.start()
        wait_until_written(job, tenants)

        assert_all_exact(job, tenants)


def commits_of(folder: Path) -> set[Path]:
    """Of a Delta table."""
    return {*folder.glob("_delta_log/*.json")}


def is_of_batch(commit: Path) -> bool:
    """Whether it is whole, and says which batch it is."""
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    return any("txn" in action for action in actions) and any("add" in action for action in actions)
