"""``headwater signal``: ask a source's reader for an incremental snapshot, or to stop, pause or resume one."""

import json
import uuid
from typing import Any, Final

import click
import msgspec

from libs.cli.mesh import mesh_options
from libs.cli.on_the_way import interruptible, shown_on_the_way
from libs.cli.status import duration
from libs.cli.terminal import echo, echo_lines, secho
from libs.errors import InvalidSettings
from libs.mesh.mesh import Mesh, require_source
from libs.operations.reader_control import readers_of
from libs.operations.signal_wait import SignalProgress, wait_for_signal
from libs.source.signal_topic import send_signal
from libs.source.signals import DROP, EXECUTE, LOG, ORACLE_TYPES, STOP, InvalidSignal

_DEFAULT_TIMEOUT_S: Final = 3_600.0
_BAR: Final = 20


@click.command()
@click.argument("source")
@click.argument("kind", metavar="TYPE", type=click.Choice(ORACLE_TYPES))
@click.argument("tables", nargs=-1)
@click.option("--where", help="SQL condition: only rows that meet it (execute-snapshot).")
@click.option("--surrogate-key", help="Read along this column instead of the table's key (execute-snapshot).")
@click.option("--message", help="Text for the reader's log (log).")
@click.option("--id", "signal_id", help="Name of the signal in the reader's log and status; default: a random one.")
@click.option("--wait", "is_waiting", is_flag=True, help="Wait for the outcome, and show the progress of a copy.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0),
    default=_DEFAULT_TIMEOUT_S,
    show_default=True,
    help="Seconds to wait with --wait. A copy goes on after that.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs: one JSON document.")
@mesh_options
def signal(
    source: str,
    kind: str,
    tables: tuple[str, ...],
    where: str | None,
    surrogate_key: str | None,
    message: str | None,
    signal_id: str | None,
    is_waiting: bool,
    timeout_s: float,
    as_json: bool,
    mesh: Mesh,
) -> None:
    """Send SOURCE's reader one of Debezium's signals: execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot or log;
    that of an Oracle source also drop-transaction.

    TABLES are names (`shop.orders`) or regular expressions. stop-snapshot without TABLES stops all. Of drop-transaction it is
    the id of an open transaction: none of its changes is delivered, so its tables have to be copied again.

    The signal is durable when the command returns. It acts once; a reader that is down acts on it when it starts. With --wait
    the command returns with the outcome: it exits with 1 if the reader refuses the signal, or a copy is given up.

    \b
    Examples:
      headwater signal shop execute-snapshot shop.orders --wait
      headwater signal shop execute-snapshot shop.orders shop.customers
      headwater signal shop execute-snapshot shop.orders --where "id > 1000"
      headwater signal shop pause-snapshot
      headwater signal shop stop-snapshot shop.orders
      headwater signal erp drop-transaction 0a0007008e2a0000
      headwater signal shop execute-snapshot shop.orders --mesh kafka.yaml
    """
    require_source(mesh, source)
    readers = readers_of(mesh, source) if is_waiting else []
    if kind == DROP and len(tables) != 1:
        raise click.UsageError(f"{DROP} takes the id of one transaction")
    if tables and kind not in (EXECUTE, STOP, DROP):
        raise click.UsageError(f"{kind} takes no tables")
    if (where or surrogate_key) and kind != EXECUTE:
        raise click.UsageError("--where and --surrogate-key belong to execute-snapshot")
    if message and kind != LOG:
        raise click.UsageError("--message belongs to log")
    data = _data(kind, tables, where, surrogate_key, message)
    chosen_id = signal_id or str(uuid.uuid4())
    try:
        with interruptible(f"the signal may have been sent: `headwater status --source {source}` shows it"):
            offset = send_signal(mesh.kafka, source, json.dumps({"id": chosen_id, "type": kind, "data": data}))
    except InvalidSignal as error:
        raise InvalidSettings(f"signal {kind}", [str(error)]) from error
    if not as_json:
        echo(f"sent {kind} {chosen_id} to the reader of {source} (headwater.signals, offset {offset})")
    if not is_waiting:
        if as_json:
            echo_lines(msgspec.json.encode({"signal_id": chosen_id, "kind": kind, "source": source, "offset": offset}))
        else:
            echo(f"for its outcome: headwater status --source {source}; or send it with --wait")
        return
    goes_on = f"the signal is durable and goes on: `headwater status --source {source}` shows it"
    with interruptible(goes_on), shown_on_the_way() as show:
        end = wait_for_signal(
            readers, source, chosen_id, offset, timeout_s=timeout_s, on_progress=lambda now: show(progress_line(now))
        )
    if as_json:
        echo_lines(
            msgspec.json.encode({"kind": kind, "source": source, "offset": offset, **msgspec.structs.asdict(end)})
        )
    else:
        for failure in end.failures:
            secho(failure, fg="red", err=True)
        if end.is_done:
            copied = f": {end.rows_read:,} row(s) copied" if kind == EXECUTE else ""
            secho(f"{kind} {chosen_id} is done{copied}", fg="green")
    if not end.is_done:
        raise click.exceptions.Exit(1)


def _data(
    kind: str, tables: tuple[str, ...], where: str | None, surrogate_key: str | None, message: str | None
) -> dict[str, Any]:
    """The signal's ``data``."""
    if kind == DROP:
        return {"transaction-id": tables[0]}
    data: dict[str, Any] = {"message": message or ""} if kind == LOG else {"type": "INCREMENTAL"}
    if tables or kind == EXECUTE:
        data["data-collections"] = list(tables)
    if where:
        data["additional-conditions"] = [{"data-collection": table, "filter": where} for table in tables]
    if surrogate_key:
        data["surrogate-key"] = surrogate_key
    return data


def progress_line(now: SignalProgress) -> str:
    """For a person: a bar where the source's statistics know the table's size.

    >>> progress_line(SignalProgress(said="reader-shop: reads shop.orders, 1 table(s) to go", rows_read=5, rows_estimated=10))
    '██████████░░░░░░░░░░ 5 of ~10 rows; reader-shop: reads shop.orders, 1 table(s) to go'
    """
    if not now.rows_estimated:
        return f"{now.rows_read:,} rows; {now.said}" if now.rows_read else now.said
    full = min(_BAR, _BAR * now.rows_read // now.rows_estimated)
    left = "" if now.remaining_s is None else f", {duration(now.remaining_s)} left"
    return f"{'█' * full}{'░' * (_BAR - full)} {now.rows_read:,} of ~{now.rows_estimated:,} rows{left}; {now.said}"
