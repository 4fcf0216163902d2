"""The batches between a reader's event loop and its publishing thread."""

import asyncio
import queue
import threading
import time
from typing import Final

from libs.source.port import ReadBatch
from libs.telemetry import metrics
from libs.types.position import SourcePartition

_QUEUED_BATCHES: Final = 24
_QUEUED_BYTES: Final = 4 << 20
"""Batches and bytes between decoder and producer; one batch larger than that still passes, alone. As much as is decoded while
a transaction is committed: more would only be memory."""


class PublishQueue:
    """Bounded by batches and bytes. The event loop puts, the thread takes; each wakes the other."""

    def __init__(self, partition: SourcePartition) -> None:
        self._labels = (partition.source, partition.name)
        self._queue: queue.Queue[ReadBatch | None] = queue.Queue(_QUEUED_BATCHES)
        metrics.PUBLISH_QUEUE_BATCHES_CAPACITY.labels(*self._labels).set(_QUEUED_BATCHES)
        metrics.PUBLISH_QUEUE_BYTES_CAPACITY.labels(*self._labels).set(_QUEUED_BYTES)
        self._queued_bytes = 0
        self._counting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._taken = asyncio.Event()
        self._is_awaited = False
        """``put`` waits for room: the thread says when it has taken something."""

    # --- the event loop's side

    def open(self) -> None:
        """In the running event loop, before anything else."""
        self._loop = asyncio.get_running_loop()

    async def put(self, batch: ReadBatch) -> bool:
        """Put ``batch`` in where there is room; else wait for a change, and return False: ask again."""
        if self._put(batch):
            return True
        self._is_awaited = True
        if self._put(batch):  # once more: the thread may have taken the last one right before
            return True
        await self._taken.wait()
        self._taken.clear()
        return False

    def _put(self, batch: ReadBatch) -> bool:
        if self._queued_bytes and self._queued_bytes + len(batch.payload) > _QUEUED_BYTES:
            return False
        try:
            self._queue.put_nowait(batch)
        except queue.Full:
            return False
        self._count(len(batch.payload))
        return True

    def wake(self) -> None:
        """Let a waiting ``put`` return."""
        self._taken.set()

    def end(self, thread: threading.Thread, deadline_s: float) -> None:
        """Have the thread stop after what it was given. Blocks until then, ``time.monotonic()``, at most."""
        while thread.is_alive() and time.monotonic() < deadline_s:
            try:
                self._queue.put(None, timeout=0.1)
            except queue.Full:
                continue
            break

    # --- the thread's side

    def take(self) -> ReadBatch | None:
        """The next batch; waits for it. None: stop."""
        return self._queue.get()

    def take_waiting(self) -> ReadBatch | None:
        """The next batch. None: stop. Raises queue.Empty where none waits."""
        return self._queue.get_nowait()

    def count_taken(self, batch: ReadBatch) -> None:
        """It makes room for others, because it is published from now on."""
        self._count(-len(batch.payload))
        if self._is_awaited and batch.payload and self._loop is not None:
            self._is_awaited = False
            self._loop.call_soon_threadsafe(self._taken.set)

    def _count(self, change_bytes: int) -> None:
        with self._counting:  # += from two threads
            self._queued_bytes += change_bytes
        metrics.PUBLISH_QUEUE_BYTES.labels(*self._labels).set(self._queued_bytes)
        metrics.PUBLISH_QUEUE_BATCHES.labels(*self._labels).set(self._queue.qsize())
