"""The tables of a subscription: learned from the server or from messages, changed by DDL, each version durable in its history.

``source`` calls this where the decoder hands out a statement or a table that it does not know; nothing behind it is decoded
before the new schemas are durable.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from libs.errors import PipelineHalted, SourceMisconfigured
from libs.events.batch import OP_TRUNCATE, BatchBuilder, RowRun
from libs.events.envelope import MysqlSourceBlock, event_tail, json_text, source_place, source_tail
from libs.events.schema_change import SchemaChangeKind
from libs.events.schema_change_event import schema_change_key, schema_change_value
from libs.failpoints import failpoint
from libs.mysql.ddl import TableChange, TableChangeKind, apply_database_ddl, apply_ddl, show_create_to_schema
from libs.mysql.ddl_syntax import DdlNotUnderstood, StatementContext
from libs.mysql.logical import in_value_modes
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.mysql.client import connect
from libs.source.mysql.settings import DatabaseSettings
from libs.source.mysql.snapshot import (
    ReadView,
    captured_tables,
    create_statement,
    database_charsets,
    statement_context,
)
from libs.telemetry import metrics
from libs.types.order import EventOrder
from libs.types.table import TableId, TableSchema
from libs.types.value_modes import ValueModes
from services.dts_decoder.decode import DdlStatement, UnknownTable
from services.dts_decoder.position import SOURCE_KIND, DtsPosition, encode_position
from services.dts_decoder.values import schema_of_columns

log = structlog.get_logger()

_LEARNED: Final = "/* learned from the columns of a message */"


class SubscribedTables:
    """Schemas of the subscription's tables at the decoder's place."""

    def __init__(
        self,
        source: str,
        source_partition: str,
        database: DatabaseSettings | None,
        history: SchemaHistoryClient,
        batch: BatchBuilder,
        is_captured: Callable[[TableId], bool],
        modes: ValueModes,
    ) -> None:
        self._source = source
        self._labels = (source, source_partition)
        self._database = database
        self._history = history
        self._batch = batch
        self._is_captured = is_captured
        self._modes = modes
        self._context = StatementContext()
        self._charsets: Mapping[str, str] = {}
        self.schemas: dict[TableId, TableSchema] = {}

    @property
    def captured(self) -> list[TableSchema]:
        """Of the captured tables, by name."""
        return [schema for table_id, schema in sorted(self.schemas.items()) if self._is_captured(table_id)]

    async def resume(self, order: EventOrder) -> None:
        """As they were at ``order``."""
        known = await self._history.list_tables(self._source, order)
        self.schemas = {schema.table_id: schema for schema in known}

    async def learn_context(self) -> None:
        """What the server says about the meaning of statements; the defaults where there is no server to ask."""
        if self._database is None:
            return
        connection = await asyncio.to_thread(connect, self._database)
        try:
            self._context = await asyncio.to_thread(statement_context, connection)
            self._charsets = await asyncio.to_thread(database_charsets, connection)
        finally:
            connection.close()

    async def learn_all(self, view: ReadView, position: DtsPosition) -> None:
        """Record every table beside a captured one as it is now; published at the front of the snapshot.

        Raises:
            SourceMisconfigured: nothing is captured.
        """
        tables = await asyncio.to_thread(captured_tables, view.connection)
        databases = {table.database for table in tables if self._is_captured(table)}
        if not databases:
            raise SourceMisconfigured(
                "no table of the source matches include_tables: correct the pattern (it must match database.table)"
            )
        for table_id in (table for table in tables if table.database in databases):
            statement, charset = await asyncio.to_thread(create_statement, view.connection, table_id)
            await self._record(
                table_id,
                SchemaChangeKind.SNAPSHOT,
                show_create_to_schema(table_id, statement, charset),
                order=view.order,
                position=position,
                committed_at_us=view.taken_at_us,
                ddl=statement,
            )

    async def learn_one(self, unknown: UnknownTable) -> dict[TableId, TableSchema | None]:
        """A table that is met for the first time in its own rows: only where no server tells of the tables.

        Raises:
            PipelineHalted: a server tells of the tables, and not of this one.
        """
        if self._database is not None:
            raise PipelineHalted(
                f"{unknown.table_id}: there are rows, and neither the snapshot nor a DDL statement brought the table: "
                "re-snapshot the source, or exclude the table"
            )
        schema = schema_of_columns(TableSchema(table_id=unknown.table_id, columns=()), unknown.columns)
        await self._record(
            unknown.table_id,
            SchemaChangeKind.CREATE,
            schema,
            order=unknown.order,
            position=unknown.position,
            committed_at_us=unknown.committed_at_us,
            ddl=_LEARNED,
            server_id=unknown.server_id,
            gtid=unknown.gtid,
        )
        return {unknown.table_id: self.schemas[unknown.table_id]}

    async def apply(self, ddl: DdlStatement) -> dict[TableId, TableSchema | None]:
        """What a statement makes of the tables, durable; None: the table is gone."""
        applied: dict[TableId, TableSchema | None] = {}
        for change in await self._changes_of(ddl):
            if change.kind is TableChangeKind.TRUNCATE:
                if self._is_captured(change.table_id) and change.table_id in self.schemas:
                    self._append_truncate(ddl, self.schemas[change.table_id])
                continue
            for table_id, kind, schema in _records_of(change):
                await self._record(
                    table_id,
                    kind,
                    schema,
                    order=ddl.order,
                    position=ddl.position,
                    committed_at_us=ddl.committed_at_us,
                    ddl=ddl.statement,
                    server_id=ddl.server_id,
                    gtid=ddl.gtid,
                    renamed_from=change.previous_id if kind is SchemaChangeKind.ALTER else None,
                )
                applied[table_id] = self.schemas.get(table_id)
        return applied

    async def _changes_of(self, ddl: DdlStatement) -> Sequence[TableChange]:
        """Where the text is not understood, the server is asked how the tables are now; without one that halts."""
        try:
            self._charsets = apply_database_ddl(self._charsets, ddl.database, ddl.statement, context=self._context)
            return apply_ddl(
                self.schemas, ddl.database, ddl.statement, database_charsets=self._charsets, context=self._context
            )
        except DdlNotUnderstood as error:
            concerned = [table_id for table_id in error.table_ids if self._is_captured(table_id)]
            if not concerned and error.table_ids:
                return ()
            if self._database is None or not concerned:
                raise
            log.warning("ddl_not_understood", reason=str(error), gtid=ddl.gtid)
            return await asyncio.to_thread(self._as_they_are, self._database, concerned)

    def _as_they_are(self, database: DatabaseSettings, tables: Sequence[TableId]) -> list[TableChange]:
        connection = connect(database)
        try:
            existing = set(captured_tables(connection))
            return [
                TableChange(
                    TableChangeKind.ALTER,
                    table_id,
                    show_create_to_schema(table_id, *create_statement(connection, table_id)),
                )
                if table_id in existing
                else TableChange(TableChangeKind.DROP, table_id, None)
                for table_id in tables
            ]
        finally:
            connection.close()

    async def _record(
        self,
        table_id: TableId,
        kind: SchemaChangeKind,
        schema: TableSchema | None,
        *,
        order: EventOrder,
        position: DtsPosition,
        committed_at_us: int,
        ddl: str,
        server_id: int = 0,
        gtid: str = "",
        renamed_from: TableId | None = None,
    ) -> None:
        """Make a change durable in the history, put it into force, and into the batch where it is captured."""
        is_captured = self._is_captured(table_id)
        if schema is not None:
            schema = in_value_modes(schema, self._modes)
        version = await self._history.record_schema_change(
            source=self._source,
            table_id=table_id,
            kind=kind,
            order=order,
            position=encode_position(position),
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
        if not is_captured:
            return
        metrics.READER_SCHEMA_CHANGES.labels(*self._labels).inc()
        self._batch.add_table_change(
            table_id,
            schema_version=version if schema is not None else 0,
            order=order,
            committed_at_us=committed_at_us,
            is_snapshot=kind is SchemaChangeKind.SNAPSHOT,
            key=schema_change_key(table_id.database),
            value=schema_change_value(
                source_block=self._source_block(
                    table_id,
                    position,
                    committed_at_us,
                    is_snapshot=kind is SchemaChangeKind.SNAPSHOT,
                    server_id=server_id,
                    gtid=gtid,
                ),
                ts_ms=time.time_ns() // 1_000_000,
                database=table_id.database,
                ddl=ddl,
                table_id=table_id,
                schema=schema,
                kind="CREATE" if kind in (SchemaChangeKind.SNAPSHOT, SchemaChangeKind.CREATE) else kind.name,
            ),
        )

    def _source_block(
        self, table_id: TableId, position: DtsPosition, time_us: int, *, is_snapshot: bool, server_id: int, gtid: str
    ) -> bytes:
        head = MysqlSourceBlock(self._source, table_id.database, table_id.table, connector=SOURCE_KIND).head(
            time_us=time_us,
            snapshot=b'"true"' if is_snapshot else b'"false"',
            server_id=server_id,
            gtid=json_text(gtid) if gtid else b"null",
            file=json_text(position.file),
            sequence=b'"%d"' % position.seq_id if position.seq_id else b"null",
        )
        return head + source_place(position.pos, 0) + source_tail(None)

    def _append_truncate(self, ddl: DdlStatement, schema: TableSchema) -> None:
        run = self._batch.open_run(
            RowRun(
                table_id=schema.table_id,
                schema_version=schema.version,
                transaction_id=ddl.gtid,
                first_order=msgspec.structs.replace(ddl.order, tx_ordinal=1),
                committed_at_us=ddl.committed_at_us,
                is_snapshot=False,
            )
        )
        block = self._source_block(
            schema.table_id,
            ddl.position,
            ddl.committed_at_us,
            is_snapshot=False,
            server_id=ddl.server_id,
            gtid=ddl.gtid,
        )
        value = b'{"before":null,"after":null,"source":%b,"transaction":null%b' % (
            block,
            event_tail("t", time.time_ns()),
        )
        run.rows.append(OP_TRUNCATE, b"", value)
        self._batch.close_run()


def _records_of(change: TableChange) -> Iterator[tuple[TableId, SchemaChangeKind, TableSchema | None]]:
    """A change as the history records it: a rename is the end of one name and a new version of the other."""
    match change.kind:
        case TableChangeKind.CREATE:
            yield change.table_id, SchemaChangeKind.CREATE, change.schema
        case TableChangeKind.DROP:
            yield change.table_id, SchemaChangeKind.DROP, None
        case TableChangeKind.RENAME:
            assert change.previous_id is not None
            yield change.previous_id, SchemaChangeKind.DROP, None
            if change.schema is not None:  # None: renamed from a table that was not known; its rows will tell
                yield change.table_id, SchemaChangeKind.ALTER, change.schema
        case _:
            yield change.table_id, SchemaChangeKind.ALTER, change.schema
