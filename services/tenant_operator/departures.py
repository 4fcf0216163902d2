"""Tenants that leave: out of force first, and let go once all that was made for them is cleared away."""

import asyncio
from dataclasses import replace

import structlog

from libs.errors import (
    HeadwaterError,
)
from libs.kafka.sink_handovers import forget_said
from services.tenant_operator.failures import Failures
from services.tenant_operator.job_answers import JobAnswers, faults_key_of, job_with_state, wait_key_of
from services.tenant_operator.judge import Leaving, Standing
from services.tenant_operator.kubernetes_client import side_by_side
from services.tenant_operator.moves import (
    NEVER_MOVED,
)
from services.tenant_operator.objects import (
    TenantConfigMap,
)
from services.tenant_operator.records import Records, log_not_released, without_ours
from services.tenant_operator.settings import TenantOperatorSettings
from services.tenant_operator.sink_waits import SinkReports

log = structlog.get_logger()


class Departures:
    """The first and the last step of a tenant that leaves."""

    def __init__(
        self,
        settings: TenantOperatorSettings,
        records: Records,
        answers: JobAnswers,
        sinks: SinkReports,
    ) -> None:
        self._settings = settings
        self._records = records
        self._answers = answers
        self._sinks = sinks

    async def dismiss(self, standing: Standing, failures: Failures) -> None:
        """Nobody routes to a tenant that goes: its document is emptied; the record itself says until the end whose it was."""

        async def dismiss(each: Leaving) -> None:
            try:
                if each.record.text:
                    await self._records.store(replace(each.record, text=""))
                    log.info("tenant_dismissed", tenant_id=each.tenant)
            except Exception as error:
                failures.note(each.tenant, error)

        await side_by_side(dismiss(each) for each in standing.leaving)

    async def let_go_all(self, standing: Standing, failures: Failures) -> None:
        """Finalizers and records of those whose everything is cleared away."""

        async def let_go(each: Leaving) -> None:
            if each.tenant in failures.by_tenant or failures.of_all or not each.has_let_go:
                return
            try:
                # Whose ConfigMap is in no list of ours is found by the record alone.
                if each.config_map is None:
                    await self._records.release(each)
                # Before the job's answer: a repeated request for its tables' end would get no answer.
                await self._records.delete(each.tenant)
                reports = self._sinks.reasons or (), self._sinks.faults or ()
                said_something = wait_key_of(each.record) in reports[0] or faults_key_of(each.record) in reports[1]
                if each.deletes_tables or each.record.placement != NEVER_MOVED or said_something:
                    await self._answers.make_topic()
                    of_record = each.tenant, each.record.origin.uid, job_with_state(each.record)
                    await asyncio.to_thread(forget_said, self._settings.kafka, *of_record)
                # Last: the release may be removed at once after it. A ConfigMap without a record is released by any look.
                if each.config_map is not None:
                    await self._records.release(each)
                log.info(
                    "tenant_left",
                    tenant_id=each.tenant,
                    topics="deleted" if each.deletes_topics else "kept",
                    tables="deleted" if each.deletes_tables else "kept",
                )
            except Exception as error:
                failures.note(each.tenant, error)

        async def release(config_map: TenantConfigMap) -> None:
            try:
                if config_map.has_finalizer:
                    await self._records.set_finalizers(config_map, without_ours(config_map.finalizers))
            except HeadwaterError as error:  # the next look does it
                log_not_released(config_map.origin, error)

        await side_by_side(let_go(each) for each in standing.leaving)
        await side_by_side(release(each) for each in standing.released)
