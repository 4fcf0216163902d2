"""Leases: the owner of each source partition, decided by plain functions.

Ends are counted on the service's own monotonic clock, so no step of any wall clock ends a lease. A lease that was read
from the log at a start holds for its whole length from then on: its owner may have renewed it a moment before.
"""

from dataclasses import dataclass

import msgspec

from libs.types.checkpoint import FencingToken
from libs.types.position import SourcePartition


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease as it stands in the log (key ``lease/<source>/<source_partition>``)."""

    partition: SourcePartition
    owner: str
    """Empty: nobody."""
    fencing_token: FencingToken
    granted_at_us: int
    """When it was granted or last renewed, for people."""
    lease_ms: int


@dataclass(frozen=True, slots=True)
class Holding:
    """A lease and when it ends."""

    lease: Lease
    ends_at_s: float
    """On the monotonic clock."""

    def is_held(self, now_s: float) -> bool:
        """Whether somebody owns the partition now."""
        return bool(self.lease.owner) and now_s < self.ends_at_s


@dataclass(frozen=True, slots=True)
class Granted:
    """The lease to be written."""

    lease: Lease
    previous_owner: str | None
    """None: renewed, or the first lease ever."""


@dataclass(frozen=True, slots=True)
class Held:
    """Refused: somebody else owns the partition."""

    owner: str
    remaining_s: float


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """A reader's request."""

    partition: SourcePartition
    owner: str
    lease_ms: int


def begin(lease: Lease, now_s: float) -> Holding:
    """``lease`` as holding from now on for its whole length."""
    return Holding(lease, now_s + lease.lease_ms / 1000)


def decide_grant(
    holding: Holding | None, request: LeaseRequest, *, newest_token: FencingToken, now_s: float, now_us: int
) -> Granted | Held:
    """Whether ``request`` gets the lease; ``newest_token`` is the greatest ever seen of the partition.

    The owner keeps its token as long as nobody came between, even past the end of its lease; everybody else gets a
    greater one.
    """
    is_renewal = holding is not None and holding.lease.owner == request.owner
    if holding is not None and not is_renewal and holding.is_held(now_s):
        return Held(holding.lease.owner, holding.ends_at_s - now_s)
    token = holding.lease.fencing_token if holding is not None and is_renewal else FencingToken(newest_token + 1)
    lease = Lease(
        partition=request.partition,
        owner=request.owner,
        fencing_token=token,
        granted_at_us=now_us,
        lease_ms=request.lease_ms,
    )
    return Granted(lease, holding.lease.owner if holding is not None and not is_renewal else None)


def given_up(lease: Lease, *, fencing_token: FencingToken, now_us: int) -> Lease:
    """The lease that says nobody owns the partition; it remembers the token."""
    return msgspec.structs.replace(lease, owner="", fencing_token=fencing_token, granted_at_us=now_us, lease_ms=0)
