"""The tables of a source at its reader's place: each version durable in schema_history before a row of it is published.

One class for every kind of source. A ``SchemaDialect`` is what the kinds differ in: a table's key, its values' forms, and
the event that a schema change becomes.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from libs.events.batch import OP_TRUNCATE, BatchBuilder, RowRun
from libs.events.envelope import event_tail
from libs.events.schema_change import SchemaChangeKind
from libs.failpoints import failpoint
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.key_columns import KeyColumns
from libs.telemetry import metrics
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from libs.types.table import TableId, TableSchema
from libs.types.value_modes import ValueModes

_CREATING: Final = (SchemaChangeKind.SNAPSHOT, SchemaChangeKind.CREATE)


class SchemaDialect(Protocol):
    """A kind of source, as far as its tables' schemas are concerned. Plain functions: no method asks a server."""

    def as_set(self, schema: TableSchema, modes: ValueModes, key_columns: Sequence[KeyColumns]) -> TableSchema:
        """``schema`` with the values' forms and the key that a source's settings give it."""
        ...

    def schema_change_key(self, table_id: TableId) -> bytes:
        """Key of the event of a schema change. ``table_id``: without a table for a statement about a whole database."""
        ...

    def schema_change_value(
        self, table_id: TableId, schema: TableSchema | None, *, kind: str, ddl: str, source_block: bytes, ts_ms: int
    ) -> bytes:
        """Value of the event of one statement, and of one table after it.

        Args:
            table_id: the table; without a table name, or without either name, for a statement about more.
            schema: the table afterwards; None where it is gone, or where the statement is about more.
            kind: CREATE, ALTER, DROP, TRUNCATE; empty: the statement is about no single table.
            ddl: the statement.
            source_block: the ``source`` object as JSON.
            ts_ms: now, in milliseconds since 1970.
        """
        ...


def is_made_again(kind: SchemaChangeKind, recorded: TableSchema) -> bool:
    """Whether a statement made a table that was there before: its rows of then went with a DROP or a RENAME, of which there is
    no event. A truncation removes them at the tenants. ``recorded``: the table's version by that statement."""
    return kind is SchemaChangeKind.CREATE and recorded.version > 1


