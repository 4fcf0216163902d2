"""The chart on a real node: rows of a real MySQL come into tenants' topics and tables through pods.

`make cluster-e2e` runs it, and nothing else does: it needs root, and a machine of its own (``namespaces``). Kafka, MySQL and
Valkey run on the node outside of pods. The tests build on one another, in their order.
"""

import asyncio
import contextlib
import dataclasses
import json
import re
import secrets
import shutil
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from sqlalchemy.exc import OperationalError

from bench.poisons import POISONS, document_of
from libs.config.connections import KafkaSettings
from libs.config.iceberg_catalog import CatalogKind, CatalogSettings
from libs.kafka.clients import TopicSpec, ensure_topics
from libs.mesh.cluster_warehouses import iceberg_catalog
from libs.mesh.mesh_settings import IcebergPlace
from libs.servers import valkey_server
from libs.servers.kafka_broker import Sasl
from libs.servers.ports import free_ports
from libs.servers.process import kill, start, wait_ready
from libs.stand_ins.vtgate.client import execute
from libs.stand_ins.vtgate.cluster import on_every_shard, topology_of
from libs.stand_ins.vtgate.service import VtgateServer
from libs.tenants.config_map import STATE_ANNOTATION
from libs.types.table import TableId
from libs.types.warehouse import warehouse_table
from libs.warehouse_readers.warehouse import load_table
from tests.certificates import Authority, write_certificates
from tests.cluster import images, namespaces, older
from tests.cluster.chart import CHART, RELEASE, write_values
from tests.cluster.control_plane import ControlPlane
from tests.cluster.e2e import NEEDED, SERVICES
from tests.cluster.metrics_server import start_metrics_server_in
from tests.cluster.node import ADDRESS, Node, start_node_in
from tests.cluster.spark_operator import start_spark_operator_in
from tests.cluster.test_tenant_operator import LABEL, GuardedKafka
from tests.conftest import READY_TIMEOUT_S, MysqlServer, start_kafka_in, start_mysql_in
from tests.integration.dts_stand_in import stand_in
from tests.integration.service_process import eventually

pytestmark = [pytest.mark.node, pytest.mark.timeout(3_000)]

WAIT_S: Final = 900.0
MOST_APPLIED: Final = 200_000
"""Characters of a document: kubectl notes it once more in an annotation."""
"""A Spark that starts cold on two busy cores."""
MESH, MONITORING = "headwater", "monitoring"
ACME, GLOBEX = "acme", "globex"
HOOLI: Final = "hooli"
"""A tenant of topics alone, of tests that bring sources of their own."""
TEAMS: Final = tuple(f"team-{tenant}" for tenant in (ACME, GLOBEX, HOOLI))
MESH_USER, READER_USER = "headwater", "headwater"
POD_USER: Final = 10_001
TABLE: Final = TableId(database="shop", table="orders")
METRICS, GRPC, DRIVER, SERVED = 8_080, 7_000, 7_078, 9_000
"""Ports of the chart's pods, and of those that the tests make."""
CONNECT: Final = """
import concurrent.futures, socket, sys

def outcome(target):
    host, port = target.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=float(sys.argv[1])).close()
    except TimeoutError:
        return "dropped"
    except ConnectionRefusedError:
        return "nobody listens"
    return "connected"

with concurrent.futures.ThreadPoolExecutor() as pool:
    print(*pool.map(outcome, sys.argv[2:]), sep=chr(10))
"""
CALL: Final = """
import grpc, sys
address, method, *texts = sys.argv[1:]
authority, key, certificate = [text.encode() for text in texts] or (None, None, None)
if authority is None:
    channel = grpc.insecure_channel(address)
else:
    channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(authority, key or None, certificate or None))
try:
    channel.unary_unary(method)(b"", timeout=60)
except grpc.RpcError as error:
    print(error.code().name)
else:
    print("OK")
"""
"""The outcome of a call, with an authority, a key and a certificate; without an authority in the clear."""
SERVED_CERTIFICATE: Final = """
import socket, ssl, sys
host, port = sys.argv[1].split(":")
context = ssl.create_default_context(cafile="/etc/headwater/tls/ca.crt")
context.load_cert_chain("/etc/headwater/tls/tls.crt", "/etc/headwater/tls/tls.key")
context.set_alpn_protocols(["h2"])
with context.wrap_socket(socket.create_connection((host, int(port)), timeout=60), server_hostname=host) as connection:
    print(ssl.DER_cert_to_PEM_cert(connection.getpeercert(binary_form=True)))
"""
"""The certificate that a server shows to a component of the mesh."""
CONNECT_TIMEOUT_S: Final = 15.0
"""A packet that is dropped is known by nothing else; one that is let through is answered by the kernel, in milliseconds."""
SUBSCRIPTION: Final = "topic-subs-ledger"
"""DTS's topic."""
ROUTER_CPU: Final = "40m"
"""A router's request where it is to be scaled: some four times its use without rows."""
LOAD_ROWS, LOAD_PAUSE_S = 1_000, 0.1
SUBMITTED: Final = ("-l", "sparkoperator.k8s.io/launched-by-spark-operator=true")
"""Pods that a Spark Operator's `spark-submit`, or the driver that it made, has made."""
RESTRICTED: Final = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}

Pod = tuple[str, str]
"""Its namespace and name."""
Event = tuple[int, int]
"""A row's id and version: each change of the test makes another."""


