"""``headwater tenant explain`` of a tenant of a mesh elsewhere: as on one machine, from Kubernetes and Kafka.

The document is the team's ConfigMap, tables are those that schema_history recorded, and the operator has the routers' refusals.
"""

from collections.abc import Iterator, Mapping

import msgspec

from libs.errors import AccessDenied, InvalidSettings
from libs.mesh.mesh import MeshSettings
from libs.mesh.recorded_tables import RecordedTables, recorded_tables
from libs.operations.tenant_explain import Explanation, SeenSource, explain_table
from libs.tenants.config_map import DEGRADED, DOCUMENT_KEY, READY, TenantObject, record_name, refused_table_name
from libs.tenants.document import ParsedTenant, read_tenant
from libs.tenants.place import nearest
from libs.tenants.row_filter import condition_mistakes
from libs.types.tenant import TenantSpec


def explain_elsewhere(mesh: MeshSettings, found: TenantObject, tenant: str, table: str) -> Explanation:
    """Why ``table`` does or does not come to ``tenant`` by the document that was found. Blocks.

    Raises:
        InvalidSettings: the document has mistakes or is another tenant's, or no source that it names has such a table.
        BrokerUnavailable: Kafka does not answer.
    """
    parsed = document_elsewhere(found, tenant)
    sources = _sources(mesh, parsed.spec)
    explanation = explain_table(parsed.spec, parsed.lines, table, sources, found.refused_tables)
    notes = [*explanation.notes, *_notes(found, explanation)]
    return msgspec.structs.replace(explanation, notes=tuple(notes))


def document_elsewhere(found: TenantObject, tenant: str) -> ParsedTenant:
    """The document of ``tenant`` in what was found. Raises InvalidSettings: it has mistakes, or is another tenant's."""
    subject = f"ConfigMap {found.place}" if found.is_config_map else found.place
    if found.text is None:
        raise InvalidSettings(subject, [f"has no {DOCUMENT_KEY!r}: put the tenant's document there"])
    mistakes: list[str] = []
    shown_as = DOCUMENT_KEY if found.is_config_map else found.place
    parsed = read_tenant(found.text, file=shown_as, mistakes=mistakes, check_condition=condition_mistakes)
    if parsed is None:
        last_good = (
            f"its last good version, if there is one, is in ConfigMap {record_name(tenant)} of the release's namespace, which "
            "--document takes too"
        )
        raise InvalidSettings(subject, [*mistakes, *([last_good] if found.is_config_map else [])])
    if parsed.spec.tenant != tenant:
        raise InvalidSettings(subject, [f"is the document of tenant {parsed.spec.tenant!r}, not of {tenant!r}"])
    return parsed


def _sources(mesh: MeshSettings, spec: TenantSpec) -> Mapping[str, SeenSource]:
    topic, names = mesh.schema_history_topic, {selection.name for selection in spec.sources}
    try:
        recorded = recorded_tables(mesh.kafka, topic, names)
    except AccessDenied as error:
        return {name: SeenSource(note=f"source {name}: its tables are not known: {error}") for name in names}
    if recorded is None:
        fault = (
            f"Kafka has no topic {topic}, which schema_history makes at its first start; look whether it runs, or name its "
            "topic by schema_history_topic in the file for --mesh"
        )
        return {name: SeenSource(note=f"source {name}: its tables are not known: {fault}") for name in names}
    return {name: _seen(recorded, name, topic) for name in names}


def _seen(recorded: RecordedTables, source: str, topic: str) -> SeenSource:
    if source in recorded.by_source:
        return SeenSource(recorded.by_source[source])
    known = sorted({*recorded.by_source, *recorded.others})
    fault = f"topic {topic} has nothing of it, and a reader records each table before its first row"
    return SeenSource(
        note=f"source {source}: its tables are not known: {fault}; look whether its reader runs ({nearest(source, known)})"
    )


def _notes(found: TenantObject, explanation: Explanation) -> Iterator[str]:
    if not found.is_config_map:
        yield f"whether {found.place} is in force, and what routers refuse of it, the tenant's ConfigMap tells"
    elif found.state is None and not found.is_record:
        yield (
            f"ConfigMap {found.place}: no tenant-operator has told how it stands: look whether one runs and watches its "
            "namespace, and whether it has the label"
        )
    elif found.state not in (None, READY, DEGRADED):
        yield f"ConfigMap {found.place} is {found.state}: {found.message}"
    yield from (f"routers leave {name} out: {reason}" for name, reason in found.refused_topics.items())
    yield from (
        f"all of source {name} waits at the routers, and comes in order once that is mended: {reason}"
        for name, reason in found.refused_records.items()
    )
    if found.refused_document:
        yield f"a router does not take the document, and goes by what it was told before: {found.refused_document}"
    if found.sink_wait:
        yield f"its tables stand still in its Spark job, and go on by themselves once that is mended: {found.sink_wait}"
    for fault in found.faults:
        yield f"{fault.severity.value}, {fault.scope}: {fault.id}: {fault.happened} {fault.remedy}"
    told = {refused_table_name(fate.source, fate.table) for fate in explanation.tables}
    if others := sorted(found.refused_tables.keys() - told):
        yield f"routers set aside the events of other tables too: {', '.join(others)}"
    if any(fate.is_delivered for fate in explanation.tables):
        yield "which tables a source's reader reads (its include_tables in the release's values) is not seen from here"
