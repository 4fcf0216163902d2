"""librdkafka client configuration, from our settings, and topics that exist before they are used."""

import os
import ssl
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Final

import msgspec
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from libs.config.connections import KafkaOauth, KafkaSettings
from libs.errors import AccessDenied, BrokerUnavailable, HeadwaterError, InvalidSettings, PipelineHalted
from libs.events.names import folded_topic

CREATE_TOPICS_TIMEOUT_S = 30.0

# While a broker is away each client writes 2-20 plain lines a second to stderr, between the service's JSON. Its own logger
# does not help: lines wait for a poll() that transactional producers and admin clients never need, and pile up. So only
# critical lines are written; the caller that waits for Kafka reports once that it is away.
_LOG_LEVEL: Final = 2

_LOOK_EVERY_S: Final = 0.2
_DENIED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)


_FILES: Final = {
    "ssl_ca_file": "ssl.ca.location",
    "ssl_certificate_file": "ssl.certificate.location",
    "ssl_key_file": "ssl.key.location",
}
"""Settings that name a file of PEM, with librdkafka's names for them."""
_OF_THE_WORLD: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._SSL,
        KafkaError._DESTROY,
        KafkaError._WAIT_COORD,
        KafkaError.UNKNOWN,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.STALE_CTRL_EPOCH,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Errors that say nothing of a topic: the next attempt may have another answer."""


class TopicSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as it should be."""

    name: str
    kafka_partitions: int = 1
    replication_factor: int = 1
    config: Mapping[str, str] = msgspec.field(default_factory=dict)


def client_config(settings: KafkaSettings) -> dict[str, object]:
    """Connection part of a librdkafka configuration (librdkafka, CONFIGURATION.md).

    Raises:
        InvalidSettings: a file of certificates or of a key cannot be read.
    """
    config: dict[str, object] = {
        "bootstrap.servers": settings.bootstrap_servers,
        "security.protocol": settings.security_protocol.value,
        "log_level": _LOG_LEVEL,
    }
    if settings.sasl_mechanism is not None:
        config["sasl.mechanism"] = settings.sasl_mechanism.value
    if settings.oauth is not None:
        config.update(_oauth_config(settings.oauth))
    elif settings.sasl_mechanism is not None:
        config["sasl.username"] = settings.sasl_username or ""
        config["sasl.password"] = settings.sasl_password.reveal() if settings.sasl_password else ""
    for setting, name in _FILES.items():
        file = getattr(settings, setting)
        if file is not None:
            config[name] = _readable(setting, file)
    return config


def _oauth_config(oauth: KafkaOauth) -> dict[str, object]:
    """librdkafka asks for tokens in a thread of its own, so that producers and admin clients need no poll."""
    config: dict[str, object] = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": oauth.client_id,
        "sasl.oauthbearer.client.secret": oauth.client_secret.reveal(),
        "sasl.oauthbearer.token.endpoint.url": oauth.token_url,
    }
    if oauth.scope is not None:
        config["sasl.oauthbearer.scope"] = oauth.scope
    if oauth.ca_file is not None:
        config["https.ca.location"] = _readable("oauth.ca_file", oauth.ca_file)
    return config


def _readable(setting: str, file: str) -> str:
    if not os.access(file, os.R_OK):
        raise InvalidSettings("kafka", [f"{setting}: {file} cannot be read"])
    return file


def tls_context(settings: KafkaSettings) -> ssl.SSLContext | None:
    """For clients of Python's own TLS; None: the connection is not encrypted.

    Raises:
        InvalidSettings: a file of certificates or of a key cannot be read, or holds none.
    """
    if not settings.security_protocol.is_encrypted:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.ssl_ca_file)
        if settings.ssl_certificate_file is not None:
            context.load_cert_chain(settings.ssl_certificate_file, settings.ssl_key_file)
    except OSError as error:
        files = ", ".join(setting for setting in _FILES if getattr(settings, setting) is not None)
        raise InvalidSettings("kafka", [f"{files}: cannot be taken ({error})"]) from error
    return context


