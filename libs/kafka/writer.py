"""Writing a few records in one Kafka transaction, by the only process that may: a second instance fences the first."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable, Fenced
from libs.kafka.clients import client_config
from libs.kafka.tail import STATE_LOG_CLIENT

INIT_TIMEOUT_S: Final = 30.0
COMMIT_TIMEOUT_S: Final = 20.0
# Above COMMIT_TIMEOUT_S, or the broker would abort a commit that is under way; low, because until it ends an
# abandoned transaction holds every read_committed consumer of the topic back.
TRANSACTION_TIMEOUT_MS: Final = 30_000
# A commit and an abort, and some: only a call that librdkafka does not come back from takes longer.
WRITE_TIMEOUT_S: Final = 2 * COMMIT_TIMEOUT_S + 10.0


class OutcomeUnknown(BrokerUnavailable):
    """The records may or may not be in the log: stop, and read the log again from a new start."""


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record to be written; librdkafka's default partitioner chooses the Kafka partition by the key."""

    key: bytes
    value: bytes | None
    """None: a tombstone."""


class TransactionalWriter:
    """One topic's writer under a fixed ``transactional_id``; ``open`` it before the state is read from the topic."""

    def __init__(self, settings: KafkaSettings, topic: str, transactional_id: str) -> None:
        self._topic = topic
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"writer-{topic}")
        self._producer = Producer(
            {
                **client_config(settings),
                **STATE_LOG_CLIENT,
                "transactional.id": transactional_id,  # implies acks=all and idempotence
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 0,  # calls wait for every single record
            }
        )

    async def open(self) -> None:
        """Fence every earlier instance and end the transaction that it may have left open.

        What is read from the topic after this is complete: nobody else can write to it under this id.

        Raises:
            BrokerUnavailable: Kafka did not answer in time; start again.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._init)

    async def write(self, records: Sequence[OutgoingRecord]) -> list[tuple[int, int]]:
        """Write all of ``records`` or none; returns the Kafka partition and offset of each, once they are durable.

        Raises:
            BrokerUnavailable: nothing was written; try again.
            OutcomeUnknown: stop the process: only a new start can find out.
            Fenced: another instance took over: stop the process.
        """
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._write, records)
        except TimeoutError as error:
            raise OutcomeUnknown(f"a transaction on {self._topic} stands for {WRITE_TIMEOUT_S:.0f} s") from error

    def _init(self) -> None:
        try:
            self._producer.init_transactions(INIT_TIMEOUT_S)
        except KafkaException as error:
            raise BrokerUnavailable(f"Kafka transactions for {self._topic} cannot start: {_text(error)}") from error

    def _write(self, records: Sequence[OutgoingRecord]) -> list[tuple[int, int]]:
        placed: dict[int, tuple[int, int]] = {}

        def note_place_of(index: int) -> Callable[[KafkaError | None, Message], None]:
            def note(error: KafkaError | None, message: Message) -> None:
                number, offset = message.partition(), message.offset()
                if error is None and number is not None and offset is not None:
                    placed[index] = (number, offset)

            return note

        try:
            self._producer.begin_transaction()
            for index, record in enumerate(records):
                self._producer.produce(
                    self._topic, key=record.key, value=record.value, on_delivery=note_place_of(index)
                )
            self._commit()
        except KafkaException as error:
            raise self._after_failure(error) from error
        return [placed[index] for index in range(len(records))]

    def _commit(self) -> None:
        deadline_s = time.monotonic() + COMMIT_TIMEOUT_S
        while True:
            try:
                self._producer.commit_transaction(max(0.1, deadline_s - time.monotonic()))
                return
            except KafkaException as error:
                # A retriable commit is resumed by calling it again (librdkafka, "Transactional producer").
                if not _cause(error).retriable() or time.monotonic() >= deadline_s:
                    raise

    def _after_failure(self, error: KafkaException) -> Exception:
        cause = _cause(error)
        if cause.code() in (
            KafkaError._FENCED,
            KafkaError.PRODUCER_FENCED,
            KafkaError.INVALID_PRODUCER_EPOCH,
        ):
            return Fenced(f"another instance writes to {self._topic}: this one stops")
        if cause.fatal() or not cause.txn_requires_abort():
            return OutcomeUnknown(f"a transaction on {self._topic} did not end: {_text(error)}")
        try:
            self._producer.abort_transaction(COMMIT_TIMEOUT_S)
        except KafkaException as abort_error:
            return OutcomeUnknown(f"a transaction on {self._topic} was not aborted: {_text(abort_error)}")
        return BrokerUnavailable(f"nothing was written to {self._topic}: {_text(error)}")

    def close(self) -> None:
        """Let go of the broker; an unfinished transaction is left to the next start."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _text(error: KafkaException) -> str:
    return str(_cause(error).str())


def _cause(error: KafkaException) -> KafkaError:
    cause = error.args[0]
    return cause if isinstance(cause, KafkaError) else KafkaError(KafkaError._FAIL, str(cause))
