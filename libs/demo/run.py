"""The demo: the main job end to end, with real servers, real traffic and real kills, and then the proof.

    home ▶ stack ▶ shop of 200,000 rows ▶ snapshot ▶ 30 s of traffic, three kills -9 ▶ catch up ▶ check ▶ figures

``headwater demo`` calls ``run_demo`` and shows its reports. The flow is the same for every kind of source; what differs is a
``DemoSource`` (``sources``). The stack runs as ``headwater up`` runs it, in a process of
its own that dies with this one; nothing here reaches into the services but the kills.
"""

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import psutil

from libs.check.compared import stack_compared
from libs.check.run import CheckReport, check
from libs.demo.latency import Latency, TopicFigures, measure, of_histograms
from libs.demo.shop import DATABASE, DemoShop
from libs.demo.sources import DEMO_SOURCES, DemoSource
from libs.demo.traffic import (
    ADD_COLUMN_AT,
    LARGE_TRANSACTION_AT,
    PRIMARY_KEY_CHANGE_AT,
    Traffic,
    run_traffic,
)
from libs.errors import HeadwaterError, InvalidSettings, ServiceUnavailable
from libs.mesh.catch_up import StackHops, source_positions, wait_for_snapshots, wait_until_caught_up
from libs.mesh.home import Home, write_examples
from libs.mesh.mesh import stack_kafka
from libs.mesh.processes import ROUTER, SINK, reader_name
from libs.mesh.sink_state import sink_progress
from libs.mesh.state import ServicePhase, StackState, holder, read_state
from libs.mesh.tenant_topics import end_offsets, open_consumer, read_to_end, row_topics
from libs.servers.process import last_lines
from libs.stack import lifecycle as stack
from libs.stack.own_servers import write_own_servers

SOURCE: Final = "shop"
TENANTS: Final = ("acme", "globex")
TRAFFIC_S: Final = 30.0
SNAPSHOT_TIMEOUT_S: Final = 180.0
CATCH_UP_TIMEOUT_S: Final = 180.0
SERVER_TIMEOUT_S: Final = 90.0
READ_TIMEOUT_S: Final = 60.0
DIFFERENCES_SHOWN: Final = 5
POLL_PAUSE_S: Final = 0.2
IN_FLIGHT_US: Final = 2_000_000  # changes of the last two seconds before a kill may be hit by it

# Each kill falls just after a set piece of the traffic: in the middle of the hardest part.
KILLS: Final = (
    (PRIMARY_KEY_CHANGE_AT + 0.02, ROUTER),
    (LARGE_TRANSACTION_AT + 0.02, reader_name(SOURCE)),
    (ADD_COLUMN_AT + 0.05, SINK),
)

_ACME: Final = """\
tenant: acme
sources:
  - name: shop
    include_tables: ['{shop}\\..*']
sink: {{warehouse: iceberg, mode: mirror, trigger_s: 1}}
"""
_GLOBEX: Final = """\
tenant: globex
sources:
  - name: shop
    include_tables: ['{shop}\\.{orders}']
    row_filters:
      - tables: '{shop}\\.{orders}'
        where: "tenant_code = 'globex'"
    masks:
      - columns: '.*\\.{email}'
        hash: {{salt: 'a-secret-of-globex', algorithm: sha256}}
sink: {{warehouse: iceberg, mode: mirror, trigger_s: 1}}
"""


class Show(Protocol):
    """The view of the demo's progress."""

    def begin(self, phase: str) -> None:
        """A phase starts; the one before is done."""
        ...

    def tell(self, detail: str) -> None:
        """Where the phase stands now."""
        ...

    def note(self, line: str) -> None:
        """Something worth a line of its own happened."""
        ...


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """How the demo runs."""

    home: Home
    source: str = "mysql"
    """A name of ``DEMO_SOURCES``."""
    keep: bool = False
    """Leave the stack up in the end."""
    traffic_s: float = TRAFFIC_S
    scale: float = 1.0
    """Of the number of rows; smaller for tests."""
    seed: int = 1


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The demo's findings."""

    remarks: tuple[str, ...]
    """Of its source: the parts that are stand-ins."""
    rows_loaded: int
    traffic_rows: int
    traffic_transactions: int
    set_pieces: tuple[str, ...]
    kills: tuple[str, ...]
    restarts: Mapping[str, int]
    check: CheckReport
    topics: TopicFigures
    warehouse_latency: Latency
    calm_warehouse_latency: Latency
    warehouse_events: int
    phases_s: tuple[tuple[str, float], ...]

    @property
    def is_good(self) -> bool:
        """No difference, and everything that was to happen did."""
        return (
            not self.check.differences
            and self.check.rows_compared > 0
            and len(self.kills) == len(KILLS)
            and all(self.restarts.get(name, 0) > 0 for _, name in KILLS)
        )


