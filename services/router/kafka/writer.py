"""Writes a lane's transactions: records into batches, batches and the consumer offset into one Kafka transaction.

The producer is aiokafka's, for its protocol; the batches are our own (``record_batch``). It lives in the event loop of the
lane's thread, and so does everything here.

The transactional id alone protects the partition: opening a writer for it fences the former one, and Kafka
refuses all that that one still sends, records and offsets alike. The consumer group's generation is not sent with the offsets
(aiokafka sends the group's name only); that is safe: an owner of an older generation has an older producer.

Each batch's acknowledgement is looked at before a commit: aiokafka by itself commits although a batch was refused.
"""

import asyncio
import time
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka import errors as kafka_errors

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable, Fenced, HeadwaterError
from libs.failpoints import failpoint
from libs.kafka.aiokafka_clients import aiokafka_config
from services.router.kafka import aiokafka_transactions
from services.router.kafka.kafka_refusals import (
    TopicsRefused,
    as_ours,
    is_of_topic,
    reason_with_remedy,
    unauthorized_topics,
)
from services.router.records.gathered_batches import Gathered, GatheredBatches
from services.router.records.record_batch import (
    CODECS,
    RecordBatch,
    Records,
    empty_batch,
    take_body,
)
from services.router.records.record_bytes import PassedRows
from services.router.settings import LaneSettings

_T = TypeVar("_T")


_TOPICS_NAMED: Final = 5
"""Most names of topics in a refusal: the remedy must not be lost after them."""
_KAFKA_CALL_TIMEOUT_S: Final = 30.0  # below the age at which a transaction counts as stuck
_CLOSE_TIMEOUT_S: Final = 2.0  # below the time that a lane's end may take
_RETRY_MS: Final = 20
"""Between two attempts at anything but the next."""


