"""A real Spark Operator: its controller, built of its own module, with the CRDs and the rights of its own chart.

It runs beside the cluster and not in a pod of it, and calls `spark-submit` of this machine's PySpark, which is the image's.
Its webhook does not run: pods are made from templates, which it has no part in.
"""

import importlib.util
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from libs.servers.ports import LOOPBACK, free_ports
from libs.servers.process import ProcessSpec, Running, kill, start, wait_ready
from libs.setup.spark_toolchain import find_toolchain
from tests.cluster.control_plane import ControlPlane
from tests.cluster.programs import spark_operator_chart

NAMESPACE: Final = "spark-operator"
RELEASE: Final = "spark-operator"
ACCOUNT: Final = "spark-operator-controller"
READY_TIMEOUT_S: Final = 120.0


def start_spark_operator_in(folder: Path, servers: ExitStack, cluster: ControlPlane, program: Path) -> Running:
    """A controller for the SparkApplications of all namespaces, which leads; ``servers`` stops it, and leaves its CRDs."""
    chart = spark_operator_chart()
    assert chart is not None
    cluster.kubectl("create", "-f", str(chart / "crds"))
    cluster.kubectl("wait", "--for=condition=established", "-f", str(chart / "crds"), "--timeout=60s")
    cluster.kubectl("create", "namespace", NAMESPACE)
    rights = [f"--show-only=templates/controller/{name}.yaml" for name in ("rbac", "serviceaccount")]
    everywhere = "spark.jobNamespaces={}"
    cluster.kubectl(
        *("apply", "-f", "-"),
        stdin=cluster.helm("template", RELEASE, str(chart), "-n", NAMESPACE, "--set", everywhere, *rights),
    )
    token = cluster.service_account_token(NAMESPACE, ACCOUNT)
    [port] = free_ports(1)
    operator = start(
        _controller(program, folder, cluster, cluster.kubeconfig(token, name=NAMESPACE), port),
        folder / "logs",
        dies_with_parent=True,
    )
    servers.callback(lambda: kill(operator))
    wait_ready(operator, READY_TIMEOUT_S)
    return operator


def _controller(program: Path, folder: Path, cluster: ControlPlane, kubeconfig: Path, port: int) -> ProcessSpec:
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    api = urlsplit(cluster.url)
    return ProcessSpec(
        name="spark-operator",
        command=(
            *(str(program), "controller", "start", "--leader-election=false"),
            f"--health-probe-bind-address={LOOPBACK}:{port}",
        ),
        environ={
            "KUBECONFIG": str(kubeconfig),
            # Where `spark-submit` finds the API; a pod has these by itself.
            "KUBERNETES_SERVICE_HOST": str(api.hostname),
            "KUBERNETES_SERVICE_PORT": str(api.port),
            "SPARK_HOME": str(Path(pyspark.origin).parent),
            "JAVA_HOME": str(find_toolchain().java_home),
        },
        working_dir=folder,
        ready=lambda: _is_ready(port),
    )


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
