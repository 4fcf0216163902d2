"""The cost of each test: processor time, wall time and JVMs started, one JSON line a test in ``COSTS_FILE``.

    make test-costs
    make test-costs KEEP=1    # and write the lengths of files, by which tests.scheduling orders the next runs

The processor time is that of the test's own process and of every process below it, servers included. A server's start is
charged to the first test that asks for it. ``docs/testing.md`` has the budgets.

A machine's speed may wander by a factor of two within minutes, in CPU seconds too: lines of ``SPEED`` say how fast it was.
Runs are compared through them.
"""

import json
import os
import re
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import pytest

from bench.calibrate import loop_cpu_ms

COSTS_FILE: Final = Path(__file__).parents[1] / ".pytest_cache" / "headwater-costs.jsonl"
"""Of the last run: it is written while tests end, by all workers, a whole line at a time."""
FILE_LENGTHS: Final = Path(__file__).with_name("file_lengths.json")
"""Wall seconds by file, as ``tests.scheduling`` takes them."""
SHORTEST_KEPT_S: Final = 0.5
LOOK_PAUSE_S: Final = 0.2
SAMPLE_PAUSE_S: Final = 1.0  # no JVM that does anything lives for less; a look at 120 processes takes 2 ms
SPEED_PAUSE_S: Final = 30.0
SPEED: Final = "speed"
"""The name of lines whose ``cpu_s`` is that of 100,000 additions in pure Python."""
DEAREST_TESTS: Final = 40
DEAR_S: Final = 20.0
"""A test of the gate that costs more needs a line in ``docs/testing.md``."""
TESTING_PAGE: Final = Path(__file__).parents[1] / "docs" / "testing.md"
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one test, or of a worker's collection."""

    test: str
    tier: str
    cpu_s: float
    wall_s: float
    jvms: int


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the kernel's table."""

    parent: int
    name: str
    started: int
    cpu_s: float
    """Its own, and that of its children which ended."""


