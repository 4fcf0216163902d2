"""Talks to the subscription's Kafka. Everything here blocks; the decoder calls it in threads. Kafka's errors become ours.

The partition is assigned, not subscribed to: the lease at checkpoint_committer decides its reader, and Headwater's own
checkpoint the place to go on. The consumer group's offset is only set, for DTS's console and its alarms.
"""

import time
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import ClusterMetadata

from libs.errors import AccessDenied, HeadwaterError, PipelineHalted, PositionPurged, SourceUnavailable
from libs.kafka.clients import client_config, denial_of, reason_of
from services.dts_decoder.assembly import KafkaMessage
from services.dts_decoder.settings import SubscriptionSettings

_ANSWER_TIMEOUT_S: Final = 15.0
_MESSAGES_AT_ONCE: Final = 200
_FETCHED_BYTES: Final = 8 << 20
_QUEUED_KB: Final = 16 << 10
_PS_HEADER: Final = "ps"
_LOOK_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Received:
    """Messages of the partition, in order."""

    messages: list[KafkaMessage]
    newest_at_ms: int
    """When the last of them was written, in milliseconds since 1970; 0: there is none."""
    more_waits: bool


class SubscriptionClient:
    """A consumer of one partition; ``close`` it at the end."""

    def __init__(self, settings: SubscriptionSettings) -> None:
        self._settings = settings
        self._faults: list[KafkaError] = []
        self._partition = TopicPartition(settings.topic, settings.partition)
        self._consumer = Consumer(
            {
                **client_config(settings.as_kafka()),
                "group.id": settings.group_id,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "fetch.max.bytes": _FETCHED_BYTES,
                "max.partition.fetch.bytes": _FETCHED_BYTES,
                "queued.max.messages.kbytes": _QUEUED_KB,
                "fetch.wait.max.ms": 50,
                "error_cb": self._faults.append,
            }
        )

    def require_partition(self) -> None:
        """The topic has the partition. Raises PipelineHalted, AccessDenied, SourceUnavailable."""
        settings = self._settings
        found = self._first_answer().topics[settings.topic]
        if found.error is not None:
            raise self._as_ours(found.error)
        if settings.partition not in found.partitions:
            raise PipelineHalted(
                f"topic {settings.topic} has {len(found.partitions)} partition(s), and no {settings.partition}: correct "
                "subscription.partition"
            )

    def ends(self) -> tuple[int, int]:
        """The first offset that is still there, and the one that comes next."""
        try:
            low, high = self._consumer.get_watermark_offsets(self._partition, timeout=_ANSWER_TIMEOUT_S)
        except KafkaException as error:
            raise self._as_ours(error.args[0]) from error
        return int(low), int(high)

    def group_offset(self) -> int | None:
        """The offset that the consumer group was set to last."""
        try:
            [found] = self._consumer.committed([self._partition], timeout=_ANSWER_TIMEOUT_S)
        except KafkaException as error:
            raise self._as_ours(error.args[0]) from error
        return found.offset if found.offset >= 0 else None

    def begin(self, offset: int) -> None:
        """Read from ``offset`` on. Raises PositionPurged where the topic does not reach there."""
        low, high = self.ends()
        name = f"{self._settings.topic}[{self._settings.partition}]"
        if offset < low:
            raise PositionPurged(
                f"{name}: messages {offset} to {low - 1} were deleted before they were read (DTS keeps them for a day, and "
                "500 GB at most): re-snapshot the source"
            )
        if offset > high:
            raise PositionPurged(
                f"{name} ends at {high}, and {offset} was to be read: it is another topic of the same name; re-snapshot the "
                "source"
            )
        self._consumer.assign([TopicPartition(self._settings.topic, self._settings.partition, offset)])

    def receive(self, timeout_s: float) -> Received:
        """The waiting messages, some hundred at most; none where none came in time.

        Raises:
            SourceUnavailable: no broker answers; open again.
            PositionPurged: the next messages have been deleted.
            AccessDenied: a password or a right was taken away.
        """
        deadline_s = time.monotonic() + timeout_s
        found = self._consumer.consume(1, timeout=timeout_s)
        if found:
            # More that is there already; not waited for.
            found += self._consumer.consume(_MESSAGES_AT_ONCE, timeout=0.0)
        elif self._faults and time.monotonic() >= deadline_s:
            self._raise_faults()
        messages = [self._message(message) for message in found]
        self._faults.clear()
        newest_at_ms = found[-1].timestamp()[1] if found else 0
        return Received(messages, newest_at_ms, len(found) > 1)

    def confirm(self, offset: int) -> None:
        """Set the consumer group's offset. Raises SourceUnavailable; harmless, the next one sets it too."""
        place = TopicPartition(self._settings.topic, self._settings.partition, offset)
        try:
            self._consumer.commit(offsets=[place], asynchronous=False)
        except KafkaException as error:
            raise self._as_ours(error.args[0]) from error

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def _message(self, message: Message) -> KafkaMessage:
        error = message.error()
        if error is not None:
            raise self._as_ours(error)
        ps = next((value for name, value in message.headers() or () if name == _PS_HEADER), None)
        return KafkaMessage(
            message.topic() or "",
            message.partition() or 0,
            message.offset() or 0,
            ps.encode() if isinstance(ps, str) else ps,
            message.value() or b"",
        )

    def _first_answer(self) -> ClusterMetadata:
        """The broker's answer about the topic. A refused login does not end the call: librdkafka calls error_cb and goes on."""
        deadline_s = time.monotonic() + _ANSWER_TIMEOUT_S
        while True:
            try:
                return self._consumer.list_topics(self._settings.topic, timeout=_LOOK_EVERY_S)
            except KafkaException as error:
                # Calls error_cb; nothing is assigned yet, so a result is an error, no message of DTS.
                answer = self._consumer.poll(0)
                if answer is not None and (fault := answer.error()) is not None:
                    self._faults.append(fault)
                if denial_of(self._faults) or time.monotonic() >= deadline_s:
                    raise self._as_ours(error.args[0]) from error

    def _raise_faults(self) -> None:
        if denial_of(self._faults) or any(fault.code() == KafkaError._ALL_BROKERS_DOWN for fault in self._faults):
            raise self._as_ours(self._faults[-1])

    def _as_ours(self, error: KafkaError | str) -> HeadwaterError:
        if isinstance(error, str):
            return SourceUnavailable(f"the subscription's Kafka: {error}")
        where = f"the subscription's Kafka at {self._settings.bootstrap_servers}"
        code = error.code()
        if denied := denial_of((error, *self._faults)):
            return AccessDenied(
                f"{where} denies the decoder ({denied.str()}): check username, password and consumer group in DTS's console, "
                "and with TLS subscription.ssl_ca_file"
            )
        if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            low, _ = self.ends()
            return PositionPurged(
                f"{self._settings.topic}[{self._settings.partition}]: messages before {low} were deleted before they were read "
                f"({error.str()}): re-snapshot the source"
            )
        if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return PipelineHalted(f"{where} has no topic {self._settings.topic}: correct subscription.topic")
        return SourceUnavailable(f"{where} does not answer ({error.str()}): {reason_of(self._faults)}")
