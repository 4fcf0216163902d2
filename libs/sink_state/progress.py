"""How far the sink got: of each tenant a file, of each table a record in it.

The sink writes it after each micro-batch; ``headwater status``, ``check`` and ``resync`` read it.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from libs.sink_state.deleted_range import DeletedRange

# Buckets grow by 5%: a quantile read from them is at most that far off.
_FIRST_BUCKET_S: Final = 0.001
_GROWTH: Final = 1.05


class LatencyHistogram(msgspec.Struct, frozen=True, kw_only=True):
    """How long live changes took from the source's commit to the warehouse's."""

    counts: Mapping[int, int] = msgspec.field(default_factory=dict)
    """Changes by bucket; bucket ``n`` ends at 1 ms * 1.05**n."""

    def plus(self, latencies_s: Mapping[float, int]) -> "LatencyHistogram":
        """With the changes of one batch added: how many took how long."""
        counts = dict(self.counts)
        for latency_s, changes in latencies_s.items():
            bucket = max(0, math.ceil(math.log(max(latency_s, _FIRST_BUCKET_S) / _FIRST_BUCKET_S, _GROWTH)))
            counts[bucket] = counts.get(bucket, 0) + changes
        return LatencyHistogram(counts=counts)

    def quantile_s(self, share: float) -> float | None:
        """The time within which ``share`` (0 to 1) of the changes arrived; None: no live change was seen."""
        total, seen = sum(self.counts.values()), 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= share * total:
                return float(_FIRST_BUCKET_S * _GROWTH**bucket)
        return None


class ParkedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that a human must see to; the tenant's other tables go on, and nothing of this one is lost.

    Its events stay in Kafka. The job reads ``from_offsets`` to ``to_offsets`` again when it is due.
    """

    because: str
    """Ends with the remedy."""
    from_offsets: Mapping[int, int]
    """By Kafka partition: the first event that was not applied."""
    to_offsets: Mapping[int, int]
    """By Kafka partition: after the last event that was passed over."""
    copies_from: Mapping[int, int] = {}
    """By Kafka partition: rows of a copy that stand before are in the table. Where tables move together, events of transactions
    that a cut held back may lie before such rows and join the waiting ones, but those rows do not."""
    is_catching_up: bool = False
    """The cause is removed, and waiting events are read piece by piece: no person has to act."""
    piece_offsets: int = 0
    """How many records the next piece has, about. Settled a batch before: one that comes again, under other settings too, reads
    the piece that the table has of it. 0: by the settings."""

    @property
    def waiting_offsets(self) -> int:
        """How many records wait in Kafka, at most."""
        return sum(end - self.from_offsets.get(partition, 0) for partition, end in self.to_offsets.items())


class ReachedPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The newest change of one source partition that a table has taken in, of those whose place in the source is known."""

    source_partition: str
    """The shards that a VGTID names, joined by ``,``; else empty."""
    order: str
    """Its sort key."""
    position: Mapping[str, str | int]
    """Where the source's log has it, by the names of the event's source block (``gtid``, ``file``, ``pos``, ``vgtid`` …)."""


def newest_positions(known: Iterable[ReachedPosition], found: Iterable[ReachedPosition]) -> tuple[ReachedPosition, ...]:
    """Of each source partition the newest, by name. A late or repeated change sets none back."""
    newest: dict[str, ReachedPosition] = {}
    for each in (*known, *found):
        if (before := newest.get(each.source_partition)) is None or each.order >= before.order:
            newest[each.source_partition] = each
    return tuple(newest[name] for name in sorted(newest))


class TableFiles(msgspec.Struct, frozen=True, kw_only=True):
    """A table's size in its warehouse."""

    bytes: int
    data_files: int | None = None
    """None: the warehouse keeps no files of a table's own."""
    delete_files: int | None = None
    """Files that say which rows of others are gone, deletion vectors too: each read opens them."""


class TableTimings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of one table's part of a micro-batch went, in seconds. Tables overlap in time."""

    rows: int = 0
    prepare_s: float = 0.0
    """Whether the table holds the batch already; its columns."""
    write_s: float = 0.0
    """Parse, keep the latest of each key, merge and commit: Spark does these as one. The next three are its parts, as Spark's
    stages report them; None: they did not."""
    dedupe_s: float | None = None
    """Reading keys and keeping the latest change of each; 0 where one stage did this and the merge."""
    merge_s: float | None = None
    """Parsing, and joining with the table's rows and writing files, or copying into PostgreSQL's stages."""
    commit_s: float | None = None
    """From the end of the last file on; in PostgreSQL the transaction, which merges there. Of tables that move together all but
    the showing."""
    maintain_s: float = 0.0


