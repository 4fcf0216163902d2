"""The tenants that lag in one partition, and the holder of each: the lane, or their thread."""

import math
import threading
import time
from collections.abc import Container
from typing import Any, Final

from libs.types.tenant import TenantSpec
from services.router.stragglers.missed_batches import MissedBatches
from services.router.stragglers.straggler import Obstacle, State, Straggler
from services.router.transactions.outputs import LaneDependencies, Reached, WaitingBatch

AT_ONCE: Final = 8
"""So many tenants are made ready beside each other; more wait. Each holds a turn's batches."""
_JOINING_BATCHES: Final = 8
"""So few may be missing when a tenant is taken in again: the others wait while they are written."""
_JOINING_AT_ONCE: Final = 4
"""Each costs the lane's transaction two more questions to Kafka."""
NEAR_S: Final = 0.2
"""How long a tenant that could be taken in waits for that, before it goes on by itself: the source may be silent."""
_TOUCH_S: Final = 3_600.0
"""How often a cursor that does not move is written again: Kafka forgets offsets after ``offsets.retention.minutes``, 7 days."""


class StragglerSet:
    """Thread-safe: one lock guards who is here, and each one's state."""

    def __init__(self, shared: LaneDependencies, missed: MissedBatches, logger: Any) -> None:
        self._shared = shared
        self._missed = missed
        self._log = logger
        self._lock = threading.Lock()
        self._stragglers: dict[str, Straggler] = {}
        self._documents: object = None
        """The tenants in force, as of the last look."""
        self._looked_at_documents_s = -math.inf
        """``time.monotonic()`` before the thread last read the tenants."""

    def all(self) -> tuple[Straggler, ...]:
        """Those now."""
        with self._lock:
            return tuple(self._stragglers.values())

    def set_state(self, straggler: Straggler, state: State) -> None:
        """Called by its holder."""
        with self._lock:
            straggler.state = state

    # --- the lane's side

    def add(self, spec: TenantSpec, cursor: int, reached: Reached, obstacle: Obstacle) -> None:
        """A tenant fell behind, by a committed transaction."""
        with self._lock:
            least_s = min((each.virtual_s for each in self._stragglers.values()), default=0.0)
            self._stragglers[spec.tenant] = Straggler(spec, cursor, reached, obstacle, least_s)
        self._log.info("tenant_behind", tenant_id=spec.tenant, cursor=cursor, reason=obstacle.reason)

    def take_gone(self, tenants: Container[str]) -> list[str]:
        """Tenants that no longer exist, and are forgotten here. One with a turn just now is not gone yet: its cursor
        would be written once more."""
        with self._lock:
            gone = [
                tenant
                for tenant, straggler in self._stragglers.items()
                if tenant not in tenants and straggler.state is State.IDLE
            ]
            for tenant in gone:
                del self._stragglers[tenant]
        return gone

    def take_joining(self) -> list[tuple[Straggler, list[WaitingBatch]]]:
        """Those that may come back now, with the few batches that they miss: the lane's, until ``joined`` or ``stay``."""
        taken: list[tuple[Straggler, list[WaitingBatch]]] = []
        with self._lock:
            for straggler in self._stragglers.values():
                backlog = self._joinable(straggler)
                if backlog is not None and len(taken) < _JOINING_AT_ONCE:
                    straggler.state = State.JOINING
                    taken.append((straggler, backlog))
        return taken

    def _joinable(self, straggler: Straggler) -> list[WaitingBatch] | None:
        if straggler.state is not State.IDLE or straggler.obstacle.is_stuck or straggler.routes.refused_topics:
            return None
        if self._shared.limits.wait_s(straggler.tenant, to_rejoin=True) > 0:
            return None
        backlog = self._missed.recent.between(straggler.cursor, self._missed.end)
        return backlog if backlog is not None and len(backlog) <= _JOINING_BATCHES else None

    def joined(self, straggler: Straggler) -> None:
        """The lane has committed its missed batches, and goes on for it."""
        with self._lock:
            self._stragglers.pop(straggler.tenant, None)
        self._log.info("tenant_caught_up", tenant_id=straggler.tenant, cursor=straggler.cursor)

    def stay(self, straggler: Straggler, reason: str | None) -> None:
        """The lane did not take it in; with a reason it has to go on by itself first, which finds the obstacle."""
        with self._lock:
            if reason is not None:
                straggler.obstacle.reason, straggler.obstacle.is_stuck = reason, True
            straggler.state = State.IDLE

    # --- the thread's side

    def may_write_for(self, tenant: str, gone_since_s: float) -> bool:
        """Whether records may yet come for a tenant whose document went away at that ``time.monotonic()``. From any thread."""
        with self._lock:
            straggler = self._stragglers.get(tenant)
            if straggler is None:
                return False
            return straggler.state is not State.IDLE or self._looked_at_documents_s <= gone_since_s

    def take_in_documents(self) -> None:
        """Try at once: a changed document may remove the obstacle."""
        looked_s = time.monotonic()
        tenants = self._shared.tenants()
        if tenants is not self._documents:
            self._documents = tenants
            self._shared.limits.set_tenants(tenants)
            specs = {spec.tenant: spec for spec in tenants}
            with self._lock:
                for tenant, straggler in self._stragglers.items():
                    spec = specs.get(tenant)
                    if spec is None:
                        straggler.obstacle.due_s = math.inf
                    elif straggler.spec != spec:
                        straggler.spec, straggler.obstacle.due_s = spec, 0.0
        self._looked_at_documents_s = looked_s

    def take_to_prepare(self) -> list[Straggler]:
        """Those for whom something can be done; theirs are the free places."""
        now_s = time.monotonic()
        chosen: list[Straggler] = []
        with self._lock:
            free = AT_ONCE - sum(each.state in (State.PREPARING, State.READY) for each in self._stragglers.values())
            for straggler in sorted(self._stragglers.values(), key=lambda each: each.virtual_s):
                if len(chosen) < free and self._is_due(straggler, now_s):
                    straggler.state = State.PREPARING
                    chosen.append(straggler)
        return chosen

    def _is_due(self, straggler: Straggler, now_s: float) -> bool:
        if straggler.state is not State.IDLE or straggler.obstacle.due_s > now_s:
            return False
        if straggler.cursor >= self._missed.end:
            return needs_touch(straggler, now_s)
        if self._joinable(straggler) is not None:
            if straggler.near_since_s is None:
                straggler.near_since_s = now_s
            return now_s - straggler.near_since_s > NEAR_S
        wait_s = self._shared.limits.wait_s(straggler.tenant)
        if wait_s > 0:
            straggler.obstacle.due_s = now_s + wait_s
            return False
        return True

    def next_due_s(self, now_s: float) -> float:
        """Seconds until something is to be done, by present knowledge."""
        end = self._missed.end
        waits_s = [each.obstacle.due_s - now_s for each in self.all() if each.cursor < end and each.state is State.IDLE]
        return min((wait_s if wait_s > 0 else NEAR_S / 4 for wait_s in waits_s), default=math.inf)


def needs_touch(straggler: Straggler, now_s: float) -> bool:
    """Its cursor has to be written, though it did not move."""
    return now_s - straggler.touched_s > _TOUCH_S
