"""Threads, processes and a clock that exist in one seed only.

Every simulated thread is a thread of the operating system, and exactly one of them runs at any time. It runs until it waits:
for the clock, a lock, another thread, an answer. Then the seed chooses which of the others goes on. Nobody sleeps: when all
wait, the clock is moved to the next moment at which somebody is due.

So code that starts threads, sleeps and runs event loops is the product's own, unchanged, and the same seed gives the same run.
A process can be killed at each of these points, or stopped and continued (SIGSTOP and SIGCONT).
"""

import asyncio
import contextlib
import heapq
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

_STEP_S: Final = 0.000_02
"""The time of each step by the clock, so that no loop stands at one moment for ever."""
_CPU_STEP_NS: Final = 100_000
"""The time that a thread used between two looks at its own CPU clock."""
_MOST_STEPS: Final = 200_000
_PREEMPTED: Final = 0.08
"""How often a thread loses the processor where it looks at the clock or lets a lock go."""
START_S: Final = 1_000.0


class Killed(BaseException):
    """The process of this thread is no more: nothing that it still does is seen by anybody."""


class Stuck(Exception):
    """Nobody can go on, or all go on without an end."""


class Process:
    """Threads that live and die together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.is_frozen = False
        self.threads: list[SimThread] = []
        self.held_up: list[SimThread] = []
        """Those that would go on if the process were not frozen."""


class SimThread:
    """One thread of a process."""

    __slots__ = ("carrier", "cpu_ns", "deadline_s", "is_done", "joiners", "name", "process", "token", "waits", "woken")

    def __init__(self, process: Process, name: str) -> None:
        self.process = process
        self.name = name
        self.carrier: _Carrier
        self.waits = False
        self.woken = False
        self.token = 0
        """Of the wait: a timer of an older one means nothing."""
        self.deadline_s: float | None = None
        self.cpu_ns = 0
        self.is_done = False
        self.joiners: list[SimThread] = []


class _Carrier:
    """A thread of the operating system, used by one simulated thread after another."""

    def __init__(self) -> None:
        self.go = threading.Lock()
        self.go.acquire()
        self.job: Callable[[], None] | None = None
        self.thread: SimThread | None = None
        self.native = threading.Thread(target=self._serve, name="simulation", daemon=True)
        self.native.start()

    def _serve(self) -> None:
        while True:
            self.go.acquire()
            assert self.job is not None
            self.job()


_idle: list[_Carrier] = []
_here = threading.local()


def current() -> "Scheduler | None":
    """The scheduler whose simulated thread calls; None: a thread of the real world does."""
    return getattr(_here, "scheduler", None)


def here() -> "Scheduler":
    """The same, of who knows that it is simulated."""
    scheduler = current()
    assert scheduler is not None
    return scheduler


class Scheduler:
    """Whose turn it is, and the time."""

    def __init__(self, seed: int, *, traces: bool = False) -> None:
        self.random = random.Random(seed)
        self.now_s = START_S
        self.steps = 0
        self.traces = traces
        self.trace: list[str] = []
        self.current: SimThread
        self.failures: list[BaseException] = []
        """Errors that ended the run early."""
        self._ready: list[SimThread] = []
        self._timers: list[tuple[float, int, SimThread, int]] = []
        self._sequence = 0
        self._is_over = False
        self._all: list[SimThread] = []
        self._finished = threading.Lock()
        self._finished.acquire()

    # --- from outside

    def run(self, main: Callable[[], None]) -> None:
        """Run ``main`` as a thread of the world; its end ends the run. Raises its error, and Stuck."""
        world = Process("world")

        def first() -> None:
            try:
                main()
            finally:
                self._is_over = True

        thread = self.spawn(world, "main", first)
        self._ready.remove(thread)
        self.current = thread
        thread.carrier.go.release()
        self._finished.acquire()
        if self.failures:
            raise self.failures[0]

    # --- from simulated threads

    def spawn(self, process: Process, name: str, target: Callable[[], None]) -> SimThread:
        """Start a thread; it runs when it is chosen."""
        thread = SimThread(process, name)
        carrier = thread.carrier = _idle.pop() if _idle else _Carrier()
        carrier.thread = thread
        process.threads.append(thread)
        self._all.append(thread)

        def body() -> None:
            _here.scheduler = self
            try:
                if not (process.is_dead or self._is_over):
                    target()
            except Killed:
                pass
            except BaseException as error:
                # Of a daemon thread whose process ends around it, the error is nobody's.
                if str(error) != "Event loop is closed":
                    if not self._is_over:
                        self.failures.append(error)
                    self._is_over = True
            finally:
                _here.scheduler = None
            self._end(thread)

        carrier.job = body
        self._ready.append(thread)
        return thread

    def note(self, text: str) -> None:
        """One line of the trace."""
        if self.traces:
            thread = self.current
            self.trace.append(f"{self.now_s - START_S:10.4f}  {thread.process.name}/{thread.name}  {text}")

    def block(self, deadline_s: float | None = None) -> bool:
        """Wait to be woken, up to a moment; whether it was. Raises Killed."""
        me = self.current
        self._look()
        if not me.woken:
            me.waits, me.deadline_s = True, deadline_s
            me.token += 1
            if deadline_s is not None:
                self._sequence += 1
                heapq.heappush(self._timers, (deadline_s, self._sequence, me, me.token))
            self._switch(me)
        woken, me.woken = me.woken, False
        self._look()
        return woken

    def sleep(self, seconds: float) -> None:
        """Wait for so long."""
        deadline_s = self.now_s + max(0.0, seconds)
        while self.now_s < deadline_s:
            self.block(deadline_s)

    def step(self) -> None:
        """Perhaps another thread goes first."""
        if self.random.random() < _PREEMPTED:
            self._look()
            me = self.current
            self._ready.append(me)
            self._switch(me)
            self._look()

    def wake(self, thread: SimThread) -> None:
        """Have a thread that waits go on; one that does not, not wait the next time."""
        thread.woken = True
        if thread.waits:
            thread.waits = False
            self._ready.append(thread)

    def kill(self, process: Process) -> None:
        """As ``kill -9``: its threads do nothing any more."""
        self.note(f"kills {process.name}")
        process.is_dead, process.is_frozen = True, False
        self._ready.extend(process.held_up)
        process.held_up = []
        for thread in process.threads:
            self.wake(thread)

    def freeze(self, process: Process) -> None:
        """As SIGSTOP."""
        self.note(f"freezes {process.name}")
        process.is_frozen = True

    def thaw(self, process: Process) -> None:
        """As SIGCONT."""
        self.note(f"thaws {process.name}")
        process.is_frozen = False
        self._ready.extend(process.held_up)
        process.held_up = []

    def fail(self, error: BaseException) -> None:
        """End the run by ``error``, also where the caller catches it. Raises Killed."""
        self.failures.append(error)
        self._is_over = True
        raise Killed

    def is_dead(self) -> bool:
        """The running thread's process is no more."""
        return self._is_over or self.current.process.is_dead

    def _look(self) -> None:
        if self.is_dead():
            raise Killed

    # --- the next thread

    def _switch(self, me: SimThread) -> None:
        chosen = self._next()
        if chosen is not me:
            self.current = chosen
            chosen.carrier.go.release()
            me.carrier.go.acquire()

    def _next(self) -> SimThread:
        self.steps += 1
        self.now_s += _STEP_S
        if self.steps > _MOST_STEPS and not self._is_over:
            self.failures.append(Stuck(f"{self.steps} steps, and no end"))
            self._is_over = True
        while True:
            if self._is_over:
                return self._next_to_end()
            timers, ready = self._timers, self._ready
            while timers and timers[0][0] <= self.now_s:
                _, _, thread, token = heapq.heappop(timers)
                if thread.waits and thread.token == token:
                    thread.waits = False
                    ready.append(thread)
            while ready:
                place = self.random.randrange(len(ready)) if len(ready) > 1 else 0
                ready[place], ready[-1] = ready[-1], ready[place]
                thread = ready.pop()
                if not thread.process.is_frozen:
                    return thread
                thread.process.held_up.append(thread)
            if timers:
                self.now_s = max(self.now_s, timers[0][0])
                continue
            waiting = ", ".join(f"{each.process.name}/{each.name}" for each in self._all if not each.is_done)
            self.failures.append(Stuck(f"nobody can go on: {waiting}"))
            self._is_over = True

    def _next_to_end(self) -> SimThread:
        """All of them, one after the other: each ends at once, because everything that it calls raises Killed."""
        thread = next(each for each in self._all if not each.is_done)
        thread.woken = True
        thread.waits = False
        return thread

    def _end(self, thread: SimThread) -> None:
        thread.is_done = True
        thread.process.threads.remove(thread)
        for joiner in thread.joiners:
            self.wake(joiner)
        _idle.append(thread.carrier)
        if self._is_over and all(each.is_done for each in self._all):
            self._finished.release()
            return
        chosen = self._next()
        self.current = chosen
        chosen.carrier.go.release()


