"""Shared by the router's tests: a source that publishes ChangeBatches, routers as processes, and readers of topics."""

import base64
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Message, Producer

from libs.config.connections import GrpcClientSettings, KafkaSettings
from libs.events.batch import BatchBuilder, BatchIdentity, RowRun
from libs.events.names import changes_topic
from libs.events.schema_change import SchemaChangeKind
from libs.kafka.clients import TopicSpec, ensure_topics
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.servers.ports import LOOPBACK, free_port
from libs.servers.process import ProcessSpec, Running, kill, stop, wait_ready
from libs.types.order import EventOrder
from libs.types.position import SourcePosition
from libs.types.table import Column, TableId, TableSchema
from libs.types.value import LogicalKind, LogicalType
from tests.kafka_reading import TopicRecords, is_without_open_transaction
from tests.service_forks import start_fork
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]
READY_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 120.0
SETTLE_TIMEOUT_S = 400.0
ORDERS = TableId(database="shop", table="orders")


def column(name: str, kind: LogicalKind = LogicalKind.STRING, source_type: str = "varchar(50)", **more: Any) -> Column:
    """A column; texts unless said otherwise."""
    return Column(name=name, source_type=source_type, logical_type=LogicalType(kind=kind), **more)


def orders_schema(*extra: Column) -> TableSchema:
    """``shop.orders``: id, region, email, and columns that a later version adds."""
    return TableSchema(
        table_id=ORDERS,
        columns=(
            column("id", LogicalKind.INT64, "bigint", is_optional=False),
            column("region"),
            column("email"),
            *extra,
        ),
        key=("id",),
    )


