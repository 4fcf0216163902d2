"""Follow DDL in log order: schemas before a statement become schemas after it.

Called by the binlog reader for every statement of the log, and for ``SHOW CREATE TABLE`` at the snapshot: one
road, so both give equal schemas. Plain functions from values to values; ``ddl_syntax`` reads the text.

The rules are the server's own, as seen on MySQL 9.7 (``tests/integration/test_mysql_ddl.py`` compares with it): an
ALTER first drops and changes columns in place, then puts new and moved ones where FIRST and AFTER say; indexes follow
their columns; and unique ones stand in the order in which the server prefers them (``sort_keys`` in sql_table.cc),
which decides the key of a table that has no primary key.
"""

import enum
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import MappingProxyType
from typing import Final

import msgspec

from libs.mysql.charsets import python_codec, storable
from libs.mysql.column_type import (
    MysqlType,
    bytes_per_character,
    converted_text,
    fitted_prefix,
    fitted_varbinary,
    fitted_varchar,
    is_character_type,
    is_member_of_bytes,
    parse_column_type,
    sized_text,
    with_binary_charset,
    with_members_of_bytes,
)
from libs.mysql.ddl_syntax import (
    AddColumn,
    AddKey,
    AlterDatabase,
    AlterTable,
    ChangeColumn,
    ChangeRows,
    ColumnDefinition,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    DdlNotUnderstood,
    DefaultKind,
    DefaultValue,
    DropColumn,
    DropDatabase,
    DropKey,
    DropTables,
    KeyDefinition,
    Place,
    RenameColumn,
    RenameKey,
    RenameTables,
    RenameTo,
    SentIn,
    SetDefault,
    SetVisible,
    Statement,
    StatementContext,
    TableOptions,
    TruncateTable,
    parse_statement,
    unforeseen,
)
from libs.mysql.default_text import default_text, text_as_sent
from libs.mysql.identifiers import in_lower_case
from libs.mysql.logical import canonical_charset, canonical_default, charset_of_collation, column
from libs.mysql.row_key import row_key
from libs.mysql.shown_definition import doubtful_members
from libs.mysql.unseen_values import may_change_values
from libs.types.table import Born, Column, FormerName, Index, TableId, TableSchema
from libs.types.unseen_rows import UnseenRows

__all__ = [
    "DdlNotUnderstood",
    "StatementContext",
    "TableChange",
    "TableChangeKind",
    "apply_database_ddl",
    "apply_ddl",
    "changed_database",
    "cut_columns",
    "show_create_to_schema",
    "unseen_rows",
]

PRIMARY: Final = "PRIMARY"
_GENERATED_KEY: Final = "my_row_id"
_DEFAULT_CONTEXT: Final = StatementContext()


class TableChangeKind(enum.Enum):
    """The effect of a statement on a table."""

    CREATE = "create"
    ALTER = "alter"
    DROP = "drop"
    RENAME = "rename"
    """Its name changed; ALTER TABLE … RENAME may have changed its columns too."""
    TRUNCATE = "truncate"


@dataclass(frozen=True, slots=True)
class TableChange:
    """One table's part of a statement."""

    kind: TableChangeKind
    table_id: TableId
    """The table's name after the statement."""
    schema: TableSchema | None
    """After the statement. Equal to the schema before if nothing changed that a row depends on; its ``version`` is
    the one before, because only schema_history counts versions. None: the table is gone, or it was renamed
    from a table that was not known."""
    previous_id: TableId | None = None
    """The name before a rename."""


def apply_ddl(
    tables: Mapping[TableId, TableSchema],
    default_database: str,
    statement: str,
    *,
    database_charsets: Mapping[str, str] | None = None,
    context: StatementContext = _DEFAULT_CONTEXT,
) -> tuple[TableChange, ...]:
    """The effects of a statement of the log on tables, in its own order; empty for one that concerns none.

    ``tables`` should hold every table of the databases that are followed, not only the captured ones: tools for online
    schema changes build a shadow table and rename it. A change of a table that is not in ``tables`` is passed over.
    ``database_charsets`` gives the charset of databases; see ``apply_database_ddl``.

    Raises:
        DdlNotUnderstood: the statement changes tables in a way that cannot be followed, or contradicts ``tables``. Halt
            if one of its ``table_ids`` is captured.
    """
    parsed = parse_statement(statement, default_database, context)
    charsets = database_charsets or {}
    if context.database_charset is None:
        context = replace(context, database_charset=charsets.get(default_database, context.server_charset))
    try:
        return _applied(parsed, tables, charsets, context)
    except DdlNotUnderstood as error:
        if error.table_ids:
            raise
        raise DdlNotUnderstood(error.reason, _tables_of(parsed)) from error
    except Exception as error:
        raise unforeseen(error, _tables_of(parsed)) from error


