"""Some hundred of the seeded interleavings; ``make fuzz-oracle`` tries thousands."""

import pytest

from tests.oracle.interleavings import interleaving
from tests.oracle.planted import BUGS, SEEDS
from tests.planted.__main__ import REPOSITORY

_OF_A_TEST = SEEDS // 4


@pytest.mark.parametrize("first", range(0, 4 * _OF_A_TEST, _OF_A_TEST))
def test_events_are_the_models_history(first: int) -> None:
    for seed in range(first, first + _OF_A_TEST):
        interleaving(seed)


def test_each_planted_bug_has_its_place_in_the_code_and_a_seed_of_these() -> None:
    assert all((REPOSITORY / bug.file).read_text().count(bug.text) == 1 for bug in BUGS)
    assert all(0 <= bug.seed < SEEDS for bug in BUGS)
