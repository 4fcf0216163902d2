"""Why a tenant gets a table, a row or a column, or does not: which rule of its document did it, and in which line.

``headwater tenant explain`` prints it, and ``tenant plan`` compares it before and after. A column's fate is asked of
``tenant_view``, by which the router works too; this module adds the rule that decided.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from libs.config.yaml_text import DocumentLines
from libs.errors import InvalidSettings
from libs.events.names import tenant_row_topic
from libs.mesh.documents import SourceDocument
from libs.mesh.source_tables import is_captured
from libs.mesh.view import MeshView, SeenSource
from libs.tenants.config_map import refused_table_name
from libs.tenants.fit import misfits
from libs.tenants.place import nearest
from libs.tenants.view import column_withheld_by, is_selected, tenant_view
from libs.tenants.words import mask_text
from libs.types.patterns import any_table, matches_column, matches_table
from libs.types.table import Column, TableId, TableSchema
from libs.types.tenant import SourceSelection, TenantSpec
from libs.types.warehouse import warehouse_table
from libs.warehouse.dialect import DIALECTS
from libs.warehouse.fitness import unfit_because

NONE_REFUSED: Final[Mapping[str, str]] = {}
_SET_ASIDE_NOW: Final = "routers set its events aside as dead letters: "


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a document."""

    says: str
    where: str = ""
    """``tenants/acme.yaml:12``; empty: no document says so, it is the default."""


DELIVERED: Final = "delivered"