# --- replacements of threading and asyncio for product code -----------------------------------------------------------


class Thread:
    """``threading.Thread``."""

    def __init__(
        self, *, target: Callable[..., object], name: str = "thread", args: tuple[Any, ...] = (), daemon: bool = True
    ) -> None:
        self._target, self._args = target, args
        self.name = name
        self._thread: SimThread | None = None

    def start(self) -> None:
        """In the caller's process."""
        scheduler = here()
        scheduler._look()
        self._thread = scheduler.spawn(scheduler.current.process, self.name, lambda: self._target(*self._args) and None)

    def join(self, timeout: float | None = None) -> None:
        """Up to a time."""
        scheduler, thread = here(), self._thread
        assert thread is not None
        deadline_s = None if timeout is None else scheduler.now_s + timeout
        while not thread.is_done and (deadline_s is None or scheduler.now_s < deadline_s):
            thread.joiners.append(scheduler.current)
            scheduler.block(deadline_s)

    def is_alive(self) -> bool:
        """It has begun, and has not ended."""
        return self._thread is not None and not self._thread.is_done


class Lock:
    """``threading.Lock``."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: list[SimThread] = []

    def __enter__(self) -> None:
        scheduler = current()
        if scheduler is None or scheduler.is_dead():
            return
        while self._is_held:
            self._waiting.append(scheduler.current)
            scheduler.block()
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False
        scheduler = current()
        if scheduler is not None and not scheduler.is_dead():
            waiting, self._waiting = self._waiting, []
            for thread in waiting:
                scheduler.wake(thread)
            scheduler.step()


class Event:
    """``threading.Event``."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[SimThread] = []

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._is_set

    def set(self) -> None:
        """Let all go on."""
        self._is_set = True
        scheduler = current()
        for thread in self._waiting:
            if scheduler is not None:
                scheduler.wake(thread)
        self._waiting = []

    def wait(self, timeout: float | None = None) -> bool:
        """Up to a time; whether it is set."""
        scheduler = here()
        deadline_s = None if timeout is None else scheduler.now_s + timeout
        while not self._is_set and (deadline_s is None or scheduler.now_s < deadline_s):
            self._waiting.append(scheduler.current)
            scheduler.block(deadline_s)
        return self._is_set


