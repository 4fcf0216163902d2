"""Small files of state: replaced whole, durably."""

import os
from pathlib import Path
from typing import Final

UNFINISHED: Final = "unfinished"
"""The end of the name of a file that a killed writer may leave beside the target."""


def replace_durably(path: Path, content: bytes, *, writer: str = "") -> None:
    """A reader of ``path`` sees the old content or the new one, also after a kill; on return the new one is on disk. Blocks.

    Makes the folder. ``writer`` distinguishes processes that may write the same file at once; where one alone does, the remains
    of its killed predecessor are written over.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{writer}.{UNFINISHED}" if writer else f".{UNFINISHED}")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name too
    finally:
        os.close(folder)