class ColumnFate(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of one column."""

    name: str
    """At the source."""
    fate: str
    """``delivered``, ``left out``, or ``masked: `` and how."""
    seen_as: str | None
    """Its name at the tenant; None where it is left out."""
    because: Rule | None = None
    """None: no rule names it."""


class TableFate(msgspec.Struct, frozen=True, kw_only=True):
    """The fate of one table."""

    source: str
    table: str
    """``database.table``."""
    is_delivered: bool
    because: tuple[Rule, ...]
    """Which rule includes it, or all that keep it away."""
    topic: str | None = None
    warehouse: str | None = None
    warehouse_table: str | None = None
    rows: tuple[Rule, ...] = ()
    """Which rows come: all of these hold. Empty: every row."""
    columns: tuple[ColumnFate, ...] = ()
    """Empty: the table's columns are not known."""
    refused: tuple[str, ...] = ()
    """Why its events are set aside, or the sink parks it; each ends with the remedy."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One table, by each source that has it."""

    tenant: str
    tables: tuple[TableFate, ...]
    notes: tuple[str, ...] = ()


def explain(view: MeshView, tenant: str, table: str) -> Explanation:
    """Why ``table`` (``table``, ``database.table`` or ``source.database.table``) does or does not come to ``tenant``.

    Raises:
        InvalidSettings: no such tenant, or no source that it names has such a table; the message names the nearest.
        BrokerUnavailable: Kafka, which is asked for a cluster's tables, does not answer.
    """
    found = view.tenant(tenant)
    sources = {selection.name: view.source(selection.name) for selection in found.spec.sources}
    explanation = explain_table(found.spec, found.lines, table, sources, found.refused_tables)
    notes = [*explanation.notes, *found.notes]
    named = {refused_table_name(fate.source, fate.table) for fate in explanation.tables}
    if others := sorted(found.refused_tables.keys() - named):
        notes.append(f"routers set aside the events of other tables too: {', '.join(others)}")
    delivered = {fate.source for fate in explanation.tables if fate.is_delivered}
    notes += dict.fromkeys(unseen for source in sorted(delivered) if (unseen := sources[source].unseen) is not None)
    return msgspec.structs.replace(explanation, notes=tuple(notes))


def explain_table(
    spec: TenantSpec,
    lines: DocumentLines,
    table: str,
    sources: Mapping[str, SeenSource],
    refused_tables: Mapping[str, str] = NONE_REFUSED,
) -> Explanation:
    """As ``explain``, of a document and the known tables of each source that it names. ``refused_tables``: the routers'
    reports, by
    ``refused_table_name``.

    Raises:
        InvalidSettings: no source has such a table; the message names the nearest.
    """
    fates: list[TableFate] = []
    notes: list[str] = []
    names: list[str] = []
    for index, selection in enumerate(spec.sources):
        seen = sources[selection.name]
        notes += [seen.note] if seen.note else []
        found = [table_id for table_id in seen.schemas if table in _names(selection.name, table_id)]
        names += [name for table_id in seen.schemas for name in _names(selection.name, table_id)[:2]]
        if seen.note and not found and (guess := _table_id(table)) is not None:
            found = [guess]
        for table_id in found:
            fate = table_fate(spec, index, lines, table_id, seen.schemas.get(table_id), seen.document)
            fates.append(_with_refusal(fate, refused_tables.get(refused_table_name(selection.name, table_id))))
    if not fates:
        named = ", ".join(selection.name for selection in spec.sources)
        hint = nearest(table, sorted(set(names)))
        raise InvalidSettings(
            f"table {table}", [f"is in none of tenant {spec.tenant}'s sources ({named}); {hint}", *notes]
        )
    return Explanation(tenant=spec.tenant, tables=tuple(fates), notes=tuple(notes))


def _with_refusal(fate: TableFate, reason: str | None) -> TableFate:
    """With the routers' refusals of the table, without those that are found here."""
    if reason is None:
        return fate
    others = (each for each in fate.refused if reason not in each)
    return msgspec.structs.replace(fate, refused=(f"{_SET_ASIDE_NOW}{reason}", *others))


def table_fate(
    spec: TenantSpec,
    index: int,
    lines: DocumentLines,
    table_id: TableId,
    schema: TableSchema | None,
    document: SourceDocument | None,
) -> TableFate:
    """What becomes of one table by the ``index``-th source of a tenant's document; without a schema, its rows and columns
    stay unknown."""
    selection = spec.sources[index]
    name = str(table_id)
    reasons = [*_against_table(selection, f"sources[{index}]", lines, name)]
    if document is not None and not is_captured(document, table_id):
        reasons.append(Rule(says=f"source {selection.name} does not capture it (its include_tables, exclude_tables)"))
    if reasons:
        return TableFate(source=selection.name, table=name, is_delivered=False, because=tuple(reasons))
    assert is_selected(selection, table_id)
    fate = TableFate(
        source=selection.name,
        table=name,
        is_delivered=True,
        because=(_includes(selection, f"sources[{index}]", lines, name),),
        topic=tenant_row_topic(spec, selection.name, table_id),
        rows=tuple(_row_rules(selection, f"sources[{index}]", lines, name)),
    )
    if spec.sink is not None:
        place = str(warehouse_table(spec.tenant, selection.name, table_id))
        fate = msgspec.structs.replace(fate, warehouse=spec.sink.warehouse, warehouse_table=place)
    if schema is None:
        return fate
    return msgspec.structs.replace(
        fate,
        columns=tuple(_column_fates(spec, index, lines, schema)),
        refused=tuple(_refusals(spec, selection, schema)),
    )


def _against_table(selection: SourceSelection, place: str, lines: DocumentLines, name: str) -> Iterator[Rule]:
    if not any_table(selection.include_tables, name):
        patterns = ", ".join(f"'{pattern}'" for pattern in selection.include_tables) or "nothing"
        yield Rule(says=f"no include_tables matches it: {patterns}", where=_where(lines, f"{place}.include_tables"))
    for index, pattern in enumerate(selection.exclude_tables):
        if matches_table(pattern, name):
            where = _where(lines, f"{place}.exclude_tables[{index}]")
            yield Rule(says=f"exclude_tables '{pattern}'", where=where)


def _includes(selection: SourceSelection, place: str, lines: DocumentLines, name: str) -> Rule:
    index = next(n for n, pattern in enumerate(selection.include_tables) if matches_table(pattern, name))
    where = _where(lines, f"{place}.include_tables[{index}]") if f"{place}.include_tables" in lines.lines else ""
    return Rule(says=f"include_tables '{selection.include_tables[index]}'", where=where)


def _row_rules(selection: SourceSelection, place: str, lines: DocumentLines, name: str) -> Iterator[Rule]:
    for index, row_filter in enumerate(selection.row_filters):
        if matches_table(row_filter.tables, name):
            yield Rule(
                says=f"only where {row_filter.where}", where=_where(lines, f"{place}.row_filters[{index}].where")
            )
    if selection.skip_operations:
        skipped = ", ".join(operation.value for operation in selection.skip_operations)
        yield Rule(says=f"no operations {skipped}", where=_where(lines, f"{place}.skip_operations"))
    if selection.skip_unchanged_updates:
        yield Rule(
            says="no updates that change none of the tenant's columns",
            where=_where(lines, f"{place}.skip_unchanged_updates"),
        )


def _column_fates(spec: TenantSpec, index: int, lines: DocumentLines, schema: TableSchema) -> Iterator[ColumnFate]:
    selection, place = spec.sources[index], f"sources[{index}]"
    view = tenant_view(schema, selection, spec.format.names_of_fields)
    for column in schema.columns:
        because = _against_column(selection, place, lines, schema, column)
        if because is not None:
            yield ColumnFate(name=column.name, fate="left out", seen_as=None, because=because)
            continue
        seen_as, mask = view.names[column.name], view.masks.get(column.name)
        if mask is not None:
            number = selection.masks.index(mask)
            because = Rule(says=f"masks '{mask.columns}'", where=_where(lines, f"{place}.masks[{number}]"))
            yield ColumnFate(name=column.name, fate=f"masked: {mask_text(mask)}", seen_as=seen_as, because=because)
        else:
            qualified = f"{schema.table_id}.{column.name}"
            renames = [n for n, each in enumerate(selection.rename_columns) if matches_column(each.columns, qualified)]
            renamed = None
            if renames:
                says = f"rename_columns '{selection.rename_columns[renames[0]].columns}'"
                renamed = Rule(says=says, where=_where(lines, f"{place}.rename_columns[{renames[0]}]"))
            yield ColumnFate(name=column.name, fate=DELIVERED, seen_as=seen_as, because=renamed)


def _against_column(
    selection: SourceSelection, place: str, lines: DocumentLines, schema: TableSchema, column: Column
) -> Rule | None:
    by = column_withheld_by(selection, schema, column)
    if by is None:
        return None
    if by.name == "unknown_columns":
        says = "unknown_columns: refuse, and the column came later than its table: name it in include_columns or masks"
        return Rule(says=says, where=_where(lines, f"{place}.unknown_columns"))
    if by.index is None:
        patterns = ", ".join(f"'{pattern}'" for pattern in selection.include_columns) or "nothing"
        return Rule(says=f"no include_columns matches it: {patterns}", where=_where(lines, f"{place}.include_columns"))
    pattern = selection.exclude_columns[by.index]
    return Rule(says=f"exclude_columns '{pattern}'", where=_where(lines, f"{place}.exclude_columns[{by.index}]"))


def _refusals(spec: TenantSpec, selection: SourceSelection, schema: TableSchema) -> Iterator[str]:
    mistakes = [misfit.why for misfit in misfits(spec, selection, schema)]
    yield from (f"its events would be set aside as dead letters: {mistake}" for mistake in mistakes)
    if spec.sink is not None and not mistakes and spec.sink.warehouse in DIALECTS:
        seen = tenant_view(schema, selection, spec.format.names_of_fields).schema
        unfit = unfit_because(seen, spec.sink.mode, spec.sink.deletes, DIALECTS[spec.sink.warehouse])
        if unfit is not None:
            yield f"the sink would park it: {unfit}"


def _where(lines: DocumentLines, place: str) -> str:
    line = lines.line_of(place)
    return "" if line is None else f"{lines.file}:{line}"


def _names(source: str, table_id: TableId) -> tuple[str, str, str]:
    return table_id.table, str(table_id), f"{source}.{table_id}"


def _table_id(name: str) -> TableId | None:
    """Of a name as a person writes it, where no source can be asked."""
    parts: Sequence[str] = name.split(".")
    return TableId(database=parts[-2], table=parts[-1]) if len(parts) in (2, 3) and all(parts) else None
