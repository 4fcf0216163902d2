"""Answers of Spark jobs about tenants that move, and about those whose tables go."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

import structlog

from libs.errors import (
    HeadwaterError,
)
from libs.kafka.clients import ensure_topics
from libs.kafka.sink_handovers import read_handovers, sink_handovers_topic
from libs.types.sink_place import Handover, faults_key, handover_key, wait_key
from services.tenant_operator.failures import Failures
from services.tenant_operator.judge import InForce, Leaving, Standing
from services.tenant_operator.kubernetes_client import Conflict
from services.tenant_operator.moves import (
    answered,
    awaits_drop,
    awaits_handover,
    is_dropped,
)
from services.tenant_operator.objects import (
    TenantRecord,
)
from services.tenant_operator.records import Records
from services.tenant_operator.settings import TenantOperatorSettings

_NO_JOBS: Final = (
    "its tables are to go, and this operator has no Spark jobs (its setting `sink_jobs`) that could drop them: give it some, "
    "or write `headwater.dev/on-delete: delete-topics` to leave them"
)
_Each = TypeVar("_Each", InForce, Leaving)

log = structlog.get_logger()


class JobAnswers:
    """The topic by which jobs answer."""

    def __init__(self, settings: TenantOperatorSettings, records: Records) -> None:
        self._settings = settings
        self._records = records
        self.are_awaited = False
        """Whether the last look left something to a Spark job, whose answer causes no look."""

    async def make_topic(self) -> None:
        """Where it is not there: before any job hears of a move, and while one is awaited, should somebody delete it."""
        kafka = self._settings.kafka
        await asyncio.to_thread(ensure_topics, kafka, [sink_handovers_topic(kafka.replication_factor)])

    async def hear(self, standing: Standing, failures: Failures) -> Standing:
        """The jobs' answers about tenants that move, and about those whose tables go; the others wait."""
        moving = {
            each.tenant
            for each in standing.in_force
            if each.record.placement.came_from or each.record.placement.is_unreadable
        }
        going = {each.tenant for each in standing.leaving if each.deletes_tables}
        self.are_awaited = False
        answers: dict[str, Handover] = {}
        if self._settings.sink_jobs is not None and (moving or going):
            try:
                await self.make_topic()
                answers = await asyncio.to_thread(read_handovers, self._settings.kafka)
            except HeadwaterError as error:
                for name in moving | going:
                    failures.note(name, error)

        async def settled(each: InForce) -> InForce:
            record = await self._answered(each.record, answers.get(answer_key(each.record)), failures)
            if waits := awaits_handover(each.tenant, record.sink_job, record.placement):
                self.are_awaited = True
                failures.wait(each.tenant, waits)
            return replace(each, record=record, is_recorded=each.is_recorded and record == each.record)

        async def let_go(each: Leaving) -> Leaving:
            if not each.deletes_tables:
                return each
            if self._settings.sink_jobs is None:
                failures.wait(each.tenant, _NO_JOBS)
                return each
            said = answers.get(answer_key(each.record))
            record = await self._answered(each.record, said, failures)
            if is_dropped(said, record.origin.uid):
                return replace(each, record=record, has_let_go=True)
            self.are_awaited = True
            failures.wait(
                each.tenant,
                awaits_handover(each.tenant, record.sink_job, record.placement)
                or awaits_drop(record.sink_job, said, record.origin.uid),
            )
            return replace(each, record=record)

        async def alone(each: _Each, work: Callable[[_Each], Awaitable[_Each]]) -> _Each:
            try:
                return await work(each)
            except Exception as error:
                failures.note(each.tenant, error)
                return each

        return replace(
            standing,
            in_force=tuple(
                [await alone(each, settled) if each.tenant in moving else each for each in standing.in_force]
            ),
            leaving=tuple([await alone(each, let_go) for each in standing.leaving]),
        )

    async def _answered(self, record: TenantRecord, answer: Handover | None, failures: Failures) -> TenantRecord:
        job, placement = answered(record.sink_job, record.placement, record.origin.uid, answer)
        if (job, placement) == (record.sink_job, record.placement):
            return record
        found = replace(record, sink_job=job, placement=placement)
        try:
            await self._records.store(found)
        except Conflict:
            # It changed a moment ago, by this perhaps: the next look sees to it, and the answer is in Kafka.
            return found
        except HeadwaterError as error:
            failures.note(record.tenant, error)
            return record
        log.info("tenant_move_answered", tenant_id=record.tenant, job=job, refused_because=placement.refused_because)
        return found


def answer_key(record: TenantRecord) -> str:
    """The key of the jobs' reports about the tenant."""
    return handover_key(record.tenant, record.origin.uid)


def wait_key_of(record: TenantRecord) -> str:
    """Under which its job says that it stands still."""
    return wait_key(record.tenant, record.origin.uid, job_with_state(record))


def faults_key_of(record: TenantRecord) -> str:
    """Under which its job says which faults it has."""
    return faults_key(record.tenant, record.origin.uid, job_with_state(record))


def job_with_state(record: TenantRecord) -> str:
    """Of one that moves: the job that has not handed it over yet."""
    return record.placement.came_from or record.sink_job
