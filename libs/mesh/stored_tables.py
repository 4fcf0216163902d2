"""A tenant's tables in the warehouse, of a home's mesh or of one elsewhere, read without Spark."""

from collections.abc import Sequence
from typing import Any

import msgspec

from libs.errors import InvalidSettings
from libs.mesh.cluster_view import ClusterView
from libs.mesh.cluster_warehouses import table_store
from libs.mesh.home_view import HomeView
from libs.mesh.home_warehouses import warehouse_of
from libs.tenants.place import nearest
from libs.tenants.view import is_selected
from libs.types.tenant import TenantSpec
from libs.types.warehouse import warehouse_table
from libs.warehouse_readers.warehouse import QueryFailed, TableStore, TenantTable, tables_of


def stored_tables(view: HomeView | ClusterView, tenant: str) -> tuple[TableStore, Sequence[TenantTable]]:
    """The warehouse of a tenant, and its tables there. Blocks.

    A home's warehouse lists its tables itself. Elsewhere they are those that the sink has made of the tables that the document
    in force takes in now: a catalog elsewhere may hold other tables too.

    Raises:
        InvalidSettings: nothing was ever written there, or it is not known where it is.
        ServiceUnavailable, AccessDenied, ClusterUnavailable: the warehouse, or the documents' keeper, does not answer, or
            refuses.
        BrokerUnavailable: Kafka, which is asked for a cluster's sources, does not answer.
    """
    if isinstance(view, HomeView):
        warehouse = warehouse_of(view.home, view.documents, tenant)
        return warehouse, tables_of(warehouse.tables(), tenant)
    spec = spec_in_force(view, tenant)
    if spec.sink is None:
        raise InvalidSettings(f"tenant {tenant}", ["has topics only: its document has no sink"])
    store = table_store(view.settings.warehouses, spec.sink.warehouse)
    if store is None:
        lack = f"is in {spec.sink.warehouse}, which warehouses of {view.file} does not name"
        raise InvalidSettings(f"tenant {tenant}", [lack])
    sources = {selection.name: view.source(selection.name) for selection in spec.sources}
    tables = [
        TenantTable(tenant, selection.name, table_id, warehouse_table(tenant, selection.name, table_id))
        for selection in spec.sources
        for table_id in sources[selection.name].schemas
        if is_selected(selection, table_id)
    ]
    made = [each for each in tables if store.load(each.place) is not None]
    if not made:
        notes = [seen.note for seen in sources.values() if seen.note is not None]
        raise InvalidSettings(f"tenant {tenant}", ["has no table in the warehouse", *notes])
    return store, made


def reached_offsets(warehouse: TableStore, table: TenantTable) -> dict[int, int]:
    """By Kafka partition of the table's topic, after the last event that the newest commit had taken in; empty: none has."""
    found: dict[int, int] = {}
    for row in progress_rows(warehouse, [table]):
        if (row["source"], row["table"]) == (table.source, str(table.table_id)):
            for partition, end in msgspec.json.decode(row["offsets"] or b"{}", type=dict[int, int]).items():
                found[partition] = max(end, found.get(partition, 0))
    return found


def progress_rows(warehouse: TableStore, tables: Sequence[TenantTable]) -> list[dict[str, Any]]:
    """The progress in the newest commits (``PROGRESS_SCHEMA``); nothing before the first one."""
    try:
        rows: list[dict[str, Any]] = warehouse.progress(tables).to_pylist()
    except QueryFailed:  # PostgreSQL's view of it comes with the first batch
        return []
    return rows


def spec_in_force(view: ClusterView, tenant: str) -> TenantSpec:
    """A tenant's document. Raises InvalidSettings: it has none in force; and as ``ClusterView.in_force``."""
    in_force = view.in_force()
    if tenant not in in_force.tenants:
        hint = nearest(tenant, sorted(in_force.tenants))
        raise InvalidSettings(f"tenant {tenant}", [f"has no document in force; {hint}", *in_force.notes])
    return in_force.tenants[tenant].spec
