"""A table's columns and key after a DDL statement.

Tables are known by their names here; the reader keeps them by object id, because a row of LogMiner names that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from libs.oracle.column_type import OracleType
from libs.oracle.ddl_syntax import (
    Action,
    AddColumns,
    AddConstraint,
    AlterTable,
    ChangeRows,
    ColumnDefinition,
    Constraint,
    CreateTable,
    DropColumns,
    DropConstraint,
    DropTable,
    ModifyColumns,
    ReadAgain,
    RenameColumn,
    RenameTable,
    Statement,
    TruncateTable,
)
from libs.types.table import TableId


@dataclass(frozen=True, slots=True)
class OracleColumn:
    """A column that is stored, or that was before SET UNUSED."""

    name: str
    type: OracleType
    is_optional: bool = True
    """Not declared NOT NULL. A primary key makes its columns NOT NULL as long as it lasts: see ``OracleTable.logged``."""
    default: str | None = None
    """The DEFAULT as it was written; None: none."""
    is_unused: bool = False
    """SET UNUSED: no row has it any more, and the columns after it keep their numbers."""
    is_virtual: bool = False
    """Never in the log."""
    is_invisible: bool = False


@dataclass(frozen=True, slots=True)
class OracleTable:
    """A table's definition."""

    table: TableId
    columns: tuple[OracleColumn, ...]
    """In the order of INTCOL#, unused and virtual ones included: ``COL 3`` in the log is the third."""
    constraints: tuple[Constraint, ...] = ()
    is_temporary: bool = False
    """Its rows are never captured."""

    @property
    def logged(self) -> tuple[OracleColumn, ...]:
        """The columns that rows of the log have; those of the primary key are NOT NULL."""
        primary = next((each.columns for each in self.constraints if each.is_primary), ())
        return tuple(
            replace(column, is_optional=column.is_optional and column.name not in primary)
            for column in self.columns
            if not (column.is_unused or column.is_virtual)
        )

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key, else the first UNIQUE constraint of columns that are never NULL."""
        primary = next((each.columns for each in self.constraints if each.is_primary), None)
        required = {column.name for column in self.logged if not column.is_optional}
        unique = (each.columns for each in self.constraints if required.issuperset(each.columns))
        return primary or next(unique, ())


class Contradiction(Exception):
    """A statement does not fit the table that is known: read its definition at the server, else quarantine the table."""

    def __init__(self, table: TableId, because: str) -> None:
        super().__init__(f"{table}: {because}")
        self.table = table


@dataclass(frozen=True, slots=True)
class DdlEffect:
    """The tables after a statement, and the rows that changed without a row in the log."""

    tables: Mapping[TableId, OracleTable]
    truncated: tuple[TableId, ...] = ()
    read_again: tuple[ReadAgain, ...] = ()
    unseen: tuple[tuple[TableId, str], ...] = ()
    """Tables and the clause that changed their rows."""


def apply_statement(statement: Statement, tables: Mapping[TableId, OracleTable]) -> DdlEffect:
    """The tables after a statement. A table that is not known is passed over: it is not captured, or is read when it is.

    Raises:
        Contradiction: a column or a table is not as the statement has it.
    """
    match statement:
        case CreateTable():
            return DdlEffect({**tables, statement.table: _created(statement)})
        case DropTable(table):
            return DdlEffect({name: each for name, each in tables.items() if name != table})
        case RenameTable(old, new):
            return DdlEffect(_renamed(tables, old, new))
        case TruncateTable(table):
            return DdlEffect(tables, truncated=(table,) if table in tables else ())
        case AlterTable(table, actions):
            return _altered(tables, table, actions)
        case ReadAgain():
            return DdlEffect(tables, read_again=(statement,))


def _created(statement: CreateTable) -> OracleTable:
    columns = tuple(_new_column(statement.table, definition) for definition in statement.columns)
    keys = tuple(key for definition in statement.columns for key in _keys_of(definition))
    created = OracleTable(statement.table, columns, (), statement.is_temporary)
    for constraint in (*keys, *statement.constraints):
        created = _with_constraint(created, constraint)
    return created


def _renamed(tables: Mapping[TableId, OracleTable], old: TableId, new: TableId) -> Mapping[TableId, OracleTable]:
    if old not in tables:
        return tables
    others = {name: each for name, each in tables.items() if name != old}
    return {**others, new: replace(tables[old], table=new)}


def _altered(tables: Mapping[TableId, OracleTable], name: TableId, actions: Sequence[Action]) -> DdlEffect:
    if name not in tables:
        return DdlEffect(tables)
    table = tables[name]
    unseen: list[tuple[TableId, str]] = []
    for action in actions:
        if isinstance(action, ChangeRows):
            unseen.append((name, action.clause))
        else:
            table = _after(table, action)
    return DdlEffect({**tables, name: table}, unseen=tuple(unseen))


def _after(table: OracleTable, action: Action) -> OracleTable:
    match action:
        case AddColumns(definitions):
            for definition in definitions:
                _require_new(table, definition.name)
            added = replace(table, columns=(*table.columns, *(_new_column(table.table, each) for each in definitions)))
            for constraint in (key for each in definitions for key in _keys_of(each)):
                added = _with_constraint(added, constraint)
            return added
        case ModifyColumns(definitions):
            for definition in definitions:
                table = _modified(table, definition)
            return table
        case DropColumns(names, is_unused):
            return _without(table, names, is_unused=is_unused)
        case RenameColumn(old_name, new_name):
            return _with_new_name(table, old_name, new_name)
        case AddConstraint(constraint):
            return _with_constraint(table, constraint)
        case DropConstraint():
            return _without_constraint(table, action)
        case ChangeRows():
            return table


def _new_column(table: TableId, definition: ColumnDefinition) -> OracleColumn:
    if definition.type is None and not definition.is_virtual:
        raise Contradiction(table, f"column {definition.name} has no type")
    return OracleColumn(
        definition.name,
        definition.type or OracleType("NUMBER"),
        definition.is_optional is not False,
        definition.default,
        is_virtual=definition.is_virtual,
        is_invisible=bool(definition.is_invisible),
    )


def _keys_of(definition: ColumnDefinition) -> list[Constraint]:
    if definition.is_key or definition.is_unique:
        return [Constraint(None, (definition.name,), definition.is_key)]
    return []


def _modified(table: OracleTable, definition: ColumnDefinition) -> OracleTable:
    old = _column(table, definition.name)
    new = replace(
        old,
        type=definition.type or old.type,
        is_optional=old.is_optional if definition.is_optional is None else definition.is_optional,
        default=definition.default if definition.has_default else old.default,
        is_invisible=old.is_invisible if definition.is_invisible is None else definition.is_invisible,
    )
    modified = replace(table, columns=tuple(new if each is old else each for each in table.columns))
    for constraint in _keys_of(definition):
        modified = _with_constraint(modified, constraint)
    return modified


def _without(table: OracleTable, names: Sequence[str], *, is_unused: bool) -> OracleTable:
    dropped = [_column(table, name) for name in names]
    if is_unused:
        columns = tuple(replace(each, is_unused=True) if each in dropped else each for each in table.columns)
    else:
        columns = tuple(each for each in table.columns if each not in dropped and not each.is_unused)
    kept = tuple(each for each in table.constraints if not set(each.columns).intersection(names))
    return replace(table, columns=columns, constraints=kept)


def _with_new_name(table: OracleTable, old_name: str, new_name: str) -> OracleTable:
    old = _column(table, old_name)
    columns = tuple(replace(each, name=new_name) if each is old else each for each in table.columns)
    constraints = tuple(
        replace(each, columns=tuple(new_name if name == old_name else name for name in each.columns))
        for each in table.constraints
    )
    return replace(table, columns=columns, constraints=constraints)


def _with_constraint(table: OracleTable, constraint: Constraint) -> OracleTable:
    """A second primary key takes the place of the first."""
    for name in constraint.columns:
        _column(table, name)
    if not constraint.is_primary:
        return replace(table, constraints=(*table.constraints, constraint))
    others = tuple(each for each in table.constraints if not each.is_primary)
    return replace(table, constraints=(constraint, *others))


def _without_constraint(table: OracleTable, dropped: DropConstraint) -> OracleTable:
    """Of a key that was made without a name, Oracle alone knows the name that it gave."""
    kept = tuple(each for each in table.constraints if not _is_meant(each, dropped))
    if len(kept) == len(table.constraints) and any(each.name is None for each in kept):
        raise Contradiction(table.table, "a constraint is dropped by a name that the server gave")
    return replace(table, constraints=kept)


def _is_meant(constraint: Constraint, dropped: DropConstraint) -> bool:
    if dropped.is_primary:
        return constraint.is_primary
    if dropped.name is not None:
        return constraint.name == dropped.name
    return not constraint.is_primary and constraint.columns == dropped.columns


def _require_new(table: OracleTable, name: str) -> None:
    if any(column.name == name and not column.is_unused for column in table.columns):
        raise Contradiction(table.table, f"there is a column {name} already")


def _column(table: OracleTable, name: str) -> OracleColumn:
    for column in table.columns:
        if column.name == name and not column.is_unused:
            return column
    raise Contradiction(table.table, f"there is no column {name}")
