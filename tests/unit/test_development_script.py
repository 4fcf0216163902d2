"""The script that a pod's container runs with ``development`` in the chart's values, run here."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SCRIPT = (Path(__file__).parents[2] / "charts" / "headwater" / "development.sh").read_text()
SERVICE = """
import pathlib, signal, sys
log = pathlib.Path(sys.argv[1])
def note(line):
    with log.open("a") as file:
        file.write(line + "\\n")
def end(*_):
    note("ended")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
if pathlib.Path(sys.argv[0] + ".broken").exists():
    note("broken")
    sys.exit(3)
note("started with " + sys.argv[2])
while True:
    signal.pause()
"""
TIMEOUT_S = 180.0
STARTED = "started with two words"


class Container:
    """A container with the script, and its log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "service.py").write_text(SERVICE)
        command = ["/bin/sh", "-c", SCRIPT, "development.sh", sys.executable, str(folder / "service.py")]
        environ = {**os.environ, "TMPDIR": str(folder)}
        self.process = subprocess.Popen([*command, str(folder / "log"), "two words"], env=environ)

    def log(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    def wait(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not holds():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    running = Container(tmp_path)
    try:
        yield running
    finally:
        running.process.terminate()
        running.process.wait(TIMEOUT_S)


def test_a_service_that_is_ended_starts_anew_with_its_arguments_and_a_broken_one_until_it_is_mended(
    container: Container,
) -> None:
    broken = container.folder / "service.py.broken"
    container.wait(lambda: container.log() == [STARTED])

    broken.touch()
    os.kill(int((container.folder / "service.pid").read_text()), signal.SIGTERM)

    container.wait(lambda: container.log()[:4] == [STARTED, "ended", "broken", "broken"])
    broken.unlink()
    container.wait(lambda: container.log()[-1] == STARTED)


def test_the_end_of_the_pod_waits_for_the_service(container: Container) -> None:
    container.wait(lambda: container.log() == [STARTED])

    container.process.terminate()

    assert container.process.wait(TIMEOUT_S) == 0
    assert container.log() == [STARTED, "ended"]
