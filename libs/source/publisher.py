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
import collections
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable, Fenced, HeadwaterError, PipelineHalted
from libs.events.checkpoint_codec import checkpoint_key, encode_checkpoint
from libs.events.heartbeat import heartbeat
from libs.events.names import CHECKPOINTS_TOPIC, changes_topic, heartbeat_topic, source_dead_letter_topic
from libs.failpoints import failpoint
from libs.kafka.clients import client_config
from libs.kafka.tail import fetch_end_offsets
from libs.source.kept_faults import kept_faults
from libs.source.port import ReadBatch, ResumePoint
from libs.source.spill import Spool
from libs.telemetry import metrics
from libs.types.checkpoint import Checkpoint, FencingToken
from libs.types.position import SourcePartition

log = structlog.get_logger()

MAX_RECORD_BYTES: Final = 64 << 20
"""Largest ChangeBatch: a single row may have LONGTEXT columns of many megabytes."""
_TRANSACTION_TIMEOUT_S: Final = 300.0
"""How long Kafka keeps a transaction open without its end, 15 min at most: a source transaction must be written within it, at
50 MB/s and more. One that a killed reader leaves blocks ``read_committed`` for so long, or until the next reader starts."""
_ABORT_TIMEOUT_S: Final = 2.0
_RETRY_S: Final = 60.0
_MARKERS_WITHIN_S: Final = 15.0
"""How long the ends of fenced transactions may take to be seen."""
_KAFKA_CALL_TIMEOUT_S: Final = 30.0  # below the transaction's own timeout, or it would be aborted under the call
_MAX_TRANSACTION_BATCHES: Final = 16
_MAX_TRANSACTION_AGE_S: Final = 0.2
"""When batches keep coming, a transaction ends at the next possible place after so long: it bounds latency."""
_JOINED_BYTES: Final = 256 << 10
"""Up to so many bytes of batches become one record: a message costs Faust what a hundred rows do."""
_FIRST_PAUSE_S: Final = 0.001
_LAST_PAUSE_S: Final = 0.032
"""Pause between two looks at the broker's acknowledgements; it grows with the wait."""
_QUEUED_BATCHES: Final = 24
_QUEUED_BYTES: Final = 4 << 20
"""Batches and bytes between decoder and producer; one batch larger than that still passes, alone. As much as is decoded while
a transaction is committed: more would only be memory."""
_UNACKNOWLEDGED_BYTES: Final = 4 << 20
"""Limit of the producer's unacknowledged records, one aside: more would only be memory."""
_UNACKNOWLEDGED_RECORDS: Final = 5
"""… and how many records. librdkafka has no more than 5 in flight to a Kafka partition (RD_KAFKA_IDEMP_MAX_INFLIGHT), and while
another waits for them its thread looks again and again, without a pause: at a slow broker, most of a reader's CPU."""


