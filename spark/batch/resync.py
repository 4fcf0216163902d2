"""A table that is doubted, built again and swapped in (``headwater resync``).

A copy of the source's rows is in the table's own topic: snapshot rows, and the changes committed meanwhile. Once the sink has
been past it, a ``ResyncRequest`` says from where on the topic has the whole table. The batch that meets the request reads the
topic from there up to its own end, and writes that in one commit that replaces all rows and carries the batch's identity: until
then readers see the table as it was, and a batch that comes again finds itself done. Where it cannot be built, the table's part
of the batch is applied to it as ever, and the answer says why.

The written rows depend on the tenant's mode. Of a mirror the last change of each row (``replace_rows``). Of a history the
stored versions as the changes have them: those that contradict the changes go, and rows without one end
(``replace_versions``). A log needs no copy: the request reaches back to the topic's first event, and the entries of its
changes give way to new ones (``replace_entries``), while those of events that Kafka has dropped stay.

    due_resyncs ▶ resynced_table ▶ replace_rows | replace_versions | replace_entries ▶ store the answer
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import structlog
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from libs.sink_state.progress import TableProgress
from libs.sink_state.resync import ResyncAnswer, ResyncRequest
from libs.sink_state.stream_offsets import joined_offsets, load_earlier_offsets, load_stream_offsets
from libs.types.tenant import Images, SinkMode
from spark.batch.context import BatchContext
from spark.batch.table_batch import Known, TableBatch
from spark.kafka.read_topics import read_range
from spark.sinks.port import BatchIdentity, TableRefused
from spark.transforms.cut_envelope import SNAPSHOT
from spark.transforms.passing import passing
from spark.transforms.survey import Slice, survey

_TRIES: Final = 3

"""Of a building that fails for a reason that may pass: a batch that fails ten times halts the tenant."""

log = structlog.get_logger()


def due_resyncs(context: BatchContext, requests: Sequence[ResyncRequest]) -> dict[str, ResyncRequest]:
    """By topic: the newest request that is not answered, or that ``batch`` itself has fulfilled before it was cut off."""
    due: dict[str, ResyncRequest] = {}
    for request in requests:
        answer = context.pending.resyncs.of(request.id)
        if answer is not None and (answer.refused_because or (answer.is_done and not _is_of(answer, context.batch))):
            continue  # of a query that began again since, or this batch has refused it already
        if (older := due.get(request.topic)) is not None:
            refuse(context, older, "a newer request for the same table came with it")
        due[request.topic] = request
    return due


def _is_of(answer: ResyncAnswer, batch: BatchIdentity) -> bool:
    return (answer.query_id, answer.batch_id) == (batch.query_id, batch.batch_id)


def resynced_table(context: BatchContext, request: ResyncRequest, known: TableProgress | None) -> TableBatch:
    """All events of the table's topic, up to the batch's end.

    Raises:
        TableRefused: it cannot be built again; the message ends with the remedy.
    """
    _check(context, request)
    is_log = context.settings.mode is SinkMode.APPEND
    ends = _ends(context, request)
    with_before = context.settings.images is Images.BEFORE_AND_AFTER
    events = passing(
        context.cut,
        read_range(context.spark, context.kafka, request.topic, request.from_offsets, ends, with_before=with_before),
    )
    if is_log:
        events = _decided(events, request.topic, ends, written=_written(context, request.topic, known))
    events, slices, _ = survey(events)
    if not slices:
        slices = [no_events(context, request.topic, known)]
    for topic, version in context.schemas.learn(
        context.spark, {(request.topic, each.schema_version) for each in slices}
    ):
        raise TableRefused(context.schemas.reason(topic, version))
    return TableBatch(
        topic=request.topic,
        slices=slices,
        events=events,
        schemas={part.schema_version: context.schemas.schema(request.topic, part.schema_version) for part in slices},
        parked=None,
        is_passed_over=False,
        known=Known() if known is None else Known(order=known.order, positions=known.positions, ignored=known.ignored),
        is_resynced=True,
        read_to=ends,
    )


def _check(context: BatchContext, request: ResyncRequest) -> None:
    if parked := context.pending.parked_keys.of_table(request.topic, context.batch).keys:
        raise TableRefused(
            f"{len(parked)} key(s) of the table are parked: `headwater dead-letter replay {context.tenant.tenant}` takes them "
            "up, or gives them up; then resync again"
        )


def _ends(context: BatchContext, request: ResyncRequest) -> Mapping[int, int]:
    """Where the batch ends in the table's topic: further than its own events, of which there may be none."""
    ends = load_stream_offsets(context.state.folder, context.tenant.tenant, context.batch.batch_id).get(
        request.topic, {}
    )
    if behind := [partition for partition, end in request.to_offsets.items() if ends.get(partition, 0) < end]:
        raise TableRefused(
            f"the sink has not read topic {request.topic} up to the copy's end (Kafka partition {behind[0]}): its query began "
            "again meanwhile; resync again when it has caught up"
        )
    return joined_offsets(ends, context.ahead.to_offsets.get(request.topic, {}), choose=max)


