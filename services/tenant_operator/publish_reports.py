"""Reports in Kubernetes: annotations and events of the teams' ConfigMaps, and the count of tenants by state."""

import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime

import structlog

from libs.errors import (
    refusal_of,
)
from libs.telemetry import metrics
from services.tenant_operator.kubernetes_client import Conflict, KubernetesClient, side_by_side
from services.tenant_operator.records import path_of
from services.tenant_operator.report import Report, annotations, events

log = structlog.get_logger()


class ReportPublisher:
    """Writes reports that are news."""

    def __init__(self, kubernetes: KubernetesClient, identity: str, now: Callable[[], datetime]) -> None:
        self._kubernetes = kubernetes
        self._identity = identity
        self._now = now

    async def publish(self, found: Sequence[Report]) -> None:
        """Those that failed are written by the next look."""

        async def write(report: Report) -> None:
            try:
                if await self._kubernetes.merge(path_of(report.config_map), annotations(report)):
                    now = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
                    folder = f"/api/v1/namespaces/{report.config_map.origin.namespace}/events"
                    for each in events(report, now=now, identity=self._identity):
                        with contextlib.suppress(Conflict):  # it was reported already
                            await self._kubernetes.create(folder, each)
            except Exception as error:
                log.warning("report_failed", config_map=str(report.config_map.origin), reason=refusal_of(error))

        for state in metrics.TENANT_STATES:
            metrics.OPERATOR_TENANTS.labels(state).set(sum(report.state == state for report in found))
        await side_by_side(write(report) for report in found if report.is_news)
