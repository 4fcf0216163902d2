"""How fast a tenant may go, by a clock of our own."""

import math

import pytest
from prometheus_client import REGISTRY

from libs.types.tenant import SourceSelection, TenantLimits, TenantSpec
from services.router.settings import TenantLimitSettings
from services.router.transactions.rate_limits import RateLimits, limits_in_force


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def spec(name: str, **limits: float) -> TenantSpec:
    """A tenant with limits."""
    return TenantSpec(tenant=name, sources=(SourceSelection(name="s"),), limits=TenantLimits(**limits))


@pytest.fixture
def clock() -> Clock:
    """The test's."""
    return Clock()


@pytest.fixture
def limits(clock: Clock) -> RateLimits:
    """Of a tenant with both limits and one with none."""
    made = RateLimits(TenantLimitSettings(), clock)
    made.set_tenants((spec("noisy", events_per_s=100, bytes_per_s=1_000), spec("free")))
    return made


def test_a_seconds_worth_passes_at_once_and_no_more(limits: RateLimits) -> None:
    """Over is who is in debt."""
    limits.take("noisy", 100, 0)
    assert list(limits.over()) == []

    limits.take("noisy", 1, 0)
    assert list(limits.over()) == ["noisy"]


def test_debt_is_waited_off_at_the_limits_rate(limits: RateLimits, clock: Clock) -> None:
    """However large the batch was; and a tenant comes back when half a second's worth is there."""
    limits.take("noisy", 600, 0)

    assert limits.wait_s("noisy") == pytest.approx(5.0)
    assert limits.wait_s("noisy", to_rejoin=True) == pytest.approx(5.5)
    clock.now_s += 5.1
    assert limits.wait_s("noisy") == 0.0
    assert limits.wait_s("noisy", to_rejoin=True) > 0
    clock.now_s += 1_000
    limits.take("noisy", 101, 0)
    assert limits.wait_s("noisy") == pytest.approx(0.01)


def test_the_stricter_of_two_limits_counts(limits: RateLimits) -> None:
    """Few events may be many bytes."""
    limits.take("noisy", 1, 3_000)

    assert limits.wait_s("noisy") == pytest.approx(2.0)


def test_who_has_no_limits_is_never_over(limits: RateLimits) -> None:
    """And costs nothing to ask about."""
    limits.take("free", 10**9, 10**12)

    assert limits.wait_s("free") == 0.0
    assert limits.wait_s("nobody") == 0.0


def test_a_document_that_changes_nothing_of_the_limits_forgives_no_debt(limits: RateLimits) -> None:
    """New limits begin with a full bucket; none take it away."""
    limits.take("noisy", 600, 0)
    limits.set_tenants((spec("noisy", events_per_s=100, bytes_per_s=1_000), spec("other")))
    assert limits.wait_s("noisy") == pytest.approx(5.0)

    limits.set_tenants((spec("noisy", events_per_s=200),))
    assert limits.wait_s("noisy") == 0.0
    limits.set_tenants((spec("noisy"),))
    assert limits.is_empty


@pytest.mark.parametrize(
    ("asked", "settings", "in_force"),
    [
        ({}, {}, (None, None, 1.0)),
        ({"events_per_s": 7}, {"default_events_per_s": 5, "default_bytes_per_s": 9}, (7, 9, 1.0)),
        ({"events_per_s": 7, "weight": 3}, {"max_events_per_s": 5, "max_bytes_per_s": 9, "max_weight": 2}, (5, 9, 2)),
        ({"events_per_s": 3, "weight": 1}, {"max_events_per_s": 5, "max_weight": 2}, (3, None, 1)),
        ({}, {"default_events_per_s": 2, "max_events_per_s": 5}, (2, None, 1.0)),
    ],
)
def test_a_document_asks_and_the_settings_decide(
    asked: dict[str, float], settings: dict[str, float], in_force: tuple[float | None, float | None, float]
) -> None:
    """A limit that it does not name is the usual one; one that it names is held to the greatest."""
    limits = limits_in_force(TenantLimits(**asked), TenantLimitSettings(**settings))

    assert (limits.events_per_s, limits.bytes_per_s, limits.weight) == in_force


def test_a_tenant_without_a_limit_of_its_own_is_held_to_the_settings(clock: Clock) -> None:
    """Until the tenant is gone; the metrics show the limits in force."""
    limits = RateLimits(TenantLimitSettings(default_events_per_s=10, max_weight=4), clock)
    limits.set_tenants((spec("meek"), spec("loud", weight=100)))
    limits.take("meek", 30, 0)

    assert (limits.wait_s("meek"), limits.wait_s("loud")) == (2.0, 0.0)
    assert (limits.weight("meek"), limits.weight("loud")) == (1.0, 4.0)
    assert _told("headwater_router_tenant_limit_per_second", tenant="meek", kind="events") == 10
    assert _told("headwater_router_tenant_limit_per_second", tenant="meek", kind="bytes") == math.inf
    assert _told("headwater_router_tenant_weight", tenant="loud") == 4

    limits.set_tenants((spec("meek"),))
    assert limits.wait_s("meek") == 2.0
    assert _told("headwater_router_tenant_weight", tenant="loud") is None


def _told(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)
