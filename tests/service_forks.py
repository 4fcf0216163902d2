"""Services as processes that are forked from one interpreter, which loads each service's modules once.

An interpreter that loads a service's libraries takes one to two seconds of a processor, more than most services then work in a
test. A fork is a process like any other: it has settings, an environment, signals, a log and an exit code of its own, is
killed alone, and runs ``services/NAME/__main__.py`` from its first line.

``python -m tests.service_forks FD`` is the interpreter. It has one thread, so that its forks are whole. It ends with the
process that holds the other end of the socket, and the kernel ends its forks with it.
"""

import atexit
import contextlib
import ctypes
import functools
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from libs.failpoints import ENVIRONMENT_VARIABLE, armed
from libs.servers.process import ProcessSpec, Running, environment_of, last_words_of

_REPOSITORY: Final = Path(__file__).parents[1]
_PR_SET_PDEATHSIG: Final = 1
_READ_BYTES: Final = 65_536


class ForksAreOver(Exception):
    """The interpreter that forks has ended: its output, on standard error, says why."""


@dataclass(slots=True)
class Fork:
    """The part of ``subprocess.Popen`` that ``Running`` needs, for a process whose parent is another."""

    pid: int
    forks: "Forks"
    returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or minus the signal that ended it; None while it runs."""
        if self.returncode is None:
            self.returncode = self.forks.ended(self.pid)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """To the process alone."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        """The same, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it runs still.
        """
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline_s is not None and time.monotonic() >= deadline_s:
                raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0.0)
            self.forks.listen(0.2)
        return code


@dataclass(slots=True)
class Forks:
    """The interpreter, as this process sees it."""

    connection: socket.socket
    process: "subprocess.Popen[bytes]"
    lock: threading.Lock = field(default_factory=threading.Lock)
    codes: dict[int, int] = field(default_factory=dict)
    pids: list[int] = field(default_factory=list)
    """Of forks that were asked for, until the caller has taken them."""
    unread: bytes = b""

    def start(self, module: str, arguments: Sequence[str], environ: Mapping[str, str], log_path: Path) -> Fork:
        """Run ``python -m MODULE ARGUMENTS``; output is appended to ``log_path``."""
        wish = {"module": module, "arguments": arguments, "environ": dict(environ), "log": str(log_path)}
        with self.lock:
            self.connection.sendall(json.dumps(wish).encode() + b"\n")
            while not self.pids:
                self._read(None)
            return Fork(self.pids.pop(), self)

    def ended(self, pid: int) -> int | None:
        """The exit code of a fork; None while it runs."""
        with self.lock:
            self._read(0.0)
            return self.codes.get(pid)

    def listen(self, timeout_s: float) -> None:
        """Return when something has ended, or after the time."""
        select.select([self.connection], [], [], timeout_s)

    def _read(self, timeout_s: float | None) -> None:
        if not select.select([self.connection], [], [], timeout_s)[0]:
            return
        data = self.connection.recv(_READ_BYTES)
        if not data:
            raise ForksAreOver(f"exit code {self.process.wait()}")
        *lines, self.unread = (self.unread + data).split(b"\n")
        for told in map(json.loads, lines):
            if "code" in told:
                self.codes[told["pid"]] = told["code"]
            else:
                self.codes.pop(told["pid"], None)  # of a process of long ago
                self.pids.append(told["pid"])

    def end(self) -> None:
        """End the interpreter, and all that it forked."""
        self.connection.close()
        self.process.wait()


@functools.cache
def forks() -> Forks:
    """The interpreter of this test run; started when it is first asked for."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.service_forks", str(theirs.fileno())],
            cwd=_REPOSITORY,
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    started = Forks(ours, process)
    atexit.register(started.end)
    return started


def start_fork(spec: ProcessSpec, log_dir: Path) -> Running:
    """As ``libs.servers.process.start``, of a command that is ``python -m MODULE ARGUMENTS``."""
    _, option, module, *arguments = spec.command
    assert option == "-m", spec.command
    log_dir.mkdir(parents=True, exist_ok=True)
    log_path, last_words_path = log_dir / f"{spec.name}.log", last_words_of(spec, log_dir)
    last_words_path.unlink(missing_ok=True)
    fork: Any = forks().start(module, arguments, environment_of(spec, log_dir), log_path)
    return Running(spec, fork, log_path, last_words_path)


def _serve(connection: socket.socket) -> None:
    """Fork until the other end is closed; return in a fork once it is set up, for the service to run.

    ``SystemExit`` ends the interpreter itself.
    """
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    unread = b""
    while True:
        ready, _, _ = select.select([connection, woken], [], [])
        if woken in ready:
            os.read(woken, _READ_BYTES)
            _tell_ended(connection)
        if connection not in ready:
            continue
        data = connection.recv(_READ_BYTES)
        if not data:
            sys.exit(0)
        *lines, unread = (unread + data).split(b"\n")
        for wish in map(json.loads, lines):
            with contextlib.suppress(Exception):  # the fork meets it again, and says so in its log
                importlib.import_module(f"{wish['module']}.__main__")
            pid = os.fork()
            if pid == 0:
                connection.close()
                os.close(woken)
                os.close(wakes)
                _run(wish)
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)  # here too: a caller that has the pid may signal its group at once
            connection.sendall(json.dumps({"pid": pid}).encode() + b"\n")


def _tell_ended(connection: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
            pid, status = ended
            told = {"pid": pid, "code": os.waitstatus_to_exitcode(status)}
            connection.sendall(json.dumps(told).encode() + b"\n")


def _run(wish: Mapping[str, Any]) -> NoReturn:
    """In the fork: become ``python -m MODULE ARGUMENTS``."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(wish["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(wish["environ"])
    sys.argv = [wish["module"], *wish["arguments"]]
    sys.modules.pop(f"{wish['module']}.__main__", None)  # else runpy warns that its lines run a second time
    with armed(os.environ.get(ENVIRONMENT_VARIABLE, "")):
        runpy.run_module(wish["module"], run_name="__main__", alter_sys=True)
    sys.exit(0)


if __name__ == "__main__":
    import libs.telemetry.without_rich  # noqa: F401  # before anything loads structlog, as in a service

    _serve(socket.socket(fileno=int(sys.argv[1])))
