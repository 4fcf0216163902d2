"""Where the source has the newest event of a table: that one event is read from Kafka once more.

A batch keeps only the rows of its events. The source's position is wanted of one event a table and batch, so that it is
read for itself, by Kafka's own client in the JVM, rather than carried along with every event: of all tables of a batch at once.
"""

import contextlib
import threading
import time
from collections.abc import Collection
from typing import Any, Final

import msgspec
import structlog
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from libs.config.connections import KafkaSettings
from libs.events.source_position import SourcePlace, source_place
from spark.jvm.errors import described
from spark.jvm.java import java_array, java_class
from spark.kafka.consumer import duration, jvm_consumer, topic_partition

_TIMEOUT_S: Final = 10.0
"""For one event: a broker that is away for longer makes the next batch wait anyway."""
_POLL_MS: Final = 500

EventPlace = tuple[str, int, int]
"""Topic, Kafka partition, offset."""

log = structlog.get_logger()


class NewestEvents:
    """One tenant's; for any thread. Holds a Kafka client from the first event of a batch until ``close``."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._lock = threading.Lock()
        self._consumer: Any = None
        self._known: dict[EventPlace, bytes] = {}

    def read(self, spark: SparkSession, events: Collection[EventPlace]) -> None:
        """Read these together, each of another Kafka partition, before ``place`` is asked for them one by one."""
        with self._lock, contextlib.suppress(Py4JJavaError):  # one may be gone: each says so itself
            self._known = self._values(spark, events) if events else {}

    def place(self, spark: SparkSession, event: EventPlace) -> SourcePlace | None:
        """The event's place in the source.

        None where it says nothing, and, with a line in the log, where it cannot be had: no row waits for it.
        """
        with self._lock:
            try:
                value = self._known.get(event) or self._values(spark, [event]).get(event)
                if value is not None:
                    return source_place(value)
                reason = "Kafka does not have the event any more, or did not send it in time"
            except Py4JJavaError as error:
                reason = described(error)
            except msgspec.DecodeError:
                reason = "the record is no event"
        topic, kafka_partition, offset = event
        log.warning(
            "source_position_unknown", topic=topic, kafka_partition=kafka_partition, offset=offset, reason=reason
        )
        return None

    def close(self) -> None:
        """End of a batch. The next one that asks opens a client again."""
        with self._lock:
            self._known = {}
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                with contextlib.suppress(Py4JError):  # a query that is stopped interrupts its thread here too
                    consumer.close()

    def _values(self, spark: SparkSession, events: Collection[EventPlace]) -> dict[EventPlace, bytes]:
        """Kafka's records of them, as far as it sends them in time."""
        consumer = self._open(spark)
        java_list = java_class(spark, "java.util.List")
        asked = {(topic, partition): offset for topic, partition, offset in events}
        places = {of: topic_partition(spark, *of) for of in asked}
        as_list = java_class(spark, "java.util.Arrays").asList
        wanted = as_list(java_array(spark, "Object", list(places.values())))
        consumer.assign(wanted)
        consumer.resume(wanted)  # one that was asked before is still paused
        for of, offset in asked.items():
            consumer.seek(places[of], offset)
        found: dict[EventPlace, bytes] = {}
        deadline_s = time.monotonic() + _TIMEOUT_S
        while asked and time.monotonic() < deadline_s:
            records = consumer.poll(duration(spark, _POLL_MS))
            if records.isEmpty():
                continue
            record = records.iterator().next()
            of = (str(record.topic()), int(record.partition()))
            offset = asked.pop(of)
            consumer.pause(java_list.of(places[of]))
            # Further on: a compacted topic has forgotten the one that was asked for.
            if record.offset() == offset and record.value() is not None:
                found[*of, offset] = bytes(record.value())
        return found

    def _open(self, spark: SparkSession) -> Any:
        if self._consumer is None:
            options = {"auto.offset.reset": "none", "max.poll.records": "1"}
            self._consumer = jvm_consumer(spark, self._kafka, options)
        return self._consumer
