"""The ``headwater`` command of an installed wheel.

The package holds Headwater's folders ``libs``, ``services``, ``protos`` and ``spark``. They import one another by these names.
``main`` puts the package first on the path, for this process and those that it starts. A foreign ``libs`` in the current folder
or in site-packages is never imported (ADR 33).
"""

import os
import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parent)


def main() -> None:
    """Run the command line and exit."""
    sys.path.insert(0, _ROOT)
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{_ROOT}{os.pathsep}{inherited}" if inherited else _ROOT
    from libs.cli.main import run

    run()
