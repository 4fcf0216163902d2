"""One micro-batch of one tenant: the way of its events into the warehouse's tables.

    read_ranges ▶ parse_keys ▶ latest_per_key ▶ parse_events ▶ conform_to ▶ merge_into ▶ record_progress

``spark.tenant.query`` calls ``apply_batch`` when the tenant has a turn. The batch is read from Kafka
once, surveyed, and split by topic; each table is then committed by itself, a few at a time. Spark commits the batch when all
are done. A crash before that replays the whole batch, and tables that hold it already are passed over (``Sink.is_applied``).
"""

import functools
import time
from collections.abc import Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Final

import msgspec
import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from libs.errors import PipelineHalted, TransientError
from libs.events.dead_letter import ReplayRequest, decode_replay_request
from libs.events.delivered_schema import DeliveredSchema
from libs.events.names import replays_topic, resyncs_topic, sink_request_topics, wakes_topic
from libs.failpoints import failpoint
from libs.sink_state.progress import (
    BatchTimings,
    ParkedTable,
    ReachedPosition,
    SinkProgress,
    Standing,
    TableProgress,
    TableTimings,
    Try,
    newest_positions,
)
from libs.sink_state.resync import ResyncRequest, decode_resync_request
from libs.sink_state.stream_offsets import joined_offsets, load_earlier_offsets, load_stream_offsets
from libs.sink_state.wake import decode_wake
from libs.telemetry.faults import STRAY_RECORDS, raise_fault
from libs.telemetry.metrics import SINK_FAILED_MAINTENANCE
from libs.types.fault import FaultScope
from libs.types.patterns import matches_table
from libs.types.table import Column
from libs.types.table_layout import parse_ordered_term, parse_term
from libs.types.tenant import Deletes, Images, SinkMode
from libs.types.warehouse import IS_CURRENT_COLUMN, OP_COLUMN, WarehouseTable, warehouse_table
from libs.warehouse.fitness import unfit_because
from libs.warehouse.schema_changes import left_out
from libs.warehouse.spark_types import spark_type
from spark.batch.events_at_hand import EventsAtHand
from spark.batch.goes_on import broken_off, made_again, outside_ranges, unaccounted, whole_topic
from spark.batch.late_events import deleted_range, without_late_events
from spark.batch.newest_events import EventPlace
from spark.batch.phases import measured
from spark.batch.read_ahead import ranges_of_batch
from spark.batch.resync import due_resyncs, fulfil, gives_up, no_events, refuse, table_anew, unfit_anew
from spark.batch.set_aside import (
    answer_in_vain,
    answer_refused,
    chosen_keys,
    letters_of,
    parked_by_now,
    write_what_fits,
)
from spark.batch.side_by_side import side_by_side
from spark.batch.small_tables import ByQuery, count_write, merge_at_hand, why_by_query
from spark.batch.table_batch import (
    Replay,
    TableBatch,
    TenantSink,
    are_first,
    changes_of,
    key_bounds,
    latest_changes_of,
    logged_changes_of,
    range_of,
    reached_with,
    tracked_columns,
    truncations_of,
)
from spark.batch.whole_transactions import cut_batch, is_cut, show_what_waits
from spark.jvm.containment import is_of_input, is_of_tenant
from spark.jvm.errors import OF_ONE_ROW, described, has_condition
from spark.kafka.kafka_ranges import OffsetRange
from spark.kafka.read_topics import events_of, read_range, read_ranges
from spark.kafka.requests import read_requests
from spark.kafka.topic_ids import topic_ids
from spark.owed.letters import read_letters
from spark.owed.progress import (
    SetAside,
    TableCommit,
    TableOutcome,
    has_noted,
    known_table,
    load_progress,
    observe_batch,
    store_progress,
    table_after,
    with_batch,
)
from spark.owed.retries import first_piece, left_behind, with_joined
from spark.owed.tries import Tries, settle
from spark.sinks.evolution import stored_columns
from spark.sinks.port import (
    BatchIdentity,
    Maintained,
    NewVersions,
    ShowsTogether,
    SinkColumn,
    SinkTable,
    TableLeftOut,
    TableRefused,
)
from spark.sinks.ready_table import ready_table
from spark.transforms.cut_envelope import TRUNCATE
from spark.transforms.fill import fill_of
from spark.transforms.mark_deleted import mark_deleted
from spark.transforms.passing import not_copied, passing
from spark.transforms.sql_text import quoted
from spark.transforms.survey import Slice, survey
from spark.transforms.versions import has_late_changes, versions_anew, versions_of
from spark.transforms.warehouse_columns import TableColumn, Truncation

_RESYNC: Final = "where Kafka has deleted some of them, have the table built anew: headwater resync"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Anew:
    """A table is to be built again."""

    request: ResyncRequest
    spark: SparkSession
    known: TableProgress | None
    own_slices: Sequence[Slice]
    """Of the table's events in this batch."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A batch's work on one table; one of both is there."""

    own: TableBatch | None
    """The table's events in the batch; not applied where it is built again, which takes them in."""
    anew: _Anew | None = None
    failed: Exception | None = None
    """They could not be told from those that wait; nobody foresaw why."""


