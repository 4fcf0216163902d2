"""The Kafka users of the mesh on a real broker where nobody holds anything that no ACL gives him.

Each component works with its own rights, and is refused elsewhere.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from libs.config.connections import KafkaSettings, SaslMechanism, SecurityProtocol
from libs.config.load import Secret
from libs.errors import InvalidSettings
from libs.events.names import (
    AUDIT_TOPIC,
    CHECKPOINTS_TOPIC,
    SCHEMA_HISTORY_TOPIC,
    SIGNALS_TOPIC,
    SINK_HANDOVERS_TOPIC,
    changes_topic,
    dead_letter_topic,
    table_schemas_topic,
)
from libs.kafka.admin import KafkaClient
from libs.kafka.clients import TopicSpec, client_config, create_topics, ensure_topics
from libs.kafka.mesh_rights import COMPONENTS
from libs.kafka.sink_handovers import sink_handovers_topic
from libs.kafka.tenant_access import Acl, CreateTopic, Grant, SetPassword, prefix_of, user_of
from libs.servers.kafka_broker import Sasl
from libs.servers.ports import LOOPBACK, free_ports
from libs.source.signal_topic import send_signal
from services.tenant_operator.kafka_plan import RIGHTS
from services.tenant_operator.mesh_users import MeshUser, MeshUsersSettings, make_users
from tests.certificates import write_certificates
from tests.conftest import KafkaBroker, MysqlServer, ValkeyServer, start_kafka_in
from tests.integration.reader_pipeline import pipeline_of
from tests.integration.router_rig import RouterProcess, column, created_ids, orders_schema, read_until, record_schema
from tests.integration.service_process import ServiceProcess, Services, start_supervised

pytestmark = pytest.mark.rest(
    because="it has a broker and four services of its own; the gate compares the rights with the page, and the chart's Job"
)

ADMIN, PASSWORD = "admin", "s3cret"
TENANT, OTHER = "acme", "globex"
OF_ANOTHER_TEAM = "of-another-team"
OF_THE_MESH = (CHECKPOINTS_TOPIC, SCHEMA_HISTORY_TOPIC, SIGNALS_TOPIC, AUDIT_TOPIC, SINK_HANDOVERS_TOPIC)
WITHIN_S = 120.0


class Mesh:
    """A broker, its super user, and the users of a mesh that reads ``source``."""

    def __init__(self, broker: KafkaBroker, sasl: Sasl, source: str) -> None:
        self.broker, self.source = broker, source
        self._address = f"{LOOPBACK}:{sasl.port}"

    def settings(self, user: str, password: str = PASSWORD) -> KafkaSettings:
        return KafkaSettings(
            bootstrap_servers=self._address,
            security_protocol=SecurityProtocol.SASL_PLAINTEXT,
            sasl_mechanism=SaslMechanism.SCRAM_SHA_512,
            sasl_username=user,
            sasl_password=Secret(password),
        )

    def document(self, component: str, password: str = PASSWORD) -> Mapping[str, object]:
        """The same in a component's settings file."""
        return {
            "bootstrap_servers": self._address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": f"headwater-{component}",
            "sasl_password": password,
        }

    def users(self, password: str = PASSWORD) -> MeshUsersSettings:
        return MeshUsersSettings(
            kafka=self.settings(ADMIN),
            users=tuple(
                MeshUser(
                    component=each, username=f"headwater-{each}", password=Secret(password), sources=(self.source,)
                )
                for each in COMPONENTS
            ),
        )

    def permitted(self, user: str, topics: Sequence[str]) -> dict[AclOperation, set[str]]:
        """The topics that Kafka lets this user read, and write, as its authorizer says."""
        admin = AdminClient(client_config(self.settings(user)))
        described = admin.describe_topics(TopicCollection(list(topics)), include_authorized_operations=True)
        found: dict[AclOperation, set[str]] = {AclOperation.READ: set(), AclOperation.WRITE: set()}
        for topic, answer in described.items():
            try:
                operations = answer.result(WITHIN_S).authorized_operations
            except KafkaException as error:
                assert error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, error
                continue
            for operation, allowed in found.items():
                allowed |= {topic} if operation in operations else set()
        return found

    def refusal(self, user: str, topic: str) -> str:
        """Kafka's error for a record of this user; empty: it took it."""
        told: list[str] = []
        producer = Producer({**client_config(self.settings(user)), "enable.idempotence": False})
        producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error.name() if error else ""))
        assert producer.flush(WITHIN_S) == 0
        return told[0]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaBroker, Sasl]]:
    folder = tmp_path_factory.mktemp("denying-kafka")
    files = write_certificates(folder)
    port, tls_port = free_ports(2)
    certificate = Path(files["both"])
    sasl = Sasl({ADMIN: PASSWORD}, port, tls_port, certificate, super_users=(ADMIN,), denies_by_default=True)
    with ExitStack() as servers:
        yield start_kafka_in(folder, servers, sasl=sasl), sasl


