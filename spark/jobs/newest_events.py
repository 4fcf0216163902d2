"""Where the source has the newest event of a table: that one event is read from Kafka once more.

What a batch keeps of its events is their rows. The source's position is wanted of one event a table and batch, so that it is
read for itself, by Kafka's own client in the JVM, rather than carried along with every event.
"""

import contextlib
import threading
import time
from typing import Any, Final

import msgspec
import structlog
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from libs.config.connections import KafkaSettings
from libs.events.source_position import SourcePlace, source_place
from spark.java import java_class
from spark.jobs.jvm_consumer import duration, jvm_consumer, topic_partition
from spark.jobs.spark_errors import described

_TIMEOUT_S: Final = 10.0
"""For one event: a broker that is away for longer makes the next batch wait anyway."""
_POLL_MS: Final = 500
_FETCHED_BYTES: Final = 1
"""Kafka sends the record batch that holds the event all the same, and nothing behind it (KIP-74)."""

log = structlog.get_logger()


class NewestEvents:
    """One tenant's; for any thread. Holds a Kafka client from the first event of a batch until ``close``."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._lock = threading.Lock()
        self._consumer: Any = None

    def place(self, spark: SparkSession, topic: str, kafka_partition: int, offset: int) -> SourcePlace | None:
        """What the event there says of its place in the source.

        None where it says nothing, and, with a line in the log, where it cannot be had: no row waits for it.
        """
        with self._lock:
            try:
                value = self._read(spark, topic, kafka_partition, offset)
                if value is not None:
                    return source_place(value)
                reason = "Kafka does not have the event any more, or did not send it in time"
            except Py4JJavaError as error:
                reason = described(error)
            except msgspec.DecodeError:
                reason = "the record is no event"
        log.warning(
            "source_position_unknown", topic=topic, kafka_partition=kafka_partition, offset=offset, reason=reason
        )
        return None

    def close(self) -> None:
        """End of a batch. The next one that asks opens a client again."""
        with self._lock:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                with contextlib.suppress(Py4JError):  # a query that is stopped interrupts its thread here too
                    consumer.close()

    def _read(self, spark: SparkSession, topic: str, kafka_partition: int, offset: int) -> bytes | None:
        consumer = self._open(spark)
        place = topic_partition(spark, topic, kafka_partition)
        places = java_class(spark, "java.util.List").of(place)
        consumer.assign(places)
        consumer.seek(place, offset)
        deadline_s = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline_s:
            records = consumer.poll(duration(spark, _POLL_MS))
            if not records.isEmpty():
                record = records.iterator().next()
                # Further on: a compacted topic has forgotten the one that was asked for.
                return bytes(record.value()) if record.offset() == offset and record.value() is not None else None
        return None

    def _open(self, spark: SparkSession) -> Any:
        if self._consumer is None:
            options = {
                "auto.offset.reset": "none",
                "max.poll.records": "1",
                "max.partition.fetch.bytes": str(_FETCHED_BYTES),
            }
            self._consumer = jvm_consumer(spark, self._kafka, options)
        return self._consumer
