"""The end of a batch for each table: written, parked, or tried with an unknown result; and the progress's notes of it."""

import time
from collections.abc import Mapping, Sequence
from operator import attrgetter

import msgspec

from libs.errors import PipelineHalted
from libs.sink_state.progress import (
    ParkedTable,
    ReachedPosition,
    SinkProgress,
    Standing,
    Try,
)
from libs.types.tenant import Deletes, SinkMode
from spark.batch.context import BatchContext, ended_before
from spark.batch.continuity import unaccounted
from spark.batch.late_events import deleted_range
from spark.batch.newest_events import EventPlace
from spark.batch.table_batch import TableBatch, place_of, range_of, reached_with, truncations_of
from spark.pending.progress import (
    TableCommit,
    TableOutcome,
    known_table,
    table_after,
)
from spark.pending.replays import parked_by_now
from spark.pending.retries import with_joined
from spark.pending.tries import Tries
from spark.sinks.port import (
    BatchIdentity,
)
from spark.transforms.survey import Slice


def outcome_of(
    context: BatchContext,
    table: TableBatch,
    *,
    commit: TableCommit | None = None,
    parked: ParkedTable | None = None,
) -> TableOutcome:
    newest = table.newest
    # The events of a resync were counted when they came.
    counted = table.fresh if table.is_resynced else table.slices
    live_changes: dict[int, int] = {}
    for part in counted:
        for committed_at_us, changes in part.live_changes.items():
            live_changes[committed_at_us] = live_changes.get(committed_at_us, 0) + changes
    forgets_rows = context.settings.mode is SinkMode.MIRROR and context.settings.deletes is Deletes.HARD
    _, truncation = truncations_of(table)
    return TableOutcome(
        topic=table.topic,
        source=newest.source,
        table=str(newest.table_schema.table_id),
        warehouse_table=str(place_of(context, table)),
        rows=0 if commit is not None and commit.is_left_out else sum(part.rows for part in counted),
        newest_order=max(part.newest_order for part in table.slices),
        newest_committed_at_us=max(part.newest_committed_at_us for part in table.slices),
        live_changes=live_changes,
        commit=commit,
        parked=None if parked is None else msgspec.structs.replace(parked, piece_offsets=context.limits.offsets),
        deleted=deleted_range(table) if forgets_rows else None,
        truncated_order=truncation.order if forgets_rows and truncation is not None else "",
        topic_id=context.topic_ids.get(table.topic, ""),
    )


def parked_with(context: BatchContext, table: TableBatch, because: str) -> ParkedTable:
    seen_from, seen_to = table.fresh_range
    if table.parked is None:
        copies_from = ended_before(context, table.topic) if context.cut.query_id else {}
        return ParkedTable(because=because, from_offsets=seen_from, to_offsets=seen_to, copies_from=copies_from)
    waiting = with_joined(table.parked, seen_from, seen_to)
    return msgspec.structs.replace(waiting, because=because, is_catching_up=False)


def try_of(
    context: BatchContext,
    table: TableBatch,
    positions: tuple[ReachedPosition, ...],
    ignored: tuple[str, ...],
) -> Try:
    """For a table that is or will be parked: the events that the batch writes."""
    now_us = time.time_ns() // 1_000
    aside = parked_by_now(context.pending.parked_keys.of_table(table.topic, context.batch))
    standing = Standing(id=table.known.standing.id, batch=str(context.batch))
    commit = TableCommit(now_us, ignored=ignored, aside=aside, positions=positions, standing=standing)
    outcome = outcome_of(context, table, commit=commit, parked=table.rest)
    known = known_table(context.tries.settled.progress, outcome)
    _, behind_fresh = table.fresh_range
    return Try(
        query_id=context.batch.query_id,
        batch_id=context.batch.batch_id,
        offsets=reached_with(table).offsets,
        ends=table.read_to or behind_fresh,
        becomes=table_after(known, outcome, commit, is_repeat=False, now_us=now_us),
    )


def leave_try(context: BatchContext, table: TableBatch) -> None:
    """An unacknowledged commit may have succeeded. Record the attempt, so that the next batch asks first."""
    context.tries.leave(table.topic, try_of(context, table, table.known.positions, table.known.ignored))


def check_accounted(
    batch: BatchIdentity,
    read: Mapping[str, Sequence[Slice]],
    outcomes: Sequence[TableOutcome],
    tries: Tries,
    progress: SinkProgress,
) -> None:
    """Check that the batch to be noted as done is the one that was done.

    Raises:
        PipelineHalted: events were read, and nothing has them.
    """
    written = {outcome.topic for outcome in outcomes if outcome.commit is not None} | tries.settled.of_batch
    ends = {topic: range_of(parts)[1] for topic, parts in read.items()}
    if lost := unaccounted(ends, written, progress):
        raise PipelineHalted(
            f"batch {batch} has read events of {', '.join(lost)} that it has neither written nor set aside; nothing is passed "
            "over. Restart the job; if that does not help, report it with this line"
        )


def newest_event(table: TableBatch) -> EventPlace | None:
    newest = max(table.slices, key=attrgetter("newest_order"))
    return None if newest.newest_place is None else (table.topic, *newest.newest_place)
