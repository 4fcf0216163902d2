"""What Spark's Kafka reader leaves behind of a batch that was read."""

import asyncio
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer

from libs.config.connections import KafkaSettings
from spark.java import java_class
from spark.transforms.read_topics import kafka_options
from tests.integration.service_process import eventually
from tests.spark_session import SharedSpark, shared_spark

RECORDS = 3_000
PIECES = 8


async def test_records_that_no_task_took_are_let_go(bootstrap_servers: str, unique_name: Callable[[str], str]) -> None:
    """A poll brings more than a piece's last records, and by Spark's default all of it stays in the heap for five minutes."""
    topic = unique_name("pieces")
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(60) == 0
    shared = shared_spark()

    records = (
        shared.session.read.format("kafka")
        .options(**kafka_options(KafkaSettings(bootstrap_servers=bootstrap_servers)))
        .option("subscribe", topic)
        .option("minPartitions", PIECES)
        .load()
    )

    assert await asyncio.to_thread(records.count) == RECORDS
    assert kept(shared, topic) is not None
    await eventually(lambda: kept(shared, topic) == 0, within_s=120.0)


def kept(shared: SharedSpark, topic: str) -> int | None:
    """How many polls' records Spark keeps of the topic, for no task; None: it was never read. Spark tells nobody."""
    loaded = java_class(shared.session, "org.apache.spark.util.Utils").classForName
    reader = loaded("org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer$", True, False)
    pool = field_of(reader, "fetchedDataPool", reader.getField("MODULE$").get(None))
    entries = field_of(pool.getClass(), "cache", pool).iterator()
    counts = []
    while entries.hasNext():
        entry = entries.next()
        if entry._1().topicPartition().topic() == topic:
            counts.append(int(entry._2().size()))
    return sum(counts) if counts else None


def field_of(java_class_of_it: Any, name: str, owner: Any) -> Any:
    field = java_class_of_it.getDeclaredField(name)
    field.setAccessible(True)
    return field.get(owner)
