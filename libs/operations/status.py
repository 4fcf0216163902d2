"""A mesh's state: processes, source partitions, tenants' tables, each from the service that knows it best.

    processes           run/state.json and the operating system
    source partitions   ReaderControl of each reader; the source itself says how many transactions are newer
    tenants' topics     progress that the router reported to checkpoint_committer
    tenants' tables     the sink's files, against the ends of the topics

``headwater status`` calls ``gather_status`` and prints it; of a mesh elsewhere ``gather_mesh_status``, which asks the services
over gRPC and sees no process, no document and no sink's file. A part that does not answer is left out or said to be unknown:
a status never fails because a part of the mesh is down.
"""

import asyncio
import contextlib
import datetime
import re
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import grpc
import msgspec
import psutil
from confluent_kafka import Consumer

from libs.config.connections import GrpcClientSettings, KafkaSettings, WatchedService
from libs.errors import HeadwaterError, InvalidSettings
from libs.mesh.documents import Documents, SourceDocument
from libs.mesh.executed import executed_in, executed_now, missing_transactions
from libs.mesh.home import Home
from libs.mesh.mesh import stack_kafka
from libs.mesh.mesh_settings import MeshSettings, mesh_sources
from libs.mesh.own_services import caller
from libs.mesh.processes import CHECKPOINT_COMMITTER, ROUTER, is_reader_of, reader_name
from libs.mesh.resync_notes import Resync, running_resyncs
from libs.mesh.sink_state import committed_offsets, sink_progress
from libs.mesh.state import ServicePhase, ServiceState, StackState
from libs.mesh.taken_over import ChangedDocument, changed_since
from libs.mesh.tenant_objects import objects_in_cluster, tenant_of
from libs.mesh.tenant_topics import committed_ends, has_records_between, open_consumer
from libs.rpc.checkpoint_committer_client import CheckpointCommitterClient
from libs.rpc.client import open_channel
from libs.rpc.faults_client import gather_faults
from libs.servers.ports import LOOPBACK
from libs.sink_state.progress import SinkProgress, TableFiles, TableProgress, TableTimings
from libs.telemetry.faults import (
    DOCUMENT_CHANGED,
    KAFKA_UNREACHABLE,
    PROCESS_DOWN,
    SERVICE_DEGRADED,
    SINK_HALTED,
    TABLE_REFUSED,
    TENANT_REFUSED,
    TENANT_WAITS,
    TOPIC_REFUSED,
    FaultKind,
    fault_of,
)
from libs.telemetry.sink_faults import sink_faults
from libs.tenants.config_map import REFUSED, WAITING, TenantObject
from libs.types.fault import Fault, FaultScope, worst_first
from libs.types.progress import Progress
from protos.headwater.checkpoints.v1 import checkpoint_pb2
from protos.headwater.reader_control.v1 import reader_control_pb2 as pb
from protos.headwater.reader_control.v1 import reader_control_pb2_grpc

ANSWER_TIMEOUT_S: Final = 3.0
FAULT_PAGES_AT_ONCE: Final = 16
CPU_WINDOW_S: Final = 0.3
DEGRADED: Final = "degraded: "  # begins /readyz (libs.telemetry.endpoint) of a service that works amiss
FEW_OFFSETS: Final = 50
COMMITTER_COMPONENT: Final = "checkpoint-committer"
"""How a file for --mesh names checkpoint_committer."""
_UNKNOWN_PARTITION: Final = "?"
_TENANT_SAMPLE: Final = re.compile(
    r"^(headwater_router_(?:tenant_cpu_seconds_total|events_total|bytes_total|tenant_lag_batches|tenant_behind))"
    r'\{(?:[^}]*,)?tenant="([^"]*)"[^}]*\} (\S+)',
    re.MULTILINE,
)
"""A sample of a tenant in a router's metrics. A parser of any page takes 50 times as long, for 1,000 tenants half a second."""
_STATES: Final = {
    pb.READER_STATE_STARTING: "starting",
    pb.READER_STATE_SNAPSHOTTING: "snapshotting",
    pb.READER_STATE_STREAMING: "streaming",
    pb.READER_STATE_PAUSED: "paused",
    pb.READER_STATE_HALTED: "halted",
    pb.READER_STATE_CONNECTING: "connecting",
    pb.READER_STATE_DISCONNECTED: "disconnected",
}


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the stack, its children counted in."""

    name: str
    phase: str
    pid: int | None
    up_s: float | None
    restarts: int
    rss_bytes: int | None
    cpu_percent: float | None
    """Of one core, over the last CPU_WINDOW_S."""
    detail: str


class IncrementalStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One table of an incremental snapshot."""

    table: str
    signal_id: str
    chunks_read: int
    rows_read: int
    rows_estimated: int
    """By the source's statistics; 0 before its reading begins."""
    for_tenants: tuple[str, ...] = ()
    """Only these get the rows; empty: everybody who sees the table."""


class ShardStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One shard of a source partition, as far as it was read."""

    shard: str
    position: str
    """Its GTID set."""
    epoch: int
    committed_at_us: int
    """When its newest transaction was committed there; 0: none came since the reader started."""
    lag_s: float
    """From that commit to its reading."""
    transactions: int
    """Since the reader started."""
    rows: int
    rows_copied: int
    """Of ``rows``: those that no change brought."""
    is_copying: bool
    """Tables of it are being copied, by the initial snapshot or an incremental one."""
    is_ended: bool
    """It came to the journal of a reshard, and waits for the others that end there."""
    lag_transactions: int | None = None
    """Transactions that the shard has committed and the reader has not published; None: unknown."""


class SignalStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a signal that the reader's process took or refused."""

    signal_id: str
    kind: str
    """``execute-snapshot``; empty: the signal was not understood."""
    at_us: int
    """When it was taken or refused."""
    refused_because: str = ""
    """It did nothing; empty: it was taken."""
    not_done: tuple[str, ...] = ()
    """Its parts that failed, each with the reason."""
    tables: int = 0
    """Copies that it asked for."""
    waiting: int = 0
    """Of these: those that have not ended durably."""
    finished: int = 0
    rows_read: int = 0
    """Of the finished copies."""
    given_up: Mapping[str, str] = {}
    """Tables whose copy ended early, with the reason; twenty at most, ``given_up_count`` counts all."""
    given_up_count: int = 0
    copied_by: tuple[str, ...] = ()
    """The signals whose copies serve this one."""

    @property
    def is_well(self) -> bool:
        """Nothing of it failed."""
        return not (self.refused_because or self.not_done or self.given_up_count)


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One source partition."""

    source: str
    source_partition: str
    state: str
    position: str = ""
    """As the reader writes it; for display only."""
    rows_published: int = 0
    snapshot_rows_copied: int | None = None
    """While the initial snapshot runs."""
    snapshot_rows_estimated: int | None = None
    snapshot_tables: int | None = None
    """How many are copied in all; 0: a reader of an earlier release does not say."""
    snapshot_finished_tables: int | None = None
    snapshot_remaining_s: float | None = None
    """Until the initial snapshot is copied; None: not known."""
    incremental: tuple[IncrementalStatus, ...] = ()
    """Tables that an incremental snapshot has yet to read, in their order; the first is being read."""
    incremental_is_paused: bool = False
    incremental_remaining_s: float | None = None
    """Until the first of them is done; None: not known."""
    lag_transactions: int | None = None
    """Transactions that the source has committed and the reader has not published; None: unknown."""
    lag_s: float | None = None
    """Age of the newest published transaction while newer ones wait; 0 where none does."""
    committed_at_us: int = 0
    """When the source committed the newest published transaction."""
    signals: tuple[SignalStatus, ...] = ()
    """Of this run of the reader's process, the newest last."""
    signals_offset: int | None = None
    """The next record of the signals topic to act upon; None: none was seen yet."""
    finished_copies: Mapping[str, int] = {}
    """Signals whose copies were finished last, with the rows that were read; the checkpoint keeps them."""
    quarantined: Mapping[str, str] = {}
    """Tables whose rows are passed over, each with the reason and the remedy."""
    shards: tuple[ShardStatus, ...] = ()
    """Of a keyspace."""
    error_since_us: int = 0
    """When the first of the failures in a row came that keep it from reading; 0: it reads."""
    next_try_us: int = 0
    """When it tries again."""
    detail: str = ""


