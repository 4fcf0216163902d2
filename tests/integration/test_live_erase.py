"""``headwater erase`` as a user types it: of two tenants that share a source one goes, killed at each step, under traffic."""

import contextlib
import itertools
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
import redis
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from libs.mesh.processes import VALKEY, kafka_address
from libs.mesh.sink_state import sink_progress
from libs.mesh.state import read_ports
from libs.operations.erase.carry_out import unfinished
from libs.servers.postgresql_server import connection_settings
from tests.conftest import MysqlServer
from tests.headwater_command import HeadwaterCommand, headwater_in, write_shop

pytestmark = pytest.mark.rest(because="a whole stack; the gate shows each part of it (tests/unit/operations)")

UP_TIMEOUT_S = 600.0
COMMAND_TIMEOUT_S = 400.0
KAFKA_DELETES_S = 180.0  # it waits a minute with the files of a deleted topic
KILLED_AT = (
    "erase_after_document",
    "erase_after_kafka",
    "erase_between_catalog_and_files",
    "erase_before_postgresql_commit",
    "erase_after_tables",
    "erase_after_state",
    "erase_before_looking_again",
)


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> str:
    name = unique_name("erase")
    rows = ", ".join(f"({number}, 'note {number}')" for number in range(1, 501))
    mysql_server.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.orders (id INT PRIMARY KEY, note VARCHAR(40))",
        f"CREATE TABLE {name}.visits (id INT PRIMARY KEY, note VARCHAR(40))",
        f"INSERT INTO {name}.orders VALUES {rows}",
        f"INSERT INTO {name}.visits VALUES {rows}",
    )
    return name


@pytest.fixture
def headwater(mysql_server: MysqlServer, database: str, tmp_path: Path) -> Iterator[HeadwaterCommand]:
    """A home with one source and a tenant in each warehouse, besides one that is to stay; nothing runs."""
    with headwater_in(tmp_path / "home") as command:
        sinks = {
            "acme": "{trigger_s: 1}",
            "acme-2": "{trigger_s: 1}",  # another tenant, though its name begins as the other's
            "delta": "{warehouse: delta, trigger_s: 5}",
            "globex": "{warehouse: postgresql, trigger_s: 1}",
        }
        write_shop(command.home, mysql_server, database, sinks)
        key = command.home.keys_dir / "acme" / "pii"
        key.parent.mkdir()
        key.write_text("0123456789abcdef0123456789abcdef\n")
        yield command


@contextlib.contextmanager
def written_to(server: MysqlServer, database: str) -> Iterator[None]:
    """Within the block rows come, change and go all the time."""
    must_stop = threading.Event()

    def write() -> None:
        with server.connect(database) as connection, connection.cursor() as cursor:
            for number in itertools.count(10_000):
                cursor.execute("INSERT INTO orders VALUES (%s, 'live')", (number,))
                cursor.execute("UPDATE visits SET note = %s WHERE id = %s", (f"visit {number}", number % 500))
                cursor.execute("DELETE FROM orders WHERE id = %s", (number - 5,))
                if must_stop.wait(0.3):
                    return

    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(write)
        try:
            yield
        finally:
            must_stop.set()
        done.result()


