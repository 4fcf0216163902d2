"""How long a batch keeps its turn: those that hang leave turns for the others (ADR 17).

    a batch begins ▶ it is overdue after 30 s ▶ it gives its turn, and keeps its thread ▶ it ends

Tenants whose newest batch was overdue have half of the turns between them at most, until a batch of theirs ends in time. So do
all tenants of a warehouse in doubt: where two batches are overdue at once, and none has ended in time since.

Plain state: ``turns`` calls it under its lock.
"""

from collections.abc import Collection
from typing import Final

SHARE_S: Final = 30.0
"""A batch that runs longer is overdue. Most end within ten seconds."""
_LENT_PER_TURN: Final = 4
"""So many overdue batches for each turn give theirs. Each holds a thread and its rows."""
_OVERDUE_BEFORE_DOUBT: Final = 2
"""One alone may be the tenant's own trouble: a lock on its table."""


class TurnShares:
    """Of one job. A tenant has one batch at most.

    >>> shares = TurnShares(2)
    >>> shares.begin("a", "lake", now_s=0.0)
    >>> shares.begin("b", "lake", now_s=1.0)
    >>> shares.look(now_s=30.0), shares.lend(), shares.free
    (['a'], True, 1)
    """

    def __init__(self, of: int, *, share_s: float = SHARE_S) -> None:
        """``of``: how many batches have a turn at once."""
        self._of = of
        self._share_s = share_s
        self._running: dict[str, tuple[float, str]] = {}
        """By tenant since when, and in which warehouse; the oldest first."""
        self._overdue: set[str] = set()
        """Of those that run."""
        self._lent: set[str] = set()
        """Of the overdue ones those that have given their turn."""
        self._slow: set[str] = set()
        """Tenants whose newest batch was overdue."""
        self._doubted: set[str] = set()
        """Warehouses."""

    @property
    def most_running(self) -> int:
        """How many batches run at once at most, with or without a turn."""
        return self._of * (1 + _LENT_PER_TURN)

    @property
    def running(self) -> Collection[str]:
        """Tenants with a batch, with or without a turn."""
        return self._running.keys()

    @property
    def overdue(self) -> Collection[str]:
        """Tenants whose batch is overdue by the last look."""
        return self._overdue

    @property
    def at_work(self) -> int:
        """How many batches have a turn."""
        return len(self._running) - len(self._lent)

    @property
    def free(self) -> int:
        """How many turns nobody has."""
        return self._of - self.at_work

    def may_begin(self, tenant: str, warehouse: str) -> bool:
        """Whether the tenant may have one of the free turns."""
        if not self._is_bounded(tenant, warehouse):
            return True
        with_turn = {name: place for name, (_, place) in self._running.items() if name not in self._lent}
        bounded = sum(self._is_bounded(name, place) for name, place in with_turn.items())
        return bounded < max(1, self._of // 2)

    def begin(self, tenant: str, warehouse: str, *, now_s: float) -> None:
        """The tenant's batch begins; it takes a free turn."""
        assert tenant not in self._running
        assert self.free > 0
        self._running[tenant] = (now_s, warehouse)

    def look(self, *, now_s: float) -> list[str]:
        """Tenants whose batch has become overdue since the last look."""
        late = [
            tenant
            for tenant, (since_s, _) in self._running.items()
            if now_s - since_s >= self._share_s and tenant not in self._overdue
        ]
        self._overdue.update(late)
        self._slow.update(late)
        for warehouse in {self._running[tenant][1] for tenant in late}:
            if sum(self._running[tenant][1] == warehouse for tenant in self._overdue) >= _OVERDUE_BEFORE_DOUBT:
                self._doubted.add(warehouse)
        return late

    def longer_than(self, limit_s: float, *, now_s: float) -> dict[str, str]:
        """Tenants whose batch has run for ``limit_s``, each with its warehouse."""
        return {tenant: place for tenant, (since_s, place) in self._running.items() if now_s - since_s >= limit_s}

    @property
    def can_lend(self) -> bool:
        """Whether an overdue batch has a turn that it may give."""
        return self._overdue != self._lent and len(self._lent) < self._of * _LENT_PER_TURN

    def lend(self) -> bool:
        """Have the overdue batch that runs for longest give its turn; whether there is one."""
        if not self.can_lend:
            return False
        self._lent.add(next(tenant for tenant in self._running if tenant in self._overdue - self._lent))
        return True

    def end(self, tenant: str) -> None:
        """The tenant's batch ends, well or not."""
        _, warehouse = self._running.pop(tenant)
        self._lent.discard(tenant)
        if tenant in self._overdue:
            self._overdue.discard(tenant)
        else:
            self._slow.discard(tenant)
            self._doubted.discard(warehouse)

    def forget(self, tenant: str) -> None:
        """The tenant has left."""
        self._slow.discard(tenant)

    def _is_bounded(self, tenant: str, warehouse: str) -> bool:
        return tenant in self._slow or warehouse in self._doubted
