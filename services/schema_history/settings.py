"""Settings of schema_history."""

import msgspec

from libs.config.connections import GrpcServerSettings, KafkaSettings, RedisSettings, TelemetrySettings
from libs.events.names import SCHEMA_HISTORY_TOPIC


class SchemaHistorySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Read once, in ``__main__``."""

    kafka: KafkaSettings = KafkaSettings()
    redis: RedisSettings = RedisSettings()
    grpc: GrpcServerSettings = GrpcServerSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    topic: str = SCHEMA_HISTORY_TOPIC
    """The log of schema changes; another name only where several meshes share one Kafka."""
    transactional_id: str = "headwater-schema-history"
    """One for each mesh: an instance that starts under it ends the right to write of every earlier one."""
    load_timeout_s: float = 120.0
    """How long reading the log may take at the start, in seconds, before the process gives up and is restarted.

    Some 10,000 changes a second are read, so this is far above any real history.
    """
    barrier_timeout_s: float = 8.0
    """How long a read waits to see everything recorded before it, in seconds.

    Below the clients' 10 s, so that they get a reason and not a bare time-out.
    """
    view_interval_s: float = 1.0
    """How often the Redis view is brought up to date, in seconds; it is needed at the next start only."""
