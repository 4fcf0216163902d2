"""The tables of a batch, each committed by itself, a few at a time: written, parked, or built again."""

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from libs.errors import TransientError
from libs.failpoints import failpoint
from libs.sink_state.progress import (
    ReachedPosition,
    Standing,
    TableTimings,
    newest_positions,
)
from libs.telemetry.metrics import SINK_FAILED_MAINTENANCE
from libs.types.warehouse import WarehouseTable
from libs.warehouse.schema_changes import left_out
from spark.batch.context import BatchContext
from spark.batch.continuity import broken_off
from spark.batch.events_at_hand import EventsAtHand
from spark.batch.outcome import leave_try, newest_event, outcome_of, parked_with, try_of
from spark.batch.phases import WriteSplit, measured
from spark.batch.plan import Part, Resync
from spark.batch.resync import fulfil, gives_up, refuse, resynced_table, unfit_for_resync
from spark.batch.set_aside import write_fitting_rows
from spark.batch.side_by_side import side_by_side
from spark.batch.small_tables import ByQuery, count_write, merge_at_hand
from spark.batch.table_batch import TableBatch, are_first, key_bounds, place_of, reached_with
from spark.batch.whole_transactions import show_waiting_rows
from spark.batch.write import at_each_version, sink_table, write_batch, write_resynced
from spark.jvm.containment import is_of_input, is_of_tenant
from spark.jvm.errors import OF_ONE_ROW, described, has_condition
from spark.pending.progress import (
    SetAside,
    TableCommit,
    TableOutcome,
)
from spark.pending.replays import parked_by_now
from spark.sinks.evolution import stored_columns
from spark.sinks.port import (
    Maintained,
    ShowsTogether,
    SinkTable,
    TableLeftOut,
    TableRefused,
)
from spark.sinks.ready_table import ready_table
from spark.transforms.warehouse_columns import TableColumn

log = structlog.get_logger()


def commit_tables(context: BatchContext, parts: Sequence[Part]) -> tuple[list[TableOutcome], float]:
    """Commit each table; the seconds that it took to make them visible, where that happens together."""
    sink = context.sink
    if not (isinstance(sink, ShowsTogether) and context.of.moves_together):
        return _apply_tables(context, parts), 0.0
    with sink.staged_batch(context.spark):
        return _show_together(context, _apply_tables(context, parts))


def _show_together(context: BatchContext, outcomes: Sequence[TableOutcome]) -> tuple[list[TableOutcome], float]:
    """Make the batch's rows visible; returns the seconds that it took. Tables are maintained only after that, which moves the
    published rows."""
    started_s = time.monotonic()
    written = [outcome for outcome in outcomes if outcome.commit is not None and not outcome.commit.is_left_out]
    # A try that was found may have been staged before its batch was cut off.
    found = context.tries.settled.places
    places = tuple(dict.fromkeys((*(outcome.place for outcome in written), *found)))
    context.of.files.cut.store(msgspec.structs.replace(context.cut, publishing=places))
    context.state.keep()  # else a restart from there would show some tables only after another pass over all
    context.state.confirm()
    show_waiting_rows(context.of, context.spark)
    shown_at_us, took_s = time.time_ns() // 1_000, time.monotonic() - started_s
    failpoint("sink_after_showing_before_maintenance")
    return [_shown(context, outcome, shown_at_us) for outcome in outcomes], took_s


def _shown(context: BatchContext, outcome: TableOutcome, shown_at_us: int) -> TableOutcome:
    """With the results of maintenance; tables that were not written are as before."""
    commit = outcome.commit
    if commit is None or commit.timings is None:
        return outcome
    started_s = time.monotonic()
    maintained = _maintain(context, outcome.place)
    timings = msgspec.structs.replace(commit.timings, maintain_s=round(time.monotonic() - started_s, 3))
    return replace(outcome, commit=replace(commit, written_at_us=shown_at_us, maintained=maintained, timings=timings))


