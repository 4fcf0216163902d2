"""A lane's transactions over a real Kafka: the records that become visible, where, and under which failures."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import TopicPartition
from confluent_kafka import Message, Producer

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable, Fenced
from libs.events.names import STRAGGLING
from libs.kafka.clients import TopicSpec, ensure_topics
from services.router.kafka.kafka_refusals import TopicsRefused
from services.router.kafka.straggler_offsets import find_stragglers, is_anyone_behind, own_note
from services.router.kafka.writer import TransactionWriter
from services.router.lane.lane import _committed_offset
from services.router.records.record_batch import CODECS, Records, encode_header, join_headers
from services.router.records.record_bytes import PassedRows
from services.router.routes.topic_claims import TopicClaims
from services.router.settings import LaneSettings, TenantLimitSettings
from services.router.transactions.outputs import LaneDependencies
from services.router.transactions.rate_limits import RateLimits
from tests.conftest import KafkaBroker, StartKafka
from tests.integration.router_rig import read_closed_topic
from tests.unit.router.batches import run_of

BROKERS_DEFAULT_LIMIT = 1_048_588
"""``message.max.bytes``; the test broker's own is higher."""
HEADERS = join_headers(encode_header("number", b"7"))


def records(values: Iterable[tuple[bytes | None, bytes | None]]) -> Records:
    """Records of these keys and values."""
    keys, payloads = zip(*values, strict=True)
    return Records(keys, payloads, [HEADERS] * len(keys))


def numbered(first: int, count: int, padding: int = 0) -> Records:
    """Records whose keys are numbers."""
    return records((b"%d" % number, b"x" * padding) for number in range(first, first + count))


def keys_of(messages: list[Message]) -> list[Any]:
    """The keys, in order."""
    return [message.key() for message in messages]


class Rig:
    """A changes partition to commit offsets of, and a topic to write to."""

    def __init__(self, bootstrap_servers: str, name: str, *, kafka_partitions: int = 1, **lane: Any) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.kafka = KafkaSettings(bootstrap_servers=bootstrap_servers)
        self.group = f"group-{name}"
        self.place = TopicPartition(f"changes-{name}", 0)
        self.topic = f"out-{name}"
        self.settings = LaneSettings(**lane)
        config = {"max.message.bytes": str(BROKERS_DEFAULT_LIMIT)}
        outputs = TopicSpec(name=self.topic, kafka_partitions=kafka_partitions, config=config)
        ensure_topics(self.kafka, [TopicSpec(name=self.place.topic), outputs])

    @asynccontextmanager
    async def writer(self) -> AsyncIterator[TransactionWriter]:
        """An owner of the partition."""
        writer = await TransactionWriter.open(self.kafka, self.group, self.place, self.settings)
        try:
            yield writer
        finally:
            await writer.close()

    async def write(self, writer: TransactionWriter, written: Records | PassedRows, next_offset: int = 1) -> None:
        """One transaction; ``read`` waits until it is visible."""
        await writer.begin()
        await writer.write(written, [self.topic])
        await writer.send_gathered()
        await writer.send_offset(next_offset)
        await writer.commit()

    def committed(self) -> int:
        """Where the next owner goes on."""
        shared = LaneDependencies(
            kafka=self.kafka,
            group=self.group,
            settings=self.settings,
            tenants=tuple,
            fetch_schema=lambda _: pytest.fail,
            claims=TopicClaims(),
            limits=RateLimits(TenantLimitSettings()),
            on_failure=pytest.fail,
        )
        return _committed_offset(self.place, shared)

    def read(self) -> list[Message]:
        """The records that are visible once no transaction is open."""
        return read_closed_topic(self.bootstrap_servers, self.topic)


@pytest.fixture
def make_rig(bootstrap_servers: str, unique_name: Callable[[str], str]) -> Callable[..., Rig]:
    """Makes the test's rig on the shared broker."""
    return lambda **parts: Rig(bootstrap_servers, unique_name("writer"), **parts)


