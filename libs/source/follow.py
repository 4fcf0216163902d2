"""The reader's loop, the same for every source: own the partition, resume, read, publish.

    acquire ▶ fence (init_transactions) ▶ checkpoint ▶ open ▶ batches ▶ publish (events + checkpoint, one transaction)

The order of the first three matters: only after older owners are fenced is the newest checkpoint final.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import structlog

from libs.config.connections import KafkaSettings
from libs.errors import Fenced, PipelineHalted, TransientError
from libs.events.batch import BatchIdentity
from libs.events.names import CHECKPOINTS_TOPIC, changes_topic, heartbeat_topic, source_dead_letter_topic
from libs.kafka.clients import TopicSpec, ensure_partitions, ensure_topics
from libs.kafka.topic_id import topic_id
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.source.kept_faults import note_replaced_topic, raise_again
from libs.source.port import ChangeLog, ConfirmsPosition, HasShards, QuarantinesTables, ResumePoint, Source
from libs.source.publisher import Published, Publisher
from libs.source.signal_topic import keep_beginning, signals_topic
from libs.source.status import ReaderStatus
from libs.source.transactional_producer import MAX_RECORD_BYTES
from libs.telemetry import metrics
from libs.types.checkpoint import FencingToken
from libs.types.position import SourcePartition

log = structlog.get_logger()

_FIRST_RETRY_S: Final = 0.5
_LAST_RETRY_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 5.0  # a service exits within 10 s of SIGTERM; half of it for the last Kafka transaction


async def follow(
    source: Source,
    *,
    connector: str,
    kafka: KafkaSettings,
    committer: CheckpointCommitterClient,
    lease_s: float,
    status: ReaderStatus,
    changes_partition: int = 0,
    spill_dir: Path | None = None,
    heartbeat_interval_s: float = 0.0,
    hears_signals: bool = False,
    is_former: Callable[[str], bool] | None = None,
) -> None:
    """Read ``source`` and publish it until cancelled; exactly once, in log order.

    ``changes_partition``: the changes topic's Kafka partition, one for each source partition. ``is_former``: as
    ``keep_beginning`` takes it.

    A TransientError begins again from the last checkpoint, with growing pauses. Every other error ends the loop:

    Raises:
        PipelineHalted, InvalidEvent: a human is needed; the message has the remedy.
        Fenced: another reader took the partition over.
    """
    owner = f"{connector}-{uuid.uuid4()}"
    topics = source_topics(source.partition.source, kafka, changes_partition, has_heartbeats=heartbeat_interval_s > 0)
    await asyncio.to_thread(ensure_topics, kafka, topics)
    if hears_signals:
        await asyncio.to_thread(keep_beginning, kafka, source.partition, is_former=is_former)
    if changes_partition:
        topic = changes_topic(source.partition.source)
        await asyncio.to_thread(ensure_partitions, kafka, topic, changes_partition + 1)

    def publisher(token: FencingToken, on_published: Callable[[Published], None]) -> Publisher:
        return Publisher(
            kafka,
            source.partition,
            fencing_token=token,
            on_published=on_published,
            changes_partition=changes_partition,
            spill_dir=spill_dir,
            heartbeat_interval_s=heartbeat_interval_s,
        )

    retry_s = _FIRST_RETRY_S
    while True:
        began_s = time.monotonic()
        try:
            await _follow_once(source, owner, connector, publisher, committer, lease_s, status, kafka)
        except TransientError as error:
            if time.monotonic() - began_s > _LAST_RETRY_S:
                retry_s = _FIRST_RETRY_S
            log.warning("reading_interrupted", reason=str(error), retry_s=retry_s)
            status.interrupted(str(error), retry_s=retry_s)
            metrics.READER_RECONNECTS.labels(source.partition.source, source.partition.name).inc()
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, _LAST_RETRY_S)


async def _follow_once(
    source: Source,
    owner: str,
    connector: str,
    publisher_of: Callable[[FencingToken, Callable[[Published], None]], Publisher],
    committer: CheckpointCommitterClient,
    lease_s: float,
    status: ReaderStatus,
    kafka: KafkaSettings,
) -> None:
    partition = source.partition
    token = await _acquire(committer, source, owner, lease_s)
    identity = BatchIdentity(
        source=partition.source,
        source_partition=partition.name,
        connector=connector,
        run_id=status.run_id,
        fencing_token=token,
    )
    durable = _Durable()

    def on_published(published: Published) -> None:
        status.published(published)
        durable.advance(published.resume)

    publisher = publisher_of(token, on_published)
    try:
        await publisher.start()
        await publisher.require_no_open_transaction()
        checkpoint = await committer.checkpoint(partition)
        topic = changes_topic(partition.source)
        changes_topic_id = await asyncio.to_thread(topic_id, kafka, topic)
        raise_again(partition.source, checkpoint)
        note_replaced_topic(checkpoint, topic, changes_topic_id)
        status.resumed(checkpoint)
        status.connecting()
        log.info("partition_acquired", fencing_token=token, has_checkpoint=checkpoint is not None)
        async with source.open(checkpoint, identity) as change_log:
            if isinstance(change_log, QuarantinesTables):
                status.quarantined = lambda: change_log.quarantined
            if isinstance(change_log, HasShards):
                status.shards = change_log.shards
            publisher.run(checkpoint.rows_published if checkpoint is not None else 0, changes_topic_id)
            status.connected(checkpoint)
            metrics.READER_CONNECTED.labels(partition.source, partition.name).set(1)

            async def read() -> None:
                async for batch in change_log.batches():
                    await status.while_paused()
                    await publisher.publish(batch)

            try:
                await _first_to_end(
                    read,
                    publisher.failed,
                    lambda: _renew(committer, source, owner, token, lease_s),
                    lambda: _confirm(change_log, durable),
                )
            except PipelineHalted as error:
                await require_lease(committer, partition, owner, token, lease_s, because=error)
                raise
    finally:
        metrics.READER_CONNECTED.labels(partition.source, partition.name).set(0)
        await publisher.stop(_STOP_TIMEOUT_S)
        await _release(committer, source, owner, token)


class _Durable:
    """The newest resume point that is durable."""

    def __init__(self) -> None:
        self.resume: ResumePoint | None = None
        self.has_advanced = asyncio.Event()

    def advance(self, resume: ResumePoint) -> None:
        self.resume = resume
        self.has_advanced.set()


async def _confirm(change_log: ChangeLog, durable: _Durable) -> None:
    """Report the durable position to a source that asks for it; never ends by itself."""
    while True:
        await durable.has_advanced.wait()
        durable.has_advanced.clear()
        if isinstance(change_log, ConfirmsPosition) and durable.resume is not None:
            try:
                await change_log.confirm(durable.resume)
            except TransientError as error:
                log.info("position_not_confirmed", reason=str(error))


async def _acquire(committer: CheckpointCommitterClient, source: Source, owner: str, lease_s: float) -> FencingToken:
    """The lease, as soon as it is free: a killed reader's lease runs out by itself."""
    waits = False
    while True:
        try:
            return await committer.acquire(source.partition, owner, lease_s)
        except Fenced as error:
            if not waits:
                log.info("lease_awaited", reason=str(error))
                waits = True
            await asyncio.sleep(min(1.0, lease_s / 10))


