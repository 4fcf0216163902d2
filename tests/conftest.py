"""Real servers for the tests: one Kafka, one MySQL, one PostgreSQL, one Valkey and one schema registry a test run, shared by
all tests.

Tests keep out of one another's way by names (``unique_name``), not by servers of their own. A test that kills
or misconfigures a server asks ``start_mysql`` or ``start_kafka`` for one that is its alone. A server that cannot
be started fails the tests that need it; nothing is skipped. The kernel ends the servers when pytest ends,
however it ends.
"""

import contextlib
import itertools
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import psutil
import psycopg
import pytest
import structlog
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from libs.config.connections import PostgresqlSettings
from libs.servers import kafka_broker as kafka
from libs.servers import mysql_server as mysql
from libs.servers import postgresql_server as postgresql
from libs.servers import valkey_server as valkey
from libs.servers.ports import LOOPBACK, free_port, free_ports
from libs.servers.process import KILL_TIMEOUT_S, ProcessSpec, Running, kill, start, stop, wait_ready
from libs.source.mysql.client import Connection
from libs.stand_ins.vtgate.cluster import topology_of
from libs.stand_ins.vtgate.service import Security, VtgateServer
from libs.stand_ins.vtgate.vstream import ServerOptions
from libs.telemetry.faults import CATALOGUE, lasting_faults, lift_fault
from tests import clickhouse
from tests import schema_registry as registry
from tests.clickhouse import ClickhouseServer
from tests.integration.service_process import Services, started_services
from tests.marks import EXAMPLES, GATES_EXAMPLES, need

pytest_plugins = ("tests.costs", "tests.scheduling", "tests.tiers", "tests.worker_forks")

# Every process that a test starts would compile its imports again: 2 CPU s for a reader, 3 for a router.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


READY_TIMEOUT_S = 180.0  # two cores, and Spark may be starting beside
STOP_TIMEOUT_S = 120.0
_OWN_READY_TIMEOUT_S = 240.0  # Hive's metastore makes its tables first
_TOLD_CHARS = 4_000
_MYSQL_WITHOUT_FSYNC = ("--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync")
"""A server that is killed has lost nothing: its writes are the kernel's. A statement costs half the CPU."""


def pytest_configure(config: pytest.Config) -> None:
    """No property is judged by how long its examples took: other tests share the cores. The gate tries the same examples each
    time, so that it fails for a change alone; `make test-all` tries others, and more.
    """
    is_gate = config.option.markexpr in ("gate", "fast")
    unhurried = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
    examples = GATES_EXAMPLES if is_gate else EXAMPLES
    hypothesis_settings.register_profile("headwater", derandomize=is_gate, max_examples=examples, **unhurried)
    hypothesis_settings.load_profile("headwater")


@dataclass(slots=True)
class KafkaBroker:
    """A broker of one node."""

    bootstrap_servers: str
    running: Running

    def kill(self) -> None:
        """As a power cut would."""
        kill(self.running)

    def restart(self) -> None:
        """On the same data and port, after ``kill`` or out of the running; returns when it serves."""
        self.running = _restarted(self.running)


