"""Regular expressions of documents: right ones, and none that could run away.

Python's ``re`` tries one way after another and has no time limit: ``(a+)+$`` takes minutes over forty characters. So a pattern
is taken apart before it is used, and its steps are counted: how many single things ``re`` would try against the worst name of
the greatest length, one in which all fits until the very end. A pattern of more than ``MAX_STEPS`` is refused. The count is
never too small, and too large where a pattern says more than this analysis sees; a step was measured at 3 to 10
nanoseconds, so that the dearest pattern that is taken costs about 0.2 seconds for a name, and an ordinary one microseconds.

The count goes from a pattern's end to its beginning. ``_Rest.steps[n]`` is the cost of the rest of it where ``n`` characters of
the name are left: more characters never cost less, so where it is unknown how many a part takes, the fewest are the worst.
"""

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parse  # type: ignore[attr-defined]
from typing import Any, Final

MAX_STEPS: Final = 20_000_000
"""Three times ``.*`` and a choice of words after them; of five, four do not fit."""
MAX_PATTERNS: Final = 1_000
"""In one document: each is held against every table or column of a source."""
MAX_DOCUMENT_STEPS: Final = 40_000_000
"""Of all patterns of a document together, against one name: they are held against it one after the other."""
NAME_CHARACTERS: Final = 194
"""``database.table.column``: each at most 64 (MySQL manual 11.2.1)."""
_MAX_PATTERN_CHARACTERS: Final = 1_000
_MAX_LOOKS: Final = 5_000
"""How often a part of a pattern is looked at while steps are counted: once, or in a repeated group once for each time that the
group fits into a name."""
_MEMBERS_OF_A_STEP: Final = 8
"""``re`` compares a character with about so many members of a class in the time of a step."""


def pattern_mistakes(place: str, pattern: str) -> Iterable[str]:
    """The mistakes in one pattern of a document, ``place`` first."""
    if len(pattern) > _MAX_PATTERN_CHARACTERS:
        yield f"{place}: is longer than {_MAX_PATTERN_CHARACTERS} characters; make several patterns of it"
        return
    try:
        re.compile(pattern)
        steps = most_steps(pattern)
    except RunsAway as error:
        yield f"{place}: could run away: {error}"
        return
    except (re.error, RecursionError, OverflowError) as error:
        yield f"{place}: is no regular expression ({error})"
        return
    if steps > MAX_STEPS:
        yield f"{place}: could run away: {_TOO_MANY_STEPS}"


_TOO_MANY_STEPS: Final = (
    f"it could take more than {MAX_STEPS:,} steps against one name; use at most three '*' or '+' and a dozen '?' in one "
    "pattern, write '[^.]*' for '.*' before a dot, or make several patterns of it"
)


def count_mistakes(patterns_of: Mapping[str, int]) -> Iterable[str]:
    """The mistakes in the number of a document's patterns: ``patterns_of`` counts each of its lists."""
    count = sum(patterns_of.values())
    if count > MAX_PATTERNS:
        longest = max(patterns_of, key=lambda place: patterns_of[place])
        yield (
            f"{longest}: the document has {count:,} regular expressions, {patterns_of[longest]:,} of them here, and may have "
            f"{MAX_PATTERNS:,}; join names into one, as in 'shop\\.(orders|items)'"
        )


def steps_mistakes(patterns_of: Mapping[str, Iterable[str]]) -> Iterable[str]:
    """Whether all patterns of a document together could run away; ``patterns_of`` has each list's. Those that are wrong by
    themselves are reported elsewhere."""
    steps_of = {place: sum(map(_steps_or_none, patterns)) for place, patterns in patterns_of.items()}
    steps = sum(steps_of.values())
    if steps > MAX_DOCUMENT_STEPS:
        dearest = max(steps_of, key=lambda place: steps_of[place])
        yield (
            f"{dearest}: could run away: the document's regular expressions could take {steps:,} steps together against one "
            f"name, {steps_of[dearest]:,} of them here, and may take {MAX_DOCUMENT_STEPS:,}; write '[^.]*' for '.*' before a "
            "dot, or names instead of patterns"
        )


