"""The commands, each as a user types it, on one stack that runs: from ``up`` to ``down``.

A stack of all services and Spark takes a minute of a processor to start, so the tests of the file share it, in their order.
Each has a tenant or tables of its own. Commands that end by themselves run in the test's process.
"""

import csv
import datetime
import json
import re
import secrets
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from libs.mesh.documents import read_documents
from libs.mesh.home import Home, home_at
from libs.mesh.own_services import AUTHORITIES, COMMANDS, certificate_file, key_file
from libs.mesh.processes import kafka_address
from libs.mesh.state import read_ports, running_state
from libs.servers.ports import LOOPBACK
from libs.stack.certificates import renew_certificates
from libs.stack.plan import certified_processes
from libs.types.table import TableId
from libs.types.warehouse import warehouse_table
from libs.warehouse_readers.warehouse import load_table, open_catalog
from tests.conftest import MysqlServer
from tests.grpc_attacks import (
    broken_off_calls,
    calls_without_request,
    garbage,
    half_open_handshakes,
    headers_without_end,
    idle,
)
from tests.headwater_command import HeadwaterCommand, headwater_in, write_shop
from tests.integration.router_rig import read_topic
from tests.live_rows import make_orders_and_notes
from tests.waiting import wait_until

UP_TIMEOUT_S = 600.0
COMMAND_TIMEOUT_S = 400.0
TAIL_TIMEOUT_S = 180.0
HEALTH = "/grpc.health.v1.Health/Check"
PAUSE_S = 1.0
"""Between two looks by a command."""
PROCESSES = ("kafka", "valkey", "schema_history", "checkpoint_committer", "reader-shop", "router", "sink")
ROWS = 300
COPIED = 5

pytestmark = pytest.mark.timeout(1_800)

ACME = """tenant: acme
sources: [{{name: shop, include_tables: ['{database}\\.(orders|notes)']}}]
sink: {{trigger_s: 1, schema_changes: {{rules: [{{tables: '.*\\.notes', changes: [column_added], policy: exception}}]}}}}
"""
SIGNALLED = """tenant: signalled
sources: [{{name: shop, include_tables: ['{database}\\.copied']}}]
sink: null
"""
MASKED = """tenant: masked
sources:
- name: shop
  include_tables: ['{database}\\.people']
  exclude_columns: ['.*\\.secret']
  rename_columns:
  - {{columns: '.*\\.cust', to: customer_id}}
  masks:
  - {{columns: '.*\\.email', format_preserving: {{kind: email, key_from: {{file: pii}}}}}}
  - {{columns: '.*\\.phone', format_preserving: {{kind: phone, key_from: {{file: pii}}}}}}
  - {{columns: '.*\\.diagnosis', encrypt: {{key_from: {{file: pii}}}}}}
  - {{columns: '.*\\.amount', hmac: {{key_from: {{file: pii}}}}}}
  - {{columns: '.*\\.card', keep_last: 4}}
  - {{columns: '.*\\.born', set_null: true}}
topics: {{name: '{{tenant}}.v2.{{source}}.{{database}}.{{table}}'}}
sink: {{trigger_s: 1}}
"""
SHARED = """tenant: shared
sources: [{{name: shop, include_tables: ['{database}\\..*']}}]
topics: {{layout: per_tenant}}
format: {{tombstones: false}}
sink: null
"""
CAPPED = """tenant: capped
sources: [{{name: shop, include_tables: ['{database}\\.(people|visits|late)'], exclude_tables: [{excluded}]}}]
sink: null
"""


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack that runs, and the database that it follows."""

    command: HeadwaterCommand
    server: MysqlServer
    database: str
    said_by_up: str

    def run(self, *arguments: str) -> str:
        """The output of a command, which must succeed."""
        code, said = self.command.run_here(*arguments)
        assert code == 0, said + self.command.logs()
        return said

    def status(self, *options: str) -> str:
        """Exits with 1 while a fault lasts."""
        code, said = self.command.run_here("status", *options)
        assert code in (0, 1), said + self.command.logs()
        return said

    def execute(self, *statements: str) -> None:
        """In the database."""
        self.server.execute(*statements, database=self.database)

    def apply(self, folder: Path, document: str, **more: str) -> str:
        """Put a tenant's document into force; the command's output."""
        file = folder / "document.yaml"
        file.write_text(document.format(database=self.database, **more))
        return self.run("tenant", "apply", str(file))

    def lose(self, condition: str) -> None:
        """Rows of acme's ``orders`` are gone from the warehouse."""
        place = warehouse_table("acme", "shop", TableId(database=self.database, table="orders"))
        table = load_table(open_catalog(self.command.home.catalog_file, self.command.home.warehouse_dir), place)
        assert table is not None
        table.delete(condition)


