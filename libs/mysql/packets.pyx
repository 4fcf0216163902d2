# cython: language_level=3
"""Packets of MySQL's protocol: where the payloads lie in a buffer, without a Python object for each.

Layout: MySQL source documentation, "Client/Server Protocol", packets: three bytes of length, one of sequence, the payload.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc

MAX_PACKET = 0xFFFFFF
"""A packet of this length is continued by the next one."""

cdef enum:
    _HEADER_BYTES = 4
    _MAX_PACKET = 0xFFFFFF
    _FIRST_CAPACITY = 64


cdef class Packets:
    """Payloads in one buffer: ``packets[nth]`` is the begin and the end of one in ``data``."""

    def __init__(self, bytes data not None, places=()) -> None:
        self.data = data
        for begin, end in places:
            if not 0 <= begin <= end <= len(data):
                raise ValueError("a packet lies outside its buffer")
            self.add(begin, end)

    def __dealloc__(self):
        free(self.places)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, Py_ssize_t nth) -> tuple[int, int]:
        if not 0 <= nth < self.count:
            raise IndexError(nth)
        return self.places[nth].begin, self.places[nth].end

    def __iter__(self):
        return map(self.__getitem__, range(self.count))

    cdef int add(self, Py_ssize_t begin, Py_ssize_t end) except -1:
        cdef Place* places
        if self.count == self._capacity:
            self._capacity = max(2 * self._capacity, <Py_ssize_t>_FIRST_CAPACITY)
            places = <Place*>realloc(self.places, self._capacity * sizeof(Place))
            if places == NULL:
                raise MemoryError
            self.places = places
        self.places[self.count].begin = begin
        self.places[self.count].end = end
        self.count += 1
        return 0

    def behind_ok(self):
        """The bytes after the OK byte of each packet, up to the first that does not begin with one."""
        cdef Packets behind = Packets(self.data)
        cdef const uint8_t* data = self.data
        cdef Py_ssize_t nth
        for nth in range(self.count):
            if self.places[nth].begin == self.places[nth].end or data[self.places[nth].begin] != 0:
                break
            behind.add(self.places[nth].begin + 1, self.places[nth].end)
        return behind


def whole_packets(bytes data not None) -> tuple[Packets, int, int]:
    """The whole packets at the front of ``data``, the end of the last, and how many bytes are needed for one more.

    One that is continued by the next (``MAX_PACKET``) is not taken, and no later one is.
    """
    cdef Packets packets = Packets(data)
    cdef const uint8_t* bytes_ = data
    cdef Py_ssize_t place = 0
    cdef Py_ssize_t size = len(data)
    cdef Py_ssize_t length, end
    while size - place >= _HEADER_BYTES:
        length = bytes_[place] | bytes_[place + 1] << 8 | bytes_[place + 2] << 16
        end = place + _HEADER_BYTES + length
        if end > size or length == _MAX_PACKET:
            return packets, place, end
        packets.add(place + _HEADER_BYTES, end)
        place = end
    return packets, place, place + _HEADER_BYTES