class Threading:
    """The module ``threading``, as far as simulated code uses it."""

    Thread = Thread
    Lock = Lock
    Event = Event


class Executor:
    """``ThreadPoolExecutor``: each call has a thread."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def shutdown(self, **_: object) -> None:
        """Nothing is kept."""


class _Selector:
    """The selector that a loop waits with."""

    def __init__(self, loop: "Loop") -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[object]:
        """Until somebody calls into the loop, or its next timer."""
        scheduler = self._loop.scheduler
        if timeout is None:
            scheduler.block()
        elif timeout > 0:
            scheduler.block(scheduler.now_s + timeout)
        elif scheduler.is_dead():
            raise Killed
        return []

    def close(self) -> None:
        """Nothing to close."""


class Loop(asyncio.BaseEventLoop):
    """asyncio's own loop, by the simulation's clock."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self.scheduler = scheduler
        self._thread = scheduler.current
        self._is_buried = False
        self._clock_resolution = 1e-9
        self._selector = _Selector(self)
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        """The simulation's."""
        return self.scheduler.now_s

    def _process_events(self, _events: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        self.scheduler.wake(self._thread)
        if current() is self.scheduler and self.scheduler.current is not self._thread and not self.scheduler.is_dead():
            self.scheduler.step()

    def create_future(self) -> "asyncio.Future[Any]":
        """Not in a dead process: a task that would wait there is to end."""
        if self._is_buried:
            raise Killed
        return super().create_future()

    def run_in_executor(self, _executor: object, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":  # type: ignore[override]
        """In a thread of its own."""
        future = self.create_future()

        def settle(give: Callable[[Any], None], value: Any) -> None:
            with contextlib.suppress(RuntimeError):
                self.call_soon_threadsafe(lambda: None if future.done() else give(value))

        def work() -> None:
            try:
                found = func(*args)
            except Exception as error:
                settle(future.set_exception, error)
            else:
                settle(future.set_result, found)

        self.scheduler.spawn(self._thread.process, "executor", work)
        return future

    def bury(self) -> None:
        """End all tasks of a killed process: none is left for the collector, which would complain."""
        self._is_buried = True
        asyncio._set_running_loop(self)
        self._thread_id = threading.get_ident()  # "is running"
        try:
            while tasks := [task for task in asyncio.all_tasks(self) if not task.done()]:
                for task in tasks:
                    task.cancel()
                while self._ready:
                    handle = self._ready.popleft()
                    if not handle.cancelled():
                        with contextlib.suppress(BaseException):
                            handle._run()
        finally:
            self._thread_id = None
            asyncio._set_running_loop(None)


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """``asyncio.run``."""
    scheduler = here()
    loop = Loop(scheduler)
    asyncio.set_event_loop(None)
    try:
        found = loop.run_until_complete(main)
        _cancel_rest(loop)
        return found
    except Killed:
        raise
    except BaseException:
        _cancel_rest(loop)
        raise
    finally:
        loop.bury()
        loop.close()


def _cancel_rest(loop: Loop) -> None:
    tasks = [task for task in asyncio.all_tasks(loop) if not task.done()]
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


# --- the clock -----------------------------------------------------------------------------------------------------------


_monotonic, _sleep, _thread_time_ns, _time_ns, _time = (
    time.monotonic,
    time.sleep,
    time.thread_time_ns,
    time.time_ns,
    time.time,
)
_EPOCH_S: Final = 1_700_000_000.0


def _sim_monotonic() -> float:
    scheduler = current()
    if scheduler is None:
        return _monotonic()
    if not scheduler.is_dead():
        scheduler.step()
    return scheduler.now_s


def _sim_sleep(seconds: float) -> None:
    scheduler = current()
    if scheduler is None:
        _sleep(seconds)
    else:
        scheduler.sleep(seconds)


def _sim_thread_time_ns() -> int:
    scheduler = current()
    if scheduler is None:
        return _thread_time_ns()
    scheduler.current.cpu_ns += _CPU_STEP_NS
    return scheduler.current.cpu_ns


def _sim_time() -> float:
    scheduler = current()
    return _time() if scheduler is None else _EPOCH_S + scheduler.now_s


def _sim_time_ns() -> int:
    scheduler = current()
    return _time_ns() if scheduler is None else int((_EPOCH_S + scheduler.now_s) * 1e9)


@contextlib.contextmanager
def replaced(*places: tuple[Any, str, Any]) -> Iterator[None]:
    """Attributes of modules and classes that are others meanwhile."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    for owner, name, value in places:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)


@contextlib.contextmanager
def simulated_clock() -> Iterator[None]:
    """The module ``time`` and ``asyncio.run`` are the simulation's for simulated threads, and as ever for all others."""
    real_run = asyncio.run

    def run_either(main: Coroutine[Any, Any, Any], **options: Any) -> Any:
        return real_run(main, **options) if current() is None else run(main)

    with replaced(
        (time, "monotonic", _sim_monotonic),
        (time, "sleep", _sim_sleep),
        (time, "thread_time_ns", _sim_thread_time_ns),
        (time, "time_ns", _sim_time_ns),
        (time, "time", _sim_time),
        (asyncio, "run", run_either),
    ):
        yield
