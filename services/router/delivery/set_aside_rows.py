"""Rows that a tenant cannot get, as dead letters of that tenant."""

import structlog

from libs.errors import refusal_of
from libs.events.dead_letter import DeadLetter, encode_dead_letter
from services.router.delivery.delivery import Delivery, DeliveryContext
from services.router.delivery.run_values import RunValues
from services.router.records.record_batch import GrowingRecords
from services.router.routes.match import RefusedRoute, Target

log = structlog.get_logger()


def all_set_aside(rows: RunValues, refused: RefusedRoute, context: DeliveryContext) -> Delivery:
    letters = GrowingRecords()
    for index in range(len(rows.run)):
        letters.add(*dead_letter_of(rows, index, refused.target, refused.reason, context, is_withheld=True))
    return Delivery((refused.dead_letters,), letters.records, dead_letters=len(letters))


def dead_letter_of(
    rows: RunValues, index: int, target: Target, reason: str, context: DeliveryContext, *, is_withheld: bool
) -> tuple[bytes | None, bytes, bytes]:
    """Key, value and headers."""
    run, place = rows.run, context.place
    key, value = rows.keys[index] or None, rows.values[index]
    # A letter has the key as it is too, and both in base64.
    key_bytes = len(key or b"")
    is_withheld = is_withheld or key_bytes + (key_bytes + len(value)) * 4 // 3 >= context.max_event_bytes
    letter = DeadLetter(
        tenant=target.tenant,
        topic=target.topic.name,
        reason=reason,
        source=context.batch.source,
        source_partition=context.batch.source_partition,
        database=run.database,
        table=run.table,
        schema_version=run.schema_version,
        op=chr(rows.ops[index]).lower(),
        order=rows.order(index),
        transaction_id=run.transaction_id,
        changes_topic=place.topic,
        changes_kafka_partition=place.kafka_partition,
        changes_offset=place.offset,
        is_withheld=is_withheld,
        event_key=None if is_withheld else key,
        event_value=None if is_withheld else value,
    )
    headers = rows.headers(is_json=False)[index]
    return (letter.event_key, encode_dead_letter(letter), headers)


def unforeseen(error: Exception, database: str, table: str) -> str:
    log.error("refused_unforeseen", table=f"{database}.{table}", exc_info=error)
    return refusal_of(error)
