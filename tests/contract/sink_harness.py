"""Real sinks over real warehouses, for ``libs.testing.sink_contract``."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from libs.events.delivered_schema import DeliveredSchema
from libs.sink_state.progress import ReachedPosition
from libs.testing.sink_contract import LENIENT, Row, RowChange
from libs.types.order import EventOrder
from libs.types.table import Column, TableSchema
from libs.types.tenant import ChangePolicies, Deletes, SinkMode
from libs.types.value import UNAVAILABLE_VALUE
from libs.types.warehouse import WarehouseTable, warehouse_table
from libs.warehouse.dialect import DIALECTS
from libs.warehouse.spark_types import spark_type
from spark.batch.events_at_hand import Decoders, EventsAtHand
from spark.batch.side_by_side import side_by_side
from spark.kafka.read_topics import events_of
from spark.sinks.port import (
    BatchIdentity,
    KeyBounds,
    MergesRows,
    Reached,
    RowsAtHand,
    ShowsTogether,
    Sink,
    SinkColumn,
    SinkTable,
)
from spark.sinks.ready_table import ready_table
from spark.transforms.conform_to import conform_to
from spark.transforms.fill import fill_of
from spark.transforms.local_rows import local_rows
from spark.transforms.log_images import name_image
from spark.transforms.mark_deleted import mark_deleted
from spark.transforms.parse_events import parse_events
from spark.transforms.partial_rows import split_unavailable
from spark.transforms.warehouse_columns import TableColumn, Truncation
from tests.unit.spark.events import COMMITTED_AT_US, RECORD_COLUMNS, SOURCE, Change, Record, delivered, events

QUERY: Final = "contract-query"
POSITION: Final = ReachedPosition(source_partition="-80,80-", order="0:9", position={"vgtid": "[]"})
REACHED: Final = Reached(order="0:9", committed_at_us=COMMITTED_AT_US, offsets={0: 5, 1: 7}, positions=(POSITION,))

ReadRows = Callable[[WarehouseTable], list[Row]]


class WarehouseHarness:
    """See ``libs.testing.sink_contract.SinkHarness``."""

    def __init__(
        self,
        spark: SparkSession,
        sink: Sink,
        read_rows: ReadRows,
        tenant: str,
        *,
        holds_nul: bool = True,
        is_at_hand: bool = False,
    ) -> None:
        self.holds_nul = holds_nul
        """Whether a text may hold the character U+0000."""
        self.merged_at_hand = 0
        """How many batches went by ``MergesRows``: those that may, if ``is_at_hand``."""
        self.tells_first_rows = True
        """Whether the sink is given notice of batches whose rows may all be new; else it merges each."""
        self._decoders = Decoders() if is_at_hand else None
        self.kind = next(kind for kind, dialect in DIALECTS.items() if dialect == sink.dialect)
        """By the name of the registry."""
        self._spark = spark.newSession()  # as Spark gives every query one
        self.sink = sink
        self._read_rows = read_rows
        self._tenant = tenant
        self._query = f"{QUERY}-{tenant}"
        self._batches = itertools.count(1_000)
        self._delivered_schemas: dict[str, dict[int, TableSchema]] = {}

    def apply(
        self,
        schema: TableSchema,
        *changes: RowChange,
        mode: SinkMode = SinkMode.MIRROR,
        deletes: Deletes = Deletes.HARD,
        truncated_at: int | None = None,
        batch_id: int | None = None,
        policies: ChangePolicies = LENIENT,
    ) -> bool:
        batch = BatchIdentity(self._query, next(self._batches) if batch_id is None else batch_id)
        self.sink.begin_batch(self._spark, batch)
        return self._apply_table(batch, schema, changes, mode, deletes, truncated_at, policies)

    def apply_resync(
        self,
        schema: TableSchema,
        *changes: RowChange,
        mode: SinkMode = SinkMode.MIRROR,
        deletes: Deletes = Deletes.HARD,
        batch_id: int | None = None,
    ) -> bool:
        batch = BatchIdentity(self._query, next(self._batches) if batch_id is None else batch_id)
        self.sink.begin_batch(self._spark, batch)
        return self._apply_table(batch, schema, changes, mode, deletes, None, LENIENT, is_resynced=True)

    def apply_at_once(self, batches: Sequence[tuple[TableSchema, Sequence[RowChange]]]) -> None:
        batch = BatchIdentity(self._query, next(self._batches))
        self.sink.begin_batch(self._spark, batch)

        def apply(part: tuple[TableSchema, Sequence[RowChange]]) -> bool:
            return self._apply_table(batch, part[0], part[1], SinkMode.MIRROR, Deletes.HARD, None, LENIENT)

        assert all(side_by_side(self._spark, apply, batches, len(batches)))

    def apply_together(
        self, tables: Sequence[tuple[TableSchema, Sequence[RowChange]]], *, batch_id: int, shows: bool
    ) -> None:
        """One batch of a tenant whose tables move together; one that is cut off before it is shown, if not ``shows``."""
        assert isinstance(self.sink, ShowsTogether)
        batch = BatchIdentity(self._query, batch_id)
        self.sink.begin_batch(self._spark, batch)
        with self.sink.staged_batch(self._spark):
            for schema, changes in tables:
                self._apply_table(batch, schema, changes, SinkMode.MIRROR, Deletes.HARD, None, LENIENT)
            if shows:
                self.sink.show_together(self._spark, self._tenant, [self.place(schema) for schema, _ in tables])

    def is_applied(self, schema: TableSchema, batch_id: int, *, offsets: Mapping[int, int] = REACHED.offsets) -> bool:
        batch = BatchIdentity(self._query, batch_id)
        return self.sink.is_applied(self._spark, self.place(schema), batch, offsets)

    def is_applied_of_another_query(self, schema: TableSchema, batch_id: int) -> bool:
        batch = BatchIdentity("another", batch_id)
        return self.sink.is_applied(self._spark, self.place(schema), batch, REACHED.offsets)

    def maintain(self, schema: TableSchema) -> None:
        self.sink.maintain(self._spark, self.place(schema))

    def drop_tables(self) -> int:
        return self.sink.drop_tables(self._spark, self._tenant)

    def of_another_tenant(self) -> "WarehouseHarness":
        return WarehouseHarness(self._spark, self.sink, self._read_rows, f"{self._tenant}-b", holds_nul=self.holds_nul)

    def rows(self, schema: TableSchema) -> list[Row]:
        return self._read_rows(self.place(schema))

    def append_records(self, schema: TableSchema, records: Sequence[Record]) -> None:
        """One batch of whole Kafka records into an append table."""
        self.sink.begin_batch(self._spark, BatchIdentity(self._query, next(self._batches)))
        table = self.sink_table(schema, SinkMode.APPEND, Deletes.HARD)
        _, columns = ready_table(self._spark, self.sink, [table])
        found = events_of(local_rows(self._spark, records, RECORD_COLUMNS))
        rows = found.transform(parse_events(schema)).transform(conform_to(columns, schema))
        self.sink.append_to(self._spark, table, rows.transform(name_image))

    def place(self, schema: TableSchema) -> WarehouseTable:
        return warehouse_table(self._tenant, SOURCE, schema.table_id)

    def sink_table(
        self, schema: TableSchema, mode: SinkMode, deletes: Deletes, policies: ChangePolicies = LENIENT
    ) -> SinkTable:
        delivered = self._delivered_schemas.setdefault(str(schema.table_id), {})
        delivered[schema.version] = schema
        return SinkTable(
            name=self.place(schema),
            mode=mode,
            deletes=deletes,
            columns=tuple(_sink_column(item, schema) for item in schema.columns),
            key=schema.key,
            topic=self._delivered(schema).topic,
            source=SOURCE,
            table=str(schema.table_id),
            schema=schema,
            oldest_version=1,
            reached=REACHED,
            policies=policies,
            schema_at=delivered.get,
        )

    def _apply_table(
        self,
        batch: BatchIdentity,
        schema: TableSchema,
        changes: Sequence[RowChange],
        mode: SinkMode,
        deletes: Deletes,
        truncated_at: int | None,
        policies: ChangePolicies,
        *,
        is_resynced: bool = False,
    ) -> bool:
        table = self.sink_table(schema, mode, deletes, policies)
        if self.sink.is_applied(self._spark, table.name, batch, table.reached.offsets):
            return False
        table, columns = ready_table(self._spark, self.sink, [table])
        found = events(self._spark, table.topic, [_change(change, schema) for change in changes])
        is_partial = any(UNAVAILABLE_VALUE in change.row.values() for change in changes)
        if is_partial:
            found = found.transform(split_unavailable)
        rows = found.transform(parse_events(schema)).transform(conform_to(columns, schema, is_partial=is_partial))
        if mode is SinkMode.APPEND and is_resynced:
            self.sink.replace_entries(self._spark, table, rows.transform(name_image))
            return True
        if mode is SinkMode.APPEND:
            self.sink.append_to(self._spark, table, rows.transform(name_image))
            return True
        bounds = None if truncated_at else _key_bounds(table.key, columns, changes)
        table = dataclasses.replace(
            table,
            key_bounds=bounds,
            are_first=self.tells_first_rows and truncated_at is None and all(each.op in "cr" for each in changes),
            is_copy=any(each.op == "r" for each in changes),
            changes=len(changes),
        )
        truncation = None
        if truncated_at is not None:
            order = EventOrder(epoch=0, rank=truncated_at, tx_ordinal=1).sort_key()
            truncation = Truncation(order, COMMITTED_AT_US + truncated_at)
        if deletes is Deletes.SOFT:
            rows = rows.transform(mark_deleted(truncation))
        is_simple = truncation is None and not is_partial and not is_resynced and bool(changes and schema.key)
        marks = deletes is Deletes.SOFT and any(change.op == "d" for change in changes)
        if is_simple and not marks and self._merged_at_hand(table, columns, found):
            return True
        if is_resynced:
            self.sink.replace_rows(self._spark, table, rows)
        else:
            self.sink.merge_into(self._spark, table, rows, truncation=truncation)
        return True

    def _merged_at_hand(self, table: SinkTable, columns: Mapping[str, TableColumn], found: DataFrame) -> bool:
        if self._decoders is None or table.key != table.schema.key:
            return False
        assert isinstance(self.sink, MergesRows)
        decoder = self._decoders.of(self._spark, table.topic, table.schema, columns, table.deletes)
        assert decoder is not None
        at_hand = EventsAtHand(found, {table.topic: 1})
        rows = RowsAtHand(decoder.row_type, lambda: at_hand.take(table.topic, decoder.projections))
        commit = self.sink.merge_rows(self._spark, table, rows)
        if commit is None:
            return False
        commit()
        self.merged_at_hand += 1
        return True

    def _delivered(self, schema: TableSchema) -> DeliveredSchema:
        return delivered(self._tenant, schema)


def _change(change: RowChange, schema: TableSchema) -> Change:
    key = {name: change.row[name] for name in schema.key}
    is_delete = change.op == "d"
    return Change(
        op=change.op,
        rank=change.rank,
        after=None if is_delete else change.row,
        before=change.row if is_delete else None,
        key=key or None,
        version=schema.version,
    )


def _key_bounds(
    key: Sequence[str], columns: Mapping[str, TableColumn], changes: Sequence[RowChange]
) -> KeyBounds | None:
    """As the job knows them from the events."""
    if not changes or len(key) != 1 or key[0] not in columns or columns[key[0]].sql_type not in ("int", "bigint"):
        return None
    numbers = [change.row[key[0]] for change in changes if type(change.row.get(key[0])) is int]
    if len(numbers) < len(changes):
        return None
    return KeyBounds(key[0], min(numbers), max(numbers))


def _sink_column(item: Column, schema: TableSchema) -> SinkColumn:
    fill = fill_of(item, [schema])
    return SinkColumn(item.name, spark_type(item), item.comment, fill, item.logical_type, is_optional=item.is_optional)
