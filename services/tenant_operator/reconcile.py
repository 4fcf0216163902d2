"""One look at the world, and its actions: observe ▶ judge ▶ plan ▶ apply ▶ report.

The only memory between looks is the state of Kubernetes and Kafka, so a restart, a repeated look and a second
operator come to the same. The order within a look makes each crash harmless: a ConfigMap gets our finalizer before anything is
made for it; the record, which routers get the tenant by, and which has its place among Spark jobs, comes before Kafka and jobs;
a tenant that leaves is out of force first, then loses its tables, then its state in Kafka, then its record, then the finalizer.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec
import structlog

from libs.errors import (
    AccessDenied,
    HeadwaterError,
    InvalidSettings,
    ServiceUnavailable,
    TransientError,
    refusal_of,
)
from libs.failpoints import failpoint
from libs.kafka.admin import KafkaClient
from libs.kafka.clients import ensure_topics
from libs.kafka.sink_handovers import forget_said, read_handovers, sink_handovers_topic
from libs.kafka.tenant_access import SetPassword
from libs.source.signal_topic import send_signal
from libs.source.signals import snapshot_for_tenant
from libs.telemetry import metrics
from libs.tenants.config_map import record_name
from libs.tenants.document import CheckKey, no_keys_checked
from libs.types.fault import Fault, worst_first
from libs.types.sink_place import Handover, faults_key, handover_key, wait_key
from libs.types.table import TableId, TableSchema
from services.tenant_operator.document_plan import plan_lines
from services.tenant_operator.joining import Joining, asked, asks_for_tables, begun, captured, must_wait, noticed
from services.tenant_operator.judge import InForce, Leaving, Planned, Standing, judge, parse_document, sources_of_new
from services.tenant_operator.kafka_plan import plan_kafka, topics_of
from services.tenant_operator.kubernetes_client import Conflict, KubernetesClient, side_by_side
from services.tenant_operator.mask_keys import router_keys
from services.tenant_operator.mirror import Mirror
from services.tenant_operator.moves import (
    NEVER_MOVED,
    Sample,
    answered,
    as_wanted,
    awaits_drop,
    awaits_handover,
    is_dropped,
    moved,
    slowest_events_s,
    with_sample,
)
from services.tenant_operator.objects import (
    FINALIZER,
    SOURCES_CONFIG_MAP,
    Credentials,
    Origin,
    TenantConfigMap,
    TenantRecord,
    credentials,
    known_sources,
    owners,
    record_manifest,
    sources_manifest,
    tenant_config_map,
    tenant_record,
)
from services.tenant_operator.report import Report, annotations, events, reports
from services.tenant_operator.settings import CapturedSource, JoiningSettings, QuotaSettings, TenantOperatorSettings
from services.tenant_operator.sink_jobs import (
    CLAIM,
    JOB_LABEL,
    SPARK_OPERATOR,
    JobTemplate,
    SinkJob,
    as_it_was_made,
    assign,
    folders,
    is_as_noted,
    is_measured,
    job_template,
    jobs_of,
    jobs_with,
    manifests,
)
from services.tenant_operator.sink_waits import SinkReports

_NO_JOBS: Final = (
    "its tables are to go, and this operator has no Spark jobs (its setting `sink_jobs`) that could drop them: give it some, "
    "or write `headwater.dev/on-delete: delete-topics` to leave them"
)
_NOT_RELEASED: Final = (
    "grant patch on ConfigMaps in its namespace; in one that is Terminating nobody can: then take our finalizer off by hand "
    f"(kubectl patch configmap ... --type=json; docs/failure_modes.md, finalizer {FINALIZER})"
)

_Each = TypeVar("_Each", InForce, Leaving)
SchemasOf = Callable[[str], Awaitable[Sequence[TableSchema]]]
"""The tables of a source that are there now; raises ServiceUnavailable."""

log = structlog.get_logger()


@dataclass(slots=True)
class Failures:
    """Failed actions, by tenant; and whether another attempt may help."""

    by_tenant: dict[str, list[str]] = field(default_factory=dict)
    of_all: list[str] = field(default_factory=list)
    waits: dict[str, list[str]] = field(default_factory=dict)
    """Pending actions, by tenant; nothing failed."""

    def wait(self, tenant: str, what: str) -> None:
        """Of one tenant."""
        self.waits.setdefault(tenant, []).append(what)

    def note(self, tenant: str, error: Exception) -> None:
        """Keep one tenant's error to itself: the others are handled all the same."""
        if not isinstance(error, HeadwaterError):
            log.error("refused_unforeseen", tenant_id=tenant, exc_info=error)
        self.by_tenant.setdefault(tenant, []).append(refusal_of(error))

    def note_all(self, error: HeadwaterError) -> None:
        """Of everybody."""
        self.of_all.append(str(error))

    @property
    def is_any(self) -> bool:
        """Whether anything failed."""
        return bool(self.by_tenant or self.of_all)


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
        self._schemas_of = schemas_of
        self._sinks = sinks
        self._mesh_faults = mesh_faults
        self._records = records
        self._identity = identity
        self._now = now
        self._own = settings.kubernetes.own_namespace
        self._tenant_quotas = {each.tenant: each.quotas for each in settings.tenant_quotas}
        self._samples: dict[str, tuple[Sample, ...]] = {}
        """Of tenants in packed jobs; measured, and no harm where it is lost."""
        self.awaits_jobs = False
        """Whether the last look left something to a Spark job, whose answer causes no look."""
        self._records_owned_by: list[Mapping[str, Any]] = []
        """As of this look."""

    async def look(self, *, with_drift: bool) -> bool:
        """Handle everything once; returns whether all was done. ``with_drift``: look also at state that only others change."""
        failures = Failures()
        owner = await self._kubernetes.owner()
        self._records_owned_by = [owner] if owner is not None and not self._settings.keeps_tenants else []
        observed = self._observed()
        known_tables = await self._tables_of_new_documents(observed)
        standing = self._judge(observed, known_tables)
        if with_drift:
            standing = await self._promote(standing)
        new_sources = await self._new_sources()
        standing = await self._take_in(standing, new_sources, failures)
        await self._dismiss(standing, failures)
        standing = await self._hear_from_jobs(standing, failures)
        await self._in_kafka(standing, failures, with_drift=with_drift)
        jobs = await self._sink_jobs(standing, failures, with_drift=with_drift)
        await self._join(standing, failures)
        await self._own_what_is_kept(standing, owner, failures)
        await self._let_go(standing, failures)
        by_tenant = failures.waits | failures.by_tenant
        if failures.of_all:
            for name in (*(each.tenant for each in standing.in_force), *(each.tenant for each in standing.leaving)):
                by_tenant[name] = [*failures.of_all, *by_tenant.get(name, ())]
        plans = [self._plan_lines(each) for each in standing.planned]
        waits = _waits_of(standing.in_force, self._sinks.reasons)
        await self._report(
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
        mirrors = (*self._config_maps, *self._secrets)
        return _Observed(
            config_maps=[tenant_config_map(found) for mirror in self._config_maps for found in mirror.objects],
            secrets={
                (found["metadata"]["namespace"], found["metadata"]["name"]): credentials(found)
                for mirror in self._secrets
                for found in mirror.objects
            },
            records=[tenant_record(found) for found in self._records.objects],
            unseen={each.namespace for each in mirrors if each.namespace is not None and not each.is_listed.is_set()},
        )

    async def _tables_of_new_documents(self, observed: _Observed) -> dict[str, Sequence[TableSchema]]:
        """Of the sources that they name, all that are known, also those that no reader reads; without sources of which nobody
        can be asked now, so that nobody waits for it."""
        if self._settings.joining is None:
            return {}
        named = sources_of_new(
            observed.config_maps,
            observed.records,
            parse=parse_document,
            largest_document_bytes=self._settings.largest_document_bytes,
        )
        tables: dict[str, Sequence[TableSchema]] = {}
        for source in self._settings.joining.sources:
            if source.name not in named:
                continue
            try:
                tables[source.name] = await self._schemas_of(source.name)
            except HeadwaterError as error:
                log.warning("documents_not_held_against_tables", source=source.name, reason=str(error))
        return tables

    async def _captured_tables(self, source: CapturedSource) -> list[TableSchema]:
        return _captured(source, await self._schemas_of(source.name))

    def _judge(self, observed: _Observed, known_tables: Mapping[str, Sequence[TableSchema]]) -> Standing:
        joining = self._settings.joining
        sources = () if joining is None else joining.sources
        tables = {each.name: _captured(each, known_tables[each.name]) for each in sources if each.name in known_tables}
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
            tables=tables,
            known_tables=known_tables,
            unseen=observed.unseen,
            now_us=int(self._now().timestamp() * 1e6),
            largest_document_bytes=self._settings.largest_document_bytes,
        )

    def _check_key(self) -> CheckKey:
        if self._settings.mask_keys is None:
            return no_keys_checked
        found = [secret for mirror in self._mask_keys for secret in mirror.objects]
        return router_keys(self._settings.mask_keys, self._own, found).mistake

    async def _new_sources(self) -> set[str]:
        """Sources that are new to this look: present tenants get their rows by the first copy."""
        if self._settings.joining is None:
            return set()
        found = await self._kubernetes.get(f"/api/v1/namespaces/{self._own}/configmaps/{SOURCES_CONFIG_MAP}")
        return {source.name for source in self._settings.joining.sources} - known_sources(found)

    async def _note_sources(self) -> None:
        """After the records of all present tenants: an operator that is killed between finds the sources new once more. One
        that
        could not be recorded joins later, and has some rows twice; waiting for it would keep others from joining at all."""
        assert self._settings.joining is not None
        path = f"/api/v1/namespaces/{self._own}/configmaps/{SOURCES_CONFIG_MAP}"
        names = known_sources(await self._kubernetes.get(path)) | {each.name for each in self._settings.joining.sources}
        await self._kubernetes.apply(path, sources_manifest(names, self._own))

    async def _take_in(self, standing: Standing, new_sources: set[str], failures: Failures) -> Standing:
        """Finalizers and records of tenants in force. A tenant that failed is left for the next look."""
        jobs = assign(standing.in_force, standing.kept, tenants_per_packed_job=self._tenants_per_packed_job)

        async def take_in(each: InForce) -> InForce | None:
            try:
                record = await self._placed(each, jobs.get(each.tenant))
                record = replace(record, joining=self._joining_of(each, new_sources))
                if not each.config_map.has_finalizer:
                    await self._set_finalizers(each.config_map, (*each.config_map.finalizers, FINALIZER))
                if not each.is_recorded or record != each.record:
                    await self._store(record)
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
            await self._note_sources()
        left_out = tuple(each for each, found in zip(standing.in_force, taken, strict=True) if found is None)
        return replace(standing, in_force=tuple(each for each in taken if each is not None), left_out=left_out)

    async def _placed(self, each: InForce, job: str | None) -> TenantRecord:
        """The tenant's record with the job that it is to be in. One without a sink keeps its job, whose tables are its own."""
        record, now_in = each.record, each.record.sink_job
        if self._settings.sink_jobs is None or job is None:
            return record
        placement = as_wanted(record.placement, now_in, each.tenant, wants_own_job=each.wants_own_job)
        if now_in and job != now_in:
            await self._make_handovers_topic()
            placement = moved(placement, now_in)
            log.info("tenant_moves", tenant_id=each.tenant, from_job=now_in, job=job, move=placement.move)
        return replace(record, sink_job=job, placement=placement)

    async def _make_handovers_topic(self) -> None:
        """Where it is not there: before any job is told of a move, and while one is awaited, should somebody delete it."""
        kafka = self._settings.kafka
        await asyncio.to_thread(ensure_topics, kafka, [sink_handovers_topic(kafka.replication_factor)])

    async def _promote(self, standing: Standing) -> Standing:
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

    async def _hear_from_jobs(self, standing: Standing, failures: Failures) -> Standing:
        """The jobs' answers about tenants that move, and about those whose tables go; the others wait."""
        moving = {
            each.tenant
            for each in standing.in_force
            if each.record.placement.came_from or each.record.placement.is_unreadable
        }
        going = {each.tenant for each in standing.leaving if each.deletes_tables}
        self.awaits_jobs = False
        told: dict[str, Handover] = {}
        if self._settings.sink_jobs is not None and (moving or going):
            try:
                await self._make_handovers_topic()
                told = await asyncio.to_thread(read_handovers, self._settings.kafka)
            except HeadwaterError as error:
                for name in moving | going:
                    failures.note(name, error)

        async def settled(each: InForce) -> InForce:
            record = await self._answered(each.record, told.get(_key(each.record)), failures)
            if waits := awaits_handover(each.tenant, record.sink_job, record.placement):
                self.awaits_jobs = True
                failures.wait(each.tenant, waits)
            return replace(each, record=record, is_recorded=each.is_recorded and record == each.record)

        async def let_go(each: Leaving) -> Leaving:
            if not each.deletes_tables:
                return each
            if self._settings.sink_jobs is None:
                failures.wait(each.tenant, _NO_JOBS)
                return each
            said = told.get(_key(each.record))
            record = await self._answered(each.record, said, failures)
            if is_dropped(said, record.origin.uid):
                return replace(each, record=record, has_let_go=True)
            self.awaits_jobs = True
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

    async def _answered(self, record: TenantRecord, told: Handover | None, failures: Failures) -> TenantRecord:
        job, placement = answered(record.sink_job, record.placement, record.origin.uid, told)
        if (job, placement) == (record.sink_job, record.placement):
            return record
        found = replace(record, sink_job=job, placement=placement)
        try:
            await self._store(found)
        except Conflict:
            # It changed a moment ago, by this perhaps: the next look sees to it, and the answer is in Kafka.
            return found
        except HeadwaterError as error:
            failures.note(record.tenant, error)
            return record
        log.info("tenant_move_answered", tenant_id=record.tenant, job=job, refused_because=placement.refused_because)
        return found

    def _joining_of(self, each: InForce, new_sources: set[str]) -> Joining:
        """A tenant's joining as far as it is known without a request."""
        known = each.record.joining
        if self._settings.joining is None:
            return known
        if new_sources:
            known = begun(known, each.spec, new_sources)
        if asks_for_tables(known, each.spec):
            return known  # once it is in force
        return noticed(known, each.spec, {}, ids=(), now_s=0)

    async def _join(self, standing: Standing, failures: Failures) -> None:
        """Notice joining tenants, and have their rows copied: those whose record our own mirror shows, so routers have it."""
        settings = self._settings.joining
        if settings is None:
            return
        # Of the others the change of their record brings the next look.
        recorded = [each for each in standing.in_force if each.is_recorded]
        asking = {name for each in recorded for name in asks_for_tables(each.record.joining, each.spec)}
        tables = {name: await self._captured(name, settings) for name in sorted(asking)}

        async def join(each: InForce) -> None:
            try:
                asks = asks_for_tables(each.record.joining, each.spec)
                if asks:
                    await self._notice(each, {name: tables[name] for name in asks})
                elif each.record.joining.noticed.due:
                    await self._ask(each, settings, failures)
            except Conflict:  # the record is another already: the mirror shows it, and brings the next look
                return
            except Exception as error:
                failures.note(each.tenant, error)

        await side_by_side(join(each) for each in recorded)

    async def _captured(self, name: str, settings: JoiningSettings) -> tuple[TableId, ...] | HeadwaterError:
        """The tables of a source that its reader reads; or why they are not known now."""
        source = next((each for each in settings.sources if each.name == name), None)
        try:
            return () if source is None else tuple(table.table_id for table in await self._captured_tables(source))
        except HeadwaterError as error:
            return error

    async def _notice(self, each: InForce, tables: Mapping[str, tuple[TableId, ...] | HeadwaterError]) -> None:
        """Store the document's tables, and the due copies; nothing is requested before that."""
        known: dict[str, tuple[TableId, ...]] = {}
        for name, found in tables.items():
            if isinstance(found, HeadwaterError):
                raise ServiceUnavailable(f"it joins source {name}, and its rows wait: {found}") from found
            known[name] = found
        joined = noticed(
            each.record.joining,
            each.spec,
            known,
            ids=[str(uuid.uuid4()) for _ in known],
            now_s=int(self._now().timestamp()),
        )
        await self._store(replace(each.record, joining=joined))

    async def _ask(self, each: InForce, settings: JoiningSettings, failures: Failures) -> None:
        """Send due signals, and then note them: after a kill in between they are sent again, under the same ids."""
        known = each.record.joining
        if must_wait(known, each.spec, settings, now_s=self._now().timestamp()):
            told = f"its rows are asked for {settings.mask_key_delay_s:.0f} s after it joined: routers have its keys by then"
            failures.wait(each.tenant, told)
            return
        for copy in known.noticed.due:
            failpoint("joining_after_noting_before_sending")
            text = snapshot_for_tenant(copy.signal_id, each.tenant, copy.tables)
            await asyncio.to_thread(send_signal, self._settings.kafka, copy.source, text)
            failpoint("joining_after_sending_before_noting")
            log.info(
                "joining_copy_asked",
                tenant_id=each.tenant,
                source=copy.source,
                tables=len(copy.tables),
                signal_id=copy.signal_id,
            )
            known = asked(known, copy)
        await self._store(replace(each.record, joining=known))

    @property
    def _tenants_per_packed_job(self) -> int:
        return self._settings.sink_jobs.tenants_per_packed_job if self._settings.sink_jobs is not None else 1

    async def _store(self, record: TenantRecord) -> None:
        folder = f"/api/v1/namespaces/{self._own}/configmaps"
        manifest = record_manifest(record, self._own, self._records_owned_by)
        if record.resource_version:
            await self._kubernetes.replace(f"{folder}/{record_name(record.tenant)}", manifest)
        else:
            await self._kubernetes.create(folder, manifest)

    async def _dismiss(self, standing: Standing, failures: Failures) -> None:
        """Nobody routes to a tenant that goes: its document is emptied; the record itself says until the end whose it was."""

        async def dismiss(each: Leaving) -> None:
            try:
                if each.record.text:
                    await self._store(replace(each.record, text=""))
                    log.info("tenant_dismissed", tenant_id=each.tenant)
            except Exception as error:
                failures.note(each.tenant, error)

        await side_by_side(dismiss(each) for each in standing.leaving)

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
        await side_by_side(self._note_password(each, failures) for each in standing.in_force if each.tenant in is_set)

    async def _note_password(self, each: InForce, failures: Failures) -> None:
        """Behind the change in Kafka: a crash between the two sets the same password once more."""
        assert each.credentials is not None
        body = record_manifest(
            replace(each.record, password_version=each.credentials.version, resource_version=""), self._own
        )
        path = f"/api/v1/namespaces/{self._own}/configmaps/{record_name(each.tenant)}"
        try:
            await self._kubernetes.merge(path, {"metadata": {"annotations": body["metadata"]["annotations"]}})
        except HeadwaterError as error:
            failures.note(each.tenant, error)

    async def _sink_jobs(self, standing: Standing, failures: Failures, *, with_drift: bool) -> dict[str, str]:
        """Spark's jobs as they should be; the job of each tenant."""
        if self._settings.sink_jobs is None:
            return {}
        assigned = {
            each.tenant: each.record.sink_job
            for each in standing.in_force
            if each.record.sink_job and each.spec.sink is not None
        }
        jobs = jobs_of(standing.in_force, standing.leaving, standing.kept)
        # As they are now, with tenants that this look leaves out.
        spared = {name for each in standing.left_out for name in jobs_with(each.record)}
        paths = folders(self._own)
        try:
            name = self._settings.sink_jobs.template_config_map
            template_map = await self._kubernetes.get(f"{paths['ConfigMap']}/{name}")
            if template_map is None:
                raise InvalidSettings("sink_jobs", [f"template_config_map: {self._own}/{name} does not exist"])
            template = job_template(template_map)
            found = await self._objects_of_jobs(template, paths)
        except HeadwaterError as error:
            failures.note_all(error)
            return assigned
        wanted: list[tuple[SinkJob, dict[str, Any]]] = []
        for job in jobs:
            if job.name in spared:
                continue
            try:
                wanted += [(job, manifest) for manifest in manifests(job, template, self._own)]
            except Exception as error:
                spared.add(job.name)
                for tenant in job.tenants:
                    failures.note(tenant, error)
        known = {_kind_and_name(manifest) for _, manifest in wanted}
        # First the removals: a job that is run in another way from now on must not run twice.
        for kind, name in found.keys() - known:
            is_spared = found[kind, name]["metadata"]["labels"][JOB_LABEL] in spared
            if is_spared or (kind == CLAIM and not template.claim_goes):
                continue
            try:
                await self._kubernetes.delete(f"{paths[kind]}/{name}")
                log.info("sink_job_deleted", kind=kind, name=name)
            except HeadwaterError as error:
                failures.note_all(error)
        for job, manifest in wanted:
            kind, name = _kind_and_name(manifest)
            is_there = (kind, name) in found
            if is_there and (kind == CLAIM or (is_as_noted(manifest, found[kind, name]) and not with_drift)):
                continue  # a claim is made once: the request for a volume hardly changes
            try:
                possible = as_it_was_made(manifest, found.get((kind, name)))
                await self._kubernetes.apply(f"{paths[kind]}/{name}", possible)
            except HeadwaterError as error:
                for tenant in job.tenants:
                    failures.note(tenant, error)
        return assigned

    async def _objects_of_jobs(
        self, template: JobTemplate, paths: Mapping[str, str]
    ) -> dict[tuple[str, str], dict[str, Any]]:
        """The objects of Spark jobs, by kind and name: also of another kind, by which they were run before.

        Raises:
            InvalidSettings: the template is of a kind that the cluster does not know.
        """
        found = {}
        for kind, path in paths.items():
            if kind == CLAIM and template.claim is None:
                continue  # a StatefulSet's own
            listed = await self._kubernetes.list_if_known(path, labels=JOB_LABEL)
            if listed is None and kind == template.kind:
                remedy = "install the Spark Operator with its CRDs, or set sink.kind: StatefulSet"
                raise InvalidSettings("sink_jobs", [f"the cluster knows no {kind} ({SPARK_OPERATOR}): {remedy}"])
            found.update({(kind, item["metadata"]["name"]): item for item in (listed.items if listed else ())})
        return found

    async def _let_go(self, standing: Standing, failures: Failures) -> None:
        """Finalizers and records of those whose everything is cleared away."""

        async def let_go(each: Leaving) -> None:
            if each.tenant in failures.by_tenant or failures.of_all or not each.has_let_go:
                return
            path = f"/api/v1/namespaces/{self._own}/configmaps/{record_name(each.tenant)}"
            try:
                # Whose ConfigMap is in no list of ours is found by the record alone.
                if each.config_map is None:
                    await self._release(each)
                # Before the job's answer: a repeated request for its tables' end would get no answer.
                await self._kubernetes.delete(path)
                reports = self._sinks.reasons or (), self._sinks.faults or ()
                said_something = _wait_key(each.record) in reports[0] or _faults_key(each.record) in reports[1]
                if each.deletes_tables or each.record.placement != NEVER_MOVED or said_something:
                    await self._make_handovers_topic()
                    of_record = each.tenant, each.record.origin.uid, _job_with_state(each.record)
                    await asyncio.to_thread(forget_said, self._settings.kafka, *of_record)
                # Last: the release may be removed at once after it. A ConfigMap without a record is released by any look.
                if each.config_map is not None:
                    await self._release(each)
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
                    await self._set_finalizers(config_map, _without_ours(config_map.finalizers))
            except HeadwaterError as error:  # the next look does it
                _log_not_released(config_map.origin, error)

        await side_by_side(let_go(each) for each in standing.leaving)
        await side_by_side(release(each) for each in standing.released)

    async def _release(self, each: Leaving) -> None:
        """Take our finalizer off; also off a ConfigMap that lost our label, and is in no list of ours."""
        config_map = each.config_map
        if config_map is None:
            path = f"/api/v1/namespaces/{each.record.origin.namespace}/configmaps/{each.record.origin.name}"
            try:
                found = await self._kubernetes.get(path)
            except AccessDenied as error:
                if self._looks_in(each.record.origin.namespace):
                    raise
                # Its namespace is none of the teams' any more, or gone: there is nobody to ask, and nothing left to clear away.
                _log_not_released(each.record.origin, error)
                return
            if found is None or found["metadata"]["uid"] != each.record.origin.uid:
                return
            config_map = tenant_config_map(found)
        if config_map.has_finalizer:
            await self._set_finalizers(config_map, _without_ours(config_map.finalizers))

    def _looks_in(self, namespace: str) -> bool:
        return any(mirror.namespace in (None, namespace) for mirror in self._config_maps)

    async def _set_finalizers(self, config_map: TenantConfigMap, finalizers: Sequence[str]) -> None:
        """With the version that was read: somebody else's finalizer is never lost."""
        metadata = {"resourceVersion": config_map.resource_version, "finalizers": list(finalizers)}
        await self._kubernetes.merge(_path(config_map), {"metadata": metadata})

    async def _own_what_is_kept(self, standing: Standing, owner: Mapping[str, Any] | None, failures: Failures) -> None:
        """The objects that a removed release takes with it: of a mesh without tenants all; else, where ``keeps_tenants``, none
        of theirs. The known sources are theirs too: they tell present tenants from later ones."""
        if owner is None:
            return
        folder = f"/api/v1/namespaces/{self._own}/configmaps"
        sources = await self._kubernetes.get(f"{folder}/{SOURCES_CONFIG_MAP}")
        wanted = [(found, self._records_owned_by) for found in self._records.objects]
        if sources is not None:
            wanted.append((sources, self._records_owned_by if standing.in_force or standing.kept else [owner]))

        async def own(found: Mapping[str, Any], owned_by: Sequence[Mapping[str, Any]]) -> None:
            metadata = {"resourceVersion": found["metadata"]["resourceVersion"], "ownerReferences": owned_by or None}
            try:
                await self._kubernetes.merge(f"{folder}/{found['metadata']['name']}", {"metadata": metadata})
            except Conflict:  # it was written since: the mirror shows it, and brings the next look
                return
            except HeadwaterError as error:
                failures.note_all(error)

        await side_by_side(own(found, owned_by) for found, owned_by in wanted if owners(found) != list(owned_by))

    async def _report(self, found: Sequence[Report]) -> None:
        async def tell(report: Report) -> None:
            try:
                if await self._kubernetes.merge(_path(report.config_map), annotations(report)):
                    now = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
                    folder = f"/api/v1/namespaces/{report.config_map.origin.namespace}/events"
                    for each in events(report, now=now, identity=self._identity):
                        with contextlib.suppress(Conflict):  # it was reported already
                            await self._kubernetes.create(folder, each)
            except Exception as error:
                log.warning("report_failed", config_map=str(report.config_map.origin), reason=refusal_of(error))

        for state in metrics.TENANT_STATES:
            metrics.OPERATOR_TENANTS.labels(state).set(sum(report.state == state for report in found))
        await side_by_side(tell(report) for report in found if report.is_news)


