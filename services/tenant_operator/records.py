"""Our own objects in Kubernetes, and our finalizer on those of the teams: each write, with the version that was read."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final

import structlog

from libs.errors import (
    AccessDenied,
    HeadwaterError,
)
from libs.tenants.config_map import record_name
from services.tenant_operator.failures import Failures
from services.tenant_operator.judge import InForce, Leaving, Standing
from services.tenant_operator.kubernetes_client import Conflict, KubernetesClient, side_by_side
from services.tenant_operator.mirror import Mirror
from services.tenant_operator.objects import (
    FINALIZER,
    SOURCES_CONFIG_MAP,
    Origin,
    TenantConfigMap,
    TenantRecord,
    known_sources,
    owners,
    record_manifest,
    sources_manifest,
    tenant_config_map,
    tenant_record,
)
from services.tenant_operator.settings import TenantOperatorSettings

_NOT_RELEASED: Final = (
    "grant patch on ConfigMaps in its namespace; in one that is Terminating nobody can: then take our finalizer off by hand "
    f"(kubectl patch configmap ... --type=json; docs/failure_modes.md, finalizer {FINALIZER})"
)

log = structlog.get_logger()


class Records:
    """The tenants' records, the list of known sources, and finalizers."""

    def __init__(
        self,
        settings: TenantOperatorSettings,
        kubernetes: KubernetesClient,
        records: Mirror,
        config_maps: Sequence[Mirror],
    ) -> None:
        self._settings = settings
        self._kubernetes = kubernetes
        self._mirror = records
        self._config_maps = config_maps
        self._own = settings.kubernetes.own_namespace
        self._owned_by: list[Mapping[str, Any]] = []
        """As of this look: the release that takes the records with it."""

    def begin(self, owner: Mapping[str, Any] | None) -> None:
        """A look begins; ``owner``: the release's object."""
        self._owned_by = [owner] if owner is not None and not self._settings.keeps_tenants else []

    @property
    def found(self) -> list[TenantRecord]:
        """All records, as the mirror shows them."""
        return [tenant_record(found) for found in self._mirror.objects]

    def _path(self, name: str) -> str:
        return f"/api/v1/namespaces/{self._own}/configmaps/{name}"

    async def store(self, record: TenantRecord) -> None:
        """Raises Conflict: it was changed since it was read."""
        folder = f"/api/v1/namespaces/{self._own}/configmaps"
        manifest = record_manifest(record, self._own, self._owned_by)
        if record.resource_version:
            await self._kubernetes.replace(f"{folder}/{record_name(record.tenant)}", manifest)
        else:
            await self._kubernetes.create(folder, manifest)

    async def delete(self, tenant: str) -> None:
        """A tenant has left."""
        await self._kubernetes.delete(self._path(record_name(tenant)))

    async def known_sources(self) -> frozenset[str]:
        """Those that the list has."""
        return frozenset(known_sources(await self._kubernetes.get(self._path(SOURCES_CONFIG_MAP))))

    async def note_sources(self, names: Set[str]) -> None:
        """Add sources to the list."""
        known = await self.known_sources() | names
        await self._kubernetes.apply(self._path(SOURCES_CONFIG_MAP), sources_manifest(known, self._own))

    async def note_password(self, each: InForce, failures: Failures) -> None:
        """After the change in Kafka: a crash between the two sets the same password once more."""
        assert each.credentials is not None
        body = record_manifest(
            replace(each.record, password_version=each.credentials.version, resource_version=""), self._own
        )
        path = f"/api/v1/namespaces/{self._own}/configmaps/{record_name(each.tenant)}"
        try:
            await self._kubernetes.merge(path, {"metadata": {"annotations": body["metadata"]["annotations"]}})
        except HeadwaterError as error:
            failures.note(each.tenant, error)

    async def own_what_is_kept(self, standing: Standing, owner: Mapping[str, Any] | None, failures: Failures) -> None:
        """The objects that a removed release takes with it: of a mesh without tenants all; else, where ``keeps_tenants``, none
        of theirs. The known sources are theirs too: they distinguish present tenants from later ones."""
        if owner is None:
            return
        folder = f"/api/v1/namespaces/{self._own}/configmaps"
        sources = await self._kubernetes.get(f"{folder}/{SOURCES_CONFIG_MAP}")
        wanted = [(found, self._owned_by) for found in self._mirror.objects]
        if sources is not None:
            wanted.append((sources, self._owned_by if standing.in_force or standing.kept else [owner]))

        async def own(found: Mapping[str, Any], owned_by: Sequence[Mapping[str, Any]]) -> None:
            metadata = {"resourceVersion": found["metadata"]["resourceVersion"], "ownerReferences": owned_by or None}
            try:
                await self._kubernetes.merge(f"{folder}/{found['metadata']['name']}", {"metadata": metadata})
            except Conflict:  # it was written since: the mirror shows it, and brings the next look
                return
            except HeadwaterError as error:
                failures.note_all(error)

        await side_by_side(own(found, owned_by) for found, owned_by in wanted if owners(found) != list(owned_by))

    async def set_finalizers(self, config_map: TenantConfigMap, finalizers: Sequence[str]) -> None:
        """With the version that was read: somebody else's finalizer is never lost."""
        metadata = {"resourceVersion": config_map.resource_version, "finalizers": list(finalizers)}
        await self._kubernetes.merge(path_of(config_map), {"metadata": metadata})

    async def release(self, each: Leaving) -> None:
        """Take our finalizer off; also off a ConfigMap that lost our label, and is in no list of ours."""
        config_map = each.config_map
        if config_map is None:
            path = f"/api/v1/namespaces/{each.record.origin.namespace}/configmaps/{each.record.origin.name}"
            try:
                found = await self._kubernetes.get(path)
            except AccessDenied as error:
                if self._looks_in(each.record.origin.namespace):
                    raise
                # Its namespace is none of the teams' any more, or gone: there is nobody to ask, and nothing left to clear away.
                log_not_released(each.record.origin, error)
                return
            if found is None or found["metadata"]["uid"] != each.record.origin.uid:
                return
            config_map = tenant_config_map(found)
        if config_map.has_finalizer:
            await self.set_finalizers(config_map, without_ours(config_map.finalizers))

    def _looks_in(self, namespace: str) -> bool:
        return any(mirror.namespace in (None, namespace) for mirror in self._config_maps)


def path_of(config_map: TenantConfigMap) -> str:
    """Of a team's ConfigMap, in the API."""
    return f"/api/v1/namespaces/{config_map.origin.namespace}/configmaps/{config_map.origin.name}"


def log_not_released(origin: Origin, error: HeadwaterError) -> None:
    """Our finalizer is still on a ConfigMap."""
    remedy = _NOT_RELEASED if isinstance(error, AccessDenied) else "none: it is tried again"
    log.warning("config_map_not_released", config_map=str(origin), reason=str(error), remedy=remedy)


def without_ours(finalizers: Sequence[str]) -> list[str]:
    """The finalizers of others."""
    return [name for name in finalizers if name != FINALIZER]
