"""``headwater tenant validate``, ``plan``, ``apply``, ``explain``, ``snapshot`` and ``decrypt``."""

import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from libs.cli.answer import answer, json_option
from libs.cli.console import print_columns
from libs.cli.home import home_option
from libs.cli.mesh_file import mesh_file_option
from libs.cli.mesh_view import mesh_view
from libs.cli.terminal import echo, echo_lines, is_json, line_of, secho, styled
from libs.config.yaml_text import read_text
from libs.errors import InvalidSettings
from libs.mesh.cluster_view import ClusterView
from libs.mesh.documents import mask_keys
from libs.mesh.home import Home, is_initialised
from libs.mesh.home_view import HomeView
from libs.mesh.tenant_objects import object_in
from libs.mesh.view import FoundTenant
from libs.operations.tenant_explain import Explanation, TableFate, explain
from libs.operations.tenant_plan import AS_BEFORE, GONE, NEW, PlannedTable, TenantPlan, document_before, plan_tenant
from libs.operations.tenant_snapshot import ask_for_tenant
from libs.operations.tenant_versions import Applied, apply_text, judged, text_of_version
from libs.stack.lifecycle import load_documents
from libs.tenants.config_map import TenantObject
from libs.tenants.mask_keys import KeyUnusable
from libs.tenants.masks import NotDecryptable, decryption
from libs.types.tenant import KeyFrom

_FILE = click.Path(dir_okay=False, allow_dash=True, path_type=Path)
_document_option = click.option(
    "--document",
    "document_file",
    type=_FILE,
    help='With --mesh: FILE has TENANT\'s document, or its ConfigMap as kubectl prints it (-o yaml, -o json). "-" reads '
    "standard input. kubectl is not asked then.",
    metavar="FILE",
)


@click.command(name="validate")
@click.argument("files", nargs=-1, required=True, type=_FILE, metavar="FILE...")
@json_option
@home_option
def validate_command(files: Sequence[Path], home: Home) -> None:
    """List every mistake of documents, by file and line. Nothing is changed.

    The router judges by the same code. In a home, the sources and warehouses that a document names must exist too. Outside a
    home, the command judges the document alone. "-" reads standard input. Exits with 2 if there is a mistake.

    \b
    Examples:
      headwater tenant validate acme.yaml
      headwater tenant validate tenants/*.yaml
      kubectl get configmap acme -o jsonpath='{.data.tenant\\.yaml}' \\
        | headwater tenant validate -
    """
    mistakes: list[str] = []
    owners: dict[str, Path] = {}
    for file in files:
        text = _text(file, mistakes)
        parsed = None if text is None else judged(_home_if_any(home), text, str(file), mistakes)
        if parsed is not None:
            other = owners.setdefault(parsed.spec.tenant, file)
            if other != file:
                claimed = f"tenant: {parsed.spec.tenant!r} is claimed by {other} already"
                mistakes += parsed.lines.locate([claimed])
    if mistakes:
        raise InvalidSettings(", ".join(map(str, files)) if len(files) <= 3 else f"{len(files)} documents", mistakes)
    scope = "" if _home_if_any(home) else "; not in a home, so its sources were not looked up"
    secho(f"no mistakes: {', '.join(owners)}{scope}", fg="green")
    answer({"tenants": list(owners), "is_in_home": _home_if_any(home) is not None})


