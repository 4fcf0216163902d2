import threading

import pytest

from spark.batch.side_by_side import side_by_side
from tests.spark_session import SharedSpark

BOTH_WAIT_S = 60


def test_what_one_thread_tells_spark_of_its_jobs_is_not_the_others(shared: SharedSpark) -> None:
    """A query's number stands there, by which its plan's metrics are made."""
    context = shared.session.sparkContext
    both = threading.Barrier(2)
    context.setLocalProperty("of.the.caller", "taken over")

    def told_by(own: str) -> tuple[str | None, str | None]:
        both.wait(BOTH_WAIT_S)
        context.setLocalProperty("of.one.thread", own)
        both.wait(BOTH_WAIT_S)
        return context.getLocalProperty("of.the.caller"), context.getLocalProperty("of.one.thread")

    told = side_by_side(shared.session, told_by, ["first", "second"], at_most=2)

    assert told == [("taken over", "first"), ("taken over", "second")]
    assert context.getLocalProperty("of.one.thread") is None


def test_all_are_waited_for_before_the_first_failure_is_raised(shared: SharedSpark) -> None:
    done: list[int] = []

    def work(number: int) -> None:
        if number == 0:
            raise ValueError("the first")
        done.append(number)

    with pytest.raises(ValueError, match="the first"):
        side_by_side(shared.session, work, [0, 1, 2, 3], at_most=2)

    assert sorted(done) == [1, 2, 3]
