"""The batches that a lane holds and has not routed: put in by Faust's agent, taken out by the lane's thread."""

import asyncio
import collections
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from services.router.settings import LaneSettings
from services.router.transactions.outputs import WaitingBatch


class Inbox:
    """Bounded by batches and bytes. The agent's event loop calls ``put`` and ``close``.

    The lane's thread calls ``take``, ``rest`` and ``drop_all``."""

    def __init__(self, settings: LaneSettings) -> None:
        self._settings = settings
        self._waiting: collections.deque[WaitingBatch] = collections.deque()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        """Of the waiting batches."""
        self.is_closing = False
        """The lane is to close: it takes nothing more."""
        self._is_dropping = False
        """Another owner, or this one after the next assignment, reads the batches again."""
        self._agent_loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._lane_loop: asyncio.AbstractEventLoop | None = None
        """None until the thread runs."""
        self._work = asyncio.Event()
        """Of the thread's loop: something waits, or the lane shall close."""

    # --- the agent's side

    async def wait_for_room(self, payload_bytes: int) -> None:
        """Return when a batch of this size has room; at once when batches are dropped."""
        while not self._has_room(payload_bytes):
            self._room.clear()
            if self._has_room(payload_bytes):
                return
            await self._room.wait()

    async def put(self, batch: WaitingBatch) -> None:
        """Waits for room. A closing lane, or one that drops its batches, drops this one too."""
        await self.wait_for_room(len(batch.payload))
        if self.is_closing or self._is_dropping:
            return
        with self._lock:
            self._waiting.append(batch)
            self._waiting_bytes += len(batch.payload)
        self.wake_lane()

    def _has_room(self, size: int) -> bool:
        settings = self._settings
        if self.is_closing or self._is_dropping or not self._waiting:
            return True
        return len(self._waiting) < settings.queued_batches and self._waiting_bytes + size <= settings.queued_bytes

    def close(self) -> None:
        """The lane takes nothing more."""
        self.is_closing = True
        self.wake_lane()
        self._room.set()

    # --- from any thread

    def wake_lane(self) -> None:
        """As if a batch had come."""
        self.call_in_lane(self._work.set)

    def call_in_lane(self, function: Callable[[], None]) -> None:
        """In the thread's loop, while there is one."""
        if self._lane_loop is not None:
            call_in(self._lane_loop, function)

    def wake_agent(self) -> None:
        """There may be room."""
        call_in(self._agent_loop, self._room.set)

    # --- the thread's side

    def open(self) -> None:
        """In the thread's running loop."""
        self._lane_loop = asyncio.get_running_loop()

    async def take(self, at_most: int, on_waking: Callable[[], None]) -> list[WaitingBatch]:
        """Waiting batches; waits for the first, and calls ``on_waking`` each time that it is woken. Empty: the lane is to
        close."""
        while not self._waiting and not self.is_closing:
            self._work.clear()
            if not self._waiting and not self.is_closing:
                await self._work.wait()
                on_waking()
        if self.is_closing:
            return []
        with self._lock:
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), at_most))]
            self._waiting_bytes -= sum(len(batch.payload) for batch in taken)
        self.wake_agent()
        return taken

    async def rest(self, pause_s: float) -> None:
        """Return after a pause, or sooner when the lane shall close."""
        deadline_s = time.monotonic() + pause_s
        while not self.is_closing and (left_s := deadline_s - time.monotonic()) > 0:
            self._work.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._work.wait()

    def drop_all(self) -> None:
        """Those that wait, and all that come."""
        self._is_dropping = True
        with self._lock:
            self._waiting.clear()
            self._waiting_bytes = 0
        self.wake_agent()


def call_in(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Call ``function`` in another thread's loop; not at all where the loop has ended, because nobody waits any more."""
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        return
