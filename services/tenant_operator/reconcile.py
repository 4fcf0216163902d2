"""One look at the world, and its actions: observe ▶ judge ▶ plan ▶ apply ▶ report.

The only memory between looks is the state of Kubernetes and Kafka, so a restart, a repeated look and a second
operator come to the same. The order within a look makes each crash harmless: a ConfigMap gets our finalizer before anything is
made for it; the record, which routers get the tenant by, and which has its place among Spark jobs, comes before Kafka and jobs;
a tenant that leaves is out of force first, then loses its tables, then its state in Kafka, then its record, then the finalizer.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import structlog

from libs.errors import (
    AccessDenied,
    TransientError,
    refusal_of,
)
from libs.failpoints import failpoint
from libs.kafka.admin import KafkaClient
from libs.kafka.tenant_access import SetPassword
from libs.telemetry import metrics
from libs.tenants.document import CheckKey, no_keys_checked
from libs.types.fault import Fault, worst_first
from libs.types.table import TableSchema
from services.tenant_operator.departures import Departures
from services.tenant_operator.document_plan import plan_lines
from services.tenant_operator.failures import Failures
from services.tenant_operator.job_answers import JobAnswers, faults_key_of, wait_key_of
from services.tenant_operator.joining_copies import JoiningCopies, SchemasOf
from services.tenant_operator.judge import InForce, Planned, Standing, judge, parse_document
from services.tenant_operator.kafka_plan import plan_kafka, topics_of
from services.tenant_operator.kubernetes_client import Conflict, KubernetesClient, side_by_side
from services.tenant_operator.mask_keys import router_keys
from services.tenant_operator.mirror import Mirror
from services.tenant_operator.moves import (
    as_wanted,
    moved,
)
from services.tenant_operator.objects import (
    FINALIZER,
    Credentials,
    TenantConfigMap,
    TenantRecord,
    credentials,
    tenant_config_map,
)
from services.tenant_operator.promotion import Promotions
from services.tenant_operator.publish_reports import ReportPublisher
from services.tenant_operator.records import Records
from services.tenant_operator.report import reports
from services.tenant_operator.settings import QuotaSettings, TenantOperatorSettings
from services.tenant_operator.sink_jobs import (
    assign,
)
from services.tenant_operator.sink_waits import SinkReports
from services.tenant_operator.spark_jobs import SparkJobs

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Observed:
    """Kubernetes' objects, all of one moment: a look asks others meanwhile, and later changes are the next one's."""

    config_maps: Sequence[TenantConfigMap]
    secrets: Mapping[tuple[str, str], Credentials | None]
    records: Sequence[TenantRecord]
    unseen: Set[str]
    """Namespaces of which nothing is known."""


class Reconciler:
    """Sees to all tenants. ``look`` at a time; never two at once."""

    def __init__(
        self,
        settings: TenantOperatorSettings,
        kubernetes: KubernetesClient,
        kafka: KafkaClient,
        *,
        config_maps: Sequence[Mirror],
        secrets: Sequence[Mirror],
        mask_keys: Sequence[Mirror],
        schemas_of: SchemasOf,
        sinks: SinkReports,
        mesh_faults: Callable[[], Sequence[Fault] | None] = lambda: (),
        records: Mirror,
        identity: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``sinks``: the reports of Spark jobs; ``mesh_faults``: as ``MeshFaults.lasting``."""
        self._settings = settings
        self._kubernetes = kubernetes
        self._kafka = kafka
        self._config_maps = config_maps
        self._secrets = secrets
        self._mask_keys = mask_keys
        self._sinks = sinks
        self._mesh_faults = mesh_faults
        self._now = now
        self._tenant_quotas = {each.tenant: each.quotas for each in settings.tenant_quotas}
        self._records = Records(settings, kubernetes, records, config_maps)
        self._joining = JoiningCopies(settings, self._records, schemas_of, now)
        self._answers = JobAnswers(settings, self._records)
        self._promotions = Promotions(settings, kafka, now)
        self._departures = Departures(settings, self._records, self._answers, sinks)
        self._jobs = SparkJobs(settings, kubernetes)
        self._publisher = ReportPublisher(kubernetes, identity, now)

    @property
    def awaits_jobs(self) -> bool:
        """Whether the last look left something to a Spark job, whose answer causes no look."""
        return self._answers.are_awaited

    async def look(self, *, with_drift: bool) -> bool:
        """Handle everything once; returns whether all was done. ``with_drift``: look also at state that only others change."""
        failures = Failures()
        owner = await self._kubernetes.owner()
        self._records.begin(owner)
        observed = self._observed()
        known_tables = await self._joining.tables_of_new_documents(observed.config_maps, observed.records)
        standing = self._judge(observed, known_tables)
        if with_drift:
            standing = await self._promotions.promote(standing)
        new_sources = await self._joining.new_sources()
        standing = await self._take_in(standing, new_sources, failures)
        await self._departures.dismiss(standing, failures)
        standing = await self._answers.hear(standing, failures)
        await self._in_kafka(standing, failures, with_drift=with_drift)
        jobs = await self._jobs.apply(standing, failures, with_drift=with_drift)
        await self._joining.join(standing, failures)
        await self._records.own_what_is_kept(standing, owner, failures)
        await self._departures.let_go_all(standing, failures)
        by_tenant = failures.waits | failures.by_tenant
        if failures.of_all:
            for name in (*(each.tenant for each in standing.in_force), *(each.tenant for each in standing.leaving)):
                by_tenant[name] = [*failures.of_all, *by_tenant.get(name, ())]
        plans = [self._plan_lines(each) for each in standing.planned]
        waits = _waits_of(standing.in_force, self._sinks.reasons)
        await self._publisher.publish(
            reports(
                standing,
                by_tenant,
                jobs,
                plans,
                waits,
                _faults_of(standing.in_force, self._mesh_faults(), self._sinks.faults),
            )
        )
        if failures.is_any:
            log.warning(
                "reconcile_incomplete", tenants=sorted(failures.by_tenant)[:20], reasons=_some_reasons(failures)
            )
        return not failures.is_any

    def _plan_lines(self, planned: Planned) -> Sequence[str]:
        tenant = planned.would_be.tenant
        try:
            return plan_lines(
                planned, quotas=self._quotas_of(tenant), most_topics=self._settings.topic_quotas.of(tenant)
            )
        except Exception as error:
            log.error("refused_unforeseen", tenant_id=tenant, exc_info=error)
            return [f"no plan can be made of it: {refusal_of(error)}"]

    def _quotas_of(self, tenant: str) -> QuotaSettings:
        return self._tenant_quotas.get(tenant, self._settings.quotas)

    def _observed(self) -> _Observed:
        return _Observed(
            config_maps=[tenant_config_map(found) for mirror in self._config_maps for found in mirror.objects],
            secrets={
                (found["metadata"]["namespace"], found["metadata"]["name"]): credentials(found)
                for mirror in self._secrets
                for found in mirror.objects
            },
            records=self._records.found,
            unseen={
                each.namespace
                for each in (*self._config_maps, *self._secrets)
                if each.namespace is not None and not each.is_listed.is_set()
            },
        )

    def _judge(self, observed: _Observed, known_tables: Mapping[str, Sequence[TableSchema]]) -> Standing:
        return judge(
            observed.config_maps,
            observed.secrets,
            observed.records,
            parse=parse_document,
            check_key=self._check_key(),
            joining=self._settings.joining,
            sources=self._settings.sources,
            tenant_names=self._settings.tenant_names,
            named_secrets={each.namespace: each.names for each in self._settings.kubernetes.tenant_secrets},
            topic_quotas=self._settings.topic_quotas,
            warehouses=None if self._settings.sink_jobs is None else self._settings.sink_jobs.warehouses,
            tables=self._joining.captured_among(known_tables),
            known_tables=known_tables,
            unseen=observed.unseen,
            now_us=int(self._now().timestamp() * 1e6),
            largest_document_bytes=self._settings.largest_document_bytes,
        )

    def _check_key(self) -> CheckKey:
        if self._settings.mask_keys is None:
            return no_keys_checked
        found = [secret for mirror in self._mask_keys for secret in mirror.objects]
        return router_keys(self._settings.mask_keys, self._settings.kubernetes.own_namespace, found).mistake

    async def _take_in(self, standing: Standing, new_sources: set[str], failures: Failures) -> Standing:
        """Finalizers and records of tenants in force. A tenant that failed is left for the next look."""
        jobs = assign(standing.in_force, standing.kept, tenants_per_packed_job=self._tenants_per_packed_job)

        async def take_in(each: InForce) -> InForce | None:
            try:
                record = await self._placed(each, jobs.get(each.tenant))
                record = replace(record, joining=self._joining.joining_of(each, new_sources))
                if not each.config_map.has_finalizer:
                    await self._records.set_finalizers(each.config_map, (*each.config_map.finalizers, FINALIZER))
                if not each.is_recorded or record != each.record:
                    await self._records.store(record)
                    log.info("tenant_recorded", tenant_id=each.tenant, config_map=str(record.origin))
                    if record.placement.move != each.record.placement.move:
                        failpoint("operator_after_recording_move")
            except Conflict:
                # A router's refusals came between, or the team: the mirror shows it, and brings the next look.
                return None
            except Exception as error:
                failures.note(each.tenant, error)
                return None
            return replace(each, record=record, is_recorded=each.is_recorded and record == each.record)

        taken = await side_by_side(take_in(each) for each in standing.in_force)
        if new_sources:
            await self._joining.note_sources()
        left_out = tuple(each for each, found in zip(standing.in_force, taken, strict=True) if found is None)
        return replace(standing, in_force=tuple(each for each in taken if each is not None), left_out=left_out)

    async def _placed(self, each: InForce, job: str | None) -> TenantRecord:
        """The tenant's record with the job that it is to be in. One without a sink keeps its job, whose tables are its own."""
        record, now_in = each.record, each.record.sink_job
        if self._settings.sink_jobs is None or job is None:
            return record
        placement = as_wanted(record.placement, now_in, each.tenant, wants_own_job=each.wants_own_job)
        if now_in and job != now_in:
            await self._answers.make_topic()
            placement = moved(placement, now_in)
            log.info("tenant_moves", tenant_id=each.tenant, from_job=now_in, job=job, move=placement.move)
        return replace(record, sink_job=job, placement=placement)

    async def _in_kafka(self, standing: Standing, failures: Failures, *, with_drift: bool) -> None:
        configured = [topic.name for each in standing.in_force for topic in topics_of(each.spec) if topic.config]
        try:
            found = await self._kafka.observe(configured if with_drift else ())
        except (TransientError, AccessDenied) as error:
            failures.note_all(error)
            return
        actions = plan_kafka(
            standing.in_force,
            standing.leaving,
            found,
            quotas_of=self._quotas_of,
            note=failures.note,
        )
        for action in actions:
            metrics.OPERATOR_ACTIONS.labels(type(action).__name__).inc()
        failed = await self._kafka.apply(actions)
        for action, reason in failed:
            metrics.OPERATOR_FAILED_ACTIONS.labels(type(action).__name__).inc()
            failures.note(action.tenant, reason)
        if actions:
            log.info("kafka_changed", actions=len(actions), failed=len(failed))
        unset = {action.tenant for action, _ in failed if isinstance(action, SetPassword)}
        is_set = {action.tenant for action in actions if isinstance(action, SetPassword)} - unset
        await side_by_side(
            self._records.note_password(each, failures) for each in standing.in_force if each.tenant in is_set
        )

    @property
    def _tenants_per_packed_job(self) -> int:
        return self._settings.sink_jobs.tenants_per_packed_job if self._settings.sink_jobs is not None else 1


