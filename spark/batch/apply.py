"""One micro-batch of one tenant: the way of its events into the warehouse's tables.

    read_ranges ▶ parse_keys ▶ latest_per_key ▶ parse_events ▶ conform_to ▶ merge_into ▶ record_progress

``spark.tenant.query`` calls ``apply_batch`` when the tenant has a turn. The batch is read from Kafka
once, surveyed, and split by topic; each table is then committed by itself, a few at a time. Spark commits the batch when all
are done. A crash before that replays the whole batch, and tables that hold it already are passed over (``Sink.is_applied``).
"""

import time
from collections.abc import Sequence
from contextlib import nullcontext

import structlog
from pyspark.sql import SparkSession

from libs.failpoints import failpoint
from libs.sink_state.cut import Cut
from libs.sink_state.progress import (
    BatchTimings,
    SinkProgress,
)
from spark.batch.commit import commit_tables
from spark.batch.context import BatchContext
from spark.batch.outcome import check_accounted, newest_event
from spark.batch.plan import plan_batch
from spark.batch.read import BatchRead, batch_read
from spark.batch.tenant_sink import TenantSink
from spark.pending.progress import (
    TableOutcome,
    load_progress,
    observe_batch,
    store_progress,
    with_batch,
)
from spark.pending.tries import Tries, settle
from spark.sinks.port import (
    BatchIdentity,
    ShowsTogether,
)

log = structlog.get_logger()


def apply_batch(sink: TenantSink, batch: BatchIdentity, spark: SparkSession) -> int:
    """Apply a micro-batch: every table holds its events afterwards, or is parked with them. Returns how many events it had.
    ``spark``: Spark's session of the batch.

    Idempotent: the same batch may come again after a crash at any point.

    Raises:
        PipelineHalted: a human must see to the tenant's topics; nothing more of this tenant is applied.
    """
    started_s = time.monotonic()
    progress = load_progress(sink.state.folder, sink.tenant.tenant)
    with batch_read(sink, batch, spark, progress) as read:
        read_s = time.monotonic() - started_s
        # Save state first: after a restart the batch must have the same offsets, read-ahead and cut.
        failpoint("sink_before_state_kept")
        sink.state.keep()
        failpoint("sink_after_state_kept")
        sink.sink.begin_batch(spark, batch)
        tries = settled_tries(sink, spark, batch, progress, read.cut)
        context = BatchContext(sink, batch, spark, read.cut, read.ahead, tries, read.topic_ids)
        parts = plan_batch(context, read)
        written = [part.own for part in parts if part.is_ordinary and part.own and not part.own.is_passed_over]
        sink.newest_events.read(spark, [event for table in written if (event := newest_event(table))])
        outcomes, show_s = commit_tables(context, parts)
    timings = BatchTimings(
        read_s=round(read_s, 3),
        show_s=round(show_s, 3),
        rows=sum(outcome.written_rows for outcome in outcomes),
        total_s=round(time.monotonic() - started_s, 3),
    )
    _note(context, read, outcomes, timings)
    failpoint("sink_after_batch_before_spark_commit")
    return sum(part.rows for part in read.surveyed)


def _note(context: BatchContext, read: BatchRead, outcomes: Sequence[TableOutcome], timings: BatchTimings) -> None:
    """The batch as done: checked, in the progress file, in metrics and in the log."""
    tries = context.tries
    progress = with_batch(
        tries.settled.progress,
        context.batch,
        outcomes,
        timings=timings,
        now_us=time.time_ns() // 1_000,
        tries=tries.open,
        settled=tries.settled.of_batch,
    )
    check_accounted(context.batch, read.by_topic, outcomes, tries, progress)
    store_progress(context.state.folder, progress)
    observe_batch(context.settings.warehouse, progress, outcomes)
    context.of.query.report_applied(outcomes)
    log.info(
        "sink_batch_committed",
        batch_id=context.batch.batch_id,
        rows=timings.rows,
        tables=len(outcomes),
        replayed=sum(outcome.is_replay for outcome in outcomes),
        parked=[outcome.table for outcome in outcomes if outcome.commit is None],
        read_s=timings.read_s,
        total_s=timings.total_s,
    )


def settled_tries(
    sink: TenantSink, spark: SparkSession, batch: BatchIdentity, progress: SinkProgress, cut: Cut
) -> Tries:
    """The batch's tries, once earlier ones' results were asked for; those results are durable."""
    # Only the stager knows the staged rows.
    warehouse, is_staged = sink.sink, sink.moves_together and bool(progress.tries)
    with warehouse.staged_batch(spark) if is_staged and isinstance(warehouse, ShowsTogether) else nullcontext():
        # Events held back by a cut are released in between, and would stand among written ones: none may join the waiting ones.
        settled = settle(warehouse, spark, batch, progress, may_wait=not cut.query_id)
    if settled.of_earlier:
        store_progress(sink.state.folder, settled.stored)
        sink.state.keep()
    for topic in settled.of_batch | settled.of_earlier:
        sink.pending.retries.written(topic)
    for topic, tried in settled.not_found.items():
        if tried.query_id == batch.query_id:  # one that began again has forgotten parked tables
            sink.pending.parked_keys.take_back(topic, BatchIdentity(tried.query_id, tried.batch_id))
    return Tries(sink.state.folder, settled, sink.state.keep)
