"""Kafka with users, passwords and TLS: the work of each client of ours there, and its error when it is refused.

One broker for all tests, with an open listener for the tests themselves, SASL_PLAINTEXT and SASL_SSL.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from libs.cli.main import headwater
from libs.config.connections import KafkaSettings, SaslMechanism, SecurityProtocol
from libs.config.load import Secret
from libs.errors import AccessDenied, InvalidSettings, SourceUnavailable
from libs.events.dead_letter import DeadLetter, SetAsideBy, decode_replay_request, encode_dead_letter
from libs.events.delivered_schema import DeliveredSchema, delivered_schema_key, encode_delivered_schema
from libs.events.names import (
    SIGNALS_TOPIC,
    changes_topic,
    dead_letter_topic,
    replays_topic,
    row_topic,
    table_schemas_topic,
    wakes_topic,
)
from libs.kafka.clients import TopicSpec, client_config, ensure_topics
from libs.mesh.tenant_topics import open_consumer, read_to_end
from libs.servers.kafka_broker import Sasl
from libs.servers.ports import LOOPBACK, free_ports
from libs.sink_state.wake import decode_wake
from libs.source.signal_topic import signals_topic
from libs.stand_ins.dts.recording import Slice, read_slice
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from protos.dts import subscription_pb2 as pb
from services.dts_decoder.client import SubscriptionClient
from services.dts_decoder.settings import SubscriptionSettings
from services.router.kafka.kafka_refusals import TopicsRefused
from spark.kafka.read_topics import read_records
from spark.kafka.topic_tails import committed_ends
from tests.certificates import write_certificates
from tests.conftest import KafkaBroker, ValkeyServer, start_kafka_in
from tests.integration.router_rig import RouterProcess, created_ids, read_until
from tests.integration.service_process import ServiceProcess, started_services
from tests.integration.test_router_writer import Rig, numbered
from tests.spark_session import shared_spark
from tests.unit.dts_decoder.topic import begin, commit, insert

USER, PASSWORD = "account-subs-1-headwater", "s3cret"
OTHER_USER = "account-subs-2-other"
EXIT_HALTED = 3
PASSWORD_MECHANISMS = [mechanism for mechanism in SaslMechanism if mechanism.has_password]
PLAINTEXT, TLS = SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL


@dataclass(frozen=True, slots=True)
class GuardedKafka:
    """The broker, and how its guarded listeners are reached."""

    broker: KafkaBroker
    sasl: Sasl
    ca_file: str

    def address(self, protocol: SecurityProtocol) -> str:
        return f"{LOOPBACK}:{self.sasl.tls_port if protocol is TLS else self.sasl.port}"

    def settings(
        self, protocol: SecurityProtocol, mechanism: SaslMechanism, *, password: str = PASSWORD
    ) -> KafkaSettings:
        """Headwater's own Kafka."""
        return KafkaSettings(
            bootstrap_servers=self.address(protocol),
            security_protocol=protocol,
            sasl_mechanism=mechanism,
            sasl_username=USER,
            sasl_password=Secret(password),
            ssl_ca_file=self.ca_file if protocol is TLS else None,
        )

    def document(self, protocol: SecurityProtocol, mechanism: SaslMechanism) -> dict[str, object]:
        """The same in a service's file."""
        return {
            "bootstrap_servers": self.address(protocol),
            "security_protocol": protocol.value,
            "sasl_mechanism": mechanism.value,
            "sasl_username": USER,
            "sasl_password": PASSWORD,
            **({"ssl_ca_file": self.ca_file} if protocol is TLS else {}),
        }


