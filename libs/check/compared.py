"""A mesh as ``check`` asks it: its sources, its tenants' documents, how far it has got, and the tables in its warehouses."""

import functools
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from libs.errors import InvalidSettings
from libs.mesh.catch_up import Hops, StackHops
from libs.mesh.documents import Documents, SourceDocument, mask_keys
from libs.mesh.home import Home
from libs.mesh.home_warehouses import warehouse_of
from libs.mesh.sink_state import parked_tables
from libs.types.tenant import KeyFrom, TenantSpec
from libs.warehouse_readers.warehouse import TableStore


@dataclass(frozen=True, slots=True)
class ComparedMesh:
    """The two sides of the comparison."""

    sources: Mapping[str, SourceDocument]
    tenants: Mapping[str, TenantSpec]
    """Those in force."""
    hops: Hops | None
    """None: nothing runs that could be waited for."""
    warehouse_of: Callable[[str], TableStore]
    """Where a tenant's tables are. Raises InvalidSettings."""
    mask_key: Callable[[str, KeyFrom], bytes]
    """A key of a tenant. Raises KeyUnusable."""
    temporary_dir: Path
    """For rows that are sorted on disk; made with the first of them."""
    require_tenant: Callable[[str], object]
    """Raises InvalidSettings where no such tenant is in force; the message has the nearest name."""
    notes: tuple[str, ...] = ()
    """Notes for a person about all findings."""
    parked: Callable[[str], Mapping[tuple[str, str], str]] = lambda _: {}
    """Why tables of a tenant wait for a human, by source and ``database.table``: none of them is compared. From outside of a
    mesh those are seen that Spark jobs report to an operator."""


def stack_compared(home: Home, documents: Documents, *, is_up: bool) -> ComparedMesh:
    """The stack of ``home``; with ``is_up`` it is waited for."""
    notes = ["the stack is not up: missing rows may wait in Kafka (`headwater up --detach`)"]
    return ComparedMesh(
        documents.sources,
        documents.tenants,
        StackHops(home, passes_parked=True) if is_up else None,
        lambda tenant: warehouse_of(home, documents, tenant),
        mask_keys(home).key,
        home.data_dir,
        documents.require_tenant,
        () if is_up else tuple(notes),
        functools.partial(parked_tables, home),
    )


def chosen_tenants(mesh: ComparedMesh, names: Iterable[str]) -> list[TenantSpec]:
    """Those of ``names``, or all, that have a sink. Raises InvalidSettings: there is none, or a name is nobody's."""
    wanted = set(names)
    for name in sorted(wanted):
        mesh.require_tenant(name)
    chosen = [
        spec for name, spec in sorted(mesh.tenants.items()) if name in (wanted or {name}) and spec.sink is not None
    ]
    if not chosen:
        named = ", ".join(sorted(wanted)) or "of any name"
        raise InvalidSettings(f"tenant {named}", ["has no sink, so there is no table to compare", *mesh.notes])
    return chosen


def temporary_folder(mesh: ComparedMesh) -> "tempfile.TemporaryDirectory[str]":
    """A folder for the time of one look."""
    return tempfile.TemporaryDirectory(prefix="check-", dir=mesh.temporary_dir)
