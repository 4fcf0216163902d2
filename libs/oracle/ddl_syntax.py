"""Oracle's DDL as far as it decides how a row is read: statements as values.

A clause that is not understood is no error here. It becomes ``ReadAgain``: the reader then takes the definition from the
server, if no later statement has changed it (LAST_DDL_TIME). Names are upper case unless they were quoted.
(Oracle Database SQL Language Reference, "CREATE TABLE", "ALTER TABLE", "DROP TABLE", "RENAME", "TRUNCATE TABLE".)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from libs.oracle.column_type import OracleType, UnknownColumnType, read_column_type
from libs.oracle.sql_lexer import Token, TokenCursor, TokenKind, UnreadableSql, tokens_of
from libs.types.table import TableId


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column as a statement writes it; None stands for a part that the statement does not have."""

    name: str
    type: OracleType | None = None
    is_optional: bool | None = None
    default: str | None = None
    """The DEFAULT as it was written."""
    has_default: bool = False
    is_key: bool = False
    is_unique: bool = False
    is_virtual: bool = False
    is_identity: bool = False
    is_invisible: bool | None = None


@dataclass(frozen=True, slots=True)
class Constraint:
    """PRIMARY KEY or UNIQUE over columns. Other constraints do not matter to a reader."""

    name: str | None
    columns: tuple[str, ...]
    is_primary: bool


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE with its columns."""

    table: TableId
    columns: tuple[ColumnDefinition, ...]
    constraints: tuple[Constraint, ...]
    is_temporary: bool = False


@dataclass(frozen=True, slots=True)
class AddColumns:
    """``ADD (…)``."""

    columns: tuple[ColumnDefinition, ...]


@dataclass(frozen=True, slots=True)
class ModifyColumns:
    """``MODIFY (…)``."""

    columns: tuple[ColumnDefinition, ...]


@dataclass(frozen=True, slots=True)
class DropColumns:
    """``DROP (…)`` or ``SET UNUSED (…)``."""

    names: tuple[str, ...]
    is_unused: bool
    """The columns stay in the rows: later ones keep their numbers."""


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """``RENAME COLUMN a TO b``."""

    old_name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class AddConstraint:
    """``ADD CONSTRAINT … PRIMARY KEY (…)``."""

    constraint: Constraint


@dataclass(frozen=True, slots=True)
class DropConstraint:
    """``DROP PRIMARY KEY``, ``DROP UNIQUE (…)``, ``DROP CONSTRAINT name``."""

    name: str | None = None
    columns: tuple[str, ...] = ()
    is_primary: bool = False


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """Rows came or went without a row in the log: partitions that were dropped, truncated, exchanged."""

    clause: str


Action = AddColumns | ModifyColumns | DropColumns | RenameColumn | AddConstraint | DropConstraint | ChangeRows


@dataclass(frozen=True, slots=True)
class AlterTable:
    """ALTER TABLE. No action is left where none of its clauses matters to a reader."""

    table: TableId
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class DropTable:
    """DROP TABLE. Into the recycle bin too: the table keeps no name that is captured."""

    table: TableId


@dataclass(frozen=True, slots=True)
class RenameTable:
    """``RENAME a TO b`` and ``ALTER TABLE a RENAME TO b``."""

    old: TableId
    new: TableId


@dataclass(frozen=True, slots=True)
class TruncateTable:
    """TRUNCATE TABLE."""

    table: TableId


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """The statement changes a table in a way that is not understood: its definition has to come from the server."""

    table: TableId
    because: str


Statement = CreateTable | AlterTable | DropTable | RenameTable | TruncateTable | ReadAgain

_ROW_CLAUSES: Final = frozenset(
    {("DROP", "PARTITION"), ("DROP", "SUBPARTITION"), ("TRUNCATE", "PARTITION")}
) | frozenset({("TRUNCATE", "SUBPARTITION"), ("EXCHANGE", "PARTITION"), ("EXCHANGE", "SUBPARTITION")})
_NO_MATTER: Final = frozenset(
    {
        "ALLOCATE", "CACHE", "COMPRESS", "DEALLOCATE", "DISABLE", "ENABLE", "FLASHBACK", "INITRANS", "INMEMORY", "LOGGING",
        "MERGE", "MOVE", "NO", "NOCACHE", "NOCOMPRESS", "NOLOGGING", "NOPARALLEL", "PARALLEL", "PCTFREE", "PCTUSED", "READ",
        "RESULT_CACHE", "ROW", "SHRINK", "SPLIT", "STORAGE", "COALESCE", "MONITORING", "NOMONITORING", "UPGRADE", "ILM",
    }
)  # fmt: skip
"""First words of clauses that change neither columns nor keys nor rows."""
_TABLE_CONSTRAINTS: Final = frozenset({"CONSTRAINT", "PRIMARY", "UNIQUE", "FOREIGN", "CHECK"})
_SUPPLEMENTAL: Final = "SUPPLEMENTAL"
_PARTITIONS: Final = ("PARTITION", "SUBPARTITION")
_KINDS_OF_TABLE: Final = frozenset({"SHARDED", "DUPLICATED", "BLOCKCHAIN", "IMMUTABLE"})
_AFTER_DROP: Final = frozenset(
    {"CASCADE", "CONSTRAINTS", "KEEP", "DROP", "INDEX", "INVALIDATE", "CHECKPOINT", "ONLINE"}
)
_ATTRIBUTES: Final = frozenset(
    {
        "AS", "CHECK", "COLLATE", "CONSTRAINT", "DEFAULT", "DEFERRABLE", "DISABLE", "ENABLE", "ENCRYPT", "DECRYPT",
        "GENERATED", "INITIALLY", "INVISIBLE", "NOT", "NOVALIDATE", "NULL", "PRIMARY", "REFERENCES", "RELY", "NORELY",
        "SORT", "UNIQUE", "VALIDATE", "VIRTUAL", "VISIBLE", "DEFERRED", "IMMEDIATE", "USING", "ON", "DELETE", "CASCADE",
    }
)  # fmt: skip
"""Words after a column's name or type; each that decides nothing is passed over, with the brackets after it."""


