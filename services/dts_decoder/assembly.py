"""Kafka messages → whole Entries: DTS's own count is checked, repeats are dropped, messages in parts are joined.

One ``Assembler`` for each Kafka partition; all parts of one message stand in one partition, one after another. It talks to
nobody. Parts of a large message wait in a file: memory is bounded for any message.

The rules: seed document 004 ("message consumption", steps 4 to 6); the header ``ps`` with its gaps and
repeats: ``tests/golden/cases/g_tencent_dts.json``, ``stream_scenarios``.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from libs.errors import PositionPurged, UndecodableMessage
from libs.source.spill import out_of_room_named, spill_file
from protos.dts.subscription_pb2 import Envelope
from services.dts_decoder.messages import read_envelope

ENVELOPE_VERSION: Final = 1
_RELEASED_AT_ONCE: Final = 8 << 20
_PAGE: Final = mmap.PAGESIZE


@dataclass(frozen=True, slots=True)
class KafkaMessage:
    """One message of the subscription's topic."""

    topic: str
    partition: int
    offset: int
    ps: bytes | None
    """Header ``ps``: DTS's count of the partition's messages, as decimal text."""
    value: bytes

    @property
    def place(self) -> str:
        """Where it stands, for a person."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(slots=True)
class WholeMessage:
    """Serialised Entries, complete."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    ps: int
    """Of the last part."""
    data: memoryview | bytes | mmap.mmap
    released: int = 0

    @property
    def place(self) -> str:
        """Where it stands, for a person."""
        parts = f"…{self.last_offset}" if self.last_offset != self.first_offset else ""
        return f"{self.topic}[{self.partition}]@{self.first_offset}{parts}"

    def release(self, done: int) -> None:
        """The first ``done`` bytes are not read any more: of a message in a file they leave memory."""
        if isinstance(self.data, mmap.mmap) and done - self.released >= _RELEASED_AT_ONCE:
            until = done // _PAGE * _PAGE
            self.data.madvise(mmap.MADV_DONTNEED, self.released, until - self.released)
            self.released = until


@dataclass(frozen=True, slots=True)
class _Part:
    offset: int
    begin: int
    end: int


@dataclass(slots=True)
class _Split:
    """A message whose parts are coming."""

    total: int
    parts: list[_Part] = field(default_factory=list)
    held: list[bytes] = field(default_factory=list)
    file: BinaryIO | None = None
    size: int = 0