@dataclass(slots=True)
class Mesh:
    """A release of the chart with two tenants, under mutual TLS, and the rows written into the source."""

    node: Node
    kafka: GuardedKafka
    mysql: MysqlServer
    values: dict[str, Any]
    warehouse: Path
    warehouse_volume: Mapping[str, Any]
    """As values have it for pods that read and write its tables."""
    passwords: Mapping[str, str]
    authority: Authority
    """Of the certificates of the mesh."""
    written: list[Event] = field(default_factory=list)
    """From the tenants' coming on."""
    first_row: int = 1
    """Of those."""
    objects_before: set[str] = field(default_factory=set)
    """The namespace's own, and the test's, before anything was installed."""

    @property
    def cluster(self) -> ControlPlane:
        return self.node.cluster

    def write(self, rows: int) -> None:
        """So many new rows, and a second version of each other one, in transactions of ten."""
        first = max((row + 1 for row, _ in self.written), default=self.first_row)
        numbers = range(first, first + rows)
        with self.mysql.connect("shop", autocommit=False) as connection, connection.cursor() as cursor:
            for number in numbers:
                cursor.execute("INSERT INTO orders VALUES (%s, 1, %s)", (number, f"order {number}"))
                self.written.append((number, 1))
                if number % 2:
                    cursor.execute("UPDATE orders SET version = 2 WHERE id = %s", (number,))
                    self.written.append((number, 2))
                if number % 10 == 0:
                    connection.commit()
            connection.commit()

    def topic(self, tenant: str) -> str:
        return f"{tenant}.shop.{TABLE.database}.{TABLE.table}"

    def events(self, tenant: str) -> "Counter[Event]":
        """Every event of the tenant's topic that is committed."""
        return Counter((row["id"], row["version"]) for row in self.rows_of(tenant, self.topic(tenant)))

    def ids(self, tenant: str, topic: str) -> list[int]:
        """Those of the rows, in the topic's order, with repeats."""
        return [row["id"] for row in self.rows_of(tenant, topic)]

    def rows_of(self, tenant: str, topic: str) -> Iterator[dict[str, Any]]:
        """The rows of a topic's events that are committed, read as the tenant; none while there is no topic."""
        config = self.kafka.client(
            tenant,
            self.passwords[tenant],
            **{
                "group.id": f"{tenant}.{secrets.token_hex(4)}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "allow.auto.create.topics": False,
            },
        )
        if topic not in self.kafka.topics(tenant):
            return
        with ExitStack() as stack:
            consumer = Consumer(config)
            stack.callback(consumer.close)
            partitions = set(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
            consumer.subscribe([topic])
            while partitions:
                message = consumer.poll(60)
                assert message is not None, "Kafka answers no more"
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    partitions.discard(message.partition())
                elif value := message.value():
                    yield json.loads(value)["after"]

    def table(self, tenant: str) -> list[dict[str, Any]]:
        """The rows of the tenant's table as the source has them; none while there is no table."""
        catalog = CatalogSettings(kind=CatalogKind.SQLITE, file=str(_catalog_file(self.warehouse)))
        if not _catalog_file(self.warehouse).exists():
            return []
        place = IcebergPlace(warehouse_dir=str(self.warehouse), catalog=catalog)
        try:
            table = load_table(iceberg_catalog(place), warehouse_table(tenant, "shop", TABLE))
        except OperationalError:  # the catalog is being made at this moment
            return []
        if table is None:
            return []
        wanted = ("id", "version", "note")
        return [
            {name: row[name] for name in wanted} for row in table.scan(selected_fields=wanted).to_arrow().to_pylist()
        ]

    def source_rows(self) -> list[Event]:
        found = self.mysql.execute(f"SELECT id, version FROM shop.orders WHERE id >= {self.first_row}")
        return [(int(row), int(version)) for row, version in found]

    def is_delivered(self) -> bool:
        """Whether both tenants' tables hold the written changes: the mirror the rows, the log every change."""
        mirror = sorted((row["id"], row["version"]) for row in self.table(ACME))
        return mirror == sorted(self.source_rows()) and len(self.table(GLOBEX)) >= len(self.written)

    async def eventually(self, is_so: Callable[[], bool]) -> None:
        """Waits until it is; else the error shows how the mesh stands."""
        try:
            await eventually(is_so, WAIT_S)
        except AssertionError as error:
            error.add_note(self.state())
            raise

    async def all_is_delivered_once(self) -> None:
        """Waits until all is there; then nothing is there twice, neither in topics nor in the log."""
        try:
            await self.eventually(self.is_delivered)
        except AssertionError as error:
            counts = {tenant: (len(self.table(tenant)), self.events(tenant).total()) for tenant in (ACME, GLOBEX)}
            error.add_note(f"{len(self.written)} changes written; tables and topics have {counts}")
            raise
        once = Counter(self.written)
        assert Counter((row["id"], row["version"]) for row in self.table(GLOBEX)) == once
        assert self.events(ACME) == once
        assert self.events(GLOBEX) == once

    def state(self) -> str:
        """Pods, and the ends of their logs."""
        told = [
            self.cluster.kubectl_answers("get", "pods,hpa,events,configmaps", "-A", "-o", "wide"),
            self.cluster.kubectl_answers("get", "sparkapplications", "-n", MESH, "-o", "jsonpath={.items[*].status}"),
        ]
        for pod in self.cluster.list("pods", MESH):
            name = pod["metadata"]["name"]
            told += [f"--- {name}", self.cluster.kubectl_answers("logs", "-n", MESH, name, "--tail=15")]
        return "\n".join(told)

    def helm(self, *arguments: str) -> None:
        try:
            self.cluster.helm(*arguments)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            error.add_note(self.state())
            raise

    def install(self, command: str, chart: Path, **changed: Any) -> None:
        """``helm install`` or ``upgrade``; returns when every pod is ready."""
        values = write_values(self.cluster, {**self.values, **changed}, command)
        self.helm(command, RELEASE, str(chart), "-n", MESH, "-f", str(values), "--wait", f"--timeout={WAIT_S:.0f}s")

    def pod(self, **labels: str) -> str:
        """The one pod with these labels."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        [found] = self.cluster.list("pods", MESH, "-l", selector)
        return str(found["metadata"]["name"])

    def submitted(self) -> dict[str, str]:
        """The mesh's roles of pods that the Spark Operator had made, and are ready, by their roles in Spark."""
        found = self.cluster.list("pods", MESH, *SUBMITTED)
        ready = [pod["metadata"]["labels"] for pod in found if _is_ready(pod)]
        return {labels["spark-role"]: labels["headwater.dev/role"] for labels in ready}

    def runs_by(self, kind: str) -> bool:
        """Whether the tenants' job is run so, and by nothing else."""
        others = {"statefulsets", "sparkapplications"} - {kind}
        is_alone = not any(self.cluster.list(other, MESH) for other in others)
        return is_alone and len(self.cluster.list(kind, MESH)) == 1

    def jobs(self) -> set[str]:
        """The Spark jobs that are run as StatefulSets."""
        found = self.cluster.list("statefulsets", MESH, "-l", "headwater.dev/sink-job")
        return {each["metadata"]["labels"]["headwater.dev/sink-job"] for each in found}

    def state_volume(self) -> str:
        """The claim of the job's state: another one has another."""
        [claim] = self.cluster.list("persistentvolumeclaims", MESH, "-l", "headwater.dev/sink-job")
        return str(claim["metadata"]["uid"])

    async def upgrade(self, chart: Path, **changed: Any) -> None:
        """``helm upgrade``, by which every pod is made again, and rows all the while."""
        await self._every_pod_anew(lambda: self.install("upgrade", chart, **changed))

    async def roll_back(self) -> None:
        """``helm rollback`` to the revision before, by which every pod is made again, and rows all the while."""
        wait = ("--wait", f"--timeout={WAIT_S:.0f}s")
        await self._every_pod_anew(lambda: self.helm("rollback", RELEASE, "-n", MESH, *wait))

    async def _every_pod_anew(self, change: Callable[[], None]) -> None:
        """Rows are written until no pod is left of those before."""
        before = self.pod_uids()
        async with self._rows_all_the_while():
            await asyncio.to_thread(change)
            await self.eventually(lambda: not before & self.pod_uids())
        self.write(40)

    @contextlib.asynccontextmanager
    async def _rows_all_the_while(self) -> AsyncIterator[None]:
        async def write() -> None:
            while True:
                self.write(3)
                await asyncio.sleep(1.0)

        writer = asyncio.create_task(write())
        try:
            yield
        finally:
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writer

    def renew_certificates(self) -> str:
        """Put a new certificate for all components into their Secret; the certificate."""
        hosts = [f"{RELEASE}-{service}" for service in ("schema-history", "checkpoint-committer", "tenant-operator")]
        entries = self.authority.secret(*hosts)
        self.cluster.apply(_secret("mesh-tls", MESH, **entries))
        return entries["tls.crt"].strip()

    def table_writes(self, tenant: str) -> dict[str, float]:
        """How often the Spark job wrote the tenant's table since it was started, by way (docs/metrics.md)."""
        found = self._metric("sink", "headwater_sink_table_writes_total", tenant)
        return {sample.labels["way"]: sample.value for sample in found}

    def compared(self, tenant: str) -> tuple[float, float]:
        """Rows of the tenant's table that the last turn compared, and of those the ones that differed."""
        compared, different = (
            sum(sample.value for sample in self._metric("check", f"headwater_check_{name}_rows", tenant))
            for name in ("compared", "different")
        )
        return compared, different

    def _metric(self, role: str, name: str, tenant: str) -> list[Sample]:
        """The samples of a tenant by this metric, of the one pod of a role."""
        samples = self._samples(self.pod(**{"headwater.dev/role": role}))
        return [sample for sample in samples if sample.name == name and sample.labels["tenant"] == tenant]

    def _samples(self, pod: str) -> Iterator[Sample]:
        """Every metric of a pod. The node asks it: a program in the pod would count as the pod's own CPU."""
        page = self.cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{MESH}/pods/{pod}:{METRICS}/proxy/metrics")
        return (sample for family in text_string_to_metric_families(page) for sample in family.samples)

    def lanes(self) -> list[int]:
        """How many source partitions each router that is ready routes."""
        routers = [
            pod["metadata"]["name"]
            for pod in self.cluster.list("pods", MESH, "-l", "headwater.dev/role=router")
            if _is_ready(pod)
        ]
        return [
            int(sample.value)
            for pod in routers
            for sample in self._samples(pod)
            if sample.name == "headwater_router_lanes"
        ]

    def routers_wanted(self) -> int:
        """How many there are to be, as the HPA has it."""
        found = self.cluster.get("deployment", "headwater-router", MESH)
        assert found is not None
        return int(found["spec"]["replicas"])

    def router_cpu_percent(self) -> int | None:
        """Of what they request, as the HPA saw it last; None: it saw none yet."""
        found = self.cluster.get("hpa", "headwater-router", MESH)
        told = (found or {}).get("status", {}).get("currentMetrics") or [{}]
        percent = told[0].get("resource", {}).get("current", {}).get("averageUtilization")
        return None if percent is None else int(percent)

    def objects(self) -> set[str]:
        """The objects in the namespace, and those of the chart anywhere."""

        def kinds(is_namespaced: str) -> str:
            scope = ("--verbs=list,delete", f"--namespaced={is_namespaced}", "-o", "name")
            listed = self.cluster.kubectl("api-resources", *scope).split()
            return ",".join(kind for kind in listed if kind.split(".")[0] != "events")

        chart = ("-l", "app.kubernetes.io/name=headwater", "-o", "name", "--ignore-not-found")
        inside = self.cluster.kubectl("get", kinds("true"), "-n", MESH, "-o", "name", "--ignore-not-found").split()
        teams = self.cluster.kubectl("get", kinds("true"), "-A", *chart).split()
        anywhere = self.cluster.kubectl("get", kinds("false"), *chart).split()
        return {*inside, *teams, *anywhere}

    def image_tags(self) -> set[str]:
        """Those of the pods' images, of executors' too."""
        pods = self.cluster.list("pods", MESH)
        return {each["image"].rpartition(":")[2] for pod in pods for each in pod["spec"]["containers"]}

    async def take_tenants_in(self) -> None:
        """Both teams apply their tenants; returns when rows written from now on are for them."""
        orders = [{"name": "shop", "include_tables": [r"shop\.orders"]}]
        _tenant(self, ACME, orders, sink={"mode": "mirror"})
        _tenant(self, GLOBEX, orders, sink={"mode": "append"})
        await self.are_in_force(ACME, GLOBEX)

    async def are_in_force(self, *tenants: str) -> None:
        """Waits until the tenants are in force, and no others."""
        for tenant in tenants:
            await self.eventually(lambda tenant=tenant: self.state_of(tenant) == "ready")
        await self.eventually(lambda: self.routers_know() == set(tenants))

    def let_go(self, tenant: str) -> None:
        """Delete its ConfigMap, and with it topics and tables."""
        self.cluster.kubectl("delete", "configmap", tenant, "-n", f"team-{tenant}", f"--timeout={WAIT_S:.0f}s")

    def pod_uids(self, *selector: str) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.cluster.list("pods", MESH, *selector)}

    def restarts(self) -> dict[str, int]:
        """The services' pods, and how often the container of each was started again."""
        services = "headwater.dev/part-of=mesh,headwater.dev/role notin (sink,sink-executor)"
        found = self.cluster.list("pods", MESH, "-l", services)
        return {pod["metadata"]["uid"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in found}

    def routers_know(self) -> set[str]:
        """The tenants that a router loaded last: rows that pass before have no place for others."""
        told = self.cluster.kubectl_answers("logs", "-n", MESH, "-l", "headwater.dev/role=router", "--tail=-1")
        lines = [line for line in told.splitlines() if '"tenants_loaded"' in line]
        return set(json.loads(lines[-1])["tenants"]) if lines else set()

    def state_of(self, tenant: str) -> str:
        return self._annotation(tenant, "state")

    def told(self, tenant: str) -> str:
        """The message of its ConfigMap on how it stands."""
        return self._annotation(tenant, "message")

    def _annotation(self, tenant: str, name: str) -> str:
        found = self.cluster.get("configmap", tenant, f"team-{tenant}")
        return "" if found is None else str(found["metadata"].get("annotations", {}).get(f"headwater.dev/{name}", ""))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = namespaces.folder_inside()
    if folder is None:
        pytest.skip("a node needs a machine of its own: run `make cluster-e2e` as root")
    with ExitStack() as servers:
        node = start_node_in(folder, servers)
        _import_images(node, images.PAUSE, *(images.reference(each) for each in NEEDED))
        yield node


def _import_images(node: Node, *wanted: str) -> None:
    archive = node.folder / "image.tar"
    for image in wanted:
        images.write_archive(image, archive)
        node.import_image(archive)
        archive.unlink()


@pytest.fixture(scope="module")
def mesh(node: Node) -> Iterator[Mesh]:
    """Nothing is installed yet."""
    with ExitStack() as servers:
        yield _start_mesh_in(node, "mesh", servers)


@pytest.fixture
def other_mesh(node: Node) -> Iterator[Mesh]:
    """Whose servers hold nothing of the first one's, and which may be installed once that is uninstalled."""
    with ExitStack() as servers:
        yield _start_mesh_in(node, "other", servers)


def _start_mesh_in(node: Node, name: str, servers: ExitStack) -> Mesh:
    """Servers of that name, a namespace for the mesh and one for each team; nothing is installed yet."""
    cluster, folder = node.cluster, node.folder / name
    folder.mkdir()
    passwords = {name: secrets.token_hex(8) for name in (MESH_USER, ACME, GLOBEX, HOOLI, "mysql")}
    port, tls_port, valkey_port = free_ports(3)
    files = write_certificates(folder / "kafka-tls")
    sasl = Sasl(
        {MESH_USER: passwords[MESH_USER]},
        port,
        tls_port,
        Path(files["both"]),
        super_users=(MESH_USER,),
        denies_by_default=True,
        host=ADDRESS,
    )
    broker = start_kafka_in(folder / "kafka", servers, sasl=sasl)
    kafka = GuardedKafka(broker, sasl, AdminClient({"bootstrap.servers": broker.bootstrap_servers}))
    mysql = start_mysql_in(folder / "mysql", servers, extra_options=("--bind-address=0.0.0.0",))
    mysql.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, version INT NOT NULL, note VARCHAR(40) NOT NULL)",
        f"CREATE USER {READER_USER}@'%' IDENTIFIED BY '{passwords['mysql']}'",
        "GRANT SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES "
        f"ON *.* TO {READER_USER}@'%'",
    )
    spec = valkey_server.prepare(folder / "valkey", port=valkey_port)
    reachable = ("--bind", f"127.0.0.1 {ADDRESS}", "--protected-mode", "no")
    valkey = start(
        dataclasses.replace(spec, command=(*spec.command, *reachable)), folder / "logs", dies_with_parent=True
    )
    servers.callback(lambda: kill(valkey))
    wait_ready(valkey, READY_TIMEOUT_S)

    for namespace in (MESH, MONITORING, *TEAMS):
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": RESTRICTED}})
    warehouse, claim = folder / "warehouse", f"warehouse-{name}"
    cluster.apply(
        _secret("kafka", MESH, password=passwords[MESH_USER]),
        _secret("shop-mysql", MESH, password=passwords["mysql"]),
        _volume(claim, warehouse, claim=claim),
        _volume(f"state-{name}", folder / "sink-state"),
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": claim, "namespace": MESH},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        },
    )
    api_port = int(cluster.url.rpartition(":")[2])
    volume = {
        "extraVolumes": [{"name": "warehouse", "persistentVolumeClaim": {"claimName": claim}}],
        "extraVolumeMounts": [{"name": "warehouse", "mountPath": str(warehouse)}],
    }
    values = {
        **_values(kafka, mysql, valkey_port, warehouse, volume),
        "networkPolicy": _limits(port, mysql.port, valkey_port, api_port),
    }
    mesh = Mesh(node, kafka, mysql, values, warehouse, volume, passwords, Authority())
    mesh.renew_certificates()
    for kind_of_all in ("serviceaccount/default", "configmap/kube-root-ca.crt"):
        cluster.kubectl("wait", "--for=create", kind_of_all, "-n", MESH, "--timeout=60s")
    mesh.objects_before = mesh.objects()
    return mesh


