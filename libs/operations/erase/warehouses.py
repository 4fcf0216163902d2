"""A tenant's tables in every warehouse that the home knows, wherever its document sends them now.

Iceberg and Delta: the catalog's rows, then the tenant's folder whole: data, metadata, old snapshots, remains of killed tasks.
PostgreSQL: tables, their rows in the registry and stages in one transaction. ClickHouse: one after another.
"""

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import psycopg
from clickhouse_connect.driver.client import Client as ClickhouseClient

from libs.clickhouse import connection as clickhouse_connection
from libs.clickhouse import tables as clickhouse_tables
from libs.clickhouse.names import STATE_DATABASE
from libs.errors import InvalidSettings
from libs.failpoints import failpoint
from libs.mesh.documents import POSTGRESQL, Documents
from libs.mesh.home import Home
from libs.mesh.processes import postgresql_settings
from libs.mesh.state import ServicePhase, read_ports, read_state
from libs.operations.erase.held import Held, size_of
from libs.postgresql.connection import connect, errors_named
from libs.postgresql.names import REGISTRY
from libs.postgresql.settings import PostgresqlWarehouse
from libs.postgresql.tenant_tables import drop_tables, registered, stages
from libs.servers import postgresql_server
from libs.servers.ports import free_port
from libs.servers.process import start, stop, wait_ready
from libs.types.warehouse import CATALOG

ICEBERG_TABLE: Final = "Iceberg table"
DELTA_TABLE: Final = "Delta table"
POSTGRESQL_TABLE: Final = "PostgreSQL table"
CLICKHOUSE_TABLE: Final = "ClickHouse table"
_CATALOG_TABLES: Final = {"iceberg_tables": "table_namespace", "iceberg_namespace_properties": "namespace"}
"""Of a JDBC catalog, with the column that begins with the tenant's name (Iceberg documentation, "JDBC")."""
_BUSY_S: Final = 60.0
_READY_S: Final = 60.0
_STOP_S: Final = 15.0


def held_in_files(home: Home, tenant: str) -> list[Held]:
    """Tables of Iceberg and Delta, and the other files in the tenant's folders."""
    tables = {folder: f"{tenant}.{name}" for folder, name in _catalog_tables(home, tenant)}
    held = [
        Held(kind=ICEBERG_TABLE, name=name, bytes=size_of(Path(folder)) if _is_ours(home, Path(folder)) else None)
        for folder, name in sorted(tables.items())
    ]
    namespaces = _catalog_rows(home, tenant).get("iceberg_namespace_properties", 0)
    if namespaces:
        held.append(Held(kind="Iceberg namespace", name=tenant, records=namespaces))
    logs = sorted((home.delta_dir / tenant).glob("*/*/*/_delta_log"))
    held += [Held(kind=DELTA_TABLE, name=".".join(log.parts[-5:-1]), bytes=size_of(log.parent)) for log in logs]
    for folder, kind in ((home.warehouse_dir / tenant, ICEBERG_TABLE), (home.delta_dir / tenant, DELTA_TABLE)):
        if folder.is_dir():
            of_tables = sum(each.bytes or 0 for each in held if each.kind == kind)
            name = f"{folder.relative_to(home.root)}, besides"
            held.append(Held(kind="folder", name=name, bytes=max(0, size_of(folder) - of_tables)))
    return held


def elsewhere(home: Home, tenant: str) -> list[str]:
    """Folders of the tenant's Iceberg tables that are outside of the home's warehouse: somebody made those tables."""
    return sorted(folder for folder, _ in _catalog_tables(home, tenant) if not _is_ours(home, Path(folder)))


