"""The forms that TTC, Oracle's call protocol, gives numbers and bytes; written and read.

Oracle publishes no description. The forms are those that python-oracledb's thin mode writes and reads (its source, Apache 2.0,
``impl/thin/buffer.pyx``), seen on the wire of python-oracledb 26.1 and ojdbc11 23.26.
"""

from typing import Final, Self

_LONGEST_SHORT: Final = 252
"""Bytes of a value that has one byte of length before it."""
_CHUNKED: Final = 254
_NULLS: Final = (0, 255)
_CHUNK_BYTES: Final = 32_767


class Incomplete(Exception):
    """The message goes on in the next packet: read it, then begin the message again."""


class Writer:
    """A message that grows."""

    def __init__(self) -> None:
        self.data = bytearray()

    def raw(self, data: bytes) -> Self:
        """Bytes as they are."""
        self.data += data
        return self

    def byte(self, value: int) -> Self:
        """A number below 256."""
        self.data.append(value)
        return self

    def number(self, value: int) -> Self:
        """A number from 0 on: how many bytes it has, then these, highest first."""
        return self._sized(value, 0)

    def signed(self, value: int) -> Self:
        """The same; the highest bit of the length says that the number is negative."""
        return self._sized(abs(value), 0x80 if value < 0 else 0)

    def _sized(self, value: int, sign: int) -> Self:
        size = (value.bit_length() + 7) // 8
        self.data.append(size | sign)
        self.data += value.to_bytes(size, "big")
        return self

    def value(self, data: bytes | None) -> Self:
        """Bytes with their length: in one piece, or from 253 bytes on in chunks. Nothing is NULL."""
        if not data:
            return self.byte(0)
        if len(data) <= _LONGEST_SHORT:
            return self.byte(len(data)).raw(data)
        self.byte(_CHUNKED)
        for begin in range(0, len(data), _CHUNK_BYTES):
            chunk = data[begin : begin + _CHUNK_BYTES]
            self.number(len(chunk)).raw(chunk)
        return self.number(0)

    def counted(self, data: bytes) -> Self:
        """Bytes as a value, with their length once more before it."""
        return self.number(len(data)).value(data) if data else self.byte(0)

    def zeros(self, count: int) -> Self:
        """So many fields that are 0."""
        return self.raw(bytes(count))


class Reader:
    """A message, read from its beginning.

    Every method raises ``Incomplete`` where the bytes end too early.
    """

    def __init__(self, data: bytes, place: int = 0) -> None:
        self._data = data
        self._place = place

    @property
    def rest(self) -> bytes:
        """The bytes that were not read yet."""
        return self._data[self._place :]

    def begins_with(self, value: int) -> bool:
        """Whether the next byte is there and is ``value``; it stays unread."""
        return self._data[self._place : self._place + 1] == bytes([value])

    def raw(self, size: int) -> bytes:
        """So many bytes."""
        end = self._place + size
        if end > len(self._data):
            raise Incomplete
        data = self._data[self._place : end]
        self._place = end
        return data

    def byte(self) -> int:
        """A number below 256."""
        return self.raw(1)[0]

    def number(self) -> int:
        """A number, which may be negative."""
        size = self.byte()
        magnitude = int.from_bytes(self.raw(size & 0x7F), "big")
        return -magnitude if size & 0x80 else magnitude

    def numbers(self, count: int) -> list[int]:
        """So many of them."""
        return [self.number() for _ in range(count)]

    def value(self) -> bytes | None:
        """Bytes with their length; None is NULL."""
        size = self.byte()
        if size in _NULLS:
            return None
        if size != _CHUNKED:
            return self.raw(size)
        chunks = []
        while chunk_bytes := self.number():
            chunks.append(self.raw(chunk_bytes))
        return b"".join(chunks)

    def counted(self) -> bytes:
        """Bytes of ``Writer.counted``; empty where nothing is there."""
        return (self.value() or b"") if self.number() else b""
