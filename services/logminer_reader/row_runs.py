"""Changes of committed transactions as Debezium's events, in runs of rows of one version of a table.

A change that one statement of the log holds waits for others of its table: ``libs.oracle.redo`` decodes them together.
"""

import time
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from libs.errors import UndecodableValue
from libs.events.batch import OP_CREATE, OP_DELETE, OP_UPDATE, RowRun
from libs.events.dead_letter import UndecodedRow
from libs.events.envelope import OracleSourceBlock, event_tail, json_text
from libs.oracle.log_position import commit_order
from libs.oracle.log_rows import Operation
from libs.oracle.redo import OracleFrame
from libs.oracle.redo_rows import LostValue, RedoRow, failure_reason, redo_decoder
from libs.oracle.redo_values import RedoValue
from libs.telemetry import metrics
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from services.logminer_reader.gather import Gatherer
from services.logminer_reader.lacking_values import FoundValues
from services.logminer_reader.log_steps import Committed
from services.logminer_reader.position import SOURCE_PARTITION
from services.logminer_reader.row_changes import RowChange, values_of
from services.logminer_reader.table_version import TableVersion
from services.logminer_reader.transactions import StoredRow

log = structlog.get_logger()

_MAX_RUN_ROWS: Final = 500
"""A run is closed at so many rows, so that a transaction of one table can be cut into batches too."""
_MAX_RUN_BYTES: Final = 500_000
_OPS: Final = {Operation.INSERT: OP_CREATE, Operation.UPDATE: OP_UPDATE, Operation.DELETE: OP_DELETE}
_NO_VALUES: Final = "the log holds the change, and not its values (UNSUPPORTED)"
_UNREADABLE: Final = (UndecodableValue, ValueError, ArithmeticError)
"""Errors of a row's values. Each is definite: it comes again however often the row is read."""


@dataclass(slots=True)
class _Transaction:
    """The transaction at hand."""

    committed: Committed
    xid: str
    order: EventOrder
    """Of its beginning."""
    changes: int = 0
    events: int = 0
    """A change of the key is two; one that cannot be read keeps its place."""
    events_by_table: dict[TableId, int] = field(default_factory=dict)
    has_begun: bool = False
    """Its BEGIN is in the batch."""


@dataclass(slots=True)
class _Waiting:
    """Rows that are decoded together."""

    table: TableVersion | None = None
    rows: list[RedoRow] = field(default_factory=list)
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _OpenRun:
    table: TableVersion
    run: RowRun
    frame: OracleFrame


