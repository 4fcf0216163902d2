"""A MySQL server's side of the comparison: one consistent snapshot, streamed in key order."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pymysql
from pymysql.cursors import SSCursor

from libs.check.compare import Row
from libs.check.key_order import is_behind
from libs.check.places import Place, PlaceColumn, place_of, selected, source_literals, source_plain
from libs.check.projection import ExpectedColumn, ExpectedTable, SourceTable, canonical_column
from libs.check.source_sql import MYSQL_SQL, SourceSql
from libs.check.values import order_expression, select_expression
from libs.mesh.executed import executed_of_mysql
from libs.mysql.gtid import GtidSet
from libs.mysql.identifiers import quote_identifier, quote_table
from libs.source.mysql.client import Connection, as_ours, connect_to_any
from libs.source.mysql.settings import DatabaseSettings
from libs.types.table import TableId

FETCH_ROWS: Final = 5_000
_SYSTEM_DATABASES: Final = ("mysql", "sys", "information_schema", "performance_schema")


@contextlib.contextmanager
def consistent_snapshot(database: DatabaseSettings) -> Iterator[Connection]:
    """A connection whose every read sees the same moment.

    Raises:
        SourceUnavailable: neither the server nor one that may take its place answers.
        AccessDenied: user, password or grants do not suffice, or a certificate is not trusted.
        PipelineHalted: a certificate or key cannot be read, or the server cannot satisfy ``tls_mode``.
    """
    connection = connect_to_any(database)
    connection.decoders = {}  # each value stays the text that the server printed
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        yield connection
    except pymysql.Error as error:
        raise as_ours(error, database) from error
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class MysqlRows:
    """The source over a connection (``source.AskedSource``)."""

    connection: Connection

    @property
    def sql(self) -> SourceSql:
        """MySQL's."""
        return MYSQL_SQL

    @property
    def sums(self) -> "MysqlRows":
        """See ``source.AskedSource.sums``."""
        return self

    def refusal(self, table: ExpectedTable) -> str | None:
        """None: it takes every filter as it is."""
        return None

    def executed(self) -> dict[str, GtidSet]:
        """Every transaction committed until now: those of the snapshot, and perhaps later ones."""
        return {"": executed_of_mysql(str(_rows(self.connection, "SELECT @@GLOBAL.gtid_executed")[0][0]))}

    def tables(self) -> tuple[SourceTable, ...]:
        """Every base table that the user may see, system tables aside."""
        return source_tables(self.connection)

    def rows(self, table: ExpectedTable, columns: Sequence[ExpectedColumn]) -> Iterator[Row]:
        """See ``source.AskedSource.rows``; streamed, never held whole."""
        return expected_rows(self.connection, table, columns)

    def rows_of(self, table: ExpectedTable, columns: Sequence[ExpectedColumn], condition: str) -> Iterator[Row]:
        """See ``source.AskedSource.rows_of``."""
        return _printed_rows(self.connection, rows_statement(table, columns, condition), columns)

    def answers(
        self, table: ExpectedTable, selected: str, *, condition: str | None = None, group_by: str = ""
    ) -> list[tuple[str | None, ...]]:
        """See ``source.AskedSource.answers``."""
        statement = select_statement(table, selected, condition, group_by=group_by)
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def key_behind(
        self, table: SourceTable, columns: Sequence[PlaceColumn], after: Place | None, rows: int
    ) -> Place | None:
        """See ``source.AskedSource.key_behind``; the index is walked, and nothing else read."""
        return self._place(columns, place_statement(quote_table(table.table_id), columns, after, rows))

    def end_of_key(self, table: SourceTable, columns: Sequence[PlaceColumn], *, is_last: bool) -> Place | None:
        """See ``source.AskedSource.end_of_key``."""
        return self._place(columns, end_statement(quote_table(table.table_id), columns, is_last=is_last))

    def _place(self, columns: Sequence[PlaceColumn], statement: str) -> Place | None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            found = cursor.fetchone()
        return None if found is None else place_of(columns, found)


