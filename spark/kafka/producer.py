"""One record into Kafka by its own client in the session's JVM: a Spark job would cost more."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from libs.config.connections import KafkaSettings
from spark.jvm.java import java_class
from spark.kafka.consumer import duration, properties
from spark.kafka.read_topics import client_options

# The job's loop waits for some of these; it counts as hanging after 120 s.
_DELIVERY_TIMEOUT_MS: Final = "15000"
_REQUEST_MS: Final = "10000"
_BYTES_WRITER: Final = "org.apache.kafka.common.serialization.ByteArraySerializer"
_OPTIONS: Final = {
    "key.serializer": _BYTES_WRITER,
    "value.serializer": _BYTES_WRITER,
    "acks": "all",
    "enable.idempotence": "true",
    "max.block.ms": _REQUEST_MS,
    "request.timeout.ms": _REQUEST_MS,
    "delivery.timeout.ms": _DELIVERY_TIMEOUT_MS,
    "linger.ms": "0",
}


def send_record(
    spark: SparkSession,
    kafka: KafkaSettings,
    topic: str,
    value: bytes | None,
    *,
    key: bytes | None = None,
    headers: Mapping[str, bytes] | None = None,
) -> None:
    """Durable when this returns. Raises Py4JJavaError where Kafka did not confirm it; it may be there nonetheless."""
    producer = java_class(spark, "org.apache.kafka.clients.producer.KafkaProducer")(
        properties(spark, {**client_options(kafka), **_OPTIONS})
    )
    try:
        record = java_class(spark, "org.apache.kafka.clients.producer.ProducerRecord")(topic, key, value)
        for name, content in (headers or {}).items():
            record.headers().add(name, content)
        producer.send(record).get()
    finally:
        producer.close(duration(spark, 0))