def run(headwater: HeadwaterCommand, *arguments: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    code, said = headwater.run(*arguments, timeout_s=timeout_s)
    assert code == 0, said + headwater.logs()
    return said


def wait_for_tables(headwater: HeadwaterCommand, tenant: str, tables: int) -> None:
    """Until the sink has written so many."""
    deadline_s = time.monotonic() + COMMAND_TIMEOUT_S
    while (progress := sink_progress(headwater.home, tenant)) is None or len(progress.tables) < tables:
        assert time.monotonic() < deadline_s, headwater.logs()
        time.sleep(0.5)


def a_consumer_group(address: str, group: str, topic: str) -> None:
    """One that has committed an offset, and left."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    deadline_s = time.monotonic() + 60.0
    while (message := consumer.poll(1.0)) is None or message.error() is not None:
        assert time.monotonic() < deadline_s
    consumer.commit(message=message, asynchronous=False)
    consumer.close()


def traces(headwater: HeadwaterCommand, tenant: str) -> list[str]:
    """Everything that still has the tenant's name: looked for by other means than the command's own."""
    home, ports = headwater.home, read_ports(headwater.home)
    admin = AdminClient({"bootstrap.servers": kafka_address(ports)})
    found: list[str] = [
        f"topic {name}" for name in admin.list_topics(timeout=120).topics if name.startswith(f"{tenant}.")
    ]
    groups = admin.list_consumer_groups(request_timeout=120).result().valid
    found += [f"group {each.group_id}" for each in groups if each.group_id.startswith(f"{tenant}.")]
    apart = (home.logs_dir, home.keys_dir, home.tenants_dir / "acme.yaml.example")
    # Not Path.rglob: it raises where a folder of Kafka or of a sink goes away meanwhile.
    for path in (Path(folder, name) for folder, folders, files in os.walk(home.root) for name in (*folders, *files)):
        is_named = path.name == tenant or path.name.startswith(f"{tenant}.")
        if is_named and path != home.delta_dir and not any(path.is_relative_to(other) for other in apart):
            found.append(str(path.relative_to(home.root)))
    with contextlib.closing(sqlite3.connect(home.catalog_file)) as connection:
        for table, column in (("iceberg_tables", "table_namespace"), ("iceberg_namespace_properties", "namespace")):
            names = [name for (name,) in connection.execute(f"SELECT {column} FROM {table}")]
            found += [f"{table} {name}" for name in names if name == tenant or name.startswith(f"{tenant}.")]
    with redis.Redis(port=ports[VALKEY]) as client:
        for key in client.scan_iter():
            fields = client.hkeys(key) if client.type(key) == b"hash" else []
            found += [f"{key}: {field}" for field in fields if field.startswith(f"{tenant}\0".encode())]
    where = connection_settings(ports["postgresql"])
    with psycopg.connect(host=where.host, port=where.port, dbname=where.database, user=where.user) as postgresql:
        schemas = [name for (name,) in postgresql.execute("SELECT nspname FROM pg_namespace")]
        tables = [name for (name,) in postgresql.execute("SELECT name FROM headwater.tables")]
    found += [f"schema {name}" for name in schemas if name.startswith(f"{tenant}_")]
    return [*found, *(f"registry {name}" for name in tables if name.startswith(f"{tenant}."))]


@pytest.mark.timeout(2400)
def test_of_tenants_that_share_a_source_one_goes_whole_and_the_others_stay_whole(
    headwater: HeadwaterCommand, mysql_server: MysqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at every step; looked for in Kafka, files, catalog, PostgreSQL and Valkey."""
    run(headwater, "up", "--detach", timeout_s=UP_TIMEOUT_S)
    address = kafka_address(read_ports(headwater.home))
    with written_to(mysql_server, database):
        for tenant in ("acme", "acme-2", "delta", "globex"):
            wait_for_tables(headwater, tenant, 2)
        a_consumer_group(address, "acme.reports", f"acme.shop.{database}.orders")
        a_consumer_group(address, "acme-2.reports", f"acme-2.shop.{database}.orders")

        planned = json.loads(run(headwater, "erase", "acme", "--dry-run", "--json"))
        kinds = {each["kind"] for each in planned["held"]}
        assert kinds >= {"document", "topic", "consumer group", "Iceberg table", "folder", "state", "progress"}, planned
        assert any("keys/acme/pii" in each for each in planned["stays"])
        code, said = headwater.run("erase", "acme", "--yes", "acne", timeout_s=COMMAND_TIMEOUT_S)
        assert (code, "nothing was changed" in said) == (2, True), said
        assert (headwater.home.tenants_dir / "acme.yaml").exists()

        for tenant in ("acme", "globex", "delta"):
            for point in KILLED_AT if tenant == "acme" else ("erase_before_postgresql_commit",):
                monkeypatch.setenv("HEADWATER_FAILPOINTS", f"{point}=kill")
                code, said = headwater.run("erase", tenant, "--yes", tenant, timeout_s=COMMAND_TIMEOUT_S)
                assert code == -9, f"{point}: {said}" + headwater.logs()
                assert unfinished(headwater.home.data_dir, tenant) is not None
            monkeypatch.delenv("HEADWATER_FAILPOINTS")
            said = run(headwater, "erase", tenant, "--yes", tenant)
            assert "an erasure has begun already: taking it up" in said
            assert "looked for again: 0 left" in said, said
            assert unfinished(headwater.home.data_dir, tenant) is None

        code, said = headwater.run("erase", "acme", "--yes", "acme", timeout_s=COMMAND_TIMEOUT_S)
        assert code == 2
        assert "Headwater holds nothing of it" in said

        deadline_s = time.monotonic() + KAFKA_DELETES_S
        gone = ("acme", "delta", "globex")
        while any(traces(headwater, tenant) for tenant in gone) and time.monotonic() < deadline_s:
            time.sleep(2.0)
        assert [trace for tenant in gone for trace in traces(headwater, tenant)] == []
        assert (headwater.home.keys_dir / "acme" / "pii").exists()

    assert "group acme-2.reports" in traces(headwater, "acme-2")
    said = run(headwater, "check", "acme-2", "--timeout", "400", timeout_s=500.0)
    assert "0 difference(s)" in said
    said = run(headwater, "status")
    assert "halted" not in said
    assert "StackOverflowError" not in (headwater.home.logs_dir / "sink.log").read_text()
    run(headwater, "down")
    assert headwater.left_over() == []
