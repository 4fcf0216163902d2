"""The kept versions of tenants' documents, as ``headwater tenant apply`` leaves them (``tenant_versions``)."""

import datetime
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from libs.mesh.home import Home

VERSIONS_FOLDER: Final = ".versions"
_VERSION_FILE: Final = re.compile(r"(\d{4,})-(\d{8}T\d{6}Z)\.yaml")
TIME_FORMAT: Final = "%Y%m%dT%H%M%SZ"


class TenantVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A document as it was put into force."""

    tenant: str
    number: int
    """From 1, in order."""
    applied_at: datetime.datetime
    """In UTC."""
    file: str


def versions(home: Home, tenant: str) -> list[TenantVersion]:
    """The kept versions of one tenant, oldest first."""
    folder = versions_folder(home, tenant)
    found = []
    for file in folder.glob("*.yaml") if folder.is_dir() else ():
        match = _VERSION_FILE.fullmatch(file.name)
        if match is not None:
            at = datetime.datetime.strptime(match[2], TIME_FORMAT).replace(tzinfo=datetime.UTC)
            found.append(TenantVersion(tenant=tenant, number=int(match[1]), applied_at=at, file=str(file)))
    return sorted(found, key=lambda version: version.number)


def version_text(version: TenantVersion) -> str:
    """The version's text."""
    return Path(version.file).read_text(encoding="utf-8")


def tenants_with_versions(home: Home) -> Sequence[str]:
    """Every tenant that a document was ever applied of."""
    folder = versions_dir(home)
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []


def versions_folder(home: Home, tenant: str) -> Path:
    """Where the kept versions of one tenant are; it need not exist."""
    return versions_dir(home) / tenant


def versions_dir(home: Home) -> Path:
    """Where the kept versions of all tenants are."""
    return home.tenants_dir / VERSIONS_FOLDER
