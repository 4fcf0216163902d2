"""The router's records for one tenant, and a plain model of the tables that the sink should make of them."""

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from libs.events.delivered_schema import DeliveredSchema, delivered_schema_key, encode_delivered_schema
from libs.events.names import ORDER_HEADER, SCHEMA_VERSION_HEADER, row_topic, table_schemas_topic, transactions_topic
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from tests.waiting import wait_until

SOURCE = "shop"
TIMEOUT_S = 120.0

Row = Mapping[str, Any]


class TenantTopics:
    """Writes a tenant's topics in transactions, as the router does."""

    def __init__(self, bootstrap_servers: str, tenant: str) -> None:
        self.tenant = tenant
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "transactional.id": f"test-{tenant}", "log_level": 0}
        )
        self._producer.init_transactions(TIMEOUT_S)
        self._kafka_partitions: dict[str, int] = {}
        self._create(table_schemas_topic(tenant), 1)
        self._rank = 0
        self._boundaries: str | None = None

    def create_table(self, schema: TableSchema, *, kafka_partitions: int = 1) -> str:
        """The table's topic, made."""
        topic = row_topic(self.tenant, SOURCE, schema.table_id)
        self._create(topic, kafka_partitions)
        return topic

    def create_boundaries(self) -> None:
        """The topic of BEGIN and END, made: from now on they are written."""
        self._boundaries = transactions_topic(self.tenant, SOURCE)
        self._create(self._boundaries, 1)

    def forget_boundaries(self) -> None:
        """A BEGIN, and from now on no END comes."""
        assert self._boundaries is not None
        self._producer.begin_transaction()
        self._boundary("BEGIN")
        self._producer.commit_transaction(TIMEOUT_S)
        self._boundaries = None

    def forget_before(self, topic: str, offset: int) -> None:
        """As retention does, of the topic's first Kafka partition."""
        for done in self._admin.delete_records([TopicPartition(topic, 0, offset)]).values():
            done.result(TIMEOUT_S)

    def delete(self, topic: str) -> None:
        """Delete the topic, with its records."""
        for done in self._admin.delete_topics([topic]).values():
            done.result(TIMEOUT_S)

    @contextmanager
    def transaction(self, *, is_aborted: bool = False) -> Iterator["Transaction"]:
        """One transaction of the source, and of Kafka unless it is split. After it nothing is open: a reader that begins then
        finds all of it, in one batch."""
        self._rank += 1
        self._producer.begin_transaction()
        self._boundary("BEGIN")
        transaction = Transaction(self.tenant, self._producer, self._rank)
        yield transaction
        self._boundary("END")
        if is_aborted:
            self._producer.flush(TIMEOUT_S)  # else the records never reach Kafka, and nothing is aborted there
            self._producer.abort_transaction(TIMEOUT_S)
        else:
            self._producer.commit_transaction(TIMEOUT_S)
        written = transaction.topics | ({self._boundaries} if self._boundaries else set())
        wait_until(
            lambda: (
                self._ends(written, IsolationLevel.READ_COMMITTED)
                == self._ends(written, IsolationLevel.READ_UNCOMMITTED)
            ),
            because="Kafka has written the markers of the transaction, which it does after its answer",
            pause_s=0.005,
        )

    def _ends(self, topics: Iterable[str], isolation: IsolationLevel) -> dict[TopicPartition, int]:
        wanted = {
            TopicPartition(topic, number): OffsetSpec.latest()
            for topic in topics
            for number in range(self._kafka_partitions.get(topic, 1))
        }
        if not wanted:
            return {}
        answers = self._admin.list_offsets(wanted, isolation_level=isolation)
        return {place: answer.result(TIMEOUT_S).offset for place, answer in answers.items()}

    def _boundary(self, status: str) -> None:
        if self._boundaries is not None:
            self._producer.produce(self._boundaries, json.dumps({"status": status, "id": gtid(self._rank)}).encode())

    def _create(self, topic: str, kafka_partitions: int) -> None:
        for done in self._admin.create_topics([NewTopic(topic, kafka_partitions, 1)]).values():
            done.result(TIMEOUT_S)
        self._kafka_partitions[topic] = kafka_partitions


