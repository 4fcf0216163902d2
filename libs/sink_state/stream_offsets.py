"""Where a micro-batch ends in its topics, by Spark's checkpoint.

Spark keeps one file a micro-batch: ``offsets/N`` is written before batch N runs, ``commits/N`` when it is done (Structured
Streaming guide, "Recovery Semantics"); the third line of ``offsets/N`` holds the offsets. Where a query began stands in the
second line of ``sources/0/0``, written before its first batch.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

StreamOffsets = Mapping[str, Mapping[int, int]]
"""By topic and Kafka partition: after the last record of the batch."""


def offsets_path(state_dir: Path, tenant: str, batch_id: int) -> Path:
    """The file of one batch of a tenant's query."""
    return state_dir / "checkpoints" / tenant / "offsets" / str(batch_id)


def load_stream_offsets(state_dir: Path, tenant: str, batch_id: int) -> StreamOffsets:
    """Where a batch of a tenant's query ends. Raises FileNotFoundError, and as ``decode_stream_offsets``."""
    return decode_stream_offsets(offsets_path(state_dir, tenant, batch_id).read_bytes())


def load_earlier_offsets(state_dir: Path, tenant: str, batch_id: int) -> StreamOffsets:
    """Where the batch before ends; empty where there is none that is known. Raises as ``decode_stream_offsets``."""
    try:
        return load_stream_offsets(state_dir, tenant, batch_id - 1)
    except FileNotFoundError:
        return {}


def load_begins(state_dir: Path, tenant: str, batch_id: int) -> StreamOffsets:
    """Where a batch of a tenant's query begins; of a Kafka partition that is not there it is the first, and has all of it.

    Raises FileNotFoundError, and as ``decode_stream_offsets``.
    """
    if batch_id > 0:
        return load_stream_offsets(state_dir, tenant, batch_id - 1)
    begin = state_dir / "checkpoints" / tenant / "sources" / "0" / "0"
    return _decoder.decode(begin.read_bytes().splitlines()[1])


def decode_stream_offsets(content: bytes) -> StreamOffsets:
    """Decode Spark's bytes there. Raises msgspec.DecodeError, or IndexError, for others."""
    return _decoder.decode(content.splitlines()[2])


_decoder = msgspec.json.Decoder(dict[str, dict[int, int]])


def joined_offsets(*offsets: Mapping[int, int], choose: Callable[[int, int], int]) -> dict[int, int]:
    """The least or the greatest of each Kafka partition."""
    joined: dict[int, int] = {}
    for part in offsets:
        for partition, offset in part.items():
            joined[partition] = choose(joined.get(partition, offset), offset)
    return joined
