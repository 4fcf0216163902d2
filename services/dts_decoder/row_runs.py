"""Rows of messages into runs of the batch: their values, the frame around them, and the rows that cannot be decoded."""

import time
from collections.abc import Iterator
from typing import Final

from libs.events.batch import BatchBuilder, RowRun
from libs.events.envelope import event_tail, json_text, source_tail
from libs.events.run_rows import RunRows
from libs.types.order import EventOrder
from services.dts_decoder.assembly import WholeMessage
from services.dts_decoder.header_text import text_of
from services.dts_decoder.message_tables import MessageTable
from services.dts_decoder.messages import EntryReader
from services.dts_decoder.row_changes import EntryFrame
from services.dts_decoder.set_aside import TakeAside, entry_of_row, refuse
from services.dts_decoder.transaction import Transaction
from services.dts_decoder.values import undecodable

_MAX_RUN_BYTES: Final = 500_000
"""A run is closed at about so many bytes, so that a transaction of one table can be cut into batches too."""


class RowRuns:
    """The run that is open in a batch."""

    def __init__(self, batch: BatchBuilder, take_aside: TakeAside | None, *, transaction_metadata: bool) -> None:
        self._batch = batch
        self._take_aside = take_aside
        self._transaction_metadata = transaction_metadata
        self._run: tuple[MessageTable, RowRun] | None = None
        self._tails = _tails(time.time_ns())

    def tick(self, now_ns: int) -> None:
        """The time that the next rows are marked with as processed."""
        self._tails = _tails(now_ns)

    def flush(self) -> None:
        """Close the open run, so that the batch can be taken; decoding goes on with a new one."""
        self._run = None
        self._batch.close_run()

    def end(self, transaction: Transaction) -> None:
        """The transaction's END event, where its settings have one."""
        if self._transaction_metadata and transaction.counts.delivered:
            self._batch.add_end(transaction.id, transaction.committed_at_us, tuple(transaction.counts.by_table.items()))

    def decode(
        self, message: WholeMessage, reader: EntryReader, table: MessageTable, transaction: Transaction, place: int
    ) -> Iterator[None]:
        """The entry's rows from ``place`` on, and those of entries like it after it."""
        decoder = table.decoder
        frame = self._frame(table, transaction, reader)
        decoder.row = 0
        while place < reader.event_end:
            rows = self._run_of(table, transaction)
            read_before, count = decoder.rows_read, len(rows)
            try:
                decoder.decode(frame, rows, reader, place)
            except Exception as error:
                wrong = undecodable(table.schema, decoder, error)
                if self._take_aside is None or decoder.place <= decoder.row_begin:
                    raise wrong from error
                bad = reader.piece(decoder.row_begin, decoder.place)
                row, name = entry_of_row(reader, bad), str(table.schema.table_id)
                refuse(self._take_aside, message, reader.entries - 1, str(wrong), row, table=name)
                decoder.row += 1
                decoder.rows_read += 1
            transaction.counts.delivered += len(rows) - count
            transaction.counts.read += decoder.rows_read - read_before
            if self._transaction_metadata:
                transaction.counts.by_table[table.schema.table_id] = frame.collection_order
            place = decoder.place
            if decoder.room < 0:
                self.flush()
                message.release(place)
                yield None

    def _run_of(self, table: MessageTable, transaction: Transaction) -> RunRows:
        """Rows of one table that stand side by side in a transaction share a run."""
        if self._run is not None and self._run[0] is table and self._batch.is_open(self._run[1]):
            return self._run[1].rows
        table.decoder.room = _MAX_RUN_BYTES
        if self._transaction_metadata and not transaction.has_begin_event:
            transaction.has_begin_event = True
            self._batch.add_begin(transaction.id, transaction.committed_at_us)
        run = self._batch.open_run(
            RowRun(
                table_id=table.schema.table_id,
                schema_version=table.schema.version,
                transaction_id=transaction.id,
                first_order=EventOrder(
                    epoch=transaction.order.epoch,
                    rank=transaction.order.rank,
                    tx_ordinal=transaction.counts.delivered + 1,
                ),
                committed_at_us=transaction.committed_at_us,
                is_snapshot=False,
            )
        )
        self._run = (table, run)
        return run.rows

    def _frame(self, table: MessageTable, transaction: Transaction, reader: EntryReader) -> EntryFrame:
        pieces = table.source_block.pieces(
            snapshot=b'"false"',
            server_id=reader.server_id,
            gtid=transaction.id_json if transaction.gtid else b"null",
            file=json_text(text_of(reader.file_name)),
        )
        tail = source_tail(transaction.thread_id)
        if not self._transaction_metadata:
            return EntryFrame(pieces, tail + b',"transaction":null', self._tails)
        frame = EntryFrame(
            pieces, tail + b',"transaction":{"id":%b,"total_order":' % transaction.id_json, self._tails, b"}"
        )
        frame.total_order = transaction.counts.delivered
        frame.collection_order = transaction.counts.by_table.get(table.schema.table_id, 0)
        return frame


def _tails(now_ns: int) -> tuple[bytes, bytes, bytes]:
    """The ends of a create, an update and a delete."""
    create, update, delete = (event_tail(op, now_ns) for op in "cud")
    return create, update, delete
