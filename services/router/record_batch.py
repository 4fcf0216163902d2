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
from typing import Final, NamedTuple, TypeVar, cast

import lz4.frame
from aiokafka.codec import gzip_encode, snappy_encode, zstd_encode
from aiokafka.record.util import calc_crc32c

from libs.events.varint import varint

_T = TypeVar("_T")


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
    return _LENGTHS[len(text)] + text + _LENGTHS[len(value)] + value


def join_headers(*headers: bytes) -> bytes:
    """A record's headers, in this order."""
    return _LENGTHS[len(headers)] + b"".join(headers)


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
    return payload_bytes + sum(map(len, records.headers)) + _RECORD_OVERHEAD * len(records.values)


def payload_size(records: Records) -> int:
    """Bytes of keys and values."""
    return _total(records.keys) + _total(records.values)


def _total(column: Sequence[bytes | None]) -> int:
    try:
        return sum(map(len, column))  # type: ignore[arg-type]
    except TypeError:  # a None is rare
        return sum(map(len, filter(None, column)))


def how_many_fit(records: Records, start: int, room_bytes: int) -> int:
    """How many records, from ``start`` on, take no more than ``room_bytes`` together."""
    sizes = (
        _RECORD_OVERHEAD + len(key or b"") + len(value or b"") + len(headers)
        for key, value, headers in zip(*(column[start:] for column in records), strict=True)
    )
    return bisect_right(list(itertools.accumulate(sizes)), room_bytes)


def encode_records(records: Records, first_offset: int = 0) -> bytes:
    """The records one behind the other, all of the batch's timestamp, as they stand in a batch of MAX_BATCH_RECORDS at most;
    ``first_offset`` of them are before these."""
    count = len(records.values)
    keys, key_lengths, key_sizes = _framed(records.keys)
    values, value_lengths, value_sizes = _framed(records.values)
    offsets = slice(first_offset, first_offset + count)
    sizes = [
        2 + offset + key + value + headers  # attributes and timestamp: a byte each
        for offset, key, value, headers in zip(
            _OFFSET_SIZES[offsets], key_sizes, value_sizes, map(len, records.headers), strict=True
        )
    ]
    parts = [b""] * (7 * count)
    parts[0::7] = map(_BEGINNINGS.__getitem__, sizes)
    parts[1::7] = _OFFSETS[offsets]
    parts[2::7] = key_lengths
    parts[3::7] = keys
    parts[4::7] = value_lengths
    parts[5::7] = values
    parts[6::7] = records.headers
    return b"".join(parts)


def _framed(column: Sequence[bytes | None]) -> tuple[Sequence[bytes], Iterable[bytes], Iterable[int]]:
    """A column's bytes, the lengths that stand before them, and how much both take."""
    if None in column:
        sizes = [_NULL if item is None else len(item) for item in column]
        items: Sequence[bytes] = [item or b"" for item in column]
    else:
        items = cast(Sequence[bytes], column)
        sizes = list(map(len, items))
    return items, map(_LENGTHS.__getitem__, sizes), map(_FRAMED_SIZES.__getitem__, sizes)


def _varint(number: int) -> bytes:
    """A number, from -1 on, as Kafka writes it: zigzag."""
    return varint(number << 1 if number >= 0 else 1)


class _Kept(dict[int, _T]):
    """A function of a length, whose values for usual lengths are kept."""

    def __init__(self, function: Callable[[int], _T]) -> None:
        self._function = function

    def __missing__(self, length: int) -> _T:
        value = self._function(length)
        if length < _KEPT_LENGTHS:
            self[length] = value
        return value


_KEPT_LENGTHS: Final = 16_384
_LENGTHS: Final = _Kept(_varint)
_FRAMED_SIZES: Final = _Kept(lambda length: max(length, 0) + len(_varint(length)))
# What a record begins with: its length, no attributes, no delay behind the batch's timestamp.
_BEGINNINGS: Final = _Kept(lambda length: _varint(length) + b"\x00\x00")
_OFFSETS: Final = [_varint(offset) for offset in range(MAX_BATCH_RECORDS)]
_OFFSET_SIZES: Final = list(map(len, _OFFSETS))
_NULL: Final = -1
"""In the place of a length."""

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
    keys, values, headers = records
    step = max(len(values) * _PIECE_BYTES // size_bytes, 1)
    for start in range(0, len(values), step):
        end = start + step
        yield encode_records(Records(keys[start:end], values[start:end], headers[start:end]), start)


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