def _written(context: BatchContext, topic: str, known: TableProgress | None) -> Mapping[int, int]:
    """After the last event of the topic that the table was written with, by Kafka partition."""
    dealt = load_earlier_offsets(context.state.folder, context.tenant.tenant, context.batch.batch_id).get(topic, {})
    read = joined_offsets(dealt, context.ahead.from_offsets.get(topic, {}), choose=max)
    parked = None if known is None else known.parked
    return read if parked is None else joined_offsets(read, parked.from_offsets, choose=min)


def _decided(events: DataFrame, topic: str, ends: Mapping[int, int], *, written: Mapping[int, int]) -> DataFrame:
    """Of a log's events those of which it is known that all that are like them are there.

    An entry is known by its order and its key. Rows of a snapshot share an order, and may share their key, or have none. Where
    Kafka has deleted the first events of a partition, it may have deleted some of such rows, and others be there: up to the
    newest order that such a partition begins with, rows of a snapshot are left as the log has them.

    Raises:
        TableRefused: the log does not have all of these yet.
    """
    first = events.groupBy("kafka_partition").agg(sf.min("offset"), sf.min_by("order", "offset"))
    begins = {row[0]: (row[1], row[2]) for row in first.collect()}
    cut = [order for offset, order in begins.values() if offset > 0]
    is_one_gone = any(end > 0 and partition not in begins for partition, end in ends.items())
    if not cut and not is_one_gone:
        return events
    is_snapshot = sf.col("op") == SNAPSHOT
    is_left = is_snapshot if is_one_gone else is_snapshot & (sf.col("order") <= max(cut))
    newest = events.where(is_left).groupBy("kafka_partition").agg(sf.max("offset")).collect()
    if any(offset >= written.get(partition, 0) for partition, offset in newest):
        raise TableRefused(
            f"rows of a snapshot are on their way into the log, and Kafka has deleted the first ones of topic {topic} already: "
            "resync again when the snapshot has arrived"
        )
    return events.where(~is_left)


def unfit_for_resync(table: str, mode: SinkMode) -> str:
    """Why it is not built, where a row does not fit its columns."""
    given_up = "one that `dead-letter replay` gave up may be it"
    if mode is SinkMode.MIRROR:
        return (
            f"{table}: a row does not fit the table as the source has it ({given_up}); mend the row there, or the column, then "
            "resync again"
        )
    return (
        f"{table}: a change in the topic does not fit the table ({given_up}), and sink.mode {mode.value} needs them "
        "all; mend the column, then resync again"
    )


def no_events(context: BatchContext, topic: str, known: TableProgress | None) -> Slice:
    """For a table whose columns stand in no event.

    Raises:
        TableRefused: no schema of it is known either.
    """
    newest = context.schemas.newest(context.spark, topic)
    if newest is None:
        raise TableRefused(
            f"no schema of topic {topic} is known; restart the router, which writes them with the next rows"
        )
    order = known.order if known is not None else ""
    return Slice(
        topic=topic,
        schema_version=newest.table_schema.version,
        rows=0,
        from_offsets={},
        to_offsets={},
        oldest_order=order,
        newest_order=order,
        newest_place=None,
        newest_committed_at_us=known.committed_at_us if known is not None else 0,
        newest_keyless=None,
        oldest_keyless=None,
        newest_delete=None,
        partial_rows=0,
        first_rows=0,
        snapshot_rows=0,
        numbers=None,
        live_changes={},
        image_bytes=0,
    )


def fulfil(context: BatchContext, request: ResyncRequest, table: TableBatch) -> None:
    """Report the table as swapped; once, though the batch may come again."""
    known = context.pending.resyncs.of(request.id)
    if known is not None and known.is_done:
        return
    events = sum(part.rows for part in table.slices)
    _store(context, request, lambda answer: msgspec.structs.replace(answer, is_done=True, events=events))
    log.info("sink_table_resynced", topic=request.topic, request=request.id, events=events)


def refuse(context: BatchContext, request: ResyncRequest, because: str) -> None:
    """Report the refusal; the table stays. Durable, so that the batch does the same if it comes again."""
    _store(context, request, lambda answer: msgspec.structs.replace(answer, refused_because=because))
    log.error("sink_resync_refused", topic=request.topic, request=request.id, reason=because)


def gives_up(context: BatchContext, request: ResyncRequest) -> bool:
    """Whether a building that failed has failed too often to be tried again. Counts it, also over restarts."""
    before = context.pending.resyncs.of(request.id)
    failures = 1 + (0 if before is None else before.failures)
    _store(context, request, lambda answer: msgspec.structs.replace(answer, failures=failures))
    return failures >= _TRIES


def _store(context: BatchContext, request: ResyncRequest, change: Callable[[ResyncAnswer], ResyncAnswer]) -> None:
    before = context.pending.resyncs.of(request.id)
    answer = ResyncAnswer(
        topic=request.topic,
        query_id=context.batch.query_id,
        batch_id=context.batch.batch_id,
        at_us=time.time_ns() // 1_000,
        failures=0 if before is None else before.failures,
    )
    context.pending.resyncs.store(request.id, change(answer))
