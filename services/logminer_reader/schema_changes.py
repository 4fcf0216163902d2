"""DDL of the log at its place: what a statement makes of captured tables, durable before any later row is decoded.

A statement that is not understood has the definition read at the server. Where a later statement has changed the table
meanwhile, rows between the two may be of either definition: the table is quarantined, until it is read again.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import structlog

from libs.errors import DefinitionTooLarge
from libs.events.schema_change import SchemaChangeKind
from libs.oracle.column_type import UnknownColumnType
from libs.oracle.ddl_changes import Change, NameChange, change_of, named_tables
from libs.oracle.ddl_syntax import ReadAgain, Statement, parse_statements
from libs.oracle.dictionary import TableObjects
from libs.oracle.log_position import LogminerPosition, commit_order
from libs.oracle.source_block import EventPlace
from libs.oracle.sql_lexer import UnreadableSql
from libs.oracle.table_schema import oracle_table
from libs.source.oracle.client import Connection, connect_to_tables, hang_up
from libs.source.oracle.definitions import read_definitions, read_objects
from libs.source.oracle.settings import OracleSourceSettings
from libs.source.table_schemas import is_made_again
from libs.source.unseen_rows import report_unseen_rows
from libs.types.table import TableId, TableSchema
from services.logminer_reader.log_views import server_offset
from services.logminer_reader.mined_rows import MinedDdl
from services.logminer_reader.position import SOURCE_PARTITION, encode_position
from services.logminer_reader.schemas import SourceSchemas

log = structlog.get_logger()

_CLOCKS_AGREE: Final = timedelta(seconds=2)
"""By so much the dictionary's time of a statement may be after the log's: both are cut to seconds."""
_Answer = TypeVar("_Answer")


class SchemaChanges:
    """Applies statements to ``SourceSchemas``."""

    def __init__(self, source: str, settings: OracleSourceSettings, schemas: SourceSchemas) -> None:
        self._source = source
        self._settings = settings
        self._schemas = schemas
        self._tables = schemas.tables

    async def apply(self, ddl: MinedDdl, position: LogminerPosition) -> None:
        """A statement, once every commit below its SCN was delivered. ``position``: of the place before it.

        Raises:
            PipelineHalted: ``on_unseen_change`` halts for a table of it.
            SourceUnavailable, ServiceUnavailable: try again; nothing is done twice.
        """
        for statement in self._statements(ddl):
            names = named_tables(statement)
            if any(ddl.scn <= self._schemas.known_as_of.get(table_id, 0) for table_id in names):
                continue
            known = {name: oracle_table(self._tables.schemas[name]) for name in names if name in self._tables.schemas}
            await self._apply(change_of(statement, known, self._schemas.is_captured), ddl, position)

    def _statements(self, ddl: MinedDdl) -> Sequence[Statement]:
        table_id = TableId(database=ddl.owner, table=ddl.table)
        try:
            return parse_statements(ddl.sql, ddl.owner or ddl.user)
        except UnreadableSql as error:
            return (ReadAgain(table_id, str(error)),) if self._schemas.is_captured(table_id) else ()

    async def _apply(self, change: Change, ddl: MinedDdl, position: LogminerPosition) -> None:
        for unseen in change.unseen:
            report_unseen_rows(
                unseen,
                source=self._source,
                source_partition=SOURCE_PARTITION,
                is_captured=self._schemas.is_captured,
                at=f"SCN {ddl.scn}",
                policies=self._settings.on_unseen_change,
            )
        for table_id in filter(self._schemas.is_captured, change.truncated):
            self._truncate(self._tables.schemas[table_id], ddl, position)
        for name in change.names:
            await self._change_name(name, ddl, position)
        for again in change.read_again:
            if self._schemas.is_captured(again.table):
                await self._read_again(again, ddl, position)

    async def _change_name(self, name: NameChange, ddl: MinedDdl, position: LogminerPosition) -> None:
        if name.table is None:
            await self._end(name, ddl, position)
            return
        found = await self._ask(lambda connection: read_objects(connection, name.table_id))
        if name.kind is SchemaChangeKind.CREATE:
            ids = await self._ids_of_new(name.table_id, found, ddl)
        else:
            ids = self._ids_with_partitions(name.renamed_from or name.table_id, found)
        await self._record(name, self._schemas.schema(name.table, ids), ddl, position)

    def _ids_with_partitions(self, known_as: TableId, found: TableObjects | None) -> tuple[int, ...]:
        """Those that are known, and those of partitions that the same table has by now."""
        known = self._schemas.numbers.of_table(known_as)
        now = found.object_ids if found is not None and found.object_ids[0] in known else ()
        return tuple(dict.fromkeys((*known, *now)))

    async def _ids_of_new(self, table_id: TableId, found: TableObjects | None, ddl: MinedDdl) -> tuple[int, ...]:
        """The log's row does not say the new table's number: the dictionary does, while the table is there.

        Rows of a table that was dropped since have a number that nobody knows. They are passed over, and reported so; its DROP
        follows in the log, and ends that.
        """
        if found is not None and found.created_at <= await self._at_server(ddl) + _CLOCKS_AGREE:
            return found.object_ids
        self._schemas.quarantine(
            table_id,
            f"it was made at SCN {ddl.scn} and dropped before the log was read so far: its rows are passed over",
        )
        return ()

    async def _read_again(self, again: ReadAgain, ddl: MinedDdl, position: LogminerPosition) -> None:
        """Take the server's definition of now."""
        table_id = again.table
        log.warning("ddl_not_understood", table=str(table_id), scn=ddl.scn, reason=again.because)
        found = await self._ask(lambda connection: read_definitions(connection, lambda _: True, table_id))
        now = next(iter(found.tables), None)
        if now is None:
            if table_id in self._tables.schemas:
                self._schemas.quarantine(
                    table_id,
                    f"the statement at SCN {ddl.scn} is not understood ({again.because}), and the table is gone",
                )
            return
        if now.refusal:
            self._schemas.refuse(table_id, now)
            return
        kind = SchemaChangeKind.ALTER if table_id in self._tables.schemas else SchemaChangeKind.CREATE
        try:
            schema = found.schema(now)
        except UnknownColumnType as error:
            self._schemas.quarantine(table_id, str(error))
            return
        await self._record(NameChange(table_id, kind, now.table), schema, ddl, position)
        self._schemas.known_as_of[table_id] = found.scn
        if now.objects.last_ddl_at > await self._at_server(ddl) + _CLOCKS_AGREE:
            self._schemas.quarantine(
                table_id,
                f"the statement at SCN {ddl.scn} is not understood ({again.because}), and later ones have changed the table: "
                "have the table read again (`headwater snapshot`)",
            )

    async def _end(self, name: NameChange, ddl: MinedDdl, position: LogminerPosition) -> None:
        """A table lost its name. One that is renamed to a captured name has one event, under that name."""
        if name.table_id not in self._tables.schemas:
            return
        goes_on = name.renamed_to is not None and self._schemas.is_captured(name.renamed_to)
        await self._write(name, None, ddl, position, has_event=not goes_on)
        if not goes_on:
            self._schemas.numbers.forget(name.table_id)
        self._schemas.known_as_of.pop(name.table_id, None)
        self._schemas.release(name.table_id)

    async def _record(self, name: NameChange, schema: TableSchema, ddl: MinedDdl, position: LogminerPosition) -> None:
        try:
            await self._write(name, schema, ddl, position)
        except DefinitionTooLarge as error:
            self._schemas.quarantine(name.table_id, str(error))
            return
        recorded = self._tables.schemas[name.table_id]
        if name.renamed_from is not None:
            self._schemas.numbers.forget(name.renamed_from)
        self._schemas.numbers.name(recorded)
        if is_made_again(name.kind, recorded):
            self._truncate(recorded, ddl, position)

    async def _write(
        self,
        name: NameChange,
        schema: TableSchema | None,
        ddl: MinedDdl,
        position: LogminerPosition,
        *,
        has_event: bool = True,
    ) -> None:
        await self._tables.record(
            name.table_id,
            name.kind,
            schema,
            order=commit_order(position.epoch, ddl.scn, 0),
            position=encode_position(position),
            committed_at_us=ddl.committed_at_us,
            ddl=ddl.sql,
            source_block=self._schemas.block(name.table_id, _place(ddl)),
            renamed_from=name.renamed_from,
            has_event=has_event,
        )

    def _truncate(self, schema: TableSchema, ddl: MinedDdl, position: LogminerPosition) -> None:
        self._tables.append_truncate(
            schema,
            transaction_id="",
            order=commit_order(position.epoch, ddl.scn, 0),
            committed_at_us=ddl.committed_at_us,
            source_block=self._schemas.block(schema.table_id, _place(ddl)),
        )

    async def _at_server(self, ddl: MinedDdl) -> datetime:
        """When a statement was carried out, by the server's own clock, as the dictionary's times are."""
        offset = await self._ask(server_offset)
        return datetime.fromtimestamp(ddl.committed_at_us / 1_000_000, UTC).replace(tzinfo=None) + offset

    async def _ask(self, question: Callable[[Connection], _Answer]) -> _Answer:
        connection = await asyncio.to_thread(connect_to_tables, self._settings.database)
        try:
            return await asyncio.to_thread(question, connection)
        finally:
            hang_up(connection)


def _place(ddl: MinedDdl) -> EventPlace:
    return EventPlace(ddl.committed_at_us, ddl.scn, thread=ddl.thread, rs_id=ddl.rs_id, user=ddl.user)
