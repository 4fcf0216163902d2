"""The holder of a home, and the state that its supervisor writes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from libs.mesh.home import home_at
from libs.mesh.state import (
    AlreadyUp,
    NotUp,
    ServicePhase,
    ServiceState,
    StackPhase,
    StackState,
    hold,
    holder,
    leftovers,
    read_state,
    running_state,
    write_state,
)
from libs.stack.lifecycle import sweep

STATE = StackState(
    supervisor_pid=1,
    phase=StackPhase.UP,
    started_at_s=12.5,
    services=(ServiceState(name="kafka", phase=ServicePhase.UP, pid=7, process_created_s=3.25),),
)


def test_state_reads_back_as_it_was_written(tmp_path: Path) -> None:
    """One JSON file, replaced as a whole."""
    home = home_at(tmp_path)

    write_state(home, STATE)

    assert read_state(home) == STATE
    assert [path.name for path in home.run_dir.iterdir()] == ["state.json"]


def test_a_damaged_state_file_counts_as_none(tmp_path: Path) -> None:
    """`up` starts over where an editor or a full disk spoilt the file."""
    home = home_at(tmp_path)
    home.run_dir.mkdir()
    home.state_file.write_text('{"supervisor_pid": 1, "phase": "u')

    assert read_state(home) is None


def test_a_home_is_held_by_one(tmp_path: Path) -> None:
    """A second supervisor is refused with the first one's pid."""
    home = home_at(tmp_path)

    with hold(home):
        assert holder(home) == os.getpid()
        with pytest.raises(AlreadyUp, match=rf"{os.getpid()}.*headwater down"), hold(home):
            pass

    assert holder(home) is None


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    """The kernel drops the lock of a process that kill -9 ended: no stale lock to delete by hand."""
    home = home_at(tmp_path)
    program = (
        "import sys, time, pathlib\nfrom libs.mesh.home import home_at\nfrom libs.mesh.state import hold\n"
        "with hold(home_at(pathlib.Path(sys.argv[1]))):\n    print('held', flush=True)\n    time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout:
        child.stdout.readline()
    held_by = holder(home)
    child.send_signal(signal.SIGKILL)
    child.wait(60)

    assert held_by == child.pid
    assert holder(home) is None


def test_a_stale_state_is_not_a_running_stack(tmp_path: Path) -> None:
    """The file of a killed supervisor says "up"; the lock says that nobody is."""
    home = home_at(tmp_path)
    write_state(home, STATE)

    with pytest.raises(NotUp, match="headwater up"):
        running_state(home)


def test_what_a_killed_stack_left_is_swept(tmp_path: Path) -> None:
    """The group of a recorded pid dies, its members included; nothing else does."""
    program = "import subprocess, time\nsubprocess.Popen(['sleep', '60'])\ntime.sleep(60)"
    left = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    deadline_s = time.monotonic() + 20
    while not psutil.Process(left.pid).children() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    recorded = ServiceState(name="x", pid=left.pid, process_created_s=psutil.Process(left.pid).create_time())

    swept = sweep(StackState(supervisor_pid=1, phase=StackPhase.UP, started_at_s=0, services=(recorded,)))
    left.wait(60)
    bystander_lived = bystander.poll() is None
    bystander.kill()
    bystander.wait(60)

    assert swept == 2
    assert bystander_lived


def test_a_reused_pid_is_left_alone() -> None:
    """A process counts as left behind only with the start time that was recorded."""
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    recorded = ServiceState(name="x", pid=other.pid, process_created_s=psutil.Process(other.pid).create_time() - 100)

    found = leftovers(StackState(supervisor_pid=1, phase=StackPhase.UP, started_at_s=0, services=(recorded,)))
    other.kill()
    other.wait(60)

    assert found == ()
