"""The Redis side: a view of the log that makes a start cheap, and is never believed over Kafka.

    {headwater:schema_history:<topic id>}:heads           hash: one field a table, and #next_offset
    {headwater:schema_history:<topic id>}:versions:<…>    hash of one table: version → SchemaChange

A start reads ``heads`` (one entry for each table) and from Kafka only what came after ``#next_offset``. Heads and
offset share one key, so that they are lost together or not at all; the topic's id is part of every key, so that a
topic that was created anew finds no view. Versions of a table are checked for gaps against its head when they are read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, cast

import msgspec
import redis
import structlog
from google.protobuf.message import DecodeError

from libs.config.connections import RedisSettings
from libs.redis.connection import RedisConnection
from libs.types.table import TableId
from services.schema_history.history import RecordedChange, TableHead, decode_recorded

_NEXT_OFFSET: Final = "#next_offset"

# KEYS: heads. ARGV: from, to, field, value, field, value, … Answers 0 where the view does not reach up to `from`.
_EXTEND: Final = """
local at = tonumber(redis.call('HGET', KEYS[1], '#next_offset') or '-1')
if at < tonumber(ARGV[1]) then return 0 end
if at < tonumber(ARGV[2]) then
  for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
  redis.call('HSET', KEYS[1], '#next_offset', ARGV[2])
end
return 1
"""

log = structlog.get_logger()

TableKey = tuple[str, TableId]
"""Source and table."""


class _Head(msgspec.Struct, frozen=True, array_like=True):
    last_version: int
    newest: bytes


@dataclass(frozen=True, slots=True)
class ViewContents:
    """What a start gets from the view."""

    heads: Mapping[TableKey, TableHead]
    next_offset: int
    """Everything in the log below this offset is contained."""


class HistoryView:
    """The view of one topic. No method raises when Redis is away: it answers nothing and says so in ``unavailable``."""

    def __init__(self, settings: RedisSettings, topic_id: str) -> None:
        self._connection = RedisConnection(settings)
        self._redis = self._connection.client
        self._prefix = f"{{headwater:schema_history:{topic_id}}}"
        self._heads_key = f"{self._prefix}:heads"

    @property
    def unavailable(self) -> str | None:
        """Why Redis does not answer; None while it does."""
        return self._connection.unavailable

    async def load(self) -> ViewContents | None:
        """Heads and offset; None where the view is empty, broken or out of reach."""
        if self._connection.is_away():
            return None
        try:
            stored = cast(dict[bytes, bytes], await self._redis.hgetall(self._heads_key))
        except (redis.RedisError, OSError) as error:
            self._connection.note_away(error)
            return None
        self._connection.note_back()
        next_offset = stored.pop(_NEXT_OFFSET.encode(), None)
        if next_offset is None:
            return None
        try:
            heads = {_parse_field(field): _decode_head(value) for field, value in stored.items()}
            return ViewContents(heads, int(next_offset))
        except (ValueError, msgspec.DecodeError, DecodeError) as error:
            log.warning("schema_view_discarded", reason=str(error))
            return None

    async def versions(self, key: TableKey, wanted: Iterable[int]) -> dict[int, RecordedChange]:
        """Those of the ``wanted`` versions of a table that the view holds."""
        numbers = list(wanted)
        if not numbers or self._connection.is_away():
            return {}
        try:
            answer = await self._redis.hmget(self._versions_key(key), [str(number) for number in numbers])
            self._connection.note_back()
            found = (decode_recorded(wire) for wire in cast(list[bytes | None], answer) if wire is not None)
            return {change.version: change for change in found if (change.source, change.table_id) == key}
        except (redis.RedisError, OSError) as error:
            self._connection.note_away(error)
        except (ValueError, DecodeError) as error:
            log.warning("schema_view_discarded", reason=str(error))
        return {}

    async def extend(
        self,
        from_offset: int,
        to_offset: int,
        changes: Iterable[RecordedChange],
        heads: Mapping[TableKey, TableHead],
    ) -> bool | None:
        """Add what came between two offsets. False: the view does not reach to ``from_offset``; None: Redis is away.

        ``changes`` and ``heads`` are at least those that the offsets span. A view that reaches to ``to_offset``
        already stays as it is: another instance was faster.
        """
        if self._connection.is_away():
            return None
        try:
            await self._write_versions(changes)
            pairs = [part for key, head in heads.items() for part in (_field(key), _encode_head(head))]
            reaches = await self._redis.eval(_EXTEND, 1, self._heads_key, from_offset, to_offset, *pairs)
        except (redis.RedisError, OSError) as error:
            self._connection.note_away(error)
            return None
        self._connection.note_back()
        return bool(reaches)

    async def replace(
        self, next_offset: int, changes: Iterable[RecordedChange], heads: Mapping[TableKey, TableHead]
    ) -> bool:
        """Write the whole view anew; False: Redis is away."""
        if self._connection.is_away():
            return False
        try:
            await self._write_versions(changes)
            async with self._redis.pipeline(transaction=True) as pipeline:
                pipeline.delete(self._heads_key)
                for key, head in heads.items():
                    pipeline.hset(self._heads_key, _field(key), _encode_head(head))
                pipeline.hset(self._heads_key, _NEXT_OFFSET, str(next_offset))
                await pipeline.execute()
        except (redis.RedisError, OSError) as error:
            self._connection.note_away(error)
            return False
        self._connection.note_back()
        return True

    async def _write_versions(self, changes: Iterable[RecordedChange]) -> None:
        """Before the heads, so that no head tells of a version that is not there."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            for change in changes:
                key = self._versions_key((change.source, change.table_id))
                pipeline.hset(key, str(change.version), change.wire)
            await pipeline.execute()

    def _versions_key(self, key: TableKey) -> str:
        return f"{self._prefix}:versions:{_field(key)}"

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()


def _field(key: TableKey) -> str:
    source, table_id = key
    return "\0".join((source, table_id.database, table_id.table))


def _parse_field(field: bytes) -> TableKey:
    source, database, table = field.decode().split("\0")
    return source, TableId(database=database, table=table)


def _encode_head(head: TableHead) -> bytes:
    return msgspec.msgpack.encode(_Head(head.last_version, head.newest.wire))


def _decode_head(value: bytes) -> TableHead:
    stored = msgspec.msgpack.decode(value, type=_Head)
    return TableHead(newest=decode_recorded(stored.newest), last_version=stored.last_version)
