"""DDL as text becomes DDL as records: the part of a log's statement that concerns tables, and nothing else.

Called by ``ddl``, which applies the records to schemas. The grammar is that of the MySQL 9 manual, "Data
Definition Statements", as far as it can touch a table's columns or keys; the rest is stepped over, never guessed:
a text that does not fit raises ``DdlNotUnderstood``.
"""

import enum
from dataclasses import dataclass, field, replace
from decimal import Decimal, localcontext
from typing import Final

from libs.errors import HeadwaterError, PipelineHalted
from libs.mysql.column_type import WrittenType, read_column_type
from libs.mysql.identifiers import in_lower_case
from libs.mysql.logical import charset_of_collation
from libs.mysql.sql_lexer import DEFAULT_SQL_MODE, SqlMode, Token, TokenKind, TokenReader, UnreadableSql, as_utf8mb3
from libs.types.table import TableId


class DdlNotUnderstood(PipelineHalted):
    """A statement changes tables in a way that this release cannot follow.

    ``table_ids`` names them, as far as they were read. The caller halts if one of them is captured, or learns the
    schema from the source itself; a statement about other tables may be passed over.
    """

    def __init__(self, reason: str, table_ids: tuple[TableId, ...]) -> None:
        self.table_ids = table_ids
        self.reason = reason
        tables = ", ".join(map(str, table_ids)) or "unknown tables"
        super().__init__(f"cannot follow a schema change of {tables}: {reason}; re-snapshot the tables")


SYSTEM_ZONE: Final = "SYSTEM"
"""A session's ``time_zone`` that is the server's own."""


@dataclass(frozen=True, slots=True)
class SentIn:
    """Character sets and time zone of a session."""

    client: str = "utf8mb4"
    """``character_set_client``: that of the statement's bytes, also of a string with an introducer."""
    connection: str = "utf8mb4"
    """``character_set_connection``: to which the server converts other strings."""
    time_zone: str = ""
    """In which a TIMESTAMP's DEFAULT is written: ``+05:30`` or a zone's name; empty: UTC. ``SYSTEM`` is not known."""


@dataclass(frozen=True, slots=True)
class StatementContext:
    """The server's state when it ran a statement, beside its text.

    The log's Query event carries these as status variables.
    """

    sql_mode: SqlMode = DEFAULT_SQL_MODE
    server_charset: str = "utf8mb4"
    """``character_set_server`` of the session: of databases made without a charset."""
    database_charset: str | None = None
    """``character_set_database`` of the session: of CONVERT TO CHARACTER SET DEFAULT. None: that of its default database."""
    sent_in: SentIn = SentIn()
    is_of_server: bool = False
    """The server wrote the statement, in utf8mb3."""
    may_have_made_nothing: bool = False
    """The log does not say that CREATE … IF NOT EXISTS made anything."""
    may_lack_charset: bool = False
    """The server wrote the definition of a table LIKE a temporary one. It leaves the table's charset out (seen on 9.7)."""
    explicit_defaults_for_timestamp: bool = True
    is_server_in_utc: bool = True
    """``system_time_zone`` is UTC: the zone of sessions in ``SYSTEM``. Of other zones MySQL gives an abbreviation alone."""
    lower_case_table_names: int = 0
    """1 or 2: the server compares names of tables and databases in lower case."""

    def table_id(self, database: str, table: str) -> TableId:
        """The table's identity, folded as the server folds names."""
        return TableId(database=self.database(database), table=self._folded(table))

    def database(self, name: str) -> str:
        """The database's identity."""
        return self._folded(name)

    def _folded(self, name: str) -> str:
        return in_lower_case(name) if self.lower_case_table_names else name


class DefaultKind(enum.Enum):
    """What stands after DEFAULT."""

    NULL = "null"
    TEXT = "text"
    """A string."""
    NUMBER = "number"
    BYTES = "bytes"
    """Hex or bits."""
    CURRENT_TIMESTAMP = "current_timestamp"
    COMPUTED = "computed"
    """An expression that is not constant, or of which this is not known here."""


@dataclass(frozen=True, slots=True)
class DefaultValue:
    """A DEFAULT; ``text`` is a literal without quotes, or a call of CURRENT_TIMESTAMP. Constant expressions are their value."""

    kind: DefaultKind
    text: str = ""
    charset: str | None = None
    """That of an introducer: ``_latin1``."""
    is_expression: bool = False
    """It stood in parentheses."""

    @property
    def is_computed(self) -> bool:
        """The server keeps an expression, be it that its value is known here."""
        return self.is_expression or self.kind is DefaultKind.COMPUTED


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column as CREATE or ALTER writes it."""

    name: str
    written: WrittenType
    is_nullable: bool | None = None
    """None: nothing says whether it may be NULL."""
    says_not_null: bool = False
    """NOT NULL stands there, as it does wherever ``SHOW CREATE TABLE`` means it."""
    default: DefaultValue | None = None
    has_on_update: bool = False
    is_auto_increment: bool = False
    is_generated: bool = False
    is_virtual: bool = False
    is_invisible: bool = False
    is_primary: bool = False
    is_unique: bool = False
    collation: str | None = None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class KeyDefinition:
    """A key of any kind, an index by another name."""

    name: str | None
    columns: tuple[str, ...]
    is_primary: bool = False
    is_unique: bool = False
    prefix_lengths: tuple[int, ...] = ()
    """As in ``Index``."""
    is_over_expressions: bool = False
    is_foreign: bool = False
    """Of a foreign key: the server adds it where no other key begins with its columns."""


@dataclass(frozen=True, slots=True)
class Place:
    """FIRST (``after`` is None) or AFTER a column."""

    after: str | None


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The options of a table that concern its schema; None: not said."""

    charset: str | None = None
    """``default`` means the database's."""
    comment: str | None = None
    converts_columns: bool = False
    """CONVERT TO CHARACTER SET: the columns too."""


