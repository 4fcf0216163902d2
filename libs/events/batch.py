"""ChangeBatch: the rows that a reader hands over at once, built column by column.

A reader appends rows to a ``RowRun``, and now and then takes everything as one protobuf record. A batch may end inside a
source transaction; the Kafka transaction around it may not (``libs.source.publisher``).

The keys and values of a run are in protobuf's wire form from the start (``run_rows``); protobuf's own way copies each of them
three times. All else goes through the generated classes: serialised messages that stand one after another are one message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from libs.events.run_rows import RunRows, joined
from libs.events.varint import varint
from libs.types.order import EventOrder
from libs.types.table import TableId
from protos.headwater.changes.v1.change_batch_pb2 import (
    ChangeBatch,
    Entry,
    PartitionEnd,
    Run,
    TableChange,
    TransactionBoundary,
)

MAX_BATCH_ROWS: Final = 2_000
"""A batch is closed at so many rows: Faust costs 60 to 130 µs a message, so 2,000 rows make it under 0.1 µs a row."""
MAX_BATCH_BYTES: Final = 1_000_000
"""… or at so many bytes of keys and values, which bounds the memory of router and broker for one record."""

# One byte a row (change_batch.proto, Run.ops).
OP_CREATE, OP_UPDATE, OP_DELETE, OP_READ, OP_TRUNCATE = b"cudrt"
OP_KEY_CHANGE_DELETE, OP_KEY_CHANGE_CREATE = b"DC"


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """The rows of a run as bytes, gathered by another process in a ``RunRows``."""

    ops: bytes
    fields: bytes
    """``RunRows.encoded()``."""

    def __len__(self) -> int:
        return len(self.ops)

    def encoded(self) -> bytes:
        """As ``RunRows.encoded``."""
        return self.fields


@dataclass(slots=True)
class RowRun:
    """Rows of one table, schema version and transaction, in log order."""

    table_id: TableId
    schema_version: int
    transaction_id: str
    first_order: EventOrder
    committed_at_us: int
    is_snapshot: bool
    rows: RunRows = field(default_factory=RunRows)
    for_tenants: tuple[str, ...] = ()
    """Only these tenants get the rows; empty: all that see the table."""


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """The common facts of all batches of one run of a reader."""

    source: str
    source_partition: str
    connector: str
    run_id: str
    fencing_token: int
    removed_fields: tuple[str, ...] = ()
    """Members that no event has, as ``source.vgtid``."""
    has_ordered_transactions: bool = False
    """The transaction block has an epoch and a rank."""


class BatchBuilder:
    """Gathers runs, table changes and transaction boundaries in log order, until they are taken."""

    __slots__ = ("_entries", "_head", "_run", "rows", "size_bytes")

    def __init__(self, identity: BatchIdentity) -> None:
        self._head = ChangeBatch(
            source=identity.source,
            source_partition=identity.source_partition,
            fencing_token=identity.fencing_token,
            run_id=identity.run_id,
            connector=identity.connector,
            removed_fields=identity.removed_fields,
            has_ordered_transactions=identity.has_ordered_transactions,
        )
        self._start()

    def _start(self) -> None:
        self._entries: list[bytes | RunRows] = []
        """Serialised, or to be, each after its tag and length."""
        self._run: RowRun | None = None
        self.rows = 0
        """In closed runs."""
        self.size_bytes = 0
        """Of closed runs and of all other entries."""

    @property
    def is_empty(self) -> bool:
        """Nothing was gathered since the last ``take``."""
        return self._run is None and not self._entries and not self._head.awaited

    def await_others(self, end_offsets: Mapping[int, int]) -> None:
        """The gathered rows, and all later ones, are routed when the records of other Kafka partitions of the changes topic
        are
        that stand below these offsets; by partition."""
        for kafka_partition, end_offset in sorted(end_offsets.items()):
            self._head.awaited.append(PartitionEnd(kafka_partition=kafka_partition, end_offset=end_offset))

    @property
    def is_full(self) -> bool:
        """Large enough to be taken at the next end of a transaction. An open run is not counted."""
        return self.rows >= MAX_BATCH_ROWS or self.size_bytes >= MAX_BATCH_BYTES

    @property
    def is_overfull(self) -> bool:
        """So large that even a transaction has to be cut: Kafka's transaction around its batches keeps it whole."""
        return self.rows >= 2 * MAX_BATCH_ROWS or self.size_bytes >= 2 * MAX_BATCH_BYTES

    def open_run(self, run: RowRun) -> RowRun:
        """Rows appended to ``run`` come after everything gathered so far."""
        self.close_run()
        self._run = run
        return run

    def is_open(self, run: RowRun) -> bool:
        """Rows may be appended to ``run``: nothing was opened, added or taken since it was."""
        return self._run is run

    def close_run(self) -> None:
        """The open run's rows are in the batch; none is appended to it afterwards."""
        run, self._run = self._run, None
        if run is not None and len(run.rows):
            self._add_run(run, run.rows)

    def add_encoded(self, run: RowRun, rows: EncodedRows) -> None:
        """Rows that are encoded already, as a run of their own with the facts of ``run``."""
        self.close_run()
        self._add_run(run, rows)

    def _add_run(self, run: RowRun, gathered: RunRows | EncodedRows) -> None:
        head = Run(
            database=run.table_id.database,
            table=run.table_id.table,
            schema_version=run.schema_version,
            transaction_id=run.transaction_id,
            epoch=run.first_order.epoch,
            rank=str(run.first_order.rank),
            first_tx_ordinal=run.first_order.tx_ordinal,
            committed_at_us=run.committed_at_us,
            is_snapshot=run.is_snapshot,
            ops=gathered.ops,
            for_tenants=run.for_tenants,
        ).SerializeToString()
        rows = gathered if isinstance(gathered, RunRows) and gathered.is_large else gathered.encoded()
        size = len(head) + (rows.size_bytes if isinstance(rows, RunRows) else len(rows))
        opening = _opening(Entry.RUN_FIELD_NUMBER, size)
        self._entries += (_opening(ChangeBatch.ENTRIES_FIELD_NUMBER, len(opening) + size), opening, head, rows)
        self.rows += len(gathered)
        self.size_bytes += size

    def _add(self, entry: Entry) -> None:
        serialised = entry.SerializeToString()
        self._entries += (_opening(ChangeBatch.ENTRIES_FIELD_NUMBER, len(serialised)), serialised)
        self.size_bytes += len(serialised)

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
        database_tables: Sequence[str] = (),
    ) -> None:
        """A DDL statement at its place; ``key`` and ``value`` are Debezium's schema-change payloads.

        ``table_id`` without a table: it concerns a database, of which ``database_tables`` are captured.
        """
        self.close_run()
        entry = TableChange()
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
        entry.database_tables.extend(database_tables)
        self._add(Entry(table_change=entry))

    def add_begin(self, transaction_id: str, committed_at_us: int) -> None:
        """BEGIN of a source transaction."""
        self.close_run()
        entry = TransactionBoundary()
        entry.status = TransactionBoundary.STATUS_BEGIN
        entry.transaction_id = transaction_id
        entry.committed_at_us = committed_at_us
        self._add(Entry(transaction_boundary=entry))

    def add_end(self, transaction_id: str, committed_at_us: int, events: Sequence[tuple[TableId, int]]) -> None:
        """END of a source transaction, with its row events by table."""
        self.close_run()
        entry = TransactionBoundary()
        entry.status = TransactionBoundary.STATUS_END
        entry.transaction_id = transaction_id
        entry.committed_at_us = committed_at_us
        for table_id, count in events:
            entry.table_event_counts.add(database=table_id.database, table=table_id.table, events=count)
        self._add(Entry(transaction_boundary=entry))

    def take(self, published_at_us: int) -> tuple[bytes, int]:
        """Everything gathered as one serialised ChangeBatch, and its number of rows; (b"", 0) when empty."""
        self.close_run()
        if self.is_empty:
            return b"", 0
        self._head.published_at_us = published_at_us
        payload, rows = joined((self._head.SerializeToString(), *self._entries)), self.rows
        del self._head.awaited[:]
        self._start()
        return payload, rows


_LENGTH_DELIMITED: Final = 2  # the wire type of bytes, text and messages


def _opening(field_number: int, size: int) -> bytes:
    """The bytes before ``size`` bytes of a field: its tag and the length."""
    return varint(field_number << 3 | _LENGTH_DELIMITED) + varint(size)
