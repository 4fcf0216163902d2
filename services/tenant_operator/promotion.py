"""Tenants of a shared job that get too much for too long: they get a job of their own."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import msgspec
import structlog

from libs.errors import (
    AccessDenied,
    TransientError,
)
from libs.kafka.admin import KafkaClient
from services.tenant_operator.judge import InForce, Standing
from services.tenant_operator.moves import (
    Sample,
    slowest_events_s,
    with_sample,
)
from services.tenant_operator.settings import TenantOperatorSettings
from services.tenant_operator.sink_jobs import (
    is_measured,
)

log = structlog.get_logger()


class Promotions:
    """Samples of the events that tenants in packed jobs get."""

    def __init__(self, settings: TenantOperatorSettings, kafka: KafkaClient, now: Callable[[], datetime]) -> None:
        self._settings = settings
        self._kafka = kafka
        self._now = now
        self._samples: dict[str, tuple[Sample, ...]] = {}
        """Of tenants in packed jobs; measured, and no harm where it is lost."""

    async def promote(self, standing: Standing) -> Standing:
        """Measure tenants that share a job, and give those that get too much for too long one of their own."""
        jobs = self._settings.sink_jobs
        if jobs is None or jobs.own_job_at_events_s is None:
            return standing
        measured = {each.tenant for each in standing.in_force if is_measured(each)}
        try:
            events = await self._kafka.events_of(measured)
        except (TransientError, AccessDenied) as error:
            # Nobody waits for it, and the next sample covers this one's time.
            log.warning("tenants_not_measured", reason=str(error))
            return standing
        now_s, window_s = self._now().timestamp(), jobs.own_job_window_s
        self._samples = {
            name: with_sample(self._samples.get(name, ()), Sample(at_s=now_s, events=events[name]), window_s=window_s)
            for name in measured
        }

        def judged(each: InForce) -> InForce:
            slowest = slowest_events_s(self._samples.get(each.tenant, ()), window_s=window_s)
            if slowest is None or slowest <= (jobs.own_job_at_events_s or 0.0):
                return each
            because = (
                f"it got {slowest:.0f} events a second and more for {window_s:.0f} s; own_job_at_events_s is "
                f"{jobs.own_job_at_events_s:g}"
            )
            log.info("tenant_promoted", tenant_id=each.tenant, events_s=round(slowest))
            placement = msgspec.structs.replace(each.record.placement, promoted_because=because)
            return replace(each, record=replace(each.record, placement=placement), wants_own_job=True)

        return replace(standing, in_force=tuple(judged(each) for each in standing.in_force))
