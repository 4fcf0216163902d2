"""A tenant's dead letters in Kafka, as the sink writes and reads them.

Letters are few: they pass through the driver, so that ``libs.events.dead_letter`` alone knows their form on the way out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from libs.config.connections import KafkaSettings
from libs.errors import TransientError
from libs.events.dead_letter import DeadLetter, SetAsideBy, encode_dead_letter
from libs.events.delivered_schema import DeliveredSchema
from libs.events.names import dead_letter_topic
from libs.types.order import EventOrder
from libs.types.tenant import TenantSpec
from spark.jvm.errors import described
from spark.jvm.java import java_class
from spark.kafka.consumer import duration, properties
from spark.kafka.read_topics import client_options, kafka_options, read_records
from spark.transforms.local_rows import local_rows

# Base64 makes four bytes of three, and brokers take records of 1 MB by default (message.max.bytes).
_MAX_EVENT_BYTES: Final = 700_000
_LETTERS_AT_ONCE: Final = 2_000
_TIMEOUT_S: Final = 30
_BROKERS_CHOICE: Final = -1
_ALREADY_THERE: Final = "TopicExistsException"
_RECORD_SQL: Final = "topic string, key binary, value binary, headers array<struct<key:string,value:binary>>"
_LETTER_SQL: Final = (
    "topic string, set_aside_by string, is_withheld boolean, event_kafka_partition int, event_offset bigint, "
    "event_value string"
)

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Held:
    """Events of one table that are set aside."""

    places: DataFrame
    """``kafka_partition``, ``offset``, ``order``, ``op``, ``schema_version``, ``key_text``."""
    from_offsets: Mapping[int, int]
    to_offsets: Mapping[int, int]
    """By Kafka partition: where in the table's topic they are, the end excluded."""


Why = Callable[[str, int, int], tuple[str, int | None]]
"""Of an event, by its ``key_text`` and place: the reason, and the offset of the refused one that it waits for."""


def write_letters(
    spark: SparkSession, kafka: KafkaSettings, tenant: TenantSpec, delivered: DeliveredSchema, held: Held, why: Why
) -> int:
    """Write a letter for each event, at least once; how many they are. They are durable when this returns.

    The events are read from Kafka once more: a batch keeps only a part of them.
    """
    records = read_records(spark, kafka, delivered.topic, held.from_offsets, held.to_offsets)
    found = records.withColumnRenamed("partition", "kafka_partition").join(
        sf.broadcast(held.places), ["kafka_partition", "offset"]
    )
    rows = found.toLocalIterator()
    written = 0
    while some := list(islice(rows, _LETTERS_AT_ONCE)):
        if not written:
            create_topic(spark, kafka, dead_letter_topic(tenant.tenant), tenant.topics.replication_factor)
        letters = [
            _record(row, tenant.tenant, delivered, *why(row.key_text, row.kafka_partition, row.offset)) for row in some
        ]
        local_rows(spark, letters, _RECORD_SQL).coalesce(1).write.format("kafka").options(
            **kafka_options(kafka)
        ).option("kafka.acks", "all").option("kafka.compression.type", "zstd").save()
        written += len(some)
    return written


def _record(
    row: Row, tenant: str, delivered: DeliveredSchema, reason: str, behind_offset: int | None
) -> tuple[str, bytes | None, bytes, list[Any] | None]:
    key = None if row.key is None else bytes(row.key)
    is_withheld = len(row.value) + len(key or b"") > _MAX_EVENT_BYTES
    table_id = delivered.table_schema.table_id
    letter = DeadLetter(
        tenant=tenant,
        topic=delivered.topic,
        reason=reason,
        set_aside_by=SetAsideBy.SINK,
        source=delivered.source,
        database=table_id.database,
        table=table_id.table,
        schema_version=row.schema_version,
        op=row.op or "",
        order=EventOrder.from_sort_key(row.order),
        event_kafka_partition=row.kafka_partition,
        event_offset=row.offset,
        behind_offset=behind_offset,
        is_withheld=is_withheld,
        event_key=None if is_withheld else key,
        event_value=None if is_withheld else bytes(row.value),
    )
    return dead_letter_topic(tenant), key, encode_dead_letter(letter), row.headers


def read_letters(spark: SparkSession, kafka: KafkaSettings, tenant: str, topic: str) -> DataFrame:
    """The events of ``topic`` that the sink has set aside, each once, as records of that topic (``read_topics.events_of``)."""
    written = (
        spark.read.format("kafka")
        .options(**kafka_options(kafka))
        .option("subscribePattern", f"^{dead_letter_topic(tenant).replace('.', '[.]')}$")  # may not exist yet
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
        .where("value IS NOT NULL")
        .select("key", "headers", sf.from_json(sf.col("value").cast("string"), _LETTER_SQL).alias("letter"))
        .where((sf.col("letter.topic") == topic) & (sf.col("letter.set_aside_by") == SetAsideBy.SINK.value))
        .select(
            sf.lit(topic).alias("topic"),
            sf.col("letter.event_kafka_partition").alias("partition"),
            sf.col("letter.event_offset").alias("offset"),
            "key",
            sf.unbase64("letter.event_value").alias("value"),
            "headers",
            sf.coalesce("letter.is_withheld", sf.lit(False)).alias("is_withheld"),
        )
        .dropDuplicates(["partition", "offset"])
    )
    withheld = written.where("is_withheld").groupBy("partition").agg(sf.min("offset"), sf.max("offset")).collect()
    whole = written.where("NOT is_withheld").drop("is_withheld")
    if not withheld:
        return whole
    from_offsets = {row[0]: row[1] for row in withheld}
    to_offsets = {row[0]: row[2] + 1 for row in withheld}
    places = written.where("is_withheld").select("partition", "offset")
    large = read_records(spark, kafka, topic, from_offsets, to_offsets).join(places, ["partition", "offset"])
    return whole.unionByName(large.select(*whole.columns))


def create_topic(spark: SparkSession, kafka: KafkaSettings, name: str, replication_factor: int) -> None:
    """Make a topic of one Kafka partition, if it is not there.

    Raises:
        TransientError: Kafka does not answer, or refuses it, also with as many replicas as it likes.
    """
    try:
        _create_topic(spark, kafka, name, replication_factor)
    except Py4JJavaError as error:
        raise TransientError(f"topic {name}: Kafka does not say whether it is there ({described(error)})") from error


def _create_topic(spark: SparkSession, kafka: KafkaSettings, name: str, replication_factor: int) -> None:
    admin = java_class(spark, "org.apache.kafka.clients.admin.Admin").create(properties(spark, client_options(kafka)))
    seconds = java_class(spark, "java.util.concurrent.TimeUnit").SECONDS
    try:
        if name in admin.listTopics().names().get(_TIMEOUT_S, seconds):
            return
        for factor in (replication_factor, _BROKERS_CHOICE):
            try:
                topic = java_class(spark, "org.apache.kafka.clients.admin.NewTopic")(name, 1, factor)
                admin.createTopics([topic]).all().get(_TIMEOUT_S, seconds)
            except Py4JJavaError as error:
                refused = described(error)
                if _ALREADY_THERE in refused:
                    return
            else:
                return
        raise TransientError(f"Kafka does not make topic {name} ({refused}); make it, or let the sink's user do so")
    finally:
        admin.close(duration(spark, 0))
