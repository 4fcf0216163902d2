"""The versions of Headwater, its main packages and the machine."""

import os
import sys
from importlib import metadata
from typing import Final

from libs.setup.installation import IMPORT_ROOT, is_checkout

_PROJECT_FILE: Final = IMPORT_ROOT / "pyproject.toml"
_PACKAGES: Final = ("pyspark", "faust-streaming", "confluent-kafka", "pyiceberg", "duckdb")


def project_version() -> str:
    """Of Headwater itself: pyproject.toml has it in a checkout, the wheel's record elsewhere."""
    if not is_checkout():
        try:
            return metadata.version("headwater")
        except metadata.PackageNotFoundError:
            return "unknown"
    for line in _PROJECT_FILE.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "version":
            return value.strip().strip('"')
    return "unknown"


def versions() -> dict[str, str]:
    """By name; "not installed" for a package that is missing."""
    found = {"headwater": project_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    system = os.uname()
    return {**found, "python": sys.version.split()[0], "system": f"{system.sysname} {system.release} {system.machine}"}
