"""The tables of one tenant in a PostgreSQL warehouse, by Headwater's registry there; and their removal.

For ``headwater erase``, and for the sink of a tenant that leaves.
"""

from collections.abc import Sequence
from typing import Any

import psycopg

from libs.postgresql.names import REGISTRY, STATE_SCHEMA, quoted, rebuild_stage_prefix, stage_prefix

Connection = psycopg.Connection[Any]


def registered(connection: Connection, tenant: str) -> list[tuple[str, str]]:
    """Each table's place, quoted, and its schema."""
    if not _has_registry(connection):
        return []
    rows = connection.execute(
        f"SELECT schema_name, table_name FROM {REGISTRY} WHERE split_part(name, '.', 1) = %s ORDER BY name", (tenant,)
    ).fetchall()
    return [(quoted(schema, table), schema) for schema, table in rows]


def query_ids(connection: Connection, tenant: str) -> list[str]:
    """The streaming queries that wrote its tables last."""
    if not _has_registry(connection):
        return []
    rows = connection.execute(
        f"SELECT DISTINCT batch_query FROM {REGISTRY} WHERE split_part(name, '.', 1) = %s AND batch_query IS NOT NULL",
        (tenant,),
    ).fetchall()
    return [query_id for (query_id,) in rows]


def stages(connection: Connection, tenant: str, queries: Sequence[str]) -> list[str]:
    """The stages that the tenant's streaming queries and rebuilds have left, by name in Headwater's own schema."""
    return stages_with(connection, [rebuild_stage_prefix(tenant), *map(stage_prefix, queries)])


def stages_with(connection: Connection, prefixes: Sequence[str]) -> list[str]:
    """Those whose names begin with one of ``prefixes``."""
    rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (STATE_SCHEMA,)).fetchall()
    return sorted(name for (name,) in rows if name.startswith(tuple(prefixes)))


def drop_tables(connection: Connection, tenant: str, queries: Sequence[str]) -> int:
    """All of its tables with views over them, and the stages of ``queries``; a schema goes with its last table.

    How many tables there were. Within a transaction of the caller's.
    """
    found = registered(connection, tenant)
    for place, _ in found:
        connection.execute(f"DROP TABLE IF EXISTS {place} CASCADE")
    for name in stages(connection, tenant, queries):
        connection.execute(f"DROP TABLE IF EXISTS {quoted(STATE_SCHEMA, name)}")
    if found:
        connection.execute(f"DELETE FROM {REGISTRY} WHERE split_part(name, '.', 1) = %s", (tenant,))
    for schema in {schema for _, schema in found}:
        _drop_if_empty(connection, schema)
    return len(found)


def _has_registry(connection: Connection) -> bool:
    [(found,)] = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (REGISTRY,)).fetchall()
    return bool(found)


def _drop_if_empty(connection: Connection, schema: str) -> None:
    """Objects that somebody else put there stay, and the schema with them."""
    [(others,)] = connection.execute(
        "SELECT count(*) FROM pg_depend JOIN pg_namespace ON pg_namespace.oid = refobjid "
        "WHERE refclassid = 'pg_namespace'::regclass AND nspname = %s",
        (schema,),
    ).fetchall()
    if not others:
        connection.execute(f"DROP SCHEMA IF EXISTS {quoted(schema)}")
