"""A DDL statement of a source's own dialect, and the tables that it changes: what the source's reader makes of it.

``headwater schema plan`` asks. Nothing is carried out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from libs.errors import InvalidSettings
from libs.events.schema_change import SchemaChangeKind
from libs.mesh.documents import OracleDocument, SourceDocument
from libs.mesh.source_tables import SourceTables
from libs.mysql.column_type import UnknownColumnType
from libs.mysql.ddl import DdlNotUnderstood, TableChange, TableChangeKind, apply_ddl, unseen_rows
from libs.mysql.ddl_syntax import AlterTable, DropTables, RenameTables, TruncateTable, parse_statement
from libs.oracle import ddl_syntax as oracle
from libs.oracle.column_type import UnknownColumnType as UnknownOracleType
from libs.oracle.ddl_changes import Change, NameChange, change_of, named_tables
from libs.oracle.sql_lexer import UnreadableSql
from libs.oracle.table_schema import oracle_table, table_schema
from libs.tenants.place import nearest
from libs.types.table import TableId


@dataclass(frozen=True, slots=True)
class Effect:
    """What one statement does."""

    changes: tuple[TableChange, ...]
    unseen: tuple[TableId, ...] = ()
    """Tables whose rows come, go or change without an event."""


Dialect = Callable[[SourceTables, str, str, str], Effect]
"""Of the tables as they are, a statement, the database of names without one, and the source's name.

Raises InvalidSettings: the statement cannot be read, or names a table that is not there.
"""


def dialect_of(document: SourceDocument) -> Dialect:
    """The dialect of a source's statements: Oracle's, or MySQL's, which DTS and Vitess have too."""
    return _oracle_effect if isinstance(document, OracleDocument) else _mysql_effect


def _mysql_effect(tables: SourceTables, statement: str, database: str, source: str) -> Effect:
    subject = f"statement {statement!r}"
    try:
        parsed = parse_statement(statement, database, tables.context)
        named: Sequence[TableId] = ()
        match parsed:
            case AlterTable(table_id=table_id) | TruncateTable(table_id=table_id):
                named = (table_id,)
            case DropTables(table_ids=table_ids):
                named = table_ids
            case RenameTables(renames=renames):
                named = [renames[0][0]]
        _require_known(named, tables, "database", subject, source)
        unseen = unseen_rows(database, statement, context=tables.context)
        changes = apply_ddl(
            tables.schemas, database, statement, database_charsets=tables.charsets, context=tables.context
        )
    except (DdlNotUnderstood, UnknownColumnType) as error:
        raise InvalidSettings(subject, [str(error)]) from error
    return Effect(changes, unseen.table_ids if unseen is not None else ())


def _oracle_effect(tables: SourceTables, statement: str, database: str, source: str) -> Effect:
    subject = f"statement {statement!r}"
    try:
        parsed = oracle.parse_statements(statement, database)
        for each in parsed:
            if not isinstance(each, oracle.CreateTable):
                _require_known(named_tables(each)[:1], tables, "schema", subject, source)
        found = [_oracle_change(each, tables) for each in parsed]
        again = [one for each in found for one in each.read_again]
        if again:
            why = f"{again[0].table}: {again[0].because}: the reader asks the server for the definition then"
            raise InvalidSettings(subject, [why])
        changes = [change for each in found for change in _table_changes(each, tables)]
    except (UnreadableSql, UnknownOracleType) as error:
        raise InvalidSettings(subject, [str(error)]) from error
    return Effect(tuple(changes), tuple(table for each in found for rows in each.unseen for table in rows.table_ids))


def _oracle_change(statement: oracle.Statement, tables: SourceTables) -> Change:
    known = {
        table_id: oracle_table(tables.schemas[table_id])
        for table_id in named_tables(statement)
        if table_id in tables.schemas
    }
    return change_of(statement, known, lambda _: True)


def _table_changes(change: Change, tables: SourceTables) -> list[TableChange]:
    """A rename is the end of one name and a version of another, and one change here."""
    truncated = [
        TableChange(TableChangeKind.TRUNCATE, table_id, tables.schemas.get(table_id)) for table_id in change.truncated
    ]
    return truncated + [_named_change(each, tables) for each in change.names if each.renamed_to is None]


_KINDS: Final = {
    SchemaChangeKind.CREATE: TableChangeKind.CREATE,
    SchemaChangeKind.ALTER: TableChangeKind.ALTER,
    SchemaChangeKind.DROP: TableChangeKind.DROP,
}


def _named_change(each: NameChange, tables: SourceTables) -> TableChange:
    before = tables.schemas.get(each.renamed_from or each.table_id)
    charsets = {column.charset for column in before.columns if column.charset} if before is not None else set()
    charset = next(iter(sorted(charsets)), "AL32UTF8")
    schema = None if each.table is None else table_schema(each.table, (), charset=charset, national_charset="AL16UTF16")
    kind = _KINDS[each.kind] if each.renamed_from is None else TableChangeKind.RENAME
    return TableChange(kind, each.table_id, schema, previous_id=each.renamed_from)


def _require_known(named: Sequence[TableId], tables: SourceTables, word: str, subject: str, source: str) -> None:
    for table_id in named:
        if not table_id.database:
            raise InvalidSettings(subject, [f"says no {word} of {table_id.table}; write it, or give --database"])
        if table_id not in tables.schemas:
            known: list[str] = sorted(str(each) for each in tables.schemas)
            raise InvalidSettings(
                subject, [f"{table_id} is no table of source {source}; {nearest(str(table_id), known)}"]
            )
