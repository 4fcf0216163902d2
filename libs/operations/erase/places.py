"""The port of an erasure: the places where a mesh holds something of a tenant.

``HomePlaces`` empties those of a home itself. Elsewhere the tenant's ConfigMap goes, and the mesh's own parts follow
(``libs.operations.erase.cluster_places``).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from libs.errors import TransientError
from libs.operations.erase.held import Held

OnProgress = Callable[[str], None]


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """One that has begun: the list from its start."""

    tenant: str
    begun_at_us: int
    """Microseconds since 1970."""
    held: tuple[Held, ...]
    query_ids: tuple[str, ...] = ()
    """Of the tenant's streaming query: its stages in PostgreSQL and ClickHouse are called by it."""
    sources: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    """Where the keys of its masks are."""
    elsewhere: tuple[str, ...] = ()
    """Folders of its tables outside of the home's warehouse."""


class NotLetGo(TransientError):
    """Somebody may still write for the tenant: nothing but its document was taken away; see `headwater status`."""


class Places(Protocol):
    """Of one mesh. Every method blocks, and raises HeadwaterError where a place does not answer or refuses; it says which."""

    @property
    def notes_dir(self) -> Path:
        """Where a command notes its begun steps, so that a killed one is continued."""
        ...

    @property
    def tenants(self) -> Sequence[str]:
        """Those that have a document."""
        ...

    def known(self, tenant: str) -> Erasure:
        """All but ``held`` and the begin, as far as it is known now."""
        ...

    def held(self, erasure: Erasure) -> list[Held]:
        """Everything of the tenant, in every place."""
        ...

    def take_out(self, tenant: str) -> None:
        """Its document goes: from then on router and sink let the tenant go."""
        ...

    def wait_until_let_go(self, tenant: str, *, timeout_s: float, on_progress: OnProgress) -> None:
        """Return when nobody writes for the tenant any more, nor will. Raises NotLetGo."""
        ...

    def empty(self, erasure: Erasure, on_progress: OnProgress) -> None:
        """Remove all of it; may be repeated."""
        ...

    def forget_again(self, tenant: str) -> None:
        """Forget late reports about a tenant that is gone."""
        ...

    def stays(self, erasure: Erasure) -> list[str]:
        """Things that no command of Headwater's removes: whose work they are, and when they go by themselves."""
        ...
