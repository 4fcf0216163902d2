"""tenant_operator between a real API server and a real Kafka that lets nobody do anything that no ACL allows.

It comes as the service account that the chart makes, with its rights and no more.
"""

import json
import os
import random
import secrets
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.schema_registry import ConfigCompatibilityLevel, SchemaRegistryClient, ServerConfig

from libs.cli.main import headwater
from libs.config.connections import KafkaSettings
from libs.errors import ClusterUnavailable
from libs.events.names import SINK_HANDOVERS_TOPIC
from libs.kafka.broker_client import BrokerClient
from libs.kafka.quotas import alter_quotas, describe_quotas
from libs.kafka.sink_handovers import read_handovers
from libs.rpc.tenants_client import TenantsClient
from libs.servers.kafka_broker import Sasl
from libs.servers.ports import LOOPBACK, free_ports
from libs.servers.process import is_alive, last_log_lines
from libs.types.sink_place import (
    PLACES_FILE,
    Handover,
    Outcome,
    Place,
    Places,
    decode_places,
    encode_handover,
    handover_key,
)
from libs.types.table import TableId
from libs.types.tenant import SinkMode
from libs.types.value import LogicalKind
from services.tenant_operator.objects import SOURCES_CONFIG_MAP
from tests.certificates import write_certificates
from tests.cluster.chart import render
from tests.cluster.control_plane import ControlPlane
from tests.cluster.programs import spark_operator_chart
from tests.conftest import KafkaBroker, MysqlServer, RegistryServer, ValkeyServer, start_kafka_in
from tests.faults.test_kept_state_kills import ended, job_in, store_in
from tests.integration.reader_pipeline import pipeline_of
from tests.integration.router_rig import (
    ChangesSource,
    RouterProcess,
    column,
    created_ids,
    orders_schema,
    read_topic,
    record_schema,
)
from tests.integration.service_process import ServiceProcess, Services, eventually, started_services
from tests.integration.test_router_avro import creates as whole_creates
from tests.sink_job import LIFE_TIMEOUT_S, write_tenant

pytestmark = pytest.mark.rest(because="a control plane is built for it; tests/unit/tenant_operator has every decision")

OPERATOR, OPERATOR_PASSWORD = "operator", "0perat0r"
ROUTER, ROUTER_PASSWORD = "router", "r0uter"
LABEL = {"headwater.dev/tenant": "true"}
EXIT_HALTED = 3
EXIT_FENCED = 4
LEASE_S = 15
NEWER = {"image": {"tag": "newer"}}
"""Values of a chart whose Spark jobs run another image."""
"""As the default: on a machine at work the API server was seen not to answer for seconds."""
ASKED_S = 60.0


@dataclass(frozen=True, slots=True)
class GuardedKafka:
    broker: KafkaBroker
    sasl: Sasl
    admin: AdminClient
    """Over the open listener, which may do everything."""

    @property
    def settings(self) -> dict[str, object]:
        """In the operator's file.

        Its user stands in the broker's settings: one that was killed and came back was seen to refuse a user of SCRAM for good
        whom its controller knew.
        """
        return self._as_user(OPERATOR, OPERATOR_PASSWORD)

    @property
    def router_settings(self) -> dict[str, object]:
        """Of a router that has the rights which were given to it."""
        return self._as_user(ROUTER, ROUTER_PASSWORD)

    def _as_user(self, name: str, password: str) -> dict[str, object]:
        return {
            "bootstrap_servers": self.address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": name,
            "sasl_password": password,
        }

    @property
    def address(self) -> str:
        return f"{self.sasl.host}:{self.sasl.port}"

    def topics(self, tenant: str) -> set[str]:
        return {name for name in self.admin.list_topics(timeout=30).topics if name.startswith(f"{tenant}.")}

    def acls(self, tenant: str) -> set[tuple[str, str, str]]:
        return {(each.restype.name, each.name, each.operation.name) for each in self._acls(tenant)}

    def _acls(self, tenant: str) -> list[AclBinding]:
        return list(self.admin.describe_acls(_all_of(f"User:tenant.{tenant}")).result())

    def users(self) -> set[str]:
        describe: Any = self.admin.describe_user_scram_credentials
        return set(describe().result())

    async def quotas(self, tenant: str) -> dict[str, float]:
        client = BrokerClient(KafkaSettings(bootstrap_servers=self.broker.bootstrap_servers))
        try:
            return (await describe_quotas(client)).get(f"tenant.{tenant}", {})
        finally:
            await client.close()

    def client(self, tenant: str, password: str, **config: object) -> dict[str, object]:
        """As the tenant's own application connects."""
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": f"tenant.{tenant}",
            "sasl.password": password,
            **config,
        }

    def reads(self, tenant: str, password: str, topic: str) -> str | int:
        """The first value in ``topic``, read as the tenant; or Kafka's error."""
        faults: list[KafkaError] = []
        config = self.client(
            tenant,
            password,
            **{
                "group.id": f"{tenant}.{secrets.token_hex(4)}",
                "auto.offset.reset": "earliest",
                "error_cb": faults.append,
            },
        )
        consumer = Consumer(config)
        try:
            consumer.subscribe([topic])
            for _ in range(int(ASKED_S * 4)):
                message = consumer.poll(0.5)
                if message is not None:
                    error = message.error()
                    if error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                        continue  # the router makes it with a table's first row
                    return int(error.code()) if error is not None else (message.value() or b"").decode()
                if any(fault.code() == KafkaError._AUTHENTICATION for fault in faults):
                    return int(KafkaError._AUTHENTICATION)
            raise AssertionError(f"nothing came of {topic}, and no refusal")
        finally:
            consumer.close()

    def writes(self, topic: str, value: str, **config: object) -> None:
        producer = Producer(config or {"bootstrap.servers": self.broker.bootstrap_servers})
        errors: list[KafkaError] = []
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error) if error else None)
        producer.flush(30)
        if errors:
            raise KafkaException(errors[0])

    def writes_many(self, topic: str, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers})
        for number in range(count):
            producer.produce(topic, str(number))
        assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    folder = tmp_path_factory.mktemp("guarded-kafka")
    files = write_certificates(folder)
    port, tls_port = free_ports(2)
    sasl = Sasl(
        {OPERATOR: OPERATOR_PASSWORD, ROUTER: ROUTER_PASSWORD},
        port,
        tls_port,
        Path(files["both"]),
        super_users=(OPERATOR,),
        denies_by_default=True,
    )
    with ExitStack() as servers:
        broker = start_kafka_in(folder, servers, sasl=sasl)
        yield GuardedKafka(broker, sasl, AdminClient({"bootstrap.servers": broker.bootstrap_servers}))


@dataclass(slots=True)
class Mesh:
    """A namespace for the operators and one for tenants, and the operators that were started."""

    cluster: ControlPlane
    kafka: GuardedKafka
    own: str
    tenants: str
    folder: Path
    operators: list[ServiceProcess] = field(default_factory=list)

    def start_operator(self, *, failpoints: str = "", waits: bool = True, **settings: object) -> ServiceProcess:
        number = len(self.operators)
        operator = ServiceProcess.of(
            "tenant_operator",
            self.folder / str(number),
            {
                "kubernetes": {
                    "kubeconfig_file": self.kubeconfig(),
                    "own_namespace": self.own,
                    "tenant_namespaces": [self.tenants],
                },
                "kafka": self.kafka.settings,
                "lease": {"identity": f"operator-{number}", "duration_s": LEASE_S, "renew_s": 1.0},
                "resync_s": 2.0,
                "retry_s": 0.5,
                **settings,
            },
        )
        self.operators.append(operator)
        operator.start(failpoints=failpoints, waits=waits)
        return operator

    def kubeconfig(self) -> str:
        """By which an operator comes as its service account."""
        token = self.cluster.service_account_token(self.own, "headwater-tenant-operator")
        number = len(self.operators)
        return str(self.cluster.kubeconfig(token, name=f"{self.own}-{number}", namespace=self.own))

    def tenant(self, name: str, document: str | None = None, password: str = "first", **annotations: str) -> None:
        """A team applies its ConfigMap and its Secret."""
        self.secret(name, password)
        self.config_map(
            name, document if document is not None else f"tenant: {name}\nsources: [{{name: shop}}]\n", **annotations
        )

    def config_map(self, name: str, document: str, **annotations: str) -> None:
        told = {f"headwater.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": self.tenants, "labels": LABEL, "annotations": told},
                "data": {"tenant.yaml": document},
            }
        )

    def secret(self, name: str, password: str) -> None:
        self.cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": f"{name}-kafka", "namespace": self.tenants, "labels": LABEL},
                "stringData": {"password": password},
            }
        )

    def mask_keys(self, name: str, entries: Mapping[str, str]) -> None:
        """A Secret as `router.maskKeys` names it; it carries no label of ours."""
        self.cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": self.own},
                "stringData": dict(entries),
            }
        )

    def told(self, name: str) -> tuple[str, str]:
        """State and message of a ConfigMap."""
        found = self.cluster.get("configmap", name, self.tenants)
        assert found is not None, name
        annotations = found["metadata"].get("annotations", {})
        return annotations.get("headwater.dev/state", ""), annotations.get("headwater.dev/message", "")

    async def is_told(self, name: str, state: str, words: str = "") -> str:
        """Waits until a ConfigMap says so; its message."""
        try:
            await eventually(lambda: self.told(name)[0] == state and words in self.told(name)[1])
        except AssertionError as error:
            error.add_note(f"{name} reads {self.told(name)}; the last of Kafka and of the operators:")
            for each in (self.kafka.broker.running, *(operator.running for operator in self.operators)):
                error.add_note("gone" if each is None else f"alive: {is_alive(each)}\n{last_log_lines(each)}")
            raise
        return self.told(name)[1]

    def delete(self, name: str) -> None:
        self.cluster.kubectl("delete", "configmap", name, "-n", self.tenants, "--wait=false")

    async def is_gone(self, name: str) -> None:
        await eventually(lambda: self.cluster.get("configmap", name, self.tenants) is None)

    def record(self, tenant: str) -> dict[str, Any] | None:
        return self.cluster.get("configmap", f"headwater-tenant-{tenant}", self.own)

    def joining(self, tenant: str) -> dict[str, Any]:
        """The part of a tenant's record on its joining."""
        record = self.record(tenant)
        assert record is not None
        found: dict[str, Any] = json.loads(record["data"]["joining.json"])
        return found

    def uid(self, name: str) -> str:
        """Of a ConfigMap: which of several tenants that had the name one after another."""
        found = self.cluster.get("configmap", name, self.tenants)
        assert found is not None, name
        return str(found["metadata"]["uid"])

    def job_data(self, job: str) -> dict[str, str]:
        """The data that a Spark job is given."""
        found = self.cluster.get("configmap", f"headwater-sink-{job}", self.own)
        return {} if found is None else dict(found["data"])

    def places(self, job: str) -> Places:
        data = self.job_data(job)
        return decode_places(data["places.json"].encode()) if data else Places(job=job)

    def answers(self, tenant: str, place: Place, outcome: Outcome, because: str = "") -> None:
        """As the Spark job says it whose turn it is."""
        handover = Handover(
            tenant=tenant,
            tenancy=place.tenancy,
            move=place.move,
            outcome=outcome,
            job=place.came_from or place.job,
            because=because,
        )
        producer = Producer({"bootstrap.servers": self.kafka.broker.bootstrap_servers})
        producer.produce(SINK_HANDOVERS_TOPIC, encode_handover(handover), key=handover_key(tenant, place.tenancy))
        assert producer.flush(30) == 0

    def explains(self, tenant: str, table: str, *, kubeconfig: str | None = None) -> Result:
        """The output of a command that may read the team's ConfigMaps and the mesh's Kafka, and nothing else."""
        file = self.folder / "mesh.yaml"
        kafka = {"bootstrap_servers": self.kafka.broker.bootstrap_servers}
        file.write_text(yaml.safe_dump({"kafka": kafka, "kubernetes": {"namespace": self.tenants}}))
        environ = {
            "KUBECONFIG": kubeconfig or str(self.cluster.kubeconfig(self.cluster.admin_token, name="explain")),
            "PATH": f"{self.cluster.programs.kubectl.parent}:{os.environ['PATH']}",
        }
        return CliRunner().invoke(headwater, ["tenant", "explain", tenant, table, "--mesh", str(file)], env=environ)

    def in_force(self, tenant: str) -> str | None:
        """The document that routers get."""
        record = self.record(tenant)
        return None if record is None else str(record["data"]["tenant.yaml"])


