"""Topics on a real broker: created one by one, and waited for while the broker makes itself their leader."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable, PipelineHalted
from libs.events.names import table_schemas_topic
from libs.kafka.clients import TopicSpec, all_topics, client_config, create_topics, ensure_partitions, ensure_topics
from libs.kafka.tail import identify_log
from libs.mesh.tenant_topics import committed_ends, end_offsets, open_consumer, read_to_end
from services.router.routes.topic_claims import announced_tables
from tests.kafka_reading import TopicRecords
from tests.waiting import wait_until

PARTITIONS = 30
"""So many take a broker a moment: until then it answers NOT_LEADER_FOR_PARTITION."""


async def test_a_log_is_waited_for_until_its_topic_has_leaders(
    bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    """Asked for before the topic is there: neither an unknown topic nor a missing leader ends the service."""
    kafka, topic = KafkaSettings(bootstrap_servers=bootstrap_servers), unique_name("log")
    asked = asyncio.create_task(identify_log(kafka, topic))
    await asyncio.sleep(0.5)

    await asyncio.to_thread(ensure_topics, kafka, [TopicSpec(name=topic, kafka_partitions=PARTITIONS)])
    identity = await asked

    assert identity.end_offsets == dict.fromkeys(range(PARTITIONS), 0)


async def test_a_log_that_does_not_come_is_given_up(bootstrap_servers: str, unique_name: Callable[[str], str]) -> None:
    """The error has the topic's name, and the broker's words."""
    kafka, topic = KafkaSettings(bootstrap_servers=bootstrap_servers), unique_name("log")

    with pytest.raises(BrokerUnavailable, match=rf"{topic} cannot be described: .*UNKNOWN_TOPIC_OR_PART"):
        await identify_log(kafka, topic, timeout_s=4.0)


def test_a_refused_topic_does_not_keep_another_from_being_made(
    bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    """Only refused topics are in the answer; one that exists already is no error."""
    kafka = KafkaSettings(bootstrap_servers=bootstrap_servers)
    good, bad, wrong = unique_name("good"), unique_name("bad"), unique_name("wrong")
    asked = [
        TopicSpec(name=good),
        TopicSpec(name=bad, replication_factor=3),
        TopicSpec(name=wrong, config={"cleanup.policy": "none"}),
    ]

    first, second = create_topics(kafka, asked), create_topics(kafka, asked)

    assert set(first) == set(second) == {bad, wrong}
    assert all(isinstance(error, PipelineHalted) for error in first.values())
    assert "fewer brokers than replication_factor" in str(first[bad])


def test_a_name_or_number_that_kafka_refuses_is_that_topics_trouble(
    bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    """Kafka folds ``.`` and ``_`` (INVALID_TOPIC_EXCEPTION), and looks at no two of one request; numbers do not fit into its
    protocol. None of them says that Kafka is away, and the topic beside them is made."""
    kafka, name = KafkaSettings(bootstrap_servers=bootstrap_servers), unique_name("fold")
    there, together, good = f"{name}.a.b", (f"{name}.c.d", f"{name}.c_d"), f"{name}.good"
    ensure_topics(kafka, [TopicSpec(name=there)])
    bad = [
        TopicSpec(name=f"{name}.a_b"),
        TopicSpec(name=f"{name}.many", kafka_partitions=3_000_000_000),
        TopicSpec(name=f"{name}.copies", replication_factor=40_000),
        TopicSpec(name=f"{name}.none", kafka_partitions=0),
        TopicSpec(name="x" * 250),
        TopicSpec(name=".."),
    ]

    errors = create_topics(kafka, [*bad, *(TopicSpec(name=each) for each in (*together, good))])

    refused = [name for name in together if name in errors]
    assert len(refused) == 1, "Kafka makes one of two names that fold together, in an order of its own"
    assert set(errors) == {each.name for each in bad} | set(refused)
    assert [type(error) for error in errors.values()] == [PipelineHalted] * len(errors)
    assert "topics.name" in str(errors[f"{name}.a_b"])
    assert {there, good, *together} - set(refused) <= all_topics(kafka).keys()


async def test_tasks_that_start_together_may_each_want_another_number_of_partitions(
    bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    """The quickest call with the most has done the others' work; none of them fails."""
    kafka, topic = KafkaSettings(bootstrap_servers=bootstrap_servers), unique_name("changes")
    await asyncio.to_thread(ensure_topics, kafka, [TopicSpec(name=topic)])

    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(ensure_partitions, kafka, topic, count) for count in (8, 2, 8, 3, 5, 4, 6, 7)]
    for each in asked:
        each.result()

    assert len((await identify_log(kafka, topic)).end_offsets) == 8


