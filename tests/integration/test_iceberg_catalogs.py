"""Catalogs and storage other than the embedded stack's: a job over real ones, restarted, and its tables read by pyiceberg."""

import contextlib
import os
import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table

from libs.config.load import convert_document
from libs.servers.ports import LOOPBACK, free_port, free_ports
from libs.servers.process import stop
from libs.setup import jar_download
from libs.setup.cache import cache_dir
from libs.setup.jars import jar_set
from libs.types.tenant import SinkMode
from libs.types.warehouse import CATALOG, WarehouseTable
from spark.sinks.iceberg.catalog import place_in
from spark.sinks.iceberg.settings import Settings
from tests import own_network
from tests.cluster import programs
from tests.conftest import PostgresqlServer, started
from tests.iceberg_catalogs import LOCKS_DIR, Gate, opened, prepare_hive_metastore, prepare_rest_catalog
from tests.marks import rest
from tests.object_store import ObjectStore
from tests.session_job import life_of
from tests.sink_job import LIFE_TIMEOUT_S, STOP_TIMEOUT_S, SinkJob, told_cpu_s, write_tenant
from tests.sink_topics import without_own_columns
from tests.spark_session import Row

pytestmark = pytest.mark.spark

KEPT = {"rewrite_at_delete_files": 2, "keep_snapshots": 2, "orphans_every_commits": 4}


Load = Callable[[WarehouseTable], contextlib.AbstractContextManager[Table]]


@dataclass(frozen=True, slots=True)
class Known:
    """A catalog, as the job's settings name it, and as pyiceberg reads it."""

    settings: dict[str, Any]
    load: Load
    environ: dict[str, str] = field(default_factory=dict)
    """Of the job: secrets that stand in no file."""
    session: dict[str, str] = field(default_factory=dict)
    """Of the job, besides."""
    gate: Gate | None = None
    store: ObjectStore | None = None

    @property
    def hidden(self) -> tuple[str, ...]:
        """Secrets that may stand in no log, file or command line."""
        of_store = () if self.store is None else (self.store.secret,)
        return of_store if self.gate is None else (*of_store, *self.gate.hidden)


def catalog_of(kind: str, folder: Path, servers: ExitStack, request: pytest.FixtureRequest) -> Known:
    match kind:
        case "hadoop":
            return Known({"catalog": {"kind": "hadoop"}}, lambda place: newest_in(folder / "warehouse", place))
        case "jdbc":
            return postgresql_catalog(request.getfixturevalue("postgresql_server"))
        case "rest":
            return rest_catalog(folder, servers)
        case "jdbc and s3":
            return in_object_store(folder, servers, request.getfixturevalue("postgresql_server"))
        case _:
            return hive_metastore(folder, servers)


@contextlib.contextmanager
def newest_in(warehouse: Path, place: WarehouseTable) -> Iterator[Table]:
    folder = warehouse.joinpath(*place.identifier)
    newest = (folder / "metadata" / "version-hint.text").read_text()
    yield StaticTable.from_metadata(f"file://{folder}/metadata/v{newest}.metadata.json")


def loads(open_catalog: Callable[[], Catalog]) -> Load:
    @contextlib.contextmanager
    def load(place: WarehouseTable) -> Iterator[Table]:
        catalog = open_catalog()
        try:
            yield catalog.load_table(place.identifier)
        finally:
            catalog.close()

    return load


def postgresql_catalog(server: PostgresqlServer, storage: dict[str, str] | None = None) -> Known:
    """``storage``: how pyiceberg reaches the files."""
    where = server.settings
    address = f"{where.host}:{where.port}/{where.database}"
    uri = f"postgresql+psycopg://{where.user}@{address}"
    settings = {"kind": "jdbc", "uri": f"jdbc:postgresql://{address}", "user": where.user}
    options = {"uri": uri, "init_catalog_tables": "false", **(storage or {})}
    return Known({"catalog": settings}, loads(lambda: SqlCatalog(CATALOG, **options)))


