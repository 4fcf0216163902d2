"""CPU of a thread, divided among tenants."""

import time

import pytest
from prometheus_client import REGISTRY

from services.router.transactions.metering import FetchMeter, Meter


def spent_s(tenant: str) -> float:
    """The tenant's counter."""
    return REGISTRY.get_sample_value("headwater_router_tenant_cpu_seconds_total", {"tenant": tenant}) or 0.0


def burn(seconds: float) -> None:
    """Use CPU in this thread."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


def test_all_that_a_thread_used_is_divided_as_it_was_measured() -> None:
    """The sum is the thread's own clock, unmeasured time included; the shares are those measured."""
    began_s = time.thread_time()
    meter = Meter()
    burn(0.05)

    divided_s = meter.divide({"meter-a": 3_000, "meter-b": 1_000}, others_ns=10_000_000)

    used_s = time.thread_time() - began_s
    assert spent_s("meter-a") + spent_s("meter-b") == pytest.approx(divided_s)
    assert divided_s == pytest.approx(used_s + 0.01, rel=0.02)
    assert spent_s("meter-a") == pytest.approx(3 * spent_s("meter-b"))


def test_what_nobody_gets_is_nobodys() -> None:
    """No tenant pays for tables that none includes, and nothing is counted twice."""
    before_s = REGISTRY.get_sample_value("headwater_router_unclaimed_cpu_seconds_total") or 0.0
    meter = Meter()
    burn(0.02)
    meter.divide({})
    began_s = time.thread_time()
    meter.divide({"meter-late": 1})

    after_s = REGISTRY.get_sample_value("headwater_router_unclaimed_cpu_seconds_total") or 0.0
    assert after_s - before_s >= 0.02
    assert spent_s("meter-late") <= time.thread_time() - began_s + 0.005


def test_idle_time_is_no_batchs() -> None:
    """Time between two ticks without a batch is forgotten; else a batch costs the time that came since the one before."""
    meter = FetchMeter()
    meter.tick()
    burn(0.03)
    meter.tick()
    assert meter.lap_ns() < 20_000_000

    meter.tick()
    burn(0.03)
    assert meter.lap_ns() >= 30_000_000
