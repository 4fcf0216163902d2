"""Runs of simulations by seed, one after another, and their findings."""

import contextlib
import gc
import logging
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from libs.telemetry import faults
from tests.simulation import ownership, router, sink, windows
from tests.simulation.mutate import edited
from tests.simulation.planted import Planted
from tests.simulation.scheduler import replaced


class World(Protocol):
    """One run of a simulation."""

    def run(self) -> None:
        """Raises Violation where a promise is broken, and any other error."""

    @property
    def steps(self) -> int:
        """Choices that the seed made: the thread that goes on, the fault that happens."""

    @property
    def trace(self) -> Sequence[str]:
        """The run's events, where traces were asked for."""


SIMULATIONS: Final[dict[str, Callable[[int, bool], World]]] = {
    "router": lambda seed, traces: router.World(seed, traces=traces),
    "ownership": lambda seed, traces: ownership.World(seed, traces=traces),
    "windows": lambda seed, traces: windows.World(seed, traces=traces),
    "sink": lambda seed, traces: sink.World(seed, traces=traces),
}


@dataclass(frozen=True, slots=True)
class Found:
    """A failure, and how it comes again."""

    simulation: str
    seed: int
    what: str


@dataclass(frozen=True, slots=True)
class Report:
    """Of some seeds."""

    runs: int
    steps: int
    took_s: float
    found: Sequence[Found]

    @property
    def rate(self) -> str:
        """How fast."""
        return f"{self.runs / self.took_s:,.0f} runs and {self.steps / self.took_s:,.0f} interleaved steps a CPU second"


def run(
    simulation: str,
    seeds: Iterable[int],
    *,
    until_first: bool = False,
    after_each: Callable[[int, Found | None], None] = lambda _seed, _found: None,
) -> Report:
    """Run one simulation with each of the seeds."""
    began_s, steps, runs = time.process_time(), 0, 0
    found: list[Found] = []
    with quiet():
        for seed in seeds:
            world = SIMULATIONS[simulation](seed, False)
            failure = _failure(simulation, seed, world)
            runs, steps = runs + 1, steps + world.steps
            if failure is not None:
                found.append(failure)
            after_each(seed, failure)
            if failure is not None and until_first:
                break
    return Report(runs, steps, max(time.process_time() - began_s, 1e-9), found)


def find(planted: Planted) -> Found | None:
    """The first seed that finds a planted bug; None: none of its seeds does."""
    with edited(*planted.edits):
        report = run(planted.simulation, planted.seeds, until_first=True)
    return report.found[0] if report.found else None


def replay(simulation: str, seed: int) -> tuple[Sequence[str], Found | None]:
    """One seed with all that happened, line by line."""
    with quiet():
        world = SIMULATIONS[simulation](seed, True)
        found = _failure(simulation, seed, world)
    return world.trace, found


def _failure(simulation: str, seed: int, world: World) -> Found | None:
    try:
        world.run()
    except AssertionError as error:
        return Found(simulation, seed, str(error) or traceback.format_exc())
    except Exception as error:
        return Found(simulation, seed, f"{type(error).__name__}: {error}")
    return None


def _dropped(*_: object) -> dict[str, object]:
    raise structlog.DropEvent


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No lines of libraries that retry, and no collector in the middle of a run: a run's garbage goes between two."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        # A process' list of faults outlives a run: its lines are no part of one.
        with replaced((faults, "log", structlog.wrap_logger(None, processors=[_dropped]))):
            yield
    finally:
        logging.disable(before)
        gc.collect()