@dataclass(frozen=True, slots=True)
class Topic:
    """A subscription's topic, filled over the open listener."""

    kafka: GuardedKafka
    name: str

    @property
    def group(self) -> str:
        return f"consumer-grp-{self.name}"

    def send(self, *values: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.broker.bootstrap_servers})
        for ps, value in enumerate(values, 1):
            producer.produce(self.name, value=value, partition=0, headers=[("ps", str(ps).encode())])
        assert producer.flush(120) == 0

    def subscription(
        self,
        protocol: SecurityProtocol | None = None,
        mechanism: SaslMechanism = SaslMechanism.SCRAM_SHA_512,
        **fields: object,
    ) -> SubscriptionSettings:
        """As DTS's console hands it out."""
        given = {
            "bootstrap_servers": self.kafka.address(protocol or PLAINTEXT),
            "topic": self.name,
            "group_id": self.group,
            "username": USER,
            "password": Secret(PASSWORD),
            "security_protocol": protocol,
            "sasl_mechanism": mechanism,
            "ssl_ca_file": self.kafka.ca_file if protocol is TLS else None,
            **fields,
        }
        return SubscriptionSettings(**given)  # type: ignore[arg-type]

    def group_offset(self) -> int:
        """As DTS's console sees it."""
        consumer = Consumer({"bootstrap.servers": self.kafka.broker.bootstrap_servers, "group.id": self.group})
        try:
            [found] = consumer.committed([TopicPartition(self.name, 0)], timeout=120.0)
            return int(found.offset)
        finally:
            consumer.close()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    folder = tmp_path_factory.mktemp("guarded-kafka")
    files = write_certificates(folder)
    port, tls_port = free_ports(2)
    sasl = Sasl({USER: PASSWORD, OTHER_USER: "another"}, port, tls_port, Path(files["both"]))
    with ExitStack() as servers:
        yield GuardedKafka(start_kafka_in(folder, servers, sasl=sasl), sasl, files["ca"])


@pytest.fixture
def topic(kafka: GuardedKafka, unique_name: Callable[[str], str]) -> Topic:
    name = unique_name("topic-subs")
    ensure_topics(KafkaSettings(bootstrap_servers=kafka.broker.bootstrap_servers), [TopicSpec(name=name)])
    return Topic(kafka, name)


@pytest.mark.parametrize("protocol", [PLAINTEXT, TLS])
@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_each_mechanism_reads_and_sets_the_group(
    topic: Topic, protocol: SecurityProtocol, mechanism: SaslMechanism
) -> None:
    """All requests of the decoder to the subscription's Kafka, with and without TLS."""
    topic.send(b"one", b"two", b"three")
    client = SubscriptionClient(topic.subscription(protocol, mechanism))

    client.require_partition()
    client.begin(1)
    values: list[bytes] = []
    while len(values) < 2:
        values += [message.value for message in client.receive(10.0).messages]
    client.confirm(2)
    client.close()

    assert values == [b"two", b"three"]
    assert topic.group_offset() == 2


def test_scram_is_what_a_user_gets_who_names_no_protocol(topic: Topic) -> None:
    """As DTS's console hands a subscription out: address, user and password, nothing else."""
    client = SubscriptionClient(topic.subscription())

    client.require_partition()

    assert client.ends() == (0, 0)
    client.close()


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_a_wrong_password_is_named_with_its_remedy(topic: Topic, mechanism: SaslMechanism) -> None:
    """No retry helps; the error has neither the password given nor the right one."""
    client = SubscriptionClient(topic.subscription(PLAINTEXT, mechanism, password=Secret("wr0ng")))

    with pytest.raises(AccessDenied, match="check username, password and consumer group in DTS's console") as caught:
        client.require_partition()

    client.close()
    assert "Authentication failed" in str(caught.value)
    assert "wr0ng" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_a_broker_whose_certificate_is_not_trusted_is_refused(topic: Topic) -> None:
    """The machine does not know the test's authority; the password is not sent."""
    client = SubscriptionClient(topic.subscription(TLS, ssl_ca_file=None))

    with pytest.raises(AccessDenied, match=r"certificate verify failed.*subscription\.ssl_ca_file"):
        client.require_partition()

    client.close()


