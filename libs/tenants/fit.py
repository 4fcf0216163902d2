"""Whether a tenant's document fits a table's columns; otherwise the router would set its events aside."""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from libs.errors import is_of_all, refusal_of
from libs.tenants.row_filter import InvalidCondition, compile_filter
from libs.tenants.view import filters_of, tenant_view
from libs.types.table import TableSchema
from libs.types.tenant import SourceSelection, TenantSpec

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Misfit:
    """A rule that cannot be applied to a table."""

    place: str
    """In the selection: ``row_filters[0].where``; empty: of its lists of columns, masks and names together."""
    why: str


def misfits(spec: TenantSpec, selection: SourceSelection, table: TableSchema) -> Sequence[Misfit]:
    """Every one of a table that ``selection`` selects."""
    try:
        found = [Misfit("", mistake) for mistake in tenant_view(table, selection, spec.format.names_of_fields).mistakes]
    except Exception as error:
        found = [_unforeseen("", error)]
    for index, row_filter in filters_of(selection, table):
        place = f"row_filters[{index}].where"
        try:
            compile_filter(row_filter.where, table)
        except InvalidCondition as error:
            found += [Misfit(place, f"row filter: {mistake}") for mistake in error.mistakes]
        except Exception as error:
            found.append(_unforeseen(place, error))
    return found


def _unforeseen(place: str, error: Exception) -> Misfit:
    if is_of_all(error):
        raise error
    log.exception("refused_unforeseen", place=place)
    return Misfit(place, refusal_of(error))
