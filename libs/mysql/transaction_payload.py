"""Compressed transactions: a TRANSACTION_PAYLOAD event → the events inside it, a part at a time.

With ``binlog_transaction_compression`` the server writes a transaction's events, from BEGIN to XID, as one event whose body is
a zstd stream. It may hold gigabytes, so it is never whole in memory: it is decompressed as far as some hundred kilobytes of
events need, which are handed over before the next are made.

Layout: MySQL source ``libs/mysql/binlog/event/codecs/binary.cpp`` (fields of type, length and value, then the stream). The
events inside have no checksum and no end position; they are given the place of the event that holds them.
"""

import struct
from collections.abc import Iterator
from typing import IO, BinaryIO, Final

import zstandard

from libs.errors import PipelineHalted
from libs.mysql.binlog_events import END_OFFSET, HEADER_BYTES, read_header, read_packed
from libs.mysql.packets import Packets

_END_OF_FIELDS, _PAYLOAD_SIZE, _COMPRESSION, _SIZE_BEFORE = range(4)
_ZSTD, _NONE = 0, 255
_PART_BYTES: Final = 1 << 18
_MAX_HEADER_BYTES: Final = 64  # four fields of at most 1 + 9 + 9 bytes, and room
_MOST_EVENT_BYTES: Final = (1 << 30) + (1 << 20)
"""``max_allowed_packet`` is 1 GB at most, and an event is a row more than it."""
_POSITION = struct.Struct("<I")


def inner_events(body: BinaryIO, at: int) -> Iterator[Packets]:
    """The events of a compressed transaction, whole ones, some at a time; ``at``: where the event that holds them begins.

    ``body`` is the event's, read from its present place on, after the header; bytes after the stream (a checksum) are cut
    off. A part is at least one event and beyond that about 256 KB.

    Raises:
        PipelineHalted: the stream is damaged, or compressed in a way that this release does not know.
    """
    try:
        yield from whole_events(_decompressed(body, at), f"compressed transaction at {at}", at=at)
    except zstandard.ZstdError as error:
        raise _damaged(f"compressed transaction at {at}", str(error)) from error


def whole_events(stream: IO[bytes], name: str, *, at: int | None = None) -> Iterator[Packets]:
    """Events that stand one after another in ``stream``, whole ones, some at a time; with ``at`` they are given that place.

    Raises PipelineHalted where they are damaged; the message says ``name``.
    """
    rest = b""
    while part := stream.read(_PART_BYTES):
        data = bytearray(rest + part)
        places, end = _whole_events(data, name, at)
        if places:
            yield Packets(bytes(data), places)
        rest = bytes(data[end:])
    if rest:
        raise _damaged(name, "it ends inside an event")


def _decompressed(body: BinaryIO, at: int) -> BinaryIO:
    begin = body.tell()
    head = body.read(_MAX_HEADER_BYTES)
    compression, size, place = _ZSTD, None, 0
    try:
        while head[place] != _END_OF_FIELDS:
            field, place = read_packed(head, place)
            length, place = read_packed(head, place)
            if field == _COMPRESSION:
                compression, _ = read_packed(head, place)
            elif field == _PAYLOAD_SIZE:
                size, _ = read_packed(head, place)
            place += length
    except (IndexError, KeyError) as error:
        raise _damaged(f"compressed transaction at {at}", "its fields do not end") from error
    begin += place + 1
    if size is not None:
        body.truncate(begin + size)  # a checksum may follow it
    body.seek(begin)
    if compression == _NONE:
        return body
    if compression != _ZSTD:
        raise PipelineHalted(
            f"the compressed transaction at {at} has compression type {compression}, which this release does not know: "
            "upgrade, or SET GLOBAL binlog_transaction_compression = OFF and re-snapshot"
        )
    return zstandard.ZstdDecompressor().stream_reader(body, read_size=_PART_BYTES, read_across_frames=True)


def _whole_events(data: bytearray, name: str, at: int | None) -> tuple[list[tuple[int, int]], int]:
    """Where the whole events at the front lie, each with its place written into its header, and where the last of them ends."""
    places: list[tuple[int, int]] = []
    place = 0
    while len(data) - place >= HEADER_BYTES:
        size = read_header(data, place)[3]
        if not HEADER_BYTES <= size <= _MOST_EVENT_BYTES:
            raise _damaged(name, f"it holds an event of {size} bytes")
        if place + size > len(data):
            break
        if at is not None:
            _POSITION.pack_into(data, place + END_OFFSET, (at + size) & 0xFFFFFFFF)
        places.append((place, place + size))
        place += size
    return places, place


def _damaged(name: str, how: str) -> PipelineHalted:
    return PipelineHalted(
        f"the {name} of the log cannot be read: {how}; check the file with mysqlbinlog "
        "--verify-binlog-checksum, then re-snapshot the source"
    )
