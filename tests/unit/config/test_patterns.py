"""Patterns that documents may hold, and those that would run away."""

import re
import subprocess
import sys
from collections.abc import Iterator
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parse  # type: ignore[attr-defined]
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from libs.config.patterns import MAX_STEPS, RunsAway, count_mistakes, most_steps, pattern_mistakes
from tests.marks import examples


def mistakes_of(pattern: str) -> list[str]:
    """The mistakes in it."""
    return list(pattern_mistakes("exclude_tables[0]", pattern))


@pytest.mark.parametrize(
    "pattern",
    [
        ".*",
        r"shop\..*",
        r"shop\.(orders|items)(_\d{4})?",
        r".*\..*_(eu|us)\.(email|phone)",
        r"(?i)shop\.(?!audit_).*",
        r"shop\.orders_[0-9]+",
        r"(?:ab)*",
        r"(?:\w+\.)*email",
        "(?:_eu|_us){1,2}",
        ".*a.*a.*a",
        r".*\..*\..*_(email|phone|address|birthday)",
        r"[^.]*\.[^.]*\.[^.]*e.*mail.*",
        r"\w+\.\w+\.\w+_(a|bc)(_\d+)?",
        r".*_v?[0-9]?[0-9]?(_old)?(_new)?",
        "a?" * 20,
        ".*+a.*+b.*+c.*+d.*+e",
        r".*\.(" + "|".join(f"{letter}ame" for letter in "abcdefghijklmnop") + ")",
        "^(?!(?:" + "|".join(f"shop.orders.c{number}" for number in range(60)) + ")$).*$",
    ],
)
def test_what_people_write_is_taken(pattern: str) -> None:
    """Choices, classes, several repetitions one after another."""
    assert mistakes_of(pattern) == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*b",
        "(a|ab)*c",
        "(.*)*x",
        "(a?){30}b",
        "(?:a{0,30}){0,30}b",
        "a?" * 31,
        ".?" * 30 + "#",
        ".??" * 30 + "#",
        "(?:.?)" * 30 + "#",
        "(?:ab?|b)?" * 30 + "#",
        "(?:a|b|.|_)" * 60 + "#",
        "a{0,9}" * 9,
        ".*a.*a.*a.*a",
        ".*.*.*.*",
        ".*.*.*" + "a" * 60,
        r"(?i)[^.k]*\.?.*k.*\w*K.*",
        "((a{1,9}b)+c)+",
        "(?:(?:(?=a){1000}){1000}){1000}",
        r"(a*)\1*b",
    ],
)
def test_what_could_run_away_is_refused(pattern: str) -> None:
    """By its parts: nobody waits for it to be tried."""
    (mistake,) = mistakes_of(pattern)

    assert mistake.startswith("exclude_tables[0]: could run away: ")


def test_one_that_is_refused_does_run_away() -> None:
    """The rule is not about nothing: Python itself does not come back from this one."""
    code = "import re; re.fullmatch('(a+)+', 'a' * 60 + 'b')"

    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", code], timeout=1)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("shop\\.(", "is no regular expression (missing )"),
        ("(" * 3_000, "is longer than 1000 characters"),
        ("(" * 490 + ")" * 490, "is no regular expression (maximum recursion depth"),
        ("a{9999999999}", "is no regular expression"),
    ],
)
def test_what_is_none_is_told(pattern: str, why: str) -> None:
    """Broken, or large beyond use."""
    (mistake,) = mistakes_of(pattern)

    assert mistake.startswith(f"exclude_tables[0]: {why}")


def test_one_that_is_refused_for_its_steps_says_what_to_write() -> None:
    """A bound alone helps nobody."""
    assert mistakes_of(r".*\..*\..*email.*") == [
        "exclude_tables[0]: could run away: it could take more than 20,000,000 steps against one name; use at most three '*' "
        "or '+' and a dozen '?' in one pattern, write '[^.]*' for '.*' before a dot, or make several patterns of it"
    ]
    assert mistakes_of(r"[^.]*\.[^.]*\..*email.*") == []


WORST_CASES = [
    (".*a.*a.*a", "a" * 39 + "b"),
    (".*?a.*?a.*?a", "a" * 39 + "b"),
    (".*.*.*aab", "a" * 40),
    ("a?" * 14, "a" * 13 + "b"),
    ("a?" * 14 + "b", "a" * 14),
    (".?" * 14 + "#", "shop.orders.customer_id"),
    ("a{0,20}" * 3, "a" * 40),
    ("(?:ab?|b)?" * 8 + "c", "ab" * 8),
    ("(?:a.|a|ab){6}c", "ab" * 9),
    (r"(?:\w+\.)*x", "a." * 20),
    (r"[^.]*\.[^.]*\.[^.]*a.*b", "a.a." + "a" * 36),
    (r"[^_]*_[^.]*\.(?:_a|b)*+c", "__________." + "_ab" * 6),
    ("(?:.*a|.*b|a.*)?+c", "ab" * 20),
    ("(?>.*a|.*b).*c", "ab" * 20),
    ("(?=.*a.*b)(?!.*a.*c).*b.*d", "ab" * 20),
    (".*(?<=aaa)a.*(?<!aab)c", "a" * 40),
    (r"(?i)\w*_\w*_a", "_a" * 20),
    (r"(?i)[^a]*A[^.]*\.", "b" * 20 + "a" * 20),
]


