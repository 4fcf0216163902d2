"""Every source partition as the process knows it: its checkpoint, its lease, its newest reset.

The state of the gRPC service. It changes in ``apply`` only, which the log calls once for each record.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import structlog
from google.protobuf.message import DecodeError

from libs.kafka.tail import LogRecord
from libs.telemetry.metrics import CHECKPOINT_AGE, CHECKPOINTS, CHECKPOINTS_REFUSED
from libs.types.checkpoint import Checkpoint, FencingToken
from libs.types.position import SourcePartition
from services.checkpoint_committer import log as kafka_log
from services.checkpoint_committer.judge import NOTHING_READ, Advance, Fenced, Stale, Standing, judge
from services.checkpoint_committer.leases import Holding, Lease, begin
from services.checkpoint_committer.log import Entry, Forgotten, Reset

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One source partition."""

    standing: Standing = NOTHING_READ
    holding: Holding | None = None
    reset: Reset | None = None

    @property
    def newest_token(self) -> FencingToken:
        """The greatest token ever seen; a takeover grants the next one."""
        checkpoint = self.standing.checkpoint
        seen = (
            self.standing.oldest_token,
            checkpoint.fencing_token if checkpoint is not None else 0,
            self.holding.lease.fencing_token if self.holding is not None else 0,
        )
        return FencingToken(max(seen))


class Partitions:
    """See the module."""

    def __init__(self) -> None:
        self._states: dict[SourcePartition, PartitionState] = {}
        self._changed: set[SourcePartition] = set()

    def apply(self, record: LogRecord) -> None:
        """Take one record of the log in."""
        try:
            entry = kafka_log.decode(record.key, record.value)
        except (ValueError, DecodeError) as error:
            log.error(
                "checkpoint_undecodable",
                kafka_partition=record.kafka_partition,
                offset=record.offset,
                reason=str(error),
            )
            return
        if entry is None:
            return
        partition = entry.partition
        self._states[partition] = _applied(self.state(partition), entry)
        self._changed.add(partition)

    def state(self, partition: SourcePartition) -> PartitionState:
        """The state of ``partition``; an empty one where it is not known."""
        return self._states.get(partition, PartitionState())

    def checkpoints(self) -> list[Checkpoint]:
        """Every checkpoint in force, by source partition."""
        found = [state.standing.checkpoint for _, state in sorted(self._states.items(), key=lambda item: str(item[0]))]
        return [checkpoint for checkpoint in found if checkpoint is not None]

    def entries(self) -> list[Entry]:
        """Everything that is in force, as entries that lead to this state again; resets first."""
        return entries_of(self._states)

    def take_changed(self) -> Mapping[SourcePartition, PartitionState]:
        """Those that changed since the last call."""
        changed, self._changed = self._changed, set()
        return {partition: self._states[partition] for partition in changed}

    def put_back(self, changed: Iterable[SourcePartition]) -> None:
        """The changes of ``take_changed`` were not used: give them again next time."""
        self._changed.update(changed)

    def measure(self, now_us: int) -> None:
        """Bring the gauges that grow with time up to date."""
        for partition, state in self._states.items():
            if state.standing.checkpoint is not None:
                age_s = (now_us - state.standing.checkpoint.published_at_us) / 1e6
                CHECKPOINT_AGE.labels(partition.source, partition.name).set(max(0.0, age_s))

    def __len__(self) -> int:
        return len(self._states)


def entries_of(states: Mapping[SourcePartition, PartitionState]) -> list[Entry]:
    """The records in force in ``states``; resets first, so that they are known when checkpoints are judged."""
    resets: Iterable[Entry] = (state.reset for state in states.values() if state.reset is not None)
    leases: Iterable[Entry] = (state.holding.lease for state in states.values() if state.holding is not None)
    checkpoints: Iterable[Entry] = (
        state.standing.checkpoint for state in states.values() if state.standing.checkpoint is not None
    )
    return [*resets, *leases, *checkpoints]


def _applied(state: PartitionState, entry: Entry) -> PartitionState:
    match entry:
        case Checkpoint():
            return _judged(state, entry)
        case Forgotten():
            return replace(state, standing=replace(state.standing, checkpoint=None))
        case Lease():
            return _leased(state, entry)
        case Reset():
            return _reset(state, entry)


def _judged(state: PartitionState, proposed: Checkpoint) -> PartitionState:
    labels = (proposed.partition.source, proposed.partition.name)
    match judge(state.standing, proposed):
        case Advance(checkpoint):
            CHECKPOINTS.labels(*labels).inc()
            return replace(state, standing=replace(state.standing, checkpoint=checkpoint))
        case Fenced(newest_token=newest_token):
            CHECKPOINTS_REFUSED.labels(*labels, "fenced").inc()
            log.warning(
                "checkpoint_refused",
                source=labels[0],
                source_partition=labels[1],
                reason="fenced",
                fencing_token=proposed.fencing_token,
                newest_token=newest_token,
            )
        case Stale():
            CHECKPOINTS_REFUSED.labels(*labels, "stale").inc()
            log.warning(
                "checkpoint_refused",
                source=labels[0],
                source_partition=labels[1],
                reason="stale",
                order=proposed.order.sort_key(),
            )
    return state


def _leased(state: PartitionState, lease: Lease) -> PartitionState:
    if state.holding is not None and lease.fencing_token < state.holding.lease.fencing_token:
        return state
    return replace(state, holding=begin(lease, time.monotonic()))


def _reset(state: PartitionState, reset: Reset) -> PartitionState:
    checkpoint = state.standing.checkpoint
    if reset.fencing_token < state.standing.oldest_token:
        return state
    is_overruled = checkpoint is not None and checkpoint.fencing_token < reset.fencing_token
    return replace(
        state,
        standing=Standing(None if is_overruled else checkpoint, reset.fencing_token),
        reset=reset,
    )
