"""``python -m tests.widths`` prints the classes and functions above the bounds, widest first; ``--check`` holds them to
``ceilings.json``, where each exception has a sentence that says why.

``--lower`` writes ``ceilings.json`` again: a ceiling goes down to today's width, and never up; no exception is added.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.widths.measure import BOUNDS, FUNCTION_LINES, Width, widths_of_the_code

CEILINGS = Path(__file__).with_name("ceilings.json")
STEP = 10
"""A ceiling of lines is rounded up to this, by half of it at least: a mend of some lines does not fail a class."""

Ceiling = Mapping[str, int | str]
Ceilings = Mapping[str, Ceiling]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.widths", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where something is above its ceiling")
    parser.add_argument("--lower", action="store_true", help="lower the ceilings to today's widths")
    options = parser.parse_args()
    widths = [width for width in widths_of_the_code() if width.excess]
    ceilings: Ceilings = json.loads(CEILINGS.read_text(encoding="utf-8"))
    if options.lower:
        CEILINGS.write_text(written(lowered_ceilings(widths, ceilings)), encoding="utf-8")
        return 0
    if options.check:
        faults = faults_of(widths, ceilings)
        print("\n".join(faults) or "widths: every class and function is within its ceiling")
        return 1 if faults else 0
    print(table_of(widths))
    return 0


def faults_of(widths: list[Width], ceilings: Ceilings) -> list[str]:
    """One line for each measure above its ceiling, and for each exception that nothing needs or that has no reason."""
    faults = []
    for width in widths:
        ceiling = ceilings.get(width.place, {})
        for measure, value in width.excess.items():
            allowed = int(ceiling.get(measure, width.bounds[measure]))
            if value > allowed:
                faults.append(
                    f"widths: {width.place} has {value} {measure}, its ceiling is {allowed}. Divide it;"
                    " if it is one story that a division would scatter, add it to tests/widths/ceilings.json with the reason"
                )
    wide = {width.place for width in widths}
    for place, ceiling in ceilings.items():
        if place not in wide:
            faults.append(f"widths: {place} needs its exception no more. Run: python -m tests.widths --lower")
        elif not str(ceiling.get("because", "")).endswith("."):
            faults.append(f'widths: {place} has no sentence under "because" in tests/widths/ceilings.json')
    return faults


def lowered_ceilings(widths: list[Width], ceilings: Ceilings) -> dict[str, Ceiling]:
    """The exceptions that are still needed, each at today's width or at its former ceiling, the smaller one."""
    lowered: dict[str, Ceiling] = {}
    for width in widths:
        former = ceilings.get(width.place)
        if former is None:
            continue
        today: dict[str, int | str] = {
            measure: min(int(former[measure]), _rounded_up(measure, value))
            for measure, value in width.excess.items()
            if measure in former
        }
        lowered[width.place] = {**today, "because": former.get("because", "")}
    return lowered


def _rounded_up(measure: str, value: int) -> int:
    return -((value + STEP // 2) // -STEP) * STEP if measure == "lines" else value


def written(ceilings: Ceilings) -> str:
    """The file of ceilings: a line for each exception."""
    lines = (f"  {json.dumps(place)}: {json.dumps(ceilings[place])}" for place in sorted(ceilings))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def table_of(widths: list[Width]) -> str:
    """A line for each class and function above a bound, the farthest above first."""
    by_excess = sorted(
        widths, key=lambda width: max(value / width.bounds[name] for name, value in width.excess.items()), reverse=True
    )
    lines = [f"{'class or function':<64}{'methods':>9}{'lines':>9}{'fields':>9}"]
    lines += [
        f"{width.place:<64}" + "".join(f"{width.by_measure.get(measure, ''):>9}" for measure in BOUNDS)
        for width in by_excess
    ]
    bounds = "".join(f"{bound:>9}" for bound in BOUNDS.values())
    return "\n".join(
        [*lines, f"{'a class at most':<64}{bounds}", f"{'a function at most':<64}{'':>9}{FUNCTION_LINES:>9}"]
    )


if __name__ == "__main__":
    sys.exit(main())
