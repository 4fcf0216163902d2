"""Forked services are processes: settings, environment, log, exit code and end of their own."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from libs.servers.process import ProcessSpec, Running, kill
from tests.service_forks import start_fork

TIMEOUT_S = 120.0


def forked(folder: Path, settings: str, **environ: str) -> Running:
    folder.mkdir()
    path = folder / "settings.yaml"
    path.write_text(settings)
    command = (sys.executable, "-m", "services.schema_history", "--settings", str(path))
    return start_fork(ProcessSpec("schema_history", command, environ, folder, None), folder / "logs")


def test_exit_code_and_output_are_those_of_the_service(tmp_path: Path) -> None:
    mistaken = forked(tmp_path / "a", "tpic: x\n")
    misarmed = forked(tmp_path / "b", "topic: x\n", HEADWATER_TPIC="x")

    assert [each.popen.wait(TIMEOUT_S) for each in (mistaken, misarmed)] == [2, 2]
    assert "settings.yaml:1: tpic: unknown name; did you mean 'topic'?" in mistaken.log_path.read_text()
    assert "HEADWATER_TPIC" in misarmed.log_path.read_text()


def test_a_fork_is_signalled_and_killed_alone(tmp_path: Path) -> None:
    unreachable = "kafka: {bootstrap_servers: '127.0.0.1:1'}\n"
    first, second = forked(tmp_path / "a", unreachable), forked(tmp_path / "b", unreachable)
    with pytest.raises(subprocess.TimeoutExpired):
        first.popen.wait(0.1)

    kill(first)
    alive = second.popen.poll() is None
    second.popen.send_signal(signal.SIGKILL)

    assert (first.popen.wait(0.0), alive, second.popen.wait(TIMEOUT_S)) == (-signal.SIGKILL, True, -signal.SIGKILL)
