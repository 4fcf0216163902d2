"""ChangeBatch: what a reader hands over at once, built column by column.

A reader appends rows to a ``RowRun`` (three lists), and now and then takes everything as one protobuf record. A batch may
end inside a source transaction; the Kafka transaction around it may not (``libs.source.publisher``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from libs.types.order import EventOrder
from libs.types.table import TableId
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch, TransactionBoundary

MAX_BATCH_ROWS: Final = 2_000
"""A batch is closed at so many rows: Faust costs 60 to 130 µs a message, so 2,000 rows make it under 0.1 µs a row."""
MAX_BATCH_BYTES: Final = 1_000_000
"""… or at so many bytes of keys and values, which bounds what router and broker hold for one record."""

# One byte a row (change_batch.proto, Run.ops).
OP_CREATE, OP_UPDATE, OP_DELETE, OP_READ, OP_TRUNCATE = b"cudrt"
OP_KEY_CHANGE_DELETE, OP_KEY_CHANGE_CREATE = b"DC"


@dataclass(slots=True)
class RowRun:
    """Rows of one table, schema version and transaction, in log order."""

    table_id: TableId
    schema_version: int
    transaction_id: str
    first_order: EventOrder
    committed_at_us: int
    is_snapshot: bool
    ops: bytearray = field(default_factory=bytearray)
    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """What every batch of one run of a reader says about itself."""

    source: str
    source_partition: str
    connector: str
    run_id: str
    fencing_token: int


class BatchBuilder:
    """Gathers runs, table changes and transaction boundaries in log order, until they are taken."""

    __slots__ = ("_batch", "_identity", "_run", "rows", "value_bytes")

    def __init__(self, identity: BatchIdentity) -> None:
        self._identity = identity
        self._start()

    def _start(self) -> None:
        self._batch = ChangeBatch(
            source=self._identity.source,
            source_partition=self._identity.source_partition,
            fencing_token=self._identity.fencing_token,
            run_id=self._identity.run_id,
            connector=self._identity.connector,
        )
        self._run: RowRun | None = None
        self.rows = 0
        self.value_bytes = 0

    @property
    def is_empty(self) -> bool:
        """Nothing was gathered since the last ``take``."""
        return self._run is None and not self._batch.entries

    @property
    def is_full(self) -> bool:
        """Large enough to be taken. Counts closed runs only."""
        return self.rows >= MAX_BATCH_ROWS or self.value_bytes >= MAX_BATCH_BYTES

    def open_run(self, run: RowRun) -> RowRun:
        """Rows appended to ``run`` stand behind everything gathered so far."""
        self.close_run()
        self._run = run
        return run

    def close_run(self) -> None:
        """Copy the open run's rows into the batch; no row is appended to it afterwards."""
        run, self._run = self._run, None
        if run is None or not run.values:
            return
        entry = self._batch.entries.add().run
        entry.database = run.table_id.database
        entry.table = run.table_id.table
        entry.schema_version = run.schema_version
        entry.transaction_id = run.transaction_id
        entry.epoch = run.first_order.epoch
        entry.rank = str(run.first_order.rank)
        entry.first_tx_ordinal = run.first_order.tx_ordinal
        entry.committed_at_us = run.committed_at_us
        entry.is_snapshot = run.is_snapshot
        entry.ops = bytes(run.ops)
        entry.keys.extend(run.keys)
        entry.values.extend(run.values)
        self.rows += len(run.values)
        self.value_bytes += sum(map(len, run.values))

    def add_table_change(
        self,
        table_id: TableId,
        *,
        schema_version: int,
        order: EventOrder,
        committed_at_us: int,
        is_snapshot: bool,
        key: bytes,
        value: bytes,
    ) -> None:
        """A DDL statement at its place; ``key`` and ``value`` are Debezium's schema-change payloads."""
        self.close_run()
        entry = self._batch.entries.add().table_change
        entry.database = table_id.database
        entry.table = table_id.table
        entry.schema_version = schema_version
        entry.epoch = order.epoch
        entry.rank = str(order.rank)
        entry.tx_ordinal = order.tx_ordinal
        entry.committed_at_us = committed_at_us
        entry.is_snapshot = is_snapshot
        entry.key = key
        entry.value = value

    def add_begin(self, transaction_id: str, committed_at_us: int) -> None:
        """BEGIN of a source transaction."""
        self.close_run()
        entry = self._batch.entries.add().transaction_boundary
        entry.status = TransactionBoundary.STATUS_BEGIN
        entry.transaction_id = transaction_id
        entry.committed_at_us = committed_at_us

    def add_end(self, transaction_id: str, committed_at_us: int, events: Sequence[tuple[TableId, int]]) -> None:
        """END of a source transaction, with its row events by table."""
        self.close_run()
        entry = self._batch.entries.add().transaction_boundary
        entry.status = TransactionBoundary.STATUS_END
        entry.transaction_id = transaction_id
        entry.committed_at_us = committed_at_us
        for table_id, count in events:
            entry.table_event_counts.add(database=table_id.database, table=table_id.table, events=count)

    def take(self, published_at_us: int) -> tuple[bytes, int]:
        """Everything gathered as one serialised ChangeBatch, and its number of rows; (b"", 0) when empty."""
        self.close_run()
        if not self._batch.entries:
            return b"", 0
        self._batch.published_at_us = published_at_us
        payload, rows = self._batch.SerializeToString(), self.rows
        self._start()
        return payload, rows
