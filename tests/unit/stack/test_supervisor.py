"""The supervisor, with small real processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from libs.mesh.home import Home, home_at
from libs.mesh.state import ServicePhase, StackPhase, StackState, read_state
from libs.servers.process import ProcessSpec
from libs.stack.restart import RestartPolicy
from libs.stack.supervisor import StackEvent, Supervised, bound_log, supervise

QUICK = RestartPolicy(first_delay_s=0.05, longest_delay_s=0.2, halted_delay_s=30.0)
WAIT_S = 30.0

SERVE = "import pathlib, time\npathlib.Path('ready').touch()\ntime.sleep(120)"


def program(folder: Path, name: str, code: str, *, stage: int = 0, is_ready: bool = True) -> Supervised:
    """A Python program as a supervised process; ready once its file ``ready`` exists."""
    working_dir = folder / "work" / name
    return Supervised(
        spec=ProcessSpec(
            name=name,
            command=(sys.executable, "-c", code),
            environ={},
            working_dir=working_dir,
            ready=(working_dir / "ready").exists if is_ready else None,
        ),
        stage=stage,
        ready_timeout_s=WAIT_S,
        stop_timeout_s=5.0,
    )


class Run:
    """A supervisor in this test's event loop."""

    def __init__(self, home: Home, *planned: Supervised) -> None:
        self.home = home
        self.stop = asyncio.Event()
        self.events: list[StackEvent] = []
        self.task = asyncio.create_task(
            supervise(home, planned, stop=self.stop, policy=QUICK, on_event=self.events.append)
        )

    async def until(self, reached: Callable[[StackState], bool]) -> StackState:
        """Wait for a state."""
        deadline_s = time.monotonic() + WAIT_S
        while time.monotonic() < deadline_s:
            state = read_state(self.home)
            if state is not None and reached(state):
                return state
            if self.task.done():
                self.task.result()
            await asyncio.sleep(0.02)
        raise AssertionError(f"not reached in time: {read_state(self.home)}")

    async def end(self) -> StackState:
        """Stop it and wait."""
        self.stop.set()
        await asyncio.wait_for(self.task, WAIT_S)
        state = read_state(self.home)
        assert state is not None
        return state


def is_up(state: StackState) -> bool:
    return state.phase is StackPhase.UP


async def test_stages_start_in_order_and_stop_in_reverse(tmp_path: Path) -> None:
    """A later stage starts when the earlier one serves, and has ended before the earlier one is asked to."""
    run = Run(home_at(tmp_path), program(tmp_path, "late", SERVE, stage=1), program(tmp_path, "early", SERVE, stage=0))
    await run.until(is_up)
    state = await run.end()

    seen = [(event.service, event.phase) for event in run.events]
    assert seen.index(("early", ServicePhase.UP)) < seen.index(("late", ServicePhase.STARTING))
    assert seen.index(("late", ServicePhase.STOPPED)) < seen.index(("early", ServicePhase.STOPPED))
    assert [service.phase for service in state.services] == [ServicePhase.STOPPED] * 2


async def test_a_killed_process_is_restarted(tmp_path: Path) -> None:
    """kill -9 brings a new process, one more restart, and the old one's children are gone."""
    with_child = "import subprocess\nsubprocess.Popen(['sleep', '120'])\n" + SERVE
    run = Run(home_at(tmp_path), program(tmp_path, "one", with_child))
    first = (await run.until(is_up)).service("one").pid
    assert first is not None
    child = psutil.Process(first).children()[0]
    os.kill(first, signal.SIGKILL)
    state = await run.until(lambda s: s.service("one").phase is ServicePhase.UP and s.service("one").restarts == 1)
    _, alive = psutil.wait_procs([child], timeout=60)
    await run.end()

    assert state.service("one").pid not in (None, first)
    assert alive == []


async def test_refused_settings_are_shown_and_not_tried_again(tmp_path: Path) -> None:
    """Exit code 2 leaves the process down, says why, and keeps nothing else from coming up."""
    run = Run(
        home_at(tmp_path),
        program(tmp_path, "wrong", "raise SystemExit(2)", stage=0),
        program(tmp_path, "right", SERVE, stage=1),
    )
    state = await run.until(is_up)
    await run.end()

    assert state.service("wrong").phase is ServicePhase.FAILED
    assert state.service("wrong").restarts == 0
    assert "wrong.log" in state.service("wrong").detail
    assert state.service("right").phase is ServicePhase.UP


async def test_a_halted_process_holds_nobody_up(tmp_path: Path) -> None:
    """Exit code 3 waits for a human: the stack comes up without it."""
    run = Run(
        home_at(tmp_path),
        program(tmp_path, "halted", "raise SystemExit(3)", stage=0),
        program(tmp_path, "next", SERVE, stage=1),
    )
    state = await run.until(is_up)
    await run.end()

    assert state.service("halted").phase is ServicePhase.BACKING_OFF
    assert "human" in state.service("halted").detail


