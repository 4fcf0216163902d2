"""The versions of Headwater, its main packages and the machine."""

import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

_PROJECT_FILE: Final = Path(__file__).parents[2] / "pyproject.toml"
_PACKAGES: Final = ("pyspark", "faust-streaming", "confluent-kafka", "pyiceberg", "duckdb")


def project_version() -> str:
    """Of Headwater itself, as pyproject.toml has it."""
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
