"""The costs of a test are those of all that it starts."""

import subprocess
import sys

from tests.costs import SPEED, Cost, Meter, Process, descendants, speed_line, table, without_a_line

BURNS_CPU = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"


def test_a_child_that_lives_is_counted_and_one_that_ended_too() -> None:
    meter = Meter()
    before_s = meter.cpu_s()

    with subprocess.Popen([sys.executable, "-c", BURNS_CPU], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        alive_s = meter.below_cpu_s()
        child.communicate(b"\n")

    assert alive_s >= 0.25
    assert meter.below >= 1
    assert meter.cpu_s() - before_s >= 0.25


def test_all_that_were_started_by_others_below_are_found() -> None:
    parents = {1: 0, 10: 1, 11: 10, 12: 11, 20: 1}
    processes = {pid: Process(parent, "x", 0, 0.0) for pid, parent in parents.items()}

    assert descendants(processes, 10) == {11, 12}


def test_the_dearest_file_comes_first() -> None:
    costs = [Cost("a.py::x", "gate", 1.0, 2.0, 0), Cost("b.py::y", "rest", 4.0, 2.0, 1)]

    by_tier, by_file, by_test = table(costs).split("\n\n")

    assert [line.split()[-2] for line in by_tier.splitlines()[1:]] == ["rest", "gate"]
    assert by_file.splitlines()[1].split() == ["4.0", "2.0", "1", "b.py", "(1)"]
    assert by_test.splitlines()[1].endswith("b.py::y")


def test_a_run_says_how_fast_its_machine_was() -> None:
    """The middle of all looks, and the ends; a run of before has none."""
    looks = [Cost(SPEED, SPEED, seconds, 0.0, 0) for seconds in (0.0061, 0.0026, 0.0030)]

    assert speed_line([*looks, Cost("a.py::x", "gate", 1.0, 2.0, 0)]).startswith(
        "100,000 additions in pure Python took 3.0 ms of CPU (2.6 to 6.1)"
    )
    assert speed_line([Cost("a.py::x", "gate", 1.0, 2.0, 0)]) == ""


def test_a_dear_test_needs_a_line() -> None:
    page = "| `tests/faults/a.py` | it kills |\n| `tests/b.py::y` | it is a demo |\n"
    dear = ("tests/faults/a.py::x[1]", "tests/b.py::y", "tests/b.py::z")
    costs = [Cost(name, "gate", 21.0, 0.0, 0) for name in dear]

    assert without_a_line([*costs, Cost("tests/c.py::z", "rest", 99.0, 0.0, 0)], page) == ["tests/b.py::z"]
