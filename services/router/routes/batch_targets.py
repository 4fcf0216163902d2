"""The topics of tenants that a batch may go to, and the receivers of its statements and transactions."""

from collections.abc import Iterator

from libs.formats.connect_schema import EnvelopeForm
from libs.tenants.view import hidden_by_former_name
from libs.types.table import TableId
from protos.headwater.changes.v1.change_batch_pb2 import TableChange
from services.router.batches.batch_reading import Changes, form_of
from services.router.routes.audience import Audience
from services.router.routes.book import RouteView
from services.router.routes.encode import Encoding
from services.router.routes.match import Subscriber, TableRoutes, Target, schema_changes_target, transactions_target


def targets_of(batch: Changes, view: RouteView) -> Iterator[Target]:
    """Every topic that a batch's events may go to, dead letters aside; looks up and registers the schemas that it needs.

    Raises:
        SchemaUnknown, ServiceUnavailable: see ``RouteView.routes``.
    """
    for routes in routes_of(batch, view):
        yield from route_targets(routes)
    yield from targets_without_rows(batch, view)


def routes_of(batch: Changes, view: RouteView) -> Iterator[TableRoutes]:
    """Of every table version of a batch. Raises as ``targets_of``."""
    form = form_of(batch.head)
    for database, table, schema_version, for_tenants in batch.survey.versions:
        routes = view.routes(database, table, schema_version, form)
        yield routes.only(for_tenants) if for_tenants else routes


def targets_without_rows(batch: Changes, view: RouteView) -> Iterator[Target]:
    """The topics of a batch's statements and transactions. Raises as ``targets_of``."""
    form = form_of(batch.head)
    for statement in batch.survey.statements:
        yield from (target for _, target, _ in change_readers(statement, view, form))
    if batch.survey.has_boundaries:
        yield from (target for _, target, _ in boundary_readers(view))


def unseen_addressees(batch: Changes, audience: Audience) -> set[tuple[str, TableId]]:
    """Tenants that rows are addressed to and that do not see their table, by their documents."""
    return {
        (tenant, table_id)
        for tenant, table_id in batch.survey.addressed
        if all(subscriber.tenant != tenant for subscriber in audience.who_sees(table_id))
    }


def route_targets(routes: TableRoutes) -> Iterator[Target]:
    """The topics of a table version's rows and schemas."""
    for group in routes.groups:
        yield from group.targets
        yield from (announcement.target for announcement in group.announcements)


def change_readers(
    change: TableChange, view: RouteView, form: EnvelopeForm
) -> Iterator[tuple[Subscriber, Target, Encoding]]:
    """A receiver of a statement's event, with its topic and form."""
    if not change.value:
        return
    if change.table:
        table_id = TableId(database=change.database, table=change.table)
        readers = view.audience.who_sees(table_id)
        if readers and (schema := view.newest_schema(table_id, change.schema_version)) is not None:
            readers = tuple(each for each in readers if hidden_by_former_name(each.selection, schema) is None)
    elif change.database:
        readers = view.audience.who_sees_any(change.database, change.database_tables)
    else:
        readers = view.audience.subscribers
    for subscriber in view.present(each for each in readers if each.spec.topics.schema_changes):
        encoding = view.schema_changes_encoding(subscriber, form)
        if encoding is not None:
            yield subscriber, schema_changes_target(subscriber, view.audience.source), encoding


def boundary_readers(view: RouteView) -> Iterator[tuple[Subscriber, Target, Encoding]]:
    for subscriber in view.present(view.audience.readers_of_transactions):
        encoding = view.transactions_encoding(subscriber)
        if encoding is not None:
            yield subscriber, transactions_target(subscriber, view.audience.source), encoding
