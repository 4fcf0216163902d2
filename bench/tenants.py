"""A thousand tenants in Kubernetes: until each has all that is its, one more among them, and a restart of the operator.

A real API server with etcd and controllers but no node, and a real Kafka that denies by default, on the same cores as the
operator. A tenant has joined when its ConfigMap says that it is ready: document in force, topics, user, rights and quotas.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.stack import Service, Usage, beginning, start_service_in
from libs.servers import kafka_broker
from libs.servers.ports import free_ports
from libs.servers.process import ProcessSpec, Running, kill
from libs.tenants.config_map import READY, STATE_ANNOTATION, TENANT_LABEL
from services.tenant_operator.kubernetes_client import KubernetesClient, open_kubernetes
from services.tenant_operator.settings import KubernetesSettings
from tests.certificates import write_certificates
from tests.cluster.chart import render
from tests.cluster.control_plane import ControlPlane, start_control_plane_in

TENANTS: Final = 1_000
LATE_TENANTS: Final = 20
_OWN: Final = "headwater"
_NAMESPACE: Final = "teams"
_APPLIED_AT_ONCE: Final = 20
_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class TenantsFigures:
    """Seconds by the clock from when the API server had a tenant's ConfigMap until that said ready, in rising order."""

    applying_s: float
    """The time in which the first of them were applied, all at once."""
    joined_s: Sequence[float]
    """Of those that were applied at once."""
    late_s: Sequence[float]
    """Of those that came one after another, when the others were there."""
    restart_s: float
    """From the start of another operator process after one that was killed until one more tenant was ready: with the rest of
    the killed one's lease."""
    usage: Usage
    """Of the operator up to its kill."""


def measure_tenants(folder: Path, tenants: int, *, say: Callable[[str], None]) -> TenantsFigures:
    """Start all, apply the tenants, then some more, then kill the operator and start it again."""
    with ExitStack() as exits:
        begin = beginning(folder, exits)
        kafka_port = _begin_kafka(folder, begin)
        (folder / "kubernetes").mkdir(parents=True)
        cluster = start_control_plane_in(folder / "kubernetes", exits)
        for namespace in (_OWN, _NAMESPACE):
            cluster.kubectl("create", "namespace", namespace)
        values = {"tenantOperator": {"tenantNamespaces": [_NAMESPACE]}}
        cluster.apply(*render(cluster, values, _OWN, "tenant-operator-rbac", "service-account"))
        token = cluster.service_account_token(_OWN, "headwater-tenant-operator")
        kubeconfig = str(cluster.kubeconfig(token, name="operator", namespace=_OWN))
        settings = settings_of_operators(kubeconfig, kafka_broker.bootstrap_servers(kafka_port))

        def start_operator() -> Service:
            return start_service_in(folder, begin, "tenant_operator", next(settings))

        return asyncio.run(_measured(cluster, start_operator, tenants, say))


def settings_of_operators(kubeconfig_file: str, bootstrap_servers: str) -> Iterator[dict[str, Any]]:
    """Of one operator process after another. Each is another to the lease, as pods are: a successor waits for its end."""
    for number in itertools.count():
        yield {
            "kubernetes": {
                "kubeconfig_file": kubeconfig_file,
                "own_namespace": _OWN,
                "tenant_namespaces": [_NAMESPACE],
            },
            "kafka": {"bootstrap_servers": bootstrap_servers},
            "lease": {"identity": f"bench-{number}"},
            "quotas": {"consumer_bytes_per_s": 10_000_000},
        }


def _begin_kafka(folder: Path, begin: Callable[[ProcessSpec], Running]) -> int:
    """Its open port, whose clients may do everything; others have the rights that ACLs give them."""
    port, controller_port, sasl_port, tls_port = free_ports(4)
    folder.mkdir(parents=True, exist_ok=True)
    files = write_certificates(folder)
    sasl = kafka_broker.Sasl({}, sasl_port, tls_port, Path(files["both"]), denies_by_default=True)
    begin(kafka_broker.prepare(folder / "kafka", port=port, controller_port=controller_port, sasl=sasl))
    return port


async def _measured(
    cluster: ControlPlane, start_operator: Callable[[], Service], tenants: int, say: Callable[[str], None]
) -> TenantsFigures:
    admin = cluster.kubeconfig(cluster.admin_token, name="bench")
    async with await open_kubernetes(KubernetesSettings(kubeconfig_file=str(admin), own_namespace=_OWN)) as kubernetes:
        ready: dict[str, float] = {}
        watching = asyncio.create_task(_note_ready(kubernetes, ready))
        try:
            operator = await asyncio.to_thread(start_operator)
            began_s = time.monotonic()
            applied = await _apply(kubernetes, [f"t{number:05d}" for number in range(tenants)])
            applying_s = time.monotonic() - began_s
            say(f"{tenants:,} applied within {applying_s:.0f} s")
            joined_s = await _joined(applied, ready, watching)
            say(f"all ready, the last one {joined_s[-1]:.0f} s after its ConfigMap")
            late_s = []
            for number in range(LATE_TENANTS):
                late_s += await _joined(await _apply(kubernetes, [f"late{number:02d}"]), ready, watching)
            usage = operator.usage()
            kill(operator.running)
            await _apply(kubernetes, ["behind"])
            started_s = time.monotonic()
            await asyncio.to_thread(start_operator)
            [restart_s] = await _joined({"behind": started_s}, ready, watching)
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
    return TenantsFigures(applying_s, joined_s, sorted(late_s), restart_s, usage)


async def _apply(kubernetes: KubernetesClient, names: Sequence[str]) -> dict[str, float]:
    """When the API server had the ConfigMap of each."""
    applied: dict[str, float] = {}
    at_once = asyncio.Semaphore(_APPLIED_AT_ONCE)

    async def apply(name: str) -> None:
        labels = {TENANT_LABEL: "true"}
        secret = {"metadata": {"name": f"{name}-kafka", "labels": labels}, "stringData": {"password": f"of {name}"}}
        document = f"tenant: {name}\nsources: [{{name: shop}}]\n"
        config_map = {"metadata": {"name": name, "labels": labels}, "data": {"tenant.yaml": document}}
        async with at_once:
            await kubernetes.create(f"/api/v1/namespaces/{_NAMESPACE}/secrets", secret)
            await kubernetes.create(f"/api/v1/namespaces/{_NAMESPACE}/configmaps", config_map)
            applied[name] = time.monotonic()

    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(apply(name))
    return applied


async def _note_ready(kubernetes: KubernetesClient, ready: dict[str, float]) -> None:
    """When each ConfigMap was seen to say that it is ready, first."""
    path, labels = f"/api/v1/namespaces/{_NAMESPACE}/configmaps", f"{TENANT_LABEL}=true"
    version = (await kubernetes.list(path, labels=labels)).resource_version
    while True:
        watch: Any = kubernetes.watch(path, labels=labels, resource_version=version)
        async with aclosing(watch) as events:
            async for _, found in events:
                version = found["metadata"]["resourceVersion"]
                if found["metadata"].get("annotations", {}).get(STATE_ANNOTATION) == READY:
                    ready.setdefault(found["metadata"]["name"], time.monotonic())


async def _joined(applied: dict[str, float], ready: dict[str, float], watching: "asyncio.Task[None]") -> list[float]:
    """Seconds that each took, in rising order. Raises TimeoutError."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    while missing := applied.keys() - ready.keys():
        if watching.done():
            watching.result()
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{len(missing)} tenants are not ready after {_TIMEOUT_S:.0f} s")
        await asyncio.sleep(0.02)
    return sorted(ready[name] - applied[name] for name in applied)
