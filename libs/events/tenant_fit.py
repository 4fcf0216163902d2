"""Whether what a tenant's document says fits a table's columns: what the router would set its events aside for."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from libs.events.row_filter import InvalidCondition, compile_filter
from libs.events.tenant_view import tenant_view
from libs.types.table import TableSchema
from libs.types.tenant import SourceSelection, TenantSpec


@dataclass(frozen=True, slots=True)
class Misfit:
    """A rule that cannot be applied to a table."""

    place: str
    """In the selection: ``row_filters[0].where``; empty: of its lists of columns, masks and names together."""
    why: str


def misfits(spec: TenantSpec, selection: SourceSelection, table: TableSchema) -> Sequence[Misfit]:
    """Every one of a table that ``selection`` selects."""
    found = [Misfit("", mistake) for mistake in tenant_view(table, selection, spec.format.names_of_fields).mistakes]
    for index, row_filter in enumerate(selection.row_filters):
        if not re.fullmatch(row_filter.tables, str(table.table_id)):
            continue
        try:
            compile_filter(row_filter.where, table)
        except InvalidCondition as error:
            found += [Misfit(f"row_filters[{index}].where", f"row filter: {mistake}") for mistake in error.mistakes]
    return found
