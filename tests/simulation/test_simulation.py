"""The gate's claims about the simulations: fixed seeds break no promise, and each planted bug is found.

All of it runs in one process of its own, whose hash seed is fixed: the same seed gives the same run in every gate.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.simulation.planted import PLANTED
from tests.simulation.run import SIMULATIONS, find, replay

SIMULATION = [sys.executable, "-m", "tests.simulation"]
SEEDS = 15
"""Of each simulation: some CPU seconds. ``python -m tests.simulation --seeds 100000`` is for a night."""
MORE_SEEDS = 120
"""``make test-all`` goes on to here."""


@pytest.fixture(scope="module")
def gate() -> dict[str, Any]:
    """The report of one process."""
    command = [*SIMULATION, "--gate", "--seeds", str(SEEDS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)

    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_no_seed_breaks_a_promise(gate: dict[str, Any]) -> None:
    """Fixed seeds, those that once found something, and those that find the planted bugs."""
    assert gate["found"] == []
    assert all(gate["runs"][name]["runs"] >= SEEDS for name in SIMULATIONS)


@pytest.mark.rest(because="the gate has the first seeds, and those that found something")
@pytest.mark.parametrize("name", SIMULATIONS)
def test_no_further_seed_breaks_a_promise(name: str) -> None:
    """Of these, which are the same in each run."""
    chosen = ["--only", name, "--first", str(SEEDS), "--seeds", str(MORE_SEEDS - SEEDS)]
    done = subprocess.run([*SIMULATION, *chosen], capture_output=True, text=True, timeout=500, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", [planted.name for planted in PLANTED if planted.in_gate])
def test_planted_bug_is_found(gate: dict[str, Any], name: str) -> None:
    """A line of the product is changed, as in the bugs that tests/faults was written for."""
    assert gate["planted"][name] is not None


def test_seed_gives_the_same_run_again() -> None:
    """All that happens in it, to the moment."""
    for name in SIMULATIONS:
        assert replay(name, 7) == replay(name, 7)


def test_text_that_a_planted_bug_changes_is_there() -> None:
    """Product code that was rewritten makes no planted bug vanish."""
    gone = PLANTED[0].edits[0]
    missing = type(gone)(gone.owner, gone.name, "what stands nowhere", "")
    with pytest.raises(AssertionError, match="write it again"):
        find(type(PLANTED[0])("gone", PLANTED[0].simulation, (missing,), "nothing"))
