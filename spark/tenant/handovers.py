"""The topic of hand-overs as a job reads and writes it, by Kafka's own clients in the JVM."""

import time
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
import structlog
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from libs.config.connections import KafkaSettings
from libs.errors import TransientError
from libs.events.names import SINK_HANDOVERS_TOPIC
from libs.sink_state.resync import TenantResyncs, encode_resyncs
from libs.types.sink_place import (
    Handover,
    SinkFaults,
    SinkWait,
    decode_handover,
    encode_faults,
    encode_handover,
    encode_wait,
    handover_key,
)
from spark.jvm.errors import described
from spark.jvm.java import java_class
from spark.kafka.consumer import jvm_consumer, polled, topic_partition
from spark.kafka.producer import send_record

_POLL_MS: Final = 200
# The job's loop waits for these; it counts as hanging after 120 s.
_TIMEOUT_S: Final = 15.0
_REQUEST_MS: Final = "10000"
_READ_OPTIONS: Final = {
    "auto.offset.reset": "earliest",
    "default.api.timeout.ms": _REQUEST_MS,
    "request.timeout.ms": _REQUEST_MS,
}

log = structlog.get_logger()


class Handovers:
    """The last records of some tenancies. Holds a consumer from ``read`` to ``close``; not for two threads at once."""

    def __init__(self, spark: SparkSession, kafka: KafkaSettings) -> None:
        self._spark = spark
        self._kafka = kafka
        self._consumer: Any = None
        self._of: frozenset[str] = frozenset()
        self._known: dict[str, Handover] = {}

    def read(self, keys: Collection[str]) -> dict[str, Handover]:
        """The last record under each of ``keys`` (``handover_key``) before this call; there is none of those that are
        missing.

        Raises:
            TransientError: Kafka does not answer, or there is no such topic; try again.
        """
        if not self._of.issuperset(keys):
            self.close()
        try:
            consumer = self._open(keys)
            place = topic_partition(self._spark, SINK_HANDOVERS_TOPIC, 0)
            places = java_class(self._spark, "java.util.List").of(place)
            end = dict(consumer.endOffsets(places))[place]
            deadline_s = time.monotonic() + _TIMEOUT_S
            while consumer.position(place) < end:
                if time.monotonic() > deadline_s:
                    raise TransientError(f"topic {SINK_HANDOVERS_TOPIC} is not read to its end within {_TIMEOUT_S} s")
                for record in polled(self._spark, consumer, _POLL_MS):
                    self._take_in(record)
        except Py4JJavaError as error:
            self.close()
            raise TransientError(f"topic {SINK_HANDOVERS_TOPIC} cannot be read: {described(error)}") from error
        return {key: self._known[key] for key in keys if key in self._known}

    def write(self, handover: Handover) -> None:
        """Durable when this returns. Where it raises, it may be there nonetheless.

        Raises:
            TransientError: Kafka did not confirm it; try again.
        """
        key, value = handover_key(handover.tenant, handover.tenancy), encode_handover(handover)
        try:
            send_record(self._spark, self._kafka, SINK_HANDOVERS_TOPIC, value, key=key.encode())
        except Py4JJavaError as error:
            raise TransientError(f"topic {SINK_HANDOVERS_TOPIC} cannot be written: {described(error)}") from error
        self._known[key] = handover

    def close(self) -> None:
        """Nobody waits for anything."""
        consumer, self._consumer, self._of, self._known = self._consumer, None, frozenset(), {}
        if consumer is not None:
            consumer.close()

    def _open(self, keys: Collection[str]) -> Any:
        if self._consumer is None:
            self._consumer = jvm_consumer(self._spark, self._kafka, _READ_OPTIONS)
            place = topic_partition(self._spark, SINK_HANDOVERS_TOPIC, 0)
            places = java_class(self._spark, "java.util.List").of(place)
            self._consumer.assign(places)
            self._consumer.seekToBeginning(places)
            self._of = frozenset(keys)
        return self._consumer

    def _take_in(self, record: Any) -> None:
        key = bytes(record.key() or b"").decode(errors="replace")
        if key not in self._of:
            return
        self._known.pop(key, None)
        if record.value() is None:
            return
        try:
            self._known[key] = decode_handover(bytes(record.value()))
        except msgspec.DecodeError:
            log.warning("sink_handover_unreadable", key=key, offset=record.offset())


def write_waits(spark: SparkSession, kafka: KafkaSettings, waits: Mapping[str, SinkWait | None]) -> None:
    """Write the waiting tenants, by ``wait_key``; None: it goes on. As ``write_to_operator``."""
    write_to_operator(spark, kafka, {key: None if wait is None else encode_wait(wait) for key, wait in waits.items()})


def write_sink_faults(spark: SparkSession, kafka: KafkaSettings, faults: Mapping[str, SinkFaults | None]) -> None:
    """Write tenants' faults, by ``faults_key``; None: there is none. As ``write_to_operator``."""
    write_to_operator(
        spark, kafka, {key: None if each is None else encode_faults(each) for key, each in faults.items()}
    )


def write_resyncs(spark: SparkSession, kafka: KafkaSettings, resyncs: Mapping[str, TenantResyncs | None]) -> None:
    """Write the ends of resyncs, by ``resyncs_key``; None: the tenant is gone. As ``write_to_operator``."""
    write_to_operator(
        spark, kafka, {key: None if each is None else encode_resyncs(each) for key, each in resyncs.items()}
    )


def write_to_operator(spark: SparkSession, kafka: KafkaSettings, records: Mapping[str, bytes | None]) -> None:
    """Write reports about tenants, by ``wait_key``, ``faults_key`` or ``resyncs_key``; None: it is over. For any thread.

    Durable on return; if it raises, some may be written.

    Raises:
        TransientError: Kafka did not confirm it, or the topic is not there: tenant_operator makes it; try again.
    """
    try:
        # A producer that asks for a topic which is not there may make it, and not as one that is compacted.
        consumer = jvm_consumer(spark, kafka, _READ_OPTIONS)
        try:
            is_there = bool(consumer.partitionsFor(SINK_HANDOVERS_TOPIC))
        finally:
            consumer.close()
        if not is_there:
            raise TransientError(
                f"there is no topic {SINK_HANDOVERS_TOPIC}: tenant_operator makes it; see that one runs"
            )
        for key, value in records.items():
            send_record(spark, kafka, SINK_HANDOVERS_TOPIC, value, key=key.encode())
    except Py4JJavaError as error:
        raise TransientError(f"topic {SINK_HANDOVERS_TOPIC} cannot be written: {described(error)}") from error
