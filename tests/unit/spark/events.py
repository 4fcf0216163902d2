"""Events as the router writes them, made from plain rows."""

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from libs.events.delivered_schema import DeliveredSchema
from libs.events.names import row_topic
from libs.mysql.logical import column
from libs.types.order import EventOrder
from libs.types.table import Column, TableId, TableSchema

SOURCE = "shop"
ORDERS = TableId(database="shop", table="orders")
COMMITTED_AT_US = 1_795_224_576_114_628

EVENT_COLUMNS = (
    "topic string, kafka_partition int, offset bigint, is_keyless boolean, order string, schema_version int, "
    "is_wrapped boolean, committed_at_us bigint, value string"
)


@dataclass(frozen=True, slots=True)
class Change:
    """One row change; ``rank`` is its transaction's."""

    op: str
    rank: int
    after: Mapping[str, Any] | None = None
    before: Mapping[str, Any] | None = None
    key: Mapping[str, Any] | None = None
    version: int = 1

    @property
    def order(self) -> str:
        return EventOrder(epoch=0, rank=self.rank, tx_ordinal=0 if self.op == "r" else 1).sort_key()

    @property
    def committed_at_us(self) -> int:
        return COMMITTED_AT_US + self.rank

    def value(self) -> dict[str, Any]:
        """Debezium's envelope."""
        source = {"name": SOURCE, "snapshot": "false", "ts_us": self.committed_at_us, "ts_ns": 0, "table": "orders"}
        envelope = {"before": self.before, "after": self.after, "source": source, "transaction": None, "op": self.op}
        return {**envelope, "ts_ms": 1, "ts_us": 1_000, "ts_ns": 1_000_000}


def orders_schema(*columns: Column, version: int = 1, key: tuple[str, ...] = ("id",)) -> DeliveredSchema:
    """``shop.orders`` for tenant acme; by default with an id and a note."""
    chosen = columns or (column("id", "int", is_optional=False), column("note", "varchar(20)", charset="utf8mb4"))
    return delivered("acme", TableSchema(table_id=ORDERS, columns=chosen, key=key, version=version))


def delivered(tenant: str, schema: TableSchema) -> DeliveredSchema:
    return DeliveredSchema(topic=row_topic(tenant, SOURCE, schema.table_id), source=SOURCE, table_schema=schema)


def events(spark: SparkSession, topic: str, changes: Iterable[Change], *, is_wrapped: bool = False) -> DataFrame:
    """What ``read_topics`` gives for ``changes``, in the order in which they stand."""
    offsets = itertools.count()
    rows = [
        (
            topic,
            0,
            next(offsets),
            change.op == "t",
            change.order,
            change.version,
            is_wrapped,
            change.committed_at_us,
            json.dumps({"schema": {}, "payload": change.value()} if is_wrapped else change.value()),
        )
        for change in changes
    ]
    return spark.createDataFrame(rows, EVENT_COLUMNS)
