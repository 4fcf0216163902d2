"""``headwater version``, and ``headwater --version`` for programs."""

import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

import click

_PROJECT_FILE: Final = Path(__file__).parents[2] / "pyproject.toml"


@click.command()
def version() -> None:
    """Print the versions of Headwater and its main packages."""
    click.echo(f"headwater {project_version()}")
    for package in ("pyspark", "faust-streaming", "confluent-kafka", "pyiceberg", "duckdb"):
        try:
            click.echo(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            click.echo(f"{package} is not installed")
    click.echo(f"python {sys.version.split()[0]} on {os.uname().sysname} {os.uname().machine}")


def project_version() -> str:
    """Of Headwater itself, as pyproject.toml has it."""
    for line in _PROJECT_FILE.read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "version":
            return value.strip().strip('"')
    return "unknown"