@pytest.fixture
def mesh(
    cluster: ControlPlane, kafka: GuardedKafka, namespace: str, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Mesh]:
    tenants = unique_name("tenants").replace("_", "-")
    cluster.kubectl("create", "namespace", tenants)
    rights = render(
        cluster,
        {"tenantOperator": {"tenantNamespaces": [tenants]}},
        namespace,
        "tenant-operator-rbac",
        "service-account",
    )
    cluster.apply(*rights)
    mesh = Mesh(cluster, kafka, namespace, tenants, tmp_path)
    yield mesh
    for operator in mesh.operators:
        operator.stop()


@pytest.fixture
def tenant(unique_name: Callable[[str], str]) -> str:
    """A name that no other test uses."""
    return unique_name("t").replace("_", "-")


async def test_a_config_map_gives_a_team_its_topics_user_rights_and_quotas(mesh: Mesh, tenant: str) -> None:
    mesh.start_operator(
        quotas={"consumer_bytes_per_s": 1_000_000},
        tenant_quotas=[{"tenant": tenant, "quotas": {"consumer_bytes_per_s": 5_000_000}}],
    )
    mesh.tenant(tenant)
    message = await mesh.is_told(tenant, "ready")

    assert f"tenant.{tenant}" in message
    topics = {f"{tenant}.{name}" for name in ("headwater.table-schemas", "dead-letter", "shop")}
    rights = {
        (kind, f"{tenant}.", operation)
        for kind, operations in (
            ("TOPIC", ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")),
            ("GROUP", ("READ", "DESCRIBE", "DELETE")),
        )
        for operation in operations
    }
    # A broker hears of it after the controller, which the operator has asked.
    await eventually(lambda: mesh.kafka.topics(tenant) == topics)
    await eventually(lambda: mesh.kafka.acls(tenant) == rights)
    while await mesh.kafka.quotas(tenant) != {"consumer_byte_rate": 5_000_000.0}:
        pass
    assert mesh.in_force(tenant) == f"tenant: {tenant}\nsources: [{{name: shop}}]\n"
    [event] = [each for each in mesh.cluster.list("events", mesh.tenants) if each["reason"] == "TenantReady"]
    assert event["involvedObject"]["name"] == tenant


async def test_a_tenant_reads_its_own_topics_and_nobody_elses(mesh: Mesh, tenant: str) -> None:
    other = f"{tenant}x"  # the one's name begins the other's
    mesh.start_operator()
    mesh.tenant(tenant, password="one")
    mesh.tenant(other, password="two")
    await mesh.is_told(tenant, "ready")
    await mesh.is_told(other, "ready")
    mesh.kafka.writes(f"{tenant}.shop", "mine")
    mesh.kafka.writes(f"{other}.shop", "theirs")

    assert mesh.kafka.reads(tenant, "one", f"{tenant}.shop") == "mine"
    assert mesh.kafka.reads(other, "two", f"{other}.shop") == "theirs"
    assert mesh.kafka.reads(tenant, "one", f"{other}.shop") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert mesh.kafka.reads(other, "two", f"{tenant}.shop") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert mesh.kafka.reads(tenant, "two", f"{tenant}.shop") == KafkaError._AUTHENTICATION
    with pytest.raises(KafkaException) as refused:
        mesh.kafka.writes(f"{tenant}.shop", "forged", **mesh.kafka.client(tenant, "one"))
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


async def test_a_new_password_is_taken_over(mesh: Mesh, tenant: str) -> None:
    mesh.start_operator()
    mesh.tenant(tenant, password="old")
    await mesh.is_told(tenant, "ready")
    mesh.kafka.writes(f"{tenant}.shop", "row")
    assert mesh.kafka.reads(tenant, "old", f"{tenant}.shop") == "row"

    mesh.secret(tenant, "new")

    await eventually(lambda: mesh.kafka.reads(tenant, "new", f"{tenant}.shop") != KafkaError._AUTHENTICATION)
    assert mesh.kafka.reads(tenant, "old", f"{tenant}.shop") == KafkaError._AUTHENTICATION


async def test_an_edit_is_in_force_and_a_bad_one_is_not(mesh: Mesh, tenant: str) -> None:
    good = f"tenant: {tenant}\nsources: [{{name: shop}}, {{name: crm}}]\ntopics: {{transactions: true}}\n"
    mesh.start_operator()
    mesh.tenant(tenant)
    await mesh.is_told(tenant, "ready")

    mesh.config_map(tenant, good)
    await eventually(lambda: f"{tenant}.crm.transaction" in mesh.kafka.topics(tenant))
    assert mesh.in_force(tenant) == good

    mesh.config_map(tenant, f"tenant: {tenant}\nsources: [{{nam: shop}}]\nsinks: {{}}\n")
    message = await mesh.is_told(tenant, "refused", "its last good version stays in force")
    assert "unknown name" in message
    assert "sinks" in message
    assert mesh.in_force(tenant) == good
    warnings = [each for each in mesh.cluster.list("events", mesh.tenants) if each["reason"] == "TenantRefused"]
    assert [each["type"] for each in warnings] == ["Warning"]
    kept = json.loads(mesh.record(tenant)["data"]["versions.json"])
    assert kept == [{"number": 1, "text": f"tenant: {tenant}\nsources: [{{name: shop}}]\n"}]


async def test_bad_documents_are_refused_by_name_and_others_are_not_affected(mesh: Mesh, tenant: str) -> None:
    mesh.tenant("not-yaml", "tenant: [unclosed")
    mesh.tenant("not-a-mapping", "- a\n- b\n")
    mesh.tenant("injected", "tenant: 'x.headwater'\nsources: [{name: shop}]\n")
    mesh.tenant("reserved", "tenant: headwater\nsources: [{name: shop}]\n")
    mesh.tenant("odd-choice", f"tenant: {tenant}-2\nsources: [{{name: shop}}]\n", on_delete="burn")
    mesh.config_map("no-secret", f"tenant: {tenant}-3\nsources: [{{name: shop}}]\n")
    large = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "large", "namespace": mesh.tenants, "labels": LABEL},
        "data": {"tenant.yaml": f"tenant: {tenant}-4\n# {'x' * 1_000_000}"},
    }
    mesh.cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(large))  # apply would keep a copy in an annotation
    mesh.start_operator()
    mesh.tenant(tenant)

    await mesh.is_told(tenant, "ready")
    messages = {
        name: await mesh.is_told(name, "refused")
        for name in ("not-yaml", "not-a-mapping", "injected", "reserved", "odd-choice", "no-secret", "large")
    }

    assert "is not YAML" in messages["not-yaml"]
    assert "mapping" in messages["not-a-mapping"]
    assert "no tenant's name" in messages["injected"]
    assert "no tenant's name" in messages["reserved"]
    assert "'burn' is none of keep, delete" in messages["odd-choice"]
    assert f"Secret {mesh.tenants}/no-secret-kafka: is missing" in messages["no-secret"]
    assert "at most 262144 are taken" in messages["large"]
    assert all("nothing of it is in force" in message for message in messages.values())
    assert not any(mesh.kafka.topics(f"{tenant}-{number}") for number in (2, 3, 4))


async def test_a_document_whose_key_is_missing_is_refused_until_its_secret_is_there(mesh: Mesh, tenant: str) -> None:
    """With the rights and the settings that the chart gives for `router.maskKeys`, by which the router's pods have the keys."""
    key = secrets.token_hex(32)
    good = f"tenant: {tenant}\nsources: [{{name: shop}}]\n"
    mask = "{columns: '.*\\.email', encrypt: {key_from: {file: pii}}}"
    masked = f"tenant: {tenant}\nsources: [{{name: shop, masks: [{mask}]}}]\n"
    values = {
        "tenantOperator": {"tenantNamespaces": [mesh.tenants]},
        "router": {"maskKeys": {tenant: f"{tenant}-keys", "other": "other-keys"}},
    }
    rendered = render(mesh.cluster, values, mesh.own, "tenant-operator-rbac", "tenant-operator")
    mesh.cluster.apply(*(each for each in rendered if each["kind"] == "Role"))
    given = yaml.safe_load(next(each for each in rendered if each["kind"] == "ConfigMap")["data"]["settings.yaml"])
    operator = mesh.start_operator(mask_keys=given["mask_keys"])
    mesh.tenant(tenant, good)
    await mesh.is_told(tenant, "ready")

    mesh.config_map(tenant, masked)
    without_secret = await mesh.is_told(tenant, "refused", "its last good version stays in force")
    mesh.mask_keys(f"{tenant}-keys", {"other": key})
    without_entry = await mesh.is_told(tenant, "refused", "has no entry 'pii'")
    in_force = mesh.in_force(tenant)
    mesh.mask_keys(f"{tenant}-keys", {"pii": key})
    await mesh.is_told(tenant, "ready")

    assert (
        f"line 2: sources[0].masks[0].encrypt.key_from: Secret {mesh.own}/{tenant}-keys: is missing" in without_secret
    )
    assert f"Secret {mesh.own}/{tenant}-keys" in without_entry
    assert in_force == good
    assert mesh.in_force(tenant) == masked
    everything = json.dumps([mesh.cluster.list("configmaps,events", each) for each in (mesh.own, mesh.tenants)])
    assert key not in everything + operator.log_text
    account = f"--as=system:serviceaccount:{mesh.own}:headwater-tenant-operator"
    for what, answer in ((f"secrets/{tenant}-keys", "yes"), ("secrets/kafka", "no"), ("secrets", "no")):
        assert mesh.cluster.kubectl_answers("auth", "can-i", "watch", what, "-n", mesh.own, account) == answer, what


