"""The Kafka side: the topic of checkpoints, leases and resets, and its records."""

from typing import Final

import msgspec

from libs.events.checkpoint_codec import (
    checkpoint_key,
    decode_checkpoint,
    encode_checkpoint,
    position_from_proto,
    position_to_proto,
)
from libs.kafka.clients import TopicSpec
from libs.kafka.state_log import StateLogSpec
from libs.kafka.writer import OutgoingRecord
from libs.types.checkpoint import Checkpoint, FencingToken
from libs.types.position import SourcePartition, SourcePosition
from protos.headwater.checkpoints.v1 import checkpoint_pb2
from services.checkpoint_committer.leases import Lease
from services.checkpoint_committer.settings import CheckpointCommitterSettings

FAILPOINT: Final = "checkpoint_committer_after_lease_before_answer"

_LEASE_PREFIX: Final = b"lease/"
_RESET_PREFIX: Final = b"reset/"
RESERVED_SOURCES: Final = frozenset({"lease", "reset"})
"""No source may be called so: the keys of its checkpoints would read as leases or resets."""


class Reset(msgspec.Struct, frozen=True, kw_only=True):
    """A resume point set by hand, kept as the audit record (key ``reset/<source>/<source_partition>``)."""

    partition: SourcePartition
    position: SourcePosition | None
    """None: the partition was forgotten."""
    fencing_token: FencingToken
    reason: str
    reset_at_us: int


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """A tombstone in place of a checkpoint."""

    partition: SourcePartition


Entry = Checkpoint | Forgotten | Lease | Reset
"""A record's content."""


def topic_spec(settings: CheckpointCommitterSettings) -> TopicSpec:
    """Compacted: the newest record of each key is kept for ever.

    Checkpoints come by the second, so segments are closed and compacted by the hour: a start without the Redis view
    then reads an hour of them, not a week.
    """
    return TopicSpec(
        name=settings.topic,
        kafka_partitions=settings.kafka_partitions,
        replication_factor=settings.kafka.replication_factor,
        config={
            "cleanup.policy": "compact",
            "segment.ms": "3600000",
            "segment.bytes": str(64 * 1024 * 1024),
            "min.cleanable.dirty.ratio": "0.1",
        },
    )


def log_spec(settings: CheckpointCommitterSettings) -> StateLogSpec:
    """How the topic is written by this service; readers write their checkpoints in transactions of their own.

    Leases are known from the start on, beside a dead reader's open transaction too: without them no lease could be given or
    renewed. A grant that was never committed is taken for one that was not answered: its owner keeps it, others wait for
    its end. A reset's records have to be committed ones and are waited for by ``GetCheckpoint``.
    """
    return StateLogSpec(
        topic=settings.topic,
        transactional_id=settings.transactional_id,
        failpoint=FAILPOINT,
        is_decision=lambda key: key.startswith(_LEASE_PREFIX),
    )


def encode(entry: Entry) -> OutgoingRecord:
    """The Kafka record of ``entry``."""
    match entry:
        case Checkpoint():
            return OutgoingRecord(key=checkpoint_key(entry.partition), value=encode_checkpoint(entry))
        case Forgotten():
            return OutgoingRecord(key=checkpoint_key(entry.partition), value=None)
        case Lease():
            return OutgoingRecord(key=_LEASE_PREFIX + checkpoint_key(entry.partition), value=_encode_lease(entry))
        case Reset():
            return OutgoingRecord(key=_RESET_PREFIX + checkpoint_key(entry.partition), value=_encode_reset(entry))


def checkpoint_keys(partition: SourcePartition) -> tuple[bytes, ...]:
    """The keys of the records that together say which checkpoint of ``partition`` is in force."""
    return checkpoint_key(partition), _RESET_PREFIX + checkpoint_key(partition)


def decode(key: bytes, value: bytes | None) -> Entry | None:
    """A record's content; None for the tombstone of a lease or reset, which nobody of ours writes.

    Raises:
        ValueError, google.protobuf.message.DecodeError: the record is none of ours.
    """
    if key.startswith(_LEASE_PREFIX):
        return _decode_lease(value) if value is not None else None
    if key.startswith(_RESET_PREFIX):
        return _decode_reset(value) if value is not None else None
    if value is None:
        source, _, name = key.decode().partition("/")
        return Forgotten(partition=SourcePartition(source=source, name=name))
    return decode_checkpoint(value)


def _encode_lease(lease: Lease) -> bytes:
    return checkpoint_pb2.Lease(
        source=lease.partition.source,
        source_partition=lease.partition.name,
        owner=lease.owner,
        fencing_token=lease.fencing_token,
        granted_at_us=lease.granted_at_us,
        lease_ms=lease.lease_ms,
    ).SerializeToString()


def _decode_lease(value: bytes) -> Lease:
    message = checkpoint_pb2.Lease.FromString(value)
    return Lease(
        partition=SourcePartition(source=message.source, name=message.source_partition),
        owner=message.owner,
        fencing_token=FencingToken(message.fencing_token),
        granted_at_us=message.granted_at_us,
        lease_ms=message.lease_ms,
    )


def _encode_reset(reset: Reset) -> bytes:
    return checkpoint_pb2.CheckpointReset(
        source=reset.partition.source,
        source_partition=reset.partition.name,
        position=position_to_proto(reset.position) if reset.position is not None else None,
        fencing_token=reset.fencing_token,
        reason=reset.reason,
        reset_at_us=reset.reset_at_us,
    ).SerializeToString()


def _decode_reset(value: bytes) -> Reset:
    message = checkpoint_pb2.CheckpointReset.FromString(value)
    return Reset(
        partition=SourcePartition(source=message.source, name=message.source_partition),
        position=position_from_proto(message.position) if message.HasField("position") else None,
        fencing_token=FencingToken(message.fencing_token),
        reason=message.reason,
        reset_at_us=message.reset_at_us,
    )
