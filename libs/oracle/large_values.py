"""Values that LogMiner prints in rows of their own: LOBs, texts above 4,000 bytes, XML documents.

A locator row names column and row; rows of writes follow it. ``assembled`` makes the value of them.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from libs.oracle.redo_sql import RedoTable, read_column, read_conditions, read_statement, read_table
from libs.oracle.redo_values import (
    Expression,
    Quoted,
    RedoValue,
    UnreadableRedo,
    bytes_of,
    expect,
    is_empty_lob,
    read_value,
    text_of,
)


class LargeColumn(NamedTuple):
    """The column and the row whose content follows (SEL_LOB_LOCATOR, 32K_BEGIN, XML DOC BEGIN)."""

    table: RedoTable
    column: str
    is_binary: bool
    row: dict[str, RedoValue]
    """The row's other columns, as its WHERE clause has them."""


class Fragment(NamedTuple):
    """A piece of a value (LOB_WRITE)."""

    offset: int
    """UTF-16 units of a text, bytes of a binary value, from 0."""
    data: str | bytes


class UnknownContent(NamedTuple):
    """The log does not say the whole value: read it again at the source, as of the commit, or report it as unavailable."""

    because: str


_LOCATOR: Final = re.compile(r".*?\bBEGIN\s+select\s+", re.DOTALL)
_INTO: Final = re.compile(r"\s+into\s+loc_(c|b|nc)\s+from\s+")
_FOR_UPDATE: Final = re.compile(r"\s+for update;\s*\Z")
_WRITE: Final = re.compile(r"\s*buf_(?:c|b|nc)\s*:=\s*")
_WRITTEN: Final = re.compile(r"\s*;\s*dbms_lob\.write\(\s*\w+,\s*(\d+)\s*,\s*(\d+)\s*,\s*\w+\s*\);\s*\Z", re.IGNORECASE)
_STATEMENT: Final = re.compile(r".*?\bStmt\s*:=\s*", re.DOTALL)
_XML_LOCATOR: Final = re.compile(r"XML DOC BEGIN:\s+select\s+")
_FROM: Final = re.compile(r"\s+from\s+")
_XML_BYTES: Final = re.compile(r"\s*XML_REDO\s*:=\s*(HEXTORAW\('[0-9A-Fa-f]*'\)):(\d+)\s*\Z")
_END: Final = re.compile(r"\s*;?\s*\Z")


def read_lob_locator(sql: str) -> LargeColumn:
    """The LOB that the writes of the next rows belong to.

    Raises:
        UnreadableRedo: the text has another form.
    """
    at = expect(_LOCATOR, sql, 0, "BEGIN select").end()
    column, at = read_column(sql, at)
    into = expect(_INTO, sql, at, "into loc_c, loc_nc or loc_b")
    table, at = read_table(sql, into.end())
    row, at = read_conditions(sql, at)
    expect(_FOR_UPDATE, sql, at, "for update")
    return LargeColumn(table, column, into[1] == "b", row)


def read_lob_write(sql: str) -> Fragment:
    """A piece of a LOB.

    Raises:
        UnreadableRedo: the text has another form, or its length is not that of the piece.
    """
    data, at = read_value(sql, expect(_WRITE, sql, 0, "buf_c, buf_nc or buf_b").end())
    written = expect(_WRITTEN, sql, at, "dbms_lob.write")
    fragment = Fragment(int(written[2]) - 1, _content(data))
    if fragment.offset < 0 or _length(fragment.data) != int(written[1]):
        raise UnreadableRedo(f"{written[1]} characters or bytes", at)
    return fragment


def read_long_text(sql: str) -> LargeColumn:
    """The text above 4,000 bytes whose pieces are in the next rows (32K_BEGIN).

    Raises:
        UnreadableRedo: the text has another form.
    """
    quoted, _at = read_value(sql, expect(_STATEMENT, sql, 0, "Stmt := '…'").end())
    if not isinstance(quoted, Quoted):
        raise UnreadableRedo("a quoted statement", 0)
    return _only_column(quoted.text)


