"""The router's wiring: clients, tenants, lanes, consumer, health; and its end."""

import asyncio
import contextlib
import functools
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Final

import structlog

from libs.errors import HeadwaterError, ServiceUnavailable
from libs.events.names import changes_topic
from libs.kafka.clients import TopicSpec, all_topics, create_topics, ensure_topics
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.rpc.server import start_server
from libs.telemetry import metrics
from libs.telemetry.endpoint import start_endpoint
from libs.tenants.config_map import DOCUMENT_KEY
from libs.tenants.document import RefusedDocument, TenantFolder, TenantSet
from libs.tenants.mask_keys import MaskKeys
from libs.tenants.row_filter import condition_mistakes
from libs.types.table import TableId, TableSchema
from libs.types.tenant import TenantSpec
from services.router.app import ChangesConsumer
from services.router.kafka.aiokafka_log import quieten_aiokafka
from services.router.lane.lanes import Lanes
from services.router.liveness import Liveness, watch_transactions
from services.router.progress import ProgressReporter
from services.router.received_tenants import ReceivedTenants
from services.router.routes.encode import SchemaIds
from services.router.routes.match import NO_REGISTRY, FetchTableSchema, Target
from services.router.routes.refusals import RefusalReporter, Refusals
from services.router.routes.topic_claims import TopicClaims, announced_tables
from services.router.routes.topic_quotas import TopicQuotas
from services.router.settings import RouterSettings
from services.router.transactions.outputs import LaneDependencies
from services.router.transactions.rate_limits import RateLimits

log = structlog.get_logger()

_TENANTS_INTERVAL_S: Final = 1.0
_ASK_TIMEOUT_S: Final = 20.0
"""An operator is replaced by then; below ``lane.stuck_transaction_s``, because a lane waits for it."""
_TABLES_TIMEOUT_S: Final = 25.0
"""For all tables of a source, which come in parts; below ``lane.stuck_transaction_s``."""
_MAX_CHANGES_RECORD_BYTES: Final = 64 << 20
"""As the readers make the topic: a single row may have many megabytes."""


async def route(settings: RouterSettings, stop: asyncio.Event) -> None:
    """Route until ``stop`` is set; then let running transactions end and leave the group.

    Raises:
        InvalidSettings: the tenants' folder does not exist, or a certificate of the schema registry cannot be read.
        ServiceUnavailable: tenant_operator does not answer, and no earlier documents are known.
        TransientError, PipelineHalted: routing cannot go on; committed transactions are whole.
    """
    quieten_aiokafka()
    loop = asyncio.get_running_loop()
    failure: asyncio.Future[None] = loop.create_future()
    keys = MaskKeys(None if settings.keys_folder is None else Path(settings.keys_folder), os.environ)
    registry = _schema_registry(settings)
    refusals = Refusals(_name(settings))
    tenants = Tenants(settings, keys, refusals, loop)
    await tenants.begin()
    topics = {changes_topic(source): source for source in settings.sources}
    await asyncio.to_thread(ensure_topics, settings.kafka, _changes_topics(settings, list(topics)))
    async with (
        SchemaHistoryClient(settings.schema_history) as schema_history,
        CheckpointCommitterClient(settings.checkpoint_committer) as committer,
    ):
        schemas = TableSchemas(schema_history, loop, settings.schema_history.timeout_s)
        shared = LaneDependencies(
            kafka=settings.kafka,
            group=settings.group,
            settings=settings.lane,
            tenants=lambda: tenants.in_force.tenants,
            fetch_schema=schemas.of_source,
            claims=TopicClaims(schemas.tables_now, functools.partial(announced_tables, settings.kafka)),
            limits=RateLimits(settings.tenant_limits),
            on_failure=lambda error: _fail(loop, failure, error),
            keys=keys,
            registry=registry,
            refusals=refusals,
            topic_quotas=TopicQuotas(settings.topic_quotas, functools.partial(all_topics, settings.kafka)),
            look_at_tenants=tenants.look,
        )
        lanes = Lanes(topics, shared)
        liveness = Liveness(settings, list(topics), lanes)
        consumer = ChangesConsumer(settings, list(topics), lanes)
        endpoint = start_endpoint(
            settings.telemetry, alive=liveness.alive, ready=liveness.ready, degraded=lanes.degraded
        )
        server = None if settings.grpc is None else await start_server(settings.grpc, {})
        if server is not None:
            await server.set_serving(True)
        threading.Thread(target=watch_transactions, args=(lanes, settings.lane, os._exit), daemon=True).start()
        log.info("router_started", sources=list(settings.sources), http_port=endpoint.port)
        try:
            await _first_to_end(
                stop.wait,
                lambda: failure,
                consumer.run,
                lambda: tenants.follow(lanes),
                liveness.run,
                ProgressReporter(committer, lanes, settings.progress_interval_s).run,
                _refusal_reporter(settings, tenants, shared, lanes).run,
            )
        finally:
            await lanes.close()
            await consumer.stop()
            if server is not None:
                await server.stop(0)
            endpoint.close()