@dataclass(slots=True)
class MysqlServer:
    """A server set up for change data capture; root has no password."""

    host: str
    port: int
    running: Running

    def connect(self, database: str | None = None, **options: Any) -> Connection:
        """A new connection as root, autocommit on unless ``options`` (pymysql's) say otherwise."""
        # Where no option speaks of TLS, PyMySQL reads the system's authorities for each connection.
        plain = {} if "ssl" in options else {"ssl_disabled": True}
        chosen = {"user": "root", "autocommit": True, "read_timeout": 120, "write_timeout": 120, **plain, **options}
        return Connection(host=self.host, port=self.port, database=database, **chosen)

    def execute(self, *statements: str, database: str | None = None) -> tuple[tuple[Any, ...], ...]:
        """Run ``statements`` on a connection of their own; the last one's rows."""
        rows: tuple[tuple[Any, ...], ...] = ()
        with self.connect(database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = tuple(cursor.fetchall())
        return rows

    def kill(self) -> None:
        """As a power cut would."""
        kill(self.running)

    def restart(self) -> None:
        """On the same data and port, after ``kill`` or out of the running; returns when it serves."""
        self.running = _restarted(self.running)


@dataclass(frozen=True, slots=True)
class ValkeyServer:
    """An empty Valkey."""

    url: str
    running: Running


@dataclass(slots=True)
class PostgresqlServer:
    """A warehouse; its superuser owns everything."""

    settings: PostgresqlSettings
    running: Running

    def connect(self) -> "psycopg.Connection[Any]":
        """A new connection, autocommit on."""
        return psycopg.connect(
            host=self.settings.host,
            port=self.settings.port,
            dbname=self.settings.database,
            user=self.settings.user,
            password=self.settings.password.reveal(),
            options="-c TimeZone=UTC",
            autocommit=True,
        )

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run ``statements`` on a connection of their own; the last one's rows, if it has some."""
        rows: list[tuple[Any, ...]] = []
        with self.connect() as connection:
            for statement in statements:
                cursor = connection.execute(statement)  # type: ignore[call-overload]
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def kill(self) -> None:
        """As a power cut would; its sessions, each a process group of its own, are gone too."""
        sessions = psutil.Process(self.running.pid).children(recursive=True)
        kill(self.running)
        for session in sessions:
            with contextlib.suppress(psutil.NoSuchProcess):
                session.kill()
        psutil.wait_procs(sessions, KILL_TIMEOUT_S)

    def restart(self) -> None:
        """On the same data and port, after ``kill``; returns when it serves."""
        self.running = _restarted(self.running)


@dataclass(slots=True)
class RegistryServer:
    """A schema registry."""

    url: str
    running: Running

    def kill(self) -> None:
        """As a power cut would."""
        kill(self.running)

    def restart(self) -> None:
        """On the same data and port, after ``kill``; returns when it serves."""
        self.running = _restarted(self.running)


class StartMysql(Protocol):
    """Starts a MySQL for one test alone; ``extra_options`` win over the usual ones."""

    def __call__(self, *, server_id: int = 1, extra_options: tuple[str, ...] = ()) -> MysqlServer: ...


class StartVtgate(Protocol):
    """Starts a stand-in with sharded keyspaces (one by default), each shard on a MySQL server of its own."""

    def __call__(
        self,
        *keyspaces: str,
        shards: tuple[str, ...] = ("-80", "80-"),
        options: ServerOptions | None = None,
        security: Security | None = None,
    ) -> VtgateServer: ...


StartKafka = Callable[[], KafkaBroker]
StartValkey = Callable[[], ValkeyServer]


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    """A process keeps its faults while they last, and tests share one."""
    yield
    for fault in lasting_faults():
        lift_fault(next(kind for kind in CATALOGUE if kind.id == fault.id), fault.scope)


@pytest.fixture(autouse=True)
def same_log() -> Iterator[None]:
    """A test or a command in its process that sends the log elsewhere does so for itself alone."""
    configured = structlog.get_config()
    yield
    structlog.configure(**configured)


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """The shared broker."""
    with ExitStack() as servers:
        yield start_kafka_in(tmp_path_factory.mktemp("kafka"), servers)


@pytest.fixture(scope="session")
def bootstrap_servers(kafka_broker: KafkaBroker) -> str:
    """The shared broker's address."""
    return kafka_broker.bootstrap_servers


@pytest.fixture(scope="session")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """The shared schema registry."""
    folder = tmp_path_factory.mktemp("schema-registry")
    port, management_port = free_ports(2)
    spec = registry.prepare(folder / "data", port=port, management_port=management_port)
    server = RegistryServer(registry.url(port), _started(spec, folder))
    try:
        wait_ready(server.running, READY_TIMEOUT_S)
        yield server
    finally:
        kill(server.running)


@pytest.fixture(scope="session")
def mysql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MysqlServer]:
    """The shared MySQL."""
    with ExitStack() as servers:
        yield start_mysql_in(tmp_path_factory.mktemp("mysql"), servers)


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """The shared Valkey."""
    with ExitStack() as servers:
        yield _start_valkey(tmp_path_factory.mktemp("valkey"), servers)


@pytest.fixture(scope="session")
def _services(
    bootstrap_servers: str, valkey_server: ValkeyServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Services]:
    with started_services(bootstrap_servers, valkey_server.url, tmp_path_factory.mktemp("services")) as started:
        yield started


