"""``headwater retry``: try parked tables again now."""

import click

from libs.cli.answer import answer, json_option
from libs.cli.mesh import mesh_options
from libs.cli.terminal import echo, echo_lines
from libs.mesh.mesh import Mesh, require_tenant
from libs.mesh.parked import sink_tables
from libs.operations.retry import Chosen, ask_for_retry, choose_parked


@click.command()
@click.argument("tenant")
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@json_option
@mesh_options
def retry(tenant: str, tables: tuple[str, ...], mesh: Mesh) -> None:
    """Try TENANT's parked tables again now: all of them, or each TABLE named.

    The sink parks a table that the warehouse refuses, and tries it again after 1, 2, 4 … 60 minutes. `headwater status` shows
    the reason and the remedy. After you have removed the cause, this command spares the rest of the pause. The sink reads the
    waiting events from where it parked the table: none is lost or written twice. A table that is refused again stays parked,
    and its pauses begin again with a minute.

    The request is durable when the command returns: a sink that is down acts on it when it starts. The command does not wait
    for the result, which `headwater status` shows. Exits with 1 if none of the named TABLEs is parked. With --mesh the command
    cannot know which tables are parked: the sink tries those that are, of all or of the named ones.

    \b
    Examples:
      headwater retry acme
      headwater retry acme orders shop.customers
      headwater retry acme --mesh kafka.yaml
    """
    require_tenant(mesh, tenant)
    chosen = choose_parked(sink_tables(mesh, tenant), tenant, tables)
    for table in chosen.not_parked:
        echo(f"{table.table} is not parked: none of its events wait", err=True)
    for table in chosen.catching_up:
        echo(f"{table.table} is no longer parked: its waiting events are being read", err=True)
    answer(
        {
            "tenant": tenant,
            "asked": [each.table for each in chosen.parked],
            "not_parked": [each.table for each in chosen.not_parked],
            "catching_up": [each.table for each in chosen.catching_up],
        }
    )
    if chosen.parked:
        ask_for_retry(mesh.kafka, tenant, sorted({each.topic for each in chosen.parked}))
        echo_lines(_asked(chosen, tenant))
    elif tables:
        raise click.exceptions.Exit(1)
    elif not chosen.catching_up:
        echo(f"no table of {tenant} is parked")


def _asked(chosen: Chosen, tenant: str) -> str:
    names = ", ".join(each.table for each in chosen.parked)
    if chosen.is_seen:
        return (
            f"the sink will try {len(chosen.parked)} parked table(s) of {tenant} now: {names}\n"
            "for the result: headwater status"
        )
    return f"the sink will try those of {len(chosen.parked)} table(s) of {tenant} now that are parked: {names}"
