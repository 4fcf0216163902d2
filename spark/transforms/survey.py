"""What a micro-batch holds, table by table: one aggregation, which also brings the batch into memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sf

from libs.errors import PipelineHalted
from libs.events.names import ORDER_HEADER, SCHEMA_VERSION_HEADER
from spark.sinks.port import Truncation
from spark.transforms.cut_envelope import DELETE, INSERT, SNAPSHOT
from spark.transforms.parse_keys import last_number

# Commit times of live events as quantiles: the middle of each of 50 equal shares.
_SHARES: Final = 50
_QUANTILES: Final = [(share + 0.5) / _SHARES for share in range(_SHARES)]
_ACCURACY: Final = 1_000
SNAPSHOT_ORDINAL: Final = ".0000000000"
"""How the orders of snapshot rows end (EventOrder): they have ordinal 0, the first live event has 1."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The events of one topic that one schema version can parse."""

    topic: str
    schema_version: int
    rows: int
    from_offsets: Mapping[int, int]
    """By Kafka partition: the first event."""
    to_offsets: Mapping[int, int]
    """By Kafka partition: behind the last event."""
    oldest_order: str
    newest_order: str
    newest_place: tuple[int, int] | None
    """Kafka partition and offset of an event of that order; None: there is none."""
    newest_committed_at_us: int
    newest_keyless: Truncation | None
    """The newest event without a key: in a table that has a key, that is a truncation."""
    oldest_keyless: Truncation | None
    newest_delete: str | None
    """The newest order of a delete; None: there is none."""
    partial_rows: int
    """Events that lack the values of some columns (``cut_envelope``)."""
    first_rows: int
    """Events that are the first of their row, or may be: inserts and rows of snapshots."""
    snapshot_rows: int
    numbers: tuple[int, int] | None
    """The least and the greatest last number in the events' keys, if each key ends in one (``key_bounds``)."""
    live_changes: Mapping[int, int]
    """How many changes, snapshot rows aside, the source committed when (microseconds since 1970); about right."""
    image_bytes: int
    """Of the rows' images."""


def survey(events: DataFrame) -> list[Slice]:
    """The slices of ``events``, by topic and version.

    Raises:
        PipelineHalted: an event lacks the router's headers; the message names its topic.
    """
    is_live = ~sf.col("order").endswith(SNAPSHOT_ORDINAL)
    portions = (
        events.groupBy("topic", "schema_version", "kafka_partition")
        .agg(
            sf.count("*").alias("rows"),
            sf.count("order").alias("ordered_rows"),
            sf.min("offset").alias("first_offset"),
            sf.max("offset").alias("last_offset"),
            sf.min("order").alias("oldest_order"),
            sf.max("order").alias("newest_order"),
            sf.max_by("offset", "order").alias("newest_offset"),
            sf.max("committed_at_us").alias("newest_committed_at_us"),
            sf.max(_keyless()).alias("newest_keyless"),
            sf.min(_keyless()).alias("oldest_keyless"),
            sf.max(sf.when(sf.col("op") == DELETE, sf.col("order"))).alias("newest_delete"),
            sf.count(sf.when(sf.col("is_partial"), sf.lit(1))).alias("partial_rows"),
            sf.count(sf.when(sf.col("op").isin(INSERT, SNAPSHOT), sf.lit(1))).alias("first_rows"),
            sf.count(sf.when(sf.col("op") == SNAPSHOT, sf.lit(1))).alias("snapshot_rows"),
            sf.count(last_number("key")).alias("numbered_rows"),
            sf.min(last_number("key")).alias("least_number"),
            sf.max(last_number("key")).alias("greatest_number"),
            sf.count(sf.when(is_live, sf.col("committed_at_us"))).alias("live_rows"),
            sf.percentile_approx(sf.when(is_live, sf.col("committed_at_us")), _QUANTILES, _ACCURACY).alias(
                "live_times"
            ),
            sf.sum(sf.octet_length("image")).alias("image_bytes"),
        )
        .collect()
    )
    for portion in portions:
        if portion.schema_version is None or portion.ordered_rows < portion.rows:
            raise PipelineHalted(
                f"topic {portion.topic} holds records without {ORDER_HEADER} and {SCHEMA_VERSION_HEADER} headers: not "
                "the router wrote them; find out who did, and move them to a topic outside of the tenant's names"
            )
    slice_of = attrgetter("topic", "schema_version")
    return [_joined(list(group)) for _, group in groupby(sorted(portions, key=slice_of), slice_of)]


def _keyless() -> Column:
    return sf.when(sf.col("key").isNull(), sf.struct("order", "committed_at_us"))


def _joined(portions: list[Row]) -> Slice:
    """One slice of what several Kafka partitions hold of it."""
    first: Any = portions[0]
    last: Any = max(portions, key=attrgetter("newest_order"))
    newest = [Truncation(*portion.newest_keyless) for portion in portions if portion.newest_keyless is not None]
    oldest = [Truncation(*portion.oldest_keyless) for portion in portions if portion.oldest_keyless is not None]
    return Slice(
        topic=first.topic,
        schema_version=first.schema_version,
        rows=sum(portion.rows for portion in portions),
        from_offsets={portion.kafka_partition: portion.first_offset for portion in portions},
        to_offsets={portion.kafka_partition: portion.last_offset + 1 for portion in portions},
        oldest_order=min(portion.oldest_order for portion in portions),
        newest_order=last.newest_order,
        newest_place=(last.kafka_partition, last.newest_offset),
        newest_committed_at_us=max(portion.newest_committed_at_us or 0 for portion in portions),
        newest_keyless=max(newest, key=attrgetter("order"), default=None),
        oldest_keyless=min(oldest, key=attrgetter("order"), default=None),
        newest_delete=max((each.newest_delete for each in portions if each.newest_delete is not None), default=None),
        partial_rows=sum(portion.partial_rows for portion in portions),
        first_rows=sum(portion.first_rows for portion in portions),
        snapshot_rows=sum(portion.snapshot_rows for portion in portions),
        numbers=_numbers(portions),
        live_changes=_live_changes(portions),
        image_bytes=sum(portion.image_bytes or 0 for portion in portions),
    )


def _numbers(portions: Iterable[Row]) -> tuple[int, int] | None:
    if any(portion.numbered_rows < portion.rows for portion in portions):
        return None
    return min(portion.least_number for portion in portions), max(portion.greatest_number for portion in portions)


def _live_changes(portions: Iterable[Row]) -> dict[int, int]:
    changes: dict[int, int] = {}
    for portion in portions:
        for share, committed_at_us in enumerate(portion.live_times or ()):
            # Whole numbers that add up to live_rows.
            count = portion.live_rows * (share + 1) // _SHARES - portion.live_rows * share // _SHARES
            changes[committed_at_us] = changes.get(committed_at_us, 0) + count
    return {committed_at_us: count for committed_at_us, count in changes.items() if count}
