"""``headwater version``."""

import os
import sys
from importlib import metadata

import click

from libs.local.plan import IMPORT_ROOT


@click.command()
def version() -> None:
    """Print the versions of Headwater and of what it runs on."""
    click.echo(f"headwater {_project_version()}")
    for package in ("pyspark", "faust-streaming", "confluent-kafka", "pyiceberg", "duckdb"):
        try:
            click.echo(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            click.echo(f"{package} is not installed")
    click.echo(f"python {sys.version.split()[0]} on {os.uname().sysname} {os.uname().machine}")


def _project_version() -> str:
    for line in (IMPORT_ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "version":
            return value.strip().strip('"')
    return "unknown"