def test_the_ends_of_many_topics_are_one_answer(bootstrap_servers: str, unique_name: Callable[[str], str]) -> None:
    """Equal to those that are asked one by one: after the markers of transactions, before one that is open."""
    kafka = KafkaSettings(bootstrap_servers=bootstrap_servers)
    first, second, missing = (unique_name("ends") for _ in range(3))
    ensure_topics(kafka, [TopicSpec(name=first, kafka_partitions=2), TopicSpec(name=second)])
    producer = Producer({**client_config(kafka), "transactional.id": unique_name("ends")})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(first, b"1", partition=1)
    producer.commit_transaction(60)
    producer.begin_transaction()
    producer.produce(second, b"2", partition=0)
    producer.flush(60)
    consumer = open_consumer(kafka)

    def one_by_one() -> dict[tuple[str, int], int]:
        """As librdkafka's consumer answers."""
        places = [TopicPartition(topic, number) for topic, number in ((first, 0), (first, 1), (second, 0))]
        return {
            (place.topic, place.partition): consumer.get_watermark_offsets(place, timeout=60)[1] for place in places
        }

    wait_until(lambda: one_by_one()[first, 1] == 2, because="the marker of the commit is written", seen=one_by_one)
    try:
        found = committed_ends(kafka, [first, second, missing])
        alone, together = one_by_one(), end_offsets(kafka, [first, second, missing])
    finally:
        producer.abort_transaction(60)
        consumer.close()

    assert found == {first: {0: 0, 1: 2}, second: {0: 0}, missing: {}}
    assert {(topic, number): end for topic, ends in found.items() for number, end in ends.items()} == alone
    assert together == alone


def test_a_topic_is_read_to_its_end_while_others_write_to_it(
    bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    """Each transaction ends before a fetch comes back empty, so that librdkafka never reports the end of a partition. Records
    after the end that was there at the call do not come."""
    kafka, topic = KafkaSettings(bootstrap_servers=bootstrap_servers), unique_name("busy")
    ensure_topics(kafka, [TopicSpec(name=topic, kafka_partitions=2)])

    with committing(kafka, topic, unique_name("busy")):
        wait_until(lambda: end_offsets(kafka, [topic])[topic, 0] > 100, because="a hundred offsets are written")
        consumer, records = open_consumer(kafka), TopicRecords(bootstrap_servers, topic)
        starts = {(topic, 0): OFFSET_BEGINNING, (topic, 1): OFFSET_BEGINNING}
        found = list(read_to_end(consumer, starts, timeout_s=30.0))
        again = records.read()
        end = end_offsets(kafka, [topic])[topic, 0]
        consumer.close()
        records.close()

    offsets = [message.offset() for message in found]
    assert offsets == [message.offset() for message in again][: len(offsets)]
    assert 50 < len(offsets) < len(again)
    assert max(message.offset() or 0 for message in again) < end


def test_the_owner_of_a_topic_is_found_while_routers_announce_tables(
    bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    """A tenant's ``table-schemas`` topic that is written without a pause has no end that librdkafka reports."""
    kafka, tenant = KafkaSettings(bootstrap_servers=bootstrap_servers), unique_name("claims")
    schemas_topic = table_schemas_topic(tenant)
    ensure_topics(kafka, [TopicSpec(name=schemas_topic)])

    with committing(kafka, schemas_topic, unique_name("busy")):
        wait_until(lambda: end_offsets(kafka, [schemas_topic])[schemas_topic, 0] > 100, because="much is written")
        found = announced_tables(kafka, tenant, f"{tenant}.shop.db.t")

    assert found == []


@contextmanager
def committing(kafka: KafkaSettings, topic: str, producer_id: str) -> Iterator[None]:
    """Transactions of one record each go to the topic's first partition, as fast as Kafka takes them."""
    producer = Producer({**client_config(kafka), "transactional.id": producer_id})
    producer.init_transactions(60)
    ends = threading.Event()

    def write() -> None:
        while not ends.is_set():
            producer.begin_transaction()
            producer.produce(topic, b"value", partition=0)
            producer.commit_transaction(60)

    with ThreadPoolExecutor(1) as threads:
        written = threads.submit(write)
        try:
            yield
        finally:
            ends.set()
        written.result()
