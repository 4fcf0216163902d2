"""The versions of tenants' documents: put into force one at a time, kept, and gone back to.

    <home>/tenants/acme.yaml                                     what is in force
    <home>/tenants/.versions/acme/0002-20260301T120000Z.yaml     what was put there, when

``headwater tenant apply`` writes here; ``list --versions`` reads. The folder of versions begins with a dot, so the watchers
of the tenants' folder pass it over. A version is kept before the document is replaced, and both are written whole or not at
all: at any moment the folder holds the old document or the new one.
"""

import datetime
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from libs.config.yaml_text import read_text
from libs.errors import InvalidSettings
from libs.mesh.documents import mask_keys, tenant_home_mistakes
from libs.mesh.home import Home
from libs.mesh.state import replace_file
from libs.operations.kept_versions import (
    TIME_FORMAT,
    TenantVersion,
    tenants_with_versions,
    version_text,
    versions,
    versions_dir,
    versions_folder,
)
from libs.operations.topic_quotas import too_many_topics
from libs.tenants.document import ParsedTenant, document_files, no_keys_checked, read_tenant
from libs.tenants.place import nearest
from libs.tenants.row_filter import condition_mistakes


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of ``apply``."""

    tenant: str
    version: TenantVersion
    file: Path
    """The document that is in force now."""
    is_changed: bool
    """False: it said so already."""
    kept: TenantVersion | None = None
    """The former document that was no version, for example edited by hand, and was kept first."""


def judged(home: Home | None, text: str, shown_as: str, mistakes: list[str]) -> ParsedTenant | None:
    """A document's text by the rules of the language, and, with a home, by the parts of that home: sources, warehouses, keys,
    room for topics.

    None where anything is wrong, with every mistake appended.
    """
    check_key = no_keys_checked if home is None else mask_keys(home).mistake
    parsed = read_tenant(
        text, file=shown_as, mistakes=mistakes, check_condition=condition_mistakes, check_key=check_key
    )
    if parsed is None or home is None:
        return parsed
    known_sources = sorted(path.stem for path in home.sources_dir.glob("*.yaml"))
    unfit = tenant_home_mistakes(parsed.spec, known_sources, home) or too_many_topics(home, parsed.spec)
    mistakes += parsed.lines.locate(unfit)
    return None if unfit else parsed


def apply_text(home: Home, text: str, *, shown_as: str, now: datetime.datetime) -> Applied:
    """Put a document into force in place of its tenant's, which stays kept as a version.

    Raises:
        InvalidSettings: the document has mistakes, all of which are listed; the one in force stays.
    """
    mistakes: list[str] = []
    parsed = judged(home, text, shown_as, mistakes)
    if parsed is None:
        raise InvalidSettings(shown_as, mistakes)
    tenant = parsed.spec.tenant
    with locked(home):
        target = _document_of(home, tenant)
        before = target.read_text(encoding="utf-8", errors="replace") if target.is_file() else None
        known = versions(home, tenant)
        newest = version_text(known[-1]) if known else None
        kept = None
        if before is not None and before not in (newest, text):
            kept = _keep(home, tenant, before, now)
            newest = before
        version = versions(home, tenant)[-1] if newest == text else _keep(home, tenant, text, now)
        if before != text:
            replace_file(target, text.encode())
    return Applied(tenant, version, target, before != text, kept)


def text_of_version(home: Home, tenant: str, number: int) -> str:
    """A version's text, as it was put into force.

    Raises:
        InvalidSettings: there is no such version.
    """
    known = versions(home, tenant)
    found = next((version for version in known if version.number == number), None)
    if found is None:
        there_are = ", ".join(str(version.number) for version in known) or "none yet"
        hint = "" if known else f"; {nearest(tenant, tenants_with_versions(home))}"
        raise InvalidSettings(f"tenant {tenant}", [f"has no version {number}; there are {there_are}{hint}"])
    return version_text(found)


def documents_of(home: Home, tenant: str) -> list[Path]:
    """Every file that holds a document of ``tenant``, and one that cannot be read and is called as it."""
    found = []
    for file, claimed in _claims(home).items():
        named = file.parent.name if file.name == "tenant.yaml" else file.stem
        if claimed == tenant or (claimed is None and named == tenant):
            found.append(file)
    return found


def _document_of(home: Home, tenant: str) -> Path:
    """The file that holds the tenant's document, good or bad; else where it shall be.

    Raises:
        InvalidSettings: that file holds another tenant's.
    """
    claims = _claims(home)
    for file, claimed in claims.items():
        if claimed == tenant:
            return file
    for file in (home.tenants_dir / f"{tenant}.yaml", home.tenants_dir / tenant / "tenant.yaml"):
        if file not in claims:
            continue
        if claims[file] is not None:
            raise InvalidSettings(
                f"tenant {tenant}", [f"{file} holds tenant {claims[file]}; give that file another name"]
            )
        return file
    return home.tenants_dir / f"{tenant}.yaml"


def _claims(home: Home) -> dict[Path, str | None]:
    """Whose document each file holds; None: it has mistakes."""
    claims: dict[Path, str | None] = {}
    for file in sorted(document_files(home.tenants_dir)):
        text = read_text(file, shown_as=str(file), mistakes=[])
        parsed = None if text is None else read_tenant(text, mistakes=[])
        claims[file] = None if parsed is None else parsed.spec.tenant
    return claims


def _keep(home: Home, tenant: str, text: str, now: datetime.datetime) -> TenantVersion:
    known = versions(home, tenant)
    number = known[-1].number + 1 if known else 1
    file = versions_folder(home, tenant) / f"{number:04}-{now.strftime(TIME_FORMAT)}.yaml"
    replace_file(file, text.encode())
    return TenantVersion(tenant=tenant, number=number, applied_at=now, file=str(file))


@contextmanager
def locked(home: Home) -> Iterator[None]:
    """One change of documents at a time: two that apply at once must not take the same number."""
    folder = versions_dir(home)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
