"""Where the time of a table's write went. Spark computes, merges and commits as one; its stages show the parts.

A write's jobs carry a tag. Of their stages those that read the batch, and write nothing, find each key's latest change. The
time from there to the end of the stage that writes is the merge, and the driver's time from then on is the commit.
"""

import contextlib
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

_TELLS_WITHIN_S: Final = 0.2
"""Spark's listeners hear of a stage's end a moment after the write has returned."""
_PAUSE_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Stage:
    """When one ran, in seconds since 1970, and its work."""

    begun_s: float
    ended_s: float
    reads_batch: bool
    writes: bool
    """Spark counted bytes of output; not all warehouses' writers report them."""


@dataclass(frozen=True, slots=True)
class WriteSplit:
    """In seconds; together the whole write."""

    dedupe_s: float
    merge_s: float
    commit_s: float


class Write:
    """One write; ``split`` is there after its end."""

    def __init__(self) -> None:
        self.split: WriteSplit | None = None
        """None: Spark did not report it. Work without a query reports it itself."""


@contextlib.contextmanager
def measured(spark: SparkSession) -> Iterator[Write]:
    """Measure the block's write; its jobs run in this thread or in threads that inherit its properties."""
    write, tag, context = Write(), f"headwater-write-{secrets.token_hex(6)}", spark.sparkContext
    context.addJobTag(tag)
    begun_s = time.time()
    try:
        yield write
        ended_s = time.time()
    finally:
        context.removeJobTag(tag)
    if write.split is None:
        write.split = split(_stages(spark, tag), begun_s=begun_s, ended_s=ended_s)


def split(stages: Sequence[Stage], *, begun_s: float, ended_s: float) -> WriteSplit | None:
    """None: there are no stages.

    >>> reading = Stage(begun_s=0.0, ended_s=2.0, reads_batch=True, writes=False)
    >>> writing = Stage(begun_s=2.5, ended_s=4.0, reads_batch=False, writes=True)
    >>> split([reading, writing], begun_s=0.0, ended_s=5.0)
    WriteSplit(dedupe_s=2.0, merge_s=2.0, commit_s=1.0)
    """
    if not stages:
        return None
    last = max([stage for stage in stages if stage.writes] or stages, key=lambda stage: stage.ended_s)
    reading = [stage for stage in stages if stage.reads_batch and stage is not last and stage.ended_s <= last.ended_s]
    commit_s = max(0.0, ended_s - last.ended_s)
    dedupe_s = _covered_s(reading)
    merge_s = max(0.0, ended_s - begun_s - dedupe_s - commit_s)
    return WriteSplit(round(dedupe_s, 3), round(merge_s, 3), round(commit_s, 3))


def _covered_s(stages: Sequence[Stage]) -> float:
    """How long at least one of them ran."""
    covered_s, until_s = 0.0, 0.0
    for stage in sorted(stages, key=lambda each: each.begun_s):
        covered_s += max(0.0, stage.ended_s - max(stage.begun_s, until_s))
        until_s = max(until_s, stage.ended_s)
    return covered_s


def _stages(spark: SparkSession, tag: str) -> list[Stage]:
    """Those of the jobs that carry ``tag``; none where Spark knows one of them no more, or not yet."""
    core: Any = spark.sparkContext._jsc.sc()
    deadline_s = time.monotonic() + _TELLS_WITHIN_S
    while True:
        try:
            found = _reported_stages(core, tag)
        except Py4JError:  # forgotten: Spark keeps the newest jobs and stages only
            return []
        if found is not None:
            return found
        if time.monotonic() > deadline_s:
            return []
        time.sleep(_PAUSE_S)


def _reported_stages(core: Any, tag: str) -> list[Stage] | None:
    """None: the end of one was not reported."""
    store, cached = core.statusStore(), _numbers(core.getPersistentRDDs().keys())
    numbers = core.statusTracker().getJobIdsForTag(tag)
    jobs = [store.job(numbers[place]) for place in range(len(numbers))]  # py4j learns of an array's end by an error
    stages = []
    for number in sorted(set().union(*(_numbers(job.stageIds()) for job in jobs))):
        stage = store.lastStageAttempt(number)
        status = stage.status().name()
        if status == "SKIPPED":
            continue
        if status != "COMPLETE":
            return None
        stages.append(
            Stage(
                begun_s=stage.submissionTime().get().getTime() / 1e3,
                ended_s=stage.completionTime().get().getTime() / 1e3,
                reads_batch=not cached.isdisjoint(_numbers(stage.rddIds())),
                writes=stage.outputBytes() > 0,
            )
        )
    return stages


def _numbers(scala_collection: Any) -> set[int]:
    """In one call, where each element would be one."""
    return {int(number) for number in scala_collection.mkString(",").split(",") if number}
