"""Following a topic to its end, and knowing when everything committed up to a moment has been seen.

schema_history and checkpoint_committer build their state from a tail and from nothing else.

confluent-kafka rather than aiokafka: every service has it already, and librdkafka says by its end-of-partition event
how far it has read *including* transaction markers, which a barrier needs: markers take offsets, so the offset of the
last record alone never reaches the end of a topic that is written in transactions. Its calls block and therefore run
in one thread of each tail.
"""

import asyncio
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NoReturn

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable
from libs.kafka.clients import client_config

POLL_TIMEOUT_S: Final = 0.5  # how long a cancelled tail takes to end
RECORDS_PER_POLL: Final = 1_000
# librdkafka reports a partition's end when a fetch answers: this is how long a barrier can wait at a silent topic.
# The fetches of two idle tails cost a broker 4 % of a core at 50 ms, 2 % at 100.
FETCH_WAIT_MS: Final = 100
# A process that was asked to stop while Kafka is away waits for a running request: this must end within its 9 s.
REQUEST_TIMEOUT_S: Final = 5.0
# Others have seen librdkafka stand for ever in a consumer's close; nothing is lost by leaving one unclosed.
CLOSE_TIMEOUT_S: Final = 5.0
RETRY_PAUSE_S: Final = 0.2
# A starved broker was seen to take longer than 20 s until it led each partition of a topic that it had just created.
IDENTIFY_TIMEOUT_S: Final = 60.0

STATE_LOG_CLIENT: Final = {
    # 10 s by default: longer than a caller waits for an answer once the broker is back.
    "reconnect.backoff.max.ms": 1_000,
}
"""On top of ``client_config``, for the few clients of a state log."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One committed record of a topic."""

    kafka_partition: int
    offset: int
    key: bytes
    value: bytes | None
    """None: a tombstone."""


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """Which topic this is, and how far it reaches: a topic that was deleted and created again has another id."""

    topic_id: str
    end_offsets: Mapping[int, int]
    """By Kafka partition, when asked."""


async def identify_log(settings: KafkaSettings, topic: str, *, timeout_s: float = IDENTIFY_TIMEOUT_S) -> LogIdentity:
    """Id, partitions and ends of ``topic``; a topic that was created a moment ago is waited for.

    Raises:
        BrokerUnavailable: Kafka does not answer, or does not know the topic; try again.
    """
    admin = AdminClient({**client_config(settings), **STATE_LOG_CLIENT})
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return await asyncio.to_thread(_identify, admin, topic)
        except BrokerUnavailable:
            if time.monotonic() >= deadline_s:
                raise
        await asyncio.sleep(RETRY_PAUSE_S)


