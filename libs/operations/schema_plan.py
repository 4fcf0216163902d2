"""The effect of a DDL statement on every tenant's tables, before it is run at the source: ``headwater schema plan``.

    schemas as they are ▶ statement, as the reader will ▶ tenant_view, as the router will ▶ plan_change, as the sink will

Nothing is written. The tables are taken to be as the newest version makes them: columns that a policy left out earlier, or
put beside another one, are known to the warehouse alone.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from libs.mesh.source_tables import as_read, is_captured
from libs.mesh.view import MeshView
from libs.mysql.ddl import TableChange, TableChangeKind
from libs.operations.statements import dialect_of
from libs.tenants.view import TenantView, is_selected, tenant_view
from libs.types.patterns import matches_table
from libs.types.table import TableSchema
from libs.types.tenant import ChangeKind, SinkMode, SinkSettings, SourceSelection, TenantSpec
from libs.types.warehouse import warehouse_table
from libs.warehouse.dialect import DIALECTS, Dialect
from libs.warehouse.fitness import unfit_because
from libs.warehouse.json_variants import with_variants
from libs.warehouse.schema_changes import Plan, aside_name, changes_between, first_columns, plan_change, plan_creation


class TablePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of one statement on one table of one tenant."""

    tenant: str
    statement: str
    table: str
    """``database.table`` at the source, after the statement."""
    is_received: bool = True
    """Whether the tenant gets the table."""
    warehouse: str | None = None
    """None: the tenant has topics only."""
    warehouse_table: str | None = None
    events: tuple[str, ...] = ()
    """How the schema of its events changes."""
    actions: tuple[str, ...] = ()
    """The sink's changes of the warehouse's table."""
    ignored: tuple[str, ...] = ()
    """Changes that the sink does not deliver, by policy."""
    refused: tuple[str, ...] = ()
    """Why the table is parked, or its events are set aside; each ends with the remedy."""