class DemoFailed(HeadwaterError):
    """The demo could not be run to its end; ``log_file`` is the log to read first."""

    def __init__(self, message: str, log_file: Path) -> None:
        super().__init__(message)
        self.log_file = log_file


def run_demo(settings: DemoSettings, show: Show) -> DemoReport:
    """Run everything; no process is left, however this ends, unless ``keep`` is set and it ended well.

    Raises:
        AlreadyUp: a stack runs in the home (of an earlier ``--keep``).
        InvalidSettings: the home belongs to something else, or set-up is missing.
        DemoFailed: a step failed; the message has the reason and the end of the log to read.
    """
    home = settings.home
    source = DEMO_SOURCES[settings.source]()
    _make_home(home, source)
    clock = _Phases(show)
    supervisor_pid = None
    is_left_up = False
    try:
        clock.begin("start Kafka, Valkey, the source, the services and Spark; fill the shop")
        for remark in source.remarks:
            show.note(f"note: {remark}")
        supervisor_pid = stack.start_detached(home, dies_with_parent=not settings.keep)
        with _filling(settings, source, show) as loaded:
            stack.wait_until_up(home, supervisor_pid, on_state=_reporter(show))
        _require_all_up(home)
        report = _run_job(settings, source, show, clock, loaded.rows)
        is_left_up = settings.keep
    except (HeadwaterError, OSError) as error:
        raise _explained(home, error) from error
    finally:
        if supervisor_pid is not None and not is_left_up:
            show.begin("stop everything")
            _stop(home, supervisor_pid)
    return report


def _run_job(settings: DemoSettings, source: DemoSource, show: Show, clock: "_Phases", rows_loaded: int) -> DemoReport:
    home = settings.home
    documents = stack.load_documents(home)
    tenants = [documents.tenants[name] for name in TENANTS]

    clock.begin("snapshot into the tenants' topics")
    wait_for_snapshots(home, documents, timeout_s=SNAPSHOT_TIMEOUT_S, on_progress=show.tell, by_progress=True)
    clock.begin("snapshot into the warehouse")
    wanted = source_positions(documents.sources, [SOURCE])
    wait_until_caught_up(
        StackHops(home), tenants, wanted, timeout_s=SNAPSHOT_TIMEOUT_S, on_progress=show.tell, by_progress=True
    )

    clock.begin(f"{settings.traffic_s:.0f} s of live traffic, three kills -9")
    starts = _topic_ends(home)
    killed: list[str] = []
    calm = _Calm()
    traffic = run_traffic(
        source.shop,
        duration_s=settings.traffic_s,
        seed=settings.seed,
        stop=threading.Event(),
        on_progress=lambda part, so_far: show.tell(
            f"{part:4.0%}  {so_far.rows:,} rows in {so_far.transactions:,} transactions"
        ),
        at={
            KILLS[0][0] - 0.01: lambda: calm.ends(home),
            **{part: _killer(home, name, killed, show) for part, name in KILLS},
        },
        scale=settings.scale * source.rows_share,
    )
    for piece in traffic.set_pieces:
        show.note(f"played: {piece.replace('_', ' ')}")

    clock.begin("catch up")
    wanted = source_positions(documents.sources, [SOURCE])
    wait_until_caught_up(
        StackHops(home), tenants, wanted, timeout_s=CATCH_UP_TIMEOUT_S, on_progress=show.tell, by_progress=True
    )

    clock.begin("compare row by row, every column")
    found = check(
        stack_compared(home, documents, is_up=True),
        limit=DIFFERENCES_SHOWN,
        timeout_s=CATCH_UP_TIMEOUT_S,
        reads_all=True,
        on_progress=show.tell,
    )
    clock.begin("read the live events of the tenants' topics")
    topics = _topic_figures(home, starts, calm)
    return _report(home, source, calm, rows_loaded, traffic, killed, found, topics, clock.ended())


