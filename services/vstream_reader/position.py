"""The VStream reader's source position: a VGTID, the epoch of each shard, and what a running copy has finished."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from libs.events.position_codec import PositionCodec
from libs.source.vitess.vgtid import EMPTY, ShardGtid, TableLastKey, Vgtid
from libs.types.checkpoint import NO_INCREMENTAL, IncrementalSnapshot
from libs.types.position import SourcePosition

SOURCE_KIND: Final = "vitess"


class LetGo(msgspec.Struct, frozen=True, kw_only=True):
    """Shards of a task that it reads no more, since a reshard joins them with shards of other tasks (``reshard``)."""

    journal_id: int
    ended: tuple[str, ...]
    """Every shard that the journal ends, the other tasks' too."""
    vgtid: Vgtid = ()
    """Where the task left its own ones: each before its journal."""
    epochs: Mapping[str, int] = msgspec.field(default_factory=dict)
    copied: Mapping[str, tuple[TableLastKey, ...]] = msgspec.field(default_factory=dict)
    """As in a position."""
    incremental: IncrementalSnapshot = NO_INCREMENTAL
    """What the task had been asked for, and how far its signals were followed, when it let them go."""


class VitessPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Token of a SourcePosition."""

    vgtid: Vgtid
    epochs: Mapping[str, int] = msgspec.field(default_factory=dict)
    """``EventOrder.epoch`` of each shard."""
    copied: Mapping[str, tuple[TableLastKey, ...]] = msgspec.field(default_factory=dict)
    """Of each shard whose tables are being copied: the last key of every table, finished ones too. vtgate forgets a table that
    is finished, and would copy it again for a client that resumes. Of a shard that has met no row yet: nothing."""
    taken_over_by: str = ""
    """The source partition of a later generation that reads these shards now; then nobody goes on from here."""
    let_go: tuple[LetGo, ...] = ()
    """Shards that wait for the task that takes them up."""
    taken_up: tuple[int, ...] = ()
    """Journals whose shards this task took up, while another still lists them."""


_codec = PositionCodec(SOURCE_KIND, VitessPosition)
_encoder = msgspec.json.Encoder()
decode_position = _codec.decode
position_of = _codec.encode


def encode_position(
    shards: Sequence[bytes],
    epochs: Mapping[str, int],
    copied: Mapping[str, Mapping[str, TableLastKey]],
    *,
    let_go: Sequence[LetGo] = (),
    taken_up: Sequence[int] = (),
) -> SourcePosition:
    """The position as everybody else carries it; ``shards`` are JSON already, one ShardGtid each."""
    token = b'{"vgtid":[%b],"epochs":%b' % (b",".join(shards), _encoder.encode(epochs))
    if copied:
        token += b',"copied":' + _encoder.encode({shard: tuple(tables.values()) for shard, tables in copied.items()})
    if let_go:
        token += b',"let_go":' + _encoder.encode(let_go)
    if taken_up:
        token += b',"taken_up":' + _encoder.encode(taken_up)
    return _codec.of_token(token + b"}")


def resume_vgtid(vgtid: Vgtid, copied: Mapping[str, Sequence[TableLastKey]]) -> Vgtid:
    """What to ask vtgate for: the place reached, and for a copy that goes on the last key of every table.

    A table that is finished is asked for behind its last key: rows that came after it are copied, none again.
    """
    found = []
    for entry in vgtid:
        keys = _united(copied.get(entry.shard, ()), entry.table_p_ks)
        # Without any key vtgate would take a place for the end of the copy; but no row of the shard has come.
        gtid = EMPTY if entry.shard in copied and not keys else entry.gtid
        found.append(ShardGtid(keyspace=entry.keyspace, shard=entry.shard, gtid=gtid, table_p_ks=keys))
    return tuple(found)


def _united(known: Sequence[TableLastKey], newest: Sequence[TableLastKey]) -> tuple[TableLastKey, ...]:
    tables = {table.table_name: table for table in (*known, *newest)}
    return tuple(tables[name] for name in sorted(tables))
