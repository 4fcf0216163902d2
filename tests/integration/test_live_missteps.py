"""Missteps with a whole stack: the first line of ``status``, its exit code, and that the remedy mends it.

The stack's Kafka, MySQL and PostgreSQL are this file's own, because they are killed. A stack takes a minute of a processor to
start, so the tests of the file share it, in their order. Missteps without a server are in ``tests/unit/cli/test_missteps.py``,
those with a source alone in ``test_missteps.py``.
"""

import datetime
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import yaml

from libs.config.connections import KafkaSettings
from libs.kafka.clients import ensure_topics
from libs.kafka.sink_handovers import sink_handovers_topic
from libs.mesh.home import Home
from libs.types.sink_place import PLACES_FILE, Place, Places
from tests.conftest import (
    KafkaBroker,
    MysqlServer,
    PostgresqlServer,
    start_kafka_in,
    start_mysql_in,
    start_postgresql_in,
)
from tests.headwater_command import HeadwaterCommand, headwater_in, write_shop
from tests.live_rows import make_orders_and_notes
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.rest(
        because="a whole stack; the gate plays the missteps without one in tests/unit/cli/test_missteps.py"
    ),
    pytest.mark.timeout(1_800),
]

STEP_TIMEOUT_S = 400.0
PAUSE_S = 1.0
ROWS = 100
DATABASE = "shopdb"
REFUSES = "schema_changes: {rules: [{tables: '.*\\.notes', changes: [column_added], policy: exception}]}"


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack that runs, and the servers that it needs."""

    command: HeadwaterCommand
    kafka: KafkaBroker
    mysql: MysqlServer
    postgresql: PostgresqlServer
    said_by_up: str

    @property
    def home(self) -> Home:
        return self.command.home

    @property
    def acme(self) -> Path:
        return self.home.tenants_dir / "acme.yaml"

    def run(self, *arguments: str, exits: int = 0) -> str:
        code, said = self.command.run_here(*arguments)
        assert code == exits, said + self.command.logs()
        return said

    def says(self, first_line: str, remedy: str) -> None:
        """Wait until ``status`` begins so and exits with 1; its second line has the remedy."""
        said = self._status(lambda code, said: code == 1 and bool(re.match(first_line, said)), because=first_line)
        assert re.search(remedy, said.splitlines()[1]), said

    def is_well(self) -> None:
        """Wait until ``status`` finds nothing."""
        said = self._status(lambda code, _: code == 0, because="nothing is wrong any more")
        assert said.startswith(f"home {self.home.root}   stack up")

    def has_rows(self, tenant: str, rows: int) -> None:
        """Wait until the tenant's sink has so many rows of ``orders``, and has no lag."""
        line = rf"^{tenant} +sink +shop: {DATABASE}\.orders +{rows} +0 "
        self._status(lambda _, said: bool(re.search(line, said, re.M)), because=f"{tenant} has {rows} rows")

    def insert(self, number: int) -> None:
        self.mysql.execute(f"INSERT INTO orders VALUES ({number}, 'later')", database=DATABASE)

    def _status(self, is_meant: Callable[[int, str], bool], because: str) -> str:
        found: list[str] = []

        def look() -> bool:
            code, said = self.command.run_here("status")
            found[:] = [said]
            return is_meant(code, said)

        wait_until(look, because=because, within_s=STEP_TIMEOUT_S, pause_s=PAUSE_S, seen=lambda: found)
        return found[0]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Tenants of one source, in Iceberg and in PostgreSQL. Ctrl-C ended the ``up``, and the stack goes on."""
    folder = tmp_path_factory.mktemp("missteps")
    with ExitStack() as ends:
        for name in ("kafka", "mysql", "postgresql"):
            (folder / name).mkdir()
        kafka = start_kafka_in(folder / "kafka", ends)
        mysql = start_mysql_in(folder / "mysql", ends)
        postgresql = start_postgresql_in(folder / "postgresql", ends, password="right")
        make_orders_and_notes(mysql, DATABASE, orders=ROWS)
        command = ends.enter_context(headwater_in(folder / "home"))
        home = command.home
        sinks = {
            "acme": f"{{trigger_s: 1, {REFUSES}}}",
            "globex": "{warehouse: postgresql, trigger_s: 1}",
            "log": "{mode: append, trigger_s: 1}",
        }
        write_shop(home, mysql, DATABASE, sinks)
        home.kafka_file.write_text(f"bootstrap_servers: '{kafka.bootstrap_servers}'\n")
        where = postgresql.settings
        warehouse = {"host": where.host, "port": where.port, "user": where.user, "database": where.database}
        home.warehouses_file.write_text(yaml.safe_dump({"postgresql": {**warehouse, "password": "right"}}))
        # As an operator does; so the job reports the steps that `resync --mesh` waits for.
        place = Place(job="packed-0", tenancy="u")
        places = Places(job="packed-0", tenants=dict.fromkeys(sinks, place))
        (home.tenants_dir / PLACES_FILE).write_bytes(msgspec.json.encode(places))
        ensure_topics(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers), [sink_handovers_topic(1)])
        said = broken_off(command, "up", "--detach", when=r"valkey +up")
        yield Stack(command, kafka, mysql, postgresql, said)


def broken_off(command: HeadwaterCommand, *arguments: str, when: str) -> str:
    """The output of a command that Ctrl-C ends once it has printed ``when``."""
    with command.start(*arguments) as running:
        assert running.stdout is not None
        said = ""
        for line in running.stdout:
            is_first = re.search(when, line) and not re.search(when, said)
            said += line
            if is_first:
                running.send_signal(signal.SIGINT)
        assert running.wait(STEP_TIMEOUT_S) == 130, said
    return said


def test_ctrl_c_at_up_says_that_the_stack_goes_on(stack: Stack) -> None:
    where = f"--home {stack.home.root}"
    goes_on = f"the stack goes on starting: `headwater status {where}` shows it, `headwater down {where}` stops it"
    assert stack.said_by_up.splitlines()[-1] == f"headwater: interrupted; {goes_on}"
    stack.is_well()


def test_a_second_up_names_the_first_one(stack: Stack) -> None:
    said = stack.run("up", "--detach", exits=1)

    assert re.match(r"headwater: a stack is already up in \S+ \(process \d+\): `headwater down` stops it", said), said


def test_a_document_with_a_mistake_is_named_and_the_former_one_stays(stack: Stack) -> None:
    for tenant in ("acme", "globex"):
        stack.has_rows(tenant, ROWS)
    good = stack.acme.read_text()
    stack.acme.write_text(good.replace("trigger_s", "triger_s"))

    stack.says(r"halted tenant acme: tenant_refused: \S+acme\.yaml:3: sink\.triger_s: ", r"`headwater validate`")
    stack.acme.write_text(good)
    stack.is_well()


def test_a_table_that_the_warehouse_must_not_take_is_parked_until_retry(stack: Stack) -> None:
    stack.mysql.execute("ALTER TABLE notes ADD COLUMN late INT", "INSERT INTO notes VALUES (2, 2)", database=DATABASE)

    place = rf"halted source shop, tenant acme, table {DATABASE}\.notes: "
    stack.says(place + r"table_parked since .*column_added late", rf"`headwater retry acme {DATABASE}\.notes`")
    stack.acme.write_text(stack.acme.read_text().replace(f", {REFUSES}", ""))
    wait_until(
        lambda: (
            "schema_changes" not in "".join(file.read_text() for file in (stack.home.sink_dir / "tenants").iterdir())
        ),
        because="the sink has read the document",
    )
    stack.run("retry", "acme", "notes")
    stack.is_well()


def test_a_warehouse_that_is_gone_is_named_and_written_when_it_is_back(stack: Stack) -> None:
    """The other tenant goes on meanwhile."""
    stack.postgresql.kill()
    stack.insert(1_001)

    stack.says(r"halted tenant globex: batch_fails since .*PostgreSQL \S+: does not answer", r"Bring the warehouse")
    stack.has_rows("acme", ROWS + 1)
    stack.postgresql.restart()
    stack.is_well()
    stack.has_rows("globex", ROWS + 1)


def test_kafka_that_is_gone_is_named_and_read_on_when_it_is_back(stack: Stack) -> None:
    """Commands say so too."""
    stack.kafka.kill()
    stack.says(r"halted kafka_unreachable", r"Bring the broker back")
    signalled = stack.run("signal", "shop", "execute-snapshot", f"{DATABASE}.orders", exits=1)
    erased = stack.run("erase", "acme", "--dry-run", exits=1)
    stack.insert(1_002)
    stack.kafka.restart()

    stack.is_well()
    stack.has_rows("acme", ROWS + 2)
    stack.has_rows("globex", ROWS + 2)
    assert "Kafka does not answer" in signalled
    assert erased.startswith("headwater: Kafka: ")


def test_a_source_that_is_gone_is_named_and_followed_when_it_is_back(stack: Stack) -> None:
    stack.mysql.kill()
    stack.says(r"halted source shop: source_unreachable since ", r"Bring the server back.*`headwater validate shop`")
    stack.mysql.restart()

    stack.is_well()
    stack.insert(1_003)
    stack.has_rows("acme", ROWS + 3)


def test_a_changed_document_of_a_source_is_told_until_it_is_taken_back(stack: Stack) -> None:
    file = stack.home.sources_dir / "shop.yaml"
    good = file.read_text()
    file.write_text(f"{good}replica_server_id: 4711\n")

    stack.says(r"degraded source shop: document_changed since ", r"`headwater down`, `headwater up`")
    file.write_text(good)
    stack.is_well()


def test_names_that_nothing_has_are_mistakes(stack: Stack) -> None:
    signalled = stack.run("signal", "shop", "execute-snapshot", f"{DATABASE}.orderz", "--wait", exits=1)
    erased = stack.run("erase", "acmee", "--dry-run", exits=2)
    checked = stack.run("check", "acme", "--table", "orders", exits=2)

    assert f"not done: {DATABASE}.orderz: no captured table has this name" in signalled
    assert "tenant acmee: Headwater holds nothing of it; did you mean 'acme'?" in erased
    assert "--table 'orders': matches no table; it must match database.table whole" in checked


def test_tables_of_a_mesh_elsewhere_are_built_again(stack: Stack, tmp_path: Path) -> None:
    """The file has Kafka, warehouse and documents; no command sees a disk of the job's by it."""
    file = tmp_path / "mesh.yaml"
    catalog = {"kind": "sqlite", "file": str(stack.home.catalog_file)}
    mesh = {
        "kafka": {"bootstrap_servers": stack.kafka.bootstrap_servers},
        "tenants_dir": str(stack.home.tenants_dir),
        "warehouses": {"iceberg": {"warehouse_dir": str(stack.home.warehouse_dir), "catalog": catalog}},
        "notes_dir": str(tmp_path / "notes"),
    }
    file.write_text(yaml.safe_dump(mesh))

    ((rows,),) = stack.mysql.execute("SELECT COUNT(*) FROM orders", database=DATABASE)
    for tenant in ("acme", "log"):
        stack.has_rows(tenant, rows)

    said = stack.run("resync", "acme", "orders", "--mesh", str(file))

    assert f"{DATABASE}.orders: built again from {rows} event(s), swapped in " in said, said
    assert "equal" in stack.run("check", "acme", "--table", rf"{DATABASE}\.orders")
    now = datetime.datetime.now(datetime.UTC).isoformat()
    said = stack.run("rebuild", "log", "orders", "--as-of", now, "--into", "orders_now", "--mesh", str(file))
    assert f"orders_now: {rows} row(s) as of " in said, said


def test_ctrl_c_at_down_says_that_the_stack_goes_on_stopping(stack: Stack) -> None:
    """And the same command waits for it."""
    said = broken_off(stack.command, "down", when="stopping")
    code, again = stack.command.run("down", timeout_s=STEP_TIMEOUT_S)

    goes_on = "the stack goes on stopping: the same command waits for it again"
    assert said.splitlines()[-1] in (f"headwater: interrupted; {goes_on}", "stopped"), said
    assert code == 0, again
    assert stack.command.left_over() == []
    assert "no stack runs in" in stack.run("status", exits=1)