async def test_nobody_claims_another_tenants_prefix(mesh: Mesh, tenant: str) -> None:
    mesh.start_operator()
    mesh.tenant(tenant)
    await mesh.is_told(tenant, "ready")

    mesh.tenant("thief", f"tenant: {tenant}\nsources: [{{name: other}}]\n")
    message = await mesh.is_told("thief", "refused")

    assert f"{tenant!r} is claimed by ConfigMap {mesh.tenants}/{tenant} already" in message
    assert mesh.in_force(tenant) == f"tenant: {tenant}\nsources: [{{name: shop}}]\n"
    assert mesh.told(tenant)[0] == "ready"


async def test_a_namespace_claims_only_names_that_the_chart_gives_it(mesh: Mesh, tenant: str) -> None:
    """With the settings that the chart makes; nothing is made for a claim of another one."""
    names = {mesh.tenants: [f"{tenant}(-eu)?"], "*": ["{namespace}"]}
    values = {"tenantOperator": {"tenantNamespaces": [mesh.tenants], "tenantNames": names}}
    rendered = render(mesh.cluster, values, mesh.own, "tenant-operator")
    given = yaml.safe_load(next(each for each in rendered if each["kind"] == "ConfigMap")["data"]["settings.yaml"])
    mesh.start_operator(tenant_names=given["tenant_names"])

    mesh.tenant(f"{tenant}-eu")
    mesh.tenant(f"{tenant}-us")
    message = await mesh.is_told(f"{tenant}-us", "refused")
    await mesh.is_told(f"{tenant}-eu", "ready")

    may = f"namespace {mesh.tenants} may not claim '{tenant}-us': its names match {tenant}(-eu)?; take such a name"
    assert may in message
    assert mesh.record(f"{tenant}-us") is None
    assert not mesh.kafka.topics(f"{tenant}-us")