def _tables_of(statement: Statement | None) -> tuple[TableId, ...]:
    match statement:
        case DropTables(table_ids=table_ids):
            return table_ids
        case RenameTables(renames=renames):
            return tuple(dict.fromkeys(table_id for pair in renames for table_id in pair))
        case CreateTable(table_id=table_id) | CreateTableLike(table_id=table_id) | TruncateTable(table_id=table_id):
            return (table_id,)
        case AlterTable(table_id=table_id, actions=actions):
            named = [action.table_id for action in actions if isinstance(action, RenameTo)]
            return tuple(dict.fromkeys((table_id, *named)))
        case _:
            return ()


def _applied(
    parsed: Statement | None,
    tables: Mapping[TableId, TableSchema],
    charsets: Mapping[str, str],
    context: StatementContext,
) -> tuple[TableChange, ...]:
    match parsed:
        case (
            CreateTable(table_id=table_id, keeps_existing=keeps)
            | CreateTableLike(table_id=table_id, keeps_existing=keeps)
        ) if keeps and table_id in tables:
            return ()
        case (
            CreateTable(table_id=table_id, keeps_existing=True)
            | CreateTableLike(table_id=table_id, keeps_existing=True)
        ) if context.may_have_made_nothing:
            raise DdlNotUnderstood("IF NOT EXISTS does not say whether it made the table", (table_id,))
        case CreateTable(options=options, table_id=table_id) if context.may_lack_charset and options.charset is None:
            raise DdlNotUnderstood("the log lacks the charset of a table LIKE a temporary one", (table_id,))
        case CreateTable():
            schema = _created(parsed, charsets.get(parsed.table_id.database, context.server_charset), context)
            return (TableChange(TableChangeKind.CREATE, parsed.table_id, schema),)
        case CreateTableLike():
            return (TableChange(TableChangeKind.CREATE, parsed.table_id, _created_like(parsed, tables)),)
        case AlterTable():
            database_charset = charsets.get(parsed.table_id.database, context.server_charset)
            return _altered(parsed, tables, database_charset, context)
        case DropTables():
            return tuple(_dropped(table_id for table_id in parsed.table_ids if table_id in tables))
        case DropDatabase():
            return tuple(_dropped(table_id for table_id in tables if table_id.database == parsed.database))
        case RenameTables():
            return _renamed(parsed, tables)
        case TruncateTable(table_id=table_id) if table_id in tables:
            return (TableChange(TableChangeKind.TRUNCATE, table_id, tables[table_id]),)
        case _:
            return ()


def depends_on_session(
    changes: Sequence[TableChange],
    tables: Mapping[TableId, TableSchema],
    default_database: str,
    statement: str,
    *,
    database_charsets: Mapping[str, str],
    context: StatementContext,
) -> bool:
    """A session with other settings than ``context``, by which the statement made ``changes``, would make other tables.

    For logs that do not carry a session's ``sql_mode`` and ``time_zone``. A setting under which the statement would be an
    error is none that the session can have had.
    """
    for other in _other_sessions(statement.lower(), context):
        try:
            made = apply_ddl(tables, default_database, statement, database_charsets=database_charsets, context=other)
        except DdlNotUnderstood:
            continue
        if made != changes:
            return True
    return False


def _other_sessions(text: str, context: StatementContext) -> Iterator[StatementContext]:
    """Each setting changed by itself, if the statement has a word or sign that it gives a meaning to."""
    mode = context.sql_mode
    if '"' in text:
        yield replace(context, sql_mode=replace(mode, ansi_quotes=not mode.ansi_quotes))
    if "\\" in text:
        yield replace(context, sql_mode=replace(mode, backslash_escapes=not mode.backslash_escapes))
    if "real" in text:
        yield replace(context, sql_mode=replace(mode, real_as_float=not mode.real_as_float))
    if "timestamp" in text and "default" in text:
        yield replace(context, sent_in=replace(context.sent_in, time_zone="+01:00"))


def apply_database_ddl(
    database_charsets: Mapping[str, str],
    default_database: str,
    statement: str,
    *,
    context: StatementContext = _DEFAULT_CONTEXT,
) -> Mapping[str, str]:
    """The charset of every database after a statement: tables get it that name none.

    Raises:
        DdlNotUnderstood: as ``apply_ddl``.
    """
    charsets = dict(database_charsets)
    match parse_statement(statement, default_database, context):
        case CreateDatabase(database=name, charset=charset, keeps_existing=keeps) if not (keeps and name in charsets):
            charsets[name] = _named_charset(charset, context.server_charset)
        case AlterDatabase(database=name, charset=str(charset)):
            charsets[name] = _named_charset(charset, context.server_charset)
        case DropDatabase(database=name):
            charsets.pop(name, None)
    return charsets


