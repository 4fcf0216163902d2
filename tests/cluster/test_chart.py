"""The chart against Kubernetes' own schemas, a real API server, and the services that it configures."""

import asyncio
import copy
import functools
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import msgspec
import pytest
import yaml
from kubernetes_validate import utils as kubernetes_schemas

from libs.check.cluster_mesh import mesh_sources
from libs.cli.check import check_command
from libs.config.load import load_settings
from libs.kafka.mesh_rights import COMPONENTS
from libs.mesh.documents import DtsDocument, MysqlDocument, OracleDocument, VitessDocument
from libs.mesh.mesh_settings import MeshSettings
from libs.source.kinds import READER_OF_KIND
from libs.source.vitess.tasks import TaskSettings
from libs.telemetry.metrics import CATALOGUE
from libs.tenants.config_map import TENANT_LABEL
from libs.tenants.document import parse_tenant
from libs.types.tenant import TenantSpec
from services.binlog_reader.settings import BinlogReaderSettings
from services.checkpoint_committer.settings import CheckpointCommitterSettings
from services.dts_decoder.settings import DtsDecoderSettings
from services.logminer_reader.settings import LogminerReaderSettings
from services.router.settings import RouterSettings
from services.schema_history.settings import SchemaHistorySettings
from services.tenant_operator.mesh_certificates import AUTHORITY, MeshCertificatesSettings, make_certificates
from services.tenant_operator.mesh_users import MeshUsersSettings
from services.tenant_operator.settings import TenantNames, TenantOperatorSettings
from services.tenant_operator.sink_jobs import SinkJob, job_template, manifests
from services.vstream_reader.settings import VstreamReaderSettings, mistakes_in
from spark.settings import SinkJobSettings
from tests.cluster import kube_score
from tests.cluster.chart import (
    CERT_MANAGER,
    CHART,
    EXECUTORS,
    FULL,
    IDENTITIES,
    KEPT,
    RELEASE,
    SHOP,
    SMALL,
    TRIAL,
    USERS,
    VALUES,
    WITH_TENANTS,
    render,
    write_values,
)
from tests.cluster.chart_package import package, write_layout
from tests.cluster.control_plane import ControlPlane
from tests.cluster.helm import HelmClient
from tests.cluster.programs import build_kube_score
from tests.integration.service_process import eventually

KUBERNETES = "1.34"
JOBS = ("kafka-users", "certificates", "certificates-daily")
CHECKED = {"enabled": True, "warehouses": {"delta": {"warehouse_dir": "/tables"}}}
ON_AN_API_SERVER = pytest.mark.rest(
    because="a control plane is built for it; the gate renders the chart and holds each object to Kubernetes' schemas"
)
SETTINGS_OF: Mapping[str, type[msgspec.Struct]] = {
    "schema-history": SchemaHistorySettings,
    "checkpoint-committer": CheckpointCommitterSettings,
    "router": RouterSettings,
    "tenant-operator": TenantOperatorSettings,
    "reader-shop": BinlogReaderSettings,
    "reader-big-keyspace": VstreamReaderSettings,
    "reader-ledger": DtsDecoderSettings,
    "reader-erp": LogminerReaderSettings,
    "reader-web-0": VstreamReaderSettings,
    "reader-web-1": VstreamReaderSettings,
    "sink": SinkJobSettings,
    "check": MeshSettings,
    "certificates": MeshCertificatesSettings,
}
ACME = WITH_TENANTS["tenants"]["globex"]["document"]
CUSTOM_KINDS = ("ServiceMonitor", "PrometheusRule", "Certificate")

SOURCES: Mapping[str, Any] = {"sources": {"shop": SHOP}}

Object = dict[str, Any]


