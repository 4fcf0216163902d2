"""``headwater check``: are source and tenants' tables equal, row by row, every column?"""

import sys
import time

import click
from rich.console import Console

from libs.cli.home import home_option
from libs.local.check.compare import MISSING, Difference
from libs.local.check.run import DEFAULT_TIMEOUT_S, CheckReport, TableCheck, check
from libs.local.home import Home
from libs.local.readable import shorten
from libs.local.stack import load_documents
from libs.local.state import holder


@click.command(name="check")
@click.argument("tenant", required=False)
@click.option(
    "--limit", type=click.IntRange(0), default=10, show_default=True, help="Differences shown for each table."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0),
    default=DEFAULT_TIMEOUT_S,
    show_default=True,
    help="Seconds to wait until the tables have caught up with the source.",
)
@home_option
def check_command(tenant: str | None, limit: int, timeout_s: float, home: Home) -> None:
    """Compare the source with TENANT's tables (default: every tenant's), row by row, every column.

    First it waits until everything committed so far has arrived. Row filters are evaluated by MySQL itself and masks
    computed anew, so a fault of the router shows. The source should be quiet meanwhile. Exits with 1 on any difference.

    \b
    Examples:
      headwater check
      headwater check globex --limit 50
    """
    console = Console(stderr=True)
    started_s = time.monotonic()
    documents = load_documents(home)
    is_up = holder(home) is not None
    if sys.stderr.isatty():
        with console.status("looking …") as line:
            report = check(
                home, documents, tenant, is_up=is_up, limit=limit, timeout_s=timeout_s, on_progress=line.update
            )
    else:
        report = check(home, documents, tenant, is_up=is_up, limit=limit, timeout_s=timeout_s)
    print_report(report, time.monotonic() - started_s)
    if report.differences:
        raise click.exceptions.Exit(1)


def print_report(report: CheckReport, took_s: float) -> None:
    """Every table in one line, the differences under it, and the sum."""
    for note in report.notes:
        click.secho(f"note: {note}", fg="yellow")
    for table in report.tables:
        click.echo(_table_line(table))
        for fault in table.faults:
            click.secho(f"    {fault}", fg="red")
        for difference in table.comparison.first:
            click.secho(f"    {difference_line(table, difference)}", fg="red")
        left_out = table.comparison.rows_different - len({difference.key for difference in table.comparison.first})
        if left_out > 0:
            click.echo(f"    … and {left_out:,} more row(s): see --limit")
    colour = "red" if report.differences else "green"
    click.secho(
        f"{report.rows_compared:,} rows ({report.cells_compared:,} values) compared in {took_s:.1f} s: "
        f"{report.differences:,} difference(s)",
        fg=colour,
    )
    if report.differences and report.source_moved:
        click.secho("the source was written to meanwhile: repeat this when it is quiet", fg="yellow")


def _table_line(table: TableCheck) -> str:
    verdict = click.style("equal", fg="green") if table.is_equal else click.style("DIFFERENT", fg="red")
    where = f" where {table.table.where}" if table.table.where else ""
    masked = [column.name for column in table.table.columns if column.mask is not None]
    masks = f", masked: {', '.join(masked)}" if masked else ""
    return (
        f"{table.tenant:<12} {table.table.table_id!s:<28} {table.comparison.rows_compared:>10,} rows x "
        f"{len(table.columns):>2} columns  {verdict}{where}{masks}"
    )


def difference_line(table: TableCheck, difference: Difference) -> str:
    """One difference, with its key and both values."""
    key = ", ".join(f"{name}={shorten(value)}" for name, value in zip(table.table.key, difference.key, strict=False))
    if difference.source is MISSING:
        return f"{key or shorten(difference.warehouse)}: is in the warehouse, not in the source"
    if difference.warehouse is MISSING:
        return f"{key or shorten(difference.source)}: is in the source, not in the warehouse"
    return f"{key}: {difference.column}: source {shorten(difference.source)}, warehouse {shorten(difference.warehouse)}"
