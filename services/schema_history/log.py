"""The Kafka side: the topic of schema changes, which is the truth, and reading it whole."""

import asyncio
from contextlib import suppress
from typing import Final

import structlog
from google.protobuf.message import DecodeError

from libs.config.connections import KafkaSettings
from libs.kafka.clients import TopicSpec
from libs.kafka.state_log import StateLogSpec
from libs.kafka.tail import LogIdentity, LogRecord, LogTail
from libs.kafka.writer import OutgoingRecord
from services.schema_history.history import RecordedChange, decode_recorded, pack
from services.schema_history.settings import SchemaHistorySettings

FAILPOINT: Final = "schema_history_after_kafka_before_answer"

log = structlog.get_logger()


def topic_spec(settings: SchemaHistorySettings) -> TopicSpec:
    """One partition, so that changes have one order; kept for ever, because old events need old schemas."""
    return TopicSpec(
        name=settings.topic,
        kafka_partitions=1,
        replication_factor=settings.kafka.replication_factor,
        config={"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
    )


def log_spec(settings: SchemaHistorySettings) -> StateLogSpec:
    """How the topic is written."""
    return StateLogSpec(topic=settings.topic, transactional_id=settings.transactional_id, failpoint=FAILPOINT)


def encode(change: RecordedChange) -> OutgoingRecord:
    """The Kafka record of ``change``."""
    return OutgoingRecord(key=change.source.encode(), value=change.wire)


def decode(record: LogRecord) -> RecordedChange | None:
    """The change in ``record``; None, and a line in the log, for one that nobody of ours wrote."""
    try:
        return decode_recorded(pack(record.value or b""))
    except (ValueError, DecodeError) as error:
        log.error("schema_change_undecodable", offset=record.offset, reason=str(error))
        return None


async def read_whole_log(
    settings: KafkaSettings, topic: str, identity: LogIdentity, *, timeout_s: float
) -> list[RecordedChange]:
    """Every change ever recorded up to now, in order.

    Raises:
        BrokerUnavailable: Kafka was not read to its end in ``timeout_s``; try again.
    """
    changes: list[RecordedChange] = []

    def take(records: list[LogRecord]) -> None:
        changes.extend(change for change in map(decode, records) if change is not None)

    tail = LogTail(settings, topic, identity, from_offsets={})
    following = asyncio.create_task(tail.follow(lambda records: take(list(records))))
    try:
        await tail.barrier(timeout_s)
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        await tail.close()
    return changes
