"""Where a micro-batch is cut so that it holds whole transactions of the source (``sink.consistency: transaction``).

Spark cuts a batch anywhere, and a transaction's events lie in several topics. So a batch takes in the transactions that are
known to be whole below its end; later events wait, in Kafka, for the batch after. A transaction is whole when none of its
events lies after the batch's end in any topic of the tenant, and when the batch has a later one, or its END is in the source's
transaction topic: a router writes a large one in several Kafka transactions.

The cut is durable before anything of the batch is written, so that the batch, should it come again, is cut in the same place.
"""

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from libs.events.names import sink_request_topics, transactions_topic
from libs.sink_state.cut import Cut, Offsets
from libs.sink_state.stream_offsets import StreamOffsets, load_stream_offsets
from libs.types.tenant import Images
from spark.batch.tenant_sink import TenantSink
from spark.kafka.read_topics import read_range, topic_pattern
from spark.kafka.topic_tails import has_ended, oldest_beyond
from spark.sinks.port import BatchIdentity, ShowsTogether
from spark.transforms.passing import is_live, passing

_PREFIX_CHARACTERS: Final = 38  # epoch, rank and the dots after them (EventOrder.sort_key)


_END_WITHIN_S: Final = 5.0
"""The END of a transaction may come a Kafka transaction after its last row. Without new rows there is no batch that would
take up the waiting events."""
_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Seen:
    """Facts about the live events of a micro-batch."""

    newest: str
    """Prefix of the newest transaction, of those that wait too; empty: there is none."""
    beyond: str | None
    """Of the oldest one that has events after the batch; None: none has; empty: it is not known."""
    has_ended: bool
    """Whether the newest one has ended, by the transaction topic."""


def first_that_waits(seen: Seen) -> str | None:
    """Prefix of the first transaction that is not known to be whole; None: all are.

    Those before the newest are over, because it is there. That a later one lies after the batch says nothing of the newest: it
    may not be committed, and rows of the newest be on their way beside it.

    >>> first_that_waits(Seen(newest="7.", beyond=None, has_ended=True)) is None
    True
    >>> first_that_waits(Seen(newest="7.", beyond="9.", has_ended=True))
    '9.'
    """
    unproven = seen.newest if seen.newest and not seen.has_ended else None
    candidates = [each for each in (seen.beyond, unproven) if each is not None]
    return min(candidates, default=None)


def cut_batch(sink: TenantSink, batch: BatchIdentity, events: DataFrame) -> tuple[DataFrame, Cut]:
    """The events that the batch takes in, those that waited for it among them, and the cut, which is durable."""
    spark, file = events.sparkSession, sink.files.cut
    known = file.load()
    ends = _ends(sink, batch)
    if (known.query_id, known.batch_id) == (batch.query_id, batch.batch_id):
        return _taken_in(sink, events, known, ends), known
    before = known.held if known.query_id == batch.query_id else {}
    oldest, newest = (known.oldest_held, known.newest_held) if before else ("", "")
    # Where the tenant's document has changed its mind, nothing waits any more.
    until = first_that_waits(_seen(sink, spark, events, ends, newest)) if sink.moves_together else None
    released = before if until is None or until > oldest else {}
    cut = Cut(query_id=batch.query_id, batch_id=batch.batch_id, until=until, released=released)
    if until is not None:
        found = _with_those_that_waited(sink, events, released, ends) if released else events
        cut = _held_back(cut, found, {} if released else before, oldest, newest)
    file.store(cut)
    return _taken_in(sink, events, cut, ends), cut


def is_cut(sink: TenantSink) -> bool:
    """Whether batches of the tenant are cut, or were, so that events may wait."""
    known = sink.files.cut.load()
    return sink.moves_together or bool(known.held or known.released or known.until is not None)


