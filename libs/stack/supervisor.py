"""Runs the stack's processes: starts them in order, restarts ended ones, stops them in reverse.

``libs.stack.lifecycle`` plans the processes and calls ``supervise``, which returns when the stack has stopped. Each
process is watched by a task of its own:

    start ▶ wait until ready ▶ watch (ended? unhealthy?) ▶ judge_exit ▶ back off ▶ start …

No process outlives the supervisor: each is started with a parent-death signal (SIGKILL) by the main thread, so even
kill -9 of the supervisor ends them; grandchildren (Spark's JVM) notice that their parent's pipe closed, and remaining ones
are swept at the next start (``state.leftovers``). All that a process leaves behind in its group is killed before it is
started again, so that a zombie half never works beside its successor.
"""

import asyncio
import contextlib
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import psutil

from libs.errors import ServiceUnavailable
from libs.mesh.home import Home
from libs.mesh.state import ServicePhase, ServiceState, StackPhase, StackState, write_state
from libs.servers import process
from libs.servers.process import ProcessSpec, Running
from libs.stack.restart import EXIT_HALTED, LeaveStopped, RestartAfter, RestartPolicy, describe_exit, judge_exit
from libs.telemetry import outliving_faults
from libs.telemetry.last_words import read_last_words

WATCH_PAUSE_S: Final = 0.1
HEALTH_PAUSE_S: Final = 2.0
HEALTH_TIMEOUT_S: Final = 2.0
LOG_CHECK_PAUSE_S: Final = 10.0
LOG_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""A log that grew so far is moved to ``.1``: two files of it are the most that a process keeps."""


@dataclass(frozen=True, slots=True)
class Supervised:
    """One process, and how it is watched."""

    spec: ProcessSpec
    stage: int
    """Processes of one stage start together, once every process of the stages before is ready."""
    blocks_next_stage: bool = True
    """Whether the next stage waits for it: a slow process that nobody needs should not be waited for."""
    ready_timeout_s: float = 60.0
    """The next stage stops waiting then; the process itself is given more time, and stays watched."""
    stop_timeout_s: float = 15.0
    """Between SIGTERM and SIGKILL; services drain within 10 s."""
    health_url: str | None = None
    """Answers 200 while progress is made."""
    unhealthy_after_s: float = 30.0
    """Not healthy for so long: killed and started again."""
    http_port: int | None = None
    grpc_port: int | None = None


@dataclass(frozen=True, slots=True)
class StackEvent:
    """An event, for the display."""

    service: str
    phase: ServicePhase
    detail: str


@dataclass(slots=True)
class _Member:
    supervised: Supervised
    state: ServiceState
    running: Running | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Ready once, or given up: the next stage does not wait for it."""

    @property
    def name(self) -> str:
        return self.supervised.spec.name


@dataclass(slots=True)
class _Stack:
    home: Home
    members: list[_Member]
    policy: RestartPolicy
    on_event: Callable[[StackEvent], None]
    on_phase: Callable[[StackPhase], None]
    started_at_s: float
    phase: StackPhase = StackPhase.STARTING


