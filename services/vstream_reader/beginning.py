"""Where a reader begins: at a checkpoint, where tasks of a former generation ended, or with shards that were never read."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec
import structlog

from libs.errors import SourceUnavailable
from libs.types.checkpoint import Checkpoint
from services.vstream_reader.client import Vtgate
from services.vstream_reader.copy_progress import copying_shards
from services.vstream_reader.position import SOURCE_KIND, Deal, VitessPosition, decode_position
from services.vstream_reader.settings import VstreamReaderSettings
from services.vstream_reader.snapshot import begun_without_log, first_position, is_copy_due, position_of_new_copy
from services.vstream_reader.tasks import (
    Beginning,
    Fellows,
    dealt_beginning,
    followed_where_ended,
    require_own_generation,
)

log = structlog.get_logger()

_FELLOWS_POLL_S: Final = 1.0
_STILL_WAITING_S: Final = 60.0

TakeOver = Callable[[Sequence[str]], Awaitable[Beginning | None]]
"""From the shards that serve to the places of the task's own ones, and the pending copies of them."""


async def first_beginning(
    settings: VstreamReaderSettings,
    serving: Sequence[str],
    vtgate: Vtgate,
    *,
    take_over: TakeOver | None,
    fellows: Fellows | None,
) -> Beginning:
    """Where a source partition without a checkpoint begins.

    Raises:
        SourceMisconfigured: there are more tasks than shards, and none for this one.
        SourceUnavailable: a reshard is under way; try again. The rest as ``take_over``.
    """
    if take_over is not None and (found := await take_over(serving)) is not None:
        log.info(
            "positions_taken_over",
            shards=[entry.shard for entry in found.position.vgtid],
            copied_again=[copy.table for copy in found.incremental.tables],
            signals_offset=found.incremental.signals_offset,
        )
        if not found.was_reset:
            return found
        position = begun_without_log(settings, found.position, found.incremental, serving)
        return replace(found, position=position, is_copying=bool(copying_shards(position)))
    if settings.tasks is None:
        position = first_position(settings, serving)
        return Beginning(position, is_copy_due(position))
    deal = await _dealt(settings, serving, vtgate, settings.tasks.number, fellows)
    position = dealt_beginning(deal, settings.tasks, serving)
    return Beginning(position, bool(copying_shards(position)), must_commit_first=position.deal is not None)


def beginning_after_reset(settings: VstreamReaderSettings, checkpoint: Checkpoint, serving: Sequence[str]) -> Beginning:
    """Where a source partition begins that a person has reset: ``start_vgtid`` does not count, and epochs go on.

    A task's shards that a reshard has joined with other tasks' are not followed to its journal, because their log may be gone:
    they are let go for good, and task 0 copies what became of them.

    Raises:
        PipelineHalted: another task reads these shards now.
    """
    log.warning("checkpoint_was_reset", position=checkpoint.position.token.decode(errors="replace"))
    if checkpoint.position.source_kind != SOURCE_KIND:  # the source was of another kind before
        of_other_kind = VitessPosition(vgtid=(), epochs=dict.fromkeys(serving, checkpoint.order.epoch))
        position = position_of_new_copy(settings, of_other_kind, serving)
    else:
        position = decode_position(checkpoint.position)
        require_own_generation(position, settings.tasks)
        position = begun_without_log(settings, position, checkpoint.incremental, serving)
    return Beginning(position, bool(copying_shards(position)), checkpoint.incremental)


async def _dealt(
    settings: VstreamReaderSettings, serving: Sequence[str], vtgate: Vtgate, number: int, fellows: Fellows | None
) -> Deal:
    """The tasks' first shards: as task 0 found them, which the others wait for. A reshard may come between their starts."""
    reported_at_s = 0.0
    while number > 0 and fellows is not None:
        first = (await fellows.positions()).get(0)
        if first is not None and first.deal is not None:
            return first.deal
        if first is not None:
            break  # it had none, or dropped it, because all had begun
        if (now_s := time.monotonic()) >= reported_at_s:
            reported_at_s = now_s + _STILL_WAITING_S
            log.warning("first_task_awaited", remedy="see that task 0 runs: it deals the shards to all tasks")
        await asyncio.sleep(_FELLOWS_POLL_S)
    executed = await vtgate.executed(settings.keyspace)
    if ended := [shard for shard in serving if shard not in executed]:
        raise SourceUnavailable(f"a reshard ends {', '.join(ended)} just now: the shards are dealt when it is over")
    position = first_position(settings, serving)
    return Deal(beginnings=position.vgtid, executed={shard: executed[shard] for shard in serving})


async def resumed_beginning(
    settings: VstreamReaderSettings, checkpoint: Checkpoint, serving: Sequence[str], fellows: Fellows | None
) -> Beginning:
    """Where a source partition goes on.

    Raises:
        PipelineHalted: another task reads these shards now.
        ServiceUnavailable: try again.
    """
    position = decode_position(checkpoint.position)
    require_own_generation(position, settings.tasks)
    if position.deal is not None:
        position = followed_where_ended(position, position.deal.executed, serving)
        if settings.tasks is not None and fellows is not None:
            others = await fellows.positions()
            is_awaited = len(others) < settings.tasks.of - 1 or any(not e.is_place for e in position.vgtid)
            position = position if is_awaited else msgspec.structs.replace(position, deal=None)
    return Beginning(position, checkpoint.snapshot is not None, checkpoint.incremental)
