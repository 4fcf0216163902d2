"""Statements and transaction boundaries, as events for the tenants that read them."""

from collections.abc import Iterator

import msgspec

from libs.errors import InvalidEvent, is_of_all
from libs.events.dead_letter import DeadLetter, encode_dead_letter
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from protos.headwater.changes.v1.change_batch_pb2 import TableChange, TransactionBoundary
from services.router.delivery.delivery import Delivery, DeliveryContext, single_record
from services.router.delivery.set_aside_rows import unforeseen
from services.router.delivery.statements import hides_nothing, project_statement
from services.router.records.record_batch import NO_HEADERS, join_headers
from services.router.routes.batch_targets import boundary_readers, change_readers
from services.router.routes.book import RouteView
from services.router.routes.match import Subscriber, Target, dead_letter_target


def deliver_table_change(change: TableChange, context: DeliveryContext) -> Iterator[Delivery]:
    """The new schema at once, so a new column is known before its rows; and Debezium's event."""
    view = context.view
    if change.schema_version:
        for group in view.routes(change.database, change.table, change.schema_version, context.form).groups:
            yield from context.announced.unannounced(group.announcements)
    for reader, target, encoding in change_readers(change, view, context.form):
        try:
            projected = project_statement(change.value, reader.selection, *_table_of(change, view))
            key, value = encoding.key(change.key), encoding.value(projected)
        except Exception as error:
            if is_of_all(error):
                raise
            reason = str(error) if isinstance(error, InvalidEvent) else unforeseen(error, change.database, change.table)
            yield _statement_set_aside(change, reader, target, reason, context)
            continue
        if len(value) >= context.max_event_bytes:
            continue  # a statement that does not fit into a record: the schema itself was written above
        yield Delivery(
            (target,), single_record(key, value, join_headers(*context.headers(is_json=encoding.has_json_headers)))
        )


def _table_of(change: TableChange, view: RouteView) -> tuple[TableId | None, TableSchema | None]:
    """The one table that a statement is about, and its schema after it."""
    if not change.table:
        return None, None
    table_id = TableId(database=change.database, table=change.table)
    return table_id, view.newest_schema(table_id, change.schema_version) if change.schema_version else None


def _statement_set_aside(
    change: TableChange, reader: Subscriber, target: Target, reason: str, context: DeliveryContext
) -> Delivery:
    """A statement's event that the tenant's form cannot hold; its schema was written all the same."""
    place = context.place
    letter = DeadLetter(
        tenant=reader.tenant,
        topic=target.topic.name,
        reason=reason,
        source=context.batch.source,
        source_partition=context.batch.source_partition,
        database=change.database,
        table=change.table,
        schema_version=change.schema_version,
        op="",
        order=EventOrder(epoch=change.epoch, rank=int(change.rank), tx_ordinal=change.tx_ordinal),
        changes_topic=place.topic,
        changes_kafka_partition=place.kafka_partition,
        changes_offset=place.offset,
        is_withheld=not hides_nothing(reader.selection),
        event_key=change.key,
        event_value=change.value if hides_nothing(reader.selection) else None,
    )
    headers = join_headers(*context.headers(is_json=False))
    return Delivery(
        (dead_letter_target(reader),), single_record(change.key, encode_dead_letter(letter), headers), dead_letters=1
    )


def deliver_boundary(boundary: TransactionBoundary, context: DeliveryContext) -> Iterator[Delivery]:
    for reader, target, encoding in boundary_readers(context.view):
        key = encoding.key(msgspec.json.encode({"id": boundary.transaction_id}))
        value = encoding.value(msgspec.json.encode(_boundary_payload(boundary, reader)))
        yield Delivery((target,), single_record(key, value, NO_HEADERS))


def _boundary_payload(boundary: TransactionBoundary, reader: Subscriber) -> dict[str, object]:
    """Debezium's payload; END counts the events of the tables that the tenant sees, before its row filters."""
    is_end = boundary.status == TransactionBoundary.STATUS_END
    counts = [
        (f"{count.database}.{count.table}", count.events)
        for count in boundary.table_event_counts
        if reader.sees(TableId(database=count.database, table=count.table))
    ]
    collections = [{"data_collection": name, "event_count": events} for name, events in counts]
    return {
        "status": "END" if is_end else "BEGIN",
        "id": boundary.transaction_id,
        "event_count": sum(events for _, events in counts) if is_end else None,
        "data_collections": collections if is_end else None,
        "ts_ms": boundary.committed_at_us // 1000,
    }