def apply_batch(context: TenantSink, batch: BatchIdentity, spark: SparkSession) -> int:
    """Apply a micro-batch: every table holds its events afterwards, or is parked with them. Returns how many events it had.
    ``spark``: Spark's session of the batch.

    Idempotent: the same batch may come again after a crash at any point.

    Raises:
        PipelineHalted: a human must see to the tenant's topics; nothing more of this tenant is applied.
    """
    started_s, show_s = time.monotonic(), 0.0
    progress = load_progress(context.state_dir, context.tenant.tenant)
    parked = progress.parked_topics
    ranges, ahead = ranges_of_batch(context, batch, spark, parked=parked)
    known_ids = topic_ids(spark, context.kafka, {*ranges, *progress.tables})
    context = replace(context, ahead=ahead, topic_ids=known_ids)
    events = read_ranges(
        spark,
        context.kafka,
        ranges,
        with_before=context.settings.images is Images.BEFORE_AND_AFTER,
        fails_on_loss=context.fails_on_loss,
    )
    held = events.persist(StorageLevel.MEMORY_AND_DISK_DESER)  # columns as they are: no lz4, no serialization
    try:
        if context.moves_together:
            show_what_waits(context, spark)
        if is_cut(context):
            events, cut = cut_batch(context, batch, held)
            context = replace(context, cut=cut)
            failpoint("sink_after_cut_before_tables")
        events, surveyed = _surveyed(context, events)
        if not is_cut(context):  # what waited for its transaction's end comes from before the batch
            _check_read(batch, ranges, surveyed)
        requested = sink_request_topics(context.tenant.tenant)
        slices = [part for part in surveyed if part.topic not in requested]
        _check_first_topics(context, spark, progress, {part.topic for part in slices})
        context.schemas.require(spark, {(part.topic, part.schema_version) for part in slices})
        read_s = time.monotonic() - started_s
        # Save state first: after a restart the batch must have the same offsets, read-ahead and cut.
        failpoint("sink_before_state_kept")
        context.keep()
        failpoint("sink_after_state_kept")
        context.sink.begin_batch(spark, batch)
        tries = _settled_tries(context, spark, batch, progress)
        context, progress = replace(context, tries=tries), tries.settled.progress
        asked = _asked(context, spark, surveyed)
        anew = due_resyncs(context, batch, asked.resyncs)
        by_topic = {topic: list(parts) for topic, parts in groupby(slices, attrgetter("topic"))}
        of_other_topics = {topic for topic, known in progress.tables.items() if _other_topic(context, batch, known)}
        parts = {
            topic: part
            for topic in sorted({*by_topic, *asked.replays, *parked, *of_other_topics} - tries.settled.of_batch)
            if (part := _part(context, batch, progress, topic, by_topic.get(topic, []), events, asked))
        }
        for topic, request in anew.items():
            anew_part = _Anew(request, spark, progress.tables.get(topic), by_topic.get(topic, []))
            parts[topic] = replace(parts.get(topic, _Part(None)), anew=anew_part)
        ordered = [parts[topic] for topic in sorted(parts)]
        as_ever = [part.own for part in ordered if part.own and not part.anew and not part.failed]
        if small := [table for table in as_ever if why_by_query(context, table) is None]:
            image_bytes = {table.topic: table.slices[0].image_bytes for table in small}
            rows = {table.topic: table.slices[0].rows for table in small}
            context = replace(context, at_hand=EventsAtHand(events, image_bytes, rows=rows))
        written = [table for table in as_ever if not table.is_passed_over]
        context.newest_events.read(spark, [event for table in written if (event := _newest_event(table))])
        if isinstance(context.sink, ShowsTogether) and context.moves_together:
            with context.sink.staged_batch(spark):
                outcomes, show_s = _show_together(context, spark, _apply_tables(context, spark, batch, ordered))
        else:
            outcomes = _apply_tables(context, spark, batch, ordered)
    finally:
        held.unpersist()
        context.newest_events.close()
    now_us = time.time_ns() // 1_000
    timings = BatchTimings(
        read_s=round(read_s, 3),
        show_s=round(show_s, 3),
        rows=sum(outcome.written_rows for outcome in outcomes),
        total_s=round(time.monotonic() - started_s, 3),
    )
    progress = with_batch(
        progress,
        batch,
        outcomes,
        timings=timings,
        now_us=now_us,
        tries=tries.open,
        settled=tries.settled.of_batch,
    )
    _check_accounted(batch, by_topic, outcomes, tries, progress)
    store_progress(context.state_dir, progress)
    observe_batch(context.settings.warehouse, progress, outcomes)
    context.tell_applied(outcomes)
    log.info(
        "sink_batch_committed",
        batch_id=batch.batch_id,
        rows=timings.rows,
        tables=len(outcomes),
        replayed=sum(outcome.is_replay for outcome in outcomes),
        parked=[outcome.table for outcome in outcomes if outcome.commit is None],
        read_s=timings.read_s,
        total_s=timings.total_s,
    )
    failpoint("sink_after_batch_before_spark_commit")
    return sum(part.rows for part in surveyed)