def read_xml_locator(sql: str) -> LargeColumn:
    """The XML document whose pieces are in the next rows: stored as binary XML, or as text.

    Raises:
        UnreadableRedo: the text has another form.
    """
    found = _XML_LOCATOR.match(sql)
    if found is None:
        return _only_column(sql)
    column, at = read_column(sql, found.end())
    table, at = read_table(sql, expect(_FROM, sql, at, "from").end())
    row, at = read_conditions(sql, at)
    expect(_END, sql, at, "the end of the statement")
    return LargeColumn(table, column, True, row)


def read_xml_write(sql: str) -> str | bytes:
    """A piece of an XML document: bytes in the database's character set, or text as it stands.

    Raises:
        UnreadableRedo: the length of the bytes differs from the one that the row names.
    """
    found = _XML_BYTES.match(sql)
    if found is None:
        return sql
    data = bytes_of(Expression(found[1]))
    if len(data) != int(found[2]):
        raise UnreadableRedo(f"{found[2]} bytes", found.start(1))
    return data


def assembled(first: RedoValue, fragments: Sequence[Fragment]) -> str | bytes | UnknownContent | None:
    """A LOB's value after its writes, in their order; a later write covers an earlier one.

    A gap between two writes is filled as Oracle fills it: with spaces in a text, with zeros in bytes (Oracle
    Database PL/SQL Packages, DBMS_LOB.WRITE). A LOB whose value before is not known and that is not written from its
    beginning is unknown.
    """
    start = _start(first)
    if isinstance(start, UnknownContent) or not fragments:
        return start
    if start is None or start == "":
        start = b"" if isinstance(fragments[0].data, bytes) else ""
    if any(isinstance(fragment.data, bytes) != isinstance(start, bytes) for fragment in fragments):
        return UnknownContent("a text has a piece of bytes, or bytes have a piece of text")
    unit_bytes, blank = (1, b"\0") if isinstance(start, bytes) else (2, " ".encode("utf-16-be"))
    content = bytearray(_units(start))
    for fragment in fragments:
        data, begin = _units(fragment.data), fragment.offset * unit_bytes
        content += blank * ((begin - len(content)) // unit_bytes)
        content[begin : begin + len(data)] = data
    return bytes(content) if isinstance(start, bytes) else content.decode("utf-16-be", "surrogatepass")


def _units(data: str | bytes) -> bytes:
    """What places and lengths count: bytes, or UTF-16 units of a text."""
    return data if isinstance(data, bytes) else data.encode("utf-16-be", "surrogatepass")


def _start(first: RedoValue) -> str | bytes | UnknownContent | None:
    if first is None:
        return None
    if is_empty_lob(first):
        return b"" if isinstance(first, Expression) and "BLOB" in first.sql else ""
    if isinstance(first, Quoted | Expression):
        return _content(first)
    return UnknownContent("the value before the first write is not in the log")


def _content(value: RedoValue) -> str | bytes:
    if isinstance(value, Expression) and "HEXTORAW" in value.sql.upper():
        return bytes_of(value)
    if isinstance(value, Quoted | Expression):
        return text_of(value)
    raise UnreadableRedo("a text or HEXTORAW", 0)


def _length(data: str | bytes) -> int:
    """Oracle counts a character beyond the basic plane as two (UCS-2 code points; SecureFiles and LOBs Guide)."""
    return len(_units(data)) // (1 if isinstance(data, bytes) else 2)


def _only_column(sql: str) -> LargeColumn:
    statement = read_statement(sql)
    if len(statement.after) != 1:
        raise UnreadableRedo("an update of one column", 0)
    return LargeColumn(
        RedoTable(statement.owner, statement.table), next(iter(statement.after)), False, statement.before
    )