def table_phases(timings: TableTimings) -> dict[str, float | None]:
    """By name, in the order in which they come; without the batch's own."""
    return {
        "prepare": timings.prepare_s,
        "dedupe": timings.dedupe_s,
        "merge": timings.merge_s,
        "commit": timings.commit_s,
        "maintain": timings.maintain_s,
    }


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A warehouse's facts about a table: its identity, and the batch of its rows."""

    id: str = ""
    """Another one where somebody made the table again; empty: the warehouse has none that lasts."""
    batch: str = ""
    """Identity of the newest batch of its rows, also after other commits; empty: it holds none, or none is noted."""


class TableProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the sink got with one table."""

    topic: str
    source: str
    table: str
    """``database.table`` at the source."""
    warehouse_table: str
    """``<tenant>.<source>.<database>.<table>`` in the catalog."""
    rows: int = 0
    """Changes committed."""
    order: str = ""
    """Sort key of the newest change committed; empty: none yet."""
    committed_at_us: int = 0
    """When the source committed that change; microseconds since 1970."""
    positions: tuple[ReachedPosition, ...] = ()
    """By source partition."""
    written_at_us: int = 0
    """When the warehouse did."""
    last: TableTimings = TableTimings()
    """Its part of the newest batch that it was in."""
    files: TableFiles | None = None
    """After that batch; None: the warehouse does not know."""
    maintained_at_us: int = 0
    """When its files were last rewritten, expired or cleaned; 0: not since the job's first start."""
    ignored: tuple[str, ...] = ()
    """The source's changes that the tenant's policies do not deliver."""
    parked_keys: int = 0
    """Keys whose events are set aside, because the warehouse refused one (``libs.sink_state.parked_keys``)."""
    dead_letters: int = 0
    """Events of those keys that are set aside."""
    parked: ParkedTable | None = None
    deleted: tuple[DeletedRange, ...] = ()
    """Of a mirror, oldest first: where an older event that comes late finds that its row is gone."""
    truncated_order: str = ""
    """Of a mirror: sort key of the newest TRUNCATE that it has taken in; empty: none."""
    topic_id: str = ""
    """Kafka's own of the topic that its events came from; empty: none is known."""
    standing: Standing = Standing()
    """As the sink left it."""

    @property
    def needs_a_human(self) -> bool:
        """Whether it is parked, and not catching up."""
        return self.parked is not None and not self.parked.is_catching_up


class Try(msgspec.Struct, frozen=True, kw_only=True):
    """The try of a parked table, or of one that was parked by it; it is perhaps in the warehouse."""

    query_id: str
    batch_id: int
    """Of the micro-batch; with the query's id the identity that the warehouse would have it under."""
    offsets: Mapping[int, int]
    """By Kafka partition of the table's topic, as the commit carries them."""
    ends: Mapping[int, int]
    """By Kafka partition: after the last record that was read for it."""
    becomes: TableProgress
    """The table's progress, should the warehouse have it."""


class BatchTimings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of one micro-batch went, in seconds."""

    read_s: float = 0.0
    """From Kafka into memory, and which tables are in it."""
    show_s: float = 0.0
    """Showing all tables at once; 0 where they do not move together."""
    rows: int = 0
    total_s: float = 0.0


class SinkProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the sink got with one tenant: the file ``<state_dir>/progress/<tenant>.json``, replaced whole."""

    tenant: str
    query_id: str = ""
    batch_id: int = -1
    """Of the newest micro-batch committed."""
    written_at_us: int = 0
    rows: int = 0
    tables: Mapping[str, TableProgress] = msgspec.field(default_factory=dict)
    """By topic."""
    tries: Mapping[str, Try] = {}
    """By topic, of parked tables: tries with unasked results."""
    latency: LatencyHistogram = LatencyHistogram()
    """Of live changes since the tenant's first; snapshot rows are not counted."""
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    last_batch: BatchTimings = BatchTimings()
    halted_because: str | None = None
    """Not None: the tenant's query stands still and a human is needed; ends with the remedy."""

    @property
    def parked_topics(self) -> frozenset[str]:
        """Those of tables of which something waits."""
        return frozenset(topic for topic, table in self.tables.items() if table.parked is not None)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(SinkProgress)


_positions_decoder = msgspec.json.Decoder(tuple[ReachedPosition, ...])


def encode_positions(positions: tuple[ReachedPosition, ...]) -> bytes:
    """As commits carry them."""
    return _encoder.encode(positions)


def decode_positions(text: str | bytes) -> tuple[ReachedPosition, ...]:
    """Decode the bytes of ``encode_positions``. Raises msgspec.DecodeError for others."""
    return _positions_decoder.decode(text)


def encode_sink_progress(progress: SinkProgress) -> bytes:
    """The progress file's content."""
    return _encoder.encode(progress)


def decode_sink_progress(content: bytes) -> SinkProgress:
    """Decode the bytes of ``encode_sink_progress``. Raises msgspec.DecodeError for others."""
    return _decoder.decode(content)
