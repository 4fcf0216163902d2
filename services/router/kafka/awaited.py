"""Awaited records: those of other Kafka partitions of a batch's topic, which each tenant gets before the batch.

Shards of a keyspace pass from one reader to another, and with them their rows from one Kafka partition to another. The first
batch of the new reader says up to where the others are routed first (``ChangeBatch.awaited``), so that a key's changes stand
in order in the tenants' topics. A lane waits there for the router's group, in whichever process the other lane runs; tenants
that lag in it lag here too, from this batch on, and each passes it when its own cursor there has.

Lanes cannot wait in a circle: awaited records were published before the batch.

Offsets alone do not show a missing record: where a cursor stands below the awaited offset, a consumer looks whether a
record is between the two (``next_record``).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from aiokafka import TopicPartition
from confluent_kafka import KafkaException

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable
from libs.events.names import is_straggling, straggler_group
from services.router.batches.batch_reading import Changes
from services.router.kafka.next_record import next_record, open_looker
from services.router.kafka.straggler_offsets import committed_offsets, find_stragglers

LACKS: Final = "awaits what comes first from another partition"
"""Why a tenant lags."""


def stretches(batches: Sequence[Changes]) -> Iterator[tuple[int, int]]:
    """Where ``batches`` are cut, as (first, after the last): a batch that awaits others begins a stretch."""
    first = 0
    for place, batch in enumerate(batches):
        if batch.head.awaited and place > first:
            yield first, place
            first = place
    if batches:
        yield first, len(batches)


def awaited_ends(batch: Changes, topic: str) -> Mapping[TopicPartition, int]:
    """The offsets that ``batch``, of ``topic``, awaits, by partition: all records below are routed first."""
    ends: dict[TopicPartition, int] = {}
    for awaited in batch.head.awaited:  # a record of several batches may name a partition twice
        place = TopicPartition(topic, awaited.kafka_partition)
        ends[place] = max(ends.get(place, 0), awaited.end_offset)
    return ends


class PassedPartitions:
    """Asks Kafka how far a group of routers has come, and its tenants that lag. Thread-safe; its calls block.

    All raise BrokerUnavailable where Kafka does not say: ask again.
    """

    def __init__(self, kafka: KafkaSettings, group: str) -> None:
        self._kafka = kafka
        self._group = group

    def is_passed(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether the group's lanes have routed all records below ``ends``, for tenants that did not lag."""
        return all(self._has_passed(place, end) for place, end in ends.items())

    def is_passed_by(self, tenant: str, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether one tenant has got all that stands below ``ends``."""
        own = straggler_group(self._group, tenant)
        for place, end in ends.items():
            # The lanes first: a tenant that lags later has passed.
            if not self._has_passed(place, end):
                return False
            committed = committed_offsets(self._kafka, [own], place)[own]
            if is_straggling(committed.note) and self._is_missing(place, committed.next_offset, end):
                return False
        return True

    def behind(self, ends: Mapping[TopicPartition, int]) -> Collection[str]:
        """The tenants that lack it; asked after ``is_passed``."""
        return {
            tenant
            for place, end in ends.items()
            for tenant, cursor in find_stragglers(self._kafka, self._group, place).items()
            if self._is_missing(place, cursor, end)
        }

    def _has_passed(self, place: TopicPartition, end: int) -> bool:
        committed = committed_offsets(self._kafka, [self._group], place)[self._group]
        return not self._is_missing(place, committed.next_offset, end)

    def _is_missing(self, place: TopicPartition, cursor: int, end: int) -> bool:
        """Whether a record stands at ``cursor`` or above and below ``end``, or may yet: its transaction is open."""
        if cursor >= end:
            return False
        looker = open_looker(self._kafka, self._group)
        try:
            found = next_record(looker, place, cursor)
        except KafkaException as error:
            raise BrokerUnavailable(f"{place.topic}/{place.partition} cannot be read: {error}") from error
        finally:
            looker.close()
        if found is None:
            raise BrokerUnavailable(f"{place.topic}/{place.partition} gave nothing at offset {cursor} in time")
        return found.offset < end
