"""``headwater erase``: remove everything that Headwater holds of one tenant."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from libs.cli.console import PlainConsole, plain_table, print_table
from libs.cli.home import home_option
from libs.cli.mesh_file import mesh_file_option
from libs.cli.mesh_view import cluster_view
from libs.cli.on_the_way import interruptible, shown_on_the_way
from libs.cli.terminal import echo, echo_lines, is_terminal, secho
from libs.mesh.home import Home
from libs.operations.erase.carry_out import ErasureReport, carry_out, look, unfinished
from libs.operations.erase.cluster_places import ClusterPlaces
from libs.operations.erase.held import Held
from libs.operations.erase.home_places import HomePlaces
from libs.operations.erase.places import Erasure, Places
from libs.stack.lifecycle import load_documents
from libs.tenants.place import nearest

_DEFAULT_TIMEOUT_S = 300.0
_UNBROKEN: Final = 1_000
"""A width in which no line is broken: off a terminal."""


@click.command()
@click.argument("tenant")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="List everything that would be removed; change nothing.")
@click.option(
    "--yes", "confirmed", metavar="NAME", help="The tenant's name again; the command then does not ask for it."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0),
    default=_DEFAULT_TIMEOUT_S,
    show_default=True,
    help="Seconds to wait until router and sink have released the tenant.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON document. Needs --yes or --dry-run.")
@mesh_file_option
@home_option
def erase(
    tenant: str,
    is_dry_run: bool,
    confirmed: str | None,
    timeout_s: float,
    as_json: bool,
    mesh_file: Path | None,
    home: Home,
) -> None:
    """Remove everything that Headwater holds of TENANT, for good: document, topics, tables, state.

    The document and its kept versions go first. When router and sink have released the tenant, these follow: its topics,
    consumer groups and Kafka user; its tables in every warehouse with all their files and old snapshots; the sink's checkpoint
    and state; progress reports. Then the command looks at every place again. Other tenants are served meanwhile. The stack
    must run.

    The command lists data that it cannot remove: the source's changes topic, which tenants share, until its retention; keys
    of masks, which belong to their owner; backups. An erasure cannot be undone.

    With --mesh the command deletes TENANT's ConfigMap by kubectl, marked so that topics and tables go too. The operator
    removes them, and the command looks at every place again (docs/kubernetes.md).

    The command may be killed at any moment: run it again. Exits with 1 if something is left, with 2 if the name was typed
    wrong or Headwater holds nothing of the tenant.

    \b
    Examples:
      headwater erase acme --dry-run
      headwater erase acme --yes acme
      headwater erase acme --mesh mesh.yaml
    """
    if as_json and not is_dry_run and confirmed is None:
        raise click.UsageError("--json cannot ask for confirmation: give --yes NAME, or --dry-run")
    places: Places = (
        HomePlaces(home, load_documents(home)) if mesh_file is None else ClusterPlaces(cluster_view(mesh_file))
    )
    erasure = look(places, tenant)
    if not erasure.held:
        raise click.UsageError(f"tenant {tenant}: Headwater holds nothing of it; {nearest(tenant, places.tenants)}")
    if is_dry_run:
        _print_dry_run(places, erasure, as_json)
        return
    if not as_json:
        if unfinished(places.notes_dir, tenant) is not None:
            echo(f"tenant {tenant}: an erasure has begun already: taking it up")
        print_held(erasure.held)
    if confirmed is None:
        confirmed = click.prompt(f"type the tenant's name to remove all of this, for good ({tenant})", default="")
    if confirmed != tenant:
        raise click.UsageError(f"{confirmed!r} is not {tenant!r}: nothing was changed")
    goes_on = "the erasure has begun, and nothing goes on with it: the same command takes it up"
    with interruptible(goes_on), shown_on_the_way() as show:
        report = carry_out(places, erasure, timeout_s=timeout_s, on_progress=show)
    _print_report(report, as_json)
    if report.left:
        raise click.exceptions.Exit(1)


def print_held(held: Sequence[Held], console: Console | None = None) -> None:
    """A line each; in a narrow terminal long names take several, and sizes stay whole."""
    table = plain_table("", "kind", "name", "counts", folded=("kind", "name"))
    table.show_header = False
    for each in held:
        counts = [
            *([f"{each.records:,} record(s)"] if each.records is not None else []),
            *([_size(each.bytes)] if each.bytes is not None else []),
        ]
        table.add_row("", escape(each.kind), escape(each.name), ", ".join(counts))
    print_table(console or PlainConsole(width=None if is_terminal() else _UNBROKEN, highlight=False), table)


def _print_dry_run(places: Places, erasure: Erasure, as_json: bool) -> None:
    stays = places.stays(erasure)
    if as_json:
        document = {"tenant": erasure.tenant, "held": erasure.held, "stays": stays}
        echo_lines(msgspec.json.format(msgspec.json.encode(document)))
        return
    echo(f"tenant {erasure.tenant}: this would go")
    print_held(erasure.held)
    _print_stays(stays)


def _print_report(report: ErasureReport, as_json: bool) -> None:
    if as_json:
        echo_lines(msgspec.json.format(msgspec.json.encode(report)))
        return
    if report.left:
        secho(f"tenant {report.tenant}: this is still there; erase again", fg="red")
        print_held(report.left)
    total = sum(each.bytes or 0 for each in report.removed)
    colour = "red" if report.left else "green"
    secho(
        f"tenant {report.tenant}: {len(report.removed)} thing(s) removed, {_size(total)}; looked for again: "
        f"{len(report.left)} left",
        fg=colour,
    )
    _print_stays(report.stays)


def _print_stays(stays: Sequence[str]) -> None:
    echo("not removed by this command:")
    for each in stays:
        echo(f"  - {each}")


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 100_000 else f"{size_bytes / 1e3:,.1f} kB"