@dataclass(frozen=True, slots=True)
class Published:
    """The published content of a finished Kafka transaction."""

    resume: ResumePoint
    rows_published: int
    """Row events of this source partition since it was first read."""


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
    """Owns the transactional producer of one source partition.

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
        """``spill_dir``: for source transactions that do not fit into memory; None: the system's temporary folder.

        ``heartbeat_interval_s``: how often Debezium's heartbeat record goes beside a checkpoint; 0: never.
        """
        self._spill_dir = spill_dir
        self._heartbeat_interval_s = heartbeat_interval_s
        self._heartbeat_due_s = 0.0
        self._left: ReadBatch | None = None
        """Taken from the queue, for the next Kafka transaction."""
        self._partition = partition
        self._kafka = settings
        self._fencing_token = fencing_token
        self._on_published = on_published
        self._topic = changes_topic(partition.source)
        self._changes_partition = changes_partition
        self._changes_topic_id = ""
        self._dead_letter_topic = source_dead_letter_topic(partition.source)
        self._rows_published = 0
        self._transaction_began_s: float | None = None
        self._delivery_error: KafkaError | None = None
        self._queue: queue.Queue[ReadBatch | None] = queue.Queue(_QUEUED_BATCHES)
        labels = (partition.source, partition.name)
        metrics.PUBLISH_QUEUE_BATCHES_CAPACITY.labels(*labels).set(_QUEUED_BATCHES)
        metrics.PUBLISH_QUEUE_BYTES_CAPACITY.labels(*labels).set(_QUEUED_BYTES)
        self._queued_bytes = 0
        self._unacknowledged: collections.deque[int] = collections.deque()
        """Bytes of each record that the broker may not have acknowledged yet, in the order of sending."""
        self._joined: list[bytes] = []
        """Small batches of the running transaction, which will be one record."""
        self._joined_bytes = 0
        self._counting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._taken = asyncio.Event()
        self._is_awaited = False
        """``publish`` waits for room: the thread says when it has taken something."""
        self._thread: threading.Thread | None = None
        self._failure: asyncio.Future[None] | None = None
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

    async def start(self) -> None:
        """Fence older owners and abort their open transactions.

        Raises:
            BrokerUnavailable: try again.
            Fenced: a newer owner started meanwhile.
        """
        await asyncio.to_thread(_call, self._producer.init_transactions, _KAFKA_CALL_TIMEOUT_S)

    async def require_no_open_transaction(self) -> None:
        """Return when no transaction is open in this source partition's part of the changes topic. Call it after ``start``.

        Nobody else writes there, and ``start`` ended the older owners' transactions. One that stays open is one whose end Kafka
        lost when a broker was killed (KAFKA-20734): no router reads past it, however long it waits.

        Raises:
            BrokerUnavailable: one stays open, the message has the command that ends it; or Kafka does not answer. Try again.
        """
        admin = AdminClient(client_config(self._kafka))
        deadline_s = time.monotonic() + _MARKERS_WITHIN_S
        numbers = (self._changes_partition,)
        while True:
            stable, end = await asyncio.to_thread(
                lambda: tuple(
                    fetch_end_offsets(admin, self._topic, numbers, isolation)[self._changes_partition]
                    for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
                )
            )
            if stable == end:
                return
            if time.monotonic() >= deadline_s:
                break
            await asyncio.sleep(_LAST_PAUSE_S)
        raise BrokerUnavailable(
            f"a transaction of no living reader holds back {self._topic}, Kafka partition {self._changes_partition}, from "
            f"offset {stable} to {end}: Kafka lost its end when a broker was killed. End it: kafka-transactions.sh "
            f"--bootstrap-server {self._kafka.bootstrap_servers} abort --topic {self._topic} "
            f"--partition {self._changes_partition} --start-offset {stable}; the reader then goes on by itself"
        )

    def run(self, rows_published: int, changes_topic_id: str = "") -> None:
        """Begin to publish; ``rows_published`` is the count that the newest checkpoint holds, ``changes_topic_id`` Kafka's id
        of the topic now."""
        self._rows_published = rows_published
        self._changes_topic_id = changes_topic_id
        loop = asyncio.get_running_loop()
        self._loop, self._failure = loop, loop.create_future()
        age = metrics.PUBLISH_TRANSACTION_AGE.labels(self._partition.source, self._partition.name)
        age.set_function(self._transaction_age_s)
        self._thread = threading.Thread(target=self._work, args=(loop,), name="publisher", daemon=True)
        self._thread.start()

    async def publish(self, batch: ReadBatch) -> None:
        """Hand ``batch`` over; it becomes visible with the next transaction.

        Raises:
            BrokerUnavailable, Fenced, PipelineHalted: an earlier batch could not be published; nothing later will be.
        """
        self._raise_failure()
        while not self._take_in(batch):
            self._is_awaited = True
            if self._take_in(batch):  # once more: the thread may have taken the last one right before
                return
            await self._taken.wait()
            self._taken.clear()
            self._raise_failure()

    def _take_in(self, batch: ReadBatch) -> bool:
        """Put ``batch`` into the queue; False: there is no room."""
        if self._queued_bytes and self._queued_bytes + len(batch.payload) > _QUEUED_BYTES:
            return False
        try:
            self._queue.put_nowait(batch)
        except queue.Full:
            return False
        self._count_queued(len(batch.payload))
        return True

    def _count_queued(self, change_bytes: int) -> None:
        with self._counting:  # += from two threads
            self._queued_bytes += change_bytes
        if change_bytes < 0 and self._is_awaited and self._loop is not None:
            self._is_awaited = False
            self._loop.call_soon_threadsafe(self._taken.set)
        labels = (self._partition.source, self._partition.name)
        metrics.PUBLISH_QUEUE_BYTES.labels(*labels).set(self._queued_bytes)
        metrics.PUBLISH_QUEUE_BATCHES.labels(*labels).set(self._queue.qsize())

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
        deadline = time.monotonic() + timeout_s
        while thread.is_alive() and time.monotonic() < deadline:
            try:
                self._queue.put(None, timeout=0.1)
            except queue.Full:
                continue
            break
        thread.join(max(0.0, deadline - time.monotonic()))
        self._is_given_up.set()
        thread.join(_ABORT_TIMEOUT_S)

    def _raise_failure(self) -> None:
        if self._failure is not None and self._failure.done():
            self._failure.result()

    # --- the producer's thread ---------------------------------------------------------------------------------------

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while (batch := self._next()) is not None:
                if not self._publish_transaction(batch, loop):
                    return
        except BaseException as error:
            failure = error if isinstance(error, HeadwaterError) else BrokerUnavailable(f"publishing failed: {error!r}")
            loop.call_soon_threadsafe(self._fail, failure)
            # Left open it would hold back everybody's checkpoints after it, and this source's changes, for minutes.
            with suppress(KafkaException):  # none is open, or Kafka is away or has fenced this producer
                self._producer.abort_transaction(_ABORT_TIMEOUT_S)
            self._transaction_began_s = None

    def _transaction_age_s(self) -> float:
        """Of the open one, for a scrape meanwhile; 0: there is none."""
        began_s = self._transaction_began_s
        return 0.0 if began_s is None else time.monotonic() - began_s

    def _next(self) -> ReadBatch | None:
        left, self._left = self._left, None
        return left or self._queue.get()

    def _fail(self, failure: HeadwaterError) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(failure)
        self._taken.set()

    def _publish_transaction(self, first: ReadBatch, loop: asyncio.AbstractEventLoop) -> bool:
        """One Kafka transaction that begins with ``first``. False: asked to stop."""
        began_s = time.monotonic()
        gathered = self._gathered(first)
        if gathered is None:
            return False
        _call(self._producer.begin_transaction)
        self._transaction_began_s = time.monotonic()
        rows = batches = 0
        must_stop = False
        while True:
            for payload in gathered.payloads:
                batches += self._join(payload)
            for letter in gathered.dead_letters:
                self._produce(self._dead_letter_topic, letter)
            rows += gathered.rows
            if self._is_large_enough(batches, began_s):
                break
            try:
                batch = self._queue.get_nowait()
            except queue.Empty:
                break
            if batch is None:
                must_stop = True
                break
            if batch.resume is None:
                self._left = batch  # a source transaction of many batches: Kafka's is not kept open until it is read
                break
            self._count_queued(-len(batch.payload))
            gathered = _Gathered((batch.payload,), batch.dead_letters, batch.rows, batch.resume)
        self._produce_joined()
        self._commit(gathered.resume, rows)
        self._transaction_began_s = None
        metrics.PUBLISH_TRANSACTION_SECONDS.labels(self._partition.source, self._partition.name).observe(
            time.monotonic() - began_s
        )
        published = Published(resume=gathered.resume, rows_published=self._rows_published)
        loop.call_soon_threadsafe(self._on_published, published)
        return not must_stop

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
        self._produce(self._topic, record, kafka_partition=self._changes_partition)
        return 1 if record else 0

    def _gathered(self, first: ReadBatch) -> "_Gathered | None":
        """``first`` and the rest of its source transaction, once all of it was read; None: asked to stop before."""
        self._count_queued(-len(first.payload))
        if first.resume is not None:
            return _Gathered((first.payload,), first.dead_letters, first.rows, first.resume)
        spool = Spool(self._spill_dir)
        spool.append(first.payload)
        rows, dead_letters = first.rows, [*first.dead_letters]
        while (batch := self._queue.get()) is not None:
            self._count_queued(-len(batch.payload))
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
        checkpoint = Checkpoint(
            partition=self._partition,
            position=resume.position,
            order=resume.order,
            fencing_token=self._fencing_token,
            committed_at_us=resume.committed_at_us,
            published_at_us=time.time_ns() // 1_000,
            rows_published=self._rows_published + rows,
            snapshot=resume.snapshot,
            incremental=resume.incremental,
            changes_topic_id=self._changes_topic_id,
            faults=kept_faults(self._partition.source),
        )
        if self._heartbeat_interval_s and time.monotonic() >= self._heartbeat_due_s:
            self._heartbeat_due_s = time.monotonic() + self._heartbeat_interval_s
            key, value = heartbeat(self._partition.source, time.time_ns() // 1_000_000)
            self._produce(heartbeat_topic(self._partition.source), value, key=key)
        self._produce(CHECKPOINTS_TOPIC, encode_checkpoint(checkpoint), key=checkpoint_key(self._partition))
        failpoint("reader_after_produce_before_commit")
        _call(self._producer.commit_transaction, _KAFKA_CALL_TIMEOUT_S)
        if self._delivery_error is not None:
            raise BrokerUnavailable(f"Kafka refused a record: {self._delivery_error.str()}")
        failpoint("reader_after_commit")
        self._rows_published += rows

    def _produce(self, topic: str, value: bytes, *, key: bytes | None = None, kafka_partition: int = -1) -> None:
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
