"""From a home's documents and ports to the processes of its stack: plain functions, nothing is started here.

The embedded stack is the same code and configuration as in Kubernetes; only the addresses that stand in the
generated settings differ. ``libs.stack.lifecycle`` calls this and writes the files.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from libs.errors import InvalidSettings
from libs.mesh.documents import (
    POSTGRESQL,
    DatabaseDocument,
    Documents,
    DtsDocument,
    MysqlDocument,
    OracleDatabaseDocument,
    OracleDocument,
    SourceDocument,
    VitessDocument,
    replica_server_id,
    stated,
)
from libs.mesh.home import Home
from libs.mesh.own_services import client_files, server_files
from libs.mesh.processes import (
    CHECKPOINT_COMMITTER,
    KAFKA,
    KAFKA_CONTROLLER,
    PYTHON_ENVIRON,
    ROUTER,
    SCHEMA_HISTORY,
    SINK,
    VALKEY,
    kafka_address,
    kafka_settings,
    reader_names,
    session_settings,
    warehouse_settings,
)
from libs.mesh.reader_tasks import Generations, settings_of, tasks_of
from libs.servers.ports import LOOPBACK
from libs.servers.process import ProcessSpec
from libs.setup.spark_toolchain import SparkToolchain
from libs.source.dts.settings import DtsSourceSettings
from libs.source.kinds import READER_OF_KIND
from libs.source.mysql.settings import MysqlSourceSettings
from libs.source.oracle.settings import OracleSourceSettings
from libs.source.vitess.settings import KeyspaceSettings
from libs.source.vitess.tasks import TaskSettings
from libs.stack.supervisor import Supervised, answers_ok

STAGE_SERVERS: Final = 0
STAGE_SERVICES: Final = 1
STAGE_STAND_INS: Final = 2
"""The stand-in before a demo's database: it needs the database, and the reader needs it."""
STAGE_PIPELINE: Final = 3

# The lease outlives a restart of the reader by little: a killed reader is back in 2 to 3 s, and the restarted one
# waits for the end of its predecessor's lease where it is another owner.
READER_LEASE_S: Final = 6.0


@dataclass(frozen=True, slots=True)
class PlannedProcess:
    """One Python process of ours: its module and its settings."""

    name: str
    module: str
    stage: int
    settings: Mapping[str, Any]
    http_port: int
    grpc_port: int | None = None
    blocks_next_stage: bool = True
    ready_timeout_s: float = 60.0
    stop_timeout_s: float = 15.0
    unhealthy_after_s: float = 30.0
    working_dir: Path | None = None
    environ: Mapping[str, str] | None = None


def port_names(documents: Documents) -> tuple[str, ...]:
    """Every port that the stack of ``documents`` needs, but for those of servers of its own (``own_servers``)."""
    warehouses = [POSTGRESQL] if documents.has_own_postgresql else []
    readers = [name for source in sorted(documents.sources) for name in _readers(documents, source)]
    services = [SCHEMA_HISTORY, CHECKPOINT_COMMITTER, *readers]
    own_kafka = () if documents.kafka is not None else (KAFKA, KAFKA_CONTROLLER)
    return (
        *own_kafka,
        VALKEY,
        *(f"{service}-{kind}" for service in services for kind in ("grpc", "http")),
        f"{ROUTER}-http",
        f"{SINK}-http",
        *warehouses,
    )


def certified_processes(documents: Documents) -> tuple[str, ...]:
    """The processes that answer or call by gRPC."""
    readers = (name for source in sorted(documents.sources) for name in _readers(documents, source))
    return (SCHEMA_HISTORY, CHECKPOINT_COMMITTER, ROUTER, *readers)


def _readers(documents: Documents, source: str) -> tuple[str, ...]:
    return reader_names(source, tasks_of(documents.sources[source]))


def choose_ports(
    names: Sequence[str],
    kept: Mapping[str, int],
    *,
    is_free: Callable[[int], bool],
    free_ports: Callable[[int], Sequence[int]],
) -> dict[str, int]:
    """A port for each of ``names``: the one kept from an earlier run where it is free, else a new one.

    Raises:
        OSError: there are not enough free ports.
    """
    chosen = {name: kept[name] for name in names if name in kept and is_free(kept[name])}
    missing = [name for name in names if name not in chosen]
    # More than needed: a kept port may be among the free ones.
    candidates = [port for port in free_ports(2 * len(missing)) if port not in chosen.values()] if missing else []
    if len(candidates) < len(missing):
        raise OSError(f"{len(missing)} free ports are needed, {len(candidates)} were found")
    return {**chosen, **dict(zip(missing, candidates, strict=False))}


