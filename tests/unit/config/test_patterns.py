"""Patterns that documents may hold, and those that would run away."""

import re
import subprocess
import sys

import pytest

from libs.config.patterns import pattern_mistakes


def mistakes_of(pattern: str) -> list[str]:
    """What is wrong with it."""
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
        ".*a.*a.*a.*a",
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
        ".*a.*a.*a.*a.*a",
        r"(a*)\1*b",
    ],
)
def test_what_could_run_away_is_refused(pattern: str) -> None:
    """By what it is made of: nobody waits for it to be tried."""
    (mistake,) = mistakes_of(pattern)

    assert mistake.startswith("exclude_tables[0]: could run away: ")


def test_one_that_is_refused_does_run_away() -> None:
    """The rule is not about nothing: Python itself does not come back from this one."""
    code = "import re; re.fullmatch('(a+)+', 'a' * 60 + 'b')"

    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", code], timeout=5)


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


def test_the_dearest_that_is_taken_comes_back() -> None:
    """Over the longest name that there is: the bound bounds."""
    assert re.fullmatch(".*a.*a.*a.*a", "a" * 193 + "b") is None
