"""VGTIDs as text: where each shard of a keyspace stands.

A VGTID is a list of shards, each with its GTID set and, while tables are being copied, the last primary key of each. It is
written as Debezium's Vitess connector writes it (``Vgtid``, ``TablePrimaryKeys``), so that a position can be carried from the
one to the other.
"""

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

CURRENT: Final = "current"
"""Instead of a GTID set: from now on."""
EMPTY: Final = ""
"""Instead of a GTID set: copy the tables first."""
EARLIEST: Final = "earliest"
"""The settings' word for EMPTY."""


class KeyField(msgspec.Struct, frozen=True, kw_only=True):
    """One column of a primary key."""

    name: str
    type: str
    """Name of the ``query.Type``."""
    charset: int = 0
    flags: int = 0


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A primary key's values, one after the other."""

    lengths: tuple[str, ...]
    values: str | UnsetType = UNSET
    values_base64: str | UnsetType = UNSET
    """Instead of ``values`` where they are no UTF-8 (a BINARY key): Debezium loses such values."""


class LastKey(msgspec.Struct, frozen=True, kw_only=True):
    """The last primary key that was copied."""

    fields: tuple[KeyField, ...] = ()
    rows: tuple[KeyRow, ...] = ()


class TableLastKey(msgspec.Struct, frozen=True, kw_only=True):
    """How far one table's copy got."""

    table_name: str
    lastpk: LastKey | None = None
    """None: it was begun, and no row has come."""


class ShardGtid(msgspec.Struct, frozen=True, kw_only=True):
    """Where one shard stands."""

    keyspace: str
    shard: str = ""
    gtid: str = ""
    """``MySQL56/`` and a GTID set; ``current``; or empty."""
    table_p_ks: tuple[TableLastKey, ...] = ()

    @property
    def is_place(self) -> bool:
        """It names a place in the log."""
        return self.gtid not in (CURRENT, EMPTY)


Vgtid = tuple[ShardGtid, ...]
"""One for each shard."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Vgtid)


def parse_vgtid(text: str | bytes) -> Vgtid:
    """The VGTID that ``format_vgtid``, or Debezium, wrote.

    Raises:
        ValueError: the text is no VGTID; says where.
    """
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"is no VGTID ({error})") from error


def format_vgtid(vgtid: Vgtid) -> str:
    """The VGTID as Debezium writes it.

    >>> format_vgtid((ShardGtid(keyspace="ks", shard="-80", gtid="MySQL56/a:1-10"),))
    '[{"keyspace":"ks","shard":"-80","gtid":"MySQL56/a:1-10","table_p_ks":[]}]'
    """
    return _encoder.encode(vgtid).decode()