def changed_database(
    default_database: str, statement: str, *, context: StatementContext = _DEFAULT_CONTEXT
) -> str | None:
    """The database that a statement makes, changes or drops; None for one that does neither.

    Raises:
        DdlNotUnderstood: as ``apply_ddl``.
    """
    match parse_statement(statement, default_database, context):
        case CreateDatabase(database=name) | AlterDatabase(database=name) | DropDatabase(database=name):
            return name
        case _:
            return None


def unseen_rows(
    default_database: str,
    statement: str,
    *,
    tables: Mapping[TableId, TableSchema] = MappingProxyType({}),
    context: StatementContext = _DEFAULT_CONTEXT,
) -> UnseenRows | None:
    """The effect of a statement on rows without a row event of it (manual, "ALTER TABLE Partition Operations" and "Importing
    InnoDB Tables"); None for all that the log has whole. TRUNCATE TABLE is none of these: it comes out as an event.

    ``tables``, as they are before it, say more: columns whose stored values it may have rounded or cut, and new columns
    whose values in the rows of before the server alone knows.

    Raises:
        DdlNotUnderstood: as ``apply_ddl``.
    """
    parsed = parse_statement(statement, default_database, context)
    if not isinstance(parsed, AlterTable):
        return None
    changes = [action for action in parsed.actions if isinstance(action, ChangeRows)]
    others = tuple(action.exchanged_with for action in changes if action.exchanged_with is not None)
    clauses = [action.clause for action in changes]
    before = tables.get(parsed.table_id)
    if before is not None:
        clauses += _unseen_values(before, parsed, context)
    return UnseenRows(", ".join(clauses), (parsed.table_id, *others)) if clauses else None


def _unseen_values(before: TableSchema, statement: AlterTable, context: StatementContext) -> list[str]:
    """The clauses that change values of the rows that are there; empty for a statement that contradicts ``before``."""
    try:
        after = _alter(before, statement, before.table_id, before.charset or "utf8mb4", context)
    except Exception:  # ``apply_ddl`` meets it too, and raises
        return []
    columns = {in_lower_case(column.name): column for column in after.columns}
    is_strict = context.sql_mode.is_strict
    clauses = []
    for action in statement.actions:
        match action:
            case ChangeColumn(old_name=old_name, definition=definition) if in_lower_case(definition.name) in columns:
                old, new = _old_column(before, old_name), columns[in_lower_case(definition.name)]
                if may_change_values(old, new, is_strict=is_strict):
                    clauses.append(f"{old.name} from {old.source_type} to {new.source_type}")
                elif new.is_generated:  # the schema has no expression to compare with
                    clauses.append(f"{new.name}, whose values the server computed again")
            case AddColumn(definition=definition) if in_lower_case(definition.name) in columns:
                new = columns[in_lower_case(definition.name)]
                if _is_known_to_server(new, definition.default):
                    clauses.append(f"ADD COLUMN {new.name}, whose values in the rows of before the server computed")
            case TableOptions(converts_columns=True):
                for old in before.columns:
                    converted = columns.get(in_lower_case(old.name))
                    if converted is not None and may_change_values(old, converted, is_strict=is_strict):
                        clauses.append(f"{old.name} from {old.charset} to {converted.charset}")
    return clauses


def cut_columns(before: TableSchema, after: TableSchema, *, is_strict: bool) -> list[str]:
    """Columns of one name that cannot hold in ``after`` all that they hold in ``before``, with both types."""
    columns = {in_lower_case(column.name): column for column in after.columns}
    pairs = [(old, columns[in_lower_case(old.name)]) for old in before.columns if in_lower_case(old.name) in columns]
    return [
        f"{old.name} from {old.source_type} to {new.source_type}"
        for old, new in pairs
        if may_change_values(old, new, is_strict=is_strict)
    ]


def computed_columns(before: TableSchema, after: TableSchema) -> list[str]:
    """Columns of ``after`` that ``before`` lacks, and whose values in the rows of before the server alone knows."""
    known = {in_lower_case(column.name) for column in before.columns}
    return [
        f"ADD COLUMN {column.name}, whose values in the rows of before the server computed"
        for column in after.columns
        if in_lower_case(column.name) not in known
        and (
            (column.is_default_computed and column.default_expression is None)
            or (column.default_expression or "").startswith("CURRENT_TIMESTAMP")
            or _is_known_to_server(column, None)
        )
    ]


_WITHOUT_MONTH_OR_DAY: Final = re.compile(r"\d{4}-(?:00|\d\d-00)")


def _is_known_to_server(column: Column, default: DefaultValue | None) -> bool:
    """The server computed the value of a new column in the rows that were there."""
    if column.is_generated or column.is_auto_increment:
        return True
    if default is not None and default.kind in (DefaultKind.COMPUTED, DefaultKind.CURRENT_TIMESTAMP):
        return True
    text = column.default_expression
    if text is None:
        return default is not None and default.is_expression and default.kind is not DefaultKind.NULL
    if column.source_type.startswith("timestamp"):
        # Its literal stands in the time zone of the session; without month or day it is 0 in all of them.
        return not text.startswith("0000-00-00")
    is_date = column.source_type.startswith(("date", "datetime"))
    return is_date and text.startswith("0000-") and not _WITHOUT_MONTH_OR_DAY.match(text)  # a year that no sink has


