"""Tokens of a MySQL statement; read by ``column_type`` and ``ddl``.

An own lexer, because these rules are MySQL's alone: executable comments (``/*!80013 … */`` is SQL, not a
comment), names that begin with a digit, backslash escapes, and quotes that ``sql_mode`` redefines
(MySQL manual, "Literal Values", "Schema Object Names", "Comments").
"""

import enum
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final


class TokenKind(enum.Enum):
    """The kind of a token; only a bare WORD can be a keyword."""

    WORD = "word"
    QUOTED_NAME = "quoted_name"
    STRING = "string"
    NUMBER = "number"
    BYTES = "bytes"
    """``x'4D'``, ``0x4D``, ``b'01'``, ``0b01``."""
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """One token and where it stood."""

    kind: TokenKind
    value: str
    """The name or string without its quotes and escapes; else the text itself."""
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """The bare word in upper case, or the symbol; empty for everything that was quoted."""
        return self.value.upper() if self.kind in (TokenKind.WORD, TokenKind.SYMBOL) else ""


class UnreadableSql(ValueError):
    """The text is no SQL that the lexer or a parser built on it can read; says where."""


@dataclass(frozen=True, slots=True)
class SqlMode:
    """The parts of ``sql_mode`` that change a text's meaning."""

    ansi_quotes: bool = False
    """``"x"`` is a name, not a string."""
    backslash_escapes: bool = True
    real_as_float: bool = False
    """REAL is a FLOAT, not a DOUBLE."""
    is_strict: bool = False
    """A value that does not fit is an error. False also where this is not known."""


DEFAULT_SQL_MODE: Final = SqlMode()

_MODE_BITS: Final = {"real_as_float": 1, "ansi_quotes": 4, "no_backslash_escapes": 1 << 20, "strict": 3 << 21}
"""MySQL source sql/system_variables.h, MODE_…: a Query event carries the session's ``sql_mode`` as a bit set."""


def sql_mode_of(bits: int) -> SqlMode:
    """The ``sql_mode`` of a Query event."""
    return SqlMode(
        ansi_quotes=bool(bits & _MODE_BITS["ansi_quotes"]),
        backslash_escapes=not bits & _MODE_BITS["no_backslash_escapes"],
        real_as_float=bool(bits & _MODE_BITS["real_as_float"]),
        is_strict=bool(bits & _MODE_BITS["strict"]),
    )


