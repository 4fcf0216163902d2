"""Kafka's record batches, format 2: the records that ``record_bytes`` encodes into the bytes of a produce request.

Records are encoded as they come, with no object for one: librdkafka copies each record and allocates each header; aiokafka's
builder is called for each record and compresses lz4 at one of its slowest levels (ADR 10 has the figures). The format: Kafka
documentation, "Message Format", https://kafka.apache.org/documentation/#recordbatch. The compressors, but for lz4's, are
aiokafka's; the checksum is by the processor's own instruction, a fourteenth of the time of aiokafka's.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import google_crc32c
import lz4.frame
from aiokafka.codec import gzip_encode, snappy_encode, zstd_encode

from libs.events.varint import varint
from services.router.records.record_bytes import BatchRecords, PassedRows, total_size


class Records(NamedTuple):
    """Records as columns of one length, in order."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    """None: a tombstone."""
    headers: Sequence[bytes]
    """Of each record all, as ``join_headers`` wrote them; rows may share one object."""


NO_RECORDS: Final = Records((), (), ())


class GrowingRecords:
    """Records that are gathered."""

    __slots__ = ("headers", "keys", "values")

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[bytes] = []

    def __len__(self) -> int:
        return len(self.values)

    def add(self, key: bytes | None, value: bytes | None, headers: bytes) -> None:
        """One more."""
        self.keys.append(key)
        self.values.append(value)
        self.headers.append(headers)

    def extend(self, records: Records) -> None:
        """All of ``records``, after the others."""
        self.keys.extend(records.keys)
        self.values.extend(records.values)
        self.headers.extend(records.headers)

    @property
    def records(self) -> Records:
        """Those gathered so far, not copied."""
        return Records(self.keys, self.values, self.headers)


def encode_header(name: str, value: bytes) -> bytes:
    """One header, ready for ``join_headers``."""
    text = name.encode()
    return _length(text) + text + _length(value) + value


def join_headers(*headers: bytes) -> bytes:
    """A record's headers, in this order."""
    return _length(headers) + b"".join(headers)


def _length(of: Sequence[object]) -> bytes:
    """As Kafka writes it: zigzag."""
    return varint(len(of) << 1)


def lead_headers(header: bytes, others: bytes) -> bytes:
    """``others``, which ``join_headers`` wrote of fewer than 63 headers, with ``header`` before them."""
    return bytes((others[0] + 2,)) + header + others[1:]  # their number: one byte, zigzag


NO_HEADERS: Final = b"\x00"

# --- records --------------------------------------------------------------------------------------------------------

MAX_SENT_BYTES: Final = 1_000_000
"""A batch as it is sent, one larger record aside; brokers take 1,048,588 by default (``message.max.bytes``). Records that are
not compressed yet count in full, and lz4 makes nothing larger by more than its frame."""
MAX_BATCH_BYTES: Final = 2_000_000
"""Size of a batch's records before compression, which a consumer that reads them as a whole must hold."""
MAX_BATCH_RECORDS: Final = 10_000


def payload_size(records: Records | PassedRows) -> int:
    """Bytes of keys and values."""
    if isinstance(records, PassedRows):
        return records.payload_bytes
    return total_size(records.keys) + total_size(records.values)


# --- batches --------------------------------------------------------------------------------------------------------


class Codec(Protocol):
    """Compresses the records of batches, piece by piece; used by one thread."""

    number: int
    """Kafka's for it."""

    def take_piece(self, piece: memoryview, /) -> bytes:
        """The kept part of a piece."""

    def end(self, pieces: list[bytes], /) -> list[bytes]:
        """A batch's pieces, as the batch holds them one after the other."""


class _Lz4:
    """Frames as Kafka wants them: of blocks that do not hang together. So one compressor makes the blocks of all batches, each
    when its records are there. Two steps faster than lz4's default, and 3 % larger."""

    number = 3
    _END: Final = bytes(4)  # of a frame: a block of no size (LZ4 Frame Format, "EndMark")

    def __init__(self) -> None:
        compressor = lz4.frame.LZ4FrameCompressor(compression_level=-2, block_linked=False, auto_flush=True)
        self._opening = compressor.begin()
        self.take_piece = compressor.compress

    def end(self, pieces: list[bytes], /) -> list[bytes]:
        return [self._opening, *pieces, self._END]


