"""The topic ``headwater.signals``: one partition, delete policy, every source's signals under the source's name as key.

A reader follows it from the offset in its checkpoint, so a signal that was sent while it stood still acts when it is back. A
source that has no checkpoint yet begins with signals sent after its reader's first start: Kafka keeps that place as the
offset of a consumer group (``keep_beginning``), so that a reader killed before its first checkpoint begins there again.

The offset is of one topic, which Kafka's id of it names. Where the topic was deleted and made again, no signal of the new one
was acted upon: the reader begins at its beginning.
"""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from libs.config.connections import KafkaSettings
from libs.errors import AccessDenied, BrokerUnavailable
from libs.events.names import SIGNALS_TOPIC
from libs.kafka.clients import TopicSpec, client_config
from libs.kafka.topic_id import topic_id
from libs.source.signal_outcomes import note_refused
from libs.source.signals import ORACLE_TYPES, id_of, parse_signal
from libs.types.checkpoint import IncrementalSnapshot
from libs.types.position import SourcePartition

log = structlog.get_logger()

_POLL_S: Final = 0.5  # how long closing waits
_REQUEST_TIMEOUT_S: Final = 10.0
_RETRY_S: Final = 5.0
_LOOK_S: Final = 30.0  # whether the topic is still the same one
_PATIENCE_S: Final = 1.0  # of a request that is made again and again: closing waits for it
_BEGINNING_TIMEOUT_S: Final = 60.0  # a topic that was created a moment ago has no leader yet
_QUEUED_SIGNALS: Final = 1_000
_BEFORE_THE_START: Final = "it was sent before the reader's first start; send it again if it is still wanted"


def signals_topic(replication_factor: int) -> TopicSpec:
    """The topic as it should be."""
    return TopicSpec(name=SIGNALS_TOPIC, replication_factor=replication_factor, config={"cleanup.policy": "delete"})


@dataclass(frozen=True, slots=True)
class SignalRecord:
    """A record that was passed, whether or not it is for this source."""

    next_offset: int
    topic_id: str
    """Kafka's id of the topic; empty: it has none."""
    text: bytes | None
    """The signal; None: another source's, or only a place to go on from."""


def passed_signal(state: IncrementalSnapshot, record: SignalRecord) -> IncrementalSnapshot:
    """The state of a reader that has acted upon ``record``, or passed it."""
    return msgspec.structs.replace(state, signals_offset=record.next_offset, signals_topic_id=record.topic_id)