@pytest.mark.parametrize("compression", CODECS)
async def test_records_arrive_in_order_in_every_compression(make_rig: Callable[..., Rig], compression: str) -> None:
    """Broker and librdkafka read our records: keys, values, tombstones, headers, the time of writing."""
    rig = make_rig(compression=compression)
    written = records([(None, b"first"), *((b"%d" % n, b"value" * n) for n in range(2000)), (b"last", None)])
    before_ms = time.time_ns() // 1_000_000

    async with rig.writer() as writer:
        await rig.write(writer, written)

    found = rig.read()
    assert keys_of(found) == list(written.keys)
    assert [message.value() for message in found] == list(written.values)
    assert {tuple(message.headers() or ()) for message in found} == {(("number", b"7"),)}
    assert all(before_ms <= message.timestamp()[1] <= before_ms + 60_000 for message in found)
    assert rig.committed() == 1


async def test_keys_lie_where_javas_partitioner_puts_them(make_rig: Callable[..., Rig]) -> None:
    """The same Kafka partition as librdkafka's murmur2_random, key by key; records without a key anywhere."""
    rig, reference = make_rig(kafka_partitions=7), make_rig(kafka_partitions=7)
    keys = [b"", *(b'{"id":%d}' % number for number in range(500)), *("ключ-%d".encode() % n for n in range(50))]
    producer = Producer(
        {"bootstrap.servers": reference.kafka.bootstrap_servers, "partitioner": "murmur2_random"},
    )
    for key in keys:
        producer.produce(reference.topic, b"", key)
    producer.flush(120)

    async with rig.writer() as writer:
        await rig.write(writer, records([(None, b"")] * 10 + [(key, b"") for key in keys]))

    def placed(messages: list[Message]) -> dict[Any, Any]:
        return {message.key(): message.partition() for message in messages if message.key() is not None}

    found = rig.read()
    assert len(found) == len(keys) + 10
    assert placed(found) == placed(reference.read())


async def test_records_of_many_batches_keep_their_order(make_rig: Callable[..., Rig]) -> None:
    """30 MB uncompressed through a producer that may hold 2 MB: batches are cut, waited for and never mixed up."""
    rig = make_rig(compression="none", producer_queue_kbytes=2_048)

    async with rig.writer() as writer:
        await writer.begin()
        for first in range(0, 30_000, 3_000):
            part = numbered(first, 3_000, padding=1_000)
            await writer.write(part, [rig.topic])
        await writer.send_gathered()
        await writer.send_offset(1)
        await writer.commit()

    assert keys_of(rig.read()) == [b"%d" % number for number in range(30_000)]


async def test_topics_that_get_the_same_share_what_was_encoded_and_others_do_not(make_rig: Callable[..., Rig]) -> None:
    """Each topic has its own records, over several batches, whether or not another got the same ones."""
    rig, others = make_rig(), [make_rig(), make_rig()]
    same = [rig.topic, others[0].topic]
    first, second = numbered(0, 3_000, padding=1_000), numbered(3_000, 10)

    async with rig.writer() as writer:
        await writer.begin()
        await writer.write(first, [*same, others[1].topic])
        await writer.write(second, same)
        await writer.send_gathered()
        await writer.send_offset(1)
        await writer.commit()
        await rig.write(writer, second, next_offset=2)

    expected = [b"%d" % number for number in range(3_010)]
    assert keys_of(rig.read()) == expected + expected[-10:]
    assert keys_of(others[0].read()) == expected
    assert keys_of(others[1].read()) == expected[:3_000]


async def test_topics_part_where_their_records_do(make_rig: Callable[..., Rig]) -> None:
    """Amid a batch, and again after a full one: records of one alone never show up at the other."""
    rig, other = make_rig(), make_rig()
    both = [rig.topic, other.topic]
    steps = [(both, 0, 10), ([rig.topic], 10, 10), (both, 20, 3_000), ([other.topic], 3_020, 5), (both, 3_025, 3_000)]

    async with rig.writer() as writer:
        await writer.begin()
        for topics, first, count in steps:
            await writer.write(numbered(first, count, padding=1_000), topics)
        await writer.send_gathered()
        await writer.write(numbered(6_025, 1), both)
        await writer.write(numbered(6_026, 1), both[1:])
        await writer.write(numbered(6_027, 1), both)
        await writer.send_gathered()
        await writer.send_offset(1)
        await writer.commit()

    for topic_rig in (rig, other):
        numbers = [
            n for topics, first, count in steps if topic_rig.topic in topics for n in range(first, first + count)
        ]
        alone = [] if topic_rig is rig else [6_026]
        assert keys_of(topic_rig.read()) == [b"%d" % n for n in [*numbers, 6_025, *alone, 6_027]]


