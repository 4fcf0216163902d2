"""Settings of one binlog reader: one MySQL server, one source."""

import tempfile

import msgspec

from libs.config.connections import (
    GrpcClientSettings,
    GrpcServerSettings,
    KafkaSettings,
    TelemetrySettings,
)
from libs.source.mysql.settings import DatabaseSettings, SnapshotMode, SnapshotSettings
from libs.types.value_modes import ValueModes

__all__ = ["BinlogReaderSettings", "DatabaseSettings", "SnapshotMode", "SnapshotSettings"]


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
    signal_table: str | None = None
    """``database.table`` of three columns (id, type, data): a row inserted into it is a signal (``signal.data.collection``).
    It is captured as any other table. Signals come by ``headwater.signals`` too, which needs no table at the source."""
    values: ValueModes = ValueModes()
    """Which of Debezium's forms times, decimals, unsigned BIGINTs and bytes take."""
    transaction_metadata: bool = False
    """Fill the ``transaction`` block of each event and publish BEGIN and END (``provide.transaction.metadata``)."""
    lease_s: float = 15.0
    """How long a dead reader's partition stays reserved, in seconds; renewed three times as often."""
    spill_dir: str = tempfile.gettempdir()
    """A folder for transactions that do not fit into memory: it should hold the largest that the source ever writes."""
    kafka: KafkaSettings = KafkaSettings()
    schema_history: GrpcClientSettings
    checkpoint_committer: GrpcClientSettings
    grpc: GrpcServerSettings = GrpcServerSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
