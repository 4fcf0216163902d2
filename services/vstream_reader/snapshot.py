"""The request for vtgate: where a stream begins, which tables it has, and which of them are copied first.

The copy itself is vtgate's (VStream copy): in key order, with the changes of rows already copied sent between its chunks.
Its progress is in every position (``position``), so that a copy goes on where it stopped.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
import structlog

from libs.errors import SourceMisconfigured
from libs.mysql.identifiers import quote_identifier
from libs.source.vitess.settings import StreamSettings, TabletType
from libs.source.vitess.vgtid import CURRENT, EARLIEST, EMPTY, ShardGtid, parse_vgtid
from libs.types.checkpoint import IncrementalSnapshot
from libs.types.table import TableId
from protos.vitess import binlogdata_pb2, topodata_pb2, vtgate_pb2
from services.vstream_reader.position import VitessPosition, resume_vgtid
from services.vstream_reader.reshard import lost
from services.vstream_reader.settings import COPIES_NOTHING, VstreamReaderSettings
from services.vstream_reader.tasks import shards_to_copy
from services.vstream_reader.vgtid import begins_copy, vgtid_to_proto

log = structlog.get_logger()

_TABLET_TYPES: Final = {
    TabletType.PRIMARY: topodata_pb2.PRIMARY,
    TabletType.REPLICA: topodata_pb2.REPLICA,
    TabletType.RDONLY: topodata_pb2.RDONLY,
}
_EXCLUDED: Final = "exclude"
"""A rule's filter that leaves its tables out (Vitess, ``vstreamer``, ``ExcludeStr``)."""


def capture_filter(settings: VstreamReaderSettings) -> Callable[[TableId], bool]:
    """Whether a table is captured, by the settings' regular expressions."""
    return _matcher(settings.include_tables, settings.exclude_tables)


def _matcher(include: Iterable[str], exclude: Iterable[str] = ()) -> Callable[[TableId], bool]:
    included, excluded = [re.compile(p) for p in include], [re.compile(p) for p in exclude]
    known: dict[TableId, bool] = {}

    def is_matched(table_id: TableId) -> bool:
        if table_id not in known:
            name = str(table_id)
            known[table_id] = any(pattern.fullmatch(name) for pattern in included) and not any(
                pattern.fullmatch(name) for pattern in excluded
            )
        return known[table_id]

    return is_matched


def first_position(settings: VstreamReaderSettings, shards: Sequence[str]) -> VitessPosition:
    """Where a source begins that was never read; an empty GTID has its tables copied."""
    vgtid = start_vgtid(settings, shards) if settings.start_vgtid else _beginnings(settings, shards)
    return VitessPosition(vgtid=vgtid, epochs={entry.shard: 0 for entry in vgtid})


def _beginnings(settings: VstreamReaderSettings, shards: Sequence[str]) -> tuple[ShardGtid, ...]:
    gtid = CURRENT if settings.snapshot.mode in COPIES_NOTHING else EMPTY
    return tuple(ShardGtid(keyspace=settings.keyspace, shard=shard, gtid=gtid) for shard in shards)


def position_of_new_copy(
    settings: VstreamReaderSettings, position: VitessPosition, serving: Sequence[str]
) -> VitessPosition:
    """The beginning of another copy of everything that was read to ``position``; of a source that copies nothing, of now on.

    The epochs go on, so its rows win over all before. Shards that were joined with other tasks' are followed to their
    journals: the shards after them are copied then.
    """
    shards, joined = shards_to_copy(settings.tasks, position, serving)
    newest = max(position.epochs.values(), default=0)
    places = {entry.shard: entry for entry in position.vgtid}
    copied = _beginnings(settings, shards)
    followed = tuple(msgspec.structs.replace(places[shard], table_p_ks=()) for shard in joined)
    return VitessPosition(
        vgtid=(*copied, *followed),
        epochs={entry.shard: position.epochs.get(entry.shard, newest) for entry in (*copied, *followed)},
        copied=dict.fromkeys(joined, ()),
        let_go=position.let_go,
        taken_up=position.taken_up,
        deal=position.deal,
    )


def begun_without_log(
    settings: VstreamReaderSettings, position: VitessPosition, asked: IncrementalSnapshot, serving: Sequence[str]
) -> VitessPosition:
    """The same where the log after ``position`` may be gone: shards that were joined with other tasks' are let go for good, and
    task 0 copies what became of them (``reshard``). ``asked``: the signals' pending requests."""
    _, joined = shards_to_copy(settings.tasks, position, serving)
    if joined:
        log.warning("shards_lost", shards=joined, remedy="see that task 0 runs: it copies what they became")
    return position_of_new_copy(settings, lost(position, joined, asked), serving)


def start_vgtid(settings: VstreamReaderSettings, shards: Sequence[str]) -> tuple[ShardGtid, ...]:
    """``settings.start_vgtid`` for ``shards``; an entry without a shard stands for all that have none of their own.

    Raises:
        SourceMisconfigured: it names no place of a shard; nobody would read it.
    """
    text = settings.start_vgtid.strip()
    if not text.startswith("["):
        gtid = EMPTY if text == EARLIEST else text
        return tuple(ShardGtid(keyspace=settings.keyspace, shard=shard, gtid=gtid) for shard in shards)
    entries = {entry.shard: entry for entry in parse_vgtid(text)}
    if "" in entries:
        entries = {**{shard: msgspec.structs.replace(entries[""], shard=shard) for shard in shards}, **entries}
    if lacking := [shard for shard in shards if shard not in entries]:
        raise SourceMisconfigured(
            f"start_vgtid names no place of shard {', '.join(lacking)} of keyspace {settings.keyspace}; its shards are "
            f"{', '.join(sorted(entries))}: add an entry for each, or name in 'shards' those that are to be read"
        )
    return tuple(entries[shard] for shard in shards)


