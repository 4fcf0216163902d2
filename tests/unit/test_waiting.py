"""A wait returns the fact, and fails with the last value that it saw."""

import itertools

import pytest

from tests.waiting import until, wait_until


def test_the_fact_is_returned_once_it_is_true() -> None:
    numbers = itertools.chain([0, 0], itertools.count(7))

    assert wait_until(lambda: next(numbers), because="a number comes", pause_s=0.0) == 7


async def test_what_was_seen_last_is_told() -> None:
    told = r"not within 0 s: a row arrives; seen last: \[1, 2\]"
    with pytest.raises(AssertionError, match=told):
        wait_until(lambda: False, because="a row arrives", seen=lambda: [1, 2], within_s=0.0)
    with pytest.raises(AssertionError, match=told):
        await until(lambda: False, because="a row arrives", seen=lambda: [1, 2], within_s=0.0)
