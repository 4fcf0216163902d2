"""Events as the router writes them, made from plain rows."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from libs.events.delivered_schema import DeliveredSchema
from libs.events.names import ORDER_HEADER, SCHEMA_VERSION_HEADER, row_topic
from libs.mysql.logical import column
from libs.types.order import EventOrder
from libs.types.table import Column, TableId, TableSchema
from spark.kafka.read_topics import events_of
from spark.transforms.local_rows import local_rows

SOURCE = "shop"
ORDERS = TableId(database="shop", table="orders")
COMMITTED_AT_US = 1_795_224_576_114_628

RECORD_COLUMNS = (
    "topic string, partition int, offset bigint, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)
Record = tuple[str, int, int, bytes | None, bytes | None, list[tuple[str, bytes]]]


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
        source = {
            "version": "3.6.1",
            "name": SOURCE,
            "snapshot": "false",
            "ts_us": self.committed_at_us,
            "ts_ns": 0,
            "table": "orders",
        }
        envelope = {"before": self.before, "after": self.after, "source": source, "transaction": None, "op": self.op}
        return {**envelope, "ts_ms": 1, "ts_us": 1_000, "ts_ns": 1_000_000}


def orders_schema(*columns: Column, version: int = 1, key: tuple[str, ...] = ("id",)) -> DeliveredSchema:
    """``shop.orders`` for tenant acme; by default with an id and a note."""
    chosen = columns or (column("id", "int", is_optional=False), column("note", "varchar(20)", charset="utf8mb4"))
    return delivered("acme", TableSchema(table_id=ORDERS, columns=chosen, key=key, version=version))


def delivered(tenant: str, schema: TableSchema) -> DeliveredSchema:
    return DeliveredSchema(topic=row_topic(tenant, SOURCE, schema.table_id), source=SOURCE, table_schema=schema)


def events(
    spark: SparkSession,
    topic: str,
    changes: Iterable[Change],
    *,
    is_wrapped: bool = False,
    with_before: bool = False,
) -> DataFrame:
    """The frame that ``read_topics`` gives for ``changes``, in the order in which they stand."""
    rows = [
        record(
            topic,
            change.value(),
            key=None if change.op == "t" else change.key or {"id": (change.after or change.before or {}).get("id")},
            order=change.order,
            version=change.version,
            offset=offset,
            is_wrapped=is_wrapped,
        )
        for offset, change in enumerate(changes)
    ]
    return events_of(local_rows(spark, rows, RECORD_COLUMNS), with_before=with_before)


def record(
    topic: str,
    value: Any,
    *,
    key: Any = None,
    order: str = EventOrder(epoch=0, rank=1, tx_ordinal=1).sort_key(),
    version: int = 1,
    offset: int = 0,
    is_wrapped: bool = False,
) -> Record:
    """One Kafka record as Spark's reader gives it, with the router's headers; its JSON is as compact as the router's."""
    headers = [(ORDER_HEADER, order.encode()), (SCHEMA_VERSION_HEADER, str(version).encode())]
    key_text = None if key is None else json_bytes(key, is_wrapped=is_wrapped)
    return topic, 0, offset, key_text, json_bytes(value, is_wrapped=is_wrapped), headers


def json_bytes(payload: Any, *, is_wrapped: bool = False) -> bytes:
    """Compact JSON; with a Connect schema before the payload, if wanted."""
    wrapped = {"schema": {"type": "struct", "optional": False}, "payload": payload} if is_wrapped else payload
    return json.dumps(wrapped, separators=(",", ":"), ensure_ascii=False).encode()
