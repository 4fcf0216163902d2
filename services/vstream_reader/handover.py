"""A task's shards that a reshard joins with those of other tasks: let go, taken up, or copied again.

``reshard`` has the rules. This module looks at the other tasks' checkpoints and at vtgate; each step's outcome is the start of
the next stream.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from libs.errors import PipelineHalted, TransientError
from libs.failpoints import failpoint
from libs.source.incremental import taken_over
from libs.types.checkpoint import IncrementalSnapshot, SnapshotProgress
from protos.vitess import binlogdata_pb2
from services.vstream_reader.client import Vtgate
from services.vstream_reader.copy_progress import copying_shards
from services.vstream_reader.position import VitessPosition, begun_again
from services.vstream_reader.reshard import copied_again, ended_shards, has_lost, let_go, settled
from services.vstream_reader.settings import SnapshotMode, VstreamReaderSettings
from services.vstream_reader.shard_set import ShardSet
from services.vstream_reader.snapshot import begun_without_log
from services.vstream_reader.stream_start import StreamStart, moved_to
from services.vstream_reader.tasks import Fellows
from services.vstream_reader.vgtid import overlap

log = structlog.get_logger()

_FELLOWS_POLL_S: Final = 1.0
"""How often a task whose shards wait for others looks at their commits."""
_RESET_POLL_S: Final = 10.0
"""How often task 0 looks for shards that others let go for good after a person's reset, which is rare."""
_STILL_WAITING_S: Final = 60.0


class Handover:
    """The shards that one task hands over, for as long as its source is open."""

    def __init__(self, settings: VstreamReaderSettings, vtgate: Vtgate, fellows: Fellows | None) -> None:
        """``fellows``: the other tasks of this one; None: a reshard that joins shards of several tasks halts the reader."""
        self._settings = settings
        self._vtgate = vtgate
        self._fellows = fellows
        self._looked_at_s = -_RESET_POLL_S
        self._reported_at_s = 0.0

    def let_go(
        self, journals: Iterable[binlogdata_pb2.Journal], shards: ShardSet, state: IncrementalSnapshot
    ) -> VitessPosition | None:
        """The position without the shards that a reshard joins with other tasks'. None: no such journal has come.

        Raises:
            PipelineHalted: another reader's settings leave one of them out.
        """
        if self._fellows is None:
            return None
        place = position = shards.place
        for journal in journals:
            ended = ended_shards(journal)
            own = ended & shards.names
            if not own & shards.begun.held or own == ended:
                continue
            if unread := [shard for shard in sorted(ended) if not self._is_read(shard)]:
                raise PipelineHalted(
                    f"a reshard joins {', '.join(sorted(own))} with shards that nobody reads ({', '.join(unread)}): name them "
                    "in 'shards' too, for all tasks"
                )
            staying = shards.begun.to_begin_again
            position = let_go(position, journal.id, sorted(ended), state, staying=staying)
            log.info("shards_let_go", shards=sorted(own - staying), joined_with=sorted(ended - own))
        return None if position is place else begun_again(position, shards.begun.to_begin_again)

    async def begin_again(self, place: VitessPosition, state: IncrementalSnapshot) -> StreamStart:
        """The stream that copies everything. Shards that were joined with other tasks' are let go for good.

        Raises as ``Vtgate.shards``.
        """
        position = begun_without_log(self._settings, place, state, await self._serving())
        return moved_to(position, SnapshotProgress())

    async def settle(
        self, shards: ShardSet, state: IncrementalSnapshot, progress: SnapshotProgress
    ) -> StreamStart | None:
        """Look, now and then, whether the shards that wait can be taken up, by this task or another.

        Returns the stream with the shards that this task takes up; None: the stream that is open goes on. Not everything is
        known of the others at each look, so a failed one is no error.
        """
        tasks = self._settings.tasks
        if self._fellows is None or tasks is None or not (shards.is_handing_over or tasks.number == 0):
            return None
        pause_s = _FELLOWS_POLL_S if shards.is_handing_over or self._expects_lost_shards else _RESET_POLL_S
        if (now_s := time.monotonic()) < self._looked_at_s + pause_s:
            return None
        self._looked_at_s = now_s
        place = shards.place
        try:
            others = await self._fellows.positions()
            found = settled(place, tasks.number, others)
            if tasks.number == 0 and not found.added and has_lost(found.position, others):
                found = copied_again(found.position, others, await self._serving())
                progress = SnapshotProgress()
            states = await self._fellows.asked(found.added)
            awaited = await self._fellows.published_ends(found.added)
        except TransientError as error:
            log.info("fellow_tasks_unknown", reason=str(error))
            return None
        if found.awaited and now_s >= self._reported_at_s:
            self._reported_at_s = now_s + _STILL_WAITING_S
            log.warning("shards_await_other_tasks", missing=sorted(found.awaited), remedy="see that all tasks run")
        if not found.added:
            if (found.position.let_go, found.position.taken_up) != (place.let_go, place.taken_up):
                shards.note(found.position.let_go, found.position.taken_up)
            return None
        names = [entry.shard for parts in found.added.values() for part in parts for entry in part.vgtid]
        log.info("shards_taken_up", shards=sorted(names))
        failpoint("reader_before_shards_taken_up")
        return StreamStart(
            found.position,
            bool(copying_shards(found.position)),
            progress,
            is_new=True,
            incremental=taken_over([state, *states]),
            awaited=awaited,
        )

    @property
    def _expects_lost_shards(self) -> bool:
        """Others may lose shards without a person's word."""
        return self._settings.snapshot.mode is SnapshotMode.WHEN_NEEDED

    async def _serving(self) -> Sequence[str]:
        """The shards that serve; for those of the settings their successors."""
        return [shard for shard in await self._vtgate.shards(self._settings.keyspace) if self._is_read(shard)]

    def _is_read(self, shard: str) -> bool:
        named = self._settings.shards
        return not named or any(overlap(shard, each) for each in named)
