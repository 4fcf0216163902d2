"""Whether a committed record comes next in a partition of a changes topic. Offsets alone do not show it, because the ends of
transactions and aborted records take some too."""

from typing import Final, NamedTuple

from aiokafka import TopicPartition
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as OffsetOf

from libs.config.connections import KafkaSettings
from libs.kafka.clients import client_config

LOOK_TIMEOUT_S: Final = 2.0
"""A stop waits for a running look, so it is short."""


class NextRecord(NamedTuple):
    """The next record from an offset on."""

    offset: int
    """Of the record; where there is none, the one that is looked at next: an open transaction's first, or the end."""
    is_there: bool


def open_looker(kafka: KafkaSettings, group: str) -> Consumer:
    """A consumer that looks, and asks for ends and committed offsets; a member of no group."""
    return Consumer(
        client_config(kafka)
        | {
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 1_000_000,
            "queued.max.messages.kbytes": 1_024,
        }
    )


def next_record(looker: Consumer, place: TopicPartition, offset: int) -> NextRecord | None:
    """The record at or after ``offset``; None where Kafka does not answer in time. Blocks. Raises KafkaException."""
    looker.assign([OffsetOf(place.topic, place.partition, offset)])
    try:
        message = looker.poll(LOOK_TIMEOUT_S)
    finally:
        looker.unassign()
    if message is None or (found := message.offset()) is None:
        return None
    fault = message.error()
    if fault is None:
        return NextRecord(found, is_there=True)
    return NextRecord(found, is_there=False) if fault.code() == KafkaError._PARTITION_EOF else None
