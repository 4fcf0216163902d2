"""A run of rows to the groups of tenants that see its table."""

from collections.abc import Iterator, Sequence

from libs.errors import is_of_all
from libs.formats.connect_schema import EnvelopeForm
from services.router.batches.changes import Run
from services.router.delivery.delivery import Delivery, DeliveryContext
from services.router.delivery.row_places import JudgedRows, places_by_group
from services.router.delivery.rows_at_once import deliver_at_once
from services.router.delivery.rows_one_by_one import deliver_one_by_one
from services.router.delivery.run_values import RunValues
from services.router.delivery.set_aside_rows import all_set_aside, unforeseen
from services.router.routes.book import RouteView
from services.router.routes.match import RefusedRoute, RouteGroup, TableRoutes


def deliver_run(run: Run, context: DeliveryContext) -> Iterator[Delivery]:
    routes = _run_routes(run, context.view, context.form)
    if not routes.groups and not routes.refused:
        return
    rows = RunValues(run, context, routes.columns)
    index = routes.index
    if index is None:
        for group in routes.groups:
            yield from context.announced.unannounced(group.announcements)
            yield from _contained(rows, group, context)
    else:
        if context.announced.is_new(index):
            for group in routes.groups:
                yield from context.announced.unannounced(group.announcements)
        for number in index.others:
            yield from _contained(rows, routes.groups[number], context)
        for column in index.columns:
            is_judged, found = places_by_group(rows, column)
            for number, places in found.items():
                judged = is_judged and number in column.judged
                yield from _contained(rows, routes.groups[number], context, JudgedRows(places, judged))
    for refused in routes.refused:
        yield all_set_aside(rows, refused, context)


def _contained(
    rows: RunValues, group: RouteGroup, context: DeliveryContext, asked: JudgedRows | None = None
) -> Sequence[Delivery]:
    """As ``deliver_one_by_one``; where that fails, the run is set aside for the group's tenants alone."""
    try:
        at_once = deliver_at_once(rows, group, context, asked)
        if at_once is not None:
            return (at_once,)
        return list(deliver_one_by_one(rows, group, context, None if asked is None else asked.places))
    except Exception as error:
        if is_of_all(error):
            raise
        reason = unforeseen(error, rows.run.database, rows.run.table)
        return [
            all_set_aside(rows, RefusedRoute(target, dead_letters, reason), context)
            for target, dead_letters in zip(group.targets, group.dead_letters, strict=True)
        ]


def _run_routes(run: Run, view: RouteView, form: EnvelopeForm) -> TableRoutes:
    """The tenants that get a run's rows: all that see its table, or those among them that it is addressed to."""
    routes = view.routes(run.database, run.table, run.schema_version, form)
    return routes.only(run.for_tenants) if run.for_tenants else routes
