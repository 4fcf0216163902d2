"""The schemas of MySQL's tables: learned from the server, in MySQL's dialect of events.

Every reader whose events are those of MySQL records its tables so. A table that changes between a copy's view and this is
found out when its rows are read: MySQL refuses the view then.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import chain, groupby
from typing import Final

import msgspec

from libs.errors import DefinitionTooLarge
from libs.events.schema_change import SchemaChangeKind
from libs.mysql.ddl import show_create_to_schema
from libs.mysql.identifiers import quote_identifier, quote_table
from libs.mysql.logical import in_value_modes
from libs.mysql.row_key import row_key
from libs.mysql.schema_change_event import schema_change_key, schema_change_value
from libs.source.key_columns import KeyColumns, chosen_key
from libs.source.mysql.client import Connection
from libs.source.mysql.snapshot import create_statement, database_collations
from libs.source.table_schemas import SchemaDialect, TableSchemas
from libs.types.order import EventOrder
from libs.types.position import SourcePosition
from libs.types.table import TableId, TableSchema
from libs.types.value_modes import ValueModes


def as_source_has_it(schema: TableSchema, modes: ValueModes, key_columns: Sequence[KeyColumns]) -> TableSchema:
    """``schema`` with the values' forms and the key that a source's settings give it."""
    schema = in_value_modes(schema, modes)
    names = (column.name for column in schema.columns)
    key = chosen_key(schema.table_id, names, key_columns) or row_key(schema)
    return schema if key == schema.key else msgspec.structs.replace(schema, key=key)


class _MysqlSchemas:
    """MySQL as a ``SchemaDialect``."""

    def as_set(self, schema: TableSchema, modes: ValueModes, key_columns: Sequence[KeyColumns]) -> TableSchema:
        """See ``as_source_has_it``."""
        return as_source_has_it(schema, modes, key_columns)

    def schema_change_key(self, table_id: TableId) -> bytes:
        """See ``libs.mysql.schema_change_event``."""
        return schema_change_key(table_id.database)

    def schema_change_value(
        self, table_id: TableId, schema: TableSchema | None, *, kind: str, ddl: str, source_block: bytes, ts_ms: int
    ) -> bytes:
        """See ``libs.mysql.schema_change_event``."""
        return schema_change_value(
            source_block=source_block,
            ts_ms=ts_ms,
            database=table_id.database,
            ddl=ddl,
            table_id=table_id if kind else None,
            schema=schema,
            kind=kind,
        )


MYSQL_SCHEMAS: Final[SchemaDialect] = _MysqlSchemas()


async def learn_tables(
    schemas: TableSchemas,
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
    """
    by_database = {name: list(each) for name, each in groupby(sorted(tables), key=lambda table: table.database)}
    collations = await asyncio.to_thread(database_collations, connection)

    def publish(table_id: TableId, ddl: str, changed_tables: Sequence[str] = (), *, kind: str = "") -> None:
        schemas.publish(
            table_id,
            ddl,
            order=order,
            committed_at_us=taken_at_us,
            source_block=source_block(table_id.database, table_id.table or None),
            is_snapshot=True,
            kind=kind,
            database_tables=changed_tables,
        )

    publish(TableId(database="", table=""), _server_statement(*collations[""]))
    captured = {name: [each for each in group if schemas.is_captured(each)] for name, group in by_database.items()}
    for table_id in chain.from_iterable(captured.values()):
        publish(table_id, f"DROP TABLE IF EXISTS {quote_table(table_id)}", kind="DROP")
        yield
    for name, group in by_database.items():
        changed_tables = [table_id.table for table_id in captured[name]]
        for ddl in _database_statements(name, collations.get(name, collations[""])):
            publish(TableId(database=name, table=""), ddl, changed_tables)
        for table_id in group:
            statement, charset = await asyncio.to_thread(create_statement, connection, table_id)
            try:
                await schemas.record(
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


def _server_statement(charset: str, collation: str) -> str:
    return f"SET character_set_server={charset}, collation_server={collation}"


def _database_statements(name: str, charset_and_collation: tuple[str, str]) -> tuple[str, str, str]:
    """A database goes, comes, and is entered."""
    quoted = quote_identifier(name)
    charset, collation = charset_and_collation
    return (
        f"DROP DATABASE IF EXISTS {quoted}",
        f"CREATE DATABASE {quoted} CHARSET {charset} COLLATE {collation}",
        f"USE {quoted}",
    )
