"""Kafka's record batches, format 2: columns of keys, values and headers into the bytes of a produce request. Plain functions.

A batch is written from whole columns at once, with no object for a record: librdkafka copies each record and allocates each
header; aiokafka's builder is called for each record and compresses lz4 at one of its slowest levels (ADR 10 has the figures).
The format: Kafka documentation, "Message Format", https://kafka.apache.org/documentation/#recordbatch. The checksum and
the compressors, but for lz4's, are aiokafka's.
"""

import itertools
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import lz4.frame
from aiokafka.codec import gzip_encode, snappy_encode, zstd_encode
from aiokafka.record.util import calc_crc32c

from libs.events.varint import varint
from services.router.record_bytes import encode_records, total_size


class Records(NamedTuple):
    """Records as columns of one length, in order."""

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    """None: a tombstone."""
    headers: Sequence[bytes]
    """Of each record all, as ``join_headers`` wrote them; rows may share one object."""


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
        """All of ``records``, behind the others."""
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

MAX_BATCH_BYTES: Final = 1_000_000
"""A batch's records before compression, one larger record aside; brokers take 1,048,588 by default (``message.max.bytes``)."""
MAX_BATCH_RECORDS: Final = 10_000
_RECORD_OVERHEAD: Final = 20
"""At most: the lengths of record, key and value, the attributes, the timestamp and the place in the batch."""


def records_size(records: Records, payload_bytes: int) -> int:
    """Bytes that the records take in a batch before compression, at most; ``payload_bytes`` of them are keys and values."""
    return payload_bytes + total_size(records.headers) + _RECORD_OVERHEAD * len(records.values)


def payload_size(records: Records) -> int:
    """Bytes of keys and values."""
    return total_size(records.keys) + total_size(records.values)


def how_many_fit(records: Records, start: int, room_bytes: int) -> int:
    """How many records, from ``start`` on, take no more than ``room_bytes`` together."""
    sizes = (
        _RECORD_OVERHEAD + len(key or b"") + len(value or b"") + len(headers)
        for key, value, headers in zip(*(column[start:] for column in records), strict=True)
    )
    return bisect_right(list(itertools.accumulate(sizes)), room_bytes)


# --- batches --------------------------------------------------------------------------------------------------------

Compress = Callable[[Iterable[bytes]], bytes]
"""Of the encoded records' pieces."""

_PIECE_BYTES: Final = 64_000
"""Records are encoded and compressed by so many bytes: they stay in the processor's cache, and below the size (128 KiB) from
which on each allocation is mapped anew; whole batches cost 1 µs a record more."""


def _compress_lz4(pieces: Iterable[bytes]) -> bytes:
    """As Kafka wants its frames: blocks that do not hang together. Two steps faster than lz4's default, and 3 % larger."""
    compressor = lz4.frame.LZ4FrameCompressor(compression_level=-2, block_linked=False, auto_flush=True)
    return b"".join((compressor.begin(), *map(compressor.compress, pieces), compressor.flush()))


# Each with Kafka's number for it; gzip and zstd at the level that librdkafka and Java's client take by default.
COMPRESSIONS: Final[dict[str, tuple[int, Compress]]] = {
    "none": (0, b"".join),
    "gzip": (1, lambda pieces: gzip_encode(b"".join(pieces), 6)),
    "snappy": (2, lambda pieces: snappy_encode(b"".join(pieces))),
    "lz4": (3, _compress_lz4),
    "zstd": (4, lambda pieces: zstd_encode(b"".join(pieces), 3)),
}
_IS_TRANSACTIONAL: Final = 1 << 4
_OPENING: Final = struct.Struct(">qiibI")
_CHECKED: Final = struct.Struct(">hiqqqhii")
"""What stands behind the checksum and is covered by it, as the records are."""
_UNCOUNTED_BYTES: Final = 12
"""Of the opening: the base offset and the length itself."""
_SET_BY_BROKER: Final = 0
_NO_LEADER_EPOCH: Final = -1
_FORMAT: Final = 2


class Body(NamedTuple):
    """A batch's records, encoded and compressed; the same for every Kafka partition that gets them."""

    codec: int
    data: bytes
    record_count: int


def encode_body(records: Records, *, size_bytes: int, compression: str) -> Body:
    """The records as a batch holds them; ``size_bytes`` is what they take, at least about."""
    codec, compress = COMPRESSIONS[compression]
    return Body(codec, compress(_encoded_pieces(records, size_bytes)), len(records.values))


def _encoded_pieces(records: Records, size_bytes: int) -> Iterator[bytes]:
    count = len(records.values)
    step = max(count * _PIECE_BYTES // size_bytes, 1)
    for start in range(0, count, step):
        yield encode_records(*records, start, min(start + step, count))


class RecordBatch:
    """One batch on its way; to aiokafka's producer it is one of its own BatchBuilders, closed.

    The names with an underscore are those that aiokafka's accumulator calls (aiokafka 0.14.0, producer/message_accumulator.py).
    """

    def __init__(self, body: Body, timestamp_ms: int) -> None:
        self._body = body
        self._size = _OPENING.size + _CHECKED.size + len(body.data)
        self._timestamp_ms = timestamp_ms
        self._producer = (-1, -1, -1)
        self._whole: bytes | None = None

    def size(self) -> int:
        """Bytes in the produce request."""
        return self._size

    def record_count(self) -> int:
        """How many records it holds."""
        return self._body.record_count

    def closed(self) -> bool:
        """Always: nothing is added to it, so it lingers for nothing."""
        return True

    def close(self) -> None:
        """It is."""

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._producer = (producer_id, producer_epoch, base_sequence)

    def _build(self) -> bytes:
        """The batch's bytes; the same at each retry."""
        if self._whole is None:
            codec, data, count = self._body
            attributes, moment = _IS_TRANSACTIONAL | codec, self._timestamp_ms
            checked = _CHECKED.pack(attributes, count - 1, moment, moment, *self._producer, count) + data
            length = _OPENING.size - _UNCOUNTED_BYTES + len(checked)
            checksum = calc_crc32c(checked)
            self._whole = _OPENING.pack(_SET_BY_BROKER, length, _NO_LEADER_EPOCH, _FORMAT, checksum) + checked
            self._body = Body(codec, b"", count)
        return self._whole
