"""A committed transaction as the entries of a batch: runs of rows of one table, as Debezium's events.

A row is decoded here for the first time, so nothing that was rolled back is ever decoded.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from libs.errors import UndecodableValue
from libs.events.batch import BatchBuilder, RowRun
from libs.events.dead_letter import UndecodedRow
from libs.events.envelope import OracleSourceBlock, event_tail, json_text
from libs.oracle.log_position import commit_order
from libs.oracle.log_rows import ROW_ENDS, Operation
from libs.oracle.undo import UndoContradiction
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from services.logminer_reader.gather import Gatherer
from services.logminer_reader.log_steps import Committed
from services.logminer_reader.position import SOURCE_PARTITION
from services.logminer_reader.row_changes import RowChange, row_changes
from services.logminer_reader.table_rows import RowEvent, TableRows, UnreadableColumn, plain_text
from services.logminer_reader.transactions import StoredRow

_MAX_RUN_ROWS: Final = 500
"""A run is closed at so many rows, so that a transaction of one table can be cut into batches too."""
_LETTERS: Final = {ord("D"): "d", ord("C"): "c"}
"""``op`` of the events of a key change."""


class Schemas(Protocol):
    """The versions of the captured tables."""

    def schema_of(self, object_id: int, object_version: int) -> TableSchema | None:
        """The version that a row was written under; None: nobody captures its table, or the number is unknown.

        Raises:
            SchemaUnknown: a captured table's definition is lost.
        """
        ...

    def note_object(self, object_id: int, owner: str, table: str) -> bool:
        """The name that the log gives with an unknown number; whether it is a captured table's."""
        ...


@dataclass(slots=True)
class _Delivery:
    """A transaction whose events are being gathered."""

    committed: Committed
    xid: str
    order: EventOrder
    """Of its beginning."""
    events: int = 0
    counts: dict[TableId, int] = field(default_factory=dict)
    run: RowRun | None = None
    table: TableRows | None = None
    """Of ``run``."""
    pieces: tuple[bytes, ...] = ()
    """Of the ``source`` blocks of ``run``, between the parts that are a row's own."""


