"""One micro-batch over many small tables, beside one of the same rows in a single table.

Each batch's changes are one Kafka transaction, so that the job sees them at once. Reported are a job's third batch, after one
that makes the tables and one that merges, and a batch of a JVM that has compiled its code: the middle of the last three.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.sink import SCHEMA, SOURCE, TENANT, envelope, job_usage, produce, random_row, running_kafka, sink_job
from bench.stack import wait_until
from bench.workload import DATABASE
from libs.events.delivered_schema import DeliveredSchema, delivered_schema_key, encode_delivered_schema
from libs.events.names import ORDER_HEADER, SCHEMA_VERSION_HEADER, row_topic, table_schemas_topic
from libs.servers.process import Running, is_alive, last_log_lines, start, stop
from libs.types.order import EventOrder
from libs.types.table import TableId
from libs.types.tenant import SinkMode
from spark.pending.progress import load_progress

TABLES: Final = 200
CHANGES: Final = 100_000
BATCHES: Final = 10
_EARLY_BATCH: Final = 2
_WARM_BATCHES: Final = 3
_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class ManyTablesFigures:
    """Of a batch, by the number of tables that its changes lay in."""

    changes: int
    tables: int
    many: "JobCost"
    one: "JobCost"


@dataclass(frozen=True, slots=True)
class JobCost:
    """The cost of a job's batches."""

    third: "BatchCost"
    warm: "BatchCost"


@dataclass(frozen=True, slots=True)
class BatchCost:
    """What one batch took."""

    wall_s: float
    cpu_s: float


def measure_many_tables(folder: Path, *, tables: int = TABLES, changes: int = CHANGES) -> ManyTablesFigures:
    """Both, one after another, each with a Kafka and a job of its own.

    Raises:
        RuntimeError: the job ended by itself.
    """
    many = _measured(folder / "many", tables, changes)
    one = _measured(folder / "one", 1, changes)
    return ManyTablesFigures(changes, tables, many, one)


def _measured(folder: Path, tables: int, changes: int) -> JobCost:
    chance = random.Random(7)
    with running_kafka(folder) as bootstrap_servers:
        topics = _make_topics(bootstrap_servers, tables)
        producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "transactional.id": "bench", "linger.ms": 50, "log_level": 2}
        )
        producer.init_transactions()
        running = start(sink_job(folder, bootstrap_servers, SinkMode.MIRROR), folder / "logs", dies_with_parent=True)
        costs = []
        try:
            for batch in range(BATCHES):
                before = job_usage(running.pid)
                _write_batch(producer, topics, batch, changes, chance)
                wall_s = _wait(running, folder / "state", rows=(batch + 1) * changes)
                costs.append(BatchCost(wall_s, job_usage(running.pid).cpu_s - before.cpu_s))
        finally:
            stop(running, 20.0)
    warm = sorted(costs[-_WARM_BATCHES:], key=attrgetter("wall_s"))[_WARM_BATCHES // 2]
    return JobCost(costs[_EARLY_BATCH], warm)


def _wait(running: Running, state_dir: Path, *, rows: int) -> float:
    """Until ``rows`` are committed; seconds from the begin of the first micro-batch since to the last commit.

    Where Kafka's markers of the transaction come to some topics later, they are two.
    """
    last = load_progress(state_dir, TENANT)
    begun_at_s: float | None = None

    def is_done() -> bool:
        nonlocal begun_at_s, last
        if not is_alive(running):
            raise RuntimeError(f"the job ended by itself\n{last_log_lines(running)}")
        progress = load_progress(state_dir, TENANT)
        if progress.batch_id > last.batch_id and begun_at_s is None:
            begun_at_s = progress.written_at_us / 1e6 - progress.last_batch.total_s
        last = progress
        return progress.rows >= rows

    wait_until(is_done, timeout_s=_TIMEOUT_S, what=f"{rows:,} changes in the warehouse")
    assert begun_at_s is not None
    return last.written_at_us / 1e6 - begun_at_s


def _make_topics(bootstrap_servers: str, tables: int) -> Sequence[TableId]:
    names = [TableId(database=DATABASE, table=f"orders_{number:03d}") for number in range(tables)]
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [table_schemas_topic(TENANT), *(row_topic(TENANT, SOURCE, name) for name in names)]
    for created in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        created.result(60.0)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for name in names:
        topic = row_topic(TENANT, SOURCE, name)
        schema = msgspec.structs.replace(SCHEMA, table_id=name)
        delivered = DeliveredSchema(topic=topic, source=SOURCE, table_schema=schema)
        producer.produce(
            table_schemas_topic(TENANT), encode_delivered_schema(delivered), delivered_schema_key(topic, schema.version)
        )
    producer.flush(60.0)
    return names


def _write_batch(
    producer: Producer, tables: Sequence[TableId], batch: int, changes: int, chance: random.Random
) -> None:
    """Inserts at first, then updates of every row, the tables in turn."""
    version = (SCHEMA_VERSION_HEADER, str(SCHEMA.version).encode())
    producer.begin_transaction()
    for number in range(changes):
        table, row_id = tables[number % len(tables)], number // len(tables)
        row = random_row(row_id, chance)
        order = EventOrder(epoch=0, rank=batch + 1, tx_ordinal=number + 1).sort_key()
        value = msgspec.json.encode(envelope(table.table, row if batch else None, row))
        headers: list[tuple[str, str | bytes]] = [(ORDER_HEADER, order.encode()), version]
        produce(producer, row_topic(TENANT, SOURCE, table), value, b'{"id":%d}' % row_id, headers)
        producer.poll(0)
    producer.commit_transaction(60.0)