def remove_files(home: Home, tenant: str) -> None:
    """Readers find no table from the first step on; a kill in between leaves files that the next call removes."""
    tables = [Path(folder) for folder, _ in _catalog_tables(home, tenant)]
    folders = {folder for folder in tables if _is_ours(home, folder)}
    if home.catalog_file.exists():
        with contextlib.closing(sqlite3.connect(home.catalog_file, timeout=_BUSY_S)) as connection:
            with connection:
                for table, column in _there(connection):
                    connection.execute(
                        f"DELETE FROM {table} WHERE catalog_name = ? AND {_of_tenant(column)}", _named(tenant)
                    )
            failpoint("erase_between_catalog_and_files")
            with contextlib.suppress(sqlite3.OperationalError):  # busy: the names stay in free pages until it is not
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for folder in {*folders, home.warehouse_dir / tenant, home.delta_dir / tenant}:
        if folder.exists():
            shutil.rmtree(folder)


def _catalog_tables(home: Home, tenant: str) -> list[tuple[str, str]]:
    """Folder, and name within the tenant, of each table in the catalog."""
    if not home.catalog_file.exists():
        return []
    with contextlib.closing(sqlite3.connect(home.catalog_file, timeout=_BUSY_S)) as connection:
        if "iceberg_tables" not in dict(_there(connection)):
            return []
        rows = connection.execute(
            "SELECT metadata_location, table_namespace, table_name FROM iceberg_tables "
            f"WHERE catalog_name = ? AND {_of_tenant('table_namespace')}",
            _named(tenant),
        ).fetchall()
    return [
        # <location>/metadata/<version>.metadata.json
        (str(_path(location).parent.parent), f"{namespace}.{name}".removeprefix(f"{tenant}."))
        for location, namespace, name in rows
    ]


def _catalog_rows(home: Home, tenant: str) -> dict[str, int]:
    if not home.catalog_file.exists():
        return {}
    with contextlib.closing(sqlite3.connect(home.catalog_file, timeout=_BUSY_S)) as connection:
        return {
            table: connection.execute(
                f"SELECT count(*) FROM {table} WHERE catalog_name = ? AND {_of_tenant(column)}", _named(tenant)
            ).fetchone()[0]
            for table, column in _there(connection)
        }


