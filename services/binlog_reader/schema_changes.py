"""A DDL statement of the log at its place: new schemas, rows that came or went without the log, tables that are emptied."""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import msgspec
import structlog

from libs.errors import DefinitionTooLarge
from libs.events.schema_change import SchemaChangeKind
from libs.mysql.binlog_events import QueryEvent
from libs.mysql.ddl import (
    TableChange,
    TableChangeKind,
    apply_database_ddl,
    apply_ddl,
    changed_database,
    show_create_to_schema,
    unseen_rows,
)
from libs.mysql.ddl_syntax import SYSTEM_ZONE, DdlNotUnderstood, SentIn, StatementContext
from libs.mysql.sql_lexer import first_words, sql_mode_of
from libs.source.mysql.client import Connection
from libs.source.mysql.snapshot import database_charsets, statement_context, table_definitions, without_places
from libs.source.mysql.unseen_changes import redefined_unseen, renamed_unseen
from libs.source.signals import ExecuteSnapshot
from libs.source.table_schemas import is_made_again
from libs.source.unseen_policy import UnseenAction, action_for
from libs.source.unseen_rows import report_unseen_rows
from libs.types.table import TableId, TableSchema
from libs.types.unseen_rows import UnseenRows
from services.binlog_reader.decode import DdlStatement, LogDecoder
from services.binlog_reader.gather import Gatherer
from services.binlog_reader.incremental import IncrementalCopy
from services.binlog_reader.log_tables import shortened
from services.binlog_reader.position import SOURCE_PARTITION, encode_position
from services.binlog_reader.preflight import cascading_tables, look_at_cascades
from services.binlog_reader.settings import BinlogReaderSettings
from services.binlog_reader.source_schemas import SourceSchemas, source_block
from services.binlog_reader.statements import makes_rows_as_statement

log = structlog.get_logger()

_NAMES_FOREIGN_KEY: Final = re.compile(r"\b(foreign\s+key|references|constraint)\b", re.IGNORECASE)


