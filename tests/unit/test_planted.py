"""Bugs can still be planted: each names code that is there, and a promise of its own."""

from tests.planted.__main__ import REPOSITORY, planted
from tests.planted.bugs import BUGS
from tests.promises import PROMISES


def test_each_bug_changes_code_that_is_there() -> None:
    for bug in BUGS:
        right = (REPOSITORY / bug.file).read_text()

        assert planted(right, bug) != right
        file, _, test = bug.caught_by.partition("::")
        assert f"def {test}" in (REPOSITORY / file).read_text(), bug.name


def test_each_bug_breaks_another_promise() -> None:
    promises = [bug.promise for bug in BUGS]

    assert len(set(promises)) == len(promises) >= 10
    assert set(promises) <= PROMISES.keys()
