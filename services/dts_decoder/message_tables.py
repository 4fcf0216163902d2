"""The captured tables under the columns that messages name, each with the decoder of its rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from libs.errors import UndecodableMessage
from libs.events.envelope import MysqlSourceBlock
from libs.types.table import TableId, TableSchema
from services.dts_decoder.header_text import text_of
from services.dts_decoder.messages import EntryReader
from services.dts_decoder.position import SOURCE_KIND
from services.dts_decoder.row_changes import RowChangeDecoder
from services.dts_decoder.values import DtsColumn, read_columns, require_agreement, row_change_decoder

_MOST_FORMS: Final = 10_000
"""Forms of tables that are kept: a topic may bring ever new columns."""


@dataclass(frozen=True, slots=True)
class MessageTable:
    """A captured table at its present version, under the columns that messages name."""

    schema: TableSchema
    decoder: RowChangeDecoder
    source_block: MysqlSourceBlock


class MessageTables:
    """Schemas at the decoder's place, and the forms of tables that messages have shown under them."""

    def __init__(
        self, source: str, schemas: Mapping[TableId, TableSchema], is_captured: Callable[[TableId], bool]
    ) -> None:
        self._source = source
        self._is_captured = is_captured
        self.schemas = dict(schemas)
        self._tables: dict[tuple[bytes, bytes, bytes], MessageTable | None] = {}

    def apply_schemas(self, schemas: Mapping[TableId, TableSchema | None]) -> None:
        """Schemas that are in force from here on; None: the table is gone."""
        for table_id, schema in schemas.items():
            if schema is None:
                self.schemas.pop(table_id, None)
            else:
                self.schemas[table_id] = schema
        self._tables.clear()

    def table_of(self, reader: EntryReader) -> MessageTable | None:
        """The table of a DML entry; None: nobody captures it.

        Raises:
            KeyError: its schema is not known.
            SchemaContradiction, UndecodableMessage: the columns are not those of the schema.
        """
        key = (reader.schema_name, reader.table_name, reader.columns)
        if key not in self._tables:
            if len(self._tables) > _MOST_FORMS:
                self._tables.clear()
            self._tables[key] = self._new_table(reader)
        return self._tables[key]

    def _new_table(self, reader: EntryReader) -> MessageTable | None:
        table_id = TableId(database=text_of(reader.schema_name), table=text_of(reader.table_name))
        if not self._is_captured(table_id):
            return None
        schema = self.schemas[table_id]
        require_agreement(schema, columns_of(reader.columns))
        block = MysqlSourceBlock(self._source, table_id.database, table_id.table, connector=SOURCE_KIND)
        return MessageTable(schema, row_change_decoder(schema), block)


def columns_of(serialised: bytes) -> tuple[DtsColumn, ...]:
    """The columns of an entry.

    Raises:
        UndecodableMessage: they cannot be read.
    """
    try:
        return read_columns(serialised)
    except DecodeError as error:
        raise UndecodableMessage("the columns cannot be read") from error
