"""The sink job with executors, on a real API server: as the service account that the chart makes for drivers, and no more.

No node runs here, so the pods that the driver makes stay Pending; the tests run the image's program for each beside, with the
environment and the arguments of each pod.
"""

import json
import random
import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.table import StaticTable

from libs.servers.ports import LOOPBACK, free_ports
from libs.servers.process import ProcessSpec, Running, kill, start, stop
from libs.setup.spark_toolchain import find_toolchain
from libs.types.tenant import SinkMode
from libs.types.warehouse import WarehouseTable
from services.tenant_operator.sink_jobs import SinkJob as PlannedJob
from services.tenant_operator.sink_jobs import job_template, manifests
from tests.cluster.chart import render
from tests.cluster.control_plane import ControlPlane
from tests.sink_job import LIFE_TIMEOUT_S, REPOSITORY, STOP_TIMEOUT_S, SinkJob, write_tenant
from tests.sink_topics import without_own_columns
from tests.spark_session import Row

pytestmark = pytest.mark.rest(because="a control plane is built for it; the gate renders the chart")

DRIVER = "headwater-sink-packed-0-0"
EXECUTORS = 2
EXECUTOR_ROLE = ("-l", "headwater.dev/role=sink-executor")
Pod = dict[str, Any]


def values(folder: Path) -> dict[str, Any]:
    """Of a warehouse on a volume that all pods mount."""
    executors = {
        "instances": EXECUTORS,
        "memory": "512m",
        "memoryOverhead": "384m",
        "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "2", "ephemeral-storage": "1Gi"}},
        "podTemplate": {"metadata": {"annotations": {"team": "data"}}, "spec": {"priorityClassName": "mesh"}},
    }
    return {
        "sink": {
            "executors": executors,
            "extraVolumes": [{"name": "warehouse", "persistentVolumeClaim": {"claimName": "warehouse"}}],
            "extraVolumeMounts": [{"name": "warehouse", "mountPath": str(folder / "warehouse")}],
        }
    }


@pytest.fixture
def job(cluster: ControlPlane, namespace: str, bootstrap_servers: str, tmp_path: Path) -> Iterator[SinkJob]:
    """A job as tenant_operator would have it run; its own pod is there, and pods of the namespace have to be `restricted`."""
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "mesh"},
        "value": 1000,
    }
    objects = render(cluster, values(tmp_path), namespace, "sink", "service-account")
    cluster.apply(priority, *objects)
    [template] = [each for each in objects if each["metadata"]["name"] == "headwater-sink-template"]
    template["metadata"]["uid"] = "0"
    stateful_set = manifests(PlannedJob("packed-0", {}), job_template(template), namespace)[1]
    pod = stateful_set["spec"]["template"]
    state = {"name": "state", "emptyDir": {}}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**pod["metadata"], "name": DRIVER, "namespace": namespace},
            "spec": {**pod["spec"], "volumes": [*pod["spec"]["volumes"], state]},
        }
    )
    [told] = [each["data"] for each in objects if "executor.yaml" in each.get("data", {})]
    (tmp_path / "executor.yaml").write_text(told["executor.yaml"])
    (tmp_path / "tenants").mkdir()
    driver_port, blocks_port = free_ports(2)
    session = yaml.safe_load(told["settings.yaml"])["session"]
    executors = session["executors"] | {
        "pod_template_file": str(tmp_path / "executor.yaml"),
        "job": "packed-0",
        "driver_pod": DRIVER,
        "driver_address": LOOPBACK,
        "driver_port": driver_port,
        "block_manager_port": blocks_port,
    }
    token = cluster.service_account_token(namespace, "headwater-sink")
    where = {"warehouse_dir": str(tmp_path / "warehouse"), "catalog": {"kind": "hadoop"}}
    job = SinkJob(
        tmp_path,
        bootstrap_servers,
        "iceberg",
        where,
        partial(rows_of, tmp_path / "warehouse"),
        environ={"KUBECONFIG": str(cluster.kubeconfig(token, name=f"{namespace}-driver", namespace=namespace))},
        session={
            "master": f"k8s://{cluster.url}",
            "shared_dirs": session["shared_dirs"],
            "shuffle_partitions": session["shuffle_partitions"],
            "driver_memory": "768m",
            "executors": executors,
            # All of them are on one machine here.
            "config": {"spark.blockManager.port": "0", "spark.scheduler.maxRegisteredResourcesWaitingTime": "3s"},
        },
    )
    yield job
    if job.running is not None:
        stop(job.running, STOP_TIMEOUT_S)


