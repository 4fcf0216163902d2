"""Statements of the log: which may change schemas, and which changed rows that the log does not have."""

from dataclasses import dataclass
from typing import Final

from libs.mysql.binlog_events import QueryEvent
from libs.mysql.ddl_syntax import temporary_tables
from libs.mysql.sql_lexer import UnreadableSql, first_words, makes_rows, names_in, sql_mode_of
from libs.types.table import TableId
from services.binlog_reader.log_tables import LogTables

_DDL: Final = frozenset({"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"})
_WITHOUT_ROWS: Final = frozenset(
    {"ANALYZE", "FLUSH", "GRANT", "INSTALL", "OPTIMIZE", "RELEASE", "REPAIR", "REVOKE", "ROLLBACK", "SAVEPOINT", "SET",
     "UNINSTALL", "XA"}
)  # fmt: skip
"""Statements of the log that change no row. All others that are no DDL may change some, be it by a function that they call."""
_OF_ONE_TABLE: Final = frozenset(
    {("ALTER", "TABLE"), ("DROP", "INDEX")} | {("CREATE", kind) for kind in ("INDEX", "UNIQUE", "FULLTEXT", "SPATIAL")}
)
"""Statements that are of a temporary table if they use any."""


@dataclass(frozen=True, slots=True)
class RowStatement:
    """A change that the log has as a statement, without its rows; the captured tables that it names are quarantined already."""

    database: str
    names: frozenset[str]
    """Every word that may be a name, in lower case."""
    where: str
    databases: frozenset[str] | None
    """Where it changed rows, be it by a trigger or a function. None: in more than the log names."""


class Statements:
    """Judges each statement by its first words, the captured tables, and the temporary tables of its session."""

    def __init__(self, tables: LogTables) -> None:
        self._tables = tables
        self._temporary: dict[int, set[TableId]] = {}
        """In lower case: temporary tables that statements of the log made, by the session's thread."""

    def changes_schemas(self, query: QueryEvent, *, uses_temporary: bool) -> bool:
        """A DDL statement of other tables than temporary ones; of those it is only noted."""
        verb, noun = _words(query)
        if verb not in _DDL:
            return False
        if noun == "TEMPORARY":
            self._follow_temporary(query)
        # The server splits a DROP of both kinds, RENAME is of none of them, and CREATE TABLE may but read one.
        return not (uses_temporary and (verb == "TRUNCATE" or (verb, noun) in _OF_ONE_TABLE))

    def may_change_rows(self, query: QueryEvent) -> bool:
        """It is none of those that never do, be it by a function that it calls."""
        verb, _ = _words(query)
        return verb not in _DDL and verb not in _WITHOUT_ROWS

    def _follow_temporary(self, query: QueryEvent) -> None:
        """A temporary table hides one of its name from its session; the server ends each with a DROP of its own."""
        found = temporary_tables(query.statement, query.database, sql_mode_of(query.sql_mode))
        hidden = self._temporary.setdefault(query.thread_id, set())
        hidden -= set(found.dropped)
        hidden |= set(found.made)
        if not hidden:
            del self._temporary[query.thread_id]

    def row_statement(self, query: QueryEvent, where: str, *, uses_temporary: bool = False) -> RowStatement:
        """A change that the log has as a statement: its rows are not there, so each table that it may concern is incomplete."""
        names = names_in(query.statement, sql_mode_of(query.sql_mode))
        named, hidden_names = self._captured_of(names, query.database), set[str]()
        if uses_temporary:
            hidden = self._temporary.get(query.thread_id, set())
            named = {table_id for table_id in named if _in_lower_case(table_id) not in hidden}
            hidden_names = {table_id.table for table_id in hidden}
        self._quarantine_incomplete(named, where)
        return RowStatement(query.database, names - hidden_names, where, query.changed_databases)

    def captured_databases(self, statement: RowStatement) -> list[str]:
        """The databases in which the statement changed rows, and which have captured tables."""
        captured = {table_id.database for table_id in self._tables.schemas if self._tables.is_captured(table_id)}
        return sorted(captured if statement.databases is None else captured & statement.databases)

    def quarantine_reached(self, statement: RowStatement, names: frozenset[str]) -> None:
        """Quarantine the captured tables that a statement may have changed by way of others."""
        reached = self._captured_of(
            names, statement.database
        )  # a database of theirs may be one that the statement names
        others = {table_id for table_id in reached if table_id.table.lower() not in statement.names}
        self._quarantine_incomplete(others, statement.where)

    def _captured_of(self, names: frozenset[str], database: str) -> set[TableId]:
        return {
            table_id
            for table_id in self._tables.schemas
            if table_id.table.lower() in names
            and self._tables.is_captured(table_id)
            and (database.lower() == table_id.database.lower() or table_id.database.lower() in names)
        }

    def _quarantine_incomplete(self, tables: set[TableId], where: str) -> None:
        for table_id in sorted(tables):
            if str(table_id) not in self._tables.quarantined:
                self._tables.quarantine(
                    table_id,
                    f"{table_id}: the log has a change of it as a statement, without its rows ({where}): SET GLOBAL "
                    "binlog_format = 'ROW', end the sessions that have another one, then re-snapshot the table",
                )


def makes_rows_as_statement(query: QueryEvent) -> bool:
    """A CREATE TABLE with the query that fills it: the log has none of the rows."""
    try:
        return makes_rows(query.statement, sql_mode_of(query.sql_mode))
    except UnreadableSql:
        return {"create", "select"} <= names_in(query.statement, sql_mode_of(query.sql_mode))


def _words(query: QueryEvent) -> tuple[str, str]:
    """The statement's first two words; of one that cannot be read none, so that it may change rows."""
    try:
        verb, noun = first_words(query.statement, sql_mode_of(query.sql_mode))
    except UnreadableSql:
        return "", ""
    return verb, noun


def _in_lower_case(table_id: TableId) -> TableId:
    return TableId(database=table_id.database.lower(), table=table_id.table.lower())
