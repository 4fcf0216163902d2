"""A table's definition as one CREATE TABLE: of a table that no statement of the log made, but the dictionary described."""

from collections.abc import Iterator

from libs.oracle.ddl import OracleColumn, OracleTable
from libs.types.table import TableId


def quote_identifier(name: str) -> str:
    """A name in quotes, as it is; Oracle's names have no quotes in them.

    >>> quote_identifier("ORDERS")
    '"ORDERS"'
    """
    return f'"{name}"'


def quote_table(table_id: TableId) -> str:
    """``"SCHEMA"."TABLE"``."""
    return f"{quote_identifier(table_id.database)}.{quote_identifier(table_id.table)}"


def create_statement(table: OracleTable) -> str:
    """CREATE TABLE with the columns that rows have, and the keys."""
    lines = [*map(_column, table.logged), *_keys(table)]
    return f"CREATE TABLE {quote_table(table.table)} ({', '.join(lines)})"


def _column(column: OracleColumn) -> str:
    default = "" if column.default is None else f" DEFAULT {column.default}"
    required = "" if column.is_optional else " NOT NULL"
    hidden = " INVISIBLE" if column.is_invisible else ""
    return f"{quote_identifier(column.name)} {column.type}{hidden}{default}{required}"


def _keys(table: OracleTable) -> Iterator[str]:
    for constraint in table.constraints:
        named = f"CONSTRAINT {quote_identifier(constraint.name)} " if constraint.name else ""
        kind = "PRIMARY KEY" if constraint.is_primary else "UNIQUE"
        yield f"{named}{kind} ({', '.join(map(quote_identifier, constraint.columns))})"