def test_each_component_works_with_its_own_rights_and_is_refused_elsewhere(
    kafka: tuple[KafkaBroker, Sasl],
    mysql_server: MysqlServer,
    valkey_server: ValkeyServer,
    database: str,
    tmp_path: Path,
) -> None:
    """Rows go from MySQL to a tenant's topic by four services, each with its own user; then each tries things that are not its
    own."""
    mesh = Mesh(*kafka, source=database)
    asyncio.run(make_users(mesh.users(), asyncio.Event()))
    asyncio.run(_take_a_tenant_in(mesh, TENANT))
    asyncio.run(_take_a_tenant_in(mesh, OTHER))
    mysql_server.execute("CREATE TABLE orders (id INT PRIMARY KEY)", "INSERT INTO orders VALUES (1)", database=database)
    tenants = tmp_path / "tenants"
    tenants.mkdir()
    for tenant in (TENANT, OTHER):
        (tenants / f"{tenant}.yaml").write_text(f"tenant: {tenant}\nsources: [{{name: {database}}}]\n")
    with ExitStack() as running:
        services = _started(mesh, valkey_server, tmp_path, running)
        captured = {"include_tables": [rf"{database}\..*"], "heartbeat_interval_s": 1.0}
        reader = pipeline_of(tmp_path, database, mesh.broker, services, mysql_server, **captured)
        reader.reader.settings = {**reader.reader.settings, "kafka": mesh.document("reader")}
        running.callback(reader.stop)
        reader.reader.start()
        settings = {"sources": [database], "tenants_folder": str(tenants), **services.addresses}
        router = RouterProcess(tmp_path / "router", {"kafka": mesh.document("router"), **settings})
        running.callback(router.stop)
        router.start()
        reader.wait_for_log()
        mysql_server.execute("INSERT INTO orders VALUES (2)", database=database)
        topic = f"{TENANT}.{database}.{database}.orders"
        found = read_until(mesh.broker.bootstrap_servers, topic, lambda messages: len(messages) >= 2)
        send_signal(mesh.settings("headwater-tenant-operator"), database, '{"id": "1", "type": "pause-snapshot"}')

        assert created_ids(found) == [1, 2]
        for log in (services.schema_history, services.checkpoint_committer, reader.reader, router):
            assert "AUTHORIZATION" not in log.log_text.upper(), log.log_text
    open_broker = KafkaSettings(bootstrap_servers=mesh.broker.bootstrap_servers)
    ensure_topics(open_broker, [TopicSpec(name=OF_ANOTHER_TEAM), TopicSpec(name=AUDIT_TOPIC)])
    changes, schemas = changes_topic(database), table_schemas_topic(TENANT)
    others = f"{OTHER}.{database}.{database}.orders"
    topics = (changes, *OF_THE_MESH, topic, others, schemas, OF_ANOTHER_TEAM)
    of_tenants = {topic, others, schemas, OF_ANOTHER_TEAM}
    written = {
        "schema-history": {SCHEMA_HISTORY_TOPIC, AUDIT_TOPIC},
        "checkpoint-committer": {CHECKPOINTS_TOPIC, AUDIT_TOPIC},
        "reader": {changes, CHECKPOINTS_TOPIC, AUDIT_TOPIC},
        "router": of_tenants,
        "tenant-operator": {SIGNALS_TOPIC, SINK_HANDOVERS_TOPIC},
        "sink": {*of_tenants, SINK_HANDOVERS_TOPIC},
        "check": {SIGNALS_TOPIC},
    }
    read = {
        "schema-history": {SCHEMA_HISTORY_TOPIC},
        "checkpoint-committer": {CHECKPOINTS_TOPIC},
        "reader": {SIGNALS_TOPIC},
        "router": {changes},
        "tenant-operator": {SINK_HANDOVERS_TOPIC},
        "sink": {*of_tenants, SINK_HANDOVERS_TOPIC},
        "check": {*of_tenants, changes, CHECKPOINTS_TOPIC},
    }
    for component in COMPONENTS:
        permitted = mesh.permitted(f"headwater-{component}", topics)
        assert permitted[AclOperation.READ] == read[component], component
        assert permitted[AclOperation.WRITE] == written[component], component
    assert mesh.refusal("headwater-router", CHECKPOINTS_TOPIC) == "TOPIC_AUTHORIZATION_FAILED"
    assert mesh.refusal("headwater-sink", changes) == "TOPIC_AUTHORIZATION_FAILED"
    assert mesh.refusal(user_of(TENANT), topic) == "TOPIC_AUTHORIZATION_FAILED"
    permitted = mesh.permitted(user_of(TENANT), topics)
    assert permitted[AclOperation.READ] == {topic, schemas}
    assert permitted[AclOperation.WRITE] == set()