class TableInWarehouse(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's table as the sink left it, and the cost of its newest batch."""

    last: TableTimings
    """Of the newest batch that it was in."""
    read_s: float
    """Of the tenant's newest batch, all tables together: from Kafka into memory."""
    show_s: float
    """Of the same: showing them at once; 0 where they do not move together."""
    files: TableFiles | None
    """None: the warehouse does not know."""
    maintained_at_us: int
    """When its files were last rewritten, expired or cleaned; 0: never."""


class TableStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far one hop of a tenant's table got."""

    tenant: str
    source: str
    table: str
    """``database.table``; empty where the hop counts all tables together (the router)."""
    hop: str
    """``router`` or ``sink``."""
    events: int
    """Row events done: by the sink since it first ran, by the router since its last start."""
    position: str
    """EventOrder of the newest event that is durable after the hop."""
    committed_at_us: int
    """When the source committed that event."""
    lag_events: int | None = None
    """In the tenant's topic and not in the warehouse's table, transaction marks counted in; None: unknown."""
    lag_s: float | None = None
    """Age of the newest event done while newer ones wait; 0 where none does; None: unknown."""
    warehouse: TableInWarehouse | None = None
    """Of the sink's."""
    detail: str = ""
    """Why it stands still, with the remedy."""


class RoutedTenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's use of the router since that started, and whether it lags."""

    tenant: str
    cpu_s: float
    events: int
    bytes: int
    """Of keys and values, before compression."""
    lag_batches: int = 0
    """ChangeBatches that wait for it; of its source partitions all together."""
    standing: str = ""
    """``behind`` while its limits hold it back or it catches up, ``stuck`` while somebody has to see to it; else empty."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that ``headwater status`` shows."""

    home: str
    """The stack's folder; of a mesh elsewhere the file that names it."""
    phase: str
    processes: tuple[ProcessStatus, ...]
    sources: tuple[SourceStatus, ...]
    tables: tuple[TableStatus, ...]
    routed: tuple[RoutedTenant, ...] = ()
    """Those that took most CPU of the router first."""
    unknown: tuple[str, ...] = ()
    """Parts that did not answer, and so are not shown."""
    faults: tuple[Fault, ...] = ()
    """The faults, the worst first."""


def gather_status(home: Home, state: StackState, documents: Documents) -> Status:
    """Ask everybody, a few seconds at most."""
    processes = _processes(state)
    found = [*process_faults(state), *_refused_tenants(documents)]
    sources, progress, unknown = asyncio.run(_ask(home, state, documents))
    sources_with_lag = with_source_lag(sources, documents.sources)
    written = {tenant: sink_progress(home, tenant) for tenant in sorted(documents.tenants)}
    tables = [*_routed(progress, sources_with_lag), *_sunk(home, written, unknown, found)]
    found += [*_sink_faults(written), *_changed_documents(home, documents)]
    return Status(
        home=str(home.root),
        phase=state.phase.value,
        processes=processes,
        sources=sources_with_lag,
        tables=tuple(sorted(tables, key=lambda each: (each.tenant, each.hop, each.source, each.table))),
        routed=_routed_tenants(state),
        unknown=tuple(unknown),
        faults=tuple(worst_first(list({(each.id, each.scope): each for each in found}.values()))),
    )


def gather_mesh_status(settings: MeshSettings, shown_as: str) -> Status:
    """The same of a mesh that no home holds, from the services that the file names.

    Raises:
        InvalidSettings: the file names no service, or has mistakes.
    """
    if not settings.services:
        raise InvalidSettings(
            shown_as, ['services: is missing: name each service with its gRPC address, as in docs/cli.md, "status"']
        )
    documents = mesh_sources(settings) if settings.sources else {}
    unknown: list[str] = []
    faults, found, progress = asyncio.run(_ask_services(settings.services, unknown))
    sources = with_source_lag(found, documents)
    silent = {fault.scope.process: fault.happened for fault in faults if fault.id == PROCESS_DOWN.id}
    faults = [*_faults_in_cluster(settings, unknown), *faults]  # of one fault in both the service's own words stay
    return Status(
        home=shown_as,
        phase="elsewhere",
        processes=tuple(
            ProcessStatus(
                name=service.name,
                phase="unknown" if service.name in silent else "up",
                pid=None,
                up_s=None,
                restarts=0,
                rss_bytes=None,
                cpu_percent=None,
                detail=silent.get(service.name, ""),
            )
            for service in settings.services
        ),
        sources=sources,
        tables=tuple(sorted(_routed(progress, sources), key=lambda each: (each.tenant, each.source, each.table))),
        unknown=tuple(unknown),
        faults=tuple(worst_first(list({(each.id, each.scope): each for each in faults}.values()))),
    )


async def _ask_services(
    services: Sequence[WatchedService], unknown: list[str]
) -> tuple[list[Fault], list[SourceStatus], list[Progress]]:
    committer = next((each.grpc for each in services if each.name == COMMITTER_COMPONENT), None)
    faults, sources, progress = await asyncio.gather(
        gather_faults(services),
        asyncio.gather(*(ask_reader(each.source, each.grpc) for each in services if each.source)),
        _progress(committer, unknown),
    )
    return faults, list(sources), progress


def _faults_in_cluster(settings: MeshSettings, unknown: list[str]) -> list[Fault]:
    """A fault for each tenant whose ConfigMap says that not all is well, as its team reads it."""
    if settings.kubernetes is None:
        return []
    try:
        found = objects_in_cluster(settings.kubernetes, "or leave `kubernetes` out of the file for --mesh")
    except HeadwaterError as error:
        unknown.append(f"tenants' ConfigMaps: {error}")
        return []
    return [fault for each in found for fault in _faults_of_object(each)]


def _faults_of_object(found: TenantObject) -> list[Fault]:
    """The faults that a ConfigMap names of its tenant; faults of sources are left to the mesh's services."""
    tenant = tenant_of(found)
    if found.state == REFUSED:
        return [_of_tenant(TENANT_REFUSED, FaultScope(tenant=tenant), f"ConfigMap {found.place}: {found.message}")]
    whole = FaultScope(tenant=tenant)
    named: list[tuple[FaultKind, FaultScope, str]] = []
    if found.state == WAITING:
        named.append((SERVICE_DEGRADED, whole, f"ConfigMap {found.place}: {found.message}"))
    if found.refused_document:
        named.append((TENANT_REFUSED, whole, found.refused_document))
    if found.sink_wait:
        named.append((SINK_HALTED, whole, found.sink_wait))
    for name, why in found.refused_tables.items():
        table, _, source = name.rpartition(" of ")
        named.append((TABLE_REFUSED, FaultScope(tenant=tenant, source=source, table=table), why))
    for name, why in found.refused_topics.items():
        source = name.rpartition(" of ")[2]
        named.append((TOPIC_REFUSED, FaultScope(tenant=tenant, source=source), f"{name}: {why}"))
    for source, why in found.refused_records.items():
        named.append((TENANT_WAITS, FaultScope(tenant=tenant, source=source), why))
    return [*(_of_tenant(*each) for each in named), *(each for each in found.faults if each.scope.tenant)]


def _of_tenant(kind: FaultKind, scope: FaultScope, happened: str) -> Fault:
    return fault_of(kind, scope, happened=happened, since_us=0)


def _processes(state: StackState) -> tuple[ProcessStatus, ...]:
    groups: dict[str, list[psutil.Process]] = {}
    for service in state.services:
        members = []
        if service.pid is not None:
            try:
                leader = psutil.Process(service.pid)
                members = [leader, *leader.children(recursive=True)]
            except psutil.Error:
                members = []
        groups[service.name] = members
    before = {name: _cpu_s(members) for name, members in groups.items()}
    started_s = time.monotonic()
    time.sleep(CPU_WINDOW_S)
    window_s = time.monotonic() - started_s
    found = []
    for service in state.services:
        members = groups[service.name]
        found.append(
            ProcessStatus(
                name=service.name,
                phase=service.phase.value,
                pid=service.pid,
                up_s=round(time.time() - service.process_created_s, 1) if service.process_created_s else None,
                restarts=service.restarts,
                rss_bytes=_rss_bytes(members) if members else None,
                cpu_percent=(
                    round(max(0.0, 100 * (_cpu_s(members) - before[service.name]) / window_s), 1) if members else None
                ),
                detail=service.detail or _degradation(service),
            )
        )
    return tuple(found)


def process_faults(state: StackState) -> list[Fault]:
    """Every fault that a process reports, and each process that does not work."""
    with ThreadPoolExecutor(max_workers=FAULT_PAGES_AT_ONCE) as pool:
        return [fault for found in pool.map(_faults_of_process, state.services) for fault in found]


def _faults_of_process(service: ServiceState) -> list[Fault]:
    scope = FaultScope(process=service.name)
    if service.phase in (ServicePhase.BACKING_OFF, ServicePhase.FAILED):
        return [fault_of(PROCESS_DOWN, scope, happened=service.detail, since_us=service.last_end_us)]
    found: list[Fault] = []
    if service.pid is not None and service.http_port is not None:
        with contextlib.suppress(OSError, msgspec.DecodeError):  # its phase and, if it lasts, its restart show it
            found = msgspec.json.decode(_page(service.http_port, "/faults"), type=list[Fault])
    if not found and service.phase is ServicePhase.STARTING and service.last_end:
        happened = f"is started again; it ended before: {service.last_end}"
        found = [fault_of(PROCESS_DOWN, scope, happened=happened, since_us=service.last_end_us)]
    if not found and (degradation := _degradation(service)):
        happened = f"{service.name}: {degradation.removeprefix(DEGRADED)}"
        found = [fault_of(SERVICE_DEGRADED, scope, happened=happened, since_us=0)]
    return found


def _refused_tenants(documents: Documents) -> list[Fault]:
    """A fault for each mistake of a tenant's document."""
    return [
        fault_of(TENANT_REFUSED, FaultScope(tenant=Path(mistake.partition(":")[0]).stem), happened=mistake, since_us=0)
        for mistake in documents.tenant_mistakes
    ]


def _sink_faults(written: Mapping[str, SinkProgress | None]) -> list[Fault]:
    """By the sink's files, so that one that is down is covered too."""
    return [
        fault_of(kind, scope, happened=happened, since_us=progress.written_at_us)
        for progress in written.values()
        if progress is not None
        for kind, happenings in sink_faults(progress).items()
        for scope, happened in happenings.items()
    ]


def _changed_documents(home: Home, documents: Documents) -> list[Fault]:
    """A fault for each source whose document the running stack has otherwise, and one for all other documents."""
    changes: dict[FaultScope, list[ChangedDocument]] = {}
    for changed in changed_since(home):
        file = Path(changed.name)
        is_source = file.parent.name == home.sources_dir.name
        changes.setdefault(FaultScope(source=file.stem if is_source else ""), []).append(changed)
    return [
        fault_of(
            DOCUMENT_CHANGED,
            scope,
            happened="; ".join(_how_changed(home, each, documents.source_mistakes) for each in found),
            since_us=min(each.since_us for each in found),
        )
        for scope, found in changes.items()
    ]


def _how_changed(home: Home, changed: ChangedDocument, source_mistakes: Sequence[str]) -> str:
    """With its first mistake, where it has some: `up` would refuse it."""
    happened = f"{changed.name} was {changed.how} after the stack was started"
    mistake = next((each for each in source_mistakes if each.startswith(f"{home.root / changed.name}:")), None)
    return happened if mistake is None else f"{happened}, and has mistakes: {mistake}"


def _degradation(service: ServiceState) -> str:
    """A running process's own report of a degraded state; empty without one."""
    if service.phase is not ServicePhase.UP or service.http_port is None:
        return ""
    try:
        text = _page(service.http_port, "/readyz").strip()
    except OSError:
        return ""  # its phase and, if it lasts, its restart show it
    return text if text.startswith(DEGRADED) else ""


def _page(http_port: int, path: str) -> str:
    """Raises OSError."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{http_port}{path}", timeout=ANSWER_TIMEOUT_S) as answer:
        text: str = answer.read().decode(errors="replace")
    return text


def _routed_tenants(state: StackState) -> tuple[RoutedTenant, ...]:
    """By the router's own metrics; none while it does not answer, which its process' line shows."""
    for service in state.services:
        if service.name == ROUTER and service.phase is ServicePhase.UP and service.http_port is not None:
            try:
                return routed_tenants(_page(service.http_port, "/metrics"))
            except OSError:
                return ()
    return ()


def routed_tenants(metrics_page: str) -> tuple[RoutedTenant, ...]:
    """A router's tenants by its metrics, those that took most CPU first."""
    summed: dict[str, dict[str, float]] = {}
    worst: dict[str, float] = {}
    for name, tenant, text in _TENANT_SAMPLE.findall(metrics_page):
        value = float(text)
        of_tenant = summed.setdefault(tenant, {})
        of_tenant[name] = of_tenant.get(name, 0.0) + value
        if name == "headwater_router_tenant_behind":
            worst[tenant] = max(worst.get(tenant, 0.0), value)
    found = [
        RoutedTenant(
            tenant=tenant,
            cpu_s=round(values.get("headwater_router_tenant_cpu_seconds_total", 0.0), 3),
            events=int(values.get("headwater_router_events_total", 0)),
            bytes=int(values.get("headwater_router_bytes_total", 0)),
            lag_batches=int(values.get("headwater_router_tenant_lag_batches", 0)),
            standing={1.0: "behind", 2.0: "stuck"}.get(worst.get(tenant, 0.0), ""),
        )
        for tenant, values in summed.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.cpu_s, each.tenant)))


