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


cdef Py_ssize_t next_field(const uint8_t* data, Py_ssize_t place, Py_ssize_t end, Field* field) except -1
"""Read the field at ``place``: its value, or where its bytes lie; returns where the next one begins."""

cdef Py_ssize_t varint(const uint8_t* data, Py_ssize_t place, Py_ssize_t end, uint64_t* value) except -1
