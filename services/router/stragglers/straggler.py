"""One tenant that lags: its place in the changes topic, the obstacle in its way, and its next turn."""

import enum
import time
from dataclasses import dataclass, field
from typing import Final

from libs.types.tenant import TenantSpec
from services.router.batches.batch_reading import Changes
from services.router.stragglers.routes import StragglerRoutes
from services.router.transactions.lane_state import TenantPosition
from services.router.transactions.outputs import Outputs, Reached, WaitingBatch

_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
"""Longest pause between two attempts; the pauses double up to it."""
_UNAVAILABLE_PATIENCE_S: Final = 20.0
"""How long a server that a tenant needs may be away before its team is informed: a restarted one is back by then."""


class State(enum.Enum):
    """The holder of a straggler: nobody, its thread, or the lane."""

    IDLE = enum.auto()
    PREPARING = enum.auto()
    READY = enum.auto()
    JOINING = enum.auto()
    """The lane holds it."""


@dataclass(slots=True)
class Obstacle:
    """Why a tenant is behind, and when it is tried again. Each failed attempt makes the pause longer."""

    reason: str
    """Why it fell behind, or why it still is; safe to read."""
    is_stuck: bool = False
    """It is not its limits: somebody has to see to it; safe to read."""
    refusal: str | None = None
    """Why its records could not be written, as was tried last, and cannot until somebody sees to it; safe to read."""
    is_tried: bool = False
    """They were, because it is here; safe to read."""
    lacks_server_since_s: float | None = None
    """``time.monotonic()`` since which its requests have failed."""
    due_s: float = 0.0
    """``time.monotonic()`` before which nothing is done for it."""
    pause_s: float = _PAUSE_S

    def fail(self, reason: str) -> None:
        """Try again after a pause, longer each time."""
        self.is_stuck = True
        self.put_off(reason)

    def refuse(self, reason: str) -> None:
        """As ``fail``, for a lasting cause."""
        self.refusal, self.is_tried = reason, True
        self.fail(reason)

    def lack_server(self, reason: str) -> None:
        """As ``fail``, of a server that does not answer; of one that does not for longer than a restart takes as ``refuse``."""
        now_s = time.monotonic()
        if self.lacks_server_since_s is None:
            self.lacks_server_since_s = now_s
        if now_s - self.lacks_server_since_s < _UNAVAILABLE_PATIENCE_S:
            self.fail(reason)
        else:
            self.refuse(reason)

    def put_off(self, reason: str) -> None:
        """The same, and nobody has to see to it."""
        self.reason = reason
        self.due_s = time.monotonic() + self.pause_s
        self.pause_s = min(2 * self.pause_s, _LONGEST_PAUSE_S)

    def lift(self) -> bool:
        """Its records were written; returns whether it was stuck."""
        self.refusal, self.is_tried, self.pause_s = None, True, _PAUSE_S
        was_stuck, self.is_stuck = self.is_stuck, False
        if was_stuck:
            self.reason = "catches up"
        return was_stuck


@dataclass(slots=True, eq=False)
class Straggler:
    """Fields that are not called safe belong to the stragglers' thread, or to the lane while it is joining."""

    spec: TenantSpec
    cursor: int
    """The next offset of the changes topic that the tenant needs; safe to read."""
    reached: Reached
    """Safe to read."""
    obstacle: Obstacle
    virtual_s: float = 0.0
    """CPU that its turns took, divided by its weight."""
    state: State = State.IDLE
    near_since_s: float | None = None
    """``time.monotonic()`` since when the lane could take it in."""
    touched_s: float = field(default_factory=time.monotonic)
    """``time.monotonic()`` when its cursor was written last."""
    routes: StragglerRoutes = field(default_factory=StragglerRoutes)
    outputs: Outputs | None = None
    ready: list[tuple[WaitingBatch, Changes]] = field(default_factory=list)
    """The batches of its next turn."""
    prepared_ns: int = 0
    """CPU that was spent for it beside the thread, and is not counted yet."""

    @property
    def tenant(self) -> str:
        """Its name."""
        return self.spec.tenant

    @property
    def reason(self) -> str:
        """Why it lags; safe to read."""
        return self.obstacle.reason

    @property
    def position(self) -> TenantPosition:
        """How far it is; from any thread."""
        obstacle = self.obstacle
        return TenantPosition(
            self.cursor, self.reached, obstacle.reason, obstacle.is_stuck, obstacle.refusal, obstacle.is_tried
        )
