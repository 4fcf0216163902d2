"""Latency: from a commit in MySQL until its event can be read in the tenant's topic.

A writer notes the clock when COMMIT has returned, a ``read_committed`` consumer when it has the event, both on this machine.
Each transaction marks itself by one row in a table of its own, its last row; under load 99 rows of another table stand before
it. There are two such loads: half the rate at which everything at once, writer and MySQL included, keeps up, and half the rate
at which reader and router alone catch up with the very same transactions, which may be more than MySQL takes on the same
cores. Both rates are measured right before.

The writer keeps to its times however late earlier transactions are: one that is late does not make the next ones rarer.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import pymysql
from confluent_kafka import Consumer, Message, TopicPartition

from bench.catch_up import SOURCE, TENANT, Ours, make_table, start_ours
from bench.stack import Servers, bench_stack, wait_until
from bench.workload import DATABASE, TABLE, row_text, write_rows
from libs.events.names import row_topic
from libs.types.table import TableId
from protos.headwater.reader_control.v1 import reader_control_pb2 as pb

QUIET_COMMITS_PER_S: Final = 20
LOAD_ROWS: Final = 99
"""Row events of a transaction under load, its mark not counted."""
WRITERS: Final = 4
"""Connections: one alone waits for the disk at each commit."""
_MARKS: Final = "commits"
_TABLE_ROWS: Final = 20_000  # they fit into the server's memory
_CATCH_UP_TRANSACTIONS: Final = 2_000
_WARM_UP_S: Final = 5.0
_LIVE_TOP_S: Final = 10.0
_AT_ONCE: Final = 100_000.0
"""Commits a second that no connection reaches: each writes as fast as it can."""
_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some times and the one that 99 of 100 do not exceed, in milliseconds."""

    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class LatencyRun:
    """Latency at one rate."""

    asked_commits_per_s: float
    commits_per_s: float
    """As it was, by the clock: MySQL, on the same cores, may not take more."""
    row_events_per_s: float
    commits: int
    latency: Spread
    to_reader: Spread
    """From commit until the reader decodes the row."""
    to_router: Spread
    """From there until the router writes the event."""
    to_tenant: Spread
    """From there until it can be read. The record's own time has no parts of a millisecond."""
    cpu: float
    """CPU seconds a second of reader and router together."""


@dataclass(frozen=True, slots=True)
class LatencyFigures:
    """The runs, and the top rates, half of which they write."""

    live_top_row_events_per_s: float
    """While the log is being written."""
    catch_up_row_events_per_s: float
    """Of a log that is there."""
    quiet: LatencyRun
    live: LatencyRun
    """At half of the first."""
    loaded: LatencyRun
    """At half of the second."""


def measure_latency(folder: Path, run_s: float) -> LatencyFigures:
    """Set everything up in ``folder``, take both top rates, run three times for ``run_s`` seconds, stop everything."""
    with bench_stack(folder) as (servers, start_service):
        make_table(servers)
        with servers.connect() as connection, connection.cursor() as cursor:
            write_rows(connection, _TABLE_ROWS, first_id=1)
            cursor.execute(f"CREATE TABLE {DATABASE}.{_MARKS} LIKE {DATABASE}.{TABLE}")
        ours = start_ours(folder, servers, start_service)
        with _marker(servers) as marker:
            marker.commit(LOAD_ROWS)  # the first makes the topic
            topic = row_topic(TENANT, SOURCE, TableId(database=DATABASE, table=_MARKS))
            with _arrivals(servers, topic) as arrivals:
                wait_until(lambda: len(arrivals) == 1, timeout_s=_TIMEOUT_S, what="the first event")
                catch_up = _catch_up_rate(ours, marker, arrivals)
                quiet = _run(ours, marker, arrivals, QUIET_COMMITS_PER_S, 0, run_s)
                live_top = _live_rate(ours, marker, arrivals)
                live = _run(ours, marker, arrivals, live_top / 2 / (LOAD_ROWS + 1), LOAD_ROWS, run_s)
                loaded = _run(ours, marker, arrivals, catch_up / 2 / (LOAD_ROWS + 1), LOAD_ROWS, run_s)
        return LatencyFigures(live_top, catch_up, quiet, live, loaded)


class _Marker:
    """Commits transactions, each with a row that has its number."""

    def __init__(self, connections: Sequence["pymysql.Connection[Any]"]) -> None:
        self._connections = connections
        self._numbers = itertools.count()
        self.committed_ns: dict[int, int] = {}
        """When the COMMIT of each had returned."""

    def commit(self, load_rows: int, *, writer: int = 0) -> None:
        """One transaction; its mark is its number."""
        number = next(self._numbers)
        first = 1 + number * LOAD_ROWS % (_TABLE_ROWS - LOAD_ROWS)
        load = f"UPDATE {TABLE} SET quantity = quantity + 1 WHERE id BETWEEN {first} AND {first + load_rows - 1};"
        with self._connections[writer].cursor() as cursor:
            cursor.execute(f"BEGIN;{load if load_rows else ''}INSERT INTO {_MARKS} VALUES {row_text(number)};COMMIT")
            while cursor.nextset():
                pass
        self.committed_ns[number] = time.time_ns()

    def commit_at_rate(self, commits_per_s: float, load_rows: int, run_s: float) -> None:
        """Commit at even distances for so long, by several connections in turn, as fast as it goes where it is late."""
        begun_s = time.monotonic()

        def write(writer: int) -> None:
            for nth in range(writer, int(commits_per_s * run_s), WRITERS):
                time.sleep(max(0.0, begun_s + nth / commits_per_s - time.monotonic()))
                if time.monotonic() > begun_s + run_s:
                    return
                self.commit(load_rows, writer=writer)

        with ThreadPoolExecutor(WRITERS) as threads:
            for done in [threads.submit(write, writer) for writer in range(WRITERS)]:
                done.result()