async def test_a_missing_program_is_told(tmp_path: Path) -> None:
    """The state names the fault and the remedy."""
    missing = Supervised(spec=ProcessSpec("absent", (str(tmp_path / "no-such-program"),), {}, tmp_path, None), stage=0)
    run = Run(home_at(tmp_path), missing)
    state = await run.until(lambda s: s.service("absent").phase is ServicePhase.BACKING_OFF)
    await run.end()

    assert "make setup" in state.service("absent").detail


async def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """The stop ends after stop_timeout_s, even where the process does not answer it."""
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVE
    planned = program(tmp_path, "deaf", deaf)
    run = Run(home_at(tmp_path), Supervised(spec=planned.spec, stage=0, stop_timeout_s=0.5))
    pid = (await run.until(is_up)).service("deaf").pid
    await run.end()

    assert pid is not None
    assert not psutil.pid_exists(pid)


async def test_an_unhealthy_process_is_killed_and_restarted(tmp_path: Path) -> None:
    """A process that lives but answers its health check with a failure is as good as dead."""
    code = (
        "import http.server, sys, pathlib\n"
        "class Sick(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self): self.send_response(503); self.end_headers()\n"
        "server = http.server.HTTPServer(('127.0.0.1', 0), Sick)\n"
        "pathlib.Path('port').write_text(str(server.server_port))\n"
        "pathlib.Path('ready').touch()\nserver.serve_forever()\n"
    )
    port_file = tmp_path / "port"
    probe = Run(home_at(tmp_path / "probe"), program(tmp_path, "probe", code))
    await probe.until(is_up)
    port_file = tmp_path / "work" / "probe" / "port"
    planned = program(tmp_path, "sick", SERVE)
    run = Run(
        home_at(tmp_path),
        Supervised(
            spec=planned.spec,
            stage=0,
            health_url=f"http://127.0.0.1:{port_file.read_text()}/healthz",
            unhealthy_after_s=0.2,
            stop_timeout_s=5.0,
        ),
    )
    await run.until(lambda s: s.service("sick").restarts >= 1)
    await run.end()
    await probe.end()

    assert any("no progress" in event.detail for event in run.events)


def test_children_die_with_a_killed_supervisor(tmp_path: Path) -> None:
    """kill -9 of the supervisor leaves no process running."""
    code = (
        "import asyncio, sys, pathlib\n"
        "from libs.mesh.home import home_at\nfrom libs.servers.process import ProcessSpec\n"
        "from libs.stack.restart import RestartPolicy\nfrom libs.stack.supervisor import Supervised, supervise\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "spec = ProcessSpec('child', ('sleep', '120'), {}, root, None)\n"
        "asyncio.run(supervise(home_at(root), [Supervised(spec=spec, stage=0)], stop=asyncio.Event(),\n"
        "    policy=RestartPolicy(), on_event=lambda event: None))\n"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    deadline_s = time.monotonic() + WAIT_S
    pid = None
    while pid is None and time.monotonic() < deadline_s:
        state = read_state(home_at(tmp_path))
        pid = state.service("child").pid if state is not None and is_up(state) else None
        time.sleep(0.05)
    assert pid is not None
    child = psutil.Process(pid)
    supervisor.kill()
    supervisor.wait(60)
    _, alive = psutil.wait_procs([child], timeout=60)

    assert alive == []


@pytest.mark.parametrize(("size", "is_moved"), [(10, False), (11, True)])
def test_a_log_beyond_its_limit_moves_aside(tmp_path: Path, size: int, is_moved: bool) -> None:
    """A process keeps two files of at most the limit; its writer goes on in the first."""
    path = tmp_path / "x.log"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"." * size)
        moved = bound_log(path, 10)
        writer.write(b"next")

    assert moved is is_moved
    assert path.read_bytes() == (b"next" if is_moved else b"." * size + b"next")


async def test_a_process_that_ended_has_its_last_words_in_the_state(tmp_path: Path) -> None:
    """A service's lines as it halted, beside the exit code: nobody has to look for them in a log."""
    home = home_at(tmp_path)
    code = "import os, pathlib, sys; pathlib.Path(os.environ['HEADWATER_TERMINATION_LOG']).write_text('no grant'); sys.exit(3)"
    run = Run(home, program(tmp_path, "reader", code, is_ready=False))

    state = await run.until(lambda found: found.service("reader").phase is ServicePhase.BACKING_OFF)
    await run.end()

    service = state.service("reader")
    assert service.last_end == "halted: a human is needed (exit code 3): no grant"
    assert "no grant" in service.detail
    assert service.last_end_us > 0
