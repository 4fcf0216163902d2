"""Catch-up: 500,000 row events that wait in MySQL's log, through reader and router to one tenant's topic.

The reader is paused while the log is written, so that nothing but the catch-up itself is measured: CPU seconds of both
processes from the moment it may go on until the last event is committed in the tenant's topic.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import yaml
from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.stack import Servers, bench_stack, wait_until
from bench.workload import CREATE_TABLE, DATABASE, TABLE, write_changes
from libs.events.names import row_topic
from libs.local.ports import LOOPBACK
from libs.types.table import TableId
from protos.headwater.reader_control.v1 import reader_control_pb2 as pb
from protos.headwater.reader_control.v1.reader_control_pb2_grpc import ReaderControlStub

SOURCE: Final = "bench"
TENANT: Final = "acme"
_CATCH_UP_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What a catch-up cost."""

    row_events: int
    wall_s: float
    reader_cpu_s: float
    router_cpu_s: float
    reader_peak_rss_mb: float
    router_peak_rss_mb: float

    @property
    def cpu_s_per_million(self) -> float:
        """CPU seconds of reader and router together for a million row events."""
        return (self.reader_cpu_s + self.router_cpu_s) / self.row_events * 1e6


def measure_catch_up(folder: Path, row_events: int) -> CatchUp:
    """Set everything up in ``folder``, catch up once, stop everything."""
    with bench_stack(folder) as (servers, start_service):
        _make_table(servers)
        shared = {"kafka": {"bootstrap_servers": servers.bootstrap_servers}, "redis": {"url": servers.redis_url}}
        history = start_service("schema_history", shared)
        committer = start_service("checkpoint_committer", shared)
        clients = {
            "kafka": shared["kafka"],
            "schema_history": {"address": history.grpc_address},
            "checkpoint_committer": {"address": committer.grpc_address},
        }
        reader = start_service("binlog_reader", {**clients, **_reader_settings(servers)})
        router = start_service("router", {**clients, **_router_settings(folder)})
        topic = row_topic(TENANT, SOURCE, TableId(database=DATABASE, table=TABLE))
        control = ReaderControlStub(grpc.insecure_channel(reader.grpc_address))
        with servers.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {DATABASE}.{TABLE} SELECT 0, 0, '', 0, 0, 0, NOW(), NOW(), NULL, ''")
        end = _EndOfTopic(servers, topic)
        wait_until(lambda: end.shows(0), timeout_s=60, what="the first event")
        control.Pause(pb.PauseRequest())
        with servers.connect() as connection, connection.cursor() as cursor:
            write_changes(connection, row_events)
            cursor.execute(f"UPDATE {TABLE} SET quantity = 1 WHERE id = 0")
        before = reader.usage(), router.usage()
        start_s = time.monotonic()
        control.Resume(pb.ResumeRequest())
        wait_until(lambda: end.shows(0, after=row_events), timeout_s=_CATCH_UP_TIMEOUT_S, what="the last event")
        wall_s = time.monotonic() - start_s
        after = reader.usage(), router.usage()
        return CatchUp(
            row_events=row_events,
            wall_s=wall_s,
            reader_cpu_s=after[0].cpu_s - before[0].cpu_s,
            router_cpu_s=after[1].cpu_s - before[1].cpu_s,
            reader_peak_rss_mb=after[0].peak_rss_mb,
            router_peak_rss_mb=after[1].peak_rss_mb,
        )


def _make_table(servers: Servers) -> None:
    with servers.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {DATABASE}")
        cursor.execute(f"USE {DATABASE}")
        cursor.execute(CREATE_TABLE)


def _reader_settings(servers: Servers) -> dict[str, Any]:
    return {
        "source": SOURCE,
        "database": {"host": LOOPBACK, "port": servers.mysql_port, "user": "root"},
        "replica_server_id": 6001,
        "include_tables": [rf"{DATABASE}\..*"],
    }


def _router_settings(folder: Path) -> dict[str, Any]:
    tenants = folder / "tenants"
    tenants.mkdir()
    document = {"tenant": TENANT, "sources": [{"name": SOURCE}], "sink": None}
    (tenants / f"{TENANT}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return {"sources": [SOURCE], "tenants_folder": str(tenants), "state_folder": str(folder / "router")}


class _EndOfTopic:
    """Looks at the last committed records of a topic, without reading it."""

    def __init__(self, servers: Servers, topic: str) -> None:
        self._partition = TopicPartition(topic, 0)
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers.bootstrap_servers,
                "group.id": "bench",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )

    def shows(self, row_id: int, *, after: int = 0) -> bool:
        """An event of the row is among the last records, and at least ``after`` offsets from the beginning."""
        try:
            _, end = self._consumer.get_watermark_offsets(self._partition, timeout=5)
        except KafkaException:  # the topic is not there yet
            return False
        if end <= after:
            return False
        self._consumer.assign([TopicPartition(self._partition.topic, 0, max(after, end - 5))])
        while (message := self._consumer.poll(2.0)) is not None and message.error() is None:
            if message.key() == b'{"id":%d}' % row_id:
                return True
        return False
