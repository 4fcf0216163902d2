"""The tables of a source as they are now: by schema_history where the stack runs, else by the source itself.

``headwater schema plan``, ``tenant plan`` and ``tenant explain`` ask for them. Nothing is written.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from libs.errors import AccessDenied, InvalidSettings, TransientError
from libs.mesh.documents import DtsDocument, MysqlDocument, OracleDocument, SourceDocument, VitessDocument
from libs.mesh.home import Home
from libs.mesh.own_services import caller
from libs.mesh.processes import SCHEMA_HISTORY
from libs.mesh.state import holder, read_ports
from libs.mysql.column_type import UnknownColumnType
from libs.mysql.ddl import DdlNotUnderstood, StatementContext, show_create_to_schema
from libs.oracle.column_type import UnknownColumnType as UnknownOracleType
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.key_columns import KeyColumns
from libs.source.mysql.client import connect
from libs.source.mysql.snapshot import captured_tables, create_statement, database_charsets, statement_context
from libs.source.mysql.table_schemas import as_source_has_it
from libs.source.oracle.capture import capture_filter
from libs.source.oracle.table_schemas import as_source_has_it as as_oracle_has_it
from libs.source.vitess.columns import as_vtgate_reports, with_key_index
from libs.types.table import TableId, TableSchema

ANSWER_TIMEOUT_S: Final = 10.0


@dataclass
class SourceTables:
    """A source's tables as they are now, and the settings by which a statement is read."""

    schemas: dict[TableId, TableSchema]
    schemas_from: str
    """``schema_history`` or ``source``."""
    charsets: Mapping[str, str] = field(default_factory=dict)
    context: StatementContext = field(default_factory=StatementContext)


def source_tables(home: Home, source: str, document: SourceDocument) -> SourceTables:
    """Every table that can be read, captured or not. Blocks.

    Raises:
        InvalidSettings: a keyspace of Vitess, while the stack is down: start it.
        SourceUnavailable, AccessDenied: the stack is down, and the source cannot be read.
        ServiceUnavailable: schema_history does not answer, though the stack is up.
    """
    if holder(home) is not None:
        known = asyncio.run(_recorded(home, source))
        if known:
            charsets = {schema.table_id.database: schema.charset or "utf8mb4" for schema in known}
            whole = map(with_key_index, known) if isinstance(document, VitessDocument) else known
            return SourceTables({schema.table_id: schema for schema in whole}, SCHEMA_HISTORY, charsets)
    match document:
        case MysqlDocument() | DtsDocument():
            return _of_mysql(document)
        case OracleDocument():
            return _of_oracle(document)
        case VitessDocument():
            raise InvalidSettings(
                f"source {source}",
                ["is a keyspace of Vitess, whose tables are known while the stack runs: `headwater up`"],
            )


def known_tables(home: Home, source: str, document: SourceDocument) -> tuple[Mapping[TableId, TableSchema], str | None]:
    """The source's tables as they are now; and, where they cannot be asked for, why."""
    try:
        return source_tables(home, source, document).schemas, None
    except (TransientError, AccessDenied) as error:
        return {}, f"source {source}: its tables are not known: {error}"
    except InvalidSettings as error:
        return {}, f"{error.subject} {'; '.join(error.mistakes)}"


def as_read(document: SourceDocument, schema: TableSchema) -> TableSchema:
    """A table, which its source's words describe, as the source's reader gives it to schema_history."""
    key_columns: tuple[KeyColumns, ...] = getattr(document, "key_columns", ())
    match document:
        case MysqlDocument() | DtsDocument():
            return as_source_has_it(schema, document.values, key_columns)
        case VitessDocument():
            return as_vtgate_reports(schema, document.values, key_columns)
        case OracleDocument():
            return as_oracle_has_it(schema, document.values, key_columns)


def is_captured(document: SourceDocument, table_id: TableId) -> bool:
    """Whether the source's own document lets its reader read the table at all."""
    name = str(table_id)
    return any(re.fullmatch(pattern, name) for pattern in document.include_tables) and not any(
        re.fullmatch(pattern, name) for pattern in document.exclude_tables
    )


def _of_mysql(document: MysqlDocument | DtsDocument) -> SourceTables:
    connection = connect(document.database)
    try:
        schemas = {}
        for table_id in captured_tables(connection):
            try:
                schema = show_create_to_schema(table_id, *create_statement(connection, table_id))
            except (DdlNotUnderstood, UnknownColumnType):
                continue  # the reader says so; it is reported here where a statement names it
            schemas[table_id] = msgspec.structs.replace(as_read(document, schema), version=1)
        return SourceTables(schemas, "source", database_charsets(connection), statement_context(connection))
    finally:
        connection.close()


def _of_oracle(document: OracleDocument) -> SourceTables:
    # The driver is loaded where an Oracle database is asked.
    from libs.source.oracle.client import connect_to_tables, hang_up
    from libs.source.oracle.definitions import read_definitions

    connection = connect_to_tables(document.database)
    try:
        found = read_definitions(connection, capture_filter([".*"]))
    finally:
        hang_up(connection)
    schemas = {}
    for each in found.tables:
        try:
            schema = found.schema(each)
        except UnknownOracleType:
            continue  # as above
        schemas[schema.table_id] = msgspec.structs.replace(as_read(document, schema), version=1)
    return SourceTables(schemas, "source")


async def _recorded(home: Home, source: str) -> list[TableSchema]:
    port = read_ports(home)[f"{SCHEMA_HISTORY}-grpc"]
    async with SchemaHistoryClient(caller(home, port, timeout_s=ANSWER_TIMEOUT_S)) as client:
        return await client.list_tables(source)