async def test_rows_in_place_arrive_as_columns_do(make_rig: Callable[..., Rig]) -> None:
    """Over several batches and Kafka partitions: the same records at the same places, tombstones after their deletes."""
    rig, reference = make_rig(kafka_partitions=3), make_rig(kafka_partitions=3)
    rows = [(b"cud"[n % 3], b'{"id":%d}' % (n % 500), b"x" * (n % 2_000)) for n in range(9_000)]
    before, behind = join_headers(encode_header("number", b"?" * 10)).split(b"?" * 10)
    passed = PassedRows(run_of(rows, first=0), before=before, behind=behind, tombstones=True)
    columns = Records([], [], [])
    for number, (op, key, value) in enumerate(rows):
        for written in (value, None) if op == ord("d") else (value,):
            for column, item in zip(
                columns, (key, written, join_headers(encode_header("number", b"%010d" % number))), strict=True
            ):
                column.append(item)  # type: ignore[attr-defined]

    async with rig.writer() as writer:
        await rig.write(writer, passed)
    async with reference.writer() as writer:
        await reference.write(writer, columns)

    def found(of: Rig) -> list[Any]:
        messages = sorted(of.read(), key=lambda message: message.partition() or 0)
        return [(m.partition(), m.key(), m.value(), m.headers()) for m in messages]

    assert len(found(rig)) == 12_000
    assert found(rig) == found(reference)


async def test_one_record_may_have_almost_a_brokers_limit(make_rig: Callable[..., Rig]) -> None:
    """It goes in a batch of its own, between its neighbours; one beyond the limit ends the transaction and names its topic."""
    rig = make_rig(compression="none")
    large = records([(b"1", b"x"), (b"2", b"y" * 1_000_000), (b"3", b"z")])

    async with rig.writer() as writer:
        await rig.write(writer, large)
        with pytest.raises(TopicsRefused, match="MessageSizeTooLarge") as refused:
            await rig.write(writer, records([(b"4", b""), (b"5", b"y" * 1_100_000)]), next_offset=2)
        assert refused.value.topics == {rig.topic}

    async with rig.writer():
        assert keys_of(rig.read()) == [b"1", b"2", b"3"]
        assert rig.committed() == 1


@pytest.mark.parametrize("steps", [1, 2, 3])
async def test_owner_that_was_replaced_is_fenced_at_each_step(make_rig: Callable[..., Rig], steps: int) -> None:
    """Nothing of its transaction becomes visible, neither records nor offset; the new owner is not disturbed."""
    rig = make_rig(compression="none")
    async with rig.writer() as old:
        await rig.write(old, numbered(0, 10))
        await old.begin()
        part = numbered(10, 3_000, padding=1_000)  # several batches: the first that is refused ends the sender
        if steps > 1:
            await old.write(part, [rig.topic])
            await old.send_gathered()
        if steps > 2:
            await old.send_offset(2)
        async with rig.writer() as new:
            assert rig.committed() == 1

            with pytest.raises(Fenced):
                await old.write(part, [rig.topic])
                await old.send_gathered()
                await old.send_offset(2)
                await old.commit()

            await rig.write(new, numbered(10, 5), next_offset=2)

    assert keys_of(rig.read()) == [b"%d" % number for number in range(15)]
    assert rig.committed() == 2


async def write_beside(rig: Rig, writer: TransactionWriter, other: str, value: bytes, next_offset: int) -> None:
    """One transaction to the rig's topic and another one."""
    await writer.begin()
    await writer.write(records([(b"beside", b"small")]), [rig.topic])
    await writer.send_gathered()
    await writer.write(records([(b"refused", value), (b"later", b"small")]), [other])
    await writer.send_gathered()
    await writer.write(records([(b"behind it", b"small")]), [other])
    await writer.send_gathered()
    await writer.send_offset(next_offset)
    await writer.commit()


async def test_a_topic_that_refuses_is_named_and_nothing_of_the_transaction_shows(
    make_rig: Callable[..., Rig],
) -> None:
    """The others go on with the same writer; so does the topic with records that it takes: no record is out of sequence."""
    rig = make_rig()
    small = f"small-{rig.topic}"
    ensure_topics(rig.kafka, [TopicSpec(name=small, config={"max.message.bytes": "500"})])
    async with rig.writer() as writer:
        await rig.write(writer, numbered(0, 3))
        for _ in range(2):
            with pytest.raises(TopicsRefused) as refused:
                await write_beside(rig, writer, small, random_bytes(1_000), 2)
            assert refused.value.topics == {small}
            assert "MessageSizeTooLarge" in str(refused.value)
            await writer.abort()
            assert rig.committed() == 1
        await rig.write(writer, numbered(3, 3), next_offset=2)
        await write_beside(rig, writer, small, b"fits", 3)

    assert keys_of(rig.read()) == [*(b"%d" % number for number in range(6)), b"beside"]
    found = read_closed_topic(rig.bootstrap_servers, small)
    assert keys_of(found) == [b"refused", b"later", b"behind it"]
    assert rig.committed() == 3


