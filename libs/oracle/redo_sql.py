"""SQL_REDO of a row: an INSERT, UPDATE or DELETE as the columns' values before and after.

Reading is strict at first: it consumes the whole text and names each column once. Oracle prints some quotes within a
text undoubled. Such a statement is read once more, and its texts end where the rest of the statement can begin.
"""

import enum
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from libs.oracle.redo_values import Quoted, RedoValue, UnreadableRedo, expect, read_value, undoubled


class RowOperation(enum.Enum):
    """The change of one row."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


class RowStatement(NamedTuple):
    """A row's change as LogMiner prints it."""

    operation: RowOperation
    owner: str
    """Empty where the text names none."""
    table: str
    after: dict[str, RedoValue]
    """An INSERT's values, an UPDATE's SET clause."""
    before: dict[str, RedoValue]
    """The WHERE clause. A column that is missing is one that the log does not hold; NULL is printed as ``IS NULL``."""
    row_id: str | None = None
    """Of a WHERE clause that has ``ROWID = '…'``."""


class RedoTable(NamedTuple):
    """``"OWNER"."TABLE"``."""

    owner: str
    name: str


class _Clause(enum.Enum):
    """The place of a value; the pattern matches the text that may follow it there."""

    VALUES = re.compile(r"\s*(?:,\s*(?:'|/\*|-?\.?\d|NULL\b|Unsupported Type\b|[A-Za-z_]\w*\()|\)\s*;?\s*\Z)")
    SET = re.compile(r'\s*(?:,\s*(?:\w+\.)?"[^"]+"\s*=|\swhere\s|;?\s*\Z)')
    WHERE = re.compile(r'\s*(?:\s(?:and|or)\s+(?:\w+\.)?(?:"[^"]+"|ROWID)\s*(?:=|IS NULL)|\sfor update;|;?\s*\Z)')


_ReadValue = Callable[[str, int, _Clause], tuple[RedoValue, int]]

_ROWID: Final = "ROWID"
_VERB: Final = re.compile(r"\s*(insert into|update|delete from) ", re.IGNORECASE)
_TABLE: Final = re.compile(r'(?:"([^"]+)"\.)?"([^"]+)"')
_ALIAS: Final = re.compile(r" +(?!set\b|where\b|values\b)[A-Za-z]\w*(?= )", re.IGNORECASE)
_COLUMN: Final = re.compile(rf'(?:\w+\.)?(?:"([^"]+)"|{_ROWID}\b)')
_COLUMNS: Final = re.compile(r"\s*\(")
_COMMA: Final = re.compile(r"\s*,\s*")
_VALUES: Final = re.compile(r"\)\s*values\s*\(", re.IGNORECASE)
_SET: Final = re.compile(r" set ", re.IGNORECASE)
_WHERE: Final = re.compile(r"\s+where ", re.IGNORECASE)
_AND: Final = re.compile(r"\s+(?:and|or) ", re.IGNORECASE)
_EQUALS: Final = re.compile(r"\s*=\s*")
_IS_NULL: Final = re.compile(r"\s+IS NULL\b", re.IGNORECASE)
_END: Final = re.compile(r"\s*;?\s*\Z")
_ASSIGNMENT: Final = re.compile(r'"[^"]+"\s*(?:=|IS NULL)')


def read_statement(sql: str) -> RowStatement:
    """The change of a row.

    Raises:
        UnreadableRedo: the text has another form, ends early, or names a column twice. Its place is that of the strict
            reading. The caller treats the row by ``failure_handling``.
    """
    try:
        return _read(sql, _strict)
    except UnreadableRedo:
        if (reread := _read_or_none(sql)) is not None:
            return reread
        raise


def read_conditions(sql: str, at: int) -> tuple[dict[str, RedoValue], int]:
    """The values of a WHERE clause, and the character after it; none where no WHERE stands there.

    Raises:
        UnreadableRedo: a condition has another form than ``"C" = value`` and ``"C" IS NULL``.
    """
    return _conditions(sql, at, _strict)


def read_table(sql: str, at: int) -> tuple[RedoTable, int]:
    """``"OWNER"."TABLE"``, or ``"TABLE"`` alone, and the character after it.

    Raises:
        UnreadableRedo: no quoted name stands there.
    """
    found = expect(_TABLE, sql, at, "a quoted table")
    return RedoTable(found[1] or "", found[2]), found.end()


