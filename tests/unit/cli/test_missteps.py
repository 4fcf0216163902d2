"""Missteps of a new user: the first thing that a command says, its exit code, and that its remedy mends it.

The stack is this test's own: it holds the home, its one process serves this process's faults as a reader does, and no server
runs. Missteps that take a server are in tests/integration/test_missteps.py.
"""

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from libs.check.compare import Comparison
from libs.check.projection import ExpectedTable
from libs.check.run import CheckReport, TableCheck
from libs.config.connections import GrpcServerSettings, TelemetrySettings
from libs.errors import BrokerUnavailable
from libs.mesh.home import Home, home_at, write_examples
from libs.mesh.state import ServicePhase, ServiceState, StackPhase, StackState, hold, replace_file, write_state
from libs.mesh.taken_over import note_taken_over
from libs.mesh.tenant_topics import committed_ends
from libs.operations.erase.held import Held
from libs.operations.erase.places import Erasure
from libs.rpc.server import start_server
from libs.servers.ports import LOOPBACK
from libs.sink_state.progress import ParkedTable, SinkProgress, TableProgress
from libs.source.control import ReaderControl
from libs.source.signal_outcomes import note_refused
from libs.source.status import ReaderStatus
from libs.source.unseen_rows import report_unseen_rows
from libs.telemetry.endpoint import start_endpoint
from libs.telemetry.faults import CATALOGUE, lasting_faults, lift_fault
from libs.types.checkpoint import Checkpoint, FencingToken, IncrementalSnapshot
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from libs.types.table import TableId
from libs.types.unseen_rows import UnseenRows
from protos.headwater.reader_control.v1 import reader_control_pb2_grpc
from tests.headwater_command import run_here

SOURCE: Final = "database: {user: u, password: p}\ninclude_tables: ['shop\\..*']\n"
TENANT: Final = "tenant: acme\nsources: [{name: shop}]\n"
ORDERS: Final = TableId(database="shop", table="orders")


@dataclass(slots=True)
class Stack:
    """A home whose stack is this process."""

    home: Home
    reader: ReaderStatus
    services: dict[str, ServiceState] = field(default_factory=dict)
    degraded: str | None = None
    kafka_is_away: bool = False

    def ends(self, _kafka: object, topics: Collection[str]) -> dict[str, dict[int, int]]:
        """In place of Kafka's answer: where topics end."""
        if self.kafka_is_away:
            raise BrokerUnavailable("Kafka at 127.0.0.1:1 does not answer: is the stack up?")
        return {topic: {} for topic in topics}

    def source(self, text: str, name: str = "shop") -> None:
        (self.home.sources_dir / f"{name}.yaml").write_text(text)

    def tenant(self, text: str) -> None:
        (self.home.tenants_dir / "acme.yaml").write_text(text)

    def has(self, **changed: Any) -> None:
        """The reader's process is in another phase."""
        self.services["reader-shop"] = msgspec.structs.replace(self.services["reader-shop"], **changed)
        write_state(
            self.home,
            StackState(
                supervisor_pid=1,
                phase=StackPhase.UP,
                started_at_s=time.time(),
                services=tuple(self.services.values()),
            ),
        )

    def sinks(
        self, parked: ParkedTable | None = None, *, parked_keys: int = 0, halted_because: str | None = None
    ) -> None:
        """The sink's file, with one table of these fields."""
        topic = "acme.shop.orders"
        table = TableProgress(
            topic=topic,
            source="shop",
            table="shop.orders",
            warehouse_table="acme.orders",
            parked=parked,
            parked_keys=parked_keys,
        )
        progress = SinkProgress(tenant="acme", written_at_us=1, tables={topic: table}, halted_because=halted_because)
        replace_file(self.home.sink_dir / "progress" / "acme.json", msgspec.json.encode(progress))

    def forget(self) -> None:
        """The process is started again."""
        for fault in lasting_faults():
            lift_fault(next(kind for kind in CATALOGUE if kind.id == fault.id), fault.scope)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    home = home_at(tmp_path_factory.mktemp("missteps"))
    write_examples(home)
    stack = Stack(home, ReaderStatus(SourcePartition(source="shop", name="0")))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def register(target: Any) -> None:
        control = ReaderControl(stack.reader, lambda _: 0)
        reader_control_pb2_grpc.add_ReaderControlServicer_to_server(control, target)

    with ExitStack() as ends:
        name = "headwater.reader_control.v1.ReaderControl"
        server = asyncio.run_coroutine_threadsafe(start_server(GrpcServerSettings(), {name: register}), loop).result()
        endpoint = start_endpoint(TelemetrySettings(), degraded=lambda: stack.degraded)
        ends.callback(thread.join)
        ends.callback(loop.call_soon_threadsafe, loop.stop)
        ends.callback(lambda: asyncio.run_coroutine_threadsafe(server.stop(0), loop).result())
        ends.callback(endpoint.close)
        ends.enter_context(hold(home))
        replace_file(home.ports_file, msgspec.json.encode({"kafka": 1, "checkpoint_committer-grpc": 1}))
        stack.services["reader-shop"] = ServiceState(
            name="reader-shop", phase=ServicePhase.UP, http_port=endpoint.port, grpc_port=server.port, pid=None
        )
        yield stack


