"""The publisher on a real Kafka: the records that become visible, and when."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client import REGISTRY

from libs.config.connections import KafkaSettings
from libs.errors import DiskFull, TransientError
from libs.events.names import CHECKPOINTS_TOPIC, changes_topic, heartbeat_topic, source_dead_letter_topic
from libs.kafka.clients import TopicSpec, ensure_topics
from libs.kafka.tail import fetch_end_offsets
from libs.source.follow import source_topics
from libs.source.port import ReadBatch, ResumePoint
from libs.source.publisher import Published, Publisher
from libs.source.transactional_producer import MAX_RECORD_BYTES, TransactionalProducer
from libs.types.checkpoint import FencingToken
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition

PUBLISHED_WITHIN_S = 30.0


class Rig:
    """One publisher, and its visible records."""

    def __init__(self, bootstrap_servers: str, source: str, spill_dir: Path) -> None:
        self.source = source
        self.bootstrap_servers = bootstrap_servers
        self._kafka = KafkaSettings(bootstrap_servers=bootstrap_servers)
        topics = (changes_topic(source), CHECKPOINTS_TOPIC, heartbeat_topic(source), source_dead_letter_topic(source))
        ensure_topics(self._kafka, [TopicSpec(name=name) for name in topics])
        self.published: asyncio.Queue[Published] = asyncio.Queue()
        self.publisher = Publisher(
            self._kafka,
            SourcePartition(source=source, name="0"),
            fencing_token=FencingToken(1),
            on_published=self.published.put_nowait,
            spill_dir=spill_dir,
            heartbeat_interval_s=0.001,
        )

    def visible(self, topic: str) -> list[bytes]:
        """Values of the committed records, in order."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._kafka.bootstrap_servers,
                "group.id": "test",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes] = []
        try:
            while (message := consumer.poll(10.0)) is not None and message.error() is None:
                values.append(message.value() or b"")
            return values
        finally:
            consumer.close()

    async def has_no_open_transaction(self) -> None:
        """Returns when all that was written is committed or aborted."""
        topics = (changes_topic(self.source), CHECKPOINTS_TOPIC)
        deadline_s = time.monotonic() + PUBLISHED_WITHIN_S
        while await asyncio.to_thread(lambda: [topic for topic in topics if self._is_held_back(topic)]):
            assert time.monotonic() < deadline_s

    def _is_held_back(self, topic: str) -> bool:
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap_servers})
        numbers = range(len(admin.list_topics(topic, timeout=120).topics[topic].partitions))
        committed = fetch_end_offsets(admin, topic, numbers, IsolationLevel.READ_COMMITTED)
        return committed != fetch_end_offsets(admin, topic, numbers)