@pytest.mark.parametrize(("pattern", "name"), WORST_CASES)
def test_no_more_steps_are_taken_than_are_counted(pattern: str, name: str) -> None:
    """Against names that fit until their end, by a matcher that goes the ways that ``re`` goes, one by one."""
    assert mistakes_of(pattern) == []
    matcher = Matcher(pattern, name)

    assert matcher.is_full_match() == (re.fullmatch(pattern, name) is not None)
    assert len(name) < matcher.steps <= most_steps(pattern, len(name)) <= MAX_STEPS


def test_the_count_is_near_what_is_taken() -> None:
    """Where all fits until the end it is no wild guess, or cheap patterns would be refused."""
    matcher = Matcher(".*a.*a.*a", "a" * 39 + "b")
    matcher.is_full_match()

    assert most_steps(".*a.*a.*a", 40) < 3 * matcher.steps


ATOMS = st.sampled_from(["a", "b", "_", r"\.", ".", "[^.]", "[^_a]", r"\w", "[ab]", "^", r"\b"])
REPEATS = st.sampled_from(["?", "*", "+", "??", "*?", "{0,2}", "{2}", "*+", "?+", "{1,3}+"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda each: f"(?:{'|'.join(each)})"),
        st.tuples(inner, REPEATS).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        inner.map(lambda each: f"(?={each})"),
        inner.map(lambda each: f"(?!{each})"),
        inner.map(lambda each: f"(?>{each})"),
    ),
    max_leaves=8,
)


@settings(max_examples=examples(200), deadline=None)
@given(pattern=PATTERNS, name=st.text("ab._", min_size=1, max_size=14))
@example(pattern="(?:a|ab)_?[^.]*\\.", name="ab_b.")
def test_no_pattern_takes_more_steps_than_are_counted(pattern: str, name: str) -> None:
    """Of any parts, on any name."""
    try:
        counted = most_steps(pattern, len(name))
    except RunsAway:
        return
    matcher = Matcher(pattern, name, most=counted + 1)
    matcher.is_full_match()

    assert matcher.steps <= counted


def test_a_document_has_a_thousand_patterns_at_most() -> None:
    """The list that has the most is named."""
    assert list(count_mistakes({"masks": 400, "include_tables": 600})) == []
    assert list(count_mistakes({"masks": 400, "include_tables": 601})) == [
        "include_tables: the document has 1,001 regular expressions, 601 of them here, and may have 1,000; join names into "
        "one, as in 'shop\\.(orders|items)'"
    ]


class Matcher:
    """Matches as ``re`` does, and counts how often it holds a single thing against a character."""

    def __init__(self, pattern: str, name: str, *, most: int = MAX_STEPS) -> None:
        self.steps = 0
        self._pattern = sre_parse.parse(pattern)
        self._flags = re.compile(pattern).flags & re.IGNORECASE
        self._name = name
        self._most = most
        self._fitting: dict[tuple[str, str], bool] = {}

    def is_full_match(self) -> bool:
        """Goes the ways until one ends at the name's end, or more than ``most`` steps are taken."""
        return any(end == len(self._name) for end in self._ends(list(self._pattern), 0))

    def _ends(self, parsed: list[Any], start: int) -> Iterator[int]:
        """Where a part of the pattern that begins at ``start`` can end, in ``re``'s order."""
        if not parsed or self.steps > self._most:
            yield start
            return
        for end in self._ends_of(parsed[0][0], parsed[0][1], start):
            yield from self._ends(parsed[1:], end)

    def _ends_of(self, operation: Any, argument: Any, start: int) -> Iterator[int]:
        match operation:
            case sre.MAX_REPEAT | sre.MIN_REPEAT:
                yield from self._repeated(operation is sre.MAX_REPEAT, argument, 0, start)
            case sre.POSSESSIVE_REPEAT:
                yield from list(self._repeated(True, argument, 0, start))[:1]
            case sre.SUBPATTERN:
                yield from self._ends(list(argument[-1]), start)
            case sre.ATOMIC_GROUP:
                if (end := next(self._ends(list(argument), start), None)) is not None:
                    yield end
            case sre.BRANCH:
                for branch in argument[1]:
                    yield from self._ends(list(branch), start)
            case sre.ASSERT | sre.ASSERT_NOT:
                direction, body = argument
                begin = start - body.getwidth()[0] if direction < 0 else start
                found = begin >= 0 and next(self._ends(list(body), begin), None) is not None
                if found == (operation is sre.ASSERT):
                    yield start
            case sre.AT:
                is_boundary = {sre.AT_BEGINNING: r"^", sre.AT_BOUNDARY: r"\b"}[argument]
                if re.compile(is_boundary).match(self._name, start):
                    yield start
            case _:
                self.steps += 1
                if start < len(self._name) and self._fits(operation, argument, self._name[start]):
                    yield start + 1

    def _repeated(self, is_greedy: bool, repeat: Any, number: int, start: int) -> Iterator[int]:
        least, most, body = repeat
        if number >= least and not is_greedy:
            yield start
        if number < int(most):
            for end in self._ends(list(body), start):
                if end > start or number < least:
                    yield from self._repeated(is_greedy, repeat, number + 1, end)
        if number >= least and is_greedy:
            yield start

    def _fits(self, operation: Any, argument: Any, character: str) -> bool:
        """Asked of ``re`` itself, in a pattern of this one thing."""
        asked = (str((operation, argument)), character)
        if asked not in self._fitting:
            single = sre_parse.SubPattern(sre_parse.State(), [(operation, argument)])
            single.state.flags = self._flags | re.UNICODE
            self._fitting[asked] = re._compiler.compile(single).fullmatch(character) is not None  # type: ignore[attr-defined]
        return self._fitting[asked]
