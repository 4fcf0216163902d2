"""``headwater check`` of a mesh elsewhere: sources and warehouses from the file for ``--mesh``, tenants from their keeper."""

import functools
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from libs.check.cluster_hops import ClusterHops
from libs.check.compared import ComparedMesh
from libs.errors import AccessDenied, InvalidSettings
from libs.mesh.cluster_documents import documents_in_force
from libs.mesh.cluster_warehouses import CatalogTables, table_store
from libs.mesh.mesh_settings import MeshSettings, mesh_sources
from libs.mesh.recorded_checkpoints import RecordedCheckpoints
from libs.mesh.recorded_sink_reports import RecordedSinkReports
from libs.tenants.mask_keys import MaskKeys
from libs.tenants.place import nearest
from libs.types.table import TableId
from libs.types.tenant import TenantSpec
from libs.warehouse_readers.warehouse import TableStore


def compared_cluster(
    settings: MeshSettings,
    environ: Mapping[str, str],
    tables: Sequence[str],
    checkpoints: RecordedCheckpoints,
    stores: dict[str, TableStore],
    sink_faults: RecordedSinkReports | None = None,
) -> ComparedMesh:
    """A mesh by its file, with the documents in force now. Blocks.

    ``tables``: those alone are waited for (``check``). ``checkpoints``, ``sink_faults``: kept from one look to the next.
    ``stores``: by warehouse, those of the last look, which are closed, give way to this one's.

    Raises:
        InvalidSettings: the file lacks settings that ``check`` needs, or has mistakes.
        ServiceUnavailable, AccessDenied: the keeper of the documents does not answer, or refuses.
    """
    sources = mesh_sources(settings)
    listed, notes = documents_in_force(settings)
    tenants = {}
    while stores:
        _, last = stores.popitem()
        if isinstance(last, CatalogTables):
            last.close()
    for name, spec in sorted(listed.items()):
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

    parked = _parked_by(sink_faults, notes)
    return ComparedMesh(
        sources,
        tenants,
        ClusterHops(settings.kafka, sources, warehouse_of, is_compared, checkpoints, parked),
        warehouse_of,
        MaskKeys(None if settings.keys_folder is None else Path(settings.keys_folder), environ).key,
        Path(settings.temporary_dir or tempfile.gettempdir()),
        functools.partial(_require, tenants, notes),
        tuple(notes),
        parked,
    )


def _parked_by(
    sink_faults: RecordedSinkReports | None, notes: list[str]
) -> Callable[[str], Mapping[tuple[str, str], str]]:
    """As ``ComparedMesh.parked``; a note where Kafka's user may not see it."""
    try:
        if sink_faults is not None:
            sink_faults.parked_tables("")
            return sink_faults.parked_tables
    except AccessDenied as error:
        notes.append(f"whether tables are parked is not seen: {error}")
    return lambda _: {}


def _require(tenants: Mapping[str, TenantSpec], notes: Sequence[str], name: str) -> None:
    if name not in tenants:
        lacks = f"is none that can be compared; {nearest(name, sorted(tenants))}"
        raise InvalidSettings(f"tenant {name}", [lacks, *notes])
