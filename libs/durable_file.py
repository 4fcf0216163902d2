"""Small files of state: replaced whole, durably."""

import os
from pathlib import Path
from typing import Final

UNFINISHED: Final = "unfinished"
"""How the name ends of what a killed writer may leave beside the file."""


def replace_durably(path: Path, content: bytes, *, writer: str = "") -> None:
    """Whoever reads ``path`` sees the old content or the new one, whatever happens; on return the new one is on disk. Blocks.

    Makes the folder. ``writer`` tells apart processes that may write the same file at once; where one alone does, what it left
    when it was killed is written over.
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