def parse_statements(sql: str, schema: str) -> list[Statement]:
    """The statements of a text that matter to a reader, in order; those about anything but tables are left out.

    Args:
        sql: SQL_REDO of a DDL row.
        schema: the schema of names that are written without one.

    Raises:
        UnreadableSql: the text cannot be cut into tokens, or names no table where one has to be.
    """
    parsed = (_statement(_Parser(sql, TokenCursor(tokens), schema)) for tokens in _split(tokens_of(sql)))
    return [statement for statement in parsed if statement is not None]


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    """One list for each statement, with an END after its last token."""
    lists: list[list[Token]] = [[]]
    for token in tokens:
        if token.kind is TokenKind.END or (token.kind is TokenKind.SYMBOL and token.value == ";"):
            lists[-1].append(Token(TokenKind.END, "", token.start, token.start))
            lists.append([])
        else:
            lists[-1].append(token)
    return [each for each in lists if len(each) > 1]


class _NotUnderstood(Exception):
    """A clause has no known form; the table is read again."""


_NO_FORM: Final = (_NotUnderstood, UnknownColumnType, UnreadableSql)


class _Parser(NamedTuple):
    """A statement and the place that has been read up to."""

    sql: str
    at: TokenCursor
    schema: str

    def table(self) -> TableId:
        """Steps over ``schema.table``; a database link after it is passed over."""
        first = self.at.name()
        if self.at.took_symbol("."):
            return TableId(database=first, table=self.at.name())
        return TableId(database=self.schema, table=first)

    def not_understood(self) -> _NotUnderstood:
        """The clause there has no known form."""
        return _NotUnderstood(f"the clause at character {self.at.token.start}")


