"""Snapshot: a table that is there already, through reader and router to one tenant's topic, and Debezium's beside it.

Then by readers alone, one and several side by side: whether more of them are faster. A reader begins when it starts, so its
figures include the start of Python; the rate is also given for the second half of the rows.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from bench.catch_up import SOURCE, TENANT, EndOfTopic, make_table, reader_settings, router_settings, steady_cpu_s
from bench.debezium import TOPIC as PEER_TOPIC
from bench.debezium import debezium
from bench.stack import Servers, Service, bench_stack, wait_until
from bench.workload import DATABASE, TABLE, write_rows
from libs.events.names import row_topic
from libs.types.table import TableId
from protos.headwater.reader_control.v1 import reader_control_pb2 as pb
from protos.headwater.reader_control.v1.reader_control_pb2_grpc import ReaderControlStub

_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class ReaderRun:
    """One snapshot by the reader alone."""

    processes: int
    wall_s: float
    cpu_s: float
    """Of all its processes, their start included."""
    steady_cpu_s: float
    """Twice the CPU seconds of the second half of the rows."""
    peak_rss_mb: float
    """Of the reader's own process."""


@dataclass(frozen=True, slots=True)
class SnapshotFigures:
    """The cost of the snapshots."""

    rows: int
    runs: Sequence[ReaderRun]
    router_cpu_s: float
    """Of the router, delivering the first run's rows."""
    delivered_wall_s: float
    """From the reader's start until the last row was in the tenant's topic."""
    peer_wall_s: float | None
    peer_cpu_s: float | None
    peer_steady_cpu_s: float | None


def measure_snapshot(folder: Path, rows: int, *, processes: Sequence[int], with_peer: bool) -> SnapshotFigures:
    """Fill the table, take a snapshot with each number of processes, the first one with a router after it, then the peer's.

    Raises:
        ServiceUnavailable: Debezium did not start, or failed on the way; the message has the end of its log.
    """
    with bench_stack(folder) as (servers, start_service):
        make_table(servers)
        with servers.connect() as connection:
            write_rows(connection, rows)
        shared = {"kafka": {"bootstrap_servers": servers.bootstrap_servers}, "redis": {"url": servers.redis_url}}
        clients = {
            "kafka": shared["kafka"],
            "schema_history": {"address": start_service("schema_history", shared).grpc_address},
            "checkpoint_committer": {"address": start_service("checkpoint_committer", shared).grpc_address},
        }
        router = start_service("router", {**clients, **router_settings(folder)})
        topic = EndOfTopic(servers, row_topic(TENANT, SOURCE, TableId(database=DATABASE, table=TABLE)))
        router_before = router.usage()
        begun_s = time.monotonic()
        runs = []
        delivered_wall_s = router_cpu_s = 0.0
        for number, count in enumerate(processes):
            settings = {**clients, **_settings(servers, number, count)}
            runs.append(_measure_reader(lambda: start_service("binlog_reader", settings), count, rows))  # noqa: B023
            if number == 0:
                wait_until(lambda: topic.offset() >= rows, timeout_s=_TIMEOUT_S, what="the last row")
                delivered_wall_s = time.monotonic() - begun_s
                router_cpu_s = router.usage().cpu_s - router_before.cpu_s
        peer = _measure_peer(folder, servers, rows) if with_peer else (None, None, None)
        return SnapshotFigures(rows, runs, router_cpu_s, delivered_wall_s, *peer)


def _settings(servers: Servers, number: int, processes: int) -> dict[str, Any]:
    """The first source is the router's; each run is a source of its own, as one that has a checkpoint copies nothing."""
    settings = reader_settings(servers)
    name = SOURCE if number == 0 else f"{SOURCE}{number}"
    return {**settings, "source": name, "replica_server_id": 6100 + number, "snapshot": {"readers": processes}}


def _measure_reader(begin: Callable[[], Service], processes: int, rows: int) -> ReaderRun:
    begun_s = time.monotonic()
    reader = begin()
    samples: list[tuple[int, float]] = []
    with grpc.insecure_channel(reader.grpc_address) as channel:
        control = ReaderControlStub(channel)  # type: ignore[no-untyped-call]

        def is_done() -> bool:
            status = control.GetStatus(pb.GetStatusRequest())
            samples.append((status.rows_published, reader.usage().cpu_s))
            return bool(status.rows_published >= rows)

        wait_until(is_done, timeout_s=_TIMEOUT_S, what="the last row")
        wall_s, used = time.monotonic() - begun_s, reader.usage()
        control.Pause(pb.PauseRequest())
    return ReaderRun(processes, wall_s, samples[-1][1], steady_cpu_s(samples), used.peak_rss_mb)


def _measure_peer(folder: Path, servers: Servers, rows: int) -> tuple[float, float, float]:
    """Wall and CPU seconds of Connect's JVM from its start, and the cost of all rows at the price of their second half."""
    end = EndOfTopic(servers, PEER_TOPIC)
    samples: list[tuple[int, float]] = []
    begun_s = time.monotonic()
    with debezium(folder / "debezium", servers, snapshot_mode="initial") as peer:

        def is_done() -> bool:
            samples.append((end.offset(), peer.usage().cpu_s))
            return samples[-1][0] >= rows

        peer.wait_until(is_done, timeout_s=_TIMEOUT_S, what="the last row")
        return time.monotonic() - begun_s, samples[-1][1], steady_cpu_s(samples)
