"""A real metrics-server, built of its own module, with its own manifests' rights: the API metrics.k8s.io, which a HPA asks.

It runs on the node outside of pods. The API server reaches it as it would a pod's: by a Service, whose one endpoint is the
node's address.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from libs.servers.ports import free_ports
from libs.servers.process import ProcessSpec, kill, start, wait_ready
from tests.cluster.control_plane import ControlPlane
from tests.cluster.node import ADDRESS, Node

NAMESPACE: Final = "kube-system"
NAME: Final = "metrics-server"
READY_TIMEOUT_S: Final = 180.0


def start_metrics_server_in(folder: Path, servers: ExitStack, node: Node) -> None:
    """One from which the cluster's API has the use of pods; ``servers`` stops it, and leaves its registration."""
    cluster, manifests = node.cluster, node.programs.metrics_server_manifests
    for name in ("rbac", "service", "apiservice"):
        cluster.kubectl("apply", "-f", str(manifests / f"{name}.yaml"))
    [port] = free_ports(1)
    cluster.apply(_endpoint(port))
    token = cluster.service_account_token(NAMESPACE, NAME)
    server = start(
        _server(node.programs.metrics_server, folder, cluster, cluster.kubeconfig(token, name=NAME), port),
        folder / "logs",
        dies_with_parent=True,
    )
    servers.callback(lambda: kill(server))
    wait_ready(server, READY_TIMEOUT_S)


def _endpoint(port: int) -> dict[str, Any]:
    """Of the Service, which selects pods that there are none of."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": True}}],
    }


def _server(program: Path, folder: Path, cluster: ControlPlane, kubeconfig: Path, port: int) -> ProcessSpec:
    def is_available() -> bool:
        told = cluster.kubectl_answers(
            *("get", "apiservice", "v1beta1.metrics.k8s.io"),
            *("-o", 'jsonpath={.status.conditions[?(@.type=="Available")].status}'),
        )
        return told == "True" and bool(cluster.kubectl_answers("get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes"))

    return ProcessSpec(
        name=NAME,
        command=(
            str(program),
            *(f"--{kind}kubeconfig={kubeconfig}" for kind in ("", "authentication-", "authorization-")),
            f"--bind-address={ADDRESS}",
            f"--secure-port={port}",
            f"--cert-dir={folder / 'certificates'}",
            "--kubelet-insecure-tls",
            "--kubelet-preferred-address-types=InternalIP",
            "--kubelet-use-node-status-port",
            "--metric-resolution=10s",
            "--kubelet-request-timeout=8s",
        ),
        environ={},
        working_dir=folder,
        ready=is_available,
    )
