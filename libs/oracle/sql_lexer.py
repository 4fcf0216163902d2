"""Tokens of an Oracle statement.

An own lexer, because Oracle's quoting is its own: ``q'[…]'``, ``N'…'``, names that fold to upper case
(Oracle Database SQL Language Reference, "Literals", "Database Object Naming Rules", "Comments").
"""

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


class TokenKind(enum.Enum):
    """The sort of a token; only a WORD can be a keyword."""

    WORD = "word"
    QUOTED_NAME = "quoted_name"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """One token and its place."""

    kind: TokenKind
    value: str
    """A bare name in upper case; a quoted name or a string without its quotes; else the text itself."""
    start: int
    end: int

    @property
    def is_name(self) -> bool:
        """A bare or quoted name."""
        return self.kind in (TokenKind.WORD, TokenKind.QUOTED_NAME)


class UnreadableSql(ValueError):
    """The text is no SQL that can be cut into tokens, or a clause of it has no known form. Says the place."""

    def __init__(self, expected: str, at: int) -> None:
        super().__init__(f"expected {expected} at character {at}")


_SPACE: Final = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
_TOKEN: Final = re.compile(
    r"""
      (?P<q>[nN]?[qQ]'(?P<open>.))
    | (?P<string>[nN]?'(?:[^']++|'')*+')
    | (?P<quoted>"[^"]+")
    | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?(?![\w$#]))
    | (?P<word>[^\W\d_][\w$#]*)
    | (?P<symbol>\|\||:=|<=|>=|<>|!=|=>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_CLOSING: Final = {"[": "]", "{": "}", "(": ")", "<": ">"}


def tokens_of(sql: str) -> list[Token]:
    """The tokens of a text, with an END after the last.

    Raises:
        UnreadableSql: a string, a name or a comment has no end.
    """
    tokens: list[Token] = []
    at = _end_of_space(sql, 0)
    while at < len(sql):
        found = _TOKEN.match(sql, at)
        assert found is not None, "the pattern has an alternative for any character"
        token = _token(sql, found)
        tokens.append(token)
        at = _end_of_space(sql, token.end)
    return [*tokens, Token(TokenKind.END, "", len(sql), len(sql))]


def _token(sql: str, found: re.Match[str]) -> Token:
    start, end, text = found.start(), found.end(), found[0]
    if found["q"]:
        closing = _CLOSING.get(found["open"], found["open"]) + "'"
        stop = sql.find(closing, end)
        if stop < 0:
            raise UnreadableSql(f"{closing} that ends the text", start)
        return Token(TokenKind.STRING, sql[end:stop], start, stop + len(closing))
    if found["string"]:
        return Token(TokenKind.STRING, text[text.index("'") + 1 : -1].replace("''", "'"), start, end)
    if found["quoted"]:
        return Token(TokenKind.QUOTED_NAME, text[1:-1], start, end)
    if found["number"]:
        return Token(TokenKind.NUMBER, text, start, end)
    if found["word"]:
        return Token(TokenKind.WORD, text.upper(), start, end)
    if text in ("'", '"'):
        raise UnreadableSql(f"the {text} that ends the text or name", start)
    return Token(TokenKind.SYMBOL, text, start, end)


def _end_of_space(sql: str, at: int) -> int:
    found = _SPACE.match(sql, at)
    end = at if found is None else found.end()
    if sql.startswith("/*", end):
        raise UnreadableSql("the end of the comment", end)
    return end


class TokenCursor:
    """A place among the tokens of a statement, and the steps that a parser takes from it."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        """Stands at the first token; the last one is an END."""
        self._tokens = tokens
        self._place = 0

    @property
    def token(self) -> Token:
        """The token that the cursor stands at."""
        return self._tokens[self._place]

    @property
    def last_end(self) -> int:
        """The character after the token before."""
        return self._tokens[self._place - 1].end

    def word(self, ahead: int = 0) -> str:
        """The bare word there, or so many tokens ahead; empty where something else stands."""
        place = self._place + ahead
        token = self._tokens[place] if place < len(self._tokens) else self._tokens[-1]
        return token.value if token.kind is TokenKind.WORD else ""

    def took(self, *words: str) -> bool:
        """Whether these bare words stand there; the cursor is after them then."""
        if not all(self.word(ahead) == word for ahead, word in enumerate(words)):
            return False
        self._place += len(words)
        return True

    def took_symbol(self, symbol: str) -> bool:
        """Whether the symbol stands there; the cursor is after it then."""
        token = self.token
        if token.kind is not TokenKind.SYMBOL or token.value != symbol:
            return False
        self._place += 1
        return True

    def expect_symbol(self, symbol: str) -> None:
        """Steps over the symbol. Raises UnreadableSql where another token stands."""
        if not self.took_symbol(symbol):
            raise UnreadableSql(symbol, self.token.start)

    def name(self) -> str:
        """Steps over a name, and returns it. Raises UnreadableSql where none stands."""
        token = self.token
        if not token.is_name:
            raise UnreadableSql("a name", token.start)
        self._place += 1
        return token.value

    def integer(self) -> int:
        """Steps over a whole number, and returns it. Raises UnreadableSql where none stands."""
        token = self.token
        if token.kind is not TokenKind.NUMBER or not token.value.isdigit():
            raise UnreadableSql("a whole number", token.start)
        self._place += 1
        return int(token.value)

    @property
    def is_at_end(self) -> bool:
        """No token of the statement is left."""
        return self.token.kind is TokenKind.END

    @property
    def is_at_end_of_item(self) -> bool:
        """The statement, a list or an item of a list ends there."""
        return self.is_at_end or (self.token.kind is TokenKind.SYMBOL and self.token.value in (",", ")"))

    def skip(self) -> None:
        """Steps over a token, or over all of a pair of brackets. Raises UnreadableSql for brackets without an end."""
        start = self.token.start
        depth = 0
        while True:
            if self.is_at_end:
                raise UnreadableSql("the bracket that ends the list", start)
            if self.token.kind is TokenKind.SYMBOL:
                depth += {"(": 1, ")": -1}.get(self.token.value, 0)
            self._place += 1
            if depth <= 0:
                return

    def skip_item(self) -> None:
        """Steps to the end of an item of a list."""
        while not self.is_at_end_of_item:
            self.skip()

    def skip_statement(self) -> None:
        """Steps to the end of the statement."""
        self._place = len(self._tokens) - 1
