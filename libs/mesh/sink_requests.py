"""Requests to a tenant's sink: records of a topic that it reads in its stream, so that each acts with a batch, once."""

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from libs.config.connections import KafkaSettings
from libs.errors import BrokerUnavailable
from libs.events.names import ORDER_HEADER, SCHEMA_VERSION_HEADER
from libs.kafka.clients import client_config
from libs.types.order import EventOrder

_TIMEOUT_S: Final = 15.0


def send_to_sink(kafka: KafkaSettings, topic: str, requests: Mapping[bytes, str]) -> None:
    """Write ``requests``, each with its key; durable when this returns, and acted upon once.

    Raises:
        BrokerUnavailable: Kafka does not take them.
    """
    admin = AdminClient({**client_config(kafka), "log_level": 0})
    try:
        admin.create_topics([NewTopic(topic, 1, -1)])[topic].result(_TIMEOUT_S)
    except KafkaException as error:
        because: Any = error.args[0]
        if because.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise BrokerUnavailable(f"Kafka does not make topic {topic}: {because.str()}") from error
    producer = Producer({**client_config(kafka), "enable.idempotence": True, "log_level": 0})
    failures: list[str] = []

    def note(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failures.append(error.str())

    # In the sink's stream every record has an order and a version.
    headers: Any = [(ORDER_HEADER, EventOrder(epoch=0, rank=0, tx_ordinal=0).sort_key()), (SCHEMA_VERSION_HEADER, "0")]
    for request, key in requests.items():
        producer.produce(topic, request, key, headers=headers, on_delivery=note)
    if producer.flush(_TIMEOUT_S) or failures:
        raise BrokerUnavailable(f"Kafka does not take the request: {', '.join(failures) or 'no answer'}")
