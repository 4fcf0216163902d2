"""Keyspaces, their shards, and the MySQL servers that serve them."""

import enum
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pymysql

from libs.config.load import Secret
from libs.source.mysql.client import Connection, connect, query
from libs.source.mysql.settings import DatabaseSettings, TlsMode
from libs.stand_ins.vtgate.vindex import KeyRange, keyspace_id
from protos.vitess.topodata_pb2 import TabletType

SIDECAR: Final = "_vt"
"""Vitess's own database on each server."""
CELL: Final = "zone1"
LOG_HEARTBEAT_S: Final = 0.5
"""How often a silent server is heard from: how long a stream that is given up may linger."""


class Refused(Exception):
    """An error status that vtgate answers with; ``code`` is a name of grpc.StatusCode."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Tablet:
    """A MySQL server in a role."""

    uid: int
    host: str
    port: int
    database: str
    tablet_type: "TabletType" = TabletType.PRIMARY
    user: str = "root"
    password: str = ""
    cell: str = CELL

    @property
    def alias(self) -> str:
        """As vtctld writes it."""
        return f"{self.cell}-{self.uid:010d}"

    @property
    def settings(self) -> DatabaseSettings:
        """How it is reached."""
        return DatabaseSettings(
            host=self.host,
            port=self.port,
            user=self.user,
            password=Secret(self.password),
            # A statement has a connection of its own, which TLS makes several times as dear. There is no secret to keep.
            tls_mode=None if self.password else TlsMode.DISABLED,
            heartbeat_s=LOG_HEARTBEAT_S,
        )

    def connect(self) -> Connection:
        """A connection in UTC, with the shard's database chosen where it is there. Raises SourceUnavailable."""
        connection = connect(self.settings)
        try:
            connection.select_db(self.database)
        except pymysql.Error:
            connection.close()
            raise
        return connection

    def execute(self, statement: str, *arguments: object) -> list[tuple[object, ...]]:
        """The rows of one statement, on a connection of its own."""
        connection = self.connect()
        try:
            return query(connection, statement, *arguments)
        finally:
            connection.close()

    def position(self) -> str:
        """Every transaction executed, as Vitess writes a position."""
        return position_text(str(self.execute("SELECT @@GLOBAL.gtid_executed")[0][0]).replace("\n", ""))


def position_text(gtid_set: str) -> str:
    """A GTID set as Vitess writes a position: with the server's flavour before it."""
    return f"MySQL56/{gtid_set}"


class ShardState(enum.Enum):
    """Whether traffic goes to a shard."""

    SERVING = "serving"
    NOT_SERVING = "not serving"
    """The target of a reshard that is under way, or the source of one that is done; its log can still be streamed."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A range of a keyspace, on a primary and perhaps replicas."""

    keyspace: str
    name: str
    tablets: tuple[Tablet, ...]
    state: ShardState = ShardState.SERVING

    @property
    def key_range(self) -> KeyRange:
        """Which keyspace ids it holds."""
        return KeyRange.parse(self.name)

    @property
    def primary(self) -> Tablet:
        """The tablet that is written to."""
        return next(tablet for tablet in self.tablets if tablet.tablet_type == TabletType.PRIMARY)

    def tablet(self, tablet_type: "TabletType", cells: Sequence[str] = ()) -> Tablet:
        """One of the type, in one of the cells (none: any). Raises Refused: there is none."""
        for tablet in self.tablets:
            if tablet.tablet_type == tablet_type and (not cells or tablet.cell in cells):
                return tablet
        raise Refused(
            "UNAVAILABLE",
            f"target: {self.keyspace}.{self.name}.{TabletType.Name(tablet_type).lower()}: no healthy tablet available "
            f'for \'keyspace:"{self.keyspace}" shard:"{self.name}" tablet_type:{TabletType.Name(tablet_type)}\'',
        )


@dataclass(frozen=True, slots=True)
class Keyspace:
    """A database that is cut into shards by a column of each table; unsharded with one shard called "0"."""

    name: str
    vindex_columns: dict[str, str] = field(default_factory=dict)
    """The sharding column of each table that has another than ``id``."""

    def vindex_column(self, table: str) -> str:
        """The column by which the table's rows are dealt out."""
        return self.vindex_columns.get(table, "id")


class Topology:
    """The place of each part, for everybody; changed by reshards and reparents while streams run."""

    def __init__(self, keyspaces: Iterable[Keyspace], shards: Iterable[Shard]) -> None:
        self._lock = threading.Lock()
        self._keyspaces = {keyspace.name: keyspace for keyspace in keyspaces}
        self._shards = {(shard.keyspace, shard.name): shard for shard in shards}

    @property
    def keyspaces(self) -> tuple[Keyspace, ...]:
        """In alphabetical order."""
        return tuple(self._keyspaces[name] for name in sorted(self._keyspaces))

    def keyspace(self, name: str) -> Keyspace:
        """Raises Refused: there is none."""
        try:
            return self._keyspaces[name]
        except KeyError:
            raise Refused("NOT_FOUND", f"node doesn't exist: keyspaces/{name}") from None

    def serving(self, keyspace: str) -> tuple[Shard, ...]:
        """The shards that traffic goes to, in the order of their ranges. Raises Refused: no such keyspace."""
        self.keyspace(keyspace)
        with self._lock:
            found = [
                shard
                for shard in self._shards.values()
                if shard.keyspace == keyspace and shard.state is ShardState.SERVING
            ]
        return tuple(sorted(found, key=lambda shard: shard.key_range.start))

    def shard(self, keyspace: str, name: str) -> Shard:
        """Serving or not. Raises Refused: there is none."""
        self.keyspace(keyspace)
        with self._lock:
            shard = self._shards.get((keyspace, name))
        if shard is None:
            raise Refused("NOT_FOUND", f"node doesn't exist: keyspaces/{keyspace}/shards/{name}")
        return shard

    def shards(self) -> tuple[Shard, ...]:
        """All, by keyspace and name."""
        with self._lock:
            return tuple(self._shards[key] for key in sorted(self._shards))

    def put(self, shard: Shard) -> None:
        """Add a shard, or change one."""
        with self._lock:
            self._shards[shard.keyspace, shard.name] = shard

    def switch_traffic(self, sources: Iterable[Shard], targets: Iterable[Shard]) -> None:
        """From now on the targets serve."""
        with self._lock:
            for shards, state in ((sources, ShardState.NOT_SERVING), (targets, ShardState.SERVING)):
                for shard in shards:
                    current = self._shards[shard.keyspace, shard.name]
                    self._shards[shard.keyspace, shard.name] = replace(current, state=state)

    def shard_of(self, keyspace: str, value: int) -> Shard:
        """Where the row with this value in its sharding column lies."""
        identifier = keyspace_id(value)
        return next(shard for shard in self.serving(keyspace) if shard.key_range.holds(identifier))


def database_name(keyspace: str, shard: str) -> str:
    """The shard's database: named after the shard too, so that several fit on one server."""
    return f"vt_{keyspace}_{shard}"