@pytest.fixture
def stack(served: Stack, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """Well: a source, no tenant, a reader that follows its log."""
    monkeypatch.setattr("libs.operations.status.committed_ends", served.ends)
    served.kafka_is_away = False
    served.source(SOURCE)
    served.tenant("")
    (served.home.tenants_dir / "acme.yaml").unlink()
    (served.home.sink_dir / "progress" / "acme.json").unlink(missing_ok=True)
    served.reader.halted_because = ""
    served.reader.connected(None)
    note_taken_over(served.home)
    served.has(phase=ServicePhase.UP, detail="", last_end="", pid=1)
    return served


@dataclass(frozen=True, slots=True)
class Misstep:
    """One of them. The command is ``status`` unless another is said."""

    done: Callable[[Stack], object]
    says: str
    """A regular expression that the first line matches."""
    remedy: str
    """A regular expression within the output."""
    mend: Callable[[Stack], object]
    """The remedy's own steps."""
    command: tuple[str, ...] = ("status",)
    exit_code: int = 1


def unseen(stack: Stack) -> None:
    report_unseen_rows(
        UnseenRows("DROP PARTITION p1", (ORDERS,)),
        source="shop",
        source_partition="0",
        is_captured=lambda _: True,
        at="binlog.000042:1199",
    )


PARKED: Final = ParkedTable(
    because="total: 65 digits do not fit; narrow the column", from_offsets={0: 3}, to_offsets={0: 9}
)

MISSTEPS: Final = {
    "the source does not answer at the first start": Misstep(
        lambda stack: stack.reader.interrupted("10.0.0.7:3306: connection refused; next try in 8 s", retry_s=8),
        r"halted source shop: source_unreachable since .*: 10\.0\.0\.7:3306: connection refused",
        r"correct host, port and network .*`headwater validate shop`",
        lambda stack: stack.reader.connected(None),
    ),
    "the password is wrong": Misstep(
        lambda stack: stack.reader.halted(
            "AccessDenied: 1045 Access denied for user 'u'@'h': correct user and password"
        ),
        r"halted source shop: reader_halted since .*1045 Access denied",
        r"Follow the remedy at the end of the message",
        lambda stack: (stack.forget(), setattr(stack.reader, "halted_because", ""), stack.reader.connected(None)),
    ),
    "a reader was killed and waits": Misstep(
        lambda stack: stack.has(
            phase=ServicePhase.BACKING_OFF, detail="killed by SIGKILL; next start in 8 s", pid=None
        ),
        r"halted process reader-shop: process_down.*: killed by SIGKILL; next start in 8 s",
        r"the supervisor starts it again",
        lambda stack: stack.has(phase=ServicePhase.UP, detail="", pid=1),
    ),
    "a partition is dropped": Misstep(
        unseen,
        r"differs source shop, table shop\.orders: rows_changed_unseen since .*DROP PARTITION p1 at binlog\.000042:1199",
        r"Build each tenant's table again.*`headwater resync TENANT shop\.orders`",
        lambda stack: stack.forget(),
    ),
    "a table is parked": Misstep(
        lambda stack: (stack.tenant(TENANT), stack.sinks(PARKED)),
        r"halted source shop, tenant acme, table shop\.orders: table_parked since .*65 digits do not fit",
        r"`headwater retry acme shop\.orders`",
        lambda stack: stack.sinks(None),
    ),
    "a row is refused by the warehouse": Misstep(
        lambda stack: (stack.tenant(TENANT), stack.sinks(parked_keys=3)),
        r"differs source shop, tenant acme, table shop\.orders: keys_parked since .*3 key\(s\) parked",
        r"`headwater dead-letter list acme`",
        lambda stack: stack.sinks(),
    ),
    "Kafka deleted what the sink had not read": Misstep(
        lambda stack: (stack.tenant(TENANT), stack.sinks(halted_because="Kafka no longer holds offset 4711")),
        r"halted tenant acme: sink_halted since .*Kafka no longer holds offset 4711",
        r"Follow the remedy at the end of the message",
        lambda stack: stack.sinks(),
    ),
    "Kafka is away": Misstep(
        lambda stack: setattr(stack, "kafka_is_away", True),
        r"halted kafka_unreachable: Kafka at 127\.0\.0\.1:1 does not answer",
        r"Bring the broker back.*`headwater doctor`",
        lambda stack: setattr(stack, "kafka_is_away", False),
    ),
    "Redis is away": Misstep(
        lambda stack: setattr(stack, "degraded", "Redis is away; answers come from Kafka and memory"),
        r"degraded process reader-shop: service_degraded: reader-shop: Redis is away",
        r"Bring back the server that the message names",
        lambda stack: setattr(stack, "degraded", None),
    ),
    "a tenant's document has a mistake": Misstep(
        lambda stack: stack.tenant("tenant: acme\nsources: [{name: shop, masks: [{columns: 'shop\\.t\\.c'}]}]\n"),
        r"halted tenant acme: tenant_refused: .*acme\.yaml:2: sources\[0\]\.masks\[0\]",
        r"Correct the document at the place .*`headwater validate`",
        lambda stack: stack.tenant(TENANT),
    ),
    "a tenant names a source that is not there": Misstep(
        lambda stack: stack.tenant("tenant: acme\nsources: [{name: shpo}]\n"),
        r"halted tenant acme: tenant_refused: .*acme\.yaml:2: sources\[0\]\.name: .*did you mean 'shop'",
        r"Correct the document",
        lambda stack: stack.tenant(TENANT),
    ),
    "a source's document is changed while the stack is up": Misstep(
        lambda stack: stack.source(SOURCE.replace("password: p", "password: q")),
        r"degraded source shop: document_changed since .*sources/shop\.yaml was changed after the stack was started",
        r"`headwater down`, `headwater up`",
        lambda stack: note_taken_over(stack.home),  # as `up` does
    ),
    "a source is added while the stack is up": Misstep(
        lambda stack: stack.source(SOURCE.replace("database: {", "replica_server_id: 77\ndatabase: {"), "web"),
        r"degraded source web: document_changed since .*sources/web\.yaml was added",
        r"Or take the change back",
        lambda stack: (stack.home.sources_dir / "web.yaml").unlink(),
    ),
    "a server id is no server id": Misstep(
        lambda stack: stack.source(f"{SOURCE}replica_server_id: 99999999999\n"),
        r"headwater: .*shop\.yaml:3: replica_server_id: must be from 1 to 4,294,967,295",
        r"from 1 to",
        lambda stack: stack.source(f"{SOURCE}replica_server_id: 4711\n"),
        ("validate",),
        2,
    ),
    "a password is a variable": Misstep(
        lambda stack: stack.source(SOURCE.replace("password: p", "password: '${SHOP_PASSWORD}'")),
        r"headwater: .*shop\.yaml:1: database\.password: ",
        r"password_from: \{env: SHOP_PASSWORD\}",
        lambda stack: stack.source(SOURCE.replace("password: p", "password_from: {env: PATH}")),
        ("validate",),
        2,
    ),
    "a name is misspelt": Misstep(
        lambda stack: stack.source(SOURCE.replace("user: u", "user: u, prot: 1")),
        r"headwater: .*shop\.yaml:1: database\.prot: unknown name; did you mean 'port'",
        r"did you mean 'port'",
        lambda stack: stack.source(SOURCE),
        ("validate",),
        2,
    ),
}
"""By a person's mistake."""


@pytest.mark.parametrize("name", MISSTEPS)
def test_a_misstep_is_the_first_line_and_its_remedy_mends_it(stack: Stack, name: str) -> None:
    """Before it the command finds nothing, and after its remedy nothing of it."""
    misstep = MISSTEPS[name]
    home = ("--home", str(stack.home.root))
    before = run_here(*misstep.command, *home)
    misstep.done(stack)
    found = run_here(*misstep.command, *home)
    misstep.mend(stack)
    after = run_here(*misstep.command, *home)

    first = found.output.splitlines()[0]
    assert re.match(misstep.says, first), found.output
    assert re.search(misstep.remedy, found.output), found.output
    assert found.exit_code == misstep.exit_code
    assert (before.exit_code, after.exit_code) == (0, 0), before.output + after.output
    assert not re.search(misstep.says, after.output, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "says", "exit_code"),
    [
        (("up",), r"headwater: a stack is already up in .*: stop it with `headwater down --home ", 1),
        (("statsu",), r"Error: No such command 'statsu': did you mean 'status'", 2),
        (("signal", "shpo", "execute-snapshot", "shop.orders"), r"headwater: source shpo: .*did you mean 'shop'", 2),
        (("tenant", "explain", "acme", "orders"), r"headwater: tenant acme: has no (good )?document in tenants/", 2),
    ],
)
def test_a_command_that_cannot_be_says_what_to_do(
    stack: Stack, arguments: tuple[str, ...], says: str, exit_code: int
) -> None:
    """While a stack runs."""
    home = () if arguments == ("statsu",) else ("--home", str(stack.home.root))

    found = run_here(*arguments, *home)

    assert re.search(says, found.output, re.MULTILINE), found.output
    assert found.exit_code == exit_code