def show_create_to_schema(
    table_id: TableId,
    create_statement: str,
    database_charset: str = "utf8mb4",
    *,
    context: StatementContext = _DEFAULT_CONTEXT,
) -> TableSchema:
    """The schema of a table as ``SHOW CREATE TABLE`` describes it.

    Raises:
        DdlNotUnderstood: the definition holds something that this release does not know.
    """
    parsed = parse_statement(create_statement, table_id.database, context)
    if not isinstance(parsed, CreateTable):
        raise DdlNotUnderstood("SHOW CREATE TABLE gave no CREATE TABLE", (table_id,))
    # NOT NULL is always written there; AUTO_INCREMENT or SERIAL alone mean none.
    columns = tuple(replace(each, is_nullable=not each.says_not_null) for each in parsed.columns)
    try:
        return _created(replace(parsed, table_id=table_id, columns=columns), database_charset, context)
    except DdlNotUnderstood:
        raise
    except Exception as error:
        raise unforeseen(error, (table_id,)) from error


# CREATE TABLE


def _created(statement: CreateTable, database_charset: str, context: StatementContext) -> TableSchema:
    charset = _named_charset(statement.options.charset, database_charset)
    timestamps = _Timestamps(context, has_automatic=False)
    columns = [_resolve_column(timestamps.completed(each), charset, context) for each in statement.columns]
    members = ((parse_column_type(each.source_type).members, each.charset) for each in columns if context.is_of_server)
    if any(doubtful_members(*each) for each in members):
        raise DdlNotUnderstood(
            "the server wrote it, with question marks for characters beyond utf8mb3", (statement.table_id,)
        )
    table = _Table(statement.table_id, columns, charset, statement.options.comment or None)
    table.add_keys(statement.keys)
    return table.schema(version=0)


def _created_like(statement: CreateTableLike, tables: Mapping[TableId, TableSchema]) -> TableSchema:
    template = tables.get(statement.like)
    if template is None:
        raise DdlNotUnderstood(f"it is made LIKE {statement.like}, which is not known", (statement.table_id,))
    columns = tuple(
        msgspec.structs.replace(column, former_names=(), earlier_names=(), born=None) for column in template.columns
    )
    return msgspec.structs.replace(template, table_id=statement.table_id, columns=columns, former_ids=(), version=0)


class _Timestamps:
    """The attributes that a TIMESTAMP column gets unasked with ``explicit_defaults_for_timestamp`` off.

    Source: MySQL manual, "Server System Variables".
    """

    def __init__(self, context: StatementContext, *, has_automatic: bool) -> None:
        self._is_off = not context.explicit_defaults_for_timestamp
        self._has_automatic = has_automatic

    def completed(self, definition: ColumnDefinition) -> ColumnDefinition:
        """The definition with the server's additions: NOT NULL, and for the first such column the current time."""
        if not self._is_off or definition.written.mysql_type.name != "timestamp" or definition.is_nullable:
            return definition
        is_bare = definition.default is None and not definition.has_on_update and not definition.is_generated
        completed = replace(definition, is_nullable=False)
        if is_bare and not self._has_automatic:
            digits = definition.written.mysql_type.fractional_digits
            now = DefaultValue(DefaultKind.CURRENT_TIMESTAMP, f"CURRENT_TIMESTAMP({digits})")
            completed = replace(completed, default=now, has_on_update=True)
        elif is_bare:
            completed = replace(completed, default=DefaultValue(DefaultKind.TEXT, "0000-00-00 00:00:00"))
        self._has_automatic = True
        return completed


def _resolve_column(
    definition: ColumnDefinition, table_charset: str, context: StatementContext, *, converts: bool = False
) -> Column:
    """The column that a definition makes; ``converts``: beside CONVERT TO, whose charset wins over the column's own."""
    written = definition.written
    charset = table_charset
    if written.charset is not None:
        charset = _named_charset(written.charset, table_charset)
    elif collation := definition.collation or written.collation:
        charset = charset_of_collation(collation)
    if converts and charset != "binary":
        charset = table_charset
    mysql_type = _with_stored_members(_fitted_type(definition, charset), charset, context.sent_in)
    collation = definition.collation or written.collation or ""
    return column(
        definition.name,
        mysql_type,
        charset=charset,
        is_optional=definition.is_nullable is not False and not definition.is_primary,
        is_generated=definition.is_generated,
        is_virtual=definition.is_virtual,
        is_invisible=definition.is_invisible,
        is_auto_increment=definition.is_auto_increment,
        has_on_update=definition.has_on_update,
        default_expression=default_text(
            mysql_type, definition.default, charset=charset, collation=collation, sent_in=context.sent_in
        ),
        is_default_computed=definition.default is not None and definition.default.is_computed,
        comment=definition.comment,
    )


