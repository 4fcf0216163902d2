"""How far a lane is, as it says itself: written by the lane's thread, read by any."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from libs.types.order import EventOrder
from services.router.transactions.outputs import Reached


@dataclass(frozen=True, slots=True)
class LanePosition:
    """How far a lane got: the end of its last committed transaction."""

    next_offset: int
    """Of the changes topic."""
    moved_at_s: float
    """``time.monotonic()`` of the last step."""
    source: str = ""
    source_partition: str = ""
    committed_at_us: int = 0
    """Commit time, at the source, of the newest change routed."""
    order: EventOrder | None = None
    tenants: frozenset[str] = frozenset()
    """The tenants of the source."""


@dataclass(frozen=True, slots=True)
class TenantPosition:
    """The place of one tenant that lags the others."""

    next_offset: int
    """Of the changes topic."""
    reached: Reached
    reason: str
    """Why it lags."""
    is_stuck: bool
    """Somebody has to see to it."""
    refusal: str | None = None
    """Why its records cannot be written, as was tried last; no time mends that."""
    is_tried: bool = True
    """They were, because the lane opened."""


@dataclass(slots=True)
class LaneState:
    """One lane's. Each field is replaced as a whole, so that no reader sees half of it."""

    position: LanePosition | None = None
    """None until the lane is open."""
    transaction_began_s: float | None = None
    """``time.monotonic()`` at the begin of the running transaction; the watchdog looks at it."""
    routing_since_s: float | None = None
    """``time.monotonic()`` before the lane looked whom the batches are for that it routes now; None: it routes none."""
    is_fenced: bool = False
    parked: str | None = None
    """Why the lane routes nothing until a person has acted and the router was started again."""
    awaits: str | None = None
    """Offsets of other partitions that are routed first, while the lane waits for them."""
    unreadable: str | None = None
    """The last record that nobody can read and that was set aside, because the lane opened."""
    refused_topics: Mapping[str, str] = field(default_factory=dict)
    """Tenants' topics that Kafka would not create, or whose schemas the registry refused, with the reason."""
