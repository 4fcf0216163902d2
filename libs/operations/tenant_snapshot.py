"""The rows that a source has already, for one tenant alone: for ``headwater tenant snapshot``, and for ``joining``."""

import uuid
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from libs.config.connections import KafkaSettings
from libs.errors import InvalidSettings, ServiceUnavailable
from libs.mesh.documents import DtsDocument, SourceDocument
from libs.mesh.home import Home
from libs.mesh.source_tables import is_captured, source_tables
from libs.mesh.view import MeshView
from libs.operations.topic_quotas import is_read
from libs.source.signal_topic import send_signal
from libs.source.signals import snapshot_for_tenant
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


def ask_for_tenant(view: MeshView, tenant: str, names: Sequence[str]) -> list[AskedSnapshot]:
    """Have the readers copy tables for ``tenant`` alone: ``names``, or all that it sees.

    Raises:
        InvalidSettings: no such tenant or table, or a source that cannot; every reason is listed, nothing is asked for.
        ServiceUnavailable: the tables of a source are not known; the message has the remedy.
        NotUp: it is a home's mesh, and no stack runs.
        BrokerUnavailable: Kafka does not answer; try again.
    """
    kafka, spec = view.kafka, view.tenant(tenant).spec
    sources = {selection.name: view.source(selection.name) for selection in spec.sources}
    if unknown := [seen.note for seen in sources.values() if seen.note is not None]:
        raise ServiceUnavailable(f"snapshot for {tenant}: {'; '.join(unknown)}")
    captured = {
        name: sorted((each for each in seen.schemas if is_read(seen, each)), key=str) for name, seen in sources.items()
    }
    documents = {name: seen.document for name, seen in sources.items() if seen.document is not None}
    chosen = choose_tables(spec, documents, captured, names)
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
