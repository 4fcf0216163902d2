"""``headwater dead-letter``: events of a tenant that could not be delivered, and their replay."""

import datetime
import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec
import orjson
from rich.markup import escape

from libs.cli.answer import answer, json_option, output_options, print_document
from libs.cli.console import PlainConsole, plain_table, print_table
from libs.cli.mesh import mesh_options
from libs.cli.on_the_way import interruptible
from libs.cli.tail import choose_topic, event_line
from libs.cli.terminal import echo, echo_lines
from libs.errors import InvalidSettings
from libs.events.dead_letter import SetAsideBy
from libs.mesh.mesh import Mesh, require_tenant
from libs.mesh.parked import parked_keys
from libs.mesh.readable import read_event
from libs.mesh.tenant_topics import delivered_topics
from libs.operations.dead_letters import (
    StoredLetter,
    await_answers,
    keys_to_replay,
    plain_key,
    read_letters,
    replay_requests,
    router_remedies,
    send_requests,
)

_PLAIN_WIDTH = 200
_STATES = {True: "parked", False: "taken up", None: "parked or taken up"}


@click.group("dead-letter")
def dead_letter() -> None:
    """Show and replay a tenant's events that could not be delivered.

    The router sets aside events that it cannot project for a tenant. The sink sets aside events that the warehouse refuses,
    and parks their keys: later events of such a key become dead letters too, until `replay` applies all of them in order.
    """


@dead_letter.command("list")
@click.argument("tenant")
@click.argument("table", required=False)
@click.option("--all", "with_taken_up", is_flag=True, help="Also those that a replay has taken up.")
@output_options
@mesh_options
def list_command(tenant: str, table: str | None, with_taken_up: bool, output: str, mesh: Mesh) -> None:
    """List TENANT's dead letters by table and reason. `letter` is the number of the first, for `show`.

    With --json each letter is an object on a line of its own.

    With --mesh those of the sink are listed whether or not a replay has taken them up: that stands in the sink's own files.

    \b
    Examples:
      headwater dead-letter list acme
      headwater dead-letter list acme orders --json
      headwater dead-letter list acme --mesh kafka.yaml
    """
    letters = _letters(mesh, tenant)
    if table is not None:
        topic = choose_topic(tenant, table, delivered_topics(mesh.kafka, tenant)).name
        letters = [each for each in letters if each.letter.topic == topic]
    shown = [each for each in letters if each.is_waiting is not False or with_taken_up]
    if output == "json":
        for each in shown:
            echo_lines(orjson.dumps(_as_json(each)))
        return
    if print_document([orjson.loads(orjson.dumps(_as_json(each))) for each in shown], output):
        return
    if shown:
        _show_groups(shown, is_wide=output == "wide")
    else:
        echo(f"no dead letter of {tenant} waits")
    if hidden := len(letters) - len(shown):
        echo(f"{hidden} more were taken up: see --all")


@dead_letter.command("show")
@click.argument("tenant")
@click.argument("letter", type=click.IntRange(0))
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with the event's bytes in base64.")
@mesh_options
def show_command(tenant: str, letter: int, as_json: bool, mesh: Mesh) -> None:
    """Show one LETTER of TENANT, with its event as it was.

    \b
    Examples:
      headwater dead-letter show acme 17
    """
    letters = _letters(mesh, tenant)
    found = next((each for each in letters if each.number == letter), None)
    if found is None:
        raise InvalidSettings(
            f"letter {letter}", [f"tenant {tenant} has none of that number; `headwater dead-letter list` has them"]
        )
    if as_json:
        echo_lines(orjson.dumps(_as_json(found), option=orjson.OPT_INDENT_2))
        return
    for name, text in _facts(found):
        echo(f"{name:<12} {text}")


