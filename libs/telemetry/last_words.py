"""Why a process ended, in a file that its supervisor reads: Kubernetes' termination message, and the embedded stack's.

Kubernetes shows the file's text in ``kubectl describe pod`` ("Customize the termination message" in its manual); the embedded
stack's supervisor keeps it in ``run/state.json``, from where ``headwater status`` prints it.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

VARIABLE: Final = "HEADWATER_TERMINATION_LOG"
"""Names the file; without it nothing is written."""
MAX_BYTES: Final = 4096
"""Kubernetes shows no more."""


def write_last_words(text: str) -> None:
    """Write ``text``, cut to MAX_BYTES. A disk that is full stops no process from ending."""
    if path := os.environ.get(VARIABLE):
        with contextlib.suppress(OSError):
            Path(path).write_bytes(text.encode()[:MAX_BYTES])


def read_last_words(path: Path) -> str:
    """The words of the process that ended last; empty where it left none. Removes the file: each end is reported once."""
    try:
        words = path.read_text(errors="ignore").strip()
    except OSError:
        return ""
    path.unlink(missing_ok=True)
    return words
