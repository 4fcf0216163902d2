"""The work of a micro-batch, table by table: its events, waiting events that are tried again, letters, tables built again."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from libs.events.dead_letter import ReplayRequest, decode_replay_request
from libs.events.delivered_schema import DeliveredSchema
from libs.events.names import replays_topic, resyncs_topic, wakes_topic
from libs.sink_state.progress import (
    ParkedTable,
    SinkProgress,
    TableProgress,
)
from libs.sink_state.resync import ResyncRequest, decode_resync_request
from libs.sink_state.stream_offsets import joined_offsets, load_stream_offsets
from libs.sink_state.wake import decode_wake
from libs.types.table import TableId, TableSchema
from libs.types.tenant import Images
from spark.batch.context import BatchContext, ended_before
from spark.batch.continuity import made_again, whole_topic
from spark.batch.events_at_hand import EventsAtHand
from spark.batch.read import BatchRead, surveyed
from spark.batch.resync import due_resyncs, no_events
from spark.batch.set_aside import letters_of
from spark.batch.small_tables import why_by_query
from spark.batch.table_batch import Known, TableBatch, range_of
from spark.jvm.containment import is_of_tenant
from spark.jvm.errors import described
from spark.kafka.read_topics import events_of, read_range
from spark.kafka.requests import read_requests
from spark.pending.letters import read_letters
from spark.pending.progress import (
    has_noted,
)
from spark.pending.replays import Replay, answer_in_vain, answer_refused, chosen_keys
from spark.pending.retries import first_piece, left_behind, with_joined
from spark.transforms.passing import not_copied, passing
from spark.transforms.survey import Slice

_RESYNC: Final = "where Kafka has deleted some of them, have the table built again: headwater resync"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Asked:
    """The requests in a batch."""

    replays: Mapping[str, Sequence[ReplayRequest]]
    """By table topic: the letters to apply again."""
    resyncs: Sequence[ResyncRequest]
    retried: frozenset[str]
    """Topics of tables that are to be tried now, where they are parked."""


@dataclass(frozen=True, slots=True)
class Resync:
    """A table is to be built again."""

    request: ResyncRequest
    known: TableProgress | None
    own_slices: Sequence[Slice]
    """Of the table's events in this batch."""


@dataclass(frozen=True, slots=True)
class Part:
    """A batch's work on one table; ``own`` or ``resync`` is there."""

    own: TableBatch | None
    """The table's events in the batch; not applied where it is built again, which takes them in."""
    resync: Resync | None = None
    failed: Exception | None = None
    """The table's new events could not be separated from those that wait; nobody foresaw why."""
    at_hand: EventsAtHand | None = None
    """The events of the batch's small tables; None: this table is none."""

    @property
    def is_ordinary(self) -> bool:
        """Its own events are to be written."""
        return self.own is not None and self.resync is None and self.failed is None


def plan_batch(context: BatchContext, read: BatchRead) -> list[Part]:
    """The work on each table, by topic: also on tables without events that are tried again, or built again."""
    progress, settled = context.tries.settled.progress, context.tries.settled.of_batch
    asked = asked_of(context, read.surveyed)
    resyncs = due_resyncs(context, asked.resyncs)
    by_topic = read.by_topic
    of_other_topics = {topic for topic, known in progress.tables.items() if _other_topic(context, known)}
    topics = {*by_topic, *asked.replays, *progress.parked_topics, *of_other_topics} - settled
    parts = {
        topic: part
        for topic in sorted(topics)
        if (part := _part(context, progress, topic, by_topic.get(topic, []), read.events, asked))
    }
    for topic, request in resyncs.items():
        resync = Resync(request, progress.tables.get(topic), by_topic.get(topic, []))
        parts[topic] = replace(parts.get(topic, Part(None)), resync=resync)
    return _with_small_tables(context, read.events, [parts[topic] for topic in sorted(parts)])


def _with_small_tables(context: BatchContext, events: DataFrame, parts: Sequence[Part]) -> list[Part]:
    ordinary = [part.own for part in parts if part.is_ordinary and part.own]
    small = [table for table in ordinary if why_by_query(context, table) is None]
    if not small:
        return list(parts)
    image_bytes = {table.topic: table.slices[0].image_bytes for table in small}
    rows = {table.topic: table.slices[0].rows for table in small}
    at_hand = EventsAtHand(events, image_bytes, rows=rows)
    return [replace(part, at_hand=at_hand) if part.own and part.own.topic in rows else part for part in parts]


def asked_of(context: BatchContext, parts: Sequence[Slice]) -> Asked:
    read = functools.partial(read_requests, context.spark, context.kafka, parts)
    replays: dict[str, list[ReplayRequest]] = {}
    for request in read(replays_topic(context.tenant.tenant), decode_replay_request):
        replays.setdefault(request.topic, []).append(request)
    wakes = read(wakes_topic(context.tenant.tenant), decode_wake)
    return Asked(
        replays=replays,
        resyncs=read(resyncs_topic(context.tenant.tenant), decode_resync_request),
        retried=frozenset(topic for wake in wakes for topic in wake.retried_topics),
    )