def pod_specs(objects: list[Object]) -> dict[str, Object]:
    """Of everything that runs, by name; a Spark job as tenant_operator makes it."""
    found = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in objects if each["kind"] == "Deployment"
    }
    found |= {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "Pod"}
    found |= {
        each["metadata"]["name"][:-9]: each["spec"]["template"]["spec"] for each in objects if each["kind"] == "Job"
    }
    found |= {
        f"{each['metadata']['name']}-daily": each["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        for each in objects
        if each["kind"] == "CronJob"
    }
    for each in executor_pods(objects):
        found["headwater-sink-executor"] = each["spec"]
    return found | {job["metadata"]["name"]: job["spec"]["template"]["spec"] for job in sink_jobs(objects)}


def sink_jobs(objects: list[Object]) -> list[Object]:
    return [
        manifests(
            SinkJob("packed-0", {"acme": "tenant: acme\n"}),
            job_template(each | {"metadata": each["metadata"] | {"uid": "0"}}),
            each["metadata"]["namespace"],
        )[1]
        for each in objects
        if each["metadata"]["name"] == "headwater-sink-template"
    ]


def executor_pods(objects: list[Object]) -> list[Object]:
    """The templates from which Spark makes executors' pods."""
    found = [
        each["data"].get("executor.yaml")
        for each in objects
        if each["metadata"]["name"] == "headwater-sink" and "data" in each
    ]
    return [yaml.safe_load(text) for text in found if text]


def environment(spec: Object) -> dict[str, str]:
    """The variables that a container's Secrets would put into its environment."""
    return {each["name"]: "secret" for each in spec["containers"][0].get("env", ())}


@pytest.mark.promise("chart")
def test_the_chart_is_clean_to_helm(helm: HelmClient) -> None:
    for name, values in VALUES.items():
        helm.helm("lint", "--strict", str(CHART), "-f", str(write_values(helm, values, name)))


def test_the_packaged_chart_renders_as_its_folder(helm: HelmClient, tmp_path: Path) -> None:
    """And the OCI layout holds that very package, each blob under its digest."""
    archive = package(helm, tmp_path)
    write_layout(archive, tmp_path / "oci")
    index = json.loads((tmp_path / "oci" / "index.json").read_text())
    blobs = {path.name: path.read_bytes() for path in (tmp_path / "oci" / "blobs" / "sha256").iterdir()}
    (entry,) = index["manifests"]
    manifest = json.loads(blobs[entry["digest"].removeprefix("sha256:")])
    (layer,) = manifest["layers"]

    assert helm.helm("template", "any", str(archive)) == helm.helm("template", "any", str(CHART))
    assert all(hashlib.sha256(content).hexdigest() == name for name, content in blobs.items())
    assert blobs[layer["digest"].removeprefix("sha256:")] == archive.read_bytes()
    assert {"name": "headwater", "apiVersion": "v2"}.items() <= json.loads(
        blobs[manifest["config"]["digest"].removeprefix("sha256:")]
    ).items()


@pytest.mark.rest(because="kube-score is built for it; the gate holds every object to Kubernetes' schemas")
@pytest.mark.parametrize("kind", kube_score.KINDS.values(), ids=kube_score.KINDS)
def test_the_chart_is_clean_to_kube_score(kind: kube_score.Kind) -> None:
    """But for rules that the chart's annotations, and ``make kube-score``, leave out with reasons."""
    program = build_kube_score()
    assert program is not None, "it could not be built: see the output above"

    judged = kube_score.judge(program, kind)

    assert judged.is_clean, judged.text
    assert "apps/v1/Deployment" in judged.text


@pytest.fixture(scope="module")
def schemas_at_hand() -> Iterator[None]:
    """Kubernetes' schemas, read once each: `validate` reads one and the definitions of all for every object."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kubernetes_schemas, "schema_contents", functools.cache(kubernetes_schemas.schema_contents))
        yield


@pytest.mark.usefixtures("schemas_at_hand")
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_every_object_is_as_kubernetes_schemas_say(helm: HelmClient, values: Mapping[str, Any]) -> None:
    objects = render(helm, values, "any")

    for each in [*objects, *sink_jobs(objects)]:
        if each["kind"] not in CUSTOM_KINDS:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)


@ON_AN_API_SERVER
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_api_server_takes_everything_without_a_warning(
    cluster: ControlPlane, namespace: str, values: Mapping[str, Any]
) -> None:
    """Among its warnings are those of Pod Security's standard `restricted`."""
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/warn=restricted")
    cluster.apply(*render(cluster, values, namespace, "service-account"))  # admission looks a pod's account up
    objects = render(cluster, values, namespace)
    documents = [each for each in [*objects, *sink_jobs(objects)] if each["kind"] not in CUSTOM_KINDS]
    for each in documents:
        each["metadata"].pop("ownerReferences", None)

    told = cluster.kubectl(
        "apply", "--dry-run=server", "--warnings-as-errors", "-f", "-", stdin=yaml.safe_dump_all(documents)
    )

    assert told.count("(server dry run)") == len(documents)


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_each_service_takes_the_settings_that_the_chart_gives_it(helm: HelmClient, values: Mapping[str, Any]) -> None:
    objects = render(helm, values, "any")
    specs = pod_specs(objects)
    given = {
        each["metadata"]["name"].removeprefix("headwater-"): each["data"]["settings.yaml"]
        for each in objects
        if each["kind"] == "ConfigMap" and "settings.yaml" in each.get("data", {})
    }

    given.pop("kafka-users", None)  # its passwords are files that are not here
    for component, text in given.items():
        file = helm.folder / f"{component}.settings.yaml"
        file.write_text(text)
        pod = specs["headwater-sink-packed-0" if component == "sink" else f"headwater-{component}"]
        load_settings(SETTINGS_OF[component], path=file, environ=environment(pod), subject=component)
    assert set(given) >= {"schema-history", "checkpoint-committer", "tenant-operator"}


@pytest.mark.parametrize("values", [USERS, TRIAL], ids=["users", "trial"])
def test_each_component_has_a_kafka_user_of_its_own_and_a_job_makes_them(
    helm: HelmClient, values: Mapping[str, Any], tmp_path: Path
) -> None:
    """No component has another one's password, and the Job alone that of the user that makes them."""
    objects = render(helm, values, "any")
    specs, settings = pod_specs(objects), settings_of(objects)
    front = "mesh" if values is USERS else "headwater"

    for role, pod in {
        "schema-history": "headwater-schema-history",
        "checkpoint-committer": "headwater-checkpoint-committer",
        "reader": "headwater-reader-shop",
        "router": "headwater-router",
        "tenant-operator": "headwater-tenant-operator",
        "sink": "headwater-sink-packed-0",
        "check": "headwater-check",
    }.items():
        told = settings[pod.removesuffix("-packed-0").removeprefix("headwater-")]["kafka"]
        assert (told["sasl_username"], told["sasl_mechanism"]) == (f"{front}-{role}", "SCRAM-SHA-512"), role
        secrets = [
            each["valueFrom"]["secretKeyRef"] for each in specs[pod]["containers"][0]["env"] if "SASL" in each["name"]
        ]
        assert [each["key"] for each in secrets] == [role]
    made = settings["kafka-users"]
    assert made["kafka"]["sasl_username"] == ("admin" if values is USERS else "headwater-admin")
    assert {each["component"]: each["username"] for each in made["users"]} == {
        component: f"{front}-{component}" for component in COMPONENTS
    }
    [passwords] = [each["projected"] for each in specs["headwater-kafka-users"]["volumes"] if "projected" in each]
    paths = [entry["path"] for source in passwords["sources"] for entry in source["secret"]["items"]]
    assert [each["password_from"]["file"] for each in made["users"]] == [
        f"/etc/headwater/passwords/{path}" for path in paths
    ]
    file = tmp_path / "users.yaml"
    for each in made["users"]:
        each["password_from"] = {"env": "PATH"}
    file.write_text(yaml.safe_dump(made))
    load_settings(MeshUsersSettings, path=file, environ={"HEADWATER_KAFKA__SASL_PASSWORD": "s"}, subject="users")


def test_another_user_is_another_job(helm: HelmClient) -> None:
    """A Job cannot be changed: with the same values it is the same one."""
    users = {**USERS["kafka"]["users"], "sink": USERS["kafka"]["users"]["sink"] | {"username": "spark"}}
    values = {"kafka": {**USERS["kafka"], "users": users}}

    first, same, other = (
        {each["metadata"]["name"] for each in render(helm, given, "any", "kafka-users") if each["kind"] == "Job"}
        for given in (USERS, USERS, {**USERS, **values})
    )

    assert first == same
    assert not first & other


def test_only_the_broker_itself_needs_no_password_in_a_trial(helm: HelmClient) -> None:
    """Its listeners without one are on its pod's loopback."""
    [told] = [
        each["data"]["server.properties"]
        for each in render(helm, TRIAL, "any", "trial")
        if "server.properties" in each.get("data", {})
    ]
    properties = dict(line.split("=", 1) for line in told.splitlines() if not line.startswith("#"))
    protocols = dict(each.split(":") for each in properties["listener.security.protocol.map"].split(","))
    hosts = {
        name: place.removeprefix("//").partition(":")[0]
        for name, place in (each.split(":", 1) for each in properties["listeners"].split(","))
    }

    assert {name: hosts[name] for name, protocol in protocols.items() if protocol == "PLAINTEXT"} == {
        "BROKER": "localhost",
        "CONTROLLER": "localhost",
    }
    assert {protocols[name] for name, host in hosts.items() if host != "localhost"} == {"SASL_PLAINTEXT"}


def settings_of(objects: list[Object]) -> dict[str, Any]:
    """The settings files, by component."""
    return {
        each["metadata"]["name"].removeprefix("headwater-"): yaml.safe_load(each["data"]["settings.yaml"])
        for each in objects
        if each["kind"] == "ConfigMap" and "settings.yaml" in each.get("data", {})
    }


def test_a_check_is_told_where_everything_is_and_what_it_is_asked_for(helm: HelmClient) -> None:
    """A source is read where the values say, else where its reader reads it, with the password that goes with that."""
    objects = render(helm, FULL, "any", "check")
    [told] = [each["data"]["settings.yaml"] for each in objects if each["kind"] == "ConfigMap"]
    [deployment] = [each for each in objects if each["kind"] == "Deployment"]
    spec = deployment["spec"]["template"]["spec"]
    [container] = spec["containers"]
    file = helm.folder / "mesh.yaml"
    file.write_text(told)

    settings = load_settings(MeshSettings, path=file, environ=environment(spec), subject="check")
    sources = mesh_sources(settings)

    shop, ledger, keyspace, erp = (sources[name] for name in ("shop", "ledger", "Big_keyspace", "erp"))
    assert isinstance(shop, MysqlDocument)
    assert (shop.database.host, shop.database.user, shop.database.password.reveal()) == (
        "replica.shop",
        "checker",
        "secret",
    )
    assert isinstance(ledger, DtsDocument)
    assert (ledger.database.host, ledger.database.password.reveal()) == ("ledger", "secret")
    assert isinstance(keyspace, VitessDocument)
    assert isinstance(erp, OracleDocument)
    assert (erp.database.pdb_name, erp.database.password.reveal()) == ("ERP", "secret")
    assert settings.tenant_operator is not None
    assert settings.tenant_operator.address == "headwater-tenant-operator:7000"
    assert settings.warehouses.iceberg is not None
    assert settings.warehouses.iceberg.catalog.credential is not None
    assert {each["name"] for each in container["env"]} >= {"AWS_SECRET_ACCESS_KEY", "HEADWATER_KAFKA__SASL_PASSWORD"}
    with click.Context(check_command) as context:
        asked = check_command.make_parser(context).parse_args(container["args"][1:])[0]
    assert container["args"][0] == "check"
    assert asked == {
        "mesh_file": "/etc/headwater/settings/settings.yaml",
        "every_s": "3600",
        "share": "0.2",
        "resume_file": "/var/lib/headwater/check.json",
        "chunk_rows": "1500000",
        "timeout_s": "600",
        "metrics_host": "0.0.0.0",
        "metrics_port": "8080",
        "is_repairing": True,
        "tables": [r"shop\..*"],
        "tenants": ("acme",),
    }
    assert [each["name"] for each in container["volumeMounts"]] == [
        *("settings", "tmp", "state", "tls", "kafka-ca", "keys-acme"),
    ]
    assert render(helm, {**FULL, "check": {}}, "any", "checkpoint-committer")
    assert "headwater-check" not in pod_specs(render(helm, SMALL, "any"))


def test_faults_that_outlive_a_restart_lie_in_a_folder_of_their_pod(helm: HelmClient) -> None:
    """A container that is started again finds them; they end with the pod."""
    files = {}
    for name, spec in pod_specs(render(helm, FULL, "any")).items():
        container = spec["containers"][0]
        for file in [each["value"] for each in container.get("env", ()) if each["name"] == "HEADWATER_FAULTS_FILE"]:
            mounts = container["volumeMounts"]
            [volume] = [each["name"] for each in mounts if each["mountPath"] == str(Path(file).parent)]
            [files[name]] = ["emptyDir" in each for each in spec["volumes"] if each["name"] == volume]

    assert {"headwater-router", "headwater-reader-shop", "headwater-sink-packed-0"} <= files.keys()
    assert all(files.values()), files


def test_what_only_spark_reads_is_not_compared_nor_is_a_source_without_a_place(helm: HelmClient) -> None:
    values = {
        "sources": {"shop": SHOP, "ledger": {"kind": "dts"}},
        "check": {
            "enabled": True,
            "sources": {"ledger": None},
            "warehouses": {"delta": {"warehouse_dir": "s3://lake"}, "clickhouse": {"host": "ch"}},
        },
        "sink": {
            "secretEnv": {
                "HEADWATER_WAREHOUSES__ICEBERG__CATALOG__TOKEN": {"name": "a", "key": "b"},
                "HEADWATER_WAREHOUSES__CLICKHOUSE__PASSWORD": {"name": "ch", "key": "b"},
            }
        },
    }

    objects = render(helm, values, "any", "check")

    [told] = [yaml.safe_load(each["data"]["settings.yaml"]) for each in objects if each["kind"] == "ConfigMap"]
    assert list(told["sources"]) == ["shop"]
    assert told["warehouses"] == {"delta": {"warehouse_dir": "s3://lake"}, "clickhouse": {"host": "ch"}}
    [deployment] = [each for each in objects if each["kind"] == "Deployment"]
    spec = deployment["spec"]["template"]["spec"]
    given = {"HEADWATER_SOURCES__SHOP__DATABASE__PASSWORD", "HEADWATER_WAREHOUSES__CLICKHOUSE__PASSWORD"}
    assert set(environment(spec)) == {*given, "HEADWATER_TERMINATION_LOG", "HEADWATER_FAULTS_FILE"}
    file = helm.folder / "mesh.yaml"
    file.write_text(yaml.safe_dump(told))
    read = load_settings(MeshSettings, path=file, environ=environment(spec), subject="check")
    assert read.warehouses.clickhouse is not None
    assert read.warehouses.clickhouse.password.reveal()


def test_every_kind_of_source_has_its_reader_in_the_chart(helm: HelmClient) -> None:
    values = {"sources": {kind: {"kind": kind} for kind in READER_OF_KIND}}

    specs = pod_specs(render(helm, values, "any", "readers"))

    images = {name.removeprefix("headwater-reader-"): spec["containers"][0]["name"] for name, spec in specs.items()}
    assert images == {
        kind: module.removeprefix("services.").replace("_", "-") for kind, module in READER_OF_KIND.items()
    }


KEYSPACE: Object = {"kind": "vitess", "settings": {"vtgate": {"host": "vtgate"}, "keyspace": "commerce"}}


def test_a_keyspaces_tasks_have_a_reader_each(helm: HelmClient) -> None:
    """Each gets its number, and the service takes it; one reader that comes after several has the name of a single one."""
    values = {
        "sources": {
            "web": {**KEYSPACE, "tasks": 3, "generation": 1, "previousTasks": 2},
            "first": {**KEYSPACE, "tasks": 2},
            "last": {**KEYSPACE, "tasks": 1, "generation": 2, "previousTasks": 3},
            "one": KEYSPACE,
        }
    }
    told = {}
    for each in render(helm, values, "any", "readers"):
        if each["kind"] == "ConfigMap":
            name = each["metadata"]["name"].removeprefix("headwater-reader-")
            file = helm.folder / f"{name}.tasks.yaml"
            file.write_text(each["data"]["settings.yaml"])
            settings = load_settings(VstreamReaderSettings, path=file, environ={}, subject=name)
            assert not mistakes_in(settings)
            told[name] = settings.tasks

    assert told == {
        **{f"web-{n}": TaskSettings(number=n, of=3, generation=1, previous_tasks=2) for n in range(3)},
        **{f"first-{n}": TaskSettings(number=n, of=2) for n in range(2)},
        "last": TaskSettings(number=0, of=1, generation=2, previous_tasks=3),
        "one": None,
    }


@pytest.mark.parametrize(
    ("sources", "told"),
    [
        ({"shop": {**SHOP, "tasks": 2}}, "tasks"),
        ({"web": {**KEYSPACE, "tasks": 0}}, "tasks"),
        (
            {"web": {**KEYSPACE, "tasks": 2}, "web-1": SHOP},
            "sources web and web-1 would both have a reader called reader-web-1",
        ),
    ],
    ids=["of MySQL", "none", "one name for two"],
)
def test_tasks_that_cannot_be_are_refused(helm: HelmClient, sources: Mapping[str, Any], told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        render(helm, {"sources": sources}, "any")


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_every_pod_is_confined(helm: HelmClient, values: Mapping[str, Any]) -> None:
    for name, spec in pod_specs(render(helm, values, "any")).items():
        [container] = spec["containers"]
        assert spec["securityContext"]["runAsNonRoot"], name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        is_executor = name == "headwater-sink-executor"  # whose memory its driver says
        assert is_executor or "memory" in container["resources"]["limits"], name
        # Services' variables begin with HEADWATER_ too, and a service refuses those that are no settings.
        assert spec["enableServiceLinks"] is False, name
        asks_kubernetes = ("headwater-tenant-operator", "headwater-sink", "headwater-certificates")
        assert spec["automountServiceAccountToken"] == (spec["serviceAccountName"] in asks_kubernetes), name


@ON_AN_API_SERVER
def test_a_developers_pods_take_files_in_and_are_as_confined(cluster: ControlPlane, namespace: str) -> None:
    """Code is in a volume, a copy of the image's, and it runs the program that the image would run; the root stays
    read-only."""
    values = {"development": True, **{part: FULL[part] for part in ("sources", "check")}}
    values["sink"] = {"settings": FULL["sink"]["settings"]}
    objects = render(cluster, values, namespace)
    dockerfile = (CHART.parents[1] / "Dockerfile").read_text()
    entrypoints = dict(
        re.findall(r"^FROM \S+ AS ([\w-]+)\n(?:(?!FROM ).*\n)*?ENTRYPOINT (\[.*\])$", dockerfile, re.MULTILINE)
    )
    specs = pod_specs(objects)
    specs.pop("headwater-test-ready")

    assert len(specs) == 9
    for name, spec in specs.items():
        [init], [container] = spec["initContainers"], spec["containers"]
        assert init["image"] == container["image"], name
        for each in (init, container):
            assert each["securityContext"]["readOnlyRootFilesystem"] is True, name
        assert init["command"][-1] == "cp -R --preserve=mode,timestamps /app/* /code/"
        assert {"name": "code", "mountPath": "/code"} in init["volumeMounts"]
        assert {"name": "code", "mountPath": "/app"} in container["volumeMounts"], name
        [code] = [volume for volume in spec["volumes"] if volume["name"] == "code"]
        assert "emptyDir" in code
        shell, option, script, _, *command = container["command"]
        assert (shell, option) == ("/bin/sh", "-c")
        assert script == (CHART / "development.sh").read_text()
        assert command == json.loads(entrypoints[container["image"].split("headwater-")[1].split(":")[0]]), name
        assert container["args"][0] == ("check" if name == "headwater-check" else "--settings")
        # A service that does not start is mended by files, which a container that is gone cannot take in.
        assert not {"livenessProbe", "startupProbe"} & container.keys()
        assert "readinessProbe" in container
    for spec in pod_specs(render(cluster, {"sources": FULL["sources"]}, "any")).values():
        assert "initContainers" not in spec
        assert "/app" not in yaml.safe_dump(spec)
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/warn=restricted")
    cluster.apply(*render(cluster, values, namespace, "service-account"))
    documents = [*objects, *sink_jobs(objects)]
    for each in documents:
        each["metadata"].pop("ownerReferences", None)
    cluster.kubectl("apply", "--dry-run=server", "--warnings-as-errors", "-f", "-", stdin=yaml.safe_dump_all(documents))


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_probes_ask_what_a_supervisor_is_to_know(helm: HelmClient, values: Mapping[str, Any]) -> None:
    for name, spec in pod_specs(render(helm, values, "any")).items():
        # An executor's driver watches it; a trial's servers are others' programs; a Job ends.
        if name.removeprefix("headwater-") in ("test-ready", "sink-executor", "kafka", "redis", *JOBS):
            continue
        [container] = spec["containers"]
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz", name
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz", name


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_what_runs_more_than_once_is_evicted_one_after_another_and_what_runs_once_has_no_budget(
    helm: HelmClient, values: Mapping[str, Any]
) -> None:
    """A budget of a single pod says nothing, or keeps a node from ever being drained."""
    objects = render(helm, values, "any")
    budgets = [each for each in objects if each["kind"] == "PodDisruptionBudget"]
    deployments = [each for each in objects if each["kind"] == "Deployment"]
    scaled = {each["metadata"]["name"] for each in objects if each["kind"] == "HorizontalPodAutoscaler"}
    many = {each["metadata"]["name"] for each in deployments if each["spec"].get("replicas", 1) > 1} | scaled

    assert many <= {each["metadata"]["name"] for each in budgets} <= {"headwater-router", "headwater-tenant-operator"}
    for budget in budgets:
        assert budget["spec"]["maxUnavailable"] == 1
        [selected] = [each for each in deployments if each["spec"]["selector"] == budget["spec"]["selector"]]
        assert selected["metadata"]["name"] == budget["metadata"]["name"]


def test_budgets_are_as_the_values_say(helm: HelmClient) -> None:
    values = {
        "sources": {"shop": SHOP},
        "router": {"disruptionBudget": {"maxUnavailable": "25%"}},
        "tenantOperator": {"disruptionBudget": {"maxUnavailable": None}},
    }

    (budget,) = (each for each in render(helm, values, "any") if each["kind"] == "PodDisruptionBudget")

    assert (budget["metadata"]["name"], budget["spec"]["maxUnavailable"]) == ("headwater-router", "25%")


def test_the_autoscaler_is_as_the_values_say(helm: HelmClient) -> None:
    values = {
        "sources": {"shop": SHOP},
        "router": {
            "replicas": 3,
            "autoscaling": {
                "maxReplicas": 9,
                "cpuUtilizationPercent": 50,
                "scaleDown": {"stabilizationWindowSeconds": 30},
            },
        },
    }

    objects = render(helm, values, "any")

    (scaler,) = (each["spec"] for each in objects if each["kind"] == "HorizontalPodAutoscaler")
    (router,) = (
        each for each in objects if each["kind"] == "Deployment" and each["metadata"]["name"] == "headwater-router"
    )
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (3, 9)
    assert scaler["metrics"][0]["resource"]["target"]["averageUtilization"] == 50
    # Fields that the values do not set stay as they are shipped.
    assert scaler["behavior"]["scaleDown"] == {
        "stabilizationWindowSeconds": 30,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 120}],
    }
    assert "replicas" not in router["spec"]  # an upgrade would set the number back


