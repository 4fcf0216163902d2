"""Kafka's own ids of topics: one that was deleted and made again has its old name, and another id."""

from collections.abc import Collection
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from libs.config.connections import KafkaSettings
from libs.errors import TransientError
from spark.jvm.errors import described
from spark.jvm.java import compiled_object, java_array
from spark.kafka.consumer import properties
from spark.kafka.read_topics import client_options

_CLASS: Final = "TopicIds"
LASTING_OPTIONS: Final = {"metadata.max.age.ms": "300000", "reconnect.backoff.max.ms": "5000"}
"""Of a client that lives as long as the session. By the usual ones it would ask for the cluster, or call one that is away,
every second or two."""


def topic_ids(spark: SparkSession, kafka: KafkaSettings, topics: Collection[str]) -> dict[str, str]:
    """By topic, in one request. Topics that are not there are missing, and all of a Kafka that has no ids (before 2.8).

    Raises:
        TransientError: Kafka does not answer; try again.
    """
    if not topics:
        return {}
    options = properties(spark, {**client_options(kafka), **LASTING_OPTIONS})
    try:
        answer = compiled_object(spark, _CLASS).tell(options, java_array(spark, "String", sorted(topics)))
    except Py4JJavaError as error:
        raise TransientError(f"Kafka does not name the ids of topics: {described(error)}") from error
    return dict(line.split("\t") for line in str(answer).splitlines())