def _cpu_s(members: Sequence[psutil.Process]) -> float:
    total = 0.0
    for member in members:
        try:
            times = member.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def _rss_bytes(members: Sequence[psutil.Process]) -> int:
    total = 0
    for member in members:
        try:
            total += member.memory_info().rss
        except psutil.Error:
            continue
    return total


async def _ask(
    home: Home, state: StackState, documents: Documents
) -> tuple[list[SourceStatus], list[Progress], list[str]]:
    ports: Mapping[str, int | None] = {service.name: service.grpc_port for service in state.services}
    unknown: list[str] = []
    readers = [
        (source, name)
        for source in sorted(documents.sources)
        # By the running processes: the document may ask for another number of readers at the next start.
        for name in [name for name in ports if is_reader_of(name, source)] or [reader_name(source)]
    ]
    sources, progress = await asyncio.gather(
        asyncio.gather(*(ask_reader(source, _own_grpc(home, ports.get(name))) for source, name in readers)),
        _progress(_own_grpc(home, ports.get(CHECKPOINT_COMMITTER)), unknown),
    )
    return list(sources), progress, unknown


def _own_grpc(home: Home, port: int | None) -> GrpcClientSettings | None:
    return None if port is None else caller(home, port, timeout_s=ANSWER_TIMEOUT_S)


