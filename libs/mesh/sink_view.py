"""The port of commands that act on a tenant's stored tables: how far its sink got, and its answers.

``libs.mesh.home_sinks`` reads the files of a home's Spark job; ``libs.mesh.cluster_sinks`` asks a mesh elsewhere.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from libs.config.connections import KafkaSettings
from libs.mesh.catch_up import Behind
from libs.mesh.documents import DtsDocument, SourceDocument
from libs.sink_state.progress import SinkProgress
from libs.sink_state.resync import ResyncAnswer
from libs.types.checkpoint import Checkpoint
from libs.types.tenant import TenantSpec


class SinkView(Protocol):
    """The sinks of a mesh. Every method blocks, and raises HeadwaterError where a part of the mesh does not answer."""

    @property
    def kafka(self) -> KafkaSettings:
        """The mesh's."""
        ...

    @property
    def notes_dir(self) -> Path:
        """Where a command notes its progress, so that a killed one is continued."""
        ...

    @property
    def logs_dir(self) -> Path:
        """For the logs of jobs that a command starts."""
        ...

    def spec(self, tenant: str) -> TenantSpec:
        """Its document in force. Raises InvalidSettings: there is none; the message has the nearest name."""
        ...

    def job_warehouse(self, tenant: str) -> tuple[str, Mapping[str, Any]]:
        """The warehouse of its tables: the name, and ``warehouses.<name>`` of a Spark job's settings, secrets in clear.

        Raises InvalidSettings: nothing was ever written there, or it is not known from here.
        """
        ...

    def no_copy_of(self, source: str) -> str | None:
        """Why the rows of a source cannot be asked for by a signal; None: they can, as far as is seen from here."""
        ...

    def progress(self, tenant: str) -> SinkProgress | None:
        """The tables that the sink has written; None: it has written none."""
        ...

    def by_source(self, sources: Iterable[str]) -> dict[str, list[Checkpoint] | None]:
        """As ``libs.mesh.catch_up.Hops``."""
        ...

    def behind(self, tenant: str, topic: str, ends: Mapping[int, int]) -> Behind | None:
        """The sink's work that is left of ``topic`` up to ``ends``, be the table parked or not; None: nothing.

        Raises ServiceUnavailable: the sink is halted, and waiting is vain; the message has the remedy.
        """
        ...

    def resync_answer(self, tenant: str, request_id: str) -> ResyncAnswer | None:
        """The sink's answer; None: there is none yet."""
        ...


def takes_no_signals(source: str, document: SourceDocument) -> str | None:
    """Why no signal reaches the reader of a source; None: one does."""
    if isinstance(document, DtsDocument):
        return f"the reader of {source} takes no signals (a DTS subscription): copy the source again"
    return None
