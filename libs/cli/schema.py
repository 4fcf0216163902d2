"""``headwater schema``: the effect of a source's DDL on the tenants' tables."""

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from libs.cli.given_file import given_text
from libs.cli.home import home_option
from libs.cli.mesh_file import mesh_file_option
from libs.cli.mesh_view import mesh_view
from libs.cli.terminal import echo, echo_lines, secho
from libs.errors import InvalidSettings
from libs.mesh.home import Home
from libs.mysql.sql_lexer import UnreadableSql, split_statements
from libs.operations.schema_plan import PlanReport, TablePlan, plan_statements


@click.group(name="schema")
def schema_command() -> None:
    """Show the effect of a change of a source's tables on the tenants' tables."""


@schema_command.command(name="plan")
@click.argument("source")
@click.argument("ddl", required=False)
@click.option(
    "--file",
    "file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help='Statements with semicolons between them ("-": standard input).',
)
@click.option("--database", default="", help="Database of tables that the statements name without one.")
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON document.")
@mesh_file_option
@home_option
def plan_command(
    source: str, ddl: str | None, file: Path | None, database: str, as_json: bool, mesh_file: Path | None, home: Home
) -> None:
    """Show the effect of DDL on every tenant's tables, before you run it at SOURCE. Nothing is written.

    For each tenant that receives the table, the plan has the new schema of its events and the change of its warehouse table
    by the tenant's policies (sink.schema_changes). A column is added, widened, renamed, put beside another, or left out; or
    the table is PARKED, with the remedy. Several statements apply one after another.

    The plan starts from schema_history's tables while the stack runs, else from the source's own. It does not know which
    columns an earlier policy left out of a warehouse.

    With --mesh the tables are those in schema_history's topic, FILE describes SOURCE under `sources`, and the tenants are those
    in force (docs/kubernetes.md).

    Exits with 1 if a table would be parked, or events would be set aside.

    \b
    Examples:
      headwater schema plan shop "ALTER TABLE shop.orders ADD COLUMN size INT"
      headwater schema plan shop --database shop \\
        "ALTER TABLE orders RENAME COLUMN note TO text"
      headwater schema plan shop --file migration.sql --mesh mesh.yaml
      headwater schema plan shop --file migration.sql --json \\
        | jq '.plans[] | select(.refused != [])'
    """
    if (ddl is None) == (file is None):
        raise click.UsageError("give either the DDL itself or --file")
    subject = "the statement" if file is None else str(file)
    if file is not None:
        ddl = given_text(file, subject)
    try:
        statements = split_statements(ddl or "")
    except UnreadableSql as error:
        raise InvalidSettings(subject, [str(error)]) from error
    if not statements:
        raise InvalidSettings(subject, ["is empty"])
    report = plan_statements(mesh_view(home, mesh_file), source, statements, database=database)
    if as_json:
        echo_lines(msgspec.json.format(msgspec.json.encode(report)))
    else:
        print_plan(report)
    if report.is_refused:
        raise click.exceptions.Exit(1)


def print_plan(report: PlanReport) -> None:
    """Each statement, under it the tenants that it touches, and the sum."""
    for number, statement in enumerate(report.statements, 1):
        secho(f"{number}. {' '.join(statement.split())}", bold=True)
        plans = [plan for plan in report.plans if plan.statement == statement]
        for plan in plans:
            if plan.is_received:
                _print_table(plan)
        without = sorted({plan.tenant for plan in plans if not plan.is_received} - _receivers(plans))
        if without:
            echo(f"   does not concern: {', '.join(without)}")
    for note in report.notes:
        secho(f"note: {note}", fg="yellow")
    parked = sum(bool(plan.refused) for plan in report.plans)
    received = sum(plan.is_received for plan in report.plans)
    seen_in = "schema_history" if report.schemas_from == "schema_history" else f"source {report.source} itself"
    secho(
        f"{received} change(s) of tenants' tables, {parked} refused; tables as {seen_in} has them",
        fg="red" if parked else "green",
    )


def _receivers(plans: Sequence[TablePlan]) -> set[str]:
    return {plan.tenant for plan in plans if plan.is_received}


def _print_table(plan: TablePlan) -> None:
    where = f"{plan.warehouse} {plan.warehouse_table}" if plan.warehouse else "topics only"
    echo(f"   {plan.tenant}: {plan.table} → {where}")
    for label, lines, colour in (
        ("events", plan.events or ("as before",), None),
        (
            "table",
            plan.actions if plan.refused or plan.ignored or not plan.warehouse else plan.actions or ("as before",),
            None,
        ),
        ("left out", plan.ignored, "yellow"),
        ("REFUSED", plan.refused, "red"),
    ):
        for line in lines:
            secho(f"     {label:<9}{line}", fg=colour)
