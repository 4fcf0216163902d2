"""The tables of a mesh's sources as they are now, by the topic of schema_history: for a mesh of which Kafka alone is reached.

The service itself answers the mesh's own pods alone. Nothing is written.
"""

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException
from google.protobuf.message import DecodeError

from libs.config.connections import KafkaSettings
from libs.errors import AccessDenied, BrokerUnavailable
from libs.events.checkpoint_codec import order_from_proto
from libs.events.schema_change import schema_change_from_proto
from libs.mesh.tenant_topics import TIMEOUT_S, open_consumer, read_to_end
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from protos.headwater.schema_history.v1 import schema_history_pb2 as pb

READ_TIMEOUT_S: Final = 120.0
"""As schema_history itself has at its start; some 10,000 changes a second are read."""


@dataclass(slots=True)
class _Newest:
    """The change of a table that is in force."""

    order: EventOrder
    version: int
    change: pb.SchemaChange


@dataclass(frozen=True, slots=True)
class RecordedTables:
    """The topic's records of the requested sources."""

    by_source: Mapping[str, Mapping[TableId, TableSchema]]
    """Tables that are there now; a source of which nothing was ever recorded is missing."""
    others: Collection[str] = field(default_factory=frozenset)
    """Further sources that it knows."""


def recorded_tables(kafka: KafkaSettings, topic: str, sources: Collection[str]) -> RecordedTables | None:
    """Every table that is recorded, captured or not; None: there is no such topic. Blocks.

    Raises:
        BrokerUnavailable: Kafka does not answer; try again.
        AccessDenied: the user may not read the topic.
    """
    newest: dict[str, dict[TableId, _Newest]] = {}
    others: set[str] = set()
    with closing(open_consumer(kafka)) as consumer:
        try:
            found = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
        except KafkaException as error:
            raise BrokerUnavailable(
                f"Kafka at {kafka.bootstrap_servers} does not answer ({error}): look whether it is reached from "
                "here, and whether address, protocol and user of the file for --mesh are right"
            ) from error
        if found.error is not None and found.error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return None
        if found.error is not None:
            raise AccessDenied(f"topic {topic}: Kafka's user may not read it; grant READ and DESCRIBE on it")
        starts = {(topic, number): OFFSET_BEGINNING for number in found.partitions}
        for message in read_to_end(consumer, starts, timeout_s=READ_TIMEOUT_S):
            source = (message.key() or b"").decode(errors="replace")
            if source not in sources:
                others.add(source)
            else:
                _take(message.value() or b"", newest.setdefault(source, {}))
    return RecordedTables({source: _schemas(tables) for source, tables in newest.items()}, others)


def _take(value: bytes, tables: dict[TableId, _Newest]) -> None:
    """In force is the change of the greatest order; of several at one order the one recorded last."""
    try:
        change = pb.SchemaChange.FromString(value)
    except DecodeError:
        return  # nobody of ours wrote it
    table_id = TableId(database=change.database, table=change.table)
    found = _Newest(order_from_proto(change.order), change.version, change)
    known = tables.get(table_id)
    if known is None or (found.order, found.version) > (known.order, known.version):
        tables[table_id] = found


def _schemas(tables: Mapping[TableId, _Newest]) -> dict[TableId, TableSchema]:
    schemas = {}
    for table_id in sorted(tables):
        try:
            change = schema_change_from_proto(tables[table_id].change)
        except ValueError:
            continue
        if change.table_schema is not None:
            schemas[table_id] = change.table_schema
    return schemas
