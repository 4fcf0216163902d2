"""Objects of Kubernetes kept in memory as they are now: a list, and then a watch, for ever.

A team's namespace may refuse us, or go with the rights that we have there: that is its own fault. Its mirror keeps its last
state, says so, and asks again; the others go on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from libs.errors import AccessDenied, TransientError
from services.tenant_operator.kubernetes_client import KubernetesClient, WatchExpired

_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
"""Between two attempts at a namespace that refuses: each pause is twice the one before."""
_REMEDY: Final = (
    "bring Role and RoleBinding headwater-tenants back there (helm upgrade), or, where it is to go, take it out of "
    "tenantOperator.tenantNamespaces"
)

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
        namespace: str | None = None,
        on_change: Callable[[], None],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self.path = path
        self._labels = labels
        self._fields = fields
        self.namespace = namespace
        """Of a team: whether we may look there is its own affair. None: an end of ``run``."""
        self._on_change = on_change
        self._pause = pause
        self._refused_pause_s = _PAUSE_S
        self._objects: dict[str, dict[str, Any]] = {}
        self.is_listed = asyncio.Event()
        """Set once the first list is there: before, an absence means nothing."""
        self.fault: str | None = None
        """Why it does not follow now; None: it does."""
        self.answered = asyncio.Event()
        """Set once the first list is there, or was refused."""
        self.refusal: AccessDenied | None = None
        """The namespace's, now. ``objects`` are those of before."""

    @property
    def objects(self) -> list[dict[str, Any]]:
        """All of them."""
        return list(self._objects.values())

    async def run(self) -> None:
        """Follow until cancelled.

        Raises:
            AccessDenied: we may not look, and it is no team's namespace; grant list and watch.
        """
        while True:
            try:
                listed = await self._client.list(self.path, labels=self._labels, fields=self._fields)
                self._objects = {item["metadata"]["uid"]: item for item in listed.items}
                if self.refusal is not None:
                    log.info("namespace_answers_again", namespace=self.namespace, path=self.path)
                self.fault = self.refusal = None
                self.is_listed.set()
                self.answered.set()
                self._on_change()
                await self._watch(listed.resource_version)
            except WatchExpired:
                continue
            except TransientError as error:
                if self.fault is None:
                    log.warning("kubernetes_unavailable", path=self.path, reason=str(error))
                self.fault = str(error)
                await self._pause(_PAUSE_S)
            except AccessDenied as error:
                if self.namespace is None:
                    raise
                self._note_refusal(error)
                await self._pause(self._refused_pause_s)
                self._refused_pause_s = min(self._refused_pause_s * 2, _LONGEST_PAUSE_S)

    def _note_refusal(self, error: AccessDenied) -> None:
        is_news = self.refusal is None
        self.refusal = error
        self.fault = f"namespace {self.namespace} refuses the operator: {error}; {_REMEDY}"
        self.answered.set()
        if is_news:
            log.warning(
                "namespace_refused", namespace=self.namespace, path=self.path, reason=str(error), remedy=_REMEDY
            )
            self._on_change()

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
            self._refused_pause_s = _PAUSE_S  # a whole watch: it may be watched, and not listed alone
