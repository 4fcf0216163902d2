"""A mesh elsewhere (``MeshView``), by its file for ``--mesh``.

Documents come from their keeper, tables from the topic of schema_history.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from libs.config.connections import KafkaSettings
from libs.errors import AccessDenied, InvalidSettings
from libs.mesh.cluster_documents import documents_in_force
from libs.mesh.documents import SourceDocument, VitessDocument
from libs.mesh.mesh_settings import MeshSettings, mesh_sources
from libs.mesh.recorded_tables import RecordedTables, recorded_tables
from libs.mesh.source_tables import SourceTables
from libs.mesh.tenant_objects import BY_HAND, object_in_cluster
from libs.mesh.view import FoundTenant, InForce, SeenSource
from libs.source.vitess.columns import with_key_index
from libs.tenants.config_map import DEGRADED, DOCUMENT_KEY, READY, TenantObject, record_name
from libs.tenants.document import read_tenant
from libs.tenants.place import nearest
from libs.tenants.row_filter import condition_mistakes
from libs.tenants.topic_quotas import NO_TOPIC_QUOTAS, TopicQuotaSettings

_UNSEEN: Final = (
    "which tables a source's reader reads (its include_tables in the release's values) is not seen from here"
)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """See ``MeshView``."""

    settings: MeshSettings
    file: str
    """As a person named the file for ``--mesh``."""
    given: TenantObject | None = None
    """The document that a person gave in place of a ConfigMap in the cluster."""

    @property
    def kafka(self) -> KafkaSettings:
        return self.settings.kafka

    @property
    def topic_quotas(self) -> TopicQuotaSettings:
        return NO_TOPIC_QUOTAS

    def tenant(self, name: str) -> FoundTenant:
        return found_tenant(self._object(name), name)

    def in_force(self) -> InForce:
        tenants, notes = documents_in_force(self.settings)
        return InForce({name: FoundTenant(spec) for name, spec in tenants.items()}, tuple(notes))

    def source(self, name: str) -> SeenSource:
        try:
            recorded = self._recorded(name)
        except (AccessDenied, InvalidSettings) as error:
            because = "; ".join(error.mistakes) if isinstance(error, InvalidSettings) else str(error)
            return SeenSource(note=f"source {name}: its tables are not known: {because}", unseen=_UNSEEN)
        return SeenSource(recorded.by_source[name], unseen=_UNSEEN)

    def source_tables(self, name: str) -> tuple[SourceDocument, SourceTables]:
        sources = mesh_sources(self.settings)
        if name not in sources:
            hint = nearest(name, sorted(sources))
            raise InvalidSettings(f"source {name}", [f"is none of the sources of {self.file}; {hint}"])
        document, known = sources[name], self._recorded(name).by_source[name]
        charsets = {schema.table_id.database: schema.charset or "utf8mb4" for schema in known.values()}
        is_vitess = isinstance(document, VitessDocument)
        schemas = {table_id: with_key_index(each) if is_vitess else each for table_id, each in known.items()}
        return document, SourceTables(schemas, "schema_history", charsets)

    def _object(self, tenant: str) -> TenantObject:
        if self.given is not None:
            return self.given
        if self.settings.kubernetes is None:
            remedy = f"have kubectl be asked for its ConfigMap, by 'kubernetes: {{}}' there, {BY_HAND}"
            raise InvalidSettings(self.file, [f"does not say where tenant {tenant}'s document is: {remedy}"])
        return object_in_cluster(self.settings.kubernetes, tenant)

    def _recorded(self, source: str) -> RecordedTables:
        """With ``source`` among its sources. Raises InvalidSettings, AccessDenied, BrokerUnavailable."""
        topic = self.settings.schema_history_topic
        recorded = recorded_tables(self.settings.kafka, topic, {source})
        if recorded is None:
            fault = (
                f"Kafka has no topic {topic}, which schema_history makes at its first start; look whether it runs, or name "
                "its topic by schema_history_topic in the file for --mesh"
            )
            raise InvalidSettings(f"source {source}", [fault])
        if source not in recorded.by_source:
            hint = nearest(source, sorted({*recorded.by_source, *recorded.others}))
            fault = (
                f"topic {topic} has nothing of it, and a reader records each table before its first row; look whether its "
                f"reader runs ({hint})"
            )
            raise InvalidSettings(f"source {source}", [fault])
        return recorded


def found_tenant(found: TenantObject, tenant: str) -> FoundTenant:
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
    return FoundTenant(parsed.spec, parsed.lines, found.refused_tables, tuple(_notes(found)))


def _notes(found: TenantObject) -> Iterator[str]:
    if not found.is_config_map:
        yield f"the tenant's ConfigMap says whether {found.place} is in force, and what routers refuse of it"
    elif found.state is None and not found.is_record:
        yield (
            f"ConfigMap {found.place}: no tenant-operator has reported its state: look whether one runs and watches its "
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
        yield f"a router does not take the document, and goes by the former one: {found.refused_document}"
    if found.sink_wait:
        yield f"its tables stand still in its Spark job, and go on by themselves once that is mended: {found.sink_wait}"
    for fault in found.faults:
        yield f"{fault.severity.value}, {fault.scope}: {fault.id}: {fault.happened} {fault.remedy}"
