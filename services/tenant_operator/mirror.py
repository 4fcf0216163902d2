"""Objects of Kubernetes kept in memory as they are now: a list, and then a watch, for ever."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog

from libs.errors import TransientError
from services.tenant_operator.kubernetes_client import KubernetesClient, WatchExpired

_PAUSE_S: Final = 1.0

log = structlog.get_logger()


class Mirror:
    """The objects of one kind that carry a label, or have a field. ``run`` follows them; ``on_change`` is called after each
    change."""

    def __init__(
        self,
        client: KubernetesClient,
        path: str,
        *,
        labels: str = "",
        fields: str = "",
        on_change: Callable[[], None],
    ) -> None:
        self._client = client
        self.path = path
        self._labels = labels
        self._fields = fields
        self._on_change = on_change
        self._objects: dict[str, dict[str, Any]] = {}
        self.is_listed = asyncio.Event()
        """Set once the first list is there: before, an absence means nothing."""
        self.fault: str | None = None
        """Why it does not follow now; None: it does."""

    @property
    def objects(self) -> list[dict[str, Any]]:
        """All of them."""
        return list(self._objects.values())

    async def run(self) -> None:
        """Follow until cancelled.

        Raises:
            AccessDenied: we may not look; grant list and watch.
        """
        while True:
            try:
                listed = await self._client.list(self.path, labels=self._labels, fields=self._fields)
                self._objects = {item["metadata"]["uid"]: item for item in listed.items}
                self.fault = None
                self.is_listed.set()
                self._on_change()
                await self._watch(listed.resource_version)
            except WatchExpired:
                continue
            except TransientError as error:
                if self.fault is None:
                    log.warning("kubernetes_unavailable", path=self.path, reason=str(error))
                self.fault = str(error)
                await asyncio.sleep(_PAUSE_S)

    async def _watch(self, resource_version: str) -> None:
        while True:
            stream = self._client.watch(
                self.path, labels=self._labels, fields=self._fields, resource_version=resource_version
            )
            async for kind, found in stream:
                resource_version = found["metadata"]["resourceVersion"]
                if kind == "BOOKMARK":
                    continue
                uid = found["metadata"]["uid"]
                if kind == "DELETED":
                    self._objects.pop(uid, None)
                else:
                    self._objects[uid] = found
                self._on_change()
