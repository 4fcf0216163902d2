"""The changes of a tenant's document against the one in force: ``headwater tenant plan``.

Nothing is written. The tables are those that the sources have now; a table that comes later and matches is delivered too.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from libs.config.yaml_text import DocumentLines
from libs.events.names import dead_letter_topic, schema_changes_topic, table_schemas_topic, transactions_topic
from libs.mesh.documents import Documents
from libs.mesh.home import Home
from libs.mesh.home_view import HomeView
from libs.mesh.view import FoundTenant, MeshView, SeenSource
from libs.operations.kept_versions import version_text, versions
from libs.operations.tenant_explain import DELIVERED, ColumnFate, TableFate, table_fate
from libs.operations.topic_quotas import is_read, quota_note
from libs.tenants.document import read_tenant
from libs.tenants.idle_patterns import idle_pattern_mistake, idle_patterns
from libs.tenants.known_tables import KnownTables
from libs.tenants.view import beside_hidden, is_plain, is_selected, tenant_view
from libs.tenants.words import setting_changes
from libs.types.table import TableId, TableSchema
from libs.types.tenant import SourceSelection, TenantSpec

NEW: Final = "new"
GONE: Final = "gone"
CHANGED: Final = "changed"
AS_BEFORE: Final = "as before"


class PlannedTable(msgspec.Struct, frozen=True, kw_only=True):
    """One table of the tenant, before or after."""

    change: str
    """``new``, ``gone``, ``changed`` or ``as before``."""
    fate: TableFate
    """After; of a table that goes, before."""
    differences: tuple[str, ...] = ()
    """Of a changed one, in words."""


class TenantPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a document."""

    tenant: str
    is_new: bool
    settings: tuple[str, ...] = ()
    """Its differences in format, topics and sink."""
    topics_made: tuple[str, ...] = ()
    topics_left: tuple[str, ...] = ()
    """They stay in Kafka, and nothing is written to them any more."""
    tables: tuple[PlannedTable, ...] = ()
    notes: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()
    """Patterns that match nothing, place first: the document is refused for them."""
    uncovered: tuple[str, ...] = ()
    """Columns (``source: database.table.column``) that are withheld or masked now, and would be delivered as they are."""

    @property
    def changes_nothing(self) -> bool:
        """The document equals the one in force."""
        unchanged = all(table.change == AS_BEFORE for table in self.tables)
        return unchanged and not (self.is_new or self.settings or self.topics_made or self.topics_left)

    @property
    def is_refused(self) -> bool:
        """Whether a pattern matches nothing, a table's events would be set aside, or the table parked."""
        return bool(self.mistakes) or any(table.fate.refused for table in self.tables if table.change != GONE)


def plan_tenant(
    view: MeshView, spec: TenantSpec, lines: DocumentLines, *, before: FoundTenant | None = None
) -> TenantPlan:
    """The changes of ``spec``, table by table and column by column. Asks the sources; one that does not answer is a note.

    ``before``: the document in force; None: the tenant is new.
    """
    notes: list[str] = [] if before is None else [*before.notes]
    old = None if before is None else before.spec
    old_lines = DocumentLines() if before is None else before.lines
    names = dict.fromkeys(selection.name for each in (old, spec) if each is not None for selection in each.sources)
    sources = {name: view.source(name) for name in names}
    notes += [seen.note for seen in sources.values() if seen.note]
    tables = {name: seen.schemas for name, seen in sources.items()}
    fates = {} if old is None else _fates(old, old_lines, sources)
    after = _fates(spec, lines, sources)
    notes += _uncaptured(spec, sources)
    planned = tuple(_planned(fates, after))
    old_topics = set() if old is None else _topics(old, fates.values())
    new_topics = _topics(spec, after.values())
    notes += _existing_rows(spec, planned)
    if (counted := quota_note(view.topic_quotas, spec, sources)) is not None:
        notes.append(counted)
    if spec.sink is not None and any(
        _columns_differ(old_fate, after[key]) for key, old_fate in fates.items() if key in after
    ):
        notes.append(
            "where a table's columns change, write it again in the warehouse afterwards "
            "(docs/sinks/repair.md, 'Write tables again'): "
            "rows of before and after are of one schema version"
        )
    notes += dict.fromkeys(unseen for name, _ in after if (unseen := sources[name].unseen) is not None)
    return TenantPlan(
        tenant=spec.tenant,
        is_new=old is None,
        settings=() if old is None else tuple(setting_changes(old, spec)),
        topics_made=tuple(sorted(new_topics - old_topics)),
        topics_left=tuple(sorted(old_topics - new_topics)),
        tables=planned,
        notes=tuple(notes),
        mistakes=tuple(lines.locate(list(idle_mistakes(spec, tables)))),
        uncovered=tuple(_uncovered(fates, after)),
    )


