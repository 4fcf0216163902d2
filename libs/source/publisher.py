"""Publishes batches and their checkpoint in one Kafka transaction.

Either all of a transaction's batches and the checkpoint that covers them become visible, or none: a reader killed at any
moment resumes exactly where its last visible event ended. The transactional id is the source partition's, so a newer
owner's first act (``init_transactions``) aborts an older one's open transaction and fences it for good.

librdkafka's calls block, so one thread owns the producer. It gathers waiting batches, up to a bound, into one transaction: at
low rates each source transaction is published at once, at high rates the cost of a commit (12 to 27 ms) is shared. Small
batches that waited become one record: their number would cost the router more than their rows.
A Kafka transaction never ends inside a source transaction. One of several batches is kept until it is read to its end (beyond
some megabytes on disk): Kafka's is then open for as long as its writing takes, not its reading, and nothing of it is
written at all when the source breaks off.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable, HeadwaterError
from libs.events.checkpoint_codec import checkpoint_key, encode_checkpoint
from libs.events.heartbeat import heartbeat
from libs.events.names import CHECKPOINTS_TOPIC, changes_topic, heartbeat_topic, source_dead_letter_topic
from libs.kafka.clients import client_config
from libs.kafka.tail import fetch_end_offsets
from libs.source.kept_faults import kept_faults
from libs.source.port import ReadBatch, ResumePoint
from libs.source.publish_queue import PublishQueue
from libs.source.spill import Spool
from libs.source.transactional_producer import ABORT_TIMEOUT_S, TransactionalProducer
from libs.telemetry import metrics
from libs.types.checkpoint import Checkpoint, FencingToken
from libs.types.position import SourcePartition

log = structlog.get_logger()

_MARKERS_WITHIN_S: Final = 15.0
"""How long the ends of fenced transactions may take to be seen."""
_LOOK_S: Final = 0.032
_MAX_TRANSACTION_BATCHES: Final = 16
_MAX_TRANSACTION_AGE_S: Final = 0.2
"""When batches keep coming, a transaction ends at the next possible place after so long: it bounds latency."""
_JOINED_BYTES: Final = 256 << 10
"""Up to so many bytes of batches become one record: a message costs Faust what a hundred rows do."""


@dataclass(frozen=True, slots=True)
class Published:
    """The published content of a finished Kafka transaction."""

    resume: ResumePoint
    rows_published: int
    """Row events of this source partition since it was first read."""


@dataclass(frozen=True, slots=True)
class Publication:
    """The place of a source partition's batches, and the owner that writes them. It is the same for all of them."""

    partition: SourcePartition
    fencing_token: FencingToken
    changes_partition: int = 0
    """Kafka's partition of the changes topic."""
    changes_topic_id: str = ""
    """Kafka's id of that topic, when the publisher began."""
    spill_dir: Path | None = None
    """For source transactions that do not fit into memory; None: the system's temporary folder."""
    heartbeat_interval_s: float = 0.0
    """How often Debezium's heartbeat record goes beside a checkpoint; 0: never."""

    @property
    def changes_topic(self) -> str:
        """The topic of the batches."""
        return changes_topic(self.partition.source)

    def checkpoint(self, resume: ResumePoint, rows_published: int) -> Checkpoint:
        """The checkpoint after batches up to ``resume``, as of now."""
        return Checkpoint(
            partition=self.partition,
            position=resume.position,
            order=resume.order,
            fencing_token=self.fencing_token,
            committed_at_us=resume.committed_at_us,
            published_at_us=time.time_ns() // 1_000,
            rows_published=rows_published,
            snapshot=resume.snapshot,
            incremental=resume.incremental,
            changes_topic_id=self.changes_topic_id,
            faults=kept_faults(self.partition.source),
        )


@dataclass(frozen=True, slots=True)
class _Gathered:
    """A whole source transaction, or several."""

    payloads: Iterable[bytes]
    """To be gone through once."""
    dead_letters: Sequence[bytes]
    rows: int
    resume: ResumePoint


def _drained(spool: Spool) -> Iterator[bytes]:
    yield from spool.items()
    spool.close()


