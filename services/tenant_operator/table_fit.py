"""Whether a document that is not in force yet fits the tables that it selects: a filter that compares a number with text would
have every event of its table set aside, while the tenant looks ready.

Only for new documents. A document in force stays so when a table changes under it: the router then sets rows aside, and
reports it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from libs.tenants.fit import misfits
from libs.tenants.idle_patterns import idle_pattern_mistake, idle_patterns
from libs.tenants.known_tables import KnownTables
from libs.types.tenant import TenantSpec
from services.tenant_operator.objects import TenantConfigMap, TenantRecord

_TOLD: Final = 10
"""One filter may fit none of a hundred tables."""


def is_new(config_map: TenantConfigMap, record: TenantRecord | None) -> bool:
    """Whether the document is another than the one in force."""
    return record is None or record.text != config_map.text


def idle_mistakes(spec: TenantSpec, tables: Mapping[str, KnownTables]) -> list[str]:
    """Patterns that hide, filter or rename, and match nothing. ``tables``: all that are known of each source, captured or not;
    of a source without any nothing is judged."""
    return _few(
        f"sources[{index}].{idle_pattern_mistake(found)}"
        for index, selection in enumerate(spec.sources)
        if (known := tables.get(selection.name)) and known.all
        for found in idle_patterns(selection, known)
    )


def fit_mistakes(spec: TenantSpec, tables: Mapping[str, KnownTables]) -> list[str]:
    """Why the document cannot be applied to tables that it selects. ``tables``: by source; of one that is not there, nothing is
    known."""
    return _few(_mistakes(spec, tables))


def _few(mistakes: Iterable[str]) -> list[str]:
    found = list(mistakes)
    more = [f"sources: and {len(found) - _TOLD} more of the kind"] if len(found) > _TOLD else []
    return [*found[:_TOLD], *more]


def _mistakes(spec: TenantSpec, tables: Mapping[str, KnownTables]) -> Iterator[str]:
    for index, selection in enumerate(spec.sources):
        if selection.name not in tables:
            continue
        for table in tables[selection.name].selected(selection):
            for misfit in misfits(spec, selection, table):
                place = ".".join(filter(None, (f"sources[{index}]", misfit.place)))
                yield f"{place}: table {table.table_id}: {misfit.why}"