def _catalog_file(warehouse: Path) -> Path:
    """Of its Iceberg tables: on the same volume, so that all pods have it that have them."""
    return warehouse / "catalog.db"


def _secret(name: str, namespace: str, **entries: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "labels": {} if namespace == MESH else LABEL}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": entries}


def _volume(name: str, folder: Path, *, claim: str | None = None) -> dict[str, Any]:
    """A folder of the node as a volume that a pod may write into."""
    folder.mkdir()
    shutil.chown(folder, POD_USER, POD_USER)
    kept = {"claimRef": {"name": claim, "namespace": MESH}} if claim else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(folder), "type": "Directory"},
            **kept,
        },
    }


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def _values(
    kafka: GuardedKafka, mysql: MysqlServer, valkey_port: int, warehouse: Path, volume: Mapping[str, Any]
) -> dict[str, Any]:
    """``volume``: the extra volume of each pod that has to do with tables."""
    catalog = {"kind": CatalogKind.SQLITE.value, "file": str(_catalog_file(warehouse))}
    return {
        "image": {"registry": "localhost", "tag": images.TAG},
        "kafka": {
            "bootstrapServers": kafka.address,
            "securityProtocol": "SASL_PLAINTEXT",
            "saslMechanism": "PLAIN",
            "username": MESH_USER,
            "passwordSecret": {"name": "kafka", "key": "password"},
            "replicationFactor": 1,
        },
        "redis": {"url": f"redis://{ADDRESS}:{valkey_port}/0"},
        "tls": {"enabled": True, "secret": "mesh-tls", "clientNames": [f"{RELEASE}-tenant-operator"]},
        "sources": {
            "shop": {
                "kind": "mysql",
                "settings": {
                    "database": {"host": ADDRESS, "port": mysql.port, "user": READER_USER},
                    "replica_server_id": 4711,
                },
                "secretEnv": {"HEADWATER_DATABASE__PASSWORD": {"name": "shop-mysql", "key": "password"}},
            }
        },
        # All of them are on one node of two cores, and old and new ones side by side for a while.
        "reader": {"resources": {"requests": {"cpu": "100m"}}},
        "router": {"replicas": 1, "autoscaling": {"enabled": False}, "resources": {"requests": {"cpu": "100m"}}},
        "tenantOperator": {
            "replicas": 1,
            "tenantNamespaces": [*TEAMS],
            "tenantNames": {f"team-{tenant}": [tenant] for tenant in (ACME, GLOBEX, HOOLI)},
        },
        "sink": {
            "executors": {
                "instances": 1,
                "memory": "512m",
                "resources": {"requests": {"cpu": "100m"}, "limits": {"ephemeral-storage": "4Gi"}},
            },
            "settings": {
                "session": {"driver_memory": "768m"},
                "warehouses": {"iceberg": {"warehouse_dir": str(warehouse), "catalog": catalog}},
            },
            "stateSize": "1Gi",
            **volume,
            "resources": {
                "requests": {"cpu": "100m", "memory": "1Gi", "ephemeral-storage": "64Mi"},
                "limits": {"memory": "3Gi", "ephemeral-storage": "4Gi"},
            },
        },
    }