@dataclass(slots=True)
class Transaction:
    """Events of one transaction; ordinals count from 1."""

    tenant: str
    producer: Producer
    rank: int
    ordinal: int = 0
    committed_at_us: int = 1_795_224_576_114_628
    topics: set[str] = field(default_factory=set)
    """Those written to."""

    def split(self) -> None:
        """The rest comes in a further transaction of Kafka's, as of one that is too large."""
        self.producer.commit_transaction(TIMEOUT_S)
        self.producer.begin_transaction()

    def schema(self, schema: TableSchema) -> None:
        """Write a version for the tenant, before its first row."""
        topic = row_topic(self.tenant, SOURCE, schema.table_id)
        record = DeliveredSchema(topic=topic, source=SOURCE, table_schema=schema)
        key = delivered_schema_key(topic, schema.version)
        self.producer.produce(table_schemas_topic(self.tenant), encode_delivered_schema(record), key)
        self.topics.add(table_schemas_topic(self.tenant))

    def change(
        self,
        schema: TableSchema,
        *,
        op: str,
        before: Row | None = None,
        after: Row | None = None,
        is_wrapped: bool = False,
        committed_at_us: int | None = None,
    ) -> str:
        """One row event, and a tombstone after a delete; its order."""
        self.ordinal += 1
        order = EventOrder(epoch=0, rank=self.rank, tx_ordinal=0 if op == "r" else self.ordinal).sort_key()
        source = {
            "version": "3.6.1",
            "name": SOURCE,
            "snapshot": "false",
            "ts_us": committed_at_us or self.committed_at_us,
        }
        source |= {"gtid": gtid(self.rank), "file": "binlog.000001", "pos": self.ordinal, "query": None}
        envelope = {"before": before, "after": after, "source": source, "transaction": None, "op": op}
        envelope |= {"ts_ms": 1, "ts_us": 1_000, "ts_ns": 1_000_000}
        row = after or before
        key = {name: row[name] for name in schema.key} if row is not None and schema.key else None
        topic = row_topic(self.tenant, SOURCE, schema.table_id)
        headers = [(ORDER_HEADER, order.encode()), (SCHEMA_VERSION_HEADER, str(schema.version).encode())]
        key_bytes = None if key is None else _json(key, is_wrapped)
        self.producer.produce(topic, _json(envelope, is_wrapped), key_bytes, headers=headers)
        self.topics.add(topic)
        if op == "d" and key_bytes is not None:
            self.producer.produce(topic, None, key_bytes, headers=headers)
        return order


def gtid(rank: int) -> str:
    """Of the transaction of that rank."""
    return f"3e11fa47-71ca-11e1-9e33-c80aa9429562:{rank}"


def _json(payload: Mapping[str, Any], is_wrapped: bool) -> bytes:
    return json.dumps({"schema": {"type": "struct"}, "payload": payload} if is_wrapped else payload).encode()


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A row's values from one change to another."""

    id: int
    note: str | None
    opened_by: str
    closed_by: str | None = None


@dataclass(slots=True)
class Model:
    """One table in plain Python: its rows by key, and every change made to it."""

    schema: TableSchema
    rows: dict[int, Row] = field(default_factory=dict)
    orders: list[str] = field(default_factory=list)
    versions: list["Version"] = field(default_factory=list)
    """Of every row that was ever there, as they began."""

    def change_at_random(self, transaction: Transaction, chance: random.Random, *, keys: int) -> None:
        """An insert, an update, a delete or a change of key, and its events."""
        key = chance.randrange(keys)
        old = self.rows.get(key)
        new = {"id": key, "note": f"é {chance.randrange(10**6)}" if chance.random() < 0.9 else None}
        is_wrapped = chance.random() < 0.3
        free = next((other for other in range(keys, 2 * keys) if other not in self.rows), None)
        if old is None:
            self._set(new, transaction.change(self.schema, op="c", after=new, is_wrapped=is_wrapped))
        elif (kind := chance.random()) < 0.2:
            self._delete(key, transaction.change(self.schema, op="d", before=old, is_wrapped=is_wrapped))
        elif kind < 0.3 and free is not None:
            self._delete(key, transaction.change(self.schema, op="d", before=old, is_wrapped=is_wrapped))
            moved = {**old, "id": free}
            self._set(moved, transaction.change(self.schema, op="c", after=moved, is_wrapped=is_wrapped))
        else:
            self._set(new, transaction.change(self.schema, op="u", before=old, after=new, is_wrapped=is_wrapped))

    def truncate(self, transaction: Transaction) -> None:
        order = transaction.change(self.schema, op="t")
        self.orders.append(order)
        for key in list(self.rows):
            self._end(key, order)

    def sorted_rows(self) -> list[dict[str, Any]]:
        return [dict(self.rows[key]) for key in sorted(self.rows)]

    def _set(self, row: Row, order: str) -> None:
        self.orders.append(order)
        key = row["id"]
        if self.rows.get(key) == row:
            return
        if key in self.rows:
            self._end(key, order)
        self.rows[key] = row
        self.versions.append(Version(key, row["note"], order))

    def _delete(self, key: int, order: str) -> None:
        self.orders.append(order)
        self._end(key, order)

    def _end(self, key: int, order: str) -> None:
        del self.rows[key]
        place = max(place for place, each in enumerate(self.versions) if each.id == key)
        self.versions[place] = replace(self.versions[place], closed_by=order)


def without_own_columns(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Stored rows as the source has them, by id."""
    plain = [{name: value for name, value in row.items() if not name.startswith("_headwater_")} for row in rows]
    return sorted(plain, key=lambda row: row["id"])


def table_id(name: str) -> TableId:
    return TableId(database="shop", table=name)