def source_tables(connection: Connection) -> tuple[SourceTable, ...]:
    """Every base table that the user may see, system tables aside; its key is the primary key, else the first
    unique key without NULLs."""
    columns: dict[TableId, list[tuple[str, str]]] = {}
    required: dict[TableId, set[str]] = {}
    collations: dict[TableId, list[tuple[str, str]]] = {}
    for database, table, column, data_type, is_nullable, collation in _rows(
        connection,
        "SELECT c.TABLE_SCHEMA, c.TABLE_NAME, c.COLUMN_NAME, c.DATA_TYPE, c.IS_NULLABLE, c.COLLATION_NAME "
        "FROM information_schema.COLUMNS c "
        "JOIN information_schema.TABLES t USING (TABLE_SCHEMA, TABLE_NAME) "
        "WHERE t.TABLE_TYPE = 'BASE TABLE' AND c.TABLE_SCHEMA NOT IN %s "
        "ORDER BY c.TABLE_SCHEMA, c.TABLE_NAME, c.ORDINAL_POSITION",
        _SYSTEM_DATABASES,
    ):
        table_id = TableId(database=database, table=table)
        columns.setdefault(table_id, []).append((column, data_type.lower()))
        if is_nullable == "NO":
            required.setdefault(table_id, set()).add(column)
        if collation is not None:
            collations.setdefault(table_id, []).append((column, collation))
    keys = _keys(connection)
    return tuple(
        SourceTable(
            table_id,
            tuple(found),
            keys.get(table_id, ()),
            frozenset(required.get(table_id, ())),
            tuple(collations.get(table_id, ())),
        )
        for table_id, found in columns.items()
    )


def _keys(connection: Connection) -> dict[TableId, tuple[str, ...]]:
    indexes: dict[TableId, dict[str, list[str]]] = {}
    nullable: set[tuple[TableId, str]] = set()
    for database, table, index, column, is_nullable in _rows(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, NULLABLE FROM information_schema.STATISTICS "
        "WHERE NON_UNIQUE = 0 AND TABLE_SCHEMA NOT IN %s "
        "ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME <> 'PRIMARY', SEQ_IN_INDEX",
        _SYSTEM_DATABASES,
    ):
        table_id = TableId(database=database, table=table)
        indexes.setdefault(table_id, {}).setdefault(index, []).append(column)
        if is_nullable == "YES" or column is None:
            nullable.add((table_id, index))
    found = {}
    for table_id, by_name in indexes.items():
        usable = [columns for index, columns in by_name.items() if (table_id, index) not in nullable]
        if usable:
            found[table_id] = tuple(usable[0])
    return found


def expected_rows(connection: Connection, table: ExpectedTable, columns: Sequence[ExpectedColumn]) -> Iterator[Row]:
    """Canonical values of ``columns``, row by row in key order, as the tenant should have them."""
    statement = rows_statement(table, columns)
    types = {column.name: column.data_type for column in table.columns}
    if table.key and not table.is_key_masked:
        order = ", ".join(order_expression(types[name], quote_identifier(name)) for name in table.key)
        statement += f" ORDER BY {order}"
    return _printed_rows(connection, statement, columns)


def rows_statement(
    table: ExpectedTable, columns: Sequence[ExpectedColumn], condition: str | None = None, *, place: str | None = None
) -> str:
    """The SELECT of the rows that a tenant should have and that meet ``condition``; ``place``: instead of the table's name."""
    selected = ", ".join(select_expression(column.data_type, quote_identifier(column.name)) for column in columns)
    return select_statement(table, selected, condition, place=place)


def select_statement(
    table: ExpectedTable, selected: str, condition: str | None = None, *, place: str | None = None, group_by: str = ""
) -> str:
    """The SELECT of SQL over those rows."""
    conditions = [f"({each})" for each in (table.where, condition) if each is not None]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    grouped = f" GROUP BY {group_by}" if group_by else ""
    return f"SELECT {selected} FROM {place or quote_table(table.table_id)}{where}{grouped}"


def place_statement(table: str, columns: Sequence[PlaceColumn], after: Place | None, rows: int) -> str:
    """The SELECT of the place of the row that stands ``rows`` rows after ``after``; those without one are not counted."""
    names = [quote_identifier(column.name) for column in columns]
    conditions = [] if after is None else [is_behind(names, source_literals(columns, after))]
    conditions += source_plain(columns)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"{_elements_from(table, columns)}{where} ORDER BY {', '.join(names)} LIMIT 1 OFFSET {rows - 1}"


def end_statement(table: str, columns: Sequence[PlaceColumn], *, is_last: bool) -> str:
    """The SELECT of the first or last row's values in ``columns``."""
    order = ", ".join(f"{quote_identifier(column.name)}{' DESC' if is_last else ''}" for column in columns)
    return f"{_elements_from(table, columns)} ORDER BY {order} LIMIT 1"


def _elements_from(table: str, columns: Sequence[PlaceColumn]) -> str:
    return f"SELECT {', '.join(selected(column) for column in columns)} FROM {table}"


def _printed_rows(connection: Connection, statement: str, columns: Sequence[ExpectedColumn]) -> Iterator[Row]:
    with connection.cursor(SSCursor) as cursor:
        # A "%" of the tenant's condition is not a placeholder: no arguments are passed.
        cursor.execute(statement)
        while rows := cursor.fetchmany(FETCH_ROWS):
            cells = [
                canonical_column(column, values)
                for column, values in zip(columns, zip(*rows, strict=True), strict=True)
            ]
            yield from zip(*cells, strict=True)


def _rows(connection: Connection, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, arguments)
        return list(cursor.fetchall())