def _limits(kafka_port: int, mysql_port: int, valkey_port: int, api_port: int) -> dict[str, Any]:
    """Every pod reaches the servers that it needs, and nothing else: all of it is on the node, outside of pods."""
    return {
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": MONITORING}}}],
        "egress": [_to_the_node(kafka_port, mysql_port, valkey_port, api_port)],
        "sinkEgress": [_to_the_node(kafka_port)],
        "kubernetesApi": [_to_the_node(api_port)],
        "isolateTenants": True,
    }


def _to_the_node(*ports: int) -> dict[str, Any]:
    return {"to": [{"ipBlock": {"cidr": f"{ADDRESS}/32"}}], "ports": [{"port": port} for port in ports]}


def _connect(cluster: ControlPlane, client: Pod, *targets: str) -> dict[str, str]:
    """The outcome of connections from a pod, by target (``address:port``): ``connected``, ``dropped`` or ``nobody
    listens``."""
    namespace, name = client
    command = ("python3", "-c", CONNECT, str(CONNECT_TIMEOUT_S), *targets)
    told = cluster.kubectl("exec", "-n", namespace, name, "--", *command)
    return dict(zip(targets, told.splitlines(), strict=True))


def _address(cluster: ControlPlane, pod: Pod) -> str:
    namespace, name = pod
    found = cluster.get("pod", name, namespace)
    assert found is not None, pod
    return str(found["status"]["podIP"])