class SignalTopic:
    """Follows the topic in a thread of its own; ``records`` never blocks.

    While Kafka is away there is nothing to take, and nothing is lost: the next offset stands in the checkpoint.
    """

    def __init__(self, settings: KafkaSettings, partition: SourcePartition, state: IncrementalSnapshot) -> None:
        """From the place that ``state`` has; from the beginning that was kept where it has none."""
        self._settings = settings
        self._partition = partition
        self._from_offset = state.signals_offset
        self._topic_id = state.signals_topic_id
        self._records: queue.Queue[SignalRecord] = queue.Queue(_QUEUED_SIGNALS)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="signals", daemon=True)
        self._thread.start()

    def records(self) -> list[SignalRecord]:
        """The signals since the last call, in order."""
        found = []
        while not self._records.empty():
            found.append(self._records.get_nowait())
        return found

    def close(self) -> None:
        """End the thread. Blocks shortly."""
        self._ends.set()
        self._thread.join(_REQUEST_TIMEOUT_S)

    def _follow(self) -> None:
        while not self._ends.is_set():
            consumer = _consumer(self._settings, self._partition)
            try:
                self._follow_by(consumer)
            except (KafkaException, BrokerUnavailable) as error:
                log.warning("signals_unavailable", reason=str(error), retry_in_s=_RETRY_S)
            finally:
                consumer.close()
            self._ends.wait(_RETRY_S)

    def _follow_by(self, consumer: Consumer) -> None:
        """Until the end, or until the topic is another one. Raises KafkaException, BrokerUnavailable; ``_from_offset`` is
        where to go on then."""
        offset = self._from_offset
        found_id = self._id_now()
        if found_id is None:
            return
        known_id, self._topic_id = self._topic_id, found_id
        if offset is not None and known_id and self._topic_id != known_id:
            log.warning("signals_topic_replaced", passed_offset=offset, former_id=known_id, topic_id=self._topic_id)
            offset = self._from_offset = _first_of(consumer)
        while offset is None and not self._ends.is_set():
            offset = self._first_offset(consumer)
        if offset is None:
            return
        consumer.commit(offsets=[TopicPartition(SIGNALS_TOPIC, 0, offset)])  # should the checkpoint get lost
        self._passed(SignalRecord(offset, self._topic_id, text=None))
        consumer.assign([TopicPartition(SIGNALS_TOPIC, 0, offset)])
        looked_s = time.monotonic()
        while not self._ends.is_set():
            message = consumer.poll(_POLL_S)
            if time.monotonic() - looked_s > _LOOK_S:
                if self._id_now() != self._topic_id:
                    return  # a record that came with it is read again
                looked_s = time.monotonic()
            if message is None:
                continue
            if (error := message.error()) is not None:
                raise KafkaException(error)
            is_ours = message.key() == self._partition.source.encode()
            value = message.value()
            text = value if is_ours and isinstance(value, bytes) else None
            self._passed(SignalRecord((message.offset() or 0) + 1, self._topic_id, text))

    def _id_now(self) -> str | None:
        """Kafka's id of the topic, asked for in short turns, so that ``close`` waits for none of them. None: this ends.

        Raises BrokerUnavailable: Kafka does not answer.
        """
        deadline_s = time.monotonic() + _REQUEST_TIMEOUT_S
        while not self._ends.is_set():
            try:
                return topic_id(self._settings, SIGNALS_TOPIC, _PATIENCE_S)
            except BrokerUnavailable:
                if time.monotonic() > deadline_s:
                    raise
        return None

    def _first_offset(self, consumer: Consumer) -> int | None:
        """None: Kafka does not answer yet."""
        try:
            return _kept_beginning(consumer, _PATIENCE_S)
        except KafkaException:
            self._ends.wait(_POLL_S)
            return None

    def _passed(self, record: SignalRecord) -> None:
        self._from_offset = record.next_offset
        while not self._ends.is_set():
            try:
                self._records.put(record, timeout=_POLL_S)
            except queue.Full:
                continue
            return


def keep_beginning(
    settings: KafkaSettings, partition: SourcePartition, *, is_former: Callable[[str], bool] | None = None
) -> None:
    """Before a reader does anything else: where its signals begin, should it have no checkpoint. Blocks.

    Signals from before that are refused, each by its id. ``is_former`` says of a source partition's name that a reader of it
    had this work before. Where one of them has begun, the signals were its own, and none is refused. None: nobody had.

    Raises:
        BrokerUnavailable: Kafka does not answer; try again.
        AccessDenied: the user may not use the consumer group.
    """
    consumer = _consumer(settings, partition)
    deadline_s = time.monotonic() + _BEGINNING_TIMEOUT_S
    try:
        while (failure := _keep(consumer, settings, partition, is_former)) is not None:
            if failure.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise AccessDenied(
                    f"Kafka denies the consumer group {_group(partition)}: grant READ on it to the reader's user"
                )
            if time.monotonic() > deadline_s:
                raise BrokerUnavailable(f"topic {SIGNALS_TOPIC} cannot be looked at: {failure.str()}")
            time.sleep(_POLL_S)
    finally:
        consumer.close()


def beginning_of(settings: KafkaSettings, partition: SourcePartition) -> int:
    """Where the signals of a reader begin that has no place in a checkpoint: what was kept, or the topic's end. Blocks.

    Raises:
        BrokerUnavailable: Kafka does not answer; try again.
    """
    consumer = _consumer(settings, partition)
    try:
        return _kept_beginning(consumer, _REQUEST_TIMEOUT_S)
    except KafkaException as error:
        raise BrokerUnavailable(f"where the signals of {partition.name} begin cannot be read: {error}") from error
    finally:
        consumer.close()


def _keep(
    consumer: Consumer,
    settings: KafkaSettings,
    partition: SourcePartition,
    is_former: Callable[[str], bool] | None,
) -> KafkaError | None:
    """None: it is kept, and signals of before are refused."""
    try:
        offset = _kept_beginning(consumer, _REQUEST_TIMEOUT_S)
        if not _has_begun(consumer) and not _one_has_begun(settings, partition.source, is_former):
            _refuse_before(consumer, partition, offset)
        consumer.commit(offsets=[TopicPartition(SIGNALS_TOPIC, 0, offset)], asynchronous=False)
    except KafkaException as error:
        cause = error.args[0]
        assert isinstance(cause, KafkaError)
        return cause
    return None


