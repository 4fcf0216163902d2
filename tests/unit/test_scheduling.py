"""Files that need Spark stay with two workers, the longest comes first, and every test is run once."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.costs import Cost, lengths_by_file
from tests.scheduling import TOGETHER, UNKNOWN_S, Files, Needs, whole, whole_lengths_s

ROOT = Path(__file__).parents[2]
NEEDS = {
    "spark_long.py": Needs.SPARK,
    "spark_short.py": Needs.SPARK,
    "servers_long.py": Needs.SERVERS,
    "servers_new.py": Needs.SERVERS,
    "servers_short.py": Needs.SERVERS,
    "fast_long.py": Needs.NOTHING,
    "fast_new.py": Needs.NOTHING,
}
LENGTHS_S = {
    "spark_long.py": UNKNOWN_S * 9,
    "spark_short.py": 1.0,
    "servers_long.py": UNKNOWN_S * 2,
    "servers_short.py": 1.0,
    "fast_long.py": UNKNOWN_S * 20,
}


def order_of(files: Files, worker: str) -> list[str]:
    """All that ``worker`` runs if it is alone from now on."""
    waiting = list(NEEDS)
    order = []
    while (chosen := files.next_for(worker, waiting)) is not None:
        waiting.remove(chosen)
        order.append(chosen)
    return order


def test_what_needs_most_comes_first_and_the_longest_of_it() -> None:
    order = order_of(Files(NEEDS, LENGTHS_S), "gw0")

    assert order == [
        "spark_long.py",
        "spark_short.py",
        "servers_long.py",
        "servers_new.py",
        "servers_short.py",
        "fast_long.py",
        "fast_new.py",
    ]


def test_no_worker_beyond_those_of_spark_takes_a_file_of_it() -> None:
    files = Files(NEEDS, LENGTHS_S, spark_workers=1)

    assert files.next_for("gw1", NEEDS) == "spark_long.py"
    assert order_of(files, "gw0")[0] == "servers_long.py"
    assert files.next_for("gw0", ["spark_short.py"]) is None
    assert files.next_for("gw1", ["spark_short.py"]) == "spark_short.py"


def test_a_worker_that_ended_makes_room_for_another() -> None:
    files = Files(NEEDS, LENGTHS_S, spark_workers=1)
    files.next_for("gw1", NEEDS)

    del files.with_session["gw1"]

    assert files.next_for("gw0", ["spark_short.py"]) == "spark_short.py"


def test_one_worker_takes_batches_and_the_other_streams_as_long_as_there_are_some() -> None:
    """Whichever asks first has the longest."""
    needs = dict.fromkeys(
        ("tests/contract/a.py", "tests/unit/spark/b.py", "tests/integration/c.py", "tests/faults/d.py"), Needs.SPARK
    )
    files = Files(needs, dict(zip(needs, (400.0, 10.0, 300.0, 200.0), strict=True)))
    waiting = [*needs]

    def taken_by(worker: str) -> str | None:
        chosen = files.next_for(worker, waiting)
        if chosen is not None:
            waiting.remove(chosen)
        return chosen

    assert [taken_by("gw0"), taken_by("gw1")] == ["tests/contract/a.py", "tests/integration/c.py"]
    assert [taken_by("gw0"), taken_by("gw0"), taken_by("gw1")] == ["tests/unit/spark/b.py", "tests/faults/d.py", None]


def test_beside_a_file_of_one_test_a_short_one_waits() -> None:
    assert Files(NEEDS, LENGTHS_S).next_for("gw0", NEEDS, is_short=True) == "fast_new.py"


def test_files_that_share_a_dear_server_are_one() -> None:
    [(part, file)] = TOGETHER.items()

    assert all((ROOT / each).is_file() for each in (part, file))
    assert [whole(each) for each in (part, file, "other.py")] == [file, file, "other.py"]
    assert whole_lengths_s({part: 1.0, file: 2.0, "other.py": 4.0}) == {file: 3.0, "other.py": 4.0}


def test_a_run_adds_to_the_lengths_that_are_known() -> None:
    costs = [
        Cost("a.py::x", "gate", 1.0, 2.0, 0),
        Cost("a.py::y", "gate", 1.0, 2.04, 0),
        Cost("b.py::z", "fast", 0.1, 0.1, 0),
    ]

    assert lengths_by_file(costs, {"a.py": 99.0, "c.py": 7.0}) == {"a.py": 4.0, "c.py": 7.0}


def test_three_workers_run_each_test_once_and_two_of_them_run_spark_also_after_a_crash(tmp_path: Path) -> None:
    """By pytest-xdist itself. One test ends its worker: it alone fails, and another worker runs the rest of its file."""
    ran = tmp_path / "ran.jsonl"
    body = f"""
import json, os, pytest
pytestmark = pytest.mark.MARK
@pytest.mark.parametrize("number", range(COUNT))
def test_x(number):
    with open({str(ran)!r}, "a") as file:
        file.write(json.dumps([__name__, number, os.environ["PYTEST_XDIST_WORKER"]]) + "\\n")
    if (__name__, number) == ("test_spark_2", 1):
        os._exit(1)
"""
    tests = []
    for mark in ("spark", "servers", "plain"):
        for number in range(6):
            name, count = f"test_{mark}_{number}", 1 + number % 3
            tests += [(name, each) for each in range(count)]
            (tmp_path / f"{name}.py").write_text(body.replace("MARK", mark).replace("COUNT", str(count)))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n spark\n servers\n plain\n")
    options = [
        "-p",
        "tests.scheduling",
        "-p",
        "no:cacheprovider",
        "-n",
        "3",
        "--dist",
        "loadfile",
        "--no-loadscope-reorder",
    ]

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )

    assert f"1 failed, {len(tests) - 1} passed" in run.stdout, run.stdout + run.stderr
    lines = [json.loads(line) for line in ran.read_text().splitlines()]
    assert sorted((name, number) for name, number, _ in lines) == sorted(tests)
    workers = defaultdict(set)
    for name, _, worker in lines:
        workers[name].add(worker)
    assert {name for name, each in workers.items() if len(each) > 1} == {"test_spark_2"}
    # Three: the worker that comes for the crashed one is a new one.
    assert len({worker for name, each in workers.items() if "spark" in name for worker in each}) <= 3