class TransactionDecoder:
    """Gathers transactions, one after another, in the order of their commits."""

    def __init__(
        self,
        source: str,
        database: str,
        schemas: Schemas,
        gatherer: Gatherer,
        names: Mapping[int, TableId],
        *,
        epoch: int,
        unavailable: str | None,
        signal_table: str | None,
        transaction_metadata: bool,
    ) -> None:
        """``database``: of the events' source block. ``names``: tables by the numbers that the log gave with their names."""
        self._source = source
        self._database = database
        self._schemas = schemas
        self._gatherer = gatherer
        self._names = names
        self._epoch = epoch
        self._unavailable = unavailable
        self._signal_table = signal_table
        self._signals: list[tuple[object, ...]] = []
        self._transaction_metadata = transaction_metadata
        self._tables: dict[tuple[TableId, int], tuple[TableRows, OracleSourceBlock]] = {}
        self.events = 0
        """Of the transaction that was gathered last."""

    def gather(self, committed: Committed) -> Iterator[None]:
        """Put a transaction into the batch. Yields where the batch is so full that it has to be taken within the transaction.

        Raises:
            UndoContradiction: its rows do not fit each other; nothing was gathered.
            UndecodableValue: a row cannot be read, and no row may be left out.
        """
        delivery = self._delivery(committed)
        entries = self._gatherer.entries
        for change in row_changes(committed.transaction):
            schema = self._schema_of(change.row)
            if schema is not None:
                self._gather_change(delivery, change, schema)
                if entries.is_overfull:
                    yield
        entries.close_run()
        self.events = delivery.events
        if self._transaction_metadata and delivery.counts:
            entries.add_end(delivery.xid, committed.time_us, tuple(delivery.counts.items()))

    def gather_or_leave_out(self, committed: Committed) -> Iterator[None]:
        """As ``gather``; a transaction that contradicts itself is left out, row by row.

        Raises:
            UndecodableValue: as ``gather``, or it contradicts itself and no row may be left out.
        """
        try:
            yield from self.gather(committed)
        except UndoContradiction as error:
            transaction = committed.transaction
            delivery = self._delivery(committed)
            failure = UnreadableColumn("", f"transaction {transaction.xid.hex()} contradicts itself: {error}")
            for row in transaction.stored():
                schema = self._schema_of(row)
                if schema is not None and row.operation != ROW_ENDS:
                    self._pass_over(delivery, RowChange(row, Operation(row.operation), row.row_id), schema, failure)

    def taken_signals(self) -> list[tuple[object, ...]]:
        """Rows that were inserted into the signal table since this was asked last: id, type, data."""
        signals, self._signals = self._signals, []
        return signals

    def _delivery(self, committed: Committed) -> _Delivery:
        order = commit_order(self._epoch, committed.scn, committed.nth)
        return _Delivery(committed, committed.transaction.xid.hex(), order)

    def _schema_of(self, row: StoredRow) -> TableSchema | None:
        schema = self._schemas.schema_of(row.object_id, row.object_version)
        name = self._names.get(row.object_id)
        if schema is None and name is not None and self._schemas.note_object(row.object_id, name.database, name.table):
            schema = self._schemas.schema_of(row.object_id, row.object_version)
        return schema

    def _gather_change(self, delivery: _Delivery, change: RowChange, schema: TableSchema) -> None:
        table, block = self._table(schema)
        try:
            events = table.events(change)
        except UnreadableColumn as error:
            self._pass_over(delivery, change, schema, error)
            return
        run = self._run(delivery, table, block, self._gatherer.entries)
        if str(schema.table_id) == self._signal_table and change.operation is Operation.INSERT:
            self._signals.append(tuple(plain_text(change.after.get(column.name)) for column in schema.columns))
        for event in events:
            delivery.events += 1
            source = _source_block(delivery, change)
            delivery.counts[schema.table_id] = delivery.counts.get(schema.table_id, 0) + 1
            run.rows.append(event.op, event.key, self._value(delivery, schema.table_id, event, source))

    def _table(self, schema: TableSchema) -> tuple[TableRows, OracleSourceBlock]:
        place = schema.table_id, schema.version
        found = self._tables.get(place)
        if found is None:
            block = OracleSourceBlock(self._source, self._database, schema.table_id.database, schema.table_id.table)
            found = self._tables[place] = TableRows(schema, self._unavailable), block
        return found

    def _run(self, delivery: _Delivery, table: TableRows, block: OracleSourceBlock, entries: BatchBuilder) -> RowRun:
        run = delivery.run
        if run is not None and delivery.table is table and entries.is_open(run) and len(run.rows) < _MAX_RUN_ROWS:
            return run
        if self._transaction_metadata and not delivery.counts:
            entries.add_begin(delivery.xid, delivery.committed.time_us)
        order = delivery.order
        committed = delivery.committed
        delivery.table = table
        delivery.pieces = block.pieces(
            snapshot=b'"false"',
            transaction_id=delivery.xid,
            commit_scn=committed.scn,
            user=committed.transaction.user,
            commit_ts_ms=committed.time_us // 1_000,
            start_scn=committed.transaction.first_scn,
            start_ts_ms=committed.transaction.first_time_us // 1_000,
        )
        delivery.run = entries.open_run(
            RowRun(
                table_id=table.schema.table_id,
                schema_version=table.schema.version,
                transaction_id=delivery.xid,
                first_order=EventOrder(epoch=order.epoch, rank=order.rank, tx_ordinal=delivery.events + 1),
                committed_at_us=delivery.committed.time_us,
                is_snapshot=False,
            )
        )
        return delivery.run

    def _value(self, delivery: _Delivery, table_id: TableId, event: RowEvent, source: bytes) -> bytes:
        transaction = b"null"
        if self._transaction_metadata:
            transaction = b'{"id":%b,"total_order":%d,"data_collection_order":%d}' % (
                json_text(delivery.xid),
                delivery.events,
                delivery.counts[table_id],
            )
        tail = event_tail(_LETTERS.get(event.op, chr(event.op)), time.time_ns())
        images = event.before, event.after, source, transaction, tail
        return b'{"before":%b,"after":%b,"source":%b,"transaction":%b%b' % images

    def _pass_over(self, delivery: _Delivery, change: RowChange, schema: TableSchema, error: UnreadableColumn) -> None:
        """Set a row aside. Its place in the transaction's order stays its own, so every other row keeps its order."""
        row = change.row
        where = (
            f"{schema.table_id}{f'.{error.column}' if error.column else ''}, transaction {delivery.xid}, SCN {row.scn}, "
            f"thread {row.thread}, RS_ID {row.rs_id.strip()}, SSN {row.ssn}"
        )
        reason = f"a row cannot be read ({where}): {error}"
        if not self._gatherer.goes_on:
            raise UndecodableValue(reason) from error
        delivery.events += 1
        self._gatherer.entries.close_run()
        order = delivery.order
        self._gatherer.set_aside(
            UndecodedRow(
                source=self._source,
                source_partition=SOURCE_PARTITION,
                database=schema.table_id.database,
                table=schema.table_id.table,
                column=error.column,
                schema_version=schema.version,
                reason=reason,
                transaction_id=delivery.xid,
                order=EventOrder(epoch=order.epoch, rank=order.rank, tx_ordinal=delivery.events),
                file=f"thread {row.thread}, RS_ID {row.rs_id.strip()}",
                position=row.scn,
                row=row.ssn,
                images=row.sql.encode(),
            )
        )


def _source_block(delivery: _Delivery, change: RowChange) -> bytes:
    """The ``source`` of the delivery's newest event."""
    row, row_id = change.row, change.row_id
    own = (
        b"%d" % (row.time_us // 1_000),
        b"%d" % row.time_us,
        b"%d000" % row.time_us,
        b'"%d"' % row.scn,
        json_text(row.rs_id.strip()),
        b"%d" % row.ssn,
        b"%d" % row.thread,
        b"null" if row_id is None else json_text(row_id),
        b"%d" % delivery.events,
        b"",
    )
    return b"".join([text for pair in zip(delivery.pieces, own, strict=True) for text in pair])
