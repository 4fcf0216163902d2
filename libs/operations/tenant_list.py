"""The tenants of a home or of a cluster, one line each: ``headwater tenant list``."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from libs.mesh.documents import Documents
from libs.mesh.home import Home
from libs.mesh.tenant_objects import tenant_of
from libs.operations.kept_versions import version_text, versions
from libs.tenants.config_map import REFUSED, TenantObject
from libs.tenants.document import document_files, read_tenant
from libs.types.tenant import TenantSpec


class ListedTenant(msgspec.Struct, frozen=True, kw_only=True):
    """A document in the tenants' folder."""

    tenant: str
    """Of a document with mistakes, the name that its file says."""
    file: str
    version: int | None = None
    """Which kept version it is; None: it was edited by hand since."""
    sources: tuple[str, ...] = ()
    sink: str = ""
    """``iceberg mirror``; ``topics only``."""
    mistakes: tuple[str, ...] = ()
    """Why the document is not in force."""
    state: str = ""
    """In Kubernetes: as tenant_operator writes it to the ConfigMap; empty: none has yet."""


def list_tenants(home: Home, documents: Documents) -> list[ListedTenant]:
    """Every document, good or bad, by tenant."""
    listed = []
    files = {str(file.relative_to(home.tenants_dir)): file for file in document_files(home.tenants_dir)}
    for name, spec in documents.tenants.items():
        file = files.pop(documents.tenant_lines[name].file, None)
        listed.append(
            ListedTenant(
                tenant=name,
                file=documents.tenant_lines[name].file,
                version=None if file is None else _version_in(home, name, file),
                sources=tuple(selection.name for selection in spec.sources),
                sink=_sink_of(spec),
            )
        )
    for shown_as, file in files.items():
        prefix = f"{home.tenants_dir}/{shown_as}:"
        mistakes = tuple(item for item in documents.tenant_mistakes if item.startswith(prefix))
        name = file.parent.name if file.name == "tenant.yaml" else file.stem
        listed.append(ListedTenant(tenant=name, file=shown_as, mistakes=mistakes))
    return sorted(listed, key=lambda item: (item.tenant, item.file))


def list_config_maps(found: Sequence[TenantObject]) -> list[ListedTenant]:
    """Every tenant's ConfigMap, by tenant; ``file`` is its place."""
    listed = []
    for each in found:
        parsed = None if each.text is None else read_tenant(each.text, mistakes=[])
        spec = None if parsed is None else parsed.spec
        is_refused = spec is None or each.state == REFUSED
        why = each.message or f"ConfigMap {each.place} has no good document"
        listed.append(
            ListedTenant(
                tenant=tenant_of(each),
                file=each.place,
                sources=() if spec is None else tuple(selection.name for selection in spec.sources),
                sink="" if spec is None else _sink_of(spec),
                mistakes=tuple(_mistakes_in(why)) if is_refused else (),
                state=each.state or "",
            )
        )
    return sorted(listed, key=lambda item: (item.tenant, item.file))


def _mistakes_in(message: str) -> list[str]:
    """As tenant_operator lists them, a line each; else the message."""
    return [line.removeprefix("- ") for line in message.splitlines() if line.startswith("- ")] or [message]


def _sink_of(spec: TenantSpec) -> str:
    return "topics only" if spec.sink is None else f"{spec.sink.warehouse} {spec.sink.mode.value}"


def _version_in(home: Home, tenant: str, file: Path) -> int | None:
    known = versions(home, tenant)
    text = file.read_text(encoding="utf-8")
    return next((version.number for version in reversed(known) if version_text(version) == text), None)
