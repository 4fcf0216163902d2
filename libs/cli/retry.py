"""``headwater retry``: have parked tables tried again now."""

from collections.abc import Sequence

import click

from libs.cli.mesh import mesh_options
from libs.cli.tail import choose_topic
from libs.local.mesh import Mesh, require_tenant
from libs.local.retry import ask_for_retry, choose_parked
from libs.local.sink_state import sink_progress
from libs.local.tenant_topics import delivered_topics
from libs.types.warehouse import TableProgress


@click.command()
@click.argument("tenant")
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@mesh_options
def retry(tenant: str, tables: tuple[str, ...], mesh: Mesh) -> None:
    """Have TENANT's parked tables tried again now: all of them, or each TABLE named.

    The sink parks a table that the warehouse refuses, and tries it again after 1, 2, 4 … 60 minutes; `headwater status` has the
    reason and the remedy. Once it is mended, this spares the rest of the pause. What waits is then read from where the table
    was parked, and nothing is lost or written twice. A table that is refused again stays parked, and its pauses begin with a
    minute anew.

    The request is durable when the command returns: a sink that is down just now acts on it when it starts. It does not wait
    for what becomes of it: `headwater status` shows that. Exits with 1 where no TABLE that was named is parked. With --mesh
    nobody here knows which are parked: those that are, of all or of the named ones, are tried.

    \b
    Examples:
      headwater retry acme
      headwater retry acme orders shop.customers
      headwater retry acme --mesh kafka.yaml
    """
    require_tenant(mesh, tenant)
    if mesh.home is None:
        _ask_elsewhere(mesh, tenant, tables)
        return
    chosen = choose_parked(sink_progress(mesh.home, tenant), tenant, tables)
    for table in chosen.not_parked:
        click.echo(f"{table.table} is not parked: nothing of it waits", err=True)
    for table in chosen.catching_up:
        click.echo(f"{table.table} is not parked any more: what waited is being read", err=True)
    if chosen.parked:
        ask_for_retry(mesh.kafka, tenant, [each.topic for each in chosen.parked])
        click.echo(
            f"asked for {len(chosen.parked)} parked table(s) of {tenant} to be tried now: {_named(chosen.parked)}\n"
            "what becomes of it: headwater status"
        )
    elif tables:
        raise click.exceptions.Exit(1)
    elif not chosen.catching_up:
        click.echo(f"no table of {tenant} is parked")


def _ask_elsewhere(mesh: Mesh, tenant: str, tables: Sequence[str]) -> None:
    topics = delivered_topics(mesh.kafka, tenant)
    chosen = [choose_topic(tenant, table, topics) for table in tables] or topics
    if not chosen:
        click.echo(f"no table of {tenant} has a topic yet")
        return
    ask_for_retry(mesh.kafka, tenant, [each.name for each in chosen])
    click.echo(f"asked for those of {len(chosen)} table(s) of {tenant} that are parked to be tried now")


def _named(tables: Sequence[TableProgress]) -> str:
    return ", ".join(each.table for each in tables)