@ON_AN_API_SERVER
@pytest.mark.parametrize("is_server_side", [True, False], ids=["server-side", "client-side"])
def test_routers_stay_when_the_autoscaler_is_switched_on_and_at_each_upgrade_behind_that(
    cluster: ControlPlane, namespace: str, *, is_server_side: bool
) -> None:
    """A real Helm, by both ways in which it applies. Nobody gives the HPA's controller numbers here: but for a number below
    the least one it changes nothing, and the test scales in its place."""
    file = write_values(cluster, SMALL, namespace)
    chosen = (RELEASE, str(CHART), "-n", namespace, "-f", str(file), f"--server-side={str(is_server_side).lower()}")
    upgrade = ("upgrade", *chosen, "--set", "router.replicas=2", "--set")

    def routers() -> int:
        found = cluster.get("deployment", "headwater-router", namespace)
        assert found is not None
        return int(found["spec"]["replicas"])

    cluster.helm("install", *chosen, "--set", "router.replicas=3")
    cluster.helm(*upgrade, "router.autoscaling.enabled=true")
    assert routers() == 3
    cluster.helm(*upgrade, "router.autoscaling.enabled=true", "--set", "router.autoscaling.maxReplicas=9")
    assert routers() == 3
    for many in (5, 4):
        cluster.kubectl("scale", "deployment", "headwater-router", f"--replicas={many}", "-n", namespace)
        for most in (8, 7):
            cluster.helm(*upgrade, "router.autoscaling.enabled=true", "--set", f"router.autoscaling.maxReplicas={most}")
            assert routers() == many
    # With server-side apply the number is whose who changed it last.
    force = ("--force-conflicts",) if is_server_side else ()
    cluster.helm(*upgrade, "router.autoscaling.enabled=false", *force)
    assert routers() == 2


