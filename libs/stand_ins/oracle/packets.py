"""TNS packets: the frames that every message of a connection travels in, and the hand-shake at its beginning.

As python-oracledb's thin mode has them (``impl/thin/packet.pyx``, ``messages/connect.pyx``).
"""

import enum
import socket
import struct
from typing import Final, NamedTuple

_HEADER_BYTES: Final = 8
_VERSION: Final = 318
_LONG_LENGTHS_FROM: Final = 315
"""From this version on a packet's length has four bytes, once it is accepted."""
_SDU_BYTES: Final = 8_192
"""Bytes of a packet: small, so that most answers of a test need several."""
_FLAGS_BYTES: Final = 2
_END_OF_FILE: Final = 0x40
_NO_NATIVE_ENCRYPTION: Final = b"\x04\x04"


class Packet(enum.IntEnum):
    """Kinds of packets."""

    CONNECT = 1
    ACCEPT = 2
    DATA = 6
    MARKER = 12


class ProtocolError(Exception):
    """A client sent a packet or a message that the stand-in does not know; its connection ends."""


class ConnectionEnded(Exception):
    """The client is gone."""


class Received(NamedTuple):
    """A packet without its header."""

    kind: int
    body: bytes


class Packets:
    """One connection's packets, of one thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._has_long_lengths = False

    def accept(self) -> None:
        """Answer a client's first packet.

        Raises:
            ProtocolError: it is not a CONNECT.
            ConnectionEnded: the client went.
        """
        first = self.receive()
        if first.kind != Packet.CONNECT:
            raise ProtocolError(f"packet {first.kind} before CONNECT")
        version = min(struct.unpack(">H", first.body[:2])[0], _VERSION)
        data_bytes, data_begin = struct.unpack(">HH", first.body[16:20])
        if len(first.body) + _HEADER_BYTES < data_begin + data_bytes:
            self.receive()  # a long connect string has a packet of its own
        self.send(Packet.ACCEPT, _accept(version))
        self._has_long_lengths = version >= _LONG_LENGTHS_FROM

    def receive(self) -> Received:
        """The next packet.

        Raises:
            ConnectionEnded: the client went.
        """
        header = self._read(_HEADER_BYTES)
        long_length, short_length = struct.unpack(">I", header[:4])[0], struct.unpack(">H", header[:2])[0]
        length = long_length if self._has_long_lengths else short_length
        return Received(header[4], self._read(length - _HEADER_BYTES))

    def receive_data(self) -> bytes:
        """The next part of a message. A client's interruption is answered on the way.

        Raises:
            ConnectionEnded: the client went, or said good-bye.
            ProtocolError: the packet is neither data nor an interruption.
        """
        while True:
            packet = self.receive()
            if packet.kind == Packet.DATA:
                if struct.unpack(">H", packet.body[:_FLAGS_BYTES])[0] & _END_OF_FILE:
                    raise ConnectionEnded
                return packet.body[_FLAGS_BYTES:]
            if packet.kind != Packet.MARKER:
                raise ProtocolError(f"packet {packet.kind} where data should be")
            self.send(Packet.MARKER, b"\1\0\2")  # the reset that the client waits for

    def send(self, kind: Packet, body: bytes) -> None:
        """One packet."""
        length = len(body) + _HEADER_BYTES
        size = struct.pack(">I", length) if self._has_long_lengths else struct.pack(">HH", length, 0)
        try:
            self._connection.sendall(size + bytes([kind, 0, 0, 0]) + body)
        except OSError as error:
            raise ConnectionEnded from error

    def send_message(self, message: bytes) -> None:
        """A message, in as many packets as it needs."""
        room = _SDU_BYTES - _HEADER_BYTES - _FLAGS_BYTES
        for begin in range(0, max(len(message), 1), room):
            self.send(Packet.DATA, bytes(_FLAGS_BYTES) + message[begin : begin + room])

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self._connection.recv(size - len(data))
            except OSError as error:
                raise ConnectionEnded from error
            if not part:
                raise ConnectionEnded
            data += part
        return bytes(data)


def _accept(version: int) -> bytes:
    """ACCEPT's body: version, options, sizes of packets; no data; native encryption is off."""
    body = bytearray(37)
    struct.pack_into(">HHHH", body, 0, version, 1, _SDU_BYTES, 65_535)
    struct.pack_into(">HHH", body, 8, 1, 0, 45)
    body[14:16] = _NO_NATIVE_ENCRYPTION
    struct.pack_into(">II", body, 24, _SDU_BYTES, 65_535 * 32)
    return bytes(body)
