"""The command line: its help, and its answers to mistakes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import click
import msgspec
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from libs.cli.main import SUBCOMMANDS, headwater
from libs.cli.status import duration, is_well, print_status, short_position
from libs.cli.tail import choose_topic
from libs.errors import InvalidSettings
from libs.mesh.home import home_at
from libs.mesh.tenant_topics import RowTopic
from libs.operations.status import SourceStatus, Status
from libs.telemetry.faults import TABLE_QUARANTINED, fault_of
from libs.types.fault import FaultScope
from tests.headwater_command import run_here as run
from tests.unit.warehouse_readers.warehouse_files import write_table

COMMANDS = tuple(SUBCOMMANDS)


def run_here(*arguments: str, home: Path | None = None) -> Result:
    """The command in this process, in an environment without Headwater's names but that of its home."""
    nothing: dict[str, str | None] = {name: None for name in os.environ if name.startswith("HEADWATER_")}
    return run(*arguments, environ=nothing if home is None else {**nothing, "HEADWATER_HOME": str(home)})


def run_process(*arguments: str, stdout: IO[str] | int = subprocess.PIPE) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "libs.cli", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=180,
        check=False,
    )


def every_command(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of each command and of each of its subcommands."""
    yield path
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from every_command(found, (*path, name))


def test_no_line_of_help_is_wider_than_80_columns() -> None:
    """A terminal would fold an example in the middle of a word."""
    wide = [
        line
        for path in every_command(headwater)
        for line in CliRunner().invoke(headwater, [*path, "--help"], env={"COLUMNS": "80"}).output.splitlines()
        if len(line) > 80
    ]

    assert wide == []


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_teaches_itself(command: str) -> None:
    """A first line that says its purpose; options explained."""
    found = headwater.get_command(click.Context(headwater), command)

    assert found is not None
    assert found.help
    assert all(
        parameter.help
        for parameter in found.params
        if isinstance(parameter, click.Option) and parameter.name != "traffic_s" and parameter.name != "home"
    )


def test_the_front_page_names_every_command() -> None:
    """`headwater --help` is where one begins."""
    shown = run_here("--help")

    assert shown.exit_code == 0
    assert all(command in shown.stdout for command in COMMANDS)


def test_a_mistyped_command_is_told_the_nearest() -> None:
    """With the code of a mistake, which is the process's too."""
    ended = run_process("stat")

    assert ended.returncode == 2
    assert "No such command 'stat'" in ended.stderr
    assert "status" in ended.stderr


def test_every_subcommand_is_where_the_front_page_says() -> None:
    """Under the name that it has there."""
    context = click.Context(headwater)

    assert {name: headwater.get_command(context, name).name for name in headwater.list_commands(context)} == {
        name: name for name in SUBCOMMANDS
    }


def test_the_front_page_loads_no_subcommand() -> None:
    """It is shown at once: the libraries of Iceberg and Spark take seconds."""
    code = "import sys, libs.cli.main as m; m.headwater(['--help'], standalone_mode=False); print(sorted(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=True)

    assert not any(f"'{module}'" in answer.stdout for module in ("pyarrow", "pyiceberg", "libs.cli.check", "redis"))


def test_init_then_validate(tmp_path: Path) -> None:
    """A fresh home has no mistakes and nothing to follow."""
    assert run_here("init", home=tmp_path).exit_code == 0
    answer = run_here("validate", home=tmp_path)

    assert answer.exit_code == 0
    assert "0 source(s)" in answer.stdout


def test_validate_lists_every_mistake(tmp_path: Path) -> None:
    """Of sources and of tenants, in one go; exit code 2."""
    run_here("init", home=tmp_path)
    (tmp_path / "sources" / "shop.yaml").write_text("database: {user: u, prot: 1}\n")
    (tmp_path / "tenants" / "acme.yaml").write_text("tenant: acme\nsources: [{name: shop, masks: [{columns: '('}]}]\n")

    answer = run_here("validate", home=tmp_path)

    assert answer.exit_code == 2
    assert "did you mean 'port'" in answer.stderr
    assert "masks[0]" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("status",), "headwater up"),
        (("tail", "acme", "orders"), "headwater up"),
        (("retry", "acme"), "headwater up"),
        (("query", "acme"), "no table yet"),
        (("up",), "headwater init"),
        (("up", "--detach"), "headwater init"),
        (("check",), "headwater init"),
        (("stauts",), "No such command"),
        (("tail", "acme"), "Missing argument"),
        (("tail", "acme", "orders", "-n", "0"), "0 is not in the range"),
        (("query", "acme", "SELECT 1", "--format", "xml"), "'xml' is not one of"),
    ],
)
def test_a_mistake_is_one_message_with_its_remedy(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    """Never a traceback; never exit code 0."""
    answer = run_here(*arguments, home=tmp_path / "home")

    assert answer.exit_code in (1, 2)
    assert says in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_what_it_was_given_a_script_for(shell: str) -> None:
    """The script is click's; asked as it asks, the command answers with its words."""
    script = run_here("completion", shell)
    asked = subprocess.run(
        [sys.executable, "-m", "libs.cli"],
        env={**os.environ, "_HEADWATER_COMPLETE": "bash_complete", "COMP_WORDS": "headwater stat", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert "_HEADWATER_COMPLETE" in script.output
    assert "plain,status" in asked.stdout.splitlines()


def test_down_of_nothing_is_no_failure(tmp_path: Path) -> None:
    """The stack is stopped already, as the command wants it."""
    answer = run_here("down", home=tmp_path)

    assert (answer.exit_code, "nothing ran" in answer.stdout) == (0, True)


@pytest.mark.parametrize("command", ["init", "demo"])
def test_a_folder_that_cannot_be_made_is_named(command: str) -> None:
    done = run_here(command, "--home", "/proc/nowhere")

    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == (
        "headwater: /proc/nowhere: No such file or directory: check the folder and this user's rights, or name another folder "
        "(--home)"
    )
    assert "Traceback" not in done.stderr


def test_a_full_disk_is_told_without_a_trace() -> None:
    """The device of that name says so to everybody who writes."""
    with Path("/dev/full").open("w") as full:
        done = run_process("version", stdout=full)

    assert done.returncode == 1
    assert done.stderr == "headwater: No space left on device: free some disk space, and run the command again\n"


def test_the_demo_does_not_take_somebodys_folder(tmp_path: Path) -> None:
    """It makes its home from scratch: a folder that no demo made is refused and stays as it is."""
    (tmp_path / "thesis.txt").write_text("mine")

    answer = run_here("demo", "--home", str(tmp_path))

    assert answer.exit_code == 2
    assert "not empty" in answer.stderr
    assert (tmp_path / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("csv", "id,name,raw\n1,a,0x00ff\n2,,\n"),
        ("json", '{"id":1,"name":"a","raw":"0x00ff"}\n{"id":2,"name":null,"raw":null}\n'),
    ],
)
def test_query_writes_for_programs(tmp_path: Path, output: str, expected: str) -> None:
    """CSV and one JSON object a line; NULL is empty, or null."""
    rows = pa.table({"id": [1, 2], "name": ["a", None], "raw": pa.array([b"\x00\xff", None], pa.binary())})
    write_table(home_at(tmp_path), "acme", "shop", "shop.orders", rows)

    answer = run_here("query", "acme", "SELECT * FROM orders ORDER BY id", "--format", output, home=tmp_path)

    assert (answer.stdout, answer.stderr) == (expected, "")


def test_query_without_sql_lists_the_tables(tmp_path: Path) -> None:
    """With their columns and how many rows they have."""
    write_table(home_at(tmp_path), "acme", "shop", "shop.orders", pa.table({"id": [1, 2]}))

    answer = run_here("query", "acme", "--format", "csv", home=tmp_path)

    assert answer.stdout.splitlines() == ["table,source,columns,rows", "shop.orders,shop,id,2"]


TOPICS = [RowTopic("t1", "acme", "shop", "shop", "orders"), RowTopic("t2", "acme", "crm", "crm", "orders")]


@pytest.mark.parametrize(("name", "topic"), [("shop.orders", "t1"), ("crm.crm.orders", "t2")])
def test_tail_finds_the_topic_of_a_table(name: str, topic: str) -> None:
    """By as many parts as make the name unique."""
    assert choose_topic("acme", name, TOPICS).name == topic


@pytest.mark.parametrize(
    ("name", "says"), [("orders", "not unique"), ("shop.ordrs", "did you mean 'shop.orders'"), ("zzz", "known")]
)
def test_tail_does_not_guess(name: str, says: str) -> None:
    """Two tables of a name, or none: the message says which there are."""
    with pytest.raises(InvalidSettings, match=says):
        choose_topic("acme", name, TOPICS)


def test_a_quarantined_table_is_shown_with_its_reason_and_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    """On the first lines; the command exits with 1."""
    reason = "shop.t: the log has [3] columns where version 1 has 2; re-snapshot the table"
    scope = FaultScope(source="shop", table="shop.t")
    source = SourceStatus(source="shop", source_partition="0", state="streaming")
    fault = fault_of(TABLE_QUARANTINED, scope, happened=reason, since_us=0)
    found = Status(home="/h", phase="up", processes=(), sources=(source,), tables=(), faults=(fault,))

    print_status(found, Console(width=80))

    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"differs source shop, table shop.t: table_quarantined: {reason}"
    assert "`headwater signal shop execute-snapshot shop.t`" in shown[1]
    assert not is_well(found)
    assert is_well(msgspec.structs.replace(found, faults=()))


def test_spans_and_positions_are_short() -> None:
    """A status line has room for these forms."""
    assert [duration(seconds) for seconds in (None, 0.04, 59, 90, 7200)] == ["?", "0.0 s", "59.0 s", "2 min", "2.0 h"]
    assert short_position("0000000000.00000000000000000000000011.0000000000") == "0.11.0"


def test_a_single_comparison_serves_no_metrics(tmp_path: Path) -> None:
    """It would be over before Prometheus asks."""
    answer = run_here("check", "--metrics-port", "0", home=tmp_path)

    assert answer.exit_code == 2
    assert "requires --every" in answer.stderr


@pytest.mark.parametrize("more", [[], ["--every", "60"]])
def test_an_address_without_a_port_serves_nothing_and_is_refused(tmp_path: Path, more: list[str]) -> None:
    answer = run_here("check", "--metrics-host", "0.0.0.0", *more, home=tmp_path)

    assert answer.exit_code == 2
    assert "--metrics-host requires --metrics-port" in answer.stderr
