"""Rows of a stream into runs of the batch: their values, the frame around them, and the rows that cannot be decoded."""

import time
from dataclasses import dataclass
from typing import Final

import msgspec
import orjson

from libs.errors import SchemaContradiction, UndecodableValue
from libs.events.batch import BatchBuilder, RowRun
from libs.events.dead_letter import UndecodedRow
from libs.events.envelope import event_tail
from libs.events.run_rows import RunRows
from libs.formats.row_images import EventFrame
from libs.mysql.values import unscaled_to_base64
from libs.source.vitess.settings import TransactionMetadata
from services.vstream_reader.decoder_options import DecoderOptions
from services.vstream_reader.fields import OTHER_SCHEMA_REMEDY
from services.vstream_reader.row_changes import ImagesAbsent, ValueAbsent
from services.vstream_reader.stream_tables import StreamTable
from services.vstream_reader.transaction import Transaction
from services.vstream_reader.vevents import VEvents

_MAX_RUN_BYTES: Final = 500_000
"""A run is closed at about so many bytes, so that a transaction of one table can be cut into batches too."""


@dataclass(frozen=True, slots=True)
class _OpenRun:
    """Rows of one table and transaction that are being gathered, with the common parts of their values."""

    table: StreamTable
    run: RowRun
    rows: RunRows
    """Of ``run``."""
    frame: EventFrame