def is_copy_due(position: VitessPosition) -> bool:
    """A stream from ``position`` copies tables first."""
    return begins_copy(position.vgtid)


def stream_request(
    settings: VstreamReaderSettings, position: VitessPosition, *, tables_to_copy: Sequence[str] = ()
) -> vtgate_pb2.VStreamRequest:
    """The stream from ``position`` on; ``tables_to_copy`` empty: a copy is of all its tables."""
    stream = settings.stream
    return vtgate_pb2.VStreamRequest(
        tablet_type=_TABLET_TYPES[stream.tablet_type],
        vgtid=vgtid_to_proto(resume_vgtid(position.vgtid, position.copied)),
        filter=stream_filter(settings.keyspace, settings.include_tables, settings.exclude_tables),
        flags=_flags(stream, tables_to_copy),
    )


def recopy_request(
    settings: VstreamReaderSettings, position: VitessPosition, table: str, condition: str
) -> vtgate_pb2.VStreamRequest:
    """A second stream, which copies one table, or its rows that meet an SQL condition, and has nothing else."""
    request = stream_request(settings, position)
    selected = f"select * from {quote_identifier(table)} where {condition}" if condition else ""
    request.filter.CopyFrom(binlogdata_pb2.Filter(rules=[binlogdata_pb2.Rule(match=table, filter=selected)]))
    return request


def _flags(stream: StreamSettings, tables_to_copy: Sequence[str]) -> vtgate_pb2.VStreamFlags:
    return vtgate_pb2.VStreamFlags(
        minimize_skew=stream.minimize_skew,
        heartbeat_interval=stream.heartbeat_interval_s,
        stop_on_reshard=stream.stop_on_reshard,
        cells=",".join(stream.cells),
        cell_preference=stream.cell_preference.value if stream.cell_preference is not None else "",
        tablet_order=stream.tablet_order.value if stream.tablet_order is not None else "",
        stream_keyspace_heartbeats=stream.stream_keyspace_heartbeats,
        # With any setting: without the journal nobody knows where the new shards begin until they change, nor a task which
        # shards are to be joined.
        include_reshard_journal_events=True,
        tables_to_copy=tables_to_copy,
        exclude_keyspace_from_table_name=stream.exclude_keyspace_from_table_name,
    )


def stream_filter(keyspace: str, include: Sequence[str], exclude: Sequence[str]) -> binlogdata_pb2.Filter:
    """The rules by which vtgate chooses tables; they may let more through than the patterns, never less.

    vtgate matches a table's name without its keyspace, so a pattern is passed on where it plainly begins with the keyspace.
    The rules are for tables to come too: one that is created later is captured at once when its name matches.
    """
    everything = binlogdata_pb2.Filter(rules=[binlogdata_pb2.Rule(match="/.*")])
    included = [_table_pattern(keyspace, pattern) for pattern in include]
    if None in included:
        return everything
    excluded = [_table_pattern(keyspace, pattern) for pattern in exclude]
    rules = [binlogdata_pb2.Rule(match=pattern, filter=_EXCLUDED) for pattern in excluded if pattern is not None]
    rules += [binlogdata_pb2.Rule(match=pattern) for pattern in included if pattern is not None]
    return binlogdata_pb2.Filter(rules=rules)


# Syntax that Python and Go (RE2) read alike; look-arounds and back-references are Python's own.
_SHARED_SYNTAX: Final = re.compile(r"(?:[A-Za-z0-9_$.*+?|\[\]()-]|\\[.$])+")


def _table_pattern(keyspace: str, pattern: str) -> str | None:
    """The part of a pattern that is a table's, as vtgate takes it; None: the two cannot be separated.

    A plain name too is sent as an expression: a copy fails at a name that no table has (yet), at an expression it does not
    (Vitess, ``vstreamer/uvstreamer.go``, ``buildTablePlan``).
    """
    for prefix in (f"{re.escape(keyspace)}\\.", f"{keyspace}\\.", f"{keyspace}."):
        if pattern.startswith(prefix):
            table = pattern.removeprefix(prefix)
            if _SHARED_SYNTAX.fullmatch(table) and "(?" not in table:
                return f"/^(?:{table})$"
    return None


def chosen_tables(settings: VstreamReaderSettings, tables: Iterable[str]) -> tuple[str, ...]:
    """Of a keyspace's tables those that are captured."""
    is_captured = capture_filter(settings)
    return tuple(sorted(t for t in tables if is_captured(TableId(database=settings.keyspace, table=t))))


def copied_tables(settings: VstreamReaderSettings, captured: Sequence[str]) -> tuple[str, ...]:
    """Of the captured tables those whose rows are copied; empty: all of them.

    Raises:
        SourceMisconfigured: none is; vtgate would copy all.
    """
    patterns = settings.snapshot.include_tables
    is_copied = _matcher(patterns)
    chosen = tuple(t for t in captured if is_copied(TableId(database=settings.keyspace, table=t)))
    if not chosen:
        raise SourceMisconfigured(
            f"no captured table of keyspace {settings.keyspace} matches snapshot.include_tables ({', '.join(patterns)}): "
            "correct the pattern (it must match keyspace.table), or copy nothing with snapshot.mode: no_data"
        )
    return () if len(chosen) == len(captured) else chosen
