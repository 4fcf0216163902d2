"""Tenants' documents in force in a mesh elsewhere: from a folder, from tenant_operator, or from their ConfigMaps."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Final

from libs.config.connections import GrpcClientSettings
from libs.errors import InvalidSettings, ServiceUnavailable
from libs.mesh.mesh_settings import KubectlSettings, MeshSettings
from libs.mesh.tenant_objects import objects_in_cluster
from libs.rpc.tenants_client import TenantsClient
from libs.tenants.config_map import DEGRADED, READY
from libs.tenants.document import TenantFolder, read_tenant
from libs.tenants.row_filter import condition_mistakes
from libs.types.tenant import TenantSpec

_OPERATOR_TIMEOUT_S: Final = 60.0
_OTHERWISE: Final = "or have the documents in a folder, and name it by tenants_dir in the file for --mesh"


def documents_in_force(settings: MeshSettings) -> tuple[dict[str, TenantSpec], list[str]]:
    """Those in force by tenant, and notes about others. Blocks.

    Raises:
        InvalidSettings: the file names no keeper of the documents.
        ServiceUnavailable, AccessDenied, ClusterUnavailable: their keeper does not answer, or refuses.
    """
    if settings.tenants_dir is not None:
        return _of_folder(Path(settings.tenants_dir))
    if settings.tenant_operator is not None:
        texts = asyncio.run(_of_operator(settings.tenant_operator))
        return _parsed(texts)
    if settings.kubernetes is not None:
        return _of_config_maps(settings.kubernetes)
    raise InvalidSettings(
        "the file for --mesh",
        [
            "does not say where tenants' documents are: give tenants_dir, kubernetes or tenant_operator (docs/kubernetes.md)"
        ],
    )


def _of_folder(folder: Path) -> tuple[dict[str, TenantSpec], list[str]]:
    found = TenantFolder(folder, check_condition=condition_mistakes).refresh()
    assert found is not None  # at the first look
    notes = [f"{folder}/{mistake}" for refused in found.refused for mistake in refused.mistakes]
    return {spec.tenant: spec for spec in found.tenants}, notes


async def _of_operator(settings: GrpcClientSettings) -> Mapping[str, str]:
    try:
        async with (
            asyncio.timeout(_OPERATOR_TIMEOUT_S),
            TenantsClient(settings) as client,
            aclosing(client.watch()) as changes,
        ):
            async for change in changes:
                return change.in_force
    except TimeoutError as error:
        raise ServiceUnavailable(
            f"tenant_operator at {settings.address} did not give the documents in force"
        ) from error
    raise ServiceUnavailable(f"tenant_operator at {settings.address} ended without the documents in force")


def _of_config_maps(settings: KubectlSettings) -> tuple[dict[str, TenantSpec], list[str]]:
    """For a ConfigMap that is not in force only the operator knows the document in force."""
    texts, notes = {}, []
    for each in objects_in_cluster(settings, _OTHERWISE):
        if each.state in (READY, DEGRADED) and each.text is not None:
            texts[each.place] = each.text
        else:
            notes.append(f"ConfigMap {each.place} is {each.state or 'new to the operator'}: its tenant is left out")
    found, further = _parsed(texts)
    return found, [*notes, *further]


def _parsed(texts: Mapping[str, str]) -> tuple[dict[str, TenantSpec], list[str]]:
    found, notes = {}, []
    for called, text in texts.items():
        mistakes: list[str] = []
        parsed = read_tenant(text, file=called, mistakes=mistakes, check_condition=condition_mistakes)
        if parsed is None:
            notes.append(f"{called}: left out: {mistakes[0]}")
        else:
            found[parsed.spec.tenant] = parsed.spec
    return found, notes
