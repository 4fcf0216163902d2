"""Whose CPU it was: the seconds of a lane's thread, and of fetching, divided among the tenants they were spent for.

Each delivery is measured by the thread's own clock (one reading a delivery, which is a run of rows for a group of alike
tenants: 0.3 µs). Work that cannot be measured for one tenant alone, such as fetching and reading a batch, compressing, and the
commit, is divided like the measured part. So the tenants' seconds add up to the CPU time of the lane's threads. The
process's other work, such as heartbeats and its metrics' endpoint, is nobody's.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from libs.telemetry import metrics

_NS: Final = 1e-9


class HasFetchCost(Protocol):
    """A batch with the CPU time of its fetch."""

    @property
    def fetch_cpu_ns(self) -> int:
        """Nanoseconds of CPU."""


class Meter:
    """Divides the CPU of one thread, from its making on, among tenants. Made and used in that thread."""

    def __init__(self) -> None:
        self._before_ns = time.thread_time_ns()

    def divide(self, measured_ns: Mapping[str, float], others_ns: int = 0) -> float:
        """Give the CPU since the last call, and ``others_ns`` of other threads, to tenants as they took ``measured_ns``.

        Where no tenant took any, it is nobody's (``headwater_router_unclaimed_cpu_seconds_total``). Returns the seconds.
        """
        now_ns = time.thread_time_ns()
        total_s = (now_ns - self._before_ns + others_ns) * _NS
        self._before_ns = now_ns
        measured_sum_ns = sum(measured_ns.values())
        if not measured_sum_ns:
            metrics.ROUTER_OVERHEAD_CPU.inc(total_s)
            return total_s
        for tenant, part_ns in measured_ns.items():
            metrics.ROUTER_TENANT_CPU.labels(tenant).inc(total_s * part_ns / measured_sum_ns)
        return total_s


class FetchMeter:
    """The cost of fetching in the event loop's thread, batch by batch: from one hand-over to the next."""

    def __init__(self) -> None:
        self._before_ns = time.thread_time_ns()
        self._was_idle = False

    def lap_ns(self) -> int:
        """CPU of this thread since the last call, or since it was last found idle."""
        now_ns = time.thread_time_ns()
        took_ns, self._before_ns = now_ns - self._before_ns, now_ns
        self._was_idle = False
        return took_ns

    def tick(self) -> None:
        """Called repeatedly: CPU time between two calls without a batch belongs to no batch."""
        if self._was_idle:
            self._before_ns = time.thread_time_ns()
        self._was_idle = True


def fetch_cpu_ns(batches: Iterable[HasFetchCost]) -> int:
    """The CPU time of fetching all of them."""
    return sum(batch.fetch_cpu_ns for batch in batches)
