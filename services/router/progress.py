"""Reports each tenant's progress to checkpoint_committer: for ``headwater status`` and for callers that wait for a tenant.

Reports are about committed transactions only. They are not durable themselves: a report that is lost is made good by the next.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

import structlog

from libs.errors import HeadwaterError
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.types.order import EventOrder
from libs.types.position import SourcePartition
from libs.types.progress import Progress
from services.router.lane.lanes import Lanes
from services.router.transactions.lane_state import LanePosition, TenantPosition

log = structlog.get_logger()

HOP: Final = "router"


class ProgressReporter:
    """Reports changes since its last report."""

    def __init__(self, committer: CheckpointCommitterClient, lanes: Lanes, interval_s: float) -> None:
        self._committer = committer
        self._lanes = lanes
        self._interval_s = interval_s
        self._reported: dict[tuple[int, str], tuple[EventOrder, int, int]] = {}
        self._rows_before: dict[int, dict[str, int]] = {}
        """For each lane, its tenants' rows from before it opened."""

    async def run(self) -> None:
        """Report until cancelled; an unreachable committer is only logged."""
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
        lanes = {id(lane): lane for lane in self._lanes.all() if lane.state.position is not None}
        self._rows_before = {lane: self._rows_before[lane] for lane in self._rows_before if lane in lanes}
        self._reported = {key: figures for key, figures in self._reported.items() if key[0] in lanes}
        reports: dict[tuple[int, str], Progress] = {}
        for number, lane in lanes.items():
            if lane.state.position is not None and lane.state.position.source_partition:
                if number not in self._rows_before:
                    self._rows_before[number] = await self._rows_reported(lane.state.position)
                found = tenants_progress(lane.state.position, lane.behind, lane.rows, self._rows_before[number])
                reports |= {(number, report.tenant): report for report in found}
        moved = {key: report for key, report in reports.items() if self._reported.get(key) != _figures(report)}
        if moved:
            await self._committer.report_progress(list(moved.values()))
        self._reported |= {key: _figures(report) for key, report in moved.items()}

    async def _rows_reported(self, position: LanePosition) -> dict[str, int]:
        return {
            report.tenant: report.rows
            for report in await self._committer.progress()
            if report.hop == HOP and report.partition == _partition(position)
        }


def _partition(position: LanePosition) -> SourcePartition:
    return SourcePartition(source=position.source, name=position.source_partition)


def _figures(report: Progress) -> tuple[EventOrder, int, int]:
    """The parts of a report that make it worth sending."""
    return report.order, report.committed_at_us, report.rows


def tenants_progress(
    position: LanePosition,
    behind: Mapping[str, TenantPosition],
    rows: Mapping[str, int],
    rows_before: Mapping[str, int],
) -> list[Progress]:
    """One report for each tenant: everything up to the lane's position is durable for it, also where rows were filtered; of one
    that lags the others, up to its own. Where that is not known since the lane opened, nothing new is."""
    reports = []
    for tenant in position.tenants | behind.keys():
        own = behind.get(tenant)
        order = position.order if own is None else own.reached.order
        if order is not None:
            reports.append(
                Progress(
                    tenant=tenant,
                    hop=HOP,
                    partition=_partition(position),
                    committed_at_us=position.committed_at_us if own is None else own.reached.committed_at_us,
                    order=order,
                    rows=rows_before.get(tenant, 0) + rows.get(tenant, 0),
                    reported_at_us=time.time_ns() // 1000,
                )
            )
    return reports
