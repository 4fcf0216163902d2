"""Workers of pytest-xdist that are forks of the run's own process, which imports all tests once.

Tests and the code that they test take ten CPU seconds to import, and thirty in a fresh clone, in each worker again. Here the
controller imports them and has as many forks as there are to be workers, and execnet speaks to these instead of interpreters of
its own. A worker that is started later, in place of one that crashed, is an interpreter as usual.

All that is imported stays until the end. Python's collector would go through it again and again, for a third of a collection's
CPU, and at each full run of it later; and it would write to pages that all workers share.

Hypothesis looks for constants in the source of each module of ours before its first example: 6 CPU s, which also the controller
spends once for all.
"""

import atexit
import contextlib
import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

import execnet
import pytest
from execnet import gateway_io
from execnet.gateway_base import Popen2IO
from hypothesis import Phase, given, settings
from hypothesis.strategies import integers, lists

TESTS: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Fork:
    """A worker that waits for its first line."""

    pid: int
    reads: int
    """Descriptor of its output."""
    writes: int


class ForkIO(Popen2IO):
    """A process as execnet uses it."""

    def __init__(self, fork: Fork, execmodel: Any) -> None:
        self._pid = fork.pid
        super().__init__(os.fdopen(fork.writes, "wb"), os.fdopen(fork.reads, "rb"), execmodel=execmodel)

    def wait(self) -> int | None:
        """The exit code, once it has ended; None: somebody else has asked before."""
        with contextlib.suppress(ChildProcessError):
            return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return None

    def kill(self) -> None:
        """As ``subprocess.Popen.kill``."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


@pytest.hookimpl
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[execnet.XSpec]) -> None:
    """Before there is a worker, and before this process has a second thread."""
    if not any(Path(each).resolve() == TESTS for each in config.args):
        return
    gc.disable()
    _import_tests()
    try_a_property()
    gc.freeze()
    hand_out(forked(len(specs)))
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """A worker's items stay too."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_tests() -> None:
    for path in sorted(TESTS.rglob("test_*.py")):
        # One that cannot be imported is imported again, and reported, when it is collected.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


def try_a_property() -> None:
    """Hypothesis reads the modules that it has not read yet. It does so for one drawn value in twenty, so here are 400."""

    @settings(max_examples=2, database=None, derandomize=True, phases=[Phase.generate])
    @given(lists(integers(), min_size=400, max_size=400))
    def tried(_: list[int]) -> None:
        """Holds."""

    tried()


def hand_out(forks: list[Fork]) -> None:
    """Have execnet speak to these first, and start interpreters once they are used up."""
    starts = gateway_io.create_io

    def create_io(spec: execnet.XSpec, execmodel: Any) -> Any:
        return ForkIO(forks.pop(0), execmodel) if forks and spec.popen else starts(spec, execmodel)

    gateway_io.create_io = create_io


def forked(count: int) -> list[Fork]:
    """All before execnet starts a thread for the first of them."""
    forks: list[Fork] = []
    for _ in range(count):
        (reads, its_writes), (its_reads, writes) = os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            for each in forks:  # else the end of this process would not be the end of their input
                os.close(each.reads)
                os.close(each.writes)
            os.close(reads)
            os.close(writes)
            _serve(its_reads, its_writes)
        os.close(its_reads)
        os.close(its_writes)
        forks.append(Fork(pid, reads, writes))
    return forks


def _serve(reads: int, writes: int) -> NoReturn:
    """In the fork: become the interpreter that execnet would have started, which carries out the line that it is sent."""
    code = 1
    try:
        os.dup2(reads, 0)
        os.dup2(writes, 1)
        os.close(reads)
        os.close(writes)
        sys.stdin, sys.stdout = os.fdopen(0, "r", closefd=False), os.fdopen(1, "w", closefd=False)
        sys.argv = ["-c"]
        main = sys.modules["__main__"] = ModuleType("__main__")  # a process of multiprocessing's would import pytest's
        exec(eval(sys.stdin.readline()), vars(main))  # as execnet's own first line has it
        code = 0
    finally:
        # Never back into the controller's frames: its pytest goes on in the other process.
        atexit._run_exitfuncs()
        os._exit(code)
