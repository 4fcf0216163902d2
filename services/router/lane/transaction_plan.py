"""One transaction of a lane: its tenants, those that lag from it on, and those that come back."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from services.router.batches.batch_reading import Changes
from services.router.kafka.awaited import LACKS
from services.router.stragglers.straggler import Straggler
from services.router.transactions.outputs import Reached


@dataclass(frozen=True, slots=True)
class Left:
    """A tenant that lags from a transaction on."""

    cursor: int
    reason: str
    reached: Reached
    is_stuck: bool = False


@dataclass(slots=True)
class TransactionPlan:
    """Filled in by the worker while the transaction runs; it is true once that is committed."""

    behind: frozenset[str]
    """The tenants that lagged before it."""
    stuck: Mapping[str, str] = field(default_factory=dict)
    """Tenants that cannot go on, with the reason."""
    lacking: Collection[str] = ()
    """Tenants that still lack the first batch's awaited records."""
    left: dict[str, Left] = field(default_factory=dict)
    joining: dict[str, Straggler] = field(default_factory=dict)
    backlogs: dict[str, Sequence[tuple[int, Changes]]] = field(default_factory=dict)
    """The missed batches of returning tenants, by offset."""
    reached: Reached | None = None
    """By its records written so far; None: there are none."""

    @property
    def left_out(self) -> frozenset[str]:
        """The tenants that lag after it: its batches are not written for them."""
        return frozenset(self.behind - self.joining.keys() | self.left.keys())

    def leave_stuck(self, offset: int, reached: Reached, tenants: Container[str]) -> None:
        """Those that cannot go on lag from ``offset`` on. ``tenants``: of the source."""
        for tenant, reason in self.stuck.items():
            if tenant not in self.left and (tenant not in self.behind or tenant in self.joining):
                self.left[tenant] = Left(offset, reason, reached, is_stuck=True)
        self._leave(self.lacking, offset, LACKS, reached, tenants)

    def leave_over_limits(self, over: Iterable[str], offset: int, reached: Reached, tenants: Container[str]) -> bool:
        """Those that are over their limits lag from ``offset`` on; returns whether there are any."""
        return self._leave(over, offset, "is over its limits", reached, tenants)

    def _leave(
        self, leaving: Iterable[str], offset: int, reason: str, reached: Reached, tenants: Container[str]
    ) -> bool:
        left_out = self.left_out
        new = [tenant for tenant in leaving if tenant in tenants and tenant not in left_out]
        self.left.update((tenant, Left(offset, reason, reached)) for tenant in new)
        return bool(new)
