"""Tenants that stand still in this job, as their operator hears of it, and the team from that (ADR 26).

    KeptStates.faults ▶ due ▶ topic headwater.sink-handovers ▶ tenant_operator ▶ the tenant's ConfigMap

A process knows its own reports alone. So a process that starts says of each tenant once that it goes on, when it
does: the one before may have ended while the tenant stood still.
"""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from libs.types.sink_place import Places, SinkWait, wait_key
from spark.jobs.reported_records import Reporter, own_tenants

LASTING_S: Final = 20.0
"""A team learns of a wait that has lasted this long, as for routers' waits."""
_AGAIN_AFTER_S: Final = 300.0
"""Another reason for the same tenant: some servers' errors differ with each request."""


class SentWait(NamedTuple):
    """The last record of a tenant."""

    because: str
    """Empty: it goes on."""
    at_s: float


def due(
    sent: Mapping[str, SentWait],
    places: Places,
    faults: Mapping[str, str],
    served: Collection[str],
    *,
    now_s: float,
) -> dict[str, SinkWait | None]:
    """The records to write now, by ``wait_key``; None: the tenant goes on. ``served``: tenants that do not wait. For one that
    neither is served nor has a fault the last record stays."""
    ours = own_tenants(places, wait_key)
    found: dict[str, SinkWait | None] = {}
    for key, name in ours.items():
        known = sent.get(key)
        if name in faults:
            is_news = known is None or not known.because
            is_other = known is not None and known.because != faults[name] and now_s - known.at_s >= _AGAIN_AFTER_S
            if is_news or is_other:
                found[key] = SinkWait(because=faults[name])
        elif name in served and (known is None or known.because):
            found[key] = None
    return found | {key: None for key, known in sent.items() if known.because and key not in ours}


class ReportedWaits:
    """Says it; the job's loop calls ``look``, and waits for nothing."""

    def __init__(self, send: Callable[[Mapping[str, SinkWait | None]], None]) -> None:
        """``send``: durable when it returns; raises TransientError where it may not be."""
        self._reporter = Reporter(
            send, lambda record, at_s: SentWait("" if record is None else record.because, at_s), "sink_waits_not_sent"
        )

    def look(self, places: Places, faults: Mapping[str, str], served: Collection[str]) -> None:
        """As ``due``. Kafka is asked in a thread beside; while it is away, again and again."""
        now_s = time.monotonic()
        if not self._reporter.is_busy(now_s):
            self._reporter.start(due(self._reporter.sent, places, faults, served, now_s=now_s))
