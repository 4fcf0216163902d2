"""The operator's wiring: mirrors of Kubernetes, the lease, the loop of the leader, gRPC, health; and its end."""

import asyncio
import functools
import time
from collections.abc import Sequence
from typing import Final

import structlog

from libs.errors import HeadwaterError, TransientError
from libs.kafka.admin import KafkaClient
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.rpc.server import start_server
from libs.telemetry import metrics
from libs.telemetry.endpoint import start_endpoint
from libs.tenants.config_map import RECORD_LABEL, TENANT_LABEL
from libs.types.fault import Fault
from libs.types.table import TableSchema
from protos.headwater.tenants.v1.tenants_pb2_grpc import add_TenantsServicer_to_server
from services.tenant_operator.kubernetes_client import KubernetesClient, open_kubernetes
from services.tenant_operator.lease import Leadership
from services.tenant_operator.mask_keys import secret_names
from services.tenant_operator.mesh_faults import MeshFaults
from services.tenant_operator.mirror import Mirror
from services.tenant_operator.objects import tenant_record
from services.tenant_operator.reconcile import Reconciler
from services.tenant_operator.refusals import RefusalKeeper
from services.tenant_operator.service import SERVICE_NAME, TenantsService
from services.tenant_operator.settings import TenantOperatorSettings
from services.tenant_operator.sink_waits import NoJobs, SinkWaits

GRACE_S: Final = 1.0
"""Streams have no end of their own; the lease is to be handed over within the rest of a supervisor's 10 s."""
STALLED_AFTER_S: Final = 300.0
"""A look asks Kafka a dozen times, each with a time-out of 30 s: one that takes longer than all of them hangs."""
_FAULTS_TOLD: Final = 4

log = structlog.get_logger()


async def operate(settings: TenantOperatorSettings, stop: asyncio.Event) -> None:
    """See to the tenants while this one leads, and serve their documents, until ``stop`` is set.

    Raises:
        InvalidSettings: there is no such cluster.
        AccessDenied: the service account lacks a right; the message names it.
        Fenced: the lease was lost.
    """
    async with await open_kubernetes(settings.kubernetes) as kubernetes:
        await _Operator(settings, kubernetes).run(stop)


