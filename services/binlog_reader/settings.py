"""Settings of one binlog reader: one MySQL server, one source."""

import tempfile
from typing import Annotated, Literal

import msgspec

from libs.config.connections import (
    GrpcClientSettings,
    GrpcServerSettings,
    KafkaSettings,
    TelemetrySettings,
)
from libs.source.failure_policy import FailureHandling
from libs.source.key_columns import KeyColumns
from libs.source.mysql.settings import DatabaseSettings, SnapshotMode, SnapshotSettings
from libs.source.unseen_policy import SHADOW_TABLES, UnseenPolicy
from libs.types.bounds import bounds
from libs.types.value_modes import ValueModes

__all__ = ["BinlogReaderSettings", "DatabaseSettings", "SnapshotMode", "SnapshotSettings"]


class BinlogReaderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of one binlog reader."""

    source: str
    """Name of the source: ``topic.prefix`` of its events. Letters, digits, ``_`` and ``-``."""
    database: DatabaseSettings
    replica_server_id: Annotated[int, bounds(1, 4_294_967_295)]
    """The server id under which the reader asks for the log: unique among all replicas of the server, not 0."""
    include_tables: tuple[str, ...] = (".*",)
    """Regular expressions; a table is captured when one matches its whole ``database.table``."""
    exclude_tables: tuple[str, ...] = ()
    shadow_tables: tuple[str, ...] = SHADOW_TABLES
    """Regular expressions for table names (without database) of tools for online schema changes, here gh-ost's and
    pt-online-schema-change's. Rows of such tables are no changes of yours: they are not captured, even if ``include_tables``
    says, but the schema is followed, so that the rename at the end comes out as one change of the real table."""
    skipped_operations: tuple[Literal["c", "u", "d", "t"], ...] = ()
    """Operations that are not published: ``c``, ``u``, ``d``, ``t`` (``skipped.operations``)."""
    gtid_source_includes: tuple[str, ...] = ()
    """Regular expressions for server uuids; when there are any, only rows of transactions that such a server numbered are
    published (``gtid.source.includes``). DDL counts wherever it came from."""
    gtid_source_excludes: tuple[str, ...] = ()
    """Regular expressions for server uuids whose transactions' rows are not published (``gtid.source.excludes``)."""
    snapshot: SnapshotSettings = SnapshotSettings()
    signal_table: str | None = None
    """``database.table`` of three columns (id, type, data): a row inserted into it is a signal (``signal.data.collection``).
    It is captured as any other table, but that ``skipped_operations`` spares its new rows. Signals come by
    ``headwater.signals`` too, which needs no table at the source."""
    values: ValueModes = ValueModes()
    """Which of Debezium's forms times, decimals, unsigned BIGINTs and bytes take."""
    key_columns: tuple[KeyColumns, ...] = ()
    """Keys other than the tables' own (``message.key.columns``); the first that names a table counts."""
    failure_handling: FailureHandling = FailureHandling.DEAD_LETTER
    """Treatment of a row that cannot be decoded: fail, warn, skip, dead-letter. By default one row stops no other."""
    on_unseen_change: tuple[UnseenPolicy, ...] = ()
    """The action, by table, after a statement that changed rows without an event; no rule: warn."""
    transaction_metadata: bool = False
    """Fill the ``transaction`` block of each event and publish BEGIN and END (``provide.transaction.metadata``)."""
    lease_s: float = 15.0
    """How long a dead reader's partition stays reserved, in seconds; renewed three times as often."""
    heartbeat_interval_s: Annotated[float, bounds(0, 86_400)] = 0.0
    """How often, in seconds, the checkpoint is written and a record goes to ``__debezium-heartbeat.<source>`` when nothing that
    is captured changes (``heartbeat.interval.ms``); 0: never. It is no finer than ``database.heartbeat_s``."""
    spill_dir: str = tempfile.gettempdir()
    """A folder for transactions that do not fit into memory: it should hold the largest that the source ever writes."""
    kafka: KafkaSettings = KafkaSettings()
    schema_history: GrpcClientSettings
    checkpoint_committer: GrpcClientSettings
    grpc: GrpcServerSettings = GrpcServerSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
