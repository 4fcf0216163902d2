"""The filter of an incremental snapshot: SQL that a person writes and the reader puts into its own statement."""

from collections.abc import Iterator
from typing import Final

from libs.mysql.sql_lexer import TokenKind, UnreadableSql, tokens_of

_FUNCTIONS: Final = frozenset(
    {
        "SLEEP",
        "BENCHMARK",
        "GET_LOCK",
        "RELEASE_LOCK",
        "RELEASE_ALL_LOCKS",
        "LOAD_FILE",
        "MASTER_POS_WAIT",
        "SOURCE_POS_WAIT",
    }
)
"""They read files, lock or wait."""
_WORDS: Final = frozenset({"INTO", "PROCEDURE"})
_STATEMENTS: Final = frozenset(
    {"SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "CALL", "DO", "SET", "DROP", "ALTER", "CREATE", "TRUNCATE"}
    | {"WITH", "TABLE", "VALUES", "LOAD", "GRANT", "KILL", "SHUTDOWN", "HANDLER", "LOCK", "RENAME"}
)


def no_condition(text: str) -> Iterator[str]:
    """Why a text is no condition that can stand between parentheses of another statement; nothing where it is one.

    >>> list(no_condition("total > 5 AND (region = 'EU' OR note LIKE '%;%')"))
    []
    """
    try:
        tokens = tokens_of(text)
    except UnreadableSql as error:
        yield f"is no condition: {error}"
        return
    depth, end = 0, 0
    for number, token in enumerate(tokens):
        if text[end : token.start].strip():
            yield "holds a comment; leave it out"
            return
        end = token.end
        depth += (token.keyword == "(") - (token.keyword == ")")
        if depth < 0:
            yield "closes a parenthesis that it did not open"
            return
        if token.keyword == ";":
            yield "holds a semicolon; give one condition"
            return
        if token.kind is not TokenKind.WORD:
            continue
        is_called = text[token.end :].lstrip().startswith("(")
        begins_statement = number == 0 and token.keyword in _STATEMENTS and not is_called
        does_more = token.keyword in _WORDS or (token.keyword in _FUNCTIONS and is_called)
        if begins_statement or does_more or (depth == 0 and token.keyword == "UNION"):
            yield f"is no condition alone: {token.value} does more; compare columns with values"
            return
    if text[end:].strip():
        yield "holds a comment; leave it out"
    elif depth:
        yield "opens a parenthesis that it does not close"
