"""CPU of the sink job a table and round, by mode: tables of different shapes, in each of which a round updates some rows.

A round is one Kafka transaction over all tables, so that the job sees it at once. The last rounds count: in the first ones the
JVM compiles.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.sink import SCHEMA, SOURCE, TENANT, envelope, job_usage, produce, random_row, running_kafka, sink_job
from bench.stack import wait_until
from bench.workload import DATABASE
from libs.events.delivered_schema import DeliveredSchema, delivered_schema_key, encode_delivered_schema
from libs.events.names import ORDER_HEADER, SCHEMA_VERSION_HEADER, row_topic, table_schemas_topic
from libs.mysql.logical import column
from libs.servers.process import is_alive, last_log_lines, start, stop
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from libs.types.tenant import SinkMode
from spark.pending.progress import load_progress

TABLES: Final = 30
ROWS: Final = 50
ROUNDS: Final = 7
_COUNTED_ROUNDS: Final = 3
_TIMEOUT_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class TablesFigures:
    """Of one mode."""

    mode: SinkMode
    tables: int
    rows: int
    """That each round updates in each table."""
    first_cpu_s: float
    """CPU seconds of the round that makes the tables."""
    cpu_s: float
    """CPU seconds a round, the median of the last ones."""

    @property
    def cpu_s_of_table(self) -> float:
        return self.cpu_s / self.tables


def measure_tables(
    folder: Path, tables: int, mode: SinkMode, *, rows: int = ROWS, say: Callable[[str], None]
) -> TablesFigures:
    """Insert ``rows`` into each table, then update them, round after round.

    Raises:
        RuntimeError: the job ended by itself.
    """
    chance, schemas, state = random.Random(7), [_schema(number) for number in range(tables)], folder / "state"
    with running_kafka(folder) as bootstrap_servers:
        _make_topics(bootstrap_servers, schemas)
        producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": "bench", "linger.ms": 50})
        producer.init_transactions()
        running = start(sink_job(folder, bootstrap_servers, mode), folder / "logs", dies_with_parent=True)
        costs = []
        try:
            for number in range(ROUNDS):
                before = job_usage(running.pid).cpu_s
                _write_round(producer, schemas, number, rows, chance)

                def is_done(wanted: int = (number + 1) * rows * tables) -> bool:
                    if not is_alive(running):
                        raise RuntimeError(f"the job ended by itself\n{last_log_lines(running)}")
                    return load_progress(state, TENANT).rows >= wanted

                wait_until(is_done, timeout_s=_TIMEOUT_S, what="a round in all tables")
                costs.append(job_usage(running.pid).cpu_s - before)
                say(f"{mode.value}: round {number + 1} of {ROUNDS}: {costs[-1]:.1f} CPU s")
        finally:
            stop(running, 20.0)
    return TablesFigures(mode, tables, rows, costs[0], statistics.median(costs[-_COUNTED_ROUNDS:]))


def _schema(number: int) -> TableSchema:
    """No two tables are of one shape."""
    more = tuple(column(f"more_{place}", "int") for place in range(number))
    table = TableId(database=DATABASE, table=f"orders_{number:03d}")
    return msgspec.structs.replace(SCHEMA, table_id=table, columns=(*SCHEMA.columns, *more))


def _make_topics(bootstrap_servers: str, schemas: Sequence[TableSchema]) -> None:
    names = {schema.table_id: row_topic(TENANT, SOURCE, schema.table_id) for schema in schemas}
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [NewTopic(topic, 1, 1) for topic in (table_schemas_topic(TENANT), *names.values())]
    for created in admin.create_topics(topics).values():
        created.result(60.0)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for schema in schemas:
        topic = names[schema.table_id]
        delivered = DeliveredSchema(topic=topic, source=SOURCE, table_schema=schema)
        key = delivered_schema_key(topic, schema.version)
        produce(producer, table_schemas_topic(TENANT), encode_delivered_schema(delivered), key, [])
    producer.flush(60.0)


def _write_round(
    producer: Producer, schemas: Sequence[TableSchema], number: int, rows: int, chance: random.Random
) -> None:
    producer.begin_transaction()
    for place, schema in enumerate(schemas):
        version = (SCHEMA_VERSION_HEADER, str(schema.version).encode())
        for row_id in range(rows):
            more: dict[str, Any] = {f"more_{at}": chance.randrange(1_000) for at in range(place)}
            row = {**random_row(row_id, chance), **more}
            order = EventOrder(epoch=0, rank=number + 1, tx_ordinal=place * rows + row_id + 1).sort_key()
            value = msgspec.json.encode(envelope(schema.table_id.table, row if number else None, row))
            headers: list[tuple[str, str | bytes]] = [(ORDER_HEADER, order.encode()), version]
            produce(producer, row_topic(TENANT, SOURCE, schema.table_id), value, b'{"id":%d}' % row_id, headers)
            producer.poll(0)
    producer.commit_transaction()
