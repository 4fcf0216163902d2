"""How far every hop of every tenant got, by its newest report.

Not in Kafka: hops report again and again, so a lost report is there again with the next one.
"""

import contextlib
from collections.abc import Iterable

from libs.telemetry.metrics import PROGRESS_DELAY
from libs.types.position import SourcePartition
from libs.types.progress import Progress

ProgressKey = tuple[str, str, SourcePartition, str]
"""Tenant, hop, source partition, table."""


class ProgressBoard:
    """The newest report of each key."""

    def __init__(self, reports: Iterable[Progress] = ()) -> None:
        self._reports = {_key(report): report for report in reports}
        self._changed: set[ProgressKey] = set()
        self._forgotten: dict[ProgressKey, Progress] = {}

    def report(self, progress: Progress) -> None:
        """Take a report in; one that is older than the one held is ignored."""
        key = _key(progress)
        held = self._reports.get(key)
        if held is None or progress.reported_at_us >= held.reported_at_us:
            self._reports[key] = progress
            self._changed.add(key)
            self._forgotten.pop(key, None)

    def forget(self, tenant: str) -> int:
        """Drop every report of ``tenant``; how many there were."""
        dropped = {key: report for key, report in self._reports.items() if report.tenant == tenant}
        for key, report in dropped.items():
            del self._reports[key]
            self._changed.discard(key)
            labels = (report.tenant, report.hop, report.partition.source)
            with contextlib.suppress(KeyError):  # several tables share them, and none may have been measured yet
                PROGRESS_DELAY.remove(*labels)
        self._forgotten |= dropped
        return len(dropped)

    def of(self, tenant: str | None) -> list[Progress]:
        """The reports of a tenant (None: of all), by tenant, hop, source partition and table."""
        ordered = sorted(self._reports.values(), key=lambda it: (it.tenant, it.hop, str(it.partition), it.table))
        return [report for report in ordered if tenant is None or report.tenant == tenant]

    def take_changed(self) -> list[Progress]:
        """Those that changed since the last call."""
        changed, self._changed = self._changed, set()
        return [self._reports[key] for key in changed]

    def take_forgotten(self) -> list[Progress]:
        """Those that were forgotten since the last call."""
        forgotten, self._forgotten = self._forgotten, {}
        return list(forgotten.values())

    def put_back_forgotten(self, reports: Iterable[Progress]) -> None:
        """They could not be taken out of the view: the next call gives them again, but for those that came again."""
        self._forgotten = {_key(each): each for each in reports if _key(each) not in self._reports} | self._forgotten

    def measure(self, now_us: int) -> None:
        """Bring the gauges that grow with time up to date: the slowest table and source partition of each hop."""
        oldest_us: dict[tuple[str, str, str], int] = {}
        for report in self._reports.values():
            labels = (report.tenant, report.hop, report.partition.source)
            oldest_us[labels] = min(oldest_us.get(labels, report.committed_at_us), report.committed_at_us)
        for labels, committed_at_us in oldest_us.items():
            PROGRESS_DELAY.labels(*labels).set(max(0.0, (now_us - committed_at_us) / 1e6))


def _key(report: Progress) -> ProgressKey:
    return report.tenant, report.hop, report.partition, report.table
