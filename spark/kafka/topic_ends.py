"""Where tenants' topics end: one look at Kafka for all tenants of a job, however many there are (ADR 17).

Two requests a look, and only changes of their answers come out of the JVM (``TopicEnds.java``).
"""

import contextlib
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any, Final

import structlog
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from libs.config.connections import KafkaSettings
from libs.errors import TransientError
from spark.jvm.errors import described
from spark.jvm.java import compiled, java_array
from spark.kafka.consumer import consumer_properties, properties
from spark.kafka.read_topics import client_options
from spark.kafka.topic_ids import LASTING_OPTIONS

_CLASS: Final = "TopicEnds"
_GONE: Final = -1
_SILENT: Final = -2

Ends = Mapping[str, Mapping[int, int]]
"""By topic and Kafka partition: the offset after the last committed record."""

log = structlog.get_logger()


class TopicEnds:
    """Of one job. One thread looks; any thread may read the result."""

    def __init__(self, spark: SparkSession, kafka: KafkaSettings) -> None:
        """Makes two clients, which connect at the first look."""
        self._spark = spark
        self._java: Any = compiled(spark, _CLASS)(
            consumer_properties(spark, kafka, {}), properties(spark, {**client_options(kafka), **LASTING_OPTIONS})
        )
        self._ends: dict[str, dict[str, dict[int, int]]] = {}
        self._silent: set[tuple[str, int]] = set()

    def look(self, tenants: Collection[str]) -> Set[str]:
        """Ask Kafka; the tenants of whose topics something has changed since the last look. Blocks up to 30 s.

        A partition without a leader keeps its last end. It is logged once, and holds no other partition up after that.

        Raises:
            TransientError: Kafka does not answer; try again.
        """
        try:
            answer = self._java.changes(java_array(self._spark, "String", sorted(tenants)))
        except Py4JJavaError as error:
            raise TransientError(f"Kafka does not say where topics end: {described(error)}") from error
        changed: dict[str, dict[str, dict[int, int]]] = {}
        for line in str(answer).splitlines():
            topic, partition, end = line.split("\t")
            tenant = topic.partition(".")[0]
            if not self._is_silent(tenant, topic, int(partition), is_silent=int(end) == _SILENT):
                topics = changed.setdefault(tenant, dict(self._ends.get(tenant, {})))
                _note(topics, topic, int(partition), int(end))
        self._ends.update(changed)
        return changed.keys()

    def of(self, tenant: str) -> Ends:
        """As the last look has found them; one object for each state, which nobody changes."""
        return self._ends.get(tenant, {})

    def begins(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Where Kafka partitions begin, asked for now.

        Raises:
            TransientError: Kafka does not answer for one of them; try again.
        """
        if not partitions:
            return {}
        asked = [f"{topic}\t{partition}" for topic, partition in partitions]
        try:
            answer = self._java.begins(java_array(self._spark, "String", asked))
        except Py4JJavaError as error:
            raise TransientError(f"Kafka does not say where topics begin: {described(error)}") from error
        return dict(zip(partitions, map(int, str(answer).split()), strict=True))

    def close(self) -> None:
        """Close the clients; the JVM may be gone."""
        with contextlib.suppress(Py4JError, OSError):
            self._java.close()

    def _is_silent(self, tenant: str, topic: str, partition: int, *, is_silent: bool) -> bool:
        place = (topic, partition)
        if is_silent:
            self._silent.add(place)
            log.warning("sink_topic_silent", tenant=tenant, topic=topic, kafka_partition=partition)
        elif place in self._silent:
            self._silent.discard(place)
            log.info("sink_topic_answers", tenant=tenant, topic=topic, kafka_partition=partition)
        return is_silent


def _note(topics: dict[str, dict[int, int]], topic: str, partition: int, end: int) -> None:
    """``topics`` is this look's own; the partitions of a topic are not."""
    partitions = {each: known for each, known in topics.get(topic, {}).items() if each != partition}
    if end != _GONE:
        partitions[partition] = end
    if partitions:
        topics[topic] = partitions
    else:
        topics.pop(topic, None)
