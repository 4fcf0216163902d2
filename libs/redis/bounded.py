"""redis-py's connections, with a bound on the bytes of an answer.

redis-py (8.1) reads a bulk string of the length that the server names, and arrays of any number of those, into memory.
"""

import asyncio
from typing import Any, Final, cast

import redis
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection

MOST_ANSWER_BYTES: Final = 64 << 20
"""Of one command. The largest are parts of views, some megabytes each."""


def bounded_pool(url: str, **settings: Any) -> ConnectionPool:
    """As ``ConnectionPool.from_url``; an answer that is larger than any raises redis.ConnectionError."""
    pool = ConnectionPool.from_url(url, **settings)
    pool.connection_class = type("BoundedConnection", (_Bounded, pool.connection_class), {})
    return pool


class _Bounded(AbstractConnection):
    """Of TCP, TLS or a socket file: the class beside it says which."""

    _reader: Any

    async def _connect(self) -> None:
        await super()._connect()  # type: ignore[safe-super, no-untyped-call]  # the class beside it has one
        self._reader = _Reader(cast(asyncio.StreamReader, self._reader))

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self._reader, _Reader):
            self._reader.begin_answer()
        return await super().read_response(*args, **kwargs)


class _Reader:
    """A connection's bytes, counted from the begin of an answer. All else is the reader's own."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._left = MOST_ANSWER_BYTES

    def begin_answer(self) -> None:
        self._left = MOST_ANSWER_BYTES

    async def readexactly(self, size: int) -> bytes:
        self._take(size)  # before the first byte is waited for
        return await self._reader.readexactly(size)

    async def readline(self) -> bytes:
        line = await self._reader.readline()
        self._take(len(line))
        return line

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise redis.ConnectionError("an answer is larger than any of Redis' is to Headwater")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)
