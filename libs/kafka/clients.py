"""librdkafka client configuration, from our settings, and topics that exist before they are used."""

from collections.abc import Mapping, Sequence

import msgspec
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from libs.config.connections import KafkaSettings
from libs.errors import AccessDenied, BrokerUnavailable, PipelineHalted

CREATE_TOPICS_TIMEOUT_S = 30.0


class TopicSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as it should be."""

    name: str
    kafka_partitions: int = 1
    replication_factor: int = 1
    config: Mapping[str, str] = msgspec.field(default_factory=dict)


def client_config(settings: KafkaSettings) -> dict[str, object]:
    """Connection part of a librdkafka configuration (librdkafka, CONFIGURATION.md)."""
    config: dict[str, object] = {
        "bootstrap.servers": settings.bootstrap_servers,
        "security.protocol": settings.security_protocol,
    }
    if settings.sasl_mechanism is not None:
        config["sasl.mechanism"] = settings.sasl_mechanism
        config["sasl.username"] = settings.sasl_username or ""
        config["sasl.password"] = settings.sasl_password.reveal() if settings.sasl_password else ""
    if settings.ssl_ca_file is not None:
        config["ssl.ca.location"] = settings.ssl_ca_file
    return config


def ensure_topics(settings: KafkaSettings, topics: Sequence[TopicSpec]) -> None:
    """Create those of ``topics`` that do not exist; existing ones stay as they are. Blocks.

    Raises:
        BrokerUnavailable: Kafka did not answer in time; try again.
        AccessDenied: the user may not create the topic; grant CREATE on it.
    """
    if not topics:
        return
    admin = AdminClient(client_config(settings))
    requested = [
        NewTopic(
            topic.name,
            num_partitions=topic.kafka_partitions,
            replication_factor=topic.replication_factor,
            config=dict(topic.config),
        )
        for topic in topics
    ]
    created = admin.create_topics(requested, request_timeout=CREATE_TOPICS_TIMEOUT_S)
    for name, future in created.items():
        try:
            future.result(timeout=CREATE_TOPICS_TIMEOUT_S)
        except KafkaException as error:
            _raise_unless_existing(name, error)
        except TimeoutError as error:
            raise BrokerUnavailable(f"Kafka did not create topic {name} in time") from error


def _raise_unless_existing(topic: str, error: KafkaException) -> None:
    cause = error.args[0]
    assert isinstance(cause, KafkaError)
    match cause.code():
        case KafkaError.TOPIC_ALREADY_EXISTS:
            return
        case KafkaError.TOPIC_AUTHORIZATION_FAILED | KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            raise AccessDenied(f"may not create topic {topic}: grant CREATE on it") from error
        case KafkaError.INVALID_REPLICATION_FACTOR:
            raise PipelineHalted(
                f"topic {topic}: fewer brokers than replication_factor; lower it or add brokers"
            ) from error
        case _:
            raise BrokerUnavailable(f"topic {topic} was not created: {cause.str()}") from error