@ON_AN_API_SERVER
def test_who_begins_with_the_autoscaler_is_given_no_number_by_helm(cluster: ControlPlane, namespace: str) -> None:
    file = write_values(cluster, {**SMALL, "router": {}}, namespace)
    for command in ("install", "upgrade"):
        cluster.helm(command, RELEASE, str(CHART), "-n", namespace, "-f", str(file))
        manifest = cluster.helm("get", "manifest", RELEASE, "-n", namespace)
        (router,) = (
            each
            for each in yaml.safe_load_all(manifest)
            if each and each["kind"] == "Deployment" and each["metadata"]["name"] == "headwater-router"
        )
        assert "replicas" not in router["spec"]
        assert "headwater.dev/gives-replicas" not in router["metadata"]["annotations"]


@ON_AN_API_SERVER
async def test_a_second_router_stays_while_one_is_evicted_and_one_that_is_not_ready_keeps_no_node(
    cluster: ControlPlane, namespace: str
) -> None:
    """Asked of the real API: there is no kubelet, so the test says of each pod how it is."""
    values = {"sources": {"shop": SHOP}, "router": {"replicas": 3, "autoscaling": {"enabled": False}}}
    cluster.apply(*render(cluster, values, namespace, "service-account", "router"))
    selector = ("-l", "headwater.dev/role=router")
    await eventually(lambda: len(cluster.list("pods", namespace, *selector)) == 3)
    healthy, *broken = (each["metadata"]["name"] for each in cluster.list("pods", namespace, *selector))

    def says(pod: str, *, is_ready: bool) -> None:
        condition = {"type": "Ready", "status": str(is_ready)}
        status = json.dumps({"status": {"phase": "Running", "conditions": [condition]}})
        cluster.kubectl("patch", "pod", pod, "-n", namespace, "--subresource=status", "--type=merge", "-p", status)

    def evict(pod: str) -> str:
        metadata = {"name": pod, "namespace": namespace}
        asked = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        file = cluster.folder / f"{pod}.json"
        file.write_text(json.dumps(asked))
        return cluster.kubectl_answers("create", "--raw", path, "-f", str(file))

    def allowed() -> int:
        (budget,) = cluster.list("poddisruptionbudgets", namespace)
        return int((budget.get("status") or {}).get("disruptionsAllowed", 0))

    for pod in (healthy, *broken):
        says(pod, is_ready=True)
    await eventually(lambda: allowed() == 1)
    for pod in broken:
        says(pod, is_ready=False)
    await eventually(lambda: allowed() == 0)

    assert "Success" not in evict(healthy)
    assert "Success" in evict(broken[0])


def test_a_routers_pods_have_the_keys_of_masks_and_start_without_them(helm: HelmClient) -> None:
    """Each tenant's Secret in a folder of its own, where the router looks for it; a check has those that it is given, and no
    other pod has any."""
    objects = render(helm, FULL, "any")
    specs = pod_specs(objects)
    router, check = specs.pop("headwater-router"), specs.pop("headwater-check")
    (text,) = (
        each["data"]["settings.yaml"]
        for each in objects
        if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "headwater-router"
    )

    folder = yaml.safe_load(text)["keys_folder"]
    mounts = {mount["name"]: mount["mountPath"] for mount in router["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in router["volumes"]}
    for tenant, secret in FULL["router"]["maskKeys"].items():
        assert mounts[f"keys-{tenant}"] == f"{folder}/{tenant}"
        assert volumes[f"keys-{tenant}"]["secret"]["secretName"] == secret
        assert volumes[f"keys-{tenant}"]["secret"]["optional"]
    assert "globex-keys" not in yaml.safe_dump(check)
    given = FULL["router"]["maskKeys"].values()
    assert not any(secret in yaml.safe_dump(list(specs.values())) for secret in given)


def test_the_operator_is_told_of_the_keys_that_routers_have_and_may_look_at_no_other_secret(
    helm: HelmClient,
) -> None:
    objects = render(helm, FULL, "any", "tenant-operator", "tenant-operator-rbac")
    (text,) = (each["data"]["settings.yaml"] for each in objects if each["kind"] == "ConfigMap")
    (own,) = (
        each for each in objects if each["kind"] == "Role" and each["metadata"]["name"] == "headwater-tenant-operator"
    )

    assert yaml.safe_load(text)["mask_keys"] == {
        "folders": [{"tenant": "acme", "secret": "acme-mask-keys"}, {"tenant": "globex", "secret": "globex-keys"}],
        "variables": [{"variable": "HEADWATER_KEY__ACME__CARD", "secret": "card-keys", "key": "acme"}],
    }
    assert [rule for rule in own["rules"] if "secrets" in rule["resources"]] == [
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": ["acme-mask-keys", "card-keys", "globex-keys"],
            "verbs": ["list", "watch"],
        }
    ]


def test_the_operator_is_told_which_tables_each_reader_reads(helm: HelmClient) -> None:
    patterns = {"include_tables": [r"shop\..*"], "exclude_tables": [r"shop\.audit"]}
    values = {
        "reader": {"settings": {"exclude_tables": [r".*\.tmp"]}},
        "sources": {
            "shop": {"kind": "mysql", "settings": {"replica_server_id": 1, **patterns}},
            "ledger": {"kind": "dts"},
        },
    }

    (text,) = (
        each["data"]["settings.yaml"]
        for each in render(helm, values, "any", "tenant-operator")
        if each["kind"] == "ConfigMap"
    )

    assert yaml.safe_load(text)["joining"]["sources"] == [
        {"name": "ledger", "kind": "dts", "exclude_tables": [r".*\.tmp"]},
        {"name": "shop", "kind": "mysql", **patterns},
    ]


def test_the_operator_is_told_which_sources_and_warehouses_there_are(helm: HelmClient) -> None:
    """By which it refuses documents that name others; a warehouse may stand in the environment alone."""
    values = {
        "sources": {"shop": {"kind": "mysql"}, "ledger": {"kind": "dts"}},
        "sink": {"secretEnv": {"HEADWATER_WAREHOUSES__POSTGRESQL__PASSWORD": {"name": "pg", "key": "password"}}},
    }

    (text,) = (
        each["data"]["settings.yaml"]
        for each in render(helm, values, "any", "tenant-operator")
        if each["kind"] == "ConfigMap"
    )

    told = yaml.safe_load(text)
    assert told["sources"] == ["ledger", "shop"]
    assert told["sink_jobs"]["warehouses"] == ["iceberg", "postgresql"]


MESH_ISSUER = CERT_MANAGER["tls"]["certManager"]


def test_tenants_of_the_values_are_as_teams_write_them(helm: HelmClient) -> None:
    """A ConfigMap each, which the operator takes; Helm deletes none, because data may go with it."""
    found = {each["metadata"]["name"]: each for each in render(helm, WITH_TENANTS, "mesh", "tenants")}

    assert found.keys() == {"acme", "globex"}
    for name, each in found.items():
        metadata = each["metadata"]
        assert (metadata["namespace"], metadata["labels"][TENANT_LABEL]) == ("mesh", "true")
        assert metadata["annotations"]["helm.sh/resource-policy"] == "keep"
        mistakes: list[str] = []
        parsed = parse_tenant(each["data"]["tenant.yaml"], mistakes=mistakes)
        assert mistakes == []
        assert parsed == msgspec.convert(WITH_TENANTS["tenants"][name]["document"], TenantSpec)
    own = {name: text for name, text in found["acme"]["metadata"]["annotations"].items() if "headwater.dev" in name}
    assert own == {
        "headwater.dev/on-delete": "delete-topics",
        "headwater.dev/kafka-secret": "acme-password",
        "headwater.dev/sink-job": "own",
    }
    annotations = found["globex"]["metadata"]["annotations"]
    assert (annotations["headwater.dev/on-delete"], annotations["headwater.dev/plan"]) == ("keep", "true")


def test_every_pod_has_the_certificate_that_cert_manager_makes_for_its_service(helm: HelmClient) -> None:
    """For each address that callers have of it: that in their settings, and the longer forms of the Service's name."""
    objects = render(helm, CERT_MANAGER, "any")
    certificates = {each["spec"]["secretName"]: each["spec"] for each in objects if each["kind"] == "Certificate"}
    services = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "Service"}
    names_of_callee, files, called = {}, {}, set()
    for each in (each for each in objects if each["kind"] == "Deployment"):
        name, pod = each["metadata"]["name"], each["spec"]["template"]
        [volume] = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "tls"]
        [mount] = [mount for mount in pod["spec"]["containers"][0]["volumeMounts"] if mount["name"] == "tls"]
        assert services[name]["selector"].items() <= pod["metadata"]["labels"].items()
        names_of_callee[name] = certificates.pop(volume["secret"]["secretName"])["dnsNames"]
        files[name] = {f"{mount['mountPath']}/{key}" for key in ("tls.crt", "tls.key", "ca.crt")}

    assert certificates == {}  # none for nobody, and none for two
    assert len(names_of_callee) == 11
    for name, dns_names in names_of_callee.items():
        assert dns_names == [f"{name}{rest}" for rest in ("", ".any", ".any.svc", ".any.svc.cluster.local")]
        [text] = [
            each["data"]["settings.yaml"]
            for each in objects
            if each["kind"] == "ConfigMap" and each["metadata"]["name"] == name
        ]
        for host in re.findall(r"address: ([\w.-]+):7000", text):
            called.add(host)
            assert host in names_of_callee[host], name
        assert set(re.findall(r"tls_\w+: (\S+)", text)) == files[name], name
    assert called == names_of_callee.keys() - {"headwater-check"}


