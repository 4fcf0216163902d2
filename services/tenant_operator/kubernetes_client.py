"""The Kubernetes API from the operator's side: objects as JSON by their paths, lists, and watches.

The kubernetes package finds the cluster, its certificate and our token (and renews it); its generated models are left
alone: the operator reads a dozen fields of four kinds, and a list of a thousand ConfigMaps is not taken apart twice.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config.config_exception import ConfigException

from libs.errors import (
    AccessDenied,
    HeadwaterError,
    InvalidSettings,
    PipelineHalted,
    ServiceUnavailable,
    TransientError,
)
from services.tenant_operator.objects import owner_reference
from services.tenant_operator.settings import KubernetesSettings

_Result = TypeVar("_Result")

_PAGE: Final = 500
"""Objects that one answer to a list holds: as kubectl asks."""
_FIELD_MANAGER: Final = "headwater-tenant-operator"
_LONGEST_LINE_BYTES: Final = 8 << 20
"""Of a watch: an object has 1.5 MB at most (etcd's limit)."""
_AT_ONCE: Final = 20
"""Requests to the API server that run side by side: a thousand new tenants take seconds, and it is not flooded."""


class Conflict(TransientError):
    """Somebody else changed the object since it was read: look again."""


class WatchExpired(TransientError):
    """The API server no longer knows from where to go on: list again."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A list, as of one moment."""

    items: tuple[dict[str, Any], ...]
    resource_version: str


class KubernetesClient:
    """Make it by ``open_kubernetes``; ``close`` it at the end."""

    def __init__(self, client: ApiClient, settings: KubernetesSettings) -> None:
        self._client = client
        self._settings = settings

    async def get(self, path: str) -> dict[str, Any] | None:
        """An object; None where there is none."""
        return await self._ask("GET", path, is_missing_fine=True)

    async def owner(self) -> dict[str, str] | None:
        """Objects with this reference go with ``owner_config_map``; None: the settings name none. Asked for each time: one
        that was made again is another, and objects with the old one would be swept away.

        Raises:
            ServiceUnavailable: it is not there; the release is being removed, or the setting names another.
        """
        name, namespace = self._settings.owner_config_map, self._settings.own_namespace
        if name is None:
            return None
        found = await self.get(f"/api/v1/namespaces/{namespace}/configmaps/{name}")
        if found is None:
            raise ServiceUnavailable(
                f"ConfigMap {namespace}/{name} is not there (kubernetes.owner_config_map): nothing is kept without it"
            )
        return owner_reference(found)

    async def list(self, path: str, *, labels: str = "", fields: str = "") -> Listed:
        """The objects that carry ``labels`` and have ``fields`` (selectors)."""
        listed = await self.list_if_known(path, labels=labels, fields=fields)
        if listed is None:
            raise PipelineHalted(
                f"Kubernetes: LIST {path}: the cluster knows no such kind of object; install the operator that brings it"
            )
        return listed

    async def list_if_known(self, path: str, *, labels: str = "", fields: str = "") -> Listed | None:
        """The same; None: the cluster does not know this kind of object."""
        items: list[dict[str, Any]] = []
        more = ""
        while True:
            query = {"labelSelector": labels, "fieldSelector": fields, "limit": _PAGE, "continue": more}
            answer = await self._ask("GET", path, query=query, is_missing_fine=True)
            if answer is None:
                return None
            items.extend(answer["items"])
            more = answer["metadata"].get("continue", "")
            if not more:
                return Listed(tuple(items), answer["metadata"]["resourceVersion"])

    async def watch(
        self, path: str, *, labels: str = "", fields: str = "", resource_version: str
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """The changes of those objects from ``resource_version`` on: ADDED, MODIFIED, DELETED or BOOKMARK with the object.

        Ends by itself after ``watch_timeout_s``; ask again from the last object's version.

        Raises:
            WatchExpired: that version is too old; list again.
            ServiceUnavailable: the connection broke off; ask again.
        """
        query = {
            "labelSelector": labels,
            "fieldSelector": fields,
            "resourceVersion": resource_version,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": self._settings.watch_timeout_s,
        }
        # Silence is no fault: the server promises only an end after watch_timeout_s.
        longest_s = self._settings.watch_timeout_s + self._settings.request_timeout_s
        try:
            answer = await self._send("GET", path, query=query, timeout_s=longest_s)
            try:
                if answer.status != 200:
                    raise _error_of(answer.status, await answer.read(), "WATCH", path)
                rest = b""
                async for part in answer.content.iter_any():
                    *lines, rest = (rest + part).split(b"\n")
                    if len(rest) > _LONGEST_LINE_BYTES:
                        raise ServiceUnavailable(f"Kubernetes sent a line without an end (WATCH {path})")
                    for line in lines:
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            raise _error_of(event["object"].get("code", 0), line, "WATCH", path)
                        yield event["type"], event["object"]
            finally:
                answer.close()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ServiceUnavailable(f"the watch of {path} broke off ({type(error).__name__})") from error

    async def create(self, path: str, body: Mapping[str, Any]) -> None:
        """Raises Conflict where it is there already."""
        await self._ask("POST", path, body=body)

    async def replace(self, path: str, body: Mapping[str, Any]) -> None:
        """Raises Conflict where ``metadata.resourceVersion`` is not the object's."""
        await self._ask("PUT", path, body=body)

    async def merge(self, path: str, body: Mapping[str, Any]) -> bool:
        """Change the fields of ``body`` (JSON merge patch); returns whether the object is there. Raises Conflict as
        ``replace``."""
        kind = "application/merge-patch+json"
        return await self._ask("PATCH", path, body=body, content_type=kind, is_missing_fine=True) is not None

    async def apply(self, path: str, body: Mapping[str, Any]) -> None:
        """Apply ``body`` to the object, and overrule others' values of the same fields (server-side apply)."""
        query = {"fieldManager": _FIELD_MANAGER, "force": "true"}
        await self._ask("PATCH", path, query=query, body=body, content_type="application/apply-patch+yaml")

    async def delete(self, path: str) -> None:
        """Delete it; fine where there is none."""
        body = {"propagationPolicy": "Background"}
        await self._ask("DELETE", path, body=body, is_missing_fine=True)

    async def close(self) -> None:
        """Close the connections; watches end."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        is_missing_fine: bool = False,
    ) -> dict[str, Any] | None:
        try:
            answer = await self._send(
                method,
                path,
                query=query,
                body=body,
                content_type=content_type,
                timeout_s=self._settings.request_timeout_s,
            )
            content = await answer.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ServiceUnavailable(f"Kubernetes does not answer ({type(error).__name__}: {method} {path})") from error
        if answer.status == 404 and is_missing_fine:
            return None
        if answer.status >= 300:
            raise _error_of(answer.status, content, method, path)
        parsed: dict[str, Any] = json.loads(content)
        return parsed

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None,
        timeout_s: float,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> aiohttp.ClientResponse:
        configuration = self._client.configuration
        headers = {"Accept": "application/json", "Content-Type": content_type}
        token = await configuration.get_api_key_with_prefix("BearerToken")
        if token:
            headers["Authorization"] = token
        asked = urlencode([(name, str(value)) for name, value in (query or {}).items() if value != ""])
        answer = await self._client.rest_client.request(  # type: ignore[no-untyped-call]
            method,
            f"{configuration.host}{path}{'?' if asked else ''}{asked}",
            headers=headers,
            body=body,
            _request_timeout=aiohttp.ClientTimeout(total=timeout_s, connect=self._settings.request_timeout_s),
        )
        response: aiohttp.ClientResponse = answer.response
        return response


async def open_kubernetes(settings: KubernetesSettings) -> KubernetesClient:
    """A client of the cluster that ``settings`` names.

    Raises:
        InvalidSettings: there is no such file, or the process runs in no cluster.
    """
    configuration = Configuration()
    try:
        if settings.kubeconfig_file is not None:
            load: Any = config.load_kube_config  # untyped
            await load(config_file=settings.kubeconfig_file, client_configuration=configuration)
        else:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        mistake = f"kubernetes.kubeconfig_file: {error}; name one, or run in a pod with a service account"
        raise InvalidSettings("tenant_operator", [mistake]) from error
    return KubernetesClient(ApiClient(configuration=configuration), settings)


async def side_by_side(works: Iterable[Awaitable[_Result]]) -> list[_Result]:
    """The results of requests, in order, a bounded number at a time."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def run(work: Awaitable[_Result]) -> _Result:
        async with room:
            return await work

    return list(await asyncio.gather(*(run(work) for work in works)))


def _error_of(status: int, content: bytes, method: str, path: str) -> HeadwaterError:
    """Kubernetes API conventions, "Response Status Kind": the caller's action for each code."""
    try:
        answer = json.loads(content)
        reason = str(answer.get("object", answer).get("message", ""))
    except (ValueError, AttributeError):
        reason = content[:200].decode(errors="replace")
    text = f"Kubernetes: {method} {path}: {reason or status}"
    match status:
        case 401 | 403:
            return AccessDenied(f"{text}; grant it to the operator's service account")
        case 409:
            return Conflict(text)
        case 410:
            return WatchExpired(text)
        case 400 | 404 | 405 | 413 | 415 | 422:
            return PipelineHalted(text)
        case _:
            return ServiceUnavailable(text)
