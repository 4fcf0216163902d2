"""``headwater retry``: have parked tables tried again now."""

from collections.abc import Sequence

import click

from libs.cli.home import home_option
from libs.local.documents import read_documents
from libs.local.home import Home
from libs.local.plan import kafka_address
from libs.local.retry import ask_for_retry, choose_parked
from libs.local.sink_state import sink_progress
from libs.local.state import read_ports, running_state
from libs.types.warehouse import TableProgress


@click.command()
@click.argument("tenant")
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@home_option
def retry(tenant: str, tables: tuple[str, ...], home: Home) -> None:
    """Have TENANT's parked tables tried again now: all of them, or each TABLE named.

    The sink parks a table that the warehouse refuses, and tries it again after 1, 2, 4 … 60 minutes; `headwater status` has the
    reason and the remedy. Once it is mended, this spares the rest of the pause. What waits is then read from where the table
    was parked, and nothing is lost or written twice. A table that is refused again stays parked, and its pauses begin with a
    minute anew.

    The request is durable when the command returns: a sink that is down just now acts on it when it starts. It does not wait
    for what becomes of it: `headwater status` shows that. Exits with 1 where no TABLE that was named is parked.

    \b
    Examples:
      headwater retry acme
      headwater retry acme orders shop.customers
    """
    running_state(home)
    read_documents(home).require_tenant(tenant)
    chosen = choose_parked(sink_progress(home, tenant), tenant, tables)
    for table in chosen.not_parked:
        click.echo(f"{table.table} is not parked: nothing of it waits", err=True)
    for table in chosen.catching_up:
        click.echo(f"{table.table} is not parked any more: what waited is being read", err=True)
    if chosen.parked:
        ask_for_retry(kafka_address(read_ports(home)), tenant, chosen.parked)
        click.echo(
            f"asked for {len(chosen.parked)} parked table(s) of {tenant} to be tried now: {_named(chosen.parked)}\n"
            "what becomes of it: headwater status"
        )
    elif tables:
        raise click.exceptions.Exit(1)
    elif not chosen.catching_up:
        click.echo(f"no table of {tenant} is parked")


def _named(tables: Sequence[TableProgress]) -> str:
    return ", ".join(each.table for each in tables)
