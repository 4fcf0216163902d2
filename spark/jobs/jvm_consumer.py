"""Kafka's own client in the session's JVM, for some records: a Spark job would cost more than a batch may."""

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from libs.config.connections import KafkaSettings
from spark.java import java_class
from spark.transforms.read_topics import kafka_options

_BYTES_READER: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


def jvm_consumer(spark: SparkSession, kafka: KafkaSettings, options: Mapping[str, str]) -> Any:
    """A consumer that commits nothing; ``options`` come over those that the sink reads with. Close it."""
    readers = {"key.deserializer": _BYTES_READER, "value.deserializer": _BYTES_READER, "enable.auto.commit": "false"}
    properties = client_properties(spark, kafka, {**readers, **options})
    return java_class(spark, "org.apache.kafka.clients.consumer.KafkaConsumer")(properties)


def client_properties(spark: SparkSession, kafka: KafkaSettings, options: Mapping[str, str]) -> Any:
    """Of a client that connects as the sink does; ``options`` come over its own."""
    properties = java_class(spark, "java.util.Properties")()
    own = {name: value for name, value in kafka_options(kafka).items() if name.startswith("kafka.")}
    for name, value in {**own, **options}.items():
        properties.put(name.removeprefix("kafka."), value)
    return properties


def topic_partition(spark: SparkSession, topic: str, kafka_partition: int) -> Any:
    """As the consumer names it."""
    return java_class(spark, "org.apache.kafka.common.TopicPartition")(topic, kafka_partition)


def duration(spark: SparkSession, milliseconds: int) -> Any:
    """How long a poll waits at most."""
    return java_class(spark, "java.time.Duration").ofMillis(milliseconds)
