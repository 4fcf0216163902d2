"""``headwater up`` and ``down``."""

import datetime
import shlex
import threading

import click

from libs.cli.answer import answer, json_option
from libs.cli.console import PlainConsole
from libs.cli.home import home_option, home_words
from libs.cli.on_the_way import interruptible
from libs.cli.status import print_faults
from libs.cli.terminal import echo, echo_lines, is_json, line_of, secho, styled
from libs.mesh.documents import read_documents
from libs.mesh.home import Home
from libs.mesh.state import ServicePhase, StackPhase, StackState, running_state
from libs.operations.first_query import first_query
from libs.operations.status import process_faults
from libs.servers.process import last_lines
from libs.setup.run import POSTGRESQL, STACK_STEPS, require
from libs.stack import lifecycle as stack
from libs.stack.supervisor import StackEvent
from libs.types.fault import worst_first

_COLOURS = {
    ServicePhase.WAITING: "bright_black",
    ServicePhase.STARTING: "cyan",
    ServicePhase.UP: "green",
    ServicePhase.BACKING_OFF: "yellow",
    ServicePhase.FAILED: "red",
    ServicePhase.STOPPED: "bright_black",
}


@click.command()
@json_option
@home_option
@click.option("--detach", is_flag=True, help="Return once everything is up, and leave it running.")
@click.option(
    "--without-tls", is_flag=True, help="Processes call one another in clear text, and anybody on this machine may."
)
def up(home: Home, detach: bool, without_tls: bool) -> None:
    """Start the embedded stack: Kafka, Valkey, every service, one reader for each source, Spark.

    It starts a PostgreSQL too if a tenant's warehouse is one and warehouses.yaml does not name yours. It does not start a
    ClickHouse: name yours in warehouses.yaml.

    Where Headwater was installed as a wheel, the first `up` downloads the jars of Kafka and Spark (`headwater setup`).

    Without --detach it runs in the foreground until Ctrl-C; a second Ctrl-C ends it at once. A process that crashes is
    restarted. Each process writes to logs/<process>.log.

    Processes and commands call one another by mutual TLS, with certificates that the stack makes and renews itself.

    \b
    Examples:
      headwater up                       in the foreground
      headwater up --detach              in the background, until `headwater down`
      headwater up --home ~/cdc          another home
    """
    documents = stack.load_documents(home)
    require((*STACK_STEPS, POSTGRESQL) if documents.has_own_postgresql else STACK_STEPS)
    if without_tls:
        secho(
            "--without-tls: whoever is on this machine may call the stack's processes: pause readers, forget progress, send "
            "signals. Leave it out, and they ask for a certificate of this home",
            fg="yellow",
            err=True,
        )
    if detach:
        _up_detached(home, has_tls=not without_tls)
        return
    for mistake in documents.tenant_mistakes:
        secho(f"tenant not served until its document is corrected: {mistake}", fg="yellow", err=True)
    stack.run_stack(home, on_event=show_event, on_phase=_show_phase(home), has_tls=not without_tls)


def _up_detached(home: Home, *, has_tls: bool) -> None:
    supervisor_pid = stack.start_detached(home, has_tls=has_tls)
    shown: set[tuple[str, ServicePhase, str]] = set()

    def show_changes(state: StackState) -> None:
        for service in state.services:
            seen = (service.name, service.phase, service.detail)
            if service.phase is not ServicePhase.WAITING and seen not in shown:
                shown.add(seen)
                show_event(StackEvent(*seen))

    where = home_words(home)
    goes_on = f"the stack goes on starting: `headwater status{where}` shows it, `headwater down{where}` stops it"
    with interruptible(goes_on):
        state = stack.wait_until_up(home, supervisor_pid, on_state=show_changes)
    broken = [service for service in state.services if service.phase is not ServicePhase.UP]
    for service in broken:
        secho(f"{service.name} is not up: {service.detail}", fg="red", err=True)
        echo_lines(last_lines(home.log_file(service.name)), err=True)
    faults = worst_first(process_faults(state))
    print_faults(faults, PlainConsole(stderr=True))
    echo(f"`headwater status{where}` shows its progress, `headwater down{where}` stops it")
    answer(
        {
            "home": home.root,
            "processes": [
                {"name": each.name, "phase": each.phase.value, "detail": each.detail} for each in state.services
            ],
            "faults": faults,
        }
    )
    if broken or faults:
        raise click.exceptions.Exit(1)
    _show_first_query(home)


def _show_first_query(home: Home) -> None:
    found = first_query(home, read_documents(home))
    if found is None:
        return
    where = home_words(home)
    sql = "" if found.sql is None else f" {quoted_sql(found.sql)}"
    echo("next: `check` waits until the rows are copied and compares them, `query` shows some")
    echo(f"  headwater check {found.tenant}{where}")
    echo(f"  headwater query {found.tenant}{sql}{where}")


def quoted_sql(sql: str) -> str:
    """A statement as one word of a shell: in double quotes where it may stand so."""
    return shlex.quote(sql) if set(sql) & set('"$`\\!') else f'"{sql}"'


def show_event(event: StackEvent) -> None:
    """One line for something that happened to a process."""
    now = datetime.datetime.now().strftime("%H:%M:%S")
    phase = styled(f"{event.phase.value:<12}", fg=_COLOURS[event.phase])
    echo(line_of(f"{now}  {event.service:<22} ", phase, f" {event.detail}".rstrip()))


def _show_phase(home: Home):  # type: ignore[no-untyped-def]
    def show(phase: StackPhase) -> None:
        if phase is StackPhase.UP:
            stop = "Ctrl-C or `headwater down` stops it"
            faults = worst_first(process_faults(running_state(home)))
            answer({"home": home.root, "phase": phase.value, "faults": faults}, is_line=True)
            if faults:
                secho(f"the stack runs with {len(faults)} fault(s) (home {home.root}); {stop}", fg="red")
                print_faults(faults, PlainConsole(stderr=is_json()))
            else:
                secho(f"the stack is up (home {home.root}); {stop}", fg="green")
                if is_json():
                    return
                # In a thread: it asks servers, and the supervisor's loop runs here.
                threading.Thread(target=_show_first_query, args=(home,), name="first-query", daemon=True).start()
        elif phase is StackPhase.STOPPING:
            echo("stopping …")
            answer({"home": home.root, "phase": phase.value}, is_line=True)

    return show


@click.command()
@json_option
@home_option
def down(home: Home) -> None:
    """Stop the embedded stack: Spark and the readers first, Kafka last. Nothing is lost; `up` continues where it stopped."""
    echo("stopping …")
    with interruptible("the stack goes on stopping: the same command waits for it again"):
        has_run = stack.stop_stack(home)
    if has_run:
        echo("stopped")
    else:
        echo(f"nothing ran in {home.root}")
    answer({"home": home.root, "has_run": has_run})
