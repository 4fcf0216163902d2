"""Kafka's own client in the session's JVM, for some records: a Spark job would cost more than a batch may."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from pyspark.sql import SparkSession

from libs.config.connections import KafkaSettings
from spark.jvm.java import java_class
from spark.kafka.read_topics import consumer_options

_BYTES_READER: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


def jvm_consumer(spark: SparkSession, kafka: KafkaSettings, options: Mapping[str, str]) -> Any:
    """A consumer that commits nothing; ``options`` come over those that the sink reads with. Close it."""
    given = consumer_properties(spark, kafka, options)
    return java_class(spark, "org.apache.kafka.clients.consumer.KafkaConsumer")(given)


def consumer_properties(spark: SparkSession, kafka: KafkaSettings, options: Mapping[str, str]) -> Any:
    """The options of such a consumer, as Java takes them."""
    readers = {"key.deserializer": _BYTES_READER, "value.deserializer": _BYTES_READER, "enable.auto.commit": "false"}
    return properties(spark, {**consumer_options(kafka), **readers, **options})


def properties(spark: SparkSession, options: Mapping[str, str]) -> Any:
    """A client's options, as Java takes them."""
    found = java_class(spark, "java.util.Properties")()
    for name, value in options.items():
        found.put(name, value)
    return found


def topic_partition(spark: SparkSession, topic: str, kafka_partition: int) -> Any:
    """As the consumer names it."""
    return java_class(spark, "org.apache.kafka.common.TopicPartition")(topic, kafka_partition)


def polled(spark: SparkSession, consumer: Any, milliseconds: int) -> Iterator[Any]:
    """The records of one poll. Counted, as Java ends a walk by an error, of which PySpark asks the JVM thirteen things."""
    records = consumer.poll(duration(spark, milliseconds))
    return islice(records.iterator(), records.count())


def duration(spark: SparkSession, milliseconds: int) -> Any:
    """How long a poll waits at most."""
    return java_class(spark, "java.time.Duration").ofMillis(milliseconds)