def test_without_another_authority_the_chart_has_its_own(helm: HelmClient) -> None:
    """Every pod of a service mounts a Secret that the Job makes, and servers let in the callers."""
    objects = render(helm, {**SMALL, "check": CHECKED}, "any")
    settings, specs = settings_of(objects), pod_specs(objects)
    file = helm.folder / "certificates.yaml"
    file.write_text(yaml.safe_dump(settings["certificates"]))
    made = load_settings(MeshCertificatesSettings, path=file, environ={}, subject="certificates")
    hosts = {each.secret: each.hosts for each in made.components}
    mounted = {
        each["metadata"]["name"]: volume["secret"]["secretName"]
        for each in objects
        if each["kind"] == "Deployment"
        for volume in each["spec"]["template"]["spec"]["volumes"]
        if volume["name"] == "tls"
    }
    callers = ("check", "reader-shop", "router", "tenant-operator")

    assert mounted == {name.removesuffix("-tls"): name for name in hosts}
    assert mounted.keys() == {f"headwater-{each}" for each in (*callers, "schema-history", "checkpoint-committer")}
    for component, secret in mounted.items():
        assert hosts[secret] == tuple(
            f"{component}{rest}" for rest in ("", ".any", ".any.svc", ".any.svc.cluster.local")
        )
    for name, told in settings.items():
        if "grpc" in told:
            assert told["grpc"]["tls_client_ca_file"] == "/etc/headwater/tls/ca.crt", name
            assert sorted(told["grpc"]["client_names"]) == [f"headwater-{each}.any.svc" for each in callers]
    [role] = [
        each for each in objects if (each["kind"], each["metadata"]["name"]) == ("Role", "headwater-certificates")
    ]
    named = [rule["resourceNames"] for rule in role["rules"] if "patch" in rule["verbs"]]
    assert named == [sorted(["headwater-authority", *hosts])]
    assert specs["headwater-certificates"] == specs["headwater-certificates-daily"]


def test_a_mesh_in_the_clear_has_to_be_asked_for(helm: HelmClient) -> None:
    clear = render(helm, {**SMALL, "tls": {"enabled": False}}, "any")

    assert "tls_" not in yaml.safe_dump_all(clear)
    assert not [each for each in clear if "certificates" in each["metadata"]["name"]]


def test_those_who_call_are_let_in_by_a_name_of_their_certificate(helm: HelmClient) -> None:
    """And nobody else whom the same issuer has given a certificate; with Secrets of one's own, those whom the values name."""
    objects = render(helm, CERT_MANAGER, "any")
    settings = {each["metadata"]["name"]: each["data"]["settings.yaml"] for each in _settings_maps(objects)}
    names = {each["metadata"]["name"]: each["spec"]["dnsNames"] for each in objects if each["kind"] == "Certificate"}
    servers = {name: told["grpc"] for name, text in settings.items() if "grpc" in (told := yaml.safe_load(text))}
    callers = {name for name, text in settings.items() if re.search(r"address: [\w.-]+:7000", text)}

    assert len(servers) == 10  # a check answers nobody
    assert len(callers) == 9
    for server in servers.values():
        assert {name for name in names if set(names[name]) & set(server["client_names"])} == callers
    own = {**CERT_MANAGER, "tls": {"enabled": True, "secret": "mesh", "clientNames": ["mesh.example.org"]}}
    for each in _settings_maps(render(helm, own, "any", "schema-history")):
        assert yaml.safe_load(each["data"]["settings.yaml"])["grpc"]["client_names"] == ["mesh.example.org"]


def _settings_maps(objects: list[Any]) -> list[Any]:
    return [each for each in objects if each["kind"] == "ConfigMap" and "settings.yaml" in each["data"]]


def test_a_certificate_is_for_servers_and_clients(helm: HelmClient) -> None:
    """A component calls and is called; its key is another with each certificate."""
    made = [each for each in render(helm, CERT_MANAGER, "any") if each["kind"] == "Certificate"]

    assert len(made) == 11
    for each in (each["spec"] for each in made):
        assert {"server auth", "client auth"} <= set(each["usages"])
        assert each["privateKey"]["rotationPolicy"] == "Always"
        assert each["issuerRef"] == {"name": "mesh", "kind": "Issuer", "group": "cert-manager.io"}


def test_no_password_stands_in_what_is_rendered(helm: HelmClient) -> None:
    rendered = yaml.safe_dump_all(render(helm, FULL, "any"))

    assert not re.search(r"^\s*\w*(password|credential)\w*: \S", rendered, re.MULTILINE | re.IGNORECASE)


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"sauces": {}}, "sauces"),
        ({"kafka": {"bootstrapServers": "kafka"}}, "bootstrapServers"),
        ({"kafka": {"users": {"sinks": USERS["kafka"]["users"]["sink"]}}}, "'sinks' not allowed"),
        ({"kafka": {"users": {"sink": {"username": "sink"}}}}, "passwordSecret"),
        ({"trial": {"kafka": {"enabled": True}}, "kafka": USERS["kafka"]}, "how a server of yours is reached"),
        ({"kafka": {"saslMechanism": "OAUTHBEARER"}}, "kafka.oauth: is missing"),
        ({"kafka": {**IDENTITIES["kafka"], "saslMechanism": None}}, "kafka.oauth: has no effect without"),
        ({"kafka": {**IDENTITIES["kafka"], "securityProtocol": "SASL_PLAINTEXT"}}, "kafka.certificateSecret: is given"),
        ({"kafka": {**IDENTITIES["kafka"], "username": "x"}}, "kafka.username: has no effect with OAUTHBEARER"),
        (
            {"kafka": {**IDENTITIES["kafka"], "users": USERS["kafka"]["users"]}},
            "username: has no effect with OAUTHBEARER",
        ),
        (
            {"kafka": {**USERS["kafka"], "users": IDENTITIES["kafka"]["users"]}},
            "kafka.users.router.oauth: has no effect",
        ),
        ({"kafka": {**USERS["kafka"], "users": {"sink": IDENTITIES["kafka"]["users"]["sink"]}}}, "sink: names no user"),
        (
            {"kafka": {**IDENTITIES["kafka"], "usersMadeBy": USERS["kafka"]["usersMadeBy"]}},
            "kafka.usersMadeBy: makes users with passwords",
        ),
        (
            {
                "kafka": {
                    **IDENTITIES["kafka"],
                    "oauth": {**IDENTITIES["kafka"]["oauth"], "tokenUrl": "http://idp/token"},
                }
            },
            "oauth/tokenUrl",
        ),
        ({"sources": {"shop": {"kind": "postgresql"}}}, "kind"),
        ({"sources": {"shop": SHOP | {"settings": {"password": "x"}}}}, "settings"),
        ({"redis": {"url": "redis://:secret@redis:6379/0"}}, "url"),
        ({"sources": {"shop": SHOP | {"secretEnv": {"PASSWORD": {"name": "a", "key": "b"}}}}}, "PASSWORD"),
        ({"tls": {"secrets": {"router": "router-tls"}}}, r"tls\.secrets\.[a-z-]+: names no Secret"),
        ({"tls": {"enabled": False, "certManager": MESH_ISSUER}}, "tls.enabled: true"),
        ({"tls": {"enabled": True, "certManager": {"enabled": True}}}, "tls.certManager.issuerRef.name: is missing"),
        ({"tls": {"enabled": True, "secret": "mesh", "certManager": MESH_ISSUER}}, "leave those empty"),
        ({"tls": {"enabled": True, "secrets": {"router": "r"}, "certManager": MESH_ISSUER}}, "leave those empty"),
        (
            {"tls": {"enabled": True, "certManager": MESH_ISSUER | {"renewBefore": "2160h"}}},
            "tls.certManager.renewBefore",
        ),
        ({"tls": {"enabled": True, "certManager": MESH_ISSUER | {"duration": "90d"}}}, "certManager/duration"),
        ({"router": {"maskKeys": {"../acme": "keys"}}}, r"\.\./acme"),
        ({"router": {"disruptionBudget": {"maxUnavailable": 0}}}, "router/disruptionBudget/maxUnavailable"),
        ({"tenantOperator": {"disruptionBudget": {"minAvailable": 1}}}, "'minAvailable' not allowed"),
        ({"tenantOperator": {"tenantNames": {"team_acme": ["acme"]}}}, "team_acme"),
        ({"tenantOperator": {"tenantSecrets": {"team-acme": ["acme"]}}}, "the namespace is not watched"),
        ({"sink": {"executors": {"resources": {"requests": {"memory": "1Gi"}}}}}, "executors/resources/requests"),
        ({"sink": {"kind": "SparkApplication"}}, "sink.executors.instances: is 0"),
        ({"sink": {"stateSize": None}}, "sink.stateSize: is null, and without sink.settings.state_store"),
        ({"sink": {"settings": {"state_store": {"uri": "file:///state"}}}}, "state_store/uri"),
        ({"sink": {"settings": {"state_store": {"uri": "s3://lake", "job": "mine"}}}}, "'job' not allowed"),
        ({"development": True, "sink": {"executors": {"instances": 1}}}, "set sink.executors.instances: 0"),
        ({"sink": {"executors": {"podTemplate": {"spec": {"containers": []}}}}}, "podTemplate/spec"),
        ({"sink": {"podTemplate": {"spec": {"securityContext": {"runAsNonRoot": False}}}}}, "runAsNonRoot"),
        (
            {
                "sink": {"executors": {"instances": 1}},
                "networkPolicy": {"sinkEgress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
            },
            "networkPolicy.kubernetesApi",
        ),
        ({"networkPolicy": {"isolateTenants": True}}, "networkPolicy.isolateTenants"),
        ({"check": {"enabled": True}}, "no source is to be compared"),
        ({"check": {"enabled": True}, "sources": {"shop": SHOP}}, "none that is read without Spark"),
        ({"check": {"enabled": True}, "sources": {"ledger": {"kind": "dts"}}}, "check.sources.ledger: neither it nor"),
        ({"check": {"sources": {"shop": {"database": {"password": "x"}}}}}, "sources/shop"),
        ({"check": {"share": 2}}, "check/share"),
        ({"check": {"interval": "1h"}}, "'interval' not allowed"),
        ({"tenants": {"acme": {"document": {"tenant": "acme", "sources": [{"nam": "shop"}]}}}}, "'nam' not allowed"),
        ({"tenants": {"acme": {"document": ACME, "onDelete": "erase"}}}, "acme/onDelete"),
        ({"tenants": {"headwater-acme": {"document": ACME}}}, "the release's own"),
        (
            {"tenants": {"acme": {"document": ACME}}, "tenantOperator": {"tenantNamespaces": ["team-acme"]}},
            "namespace any is not watched",
        ),
    ],
)
def test_wrong_values_are_refused_by_name(helm: HelmClient, values: Mapping[str, Any], place: str) -> None:
    with pytest.raises(AssertionError, match=place):
        render(helm, values, "any")