def _start_servers(cluster: ControlPlane, pods: Mapping[Pod, Mapping[str, str]]) -> None:
    """Pods, each with its labels, that serve ``SERVED``; returns when the kubelet's probes find them ready."""
    cluster.apply(*(_server(name, namespace, labels) for (namespace, name), labels in pods.items()))
    for namespace, name in pods:
        cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "-n", namespace, "--timeout=150s")


def _server(name: str, namespace: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """A pod that serves ``SERVED``, as any may be there."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": POD_USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "server",
                    "image": images.PAUSE,
                    "command": ["python3", "-m", "http.server", str(SERVED), "--directory", "/tmp"],
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "readinessProbe": {"tcpSocket": {"port": SERVED}, "periodSeconds": 1},
                }
            ],
        },
    }


def _tenant(mesh: Mesh, name: str, sources: list[dict[str, Any]], **more: Any) -> None:
    """A team applies its ConfigMap and its Secret; ``more`` of its document."""
    document = {"tenant": name, "sources": sources, **more}
    namespace = f"team-{name}"
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": LABEL,
        "annotations": {"headwater.dev/on-delete": "delete"},
    }
    mesh.cluster.apply(
        _secret(f"{name}-kafka", namespace, password=mesh.passwords[name]),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"tenant.yaml": yaml.safe_dump(document)},
        },
    )


async def test_the_node_enforces_a_policy_from_when_it_is_there_to_when_it_goes(node: Node) -> None:
    """Without this, the connections that others get would say nothing of the chart's policies."""
    cluster, namespace = node.cluster, "policies"
    server, named, other = ((namespace, name) for name in ("server", "named", "other"))
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": RESTRICTED}})
    _start_servers(cluster, {pod: {"name": pod[1]} for pod in (server, named, other)})
    served = f"{_address(cluster, server)}:{SERVED}"

    def outcomes() -> tuple[str, str]:
        return _connect(cluster, named, served)[served], _connect(cluster, other, served)[served]

    assert outcomes() == ("connected", "connected")
    cluster.apply(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "named", "namespace": namespace},
            "spec": {
                "podSelector": {"matchLabels": {"name": "server"}},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {"matchLabels": {"name": "named"}}}]}],
            },
        }
    )
    await eventually(lambda: outcomes() == ("connected", "dropped"), WAIT_S)
    cluster.kubectl("delete", "networkpolicy", "named", "-n", namespace)
    await eventually(lambda: outcomes() == ("connected", "connected"), WAIT_S)
    cluster.kubectl("delete", "namespace", namespace, "--timeout=150s")


async def test_rows_of_mysql_come_into_tables_of_config_maps_through_pods(mesh: Mesh) -> None:
    mesh.install("install", CHART)
    mesh.helm("test", RELEASE, "-n", MESH)
    await mesh.take_tenants_in()

    mesh.write(200)

    await mesh.all_is_delivered_once()


async def test_a_few_changes_are_merged_without_a_query(mesh: Mesh) -> None:
    """In the pod of the job, its executors' driver: the code that merges them is compiled there, where the root cannot be
    written."""
    mesh.write(20)
    await mesh.all_is_delivered_once()

    await mesh.eventually(lambda: mesh.table_writes(ACME).get("at_hand", 0) > 0)
    assert "failed" not in mesh.table_writes(ACME)
    assert mesh.table_writes(GLOBEX).keys() == {"mode"}


def test_who_has_no_certificate_of_the_mesh_is_refused(mesh: Mesh) -> None:
    """From a pod that the policies let through: one caller gets an answer there."""
    router = mesh.pod(**{"headwater.dev/role": "router"})
    address, name = f"headwater-checkpoint-committer:{GRPC}", "headwater-tenant-operator"
    known, nameless, stranger = mesh.authority.secret(name), mesh.authority.secret("somebody"), Authority().secret(name)

    def outcome(*credentials: str) -> str:
        method = "/headwater.checkpoints.v1.CheckpointCommitter/ListCheckpoints"
        command = ("python3", "-c", CALL, address, method, *credentials)
        return mesh.cluster.kubectl("exec", "-n", MESH, router, "--", *command).strip()

    ours = known["ca.crt"]
    assert outcome(ours, known["tls.key"], known["tls.crt"]) == "OK"
    assert outcome(ours, nameless["tls.key"], nameless["tls.crt"]) == "PERMISSION_DENIED"
    assert outcome(ours, stranger["tls.key"], stranger["tls.crt"]) == "UNAVAILABLE"
    assert outcome(ours, "", "") == "UNAVAILABLE"
    assert outcome() == "UNAVAILABLE"


async def test_certificates_are_renewed_without_a_restart(mesh: Mesh) -> None:
    router = mesh.pod(**{"headwater.dev/role": "router"})

    def served() -> str:
        command = ("python3", "-c", SERVED_CERTIFICATE, f"headwater-tenant-operator:{GRPC}")
        return mesh.cluster.kubectl("exec", "-n", MESH, router, "--", *command).strip()

    before = mesh.restarts()
    renewed = mesh.renew_certificates()
    mesh.write(40)
    await mesh.eventually(lambda: served() == renewed)
    # A client's next call comes with it, as the router's reports of progress do.
    await mesh.eventually(
        lambda: '"certificates_renewed"' in mesh.cluster.kubectl_answers("logs", "-n", MESH, router, "--tail=-1")
    )
    mesh.write(40)

    await mesh.all_is_delivered_once()
    assert mesh.restarts() == before


async def test_pods_that_are_deleted_lose_nothing_and_repeat_nothing(mesh: Mesh) -> None:
    for labels in ({"headwater.dev/role": "reader"}, {"headwater.dev/role": "sink"}, {"headwater.dev/role": "router"}):
        mesh.write(40)
        gone = mesh.pod(**labels)
        mesh.cluster.kubectl("delete", "pod", gone, "-n", MESH, "--grace-period=0", "--force")
        mesh.write(40)

    await mesh.all_is_delivered_once()


