"""The faults of this job's tenants, as their operator hears of them, and the team from that.

    lasting_faults ▶ due ▶ topic headwater.sink-handovers ▶ tenant_operator ▶ the tenant's ConfigMap

A process knows its own reports alone. So a process that has run for a while says of each tenant without a fault
once that it has none: the one before may have ended with one.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from libs.types.fault import Fault
from libs.types.sink_place import Places, SinkFaults, faults_key
from spark.jobs.reported_records import Reporter, own_tenants

LASTING_US: Final = 20_000_000
"""A team learns of a fault that has lasted this long, as of those of services."""
_SETTLED_S: Final = 60.0
"""A process that runs for less long may not have met a fault again that the one before had."""
_AGAIN_AFTER_S: Final = 300.0
"""Other words for the same faults: some servers' errors differ with each request."""
_MOST_FAULTS: Final = 20
_LONGEST_TEXT: Final = 2_000
"""A record stays far below a broker's limit of 1 MB."""


class SentFaults(NamedTuple):
    """The last record of a tenant."""

    faults: tuple[Fault, ...]
    at_s: float


def due(
    sent: Mapping[str, SentFaults],
    places: Places,
    faults: Sequence[Fault],
    *,
    now_us: int,
    now_s: float,
    is_settled: bool,
) -> dict[str, SinkFaults | None]:
    """The records to write now, by ``faults_key``; None: the tenant has no fault.

    ``faults``: those of this process, the worst first. ``is_settled``: it would have met again those of the one before.
    """
    ours = own_tenants(places, faults_key)
    found: dict[str, SinkFaults | None] = {}
    for key, name in ours.items():
        known = sent.get(key)
        of_tenant = [each for each in faults if each.scope.tenant == name and now_us - each.since_us >= LASTING_US]
        lasting = tuple(map(_bounded, of_tenant[:_MOST_FAULTS]))
        if known is None:
            is_news = bool(lasting) or is_settled
        elif _places(known.faults) != _places(lasting):
            is_news = True
        else:
            is_news = known.faults != lasting and now_s - known.at_s >= _AGAIN_AFTER_S
        if is_news:
            found[key] = SinkFaults(faults=lasting) if lasting else None
    return found | {key: None for key, known in sent.items() if known.faults and key not in ours}


def _places(faults: Sequence[Fault]) -> set[tuple[str, str, str]]:
    return {(each.id, each.scope.source, each.scope.table) for each in faults}


def _bounded(fault: Fault) -> Fault:
    return msgspec.structs.replace(fault, happened=fault.happened[:_LONGEST_TEXT], remedy=fault.remedy[:_LONGEST_TEXT])


class ReportedFaults:
    """Says them; the job's loop calls ``look``, and waits for nothing."""

    def __init__(self, send: Callable[[Mapping[str, SinkFaults | None]], None]) -> None:
        """``send``: durable when it returns; raises TransientError where it may not be."""
        self._reporter = Reporter(
            send, lambda record, at_s: SentFaults(() if record is None else record.faults, at_s), "sink_faults_not_sent"
        )
        self._began_s = time.monotonic()

    def look(self, places: Places, faults: Sequence[Fault]) -> None:
        """As ``due``. Kafka is asked in a thread beside; while it is away, again and again."""
        now_s = time.monotonic()
        if not self._reporter.is_busy(now_s):
            is_settled = now_s - self._began_s >= _SETTLED_S
            now_us = time.time_ns() // 1_000
            self._reporter.start(
                due(self._reporter.sent, places, faults, now_us=now_us, now_s=now_s, is_settled=is_settled)
            )
