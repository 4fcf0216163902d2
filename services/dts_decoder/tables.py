"""The tables of a subscription: learned from the server or from messages, changed by DDL, each version durable in its history.

``source`` calls this where the decoder hands out a statement or a table that it does not know; nothing after it is decoded
before the new schemas are durable.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import structlog

from libs.errors import PipelineHalted, SourceMisconfigured
from libs.events.batch import BatchBuilder
from libs.events.envelope import MysqlSourceBlock, json_text, source_place, source_tail
from libs.events.schema_change import SchemaChangeKind
from libs.mysql.ddl import (
    TableChange,
    TableChangeKind,
    apply_database_ddl,
    apply_ddl,
    changed_database,
    depends_on_session,
    show_create_to_schema,
    unseen_rows,
)
from libs.mysql.ddl_syntax import DdlNotUnderstood, StatementContext
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.kept_faults import lift_for_no_rows
from libs.source.mysql.client import connect
from libs.source.mysql.settings import DatabaseSettings
from libs.source.mysql.snapshot import (
    ReadView,
    captured_tables,
    database_charsets,
    statement_context,
    table_definitions,
)
from libs.source.mysql.table_schemas import MYSQL_SCHEMAS, learn_tables
from libs.source.mysql.unseen_changes import redefined_unseen, renamed_unseen
from libs.source.table_schemas import TableSchemas, is_made_again
from libs.source.unseen_policy import UnseenPolicy
from libs.source.unseen_rows import report_unseen_rows
from libs.types.order import EventOrder
from libs.types.position import SourcePartition
from libs.types.table import TableId, TableSchema
from libs.types.unseen_rows import UnseenRows
from libs.types.value_modes import ValueModes
from services.dts_decoder.found import DdlStatement, UnknownTable
from services.dts_decoder.position import SOURCE_KIND, DtsPosition, encode_position
from services.dts_decoder.values import schema_of_columns

log = structlog.get_logger()

_LEARNED: Final = "/* learned from the columns of a message */"


class SubscribedTables:
    """Schemas of the subscription's tables at the decoder's place."""

    def __init__(
        self,
        partition: SourcePartition,
        database: DatabaseSettings | None,
        history: SchemaHistoryClient,
        batch: BatchBuilder,
        is_captured: Callable[[TableId], bool],
        modes: ValueModes,
        policies: Sequence[UnseenPolicy] = (),
    ) -> None:
        """``policies``: ``on_unseen_change``."""
        self._policies = policies
        self._source, self._source_partition = partition.source, partition.name
        self._database = database
        self._is_captured = is_captured
        self._tables = TableSchemas(MYSQL_SCHEMAS, partition, history, batch, is_captured, modes)
        self._context = StatementContext()
        self._charsets: Mapping[str, str] = {}

    @property
    def schemas(self) -> dict[TableId, TableSchema]:
        """Of every table that is known."""
        return self._tables.schemas

    @property
    def captured(self) -> list[TableSchema]:
        """Of the captured tables, by name."""
        return self._tables.captured

    async def resume(self, order: EventOrder) -> None:
        """As they were at ``order``."""
        await self._tables.resume(order)

    async def learn_context(self) -> None:
        """Take the server's settings that give statements their meaning; the defaults where there is no server to ask."""
        if self._database is None:
            return
        connection = await asyncio.to_thread(connect, self._database)
        try:
            self._context = await asyncio.to_thread(statement_context, connection)
            self._charsets = await asyncio.to_thread(database_charsets, connection)
        finally:
            connection.close()

    async def learn_all(self, view: ReadView, position: DtsPosition) -> AsyncIterator[None]:
        """Record every table beside a captured one as it is now; published at the front of the snapshot. Yields wherever the
        batch may be taken.

        Raises:
            SourceMisconfigured: nothing is captured.
        """
        tables = await asyncio.to_thread(captured_tables, view.connection)
        databases = {table.database for table in tables if self._is_captured(table)}
        if not databases:
            raise SourceMisconfigured(
                "no table of the source matches include_tables: correct the pattern (it must match database.table)"
            )
        learned = learn_tables(
            self._tables,
            view.connection,
            (table for table in tables if table.database in databases),
            order=view.order,
            position=encode_position(position),
            taken_at_us=view.taken_at_us,
            source_block=lambda database, table: self._source_block(
                database, table, position, view.taken_at_us, is_snapshot=True, server_id=0, gtid=""
            ),
        )
        async for _ in learned:
            yield

    async def learn_one(self, unknown: UnknownTable) -> dict[TableId, TableSchema | None]:
        """A table that is met for the first time in its own rows: only where no server describes the tables.

        Raises:
            PipelineHalted: a server describes the tables, and not this one.
        """
        if self._database is not None:
            raise PipelineHalted(
                f"{unknown.table_id}: there are rows, and neither the snapshot nor a DDL statement brought the table: "
                "re-snapshot the source, or exclude the table"
            )
        schema = schema_of_columns(TableSchema(table_id=unknown.table_id, columns=()), unknown.columns)
        await self._record(unknown.table_id, SchemaChangeKind.CREATE, schema, unknown, ddl=_LEARNED)
        return {unknown.table_id: self.schemas[unknown.table_id]}

    async def apply(self, ddl: DdlStatement) -> dict[TableId, TableSchema | None]:
        """The tables after a statement, durable; None: the table is gone."""
        applied: dict[TableId, TableSchema | None] = {}
        changes, database = await self._changes_of(ddl)
        if database is not None:
            self._tables.publish_database(
                database,
                ddl.statement,
                order=ddl.order,
                committed_at_us=ddl.committed_at_us,
                source_block=self._block_of(ddl, TableId(database=database, table="")),
            )
        for change in changes:
            if change.kind is TableChangeKind.TRUNCATE:
                if self._is_captured(change.table_id) and change.table_id in self.schemas:
                    self._append_truncate(ddl, self.schemas[change.table_id])
                    lift_for_no_rows(self._source, str(change.table_id))
                continue
            for table_id, kind, schema in _records_of(change):
                renamed_from = change.previous_id if kind is SchemaChangeKind.ALTER else None
                await self._record(
                    table_id,
                    kind,
                    schema,
                    ddl,
                    ddl=ddl.statement,
                    renamed_from=renamed_from,
                    has_event=database is None,
                )
                made = applied[table_id] = self.schemas.get(table_id)
                if made is not None and self._is_captured(table_id) and is_made_again(kind, made):
                    self._append_truncate(ddl, made)
        for table_id, made in applied.items():
            if made is None:
                lift_for_no_rows(self._source, str(table_id))
        return applied

    def _append_truncate(self, ddl: DdlStatement, schema: TableSchema) -> None:
        self._tables.append_truncate(
            schema,
            transaction_id=ddl.gtid,
            order=ddl.order,
            committed_at_us=ddl.committed_at_us,
            source_block=self._block_of(ddl, schema.table_id),
        )

    async def _changes_of(self, ddl: DdlStatement) -> tuple[Sequence[TableChange], str | None]:
        """And the database that the statement is about, if it is about one. Where the text is not understood, the server is
        asked how the tables are now; without one that halts."""
        try:
            self._charsets = apply_database_ddl(self._charsets, ddl.database, ddl.statement, context=self._context)
            changes = apply_ddl(
                self.schemas, ddl.database, ddl.statement, database_charsets=self._charsets, context=self._context
            )
            self._refuse_two_meanings(ddl, changes)
            # A table renamed from one that is not followed is known to the server alone.
            unknown = [
                change.table_id
                for change in changes
                if change.kind is TableChangeKind.RENAME
                and change.schema is None
                and self._is_captured(change.table_id)
            ]
            learned = await self._as_they_are(unknown)
            by_statement = unseen_rows(ddl.database, ddl.statement, tables=self.schemas, context=self._context)
            is_strict = self._context.sql_mode.is_strict
            renamed = renamed_unseen(changes, self.schemas, self._is_captured, is_strict=is_strict)
            self._report_unseen([*filter(None, [by_statement]), *renamed], ddl)
            known = [change for change in changes if not learned or change.table_id not in unknown]
            return [*known, *learned], changed_database(ddl.database, ddl.statement, context=self._context)
        except DdlNotUnderstood as error:
            concerned = [table_id for table_id in error.table_ids if self._is_captured(table_id)]
            if not concerned and error.table_ids:
                return (), None
            if self._database is None or not concerned:
                raise
            log.warning("ddl_not_understood", reason=str(error), gtid=ddl.gtid)
            now = await self._as_they_are(concerned)
            is_strict = self._context.sql_mode.is_strict
            self._report_unseen(redefined_unseen(now, self.schemas, is_strict=is_strict), ddl)
            return now, None

    def _refuse_two_meanings(self, ddl: DdlStatement, changes: Sequence[TableChange]) -> None:
        """Messages do not carry the session's ``sql_mode`` and ``time_zone``. Where there is no server to ask, a statement
        has the meaning of a session with default settings in UTC.

        Raises:
            DdlNotUnderstood: the statement's tables depend on them.
        """
        if self._database is not None and depends_on_session(
            changes,
            self.schemas,
            ddl.database,
            ddl.statement,
            database_charsets=self._charsets,
            context=self._context,
        ):
            concerned = tuple(change.table_id for change in changes)
            raise DdlNotUnderstood("it depends on the session's sql_mode or time_zone", concerned)

    async def _as_they_are(self, tables: Sequence[TableId]) -> list[TableChange]:
        """As the server defines them now; none where there is no server to ask."""
        if self._database is None or not tables:
            return []
        definitions = await asyncio.to_thread(table_definitions, self._database, tables)
        return [_as_it_is(table_id, definitions.get(table_id)) for table_id in tables]

    def _report_unseen(self, found: Iterable[UnseenRows], ddl: DdlStatement) -> None:
        for each in found:
            report_unseen_rows(
                each,
                source=self._source,
                source_partition=self._source_partition,
                is_captured=self._is_captured,
                at=ddl.gtid,
                policies=self._policies,
            )

    async def _record(
        self,
        table_id: TableId,
        kind: SchemaChangeKind,
        schema: TableSchema | None,
        found: DdlStatement | UnknownTable,
        *,
        ddl: str,
        renamed_from: TableId | None = None,
        has_event: bool = True,
    ) -> None:
        await self._tables.record(
            table_id,
            kind,
            schema,
            order=found.order,
            position=encode_position(found.position),
            committed_at_us=found.committed_at_us,
            ddl=ddl,
            source_block=self._block_of(found, table_id),
            renamed_from=renamed_from,
            has_event=has_event,
        )

    def _block_of(self, found: DdlStatement | UnknownTable, table_id: TableId) -> bytes:
        return self._source_block(
            table_id.database,
            table_id.table or None,
            found.position,
            found.committed_at_us,
            is_snapshot=False,
            server_id=found.server_id,
            gtid=found.gtid,
        )

    def _source_block(
        self,
        database: str,
        table: str | None,
        position: DtsPosition,
        time_us: int,
        *,
        is_snapshot: bool,
        server_id: int,
        gtid: str,
    ) -> bytes:
        head = MysqlSourceBlock(self._source, database, table, connector=SOURCE_KIND).head(
            time_us=time_us,
            snapshot=b'"true"' if is_snapshot else b'"false"',
            server_id=server_id,
            gtid=json_text(gtid) if gtid else b"null",
            file=json_text(position.file),
            sequence=b'"%d"' % position.seq_id if position.seq_id else b"null",
        )
        return head + source_place(position.pos, 0) + source_tail(None)


def _as_it_is(table_id: TableId, definition: tuple[str, str] | None) -> TableChange:
    if definition is None:
        return TableChange(TableChangeKind.DROP, table_id, None)
    return TableChange(TableChangeKind.ALTER, table_id, show_create_to_schema(table_id, *definition))


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
            if change.schema is not None:  # None: renamed from a table that was not known; its rows bring it
                yield change.table_id, SchemaChangeKind.ALTER, change.schema
        case _:
            yield change.table_id, SchemaChangeKind.ALTER, change.schema
