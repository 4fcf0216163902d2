"""Kafka that knows Headwater by a client's certificate, or by a token of an identity provider: each client library of ours.

One broker, which lets nobody do anything but the two identities, each on a listener of its own.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from libs.config.connections import KafkaOauth, KafkaSettings, SaslMechanism, SecurityProtocol
from libs.config.load import Secret
from libs.errors import AccessDenied, BrokerUnavailable, ServiceUnavailable
from libs.kafka.aiokafka_clients import aiokafka_config
from libs.kafka.clients import TopicSpec, client_config, ensure_topics
from libs.kafka.oauth import fetch_token
from libs.servers import kafka_broker
from libs.servers.ports import LOOPBACK, free_ports
from libs.servers.process import start, stop, wait_ready
from services.router.app import _credentials
from spark.kafka.read_topics import read_records
from tests.certificates import write_certificates
from tests.conftest import ValkeyServer
from tests.identity_provider import IdentityProvider, identity_provider
from tests.integration.router_rig import column, orders_schema, record_schema
from tests.integration.service_process import ServiceProcess, start_supervised
from tests.spark_session import shared_spark
from tests.waiting import wait_until

CLIENT, CLIENT_SECRET = "headwater", 's3cret "&+:'
TIMEOUT_S = 120.0
IDENTITIES = ["certificate", "token"]

pytestmark = pytest.mark.rest(because="test_kafka_sasl.py has each library of ours at a Kafka with TLS and passwords")


@dataclass(frozen=True, slots=True)
class KnowingKafka:
    """The broker's two listeners, and the identity that a client shows there."""

    port: int
    """Of the listener that asks nobody."""
    mutual_port: int
    token_port: int
    files: dict[str, str]
    provider: IdentityProvider

    def settings(self, identity: str, *, secret: str = CLIENT_SECRET, is_anonymous: bool = False) -> KafkaSettings:
        if identity == "certificate":
            shown = {"ssl_certificate_file": self.files["certificate"], "ssl_key_file": self.files["key"]}
            return KafkaSettings(
                bootstrap_servers=f"{LOOPBACK}:{self.mutual_port}",
                security_protocol=SecurityProtocol.SSL,
                ssl_ca_file=self.files["ca"],
                **({} if is_anonymous else shown),
            )
        return KafkaSettings(
            bootstrap_servers=f"{LOOPBACK}:{self.token_port}",
            security_protocol=SecurityProtocol.SASL_SSL,
            sasl_mechanism=SaslMechanism.OAUTHBEARER,
            ssl_ca_file=self.files["ca"],
            oauth=KafkaOauth(
                token_url=self.provider.url,
                client_id=CLIENT,
                client_secret=Secret(secret),
                scope="kafka",
                ca_file=self.files["ca"],
            ),
        )


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnowingKafka]:
    folder = tmp_path_factory.mktemp("knowing-kafka")
    files = write_certificates(folder)
    port, controller_port, mutual_port, token_port = free_ports(4)
    keys = folder / "keys.json"
    with ExitStack() as servers:
        provider = servers.enter_context(identity_provider(CLIENT, CLIENT_SECRET, certificate_file=files["both"]))
        provider.write_keys(keys)
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}"
        spec = kafka_broker.prepare(
            folder / "data",
            port=port,
            controller_port=controller_port,
            java_options=(*kafka_broker.SHORT_LIFE_OPTIONS, allowed),
        )
        add_listeners(folder / "data" / "server.properties", mutual_port, token_port, files, keys)
        broker = start(spec, folder / "logs")
        servers.callback(lambda: stop(broker, TIMEOUT_S))
        wait_ready(broker, TIMEOUT_S)
        yield KnowingKafka(port, mutual_port, token_port, files, provider)


def add_listeners(file: Path, mutual_port: int, token_port: int, files: dict[str, str], keys: Path) -> None:
    """Kafka 4.3 documentation, chapter 7 "Security". The open listener is the broker's own, and may do everything."""
    settings = dict(line.split("=", 1) for line in file.read_text().splitlines())
    added = f"MUTUAL://{LOOPBACK}:{mutual_port},TOKEN://{LOOPBACK}:{token_port}"
    for name in ("listeners", "advertised.listeners"):
        settings[name] += f",{added}"
    settings["listener.security.protocol.map"] += ",MUTUAL:SSL,TOKEN:SASL_SSL"
    oauth = "org.apache.kafka.common.security.oauthbearer"
    for listener in ("mutual", "token"):
        settings[f"listener.name.{listener}.ssl.keystore.type"] = "PEM"
        settings[f"listener.name.{listener}.ssl.keystore.location"] = files["both"]
    settings |= {
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.truststore.type": "PEM",
        "listener.name.mutual.ssl.truststore.location": files["ca"],
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.token.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.token.oauthbearer.sasl.jaas.config": f"{oauth}.OAuthBearerLoginModule required;",
        "listener.name.token.oauthbearer.sasl.server.callback.handler.class": f"{oauth}.OAuthBearerValidatorCallbackHandler",
        "listener.name.token.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{CLIENT};User:CN=peer",
        "allow.everyone.if.no.acl.found": "false",
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


@pytest.mark.parametrize("identity", IDENTITIES)
def test_each_library_writes_and_reads(kafka: KnowingKafka, identity: str, unique_name: Callable[[str], str]) -> None:
    """librdkafka (readers, services, commands), aiokafka (the router's writes), and Spark's own client (sinks)."""
    settings, topic = kafka.settings(identity), unique_name("rows")

    ensure_topics(settings, [TopicSpec(name=topic)])
    producer = Producer({**client_config(settings), "transactional.id": unique_name("t")})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"first", partition=0)
    producer.commit_transaction(TIMEOUT_S)
    asyncio.run(write_and_read(settings, topic, unique_name("t")))
    # Each transaction ends with a marker, which has an offset too.
    records = read_records(shared_spark().session, settings, topic, {}, {0: 4}).collect()

    assert [bytes(record.value) for record in sorted(records, key=lambda each: each.offset)] == [b"first", b"second"]


