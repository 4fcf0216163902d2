"""Where a main stream is opened."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from libs.types.checkpoint import IncrementalSnapshot, SnapshotProgress
from services.vstream_reader.copy_progress import copying_shards
from services.vstream_reader.position import VitessPosition


@dataclass(frozen=True, slots=True)
class StreamStart:
    """A place, with what goes on there: each stream after the first begins at the one that the stream before it has left."""

    position: VitessPosition
    is_copying: bool
    """vtgate copies tables first."""
    progress: SnapshotProgress
    """Of that copy."""
    is_new: bool = False
    """It is not where a stream stood: it is to be published, though no row may come."""
    incremental: IncrementalSnapshot | None = None
    """The requests of signals where tasks' shards were taken up; None: they stay."""
    awaited: Mapping[int, int] = field(default_factory=dict)
    """Up to where the changes topic is routed first, by Kafka partition: the shards' former tasks have published there."""


def moved_to(position: VitessPosition, progress: SnapshotProgress) -> StreamStart:
    """The start at another place than where the stream stood."""
    return StreamStart(position, bool(copying_shards(position)), progress, is_new=True)
