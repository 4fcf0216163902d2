"""A restart with tens of thousands of tables in the history: how long schema_history takes, then a reader, and what they hold.

The changes are written into the topic as schema_history writes them, but in large transactions: through its API, each of them
durable before the next is taken, they would take half an hour. The tables are not at the source: a restart does not ask it.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import grpc
import msgspec
import redis

from bench.catch_up import SOURCE, make_table, reader_settings
from bench.stack import Servers, Service, bench_stack, wait_until
from bench.workload import DATABASE, TABLE
from libs.config.connections import KafkaSettings
from libs.events.names import SCHEMA_HISTORY_TOPIC
from libs.events.schema_change import SchemaChange, SchemaChangeKind, schema_change_to_proto
from libs.kafka.writer import OutgoingRecord, TransactionalWriter
from libs.mysql.ddl import show_create_to_schema
from libs.servers.process import kill
from libs.types.order import EventOrder
from libs.types.position import SourcePosition
from libs.types.table import TableId
from protos.headwater.reader_control.v1 import reader_control_pb2 as pb
from protos.headwater.reader_control.v1.reader_control_pb2_grpc import ReaderControlStub

TABLES: Final = 50_000
_TABLES_PER_TRANSACTION: Final = 2_000
_TIMEOUT_S: Final = 120.0
_SHAPES: Final = 90
"""Tables that differ by more than their names; the others are like one of them."""
_AREAS: Final = ("billing", "stock", "crm", "audit", "mail")


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a service."""

    wall_s: float
    """Until it answered; of a reader, until a row that waited for it was published."""
    cpu_s: float
    peak_rss_mb: float


@dataclass(frozen=True, slots=True)
class HistoryFigures:
    """What the restarts cost."""

    tables: int
    from_kafka: Start
    """schema_history with an empty Redis."""
    from_view: Start
    reader: Start
    wire_mb: float
    """Of the changes in Kafka, uncompressed."""
    view_mb: float
    """Of all that Redis holds."""


def measure_history(folder: Path, tables: int) -> HistoryFigures:
    """Write the history, kill and start schema_history with Redis empty and filled, kill and start the reader."""
    with bench_stack(folder) as (servers, start_service):
        make_table(servers)
        shared = {"kafka": {"bootstrap_servers": servers.bootstrap_servers}, "redis": {"url": servers.redis_url}}
        committer = start_service("checkpoint_committer", shared)
        history = start_service("schema_history", shared)
        settings: dict[str, Any] = {
            **reader_settings(servers),
            "kafka": shared["kafka"],
            "snapshot": {"mode": "no_data"},
            "checkpoint_committer": {"address": committer.grpc_address},
        }
        reader = start_service("binlog_reader", {**settings, "schema_history": {"address": history.grpc_address}})
        published = _see_it_follow(reader, servers)
        kill(reader.running)
        kill(history.running)

        wire_bytes = asyncio.run(_write_history(KafkaSettings(bootstrap_servers=servers.bootstrap_servers), tables))
        view = redis.Redis.from_url(servers.redis_url)
        view.flushall()
        history, from_kafka = _started(lambda: start_service("schema_history", shared))
        wait_until(lambda: bool(view.keys("*:heads")), timeout_s=_TIMEOUT_S, what="Redis's view")
        kill(history.running)
        history, from_view = _started(lambda: start_service("schema_history", shared))

        _insert(servers)
        begun_s = time.monotonic()
        reader = start_service("binlog_reader", {**settings, "schema_history": {"address": history.grpc_address}})
        wait_until(lambda: _rows_published(reader) > published, timeout_s=_TIMEOUT_S, what="the row behind the restart")
        wall_s, used = time.monotonic() - begun_s, reader.usage()
        view_mb = int(view.info("memory")["used_memory"]) / 1e6
        started = Start(wall_s, used.cpu_s, used.peak_rss_mb)
        return HistoryFigures(tables, from_kafka, from_view, started, wire_bytes / 1e6, view_mb)


