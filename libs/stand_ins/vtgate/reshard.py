"""Moves a keyspace's rows to other shards, and a shard's primary to another server, while streams run.

Vitess documentation, "Resharding" and "Reparenting". A reshard ends as SwitchTraffic does: writes are held back, every source
shard notes the same journal, and from then on the targets serve.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from google.protobuf import text_format

from libs.mysql.gtid import GtidSet
from libs.mysql.identifiers import quote_identifier
from libs.source.mysql.client import Connection, connect, query
from libs.stand_ins.vtgate.fields import table_fields, table_names
from libs.stand_ins.vtgate.log_stream import JOURNAL_TABLE
from libs.stand_ins.vtgate.service import VtgateServer
from libs.stand_ins.vtgate.topology import SIDECAR, Shard, ShardState, Tablet
from libs.stand_ins.vtgate.vindex import keyspace_id
from protos.vitess.binlogdata_pb2 import Journal, KeyspaceShard, MigrationType, ShardGtid
from protos.vitess.query_pb2 import Field, MySqlFlag, Type
from protos.vitess.topodata_pb2 import TabletType

_REPARENT_TIMEOUT_S: Final = 30
_INSERT_ROWS: Final = 500


def reshard(server: VtgateServer, targets: Sequence[Shard]) -> Journal:
    """Copy the rows of the serving shards that the targets overlap, and let the targets take over; a split or a merge.

    Writes through vtgate wait meanwhile; so do direct ones to the sources, and the caller sends elsewhere those that already
    had a source's address. Returns the journal that every source has written.
    """
    topology = server.topology
    keyspace = targets[0].keyspace
    sources = [
        shard
        for shard in topology.serving(keyspace)
        if any(shard.key_range.overlaps(target.key_range) for target in targets)
    ]
    with server.writes, contextlib.ExitStack() as stack:
        readers = [(source, stack.enter_context(contextlib.closing(source.primary.connect()))) for source in sources]
        for source, reader in readers:
            names = table_names(reader, source.primary.database)
            query(reader, "LOCK TABLES " + ", ".join(f"{quote_identifier(name)} READ" for name in names))
        for target in targets:
            topology.put(replace(target, state=ShardState.NOT_SERVING))
            with contextlib.closing(target.primary.connect()) as writer:
                for source, reader in readers:
                    _copy_rows(server, source, reader, target, writer)
        journal = Journal(
            id=time.time_ns() // 1_000,
            migration_type=MigrationType.SHARDS,
            shard_gtids=[
                ShardGtid(keyspace=keyspace, shard=target.name, gtid=target.primary.position()) for target in targets
            ],
            participants=[KeyspaceShard(keyspace=keyspace, shard=source.name) for source in sources],
        )
        write_journal(journal, sources)
        topology.switch_traffic(sources, targets)
    return journal


def write_journal(journal: Journal, sources: Sequence[Shard]) -> None:
    """Note the journal on every source, as the last thing that happens there."""
    text = text_format.MessageToString(journal)
    for source in sources:
        source.primary.execute(
            f"INSERT INTO {SIDECAR}.{JOURNAL_TABLE} (id, db_name, val) VALUES (%s, %s, %s)",
            journal.id,
            source.primary.database,
            text,
        )


def _copy_rows(server: VtgateServer, source: Shard, reader: Connection, target: Shard, writer: Connection) -> None:
    """The source's rows that belong to the target."""
    vindex = server.topology.keyspace(source.keyspace)
    for name in table_names(reader, source.primary.database):
        table = quote_identifier(name)
        ((_, created),) = query(reader, f"SHOW CREATE TABLE {table}")
        query(writer, created.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
        described = table_fields(reader, source.primary.database, name)
        assert described is not None
        columns = [quote_identifier(field.name) for field in described.fields]
        place = [field.name for field in described.fields].index(vindex.vindex_column(name))
        rows = query(reader, f"SELECT {', '.join(_read(field) for field in described.fields)} FROM {table}")
        own = [row for row in rows if target.key_range.holds(keyspace_id(int(row[place])))]
        one = ", ".join(_written(field) for field in described.fields)
        for first in range(0, len(own), _INSERT_ROWS):
            part = own[first : first + _INSERT_ROWS]
            query(
                writer,
                f"INSERT INTO {table} ({', '.join(columns)}) VALUES " + ", ".join([f"({one})"] * len(part)),
                *(value for row in part for value in row),
            )


def _read(field: Field) -> str:
    """Everything as text that says all, or as hexadecimal digits."""
    column = quote_identifier(field.name)
    if field.flags & MySqlFlag.NUM_FLAG and field.type != Type.FLOAT32:
        return column
    if field.type == Type.FLOAT32:
        return f"CAST({column} AS DOUBLE)"
    if field.type in _TEXTS:
        return column
    return f"HEX({column})"


_TEXTS: Final = frozenset(
    (
        Type.DATE,
        Type.TIME,
        Type.DATETIME,
        Type.TIMESTAMP,
        Type.JSON,
        Type.ENUM,
        Type.SET,
        Type.CHAR,
        Type.VARCHAR,
        Type.TEXT,
    )
)


def _written(field: Field) -> str:
    if field.flags & MySqlFlag.NUM_FLAG or field.type in _TEXTS:
        return "%s"
    return "UNHEX(%s)"


def reparent(server: VtgateServer, shard: Shard, new_primary: Tablet) -> None:
    """A planned reparent: ``new_primary``, one of the shard's replicas, becomes its primary, the old one a replica."""
    old = shard.primary
    with server.writes:
        old.execute("SET GLOBAL super_read_only = ON")
        executed = str(old.execute("SELECT @@GLOBAL.gtid_executed")[0][0]).replace("\n", "")
        ((timed_out,),) = new_primary.execute(
            "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", executed, _REPARENT_TIMEOUT_S
        )
        assert not timed_out, "the replica did not catch up"
        for statement in (
            "STOP REPLICA",
            "RESET REPLICA ALL",
            "SET GLOBAL super_read_only = OFF",
            "SET GLOBAL read_only = OFF",
        ):
            new_primary.execute(statement)
        replicate(old, new_primary)
        roles = {old: TabletType.REPLICA, new_primary: TabletType.PRIMARY}
        tablets = tuple(replace(tablet, tablet_type=roles.get(tablet, tablet.tablet_type)) for tablet in shard.tablets)
        server.topology.put(replace(server.topology.shard(shard.keyspace, shard.name), tablets=tablets))


def replicate(replica: Tablet, primary: Tablet) -> None:
    """Let a server follow another by GTID; it takes no writes from others."""
    _on_server(
        replica,
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = %s, SOURCE_PORT = %s, SOURCE_USER = %s, SOURCE_PASSWORD = %s, "
        "SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_HEARTBEAT_PERIOD = 1",
        primary.host,
        primary.port,
        primary.user,
        primary.password,
    )
    for statement in ("START REPLICA", "SET GLOBAL super_read_only = ON"):
        _on_server(replica, statement)


def _on_server(tablet: Tablet, statement: str, *arguments: object) -> None:
    """Without the shard's database, which a new replica still lacks."""
    with contextlib.closing(connect(tablet.settings)) as connection:
        query(connection, statement, *arguments)


def wait_for_position(tablet: Tablet, position: str, timeout_s: float) -> None:
    """Until a server has executed everything of ``position`` ("MySQL56/…")."""
    wanted = GtidSet.parse(position.removeprefix("MySQL56/"))
    deadline_s = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(Exception):
            if GtidSet.parse(tablet.position().removeprefix("MySQL56/")).is_superset(wanted):
                return
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{tablet.alias} has not executed {position}")
        time.sleep(0.1)
