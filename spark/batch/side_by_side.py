"""Spark work from several threads at once."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

Part = TypeVar("Part")
Outcome = TypeVar("Outcome")


def side_by_side(
    spark: SparkSession, work: Callable[[Part], Outcome], parts: Sequence[Part], at_most: int
) -> list[Outcome]:
    """``work`` of each part, ``at_most`` parts at a time; outcomes in the order of ``parts``.

    Each runs in the caller's job group, pool and tags, so that stopping the caller's query ends its jobs too. All are
    waited for; then the first failure, in that order, is raised.
    """
    with ThreadPoolExecutor(at_most, thread_name_prefix="sink-table") as workers:
        # Wrapped for each part: wrapped once, all threads would share one java.util.Properties, in which the
        # running query's number stands. Two queries then take it from each other, and the tasks of one find no metrics.
        running = [workers.submit(inheritable_thread_target(spark)(work), part) for part in parts]
    return [each.result() for each in running]
