"""``python -m tests.prose`` prints each folder's rates, worst first; ``--check`` holds them to their ceilings.

``--lower`` writes ``ceilings.json`` again: a ceiling goes down to today's rate, and never up. ``--places FOLDER`` lists the
sentences that count.
"""

import argparse
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.prose.rates import ROOT, TWICE_THE_ANCHORS, WORDS, Rates, files_by_folder, rates_of, uses_of
from tests.prose.texts import sentences_of, texts_of, words_of

CEILINGS = Path(__file__).with_name("ceilings.json")
STEP = 0.5
"""A ceiling is rounded up to this, by half of it at least: one sentence more does not fail a folder of some thousand words."""

Ceilings = Mapping[str, Mapping[str, float]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.prose", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where a folder is above its ceiling")
    parser.add_argument("--lower", action="store_true", help="lower the ceilings to today's rates")
    parser.add_argument("--places", metavar="FOLDER", help="list the sentences of a folder or file that count")
    options = parser.parse_args()
    if options.places:
        return _print_places(options.places)
    all_rates = [rates_of(folder, files) for folder, files in files_by_folder().items()]
    ceilings: Ceilings = json.loads(CEILINGS.read_text(encoding="utf-8")) if CEILINGS.exists() else {}
    if options.lower:
        lowered = {rates.folder: lowered_ceiling(ceilings.get(rates.folder), rates) for rates in all_rates}
        CEILINGS.write_text(written(lowered), encoding="utf-8")
        return 0
    if options.check:
        faults = [fault for rates in all_rates for fault in faults_of(rates, ceilings.get(rates.folder, {}))]
        print("\n".join(faults) or "prose: every folder is below its ceiling")
        return 1 if faults else 0
    print(table_of(all_rates))
    return 0


def lowered_ceiling(ceiling: Mapping[str, float] | None, rates: Rates) -> dict[str, float]:
    """Each measure's ceiling after today: never above the former one, never below twice the anchors' rate.

    Measures at twice the anchors' rate are left out: that is the ceiling of a folder that names none.
    """
    lowered = {}
    for name, least in TWICE_THE_ANCHORS.items():
        former = math.inf if ceiling is None else ceiling.get(name, least)
        today = min(former, math.ceil((rates.by_name[name] + STEP / 2) / STEP) * STEP)
        if rates.by_name[name] > least and today > least:
            lowered[name] = today
    return lowered


def faults_of(rates: Rates, ceiling: Mapping[str, float]) -> list[str]:
    """One line for each measure by which a folder is above its ceiling."""
    return [
        f'prose: {rates.folder}: "{name}" is at {rates.by_name[name]:.2f}, its ceiling at {allowed:g}'
        f" ({'words a sentence' if name not in WORDS else 'uses a thousand words'})."
        f" Rewrite some: python -m tests.prose --places {rates.folder}"
        for name, allowed in ((name, ceiling.get(name, least)) for name, least in TWICE_THE_ANCHORS.items())
        if rates.by_name[name] > allowed
    ]


def written(ceilings: Ceilings) -> str:
    """The file of ceilings: a line for each folder."""
    lines = (
        f"  {json.dumps(folder)}: {json.dumps(ceilings[folder])}" for folder in sorted(ceilings) if ceilings[folder]
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def table_of(all_rates: list[Rates]) -> str:
    names = list(TWICE_THE_ANCHORS)
    lines = [f"{'folder':<32}{'words':>8}" + "".join(f"{name:>9}" for name in names) + f"{'example':>9}"]
    for rates in sorted(all_rates, key=lambda rates: rates.distance, reverse=True):
        columns = "".join(f"{rates.by_name[name]:>9.{2 if name in WORDS else 0}f}" for name in names)
        lines.append(f"{rates.folder:<32}{rates.words:>8}{columns}{rates.examples:>9.2f}")
    least = "".join(f"{value:>9g}" for value in TWICE_THE_ANCHORS.values())
    return "\n".join([*lines, f"{'twice the anchors':<40}{least}"])


def _print_places(place: str) -> int:
    files = [file for files in files_by_folder().values() for file in files]
    for file in files:
        name = str(file.relative_to(ROOT))
        if name != place and not name.startswith(f"{place}/") and not (place == "." and "/" not in name):
            continue
        for sentence in (sentence for text in texts_of(file) for sentence in sentences_of(text)):
            found = [word for word in WORDS if uses_of(word, sentence)]
            length = len(words_of(sentence))
            if found or length > TWICE_THE_ANCHORS["p90"]:
                print(f"{name} [{', '.join([*found, str(length)])}] {' '.join(sentence.split())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
