"""The schemas under which a tenant's events are written, from the tenant's own compacted topic."""

import time
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from pyspark.sql import SparkSession

from libs.config.connections import KafkaSettings
from libs.errors import SchemaUnknown
from libs.events.delivered_schema import DeliveredSchema, decode_delivered_schema
from libs.events.names import table_schemas_topic
from libs.types.table import TableSchema
from libs.warehouse.json_variants import with_variants
from spark.kafka.topic_values import topic_values

# A schema is written in the transaction of its first rows, but brokers may show one topic's part of a transaction a
# moment after another's.
_RETRY_FOR_S: Final = 30.0
_RETRY_PAUSE_S: Final = 0.5


class DeliveredSchemas:
    """One tenant's schemas, read when a batch names one that is not known yet, and kept."""

    def __init__(self, kafka: KafkaSettings, tenant: str, *, json_as_variant: Sequence[str] = ()) -> None:
        """``json_as_variant``: which JSON columns are VARIANT at the tenant's sink (``SinkSettings``)."""
        self._kafka = kafka
        self._json_as_variant = json_as_variant
        self._topic = table_schemas_topic(tenant)
        self._known: dict[tuple[str, int], DeliveredSchema] = {}

    def require(self, spark: SparkSession, needed: Iterable[tuple[str, int]]) -> None:
        """Know the schemas of all ``(topic, version)``. Reads the whole topic, which is small, only for an unknown one.

        Raises:
            SchemaUnknown: one is not in the topic; the message names it.
        """
        wanted = set(needed)
        deadline_s = time.monotonic() + _RETRY_FOR_S
        while not wanted <= self._known.keys():
            self._read(spark)
            missing = sorted(wanted - self._known.keys())
            if missing and time.monotonic() > deadline_s:
                topic, version = missing[0]
                raise SchemaUnknown(
                    f"{self._topic} has no schema of {topic} at version {version}; was the topic deleted or shortened? "
                    "Restart the router, which writes the schemas again with the next rows"
                )
            if missing:
                time.sleep(_RETRY_PAUSE_S)

    def schema(self, topic: str, version: int) -> DeliveredSchema:
        """A schema that was required."""
        return self._known[topic, version]

    def newest(self, spark: SparkSession, topic: str) -> DeliveredSchema | None:
        """The newest one of ``topic``, whether or not an event needs it; None: there is none. Reads the whole topic.

        Raises:
            SchemaUnknown: the topic holds a record that is no schema.
        """
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
            except msgspec.DecodeError as error:
                raise SchemaUnknown(
                    f"{self._topic} holds a record that is no schema (offset {record.offset}); only the router may write there"
                ) from error
            schema = with_variants(delivered.table_schema, self._json_as_variant)
            self._known[delivered.topic, schema.version] = msgspec.structs.replace(delivered, table_schema=schema)
