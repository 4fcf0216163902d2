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
from services.logminer_reader.log_steps import Committed
from services.logminer_reader.row_changes import RowChange, row_changes, values_of
from services.logminer_reader.row_runs import RowRuns, TableVersion
from services.logminer_reader.transactions import StoredRow


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
        self._schemas = schemas
        self._names = names
        self._runs = RowRuns(
            source,
            database,
            gatherer,
            epoch=epoch,
            unavailable=unavailable,
            transaction_metadata=transaction_metadata,
        )
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
        for change in row_changes(committed.transaction):
            row = change.rows[0]
            place = row.object_id, row.object_version
            table = tables[place] if place in tables else tables.setdefault(place, self._table(row))
            if table is None:
                continue
            if signal_table is not None and str(table.schema.table_id) == signal_table:
                self._take_signal(table, change)
            if not change.is_statement:
                yield from runs.add_assembled(table, change)
            elif not runs.add(table, change):
                yield from runs.flush()
                runs.add(table, change)
        yield from runs.flush()
        self.events = runs.end()

    def gather_or_leave_out(self, committed: Committed) -> Iterator[None]:
        """As ``gather``; a transaction that contradicts itself is left out, row by row.

        Raises:
            UndecodableValue: as ``gather``, or it contradicts itself and no row may be left out.
        """
        try:
            yield from self.gather(committed)
        except UndoContradiction as error:
            transaction = committed.transaction
            self._runs.begin(committed)
            why = f"transaction {transaction.xid.hex()} contradicts itself: {error}"
            for row in transaction.stored():
                table = self._table(row)
                if table is not None and row.operation != ROW_ENDS:
                    self._runs.leave_out(table, row, why)
            self.events = self._runs.end()

    def taken_signals(self) -> list[tuple[object, ...]]:
        """Rows that were inserted into the signal table since this was asked last: id, type, data."""
        signals, self._signals = self._signals, []
        return signals

    def _table(self, row: StoredRow) -> TableVersion | None:
        """None: nobody captures it."""
        schema = self._schemas.schema_of(row.object_id, row.object_version)
        name = self._names.get(row.object_id)
        if schema is None and name is not None and self._schemas.note_object(row.object_id, name.database, name.table):
            schema = self._schemas.schema_of(row.object_id, row.object_version)
        return None if schema is None else self._runs.table(schema)

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