def test_users_are_made_again_with_another_password_and_without_rights_that_nobody_planned(
    kafka: tuple[KafkaBroker, Sasl], unique_name: Callable[[str], str]
) -> None:
    """As a Job does that runs again: the old password is refused, a foreign right is gone, and nothing else changes."""
    mesh = Mesh(*kafka, source=unique_name("s"))
    asyncio.run(make_users(mesh.users(), asyncio.Event()))

    async def held() -> frozenset[object]:
        client = KafkaClient(mesh.settings(ADMIN))
        try:
            return frozenset(await client.rights_of_users({"headwater-router"}))
        finally:
            await client.close()

    planned = asyncio.run(held())
    asyncio.run(_grant_too_much(mesh))
    assert asyncio.run(held()) > planned
    asyncio.run(make_users(mesh.users("another"), asyncio.Event()))

    assert asyncio.run(held()) == planned
    AdminClient(client_config(mesh.settings("headwater-router", "another"))).list_topics(timeout=WITHIN_S)
    refused = create_topics(mesh.settings("headwater-router"), [TopicSpec(name="x")])
    assert "Authentication failed" in str(refused["x"])


@pytest.mark.gate
@pytest.mark.parametrize("name", ["tenant.acme", ADMIN, "headwater-sink"])
def test_a_user_that_is_somebody_elses_is_refused(name: str) -> None:
    """A tenant's, the one that makes users, and one that stands there twice."""
    users = [MeshUser(component="sink", username="headwater-sink", password=Secret("a"))]
    users += [MeshUser(component="router", username=name, password=Secret("b"))]
    kafka = KafkaSettings(
        security_protocol=SecurityProtocol.SASL_PLAINTEXT,
        sasl_mechanism=SaslMechanism.SCRAM_SHA_512,
        sasl_username=ADMIN,
    )

    with pytest.raises(InvalidSettings, match=rf"users\[1\]\.username: '{name}'"):
        MeshUsersSettings(kafka=kafka, users=tuple(users))


async def _take_a_tenant_in(mesh: Mesh, tenant: str) -> None:
    """As the operator does, by its own user."""
    kafka = KafkaClient(mesh.settings("headwater-tenant-operator"))
    topics = [TopicSpec(name=dead_letter_topic(tenant)), sink_handovers_topic(1)]
    try:
        await kafka.observe()
        actions = [CreateTopic(tenant, topic) for topic in topics]
        rights = [Acl(user_of(tenant), kind, prefix_of(tenant), True, operation) for kind, operation in RIGHTS]
        actions += [Grant(tenant, right) for right in rights]
        actions += [SetPassword(tenant, user_of(tenant), Secret(PASSWORD))]
        assert await kafka.apply(actions) == []
        assert await kafka.events_of([tenant]) == {tenant: 0}
    finally:
        await kafka.close()


async def _grant_too_much(mesh: Mesh) -> None:
    kafka = KafkaClient(mesh.settings(ADMIN))
    try:
        stranger = Acl("headwater-router", "TOPIC", "secret", False, "READ")
        assert await kafka.apply([Grant("router", stranger)]) == []
    finally:
        await kafka.close()


def _started(mesh: Mesh, valkey: ValkeyServer, folder: Path, running: ExitStack) -> Services:
    started = []
    for component in ("schema-history", "checkpoint-committer"):
        name = component.replace("-", "_")
        settings = {"kafka": mesh.document(component), "redis": {"url": valkey.url}}
        started.append(ServiceProcess.of(name, folder / name, settings))
        running.callback(started[-1].stop)
        start_supervised(started[-1])
    return Services(mesh.broker.bootstrap_servers, *started)


def test_a_service_goes_on_while_its_password_changes_and_after_a_restart_with_the_new_one(
    kafka: tuple[KafkaBroker, Sasl], valkey_server: ValkeyServer, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """As docs/rotation.md says: the running service keeps its connection, and the next one has all of its state."""
    mesh = Mesh(*kafka, source=unique_name("s"))
    asyncio.run(make_users(mesh.users(), asyncio.Event()))
    settings = {"kafka": mesh.document("schema-history"), "redis": {"url": valkey_server.url}}
    service = ServiceProcess.of("schema_history", tmp_path, settings)

    def record(rank: int, *more: str) -> int:
        schema = orders_schema(*(column(name) for name in more))
        return asyncio.run(record_schema(service.client_settings, mesh.source, schema, rank=rank))

    start_supervised(service)
    versions = [record(1)]
    asyncio.run(make_users(mesh.users("rotated"), asyncio.Event()))
    versions.append(record(2, "note"))
    service.stop()
    service.settings = {**settings, "kafka": mesh.document("schema-history", "rotated")}
    start_supervised(service)
    versions.append(record(3, "note", "status"))
    repeated = record(2, "note")
    service.stop()

    assert versions == [1, 2, 3]
    assert repeated == 2
