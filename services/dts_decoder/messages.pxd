from libc.stdint cimport int64_t, uint8_t, uint64_t

from libs.events.wire cimport Cursor, Field


cdef struct Header:
    int version
    int source_type
    int message_type
    int64_t timestamp_s
    int64_t server_id
    uint64_t position
    uint64_t seq_id
    Field file_name
    Field gtid
    Field schema_name
    Field table_name


cdef struct Entry:
    Py_ssize_t begin
    Py_ssize_t end
    Header header
    bint has_header
    int event_kind
    Py_ssize_t event_begin
    Py_ssize_t event_end


cdef class EntryReader:
    cdef const uint8_t[::1] _view
    cdef Cursor cursor
    cdef readonly int version
    cdef readonly int source_type
    cdef readonly int message_type
    cdef readonly int64_t timestamp_s
    cdef readonly int64_t server_id
    cdef readonly uint64_t position
    cdef readonly uint64_t seq_id
    cdef readonly bytes file_name
    cdef readonly bytes gtid
    cdef readonly bytes schema_name
    cdef readonly bytes table_name
    cdef readonly int event_kind
    cdef readonly Py_ssize_t event_begin
    cdef readonly Py_ssize_t event_end
    cdef readonly Py_ssize_t entry_begin
    cdef readonly Py_ssize_t entry_end
    cdef readonly Py_ssize_t entries
    cdef readonly int dml_type
    cdef readonly bytes columns
    cdef readonly Py_ssize_t rows_begin

    cdef bint go_on(self) except -1
    """Go to the next entry if it has rows of the same table, under the same columns and of the same transaction, as the entry
    whose rows were begun (``read_dml``). False: it has not, or cannot be read; nothing was changed."""

    cdef int _read_entry(self, Cursor* cursor, Entry* entry) except -1
    cdef int _read_header(self, Py_ssize_t begin, Py_ssize_t end, Header* header) except -1
    cdef int _read_event(self, Py_ssize_t begin, Py_ssize_t end, Entry* entry) except -1
    cdef bint _are_columns(self, Py_ssize_t begin, Py_ssize_t end) noexcept
    cdef bytes _gathered_columns(self)
    cdef void _take_numbers(self, Entry* entry) noexcept
    cdef bint _is(self, Field* field, bytes text) noexcept
    cdef bytes _text(self, Field* field, bytes last)