@pytest.fixture
def services(_services: Services, request: pytest.FixtureRequest) -> Services:
    """The shared schema_history and checkpoint_committer, on the shared broker; tests keep apart by names of sources."""
    _services.supervise()
    _asked[:] = [(_services, request.path)]
    return _services


_asked: Final[list[tuple[Services, Path]]] = []
"""The services that run, and the file whose test was the last to ask for them."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Services rest when a test of another file asks them nothing, and more such ones follow: of Spark, or without servers."""
    is_left = bool(_asked) and item.path != _asked[0][1] and "services" not in getattr(item, "fixturenames", ())
    if is_left and any(item.get_closest_marker(mark) for mark in ("spark", "fast")):
        _asked.pop()[0].rest()


@pytest.fixture(scope="session")
def postgresql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresqlServer]:
    """The shared PostgreSQL."""
    with ExitStack() as servers:
        yield start_postgresql_in(tmp_path_factory.mktemp("postgresql"), servers)


@pytest.fixture(scope="session")
def clickhouse_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickhouseServer]:
    """The shared ClickHouse."""
    with ExitStack() as servers:
        yield start_clickhouse_in(tmp_path_factory.mktemp("clickhouse"), servers)


@pytest.fixture(scope="session")
def shard_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], list[MysqlServer]]]:
    """The first so many of the shared MySQL servers that hold shards; started when they are first asked for."""
    folder = tmp_path_factory.mktemp("shards")
    started: list[MysqlServer] = []
    with ExitStack() as servers:

        def first(count: int) -> list[MysqlServer]:
            while len(started) < count:
                number = len(started) + 1
                started.append(start_mysql_in(folder / f"shard-{number}", servers, server_id=100 + number))
            return started[:count]

        yield first


@pytest.fixture
def start_vtgate(
    shard_servers: Callable[[int], list[MysqlServer]], unique_name: Callable[[str], str]
) -> Iterator[StartVtgate]:
    """Starts stand-ins for Vitess, each with keyspaces that are this test's alone; see ``libs.stand_ins.vtgate``."""
    with ExitStack() as stack:

        def start_one(
            *keyspaces: str,
            shards: tuple[str, ...] = ("-80", "80-"),
            options: ServerOptions | None = None,
            security: Security | None = None,
        ) -> VtgateServer:
            servers = shard_servers(len(shards))
            places = {name: (server.host, server.port) for name, server in zip(shards, servers, strict=True)}
            names = keyspaces or (unique_name("ks"),)
            vtgate = VtgateServer(topology_of(dict.fromkeys(names, places)), options=options, security=security)
            stack.callback(vtgate.start().stop)
            return vtgate

        yield start_one


@pytest.fixture
def start_kafka(tmp_path: Path) -> Iterator[StartKafka]:
    """Starts brokers that are this test's alone."""
    numbers = itertools.count(1)
    with ExitStack() as servers:
        yield lambda: start_kafka_in(tmp_path / f"kafka-{next(numbers)}", servers)


@pytest.fixture
def start_mysql(tmp_path: Path) -> Iterator[StartMysql]:
    """Starts MySQL servers that are this test's alone."""
    numbers = itertools.count(1)
    with ExitStack() as servers:

        def start_one(*, server_id: int = 1, extra_options: tuple[str, ...] = ()) -> MysqlServer:
            folder = tmp_path / f"mysql-{next(numbers)}"
            return start_mysql_in(folder, servers, server_id=server_id, extra_options=extra_options)

        yield start_one


@pytest.fixture
def start_valkey(tmp_path: Path) -> Iterator[StartValkey]:
    """Starts Valkey servers that are this test's alone."""
    numbers = itertools.count(1)
    with ExitStack() as servers:
        yield lambda: _start_valkey(tmp_path / f"valkey-{next(numbers)}", servers)