def _identify(admin: AdminClient, topic: str) -> LogIdentity:
    try:
        answers = admin.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT_S)
        described = answers[topic].result(timeout=REQUEST_TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        raise BrokerUnavailable(f"topic {topic} cannot be described: {error}") from error
    numbers = sorted(part.id for part in described.partitions)
    return LogIdentity(str(described.topic_id), fetch_end_offsets(admin, topic, numbers))


class LogTail:
    """All partitions of one topic, ``read_committed``, from given offsets on; one task runs ``follow``."""

    def __init__(
        self, settings: KafkaSettings, topic: str, identity: LogIdentity, *, from_offsets: Mapping[int, int]
    ) -> None:
        """``from_offsets`` by Kafka partition; a partition that it does not name is read from its beginning."""
        self._topic = topic
        self._partitions = tuple(identity.end_offsets)
        self._passed = {number: from_offsets.get(number, 0) for number in self._partitions}
        self._moved = asyncio.Condition()
        self._turned_at_s = time.monotonic()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"tail-{topic}")
        self._admin = AdminClient({**client_config(settings), **STATE_LOG_CLIENT})
        self._consumer_config: dict[str, object] = {
            **client_config(settings),
            **STATE_LOG_CLIENT,
            "group.id": f"tail-{topic}",  # demanded by librdkafka; nothing is ever committed under it
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            # An offset that the topic does not hold means another topic than the state was built from.
            "auto.offset.reset": "error",
        }
        self._consumer = Consumer(self._consumer_config)
        self._consumer.assign(
            [TopicPartition(topic, number, from_offsets.get(number, OFFSET_BEGINNING)) for number in self._partitions]
        )

    @property
    def passed(self) -> Mapping[int, int]:
        """By Kafka partition, the offset below which every committed record has been handed to ``apply``."""
        return self._passed

    @property
    def idle_s(self) -> float:
        """Seconds since the tail last came round; far above POLL_TIMEOUT_S: it is stuck."""
        return time.monotonic() - self._turned_at_s

    async def follow(self, apply: Callable[[Sequence[LogRecord]], None]) -> NoReturn:
        """Hand every record to ``apply``, in the order of its partition, until cancelled.

        A broker that is away is waited for. ``apply`` runs in the event loop, so state changes between two awaits
        of nobody.

        Raises:
            BrokerUnavailable: the topic no longer holds the offsets that were asked for: start again from nothing.
        """
        loop = asyncio.get_running_loop()
        while True:
            records, passed = await loop.run_in_executor(self._thread, self._poll)
            self._turned_at_s = time.monotonic()
            if records:
                apply(records)
            if passed:
                # Before the next await: whoever sees the state of ``apply`` sees ``passed`` cover it.
                self._passed.update(passed)
                async with self._moved:
                    self._moved.notify_all()

    def _poll(self) -> tuple[list[LogRecord], dict[int, int]]:
        first = self._consumer.poll(POLL_TIMEOUT_S)
        if first is None:
            return [], {}
        records: list[LogRecord] = []
        passed: dict[int, int] = {}
        for message in (first, *self._consumer.consume(RECORDS_PER_POLL - 1, timeout=0)):
            self._take(message, records, passed)
        return records, passed

    def _take(self, message: Message, records: list[LogRecord], passed: dict[int, int]) -> None:
        error, number, offset = message.error(), message.partition(), message.offset()
        if error is None and number is not None and offset is not None:
            key, value = message.key(), message.value()
            records.append(LogRecord(number, offset, _as_bytes(key) or b"", _as_bytes(value)))
            passed[number] = offset + 1
        elif error is not None and error.code() == KafkaError._PARTITION_EOF:
            if number is not None and offset is not None:
                passed[number] = offset
        elif error is not None and error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise BrokerUnavailable(f"topic {self._topic} was truncated or replaced: {error.str()}")
        # Any other error is reported while librdkafka tries again by itself.

    async def barrier(self, timeout_s: float, *, keys: Sequence[bytes] = ()) -> None:
        """Return once everything committed before the call, or its part under ``keys``, was handed to ``apply``.

        Open transactions that started before also have to end first, because records after them are held back from
        every ``read_committed`` consumer (Kafka: last stable offset). Those in Kafka partitions where no record of
        ``keys`` can stand are not waited for.

        Raises:
            BrokerUnavailable: Kafka did not answer, or a transaction was still open after ``timeout_s``; try again.
        """
        started_s = time.monotonic()
        ends = await self.end_offsets(timeout_s)
        if keys:
            of_keys = {partition_of_key(key, len(self._partitions)) for key in keys}
            ends = {number: ends[number] for number in of_keys}
        await self._wait_until_passed(ends, timeout_s - (time.monotonic() - started_s))

    async def stable_barrier(self, timeout_s: float) -> None:
        """As ``barrier``, but only for records before open transactions: none is waited for.

        Raises:
            BrokerUnavailable: Kafka did not answer, or the topic could not be read within ``timeout_s``; try again.
        """
        started_s = time.monotonic()
        ends = await self.end_offsets(timeout_s, isolation=IsolationLevel.READ_COMMITTED)
        await self._wait_until_passed(ends, timeout_s - (time.monotonic() - started_s))

    async def _wait_until_passed(self, ends: Mapping[int, int], timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s), self._moved:
                await self._moved.wait_for(lambda: all(self._passed[number] >= end for number, end in ends.items()))
        except TimeoutError as error:
            raise BrokerUnavailable(
                f"topic {self._topic} was not read to its end in {timeout_s:.1f} s: Kafka is slow, or a transaction is open"
            ) from error

    async def held_back(self, timeout_s: float) -> list[LogRecord]:
        """Records that ``apply`` has not seen because a transaction before them is open, committed and other ones alike.

        Raises:
            BrokerUnavailable: Kafka did not answer within ``timeout_s``; try again.
        """
        ends = await self.end_offsets(timeout_s)
        unseen = {number: (self._passed[number], end) for number, end in ends.items() if self._passed[number] < end}
        return await asyncio.to_thread(self._read_uncommitted, unseen, timeout_s) if unseen else []

    def _read_uncommitted(self, unseen: Mapping[int, tuple[int, int]], timeout_s: float) -> list[LogRecord]:
        """Everything from the first offset to before the second, by Kafka partition."""
        deadline_s = time.monotonic() + timeout_s
        consumer = Consumer({**self._consumer_config, "isolation.level": "read_uncommitted"})
        consumer.assign([TopicPartition(self._topic, number, first) for number, (first, _) in unseen.items()])
        records: list[LogRecord] = []
        passed: dict[int, int] = {}
        try:
            while any(passed.get(number, 0) < end for number, (_, end) in unseen.items()):
                if time.monotonic() >= deadline_s:
                    raise BrokerUnavailable(f"the end of topic {self._topic} was not read in {timeout_s:.1f} s")
                if (message := consumer.poll(POLL_TIMEOUT_S)) is not None:
                    self._take(message, records, passed)
            return records
        finally:
            consumer.close()

    async def end_offsets(
        self, timeout_s: float, *, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> dict[int, int]:
        """Where the topic ends now, by Kafka partition; ``READ_COMMITTED``: where its first open transaction begins.

        Raises:
            BrokerUnavailable: Kafka did not answer within ``timeout_s``; try again.
        """
        reason = "no answer"
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        return await asyncio.to_thread(
                            fetch_end_offsets, self._admin, self._topic, self._partitions, isolation
                        )
                    except BrokerUnavailable as error:
                        reason = str(error)
                    await asyncio.sleep(RETRY_PAUSE_S)
        except TimeoutError as error:
            raise BrokerUnavailable(f"no end of topic {self._topic} within {timeout_s} s: {reason}") from error

    async def close(self) -> None:
        """Leave the topic, within ``CLOSE_TIMEOUT_S``; call it after ``follow`` was cancelled."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await asyncio.get_running_loop().run_in_executor(self._thread, self._consumer.close)
        self._thread.shutdown(wait=False)


def partition_of_key(key: bytes, kafka_partitions: int) -> int:
    """Where librdkafka puts a record with this key (CONFIGURATION.md, ``partitioner``: consistent_random is the default)."""
    return zlib.crc32(key) % kafka_partitions


def fetch_end_offsets(
    admin: AdminClient,
    topic: str,
    kafka_partitions: Sequence[int],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[int, int]:
    """High watermark of each partition: records committed after an open transaction count too. Blocks.

    With ``READ_COMMITTED`` the last stable offset: where the first open transaction begins, if there is one.

    Raises:
        BrokerUnavailable: Kafka does not answer; try again.
    """
    asked: dict[TopicPartition, OffsetSpec] = {
        TopicPartition(topic, number): OffsetSpec.latest() for number in kafka_partitions
    }
    try:
        answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT_S)
        return {
            partition.partition: int(answer.result(timeout=REQUEST_TIMEOUT_S).offset)  # type: ignore[attr-defined]
            for partition, answer in answers.items()
        }
    except (KafkaException, TimeoutError) as error:
        _refresh_leaders(admin, topic)
        raise BrokerUnavailable(f"the end of topic {topic} is not known: {error}") from error


def _refresh_leaders(admin: AdminClient, topic: str) -> None:
    """librdkafka 2.16 keeps the leader epochs that ListOffsets sends, and fails with FENCED_LEADER_EPOCH for ever
    after a broker's restart, unless somebody asks for metadata."""
    with suppress(KafkaException):
        admin.list_topics(topic, timeout=REQUEST_TIMEOUT_S)


def _as_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