def in_object_store(folder: Path, servers: ExitStack, server: PostgresqlServer) -> Known:
    """The tables' files lie in S3, their list in PostgreSQL; the key comes by the environment."""
    program = programs.build_object_store()
    if program is None:
        pytest.fail("the object store cannot be built: see above; `make cluster-programs` tries again")
    store = ObjectStore(program, folder / "store", free_port())
    started(store.spec(), folder / "store-logs", servers)
    store.make_bucket("lake")
    listed = postgresql_catalog(
        server, {"s3.access-key-id": store.key, "s3.secret-access-key": store.secret, **store.properties}
    )
    catalog = {**listed.settings["catalog"], "properties": store.properties}
    aws = jar_download.fetched(jar_set("iceberg-aws", LOCKS_DIR), cache_dir())
    return Known(
        {"catalog": catalog, "warehouse_dir": "s3://lake/warehouse"},
        listed.load,
        store.environ,
        {"more_jars_dir": str(aws)},
        store=store,
    )


def rest_catalog(folder: Path, servers: ExitStack) -> Known:
    """Its tables lie where it says; the job knows its warehouse by a name, and its credential by the environment."""
    port, gate_port = free_ports(2)
    catalog = started(prepare_rest_catalog(folder / "catalog", port=port), folder / "catalog-logs", servers)
    assert own_network.addresses_listened_on(catalog.pid) == {LOOPBACK}
    gate = servers.enter_context(opened(Gate(gate_port, port)))
    properties = {"oauth2-server-uri": gate.tokens_uri}
    settings = {"catalog": {"kind": "rest", "uri": gate.uri, "properties": properties}, "warehouse_dir": "lake"}
    known = loads(lambda: RestCatalog(CATALOG, uri=gate.uri, credential=gate.credential, **properties))
    environ = {"HEADWATER_WAREHOUSES__ICEBERG__CATALOG__CREDENTIAL": gate.credential}
    return Known(settings, known, environ, gate=gate)


def hive_metastore(folder: Path, servers: ExitStack) -> Known:
    port = free_port()
    metastore = started(prepare_hive_metastore(folder / "catalog", port=port), folder / "catalog-logs", servers)
    assert own_network.addresses_listened_on(metastore.pid) == {LOOPBACK}
    uri = f"thrift://{LOOPBACK}:{port}"
    return Known({"catalog": {"kind": "hive", "uri": uri}}, loads(lambda: HiveCatalog(CATALOG, uri=uri)))


