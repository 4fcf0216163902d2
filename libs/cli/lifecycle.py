"""``headwater init``, ``validate``, ``up``, ``down`` and ``version``."""

import datetime
import os
import sys
from importlib import metadata

import click

from libs.cli.home import home_option
from libs.errors import InvalidSettings
from libs.local import stack
from libs.local.documents import Documents, nearest, read_documents
from libs.local.home import Home, is_initialised, write_examples
from libs.local.plan import IMPORT_ROOT
from libs.local.preflight import preflight, resume_position, where
from libs.local.state import ServicePhase, StackPhase, StackState
from libs.local.supervisor import StackEvent

_COLOURS = {
    ServicePhase.WAITING: "bright_black",
    ServicePhase.STARTING: "cyan",
    ServicePhase.UP: "green",
    ServicePhase.BACKING_OFF: "yellow",
    ServicePhase.FAILED: "red",
    ServicePhase.STOPPED: "bright_black",
}


@click.command()
@home_option
def init(home: Home) -> None:
    """Make a home folder with commented examples.

    \b
    Then:
      cp .headwater/sources/shop.yaml.example .headwater/sources/shop.yaml     and edit it
      cp .headwater/tenants/acme.yaml.example .headwater/tenants/acme.yaml     and edit it
      headwater validate && headwater up
    """
    written = write_examples(home)
    for path in written:
        click.echo(f"wrote {path}")
    click.echo(
        f"next: copy the examples in {home.sources_dir} and {home.tenants_dir} to names without .example, edit them, "
        "then `headwater up`"
    )


@click.command()
@click.argument("source", required=False)
@home_option
def validate(home: Home, source: str | None) -> None:
    """List every mistake in sources/ and tenants/; with SOURCE, ask its server too. Exits with 2 when there is any.

    With SOURCE the pre-flight runs that a reader makes at each start: server, log, grants and settings, each fault with the
    statement that mends it. Of a MySQL source all that the document names is asked for too: tables, signal table, overrides,
    failover servers, replicas; while the stack is up, also whether the log goes on where the reader stood. Nothing is
    changed, and no stack need be up. Exits with 1 when the server does not answer.

    \b
    Examples:
      headwater validate              the documents alone
      headwater validate shop         and the server of sources/shop.yaml
    """
    if not is_initialised(home):
        raise InvalidSettings(str(home.root), ["is no Headwater home: run `headwater init`, or name one with --home"])
    documents = read_documents(home)
    mistakes = [
        *documents.source_mistakes,
        *documents.warehouse_mistakes,
        *documents.schema_registry_mistakes,
        *documents.openlineage_mistakes,
        *documents.tenant_mistakes,
    ]
    if mistakes:
        raise InvalidSettings(str(home.root), mistakes)
    if source is not None:
        _validate_server(home, documents, source)
    click.echo(
        f"no mistakes: {len(documents.sources)} source(s) ({', '.join(documents.sources) or 'none'}), "
        f"{len(documents.tenants)} tenant(s) ({', '.join(documents.tenants) or 'none'})"
    )


def _validate_server(home: Home, documents: Documents, source: str) -> None:
    document = documents.sources.get(source)
    if document is None:
        raise InvalidSettings(
            f"source {source}", [f"has no document in {home.sources_dir}; {nearest(source, sorted(documents.sources))}"]
        )
    resume_from = resume_position(home, source, document)
    report = preflight(document, resume_from=resume_from)
    for warning in report.warnings:
        click.secho(f"warning: {warning.what}; mend: {warning.mend}", fg="yellow", err=True)
    if report.faults:
        raise InvalidSettings(where(document), [f"{fault.what}; mend: {fault.mend}" for fault in report.faults])
    click.echo(f"{source}: the server can be followed{', from the checkpoint on' if resume_from is not None else ''}")


@click.command()
@home_option
@click.option("--detach", is_flag=True, help="Return once everything is up, and leave it running.")
def up(home: Home, detach: bool) -> None:
    """Start the embedded stack: Kafka, Valkey, every service, one reader for each source, Spark.

    A PostgreSQL too, where a tenant's warehouse is one and warehouses.yaml does not say where it is.

    Without --detach it runs in the foreground until Ctrl-C; a second Ctrl-C ends it at once. What crashes is
    restarted; each process writes to logs/<process>.log.

    \b
    Examples:
      headwater up                       in the foreground
      headwater up --detach              in the background; `headwater down` stops it
      headwater up --home ~/cdc          another home
    """
    if detach:
        _up_detached(home)
        return
    for mistake in stack.load_documents(home).tenant_mistakes:
        click.secho(f"not served until mended: {mistake}", fg="yellow", err=True)
    stack.run_stack(home, on_event=show_event, on_phase=_show_phase(home))


def _up_detached(home: Home) -> None:
    supervisor_pid = stack.start_detached(home)
    shown: set[tuple[str, ServicePhase, str]] = set()

    def show_changes(state: StackState) -> None:
        for service in state.services:
            seen = (service.name, service.phase, service.detail)
            if service.phase is not ServicePhase.WAITING and seen not in shown:
                shown.add(seen)
                show_event(StackEvent(*seen))

    state = stack.wait_until_up(home, supervisor_pid, on_state=show_changes)
    broken = [service for service in state.services if service.phase is not ServicePhase.UP]
    for service in broken:
        click.secho(f"{service.name} is not up: {service.detail}", fg="red", err=True)
        click.echo(stack.last_lines(home.log_file(service.name)), err=True)
    where = f" --home {home.root}" if home.root.name != ".headwater" or home.root.parent != IMPORT_ROOT else ""
    click.echo(f"`headwater status{where}` shows how it gets on, `headwater down{where}` stops it")
    if broken:
        raise click.exceptions.Exit(1)


def show_event(event: StackEvent) -> None:
    """One line for something that happened to a process."""
    now = datetime.datetime.now().strftime("%H:%M:%S")
    phase = click.style(f"{event.phase.value:<12}", fg=_COLOURS[event.phase])
    click.echo(f"{now}  {event.service:<22} {phase} {event.detail}".rstrip())


def _show_phase(home: Home):  # type: ignore[no-untyped-def]
    def show(phase: StackPhase) -> None:
        if phase is StackPhase.UP:
            click.secho(f"the stack is up (home {home.root}); Ctrl-C or `headwater down` stops it", fg="green")
        elif phase is StackPhase.STOPPING:
            click.echo("stopping …")

    return show


@click.command()
@home_option
def down(home: Home) -> None:
    """Stop the embedded stack: Spark and the readers first, Kafka last. What was read stays, nothing is lost."""
    click.echo("stopping …")
    if stack.stop_stack(home):
        click.echo("stopped")
    else:
        click.echo(f"nothing ran in {home.root}")


@click.command()
def version() -> None:
    """Print the versions of Headwater and of what it runs on."""
    click.echo(f"headwater {_project_version()}")
    for package in ("pyspark", "faust-streaming", "confluent-kafka", "pyiceberg", "duckdb"):
        try:
            click.echo(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            click.echo(f"{package} is not installed: run `make setup`")
    click.echo(f"python {sys.version.split()[0]} on {os.uname().sysname} {os.uname().machine}")


def _project_version() -> str:
    for line in (IMPORT_ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "version":
            return value.strip().strip('"')
    return "unknown"
