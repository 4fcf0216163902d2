"""Rows events as runs of the batch: rows of one table and transaction, with the common parts of their values."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from libs.errors import UndecodableValue
from libs.events.batch import BatchBuilder, RowRun
from libs.events.dead_letter import UndecodedRow
from libs.events.envelope import event_tail, json_text, source_tail
from libs.events.run_rows import RunRows
from libs.formats.row_images import EventFrame
from libs.mysql import binlog_events as events
from libs.mysql.packets import Packets
from libs.mysql.row_image import undecodable
from libs.types.order import EventOrder
from libs.types.table import TableId
from services.binlog_reader.log_place import LogPlace
from services.binlog_reader.log_tables import LogTables, MappedTable
from services.binlog_reader.position import SOURCE_PARTITION
from services.binlog_reader.transaction import Transaction

_MAX_RUN_BYTES: Final = 500_000
"""A run is closed at about so many bytes of JSON, so that a transaction of one table can be cut into batches too."""


class WatchesRows(Protocol):
    """The part of ``decode.LogWatch`` that is about rows."""

    def rows_begin(self, table_id: TableId, rows: RunRows) -> None:
        """Rows of a table will be written into ``rows`` until the next call of any of the watch's methods."""
        ...


@dataclass(frozen=True, slots=True)
class OpenRun:
    """Rows of one table and transaction that are being gathered."""

    table: MappedTable
    run: RowRun
    rows: RunRows
    """Of ``run``."""
    frame: EventFrame