@pytest.mark.timeout(4 * LIFE_TIMEOUT_S)
@pytest.mark.parametrize(
    ("kind", "format_version"),
    [
        ("rest", 3),
        *rest(("hadoop", 3), ("jdbc", 2), ("hive", 2), ("jdbc and s3", 2), because="as with a REST catalog"),
    ],
)
def test_a_job_lives_twice_on_another_catalog(
    kind: str, format_version: int, bootstrap_servers: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Tables, maintenance and the batch's identity are there as in the catalog that is a file; of both formats. In an object
    store a file that no snapshot knows goes when it is old, and stays while it is young. The secrets by which the job proves
    itself are in none of its files and logs, nor on its command lines. It reports each tenant's share of its CPU time.
    """
    if kind in ("rest", "hive") and (reason := own_network.why_not()):
        pytest.skip(f"its server listens on all interfaces, and may have no network of its own here: {reason}")
    (tmp_path / "tenants").mkdir()
    with ExitStack() as servers:
        catalog = catalog_of(kind, tmp_path, servers, request)
        document = {"warehouse_dir": str(tmp_path / "warehouse"), "format_version": format_version, **KEPT}
        document |= catalog.settings
        settings = convert_document(Settings, document, place="", mistakes=(mistakes := []))
        assert settings is not None, mistakes

        def place(table: WarehouseTable) -> WarehouseTable:
            return place_in(settings.catalog, table)

        def rows(table: WarehouseTable) -> list[Row]:
            with catalog.load(place(table)) as found:
                return found.scan().to_arrow().to_pylist()

        job = SinkJob(
            tmp_path, bootstrap_servers, "iceberg", document, rows, environ=catalog.environ, session=catalog.session
        )
        chance = random.Random(7)
        layout = {"tables": r".*\.orders", "partition_by": ["bucket(2, id)"], "sort_by": ["note desc"]}
        tenant = write_tenant(job, f"k{secrets.token_hex(3)}", SinkMode.MIRROR, "orders", "items", layouts=[layout])

        tenant.write(chance, transactions=15)
        end_first_life(job, "sink_after_merge_before_next_table", at_pass=4)
        model, other = tenant.models
        orphans: list[Path] = []
        if catalog.store is not None:
            with catalog.load(place(job.place(tenant, model))) as table:
                orphans = [
                    catalog.store.file_of(f"{table.location()}/data/{name}.parquet") for name in ("old", "young")
                ]
            for orphan in orphans:
                orphan.write_bytes(b"left by a task that was killed")
            os.utime(orphans[0], (0, 0))
        tenant.write(chance, transactions=15)
        small = write_tenant(job, f"s{secrets.token_hex(3)}", SinkMode.MIRROR, "orders")
        small.write(chance, transactions=1)
        job.start()
        job.wait_until(lambda: all(job.progress(each).rows >= each.changes for each in (tenant, small)))
        # The table without a layout is small, and merged without a query by this catalog's and this storage's own classes.
        job.wait_until(lambda: 'way="at_hand"' in job.asked("/metrics")[1])
        assert 'way="failed"' not in job.asked("/metrics")[1]
        assert job.running is not None
        command_lines = command_lines_below(job.running.pid)
        job.wait_until(lambda: {tenant.name, small.name} <= told_cpu_s(job).keys())
        seconds, most = told_cpu_s(job), cpu_s_of(job.running.pid)
        stop(job.running, STOP_TIMEOUT_S)

        for each in (model, other):
            assert without_own_columns(job.rows(tenant, each)) == each.sorted_rows()
        with catalog.load(place(job.place(tenant, model))) as table:
            assert table.metadata.format_version == format_version
            assert [str(field.transform) for field in table.spec().fields] == ["bucket[2]"]
            assert [str(field.direction) for field in table.sort_order().fields] == ["DESC"]
            assert int(table.properties["headwater.orphans-removed-at"]) > 0
            assert len(table.metadata.snapshots) < 2 * KEPT["keep_snapshots"] + 2
        assert any("SparkSubmit" in line for line in command_lines)
        assert seconds[tenant.name] > seconds[small.name] > 0
        assert sum(seconds.values()) < most
        assert [orphan.exists() for orphan in orphans] == [False, True][: len(orphans)]
        if catalog.gate is not None:
            assert catalog.gate.passed > 0
        assert found_in(tmp_path, command_lines, catalog.hidden) == []


def end_first_life(job: SinkJob, failpoint: str, *, at_pass: int) -> None:
    """In the shared session, unless the job needs jars that this lacks."""
    if job.session:
        job.start(failpoints=f"{failpoint}=kill@{at_pass}")
        job.wait_until_killed()
        return
    with life_of(job) as first:
        first.start(failpoints=f"{failpoint}=end@{at_pass}")
        first.wait_until_killed()


def cpu_s_of(pid: int) -> float:
    """Of a process, and of all below it: the driver and its JVM."""
    process = psutil.Process(pid)
    return sum(sum(each.cpu_times()[:2]) for each in (process, *process.children(recursive=True)))


def command_lines_below(pid: int) -> list[str]:
    """Of the process's children that run; a shell of Hadoop's may end meanwhile."""
    lines: list[str] = []
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            lines.append(" ".join(child.cmdline()))
    return lines


def found_in(folder: Path, lines: list[str], hidden: tuple[str, ...]) -> list[str]:
    """Where any of ``hidden`` stands, the files of ``folder`` and ``lines`` being looked through."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    told = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    told |= {line[:80]: line.encode() for line in lines}
    return [place for place, content in told.items() if any(each.encode() in content for each in hidden)]