def _steps_or_none(pattern: str) -> int:
    if len(pattern) > _MAX_PATTERN_CHARACTERS:
        return 0
    try:
        steps = most_steps(pattern)
    except (RunsAway, re.error, RecursionError, OverflowError):
        return 0
    return steps if steps <= MAX_STEPS else 0


class RunsAway(Exception):
    """A pattern's steps have no bound that is worth counting; the message ends with the remedy."""


@lru_cache(maxsize=10_000)
def most_steps(pattern: str, characters: int = NAME_CHARACTERS) -> int:
    """How many steps ``re.fullmatch`` of a pattern takes at most, for any name of so many ``characters``.

    Documents are judged again whenever one of their folder changes, so counts are kept.

    Raises:
        RunsAway: its end is unknown.
    """
    return _Count().before(sre_parse.parse(pattern), _END).steps[characters]


@dataclass(frozen=True, slots=True)
class _Rest:
    """The rest of a pattern after some point."""

    steps: tuple[int, ...]
    """By how many characters of the name are left."""
    first: str | None = None
    """The ASCII character, in lower case, that the name must go on with; None: it is not known, or there are several."""


_END: Final = _Rest((1,) * (NAME_CHARACTERS + 1))


class _Count:
    """Counts one pattern's steps."""

    def __init__(self) -> None:
        self._looks = 0

    def before(self, parsed: Sequence[tuple[Any, Any]], rest: _Rest) -> _Rest:
        """``rest`` with a part of the pattern before it."""
        for operation, argument in reversed(list(parsed)):
            self._look()
            rest = self._before_one(operation, argument, rest)
        return rest

    def _look(self) -> None:
        self._looks += 1
        if self._looks > _MAX_LOOKS:
            raise RunsAway("repetitions stand in repetitions; repeat only one thing, or make several patterns of it")

    def _before_one(self, operation: Any, argument: Any, rest: _Rest) -> _Rest:
        match operation:
            case sre.MAX_REPEAT | sre.MIN_REPEAT | sre.POSSESSIVE_REPEAT:
                least, most, body = argument
                if operation is sre.POSSESSIVE_REPEAT:
                    inside = self._repeated(int(least), int(most), body, _END)
                    return _in_one_way(inside, rest, int(least) * body.getwidth()[0])
                return self._repeated(int(least), int(most), body, rest)
            case sre.SUBPATTERN:
                return self.before(argument[-1], rest)
            case sre.ATOMIC_GROUP:
                return _in_one_way(self.before(argument, _END), rest, argument.getwidth()[0])
            case sre.BRANCH:
                return self._branched(argument[1], rest)
            case sre.ASSERT | sre.ASSERT_NOT:
                direction, body = argument
                inside = self.before(body, _END)
                behind = min(body.getwidth()[0], NAME_CHARACTERS) if direction < 0 else 0
                return _Rest(_sum(inside.steps[behind:] + inside.steps[-1:] * behind, rest.steps))
            case sre.GROUPREF | sre.GROUPREF_IGNORE | sre.GROUPREF_EXISTS:
                raise RunsAway("it refers to a group of its own; write out the group's content")
            case sre.AT:
                return _Rest(_sum(_END.steps, rest.steps))
            case _:
                tries = (_cost(operation, argument),) * (NAME_CHARACTERS + 1)
                return _Rest(_sum(tries, _later(rest.steps, 1)), _first(operation, argument))

    def _branched(self, branches: Sequence[Any], rest: _Rest) -> _Rest:
        """Of branches that begin with different characters, only one is gone into."""
        nothing = (0,) * (NAME_CHARACTERS + 1)
        by_first: dict[str | None, tuple[int, ...]] = {None: nothing}
        for branch in branches:
            after = self.before(branch, rest)
            by_first[after.first] = _sum(by_first.get(after.first, nothing), after.steps)
        always = _sum(by_first.pop(None), (len(branches) // _MEMBERS_OF_A_STEP + 1,) * (NAME_CHARACTERS + 1))
        return _Rest(_sum(always, tuple(map(max, zip(nothing, *by_first.values(), strict=True)))))

    def _repeated(self, least: int, most: int, body: Any, rest: _Rest) -> _Rest:
        width = body.getwidth()[0]
        if width == 0 and most > 1:
            raise RunsAway("a part that may be empty is repeated, as in '(a*)*'; repeat only parts with a character")
        if len(body) == 1 and body[0][0] in _ONE_CHARACTER:
            return _repeated_character(least, most, body[0], rest)
        most = min(most, NAME_CHARACTERS // width + 1) if width else most
        after = rest
        for number in range(most - 1, -1, -1):
            self._look()
            after = self.before(body, after)
            if number >= least:
                after = _Rest(_sum(after.steps, rest.steps))
            if after.steps[-1] > MAX_STEPS:
                raise RunsAway(
                    _REPEATED_CHOICE if rest.steps[-1] <= MAX_STEPS and _has_choice(body) else _TOO_MANY_STEPS
                )
        return after


_ONE_CHARACTER: Final = (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN)
_REPEATED_CHOICE: Final = "a choice or a repetition is repeated, as in '(a+)+' or '(a|ab)*'; repeat only one thing"
_REPEATS: Final = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)


def _repeated_character(least: int, most: int, item: tuple[Any, Any], rest: _Rest) -> _Rest:
    """A step for each character that is taken, and a way on from each: only from the last, if a part that must follow cannot
    be
    taken itself, as in ``[^.]*\\.``."""
    cost, most = _cost(*item), min(most, NAME_CHARACTERS)
    if rest.first is not None and not _may_take(*item, rest.first):
        return _Rest(_sum(_takes(cost + 1, most), _later(rest.steps, least)))
    sums = (0, *accumulate(rest.steps))
    ways = tuple(
        sums[max(left - least + 1, 0)] - sums[max(left - most, 0)] if left >= least else 0
        for left in range(NAME_CHARACTERS + 1)
    )
    return _Rest(_sum(_takes(cost, most), ways))


@lru_cache(maxsize=1_000)
def _takes(cost: int, most: int) -> tuple[int, ...]:
    return tuple(cost * (1 + min(left, most)) for left in range(NAME_CHARACTERS + 1))


def _in_one_way(inside: _Rest, rest: _Rest, least_characters: int) -> _Rest:
    """Of a part that is left once, and not entered again."""
    return _Rest(_sum(inside.steps, _later(rest.steps, least_characters)))


def _sum(some: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    return tuple(map(operator.add, some, others))


def _later(steps: tuple[int, ...], characters: int) -> tuple[int, ...]:
    """The rest's cost after so many characters more; nothing, where there are not so many."""
    gone = min(characters, len(steps))
    return (0,) * gone + steps[: len(steps) - gone]


def _cost(operation: Any, argument: Any) -> int:
    return 1 + len(argument) // _MEMBERS_OF_A_STEP if operation is sre.IN else 1


def _first(operation: Any, argument: Any) -> str | None:
    """Upper and lower case are one, because a pattern may ignore case."""
    return chr(argument).lower() if operation is sre.LITERAL and argument < _NOT_ASCII else None


_NOT_ASCII: Final = 128


def _may_take(operation: Any, argument: Any, character: str) -> bool:
    """Whether one of a repetition's characters can be this one; True of every letter, which may stand for another."""
    if character.isalpha():
        return True
    match operation:
        case sre.LITERAL:
            return bool(argument == ord(character))
        case sre.NOT_LITERAL:
            return bool(argument != ord(character))
        case sre.IN:
            is_negated = argument[0][0] is sre.NEGATE
            return is_negated != any(
                _is_member(member[0], member[1], character) for member in argument if member[0] is not sre.NEGATE
            )
        case _:
            return True


def _is_member(operation: Any, argument: Any, character: str) -> bool:
    match operation:
        case sre.LITERAL:
            return bool(argument == ord(character))
        case sre.RANGE:
            return bool(argument[0] <= ord(character) <= argument[1])
        case _:
            return re.match(_CATEGORIES[argument], character) is not None


_CATEGORIES: Final = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}


def _has_choice(parsed: Sequence[tuple[Any, Any]]) -> bool:
    for operation, argument in parsed:
        if operation is sre.BRANCH or (operation in _REPEATS and argument[0] != argument[1]):
            return True
        if (operation is sre.SUBPATTERN and _has_choice(argument[-1])) or (
            operation in _REPEATS and _has_choice(argument[2])
        ):
            return True
    return False
