"""What other compiled modules may read of ``vevents``."""

from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef struct VEvent:
    int kind
    int64_t timestamp
    Py_ssize_t begin
    Py_ssize_t end
    Py_ssize_t payload_begin
    Py_ssize_t payload_end


cdef class VEvents:
    cdef readonly bytes data
    cdef VEvent* events
    cdef Py_ssize_t count
    cdef Py_ssize_t _capacity

    cdef int _add(self, const uint8_t* data, Py_ssize_t begin, Py_ssize_t end) except -1
    cdef int _check(self, Py_ssize_t nth) except -1


cdef struct Field:
    int number
    int wire_type
    uint64_t value
    Py_ssize_t begin
    Py_ssize_t end


cdef enum:
    VARINT = 0
    FIXED64 = 1
    LENGTH_DELIMITED = 2
    FIXED32 = 5


cdef Py_ssize_t long_varint(const uint8_t* data, Py_ssize_t place, Py_ssize_t end, uint64_t* value) except -1
"""Of any length."""

cdef int refuse() except -1
"""Raises ValueError: the message is damaged."""


cdef inline Py_ssize_t varint(const uint8_t* data, Py_ssize_t place, Py_ssize_t end, uint64_t* value) except -1:
    """Returns where what follows begins. Most are of one byte."""
    if place < end and data[place] < 0x80:
        value[0] = data[place]
        return place + 1
    return long_varint(data, place, end, value)


cdef inline Py_ssize_t next_field(const uint8_t* data, Py_ssize_t place, Py_ssize_t end, Field* field) except -1:
    """Read the field at ``place``: its value, or where its bytes lie; returns where the next one begins."""
    cdef uint64_t tag
    place = varint(data, place, end, &tag)
    field.number = <int>(tag >> 3)
    field.wire_type = tag & 7
    field.begin = place
    if field.wire_type == LENGTH_DELIMITED:
        place = varint(data, place, end, &field.value)
        if field.value > <uint64_t>(end - place):
            refuse()
        field.begin = place
        place += <Py_ssize_t>field.value
    elif field.wire_type == VARINT:
        place = varint(data, place, end, &field.value)
    elif field.wire_type == FIXED64:
        place += 8
    elif field.wire_type == FIXED32:
        place += 4
    else:
        refuse()
    if place > end:
        refuse()
    field.end = place
    return place