def ensure_topics(settings: KafkaSettings, topics: Sequence[TopicSpec]) -> None:
    """Create those of ``topics`` that do not exist; existing ones stay as they are. Blocks.

    It is the first that every service asks of Kafka, so its error says why there is no connection.

    Raises:
        BrokerUnavailable: Kafka did not answer in time; try again.
        AccessDenied: user, password or certificate are refused, or the user may not create the topic.
        PipelineHalted: Kafka refuses the topic as it should be; the message says why.
    """
    for error in create_topics(settings, topics).values():
        raise error


def ensure_partitions(settings: KafkaSettings, topic: str, count: int) -> None:
    """Give ``topic``, which exists, at least ``count`` Kafka partitions. Blocks.

    Raises:
        BrokerUnavailable: Kafka did not answer in time; try again.
        AccessDenied: the user may not change the topic; grant ALTER on it.
    """
    admin = AdminClient(client_config(settings))
    try:
        found = admin.list_topics(topic, timeout=CREATE_TOPICS_TIMEOUT_S).topics[topic]
        if len(found.partitions) < count:
            admin.create_partitions([NewPartitions(topic, count)])[topic].result(timeout=CREATE_TOPICS_TIMEOUT_S)
    except (KafkaException, TimeoutError) as error:
        cause = error.args[0] if isinstance(error, KafkaException) else None
        code = cause.code() if isinstance(cause, KafkaError) else None
        if code == KafkaError.INVALID_PARTITIONS:
            return  # somebody else, who wants as many or more of them, was quicker
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise AccessDenied(f"may not add partitions to topic {topic}: grant ALTER on it") from error
        raise BrokerUnavailable(f"topic {topic} was not given {count} partitions: {error}") from error


def create_topics(
    settings: KafkaSettings, topics: Sequence[TopicSpec], *, is_trial: bool = False
) -> dict[str, HeadwaterError]:
    """As ``ensure_topics``, but each topic by itself: the errors of those that do not exist now, by name. Blocks. A trial makes
    none, and reports the faults that it would meet.
    """
    if not topics:
        return {}
    faults: list[KafkaError] = []
    admin = AdminClient({**client_config(settings), "error_cb": faults.append})
    created: dict[str, Future[None]] = {}
    errors: dict[str, HeadwaterError] = {}
    for together in _apart(topics):
        requested: list[NewTopic] = []
        for topic in together:
            try:
                requested.append(
                    NewTopic(
                        topic.name,
                        num_partitions=topic.kafka_partitions,
                        replication_factor=topic.replication_factor,
                        config=dict(topic.config),
                    )
                )
            except (
                ValueError,
                TypeError,
                OverflowError,
            ) as error:  # librdkafka's own bounds; they are of this topic alone
                errors[topic.name] = PipelineHalted(f"topic {topic.name}: {error}; change what its document asks for")
        created |= _asked_for(admin, requested, errors, is_trial=is_trial)
    for name, future in created.items():
        try:
            _wait(future, admin, faults)
        except (KafkaException, TimeoutError) as error:
            ours = _as_ours(name, error, faults)
            if ours is not None:
                ours.__cause__ = error
                errors[name] = ours
    return errors


def _asked_for(
    admin: AdminClient, requested: Sequence[NewTopic], errors: dict[str, HeadwaterError], *, is_trial: bool
) -> "dict[str, Future[None]]":
    """In one request; where librdkafka refuses one for its content, each in its own, and that one is in ``errors``."""
    if not requested:
        return {}
    try:
        asked: dict[str, Future[None]] = admin.create_topics(
            list(requested), validate_only=is_trial, request_timeout=CREATE_TOPICS_TIMEOUT_S
        )
    except (ValueError, TypeError, OverflowError) as error:
        if len(requested) == 1:
            name = str(requested[0].topic)
            errors[name] = PipelineHalted(f"topic {name}: {error}; change what its document asks for")
            return {}
        made: dict[str, Future[None]] = {}
        for each in requested:
            made |= _asked_for(admin, [each], errors, is_trial=is_trial)
        return made
    return asked