def read_column(sql: str, at: int) -> tuple[str, int]:
    """A column's name, and the character after it. The pseudo column comes as ``ROWID``.

    Raises:
        UnreadableRedo: no quoted name stands there.
    """
    found = expect(_COLUMN, sql, at, "a quoted column")
    return found[1] or _ROWID, found.end()


def _read_or_none(sql: str) -> RowStatement | None:
    try:
        return _read(sql, _undoubled)
    except UnreadableRedo:
        return None


def _read(sql: str, read: _ReadValue) -> RowStatement:
    verb = expect(_VERB, sql, 0, "insert into, update or delete from")
    operation = RowOperation(verb[1].split()[0].lower())
    table, at = read_table(sql, verb.end())
    if alias := _ALIAS.match(sql, at):
        at = alias.end()
    after: dict[str, RedoValue] = {}
    before: dict[str, RedoValue] = {}
    if operation is RowOperation.INSERT:
        after, at = _inserted(sql, at, read)
    else:
        if operation is RowOperation.UPDATE:
            after, at = _assignments(sql, expect(_SET, sql, at, "set").end(), read)
        before, at = _conditions(sql, at, read)
    expect(_END, sql, at, "the end of the statement")
    row_id = before.pop(_ROWID, None)
    return RowStatement(
        operation, table.owner, table.name, after, before, row_id.text if isinstance(row_id, Quoted) else None
    )


def _inserted(sql: str, at: int, read: _ReadValue) -> tuple[dict[str, RedoValue], int]:
    names: dict[str, RedoValue] = {}
    at = expect(_COLUMNS, sql, at, "the columns").end()
    while True:
        name, at = _new_column(sql, at, names)
        names[name] = None
        comma = _COMMA.match(sql, at)
        if comma is None:
            break
        at = comma.end()
    at = expect(_VALUES, sql, at, "values").end()
    for nth, name in enumerate(names):
        if nth:
            at = expect(_COMMA, sql, at, f"{len(names)} values").end()
        names[name], at = read(sql, at, _Clause.VALUES)
    if not sql.startswith(")", at):
        raise UnreadableRedo(f"the end of {len(names)} values", at)
    return names, at + 1


def _assignments(sql: str, at: int, read: _ReadValue) -> tuple[dict[str, RedoValue], int]:
    values: dict[str, RedoValue] = {}
    while True:
        name, at = _new_column(sql, at, values)
        values[name], at = read(sql, expect(_EQUALS, sql, at, "=").end(), _Clause.SET)
        comma = _COMMA.match(sql, at)
        if comma is None:
            return values, at
        at = comma.end()


def _conditions(sql: str, at: int, read: _ReadValue) -> tuple[dict[str, RedoValue], int]:
    values: dict[str, RedoValue] = {}
    found = _WHERE.match(sql, at)
    while found is not None:
        name, at = _new_column(sql, found.end(), values)
        if is_null := _IS_NULL.match(sql, at):
            values[name], at = None, is_null.end()
        else:
            values[name], at = read(sql, expect(_EQUALS, sql, at, "=").end(), _Clause.WHERE)
        found = _AND.match(sql, at)
    return values, at


def _new_column(sql: str, at: int, named: dict[str, RedoValue]) -> tuple[str, int]:
    name, end = read_column(sql, at)
    if name in named:
        raise UnreadableRedo("a column that was not named before", at)
    return name, end


def _strict(sql: str, at: int, clause: _Clause) -> tuple[RedoValue, int]:
    del clause
    return read_value(sql, at)


def _undoubled(sql: str, at: int, clause: _Clause) -> tuple[RedoValue, int]:
    """A text ends at the first quote that the clause can go on after.

    A text that holds the form of an assignment is refused: it may be two values with something unknown between them.
    """
    if not sql.startswith("'", at):
        return read_value(sql, at)
    quote = sql.find("'", at + 1)
    while quote >= 0:
        if clause.value.match(sql, quote + 1):
            text = sql[at + 1 : quote]
            if _ASSIGNMENT.search(text):
                raise UnreadableRedo("a text that is no assignment", at)
            return Quoted(undoubled(text)), quote + 1
        quote = sql.find("'", quote + 1)
    raise UnreadableRedo("the quote that ends the text", at)
