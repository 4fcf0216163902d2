"""A whole LogMiner reader over the stand-in, in the test's own process, without publisher and schema_history."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

from libs.events.batch import BatchIdentity
from libs.rpc.schema_history_client import SchemaHistoryClient
from libs.source.port import ReadBatch
from libs.testing.source_contract import checkpoint_of
from libs.types.checkpoint import Checkpoint
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch
from services.logminer_reader.settings import LogminerReaderSettings
from services.logminer_reader.source import OracleSource
from tests.oracle.reading import MemoryHistory

TIMEOUT_S = 180.0


@dataclass
class Following:
    """Reads one source again and again; ``read`` goes on where the last one ended."""

    settings: LogminerReaderSettings
    history: MemoryHistory = field(default_factory=MemoryHistory)
    checkpoint: Checkpoint | None = None

    async def copy(self) -> list[dict[str, Any]]:
        """The rows of the copy, as the events' values."""
        return await self.read(lambda _: self.checkpoint is not None and self.checkpoint.snapshot is None)

    async def read(self, is_enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Values of the events read by this call, once those up to a resume point are enough."""
        source = OracleSource(self.settings, cast(SchemaHistoryClient, self.history))
        identity = BatchIdentity(
            source=self.settings.source, source_partition="0", connector="oracle", run_id="r", fencing_token=1
        )
        seen: list[dict[str, Any]] = []

        async def read() -> None:
            async with (
                source.open(self.checkpoint, identity) as change_log,
                aclosing(_closable(change_log.batches())) as batches,
            ):
                async for batch in batches:
                    for entry in ChangeBatch.FromString(batch.payload).entries:
                        seen.extend(json.loads(value) for value in entry.run.values)
                    if batch.resume is not None:
                        self.checkpoint = checkpoint_of(source, batch.resume)
                        if is_enough(seen):
                            return

        await asyncio.wait_for(read(), TIMEOUT_S)
        return seen


async def _closable(batches: AsyncIterator[ReadBatch]) -> AsyncGenerator[ReadBatch, None]:
    async for batch in batches:
        yield batch