class SchemaChanges:
    """Applies the log's statements to the tables, the copies and the decoder."""

    def __init__(
        self,
        settings: BinlogReaderSettings,
        schemas: SourceSchemas,
        gatherer: Gatherer,
        incremental: IncrementalCopy,
    ) -> None:
        self._settings = settings
        self._schemas = schemas
        self._tables = schemas.tables
        self._gatherer = gatherer
        self._incremental = incremental
        self._database_charsets: Mapping[str, str] = {}
        self._statement_context = StatementContext()
        self._to_resync: list[TableId] = []
        self.unseen_in_copy: set[str] = set()
        """Tables of which rows changed unseen after a copy had begun, which so has not read all of it."""

    def take_context(self, connection: Connection) -> None:
        """The server's settings that give statements their meaning, before the log is read. Blocks."""
        self._statement_context = statement_context(connection)
        self._database_charsets = database_charsets(connection)

    async def apply(self, decoder: LogDecoder, ddl: DdlStatement) -> None:
        """A DDL statement of the log, at its place: nothing after it is decoded before its schemas are durable."""
        changes, database = await self._changes_of(decoder, ddl)
        block_of = self._block_of(ddl)
        if database is not None:
            self._database_changed(ddl, database, block_of(database, None))
        for change in changes:
            if change.kind is TableChangeKind.TRUNCATE and self._schemas.is_captured(change.table_id):
                truncated = self._tables.schemas[change.table_id]
                self._append_truncate(ddl, truncated)
                decoder.tables.seen_again(str(change.table_id))
                self._incremental.table_changed(change.table_id, truncated, truncated)
        applied: dict[TableId, TableSchema | None] = {}
        for record in _records_of(changes, self._tables.schemas):
            if not self._schemas.is_followed(record.table_id):
                continue
            try:
                await self._record(ddl, record, block_of, is_of_database=database is not None)
            except DefinitionTooLarge as error:
                self._schemas.pass_over(decoder, record.table_id, error)
                continue
            made = applied[record.table_id] = self._tables.schemas.get(record.table_id)
            if made is not None and self._schemas.is_captured(record.table_id) and is_made_again(record.kind, made):
                self._append_truncate(ddl, made)
        self._gatherer.progress = without_places(self._gatherer.progress, decoder.tables.schemas, applied)
        for table_id, after in applied.items():
            self._incremental.table_changed(table_id, decoder.tables.schemas.get(table_id), after)
        decoder.tables.apply_schemas(applied, ddl.statement)
        cascading = cascading_tables(self._settings.source)
        if _NAMES_FOREIGN_KEY.search(ddl.statement) or cascading & {str(table_id) for table_id in applied}:
            await asyncio.to_thread(look_at_cascades, self._settings)
        self._resync_unseen(decoder, ddl)
        for table_id in filter(self._schemas.is_captured, applied):
            await self._schemas.learn_database(decoder, table_id.database)

    def _block_of(self, ddl: DdlStatement) -> Callable[[str, str | None], bytes]:
        return partial(
            source_block,
            self._settings.source,
            msgspec.structs.replace(ddl.position, pos=ddl.event_position),
            time_us=ddl.committed_at_us // 1_000 * 1_000,
            server_id=ddl.server_id,
            gtid=ddl.gtid,
        )

    def _database_changed(self, ddl: DdlStatement, database: str, block: bytes) -> None:
        if first_words(ddl.statement, sql_mode_of(ddl.query.sql_mode), count=1) == ("CREATE",):
            self._schemas.database_made(database)
        self._tables.publish_database(
            database, ddl.statement, order=ddl.order, committed_at_us=ddl.committed_at_us, source_block=block
        )

    async def _record(
        self,
        ddl: DdlStatement,
        record: "_Record",
        block_of: Callable[[str, str | None], bytes],
        *,
        is_of_database: bool,
    ) -> None:
        """Raises DefinitionTooLarge: for the history; nothing was recorded."""
        goes_on_as_captured = record.renamed_to is not None and self._schemas.is_captured(record.renamed_to)
        await self._tables.record(
            record.table_id,
            record.kind,
            record.schema,
            order=ddl.order,
            position=encode_position(ddl.position),
            committed_at_us=ddl.committed_at_us,
            ddl=ddl.statement,
            source_block=block_of(record.table_id.database, record.table_id.table),
            renamed_from=record.renamed_from,
            has_event=not is_of_database and not goes_on_as_captured,
        )

    async def _changes_of(self, decoder: LogDecoder, ddl: DdlStatement) -> tuple[Sequence[TableChange], str | None]:
        """The statement's effect, and its database, if it has one; where its text is not understood,
        the source's own definitions of the tables now.

        The source may be further than the log. Then the next table map does not fit, and the table is quarantined: no row is
        read by a wrong schema.
        """
        context = context_of(ddl.query, self._statement_context)
        try:
            charsets = self._database_charsets
            self._database_charsets = apply_database_ddl(charsets, ddl.database, ddl.statement, context=context)
            changes = apply_ddl(
                decoder.tables.schemas,
                ddl.database,
                ddl.statement,
                database_charsets=self._database_charsets,
                context=context,
            )
            # A table renamed from one that is not followed is known to the source alone.
            unknown = [c.table_id for c in changes if c.kind is TableChangeKind.RENAME and c.schema is None]
            learned = await self._changes_from_source(decoder, ddl, list(filter(self._schemas.is_followed, unknown)))
            self._report_unseen(decoder, ddl, changes, context)
            database = changed_database(ddl.database, ddl.statement, context=context)
            return [*(c for c in changes if c.table_id not in unknown), *learned], database
        except DdlNotUnderstood as error:
            concerned = [table_id for table_id in error.table_ids if self._schemas.is_followed(table_id)]
            if not concerned and error.table_ids:
                return (), None
            log.warning("ddl_not_understood", reason=str(error), transaction=ddl.transaction_id)
            if not concerned:
                raise
            now = await self._changes_from_source(decoder, ddl, concerned)
            is_strict = context.sql_mode.is_strict
            self._note_unseen(decoder, ddl, redefined_unseen(now, decoder.tables.schemas, is_strict=is_strict))
            return now, None

    def _report_unseen(
        self, decoder: LogDecoder, ddl: DdlStatement, changes: Sequence[TableChange], context: StatementContext
    ) -> None:
        """Rows that came, went or changed without the log; a chunk that has some of them is read again."""
        by_statement = unseen_rows(ddl.database, ddl.statement, tables=decoder.tables.schemas, context=context)
        renamed = renamed_unseen(
            changes,
            decoder.tables.schemas,
            self._schemas.is_captured,
            is_strict=context.sql_mode.is_strict,
            shadow_tables=self._settings.shadow_tables,
        )
        self._note_unseen(decoder, ddl, [*filter(None, [by_statement]), *renamed])

    def _note_unseen(self, decoder: LogDecoder, ddl: DdlStatement, found: Iterable[UnseenRows]) -> None:
        at = f"{ddl.transaction_id}, {ddl.position.file}:{ddl.event_position}"
        for each in found:
            for table_id in report_unseen_rows(
                each,
                source=self._settings.source,
                source_partition=SOURCE_PARTITION,
                is_captured=self._schemas.is_captured,
                at=at,
                policies=self._settings.on_unseen_change,
            ):
                decoder.tables.note_unseen(table_id, f"{each.clause} at {at}")
                if any(copy.table == str(table_id) and copy.chunks_read for copy in self._incremental.state.tables):
                    self.unseen_in_copy.add(str(table_id))
                if action_for(self._settings.on_unseen_change, table_id) is UnseenAction.RESYNC:
                    self._to_resync.append(table_id)
                if (schema := decoder.tables.schemas.get(table_id)) is not None:
                    self._incremental.table_changed(table_id, schema, schema)

    def _resync_unseen(self, decoder: LogDecoder, ddl: DdlStatement) -> None:
        """Empty the tenants' tables and read them again, where the policy says so."""
        to_resync, self._to_resync = self._to_resync, []
        for table_id in to_resync:
            schema = self._tables.schemas.get(table_id)
            if schema is None:
                continue
            self._append_truncate(ddl, schema)
            signal = ExecuteSnapshot(signal_id=f"unseen-{ddl.transaction_id}", tables=(str(table_id),))
            self._incremental.take(signal, [str(each.table_id) for each in self._tables.captured])
            log.info("unseen_rows_resync", table=str(table_id), transaction=ddl.transaction_id)

    async def _changes_from_source(
        self, decoder: LogDecoder, ddl: DdlStatement, tables: Sequence[TableId]
    ) -> list[TableChange]:
        """The source's definitions of ``tables`` now; a captured one without a usable one is quarantined."""
        definitions = await asyncio.to_thread(table_definitions, self._settings.database, tables) if tables else {}
        lacks_rows = makes_rows_as_statement(ddl.query)
        changes = []
        for table_id in tables:
            definition = definitions.get(table_id)
            reason = "its rows were logged as a statement (binlog_format is not ROW)" if lacks_rows else ""
            try:
                schema = show_create_to_schema(table_id, *definition) if definition is not None else None
            except DdlNotUnderstood as error:
                schema, reason = decoder.tables.schemas.get(table_id), str(error)
            if schema is None:
                changes.append(TableChange(TableChangeKind.DROP, table_id, None))
                continue
            changes.append(TableChange(TableChangeKind.ALTER, table_id, schema))
            if reason and self._schemas.is_captured(table_id):
                decoder.tables.quarantine(
                    table_id,
                    f"{table_id}: {reason} (transaction {ddl.transaction_id}, {ddl.position.file}:{ddl.event_position}, "
                    f"statement: {shortened(ddl.statement)}); re-snapshot the table",
                )
        return changes

    def _append_truncate(self, ddl: DdlStatement, schema: TableSchema) -> None:
        if "t" in self._settings.skipped_operations:
            return
        place = msgspec.structs.replace(ddl.position, pos=ddl.event_position)
        self._tables.append_truncate(
            schema,
            transaction_id=ddl.transaction_id,
            order=ddl.order,
            committed_at_us=ddl.committed_at_us,
            source_block=source_block(
                self._settings.source,
                place,
                schema.table_id.database,
                schema.table_id.table,
                time_us=ddl.committed_at_us,
                server_id=ddl.server_id,
                gtid=ddl.gtid,
                thread_id=ddl.thread_id,
            ),
        )


