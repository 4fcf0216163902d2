"""How fast a tenant may go, by a clock of our own."""

import pytest

from libs.types.tenant import SourceSelection, TenantLimits, TenantSpec
from services.router.rate_limits import RateLimits


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
    made = RateLimits(clock)
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
