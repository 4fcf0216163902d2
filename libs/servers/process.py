"""A server as a process of its own: described by a record, started, waited for, stopped.

The servers' modules (``kafka_broker``, ``mysql_server``, ``valkey_server``) return a ``ProcessSpec``; the
embedded stack's supervisor and the test fixtures run it with the three functions below. Each process leads a
process group of its own, so a Ctrl-C at the terminal reaches only its starter, and a stop reaches the
process's children too.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from libs.errors import ServiceUnavailable
from libs.setup.installation import SETUP_COMMAND
from libs.telemetry import last_words, outliving_faults

PROBE_PAUSE_S = 0.1
LAST_LOG_LINES = 15
KILL_TIMEOUT_S = 10.0  # how long the kernel may take to reap a killed group


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """The start of one process, and the check that it serves."""

    name: str
    """Also the name of its log file."""
    command: tuple[str, ...]
    environ: Mapping[str, str]
    """Added to the starter's own environment."""
    working_dir: Path
    """Created when missing."""
    ready: Callable[[], bool] | None
    """Asks the server itself through a real client (a port may be another's) and answers within a few
    seconds; never raises. None: the process counts as ready as soon as it runs."""


@dataclass(frozen=True, slots=True)
class Running:
    """A process that was started."""

    spec: ProcessSpec
    popen: "subprocess.Popen[bytes]"
    log_path: Path
    last_words_path: Path
    """What the process wrote of its end (``libs.telemetry.last_words``); absent as a rule."""

    @property
    def pid(self) -> int:
        """Its process id, which is its process group's too."""
        return self.popen.pid


def start(spec: ProcessSpec, log_dir: Path, *, dies_with_parent: bool = False) -> Running:
    """Start ``spec``; output is appended to ``<log_dir>/<name>.log``. Does not wait until it serves.

    With ``dies_with_parent`` the kernel kills the process when the thread that called this ends, also by
    kill -9 (prctl(2), PR_SET_PDEATHSIG; util-linux's ``setpriv``, else without effect): call it from a
    thread that lives as long as the process should.

    Raises:
        ServiceUnavailable: the program does not exist or may not be run.
    """
    spec.working_dir.mkdir(parents=True, exist_ok=True)
    log_dir.mkdir(parents=True, exist_ok=True)
    log_path, last_words_path = log_dir / f"{spec.name}.log", last_words_of(spec, log_dir)
    last_words_path.unlink(missing_ok=True)
    command = list(spec.command)
    if dies_with_parent and (setpriv := shutil.which("setpriv")):
        command = [setpriv, "--pdeathsig", "KILL", "--", *command]
    with log_path.open("ab") as log_file:
        try:
            popen = subprocess.Popen(
                command,
                cwd=spec.working_dir,
                env=environment_of(spec, log_dir),
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ServiceUnavailable(f"{spec.name} could not be started: {error}; run `{SETUP_COMMAND}`") from error
    return Running(spec, popen, log_path, last_words_path)


def environment_of(spec: ProcessSpec, log_dir: Path) -> dict[str, str]:
    """The environment of a process: this one's, the files that it leaves for its supervisor and its successor, and its own."""
    files = {
        last_words.VARIABLE: str(last_words_of(spec, log_dir)),
        outliving_faults.VARIABLE: str(log_dir / f"{spec.name}{outliving_faults.SUFFIX}"),
    }
    return {**os.environ, **files, **spec.environ}


def last_words_of(spec: ProcessSpec, log_dir: Path) -> Path:
    """See ``Running.last_words_path``."""
    return log_dir / f"{spec.name}.last-words"


def wait_ready(running: Running, timeout_s: float) -> None:
    """Return when the process serves. Blocks, at most ``timeout_s``; the process keeps running on a timeout.

    Raises:
        ServiceUnavailable: it ended, or did not serve in time; the message has the last lines of its log.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        exit_code = running.popen.poll()
        if exit_code is not None:
            raise ServiceUnavailable(f"{running.spec.name} ended with {exit_code}\n{last_log_lines(running)}")
        if running.spec.ready is None or (running.spec.ready() and is_alive(running)):
            return
        if time.monotonic() >= deadline:
            raise ServiceUnavailable(
                f"{running.spec.name} did not serve within {timeout_s:.0f} s\n{last_log_lines(running)}"
            )
        time.sleep(PROBE_PAUSE_S)


def stop(running: Running, timeout_s: float) -> int:
    """End the process and its children: SIGTERM, and SIGKILL to those that are left after ``timeout_s``.

    Idempotent; returns the exit code (negative: the signal that ended it).
    """
    if running.popen.poll() is None:
        _signal_group(running, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.popen.wait(timeout_s)
    # The leader may be gone while children of its group live on.
    _signal_group(running, signal.SIGKILL)
    return running.popen.wait(KILL_TIMEOUT_S)


def kill(running: Running) -> None:
    """End the process and its children as a power cut would, and reap it."""
    _signal_group(running, signal.SIGKILL)
    running.popen.wait(KILL_TIMEOUT_S)


def is_alive(running: Running) -> bool:
    """Whether the process runs (it may not serve)."""
    return running.popen.poll() is None


def last_log_lines(running: Running, count: int = LAST_LOG_LINES) -> str:
    """The end of the process's log, indented, with the log's path first."""
    try:
        lines = running.log_path.read_text(errors="replace").splitlines()[-count:]
    except OSError:
        lines = []
    return "\n".join([f"  {running.log_path}:", *(f"    {line}" for line in lines or ["(empty)"])])


def last_lines(path: Path, count: int = 12) -> str:
    """The end of a log, indented, its path first."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 16_384))
            lines = file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        lines = []
    return "\n".join([f"  {path}:", *(f"    {line[:400]}" for line in lines or ["(empty)"])])


def _signal_group(running: Running, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(running.popen.pid, number)
