"""The content of a ClickHouse warehouse: each table by its comment, the stages and notes beside it, and the end of a tenant's.

A table's comment describes it as JSON, so that one ``ALTER`` or ``EXCHANGE TABLES`` changes it together with the columns.
Calls raise the driver's errors: within ``libs.clickhouse.connection.errors_named``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
from clickhouse_connect.driver.client import Client

from libs.clickhouse.names import BATCHES, INTENTS, STATE_DATABASE, literal, quoted, rebuild_prefix, stage_prefix


class Noted(msgspec.Struct, frozen=True):
    """A table's comment."""

    comment: str
    """For people."""
    name: str
    """Of the ``WarehouseTable``."""
    key: tuple[str, ...]
    """By which rows of a mirror and of a history are ordered."""
    types: dict[str, str]
    """By column, as ``libs.warehouse.clickhouse`` has them."""
    properties: dict[str, str]
    """As ``spark.sinks.properties`` has them."""


def encoded(noted: Noted) -> str:
    """The text of a comment."""
    return msgspec.json.encode(noted).decode()


def decoded(comment: str) -> Noted | None:
    """None: it is not one of Headwater's."""
    try:
        return msgspec.json.decode(comment, type=Noted)
    except msgspec.DecodeError:
        return None


def stored_table(client: Client, database: str, table: str) -> tuple[str, dict[str, str]] | None:
    """A table's comment, of any maker, and ClickHouse's types by column. None: there is none that this user sees."""
    where = f"database = {literal(database)} AND table = {literal(table)}"
    rows = client.query(
        f"SELECT comment, (SELECT groupArray((name, type)) FROM system.columns WHERE {where}) FROM system.tables "
        f"WHERE database = {literal(database)} AND name = {literal(table)}"
    ).result_rows
    return None if not rows else (rows[0][0], dict(rows[0][1]))


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table that has such a comment."""

    database: str
    table: str
    noted: Noted
    bytes: int
    """On the server's disk."""

    @property
    def place(self) -> str:
        """Quoted."""
        return quoted(self.database, self.table)


def known_tables(client: Client) -> Iterator[KnownTable]:
    """Those of all tenants that this user sees, copies that are being made of them too, which lie in ``STATE_DATABASE``."""
    rows = client.query("SELECT database, name, comment, ifNull(total_bytes, 0) FROM system.tables").result_rows
    for database, name, comment, size in rows:
        noted = decoded(comment)
        if noted is not None:
            yield KnownTable(database, name, noted, size)


def tables_of(client: Client, tenant: str) -> list[KnownTable]:
    """Those of one tenant."""
    return [each for each in known_tables(client) if each.noted.name.startswith(f"{tenant}.")]


def has_state(client: Client) -> bool:
    """Whether a sink was here."""
    return bool(client.query(f"EXISTS TABLE {BATCHES}").result_rows[0][0])


def stages(client: Client, tenant: str, query_ids: Sequence[str] = ()) -> list[str]:
    """The tables left in ``STATE_DATABASE`` by ``query_ids``, by the streaming queries that wrote its tables last, by
    rebuilds."""
    noted = f"SELECT DISTINCT query_id FROM {BATCHES} FINAL WHERE {_is_of(tenant)} AND query_id <> ''"
    queries = {*query_ids, *(query_id for (query_id,) in client.query(noted).result_rows)}
    prefixes = (rebuild_prefix(tenant), *map(stage_prefix, queries))
    held = client.query(f"SELECT name FROM system.tables WHERE database = {literal(STATE_DATABASE)}").result_rows
    return sorted(name for (name,) in held if name.startswith(prefixes))


def drop_tables(client: Client, tenant: str, query_ids: Sequence[str] = ()) -> int:
    """Drop all of its tables, their stages and notes, and databases that are empty afterwards.

    Returns how many tables there were. Cut off, it is to be called again: the names of the rest go last.
    """
    for name in stages(client, tenant, query_ids):
        client.command(f"DROP TABLE IF EXISTS {quoted(STATE_DATABASE, name)} SYNC")
    found = tables_of(client, tenant)
    for each in found:
        client.command(f"DROP TABLE IF EXISTS {each.place} SYNC")
    for database in {each.database for each in found} - {STATE_DATABASE}:
        others = f"SELECT 1 FROM system.tables WHERE database = {literal(database)} LIMIT 1"
        if not client.query(others).result_rows:
            client.command(f"DROP DATABASE IF EXISTS {quoted(database)} SYNC")
    for notes in (BATCHES, INTENTS):
        client.command(f"DELETE FROM {notes} WHERE {_is_of(tenant)}")
    return len(found)


def _is_of(tenant: str) -> str:
    return f"startsWith(name, {literal(f'{tenant}.')})"
