"""How this Headwater was installed: as a checkout with ``make setup``, or as a wheel. Standard library only.

Both have the folders ``libs``, ``services``, ``protos`` and ``spark`` side by side, below ``import_root``. In a wheel that is
``site-packages/headwater`` (ADR 33).
"""

import shutil
import sys
from pathlib import Path
from typing import Final

IMPORT_ROOT: Final = Path(__file__).resolve().parents[2]
"""Holds ``libs``, ``services``, ``protos`` and ``spark``."""


OLDEST_PYTHON: Final = (3, 11)
NEWEST_PYTHON: Final = (3, 14)


def is_checkout(root: Path = IMPORT_ROOT) -> bool:
    """Whether ``root`` is a working copy of the sources. The wheel and the images lack its project file."""
    return (root / "pyproject.toml").is_file()


SETUP_COMMAND: Final = "make setup" if is_checkout() else "headwater setup"
"""The remedy for anything that set-up puts in place."""


def command_path() -> str:
    """How a user types the command: ``headwater`` if the PATH has it, else its path."""
    if shutil.which("headwater"):
        return "headwater"
    if is_checkout():
        return str(IMPORT_ROOT / "headwater")
    return str(Path(sys.executable).with_name("headwater"))