class _AtOnce:
    """A codec that takes a batch as a whole."""

    def __init__(self, number: int, compress: Callable[[bytes], bytes]) -> None:
        self.number = number
        self._compress = compress

    def take_piece(self, piece: memoryview, /) -> bytes:
        return bytes(piece)

    def end(self, pieces: list[bytes], /) -> list[bytes]:
        return [self._compress(b"".join(pieces))]


# gzip and zstd at the level that librdkafka and Java's client take by default.
CODECS: Final[dict[str, Callable[[], Codec]]] = {
    "none": lambda: _AtOnce(0, bytes),
    "gzip": lambda: _AtOnce(1, lambda data: gzip_encode(data, 6)),
    "snappy": lambda: _AtOnce(2, snappy_encode),
    "lz4": _Lz4,
    "zstd": lambda: _AtOnce(4, lambda data: zstd_encode(data, 3)),
}
_IS_TRANSACTIONAL: Final = 1 << 4
_OPENING: Final = struct.Struct(">qiibI")
_CHECKED: Final = struct.Struct(">hiqqqhii")
"""The header after the checksum, which covers it as it covers the records."""
_HEAD_BYTES: Final = _OPENING.size + _CHECKED.size
_UNCOUNTED_BYTES: Final = 12
"""Of the opening: the base offset and the length itself."""
_SET_BY_BROKER: Final = 0
_NO_LEADER_EPOCH: Final = -1
_FORMAT: Final = 2


class Body(NamedTuple):
    """A batch's records, encoded and compressed; the same for every Kafka partition that gets them."""

    codec: int
    pieces: Sequence[bytes]
    """One after the other."""
    record_count: int


def empty_batch(codec: Codec) -> BatchRecords:
    """The records of a batch to be."""
    return BatchRecords(
        codec.take_piece,
        most_bytes=MAX_BATCH_BYTES,
        most_kept_bytes=MAX_SENT_BYTES,
        most_records=MAX_BATCH_RECORDS,
    )


def take_body(records: BatchRecords, codec: Codec) -> Body:
    """The records as a batch holds them; ``records`` is empty afterwards."""
    count = records.record_count
    return Body(codec.number, codec.end(records.take_pieces()), count)


class RecordBatch:
    """One batch on its way; to aiokafka's producer it is one of its own BatchBuilders, closed.

    The names with an underscore are those that aiokafka's accumulator calls (aiokafka 0.14.0, producer/message_accumulator.py).
    """

    def __init__(self, body: Body, timestamp_ms: int) -> None:
        self._body = body
        self._size = _HEAD_BYTES + sum(map(len, body.pieces))
        self._timestamp_ms = timestamp_ms
        self._producer = (-1, -1, -1)
        self._whole: bytearray | None = None

    def size(self) -> int:
        """Bytes in the produce request."""
        return self._size

    def record_count(self) -> int:
        """How many records it holds."""
        return self._body.record_count

    @property
    def base_sequence(self) -> int:
        """Of its records, in the producer's count for the Kafka partition; -1 until it is sent."""
        return self._producer[2]

    def closed(self) -> bool:
        """Always: nothing is added to it, so it lingers for nothing."""
        return True

    def close(self) -> None:
        """It is."""

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._producer = (producer_id, producer_epoch, base_sequence)

    def _build(self) -> bytearray:
        """The batch's bytes; the same at each retry."""
        if self._whole is None:
            codec, pieces, count = self._body
            attributes, moment = _IS_TRANSACTIONAL | codec, self._timestamp_ms
            # Joined once, in place: copies of a megabyte cost more than all other work for a batch.
            self._whole = bytearray().join((bytes(_HEAD_BYTES), *pieces))
            _CHECKED.pack_into(
                self._whole, _OPENING.size, attributes, count - 1, moment, moment, *self._producer, count
            )
            checksum = google_crc32c.value(bytes(self._whole[_OPENING.size : _HEAD_BYTES]))
            for piece in pieces:
                checksum = google_crc32c.extend(checksum, piece)
            length = len(self._whole) - _UNCOUNTED_BYTES
            _OPENING.pack_into(self._whole, 0, _SET_BY_BROKER, length, _NO_LEADER_EPOCH, _FORMAT, checksum)
            self._body = Body(codec, (), count)
        return self._whole