def idle_mistakes(spec: TenantSpec, tables: Mapping[str, Mapping[TableId, TableSchema]]) -> Iterator[str]:
    """Patterns of ``spec`` that match nothing, by place; of a source whose tables are not known, or that has none yet, none."""
    for index, selection in enumerate(spec.sources):
        if known := tables.get(selection.name):
            for found in idle_patterns(selection, KnownTables(known.values())):
                yield f"sources[{index}].{idle_pattern_mistake(found)}"


def _uncovered(before: "_Fates", after: "_Fates") -> Iterator[str]:
    for key in sorted(before.keys() & after.keys()):
        hidden = {column.name for column in before[key].columns if column.fate != DELIVERED}
        for column in after[key].columns:
            if column.name in hidden and column.fate == DELIVERED:
                yield f"{key[0]}: {key[1]}.{column.name}"


def _existing_rows(spec: TenantSpec, planned: Iterable[PlannedTable]) -> Iterator[str]:
    """The effect on existing rows."""
    changes = {table.change for table in planned if table.fate.is_delivered}
    if NEW in changes and spec.snapshot.on_joining:
        yield "the rows that new tables have already are copied to this tenant alone (snapshot.on_joining)"
        changes.discard(NEW)
    if changes & {NEW, CHANGED}:
        yield (
            "rows that exist already are not delivered again by this: "
            f"`headwater tenant snapshot {spec.tenant} TABLE` does that, for this tenant alone"
        )


def document_before(home: Home, documents: Documents, tenant: str) -> FoundTenant | None:
    """The tenant's document in a home's force; if it is broken, its newest version; None: the tenant is new."""
    if tenant in documents.tenants:
        return HomeView(home, documents).tenant(tenant)
    known = versions(home, tenant)
    if not known:
        return None
    newest = read_tenant(version_text(known[-1]), file=f"version {known[-1].number}", mistakes=[])
    if newest is None:
        return None
    note = f"tenants/ has no good document of {tenant}: compared with {newest.lines.file}"
    return FoundTenant(newest.spec, newest.lines, notes=(note,))


_Fates = Mapping[tuple[str, str], TableFate]
"""Of the tables that are delivered, by source and ``database.table``."""


def _fates(spec: TenantSpec, lines: DocumentLines, sources: Mapping[str, SeenSource]) -> _Fates:
    fates = {}
    for index, selection in enumerate(spec.sources):
        seen = sources[selection.name]
        for table_id, schema in sorted(seen.schemas.items()):
            fate = table_fate(spec, index, lines, table_id, schema, seen.document)
            if fate.is_delivered:
                fates[selection.name, fate.table] = fate
    return fates


