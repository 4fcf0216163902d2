"""The tables of a MySQL source at its reader's place: each version durable in schema_history before a row of it is published.

Every reader whose events are those of MySQL has one: it learns tables from the server, records what DDL makes of them, and
writes both into the batch, in log order.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import chain, groupby
from typing import Final

import msgspec

from libs.errors import DefinitionTooLarge
from libs.events.batch import OP_TRUNCATE, BatchBuilder, RowRun
from libs.events.envelope import event_tail
from libs.events.schema_change import SchemaChangeKind
from libs.failpoints import failpoint
from libs.mysql.ddl import show_create_to_schema
from libs.mysql.identifiers import quote_identifier, quote_table
from libs.mysql.logical import in_value_modes
from libs.mysql.row_key import row_key
from libs.mysql.schema_change_event import schema_change_key, schema_change_value
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.key_columns import KeyColumns, chosen_key
from libs.source.mysql.client import Connection
from libs.source.mysql.snapshot import create_statement, database_collations
from libs.telemetry import metrics
from libs.types.order import EventOrder
from libs.types.position import SourcePartition, SourcePosition
from libs.types.table import TableId, TableSchema
from libs.types.value_modes import ValueModes

_CREATING: Final = (SchemaChangeKind.SNAPSHOT, SchemaChangeKind.CREATE)


def as_source_has_it(schema: TableSchema, modes: ValueModes, key_columns: Sequence[KeyColumns]) -> TableSchema:
    """``schema`` with the values' forms and the key that a source's settings give it."""
    schema = in_value_modes(schema, modes)
    names = (column.name for column in schema.columns)
    key = chosen_key(schema.table_id, names, key_columns) or row_key(schema)
    return schema if key == schema.key else msgspec.structs.replace(schema, key=key)


def is_made_again(kind: SchemaChangeKind, recorded: TableSchema) -> bool:
    """Whether a statement made a table that was there before: its rows of then went with a DROP or a RENAME, of which there is
    no event. A truncation removes them at the tenants. ``recorded``: the table's version by that statement."""
    return kind is SchemaChangeKind.CREATE and recorded.version > 1


class TableSchemas:
    """Schemas by table, of captured tables and of those beside them that are followed."""

    def __init__(
        self,
        partition: SourcePartition,
        history: SchemaHistoryClient,
        batch: BatchBuilder,
        is_captured: Callable[[TableId], bool],
        modes: ValueModes,
        key_columns: Sequence[KeyColumns] = (),
    ) -> None:
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

    def as_set(self, schema: TableSchema) -> TableSchema:
        """See ``as_source_has_it``."""
        return as_source_has_it(schema, self._modes, self._key_columns)

    async def resume(self, order: EventOrder) -> None:
        """As they were at ``order``."""
        known = await self._history.list_tables(self._source, order)
        self.schemas = {schema.table_id: schema for schema in known}

    async def learn(
        self,
        connection: Connection,
        tables: Iterable[TableId],
        *,
        order: EventOrder,
        position: SourcePosition,
        taken_at_us: int,
        source_block: Callable[[str, str | None], bytes],
        refuse: Callable[[TableId, DefinitionTooLarge], None] | None = None,
    ) -> AsyncIterator[None]:
        """Record ``tables`` as the server shows them now, and put them at the front of the snapshot as Debezium does: the
        server's charset, what may have been there goes, then each database and its captured tables come.

        Yields wherever the batch may be taken: of tens of thousands of tables it would grow beyond all bounds.
        ``source_block`` is given a database and a table, or none. ``refuse`` is given a table whose definition the history
        cannot hold, and the others go on; without it that halts.

        A table that changes between the view and this is found out when its rows are read: MySQL refuses the view then.
        """
        by_database = {name: list(each) for name, each in groupby(sorted(tables), key=lambda table: table.database)}
        collations = await asyncio.to_thread(database_collations, connection)

        def publish(table_id: TableId, ddl: str, told: Sequence[str] = (), *, kind: str = "") -> None:
            self.publish(
                table_id,
                ddl,
                order=order,
                committed_at_us=taken_at_us,
                source_block=source_block(table_id.database, table_id.table or None),
                is_snapshot=True,
                kind=kind,
                database_tables=told,
            )

        charset, collation = collations[""]
        publish(TableId(database="", table=""), f"SET character_set_server={charset}, collation_server={collation}")
        captured = {name: [each for each in group if self._is_captured(each)] for name, group in by_database.items()}
        for table_id in chain.from_iterable(captured.values()):
            publish(table_id, f"DROP TABLE IF EXISTS {quote_table(table_id)}", kind="DROP")
            yield
        for name, group in by_database.items():
            charset, collation = collations.get(name, collations[""])
            quoted, told = quote_identifier(name), [table_id.table for table_id in captured[name]]
            for ddl in (
                f"DROP DATABASE IF EXISTS {quoted}",
                f"CREATE DATABASE {quoted} CHARSET {charset} COLLATE {collation}",
                f"USE {quoted}",
            ):
                publish(TableId(database=name, table=""), ddl, told)
            for table_id in group:
                statement, charset = await asyncio.to_thread(create_statement, connection, table_id)
                try:
                    await self.record(
                        table_id,
                        SchemaChangeKind.SNAPSHOT,
                        show_create_to_schema(table_id, statement, charset),
                        order=order,
                        position=position,
                        committed_at_us=taken_at_us,
                        ddl=statement,
                        source_block=source_block(name, table_id.table),
                    )
                except DefinitionTooLarge as error:
                    if refuse is None:
                        raise
                    refuse(table_id, error)
                yield

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
            key=schema_change_key(table_id.database),
            value=schema_change_value(
                source_block=source_block,
                ts_ms=time.time_ns() // 1_000_000,
                database=table_id.database,
                ddl=ddl,
                table_id=table_id if kind else None,
                schema=None,
                kind=kind,
            ),
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
            key=schema_change_key(table_id.database),
            value=schema_change_value(
                source_block=source_block,
                ts_ms=time.time_ns() // 1_000_000,
                database=table_id.database,
                ddl=ddl,
                table_id=table_id,
                schema=schema,
                kind="CREATE" if kind in _CREATING else kind.name,
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