def _refusal_reporter(
    settings: RouterSettings, tenants: "Tenants", shared: LaneDependencies, lanes: Lanes
) -> RefusalReporter:
    return RefusalReporter(
        settings.tenant_operator,
        settings.sources,
        shared.refusals,
        tenants=tenants.as_received_now,
        fetch_schema=shared.fetch_schema,
        keys=shared.keys,
        registry=shared.registry,
        try_topics=functools.partial(_try_topics, shared),
        claims=shared.claims,
        records=lanes.records_fates,
    )


def _name(settings: RouterSettings) -> str:
    """Of this process among those that run now, and of its successor in the same pod."""
    return f"{socket.gethostname()}:{Path(settings.state_folder).absolute()}"


def _try_topics(shared: LaneDependencies, source: str, targets: Sequence[Target]) -> dict[str, HeadwaterError]:
    """As ``Outputs.create``, and makes none."""
    beyond = shared.topic_quotas.beyond(source, targets, is_trial=True)
    wanted = [target.topic for target in targets if target.topic.name not in beyond]
    return beyond | create_topics(shared.kafka, wanted, is_trial=True)


def _schema_registry(settings: RouterSettings) -> SchemaIds:
    if settings.schema_registry is None:
        return NO_REGISTRY
    from services.router.routes.schema_registry import (
        SchemaRegistry,  # its client takes 16 MB, which most routers can do without
    )

    return SchemaRegistry(settings.schema_registry, Path(settings.state_folder) / "schema-ids.jsonl")


