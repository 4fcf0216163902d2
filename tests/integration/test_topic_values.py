"""A small topic read whole by one of Kafka's consumers, on a real Kafka."""

import secrets

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from libs.config.connections import KafkaSettings
from spark.kafka.topic_values import topic_values
from tests.kafka_reading import is_without_open_transaction
from tests.spark_session import shared_spark
from tests.waiting import wait_until

pytestmark = pytest.mark.spark


def test_committed_records_with_a_value_come_in_order_and_a_missing_topic_has_none(bootstrap_servers: str) -> None:
    """Neither those of a transaction that was aborted, nor tombstones. It makes no topic."""
    spark, kafka = shared_spark().session, KafkaSettings(bootstrap_servers=bootstrap_servers)
    topic, missing = (f"values-{secrets.token_hex(3)}" for _ in range(2))
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(60)
    assert topic_values(spark, kafka, topic) == []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    large = b"x" * 900_000
    for values, is_committed in (([b"one", None, b""], True), ([b"aborted"], False), ([large, b"last"], True)):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, b"key", partition=1)
        producer.produce(topic, values[0], b"key", partition=0)
        producer.flush(60)
        if is_committed:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)

    wait_until(
        lambda: is_without_open_transaction(bootstrap_servers, topic),
        because="Kafka has written the markers of the last commit",
    )

    found = topic_values(spark, kafka, topic)

    assert [(each.kafka_partition, each.value) for each in found] == [
        (0, b"one"),
        (0, large),
        (1, b"one"),
        (1, b""),
        (1, large),
        (1, b"last"),
    ]
    assert [each.offset for each in found if each.kafka_partition == 1] == sorted(
        each.offset for each in found if each.kafka_partition == 1
    )
    assert topic_values(spark, kafka, missing) == []
    assert missing not in admin.list_topics(timeout=60).topics