async def supervise(
    home: Home,
    planned: Sequence[Supervised],
    *,
    stop: asyncio.Event,
    policy: RestartPolicy,
    on_event: Callable[[StackEvent], None],
    on_phase: Callable[[StackPhase], None] = lambda _: None,
) -> None:
    """Run ``planned`` until ``stop`` is set; every process has ended when this returns or raises.

    A process that cannot be started or kept up does not end the others: its state says why. Call it from the main
    thread, whose end the kernel takes for the supervisor's.
    """
    members = [_Member(item, _first_state(item)) for item in planned]
    stack = _Stack(home, members, policy, on_event, on_phase, time.time())
    _forget_faults(home)
    _set_phase(stack, StackPhase.STARTING)
    watchers: list[asyncio.Task[None]] = []
    logs = asyncio.create_task(_bound_logs(home))
    try:
        bring_up = asyncio.create_task(_bring_up(stack, watchers))
        stopped = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait({bring_up, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if bring_up in done:
            bring_up.result()
            await _until_first_ends(stopped, watchers)
        else:
            await _cancel([bring_up])
        stopped.cancel()
    finally:
        _set_phase(stack, StackPhase.STOPPING)
        await _cancel([logs, *watchers])
        await _stop_all(stack)
        _set_phase(stack, StackPhase.STOPPED)


def _forget_faults(home: Home) -> None:
    """Faults of the stack before ended with it; those of its processes outlive their restarts alone."""
    for file in home.logs_dir.glob(f"*{outliving_faults.SUFFIX}"):
        file.unlink(missing_ok=True)


async def _bring_up(stack: _Stack, watchers: list[asyncio.Task[None]]) -> None:
    for stage in sorted({member.supervised.stage for member in stack.members}):
        current = [member for member in stack.members if member.supervised.stage == stage]
        watchers.extend(asyncio.create_task(_keep_running(stack, member)) for member in current)
        await _until_settled(member for member in current if member.supervised.blocks_next_stage)
    await _until_settled(stack.members)
    _set_phase(stack, StackPhase.UP)


async def _until_settled(members: Iterable[_Member]) -> None:
    for member in members:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(member.supervised.ready_timeout_s):
                await member.settled.wait()


async def _until_first_ends(stopped: "asyncio.Task[bool]", watchers: Sequence["asyncio.Task[None]"]) -> None:
    """Wait for ``stopped``; a watcher that ends early ends the wait only by raising (a fault of the supervisor)."""
    pending: set[asyncio.Task[None] | asyncio.Task[bool]] = {stopped, *watchers}
    while stopped in pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


async def _keep_running(stack: _Stack, member: _Member) -> None:
    crashes_in_row = 0
    while True:
        started_s = time.monotonic()
        exit_code, reason = await _run_once(stack, member)
        decision = judge_exit(
            exit_code,
            ran_for_s=time.monotonic() - started_s,
            crashes_in_row=crashes_in_row,
            policy=stack.policy,
        )
        match decision:
            case LeaveStopped(why):
                _become(stack, member, ServicePhase.FAILED, detail=f"{why}: {reason}; see {_log(stack, member)}")
                member.settled.set()
                return
            case RestartAfter(delay_s, crashes):
                crashes_in_row = crashes
                if exit_code == EXIT_HALTED:
                    member.settled.set()  # a human is needed: waiting for it to serve is vain
                _become(stack, member, ServicePhase.BACKING_OFF, detail=f"{reason}; next start in {delay_s:g} s")
                await asyncio.sleep(delay_s)
                member.state = msgspec.structs.replace(member.state, restarts=member.state.restarts + 1)


async def _run_once(stack: _Stack, member: _Member) -> tuple[int, str]:
    """Start the process and watch it to its end. Returns its exit code, and in words why it ended."""
    try:
        # In this thread on purpose: the parent-death signal follows the thread that started the process.
        member.running = process.start(member.supervised.spec, stack.home.logs_dir, dies_with_parent=True)
    except ServiceUnavailable as error:
        member.running = None
        return 1, str(error)
    pid = member.running.pid
    member.state = msgspec.structs.replace(member.state, pid=pid, process_created_s=_created_s(pid))
    _become(stack, member, ServicePhase.STARTING)
    last_words_path = member.running.last_words_path
    reason = await _watch(stack, member, member.running)
    exit_code = member.running.popen.poll()
    # The leader has ended, or must: nothing of its group works on beside its successor.
    _kill_group(pid)
    if exit_code is None:
        exit_code = await asyncio.to_thread(member.running.popen.wait, process.KILL_TIMEOUT_S)
    member.running = None
    member.state = msgspec.structs.replace(member.state, pid=None, process_created_s=None)
    words = read_last_words(last_words_path)
    reason = ": ".join(part for part in (reason or describe_exit(exit_code), words) if part)
    member.state = msgspec.structs.replace(member.state, last_end=reason, last_end_us=time.time_ns() // 1_000)
    return exit_code, reason


async def _watch(stack: _Stack, member: _Member, running: Running) -> str:
    """Return when the process has ended ("") or must be ended (why)."""
    ready = asyncio.create_task(_until_ready(running))
    healthy_s = time.monotonic()
    next_look_s = healthy_s
    try:
        while running.popen.poll() is None:
            now_s = time.monotonic()
            if ready.done() and member.state.phase is ServicePhase.STARTING:
                ready.result()
                _become(stack, member, ServicePhase.UP)
                member.settled.set()
                healthy_s = now_s
            url = member.supervised.health_url
            if url is not None and member.state.phase is ServicePhase.UP and now_s >= next_look_s:
                next_look_s = now_s + HEALTH_PAUSE_S
                if await asyncio.to_thread(answers_ok, url):
                    healthy_s = time.monotonic()
                elif time.monotonic() - healthy_s > member.supervised.unhealthy_after_s:
                    return f"made no progress for {member.supervised.unhealthy_after_s:g} s and was killed"
            await asyncio.sleep(WATCH_PAUSE_S)
    finally:
        await _cancel([ready])
    return ""


async def _until_ready(running: Running) -> None:
    probe = running.spec.ready
    while probe is not None and not await asyncio.to_thread(probe):  # noqa: ASYNC110 - another process, no event
        await asyncio.sleep(process.PROBE_PAUSE_S)


def answers_ok(url: str) -> bool:
    """Whether ``url`` answers 200 within HEALTH_TIMEOUT_S."""
    try:
        with urllib.request.urlopen(url, timeout=HEALTH_TIMEOUT_S) as answer:  # noqa: S310 - our own loopback URL
            return bool(answer.status == 200)
    except OSError:
        return False


async def _stop_all(stack: _Stack) -> None:
    for stage in sorted({member.supervised.stage for member in stack.members}, reverse=True):
        current = [member for member in stack.members if member.supervised.stage == stage]
        await asyncio.gather(*(_stop(stack, member) for member in current))


async def _stop(stack: _Stack, member: _Member) -> None:
    if member.running is not None:
        await asyncio.to_thread(process.stop, member.running, member.supervised.stop_timeout_s)
        member.running = None
    if member.state.phase is not ServicePhase.FAILED:
        member.state = msgspec.structs.replace(member.state, pid=None, process_created_s=None)
        _become(stack, member, ServicePhase.STOPPED)


def _kill_group(leader_pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader_pid, signal.SIGKILL)


async def _cancel(tasks: Sequence["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _become(stack: _Stack, member: _Member, phase: ServicePhase, *, detail: str = "") -> None:
    member.state = msgspec.structs.replace(member.state, phase=phase, detail=detail)
    _write(stack)
    stack.on_event(StackEvent(member.name, phase, detail))


def _set_phase(stack: _Stack, phase: StackPhase) -> None:
    stack.phase = phase
    _write(stack)
    stack.on_phase(phase)


def _write(stack: _Stack) -> None:
    write_state(
        stack.home,
        StackState(
            supervisor_pid=os.getpid(),
            phase=stack.phase,
            started_at_s=stack.started_at_s,
            services=tuple(member.state for member in stack.members),
        ),
    )


def _first_state(item: Supervised) -> ServiceState:
    return ServiceState(name=item.spec.name, http_port=item.http_port, grpc_port=item.grpc_port)


def _log(stack: _Stack, member: _Member) -> Path:
    return stack.home.log_file(member.name)


def _created_s(pid: int) -> float | None:
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None


async def _bound_logs(home: Home) -> None:
    while True:
        for path in home.logs_dir.glob("*.log"):
            with contextlib.suppress(OSError):
                bound_log(path, LOG_LIMIT_BYTES)
        await asyncio.sleep(LOG_CHECK_PAUSE_S)


def bound_log(path: Path, limit_bytes: int) -> bool:
    """Move the content of a log beyond ``limit_bytes`` to ``<log>.1``; returns whether it was.

    The file itself stays: its writer holds it open, in append mode, and writes on at its new end. Lines written
    between the copy and the cut are lost.
    """
    if path.stat().st_size <= limit_bytes:
        return False
    with path.open("rb") as source, path.with_name(f"{path.name}.1").open("wb") as target:
        while chunk := source.read(1024 * 1024):
            target.write(chunk)
    os.truncate(path, 0)
    return True
