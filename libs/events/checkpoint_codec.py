"""Checkpoints, leases and their parts: records in the process, protobuf on the wire.

Readers write ``encode_checkpoint`` into their own Kafka transactions under ``checkpoint_key``; checkpoint_committer
reads them back. ``libs/rpc`` uses the same conversions for gRPC.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from libs.types.checkpoint import (
    Checkpoint,
    FencingToken,
    FinishedCopy,
    IncrementalSnapshot,
    KeptFault,
    RangeProgress,
    SnapshotProgress,
    TableCopy,
)
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from protos.headwater.checkpoints.v1 import checkpoint_pb2


def checkpoint_key(partition: SourcePartition) -> bytes:
    """Kafka key of a source partition's checkpoint in ``headwater.checkpoints``."""
    return str(partition).encode()


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The Kafka value of ``checkpoint``."""
    return checkpoint_to_proto(checkpoint).SerializeToString()


def decode_checkpoint(value: bytes) -> Checkpoint:
    """The checkpoint that ``encode_checkpoint`` wrote.

    Raises:
        google.protobuf.message.DecodeError: ``value`` is no Checkpoint.
        ValueError: its rank is no decimal number.
    """
    return checkpoint_from_proto(checkpoint_pb2.Checkpoint.FromString(value))


def checkpoint_to_proto(checkpoint: Checkpoint) -> checkpoint_pb2.Checkpoint:
    """The wire form of ``checkpoint``."""
    return checkpoint_pb2.Checkpoint(
        source=checkpoint.partition.source,
        source_partition=checkpoint.partition.name,
        position=position_to_proto(checkpoint.position),
        order=order_to_proto(checkpoint.order),
        fencing_token=checkpoint.fencing_token,
        committed_at_us=checkpoint.committed_at_us,
        published_at_us=checkpoint.published_at_us,
        rows_published=checkpoint.rows_published,
        snapshot=snapshot_to_proto(checkpoint.snapshot) if checkpoint.snapshot is not None else None,
        incremental=incremental_to_proto(checkpoint.incremental),
        starts_over=checkpoint.starts_over,
        changes_topic_id=checkpoint.changes_topic_id,
        faults=[checkpoint_pb2.KeptFault(**msgspec.structs.asdict(each)) for each in checkpoint.faults],
    )


def checkpoint_from_proto(message: checkpoint_pb2.Checkpoint) -> Checkpoint:
    """The checkpoint that ``message`` carries. Raises ValueError where its rank is no decimal number."""
    return Checkpoint(
        partition=SourcePartition(source=message.source, name=message.source_partition),
        position=position_from_proto(message.position),
        order=order_from_proto(message.order),
        fencing_token=FencingToken(message.fencing_token),
        committed_at_us=message.committed_at_us,
        published_at_us=message.published_at_us,
        rows_published=message.rows_published,
        snapshot=snapshot_from_proto(message.snapshot) if message.HasField("snapshot") else None,
        incremental=incremental_from_proto(message.incremental),
        starts_over=message.starts_over,
        changes_topic_id=message.changes_topic_id,
        faults=tuple(
            KeptFault(id=each.id, table=each.table, happened=each.happened, since_us=each.since_us)
            for each in message.faults
        ),
    )


def position_to_proto(position: SourcePosition) -> checkpoint_pb2.SourcePosition:
    """The wire form of ``position``."""
    return checkpoint_pb2.SourcePosition(source_kind=position.source_kind, token=position.token)


def position_from_proto(message: checkpoint_pb2.SourcePosition) -> SourcePosition:
    """The position that ``message`` carries."""
    return SourcePosition(source_kind=message.source_kind, token=message.token)


def order_to_proto(order: EventOrder) -> checkpoint_pb2.EventOrder:
    """The wire form of ``order``; the rank travels as text because it may exceed 64 bits."""
    return checkpoint_pb2.EventOrder(epoch=order.epoch, rank=str(order.rank), tx_ordinal=order.tx_ordinal)


def order_from_proto(message: checkpoint_pb2.EventOrder) -> EventOrder:
    """The order that ``message`` carries; an empty rank is 0. Raises ValueError for a rank that is no number."""
    return EventOrder(epoch=message.epoch, rank=int(message.rank or 0), tx_ordinal=message.tx_ordinal)


def snapshot_to_proto(snapshot: SnapshotProgress) -> checkpoint_pb2.SnapshotProgress:
    """The wire form of ``snapshot``."""
    return checkpoint_pb2.SnapshotProgress(
        finished_tables=snapshot.finished_tables,
        current_table=snapshot.current_table,
        last_key=snapshot.last_key,
        rows_copied=snapshot.rows_copied,
        rows_estimated=snapshot.rows_estimated,
        tables=snapshot.tables,
        ranges=[checkpoint_pb2.RangeProgress(**msgspec.structs.asdict(each)) for each in snapshot.ranges],
    )


def snapshot_from_proto(message: checkpoint_pb2.SnapshotProgress) -> SnapshotProgress:
    """The progress that ``message`` carries."""
    return SnapshotProgress(
        finished_tables=tuple(message.finished_tables),
        current_table=message.current_table,
        last_key=message.last_key,
        rows_copied=message.rows_copied,
        rows_estimated=message.rows_estimated,
        tables=message.tables,
        ranges=tuple(
            RangeProgress(table=each.table, last_key=each.last_key, until=each.until) for each in message.ranges
        ),
    )


def incremental_to_proto(incremental: IncrementalSnapshot) -> checkpoint_pb2.IncrementalSnapshot:
    """The wire form of ``incremental``."""
    return checkpoint_pb2.IncrementalSnapshot(
        tables=[checkpoint_pb2.TableCopy(**msgspec.structs.asdict(copy)) for copy in incremental.tables],
        is_paused=incremental.is_paused,
        signals_offset=incremental.signals_offset,
        signals_topic_id=incremental.signals_topic_id,
        finished=[checkpoint_pb2.FinishedCopy(**msgspec.structs.asdict(copy)) for copy in incremental.finished],
    )


def incremental_from_proto(message: checkpoint_pb2.IncrementalSnapshot) -> IncrementalSnapshot:
    """The state that ``message`` carries."""
    return IncrementalSnapshot(
        tables=tuple(TableCopy(**_fields(copy, TableCopy.__struct_fields__)) for copy in message.tables),
        is_paused=message.is_paused,
        signals_offset=message.signals_offset if message.HasField("signals_offset") else None,
        signals_topic_id=message.signals_topic_id,
        finished=tuple(FinishedCopy(**_fields(copy, FinishedCopy.__struct_fields__)) for copy in message.finished),
    )


def _fields(copy: checkpoint_pb2.TableCopy | checkpoint_pb2.FinishedCopy, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(copy, name) for name in names} | {"for_tenants": tuple(copy.for_tenants)}
