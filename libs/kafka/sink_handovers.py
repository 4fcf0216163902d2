"""The topic of hand-overs between Spark jobs, as tenant_operator makes, reads and clears it. Jobs: ``spark.tenant.handovers``.

Jobs report there too which tenants stand still, their faults, and their resyncs: ``services.tenant_operator.sink_waits`` reads
the first two, ``headwater resync --mesh`` the last.
"""

import time
from typing import Final

import msgspec
import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from libs.config.connections import KafkaSettings
from libs.errors import AccessDenied, BrokerUnavailable, HeadwaterError
from libs.events.names import SINK_HANDOVERS_TOPIC
from libs.kafka.clients import TopicSpec, client_config
from libs.types.sink_place import (
    Handover,
    decode_handover,
    faults_key,
    handover_key,
    is_handover_key,
    resyncs_key,
    wait_key,
)

_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.5

log = structlog.get_logger()


def sink_handovers_topic(replication_factor: int) -> TopicSpec:
    """The topic as it should be."""
    config = {"cleanup.policy": "compact"}
    return TopicSpec(name=SINK_HANDOVERS_TOPIC, replication_factor=replication_factor, config=config)


def read_handovers(settings: KafkaSettings) -> dict[str, Handover]:
    """The last record of each tenancy, before this call, by ``handover_key``. Blocks.

    Raises:
        BrokerUnavailable: Kafka does not answer, or there is no such topic; try again.
        AccessDenied: the user may not read the topic; the message says so.
    """
    consumer = Consumer(
        {
            **client_config(settings),
            "group.id": "headwater-tenant-operator",  # nobody joins it
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
        }
    )
    newest: dict[str, bytes] = {}
    try:
        place = TopicPartition(SINK_HANDOVERS_TOPIC, 0)
        begin, end = consumer.get_watermark_offsets(place, timeout=_TIMEOUT_S, cached=False)
        consumer.assign([TopicPartition(SINK_HANDOVERS_TOPIC, 0, begin)])
        deadline_s = time.monotonic() + _TIMEOUT_S
        next_offset = begin
        while next_offset < end:
            message = consumer.poll(_POLL_S)
            if message is not None and (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    break
                raise KafkaException(error)
            if message is None:
                if time.monotonic() > deadline_s:
                    raise BrokerUnavailable(f"topic {SINK_HANDOVERS_TOPIC} is not read within {_TIMEOUT_S:.0f} s")
                continue
            next_offset = (message.offset() or 0) + 1
            key, value = message.key(), message.value()
            if isinstance(key, bytes) and is_handover_key(name := key.decode(errors="replace")):
                newest.pop(name, None)
                if isinstance(value, bytes):
                    newest[name] = value
    except KafkaException as error:
        raise _named(error) from error
    finally:
        consumer.close()
    return {key: handover for key, value in newest.items() if (handover := _decoded(key, value)) is not None}


def forget_said(settings: KafkaSettings, tenant: str, tenancy: str, job: str) -> None:
    """Nothing is said of that tenancy any more: no hand-over, and by ``job``, its last one, no standing still, fault or resync.

    Blocks.

    Raises:
        BrokerUnavailable: Kafka did not take it; try again.
    """
    faults: list[str] = []
    done: list[int] = []
    by_job = (key(tenant, tenancy, job) for key in (wait_key, faults_key, resyncs_key))
    keys = (handover_key(tenant, tenancy), *by_job)
    producer = Producer({**client_config(settings), "acks": "all", "enable.idempotence": True})
    for key in keys:
        producer.produce(
            SINK_HANDOVERS_TOPIC,
            key=key.encode(),
            value=None,
            partition=0,
            on_delivery=lambda error, _: done.append(1) if error is None else faults.append(error.str()),
        )
    producer.flush(_TIMEOUT_S)
    if len(done) < len(keys):
        raise BrokerUnavailable(
            f"topic {SINK_HANDOVERS_TOPIC} was not written: {', '.join(faults) or 'Kafka does not answer'}"
        )


def _decoded(key: str, value: bytes) -> Handover | None:
    try:
        return decode_handover(value)
    except msgspec.DecodeError:
        log.warning("sink_handover_unreadable", key=key)
        return None


def _named(error: KafkaException) -> HeadwaterError:
    failure = error.args[0]
    if isinstance(failure, KafkaError) and failure.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return AccessDenied(f"may not read topic {SINK_HANDOVERS_TOPIC}: grant READ and DESCRIBE on it")
    return BrokerUnavailable(f"topic {SINK_HANDOVERS_TOPIC} cannot be read: {error}")
