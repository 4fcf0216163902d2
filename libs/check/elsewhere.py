"""``headwater check`` of a mesh elsewhere: sources and warehouses from the file for ``--mesh``, tenants from their keeper."""

import asyncio
import functools
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final

from libs.check.compared import ComparedMesh
from libs.check.hops_elsewhere import HopsElsewhere
from libs.config.connections import GrpcClientSettings
from libs.errors import InvalidSettings, ServiceUnavailable
from libs.mesh.mesh import KubectlSettings, MeshSettings, mesh_sources
from libs.mesh.recorded_checkpoints import RecordedCheckpoints
from libs.mesh.tenant_objects import objects_in_cluster
from libs.mesh.warehouses_elsewhere import CatalogTables, table_store
from libs.rpc.tenants_client import TenantsClient
from libs.tenants.config_map import DEGRADED, READY
from libs.tenants.document import TenantFolder, read_tenant
from libs.tenants.mask_keys import MaskKeys
from libs.tenants.place import nearest
from libs.tenants.row_filter import condition_mistakes
from libs.types.table import TableId
from libs.types.tenant import TenantSpec
from libs.warehouse_readers.warehouse import TableStore

_OPERATOR_TIMEOUT_S: Final = 60.0
_OTHERWISE: Final = "or have the documents in a folder, and name it by tenants_dir in the file for --mesh"


def compared_elsewhere(
    settings: MeshSettings,
    environ: Mapping[str, str],
    tables: Sequence[str],
    checkpoints: RecordedCheckpoints,
    stores: dict[str, TableStore],
) -> ComparedMesh:
    """A mesh by its file, with the documents in force now. Blocks.

    ``tables``: those alone are waited for (``check``). ``checkpoints``: kept from one look to the next. ``stores``: by
    warehouse, those of the last look, which are closed, give way to this one's.

    Raises:
        InvalidSettings: the file lacks settings that ``check`` needs, or has mistakes.
        ServiceUnavailable, AccessDenied: the keeper of the documents does not answer, or refuses.
    """
    sources = mesh_sources(settings)
    told, notes = _documents(settings)
    tenants = {}
    while stores:
        _, last = stores.popitem()
        if isinstance(last, CatalogTables):
            last.close()
    for name, spec in sorted(told.items()):
        if spec.sink is None:
            tenants[name] = spec
            continue
        warehouse = spec.sink.warehouse
        store = stores.get(warehouse) or table_store(settings.warehouses, warehouse)
        if store is None:
            notes.append(f"{name}: not compared: warehouses of the file for --mesh names no {warehouse}")
            continue
        tenants[name], stores[warehouse] = spec, store
        notes += [
            f"{name}: its tables of source {each.name} are not compared: sources of the file for --mesh does not name it"
            for each in spec.sources
            if each.name not in sources
        ]

    def warehouse_of(tenant: str) -> TableStore:
        sink = tenants[tenant].sink
        assert sink is not None
        return stores[sink.warehouse]

    def is_compared(table: TableId) -> bool:
        return not tables or any(re.fullmatch(pattern, str(table)) for pattern in tables)

    return ComparedMesh(
        sources,
        tenants,
        HopsElsewhere(settings.kafka, sources, warehouse_of, is_compared, checkpoints),
        warehouse_of,
        MaskKeys(None if settings.keys_folder is None else Path(settings.keys_folder), environ).key,
        Path(settings.temporary_dir or tempfile.gettempdir()),
        functools.partial(_require, tenants, notes),
        tuple(notes),
    )


def _documents(settings: MeshSettings) -> tuple[dict[str, TenantSpec], list[str]]:
    """Those in force by tenant, and notes about others."""
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
            "does not tell where tenants' documents are: give tenants_dir, kubernetes or tenant_operator (docs/kubernetes.md)"
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
            f"tenant_operator at {settings.address} did not tell the documents in force"
        ) from error
    raise ServiceUnavailable(f"tenant_operator at {settings.address} ended before it told the documents in force")


def _of_config_maps(settings: KubectlSettings) -> tuple[dict[str, TenantSpec], list[str]]:
    """For a ConfigMap that is not in force only the operator knows the document in force."""
    texts, notes = {}, []
    for each in objects_in_cluster(settings, _OTHERWISE):
        if each.state in (READY, DEGRADED) and each.text is not None:
            texts[each.place] = each.text
        else:
            notes.append(f"ConfigMap {each.place} is {each.state or 'new to the operator'}: its tenant is not compared")
    found, further = _parsed(texts)
    return found, [*notes, *further]


def _parsed(texts: Mapping[str, str]) -> tuple[dict[str, TenantSpec], list[str]]:
    found, notes = {}, []
    for called, text in texts.items():
        mistakes: list[str] = []
        parsed = read_tenant(text, file=called, mistakes=mistakes, check_condition=condition_mistakes)
        if parsed is None:
            notes.append(f"{called}: not compared: {mistakes[0]}")
        else:
            found[parsed.spec.tenant] = parsed.spec
    return found, notes


def _require(tenants: Mapping[str, TenantSpec], notes: Sequence[str], name: str) -> None:
    if name not in tenants:
        lacks = f"is none that can be compared; {nearest(name, sorted(tenants))}"
        raise InvalidSettings(f"tenant {name}", [lacks, *notes])
