"""When a parked table is tried again, and how many waiting events are read at once."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from libs.sink_state.progress import ParkedTable
from libs.sink_state.stream_offsets import joined_offsets

FIRST_WAIT_S: Final = 60.0
LONGEST_WAIT_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class _Try:
    version: int
    at_s: float
    wait_s: float


def first_piece(begins: Mapping[int, int], ends: Mapping[int, int], limit: int) -> dict[int, int]:
    """The ends of a piece of the waiting events between ``begins`` and ``ends``, about ``limit`` offsets, of each Kafka
    partition its share; ``ends`` themselves where no more is waiting.

    >>> first_piece({0: 0, 1: 100}, {0: 900, 1: 200}, 100)
    {0: 90, 1: 110}
    """
    waiting = {partition: end - begins.get(partition, 0) for partition, end in ends.items()}
    if (total := sum(waiting.values())) <= limit:
        return dict(ends)
    return {partition: begins.get(partition, 0) + -(-count * limit // total) for partition, count in waiting.items()}


def with_joined(waiting: ParkedTable, from_offsets: Mapping[int, int], to_offsets: Mapping[int, int]) -> ParkedTable:
    """With events that join the waiting ones: after them, as a rule, or in a Kafka partition that has none yet. What a cut
    held back may lie before."""
    return msgspec.structs.replace(
        waiting,
        from_offsets=joined_offsets(from_offsets, waiting.from_offsets, choose=min),
        to_offsets=joined_offsets(to_offsets, waiting.to_offsets, choose=max),
    )


def left_behind(waiting: ParkedTable, ends: Mapping[int, int]) -> ParkedTable | None:
    """The rest of ``waiting`` when it is written up to ``ends``; None: there is none."""
    from_offsets = joined_offsets(waiting.from_offsets, ends, choose=max)
    if all(from_offsets.get(partition, 0) >= end for partition, end in waiting.to_offsets.items()):
        return None
    copies_from = joined_offsets(waiting.copies_from, ends, choose=max)
    return msgspec.structs.replace(waiting, from_offsets=from_offsets, copies_from=copies_from, is_catching_up=True)


@dataclass(slots=True)
class Retries:
    """Of one tenant's tables since its query started, by topic."""

    clock: Callable[[], float] = time.monotonic
    _tries: dict[str, _Try] = field(default_factory=dict)

    def is_due(self, topic: str, version: int, *, is_asked_for: bool = False) -> bool:
        """Whether to try now, which is noted: at once after a start, where somebody asks for it, and for a schema ``version``
        newer than the one tried last, which may be the remedy; else after 1, 2, 4 … 60 minutes, for remedies outside of the
        source."""
        last, now_s = self._tries.get(topic), self.clock()
        is_new = last is None or version > last.version or is_asked_for
        if last is not None and not is_new and now_s < last.at_s + last.wait_s:
            return False
        wait_s = FIRST_WAIT_S if last is None or is_new else min(2 * last.wait_s, LONGEST_WAIT_S)
        self._tries[topic] = _Try(version if last is None else max(version, last.version), now_s, wait_s)
        return True

    def is_any_due(self, topics: Collection[str]) -> bool:
        """Whether one of them would be tried now, if there were a batch; notes nothing."""
        now_s = self.clock()
        return any((last := self._tries.get(topic)) is None or now_s >= last.at_s + last.wait_s for topic in topics)

    def written(self, topic: str) -> None:
        """The try is in the warehouse: the next one, of a further piece or for another reason, is due at once."""
        self._tries.pop(topic, None)
