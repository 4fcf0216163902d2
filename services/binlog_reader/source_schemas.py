"""The source's tables as the server has them now, recorded in the schema history."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial

import msgspec
import structlog

from libs.errors import DefinitionTooLarge, SourceMisconfigured
from libs.events.envelope import MysqlSourceBlock, json_text, source_place, source_tail
from libs.events.schema_change import SchemaChangeKind
from libs.mysql.ddl import show_create_to_schema
from libs.mysql.ddl_syntax import DdlNotUnderstood
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.mysql.snapshot import CopiedAt, ReadView, captured_tables, source_tables, table_definitions
from libs.source.mysql.table_schemas import MYSQL_SCHEMAS, learn_tables
from libs.source.port import ReadBatch
from libs.source.table_reports import TableReports
from libs.source.table_schemas import TableSchemas
from libs.types.checkpoint import Checkpoint
from libs.types.order import EventOrder
from libs.types.position import SourcePartition
from libs.types.table import TableId, TableSchema
from services.binlog_reader.capture import capture_filter
from services.binlog_reader.decode import LogDecoder
from services.binlog_reader.gather import Gatherer
from services.binlog_reader.incremental import TableRefused
from services.binlog_reader.position import SOURCE_PARTITION, BinlogPosition, encode_position
from services.binlog_reader.settings import BinlogReaderSettings

log = structlog.get_logger()


class SourceSchemas:
    """Tables that are captured, and those beside them that are followed; learned from the server.

    A captured table may once have been another one: tools for online schema changes build a shadow table and rename it. So the
    schemas of all tables beside a captured one are followed, though no row of them is decoded.
    """

    def __init__(
        self,
        settings: BinlogReaderSettings,
        schema_history: SchemaHistoryClient,
        gatherer: Gatherer,
        reports: TableReports,
    ) -> None:
        self._settings = settings
        self._gatherer = gatherer
        self._reports = reports
        self._followed_databases: set[str] = set()
        self.is_captured = capture_filter(settings)
        self.tables = TableSchemas(
            MYSQL_SCHEMAS,
            SourcePartition(source=settings.source, name=SOURCE_PARTITION),
            schema_history,
            gatherer.entries,
            self.is_captured,
            settings.values,
            settings.key_columns,
        )

    @property
    def captured(self) -> list[TableSchema]:
        """Of the captured tables, by name."""
        return self.tables.captured

    async def resume(self, checkpoint: Checkpoint, position: BinlogPosition) -> None:
        """As they were at the checkpoint, with the settings of now."""
        await self.tables.resume(checkpoint.order)
        self._follow_databases_of(self.tables.schemas)
        await self._follow_settings(checkpoint, position)

    def _follow_databases_of(self, tables: Iterable[TableId]) -> None:
        self._followed_databases = {table.database for table in tables if self.is_captured(table)}

    def database_made(self, database: str) -> None:
        """The log has all of a database from here on."""
        self._followed_databases.add(database)

    def is_followed(self, table_id: TableId) -> bool:
        """Its schemas are recorded."""
        return table_id.database in self._followed_databases or self.is_captured(table_id)

    async def learn_all(self, view: ReadView, at: ReadView | CopiedAt) -> AsyncIterator[ReadBatch]:
        """Record every table beside a captured one as it is now. Raises SourceMisconfigured: nothing is captured."""
        tables = await asyncio.to_thread(captured_tables, view.connection)
        self._follow_databases_of(tables)
        if not self._followed_databases:
            raise SourceMisconfigured(
                "no table of the source matches include_tables "
                f"({', '.join(self._settings.include_tables)}): correct the pattern (it must match database.table)"
            )
        learned = learn_tables(
            self.tables,
            view.connection,
            filter(self.is_followed, tables),
            order=at.order,
            position=encode_position(at.position),
            taken_at_us=at.taken_at_us,
            source_block=partial(
                source_block, self._settings.source, at.position, time_us=at.taken_at_us, is_snapshot=True
            ),
            refuse=self._refuse_definition,
        )
        async for _ in learned:
            if self._gatherer.entries.is_full:
                yield self._gatherer.take(None)

    def _refuse_definition(self, table_id: TableId, error: DefinitionTooLarge) -> None:
        """Of a table that the reader learns before it follows the log: its rows are passed over from there on."""
        log.warning("definition_refused", table=str(table_id), reason=str(error))
        if self.is_captured(table_id):
            self._reports.report_quarantined({**self._reports.quarantined, str(table_id): _remedied(error)})

    async def _follow_settings(self, checkpoint: Checkpoint, position: BinlogPosition) -> None:
        """Where ``values`` or ``key_columns`` were changed since the schemas were recorded: a new version of each table that it
        concerns, from here on. Rows that were delivered keep the form and the key they had."""
        modes = msgspec.json.encode(self._settings.values).decode()
        for schema in self.tables.captured:
            now = self.tables.as_set(schema)
            if now != schema:
                log.info("table_settings_changed", table=str(schema.table_id), key=list(now.key))
                await self.tables.record(
                    schema.table_id,
                    SchemaChangeKind.ALTER,
                    schema,
                    order=checkpoint.order,
                    position=encode_position(position),
                    committed_at_us=checkpoint.committed_at_us,
                    # No statement did it; the text distinguishes this change from another at the same place.
                    ddl=f"/* Headwater: values = {modes}, key = {', '.join(now.key)} */",
                    source_block=source_block(
                        self._settings.source,
                        position,
                        schema.table_id.database,
                        schema.table_id.table,
                        time_us=checkpoint.committed_at_us,
                    ),
                )

    def pass_over(self, decoder: LogDecoder, table_id: TableId, error: DefinitionTooLarge) -> None:
        """A table whose definition the history cannot hold, from here on; all others go on. Its known definition stays."""
        log.warning("definition_refused", table=str(table_id), reason=str(error))
        if self.is_captured(table_id):
            decoder.tables.quarantine(table_id, _remedied(error))

    async def learn_database(self, decoder: LogDecoder, database: str) -> None:
        """Take up the tables of a database of which none was captured when the reader began: its settings were changed since.

        They are recorded as the source has them now. The log may not have come so far: then the next table map of such a table
        contradicts that, and quarantines it. Of a database that was followed all along nothing is learned: what is unknown of
        it was lost, which is for a person to mend.
        """
        if database in self._followed_databases or not self.tables.schemas:
            return
        self._followed_databases.add(database)
        tables = await asyncio.to_thread(source_tables, self._settings.database)
        new = [
            table_id for table_id in tables if table_id.database == database and table_id not in decoder.tables.schemas
        ]
        await self.learn_tables(decoder, new)
        log.info("database_learned", database=database, tables=len(new))

    async def learn_tables(self, decoder: LogDecoder, new: Sequence[TableId]) -> None:
        """Record tables that are unknown as the source has them now."""
        definitions = await asyncio.to_thread(table_definitions, self._settings.database, new)
        for table_id, (statement, charset) in definitions.items():
            try:
                schema = show_create_to_schema(table_id, statement, charset)
            except DdlNotUnderstood as error:
                log.warning("table_not_learned", table=str(table_id), reason=str(error))
                continue
            try:
                await self.tables.record(
                    table_id,
                    SchemaChangeKind.CREATE,
                    schema,
                    order=decoder.progress.last_order,
                    position=encode_position(decoder.position),
                    committed_at_us=decoder.progress.committed_at_us,
                    ddl=statement,
                    source_block=source_block(
                        self._settings.source,
                        decoder.position,
                        table_id.database,
                        table_id.table,
                        time_us=decoder.progress.committed_at_us,
                    ),
                )
            except DefinitionTooLarge as error:
                self.pass_over(decoder, table_id, error)
                continue
            decoder.tables.learn(self.tables.schemas[table_id])

    async def take_definition(
        self, table_id: TableId, *, position: BinlogPosition, order: EventOrder, committed_at_us: int
    ) -> str:
        """Record the definition that the source has of a known table now, where it is another one; the statement.

        Raises:
            TableRefused: the source has none, or one that cannot be read.
        """
        definitions = await asyncio.to_thread(table_definitions, self._settings.database, [table_id])
        if table_id not in definitions:
            raise TableRefused(f"{table_id} is not at the source any more")
        statement, charset = definitions[table_id]
        try:
            schema = self.tables.as_set(show_create_to_schema(table_id, statement, charset))
        except DdlNotUnderstood as error:
            raise TableRefused(f"{table_id} cannot be read: {error}") from error
        known = self.tables.schemas[table_id]
        if msgspec.structs.replace(schema, version=known.version) != known:
            block = source_block(
                self._settings.source, position, table_id.database, table_id.table, time_us=committed_at_us
            )
            try:
                await self.tables.record(
                    table_id,
                    SchemaChangeKind.ALTER,
                    schema,
                    order=order,
                    position=encode_position(position),
                    committed_at_us=committed_at_us,
                    ddl=statement,
                    source_block=block,
                )
            except DefinitionTooLarge as error:
                raise TableRefused(str(error)) from error
        return statement


def source_block(
    source: str,
    position: BinlogPosition,
    database: str,
    table: str | None,
    *,
    time_us: int,
    is_snapshot: bool = False,
    server_id: int = 0,
    gtid: str | None = None,
    thread_id: int | None = None,
) -> bytes:
    """Debezium's ``source`` of a schema change or a truncation."""
    head = MysqlSourceBlock(source, database, table).head(
        time_us=time_us,
        snapshot=b'"true"' if is_snapshot else b'"false"',
        server_id=server_id,
        gtid=b"null" if gtid is None else json_text(gtid),
        file=json_text(position.file),
    )
    return head + source_place(position.pos, 0) + source_tail(thread_id)


def _remedied(error: DefinitionTooLarge) -> str:
    return f"{error}; then re-snapshot the table"