async def test_a_tenant_moves_to_a_job_of_its_own_and_back_and_loses_and_repeats_nothing(mesh: Mesh) -> None:
    """Of its log no change may be there twice. The other tenant's job goes on meanwhile, and the one that is left goes."""
    [packed] = mesh.jobs()
    mesh.cluster.apply(_volume("state-own", mesh.node.folder / "sink-state-own"))

    for wanted, jobs in (("own", {packed, f"own-{GLOBEX}"}), ("packed", {packed})):
        mesh.write(40)
        mesh.cluster.kubectl(
            "annotate", "--overwrite", "configmap", GLOBEX, f"headwater.dev/sink-job={wanted}", "-n", f"team-{GLOBEX}"
        )
        await mesh.eventually(lambda: mesh.state_of(GLOBEX) == "waiting")
        mesh.write(40)
        await mesh.eventually(lambda: mesh.state_of(GLOBEX) == "ready")
        job = f"own-{GLOBEX}" if wanted == "own" else packed
        assert f"by Spark job {job}" in mesh.told(GLOBEX)
        mesh.write(40)

        await mesh.all_is_delivered_once()
        await mesh.eventually(lambda jobs=jobs: mesh.jobs() == jobs)

    for role in ("sink", "sink-executor"):
        await mesh.eventually(
            lambda role=role: len(mesh.cluster.list("pods", MESH, "-l", f"headwater.dev/role={role}")) == 1
        )
    # Its volume stays, as docs/kubernetes.md says; the tests that follow know of one.
    mesh.cluster.kubectl("delete", "pvc", "-l", f"headwater.dev/sink-job=own-{GLOBEX}", "-n", MESH)


def test_a_tenant_reaches_neither_another_s_topic_nor_its_secret(mesh: Mesh) -> None:
    own = mesh.kafka.reads(ACME, mesh.passwords[ACME], mesh.topic(ACME))
    assert isinstance(own, str)
    assert json.loads(own)["after"]["id"] == 1
    refused = mesh.kafka.reads(ACME, mesh.passwords[ACME], mesh.topic(GLOBEX))
    assert refused == KafkaError.TOPIC_AUTHORIZATION_FAILED

    # As a team's own pods and people are let in: to their namespace.
    mesh.cluster.kubectl("create", "rolebinding", "team", "--clusterrole=edit", f"--serviceaccount=team-{ACME}:default",
                         "-n", f"team-{ACME}")  # fmt: skip
    account = f"--as=system:serviceaccount:team-{ACME}:default"
    for secret, namespace, is_allowed in (
        (f"{ACME}-kafka", f"team-{ACME}", "yes"),
        (f"{GLOBEX}-kafka", f"team-{GLOBEX}", "no"),
        ("kafka", MESH, "no"),
    ):
        answer = mesh.cluster.kubectl_answers("auth", "can-i", "get", f"secret/{secret}", account, "-n", namespace)
        assert answer == is_allowed, (secret, namespace)


async def test_a_team_s_poison_costs_the_other_team_nothing(mesh: Mesh) -> None:
    """Documents beside the good ones, one after another, half of them of a name that the team may not claim: rows of both
    teams go on, no service starts again, and each document has the report that it is not in force."""
    before = mesh.restarts()
    names = []
    for number, poison in enumerate(POISONS):
        text = document_of(ACME if number % 2 else f"poisoned{number}", "shop", "shop", poison)
        if len(text) > MOST_APPLIED:
            continue
        names.append(f"poison-{number}")
        metadata = {"name": names[-1], "namespace": f"team-{ACME}", "labels": LABEL}
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"tenant.yaml": text}}
        mesh.cluster.apply(document)
        mesh.write(10)

    def states() -> set[str]:
        found = [mesh.cluster.get("configmap", name, f"team-{ACME}") or {} for name in names]
        return {each["metadata"].get("annotations", {}).get(STATE_ANNOTATION, "") for each in found}

    await mesh.eventually(lambda: not states() & {"", "ready"})
    mesh.write(40)

    await mesh.all_is_delivered_once()
    assert mesh.restarts() == before
    mesh.cluster.kubectl("delete", "configmap", *names, "-n", f"team-{ACME}", f"--timeout={WAIT_S:.0f}s")


def test_a_pod_reaches_no_other_that_the_policies_do_not_name(mesh: Mesh) -> None:
    """Each connection that is refused beside one to the same port that is not."""
    acme, globex, other_globex, prometheus = (
        (f"team-{ACME}", "shop"),
        (f"team-{GLOBEX}", "shop"),
        (f"team-{GLOBEX}", "billing"),
        (MONITORING, "prometheus"),
    )
    # With the labels of one who may: they count in the mesh's namespace alone.
    may = {"headwater.dev/part-of": "mesh", "headwater.dev/role": "router"}
    _start_servers(mesh.cluster, dict.fromkeys((acme, globex, other_globex, prometheus), may))
    history, router, operator, reader, driver, executor = (
        (MESH, mesh.pod(**{"headwater.dev/role": role}))
        for role in ("schema-history", "router", "tenant-operator", "reader", "sink", "sink-executor")
    )

    outcomes: dict[Pod, dict[str, str]] = {}
    for target, port, allowed, refused in (
        (history, GRPC, router, (acme, prometheus, driver)),
        (operator, GRPC, router, (acme, reader)),
        (router, METRICS, prometheus, (acme, driver, executor)),
        (driver, METRICS, prometheus, (acme, router)),
        (driver, DRIVER, executor, (acme, prometheus, router)),
        (globex, SERVED, other_globex, (acme, prometheus, router)),
    ):
        address = f"{_address(mesh.cluster, target)}:{port}"
        for client in (allowed, *refused):
            outcomes.setdefault(client, {})[address] = "connected" if client == allowed else "dropped"
    # Outside of pods: both reach Kafka, as the rows show, and the Spark job does not reach the database.
    database = f"{ADDRESS}:{mesh.mysql.port}"
    outcomes[reader][database], outcomes[driver][database] = "connected", "dropped"

    assert {client: _connect(mesh.cluster, client, *targets) for client, targets in outcomes.items()} == outcomes


async def test_an_upgrade_of_chart_and_values_loses_nothing(mesh: Mesh, tmp_path: Path) -> None:
    chart = tmp_path / "headwater"
    shutil.copytree(CHART, chart)
    told = yaml.safe_load((chart / "Chart.yaml").read_text())
    (chart / "Chart.yaml").write_text(yaml.safe_dump(told | {"version": "99.0.0"}))

    # Every pod of the mesh is made again by this, the Spark job's by the operator.
    await mesh.upgrade(chart, podAnnotations={"upgraded": "yes"})

    await mesh.all_is_delivered_once()
    [release] = json.loads(mesh.cluster.helm("list", "-n", MESH, "-o", "json"))
    assert release["chart"] == "headwater-99.0.0"


async def test_a_rollback_of_chart_and_values_loses_nothing(mesh: Mesh) -> None:
    """After the upgrade: to the release as it was installed."""
    await mesh.roll_back()

    await mesh.all_is_delivered_once()
    [release] = json.loads(mesh.cluster.helm("list", "-n", MESH, "-o", "json"))
    assert release["chart"] != "headwater-99.0.0"
    assert all("upgraded" not in pod["metadata"].get("annotations", {}) for pod in mesh.cluster.list("pods", MESH))


