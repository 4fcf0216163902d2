"""Keys of a tenant's tables that the warehouse refused an event of: later events of them wait, so that order holds.

The sink keeps them in ``<state_dir>/parked-keys/<tenant>.json``, beside the Spark checkpoint that they belong to: both say what
of the topics has been taken up, and are backed up and thrown away together. ``headwater status`` and ``dead-letter`` read
the file.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec


class ParkedKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key, by the event of it that was refused."""

    event_key: str
    """As the event's record has it, JSON; empty: it has none, and nothing waits after it."""
    reason: str
    """The mistake, with the remedy; never a row's values."""
    kafka_partition: int
    offset: int
    """Where in the table's topic the refused event stands."""
    order: str
    """Its sort key."""
    parked_at_us: int
    """Microseconds since 1970."""
    last_offset: int
    """Of the newest event that was set aside."""
    letters: int = 1
    """Events that were set aside: the refused one and the later ones of its key."""


class ReplayAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a ``ReplayRequest``; in force once the progress file holds ``batch_id``."""

    batch_id: int
    keys: int
    """How many it met."""
    refused: int = 0
    """How many of those stay parked: their events were refused again."""


class ParkedKeysOfTable(msgspec.Struct, frozen=True, kw_only=True):
    """One table's."""

    keys: Mapping[str, ParkedKey] = {}
    """By the key's values, as ``spark.transforms.key_text`` writes them."""
    released: Mapping[str, ParkedKey] = {}
    """Those that batch ``released_by`` takes up again: parked still, should it come again."""
    released_by: int = -1
    answers: Mapping[str, ReplayAnswer] = {}
    """By the request's id; the newest ones."""


class TenantParkedKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The file's content."""

    tenant: str
    query_id: str = ""
    """Of the streaming query that parked them; a query that begins again reads their events again."""
    tables: Mapping[str, ParkedKeysOfTable] = {}
    """By topic."""


def parked_keys_path(state_dir: Path, tenant: str) -> Path:
    """The file of one tenant."""
    return state_dir / "parked-keys" / f"{tenant}.json"


def encode_parked_keys(keys: TenantParkedKeys) -> bytes:
    """The file's content."""
    return _encoder.encode(keys)


def decode_parked_keys(content: bytes) -> TenantParkedKeys:
    """Decode the bytes of ``encode_parked_keys``. Raises msgspec.DecodeError for others."""
    return _decoder.decode(content)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(TenantParkedKeys)