class Tenants:
    """The tenants in force, looked at again every second."""

    def __init__(
        self, settings: RouterSettings, keys: MaskKeys, refusals: Refusals, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._loop = loop
        self._refusals = refusals
        self._timeout_s = settings.tenants_timeout_s
        self._received: ReceivedTenants | None = None
        documents = Path(settings.tenants_folder)
        if settings.tenant_operator is not None:
            documents = Path(settings.state_folder) / "received"
            self._received = ReceivedTenants(settings.tenant_operator, documents)
        self._folder = TenantFolder(
            documents,
            state_folder=Path(settings.state_folder) / "tenants",
            check_condition=condition_mistakes,
            check_key=keys.mistake,
            stamp_of_others=keys.stamp,
        )
        self._refreshing = threading.Lock()
        self.in_force = TenantSet()
        self._changed_at_s = time.monotonic()
        self._served: set[str] = set()

    async def begin(self) -> None:
        """Know the tenants before the first row is routed. Raises as ``route``."""
        if self._received is not None:
            await self._received.begin(timeout_s=self._timeout_s)
        self.refresh()

    async def follow(self, lanes: Lanes) -> None:
        """Refresh until cancelled."""
        if self._received is None:
            await self._refresh_again_and_again(lanes)
        else:
            await asyncio.gather(self._refresh_again_and_again(lanes), self._received.follow())

    async def _refresh_again_and_again(self, lanes: Lanes) -> None:
        while True:
            await asyncio.sleep(_TENANTS_INTERVAL_S)
            await asyncio.to_thread(self.refresh)
            if lanes.route_for_all_since(self._changed_at_s):
                self._report_let_go(lanes)

    def _report_let_go(self, lanes: Lanes) -> None:
        """Whether nothing more is written for tenants without a document: erasing a tenant waits for that."""
        for tenant in self._served - {spec.tenant for spec in self.in_force.tenants}:
            if lanes.may_write_apart_for(tenant, self._changed_at_s):
                continue
            self._served.discard(tenant)
            for lane in lanes.all():
                lane.let_go(tenant)
            metrics.ROUTER_SERVED.remove(tenant)
            log.info("tenant_let_go", tenant_id=tenant)

    def look(self) -> None:
        """Know the tenants as they are now: an operator is asked again. Called in a lane's thread; blocks for some seconds
        where no operator answers, and its last documents stay in force."""
        if self._received is not None:
            asking = asyncio.run_coroutine_threadsafe(self._received.ask_again(timeout_s=_ASK_TIMEOUT_S), self._loop)
            try:
                asking.result(_ASK_TIMEOUT_S + 1.0)
            except (TimeoutError, CancelledError):
                asking.cancel()
                log.warning("tenants_not_asked", reason="tenant_operator does not answer")
        self.refresh()

    def as_received_now(self) -> tuple[TenantSpec, ...] | None:
        """Tenants in force by an operator's answer now, or by the folder's documents; None: no operator answers.
        Thread-safe."""
        if self._received is not None and not self._received.is_current:
            return None
        self.refresh()
        return self.in_force.tenants

    def refresh(self) -> None:
        """Take in the folder's changes. Thread-safe."""
        with self._refreshing:
            self._refresh()

    def _refresh(self) -> None:
        with self._received.lock if self._received is not None else contextlib.nullcontext():
            changed = self._folder.refresh()
        if changed is None:
            return
        for spec in changed.tenants:
            self._served.add(spec.tenant)
            metrics.ROUTER_SERVED.labels(spec.tenant).set(1)
        self.in_force = changed
        self._changed_at_s = time.monotonic()
        log.info("tenants_loaded", tenants=[spec.tenant for spec in changed.tenants], refused=len(changed.refused))
        metrics.TENANTS.set(len(changed.tenants))
        metrics.TENANT_REFUSED.clear()
        for by_tenant in (metrics.ROUTER_TENANT_LAG, metrics.ROUTER_TENANT_DELAY, metrics.ROUTER_TENANT_BEHIND):
            by_tenant.clear()  # of tenants that are gone; the others' come again within seconds
        for document in changed.refused:
            log.error(
                "tenant_refused", file=str(document.file), in_force=document.tenant, mistakes=list(document.mistakes)
            )
            metrics.TENANT_REFUSED.labels(document.tenant or document.file.stem).set(1)
        self._refusals.refuse_documents({each.file.stem: _why_refused(each) for each in changed.refused})


def _why_refused(document: RefusedDocument) -> str:
    """For the tenant's team, which knows the document by the name of its key in the ConfigMap."""
    behind = (
        "the version before stays in force there"
        if document.tenant
        else "nothing of the tenant is in force there, and rows that pass meanwhile do not come"
    )
    own = f"{document.file.name}:"
    mistakes = (
        f"{DOCUMENT_KEY}:{mistake.removeprefix(own)}" if mistake.startswith(own) else mistake
        for mistake in document.mistakes
    )
    return f"{'; '.join(mistakes)}; {behind}"


class TableSchemas:
    """Table schemas of all sources, asked of schema_history once each: a version never changes."""

    def __init__(self, client: SchemaHistoryClient, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        self._client = client
        self._loop = loop
        self._timeout_s = timeout_s
        self._known: dict[tuple[str, TableId, int], TableSchema] = {}

    def of_source(self, source: str) -> FetchTableSchema:
        """How a lane looks schemas of ``source`` up."""

        def fetch(table_id: TableId, version: int) -> TableSchema:
            known = self._known.get((source, table_id, version))
            if known is None:
                known = self._known[source, table_id, version] = self._ask(source, table_id, version)
            return known

        return fetch

    def tables_now(self, source: str) -> set[TableId]:
        """The tables of ``source`` that exist now. Called in any thread but the event loop's; raises ServiceUnavailable."""
        call = asyncio.run_coroutine_threadsafe(self._client.list_tables(source), self._loop)
        try:
            return {schema.table_id for schema in call.result(_TABLES_TIMEOUT_S)}
        except TimeoutError as error:
            call.cancel()
            raise ServiceUnavailable(f"schema_history did not give all tables of {source} in time") from error

    def _ask(self, source: str, table_id: TableId, version: int) -> TableSchema:
        """Called in a lane's thread; the client belongs to the event loop."""
        call = asyncio.run_coroutine_threadsafe(self._client.table_schema(source, table_id, version), self._loop)
        try:
            return call.result(self._timeout_s + 1.0)
        except TimeoutError as error:
            call.cancel()
            raise ServiceUnavailable("schema_history did not answer in time") from error


def _changes_topics(settings: RouterSettings, names: list[str]) -> list[TopicSpec]:
    """The readers create them too; the first one does."""
    return [
        TopicSpec(
            name=name,
            replication_factor=settings.kafka.replication_factor,
            config={"max.message.bytes": str(_MAX_CHANGES_RECORD_BYTES)},
        )
        for name in names
    ]


def _fail(loop: asyncio.AbstractEventLoop, failure: "asyncio.Future[None]", error: HeadwaterError) -> None:
    """From a lane's thread: end the process by ``error``."""

    def end() -> None:
        if not failure.done():
            failure.set_exception(error)

    loop.call_soon_threadsafe(end)


async def _first_to_end(*works: Callable[[], Awaitable[object]]) -> None:
    """Run all; the first that ends or raises cancels the others, and its error is raised."""
    tasks = [asyncio.ensure_future(work()) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
