"""``headwater signal``: ask a source's reader for an incremental snapshot, or to stop, pause or resume one."""

import json
import uuid
from typing import Any

import click

from libs.cli.mesh import mesh_options
from libs.cli.terminal import echo
from libs.errors import InvalidSettings
from libs.mesh.mesh import Mesh, require_source
from libs.source.signal_topic import send_signal
from libs.source.signals import EXECUTE, LOG, STOP, TYPES, InvalidSignal


@click.command()
@click.argument("source")
@click.argument("kind", metavar="TYPE", type=click.Choice(TYPES))
@click.argument("tables", nargs=-1)
@click.option("--where", help="SQL condition: only rows that meet it (execute-snapshot).")
@click.option("--surrogate-key", help="Read along this column instead of the table's key (execute-snapshot).")
@click.option("--message", help="Text for the reader's log (log).")
@click.option("--id", "signal_id", help="Name of the signal in the reader's log and status; default: a random one.")
@mesh_options
def signal(
    source: str,
    kind: str,
    tables: tuple[str, ...],
    where: str | None,
    surrogate_key: str | None,
    message: str | None,
    signal_id: str | None,
    mesh: Mesh,
) -> None:
    """Send SOURCE's reader one of Debezium's signals: execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot or log.

    TABLES are names (`shop.orders`) or regular expressions. stop-snapshot without TABLES stops all.

    The signal is durable when the command returns. It acts once; a reader that is down acts on it when it starts.

    \b
    Examples:
      headwater signal shop execute-snapshot shop.orders shop.customers
      headwater signal shop execute-snapshot shop.orders --where "id > 1000"
      headwater signal shop pause-snapshot
      headwater signal shop stop-snapshot shop.orders
      headwater signal shop execute-snapshot shop.orders --mesh kafka.yaml
    """
    require_source(mesh, source)
    if tables and kind not in (EXECUTE, STOP):
        raise click.UsageError(f"{kind} takes no tables")
    if (where or surrogate_key) and kind != EXECUTE:
        raise click.UsageError("--where and --surrogate-key belong to execute-snapshot")
    if message and kind != LOG:
        raise click.UsageError("--message belongs to log")
    data: dict[str, Any] = {"message": message or ""} if kind == LOG else {"type": "INCREMENTAL"}
    if tables or kind == EXECUTE:
        data["data-collections"] = list(tables)
    if where:
        data["additional-conditions"] = [{"data-collection": table, "filter": where} for table in tables]
    if surrogate_key:
        data["surrogate-key"] = surrogate_key
    chosen_id = signal_id or str(uuid.uuid4())
    try:
        offset = send_signal(mesh.kafka, source, json.dumps({"id": chosen_id, "type": kind, "data": data}))
    except InvalidSignal as error:
        raise InvalidSettings(f"signal {kind}", [str(error)]) from error
    echo(f"sent {kind} {chosen_id} to the reader of {source} (headwater.signals, offset {offset})")
    if kind != LOG and mesh.home is not None:
        echo("watch it with: headwater status")
