"""Files for data that does not fit into memory: nameless ones, gone when they are closed or their process ends."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, Final, cast

from libs.errors import DiskFull

_IN_MEMORY_BYTES: Final = 16 << 20


class Spool:
    """Byte strings, read back in their order; data beyond 16 MB lies in a file in ``folder``."""

    def __init__(self, folder: Path | None, *, in_memory_bytes: int = _IN_MEMORY_BYTES) -> None:
        self._folder = folder
        directory = str(folder) if folder is not None else None
        spooled = tempfile.SpooledTemporaryFile(max_size=in_memory_bytes, dir=directory)  # noqa: SIM115 - see close
        self._file = cast(IO[bytes], spooled)
        self._sizes: list[int] = []

    def append(self, item: bytes) -> None:
        """Raises DiskFull."""
        with out_of_room_named(self._folder):
            self._file.write(item)
        self._sizes.append(len(item))

    def items(self) -> Iterator[bytes]:
        """Everything that was put in, from the beginning."""
        with out_of_room_named(self._folder):
            self._file.seek(0)
        for size in self._sizes:
            yield self._file.read(size)

    def close(self) -> None:
        """Forget everything."""
        self._file.close()


def spill_file(folder: Path | None) -> BinaryIO:
    """An empty file in ``folder`` (None: the system's folder for temporary files). Raises DiskFull."""
    with out_of_room_named(folder):
        return tempfile.TemporaryFile(dir=folder)


@contextmanager
def out_of_room_named(folder: Path | None) -> Iterator[None]:
    """The system's error for a file that cannot be written, as DiskFull with the remedy."""
    try:
        yield
    except OSError as error:
        where = folder or tempfile.gettempdir()
        raise DiskFull(
            f"a transaction larger than memory cannot be kept in {where} ({error.strerror or error}): make room there, or "
            "name a larger folder (spill_dir), and start the reader again; nothing was lost"
        ) from error
