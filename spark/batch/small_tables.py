"""Small tables of a batch without queries of their own (ADR 20).

A query costs a third of a CPU second however few rows it has: it is analysed, planned, compiled and scheduled. Where a batch
has a few changes of each of many tables, that is all that the tables cost. So the events of such tables are brought into the
driver's memory, many tables' by one query; each table's are decoded there by Spark's code for the same columns as ever,
which is kept from batch to batch; and a sink that is able to (``MergesRows``, ``MergesVersionRows``) merges them into its
table.

Nothing depends on it. Other tables, and writes that fail this way, go the usual way; a metric counts
both, these by why (``ByQuery``).
"""

import enum
import time
from collections.abc import Mapping
from typing import Final

import structlog

from libs.failpoints import failpoint
from libs.telemetry.metrics import SINK_TABLE_WRITES
from libs.types.tenant import Deletes, SinkMode
from spark.batch.context import BatchContext
from spark.batch.events_at_hand import MOST_BYTES, EventsAtHand
from spark.batch.late_events import has_late_events
from spark.batch.phases import WriteSplit
from spark.batch.table_batch import TableBatch, parts_of, tracked_columns
from spark.jvm.containment import is_of_tenant
from spark.jvm.errors import described
from spark.sinks.port import MergesRows, MergesVersionRows, RowsAtHand, SinkTable
from spark.transforms.warehouse_columns import TableColumn

_MOST_EVENTS: Final = 10_000

"""Of a small table in a batch; more are worth a query."""

_AT_HAND: Final = "at_hand"

"""In the metric, beside ``ByQuery``."""

log = structlog.get_logger()


class ByQuery(enum.StrEnum):
    """Why a table's part of a batch is written by a query."""

    WAREHOUSE = "warehouse"
    """Another way is not known of this one."""
    MODE = "mode"
    """A log: its part is appended, which reads nothing of the table."""
    TOGETHER = "together"
    """The tenant's tables move together."""
    MANY_EVENTS = "many_events"
    """They are worth a query."""
    EVENTS = "events"
    """Few, but not all of them whole rows of one schema in their order: truncations, late ones, waiting ones, soft deletes."""
    TABLE = "table"
    """Holds too much, or is not of the kind: partitioned, sorted, without a key or with one of fractions."""
    FAILED = "failed"
    """It was tried; the log says why (``sink_table_not_merged_at_hand``)."""


def why_by_query(context: BatchContext, table: TableBatch) -> ByQuery | None:
    """Why such events of the table go by a query. None: the table is small by its events: they are few, each has its
    whole row, under one schema, and there is nothing besides."""
    is_history = context.settings.mode is SinkMode.HISTORY
    if context.settings.mode is SinkMode.APPEND:
        return ByQuery.MODE
    sink = context.sink
    if not (isinstance(sink, MergesVersionRows) if is_history else isinstance(sink, MergesRows)):
        return ByQuery.WAREHOUSE
    if context.of.moves_together:
        return ByQuery.TOGETHER
    if any(part.rows > _MOST_EVENTS or part.image_bytes > MOST_BYTES for part in table.slices):
        return ByQuery.MANY_EVENTS
    if len(table.slices) != 1 or table.parked is not None or table.replay is not None:
        return ByQuery.EVENTS
    [(part, schema)] = parts_of(table)
    if not schema.key:
        return ByQuery.TABLE
    if is_history:
        # Of one that is as old as the table's rows, ended versions may have to be looked at.
        is_plain = part.newest_keyless is None and not part.partial_rows and part.oldest_order > table.known.order
        return None if is_plain else ByQuery.EVENTS
    # One that is marked keeps its other columns, which are not among its events.
    is_hard = context.settings.deletes is Deletes.HARD
    is_out_of_order = has_late_events(table) if is_hard else part.newest_delete is not None
    return ByQuery.EVENTS if part.newest_keyless is not None or part.partial_rows or is_out_of_order else None


def count_write(context: BatchContext, by_query: ByQuery | None) -> None:
    """A table's part of a batch was written. None: without a query."""
    SINK_TABLE_WRITES.labels(context.tenant.tenant, context.settings.warehouse, by_query or _AT_HAND).inc()


def merge_at_hand(
    context: BatchContext,
    table: TableBatch,
    wanted: SinkTable,
    columns: Mapping[str, TableColumn],
    at_hand: EventsAtHand | None,
) -> WriteSplit | ByQuery:
    """Write a small table's part of the batch, one commit; or say why it is to be written as others are: nothing was, then."""
    begun_s = time.monotonic()
    spark, sink = table.events.sparkSession, context.sink
    if at_hand is None or table.topic not in at_hand or not isinstance(sink, MergesRows | MergesVersionRows):
        return why_by_query(context, table) or ByQuery.EVENTS
    [(_, schema)] = parts_of(table)
    if schema.key != wanted.key or not set(wanted.key) <= columns.keys():
        return ByQuery.TABLE
    try:
        # A history takes its changes as a mirror does that keeps nothing of deleted rows.
        deletes = Deletes.HARD if wanted.mode is SinkMode.HISTORY else wanted.deletes
        decoder = context.of.decoders.of(spark, table.topic, schema, columns, deletes)
        if decoder is None:
            return ByQuery.TABLE
        rows = RowsAtHand(decoder.row_type, lambda: at_hand.take(table.topic, decoder.projections))
        if wanted.mode is not SinkMode.HISTORY:
            assert isinstance(sink, MergesRows)
            commit = sink.merge_rows(spark, wanted, rows)
        else:
            assert isinstance(sink, MergesVersionRows)
            tracked, is_known = tracked_columns(context, wanted, columns), bool(table.known.order)
            commit = sink.merge_version_rows(spark, wanted, rows, tracked=tracked, is_known=is_known)
    except Exception as error:
        if is_of_tenant(error):
            raise
        # A value that does not fit, for example: the query meets it again, and then it is known which.
        log.info("sink_table_not_merged_at_hand", table=wanted.table, reason=described(error))
        return ByQuery.FAILED
    if commit is None:
        return ByQuery.TABLE
    failpoint("sink_after_rows_before_commit")
    written_s = time.monotonic()
    commit()
    return WriteSplit(0.0, round(written_s - begun_s, 3), round(time.monotonic() - written_s, 3))
