"""Ranges of Kafka partitions as records, each task's by one consumer; the reading is ``KafkaRanges.java``'s (ADR 17)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from spark.jvm.java import job_class

OffsetRange = tuple[Mapping[int, int], Mapping[int, int]]
"""By Kafka partition: the first record, and after the last one. One that has no first record is read from its begin."""

_FROM_BEGIN: Final = -2
_LEAST_OFFSETS: Final = 5_000
"""Of a task: a task and its consumer cost more than fewer records do."""
_STALLS_AFTER_MS: Final = 120_000
_CLASS: Final = "KafkaRanges"


@dataclass(frozen=True, slots=True)
class Piece:
    """Of one Kafka partition."""

    topic: str
    kafka_partition: int
    from_offset: int | None
    """None: its begin."""
    to_offset: int


def records_of(
    spark: SparkSession,
    options: Mapping[str, str],
    ranges: Mapping[str, OffsetRange],
    *,
    most_parts: int,
    fails_on_loss: bool,
    headers: Mapping[str, str],
) -> DataFrame:
    """The records of some topics' ranges as they lie in Kafka: ``key``, ``value``, ``topic``, ``partition``, ``offset``,
    ``headers``. ``options``: the consumer's, each under ``kafka.``. ``headers``: columns of text besides, by which header each
    has; NULL where a record has none.

    If Kafka no longer has the events, it fails with Spark's condition KAFKA_DATA_LOSS; without ``fails_on_loss`` the
    job's log says so, and there are only the records that are left. Where Kafka gives nothing for two minutes it fails, too.
    """
    parts = parts_of(ranges, most_parts)
    return (
        spark.read.format(job_class(spark, _CLASS))
        .options(**options)
        .options(**{f"header.{column}": header for column, header in headers.items()})
        .option("kafka.auto.offset.reset", "none")
        .option("kafka.enable.auto.commit", "false")
        .option("parts", "\n".join(" ".join(map(_words, part)) for part in parts))
        .option("fails_on_loss", str(fails_on_loss).lower())
        .option("stalls_after_ms", _STALLS_AFTER_MS)
        .load()
    )


def parts_of(ranges: Mapping[str, OffsetRange], most_parts: int) -> list[list[Piece]]:
    """Each task's ranges: about as many offsets as the others, pieces of one Kafka partition where that is large.

    >>> parts = parts_of({"a": ({0: 0}, {0: 9_000}), "b": ({0: 5, 1: 3}, {0: 1_005, 1: 3})}, most_parts=2)
    >>> [[(each.topic, each.from_offset, each.to_offset) for each in part] for part in parts]
    [[('a', 0, 5000)], [('a', 5000, 9000), ('b', 5, 1005)]]
    """
    pieces = [
        Piece(topic, partition, begins.get(partition), end)
        for topic, (begins, ends) in sorted(ranges.items())
        for partition, end in sorted(ends.items())
        if end > begins.get(partition, 0)
    ]
    total = sum(map(_offsets, pieces))
    wanted = max(_LEAST_OFFSETS, -(-total // most_parts))
    parts: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        rest: Piece | None = piece
        while rest is not None:
            if room <= 0:
                parts.append([])
                room = wanted
            taken, rest = _split(rest, room)
            parts[-1].append(taken)
            room -= _offsets(taken)
    return parts


def _split(piece: Piece, offsets: int) -> tuple[Piece, Piece | None]:
    """Its first ``offsets``, and the rest. Where it begins at a begin that is not known, there is no rest."""
    if piece.from_offset is None or _offsets(piece) <= offsets:
        return piece, None
    at = piece.from_offset + offsets
    return (
        Piece(piece.topic, piece.kafka_partition, piece.from_offset, at),
        Piece(piece.topic, piece.kafka_partition, at, piece.to_offset),
    )


def _offsets(piece: Piece) -> int:
    return piece.to_offset - (piece.from_offset or 0)


def _words(piece: Piece) -> str:
    begin = _FROM_BEGIN if piece.from_offset is None else piece.from_offset
    return f"{piece.topic} {piece.kafka_partition} {begin} {piece.to_offset}"