async def test_a_pod_compares_the_source_with_the_tables_turn_after_turn(mesh: Mesh) -> None:
    """A mirror, and the rows that a log of changes comes to."""
    rows = len(mesh.source_rows())
    mesh.install("upgrade", CHART, check={"enabled": True, "intervalSeconds": 1, **mesh.warehouse_volume})
    mesh.helm("test", RELEASE, "-n", MESH)

    def differ(rows_of_each: int) -> Callable[[], bool]:
        return lambda: {mesh.compared(tenant) for tenant in (ACME, GLOBEX)} == {(rows, rows_of_each)}

    await mesh.eventually(differ(0))
    pod = mesh.pod(**{"headwater.dev/role": "check"})
    told = mesh.cluster.kubectl("exec", "-n", MESH, pod, "--", "python", "-m", "libs.cli", "version")
    assert re.match(r"headwater \d", told)
    # No reader hears of a change that is not in the binary log.
    mesh.mysql.execute("SET sql_log_bin = 0", "UPDATE shop.orders SET note = 'unheard' WHERE id = 1")
    await mesh.eventually(differ(1))
    mesh.mysql.execute("SET sql_log_bin = 0", "UPDATE shop.orders SET note = 'order 1' WHERE id = 1")
    await mesh.eventually(differ(0))


async def test_rows_of_a_keyspace_and_of_a_subscription_come_into_a_tenant_s_topics(mesh: Mesh) -> None:
    """By the readers of Vitess and of DTS in pods; their sources, stand-ins, run on the node."""
    mesh.mysql.execute("CREATE DATABASE ledger", "CREATE TABLE ledger.entries (id BIGINT PRIMARY KEY)")
    with ExitStack() as servers:
        vtgate = VtgateServer(topology_of({"commerce": {"0": (mesh.mysql.host, mesh.mysql.port)}}), host=ADDRESS)
        servers.callback(vtgate.start().stop)
        on_every_shard(vtgate.topology, "commerce", ["CREATE TABLE products (id BIGINT PRIMARY KEY)"])
        ensure_topics(
            KafkaSettings(bootstrap_servers=mesh.kafka.broker.bootstrap_servers), [TopicSpec(name=SUBSCRIPTION)]
        )
        subscribed = stand_in(mesh.mysql, mesh.kafka.broker.bootstrap_servers, SUBSCRIPTION)
        servers.callback(subscribed.stop)
        limits = mesh.values["networkPolicy"]
        sources = {**mesh.values["sources"], "web": _keyspace(vtgate), "ledger": _subscription(mesh)}
        mesh.install(
            "upgrade",
            CHART,
            sources=sources,
            networkPolicy={**limits, "egress": [*limits["egress"], _to_the_node(vtgate.port)]},
        )
        _tenant(mesh, HOOLI, [{"name": "web"}, {"name": "ledger"}])
        await mesh.are_in_force(ACME, GLOBEX, HOOLI)

        for number in range(1, 101):
            execute(vtgate, f"INSERT INTO products (id) VALUES ({number})", "commerce")
            mesh.mysql.execute(f"INSERT INTO ledger.entries VALUES ({number})")

        for topic in (f"{HOOLI}.web.commerce.products", f"{HOOLI}.ledger.ledger.entries"):
            await mesh.eventually(lambda topic=topic: len(mesh.ids(HOOLI, topic)) >= 100)
            assert mesh.ids(HOOLI, topic) == list(range(1, 101))
        # Before their servers go; and no tenant may have a source that there is none of.
        mesh.let_go(HOOLI)
        mesh.install("upgrade", CHART)


def _keyspace(vtgate: VtgateServer) -> dict[str, Any]:
    """A source of Vitess."""
    return {
        "kind": "vitess",
        "settings": {
            "vtgate": {"host": ADDRESS, "port": vtgate.port},
            "keyspace": "commerce",
            "include_tables": [r"commerce\.products"],
        },
    }


def _subscription(mesh: Mesh) -> dict[str, Any]:
    """A source of DTS, whose Kafka is the mesh's own here."""
    return {
        "kind": "dts",
        "settings": {
            "subscription": {
                "bootstrap_servers": mesh.kafka.address,
                "topic": SUBSCRIPTION,
                "group_id": "consumer-grp",
                "username": MESH_USER,
                "sasl_mechanism": "PLAIN",
            },
            "database": {"host": ADDRESS, "port": mesh.mysql.port, "user": READER_USER},
            "include_tables": [r"ledger\.entries"],
        },
        "secretEnv": {
            "HEADWATER_SUBSCRIPTION__PASSWORD": {"name": "kafka", "key": "password"},
            "HEADWATER_DATABASE__PASSWORD": {"name": "shop-mysql", "key": "password"},
        },
    }


@pytest.fixture(scope="module")
def metrics_server(node: Node) -> Iterator[None]:
    """One that runs; before, the cluster does not know the use of pods."""
    with ExitStack() as servers:
        start_metrics_server_in(node.folder / "metrics-server", servers, node)
        yield


@pytest.mark.usefixtures("metrics_server")
async def test_the_autoscaler_adds_a_router_by_load_and_takes_it_away_again(mesh: Mesh) -> None:
    """Each routes one of two sources meanwhile, of one partition each; rows come once and in order."""
    tables = ("shop.clicks", "billing.invoices")
    mesh.mysql.execute(
        "CREATE DATABASE billing",
        *(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, note VARCHAR(200) NOT NULL)" for table in tables),
    )
    shop = mesh.values["sources"]["shop"]
    settings = {**shop["settings"], "replica_server_id": 4_712, "include_tables": [r"billing\..*"]}
    mesh.install(
        "upgrade",
        CHART,
        sources={"shop": shop, "billing": {**shop, "settings": settings}},
        router={
            "replicas": 1,
            "autoscaling": {
                "enabled": True,
                "maxReplicas": 2,
                "cpuUtilizationPercent": 100,
                "scaleDown": {"stabilizationWindowSeconds": 0},
            },
            "resources": {"requests": {"cpu": ROUTER_CPU}},
        },
    )
    masks = [{"columns": r".*\.note", "hash": {"salt": "load"}}]  # so that a row costs something
    _tenant(
        mesh,
        HOOLI,
        [{"name": _database(table), "include_tables": [re.escape(table)], "masks": masks} for table in tables],
    )
    await mesh.are_in_force(ACME, GLOBEX, HOOLI)
    await mesh.eventually(lambda: mesh.router_cpu_percent() is not None)
    assert (mesh.routers_wanted(), mesh.lanes()) == (1, [2])

    async with _load(mesh.mysql, *tables) as load:
        await mesh.eventually(lambda: mesh.routers_wanted() == 2)
        await mesh.eventually(lambda: mesh.lanes() == [1, 1])
        before = load.rows
        await mesh.eventually(lambda: load.rows > before + 10 * LOAD_ROWS)
    await mesh.eventually(lambda: mesh.routers_wanted() == 1)
    await mesh.eventually(lambda: mesh.lanes() == [2])
    load.write()

    for table in tables:
        topic = f"{HOOLI}.{_database(table)}.{table}"
        await mesh.eventually(lambda topic=topic: mesh.ids(HOOLI, topic)[-1:] == [load.rows])
        assert mesh.ids(HOOLI, topic) == list(range(1, load.rows + 1))
    mesh.let_go(HOOLI)