@dataclass(frozen=True, slots=True)
class AddColumn:
    definition: ColumnDefinition
    place: Place | None


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """CHANGE; MODIFY is a change to the same name."""

    old_name: str
    definition: ColumnDefinition
    place: Place | None


@dataclass(frozen=True, slots=True)
class RenameColumn:
    old_name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class SetDefault:
    """None: DROP DEFAULT."""

    column: str
    default: DefaultValue | None


@dataclass(frozen=True, slots=True)
class SetVisible:
    column: str
    is_visible: bool


@dataclass(frozen=True, slots=True)
class DropColumn:
    name: str


@dataclass(frozen=True, slots=True)
class AddKey:
    key: KeyDefinition


@dataclass(frozen=True, slots=True)
class DropKey:
    """``PRIMARY`` is the primary key; a name that is no index's is that of another constraint."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameKey:
    old_name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class RenameTo:
    table_id: TableId


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """A clause by which rows come or go, of which the log has none: it has the statement alone."""

    clause: str
    """Its first words: ``DROP PARTITION``."""
    exchanged_with: TableId | None = None


Action = (
    AddColumn | ChangeColumn | RenameColumn | SetDefault | SetVisible | DropColumn | AddKey | DropKey | RenameKey | RenameTo
    | TableOptions | ChangeRows
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CreateTable:
    table_id: TableId
    columns: tuple[ColumnDefinition, ...] = ()
    keys: tuple[KeyDefinition, ...] = ()
    """Those written with a column included, in the order of the text."""
    options: TableOptions = field(default_factory=TableOptions)
    keeps_existing: bool = False
    """IF NOT EXISTS."""


@dataclass(frozen=True, slots=True)
class CreateTableLike:
    table_id: TableId
    like: TableId
    keeps_existing: bool = False


@dataclass(frozen=True, slots=True)
class AlterTable:
    table_id: TableId
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class DropTables:
    table_ids: tuple[TableId, ...]


@dataclass(frozen=True, slots=True)
class RenameTables:
    """One after the other: ``a TO tmp, b TO a, tmp TO b`` swaps."""

    renames: tuple[tuple[TableId, TableId], ...]


@dataclass(frozen=True, slots=True)
class TruncateTable:
    table_id: TableId


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    database: str
    charset: str | None
    keeps_existing: bool = False


@dataclass(frozen=True, slots=True)
class AlterDatabase:
    database: str
    charset: str | None


@dataclass(frozen=True, slots=True)
class DropDatabase:
    database: str


Statement = (
    CreateTable | CreateTableLike | AlterTable | DropTables | RenameTables | TruncateTable
    | CreateDatabase | AlterDatabase | DropDatabase
)  # fmt: skip


def parse_statement(text: str, default_database: str, context: StatementContext) -> Statement | None:
    """A statement's effect on tables and databases; None if it is about something else.

    Raises:
        DdlNotUnderstood: it is about tables, and says something that is not known here.
    """
    parser = _Parser(TokenReader(text, context.sql_mode), default_database, context)
    try:
        statement = parser.statement()
    except UnreadableSql as error:
        raise DdlNotUnderstood(str(error), tuple(parser.tables_met)) from error
    except Exception as error:
        raise unforeseen(error, tuple(parser.tables_met)) from error
    return statement


def unforeseen(error: Exception, table_ids: tuple[TableId, ...]) -> DdlNotUnderstood:
    """For an error that a statement of ``table_ids`` made this code raise: these tables alone are concerned."""
    reason = (
        str(error) if isinstance(error, HeadwaterError) else f"this release failed on it with {type(error).__name__}"
    )
    return DdlNotUnderstood(reason, table_ids)


@dataclass(frozen=True, slots=True)
class TemporaryTables:
    """Temporary tables that a statement made and dropped."""

    made: tuple[TableId, ...] = ()
    dropped: tuple[TableId, ...] = ()


def temporary_tables(text: str, default_database: str, sql_mode: SqlMode) -> TemporaryTables:
    """Those of CREATE TEMPORARY TABLE and DROP TEMPORARY TABLE, in lower case: a log of statements has them."""
    context = StatementContext(sql_mode=sql_mode, lower_case_table_names=1)
    tokens = TokenReader(text, sql_mode)
    parser = _Parser(tokens, default_database, context)
    try:
        verb = tokens.accept_any("CREATE", "DROP")
        if not (verb and tokens.accept("TEMPORARY") and tokens.accept_any("TABLE", "TABLES")):
            return TemporaryTables()
        if verb == "CREATE":
            tokens.accept("IF", "NOT", "EXISTS")
            return TemporaryTables(made=(parser.table_id(),))
        tokens.accept("IF", "EXISTS")
        dropped = [parser.table_id()]
        while tokens.accept(","):
            dropped.append(parser.table_id())
        return TemporaryTables(dropped=tuple(dropped))
    except UnreadableSql:
        return TemporaryTables()


_KEY_WORDS: Final = ("PRIMARY", "UNIQUE", "INDEX", "KEY", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK", "CONSTRAINT")
_NOW: Final = ("NOW", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP")
_LITERALS: Final = (TokenKind.STRING, TokenKind.NUMBER, TokenKind.BYTES)
_QUERIES: Final = ("SELECT", "WITH", "TABLE", "VALUES", "AS", "IGNORE", "REPLACE", "(")

# Options with one value, which say nothing about columns (manual, "CREATE TABLE Statement", table_option).
_PLAIN_OPTIONS: Final = frozenset(
    {
        "AUTOEXTEND_SIZE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHECKSUM", "COMPRESSION", "CONNECTION", "DELAY_KEY_WRITE",
        "ENCRYPTION", "ENGINE", "ENGINE_ATTRIBUTE", "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS",
        "PACK_KEYS", "PASSWORD", "ROW_FORMAT", "SECONDARY_ENGINE", "SECONDARY_ENGINE_ATTRIBUTE", "STATS_AUTO_RECALC",
        "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "STORAGE", "TABLESPACE", "TABLE_CHECKSUM", "UNION",
    }
)  # fmt: skip

# Words that open the partition clauses of ALTER TABLE, which leave columns and keys alone
# (manual, "ALTER TABLE Partition Operations").
_PARTITION_ACTIONS: Final = frozenset(
    {"PARTITION", "REMOVE", "COALESCE", "REORGANIZE", "EXCHANGE", "TRUNCATE", "ANALYZE", "CHECK", "OPTIMIZE",
     "REBUILD", "REPAIR", "DISCARD", "IMPORT"}
)  # fmt: skip


# Those of them by which rows come or go; the others only move rows from one partition to another.
_ROW_CHANGING: Final = frozenset({"DROP", "TRUNCATE", "EXCHANGE", "DISCARD", "IMPORT"})


class _Parser:
    """A statement's tokens, and the database that a bare name means in it."""

    def __init__(self, tokens: TokenReader, default_database: str, context: StatementContext) -> None:
        self._tokens = tokens
        self._default_database = default_database
        self._context = context
        self.tables_met: list[TableId] = []

    def statement(self) -> Statement | None:
        tokens = self._tokens
        verb = tokens.accept_any("CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE")
        match verb:
            case "CREATE":
                return self._create()
            case "ALTER" if tokens.accept("TABLE"):
                return self._alter_table()
            case "ALTER" if tokens.accept_any("DATABASE", "SCHEMA"):
                return self._alter_database()
            case "DROP":
                return self._drop()
            case "RENAME" if tokens.accept_any("TABLE", "TABLES"):
                return self._rename_tables()
            case "TRUNCATE":
                tokens.accept("TABLE")
                return self._ended(TruncateTable(self.table_id()))
            case _:
                return None

    # CREATE

    def _create(self) -> Statement | None:
        tokens = self._tokens
        if tokens.accept("TABLE"):
            return self._create_table()
        kind = tokens.accept_any("UNIQUE", "FULLTEXT", "SPATIAL") if tokens.ahead(1).keyword == "INDEX" else ""
        if tokens.accept("INDEX"):
            return self._create_index(is_unique=kind == "UNIQUE")
        if tokens.accept_any("DATABASE", "SCHEMA"):
            keeps_existing = self._if_not_exists()
            name = self._context.database(tokens.name())
            return CreateDatabase(name, self._database_charset(), keeps_existing)
        return None  # TEMPORARY tables have no rows in the log; the rest is no table

    def _create_table(self) -> Statement:
        tokens = self._tokens
        keeps_existing = self._if_not_exists()
        table_id = self.table_id()
        if tokens.accept("LIKE"):
            return self._ended(CreateTableLike(table_id, self.table_id(), keeps_existing))
        if tokens.accept("(", "LIKE"):
            like = self.table_id()
            tokens.expect(")")
            return self._ended(CreateTableLike(table_id, like, keeps_existing))
        tokens.expect("(")
        columns: list[ColumnDefinition] = []
        keys: list[KeyDefinition] = []
        while True:
            self._definition(columns, keys)
            if not tokens.accept(","):
                break
        tokens.expect(")")
        options = self._create_options()
        return self._ended(CreateTable(table_id, tuple(columns), tuple(keys), options, keeps_existing))

    def _definition(self, columns: list[ColumnDefinition], keys: list[KeyDefinition]) -> None:
        """One item between the parentheses of CREATE TABLE."""
        if self._tokens.at_any(*_KEY_WORDS):
            if key := self._key():
                keys.append(key)
            return
        definition = self._column(self._tokens.name())
        columns.append(definition)
        keys.extend(_keys_of(definition))

    def _create_options(self) -> TableOptions:
        tokens = self._tokens
        options = TableOptions()
        while not tokens.at_end():
            tokens.accept(",")
            if tokens.at("PARTITION", "BY"):
                self._skip_statement()
                break
            if tokens.accept("START", "TRANSACTION"):
                continue  # how MySQL 8.0.21 and later log CREATE TABLE … SELECT; the rows follow as row events
            if tokens.at_any(*_QUERIES):
                raise UnreadableSql("columns of CREATE TABLE … SELECT are not in the statement")
            options = self._table_option(options)
        return options

    def _create_index(self, *, is_unique: bool) -> Statement:
        name = self._tokens.name()
        self._index_type()
        self._tokens.expect("ON")
        table_id = self.table_id()
        key = self._key_parts(KeyDefinition(name, (), is_unique=is_unique))
        self._skip_statement()
        return AlterTable(table_id, (AddKey(key),))

    # DROP, RENAME, databases

    def _drop(self) -> Statement | None:
        tokens = self._tokens
        if tokens.accept_any("TABLE", "TABLES"):
            self._if_exists()
            table_ids = [self.table_id()]
            while tokens.accept(","):
                table_ids.append(self.table_id())
            tokens.accept_any("RESTRICT", "CASCADE")
            return self._ended(DropTables(tuple(table_ids)))
        if tokens.accept_any("DATABASE", "SCHEMA"):
            self._if_exists()
            return self._ended(DropDatabase(self._context.database(tokens.name())))
        if tokens.accept("INDEX"):
            name = tokens.name()
            tokens.expect("ON")
            table_id = self.table_id()
            self._skip_statement()
            return AlterTable(table_id, (DropKey(name),))
        return None

    def _rename_tables(self) -> Statement:
        renames = []
        while True:
            old = self.table_id()
            self._tokens.expect("TO")
            renames.append((old, self.table_id()))
            if not self._tokens.accept(","):
                return self._ended(RenameTables(tuple(renames)))

    def _alter_database(self) -> Statement:
        tokens = self._tokens
        is_named = not tokens.at_any("DEFAULT", "CHARACTER", "CHARSET", "COLLATE", "ENCRYPTION", "READ")
        name = tokens.name() if is_named else self._default_database
        return AlterDatabase(self._context.database(name), self._database_charset())

    def _database_charset(self) -> str | None:
        tokens = self._tokens
        charset = None
        while not tokens.at_end():
            tokens.accept("DEFAULT")
            named = self._charset_option()
            if named is None:
                tokens.advance()  # ENCRYPTION, READ ONLY
            charset = named or charset
        return charset

    # ALTER TABLE

    def _alter_table(self) -> Statement:
        tokens = self._tokens
        table_id = self.table_id()
        actions: list[Action] = []
        while not tokens.at_end():
            if self._at_partition_clause():
                actions.extend(self._partition_clause())
                break
            actions.extend(self._action())
            if not tokens.accept(",") and not tokens.at_end() and not self._at_partition_clause():
                # Table options may follow one another without a comma.
                actions.append(self._table_option(TableOptions()))
                tokens.accept(",")
        return AlterTable(table_id, tuple(actions))

    def _at_partition_clause(self) -> bool:
        """A clause about partitions; it is always the last one.

        CHECK, DISCARD and IMPORT also open clauses about the whole table.
        """
        tokens = self._tokens
        if tokens.at("ADD", "PARTITION") or tokens.at("DROP", "PARTITION"):
            # A column may be called "partition" only in backticks: the word is reserved.
            return True
        return tokens.current.keyword in _PARTITION_ACTIONS and (
            tokens.at("PARTITION", "BY")
            or tokens.at("REMOVE", "PARTITIONING")
            or tokens.ahead(1).keyword == "PARTITION"
        )

    def _partition_clause(self) -> tuple[Action, ...]:
        """Its effect on rows; the rest of the statement is stepped over."""
        tokens = self._tokens
        verb = tokens.current.keyword
        other = None
        if verb == "EXCHANGE":
            tokens.expect("EXCHANGE", "PARTITION")
            tokens.name()
            tokens.expect("WITH", "TABLE")
            other = self.table_id()
        self._skip_statement()
        return (ChangeRows(f"{verb} PARTITION", other),) if verb in _ROW_CHANGING else ()

    def _action(self) -> tuple[Action, ...]:
        tokens = self._tokens
        word = tokens.current.keyword
        match word:
            case "ADD":
                tokens.advance()
                return self._add()
            case "DROP":
                tokens.advance()
                return self._drop_item()
            case "MODIFY":
                tokens.advance()
                tokens.accept("COLUMN")
                name = tokens.name()
                return self._changed(name, name)
            case "CHANGE":
                tokens.advance()
                tokens.accept("COLUMN")
                old_name = tokens.name()
                return self._changed(old_name, tokens.name())
            case "RENAME":
                tokens.advance()
                return (self._rename_item(),)
            case "ALTER":
                tokens.advance()
                return self._alter_item()
            case "CONVERT":
                return (self._convert(),)
            case "ORDER":
                self._order_by()
                return ()
            case "FORCE":
                tokens.advance()
                return ()
            case "ALGORITHM" | "LOCK":
                tokens.advance()
                tokens.accept("=")
                tokens.name()
                return ()
            case "WITH" | "WITHOUT":
                tokens.advance()
                tokens.expect("VALIDATION")
                return ()
            case "ENABLE" | "DISABLE":
                tokens.advance()
                tokens.expect("KEYS")
                return ()
            case "DISCARD" | "IMPORT":
                tokens.advance()
                tokens.expect("TABLESPACE")
                return (ChangeRows(f"{word} TABLESPACE"),)
            case "SECONDARY_LOAD" | "SECONDARY_UNLOAD":
                self._skip_statement()
                return ()
            case _:
                return (self._table_option(TableOptions()),)

    def _add(self) -> tuple[Action, ...]:
        tokens = self._tokens
        if tokens.at_any(*_KEY_WORDS):
            key = self._key()
            return (AddKey(key),) if key else ()
        tokens.accept("COLUMN")
        if tokens.accept("("):
            columns: list[ColumnDefinition] = []
            keys: list[KeyDefinition] = []
            while True:
                self._definition(columns, keys)
                if not tokens.accept(","):
                    break
            tokens.expect(")")
            return (*(AddColumn(column, None) for column in columns), *map(AddKey, keys))
        definition = self._column(tokens.name())
        return (AddColumn(definition, self._place()), *map(AddKey, _keys_of(definition)))

    def _changed(self, old_name: str, new_name: str) -> tuple[Action, ...]:
        definition = self._column(new_name)
        return (ChangeColumn(old_name, definition, self._place()), *map(AddKey, _keys_of(definition)))

    def _place(self) -> Place | None:
        if self._tokens.accept("FIRST"):
            return Place(None)
        if self._tokens.accept("AFTER"):
            return Place(self._tokens.name())
        return None

    def _drop_item(self) -> tuple[Action, ...]:
        tokens = self._tokens
        if tokens.accept("PRIMARY", "KEY"):
            return (DropKey("PRIMARY"),)
        if tokens.accept_any("INDEX", "KEY"):
            return (DropKey(tokens.name()),)
        if tokens.accept("FOREIGN", "KEY") or tokens.accept("CHECK"):
            tokens.name()
            return ()
        if tokens.accept("CONSTRAINT"):
            return (DropKey(tokens.name()),)
        tokens.accept("COLUMN")
        name = tokens.name()
        tokens.accept_any("RESTRICT", "CASCADE")
        return (DropColumn(name),)

    def _rename_item(self) -> Action:
        tokens = self._tokens
        # COLUMN, INDEX and KEY are reserved words, hence no table's name.
        kind = tokens.accept_any("COLUMN", "INDEX", "KEY")
        if not kind:
            tokens.accept_any("TO", "AS", "=")
            return RenameTo(self.table_id())
        old_name = tokens.name()
        tokens.expect("TO")
        new_name = tokens.name()
        return RenameColumn(old_name, new_name) if kind == "COLUMN" else RenameKey(old_name, new_name)

    def _alter_item(self) -> tuple[Action, ...]:
        tokens = self._tokens
        if tokens.accept_any("INDEX", "CHECK", "CONSTRAINT"):
            tokens.name()
            tokens.accept("NOT")
            if not tokens.accept_any("VISIBLE", "INVISIBLE", "ENFORCED"):
                raise tokens.unreadable("VISIBLE or ENFORCED")
            return ()
        tokens.accept("COLUMN")
        name = tokens.name()
        if tokens.accept("DROP", "DEFAULT"):
            return (SetDefault(name, None),)
        tokens.expect("SET")
        if word := tokens.accept_any("VISIBLE", "INVISIBLE"):
            return (SetVisible(name, is_visible=word == "VISIBLE"),)
        tokens.expect("DEFAULT")
        is_literal = _is_literal_in_parentheses(tokens)
        # Only here does the server take a literal in parentheses for a literal, not for an expression.
        default = self._default()
        return (SetDefault(name, replace(default, is_expression=False) if is_literal else default),)

    def _convert(self) -> Action:
        self._tokens.expect("CONVERT", "TO")
        charset = self._charset_option()
        if charset is None:
            raise self._tokens.unreadable("CHARACTER SET")
        if self._tokens.at("COLLATE"):
            collation_charset = self._charset_option()
            charset = collation_charset if charset == "default" and collation_charset else charset
        return TableOptions(charset=charset, converts_columns=True)

    def _order_by(self) -> None:
        """``ORDER BY a, b DESC``: its commas are no commas between actions."""
        tokens = self._tokens
        tokens.expect("ORDER", "BY")
        while True:
            tokens.name()
            while tokens.accept("."):
                tokens.name()
            tokens.accept_any("ASC", "DESC")
            after_next = tokens.ahead(2)
            is_column = after_next.keyword in (",", ".", "ASC", "DESC", ";") or after_next.kind is TokenKind.END
            if not (tokens.at(",") and is_column):
                return
            tokens.advance()

    # Columns

    def _column(self, name: str) -> ColumnDefinition:
        """The definition after a column's name (manual, "CREATE TABLE Statement", column_definition)."""
        tokens = self._tokens
        written = read_column_type(tokens)
        column = ColumnDefinition(name, written, collation=written.collation)
        if written.is_serial:
            column = replace(column, is_nullable=False, is_auto_increment=True, is_unique=True)
        while True:
            following = self._attribute(column)
            if following is None:
                return column
            column = following

    def _attribute(self, column: ColumnDefinition) -> ColumnDefinition | None:
        """The column with the attribute that stands next; None if none does."""
        tokens = self._tokens
        word = tokens.current.keyword
        match word:
            case "NOT" if tokens.accept("NOT", "NULL"):
                return replace(column, is_nullable=False, says_not_null=True)
            case "NOT" if tokens.accept("NOT", "SECONDARY") or tokens.accept("NOT", "ENFORCED"):
                return column
            case "NULL":
                tokens.advance()
                return replace(column, is_nullable=True)
            case "DEFAULT":
                tokens.advance()
                return replace(column, default=self._default())
            case "ON":
                tokens.expect("ON", "UPDATE")
                self._current_timestamp()
                return replace(column, has_on_update=True)
            case "AUTO_INCREMENT":
                tokens.advance()
                return replace(column, is_auto_increment=True, is_nullable=False)
            case "SERIAL":
                tokens.expect("SERIAL", "DEFAULT", "VALUE")
                return replace(column, is_auto_increment=True, is_nullable=False, is_unique=True)
            case "PRIMARY" | "KEY":
                tokens.accept("PRIMARY")
                tokens.expect("KEY")
                return replace(column, is_primary=True)
            case "UNIQUE":
                tokens.advance()
                tokens.accept("KEY")
                return replace(column, is_unique=True)
            case "COMMENT":
                tokens.advance()
                return replace(column, comment=as_utf8mb3(tokens.string()))
            case "COLLATE":
                tokens.advance()
                return replace(column, collation=self._word_or_string())
            case "GENERATED" | "AS":
                if tokens.accept("GENERATED"):
                    tokens.expect("ALWAYS")
                tokens.expect("AS")
                tokens.skip_parentheses()
                return replace(column, is_generated=True, is_virtual=True)  # unless STORED follows
            case "STORED":
                tokens.advance()
                return replace(column, is_virtual=False)
            case "VISIBLE" | "INVISIBLE":
                tokens.advance()
                return replace(column, is_invisible=word == "INVISIBLE")
            case "VIRTUAL" | "ENFORCED":
                tokens.advance()
                return column
            case "COLUMN_FORMAT" | "STORAGE" | "SRID":
                tokens.advance()
                tokens.advance()
                return column
            case "ENGINE_ATTRIBUTE" | "SECONDARY_ENGINE_ATTRIBUTE":
                tokens.advance()
                tokens.accept("=")
                tokens.string()
                return column
            case "REFERENCES":
                self._references()
                return column
            case "CONSTRAINT" | "CHECK":
                if tokens.accept("CONSTRAINT") and not tokens.at("CHECK"):
                    tokens.name()
                tokens.expect("CHECK")
                tokens.skip_parentheses()
                return column
            case _:
                return None

    def _default(self) -> DefaultValue:
        tokens = self._tokens
        if tokens.at("("):
            return constant_of(tokens)
        if tokens.at_any(*_NOW):
            return DefaultValue(DefaultKind.CURRENT_TIMESTAMP, self._current_timestamp())
        sign = "-" if tokens.accept("-") else ""
        tokens.accept("+")
        value = literal(tokens)
        if value is None or (sign and value.kind is not DefaultKind.NUMBER):
            raise tokens.unreadable("a default value")
        return replace(value, text=sign + value.text) if sign else value

    def _current_timestamp(self) -> str:
        tokens = self._tokens
        if not tokens.accept_any(*_NOW):
            raise tokens.unreadable("CURRENT_TIMESTAMP")
        digits = ""
        if tokens.accept("("):
            if not tokens.at(")"):
                digits = str(tokens.integer())
            tokens.expect(")")
        return f"CURRENT_TIMESTAMP({digits})"

    def _references(self) -> None:
        tokens = self._tokens
        tokens.expect("REFERENCES")
        tokens.name()
        while tokens.accept("."):
            tokens.name()
        if tokens.at("("):
            tokens.skip_parentheses()
        while True:
            if tokens.accept("MATCH"):
                tokens.name()
            elif tokens.accept("ON", "DELETE") or tokens.accept("ON", "UPDATE"):
                word = tokens.accept_any("RESTRICT", "CASCADE", "SET", "NO")
                if word in ("SET", "NO"):
                    tokens.accept_any("NULL", "DEFAULT", "ACTION")
            else:
                return

    # Keys

    def _key(self) -> KeyDefinition | None:
        """The key or constraint that stands next; None for a CHECK."""
        tokens = self._tokens
        constraint = None
        if tokens.accept("CONSTRAINT") and not tokens.at_any(*_KEY_WORDS):
            constraint = tokens.name()
        if tokens.accept("CHECK"):
            tokens.skip_parentheses()
            tokens.accept("NOT")
            tokens.accept("ENFORCED")
            return None
        if tokens.accept("PRIMARY", "KEY"):
            key = KeyDefinition("PRIMARY", (), is_primary=True, is_unique=True)
            if not tokens.at_any("USING", "("):
                tokens.name()  # allowed, and ignored by the server
        elif tokens.accept("FOREIGN", "KEY"):
            name = None if tokens.at("(") else tokens.name()
            key = self._key_parts(KeyDefinition(constraint or name, (), is_foreign=True))
            self._references()
            return key
        else:
            kind = tokens.accept_any("UNIQUE", "FULLTEXT", "SPATIAL")
            named = tokens.accept_any("INDEX", "KEY")
            if not kind and not named:
                raise tokens.unreadable("a key")
            name = constraint if tokens.at_any("USING", "(") else tokens.name()
            key = KeyDefinition(name, (), is_unique=kind == "UNIQUE")
        self._index_type()
        key = self._key_parts(key)
        self._index_options()
        return key

    def _index_type(self) -> None:
        if self._tokens.accept_any("USING", "TYPE"):
            self._tokens.name()

    def _key_parts(self, key: KeyDefinition) -> KeyDefinition:
        """``(a, b(10) DESC, (expression))``."""
        tokens = self._tokens
        tokens.expect("(")
        columns: list[str] = []
        prefix_lengths: list[int] = []
        is_over_expressions = False
        while True:
            if tokens.at("("):
                tokens.skip_parentheses()
                is_over_expressions = True
            else:
                columns.append(tokens.name())
                prefix_lengths.append(0)
                if tokens.accept("("):
                    prefix_lengths[-1] = tokens.integer()
                    tokens.expect(")")
            tokens.accept_any("ASC", "DESC")
            if not tokens.accept(","):
                break
        tokens.expect(")")
        return replace(
            key,
            columns=tuple(columns),
            prefix_lengths=tuple(prefix_lengths),
            is_over_expressions=is_over_expressions,
        )

    def _index_options(self) -> None:
        tokens = self._tokens
        while True:
            match tokens.current.keyword:
                case "USING" | "TYPE":
                    self._index_type()
                case "KEY_BLOCK_SIZE" | "COMMENT" | "ENGINE_ATTRIBUTE" | "SECONDARY_ENGINE_ATTRIBUTE":
                    tokens.advance()
                    tokens.accept("=")
                    tokens.advance()
                case "WITH":
                    tokens.expect("WITH", "PARSER")
                    tokens.name()
                case "VISIBLE" | "INVISIBLE":
                    tokens.advance()
                case _:
                    return

    # Options

    def _table_option(self, options: TableOptions) -> TableOptions:
        """The options with the one that stands next."""
        tokens = self._tokens
        tokens.accept("DEFAULT")
        is_collation = tokens.at("COLLATE")
        charset = self._charset_option()
        if charset is not None:
            # A collation that follows its charset says nothing more about the charset.
            return options if is_collation and options.charset else replace(options, charset=charset)
        if tokens.accept("COMMENT"):
            tokens.accept("=")
            return replace(options, comment=as_utf8mb3(tokens.string()))
        if tokens.accept("DATA", "DIRECTORY") or tokens.accept("INDEX", "DIRECTORY"):
            tokens.accept("=")
            tokens.string()
            return options
        if not tokens.accept_any(*_PLAIN_OPTIONS):
            raise tokens.unreadable("a clause of CREATE or ALTER TABLE")
        tokens.accept("=")
        if tokens.at("("):
            tokens.skip_parentheses()
        else:
            tokens.advance()
        return options

    def _charset_option(self) -> str | None:
        """Charset named by ``CHARACTER SET [=] x`` or ``COLLATE [=] y``; None if neither stands next."""
        tokens = self._tokens
        if tokens.accept("COLLATE"):
            tokens.accept("=")
            collation = self._word_or_string()
            return "default" if collation == "default" else charset_of_collation(collation)
        if not (tokens.accept("CHARACTER", "SET") or tokens.accept("CHAR", "SET") or tokens.accept("CHARSET")):
            return None
        tokens.accept("=")
        return self._word_or_string()

    def _word_or_string(self) -> str:
        tokens = self._tokens
        return (tokens.string() if tokens.current.kind is TokenKind.STRING else tokens.name()).lower()

    # Names and ends

    def table_id(self) -> TableId:
        """A table's name, with its database or without."""
        first = self._tokens.name()
        if self._tokens.accept("."):
            table_id = self._context.table_id(first, self._tokens.name())
        else:
            table_id = self._context.table_id(self._default_database, first)
        self.tables_met.append(table_id)
        return table_id

    def _if_exists(self) -> None:
        self._tokens.accept("IF", "EXISTS")

    def _if_not_exists(self) -> bool:
        return self._tokens.accept("IF", "NOT", "EXISTS")

    def _skip_statement(self) -> None:
        while self._tokens.current.kind is not TokenKind.END:
            self._tokens.advance()

    def _ended(self, statement: Statement) -> Statement:
        """The statement. Raises UnreadableSql if its text goes on."""
        if not self._tokens.at_end():
            raise self._tokens.unreadable("the end of the statement")
        return statement