@pytest.fixture(scope="module")
def stack(mysql_server: MysqlServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One source and three tenants; the other tests make further tables themselves."""
    database = f"live_{secrets.token_hex(4)}"
    make_orders_and_notes(mysql_server, database, orders=ROWS)
    mysql_server.execute(
        "CREATE TABLE copied (id INT PRIMARY KEY, note VARCHAR(40))",
        f"INSERT INTO copied VALUES {', '.join(f'({number}, NULL)' for number in range(COPIED))}",
        "CREATE TABLE people (email VARCHAR(80) PRIMARY KEY, cust INT, phone VARCHAR(30), diagnosis TEXT, "
        "amount DECIMAL(10,2), card VARCHAR(20), born DATE NOT NULL, secret VARCHAR(9))",
        "INSERT INTO people VALUES ('ann@example.org', 1, '+49 170 1234567', 'gout', 12.50, '4111111111111234', "
        "'1970-01-02', 'x'), ('bob@example.org', 2, NULL, NULL, NULL, '12', '1980-01-01', NULL)",
        "CREATE TABLE visits (id INT PRIMARY KEY, at DATETIME)",
        database=database,
    )
    with headwater_in(tmp_path_factory.mktemp("live") / "home") as command:
        home = command.home
        write_shop(home, mysql_server, database, {})
        (home.keys_dir / "masked").mkdir()
        (home.keys_dir / "masked" / "pii").write_text("0123456789abcdef0123456789abcdef\n")
        home.topic_quotas_file.write_text("tenants: {capped: 5}\n")
        for name, document in {"acme": ACME, "signalled": SIGNALLED, "masked": MASKED}.items():
            (home.tenants_dir / f"{name}.yaml").write_text(document.format(database=database))
        code, said = command.run("up", "--detach", timeout_s=UP_TIMEOUT_S)
        assert code == 0, said + command.logs()
        yield Stack(command, mysql_server, database, said)


@pytest.mark.promise("commands")
def test_the_commands_show_a_live_stack(stack: Stack) -> None:
    """Each shows the stack as it is."""
    for process in PROCESSES:
        assert re.search(rf"^\d\d:\d\d:\d\d  {process} +up *$", stack.said_by_up, re.M), stack.said_by_up
    assert f"`headwater status --home {stack.command.home.root}` shows its progress" in stack.said_by_up

    wait_until(
        lambda: re.search(rf"^acme +router +shop: \(all\) +{ROWS + 1} ", stack.status(), re.M) is not None,
        because="all rows are routed",
        pause_s=PAUSE_S,
        seen=stack.status,
    )
    said = stack.run("status")
    assert f"home {stack.command.home.root}   stack up" in said
    assert re.search(rf"^shop/\S+ +streaming +{ROWS + 1 + COPIED + 2} ", said, re.M), said
    for process in PROCESSES:
        assert re.search(rf"^{process} +up +\d+ .* 0 +\d+ MB ", said, re.M), said

    line = _tailed_line(stack)
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}  INSERT +id=\d+  note='hello'", line), line

    _, said = stack.command.run_here("doctor")
    assert re.search(r"^ok +stack: processes: (\d+) of \1 are up$", said, re.M), said
    assert re.search(r"^ok +servers: Kafka: [\d,]+ topics$", said, re.M), said
    assert not re.search(r"^fault +(home|documents|stack|servers|ports):", said, re.M), said
    assert "shop: the server can be followed, from the checkpoint on" in stack.run("validate", "shop")
    said = stack.run("check", "acme")
    assert re.search(rf"^acme +{stack.database}\.orders +\d+ rows x +2 columns  equal$", said, re.M), said
    said = stack.run("query", "acme", f"SELECT id, note FROM orders WHERE id IN (1, {ROWS + 1}) ORDER BY id")
    assert re.search(rf"\b1 \S note 1 .*\b{ROWS + 1} \S hello .*^2 row\(s\)$", said, re.M | re.S), said
    said = stack.run("schema", "plan", "shop", f"ALTER TABLE {stack.database}.orders ADD COLUMN size INT")
    assert "add column size int" in said
    assert said.endswith("tables as schema_history has them\n")


def _tailed_line(stack: Stack) -> str:
    """The line that ``tail`` shows of a row that is inserted meanwhile.

    It starts at the end of the topic, some time after it was started: a row is inserted every second.
    """
    with stack.command.start("tail", "acme", "orders", "-n", "1") as tail:
        for number in range(ROWS + 1, ROWS + 1 + int(TAIL_TIMEOUT_S)):
            stack.execute(f"INSERT INTO orders VALUES ({number}, 'hello')")
            try:
                said, _ = tail.communicate(timeout=1.0)
            except subprocess.TimeoutExpired:
                continue
            assert tail.returncode == 0, said
            return said.rstrip("\n")
        tail.kill()
        raise AssertionError(f"tail showed nothing in {TAIL_TIMEOUT_S:.0f} s: {tail.communicate()[0]}")


def test_masked_renamed_and_named_rows_equal_the_source(stack: Stack, tmp_path: Path) -> None:
    """``check`` undoes the masks and finds every row; the tenant's own rows show nothing; a tenant that joins is served."""
    stack.execute(
        "UPDATE people SET diagnosis = 'a cold', cust = 3 WHERE email = 'bob@example.org'",
        "INSERT INTO people (email, born) VALUES ('carl@example.org', '2000-01-01'), ('gone@x.org', '2000-01-01')",
        "DELETE FROM people WHERE email = 'gone@x.org'",
    )

    said = stack.run("check", "masked")
    masked = "masked: email, phone, diagnosis, amount, card, born"
    assert re.search(rf"^masked +{stack.database}\.people +3 rows x +7 columns  equal, {masked}$", said, re.M), said

    answer = stack.run("query", "masked", "SELECT * FROM people ORDER BY customer_id", "--format", "csv")
    rows = list(csv.DictReader(answer.splitlines()))
    ann = next(row for row in rows if row["customer_id"] == "1")
    assert (ann["card"], ann["born"], "secret" in ann, "cust" in ann) == ("************1234", "", False, False)
    assert ann["email"].endswith(".org")
    assert "ann" not in ann["email"]
    assert ann["phone"].startswith("+")
    assert ann["phone"] != "+49 170 1234567"
    assert stack.run("tenant", "decrypt", "masked", "--file", "pii", ann["diagnosis"]) == "gout\n"

    tailed = stack.run("tail", "masked", "people", "--from-beginning", "-n", "1", "--json")
    assert "customer_id" in json.loads(tailed)["value"]["after"]
    explained = json.loads(stack.run("tenant", "explain", "masked", "people", "--json"))["tables"][0]
    assert explained["topic"] == f"masked.v2.shop.{stack.database}.people"
    assert {column["name"]: column["fate"] for column in explained["columns"]}[
        "diagnosis"
    ] == "masked: encrypted, key pii"

    assert "version 1 is in force" in stack.apply(tmp_path, SHARED)
    wait_until(
        lambda: _serves(stack, "shared"),
        because="the router has the document",
        pause_s=PAUSE_S,
        seen=lambda: _router_log(stack),
    )
    stack.execute("INSERT INTO visits VALUES (101, NOW())")
    tail = ("tail", "shared", "visits", "--from-beginning", "-n", "1", "--json")
    wait_until(
        lambda: stack.command.run_here(*tail)[0] == 0,
        because="the tenant's topic is there",
        pause_s=PAUSE_S,
        seen=lambda: stack.command.run_here(*tail),
    )
    tailed = stack.run(*tail)
    assert json.loads(tailed)["value"]["source"]["table"] == "visits"


def test_a_table_that_is_one_topic_too_many_is_refused_until_the_document_leaves_it_out(
    stack: Stack, tmp_path: Path
) -> None:
    """It came while the stack ran. ``status`` has the reason, the tenant's other table goes on, and no row ends it."""
    stack.apply(tmp_path, CAPPED, excluded="")
    wait_until(
        lambda: _serves(stack, "capped"),
        because="the router has the document",
        pause_s=PAUSE_S,
        seen=lambda: _router_log(stack),
    )
    stack.execute(
        "INSERT INTO people (email, born) VALUES ('dora@example.org', '2000-01-01')",
        "INSERT INTO visits VALUES (1, NOW())",
    )
    wait_until(
        lambda: [_received(stack, f"capped.shop.{name}") for name in ("people", "visits")] == [1, 1],
        because="a row of each table is delivered",
        pause_s=PAUSE_S,
        seen=stack.status,
    )

    stack.execute(
        "CREATE TABLE late (id INT PRIMARY KEY)",
        "INSERT INTO late VALUES (1)",
        "INSERT INTO visits VALUES (2, NOW())",
    )

    reason = f"topic capped.shop.{stack.database}.late: tenant capped has 5 topics and may have 5"
    wait_until(
        lambda: reason in stack.status(),
        because="the topic beyond the quota is reported",
        pause_s=PAUSE_S,
        seen=stack.status,
    )
    assert "topic_quotas.yaml of a home): exclude tables" in stack.status()
    wait_until(
        lambda: _received(stack, "capped.shop.visits") == 2,
        because="the other table goes on",
        pause_s=PAUSE_S,
        seen=stack.status,
    )
    assert f"{stack.database}.late" in stack.run("dead-letter", "list", "capped")
    stack.apply(tmp_path, CAPPED, excluded="'.*late'")
    wait_until(
        lambda: reason not in stack.status(),
        because="the document leaves the table out",
        pause_s=PAUSE_S,
        seen=stack.status,
    )


def test_each_kind_of_signal_acts_on_a_live_reader(stack: Stack) -> None:
    """A copy is held back, let go, and taken back; a copy that is asked for twice comes twice, a stopped one does not come."""
    table = f"{stack.database}.copied"

    def signal(*words: str) -> None:
        assert f"sent {words[0]} " in stack.run("signal", "shop", *words)

    def source() -> dict[str, Any]:
        """Nothing of a reader that does not answer."""
        sources = json.loads(stack.status("--json"))["sources"]
        return dict(sources[0]) if sources else {}

    def published() -> int:
        """To the tenant: events of ``copied``."""
        found = re.search(r"^signalled +router +shop: \(all\) +(\d+) ", stack.status(), re.M)
        return 0 if found is None else int(found[1])

    def ids() -> list[str]:
        return [each["signal_id"] for each in source().get("incremental", ())]

    wait_until(lambda: published() == COPIED, because="the table is copied", pause_s=PAUSE_S, seen=published)
    said = stack.run("signal", "shop", "execute-snapshot", table, "--id", "whole", "--wait")
    assert f"execute-snapshot whole is done: {COPIED} row(s) copied" in said
    assert re.search(rf"^whole +shop .* 1 table\(s\) copied, {COPIED} rows *$", stack.status(), re.M)
    wait_until(lambda: published() == 2 * COPIED, because="the table is copied again", pause_s=PAUSE_S, seen=published)

    signal("pause-snapshot")
    signal("execute-snapshot", table, "--where", "id > 2", "--id", "some")
    wait_until(
        lambda: bool(source()["incremental_is_paused"]) and ids() == ["some"],
        because="the copy is held back",
        pause_s=PAUSE_S,
        seen=source,
    )
    assert published() == 2 * COPIED
    signal("resume-snapshot")
    wait_until(lambda: published() == 2 * COPIED + 2, because="the copy goes on", pause_s=PAUSE_S, seen=published)

    signal("pause-snapshot")
    signal("execute-snapshot", table, "--id", "never")
    wait_until(lambda: ids() == ["never"], because="the copy is held back", pause_s=PAUSE_S, seen=source)
    signal("stop-snapshot", table)
    wait_until(lambda: not ids(), because="the copy is taken back", pause_s=PAUSE_S, seen=source)
    signal("resume-snapshot")

    lost = ("execute-snapshot", f"{stack.database}.nowhere", "--id", "lost", "--wait")
    code, said = stack.command.run_here("signal", "shop", *lost)
    assert f"reader-shop: not done: {stack.database}.nowhere: no captured table has this name" in said
    assert code == 1
    stack.run("signal", "shop", "log", "--message", "here I was", "--wait")
    assert "here I was" in stack.command.home.log_file("reader-shop").read_text(encoding="utf-8")
    stack.execute(f"INSERT INTO copied VALUES ({COPIED}, 'last')")
    wait_until(lambda: published() >= 2 * COPIED + 3, because="the last row is routed", pause_s=PAUSE_S, seen=published)
    assert published() == 2 * COPIED + 3


def test_a_row_that_broke_is_found_from_elsewhere_told_of_and_repaired(stack: Stack, tmp_path: Path) -> None:
    """``check --mesh`` reaches Kafka, the source and the warehouse, and no home, while the source is written to: a command that
    goes on, and one that ends."""
    elsewhere, file = HeadwaterCommand(home_at(tmp_path / "nowhere")), _mesh_file(stack, tmp_path)
    mesh_option = ("--mesh", str(file), "--timeout", "400")
    stack.execute("UPDATE orders SET note = 'changed' WHERE id % 7 = 0")
    code, said = elsewhere.run_here("check", "acme", *mesh_option)
    assert code == 0, said + stack.command.logs()
    assert re.search(rf"^acme +{stack.database}\.orders +\d+ rows x +2 columns  equal$", said, re.M), said
    assert f"{stack.database}.notes" in said

    stack.lose("id >= 10 and id < 13")
    stack.execute("UPDATE orders SET note = 'later' WHERE id > 290")
    only = ("--table", rf"{stack.database}\.orders")
    code, said = elsewhere.run_here("check", "acme", *mesh_option, *only)
    assert code == 1, said + stack.command.logs()
    assert said.count("is in the source, not in the warehouse") == 3, said
    assert f"{stack.database}.notes" not in said

    labels = f'{{source="shop",table="{stack.database}.orders",tenant="acme"}}'
    going_on = ("--every", "1", "--share", "0.9", "--metrics-host", LOOPBACK, "--metrics-port", "0")
    with elsewhere.start("check", "acme", *mesh_option, *only, *going_on) as watching:
        try:
            assert watching.stdout is not None
            [address] = [line.split()[1] for line in [watching.stdout.readline()] if line.startswith("metrics: ")]
            wait_until(
                lambda: f"headwater_check_different_rows{labels} 3.0" in _page(address),
                because="the lost rows are reported",
                pause_s=PAUSE_S,
                seen=lambda: _page(address),
            )
            code, said = elsewhere.run_here("check", "acme", *mesh_option, "--repair")
            assert code == 0, said + stack.command.logs()
            assert "read again: 3 row(s)" in said
            wait_until(
                lambda: f"headwater_check_different_rows{labels} 0.0" in _page(address),
                because="the repaired rows are reported",
                pause_s=PAUSE_S,
                seen=lambda: _page(address),
            )
            watching.terminate()
            said, _ = watching.communicate(timeout=COMMAND_TIMEOUT_S)
        finally:
            elsewhere.kill_all()
    assert watching.returncode == 0, said


def _mesh_file(stack: Stack, folder: Path) -> Path:
    """The file by which a command without a home knows the mesh."""
    home = stack.command.home
    told = {
        "kafka": {"bootstrap_servers": kafka_address(read_ports(home))},
        "sources": {"shop": {"database": {"host": stack.server.host, "port": stack.server.port, "user": "root"}}},
        "warehouses": {
            "iceberg": {
                "warehouse_dir": home.warehouse_dir.as_uri(),
                "catalog": {"kind": "sqlite", "file": str(home.catalog_file)},
            }
        },
        "tenants_dir": str(home.tenants_dir),
    }
    path = folder / "mesh.yaml"
    path.write_text(yaml.safe_dump(told))
    return path


def test_a_large_table_is_mended_chunk_by_chunk_beside_one_that_is_parked(stack: Stack, tmp_path: Path) -> None:
    """Each chunk is waited for, repaired and reported by itself, while rows come; the parked table is reported at once."""
    stack.execute(f"DELETE FROM orders WHERE id > {ROWS}")
    stack.run("check", "acme", "--timeout", "300")
    stack.execute("ALTER TABLE notes ADD COLUMN text TEXT", "INSERT INTO notes VALUES (2, 'x')")
    wait_until(
        lambda: re.search(rf"sink +shop: {stack.database}\.notes .*parked: ", stack.status()) is not None,
        because="the table is parked",
        pause_s=PAUSE_S,
        seen=stack.status,
    )
    stack.lose("id >= 150 and id < 153")

    code, said = stack.command.run_here("check", "acme", "--timeout", "380")
    assert code == 1, said + stack.command.logs()
    assert re.search(rf"^acme +{stack.database}\.notes .* NOT COMPARED$", said, re.M), said
    assert "    parked, last written at " in said
    assert said.count("is in the source, not in the warehouse") == 3, said
    assert "3 difference(s), 1 table(s) not compared" in said

    report = tmp_path / "report.jsonl"
    options = ("--every", "1", "--share", "0.9", "--chunk-rows", "100", "--repair", "--report", str(report))
    with stack.command.start("check", "acme", *options, "--timeout", "380") as command:
        assert command.stdout is not None
        told = []
        for number, line in enumerate(iter(command.stdout.readline, ""), start=1):
            told.append(line)
            stack.execute(f"INSERT INTO orders VALUES ({ROWS + number}, 'meanwhile')")
            if line.startswith("not compared: 1 of 2 tables"):
                break
        command.terminate()
        command.communicate(timeout=COMMAND_TIMEOUT_S)

    said = "".join(told)
    assert "read again: 3 row(s)" in said, said + stack.command.logs()
    assert re.search(r"DIFFERENT, id after 100 up to 200$", said, re.M), said
    assert re.search(rf"^acme +{stack.database}\.orders +3\d\d rows x +2 columns  equal, [45] chunks$", said, re.M), (
        said
    )
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    chunks = [line["chunk"]["up_to"] for line in lines if line["chunk"] is not None]
    assert chunks[:5] == [[100], [200], [200], [300], *chunks[4:5]]
    assert [line["rows_different"] for line in lines if line["chunk"] is not None][:4] == [0, 3, 0, 0]
    assert any(line["not_compared"] for line in lines)


def test_a_source_that_is_reset_is_copied_again_by_its_own_reader(stack: Stack) -> None:
    """The command stops the reader, which its supervisor starts again; tables are equal after it."""

    def source() -> dict[str, Any]:
        sources = json.loads(stack.status("--json"))["sources"]
        return dict(sources[0]) if sources else {}

    before = source()["rows_published"]
    said = stack.run("reset", "shop", "--yes", "--reason", "restored")
    assert re.search(r"^shop/0: forgets \{", said, re.M), said
    wait_until(
        lambda: source().get("state") == "streaming" and source()["rows_published"] >= before + ROWS,
        because="all rows are copied again",
        pause_s=PAUSE_S,
        seen=source,
    )
    _, said = stack.command.run_here("check", "acme", "--timeout", "380")  # an earlier test has parked acme's notes
    assert re.search(rf"^acme +{stack.database}\.orders +\d+ rows x +2 columns  equal", said, re.M), said
    assert "equal" in stack.run("check", "masked")


def test_a_process_answers_a_certificate_of_the_home_alone_and_takes_a_renewed_one_without_a_restart(
    stack: Stack,
) -> None:
    """A caller in the clear is refused; all certificates are made again, and rows go on."""
    home = stack.command.home
    port = read_ports(home)["checkpoint_committer-grpc"]
    pids = {each.name: each.pid for each in running_state(home).services}
    shown = certificate_at(home, port)
    with grpc.insecure_channel(f"{LOOPBACK}:{port}") as channel, pytest.raises(grpc.RpcError):
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)

    for path in home.tls_dir.glob("*.pem"):
        if "authorit" not in path.name:
            path.unlink()
    assert renew_certificates(home, certified_processes(read_documents(home)), datetime.datetime.now(datetime.UTC))
    stack.execute("INSERT INTO copied VALUES (990001, 'renewed')")
    topic = f"signalled.shop.{stack.database}.copied"
    kafka = kafka_address(read_ports(home))
    wait_until(
        lambda: any(b"renewed" in (record.value() or b"") for record in read_topic(kafka, topic)),
        because="a row comes after the renewal",
        seen=lambda: stack.command.logs(),
        pause_s=PAUSE_S,
    )

    assert certificate_at(home, port) != shown
    assert "does not answer" not in stack.status()
    assert {each.name: each.pid for each in running_state(home).services} == pids