def plan_processes(
    home: Home,
    documents: Documents,
    ports: Mapping[str, int],
    toolchain: SparkToolchain,
    generations: Generations,
    *,
    has_tls: bool = True,
) -> tuple[PlannedProcess, ...]:
    """Headwater's own processes, in the order of their start; servers (Kafka, Valkey) are not among them.

    ``generations``: of ``reader_tasks.planned_generations``. ``has_tls``: their calls to one another are mutual TLS, with the
    certificates of ``certified_processes``.

    Raises:
        InvalidSettings: no source to follow, or no tenant to deliver to.
    """
    if not documents.sources:
        raise InvalidSettings(
            str(home.sources_dir),
            ["no source: copy shop.yaml.example to <name>.yaml and edit it (`headwater init` writes the example)"],
        )
    if not documents.tenants:
        raise InvalidSettings(
            str(home.tenants_dir),
            ["no tenant: copy acme.yaml.example to <tenant>.yaml and edit it (`headwater init` writes the example)"],
        )
    calls = _Calls(home, ports, has_tls, kafka_settings(documents, ports))
    readers = [
        _reader(home, name, documents.sources[name], calls, process, task)
        for name in sorted(documents.sources)
        for process, task in zip(_readers(documents, name), settings_of(generations.get(name)), strict=True)
    ]
    has_sinks = any(spec.sink is not None for spec in documents.tenants.values())
    return (
        _view_service(SCHEMA_HISTORY, calls),
        _view_service(CHECKPOINT_COMMITTER, calls),
        *readers,
        _router(home, documents, calls),
        *([_sink(home, documents, ports, toolchain)] if has_sinks else []),
    )


def supervised(home: Home, planned: PlannedProcess) -> Supervised:
    """How the supervisor runs ``planned``."""
    url = f"http://{LOOPBACK}:{planned.http_port}"
    return Supervised(
        spec=ProcessSpec(
            name=planned.name,
            command=(sys.executable, "-m", planned.module, "--settings", str(home.settings_file(planned.name))),
            environ={**PYTHON_ENVIRON, **(planned.environ or {})},
            working_dir=planned.working_dir or home.run_dir,
            ready=lambda: answers_ok(f"{url}/readyz"),
        ),
        stage=planned.stage,
        blocks_next_stage=planned.blocks_next_stage,
        ready_timeout_s=planned.ready_timeout_s,
        stop_timeout_s=planned.stop_timeout_s,
        health_url=f"{url}/healthz",
        unhealthy_after_s=planned.unhealthy_after_s,
        http_port=planned.http_port,
        grpc_port=planned.grpc_port,
    )


@dataclass(frozen=True, slots=True)
class _Calls:
    """How the processes call one another."""

    home: Home
    ports: Mapping[str, int]
    has_tls: bool
    kafka: Mapping[str, Any]
    """The settings of each one's Kafka."""

    def server(self, name: str) -> dict[str, Any]:
        """Where ``name`` answers gRPC; a router on any port."""
        files = server_files(self.home, name) if self.has_tls else {}
        return {"host": LOOPBACK, "port": self.ports.get(f"{name}-grpc", 0), **files}

    def client(self, caller: str, service: str) -> dict[str, Any]:
        """How ``caller`` calls ``service``."""
        files = client_files(self.home, caller) if self.has_tls else {}
        return {"address": f"{LOOPBACK}:{self.ports[f'{service}-grpc']}", **files}


def _view_service(name: str, calls: _Calls) -> PlannedProcess:
    ports = calls.ports
    return PlannedProcess(
        name=name,
        module=f"services.{name}",
        stage=STAGE_SERVICES,
        settings={
            "kafka": calls.kafka,
            "redis": {"url": f"redis://{LOOPBACK}:{ports[VALKEY]}/0"},
            "grpc": calls.server(name),
            "telemetry": _telemetry(ports[f"{name}-http"]),
        },
        http_port=ports[f"{name}-http"],
        grpc_port=ports[f"{name}-grpc"],
    )


def _reader(
    home: Home, name: str, source: SourceDocument, calls: _Calls, process: str, task: TaskSettings | None
) -> PlannedProcess:
    ports = calls.ports
    return PlannedProcess(
        name=process,
        module=READER_OF_KIND[source.kind],
        stage=STAGE_PIPELINE,
        settings={
            "source": name,
            **_source_settings(home, name, source, ports),
            **({"tasks": msgspec.to_builtins(task)} if task is not None else {}),
            "lease_s": READER_LEASE_S,
            "kafka": calls.kafka,
            "schema_history": calls.client(process, SCHEMA_HISTORY),
            "checkpoint_committer": calls.client(process, CHECKPOINT_COMMITTER),
            "grpc": calls.server(process),
            "telemetry": {**_telemetry(ports[f"{process}-http"]), "tags": dict(source.metric_tags)},
        },
        http_port=ports[f"{process}-http"],
        grpc_port=ports[f"{process}-grpc"],
    )