def _started(start: Any) -> tuple[Service, Start]:
    begun_s = time.monotonic()
    service: Service = start()
    used = service.usage()
    return service, Start(time.monotonic() - begun_s, used.cpu_s, used.peak_rss_mb)


def _see_it_follow(reader: Service, servers: Servers) -> int:
    """Insert rows until one is published, and all that follow are: the place in the log from which the reader follows lies
    somewhere after its start. The number of rows that are published then."""

    def is_published() -> bool:
        _insert(servers)
        return _rows_published(reader) > 0

    wait_until(is_published, timeout_s=_TIMEOUT_S, what="the first row")
    before = -1
    while (published := _rows_published(reader)) != before:
        before = published
        time.sleep(1)
    return published


def _insert(servers: Servers) -> None:
    with servers.connect() as connection, connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {DATABASE}.{TABLE} SELECT COUNT(*), 0, '', 0, 0, 0, NOW(), NOW(), NULL, '' FROM {DATABASE}.{TABLE}"
        )


def _rows_published(reader: Service) -> int:
    with grpc.insecure_channel(reader.grpc_address) as channel:
        status = ReaderControlStub(channel).GetStatus(pb.GetStatusRequest())  # type: ignore[no-untyped-call]
        return int(status.rows_published)


# --- the history -------------------------------------------------------------------------------------------------------------


async def _write_history(settings: KafkaSettings, tables: int) -> int:
    """How many bytes they are."""
    writer = TransactionalWriter(settings, SCHEMA_HISTORY_TOPIC, "bench-history")
    await writer.open()
    records = (
        OutgoingRecord(SOURCE.encode(), schema_change_to_proto(change).SerializeToString())
        for change in _changes(tables)
    )
    written = 0
    while part := list(islice(records, _TABLES_PER_TRANSACTION)):
        await writer.write(part)
        written += sum(len(record.value or b"") for record in part)
    writer.close()
    return written


def _changes(tables: int) -> Iterator[SchemaChange]:
    """The first sight of tables of 12 to 20 columns, as a snapshot records it."""
    statements = [_create_table(number) for number in range(_SHAPES)]
    schemas = [show_create_to_schema(_table_id(number), statement) for number, statement in enumerate(statements)]
    for number in range(tables):
        table_id, shape = _table_id(number), number % _SHAPES
        yield SchemaChange(
            source=SOURCE,
            table_id=table_id,
            kind=SchemaChangeKind.SNAPSHOT,
            order=EventOrder(epoch=0, rank=0, tx_ordinal=0),
            position=SourcePosition(source_kind="mysql", token=b"bench"),
            committed_at_us=1_700_000_000_000_000,
            ddl=statements[shape].replace(_table_id(shape).table, table_id.table),
            table_schema=msgspec.structs.replace(schemas[shape], table_id=table_id),
            version=1,
        )


def _table_id(number: int) -> TableId:
    return TableId(database=DATABASE, table=f"{_AREAS[number % len(_AREAS)]}_{number:05d}")


def _create_table(number: int) -> str:
    own = ",\n".join(
        f"  `{_AREAS[(number + nth) % len(_AREAS)]}_{nth}` {_TYPES[(number + nth) % len(_TYPES)]}"
        for nth in range(8 + number % 9)
    )
    return f"""CREATE TABLE `{_table_id(number).table}` (
  `id` bigint NOT NULL AUTO_INCREMENT,
{own},
  `version` int NOT NULL DEFAULT '0',
  `created_at` datetime(3) NOT NULL,
  `updated_at` timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  PRIMARY KEY (`id`),
  KEY `by_creation` (`created_at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci"""


_TYPES: Final = (
    "varchar(255) COLLATE utf8mb4_0900_ai_ci DEFAULT NULL",
    "int DEFAULT NULL",
    "decimal(12,2) NOT NULL DEFAULT '0.00'",
    "bigint unsigned NOT NULL",
    "enum('new','paid','packed','shipped') NOT NULL DEFAULT 'new'",
    "text",
    "json DEFAULT NULL",
    "date DEFAULT NULL",
    "tinyint(1) NOT NULL DEFAULT '0'",
    "varbinary(16) DEFAULT NULL",
)
