"""A stack's processes as commands know them: their names, where they listen, and where its warehouses are.

Plain functions of a home's documents and ports. ``libs.stack.plan`` makes the processes, ``libs.stack.lifecycle`` starts them.
"""

from collections.abc import Mapping
from typing import Any, Final

from libs.clickhouse.settings import ClickhouseWarehouse
from libs.mesh.documents import CLICKHOUSE, DELTA, ICEBERG, POSTGRESQL, Documents, stated
from libs.mesh.home import Home
from libs.postgresql.settings import PostgresqlWarehouse
from libs.servers import postgresql_server
from libs.servers.ports import LOOPBACK
from libs.setup.installation import IMPORT_ROOT
from libs.setup.spark_toolchain import SparkToolchain

PYTHON_ENVIRON: Final = {"PYTHONPATH": str(IMPORT_ROOT), "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
"""Of each process of ours, and of those that it starts. Without a safe path a module of the folder that a process runs in would
come before one of ours with its name."""

KAFKA: Final = "kafka"
KAFKA_CONTROLLER: Final = "kafka-controller"
VALKEY: Final = "valkey"
SCHEMA_HISTORY: Final = "schema_history"
CHECKPOINT_COMMITTER: Final = "checkpoint_committer"
ROUTER: Final = "router"
SINK: Final = "sink"

SINK_JAVA_OPTIONS: Final = "-XX:+UseParallelGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=160m"
"""Started often and with little to do, see ``SessionSettings.java_options``. Of one compiler alone Java reserves 48 MB for its
code, which thirty tables, as mirrors and histories whose columns change, have filled within two minutes. Reserved memory is
taken as it is needed."""


def reader_name(source: str, number: int | None = None) -> str:
    """Process name of a source's reader; ``number``: of several. A source's name has no dot, so names are unique."""
    return f"reader-{source}" if number is None else f"reader-{source}.{number}"


def reader_names(source: str, tasks: int) -> tuple[str, ...]:
    """Of all its readers.

    >>> reader_names("shop", 1), reader_names("shop", 2)
    (('reader-shop',), ('reader-shop.0', 'reader-shop.1'))
    """
    return (reader_name(source),) if tasks == 1 else tuple(reader_name(source, number) for number in range(tasks))


def is_reader_of(process: str, source: str) -> bool:
    """Whether a process reads ``source``, alone or with others."""
    return process == reader_name(source) or process.startswith(f"{reader_name(source)}.")


def kafka_address(ports: Mapping[str, int]) -> str:
    """Bootstrap servers of the stack's Kafka."""
    return f"{LOOPBACK}:{ports[KAFKA]}"


def kafka_settings(documents: Documents, ports: Mapping[str, int]) -> dict[str, Any]:
    """``kafka`` of each process: the owner's, else the stack's own."""
    owners = documents.kafka
    if owners is None:
        return {"bootstrap_servers": kafka_address(ports)}
    document = stated(owners)
    if owners.sasl_password is not None:
        document["sasl_password"] = owners.sasl_password.reveal()
    if owners.oauth is not None:
        document["oauth"] = {**stated(owners.oauth), "client_secret": owners.oauth.client_secret.reveal()}
    return document


def postgresql_settings(documents: Documents, ports: Mapping[str, int]) -> PostgresqlWarehouse | None:
    """How to reach the PostgreSQL that tenants' tables lie in: the owner's, else the stack's own; None: there is none."""
    if documents.servers.postgresql is not None:
        return documents.servers.postgresql
    if not documents.has_own_postgresql or POSTGRESQL not in ports:
        return None
    own = postgresql_server.connection_settings(ports[POSTGRESQL])
    return PostgresqlWarehouse(host=own.host, port=own.port, database=own.database, user=own.user)


def warehouse_settings(home: Home, documents: Documents, ports: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """``warehouses`` of a job of the home's: those that there are."""
    servers = {CLICKHOUSE: documents.servers.clickhouse, POSTGRESQL: postgresql_settings(documents, ports)}
    return {
        ICEBERG: {
            "warehouse_dir": str(home.warehouse_dir),
            "catalog": {"kind": "sqlite", "file": str(home.catalog_file)},
            # Of all its tables that are new, where a tenant's documents need it: fewer engines read it.
            **({"format_version": 3} if _has_variants(documents) else {}),
        },
        # Not for others: its extension has a part in every statement that Spark plans.
        **({DELTA: {"warehouse_dir": str(home.delta_dir)}} if documents.have_sink(DELTA) else {}),
        **{name: _warehouse_values(settings) for name, settings in servers.items() if settings is not None},
    }


def _has_variants(documents: Documents) -> bool:
    """Whether a tenant has columns of Iceberg tables as VARIANT."""
    sinks = [spec.sink for spec in documents.tenants.values() if spec.sink is not None]
    return any(sink.warehouse == ICEBERG and sink.json_as_variant for sink in sinks)


def session_settings(toolchain: SparkToolchain) -> dict[str, Any]:
    """``session`` of a job of the home's."""
    return {**toolchain.session, "java_options": SINK_JAVA_OPTIONS}


def _warehouse_values(settings: ClickhouseWarehouse | PostgresqlWarehouse) -> dict[str, Any]:
    return {**stated(settings), "password": settings.password.reveal()}