async def test_drift_is_put_right(mesh: Mesh, tenant: str) -> None:
    mesh.start_operator(quotas={"producer_bytes_per_s": 1_000})
    mesh.tenant(tenant)
    await mesh.is_told(tenant, "ready")
    await eventually(lambda: len(mesh.kafka.acls(tenant)) == 6)
    rights, admin = mesh.kafka.acls(tenant), mesh.kafka.admin
    principal = f"User:tenant.{tenant}"

    admin.delete_topics([f"{tenant}.dead-letter"])[f"{tenant}.dead-letter"].result()
    granted = AclBinding(
        ResourceType.TOPIC,
        "headwater.",
        ResourcePatternType.PREFIXED,
        principal,
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([granted])[granted].result()
    taken = AclBindingFilter(
        ResourceType.GROUP,
        f"{tenant}.",
        ResourcePatternType.PREFIXED,
        principal,
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    admin.delete_acls([taken])[taken].result()
    client = BrokerClient(KafkaSettings(bootstrap_servers=mesh.kafka.broker.bootstrap_servers))
    await alter_quotas(client, {f"tenant.{tenant}": {"producer_byte_rate": 9_999_999.0}})
    await client.close()

    await eventually(lambda: f"{tenant}.dead-letter" in mesh.kafka.topics(tenant) and mesh.kafka.acls(tenant) == rights)
    while await mesh.kafka.quotas(tenant) != {"producer_byte_rate": 1_000.0}:
        pass


@pytest.mark.parametrize("on_delete", ["keep", "delete"])
async def test_who_goes_leaves_nothing_but_the_topics_that_it_wants_to_keep(
    mesh: Mesh, tenant: str, on_delete: str
) -> None:
    mesh.start_operator(quotas={"consumer_bytes_per_s": 1_000})
    mesh.tenant(tenant, on_delete=on_delete)
    await mesh.is_told(tenant, "ready")
    mesh.kafka.writes(f"{tenant}.shop.orders", "a table's row")  # the router made this one
    topics = mesh.kafka.topics(tenant)

    mesh.delete(tenant)
    await mesh.is_gone(tenant)

    # A broker hears of it after the controller.
    await eventually(lambda: f"tenant.{tenant}" not in mesh.kafka.users() and not mesh.kafka.acls(tenant))
    while await mesh.kafka.quotas(tenant):
        pass
    assert mesh.record(tenant) is None
    await eventually(lambda: mesh.kafka.topics(tenant) == (topics if on_delete == "keep" else set()))


async def test_a_namespace_that_is_deleted_takes_down_nobody_else(
    mesh: Mesh, tenant: str, unique_name: Callable[[str], str]
) -> None:
    """With the rights that the operator has there, which go before its tenant is let go; then by hand, as documented."""
    gone = unique_name("gone").replace("_", "-")
    mesh.cluster.kubectl("create", "namespace", gone)
    values = {"tenantOperator": {"tenantNamespaces": [gone, mesh.tenants]}}
    mesh.cluster.apply(*render(mesh.cluster, values, mesh.own, "tenant-operator-rbac"))
    kubernetes = {
        "kubeconfig_file": mesh.kubeconfig(),
        "own_namespace": mesh.own,
        "tenant_namespaces": [gone, mesh.tenants],
        "watch_timeout_s": 2,  # a watch that stands is not asked whether it may
    }
    operator = mesh.start_operator(kubernetes=kubernetes)
    there, old = replace(mesh, tenants=gone), f"{tenant}-old"
    there.tenant(old)
    mesh.tenant(tenant)
    await there.is_told(old, "ready")
    await mesh.is_told(tenant, "ready")

    mesh.cluster.kubectl("delete", "rolebinding", "headwater-tenants", "-n", gone)
    await eventually(lambda: "namespace_refused" in operator.log_text)
    assert mesh.in_force(old) is not None
    assert f"tenant.{old}" in mesh.kafka.users()
    operator.stop()
    operator.start()  # it knows of the tenant by its record alone
    mesh.tenant(f"{tenant}-late")
    await mesh.is_told(f"{tenant}-late", "ready")
    status, told = operator.get("/readyz")
    assert (status, f"namespace {gone} refuses the operator" in told) == (200, True)
    assert _count(operator, "headwater_operator_refused_namespaces") == 1
    assert mesh.in_force(old) is not None
    assert f"tenant.{old}" in mesh.kafka.users()

    mesh.cluster.apply(*render(mesh.cluster, values, mesh.own, "tenant-operator-rbac"))
    await eventually(lambda: _count(operator, "headwater_operator_refused_namespaces") == 0)
    looks = json.dumps([{"op": "replace", "path": "/rules/0/verbs", "value": ["get", "list", "watch"]}])
    mesh.cluster.kubectl("patch", "role", "headwater-tenants", "-n", gone, "--type=json", "-p", looks)
    there.delete(old)
    await eventually(lambda: "config_map_not_released" in operator.log_text)
    told_before = operator.log_text.count("namespace_refused")
    mesh.cluster.kubectl("delete", "namespace", gone, "--wait=false")
    await eventually(lambda: operator.log_text.count("namespace_refused") > told_before)
    assert mesh.record(old) is None
    assert f"tenant.{old}" not in mesh.kafka.users()
    mesh.config_map(tenant, f"tenant: {tenant}\nsources: [{{name: shop}}, {{name: crm}}]\n")
    await eventually(lambda: f"{tenant}.crm" in mesh.kafka.topics(tenant))
    patch = json.dumps([{"op": "remove", "path": "/metadata/finalizers"}])
    mesh.cluster.kubectl("patch", "configmap", old, "-n", gone, "--type=json", "-p", patch)
    mesh.cluster.kubectl("wait", "--for=delete", f"namespace/{gone}", "--timeout=240s")
    assert is_alive(operator.running)


async def test_an_operator_that_every_namespace_refuses_ends_and_says_so(mesh: Mesh) -> None:
    mesh.cluster.kubectl("delete", "rolebinding", "headwater-tenants", "-n", mesh.tenants)
    operator = mesh.start_operator(waits=False)

    assert operator.wait_for_exit(60) == EXIT_HALTED
    assert "grant it to the operator's service account" in operator.log_text


async def test_a_config_map_that_loses_its_label_is_let_go_with_its_topics_kept(mesh: Mesh, tenant: str) -> None:
    mesh.start_operator()
    mesh.tenant(tenant, on_delete="delete")
    await mesh.is_told(tenant, "ready")

    mesh.cluster.kubectl("label", "configmap", tenant, "-n", mesh.tenants, "headwater.dev/tenant-")
    await eventually(lambda: mesh.record(tenant) is None)

    assert f"{tenant}.shop" in mesh.kafka.topics(tenant)
    found = mesh.cluster.get("configmap", tenant, mesh.tenants)
    assert found is not None
    assert "finalizers" not in found["metadata"]


async def test_tenants_share_spark_jobs_and_large_ones_have_their_own(mesh: Mesh, tenant: str) -> None:
    """In a namespace that enforces `restricted`: the controller manager could make the jobs' pods."""
    mesh.cluster.kubectl("label", "namespace", mesh.own, "pod-security.kubernetes.io/enforce=restricted")
    mesh.cluster.apply(*render(mesh.cluster, {}, mesh.own, "sink"))
    mesh.start_operator(sink_jobs={"template_config_map": "headwater-sink-template", "tenants_per_packed_job": 2})
    names = [f"{tenant}-{number}" for number in range(4)]
    for name in names[:3]:
        mesh.tenant(name)
    mesh.tenant(names[3], sink_job="own")
    told = [await mesh.is_told(name, "ready") for name in names]

    assert sum("job packed-0" in message for message in told) == 2
    assert f"job own-{names[3]}" in told[3]
    jobs = {f"headwater-sink-{job}" for job in ("packed-0", "packed-1", f"own-{names[3]}")}
    assert {each["metadata"]["name"] for each in mesh.cluster.list("statefulsets", mesh.own)} == jobs
    for job in jobs:
        mesh.cluster.kubectl("wait", "--for=create", f"pod/{job}-0", "-n", mesh.own, "--timeout=60s")
    documents = mesh.cluster.get("configmap", f"headwater-sink-own-{names[3]}", mesh.own)
    assert documents is not None
    assert documents["data"].pop("places.json")
    assert documents["data"] == {f"{names[3]}.yaml": f"tenant: {names[3]}\nsources: [{{name: shop}}]\n"}

    own = f"headwater-sink-own-{names[3]}"
    mesh.cluster.kubectl("scale", "statefulset", own, "--replicas=0", "-n", mesh.own)
    await eventually(lambda: _replicas(mesh, own) == 1)
    mesh.delete(names[3])
    await eventually(lambda: mesh.cluster.get("statefulset", own, mesh.own) is None)
    mesh.cluster.kubectl("delete", "configmap", "headwater-sink-template", "-n", mesh.own)  # as an uninstall does
    await eventually(lambda: mesh.cluster.list("statefulsets", mesh.own) == [])


async def test_a_job_whose_pod_is_not_ready_gets_what_is_new(mesh: Mesh, tenant: str) -> None:
    """No node runs here, so no pod ever is ready."""
    mesh.cluster.apply(*render(mesh.cluster, {}, mesh.own, "sink"))
    mesh.start_operator(sink_jobs={"template_config_map": "headwater-sink-template"})
    mesh.tenant(tenant)
    await mesh.is_told(tenant, "ready")
    pod = "headwater-sink-packed-0-0"
    mesh.cluster.kubectl("wait", "--for=create", f"pod/{pod}", "-n", mesh.own, "--timeout=240s")

    mesh.cluster.apply(*render(mesh.cluster, NEWER, mesh.own, "sink"))

    await eventually(lambda: _image(mesh.cluster.get("pod", pod, mesh.own)).endswith(":newer"))


async def test_a_job_that_an_older_chart_made_takes_what_can_be_changed(mesh: Mesh, tenant: str) -> None:
    """Its pods are managed as they were: Kubernetes refuses another way, and would refuse all else with it."""
    older = render(mesh.cluster, {}, mesh.own, "sink")
    for each in older:
        if each["kind"] == "ConfigMap" and "statefulset.yaml" in each["data"]:
            made = yaml.safe_load(each["data"]["statefulset.yaml"])
            assert made["spec"].pop("podManagementPolicy") == "Parallel"
            each["data"]["statefulset.yaml"] = yaml.safe_dump(made)
    mesh.cluster.apply(*older)
    mesh.start_operator(sink_jobs={"template_config_map": "headwater-sink-template"})
    mesh.tenant(tenant)
    await mesh.is_told(tenant, "ready")

    mesh.cluster.apply(*render(mesh.cluster, NEWER, mesh.own, "sink"))

    def spec() -> Any:
        found = mesh.cluster.get("statefulset", "headwater-sink-packed-0", mesh.own)
        return {} if found is None else found["spec"]

    await eventually(lambda: _image(spec().get("template")).endswith(":newer"))
    assert spec()["podManagementPolicy"] == "OrderedReady"
    await mesh.is_told(tenant, "ready")


async def test_a_job_loses_its_volume_only_once_its_stateful_set_is_deleted(mesh: Mesh, tenant: str) -> None:
    """Kubernetes refuses to take it away, so the team gets a report, and the job goes on as it is; a person who deletes the
    StatefulSet knows that the state is in the store. The job that is made again has none."""
    kept = {"settings": {"state_store": {"uri": "s3://lake/state"}}}
    mesh.cluster.apply(*render(mesh.cluster, {"sink": kept}, mesh.own, "sink"))
    mesh.start_operator(sink_jobs={"template_config_map": "headwater-sink-template"})
    mesh.tenant(tenant)
    await mesh.is_told(tenant, "ready")

    def spec() -> Any:
        found = mesh.cluster.get("statefulset", "headwater-sink-packed-0", mesh.own)
        return {} if found is None else found["spec"]

    assert "volumeClaimTemplates" in spec()
    mesh.cluster.apply(*render(mesh.cluster, {"sink": {**kept, "stateSize": None}}, mesh.own, "sink"))

    await mesh.is_told(tenant, "waiting", "updates to statefulset spec")
    assert "volumeClaimTemplates" in spec()
    mesh.cluster.kubectl("delete", "statefulset", "-l", "headwater.dev/sink-job", "-n", mesh.own)
    await mesh.is_told(tenant, "ready")
    assert "volumeClaimTemplates" not in spec()
    assert _volume(spec()["template"], "state")["emptyDir"] == {}


async def test_a_tenant_moves_between_spark_jobs_when_it_is_asked_to_and_when_it_is_large(
    mesh: Mesh, tenant: str
) -> None:
    """There is no node, so the test is the Spark jobs. The operator is killed between storing a move and giving it to the
    jobs."""
    mesh.cluster.apply(*render(mesh.cluster, {}, mesh.own, "sink"))
    settings = {
        "template_config_map": "headwater-sink-template",
        "own_job_at_events_s": 20.0,
        "own_job_window_s": 4.0,
    }
    mesh.start_operator(sink_jobs=settings, failpoints="operator_after_recording_move=kill@1")
    large = f"{tenant}-large"
    for name in (tenant, large):
        mesh.tenant(name)
        assert "by Spark job packed-0" in await mesh.is_told(name, "ready")
    places = mesh.places("packed-0")
    assert [places.tenants[name] for name in (tenant, large)] == [
        Place(job="packed-0", tenancy=mesh.uid(name)) for name in (tenant, large)
    ]

    mesh.tenant(tenant, sink_job="own")
    await eventually(lambda: not is_alive(mesh.operators[0].running))
    assert tenant not in str(mesh.cluster.get("configmap", f"headwater-sink-own-{tenant}", mesh.own))
    mesh.start_operator(sink_jobs=settings)
    await mesh.is_told(tenant, "waiting", f"move from Spark job packed-0 to own-{tenant}")
    moving = Place(job=f"own-{tenant}", tenancy=mesh.uid(tenant), move=1, came_from="packed-0")
    assert [mesh.places(job).tenants[tenant] for job in ("packed-0", f"own-{tenant}")] == [moving, moving]
    mesh.answers(tenant, moving, Outcome.HANDED_OVER)
    await mesh.is_told(tenant, "ready", f"by Spark job own-{tenant}")
    await eventually(lambda: tenant not in mesh.places("packed-0").tenants)

    mesh.tenant(tenant, sink_job="packed")
    await mesh.is_told(tenant, "waiting", f"from Spark job own-{tenant} to packed-0")
    back = Place(job="packed-0", tenancy=mesh.uid(tenant), move=2, came_from=f"own-{tenant}")
    mesh.answers(tenant, back, Outcome.REFUSED, "its state is too large")
    await mesh.is_told(tenant, "ready", "could not move to packed-0: its state is too large")
    assert mesh.places(f"own-{tenant}").tenants[tenant] == Place(job=f"own-{tenant}", tenancy=mesh.uid(tenant), move=2)

    def is_promoted() -> bool:
        mesh.kafka.writes_many(f"{large}.shop.orders", 100)
        return "events a second" in mesh.told(large)[1]

    await eventually(is_promoted)
    assert f"from Spark job packed-0 to own-{large}" in mesh.told(large)[1]
    events = [each["message"] for each in mesh.cluster.list("events", mesh.tenants) if "own_job_at" in each["message"]]
    assert any(f"to own-{large}" in message for message in events)


async def test_who_goes_with_its_tables_waits_for_its_spark_job(mesh: Mesh, tenant: str) -> None:
    mesh.cluster.apply(*render(mesh.cluster, {}, mesh.own, "sink"))
    mesh.start_operator(sink_jobs={"template_config_map": "headwater-sink-template"})
    mesh.tenant(tenant, on_delete="delete")
    assert "its topics and its tables go" in await mesh.is_told(tenant, "ready")
    where = Place(job="packed-0", tenancy=mesh.uid(tenant), drops_tables=True)

    mesh.delete(tenant)
    await mesh.is_told(tenant, "leaving", "packed-0 has to drop its tables")
    assert mesh.places("packed-0").tenants == {tenant: where}
    assert f"{tenant}.yaml" not in mesh.job_data("packed-0")
    assert f"tenant.{tenant}" not in mesh.kafka.users()
    mesh.answers(tenant, where, Outcome.NOT_DROPPED, "the catalogue denies it")
    await mesh.is_told(tenant, "leaving", "tries again: the catalogue denies it")
    assert f"{tenant}.dead-letter" in mesh.kafka.topics(tenant)
    mesh.answers(tenant, where, Outcome.DROPPED)
    await mesh.is_gone(tenant)

    # All of it: a person who waited for this may remove the release now.
    assert mesh.kafka.topics(tenant) == set()
    assert mesh.record(tenant) is None
    told = read_handovers(KafkaSettings(bootstrap_servers=mesh.kafka.broker.bootstrap_servers))
    assert handover_key(tenant, where.tenancy) not in told
    await eventually(lambda: mesh.cluster.list("statefulsets", mesh.own) == [])


@pytest.mark.timeout(3 * LIFE_TIMEOUT_S)
async def test_a_spark_job_that_cannot_keep_its_state_is_told_to_the_team_and_so_is_the_end(
    mesh: Mesh, tenant: str, tmp_path: Path
) -> None:
    """A real job, whose object store goes away. Job and operator are killed meanwhile: it is reported once, and over once the
    job goes on, which is another process by then."""
    chance, name, folder = random.Random(55), tenant.replace("-", ""), tmp_path / "sink"
    mesh.cluster.apply(*render(mesh.cluster, {}, mesh.own, "sink"))
    jobs = {"template_config_map": "headwater-sink-template"}
    operator = mesh.start_operator(sink_jobs=jobs)
    folder.mkdir()

    def events() -> list[str]:
        found = mesh.cluster.list("events", mesh.tenants)
        return sorted(each["reason"] for each in found if each["reason"].startswith("Sink"))

    with store_in(tmp_path) as store:
        job = job_in(folder, folder, mesh.kafka.broker.bootstrap_servers, store)
        written = write_tenant(job, name, SinkMode.APPEND, "visits")
        mesh.tenant(name, (folder / "tenants" / f"{name}.yaml").read_text())
        await mesh.is_told(name, "ready", "by Spark job packed-0")
        (folder / "tenants" / PLACES_FILE).write_text(mesh.job_data("packed-0")[PLACES_FILE])
        with ended(job):
            written.write(chance, transactions=2)
            job.start()
            job.wait_until(lambda: job.progress(written).rows >= written.changes)
            store.unplug()
            written.write(chance, transactions=2)
            job.wait_until(lambda: mesh.told(name)[0] == "degraded")
            message = mesh.told(name)[1]
            await eventually(lambda: events() == ["SinkWaits"])
            assert job.running is not None
            job.running.popen.kill()
            operator.kill()
            mesh.start_operator(sink_jobs=jobs)
            store.plug_in()
            job.start()
            job.wait_until(lambda: job.progress(written).rows >= written.changes)
            await mesh.is_told(name, "ready")
            await eventually(lambda: events() == ["SinkGoesOn", "SinkWaits"])

    assert "stand still in its Spark job; nothing is lost, and it goes on by itself once that is mended" in message
    assert f"- s3://state/jobs/own/{name}.json cannot be read or written" in message
    assert "see that the object store answers" in message


async def test_a_job_is_a_spark_application_where_the_cluster_knows_them(mesh: Mesh, tenant: str) -> None:
    """As the Spark Operator's CRD has it, which refuses unknown fields; refused by name before. The state stays in its place
    when a job is run in another way."""
    sink = {"executors": {"instances": 2}}
    told = {"template_config_map": "headwater-sink-template"}
    submitted = {"sink": {**sink, "kind": "SparkApplication"}, "tenantOperator": {"tenantNamespaces": [mesh.tenants]}}
    templates = ("sink", "tenant-operator-rbac", "service-account")
    mesh.cluster.apply(*render(mesh.cluster, submitted, mesh.own, *templates))
    mesh.start_operator(sink_jobs=told)
    mesh.tenant(tenant)
    message = await mesh.is_told(tenant, "waiting")
    assert "the cluster knows no SparkApplication" in message
    assert "install the Spark Operator" in message

    chart = spark_operator_chart()
    assert chart is not None
    mesh.cluster.kubectl("create", "-f", str(chart / "crds"))
    try:
        # kubectl goes by the API server's list of kinds, which comes later than the operator's own look.
        kinds = ("api-resources", "--api-group=sparkoperator.k8s.io", "-o", "name")
        await eventually(lambda: "sparkapplications" in mesh.cluster.kubectl_answers(*kinds))
        await mesh.is_told(tenant, "ready", "job packed-0")
        name, claim = "headwater-sink-packed-0", "state-headwater-sink-packed-0-0"
        made = mesh.cluster.get("sparkapplication", name, mesh.own)
        assert made is not None
        driver, executor = made["spec"]["driver"]["template"], made["spec"]["executor"]["template"]
        assert {"name": "tenants", "configMap": {"name": name}}.items() <= _volume(driver, "tenants").items()
        assert _volume(driver, "state")["persistentVolumeClaim"]["claimName"] == claim
        assert driver["metadata"]["labels"]["headwater.dev/sink-job"] == "packed-0"
        assert made["spec"]["restartPolicy"]["type"] == "Always"
        assert mesh.cluster.get("persistentvolumeclaim", claim, mesh.own) is not None
        assert mesh.cluster.list("statefulsets", mesh.own) == []
        _can_be_pods(mesh, driver, executor)

        mesh.cluster.apply(*render(mesh.cluster, {**submitted, "sink": sink}, mesh.own, "sink", "tenant-operator-rbac"))
        await eventually(lambda: mesh.cluster.get("sparkapplication", name, mesh.own) is None)
        await eventually(lambda: mesh.cluster.get("statefulset", name, mesh.own) is not None)
        mesh.cluster.kubectl("wait", "--for=create", f"pod/{name}-0", "-n", mesh.own, "--timeout=240s")
        pod = mesh.cluster.get("pod", f"{name}-0", mesh.own)
        assert pod is not None
        assert _volume(pod, "state")["persistentVolumeClaim"]["claimName"] == claim
    finally:
        # Not waited for: the API server clears away after it, and was seen to take minutes on a machine at work.
        mesh.cluster.kubectl("delete", "--wait=false", "-f", str(chart / "crds"))


def _volume(pod: Mapping[str, Any], name: str) -> dict[str, Any]:
    [found] = [each for each in pod["spec"]["volumes"] if each["name"] == name]
    return dict(found)


def _can_be_pods(mesh: Mesh, driver: Mapping[str, Any], executor: Mapping[str, Any]) -> None:
    """With the fields that Spark puts in, the API server takes them, as `restricted`."""
    mesh.cluster.kubectl("label", "namespace", mesh.own, "pod-security.kubernetes.io/enforce=restricted")
    for name, template in (("driver", driver), ("executor", executor)):
        [container] = template["spec"]["containers"]
        assert container["name"] == f"spark-kubernetes-{name}"
        assert "args" not in container  # Spark adds its own after these
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template["metadata"], "name": name, "namespace": mesh.own},
            "spec": {**template["spec"], "containers": [{"image": "spark", **container}]},
        }
        mesh.cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))


