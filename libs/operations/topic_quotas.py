"""How many topics a home's tenants may have: ``topic_quotas.yaml``, which its router reads at the start.

The router refuses a topic beyond; a document that needs more by the tables that there are now is refused before it is put into
force. One that is in force is not judged again.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from libs.mesh.documents import Documents, read_documents
from libs.mesh.home import Home
from libs.mesh.source_tables import is_captured
from libs.operations.tenant_explain import known_tables
from libs.tenants.topic_need import quota_mistakes, topic_count
from libs.types.table import TableId, TableSchema
from libs.types.tenant import TenantSpec

_GRANTED_IN: Final = "topic_quotas.yaml of the home"


def too_many_topics(home: Home, spec: TenantSpec) -> list[str]:
    """Why the tenant may not have the topics that its document needs, place first. Asks the sources, where there is a quota; of
    one that does not answer, nothing is counted."""
    if not home.topic_quotas_file.exists():
        return []
    documents = read_documents(home)
    if documents.topic_quotas_mistakes:
        return list(documents.topic_quotas_mistakes)
    most, most_partitions = documents.topic_quotas.of(spec.tenant), documents.topic_quotas.partitions_of(spec.tenant)
    if (most is None and most_partitions is None) or documents.tenants.get(spec.tenant) == spec:
        return []
    tables = {
        selection.name: known_tables(home, selection.name, documents.sources[selection.name])[0]
        for selection in spec.sources
        if selection.name in documents.sources
    }
    return quota_mistakes(spec, captured_tables(documents, tables), most, most_partitions, granted_in=_GRANTED_IN)


def quota_note(
    documents: Documents, spec: TenantSpec, tables: Mapping[str, Mapping[TableId, TableSchema]]
) -> str | None:
    """How many topics a document needs of those that its tenant may have; None: there is no limit. ``tables``: by source."""
    most = documents.topic_quotas.of(spec.tenant)
    return None if most is None else topic_count(spec, captured_tables(documents, tables), most)


def captured_tables(
    documents: Documents, tables: Mapping[str, Mapping[TableId, TableSchema]]
) -> Mapping[str, Sequence[TableSchema]]:
    """Of each source's tables those that its reader reads."""
    return {
        source: [schema for table_id, schema in known.items() if is_captured(documents.sources[source], table_id)]
        for source, known in tables.items()
    }
