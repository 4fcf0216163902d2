"""The rows that a source has already, for one tenant alone: for ``headwater tenant snapshot``, and for ``joining``."""

import uuid
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from libs.config.connections import KafkaSettings
from libs.errors import InvalidSettings
from libs.mesh.documents import Documents, DtsDocument, SourceDocument
from libs.mesh.home import Home
from libs.mesh.mesh import MeshSettings, stack_kafka
from libs.mesh.recorded_tables import recorded_tables
from libs.mesh.source_tables import is_captured, source_tables
from libs.operations.explain_elsewhere import document_elsewhere
from libs.source.signal_topic import send_signal
from libs.source.signals import snapshot_for_tenant
from libs.tenants.config_map import TenantObject
from libs.tenants.place import nearest
from libs.tenants.view import is_selected
from libs.types.table import TableId
from libs.types.tenant import TenantSpec

TAKES_NO_SIGNALS = "is a DTS subscription, whose reader takes no signals"


class AskedSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A copy that a source's reader was asked for."""

    source: str
    tables: tuple[str, ...]
    """Names ``database.table``."""
    signal_id: str
    signal_offset: int
    """In ``headwater.signals``."""


def captured_tables(home: Home, source: str, document: SourceDocument) -> list[TableId]:
    """The tables that a source's reader reads. Raises as ``source_tables``."""
    known = source_tables(home, source, document).schemas
    return sorted((table_id for table_id in known if is_captured(document, table_id)), key=str)


def choose_tables(
    spec: TenantSpec,
    sources: Mapping[str, SourceDocument],
    captured: Mapping[str, Sequence[TableId]],
    names: Sequence[str],
) -> dict[str, tuple[str, ...]]:
    """By source, a tenant's part of ``captured``: all of it, or the tables that ``names`` mean.

    A name is ``table``, ``database.table`` or ``source.database.table``. ``sources``: the documents, as far as they are known.

    Raises:
        InvalidSettings: with every impossible name, the reason and the remedy.
    """
    seen = {
        (selection.name, table_id)
        for selection in spec.sources
        for table_id in captured.get(selection.name, ())
        if is_selected(selection, table_id)
    }
    mistakes: list[str] = []
    chosen = set(seen) if not names else set()
    for name in names:
        found = {(source, table_id) for source, table_id in seen if name in _names(source, table_id)}
        if len(found) > 1:
            several = ", ".join(sorted(f"{source}.{table_id}" for source, table_id in found))
            mistakes.append(f"{name}: is not unique for tenant {spec.tenant}; name one of {several}")
        elif not found:
            known = sorted({each for source, table_id in seen for each in _names(source, table_id)[:2]})
            mistakes.append(f"{name}: tenant {spec.tenant} sees no such table; {nearest(name, known)}")
        chosen |= found
    if not names and not seen:
        mistakes.append(f"tenant {spec.tenant} sees no table of its sources; `headwater tenant explain` says why")
    mistakes += [
        f"source {source} {TAKES_NO_SIGNALS}: there are no rows of it for one tenant alone"
        for source in sorted({source for source, _ in chosen})
        if isinstance(sources.get(source), DtsDocument)
    ]
    if mistakes:
        raise InvalidSettings(f"snapshot for {spec.tenant}", mistakes)
    return {
        source: tuple(sorted(str(table_id) for of, table_id in chosen if of == source))
        for source in sorted({source for source, _ in chosen})
    }


def ask_for_tenant(home: Home, documents: Documents, tenant: str, names: Sequence[str]) -> list[AskedSnapshot]:
    """Have the readers copy tables for ``tenant`` alone: ``names``, or all that it sees. The stack must be up.

    Raises:
        InvalidSettings: no such tenant or table, or a source that cannot; every reason is listed, nothing is asked for.
        BrokerUnavailable: Kafka does not answer; try again.
        ServiceUnavailable: schema_history does not answer; try again.
    """
    spec = documents.tenants.get(tenant)
    if spec is None:
        known = sorted(documents.tenants)
        raise InvalidSettings(f"tenant {tenant}", [f"has no good document in tenants/; {nearest(tenant, known)}"])
    captured = {
        selection.name: captured_tables(home, selection.name, documents.sources[selection.name])
        for selection in spec.sources
        if selection.name in documents.sources
    }
    return _ask(stack_kafka(home), tenant, choose_tables(spec, documents.sources, captured, names))


def ask_for_tenant_elsewhere(
    settings: MeshSettings, found: TenantObject, tenant: str, names: Sequence[str]
) -> list[AskedSnapshot]:
    """The same of a mesh elsewhere, by the tenant's document that was found, and the tables that schema_history recorded.

    Raises as ``ask_for_tenant``, and AccessDenied: the user may not read the topic of schema_history.
    """
    spec = document_elsewhere(found, tenant).spec
    wanted = {selection.name for selection in spec.sources}
    recorded = recorded_tables(settings.kafka, settings.schema_history_topic, wanted)
    if recorded is None:
        lack = f"Kafka has no topic {settings.schema_history_topic}: name it by schema_history_topic in the file for --mesh"
        raise InvalidSettings(f"snapshot for {tenant}", [lack])
    captured = {source: sorted(tables, key=str) for source, tables in recorded.by_source.items()}
    return _ask(settings.kafka, tenant, choose_tables(spec, {}, captured, names))


def _ask(kafka: KafkaSettings, tenant: str, chosen: Mapping[str, Sequence[str]]) -> list[AskedSnapshot]:
    return [send_for_tenant(kafka, tenant, source, tables, str(uuid.uuid4())) for source, tables in chosen.items()]


def send_for_tenant(
    kafka: KafkaSettings, tenant: str, source: str, tables: Iterable[str], signal_id: str
) -> AskedSnapshot:
    """The signal; durable when this returns. Raises BrokerUnavailable."""
    names = tuple(tables)
    offset = send_signal(kafka, source, snapshot_for_tenant(signal_id, tenant, names))
    return AskedSnapshot(source=source, tables=names, signal_id=signal_id, signal_offset=offset)


def _names(source: str, table_id: TableId) -> tuple[str, str, str]:
    return table_id.table, str(table_id), f"{source}.{table_id}"