class TableSchemas:
    """Schemas by table, of captured tables and of those beside them that are followed."""

    def __init__(
        self,
        dialect: SchemaDialect,
        partition: SourcePartition,
        history: SchemaHistoryClient,
        batch: BatchBuilder,
        is_captured: Callable[[TableId], bool],
        modes: ValueModes,
        key_columns: Sequence[KeyColumns] = (),
    ) -> None:
        self._dialect = dialect
        self._source = partition.source
        self._changes = metrics.READER_SCHEMA_CHANGES.labels(partition.source, partition.name)
        self._history = history
        self._batch = batch
        self._is_captured = is_captured
        self._modes = modes
        self._key_columns = key_columns
        self.schemas: dict[TableId, TableSchema] = {}

    @property
    def captured(self) -> list[TableSchema]:
        """Of the captured tables, by name."""
        return [schema for table_id, schema in sorted(self.schemas.items()) if self._is_captured(table_id)]

    def is_captured(self, table_id: TableId) -> bool:
        """Its rows are published."""
        return self._is_captured(table_id)

    def as_set(self, schema: TableSchema) -> TableSchema:
        """See ``SchemaDialect.as_set``."""
        return self._dialect.as_set(schema, self._modes, self._key_columns)

    async def resume(self, order: EventOrder) -> None:
        """As they were at ``order``."""
        known = await self._history.list_tables(self._source, order)
        self.schemas = {schema.table_id: schema for schema in known}

    def publish(
        self,
        table_id: TableId,
        ddl: str,
        *,
        order: EventOrder,
        committed_at_us: int,
        source_block: bytes,
        is_snapshot: bool,
        kind: str = "",
        database_tables: Sequence[str] = (),
    ) -> None:
        """Put a statement that makes no version into the batch: of a whole database (``table_id`` without a table), of the
        server (without either), or a DROP (``kind``) that goes before a snapshot's tables."""
        self._batch.add_table_change(
            table_id,
            schema_version=0,
            order=order,
            committed_at_us=committed_at_us,
            is_snapshot=is_snapshot,
            key=self._dialect.schema_change_key(table_id),
            value=self._value(table_id, None, kind=kind, ddl=ddl, source_block=source_block),
            database_tables=database_tables,
        )

    def publish_database(
        self, database: str, ddl: str, *, order: EventOrder, committed_at_us: int, source_block: bytes
    ) -> None:
        """A CREATE, ALTER or DROP DATABASE at its place in the log, before its tables are gone."""
        tables = [table_id.table for table_id in sorted(self.schemas) if table_id.database == database]
        captured = [table for table in tables if self._is_captured(TableId(database=database, table=table))]
        if captured or self._is_captured(TableId(database=database, table="")):
            self.publish(
                TableId(database=database, table=""),
                ddl,
                order=order,
                committed_at_us=committed_at_us,
                source_block=source_block,
                is_snapshot=False,
                database_tables=captured,
            )

    async def record(
        self,
        table_id: TableId,
        kind: SchemaChangeKind,
        schema: TableSchema | None,
        *,
        order: EventOrder,
        position: SourcePosition,
        committed_at_us: int,
        ddl: str,
        source_block: bytes,
        renamed_from: TableId | None = None,
        has_event: bool = True,
    ) -> None:
        """Make a change durable in the history, put it into force, and into the batch where the table is captured.

        ``has_event``: with an event of its own in the schema-change topic.

        Raises:
            DefinitionTooLarge: for the history; nothing was recorded.
        """
        if schema is not None:
            schema = self.as_set(schema)
        version = await self._history.record_schema_change(
            source=self._source,
            table_id=table_id,
            kind=kind,
            order=order,
            position=position,
            committed_at_us=committed_at_us,
            ddl=ddl,
            table_schema=schema,
            renamed_from=renamed_from,
        )
        failpoint("reader_after_schema_recorded_before_publish")
        if schema is None:
            self.schemas.pop(table_id, None)
        else:
            schema = self.schemas[table_id] = msgspec.structs.replace(schema, version=version)
        if not self._is_captured(table_id):
            return
        self._changes.inc()
        self._batch.add_table_change(
            table_id,
            schema_version=version if schema is not None else 0,
            order=order,
            committed_at_us=committed_at_us,
            is_snapshot=kind is SchemaChangeKind.SNAPSHOT,
            key=self._dialect.schema_change_key(table_id),
            value=self._value(
                table_id,
                schema,
                kind="CREATE" if kind in _CREATING else kind.name,
                ddl=ddl,
                source_block=source_block,
            )
            if has_event
            else b"",
        )

    def append_truncate(
        self, schema: TableSchema, *, transaction_id: str, order: EventOrder, committed_at_us: int, source_block: bytes
    ) -> None:
        """Every row of a table is gone: one event, in its place in the log."""
        run = self._batch.open_run(
            RowRun(
                table_id=schema.table_id,
                schema_version=schema.version,
                transaction_id=transaction_id,
                first_order=msgspec.structs.replace(order, tx_ordinal=1),
                committed_at_us=committed_at_us,
                is_snapshot=False,
            )
        )
        tail = event_tail("t", time.time_ns())
        value = b'{"before":null,"after":null,"source":%b,"transaction":null%b' % (source_block, tail)
        run.rows.append(OP_TRUNCATE, b"", value)
        self._batch.close_run()

    def _value(
        self, table_id: TableId, schema: TableSchema | None, *, kind: str, ddl: str, source_block: bytes
    ) -> bytes:
        ts_ms = time.time_ns() // 1_000_000
        return self._dialect.schema_change_value(
            table_id, schema, kind=kind, ddl=ddl, source_block=source_block, ts_ms=ts_ms
        )
