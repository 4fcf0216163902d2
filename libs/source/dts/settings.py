"""How a Tencent DTS subscription is read: the same in a decoder's settings and in a source's document."""

import enum
from typing import Annotated

import msgspec

from libs.config.connections import KafkaAccess
from libs.source.failure_policy import FailureHandling
from libs.source.unseen_policy import TellingPolicy
from libs.types.bounds import bounds
from libs.types.value_modes import ValueModes


class DtsSnapshotMode(enum.Enum):
    """The first step of a decoder that was never started before."""

    INITIAL = "initial"
    """Copy the captured tables from the server, then read the topic."""
    NO_DATA = "no_data"
    """Read the topic; the tables' definitions come from the server."""


class DtsSnapshotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The initial copy of the captured tables, by one connection."""

    mode: DtsSnapshotMode = DtsSnapshotMode.INITIAL
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
    retention_h: Annotated[float, bounds(0, 87_600)] = 24.0
    """How long DTS keeps messages, in hours. It keeps 500 GB at most, which may be less; both are watched."""
    warn_headroom_h: Annotated[float, bounds(0, 87_600)] = 6.0
    """Below so many hours until messages that were not read are deleted, the status says so."""
    held_message_bytes: Annotated[int, bounds(0, 1 << 40)] = 32 << 20
    """Memory that a message in parts may take; a larger one waits in a file in ``spill_dir``."""
    max_message_bytes: Annotated[int, bounds(1, 1 << 50)] = 4 << 30
    """A message in parts of more than this is refused: ``held_message_bytes`` bounds memory, this the disk."""


class DtsSourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One subscription, and how its messages become events."""

    subscription: SubscriptionSettings
    include_tables: tuple[str, ...] = (".*",)
    """Regular expressions; a table is captured when one matches its whole ``database.table``."""
    exclude_tables: tuple[str, ...] = ()
    snapshot: DtsSnapshotSettings = DtsSnapshotSettings()
    values: ValueModes = ValueModes()
    """Which of Debezium's forms times, decimals, unsigned BIGINTs and bytes take."""
    failure_handling: FailureHandling | None = None
    """Treatment of a message, an entry or a row that cannot be decoded. None: a row is a dead letter, as with other sources. A
    message or an entry halts the decoder: nobody knows of which tables it held rows, or a DDL statement."""
    on_unseen_change: tuple[TellingPolicy, ...] = ()
    """The action, by table, after a statement that changed rows without an event: warn or halt; no rule: warn."""
    transaction_metadata: bool = False
    """Fill the ``transaction`` block of each event and publish BEGIN and END (``provide.transaction.metadata``)."""
