"""The source's tables at the reader's place: learned from the dictionary, each version durable before a row of it goes out.

A table is known by its numbers (``table_numbers``), because the log names it by these. A definition that the server gave is
that of an SCN: statements up to there are in it already, and are passed over when the log brings them (``schema_changes``).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from libs.errors import DefinitionTooLarge, SchemaUnknown, SourceMisconfigured
from libs.events.batch import BatchBuilder
from libs.events.schema_change import SchemaChangeKind
from libs.oracle.column_type import UnknownColumnType
from libs.oracle.ddl import OracleTable
from libs.oracle.ddl_text import create_statement
from libs.oracle.dictionary import DictionaryTable
from libs.oracle.log_position import LogminerPosition, snapshot_order
from libs.oracle.source_block import EventPlace, source_block
from libs.oracle.table_schema import table_schema
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.oracle.capture import capture_filter
from libs.source.oracle.client import Connection, connect_to_tables, hang_up
from libs.source.oracle.definitions import Definitions, read_definitions
from libs.source.oracle.settings import OracleSourceSettings
from libs.source.oracle.table_schemas import OracleSchemas
from libs.source.table_reports import TableReports
from libs.source.table_schemas import TableSchemas
from libs.types.order import EventOrder
from libs.types.position import SourcePartition
from libs.types.table import TableId, TableSchema
from services.logminer_reader.position import SOURCE_PARTITION, encode_position
from services.logminer_reader.table_numbers import TableNumbers

log = structlog.get_logger()


class SourceSchemas:
    """Captured tables at the reader's place in the log."""

    def __init__(
        self, source: str, settings: OracleSourceSettings, history: SchemaHistoryClient, entries: BatchBuilder
    ) -> None:
        """``entries``: the batch that schema changes and truncations go into."""
        partition = SourcePartition(source=source, name=SOURCE_PARTITION)
        self._source = source
        self._settings = settings
        self._database = settings.database.database_name
        self._reports = TableReports(partition)
        self.numbers = TableNumbers()
        self.known_as_of: dict[TableId, int] = {}
        """SCN of a definition that the server gave: earlier statements are in it."""
        self.awaited: frozenset[TableId] = frozenset()
        """Captured tables whose CREATE TABLE is expected in the log: a row that comes earlier is refused."""
        self._charsets = ("", "")
        self.is_captured = capture_filter(settings.include_tables, settings.exclude_tables, settings.signal_table)
        self.tables = TableSchemas(
            OracleSchemas(self._database),
            partition,
            history,
            entries,
            self.is_captured,
            settings.values,
            settings.key_columns,
        )

    @property
    def captured(self) -> list[TableSchema]:
        """Of the captured tables, by name."""
        return self.tables.captured

    @property
    def quarantined(self) -> Mapping[str, str]:
        """Tables that are passed over, each with the reason; every position that is minted holds them."""
        return self._reports.quarantined

    def object_ids(self) -> frozenset[int]:
        """Of every captured table and partition that is known."""
        return self.numbers.object_ids

    # Rows

    def schema_of(self, object_id: int, object_version: int) -> TableSchema | None:
        """The definition that a row was written under; None: of no captured table, or of one that is passed over.

        Raises:
            SchemaUnknown: of a captured table whose definition is lost.
        """
        table_id = self.numbers.table_of(object_id)
        if table_id is None or str(table_id) in self.quarantined or not self.is_captured(table_id):
            return None
        current = self.tables.schemas.get(table_id)
        if current is None:
            raise SchemaUnknown(
                f"{table_id} (object {object_id}) has rows in the log, and no definition: re-snapshot it"
            )
        return self.numbers.schema(object_id, object_version, current)

    def note_object(self, object_id: int, owner: str, table: str) -> bool:
        """A row of an unknown number has a name: whether it is of a captured table, which has got a partition.

        Raises:
            SchemaUnknown: of a captured table whose CREATE TABLE the log does not have.
        """
        table_id = TableId(database=owner, table=table)
        if table_id in self.awaited and table_id not in self.tables.schemas:
            raise SchemaUnknown(
                f"{table_id} (object {object_id}) has rows in the log, and its CREATE TABLE is not in it: snapshot.mode never "
                "needs every CREATE TABLE; have the source copied (snapshot.mode initial), or exclude the table"
            )
        if table_id not in self.tables.schemas:
            return False
        self.numbers.add(object_id, table_id)
        return True

    def schema(self, table: OracleTable, object_ids: Sequence[int]) -> TableSchema:
        """A definition that the log gave, as the history keeps it. Raises UnknownColumnType."""
        charset, national_charset = self._charsets
        return table_schema(table, object_ids, charset=charset, national_charset=national_charset)

    def block(self, table_id: TableId, place: EventPlace) -> bytes:
        """The ``source`` object of an event that no row of the log brought."""
        return source_block(self._source, self._database, table_id, place)

    def release(self, table_id: TableId) -> None:
        """A table's quarantine ends."""
        left = {table: reason for table, reason in self.quarantined.items() if table != str(table_id)}
        self._reports.report_quarantined(left)

    def quarantine(self, table_id: TableId, reason: str) -> None:
        """Pass a table's rows over from here on."""
        self._reports.report_quarantined({**self.quarantined, str(table_id): reason})

    # The beginning

    async def begin(self, connection: Connection, position_at: Callable[[int], LogminerPosition]) -> Definitions:
        """Learn every captured table as the server has it; all are as of the ``scn`` of the answer.

        ``position_at``: the position of a copy that is as of an SCN.

        Raises:
            SourceMisconfigured: nothing is captured.
            SourceUnavailable, AccessDenied: as ``read_definitions``.
        """
        found = await asyncio.to_thread(read_definitions, connection, self.is_captured)
        self._charsets = (found.charset, found.national_charset)
        if not found.tables:
            raise SourceMisconfigured(
                f"no table of the source matches include_tables ({', '.join(self._settings.include_tables)}): correct the "
                "pattern (it must match SCHEMA.TABLE, in capitals unless the name was quoted), or grant SELECT ON the table"
            )
        position = position_at(found.scn)
        for each in found.tables:
            await self.learn(each, found, snapshot_order(position.epoch, found.scn), position)
        return found

    async def await_tables(self, connection: Connection) -> None:
        """Learn nothing: the log brings every definition. Raises as ``read_definitions``."""
        found = await asyncio.to_thread(read_definitions, connection, self.is_captured)
        self._charsets = (found.charset, found.national_charset)
        self.awaited = frozenset(each.table.table for each in found.tables if not each.refusal)
        for each in found.tables:
            if each.refusal:
                self.refuse(each.table.table, each)

    async def resume(
        self, order: EventOrder, position: LogminerPosition, committed_at_us: int, *, learns_all: bool = False
    ) -> None:
        """As they were at a checkpoint, with the settings of now. Tables that the settings capture since are learned.

        ``learns_all``: every captured table is, as the server has it now. The history may lack some.
        """
        await self.tables.resume(order)
        self._reports.resume(position.quarantined, {}, ())
        for schema in self.tables.schemas.values():
            self.numbers.name(schema)
        for schema in self.captured:
            if (now := self.tables.as_set(schema)) != schema:
                await self._record_settings(now, order, position, committed_at_us)
        connection = await asyncio.to_thread(connect_to_tables, self._settings.database)
        try:
            is_wanted = self.is_captured if learns_all else self._is_new
            found = await asyncio.to_thread(read_definitions, connection, is_wanted)
        finally:
            hang_up(connection)
        self._charsets = (found.charset, found.national_charset)
        for each in found.tables:
            await self.learn(each, found, order, position)

    def _is_new(self, table_id: TableId) -> bool:
        return self.is_captured(table_id) and table_id not in self.tables.schemas

    async def _record_settings(
        self, schema: TableSchema, order: EventOrder, position: LogminerPosition, committed_at_us: int
    ) -> None:
        """``values`` or ``key_columns`` were changed: a new version from here on. Delivered rows keep their form and key."""
        modes = msgspec.json.encode(self._settings.values).decode()
        await self.tables.record(
            schema.table_id,
            SchemaChangeKind.ALTER,
            schema,
            order=order,
            position=encode_position(position),
            committed_at_us=committed_at_us,
            # No statement did it; the text distinguishes this change from another at the same place.
            ddl=f"/* Headwater: values = {modes}, key = {', '.join(schema.key)} */",
            source_block=self.block(schema.table_id, EventPlace(committed_at_us, position.done_scn)),
        )

    async def learn(
        self, found: DictionaryTable, of: Definitions, order: EventOrder, position: LogminerPosition
    ) -> None:
        """Record a definition that the server gave; of a table that cannot be captured, report why."""
        table_id = found.table.table
        if found.refusal:
            self.refuse(table_id, found)
            return
        try:
            await self.tables.record(
                table_id,
                SchemaChangeKind.SNAPSHOT,
                of.schema(found),
                order=order,
                position=encode_position(position),
                committed_at_us=of.taken_at_us,
                ddl=create_statement(found.table),
                source_block=self.block(table_id, EventPlace(of.taken_at_us, of.scn, "true")),
            )
        except (DefinitionTooLarge, UnknownColumnType) as error:
            self.quarantine(table_id, str(error))
            return
        self.numbers.name(self.tables.schemas[table_id])
        self.known_as_of[table_id] = of.scn

    async def readmit(self, table_id: TableId, order: EventOrder, position: LogminerPosition) -> bool:
        """Because a signal has the table read again: its quarantine ends, with the definition that the server has now.

        False: the server has no such table, or one that cannot be captured.
        """
        connection = await asyncio.to_thread(connect_to_tables, self._settings.database)
        try:
            found = await asyncio.to_thread(read_definitions, connection, self.is_captured, table_id)
        finally:
            hang_up(connection)
        if not found.tables or found.tables[0].refusal:
            return False
        self.release(table_id)
        await self.learn(found.tables[0], found, order, position)
        return str(table_id) not in self.quarantined

    def refuse(self, table_id: TableId, found: DictionaryTable) -> None:
        """A table that cannot be captured is reported, and passed over."""
        if found.facts.is_temporary:  # nobody expects its rows
            log.info("table_not_captured", table=str(table_id), reason=found.refusal)
            return
        self.quarantine(table_id, f"{found.refusal}: exclude the table, or change the column")