def test_alerts_and_the_dashboard_ask_for_metrics_that_there_are(helm: HelmClient) -> None:
    known = {doc.name for doc in CATALOGUE}
    known |= {
        f"{doc.name}{suffix}"
        for doc in CATALOGUE
        if doc.kind == "histogram"
        for suffix in ("_bucket", "_count", "_sum")
    }
    labels = {label for doc in CATALOGUE for label in doc.labels} | {"le"}
    [rule] = [each for each in render(helm, FULL, "any") if each["kind"] == "PrometheusRule"]
    dashboard = json.loads((CHART / "dashboards" / "headwater.json").read_text())
    asked = [each["expr"] for group in rule["spec"]["groups"] for each in group["rules"]]
    asked += [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]

    assert len(asked) > 20
    assert {name for text in asked for name in re.findall(r"headwater_\w+", text)} - known == set()
    assert {name for text in asked for by in re.findall(r"by \(([^)]*)\)", text) for name in by.split(", ")} <= labels
    for group in rule["spec"]["groups"]:
        for each in group["rules"]:
            for label in re.findall(r"\$labels\.(\w+)", json.dumps(each["annotations"])):
                assert label in each["expr"], each["alert"]


def test_who_is_asked_what_is_wrong_is_found_when_it_is_not_ready(helm: HelmClient) -> None:
    """A halted reader is not ready, and its Service would name nobody; of routers each is asked."""
    objects = render(helm, FULL, "any")
    services = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "Service"}
    told = {each["metadata"]["name"]: yaml.safe_load(each["data"]["settings.yaml"]) for each in _settings_maps(objects)}
    watched = {each["name"]: each for each in told["headwater-tenant-operator"]["services"]}

    assert watched == {each["name"]: each for each in told["headwater-check"]["services"]}
    readers = {name: each["source"] for name, each in watched.items() if "source" in each}
    assert readers == {
        "reader-shop": "shop",
        "reader-big-keyspace": "Big_keyspace",
        "reader-ledger": "ledger",
        "reader-erp": "erp",
    }
    for name, each in watched.items():
        service = services[each["grpc"]["address"].removesuffix(":7000")]
        is_asked = name in readers or name == "router"
        assert service.get("publishNotReadyAddresses", False) == is_asked, name
        assert (service.get("clusterIP") == "None") == each.get("has_several", False) == (name == "router"), name


def test_only_those_who_call_may_connect(helm: HelmClient) -> None:
    """Every address in a service's settings is one that the network policies let it reach; and they let no other."""
    objects = render(helm, FULL, "any")
    allowed = {
        (role, policy["spec"]["podSelector"]["matchLabels"]["headwater.dev/role"])
        for policy in objects
        if policy["kind"] == "NetworkPolicy" and policy["metadata"]["name"] not in ("headwater", "headwater-sink")
        for role in policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchExpressions"][0]["values"]
    }
    calls = {
        (each["metadata"]["labels"]["headwater.dev/role"], "reader" if callee.startswith("reader-") else callee)
        for each in objects
        if each["kind"] == "ConfigMap"
        for callee in re.findall(r"headwater-([\w-]+):7000", each.get("data", {}).get("settings.yaml", ""))
    }

    assert allowed == calls


def policies_of(pod: Object, objects: list[Object]) -> list[Object]:
    """The NetworkPolicies that select a pod: it may do all that any of them allows."""
    labels = pod["metadata"]["labels"]
    found = []
    for policy in (each["spec"] for each in objects if each["kind"] == "NetworkPolicy"):
        selector = policy["podSelector"]
        is_meant = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
        for each in selector.get("matchExpressions", ()):
            is_in = labels.get(each["key"]) in each["values"]
            is_meant = is_meant and is_in == {"In": True, "NotIn": False}[each["operator"]]
        if is_meant:
            found.append(policy)
    return found


DNS = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}


def test_spark_jobs_reach_kafka_dns_and_the_warehouse_alone_and_give_metrics_alone(helm: HelmClient) -> None:
    """The pods as tenant_operator makes them; other pods of the mesh stay as they are."""
    objects = render(helm, FULL, "any")
    [job] = sink_jobs(objects)

    [policy] = policies_of(job["spec"]["template"], objects)
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy["egress"] == [DNS, *FULL["networkPolicy"]["sinkEgress"]]
    metrics = {"ports": [{"port": "http", "protocol": "TCP"}], "from": FULL["networkPolicy"]["metricsFrom"]}
    assert policy["ingress"] == [metrics]
    for each in objects:
        if each["kind"] == "Deployment":
            [general] = [
                found for found in policies_of(each["spec"]["template"], objects) if "Egress" in found["policyTypes"]
            ]
            assert FULL["networkPolicy"]["egress"][0] in general["egress"]
            assert selects(general["ingress"][0]["from"], each["spec"]["template"])
            assert not selects(general["ingress"][0]["from"], job["spec"]["template"])


