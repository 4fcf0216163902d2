"""Settings of one binlog reader: one MySQL server, one source."""

import tempfile
from typing import Annotated, Literal

from libs.config.connections import (
    GrpcClientSettings,
    GrpcServerSettings,
    KafkaSettings,
    TelemetrySettings,
)
from libs.source.mysql.settings import DatabaseSettings, MysqlSourceSettings, SnapshotSettings
from libs.source.snapshot_mode import SnapshotMode
from libs.source.unseen_policy import SHADOW_TABLES
from libs.types.bounds import bounds

__all__ = ["BinlogReaderSettings", "DatabaseSettings", "SnapshotMode", "SnapshotSettings"]


class BinlogReaderSettings(MysqlSourceSettings, frozen=True, kw_only=True):
    """All settings of one binlog reader."""

    source: str
    """Name of the source: ``topic.prefix`` of its events. Letters, digits, ``_`` and ``-``."""
    replica_server_id: Annotated[int, bounds(1, 4_294_967_295)]
    """The server id under which the reader asks for the log: unique among all replicas of the server, not 0."""
    shadow_tables: tuple[str, ...] = SHADOW_TABLES
    """Regular expressions for table names (without database) of tools for online schema changes, here gh-ost's and
    pt-online-schema-change's. Rows of such tables are no changes of yours: they are not captured, even if ``include_tables``
    says, but the schema is followed, so that the rename at the end comes out as one change of the real table."""
    skipped_operations: tuple[Literal["c", "u", "d", "t"], ...] = ()
    """Operations that are not published: ``c``, ``u``, ``d``, ``t`` (``skipped.operations``)."""
    lease_s: float = 15.0
    """How long a dead reader's partition stays reserved, in seconds; renewed three times as often."""
    spill_dir: str = tempfile.gettempdir()
    """A folder for transactions that do not fit into memory: it should hold the largest that the source ever writes."""
    kafka: KafkaSettings = KafkaSettings()
    schema_history: GrpcClientSettings
    checkpoint_committer: GrpcClientSettings
    grpc: GrpcServerSettings = GrpcServerSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