def rows_of(warehouse: Path, table: WarehouseTable) -> list[Row]:
    """By Iceberg's hadoop catalog, which is the folder alone."""
    metadata = warehouse.joinpath(*table.identifier) / "metadata"
    newest = (metadata / "version-hint.text").read_text()
    return list(StaticTable.from_metadata(f"file://{metadata}/v{newest}.metadata.json").scan().to_arrow().to_pylist())


def pods(cluster: ControlPlane, namespace: str) -> dict[str, Pod]:
    """The executors that are there and not on their way out, by name."""
    found = cluster.list("pods", namespace, *EXECUTOR_ROLE)
    return {each["metadata"]["name"]: each for each in found if "deletionTimestamp" not in each["metadata"]}


def run(pod: Pod, folder: Path, servers: ExitStack) -> Running:
    """The program that the image would run in that pod."""
    [container] = pod["spec"]["containers"]
    name = pod["metadata"]["name"]
    fields = {"status.podIP": LOOPBACK, "metadata.name": name}
    environ = {
        each["name"]: each.get("value") or fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container["env"]
        if "value" in each or "valueFrom" in each
    }
    spec = ProcessSpec(
        name=name,
        command=(sys.executable, "-m", "spark.jobs.container", *container["args"]),
        environ={
            **environ,
            "SPARK_LOCAL_DIRS": str(folder / name / "local"),
            "JAVA_HOME": str(find_toolchain().java_home),
            "PYTHONPATH": str(REPOSITORY),
        },
        working_dir=folder / name,
        ready=None,
    )
    running = start(spec, folder / "logs", dies_with_parent=True)
    servers.callback(lambda: kill(running))
    return running


@pytest.mark.timeout(4 * LIFE_TIMEOUT_S)
def test_executors_are_pods_that_work_for_their_driver_and_go_with_it(
    job: SinkJob, cluster: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Rows go through executors into the table: a driver runs no task. The pods that a killed driver leaves are deleted by the
    next one."""
    tenant = write_tenant(job, f"x{secrets.token_hex(3)}", SinkMode.MIRROR, "orders")
    tenant.write(random.Random(11), transactions=15)
    with ExitStack() as servers:
        job.start()
        job.wait_until(lambda: len(pods(cluster, namespace)) == EXECUTORS)
        first = pods(cluster, namespace)
        job.wait_until(lambda: "no executor has come yet" in job.asked("/readyz")[1])
        running = [run(pod, tmp_path, servers) for pod in first.values()]
        job.wait_until(lambda: job.progress(tenant).rows >= tenant.changes)
        job.wait_until(lambda: f"headwater_sink_executors {float(EXECUTORS)}" in job.asked("/metrics")[1])
        [model] = tenant.models
        rows = without_own_columns(job.rows(tenant, model))
        assert job.asked("/readyz")[0] == 200

        assert job.running is not None
        log = job.running.log_path.read_text()
        kill(job.running)
        for each in running:
            each.popen.wait(LIFE_TIMEOUT_S)
        assert pods(cluster, namespace).keys() == first.keys()
        job.start()
        job.wait_until(lambda: len(pods(cluster, namespace).keys() - first.keys()) == EXECUTORS)
        job.wait_until(lambda: not pods(cluster, namespace).keys() & first.keys())
        assert stop(job.running, STOP_TIMEOUT_S) == 0
        log += job.running.log_path.read_text()

    assert rows == model.sorted_rows()
    assert pods(cluster, namespace) == {}
    assert "orbidden" not in log
    for pod in first.values():
        check(pod)


def check(pod: Pod) -> None:
    """An executor's pod is as the chart, the values and the driver have it. The API server took it as `restricted`."""
    metadata, spec = pod["metadata"], pod["spec"]
    [container] = spec["containers"]
    [owner] = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Pod", DRIVER)
    assert metadata["name"].startswith(DRIVER)
    assert metadata["labels"]["headwater.dev/executor-of"] == "packed-0"
    assert "headwater.dev/sink-job" not in metadata["labels"]  # by which a StatefulSet knows its pods
    assert metadata["annotations"]["team"] == "data"
    assert spec["priorityClassName"] == "mesh"
    assert spec["serviceAccountName"] == "headwater"
    assert spec["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["resources"] == {
        "requests": {"cpu": "100m", "memory": "896Mi", "ephemeral-storage": "1Gi"},
        "limits": {"cpu": "2", "memory": "896Mi", "ephemeral-storage": "1Gi"},
    }
    assert {each["name"]: each["mountPath"] for each in container["volumeMounts"]}.items() >= {
        "tmp": "/tmp",
        "spark-local-dir-1": "/var/data/spark",
    }.items()
    assert "Secret" not in json.dumps(spec["volumes"])