@pytest.mark.parametrize(
    ("given", "egress"),
    [
        ({}, None),
        ({"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}, [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]),
    ],
    ids=["nothing-said", "as-all-others"],
)
def test_spark_jobs_without_rules_of_their_own_are_held_to_those_of_all(
    helm: HelmClient, given: Object, egress: list[Object] | None
) -> None:
    objects = render(helm, {"networkPolicy": given}, "any", "network-policies", "sink")
    [job] = sink_jobs(objects)

    [policy] = [each for each in policies_of(job["spec"]["template"], objects) if "Ingress" in each["policyTypes"]]
    assert policy["ingress"] == []
    assert ("Egress" in policy["policyTypes"]) == (egress is not None)
    assert policy.get("egress") == (None if egress is None else [DNS, *egress])


def test_executors_and_their_drivers_reach_one_another_and_nobody_else_does(helm: HelmClient) -> None:
    limits = {name: FULL["networkPolicy"][name] for name in ("egress", "sinkEgress", "metricsFrom")}
    api = {"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}], "ports": [{"port": 6443}]}
    policy = {**limits, "kubernetesApi": [api]}
    objects = render(helm, {"sink": {"executors": {"instances": 2}}, "networkPolicy": policy}, "any")
    [job], [executor] = sink_jobs(objects), executor_pods(objects)
    [of_driver] = policies_of(job["spec"]["template"], objects)
    [of_executor] = policies_of(executor, objects)

    metrics, from_executors = of_driver["ingress"]
    assert metrics["from"] == limits["metricsFrom"]
    assert selects(from_executors["from"], executor)
    assert ports(from_executors) == {7078, 7079}
    [into_executor] = of_executor["ingress"]
    assert selects(into_executor["from"], job["spec"]["template"])
    assert selects(into_executor["from"], executor)
    assert ports(into_executor) == {7079}
    assert api in of_driver["egress"]
    assert api not in of_executor["egress"]
    to_sinks = [rule for rule in of_executor["egress"] if selects(rule.get("to", []), executor)]
    assert [ports(rule) for rule in to_sinks] == [{7078, 7079}]
    for name, spec in pod_specs(objects).items():
        if spec["automountServiceAccountToken"]:
            assert name.removesuffix("-daily") in (
                "headwater-tenant-operator",
                "headwater-sink-packed-0",
                "headwater-certificates",
            )


def test_a_team_s_pods_are_isolated_where_that_is_asked_for(helm: HelmClient) -> None:
    ingress_controller = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}
    teams = ["team-acme", "team-globex"]
    values = {
        "tenantOperator": {"tenantNamespaces": [*teams, "any"]},
        "networkPolicy": {"isolateTenants": True, "tenantsFrom": [ingress_controller]},
    }

    def made(values: Object) -> Object:
        """By namespace. The mesh's own is none of them, where it would add to the rights that others allow."""
        return {
            each["metadata"]["namespace"]: each["spec"]
            for each in render(helm, values, "any", "network-policies")
            if each["metadata"]["name"] == "headwater-tenant"
        }

    own_and_named = {"from": [{"podSelector": {}}, ingress_controller]}
    policy = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [own_and_named]}
    assert made(values) == dict.fromkeys(teams, policy)
    assert made(values | {"networkPolicy": {}}) == {}


def selects(peers: list[Object], pod: Object) -> bool:
    """Whether one of a policy's peers is this pod, of the same namespace."""
    labels = pod["metadata"]["labels"]
    selectors = [peer["podSelector"] for peer in peers if "podSelector" in peer]
    return any(
        all(labels.get(key) == value for key, value in each.get("matchLabels", {}).items())
        and all(
            (labels.get(term["key"]) in term["values"]) == {"In": True, "NotIn": False}[term["operator"]]
            for term in each.get("matchExpressions", ())
        )
        for each in selectors
    )


def ports(rule: Object) -> set[int]:
    return {port["port"] for port in rule["ports"]}


def test_a_spark_application_is_of_the_images_spark_and_the_job_takes_its_settings(helm: HelmClient) -> None:
    settings = copy.deepcopy(EXECUTORS["sink"]["settings"])
    settings.setdefault("session", {})["more_jars_dir"] = "/opt/headwater/more-jars"
    values = {**EXECUTORS, "sink": {**EXECUTORS["sink"], "kind": "SparkApplication", "settings": settings}}
    objects = {(each["kind"], each["metadata"]["name"]): each for each in render(helm, values, "any", "sink")}
    made = yaml.safe_load(objects["ConfigMap", "headwater-sink-template"]["data"]["sparkapplication.yaml"])
    text = objects["ConfigMap", "headwater-sink"]["data"]["settings.yaml"]
    file = helm.folder / "submitted.settings.yaml"
    file.write_text(text)

    driver, executor = made["spec"]["driver"], made["spec"]["executor"]
    environ = environment(driver["template"]["spec"])
    settings = load_settings(SinkJobSettings, path=file, environ=environ, subject="sink")
    assert settings.session.is_submitted
    assert settings.session.shared_dirs == ("/warehouse",)
    assert settings.session.shuffle_partitions == 8
    [locked] = re.findall(
        r"^pyspark==([\d.]+)", (CHART.parents[1] / "requirements/spark.txt").read_text(), re.MULTILINE
    )
    assert made["spec"]["sparkVersion"] == locked
    assert (executor["instances"], executor["cores"], executor["memory"]) == (4, 2, "2g")
    # The Spark Operator gives pods the application's labels, and a template's other labels are kept.
    roles = [each["template"]["metadata"]["labels"]["headwater.dev/role"] for each in (driver, executor)]
    assert roles == ["sink", "sink-executor"]
    assert "headwater.dev/role" not in made["metadata"]["labels"]
    policies = {each["metadata"]["name"]: each["spec"] for each in render(helm, values, "any", "network-policies")}
    assert ports(policies["headwater-sink-executor"]["ingress"][0]) == {
        int(made["spec"]["sparkConf"]["spark.blockManager.port"])
    }
    assert (executor["coreRequest"], executor["coreLimit"]) == ("2", "3")
    # A session's settings of jars have no effect on one that is submitted.
    class_paths = [made["spec"]["sparkConf"][f"spark.{pod}.extraClassPath"] for pod in ("driver", "executor")]
    assert class_paths == 2 * ["/opt/headwater/jars/*:/opt/headwater/more-jars/*"]
    assert driver["template"]["spec"]["automountServiceAccountToken"] is True
    assert executor["template"]["spec"]["automountServiceAccountToken"] is False
    assert "executor.yaml" not in objects["ConfigMap", "headwater-sink"]["data"]


@pytest.mark.parametrize(
    ("operator", "watched", "kinds"),
    [
        ({}, ["release"], {"Role"}),
        ({"tenantNamespaces": ["team-a", "team-b"]}, ["team-a", "team-b"], {"Role"}),
        ({"watchAnyNamespace": True}, [], {"ClusterRole"}),
    ],
)
def test_the_operator_looks_for_tenants_where_it_is_told_and_has_rights_nowhere_else(
    helm: HelmClient, operator: Mapping[str, Any], watched: list[str], kinds: set[str]
) -> None:
    values = {"tenantOperator": operator}
    objects = render(helm, values, "release", "tenant-operator-rbac")

    roles = [
        each
        for each in objects
        if each["kind"] in ("Role", "ClusterRole") and "headwater-tenants" in each["metadata"]["name"]
    ]
    assert {each["kind"] for each in roles} == kinds
    assert [each["metadata"]["namespace"] for each in roles if each["kind"] == "Role"] == watched
    [settings] = [
        yaml.safe_load(each["data"]["settings.yaml"])
        for each in render(helm, values, "release", "tenant-operator")
        if each["kind"] == "ConfigMap"
    ]
    assert settings["kubernetes"]["tenant_namespaces"] == watched


def test_where_every_namespace_may_have_tenants_none_takes_another_ones_name(helm: HelmClient) -> None:
    """Unless the values say which names each may claim."""

    def names(**operator: Any) -> Any:
        objects = render(helm, {"tenantOperator": operator}, "any", "tenant-operator")
        return settings_of(objects)["tenant-operator"]["tenant_names"]

    assert names() == [{"namespace": "*", "tenants": ["{namespace}(-.*)?"]}, {"namespace": "any", "tenants": [".*"]}]
    assert names(watchAnyNamespace=True) == [{"namespace": "*", "tenants": ["{namespace}(-.*)?"]}]
    assert names(watchAnyNamespace=True, tenantNames={"*": [".*"]}) == [{"namespace": "*", "tenants": [".*"]}]


def test_a_team_s_namespace_claims_its_own_name_and_what_the_values_write_there(helm: HelmClient) -> None:
    """Without a word of the values about names. The release's own namespace is the mesh's."""
    acme = {"namespace": "team-a", "document": {"tenant": "acme", "sources": [{"name": "shop"}]}}
    values = {"tenants": {"acme": acme}, "tenantOperator": {"tenantNamespaces": ["team-a", "team-b"]}, **SOURCES}
    told = settings_of(render(helm, values, "mesh", "tenant-operator"))["tenant-operator"]["tenant_names"]
    by_namespace = {each["namespace"]: msgspec.convert(each, TenantNames) for each in told}

    def may_claim(namespace: str, name: str) -> bool:
        return by_namespace.get(namespace, by_namespace["*"]).may_claim(namespace, name)

    assert may_claim("team-a", "acme")
    assert may_claim("team-a", "team-a")
    assert may_claim("team-b", "team-b-eu")
    assert not may_claim("team-b", "acme")
    assert not may_claim("team-b", "team-a")
    assert may_claim("mesh", "whatever")


def test_a_tenant_has_a_quota_of_topics_and_partitions_without_a_word_of_the_values(helm: HelmClient) -> None:
    """The routers and the operator have the same; null lifts it."""
    shipped, lifted = (
        settings_of(render(helm, {**SOURCES, **more}, "any", "tenant-operator", "router"))
        for more in ({}, {"topicQuotas": {"perTenant": None, "partitionsPerTenant": None}})
    )

    for component in ("tenant-operator", "router"):
        quotas = shipped[component]["topic_quotas"]
        assert (quotas["per_tenant"], quotas["partitions_per_tenant"]) == (2000, 4000)
        assert lifted[component]["topic_quotas"].get("per_tenant") is None


@pytest.mark.parametrize(
    ("values", "held"),
    [
        ({}, {"schema-history", "checkpoint-committer", "reader", "router", "check", "sink"}),
        (
            {"sink": {"executors": {"instances": 2}}},
            {"schema-history", "checkpoint-committer", "reader", "router", "check", "sink-executor"},
        ),
        ({"networkPolicy": {"egress": FULL["networkPolicy"]["egress"]}}, set()),
        ({"networkPolicy": {"linkLocal": True}}, set()),
    ],
    ids=["shipped", "executors", "limited-otherwise", "asked-for"],
)
def test_no_pod_reaches_a_clouds_metadata_service_unless_it_is_asked_for(
    helm: HelmClient, values: Object, held: set[str]
) -> None:
    """Users of the Kubernetes API are not held to it."""
    policies = {
        each["metadata"]["name"]: each["spec"]
        for each in render(helm, {**SOURCES, **values}, "any", "network-policies")
    }
    found = policies.get("headwater-no-link-local")

    roles = set() if found is None else set(found["podSelector"]["matchExpressions"][0]["values"])
    assert roles == held
    if found is not None:
        assert found["policyTypes"] == ["Egress"]
        blocks = [peer["ipBlock"] for rule in found["egress"] for peer in rule.get("to", ()) if "ipBlock" in peer]
        excepted = [ip_network(each) for block in blocks for each in block["except"]]
        for metadata in ("169.254.169.254", "169.254.170.23", "fd00:ec2::254"):
            assert any(ip_address(metadata) in network for network in excepted), metadata


def test_who_makes_the_kafka_users_is_all_that_a_mesh_with_rights_needs(helm: HelmClient) -> None:
    """Each component has a user of its own then, with a password that nobody wrote; the administrator's is the values' own."""
    values = {
        **SOURCES,
        "kafka": {
            "securityProtocol": "SASL_SSL",
            "saslMechanism": "SCRAM-SHA-512",
            "usersMadeBy": {"username": "admin", "passwordSecret": {"name": "kafka-admin", "key": "password"}},
        },
    }
    objects = render(helm, values, "any")
    settings = settings_of(objects)
    [passwords] = [each["data"] for each in objects if each["kind"] == "Secret" and "kafka" in each["metadata"]["name"]]

    roles = {"schema-history", "checkpoint-committer", "reader", "router", "tenant-operator", "sink"}
    assert set(passwords) == roles
    assert len(set(passwords.values())) == len(roles)
    assert {each["username"] for each in settings["kafka-users"]["users"]} == {f"headwater-{role}" for role in roles}
    assert settings["router"]["kafka"]["sasl_username"] == "headwater-router"
    assert settings["kafka-users"]["kafka"]["sasl_username"] == "admin"


def test_kafka_knows_components_by_certificates_and_tokens(helm: HelmClient, tmp_path: Path) -> None:
    """Each pod, an executor too, has the files that its settings name. The client's secret comes by the environment."""
    objects = render(
        helm, {**IDENTITIES, "sink": EXECUTORS["sink"], "networkPolicy": EXECUTORS["networkPolicy"]}, "any"
    )
    settings, specs = settings_of(objects), pod_specs(objects)
    own_client, own_certificate = {"router": "mesh-router"}, {"sink": ("sink-client", "chain.pem", "key.pem")}

    for role, pod in {
        "reader": "reader-shop",
        "router": "router",
        "schema-history": "schema-history",
        "sink": "sink",
        "check": "check",
    }.items():
        kafka, spec = settings[pod]["kafka"], specs["headwater-sink-packed-0" if pod == "sink" else f"headwater-{pod}"]
        [secret] = [
            each["valueFrom"]["secretKeyRef"]
            for each in spec["containers"][0]["env"]
            if each["name"] == "HEADWATER_KAFKA__OAUTH__CLIENT_SECRET"
        ]
        assert kafka["oauth"]["client_id"] == own_client.get(role, "headwater"), role
        assert secret["key"] == (role if role in own_client else "headwater")
        assert "sasl_username" not in kafka
        named = {kafka["oauth"]["ca_file"], kafka["ssl_ca_file"], kafka["ssl_certificate_file"], kafka["ssl_key_file"]}
        assert named <= mounted_files(spec)
        [client] = [each["secret"] for each in spec["volumes"] if each["name"] == "kafka-client"]
        assert (client["secretName"], *(item["key"] for item in client["items"])) == own_certificate.get(
            role, ("kafka-client", "tls.crt", "tls.key")
        )
    assert named <= mounted_files(specs["headwater-sink-executor"])
    file = tmp_path / "router.yaml"
    file.write_text(yaml.safe_dump(settings["router"]))
    loaded = load_settings(
        RouterSettings, path=file, environ=environment(specs["headwater-router"]), subject="router"
    ).kafka
    assert loaded.oauth is not None
    assert (loaded.oauth.scope, loaded.oauth.client_secret.reveal()) == ("kafka", "secret")


def mounted_files(spec: Object) -> set[str]:
    """The files of Secrets that a pod's first container has."""
    items = {each["name"]: each.get("secret", {}).get("items", ()) for each in spec["volumes"]}
    return {
        f"{mount['mountPath']}/{item['path']}"
        for mount in spec["containers"][0]["volumeMounts"]
        for item in items.get(mount["name"], ())
    }


def test_the_operator_may_look_at_named_secrets_alone_beside_the_mesh_s_own(helm: HelmClient) -> None:
    """And in a team's namespace where the values name them; else at all of that namespace."""
    namespaces = {"tenantNamespaces": ["release", "team-acme", "team-globex"]}
    values = {**WITH_TENANTS, "tenantOperator": {**namespaces, "tenantSecrets": {"team-acme": ["acme-password"]}}}
    objects = render(helm, values, "release")

    allowed = {
        each["metadata"]["namespace"]: [
            rule.get("resourceNames") for rule in each["rules"] if "secrets" in rule["resources"]
        ]
        for each in objects
        if (each["kind"], each["metadata"]["name"]) == ("Role", "headwater-tenants")
    }
    named = {
        each["namespace"]: each["names"]
        for each in settings_of(objects)["tenant-operator"]["kubernetes"]["tenant_secrets"]
    }

    assert allowed == {
        "release": [["acme-password", "globex-kafka"]],
        "team-acme": [["acme-password"]],
        "team-globex": [None],
    }
    assert named == {"release": ["acme-password", "globex-kafka"], "team-acme": ["acme-password"]}
    none = render(helm, {}, "release", "tenant-operator-rbac")
    [role] = [each for each in none if (each["kind"], each["metadata"]["name"]) == ("Role", "headwater-tenants")]
    assert not [rule for rule in role["rules"] if "secrets" in rule["resources"]]


@pytest.mark.parametrize("kind", ["StatefulSet", "SparkApplication"])
def test_jobs_whose_state_is_in_an_object_store_have_no_volume(helm: HelmClient, kind: str) -> None:
    """A folder that goes with the pod; the job's name separates its objects from other jobs'. With a stateSize there is a
    volume too, so that its files get into the store."""
    of_all, executors = (KEPT, {}) if kind == "StatefulSet" else (EXECUTORS, EXECUTORS["sink"]["executors"])
    for size in (None, "2Gi"):
        sink = {**KEPT["sink"], "kind": kind, "executors": executors, "stateSize": size}
        objects = render(helm, {**of_all, "sink": sink}, "any", "sink")
        [template] = [each for each in objects if each["metadata"]["name"] == "headwater-sink-template"]
        made = manifests(
            SinkJob("own-acme", {"acme": "tenant: acme\n"}),
            job_template(template | {"metadata": template["metadata"] | {"uid": "0"}}),
            "any",
        )
        runs = made[-1]
        pod = (runs["spec"]["template"] if kind == "StatefulSet" else runs["spec"]["driver"]["template"])["spec"]
        [job] = [each for each in pod["containers"][0]["env"] if each["name"] == "HEADWATER_STATE_STORE__JOB"]
        assert job["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.labels['headwater.dev/sink-job']"}}
        volumes = {each["name"]: each for each in pod["volumes"]}
        has_claim = "volumeClaimTemplates" in runs["spec"] or "persistentVolumeClaim" in volumes["state"]
        assert has_claim == (size is not None)
        if size is None:
            assert volumes["state"] == {"name": "state", "emptyDir": {}}
            assert len(made) == 2