def row_value(op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> bytes:
    """A Debezium payload, as short as it may be."""
    source = {"version": "3.6.1.Final", "connector": "mysql", "name": "s", "ts_ms": 1, "table": "orders"}
    payload = {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 2}
    return json.dumps(payload, separators=(",", ":")).encode()


def order_row(number: int, **changed: Any) -> dict[str, Any]:
    """A row of ``shop.orders``."""
    return {"id": number, "region": "EU" if number % 2 else "US", "email": f"{number}@example.org", **changed}


class ChangesSource:
    """Stands for a reader: writes ChangeBatches in Kafka transactions, some of which it aborts."""

    def __init__(self, bootstrap_servers: str, source: str, *, kafka_partitions: int = 1) -> None:
        self.name = source
        self.rank = 0
        kafka = KafkaSettings(bootstrap_servers=bootstrap_servers)
        ensure_topics(kafka, [TopicSpec(name=changes_topic(source), kafka_partitions=kafka_partitions)])
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "transactional.id": f"test-reader-{source}",
                "compression.type": "lz4",
                "linger.ms": 1,
            }
        )
        self._producer.init_transactions(120)
        identity = BatchIdentity(
            source=source, source_partition="0", connector="mysql", run_id="run-1", fencing_token=1
        )
        self.batch = BatchBuilder(identity)

    def run(
        self,
        rows: Sequence[tuple[str, bytes, bytes]],
        *,
        version: int = 1,
        table: TableId = ORDERS,
        snapshot: bool = False,
    ) -> None:
        """Add one run of (op, key, value) to the batch: a transaction of its own."""
        self.rank += 1
        run = RowRun(
            table_id=table,
            schema_version=version,
            transaction_id="" if snapshot else f"gtid:{self.rank}",
            first_order=EventOrder(epoch=0, rank=self.rank, tx_ordinal=0 if snapshot else 1),
            committed_at_us=time.time_ns() // 1000,
            is_snapshot=snapshot,
        )
        self.batch.open_run(run)
        for op, key, value in rows:
            run.rows.append(ord(op), key, value)
        self.batch.close_run()

    def creates(self, numbers: Sequence[int], *, version: int = 1, table: TableId = ORDERS) -> None:
        """Add a run of created orders."""
        self.run(
            [("c", b'{"id":%d}' % number, row_value("c", None, order_row(number))) for number in numbers],
            version=version,
            table=table,
        )

    def publish(self, *, abort: bool = False, kafka_partition: int = 0) -> None:
        """Write the added events as one batch, in one transaction."""
        payload, _ = self.batch.take(time.time_ns() // 1000)
        self._producer.begin_transaction()
        self._producer.produce(changes_topic(self.name), payload, self.name.encode(), kafka_partition)
        if abort:
            self._producer.flush(120)
            self._producer.abort_transaction(120)
        else:
            self._producer.commit_transaction(120)


async def record_schema(client: GrpcClientSettings, source: str, schema: TableSchema, *, rank: int = 0) -> int:
    """Record a table's new version with schema_history; the version."""
    async with SchemaHistoryClient(client) as history:
        return await history.record_schema_change(
            source=source,
            table_id=schema.table_id,
            kind=SchemaChangeKind.CREATE,
            order=EventOrder(epoch=0, rank=rank, tx_ordinal=0),
            position=SourcePosition(source_kind="mysql", token=str(rank).encode()),
            committed_at_us=1,
            ddl=f"CREATE TABLE {schema.table_id} -- {len(schema.columns)}",
            table_schema=schema,
        )


@dataclass(slots=True)
class RouterProcess:
    """``python -m services.router``, forked; ready once its lanes are open (or, with ``waits=False``, never asked)."""

    folder: Path
    settings: Mapping[str, object]
    http_port: int = field(default_factory=free_port)
    grpc_port: int = field(default_factory=free_port)
    running: Running | None = None

    def start(self, *, failpoints: str = "", waits: bool = True) -> None:
        """Start it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "router.yaml"
        state = str(self.folder / "state")
        own = {"state_folder": state, "telemetry": {"http_port": self.http_port}, "grpc": {"port": self.grpc_port}}
        path.write_text(yaml.safe_dump({**self.settings, **own}))
        spec = ProcessSpec(
            name="router",
            command=(sys.executable, "-m", "services.router", "--settings", str(path)),
            environ={"HEADWATER_FAILPOINTS": failpoints},
            working_dir=REPOSITORY,
            ready=lambda: self.get("/readyz")[0] == 200,
        )
        self.running = start_fork(spec, self.folder / "logs")
        if waits:
            wait_ready(self.running, READY_TIMEOUT_S)

    @property
    def is_running(self) -> bool:
        """The process lives."""
        return self.running is not None and self.running.popen.poll() is None

    @property
    def log_text(self) -> str:
        """Everything it wrote, over all starts."""
        assert self.running is not None
        return self.running.log_path.read_text()

    def kill(self) -> None:
        """As a power cut would."""
        assert self.running is not None
        kill(self.running)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        return stop(self.running, STOP_TIMEOUT_S) if self.running is not None else 0

    def wait_for_exit(self, timeout_s: float = 240.0) -> int:
        """The exit code of a process that ends by itself."""
        assert self.running is not None
        return self.running.popen.wait(timeout_s)

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page of its telemetry endpoint; (0, "") while nobody answers."""
        try:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{self.http_port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""


def partitions_of(router: RouterProcess) -> int:
    """How many it was assigned last."""
    lines = [json.loads(line) for line in router.log_text.splitlines() if '"event": "partitions_assigned"' in line]
    return int(lines[-1]["partitions"]) if lines else 0


def read_topic(bootstrap_servers: str, topic: str) -> list[Message]:
    """Every committed record of a topic, Kafka partition by Kafka partition; none where the topic is missing."""
    committed = TopicRecords(bootstrap_servers, topic)
    try:
        return committed.read()
    finally:
        committed.close()


def read_closed_topic(bootstrap_servers: str, topic: str) -> list[Message]:
    """The same once no transaction is open: Kafka answers a commit before its records are visible."""
    wait_until(
        lambda: is_without_open_transaction(bootstrap_servers, topic),
        because=f"Kafka has written the markers of the last commit to {topic}",
    )
    return read_topic(bootstrap_servers, topic)


def read_until(bootstrap_servers: str, topic: str, enough: Callable[[list[Message]], bool]) -> list[Message]:
    """The records of a topic, once there are ``enough``."""
    records = TopicRecords(bootstrap_servers, topic)
    try:
        wait_until(
            lambda: enough(records.read()),
            because=f"enough records are in {topic}",
            seen=lambda: f"{len(records.read())} records",
            within_s=SETTLE_TIMEOUT_S,
            pause_s=0.2,
        )
        return records.read()
    finally:
        records.close()


def payloads(messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    """The values that are no tombstones, as documents."""
    for message in messages:
        value = message.value()
        if value is not None:
            yield json.loads(value)


def created_ids(messages: Sequence[Message]) -> list[int]:
    """The ids of the created rows, in order."""
    return [payload["after"]["id"] for payload in payloads(messages) if payload["after"] is not None]


def header(message: Message, name: str) -> bytes | None:
    """A header's value; None where there is none."""
    return dict(message.headers() or []).get(name)  # type: ignore[return-value]


def decoded(text: str) -> bytes:
    """base64 as bytes."""
    return base64.b64decode(text)
