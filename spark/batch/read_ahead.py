"""A table with a large lag does not keep the tenant's others waiting.

Spark deals the limit of a micro-batch out by how much waits in each Kafka partition (Structured Streaming and Kafka guide,
``maxOffsetsPerTrigger``). Beside ten million rows of a copy, a batch of 250,000 would hold 25 of a thousand changes of another
table, and the last of them would come with the last of the copy. So a full batch reads on in the topics of which little is
left, to their ends. Their events in Spark's later batches are left out then.

How far a batch reads is durable before anything of it is written: should it come again, it holds the same events.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec
import structlog
from pyspark.sql import SparkSession

from libs.events.names import sink_request_topics
from libs.failpoints import failpoint
from libs.sink_state.read_ahead import ReadAhead
from libs.sink_state.stream_offsets import (
    StreamOffsets,
    joined_offsets,
    load_begins,
    load_earlier_offsets,
    load_stream_offsets,
)
from spark.batch.pace import is_full_batch
from spark.batch.tenant_sink import TenantSink
from spark.batch.whole_transactions import is_cut
from spark.kafka.kafka_ranges import OffsetRange
from spark.kafka.read_topics import topic_pattern
from spark.kafka.topic_tails import committed_ends
from spark.sinks.port import BatchIdentity

_SHARE: Final = 4
"""A batch reads on by at most one in so many events of its limit."""

log = structlog.get_logger()


def ranges_of_batch(
    sink: TenantSink, batch: BatchIdentity, spark: SparkSession, *, parked: Collection[str]
) -> tuple[dict[str, OffsetRange], ReadAhead]:
    """The batch's part of each topic, and how far it reads in those without an end of Spark's own.

    ``parked``: topics of tables of which nothing is written now. Tables that move together are read no further than Spark does.
    """
    of_batch = sink.state.folder, sink.tenant.tenant, batch.batch_id
    begins, ends = load_begins(*of_batch), load_stream_offsets(*of_batch)
    ahead = _decided(sink, batch, spark, ends, parked)
    # Of a partition that was not there before Spark has seen that it has all of it, or that losses are accepted.
    dealt = {
        topic: ({partition: begins.get(topic, {}).get(partition, 0) for partition in of}, of)
        for topic, of in ends.items()
    }
    return {**dealt, **{topic: (ahead.from_offsets[topic], of) for topic, of in ahead.to_offsets.items()}}, ahead


def _decided(
    sink: TenantSink, batch: BatchIdentity, spark: SparkSession, ends: StreamOffsets, parked: Collection[str]
) -> ReadAhead:
    known = sink.files.read_ahead.load()
    if (known.query_id, known.batch_id) == (batch.query_id, batch.batch_id):
        return known
    begins = load_earlier_offsets(sink.state.folder, sink.tenant.tenant, batch.batch_id)
    # The file means nothing for another query, which began again: its topics are read from their start.
    taken_in = still_ahead(known.to_offsets if known.query_id == batch.query_id else {}, begins)
    newest: StreamOffsets = {}
    is_full = is_full_batch(ends, begins, sink.limits.offsets) and not is_cut(sink)
    if is_full or taken_in:
        newest = committed_ends(spark, sink.kafka, topic_pattern(sink.tenant), ends)
        taken_in = _without_recreated(taken_in, newest)
    chosen: StreamOffsets = {}
    if is_full:
        others = {*parked, *sink_request_topics(sink.tenant.tenant)}
        behind = {topic: of for topic, of in newest.items() if topic not in others}
        from_offsets = _furthest(ends, taken_in)
        chosen = nearly_read(begins, from_offsets, behind, limit=sink.limits.offsets // _SHARE)
    ahead = range_of(begins, ends, taken_in, chosen)
    if ahead.to_offsets or known.to_offsets:
        ahead = msgspec.structs.replace(ahead, query_id=batch.query_id, batch_id=batch.batch_id)
        sink.files.read_ahead.store(ahead)
        failpoint("sink_after_read_ahead_before_tables")
    return ahead


def still_ahead(taken_in: StreamOffsets, begins: StreamOffsets) -> StreamOffsets:
    """Of topics ``taken_in`` to there those that reach after ``begins``, where Spark's batch begins."""
    return {
        topic: of
        for topic, of in taken_in.items()
        if any(end > begins.get(topic, {}).get(partition, 0) for partition, end in of.items())
    }


def nearly_read(
    begins: StreamOffsets, from_offsets: StreamOffsets, newest: StreamOffsets, *, limit: int
) -> StreamOffsets:
    """The ends of the topics that are to be read to their ends: as many as ``limit`` allows, least that waits first. Of a
    Kafka partition that is not in ``begins`` nobody knows where Spark began.

    >>> begins = {"small": {0: 0}, "large": {0: 0}, "done": {0: 9}}
    >>> nearly_read(begins, begins, {"small": {0: 40}, "large": {0: 1_000_000}, "done": {0: 9}}, limit=100)
    {'small': {0: 40}}
    """
    waiting = {
        topic: sum(end - from_offsets[topic][partition] for partition, end in of.items())
        for topic, of in newest.items()
        if of.keys() == begins.get(topic, {}).keys()
    }
    chosen: dict[str, Mapping[int, int]] = {}
    for topic in sorted((topic for topic, count in waiting.items() if count > 0), key=waiting.__getitem__):
        if waiting[topic] > limit:
            break
        limit -= waiting[topic]
        chosen[topic] = newest[topic]
    return chosen


def range_of(begins: StreamOffsets, ends: StreamOffsets, taken_in: StreamOffsets, chosen: StreamOffsets) -> ReadAhead:
    """The batch's events of topics that were read ahead of ``begins``, or are to be ahead of ``ends``."""
    furthest = _furthest(begins, taken_in)
    from_offsets = {topic: furthest[topic] for topic in sorted({*taken_in, *chosen})}
    to_offsets = {
        topic: joined_offsets(begin, ends.get(topic, {}), chosen.get(topic, {}), choose=max)
        for topic, begin in from_offsets.items()
    }
    return ReadAhead(from_offsets=from_offsets, to_offsets=to_offsets)


def _furthest(offsets: StreamOffsets, others: StreamOffsets) -> dict[str, dict[int, int]]:
    return {
        topic: joined_offsets(offsets.get(topic, {}), others.get(topic, {}), choose=max)
        for topic in {*offsets, *others}
    }


def _without_recreated(taken_in: StreamOffsets, newest: StreamOffsets) -> StreamOffsets:
    """A topic that ends before the offset read is another one of that name, of which nothing was read."""
    kept = {}
    for topic, of in taken_in.items():
        if all(newest.get(topic, {}).get(partition, 0) >= end for partition, end in of.items()):
            kept[topic] = of
        else:
            log.warning("sink_topic_recreated", topic=topic)
    return kept
