"""``headwater resync``: build a doubted table anew from the source, and swap it in."""

import click

from libs.cli.home import home_option
from libs.cli.on_the_way import told_on_the_way
from libs.local.home import Home
from libs.local.resync import begin, carry_out, choose_table, forget
from libs.local.sink_state import sink_progress
from libs.local.stack import load_documents
from libs.local.state import running_state

_DEFAULT_TIMEOUT_S = 3_600.0


@click.command()
@click.argument("tenant")
@click.argument("table")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0),
    default=_DEFAULT_TIMEOUT_S,
    show_default=True,
    help="Seconds to wait. What is under way then goes on, and the next call takes it up.",
)
@click.option(
    "--give-up", "is_giving_up", is_flag=True, help="Forget the one that has begun; the table stays as it is."
)
@home_option
def resync(tenant: str, table: str, timeout_s: float, is_giving_up: bool, home: Home) -> None:
    """Build TENANT's TABLE anew from the source's rows, and swap it in.

    The reader copies the table once more (an incremental snapshot: nothing at the source is locked or stopped, and every
    tenant of the table gets the rows). When the copy has arrived, the tenant's sink builds the table from it and from all that
    was committed meanwhile, aside, and swaps it in by one commit. Until then queries see the table as it was; nothing is lost.
    Rows that the source does not have go; with `deletes: soft` they stay, marked, and in a history their versions end. Of a log
    nothing is copied: it has each change once again that its topic tells, and keeps those that Kafka has no more. The tenant's
    other tables wait while the table is built.

    May be killed at any moment: call it again. `headwater check TENANT` tells whether a table is worth it, and
    `check --repair` is enough where a few rows differ. Exits with 1 where the table cannot be built; it is then as it was.

    \b
    Examples:
      headwater resync acme orders
      headwater resync acme shop.orders --timeout 600
      headwater resync acme orders --give-up
    """
    running_state(home)
    documents = load_documents(home)
    documents.require_tenant(tenant)
    if is_giving_up:
        _give_up(home, tenant, table)
        return
    begun, is_taken_up = begin(home, documents, tenant, table)
    if is_taken_up:
        click.echo(f"{begun.table}: one has begun already ({begun.doing}): taking it up")
    with told_on_the_way() as show:
        answer = carry_out(home, tenant, begun, timeout_s=timeout_s, on_progress=show)
    if answer.refused_because:
        click.echo(f"{begun.table} was not built, and is as it was: {answer.refused_because}", err=True)
        raise click.exceptions.Exit(1)
    took_s = (answer.at_us - begun.begun_at_us) / 1e6
    click.echo(
        f"{begun.table}: built anew from {answer.events:,} event(s), swapped in {took_s:.0f} s after the beginning"
    )
    click.echo(f"compare it with the source: headwater check {tenant}")


def _give_up(home: Home, tenant: str, table: str) -> None:
    chosen = choose_table(sink_progress(home, tenant), tenant, table)
    given_up = forget(home, tenant, chosen.topic)
    if given_up is None:
        click.echo(f"{chosen.table}: none has begun")
    elif given_up.to_offsets is None:
        click.echo(f"{chosen.table}: given up; the table stays as it is")
        click.echo(f"a copy may be on its way still: headwater signal {chosen.source} stop-snapshot {chosen.table}")
    else:
        click.echo(f"{chosen.table}: given up; the sink may have been asked already, and then still swaps the table")
