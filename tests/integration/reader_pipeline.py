"""A binlog reader as a process, beside the two services that it needs, and the rows that it published."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from click.testing import Result

from libs.events.names import changes_topic
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch, Entry, Run
from tests.conftest import KafkaBroker, MysqlServer
from tests.headwater_command import run_here
from tests.integration.service_process import ServiceProcess, Services
from tests.kafka_reading import TopicRecords
from tests.waiting import WITHIN_S, wait_until

_REPLICA_SERVER_ID = iter(range(7_001, 8_000))


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One row event as it stands in the changes topic."""

    table: str
    op: str
    key: dict[str, Any] | None
    value: dict[str, Any]
    order: tuple[int, int, int]
    schema_version: int
    is_snapshot: bool


class ReaderPipeline:
    """``start`` and ``kill`` the reader; read its published rows with ``rows``."""

    def __init__(self, source: str, kafka: KafkaBroker, reader: ServiceProcess, services: Services) -> None:
        self.source = source
        self.reader = reader
        self.kafka = kafka
        self.services = services
        self._partition = 0
        self._committed: TopicRecords | None = None
        self._batches: list[tuple[int, ChangeBatch]] = []

    @property
    def partition(self) -> int:
        """Kafka partition of the changes topic that is read."""
        return self._partition

    @partition.setter
    def partition(self, partition: int) -> None:
        self._close()
        self._partition = partition

    def batches(self) -> list[ChangeBatch]:
        """Every committed batch, in order."""
        return [batch for _, batch in self.records()]

    def records(self) -> list[tuple[int, ChangeBatch]]:
        """Every committed batch with its offset, in order."""
        if self._committed is None:
            topic = changes_topic(self.source)
            self._committed = TopicRecords(self.kafka.bootstrap_servers, topic, self.partition)
        records = self._committed.read()
        self._batches += [
            (record.offset() or 0, ChangeBatch.FromString(record.value() or b""))
            for record in records[len(self._batches) :]
        ]
        return [*self._batches]

    def entries(self) -> Iterator[Entry]:
        """Every entry of every committed batch."""
        for batch in self.batches():
            yield from batch.entries

    def rows(self) -> list[PublishedRow]:
        """Every committed row event, in order."""
        return [row for entry in self.entries() if entry.WhichOneof("entry") == "run" for row in rows_of_run(entry.run)]

    def wait_for_rows(
        self, is_enough: Callable[[list[PublishedRow]], bool], timeout_s: float = WITHIN_S
    ) -> list[PublishedRow]:
        """The rows, once there are enough of them."""
        found: list[PublishedRow] = []

        def is_there() -> bool:
            found[:] = self.rows()
            return is_enough(found)

        wait_until(
            is_there,
            because="enough rows are published",
            seen=lambda: f"{len(found)} rows; the reader's log:\n{self.reader.log_text[-3000:]}",
            within_s=timeout_s,
            pause_s=0.2,
        )
        return found

    def wait_for_log(self) -> None:
        """Return once the reader follows the log: rows that are written from now on are no part of its snapshot."""
        wait_until(
            lambda: '"log_opened"' in self.reader.log_text,
            because="the reader opens the log",
            seen=lambda: self.reader.log_text[-3000:],
        )

    def stop(self) -> None:
        """Stop the reader."""
        self.reader.stop()
        self._close()

    def _close(self) -> None:
        if self._committed is not None:
            self._committed.close()
        self._committed, self._batches = None, []


def reset_source(source: str, kafka: KafkaBroker, services: Services, file: Path) -> str:
    """`headwater reset` of a source whose readers have ended, once their leases are over; its output. ``file``: is written."""
    committer = {"address": services.checkpoint_committer.client_settings.address}
    mesh = {
        "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
        "services": [{"name": "checkpoint-committer", "grpc": committer}],
    }
    file.write_text(yaml.safe_dump(mesh))
    said: list[Result] = []

    def is_done() -> bool:
        said[:] = [run_here("reset", source, "--yes", "--mesh", str(file))]
        return said[0].exit_code == 0

    wait_until(is_done, because="the source is reset", seen=lambda: said[0].output, pause_s=0.5)
    return said[0].output


def pipeline_of(
    folder: Path, source: str, kafka: KafkaBroker, services: Services, mysql: MysqlServer, **settings: Any
) -> ReaderPipeline:
    """The reader is not started yet; ``settings`` win over the usual ones."""
    reader = ServiceProcess.of(
        "binlog_reader",
        folder,
        {
            "source": source,
            "database": {"host": mysql.host, "port": mysql.port, "user": "root"},
            "replica_server_id": next(_REPLICA_SERVER_ID),
            "lease_s": 3,
            "kafka": {"bootstrap_servers": kafka.bootstrap_servers},
            **services.addresses,
            **settings,
        },
    )
    return ReaderPipeline(source, kafka, reader, services)


def rows_of_run(run: Run) -> Iterator[PublishedRow]:
    """The row events of a run, in order."""
    for index, (op, key, value) in enumerate(zip(run.ops.decode(), run.keys, run.values, strict=True)):
        yield PublishedRow(
            table=f"{run.database}.{run.table}",
            op=op,
            key=json.loads(key) if key else None,
            value=json.loads(value),
            order=(run.epoch, int(run.rank), 0 if run.is_snapshot else run.first_tx_ordinal + index),
            schema_version=run.schema_version,
            is_snapshot=run.is_snapshot,
        )