async def write_and_read(settings: KafkaSettings, topic: str, transactional_id: str) -> None:
    """A transaction of one record; it is read after the one that is there."""
    producer = AIOKafkaProducer(**aiokafka_config(settings), transactional_id=transactional_id)
    consumer = AIOKafkaConsumer(topic, **aiokafka_config(settings), auto_offset_reset="earliest")
    await producer.start()
    try:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"second", partition=0)
    finally:
        await producer.stop()
    await consumer.start()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            assert [(await consumer.getone()).value, (await consumer.getone()).value] == [b"first", b"second"]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("identity", IDENTITIES)
def test_the_routers_consumer_shows_the_same(kafka: KnowingKafka, identity: str) -> None:
    """Faust's credentials; Faust gives them to aiokafka."""
    credentials = _credentials(kafka.settings(identity))

    assert credentials.protocol.value == ("SSL" if identity == "certificate" else "SASL_SSL")
    if identity == "token":
        assert asyncio.run(credentials.oauth_cb.token()).count(".") == 2


def test_a_client_certificate_and_its_authority_are_exchanged_without_a_lost_record(
    kafka: KnowingKafka, valkey_server: ValkeyServer, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """As docs/rotation.md says: the brokers trust both authorities, a service starts again with a certificate of the new one,
    then the former authority goes. Whoever shows its certificates is refused from then on."""
    source, files = unique_name("s"), write_certificates(tmp_path / "new")
    kafka_document = {
        "bootstrap_servers": f"{LOOPBACK}:{kafka.mutual_port}",
        "security_protocol": "SSL",
        "ssl_ca_file": kafka.files["ca"],
        "ssl_certificate_file": kafka.files["certificate"],
        "ssl_key_file": kafka.files["key"],
    }
    settings = {"kafka": kafka_document, "redis": {"url": valkey_server.url}}
    service = ServiceProcess.of("schema_history", tmp_path, settings)
    administrator = AdminClient({"bootstrap.servers": f"{LOOPBACK}:{kafka.port}"})

    def record(rank: int, *more: str) -> int:
        schema = orders_schema(*(column(name) for name in more))
        return asyncio.run(record_schema(service.client_settings, source, schema, rank=rank))

    def is_former_refused() -> bool:
        try:
            ensure_topics(kafka.settings("certificate"), [TopicSpec(name=unique_name("former"))])
        except (AccessDenied, BrokerUnavailable):
            return True
        return False  # the broker hears of a setting by the controller's log, a moment later

    def trust(*authorities: str) -> None:
        """From now on, by a setting that brokers take over while they run."""
        trusted = tmp_path / f"{unique_name('trusted')}.pem"
        trusted.write_text("".join(Path(each).read_text() for each in authorities))
        change = ConfigEntry(
            "listener.name.mutual.ssl.truststore.location", str(trusted), incremental_operation=AlterConfigOpType.SET
        )
        [done] = administrator.incremental_alter_configs(
            [ConfigResource(ResourceType.BROKER, "1", incremental_configs=[change])]
        ).values()
        done.result(TIMEOUT_S)

    try:
        start_supervised(service)
        versions = [record(1)]
        trust(kafka.files["ca"], files["ca"])
        versions.append(record(2, "note"))
        service.stop()
        shown = {"ssl_certificate_file": files["certificate"], "ssl_key_file": files["key"]}
        service.settings = {**settings, "kafka": {**kafka_document, **shown}}
        start_supervised(service)
        trust(files["ca"])
        versions.append(record(3, "note", "status"))
        repeated = record(2, "note")
        service.stop()
        wait_until(is_former_refused, because="the former authority is not trusted any more", pause_s=0.5)
    finally:
        trust(kafka.files["ca"])

    assert versions == [1, 2, 3]
    assert repeated == 2


def test_a_client_without_a_certificate_is_refused(kafka: KnowingKafka) -> None:
    """The broker ends the handshake; the message says that."""
    with pytest.raises((AccessDenied, BrokerUnavailable), match=r"(?i)certificate"):
        ensure_topics(kafka.settings("certificate", is_anonymous=True), [TopicSpec(name="never-made")])


def test_a_wrong_secret_gets_no_token(kafka: KnowingKafka) -> None:
    """The error has neither the secret given nor the right one."""
    settings = kafka.settings("token", secret="wr0ng")
    assert settings.oauth is not None

    with pytest.raises(
        ServiceUnavailable, match=r"answers 401: check oauth\.client_id, oauth\.client_secret"
    ) as caught:
        fetch_token(settings.oauth)
    assert "wr0ng" not in str(caught.value)
    with pytest.raises((AccessDenied, BrokerUnavailable), match=r"(?i)token|oauth|oidc"):
        ensure_topics(settings, [TopicSpec(name="never-made")])
    assert kafka.provider.refused