def random_bytes(count: int) -> bytes:
    """Bytes that no compression makes smaller."""
    return random.Random(count).randbytes(count)


async def test_offsets_of_several_groups_are_committed_together(make_rig: Callable[..., Rig]) -> None:
    """With the records, and with the notes beside them; aborted, none is."""
    rig = make_rig()
    places = [f"{rig.group}.a", f"{rig.group}.b"]
    async with rig.writer() as writer:
        await writer.begin()
        await writer.write(numbered(0, 2), [rig.topic])
        await writer.send_gathered()
        await writer.send_offset(9, note=own_note(places))
        await writer.send_offset(4, group=places[0], note=STRAGGLING)
        await writer.send_offset(5, group=places[1], note=STRAGGLING)
        await writer.commit()
        await writer.begin()
        await writer.send_offset(10, group=places[0])
        # Open, as a straggler's transaction is after a kill.
        is_known = await asyncio.to_thread(is_anyone_behind, rig.kafka, rig.group, rig.place)
        await writer.send_offset(10, note=own_note(()))
        await writer.abort()

    assert is_known
    assert rig.committed() == 9
    assert find_stragglers(rig.kafka, rig.group, rig.place) == {"a": 4, "b": 5}
    assert len(rig.read()) == 2

    async with rig.writer() as writer:
        await writer.begin()
        await writer.send_offset(10, note=own_note(["b", "c"]))
        await writer.send_offset(10, group=places[0])
        await writer.commit()
    with pytest.raises(BrokerUnavailable, match=r"2 tenants lag in .*, and Kafka names 1; grant the router READ"):
        find_stragglers(rig.kafka, rig.group, rig.place)


@pytest.mark.rest(
    because="in the gate a router's broker loses power in faults/test_router_kills.py, and a writer's in simulation"
)
async def test_power_cut_of_the_broker_loses_and_repeats_nothing(
    start_kafka: StartKafka, unique_name: Callable[[str], str]
) -> None:
    """Killed twice amid transactions: the writer goes on by itself, or its successor does, from the committed offset."""
    broker = start_kafka()
    rig = Rig(broker.bootstrap_servers, unique_name("writer"))
    rounds = 400
    cuts = asyncio.create_task(cut_power(broker, [1.0, 2.0]))

    next_offset = 0
    while next_offset < rounds:
        try:
            async with rig.writer() as writer:
                next_offset = rig.committed()
                while next_offset < rounds:
                    await rig.write(writer, numbered(next_offset * 50, 50, padding=200), next_offset + 1)
                    next_offset += 1
                    await asyncio.sleep(0 if cuts.done() else 0.01)
        except BrokerUnavailable:
            await asyncio.sleep(0.5)
    await cuts

    assert keys_of(rig.read()) == [b"%d" % number for number in range(rounds * 50)]


async def cut_power(broker: KafkaBroker, after_s: list[float]) -> None:
    """Kill and restart the broker so many seconds after its last start."""
    for pause_s in after_s:
        await asyncio.sleep(pause_s)
        broker.kill()
        await asyncio.sleep(1.0)
        await asyncio.to_thread(broker.restart)


async def test_broker_that_stays_away_ends_in_an_error(
    start_kafka: StartKafka, unique_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step hangs: the process is started again by its supervisor."""
    monkeypatch.setattr("services.router.kafka.writer._KAFKA_CALL_TIMEOUT_S", 3.0)
    broker = start_kafka()
    rig = Rig(broker.bootstrap_servers, unique_name("writer"))

    async with rig.writer() as writer:
        await rig.write(writer, numbered(0, 1))
        broker.kill()
        with pytest.raises(BrokerUnavailable):
            await rig.write(writer, numbered(1, 1), next_offset=2)

    with pytest.raises(BrokerUnavailable):
        await TransactionWriter.open(rig.kafka, rig.group, rig.place, rig.settings)