class PlanReport(msgspec.Struct, frozen=True, kw_only=True):
    """The plans of all statements."""

    source: str
    schemas_from: str
    """``schema_history`` or ``source``."""
    statements: tuple[str, ...]
    plans: tuple[TablePlan, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether a table would be parked, or its events set aside."""
        return any(plan.refused for plan in self.plans)


def plan_statements(view: MeshView, source: str, statements: Sequence[str], *, database: str = "") -> PlanReport:
    """The effect of ``statements``, one after the other; ``database``: of tables whose name has none.

    Raises:
        InvalidSettings: no such source, a statement is wrong or names a table that is not there, or the source is a keyspace
            of Vitess and the stack is down.
        SourceUnavailable, AccessDenied: the stack is down, and the source cannot be read.
        BrokerUnavailable, ServiceUnavailable, ClusterUnavailable: of a mesh elsewhere, Kafka or the documents' keeper.
    """
    document, tables = view.source_tables(source)
    effect_of = dialect_of(document)
    in_force = view.in_force()
    plans: list[TablePlan] = []
    notes = [*in_force.notes]
    for statement in statements:
        effect = effect_of(tables, statement, database, source)
        notes += [
            f"{table_id}: no event carries the rows that come or go, so tenants' tables stay as they are; "
            f"`headwater resync` builds them again: {statement}"
            for table_id in effect.unseen
            if is_captured(document, table_id)
        ]
        if not effect.changes:
            notes.append(f"changes no table that is known: {statement}")
        for change in effect.changes:
            known = change.previous_id or change.table_id
            before, after = tables.schemas.get(known), None
            if change.kind in (TableChangeKind.DROP, TableChangeKind.RENAME):
                tables.schemas.pop(known, None)
            if change.schema is not None:
                after = _next_version(as_read(document, change.schema), before, change)
                tables.schemas[change.table_id] = after
            if not is_captured(document, change.table_id) and not is_captured(document, known):
                notes.append(f"{change.table_id} is not captured by source {source}: {statement}")
                continue
            if before is not None and after is not None and before.columns == after.columns and before.key == after.key:
                notes += [f"changes nothing of {change.table_id} that events or tables show: {statement}"] * (
                    change.kind is TableChangeKind.ALTER
                )
            for spec in (_with_known_warehouse(found.spec) for found in in_force.tenants.values()):
                for selection in spec.sources:
                    if selection.name == source:
                        plans.append(_tenant_plan(spec, selection, source, statement, change, before, after))
    return PlanReport(
        source=source,
        schemas_from=tables.schemas_from,
        statements=tuple(statements),
        plans=tuple(sorted(plans, key=lambda plan: (statements.index(plan.statement), plan.tenant, plan.table))),
        notes=tuple(dict.fromkeys(notes)),
    )


def _next_version(schema: TableSchema, before: TableSchema | None, change: TableChange) -> TableSchema:
    version = 1 if before is None or change.kind is TableChangeKind.RENAME else before.version + 1
    return msgspec.structs.replace(schema, version=version)


def _with_known_warehouse(spec: TenantSpec) -> TenantSpec:
    """One whose warehouse is none has topics only until its document is mended; its mistake is reported."""
    is_known = spec.sink is None or spec.sink.warehouse in DIALECTS
    return spec if is_known else msgspec.structs.replace(spec, sink=None)


def _tenant_plan(
    spec: TenantSpec,
    selection: SourceSelection,
    source: str,
    statement: str,
    change: TableChange,
    before: TableSchema | None,
    after: TableSchema | None,
) -> TablePlan:
    known = change.previous_id or change.table_id
    gets_old, gets_new = is_selected(selection, known), is_selected(selection, change.table_id)
    plan = TablePlan(tenant=spec.tenant, statement=statement, table=str(change.table_id))
    if not gets_new and not (gets_old and known != change.table_id):
        return msgspec.structs.replace(plan, is_received=False)
    if spec.sink is not None:
        place = warehouse_table(spec.tenant, source, change.table_id)
        plan = msgspec.structs.replace(plan, warehouse=spec.sink.warehouse, warehouse_table=str(place))
    old = None if before is None or not gets_old else _view(before, spec, selection)
    match change.kind:
        case TableChangeKind.DROP:
            return _described(plan, events=["no events any more"], actions=["it stays as it is"])
        case TableChangeKind.TRUNCATE:
            return _described(plan, events=["one event with op t"], actions=[_truncated(spec.sink)])
        case TableChangeKind.RENAME:
            gone = [f"{known} has no events any more"] * gets_old
            if not gets_new or after is None:
                return _described(plan, events=gone, actions=[f"the table of {known} stays as it is"])
            plan = _described(plan, events=gone, actions=[f"the table of {known} stays as it is"] * gets_old)
            return _created(plan, spec, selection, after)
        case _:
            assert after is not None
            if old is None:
                return _created(plan, spec, selection, after)
            return _changed(plan, spec, selection, old, _view(after, spec, selection))


def _view(schema: TableSchema, spec: TenantSpec, selection: SourceSelection) -> TenantView:
    """As the tenant's sink has it."""
    view = tenant_view(schema, selection, spec.format.names_of_fields)
    if spec.sink is None:
        return view
    return replace(view, schema=with_variants(view.schema, spec.sink.json_as_variant))


def _was_parked(old: TenantView, sink: SinkSettings) -> bool:
    """The sink never made the table."""
    return unfit_because(old.schema, sink.mode, sink.deletes, _dialect(sink)) is not None


def _created(plan: TablePlan, spec: TenantSpec, selection: SourceSelection, after: TableSchema) -> TablePlan:
    view = _view(after, spec, selection)
    events = [*plan.events, f"a new table of {len(view.schema.columns)} columns"]
    if view.mistakes:
        return _described(plan, events=events, refused=[_set_aside(view)])
    return _made(_described(plan, events=events, actions=plan.actions), spec.sink, view.schema)


def _made(plan: TablePlan, sink: SinkSettings | None, schema: TableSchema) -> TablePlan:
    """With the sink's steps to make the table, or why it does not."""
    if sink is None:
        return plan
    dialect = _dialect(sink)
    if unfit := unfit_because(schema, sink.mode, sink.deletes, dialect):
        return msgspec.structs.replace(plan, refused=(*plan.refused, unfit))
    created = plan_creation(schema, sink.schema_changes)
    columns = ", ".join(f"{item.name} {dialect.shown(dialect.type_of(item))}" for item in schema.columns)
    actions = () if created.refused or created.ignored else (f"create it with its first row: {columns}",)
    return msgspec.structs.replace(
        plan,
        actions=(*plan.actions, *actions),
        ignored=created.ignored,
        refused=(*plan.refused, *created.refused),
    )


def _changed(
    plan: TablePlan, spec: TenantSpec, selection: SourceSelection, old: TenantView, new: TenantView
) -> TablePlan:
    refused = [_set_aside(new)] if new.mistakes else []
    gone = {name.lower() for name in old.names} - {name.lower() for name in new.names}
    table = str(new.schema.table_id)
    for row_filter in selection.row_filters:
        if matches_table(row_filter.tables, table) and (lost := sorted(_words(row_filter.where) & gone)):
            refused.append(
                f"{table}: the tenant's row filter {row_filter.where!r} asks for {', '.join(lost)}, which goes: its events "
                "would be set aside as dead letters; change the filter first"
            )
    changes = changes_between(old.schema, new.schema, DIALECTS["delta"] if spec.sink is None else _dialect(spec.sink))
    events = [str(change) for change in changes]
    if spec.sink is None or new.mistakes:
        return _described(plan, events=events, refused=refused)
    if _was_parked(old, spec.sink):
        return _made(_described(plan, events=events, refused=refused), spec.sink, new.schema)
    sink, dialect = spec.sink, _dialect(spec.sink)
    if unfit := unfit_because(new.schema, sink.mode, sink.deletes, dialect):
        refused.append(unfit)
    elif sink.mode is not SinkMode.APPEND and (key := _other_key(old.schema, new.schema)):
        refused.append(key)
    stored = first_columns(old.schema, dialect)
    done = plan_change(stored, old.schema.version, old.schema, new.schema, dialect, sink.schema_changes)
    refused.extend(done.refused)
    actions = [] if refused else list(_actions(done, old.schema, dialect))
    stays = [
        f"column {change.column} stays, NULL in rows from then on"
        for change in changes
        if change.kind is ChangeKind.COLUMN_DROPPED
    ]
    return _described(
        plan,
        events=events,
        actions=actions + ([] if refused else stays),
        ignored=() if refused else done.ignored,
        refused=refused,
    )


def _actions(plan: Plan, before: TableSchema, dialect: Dialect) -> Iterator[str]:
    types = {name: column.type for name, column in first_columns(before, dialect).items()}
    for old, former in plan.set_aside:
        aside = aside_name(old, former)
        yield f"rename column {old}, which the source drops, to {aside}: another one has its name from then on"
        types[aside] = types.pop(old)
    for old, column in plan.renamed:
        yield f"rename column {old} to {column.name}"
        types[column.name] = types.pop(old)
    for name, column in plan.widened:
        yield f"widen column {name}: {dialect.shown(types[name])} → {dialect.shown(dialect.type_of(column))}"
    for name, column in plan.added:
        beside = "" if name == column.name else f" beside {column.name}, which is NULL in rows from then on"
        yield f"add column {name} {dialect.shown(dialect.type_of(column))}{beside}"


def _other_key(old: TableSchema, new: TableSchema) -> str | None:
    called = {column.name: column.name_at(old.version) for column in new.columns}
    if tuple(called.get(name, name) for name in new.key) == old.key:
        return None
    return (
        f"{new.table_id} is merged by the key ({','.join(old.key)}), which becomes ({','.join(new.key)}); write the tenant's "
        "tables again afterwards (docs/sinks/repair.md, 'Write tables again')"
    )


def _truncated(sink: SinkSettings | None) -> str:
    if sink is None:
        return "nothing"
    return {
        SinkMode.MIRROR: "its rows go, or are marked (sink.deletes)",
        SinkMode.APPEND: "a row that says so",
        SinkMode.HISTORY: "its current versions end",
    }[sink.mode]


def _set_aside(view: TenantView) -> str:
    return f"{view.schema.table_id}: its events would be set aside as dead letters: {'; '.join(view.mistakes)}"


def _dialect(sink: SinkSettings) -> Dialect:
    return DIALECTS[sink.warehouse]


def _words(condition: str) -> set[str]:
    return set(re.findall(r"[a-z0-9_$\u0080-\U0010ffff]+", condition.lower()))


def _described(
    plan: TablePlan,
    *,
    events: Sequence[str] = (),
    actions: Sequence[str] = (),
    ignored: Sequence[str] = (),
    refused: Sequence[str] = (),
) -> TablePlan:
    has_sink = plan.warehouse is not None
    return msgspec.structs.replace(
        plan,
        events=tuple(events),
        actions=tuple(actions) if has_sink else (),
        ignored=tuple(ignored),
        refused=tuple(refused),
    )
