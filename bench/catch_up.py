"""Catch-up: 500,000 row events that wait in MySQL's log, through reader and router to one tenant's topic.

The reader is paused while the log is written, so that nothing but the catch-up itself is measured: CPU seconds of both
processes from the moment it may go on until the last event is committed in the tenant's topic. Debezium, the peer, is
stopped meanwhile too, and reads the same log when ours has: both from the same place, one after the other.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import pymysql
import yaml
from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.calibrate import loop_cpu_ms
from bench.connect import Connector
from bench.debezium import TOPIC as PEER_TOPIC
from bench.debezium import debezium
from bench.stack import Servers, Service, Usage, bench_stack, wait_until
from bench.workload import CREATE_TABLE, DATABASE, TABLE, write_changes
from libs.events.names import row_topic
from libs.servers.ports import LOOPBACK
from libs.types.table import TableId
from protos.headwater.reader_control.v1 import reader_control_pb2 as pb
from protos.headwater.reader_control.v1.reader_control_pb2_grpc import ReaderControlStub

SOURCE: Final = "bench"
TENANT: Final = "acme"
_FIRST_EVENT_TIMEOUT_S: Final = 60.0
_CATCH_UP_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class PeerCatchUp:
    """The cost of the same catch-up to Debezium, in one JVM."""

    wall_s: float
    cpu_s: float
    """Its start included: the task's, and the JVM's compiling on the way."""
    steady_cpu_s: float
    """Twice the cost of the second half of the events: as if it had been warm from the beginning."""
    peak_rss_mb: float
    loop_cpu_ms: float
    """The calibrating loop, mean of right before and right after."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What a catch-up cost."""

    row_events: int
    wall_s: float
    reader_cpu_s: float
    router_cpu_s: float
    reader_peak_rss_mb: float
    router_peak_rss_mb: float
    loop_cpu_ms: float
    """The calibrating loop, mean of right before and right after."""
    peer: PeerCatchUp | None

    @property
    def cpu_s_per_million(self) -> float:
        """CPU seconds of reader and router together for a million row events."""
        return (self.reader_cpu_s + self.router_cpu_s) / self.row_events * 1e6


def measure_catch_up(
    folder: Path,
    row_events: int,
    *,
    with_peer: bool = False,
    write: Callable[["pymysql.Connection[Any]", int], None] = write_changes,
) -> CatchUp:
    """Set everything up in ``folder``, catch up once, let the peer do so, stop everything.

    ``write``: makes so many row events of the bench's table, none of them of row 0.

    Raises:
        ServiceUnavailable: Debezium did not start, or failed on the way; the message has the end of its log.
    """
    with bench_stack(folder) as (servers, start_service):
        make_table(servers)
        ours = start_ours(folder, servers, start_service)
        with debezium(folder / "debezium", servers) if with_peer else nullcontext() as peer:
            peer_end = EndOfTopic(servers, PEER_TOPIC)
            if peer is not None:
                _see_it_stream(peer, peer_end, servers)
                peer.suspend()
            ours.control.Pause(pb.PauseRequest())
            with servers.connect() as connection:
                write(connection, row_events)
            _touch_row_0(servers)
            run = measured(lambda: ours.catch_up(row_events), ours.usages)
            beside = None if peer is None else measure_peer(peer, peer_end, row_events, begin=peer.resume)
            return cost_of(run, row_events, beside)


@dataclass(frozen=True, slots=True)
class Run:
    """The cost of a piece of work."""

    wall_s: float
    used: tuple[Usage, ...]
    """Of each process: CPU seconds over that time, the peak over its whole life."""
    loop_cpu_ms: float


def measured(catch_up: Callable[[], None], usages: Callable[[], tuple[Usage, ...]]) -> Run:
    """Do it, with the processes' usages looked at right before and right after."""
    loop_before_ms = loop_cpu_ms()
    before, begun_s = usages(), time.monotonic()
    catch_up()
    wall_s, after = time.monotonic() - begun_s, usages()
    used = tuple(
        Usage(cpu_s=at_end.cpu_s - at_begin.cpu_s, peak_rss_mb=at_end.peak_rss_mb)
        for at_begin, at_end in zip(before, after, strict=True)
    )
    return Run(wall_s, used, (loop_before_ms + loop_cpu_ms()) / 2)


def cost_of(run: Run, row_events: int, peer: PeerCatchUp | None) -> CatchUp:
    """Of a run whose processes were a reader and a router."""
    reader, router = run.used
    return CatchUp(
        row_events=row_events,
        wall_s=run.wall_s,
        reader_cpu_s=reader.cpu_s,
        router_cpu_s=router.cpu_s,
        reader_peak_rss_mb=reader.peak_rss_mb,
        router_peak_rss_mb=router.peak_rss_mb,
        loop_cpu_ms=run.loop_cpu_ms,
        peer=peer,
    )


@dataclass(frozen=True, slots=True)
class Ours:
    """Reader and router, running."""

    reader: Service
    router: Service
    control: ReaderControlStub
    end: "EndOfTopic"

    def usages(self) -> tuple[Usage, ...]:
        """Of the reader and of the router. Raises RuntimeError when one of them has ended."""
        return self.reader.usage(), self.router.usage()

    def catch_up(self, row_events: int) -> None:
        """Let the paused reader go on; returns when the last of so many events is in the tenant's topic."""
        self.control.Resume(pb.ResumeRequest())

        def is_done() -> bool:
            self.usages()  # raises when one of them has ended
            return self.end.shows(0, after=row_events)

        wait_until(is_done, timeout_s=_CATCH_UP_TIMEOUT_S, what="the last event")