class RowRuns:
    """The run that is open in a batch, and the common parts of its rows."""

    def __init__(self, options: DecoderOptions, batch: BatchBuilder) -> None:
        self._options = options
        self._batch = batch
        self._removed = frozenset(options.events.remove_fields)
        self._run: _OpenRun | None = None
        self._room = 0
        self.now_ns = time.time_ns()
        """The time that rows are marked with as processed."""
        self._tails: tuple[bytes, ...] | None = None

    def tick(self, now_ns: int) -> None:
        """The time that the next rows are marked with as processed."""
        self.now_ns = now_ns
        self._tails = None

    def flush(self) -> None:
        """Close the open run, so that the batch can be taken; decoding goes on with a new one."""
        self._run = None
        self._batch.close_run()

    @property
    def is_full(self) -> bool:
        """The open run has reached its size."""
        return self._room < 0

    def end(self, transaction: Transaction, ended_at_us: int) -> None:
        """The transaction's END event, where its settings have one."""
        if self._has_boundaries(transaction) and transaction.rows:
            self._batch.add_end(transaction.id, ended_at_us, tuple(transaction.rows_by_table.items()))

    def decode(self, table: StreamTable, transaction: Transaction, events: VEvents, nth: int, end: int) -> int:
        """Decode the row events of the same table from ``nth`` on; returns the number of the event to go on with."""
        run = self._run
        if run is None or run.table is not table or not self._batch.is_open(run.run):
            run = self._run = self._open_run(table, transaction)
        count = len(run.rows)
        try:
            nth_after, _, self._room = table.decoder_of(transaction).decode(
                run.frame, run.rows, events, nth, *table.key, transaction.is_copy, self._room
            )
        except Exception as error:
            wrong = self._unreadable(table, transaction, error)
            if self._options.set_aside is None or not isinstance(wrong, UndecodableValue):
                raise wrong from error
            nth_after = self._pass_over(table, transaction, events, len(run.rows) - count, str(wrong))
        else:
            assert nth < nth_after <= end
            transaction.rows += len(run.rows) - count
        if transaction.is_copy:
            table.tally.copied += len(run.rows) - count
        else:
            table.tally.changed += len(run.rows) - count
        if self._options.events.transaction_metadata is not TransactionMetadata.OFF:
            transaction.rows_by_table[table.schema.table_id] = run.frame.collection_order
        return nth_after

    def _pass_over(self, table: StreamTable, transaction: Transaction, events: VEvents, added: int, reason: str) -> int:
        """Set aside the row that decoding failed at, after ``added`` others; returns the event to go on with, which may have
        more rows. The row's place in the transaction's order stays its own, so that a replay gives every other row the order it
        had: a new run begins after it."""
        decoder, schema = table.decoder_of(transaction), table.schema
        assert self._options.set_aside is not None
        transaction.rows += added + 1
        row, column = decoder.row, schema.columns[decoder.column].name
        self._options.set_aside(
            UndecodedRow(
                source=self._options.source,
                source_partition=self._options.source_partition,
                database=schema.table_id.database,
                table=schema.table_id.table,
                column=column,
                schema_version=schema.version,
                reason=reason,
                transaction_id=transaction.id,
                order=transaction.row_order,
                file=transaction.shard.name,
                position=0,
                row=row,
                images=decoder.pass_over(events),
            )
        )
        self.flush()
        return decoder.event

    def _unreadable(self, table: StreamTable, transaction: Transaction, error: Exception) -> Exception:
        decoder, schema = table.decoder_of(transaction), table.schema
        where = f"shard {transaction.shard.name}, transaction {transaction.shard.gtid.gtid}"
        if isinstance(error, ImagesAbsent):
            return UndecodableValue(
                f"{schema.table_id} at row {decoder.row}: vtgate sent a change with neither the row before nor the row after "
                f"({where}); copy the table again, and report it to Vitess"
            )
        if decoder.cells != len(schema.columns):
            return SchemaContradiction(
                f"{schema.table_id}: vtgate sent a row of {decoder.cells} values where its FIELD event has "
                f"{len(schema.columns)} columns ({where}): {OTHER_SCHEMA_REMEDY}"
            )
        column = schema.columns[decoder.column]
        if isinstance(error, ValueAbsent):
            return UndecodableValue(
                f"{schema.table_id}.{column.name} at row {decoder.row}: the log does not hold the value ({where}); set "
                "binlog_row_image=full and an empty binlog_row_value_options on the tablets' MySQL servers, then copy the "
                "table again"
            )
        return UndecodableValue(
            f"{schema.table_id}.{column.name} at row {decoder.row}: the value does not fit its type {column.source_type} "
            f"({where}); repair the row at the source, or exclude the table"
        )

    def _has_boundaries(self, transaction: Transaction) -> bool:
        settings = self._options.events
        return (
            settings.transaction_metadata is not TransactionMetadata.OFF
            and not settings.filter_transaction_topic
            and not transaction.is_copy
        )

    def _open_run(self, table: StreamTable, transaction: Transaction) -> _OpenRun:
        self._room = _MAX_RUN_BYTES
        if self._has_boundaries(transaction) and not transaction.has_begun:
            transaction.has_begun = True
            self._batch.add_begin(transaction.id, transaction.began_at_us or transaction.committed_at_us)
        run = self._batch.open_run(
            RowRun(
                table_id=table.schema.table_id,
                schema_version=table.schema.version,
                transaction_id="" if transaction.is_copy else transaction.id,
                first_order=transaction.row_order
                if transaction.is_copy
                else msgspec.structs.replace(transaction.order, tx_ordinal=transaction.rows + 1),
                committed_at_us=transaction.committed_at_us,
                is_snapshot=transaction.is_copy,
                for_tenants=self._options.for_tenants,
            )
        )
        return _OpenRun(table, run, run.rows, self._frame(table, transaction))

    def _frame(self, table: StreamTable, transaction: Transaction) -> EventFrame:
        snapshot = b'"false"'
        if transaction.is_copy:
            snapshot = b'"incremental"' if self._options.is_recopy else b'"true"'
        source = b',"source":' + table.source_block.filled(
            time_us=transaction.committed_at_us, snapshot=snapshot, vgtid=transaction.local_id_json
        )
        ends = self._ends()
        metadata = self._options.events.transaction_metadata
        if metadata is TransactionMetadata.OFF or transaction.is_copy:
            return EventFrame(source, b',"transaction":null', ends)
        identity = b"" if "transaction.id" in self._removed else b'"id":%b,' % transaction.id_json
        frame = EventFrame(
            source, b',"transaction":{' + identity + b'"total_order":', ends, self._order_members(transaction) + b"}"
        )
        frame.total_order = transaction.rows
        frame.collection_order = transaction.rows_by_table.get(table.schema.table_id, 0)
        return frame

    def _ends(self) -> tuple[bytes, ...]:
        """The ends of a create, an update, a delete and a read: the same for all that is taken in one tick."""
        if self._tails is None:
            self._tails = tuple(event_tail(op, self.now_ns, removed=self._removed) for op in "cudr")
        return self._tails

    def _order_members(self, transaction: Transaction) -> bytes:
        if self._options.events.transaction_metadata is not TransactionMetadata.ORDERED:
            return b""
        members = (
            ("transaction_epoch", b"%d" % transaction.shard.epoch),
            ("transaction_rank", orjson.dumps(unscaled_to_base64(transaction.shard.debezium_rank))),
        )
        return b"".join(
            b',"%b":%b' % (name.encode(), value)
            for name, value in members
            if f"transaction.{name}" not in self._removed
        )