def _keys_of(definition: ColumnDefinition) -> tuple[KeyDefinition, ...]:
    """The keys that a column's own definition makes."""
    keys = []
    if definition.is_primary:
        keys.append(KeyDefinition("PRIMARY", (definition.name,), is_primary=True, is_unique=True))
    if definition.is_unique:
        keys.append(KeyDefinition(None, (definition.name,), is_unique=True))
    return tuple(keys)


# Constants


def _is_literal_in_parentheses(tokens: TokenReader) -> bool:
    """``(5)``, ``((TRUE))``, ``(_latin1 'a')``: a literal alone, without a sign, stands next."""
    depth = 0
    while tokens.ahead(depth).keyword == "(":
        depth += 1
    at = depth + tokens.ahead(depth).value.startswith("_")
    if tokens.ahead(at).kind not in _LITERALS and tokens.ahead(at).keyword not in ("NULL", "TRUE", "FALSE"):
        return False
    at += 1
    while tokens.ahead(at).kind is TokenKind.STRING:
        at += 1
    return depth > 0 and all(tokens.ahead(at + nth).keyword == ")" for nth in range(depth))


def literal(tokens: TokenReader) -> DefaultValue | None:
    """The literal that stands next, without a sign; None if none does (manual, "Literal Values")."""
    if tokens.accept("NULL"):
        return DefaultValue(DefaultKind.NULL)
    if word := tokens.accept_any("TRUE", "FALSE"):
        return DefaultValue(DefaultKind.NUMBER, str(int(word == "TRUE")))
    if tokens.at_any("DATE", "TIME", "TIMESTAMP") and tokens.ahead(1).kind is TokenKind.STRING:
        tokens.advance()
        return DefaultValue(DefaultKind.TEXT, tokens.string())
    charset = None
    if tokens.current.value.startswith("_") and tokens.ahead(1).kind in (TokenKind.STRING, TokenKind.BYTES):
        charset = tokens.advance().value[1:].lower()
    match tokens.current.kind:
        case TokenKind.STRING:
            return DefaultValue(DefaultKind.TEXT, tokens.string(), charset)
        case TokenKind.BYTES:
            return DefaultValue(DefaultKind.BYTES, tokens.advance().value, charset)
        case TokenKind.NUMBER if charset is None:
            return DefaultValue(DefaultKind.NUMBER, tokens.advance().value)
    return None


