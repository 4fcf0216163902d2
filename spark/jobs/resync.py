"""A mirror that is doubted, built anew from a copy of the source's rows and swapped in (``headwater resync``).

The copy is in the table's own topic: snapshot rows, and the changes committed meanwhile. Once the sink has been past it, a
``ResyncRequest`` says from where on the topic tells the whole table. The batch that meets the request reads the topic from
there up to its own end, and writes that in one commit that replaces all rows (``ReplacesRows``) and carries the batch's
identity: until then readers see the table as it was, and a batch that comes again finds itself done. Where it cannot be built,
the table's part of the batch is applied to it as ever, and the answer says why.

    due_resyncs ▶ table_anew ▶ replace_rows ▶ store the answer
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import structlog
from pyspark.sql import SparkSession

from libs.types.resync import ResyncAnswer, ResyncRequest
from libs.types.stream_offsets import joined_offsets, load_stream_offsets
from libs.types.tenant import Images, SinkMode
from libs.types.warehouse import TableProgress
from spark.jobs.table_batch import TableBatch, TenantSink
from spark.sinks.port import BatchIdentity, ReplacesRows, TableRefused
from spark.transforms.passing import passing
from spark.transforms.read_topics import read_range
from spark.transforms.survey import Slice, survey

_TRIES: Final = 3
"""Of a building that fails for a reason that may pass: a batch that fails ten times halts the tenant."""

log = structlog.get_logger()


def due_resyncs(
    context: TenantSink, batch: BatchIdentity, requests: Sequence[ResyncRequest]
) -> dict[str, ResyncRequest]:
    """By topic: the newest request that is not answered, or that ``batch`` itself has fulfilled before it was cut off."""
    due: dict[str, ResyncRequest] = {}
    for request in requests:
        answer = context.resyncs.of(request.id)
        if answer is not None and (answer.refused_because or (answer.is_done and not _is_of(answer, batch))):
            continue  # of a query that began anew since, or this batch has refused it already
        if (older := due.get(request.topic)) is not None:
            refuse(context, batch, older, "a newer request for the same table came with it")
        due[request.topic] = request
    return due


def _is_of(answer: ResyncAnswer, batch: BatchIdentity) -> bool:
    return (answer.query_id, answer.batch_id) == (batch.query_id, batch.batch_id)


def table_anew(
    context: TenantSink, spark: SparkSession, batch: BatchIdentity, request: ResyncRequest, known: TableProgress | None
) -> TableBatch:
    """All that the table's topic tells of it, up to the batch's end.

    Raises:
        TableRefused: it cannot be built anew; the message ends with the remedy.
    """
    _check(context, batch, request)
    ends = _ends(context, batch, request)
    with_before = context.settings.images is Images.BEFORE_AND_AFTER
    events = passing(
        context.cut,
        read_range(spark, context.kafka, request.topic, request.from_offsets, ends, with_before=with_before),
    )
    slices = survey(events)
    if not slices:
        slices = [_nothing(context, spark, request.topic, known)]
    context.schemas.require(spark, {(request.topic, part.schema_version) for part in slices})
    return TableBatch(
        topic=request.topic,
        slices=slices,
        events=events,
        schemas={part.schema_version: context.schemas.schema(request.topic, part.schema_version) for part in slices},
        parked=None,
        is_passed_over=False,
        known_order="" if known is None else known.order,
        known_positions=() if known is None else known.positions,
        known_ignored=() if known is None else known.ignored,
        is_anew=True,
    )


def _check(context: TenantSink, batch: BatchIdentity, request: ResyncRequest) -> None:
    mode = context.settings.mode
    if mode is not SinkMode.MIRROR:
        raise TableRefused(
            f"the tenant's sink.mode is {mode.value}: only a mirror is built anew, since such tables hold more than the source "
            "has now; write the tenant's tables anew (docs/sinks.md, 'Write tables anew')"
        )
    if not isinstance(context.sink, ReplacesRows):
        raise TableRefused(
            f"warehouse {context.settings.warehouse} swaps no tables; write the tenant's tables anew (docs/sinks.md, 'Write "
            "tables anew')"
        )
    if parked := context.parked_keys.of_table(request.topic, batch).keys:
        raise TableRefused(
            f"{len(parked)} key(s) of the table are parked: `headwater dead-letter replay {context.tenant.tenant}` takes them "
            "up, or gives them up; then resync again"
        )


def _ends(context: TenantSink, batch: BatchIdentity, request: ResyncRequest) -> Mapping[int, int]:
    """Where the batch ends in the table's topic: further than its own events, of which there may be none."""
    ends = load_stream_offsets(context.state_dir, context.tenant.tenant, batch.batch_id).get(request.topic, {})
    if behind := [partition for partition, end in request.to_offsets.items() if ends.get(partition, 0) < end]:
        raise TableRefused(
            f"the sink has not read topic {request.topic} up to the copy's end (Kafka partition {behind[0]}): its query began "
            "anew since; resync again when it has caught up"
        )
    return joined_offsets(ends, context.ahead.to_offsets.get(request.topic, {}), choose=max)


def _nothing(context: TenantSink, spark: SparkSession, topic: str, known: TableProgress | None) -> Slice:
    """The table has no rows at the source, and nothing was done to it: no event tells its columns."""
    newest = context.schemas.newest(spark, topic)
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
        numbers=None,
        live_changes={},
    )


def fulfil(context: TenantSink, batch: BatchIdentity, request: ResyncRequest, table: TableBatch) -> None:
    """The table is swapped, and it is told; once, though the batch may come again."""
    known = context.resyncs.of(request.id)
    if known is not None and known.is_done:
        return
    events = sum(part.rows for part in table.slices)
    _store(context, batch, request, lambda answer: msgspec.structs.replace(answer, is_done=True, events=events))
    log.info("sink_table_resynced", topic=request.topic, request=request.id, events=events)


def refuse(context: TenantSink, batch: BatchIdentity, request: ResyncRequest, because: str) -> None:
    """The table stays as it is, and it is told; durable, so that the batch, should it come again, does the same."""
    _store(context, batch, request, lambda answer: msgspec.structs.replace(answer, refused_because=because))
    log.error("sink_resync_refused", topic=request.topic, request=request.id, reason=because)


def gives_up(context: TenantSink, batch: BatchIdentity, request: ResyncRequest) -> bool:
    """Whether a building that failed has failed too often to be tried again. Counts it, also over restarts."""
    before = context.resyncs.of(request.id)
    failures = 1 + (0 if before is None else before.failures)
    _store(context, batch, request, lambda answer: msgspec.structs.replace(answer, failures=failures))
    return failures >= _TRIES


def _store(
    context: TenantSink, batch: BatchIdentity, request: ResyncRequest, change: Callable[[ResyncAnswer], ResyncAnswer]
) -> None:
    before = context.resyncs.of(request.id)
    answer = ResyncAnswer(
        topic=request.topic,
        query_id=batch.query_id,
        batch_id=batch.batch_id,
        at_us=time.time_ns() // 1_000,
        failures=0 if before is None else before.failures,
    )
    context.resyncs.store(request.id, change(answer))