def _database(table: str) -> str:
    """Its source is called so too."""
    return table.partition(".")[0]


@dataclass(slots=True)
class _Load:
    """Rows for routers: of each table the same numbers."""

    mysql: MysqlServer
    tables: tuple[str, ...]
    rows: int = 0
    """Of each table, with the numbers 1 to this."""

    def write(self) -> None:
        """``LOAD_ROWS`` more into each table."""
        for table in self.tables:
            self.mysql.execute(
                f"INSERT INTO {table} WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers "
                f"WHERE n < {LOAD_ROWS}) SELECT {self.rows} + n, REPEAT('x', 200) FROM numbers"
            )
        self.rows += LOAD_ROWS


@contextlib.asynccontextmanager
async def _load(mysql: MysqlServer, *tables: str) -> AsyncIterator[_Load]:
    """Written all the while."""
    load, is_over = _Load(mysql, tables), asyncio.Event()

    async def write() -> None:
        while not is_over.is_set():
            await asyncio.to_thread(load.write)
            await asyncio.sleep(LOAD_PAUSE_S)

    writer = asyncio.create_task(write())
    try:
        yield load
    finally:
        is_over.set()
        await writer


@pytest.fixture(scope="module")
def spark_operator(node: Node) -> Iterator[None]:
    """One that runs; before, the cluster knows no SparkApplication."""
    with ExitStack() as servers:
        folder = node.folder / "spark-operator"
        start_spark_operator_in(folder, servers, node.cluster, node.programs.spark_operator)
        yield


def _by_the_spark_operator(mesh: Mesh) -> dict[str, Any]:
    return {**mesh.values["sink"], "kind": "SparkApplication"}


@pytest.mark.usefixtures("spark_operator")
async def test_the_spark_operator_goes_on_with_a_job_where_its_stateful_set_stood(mesh: Mesh) -> None:
    volume = mesh.state_volume()

    mesh.write(40)
    mesh.install("upgrade", CHART, sink=_by_the_spark_operator(mesh))
    mesh.write(40)
    await mesh.eventually(lambda: mesh.runs_by("sparkapplications"))
    await mesh.eventually(lambda: mesh.submitted() == {"driver": "sink", "executor": "sink-executor"})
    mesh.write(40)

    await mesh.all_is_delivered_once()
    assert mesh.state_volume() == volume


@pytest.mark.usefixtures("spark_operator")
async def test_a_driver_of_the_spark_operator_s_that_is_deleted_loses_nothing_and_repeats_nothing(mesh: Mesh) -> None:
    before = mesh.pod_uids()

    mesh.write(40)
    mesh.cluster.kubectl(
        "delete", "pod", mesh.pod(**{"spark-role": "driver"}), "-n", MESH, "--grace-period=0", "--force"
    )
    mesh.write(40)
    await mesh.eventually(lambda: mesh.submitted().keys() == {"driver", "executor"})
    mesh.write(40)

    await mesh.all_is_delivered_once()
    # Its executors too: the SparkApplication owns them as well, so that nobody but the next session clears them away.
    await mesh.eventually(lambda: mesh.pod_uids(*SUBMITTED).isdisjoint(before))


@pytest.mark.usefixtures("spark_operator")
async def test_a_stateful_set_goes_on_with_a_job_of_the_spark_operator_s(mesh: Mesh) -> None:
    volume = mesh.state_volume()

    mesh.write(40)
    mesh.install("upgrade", CHART)
    mesh.write(40)
    await mesh.eventually(lambda: mesh.runs_by("statefulsets"))
    await mesh.eventually(lambda: mesh.cluster.list("pods", MESH, *SUBMITTED) == [])
    mesh.write(40)

    await mesh.all_is_delivered_once()
    assert mesh.state_volume() == volume


async def test_uninstalling_leaves_nothing(mesh: Mesh) -> None:
    await _leaves_nothing(mesh)


@pytest.mark.usefixtures("spark_operator")
async def test_a_release_that_begins_with_the_spark_operator_delivers_and_leaves_nothing(mesh: Mesh) -> None:
    mesh.first_row = max(row for row, _ in mesh.written) + 1
    mesh.written.clear()
    mesh.cluster.apply(_volume("state-anew", mesh.node.folder / "sink-state-anew"))

    mesh.install("install", CHART, sink=_by_the_spark_operator(mesh))
    await mesh.take_tenants_in()
    mesh.write(100)

    await mesh.all_is_delivered_once()
    assert mesh.runs_by("sparkapplications")
    await _leaves_nothing(mesh)


async def test_an_upgrade_from_an_older_headwater_loses_nothing_and_repeats_nothing(other_mesh: Mesh) -> None:
    """On servers of its own, where nothing of the present Headwater is that an older one would not have left."""
    if not older.chart().is_dir():
        pytest.skip(
            "this clone's history does not reach back to an older Headwater: see the beginning of `make cluster-e2e`"
        )
    mesh = other_mesh
    _import_images(mesh.node, *(images.reference(each, older.TAG) for each in SERVICES))
    mesh.install("install", older.chart(), image={**mesh.values["image"], "tag": older.TAG})
    await mesh.take_tenants_in()
    mesh.write(60)
    await mesh.all_is_delivered_once()
    assert mesh.image_tags() == {older.TAG}
    volume = mesh.state_volume()

    await mesh.upgrade(CHART)

    await mesh.all_is_delivered_once()
    await mesh.eventually(lambda: mesh.image_tags() == {images.TAG})
    assert mesh.state_volume() == volume

    await _leaves_nothing(mesh)


async def _leaves_nothing(mesh: Mesh) -> None:
    """Once the tenants are let go, with their topics and tables, and the release is uninstalled."""
    for tenant in (ACME, GLOBEX):
        mesh.let_go(tenant)
    assert {name for name in mesh.kafka.users() if name.startswith("tenant.")} == set()
    for tenant in (ACME, GLOBEX):
        assert mesh.kafka.topics(tenant) == set()
        assert mesh.kafka.acls(tenant) == set()

    mesh.helm("uninstall", RELEASE, "-n", MESH, "--wait", f"--timeout={WAIT_S:.0f}s")
    # As docs/kubernetes.md says, "Uninstalling".
    mesh.cluster.kubectl("delete", "pvc", "-l", "headwater.dev/sink-job", "-n", MESH)

    await eventually(lambda: mesh.objects() == mesh.objects_before, WAIT_S)
