"""The answers of a main stream, and of a second one beside it, read ahead of their decoders."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol

from libs.errors import HeadwaterError, SourceUnavailable
from protos.vitess import vtgate_pb2
from services.vstream_reader.decode import StreamDecoder

ANSWERS_AHEAD: Final = 8
"""Answers between vtgate and the decoder; a tablet's packet is 250 KB unless one row is larger. More would only be memory: both
ends are in one thread."""
_MISSED_HEARTBEATS: Final = 3
_SLACK_S: Final = 2.0
_SILENT_TURNS: Final = 4


class Streams(Protocol):
    """Where streams come from: ``client.Vtgate``."""

    def stream(self, request: vtgate_pb2.VStreamRequest) -> AsyncGenerator[bytes, None]:
        """The answers, serialised; ends where vtgate ends it, or raises a HeadwaterError."""
        ...


@dataclass(frozen=True, slots=True)
class Arrived:
    """A stream's item: an answer, its end (neither), or why a second stream failed."""

    decoder: StreamDecoder
    answer: bytes | None
    error: HeadwaterError | None = None


@dataclass(slots=True)
class _Reading:
    """A stream that is being read."""

    task: asyncio.Task[None] | None = None
    is_waiting: bool = False
    """For vtgate: not for the decoder, which may lag."""
    has_heard: bool = False
    """An answer has come in this turn."""
    silent_turns: int = 0
    """In a row."""


class Answers:
    """An async context: both streams end with it.

    A stream without heartbeats counts as lost, in spite of answers of the other.
    """

    def __init__(self, vtgate: Streams, heartbeat_s: float) -> None:
        self._vtgate = vtgate
        self._silent_s = _MISSED_HEARTBEATS * heartbeat_s + _SLACK_S
        self._queue: asyncio.Queue[Arrived] = asyncio.Queue(ANSWERS_AHEAD)
        self._readings: dict[StreamDecoder, _Reading] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._main: StreamDecoder | None = None
        self.waiting_bytes = 0
        """Of answers that were read and not decoded yet."""

    async def __aenter__(self) -> "Answers":
        self._begin(self._watch())
        return self

    async def __aexit__(self, *raised: object) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def open(self, decoder: StreamDecoder, request: vtgate_pb2.VStreamRequest) -> None:
        """Read a stream for ``decoder``; the first is the main one."""
        self._main = self._main or decoder
        reading = self._readings[decoder] = _Reading()
        reading.task = self._begin(self._read(decoder, request, reading))

    def end(self, decoder: StreamDecoder) -> None:
        """Read no more for it; answers already read still come."""
        reading = self._readings.pop(decoder)
        assert reading.task is not None
        reading.task.cancel()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def waiting(self) -> int:
        """Answers that were read and not decoded yet."""
        return self._queue.qsize()

    async def next(self, timeout_s: float) -> Arrived | None:
        """The next item; None: nothing came within ``timeout_s``.

        Raises as ``Vtgate.stream`` for the main stream, and SourceUnavailable when it is silent: not even heartbeats came.
        An error of a second stream is an item like others.
        """
        try:
            arrived = self._queue.get_nowait()
        except asyncio.QueueEmpty:
            try:
                async with asyncio.timeout(timeout_s):  # wait_for makes a task each time
                    arrived = await self._queue.get()
            except TimeoutError:
                return None
        self.waiting_bytes -= len(arrived.answer or b"")
        if arrived.decoder is self._main and arrived.error is not None:
            raise arrived.error
        return arrived

    async def _watch(self) -> None:
        """Counts turns, not seconds: while the process had no time for its streams, it had none for a turn either."""
        while True:
            await asyncio.sleep(self._silent_s / _SILENT_TURNS)
            for decoder, reading in list(self._readings.items()):
                is_silent = reading.is_waiting and not reading.has_heard
                reading.silent_turns = reading.silent_turns + 1 if is_silent else 0
                reading.has_heard = False
                if reading.silent_turns == _SILENT_TURNS and reading.task is not None:
                    reading.task.cancel()
                    await self._queue.put(Arrived(decoder, None, self._silence()))

    def _silence(self) -> SourceUnavailable:
        return SourceUnavailable(
            f"vtgate sent nothing for {self._silent_s:.0f} s, not even a heartbeat: the stream counts as lost"
        )

    async def _read(self, decoder: StreamDecoder, request: vtgate_pb2.VStreamRequest, reading: _Reading) -> None:
        try:
            async with aclosing(self._vtgate.stream(request)) as stream:
                reading.is_waiting = True
                async for answer in stream:
                    reading.is_waiting, reading.has_heard = False, True
                    await self._queue.put(Arrived(decoder, answer))
                    self.waiting_bytes += len(answer)
                    reading.is_waiting = True
            reading.is_waiting = False
            await self._queue.put(Arrived(decoder, None))
        except HeadwaterError as error:
            reading.is_waiting = False
            await self._queue.put(Arrived(decoder, None, error))
