"""All records of a small topic, read by one of Kafka's own consumers in the JVM (``TopicValues.java``)."""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from libs.config.connections import KafkaSettings
from libs.errors import TransientError
from spark.jvm.errors import described
from spark.jvm.java import compiled_object
from spark.kafka.consumer import consumer_properties

_CLASS: Final = "TopicValues"
_WITHIN_MS: Final = 30_000
_HEAD: Final = struct.Struct(">iqi")


class TopicValue(NamedTuple):
    """A record that has a value."""

    kafka_partition: int
    offset: int
    value: bytes


def topic_values(spark: SparkSession, kafka: KafkaSettings, topic: str) -> list[TopicValue]:
    """Committed records up to the topic's end, by Kafka partition and offset; none where there is no such topic.

    Raises:
        TransientError: Kafka does not answer; try again.
    """
    options = consumer_properties(spark, kafka, {"auto.offset.reset": "earliest"})
    try:
        answer = compiled_object(spark, _CLASS).read(options, topic, _WITHIN_MS)
    except Py4JJavaError as error:
        raise TransientError(f"topic {topic} cannot be read: {described(error)}") from error
    return sorted(_values(bytes(answer)))


def _values(answer: bytes) -> Iterator[TopicValue]:
    place = 0
    while place < len(answer):
        partition, offset, length = _HEAD.unpack_from(answer, place)
        place += _HEAD.size
        yield TopicValue(partition, offset, answer[place : place + length])
        place += length
