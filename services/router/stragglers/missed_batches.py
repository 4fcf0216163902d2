"""The missed batches of tenants that lag: from memory where they are recent, else from the changes topic."""

import collections
import threading
import time
from collections.abc import Sequence
from typing import Final

from aiokafka import TopicPartition
from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as OffsetOf

from libs.errors import HeadwaterError, ServiceUnavailable
from libs.kafka.clients import client_config
from services.router.transactions.outputs import LaneDependencies, WaitingBatch

_TURN_BATCHES: Final = 32
_TURN_BYTES: Final = 2_000_000
_KEPT_BYTES: Final = 8_000_000
_READ_TIMEOUT_S: Final = 10.0
_POLL_S: Final = 0.5


class ChangesLost(HeadwaterError):
    """A tenant's missed batches are no longer in the changes topic."""


class RecentBatches:
    """The changes topic's latest batches, so that tenants with a small lag do not read them again. Thread-safe."""

    def __init__(self, most_bytes: int = _KEPT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._chunks: collections.deque[tuple[int, int, tuple[WaitingBatch, ...]]] = collections.deque()
        """From one offset up to another, all that is committed between the two; the newest last."""
        self._size_bytes = 0

    def add(self, start: int, end: int, batches: Sequence[WaitingBatch]) -> None:
        """Keep all that is committed at ``start`` and above, and below ``end``."""
        with self._lock:
            self._chunks.append((start, end, tuple(batches)))
            self._size_bytes += sum(len(batch.payload) for batch in batches)
            while self._size_bytes > self._most_bytes:
                self._size_bytes -= sum(len(batch.payload) for batch in self._chunks.popleft()[2])

    def between(self, start: int, end: int) -> list[WaitingBatch] | None:
        """All that is committed at ``start`` and above, and below ``end``; None: not all of it is here."""
        found: list[WaitingBatch] = []
        while start < end:
            chunk = self._chunk_at(start)
            if chunk is None:
                return None
            found.extend(batch for batch in chunk[2] if start <= batch.offset < end)
            start = chunk[1]
        return found

    def at(self, start: int, end: int) -> list[WaitingBatch]:
        """The first batches at ``start`` and above, and below ``end``, as far as they are here in one piece."""
        chunk = self._chunk_at(start)
        return [] if chunk is None else [batch for batch in chunk[2] if start <= batch.offset < end]

    def _chunk_at(self, offset: int) -> tuple[int, int, tuple[WaitingBatch, ...]] | None:
        with self._lock:
            return next((chunk for chunk in reversed(self._chunks) if chunk[0] <= offset < chunk[1]), None)


class MissedBatches:
    """Of one partition. Its lane says how far there are any; one thread at a time reads from Kafka."""

    def __init__(self, place: TopicPartition, shared: LaneDependencies) -> None:
        self._place = place
        self._shared = shared
        self.recent = RecentBatches()
        self.end = 0
        """The lane's offset: records below it are committed, and done for the others."""
        self.is_closing = False
        """Nothing more is to be read."""
        self._reading = threading.Lock()
        self._consumer: Consumer | None = None
        self._reads_at: int | None = None

    def read(self, start: int) -> list[WaitingBatch]:
        """The next batches at and above an offset, as many as a turn takes. Blocks.

        Raises:
            ServiceUnavailable: Kafka does not give them.
            ChangesLost: Kafka has deleted them.
        """
        end = self.end
        found = self.recent.at(start, end)
        if not found and start < end:
            with self._reading:
                found = self.recent.at(start, end) or self._fetch(start, end)
        taken, size_bytes = [], 0
        for batch in found[:_TURN_BATCHES]:
            taken.append(batch)
            size_bytes += len(batch.payload)
            if size_bytes > _TURN_BYTES:
                break
        return taken

    def _fetch(self, start: int, end: int) -> list[WaitingBatch]:
        """Raises as ``read``."""
        consumer = self._consumer = self._consumer or _open_consumer(self._shared)
        if self._reads_at != start:
            consumer.assign([OffsetOf(self._place.topic, self._place.partition, start)])
        self._reads_at = None
        batches: list[WaitingBatch] = []
        size_bytes, deadline_s = 0, time.monotonic() + _READ_TIMEOUT_S
        while len(batches) < _TURN_BATCHES and size_bytes < _TURN_BYTES:
            message = consumer.poll(_POLL_S)
            if message is None:
                if time.monotonic() > deadline_s or self.is_closing:
                    break
                continue
            if (error := message.error()) is not None:
                if error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise ChangesLost(
                        f"the records from offset {start} of {self._place.topic} on, not yet delivered, were deleted by its "
                        "retention; take the tenant's document away and put it back, then resync its tables"
                    )
                raise ServiceUnavailable(f"{self._place.topic} cannot be read: {error}")
            offset, value = message.offset(), message.value()
            if offset is None:
                continue
            batches.append(WaitingBatch(offset, value or b""))
            size_bytes += len(value or b"")
            if offset + 1 >= end:
                break
        if not batches:
            raise ServiceUnavailable(f"{self._place.topic} gave nothing at offset {start} in time")
        self._reads_at = batches[-1].offset + 1
        self.recent.add(start, self._reads_at, batches)
        return [batch for batch in batches if batch.offset < end]


def _open_consumer(shared: LaneDependencies) -> Consumer:
    """Reads from a given offset on; a member of no group."""
    return Consumer(
        client_config(shared.kafka)
        | {
            "group.id": shared.group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": 2_000_000,
            "queued.max.messages.kbytes": 4_096,
        }
    )