def _statement(parser: _Parser) -> Statement | None:
    at = parser.at
    if at.took("CREATE"):
        return _create(parser)
    if at.took("ALTER", "TABLE"):
        return _alter(parser)
    if at.took("DROP", "TABLE"):
        at.took("IF", "EXISTS")
        return DropTable(parser.table())
    if at.took("TRUNCATE", "TABLE"):
        return TruncateTable(parser.table())
    if at.took("RENAME"):
        old = parser.table()
        if not at.took("TO"):
            raise UnreadableSql("TO", at.token.start)
        return RenameTable(old, TableId(database=old.database, table=at.name()))
    if at.took("FLASHBACK", "TABLE"):
        return ReadAgain(parser.table(), "FLASHBACK TABLE")
    return None


def _create(parser: _Parser) -> Statement | None:
    at = parser.at
    is_temporary = at.took("GLOBAL", "TEMPORARY") or at.took("PRIVATE", "TEMPORARY")
    while at.word() in _KINDS_OF_TABLE:
        at.skip()
    if not at.took("TABLE"):
        return None
    at.took("IF", "NOT", "EXISTS")
    table = parser.table()
    try:
        if not at.took_symbol("("):
            return ReadAgain(table, "CREATE TABLE without a list of columns")
        columns, constraints = _definitions(parser)
        while not at.is_at_end:
            if at.took("AS"):
                return ReadAgain(table, "CREATE TABLE … AS SELECT")
            at.skip()
    except _NO_FORM as error:
        return ReadAgain(table, str(error))
    return CreateTable(table, tuple(columns), tuple(constraints), is_temporary)


def _definitions(parser: _Parser) -> tuple[list[ColumnDefinition], list[Constraint]]:
    """Columns and keys of a list, up to the bracket that ends it."""
    columns: list[ColumnDefinition] = []
    constraints: list[Constraint] = []
    at = parser.at
    while True:
        if at.word() in _TABLE_CONSTRAINTS:
            constraints += _constraint(parser)
        elif at.word() == _SUPPLEMENTAL:
            at.skip_item()
        else:
            columns.append(_column(parser))
        if at.took_symbol(")"):
            return columns, constraints
        at.expect_symbol(",")


def _alter(parser: _Parser) -> Statement:
    table = parser.table()
    actions: list[Action] = []
    try:
        while not parser.at.is_at_end:
            if parser.at.took("RENAME", "TO"):
                return RenameTable(table, TableId(database=table.database, table=parser.at.name()))
            actions += _action(parser)
    except _NO_FORM as error:
        return ReadAgain(table, str(error))
    return AlterTable(table, tuple(actions))


def _action(parser: _Parser) -> list[Action]:
    at = parser.at
    first, second = at.word(), at.word(1)
    if (first, second) in _ROW_CLAUSES:
        at.skip_statement()
        return [ChangeRows(f"{first} {second}")]
    if at.took("ADD"):
        return _added(parser)
    if at.took("MODIFY"):
        return _modified(parser)
    if at.took("DROP"):
        return _dropped(parser)
    if at.took("SET", "UNUSED"):
        return [DropColumns(_column_names(parser), is_unused=True)]
    if at.took("RENAME", "COLUMN"):
        old_name = at.name()
        if not at.took("TO"):
            raise parser.not_understood()
        return [RenameColumn(old_name, at.name())]
    if first in _NO_MATTER:
        at.skip_statement()
        return []
    raise parser.not_understood()


def _added(parser: _Parser) -> list[Action]:
    at = parser.at
    if at.word() in _TABLE_CONSTRAINTS:
        return [AddConstraint(constraint) for constraint in _constraint(parser)]
    if at.word() in (_SUPPLEMENTAL, *_PARTITIONS):
        at.skip_statement()
        return []
    if not at.took_symbol("("):
        return [AddColumns((_column(parser),))]
    columns, constraints = _definitions(parser)
    added: list[Action] = [AddColumns(tuple(columns))] if columns else []
    return [*added, *(AddConstraint(constraint) for constraint in constraints)]


