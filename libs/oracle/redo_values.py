"""The values of SQL_REDO: a quoted text, an expression, NULL, or a note that the log does not hold the value.

Oracle prints most values as quoted texts, and dates and bytes as calls (``TO_DATE('…')``, ``HEXTORAW('…')``). A text of
a national character set is ``UNISTR('…')``; a long one is several calls joined by ``||`` (Oracle Database SQL Language
Reference, "UNISTR", "HEXTORAW").
"""

import re
from typing import Final, NamedTuple


class UnreadableRedo(ValueError):
    """A text of V$LOGMNR_CONTENTS has no form that is known. Names the expected form and the place, never a value.

    The caller treats the row by ``failure_handling``; it never delivers NULL in its place.
    """

    def __init__(self, expected: str, at: int) -> None:
        super().__init__(f"expected {expected} at character {at}")
        self.at = at


class Quoted(NamedTuple):
    """``'it''s'``, as the text that it stands for."""

    text: str


class Expression(NamedTuple):
    """Any other form, as the log has it: ``TO_DATE('…', '…')``, ``UNISTR('…') || UNISTR('…')``, a bare number."""

    sql: str


class NotLogged(NamedTuple):
    """``Unsupported Type``: the row has a value that the log does not hold. It is not NULL."""


NOT_LOGGED: Final = NotLogged()

RedoValue = Quoted | Expression | NotLogged | None
"""None is NULL."""

_SPACE: Final = re.compile(r"\s*")
_COMMENT: Final = re.compile(r"/\*.*?\*/\s*", re.DOTALL)
_QUOTED: Final = re.compile(r"'((?:[^']++|'')*+)'")
_WORD: Final = re.compile(r"[\w.$#+-]+|:\w+")
_CONCATENATION: Final = re.compile(r"\s*\|\|\s*")
_NOT_LOGGED: Final = "Unsupported Type"
_UNISTR: Final = re.compile(r"UNISTR\(\s*'((?:[^']++|'')*+)'\s*\)", re.IGNORECASE)
_ESCAPE: Final = re.compile(r"\\(?:(\\)|([0-9A-Fa-f]{4})|)")
_JSON_NOTE: Final = re.compile(r"/\*\s*JSON\s*\*/\s*")
_HEX_TO_RAW: Final = re.compile(r"HEXTORAW\(\s*'([0-9A-Fa-f]*)'\s*\)", re.IGNORECASE)


def expect(pattern: re.Pattern[str], sql: str, at: int, expected: str) -> re.Match[str]:
    """The match at a character. Raises UnreadableRedo, which names ``expected``, where there is none."""
    found = pattern.match(sql, at)
    if found is None:
        raise UnreadableRedo(expected, at)
    return found


def read_value(sql: str, at: int) -> tuple[RedoValue, int]:
    """The value that begins at a character, and the character after it. A quoted text ends at its first lone quote.

    Raises:
        UnreadableRedo: no value begins there, or it has no end.
    """
    if sql.startswith(_NOT_LOGGED, at):
        return NOT_LOGGED, at + len(_NOT_LOGGED)
    end = _end_of_term(sql, at)
    is_one_term = True
    while joined := _CONCATENATION.match(sql, end):
        end = _end_of_term(sql, joined.end())
        is_one_term = False
    text = sql[at:end]
    if is_one_term and text.startswith("'"):
        return Quoted(undoubled(text[1:-1])), end
    return (None if text == "NULL" else Expression(text)), end


def undoubled(text: str) -> str:
    """The text between the quotes of a literal, with each doubled quote as one."""
    return text.replace("''", "'")


def text_of(value: Quoted | Expression) -> str:
    """A character value: a quoted text, ``UNISTR`` calls, or several of them joined by ``||``.

    A pair of surrogates is one character, also where two calls share it.

    Raises:
        UnreadableRedo: the expression has another form, a broken escape, or half of a pair.
    """
    if isinstance(value, Quoted):
        return value.text
    units: list[str] = []
    at = 0
    while True:
        if called := _UNISTR.match(value.sql, at):
            units.append(_unescaped(undoubled(called[1]), called.start(1)))
        elif called := _QUOTED.match(value.sql, at):
            units.append(undoubled(called[1]))
        else:
            raise UnreadableRedo("UNISTR('…') or a quoted text", at)
        at = called.end()
        if at == len(value.sql):
            break
        at = expect(_CONCATENATION, value.sql, at, "||").end()
    try:
        return "".join(units).encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise UnreadableRedo("the other half of a surrogate pair", at) from error


def _unescaped(text: str, at: int) -> str:
    def character(escape: re.Match[str]) -> str:
        if escape[1]:
            return "\\"
        if escape[2]:
            return chr(int(escape[2], 16))
        raise UnreadableRedo("four hexadecimal digits or a second backslash", at + escape.start())

    return _ESCAPE.sub(character, text)


def bytes_of(value: Expression) -> bytes:
    """The bytes of ``HEXTORAW('…')``, also after the note ``/* JSON */``.

    Raises:
        UnreadableRedo: the expression has another form, or an odd number of digits.
    """
    noted = _JSON_NOTE.match(value.sql)
    found = _HEX_TO_RAW.fullmatch(value.sql, noted.end() if noted else 0)
    if found is None or len(found[1]) % 2:
        raise UnreadableRedo("HEXTORAW of pairs of hexadecimal digits", 0)
    return bytes.fromhex(found[1])


def is_empty_lob(value: RedoValue) -> bool:
    """``EMPTY_CLOB()`` and ``EMPTY_BLOB()``: a LOB of no length, or one whose content follows in other rows."""
    return isinstance(value, Expression) and _JSON_NOTE.sub("", value.sql) in ("EMPTY_CLOB()", "EMPTY_BLOB()")


def _end_of_term(sql: str, at: int) -> int:
    while noted := _COMMENT.match(sql, at):
        at = noted.end()
    if sql.startswith("'", at):
        return _end_of_quoted(sql, at)
    named = expect(_WORD, sql, at, "a value")
    return _end_of_arguments(sql, named.end()) if sql.startswith("(", named.end()) else named.end()


def _end_of_quoted(sql: str, at: int) -> int:
    return expect(_QUOTED, sql, at, "the quote that ends the text").end()


def _end_of_arguments(sql: str, at: int) -> int:
    depth = 0
    while at < len(sql):
        if sql[at] == "'":
            at = _end_of_quoted(sql, at)
            continue
        depth += {"(": 1, ")": -1}.get(sql[at], 0)
        at += 1
        if depth == 0:
            return at
    raise UnreadableRedo("the bracket that ends the arguments", at)