@pytest.fixture
def unique_name() -> Callable[[str], str]:
    """Makes a name that no other test uses, fit for a topic, a database, a group or a tenant."""
    return lambda stem: f"{stem}_{secrets.token_hex(4)}"


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> Iterator[str]:
    """An empty database of the shared MySQL, this test's alone; dropped after it."""
    name = unique_name("db")
    mysql_server.execute(f"CREATE DATABASE {name}")
    yield name
    mysql_server.execute(f"DROP DATABASE {name}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Report a failure at once, besides at the end: a long run that is broken off has no end."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED {report.nodeid} ({report.when})\n{report.longreprtext[-_TOLD_CHARS:]}", flush=True)  # noqa: T201


def start_kafka_in(folder: Path, servers: ExitStack, *, sasl: kafka.Sasl | None = None) -> KafkaBroker:
    """A broker on data of its own in ``folder``, for a fixture that is shared by a module; ``servers`` kills it: nobody reads
    its folder afterwards, and a shutdown costs as much CPU as a second of work.
    """
    port, controller_port = free_ports(2)
    options = {"sasl": sasl, "java_options": kafka.SHORT_LIFE_OPTIONS}
    spec = kafka.prepare(folder / "data", port=port, controller_port=controller_port, **options)
    broker = KafkaBroker(kafka.bootstrap_servers(port), _started(spec, folder))
    servers.callback(lambda: kill(broker.running))
    wait_ready(broker.running, READY_TIMEOUT_S)
    return broker


def start_mysql_in(
    folder: Path, servers: ExitStack, *, server_id: int = 1, extra_options: tuple[str, ...] = ()
) -> MysqlServer:
    """A MySQL on data of its own in ``folder``, for a fixture that is shared by a module; ``servers`` kills it, as a broker."""
    port = free_port()
    options = (*_MYSQL_WITHOUT_FSYNC, *extra_options)
    spec = mysql.prepare(folder / "data", port=port, server_id=server_id, extra_options=options)
    server = MysqlServer(LOOPBACK, port, _started(spec, folder))
    servers.callback(lambda: kill(server.running))
    wait_ready(server.running, READY_TIMEOUT_S)
    return server


def start_postgresql_in(
    folder: Path, servers: ExitStack, *, password: str | None = None, extra_options: tuple[str, ...] = ()
) -> PostgresqlServer:
    """A PostgreSQL on data of its own in ``folder``; ``servers`` kills it: clients' connections may be open."""
    port = free_port()
    spec = postgresql.prepare(folder / "data", port=port, password=password, extra_options=extra_options)
    settings = postgresql.connection_settings(port, password=password)
    server = PostgresqlServer(settings, _started(spec, folder))
    servers.callback(lambda: kill(server.running))
    wait_ready(server.running, READY_TIMEOUT_S)
    return server


def start_clickhouse_in(
    folder: Path,
    servers: ExitStack,
    *,
    users_file: Path | None = None,
    login: tuple[str, str] | None = None,
) -> ClickhouseServer:
    """A ClickHouse on data of its own in ``folder``; ``servers`` ends it. ``users_file``: as ``clickhouse.prepare`` takes it;
    ``login``: of one of them."""
    port = free_port()
    spec = clickhouse.prepare(folder / "data", port=port, users_file=users_file)
    server = ClickhouseServer(port, _started(spec, folder), login)
    servers.callback(lambda: kill(server.running))
    wait_ready(server.running, READY_TIMEOUT_S)
    return server


def _start_valkey(folder: Path, servers: ExitStack) -> ValkeyServer:
    port = free_port()
    server = ValkeyServer(valkey.url(port), _started(valkey.prepare(folder / "data", port=port), folder))
    servers.callback(lambda: kill(server.running))
    wait_ready(server.running, READY_TIMEOUT_S)
    return server


def started(spec: ProcessSpec, log_dir: Path, servers: ExitStack) -> Running:
    """A server of a test's own, which serves; ``servers`` stops it."""
    need("servers", "spark")
    running = start(spec, log_dir, dies_with_parent=True)
    servers.callback(lambda: stop(running, STOP_TIMEOUT_S))
    wait_ready(running, _OWN_READY_TIMEOUT_S)
    return running


def _started(spec: ProcessSpec, folder: Path) -> Running:
    need("servers", "spark")
    return start(spec, folder / "logs", dies_with_parent=True)


def _restarted(running: Running) -> Running:
    stop(running, STOP_TIMEOUT_S)
    again = start(running.spec, running.log_path.parent, dies_with_parent=True)
    wait_ready(again, READY_TIMEOUT_S)
    return again