def test_a_listener_of_another_protocol_is_told_of(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks like a network that fails, so it is tried again; the reason names the setting."""
    monkeypatch.setattr("services.dts_decoder.client._ANSWER_TIMEOUT_S", 3.0)
    client = SubscriptionClient(topic.subscription(username=None))

    with pytest.raises(SourceUnavailable, match="perhaps it wants another security_protocol"):
        client.require_partition()

    client.close()


@pytest.mark.parametrize("of_group", [True, False])
def test_a_right_that_is_missing_is_named(topic: Topic, of_group: bool) -> None:
    """The account is another subscription's: its topic, or its consumer group, belongs to somebody else."""
    admin = AdminClient({"bootstrap.servers": topic.kafka.broker.bootstrap_servers})
    resource, name = (ResourceType.GROUP, topic.group) if of_group else (ResourceType.TOPIC, topic.name)
    owned = AclBinding(
        resource,
        name,
        ResourcePatternType.LITERAL,
        f"User:{OTHER_USER}",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    for created in admin.create_acls([owned]).values():
        created.result(timeout=120.0)
    client = SubscriptionClient(topic.subscription())

    def read() -> None:
        client.require_partition()
        client.begin(0)
        client.receive(15.0)

    with pytest.raises(AccessDenied, match=r"authorization failed.*check username, password and consumer group"):
        read()

    client.close()


def test_a_recording_of_a_subscription_is_refused_by_name(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of `headwater dts record`."""
    monkeypatch.setattr("libs.stand_ins.dts.recording._ANSWER_TIMEOUT_S", 2.0)
    settings = topic.kafka.settings(PLAINTEXT, SaslMechanism.PLAIN, password="wr0ng")

    with pytest.raises(AccessDenied, match=r"cannot be read \(.*Authentication failed.*check user, password"):
        list(read_slice(settings, Slice(topic.name), group_id=topic.group))


def test_headwaters_own_kafka_refuses_by_name(kafka: GuardedKafka) -> None:
    """The first call of every service; at once, not after half a minute."""
    settings = kafka.settings(PLAINTEXT, SaslMechanism.SCRAM_SHA_512, password="wr0ng")

    with pytest.raises(AccessDenied, match=r"Authentication failed.*check kafka\.sasl_username, sasl_password"):
        ensure_topics(settings, [TopicSpec(name="never-made")])


def test_an_authority_that_cannot_be_read_is_a_mistake_in_the_settings(kafka: GuardedKafka, tmp_path: Path) -> None:
    """By the file's name."""
    settings = KafkaSettings(
        bootstrap_servers=kafka.address(TLS),
        security_protocol=SecurityProtocol.SSL,
        ssl_ca_file=str(tmp_path / "none.pem"),
    )

    with pytest.raises(InvalidSettings, match=r"ssl_ca_file: .*none\.pem cannot be read"):
        ensure_topics(settings, [TopicSpec(name="never-made")])


def test_rows_come_all_the_way_with_every_kafka_behind_users(
    kafka: GuardedKafka, valkey_server: ValkeyServer, topic: Topic, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    """Subscription, decoder, both services, the router (its two Kafka libraries), Spark; then the password is a wrong one."""
    by_tls = kafka.document(TLS, SaslMechanism.SCRAM_SHA_512)
    source, tenant = unique_name("s"), "acme"
    with started_services(kafka.broker.bootstrap_servers, valkey_server.url, tmp_path, kafka=by_tls) as services:
        subscription = {"topic": topic.name, "group_id": topic.group, "username": USER, "password": PASSWORD}
        decoder = ServiceProcess.of(
            "dts_decoder",
            tmp_path,
            {
                "source": source,
                "subscription": {"bootstrap_servers": kafka.address(PLAINTEXT), **subscription},
                "kafka": kafka.document(PLAINTEXT, SaslMechanism.PLAIN),
                **services.addresses,
            },
        )
        tenants = tmp_path / "tenants"
        tenants.mkdir()
        (tenants / f"{tenant}.yaml").write_text(yaml.safe_dump({"tenant": tenant, "sources": [{"name": source}]}))
        router = RouterProcess(
            tmp_path,
            {
                "sources": [source],
                "group": source,
                "kafka": by_tls,
                "tenants_folder": str(tenants),
                **services.addresses,
            },
        )
        try:
            decoder.start()
            router.start()
            data = pb.Entries(items=[begin(1), insert(1, 2), commit(1)]).SerializeToString()
            topic.send(pb.Envelope(version=1, total=1, data=data).SerializeToString())
            routed = f"{tenant}.{source}.shop.orders"
            found = read_until(kafka.broker.bootstrap_servers, routed, lambda messages: len(messages) >= 2)
            decoder.stop()
            decoder.settings = {
                **decoder.settings,
                "subscription": {**subscription, "bootstrap_servers": kafka.address(PLAINTEXT), "password": "wr0ng"},
            }
            decoder.start(waits=False)
            exit_code = decoder.wait_for_exit()
        finally:
            decoder.stop()
            router.stop()

    assert created_ids(found) == [1, 2]
    assert exit_code == EXIT_HALTED
    assert "denies the decoder" in decoder.log_text
    assert "wr0ng" not in decoder.log_text
    assert _read_by_spark(kafka.settings(TLS, SaslMechanism.SCRAM_SHA_512), routed) == 2


def _read_by_spark(settings: KafkaSettings, topic: str) -> int:
    """Committed records, as a sink reads them."""
    session = shared_spark().session
    ends = committed_ends(session, settings, f"^{re.escape(topic)}$", {topic: {0: 0}})
    return read_records(session, settings, topic, {}, ends[topic]).count()


@pytest.mark.parametrize("sees_it", [True, False])
async def test_a_topic_that_the_router_may_not_write_is_named_and_others_go_on(
    kafka: GuardedKafka, unique_name: Callable[[str], str], sees_it: bool
) -> None:
    """The transaction's other records are aborted at Kafka too: they do not show with the next one's commit."""
    rig = Rig(kafka.broker.bootstrap_servers, unique_name("writer"))
    closed = f"closed-{rig.topic}"
    ensure_topics(rig.kafka, [TopicSpec(name=closed)])
    rules = [_acl(closed, AclOperation.WRITE, AclPermissionType.DENY)]
    rules += [_acl(closed, AclOperation.DESCRIBE, AclPermissionType.ALLOW)] * sees_it
    admin = AdminClient({"bootstrap.servers": kafka.broker.bootstrap_servers})
    for answer in admin.create_acls(rules).values():
        answer.result(120)
    rig.kafka = kafka.settings(PLAINTEXT, SaslMechanism.SCRAM_SHA_512)

    async with rig.writer() as writer:
        await rig.write(writer, numbered(0, 2))
        await writer.begin()
        await writer.write(numbered(100, 2), [rig.topic])
        await writer.send_gathered()
        await asyncio.sleep(0.5)  # Kafka has these
        with pytest.raises(TopicsRefused) as refused:
            await writer.write(numbered(200, 2), [closed])
            await writer.send_gathered()
            await writer.send_offset(2)
            await writer.commit()
        assert refused.value.topics == {closed}
        assert "grant the router WRITE" in str(refused.value)
        await writer.abort()
        await rig.write(writer, numbered(2, 2), next_offset=2)

    assert [message.key() for message in rig.read()] == [b"0", b"1", b"2", b"3"]


def _acl(topic: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation, permission
    )


# --- commands on a mesh elsewhere --------------------------------------------------------------------------------------


class Elsewhere:
    """A mesh of one tenant and one source, of which a command's file says how its Kafka is reached, over TLS and by a user."""

    def __init__(self, kafka: GuardedKafka, folder: Path, name: str) -> None:
        self.kafka, self.broker = kafka.settings(TLS, SaslMechanism.SCRAM_SHA_512), kafka.broker.bootstrap_servers
        self.tenant, self.source = f"{name}-t".replace("_", "-"), f"{name}-s".replace("_", "-")
        tables = [TableId(database="shop", table=table) for table in ("orders", "users")]
        # The second one as a document with topics.name has it.
        self.topics = [
            row_topic(self.tenant, self.source, tables[0]),
            row_topic(self.tenant, self.source, tables[1], "{tenant}.cdc.{table}"),
        ]
        self.file = folder / "kafka.yaml"
        self.file.write_text(yaml.safe_dump({"kafka": kafka.document(TLS, SaslMechanism.SCRAM_SHA_512)}))
        schemas = table_schemas_topic(self.tenant)
        names = [changes_topic(self.source), dead_letter_topic(self.tenant), schemas, *self.topics]
        ensure_topics(self.kafka, [signals_topic(1), *(TopicSpec(name=each) for each in names)])
        producer = Producer(client_config(self.kafka))
        for topic, table_id in zip(self.topics, tables, strict=True):
            schema = TableSchema(table_id=table_id, columns=(), key=(), version=1)
            delivered = DeliveredSchema(topic=topic, source=self.source, table_schema=schema)
            producer.produce(schemas, encode_delivered_schema(delivered), delivered_schema_key(topic, 1))
        assert producer.flush(120) == 0

    def set_aside(self, by: SetAsideBy, topic: str) -> None:
        letter = DeadLetter(
            tenant=self.tenant,
            source=self.source,
            topic=topic,
            database="shop",
            table=topic.rpartition(".")[2],
            op="u",
            schema_version=1,
            order=EventOrder(epoch=1, rank=2, tx_ordinal=3),
            reason="a value does not fit",
            set_aside_by=by,
            event_key=b'{"id":7}',
            event_value=b"{}",
            event_kafka_partition=0 if by is SetAsideBy.SINK else None,
            event_offset=3 if by is SetAsideBy.SINK else None,
        )
        producer = Producer(client_config(self.kafka))
        producer.produce(dead_letter_topic(self.tenant), encode_dead_letter(letter))
        assert producer.flush(120) == 0

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(headwater, [*arguments, "--mesh", str(self.file)])

    def records(self, topic: str) -> list[bytes]:
        consumer = open_consumer(self.kafka)
        try:
            return [m.value() or b"" for m in read_to_end(consumer, {(topic, 0): OFFSET_BEGINNING}, timeout_s=60.0)]
        finally:
            consumer.close()


@pytest.fixture
def elsewhere(kafka: GuardedKafka, tmp_path: Path, unique_name: Callable[[str], str]) -> Elsewhere:
    return Elsewhere(kafka, tmp_path, unique_name("mesh"))


def test_dead_letters_of_a_mesh_elsewhere_are_shown_and_asked_to_be_taken_up(elsewhere: Elsewhere) -> None:
    """Of the tables that the sink has set rows aside of, all keys: which are parked is not to be seen from here."""
    orders, users = elsewhere.topics
    elsewhere.set_aside(SetAsideBy.SINK, orders)
    elsewhere.set_aside(SetAsideBy.ROUTER, users)

    listed = elsewhere.run("dead-letter", "list", elsewhere.tenant)
    assert listed.exit_code == 0, listed.output
    assert "parked or taken up" in listed.output
    assert "set aside" in listed.output
    assert '{"id":7}' in elsewhere.run("dead-letter", "show", elsewhere.tenant, "0").output
    of_users = elsewhere.run("dead-letter", "list", elsewhere.tenant, "users")
    assert of_users.exit_code == 0, of_users.output
    assert "set aside" in of_users.output
    assert "taken up" not in of_users.output

    replayed = elsewhere.run("dead-letter", "replay", elsewhere.tenant)

    assert replayed.exit_code == 0, replayed.output
    assert f"asked for all parked keys of {orders};" in replayed.output
    assert "1 event set aside by the router, which no replay takes up" in replayed.output
    [request] = map(decode_replay_request, elsewhere.records(replays_topic(elsewhere.tenant)))
    assert (request.topic, request.keys) == (orders, ())
    assert "--key names a parked key" in elsewhere.run("dead-letter", "replay", elsewhere.tenant, "--key", "{}").output


def test_parked_tables_of_a_mesh_elsewhere_are_asked_to_be_tried(elsewhere: Elsewhere) -> None:
    """All of the tenant's, or the named one."""
    of_all, of_one = elsewhere.run("retry", elsewhere.tenant), elsewhere.run("retry", elsewhere.tenant, "users")

    assert (of_all.exit_code, of_one.exit_code) == (0, 0), of_all.output + of_one.output
    wakes = [decode_wake(value).retried_topics for value in elsewhere.records(wakes_topic(elsewhere.tenant))]
    assert wakes == [tuple(sorted(elsewhere.topics)), (elsewhere.topics[1],)]


def test_a_source_elsewhere_is_sent_a_signal(elsewhere: Elsewhere) -> None:
    """The record is the one that its reader would be sent from a home."""
    sent = elsewhere.run("signal", elsewhere.source, "execute-snapshot", "shop.orders", "--id", "again")

    assert sent.exit_code == 0, sent.output
    signals = [json.loads(value) for value in elsewhere.records(SIGNALS_TOPIC) if value.startswith(b"{")]
    assert {"id": "again", "type": "execute-snapshot"}.items() <= signals[-1].items()


def test_mistakes_about_a_mesh_elsewhere_are_named(elsewhere: Elsewhere) -> None:
    """With the nearest right name, and a mistake of the file with its line."""
    misspelt = elsewhere.run("retry", f"{elsewhere.tenant}x")
    no_source = elsewhere.run("signal", f"{elsewhere.source}x", "pause-snapshot")
    elsewhere.file.write_text("kafka:\n  bootstrap_server: a:1\n")
    bad_file = elsewhere.run("dead-letter", "list", elsewhere.tenant)

    assert f"did you mean {elsewhere.tenant!r}" in str(misspelt.exception)
    assert f"did you mean {elsewhere.source!r}" in str(no_source.exception)
    assert "bootstrap_server: unknown name; did you mean 'bootstrap_servers'" in str(bad_file.exception)


@pytest.mark.parametrize("sees_it", [False, True])
def test_tables_that_the_user_may_not_read_are_told_with_the_right_that_is_missing(
    elsewhere: Elsewhere, *, sees_it: bool
) -> None:
    """Whether or not it may describe the topic; the document is held against the table's name all the same."""
    topic, document = f"{elsewhere.source}.history", elsewhere.file.parent / "tenant.yaml"
    document.write_text(f"tenant: {elsewhere.tenant}\nsources: [{{name: {elsewhere.source}}}]\n")
    elsewhere.file.write_text(elsewhere.file.read_text() + f"schema_history_topic: {topic}\n")
    ensure_topics(elsewhere.kafka, [TopicSpec(name=topic)])
    rules = [_acl(topic, AclOperation.READ, AclPermissionType.DENY)]
    rules += [_acl(topic, AclOperation.DESCRIBE, AclPermissionType.ALLOW)] * sees_it
    admin = AdminClient({"bootstrap.servers": elsewhere.broker})
    for answer in admin.create_acls(rules).values():
        answer.result(120)

    told = elsewhere.run("tenant", "explain", elsewhere.tenant, "shop.orders", "--document", str(document))

    assert told.exit_code == 0, told.exception
    assert "is delivered to" in told.output
    assert f"topic {topic}: Kafka's user may not read it; grant READ" in told.output
