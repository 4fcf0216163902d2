"""The port of every source: a reader's methods for the shared rest of the way.

A source hands over batches and says after which of them the log may be resumed. ``libs.source.follow`` publishes them.
One suite (``tests/contract/test_sources.py``) holds for every implementation.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from libs.events.batch import BatchIdentity
from libs.types.checkpoint import NO_INCREMENTAL, Checkpoint, IncrementalSnapshot, SnapshotProgress
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """A place between two source transactions (or two snapshot chunks) from which reading can go on."""

    position: SourcePosition
    order: EventOrder
    """Order of the last event before this place."""
    committed_at_us: int
    """Commit time, at the source, of the last transaction before this place; microseconds since 1970."""
    snapshot: SnapshotProgress | None = None
    """Present while the initial snapshot is unfinished."""
    incremental: IncrementalSnapshot = NO_INCREMENTAL


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """One ChangeBatch, in log order after the one before it."""

    payload: bytes
    """Serialised ChangeBatch; b"" for a heartbeat, which only moves the position."""
    rows: int
    resume: ResumePoint | None
    """Where to resume once everything up to and with this batch is durable; None inside a source transaction."""
    dead_letters: tuple[bytes, ...] = ()
    """Undecodable rows that were set aside, a record each; published in the same Kafka transaction."""


class ChangeLog(Protocol):
    """An open source partition."""

    def batches(self) -> AsyncIterator[ReadBatch]:
        """Batches from the resume point on, first the snapshot where there is one to take; does not end by itself.

        The same log gives the same rows with the same orders, however often and from wherever it is read; only how they
        are cut into batches may differ.

        Raises:
            SourceUnavailable: connection lost; open again from the last durable resume point.
            PositionPurged: the log from the resume point is gone; re-snapshot.
            SchemaUnknown, SchemaContradiction: the log cannot be read with the schemas known; see the message.
            UndecodableValue: a captured row cannot be read; see the message.
        """
        ...


@runtime_checkable
class ConfirmsPosition(Protocol):
    """A change log whose source asks for the durable position (DTS: its consumer group)."""

    async def confirm(self, durable: ResumePoint) -> None:
        """Everything before ``durable`` is durable. Called after each Kafka transaction of ours, never before.

        Raises:
            SourceUnavailable: the source did not get it; harmless, the next call has a later position.
        """
        ...


@runtime_checkable
class QuarantinesTables(Protocol):
    """A change log that goes on without the tables that it cannot read rightly."""

    @property
    def quarantined(self) -> Mapping[str, str]:
        """Tables (``database.table``) whose rows are passed over, each with the reason and the remedy."""
        ...


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """How far one shard of a source was read; the checkpoint has the durable part."""

    shard: str
    position: str
    """Its GTID set."""
    rank: int
    """How many transactions the position holds."""
    epoch: int
    committed_at_us: int
    """When its newest transaction was committed there; 0: none came since the reader started."""
    lag_s: float
    """From that commit to its reading."""
    transactions: int
    """Read since the reader started."""
    rows: int
    rows_copied: int
    """Of ``rows``: those that no change brought."""
    is_copying: bool
    """Tables of it are being copied, by the initial snapshot or an incremental one."""
    is_ended: bool
    """It came to the journal of a reshard, and waits for the other shards that end there."""


@runtime_checkable
class HasShards(Protocol):
    """A change log that reads several shards as one source partition."""

    def shards(self) -> Sequence[ShardProgress]:
        """Every shard that is read now."""
        ...


class Source(Protocol):
    """A source partition that can be opened."""

    @property
    def partition(self) -> SourcePartition:
        """Which log this is."""
        ...

    def open(self, resume_from: Checkpoint | None, identity: BatchIdentity) -> AbstractAsyncContextManager[ChangeLog]:
        """Connect and stand at the checkpoint; None: never read before. Closing releases every connection.

        Raises:
            SourceUnavailable: no connection; try again.
            SourceMisconfigured: the pre-flight found faults; every one is listed with its mend.
            PositionPurged, AccessDenied: a human is needed.
        """
        ...
