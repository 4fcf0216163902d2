"""Settings of one DTS decoder: one Kafka partition of one subscription, one source partition."""

import enum
import tempfile
from typing import Annotated

import msgspec

from libs.config.connections import (
    GrpcClientSettings,
    GrpcServerSettings,
    KafkaAccess,
    KafkaSettings,
    TelemetrySettings,
)
from libs.source.failure_policy import FailureHandling
from libs.source.mysql.settings import DatabaseSettings
from libs.source.unseen_policy import TellingPolicy
from libs.types.bounds import bounds
from libs.types.value_modes import ValueModes

__all__ = [
    "DatabaseSettings",
    "DtsDecoderSettings",
    "SnapshotMode",
    "SnapshotSettings",
    "SubscriptionSettings",
]


class SnapshotMode(enum.Enum):
    """What the decoder does when it was never started before."""

    INITIAL = "initial"
    """Copy the captured tables from the server, then read the topic."""
    NO_DATA = "no_data"
    """Read the topic; the tables' definitions come from the server."""


class SnapshotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The initial copy of the captured tables, by one connection."""

    mode: SnapshotMode = SnapshotMode.INITIAL
    chunk_rows: Annotated[int, bounds(1, 10_000_000)] = 20_000
    """Rows read by one SELECT."""


class SubscriptionSettings(KafkaAccess, frozen=True, kw_only=True):
    """The subscription as DTS's console shows it: its Kafka, which is not Headwater's, and how it is read.

    ``bootstrap_servers`` is the private network address, ``username`` ``account-<subscription>-<account>``.
    """

    topic: str
    group_id: str
    """Name of the consumer group (``consumer-grp-…``). No other consumer may use it: the group's offset is set here."""
    partition: Annotated[int, bounds(0, 100_000)] = 0
    """Kafka partition of the topic. A decoder reads one; each further one is a decoder of its own, with the same source."""
    retention_h: float = 24.0
    """How long DTS keeps messages, in hours. It keeps 500 GB at most, which may be less; both are watched."""
    warn_headroom_h: float = 6.0
    """Below so many hours until messages that were not read are deleted, the status says so."""
    held_message_bytes: int = 32 << 20
    """What a message in parts may take of memory; a larger one waits in a file in ``spill_dir``."""
    max_message_bytes: int = 4 << 30
    """A message in parts of more than this is refused: ``held_message_bytes`` bounds memory, this the disk."""


class DtsDecoderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one DTS decoder is told."""

    source: str
    """Name of the source: ``topic.prefix`` of its events. Letters, digits, ``_`` and ``-``."""
    subscription: SubscriptionSettings
    database: DatabaseSettings | None = None
    """The MySQL server behind the subscription, for the initial copy and the tables' definitions. None: tables are learned
    from the messages, without defaults and without knowing which columns may be NULL, and no row is copied."""
    include_tables: tuple[str, ...] = (".*",)
    """Regular expressions; a table is captured when one matches its whole ``database.table``."""
    exclude_tables: tuple[str, ...] = ()
    snapshot: SnapshotSettings = SnapshotSettings()
    values: ValueModes = ValueModes()
    """Which of Debezium's forms times, decimals, unsigned BIGINTs and bytes take."""
    failure_handling: FailureHandling = FailureHandling.FAIL
    """What becomes of a message, an entry or a row that cannot be decoded."""
    on_unseen_change: tuple[TellingPolicy, ...] = ()
    """What is done, by table, where a statement changed rows of which the log has no event: warn or halt; no rule: warn."""
    transaction_metadata: bool = False
    """Fill the ``transaction`` block of each event and publish BEGIN and END (``provide.transaction.metadata``)."""
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
