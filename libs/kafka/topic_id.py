"""Kafka's id of a topic: one that was deleted and made again has another id under the same name."""

from typing import Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable
from libs.kafka.clients import client_config

_TIMEOUT_S: Final = 30.0
_NO_ID: Final = "A" * 22
"""A zero id, as Kafka writes it."""


def topic_id(kafka: KafkaSettings, topic: str, timeout_s: float = _TIMEOUT_S) -> str:
    """Kafka's own id of a topic; empty where Kafka has none (before 2.8). Blocks. Raises BrokerUnavailable."""
    admin = AdminClient(client_config(kafka))
    try:
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)[topic].result(timeout_s)
    except (KafkaException, TimeoutError) as error:
        raise BrokerUnavailable(f"Kafka does not give the id of topic {topic}: {error}") from error
    found = str(described.topic_id)
    return "" if found == _NO_ID else found