@dataclass(slots=True)
class Meter:
    """Sums the processor time that this process and all below it have used; a thread looks for JVMs that come and go."""

    below: int = 0
    looked_s: float = -LOOK_PAUSE_S
    found_s: float = 0.0
    """By the last look."""
    ended_s: float = 0.0
    """Of all children that had ended by then."""
    jvms: set[tuple[int, int]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def watch(self) -> None:
        while True:
            time.sleep(SAMPLE_PAUSE_S)
            self.below_cpu_s()

    def below_cpu_s(self) -> float:
        """Of all processes below this one that live."""
        with self.lock:
            used = os.times()
            self.ended_s = used.children_user + used.children_system
            self.looked_s = time.monotonic()
            table = processes()
            below = descendants(table, os.getpid())
            self.below = len(below)
            self.jvms.update((pid, table[pid].started) for pid in below if table[pid].name == "java")
            self.found_s = sum(table[pid].cpu_s for pid in below)
            return self.found_s

    def cpu_s(self) -> float:
        """The kernel's table is read only where the last look found somebody below, and is a fifth of a second old: most tests
        start nothing and are shorter than a look. CPU of servers since then is charged to a later test.
        """
        used = os.times()
        ended_s = used.children_user + used.children_system
        is_fresh = ended_s == self.ended_s and time.monotonic() - self.looked_s < LOOK_PAUSE_S
        below_s = self.found_s if is_fresh else self.below_cpu_s() if self.below else 0.0
        return used.user + used.system + ended_s + below_s


def processes() -> dict[int, Process]:
    """All that run."""
    found: dict[int, Process] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - a path object for each would cost more than the rest
        if name.isdigit() and (process := _process(int(name))) is not None:
            found[int(name)] = process
    return found


def _process(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123
            head, _, tail = file.read(1_024).rpartition(b")")
    except OSError:
        return None
    words = tail.split()
    return Process(
        parent=int(words[1]),
        name=head.partition(b"(")[2].decode(errors="replace"),
        started=int(words[19]),
        cpu_s=sum(int(word) for word in words[11:15]) * _TICK_S,
    )


def descendants(table: dict[int, Process], ancestor: int) -> set[int]:
    """All below ``ancestor``, without it."""
    children: dict[int, list[int]] = defaultdict(list)
    for pid, process in table.items():
        children[process.parent].append(pid)
    found: set[int] = set()
    waiting = [ancestor]
    while waiting:
        new = [pid for pid in children[waiting.pop()] if pid not in found]
        found.update(new)
        waiting.extend(new)
    return found


_meter = Meter()


def pytest_configure(config: pytest.Config) -> None:
    """The file is emptied by the controller of a run, which runs no test itself where there are workers."""
    if config.option.collectonly:
        return
    is_worker = hasattr(config, "workerinput")
    if not is_worker:
        COSTS_FILE.parent.mkdir(exist_ok=True)
        COSTS_FILE.write_text("")
        threading.Thread(target=_watch_speed, name="speed", daemon=True).start()
    if not is_worker and getattr(config.option, "dist", "no") != "no":
        return
    threading.Thread(target=_meter.watch, name="costs", daemon=True).start()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Each worker collects for itself."""
    if session.items and not session.config.option.collectonly:
        _write(Cost("collection", "collection", round(_meter.cpu_s(), 3), 0.0, 0))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """From a test's set-up to the end of its tear-down."""
    began_s, cpu_s = time.perf_counter(), _meter.cpu_s()
    jvms = len(_meter.jvms)
    result = yield
    spent_s = _meter.cpu_s() - cpu_s
    _write(
        Cost(
            test=item.nodeid,
            tier=next((tier for tier in ("fast", "gate") if item.get_closest_marker(tier)), "rest"),
            cpu_s=round(spent_s, 3),
            wall_s=round(time.perf_counter() - began_s, 3),
            jvms=len(_meter.jvms) - jvms,
        )
    )
    return result


def _watch_speed() -> None:
    while True:
        _write(Cost(SPEED, SPEED, round(loop_cpu_ms() / 1_000, 6), 0.0, 0))
        time.sleep(SPEED_PAUSE_S)


def speed_line(costs: Sequence[Cost]) -> str:
    """How fast the machine was during the run; empty where an older run did not note it."""
    found_ms = sorted(cost.cpu_s * 1_000 for cost in costs if cost.test == SPEED)
    if not found_ms:
        return ""
    middle_ms = statistics.median(found_ms)
    return (
        f"100,000 additions in pure Python took {middle_ms:.1f} ms of CPU ({found_ms[0]:.1f} to {found_ms[-1]:.1f}); compare "
        "the CPU seconds of runs by it"
    )


def _write(cost: Cost) -> None:
    with COSTS_FILE.open("a") as file:
        file.write(json.dumps(asdict(cost)) + "\n")


def read_costs(path: Path = COSTS_FILE) -> list[Cost]:
    """Of the last run."""
    return [Cost(**json.loads(line)) for line in path.read_text().splitlines()]


def table(costs: Sequence[Cost]) -> str:
    """By tier, by file, and the dearest tests; each dearest first."""
    parts = (
        ("tier", _sums(costs, lambda cost: cost.tier)),
        ("file", _sums(costs, lambda cost: cost.test.partition("::")[0])),
        ("test", sorted(costs, key=lambda cost: -cost.cpu_s)[:DEAREST_TESTS]),
    )
    return "\n\n".join(
        "\n".join([f"{'CPU s':>9} {'wall s':>8} {'JVMs':>5}  {name}", *(_line(each) for each in lines)])
        for name, lines in parts
    )


def _sums(costs: Sequence[Cost], of: Callable[[Cost], str]) -> list[Cost]:
    groups: dict[str, list[Cost]] = defaultdict(list)
    for cost in costs:
        groups[of(cost)].append(cost)
    summed = [
        Cost(
            f"{name} ({len(each)})",
            "",
            sum(cost.cpu_s for cost in each),
            sum(cost.wall_s for cost in each),
            sum(cost.jvms for cost in each),
        )
        for name, each in groups.items()
    ]
    return sorted(summed, key=lambda cost: -cost.cpu_s)


def _line(cost: Cost) -> str:
    return f"{cost.cpu_s:9.1f} {cost.wall_s:8.1f} {cost.jvms:5}  {cost.test}"


def without_a_line(costs: Sequence[Cost], page: str) -> list[str]:
    """Dear tests of the gate that the page names neither by themselves nor by their file or folder."""
    named = set(re.findall(r"^\| `(tests/[^`]+)`", page, re.MULTILINE))
    return [
        cost.test
        for cost in costs
        if cost.cpu_s > DEAR_S and cost.tier != "rest" and not any(cost.test.startswith(each) for each in named)
    ]


def lengths_by_file(costs: Sequence[Cost], known: Mapping[str, float]) -> dict[str, float]:
    """Wall seconds of each file of ``costs``, and of those of ``known`` that did not run. A short file has no line."""
    measured: dict[str, float] = defaultdict(float)
    for cost in costs:
        measured[cost.test.partition("::")[0]] += cost.wall_s
    all_s = sorted({**known, **measured}.items())
    return {file: round(length_s, 1) for file, length_s in all_s if length_s >= SHORTEST_KEPT_S}


def keep_lengths(costs: Sequence[Cost]) -> None:
    """Write ``FILE_LENGTHS`` from a run, without the files that are gone."""
    known = json.loads(FILE_LENGTHS.read_text())
    lengths = lengths_by_file(costs, {file: length for file, length in known.items() if Path(file).is_file()})
    FILE_LENGTHS.write_text(json.dumps(lengths, indent=2) + "\n")


def main() -> int:
    """Print the table of the last run; with ``--keep``, also write the lengths of its files."""
    if not COSTS_FILE.is_file():
        sys.stderr.write(f"no costs in {COSTS_FILE}: run tests first, for example `make test-fast`\n")
        return 1
    found = read_costs()
    if line := speed_line(found):
        sys.stdout.write(line + "\n\n")
    costs = [cost for cost in found if cost.test != SPEED]
    if sys.argv[1:] == ["--keep"]:
        keep_lengths([cost for cost in costs if "::" in cost.test])
    sys.stdout.write(table(costs) + "\n")
    for test in without_a_line([cost for cost in costs if "::" in cost.test], TESTING_PAGE.read_text()):
        sys.stdout.write(f"more than {DEAR_S:.0f} CPU s without a line in docs/testing.md: {test}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
