"""The records of a micro-batch: read from Kafka once, cut, surveyed, checked against the offsets that it is to read."""

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import structlog
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from libs.errors import PipelineHalted, TransientError
from libs.events.names import sink_request_topics
from libs.failpoints import failpoint
from libs.sink_state.cut import Cut
from libs.sink_state.progress import (
    SinkProgress,
)
from libs.sink_state.read_ahead import ReadAhead
from libs.telemetry.faults import STRAY_RECORDS, raise_fault
from libs.types.fault import FaultScope
from libs.types.tenant import Images, TenantSpec
from spark.batch.continuity import outside_ranges
from spark.batch.read_ahead import ranges_of_batch
from spark.batch.tenant_sink import TenantSink
from spark.batch.whole_transactions import cut_batch, is_cut, show_waiting_rows
from spark.kafka.kafka_ranges import OffsetRange
from spark.kafka.read_topics import read_ranges
from spark.kafka.topic_ids import topic_ids
from spark.sinks.port import (
    BatchIdentity,
)
from spark.transforms.survey import Slice, survey

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class BatchRead:
    """The records of a batch."""

    events: DataFrame
    surveyed: Sequence[Slice]
    """Of all of them, requests to the sink among them."""
    slices: Sequence[Slice]
    """Of the tables' events."""
    cut: Cut
    ahead: ReadAhead
    topic_ids: Mapping[str, str]
    """Kafka's own ids of the tables' topics."""

    @property
    def by_topic(self) -> dict[str, list[Slice]]:
        """``slices`` of each table's topic."""
        return {topic: list(parts) for topic, parts in groupby(self.slices, attrgetter("topic"))}


@contextmanager
def batch_read(
    sink: TenantSink, batch: BatchIdentity, spark: SparkSession, progress: SinkProgress
) -> Iterator[BatchRead]:
    """The batch's records, kept in Spark for the block: read from Kafka once, cut where the tenant's batches are, surveyed.
    Their schemas were asked for together.

    Raises:
        PipelineHalted: the records are not those of the batch's offsets; nothing of it is to be written.
        TransientError: a topic was made again meanwhile.
    """
    ranges, ahead = ranges_of_batch(sink, batch, spark, parked=progress.parked_topics)
    known_ids = topic_ids(spark, sink.kafka, {*ranges, *progress.tables})
    events = read_ranges(
        spark,
        sink.kafka,
        ranges,
        with_before=sink.settings.images is Images.BEFORE_AND_AFTER,
        fails_on_loss=sink.limits.fails_on_loss,
    )
    held = events.persist(StorageLevel.MEMORY_AND_DISK_DESER)  # columns as they are: no lz4, no serialization
    try:
        if sink.moves_together:
            show_waiting_rows(sink, spark)
        cut = Cut()
        if is_cut(sink):
            events, cut = cut_batch(sink, batch, held)
            failpoint("sink_after_cut_before_tables")
        events, parts = surveyed(sink.tenant, events)
        if not is_cut(sink):  # events that waited for their transaction's end come from before the batch
            _check_read(batch, ranges, parts)
        requested = sink_request_topics(sink.tenant.tenant)
        slices = [part for part in parts if part.topic not in requested]
        _check_first_topics(sink, spark, progress, {part.topic for part in slices}, known_ids)
        sink.schemas.learn(spark, {(part.topic, part.schema_version) for part in slices})
        yield BatchRead(events, parts, slices, cut, ahead, known_ids)
    finally:
        held.unpersist()
        sink.newest_events.close()


def surveyed(tenant: TenantSpec, events: DataFrame) -> tuple[DataFrame, list[Slice]]:
    """The router's events and their slices; records of others are logged, and are a fault."""
    events, slices, strays = survey(events)
    for stray in strays:
        log.error("sink_stray_records", topic=stray.topic, partition=stray.kafka_partition, records=stray.records)
        source, _, table = stray.topic.removeprefix(f"{tenant.tenant}.").partition(".")
        scope = FaultScope(source=source, tenant=tenant.tenant, table=table)
        raise_fault(STRAY_RECORDS, scope, happened=str(stray))
    return events, slices


def _check_read(batch: BatchIdentity, ranges: Mapping[str, OffsetRange], read: Sequence[Slice]) -> None:
    """Check, before anything is written, that the batch has the records of its own offsets, each once at most.

    Raises:
        PipelineHalted: it has others; nothing of it is written.
    """
    if wrong := outside_ranges(ranges, read):
        raise PipelineHalted(
            f"batch {batch} has records of {', '.join(wrong)} that its offsets do not hold, or some twice; nothing of it is "
            "written. Restart the job; if that does not help, report it with this line"
        )


def _check_first_topics(
    sink: TenantSink,
    spark: SparkSession,
    progress: SinkProgress,
    topics: Set[str],
    known_ids: Mapping[str, str],
) -> None:
    """For topics without a noted id: check that the events are of the topic whose id will be noted.

    Raises:
        TransientError: one was made again meanwhile; the batch comes again.
    """
    first = {topic for topic in topics if topic not in progress.tables or not progress.tables[topic].topic_id}
    for topic, found in topic_ids(spark, sink.kafka, first).items():
        if found != known_ids.get(topic):
            raise TransientError(f"topic {topic} was made again while it was read; the batch comes again")