def _with_stored_members(mysql_type: MysqlType, charset: str, sent_in: SentIn) -> MysqlType:
    """An ENUM or SET with its members as the server keeps them."""
    if not mysql_type.members:
        return mysql_type
    sent = tuple(
        member if is_member_of_bytes(member) else text_as_sent(member, charset, sent_in)
        for member in mysql_type.members
    )
    read = with_members_of_bytes(replace(mysql_type, members=sent), charset)
    return replace(read, members=tuple(storable(member, charset) for member in read.members))


def _fitted_type(definition: ColumnDefinition, charset: str) -> MysqlType:
    """The type that the server really makes of the written one, given the column's charset."""
    written = definition.written
    mysql_type = written.mysql_type
    if not is_character_type(mysql_type):
        return fitted_varbinary(mysql_type)
    if written.text_length is not None:
        mysql_type = sized_text(written.text_length, bytes_each=bytes_per_character(charset))
    mysql_type = fitted_varchar(mysql_type, charset)
    return with_binary_charset(mysql_type) if charset == "binary" else mysql_type


def _named_charset(name: str | None, inherited: str) -> str:
    return inherited if name is None or name == "default" else canonical_charset(name)


# ALTER TABLE


def _altered(
    statement: AlterTable,
    tables: Mapping[TableId, TableSchema],
    database_charset: str,
    context: StatementContext,
) -> tuple[TableChange, ...]:
    """The change of one table; one that moves a table that is not known says where to, without a schema."""
    named = [action.table_id for action in statement.actions if isinstance(action, RenameTo)]
    new_id = named[-1] if named else statement.table_id  # the last one counts
    before = tables.get(statement.table_id)
    if before is None:
        if new_id == statement.table_id:
            return ()
        return (TableChange(TableChangeKind.RENAME, new_id, None, statement.table_id),)
    try:
        altered = _alter(before, statement, new_id, database_charset, context)
        after = msgspec.structs.replace(altered, former_ids=before.former_ids)
    except _Contradiction as error:
        raise DdlNotUnderstood(str(error), (statement.table_id,)) from error
    if new_id != statement.table_id:
        under_old_name = msgspec.structs.replace(after, table_id=statement.table_id)
        moved = _moved(under_old_name, new_id, in_place_of=None)
        return (TableChange(TableChangeKind.RENAME, new_id, moved, statement.table_id),)
    return (TableChange(TableChangeKind.ALTER, new_id, after),)


class _Contradiction(Exception):
    """A statement, which the server did carry out, does not fit the schema that is held of the table."""


def _alter(
    before: TableSchema,
    statement: AlterTable,
    new_id: TableId,
    database_charset: str,
    context: StatementContext,
) -> TableSchema:
    options = _merged_options(action for action in statement.actions if isinstance(action, TableOptions))
    charset = before.charset or database_charset
    if (
        options.charset is not None
    ):  # DEFAULT, which CONVERT TO alone takes, is the session's, not that of the table's database
        charset = _named_charset(options.charset, context.database_charset or database_charset)
    comment = before.comment if options.comment is None else options.comment or None

    timestamps = _Timestamps(context, has_automatic=any("timestamp" in c.source_type for c in before.columns))
    columns, successors = _altered_columns(
        before, statement, charset, timestamps, context, converts=options.converts_columns
    )
    table = _Table(new_id, columns, charset, comment)
    dropped = {in_lower_case(action.name) for action in statement.actions if isinstance(action, DropKey)}
    renamed_indexes = {in_lower_case(a.old_name): a.new_name for a in statement.actions if isinstance(a, RenameKey)}
    for index in before.indexes:
        if in_lower_case(index.name) not in dropped:
            table.keep_index(index, renamed_indexes.get(in_lower_case(index.name), index.name), successors)
    table.add_keys([action.key for action in statement.actions if isinstance(action, AddKey)])
    after = table.schema(version=before.version)
    return msgspec.structs.replace(after, columns=tuple(_born_as_it_is(each, before.version) for each in after.columns))


def _born_as_it_is(column: Column, version: int) -> Column:
    """A column that this statement brought into the primary key came as one that may not be NULL."""
    born = column.born
    if born is None or born.after_version != version or born.is_optional == column.is_optional:
        return column
    return msgspec.structs.replace(column, born=msgspec.structs.replace(born, is_optional=column.is_optional))


def _merged_options(options: Iterable[TableOptions]) -> TableOptions:
    merged = TableOptions()
    for option in options:
        merged = TableOptions(
            charset=option.charset or merged.charset,
            comment=merged.comment if option.comment is None else option.comment,
            converts_columns=merged.converts_columns or option.converts_columns,
        )
    return merged