@click.command(name="plan")
@click.argument("file", type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON document.")
@click.option("--all", "show_all", is_flag=True, help="Show tables that stay as they are, too.")
@mesh_file_option
@home_option
def plan_command(file: Path, as_json: bool, show_all: bool, mesh_file: Path | None, home: Home) -> None:
    """Show the changes from the document in force to the one in FILE. Nothing is written.

    The plan lists topics to be created, tables that match now, and for each table its rows and the columns that are
    delivered, masked, renamed or left out. It also lists refusals: a filter that does not fit a table's types, a key that
    would be lost, a table that the warehouse cannot hold. The command asks schema_history while the stack runs, else the
    sources.

    With --mesh the document in force is that of the mesh, and tables are those that schema_history recorded
    (docs/kubernetes.md).

    Exits with 2 if the document has mistakes, with 1 if something would be refused.

    \b
    Examples:
      headwater tenant plan acme.yaml
      headwater tenant plan acme.yaml --mesh mesh.yaml
      headwater tenant plan acme.yaml --json \\
        | jq '.tables[] | select(.change != "as before")'
    """
    mistakes: list[str] = []
    text = _text(file, mistakes)
    view = mesh_view(home, mesh_file)
    parsed = None if text is None else judged(home if mesh_file is None else None, text, str(file), mistakes)
    if parsed is None:
        raise InvalidSettings(str(file), mistakes)
    plan = plan_tenant(view, parsed.spec, parsed.lines, before=_before(view, parsed.spec.tenant))
    if as_json:
        echo_lines(msgspec.json.format(msgspec.json.encode(plan)))
    else:
        print_tenant_plan(plan, show_all=show_all)
    if plan.is_refused:
        raise click.exceptions.Exit(1)


@click.command(name="apply")
@click.argument("file_or_tenant", metavar="FILE|TENANT")
@click.option("--version", "number", type=int, help="Apply this earlier version of TENANT's document again.")
@click.option(
    "--yes", "is_confirmed", is_flag=True, help="Do not ask before columns are delivered that are hidden now."
)
@json_option
@home_option
def apply_command(file_or_tenant: str, number: int | None, is_confirmed: bool, home: Home) -> None:
    """Apply the document in FILE to its tenant; or, with --version, an earlier version of TENANT's document.

    The command judges the document first, as `tenant plan` does. With any mistake it changes nothing. It asks before columns
    are delivered that are masked or withheld now, unless --yes is given. The former document is kept as a numbered version,
    also if it was edited by hand. The file in tenants/ is replaced in one step, and a running stack uses it within two
    seconds.

    \b
    Examples:
      headwater tenant plan acme.yaml && headwater tenant apply acme.yaml
      headwater tenant apply acme --version 3
      cat acme.yaml | headwater tenant apply -
    """
    documents = load_documents(home)
    now = datetime.datetime.now(datetime.UTC)
    mistakes: list[str] = []
    shown_as = file_or_tenant if number is None else f"{file_or_tenant} version {number}"
    text = _text(Path(file_or_tenant), mistakes) if number is None else text_of_version(home, file_or_tenant, number)
    parsed = None if text is None else judged(home, text, shown_as, mistakes)
    if text is None or parsed is None:
        raise InvalidSettings(shown_as, mistakes)
    view = HomeView(home, documents)
    plan = plan_tenant(view, parsed.spec, parsed.lines, before=_before(view, parsed.spec.tenant))
    _let_pass(plan, shown_as, is_confirmed=is_confirmed)
    applied = apply_text(home, text, shown_as=shown_as, now=now)
    _print_applied(applied)
    answer(applied)


def _let_pass(plan: TenantPlan, shown_as: str, *, is_confirmed: bool) -> None:
    """Raises InvalidSettings: the plan refuses something; click.Abort: it delivers hidden columns, and nobody said yes."""
    refused = [*plan.mistakes]
    for table in plan.tables:
        if table.change != GONE:
            refused += [f"{table.fate.source}: {table.fate.table}: {refusal}" for refusal in table.fate.refused]
    if refused:
        raise InvalidSettings(shown_as, refused)
    if plan.uncovered and not is_confirmed:
        for column in plan.uncovered:
            secho(f"UNCOVERED  {column} is withheld or masked now, and would be delivered as it is", fg="red", err=True)
        click.confirm(
            f"deliver {len(plan.uncovered)} column(s) of tenant {plan.tenant} that are hidden now?",
            abort=True,
            err=True,
        )


@click.command(name="explain")
@click.argument("tenant")
@click.argument("table")
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON document.")
@_document_option
@mesh_file_option
@home_option
def explain_command(
    tenant: str, table: str, as_json: bool, document_file: Path | None, mesh_file: Path | None, home: Home
) -> None:
    """Say why TABLE and each of its columns is delivered to TENANT or withheld: the rule, and its line.

    TABLE is a table's name, database.table or source.database.table. The document is the one in tenants/. The table's columns
    come from schema_history while the stack runs, else from the source.

    With --mesh the document is that of TENANT's ConfigMap, which kubectl reads if FILE has `kubernetes: {}`
    (docs/kubernetes.md). Columns come from the topic of schema_history, and the routers' refusals are shown too.

    \b
    Examples:
      headwater tenant explain globex orders
      headwater tenant explain globex shop.customers --json
      headwater tenant explain globex orders --mesh mesh.yaml
      kubectl get configmap globex -o yaml \\
        | headwater tenant explain globex orders --mesh mesh.yaml --document -
    """
    _require_mesh(mesh_file, document_file)
    explanation = explain(mesh_view(home, mesh_file, _given(document_file, tenant)), tenant, table)
    if as_json:
        echo_lines(msgspec.json.format(msgspec.json.encode(explanation)))
    else:
        print_explanation(explanation)


@click.command(name="snapshot")
@click.argument("tenant")
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@json_option
@_document_option
@mesh_file_option
@home_option
def snapshot_command(
    tenant: str, tables: Sequence[str], document_file: Path | None, mesh_file: Path | None, home: Home
) -> None:
    """Copy the existing rows of TABLEs, or of all its tables, to TENANT. No other tenant gets anything.

    The readers copy the tables by incremental snapshots, while changes go on. The rows come to the tenant's topics as reads,
    filtered and masked by its document, in order with the changes around them. TABLE is a table's name, database.table or
    source.database.table. The request is durable when the command returns; `headwater status` shows its progress. With
    `snapshot: {on_joining: true}` in its document, a new tenant or table is copied without this command.

    With --mesh the document is that of TENANT's ConfigMap, as for `tenant explain`, and tables are those that schema_history
    recorded. A table that the source's reader does not read is named in the outcome of the signal (`headwater status`).

    \b
    Examples:
      headwater tenant snapshot acme
      headwater tenant snapshot acme orders shop.customers
      headwater tenant snapshot acme orders --mesh mesh.yaml
    """
    _require_mesh(mesh_file, document_file)
    found = ask_for_tenant(mesh_view(home, mesh_file, _given(document_file, tenant)), tenant, tables)
    for asked in found:
        echo(
            f"asked the reader of {asked.source} for {', '.join(asked.tables)}, for {tenant} alone "
            f"(signal {asked.signal_id}, offset {asked.signal_offset})"
        )
    echo("for its outcome: headwater status")
    answer({"tenant": tenant, "asked": found})


@click.command(name="decrypt")
@click.argument("tenant")
@click.argument("values", nargs=-1)
@click.option("--file", "file", help="Name of the key: the mask's key_from.file.")
@click.option("--env", "env", help="Variable of the key: the mask's key_from.env.")
@json_option
@home_option
def decrypt_command(tenant: str, values: Sequence[str], file: str | None, env: str | None, home: Home) -> None:
    """Decrypt VALUES that an encrypt mask of TENANT made; without VALUES, each line of standard input.

    The key comes from the router's place: keys/TENANT/NAME of the home, or the environment. Each value is printed on a line
    of its own. Exits with 2 if a value was not encrypted with this key; its line is empty.

    \b
    Examples:
      headwater tenant decrypt acme --file pii \\
        AXsJS2xHlE0HOzUvErNTDs+vwfEn50hmjBVMM5WJPoU=
      headwater query acme "SELECT diagnosis FROM visits" --format csv \\
        | tail -n +2 \\
        | headwater tenant decrypt acme --file pii
    """
    if (file is None) == (env is None):
        raise click.UsageError("give either --file or --env")
    try:
        decrypt = decryption(mask_keys(home).key(tenant, KeyFrom(file=file, env=env)))
    except KeyUnusable as error:
        raise InvalidSettings(f"tenant {tenant}", [str(error)]) from error
    mistakes = []
    for number, value in enumerate(values or map(str.strip, sys.stdin), 1):
        try:
            clear = decrypt(value)
            answer({"value": clear}, is_line=True)
            if not is_json():
                echo_lines(clear)
        except NotDecryptable as error:
            answer({"value": None}, is_line=True)
            echo()
            mistakes.append(f"value {number} {error}")
    if mistakes:
        raise InvalidSettings(f"tenant {tenant}", mistakes)


def _require_mesh(mesh_file: Path | None, document_file: Path | None) -> None:
    if mesh_file is None and document_file is not None:
        raise click.UsageError("--document needs --mesh: on one machine the document is the one in tenants/")


def _given(document_file: Path | None, tenant: str) -> TenantObject | None:
    """The document of --document. Raises InvalidSettings: it is not the tenant's, or cannot be read."""
    if document_file is None:
        return None
    mistakes: list[str] = []
    text = _text(document_file, mistakes)
    if text is None:
        raise InvalidSettings(str(document_file), mistakes)
    return object_in(text, tenant, "the document" if str(document_file) == "-" else str(document_file))


def _before(view: HomeView | ClusterView, tenant: str) -> FoundTenant | None:
    """The document in force, against which another is planned."""
    if isinstance(view, HomeView):
        return document_before(view.home, view.documents, tenant)
    return view.in_force().tenants.get(tenant)


def _home_if_any(home: Home) -> Home | None:
    return home if is_initialised(home) else None


def _text(file: Path, mistakes: list[str]) -> str | None:
    if str(file) == "-":
        return sys.stdin.read()
    return read_text(file, shown_as=str(file), mistakes=mistakes)


def print_tenant_plan(plan: TenantPlan, *, show_all: bool = False) -> None:
    """The changes, table by table, then topics and notes, and the sum."""
    if plan.is_new:
        secho(f"tenant {plan.tenant} is new", bold=True)
    for setting in plan.settings:
        echo(f"  {setting}")
    shown = [table for table in plan.tables if show_all or table.change != AS_BEFORE or table.fate.refused]
    for table in shown:
        _print_planned(table)
    for label, topics in (("topic made", plan.topics_made), ("topic left", plan.topics_left)):
        for topic in topics:
            echo(f"  {label}: {topic}")
    for note in plan.notes:
        secho(f"note: {note}", fg="yellow")
    for column in plan.uncovered:
        secho(_uncovered_text(column), fg="red")
    for mistake in plan.mistakes:
        secho(f"REFUSED  {mistake}", fg="red")
    if plan.changes_nothing and not plan.mistakes:
        secho(f"tenant {plan.tenant}: nothing would change", fg="green")
        return
    counts = [(sum(table.change == change for table in plan.tables), change) for change in (NEW, "changed", GONE)]
    sum_text = ", ".join(f"{count} {change}" for count, change in counts if count) or "none"
    refused = sum(bool(table.fate.refused) for table in plan.tables if table.change != GONE) + len(plan.mistakes)
    secho(
        f"tenant {plan.tenant}: tables {sum_text}; topics {len(plan.topics_made)} made, {len(plan.topics_left)} left; "
        f"{refused} refused",
        fg="red" if refused else "green",
    )


def _uncovered_text(column: str) -> str:
    return f"UNCOVERED  {column} is withheld or masked now, and would be delivered as it is"


def _print_planned(planned: PlannedTable) -> None:
    fate = planned.fate
    colour = {NEW: "green", GONE: "red", AS_BEFORE: None}.get(planned.change, "yellow")
    to = f" → {fate.topic}" + (f", {fate.warehouse} {fate.warehouse_table}" if fate.warehouse else "")
    secho(f"  {planned.change:<9} {fate.source}: {fate.table}{'' if planned.change == GONE else to}", fg=colour)
    for difference in planned.differences:
        echo(f"      {difference}")
    if planned.change == NEW:
        for rule in fate.rows:
            echo(f"      rows: {rule.says}")
        by_fate: dict[str, list[str]] = {}
        for column in fate.columns:
            name = column.name if column.seen_as in (None, column.name) else f"{column.name} as {column.seen_as}"
            by_fate.setdefault(column.fate, []).append(name)
        for what, columns in by_fate.items():
            echo(f"      {what}: {', '.join(columns)}")
    if planned.change != GONE:
        for refusal in fate.refused:
            secho(f"      REFUSED  {refusal}", fg="red")


def print_explanation(explanation: Explanation) -> None:
    """Each table that the name may mean: whether, why, which rows, and column by column."""
    for fate in explanation.tables:
        _print_fate(explanation.tenant, fate)
    for note in explanation.notes:
        secho(f"note: {note}", fg="yellow")


def _print_fate(tenant: str, fate: TableFate) -> None:
    verdict = styled("is delivered", fg="green") if fate.is_delivered else styled("does not come", fg="red")
    echo(line_of(f"{fate.table} of source {fate.source} ", verdict, f" to {tenant}"))
    for rule in fate.because:
        echo(f"  because  {rule.says}{_at(rule.where)}")
    if not fate.is_delivered:
        return
    echo(f"  topic    {fate.topic}")
    if fate.warehouse:
        echo(f"  table    {fate.warehouse} {fate.warehouse_table}")
    for rule in fate.rows:
        echo(f"  rows     {rule.says}{_at(rule.where)}")
    if not fate.rows:
        echo("  rows     all")
    for refusal in fate.refused:
        secho(f"  REFUSED  {refusal}", fg="red")
    if not fate.columns:
        echo("  columns  not known")
        return
    print_columns(
        ("column", "becomes", "seen as", "by", "line"),
        [
            (
                column.name,
                column.fate,
                column.seen_as or "",
                column.because.says if column.because else "no rule names it",
                column.because.where if column.because else "",
            )
            for column in fate.columns
        ],
    )


def _at(where: str) -> str:
    return f"   ({where})" if where else ""


def _print_applied(applied: Applied) -> None:
    if applied.kept is not None:
        echo(f"the former {applied.file}, edited by hand, is kept as version {applied.kept.number}")
    if applied.is_changed:
        secho(f"tenant {applied.tenant}: version {applied.version.number} is in force ({applied.file})", fg="green")
    else:
        echo(f"tenant {applied.tenant}: nothing changes, version {applied.version.number} is in force")