class RowRuns:
    """Takes the changes of one transaction after another."""

    def __init__(
        self,
        source: str,
        database: str,
        gatherer: Gatherer,
        *,
        epoch: int,
        unavailable: str | None,
        reads_again: bool,
        transaction_metadata: bool,
    ) -> None:
        """``database``: of the events' source block. ``unavailable`` stands for a value that is not to be had; None: such a row
        fails. ``reads_again``: values that the log lacks come from the source."""
        self._source = source
        self._database = database
        self._gatherer = gatherer
        self._epoch = epoch
        self._unavailable = unavailable
        self._reads_again = reads_again
        self._transaction_metadata = transaction_metadata
        self._tables: dict[tuple[TableId, int], TableVersion] = {}
        self._waiting = _Waiting()
        self._open: _OpenRun | None = None

    def begin(self, committed: Committed) -> None:
        """The next changes are of this transaction. Rows that another one left waiting are forgotten."""
        order = commit_order(self._epoch, committed.scn, committed.nth)
        self._transaction = _Transaction(committed, committed.transaction.xid.hex(), order)
        self._waiting, self._open = _Waiting(), None

    def table(self, schema: TableSchema) -> TableVersion:
        """The decoder of a version, which is made once."""
        place = schema.table_id, schema.version
        found = self._tables.get(place)
        if found is None:
            block = OracleSourceBlock(self._source, self._database, schema.table_id.database, schema.table_id.table)
            decoder = redo_decoder(schema, unavailable=self._unavailable)
            lacking = frozenset(decoder.plain.large.difference(schema.key)) if self._reads_again else frozenset()
            found = TableVersion(schema, decoder, block, lacking)
            self._tables[place] = found
        return found

    def add(self, table: TableVersion, change: RowChange) -> bool:
        """Take a change that is one statement. False: it was not taken, and ``flush`` has to come first."""
        waiting = self._waiting
        if waiting.table is not table:
            if waiting.rows:
                return False
            waiting.table = table
        elif len(waiting.rows) >= _MAX_RUN_ROWS or waiting.size_bytes >= _MAX_RUN_BYTES:
            return False
        row = self._redo_row(change.rows[0], change.row_id)
        waiting.rows.append(row)
        waiting.size_bytes += len(row[0])
        return True

    def add_assembled(self, table: TableVersion, change: RowChange, found: FoundValues | None = None) -> Iterator[None]:
        """A change whose values are put together of several rows, or that has none. Yields as ``flush``, and raises so.

        ``found``: its values, some of them read at the source.
        """
        yield from self.flush()
        row = self._redo_row(change.rows[0], change.row_id)
        op = _OPS.get(Operation(change.operation))
        if op is None:
            self._pass_over(table, row, "", _NO_VALUES)
            return
        plain = table.decoder.plain
        plain.column = None
        try:
            if found is None:
                values = values_of(change)
                cells = plain.cells(op, values.before, values.after)
            else:
                self._require_found(table, row, found)
                before, after = _without(found.values.before, found.before), _without(found.values.after, found.after)
                cells = plain.cells(op, before, after, found.before, found.after)
        except _UNREADABLE as error:
            self._refuse(table, row, plain.column, error)
            return
        opened = self._opened(table)
        count = len(opened.run.rows)
        table.decoder.add_cells(opened.frame, opened.run.rows, op, row, cells.before, cells.after)
        self._count(opened, len(opened.run.rows) - count)
        if self._gatherer.entries.is_overfull:
            yield

    def _require_found(self, table: TableVersion, row: RedoRow, found: FoundValues) -> None:
        """Raises LostValue: a value is not to be had, and nothing stands for it."""
        name = table.schema.table_id
        for column, why in found.lost.items():
            if table.plain.unavailable[column] is None:
                table.plain.column = column
                raise LostValue(why)
            log.warning("value_unavailable", table=str(name), column=column, scn=row.scn, reason=why)
            metrics.ORACLE_UNAVAILABLE.labels(self._source, SOURCE_PARTITION).inc()

    def leave_out(self, table: TableVersion, row: StoredRow, why: str) -> None:
        """A row of a transaction that cannot be delivered.

        Raises:
            UndecodableValue: no row may be left out.
        """
        self._pass_over(table, self._redo_row(row, row.row_id), "", why)

    def flush(self) -> Iterator[None]:
        """Decode the waiting rows. Yields where the batch is so full that it has to be taken within the transaction.

        Raises:
            UndecodableValue: a row cannot be read, and no row may be left out.
        """
        waiting, self._waiting = self._waiting, _Waiting()
        nth = 0
        while waiting.table is not None and nth < len(waiting.rows):
            nth = self._decode(waiting.table, waiting.rows, nth)
            if self._gatherer.entries.is_overfull:
                yield

    def end(self) -> int:
        """All changes were added and flushed. Returns the number of events."""
        transaction, entries = self._transaction, self._gatherer.entries
        entries.close_run()
        if transaction.has_begun:
            counts = tuple(transaction.events_by_table.items())
            entries.add_end(transaction.xid, transaction.committed.time_us, counts)
        return transaction.events

    def _decode(self, table: TableVersion, rows: list[RedoRow], nth: int) -> int:
        """Up to the end of a run, or to a row that cannot be read. Returns the row to go on with."""
        opened = self._opened(table)
        rows_of_run, decoder = opened.run.rows, table.decoder
        count, room = len(rows_of_run), max(1, _MAX_RUN_BYTES - rows_of_run.size_bytes)
        wrong: Exception | None = None
        try:
            end = decoder.decode(opened.frame, rows_of_run, rows, nth, len(rows), room)
        except _UNREADABLE as error:
            wrong, end = error, decoder.row + 1
        self._count(opened, len(rows_of_run) - count)
        if wrong is not None:
            self._refuse(table, rows[end - 1], decoder.column, wrong)
        return end

    def _count(self, opened: _OpenRun, events: int) -> None:
        transaction, name = self._transaction, opened.table.schema.table_id
        if events:
            transaction.events += events
            transaction.events_by_table[name] = transaction.events_by_table.get(name, 0) + events
        if len(opened.run.rows) >= _MAX_RUN_ROWS or opened.run.rows.size_bytes >= _MAX_RUN_BYTES:
            self._gatherer.entries.close_run()

    def _redo_row(self, row: StoredRow, row_id: str | None) -> RedoRow:
        transaction = self._transaction
        transaction.changes = ordinal = transaction.changes + 1
        rs_id, own_id = row.rs_id.strip().encode(), b"" if row_id is None else row_id.encode()
        return RedoRow(row.sql.encode(), row.scn, row.time_us, row.thread, row.ssn, rs_id, own_id, ordinal)

    def _opened(self, table: TableVersion) -> _OpenRun:
        """The run that the table's next row belongs to."""
        entries = self._gatherer.entries
        if self._open is not None and self._open.table is table and entries.is_open(self._open.run):
            return self._open
        transaction = self._transaction
        if self._transaction_metadata and not transaction.has_begun:
            transaction.has_begun = True
            entries.add_begin(transaction.xid, transaction.committed.time_us)
        order = transaction.order
        run = entries.open_run(
            RowRun(
                table_id=table.schema.table_id,
                schema_version=table.schema.version,
                transaction_id=transaction.xid,
                first_order=EventOrder(epoch=order.epoch, rank=order.rank, tx_ordinal=transaction.events + 1),
                committed_at_us=transaction.committed.time_us,
                is_snapshot=False,
            )
        )
        self._open = _OpenRun(table, run, self._frame(table))
        return self._open

    def _frame(self, table: TableVersion) -> OracleFrame:
        """Of a run that begins with the transaction's next event."""
        transaction = self._transaction
        committed, rows = transaction.committed, transaction.committed.transaction
        pieces = table.block.pieces(
            snapshot=b'"false"',
            transaction_id=transaction.xid,
            commit_scn=committed.scn,
            user=rows.user,
            commit_ts_ms=committed.time_us // 1_000,
            start_scn=rows.first_scn,
            start_ts_ms=rows.first_time_us // 1_000,
        )
        now_ns = time.time_ns()
        ends = [event_tail(op, now_ns) for op in "cud"]
        if not self._transaction_metadata:
            return OracleFrame(pieces, b',"transaction":null', ends)
        numbered = b',"transaction":{"id":%b,"total_order":' % json_text(transaction.xid)
        frame = OracleFrame(pieces, numbered, ends, b"}")
        frame.total_order = transaction.events
        frame.collection_order = transaction.events_by_table.get(table.schema.table_id, 0)
        return frame

    def _refuse(self, table: TableVersion, row: RedoRow, column: str | None, error: Exception) -> None:
        self._pass_over(table, row, column or "", failure_reason(table.schema, column, error), error)

    def _pass_over(
        self, table: TableVersion, row: RedoRow, column: str, why: str, error: Exception | None = None
    ) -> None:
        """Set a row aside. Its place in the transaction's order stays its own, so every other row keeps its order."""
        transaction, name = self._transaction, table.schema.table_id
        log_place = f"thread {row.thread}, RS_ID {row.rs_id.decode()}"
        where = f"{name}, transaction {transaction.xid}, SCN {row.scn}, {log_place}, SSN {row.ssn}"
        reason = f"a row cannot be read ({where}): {why}"
        if not self._gatherer.goes_on:
            raise UndecodableValue(reason) from error
        transaction.events += 1
        self._gatherer.entries.close_run()
        order = transaction.order
        self._gatherer.set_aside(
            UndecodedRow(
                source=self._source,
                source_partition=SOURCE_PARTITION,
                database=name.database,
                table=name.table,
                column=column,
                schema_version=table.schema.version,
                reason=reason,
                transaction_id=transaction.xid,
                order=EventOrder(epoch=order.epoch, rank=order.rank, tx_ordinal=transaction.events),
                file=log_place,
                position=row.scn,
                row=row.ssn,
                images=row.sql,
            )
        )


def _without(values: Mapping[str, RedoValue], read: Container[str]) -> dict[str, RedoValue]:
    """Those that were not read at the source."""
    return {column: value for column, value in values.items() if column not in read}
