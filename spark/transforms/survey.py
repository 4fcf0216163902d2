"""The content of a micro-batch, table by table: one look at all of it, which also brings the batch into memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame

from libs.events.names import ORDER_HEADER, SCHEMA_VERSION_HEADER
from spark.jvm.java import java_class, job_object
from spark.transforms.cut_envelope import DELETE, INSERT, SNAPSHOT
from spark.transforms.warehouse_columns import Truncation

_SHARES: Final = 50
"""Commit times of live events are reported as quantiles, the middle of each of so many equal shares."""
_CLASS: Final = "SurveyEvents"
_COLUMNS: Final = (
    "topic",
    "schema_version",
    "kafka_partition",
    "offset",
    "order",
    "op",
    "committed_at_us",
    "key",
    "is_partial",
    "image",
)
"""In the order that ``SurveyEvents.java`` has them in."""
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
    """By Kafka partition: after the last event."""
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


class _Portion(msgspec.Struct, frozen=True):
    """A task's findings about one topic, version and Kafka partition, in the form of ``SurveyEvents.java``."""

    topic: str
    schema_version: int | None
    kafka_partition: int
    rows: int
    ordered_rows: int
    first_offset: int
    last_offset: int
    oldest_order: str | None
    newest_order: str | None
    newest_offset: int
    newest_committed_at_us: int
    newest_keyless: tuple[str, int] | None
    oldest_keyless: tuple[str, int] | None
    newest_delete: str | None
    partial_rows: int
    first_rows: int
    snapshot_rows: int
    numbered_rows: int
    least_number: int
    greatest_number: int
    live_rows: int
    live_times: tuple[int, ...]
    image_bytes: int


class Stray(NamedTuple):
    """Records of a topic that the router did not write: they lack its headers or have others in them, and are no events."""

    topic: str
    kafka_partition: int
    records: int
    offset: int
    """Of the last of them, or of a record after it."""

    def __str__(self) -> str:
        return (
            f"{self.topic}/{self.kafka_partition}: {self.records} record(s) up to offset {self.offset} were passed over: not "
            f"the router wrote them, whose headers {ORDER_HEADER} and {SCHEMA_VERSION_HEADER} they lack, or have with other "
            "texts"
        )


def survey(events: DataFrame) -> tuple[DataFrame, list[Slice], list[Stray]]:
    """The events that the router wrote, their slices by topic and version, and what else there is."""
    portions = [
        portion for answers in _surveyed(events) for portion in msgspec.json.decode(answers, type=list[_Portion])
    ]
    strays = [
        Stray(each.topic, each.kafka_partition, each.rows - each.ordered_rows or each.rows, each.last_offset)
        for each in portions
        if each.schema_version is None or each.ordered_rows < each.rows
    ]
    if strays:
        events = events.where("order IS NOT NULL AND schema_version IS NOT NULL")
        return events, survey(events)[1], strays
    slice_of = attrgetter("topic", "schema_version")
    return events, [_joined(list(group)) for _, group in groupby(sorted(portions, key=slice_of), slice_of)], []


def _surveyed(events: DataFrame) -> list[str]:
    """JSON's lists of portions, a task's each."""
    spark = events.sparkSession
    given = (DELETE, INSERT, SNAPSHOT, SNAPSHOT_ORDINAL, _SHARES)
    rows: Any = events.select(*_COLUMNS)
    portions = job_object(spark, _CLASS, given)
    answers = rows._jdf.queryExecution().toRdd().toJavaRDD().mapPartitions(portions).collect()
    # At once, JSON has no line breaks: item by item the end of the list is an error of Java's, of sixty calls.
    return [text for text in str(java_class(spark, "java.lang.String").join("\n", answers)).split("\n") if text]


def _joined(portions: list[_Portion]) -> Slice:
    """One slice from those of several tasks and Kafka partitions."""
    first: Any = portions[0]
    last: Any = max(portions, key=attrgetter("newest_order"))
    newest = [Truncation(*portion.newest_keyless) for portion in portions if portion.newest_keyless is not None]
    oldest = [Truncation(*portion.oldest_keyless) for portion in portions if portion.oldest_keyless is not None]
    from_offsets: dict[int, int] = {}
    to_offsets: dict[int, int] = {}
    for portion in portions:
        place, begin, end = portion.kafka_partition, portion.first_offset, portion.last_offset + 1
        from_offsets[place] = min(begin, from_offsets.get(place, begin))
        to_offsets[place] = max(end, to_offsets.get(place, end))
    return Slice(
        topic=first.topic,
        schema_version=first.schema_version,
        rows=sum(portion.rows for portion in portions),
        from_offsets=from_offsets,
        to_offsets=to_offsets,
        oldest_order=min(portion.oldest_order for portion in portions if portion.oldest_order),
        newest_order=last.newest_order,
        newest_place=(last.kafka_partition, last.newest_offset),
        newest_committed_at_us=max(portion.newest_committed_at_us for portion in portions),
        newest_keyless=max(newest, key=attrgetter("order"), default=None),
        oldest_keyless=min(oldest, key=attrgetter("order"), default=None),
        newest_delete=max((each.newest_delete for each in portions if each.newest_delete is not None), default=None),
        partial_rows=sum(portion.partial_rows for portion in portions),
        first_rows=sum(portion.first_rows for portion in portions),
        snapshot_rows=sum(portion.snapshot_rows for portion in portions),
        numbers=_numbers(portions),
        live_changes=_live_changes(portions),
        image_bytes=sum(portion.image_bytes for portion in portions),
    )


def _numbers(portions: Iterable[_Portion]) -> tuple[int, int] | None:
    if any(portion.numbered_rows < portion.rows for portion in portions):
        return None
    return min(portion.least_number for portion in portions), max(portion.greatest_number for portion in portions)


def _live_changes(portions: Iterable[_Portion]) -> dict[int, int]:
    changes: dict[int, int] = {}
    for portion in portions:
        for share, committed_at_us in enumerate(portion.live_times):
            # Whole numbers that add up to live_rows.
            count = portion.live_rows * (share + 1) // _SHARES - portion.live_rows * share // _SHARES
            changes[committed_at_us] = changes.get(committed_at_us, 0) + count
    return {committed_at_us: count for committed_at_us, count in changes.items() if count}
