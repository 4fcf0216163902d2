from libc.stdint cimport int64_t, uint8_t, uint64_t

from services.dts_decoder.wire cimport Cursor, Field


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

    cdef int _read_header(self, Py_ssize_t begin, Py_ssize_t end) except -1
    cdef int _read_event(self, Py_ssize_t begin, Py_ssize_t end) except -1
    cdef bytes _text(self, Field* field, bytes last)
