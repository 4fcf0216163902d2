"""A reader's facts about itself: for ReaderControl, health and metrics."""

import asyncio
import enum
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from libs.source.port import ShardProgress
from libs.source.publisher import Published
from libs.source.signal_outcomes import durable
from libs.telemetry import metrics
from libs.telemetry.faults import READER_HALTED, SOURCE_UNREACHABLE, lift_fault, raise_fault
from libs.types.checkpoint import Checkpoint, IncrementalSnapshot, SnapshotProgress
from libs.types.fault import FaultScope
from libs.types.position import SourcePartition


def _no_shards() -> Sequence[ShardProgress]:
    return ()


class ReaderState(enum.Enum):
    """The reader's present step."""

    STARTING = "starting"
    """It waits for its lease and for Kafka."""
    CONNECTING = "connecting"
    """It owns the source partition, and opens the source's log for the first time."""
    DISCONNECTED = "disconnected"
    """The source, Kafka or a service went away; it tries again by itself."""
    SNAPSHOTTING = "snapshotting"
    STREAMING = "streaming"
    PAUSED = "paused"
    HALTED = "halted"
    """A human is needed."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """The obstacle to a reader, and the time of its next try."""

    error: str
    since_us: int
    """When the first of the failures in a row came."""
    next_try_us: int


class ReaderStatus:
    """The newest facts of one reader; written by its loop, read by any thread."""

    def __init__(self, partition: SourcePartition) -> None:
        self.partition = partition
        self.run_id = str(uuid.uuid4())
        self.state = self._held = ReaderState.STARTING
        self.last: Published | Checkpoint | None = None
        self.halted_because = ""
        self.interruption: Interruption | None = None
        """Why nothing is read just now; None while something is."""
        self.quarantined: Callable[[], Mapping[str, str]] = dict
        """See ``libs.source.port.QuarantinesTables``."""
        self.snapshot_remaining_s: float | None = None
        """Until the initial snapshot is done; None: none runs, or there is no rate yet."""
        self.incremental_remaining_s: float | None = None
        """Until the first table of the incremental snapshot is done; None: no rate yet."""
        self._snapshot_pace = _Pace()
        self._incremental_pace = _Pace()
        metrics.HALTED.labels(partition.source).set(0)
        metrics.READER_CONNECTED.labels(partition.source, partition.name).set(0)
        self.warning: str | None = None
        """A warning for an operator, before the cause stops the reader; ``/readyz`` shows it."""
        self.shards: Callable[[], Sequence[ShardProgress]] = _no_shards
        """Of a source that has some, while it is open."""
        self._may_read = asyncio.Event()
        self._may_read.set()

    def resumed(self, checkpoint: Checkpoint | None) -> None:
        """The reader begins at ``checkpoint``."""
        self.last = checkpoint

    def _state_at(self, checkpoint: Checkpoint | None) -> None:
        is_copying = checkpoint is None or checkpoint.snapshot is not None
        self._held = ReaderState.SNAPSHOTTING if is_copying else ReaderState.STREAMING
        self.state = self._held if self._may_read.is_set() else ReaderState.PAUSED

    def published(self, published: Published) -> None:
        """A Kafka transaction was committed."""
        labels = (self.partition.source, self.partition.name)
        before = self.last.rows_published if self.last is not None else 0
        metrics.READER_ROWS.labels(*labels).inc(published.rows_published - before)
        if published.rows_published > before:
            metrics.READER_LAST_EVENT.labels(*labels).set(time.time())
        metrics.READER_LAG.labels(*labels).set(max(0.0, time.time() - published.resume.committed_at_us / 1e6))
        self.last = published
        self._observe_incremental(published.resume.incremental)
        durable(labels, published.resume.incremental)
        self._observe_snapshot(published.resume.snapshot)
        if self._may_read.is_set():
            is_copying = published.resume.snapshot is not None
            self.state = ReaderState.SNAPSHOTTING if is_copying else ReaderState.STREAMING

    def _observe_snapshot(self, snapshot: SnapshotProgress | None) -> None:
        labels = (self.partition.source, self.partition.name)
        metrics.SNAPSHOT_RUNNING.labels(*labels).set(snapshot is not None)
        metrics.SNAPSHOT_TABLES_FINISHED.labels(*labels).set(len(snapshot.finished_tables) if snapshot else 0)
        metrics.SNAPSHOT_TABLES.labels(*labels).set(snapshot.tables if snapshot else 0)
        self.snapshot_remaining_s = None
        if snapshot is not None:
            self.snapshot_remaining_s = self._snapshot_pace.remaining_s(
                "", snapshot.rows_copied, snapshot.rows_estimated
            )
            metrics.SNAPSHOT_ROWS.labels(*labels).set(snapshot.rows_copied)
            metrics.SNAPSHOT_ROWS_ESTIMATED.labels(*labels).set(snapshot.rows_estimated)
        metrics.SNAPSHOT_REMAINING.labels(*labels).set(self.snapshot_remaining_s or 0.0)

    def _observe_incremental(self, incremental: IncrementalSnapshot) -> None:
        labels = (self.partition.source, self.partition.name)
        metrics.INCREMENTAL_TABLES.labels(*labels).set(len(incremental.tables))
        self.incremental_remaining_s = None
        if incremental.tables and not incremental.is_paused:
            copy = incremental.tables[0]
            self.incremental_remaining_s = self._incremental_pace.remaining_s(
                copy.table, copy.rows_read, copy.rows_estimated
            )
        else:
            self._incremental_pace = _Pace()
        metrics.INCREMENTAL_ROWS.labels(*labels).set(incremental.tables[0].rows_read if incremental.tables else 0)
        metrics.INCREMENTAL_REMAINING.labels(*labels).set(self.incremental_remaining_s or 0.0)

    def connecting(self) -> None:
        """The source partition is owned; its log is opened next."""
        if self.interruption is None:
            self.state = ReaderState.CONNECTING

    def interrupted(self, reason: str, *, retry_s: float) -> None:
        """Nothing is read until the next try, ``retry_s`` from now."""
        now_us = time.time_ns() // 1_000
        since_us = self.interruption.since_us if self.interruption is not None else now_us
        self.interruption = Interruption(reason, since_us, now_us + int(retry_s * 1e6))
        self.state = ReaderState.DISCONNECTED
        raise_fault(SOURCE_UNREACHABLE, self._scope, happened=reason)

    def connected(self, checkpoint: Checkpoint | None) -> None:
        """The source's log is open at ``checkpoint``."""
        self.interruption = None
        lift_fault(SOURCE_UNREACHABLE, self._scope)
        self._state_at(checkpoint)

    def halted(self, reason: str) -> None:
        """A person is needed."""
        self.halted_because = reason
        self.state = ReaderState.HALTED
        lift_fault(SOURCE_UNREACHABLE, self._scope)
        raise_fault(READER_HALTED, self._scope, happened=reason)
        metrics.HALTED.labels(self.partition.source).set(1)

    @property
    def _scope(self) -> FaultScope:
        return FaultScope(source=self.partition.source)

    def pause(self) -> None:
        """Stop handing over batches, until ``resume``."""
        self._may_read.clear()
        if self.state is not ReaderState.PAUSED:
            self._held = self.state
        self.state = ReaderState.PAUSED

    def resume(self) -> None:
        """Go on after ``pause``."""
        self._may_read.set()
        if self.state is ReaderState.PAUSED:  # else it lost its source, or halted, meanwhile
            self.state = self._held

    async def while_paused(self) -> None:
        """Wait until the reader may read."""
        await self._may_read.wait()


class _Pace:
    """How fast something is copied: since its first rows of this run of the reader, or since it went on."""

    def __init__(self) -> None:
        self._began: tuple[str, float, int] | None = None

    def remaining_s(self, what: str, rows: int, estimated: int) -> float | None:
        """Until ``estimated`` rows of ``what`` are copied; None: there is no rate or no estimate."""
        now_s = time.monotonic()
        if self._began is None or self._began[0] != what or rows < self._began[2]:  # fewer: it was begun again
            self._began = (what, now_s, rows)
        _, began_s, rows_before = self._began
        if rows <= rows_before or now_s <= began_s or not estimated:
            return None
        return max(0, estimated - rows) * (now_s - began_s) / (rows - rows_before)
