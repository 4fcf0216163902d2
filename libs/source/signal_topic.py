"""The topic ``headwater.signals``: one partition, delete policy, every source's signals under the source's name as key.

A reader follows it from the offset in its checkpoint, so a signal that was sent while it stood still acts when it is back. A
source that has no checkpoint yet begins with what is sent after its reader's start.
"""

import queue
import threading
from dataclasses import dataclass
from typing import Final

import structlog
from confluent_kafka import OFFSET_END, Consumer, KafkaException, Producer, TopicPartition

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable
from libs.events.names import SIGNALS_TOPIC
from libs.kafka.clients import TopicSpec, client_config
from libs.source.signals import parse_signal

log = structlog.get_logger()

_POLL_S: Final = 0.5  # how long closing waits
_REQUEST_TIMEOUT_S: Final = 10.0
_QUEUED_SIGNALS: Final = 1_000


def signals_topic(replication_factor: int) -> TopicSpec:
    """The topic as it should be."""
    return TopicSpec(name=SIGNALS_TOPIC, replication_factor=replication_factor, config={"cleanup.policy": "delete"})


@dataclass(frozen=True, slots=True)
class SignalRecord:
    """A record that was passed, whether or not it is for this source."""

    next_offset: int
    text: bytes | None
    """The signal; None: another source's, or only a place to go on from."""


class SignalTopic:
    """Follows the topic in a thread of its own; ``records`` never blocks.

    While Kafka is away there is nothing to take, and nothing is lost: the next offset stands in the checkpoint.
    """

    def __init__(self, settings: KafkaSettings, source: str, *, from_offset: int | None, since_ms: int) -> None:
        """``from_offset`` None: from the first record that was sent at ``since_ms`` (since 1970) or later."""
        self._settings = settings
        self._source = source.encode()
        self._from_offset = from_offset
        self._since_ms = since_ms
        self._records: queue.Queue[SignalRecord] = queue.Queue(_QUEUED_SIGNALS)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="signals", daemon=True)
        self._thread.start()

    def records(self) -> list[SignalRecord]:
        """What has come since the last call, in order."""
        found = []
        while not self._records.empty():
            found.append(self._records.get_nowait())
        return found

    def close(self) -> None:
        """End the thread. Blocks shortly."""
        self._ends.set()
        self._thread.join(_REQUEST_TIMEOUT_S)

    def _follow(self) -> None:
        consumer = Consumer(
            {
                **client_config(self._settings),
                "group.id": f"headwater-signals-{self._source.decode()}",  # demanded; nothing is committed under it
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",  # what the retention took cannot act any more
            }
        )
        try:
            offset = self._from_offset
            while offset is None and not self._ends.is_set():
                offset = self._first_offset(consumer)
            if offset is not None:
                self._put(SignalRecord(next_offset=offset, text=None))
                consumer.assign([TopicPartition(SIGNALS_TOPIC, 0, offset)])
            while not self._ends.is_set():
                message = consumer.poll(_POLL_S)
                if message is not None and message.error() is None:
                    is_ours = message.key() == self._source
                    value = message.value()
                    text = value if is_ours and isinstance(value, bytes) else None
                    self._put(SignalRecord(next_offset=(message.offset() or 0) + 1, text=text))
        except KafkaException as error:
            log.warning("signals_unavailable", reason=str(error))  # the next start of the reader tries again
        finally:
            consumer.close()

    def _first_offset(self, consumer: Consumer) -> int | None:
        """None: Kafka does not answer yet."""
        try:
            [found] = consumer.offsets_for_times(
                [TopicPartition(SIGNALS_TOPIC, 0, self._since_ms)], timeout=_REQUEST_TIMEOUT_S / 10
            )
            if found.error is not None:
                self._ends.wait(_POLL_S)
                return None
            if found.offset != OFFSET_END and found.offset >= 0:
                return found.offset
            _, end = consumer.get_watermark_offsets(
                TopicPartition(SIGNALS_TOPIC, 0), timeout=_REQUEST_TIMEOUT_S / 10, cached=False
            )
        except KafkaException:
            self._ends.wait(_POLL_S)
            return None
        return int(end)

    def _put(self, record: SignalRecord) -> None:
        while not self._ends.is_set():
            try:
                self._records.put(record, timeout=_POLL_S)
            except queue.Full:
                continue
            return


def send_signal(settings: KafkaSettings, source: str, text: str) -> int:
    """Put a signal into the topic; returns its offset once it is durable. Blocks.

    Raises:
        InvalidSignal: it could not act; nothing was sent.
        BrokerUnavailable: Kafka did not take it; try again.
    """
    parse_signal(text)
    offsets: list[int] = []
    faults: list[str] = []
    producer = Producer({**client_config(settings), "acks": "all", "enable.idempotence": True})
    producer.produce(
        SIGNALS_TOPIC,
        key=source.encode(),
        value=text.encode(),
        partition=0,
        on_delivery=lambda error, message: (
            offsets.append(message.offset() or 0) if error is None else faults.append(error.str())
        ),
    )
    producer.flush(_REQUEST_TIMEOUT_S)
    if not offsets:
        raise BrokerUnavailable(f"the signal was not sent: {', '.join(faults) or 'Kafka does not answer'}")
    return offsets[0]