def context_of(query: QueryEvent, server: StatementContext) -> StatementContext:
    """The settings that give a statement its meaning: the session's in the log, else the server's present ones."""
    explicit = query.explicit_defaults_for_timestamp
    is_utc = query.time_zone == SYSTEM_ZONE and server.is_server_in_utc
    return replace(
        server,
        sql_mode=sql_mode_of(query.sql_mode),
        server_charset=query.server_charset or server.server_charset,
        database_charset=query.database_charset,
        sent_in=SentIn(query.client_charset, query.connection_charset, "" if is_utc else query.time_zone),
        is_of_server=query.is_of_server,
        explicit_defaults_for_timestamp=server.explicit_defaults_for_timestamp if explicit is None else explicit,
        may_have_made_nothing=not query.has_ddl_number,
        may_lack_charset=query.uses_temporary_table,
    )


@dataclass(frozen=True, slots=True)
class _Record:
    """A statement's effect on one table name, as the history keeps it."""

    table_id: TableId
    kind: SchemaChangeKind
    schema: TableSchema | None
    renamed_from: TableId | None = None
    renamed_to: TableId | None = None
    """The event under which, as with Debezium, the end of this name is sent."""


def _records_of(changes: Iterable[TableChange], before: Mapping[TableId, TableSchema]) -> Sequence[_Record]:
    """The state of each name after the statement: a rename is the end of one name and a new version of the other.

    ``RENAME TABLE t TO _t_del, _t_gho TO t``, the last step of an online schema change, is one change of ``t``.
    """
    records: dict[TableId, _Record] = {}
    for change in changes:
        if change.kind is TableChangeKind.TRUNCATE:
            continue
        if change.previous_id is not None:
            records.pop(change.previous_id, None)
            records[change.previous_id] = _Record(
                change.previous_id, SchemaChangeKind.DROP, None, renamed_to=change.table_id
            )
        kind = _HISTORY_KIND.get(change.kind, SchemaChangeKind.ALTER)
        records.pop(change.table_id, None)  # after what it takes the place of
        records[change.table_id] = _Record(change.table_id, kind, change.schema, change.previous_id)
    return [record for record in records.values() if record.schema is not None or record.table_id in before]


_HISTORY_KIND: Final = {
    TableChangeKind.CREATE: SchemaChangeKind.CREATE,
    TableChangeKind.DROP: SchemaChangeKind.DROP,
}