def start_ours(folder: Path, servers: Servers, start_service: Callable[[str, Mapping[str, Any]], Service]) -> Ours:
    """Start the services; returns when the first event is in the tenant's topic."""
    shared = {"kafka": {"bootstrap_servers": servers.bootstrap_servers}, "redis": {"url": servers.redis_url}}
    history = start_service("schema_history", shared)
    committer = start_service("checkpoint_committer", shared)
    clients = {
        "kafka": shared["kafka"],
        "schema_history": {"address": history.grpc_address},
        "checkpoint_committer": {"address": committer.grpc_address},
    }
    reader = start_service("binlog_reader", {**clients, **reader_settings(servers)})
    router = start_service("router", {**clients, **router_settings(folder)})
    with servers.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {DATABASE}.{TABLE} SELECT 0, 0, '', 0, 0, 0, NOW(), NOW(), NULL, ''")
    end = EndOfTopic(servers, row_topic(TENANT, SOURCE, TableId(database=DATABASE, table=TABLE)))
    wait_until(lambda: end.shows(0), timeout_s=_FIRST_EVENT_TIMEOUT_S, what="the first event")
    control = ReaderControlStub(grpc.insecure_channel(reader.grpc_address))  # type: ignore[no-untyped-call]
    return Ours(reader, router, control, end)


def _see_it_stream(peer: Connector, end: "EndOfTopic", servers: Servers) -> None:
    """Change row 0 until the peer delivers it: its begin in the log lies somewhere after its start."""

    def is_seen() -> bool:
        _touch_row_0(servers)
        return end.shows(0)

    peer.wait_until(is_seen, timeout_s=_FIRST_EVENT_TIMEOUT_S, what="the first event")


def measure_peer(peer: Connector, end: "EndOfTopic", row_events: int, *, begin: Callable[[], None]) -> PeerCatchUp:
    """Let Debezium catch up: from ``begin`` until a change of row 0 is the last of its topic."""
    samples: list[tuple[int, float]] = []  # the topic's end, CPU seconds of the JVM at that time

    def is_done() -> bool:
        samples.append((end.offset(), peer.usage().cpu_s))
        return end.shows(0, after=row_events)

    def catch_up() -> None:
        begin()
        peer.wait_until(is_done, timeout_s=_CATCH_UP_TIMEOUT_S, what="the last event")

    run = measured(catch_up, lambda: (peer.usage(),))
    return PeerCatchUp(
        wall_s=run.wall_s,
        cpu_s=run.used[0].cpu_s,
        steady_cpu_s=steady_cpu_s(samples),
        peak_rss_mb=run.used[0].peak_rss_mb,
        loop_cpu_ms=run.loop_cpu_ms,
    )


def steady_cpu_s(samples: Sequence[tuple[int, float]]) -> float:
    """The cost of all records at the price of their second half; samples are (records, CPU seconds)."""
    (first, _), (last, last_cpu_s) = samples[0], samples[-1]
    half, half_cpu_s = next(sample for sample in samples if sample[0] >= (first + last) / 2)
    return (last_cpu_s - half_cpu_s) * (last - first) / max(1, last - half)


def _touch_row_0(servers: Servers) -> None:
    """One event of the row whose events mark first and last; no change would be none."""
    with servers.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"UPDATE {DATABASE}.{TABLE} SET quantity = quantity + 1 WHERE id = 0")


def make_table(servers: Servers) -> None:
    """The bench's database and its empty table."""
    with servers.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        cursor.execute(f"USE {DATABASE}")
        cursor.execute(CREATE_TABLE)


def reader_settings(servers: Servers) -> dict[str, Any]:
    """Of a reader that follows the bench's table."""
    return {
        "source": SOURCE,
        "database": {"host": LOOPBACK, "port": servers.mysql_port, "user": "root"},
        "replica_server_id": 6001,
        "include_tables": [rf"{DATABASE}\..*"],
    }


def router_settings(folder: Path) -> dict[str, Any]:
    """Of a router with one tenant, whose document is written into ``folder``."""
    tenants = folder / "tenants"
    tenants.mkdir()
    document = {"tenant": TENANT, "sources": [{"name": SOURCE}], "sink": None}
    (tenants / f"{TENANT}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return {"sources": [SOURCE], "tenants_folder": str(tenants), "state_folder": str(folder / "router")}


class EndOfTopic:
    """Looks at the last committed records of a topic, without reading it."""

    def __init__(self, servers: Servers, topic: str) -> None:
        self._partition = TopicPartition(topic, 0)
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers.bootstrap_servers,
                "group.id": "bench",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "log_level": 0,  # the broker ends before the consumer does
            }
        )

    def offset(self) -> int:
        """That of the next record; 0 while the topic is not there."""
        try:
            _, end = self._consumer.get_watermark_offsets(self._partition, timeout=5)
        except KafkaException:
            return 0
        return int(end)

    def shows(self, row_id: int, *, after: int = 0) -> bool:
        """An event of the row is among the last records, and at least ``after`` offsets from the beginning."""
        end = self.offset()
        if end <= after:
            return False
        self._consumer.assign([TopicPartition(self._partition.topic, 0, max(after, end - 5))])
        while (message := self._consumer.poll(2.0)) is not None and message.error() is None:
            if message.key() == b'{"id":%d}' % row_id:
                return True
        return False
