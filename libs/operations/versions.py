"""The versions of Headwater, its main packages and the machine."""

import os
import sys
from typing import Final

from libs.setup.installation import IMPORT_ROOT, is_checkout

_PROJECT_FILE: Final = IMPORT_ROOT / "pyproject.toml"
_PACKAGES: Final = ("pyspark", "faust-streaming", "confluent-kafka", "pyiceberg", "duckdb")


def project_version() -> str:
    """Of Headwater itself: pyproject.toml has it in a checkout, the wheel's record elsewhere."""
    if not is_checkout():
        return _installed("headwater") or "unknown"
    for line in _PROJECT_FILE.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "version":
            return value.strip().strip('"')
    return "unknown"


def versions() -> dict[str, str]:
    """By name; "not installed" for a package that is missing."""
    found = {"headwater": project_version()}
    for package in _PACKAGES:
        found[package] = _installed(package) or "not installed"
    system = os.uname()
    return {**found, "python": sys.version.split()[0], "system": f"{system.sysname} {system.release} {system.machine}"}


def _installed(package: str) -> str | None:
    """Its version; None: not installed."""
    from importlib import metadata  # every command prints no version; it costs each 0.03 CPU s

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