def certificate_at(home: Home, port: int) -> bytes | None:
    """The certificate that a process shows to a command."""
    with connection_of_a_command(home, port) as tls:
        return tls.getpeercert(binary_form=True)


def connection_of_a_command(home: Home, port: int) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificate_file(home, AUTHORITIES))
    context.load_cert_chain(certificate_file(home, COMMANDS), key_file(home, COMMANDS))
    context.set_alpn_protocols(["h2"])
    return context.wrap_socket(socket.create_connection((LOOPBACK, port), timeout=60), server_hostname=LOOPBACK)


def test_nobody_stops_a_service_by_its_grpc_port(stack: Stack) -> None:
    """Strangers and holders of a certificate attack every service at once; rows go on, and no process ends."""
    home = stack.command.home
    ports = [port for name, port in read_ports(home).items() if name.endswith("-grpc")]
    pids = {each.name: each.pid for each in running_state(home).services}
    with ExitStack() as opened:
        for port in ports:
            stranger = partial(socket.create_connection, (LOOPBACK, port), 60)
            half_open_handshakes(stranger, opened, times=100)
            idle(stranger, opened, times=100)
            garbage(stranger, opened)
            caller = partial(connection_of_a_command, home, port)
            calls_without_request(caller, opened, HEALTH, connections=2, calls=900)
            calls_without_request(caller, opened, HEALTH, connections=1, calls=400)
            headers_without_end(caller, opened, HEALTH, megabytes=2)
            broken_off_calls(caller, opened, HEALTH, calls=1_000)
        stack.execute("INSERT INTO copied VALUES (990002, 'attacked')")
        kafka, topic = kafka_address(read_ports(home)), f"signalled.shop.{stack.database}.copied"
        wait_until(
            lambda: any(b"attacked" in (record.value() or b"") for record in read_topic(kafka, topic)),
            because="a row comes during the attacks",
            seen=lambda: stack.command.logs(),
            pause_s=PAUSE_S,
        )
        wait_until(
            lambda: "does not answer" not in (said := stack.status()) and said,
            because="every process answers a command during the attacks",
            seen=lambda: stack.status(),
            pause_s=PAUSE_S,
        )

    assert {name.removesuffix("-grpc") for name in read_ports(home) if name.endswith("-grpc")} > {
        "schema_history",
        "checkpoint_committer",
    }
    assert {each.name: each.pid for each in running_state(home).services} == pids


