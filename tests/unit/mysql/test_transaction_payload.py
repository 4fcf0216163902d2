"""Compressed transactions: however the stream is cut, the events come out whole and in order."""

import io
import struct

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from libs.errors import PipelineHalted
from libs.mysql.binlog_events import HEADER_BYTES, read_header
from libs.mysql.transaction_payload import inner_events


def event(body: bytes) -> bytes:
    return struct.pack("<IBIIIH", 0, 30, 1, HEADER_BYTES + len(body), 0, 0) + body


def payload(stream: bytes, *, compression: int = 0, has_checksum: bool = False) -> io.BytesIO:
    """As a server writes it: size, compression, size before, end mark, stream."""
    packed = bytes((compression,)) if compression < 251 else b"\xfc" + struct.pack("<H", compression)
    size = b"\x01\x04\xfd" + len(stream).to_bytes(3, "little")
    head = size + bytes((2, len(packed))) + packed + b"\x03\x01\x05\x00"
    return io.BytesIO(head + stream + b"\x28\xb5\x2f\xfd" * has_checksum)


def read(body: io.BytesIO) -> list[bytes]:
    return [packets.data[begin:end] for packets in inner_events(body, at=1000) for begin, end in packets]


@given(st.lists(st.binary(max_size=300), max_size=30), st.booleans())
def test_events_come_out_as_they_went_in(bodies: list[bytes], is_compressed: bool) -> None:
    """Each has the place of the event that held it."""
    stream = b"".join(map(event, bodies))

    compressed = payload(zstandard.compress(stream), has_checksum=True)
    events = read(compressed if is_compressed else payload(stream, compression=255, has_checksum=True))

    assert [inner[HEADER_BYTES:] for inner in events] == bodies
    for inner in events:
        _, _, _, size, end, _ = read_header(inner, 0)
        assert end - size == 1000


def test_a_stream_larger_than_a_part_is_handed_over_in_parts() -> None:
    """Neither many events nor one of many megabytes is lost at a part's edge."""
    bodies = [b"a" * 100_000, b"b" * 5_000_000, *[b"c" * 70] * 20_000]
    stream = zstandard.compress(b"".join(map(event, bodies)))

    parts = list(inner_events(payload(stream), at=0))

    assert len(parts) > 3
    assert [len(packets.data[begin:end]) - HEADER_BYTES for packets in parts for begin, end in packets] == [
        len(body) for body in bodies
    ]


@pytest.mark.parametrize(
    "stream",
    [
        b"no zstd at all",
        zstandard.compress(event(b"x" * 50) + event(b"y" * 50)[:-7]),
        zstandard.compress(struct.pack("<IBIIIH", 0, 30, 1, 3, 0, 0)),
    ],
    ids=["not compressed", "cut", "an event of 3 bytes"],
)
def test_a_damaged_stream_is_named(stream: bytes) -> None:
    """With its place; nothing of the transaction passes for all of it."""
    with pytest.raises(PipelineHalted, match="compressed transaction at 1000"):
        read(payload(stream))


def test_an_unknown_compression_is_named() -> None:
    """Of a server newer than this release."""
    with pytest.raises(PipelineHalted, match="compression type 7"):
        read(payload(b"", compression=7))
