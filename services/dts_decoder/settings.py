"""Settings of one DTS decoder: one Kafka partition of one subscription, one source partition."""

import tempfile

from libs.config.connections import GrpcClientSettings, GrpcServerSettings, KafkaSettings, TelemetrySettings
from libs.source.dts.settings import DtsSnapshotMode as SnapshotMode
from libs.source.dts.settings import DtsSnapshotSettings as SnapshotSettings
from libs.source.dts.settings import DtsSourceSettings, SubscriptionSettings
from libs.source.mysql.settings import DatabaseSettings

__all__ = [
    "DatabaseSettings",
    "DtsDecoderSettings",
    "SnapshotMode",
    "SnapshotSettings",
    "SubscriptionSettings",
]


class DtsDecoderSettings(DtsSourceSettings, frozen=True, kw_only=True):
    """All settings of one DTS decoder."""

    source: str
    """Name of the source: ``topic.prefix`` of its events. Letters, digits, ``_`` and ``-``."""
    database: DatabaseSettings | None = None
    """The MySQL server that the subscription is of, for the initial copy and the tables' definitions. None: tables are learned
    from the messages, without defaults and without knowing which columns may be NULL, and no row is copied."""
    lease_s: float = 15.0
    """How long a dead decoder's partition stays reserved, in seconds; renewed three times as often."""
    spill_dir: str = tempfile.gettempdir()
    """A folder for messages that do not fit into memory."""
    kafka: KafkaSettings = KafkaSettings()
    """Headwater's own Kafka."""
    schema_history: GrpcClientSettings
    checkpoint_committer: GrpcClientSettings
    grpc: GrpcServerSettings = GrpcServerSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