async def _renew(
    committer: CheckpointCommitterClient, source: Source, owner: str, token: FencingToken, lease_s: float
) -> None:
    """Renew the lease three times within its length. Raises Fenced when it is another's.

    An unreachable committer is no reason to stop: Kafka fences a reader that was taken over, lease or not.
    """
    while True:
        await asyncio.sleep(lease_s / 3)
        try:
            renewed = await committer.acquire(source.partition, owner, lease_s)
        except TransientError as error:
            log.warning("lease_not_renewed", reason=str(error))
            continue
        if renewed != token:
            raise Fenced(f"the lease of {source.partition} was given to another reader meanwhile")


async def require_lease(
    committer: CheckpointCommitterClient,
    partition: SourcePartition,
    owner: str,
    token: FencingToken,
    lease_s: float,
    *,
    because: PipelineHalted,
) -> None:
    """Return if the lease is still this reader's, or nobody can say; only then does the halt need a person.

    A reader that stood still for longer than its lease finds its successor at work: MySQL, for example, ends its log since
    another asked for it under the same server id.

    Raises Fenced: the lease is another's. The reader ends, starts again, and waits for its turn.
    """
    try:
        renewed = await committer.acquire(partition, owner, lease_s)
    except TransientError:
        return
    if renewed != token:
        raise Fenced(f"the lease of {partition} was given to another reader meanwhile") from because


async def _release(committer: CheckpointCommitterClient, source: Source, owner: str, token: FencingToken) -> None:
    try:
        async with asyncio.timeout(2.0):
            await committer.release(source.partition, owner, token)
    except (TransientError, Fenced, TimeoutError) as error:
        log.info("lease_not_released", reason=str(error) or "no answer")


async def _first_to_end(*works: Callable[[], Awaitable[None]]) -> None:
    """Run all; the first that ends or raises cancels the others, and its error is raised."""
    tasks = [asyncio.ensure_future(work()) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def source_topics(
    source: str, kafka: KafkaSettings, changes_partition: int, *, has_heartbeats: bool
) -> list[TopicSpec]:
    """The topics that a reader writes and reads; it makes those that are not there."""
    heartbeats = TopicSpec(name=heartbeat_topic(source), replication_factor=kafka.replication_factor, config={})
    return [
        *((heartbeats,) if has_heartbeats else ()),
        TopicSpec(
            name=changes_topic(source),
            kafka_partitions=changes_partition + 1,
            replication_factor=kafka.replication_factor,
            config={"max.message.bytes": str(MAX_RECORD_BYTES)},
        ),
        TopicSpec(
            name=source_dead_letter_topic(source),
            replication_factor=kafka.replication_factor,
            config={"max.message.bytes": str(MAX_RECORD_BYTES), "retention.ms": "-1"},  # they stand nowhere else
        ),
        TopicSpec(
            name=CHECKPOINTS_TOPIC,
            replication_factor=kafka.replication_factor,
            # A checkpoint names each table of a copy: of 50,000 it is some megabytes.
            config={"cleanup.policy": "compact", "max.message.bytes": str(MAX_RECORD_BYTES)},
        ),
        signals_topic(kafka.replication_factor),
    ]


__all__ = ["Published", "follow", "source_topics"]