def _has_begun(consumer: Consumer) -> bool:
    """A reader with this consumer's group has kept its beginning. Raises KafkaException."""
    [kept] = consumer.committed([TopicPartition(SIGNALS_TOPIC, 0)], timeout=_REQUEST_TIMEOUT_S)
    if kept.error is not None:
        raise KafkaException(kept.error)
    return bool(kept.offset >= 0)


def _one_has_begun(settings: KafkaSettings, source: str, is_former: Callable[[str], bool] | None) -> bool:
    """Kafka forgets a group some days after its last commit, by default as it does the signals. Raises KafkaException,
    BrokerUnavailable."""
    if is_former is None:
        return False
    prefix = _group(SourcePartition(source=source, name=""))
    admin = AdminClient(client_config(settings))  # it answers as long as it is there
    try:
        listed = admin.list_consumer_groups(request_timeout=_REQUEST_TIMEOUT_S).result(_REQUEST_TIMEOUT_S)
    except TimeoutError as error:
        raise BrokerUnavailable("Kafka does not list its consumer groups") from error
    names = [each.group_id.removeprefix(prefix) for each in listed.valid if each.group_id.startswith(prefix)]
    for name in filter(is_former, names):
        consumer = _consumer(settings, SourcePartition(source=source, name=name))
        try:
            if _has_begun(consumer):
                return True
        finally:
            consumer.close()
    return False


def _refuse_before(consumer: Consumer, partition: SourcePartition, end: int) -> None:
    """Report the source's signals that stand before the first start of its reader: nobody acts on them. Raises KafkaException.

    They are not taken, because nobody knows how old they are: a source of that name may have been there before.
    """
    first = _first_of(consumer)
    consumer.assign([TopicPartition(SIGNALS_TOPIC, 0, first)])
    deadline_s = time.monotonic() + _REQUEST_TIMEOUT_S
    offset = first
    while offset < end and time.monotonic() < deadline_s:
        if (message := consumer.poll(_POLL_S)) is None:
            continue
        if (error := message.error()) is not None:
            raise KafkaException(error)
        offset = (message.offset() or 0) + 1
        text = message.value()
        if offset <= end and message.key() == partition.source.encode() and isinstance(text, bytes):
            log.warning("signal_refused", signal_id=id_of(text), reason=_BEFORE_THE_START)
            note_refused((partition.source, partition.name), id_of(text), _BEFORE_THE_START)
    consumer.unassign()


def _group(partition: SourcePartition) -> str:
    return f"headwater-signals-{partition.source}-{partition.name}"


def _consumer(settings: KafkaSettings, partition: SourcePartition) -> Consumer:
    return Consumer(
        {
            **client_config(settings),
            "group.id": _group(partition),  # nobody joins it: it keeps one offset
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",  # signals deleted by retention cannot act any more
        }
    )


def _kept_beginning(consumer: Consumer, timeout_s: float) -> int:
    """The offset that was kept; the topic's end where none was. Raises KafkaException."""
    signals = TopicPartition(SIGNALS_TOPIC, 0)
    [kept] = consumer.committed([signals], timeout=timeout_s)
    if kept.error is not None:
        raise KafkaException(kept.error)
    if kept.offset >= 0:
        return int(kept.offset)
    _, end = consumer.get_watermark_offsets(signals, timeout=timeout_s, cached=False)
    return int(end)


def _first_of(consumer: Consumer) -> int:
    """The offset of the topic's first record. Raises KafkaException."""
    signals = TopicPartition(SIGNALS_TOPIC, 0)
    first, _ = consumer.get_watermark_offsets(signals, timeout=_REQUEST_TIMEOUT_S, cached=False)
    return int(first)


def send_signal(settings: KafkaSettings, source: str, text: str) -> int:
    """Put a signal into the topic; returns its offset once it is durable. Blocks.

    Raises:
        InvalidSignal: it could not act; nothing was sent.
        BrokerUnavailable: Kafka did not take it; try again.
    """
    parse_signal(text, types=ORACLE_TYPES)  # a reader of another kind refuses one that it does not know
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