def _modified(parser: _Parser) -> list[Action]:
    at = parser.at
    if at.word() in (*_TABLE_CONSTRAINTS, *_PARTITIONS, "DEFAULT", "LOB", "VARRAY", "NESTED"):
        at.skip_statement()
        return []
    if not at.took_symbol("("):
        return [ModifyColumns((_column(parser),))]
    return [ModifyColumns(tuple(_definitions(parser)[0]))]


def _dropped(parser: _Parser) -> list[Action]:
    at = parser.at
    if at.word() == _SUPPLEMENTAL:
        at.skip_statement()
        return []
    if at.took("UNUSED", "COLUMNS"):
        raise _NotUnderstood("DROP UNUSED COLUMNS, after which columns have other numbers")
    if at.took("PRIMARY", "KEY"):
        dropped: Action = DropConstraint(is_primary=True)
    elif at.took("UNIQUE"):
        dropped = DropConstraint(columns=_names(parser))
    elif at.took("CONSTRAINT"):
        dropped = DropConstraint(name=at.name())
    else:
        dropped = DropColumns(_column_names(parser), is_unused=False)
    while at.word() in _AFTER_DROP:
        at.skip()
    return [dropped]


def _column_names(parser: _Parser) -> tuple[str, ...]:
    return (parser.at.name(),) if parser.at.took("COLUMN") else _names(parser)


def _names(parser: _Parser) -> tuple[str, ...]:
    at = parser.at
    at.expect_symbol("(")
    names = [at.name()]
    while at.took_symbol(","):
        names.append(at.name())
    at.expect_symbol(")")
    return tuple(names)


def _constraint(parser: _Parser) -> list[Constraint]:
    """The constraint, or none where it is neither PRIMARY KEY nor UNIQUE."""
    at = parser.at
    name = at.name() if at.took("CONSTRAINT") else None
    is_primary = at.took("PRIMARY", "KEY")
    if not is_primary and not at.took("UNIQUE"):
        at.skip_item()
        return []
    columns = _names(parser)
    at.skip_item()
    return [Constraint(name, columns, is_primary)]


def _column(parser: _Parser) -> ColumnDefinition:
    at = parser.at
    column = ColumnDefinition(at.name())
    if at.word() not in _ATTRIBUTES and not at.is_at_end_of_item:
        column = replace(column, type=read_column_type(at))
    while not at.is_at_end_of_item:
        column = _with_attribute(parser, column)
    return column


def _with_attribute(parser: _Parser, column: ColumnDefinition) -> ColumnDefinition:
    at = parser.at
    if at.took("NOT", "NULL"):
        return replace(column, is_optional=False)
    if at.took("NULL"):
        return replace(column, is_optional=True)
    if at.took("DEFAULT"):
        return replace(column, has_default=True, default=_default(parser))
    if at.took("PRIMARY", "KEY"):
        return replace(column, is_key=True)
    if at.took("UNIQUE"):
        return replace(column, is_unique=True)
    if at.took("AS") or at.took("GENERATED"):
        return _generated(parser, column)
    if at.word() in ("VISIBLE", "INVISIBLE"):
        return replace(column, is_invisible=at.name() == "INVISIBLE")
    if at.took("CONSTRAINT"):
        at.name()
        return column
    if at.word() in _ATTRIBUTES:
        at.skip()
        if at.token.value == "(":
            at.skip()
        return column
    raise parser.not_understood()


def _generated(parser: _Parser, column: ColumnDefinition) -> ColumnDefinition:
    at = parser.at
    while at.word() in ("ALWAYS", "BY", "DEFAULT", "ON", "NULL", "AS"):
        at.skip()
    if at.took("IDENTITY"):
        if at.token.value == "(":
            at.skip()
        return replace(column, is_identity=True, is_optional=False)
    at.skip()
    return replace(column, is_virtual=True)


def _default(parser: _Parser) -> str:
    """The text of a DEFAULT: up to the column's next attribute, or its end."""
    at = parser.at
    at.took("ON", "NULL")
    start = at.token.start
    at.skip()
    while not at.is_at_end_of_item and at.word() not in _ATTRIBUTES:
        at.skip()
    return parser.sql[start : at.last_end]
