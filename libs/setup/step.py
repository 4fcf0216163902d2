"""One step of set-up, how it fails, and how it runs other programs. Standard library only."""

import contextlib
import errno
import fnmatch
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from libs.errors import HeadwaterError
from libs.setup.installation import SETUP_COMMAND

LONGEST_LINE = 400
DISK_REMEDY = f"free 5 GB, or name a roomier folder in HEADWATER_CACHE, and run `{SETUP_COMMAND}` again"
NOTHING_ELSE: Mapping[str, str] = {}


class SetupFailed(HeadwaterError):
    """A step failed: the cause and the remedy, in a line each."""

    def __init__(self, fault: str, remedy: str) -> None:
        self.fault = fault
        self.remedy = remedy
        super().__init__(f"{fault}; {remedy}")


@dataclass(slots=True)
class Progress:
    """How far a running step is; the step writes it, the display reads it."""

    doing: str = "waiting"
    done_bytes: Callable[[], int] | None = None
    total_bytes: int | None = None

    def now(self, doing: str, *, done_bytes: Callable[[], int] | None = None, total_bytes: int | None = None) -> None:
        """Report the step's present work, and how much of it is done where that can be measured."""
        self.doing, self.done_bytes, self.total_bytes = doing, done_bytes, total_bytes


@dataclass(frozen=True, slots=True)
class Step:
    """Something that set-up puts in place."""

    name: str
    is_done: Callable[[], bool]
    """Cheap (all steps together are asked in well under a second), and true only for a whole result."""
    do: Callable[[Progress], None]
    after: tuple[str, ...] = ()
    """Names of the steps whose results it uses."""


@dataclass(slots=True)
class _Children:
    """Programs that run for us now, so that an interrupt can end them."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    running: "set[subprocess.Popen[str]]" = field(default_factory=set)
    stopped: bool = False


_children = _Children()


def run(
    command: Sequence[str | Path],
    *,
    purpose: str,
    remedy: str,
    timeout_s: float,
    environ: Mapping[str, str] = NOTHING_ELSE,
    cwd: Path | None = None,
    on_line: Callable[[str], None] = lambda _: None,
) -> str:
    """Run a program and return its output; ``on_line`` gets each line as it comes. Blocks.

    Raises:
        SetupFailed: it does not exist, failed or took longer than ``timeout_s``.
    """
    if shutil.which(command[0]) is None:
        raise SetupFailed(f"{purpose}: {command[0]} is missing", remedy)
    child = _start(command, environ, cwd)
    too_long = threading.Event()

    def give_up() -> None:
        too_long.set()
        _end(child, signal.SIGKILL)

    timer = threading.Timer(timeout_s, give_up)
    timer.start()
    try:
        output = "".join(_lines(child, on_line))
        child.wait()
    finally:
        timer.cancel()
        with _children.lock:
            _children.running.discard(child)
    if too_long.is_set():
        raise SetupFailed(f"{purpose} took longer than {timeout_s:.0f} s", remedy)
    if child.returncode != 0 and os.strerror(errno.ENOSPC) in output:
        raise SetupFailed(f"{purpose}: the disk is full", DISK_REMEDY)
    if child.returncode != 0:
        raise SetupFailed(f"{purpose}: {error_line(output) or f'exit code {child.returncode}'}", remedy)
    return output


def _lines(child: "subprocess.Popen[str]", on_line: Callable[[str], None]) -> Iterator[str]:
    assert child.stdout is not None
    with child.stdout as stream:
        for line in stream:
            on_line(line.strip())
            yield line


def _start(command: Sequence[str | Path], environ: Mapping[str, str], cwd: Path | None) -> "subprocess.Popen[str]":
    with _children.lock:
        if _children.stopped:
            raise SetupFailed("interrupted", f"run `{SETUP_COMMAND}` again")
        child = subprocess.Popen(
            [*_ends_with_us(), *(str(word) for word in command)],
            cwd=cwd,
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        _children.running.add(child)
    return child


def _ends_with_us() -> tuple[str, ...]:
    """Kill -9 of set-up should not leave a download that writes to folders which the next run cleans."""
    setpriv = shutil.which("setpriv")  # util-linux; elsewhere such a download ends by itself
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()


def stop_children() -> None:
    """End every program that ``run`` runs now; no further one starts."""
    with _children.lock:
        _children.stopped = True
        for child in _children.running:
            _end(child, signal.SIGTERM)


def _end(child: "subprocess.Popen[str]", number: signal.Signals) -> None:
    """With its own children, which would keep its output open."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def error_line(output: str) -> str:
    """The line of a failed program's output that names the fault: the first that calls itself an error, else the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "error:", "[ERROR]", "ERROR:", "×"))]
    worst = (errors or lines[-1:] or [""])[0]
    follows = lines[lines.index(worst) + 1 :][:1] if worst else []
    if follows and (worst.endswith(":") or follows[0].startswith("Caused by:")):
        worst = f"{worst} {follows[0]}"
    return worst if len(worst) <= LONGEST_LINE else f"{worst[:LONGEST_LINE]}…"


def folder_bytes(folder: Path, pattern: str = "*") -> int:
    """Size of the files in ``folder`` and below whose name fits ``pattern``; files that go away meanwhile count for nothing."""
    total = 0
    # Not Path.rglob: it raises where a folder goes away between its being found and its being read.
    for within, _, names in os.walk(folder):
        for path in (Path(within, name) for name in fnmatch.filter(names, pattern)):
            with contextlib.suppress(OSError):
                total += 0 if path.is_symlink() else path.stat().st_size
    return total