@dead_letter.command("replay")
@click.argument("tenant")
@click.argument("table", required=False)
@click.option("--key", "keys", multiple=True, help="Only this key, as in the event: '{\"id\":7}'. May be repeated.")
@click.option(
    "--leave-out-refused",
    is_flag=True,
    help="Give up events that are refused again (their letters stay in the topic), and write the later ones.",
)
@click.option(
    "--timeout", "timeout_s", type=float, default=120.0, show_default=True, help="Seconds to wait for the sink."
)
@json_option
@mesh_options
def replay_command(
    tenant: str, table: str | None, keys: tuple[str, ...], leave_out_refused: bool, timeout_s: float, mesh: Mesh
) -> None:
    """Let TENANT's sink apply the letters of its parked keys in order, and then their events as they come.

    A mirror needs only the last event of a key, so correct the row at the source first. A key that is refused again stays
    parked, and the command exits with 1. The router's letters are not replayed: correct the tenant's document, then read the
    rows again by `headwater tenant snapshot TENANT TABLE`.

    \b
    Examples:
      headwater dead-letter replay acme
      headwater dead-letter replay acme orders --key '{"id":7}'
      headwater dead-letter replay acme --leave-out-refused
      headwater dead-letter replay acme orders --mesh kafka.yaml
    """
    require_tenant(mesh, tenant)
    chosen = None if table is None else [choose_topic(tenant, table, delivered_topics(mesh.kafka, tenant)).name]
    parked = parked_keys(mesh, tenant)
    if keys and parked is None:
        raise click.UsageError("--key names a parked key, and with --mesh those cannot be seen: replay the whole table")
    letters = read_letters(mesh.kafka, tenant, parked)
    requests = replay_requests(keys_to_replay(parked, letters, chosen, keys), leave_out_refused=leave_out_refused)
    remedies = router_remedies(tenant, letters, chosen)
    if not requests:
        echo("the sink has set nothing aside" if parked is None else "no key is parked")
    for remedy in remedies:
        echo(remedy)
    refused, replayed = 0, []
    with interruptible(
        f"the sink goes on with the replay: `headwater dead-letter list {tenant}` has those that are left"
    ):
        if requests:
            send_requests(mesh.kafka, tenant, requests)
        for request, answered in await_answers(mesh, tenant, requests, timeout_s=timeout_s):
            done = answered.keys - answered.refused
            refused += answered.refused
            replayed.append({"topic": request.topic, "keys": answered.keys, "refused": answered.refused})
            echo(f"{request.topic}: {done} of {answered.keys} key(s) taken up")
    asked = [request.topic for request in requests]
    if asked and parked is None:
        echo(
            f"asked for all parked keys of {', '.join(asked)}; for the result: dead_letters_replayed in the sink's log"
        )
    is_seen = parked is not None
    answer({"tenant": tenant, "asked": asked, "replayed": replayed if is_seen else None, "remedies": remedies})
    if refused:
        echo(f"{refused} key(s) stay parked: see `headwater dead-letter list {tenant}`", err=True)
        raise click.exceptions.Exit(1)


def _letters(mesh: Mesh, tenant: str) -> list[StoredLetter]:
    require_tenant(mesh, tenant)
    return read_letters(mesh.kafka, tenant, parked_keys(mesh, tenant))


def _show_groups(letters: Sequence[StoredLetter], *, is_wide: bool) -> None:
    groups: dict[tuple[str, str, bool | None, str], list[StoredLetter]] = {}
    for each in letters:
        letter = each.letter
        table = f"{letter.source}: {letter.database}.{letter.table}"
        groups.setdefault((table, letter.set_aside_by.value, each.is_waiting, letter.reason), []).append(each)
    columns = ("table", "by", "state", "letters", "keys", "since", "letter", "reason")
    shown = plain_table(*columns, right=("letters", "keys", "letter"), folded=("reason", "table"))
    for (table, by, is_waiting, reason), group in sorted(groups.items(), key=lambda item: item[0][:3]):
        keys = {orjson.dumps(plain_key(each.letter.event_key or b"null"), default=repr) for each in group}
        state = "set aside" if by == SetAsideBy.ROUTER.value else _STATES[is_waiting]
        first = group[0]
        shown.add_row(
            table,
            by,
            state,
            str(len(group)),
            str(len(keys)),
            _moment(first.set_aside_at_us),
            str(first.number),
            escape(reason),
        )
    print_table(PlainConsole(width=None if sys.stdout.isatty() else _PLAIN_WIDTH), shown, is_wide=is_wide)


def _facts(stored: StoredLetter) -> list[tuple[str, str]]:
    letter = stored.letter
    facts = [
        ("table", f"{letter.source}: {letter.database}.{letter.table}, schema version {letter.schema_version}"),
        ("set aside", f"by the {letter.set_aside_by.value}, {_moment(stored.set_aside_at_us)}"),
        ("reason", letter.reason),
    ]
    if letter.event_offset is not None:
        facts.append(
            ("stood at", f"{letter.topic}, partition {letter.event_kafka_partition}, offset {letter.event_offset}")
        )
    else:
        place = f"{letter.changes_topic}, partition {letter.changes_kafka_partition}, offset {letter.changes_offset}"
        facts.append(("stood at", f"{place} (for {letter.topic})"))
    if letter.behind_offset is not None:
        facts.append(("behind", f"offset {letter.behind_offset}, the event of its key that was refused"))
    facts.append(("order", letter.order.sort_key()))
    facts += [("header", f"{name}: {value.decode(errors='replace')}") for name, value in stored.headers]
    if letter.is_withheld:
        return [*facts, ("event", "stands only where it stood")]
    facts.append(("key", "" if letter.event_key is None else letter.event_key.decode(errors="replace")))
    try:
        event = read_event(letter.event_key, letter.event_value, None)
        facts.append(("event", "" if event is None else event_line(event)))
    except ValueError:
        facts.append(("event", "is no row event in JSON"))
    return [*facts, ("value", "" if letter.event_value is None else letter.event_value.decode(errors="replace"))]


def _as_json(stored: StoredLetter) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(stored.letter)
    headers = {name: value.decode(errors="replace") for name, value in stored.headers}
    return {"letter": stored.number, "is_waiting": stored.is_waiting, "headers": headers, **document}


def _moment(at_us: int) -> str:
    return datetime.datetime.fromtimestamp(at_us / 1e6).strftime("%Y-%m-%d %H:%M:%S")
