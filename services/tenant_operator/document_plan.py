"""The changes from the document in force to a good new one, in words: in Kafka, Spark jobs and the tenant's tables.

The tables are those that its sources have now; one that comes later and matches is delivered too.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from libs.kafka.tenant_access import prefix_of, user_of
from libs.tenants.known_tables import KnownTables
from libs.tenants.topic_need import topic_count
from libs.tenants.view import filters_of, tenant_view
from libs.tenants.words import mask_text, setting_changes
from libs.types.table import TableSchema
from libs.types.tenant import SourceSelection, TenantSpec
from services.tenant_operator.judge import Planned
from services.tenant_operator.kafka_plan import GROUP, RIGHTS, TOPIC, topics_of
from services.tenant_operator.settings import QuotaSettings

_AS_THEY_ARE: Final = "delivered"
_SHOWN: Final = frozenset(
    (
        "name",
        "include_tables",
        "exclude_tables",
        "row_filters",
        "include_columns",
        "exclude_columns",
        "rename_columns",
        "masks",
    )
)
"""Members of a selection whose effect is listed table by table."""
_NAMED: Final = 50
"""Most tables of a source that are listed by name; a document may select thousands."""


def plan_lines(planned: Planned, *, quotas: QuotaSettings, most_topics: int | None = None) -> list[str]:
    """A line for each thing; none: nothing would change. ``quotas``: of its Kafka user, ``most_topics``: of its topics, by the
    operator's settings."""
    spec, old = planned.would_be.spec, planned.in_force
    return [
        *([] if old is not None else _access(spec.tenant, quotas)),
        *_topics(spec, old),
        *([] if old is not None or most_topics is None else [topic_count(spec, planned.tables, most_topics)]),
        *_job(planned),
        *([] if old is None else _settings(old, spec)),
        *_tables(planned),
    ]


def _access(tenant: str, quotas: QuotaSettings) -> Iterator[str]:
    on = {kind: ", ".join(operation for each, operation in RIGHTS if each == kind) for kind in (TOPIC, GROUP)}
    yield (
        f"Kafka user {user_of(tenant)}: {on[TOPIC]} on topics, {on[GROUP]} on consumer groups that begin with "
        f"{prefix_of(tenant)}"
    )
    limits = [f"{name} {value:,.10g}" for name, value in msgspec.structs.asdict(quotas).items() if value is not None]
    yield f"its quotas: {', '.join(limits) or 'none'}"


def _topics(spec: TenantSpec, old: TenantSpec | None) -> Iterator[str]:
    become = {topic.name for topic in topics_of(spec)}
    were = set() if old is None else {topic.name for topic in topics_of(old)}
    if made := sorted(become - were):
        yield f"topics made: {', '.join(made)}; those of rows come with each table's first row"
    if left := sorted(were - become):
        yield f"topics that nothing is written to any more: {', '.join(left)}"


def _job(planned: Planned) -> Iterator[str]:
    before = None if planned.in_force is None else planned.in_force.sink
    after = planned.would_be.spec.sink
    if after is not None and before is None:
        kind = "of its own" if planned.would_be.wants_own_job else "that it shares with others until it is large"
        yield f"a place in a Spark job {kind}, which writes its tables into {after.warehouse}"
    if after is None and before is not None:
        yield f"its place in a Spark job goes; its tables in {before.warehouse} stay as they are"


def _settings(old: TenantSpec, new: TenantSpec) -> Iterator[str]:
    is_sink_reported = old.sink is None or new.sink is None
    yield from (line for line in setting_changes(old, new) if not (is_sink_reported and line.startswith("sink")))


def _tables(planned: Planned) -> Iterator[str]:
    spec, old = planned.would_be.spec, planned.in_force
    selected = {selection.name: selection for selection in spec.sources}
    were = {} if old is None else {selection.name: selection for selection in old.sources}
    for name in dict.fromkeys((*selected, *were)):
        if name not in selected:
            yield f"source {name}: nothing of it comes any more"
            continue
        if old is not None and were.get(name) == selected[name] and old.format == spec.format:
            continue
        if name in were:
            yield from _rest(name, were[name], selected[name])
        if name not in planned.tables:
            yield f"source {name}: its tables are not known now"
            continue
        before = {} if old is None or name not in were else _delivered(old, were[name], planned.tables[name])
        yield from _differences(name, before, _delivered(spec, selected[name], planned.tables[name]))


def _rest(source: str, old: SourceSelection, new: SourceSelection) -> Iterator[str]:
    """Differences between selections that show in no table."""
    were, become = msgspec.to_builtins(old), msgspec.to_builtins(new)
    for name in become:
        if name not in _SHOWN and were[name] != become[name]:
            yield f"source {source}: {name}: {json.dumps(were[name])} → {json.dumps(become[name])}"


_Delivered = Mapping[str, Mapping[str, str]]
"""By table, the effect on its rows and on each of its columns."""


def _differences(source: str, before: _Delivered, after: _Delivered) -> Iterator[str]:
    if not after:
        yield f"source {source}: no table matches now"
    if new := sorted(after.keys() - before.keys()):
        yield f"source {source}: further tables that match now: {_named(new)}"
    if gone := sorted(before.keys() - after.keys()):
        yield f"source {source}: tables that come no more: {_named(gone)}"
    for table in sorted(after):
        were = before.get(table, {})
        for part, fate in after[table].items():
            if fate != were.get(part, _AS_THEY_ARE):
                yield f"{table}{part}: {fate}" + (f"; now {were[part]}" if part in were else "")


def _named(tables: Sequence[str]) -> str:
    more = f" and {len(tables) - _NAMED} more" if len(tables) > _NAMED else ""
    return ", ".join(tables[:_NAMED]) + more


def _delivered(spec: TenantSpec, selection: SourceSelection, tables: KnownTables) -> _Delivered:
    return {str(table.table_id): dict(_parts(spec, selection, table)) for table in tables.selected(selection)}


def _parts(spec: TenantSpec, selection: SourceSelection, table: TableSchema) -> Iterator[tuple[str, str]]:
    wheres = [each.where for _, each in filters_of(selection, table)]
    yield ", its rows", " and ".join(wheres) or _AS_THEY_ARE
    view = tenant_view(table, selection, spec.format.names_of_fields)
    for column in table.columns:
        name = column.name
        if name in view.excluded:
            yield f".{name}", "left out"
            continue
        fate = f"masked, {mask_text(view.masks[name])}" if name in view.masks else _AS_THEY_ARE
        yield f".{name}", fate if view.names[name] == name else f"{fate}, called {view.names[name]}"
