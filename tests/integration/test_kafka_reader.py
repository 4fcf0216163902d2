"""Ranges of Kafka partitions as Spark reads them, on a real Kafka."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame

from libs.config.connections import KafkaSettings
from spark.jvm.errors import described, lost_partitions
from spark.kafka import kafka_ranges
from spark.kafka.kafka_ranges import OffsetRange, records_of
from spark.kafka.read_topics import kafka_options
from tests.spark_session import shared_spark

Ranges = dict[str, OffsetRange]


class Topics:
    """Topics that a test makes and writes, by transactions."""

    def __init__(self, bootstrap_servers: str, unique_name: Callable[[str], str]) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self._kafka = KafkaSettings(bootstrap_servers=bootstrap_servers)
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": unique_name("ranges")})
        self._producer.init_transactions()

    def make(self, topic: str, partitions: int = 1) -> str:
        self._admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        return topic

    def write(
        self,
        topic: str,
        *values: str,
        partition: int = 0,
        is_broken_off: bool = False,
        more_headers: Sequence[tuple[str, str | bytes]] = (),
    ) -> None:
        """One transaction: an offset for each value, and one for its end."""
        self._producer.begin_transaction()
        for value in values:
            headers = [("first", value.encode()), ("empty", b""), *more_headers]
            self._producer.produce(
                topic, value.encode(), b"of %s" % value.encode(), partition=partition, headers=headers
            )
        if is_broken_off:
            self._producer.flush(120)
            self._producer.abort_transaction(120)
        else:
            self._producer.commit_transaction(120)

    def forget_before(self, topic: str, offset: int) -> None:
        self._admin.delete_records([TopicPartition(topic, 0, offset)])[TopicPartition(topic, 0)].result(30)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(30)

    def read(
        self, ranges: Ranges, *, fails_on_loss: bool = True, headers: Mapping[str, str] | None = None
    ) -> DataFrame:
        return records_of(
            shared_spark().session,
            kafka_options(self._kafka),
            ranges,
            most_parts=4,
            fails_on_loss=fails_on_loss,
            headers=headers or {},
        )


@pytest.fixture
def topics(bootstrap_servers: str, unique_name: Callable[[str], str]) -> Topics:
    return Topics(bootstrap_servers, unique_name)


def texts(records: DataFrame) -> list[str]:
    """The values, in the order of their offsets."""
    found = records.orderBy("partition", "offset").select("value").collect()
    return [bytes(row.value).decode() for row in found]


async def test_a_range_is_read_between_its_offsets_and_no_further(
    topics: Topics, unique_name: Callable[[str], str]
) -> None:
    """Through transactions that were broken off, to an end that nobody is given, and each piece by another task once."""
    topic = topics.make(unique_name("pieces"), partitions=2)
    for number in range(40):
        topics.write(topic, *(f"{number:02d}-{each:03d}" for each in range(400)), is_broken_off=number % 4 == 1)
    topics.write(topic, "last", is_broken_off=True)
    topics.write(topic, "another", partition=1)
    offsets = 401

    def read(begin: int | None, end: int) -> list[str]:
        begins = {} if begin is None else {0: begin}
        return texts(topics.read({topic: (begins, {0: end})}))

    def written(*numbers: int) -> list[str]:
        return [f"{number:02d}-{each:03d}" for number in numbers if number % 4 != 1 for each in range(400)]

    assert await asyncio.to_thread(read, 0, 40 * offsets + 2) == written(*range(40))
    assert await asyncio.to_thread(read, None, 40 * offsets) == written(*range(40))
    assert await asyncio.to_thread(read, 2 * offsets + 1, 3 * offsets - 1) == written(2)[1:]
    assert await asyncio.to_thread(read, 5 * offsets, 6 * offsets) == []
    assert await asyncio.to_thread(read, 3 * offsets, 3 * offsets) == []


async def test_a_record_is_read_as_it_lies_in_kafka(topics: Topics, unique_name: Callable[[str], str]) -> None:
    topic = topics.make(unique_name("record"), partitions=2)
    topics.write(topic, "ä", partition=1)

    [record] = await asyncio.to_thread(topics.read({topic: ({0: 0, 1: 0}, {0: 0, 1: 2})}).collect)

    assert (record.topic, record.partition, record.offset) == (topic, 1, 0)
    assert (bytes(record.key), bytes(record.value)) == ("of ä".encode(), "ä".encode())
    assert [(each.key, bytes(each.value)) for each in record.headers] == [("first", "ä".encode()), ("empty", b"")]


async def test_headers_are_columns_where_they_are_asked_for(topics: Topics, unique_name: Callable[[str], str]) -> None:
    """By their own names, capitals too; of two of one name the last, and NULL where there is none."""
    topic = topics.make(unique_name("headers"))
    topics.write(topic, "a")
    topics.write(topic, "b", more_headers=[("first", b"again"), ("First", "ä".encode())])
    headers = {"order": "first", "Other": "First", "nothing": "empty"}

    records = topics.read({topic: ({0: 0}, {0: 4})}, headers=headers).select("value", *headers).orderBy("value")

    assert [tuple(row)[1:] for row in await asyncio.to_thread(records.collect)] == [
        ("a", None, ""),
        ("again", "ä", ""),
    ]


async def test_one_task_reads_many_topics(topics: Topics, unique_name: Callable[[str], str]) -> None:
    """Each in its own order, independent of the others; of one there is nothing in its range."""
    names = [topics.make(unique_name(f"many{number}"), partitions=2) for number in range(12)]
    for number, name in enumerate(names):
        topics.write(name, *(f"{number}-{each}" for each in range(number)), partition=number % 2)
    ranges: Ranges = {name: ({0: 0, 1: 0}, {number % 2: number}) for number, name in enumerate(names)}

    records = topics.read(ranges)
    found = await asyncio.to_thread(records.select("topic", "value").collect)

    assert records.rdd.getNumPartitions() == 1
    for number, name in enumerate(names):
        of_topic = [bytes(each.value).decode() for each in found if each.topic == name]
        assert of_topic == [f"{number}-{each}" for each in range(number)]


async def test_what_kafka_has_no_more_fails_it_by_name(topics: Topics, unique_name: Callable[[str], str]) -> None:
    """Unless losses are accepted: then the rest is there."""
    topic = topics.make(unique_name("lost"))
    topics.write(topic, "one", "two", "three")
    topics.forget_before(topic, 2)
    ranges: Ranges = {topic: ({0: 0}, {0: 3})}

    with pytest.raises(Py4JJavaError) as raised:
        await asyncio.to_thread(topics.read(ranges).collect)
    assert lost_partitions(raised.value) == f"{topic}-0"
    assert await asyncio.to_thread(texts, topics.read(ranges, fails_on_loss=False)) == ["three"]
    assert await asyncio.to_thread(texts, topics.read({topic: ({0: 0}, {0: 1})}, fails_on_loss=False)) == []
    assert await asyncio.to_thread(texts, topics.read({topic: ({}, {0: 3})})) == ["three"]


async def test_a_topic_that_is_gone_fails_it_by_name(topics: Topics, unique_name: Callable[[str], str]) -> None:
    """So does one of which less is there than was: it was made again."""
    topic = topics.make(unique_name("gone"))
    topics.write(topic, "one", "two")
    ranges: Ranges = {topic: ({0: 1}, {0: 2})}
    topics.delete(topic)

    with pytest.raises(Py4JJavaError) as raised:
        await asyncio.to_thread(topics.read(ranges).collect)
    assert lost_partitions(raised.value) == f"{topic}-0"
    assert await asyncio.to_thread(texts, topics.read(ranges, fails_on_loss=False)) == []

    topics.make(topic)
    with pytest.raises(Py4JJavaError) as raised:
        await asyncio.to_thread(topics.read(ranges).collect)
    assert lost_partitions(raised.value) == f"{topic}-0"
    assert await asyncio.to_thread(texts, topics.read(ranges, fails_on_loss=False)) == []


async def test_records_that_do_not_come_fail_it(
    topics: Topics, unique_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_ranges, "_STALLS_AFTER_MS", 3_000)
    topic = topics.make(unique_name("short"))
    topics.write(topic, "one")

    with pytest.raises(Py4JJavaError) as raised:
        await asyncio.to_thread(topics.read({topic: ({0: 0}, {0: 3})}).collect)
    assert lost_partitions(raised.value) is None
    assert "TimeoutException" in described(raised.value)
