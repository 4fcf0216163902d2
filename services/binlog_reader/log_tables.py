"""The captured tables at the log's place: their schemas, their table maps, and those that are passed over."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from libs.errors import SchemaContradiction, SchemaUnknown, is_of_all, refusal_of
from libs.events.envelope import MysqlSourceBlock
from libs.mysql import binlog_events as events
from libs.mysql.binlog_position import BinlogPosition
from libs.mysql.row_events import RowsDecoder
from libs.mysql.row_image import rows_decoder, wire_columns
from libs.mysql.table_map_metadata import parse_facts, require_agreement
from libs.types.table import TableId, TableSchema
from services.binlog_reader.log_place import LogPlace

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class MappedTable:
    """A captured table at its present version, with the common parts of its rows events."""

    schema: TableSchema
    decoder: RowsDecoder
    source_block: MysqlSourceBlock


class LogTables:
    """What the log says of tables, and what is known of them."""

    def __init__(
        self,
        source: str,
        position: BinlogPosition,
        schemas: Mapping[TableId, TableSchema],
        place: LogPlace,
        *,
        is_captured: Callable[[TableId], bool],
        unavailable_placeholder: str | None,
    ) -> None:
        self._source = source
        self._place = place
        self._unavailable_placeholder = unavailable_placeholder
        self._schemas = dict(schemas)
        self._by_map: dict[bytes, MappedTable | None] = {}
        self._source_blocks: dict[TableId, MysqlSourceBlock] = {}
        self._quarantined = dict(position.quarantined)
        self._unseen = dict(position.unseen)
        self._ddl_of: dict[TableId, str] = {}
        """The last statement that changed a table, where it was read here."""
        self.is_captured = is_captured
        self.by_number: dict[bytes, MappedTable | None] = {}
        """By the number of the table's last map; None: its rows are passed over."""
        self.last_map = b""
        """The last table map, which rows events follow."""

    @property
    def schemas(self) -> Mapping[TableId, TableSchema]:
        """The captured tables as they are at this place of the log."""
        return self._schemas

    @property
    def quarantined(self) -> Mapping[str, str]:
        """Tables whose rows are passed over because they could not be read rightly, each with the reason."""
        return self._quarantined

    @property
    def unseen(self) -> Mapping[str, str]:
        """Tables with rows that changed without the log, each with the cause, until all of it was read again."""
        return self._unseen

    def note_unseen(self, table_id: TableId, reason: str) -> None:
        """Rows of a table changed, and the log does not have it."""
        self._unseen[str(table_id)] = reason

    def seen_again(self, table: str) -> None:
        """A table was read again from its beginning for everybody, or it was emptied or dropped."""
        self._unseen.pop(table, None)

    def apply_schemas(self, schemas: Mapping[TableId, TableSchema | None], statement: str = "") -> None:
        """Schemas that are in force from here on, by which statement; None: the table is gone, and a quarantine with it."""
        for table_id, schema in schemas.items():
            self._ddl_of[table_id] = statement
            if schema is None:
                self._schemas.pop(table_id, None)
                self._ddl_of.pop(table_id)
                self.release(table_id)
                self.seen_again(str(table_id))
            else:
                self._schemas[table_id] = schema
        self._forget()

    def learn(self, schema: TableSchema) -> None:
        """The schema of a table that was unknown."""
        self._schemas[schema.table_id] = schema

    def quarantine(self, table_id: TableId, reason: str) -> None:
        """Pass over the rows of a table from here on; all other tables go on."""
        self._quarantined[str(table_id)] = reason
        self._forget()

    def release(self, table_id: TableId) -> None:
        """End a quarantine: the table's rows have been read again, with the schema that is known of it now."""
        if self._quarantined.pop(str(table_id), None) is not None:
            self._forget()

    def _forget(self) -> None:
        """Whatever follows is mapped again, and its rows are a run of their own."""
        self._by_map.clear()
        self.by_number.clear()
        self.last_map = b""

    def map(self, whole: bytes, transaction: str) -> None:
        """A table map that is not the last one again; most were seen before, byte for byte but for the table's number.

        ``transaction``: for the reason of a quarantine. Raises SchemaUnknown.
        """
        self.last_map = whole
        number, layout = whole[: events.TABLE_ID_BYTES], whole[events.TABLE_ID_BYTES :]
        try:
            table = self._by_map[layout]
        except KeyError:
            table = self._by_map[layout] = self._table_of(events.parse_table_map(layout), transaction)
        self.by_number[number] = table

    def unknown_table(self, whole: bytes) -> TableId | None:
        """The captured table of a table map of which no schema is known."""
        layout = whole[events.TABLE_ID_BYTES :]
        if layout in self._by_map:
            return None
        mapped = events.parse_table_map(layout)
        table_id = TableId(database=mapped.database, table=mapped.table)
        is_known = table_id in self._schemas or str(table_id) in self._quarantined
        return None if is_known or not self.is_captured(table_id) else table_id

    def _table_of(self, mapped: events.TableMapEvent, transaction: str) -> MappedTable | None:
        table_id = TableId(database=mapped.database, table=mapped.table)
        if not self.is_captured(table_id) or str(table_id) in self._quarantined:
            return None
        schema = self._schemas.get(table_id)
        if schema is None:
            raise SchemaUnknown(
                f"{table_id}: the log has rows at {self._place.now} but the schema history does not know the "
                "table; was the history lost, and no table changed since? then start once with snapshot.mode: recovery; else "
                "re-snapshot the source, or exclude the table"
            )
        block = self._source_blocks.get(table_id)
        if block is None:
            block = self._source_blocks[table_id] = MysqlSourceBlock(self._source, mapped.database, mapped.table)
        try:
            decoder = rows_decoder(
                schema,
                wire_columns(mapped.column_types, mapped.metadata),
                unavailable=self._unavailable_placeholder,
            )
            require_agreement(schema, parse_facts(mapped.optional_metadata))
            return MappedTable(schema, decoder, block)
        except Exception as error:
            if is_of_all(error):
                raise
            if not isinstance(error, SchemaContradiction):
                log.error("refused_unforeseen", table=str(table_id), exc_info=error)
            statement = self._ddl_of.get(table_id)
            reason = str(error) if isinstance(error, SchemaContradiction) else f"{table_id}: {refusal_of(error)}"
            self._quarantined[str(table_id)] = f"{reason} (transaction {transaction}, {self._place.now}" + (
                f"; the statement that changed the table last: {shortened(statement)})" if statement else ")"
            )
            return None


def shortened(statement: str) -> str:
    """A statement for a message."""
    text = " ".join(statement.split())
    return text if len(text) <= 200 else f"{text[:200]}…"
