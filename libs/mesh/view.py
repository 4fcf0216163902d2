"""The port of commands that read a mesh: documents in force, and sources' tables.

``HomeView`` is the mesh of a home folder, ``ClusterView`` one that a file for ``--mesh`` names. A command is one code path over
either. ``stored_tables`` finds a tenant's tables in the warehouse.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from libs.config.connections import KafkaSettings
from libs.config.yaml_text import DocumentLines
from libs.mesh.documents import SourceDocument
from libs.mesh.source_tables import SourceTables
from libs.tenants.topic_quotas import TopicQuotaSettings
from libs.types.table import TableId, TableSchema
from libs.types.tenant import TenantSpec


@dataclass(frozen=True, slots=True)
class SeenSource:
    """A source as it was found to be."""

    schemas: Mapping[TableId, TableSchema] = field(default_factory=dict)
    """Its tables, as they are now."""
    note: str | None = None
    """Why none is known."""
    document: SourceDocument | None = None
    """None: which tables its reader reads is not known."""
    unseen: str | None = None
    """The part of its tables that is not seen from here; said of one that is delivered."""


@dataclass(frozen=True, slots=True)
class FoundTenant:
    """A tenant's document, and its reports."""

    spec: TenantSpec
    lines: DocumentLines = field(default_factory=DocumentLines)
    """Where its values stand."""
    refused_tables: Mapping[str, str] = field(default_factory=dict)
    """The routers' reasons, by ``refused_table_name``."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InForce:
    """All tenants' documents that are in force."""

    tenants: Mapping[str, FoundTenant]
    notes: tuple[str, ...] = ()
    """About others."""


class MeshView(Protocol):
    """A mesh. Every method blocks."""

    @property
    def kafka(self) -> KafkaSettings:
        """Its Kafka. Raises NotUp: it is a home's, and no stack runs."""
        ...

    @property
    def topic_quotas(self) -> TopicQuotaSettings:
        """How many topics tenants may have, as far as it is seen from here."""
        ...

    def tenant(self, name: str) -> FoundTenant:
        """Its document.

        Raises:
            InvalidSettings: there is none, or it has mistakes; the message has the nearest name.
            AccessDenied, ClusterUnavailable: the keeper of the documents refuses, or does not answer.
        """
        ...

    def in_force(self) -> InForce:
        """Every tenant's document. Raises as ``tenant``, and ServiceUnavailable."""
        ...

    def source(self, name: str) -> SeenSource:
        """A source and its tables; one that cannot be asked is a note.

        Raises BrokerUnavailable: Kafka, which is to be asked for a cluster's, does not answer.
        """
        ...

    def source_tables(self, name: str) -> tuple[SourceDocument, SourceTables]:
        """A source's document and its tables, for a statement that is to change them.

        Raises:
            InvalidSettings: there is no such source, or its tables are not known; the message has the remedy.
            SourceUnavailable, AccessDenied, BrokerUnavailable, ServiceUnavailable: its tables cannot be asked for.
        """
        ...