@pytest.fixture
async def rig(bootstrap_servers: str, unique_name: Callable[[str], str], tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(bootstrap_servers, unique_name("source"), tmp_path / "spill")
    await rig.publisher.start()
    rig.publisher.run(0)
    yield rig
    await rig.publisher.stop(5.0)


def batch(payload: bytes, *, position: bytes | None = None) -> ReadBatch:
    """A batch of one row; ``position``: the source transaction ends with it."""
    resume = ResumePoint(
        position=SourcePosition(source_kind="test", token=position or b""),
        order=EventOrder(epoch=0, rank=1, tx_ordinal=1),
        committed_at_us=1,
    )
    return ReadBatch(payload=payload, rows=1, resume=resume if position is not None else None)


async def test_a_transaction_larger_than_memory_becomes_visible_as_one(rig: Rig, tmp_path: Path) -> None:
    """Its parts lie on disk until its end was read, then stand in order between the batches before and after."""
    (tmp_path / "spill").mkdir()
    parts = [number.to_bytes(1, "big") * 1_000_000 for number in range(40)]
    await rig.publisher.publish(batch(b"before", position=b"1"))
    await asyncio.wait_for(rig.published.get(), PUBLISHED_WITHIN_S)
    for part in parts:
        await rig.publisher.publish(batch(part))
    before_its_end = await asyncio.to_thread(rig.visible, changes_topic(rig.source))

    await rig.publisher.publish(batch(b"end", position=b"2"))
    published = await asyncio.wait_for(rig.published.get(), PUBLISHED_WITHIN_S)
    await rig.publisher.publish(batch(b"after", position=b"3"))
    await asyncio.wait_for(rig.published.get(), PUBLISHED_WITHIN_S)

    assert before_its_end == [b"before"]
    assert published.resume.position.token == b"2"
    assert published.rows_published == 42
    assert await asyncio.to_thread(rig.visible, changes_topic(rig.source)) == [b"before", *parts, b"end", b"after"]


class WatchedProducer(Producer):
    """A producer that notes how many records it ever held at once."""

    most_held = 0

    def produce(self, *arguments: Any, **options: Any) -> None:
        super().produce(*arguments, **options)
        WatchedProducer.most_held = max(WatchedProducer.most_held, min(self._held() for _ in range(5)))

    def _held(self) -> int:
        """Its length counts a report that nobody read beside its record: such a surplus is gone at the next look."""
        self.poll(0)
        return len(self)


async def test_no_record_waits_for_others_in_the_producer(
    bootstrap_servers: str, unique_name: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka has five in flight to a Kafka partition, and its thread never rests while a sixth waits."""
    monkeypatch.setattr("libs.source.transactional_producer.Producer", WatchedProducer)
    rig = Rig(bootstrap_servers, unique_name("source"), tmp_path)
    await rig.publisher.start()
    rig.publisher.run(0)
    parts = [number.to_bytes(2, "big") * size for size in (150_000, 500_000) for number in range(40)]
    for part in parts:
        await rig.publisher.publish(batch(part))
    await rig.publisher.publish(batch(b"end", position=b"1"))
    await asyncio.wait_for(rig.published.get(), PUBLISHED_WITHIN_S)
    await rig.publisher.stop(20.0)

    assert WatchedProducer.most_held == 5
    assert await asyncio.to_thread(rig.visible, changes_topic(rig.source)) == [*parts, b"end"]


async def test_small_batches_that_wait_become_one_record(
    bootstrap_servers: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Their bytes, one after the other, are one ChangeBatch; the checkpoint is that of the last."""
    rig = Rig(bootstrap_servers, unique_name("source"), tmp_path)
    await rig.publisher.start()
    large = b"l" * 300_000
    payloads = (b"one", b"two", large, b"", b"three", b"four")
    for number, payload in enumerate(payloads):
        await rig.publisher.publish(batch(payload, position=b"%d" % number))

    rig.publisher.run(0)
    published = await asyncio.wait_for(rig.published.get(), PUBLISHED_WITHIN_S)
    await rig.publisher.stop(5.0)

    assert (published.resume.position.token, published.rows_published) == (b"5", 6)
    visible = await asyncio.to_thread(rig.visible, changes_topic(rig.source))
    assert visible == [b"onetwo", large, b"threefour"]


async def test_a_full_disk_is_named_and_nothing_is_published(rig: Rig) -> None:
    """The folder of this rig was never made: no file can be written there."""
    with pytest.raises(DiskFull, match=r"spill.*spill_dir"):
        for _ in range(40):
            await rig.publisher.publish(batch(b"x" * 1_000_000))
        await rig.publisher.failed()

    assert await asyncio.to_thread(rig.visible, changes_topic(rig.source)) == []


async def test_a_transaction_that_fails_is_ended_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left to its time-out, it would hide the changes and everybody's later checkpoints for five minutes. The metric has its
    age while it is open."""
    ages_s: list[float | None] = []

    def age_s() -> float | None:
        labels = {"source": rig.source, "source_partition": "0"}
        return REGISTRY.get_sample_value("headwater_publish_transaction_age_seconds", labels)

    def fail(name: str) -> None:
        ages_s.append(age_s())
        raise TransientError(f"{name} reached")

    monkeypatch.setattr("libs.source.transactional_producer.failpoint", fail)
    await rig.publisher.publish(batch(b"one", position=b"1"))
    with pytest.raises(TransientError, match="reader_after_produce_before_commit"):
        await rig.publisher.failed()
    await rig.publisher.stop(5.0)

    await rig.has_no_open_transaction()
    assert await asyncio.to_thread(rig.visible, changes_topic(rig.source)) == []
    assert ages_s[0]
    assert age_s() == 0.0


async def test_a_reader_that_has_no_time_to_finish_ends_its_transaction(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker acknowledges nothing for so long that the process has to go."""
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def never_has_room(producer: TransactionalProducer) -> bool:
        if producer._unacknowledged:
            loop.call_soon_threadsafe(begun.set)
        return not producer._unacknowledged

    monkeypatch.setattr(TransactionalProducer, "_has_room", never_has_room)
    await rig.publisher.publish(batch(b"one" * 200_000))
    await rig.publisher.publish(batch(b"two" * 200_000, position=b"1"))
    await asyncio.wait_for(begun.wait(), PUBLISHED_WITHIN_S)

    await rig.publisher.stop(0.1)

    await rig.has_no_open_transaction()
    assert await asyncio.to_thread(rig.visible, changes_topic(rig.source)) == []


def test_a_checkpoint_of_megabytes_has_room_in_its_topic(
    bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    """It names each table of a copy, and does not compress below Kafka's default limit of a record."""
    kafka = KafkaSettings(bootstrap_servers=bootstrap_servers)
    [spec] = [each for each in source_topics("shop", kafka, 0, has_heartbeats=False) if each.name == CHECKPOINTS_TOPIC]
    topic = msgspec.structs.replace(spec, name=unique_name("checkpoints"))
    ensure_topics(kafka, [topic])
    answers: list[str] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "message.max.bytes": MAX_RECORD_BYTES})

    def note(error: object, _message: object) -> None:
        answers.append("taken" if error is None else str(error))

    producer.produce(topic.name, os.urandom(3_000_000), key=b"shop/0", on_delivery=note)

    assert producer.flush(60.0) == 0
    assert answers == ["taken"]


async def test_a_heartbeat_moves_the_checkpoint_and_leaves_its_record(rig: Rig) -> None:
    """Debezium's record, though no event was published."""
    await rig.publisher.publish(batch(b"", position=b"9"))
    published = await asyncio.wait_for(rig.published.get(), PUBLISHED_WITHIN_S)

    [value] = await asyncio.to_thread(rig.visible, heartbeat_topic(rig.source))
    assert published.resume.position.token == b"9"
    assert list(json.loads(value)) == ["ts_ms"]
    assert await asyncio.to_thread(rig.visible, changes_topic(rig.source)) == []


async def test_dead_letters_become_visible_with_their_batch_and_not_before(rig: Rig) -> None:
    """Those of a transaction that is broken off never do."""
    topic = source_dead_letter_topic(rig.source)
    await rig.publisher.publish(replace(batch(b"", position=b"1"), dead_letters=(b"one", b"two")))
    await asyncio.wait_for(rig.published.get(), PUBLISHED_WITHIN_S)
    await rig.publisher.publish(replace(batch(b"unfinished"), dead_letters=(b"three",)))
    await rig.publisher.stop(20.0)

    assert await asyncio.to_thread(rig.visible, topic) == [b"one", b"two"]
    assert await asyncio.to_thread(rig.visible, changes_topic(rig.source)) == []


async def test_a_transaction_that_no_reader_owns_is_named_with_the_command_that_ends_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka forgets a transaction's end where a broker is killed in the wrong moment: to readers it is open for ever."""
    await rig.publisher.require_no_open_transaction()
    lost = Producer({"bootstrap.servers": rig.bootstrap_servers, "transactional.id": f"lost-{rig.source}"})
    await asyncio.to_thread(lost.init_transactions, PUBLISHED_WITHIN_S)
    lost.begin_transaction()
    lost.produce(changes_topic(rig.source), b"lost", partition=0)
    await asyncio.to_thread(lost.flush, PUBLISHED_WITHIN_S)
    monkeypatch.setattr("libs.source.publisher._MARKERS_WITHIN_S", 0.0)

    with pytest.raises(
        TransientError, match=f"abort --topic {changes_topic(rig.source)} --partition 0 --start-offset 0;"
    ):
        await rig.publisher.require_no_open_transaction()

    monkeypatch.undo()
    await asyncio.to_thread(lost.abort_transaction, PUBLISHED_WITHIN_S)
    await rig.publisher.require_no_open_transaction()