def _there(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    """Spark makes the second of them later than the first."""
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return [(table, column) for table, column in _CATALOG_TABLES.items() if table in found]


def _of_tenant(column: str) -> str:
    return f"({column} = ? OR substr({column}, 1, ?) = ?)"


def _named(tenant: str) -> tuple[str | int, ...]:
    return CATALOG, tenant, len(tenant) + 1, f"{tenant}."


def _path(location: str) -> Path:
    return Path(unquote(urlsplit(location).path) if location.startswith("file:") else location)


def _is_ours(home: Home, folder: Path) -> bool:
    return folder.resolve().is_relative_to(home.warehouse_dir.resolve())


def held_in_postgresql(home: Home, documents: Documents, tenant: str, query_ids: Sequence[str]) -> list[Held]:
    """Tables by the registry, stages by the streaming queries that made them.

    Raises:
        TransientError, AccessDenied, PipelineHalted: see ``libs.postgresql.connection``.
    """
    with _postgresql(home, documents) as settings:
        if settings is None:
            return []
        with _connected(settings) as connection:
            tables = [
                Held(kind=POSTGRESQL_TABLE, name=place, bytes=_relation_size(connection, place))
                for place, _ in registered(connection, tenant)
            ]
            staged = [Held(kind="PostgreSQL stage", name=name) for name in stages(connection, tenant, query_ids)]
        return [*tables, *staged]


def remove_from_postgresql(home: Home, documents: Documents, tenant: str, query_ids: Sequence[str]) -> None:
    """All tables in one transaction, with views over them; a schema goes with its last table.

    Raises as ``held_in_postgresql``.
    """
    with _postgresql(home, documents) as settings:
        if settings is None:
            return
        with _connected(settings) as connection:
            connection.execute(f"SET lock_timeout = '{settings.lock_timeout_s:.0f}s'")
            drop_tables(connection, tenant, query_ids)
            failpoint("erase_before_postgresql_commit")
            connection.commit()


def held_in_clickhouse(documents: Documents, tenant: str, query_ids: Sequence[str]) -> list[Held]:
    """Tables by their comments, stages by the streaming queries that made them.

    Raises:
        TransientError, AccessDenied, PipelineHalted: see ``libs.clickhouse.connection``.
    """
    with _clickhouse(documents) as client:
        if client is None:
            return []
        tables = [
            Held(kind=CLICKHOUSE_TABLE, name=each.place, bytes=each.bytes)
            for each in clickhouse_tables.tables_of(client, tenant)
            if each.database != STATE_DATABASE  # files that are staged as a table is made
        ]
        if not clickhouse_tables.has_state(client):
            return tables
        staged = clickhouse_tables.stages(client, tenant, query_ids)
        return [*tables, *(Held(kind="ClickHouse stage", name=name) for name in staged)]


def remove_from_clickhouse(documents: Documents, tenant: str, query_ids: Sequence[str]) -> None:
    """All tables, one after another, a database with its last one; a kill in between leaves some that the next call removes.

    Raises as ``held_in_clickhouse``.
    """
    with _clickhouse(documents) as client:
        if client is not None and clickhouse_tables.has_state(client):
            clickhouse_tables.drop_tables(client, tenant, query_ids)


@contextlib.contextmanager
def _clickhouse(documents: Documents) -> Iterator[ClickhouseClient | None]:
    """Of the server that the home's tables may lie in, also where no tenant's document names it any more; None: no server."""
    settings = documents.servers.clickhouse
    if documents.warehouse_mistakes:
        raise InvalidSettings("warehouses.yaml", list(documents.warehouse_mistakes))
    if settings is None:
        yield None
        return
    client = clickhouse_connection.connect(settings, application="headwater-erase")
    try:
        with clickhouse_connection.errors_named(settings, "the tenant's objects on the server"):
            yield client
    finally:
        client.close()


def _relation_size(connection: "psycopg.Connection[Any]", place: str) -> int | None:
    [(size,)] = connection.execute("SELECT pg_total_relation_size(to_regclass(%s))", (place,)).fetchall()
    return None if size is None else int(size)


@contextlib.contextmanager
def _connected(settings: PostgresqlWarehouse) -> Iterator["psycopg.Connection[Any]"]:
    connection: psycopg.Connection[Any] = connect(settings, application="headwater-erase")
    try:
        with errors_named(settings, REGISTRY):
            yield connection
    finally:
        connection.close()


@contextlib.contextmanager
def _postgresql(home: Home, documents: Documents) -> Iterator[PostgresqlWarehouse | None]:
    """The server that the home's tables may lie in, also where no tenant's document names it any more; None: there is none.

    The stack's own is started for a while where it does not run: it does so only for tenants that have tables there.
    """
    if documents.servers.postgresql is not None:
        yield documents.servers.postgresql
        return
    if documents.warehouse_mistakes:
        raise InvalidSettings(str(home.warehouses_file), list(documents.warehouse_mistakes))
    data_dir = home.data_dir / POSTGRESQL
    if not data_dir.is_dir():
        yield None
        return
    if _runs(home):
        yield postgresql_settings(documents, read_ports(home)) or _own(read_ports(home)[POSTGRESQL])
        return
    port = free_port()
    running = start(
        postgresql_server.prepare(data_dir, port=port, name=POSTGRESQL), home.logs_dir, dies_with_parent=True
    )
    try:
        wait_ready(running, _READY_S)
        yield _own(port)
    finally:
        stop(running, _STOP_S)


def _runs(home: Home) -> bool:
    state = read_state(home)
    return state is not None and any(
        service.name == POSTGRESQL and service.phase is ServicePhase.UP for service in state.services
    )


def _own(port: int) -> PostgresqlWarehouse:
    own = postgresql_server.connection_settings(port)
    return PostgresqlWarehouse(host=own.host, port=own.port, database=own.database, user=own.user)
