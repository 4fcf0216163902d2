"""The schemas under which a tenant's events are written, from the tenant's own compacted topic.

The router writes a schema in the transaction of its first rows. A version that the topic lacks is of somebody else's record in
the row topic, or the topic of schemas was deleted or shortened. Only a person can decide which: it concerns that table alone.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import structlog
from pyspark.sql import SparkSession

from libs.config.connections import KafkaSettings
from libs.errors import SchemaUnknown
from libs.events.delivered_schema import DeliveredSchema, decode_delivered_schema
from libs.events.names import table_schemas_topic
from libs.telemetry.faults import STRAY_RECORDS, raise_fault
from libs.types.fault import FaultScope
from libs.types.table import TableSchema
from libs.warehouse.json_variants import with_variants
from spark.kafka.topic_values import TopicValue, topic_values

log = structlog.get_logger()

# A schema is written in the transaction of its first rows, but brokers may show one topic's part of a transaction a
# moment after another's.
_RETRY_FOR_S: Final = 30.0
_RETRY_PAUSE_S: Final = 0.5


class DeliveredSchemas:
    """One tenant's schemas, read when a batch names one that is not known yet, and kept."""

    def __init__(self, kafka: KafkaSettings, tenant: str, *, json_as_variant: Sequence[str] = ()) -> None:
        """``json_as_variant``: which JSON columns are VARIANT at the tenant's sink (``SinkSettings``)."""
        self._kafka = kafka
        self._tenant = tenant
        self._json_as_variant = json_as_variant
        self._topic = table_schemas_topic(tenant)
        self._known: dict[tuple[str, int], DeliveredSchema] = {}
        self._lacking: set[tuple[str, int]] = set()
        """Versions that were waited for in vain."""
        self._passed_over: set[tuple[int, int]] = set()

    def learn(self, spark: SparkSession, needed: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
        """Know the schemas of all ``(topic, version)``; returns those that the topic lacks. Reads the whole topic, which is
        small, only for an unknown one, and waits for it once."""
        wanted = set(needed)
        deadline_s = time.monotonic() + _RETRY_FOR_S
        while missing := wanted - self._known.keys():
            self._read(spark)
            missing -= self._known.keys()
            if missing <= self._lacking or time.monotonic() > deadline_s:
                self._lacking |= missing
                return missing
            time.sleep(_RETRY_PAUSE_S)
        return set()

    def require(self, spark: SparkSession, needed: Iterable[tuple[str, int]]) -> None:
        """As ``learn``.

        Raises:
            SchemaUnknown: one is not in the topic; the message names it.
        """
        if missing := self.learn(spark, needed):
            raise SchemaUnknown(self.reason(*min(missing)))

    def reason(self, topic: str, version: int) -> str:
        """The reason and the remedy for events of a version that the topic lacks."""
        return (
            f"{self._topic} has no schema of {topic} at version {version}: somebody but the router wrote such records, or the "
            f"topic of schemas was deleted or shortened. After the former: `headwater resync {self._tenant} TABLE`. After the "
            "latter: restart the router, which writes the schemas again with the next rows"
        )

    def schema(self, topic: str, version: int) -> DeliveredSchema:
        """A schema that was required."""
        return self._known[topic, version]

    def newest(self, spark: SparkSession, topic: str) -> DeliveredSchema | None:
        """The newest one of ``topic``, whether or not an event needs it; None: there is none. Reads the whole topic."""
        self._read(spark)
        versions = [version for of, version in self._known if of == topic]
        return self._known[topic, max(versions)] if versions else None

    def known_schema(self, topic: str, version: int) -> TableSchema | None:
        """The same of any version; None where the topic, which was read, does not have it."""
        delivered = self._known.get((topic, version))
        return None if delivered is None else delivered.table_schema

    def _read(self, spark: SparkSession) -> None:
        for record in topic_values(spark, self._kafka, self._topic):
            try:
                delivered = decode_delivered_schema(record.value)
            except msgspec.DecodeError:
                self._pass_over(record)
                continue
            schema = with_variants(delivered.table_schema, self._json_as_variant)
            self._known[delivered.topic, schema.version] = msgspec.structs.replace(delivered, table_schema=schema)

    def _pass_over(self, record: TopicValue) -> None:
        """A record that is no schema, which the router did not write. Once of each."""
        place = record.kafka_partition, record.offset
        if place in self._passed_over:
            return
        self._passed_over.add(place)
        happened = (
            f"{self._topic}/{record.kafka_partition}: the record at offset {record.offset} is no schema: passed over"
        )
        log.error("sink_stray_records", topic=self._topic, partition=record.kafka_partition, offset=record.offset)
        raise_fault(STRAY_RECORDS, FaultScope(tenant=self._tenant), happened=happened)
