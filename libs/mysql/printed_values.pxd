"""Values in the text that MySQL prints, read from their bytes: for rows of a SELECT, of vtgate and of DTS.

Each function reads one form or says no; nothing is guessed. A caller hands a refused text to the column's Python function, or
raises. ``write_…`` reserves its room. Forms: MySQL 8.4 manual, "Date and Time Literals" and "Numeric Literals".
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from libs.events.run_rows cimport Bytes

cdef enum Printed:
    OTHER = 0  # another text: nothing was written
    ZERO  # a month or day of 0: nothing was written
    WRITTEN

cdef bint is_integer(const uint8_t* text, Py_ssize_t size) noexcept
"""``-120``, of any length."""

cdef bint read_unsigned(const uint8_t* text, Py_ssize_t size, uint64_t* number) noexcept
"""``120``, of at most 20 digits: a BIGINT UNSIGNED, beyond which it wraps."""

cdef bint read_unscaled(const uint8_t* text, Py_ssize_t size, int64_t* unscaled) noexcept
"""``-12.50`` without its point, of at most 18 digits, whatever its scale."""

cdef bint read_decimal(const uint8_t* text, Py_ssize_t size, int precision, int scale, int64_t* unscaled) noexcept
"""``-12.50`` with all digits of the scale, no more digits than fit into 64 bits."""

cdef bint is_shortest_double(const uint8_t* text, Py_ssize_t size) noexcept
"""The text is what orjson writes for that double, but for the ``.0`` that may lack."""

cdef bint write_double(Bytes* out, const uint8_t* text, Py_ssize_t size) except -1
"""``-12.5`` as the shortest digits that are the same double; no exponent."""

cdef bint write_single(Bytes* out, const uint8_t* text, Py_ssize_t size) except -1
"""The same of a number that is stored with single precision: the double that it is."""

cdef Printed write_date(Bytes* out, const uint8_t* text, Py_ssize_t size) except? OTHER
"""``2024-01-31`` as days since 1970; a day past the month's end runs into the next."""

cdef Printed write_datetime(Bytes* out, const uint8_t* text, Py_ssize_t size, int64_t units_per_s) except? OTHER
"""``2024-01-31 12:34:56.789`` as units since 1970, cut down to whole ones."""

cdef Printed write_utc_timestamp(Bytes* out, const uint8_t* text, Py_ssize_t size) except? OTHER
"""``2024-01-31 12:34:56.789``, which is UTC, as ISO 8601 in quotes."""

cdef bint read_time_us(const uint8_t* text, Py_ssize_t size, int64_t* us) noexcept
"""``-838:59:59.000000`` as microseconds."""
