"""A table as the schema history keeps it, and as DDL changes it: ``TableSchema`` and ``OracleTable``, made of each other.

``OracleTable`` counts every column that the server counts, so that ``COL 3`` of the log is the third. A ``TableSchema`` has the
columns that rows have, each with that number. The columns between are of no row: unused, virtual, or the server's own.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from libs.oracle.column_type import OracleType, parse_column_type
from libs.oracle.ddl import OracleColumn, OracleTable
from libs.oracle.ddl_syntax import Constraint
from libs.oracle.logical import column
from libs.types.table import Column, Index, TableSchema

_PRIMARY: Final = "PRIMARY"
_NATIONAL: Final = frozenset({"NCHAR", "NVARCHAR2", "NCLOB"})
_EXPRESSION: Final = "(expression)"
_GAP: Final = OracleColumn("", OracleType("NUMBER"), is_unused=True)


def table_schema(table: OracleTable, object_ids: Sequence[int], *, charset: str, national_charset: str) -> TableSchema:
    """The table as the history keeps it, in the default handling modes.

    Args:
        table: its definition.
        object_ids: OBJECT_ID of the table and of its partitions; empty: not known yet.
        charset: of the database (NLS_CHARACTERSET).
        national_charset: of NCHAR, NVARCHAR2 and NCLOB columns (NLS_NCHAR_CHARACTERSET).

    Raises:
        UnknownColumnType: LogMiner does not read a column's type.
    """
    optional = {each.name: each.is_optional for each in table.logged}
    columns = tuple(
        msgspec.structs.replace(
            column(
                each.name,
                each.type,
                charset=national_charset if each.type.name in _NATIONAL else charset,
                is_optional=optional[each.name],
                is_invisible=each.is_invisible,
                default=each.default,
            ),
            number=number,
        )
        for number, each in enumerate(table.columns, start=1)
        if not (each.is_unused or each.is_virtual)
    )
    return TableSchema(
        table_id=table.table,
        columns=columns,
        key=table.key,
        indexes=tuple(_index(each) for each in table.constraints),
        object_ids=tuple(object_ids),
    )


def oracle_table(schema: TableSchema) -> OracleTable:
    """The table, as a later statement can be applied to it.

    Columns that no row has lost their names: a statement that names one is a ``Contradiction``, and the definition is
    then read at the server.
    """
    by_number = {each.number: each for each in schema.columns}
    constraints = tuple(_constraint(each) for each in schema.indexes)
    primary = next((each.columns for each in constraints if each.is_primary), ())
    columns = tuple(
        _oracle_column(by_number[number], primary) if number in by_number else _GAP
        for number in range(1, max(by_number, default=0) + 1)
    )
    return OracleTable(schema.table_id, columns, constraints)


def row_key(schema: TableSchema) -> tuple[str, ...]:
    """The primary key, else the first UNIQUE constraint of columns that are never NULL; empty: none.

    ``schema.key`` is the same, unless the source's ``key_columns`` chose another for the events.
    """
    return oracle_table(schema).key


def _oracle_column(each: Column, primary: Sequence[str]) -> OracleColumn:
    return OracleColumn(
        each.name,
        parse_column_type(each.source_type),
        is_optional=each.is_optional or each.name in primary,
        default=_default(each),
        is_invisible=each.is_invisible,
    )


def _default(each: Column) -> str | None:
    """A literal that gives the same value again; of an expression the history knows only that there is one."""
    if each.default_expression is not None:
        return "'" + each.default_expression.replace("'", "''") + "'"
    return _EXPRESSION if each.is_default_computed else None


def _index(constraint: Constraint) -> Index:
    """A primary key is called PRIMARY, with its own name after a blank; so are the history's records of other sources."""
    name = constraint.name or ""
    if constraint.is_primary:
        name = f"{_PRIMARY} {name}".rstrip()
    return Index(name=name, columns=constraint.columns, is_unique=True)


def _constraint(index: Index) -> Constraint:
    word, _, name = index.name.partition(" ")
    if word == _PRIMARY:
        return Constraint(name or None, index.columns, is_primary=True)
    return Constraint(index.name or None, index.columns, is_primary=False)