class TransactionWriter:
    """The transactional producer of one partition of a changes topic. ``open`` it, and ``close`` it at the end.

    One transaction: ``begin``, any number of ``write``, ``send_gathered``, ``send_offset``, ``commit``. All of them raise

    * Fenced: another owner has the partition; nothing of the transaction became visible;
    * TopicsRefused: Kafka will not take records of some topics; ``abort``, and begin again without them;
    * PipelineHalted: Kafka refuses the router; the message says which grant is missing;
    * BrokerUnavailable: anything else, an answer that does not come within 30 s included.

    After another error than TopicsRefused only ``close`` is allowed: the next ``open`` under the same id ends the
    transaction that was left open.

    Order: a Kafka partition of a topic gets its records in the order of the calls.
    """

    def __init__(self, producer: Any, place: TopicPartition, group: str, settings: LaneSettings) -> None:
        self._producer = producer
        self._place = place
        self._group = group
        self._codec = CODECS[settings.compression]()
        self._limit_bytes = settings.producer_queue_kbytes * 1024 // 2
        """Of gathered records, and of those in flight."""
        self._known_topics: set[str] = set()
        self._gathered = GatheredBatches(self._batches_of, self._send)
        self._in_flight: dict[asyncio.Future[object], _Sent] = {}
        """Batches that are not acknowledged."""
        self._in_flight_bytes = 0
        self.moved_s = time.monotonic()
        """When Kafka last acknowledged a batch, or a transaction began; the watchdog looks at it."""
        self._offset_group: str | None = None
        """Whose offset was sent last."""
        self._refusal: _Refusal | None = None

    @classmethod
    async def open(
        cls, kafka: KafkaSettings, group: str, place: TopicPartition, settings: LaneSettings, *, part: str = ""
    ) -> Self:
        """Fence the partition's older owners; when this returns, no transaction of theirs is open any more.

        ``part``: of the partition's work, if several writers share it; each has owners of its own.
        """
        producer = AIOKafkaProducer(
            **aiokafka_config(kafka),
            # Topic and partition, so that the partition's next owner has the same id and fences us.
            transactional_id=f"{group}-{place.topic}-{place.partition}{part}",
            transaction_timeout_ms=int(settings.transaction_timeout_s * 1000),
            request_timeout_ms=int(_KAFKA_CALL_TIMEOUT_S * 1000),
            retry_backoff_ms=_RETRY_MS,
            linger_ms=0,  # batches come whole
        )
        writer = cls(producer, place, group, settings)
        try:
            await writer._answered(producer.start())
            aiokafka_transactions.hear_refusals(producer, writer._note_refusal)
        except BaseException:
            await writer.close()
            raise
        return writer

    async def close(self) -> None:
        """Give the connections back; the next owner, or Kafka in time, aborts an open transaction."""
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._producer.stop()
        except (TimeoutError, kafka_errors.KafkaError):
            await self._producer.client.close()

    async def learn_topics(self, topics: Iterable[str]) -> None:
        """Ask Kafka for the partitions of the topics that are new to this writer, in one request."""
        new = set(topics) - self._known_topics
        if new:
            self._known_topics |= new
            await self._answered(self._producer.client.set_topics(self._known_topics))

    def _note_refusal(self, error: BaseException, was_begun: bool) -> None:
        self._refusal = _Refusal(error, was_begun)

    async def abort(self) -> None:
        """End the running transaction after TopicsRefused; nothing of it becomes visible, and ``begin`` may follow."""
        if self._refusal is not None and self._refusal.was_begun:
            aiokafka_transactions.end_at_kafka(self._producer, self._place)
        await self._answered(self._producer.abort_transaction())
        for acknowledged, sent in self._in_flight.items():
            is_refused = acknowledged.done() and acknowledged.exception() is not None
            if is_refused and sent.batch.base_sequence >= 0:
                aiokafka_transactions.count_from(self._producer, sent.place, sent.batch.base_sequence)
        self._in_flight.clear()
        self._in_flight_bytes = 0
        self._gathered.clear()
        self._gathered.size_bytes = 0
        self._refusal = None

    def forget_topics(self, prefix: str) -> None:
        """Ask Kafka no more for topics that begin so: a broker that makes topics by itself would make deleted ones again."""
        kept = {topic for topic in self._known_topics if not topic.startswith(prefix)}
        if kept != self._known_topics:
            self._known_topics = kept
            self._producer.client.set_topics(kept)

    async def begin(self) -> None:
        """Open a transaction. Kafka learns of it with its first records or offset."""
        self.moved_s = time.monotonic()
        self._gathered.clear()  # a topic may have got more Kafka partitions
        self._offset_group = None
        await self._answered(self._producer.begin_transaction())

    async def write(self, records: Records | PassedRows, topics: Iterable[str]) -> None:
        """Write the records to each topic. A full batch goes out; the rest waits for more, or for ``flush``."""
        await self._gathered.write(records, topics)
        if self._gathered.size_bytes > self._limit_bytes:
            await self.send_gathered()

    async def _batches_of(self, topic: str) -> list[Gathered]:
        await self.learn_topics((topic,))
        numbers = await self._answered(self._producer.partitions_for(topic))
        return [Gathered(empty_batch(self._codec), [TopicPartition(topic, number)]) for number in sorted(numbers)]

    async def send_gathered(self) -> None:
        """Hand the rest to the producer. Returns before Kafka has acknowledged it: ``commit`` waits for that."""
        for gathered in self._gathered.with_records():
            await self._send(gathered)

    async def _send(self, gathered: Gathered) -> None:
        """Hand gathered records to the producer; waits while too much is in flight."""
        self._gathered.size_bytes -= gathered.records.size_bytes
        body = take_body(gathered.records, self._codec)
        for place in gathered.places:
            batch = RecordBatch(body, time.time_ns() // 1_000_000)
            while self._in_flight and self._in_flight_bytes + batch.size() > self._limit_bytes:
                await self._await_one()
            acknowledged = await self._answered(
                self._producer.send_batch(batch, place.topic, partition=place.partition)
            )
            self._in_flight[acknowledged] = _Sent(place, batch)
            self._in_flight_bytes += batch.size()
            await asyncio.sleep(0)  # the producer sends it while the next is gathered

    async def _await_one(self) -> None:
        done, _ = await asyncio.wait(
            self._in_flight, timeout=_KAFKA_CALL_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
        )
        self._settle(done)

    def _settle(self, done: set["asyncio.Future[object]"], *, still: int = 0) -> None:
        """``still``: so many batches were waited for until none had been acknowledged for too long."""
        for error in filter(None, (acknowledged.exception() for acknowledged in done)):
            raise self._as_ours(error) from error
        if still or not done:
            raise BrokerUnavailable(
                f"Kafka acknowledged none of {still or len(self._in_flight)} batches within {_KAFKA_CALL_TIMEOUT_S:.0f} s"
            )
        self.moved_s = time.monotonic()
        for acknowledged in done:
            self._in_flight_bytes -= self._in_flight.pop(acknowledged).batch.size()

    async def send_offset(self, next_offset: int, *, group: str | None = None, note: str = "") -> None:
        """Make the offset after the transaction's input a part of it, of the writer's own group or of another one. After
        ``send_gathered``: Kafka takes the records meanwhile."""
        group = group or self._group
        if self._offset_group not in (None, group):
            aiokafka_transactions.name_another_group(self._producer)
        self._offset_group = group
        offsets = {self._place: (next_offset, note)}
        await self._answered(self._producer.send_offsets_to_transaction(offsets, group))

    async def commit(self) -> None:
        """Make records and offset visible together, once Kafka has acknowledged every record."""
        await self._acknowledged()
        failpoint("router_after_acknowledged_before_commit")
        await self._answered(self._producer.commit_transaction())

    async def _acknowledged(self) -> None:
        """All batches are. As long as one after the other is acknowledged there is no limit: a transaction may have written to
        hundreds of topics that were just made."""
        await self.send_gathered()
        if not self._in_flight:  # nobody gets a row of it
            return
        waiting = set(self._in_flight)
        while waiting:
            done, waiting = await asyncio.wait(
                waiting, timeout=_KAFKA_CALL_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            self.moved_s = time.monotonic()
        # Together: the error that says most is chosen of all.
        self._settle({each for each in self._in_flight if each.done()}, still=len(waiting))

    async def _answered(self, call: Awaitable[_T]) -> _T:
        """The result of a call, within a time, with its errors as ours."""
        try:
            async with asyncio.timeout(_KAFKA_CALL_TIMEOUT_S):
                return await call
        except TimeoutError as error:
            raise BrokerUnavailable(f"Kafka did not answer within {_KAFKA_CALL_TIMEOUT_S:.0f} s") from error
        except (
            kafka_errors.KafkaError,
            OSError,
            AssertionError,
        ) as error:  # the last: a call that its state does not allow
            raise self._as_ours(error) from error

    def _as_ours(self, error: BaseException) -> HeadwaterError:
        """The error that says most. When aiokafka's sender has ended, or one of several batches was refused, the others fail
        with less: a call that is not allowed any more, a batch outside of a transaction."""
        sender = aiokafka_transactions.sender_task(self._producer)
        ended = [
            task for task in (*self._in_flight, sender) if task is not None and task.done() and not task.cancelled()
        ]
        causes = [error, *filter(None, (_error_of(self._refusal), *(task.exception() for task in ended)))]
        worst = min(map(as_ours, causes), key=lambda ours: isinstance(ours, BrokerUnavailable))
        if isinstance(worst, Fenced):
            return worst
        refused = self._refused_topics(error)
        if not refused:
            return worst
        names, reasons = sorted(refused), "; ".join(sorted(set(refused.values())))
        listed = ", ".join(names[:_TOPICS_NAMED])
        more = f" and {len(names) - _TOPICS_NAMED} more topics" if len(names) > _TOPICS_NAMED else ""
        return TopicsRefused(f"Kafka refuses records of {listed}{more}: {reasons}", frozenset(refused))

    def _refused_topics(self, raised: BaseException) -> dict[str, str]:
        """Topics that are why the transaction cannot be committed, with Kafka's reason; none: it is not they alone."""
        refusing = _error_of(self._refusal)
        refused = unauthorized_topics(raised) | unauthorized_topics(refusing)
        if refusing is not None and not refused:
            return {}
        failed = [
            (sent.place.topic, error)
            for acknowledged, sent in self._in_flight.items()
            if acknowledged.done() and (error := acknowledged.exception()) is not None and error is not refusing
        ]
        refused |= {topic: reason_with_remedy(error) for topic, error in failed if is_of_topic(error)}
        for topic, error in failed:
            is_consequence = topic in refused and isinstance(error, kafka_errors.OutOfOrderSequenceNumber)
            if not is_of_topic(error) and not is_consequence:
                return {}
        return refused


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why aiokafka lets the running transaction only be aborted."""

    error: BaseException
    was_begun: bool
    """Kafka knew of the transaction when that came."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A batch on its way."""

    place: TopicPartition
    batch: RecordBatch


def _error_of(refusal: _Refusal | None) -> BaseException | None:
    return None if refusal is None else refusal.error
