"""The Redis side: a view of the log that makes a start cheap, and is never believed over Kafka.

    {headwater:schema_history:<topic id>}:heads           hash: one field a table, its newest change in it, and #next_offset
    {headwater:schema_history:<topic id>}:versions:<…>    hash of one table: version → SchemaChange, of all others

A start reads ``heads`` (one entry for each table) and from Kafka only the records after ``#next_offset``. Heads and
offset share one key, so that they are lost together or not at all; the topic's id is part of every key, so that a
topic that was created again finds no view. Versions of a table are checked for gaps against its head when they are read.
A SchemaChange stands there compressed, as in memory.

With tens of thousands of tables nothing goes through Redis in one piece, because that outlasts every time-out. A head may
be newer than the offset: a record that is read from Kafka again is known then. The opposite must never be.
"""

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar, cast

import msgspec

from libs.config.connections import RedisSettings
from libs.redis.connection import AWAY, UNUSABLE, RedisConnection
from libs.types.table import TableId
from services.schema_history.history import RecordedChange, TableHead, decode_recorded

_NEXT_OFFSET: Final = "#next_offset"
_ITEMS_AT_ONCE: Final = 500
_LEFT_BEHIND_S: Final = 600
"""After so long a half-written view is forgotten whose writer was killed."""

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

_Item = TypeVar("_Item")
TableKey = tuple[str, TableId]
"""Source and table."""


class _Head(msgspec.Struct, frozen=True, array_like=True):
    last_version: int
    newest: bytes


@dataclass(frozen=True, slots=True)
class ViewContents:
    """The view at a start."""

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
            next_offset = cast(bytes | None, await self._redis.hget(self._heads_key, _NEXT_OFFSET))  # before the heads
            heads = await self._load_heads() if next_offset is not None else None
            contents = None
            if heads is not None and next_offset is not None:
                contents = ViewContents(heads, _offset(next_offset))
        except AWAY as error:
            self._connection.note_away(error)
            return None
        except Exception as error:  # somebody else wrote under our keys
            self._connection.note_foreign(self._heads_key, error)
            return None
        self._connection.note_back()
        return contents

    async def _load_heads(self) -> dict[TableKey, TableHead] | None:
        """None: some were lost meanwhile."""
        names = cast(list[bytes], await self._redis.hkeys(self._heads_key))
        names.remove(_NEXT_OFFSET.encode())
        heads = {}
        for part in in_parts(names):
            values = cast(list[bytes | None], await self._redis.hmget(self._heads_key, part))
            for name, value in zip(part, values, strict=True):
                if value is None:
                    return None
                heads[_parse_field(name)] = _decode_head(value)
        return heads

    async def versions(self, key: TableKey, wanted: Iterable[int]) -> dict[int, RecordedChange]:
        """Those of the ``wanted`` versions of a table that the view holds."""
        numbers = list(wanted)
        if not numbers or self._connection.is_away():
            return {}
        try:
            answer = await self._redis.hmget(self._versions_key(key), [str(number) for number in numbers])
            self._connection.note_back()
            found = (decode_recorded(packed) for packed in cast(list[bytes | None], answer) if packed is not None)
            return {change.version: change for change in found if (change.source, change.table_id) == key}
        except AWAY as error:
            self._connection.note_away(error)
        except Exception as error:  # somebody else wrote under our keys
            self._connection.note_foreign(self._versions_key(key), error)
        return {}

    async def extend(
        self,
        from_offset: int,
        to_offset: int,
        changes: Iterable[RecordedChange],
        heads: Mapping[TableKey, TableHead],
    ) -> bool | None:
        """Add the changes between two offsets. False: the view does not reach to ``from_offset``; None: Redis is away.

        ``heads`` are at least those of the tables that the offsets span, ``changes`` those of them that no head holds. A view
        that reaches to ``to_offset`` already stays as it is: another instance was faster.
        """
        if self._connection.is_away():
            return None
        try:
            await self._write_versions(changes)
            pairs = [part for key, head in heads.items() for part in (_field(key), _encode_head(head))]
            reaches = await self._redis.eval(_EXTEND, 1, self._heads_key, from_offset, to_offset, *pairs)
        except UNUSABLE as error:
            self._connection.note_away(error)
            return None
        self._connection.note_back()
        return bool(reaches)

    async def replace(
        self, next_offset: int, changes: Iterable[RecordedChange], heads: Mapping[TableKey, TableHead]
    ) -> bool:
        """Write the whole view again; False: Redis is away."""
        if self._connection.is_away():
            return False
        aside = f"{self._heads_key}:{uuid.uuid4().hex}"
        try:
            await self._write_versions(changes)
            try:
                await self._fill(aside, next_offset, heads)
                async with self._redis.pipeline(transaction=True) as pipeline:
                    pipeline.persist(aside)
                    pipeline.rename(aside, self._heads_key)
                    await pipeline.execute()
            finally:
                await self._redis.delete(aside)
        except UNUSABLE as error:
            self._connection.note_away(error)
            return False
        self._connection.note_back()
        return True

    async def _fill(self, key: str, next_offset: int, heads: Mapping[TableKey, TableHead]) -> None:
        await self._redis.hset(key, _NEXT_OFFSET, str(next_offset))
        await self._redis.expire(key, _LEFT_BEHIND_S)
        for part in in_parts(heads.items()):
            await self._redis.hset(key, mapping={_field(table): _encode_head(head) for table, head in part})

    async def _write_versions(self, changes: Iterable[RecordedChange]) -> None:
        """Before the heads, so that no head names a version that is not there."""
        for part in in_parts(changes):
            async with self._redis.pipeline(transaction=False) as pipeline:
                for change in part:
                    key = self._versions_key((change.source, change.table_id))
                    pipeline.hset(key, str(change.version), change.packed)
                await pipeline.execute()

    def _versions_key(self, key: TableKey) -> str:
        return f"{self._prefix}:versions:{_field(key)}"

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()


def in_parts(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    """So many at a time as Redis takes in well below its time-out (2 s): about 1 MB."""
    left = iter(items)
    while part := list(itertools.islice(left, _ITEMS_AT_ONCE)):
        yield part


def _offset(value: bytes) -> int:
    """Raises ValueError."""
    offset = int(value[:20])
    if offset < 0 or str(offset).encode() != value:
        raise ValueError(f"{value[:20]!r} is no offset")
    return offset


def _field(key: TableKey) -> str:
    source, table_id = key
    return "\0".join((source, table_id.database, table_id.table))


def _parse_field(field: bytes) -> TableKey:
    source, database, table = field.decode().split("\0")
    return source, TableId(database=database, table=table)


def _encode_head(head: TableHead) -> bytes:
    return msgspec.msgpack.encode(_Head(head.last_version, head.newest.packed))


def _decode_head(value: bytes) -> TableHead:
    stored = msgspec.msgpack.decode(value, type=_Head)
    return TableHead(newest=decode_recorded(stored.newest), last_version=stored.last_version)
