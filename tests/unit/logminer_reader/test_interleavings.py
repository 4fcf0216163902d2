"""Some hundred of the seeded interleavings; ``make fuzz-oracle`` tries thousands."""

import pytest

from tests.oracle.interleavings import interleaving

_OF_A_TEST = 75


@pytest.mark.parametrize("first", range(0, 4 * _OF_A_TEST, _OF_A_TEST))
def test_events_are_the_models_history(first: int) -> None:
    for seed in range(first, first + _OF_A_TEST):
        interleaving(seed)
