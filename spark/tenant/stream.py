"""Which offsets a tenant's next micro-batch has (ADR 17).

    ends of topics ▶ is something new? ▶ rate limit ▶ note in the log ▶ batch ▶ note that it is done

The rules are those of Spark's Kafka source, which earlier releases had deal the batches: topics are read from their begin,
``limit`` is shared out by what waits in each Kafka partition, and events that Kafka lost before they were read end the query.
"""

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from libs.sink_state.stream_offsets import StreamOffsets
from libs.types.tenant import TenantSpec
from spark.batch.pace import is_full_batch
from spark.jvm.errors import EventsLost
from spark.kafka.read_topics import topic_pattern
from spark.tenant.stream_log import StreamLog

_LOST_FOR_S: Final = 3.0
"""A topic has to be gone, or to end before what was read of it, for so long. Brokers hear of a change one after another, and a
topic that is made again is missing for a moment."""

Begins = Callable[[Sequence[tuple[str, int]]], Mapping[tuple[str, int], int]]
"""Asks Kafka where partitions begin."""

log = structlog.get_logger()


class TenantStream:
    """One tenant's. ``has_new`` is for the thread that deals turns, all else for the one that has the tenant's turn."""

    def __init__(self, stream_log: StreamLog, tenant: TenantSpec, *, limit: int, fails_on_loss: bool) -> None:
        """``limit``: how many offsets a batch has at most. ``fails_on_loss``: see ``next_batch``.

        Raises:
            PipelineHalted: the log cannot be read.
        """
        self._log = stream_log
        self._tenant = tenant.tenant
        self._matches = re.compile(topic_pattern(tenant)).match
        self._ours: dict[str, bool] = {}
        self._limit = limit
        self._fails_on_loss = fails_on_loss
        place = stream_log.load()
        self.query_id = place.query_id
        self._batch_id = place.batch_id
        self._is_done = place.is_done
        self._ends = place.ends
        self._lost_since_s: float | None = None
        self.is_full = False
        """Whether the newest batch took all that it could: more waits."""

    def has_new(self, ends: StreamOffsets) -> bool:
        """Whether a batch is due where topics end at ``ends``: one that was broken off comes again."""
        if not self._is_done:
            return True
        begins, found = self._ends or {}, self._only_ours(ends)
        if lost := lost_partitions_of(begins, found):
            self._lost_since_s = self._lost_since_s or time.monotonic()
            return bool(lost) and time.monotonic() - self._lost_since_s >= _LOST_FOR_S
        self._lost_since_s = None
        return any(
            end > begins.get(topic, {}).get(partition, 0)
            for topic, partitions in found.items()
            for partition, end in partitions.items()
        )

    @property
    def may_have_lost(self) -> bool:
        """Whether ``has_new`` is to be asked again, though nothing changes."""
        return self._lost_since_s is not None

    def next_batch(self, ends: StreamOffsets, begins_of: Begins) -> int:
        """The number of the batch that is to run now; its offsets are noted.

        Raises:
            EventsLost: Kafka no longer has unread events; where losses are accepted they are logged.
            TransientError: of ``begins_of``.
        """
        if not self._is_done:
            return self._batch_id
        found = self._only_ours(ends)
        if self._ends is None:
            first = [(topic, partition) for topic, partitions in found.items() for partition in partitions]
            self._ends = _by_topic(begins_of(first))
            self._log.begin(self._ends)
        begins = self._ends
        self._judge(lost_partitions_of(begins, found))
        added = [
            (topic, partition)
            for topic, partitions in found.items()
            for partition in partitions
            if partition not in begins.get(topic, {})
        ]
        # A batch reads new partitions from offset 0.
        self._judge([f"{topic}-{number}" for (topic, number), begin in begins_of(added).items() if begin > 0])
        chosen = limited(begins, found, self._limit)
        self._log.note(self._batch_id + 1, chosen)
        self._batch_id, self._is_done = self._batch_id + 1, False
        self.is_full = is_full_batch(chosen, begins, self._limit)
        self._ends = chosen
        return self._batch_id

    def done(self) -> None:
        """All of the newest batch is written."""
        self._log.note_done(self._batch_id)
        self._is_done = True

    def _judge(self, lost: Sequence[str]) -> None:
        if lost and self._fails_on_loss:
            raise EventsLost(", ".join(lost))
        if lost:
            log.warning("sink_losses_accepted", tenant=self._tenant, kafka_partitions=list(lost))

    def _only_ours(self, ends: StreamOffsets) -> StreamOffsets:
        for topic in ends.keys() - self._ours.keys():
            self._ours[topic] = self._matches(topic) is not None
        return {topic: partitions for topic, partitions in ends.items() if self._ours[topic]}


def lost_partitions_of(begins: StreamOffsets, ends: StreamOffsets) -> list[str]:
    """Kafka partitions that were read further than they reach, or are gone.

    >>> lost_partitions_of({"a": {0: 5}, "b": {0: 1}, "c": {0: 2}}, {"a": {0: 4}, "b": {0: 1}})
    ['a-0', 'c-0']
    """
    return [
        f"{topic}-{partition}"
        for topic, partitions in sorted(begins.items())
        for partition, begin in sorted(partitions.items())
        if begin > ends.get(topic, {}).get(partition, -1)
    ]


def limited(begins: StreamOffsets, ends: StreamOffsets, limit: int) -> dict[str, dict[int, int]]:
    """Where a batch ends: each Kafka partition has its share of ``limit`` by its backlog, one offset at least.

    >>> limited({"a": {0: 10}}, {"a": {0: 100}, "b": {0: 10}, "c": {0: 0}}, limit=50)
    {'a': {0: 55}, 'b': {0: 5}, 'c': {0: 0}}
    """
    waiting = {
        (topic, partition): end - begins.get(topic, {}).get(partition, 0)
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    }
    total = sum(size for size in waiting.values() if size > 0)
    chosen: dict[str, dict[int, int]] = {}
    for (topic, partition), size in waiting.items():
        end = ends[topic][partition]
        share = limit * size / total if size > 0 else 0.0
        if 0 < share < size:
            end = end - size + (math.ceil(share) if share < 1 else math.floor(share))
        chosen.setdefault(topic, {})[partition] = end
    return chosen


def _by_topic(offsets: Mapping[tuple[str, int], int]) -> dict[str, dict[int, int]]:
    topics: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, {})[partition] = offset
    return topics