def _part(
    context: BatchContext,
    progress: SinkProgress,
    topic: str,
    slices: Sequence[Slice],
    events: DataFrame,
    asked: Asked,
) -> Part | None:
    """The batch's work on one topic; None: there is none. An error that is this table's waits for the others."""
    try:
        table = _table_batch(context, progress, topic, slices, events, asked)
        return None if table is None else Part(table)
    except Exception as error:
        if is_of_tenant(error) or not slices:
            raise
        known = progress.tables.get(topic)
        table = TableBatch(
            topic=topic,
            slices=slices,
            events=events,
            schemas=_required(context, topic, slices),
            parked=None if known is None else known.parked,
            is_passed_over=False,
            known=Known() if known is None else Known(order=known.order, positions=known.positions),
        )
        return Part(table, failed=error)


def _table_batch(
    context: BatchContext,
    progress: SinkProgress,
    topic: str,
    slices: Sequence[Slice],
    events: DataFrame,
    asked: Asked,
) -> TableBatch | None:
    """The events to apply of one topic; None: there are none.

    A parked table is tried again now and then, with all that was passed over, whether or not the batch has more of it.
    """
    known = progress.tables.get(topic)
    parked = None if known is None else known.parked
    if parked is not None and parked.is_catching_up and has_noted(progress, context.batch):
        return None  # its piece is written under this batch's identity: the rest is the next batch's
    other_topic = None if known is None else _other_topic(context, known)
    if known is not None and other_topic is not None:
        parked = whole_topic(other_topic, _ends(context, topic, slices))
        if not slices and known.parked != parked:
            slices = [no_events(context, topic, known)]
    replay = _replay_of(context, topic, asked)
    if replay is not None and not replay.released and not slices:
        answer_in_vain(context.pending.parked_keys, topic, context.batch, replay)
        return None
    is_retry = parked is not None and _is_tried(
        context,
        topic,
        max((part.schema_version for part in slices), default=0),
        is_of_other_topic=other_topic is not None,
        is_replayed=replay is not None,
        is_asked_for=topic in asked.retried,
    )
    if not slices and not is_retry and replay is None:
        return None
    taken = _taken_up(context, topic, parked, slices) if parked is not None and is_retry else None
    if parked is not None and taken is None and replay is not None:
        answer_refused(context.pending.parked_keys, topic, context.batch, replay)
        replay = None
    if taken is not None:
        parked, events, slices = taken.waiting, taken.events, taken.slices
    if not slices and replay is None:
        return None
    table = TableBatch(
        topic=topic,
        slices=slices,
        events=events,
        schemas=_required(context, topic, slices),
        parked=parked,
        is_passed_over=parked is not None and taken is None,
        known=_known(context, progress, topic, replay, parked),
        replay=replay,
        own_slices=slices,
        rest=None if taken is None else left_behind(taken.waiting, taken.read_to),
        read_to={} if taken is None else taken.read_to,
    )
    return table if replay is None or not replay.released else _with_letters(context, table, replay)


def _replay_of(context: BatchContext, topic: str, asked: Asked) -> Replay | None:
    """Of the letters that requests of the batch ask for; None: none does."""
    if topic not in asked.replays:
        return None
    released = chosen_keys(context.pending.parked_keys.of_table(topic, context.batch), asked.replays[topic])
    replay = Replay(asked.replays[topic], released)
    log.info("dead_letters_replayed", topic=topic, requests=len(replay.requests), keys=len(released))
    return replay


def _is_tried(
    context: BatchContext,
    topic: str,
    newest_version: int,
    *,
    is_of_other_topic: bool,
    is_replayed: bool,
    is_asked_for: bool,
) -> bool:
    """Whether a parked table is tried with this batch, which is noted."""
    is_due = is_replayed or context.pending.retries.is_due(topic, newest_version, is_asked_for=is_asked_for)
    if context.tries.is_unknown(topic):
        return False
    return not context.limits.fails_on_loss if is_of_other_topic else is_due


@dataclass(frozen=True, slots=True)
class _TakenUp:
    """A piece of a parked table's waiting events."""

    waiting: ParkedTable
    """With the batch's own events, which have joined them."""
    events: DataFrame
    slices: Sequence[Slice]
    read_to: Mapping[int, int]
    """By Kafka partition: its end."""


def _taken_up(context: BatchContext, topic: str, parked: ParkedTable, slices: Sequence[Slice]) -> _TakenUp | None:
    """The next piece; None: it cannot be read, and waits on."""
    waiting = with_joined(parked, *range_of(slices))
    try:
        return _TakenUp(waiting, *_piece(context, topic, waiting))
    except (PySparkException, Py4JJavaError) as error:
        # This table's own: the others need none of these events.
        log.error("sink_parked_events_unread", topic=topic, reason=described(error), remedy=_RESYNC)
        return None


