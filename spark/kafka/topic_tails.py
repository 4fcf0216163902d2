"""The events after the end of a micro-batch in a tenant's topics, and whether the source's last transaction there has ended.

Asked of Kafka's own client in the JVM: a Spark job for some records would cost more than the batch may.
"""

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from pyspark.sql import SparkSession

from libs.config.connections import KafkaSettings
from libs.events.names import ORDER_HEADER
from libs.types.order import EventOrder, sort_key_prefix
from spark.jvm.java import java_class
from spark.kafka.consumer import jvm_consumer, polled, topic_partition

_TIMEOUT_S: Final = 10.0
_POLL_MS: Final = 200
_STABLE_WITHIN_S: Final = 2.0
"""How long an open Kafka transaction is waited for, and an END; then the newest transaction of the source waits for the next
batch."""
_FIRST_LOOK_BACK: Final = 32


class _Boundary(msgspec.Struct):
    status: str = ""


class _WrappedBoundary(msgspec.Struct):
    status: str = ""
    payload: _Boundary | None = None


_boundary_decoder = msgspec.json.Decoder(_WrappedBoundary)


def oldest_beyond(
    spark: SparkSession,
    kafka: KafkaSettings,
    pattern: str,
    ends: Mapping[str, Mapping[int, int]],
    *,
    but: Collection[str] = (),
) -> str | None:
    """Prefix of the oldest transaction that has events after ``ends``, written by now, committed or not; None: none has.

    Of the topics that ``pattern`` matches, ``but`` these aside, also of ones that are not in ``ends`` yet. Empty: it could not
    be found out in time, and any may.
    """
    with _consumer(spark, kafka, isolation="read_uncommitted") as consumer:
        waiting: dict[Any, int] = {}
        places = java_class(spark, "java.util.ArrayList")()
        for topic, partitions in _listed(consumer, pattern).items():
            if topic in but:
                continue
            for partition in range(partitions):
                places.add(topic_partition(spark, topic, partition))
        tails = {(place.topic(), place.partition()): end for place, end in dict(consumer.endOffsets(places)).items()}
        chosen = java_class(spark, "java.util.ArrayList")()
        for (topic, partition), end in tails.items():
            begin = ends.get(topic, {}).get(partition, 0)
            if end > begin:
                place = topic_partition(spark, topic, partition)
                chosen.add(place)
                waiting[(topic, partition)] = begin
        if not waiting:
            return None
        consumer.assign(chosen)
        for place in chosen:
            consumer.seek(place, waiting[(place.topic(), place.partition())])
        found: list[str] = []
        deadline_s = time.monotonic() + _TIMEOUT_S
        while waiting:
            if time.monotonic() > deadline_s:
                return ""
            for record in polled(spark, consumer, _POLL_MS):
                where = (record.topic(), record.partition())
                order = _order(record)
                if where in waiting and order is not None and order.tx_ordinal:
                    found.append(sort_key_prefix(order.epoch, order.rank))
                    del waiting[where]
            for place in chosen:
                where = (place.topic(), place.partition())
                if where in waiting and consumer.position(place) >= tails[where]:
                    del waiting[where]
        return min(found, default=None)


def committed_ends(
    spark: SparkSession, kafka: KafkaSettings, pattern: str, topics: Mapping[str, Mapping[int, int]]
) -> dict[str, dict[int, int]]:
    """Where those Kafka partitions of ``topics`` end by now, but for transactions that are open. A topic that ``pattern`` does
    not match, or that Kafka has no more, is not among them."""
    with _consumer(spark, kafka, isolation="read_committed") as consumer:
        there = _listed(consumer, pattern)
        places = java_class(spark, "java.util.ArrayList")()
        for topic, partitions in topics.items():
            for partition in partitions:
                if partition < there.get(topic, 0):
                    places.add(topic_partition(spark, topic, partition))
        ends: dict[str, dict[int, int]] = {}
        for place, end in dict(consumer.endOffsets(places)).items():
            ends.setdefault(str(place.topic()), {})[int(place.partition())] = int(end)
        return ends


def has_ended(spark: SparkSession, kafka: KafkaSettings, topic: str) -> bool | None:
    """Whether the newest boundary in a topic of BEGIN and END is an END, all that was written by now being committed.

    False, too, where a Kafka transaction stays open. None: nothing was ever written there.
    """
    place = topic_partition(spark, topic, 0)
    places = java_class(spark, "java.util.List").of(place)
    with (
        _consumer(spark, kafka, isolation="read_uncommitted") as any_record,
        _consumer(spark, kafka, isolation="read_committed") as consumer,
    ):
        if topic not in _listed(any_record, f"^{re.escape(topic)}$"):
            return None
        end = any_record.endOffsets(places)[place]
        deadline_s = time.monotonic() + _STABLE_WITHIN_S
        while consumer.endOffsets(places)[place] < end:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_POLL_MS / 1e3)
        consumer.assign(places)
        begin, look_back = consumer.beginningOffsets(places)[place], _FIRST_LOOK_BACK
        while end > begin:
            first = max(begin, end - look_back)
            consumer.seek(place, first)
            newest = None
            deadline_s = time.monotonic() + _TIMEOUT_S
            while consumer.position(place) < end:
                if time.monotonic() > deadline_s:
                    return False
                for record in polled(spark, consumer, _POLL_MS):
                    newest = record.value()
            if newest is not None:
                boundary = _boundary_decoder.decode(bytes(newest))
                return (boundary.payload or boundary).status == "END"
            if first == begin:
                return None
            look_back *= 4
    return None


def _order(record: Any) -> EventOrder | None:
    header = record.headers().lastHeader(ORDER_HEADER)
    try:
        return None if header is None else EventOrder.from_sort_key(bytes(header.value()).decode())
    except ValueError:  # not the router wrote it
        return None


def _listed(consumer: Any, pattern: str) -> dict[str, int]:
    """How many Kafka partitions the topics have that ``pattern`` matches."""
    matches: Callable[[str], object] = re.compile(pattern).match
    return {str(name): infos.size() for name, infos in dict(consumer.listTopics()).items() if matches(str(name))}


@contextmanager
def _consumer(spark: SparkSession, kafka: KafkaSettings, *, isolation: str) -> Iterator[Any]:
    options = {
        "isolation.level": isolation,
        "auto.offset.reset": "earliest",
        "max.poll.records": "500",
        "max.partition.fetch.bytes": "65536",
    }
    consumer = jvm_consumer(spark, kafka, options)
    try:
        yield consumer
    finally:
        consumer.close()