def _check_accounted(
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


def _check_first_topics(context: TenantSink, spark: SparkSession, progress: SinkProgress, topics: Set[str]) -> None:
    """For topics without a noted id: check that the events are of the topic whose id will be noted.

    Raises:
        TransientError: one was made again meanwhile; the batch comes again.
    """
    first = {topic for topic in topics if topic not in progress.tables or not progress.tables[topic].topic_id}
    for topic, found in topic_ids(spark, context.kafka, first).items():
        if found != context.topic_ids.get(topic):
            raise TransientError(f"topic {topic} was made again while it was read; the batch comes again")


def _show_together(
    context: TenantSink, spark: SparkSession, outcomes: Sequence[TableOutcome]
) -> tuple[list[TableOutcome], float]:
    """Make the batch's rows visible; returns the seconds that it took. Tables are maintained only after that, which moves
    what is shown."""
    started_s = time.monotonic()
    written = [outcome for outcome in outcomes if outcome.commit is not None and not outcome.commit.is_left_out]
    # A try that was found may have been staged before its batch was cut off.
    found = context.tries.settled.places
    places = tuple(dict.fromkeys((*(outcome.place for outcome in written), *found)))
    context.cut_file.store(msgspec.structs.replace(context.cut, publishing=places))
    context.keep()  # else a restart from there would show some tables only after another pass over all
    context.confirm()
    show_what_waits(context, spark)
    shown_at_us, took_s = time.time_ns() // 1_000, time.monotonic() - started_s
    failpoint("sink_after_showing_before_maintenance")
    return [_shown(context, spark, outcome, shown_at_us) for outcome in outcomes], took_s


def _settled_tries(context: TenantSink, spark: SparkSession, batch: BatchIdentity, progress: SinkProgress) -> Tries:
    """The batch's tries, once earlier ones' results were asked for; those results are durable."""
    # Only the stager knows the staged rows.
    sink, is_staged = context.sink, context.moves_together and bool(progress.tries)
    with sink.staged_batch(spark) if is_staged and isinstance(sink, ShowsTogether) else nullcontext():
        # Events held back by a cut are released in between, and would stand among written ones: none may join the waiting ones.
        settled = settle(context.sink, spark, batch, progress, may_wait=not context.cut.query_id)
    if settled.of_earlier:
        store_progress(context.state_dir, settled.stored)
        context.keep()
    for topic in settled.of_batch | settled.of_earlier:
        context.retries.written(topic)
    for topic, tried in settled.not_found.items():
        if tried.query_id == batch.query_id:  # one that began again has forgotten parked tables
            context.parked_keys.take_back(topic, BatchIdentity(tried.query_id, tried.batch_id))
    return Tries(context.state_dir, settled, context.keep)


def _shown(context: TenantSink, spark: SparkSession, outcome: TableOutcome, shown_at_us: int) -> TableOutcome:
    """With the results of maintenance; tables that were not written are as before."""
    commit = outcome.commit
    if commit is None or commit.timings is None:
        return outcome
    started_s = time.monotonic()
    maintained = _maintain(context, spark, outcome.place)
    timings = msgspec.structs.replace(commit.timings, maintain_s=round(time.monotonic() - started_s, 3))
    return replace(outcome, commit=replace(commit, written_at_us=shown_at_us, maintained=maintained, timings=timings))


@dataclass(frozen=True, slots=True)
class _Asked:
    """The requests in a batch."""

    replays: Mapping[str, Sequence[ReplayRequest]]
    """By table topic: the letters to apply again."""
    resyncs: Sequence[ResyncRequest]
    retried: frozenset[str]
    """Topics of tables that are to be tried now, where they are parked."""


def _asked(context: TenantSink, spark: SparkSession, parts: Sequence[Slice]) -> _Asked:
    read = functools.partial(read_requests, spark, context.kafka, parts)
    replays: dict[str, list[ReplayRequest]] = {}
    for request in read(replays_topic(context.tenant.tenant), decode_replay_request):
        replays.setdefault(request.topic, []).append(request)
    wakes = read(wakes_topic(context.tenant.tenant), decode_wake)
    return _Asked(
        replays=replays,
        resyncs=read(resyncs_topic(context.tenant.tenant), decode_resync_request),
        retried=frozenset(topic for wake in wakes for topic in wake.retried_topics),
    )


def _part(
    context: TenantSink,
    batch: BatchIdentity,
    progress: SinkProgress,
    topic: str,
    slices: Sequence[Slice],
    events: DataFrame,
    asked: _Asked,
) -> _Part | None:
    """The batch's work on one topic; None: there is none. An error that is this table's waits for the others (``_tried``)."""
    try:
        table = _table_batch(context, batch, progress, topic, slices, events, asked)
        return None if table is None else _Part(table)
    except Exception as error:
        if is_of_tenant(error) or not slices:
            raise
        known = progress.tables.get(topic)
        table = TableBatch(
            topic=topic,
            slices=slices,
            events=events,
            schemas=_required(context, events.sparkSession, topic, slices),
            parked=None if known is None else known.parked,
            is_passed_over=False,
            known_order="" if known is None else known.order,
            known_positions=() if known is None else known.positions,
        )
        return _Part(table, failed=error)


def _table_batch(
    context: TenantSink,
    batch: BatchIdentity,
    progress: SinkProgress,
    topic: str,
    slices: Sequence[Slice],
    events: DataFrame,
    asked: _Asked,
) -> TableBatch | None:
    """The events to apply of one topic; None: there are none.

    A parked table is tried again now and then, with all that was passed over, whether or not the batch has more of it.
    """
    known = progress.tables.get(topic)
    parked = None if known is None else known.parked
    if parked is not None and parked.is_catching_up and has_noted(progress, batch):
        return None  # its piece is written under this batch's identity: the rest is the next batch's
    other_topic = None if known is None else _other_topic(context, batch, known)
    if known is not None and other_topic is not None:
        parked = whole_topic(other_topic, _ends(context, batch, topic, slices))
        if not slices and known.parked != parked:
            slices = [no_events(context, events.sparkSession, topic, known)]
    replay = None
    if topic in asked.replays:
        released = chosen_keys(context.parked_keys.of_table(topic, batch), asked.replays[topic])
        replay = Replay(asked.replays[topic], released)
        log.info("dead_letters_replayed", topic=topic, requests=len(replay.requests), keys=len(released))
    if replay is not None and not replay.released and not slices:
        answer_in_vain(context.parked_keys, topic, batch, replay)
        return None
    newest_version = max((part.schema_version for part in slices), default=0)
    is_retry = parked is not None and (
        replay is not None or context.retries.is_due(topic, newest_version, is_asked_for=topic in asked.retried)
    )
    if other_topic is not None:
        is_retry = not context.fails_on_loss
    if context.tries.is_unknown(topic):
        is_retry = False
    if not slices and not is_retry and replay is None:
        return None
    rest = None
    read_to: Mapping[int, int] = {}
    if parked is not None and is_retry:
        waiting = with_joined(parked, *range_of(slices))
        try:
            events, slices, read_to = _piece(context, events.sparkSession, topic, waiting)
            parked, rest = waiting, left_behind(waiting, read_to)
        except (PySparkException, Py4JJavaError) as error:
            # This table's own: the others need none of these events.
            log.error("sink_parked_events_unread", topic=topic, reason=described(error), remedy=_RESYNC)
            is_retry = False
    if parked is not None and not is_retry and replay is not None:
        answer_refused(context.parked_keys, topic, batch, replay)
        replay = None
    if not slices and replay is None:
        return None
    versions = _required(context, events.sparkSession, topic, slices)
    # A query whose checkpoint is another reads the topic from its begin; one of that name may have been made again.
    is_other_query = progress.query_id != batch.query_id
    table = TableBatch(
        topic=topic,
        slices=slices,
        events=events,
        schemas=versions,
        parked=parked,
        is_passed_over=parked is not None and not is_retry,
        known_order="" if known is None else known.order,
        known_committed_at_us=0 if known is None else known.committed_at_us,
        known_offsets={} if replay is None else _known_offsets(context, batch, topic, parked),
        known_positions=() if known is None else known.positions,
        known_ignored=() if known is None else known.ignored,
        known_deleted=() if known is None or is_other_query else known.deleted,
        known_truncated="" if known is None or is_other_query else known.truncated_order,
        known_standing=Standing() if known is None else known.standing,
        replay=replay,
        own_slices=slices,
        rest=rest,
        read_to=read_to,
    )
    if replay is None or not replay.released:
        return table
    table = _with_letters(context, table, replay)
    if not table.slices:
        answer_in_vain(context.parked_keys, topic, batch, replay)
        return None
    return table


def _other_topic(context: TenantSink, batch: BatchIdentity, known: TableProgress) -> str | None:
    """Why the table's topic is not the one that this query has read; None: it is."""
    # A query that began again reads the topic from its begin, whichever it is.
    is_read = known.standing.batch.startswith(f"{batch.query_id}:")
    return made_again(context.tenant.tenant, known, context.topic_ids.get(known.topic, "")) if is_read else None


def _ends(context: TenantSink, batch: BatchIdentity, topic: str, slices: Sequence[Slice]) -> dict[int, int]:
    """By Kafka partition, where the batch ends in a table's topic."""
    dealt = load_stream_offsets(context.state_dir, context.tenant.tenant, batch.batch_id).get(topic, {})
    return joined_offsets(dealt, range_of(slices)[1], choose=max)


def _piece(
    context: TenantSink, spark: SparkSession, topic: str, waiting: ParkedTable
) -> tuple[DataFrame, list[Slice], dict[int, int]]:
    """Of a parked table's waiting events as many as a batch may hold, and where they end; a larger piece where it holds
    nothing but marks and tombstones. All of them where batches are cut: held-back events come between the pieces."""
    with_before = context.settings.images is Images.BEFORE_AND_AFTER
    limit = waiting.waiting_offsets if context.cut.query_id else waiting.piece_offsets or context.batch_limit
    while True:
        ends = first_piece(waiting.from_offsets, waiting.to_offsets, limit)
        records = read_range(spark, context.kafka, topic, waiting.from_offsets, ends, with_before=with_before)
        events = passing(context.cut, not_copied(waiting, records))
        events, slices = _surveyed(context, events)
        if slices or ends == waiting.to_offsets:
            return events, slices, ends
        limit *= 4


def _surveyed(context: TenantSink, events: DataFrame) -> tuple[DataFrame, list[Slice]]:
    """The router's events and their slices; records of others are told."""
    events, slices, strays = survey(events)
    for stray in strays:
        log.error("sink_stray_records", topic=stray.topic, partition=stray.kafka_partition, records=stray.records)
        source, _, table = stray.topic.removeprefix(f"{context.tenant.tenant}.").partition(".")
        scope = FaultScope(source=source, tenant=context.tenant.tenant, table=table)
        raise_fault(STRAY_RECORDS, scope, happened=str(stray))
    return events, slices


def _known_offsets(
    context: TenantSink, batch: BatchIdentity, topic: str, parked: ParkedTable | None = None
) -> dict[int, int]:
    """By Kafka partition, where the former batches ended; for a parked table, the start of its waiting events."""
    dealt = load_earlier_offsets(context.state_dir, context.tenant.tenant, batch.batch_id)
    ended = joined_offsets(dealt.get(topic, {}), context.ahead.from_offsets.get(topic, {}), choose=max)
    return ended if parked is None else {**ended, **parked.from_offsets}


def _with_letters(context: TenantSink, table: TableBatch, replay: Replay) -> TableBatch:
    """The table's events, and the dead letters that it takes up again: of keys whose letters are all there."""
    with_before = context.settings.images is Images.BEFORE_AND_AFTER
    spark = table.events.sparkSession
    letters = read_letters(spark, context.kafka, context.tenant.tenant, table.topic).transform(
        events_of, with_before=with_before
    )
    letters = letters.localCheckpoint()  # read once; gone with the last reference to it
    letters, written = _surveyed(context, letters)
    versions = _required(context, spark, table.topic, written)
    waiting, whole = letters_of(letters, replay, replace(table, schemas=versions))
    if lost := len(replay.released) - len(whole):
        log.error("dead_letters_missing", topic=table.topic, keys=lost)
    events = table.events.where(sf.col("topic") == table.topic).unionByName(waiting)
    events, slices = _surveyed(context, events)
    return replace(
        table,
        events=events,
        slices=slices,
        schemas=_required(context, spark, table.topic, slices),
        replay=replace(replay, released=whole),
    )


def _required(
    context: TenantSink, spark: SparkSession, topic: str, slices: Sequence[Slice]
) -> dict[int, DeliveredSchema]:
    versions = {part.schema_version for part in slices}
    context.schemas.require(spark, {(topic, version) for version in versions})
    return {version: context.schemas.schema(topic, version) for version in versions}


def _apply_tables(
    context: TenantSink, spark: SparkSession, batch: BatchIdentity, parts: Sequence[_Part]
) -> list[TableOutcome]:
    """Commit each table, a few at a time. All are waited for.

    One that fails while others are written, or for what it was given, is its own fault: it is parked when it has failed so a
    few times, and stays parked where it was. Else the first failure is raised, and the batch comes again.
    """
    ended = side_by_side(spark, functools.partial(_tried, context, batch), parts, context.tables_in_parallel)
    failed = [each for each in ended if isinstance(each, _Failed)]
    outcomes = [each for each in ended if each is not None and not isinstance(each, _Failed)]
    for outcome in outcomes:
        context.failures.ended(outcome.topic)
    if failed and context.is_stopping():
        raise failed[0].error
    is_any_written = any(outcome.commit is not None for outcome in outcomes)
    # Each is counted in each batch: one after another, a few tables would be more failures than halt the tenant.
    is_passed = [
        each.table.parked is not None
        or ((is_any_written or is_of_input(each.error)) and context.failures.failed(each.table.topic))
        for each in failed
    ]
    if not all(is_passed):
        raise failed[is_passed.index(False)].error
    return [*outcomes, *(_parked_for_failing(context, batch, each) for each in failed)]


@dataclass(frozen=True, slots=True)
class _Failed:
    """A table could not be written, for no reason that a sink or its policies know."""

    table: TableBatch
    error: Exception


def _tried(context: TenantSink, batch: BatchIdentity, part: _Part) -> TableOutcome | _Failed | None:
    try:
        with context.metered():
            return _apply_part(context, batch, part)
    except Exception as error:
        if is_of_tenant(error) or part.own is None or part.anew is not None or not part.own.fresh:
            raise
        if not isinstance(error, PySparkException | Py4JJavaError):
            log.error("refused_unforeseen", topic=part.own.topic, exc_info=error)
        return _Failed(part.own, error)


def _parked_for_failing(context: TenantSink, batch: BatchIdentity, failed: _Failed) -> TableOutcome:
    table = failed.table
    context.failures.ended(table.topic)
    context.parked_keys.tell_refused(table.topic, batch)
    name = table.newest.table_schema.table_id
    because = (
        f"{name}: writing it failed again and again, at last with: {described(failed.error)}; mend the table in the warehouse, "
        "or have it built anew: headwater resync"
    )
    log.error("sink_table_parked", table=str(name), reason=because)
    _leave_try(context, batch, table)
    return _outcome(context, table, parked=_parked(context, batch, table, because))


def _apply_part(context: TenantSink, batch: BatchIdentity, part: _Part) -> TableOutcome | None:
    outcome = None if part.anew is None else _apply_anew(context, batch, part.anew)
    if outcome is None and part.failed is not None:
        raise part.failed
    if outcome is None and part.own is not None:
        return _apply_table(context, batch, part.own)
    return outcome


def _apply_anew(context: TenantSink, batch: BatchIdentity, anew: _Anew) -> TableOutcome | None:
    """Swap the table for one built from its topic; None: this is impossible, and it stays as it is."""
    request = anew.request
    try:
        if context.tries.is_unknown(request.topic):
            raise TableRefused(
                f"the warehouse did not answer whether it has what was tried of the parked table of {request.topic} (log line "
                "sink_try_unknown); mend that, then resync again"
            )
        table = replace(table_anew(context, anew.spark, batch, request, anew.known), own_slices=anew.own_slices)
        commit = _commit(context, batch, table)
    except TableRefused as refused:
        refuse(context, batch, request, str(refused))
        return None
    except TableLeftOut as left_out_table:
        refuse(context, batch, request, str(left_out_table))
        return None
    except Exception as error:
        if is_of_tenant(error) or not gives_up(context, batch, request):
            raise
        refuse(context, batch, request, f"building it failed again and again, at last with: {described(error)}")
        return None
    failpoint("sink_after_swap_before_answer")
    fulfil(context, batch, request, table)
    return _outcome(context, table, commit=commit)


def _apply_table(context: TenantSink, batch: BatchIdentity, table: TableBatch) -> TableOutcome:
    outcome = functools.partial(_outcome, context, table)
    if table.is_passed_over:
        assert table.parked is not None
        return outcome(parked=_parked(context, batch, table, table.parked.because))
    try:
        commit = _commit(context, batch, table)
        _tell_ignored(table, commit.ignored)
        if table.parked is not None:
            context.retries.written(table.topic)
        return outcome(commit=commit, parked=table.rest)
    except TableLeftOut as left_out_table:
        ignored = (str(left_out_table),)
        _tell_ignored(table, ignored)
        return outcome(commit=TableCommit(time.time_ns() // 1_000, ignored=ignored, is_left_out=True))
    except TableRefused as refused:
        context.parked_keys.tell_refused(table.topic, batch)
        if not table.fresh and table.parked is None:
            context.parked_keys.take_back(table.topic, batch)
            # Nothing of the topic is passed over: the dead letters wait on.
            log.error("sink_replay_refused", table=str(table.newest.table_schema.table_id), reason=str(refused))
            aside = parked_by_now(context.parked_keys.of_table(table.topic, batch))
            return outcome(commit=TableCommit(time.time_ns() // 1_000, ignored=table.known_ignored, aside=aside))
        log.error("sink_table_parked", table=str(table.newest.table_schema.table_id), reason=str(refused))
        _leave_try(context, batch, table)
        return outcome(parked=_parked(context, batch, table, str(refused)))


def _tell_ignored(table: TableBatch, ignored: tuple[str, ...]) -> None:
    """Once, and not with every batch."""
    if ignored and ignored != table.known_ignored:
        log.warning("sink_changes_ignored", table=str(table.newest.table_schema.table_id), ignored=list(ignored))


def _commit(context: TenantSink, batch: BatchIdentity, table: TableBatch) -> TableCommit:
    """Write the table's part, unless the warehouse holds it already."""
    begun_s = time.monotonic()
    spark = table.events.sparkSession
    positions = _positions(context, table)
    # Before anything refuses the table: if it were parked, its rows would come once more.
    is_applied = _is_applied(context, batch, table)
    found = _found(context, batch, table)
    if is_applied:
        aside = parked_by_now(context.parked_keys.of_table(table.topic, batch))
        standing = Standing(id="" if found is None else found.id, batch=str(batch))
        now_us = time.time_ns() // 1_000
        return TableCommit(now_us, ignored=table.known_ignored, aside=aside, positions=positions, standing=standing)
    wanted = sink_table(context, table)
    wanted = replace(wanted, reached=replace(wanted.reached, positions=positions))
    context.confirm()
    failpoint("sink_before_merge")
    wanted, columns = ready_table(spark, context.sink, _versions(wanted, table))
    wanted = replace(
        wanted,
        key_bounds=key_bounds(table, columns, wanted.key),
        are_first=are_first(table),
        is_copy=any(part.snapshot_rows for part in table.slices),
        changes=sum(part.rows for part in table.slices),
    )
    ignored = left_out(stored_columns(columns), table.newest.table_schema, context.sink.dialect)
    if context.tries.is_parked(table.topic):
        context.tries.begin(table.topic, _try_of(context, batch, table, positions, ignored))
        failpoint("sink_after_try_before_merge")
    prepared_s = time.monotonic()

    def write_part(part: TableBatch) -> None:
        # Where some of its events are set aside, the part is another.
        done = merge_at_hand(context, part, wanted, columns) if part is table else ByQuery.EVENTS
        if isinstance(done, ByQuery):
            write_batch(context, part, wanted, columns)
            count_write(context, done)
        else:
            write.split = done
            count_write(context, None)

    try:
        with measured(spark) as write:
            if table.is_anew:
                _write_anew(context, table, wanted, columns)
                aside = SetAside(0, 0, 0, 0)
            else:
                aside = write_what_fits(
                    context,
                    batch,
                    table,
                    wanted,
                    columns,
                    write_part,
                    is_held_back=bool(ignored),
                )
            # Within the block: its end asks Spark.
            written_s, written_at_us = time.monotonic(), time.time_ns() // 1_000
    except (PySparkException, Py4JJavaError) as error:
        if not any(has_condition(error, condition) for condition in OF_ONE_ROW):
            raise
        if table.is_anew:
            raise TableRefused(unfit_anew(wanted.table, context.settings.mode)) from error
        raise TableRefused(
            f"{wanted.table}: an event of topic {wanted.topic} does not fit the table, and it is not known which; restart "
            "the router, which writes the schemas again, then this job; if that does not help, report it with the topic's "
            "records"
        ) from error
    failpoint("sink_after_merge_before_next_table")
    maintain_from_s = time.monotonic()
    maintained = None if context.moves_together else _maintain(context, spark, wanted.name)
    timings = TableTimings(
        rows=sum(part.rows for part in table.slices) - aside.held,
        prepare_s=round(prepared_s - begun_s, 3),
        write_s=round(written_s - prepared_s, 3),
        dedupe_s=None if write.split is None else write.split.dedupe_s,
        merge_s=None if write.split is None else write.split.merge_s,
        commit_s=None if write.split is None else write.split.commit_s,
        maintain_s=round(time.monotonic() - maintain_from_s, 3),
    )
    standing = _left(context, batch, table)
    return TableCommit(
        written_at_us,
        timings,
        maintained,
        ignored,
        aside=aside,
        columns=columns,
        positions=positions,
        standing=standing,
    )


def _found(context: TenantSink, batch: BatchIdentity, table: TableBatch) -> Standing | None:
    """The table as the warehouse has it before the batch is written.

    Raises:
        TableRefused: it does not go on where the sink left it.
    """
    found = context.sink.standing(table.events.sparkSession, _place(context, table))
    name = str(table.newest.table_schema.table_id)
    broken = broken_off(
        context.tenant.tenant,
        name,
        table.known_standing,
        found,
        batch,
        context.settings.mode,
        is_anew=table.is_anew,
        accepts_losses=not context.fails_on_loss,
    )
    if broken is not None:
        raise TableRefused(broken)
    return found


def _left(context: TenantSink, batch: BatchIdentity, table: TableBatch) -> Standing:
    """The table as the batch leaves it.

    Raises:
        TableRefused: it does not have the batch, so that the progress must not say that it has.
    """
    found = context.sink.standing(table.events.sparkSession, _place(context, table))
    if context.moves_together:  # it is shown later, with the others
        return Standing(id="" if found is None else found.id, batch=str(batch))
    if found is None or found.batch != str(batch):
        has = "no such table" if found is None else f"batch {found.batch or 'none'}"
        raise TableRefused(
            f"{table.newest.table_schema.table_id}: batch {batch} was written, and the warehouse has {has}: somebody else "
            "writes the table, or has set it back; end that, and it is tried again"
        )
    return found


def _is_applied(context: TenantSink, batch: BatchIdentity, table: TableBatch) -> bool:
    """Whether the warehouse holds the table's part.

    Raises:
        TransientError: the part is dead letters alone, an earlier run of the batch may have written them, and the warehouse
            refuses to say so. Neither may they wait on, to be written once more, nor may the table go on without them.
    """
    place = _place(context, table)
    is_replay_alone = not table.fresh and table.parked is None
    may_be_written = is_replay_alone and context.parked_keys.has_released(table.topic, batch)
    try:
        return context.sink.is_applied(table.events.sparkSession, place, batch, reached_with(table).offsets)
    except TableRefused as refused:
        if not may_be_written:
            raise
        raise TransientError(
            f"{place} may have the dead letters that batch {batch.batch_id} took up, and the warehouse does not say; nothing "
            f"of the tenant is written until it does: {refused}"
        ) from refused


def _try_of(
    context: TenantSink,
    batch: BatchIdentity,
    table: TableBatch,
    positions: tuple[ReachedPosition, ...],
    ignored: tuple[str, ...],
) -> Try:
    """For a table that is or will be parked: the events that the batch writes."""
    now_us = time.time_ns() // 1_000
    aside = parked_by_now(context.parked_keys.of_table(table.topic, batch))
    standing = Standing(id=table.known_standing.id, batch=str(batch))
    commit = TableCommit(now_us, ignored=ignored, aside=aside, positions=positions, standing=standing)
    outcome = _outcome(context, table, commit=commit, parked=table.rest)
    known = known_table(context.tries.settled.progress, outcome)
    _, behind_fresh = table.fresh_range
    return Try(
        query_id=batch.query_id,
        batch_id=batch.batch_id,
        offsets=reached_with(table).offsets,
        ends=table.read_to or behind_fresh,
        becomes=table_after(known, outcome, commit, is_repeat=False, now_us=now_us),
    )


def _leave_try(context: TenantSink, batch: BatchIdentity, table: TableBatch) -> None:
    """An unacknowledged commit may have succeeded. Record the attempt, so that the next batch asks first."""
    context.tries.leave(table.topic, _try_of(context, batch, table, table.known_positions, table.known_ignored))


def _positions(context: TenantSink, table: TableBatch) -> tuple[ReachedPosition, ...]:
    """Where the source has the newest event that the table will have taken in, by source partition."""
    event = _newest_event(table)
    place = None if event is None else context.newest_events.place(table.events.sparkSession, event)
    if place is None:
        return table.known_positions
    order = max(part.newest_order for part in table.slices)
    found = ReachedPosition(source_partition=place.source_partition, order=order, position=place.position)
    return newest_positions(table.known_positions, (found,))


def _newest_event(table: TableBatch) -> EventPlace | None:
    newest = max(table.slices, key=attrgetter("newest_order"))
    return None if newest.newest_place is None else (table.topic, *newest.newest_place)


def _maintain(context: TenantSink, spark: SparkSession, table: WarehouseTable) -> Maintained:
    """The rows are safe already: a failure here must neither stop the tenant nor park the table, which would get them
    once more, and is tried again after the next commit."""
    try:
        return context.sink.maintain(spark, table)
    except Exception as error:
        if is_of_tenant(error):
            raise
        SINK_FAILED_MAINTENANCE.labels(context.tenant.tenant, context.settings.warehouse).inc()
        log.warning("sink_maintenance_failed", table=str(table), reason=described(error))
        return Maintained()


def _versions(wanted: SinkTable, table: TableBatch) -> list[SinkTable]:
    """The table at each version of the batch, ``wanted`` last."""
    older = [table.schemas[version].table_schema for version in sorted(table.schemas)[:-1]]
    return [
        *(
            replace(
                wanted, schema=each, key=each.key, columns=tuple(_sink_column(item, table) for item in each.columns)
            )
            for each in older
        ),
        wanted,
    ]


def write_batch(context: TenantSink, table: TableBatch, wanted: SinkTable, columns: Mapping[str, TableColumn]) -> None:
    """One table's part of the batch into the warehouse, as the tenant's mode has it; one commit."""
    spark = table.events.sparkSession
    match context.settings.mode:
        case SinkMode.APPEND:
            context.sink.append_to(spark, wanted, logged_changes_of(table, columns, context.settings.images))
        case SinkMode.MIRROR:
            if wanted.deletes is Deletes.HARD:
                table = without_late_events(context, table)
            _, newest = truncations_of(table)
            latest = _latest_rows(table, wanted, columns, newest)
            context.sink.merge_into(spark, wanted, latest, truncation=newest)
        case SinkMode.HISTORY:
            _write_versions(context, table, wanted, columns)


def _latest_rows(
    table: TableBatch, wanted: SinkTable, columns: Mapping[str, TableColumn], truncation: Truncation | None
) -> DataFrame:
    """A mirror's changes: the last one of each key, after ``truncation``, or marked by it."""
    if wanted.deletes is Deletes.SOFT:
        return latest_changes_of(table, columns, wanted.key, after=None).transform(mark_deleted(truncation))
    return latest_changes_of(table, columns, wanted.key, after=truncation.order if truncation else None)


def _write_anew(context: TenantSink, table: TableBatch, wanted: SinkTable, columns: Mapping[str, TableColumn]) -> None:
    """Make the table hold the events' rows, and rows that its mode keeps (``spark.batch.resync``); one commit."""
    spark = table.events.sparkSession
    oldest, newest = truncations_of(table)
    match context.settings.mode:
        case SinkMode.MIRROR:
            context.sink.replace_rows(spark, wanted, _latest_rows(table, wanted, columns, newest))
        case SinkMode.HISTORY:
            changes = changes_of(
                table, columns, key=wanted.key, is_partial=any(part.partial_rows for part in table.slices)
            )
            all_versions = functools.partial(
                versions_anew,
                changes,
                key=wanted.key,
                tracked=tracked_columns(context, wanted, columns),
                has_truncations=oldest is not None,
                order=wanted.reached.order,
                committed_at_us=wanted.reached.committed_at_us,
            )
            context.sink.replace_versions(spark, wanted, all_versions)
        case SinkMode.APPEND:
            changes = logged_changes_of(table, columns, context.settings.images)
            context.sink.replace_entries(spark, wanted, changes)


def _write_versions(
    context: TenantSink, table: TableBatch, wanted: SinkTable, columns: Mapping[str, TableColumn]
) -> None:
    spark = table.events.sparkSession
    oldest, _ = truncations_of(table)
    wanted = replace(wanted, oldest_order=min(part.oldest_order for part in table.slices))
    changes = changes_of(table, columns, key=wanted.key, is_partial=any(part.partial_rows for part in table.slices))
    keys = changes.where(sf.col(OP_COLUMN) != TRUNCATE).select(*map(quoted, wanted.key)).distinct()
    tracked = tracked_columns(context, wanted, columns)

    def new_versions(stored: DataFrame, *, may_hold_batch: bool = False) -> NewVersions:
        current = stored.where(IS_CURRENT_COLUMN)
        is_late = may_hold_batch or (
            wanted.oldest_order <= table.known_order
            and has_late_changes(changes, current, key=wanted.key, known_order=table.known_order)
        )
        rows = versions_of(
            changes,
            stored if is_late else current,
            key=wanted.key,
            tracked=tracked,
            has_truncations=oldest is not None,
        )
        return NewVersions(rows, only_current=not is_late)

    context.sink.merge_versions(spark, wanted, keys, new_versions, truncation=oldest)


def _place(context: TenantSink, table: TableBatch) -> WarehouseTable:
    newest = table.newest
    return warehouse_table(context.tenant.tenant, newest.source, newest.table_schema.table_id)


def sink_table(context: TenantSink, table: TableBatch) -> SinkTable:
    """The table as this batch's newest schema has it.

    Raises:
        TableRefused: such a table cannot be kept in the tenant's mode.
    """
    newest = table.newest
    schema = newest.table_schema
    mode, deletes = context.settings.mode, context.settings.deletes
    if unfit := unfit_because(schema, mode, deletes, context.sink.dialect):
        raise TableRefused(unfit)
    layout = next((each for each in context.settings.layouts if matches_table(each.tables, str(schema.table_id))), None)
    return SinkTable(
        name=_place(context, table),
        mode=mode,
        deletes=deletes,
        columns=tuple(_sink_column(column, table) for column in schema.columns),
        key=schema.key,
        topic=table.topic,
        source=newest.source,
        table=str(schema.table_id),
        schema=schema,
        oldest_version=min(table.schemas),
        reached=reached_with(table),
        partition_by=None if layout is None else tuple(map(parse_term, layout.partition_by)),
        sort_by=None if layout is None else tuple(map(parse_ordered_term, layout.sort_by)),
        policies=context.settings.schema_changes,
        schema_at=functools.partial(context.schemas.known_schema, table.topic),
    )


def _sink_column(column: Column, table: TableBatch) -> SinkColumn:
    """With its fill, should rows from before it was added lack it."""
    fill = fill_of(column, [table.schemas[version].table_schema for version in sorted(table.schemas)])
    return SinkColumn(
        column.name, spark_type(column), column.comment, fill, column.logical_type, is_optional=column.is_optional
    )


def _parked(context: TenantSink, batch: BatchIdentity, table: TableBatch, because: str) -> ParkedTable:
    seen_from, seen_to = table.fresh_range
    if table.parked is None:
        copies_from = _known_offsets(context, batch, table.topic) if context.cut.query_id else {}
        return ParkedTable(because=because, from_offsets=seen_from, to_offsets=seen_to, copies_from=copies_from)
    waiting = with_joined(table.parked, seen_from, seen_to)
    return msgspec.structs.replace(waiting, because=because, is_catching_up=False)


def _outcome(
    context: TenantSink,
    table: TableBatch,
    *,
    commit: TableCommit | None = None,
    parked: ParkedTable | None = None,
) -> TableOutcome:
    newest = table.newest
    # The events of a resync were counted when they came.
    counted = table.fresh if table.is_anew else table.slices
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
        warehouse_table=str(_place(context, table)),
        rows=0 if commit is not None and commit.is_left_out else sum(part.rows for part in counted),
        newest_order=max(part.newest_order for part in table.slices),
        newest_committed_at_us=max(part.newest_committed_at_us for part in table.slices),
        live_changes=live_changes,
        commit=commit,
        parked=None if parked is None else msgspec.structs.replace(parked, piece_offsets=context.batch_limit),
        deleted=deleted_range(table) if forgets_rows else None,
        truncated_order=truncation.order if forgets_rows and truncation is not None else "",
        topic_id=context.topic_ids.get(table.topic, ""),
    )
