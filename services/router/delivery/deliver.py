"""From a ChangeBatch to records for tenant topics: plain functions, called by a lane for each batch.

Order: a tenant's deliveries come in the order of the batch's entries, and a run's records in the order of its rows, so each
topic receives its table's events in log order. Only events that a tenant's document filters out are dropped; one that
cannot be projected for a tenant becomes a dead letter of that tenant, and everything else goes on.

A run that passes as it is stays where it lies in the ChangeBatch's bytes, until it is written into Kafka's batch; only filters,
masks and key changes look at single rows, as columns.
"""

from collections.abc import Iterator

from protos.headwater.changes.v1.change_batch_pb2 import TableChange, TransactionBoundary
from services.router.batches.batch_reading import Changes
from services.router.batches.changes import Run
from services.router.delivery.deliver_rows import deliver_run
from services.router.delivery.deliver_statements import deliver_boundary, deliver_table_change
from services.router.delivery.delivery import Announced, BatchPlace, Delivery, DeliveryContext
from services.router.routes.book import RouteView


def deliver_batch(
    batch: Changes, view: RouteView, announced: Announced, place: BatchPlace, *, max_event_bytes: int
) -> Iterator[Delivery]:
    """Everything that tenants get of a batch, in order. Looks schemas up where ``view`` does not know them yet.

    Raises:
        SchemaUnknown, ServiceUnavailable: see ``RouteView.routes``; not for tables that ``targets_of`` looked up.
    """
    context = DeliveryContext(batch.head, view, announced, place, max_event_bytes)
    for entry in batch.entries:
        match entry:
            case Run():
                yield from deliver_run(entry, context)
            case TableChange():
                yield from deliver_table_change(entry, context)
            case TransactionBoundary():
                yield from deliver_boundary(entry, context)