def _report(
    home: Home,
    source: DemoSource,
    calm: "_Calm",
    rows_loaded: int,
    traffic: Traffic,
    killed: Sequence[str],
    found: CheckReport,
    topics: TopicFigures,
    phases_s: tuple[tuple[str, float], ...],
) -> DemoReport:
    progress = [each for each in (sink_progress(home, name) for name in TENANTS) if each is not None]
    state = read_state(home)
    return DemoReport(
        remarks=source.remarks,
        rows_loaded=rows_loaded,
        traffic_rows=traffic.rows,
        traffic_transactions=traffic.transactions,
        set_pieces=tuple(traffic.set_pieces),
        kills=tuple(killed),
        restarts={service.name: service.restarts for service in state.services} if state is not None else {},
        check=found,
        topics=topics,
        warehouse_latency=of_histograms(each.latency for each in progress),
        calm_warehouse_latency=calm.warehouse_latency,
        warehouse_events=sum(each.rows for each in progress),
        phases_s=phases_s,
    )


# --- the home -----------------------------------------------------------------------------------------------------------


def _make_home(home: Home, source: DemoSource) -> None:
    """An empty home with the demo's documents; an earlier demo's remains go."""
    if home.root.exists() and any(home.root.iterdir()) and not home.own_servers_file.exists():
        raise InvalidSettings(str(home.root), ["is not empty and no demo made it: choose another --home"])
    if holder(home) is not None:
        raise InvalidSettings(
            str(home.root), [f"a demo is still up here: `headwater down --home {home.root}` stops it"]
        )
    state = read_state(home)
    if state is not None:
        stack.sweep(state)
    shutil.rmtree(home.root, ignore_errors=True)
    write_examples(home)
    write_own_servers(home, source.servers)
    (home.sources_dir / f"{SOURCE}.yaml").write_text(source.document)
    names = {name: source.named(name) for name in (DATABASE, "orders", "email")}
    (home.tenants_dir / "acme.yaml").write_text(_ACME.format(**names))
    (home.tenants_dir / "globex.yaml").write_text(_GLOBEX.format(**names))


@dataclass(slots=True)
class _Loaded:
    rows: int = 0
    failure: BaseException | None = None


@contextlib.contextmanager
def _filling(settings: DemoSettings, source: DemoSource, show: Show) -> Iterator[_Loaded]:
    """Fill the shop beside the block; readers start when it is full."""
    loaded = _Loaded()
    give_up = threading.Event()

    def fill() -> None:
        try:
            _wait_for_servers(source.shop, give_up)
            loaded.rows = source.shop.fill(
                scale=settings.scale * source.rows_share,
                on_table=lambda table, rows: show.tell(f"{rows:,} rows in the shop ({table})"),
            )
            settings.home.own_servers_filled_file.touch()
        except Exception as error:
            loaded.failure = error

    thread = threading.Thread(target=fill, name="fill-shop", daemon=True)
    thread.start()
    try:
        yield loaded
    finally:
        give_up.set()
        thread.join(SERVER_TIMEOUT_S)
        if loaded.failure is not None:
            raise ServiceUnavailable(f"the shop could not be filled: {loaded.failure}") from loaded.failure
    show.note(f"{loaded.rows:,} rows in the shop")


def _wait_for_servers(shop: DemoShop, give_up: threading.Event) -> None:
    deadline_s = time.monotonic() + SERVER_TIMEOUT_S
    while not shop.answers():
        if give_up.is_set() or time.monotonic() > deadline_s:
            raise ServiceUnavailable(f"the source did not answer within {SERVER_TIMEOUT_S:.0f} s")
        time.sleep(POLL_PAUSE_S)


# --- kills --------------------------------------------------------------------------------------------------------------