def _apply_tables(context: BatchContext, parts: Sequence[Part]) -> list[TableOutcome]:
    """Commit each table, a few at a time. All are waited for.

    One that fails while others are written, or for its input, is its own fault: it is parked when it has failed so a few times,
    and stays parked where it was. Else the first failure is raised, and the batch comes again.
    """
    ended = side_by_side(context.spark, functools.partial(_tried, context), parts, context.limits.tables_in_parallel)
    failed = [each for each in ended if isinstance(each, _Failed)]
    outcomes = [each for each in ended if each is not None and not isinstance(each, _Failed)]
    for outcome in outcomes:
        context.pending.failures.ended(outcome.topic)
    if failed and context.of.query.is_stopping():
        raise failed[0].error
    is_any_written = any(outcome.commit is not None for outcome in outcomes)
    # Each is counted in each batch: one after another, a few tables would be more failures than halt the tenant.
    is_passed = [
        each.table.parked is not None
        or ((is_any_written or is_of_input(each.error)) and context.pending.failures.failed(each.table.topic))
        for each in failed
    ]
    if not all(is_passed):
        raise failed[is_passed.index(False)].error
    return [*outcomes, *(_parked_for_failing(context, each) for each in failed)]


@dataclass(frozen=True, slots=True)
class _Failed:
    """A table could not be written, for no reason that a sink or its policies know."""

    table: TableBatch
    error: Exception


def _tried(context: BatchContext, part: Part) -> TableOutcome | _Failed | None:
    try:
        with context.of.query.metered():
            return _apply_part(context, part)
    except Exception as error:
        if is_of_tenant(error) or part.own is None or part.resync is not None or not part.own.fresh:
            raise
        if not isinstance(error, PySparkException | Py4JJavaError):
            log.error("refused_unforeseen", topic=part.own.topic, exc_info=error)
        return _Failed(part.own, error)


def _parked_for_failing(context: BatchContext, failed: _Failed) -> TableOutcome:
    table = failed.table
    context.pending.failures.ended(table.topic)
    context.pending.parked_keys.report_refused(table.topic, context.batch)
    name = table.newest.table_schema.table_id
    because = (
        f"{name}: writing it failed again and again, at last with: {described(failed.error)}; mend the table in the warehouse, "
        "or have it built again: headwater resync"
    )
    log.error("sink_table_parked", table=str(name), reason=because)
    leave_try(context, table)
    return outcome_of(context, table, parked=parked_with(context, table, because))


def _apply_part(context: BatchContext, part: Part) -> TableOutcome | None:
    outcome = None if part.resync is None else _apply_resync(context, part.resync)
    if outcome is None and part.failed is not None:
        raise part.failed
    if outcome is None and part.own is not None:
        return _apply_table(context, part.own, part.at_hand)
    return outcome


def _apply_resync(context: BatchContext, resync: Resync) -> TableOutcome | None:
    """Swap the table for one built from its topic; None: this is impossible, and it stays as it is."""
    request = resync.request
    try:
        if context.tries.is_unknown(request.topic):
            raise TableRefused(
                f"the warehouse did not answer whether it has the last try of the parked table of {request.topic} (log line "
                "sink_try_unknown); mend that, then resync again"
            )
        table = replace(resynced_table(context, request, resync.known), own_slices=resync.own_slices)
        commit = _commit(context, table)
    except TableRefused as refused:
        refuse(context, request, str(refused))
        return None
    except TableLeftOut as left_out_table:
        refuse(context, request, str(left_out_table))
        return None
    except Exception as error:
        if is_of_tenant(error) or not gives_up(context, request):
            raise
        refuse(context, request, f"building it failed again and again, at last with: {described(error)}")
        return None
    failpoint("sink_after_swap_before_answer")
    fulfil(context, request, table)
    return outcome_of(context, table, commit=commit)