_NAME_CHARACTER: Final = r"[0-9A-Za-z_$\u0080-\U0010ffff]"
_SPACE: Final = r"[\ \t\n\v\f\r]"
"""Unicode's other spaces may be part of a name."""
_BEYOND_UTF8MB3: Final = re.compile("[\U00010000-\U0010ffff]")
_PATTERN: Final = re.compile(
    rf"""
    (?P<space>{_SPACE}+)
  | (?P<comment>\#[^\n\0]* | --(?=[\x00-\x20\x7f]|\Z)[^\n\0]* | /\*(?!!)(?:[^*]|\*(?!/))*\*/)
  | (?P<version>/\*!(?P<number_of_version>\d{{5}}(?:\d(?={_SPACE}))?)?)
  | (?P<version_end>\*/)
  | (?P<bytes>[xX]'[0-9A-Fa-f]*' | [bB]'[01]*' | 0x[0-9A-Fa-f]+(?!{_NAME_CHARACTER}) | 0b[01]+(?!{_NAME_CHARACTER}))
  | (?P<number>\d+[eE][+-]?\d+ | (?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)? | \d+(?!{_NAME_CHARACTER}))
  | (?P<national>[nN](?='))
  | (?P<word>{_NAME_CHARACTER}+)
  | (?P<quote>['"`])
  | (?P<end>\0)
  | (?P<symbol>:=|<=>|<>|!=|>=|<=|->>|->|\|\||&&|<<|>>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_NAME_AFTER_POINT: Final = re.compile(rf"\.({_NAME_CHARACTER}+)")
"""Directly after a name: it is a name, be it a keyword or begin with a digit."""

# Manual, "String Literals", table "Special Character Escape Sequences"; any other escaped character stands for itself.
# ``\%`` and ``\_`` keep their backslash outside of pattern matching.
_ESCAPES: Final = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}

_NEVER: Final = 99_999
"""The version from which on ``/*!99999 … */`` is skipped. A server writes ``/*`` into its log where it skipped a comment."""


def as_utf8mb3(text: str) -> str:
    """``text`` as the server keeps names and comments: a question mark for each character beyond utf8mb3 (MySQL 9.7)."""
    return text if text.isascii() else _BEYOND_UTF8MB3.sub("?", text)


def _tokens(statement: str, sql_mode: SqlMode) -> Iterator[Token]:
    """The statement's tokens without comments, read as the server reads them (MySQL source sql/sql_lex.cc, ``lex_one_token``).

    The content of ``/*! … */`` is part of the statement, as it is for a server of our day.
    """
    at = 0
    in_version = False
    while at < len(statement):
        match = _PATTERN.match(statement, at)
        assert match is not None, "the last alternative takes any character"
        start, at = at, match.end()
        text = match.group()
        match match.lastgroup:
            case "space" | "comment":
                continue
            case "national":  # N'…' is _utf8mb3'…' (manual, "The National Character Set")
                yield Token(TokenKind.WORD, "_utf8mb3", start, at)
            case "end":
                return
            case "version" | "number_of_version":
                if int(match["number_of_version"] or 0) >= _NEVER:
                    at = _end_of_skipped(statement, start)
                else:
                    in_version = True
            case "version_end" if in_version:
                in_version = False
            case "version_end":
                yield Token(TokenKind.SYMBOL, "*", start, start + 1)
                yield Token(TokenKind.SYMBOL, "/", start + 1, at)
            case "bytes":
                yield Token(TokenKind.BYTES, text, start, at)
            case "number":
                yield Token(TokenKind.NUMBER, text, start, at)
            case "word":
                following = _names_after_points(statement, at)
                yield Token(TokenKind.QUOTED_NAME if following else TokenKind.WORD, as_utf8mb3(text), start, at)
                yield from following
                at = following[-1].end if following else at
            case "quote":
                value, at = _quoted(statement, start, sql_mode)
                is_name = text == "`" or (text == '"' and sql_mode.ansi_quotes)
                if is_name:
                    value = as_utf8mb3(value)
                yield Token(TokenKind.QUOTED_NAME if is_name else TokenKind.STRING, value, start, at)
                following = _names_after_points(statement, at) if is_name else []
                yield from following
                at = following[-1].end if following else at
            case _:
                if text == "/" and statement.startswith("/*", start):
                    raise UnreadableSql(f"a comment that begins at character {start} is not closed")
                yield Token(TokenKind.SYMBOL, text, start, at)


def _names_after_points(statement: str, at: int) -> list[Token]:
    """``.20151214`` and ``.table``, one after another."""
    tokens = []
    while following := _NAME_AFTER_POINT.match(statement, at):
        tokens.append(Token(TokenKind.SYMBOL, ".", at, at + 1))
        tokens.append(Token(TokenKind.QUOTED_NAME, as_utf8mb3(following[1]), at + 1, following.end()))
        at = following.end()
    return tokens


def _quoted(statement: str, start: int, sql_mode: SqlMode) -> tuple[str, int]:
    """Content of the quoted token at ``start``, and where the text goes on after it."""
    quote = statement[start]
    is_name = quote == "`" or (quote == '"' and sql_mode.ansi_quotes)
    escapes = sql_mode.backslash_escapes and not is_name
    parts: list[str] = []
    at = start + 1
    while at < len(statement):
        character = statement[at]
        if character == quote:
            if statement[at + 1 : at + 2] != quote:
                return "".join(parts), at + 1
            at += 1
        elif character == "\\" and escapes and at + 1 < len(statement):
            at += 1
            character = _ESCAPES.get(statement[at], statement[at])
        parts.append(character)
        at += 1
    raise UnreadableSql(f"the {quote} at character {start} is not closed")


_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")


def _end_of_skipped(statement: str, start: int) -> int:
    """Where a version's comment ends that is skipped: it may hold one level of comments."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(statement, start):
        if edge.group() == "*/":
            depth -= 1
        elif depth < 2:
            depth += 1
        if depth == 0:
            return edge.end()
    raise UnreadableSql(f"a comment that begins at character {start} is not closed")


def tokens_of(statement: str, sql_mode: SqlMode = DEFAULT_SQL_MODE) -> tuple[Token, ...]:
    """All tokens, without comments. Raises UnreadableSql."""
    return tuple(_tokens(statement, sql_mode))


def first_words(statement: str, sql_mode: SqlMode = DEFAULT_SQL_MODE, count: int = 2) -> tuple[str, ...]:
    """The first ``count`` tokens as keywords in upper case, comments aside; "" for one that is no keyword, or lacks.

    >>> first_words("/*! */ alter /* a */ table t")
    ('ALTER', 'TABLE')

    Raises:
        UnreadableSql: a comment or quote before them is not closed.
    """
    reader = TokenReader(statement, sql_mode)
    return tuple(reader.ahead(nth).keyword for nth in range(count))


_OF_A_QUERY: Final = frozenset({"SELECT", "TABLE", "VALUES"})


def makes_rows(statement: str, sql_mode: SqlMode = DEFAULT_SQL_MODE) -> bool:
    """A CREATE TABLE whose text has the query that fills it. Of such a statement a row-based log has another text, without it.

    >>> [makes_rows("CREATE TABLE t " + text) for text in ("AS TABLE u", "VALUES ROW(1)", "(a INT)", "(`select` INT)")]
    [True, True, False, False]

    Raises:
        UnreadableSql: a comment or quote is not closed.
    """
    words = [token.keyword for token in _tokens(statement, sql_mode)]
    begin = 3 if words[1:2] == ["TEMPORARY"] else 2
    if words[:1] != ["CREATE"] or words[begin - 1 : begin] != ["TABLE"]:
        return False
    return any(
        word in _OF_A_QUERY and following not in ("LESS", "IN")  # a partition's
        for word, following in itertools.zip_longest(words[begin:], words[begin + 1 :], fillvalue="")
    )


def names_in(statement: str, sql_mode: SqlMode = DEFAULT_SQL_MODE) -> frozenset[str]:
    """Every word of a statement that may be a name, in lower case, keywords and strings included: a superset, never less."""
    try:
        named = (TokenKind.WORD, TokenKind.QUOTED_NAME, TokenKind.STRING)
        return frozenset(token.value.lower() for token in _tokens(statement, sql_mode) if token.kind in named)
    except UnreadableSql:
        return frozenset(re.findall(rf"{_NAME_CHARACTER}+", as_utf8mb3(statement).lower()))


class TokenReader:
    """A place in a statement's tokens; the few steps that a hand-written parser needs.

    Reads no further than it is asked to, so that a statement can be set aside by its first words, before an unreadable rest
    (the body of a procedure in another language). Each method may raise UnreadableSql.
    """

    def __init__(self, statement: str, sql_mode: SqlMode = DEFAULT_SQL_MODE) -> None:
        self.statement = statement
        self.sql_mode = sql_mode
        self._unread = _tokens(statement, sql_mode)
        self._tokens: list[Token] = []
        self._end = Token(TokenKind.END, "", len(statement), len(statement))
        self._at = 0

    @classmethod
    def over(cls, tokens: Sequence[Token], of: "TokenReader") -> "TokenReader":
        """A reader of some tokens of another's statement."""
        reader = cls("", of.sql_mode)
        reader.statement = of.statement
        reader._unread = iter(tokens)
        return reader

    @property
    def current(self) -> Token:
        return self.ahead(0)

    def ahead(self, distance: int) -> Token:
        """The token ``distance`` after the current one; END beyond the last."""
        wanted = self._at + distance
        while len(self._tokens) <= wanted:
            token = next(self._unread, None)
            if token is None:
                return self._end
            self._tokens.append(token)
        return self._tokens[wanted]

    def advance(self) -> Token:
        """The current token; the place moves past it."""
        token = self.current
        if token.kind is not TokenKind.END:
            self._at += 1
        return token

    def at_end(self) -> bool:
        """Nothing is left but a closing semicolon."""
        return self.current.kind is TokenKind.END or (
            self.current.keyword == ";" and self.ahead(1).kind is TokenKind.END
        )

    def at_kind(self, *kinds: TokenKind) -> bool:
        """A token of one of these kinds is next."""
        return self.current.kind in kinds

    def at(self, *words: str) -> bool:
        """These keywords or symbols follow, in this order."""
        return all(self.ahead(distance).keyword == word for distance, word in enumerate(words))

    def at_any(self, *words: str) -> bool:
        """One of these keywords or symbols is next."""
        return self.current.keyword in words

    def accept(self, *words: str) -> bool:
        """Step over these keywords if they follow; say whether they did."""
        if not self.at(*words):
            return False
        self._at += len(words)
        return True

    def accept_any(self, *words: str) -> str:
        """Step over one of these keywords and return it; empty if none is next."""
        return self.advance().keyword if self.current.keyword in words else ""

    def expect(self, *words: str) -> None:
        """Step over these keywords. Raises UnreadableSql if they do not follow."""
        if not self.accept(*words):
            raise self.unreadable(" ".join(words))

    def name(self) -> str:
        """A name, quoted or bare. Raises UnreadableSql if none follows."""
        if not self.at_kind(TokenKind.WORD, TokenKind.QUOTED_NAME):
            raise self.unreadable("a name")
        return self.advance().value

    def string(self) -> str:
        """A string literal; neighbours are one string, as in SQL. Raises UnreadableSql if none follows."""
        if not self.at_kind(TokenKind.STRING):
            raise self.unreadable("a string")
        parts = []
        while self.at_kind(TokenKind.STRING):
            parts.append(self.advance().value)
        return "".join(parts)

    def integer(self) -> int:
        """A number without fraction. Raises UnreadableSql if none follows."""
        if not self.at_kind(TokenKind.NUMBER) or not self.current.value.isdigit():
            raise self.unreadable("a number")
        return int(self.advance().value)

    def skip_parentheses(self) -> tuple[Token, ...]:
        """Step over a balanced ``( … )``; return the tokens inside. Raises UnreadableSql if it is not closed."""
        self.expect("(")
        inside: list[Token] = []
        depth = 1
        while True:
            token = self.advance()
            if token.kind is TokenKind.END:
                raise self.unreadable(")")
            depth += (token.keyword == "(") - (token.keyword == ")")
            if depth == 0:
                return tuple(inside)
            inside.append(token)

    def unreadable(self, expected: str) -> UnreadableSql:
        """The error to raise where ``expected`` does not follow. Quotes no literal: they may be data."""
        token = self.current
        found = token.value if token.keyword else token.kind.value
        return UnreadableSql(f"expected {expected} at character {token.start}, found {found}")


_HEX: Final = re.compile(r"(?:[xX]'([0-9A-Fa-f]*)'|0x([0-9A-Fa-f]+))")
_BITS: Final = re.compile(r"(?:[bB]'([01]*)'|0b([01]+))")


def bytes_of_literal(text: str) -> bytes | None:
    """The bytes of a hex or bit literal; None for any other text (manual, "Hexadecimal Literals", "Bit-Value Literals")."""
    if match := _HEX.fullmatch(text):
        digits = match[1] if match[1] is not None else match[2]
        return bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2))
    if match := _BITS.fullmatch(text):
        bits = (match[1] if match[1] is not None else match[2]) or "0"
        return int(bits, 2).to_bytes((len(bits) + 7) // 8, "big")
    return None


def split_statements(text: str, sql_mode: SqlMode = DEFAULT_SQL_MODE) -> list[str]:
    """The statements of a script, between semicolons; one in quotes or comments does not divide.

    >>> split_statements("ALTER TABLE a COMMENT ';'; DROP TABLE /* ; */ b;")
    ["ALTER TABLE a COMMENT ';'", 'DROP TABLE /* ; */ b']

    Raises:
        UnreadableSql: a quote or comment is not closed.
    """
    statements, begins, ends = [], None, 0
    for token in _tokens(text, sql_mode):
        if token.keyword != ";":
            begins = token.start if begins is None else begins
            ends = token.end
        elif begins is not None:
            statements.append(text[begins:ends])
            begins = None
    return statements if begins is None else [*statements, text[begins:ends]]
