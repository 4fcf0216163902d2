"""``headwater audit``: who changed what by calls to services."""

import datetime
from typing import Final

import click
import msgspec

from libs.cli.mesh import mesh_options
from libs.cli.terminal import echo, echo_lines
from libs.kafka.audit_topic import read_audit
from libs.mesh.mesh import Mesh
from libs.types.audit import AuditRecord

_SHOWN_CHARACTERS: Final = 160
"""Of a request, and of what was before and after it: a schema change has thousands."""


@click.command()
@click.option("-n", "--limit", type=click.IntRange(1), help="Show the newest ones only.")
@click.option("--method", help="Show calls of one method only, for example ResetCheckpoint.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@mesh_options
def audit(limit: int | None, method: str | None, as_json: bool, mesh: Mesh) -> None:
    """Show the calls that changed something: who called, what, and what was before and after.

    Services write the records to the topic headwater.audit, and to their logs as the event audit.

    \b
    Examples:
      headwater audit
      headwater audit -n 20 --method ResetCheckpoint
      headwater audit --json --mesh kafka.yaml | jq 'select(.code != "OK")'
    """
    found = [record for record in read_audit(mesh.kafka) if method is None or record.method == method]
    for record in found[-limit:] if limit is not None else found:
        if as_json:
            echo_lines(msgspec.json.encode(record))
        else:
            echo(audit_line(record))


def audit_line(record: AuditRecord) -> str:
    """One record in one line; a long part of it is cut."""
    at = datetime.datetime.fromtimestamp(record.at_us / 1e6, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    names = f" ({', '.join(record.names)})" if record.names else ""
    parts = [at, record.method, record.code, f"by {record.peer}{names}", _shown("request", record.request)]
    return "  ".join(filter(None, (*parts, _shown("before", record.before), _shown("after", record.after))))


def _shown(title: str, values: object) -> str:
    if not values:
        return ""
    text = msgspec.json.encode(values).decode()
    return f"{title} {text if len(text) <= _SHOWN_CHARACTERS else f'{text[:_SHOWN_CHARACTERS]}… (whole in --json)'}"
