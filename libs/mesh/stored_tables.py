"""A tenant's tables in the warehouse, of a home's mesh or of one elsewhere, read without Spark."""

from collections.abc import Sequence

from libs.errors import InvalidSettings
from libs.mesh.cluster_view import ClusterView
from libs.mesh.home_view import HomeView
from libs.mesh.warehouses import warehouse_of
from libs.mesh.warehouses_elsewhere import table_store
from libs.tenants.place import nearest
from libs.tenants.view import is_selected
from libs.types.tenant import TenantSpec
from libs.types.warehouse import warehouse_table
from libs.warehouse_readers.warehouse import TableStore, TenantTable, tables_of


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
    spec = _spec_in_force(view, tenant)
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


def _spec_in_force(view: ClusterView, tenant: str) -> TenantSpec:
    in_force = view.in_force()
    if tenant not in in_force.tenants:
        hint = nearest(tenant, sorted(in_force.tenants))
        raise InvalidSettings(f"tenant {tenant}", [f"has no document in force; {hint}", *in_force.notes])
    return in_force.tenants[tenant].spec
