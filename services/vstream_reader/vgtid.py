"""A reader's view of VGTIDs: vtgate's form of them, and the epoch and rank that make an order of them.

Their text and records are in ``libs.source.vitess.vgtid``. Epochs follow ``VitessEpochProvider`` and ``ShardLineage`` of
Debezium's Vitess connector, with the epoch always inherited; how they differ is in docs/vitess-differences.md.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from libs.errors import PipelineHalted
from libs.source.vitess.vgtid import CURRENT, EMPTY, KeyField, KeyRow, LastKey, ShardGtid, TableLastKey, Vgtid
from protos.vitess import binlogdata_pb2, query_pb2


def local_vgtid(vgtid: Vgtid, shard: str) -> Vgtid:
    """The part of one shard."""
    return tuple(entry for entry in vgtid if entry.shard == shard)


def begins_copy(vgtid: Vgtid) -> bool:
    """A stream from here copies tables first."""
    return any(entry.gtid == EMPTY or entry.table_p_ks for entry in vgtid)


def vgtid_to_proto(vgtid: Vgtid) -> binlogdata_pb2.VGtid:
    """As vtgate takes it."""
    return binlogdata_pb2.VGtid(
        shard_gtids=[
            binlogdata_pb2.ShardGtid(
                keyspace=entry.keyspace,
                shard=entry.shard,
                gtid=entry.gtid,
                table_p_ks=[_last_key_to_proto(table) for table in entry.table_p_ks],
            )
            for entry in vgtid
        ]
    )


def shard_gtid_from_proto(message: binlogdata_pb2.ShardGtid) -> ShardGtid:
    """As vtgate sends it."""
    return ShardGtid(
        keyspace=message.keyspace,
        shard=message.shard,
        gtid=message.gtid,
        table_p_ks=tuple(_last_key_from_proto(table) for table in message.table_p_ks),
    )


def _last_key_to_proto(table: TableLastKey) -> binlogdata_pb2.TableLastPK:
    if table.lastpk is None:
        # There, and empty: vtgate copies the table from its beginning, and sends its changes before that too. Without one it
        # does not (Vitess, uvstreamer.go, shouldSendEventForTable).
        return binlogdata_pb2.TableLastPK(table_name=table.table_name, lastpk=query_pb2.QueryResult())
    return binlogdata_pb2.TableLastPK(
        table_name=table.table_name,
        lastpk=query_pb2.QueryResult(
            fields=[
                query_pb2.Field(
                    name=field.name,
                    type=field.type,
                    charset=field.charset,
                    flags=field.flags,
                )
                for field in table.lastpk.fields
            ],
            rows=[
                query_pb2.Row(lengths=[int(length) for length in row.lengths], values=_values_of(row))
                for row in table.lastpk.rows
            ],
        ),
    )


def _last_key_from_proto(message: binlogdata_pb2.TableLastPK) -> TableLastKey:
    if not message.lastpk.rows:
        return TableLastKey(table_name=message.table_name)
    return TableLastKey(
        table_name=message.table_name,
        lastpk=LastKey(
            fields=tuple(
                KeyField(
                    name=field.name,
                    type=query_pb2.Type.Name(field.type),
                    charset=field.charset,
                    flags=field.flags,
                )
                for field in message.lastpk.fields
            ),
            rows=tuple(_key_row(row) for row in message.lastpk.rows),
        ),
    )


def _key_row(row: query_pb2.Row) -> KeyRow:
    lengths = tuple(str(length) for length in row.lengths)
    try:
        return KeyRow(lengths=lengths, values=row.values.decode())
    except UnicodeDecodeError:
        return KeyRow(lengths=lengths, values_base64=base64.b64encode(row.values).decode())


def _values_of(row: KeyRow) -> bytes:
    if isinstance(row.values_base64, str):
        return base64.b64decode(row.values_base64)
    return row.values.encode() if isinstance(row.values, str) else b""


# --- one shard's GTID set ----------------------------------------------------------------------------------------------


class ShardPosition(NamedTuple):
    """The parts of a shard's GTID set that the order needs."""

    version: str
    """``MySQL56``; empty where the text names none."""
    hosts: tuple[str, ...]
    sequences: tuple[int, ...]
    """For each host, where its first run of transactions ends: Debezium's reading."""
    transactions: int
    """How many transactions the set holds."""

    @property
    def debezium_rank(self) -> int:
        """``transaction_rank`` of the transaction block: the sum of the sequences."""
        return sum(self.sequences)


