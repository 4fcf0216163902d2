"""Rows on their way to events, for compiled decoders: the images of a row and its key, and the envelope around them."""

from libc.stdint cimport int64_t, uint8_t

from libs.events.run_rows cimport Bytes, RunRows


cdef class EventFrame:
    """What the values of a run's events have around their images."""

    cdef bytes _source, _behind_numbers
    cdef tuple _ends
    cdef bint _is_numbered
    cdef public int64_t total_order
    """Of the transaction's last event; counted only where events carry the transaction block."""
    cdef public int64_t collection_order
    """Of the transaction's last event in this table."""


cdef class RowImages:
    """The images of one row at a time, of one table version."""

    cdef Bytes images
    """The image before, if there is one, and the image after."""
    cdef Bytes key
    cdef Bytes old_key
    cdef int column_count
    cdef tuple _openings, _key_openings, _key_places
    cdef const char** _opening_texts
    cdef Py_ssize_t* _opening_sizes
    cdef bint* _is_key
    cdef Py_ssize_t* _key_begins
    cdef Py_ssize_t* _key_ends

    cdef void _free_columns(self) noexcept

    cdef inline void begin_row(self) noexcept:
        self.images.size = 0

    cdef int begin_cell(self, int index) except -1
    """Write ``,"name":``; the cell's JSON is to follow in ``images``."""

    cdef inline void end_cell(self, int index) noexcept:
        if self._is_key[index]:
            self._key_ends[index] = self.images.size

    cdef int end_image(self) except -1
    """Close the image, and write its key; the key before becomes ``old_key``."""

    cdef int add(
        self, RunRows run, EventFrame frame, uint8_t op, Py_ssize_t before_size, bint has_before, bint has_after
    ) except -1
    """One event of the images at hand: the first ``before_size`` bytes are the row before, the rest the row after. An update
    whose key changed becomes two, as Debezium writes it: delete of the old key, create of the new. Returns how many."""

    cdef int _add_event(
        self, RunRows run, EventFrame frame, uint8_t op, Bytes* key, Py_ssize_t before_size, bint has_before, bint has_after
    ) except -1

    cdef bint _key_is_unchanged(self) noexcept
