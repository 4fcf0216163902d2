"""A real node for the control plane: containerd, kubelet, kube-proxy, kube-scheduler and CoreDNS, in namespaces of our own.

Pods get addresses of ``POD_RANGE`` by the CNI plugin ptp, so that all their traffic is routed; Services are kube-proxy's. There
is no way out of the node: images are imported.

NetworkPolicies are enforced by the engine of kube-network-policies: it is asked about each new TCP connection of a pod, and
each new flow of UDP, after kube-proxy's translation. Packets that it refuses are dropped, and so is everything while it is
away. Connections that begin on the node itself pass, as Kubernetes has it (a kubelet's probes); those that stand are not
judged again.
"""

import json
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from libs.servers.process import ProcessSpec, kill, start, stop, wait_ready
from tests.cluster import namespaces
from tests.cluster.control_plane import ControlPlane, start_control_plane_in
from tests.cluster.images import PAUSE
from tests.cluster.programs import NodePrograms, node_programs

NAME: Final = "node0"
ADDRESS: Final = "10.200.0.1"
POD_RANGE: Final = "10.244.0.0/16"
POLICY_QUEUE: Final = 100
"""Of the kernel: where packets wait for the word of NetworkPolicies."""
POLICY_PORT: Final = 9_080
READY_TIMEOUT_S: Final = 300.0
IMPORT_TIMEOUT_S: Final = 900.0
KUBELET, PROXY, SCHEDULER, DNS = f"system:node:{NAME}", "system:kube-proxy", "system:kube-scheduler", "system:dns"
POLICIES: Final = "system:network-policies"
USERS: Final = {
    KUBELET: "system:nodes",
    PROXY: "system:node-proxier",
    SCHEDULER: "system:schedulers",
    DNS: "system:dns",
    POLICIES: "system:network-policies",
}
DNS_RIGHTS: Final[tuple[Mapping[str, Any], ...]] = (
    {"apiGroups": [""], "resources": ["services", "namespaces", "pods"], "verbs": ["list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
)
POLICY_RIGHTS: Final[tuple[Mapping[str, Any], ...]] = (
    {"apiGroups": [""], "resources": ["namespaces", "pods"], "verbs": ["list", "watch"]},
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["list", "watch"]},
)


@dataclass(frozen=True, slots=True)
class Node:
    """A cluster that runs pods."""

    cluster: ControlPlane
    folder: Path
    programs: NodePrograms

    @property
    def socket(self) -> Path:
        """containerd's."""
        return self.folder / "containerd.sock"

    def import_image(self, archive: Path) -> None:
        """Give the node an image out of a file (docker-archive); raises AssertionError with containerd's words."""
        command = [self.programs.containerd / "ctr", "-a", self.socket, "-n", "k8s.io", "images", "import", archive]
        done = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_TIMEOUT_S, check=False)
        assert done.returncode == 0, f"{archive.name}: {done.stderr or done.stdout}"


def start_node_in(folder: Path, servers: ExitStack) -> Node:
    """A cluster with one node, ready, in ``folder``; ``servers`` stops it. In namespaces of our own only."""
    namespaces.prepare(folder, host=NAME, address=ADDRESS)
    _set_up_network()
    found = node_programs()
    cluster = start_control_plane_in(folder / "control-plane", servers, node_address=ADDRESS, node_users=USERS)
    cluster.apply(*_rights(DNS, DNS_RIGHTS), *_rights(POLICIES, POLICY_RIGHTS))
    node = Node(cluster, folder, found)
    configs = {user: cluster.kubeconfig(cluster.node_tokens[user], name=user.replace(":", "-")) for user in USERS}
    containerd = start(_containerd(node), folder / "logs", dies_with_parent=True)
    servers.callback(lambda: stop(containerd, 5.0))
    wait_ready(containerd, READY_TIMEOUT_S)
    for spec in (
        _scheduler(node, configs[SCHEDULER]),
        _proxy(node, configs[PROXY]),
        _dns(node, configs[DNS]),
        _policies(node, configs[POLICIES]),
        _kubelet(node, configs[KUBELET]),
    ):
        running = start(spec, folder / "logs", dies_with_parent=True)
        servers.callback(lambda running=running: kill(running))
        wait_ready(running, READY_TIMEOUT_S)
    return node


def _rights(user: str, rules: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """A ClusterRole of a user of the node, and its binding."""
    group = "rbac.authorization.k8s.io"
    return (
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": user}, "rules": [*rules]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": user},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        },
    )


def _set_up_network() -> None:
    for command in (
        ("ip", "link", "set", "lo", "up"),
        ("ip", "link", "add", NAME, "type", "bridge"),
        ("ip", "address", "add", f"{ADDRESS}/24", "dev", NAME),
        ("ip", "link", "set", NAME, "up"),
        # So that there is one at all, which programs look for.
        ("ip", "route", "add", "default", "dev", NAME),
        ("sysctl", "-q", "-w", "net.ipv4.ip_forward=1"),
        # From pod to pod, and from a pod to the node: by then kube-proxy has put a pod's address in a Service's place.
        *(
            (
                *("iptables", "-t", "mangle", "-A", chain, "!", "-i", "lo", "-p", protocol),
                *("-m", "conntrack", "--ctstate", "NEW", "-j", "NFQUEUE", "--queue-num", str(POLICY_QUEUE)),
            )
            for chain in ("FORWARD", "INPUT")
            for protocol in ("tcp", "udp")
        ),
    ):
        subprocess.run(command, check=True, capture_output=True, text=True)


