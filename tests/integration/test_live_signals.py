"""``headwater signal``, each kind, against the reader of a stack that runs.

The commands run in this process: they are many, and each would start a Python of its own.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from libs.cli.main import headwater as headwater_command
from tests.conftest import MysqlServer
from tests.headwater_command import HeadwaterCommand, headwater_in, write_shop

pytestmark = pytest.mark.rest(because="a whole stack; the gate shows each signal on a reader alone")

UP_TIMEOUT_S = 600.0
SEEN_TIMEOUT_S = 400.0
ROWS = 5


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> str:
    """ROWS orders."""
    name = unique_name("signals")
    mysql_server.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.orders (id INT PRIMARY KEY, note VARCHAR(40))",
        f"INSERT INTO {name}.orders VALUES {', '.join(f'({number}, NULL)' for number in range(ROWS))}",
    )
    return name


@pytest.fixture
def headwater(mysql_server: MysqlServer, database: str, tmp_path: Path) -> Iterator[HeadwaterCommand]:
    """A stack that runs, its reader streaming."""
    with headwater_in(tmp_path / "home") as command:
        write_shop(command.home, mysql_server, database, {"acme": "null"})
        exit_code, said = command.run("up", "--detach", timeout_s=UP_TIMEOUT_S)
        assert exit_code == 0, said
        _until(lambda: _source(command), lambda source: source["state"] == "streaming")
        yield command


@pytest.mark.timeout(1_800)
def test_each_kind_of_signal_acts_on_a_live_reader(headwater: HeadwaterCommand, database: str) -> None:
    """A copy is held back, let go, and taken back; what is asked for twice comes twice, what is stopped does not come."""

    def signal(*words: str) -> None:
        said = _said(headwater, "signal", "shop", *words)
        assert f"sent {words[0]} " in said

    def ids(source: dict[str, Any]) -> list[str]:
        return [each["signal_id"] for each in source["incremental"]]

    def published() -> int:
        return int(_source(headwater)["rows_published"])

    def seen(wanted: Callable[[dict[str, Any]], bool]) -> None:
        _until(lambda: _source(headwater), wanted)

    assert published() == ROWS
    signal("execute-snapshot", f"{database}.orders")
    _until(published, lambda rows: rows == 2 * ROWS)

    signal("pause-snapshot")
    signal("execute-snapshot", f"{database}.orders", "--where", "id > 2", "--id", "some")
    seen(lambda source: source["incremental_is_paused"] and ids(source) == ["some"])
    assert published() == 2 * ROWS
    signal("resume-snapshot")
    _until(published, lambda rows: rows == 2 * ROWS + 2)

    signal("pause-snapshot")
    signal("execute-snapshot", f"{database}.orders", "--id", "never")
    seen(lambda source: ids(source) == ["never"])
    signal("stop-snapshot", f"{database}.orders")
    seen(lambda source: not source["incremental"])
    signal("resume-snapshot")

    signal("execute-snapshot", f"{database}.nowhere", "--id", "lost")
    signal("log", "--message", "here I was")
    reader_log = headwater.home.log_file("reader-shop")
    said = _until(lambda: reader_log.read_text(encoding="utf-8"), lambda text: "here I was" in text)
    assert "no captured table has this name" in said or f"{database}.nowhere" in said
    assert published() == 2 * ROWS + 2


def _said(headwater: HeadwaterCommand, *words: str) -> str:
    """What a command prints that goes well."""
    result = CliRunner().invoke(headwater_command, [*words, "--home", str(headwater.home.root)])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def _source(headwater: HeadwaterCommand) -> dict[str, Any]:
    """``status`` of the one source; of a reader that does not answer yet, an unknown state."""
    sources = json.loads(_said(headwater, "status", "--json"))["sources"]
    return dict(sources[0]) if sources else {"state": ""}


def _until(look: Callable[[], Any], is_wanted: Callable[[Any], bool]) -> Any:
    """What is seen once it is as wanted."""
    deadline_s = time.monotonic() + SEEN_TIMEOUT_S
    while True:
        found = look()
        if is_wanted(found):
            return found
        assert time.monotonic() < deadline_s, found
        time.sleep(0.5)