class Assembler:
    """Joins the messages of one partition. See the module.

    ``last_ps``: of the message before the first one; None: any number may come first. With ``begins_anywhere`` the rest of a
    message whose first parts are not there is passed over: only right where reading begins at a place of no meaning, and
    the messages there were read otherwise.
    """

    def __init__(
        self,
        *,
        last_ps: int | None,
        spill_bytes: int,
        max_bytes: int,
        spill_dir: Path | None = None,
        begins_anywhere: bool = False,
    ) -> None:
        self.last_ps = last_ps
        self.repeats = 0
        """Messages dropped because their count had come already."""
        self.discarded = 0
        """Messages in parts that DTS began again before they were complete."""
        self._spill_bytes = spill_bytes
        self._max_bytes = max_bytes
        self._spill_dir = spill_dir
        self._begins_anywhere = begins_anywhere
        self._split: _Split | None = None

    @property
    def parts_waiting(self) -> int:
        """Parts of a message that is not complete."""
        return len(self._split.parts) if self._split is not None else 0

    def take(self, message: KafkaMessage) -> WholeMessage | None:
        """The whole message that ``message`` completes, if it does.

        Raises:
            DiskFull: the parts of a large message find no room; make some, and read again.
            UndecodableMessage: it breaks the protocol, and the parts that wait for it cannot be completed either:
                ``set_aside`` gives both out. The next message may be taken.
            PositionPurged: messages between the last one and this one are lost.
        """
        ps = self._count(message)
        if self.last_ps is not None and ps <= self.last_ps:
            self.repeats += 1
            return None
        if self.last_ps is not None and ps != self.last_ps + 1:
            raise PositionPurged(
                f"{message.place}: messages {self.last_ps + 1} to {ps - 1} of DTS's count are missing before it "
                f"(ps {ps} follows {self.last_ps}): re-snapshot the source"
            )
        self.last_ps = ps
        try:
            version, total, index, begin, end = read_envelope(message.value)
        except ValueError as error:
            raise UndecodableMessage(f"{message.place}: no Envelope: {error}") from error
        if version != ENVELOPE_VERSION:
            raise UndecodableMessage(
                f"{message.place}: Envelope version {version}, where {ENVELOPE_VERSION} is known: set the subscription to "
                "ProtoBuf, or upgrade Headwater"
            )
        if index >= total:
            raise UndecodableMessage(f"{message.place}: part {index} of {total}")
        if index == 0:
            self._discard()
            self._begins_anywhere = False
            if total == 1:
                data = memoryview(message.value)[begin:end]
                return WholeMessage(message.topic, message.partition, message.offset, message.offset, ps, data)
            self._split = _Split(total)
        return self._take_part(message, total, index, begin, end, ps)

    def _take_part(
        self, message: KafkaMessage, total: int, index: int, begin: int, end: int, ps: int
    ) -> WholeMessage | None:
        split = self._split
        if split is None:
            if self._begins_anywhere:
                return None
            raise UndecodableMessage(f"{message.place}: part {index} of {total}, and part 0 is missing before it")
        if total != split.total:
            raise UndecodableMessage(f"{message.place}: part {index} of {total}, where {split.total} were announced")
        if index != len(split.parts):
            raise UndecodableMessage(
                f"{message.place}: part {index} of {total}, where part {len(split.parts)} should follow"
            )
        if split.size + end - begin > self._max_bytes:
            raise UndecodableMessage(
                f"{message.place}: a message in parts of more than {self._max_bytes >> 20} MB "
                "(subscription.max_message_bytes)"
            )
        split.parts.append(_Part(message.offset, split.size, split.size + end - begin))
        split.size += end - begin
        self._hold(split, message.value[begin:end])
        if index < total - 1:
            return None
        self._split = None
        return WholeMessage(message.topic, message.partition, split.parts[0].offset, message.offset, ps, _joined(split))

    def set_aside(self) -> Iterator[tuple[int, bytes]]:
        """Offset and value of the parts that wait in vain; nothing waits any more."""
        split, self._split = self._split, None
        if split is None or not split.size:
            return
        data = memoryview(_joined(split))
        for index, part in enumerate(split.parts):
            part_data = bytes(data[part.begin : part.end])
            yield (
                part.offset,
                Envelope(version=ENVELOPE_VERSION, total=split.total, index=index, data=part_data).SerializeToString(),
            )

    def _count(self, message: KafkaMessage) -> int:
        text = message.ps
        if text is None:
            raise UndecodableMessage(f"{message.place}: no header ps (DTS's count of messages): is this a DTS topic?")
        if not text.isdigit() or len(text) > 20:
            raise UndecodableMessage(f"{message.place}: the header ps (DTS's count of messages) is no number")
        return int(text)

    def _discard(self) -> None:
        if self._split is not None:
            self._split = None
            self.discarded += 1

    def _hold(self, split: _Split, data: bytes) -> None:
        if split.file is None:
            split.held.append(data)
            if split.size > self._spill_bytes:
                split.file = spill_file(self._spill_dir)
                data = b"".join(split.held)
                split.held.clear()
        if split.file is not None:
            with out_of_room_named(self._spill_dir):
                split.file.write(data)


def _joined(split: _Split) -> bytes | mmap.mmap:
    if split.file is None:
        return b"".join(split.held)
    split.file.flush()
    with split.file:  # the mapping keeps the file
        return mmap.mmap(split.file.fileno(), split.size, access=mmap.ACCESS_READ)
