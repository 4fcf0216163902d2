"""Failed actions of a look, by tenant."""

from dataclasses import dataclass, field

import structlog

from libs.errors import (
    HeadwaterError,
    refusal_of,
)

log = structlog.get_logger()


@dataclass(slots=True)
class Failures:
    """Failed actions, by tenant; and whether another attempt may help."""

    by_tenant: dict[str, list[str]] = field(default_factory=dict)
    of_all: list[str] = field(default_factory=list)
    waits: dict[str, list[str]] = field(default_factory=dict)
    """Pending actions, by tenant; nothing failed."""

    def wait(self, tenant: str, what: str) -> None:
        """Of one tenant."""
        self.waits.setdefault(tenant, []).append(what)

    def note(self, tenant: str, error: Exception) -> None:
        """Keep one tenant's error to itself: the others are handled all the same."""
        if not isinstance(error, HeadwaterError):
            log.error("refused_unforeseen", tenant_id=tenant, exc_info=error)
        self.by_tenant.setdefault(tenant, []).append(refusal_of(error))

    def note_all(self, error: HeadwaterError) -> None:
        """Of everybody."""
        self.of_all.append(str(error))

    @property
    def is_any(self) -> bool:
        """Whether anything failed."""
        return bool(self.by_tenant or self.of_all)