def _source_settings(home: Home, name: str, source: SourceDocument, ports: Mapping[str, int]) -> dict[str, Any]:
    """The settings that the document has for its reader, with the addresses that the stack adds."""
    match source:
        case MysqlDocument():
            return {
                **_of_record(source, MysqlSourceSettings),
                "database": _database(source.database),
                "replica_server_id": replica_server_id(home.sources_dir / f"{name}.yaml", source),
                "snapshot": {
                    **stated(source.snapshot),
                    "lag_replicas": [_database(replica) for replica in source.snapshot.lag_replicas],
                },
            }
        case DtsDocument():
            subscription = source.subscription
            return {
                **_of_record(source, DtsSourceSettings),
                "database": _database(source.database),
                "subscription": {
                    **stated(subscription),
                    "bootstrap_servers": subscription.bootstrap_servers or kafka_address(ports),
                    "password": subscription.password.reveal(),
                },
            }
        case VitessDocument():
            return {
                **_of_record(source, KeyspaceSettings),
                "vtgate": {**stated(source.vtgate), "password": source.vtgate.password.reveal()},
            }
        case OracleDocument():
            return {**_of_record(source, OracleSourceSettings), "database": _database(source.database)}


def _of_record(source: SourceDocument, record: type[msgspec.Struct]) -> dict[str, Any]:
    """The part of a document that is its reader's too; secrets are not in it."""
    return {name: value for name, value in stated(source).items() if name in record.__struct_fields__}


def _database(database: DatabaseDocument | OracleDatabaseDocument) -> dict[str, Any]:
    return {**stated(database), "password": database.password.reveal()}


def _router(home: Home, documents: Documents, calls: _Calls) -> PlannedProcess:
    ports = calls.ports
    return PlannedProcess(
        name=ROUTER,
        module="services.router",
        stage=STAGE_PIPELINE,
        settings={
            "sources": sorted(documents.sources),
            "tenants_folder": str(home.tenants_dir),
            "keys_folder": str(home.keys_dir),
            "state_folder": str(home.data_dir / ROUTER),
            "kafka": calls.kafka,
            "schema_history": calls.client(ROUTER, SCHEMA_HISTORY),
            "checkpoint_committer": calls.client(ROUTER, CHECKPOINT_COMMITTER),
            "grpc": calls.server(ROUTER),
            **_schema_registry(documents),
            "topic_quotas": stated(documents.topic_quotas),
            "telemetry": _telemetry(ports[f"{ROUTER}-http"]),
        },
        http_port=ports[f"{ROUTER}-http"],
    )


def _schema_registry(documents: Documents) -> dict[str, Any]:
    registry = documents.schema_registry
    if registry is None:
        return {}
    return {"schema_registry": {**stated(registry), "password": registry.password.reveal()}}


def _sink(home: Home, documents: Documents, ports: Mapping[str, int], toolchain: SparkToolchain) -> PlannedProcess:
    return PlannedProcess(
        name=SINK,
        module="spark.jobs.sink_job",
        stage=STAGE_SERVICES,  # it needs Kafka only, and takes longer to start than all others together
        blocks_next_stage=False,
        settings={
            "tenants_dir": str(home.tenants_dir),
            "kafka": kafka_settings(documents, ports),
            "warehouses": warehouse_settings(home, documents, ports),
            "state_dir": str(home.sink_dir),
            "session": session_settings(toolchain),
            **_openlineage(documents),
            "telemetry": _telemetry(ports[f"{SINK}-http"]),
        },
        http_port=ports[f"{SINK}-http"],
        ready_timeout_s=120.0,
        unhealthy_after_s=60.0,
        working_dir=home.sink_dir,
    )


def _openlineage(documents: Documents) -> dict[str, Any]:
    lineage = documents.openlineage
    if lineage is None:
        return {}
    key = {} if lineage.api_key is None else {"api_key": lineage.api_key.reveal()}
    return {"openlineage": {**stated(lineage), **key}}


def _telemetry(http_port: int) -> dict[str, Any]:
    return {"http_host": LOOPBACK, "http_port": http_port}
