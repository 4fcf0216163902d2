"""What programs of sinks share: a broker, the session, and warehouses, each read by code that shares nothing with its sink."""

import secrets
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from libs.config.connections import KafkaSettings
from libs.sink_state.progress import SinkProgress
from libs.types.tenant import SinkSettings, SourceSelection, TenantSpec
from libs.types.warehouse import WarehouseTable
from spark.batch.apply import apply_batch
from spark.batch.files import batch_files
from spark.batch.newest_events import NewestEvents
from spark.batch.tenant_sink import BatchLimits, StateFolder, TenantSink
from spark.jvm.java import activate
from spark.kafka.delivered_schemas import DeliveredSchemas
from spark.pending.progress import load_progress
from spark.pending.work import pending_work_in
from spark.sinks.delta.sink import open_sink as open_delta_sink
from spark.sinks.port import BatchIdentity, Sink
from spark.sinks.postgresql.sink import open_sink as open_postgresql_sink
from spark.tenant.stream import TenantStream
from spark.tenant.stream_log import StreamLog
from tests.conftest import KafkaBroker, PostgresqlServer, start_kafka_in, start_postgresql_in
from tests.contract.test_sinks import delta_rows, postgresql_rows, postgresql_settings
from tests.spark_session import shared_spark

SOURCE: Final = "fz"
KINDS: Final = ("iceberg", "delta", "postgresql")
_ALL: Final = 1 << 30
_TIMEOUT_S: Final = 60.0

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Warehouse:
    """One of ``KINDS``, open."""

    sink: Sink
    rows: Callable[[WarehouseTable], list[Row]]


class Warehouses:
    """Opened once for all programs; a server starts with the first program that asks for it."""

    def __init__(
        self,
        folder: Path,
        servers: ExitStack,
        kafka: KafkaBroker | None = None,
        postgresql: PostgresqlServer | None = None,
    ) -> None:
        """``kafka``, ``postgresql``: those that run already."""
        self._folder = folder
        self._servers = servers
        self._kafka = kafka
        self._postgresql = postgresql
        self._open: dict[str, Warehouse] = {}
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None

    @property
    def kafka(self) -> KafkaSettings:
        if self._kafka is None:
            self._kafka = start_kafka_in(self._folder / "kafka", self._servers)
        return KafkaSettings(bootstrap_servers=self._kafka.bootstrap_servers)

    def of(self, kind: str) -> Warehouse:
        """The warehouse of that name."""
        if kind not in self._open:
            self._open[kind] = self._opened(kind)
        return self._open[kind]

    def _opened(self, kind: str) -> Warehouse:
        shared = shared_spark()
        if kind == "iceberg":
            return Warehouse(shared.sink, shared.rows)
        if kind == "delta":
            return Warehouse(open_delta_sink(shared.delta), lambda table: delta_rows(shared.delta, table))
        server = self._postgresql or start_postgresql_in(self._folder / "postgresql", self._servers)
        self._postgresql = server
        return Warehouse(
            open_postgresql_sink(postgresql_settings(server)), lambda table: postgresql_rows(server, table)
        )

    def create_topic(self, name: str) -> None:
        """Of one Kafka partition."""
        self._admin = self._admin or AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers, "log_level": 0})
        for done in self._admin.create_topics([NewTopic(name, 1, 1)]).values():
            done.result(_TIMEOUT_S)

    def write(self, topic: str, record: Any) -> None:
        """Durable once ``flush`` returned."""
        if self._producer is None:
            self._producer = Producer(
                {"bootstrap.servers": self.kafka.bootstrap_servers, "linger.ms": 0, "log_level": 0}
            )
        self._producer.produce(topic, record.value, record.key, headers=list(record.headers))

    def flush(self) -> None:
        if self._producer is not None:
            assert self._producer.flush(_TIMEOUT_S) == 0


class TenantLife:
    """A tenant's sink: ``apply_batch`` as the job calls it, over the offsets that a program says. Close it at the end."""

    def __init__(self, warehouses: Warehouses, settings: SinkSettings) -> None:
        self.settings = settings
        self.spec = TenantSpec(
            tenant=f"f{secrets.token_hex(4)}", sources=(SourceSelection(name=SOURCE),), sink=settings
        )
        self.warehouse = warehouses.of(settings.warehouse)
        self._warehouses = warehouses
        self._state = tempfile.TemporaryDirectory(prefix="fuzz-sink-")
        self._spark: SparkSession | None = None
        self._stream = self._opened_stream()
        self._sink = self._opened_sink()

    @property
    def name(self) -> str:
        return self.spec.tenant

    @property
    def progress(self) -> SinkProgress:
        return load_progress(Path(self._state.name), self.name)

    def apply(self, ends: dict[str, int], *, is_cut_off: bool) -> None:
        """One batch, up to the offsets of ``ends``; one that is cut off before it is noted comes again, in another life."""
        self._spark = self._spark or shared_spark().session.newSession()
        self._batch(ends)
        if is_cut_off:
            self._stream, self._sink = self._opened_stream(), self._opened_sink()
            self._batch(ends)
        self._stream.done()

    def close(self) -> None:
        """Drop the tables."""
        self.warehouse.sink.drop_tables(shared_spark().session, self.name)
        self._state.cleanup()

    def _batch(self, ends: dict[str, int]) -> None:
        assert self._spark is not None
        activate(self._spark)
        found = {topic: {0: end} for topic, end in ends.items()}
        number = self._stream.next_batch(found, lambda partitions: dict.fromkeys(partitions, 0))
        apply_batch(self._sink, BatchIdentity(self._stream.query_id, number), self._spark)

    def _opened_stream(self) -> TenantStream:
        stream_log = StreamLog(Path(self._state.name), self.name)
        return TenantStream(stream_log, self.spec, limit=_ALL, fails_on_loss=True)

    def _opened_sink(self) -> TenantSink:
        folder, kafka = Path(self._state.name), self._warehouses.kafka
        return TenantSink(
            tenant=self.spec,
            settings=self.settings,
            sink=self.warehouse.sink,
            kafka=kafka,
            schemas=DeliveredSchemas(kafka, self.name),
            state=StateFolder(folder),
            pending=pending_work_in(folder, self.name),
            limits=BatchLimits(offsets=_ALL, parked_keys=1_000, tables_in_parallel=3),
            files=batch_files(folder, self.name),
            newest_events=NewestEvents(kafka),
        )


def sink_settings(text: str) -> SinkSettings:
    """A tenant of a program."""
    return msgspec.json.decode(text, type=SinkSettings)
