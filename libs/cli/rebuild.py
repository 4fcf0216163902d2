"""``headwater rebuild``: a table as its source had it at a past moment, from the log of its changes."""

from collections.abc import Sequence
from pathlib import Path

import click

from libs.cli.answer import answer, json_option
from libs.cli.home import home_option
from libs.cli.mesh_file import mesh_file_option
from libs.cli.on_the_way import interruptible, shown_on_the_way
from libs.cli.sink_view import sink_view
from libs.cli.terminal import echo, secho
from libs.mesh.home import Home
from libs.operations.rebuild import parse_moment
from libs.operations.rebuild import rebuild as rebuild_table
from libs.operations.resync import choose_table
from libs.sink_state.rebuild import Moment


@click.command()
@click.argument("tenant")
@click.argument("table")
@click.option(
    "--as-of",
    "as_of",
    required=True,
    metavar="TIME|ORDER|PLACE",
    help="The moment: a time, 2026-11-21T10:00:00+00:00 (without a zone: this machine's time); an order as `headwater status` "
    "shows it, 0.4711.3; or MySQL's gtid_executed at that moment. For a server without GTIDs: binlog.000042:157.",
)
@click.option("--into", required=True, metavar="NAME", help="Name of the new table, beside the log. It must not exist.")
@click.option("--key", multiple=True, metavar="COLUMN", help="Columns that identify a row, for a table without a key.")
@click.option(
    "--unavailable",
    multiple=True,
    metavar="COLUMN",
    help="For a source that logs parts of rows (binlog_row_image NOBLOB, MINIMAL): take a NULL of this column in an update for "
    "a value that was not logged, and keep the former one.",
)
@json_option
@mesh_file_option
@home_option
def rebuild(
    tenant: str,
    table: str,
    as_of: str,
    into: str,
    key: Sequence[str],
    unavailable: Sequence[str],
    mesh_file: Path | None,
    home: Home,
) -> None:
    """Build TENANT's TABLE as the source had it at a past moment, from its log (`mode: append`), into a new table.

    Each row is its newest change up to the moment; deletes and truncations count. The new table lies beside the log, appears
    by one commit, and can be queried by `headwater query`. No other table is written. Rows that the log lacks, because it
    begins later, are counted and reported. The stack does not have to run, and goes on if it does.

    The command starts a second Spark, which takes a gigabyte of memory meanwhile. With --mesh it runs here too, and writes
    into the warehouse that FILE names.

    \b
    Examples:
      headwater rebuild acme orders --as-of 2026-11-21T10:00:00Z --into before
      headwater rebuild acme shop.orders --as-of 0.4711.3 --into orders_4711
      headwater rebuild acme orders --into orders_4711 \\
        --as-of 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-4711
    """
    sinks = sink_view(home, mesh_file, must_run=False)
    chosen = choose_table(sinks.progress(tenant), tenant, table)
    moment = parse_moment(as_of, chosen)
    goes_on = "the table is there whole or not at all: the same command makes it, or says that its name is taken"
    with interruptible(goes_on), shown_on_the_way() as show:
        built, notes = rebuild_table(
            sinks, tenant, chosen, as_of=moment, into=into, key=key, unavailable=unavailable, on_progress=show
        )
    echo(
        f"{built.table}: {built.rows:,} row(s) as of {moment.text}, from {built.changes:,} change(s), in {built.took_s:.0f} s"
    )
    echo(
        f"against the log's end ({Moment(at_us=built.log_ends_at_us).text}): {built.same:,} as they were, "
        f"{built.changed_since:,} changed since, {built.gone_since:,} gone since, {built.come_since:,} come since"
    )
    for note in notes:
        secho(f"note: {note}", fg="yellow")
    echo(f'query it: headwater query {tenant} "SELECT * FROM {into}"')
    answer({"tenant": tenant, "as_of": moment.text, "built": built, "notes": notes})
