"""The copies of a reader over a model database."""

import contextlib

from libs.oracle.log_position import LogminerPosition
from services.logminer_reader.incremental import IncrementalCopy
from services.logminer_reader.initial_copy import InitialCopy
from tests.oracle.reading import Reading


class Copying:
    """The parts of a reader that copy rows."""

    def __init__(self, read: Reading) -> None:
        self.read = read
        self._initial = InitialCopy("src", read.settings, read.schemas, read.gatherer)
        self.incremental = IncrementalCopy("src", read.settings, read.schemas, read.gatherer)

    async def copy_all(self, position: LogminerPosition, *, batches: int = -1) -> None:
        """The initial copy, or its first ``batches``."""
        with contextlib.closing(self.read.connect()) as connection:
            async for batch in self._initial.copy(connection, position, 1_000_000):
                self.read.batches.append(batch)
                if len(self.read.batches) == batches:
                    return

    async def deliver(self, scn: int) -> int:
        """The chunk on its way, at its place; how many batches it took."""
        begun = len(self.read.batches)
        async for batch in self.incremental.deliver(self.read.position(scn)):
            self.read.batches.append(batch)
        return len(self.read.batches) - begun