class Publisher:
    """Publishes a source partition's batches by a thread of its own.

    ``start`` fences every older owner; after it the newest checkpoint is final and may be read. ``publish`` hands a batch
    over and waits only while the queue is full.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        partition: SourcePartition,
        *,
        fencing_token: FencingToken,
        on_published: Callable[[Published], None],
        changes_partition: int = 0,
        spill_dir: Path | None = None,
        heartbeat_interval_s: float = 0.0,
    ) -> None:
        """See ``Publication``."""
        self._kafka = settings
        self._publication = Publication(
            partition,
            fencing_token,
            changes_partition,
            spill_dir=spill_dir,
            heartbeat_interval_s=heartbeat_interval_s,
        )
        self._on_published = on_published
        self._queue = PublishQueue(partition)
        self._producer = TransactionalProducer(settings, partition)
        self._thread: threading.Thread | None = None
        self._failure: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Fence older owners and abort their open transactions.

        Raises:
            BrokerUnavailable: try again.
            Fenced: a newer owner started meanwhile.
        """
        await asyncio.to_thread(self._producer.fence_older)

    async def require_no_open_transaction(self) -> None:
        """Return when no transaction is open in this source partition's part of the changes topic. Call it after ``start``.

        Nobody else writes there, and ``start`` ended the older owners' transactions. One that stays open is one whose end Kafka
        lost when a broker was killed (KAFKA-20734): no router reads past it, however long it waits.

        Raises:
            BrokerUnavailable: one stays open, the message has the command that ends it; or Kafka does not answer. Try again.
        """
        topic, kafka_partition = self._publication.changes_topic, self._publication.changes_partition
        admin = AdminClient(client_config(self._kafka))
        deadline_s = time.monotonic() + _MARKERS_WITHIN_S
        numbers = (kafka_partition,)
        while True:
            stable, end = await asyncio.to_thread(
                lambda: tuple(
                    fetch_end_offsets(admin, topic, numbers, isolation)[kafka_partition]
                    for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
                )
            )
            if stable == end:
                return
            if time.monotonic() >= deadline_s:
                break
            await asyncio.sleep(_LOOK_S)
        raise BrokerUnavailable(
            f"a transaction of no living reader holds back {topic}, Kafka partition {kafka_partition}, from "
            f"offset {stable} to {end}: Kafka lost its end when a broker was killed. End it: kafka-transactions.sh "
            f"--bootstrap-server {self._kafka.bootstrap_servers} abort --topic {topic} "
            f"--partition {kafka_partition} --start-offset {stable}; the reader then goes on by itself"
        )

    def run(self, rows_published: int, changes_topic_id: str = "") -> None:
        """Begin to publish; ``rows_published`` is the count that the newest checkpoint holds, ``changes_topic_id`` Kafka's id
        of the topic now."""
        loop = asyncio.get_running_loop()
        self._queue.open()
        self._failure = loop.create_future()
        publication = replace(self._publication, changes_topic_id=changes_topic_id)
        transactions = _Transactions(publication, self._queue, self._producer, rows_published)
        partition = publication.partition
        metrics.PUBLISH_TRANSACTION_AGE.labels(partition.source, partition.name).set_function(self._producer.age_s)
        self._thread = threading.Thread(target=self._work, args=(loop, transactions), name="publisher", daemon=True)
        self._thread.start()

    async def publish(self, batch: ReadBatch) -> None:
        """Hand ``batch`` over; it becomes visible with the next transaction.

        Raises:
            BrokerUnavailable, Fenced, PipelineHalted: an earlier batch could not be published; nothing later will be.
        """
        self._raise_failure()
        while not await self._queue.put(batch):
            self._raise_failure()

    async def failed(self) -> None:
        """Wait until publishing fails, and raise why. Never returns otherwise."""
        assert self._failure is not None
        await asyncio.shield(self._failure)

    async def stop(self, timeout_s: float) -> None:
        """Finish transactions that end at a resume point within ``timeout_s``, and abort the rest, within seconds more."""
        thread = self._thread
        if thread is None:
            return
        self._thread = None
        await asyncio.to_thread(self._end, thread, timeout_s)
        if self._failure is not None and self._failure.done():
            self._failure.exception()  # retrieved: it was raised by publish() or failed() already

    def _end(self, thread: threading.Thread, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        self._queue.end(thread, deadline_s)
        thread.join(max(0.0, deadline_s - time.monotonic()))
        self._producer.give_up()
        thread.join(ABORT_TIMEOUT_S)

    def _raise_failure(self) -> None:
        if self._failure is not None and self._failure.done():
            self._failure.result()

    def _fail(self, failure: HeadwaterError) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(failure)
        self._queue.wake()

    def _work(self, loop: asyncio.AbstractEventLoop, transactions: "_Transactions") -> None:
        """The producer's thread."""
        try:
            while (published := transactions.publish_next()) is not None:
                loop.call_soon_threadsafe(self._on_published, published)
        except BaseException as error:
            failure = error if isinstance(error, HeadwaterError) else BrokerUnavailable(f"publishing failed: {error!r}")
            loop.call_soon_threadsafe(self._fail, failure)
            self._producer.abort()


class _Transactions:
    """Cuts queued batches into Kafka transactions. It belongs to the producer's thread."""

    def __init__(
        self, publication: Publication, batches: PublishQueue, producer: TransactionalProducer, rows_published: int
    ) -> None:
        self._publication = publication
        self._queue = batches
        self._producer = producer
        self._rows_published = rows_published
        """As of the last commit."""
        self._left: ReadBatch | None = None
        """Taken from the queue, for the next Kafka transaction."""
        self._must_stop = False
        """The queue has ended."""
        self._joined: list[bytes] = []
        """Small batches of the running transaction, which will be one record."""
        self._joined_bytes = 0
        self._heartbeat_due_s = 0.0

    def publish_next(self) -> Published | None:
        """One Kafka transaction; waits for its first batch. None: asked to stop.

        Raises:
            BrokerUnavailable, Fenced, PipelineHalted: nothing of it became visible.
        """
        first = None if self._must_stop else self._next()
        if first is None:
            return None
        began_s = time.monotonic()
        gathered = self._gathered(first)
        if gathered is None:
            return None
        self._producer.begin()
        rows = batches = 0
        while True:
            for payload in gathered.payloads:
                batches += self._join(payload)
            for letter in gathered.dead_letters:
                self._producer.produce(source_dead_letter_topic(self._publication.partition.source), letter)
            rows += gathered.rows
            if self._is_large_enough(batches, began_s):
                break
            try:
                batch = self._queue.take_waiting()
            except queue.Empty:
                break
            if batch is None:
                self._must_stop = True
                break
            if batch.resume is None:
                self._left = batch  # a source transaction of many batches: Kafka's is not kept open until it is read
                break
            self._queue.count_taken(batch)
            gathered = _Gathered((batch.payload,), batch.dead_letters, batch.rows, batch.resume)
        self._produce_joined()
        self._commit(gathered.resume, rows)
        partition = self._publication.partition
        metrics.PUBLISH_TRANSACTION_SECONDS.labels(partition.source, partition.name).observe(time.monotonic() - began_s)
        return Published(resume=gathered.resume, rows_published=self._rows_published)

    def _next(self) -> ReadBatch | None:
        left, self._left = self._left, None
        return left or self._queue.take()

    def _join(self, payload: bytes) -> int:
        """Produce ``payload``, or keep it for those that follow; how many records were produced."""
        produced = self._produce_joined() if self._joined_bytes + len(payload) > _JOINED_BYTES else 0
        self._joined.append(payload)
        self._joined_bytes += len(payload)
        return produced + (self._produce_joined() if self._joined_bytes >= _JOINED_BYTES else 0)

    def _produce_joined(self) -> int:
        """Serialised messages that stand one after another are one message."""
        record = b"".join(self._joined)  # of a single one it makes no copy
        self._joined, self._joined_bytes = [], 0
        publication = self._publication
        self._producer.produce(publication.changes_topic, record, kafka_partition=publication.changes_partition)
        return 1 if record else 0

    def _gathered(self, first: ReadBatch) -> _Gathered | None:
        """``first`` and the rest of its source transaction, once all of it was read; None: asked to stop before."""
        self._queue.count_taken(first)
        if first.resume is not None:
            return _Gathered((first.payload,), first.dead_letters, first.rows, first.resume)
        spool = Spool(self._publication.spill_dir)
        spool.append(first.payload)
        rows, dead_letters = first.rows, [*first.dead_letters]
        while (batch := self._queue.take()) is not None:
            self._queue.count_taken(batch)
            spool.append(batch.payload)
            rows += batch.rows
            dead_letters += batch.dead_letters
            if batch.resume is not None:
                return _Gathered(_drained(spool), dead_letters, rows, batch.resume)
        spool.close()
        return None

    def _is_large_enough(self, batches: int, began_s: float) -> bool:
        return batches >= _MAX_TRANSACTION_BATCHES or time.monotonic() - began_s >= _MAX_TRANSACTION_AGE_S

    def _commit(self, resume: ResumePoint, rows: int) -> None:
        publication, partition = self._publication, self._publication.partition
        if publication.heartbeat_interval_s and time.monotonic() >= self._heartbeat_due_s:
            self._heartbeat_due_s = time.monotonic() + publication.heartbeat_interval_s
            key, value = heartbeat(partition.source, time.time_ns() // 1_000_000)
            self._producer.produce(heartbeat_topic(partition.source), value, key=key)
        checkpoint = publication.checkpoint(resume, self._rows_published + rows)
        self._producer.produce(CHECKPOINTS_TOPIC, encode_checkpoint(checkpoint), key=checkpoint_key(partition))
        self._producer.commit()
        self._rows_published += rows
