"""``up``, ``status``, ``tail``, ``query``, ``check`` and ``down``, each as a user types it, on a stack that runs."""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import MysqlServer
from tests.headwater_command import HeadwaterCommand, headwater_in, write_shop

UP_TIMEOUT_S = 600.0
COMMAND_TIMEOUT_S = 400.0
TAIL_TIMEOUT_S = 180.0
PROCESSES = ("kafka", "valkey", "schema_history", "checkpoint_committer", "reader-shop", "router", "sink")


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> str:
    """Two orders, of which one has no note."""
    name = unique_name("live")
    mysql_server.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.orders (id INT PRIMARY KEY, note VARCHAR(40))",
        f"INSERT INTO {name}.orders VALUES (1, 'first'), (2, NULL)",
    )
    return name


@pytest.fixture
def headwater(mysql_server: MysqlServer, database: str, tmp_path: Path) -> Iterator[HeadwaterCommand]:
    """A home with one source and one tenant; nothing runs."""
    with headwater_in(tmp_path / "home") as command:
        write_shop(command.home, mysql_server, database, {"acme": "{trigger_s: 1}"})
        yield command


@pytest.mark.promise("commands")
@pytest.mark.promise("erase")
@pytest.mark.timeout(1_800)
def test_the_commands_show_a_live_stack(headwater: HeadwaterCommand, mysql_server: MysqlServer, database: str) -> None:
    """From up to down: each command says what is so, and down leaves nothing running."""
    exit_code, said = headwater.run("up", "--detach", timeout_s=UP_TIMEOUT_S)
    assert exit_code == 0, said
    for process in PROCESSES:
        assert re.search(rf"^\d\d:\d\d:\d\d  {process} +up *$", said, re.M), said
    assert f"`headwater status --home {headwater.home.root}` shows how it gets on" in said

    said = shown_in_the_end(headwater, "status", r"^acme +router +shop: \(all\) +2 ")
    assert f"home {headwater.home.root}   stack up" in said
    assert re.search(r"^shop/\S+ +streaming +2 ", said, re.M), said
    for process in PROCESSES:
        assert re.search(rf"^{process} +up +\d+ .* 0 +\d+ MB ", said, re.M), said

    line = tailed_line(headwater, mysql_server, database)
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}  INSERT +id=\d+  note='hello'", line), line

    exit_code, said = headwater.run("validate", "shop", timeout_s=COMMAND_TIMEOUT_S)
    assert exit_code == 0, said
    assert "shop: the server can be followed, from the checkpoint on" in said

    exit_code, said = headwater.run("check", "acme", timeout_s=2 * COMMAND_TIMEOUT_S)
    assert exit_code == 0, said
    assert re.search(rf"^acme +{database}\.orders +\d+ rows x +2 columns  equal$", said, re.M), said

    exit_code, said = headwater.run(
        "query", "acme", "SELECT id, note FROM orders WHERE id < 4 ORDER BY id", timeout_s=COMMAND_TIMEOUT_S
    )
    assert exit_code == 0, said
    assert re.search(r"\b1 \S first .*\b2 \S NULL .*\b3 \S hello .*^3 row\(s\)$", said, re.M | re.S), said

    exit_code, said = headwater.run(
        "schema", "plan", "shop", f"ALTER TABLE {database}.orders ADD COLUMN size INT", timeout_s=COMMAND_TIMEOUT_S
    )
    assert exit_code == 0, said
    assert "add column size int" in said
    assert said.endswith("tables as schema_history has them\n")

    exit_code, said = headwater.run("erase", "acme", "--dry-run", timeout_s=COMMAND_TIMEOUT_S)
    assert exit_code == 0, said
    assert said.startswith("tenant acme: this would go\n"), said
    assert "orders" in said, said
    exit_code, said = headwater.run("erase", "acme", "--yes", "acme", timeout_s=4 * COMMAND_TIMEOUT_S)
    assert exit_code == 0, said
    assert "looked for again: 0 left" in said, said
    exit_code, said = headwater.run("query", "acme", "SELECT id FROM orders", timeout_s=COMMAND_TIMEOUT_S)
    assert exit_code != 0, said

    exit_code, said = headwater.run("down", timeout_s=2 * COMMAND_TIMEOUT_S)
    assert (exit_code, said) == (0, "stopping …\nstopped\n")
    assert headwater.left_over() == []

    exit_code, said = headwater.run("status", timeout_s=COMMAND_TIMEOUT_S)
    assert exit_code == 1
    assert f"no stack runs in {headwater.home.root}" in said


def shown_in_the_end(headwater: HeadwaterCommand, command: str, pattern: str) -> str:
    """What ``command`` prints once a line matches."""
    deadline_s = time.monotonic() + 2 * COMMAND_TIMEOUT_S
    while True:
        exit_code, said = headwater.run(command, timeout_s=COMMAND_TIMEOUT_S)
        if exit_code == 0 and re.search(pattern, said, re.M):
            return said
        assert time.monotonic() < deadline_s, said
        time.sleep(1.0)


def tailed_line(headwater: HeadwaterCommand, mysql_server: MysqlServer, database: str) -> str:
    """The line that ``tail`` shows of a row that is inserted meanwhile.

    It starts at the end of the topic, some time after it was started: a row is inserted every second.
    """
    with headwater.start("tail", "acme", "orders", "-n", "1") as tail:
        for number in range(3, 3 + int(TAIL_TIMEOUT_S)):
            mysql_server.execute(f"INSERT INTO {database}.orders VALUES ({number}, 'hello')")
            try:
                said, _ = tail.communicate(timeout=1.0)
            except subprocess.TimeoutExpired:
                continue
            assert tail.returncode == 0, said
            return said.rstrip("\n")
        tail.kill()
        raise AssertionError(f"tail showed nothing in {TAIL_TIMEOUT_S:.0f} s: {tail.communicate()[0]}")
