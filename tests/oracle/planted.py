"""Ten bugs that the seeded interleavings have to catch within the gate's 300 seeds.

``python -m tests.oracle.planted`` plants each into a copy of the checkout, and prints the first seed that fails for it.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from tests.planted.__main__ import copied

SEEDS: Final = 300
"""Of the gate (``tests/unit/logminer_reader/test_interleavings.py``)."""


class Planted(NamedTuple):
    """``text``, which stands in ``file`` once, becomes ``instead``."""

    name: str
    file: str
    text: str
    instead: str
    seed: int
    """The first that catches it."""


BUGS: Final = (
    Planted(
        "an undo row takes back the oldest change that matches",
        "libs/oracle/undo.py",
        """    for place in range(len(groups) - 1, -1, -1):
        group = groups[place]
        if place < len(groups) - 1 and not (newest and group.rs_id == newest):
            break
""",
        """    for place, group in enumerate(groups):
""",
        163,
    ),
    Planted(
        "a text in several rows is not joined",
        "services/logminer_reader/transactions.py",
        'transaction.text.append(row.sql or "")',
        "pass",
        7,
    ),
    Planted(
        "a LOB's pieces are not joined with the rest of their row's change",
        "libs/oracle/undo.py",
        "if group is None or row.column in group.columns or row.row_id not in (None, group.row_id):",
        "if True:",
        7,
    ),
    Planted(
        "the position is one SCN after the first row of the oldest open transaction",
        "services/logminer_reader/log_steps.py",
        "needed = min(needed, oldest.first_scn if start is None else min(start.scn, oldest.first_scn))",
        "needed = min(needed, oldest.first_scn + 1)",
        0,
    ),
    Planted(
        "one of several commits at an SCN is taken for all of them",
        "libs/oracle/log_position.py",
        "(scn == self.done_scn and nth < self.done_commits)",
        "(scn == self.done_scn and self.done_commits > 0)",
        288,
    ),
    Planted(
        "a transaction with large values that two windows have parts of is not mined again",
        "services/logminer_reader/log_following.py",
        "if not step.is_whole and decoder.has_large(first):",
        "if False:",
        17,
    ),
    Planted(
        "rows of a window's last SCN are kept where it breaks off",
        "services/logminer_reader/log_steps.py",
        "self._held.clear()",
        "self._held = list(self._held)",
        7,
    ),
    Planted(
        "the position after a transaction does not count it",
        "services/logminer_reader/log_following.py",
        "done_commits=step.nth + 1",
        "done_commits=step.nth",
        0,
    ),
    Planted(
        "the rest of an earlier incarnation's redo is passed over",
        "services/logminer_reader/log_following.py",
        "self._of_incarnation(place, mining, end_scn)",
        "self._of_incarnation(place, mining, place.position.done_scn if after else end_scn)",
        0,
    ),
    Planted(
        "a value before a change is read as of after its transaction",
        "services/logminer_reader/lacking_values.py",
        "held.cells.append(_Cell(False, column, commit_scn - 1, None))",
        "held.cells.append(_Cell(False, column, commit_scn + 1, None))",
        21,
    ),
)


def first_seed(copy: Path, bug: Planted) -> int | None:
    """The first of the gate's seeds that fails with the bug; None: all pass.

    Raises:
        ValueError: the code has changed, and the bug has to change with it.
    """
    file = copy / bug.file
    right = file.read_text()
    if right.count(bug.text) != 1:
        raise ValueError(f"{bug.file} has {bug.text!r} {right.count(bug.text)} times: correct {Path(__file__).name}")
    file.write_text(right.replace(bug.text, bug.instead))
    try:
        command = [sys.executable, "-m", "tests.oracle.interleavings", str(SEEDS)]
        ended = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    finally:
        file.write_text(right)
    seeds = [line.removeprefix("seed ") for line in ended.stderr.splitlines() if line.startswith("seed ")]
    return int(seeds[0]) if seeds else None


def main() -> int:
    """Returns the exit code: 1 where a bug was not caught, or by another seed than is written here."""
    is_as_written = True
    with tempfile.TemporaryDirectory(prefix="headwater-planted-") as folder:
        copy = copied(Path(folder) / "headwater")
        for bug in BUGS:
            seed = first_seed(copy, bug)
            is_as_written &= seed == bug.seed
            sys.stdout.write(f"{'not caught' if seed is None else f'seed {seed}':<12}{bug.name}\n")
            sys.stdout.flush()
    return 0 if is_as_written else 1


if __name__ == "__main__":
    sys.exit(main())
