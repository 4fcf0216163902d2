"""Regular expressions of documents: right ones, and none that could run away.

Python's ``re`` tries one way after another and has no time limit: ``(a+)+$`` takes minutes over forty characters. So a pattern
is taken apart before it is used, and refused where it has too many ways to be tried against a name of the length that names
have. What one may cost at most was measured: ``.*a.*a.*a.*a`` over the worst name takes about a second, once.
"""

import re
from collections.abc import Iterable, Sequence
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parse  # type: ignore[attr-defined]
from typing import Any, Final

_MAX_PATTERN_CHARACTERS: Final = 1_000
_NAME_CHARACTERS: Final = 194
"""``database.table.column``: each at most 64 (MySQL manual 11.2.1)."""
_MAX_WAYS: Final = 2_000_000_000
"""Four times ``.*``, and nothing beside."""


def pattern_mistakes(place: str, pattern: str) -> Iterable[str]:
    """What is wrong with one pattern of a document, ``place`` first."""
    if len(pattern) > _MAX_PATTERN_CHARACTERS:
        yield f"{place}: is longer than {_MAX_PATTERN_CHARACTERS} characters; make several patterns of it"
        return
    try:
        re.compile(pattern)
        parsed = sre_parse.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        yield f"{place}: is no regular expression ({error})"
        return
    try:
        ways = _ways(parsed)
    except _RunsAway as error:
        yield f"{place}: could run away: {error}"
        return
    if ways > _MAX_WAYS:
        yield (
            f"{place}: could run away: it has too many ways to be tried; use at most four '*' or '+' in one pattern, "
            "and make several patterns of it"
        )


class _RunsAway(Exception):
    """No bound is known."""


def _ways(parsed: Sequence[tuple[Any, Any]]) -> int:
    """In how many ways a pattern can be laid over a name, at most."""
    ways = 1
    for operation, argument in parsed:
        ways *= _ways_of(operation, argument)
    return ways


def _ways_of(operation: Any, argument: Any) -> int:
    match operation:
        case sre.MAX_REPEAT | sre.MIN_REPEAT | sre.POSSESSIVE_REPEAT:
            least, most, body = argument
            inner = _ways(body)
            if inner > 1 and most > 1:
                raise _RunsAway(
                    "a choice or a repetition is repeated, as in '(a+)+' or '(a|ab)*'; repeat only one thing"
                )
            most = min(int(most), max(_NAME_CHARACTERS, int(least)))
            return (most - int(least) + 1) * inner
        case sre.SUBPATTERN:
            return _ways(argument[-1])
        case sre.ATOMIC_GROUP:
            return _ways(argument)
        case sre.BRANCH:
            return sum(_ways(branch) for branch in argument[1])
        case sre.ASSERT | sre.ASSERT_NOT:
            return _ways(argument[1])
        case sre.GROUPREF | sre.GROUPREF_IGNORE | sre.GROUPREF_EXISTS:
            raise _RunsAway("it refers to a group of its own; write out what the group holds")
        case _:
            return 1
