"""Plant each bug into a copy of the checkout, and run the tests that have to catch it."""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.planted.bugs import BUGS, PlantedBug

REPOSITORY: Final = Path(__file__).parents[2]
TESTS_FAILED: Final = 1  # pytest's exit code; 4 and 5 are for a run that could not be done, or that had no tests


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 1 where a bug was not caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("bug", nargs="*", metavar="BUG", help=f"by name: {', '.join(bug.name for bug in BUGS)}")
    wanted = parser.parse_args(arguments).bug
    if unknown := set(wanted) - {bug.name for bug in BUGS}:
        parser.error(f"no bug is called {', '.join(sorted(unknown))}; known: {', '.join(bug.name for bug in BUGS)}")
    chosen = [bug for bug in BUGS if not wanted or bug.name in wanted]
    with tempfile.TemporaryDirectory(prefix="headwater-planted-") as folder:
        copy = copied(Path(folder) / "headwater")
        passed = [
            bug.name for number, bug in enumerate(chosen, 1) if not _is_caught(copy, bug, f"{number}/{len(chosen)}")
        ]
    sys.stdout.write(
        f"{len(chosen) - len(passed)} caught, {len(passed)} not{': ' if passed else ''}{', '.join(passed)}\n"
    )
    return 1 if passed else 0


def copied(target: Path) -> Path:
    """The files that git knows and the compiled modules; the environment is the checkout's own."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True).stdout.decode()
    compiled = [path for folder in ("libs", "services") for path in (REPOSITORY / folder).rglob("*.so")]
    for path in (*(REPOSITORY / name for name in listed.split("\0") if name), *compiled):
        place = target / path.relative_to(REPOSITORY)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place, follow_symlinks=False)
    (target / ".venv").symlink_to(REPOSITORY / ".venv")
    return target


def _is_caught(copy: Path, bug: PlantedBug, progress: str) -> bool:
    file = copy / bug.file
    right = file.read_text()
    began_s = time.monotonic()
    try:
        file.write_text(planted(right, bug))
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-m", "gate", bug.caught_by],
            cwd=copy,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        file.write_text(right)
    is_caught = ended.returncode == TESTS_FAILED
    says = "caught" if is_caught else f"NOT caught (pytest's exit code {ended.returncode})"
    sys.stdout.write(f"{progress} {bug.name:<10} {time.monotonic() - began_s:5.0f} s  {says}: {bug.promise}\n")
    if not is_caught:
        sys.stdout.write(ended.stdout[-2_000:])
    sys.stdout.flush()
    return is_caught


def planted(text: str, bug: PlantedBug) -> str:
    """``text`` with the bug in it. Raises ValueError: the code has changed, and the bug has to change with it."""
    if text.count(bug.text) != 1:
        raise ValueError(f"{bug.file} has {bug.text!r} {text.count(bug.text)} times: correct tests/planted/bugs.py")
    return text.replace(bug.text, bug.instead)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
