"""How many topics a home's tenants may have: ``topic_quotas.yaml``, which its router reads at the start.

The router refuses a topic beyond; a document that needs more by the tables that there are now is refused before it is put into
force. One that is in force is not judged again.
"""

from collections.abc import Mapping
from typing import Final

from libs.mesh.documents import read_documents
from libs.mesh.home import Home
from libs.mesh.home_view import HomeView
from libs.mesh.source_tables import is_captured
from libs.mesh.view import SeenSource
from libs.tenants.known_tables import KnownTables
from libs.tenants.topic_need import quota_mistakes, topic_count
from libs.tenants.topic_quotas import TopicQuotaSettings
from libs.types.table import TableId
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
    view = HomeView(home, documents)
    sources = {selection.name: view.source(selection.name) for selection in spec.sources}
    return quota_mistakes(spec, captured_tables(sources), most, most_partitions, granted_in=_GRANTED_IN)


def quota_note(quotas: TopicQuotaSettings, spec: TenantSpec, sources: Mapping[str, SeenSource]) -> str | None:
    """How many topics a document needs of those that its tenant may have; None: there is no limit."""
    most = quotas.of(spec.tenant)
    return None if most is None else topic_count(spec, captured_tables(sources), most)


def captured_tables(sources: Mapping[str, SeenSource]) -> Mapping[str, KnownTables]:
    """Of each source's tables those that its reader reads, as far as that is known."""
    return {
        name: KnownTables(each for table_id, each in seen.schemas.items() if is_read(seen, table_id))
        for name, seen in sources.items()
    }


def is_read(seen: SeenSource, table_id: TableId) -> bool:
    """Whether a source's reader reads the table, as far as that is known."""
    return seen.document is None or is_captured(seen.document, table_id)