@pytest.mark.promise("erase")
def test_a_tenant_is_erased_whole(stack: Stack) -> None:
    """A dry run lists all that would go; then nothing of it is found."""
    said = stack.run("erase", "acme", "--dry-run")
    assert said.startswith("tenant acme: this would go\n"), said
    assert "orders" in said, said

    assert "looked for again: 0 left" in stack.run("erase", "acme", "--yes", "acme")
    code, said = stack.command.run_here("query", "acme", "SELECT id FROM orders")
    assert code != 0, said


def test_down_leaves_nothing_running(stack: Stack) -> None:
    """And the other commands say so."""
    code, said = stack.command.run("down", timeout_s=2 * COMMAND_TIMEOUT_S)

    assert (code, said) == (0, "stopping …\nstopped\n")
    assert stack.command.left_over() == []
    code, said = stack.command.run_here("status")
    assert code == 1
    assert f"no stack runs in {stack.command.home.root}" in said


def _serves(stack: Stack, tenant: str) -> bool:
    """A router has the tenant's document in force: no row of before is delivered to it."""
    return f'"{tenant}"' in _router_log(stack)


def _router_log(stack: Stack) -> str:
    return stack.command.home.log_file("router").read_text()


def _received(stack: Stack, tenant_and_table: str) -> int:
    """How many events a tenant's topic holds; ``TENANT.SOURCE.TABLE``."""
    place, _, table = tenant_and_table.rpartition(".")
    return len(read_topic(kafka_address(read_ports(stack.command.home)), f"{place}.{stack.database}.{table}"))


def _page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return str(answer.read().decode())
