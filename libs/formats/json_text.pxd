"""Numbers and text written as JSON straight into a buffer, for the compiled decoders of every source.

Where no more is said, the caller has reserved the room (``run_rows.reserve``).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from libs.events.run_rows cimport Bytes, reserve


cdef inline int append(Bytes* out, bytes text) except -1:
    """``text`` as it is; reserves its room."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text)
    reserve(out, size)
    memcpy(out.data + out.size, PyBytes_AS_STRING(text), size)
    out.size += size
    return 0


cdef inline void write_literal(Bytes* out, const char* text, Py_ssize_t size) noexcept:
    memcpy(out.data + out.size, text, size)
    out.size += size


cdef inline void write_digits(Bytes* out, uint32_t number, int width) noexcept:
    """With zeros in front."""
    cdef int index
    for index in range(width - 1, -1, -1):
        out.data[out.size + index] = <char>(48 + number % 10)
        number //= 10
    out.size += width


cdef inline int64_t floor_divided(int64_t number, int64_t by) noexcept:
    # Right whichever way // rounds: in a .pxd, Cython rounds it as C, and % as Python.
    cdef int64_t quotient = number // by
    return quotient - (quotient * by > number)


cdef void write_integer(Bytes* out, int64_t number) noexcept

cdef void write_unsigned(Bytes* out, uint64_t number) noexcept

cdef bint write_text(Bytes* out, const uint8_t* cell, Py_ssize_t size) except -1
"""A JSON string with orjson's escapes; reserves its room. False: there was a byte beyond ASCII; all were written as they are,
so that the caller has yet to see whether they are UTF-8."""

cdef int write_base64(Bytes* out, const uint8_t* cell, Py_ssize_t size) except -1
"""Bytes as a JSON string in base64; reserves its room."""

cdef int write_unscaled(Bytes* out, int64_t unscaled) except -1
"""Connect's Decimal: the unscaled number as the shortest big-endian two's complement, in base64; reserves its room."""

cdef int64_t days_since_1970(int64_t year, int64_t month, int64_t day) noexcept
"""``libs.mysql.values.days_since_1970``: proleptic Gregorian; a day past the month's end runs into the next."""
