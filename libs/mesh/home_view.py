"""The mesh of a home folder (``MeshView``), whether or not its stack runs."""

from dataclasses import dataclass, replace

from libs.config.connections import KafkaSettings
from libs.config.yaml_text import DocumentLines
from libs.errors import InvalidSettings
from libs.mesh.documents import Documents, SourceDocument
from libs.mesh.home import Home
from libs.mesh.mesh import stack_mesh
from libs.mesh.source_tables import SourceTables, known_tables, source_tables
from libs.mesh.view import FoundTenant, InForce, SeenSource
from libs.tenants.place import nearest
from libs.tenants.topic_quotas import TopicQuotaSettings


@dataclass(frozen=True, slots=True)
class HomeView:
    """See ``MeshView``."""

    home: Home
    documents: Documents

    @property
    def kafka(self) -> KafkaSettings:
        return stack_mesh(self.home).kafka

    @property
    def topic_quotas(self) -> TopicQuotaSettings:
        return self.documents.topic_quotas

    def tenant(self, name: str) -> FoundTenant:
        spec = self.documents.tenants.get(name)
        if spec is None:
            hint = nearest(name, sorted(self.documents.tenants))
            raise InvalidSettings(f"tenant {name}", [f"has no good document in tenants/; {hint}"])
        return FoundTenant(spec, lines_in_home(self.documents, name))

    def in_force(self) -> InForce:
        notes = tuple(f"a tenant's document has mistakes: {mistake}" for mistake in self.documents.tenant_mistakes)
        return InForce({name: self.tenant(name) for name in self.documents.tenants}, notes)

    def source(self, name: str) -> SeenSource:
        document = self.documents.sources.get(name)
        if document is None:
            return SeenSource(note=f"source {name} has no document in sources/: nothing of it comes")
        schemas, note = known_tables(self.home, name, document)
        return SeenSource(schemas, note, document)

    def source_tables(self, name: str) -> tuple[SourceDocument, SourceTables]:
        document = self.documents.sources.get(name)
        if document is None:
            hint = nearest(name, sorted(self.documents.sources))
            raise InvalidSettings(f"source {name}", [f"has no document in sources/; {hint}"])
        return document, source_tables(self.home, name, document)


def lines_in_home(documents: Documents, tenant: str) -> DocumentLines:
    """Where the values of a tenant's document stand, by its file's path in the home."""
    lines = documents.tenant_lines.get(tenant, DocumentLines())
    return replace(lines, file=f"tenants/{lines.file}")