def _containerd(node: Node) -> ProcessSpec:
    network = node.folder / "cni"
    network.mkdir()
    (network / "10-pods.conflist").write_text(
        json.dumps(
            {
                "cniVersion": "1.0.0",
                "name": "pods",
                "plugins": [
                    {
                        "type": "ptp",
                        "mtu": 1500,
                        "ipam": {
                            "type": "host-local",
                            "dataDir": str(node.folder / "cni.addresses"),
                            "ranges": [[{"subnet": POD_RANGE}]],
                            "routes": [{"dst": "0.0.0.0/0"}],
                        },
                    }
                ],
            }
        )
    )
    config = node.folder / "containerd.toml"
    config.write_text(
        f"""version = 2
root = "{node.folder}/containerd"
state = "{node.folder}/containerd.state"
[grpc]
  address = "{node.socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{node.programs.cni}"
    conf_dir = "{network}"
"""
    )
    return ProcessSpec(
        name="containerd",
        command=(str(node.programs.containerd / "containerd"), "--config", str(config)),
        environ=_with_runc(node),
        working_dir=node.folder,
        ready=lambda: _listens(node.socket),
    )


def _with_runc(node: Node) -> dict[str, str]:
    """containerd finds its shim and runc on the PATH."""
    return {"PATH": f"{node.programs.containerd}{os.pathsep}{os.environ['PATH']}{os.pathsep}/usr/sbin{os.pathsep}/sbin"}


def _kubelet(node: Node, kubeconfig: Path) -> ProcessSpec:
    config = node.folder / "kubelet.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "authentication": {
                    "anonymous": {"enabled": False},
                    "webhook": {"enabled": True},
                    "x509": {"clientCAFile": str(node.cluster.ca_file)},
                },
                "authorization": {"mode": "Webhook"},
                "address": ADDRESS,
                "healthzBindAddress": "127.0.0.1",
                "cgroupDriver": "cgroupfs",
                "cgroupRoot": namespaces.cgroup(node.folder),
                "containerRuntimeEndpoint": f"unix://{node.socket}",
                "volumePluginDir": str(node.folder / "volume-plugins"),
                "podLogsDir": str(node.folder / "pods"),
                "failSwapOn": False,
                "clusterDNS": [ADDRESS],
                "clusterDomain": "cluster.local",
                "resolvConf": "",
                "oomScoreAdj": 0,
                # The disk is the machine's, and nobody is to lose a pod because others fill it.
                "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
                "imageGCHighThresholdPercent": 100,
                "syncFrequency": "10s",
            }
        )
    )

    def is_ready() -> bool:
        told = node.cluster.kubectl_answers(
            "get", "node", NAME, "-o", 'jsonpath={.status.conditions[?(@.type=="Ready")].status}', "--ignore-not-found"
        )
        return told == "True"

    return ProcessSpec(
        name="kubelet",
        command=(
            str(node.programs.kubelet),
            f"--config={config}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={NAME}",
            f"--node-ip={ADDRESS}",
            f"--root-dir={node.folder / 'kubelet'}",
            f"--cert-dir={node.folder / 'kubelet.certificates'}",
        ),
        environ=_with_runc(node),
        working_dir=node.folder,
        ready=is_ready,
    )


def _proxy(node: Node, kubeconfig: Path) -> ProcessSpec:
    config = node.folder / "proxy.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                "kind": "KubeProxyConfiguration",
                "clientConnection": {"kubeconfig": str(kubeconfig)},
                "mode": "iptables",
                "clusterCIDR": POD_RANGE,
                "hostnameOverride": NAME,
                "healthzBindAddress": "127.0.0.1:10256",
                "metricsBindAddress": "127.0.0.1:10249",
                # Limits of connections are the whole machine's.
                "conntrack": {"maxPerCore": 0, "min": 0, "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s"},
            }
        )
    )
    return ProcessSpec(
        name="kube-proxy",
        command=(str(node.programs.kube_proxy), f"--config={config}"),
        environ=_with_runc(node),
        working_dir=node.folder,
        ready=lambda: _serves(10_249),
    )


def _scheduler(node: Node, kubeconfig: Path) -> ProcessSpec:
    return ProcessSpec(
        name="kube-scheduler",
        command=(
            str(node.programs.kube_scheduler),
            f"--kubeconfig={kubeconfig}",
            f"--cert-dir={node.folder / 'scheduler.certificates'}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        ),
        environ={},
        working_dir=node.folder,
        ready=lambda: _serves(10_259),
    )


def _dns(node: Node, kubeconfig: Path) -> ProcessSpec:
    config = node.folder / "Corefile"
    config.write_text(
        f""".:53 {{
    bind {ADDRESS}
    ready 127.0.0.1:8181
    errors
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig}
    }}
}}
"""
    )
    return ProcessSpec(
        name="coredns",
        command=(str(node.programs.coredns), "-conf", str(config)),
        environ={},
        working_dir=node.folder,
        ready=lambda: _serves(8_181),
    )


def _policies(node: Node, kubeconfig: Path) -> ProcessSpec:
    return ProcessSpec(
        name="network-policies",
        command=(
            str(node.programs.network_policies),
            f"--kubeconfig={kubeconfig}",
            f"--node={NAME}",
            f"--queue={POLICY_QUEUE}",
            f"--listen=127.0.0.1:{POLICY_PORT}",
        ),
        environ={},
        working_dir=node.folder,
        ready=lambda: _serves(POLICY_PORT),
    )


def _serves(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2.0).close()
    except OSError:
        return False
    return True


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