def _apply_table(context: BatchContext, table: TableBatch, at_hand: EventsAtHand | None) -> TableOutcome:
    outcome = functools.partial(outcome_of, context, table)
    if table.is_passed_over:
        assert table.parked is not None
        return outcome(parked=parked_with(context, table, table.parked.because))
    try:
        commit = _commit(context, table, at_hand)
        _log_ignored(table, commit.ignored)
        if table.parked is not None:
            context.pending.retries.written(table.topic)
        return outcome(commit=commit, parked=table.rest)
    except TableLeftOut as left_out_table:
        ignored = (str(left_out_table),)
        _log_ignored(table, ignored)
        return outcome(commit=TableCommit(time.time_ns() // 1_000, ignored=ignored, is_left_out=True))
    except TableRefused as refused:
        context.pending.parked_keys.report_refused(table.topic, context.batch)
        if not table.fresh and table.parked is None:
            context.pending.parked_keys.take_back(table.topic, context.batch)
            # Nothing of the topic is passed over: the dead letters wait on.
            log.error("sink_replay_refused", table=str(table.newest.table_schema.table_id), reason=str(refused))
            aside = parked_by_now(context.pending.parked_keys.of_table(table.topic, context.batch))
            return outcome(commit=TableCommit(time.time_ns() // 1_000, ignored=table.known.ignored, aside=aside))
        log.error("sink_table_parked", table=str(table.newest.table_schema.table_id), reason=str(refused))
        leave_try(context, table)
        return outcome(parked=parked_with(context, table, str(refused)))


def _log_ignored(table: TableBatch, ignored: tuple[str, ...]) -> None:
    """Once, and not with every batch."""
    if ignored and ignored != table.known.ignored:
        log.warning("sink_changes_ignored", table=str(table.newest.table_schema.table_id), ignored=list(ignored))


def _commit(context: BatchContext, table: TableBatch, at_hand: EventsAtHand | None = None) -> TableCommit:
    """Write the table's part, unless the warehouse holds it already. ``at_hand``: of a small table, its events."""
    begun_s = time.monotonic()
    positions = _positions(context, table)
    # Before anything refuses the table: if it were parked, its rows would come once more.
    is_applied = _is_applied(context, table)
    found = _found(context, table)
    if is_applied:
        aside = parked_by_now(context.pending.parked_keys.of_table(table.topic, context.batch))
        standing = Standing(id="" if found is None else found.id, batch=str(context.batch))
        now_us = time.time_ns() // 1_000
        return TableCommit(now_us, ignored=table.known.ignored, aside=aside, positions=positions, standing=standing)
    if unknown := table.unknown_versions:
        raise TableRefused(context.schemas.reason(table.topic, unknown[0]))
    wanted, columns = _made_ready(context, table, positions)
    ignored = left_out(stored_columns(columns), table.newest.table_schema, context.sink.dialect)
    if context.tries.is_parked(table.topic):
        context.tries.begin(table.topic, try_of(context, table, positions, ignored))
        failpoint("sink_after_try_before_merge")
    prepared_s = time.monotonic()
    written = _write(context, table, wanted, columns, at_hand, is_held_back=bool(ignored))
    failpoint("sink_after_merge_before_next_table")
    maintain_from_s = time.monotonic()
    maintained = None if context.of.moves_together else _maintain(context, wanted.name)
    split = written.split
    timings = TableTimings(
        rows=sum(part.rows for part in table.slices) - written.aside.held,
        prepare_s=round(prepared_s - begun_s, 3),
        write_s=round(written.at_s - prepared_s, 3),
        dedupe_s=None if split is None else split.dedupe_s,
        merge_s=None if split is None else split.merge_s,
        commit_s=None if split is None else split.commit_s,
        maintain_s=round(time.monotonic() - maintain_from_s, 3),
    )
    return TableCommit(
        written.at_us,
        timings,
        maintained,
        ignored,
        aside=written.aside,
        columns=columns,
        positions=positions,
        standing=_left(context, table),
    )


def _made_ready(
    context: BatchContext, table: TableBatch, positions: tuple[ReachedPosition, ...]
) -> tuple[SinkTable, Mapping[str, TableColumn]]:
    """The table and its columns in the warehouse, which has it as the batch needs it."""
    wanted = sink_table(context, table)
    wanted = replace(wanted, reached=replace(wanted.reached, positions=positions))
    context.state.confirm()
    failpoint("sink_before_merge")
    wanted, columns = ready_table(table.events.sparkSession, context.sink, at_each_version(wanted, table))
    wanted = replace(
        wanted,
        key_bounds=key_bounds(table, columns, wanted.key),
        are_first=are_first(table),
        is_copy=any(part.snapshot_rows for part in table.slices),
        changes=sum(part.rows for part in table.slices),
    )
    return wanted, columns


@dataclass(frozen=True, slots=True)
class _Written:
    """A table's part is in the warehouse."""

    aside: SetAside
    at_s: float
    """Of the monotonic clock."""
    at_us: int
    split: WriteSplit | None
    """None: Spark does not say."""


def _write(
    context: BatchContext,
    table: TableBatch,
    wanted: SinkTable,
    columns: Mapping[str, TableColumn],
    at_hand: EventsAtHand | None,
    *,
    is_held_back: bool,
) -> _Written:
    """The one commit, in the way that the part needs. ``is_held_back``: as ``write_fitting_rows``.

    Raises:
        TableRefused: an event does not fit, and it is not known which.
    """

    def write_part(part: TableBatch) -> None:
        # Where some of its events are set aside, the part is another.
        done = merge_at_hand(context, part, wanted, columns, at_hand) if part is table else ByQuery.EVENTS
        if isinstance(done, ByQuery):
            write_batch(context, part, wanted, columns)
            count_write(context, done)
        else:
            write.split = done
            count_write(context, None)

    try:
        with measured(table.events.sparkSession) as write:
            if table.is_resynced:
                write_resynced(context, table, wanted, columns)
                aside = SetAside(0, 0, 0, 0)
            else:
                aside = write_fitting_rows(context, table, wanted, columns, write_part, is_held_back=is_held_back)
            # Within the block: its end asks Spark.
            at_s, at_us = time.monotonic(), time.time_ns() // 1_000
    except (PySparkException, Py4JJavaError) as error:
        if not any(has_condition(error, condition) for condition in OF_ONE_ROW):
            raise
        if table.is_resynced:
            raise TableRefused(unfit_for_resync(wanted.table, context.settings.mode)) from error
        raise TableRefused(
            f"{wanted.table}: an event of topic {wanted.topic} does not fit the table, and it is not known which; restart "
            "the router, which writes the schemas again, then this job; if that does not help, report it with the topic's "
            "records"
        ) from error
    return _Written(aside, at_s, at_us, write.split)


def _found(context: BatchContext, table: TableBatch) -> Standing | None:
    """The table as the warehouse has it before the batch is written.

    Raises:
        TableRefused: it does not go on where the sink left it.
    """
    found = context.sink.standing(table.events.sparkSession, place_of(context, table))
    name = str(table.newest.table_schema.table_id)
    broken = broken_off(
        context.tenant.tenant,
        name,
        table.known.standing,
        found,
        context.batch,
        context.settings.mode,
        is_resynced=table.is_resynced,
        accepts_losses=not context.limits.fails_on_loss,
    )
    if broken is not None:
        raise TableRefused(broken)
    return found


def _left(context: BatchContext, table: TableBatch) -> Standing:
    """The table as the batch leaves it.

    Raises:
        TableRefused: it does not have the batch, so that the progress must not say that it has.
    """
    found = context.sink.standing(table.events.sparkSession, place_of(context, table))
    if context.of.moves_together:  # it is shown later, with the others
        return Standing(id="" if found is None else found.id, batch=str(context.batch))
    if found is None or found.batch != str(context.batch):
        has = "no such table" if found is None else f"batch {found.batch or 'none'}"
        raise TableRefused(
            f"{table.newest.table_schema.table_id}: batch {context.batch} was written, and the warehouse has {has}: somebody "
            "else writes the table, or has set it back; end that, and it is tried again"
        )
    return found


def _is_applied(context: BatchContext, table: TableBatch) -> bool:
    """Whether the warehouse holds the table's part.

    Raises:
        TransientError: the part is dead letters alone, an earlier run of the batch may have written them, and the warehouse
            refuses to say so. Neither may they wait on, to be written once more, nor may the table go on without them.
    """
    place = place_of(context, table)
    is_replay_alone = not table.fresh and table.parked is None
    may_be_written = is_replay_alone and context.pending.parked_keys.has_released(table.topic, context.batch)
    try:
        return context.sink.is_applied(table.events.sparkSession, place, context.batch, reached_with(table).offsets)
    except TableRefused as refused:
        if not may_be_written:
            raise
        raise TransientError(
            f"{place} may have the dead letters that batch {context.batch.batch_id} took up, and the warehouse does not say; "
            f"nothing of the tenant is written until it does: {refused}"
        ) from refused


def _positions(context: BatchContext, table: TableBatch) -> tuple[ReachedPosition, ...]:
    """Where the source has the newest event that the table will have taken in, by source partition."""
    event = newest_event(table)
    place = None if event is None else context.of.newest_events.place(table.events.sparkSession, event)
    if place is None:
        return table.known.positions
    order = max(part.newest_order for part in table.slices)
    found = ReachedPosition(source_partition=place.source_partition, order=order, position=place.position)
    return newest_positions(table.known.positions, (found,))


def _maintain(context: BatchContext, table: WarehouseTable) -> Maintained:
    """The rows are safe already: a failure here must neither stop the tenant nor park the table, which would get them
    once more, and is tried again after the next commit."""
    try:
        return context.sink.maintain(context.spark, table)
    except Exception as error:
        if is_of_tenant(error):
            raise
        SINK_FAILED_MAINTENANCE.labels(context.tenant.tenant, context.settings.warehouse).inc()
        log.warning("sink_maintenance_failed", table=str(table), reason=described(error))
        return Maintained()
