"""Tells checkpoint_committer how far each tenant got: for ``headwater status`` and for whoever waits for a tenant.

Reports are about committed transactions only. They are not durable themselves: a report that is lost is made good by the next.
"""

import asyncio
import time
from typing import Final

import structlog

from libs.errors import HeadwaterError
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.types.position import SourcePartition
from libs.types.progress import Progress
from services.router.lane import LanePosition
from services.router.lanes import Lanes

log = structlog.get_logger()

HOP: Final = "router"


class ProgressReporter:
    """Reports what changed since its last report."""

    def __init__(self, committer: CheckpointCommitterClient, lanes: Lanes, interval_s: float) -> None:
        self._committer = committer
        self._lanes = lanes
        self._interval_s = interval_s
        self._reported: dict[int, LanePosition] = {}
        self._rows_before: dict[int, dict[str, int]] = {}
        """For each lane, what its tenants had got before it opened."""

    async def run(self) -> None:
        """Report until cancelled; an unreachable committer is only told of."""
        is_reachable = True
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.report()
            except HeadwaterError as error:
                if is_reachable:
                    log.warning("progress_not_reported", reason=str(error))
                is_reachable = False
            else:
                is_reachable = True

    async def report(self) -> None:
        """One report of all lanes that moved.

        Raises:
            ServiceUnavailable: checkpoint_committer did not answer; nothing is lost.
        """
        positions = {id(lane): lane.position for lane in self._lanes.all() if lane.position is not None}
        self._reported = {lane: self._reported[lane] for lane in self._reported if lane in positions}
        self._rows_before = {lane: self._rows_before[lane] for lane in self._rows_before if lane in positions}
        moved = {lane: position for lane, position in positions.items() if self._reported.get(lane) is not position}
        reports: list[Progress] = []
        for lane, position in moved.items():
            if lane not in self._rows_before:
                self._rows_before[lane] = await self._rows_reported(position)
            reports.extend(_reports(position, self._rows_before[lane]))
        if reports:
            await self._committer.report_progress(reports)
        self._reported |= moved

    async def _rows_reported(self, position: LanePosition) -> dict[str, int]:
        return {
            report.tenant: report.rows
            for report in await self._committer.progress()
            if report.hop == HOP and report.partition == _partition(position)
        }


def _partition(position: LanePosition) -> SourcePartition:
    return SourcePartition(source=position.source, name=position.source_partition)


def _reports(position: LanePosition, rows_before: dict[str, int]) -> list[Progress]:
    """One report for each tenant: everything up to the position is durable for all of them, also where rows were filtered."""
    if position.order is None:
        return []
    return [
        Progress(
            tenant=tenant,
            hop=HOP,
            partition=_partition(position),
            committed_at_us=position.committed_at_us,
            order=position.order,
            rows=rows_before.get(tenant, 0) + rows,
            reported_at_us=time.time_ns() // 1000,
        )
        for tenant, rows in position.rows.items()
    ]
