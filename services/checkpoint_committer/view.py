"""The Redis side: a view of the state in force, which makes a start cheap, and is never believed over Kafka.

    {headwater:checkpoint_committer:<topic id>}:state      hash: Kafka key → Kafka value, and #next_offsets
    {headwater:checkpoint_committer:<topic id>}:progress   hash: tenant, hop, source partition, table → report

A start applies the values of ``state`` and from Kafka only the records after ``#next_offsets``. Values and offsets share
one key, so that they are lost together or not at all; the topic's id is part of every key, so that a topic that was
created again finds no view.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from libs.config.connections import RedisSettings
from libs.kafka.tail import LogRecord
from libs.kafka.writer import OutgoingRecord
from libs.redis.connection import AWAY, UNUSABLE, RedisConnection
from libs.types.progress import Progress
from services.checkpoint_committer.log import decode

_NEXT_OFFSETS: Final = b"#next_offsets"

# KEYS: state. ARGV: offsets before, offsets after, number of fields to set, field, value, …, fields to delete.
# Answers 0 where the view stands elsewhere than at the offsets before.
_EXTEND: Final = """
if redis.call('HGET', KEYS[1], '#next_offsets') ~= ARGV[1] then return 0 end
local last = 3 + 2 * tonumber(ARGV[3])
for i = 4, last, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
for i = last + 1, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
redis.call('HSET', KEYS[1], '#next_offsets', ARGV[2])
return 1
"""


@dataclass(frozen=True, slots=True)
class ViewContents:
    """The view at a start."""

    records: Sequence[LogRecord]
    """To be applied in this order, before anything from Kafka; they carry no offsets."""
    next_offsets: Mapping[int, int]
    """By Kafka partition: everything below is contained."""


class CheckpointView:
    """The view of one topic. No method raises when Redis is away: it does nothing and says so in ``unavailable``."""

    def __init__(self, settings: RedisSettings, topic_id: str) -> None:
        self._connection = RedisConnection(settings)
        self._redis = self._connection.client
        prefix = f"{{headwater:checkpoint_committer:{topic_id}}}"
        self._state_key, self._progress_key = f"{prefix}:state", f"{prefix}:progress"

    @property
    def unavailable(self) -> str | None:
        """Why Redis does not answer; None while it does."""
        return self._connection.unavailable

    async def load(self) -> ViewContents | None:
        """The entries in force, and up to which offsets; None where the view is empty, broken or out of reach."""
        try:
            stored = cast(dict[bytes, bytes], await self._redis.hgetall(self._state_key))
        except UNUSABLE as error:
            self._connection.note_away(error)
            return None
        self._connection.note_back()
        offsets = stored.pop(_NEXT_OFFSETS, None)
        if offsets is None:
            return None
        try:
            next_offsets = msgspec.json.decode(offsets, type=dict[int, int])
            for key, value in stored.items():  # one that is passed over later would be a checkpoint that is lost
                decode(key, value)
        except Exception as error:  # somebody else wrote under our key
            self._connection.note_foreign(self._state_key, error)
            return None
        # "reset/…" before all others: a checkpoint is judged against its partition's reset.
        keys = sorted(stored, key=lambda key: not key.startswith(b"reset/"))
        return ViewContents([LogRecord(-1, -1, key, stored[key]) for key in keys], next_offsets)

    async def load_progress(self) -> list[Progress]:
        """The reports that the view holds; none where it is out of reach."""
        try:
            stored = cast(list[bytes], await self._redis.hvals(self._progress_key))
            return [msgspec.msgpack.decode(value, type=Progress) for value in stored]
        except AWAY as error:
            self._connection.note_away(error)
        except Exception as error:  # somebody else wrote under our key
            self._connection.note_foreign(self._progress_key, error)
        return []

    async def extend(
        self, before: Mapping[int, int], after: Mapping[int, int], changes: Iterable[OutgoingRecord]
    ) -> bool | None:
        """Add the changes between two sets of offsets. False: the view stands elsewhere; None: Redis is away."""
        if self._connection.is_away():
            return None
        written = [(change.key, change.value) for change in changes if change.value is not None]
        deleted = [change.key for change in changes if change.value is None]
        pairs = [part for pair in written for part in pair]
        arguments: list[str | bytes] = [_offsets(before), _offsets(after), str(len(written)), *pairs, *deleted]
        try:
            stands = await self._redis.eval(_EXTEND, 1, self._state_key, *arguments)
        except UNUSABLE as error:
            self._connection.note_away(error)
            return None
        self._connection.note_back()
        return bool(stands)

    async def replace(self, offsets: Mapping[int, int], records: Iterable[OutgoingRecord]) -> bool:
        """Write the whole view again; False: Redis is away."""
        if self._connection.is_away():
            return False
        try:
            async with self._redis.pipeline(transaction=True) as pipeline:
                pipeline.delete(self._state_key)
                for record in records:
                    if record.value is not None:
                        pipeline.hset(self._state_key, cast(str, record.key), cast(str, record.value))
                pipeline.hset(self._state_key, cast(str, _NEXT_OFFSETS), _offsets(offsets))
                await pipeline.execute()
        except UNUSABLE as error:
            self._connection.note_away(error)
            return False
        self._connection.note_back()
        return True

    async def write_progress(self, reports: Iterable[Progress]) -> bool:
        """Add the newest reports; False: Redis is away."""
        if self._connection.is_away():
            return False
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for report in reports:
                    pipeline.hset(
                        self._progress_key, _progress_field(report), cast(str, msgspec.msgpack.encode(report))
                    )
                await pipeline.execute()
        except UNUSABLE as error:
            self._connection.note_away(error)
            return False
        self._connection.note_back()
        return True

    async def delete_progress(self, reports: Sequence[Progress]) -> bool:
        """Take reports out; False: Redis is away."""
        if not reports:
            return True
        if self._connection.is_away():
            return False
        try:
            await self._redis.hdel(self._progress_key, *(_progress_field(report) for report in reports))
        except UNUSABLE as error:
            self._connection.note_away(error)
            return False
        self._connection.note_back()
        return True

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()


def _offsets(offsets: Mapping[int, int]) -> str:
    return msgspec.json.encode(dict(sorted(offsets.items()))).decode()


def _progress_field(report: Progress) -> str:
    return "\0".join((report.tenant, report.hop, str(report.partition), report.table))