@dataclass(frozen=True, slots=True)
class _NewColumn:
    """A column after the statement, and the name that the indexes of before know it by."""

    column: Column
    old_name: str


def _altered_columns(
    before: TableSchema,
    statement: AlterTable,
    charset: str,
    timestamps: _Timestamps,
    context: StatementContext,
    *,
    converts: bool,
) -> tuple[list[Column], dict[str, str]]:
    """The columns after the statement, and the new name or fate of each old name (in lower case) that is still there.

    Two passes as in the server (``mysql_prepare_alter_table`` in sql_table.cc): first every old column is kept, changed
    or dropped where it stands, all clauses speaking of the columns by their old names; then new columns are put in
    and changed ones moved, FIRST and AFTER speaking of the columns as they become.
    """
    in_place = {in_lower_case(old.name): _converted(old, charset) if converts else old for old in before.columns}
    dropped: set[str] = set()
    moved: list[tuple[_NewColumn, Place | None]] = []
    for action in statement.actions:
        match action:
            case DropColumn(name=name):
                dropped.add(in_lower_case(_old_column(before, name).name))
            case ChangeColumn(old_name=name, definition=definition, place=place):
                old = _old_column(before, name)
                old_name = in_lower_case(old.name)
                changed = _resolve_column(timestamps.completed(definition), charset, context, converts=converts)
                in_place[old_name] = _called_before(changed, old, before.version)
                if place is not None:
                    moved.append((_NewColumn(in_place[old_name], old_name), place))
            case RenameColumn(old_name=name, new_name=new_name):
                old = _old_column(before, name)
                old_name = in_lower_case(old.name)
                renamed = msgspec.structs.replace(in_place[old_name], name=new_name)
                in_place[old_name] = _called_before(renamed, old, before.version)
            case SetDefault(column=name, default=default):
                old_name = in_lower_case(_old_column(before, name).name)
                in_place[old_name] = _with_default(in_place[old_name], default, context)
            case SetVisible(column=name, is_visible=is_visible):
                old_name = in_lower_case(_old_column(before, name).name)
                in_place[old_name] = msgspec.structs.replace(in_place[old_name], is_invisible=not is_visible)
            case AddColumn(definition=definition, place=place):
                added = _resolve_column(timestamps.completed(definition), charset, context, converts=converts)
                added = msgspec.structs.replace(added, born=_born(added, before.version), is_late=True)
                moved.append((_NewColumn(added, in_lower_case(added.name)), place))
    columns = [_NewColumn(kept, name) for name, kept in in_place.items() if name not in dropped]
    for new, place in moved:
        _put(columns, new, place)
    columns.sort(key=lambda new: not _is_generated_key(new.column, before))
    names = [in_lower_case(new.column.name) for new in columns]
    if len(set(names)) < len(names):
        raise _Contradiction("it adds a column that the table already has")
    successors: dict[str, str] = {}
    for new in columns:
        successors.setdefault(new.old_name, new.column.name)
    return [new.column for new in columns], successors


def _is_generated_key(column: Column, before: TableSchema) -> bool:
    """The primary key that the server made where none was named: it stays first, even beside FIRST (manual, "Generated
    Invisible Primary Keys")."""
    return (
        column.name == _GENERATED_KEY
        and column.is_invisible
        and column.is_auto_increment
        and column.source_type == "bigint unsigned"
        and before.columns[0].name == _GENERATED_KEY
        and any(index.name == PRIMARY and index.columns == (_GENERATED_KEY,) for index in before.indexes)
    )


def _old_column(schema: TableSchema, name: str) -> Column:
    for candidate in schema.columns:
        if in_lower_case(candidate.name) == in_lower_case(name):
            return candidate
    raise _Contradiction(f"it changes column {name!r}, which the table does not have")


def _born(added: Column, after_version: int) -> Born:
    """The value that rows of before have in a column that is ``added`` after a version."""
    return Born(
        after_version=after_version,
        source_type=added.source_type,
        logical_type=added.logical_type,
        is_optional=added.is_optional,
        default_expression=added.default_expression,
        is_default_computed=added.is_default_computed,
    )


def _called_before(column: Column, old: Column, last_version: int) -> Column:
    """``column``, which was ``old`` up to a version, with the names that it had."""
    names = old.former_names
    if in_lower_case(column.name) != in_lower_case(old.name):
        names = (*names, FormerName(name=old.name, last_version=last_version))
    return msgspec.structs.replace(
        column, former_names=names, earlier_names=old.earlier_names, born=old.born, is_late=old.is_late
    )


