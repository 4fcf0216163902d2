"""How a tenant's tables move together (``sink.consistency: transaction``): the sink's memory between micro-batches.

The file ``<state_dir>/consistency/<tenant>.json`` belongs to the Spark checkpoint beside it, as the parked keys do.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from libs.types.warehouse import WarehouseTable

Offsets = Mapping[str, Mapping[int, int]]
"""By topic and Kafka partition."""


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """Which events a micro-batch takes in: those of transactions that are whole."""

    query_id: str = ""
    batch_id: int = -1
    until: str | None = None
    """Sort-key prefix (``sort_key_prefix``) of the first transaction that waits; None: none does. Snapshot rows never wait."""
    released: Offsets = {}
    """From where on events waited when the batch began, which takes them up; empty: none did, or they wait on."""
    held: Offsets = {}
    """From where on they wait after it."""
    oldest_held: str = ""
    """Prefix of the oldest transaction that waits after it; empty: none does."""
    newest_held: str = ""
    publishing: tuple[WarehouseTable, ...] = ()
    """Tables whose rows are written, and are to be shown together; empty: that is done."""


def cut_path(state_dir: Path, tenant: str) -> Path:
    """The file of one tenant."""
    return state_dir / "consistency" / f"{tenant}.json"


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Cut)


def encode_cut(cut: Cut) -> bytes:
    """The file's content."""
    return _encoder.encode(cut)


def decode_cut(content: bytes) -> Cut:
    """Decode the bytes of ``encode_cut``. Raises msgspec.DecodeError for others."""
    return _decoder.decode(content)
