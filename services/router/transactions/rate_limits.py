"""How fast a tenant may go: token buckets, one for each tenant with limits, shared by all lanes of the process.

A bucket holds a second's worth. Written records are taken from it, into debt where need be: a batch is written whole. A tenant
in debt lags (``stragglers``) and goes on when its bucket has filled; so over some seconds its rate is the limit.

A tenant's document has its team's wish; the router's settings have its maximum (``limits_in_force``).
"""

import math
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import structlog

from libs.telemetry import metrics
from libs.types.tenant import TenantLimits, TenantSpec
from services.router.settings import TenantLimitSettings

_BURST_S: Final = 1.0
_REJOIN_SHARE: Final = 0.5
"""How full a bucket is before its tenant joins the others again: else one at its limit would leave and join all the time."""


log = structlog.get_logger()


class _Bucket:
    """Tokens of one kind; at most a second's worth, and as little below zero as was overdrawn."""

    __slots__ = ("_filled_at_s", "_per_s", "_tokens")

    def __init__(self, per_s: float, now_s: float) -> None:
        self._per_s = per_s
        self._tokens = per_s * _BURST_S
        self._filled_at_s = now_s

    def take(self, amount: float, now_s: float) -> None:
        self._fill(now_s)
        self._tokens -= amount

    def wait_s(self, now_s: float, share: float) -> float:
        """Until ``share`` of it is there; 0: it is."""
        self._fill(now_s)
        return max(0.0, (share * self._per_s * _BURST_S - self._tokens) / self._per_s)

    def _fill(self, now_s: float) -> None:
        passed_s, self._filled_at_s = now_s - self._filled_at_s, now_s
        self._tokens = min(self._per_s * _BURST_S, self._tokens + passed_s * self._per_s)


class RateLimits:
    """The buckets of all tenants that have limits. May be used from several threads."""

    def __init__(self, settings: TenantLimitSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._limits: dict[str, TenantLimits] = {}
        self._buckets: dict[str, tuple[_Bucket | None, _Bucket | None]] = {}
        self._tenants: object = None

    def set_tenants(self, tenants: tuple[TenantSpec, ...]) -> None:
        """Take the limits of the tenants in force; a tenant with unchanged limits keeps its buckets. Cheap for the same
        tuple."""
        if tenants is self._tenants:
            return
        with self._lock:
            limits = {spec.tenant: limits_in_force(spec.limits, self._settings) for spec in tenants}
            for spec in tenants:
                if self._limits.get(spec.tenant) != limits[spec.tenant]:
                    _log_limits(spec.tenant, spec.limits, limits[spec.tenant])
            for tenant in self._limits.keys() - limits.keys():
                _forget(tenant)
            now_s = self._clock()
            self._buckets = {
                tenant: self._buckets[tenant] if self._limits.get(tenant) == limit else _buckets(limit, now_s)
                for tenant, limit in limits.items()
                if _is_limited(limit)
            }
            self._limits = limits
            self._tenants = tenants

    @property
    def is_empty(self) -> bool:
        """No tenant has limits."""
        return not self._buckets

    def weight(self, tenant: str) -> float:
        """Its share among those that lag."""
        limits = self._limits.get(tenant)
        return 1.0 if limits is None else limits.weight

    def take(self, tenant: str, rows: int, size_bytes: int) -> None:
        """Note the records written for a tenant."""
        buckets = self._buckets.get(tenant)
        if buckets is None:
            return
        with self._lock:
            now_s = self._clock()
            for bucket, amount in zip(buckets, (rows, size_bytes), strict=True):
                if bucket is not None:
                    bucket.take(amount, now_s)

    def over(self) -> Iterable[str]:
        """The tenants in debt."""
        return [tenant for tenant in self._buckets if self.wait_s(tenant) > 0]

    def wait_s(self, tenant: str, *, to_rejoin: bool = False) -> float:
        """How long until a tenant may go on, or join the others again; 0: now."""
        buckets = self._buckets.get(tenant)
        if buckets is None:
            return 0.0
        with self._lock:
            now_s = self._clock()
            share = _REJOIN_SHARE if to_rejoin else 0.0
            return max(bucket.wait_s(now_s, share) for bucket in buckets if bucket is not None)


def limits_in_force(asked: TenantLimits, settings: TenantLimitSettings) -> TenantLimits:
    """The limits of a tenant whose document asks for ``asked``."""

    def least(*limits: float | None) -> float | None:
        return min((limit for limit in limits if limit is not None), default=None)

    events, size = asked.events_per_s, asked.bytes_per_s
    return TenantLimits(
        events_per_s=least(settings.default_events_per_s if events is None else events, settings.max_events_per_s),
        bytes_per_s=least(settings.default_bytes_per_s if size is None else size, settings.max_bytes_per_s),
        weight=asked.weight if settings.max_weight is None else min(asked.weight, settings.max_weight),
    )


def _log_limits(tenant: str, asked: TenantLimits, in_force: TenantLimits) -> None:
    for kind, limit in (("events", in_force.events_per_s), ("bytes", in_force.bytes_per_s)):
        metrics.ROUTER_TENANT_LIMIT.labels(tenant, kind).set(math.inf if limit is None else limit)
    metrics.ROUTER_TENANT_WEIGHT.labels(tenant).set(in_force.weight)
    held_to = {
        name: getattr(in_force, name)
        for name in TenantLimits.__struct_fields__
        if getattr(asked, name) is not None and getattr(asked, name) > getattr(in_force, name)
    }
    if held_to:
        log.warning("tenant_held_to_maximum", tenant=tenant, asked=msgspec.to_builtins(asked), in_force=held_to)


def _forget(tenant: str) -> None:
    for kind in ("events", "bytes"):
        metrics.ROUTER_TENANT_LIMIT.remove(tenant, kind)
    metrics.ROUTER_TENANT_WEIGHT.remove(tenant)


def _is_limited(limits: TenantLimits) -> bool:
    return limits.events_per_s is not None or limits.bytes_per_s is not None


def _buckets(limits: TenantLimits, now_s: float) -> tuple[_Bucket | None, _Bucket | None]:
    events = None if limits.events_per_s is None else _Bucket(limits.events_per_s, now_s)
    size = None if limits.bytes_per_s is None else _Bucket(limits.bytes_per_s, now_s)
    return events, size
