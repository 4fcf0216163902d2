"""Small tables of a batch without queries of their own (ADR 43).

A query costs a third of a CPU second however few rows it has: it is analysed, planned, compiled and scheduled. Where a batch
has a few changes of each of many tables, that is all that the tables cost. So the events of such tables are brought into the
driver's memory, many tables' by one query; each table's are decoded there by what Spark makes of the same columns as ever,
which is kept from batch to batch; and a sink that is able to (``MergesRows``) merges them into its table.

Nothing depends on it. What is not small and simple, and what cannot be written so, goes the way of the others.
"""

import time
from collections.abc import Mapping
from typing import Final

import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from libs.failpoints import failpoint
from libs.types.tenant import Deletes, SinkMode
from spark.jobs.events_at_hand import MOST_BYTES
from spark.jobs.late_events import has_late_events
from spark.jobs.phases import WriteSplit
from spark.jobs.spark_errors import described
from spark.jobs.table_batch import TableBatch, TenantSink, parts_of
from spark.sinks.port import MergesRows, RowsAtHand, SinkTable, TableColumn

_MOST_EVENTS: Final = 10_000
"""Of a small table in a batch; more are worth a query."""

log = structlog.get_logger()


def is_small(context: TenantSink, table: TableBatch) -> bool:
    """Whether the batch has few events of the table, each with its whole row, under one schema, and nothing besides: no
    truncation, no late event, nothing that waited."""
    if (
        not isinstance(context.sink, MergesRows)
        or context.settings.mode is not SinkMode.MIRROR
        or len(table.slices) != 1
    ):
        return False
    [(part, schema)] = parts_of(table)
    is_hard = context.settings.deletes is Deletes.HARD
    return (
        not context.moves_together
        and part.rows <= _MOST_EVENTS
        and part.image_bytes <= MOST_BYTES
        and bool(schema.key)
        and part.newest_keyless is None
        and not part.partial_rows
        and table.parked is None
        and table.replay is None
        # One that is marked keeps its other columns, which are not among its events.
        and (not has_late_events(table) if is_hard else part.newest_delete is None)
    )


def merge_at_hand(
    context: TenantSink, table: TableBatch, wanted: SinkTable, columns: Mapping[str, TableColumn]
) -> WriteSplit | None:
    """Write a small table's part of the batch, one commit. None: it is to be written as others are, and nothing was."""
    begun_s = time.monotonic()
    spark, sink, at_hand = table.events.sparkSession, context.sink, context.at_hand
    if at_hand is None or table.topic not in at_hand or not isinstance(sink, MergesRows):
        return None
    [(_, schema)] = parts_of(table)
    if schema.key != wanted.key or not set(wanted.key) <= columns.keys():
        return None
    try:
        decoder = context.decoders.of(spark, table.topic, schema, columns, wanted.deletes)
        if decoder is None:
            return None
        rows = RowsAtHand(decoder.row_type, lambda: at_hand.take(table.topic, decoder.projections))
        commit = sink.merge_rows(spark, wanted, rows)
    except (PySparkException, Py4JJavaError) as error:
        # A value that does not fit, say: the query is told of it anew, and then it is known which.
        log.info("sink_table_not_merged_at_hand", table=wanted.table, reason=described(error))
        return None
    if commit is None:
        return None
    failpoint("sink_after_rows_before_commit")
    written_s = time.monotonic()
    commit()
    return WriteSplit(0.0, round(written_s - begun_s, 3), round(time.monotonic() - written_s, 3))
