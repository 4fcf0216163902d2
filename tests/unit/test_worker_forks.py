"""Forks that stand in for the interpreters of pytest-xdist's workers."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import internal

from libs import errors
from tests.worker_forks import try_a_property

PROGRAM = """
import execnet
from tests.worker_forks import forked, hand_out

forks = forked(2)
pids = [fork.pid for fork in forks]
hand_out(forks)
group = execnet.Group(execmodel="main_thread_only")
for pid in [*pids, None]:
    gateway = group.makegateway("popen")
    channel = gateway.remote_exec("import os, sys; channel.send((os.getpid(), 'tests.worker_forks' in sys.modules))")
    its_pid, is_fork = channel.receive()
    print(its_pid == pid, is_fork)
group.terminate(60)
"""


def test_each_fork_carries_out_what_it_is_sent_and_ends() -> None:
    """It has the modules of the process that it was forked from; the next worker is an interpreter."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (ran.stdout.splitlines(), ran.returncode) == (["True True", "True True", "False False"], 0), ran.stderr


def test_a_module_is_read_by_hypothesis_in_the_process_that_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once; no later example reads it."""
    module = ModuleType("read_once")
    module.__file__ = errors.__file__
    read: list[str] = []
    providers: Any = internal.conjecture.providers
    reads = providers.constants_from_module

    def note(of: ModuleType, **options: Any) -> Any:
        read.append(of.__name__)
        return reads(of, **options)

    monkeypatch.setitem(sys.modules, "read_once", module)
    monkeypatch.setattr(providers, "constants_from_module", note)
    try_a_property()
    assert read.count("read_once") == 1
    try_a_property()

    assert read.count("read_once") == 1
