"""Events of a mirror that come late: older than a delete of their row, or than a truncation, which the table has taken in.

A row that is there has its order, and no older event wins over it. One that is gone has none. So that a late event does not
bring it back, a batch whose oldest event is older than the newest delete that is remembered looks that up in Kafka
(``libs.sink_state.deleted_range``); others, which are nearly all, look for nothing. Rows that soft deletes have marked keep
their order, and a log or a history keeps every change.
"""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import structlog
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from libs.sink_state.deleted_range import DeletedRange
from libs.sink_state.stream_offsets import joined_offsets
from spark.batch.context import BatchContext
from spark.batch.table_batch import TableBatch
from spark.kafka.read_topics import read_range
from spark.transforms.cut_envelope import DELETE
from spark.transforms.key_text import KEY_TEXT_COLUMN, key_text
from spark.transforms.passing import passing

log = structlog.get_logger()

_DELETED_BY: Final = "deleted_by"


def deleted_range(table: TableBatch) -> DeletedRange | None:
    """Where the batch's own deletes of the table stand; None: there are none."""
    parts = [part for part in table.fresh if part.newest_delete is not None]
    if not parts:
        return None
    return DeletedRange(
        newest_order=max(part.newest_delete for part in parts if part.newest_delete is not None),
        from_offsets=joined_offsets(*(part.from_offsets for part in parts), choose=min),
        to_offsets=joined_offsets(*(part.to_offsets for part in parts), choose=max),
        schema_versions=tuple(sorted(part.schema_version for part in parts)),
    )


def has_late_events(table: TableBatch) -> bool:
    """Whether some may be among the table's events."""
    oldest = _oldest_order(table)
    return oldest < table.known.truncated or any(each.newest_order > oldest for each in table.known.deleted)


def without_late_events(context: BatchContext, table: TableBatch) -> TableBatch:
    """The table's events without those of rows that were deleted later. Only remembered deletes are looked up; deletes that
    Kafka has dropped are not."""
    if not has_late_events(table):
        return table
    oldest = _oldest_order(table)
    events = table.events.where(sf.col("topic") == table.topic)
    if oldest < table.known.truncated:
        events = events.where(sf.col("order") >= table.known.truncated)
    newer = [each for each in table.known.deleted if each.newest_order > oldest]
    if newer:
        log.info("sink_late_events_compared", topic=table.topic, ranges=len(newer), events=sum(e.events for e in newer))
        events = _without_deleted(context, table, events, newer)
    return replace(table, events=events)


def _oldest_order(table: TableBatch) -> str:
    return min(part.oldest_order for part in table.slices)


def _without_deleted(
    context: BatchContext, table: TableBatch, events: DataFrame, ranges: Sequence[DeletedRange]
) -> DataFrame:
    spark = events.sparkSession
    versions = {version for each in ranges for version in each.schema_versions}
    context.schemas.require(spark, {(table.topic, version) for version in versions})
    schemas = [context.schemas.schema(table.topic, version).table_schema for version in versions | table.schemas.keys()]
    deletes = [
        passing(
            context.cut,
            read_range(
                spark,
                context.kafka,
                table.topic,
                each.from_offsets,
                each.to_offsets,
                with_before=False,
                fails_on_loss=False,  # events deleted by retention are forgotten
            ),
        ).where((sf.col("op") == DELETE) & sf.col("schema_version").isin(*versions))
        for each in ranges
    ]
    gone = functools.reduce(DataFrame.unionByName, deletes)
    newest = gone.groupBy(key_text(schemas).alias(KEY_TEXT_COLUMN)).agg(sf.max("order").alias(_DELETED_BY))
    keyed = events.withColumn(KEY_TEXT_COLUMN, key_text(schemas))
    is_late = (keyed[KEY_TEXT_COLUMN] == newest[KEY_TEXT_COLUMN]) & (keyed["order"] < newest[_DELETED_BY])
    return keyed.join(newest, is_late, "left_anti").drop(KEY_TEXT_COLUMN)