def _put(columns: list[_NewColumn], new: _NewColumn, place: Place | None) -> None:
    """Put a new column in, or one that is changed where its clause moves it to."""
    if new in columns:
        columns.remove(new)
    if place is None:
        columns.append(new)
    elif place.after is None:
        columns.insert(0, new)
    else:
        after = in_lower_case(place.after)
        at = next((i for i, other in enumerate(columns) if in_lower_case(other.column.name) == after), None)
        if at is None:
            raise _Contradiction(f"it puts a column after {place.after!r}, which the table does not have")
        columns.insert(at + 1, new)


def _with_default(current: Column, default: DefaultValue | None, context: StatementContext) -> Column:
    if current.is_auto_increment:  # the server takes the clause and leaves the column as it is (seen on 9.7)
        return current
    mysql_type = parse_column_type(current.source_type)
    charset = current.charset or "utf8mb4"
    text = default_text(mysql_type, default, charset=charset, collation="", sent_in=context.sent_in)
    return msgspec.structs.replace(
        current,
        default_expression=None if text is None else canonical_default(mysql_type, text),
        is_default_computed=default is not None and default.is_computed,
    )


def _converted(current: Column, charset: str) -> Column:
    """The column after CONVERT TO CHARACTER SET; columns of bytes stay as they are."""
    if current.charset in (None, "binary"):
        return current
    mysql_type = parse_column_type(current.source_type)
    if charset == "binary":
        mysql_type = with_binary_charset(mysql_type)
    else:
        mysql_type = converted_text(mysql_type, old_charset=current.charset, new_charset=charset)
    default = current.default_expression
    if mysql_type.name in ("enum", "set"):
        members = tuple(_same_bytes(member, current.charset, charset) for member in mysql_type.members)
        if default is not None and not current.is_default_computed:
            renamed = dict(zip(mysql_type.members, members, strict=True))
            parts = [default] if mysql_type.name == "enum" else default.split(",")
            default = ",".join(renamed.get(part, part) for part in parts)
        mysql_type = replace(mysql_type, members=members)
    converted = column(
        current.name,
        mysql_type,
        charset=charset,
        is_optional=current.is_optional,
        is_generated=current.is_generated,
        is_virtual=current.is_virtual,
        is_invisible=current.is_invisible,
        default_expression=default,
        is_default_computed=current.is_default_computed,
        comment=current.comment,
    )
    return msgspec.structs.replace(
        converted,
        former_names=current.former_names,
        earlier_names=current.earlier_names,
        born=current.born,
        is_late=current.is_late,
    )


def _same_bytes(member: str, old_charset: str, new_charset: str) -> str:
    """A member of an ENUM or SET after CONVERT TO CHARACTER SET: the server keeps its bytes, and reads them by the new charset
    (seen on 9.7). Raises _Contradiction where they are no text of it."""
    if "binary" in (old_charset, new_charset):
        return member
    try:
        return member.encode(python_codec(old_charset)).decode(python_codec(new_charset))
    except UnicodeError as error:
        raise _Contradiction("it converts an ENUM or SET whose members are no text of the new charset") from error


# Indexes and the key