OWNER = "headwater-tenant-operator"
KNOWN_SOURCES = {"schema_history": {"address": f"{LOOPBACK}:1"}, "sources": [{"name": "shop", "kind": "mysql"}]}


def _install(mesh: Mesh, on_uninstall: str) -> dict[str, Any]:
    """Apply the objects with which the operator's own ones go; the settings by which the chart has it so."""
    values = {"onUninstall": on_uninstall, "tenantOperator": {"tenantNamespaces": [mesh.tenants]}}
    objects = render(mesh.cluster, values, mesh.own, "tenant-operator", "sink")
    mesh.cluster.apply(*(each for each in objects if each["kind"] == "ConfigMap"))
    [text] = (each["data"]["settings.yaml"] for each in objects if each["metadata"]["name"] == OWNER and "data" in each)
    told = yaml.safe_load(text)
    kubernetes = {**told["kubernetes"], "kubeconfig_file": mesh.kubeconfig()}
    return {"kubernetes": kubernetes, "keeps_tenants": told["keeps_tenants"], "sink_jobs": told["sink_jobs"]}


async def _uninstall(mesh: Mesh, operator: ServiceProcess) -> None:
    """As `helm uninstall` does; the cluster's garbage collector has been round when the lease and the jobs are gone."""
    operator.stop()
    mesh.cluster.kubectl("delete", "configmap", OWNER, "headwater-sink-template", "headwater-sink", "-n", mesh.own)
    await eventually(lambda: mesh.cluster.list("leases,statefulsets", mesh.own) == [], 240.0)


def _left(mesh: Mesh) -> set[str]:
    kinds = "configmaps,statefulsets,leases,persistentvolumeclaims"
    return {each["metadata"]["name"] for each in mesh.cluster.list(kinds, mesh.own)} - {"kube-root-ca.crt"}


async def test_an_uninstalled_release_keeps_what_is_known_of_tenants_and_without_tenants_nothing(
    mesh: Mesh, tenant: str
) -> None:
    """A release that is installed again goes on where the first one stood: with a document that is good no more, too."""
    operator = mesh.start_operator(joining=KNOWN_SOURCES, **_install(mesh, "keep"))
    mesh.tenant(tenant)
    await mesh.is_told(tenant, "ready")
    mesh.cluster.kubectl("wait", "--for=create", "pod/headwater-sink-packed-0-0", "-n", mesh.own, "--timeout=240s")
    await _uninstall(mesh, operator)
    record, volume = f"headwater-tenant-{tenant}", "state-headwater-sink-packed-0-0"
    assert _left(mesh) == {record, SOURCES_CONFIG_MAP, volume}
    document = mesh.in_force(tenant)

    mesh.config_map(tenant, "tenant: [")
    operator = mesh.start_operator(joining=KNOWN_SOURCES, **_install(mesh, "keep"))
    await mesh.is_told(tenant, "refused")
    assert mesh.in_force(tenant) == document
    mesh.cluster.kubectl("wait", "--for=create", "pod/headwater-sink-packed-0-0", "-n", mesh.own, "--timeout=240s")
    mesh.delete(tenant)
    await mesh.is_gone(tenant)
    await _uninstall(mesh, operator)
    await eventually(lambda: _left(mesh) == {volume}, 240.0)


async def test_a_release_that_forgets_leaves_nothing(mesh: Mesh, tenant: str) -> None:
    operator = mesh.start_operator(joining=KNOWN_SOURCES, **_install(mesh, "forget"))
    mesh.tenant(tenant)
    await mesh.is_told(tenant, "ready")
    claim = "persistentvolumeclaim/state-headwater-sink-packed-0-0"
    mesh.cluster.kubectl("wait", "--for=create", claim, "-n", mesh.own, "--timeout=240s")
    owner = "jsonpath={.metadata.ownerReferences[0].kind}=StatefulSet"
    mesh.cluster.kubectl("wait", f"--for={owner}", claim, "-n", mesh.own, "--timeout=240s")
    assert f"headwater-tenant-{tenant}" in _left(mesh)

    await _uninstall(mesh, operator)

    # No node runs here, whose kubelet would let a pod go that was bound: this one never was, and its claim follows it.
    await eventually(lambda: _left(mesh) == set(), 240.0)


async def test_a_tenant_that_joins_gets_its_rows_within_seconds_of_its_config_map(
    mesh: Mesh, tenant: str, valkey_server: ValkeyServer, unique_name: Callable[[str], str]
) -> None:
    """By way of a router that knows of tenants from the operator alone; read as the tenant's own application would."""
    operator, broker = mesh.start_operator(), mesh.kafka.broker.bootstrap_servers
    source = ChangesSource(broker, unique_name("shop").replace("_", "-"))
    documents = {name: f"tenant: {name}\nsources: [{{name: {source.name}}}]\n" for name in (tenant, f"{tenant}-late")}
    mesh.tenant(tenant, documents[tenant])
    await mesh.is_told(tenant, "ready")
    with started_services(broker, valkey_server.url, mesh.folder) as services:
        await record_schema(services.schema_history.client_settings, source.name, orders_schema())
        router = _router(mesh, operator, services, source.name)
        try:
            router.start()
            source.creates([1])
            source.publish()
            first = mesh.kafka.reads(tenant, "first", f"{tenant}.{source.name}.shop.orders")

            mesh.tenant(f"{tenant}-late", documents[f"{tenant}-late"])
            await mesh.is_told(f"{tenant}-late", "ready")
            await eventually(lambda: f"{tenant}-late" in router.log_text)
            operator.kill()  # the documents that a router has stay in force
            source.creates([2])
            source.publish()
            late = mesh.kafka.reads(f"{tenant}-late", "first", f"{tenant}-late.{source.name}.shop.orders")
        finally:
            router.stop()

    assert [json.loads(str(value))["after"]["id"] for value in (first, late)] == [1, 2]


async def test_a_filter_that_does_not_fit_its_table_is_refused_by_its_line(
    mesh: Mesh, tenant: str, valkey_server: ValkeyServer, unique_name: Callable[[str], str]
) -> None:
    """Where schema_history knows the table; nothing of it reaches a router before it is mended."""
    broker, source = mesh.kafka.broker.bootstrap_servers, unique_name("shop").replace("_", "-")
    document = "tenant: {}\nsources:\n  - name: {}\n    row_filters: [{{tables: '.*orders', where: \"{}\"}}]\n"
    with started_services(broker, valkey_server.url, mesh.folder) as services:
        address = services.schema_history.client_settings.address
        await record_schema(services.schema_history.client_settings, source, orders_schema())
        sources = [{"name": source, "kind": "mysql", "include_tables": [".*"]}]
        mesh.start_operator(joining={"schema_history": {"address": address}, "sources": sources})
        mesh.tenant(tenant, document.format(tenant, source, "id = 'one'"))

        message = await mesh.is_told(tenant, "refused")
        assert (
            "line 4: sources[0].row_filters[0].where: table shop.orders: row filter: id = 'one': cannot compare"
            in message
        )
        assert mesh.record(tenant) is None

        mesh.tenant(tenant, document.format(tenant, source, "id = 1"))
        await mesh.is_told(tenant, "ready")


async def test_a_table_that_routers_refuse_is_told_until_it_is_mended_and_each_change_once(
    mesh: Mesh, tenant: str, valkey_server: ValkeyServer, unique_name: Callable[[str], str]
) -> None:
    """By an operator that knows no tables. The report comes to another than the one that leads; both, and the router, are
    killed meanwhile. No row of the table is needed for the end."""
    mesh.start_operator()
    other, broker = mesh.start_operator(), mesh.kafka.broker.bootstrap_servers
    source = ChangesSource(broker, unique_name("shop").replace("_", "-"))
    document = "tenant: {}\nsources:\n- name: {}\n  row_filters: [{{tables: '.*orders', where: \"{}\"}}]\n"
    mesh.tenant(tenant, document.format(tenant, source.name, "id = 'one'"))
    await mesh.is_told(tenant, "ready")

    def events_of_tables() -> list[str]:
        found = mesh.cluster.list("events", mesh.tenants)
        return sorted(each["reason"] for each in found if each["reason"].startswith("Table"))

    with started_services(broker, valkey_server.url, mesh.folder) as services:
        await record_schema(services.schema_history.client_settings, source.name, orders_schema())
        router = _router(mesh, other, services, source.name)
        try:
            router.start()
            source.creates([1])
            source.publish()
            message = await mesh.is_told(tenant, "degraded")
            await eventually(lambda: events_of_tables() == ["TableRefused"])
            explained = mesh.explains(tenant, "orders")
            nobody = mesh.explains(f"{tenant}x", "orders")
            for each in (router, *mesh.operators):
                each.kill()
            for operator in mesh.operators:
                operator.start()
            router.start()
            source.creates([2])
            source.publish()
            letters = f"{tenant}.dead-letter"
            await eventually(lambda: len(read_topic(broker, letters)) == 2)
            mesh.config_map(tenant, document.format(tenant, source.name, "id = 3"))
            await mesh.is_told(tenant, "ready")
            await eventually(lambda: events_of_tables() == ["TableAccepted", "TableRefused"])
            source.creates([3])
            source.publish()
            delivered = mesh.kafka.reads(tenant, "first", f"{tenant}.{source.name}.shop.orders")
        finally:
            router.stop()

    assert f"- shop.orders of {source.name}: row filter: id = 'one': cannot compare" in message
    assert "rows     only where id = 'one'   (tenant.yaml:4)" in explained.output
    assert "REFUSED  routers set its events aside as dead letters: row filter: id = 'one'" in explained.output
    assert f"in namespace {mesh.tenants}; did you mean {tenant!r}" in str(nobody.exception)
    assert json.loads(str(delivered))["after"]["id"] == 3
    record, told = mesh.record(tenant), mesh.cluster.get("configmap", tenant, mesh.tenants)
    assert record is not None
    assert "refusals.json" not in record["data"]
    assert told is not None
    assert "headwater.dev/refused-tables" not in told["metadata"]["annotations"]


