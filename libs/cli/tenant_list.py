"""``headwater tenant list``: the tenants, or the versions of their documents."""

import difflib
import os
from collections.abc import Sequence
from pathlib import Path

import click

from libs.cli.answer import output_options, print_document
from libs.cli.console import print_columns
from libs.cli.home import home_option
from libs.cli.mesh_file import mesh_file_option
from libs.cli.terminal import echo, echo_lines
from libs.errors import InvalidSettings
from libs.mesh.documents import read_documents
from libs.mesh.home import Home, is_initialised
from libs.mesh.mesh_settings import mesh_settings
from libs.mesh.tenant_objects import objects_in_cluster
from libs.operations.kept_versions import TenantVersion, tenants_with_versions, version_text, versions
from libs.operations.tenant_list import ListedTenant, list_config_maps, list_tenants


@click.command(name="list")
@click.argument("tenant", required=False)
@click.option("--versions", "show_versions", is_flag=True, help="List the applied versions, with their times.")
@click.option(
    "--diff", "diff", nargs=2, type=int, help="Show the differences between two versions of TENANT's document."
)
@output_options
@mesh_file_option
@home_option
def list_command(
    tenant: str | None,
    show_versions: bool,
    diff: tuple[int, int] | None,
    output: str,
    mesh_file: Path | None,
    home: Home,
) -> None:
    """List the tenants, or the versions of their documents.

    With --mesh the tenants are the ConfigMaps that kubectl lists, each with its state; FILE needs `kubernetes: {}`.

    \b
    Examples:
      headwater tenant list
      headwater tenant list acme --versions
      headwater tenant list acme --diff 2 3
      headwater tenant list --mesh mesh.yaml
    """
    if mesh_file is not None:
        if show_versions or diff is not None:
            raise click.UsageError("--mesh does not go with --versions and --diff: Kubernetes keeps no versions")
        settings = mesh_settings(mesh_file, os.environ)
        if settings.kubernetes is None:
            raise InvalidSettings(str(mesh_file), ["kubernetes: is missing: {} asks kubectl in all namespaces"])
        objects = objects_in_cluster(settings.kubernetes, "or list the tenants by kubectl")
        listed = [each for each in list_config_maps(objects) if tenant in (None, each.tenant)]
        _print_tenants(listed, output, is_elsewhere=True)
        return
    if not is_initialised(home):
        raise InvalidSettings(str(home.root), ["is no Headwater home: run `headwater init`, or name one with --home"])
    if diff is not None:
        if tenant is None:
            raise click.UsageError("--diff needs a tenant")
        _print_difference(home, tenant, *diff)
    elif show_versions:
        names = [tenant] if tenant else tenants_with_versions(home)
        _print_versions([version for name in names for version in versions(home, name)], output)
    else:
        listed = [each for each in list_tenants(home, read_documents(home)) if tenant in (None, each.tenant)]
        _print_tenants(listed, output)


def _print_versions(found: Sequence[TenantVersion], output: str) -> None:
    if print_document(found, output):
        return
    if not found:
        echo("no versions yet: `headwater tenant apply FILE` keeps one each time")
        return
    print_columns(
        ("tenant", "version", "applied at (UTC)", "file"),
        [(item.tenant, str(item.number), f"{item.applied_at:%Y-%m-%d %H:%M:%S}", item.file) for item in found],
    )


def _print_difference(home: Home, tenant: str, first: int, second: int) -> None:
    known = {version.number: version for version in versions(home, tenant)}
    missing = [f"has no version {number}" for number in (first, second) if number not in known]
    if missing:
        there_are = ", ".join(map(str, known)) or "none yet"
        raise InvalidSettings(f"tenant {tenant}", [f"{mistake}; there are {there_are}" for mistake in missing])
    old, new = (version_text(known[number]).splitlines(keepends=True) for number in (first, second))
    for line in difflib.unified_diff(old, new, f"{tenant} version {first}", f"{tenant} version {second}"):
        echo_lines(line, nl=not line.endswith("\n"))


def _print_tenants(listed: Sequence[ListedTenant], output: str, *, is_elsewhere: bool = False) -> None:
    if print_document(listed, output):
        return
    in_force = "no tenant-operator has reported" if is_elsewhere else "in force"
    if not listed:
        echo("no tenants yet: `headwater tenant apply FILE`")
        return
    print_columns(
        ("tenant", "version", "sources", "sink", "file", "state"),
        [
            (
                item.tenant,
                "" if is_elsewhere else "by hand" if item.version is None else str(item.version),
                ", ".join(item.sources),
                item.sink,
                item.file,
                f"refused: {item.mistakes[0]}" if item.mistakes else item.state or in_force,
            )
            for item in listed
        ],
    )