def show_waiting_rows(sink: TenantSink, spark: SparkSession) -> None:
    """Show the tables of a batch that is written whole, also of one that was cut off in showing them; nothing where none is."""
    cut = sink.files.cut.load()
    if cut.publishing:
        assert isinstance(sink.sink, ShowsTogether)  # the tenant's document was checked
        sink.sink.show_together(spark, sink.tenant.tenant, cut.publishing)
        sink.files.cut.store(msgspec.structs.replace(cut, publishing=()))


def _held_back(cut: Cut, events: DataFrame, still_held: Offsets, oldest: str, newest: str) -> Cut:
    """With the waiting events after the batch: some of its own, and those that still wait."""
    assert cut.until is not None  # else nothing waits
    waiting = (
        events.where(is_live() & (sf.col("order") >= cut.until))
        .groupBy("topic", "kafka_partition")
        .agg(sf.min("offset"), sf.min("order"), sf.max("order"))
        .collect()
    )
    held: dict[str, dict[int, int]] = {topic: dict(of) for topic, of in still_held.items()}
    for topic, partition, offset, *_ in waiting:
        held.setdefault(topic, {}).setdefault(partition, offset)
    ranges = [(row[3][:_PREFIX_CHARACTERS], row[4][:_PREFIX_CHARACTERS]) for row in waiting]
    ranges += [(oldest, newest)] if still_held else []
    return msgspec.structs.replace(
        cut,
        held=held,
        oldest_held=min((first for first, _ in ranges), default=""),
        newest_held=max((last for _, last in ranges), default=""),
    )


def _taken_in(sink: TenantSink, events: DataFrame, cut: Cut, ends: StreamOffsets) -> DataFrame:
    return passing(cut, _with_those_that_waited(sink, events, cut.released, ends) if cut.released else events)


def _with_those_that_waited(sink: TenantSink, events: DataFrame, before: Offsets, ends: StreamOffsets) -> DataFrame:
    """Snapshot rows of the batch's own pass as they came; those that stand between events that waited were taken in then."""
    with_before = sink.settings.images is Images.BEFORE_AND_AFTER
    own = events.where(~is_live() | ~_is_among(before))
    waited = [
        read_range(
            events.sparkSession,
            sink.kafka,
            topic,
            of,
            {partition: ends[topic][partition] for partition in of},
            with_before=with_before,
        ).where(is_live())
        for topic, of in before.items()
    ]
    return functools.reduce(DataFrame.unionByName, waited, own)


def _seen(sink: TenantSink, spark: SparkSession, events: DataFrame, ends: StreamOffsets, newest_held: str) -> Seen:
    [newest] = events.where(is_live()).agg(sf.max("order")).collect()[0]
    newest = max("" if newest is None else newest[:_PREFIX_CHARACTERS], newest_held)
    if not newest:
        return Seen(newest="", beyond=None, has_ended=True)
    tenant, topics = sink.tenant.tenant, topic_pattern(sink.tenant)
    boundaries = transactions_topic(tenant, sink.tenant.sources[0].name)
    deadline_s = time.monotonic() + _END_WITHIN_S
    while True:
        # First whether it has ended: then all of it is written, and events outside of the batch lie after it.
        is_over = has_ended(spark, sink.kafka, boundaries)
        beyond = oldest_beyond(spark, sink.kafka, topics, ends, but=sink_request_topics(tenant))
        if is_over is not False or beyond is not None or time.monotonic() > deadline_s:
            return Seen(newest=newest, beyond=beyond, has_ended=bool(is_over))
        time.sleep(_PAUSE_S)


def _is_among(places: Mapping[str, Mapping[int, int]]) -> Column:
    return functools.reduce(
        Column.__or__,
        ((sf.col("topic") == topic) & sf.col("kafka_partition").isin(*of) for topic, of in places.items()),
        sf.lit(False),
    )


def _ends(sink: TenantSink, batch: BatchIdentity) -> StreamOffsets:
    return load_stream_offsets(sink.state.folder, sink.tenant.tenant, batch.batch_id)
