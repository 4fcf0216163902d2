"""The arrived part of an uncommitted transaction: in memory, and on disk when it is large."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from libs.source.spill import out_of_room_named, spill_file
from services.vstream_reader.vevents import VEvents

_MAX_BYTES_IN_MEMORY: Final = 64 << 20
_SEGMENT_HEAD: Final = struct.Struct("<QQQ")  # bytes, first event, event after the last

Segment = tuple[VEvents, int, int]
"""Some events of an answer: from the first to before the last."""


class TransactionStore:
    """The answers that a transaction began in and runs through, in order. Raises DiskFull where the disk is."""

    def __init__(self, spill_dir: Path | None = None, *, max_bytes_in_memory: int = _MAX_BYTES_IN_MEMORY) -> None:
        self._spill_dir = spill_dir
        self._max_bytes = max_bytes_in_memory
        self._segments: list[Segment] = []
        self._bytes = 0
        self._spilled: BinaryIO | None = None
        self.has_rows = False
        """Some event of it may be a row: it is more than a beginning."""

    def add(self, events: VEvents, first: int, last: int) -> None:
        """The events of an answer that belong to the transaction."""
        self.has_rows = self.has_rows or any(events.behind_rows(nth) != nth for nth in range(first, last))
        if self._spilled is None:
            self._segments.append((events, first, last))
            self._bytes += len(events.data)
            if self._bytes > self._max_bytes:
                self._spill()
            return
        self._write(self._spilled, events, first, last)

    def taken(self, events: VEvents, first: int, last: int) -> Iterator[Segment]:
        """Everything of the transaction, which the events given here end; the store is empty afterwards."""
        segments, spilled = self._segments, self._spilled
        self._segments, self._spilled, self._bytes, self.has_rows = [], None, 0, False
        if spilled is None:
            yield from segments
        else:
            with spilled:
                with out_of_room_named(self._spill_dir):
                    spilled.seek(0)  # writes the rest
                yield from _segments_of(spilled)
        yield events, first, last

    def _spill(self) -> None:
        self._spilled = spill_file(self._spill_dir)
        for events, first, last in self._segments:
            self._write(self._spilled, events, first, last)
        self._segments = []

    def _write(self, file: BinaryIO, events: VEvents, first: int, last: int) -> None:
        with out_of_room_named(self._spill_dir):
            file.write(_SEGMENT_HEAD.pack(len(events.data), first, last))
            file.write(events.data)


def _segments_of(file: BinaryIO) -> Iterator[Segment]:
    while head := file.read(_SEGMENT_HEAD.size):
        size, first, last = _SEGMENT_HEAD.unpack(head)
        yield VEvents(file.read(size)), first, last
