"""The transactional producer of one source partition: librdkafka's, with its bounds and its errors as ours.

The transactional id is the source partition's, so a newer owner's first act (``init_transactions``) aborts an older one's open
transaction and fences it for good. Its calls block.
"""

import collections
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable, Fenced, HeadwaterError, PipelineHalted
from libs.failpoints import failpoint
from libs.kafka.clients import client_config
from libs.types.position import SourcePartition

MAX_RECORD_BYTES: Final = 64 << 20
"""Largest ChangeBatch: a single row may have LONGTEXT columns of many megabytes."""
_TRANSACTION_TIMEOUT_S: Final = 300.0
"""How long Kafka keeps a transaction open without its end, 15 min at most: a source transaction must be written within it, at
50 MB/s and more. One that a killed reader leaves blocks ``read_committed`` for so long, or until the next reader starts."""
ABORT_TIMEOUT_S: Final = 2.0
_RETRY_S: Final = 60.0
_KAFKA_CALL_TIMEOUT_S: Final = 30.0  # below the transaction's own timeout, or it would be aborted under the call
_FIRST_PAUSE_S: Final = 0.001
_LAST_PAUSE_S: Final = 0.032
"""Pause between two looks at the broker's acknowledgements; it grows with the wait."""
_UNACKNOWLEDGED_BYTES: Final = 4 << 20
"""Limit of the producer's unacknowledged records, one aside: more would only be memory."""
_UNACKNOWLEDGED_RECORDS: Final = 5
"""… and how many records. librdkafka has no more than 5 in flight to a Kafka partition (RD_KAFKA_IDEMP_MAX_INFLIGHT), and while
another waits for them its thread looks again and again, without a pause: at a slow broker, most of a reader's CPU."""


class TransactionalProducer:
    """Holds librdkafka's producer, and the bytes that the broker may not have acknowledged yet.

    One thread uses it at a time, but for ``give_up`` and ``age_s``."""

    def __init__(self, settings: KafkaSettings, partition: SourcePartition) -> None:
        self._transaction_began_s: float | None = None
        self._delivery_error: KafkaError | None = None
        self._unacknowledged: collections.deque[int] = collections.deque()
        """Bytes of each record that the broker may not have acknowledged yet, in the order of sending."""
        self._is_given_up = threading.Event()
        """The time to finish is over: abort the open transaction."""
        self._producer = Producer(
            client_config(settings)
            | {
                "transactional.id": f"headwater-reader-{partition.source}-{partition.name}",
                "transaction.timeout.ms": int(_TRANSACTION_TIMEOUT_S * 1000),
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": "lz4",
                "linger.ms": 0,  # nothing may wait in librdkafka, see _UNACKNOWLEDGED_RECORDS
                "delivery.report.only.error": True,  # a report copies the record: a tenth of a reader's CPU
                "message.max.bytes": MAX_RECORD_BYTES,
                "queue.buffering.max.kbytes": 2 * (MAX_RECORD_BYTES >> 10),
                "batch.size": 1 << 20,
            }
        )

    def fence_older(self) -> None:
        """Fence older owners and abort their open transactions. Raises BrokerUnavailable, Fenced."""
        _call(self._producer.init_transactions, _KAFKA_CALL_TIMEOUT_S)

    def begin(self) -> None:
        """Open a transaction. Raises BrokerUnavailable, Fenced."""
        _call(self._producer.begin_transaction)
        self._transaction_began_s = time.monotonic()

    def commit(self) -> None:
        """Make the records of the open one visible. Raises BrokerUnavailable, Fenced, PipelineHalted: none is."""
        failpoint("reader_after_produce_before_commit")
        _call(self._producer.commit_transaction, _KAFKA_CALL_TIMEOUT_S)
        if self._delivery_error is not None:
            raise BrokerUnavailable(f"Kafka refused a record: {self._delivery_error.str()}")
        failpoint("reader_after_commit")
        self._transaction_began_s = None

    def abort(self) -> None:
        """Left open it would hold back everybody's checkpoints after it, and this source's changes, for minutes."""
        with suppress(KafkaException):  # none is open, or Kafka is away or has fenced this producer
            self._producer.abort_transaction(ABORT_TIMEOUT_S)
        self._transaction_began_s = None

    def give_up(self) -> None:
        """Let a record that is being produced fail. From any thread."""
        self._is_given_up.set()

    def age_s(self) -> float:
        """Of the open transaction, for a scrape meanwhile; 0: there is none. From any thread."""
        began_s = self._transaction_began_s
        return 0.0 if began_s is None else time.monotonic() - began_s

    def produce(self, topic: str, value: bytes, *, key: bytes | None = None, kafka_partition: int = -1) -> None:
        """Write a record into the open transaction; an empty one is left out. Waits for room.

        Raises:
            BrokerUnavailable, Fenced, PipelineHalted: it cannot be written.
        """
        if not value:  # a heartbeat: only its checkpoint is written
            return
        self._wait_for_room()
        if self._is_given_up.is_set():
            raise BrokerUnavailable("the reader stops: what it was writing is aborted")
        while True:
            try:
                self._producer.produce(
                    topic, value=value, key=key, partition=kafka_partition, on_delivery=self._on_delivery
                )
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise _as_ours(error) from error
            else:
                self._unacknowledged.append(len(value))
                self._producer.poll(0)
                return

    def _wait_for_room(self) -> None:
        """Return when the producer may be given one more record.

        It ends in any case: Kafka's transaction timeout fails what the broker never acknowledges.
        """
        pause_s = _FIRST_PAUSE_S
        while not self._has_room() and not self._is_given_up.is_set():
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)
            self._producer.poll(0)

    def _has_room(self) -> bool:
        # Acknowledgements are not reported: the producer's length is its unacknowledged records, and reports that wait to be
        # read (rd_kafka_outq_len), so that it never says too little.
        for _ in range(len(self._unacknowledged) - len(self._producer)):
            self._unacknowledged.popleft()
        return (
            len(self._unacknowledged) < _UNACKNOWLEDGED_RECORDS and sum(self._unacknowledged) <= _UNACKNOWLEDGED_BYTES
        )

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        """Called for failed records only."""
        self._delivery_error = error


def _call(function: Callable[..., object], *arguments: object) -> None:
    """A producer call, repeated while librdkafka says that it may be, with its errors as ours."""
    deadline = time.monotonic() + _RETRY_S
    while True:
        try:
            function(*arguments)
        except KafkaException as error:
            cause = error.args[0]
            if isinstance(cause, KafkaError) and cause.retriable() and time.monotonic() < deadline:
                continue
            raise _as_ours(error) from error
        else:
            return


def _as_ours(error: KafkaException) -> HeadwaterError:
    cause = error.args[0]
    assert isinstance(cause, KafkaError)
    match cause.code():
        case KafkaError._FENCED | KafkaError.INVALID_PRODUCER_EPOCH | KafkaError.PRODUCER_FENCED:
            return Fenced("a newer reader of this source partition publishes; this one stops")
        case KafkaError.MSG_SIZE_TOO_LARGE:
            return PipelineHalted(
                f"a batch exceeds the {MAX_RECORD_BYTES >> 20} MB that a record may have: one row of the source is larger; "
                "exclude its table or its large columns"
            )
        case KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED | KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return PipelineHalted(
                f"Kafka denies the reader: {cause.str()}; grant WRITE on its topics and transactional id"
            )
        case _:
            return BrokerUnavailable(f"Kafka: {cause.str()}")