def _known(
    context: BatchContext, progress: SinkProgress, topic: str, replay: Replay | None, parked: ParkedTable | None
) -> Known:
    known = progress.tables.get(topic)
    offsets = {} if replay is None else ended_before(context, topic, parked)
    if known is None:
        return Known(offsets=offsets)
    # A query whose checkpoint is another reads the topic from its begin; one of that name may have been made again.
    is_other_query = progress.query_id != context.batch.query_id
    return Known(
        order=known.order,
        committed_at_us=known.committed_at_us,
        offsets=offsets,
        positions=known.positions,
        ignored=known.ignored,
        deleted=() if is_other_query else known.deleted,
        truncated="" if is_other_query else known.truncated_order,
        standing=known.standing,
    )


def _other_topic(context: BatchContext, known: TableProgress) -> str | None:
    """Why the table's topic is not the one that this query has read; None: it is."""
    # A query that began again reads the topic from its begin, whichever it is.
    is_read = known.standing.batch.startswith(f"{context.batch.query_id}:")
    return made_again(context.tenant.tenant, known, context.topic_ids.get(known.topic, "")) if is_read else None


def _ends(context: BatchContext, topic: str, slices: Sequence[Slice]) -> dict[int, int]:
    """By Kafka partition, where the batch ends in a table's topic."""
    dealt = load_stream_offsets(context.state.folder, context.tenant.tenant, context.batch.batch_id).get(topic, {})
    return joined_offsets(dealt, range_of(slices)[1], choose=max)


def _piece(context: BatchContext, topic: str, waiting: ParkedTable) -> tuple[DataFrame, list[Slice], dict[int, int]]:
    """Of a parked table's waiting events as many as a batch may hold, and where they end; a larger piece where it holds
    nothing but marks and tombstones. All of them where batches are cut: held-back events come between the pieces."""
    with_before = context.settings.images is Images.BEFORE_AND_AFTER
    limit = waiting.waiting_offsets if context.cut.query_id else waiting.piece_offsets or context.limits.offsets
    while True:
        ends = first_piece(waiting.from_offsets, waiting.to_offsets, limit)
        records = read_range(context.spark, context.kafka, topic, waiting.from_offsets, ends, with_before=with_before)
        events = passing(context.cut, not_copied(waiting, records))
        events, slices = surveyed(context.tenant, events)
        if slices or ends == waiting.to_offsets:
            return events, slices, ends
        limit *= 4


def _with_letters(context: BatchContext, table: TableBatch, replay: Replay) -> TableBatch | None:
    """The table's events, and the dead letters that it takes up again: of keys whose letters are all there. None: there are
    neither."""
    with_before = context.settings.images is Images.BEFORE_AND_AFTER
    spark = table.events.sparkSession
    letters = read_letters(spark, context.kafka, context.tenant.tenant, table.topic).transform(
        events_of, with_before=with_before
    )
    letters = letters.localCheckpoint()  # read once; gone with the last reference to it
    letters, written = surveyed(context.tenant, letters)
    versions = _required(context, table.topic, written)
    waiting, whole = letters_of(letters, replay, replace(table, schemas=versions))
    if lost := len(replay.released) - len(whole):
        log.error("dead_letters_missing", topic=table.topic, keys=lost)
    events = table.events.where(sf.col("topic") == table.topic).unionByName(waiting)
    events, slices = surveyed(context.tenant, events)
    if not slices:
        answer_in_vain(context.pending.parked_keys, table.topic, context.batch, replay)
        return None
    return replace(
        table,
        events=events,
        slices=slices,
        schemas=_required(context, table.topic, slices),
        replay=replace(replay, released=whole),
    )


def _required(context: BatchContext, topic: str, slices: Sequence[Slice]) -> dict[int, DeliveredSchema]:
    """By version. Where the tenant's topic of schemas lacks one, the table's newest stands in its place, so that the table can
    be named and parked (``TableBatch.unknown_versions``)."""
    versions = {part.schema_version for part in slices}
    lacking = {version for _, version in context.schemas.learn(context.spark, {(topic, each) for each in versions})}
    known = {version: context.schemas.schema(topic, version) for version in versions - lacking}
    if not lacking:
        return known
    newest = context.schemas.newest(context.spark, topic) or _nameless(topic, context.tenant.tenant)
    return {**known, **dict.fromkeys(lacking, newest)}


def _nameless(topic: str, tenant: str) -> DeliveredSchema:
    """For a topic of which no schema was ever delivered: its name, by the default template, is all that there is."""
    source, _, name = topic.removeprefix(f"{tenant}.").partition(".")
    database, _, table = name.partition(".")
    table_schema = TableSchema(table_id=TableId(database=database, table=table), columns=())
    return DeliveredSchema(topic=topic, source=source, table_schema=table_schema)
