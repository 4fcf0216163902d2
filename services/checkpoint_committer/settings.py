"""Settings of checkpoint_committer."""

import msgspec

from libs.config.connections import GrpcServerSettings, KafkaSettings, RedisSettings, TelemetrySettings
from libs.events.names import CHECKPOINTS_TOPIC


class CheckpointCommitterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Read once, in ``__main__``."""

    kafka: KafkaSettings = KafkaSettings()
    redis: RedisSettings = RedisSettings()
    grpc: GrpcServerSettings = GrpcServerSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    topic: str = CHECKPOINTS_TOPIC
    """The log of checkpoints and leases; another name only where several meshes share one Kafka."""
    transactional_id: str = "headwater-checkpoint-committer"
    """One for each mesh: an instance that starts under it ends the right to grant of every earlier one."""
    kafka_partitions: int = 4
    """Of the topic, when it is created; do not change it later, because a key would change its Kafka partition.

    A crashed reader's open transaction holds back the checkpoints of the readers in its Kafka partition until that
    reader starts again or the transaction times out; more Kafka partitions, fewer such neighbours.
    """
    longest_lease_s: float = 600.0
    """Longest lease that may be asked for, in seconds: so long a partition may stand still after a crash."""
    load_timeout_s: float = 120.0
    """How long reading the log may take at the start, in seconds, before the process gives up and is restarted."""
    barrier_timeout_s: float = 8.0
    """How long GetCheckpoint waits to see everything committed before it, in seconds.

    Below the clients' 10 s, so that they get a reason and not a bare time-out; they ask again.
    """
    view_interval_s: float = 1.0
    """How often the Redis view is brought up to date, in seconds; it is needed at the next start only."""