def parse_shard_position(gtid: str) -> ShardPosition:
    """Read ``MySQL56/host1:1-3:7-9,host2:5``. Runs of a tagged GTID (``host:tag:1-3``) belong to ``host:tag``.

    Hosts may be any word: Vitess promises a UUID for MySQL only.

    Raises:
        ValueError: the text is no GTID set.
    """
    version, slash, text = gtid.rpartition("/")
    hosts: list[str] = []
    sequences: list[int] = []
    transactions = 0
    for group in text.split(","):
        uuid, *runs = group.strip().split(":")
        host = uuid
        for run in runs:
            first, dash, last = run.partition("-")
            if not first.isdigit():  # a tag: the rest is counted by itself
                host = f"{uuid}:{run}"
                continue
            end = int(last) if dash else int(first)
            transactions += end - int(first) + 1
            if not hosts or hosts[-1] != host:
                hosts.append(host)
                sequences.append(end)
    if not hosts:
        raise ValueError(f"{gtid!r} is no GTID set")
    return ShardPosition(version if slash else "", tuple(hosts), tuple(sequences), transactions)


def newest_transactions(gtid: str) -> Mapping[str, int]:
    """Of each host (``host:tag`` where it is tagged) of a GTID set its newest transaction; nothing where there is no set.

    >>> newest_transactions("MySQL56/a:1-3:7-9,b:5")
    {'a': 9, 'b': 5}
    """
    newest: dict[str, int] = {}
    for group in gtid.rpartition("/")[2].split(","):
        uuid, *runs = group.strip().split(":")
        host = uuid
        for run in runs:
            first, dash, last = run.partition("-")
            if first.isdigit():
                newest[host] = int(last) if dash else int(first)
            else:
                host = f"{uuid}:{run}"
    return newest


# --- epochs ------------------------------------------------------------------------------------------------------------


def shard_epoch(epoch: int, previous: str, current: str) -> int:
    """The epoch of a shard that went from one GTID set to another: one more when a host of the previous set is gone,
    or when the shard had no place in the log before.

    Raises:
        PipelineHalted: the shard lost its place; reset the source.
    """
    if previous in (CURRENT, EMPTY):
        return epoch if current in (CURRENT, EMPTY) else epoch + 1
    if current in (CURRENT, EMPTY):
        raise PipelineHalted(
            f"vtgate sent the GTID {current!r} for a shard that stood at {previous}: no order can be made of it; "
            "headwater reset SOURCE copies the tables again"
        )
    try:
        before, after = parse_shard_position(previous), parse_shard_position(current)
    except ValueError as error:
        raise PipelineHalted(f"vtgate sent a position that cannot be read: {error}") from error
    return epoch if set(before.hosts) <= set(after.hosts) else epoch + 1


def inherited_epoch(shard: str, epochs: Mapping[str, int]) -> int:
    """The epoch of a new shard: one more than the greatest of the shards that its key range overlaps; 0 without any.

    >>> inherited_epoch("-40", {"-80": 3, "80-": 7})
    4
    """
    return 1 + max((epoch for other, epoch in epochs.items() if overlap(shard, other)), default=-1)


def next_epochs(
    epochs: Mapping[str, int], previous: Iterable[ShardGtid], current: Sequence[ShardGtid]
) -> dict[str, int]:
    """The epoch of every shard of ``current``, from those of ``previous``.

    Raises:
        PipelineHalted: a shard of ``previous`` has no epoch, or as ``shard_epoch``.
    """
    before = {entry.shard: entry.gtid for entry in previous}
    after: dict[str, int] = {}
    for entry in current:
        if entry.shard not in before:
            after[entry.shard] = inherited_epoch(entry.shard, epochs)
        elif entry.shard not in epochs:
            raise PipelineHalted(
                f"shard {entry.shard} has a position but no epoch in the checkpoint: headwater reset copies again"
            )
        else:
            after[entry.shard] = shard_epoch(epochs[entry.shard], before[entry.shard], entry.gtid)
    return after


def overlap(one: str, other: str) -> bool:
    """Key ranges share a key. Bounds are hexadecimal fractions: they compare as texts (Vitess, "Sharding", key ranges)."""
    one_begin, one_end = _key_range(one)
    other_begin, other_end = _key_range(other)
    return (not other_end or one_begin < other_end) and (not one_end or other_begin < one_end)


def lies_within(one: str, others: Iterable[str]) -> bool:
    """Every key of ``one`` is in one of the others.

    >>> lies_within("40-80", ["-80"]), lies_within("40-c0", ["-80", "80-"]), lies_within("-80", ["-40", "60-"])
    (True, True, False)
    """
    reached, end = _key_range(one)
    for other_begin, other_end in sorted(map(_key_range, others)):
        if other_begin <= reached and (not other_end or reached < other_end):
            if not other_end or "" < end <= other_end:
                return True
            reached = other_end
    return False


def _key_range(shard: str) -> tuple[str, str]:
    """Begin and end; an empty one is open. A name without a hyphen (``0``) is the whole range."""
    begin, hyphen, end = shard.lower().partition("-")
    return (begin, end) if hyphen else ("", "")
