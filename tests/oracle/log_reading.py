"""A reader's log over a model database: windows, transactions, values and batches, without Kafka, copies and signals."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Protocol, cast

from libs.oracle.log_position import LogminerPosition
from libs.source.port import ReadBatch
from libs.types.order import EventOrder
from libs.types.table import TableSchema
from protos.headwater.changes.v1.change_batch_pb2 import ChangeBatch
from services.logminer_reader.incremental import IncrementalCopy
from services.logminer_reader.log_following import BesideLog, LogFollowing
from services.logminer_reader.position import decode_position
from services.logminer_reader.signals import Signals
from tests.oracle.reading import Reading


class NoCopies:
    """Nobody asks for a copy."""

    due_scn = None

    async def read_next(self, epoch: int) -> None:
        pass

    def forget_chunk(self) -> None:
        pass

    def tables_changed(self, before: Mapping[str, TableSchema]) -> None:
        pass


class NoSignals:
    """Nobody gives one."""

    async def take_new(self, order: EventOrder, position: LogminerPosition) -> bool:
        return False


class _Closable(Protocol):
    async def aclose(self) -> None: ...


async def follow(read: Reading, until_scn: int, *, kill_after: int | None = None) -> None:
    """Read the log from the newest resume point until all up to an SCN is durable.

    ``kill_after``: the reader's memory is lost after so many batches.
    """
    position = await read.take_up()
    beside = BesideLog(read.changes, cast(IncrementalCopy, NoCopies()), cast(Signals, NoSignals()))
    following = LogFollowing(read.settings, read.schemas, beside, read.gatherer)
    batches = following.batches(position, read.resume.order, 0)
    try:
        async with aclosing(cast(_Closable, batches)):
            await _take(read, batches, until_scn, kill_after)
    finally:
        await following.close()


async def _take(read: Reading, batches: AsyncIterator[ReadBatch], until_scn: int, kill_after: int | None) -> None:
    taken = 0
    async for batch in batches:
        if taken == kill_after:
            return
        taken += 1
        read.batches.append(batch)
        if batch.resume is not None and decode_position(batch.resume.position).done_scn > until_scn:
            return


def images(read: Reading) -> list[tuple[str, Any, Any]]:
    """Operation, image before and image after of each event that is durable or waits, in their order."""
    found: list[tuple[str, Any, Any]] = []
    for batch in read.batches:
        for entry in ChangeBatch.FromString(batch.payload).entries:
            values = [json.loads(value) for value in entry.run.values]
            found += [(value["op"], value["before"], value["after"]) for value in values]
    return found
