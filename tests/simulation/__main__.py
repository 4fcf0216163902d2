"""``python -m tests.simulation``: run seeds, replay one, look for the planted bugs. Exit code 1 where a promise is broken."""

import json
import os
import random
import sys
from argparse import ArgumentParser, Namespace

from tests.simulation.corpus import CORPUS
from tests.simulation.planted import PLANTED
from tests.simulation.run import SIMULATIONS, Found, find, replay, run

_BAR = 30


def main() -> int:
    """As the arguments say."""
    arguments = _arguments()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of names are walked in the order of their hashes, which differ from one Python process to another.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    chosen = arguments.only or list(SIMULATIONS)
    if arguments.gate:
        return _gate(arguments.seeds)
    if arguments.seed is not None:
        return _replay(chosen, arguments.seed)
    if arguments.planted:
        return _look_for_planted(chosen)
    first = random.SystemRandom().randrange(1 << 40) if arguments.first is None else arguments.first
    found = [each for name in chosen for each in _run(name, range(first, first + arguments.seeds))]
    return 1 if found else 0


def _arguments() -> Namespace:
    parser = ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many runs of each simulation")
    parser.add_argument("--first", type=int, help="the first seed; by default one that nobody has tried")
    parser.add_argument("--seed", type=int, help="replay this one, with all that happened")
    parser.add_argument("--only", action="append", choices=list(SIMULATIONS), help="one simulation (may be repeated)")
    parser.add_argument("--planted", action="store_true", help="look for the planted bugs instead")
    parser.add_argument("--gate", action="store_true", help="what the tests ask for, as one JSON document")
    return parser.parse_args()


def _run(name: str, seeds: range) -> list[Found]:
    def tick(seed: int, failure: Found | None) -> None:
        if failure is not None:
            print(f"\r{name}: seed {seed}: {failure.what}".ljust(100))
            print(f"    again: python -m tests.simulation --only {name} --seed {seed}")
        if sys.stderr.isatty():
            done = seed - seeds.start + 1
            bar = "#" * (done * _BAR // len(seeds))
            print(f"\r{name} [{bar:{_BAR}}] {done}/{len(seeds)}", end="", file=sys.stderr, flush=True)

    report = run(name, seeds, after_each=tick)
    print(f"\r{name}: {report.runs} runs from seed {seeds.start}, {len(report.found)} failures; {report.rate}")
    return list(report.found)


def _replay(names: list[str], seed: int) -> int:
    failures = 0
    for name in names:
        trace, found = replay(name, seed)
        print("\n".join(trace))
        print(f"{name}: seed {seed}: {found.what if found is not None else 'no promise is broken'}")
        failures += found is not None
    return 1 if failures else 0


def _look_for_planted(names: list[str]) -> int:
    missed = 0
    for planted in PLANTED:
        if planted.simulation in names:
            found = find(planted)
            missed += found is None
            told = (
                f"seed {found.seed}: {found.what}" if found is not None else f"NOT FOUND in {len(planted.seeds)} seeds"
            )
            print(f"{planted.simulation}: {planted.name}: {told}", flush=True)
    return 1 if missed else 0


def _gate(seeds: int) -> int:
    """Fixed seeds of each simulation, the corpus, and the planted bugs; the seeds that find these, as the code is, too."""
    planted = {bug.name: find(bug) for bug in PLANTED if bug.in_gate}
    chosen: dict[str, set[int]] = {name: set(range(seeds)) for name in SIMULATIONS}
    for found in planted.values():
        if found is not None:
            chosen[found.simulation].add(found.seed)
    for case in CORPUS:
        chosen[case.simulation].add(case.seed)
    reports = {name: run(name, sorted(each)) for name, each in chosen.items()}
    print(
        json.dumps(
            {
                "runs": {name: {"runs": each.runs, "steps": each.steps} for name, each in reports.items()},
                "found": [
                    f"python -m tests.simulation --only {found.simulation} --seed {found.seed}: {found.what}"
                    for report in reports.values()
                    for found in report.found
                ],
                "planted": {name: None if found is None else found.seed for name, found in planted.items()},
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