def test_a_cluster_that_kubectl_does_not_reach_is_told_by_name(mesh: Mesh, tenant: str) -> None:
    (port,) = free_ports(1)
    kubeconfig = yaml.safe_load(Path(mesh.kubeconfig()).read_text())
    kubeconfig["clusters"][0]["cluster"]["server"] = f"https://{LOOPBACK}:{port}"
    file = mesh.folder / "elsewhere"
    file.write_text(yaml.safe_dump(kubeconfig))

    found = mesh.explains(tenant, "orders", kubeconfig=str(file)).exception

    assert isinstance(found, ClusterUnavailable)
    assert f"kubectl reaches no API server: The connection to the server {LOOPBACK}:{port} was refused" in str(found)


async def test_tables_that_meet_in_one_topic_are_told_to_each_team_that_gets_both(
    mesh: Mesh, tenant: str, valkey_server: ValkeyServer, unique_name: Callable[[str], str]
) -> None:
    """By a tenant's own template, and by the names that everybody's topics have; a tenant that gets one of the two notices
    nothing. It is over with the document that excludes one."""
    operator, broker = mesh.start_operator(), mesh.kafka.broker.bootstrap_servers
    source = ChangesSource(broker, unique_name("shop").replace("_", "-"))
    document = "tenant: {}\nsources: [{{name: {}, exclude_tables: [{}]}}]\nsink: null\n"
    own, bystander = f"{tenant}-own", f"{tenant}-by"
    mesh.tenant(tenant, document.format(tenant, source.name, ""))
    mesh.tenant(bystander, document.format(bystander, source.name, "'.*a b'"))
    template = "topics: {name: '{tenant}.all.{database}_{table}.x'}\n"
    mesh.tenant(own, document.format(own, source.name, "'.*a b'") + template)
    for name in (tenant, bystander, own):
        await mesh.is_told(name, "ready")
    tables = [TableId(database=d, table=t) for d, t in (("s", "b_c"), ("s_b", "c"), ("s", "a_b"), ("s", "a b"))]

    with started_services(broker, valkey_server.url, mesh.folder) as services:
        for table_id in tables:
            schema = msgspec.structs.replace(orders_schema(), table_id=table_id)
            await record_schema(services.schema_history.client_settings, source.name, schema)
        router = _router(mesh, operator, services, source.name)
        try:
            router.start()
            for table_id in tables[:3]:
                source.creates([1], table=table_id)
            source.publish()
            of_own = await mesh.is_told(own, "degraded")
            of_all = await mesh.is_told(tenant, "degraded")
            source.creates([1], table=tables[3])
            source.publish()
            await eventually(lambda: len(read_topic(broker, f"{tenant}.{source.name}.s.a_b")) == 1)
            states = mesh.told(own)[0], mesh.told(bystander)[0]
            events = [each["message"] for each in mesh.cluster.list("events", mesh.tenants)]
            mesh.config_map(tenant, document.format(tenant, source.name, "'.*a b'"))
            await mesh.is_told(tenant, "ready")
            source.creates([2], table=tables[2])
            source.publish()
            await eventually(lambda: len(read_topic(broker, f"{tenant}.{source.name}.s.a_b")) == 2)
            await eventually(lambda: len(read_topic(broker, f"{bystander}.{source.name}.s.a_b")) == 2)
        finally:
            router.stop()

    assert f"- s_b.c of {source.name}: topic {own}.all.s_b_c.x: tables s.b_c" in of_own
    assert "both map to it" in of_own
    assert f"- s.a_b of {source.name}: topic {tenant}.{source.name}.s.a_b: tables s.a b" in of_all
    assert states == ("degraded", "ready")
    assert any(f"table s.a_b of {source.name} is not delivered" in each for each in events)


async def test_a_masks_key_that_a_router_lacks_is_told_whatever_the_operator_sees(
    mesh: Mesh, tenant: str, valkey_server: ValkeyServer, unique_name: Callable[[str], str]
) -> None:
    """The operator looks at Secrets; the mounts of the router's pod are another matter: one tenant's key comes there late,
    another's goes. No row is needed for the end."""
    operator, broker = mesh.start_operator(), mesh.kafka.broker.bootstrap_servers
    source = ChangesSource(broker, unique_name("shop").replace("_", "-"))
    mask = "{columns: '.*email', hmac: {key_from: {file: pii}}}"
    mesh.tenant(tenant, f"tenant: {tenant}\nsources: [{{name: {source.name}, masks: [{mask}]}}]\nsink: null\n")
    await mesh.is_told(tenant, "ready")
    key = mesh.folder / "keys" / tenant / "pii"
    key.parent.mkdir(parents=True)
    key.write_text(secrets.token_hex(32))
    rows, letters = f"{tenant}.{source.name}.shop.orders", f"{tenant}.dead-letter"
    late = f"{tenant}-late"
    mesh.tenant(late, f"tenant: {late}\nsources: [{{name: {source.name}, masks: [{mask}]}}]\nsink: null\n")
    await mesh.is_told(late, "ready")

    with started_services(broker, valkey_server.url, mesh.folder) as services:
        await record_schema(services.schema_history.client_settings, source.name, orders_schema())
        router = _router(mesh, operator, services, source.name)
        router.settings = {**router.settings, "keys_folder": str(mesh.folder / "keys")}
        try:
            router.start()
            of_late = await mesh.is_told(late, "degraded")
            explained = mesh.explains(late, "orders")
            shutil.copytree(key.parent, key.parent.with_name(late))
            await mesh.is_told(late, "ready")
            source.creates([1])
            source.publish()
            await eventually(lambda: len(read_topic(broker, rows)) == 1)
            away = key.rename(mesh.folder / "pii")
            of_document = await mesh.is_told(tenant, "degraded")
            source.creates([2])
            source.publish()
            message = await mesh.is_told(tenant, "degraded", "1 table is not delivered")
            away.rename(key)
            await mesh.is_told(tenant, "ready")
            source.creates([3])
            source.publish()
            events = {each["reason"] for each in mesh.cluster.list("events", mesh.tenants)}
            await eventually(lambda: len(read_topic(broker, rows)) == 2)
        finally:
            router.stop()

    missing = f"{late}/pii of {mesh.folder / 'keys'} cannot be read (No such file or directory); put it there"
    assert f"- tenant.yaml:2: sources[0].masks[0].hmac.key_from: key file {missing}; nothing of the tenant" in of_late
    assert "a router does not take the document, and goes by the former one: tenant.yaml:2:" in explained.output
    assert "1 router does not take the document; a mask's key is in routers' pods within a minute" in of_document
    assert "put it there; the version before stays in force there" in of_document
    assert f"- shop.orders of {source.name}: " in message
    assert f"key file {tenant}/pii of {mesh.folder / 'keys'} cannot be read" in message
    assert {"DocumentRefused", "DocumentAccepted", "TableRefused", "TableAccepted"} <= events
    assert len(read_topic(broker, f"{late}.{source.name}.shop.orders")) == 3
    assert len(read_topic(broker, letters)) == 1


async def test_topics_that_kafka_refuses_are_told_and_end_without_a_row(
    mesh: Mesh, tenant: str, valkey_server: ValkeyServer, unique_name: Callable[[str], str]
) -> None:
    """Of rows, and of transactions, which nothing reported before. The router's Kafka user gets the right that it lacked."""
    operator, broker = mesh.start_operator(), mesh.kafka.broker.bootstrap_servers
    source = ChangesSource(broker, unique_name("shop").replace("_", "-"))
    mesh.tenant(
        tenant,
        f"tenant: {tenant}\nsources: [{{name: {source.name}}}]\ntopics: {{transactions: true}}\nsink: null\n",
    )
    await mesh.is_told(tenant, "ready")
    rows, marks = f"{tenant}.{source.name}.shop.orders", f"{tenant}.{source.name}.transaction"
    kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    admin = mesh.kafka.admin
    for change in admin.create_acls([_right(kind, "*", AclOperation.ALL) for kind in kinds]).values():
        change.result()
    lacks = [_right(ResourceType.TOPIC, name, AclOperation.CREATE, AclPermissionType.DENY) for name in (rows, marks)]
    for change in admin.create_acls(lacks).values():
        change.result()

    with started_services(broker, valkey_server.url, mesh.folder) as services:
        await record_schema(services.schema_history.client_settings, source.name, orders_schema())
        router = _router(mesh, operator, services, source.name)
        router.settings = {**router.settings, "kafka": mesh.kafka.router_settings}
        try:
            router.start()
            source.batch.add_begin("gtid:1", 1)
            source.creates([1])
            source.publish()
            message = await mesh.is_told(tenant, "degraded", "1 topic is not written")
            explained = mesh.explains(tenant, "orders")
            for gone in admin.delete_acls([_filter_of(each) for each in lacks]).values():
                gone.result()
            await mesh.is_told(tenant, "ready")
            source.batch.add_begin("gtid:2", 2)
            source.creates([2])
            source.publish()
            events = {each["reason"] for each in mesh.cluster.list("events", mesh.tenants)}
            await eventually(lambda: len(read_topic(broker, rows)) == len(read_topic(broker, marks)) == 1)
        finally:
            router.stop()

    assert f"- shop.orders of {source.name}: may not create topic {rows}: grant CREATE on it" in message
    assert f"- transactions of {source.name}: may not create topic {marks}: grant CREATE on it" in message
    assert f"routers leave transactions of {source.name} out: may not create topic" in explained.output
    assert {"TableRefused", "TableAccepted", "TopicRefused", "TopicAccepted"} <= events
    assert len(read_topic(broker, f"{tenant}.dead-letter")) == 1