def _waits_of(in_force: Sequence[InForce], said: Mapping[str, str] | None) -> dict[str, str] | None:
    """Why tenants stand still in their Spark jobs, by tenant; None: unknown yet. A report of a job that has the tenant no
    more does not count."""
    if said is None:
        return None
    has_job = [each for each in in_force if each.spec.sink is not None or each.record.placement.came_from]
    keys = {each.tenant: wait_key_of(each.record) for each in has_job}
    return {name: said[key] for name, key in keys.items() if key in said}


def _faults_of(
    in_force: Sequence[InForce], of_mesh: Sequence[Fault] | None, of_sinks: Mapping[str, Sequence[Fault]] | None
) -> Sequence[Fault] | None:
    """The faults of services and of Spark jobs, the worst first; None: unknown yet. A report of a job that has the tenant no
    more does not count."""
    if of_mesh is None or of_sinks is None:
        return None
    keys = [faults_key_of(each.record) for each in in_force if each.spec.sink is not None]
    return worst_first([*of_mesh, *(fault for key in keys for fault in of_sinks.get(key, ()))])


def _some_reasons(failures: Failures) -> list[str]:
    reasons = [*failures.of_all, *(reason for each in failures.by_tenant.values() for reason in each)]
    return list(dict.fromkeys(reasons))[:5]
