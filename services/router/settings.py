"""The router's settings."""

import enum
import math

import msgspec

from libs.config.connections import (
    GrpcClientSettings,
    GrpcServerSettings,
    KafkaSettings,
    SchemaRegistrySettings,
    TelemetrySettings,
)
from libs.errors import InvalidSettings
from libs.tenants.topic_quotas import TopicQuotaSettings
from services.router.records.record_batch import CODECS


class UnreadableRecords(enum.Enum):
    """Treatment of a record of a changes topic that is no ChangeBatch of its source."""

    SET_ASIDE = "set_aside"
    """It is passed over; the log, a metric and ``headwater status`` say where it lies."""
    HALT = "halt"
    """The router ends, until a person has seen to it."""


class LaneSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one lane (one partition of a changes topic) works and how much it may hold."""

    queued_batches: int = 32
    """ChangeBatches between Faust and the lane: as many as a transaction takes at most."""
    queued_bytes: int = 8_000_000
    """Bytes of ChangeBatches between Faust and the lane; one batch larger than this still passes, alone.

    As much again is held by the transaction that runs: 16 MB of the 200 MB that a router may take, and enough that a commit
    (12 to 27 ms by the clock, 2 to 3 ms of CPU) is shared by 8,000 rows when the router lags.
    """
    producer_queue_kbytes: int = 12_288
    """Limit of the producer's unacknowledged records, in KiB: half of it gathered for batches
    (counted as before compression), half on their way, compressed."""
    compression: str = "lz4"
    """none, lz4, zstd, snappy or gzip. lz4 takes less CPU than none, because less is sent."""
    topic_look_s: float = 30.0
    """How often a lane that routes asks Kafka whether its changes topic is the one that it was, in seconds: a topic that is
    deleted and made again has the same name and other offsets."""
    max_event_bytes: int = 900_000
    """A larger event becomes a dead letter. Below the 1 MB that a broker takes by default (``message.max.bytes``)."""
    unreadable_records: UnreadableRecords = UnreadableRecords.SET_ASIDE
    """Treatment of a record of a changes topic that is no ChangeBatch, such as bytes that a stranger wrote."""
    transaction_timeout_s: float = 300.0
    """How long Kafka keeps a transaction open without its end; an abandoned one delays readers by so much at most, or until the
    next router takes the partition. A transaction that is three quarters as old ends the process."""
    stuck_transaction_s: float = 45.0
    """A transaction in which Kafka has acknowledged nothing for so long ends the process: producers were seen to make no
    progress for ever after a broker's crash. Below ``transaction_timeout_s``, so that the end is ours."""
    ready_timeout_s: float = 40.0
    """How long fencing the old owner and reading the committed offset may take after an assignment."""
    close_timeout_s: float = 4.0
    """How long the running transaction may take to end at a revocation or a stop; then it is left to be fenced."""


class TenantLimitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Upper limits for tenants, above their own documents, which belong to teams. Each router process counts by itself."""

    default_events_per_s: float | None = None
    """Of a tenant whose document has no ``limits.events_per_s``; None: it has no limit, or the greatest that there is."""
    default_bytes_per_s: float | None = None
    """Of a tenant whose document has no ``limits.bytes_per_s``."""
    max_events_per_s: float | None = None
    """The greatest limit: a document that says more, or nothing, is held to it. None: a document may say anything."""
    max_bytes_per_s: float | None = None
    max_weight: float | None = None
    """The greatest ``limits.weight``."""

    @property
    def mistakes(self) -> list[str]:
        """Every value that makes no sense, its name first."""
        found = []
        for name in self.__struct_fields__:
            limit = getattr(self, name)
            if limit is not None and not 0 < limit < math.inf:
                found.append(f"{name}: must be more than 0; leave it out for no limit")
        for kind in ("events_per_s", "bytes_per_s"):
            usual, greatest = getattr(self, f"default_{kind}"), getattr(self, f"max_{kind}")
            if usual is not None and greatest is not None and usual > greatest:
                found.append(f"default_{kind}: must be at most max_{kind}")
        return found


class RouterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a router."""

    sources: tuple[str, ...]
    """Names of the sources whose changes are routed."""
    schema_history: GrpcClientSettings
    checkpoint_committer: GrpcClientSettings
    tenants_folder: str = "tenants"
    """Folder of the tenants' documents; looked at every second."""
    tenant_operator: GrpcClientSettings | None = None
    """The operators that send the tenants' documents, instead of ``tenants_folder``; the last ones are kept in
    ``state_folder``.

    A mounted ConfigMap is refreshed a minute and more after it changed (Kubernetes documentation, "ConfigMaps").
    """
    tenants_timeout_s: float = 30.0
    """How long to wait at the start for tenant_operator, in seconds, before routing begins with its former documents."""
    keys_folder: str | None = None
    """Folder with the keys of tenants' masks, ``<tenant>/<name>``; None: keys come from the environment alone."""
    state_folder: str = ".headwater/router"
    """Folder of this process' own: the last good version of each tenant's document."""
    group: str = "headwater-router"
    """Consumer group, and the front of the transactional ids. Routers of one group share the source partitions."""
    kafka: KafkaSettings = KafkaSettings()
    schema_registry: SchemaRegistrySettings | None = None
    """Where the schemas of tenants with ``format.kind: avro`` or ``protobuf`` are registered; None: their rows are set
    aside."""
    grpc: GrpcServerSettings | None = None
    """Where it serves its faults over gRPC (``headwater.faults.v1.Faults``). None: only ``/faults`` of ``telemetry`` does."""
    telemetry: TelemetrySettings = TelemetrySettings()
    lane: LaneSettings = LaneSettings()
    tenant_limits: TenantLimitSettings = TenantLimitSettings()
    topic_quotas: TopicQuotaSettings = TopicQuotaSettings()
    """A table whose topic would exceed the quota is refused; tenant_operator has the same setting."""
    session_timeout_s: float = 7.0
    """A router that is silent for so long loses its partitions: after a kill, routing goes on 2 to 6 s later."""
    heartbeat_interval_s: float = 2.0
    """At most a third of the session timeout (Kafka documentation, ``heartbeat.interval.ms``)."""
    fetch_bytes: int = 2_000_000
    """Limit of one fetch from each partition, compressed (batches shrink to a fifth or less); a larger batch comes alone.

    Measured: 500 kB left a lane waiting for Faust (33,000 events/s), 2 MB did not (166,000) and took 6 MB more.
    """
    progress_interval_s: float = 2.0
    """How often each tenant's progress is reported to checkpoint_committer."""
    stall_timeout_s: float = 60.0
    """``/healthz`` answers 503 when batches wait for so long and none is routed; after twice that the process ends."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work. Raises InvalidSettings with every mistake."""
        mistakes = []
        if not self.sources:
            mistakes.append("sources: name at least one source")
        if len(set(self.sources)) != len(self.sources):
            mistakes.append("sources: a name stands here twice")
        if self.heartbeat_interval_s * 3 > self.session_timeout_s:
            mistakes.append("heartbeat_interval_s: must be at most a third of session_timeout_s")
        if self.lane.stuck_transaction_s >= self.lane.transaction_timeout_s:
            mistakes.append("lane.stuck_transaction_s: must be below lane.transaction_timeout_s")
        if self.lane.compression not in CODECS:
            mistakes.append(f"lane.compression: {self.lane.compression!r} is none of {', '.join(CODECS)}")
        mistakes += [f"tenant_limits.{mistake}" for mistake in self.tenant_limits.mistakes]
        if mistakes:
            raise InvalidSettings("router", mistakes)
