"""A real Kubernetes control plane on loopback: etcd, kube-apiserver, kube-controller-manager. No node of its own: pods stay
Pending, unless ``node.start_node_in`` adds one.

Everything lies in one folder and on free ports, and the kernel ends the processes when pytest ends, however it ends. The
flags are those that Kubernetes' documentation asks of a control plane with RBAC; Pod Security and the other default admission
plugins are on, as in any cluster.
"""

import datetime
import ipaddress
import json
import os
import secrets
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from libs.servers.ports import LOOPBACK, free_ports
from libs.servers.process import ProcessSpec, kill, start, stop, wait_ready
from tests.cluster import helm
from tests.cluster.programs import Programs, programs

READY_TIMEOUT_S: Final = 120.0
COMMAND_TIMEOUT_S: Final = 180.0
SERVICE_RANGE: Final = "10.96.0.0/16"
ADMIN: Final = "admin"
CONTROLLERS: Final = "system:kube-controller-manager"
FRONT_PROXY: Final = "front-proxy-client"
API_SERVICE: Final = "10.96.0.1"
"""The first of ``SERVICE_RANGE``: the API, for pods."""
API_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
"""By which they call it, as in any cluster's certificate."""


NO_USERS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A cluster's API."""

    url: str
    ca_file: Path
    admin_token: str
    folder: Path
    programs: Programs
    node_tokens: Mapping[str, str]
    """By user; empty without a node."""

    def kubeconfig(self, token: str, *, name: str, namespace: str = "default") -> Path:
        """A file by which a client comes with ``token``."""
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(_kubeconfig(self.url, self.ca_file, token, namespace)))
        path.chmod(0o600)
        return path

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """The output of kubectl, as the cluster's administrator. Raises AssertionError with its words where it fails."""
        return self._run(self.programs.kubectl, *arguments, stdin=stdin)

    def kubectl_answers(self, *arguments: str) -> str:
        """The output of kubectl, also where it fails."""
        return self._done(self.programs.kubectl, *arguments).stdout.strip()

    def helm(self, *arguments: str) -> str:
        """The output of helm, as the cluster's administrator. Raises AssertionError with its words where it fails."""
        return self._run(self.programs.helm, *arguments)

    def get(self, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        """An object; None where there is none."""
        found = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        return json.loads(found) if found else None

    def list(self, kind: str, namespace: str, *selector: str) -> list[dict[str, Any]]:
        """The objects of a kind."""
        items = json.loads(self.kubectl("get", kind, "-n", namespace, "-o", "json", *selector))["items"]
        return list(items)

    def apply(self, *documents: Mapping[str, Any]) -> None:
        """Create or change objects."""
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def service_account_token(self, namespace: str, name: str) -> str:
        """By which a pod of that account would come."""
        return self.kubectl("create", "token", name, "-n", namespace, "--duration=4h").strip()

    def _run(self, program: Path, *arguments: str, stdin: str | None = None) -> str:
        done = self._done(program, *arguments, stdin=stdin)
        assert done.returncode == 0, f"{program.name} {' '.join(arguments)}: {done.stderr or done.stdout}"
        return done.stdout

    def _done(self, program: Path, *arguments: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        environ = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig(self.admin_token, name="admin")),
            **helm.helm_homes(self.folder),
        }
        return subprocess.run(
            [program, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=helm.TIMEOUT_S if program == self.programs.helm else COMMAND_TIMEOUT_S,
            env=environ,
            check=False,
        )


def start_control_plane_in(
    folder: Path, servers: ExitStack, *, node_address: str | None = None, node_users: Mapping[str, str] = NO_USERS
) -> ControlPlane:
    """A new, empty cluster in ``folder``, ready; ``servers`` stops it.

    ``node_address`` is where a node's pods reach the API, and ``node_users`` are the node's programs with the group of each.
    """
    found = programs()
    etcd_port, peer_port, api_port, controllers_port = free_ports(4)
    files = _write_keys(folder / "keys", node_address)
    token, controllers_token = secrets.token_hex(16), secrets.token_hex(16)
    node_tokens = {user: secrets.token_hex(16) for user in node_users}
    tokens_file = folder / "tokens.csv"
    tokens_file.write_text(
        f'{token},{ADMIN},{ADMIN},"system:masters"\n{controllers_token},{CONTROLLERS},{CONTROLLERS}\n'
        + "".join(f'{node_tokens[user]},{user},{user},"{group}"\n' for user, group in node_users.items())
    )
    tokens_file.chmod(0o600)
    url = f"https://{LOOPBACK}:{api_port}"
    cluster = ControlPlane(url, files["ca.crt"], token, folder, found, node_tokens)
    etcd = start(_etcd(found, folder, etcd_port, peer_port), folder / "logs", dies_with_parent=True)
    servers.callback(lambda: kill(etcd))
    wait_ready(etcd, READY_TIMEOUT_S)
    apiserver = start(
        _apiserver(cluster, files, tokens_file, etcd_port, api_port, node_address),
        folder / "logs",
        dies_with_parent=True,
    )
    servers.callback(lambda: kill(apiserver))  # it would take up to a minute to drain, and nothing is kept
    wait_ready(apiserver, READY_TIMEOUT_S)
    # Started against an apiserver that is not ready yet, it was seen to end.
    config = cluster.kubeconfig(controllers_token, name="controllers")
    controllers = start(
        _controllers(found, folder, files, config, controllers_port), folder / "logs", dies_with_parent=True
    )
    servers.callback(lambda: stop(controllers, 5.0))
    wait_ready(controllers, READY_TIMEOUT_S)
    return cluster


def _kubelet_client(files: Mapping[str, Path]) -> tuple[str, ...]:
    """As whom it asks a kubelet for logs."""
    return (
        f"--kubelet-client-certificate={files['kubelet-client.crt']}",
        f"--kubelet-client-key={files['server.key']}",
        "--kubelet-preferred-address-types=InternalIP",
    )


def _aggregation(files: Mapping[str, Path]) -> tuple[str, ...]:
    """As whom it hands requests on to an API that another serves, and by which headers that knows whose they are."""
    return (
        f"--requestheader-client-ca-file={files['ca.crt']}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={files['front-proxy.crt']}",
        f"--proxy-client-key-file={files['server.key']}",
    )


def _etcd(found: Programs, folder: Path, port: int, peer_port: int) -> ProcessSpec:
    url, peer_url = f"http://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{peer_port}"
    return ProcessSpec(
        name="etcd",
        command=(
            *(str(found.etcd), "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync", "--log-level=warn"),
            *("--listen-client-urls", url, "--advertise-client-urls", url),
            *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
            *("--initial-cluster", f"default={peer_url}"),
        ),
        environ={},
        working_dir=folder,
        ready=lambda: _answers(f"{url}/health", None, None),
    )


def _apiserver(
    cluster: ControlPlane,
    files: Mapping[str, Path],
    tokens_file: Path,
    etcd_port: int,
    port: int,
    node_address: str | None,
) -> ProcessSpec:
    places = (
        # No aggregated API is served, and its endpoint reconciler refuses a loopback address.
        (f"--bind-address={LOOPBACK}", f"--advertise-address={LOOPBACK}", "--endpoint-reconciler-type=none")
        if node_address is None
        else (
            *("--bind-address=0.0.0.0", f"--advertise-address={node_address}"),
            *_kubelet_client(files),
            *_aggregation(files),
        )
    )
    return ProcessSpec(
        name="kube-apiserver",
        command=(
            str(cluster.programs.kube_apiserver),
            f"--etcd-servers=http://{LOOPBACK}:{etcd_port}",
            *places,
            f"--secure-port={port}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--tls-cert-file={files['server.crt']}",
            f"--tls-private-key-file={files['server.key']}",
            f"--cert-dir={cluster.folder / 'certificates'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={files['accounts.key']}",
            f"--service-account-signing-key-file={files['accounts.key']}",
            "--authorization-mode=Node,RBAC",
            f"--token-auth-file={tokens_file}",
            "--allow-privileged=true",
        ),
        environ={},
        working_dir=cluster.folder,
        ready=lambda: _answers(f"{cluster.url}/readyz", cluster.ca_file, cluster.admin_token),
    )


def _controllers(found: Programs, folder: Path, files: Mapping[str, Path], config: Path, port: int) -> ProcessSpec:
    return ProcessSpec(
        name="kube-controller-manager",
        command=(
            str(found.kube_controller_manager),
            f"--kubeconfig={config}",
            f"--service-account-private-key-file={files['accounts.key']}",
            f"--root-ca-file={files['ca.crt']}",
            f"--cert-dir={folder / 'controllers'}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            f"--flex-volume-plugin-dir={folder / 'flex'}",
        ),
        environ={},
        working_dir=folder,
        ready=lambda: _answers(f"https://{LOOPBACK}:{port}/healthz", None, None),
    )


def _answers(url: str, ca_file: Path | None, token: str | None) -> bool:
    """Whether ``url`` says that all is well; without a CA nobody in particular is asked (loopback, no secret sent)."""
    context = ssl.create_default_context(cafile=str(ca_file)) if ca_file else ssl._create_unverified_context()
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _kubeconfig(url: str, ca_file: Path, token: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": str(ca_file)}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
        "current-context": "test",
    }


def _write_keys(folder: Path, node_address: str | None) -> dict[str, Path]:
    """An authority, the API server's certificates, and the key that signs service accounts' tokens."""
    folder.mkdir(parents=True)
    authority_key, server_key, accounts_key = (
        rsa.generate_private_key(public_exponent=65_537, key_size=2_048) for _ in range(3)
    )
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes-ca")])
    now = datetime.datetime.now(datetime.UTC)

    def certificate(
        subject: str, key: rsa.RSAPrivateKey, *extensions: tuple[x509.ExtensionType, bool], group: str | None = None
    ) -> bytes:
        named = [x509.NameAttribute(NameOID.COMMON_NAME, subject)]
        builder = (
            x509.CertificateBuilder()
            .subject_name(
                x509.Name([*named, *([x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)] if group else [])])
            )
            .issuer_name(authority)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )
        for extension, is_critical in extensions:
            builder = builder.add_extension(extension, critical=is_critical)
        return builder.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def private(key: rsa.RSAPrivateKey) -> bytes:
        return key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )

    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    addresses = [LOOPBACK, *((API_SERVICE, node_address) if node_address else ())]
    names = x509.SubjectAlternativeName(
        [
            *(x509.IPAddress(ipaddress.ip_address(each)) for each in addresses),
            *(x509.DNSName(name) for name in API_NAMES),
        ]
    )
    contents = {
        "ca.crt": certificate(
            "kubernetes-ca",
            authority_key,
            (x509.BasicConstraints(ca=True, path_length=None), True),
            (usage, True),
            (identifier, False),
        ),
        "server.crt": certificate(
            "kube-apiserver",
            server_key,
            (names, False),
            (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False),
        ),
        "server.key": private(server_key),
        "kubelet-client.crt": certificate("kube-apiserver", server_key, group="system:masters"),
        "front-proxy.crt": certificate(FRONT_PROXY, server_key),
        "accounts.key": private(accounts_key),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    return {name: folder / name for name in contents}
