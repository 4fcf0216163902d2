"""``headwater logs``: the lines of all processes, readable, in the order of time."""

import json
from pathlib import Path

import pytest

from libs.cli.logs import readable
from libs.mesh.home import Home, home_at
from tests.headwater_command import run_here


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Two processes have written; Kafka's lines are no JSON."""
    found = home_at(tmp_path)
    found.logs_dir.mkdir()
    lines = {
        "router": [("10:00:01", "info", "router_started"), ("10:00:04", "error", "service_failed")],
        "reader-shop": [("10:00:02", "warning", "reading_interrupted"), ("10:00:03", "info", "log_opened")],
    }
    for process, written in lines.items():
        records = [{"at": f"2026-11-21T{at}Z", "level": level, "event": event} for at, level, event in written]
        (found.logs_dir / f"{process}.log").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (found.logs_dir / "kafka.log").write_text("[main] INFO started\n")
    return found


def events(text: str) -> list[str]:
    return [line.split()[-1] for line in text.splitlines()]


def test_all_processes_are_shown_in_the_order_of_time(home: Home) -> None:
    answer = run_here("logs", "--home", str(home.root))

    assert answer.exit_code == 0
    assert events(answer.stdout) == [
        "started", "router_started", "reading_interrupted", "log_opened", "service_failed",
    ]  # fmt: skip


def test_one_process_and_one_level_are_chosen(home: Home) -> None:
    one = run_here("logs", "reader-shop", "-n", "1", "--home", str(home.root))
    warnings = run_here("logs", "--level", "warning", "--home", str(home.root))

    assert events(one.stdout) == ["log_opened"]
    assert events(warnings.stdout) == ["reading_interrupted", "service_failed"]


def test_an_unknown_process_is_a_mistake_that_names_the_nearest(home: Home) -> None:
    answer = run_here("logs", "ruoter", "--home", str(home.root))

    assert answer.exit_code == 2
    assert "did you mean 'router'?" in answer.stderr


def test_a_name_at_the_source_commands_no_terminal() -> None:
    """ESC is shown as JSON escapes it."""
    line = readable({"at": "", "level": "info", "event": "x", "table": "a\x1b]0;owned\x07"}, "reader-shop")

    assert "\x1b" not in line
    assert "\\u001b" in line
