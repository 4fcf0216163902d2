"""Packets of MySQL's protocol in a buffer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.mysql.packets import MAX_PACKET, Packets, whole_packets


def packet(payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + b"\x07" + payload


@given(st.lists(st.binary(max_size=300), max_size=150), st.integers(0, 400))
def test_whole_packets_and_what_is_needed_for_more(payloads: list[bytes], missing: int) -> None:
    stream = b"".join(map(packet, payloads))
    data = stream[: max(0, len(stream) - missing)]
    packets, end, needed = whole_packets(data)
    found = [data[begin:ending] for begin, ending in packets]
    assert found == payloads[: len(found)]
    assert b"".join(map(packet, found)) == data[:end]
    assert needed > len(data)
    if len(found) < len(payloads) and needed > end + 4:
        assert needed == end + len(packet(payloads[len(found)]))


def test_a_continued_packet_is_left() -> None:
    data = packet(b"first") + MAX_PACKET.to_bytes(3, "little") + b"\0" + bytes(MAX_PACKET)
    packets, end, needed = whole_packets(data)
    assert (len(packets), end, needed) == (1, 9, len(data))


def test_behind_ok_ends_at_the_first_that_is_none() -> None:
    packets, *_ = whole_packets(packet(b"\0a") + packet(b"\0") + packet(b"\xff!") + packet(b"\0b"))
    behind = packets.behind_ok()
    assert [behind.data[begin:end] for begin, end in behind] == [b"a", b""]
    assert len(whole_packets(packet(b""))[0].behind_ok()) == 0


def test_places_outside_the_buffer_are_refused() -> None:
    for places in ([(0, 4)], [(-1, 2)], [(2, 1)]):
        with pytest.raises(ValueError, match="outside"):
            Packets(b"abc", places)
    with pytest.raises(IndexError):
        Packets(b"abc")[0]