def _uncaptured(spec: TenantSpec, sources: Mapping[str, SeenSource]) -> Iterator[str]:
    """Tables that the document asks for and the source's own document keeps away; and sources of which nothing comes."""
    for selection in spec.sources:
        seen = sources[selection.name]
        if not seen.schemas:
            continue
        wanted = [table_id for table_id in sorted(seen.schemas) if is_selected(selection, table_id)]
        kept_away = [str(table_id) for table_id in wanted if not is_read(seen, table_id)]
        if kept_away and selection.include_tables != (".*",):
            shown = ", ".join(kept_away[:5]) + (f" and {len(kept_away) - 5} more" if len(kept_away) > 5 else "")
            yield f"source {selection.name} does not capture {shown}: sources/{selection.name}.yaml leaves it out"
        for table_id in wanted:
            table = seen.schemas[table_id]
            shown = ", ".join(beside_hidden(table, tenant_view(table, selection, spec.format.names_of_fields)))
            if shown:
                yield (
                    f"{table_id}: generated and JSON columns {shown} are delivered as they are, beside columns that are "
                    "hidden: they may be computed of these, or hold copies; mask or exclude them too"
                )
        yield from _namesakes(spec, selection, [seen.schemas[table_id] for table_id in wanted])
        if len(kept_away) == len(wanted):
            yield f"source {selection.name}: no table matches now"


def _namesakes(spec: TenantSpec, selection: SourceSelection, tables: Iterable[TableSchema]) -> Iterator[str]:
    """Columns that are delivered as they are, and called as one that is masked elsewhere: a copy, or a view made a table."""
    views = [(table, tenant_view(table, selection, spec.format.names_of_fields)) for table in tables]
    masked = {name.lower(): f"{table.table_id}.{name}" for table, view in views for name in view.masks}
    for table, view in views:
        for column in table.columns:
            if (like := masked.get(column.name.lower())) is not None and is_plain(view, column.name):
                yield (
                    f"{table.table_id}.{column.name} is delivered as it is, and {like} is masked: mask it too, if it holds "
                    "the same"
                )


def _planned(before: _Fates, after: _Fates) -> Iterator[PlannedTable]:
    for key in sorted({*before, *after}):
        if key not in before:
            yield PlannedTable(change=NEW, fate=after[key])
        elif key not in after:
            yield PlannedTable(change=GONE, fate=before[key])
        else:
            differences = tuple(_differences(before[key], after[key]))
            change = CHANGED if differences else AS_BEFORE
            yield PlannedTable(change=change, fate=after[key], differences=differences)


def _differences(old: TableFate, new: TableFate) -> Iterator[str]:
    for label, was, becomes in (
        ("topic", old.topic, new.topic),
        ("rows", _rows_text(old), _rows_text(new)),
        ("table", _place_text(old), _place_text(new)),
    ):
        if was != becomes:
            yield f"{label}: {was} → {becomes}"
    were = {column.name: _column_text(column) for column in old.columns}
    for column in new.columns:
        if (becomes := _column_text(column)) != were.get(column.name, becomes):
            yield f"{column.name}: {were[column.name]} → {becomes}"


def _columns_differ(old: TableFate, new: TableFate) -> bool:
    were = {column.name: _column_text(column) for column in old.columns}
    return any(_column_text(column) != were.get(column.name, _column_text(column)) for column in new.columns)


def _rows_text(fate: TableFate) -> str:
    return " and ".join(rule.says for rule in fate.rows) or "all"


def _place_text(fate: TableFate) -> str:
    return f"{fate.warehouse} {fate.warehouse_table}" if fate.warehouse else "topics only"


def _column_text(column: ColumnFate) -> str:
    return f"{column.fate} as {column.seen_as}" if column.seen_as not in (None, column.name) else column.fate


def _topics(spec: TenantSpec, fates: Iterable[TableFate]) -> set[str]:
    topics = {fate.topic for fate in fates if fate.topic is not None}
    topics |= {dead_letter_topic(spec.tenant), table_schemas_topic(spec.tenant)}
    for selection in spec.sources:
        if spec.topics.schema_changes:
            topics.add(schema_changes_topic(spec.tenant, selection.name))
        if spec.topics.transactions:
            topics.add(transactions_topic(spec.tenant, selection.name))
    return topics
