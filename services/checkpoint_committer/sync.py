"""Keeps the Redis view and the gauges up to date, about once a second."""

from collections.abc import Mapping

import structlog

from libs.kafka.writer import OutgoingRecord
from libs.types.position import SourcePartition
from services.checkpoint_committer.log import Forgotten, encode
from services.checkpoint_committer.partitions import Partitions, PartitionState, entries_of
from services.checkpoint_committer.progress import ProgressBoard
from services.checkpoint_committer.view import CheckpointView

log = structlog.get_logger()


class ViewSync:
    """Writes the changed entries; writes all of them where the view is empty or stands elsewhere."""

    def __init__(
        self, view: CheckpointView, partitions: Partitions, progress: ProgressBoard, synced_offsets: Mapping[int, int]
    ) -> None:
        self._view = view
        self._partitions = partitions
        self._progress = progress
        self._synced_offsets = dict(synced_offsets)
        self._is_progress_written = True

    async def once(self, passed: Mapping[int, int], now_us: int) -> None:
        """Bring the view up to ``passed``, by Kafka partition, below which all is applied."""
        self._partitions.measure(now_us)
        self._progress.measure(now_us)
        offsets = dict(passed)
        changed = self._partitions.take_changed()
        stands = await self._view.extend(self._synced_offsets, offsets, _records(changed))
        if stands is False:
            self._is_progress_written = False  # it was lost together with the rest
            stands = await self._view.replace(offsets, [encode(entry) for entry in self._partitions.entries()])
            if stands:
                log.info("checkpoint_view_rebuilt", source_partitions=len(self._partitions))
        if stands:
            self._synced_offsets = offsets
        else:
            self._partitions.put_back(changed)
        forgotten = self._progress.take_forgotten()
        if not await self._view.delete_progress(forgotten):
            self._progress.put_back_forgotten(forgotten)
        reports = self._progress.take_changed() if self._is_progress_written else self._progress.of(None)
        self._is_progress_written = await self._view.write_progress(reports) if reports else True


def _records(changed: Mapping[SourcePartition, PartitionState]) -> list[OutgoingRecord]:
    """The view's entries for ``changed``: a checkpoint that is no longer in force is deleted."""
    forgotten = [
        Forgotten(partition=partition) for partition, state in changed.items() if state.standing.checkpoint is None
    ]
    return [encode(entry) for entry in (*entries_of(changed), *forgotten)]