@pytest.mark.parametrize("lacking", [[AclOperation.WRITE], [AclOperation.WRITE, AclOperation.DESCRIBE]])
async def test_records_that_kafka_does_not_take_hold_back_their_tenant_alone_and_its_team_is_told(
    mesh: Mesh,
    tenant: str,
    valkey_server: ValkeyServer,
    unique_name: Callable[[str], str],
    lacking: list[AclOperation],
) -> None:
    """The router's Kafka user loses a right while it writes, and the router is killed meanwhile: nothing is lost or comes out
    of order, it is reported once, and over without a row once the right is there."""
    operator, broker = mesh.start_operator(), mesh.kafka.broker.bootstrap_servers
    source = ChangesSource(broker, unique_name("shop").replace("_", "-"))
    other = f"{tenant}-by"
    for name in (tenant, other):
        mesh.tenant(name, f"tenant: {name}\nsources: [{{name: {source.name}}}]\nsink: null\n")
        await mesh.is_told(name, "ready")
    rows, of_other = (f"{name}.{source.name}.shop.orders" for name in (tenant, other))
    kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
    admin = mesh.kafka.admin
    for change in admin.create_acls([_right(kind, "*", AclOperation.ALL) for kind in kinds]).values():
        change.result()
    lacks = [_right(ResourceType.TOPIC, rows, operation, AclPermissionType.DENY) for operation in lacking]

    def publish(number: int) -> None:
        source.creates([number])
        source.publish()

    def events_of_records() -> list[str]:
        found = mesh.cluster.list("events", mesh.tenants)
        return sorted(each["reason"] for each in found if each["reason"].startswith("Records"))

    with started_services(broker, valkey_server.url, mesh.folder) as services:
        await record_schema(services.schema_history.client_settings, source.name, orders_schema())
        router = _router(mesh, operator, services, source.name)
        router.settings = {**router.settings, "kafka": mesh.kafka.router_settings}
        try:
            router.start()
            publish(1)
            await eventually(lambda: len(read_topic(broker, rows)) == 1)
            for change in admin.create_acls(lacks).values():
                change.result()
            publish(2)
            publish(3)
            message = await mesh.is_told(tenant, "degraded")
            await eventually(lambda: created_ids(read_topic(broker, of_other)) == [1, 2, 3])
            explained, (_, readiness) = mesh.explains(tenant, "orders"), router.get("/readyz")
            router.kill()
            router.start()
            publish(4)
            await eventually(lambda: created_ids(read_topic(broker, of_other)) == [1, 2, 3, 4])
            await eventually(lambda: "lags alone: Kafka refuses" in router.get("/readyz")[1])
            states, events = (mesh.told(tenant)[0], mesh.told(other)[0]), events_of_records()
            for gone in admin.delete_acls([_filter_of(each) for each in lacks]).values():
                gone.result()
            await mesh.is_told(tenant, "ready")
            await eventually(lambda: created_ids(read_topic(broker, rows)) == [1, 2, 3, 4])
            await eventually(lambda: events_of_records() == ["RecordsAccepted", "RecordsRefused"])
            await eventually(lambda: not router.get("/readyz")[1].startswith("degraded"))
        finally:
            router.stop()

    reason = f"Kafka refuses records of {rows}: grant the router WRITE and DESCRIBE on it"
    assert "1 source waits at the routers; nothing is set aside or lost" in message
    assert f"- {source.name}: {reason}" in message
    assert f"all of source {source.name} waits at the routers, and comes in order once that is mended: {reason}" in (
        explained.output
    )
    assert readiness.startswith(f"degraded: {tenant} lags alone: {reason}")
    assert (states, events) == (("degraded", "ready"), ["RecordsRefused"])
    assert read_topic(broker, f"{tenant}.dead-letter") == []


async def test_a_tenant_has_as_many_topics_as_the_mesh_grants_it(
    mesh: Mesh, tenant: str, valkey_server: ValkeyServer, unique_name: Callable[[str], str]
) -> None:
    """A document that needs more is refused, and so is a table that comes later, until the quota is raised. With the settings
    that the chart gives to both."""
    broker = mesh.kafka.broker.bootstrap_servers
    source = ChangesSource(broker, unique_name("shop").replace("_", "-"))
    document = "tenant: {}\nsources: [{{name: {}, exclude_tables: [{}]}}]\nsink: null\n"
    items, late = (TableId(database="shop", table=table) for table in ("items", "late"))
    values = {"topicQuotas": {"perTenant": 4}, "sources": {"shop": {"kind": "mysql", "settings": {}}}}
    rendered = [render(mesh.cluster, values, mesh.own, name) for name in ("tenant-operator", "router")]
    to_operator, to_router = (
        yaml.safe_load(next(each for each in found if each["kind"] == "ConfigMap")["data"]["settings.yaml"])[
            "topic_quotas"
        ]
        for found in rendered
    )
    with started_services(broker, valkey_server.url, mesh.folder) as services:
        history = services.schema_history.client_settings

        async def record(table_id: TableId) -> None:
            await record_schema(history, source.name, msgspec.structs.replace(orders_schema(), table_id=table_id))

        await record_schema(history, source.name, orders_schema())
        await record(items)
        sources = [{"name": source.name, "kind": "mysql", "include_tables": [".*"]}]
        joining = {"schema_history": {"address": history.address}, "sources": sources}
        operator = mesh.start_operator(topic_quotas=to_operator, joining=joining)
        mesh.tenant(tenant, document.format(tenant, source.name, ""))
        refused = await mesh.is_told(tenant, "refused")
        mesh.config_map(tenant, document.format(tenant, source.name, "'.*items'"), plan="true")
        plan = await mesh.is_told(tenant, "planned")
        mesh.config_map(tenant, document.format(tenant, source.name, "'.*items'"), plan="false")
        await mesh.is_told(tenant, "ready")
        router = _router(mesh, operator, services, source.name)
        router.settings = {**router.settings, "topic_quotas": to_router}
        try:
            router.start()
            source.creates([1])
            await record(late)
            source.creates([2], table=late)
            source.publish()
            degraded = await mesh.is_told(tenant, "degraded")
            topics = mesh.kafka.topics(tenant)
            router.stop()
            router.settings = {**router.settings, "topic_quotas": {"per_tenant": 5}}
            router.start()
            await mesh.is_told(tenant, "ready")
            source.creates([3], table=late)
            source.publish()
            await eventually(lambda: len(read_topic(broker, f"{tenant}.{source.name}.shop.late")) == 1)
        finally:
            router.stop()

    assert "sources: needs 5 topics by the tables that there are now, 2 of rows and 3 others" in refused
    assert f"and tenant {tenant} may have 4" in refused
    assert "4 topics by the tables that there are now, 1 of rows and 3 others; it may have 4" in plan
    assert (
        f"- shop.late of {source.name}: topic {tenant}.{source.name}.shop.late: tenant {tenant} has 4 topics"
        in degraded
    )
    assert len(topics) == 4
    assert len(read_topic(broker, f"{tenant}.dead-letter")) == 1
    assert len(read_topic(broker, f"{tenant}.{source.name}.shop.orders")) == 1


async def test_a_schema_that_the_registry_takes_at_last_ends_the_refusal_without_a_row(
    mesh: Mesh,
    tenant: str,
    valkey_server: ValkeyServer,
    schema_registry: RegistryServer,
    unique_name: Callable[[str], str],
) -> None:
    """The router asks the registry again by itself; the next row comes by the schema that it was given then."""
    operator, broker = mesh.start_operator(), mesh.kafka.broker.bootstrap_servers
    source = ChangesSource(broker, unique_name("shop").replace("_", "-"))
    mesh.tenant(tenant, f"tenant: {tenant}\nsources: [{{name: {source.name}}}]\nformat: {{kind: avro}}\nsink: null\n")
    await mesh.is_told(tenant, "ready")
    topic = f"{tenant}.{source.name}.shop.orders"
    with (
        started_services(broker, valkey_server.url, mesh.folder) as services,
        SchemaRegistryClient({"url": schema_registry.url}) as registry,
    ):
        history = services.schema_history.client_settings
        await record_schema(history, source.name, orders_schema())
        router = _router(mesh, operator, services, source.name)
        router.settings = {**router.settings, "schema_registry": {"url": schema_registry.url}}
        try:
            router.start()
            source.run(whole_creates([1]))
            source.publish()
            await eventually(lambda: len(read_topic(broker, topic)) == 1)
            registry.set_config(f"{topic}-value", ServerConfig(compatibility=ConfigCompatibilityLevel.BACKWARD))
            stricter = orders_schema(column("note", LogicalKind.STRING, "varchar(50)", is_optional=False))
            version = await record_schema(history, source.name, stricter, rank=9)
            source.run(whole_creates([2], note="x"), version=version)
            source.publish()
            message = await mesh.is_told(tenant, "degraded")
            registry.set_config(f"{topic}-value", ServerConfig(compatibility=ConfigCompatibilityLevel.NONE))
            await mesh.is_told(tenant, "ready")
            source.run(whole_creates([3], note="y"), version=version)
            source.publish()
            await eventually(lambda: len(read_topic(broker, topic)) == 2)
        finally:
            router.stop()

    assert "incompatible with the older ones" in message
    assert len(read_topic(broker, f"{tenant}.dead-letter")) == 1


async def test_a_plan_tells_what_would_change_and_changes_nothing(
    mesh: Mesh, tenant: str, valkey_server: ValkeyServer, unique_name: Callable[[str], str]
) -> None:
    """Of a new tenant and of one that is there, with the tables that match now; without the annotation it comes into force."""
    broker, source = mesh.kafka.broker.bootstrap_servers, unique_name("shop").replace("_", "-")
    document = f"tenant: {tenant}\nsources:\n  - name: {source}\n"
    masked = f"{document}    masks: [{{columns: '.*email', keep_last: 4}}]\n"
    with started_services(broker, valkey_server.url, mesh.folder) as services:
        await record_schema(services.schema_history.client_settings, source, orders_schema())
        joining = {
            "schema_history": {"address": services.schema_history.client_settings.address},
            "sources": [{"name": source, "kind": "mysql", "include_tables": [".*"]}],
        }
        mesh.start_operator(joining=joining)

        mesh.tenant(tenant, document, plan="true")
        message = await mesh.is_told(tenant, "planned", "nothing of it is in force")
        assert f"- Kafka user tenant.{tenant}: READ, DESCRIBE, DESCRIBE_CONFIGS on topics" in message
        assert f"- source {source}: further tables that match now: shop.orders" in message
        assert mesh.record(tenant) is None
        assert mesh.kafka.topics(tenant) == set()
        assert f"tenant.{tenant}" not in mesh.kafka.users()

        mesh.config_map(tenant, document, plan="false")
        await mesh.is_told(tenant, "ready")

        mesh.config_map(tenant, masked, plan="true")
        message = await mesh.is_told(tenant, "planned", "its last good version stays in force")
        assert message.splitlines()[1:] == ["- shop.orders.email: masked, its last 4 characters; now delivered"]
        assert mesh.in_force(tenant) == document

        mesh.config_map(tenant, masked, plan="false")
        await mesh.is_told(tenant, "ready")
        await eventually(lambda: mesh.in_force(tenant) == masked)


