"""The topic of audit records: where they go, and how they are read."""

import queue
import threading
from collections.abc import Iterator
from typing import Final

import msgspec
import structlog
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable, HeadwaterError, InvalidSettings
from libs.events.names import AUDIT_TOPIC
from libs.kafka.clients import TopicSpec, all_topics, client_config, ensure_topics
from libs.types.audit import AuditRecord

_KEPT_MS: Final = 365 * 86_400_000
_FLUSH_S: Final = 2.0
_ANSWER_TIMEOUT_S: Final = 15.0
_MOST_WAITING: Final = 1_000

log = structlog.get_logger()
_decoder = msgspec.json.Decoder(AuditRecord)


def audit_topic(replication_factor: int) -> TopicSpec:
    """The topic as it should be: one order, kept for a year."""
    config = {"cleanup.policy": "delete", "retention.ms": str(_KEPT_MS)}
    return TopicSpec(name=AUDIT_TOPIC, replication_factor=replication_factor, config=config)


class AuditTopic:
    """Writes records beside the calls that they are of: a call neither waits for Kafka nor fails with it, and the log has each
    record in any case. Safe from any thread.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._waiting: queue.Queue[AuditRecord] = queue.Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None
        """Made with the first record."""
        self._producer: Producer | None = None
        self._is_lost = False

    def __call__(self, record: AuditRecord) -> None:
        """Take a record; a failure to write it to the topic is logged. A caller without end fills no memory."""
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self._delivered(f"{_MOST_WAITING} records wait already", None)
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_all, name="audit", daemon=True)
                self._thread.start()

    def _write_all(self) -> None:
        while True:
            self._write(self._waiting.get())

    def _write(self, record: AuditRecord) -> None:
        try:
            if self._producer is None:
                ensure_topics(self._settings, [audit_topic(self._settings.replication_factor)])
                limits = {"queue.buffering.max.messages": _MOST_WAITING, "message.timeout.ms": 60_000}
                self._producer = Producer({**client_config(self._settings), **limits})
            self._producer.produce(AUDIT_TOPIC, msgspec.json.encode(record), on_delivery=self._delivered)
            self._producer.flush(_FLUSH_S)
        except (HeadwaterError, KafkaException, BufferError) as error:
            self._delivered(error, None)

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None and not self._is_lost:
            log.warning(
                "audit_record_not_written",
                topic=AUDIT_TOPIC,
                reason=str(error),
                remedy="the log event audit has the record; let the service's Kafka user create and write the topic",
            )
        self._is_lost = error is not None


def read_audit(settings: KafkaSettings) -> Iterator[AuditRecord]:
    """All records that are there, oldest first; other values are passed over.

    Raises:
        InvalidSettings: nothing was ever written.
        BrokerUnavailable: Kafka does not answer.
    """
    if AUDIT_TOPIC not in all_topics(settings):
        raise InvalidSettings(
            AUDIT_TOPIC, ["is not there: no call has changed anything yet, or no service may make it"]
        )
    consumer = Consumer({**client_config(settings), "group.id": "headwater-audit", "enable.auto.commit": False})
    place = TopicPartition(AUDIT_TOPIC, 0)
    try:
        following, end = consumer.get_watermark_offsets(place, timeout=_ANSWER_TIMEOUT_S)
        consumer.assign([TopicPartition(AUDIT_TOPIC, 0, following)])
        while following < end:
            message = consumer.poll(_ANSWER_TIMEOUT_S)
            if message is None or message.error() is not None:
                raise BrokerUnavailable(f"{AUDIT_TOPIC} cannot be read up to its end: try again")
            following = (message.offset() or 0) + 1
            try:
                yield _decoder.decode(message.value() or b"")
            except msgspec.DecodeError:
                log.warning("audit_record_unreadable", offset=message.offset())
    except KafkaException as error:
        raise BrokerUnavailable(f"{AUDIT_TOPIC} cannot be read: {error.args[0]}") from error
    finally:
        consumer.close()
