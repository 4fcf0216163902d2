"""Where a mirror's deletes stand in Kafka: the only trace of rows that are gone.

The mirror keeps nothing of a deleted row, its order neither. The delete itself stays in the table's topic, so that it is enough
to know in which stretches of it deletes are: an event older than one of these looks there (``spark.batch.late_events``).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from libs.sink_state.stream_offsets import joined_offsets

_MOST_RANGES: Final = 32
"""Each is some 200 bytes of a file that is written with every batch."""
_MOST_EVENTS: Final = 2_000_000
"""Reading so many again takes as long as a few full batches."""


class DeletedRange(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a table's topic with deletes that the table has taken in."""

    newest_order: str
    """Sort key of the newest delete within."""
    from_offsets: Mapping[int, int]
    """By Kafka partition."""
    to_offsets: Mapping[int, int]
    """By Kafka partition: after the last event."""
    schema_versions: tuple[int, ...]
    """Those that its deletes were written under."""

    @property
    def events(self) -> int:
        """How many at most."""
        return sum(end - self.from_offsets.get(partition, end) for partition, end in self.to_offsets.items())


def remembered(known: Sequence[DeletedRange], found: DeletedRange | None) -> tuple[DeletedRange, ...]:
    """``known``, oldest first, with that of a further batch: at most 32 stretches of at most 2,000,000 events, the newest
    whatever its size.

    Beyond so many stretches the two oldest are joined, with the events between; beyond so many events the oldest is forgotten.

    >>> first = DeletedRange(newest_order="1", from_offsets={0: 0}, to_offsets={0: 10}, schema_versions=(1,))
    >>> last = DeletedRange(newest_order="2", from_offsets={0: 10}, to_offsets={0: 3_000_000}, schema_versions=(1,))
    >>> remembered([first], last) == (last,)
    True
    """
    ranges = [*known] if found is None else [*known, found]
    if len(ranges) > _MOST_RANGES:
        ranges[:2] = [_joined(ranges[0], ranges[1])]
    while len(ranges) > 1 and sum(each.events for each in ranges) > _MOST_EVENTS:
        del ranges[0]
    return tuple(ranges)


def _joined(one: DeletedRange, other: DeletedRange) -> DeletedRange:
    return DeletedRange(
        newest_order=max(one.newest_order, other.newest_order),
        from_offsets=joined_offsets(one.from_offsets, other.from_offsets, choose=min),
        to_offsets=joined_offsets(one.to_offsets, other.to_offsets, choose=max),
        schema_versions=tuple(sorted({*one.schema_versions, *other.schema_versions})),
    )