@contextmanager
def _marker(servers: Servers) -> Iterator[_Marker]:
    with ExitStack() as exits:
        connections = [exits.enter_context(servers.connect()) for _ in range(WRITERS)]
        for connection in connections:
            connection.select_db(DATABASE)
        yield _Marker(connections)


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A mark's event, as the consumer got it."""

    read_ns: int
    written_ms: int
    """The record's time, of the router."""
    value: bytes


@contextmanager
def _arrivals(servers: Servers, topic: str) -> Iterator[list[_Arrival]]:
    """The records that a consumer reads of the topic, in its order, as they come."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers.bootstrap_servers,
            "group.id": "bench-latency",
            "isolation.level": "read_committed",
            "log_level": 0,  # the broker ends before the consumer does
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    arrivals: list[_Arrival] = []
    must_stop = threading.Event()

    def read() -> None:
        while not must_stop.is_set():
            message: Message | None = consumer.poll(0.2)
            if message is not None and message.error() is None:
                arrivals.append(_Arrival(time.time_ns(), message.timestamp()[1], message.value() or b""))

    thread = threading.Thread(target=read, name="arrivals", daemon=True)
    thread.start()
    try:
        yield arrivals
    finally:
        must_stop.set()
        thread.join()
        consumer.close()


def _catch_up_rate(ours: Ours, marker: _Marker, arrivals: Sequence[_Arrival]) -> float:
    """Row events a second of a catch-up with transactions of the loaded run."""
    ours.control.Pause(pb.PauseRequest())
    for _ in range(_CATCH_UP_TRANSACTIONS):
        marker.commit(LOAD_ROWS)
    begun_s = time.monotonic()
    ours.control.Resume(pb.ResumeRequest())
    _wait_for_all(ours, marker, arrivals)
    return _CATCH_UP_TRANSACTIONS * (LOAD_ROWS + 1) / (time.monotonic() - begun_s)


def _live_rate(ours: Ours, marker: _Marker, arrivals: Sequence[_Arrival]) -> float:
    """Row events a second, from the first commit until the last is in the tenant's topic, as fast as all goes together."""
    first, begun_s = len(marker.committed_ns), time.monotonic()
    marker.commit_at_rate(_AT_ONCE, LOAD_ROWS, _LIVE_TOP_S)
    _wait_for_all(ours, marker, arrivals)
    return (len(marker.committed_ns) - first) * (LOAD_ROWS + 1) / (time.monotonic() - begun_s)


def _run(
    ours: Ours, marker: _Marker, arrivals: Sequence[_Arrival], commits_per_s: float, load_rows: int, run_s: float
) -> LatencyRun:
    marker.commit_at_rate(commits_per_s, load_rows, _WARM_UP_S)
    _wait_for_all(ours, marker, arrivals)
    first, before, begun_s = len(marker.committed_ns), _cpu_s(ours), time.monotonic()
    marker.commit_at_rate(commits_per_s, load_rows, run_s)
    wall_s = time.monotonic() - begun_s
    _wait_for_all(ours, marker, arrivals)
    commits = len(marker.committed_ns) - first
    return _figures(
        marker.committed_ns,
        arrivals[first:],
        asked_commits_per_s=commits_per_s,
        commits_per_s=commits / wall_s,
        row_events_per_s=commits * (load_rows + 1) / wall_s,
        cpu=(_cpu_s(ours) - before) / wall_s,
    )


def _wait_for_all(ours: Ours, marker: _Marker, arrivals: Sequence[_Arrival]) -> None:
    def is_done() -> bool:
        ours.usages()  # raises when one of them has ended
        return len(arrivals) >= len(marker.committed_ns)

    wait_until(is_done, timeout_s=_TIMEOUT_S, what="the last mark")


def _cpu_s(ours: Ours) -> float:
    return sum(usage.cpu_s for usage in ours.usages())


def _figures(
    committed_ns: Mapping[int, int],
    arrivals: Sequence[_Arrival],
    *,
    asked_commits_per_s: float,
    commits_per_s: float,
    row_events_per_s: float,
    cpu: float,
) -> LatencyRun:
    """Raises RuntimeError when the topic holds other marks than were committed."""
    events = [orjson.loads(arrival.value) for arrival in arrivals]
    numbers = [event["after"]["id"] for event in events]
    if sorted(numbers) != sorted(committed_ns)[-len(numbers) :]:
        raise RuntimeError("the tenant's topic does not hold each commit once")

    def spread_of(until: Callable[[int], float], since: Callable[[int], float]) -> Spread:
        return spread([(until(nth) - since(nth)) / 1e6 for nth in range(len(arrivals))])

    def read(nth: int) -> float:
        return arrivals[nth].read_ns

    def written(nth: int) -> float:
        return arrivals[nth].written_ms * 1e6

    def decoded(nth: int) -> float:
        return float(events[nth]["ts_ns"])

    def committed(nth: int) -> float:
        return committed_ns[numbers[nth]]

    return LatencyRun(
        asked_commits_per_s=asked_commits_per_s,
        commits_per_s=commits_per_s,
        row_events_per_s=row_events_per_s,
        commits=len(events),
        latency=spread_of(read, committed),
        to_reader=spread_of(decoded, committed),
        to_router=spread_of(written, decoded),
        to_tenant=spread_of(read, written),
        cpu=cpu,
    )


def spread(times_ms: Sequence[float]) -> Spread:
    """Median and 99th percentile, each a time that was measured (nearest rank)."""
    ordered = sorted(times_ms)

    def rank(percent: int) -> float:
        return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]

    return Spread(rank(50), rank(99))
