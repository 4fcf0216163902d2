"""Which worker of pytest-xdist runs which file of tests next, in place of its ``--dist loadfile``.

Tests of Spark keep two cores busy, tests of servers wait most of the time. Side by side they use the machine all the time:

* ``SPARK_WORKERS`` workers take the files of Spark first, so that no more sessions start. The others take the files that
  need servers, then those that need nothing.
* Of the files of Spark one worker takes those of batches first, the other those of streams. A session learns each kind of
  work, and each warehouse, but once: the first merge into a Delta table costs 30 CPU s, a later one 3.
* A worker whose own files have run out takes the rest of the others', but a file of Spark only if it has a session.
* Files that share a dear server go to one worker, as one file (``TOGETHER``).
* The longest file comes first, so that the workers end together. ``make test-costs KEEP=1`` writes ``FILE_LENGTHS``.
  A file without a line there comes in the middle.

A file stays whole, and its tests stay in their order.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.costs import COSTS_FILE, FILE_LENGTHS

SPARK_WORKERS: Final = 2
OF_BATCHES: Final = ("contract", "unit")
"""Folders whose tests of Spark apply batches to a table. Those of others have a stream, and Kafka."""
TOGETHER: Final = {"tests/integration/test_router_protobuf.py": "tests/integration/test_router_avro.py"}
"""Files that are a part of another: both ask for the worker's schema registry, whose start costs 15 CPU s."""
UNKNOWN_S: Final = 15.0
"""Of a file that needs a server or Spark, and has no line in ``FILE_LENGTHS``."""


class Needs(IntEnum):
    """The programs that the tests of a file start."""

    NOTHING = 0
    SERVERS = 1
    SPARK = 2


@dataclass(slots=True)
class Files:
    """The known needs and lengths of a run's files, and the workers that have a session."""

    needs: Mapping[str, Needs] = field(default_factory=dict)
    lengths_s: Mapping[str, float] = field(default_factory=dict)
    spark_workers: int = SPARK_WORKERS
    with_session: dict[str, bool] = field(default_factory=dict)
    """Workers that took a file of Spark; whether the first one was of batches."""

    def next_for(self, worker: str, waiting: Iterable[str], *, is_short: bool = False) -> str | None:
        """The file of ``waiting`` that ``worker`` runs next, the shortest if ``is_short``. None: all are for others."""
        may_use_spark = worker in self.with_session or len(self.with_session) < self.spark_workers
        fit = [file for file in waiting if may_use_spark or self.needs[file] is not Needs.SPARK]
        if not fit:
            return None
        chosen = min(fit, key=self.length_s) if is_short else max(fit, key=partial(self._rank, self._prefers(worker)))
        if self.needs[chosen] is Needs.SPARK:
            self.with_session.setdefault(worker, is_of_batches(chosen))
        return chosen

    def length_s(self, file: str) -> float:
        """As it was measured, else as it is taken to be."""
        if file in self.lengths_s:
            return self.lengths_s[file]
        return UNKNOWN_S if self.needs[file] else 0.0

    def _prefers(self, worker: str) -> bool | None:
        """Whether files of batches or those of streams. None: either."""
        if worker in self.with_session:
            return self.with_session[worker]
        of_others = {*self.with_session.values()}
        return None if len(of_others) != 1 else not of_others.pop()

    def _rank(self, prefers: bool | None, file: str) -> tuple[Needs, bool, float]:
        is_preferred = self.needs[file] is Needs.SPARK and is_of_batches(file) is prefers
        return self.needs[file], is_preferred, self.length_s(file)


def whole(file: str) -> str:
    """The file that ``file`` is a part of."""
    return TOGETHER.get(file, file)


def whole_lengths_s(lengths_s: Mapping[str, float]) -> dict[str, float]:
    """Of files as workers take them."""
    summed: dict[str, float] = defaultdict(float)
    for file, length_s in lengths_s.items():
        summed[whole(file)] += length_s
    return summed


def is_of_batches(file: str) -> bool:
    """By its folder, as pytest names it from the repository on."""
    return any(f"tests/{folder}/" in file for folder in OF_BATCHES)


class SchedulingByNeeds(LoadFileScheduling):
    """``LoadFileScheduling`` that asks ``Files`` which file is next."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self.files = Files()

    def schedule(self) -> None:
        """Hand out the first files once all workers have collected."""
        if self.collection is None:
            needs_file = _needs_file(self.nodes[0].workerinput)
            needs = {file: Needs(value) for file, value in json.loads(needs_file.read_text()).items()}
            needs_file.unlink()
            self.files = Files(needs, whole_lengths_s(json.loads(FILE_LENGTHS.read_text())))
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return whole(super()._split_scope(nodeid))

    def remove_node(self, node: WorkerController) -> str | None:
        """A worker that ended has no session any more. Where it crashed, its test is named, and the others are run elsewhere.

        pytest-xdist's own would run the test again, which ends the next worker too, and hand out files with nothing left.
        """
        self.files.with_session.pop(node.gateway.id, None)
        workload = self.assigned_work.pop(node)
        left = {file: tests for file, tests in workload.items() if not all(tests.values())}
        if not left:
            return None
        crashed = next(test for tests in left.values() for test, is_done in tests.items() if not is_done)
        for file, tests in left.items():
            tests.update(dict.fromkeys({crashed} & tests.keys(), True))
            if not all(tests.values()):
                self.workqueue[file] = tests
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        # A worker begins a test when it knows the next one: with two left it needs no further file yet.
        while self.workqueue and not node.shutting_down and self._is_almost_out_of_work(node):
            self._assign_work_unit(node)
        if not self.workqueue:
            super()._reschedule(node)

    def _is_almost_out_of_work(self, node: WorkerController) -> bool:
        """Not one that has not collected yet, in place of a worker that crashed."""
        return node in self.registered_collections and self._pending_of(self.assigned_work[node]) < 2

    def _assign_work_unit(self, node: WorkerController) -> None:
        # A file of one test does not begin without the next file, which then waits for this worker: let it be a short one.
        units = list(self.assigned_work.get(node, {}).values())
        is_short = bool(units) and len(units[-1]) == 1
        chosen = self.files.next_for(node.gateway.id, self.workqueue, is_short=is_short)
        if chosen is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(chosen, last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SchedulingByNeeds | None:
    """For ``--dist loadfile`` alone."""
    return SchedulingByNeeds(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """The controller of a run collects nothing: each worker writes down each file's needs, before it reports."""
    worker: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if worker is not None:
        _needs_file(worker).write_text(json.dumps(needs_by_file(session.items)))


def needs_by_file(items: Sequence[pytest.Item]) -> dict[str, Needs]:
    """The most that a test of each file needs; ``tests.tiers`` has marked the tests."""
    needs: dict[str, Needs] = {}
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        servers = Needs.SERVERS if marks & {"servers", "kill", "cluster"} else Needs.NOTHING
        file = whole(item.nodeid.partition("::")[0])
        needs[file] = max(needs.get(file, Needs.NOTHING), Needs.SPARK if "spark" in marks else servers)
    return needs


def _needs_file(worker: Mapping[str, Any]) -> Path:
    """Workers and their controller run on one machine, in one checkout."""
    return COSTS_FILE.with_name(f"headwater-needs-{worker['testrunuid']}.json")
