"""The answer of SHOW CREATE TABLE, made whole where the server's own text of it is not.

Called by ``libs.source.mysql.snapshot.create_statement``; the log's statements have such literals too (``binlog_events``).

The server composes that text in utf8mb3 (seen on MySQL 9.7). A literal with an introducer stands there as its bytes, which a
result set in utf8mb4 turns into question marks; and a member of an ENUM or SET beyond utf8mb3 is a question mark already.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from libs.mysql.identifiers import quote_identifier, quote_table
from libs.mysql.sql_lexer import Token, TokenKind, tokens_of
from libs.types.table import TableId

_LOST: Final = "?"
_BEYOND_UTF8MB3: Final = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})
"""Character sets with characters that utf8mb3 lacks."""
_QUOTED: Final = re.compile(
    rb"""
    (?<![\w$])_(?P<charset>[A-Za-z0-9]+)\s*(?P<quote>['"])(?P<literal>(?:(?!(?P=quote))[^\\]|\\.|(?P=quote){2})*)(?P=quote)
  | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*`
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = re.compile(rb"\\(.)|(['\"])\2", re.DOTALL)
_BYTE_OF_ESCAPE: Final = {b"0": b"\0", b"b": b"\b", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"Z": b"\x1a"}


def with_readable_literals(statement: bytes) -> str:
    """A statement whose literals with an introducer are hexadecimal where their bytes are no UTF-8.

    >>> with_readable_literals(b"a char(1) DEFAULT (_latin1'\\xe9') COMMENT '_latin1'")
    "a char(1) DEFAULT (_latin1 0xE9) COMMENT '_latin1'"

    Quotes and escapes are those of the default SQL mode. Other bytes that are no UTF-8 are replaced.
    """
    return _QUOTED.sub(_readable, statement).decode("utf-8", errors="replace")


def _readable(quoted: re.Match[bytes]) -> bytes:
    if quoted["charset"] is None:
        return quoted[0]
    value = _ESCAPED.sub(_unescaped, quoted["literal"])
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return b"_%b 0x%b" % (quoted["charset"], value.hex().upper().encode())
    return quoted[0]


def _unescaped(escape: re.Match[bytes]) -> bytes:
    return escape[2] if escape[1] is None else _BYTE_OF_ESCAPE.get(escape[1], escape[1])


def doubtful_members(members: Sequence[str], charset: str | None) -> tuple[int, ...]:
    """The numbers, from 1 on, of the members of an ENUM or SET that SHOW CREATE may not show as they are."""
    if charset not in _BEYOND_UTF8MB3:
        return ()
    return tuple(number for number, member in enumerate(members, 1) if _LOST in member)


def members_query(table_id: TableId, column: str, kind: str, numbers: Sequence[int]) -> str:
    """The SELECT for the members of these numbers, each row a number and its member; it reads no row of the table.

    A recursive query has its columns' types from its first part: a number that a later part gives such a column is the member
    of that number. Seen on MySQL 9.7; the manual, "Recursive Common Table Expressions", says it of the type's width.

    Args:
        kind: ``enum`` or ``set``.
    """
    listed = ", ".join(map(str, numbers))
    stored = "numbers.number" if kind == "enum" else "1 << (numbers.number - 1)"
    return f"""
WITH RECURSIVE numbers AS (
  SELECT nth, CAST(number AS UNSIGNED) AS number
  FROM JSON_TABLE('[{listed}]', '$[*]' COLUMNS (nth FOR ORDINALITY, number BIGINT PATH '$')) AS listed
), members AS (
  SELECT CAST(0 AS UNSIGNED) AS nth, CAST(0 AS UNSIGNED) AS number, shown.{quote_identifier(column)} AS member
  FROM (SELECT 1) AS one LEFT JOIN {quote_table(table_id)} AS shown ON FALSE
  UNION ALL
  SELECT numbers.nth, numbers.number, {stored} FROM members JOIN numbers ON numbers.nth = members.nth + 1
)
SELECT /*+ SET_VAR(cte_max_recursion_depth = {len(numbers) + 1}) */ number, member FROM members WHERE number > 0"""


def with_members(statement: str, members: Mapping[str, Mapping[int, str]]) -> str:
    """A text of SHOW CREATE TABLE with other members, by column and number.

    >>> with_members("CREATE TABLE `t` (`c` enum('a','?') DEFAULT NULL)", {"c": {2: "it's"}})
    "CREATE TABLE `t` (`c` enum('a','it''s') DEFAULT NULL)"
    """
    parts: list[str] = []
    done = 0
    for token, text in _member_tokens(tokens_of(statement), members):
        parts += (statement[done : token.start], _literal(text))
        done = token.end
    return "".join((*parts, statement[done:]))


def _member_tokens(tokens: Sequence[Token], members: Mapping[str, Mapping[int, str]]) -> list[tuple[Token, str]]:
    found: list[tuple[Token, str]] = []
    for place, token in enumerate(tokens[:-2]):
        is_column = token.kind is TokenKind.QUOTED_NAME and token.value in members
        if not is_column or tokens[place + 1].keyword not in ("ENUM", "SET") or tokens[place + 2].keyword != "(":
            continue
        first = place + 3
        # Members stand side by side, with a comma between.
        found += [(tokens[first + 2 * (number - 1)], text) for number, text in sorted(members[token.value].items())]
    return found


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