def _killer(home: Home, name: str, killed: list[str], show: Show) -> Callable[[], None]:
    def kill() -> None:
        state = read_state(home)
        service = state.service(name) if state is not None else None
        if service is None or service.pid is None or service.phase is not ServicePhase.UP:
            show.note(f"could not kill {name}: it is not up ({service.phase.value if service else 'unknown'})")
            return
        # The group: of Spark the driver's Python and its JVM, as a machine that vanishes would take both.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(service.pid, signal.SIGKILL)
        killed.append(name)
        show.note(f"kill -9 {name} (process {service.pid})")

    return kill


# --- figures ------------------------------------------------------------------------------------------------------------


def _topic_ends(home: Home) -> Mapping[tuple[str, int], int]:
    kafka = stack_kafka(home)
    return end_offsets(kafka, [topic.name for tenant in TENANTS for topic in row_topics(kafka, tenant)])


@dataclass(slots=True)
class _Calm:
    """The traffic's first seconds, before anything is killed: the latency of an ordinary day."""

    until_us: int = 0
    warehouse_latency: Latency = field(default_factory=lambda: Latency(None, None))

    def ends(self, home: Home) -> None:
        """The first kill is about to come."""
        self.until_us = time.time_ns() // 1_000 - IN_FLIGHT_US
        progress = [each for each in (sink_progress(home, name) for name in TENANTS) if each is not None]
        self.warehouse_latency = of_histograms(each.latency for each in progress)


def _topic_figures(home: Home, starts: Mapping[tuple[str, int], int], calm: _Calm) -> TopicFigures:
    consumer = open_consumer(stack_kafka(home))
    try:
        return measure(read_to_end(consumer, starts, timeout_s=READ_TIMEOUT_S), calm_until_us=calm.until_us)
    finally:
        consumer.close()


class _Phases:
    """Which phase took how long."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._done: list[tuple[str, float]] = []
        self._running: tuple[str, float] | None = None

    def begin(self, phase: str) -> None:
        """End the running phase and start ``phase``."""
        self._end()
        self._running = (phase, time.monotonic())
        self._show.begin(phase)

    def ended(self) -> tuple[tuple[str, float], ...]:
        """End the last phase; all of them with their seconds."""
        self._end()
        return tuple(self._done)

    def _end(self) -> None:
        if self._running is not None:
            phase, started_s = self._running
            self._done.append((phase, time.monotonic() - started_s))
            self._running = None


# --- the stack ----------------------------------------------------------------------------------------------------------


def _reporter(show: Show) -> Callable[[StackState], None]:
    def tell(state: StackState) -> None:
        waiting = [service.name for service in state.services if service.phase is not ServicePhase.UP]
        show.tell(f"waiting for {', '.join(waiting)}" if waiting else "all are up")

    return tell


def _require_all_up(home: Home) -> None:
    state = read_state(home)
    for service in state.services if state is not None else ():
        if service.phase is not ServicePhase.UP:
            raise DemoFailed(f"{service.name} is not up: {service.detail}", home.log_file(service.name))


def _explained(home: Home, error: BaseException) -> DemoFailed:
    """The error with the log that says more: of the first process that is not up, else of the supervisor."""
    if isinstance(error, DemoFailed):
        log_file, reason = error.log_file, str(error)
    else:
        log_file, reason = _log_to_read(home), f"{type(error).__name__}: {error}"
    return DemoFailed(f"{reason}\nread this log first:\n{last_lines(log_file)}", log_file)


def _log_to_read(home: Home) -> Path:
    state = read_state(home)
    for service in state.services if state is not None else ():
        if service.phase in (ServicePhase.FAILED, ServicePhase.BACKING_OFF):
            return home.log_file(service.name)
    return home.log_file("supervisor")


def _stop(home: Home, supervisor_pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(supervisor_pid, signal.SIGTERM)
    try:
        supervisor = psutil.Process(supervisor_pid)
        supervisor.wait(stack.STOP_TIMEOUT_S)
    except psutil.NoSuchProcess:
        pass
    except psutil.TimeoutExpired:
        supervisor.kill()
    state = read_state(home)
    if state is not None:
        stack.sweep(state)