def constant_of(tokens: TokenReader) -> DefaultValue:
    """The value of the expression in parentheses that stands next: of literals, and of sums and products of plain numbers.

    Everything else is COMPUTED. The tokens of the expression are stepped over.
    """
    inside = (*tokens.skip_parentheses(), Token(TokenKind.END, "", 0, 0))
    reader = TokenReader.over(inside, tokens)
    value = _sum(reader)
    if value is None or reader.current.kind is not TokenKind.END:
        return DefaultValue(DefaultKind.COMPUTED)
    return replace(value, is_expression=True)


def _sum(tokens: TokenReader) -> DefaultValue | None:
    value = _product(tokens)
    while value is not None and (sign := tokens.accept_any("+", "-")):
        value = _calculated(sign, value, _product(tokens))
    return value


def _product(tokens: TokenReader) -> DefaultValue | None:
    value = _factor(tokens)
    while value is not None and tokens.accept("*"):
        value = _calculated("*", value, _factor(tokens))
    return value


def _factor(tokens: TokenReader) -> DefaultValue | None:
    if tokens.at("("):
        within = constant_of(tokens)
        return None if within.kind is DefaultKind.COMPUTED else within
    if sign := tokens.accept_any("-", "+"):
        value = _factor(tokens)
        if sign == "+" or value is None:
            return value
        return _calculated("-", DefaultValue(DefaultKind.NUMBER, "0"), value)
    for function, document in (("JSON_ARRAY", "[]"), ("JSON_OBJECT", "{}")):
        if tokens.accept(function, "(", ")"):
            return DefaultValue(DefaultKind.TEXT, document)
    return literal(tokens)


def _calculated(operator: str, left: DefaultValue, right: DefaultValue | None) -> DefaultValue | None:
    """Exact numbers alone: the server calculates with them exactly (manual, "Precision Math")."""
    if right is None or any(each.kind is not DefaultKind.NUMBER or "e" in each.text.lower() for each in (left, right)):
        return None
    a, b = Decimal(left.text), Decimal(right.text)
    with localcontext(prec=130):
        value = a * b if operator == "*" else a + b if operator == "+" else a - b
    return DefaultValue(DefaultKind.NUMBER, f"{value:f}")