def _captured(source: CapturedSource, known: Sequence[TableSchema]) -> list[TableSchema]:
    """Of the source's tables those that its reader reads: schema_history knows others beside them."""
    schemas = {schema.table_id: schema for schema in known}
    return [schemas[table_id] for table_id in captured(source, schemas)]


def _key(record: TenantRecord) -> str:
    """The key of the jobs' reports about the tenant."""
    return handover_key(record.tenant, record.origin.uid)


def _wait_key(record: TenantRecord) -> str:
    """Under which its job says that it stands still."""
    return wait_key(record.tenant, record.origin.uid, _job_with_state(record))


def _waits_of(in_force: Sequence[InForce], said: Mapping[str, str] | None) -> dict[str, str] | None:
    """Why tenants stand still in their Spark jobs, by tenant; None: unknown yet. A report of a job that has the tenant no
    more does not count."""
    if said is None:
        return None
    has_job = [each for each in in_force if each.spec.sink is not None or each.record.placement.came_from]
    keys = {each.tenant: _wait_key(each.record) for each in has_job}
    return {name: said[key] for name, key in keys.items() if key in said}


def _faults_of(
    in_force: Sequence[InForce], of_mesh: Sequence[Fault] | None, of_sinks: Mapping[str, Sequence[Fault]] | None
) -> Sequence[Fault] | None:
    """The faults of services and of Spark jobs, the worst first; None: unknown yet. A report of a job that has the tenant no
    more does not count."""
    if of_mesh is None or of_sinks is None:
        return None
    keys = [_faults_key(each.record) for each in in_force if each.spec.sink is not None]
    return worst_first([*of_mesh, *(fault for key in keys for fault in of_sinks.get(key, ()))])


def _faults_key(record: TenantRecord) -> str:
    """Under which its job says which faults it has."""
    return faults_key(record.tenant, record.origin.uid, _job_with_state(record))


def _job_with_state(record: TenantRecord) -> str:
    """Of one that moves: the job that has not handed it over yet."""
    return record.placement.came_from or record.sink_job


def _kind_and_name(manifest: Mapping[str, Any]) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def _path(config_map: TenantConfigMap) -> str:
    return f"/api/v1/namespaces/{config_map.origin.namespace}/configmaps/{config_map.origin.name}"


def _log_not_released(origin: Origin, error: HeadwaterError) -> None:
    remedy = _NOT_RELEASED if isinstance(error, AccessDenied) else "none: it is tried again"
    log.warning("config_map_not_released", config_map=str(origin), reason=str(error), remedy=remedy)


def _without_ours(finalizers: Sequence[str]) -> list[str]:
    return [name for name in finalizers if name != FINALIZER]


def _some_reasons(failures: Failures) -> list[str]:
    reasons = [*failures.of_all, *(reason for each in failures.by_tenant.values() for reason in each)]
    return list(dict.fromkeys(reasons))[:5]
