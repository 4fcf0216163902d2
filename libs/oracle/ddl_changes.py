"""A statement's effect on each table name, as the schema history keeps it. Plain functions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from libs.events.schema_change import SchemaChangeKind
from libs.oracle.ddl import Contradiction, OracleTable, apply_statement
from libs.oracle.ddl_syntax import (
    AlterTable,
    CreateTable,
    DropTable,
    ReadAgain,
    RenameTable,
    Statement,
    TruncateTable,
)
from libs.types.table import TableId
from libs.types.unseen_rows import UnseenRows


@dataclass(frozen=True, slots=True)
class NameChange:
    """One name of a table after a statement."""

    table_id: TableId
    kind: SchemaChangeKind
    table: OracleTable | None
    """None: no table has the name any more."""
    renamed_from: TableId | None = None
    renamed_to: TableId | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """The whole effect of a statement."""

    names: tuple[NameChange, ...] = ()
    truncated: tuple[TableId, ...] = ()
    unseen: tuple[UnseenRows, ...] = ()
    read_again: tuple[ReadAgain, ...] = ()
    """Captured tables whose definition the server has to give."""


_NOTHING: Final = Change()


def named_tables(statement: Statement) -> tuple[TableId, ...]:
    """The tables that a statement names as those that it changes."""
    match statement:
        case RenameTable(old, new):
            return (old, new)
        case CreateTable() | AlterTable() | DropTable() | TruncateTable() | ReadAgain():
            return (statement.table,)


def change_of(
    statement: Statement, tables: Mapping[TableId, OracleTable], is_captured: Callable[[TableId], bool]
) -> Change:
    """The effect on captured tables.

    Args:
        statement: one of ``parse_statements``.
        tables: those of ``named_tables`` that are known.
        is_captured: by name.
    """
    if not any(table_id in tables or is_captured(table_id) for table_id in named_tables(statement)):
        return _NOTHING
    match statement:
        case ReadAgain():
            return Change(read_again=(statement,))
        case RenameTable(old, new):
            return _renamed(old, new, tables, is_captured)
        case CreateTable(is_temporary=True):
            return _NOTHING
        case TruncateTable(table):
            return Change(truncated=(table,) if table in tables else ())
        case AlterTable(table) if table not in tables:
            return Change(read_again=(ReadAgain(table, "it was not known before"),))
    try:
        effect = apply_statement(statement, tables)
    except Contradiction as error:
        return Change(read_again=(ReadAgain(error.table, str(error)),))
    table_id = statement.table
    after = effect.tables.get(table_id)
    if after is None and table_id not in tables:
        return _NOTHING
    unseen = tuple(UnseenRows(clause, (table,)) for table, clause in effect.unseen)
    return Change(_names(statement, table_id, after), unseen=unseen)


def _names(statement: Statement, table_id: TableId, after: OracleTable | None) -> tuple[NameChange, ...]:
    match statement:
        case CreateTable():
            return (NameChange(table_id, SchemaChangeKind.CREATE, after),)
        case DropTable():
            return (NameChange(table_id, SchemaChangeKind.DROP, None),)
        case AlterTable(actions=()):
            return ()
        case _:
            return (NameChange(table_id, SchemaChangeKind.ALTER, after),)


def _renamed(
    old: TableId, new: TableId, tables: Mapping[TableId, OracleTable], is_captured: Callable[[TableId], bool]
) -> Change:
    """A rename is the end of one name, and a new version of the other. The rows of before came under the former name, or under
    none."""
    if old not in tables:
        unseen = UnseenRows(f"RENAME of {old}, whose rows were not captured, to it", (new,))
        again = ReadAgain(new, f"{old} was not captured under its name of before")
        return Change(unseen=(unseen,), read_again=(again,))
    ended = NameChange(old, SchemaChangeKind.DROP, None, renamed_to=new)
    if not is_captured(new):
        return Change((ended,))
    after = apply_statement(RenameTable(old, new), tables).tables[new]
    unseen = UnseenRows(f"RENAME of {old} to it, whose rows came under that name", (new,))
    return Change((ended, NameChange(new, SchemaChangeKind.ALTER, after, renamed_from=old)), unseen=(unseen,))


def concerned(statements: Sequence[Statement]) -> tuple[TableId, ...]:
    """Every table that some statements name, once."""
    return tuple(dict.fromkeys(table_id for statement in statements for table_id in named_tables(statement)))