async def test_a_tenant_that_joins_has_the_rows_that_are_there_asked_for_once_through_kills(
    mesh: Mesh,
    tenant: str,
    valkey_server: ValkeyServer,
    mysql_server: MysqlServer,
    unique_name: Callable[[str], str],
) -> None:
    """Killed with the notice stored, and with the signal sent; a further table later. From a MySQL into the tenant's topics,
    by the reader and the router. A tenant that did not ask gets the changes; one that was there before the source was known
    has its first copy.
    """
    database = unique_name("joining")
    mysql_server.execute(f"CREATE DATABASE {database}")
    for table in ("orders", "items"):
        mysql_server.execute(
            f"CREATE TABLE {database}.{table} (id INT PRIMARY KEY)",
            f"INSERT INTO {database}.{table} VALUES (1), (2), (3)",
        )
    broker, source = mesh.kafka.broker, unique_name("shop").replace("_", "-")
    include = [f"{database}\\..*"]
    servers = ExitStack()
    services = servers.enter_context(started_services(broker.bootstrap_servers, valkey_server.url, mesh.folder))
    pipeline = pipeline_of(mesh.folder, source, broker, services, mysql_server, include_tables=include)
    joining = {
        "schema_history": services.addresses["schema_history"],
        "sources": [{"name": source, "kind": "mysql", "include_tables": include}],
    }

    def document(tables: str, *, on_joining: bool = True, of: str = tenant) -> str:
        return (
            f"tenant: {of}\nsources: [{{name: {source}, include_tables: ['{database}\\.({tables})']}}]\n"
            f"snapshot: {{on_joining: {str(on_joining).lower()}}}\n"
        )

    def delivered(name: str, table: str) -> list[tuple[str, int]]:
        """Operations and ids in a tenant's topic, as they came."""
        values = [each.value() for each in read_topic(broker.bootstrap_servers, f"{name}.{source}.{database}.{table}")]
        events = [json.loads(value) for value in values if value is not None]
        return [(event["op"], event["after"]["id"]) for event in events]

    router = RouterProcess(
        mesh.folder / "router",
        {
            "sources": [source],
            "group": unique_name("router"),
            "kafka": {"bootstrap_servers": broker.bootstrap_servers},
            **services.addresses,
        },
    )
    rows = [("r", number) for number in (1, 2, 3)]
    there, asks_not = f"{tenant}-there", f"{tenant}-asks-not"
    try:
        pipeline.reader.start()
        pipeline.wait_for_rows(lambda found: len(found) == 6, timeout_s=240.0)
        mesh.tenant(there, document("orders|items", of=there))
        operator = mesh.start_operator(joining=joining, failpoints="joining_after_noting_before_sending=kill")
        await mesh.is_told(there, "ready")
        router.settings = {**router.settings, "tenant_operator": {"address": operator.client_settings.address}}
        router.start()
        await eventually(lambda: [delivered(there, table) for table in ("orders", "items")] == [rows, rows])
        mesh.tenant(asks_not, document("orders", on_joining=False, of=asks_not))
        mesh.tenant(tenant, document("orders"))
        operator.wait_for_exit(240.0)
        [due] = mesh.joining(tenant)["noticed"]["due"]
        operator.start(failpoints="joining_after_sending_before_noting=kill", waits=False)
        operator.wait_for_exit(240.0)
        assert mesh.joining(tenant)["noticed"]["due"] == [due]
        operator.start()
        message = await mesh.is_told(tenant, "ready", f"asked for the rows of {database}.orders of {source}")
        await eventually(lambda: len(delivered(tenant, "orders")) >= 3)
        mesh.config_map(tenant, document("orders|items"))
        await mesh.is_told(tenant, "ready", f"asked for the rows of {database}.items of {source}")
        await eventually(lambda: len(delivered(tenant, "items")) >= 3)
        mysql_server.execute(f"INSERT INTO {database}.orders VALUES (4)")
        await eventually(lambda: all(("c", 4) in delivered(each, "orders") for each in (tenant, there, asks_not)))
    finally:
        router.stop()
        pipeline.stop()
        servers.close()

    assert due["signal_id"] in message
    assert delivered(tenant, "orders") == [*rows, ("c", 4)]
    assert delivered(tenant, "items") == rows
    assert delivered(asks_not, "orders") == [("c", 4)]
    assert delivered(there, "orders") == [*rows, ("c", 4)]
    assert delivered(there, "items") == rows
    assert mesh.joining(there)["asked"] == []
    assert mesh.joining(tenant)["noticed"]["due"] == []


async def test_rows_that_nobody_can_be_asked_for_are_refused_by_name(mesh: Mesh, tenant: str) -> None:
    sources = [{"name": "shop", "kind": "mysql"}, {"name": "ledger", "kind": "dts"}]
    mesh.start_operator(joining={"schema_history": {"address": f"{LOOPBACK}:1"}, "sources": sources})
    joins = "snapshot: {on_joining: true}\n"
    mesh.tenant(tenant, f"tenant: {tenant}\nsources: [{{name: shop}}, {{name: ledger}}, {{name: crm}}]\n{joins}")
    message = await mesh.is_told(tenant, "refused")

    assert "line 2: sources[2].name: 'crm' is no source of this mesh (ledger, shop)" in message
    assert "source 'ledger' is a DTS subscription" in message


async def test_another_operator_takes_over_from_one_that_is_killed(mesh: Mesh, tenant: str) -> None:
    first = mesh.start_operator()
    mesh.tenant(tenant)
    await mesh.is_told(tenant, "ready")
    second = mesh.start_operator()
    assert "lease_taken" not in second.log_text

    first.kill()
    mesh.tenant(f"{tenant}-late")
    await mesh.is_told(f"{tenant}-late", "ready")

    assert "lease_taken" in second.log_text
    first.start()  # it comes back as a candidate
    assert second.get("/healthz")[0] == 200


async def test_an_operator_whose_lease_another_holds_ends(mesh: Mesh) -> None:
    operator = mesh.start_operator()
    await eventually(lambda: "lease_taken" in operator.log_text)

    holder = json.dumps({"spec": {"holderIdentity": "another"}})
    mesh.cluster.kubectl(
        "patch", "lease", "headwater-tenant-operator", "-n", mesh.own, "--type=merge", f"--patch={holder}"
    )

    assert operator.wait_for_exit(60) == EXIT_FENCED
    assert "another operator leads now" in operator.log_text


async def test_a_stopped_operator_hands_over_at_once_and_a_restarted_one_repeats_nothing(
    mesh: Mesh, tenant: str
) -> None:
    operator = mesh.start_operator()
    mesh.tenant(tenant)
    await mesh.is_told(tenant, "ready")
    record = mesh.record(tenant)

    assert operator.stop() == 0
    lease = mesh.cluster.get("lease", "headwater-tenant-operator", mesh.own)
    assert lease is not None
    assert lease["spec"].get("holderIdentity", "") == ""
    operator.start()
    await eventually(
        lambda: (
            "headwater_operator_look_seconds_count" in operator.get("/metrics")[1]
            and _count(operator, "headwater_operator_look_seconds_count") >= 2
        )
    )

    assert _count(operator, "headwater_operator_actions_total") == 0
    assert mesh.record(tenant) == record


@pytest.mark.timeout(1_800)  # each call to a Kafka that is away takes its time-out
async def test_kafka_that_hangs_is_told_and_made_up_for(mesh: Mesh, tenant: str) -> None:
    """It takes connections, and answers none."""
    mesh.start_operator()
    mesh.tenant(tenant)
    await mesh.is_told(tenant, "ready")
    os.kill(mesh.kafka.broker.running.pid, signal.SIGSTOP)
    try:
        mesh.tenant(f"{tenant}-2")
        message = await mesh.is_told(f"{tenant}-2", "waiting")
    finally:
        os.kill(mesh.kafka.broker.running.pid, signal.SIGCONT)
    await mesh.is_told(f"{tenant}-2", "ready")

    assert "tried again" in message


@pytest.mark.timeout(1_800)  # each call to a Kafka that is away takes its time-out
async def test_kafka_away_is_told_and_made_up_for(mesh: Mesh, tenant: str) -> None:
    mesh.start_operator()
    mesh.tenant(tenant)
    await mesh.is_told(tenant, "ready")
    mesh.kafka.broker.kill()
    try:
        mesh.tenant(f"{tenant}-2")
        message = await mesh.is_told(f"{tenant}-2", "waiting")
    finally:
        mesh.kafka.broker.restart()  # the other tests' too
    await mesh.is_told(f"{tenant}-2", "ready")

    assert "tried again" in message
    # A broker that has just come back lists a topic some time after its controller has created it.
    await eventually(lambda: f"{tenant}-2.shop" in mesh.kafka.topics(f"{tenant}-2"))


async def test_routers_are_told_of_tenants_as_they_come_change_and_go(mesh: Mesh, tenant: str) -> None:
    operator = mesh.start_operator()
    mesh.tenant(tenant)
    await mesh.is_told(tenant, "ready")

    async with TenantsClient(operator.client_settings) as client:
        changes = client.watch()
        first = await anext(changes)
        mesh.config_map(tenant, f"tenant: {tenant}\nsources: [{{name: crm}}]\n")
        second = await anext(changes)
        mesh.delete(tenant)
        third = await anext(changes)
        await changes.aclose()

    assert first.is_first
    assert dict(first.in_force) == {tenant: f"tenant: {tenant}\nsources: [{{name: shop}}]\n"}
    assert dict(second.in_force) == {tenant: f"tenant: {tenant}\nsources: [{{name: crm}}]\n"}
    assert third.left == (tenant,)


def _router(mesh: Mesh, operator: ServiceProcess, services: Services, source: str) -> RouterProcess:
    """One that knows of tenants from the operator alone."""
    settings = {
        "sources": [source],
        "group": f"router-{source}",
        "kafka": {"bootstrap_servers": mesh.kafka.broker.bootstrap_servers},
        "schema_history": {"address": services.schema_history.client_settings.address},
        "checkpoint_committer": {"address": services.checkpoint_committer.client_settings.address},
        "tenant_operator": {"address": operator.client_settings.address},
    }
    return RouterProcess(mesh.folder / "router", settings)


def _image(pod: Mapping[str, Any] | None) -> str:
    """Of its first container; empty where there is no pod."""
    return "" if pod is None else str(pod["spec"]["containers"][0]["image"])


def _replicas(mesh: Mesh, stateful_set: str) -> int:
    found = mesh.cluster.get("statefulset", stateful_set, mesh.own)
    assert found is not None
    return int(found["spec"]["replicas"])


def _count(operator: ServiceProcess, metric: str) -> float:
    lines = [line for line in operator.get("/metrics")[1].splitlines() if line.startswith(metric)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def _right(
    kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType = AclPermissionType.ALLOW
) -> AclBinding:
    """Of the router's user."""
    return AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{ROUTER}", "*", operation, permission)


def _filter_of(right: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        right.restype,
        right.name,
        right.resource_pattern_type,
        right.principal,
        right.host,
        right.operation,
        right.permission_type,
    )


def _all_of(principal: str) -> AclBindingFilter:
    anything: Mapping[str, Any] = {"name": None, "host": None}
    return AclBindingFilter(
        ResourceType.ANY,
        anything["name"],
        ResourcePatternType.ANY,
        principal,
        anything["host"],
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
