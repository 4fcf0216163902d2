"""The operator that works is the holder of the Lease (Kubernetes documentation, "Leases").

A leader's actions are safe to repeat and are computed from the present state, so a second one that believes to lead for a
moment does no harm; its writes on top of another's are refused by the objects' versions.
"""

import asyncio
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from libs.errors import Fenced, TransientError
from services.tenant_operator.kubernetes_client import Conflict, KubernetesClient
from services.tenant_operator.settings import KubernetesSettings, LeaseSettings

_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%S.%fZ"

log = structlog.get_logger()


class Leadership:
    """The lease, from one candidate's side. ``run`` it; ``held`` is set while this one leads."""

    def __init__(
        self,
        client: KubernetesClient,
        kubernetes: KubernetesSettings,
        settings: LeaseSettings,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{kubernetes.own_namespace}/leases"
        self._namespace = kubernetes.own_namespace
        self._settings = settings
        self._now = now
        self.identity = settings.identity or socket.gethostname()
        self.held = asyncio.Event()
        self._seen: tuple[str, float] | None = None
        """The other's last renewal, and when we saw it first, by our own clock: clocks of two machines differ."""

    async def run(self) -> None:
        """Take the lease as soon as it is free, and renew it until cancelled.

        Raises:
            Fenced: it was lost; stop at once, and start again as a candidate.
        """
        loop = asyncio.get_running_loop()
        renewed_s = loop.time()
        while True:
            try:
                is_ours = await self._take()
            except TransientError as error:
                if self.held.is_set() or not isinstance(error, Conflict):  # candidates meet at a free lease
                    log.warning("lease_not_renewed", reason=str(error))
                # Until its end the lease is ours, whether we reach the API server or not; and the change between our
                # look and our write may be our own renewal, whose answer was lost. The next look shows it.
                is_ours = (
                    self.held.is_set() and loop.time() - renewed_s < self._settings.duration_s - self._settings.renew_s
                )
            else:
                renewed_s = loop.time()
            if is_ours and not self.held.is_set():
                log.info("lease_taken", identity=self.identity)
                self.held.set()
            elif not is_ours and self.held.is_set():
                self.held.clear()
                raise Fenced(f"lease {self._settings.name}: another operator leads now")
            await asyncio.sleep(self._settings.renew_s)

    async def release(self) -> None:
        """Hand over at once, where this one leads: at the end of a graceful stop."""
        if not self.held.is_set():
            return
        self.held.clear()
        try:
            found = await self._client.get(f"{self._folder}/{self._settings.name}")
            if found is not None and found["spec"].get("holderIdentity") == self.identity:
                found["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._client.replace(f"{self._folder}/{self._settings.name}", found)
        except TransientError as error:
            log.warning("lease_not_released", reason=str(error))

    async def _take(self) -> bool:
        path = f"{self._folder}/{self._settings.name}"
        found = await self._client.get(path)
        if found is None:
            await self._client.create(self._folder, self._lease(await self._owned({}), transitions=0))
            return True
        spec = found.get("spec") or {}
        if spec.get("holderIdentity") == self.identity:
            spec["renewTime"] = self._now().strftime(_TIME_FORMAT)
            await self._client.replace(path, found | {"spec": spec})
            return True
        if not self._is_over(spec):
            return False
        transitions = int(spec.get("leaseTransitions") or 0) + 1
        await self._client.replace(path, self._lease(await self._owned(found["metadata"]), transitions=transitions))
        return True

    async def _owned(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """It goes with the release: a lease remembers nothing."""
        owner = await self._client.owner()
        return metadata if owner is None else {**metadata, "ownerReferences": [owner]}

    def _is_over(self, spec: dict[str, Any]) -> bool:
        """Nobody holds it, or its holder has been silent for its whole time while we watched."""
        if not spec.get("holderIdentity"):
            return True
        now_s, renewal = asyncio.get_running_loop().time(), f"{spec['holderIdentity']} {spec.get('renewTime')}"
        if self._seen is None or self._seen[0] != renewal:
            self._seen = (renewal, now_s)
            return False
        return now_s - self._seen[1] > float(spec.get("leaseDurationSeconds") or self._settings.duration_s)

    def _lease(self, metadata: dict[str, Any], *, transitions: int) -> dict[str, Any]:
        now = self._now().strftime(_TIME_FORMAT)
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {**metadata, "name": self._settings.name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": self._settings.duration_s,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        }