@ON_AN_API_SERVER
def test_a_driver_may_see_to_pods_and_nothing_else(cluster: ControlPlane, namespace: str) -> None:
    cluster.apply(*render(cluster, {"sink": {"executors": {"instances": 1}}}, namespace, "sink"))
    account = f"system:serviceaccount:{namespace}:headwater-sink"

    def may(verb: str, what: str, where: str = namespace) -> bool:
        return cluster.kubectl_answers("auth", "can-i", verb, what, "-n", where, f"--as={account}") == "yes"

    assert all(may(verb, "pods") for verb in ("get", "list", "watch", "create", "delete", "deletecollection"))
    assert not may("create", "pods", "default")
    assert not may("patch", "pods")
    assert (
        cluster.kubectl_answers(
            "auth", "can-i", "create", "pods", "--subresource=exec", "-n", namespace, f"--as={account}"
        )
        == "no"
    )
    assert not any(may(verb, "secrets") for verb in ("get", "list", "watch"))
    assert not any(may("get", kind) for kind in ("configmaps", "services", "persistentvolumeclaims"))


@ON_AN_API_SERVER
def test_the_operator_may_do_what_it_must_and_no_more(cluster: ControlPlane, namespace: str) -> None:
    operator = {"tenantNamespaces": [namespace], "tenantSecrets": {namespace: ["acme-kafka"]}}
    cluster.apply(*render(cluster, {"tenantOperator": operator}, namespace, "tenant-operator-rbac"))
    account = f"system:serviceaccount:{namespace}:headwater-tenant-operator"

    def may(verb: str, what: str, where: str = namespace) -> bool:
        return cluster.kubectl_answers("auth", "can-i", verb, what, "-n", where, f"--as={account}") == "yes"

    assert may("patch", "configmaps")
    assert not may("watch", "secrets")
    assert not may("watch", "secrets/headwater-authority")
    assert may("watch", "secrets/acme-kafka")
    assert may("patch", "statefulsets.apps")
    assert may("update", "leases.coordination.k8s.io/headwater-tenant-operator")
    assert not may("get", "secrets")
    assert not may("list", "secrets", "kube-system")
    assert not may("update", "leases.coordination.k8s.io/another")
    assert not may("create", "pods")
    assert not may("create", "rolebindings.rbac.authorization.k8s.io")
    assert not may("escalate", "roles.rbac.authorization.k8s.io")


@ON_AN_API_SERVER
async def test_the_certificates_job_makes_and_renews_secrets_by_its_own_rights(
    cluster: ControlPlane, namespace: str
) -> None:
    """The chart's settings, as the Job's service account. Another run changes nothing; a Secret that is gone is made again."""
    objects = render(cluster, SOURCES, namespace, "certificates")
    cluster.apply(*(each for each in objects if each["kind"] in ("ConfigMap", "ServiceAccount", "Role", "RoleBinding")))
    account = cluster.service_account_token(namespace, "headwater-certificates")
    file = str(cluster.kubeconfig(account, name=f"{namespace}-certificates", namespace=namespace))
    told = msgspec.convert(settings_of(objects)["certificates"], MeshCertificatesSettings)
    settings = msgspec.structs.replace(told, kubernetes=msgspec.structs.replace(told.kubernetes, kubeconfig_file=file))

    def secrets() -> dict[str, Object]:
        return {each["metadata"]["name"]: each for each in cluster.list("secret", namespace)}

    await make_certificates(settings, asyncio.Event())
    made = secrets()
    await make_certificates(settings, asyncio.Event())
    unchanged = secrets()
    cluster.kubectl("delete", "secret", "headwater-router-tls", "-n", namespace)
    await make_certificates(settings, asyncio.Event())
    again = secrets()

    assert made.keys() == {AUTHORITY, *(each.secret for each in settings.components)} == again.keys()
    assert "headwater-router-tls" in made
    assert unchanged == made
    assert {name for name in made if again[name] != made[name]} == {"headwater-router-tls"}
    assert {each["metadata"]["ownerReferences"][0]["name"] for each in made.values()} == {"headwater-certificates"}


@ON_AN_API_SERVER
def test_a_secret_that_was_written_again_is_another_job(cluster: ControlPlane, namespace: str) -> None:
    """Of those that hold passwords of the mesh's Kafka users: the Job sets them at the next upgrade."""

    def secret(router: str) -> Object:
        data = dict.fromkeys(COMPONENTS, "first") | {"router": router}
        metadata = {"name": "kafka-users", "namespace": namespace}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}

    def job() -> str:
        file = write_values(cluster, {**SOURCES, "kafka": USERS["kafka"]}, namespace)
        shown = cluster.helm(
            "template", RELEASE, str(CHART), "-n", namespace, "-f", str(file), "--dry-run=server",
            "--show-only", "templates/kafka-users.yaml",
        )  # fmt: skip
        [name] = (each["metadata"]["name"] for each in yaml.safe_load_all(shown) if each and each["kind"] == "Job")
        return str(name)

    cluster.apply(secret("first"))
    first, same = job(), job()
    cluster.apply(secret("second"))

    assert first == same != job()


@ON_AN_API_SERVER
def test_an_uninstalled_release_leaves_nothing(cluster: ControlPlane, namespace: str) -> None:
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    file = write_values(cluster, {**SMALL, "sink": {"enabled": True}}, namespace)
    cluster.helm("install", RELEASE, str(CHART), "-n", namespace, "-f", str(file))
    cluster.kubectl("wait", "--for=create", "pod", "-l", "headwater.dev/role=router", "-n", namespace, "--timeout=120s")
    cluster.helm("upgrade", RELEASE, str(CHART), "-n", namespace, "-f", str(file), "--set", "router.replicas=2")

    cluster.helm("uninstall", RELEASE, "-n", namespace, "--wait", "--timeout=120s")

    kinds = (
        "deployments,statefulsets,services,configmaps,secrets,networkpolicies,poddisruptionbudgets,roles,rolebindings"
    )
    left = {each["metadata"]["name"] for each in cluster.list(kinds, namespace)}
    assert left == {"kube-root-ca.crt"}
