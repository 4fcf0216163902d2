"""Files for what does not fit into memory: nameless ones, gone when they are closed or their process ends."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from libs.errors import DiskFull


def spill_file(folder: Path | None) -> BinaryIO:
    """An empty file in ``folder`` (None: the system's folder for temporary files). Raises DiskFull."""
    with out_of_room_named(folder):
        return tempfile.TemporaryFile(dir=folder)


@contextmanager
def out_of_room_named(folder: Path | None) -> Iterator[None]:
    """What the system says of a file that cannot be written, as DiskFull with the remedy."""
    try:
        yield
    except OSError as error:
        where = folder or tempfile.gettempdir()
        raise DiskFull(
            f"a transaction larger than memory cannot be kept in {where} ({error.strerror or error}): make room there, or "
            "name a larger folder (spill_dir), and start the reader again; nothing was lost"
        ) from error