async def _progress(committer: GrpcClientSettings | None, unknown: list[str]) -> list[Progress]:
    if committer is None:
        return []
    settings = msgspec.structs.replace(committer, timeout_s=min(committer.timeout_s, ANSWER_TIMEOUT_S))
    try:
        async with CheckpointCommitterClient(settings) as client:
            return await client.progress()
    except HeadwaterError as error:
        unknown.append(f"progress of tenants: {error}")
        return []


async def ask_reader(source: str, settings: GrpcClientSettings | None) -> SourceStatus:
    """A reader's answer about itself; ``state`` is "unknown" without one."""
    if settings is None:
        return SourceStatus(
            source=source, source_partition=_UNKNOWN_PARTITION, state="unknown", detail="no reader was planned"
        )
    async with open_channel(settings) as channel:
        stub = reader_control_pb2_grpc.ReaderControlStub(channel)  # type: ignore[no-untyped-call]
        try:
            answer = await stub.GetStatus(pb.GetStatusRequest(), timeout=ANSWER_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            return SourceStatus(
                source=source,
                source_partition=_UNKNOWN_PARTITION,
                state="unknown",
                detail=f"does not answer ({error.code().name})",
            )
    has_snapshot = answer.HasField("snapshot")
    return SourceStatus(
        source=source,
        source_partition=answer.source_partition,
        state=_STATES.get(answer.state, "unknown"),
        position=answer.position.token.decode(errors="replace"),
        rows_published=answer.rows_published,
        snapshot_rows_copied=answer.snapshot.rows_copied if has_snapshot else None,
        snapshot_rows_estimated=answer.snapshot.rows_estimated if has_snapshot else None,
        snapshot_tables=answer.snapshot.tables if has_snapshot else None,
        snapshot_finished_tables=len(answer.snapshot.finished_tables) if has_snapshot else None,
        snapshot_remaining_s=answer.snapshot_remaining_s if answer.HasField("snapshot_remaining_s") else None,
        incremental=tuple(
            IncrementalStatus(
                table=copy.table,
                signal_id=copy.signal_id,
                chunks_read=copy.chunks_read,
                rows_read=copy.rows_read,
                rows_estimated=copy.rows_estimated,
                for_tenants=tuple(copy.for_tenants),
            )
            for copy in answer.incremental.tables
        ),
        incremental_is_paused=answer.incremental.is_paused,
        incremental_remaining_s=(
            answer.incremental_remaining_s if answer.HasField("incremental_remaining_s") else None
        ),
        lag_s=max(0.0, time.time() - answer.committed_at_us / 1e6) if answer.committed_at_us else None,
        committed_at_us=answer.committed_at_us,
        quarantined=dict(answer.quarantined),
        signals=tuple(
            SignalStatus(
                signal_id=each.signal_id,
                kind=each.kind,
                at_us=each.at_us,
                refused_because=each.refused_because,
                not_done=tuple(each.not_done),
                tables=each.tables,
                waiting=each.waiting,
                finished=each.finished,
                rows_read=each.rows_read,
                given_up=dict(each.given_up),
                given_up_count=each.given_up_count,
                copied_by=tuple(each.copied_by),
            )
            for each in answer.signals
        ),
        signals_offset=answer.incremental.signals_offset if answer.incremental.HasField("signals_offset") else None,
        finished_copies=_finished_copies(answer.incremental.finished),
        shards=tuple(
            ShardStatus(**{name.name: getattr(shard, name.name) for name in pb.ShardStatus.DESCRIPTOR.fields})
            for shard in answer.shards
        ),
        error_since_us=answer.error_since_us,
        next_try_us=answer.next_try_us,
        detail=answer.halted_because or answer.last_error,
    )


def _finished_copies(finished: Iterable[checkpoint_pb2.FinishedCopy]) -> dict[str, int]:
    rows: dict[str, int] = {}
    for copy in finished:
        rows[copy.signal_id] = rows.get(copy.signal_id, 0) + copy.rows_read
    return rows


def with_source_lag(
    sources: Sequence[SourceStatus], documents: Mapping[str, SourceDocument]
) -> tuple[SourceStatus, ...]:
    """The same with each one's lag after its source, and each shard's after its own log, as far as the sources answer."""
    found = []
    for status in sources:
        document = documents.get(status.source)
        done = executed_in(status.position.encode())
        if document is None or done is None:
            found.append(status)
            continue
        try:
            executed = executed_now(document)
        except HeadwaterError as error:
            found.append(msgspec.structs.replace(status, detail=status.detail or f"source: {error}"))
            continue
        if sum(each.source == status.source for each in sources) > 1:
            executed = {log: gtids for log, gtids in executed.items() if log in done}  # the others are other readers'
        lag = missing_transactions(executed, done).transactions
        shards = tuple(
            msgspec.structs.replace(
                shard, lag_transactions=missing_transactions({shard.shard: executed[shard.shard]}, done).transactions
            )
            for shard in status.shards
            if shard.shard in executed
        )
        found.append(
            msgspec.structs.replace(
                status, lag_transactions=lag, lag_s=0.0 if lag == 0 else status.lag_s, shards=shards or status.shards
            )
        )
    return tuple(found)


def _routed(progress: Sequence[Progress], sources: Sequence[SourceStatus]) -> list[TableStatus]:
    """The router's figures of each tenant; its lag is known as far as the readers' is. Of several readers' source partitions
    the one with the largest lag is shown, with the events of all. Figures of earlier readers are past."""
    published_us = {(source.source, source.source_partition): source.committed_at_us for source in sources}
    shown = {source for source, partition in published_us if partition != _UNKNOWN_PARTITION}
    found: dict[tuple[str, str, str], TableStatus] = {}
    for report in sorted(progress, key=lambda each: (each.tenant, each.partition.source, each.table)):
        place = (report.partition.source, report.partition.name)
        if report.hop != ROUTER or (place not in published_us and report.partition.source in shown):
            continue
        newest_us = published_us.get(place, 0)
        status = TableStatus(
            tenant=report.tenant,
            source=report.partition.source,
            table=report.table,
            hop=report.hop,
            events=report.rows,
            position=report.order.sort_key(),
            committed_at_us=report.committed_at_us,
            lag_s=max(0.0, (newest_us - report.committed_at_us) / 1e6) if newest_us else None,
        )
        key = (status.tenant, status.source, status.table)
        found[key] = _further_behind(found[key], status) if key in found else status
    return list(found.values())


def _further_behind(one: TableStatus, other: TableStatus) -> TableStatus:
    """An unknown lag goes before every other."""
    worst = max(one, other, key=lambda each: float("inf") if each.lag_s is None else each.lag_s)
    return msgspec.structs.replace(worst, events=one.events + other.events)


def _topic_ends(
    kafka: KafkaSettings, topics: set[str], unknown: list[str], faults: list[Fault]
) -> dict[str, dict[int, int]]:
    """Where topics end. Kafka is asked though there is none: that it is away is a fault."""
    try:
        ends = committed_ends(kafka, topics)
    except HeadwaterError as error:
        faults.append(fault_of(KAFKA_UNREACHABLE, FaultScope(), happened=str(error), since_us=0))
        if topics:
            unknown.append(f"lag of {len(topics):,} table(s): {error}")
        return {}
    unknown += [f"lag of {topic}: Kafka did not say where it ends" for topic in sorted(topics - ends.keys())]
    return ends


def _sunk(
    home: Home, written: Mapping[str, SinkProgress | None], unknown: list[str], faults: list[Fault]
) -> list[TableStatus]:
    """Each table by the sink's files, against the ends of its topics. ``written``: by tenant the sink's progress file."""
    found = []
    topics = {topic for progress in written.values() if progress is not None for topic in progress.tables}
    ends = _topic_ends(stack_kafka(home), topics, unknown, faults)
    consumer = open_consumer(stack_kafka(home))
    now_s = time.time()
    try:
        for tenant, progress in written.items():
            if progress is None:
                continue
            done = committed_offsets(home, tenant)
            try:
                resyncs = running_resyncs(home.data_dir, tenant)
            except HeadwaterError as error:
                unknown.append(f"resyncs of {tenant}: {error}")
                resyncs = {}
            for topic, table in sorted(progress.tables.items()):
                lag = None
                try:
                    if topic in ends:
                        lag = _topic_lag(consumer, topic, ends[topic], done.get(topic, {}))
                except HeadwaterError as error:
                    unknown.append(f"lag of {topic}: {error}")
                if lag is not None and table.parked is not None:
                    lag += table.parked.waiting_offsets  # the stream went on without them
                age_s = max(0.0, now_s - table.committed_at_us / 1e6)
                found.append(
                    TableStatus(
                        tenant=tenant,
                        source=table.source,
                        table=table.table,
                        hop="sink",
                        events=table.rows,
                        position=table.order,
                        committed_at_us=table.committed_at_us,
                        lag_events=lag,
                        # A table that never took an event has no moment to count from.
                        lag_s=None if lag is None or (lag and not table.committed_at_us) else (age_s if lag else 0.0),
                        warehouse=TableInWarehouse(
                            last=table.last,
                            read_s=progress.last_batch.read_s,
                            show_s=progress.last_batch.show_s,
                            files=table.files,
                            maintained_at_us=table.maintained_at_us,
                        ),
                        detail=_sink_detail(table, resyncs.get(topic)),
                    )
                )
    finally:
        consumer.close()
    return found


def _sink_detail(table: TableProgress, resync: Resync | None) -> str:
    detail = _table_detail(table)
    if resync is None:
        return detail
    since = datetime.datetime.fromtimestamp(resync.begun_at_us / 1e6).strftime("%H:%M:%S")
    return f"resync since {since}: {resync.doing}{'; ' if detail else ''}{detail}"


def _table_detail(table: TableProgress) -> str:
    if table.parked is not None and table.parked.is_catching_up:
        return f"was parked; reads its waiting events, {table.parked.waiting_offsets:,} record(s) to go"
    if table.parked is not None:
        return f"parked: {table.parked.because}"
    if table.parked_keys:
        return (
            f"{table.parked_keys:,} key(s) parked with {table.dead_letters:,} dead letter(s): `headwater dead-letter list "
            f"{table.warehouse_table.partition('.')[0]}`"
        )
    return f"left out by policy: {'; '.join(table.ignored)}" if table.ignored else ""


def _topic_lag(consumer: Consumer, topic: str, ends: Mapping[int, int], done: Mapping[int, int]) -> int:
    lag = 0
    for partition, end in ends.items():
        start = done.get(partition, 0)
        # A few offsets may be transaction marks only; many are surely events, and not worth a look.
        if end - start > FEW_OFFSETS or has_records_between(consumer, topic, partition, start, end):
            lag += max(0, end - start)
    return lag