class RowRuns:
    """The run that the log's rows go into."""

    def __init__(
        self,
        source: str,
        tables: LogTables,
        place: LogPlace,
        batch: BatchBuilder,
        *,
        transaction_metadata: bool,
        takes_alone: bool,
        set_aside: Callable[[UndecodedRow], None] | None,
        watch: WatchesRows | None,
    ) -> None:
        """``takes_alone``: each rows event by itself, because some are skipped."""
        self._source = source
        self._tables = tables
        self._place = place
        self._batch = batch
        self._transaction_metadata = transaction_metadata
        self._takes_alone = takes_alone
        self._set_aside = set_aside
        self._watch = watch
        self._run: OpenRun | None = None
        self._run_number = b""
        """Under which the open run's table was mapped last."""
        self._room = 0
        self.tick(time.time_ns())

    def tick(self, now_ns: int) -> None:
        """The time that the next events are marked with as processed."""
        create, update, delete = (event_tail(op, now_ns) for op in "cud")
        self._tails = create, update, delete

    @property
    def is_long(self) -> bool:
        """The open run has as many bytes as a run may have."""
        return self._room < 0

    def close(self) -> None:
        """Rows that follow are a run of their own."""
        self._run = None
        self._batch.close_run()

    def end(self, transaction: Transaction) -> None:
        """A transaction has no more rows."""
        if self._transaction_metadata and transaction.rows:
            events_by_table = tuple(transaction.rows_by_table.items())
            self._batch.add_end(transaction.gtid, transaction.committed_at_us, events_by_table)

    def run_of(self, transaction: Transaction | None, data: bytes, place: int) -> OpenRun | None:
        """The open run for a rows event's table; None: nobody captures it.

        Whoever takes the batch, or puts something else into it, closes the run; then another one is opened.
        """
        body = place + events.HEADER_BYTES
        number = data[body : body + events.TABLE_ID_BYTES]
        table = self._tables.by_number[number]
        if table is None or transaction is None or transaction.is_passed:
            return None
        run = self._run
        if run is None or run.table is not table or not self._batch.is_open(run.run):
            run = self._run = self._open_run(table, transaction, data, place)
        self._run_number = number
        return run

    def decode(self, run: OpenRun, transaction: Transaction, log: Packets, first: int, checksum_bytes: int) -> int:
        """Decode a rows event and those of the same table after it; returns the number of the event to go on with."""
        decoder, tables = run.table.decoder, self._tables
        whole, offset = log, first
        if self._takes_alone:  # the decoder takes all rows events that stand side by side
            log, first = Packets(log.data, [log[first]]), 0
        try:
            nth, decoded, self._room = decoder.decode(
                run.frame, run.rows, log, first, self._run_number, tables.last_map, checksum_bytes, self._room
            )
        except Exception as error:
            nth = self._pass_over(run, transaction, log, self._failure(run.table, transaction, error), checksum_bytes)
            return nth if log is whole else nth + offset
        if nth == first:
            raise UndecodableValue(f"{run.table.schema.table_id}: a rows event is cut off at {self._place.now}")
        if log is not whole:
            nth += offset
        transaction.rows += decoded
        if self._transaction_metadata:
            transaction.rows_by_table[run.table.schema.table_id] = run.frame.collection_order
        return nth

    def _failure(self, table: MappedTable, transaction: Transaction, error: Exception) -> UndecodableValue:
        decoder = table.decoder
        failure = UndecodableValue(
            f"{undecodable(table.schema, decoder, error)} "
            f"(transaction {transaction.gtid}, {self._place.at(decoder.position)})"
        )
        failure.__cause__ = error
        return failure

    def _pass_over(
        self, run: OpenRun, transaction: Transaction, log: Packets, failure: UndecodableValue, checksum_bytes: int
    ) -> int:
        """Set aside the row that ``failure`` is of; returns the number of the event to go on with.

        Its place in the transaction's order stays its own, so a replay gives every other row the order it had.
        """
        decoder, schema = run.table.decoder, run.table.schema
        if self._set_aside is None:
            raise failure
        transaction.rows += decoder.added + 1
        if self._transaction_metadata:
            transaction.rows_by_table[schema.table_id] = run.frame.collection_order
        row, column = decoder.row, schema.columns[decoder.column].name
        images, has_more = decoder.pass_over(log, checksum_bytes)
        self._set_aside(
            UndecodedRow(
                source=self._source,
                source_partition=SOURCE_PARTITION,
                database=schema.table_id.database,
                table=schema.table_id.table,
                column=column,
                schema_version=schema.version,
                reason=str(failure),
                transaction_id=transaction.gtid,
                order=EventOrder(
                    epoch=transaction.order.epoch, rank=transaction.order.rank, tx_ordinal=transaction.rows
                ),
                file=self._place.file,
                position=decoder.position,
                row=row,
                images=images,
            )
        )
        self.close()
        return decoder.event if has_more else decoder.event + 1

    def _open_run(self, table: MappedTable, transaction: Transaction, data: bytes, place: int) -> OpenRun:
        """Rows events of one table that stand side by side in a transaction share a run."""
        self._room = _MAX_RUN_BYTES
        if self._transaction_metadata and not transaction.has_begun:
            transaction.has_begun = True
            self._batch.add_begin(transaction.gtid, transaction.committed_at_us)
        run = self._batch.open_run(
            RowRun(
                table_id=table.schema.table_id,
                schema_version=table.schema.version,
                transaction_id=transaction.gtid,
                first_order=EventOrder(
                    epoch=transaction.order.epoch, rank=transaction.order.rank, tx_ordinal=transaction.rows + 1
                ),
                committed_at_us=transaction.committed_at_us,
                is_snapshot=False,
            )
        )
        if self._watch is not None:
            self._watch.rows_begin(table.schema.table_id, run.rows)
        head = table.source_block.head(
            time_us=transaction.committed_at_us,
            snapshot=b'"false"',
            server_id=events.read_header(data, place)[2],
            gtid=transaction.gtid_json,
            file=self._place.file_json,
        )
        middle = source_tail(transaction.thread_id)
        if self._transaction_metadata:
            middle += b',"transaction":{"id":%b,"total_order":' % json_text(transaction.gtid)
            frame = EventFrame(b',"source":' + head, middle, self._tails, b"}")
            frame.total_order = transaction.rows
            frame.collection_order = transaction.rows_by_table.get(table.schema.table_id, 0)
        else:
            frame = EventFrame(b',"source":' + head, middle + b',"transaction":null', self._tails)
        return OpenRun(table, run, run.rows, frame)