class _Table:
    """A table in the making: its columns, and the indexes that follow them."""

    def __init__(self, table_id: TableId, columns: list[Column], charset: str, comment: str | None) -> None:
        self._table_id = table_id
        self._columns = columns
        self._charset = charset
        self._comment = comment
        self._ranked: list[tuple[tuple[bool, ...], Index]] = []
        self._optional = {column.name for column in columns if column.is_optional}
        self._virtual = {column.name for column in columns if column.is_virtual}
        self._types = {column.name: parse_column_type(column.source_type) for column in columns}

    def keep_index(self, index: Index, name: str, successors: Mapping[str, str]) -> None:
        """An index of before, less the columns that are gone; one that lost all is gone itself (manual, "ALTER TABLE")."""
        prefixes = index.prefix_lengths or (0,) * len(index.columns)
        parts = [
            (successors[in_lower_case(column)], prefix)
            for column, prefix in zip(index.columns, prefixes, strict=True)
            if in_lower_case(column) in successors
        ]
        if parts or not index.columns:
            self._append(name, parts, is_unique=index.is_unique)

    def add_keys(self, keys: Sequence[KeyDefinition]) -> None:
        """New indexes, in the order of the text; of a foreign key only where no other one begins with its columns."""
        others = [each.columns for each in keys if not each.is_foreign]
        for number, key in enumerate(keys):
            later = [each.columns for each in keys[number + 1 :]]
            kept = [index.columns for _, index in self._ranked]
            if not (key.is_foreign and any(_begins_with(each, key.columns) for each in (*others, *later, *kept))):
                self._add_key(key)

    def _add_key(self, key: KeyDefinition) -> None:
        """A new index; one over expressions cannot be a row's key."""
        if key.is_over_expressions:
            self._append(key.name or self._free_name("functional_index"), [], is_unique=False)
            return
        declared = {in_lower_case(name): name for name in self._types}
        missing = [column for column in key.columns if in_lower_case(column) not in declared]
        if missing:
            raise DdlNotUnderstood(f"it indexes column {missing[0]!r}, which the table lacks", (self._table_id,))
        prefixes = key.prefix_lengths or (0,) * len(key.columns)
        parts = [
            (declared[in_lower_case(column)], prefix) for column, prefix in zip(key.columns, prefixes, strict=True)
        ]
        self._append(key.name or self._free_name(parts[0][0]), parts, is_unique=key.is_unique)

    def _append(self, name: str, parts: Sequence[tuple[str, int]], *, is_unique: bool) -> None:
        prefixes = tuple(fitted_prefix(self._types[column], prefix) for column, prefix in parts)
        columns = tuple(column for column, _ in parts)
        if name == PRIMARY:
            self._optional.difference_update(columns)
        index = Index(
            name=name,
            columns=columns,
            is_unique=is_unique,
            prefix_lengths=prefixes if is_unique and any(prefixes) else (),
        )
        self._ranked.append((self._rank(index), index))

    def _rank(self, index: Index) -> tuple[bool, ...]:
        """Sorts unique indexes as the server does; equal ones stay in the order of the text.

        The server ranks an index as it meets it: a primary key further on in the text comes too late for it.
        """
        return (
            not index.is_unique,
            index.name != PRIMARY,
            not self._optional.isdisjoint(index.columns),
            bool(index.prefix_lengths),
            not self._virtual.isdisjoint(index.columns),
        )

    def _free_name(self, column: str) -> str:
        """The name that the server gives an index without one: ``a``, ``a_2``, ``a_3`` (manual, "CREATE TABLE")."""
        taken = {in_lower_case(index.name) for _, index in self._ranked}
        if in_lower_case(column) not in taken and column.upper() != PRIMARY:
            return column
        return next(name for n in count(2) if in_lower_case(name := f"{column}_{n}") not in taken)

    def schema(self, version: int) -> TableSchema:
        columns = tuple(
            msgspec.structs.replace(column, is_optional=column.name in self._optional) for column in self._columns
        )
        as_met = [index for _, index in sorted(self._ranked, key=lambda ranked: ranked[0])]
        in_order = sorted(as_met, key=self._rank)  # as the server's next rebuild of the table will have it
        unique = [index for index in in_order if index.is_unique]
        # The order of the others means nothing; by name it is the same however the schema was learned.
        others = sorted((index for index in in_order if not index.is_unique), key=lambda index: index.name)
        schema = TableSchema(
            table_id=self._table_id,
            columns=columns,
            version=version,
            charset=self._charset,
            comment=self._comment,
            indexes=(*unique, *others),
        )
        return msgspec.structs.replace(schema, key=row_key(schema))


def _begins_with(columns: Sequence[str], first: Sequence[str]) -> bool:
    return [in_lower_case(name) for name in columns[: len(first)]] == [in_lower_case(name) for name in first]


# DROP, RENAME


def _dropped(table_ids: Iterable[TableId]) -> Iterable[TableChange]:
    return (TableChange(TableChangeKind.DROP, table_id, None) for table_id in table_ids)


def _renamed(statement: RenameTables, tables: Mapping[TableId, TableSchema]) -> tuple[TableChange, ...]:
    """One change for each rename, in order; later ones see the tables of earlier ones."""
    now: dict[TableId, TableSchema | None] = dict(tables)
    changes = []
    for old, new in statement.renames:
        schema = now.pop(old, None)
        after = None if schema is None else _moved(schema, new, in_place_of=tables.get(new))
        now[new] = after
        changes.append(TableChange(TableChangeKind.RENAME, new, after, old))
    return tuple(changes)


def _moved(schema: TableSchema, table_id: TableId, *, in_place_of: TableSchema | None) -> TableSchema:
    """The table under another name, whose versions are counted by themselves: the old name's numbers mean nothing there.

    ``in_place_of``: the table that had the name before the statement; a column that it lacks is late there. A copy of it, as
    the last step of an online schema change puts in its place (``_t_gho``, ``_t_new``), is that table.
    """
    there = None if in_place_of is None else {in_lower_case(column.name) for column in in_place_of.columns}
    columns = tuple(
        msgspec.structs.replace(
            column,
            former_names=(),
            earlier_names=column.all_names[1:],
            born=None,
            is_late=column.is_late or (there is not None and there.isdisjoint(map(str.lower, column.all_names))),
        )
        for column in schema.columns
    )
    formers = (*schema.former_ids, schema.table_id)
    if in_place_of is not None and in_lower_case(table_id.table) in in_lower_case(schema.table_id.table):
        formers = in_place_of.former_ids
    formers = tuple(dict.fromkeys(each for each in formers if each != table_id))
    return msgspec.structs.replace(schema, table_id=table_id, columns=columns, former_ids=formers)