def _apart(topics: Sequence[TopicSpec]) -> list[list[TopicSpec]]:
    """In so many requests that no two names of one are the same to Kafka: within a request it does not look."""
    requests: list[list[TopicSpec]] = []
    seen: Counter[str] = Counter()
    for topic in topics:
        number = seen[folded_topic(topic.name)]
        seen[folded_topic(topic.name)] += 1
        if number == len(requests):
            requests.append([])
        requests[number].append(topic)
    return requests


def all_topics(settings: KafkaSettings) -> dict[str, int]:
    """All topics that the user may see, each with how many Kafka partitions it has. Blocks.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    try:
        found = AdminClient(client_config(settings)).list_topics(timeout=CREATE_TOPICS_TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in found.items()}
    except KafkaException as error:
        raise BrokerUnavailable(f"Kafka does not list its topics: {error.args[0]}") from error


def denial_of(faults: Sequence[KafkaError]) -> KafkaError | None:
    """That fault of a client which no retry mends: its user, password, right or certificate; None: there is none."""
    for fault in faults:
        # librdkafka has one code for all that goes wrong with TLS; a connection that broke off is worth another try.
        if fault.code() in _DENIED or (fault.code() == KafkaError._SSL and "certificate verify failed" in fault.str()):
            return fault
    return None


def reason_of(faults: Sequence[KafkaError]) -> str:
    """Why there is no connection: the newest fault of a broker, rather than that all brokers are down."""
    own_faults = [fault for fault in faults if fault.code() != KafkaError._ALL_BROKERS_DOWN]
    # A listener that closes the connection at the first word is mostly in librdkafka's log alone.
    reason = own_faults[-1].str() if own_faults else "no answer"
    was_cut_off = not own_faults or (own_faults[-1].code() == KafkaError._TRANSPORT and "Connect to" not in reason)
    return f"{reason}; perhaps it wants another security_protocol" if was_cut_off else reason


def _wait(future: "Future[None]", admin: AdminClient, faults: Sequence[KafkaError]) -> None:
    """Until ``future`` is done. A refused login does not end it: librdkafka calls error_cb, and tries on."""
    deadline_s = time.monotonic() + CREATE_TOPICS_TIMEOUT_S + 1.0  # librdkafka's own time-out comes first
    while True:
        try:
            return future.result(timeout=_LOOK_EVERY_S)
        except (KafkaException, TimeoutError) as error:
            admin.poll(0)  # calls error_cb
            if isinstance(error, KafkaException) or denial_of(faults) or time.monotonic() >= deadline_s:
                raise


def _as_ours(topic: str, error: KafkaException | TimeoutError, faults: Sequence[KafkaError]) -> HeadwaterError | None:
    """None: the topic is there already."""
    cause = error.args[0] if isinstance(error, KafkaException) else None
    if denied := denial_of(faults):
        return AccessDenied(
            f"Kafka refuses the connection ({denied.str()}): check kafka.sasl_username, sasl_password, sasl_mechanism, oauth, "
            "ssl_ca_file and ssl_certificate_file"
        )
    if not isinstance(cause, KafkaError) or cause.code() == KafkaError._TIMED_OUT:
        return BrokerUnavailable(f"Kafka did not create topic {topic} in time: {reason_of(faults)}")
    match cause.code():
        case KafkaError.TOPIC_ALREADY_EXISTS:
            return None
        case KafkaError.TOPIC_AUTHORIZATION_FAILED | KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return AccessDenied(f"may not create topic {topic}: grant CREATE on it")
        case KafkaError.INVALID_REPLICATION_FACTOR:
            return PipelineHalted(f"topic {topic}: fewer brokers than replication_factor; lower it or add brokers")
        case KafkaError.TOPIC_EXCEPTION:  # also a name that another topic has, but for '.' and '_'
            return PipelineHalted(
                f"Kafka refuses topic {topic} ({cause.str()}); name the topics otherwise (topics.name), exclude the table, or "
                "delete the other topic if nothing is written to it any more"
            )
        case code if code in _OF_THE_WORLD:
            return BrokerUnavailable(f"topic {topic} was not created: {cause.str()}")
        case _:  # Kafka answered, and would not have this topic: the others are made all the same
            return PipelineHalted(f"Kafka refuses topic {topic} ({cause.str()}); change its document")
