"""How far micro-batches read on after Spark's own end: the sink's memory from one to the next.

The file ``<state_dir>/read-ahead/<tenant>.json`` belongs to the Spark checkpoint beside it, as the parked keys do.
"""

from pathlib import Path

import msgspec

from libs.sink_state.stream_offsets import StreamOffsets


class ReadAhead(msgspec.Struct, frozen=True, kw_only=True):
    """A micro-batch's events of topics in which it, or an earlier one, read on. Of others it holds those that were dealt to
    it."""

    query_id: str = ""
    batch_id: int = -1
    from_offsets: StreamOffsets = {}
    """The first event that no batch before has taken in."""
    to_offsets: StreamOffsets = {}
    """After the last one; of the same topics and Kafka partitions."""


def read_ahead_path(state_dir: Path, tenant: str) -> Path:
    """The file of one tenant."""
    return state_dir / "read-ahead" / f"{tenant}.json"


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ReadAhead)


def encode_read_ahead(ahead: ReadAhead) -> bytes:
    """The file's content."""
    return _encoder.encode(ahead)


def decode_read_ahead(content: bytes) -> ReadAhead:
    """Decode the bytes of ``encode_read_ahead``. Raises msgspec.DecodeError for others."""
    return _decoder.decode(content)
