"""Settings of one binlog reader: one MySQL server, one source."""

import enum

import msgspec

from libs.config.connections import (
    GrpcClientSettings,
    GrpcServerSettings,
    KafkaSettings,
    TelemetrySettings,
)
from libs.config.load import Secret


class DatabaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The MySQL server to follow: a primary, or a replica with ``log_replica_updates``."""

    host: str
    port: int = 3306
    user: str
    password: Secret = Secret("")
    connect_timeout_s: float = 10.0
    """How long to wait for a connection, in seconds."""
    heartbeat_s: float = 2.0
    """How often a silent server says that it lives, in seconds; three missed ones and the connection counts as lost."""
    tls_ca_file: str | None = None
    """Certificate authority of the server; with it the connection is TLS and the server's name is checked."""
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None


class SnapshotMode(enum.Enum):
    """What a reader does that finds no checkpoint."""

    INITIAL = "initial"
    """Copy the rows there are, then follow the log."""
    NO_DATA = "no_data"
    """Learn the tables' schemas, then follow the log from now."""


class SnapshotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The initial copy of the captured tables."""

    mode: SnapshotMode = SnapshotMode.INITIAL
    chunk_rows: int = 20_000
    """Rows read by one SELECT. Larger is a little faster; smaller repeats less after a crash and holds less memory."""


class BinlogReaderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one binlog reader is told."""

    source: str
    """Name of the source: ``topic.prefix`` of its events. Letters, digits, ``_`` and ``-``."""
    database: DatabaseSettings
    replica_server_id: int
    """The server id under which the reader asks for the log: unique among all replicas of the server, not 0."""
    include_tables: tuple[str, ...] = (".*",)
    """Regular expressions; a table is captured when one matches its whole ``database.table``."""
    exclude_tables: tuple[str, ...] = ()
    snapshot: SnapshotSettings = SnapshotSettings()
    transaction_metadata: bool = False
    """Fill the ``transaction`` block of each event and publish BEGIN and END (``provide.transaction.metadata``)."""
    lease_s: float = 15.0
    """How long a dead reader's partition stays reserved, in seconds; renewed three times as often."""
    kafka: KafkaSettings = KafkaSettings()
    schema_history: GrpcClientSettings
    checkpoint_committer: GrpcClientSettings
    grpc: GrpcServerSettings = GrpcServerSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
