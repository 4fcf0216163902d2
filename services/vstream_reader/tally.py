"""A stream's content, counted by shard and by table, and its metrics.

Decoders count into one ``StreamTally`` for as long as the process runs, through reshards, second streams and lost connections:
a few additions for each transaction and group of rows. ``TallyMetrics`` puts the counts into the metrics once in a while,
because a keyspace may have hundreds of shards. Shards that are gone take their metrics with them, and tables beyond
``_MOST_TABLES`` share one name.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from libs.source.port import ShardProgress
from libs.telemetry import metrics
from services.vstream_reader.vgtid import newest_transactions

_EXPORT_INTERVAL_S: Final = 0.5
_MOST_TABLES: Final = 500
_OTHER_TABLES: Final = "(others)"
_OF_SHARDS: Final = (
    metrics.READER_SHARD_COMMITTED,
    metrics.READER_SHARD_LAG,
    metrics.READER_SHARD_POSITION,
    metrics.READER_SHARD_EPOCH,
    metrics.READER_SHARD_TRANSACTIONS,
    metrics.READER_SHARD_ROWS,
    metrics.READER_SHARD_COPYING,
    metrics.READER_SHARD_COPIED_ROWS,
)


@dataclass(slots=True)
class ShardTally:
    """The counts of one shard."""

    transactions: int = 0
    rows: int = 0
    rows_copied: int = 0
    committed_at_us: int = 0
    """Of the newest transaction; 0: none came yet."""
    lag_us: int = 0
    """From its commit to its reading."""


@dataclass(slots=True)
class TableTally:
    """The counts of one table."""

    changed: int = 0
    copied: int = 0


@dataclass(slots=True)
class StreamTally:
    """The counts of all."""

    shards: dict[str, ShardTally] = field(default_factory=dict)
    tables: dict[str, TableTally] = field(default_factory=dict)
    filtered_events: int = 0
    """ROW events of tables that are not captured."""

    def of_shard(self, shard: str) -> ShardTally:
        """The tally to count into."""
        return self.shards.setdefault(shard, ShardTally())

    def of_table(self, table: str) -> TableTally:
        """The tally to count into."""
        if table not in self.tables and len(self.tables) >= _MOST_TABLES:
            table = _OTHER_TABLES
        return self.tables.setdefault(table, TableTally())


class TallyMetrics:
    """Exports one source partition's tally."""

    def __init__(self, labels: tuple[str, str], tally: StreamTally) -> None:
        self._labels = labels
        self._tally = tally
        self._exported = StreamTally()
        self._shown: set[str] = set()
        self._servers: dict[str, Set[str]] = {}
        """By shard: those that have a metric."""
        self._due_s = 0.0

    def is_due(self, now_s: float) -> bool:
        """Whether it was not exported for a while."""
        return now_s >= self._due_s

    def report(self, shards: Sequence[ShardProgress], now_s: float) -> None:
        """Bring the metrics to where ``shards`` and the tally stand."""
        self._due_s = now_s + _EXPORT_INTERVAL_S
        for shard in shards:
            self._report_shard(shard)
        current = {shard.shard for shard in shards}
        for gone in self._shown - current:
            for metric in _OF_SHARDS:
                metric.remove(*self._labels, gone)
            self._report_servers(gone, {})
            self._tally.shards.pop(gone, None)
            self._exported.shards.pop(gone, None)
        self._shown = current
        metrics.READER_SHARDS.labels(*self._labels).set(len(shards))
        metrics.READER_SHARDS_ENDED.labels(*self._labels).set(sum(shard.is_ended for shard in shards))
        for table, tally in self._tally.tables.items():
            self._report_table(table, tally)
        filtered = self._tally.filtered_events
        metrics.READER_FILTERED.labels(*self._labels).inc(filtered - self._exported.filtered_events)
        self._exported.filtered_events = filtered

    def _report_shard(self, shard: ShardProgress) -> None:
        labels, exported = (*self._labels, shard.shard), self._exported.of_shard(shard.shard)
        if shard.committed_at_us:
            metrics.READER_SHARD_COMMITTED.labels(*labels).set(shard.committed_at_us // 1_000_000)
            metrics.READER_SHARD_LAG.labels(*labels).set(shard.lag_s)
        metrics.READER_SHARD_POSITION.labels(*labels).set(shard.rank)
        metrics.READER_SHARD_EPOCH.labels(*labels).set(shard.epoch)
        metrics.READER_SHARD_TRANSACTIONS.labels(*labels).inc(shard.transactions - exported.transactions)
        metrics.READER_SHARD_ROWS.labels(*labels).inc(shard.rows - exported.rows)
        metrics.READER_SHARD_COPYING.labels(*labels).set(shard.is_copying)
        metrics.READER_SHARD_COPIED_ROWS.labels(*labels).inc(shard.rows_copied - exported.rows_copied)
        exported.transactions, exported.rows, exported.rows_copied = shard.transactions, shard.rows, shard.rows_copied
        self._report_servers(shard.shard, newest_transactions(shard.position))

    def _report_servers(self, shard: str, newest: Mapping[str, int]) -> None:
        for gone in self._servers.pop(shard, frozenset()) - newest.keys():
            metrics.READER_SHARD_SERVER_TRANSACTIONS.remove(*self._labels, shard, gone)
        if newest:
            self._servers[shard] = newest.keys()
        for server, number in newest.items():
            metrics.READER_SHARD_SERVER_TRANSACTIONS.labels(*self._labels, shard, server).set(number)

    def _report_table(self, table: str, tally: TableTally) -> None:
        exported = self._exported.of_table(table)
        for kind, count, before in (
            ("changed", tally.changed, exported.changed),
            ("copied", tally.copied, exported.copied),
        ):
            if count > before:
                metrics.READER_TABLE_ROWS.labels(*self._labels, table, kind).inc(count - before)
        exported.changed, exported.copied = tally.changed, tally.copied
