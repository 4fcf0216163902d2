"""The VStream reader's source position: a VGTID, the epoch of each shard, and the finished part of a running copy."""

from collections.abc import Mapping, Sequence, Set
from typing import Final

import msgspec

from libs.events.position_codec import PositionCodec
from libs.source.vitess.vgtid import EMPTY, ShardGtid, TableLastKey, Vgtid
from libs.types.checkpoint import NO_INCREMENTAL, IncrementalSnapshot
from libs.types.position import SourcePosition

SOURCE_KIND: Final = "vitess"


class LetGo(msgspec.Struct, frozen=True, kw_only=True):
    """Shards of a task that it reads no more, because a reshard joins them with shards of other tasks (``reshard``)."""

    journal_id: int
    ended: tuple[str, ...]
    """Every shard that the journal ends, the other tasks' too."""
    vgtid: Vgtid = ()
    """Where the task left its own ones: each before its journal."""
    epochs: Mapping[str, int] = msgspec.field(default_factory=dict)
    copied: Mapping[str, tuple[TableLastKey, ...]] = msgspec.field(default_factory=dict)
    """As in a position."""
    incremental: IncrementalSnapshot = NO_INCREMENTAL
    """The task's pending requests, and how far its signals were followed, when it released them."""
    is_lost: bool = False
    """Their log is purged: nobody reads on there, and the serving shards are copied. ``journal_id`` is below 0 then, for
    no journal was met, and ``ended`` has the task's own ones alone."""


class Deal(msgspec.Struct, frozen=True, kw_only=True):
    """The shards that the tasks of a keyspace began with: those that task 0 found when it dealt them, for all tasks
    (``tasks``)."""

    beginnings: Vgtid
    """Where each shard begins; sorted by name."""
    executed: Mapping[str, str]
    """Where each one stood then, as a VGTID says it: before anything of it was read, and before the journal that ends it."""


class VitessPosition(msgspec.Struct, frozen=True, kw_only=True):
    """Token of a SourcePosition."""

    vgtid: Vgtid
    epochs: Mapping[str, int] = msgspec.field(default_factory=dict)
    """``EventOrder.epoch`` of each shard."""
    copied: Mapping[str, tuple[TableLastKey, ...]] = msgspec.field(default_factory=dict)
    """Of each shard whose tables are being copied: the last key of every table that was begun, finished ones too. vtgate
    forgets a table that is finished, and would copy it again for a client that resumes. Without any table: nothing of the shard
    is copied, because a reshard ends it; its log is followed up to the journal, and the shards after it are copied."""
    taken_over_by: str = ""
    """The source partition of a later generation that reads these shards now; then nobody goes on from here."""
    was_reset: bool = False
    """Of one that was taken over: a person had reset it, so its shards are copied again."""
    let_go: tuple[LetGo, ...] = ()
    """Shards that wait for the task that takes them up."""
    taken_up: tuple[int, ...] = ()
    """Journals whose shards this task took up, while another still lists them."""
    deal: Deal | None = None
    """Of task 0, until every other has begun."""


_codec = PositionCodec(SOURCE_KIND, VitessPosition)
_encoder = msgspec.json.Encoder()
decode_position = _codec.decode
position_of = _codec.encode


def encode_position(
    shards: Sequence[bytes],
    epochs: Mapping[str, int],
    copied: Mapping[str, tuple[TableLastKey, ...]],
    *,
    let_go: Sequence[LetGo] = (),
    taken_up: Sequence[int] = (),
    deal: Deal | None = None,
) -> SourcePosition:
    """The position as everybody else carries it; ``shards`` are JSON already, one ShardGtid each."""
    token = b'{"vgtid":[%b],"epochs":%b' % (b",".join(shards), _encoder.encode(epochs))
    if copied:
        token += b',"copied":' + _encoder.encode(copied)
    if let_go:
        token += b',"let_go":' + _encoder.encode(let_go)
    if taken_up:
        token += b',"taken_up":' + _encoder.encode(taken_up)
    if deal is not None:
        token += b',"deal":' + _encoder.encode(deal)
    return _codec.of_token(token + b"}")


def resume_vgtid(vgtid: Vgtid, copied: Mapping[str, Sequence[TableLastKey]]) -> Vgtid:
    """The request for vtgate: the place reached, and for a copy that goes on the last key of every table.

    A table that is finished is asked for after its last key: rows that came after it are copied, none again. One of which no
    row had come is copied from its beginning, after the changes that came to it.
    """
    return tuple(
        msgspec.structs.replace(entry, table_p_ks=_united(copied.get(entry.shard, ()), entry.table_p_ks))
        for entry in vgtid
    )


def followed_to_its_end(position: VitessPosition, shard: str, gtid: str) -> VitessPosition:
    """The position with a shard that a reshard ended before any of it was copied: from ``gtid`` on, its log is followed."""
    (before,) = [entry for entry in position.vgtid if entry.shard == shard]
    is_copied = before.gtid == EMPTY or shard in position.copied or bool(before.table_p_ks)
    after = ShardGtid(keyspace=before.keyspace, shard=shard, gtid=gtid)
    return msgspec.structs.replace(
        position,
        vgtid=tuple(after if entry is before else entry for entry in position.vgtid),
        copied={**position.copied, shard: ()} if is_copied else position.copied,
    )


def begun_again(position: VitessPosition, shards: Set[str]) -> VitessPosition:
    """The position with the copy of these shards at its beginning: no row of them has come.

    A shard that gets its first place enters the next epoch (``vgtid.shard_epoch``): that shall be the one it was in.
    """
    placed = {entry.shard for entry in position.vgtid if entry.is_place and entry.shard in shards}
    return msgspec.structs.replace(
        position,
        epochs={shard: epoch - (shard in placed) for shard, epoch in position.epochs.items()},
        vgtid=tuple(
            msgspec.structs.replace(entry, gtid=EMPTY, table_p_ks=()) if entry.shard in placed else entry
            for entry in position.vgtid
        ),
        copied={shard: keys for shard, keys in position.copied.items() if shard not in shards},
    )


def _united(known: Sequence[TableLastKey], newest: Sequence[TableLastKey]) -> tuple[TableLastKey, ...]:
    tables = {table.table_name: table for table in (*known, *newest)}
    return tuple(tables[name] for name in sorted(tables))
