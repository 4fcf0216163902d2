"""Known vulnerabilities of the locked Python packages: ``make audit``.

    python -m libs.setup.audit

pip-audit does the asking. It is no dependency of ours: ``pip install pip-audit`` in any environment. Exit codes: 0 none is
known, 1 some are, 3 nothing can be said: pip-audit is missing, or its database is not reached, as with a registry's mirror
that has packages alone.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[2]
_TIMEOUT_S: Final = 600.0
VULNERABLE: Final = 1
UNKNOWN: Final = 3


def verdict(dependencies: Sequence[Mapping[str, Any]]) -> tuple[int, list[str]]:
    """The exit code and the lines to print, from pip-audit's ``dependencies``."""
    known: dict[tuple[str, str], set[str]] = {}
    skipped: set[str] = set()
    asked: set[str] = set()
    for each in dependencies:
        name = f"{each['name']} {each.get('version', '')}".strip()
        asked.add(name)
        if "skip_reason" in each:
            skipped.add(name)
        for found in each.get("vulns", ()):
            known.setdefault((name, found["id"]), set()).update(found.get("fix_versions", ()))
    lines = [_line(name, number, mended) for (name, number), mended in sorted(known.items())]
    if known:
        return VULNERABLE, lines
    if skipped or not asked:
        return UNKNOWN, [
            f"{len(skipped)} of {len(asked)} packages were not audited: the database of vulnerabilities is not reached from "
            "here (a mirror of PyPI has packages alone); run it where https://pypi.org/pypi/NAME/json is"
        ]
    return 0, [f"{len(asked)} packages, none with a known vulnerability"]


def _line(name: str, number: str, mended: set[str]) -> str:
    return f"{name}: {number}" + (f"; mended in {', '.join(sorted(mended))}" if mended else "")


def main() -> int:
    """The exit code."""
    program = shutil.which("pip-audit")
    if program is None:
        sys.stderr.write("pip-audit is not there: pip install pip-audit in any environment, and put it on the PATH\n")
        return UNKNOWN
    locks = [file for file in sorted((_ROOT / "requirements").glob("*.txt")) if file.stem != "dev"]
    named = [part for file in locks for part in ("-r", str(file))]
    command = [program, *named, "--no-deps", "--disable-pip", "-f", "json", "--progress-spinner", "off"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
        found = json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError) as error:
        sys.stderr.write(f"pip-audit gave no report ({type(error).__name__}): is its database reached from here?\n")
        return UNKNOWN
    code, lines = verdict(found)
    sys.stdout.write("\n".join(lines) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