def test_the_stacks_own_readers_are_held_and_continue(stack: Stack) -> None:
    """By the ports that the supervisor keeps; `status` shows it."""
    home = ("--home", str(stack.home.root))
    paused = run_here("pause", "shop", *home)
    shown = run_here("status", *home)
    resumed = run_here("resume", "shop", *home)

    assert "paused reader-shop;" in paused.output
    assert re.search(r"shop/0 +paused", shown.output)
    assert (paused.exit_code, shown.exit_code, resumed.exit_code) == (0, 0, 0)
    assert re.search(r"shop/0 +(streaming|snapshotting)", run_here("status", *home).output)


def test_a_refused_signal_is_told_to_who_sent_it_and_in_status(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command waits until a checkpoint of the reader has passed the signal."""
    place = ("shop", "0")

    def sent(_kafka: object, _source: str, text: str) -> int:
        signal_id = json.loads(text)["id"]
        note_refused(place, signal_id, "surrogate-key: vtgate copies a table along its primary key alone")
        passed = IncrementalSnapshot(signals_offset=5)
        stack.reader.last = Checkpoint(
            partition=stack.reader.partition,
            position=SourcePosition(source_kind="mysql", token=b""),
            order=EventOrder(epoch=0, rank=1, tx_ordinal=0),
            fencing_token=FencingToken(1),
            committed_at_us=0,
            published_at_us=0,
            incremental=passed,
        )
        return 4

    monkeypatch.setattr("libs.cli.signal.send_signal", sent)
    home = ("--home", str(stack.home.root))
    command = ("signal", "shop", "execute-snapshot", "shop.orders", "--id", "s1", "--wait", *home)
    waited, machine = run_here(*command), run_here(*command, "--json")
    shown = run_here("status", *home)

    reason = "refused: surrogate-key: vtgate copies a table along its primary key alone"
    assert waited.stderr.splitlines() == [f"reader-shop: {reason}"]
    assert json.loads(machine.stdout)["failures"] == [f"reader-shop: {reason}"]
    assert (waited.exit_code, machine.exit_code, shown.exit_code) == (1, 1, 0)
    assert re.search(rf"^s1 +shop +\d{{4}}-\S+ \S+ +{reason}", shown.output, re.M), shown.output


def test_problems_are_shown_alone_and_in_each_form(stack: Stack) -> None:
    """Without one nothing is left but the home."""
    home = ("--home", str(stack.home.root))
    well = run_here("status", "--problems", *home)
    stack.reader.interrupted("10.0.0.7:3306: connection refused; next try in 8 s", retry_s=8)
    ill = run_here("status", "--problems", *home)
    document = yaml.safe_load(run_here("status", "-o", "yaml", *home).stdout)

    assert well.output.splitlines() == [f"home {stack.home.root}   stack up"]
    assert "shop/0" in ill.output
    assert document == json.loads(run_here("status", "-o", "json", *home).stdout) | {
        "processes": document["processes"]  # of another moment
    }
    assert (well.exit_code, ill.exit_code) == (0, 1)


def test_status_is_shown_again_until_it_is_stopped(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Ctrl-C, which here comes in the third pause."""
    pauses: list[float] = []

    def pause(span_s: float) -> None:
        pauses.append(span_s)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("libs.cli.status.pause", pause)
    shown = run_here("status", "--watch", "7", "--home", str(stack.home.root))

    assert shown.output.count("stack up") == 3
    assert (pauses, shown.exit_code) == ([7.0] * 3, 130)


def test_kafka_that_is_away_is_asked_once_however_many_tables_there_are(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time-out for each table would be minutes at the moment when `status` is needed most."""
    monkeypatch.setattr("libs.operations.status.committed_ends", committed_ends)
    monkeypatch.setattr("libs.mesh.tenant_topics.TIMEOUT_S", 0.2)
    stack.tenant(TENANT)
    tables = {
        f"acme.shop.t{number}": TableProgress(
            topic=f"acme.shop.t{number}", source="shop", table=f"shop.t{number}", warehouse_table=f"acme.t{number}"
        )
        for number in range(300)
    }
    progress = SinkProgress(tenant="acme", written_at_us=1, tables=tables)
    replace_file(stack.home.sink_dir / "progress" / "acme.json", msgspec.json.encode(progress))

    document = json.loads(run_here("status", "--json", "--home", str(stack.home.root)).stdout)

    assert [each for each in document["unknown"] if each.startswith("lag of")] == [
        "lag of 300 table(s): Kafka at 127.0.0.1:1 does not answer: is the stack up?"
    ]
    assert {each["lag_events"] for each in document["tables"]} == {None}


def test_the_doctor_has_the_faults_of_a_stack_that_runs(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """With their remedies."""
    monkeypatch.setattr("libs.mesh.tenant_topics.TIMEOUT_S", 0.2)
    stack.reader.interrupted("10.0.0.7:3306: connection refused; next try in 8 s", retry_s=8)

    found = run_here("doctor", "--home", str(stack.home.root))

    assert re.search(r"^fault +stack: source shop: source_unreachable: 10\.0\.0\.7:3306: conn", found.output, re.M)
    assert re.search(r"^ +remedy: Bring the server back, .* `headwater validate shop`$", found.output, re.M)
    assert re.search(r"^ok +stack: processes: 1 of 1 are up$", found.output, re.M), found.output
    assert found.exit_code == 1


BREAKS_OFF: Final = {
    "up": (
        ("up", "--detach"),
        {"libs.stack.lifecycle.start_detached": 1, "libs.stack.lifecycle.wait_until_up": None},
        "the stack goes on starting: `headwater status --home",
    ),
    "down": (
        ("down",),
        {"libs.stack.lifecycle.stop_stack": None},
        "the stack goes on stopping: the same command waits for it again",
    ),
    "signal": (
        ("signal", "shop", "execute-snapshot", "shop.orders"),
        {"libs.cli.signal.send_signal": None},
        "the signal may have been sent: `headwater status --source shop` shows it",
    ),
    "signal --wait": (
        ("signal", "shop", "execute-snapshot", "shop.orders", "--wait"),
        {"libs.cli.signal.send_signal": 4, "libs.cli.signal.wait_for_signal": None},
        "the signal is durable and goes on: `headwater status --source shop` shows it",
    ),
    "resync": (
        ("resync", "acme", "orders"),
        {"libs.cli.resync.begin": None},
        "the resync goes on: the same command waits for it again, with --give-up it is given up",
    ),
    "dead-letter replay": (
        ("dead-letter", "replay", "acme"),
        {
            "libs.cli.dead_letter.read_letters": [],
            "libs.cli.dead_letter.replay_requests": ["one"],
            "libs.cli.dead_letter.send_requests": None,
        },
        "the sink goes on with the replay: `headwater dead-letter list acme` has those that are left",
    ),
    "erase": (
        ("erase", "acme", "--yes", "acme"),
        {
            "libs.cli.erase.look": Erasure(
                tenant="acme", begun_at_us=1, held=(Held(kind="topic", name="acme.shop.orders"),)
            ),
            "libs.cli.erase.carry_out": None,
        },
        "the erasure has begun, and nothing goes on with it: the same command takes it up",
    ),
    "check --repair": (
        ("check", "--repair"),
        {"libs.cli.check.check": None},
        "rows that were asked for come by themselves: the same command compares again",
    ),
    "rebuild": (
        ("rebuild", "acme", "orders", "--as-of", "0.1.1", "--into", "before"),
        {"libs.cli.rebuild.rebuild_table": None},
        "the table is there whole or not at all: the same command makes it, or says that its name is taken",
    ),
    "status": (("status",), {"libs.cli.status.gather_status": None}, ""),
}
"""By command: its words, the functions that are replaced by an answer (None: Ctrl-C comes in it), and the work that goes on.
It is stopped where nothing does."""


@pytest.mark.parametrize("name", BREAKS_OFF)
def test_ctrl_c_says_what_goes_on(stack: Stack, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    arguments, replaced, goes_on = BREAKS_OFF[name]
    stack.tenant(TENANT)
    stack.sinks()

    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    for function, answer in replaced.items():
        monkeypatch.setattr(function, interrupted if answer is None else lambda *_, answer=answer, **__: answer)
    found = run_here(*arguments, "--home", str(stack.home.root))

    last = found.output.splitlines()[-1]
    assert last.startswith(f"headwater: interrupted; {goes_on}" if goes_on else "stopped"), found.output
    assert found.exit_code == 130


@pytest.mark.parametrize("command", ["status", "tail", "signal"])
def test_a_command_that_needs_a_stack_says_how_to_start_one(tmp_path: Path, command: str) -> None:
    """Exit code 1: nothing is wrong with the command."""
    write_examples(home_at(tmp_path))
    more = {"tail": ("acme", "orders"), "signal": ("shop", "execute-snapshot", "shop.orders")}.get(command, ())

    found = run_here(command, *more, "--home", str(tmp_path))

    assert found.output.startswith(f"headwater: no stack runs in {tmp_path}: start it with `headwater up --detach")
    assert found.exit_code == 1


def test_a_port_that_is_taken_is_named_and_another_one_serves(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 is any that is free."""

    def compared(_asked: object) -> CheckReport:
        raise KeyboardInterrupt

    monkeypatch.setattr("libs.cli.check._compare_at_once", compared)
    command = ("check", "--every", "60", "--home", str(stack.home.root), "--metrics-port")
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        found = run_here(*command, str(port))
    mended = run_here(*command, "0")

    assert f"Error: --metrics-port {port}: Address already in use; name another, or 0 for any" in found.output
    assert found.exit_code == 2
    assert re.search(rf"^metrics: http://{LOOPBACK}:\d+/metrics$", mended.output, re.M), mended.output


def test_a_disk_that_is_full_is_told_with_the_remedy(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    table = ExpectedTable(ORDERS, ("id",), (), None)
    report = CheckReport((TableCheck("acme", "shop", table, Comparison(), ()),), False)
    monkeypatch.setattr("libs.cli.check.check", lambda *_, **__: report)

    found = run_here("check", "--home", str(stack.home.root), "--report", "/dev/full")

    assert found.output.splitlines()[-1] == (
        "headwater: No space left on device: free some disk space, and run the command again"
    )
    assert found.exit_code == 1


def test_a_recording_is_never_overwritten(tmp_path: Path) -> None:
    """A subscription's messages are gone from the broker by the time that anybody misses them."""
    file = tmp_path / "case.jsonl"
    file.write_text("recorded\n")
    command = ("dts", "record", "--bootstrap-servers", "127.0.0.1:1", "--topic", "t", "--group", "g")
    found = run_here(*command, str(file))

    assert "case.jsonl is there already, and a recording is never overwritten: name another file" in found.output
    assert file.read_text() == "recorded\n"
    assert found.exit_code == 2
