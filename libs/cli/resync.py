"""``headwater resync``: build a table again from the source, and swap it in."""

from pathlib import Path

import click

from libs.cli.answer import answer, json_option
from libs.cli.home import home_option
from libs.cli.mesh_file import mesh_file_option
from libs.cli.on_the_way import interruptible, shown_on_the_way
from libs.cli.sink_view import sink_view
from libs.cli.terminal import echo
from libs.mesh.home import Home
from libs.mesh.resync_notes import forget
from libs.mesh.sink_view import SinkView
from libs.operations.resync import begin, carry_out, choose_table

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
    help="Seconds to wait. The resync goes on after that, and the next call waits for it again.",
)
@click.option(
    "--give-up", "is_giving_up", is_flag=True, help="Give up a resync that has begun; the table stays as it is."
)
@json_option
@mesh_file_option
@home_option
def resync(tenant: str, table: str, timeout_s: float, is_giving_up: bool, mesh_file: Path | None, home: Home) -> None:
    """Build TENANT's TABLE again from the source's rows, and swap it in.

    The reader copies the table by an incremental snapshot: nothing at the source is locked or stopped, and every tenant of
    the table gets the rows. The tenant's sink then builds the table from the copy and from all later changes, and swaps it in
    by one commit. Until then queries see the table as it was. The tenant's other tables wait while the table is built.

    Rows that the source lacks are removed; with `deletes: soft` they stay, marked, and in a history their versions end. A log
    is built from its topic instead: it has each change of the topic once, and keeps entries that Kafka has deleted.

    The command may be killed at any moment: run it again. Run `headwater check TENANT` first: where a few rows differ,
    `check --repair` is enough. Exits with 1 if the table cannot be built; it is then as it was.

    With --mesh the command reads in the warehouse how far the table is, and hears the outcome from the tenant's Spark job by
    Kafka. FILE needs `warehouses`, and says where the documents are (docs/kubernetes.md).

    \b
    Examples:
      headwater resync acme orders
      headwater resync acme shop.orders --timeout 600
      headwater resync acme orders --give-up
      headwater resync acme orders --mesh mesh.yaml
    """
    sinks = sink_view(home, mesh_file)
    if is_giving_up:
        _give_up(sinks, tenant, table)
        return
    goes_on = "the resync goes on: the same command waits for it again, with --give-up it is given up"
    with interruptible(goes_on), shown_on_the_way() as show:
        begun, is_taken_up = begin(sinks, tenant, table)
        if is_taken_up:
            echo(f"{begun.table}: a resync has begun already ({begun.doing}): continuing it")
        ended = carry_out(sinks, tenant, begun, timeout_s=timeout_s, on_progress=show)
    head = {"tenant": tenant, "table": begun.table, "topic": begun.topic}
    if ended.refused_because:
        echo(f"{begun.table} was not built, and is unchanged: {ended.refused_because}", err=True)
        answer({**head, "refused_because": ended.refused_because})
        raise click.exceptions.Exit(1)
    took_s = (ended.at_us - begun.begun_at_us) / 1e6
    echo(f"{begun.table}: built again from {ended.events:,} event(s), swapped in {took_s:.0f} s after the start")
    echo(f"compare it with the source: headwater check {tenant}")
    answer({**head, "events": ended.events, "took_s": took_s})


def _give_up(sinks: SinkView, tenant: str, table: str) -> None:
    sinks.spec(tenant)
    chosen = choose_table(sinks.progress(tenant), tenant, table)
    given_up = forget(sinks.notes_dir, tenant, chosen.topic)
    answer({"tenant": tenant, "table": chosen.table, "topic": chosen.topic, "is_given_up": given_up is not None})
    if given_up is None:
        echo(f"{chosen.table}: no resync has begun")
    elif given_up.to_offsets is None:
        echo(f"{chosen.table}: given up; the table stays as it is")
        echo(f"to stop its copy, if it is still running: headwater signal {chosen.source} stop-snapshot {chosen.table}")
    else:
        echo(f"{chosen.table}: given up; if the sink has the request already, it still swaps the table")
