"""``headwater tail``: the events of one tenant's table, readable, as they come."""

import datetime
from collections.abc import Sequence
from typing import Any

import click
import orjson
from confluent_kafka import Message

from libs.cli.mesh import mesh_options
from libs.cli.terminal import Coloured, echo_lines, line_of, styled
from libs.errors import InvalidSettings
from libs.events.names import ROW_TOPIC_TEMPLATES, row_topic_template
from libs.mesh.documents import read_documents
from libs.mesh.mesh import Mesh, require_tenant
from libs.mesh.readable import ReadableEvent, read_event, shorten
from libs.mesh.table_names import table_named
from libs.mesh.tenant_topics import (
    DeliveredSchemas,
    RowTopic,
    delivered_topics,
    follow_topic,
    open_consumer,
    row_topics,
)
from libs.types.tenant import EventFormat, TenantSpec, TopicLayout

_COLOURS = {"INSERT": "green", "UPDATE": "yellow", "DELETE": "red", "READ": "blue", "TRUNCATE": "magenta"}


@click.command()
@click.argument("tenant")
@click.argument("table")
@click.option("--from-beginning", is_flag=True, help="Show the events in the topic first; default: new events only.")
@click.option("-n", "--limit", type=click.IntRange(1), help="Stop after this many events.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, as the tenant receives it.")
@mesh_options
def tail(tenant: str, table: str, from_beginning: bool, limit: int | None, as_json: bool, mesh: Mesh) -> None:
    """Show the events of TENANT's TABLE as they come. TABLE is `orders`, or `shop.orders` if the name is not unique.

    \b
    Examples:
      headwater tail acme orders
      headwater tail acme shop.orders --from-beginning -n 20
      headwater tail acme orders --json | jq .value.after
      headwater tail acme orders --mesh mesh.yaml
    """
    require_tenant(mesh, tenant)
    topic, is_shared = _topic_of(mesh, tenant, table)
    schemas = DeliveredSchemas(mesh.kafka, tenant)
    consumer = open_consumer(mesh.kafka)
    shown = 0
    try:
        for message in follow_topic(consumer, topic.name, from_beginning=from_beginning):
            if message is None or (is_shared and not is_of_table(message.value(), table)):
                continue
            line = _line(message, schemas, as_json)
            if line is None:
                continue
            echo_lines(line)
            shown += 1
            if shown == limit:
                return
    finally:
        consumer.close()


def _topic_of(mesh: Mesh, tenant: str, table: str) -> tuple[RowTopic, bool]:
    """The topic that has the table's events, and whether it has those of other tables too.

    Raises:
        InvalidSettings: no topic, or several, have them; or their form is not JSON.
    """
    if mesh.home is None:
        template = ROW_TOPIC_TEMPLATES[TopicLayout.PER_TENANT]
    else:
        spec = read_documents(mesh.home).require_tenant(tenant)
        require_json(spec)
        template = row_topic_template(spec) if spec.topics.layout is TopicLayout.PER_TENANT else ""
    # No schema is announced of a topic that all tables share (``services.router.routes.match``), so it is found by its name.
    if template and (shared := row_topics(mesh.kafka, tenant, template)):
        return shared[0], True
    delivered = delivered_topics(mesh.kafka, tenant)
    topic = choose_topic(tenant, table, delivered)
    return topic, sum(each.name == topic.name for each in delivered) > 1


def require_json(spec: TenantSpec) -> None:
    """Raises InvalidSettings: the tenant's events are of a form that this command does not read."""
    if spec.format.kind is not EventFormat.JSON:
        raise InvalidSettings(
            f"tenant {spec.tenant}",
            [
                f"its events are {spec.format.kind.value}, and tail reads json; read {spec.tenant}.<source>.<database>.<table> "
                f"with a consumer that knows the schema registry, as kafka-{spec.format.kind.value}-console-consumer does"
            ],
        )


def choose_topic(tenant: str, table: str, topics: Sequence[RowTopic]) -> RowTopic:
    """The one topic that ``table`` names: ``table``, ``database.table`` or ``source.database.table``.

    Raises:
        InvalidSettings: none or several are; the message says which there are.
    """
    if not topics:
        raise InvalidSettings(
            f"tenant {tenant}",
            ["no row of its tables was delivered yet: `headwater status` says how far the readers are"],
        )
    lack = f"tenant {tenant} has no topic of it"
    return table_named(
        table, topics, lambda each: (each.source, f"{each.database}.{each.table}"), tenant=tenant, lack=lack
    )


def is_of_table(value: bytes | None, table: str) -> bool:
    """Whether an event of a topic that holds several tables is of the one that ``table`` names."""
    event = _parsed(value)
    if not isinstance(event, dict):
        return False
    source = event.get("payload", event).get("source") or {}
    name, qualified = source.get("table"), f"{source.get('db')}.{source.get('table')}"
    return table in (name, qualified, f"{source.get('name')}.{qualified}")


def _line(message: Message, schemas: DeliveredSchemas, as_json: bool) -> str | None:
    if as_json:
        record = {"key": _parsed(message.key()), "value": _parsed(message.value())}
        return orjson.dumps(record).decode() if message.value() is not None else None
    try:
        event = read_event(message.key(), message.value(), schemas.of(message))
    except ValueError:
        return styled(f"(offset {message.offset()}: no row event in JSON)", fg="bright_black")
    return None if event is None else event_line(event)


def _parsed(content: bytes | None) -> Any:
    try:
        return None if content is None else orjson.loads(content)
    except orjson.JSONDecodeError:
        return content.decode(errors="replace") if content is not None else None


def event_line(event: ReadableEvent) -> Coloured:
    """One event in one line, fit for a terminal: when, what, which row, and what changed."""
    when = event.committed_at
    local = "" if when is None else _local(when)
    operation = styled(f"{event.operation:<7}", fg=_COLOURS[event.operation])
    key = " ".join(f"{name}={shorten(value)}" for name, value in event.key.items())
    return line_of(f"{local}  ", operation, " ", styled(key, bold=True), f"  {_detail(event)}".rstrip())


def _detail(event: ReadableEvent) -> str:
    if event.operation == "UPDATE" and event.before is not None:
        return "  ".join(f"{name}: {shorten(old)} → {shorten(new)}" for name, old, new in event.changes)
    row = event.before if event.operation == "DELETE" else event.after
    return "  ".join(f"{name}={shorten(value)}" for name, value in (row or {}).items() if name not in event.key)


def _local(committed_at: datetime.datetime) -> str:
    local = committed_at.replace(tzinfo=datetime.UTC).astimezone()
    return local.strftime("%H:%M:%S.") + f"{local.microsecond // 1000:03d}"
