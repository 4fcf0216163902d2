"""A committed transaction as the entries of a batch: runs of rows of one table, as Debezium's events.

A row is decoded here for the first time, so nothing that was rolled back is ever decoded.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from libs.oracle.log_rows import ROW_ENDS, Operation
from libs.oracle.redo_values import Expression, Quoted, RedoValue, UnreadableRedo, text_of
from libs.oracle.undo import UndoContradiction
from libs.types.table import TableId, TableSchema
from services.logminer_reader.gather import Gatherer
from services.logminer_reader.lacking_values import HeldChanges, Rereading
from services.logminer_reader.log_steps import Committed
from services.logminer_reader.row_changes import RowChange, row_changes, values_of
from services.logminer_reader.row_runs import RowRuns
from services.logminer_reader.table_version import TableVersion
from services.logminer_reader.transactions import OpenTransaction, StoredRow


class Schemas(Protocol):
    """The versions of the captured tables."""

    def schema_of(self, object_id: int, object_version: int) -> TableSchema | None:
        """The version that a row was written under; None: nobody captures its table, or the number is unknown.

        Raises:
            SchemaUnknown: a captured table's definition is lost.
        """
        ...

    def note_object(self, object_id: int, owner: str, table: str) -> bool:
        """The name that the log gives with an unknown number; whether it is a captured table's.

        Raises:
            SchemaUnknown: a captured table's definition was not in the log.
        """
        ...


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
        rereading: Rereading | None = None,
        signal_table: str | None,
        transaction_metadata: bool,
    ) -> None:
        """``database``: of the events' source block. ``names``: tables by the numbers that the log gave with their names.

        ``rereading``: has the values that the log lacks; None: nobody has.
        """
        self._schemas = schemas
        self._names = names
        self._runs = RowRuns(
            source,
            database,
            gatherer,
            epoch=epoch,
            unavailable=unavailable,
            reads_again=rereading is not None,
            transaction_metadata=transaction_metadata,
        )
        self._rereading = rereading
        self._signal_table = signal_table
        self._signals: list[tuple[object, ...]] = []
        self.events = 0
        """Of the transaction that was gathered last."""

    def gather(self, committed: Committed) -> Iterator[None]:
        """Put a transaction into the batch. Yields where the batch is so full that it has to be taken within the transaction.

        Raises:
            UndoContradiction: its rows do not fit each other; nothing was gathered.
            UndecodableValue: a row cannot be read, and no row may be left out.
        """
        runs, signal_table = self._runs, self._signal_table
        runs.begin(committed)
        tables: dict[tuple[int, int], TableVersion | None] = {}

        def table_of(row: StoredRow) -> TableVersion | None:
            place = row.object_id, row.object_version
            return tables[place] if place in tables else tables.setdefault(place, self._table(row))

        held: HeldChanges | None = None
        for nth, change in enumerate(row_changes(committed.transaction)):
            table = table_of(change.rows[0])
            if table is None:
                continue
            if signal_table is not None and str(table.schema.table_id) == signal_table:
                self._take_signal(table, change)
            if table.lacking or not (held is None or held.is_empty):
                held = held or HeldChanges(committed.transaction, committed.scn, table_of)
                held.add(nth, table, change)
                yield from self._deliver(held, is_last=False)
            else:
                yield from self._add(table, change)
        if held is not None:
            yield from self._deliver(held, is_last=True)
        yield from runs.flush()
        self.events = runs.end()

    def is_slow(self, committed: Committed) -> bool:
        """``gather`` may ask the source, and blocks meanwhile."""
        return self._rereading is not None and self.has_large(committed.transaction)

    def has_large(self, transaction: OpenTransaction) -> bool:
        """It changes rows of tables whose values the log may hold apart from their rows."""
        schemas = (self._schema(*place) for place in transaction.versions)
        return any(schema is not None and bool(self._runs.table(schema).plain.large) for schema in schemas)

    def gather_or_leave_out(self, committed: Committed) -> Iterator[None]:
        """As ``gather``; a transaction that contradicts itself is left out, row by row.

        Raises:
            UndecodableValue: as ``gather``, or it contradicts itself and no row may be left out.
        """
        try:
            yield from self.gather(committed)
        except UndoContradiction as error:
            self.leave_out(committed, f"transaction {committed.transaction.xid.hex()} contradicts itself: {error}")

    def leave_out(self, committed: Committed, why: str) -> None:
        """A transaction that cannot be delivered, row by row.

        Raises:
            UndecodableValue: no row may be left out.
        """
        self._runs.begin(committed)
        for row in committed.transaction.stored():
            table = self._table(row)
            if table is not None and row.operation != ROW_ENDS:
                self._runs.leave_out(table, row, why)
        self.events = self._runs.end()

    def taken_signals(self) -> list[tuple[object, ...]]:
        """Rows that were inserted into the signal table since this was asked last: id, type, data."""
        signals, self._signals = self._signals, []
        return signals

    def _deliver(self, held: HeldChanges, *, is_last: bool) -> Iterator[None]:
        """The changes that wait, once they are many, or the last ones."""
        rereading = self._rereading
        if rereading is None or not (is_last or held.is_full(rereading.batch_rows)):
            return
        for each in held.take(rereading):
            if each.found is None:
                yield from self._add(each.table, each.change)
            else:
                yield from self._runs.add_assembled(each.table, each.change, each.found)

    def _add(self, table: TableVersion, change: RowChange) -> Iterator[None]:
        runs = self._runs
        if not change.is_statement:
            yield from runs.add_assembled(table, change)
        elif not runs.add(table, change):
            yield from runs.flush()
            runs.add(table, change)

    def _table(self, row: StoredRow) -> TableVersion | None:
        """None: nobody captures it."""
        schema = self._schema(row.object_id, row.object_version)
        return None if schema is None else self._runs.table(schema)

    def _schema(self, object_id: int, object_version: int) -> TableSchema | None:
        schema = self._schemas.schema_of(object_id, object_version)
        name = self._names.get(object_id)
        if schema is None and name is not None and self._schemas.note_object(object_id, name.database, name.table):
            schema = self._schemas.schema_of(object_id, object_version)
        return schema

    def _take_signal(self, table: TableVersion, change: RowChange) -> None:
        """A row that was inserted; no other change of the table is a signal."""
        if change.operation != Operation.INSERT:
            return
        try:
            values = values_of(change).after
        except UnreadableRedo:  # the row itself fails by name
            return
        self._signals.append(tuple(_plain_text(values.get(column.name)) for column in table.schema.columns))


def _plain_text(value: RedoValue) -> str | None:
    """None: NULL, or the log lacks it."""
    return text_of(value) if isinstance(value, Quoted | Expression) else None
