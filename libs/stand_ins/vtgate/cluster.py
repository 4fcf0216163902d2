"""A keyspace on MySQL servers, made ready for streaming: databases, Vitess's own tables, heartbeats."""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from libs.errors import HeadwaterError
from libs.mysql.identifiers import quote_identifier
from libs.source.mysql.client import connect, query
from libs.stand_ins.vtgate.log_stream import HEARTBEAT_TABLE, JOURNAL_TABLE
from libs.stand_ins.vtgate.topology import SIDECAR, Keyspace, Shard, Tablet, Topology, database_name

HEARTBEAT_PERIOD_S: Final = 1.0
"""Vitess's --heartbeat_interval."""


def new_shard(
    keyspace: str,
    name: str,
    uid: int,
    host: str,
    port: int,
    *,
    user: str = "root",
    password: str = "",
    database: str = "",
) -> Shard:
    """A shard with a primary alone; its database and Vitess's are created where they are missing."""
    tablet = Tablet(
        uid=uid, host=host, port=port, database=database or database_name(keyspace, name), user=user, password=password
    )
    prepare(tablet)
    return Shard(keyspace=keyspace, name=name, tablets=(tablet,))


def prepare(tablet: Tablet) -> None:
    """Create the tablet's database and Vitess's own, where they are missing."""
    connection = connect(tablet.settings)
    try:
        for statement in (
            f"CREATE DATABASE IF NOT EXISTS {quote_identifier(tablet.database)}",
            f"CREATE DATABASE IF NOT EXISTS {SIDECAR}",
            # Vitess source go/vt/sidecardb/schema.
            f"CREATE TABLE IF NOT EXISTS {SIDECAR}.{JOURNAL_TABLE} "
            "(id BIGINT PRIMARY KEY, db_name VARBINARY(255), val LONGBLOB)",
            f"CREATE TABLE IF NOT EXISTS {SIDECAR}.{HEARTBEAT_TABLE} (keyspaceShard VARBINARY(256) NOT NULL PRIMARY KEY, "
            "tabletUid INT UNSIGNED NOT NULL, ts BIGINT UNSIGNED NOT NULL)",
        ):
            query(connection, statement)
    finally:
        connection.close()


def topology_of(
    servers: Mapping[str, Mapping[str, tuple[str, int]]],
    *,
    vindex_columns: Mapping[str, Mapping[str, str]] | None = None,
) -> Topology:
    """Keyspaces by name, their shards by name, each shard's host and port of MySQL (root without password)."""
    columns = vindex_columns or {}
    keyspaces = [Keyspace(name, dict(columns.get(name, {}))) for name in servers]
    shards: list[Shard] = []
    for keyspace, by_name in servers.items():
        for name, (host, port) in by_name.items():
            shards.append(new_shard(keyspace, name, 100 * (len(shards) + 1), host, port))
    return Topology(keyspaces, shards)


def on_every_shard(topology: Topology, keyspace: str, statements: Sequence[str]) -> None:
    """Run statements on the primary of each serving shard: DDL, mostly."""
    for shard in topology.serving(keyspace):
        for statement in statements:
            shard.primary.execute(statement)


@contextlib.contextmanager
def heartbeats(topology: Topology) -> Iterator[None]:
    """Each serving primary writes the time into its heartbeat table, until the block ends."""
    stop = threading.Event()
    thread = threading.Thread(target=_beat, args=(topology, stop), daemon=True, name="heartbeats")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _beat(topology: Topology, stop: threading.Event) -> None:
    while not stop.wait(HEARTBEAT_PERIOD_S):
        for keyspace in topology.keyspaces:
            for shard in topology.serving(keyspace.name):
                # A primary that is gone just now is heard from again when it is back.
                with contextlib.suppress(HeadwaterError):
                    shard.primary.execute(
                        f"INSERT INTO {SIDECAR}.{HEARTBEAT_TABLE} (keyspaceShard, tabletUid, ts) VALUES (%s, %s, %s) "
                        "ON DUPLICATE KEY UPDATE tabletUid = VALUES(tabletUid), ts = VALUES(ts)",
                        f"{shard.keyspace}:{shard.name}",
                        shard.primary.uid,
                        time.time_ns(),
                    )
