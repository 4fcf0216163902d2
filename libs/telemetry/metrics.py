"""Every metric of Headwater: its name, its meaning, and the remedy when it rises.

The one place that names metrics. Units stand in the names (Prometheus, "Metric and label naming"). Services import
the constants and call ``.labels(...).inc()``; ``make docs-metrics`` writes ``docs/metrics.md`` from ``CATALOGUE``.
Labels never hold row values, keys or transaction ids: only names of sources, tenants, tables and hops.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client import Counter, Gauge, Histogram


class Area(enum.Enum):
    """The service that a metric is about."""

    READER = "every reader"
    VSTREAM = "vstream_reader"
    DTS = "dts_decoder"
    LOGMINER = "logminer_reader"
    ROUTER = "router"
    SCHEMA_HISTORY = "schema_history"
    CHECKPOINT_COMMITTER = "checkpoint_committer"
    SINK = "spark"
    TENANT_OPERATOR = "tenant_operator"
    CHECK = "headwater check"
    EVERY_SERVICE = "every service"


@dataclass(frozen=True, slots=True)
class MetricDoc:
    """What ``docs/metrics.md`` says of one metric."""

    name: str
    kind: str
    area: Area
    labels: tuple[str, ...]
    meaning: str
    remedy: str


CATALOGUE: list[MetricDoc] = []
"""Every metric below, in the order of this module."""

_PARTITION = ("source", "source_partition")
# One Kafka transaction takes 12-27 ms when all is well; 30 s is the publish time-out.
_TRANSACTION_BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
# A MERGE takes seconds on a small machine; above five minutes the trigger cannot be held by any setting.
_MERGE_BUCKETS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0)

_PHASE_BUCKETS_S = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0, 60.0, 300.0)


def _note(area: Area, kind: str, name: str, labels: Sequence[str], meaning: str, remedy: str) -> str:
    CATALOGUE.append(MetricDoc(name, kind, area, tuple(labels), meaning, remedy))
    return f"{meaning} {remedy}"


def _counter(area: Area, name: str, meaning: str, remedy: str, labels: Sequence[str] = ()) -> Counter:
    return Counter(name, _note(area, "counter", name, labels, meaning, remedy), labels)


def _gauge(area: Area, name: str, meaning: str, remedy: str, labels: Sequence[str] = ()) -> Gauge:
    return Gauge(name, _note(area, "gauge", name, labels, meaning, remedy), labels)


def _histogram(
    area: Area, name: str, meaning: str, remedy: str, buckets: Sequence[float], labels: Sequence[str] = ()
) -> Histogram:
    return Histogram(name, _note(area, "histogram", name, labels, meaning, remedy), labels, buckets=buckets)


# --- reader ---------------------------------------------------------------------------------------------------------

READER_ROWS = _counter(
    Area.READER,
    "headwater_reader_rows_total",
    "Row events published, snapshot rows included.",
    "Flat while the source is written to: see headwater_reader_lag_seconds and the log's last line.",
    _PARTITION,
)
READER_BYTES = _counter(
    Area.READER,
    "headwater_reader_bytes_total",
    "Bytes of source log read, before decoding.",
    "Grows while headwater_reader_rows_total stands: the log is full of tables that nobody captures.",
    _PARTITION,
)
READER_TRANSACTIONS = _counter(
    Area.READER,
    "headwater_reader_transactions_total",
    "Source transactions published whole.",
    "No remedy: its rate is the source's own.",
    _PARTITION,
)
READER_LAG = _gauge(
    Area.READER,
    "headwater_reader_lag_seconds",
    "Seconds between now and the commit, at the source, of the newest transaction published; 0 when caught up.",
    "Rising at a busy source: the reader's CPU is the limit, split the source. Rising at a quiet one: the connection "
    "or Kafka is away, see headwater_publish_transaction_seconds.",
    _PARTITION,
)
READER_SHARD_COMMITTED = _gauge(
    Area.VSTREAM,
    "headwater_reader_shard_committed_timestamp_seconds",
    "When the newest transaction that was read of a Vitess shard was committed there, in seconds since 1970.",
    "time() minus this is the shard's lag. One shard with a far greater lag: its tablet lags, or its writes are more than one "
    "stream carries; see tasks (docs/vitess.md).",
    (*_PARTITION, "shard"),
)
READER_SHARD_LAG = _gauge(
    Area.VSTREAM,
    "headwater_reader_shard_lag_seconds",
    "Seconds between the commit of the newest transaction that was read of a Vitess shard and its reading.",
    "One shard with a far greater lag: its tablet lags; all of them: the reader's CPU is the limit, see tasks "
    "(docs/vitess.md).",
    (*_PARTITION, "shard"),
)
READER_SHARD_POSITION = _gauge(
    Area.VSTREAM,
    "headwater_reader_shard_position_transactions",
    "How many transactions a Vitess shard's position holds (its rank); the position itself is in `headwater status --json`.",
    "Standing still while the shard is written to: its stream is stuck; the reader opens it again by itself.",
    (*_PARTITION, "shard"),
)
READER_SHARD_EPOCH = _gauge(
    Area.VSTREAM,
    "headwater_reader_shard_epoch",
    "Epoch of a Vitess shard's events: it grows by a reshard, and when the shard's GTID set loses a host.",
    "Rising without a reshard: somebody resets the logs of its tablets.",
    (*_PARTITION, "shard"),
)
READER_SHARD_TRANSACTIONS = _counter(
    Area.VSTREAM,
    "headwater_reader_shard_transactions_total",
    "Transactions with captured rows that were read of a Vitess shard.",
    "No remedy: its rate is the shard's own.",
    (*_PARTITION, "shard"),
)
READER_SHARD_ROWS = _counter(
    Area.VSTREAM,
    "headwater_reader_shard_rows_total",
    "Rows that were read of a Vitess shard, copied ones included; those read again after a lost connection count again.",
    "One shard far above the others: its key range is hot; split it.",
    (*_PARTITION, "shard"),
)
READER_SHARD_SERVER_TRANSACTIONS = _gauge(
    Area.VSTREAM,
    "headwater_reader_shard_server_transactions",
    "The last VGTID of a Vitess shard, as numbers: the newest transaction of each MySQL server (its UUID) in its GTID set.",
    "Compare with `SELECT @@gtid_executed` of the shard's primary. A new server: the shard was reparented.",
    (*_PARTITION, "shard", "server_uuid"),
)
READER_SHARD_COPYING = _gauge(
    Area.VSTREAM,
    "headwater_reader_shard_copying",
    "1 while tables of a Vitess shard are being copied, by the initial snapshot or since a signal asked for it, else 0.",
    "One shard at 1 for long after the others: its tables are larger, or its tablet is slow; see "
    "headwater_reader_shard_copied_rows_total.",
    (*_PARTITION, "shard"),
)
READER_SHARD_COPIED_ROWS = _counter(
    Area.VSTREAM,
    "headwater_reader_shard_copied_rows_total",
    "Rows of a Vitess shard that were copied, initially or since a signal asked for it; by table it is "
    "headwater_reader_table_rows_total.",
    "Standing while headwater_reader_shard_copying is 1: the shard's tablet waits, for a table's lock or its own lag.",
    (*_PARTITION, "shard"),
)
READER_SHARDS = _gauge(
    Area.VSTREAM,
    "headwater_reader_shards",
    "Shards that are read as one source partition.",
    "Changes by a reshard, or with the number of tasks; else nothing to do.",
    _PARTITION,
)
READER_SHARDS_ENDED = _gauge(
    Area.VSTREAM,
    "headwater_reader_ended_shards",
    "Shards that came to the journal of a running reshard and wait for the others that end there.",
    "Above 0 for longer than the slowest shard's lag: that shard's stream is stuck.",
    _PARTITION,
)
READER_TABLE_ROWS = _counter(
    Area.VSTREAM,
    "headwater_reader_table_rows_total",
    "Rows read of a table: `copied`, or `changed` in the stream. At most 500 tables, the others share one name.",
    "No remedy: it shows which tables make the traffic, and how far a copy is.",
    (*_PARTITION, "table", "kind"),
)
READER_FILTERED = _counter(
    Area.VSTREAM,
    "headwater_reader_filtered_events_total",
    "Row events of tables that are not captured, which vtgate sent all the same.",
    "Many: write include_tables so that vtgate can follow them: keyspace, a dot, and plain names or simple patterns.",
    _PARTITION,
)
READER_QUEUE_ANSWERS = _gauge(
    Area.VSTREAM,
    "headwater_reader_queue_answers",
    "Answers of vtgate that were received and not decoded yet.",
    "At headwater_reader_queue_capacity_answers all the time: decoding is the limit, see tasks (docs/vitess.md).",
    _PARTITION,
)
READER_QUEUE_ANSWERS_CAPACITY = _gauge(
    Area.VSTREAM,
    "headwater_reader_queue_capacity_answers",
    "How many such answers are held at most; then vtgate waits.",
    "No remedy: it is fixed.",
    _PARTITION,
)
READER_QUEUE_BYTES = _gauge(
    Area.VSTREAM,
    "headwater_reader_queue_bytes",
    "Bytes of those answers.",
    "Large: rows of megabytes; vtgate.max_message_bytes bounds one answer.",
    _PARTITION,
)
READER_QUEUE_BYTES_CAPACITY = _gauge(
    Area.VSTREAM,
    "headwater_reader_queue_capacity_bytes",
    "How many bytes they may have at most: as many answers as are held, of vtgate.max_message_bytes each.",
    "More than the process may use: lower vtgate.max_message_bytes to the size of the largest row.",
    _PARTITION,
)
READER_RESHARDS = _counter(
    Area.VSTREAM,
    "headwater_reader_reshards_total",
    "How often shards of a Vitess keyspace were replaced by others under a running stream.",
    "Nothing to do: reshards are followed; the log names the shards.",
    _PARTITION,
)
READER_LAST_EVENT = _gauge(
    Area.READER,
    "headwater_reader_last_event_timestamp_seconds",
    "When row events were last published, in seconds since 1970.",
    "time() minus this is large: nothing captured changes, or the reader is stuck; see headwater_reader_connected.",
    _PARTITION,
)
READER_CONNECTED = _gauge(
    Area.READER,
    "headwater_reader_connected",
    "1 while the replication connection to the source stands, else 0.",
    "At 0 for longer than a minute: network, credentials, or the source is down; the log names which.",
    _PARTITION,
)
READER_RECONNECTS = _counter(
    Area.READER,
    "headwater_reader_reconnects_total",
    "Times the replication connection was opened again after a loss.",
    "Rising steadily: two readers with one server_id throw each other out, or the network drops idle connections.",
    _PARTITION,
)
READER_SCHEMA_CHANGES = _counter(
    Area.READER,
    "headwater_reader_schema_changes_total",
    "DDL statements of captured tables met in the log.",
    "A storm of them: somebody migrates; expect new columns at the tenants.",
    _PARTITION,
)
READER_UNSEEN_ROW_CHANGES = _counter(
    Area.READER,
    "headwater_reader_unseen_row_changes_total",
    "Captured tables met in statements that change rows of which the log has none: partitions and tablespaces that go or come, "
    "ALTERs that round or cut values or add computed ones, tables renamed into the capture.",
    "Any at all: `rows_changed_unseen` in the reader's log names table and statement. Tenants' tables keep removed rows: "
    "`headwater resync TENANT TABLE` builds them again.",
    _PARTITION,
)
READER_QUARANTINED_TABLES = _gauge(
    Area.READER,
    "headwater_reader_quarantined_tables",
    "Tables whose rows are passed over because the log could not be read rightly with the schema that is known of them.",
    "`headwater status` has the reason (in the log: `table_quarantined`): mend it, then signal an execute-snapshot of it.",
    _PARTITION,
)
READER_SET_ASIDE = _counter(
    Area.READER,
    "headwater_reader_set_aside_total",
    "Rows (of DTS: messages and entries too) that could not be decoded and were left out, by the setting failure_handling.",
    "Any at all: read the reader's log or headwater.dead-letter.<source>, repair the rows, snapshot the table again.",
    (*_PARTITION, "handling"),
)
ORACLE_WINDOWS = _counter(
    Area.LOGMINER,
    "headwater_oracle_windows_total",
    "Windows of redo that LogMiner has given whole.",
    "Standing still: `window_broke_off` or `log_awaited` in the reader's log says why.",
    _PARTITION,
)
ORACLE_DONE_SCN = _gauge(
    Area.LOGMINER,
    "headwater_oracle_done_scn",
    "SCN below which every commit is delivered, exact below 2^53.",
    "Standing still while the source's CURRENT_SCN grows: see headwater_oracle_windows_total.",
    _PARTITION,
)
ORACLE_MINED_FROM_SCN = _gauge(
    Area.LOGMINER,
    "headwater_oracle_mined_from_scn",
    "SCN from which a reader that starts again mines. Logs from there on have to stay at the source.",
    "Far below headwater_oracle_done_scn: a transaction is open for long, see headwater_oracle_oldest_transaction_seconds.",
    _PARTITION,
)
ORACLE_OPEN_TRANSACTIONS = _gauge(
    Area.LOGMINER,
    "headwater_oracle_open_transactions",
    "Open transactions of the source that have changed captured tables.",
    "Growing for hours: applications do not end them.",
    _PARTITION,
)
ORACLE_OLDEST_TRANSACTION = _gauge(
    Area.LOGMINER,
    "headwater_oracle_oldest_transaction_seconds",
    "Age of the oldest of them, from its first captured change on; 0 when none is open.",
    "Near the age of the oldest archived log: end it, or keep archived logs for longer, before the reader has to start again.",
    _PARTITION,
)
ORACLE_ROLLED_BACK = _counter(
    Area.LOGMINER,
    "headwater_oracle_rolled_back_transactions_total",
    "Transactions of captured tables that were rolled back whole; none of their rows is decoded.",
    "No remedy: its rate is the source's own.",
    _PARTITION,
)
ORACLE_PASSED_OVER = _counter(
    Area.LOGMINER,
    "headwater_oracle_passed_over_rows_total",
    "Rows of captured tables whose transactions mining.users or mining.client_ids pass over.",
    "None although some are expected, or the other way: compare the names with V$SESSION.USERNAME and CLIENT_IDENTIFIER.",
    _PARTITION,
)
ORACLE_DROPPED = _counter(
    Area.LOGMINER,
    "headwater_oracle_dropped_transactions_total",
    "Transactions that a `drop-transaction` signal had passed over: none of their changes is delivered.",
    "Any that nobody asked for: `transaction_dropped` in the reader's log names signal, user and rows. Snapshot its tables.",
    _PARTITION,
)
ORACLE_REREADS = _counter(
    Area.LOGMINER,
    "headwater_oracle_rereads_total",
    "Rows read at the source as of a commit because the log lacks a value of theirs, by outcome: read, gone (no row), "
    "undo_gone, definition_changed, other_incarnation.",
    "undo_gone: larger UNDO_RETENTION, or a reader that lags less; definition_changed: statements overtake the reader.",
    (*_PARTITION, "outcome"),
)
ORACLE_UNAVAILABLE = _counter(
    Area.LOGMINER,
    "headwater_oracle_unavailable_values_total",
    "Values that neither the log nor the source's undo holds: values.unavailable_placeholder stands for them.",
    "Any at all: `value_unavailable` in the reader's log has the reason; snapshot the table again.",
    _PARTITION,
)
ORACLE_REMINED = _counter(
    Area.LOGMINER,
    "headwater_oracle_remined_transactions_total",
    "Transactions mined again by themselves: cut (two windows had parts of one with large values), contradiction.",
    "contradiction, any at all: report it with the release of the database. cut: each costs the source a pass of LogMiner.",
    (*_PARTITION, "reason"),
)
PUBLISH_TRANSACTION_SECONDS = _histogram(
    Area.READER,
    "headwater_publish_transaction_seconds",
    "Seconds that one Kafka transaction of the reader took, from begin to commit.",
    "Above 1 s: the broker is slow or has too few in-sync replicas; below it nothing is wrong.",
    _TRANSACTION_BUCKETS_S,
    _PARTITION,
)
PUBLISH_TRANSACTION_AGE = _gauge(
    Area.READER,
    "headwater_publish_transaction_age_seconds",
    "Age of the Kafka transaction that the reader has open; 0 when none is.",
    "Above 30 s: the broker does not answer; the reader restarts by itself.",
    _PARTITION,
)
PUBLISH_QUEUE_BATCHES = _gauge(
    Area.READER,
    "headwater_publish_queue_batches",
    "Batches that were read and wait to be published.",
    "Full all the time (see headwater_publish_queue_bytes): Kafka is the limit.",
    _PARTITION,
)
PUBLISH_QUEUE_BATCHES_CAPACITY = _gauge(
    Area.READER,
    "headwater_publish_queue_capacity_batches",
    "How many batches may wait; then reading does.",
    "No remedy: it is fixed.",
    _PARTITION,
)
PUBLISH_QUEUE_BYTES = _gauge(
    Area.READER,
    "headwater_publish_queue_bytes",
    "Bytes of those batches.",
    "At headwater_publish_queue_capacity_bytes all the time: Kafka is the limit, see headwater_publish_transaction_seconds.",
    _PARTITION,
)
PUBLISH_QUEUE_BYTES_CAPACITY = _gauge(
    Area.READER,
    "headwater_publish_queue_capacity_bytes",
    "How many bytes may wait before reading does; a batch that alone has more waits alone.",
    "No remedy: it is fixed.",
    _PARTITION,
)
SNAPSHOT_RUNNING = _gauge(
    Area.READER,
    "headwater_snapshot_running",
    "1 while the initial snapshot is unfinished, else 0.",
    "At 1 while headwater_snapshot_rows stands: the source's query is blocked.",
    _PARTITION,
)
SNAPSHOT_TABLES_FINISHED = _gauge(
    Area.READER,
    "headwater_snapshot_finished_tables",
    "Tables that the running initial snapshot has copied, of a keyspace on all shards that copy yet.",
    "No remedy: its progress.",
    _PARTITION,
)
SNAPSHOT_TABLES = _gauge(
    Area.READER,
    "headwater_snapshot_tables",
    "Tables that the running initial snapshot copies in all.",
    "Less headwater_snapshot_finished_tables: the rest. Fewer than expected: include_tables, or snapshot.include_tables.",
    _PARTITION,
)
SNAPSHOT_ROWS = _gauge(
    Area.READER,
    "headwater_snapshot_rows",
    "Rows copied by the running initial snapshot.",
    "Standing still: the source's query is blocked; see its process list.",
    _PARTITION,
)
SNAPSHOT_ROWS_ESTIMATED = _gauge(
    Area.READER,
    "headwater_snapshot_rows_estimated",
    "Rows that the running initial snapshot expects, by the source's table statistics.",
    "No remedy: an estimate; it may be off by half.",
    _PARTITION,
)
SNAPSHOT_REMAINING = _gauge(
    Area.READER,
    "headwater_snapshot_remaining_seconds",
    "Seconds until the running snapshot should end, at its present rate; 0 when none runs.",
    "Rising: the source answers ever slower; check that its log is kept for longer than this.",
    _PARTITION,
)
SNAPSHOT_REPLICA_LAG = _gauge(
    Area.READER,
    "headwater_snapshot_replica_lag_seconds",
    "Lag of the slowest replica that a snapshot takes care of (snapshot.max_replica_lag_s).",
    "Above the limit: the snapshot waits; mend the replica, or raise the limit.",
    _PARTITION,
)
INCREMENTAL_TABLES = _gauge(
    Area.READER,
    "headwater_incremental_tables",
    "Tables that an incremental snapshot has yet to read, the one being read counted in.",
    "Not falling: paused (resume-snapshot), or the log lags the source far and windows close late.",
    _PARTITION,
)
INCREMENTAL_ROWS = _gauge(
    Area.READER,
    "headwater_incremental_rows",
    "Rows read so far of the table that an incremental snapshot is reading; 0 when none runs.",
    "Standing still: the source's SELECT is slow (its condition needs an index), or somebody locks the table.",
    _PARTITION,
)
INCREMENTAL_REMAINING = _gauge(
    Area.READER,
    "headwater_incremental_remaining_seconds",
    "Seconds until the table that an incremental snapshot is reading should be done, at its present rate; 0 when none runs.",
    "Rising: larger snapshot.incremental_chunk_rows, or let the reader catch up first.",
    _PARTITION,
)
INCREMENTAL_CHUNKS = _counter(
    Area.READER,
    "headwater_incremental_chunks_total",
    "Chunks of incremental snapshots delivered.",
    "No remedy: its rate is the progress.",
    _PARTITION,
)
INCREMENTAL_ROWS_DROPPED = _counter(
    Area.READER,
    "headwater_incremental_rows_dropped_total",
    "Rows of chunks left out because the log delivered a newer change of them while the window was open.",
    "No remedy: as it should be; many say that the table is written to faster than it is read.",
    _PARTITION,
)
SIGNALS = _counter(
    Area.READER,
    "headwater_signals_total",
    "Signals that came, by outcome: taken or refused.",
    "Refused ones: the reader's log says why (signal_refused).",
    (*_PARTITION, "outcome"),
)

# --- reader of a DTS subscription -----------------------------------------------------------------------------------

DTS_HEADROOM = _gauge(
    Area.DTS,
    "headwater_dts_headroom_seconds",
    "Seconds until DTS deletes messages that were not read, at the present rate.",
    "Falling: the decoder is too slow, or stands still; see headwater_reader_lag_seconds. At 0 the range is lost and only a "
    "new snapshot helps.",
    _PARTITION,
)
DTS_PARTS_WAITING = _gauge(
    Area.DTS,
    "headwater_dts_waiting_parts",
    "Parts held of a message that DTS cut and that is not complete yet.",
    "Standing still above 0 for minutes: DTS stopped in the middle; see its console. It begins such a message again.",
    _PARTITION,
)
DTS_PARTS_DISCARDED = _counter(
    Area.DTS,
    "headwater_dts_messages_begun_again_total",
    "Messages in parts that DTS began again before they were complete.",
    "Rises by one at a restart of DTS's task; steadily: the task restarts in a loop, see its console.",
    _PARTITION,
)
DTS_CHECKPOINTS = _counter(
    Area.DTS,
    "headwater_dts_checkpoints_total",
    "CHECKPOINT messages seen; DTS writes one about every ten seconds.",
    "Flat for a minute: DTS's task stands still; see its console.",
    _PARTITION,
)
DTS_REPEATS = _counter(
    Area.DTS,
    "headwater_dts_repeats_total",
    "Messages and transactions that came again and were dropped.",
    "Rises when DTS's task restarts or its objects are changed; steadily: the task restarts in a loop.",
    _PARTITION,
)
DTS_GAPS = _counter(
    Area.DTS,
    "headwater_dts_gaps_total",
    "Times messages were missing, by DTS's own count or because they were deleted unread.",
    "At 1 the decoder has halted; the log line reader_halted names the range: re-snapshot the source.",
    _PARTITION,
)

# --- router ---------------------------------------------------------------------------------------------------------

ROUTER_EVENTS = _counter(
    Area.ROUTER,
    "headwater_router_events_total",
    "Events written to a tenant's topics, tombstones not counted.",
    "Flat for one tenant only: its document was refused or excludes the tables; see headwater_tenant_refused.",
    ("tenant",),
)
ROUTER_BYTES = _counter(
    Area.ROUTER,
    "headwater_router_bytes_total",
    "Bytes of keys and values written to a tenant's topics, before compression.",
    "A jump without a jump of events: schemas were switched on, or rows grew.",
    ("tenant",),
)
ROUTER_TENANT_CPU = _counter(
    Area.ROUTER,
    "headwater_router_tenant_cpu_seconds_total",
    "Seconds of CPU spent on a tenant: fetching and reading its changes, filtering, masking, writing and committing. Work for "
    "several tenants together is divided by each one's own.",
    "One tenant far above its share of headwater_router_events_total: masks and filters cost, or many small transactions do.",
    ("tenant",),
)
ROUTER_OVERHEAD_CPU = _counter(
    Area.ROUTER,
    "headwater_router_unclaimed_cpu_seconds_total",
    "Seconds of CPU spent on changes that no tenant gets.",
    "Near the sum of headwater_router_tenant_cpu_seconds_total: readers capture tables that nobody asks for; exclude them.",
)
_TENANT_PARTITION = ("tenant", *_PARTITION)
ROUTER_TENANT_LAG = _gauge(
    Area.ROUTER,
    "headwater_router_tenant_lag_batches",
    "ChangeBatches that wait in the changes topic for a tenant, those of others among them.",
    "Above headwater_router_lag_batches: the tenant lags alone; headwater_router_tenant_behind says whether it is stuck.",
    _TENANT_PARTITION,
)
ROUTER_TENANT_DELAY = _gauge(
    Area.ROUTER,
    "headwater_router_tenant_lag_seconds",
    "Seconds between now and the source commit time of the newest change written to a tenant's topics; 0 when caught up, NaN "
    "while that is not known.",
    "Rising towards the retention of the changes topic: events deleted there before they are written are lost to the tenant.",
    _TENANT_PARTITION,
)
ROUTER_TENANT_BEHIND = _gauge(
    Area.ROUTER,
    "headwater_router_tenant_behind",
    "1 while a tenant lags because of its limits or to catch up, 2 while it is stuck, else 0.",
    "At 1: raise its limits, or leave it so. At 2: `headwater status` and the log line tenant_stuck say why: a topic that "
    "cannot be written, or the schema registry.",
    _TENANT_PARTITION,
)
ROUTER_TENANT_LIMIT = _gauge(
    Area.ROUTER,
    "headwater_router_tenant_limit_per_second",
    "A tenant's limit in a router process each second, by kind: events, or bytes of keys and values; +Inf: no limit. "
    "Its document's limit, or the router's tenant_limits.",
    "The rate of headwater_router_events_total at the limit for long: the tenant lags for ever; raise it, or leave it so.",
    ("tenant", "kind"),
)
ROUTER_TENANT_WEIGHT = _gauge(
    Area.ROUTER,
    "headwater_router_tenant_weight",
    "A tenant's share of the router among the lagging tenants.",
    "One far above the others: it catches up first, at their cost.",
    ("tenant",),
)
ROUTER_BATCHES = _counter(
    Area.ROUTER,
    "headwater_router_batches_total",
    "ChangeBatches routed.",
    "Flat while headwater_router_lag_batches grows: the lane is stuck; /healthz turns 503 and a restart follows.",
    _PARTITION,
)
ROUTER_UNREADABLE_RECORDS = _counter(
    Area.ROUTER,
    "headwater_router_unreadable_records_total",
    "Records of a changes topic that are no batch of its source, and were set aside.",
    "Any rise: the log line changes_record_set_aside has the offset. Find out who may write to the topic; where a reader of "
    "another release wrote it, bring the router to that release and resync the source's tables.",
    ("source",),
)
ROUTER_FILTERED = _counter(
    Area.ROUTER,
    "headwater_router_filtered_events_total",
    "Row changes that a tenant's row filter held back, but for those that a look-up by a column's value ruled out.",
    "Suddenly everything: the filter's column changed its meaning at the source.",
    ("tenant",),
)
ROUTER_LAG = _gauge(
    Area.ROUTER,
    "headwater_router_lag_batches",
    "ChangeBatches that wait in the changes topic.",
    "Rising: the router's CPU is the limit; start another one (one for each source partition at most).",
    _PARTITION,
)
ROUTER_DELAY = _gauge(
    Area.ROUTER,
    "headwater_router_lag_seconds",
    "Seconds between now and the source commit time of the newest change written to tenant topics; 0 when caught up.",
    "Above headwater_reader_lag_seconds by more than 5 s: the router lags, not the reader.",
    _PARTITION,
)
ROUTER_TRANSACTION_AGE = _gauge(
    Area.ROUTER,
    "headwater_router_transaction_age_seconds",
    "Age of the Kafka transaction that a lane has open; 0 when none is.",
    "Above 30 s: no progress since a broker failure; the router exits and is restarted.",
    _PARTITION,
)
ROUTER_TRANSACTION_SECONDS = _histogram(
    Area.ROUTER,
    "headwater_router_transaction_seconds",
    "Seconds that one Kafka transaction of the router took, from begin to commit.",
    "Above 1 s: the broker is slow; below it nothing is wrong.",
    _TRANSACTION_BUCKETS_S,
    _PARTITION,
)
ROUTER_LANES = _gauge(
    Area.ROUTER,
    "headwater_router_lanes",
    "Source partitions that this router process routes.",
    "0 for longer than a rebalance (10 s): more routers than source partitions, or the group does not settle.",
)
ROUTER_SERVED = _gauge(
    Area.ROUTER,
    "headwater_router_served",
    "1 while rows may be written for the tenant; gone once its document is away and no transaction from before it runs.",
    "Still there 10 s after a document was taken away: a transaction hangs; see headwater_router_transaction_age_seconds.",
    ("tenant",),
)
DEAD_LETTERS = _counter(
    Area.ROUTER,
    "headwater_dead_letters_total",
    "Events set aside in a tenant's dead-letter topic.",
    "Any rise: read the topic, mend the cause, replay; nothing else is lost.",
    ("tenant",),
)
TENANTS = _gauge(
    Area.ROUTER,
    "headwater_tenants",
    "Tenants whose documents are in force.",
    "A drop that nobody asked for: documents vanished from the folder or ConfigMaps.",
)
TENANT_REFUSED = _gauge(
    Area.ROUTER,
    "headwater_tenant_refused",
    "1 while a tenant's newest document is refused and its last good version is in force, else 0.",
    "At 1: the log lists every mistake of the document.",
    ("tenant",),
)
TENANT_TOPICS_REFUSED = _counter(
    Area.ROUTER,
    "headwater_tenant_topics_refused_total",
    "Times Kafka refused to create a tenant's topic as its document wants it; the topic's rows become dead letters.",
    "Any rise: the log line tenant_topic_refused says why; mend the document or Kafka, then replay the dead letters.",
    ("tenant",),
)
TENANT_SCHEMAS_REFUSED = _counter(
    Area.ROUTER,
    "headwater_tenant_schemas_refused_total",
    "Times the schema registry refused a schema of a tenant's topic; the topic's rows become dead letters.",
    "Any rise: the log line tenant_schema_refused has the reason; remove it, then copy the table again by a snapshot.",
    ("tenant",),
)

# --- schema_history -------------------------------------------------------------------------------------------------

SCHEMA_HISTORY_CHANGES = _counter(
    Area.SCHEMA_HISTORY,
    "headwater_schema_history_changes_total",
    "Schema changes recorded, repeats not counted.",
    "A storm: somebody migrates, or a table is created and dropped in a loop; exclude such tables from the source.",
    ("source",),
)
SCHEMA_HISTORY_REPEATS = _counter(
    Area.SCHEMA_HISTORY,
    "headwater_schema_history_repeats_total",
    "RecordSchemaChange calls that repeated a change already recorded, and were answered with its version.",
    "Rising steadily: a reader restarts in a loop at the same DDL; see its log.",
    ("source",),
)
SCHEMA_HISTORY_TABLES = _gauge(
    Area.SCHEMA_HISTORY,
    "headwater_schema_history_tables",
    "Tables that exist now, by the history.",
    "Far above the captured rows: the source's include list is too wide.",
    ("source",),
)
SCHEMA_HISTORY_REBUILDS = _counter(
    Area.SCHEMA_HISTORY,
    "headwater_schema_history_rebuilds_total",
    "Times the Redis view was empty, late or broken and was built again from Kafka.",
    "Rising: Redis evicts keys or is restarted without a disk; give it memory. No data is lost.",
)
SCHEMA_HISTORY_LOAD_SECONDS = _gauge(
    Area.SCHEMA_HISTORY,
    "headwater_schema_history_load_seconds",
    "Seconds that the last start took to load the history.",
    "Above 10 s: the start read all of Kafka; see headwater_schema_history_rebuilds_total.",
)

# --- checkpoint_committer -------------------------------------------------------------------------------------------

CHECKPOINTS = _counter(
    Area.CHECKPOINT_COMMITTER,
    "headwater_checkpoints_total",
    "Checkpoints accepted from the log.",
    "Flat for one source partition: its reader is down or its source silent; see headwater_checkpoint_age_seconds.",
    _PARTITION,
)
CHECKPOINT_AGE = _gauge(
    Area.CHECKPOINT_COMMITTER,
    "headwater_checkpoint_age_seconds",
    "Seconds since the newest checkpoint of a source partition was published.",
    "Above 60 s: the reader is down (a reader writes a heartbeat checkpoint at a silent source).",
    _PARTITION,
)
CHECKPOINTS_REFUSED = _counter(
    Area.CHECKPOINT_COMMITTER,
    "headwater_checkpoints_refused_total",
    "Checkpoints ignored: `fenced` (older fencing token than one seen) or `stale` (order went backwards).",
    "fenced: a reader without its lease still publishes, a deployment fault. stale: a fault in the reader; report it.",
    (*_PARTITION, "reason"),
)
LEASE_TAKEOVERS = _counter(
    Area.CHECKPOINT_COMMITTER,
    "headwater_lease_takeovers_total",
    "Times a source partition changed its owner (the fencing token grew).",
    "Rising by itself: the reader crashes, or stalls for longer than its lease; see its log.",
    _PARTITION,
)
LEASE_REFUSALS = _counter(
    Area.CHECKPOINT_COMMITTER,
    "headwater_lease_refusals_total",
    "Times a lease was refused because another owner holds it.",
    "Rising for longer than one lease: two readers are configured for one source partition.",
    _PARTITION,
)
CHECKPOINT_RESETS = _counter(
    Area.CHECKPOINT_COMMITTER,
    "headwater_checkpoint_resets_total",
    "Resume points set by hand.",
    "Any rise that nobody on duty caused: the log line checkpoint_reset says who gave which reason.",
    _PARTITION,
)
READ_BARRIER_SECONDS = _histogram(
    Area.CHECKPOINT_COMMITTER,
    "headwater_read_barrier_seconds",
    "Seconds that a read waited for everything committed before it was asked.",
    "Above 1 s: a crashed reader left a Kafka transaction open; it ends with its transaction.timeout.ms.",
    _TRANSACTION_BUCKETS_S,
)
PROGRESS_DELAY = _gauge(
    Area.CHECKPOINT_COMMITTER,
    "headwater_progress_delay_seconds",
    "Seconds between now and the source commit time of the newest event durable after a tenant's hop.",
    "Compare the hops: look at the first one with a large lag.",
    ("tenant", "hop", "source"),
)

# --- sink -----------------------------------------------------------------------------------------------------------

SINK_ROWS = _counter(
    Area.SINK,
    "headwater_sink_rows_total",
    "Changes committed to a tenant's warehouse.",
    "Flat while headwater_router_events_total of the tenant grows: the Spark job is down or fails; see its log.",
    ("tenant", "warehouse"),
)
SINK_TENANT_CPU = _counter(
    Area.SINK,
    "headwater_sink_tenant_cpu_seconds_total",
    "Seconds of CPU spent on a tenant's batches: Spark's tasks, in the job's pod or in executors; its query's thread, which "
    "plans and commits; the threads that go through its tables. Not: the JVM's compiler, garbage collection and threads that "
    "tenants share, tasks and batches that failed, the warehouse's own server, the drop of a tenant's tables.",
    "One tenant far above its share of headwater_sink_rows_total: many small batches or tables; raise its trigger_s. Where it "
    "keeps others waiting, give it a job of its own.",
    ("tenant",),
)
SINK_BATCHES = _counter(
    Area.SINK,
    "headwater_sink_batches_total",
    "Micro-batches committed.",
    "No remedy: its rate is the trigger's.",
    ("tenant", "warehouse"),
)
SINK_REPLAYED_BATCHES = _counter(
    Area.SINK,
    "headwater_sink_replayed_batches_total",
    "Commits that were recognised as already done and skipped.",
    "Rises by a few at each restart; steadily: the Spark job restarts in a loop.",
    ("tenant", "warehouse"),
)
SINK_FAILED_MAINTENANCE = _counter(
    Area.SINK,
    "headwater_sink_failed_maintenance_total",
    "Times that a table was written but could not be rewritten, expired or cleaned after it.",
    "The log's sink_maintenance_failed says why. Rows are safe; reads become slower and the folder larger until it succeeds.",
    ("tenant", "warehouse"),
)
SINK_MERGE_SECONDS = _histogram(
    Area.SINK,
    "headwater_sink_merge_seconds",
    "Seconds that the commit of one table of one micro-batch took.",
    "Above the tenant's trigger: the table needs compaction, or the trigger is too short.",
    _MERGE_BUCKETS_S,
    ("tenant", "warehouse"),
)
SINK_PHASE_SECONDS = _histogram(
    Area.SINK,
    "headwater_sink_phase_seconds",
    "Seconds that a part of a micro-batch took. Of the batch: read, show; of each of its tables: prepare, dedupe, merge, "
    "commit, maintain. Of a write whose parts Spark did not report, the three in the middle are missing.",
    "Look at the largest: read is Kafka or cores, dedupe and merge cores or the table's files, commit the catalog.",
    _PHASE_BUCKETS_S,
    ("tenant", "warehouse", "phase"),
)
SINK_TABLE_WRITES = _counter(
    Area.SINK,
    "headwater_sink_table_writes_total",
    "Tables' parts of micro-batches written, by way: at_hand without a query, else why by one. warehouse, mode, together: not "
    "for such tenants; many_events, events, table: not such events, not such a table; failed: it was tried.",
    "failed at every batch of a table: the log line sink_table_not_merged_at_hand has the reason; rows are right all the same. "
    "Small tables: docs/sinks/speed.md.",
    ("tenant", "warehouse", "way"),
)
SINK_LAG = _gauge(
    Area.SINK,
    "headwater_sink_lag_seconds",
    "Seconds between now and the source commit time of the newest change in the warehouse; 0 when caught up.",
    "Above three triggers: see headwater_sink_merge_seconds; then give the job more cores.",
    ("tenant", "warehouse"),
)
SINK_DEAD_LETTERS = _counter(
    Area.SINK,
    "headwater_sink_dead_letters_total",
    "Events that a tenant's sink set aside in the dead-letter topic: refused by the warehouse, or waiting after such.",
    "Any rise: `headwater dead-letter list TENANT` has the reasons; mend, then `headwater dead-letter replay`.",
    ("tenant", "warehouse"),
)
SINK_PARKED_KEYS = _gauge(
    Area.SINK,
    "headwater_sink_parked_keys",
    "Keys of a tenant's tables that wait after an event which the warehouse refused.",
    "Above 0: these rows are not kept up; as for headwater_sink_dead_letters_total. At max_parked_keys the table is parked.",
    ("tenant", "warehouse"),
)
SINK_PARKED_TABLES = _gauge(
    Area.SINK,
    "headwater_sink_parked_tables",
    "Tables that are passed over until a human sees to them; their events wait in Kafka.",
    "Above 0: `headwater status` and the log line sink_table_parked name each table and its remedy.",
    ("tenant", "warehouse"),
)
SINK_QUERY_FAILURES = _counter(
    Area.SINK,
    "headwater_sink_query_failures_total",
    "Times a tenant's query failed and was started again.",
    "Rising: the log line sink_query_failed has the reason; other tenants of the job go on.",
    ("tenant", "warehouse"),
)
SINK_INTERVAL = _gauge(
    Area.SINK,
    "headwater_sink_interval_seconds",
    "The adaptive trigger's choice from the start of one micro-batch to that of the next.",
    "At sink.trigger_max_s: batches are small, which makes small files cheap and rows late; lower it for fresher rows.",
    ("tenant", "warehouse"),
)
SINK_TURNS = _gauge(
    Area.SINK,
    "headwater_sink_most_batches",
    "How many micro-batches the job runs at once, of all its tenants: bounded by cores and by the heap.",
    "For reading beside headwater_sink_running_batches; a larger session.driver_memory or more cores raise it.",
)
SINK_TURNS_TAKEN = _gauge(
    Area.SINK,
    "headwater_sink_running_batches",
    "Micro-batches of the job that have a turn now; overdue ones may go on without.",
    "All of headwater_sink_most_batches for minutes: the job is at its limit; see headwater_sink_waiting_tenants.",
)
SINK_OVERDUE_BATCHES = _gauge(
    Area.SINK,
    "headwater_sink_overdue_batches",
    "Micro-batches that have run for more than 30 s. They go on, and give their turns to other tenants.",
    "Above 0 for minutes: the fault batch_overdue names the tenants; see whether their warehouse answers.",
)
SINK_TENANTS_WAITING = _gauge(
    Area.SINK,
    "headwater_sink_waiting_tenants",
    "Tenants of the job that have something new and wait for their turn, or for their trigger.",
    "Rising for minutes: too many tenants are packed into the job for its cores; give some of them another job.",
)
SINK_HALTED = _gauge(
    Area.SINK,
    "headwater_sink_halted",
    "1 while a tenant's query stands still and a human is needed, else 0.",
    "At 1: the log line sink_query_halted ends with the remedy; then restart the job.",
    ("tenant", "warehouse"),
)
SINK_LINEAGE_DROPPED = _counter(
    Area.SINK,
    "headwater_sink_lineage_dropped_total",
    "OpenLineage events that nobody got: too many waited (queue_full), or the receiver refused one (refused).",
    "Rising: the log line lineage_dropped has the reason; tables are not concerned, only a catalogue's view of them.",
    ("reason",),
)
SINK_SERVED = _gauge(
    Area.SINK,
    "headwater_sink_served",
    "1 while the tenant's tables may be written; gone once its document is away and its last batch has ended.",
    "Still there a minute after a document was taken away: a batch hangs; restart the job.",
    ("tenant",),
)
SINK_WAITS = _gauge(
    Area.SINK,
    "headwater_sink_waits",
    "1 while a tenant that this Spark job is to serve, to hand over or to drop waits for something; gone otherwise.",
    "For more than some minutes: the log line sink_tenant_waits has the reason; of moves the tenant's ConfigMap does too.",
    ("tenant",),
)

SINK_CODE_CACHE_USED = _gauge(
    Area.SINK,
    "headwater_sink_code_cache_used_bytes",
    "Compiled code that the job's JVM holds, of its pools in the one that is fullest.",
    "Near headwater_sink_code_cache_bytes: raise -XX:ReservedCodeCacheSize in session.java_options. Full, batches fail.",
)
SINK_CODE_CACHE = _gauge(
    Area.SINK,
    "headwater_sink_code_cache_bytes",
    "Room for compiled code in that pool.",
    "Nothing: headwater_sink_code_cache_used_bytes is held against it.",
)
SINK_EXECUTORS = _gauge(
    Area.SINK,
    "headwater_sink_executors",
    "Executors that work for the job now; 0 where the job's own pod does all of it.",
    "Below sink.executors.instances for minutes: `kubectl get pods -l headwater.dev/role=sink-executor`; Pending: the nodes "
    "have no room; none at all: the job's log says which right it lacks.",
)
SINK_EXECUTOR_CORES = _gauge(
    Area.SINK,
    "headwater_sink_executor_cores",
    "Tasks that the executors can run at once.",
    "No remedy: instances by cores.",
)
SINK_EXECUTOR_TASKS = _gauge(
    Area.SINK,
    "headwater_sink_executor_tasks",
    "Tasks that the executors run now.",
    "As many as headwater_sink_executor_cores all the time while headwater_sink_lag_seconds rises: more executors, or cores.",
)
SINK_EXECUTOR_FAILED_TASKS = _gauge(
    Area.SINK,
    "headwater_sink_executor_failed_tasks",
    "Tasks that failed on the executors that are there now. Spark runs each again, three times.",
    "Rising: the executors' logs have the reason; killed for memory: sink.executors.memory, memoryOverhead.",
)
SINK_EXECUTOR_STORAGE_USED = _gauge(
    Area.SINK,
    "headwater_sink_executor_storage_used_bytes",
    "The part of the executors' heaps that batches use now.",
    "Near headwater_sink_executor_storage_bytes all the time: parts of batches go to disk; raise sink.executors.memory.",
)
SINK_EXECUTOR_STORAGE = _gauge(
    Area.SINK,
    "headwater_sink_executor_storage_bytes",
    "The part of the executors' heaps for batches.",
    "No remedy: a part of sink.executors.memory.",
)

# --- tenant_operator -------------------------------------------------------------------------------------------------

TENANT_STATES = ("ready", "degraded", "planned", "refused", "waiting", "leaving")
OPERATOR_TENANTS = _gauge(
    Area.TENANT_OPERATOR,
    "headwater_operator_tenants",
    "Tenants' ConfigMaps by state: ready, degraded, planned, refused, waiting, leaving. Reported by the leader only.",
    "degraded, refused or waiting above 0: the annotation headwater.dev/message of the tenants' ConfigMaps says why.",
    ("outcome",),
)
OPERATOR_LEADS = _gauge(
    Area.TENANT_OPERATOR,
    "headwater_operator_leads",
    "1 while this operator holds the lease and works, else 0.",
    "A sum of 0 over all operators for a minute: nobody sees to tenants; look at the operators' logs.",
)
OPERATOR_LOOK_SECONDS = _histogram(
    Area.TENANT_OPERATOR,
    "headwater_operator_look_seconds",
    "Seconds that one look at all tenants took, with everything that followed from it.",
    "Above 10: Kafka or the API server answer slowly; a new tenant waits for two looks at most.",
    _MERGE_BUCKETS_S,
)
OPERATOR_ACTIONS = _counter(
    Area.TENANT_OPERATOR,
    "headwater_operator_actions_total",
    "Actions in Kafka for tenants, by kind: CreateTopic, SetPassword, Grant, Revoke, SetQuotas and others.",
    "Rising while nobody changes a document: somebody else makes changes that the operator undoes.",
    ("kind",),
)
OPERATOR_FAILED_ACTIONS = _counter(
    Area.TENANT_OPERATOR,
    "headwater_operator_failed_actions_total",
    "Such actions that Kafka refused; each is tried again.",
    "Rising: the tenant's annotation headwater.dev/message and the log line reconcile_incomplete have Kafka's reason.",
    ("kind",),
)
OPERATOR_REFUSED_NAMESPACES = _gauge(
    Area.TENANT_OPERATOR,
    "headwater_operator_refused_namespaces",
    "Namespaces of teams in which the operator may not look at ConfigMaps or Secrets. Their tenants stay as they are.",
    "Above 0: the log line namespace_refused and /readyz name each, with the remedy; docs/failure_modes.md has more.",
)
OPERATOR_WATCHERS = _gauge(
    Area.TENANT_OPERATOR,
    "headwater_operator_watchers",
    "Routers that get tenants from this operator.",
    "Below the number of routers, over all operators: some route by former documents; see their log line "
    "tenants_stream_broken.",
)

# --- headwater check ------------------------------------------------------------------------------------------------

_COMPARED = ("tenant", "source", "table")
CHECK_ENDED = _gauge(
    Area.CHECK,
    "headwater_check_ended_timestamp_seconds",
    "When `headwater check --every` last ended a turn that compared everything, in seconds since 1970.",
    "Older than two pauses and a turn: the command's output names the unreachable part, or the command is gone.",
)
CHECK_SECONDS = _gauge(
    Area.CHECK,
    "headwater_check_seconds",
    "How long that turn took, the waits for the tables and second looks included.",
    "Rising: headwater_check_read_rows says which tables are read row by row; a longer --every, or a command for each tenant.",
)
CHECK_FAILED_TURNS = _counter(
    Area.CHECK,
    "headwater_check_failed_turns_total",
    "Turns that could not compare everything: a source, Kafka or a warehouse did not answer, tables did not catch up or are "
    "parked.",
    "Rising: the command's output has the reason; the next turn tries again.",
)
CHECK_COMPARED_ROWS = _gauge(
    Area.CHECK,
    "headwater_check_compared_rows",
    "Rows of a table that the last turn compared, by checksums or one by one.",
    "0 where the source has rows: the tenant's row filter, or the table's fault in the command's output.",
    _COMPARED,
)
CHECK_READ_ROWS = _gauge(
    Area.CHECK,
    "headwater_check_read_rows",
    "Of those, rows that were read and compared one by one: of parts whose checksums differed, or of tables without any.",
    "Near headwater_check_compared_rows at every turn: a column has no checksum, or is spelled otherwise at both ends "
    "(docs/cli.md, check).",
    _COMPARED,
)
CHECK_DIFFERENT_ROWS = _gauge(
    Area.CHECK,
    "headwater_check_different_rows",
    "Rows of a table that differ between source and warehouse after the last turn and its repairs, and faults of the table.",
    "Above 0: the command's output and --report name them; --repair reads them again at the source.",
    _COMPARED,
)
CHECK_UNDECIDED_ROWS = _gauge(
    Area.CHECK,
    "headwater_check_undecided_rows",
    "Rows that the source changed whenever they were looked at, so that nothing can be said of them.",
    "The same table at every turn: its rows change faster than the warehouse follows; a shorter trigger, or a quieter hour.",
    _COMPARED,
)

# --- every service --------------------------------------------------------------------------------------------------

RPC_SECONDS = _histogram(
    Area.EVERY_SERVICE,
    "headwater_rpc_seconds",
    "Seconds that a gRPC call took at the server, by method and status code.",
    "A rising share of UNAVAILABLE: the service cannot reach Kafka; see /readyz.",
    _TRANSACTION_BUCKETS_S,
    ("method", "code"),
)
RPC_CUT = _counter(
    Area.EVERY_SERVICE,
    "headwater_rpc_cut_off_total",
    "gRPC calls that the server ended: no_request, no_answer, not_taken, too_many_streams.",
    "Rising: a caller is slow, or an attacker reaches the port; see the network policies.",
    ("reason",),
)
REDIS_AVAILABLE = _gauge(
    Area.EVERY_SERVICE,
    "headwater_redis_available",
    "1 while the Redis view is reachable and follows Kafka, else 0.",
    "At 0: answers stay right (from Kafka and memory), restarts become slow; bring Redis back.",
)
HALTED = _gauge(
    Area.EVERY_SERVICE,
    "headwater_halted",
    "1 while a reader is halted and a person is needed, else 0.",
    "At 1: `headwater status` and the log line reader_halted end with the remedy.",
    ("source",),
)
FAULTS = _gauge(
    Area.EVERY_SERVICE,
    "headwater_faults",
    "1 while a fault lasts, a sample for each; none otherwise.",
    "docs/faults.md has each id with its remedy; `headwater status` prints cause and place, the worst first.",
    ("id", "severity", "source", "tenant", "table"),
)


def metrics_document() -> str:
    """``docs/metrics.md``: every metric, by service."""
    lines = [
        "# Metrics",
        "",
        "Written by `make docs-metrics` from `libs/telemetry/metrics.py`; change it there.",
        "Every service serves them at `/metrics` of its telemetry port. `telemetry.tags: {team: shop}` in a service's settings",
        "puts labels of your own on all of its metrics, Python's included.",
    ]
    for area in Area:
        lines += ["", f"## {area.value}", "", "| metric | kind | labels | what it says | when it rises |"]
        lines += ["|---|---|---|---|---|"]
        lines += [
            f"| `{doc.name}` | {doc.kind} | {', '.join(doc.labels) or '–'} | {doc.meaning} | {doc.remedy} |"
            for doc in CATALOGUE
            if doc.area is area
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(metrics_document())