class _Operator:
    def __init__(self, settings: TenantOperatorSettings, kubernetes: KubernetesClient) -> None:
        self._settings = settings
        self._changed = asyncio.Event()
        namespaces = settings.kubernetes.tenant_namespaces

        def mirrors(kind: str, where: Sequence[str], fields: str = "") -> list[Mirror]:
            label, on_change = f"{TENANT_LABEL}=true", self._tenants_changed
            return [
                Mirror(
                    kubernetes,
                    f"/api/v1/namespaces/{name}/{kind}",
                    labels=label,
                    fields=fields,
                    namespace=name,
                    on_change=on_change,
                )
                for name in where
            ]

        everywhere = {
            kind: [
                Mirror(kubernetes, f"/api/v1/{kind}", labels=f"{TENANT_LABEL}=true", on_change=self._tenants_changed)
            ]
            for kind in ("configmaps", "secrets")
        }
        by_name = {each.namespace: each.names for each in settings.kubernetes.tenant_secrets}
        self._config_maps = mirrors("configmaps", namespaces) if namespaces else everywhere["configmaps"]
        self._secrets = [] if namespaces else everywhere["secrets"]
        self._secrets += mirrors("secrets", [name for name in namespaces if name not in by_name])
        for namespace, names in by_name.items():
            for name in names:
                self._secrets += mirrors("secrets", [namespace], f"metadata.name={name}")
        own = f"/api/v1/namespaces/{settings.kubernetes.own_namespace}"
        # By name, each: its rights are for these Secrets of the namespace, and for no other.
        self._mask_keys = [
            Mirror(kubernetes, f"{own}/secrets", fields=f"metadata.name={name}", on_change=self._changed.set)
            for name in secret_names(settings.mask_keys)
        ]
        self._records = Mirror(kubernetes, f"{own}/configmaps", labels=RECORD_LABEL, on_change=self._records_changed)
        self._leadership = Leadership(kubernetes, settings.kubernetes, settings.lease)
        self._kafka = KafkaClient(settings.kafka)
        has_jobs = settings.sink_jobs is not None
        self._sink_waits = SinkWaits(settings.kafka, on_change=self._changed.set) if has_jobs else None
        self._mesh_faults = MeshFaults(settings.services, on_change=self._changed.set) if settings.services else None
        self._reconciler = Reconciler(
            settings,
            kubernetes,
            self._kafka,
            config_maps=self._config_maps,
            secrets=self._secrets,
            mask_keys=self._mask_keys,
            schemas_of=self._schemas_of,
            sinks=NoJobs() if self._sink_waits is None else self._sink_waits,
            mesh_faults=self._faults_of_mesh,
            records=self._records,
            identity=self._leadership.identity,
        )
        self._schema_history: SchemaHistoryClient | None = None
        refusals = RefusalKeeper(kubernetes, settings.kubernetes.own_namespace, self._records)
        self._service = TenantsService(self._documents, self._records.is_listed, refusals)
        self._look_began_s: float | None = None

    @property
    def _mirrors(self) -> list[Mirror]:
        return [*self._config_maps, *self._secrets, *self._mask_keys, self._records]

    async def _schemas_of(self, source: str) -> list[TableSchema]:
        assert self._settings.joining is not None
        if self._schema_history is None:
            self._schema_history = SchemaHistoryClient(self._settings.joining.schema_history)
        return await self._schema_history.list_tables(source)

    def _faults_of_mesh(self) -> Sequence[Fault] | None:
        return () if self._mesh_faults is None else self._mesh_faults.lasting

    async def run(self, stop: asyncio.Event) -> None:
        endpoint = start_endpoint(
            self._settings.telemetry, alive=self._stalled, ready=self._not_ready, degraded=self._fault
        )
        register = functools.partial(add_TenantsServicer_to_server, self._service)
        server = await start_server(self._settings.grpc, {SERVICE_NAME: register})
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(mirror.run()) for mirror in self._mirrors]
                waiting = tasks.create_task(self._all_answered())
                await waiting
                running.append(tasks.create_task(self._leadership.run()))
                running.append(tasks.create_task(self._lead()))
                if self._sink_waits is not None:
                    running.append(tasks.create_task(self._sink_waits.run()))
                if self._mesh_faults is not None:
                    running.append(tasks.create_task(self._mesh_faults.run()))
                await server.set_serving(True)
                log.info("service_started", grpc_port=server.port, http_port=endpoint.port)
                await stop.wait()
                for task in running:
                    task.cancel()
            await self._leadership.release()
        finally:
            metrics.OPERATOR_LEADS.set(0)
            await server.stop(GRACE_S)
            await self._kafka.close()
            if self._schema_history is not None:
                await self._schema_history.close()
            endpoint.close()

    async def _all_answered(self) -> None:
        """Raises AccessDenied where no namespace of a team lets us look: it is not theirs, then."""
        for mirror in self._mirrors:
            await mirror.answered.wait()
        refusals = [mirror.refusal for mirror in self._config_maps if mirror.refusal is not None]
        if len(refusals) == len(self._config_maps):
            raise refusals[0]

    async def _lead(self) -> None:
        """Look whenever something changed, and now and then for drift; while this one leads."""
        await self._leadership.held.wait()
        metrics.OPERATOR_LEADS.set(1)
        drift_looked_s = -self._settings.resync_s
        while True:
            with_drift = time.monotonic() - drift_looked_s >= self._settings.resync_s
            self._changed.clear()
            self._look_began_s = time.monotonic()
            try:
                with metrics.OPERATOR_LOOK_SECONDS.time():
                    is_done = await self._reconciler.look(with_drift=with_drift)
            except TransientError as error:
                log.warning("reconcile_failed", reason=str(error))
                is_done = False
            except HeadwaterError:
                raise
            except Exception:  # this one look's: its actions so far are done, and the next one comes
                log.exception("reconcile_failed")
                is_done = False
            self._look_began_s = None
            if with_drift and is_done:
                drift_looked_s = time.monotonic()
            is_quiet = is_done and not self._reconciler.awaits_jobs
            await self._wait_for_change(self._settings.resync_s if is_quiet else self._settings.retry_s)

    async def _wait_for_change(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return
        await asyncio.sleep(self._settings.debounce_s)

    def _tenants_changed(self) -> None:
        refused = {mirror.namespace for mirror in (*self._config_maps, *self._secrets) if mirror.refusal is not None}
        metrics.OPERATOR_REFUSED_NAMESPACES.set(len(refused))
        self._changed.set()

    def _records_changed(self) -> None:
        self._changed.set()
        self._service.wake()

    def _documents(self) -> dict[str, str]:
        """In force, by tenant. One that goes has an empty document."""
        records = [tenant_record(found) for found in self._records.objects]
        return {record.tenant: record.text for record in records if record.text}

    def _stalled(self) -> str | None:
        """For /healthz. Called in the endpoint's thread."""
        began_s = self._look_began_s
        took_s = 0.0 if began_s is None else time.monotonic() - began_s
        return f"one look at the tenants has taken {took_s:.0f} s" if took_s > STALLED_AFTER_S else None

    def _not_ready(self) -> str | None:
        """For /readyz: whether routers can get the tenants. A namespace that refuses holds up no others."""
        missing = [mirror.path for mirror in self._mirrors if not mirror.answered.is_set()]
        return f"not listed yet: {', '.join(missing)}" if missing else None

    def _fault(self) -> str | None:
        """For /readyz: answers may be old."""
        faults = [mirror.fault for mirror in self._mirrors if mirror.fault is not None]
        more = f"; and {len(faults) - _FAULTS_TOLD} more" if len(faults) > _FAULTS_TOLD else ""
        return "; ".join(faults[:_FAULTS_TOLD]) + more if faults else None
