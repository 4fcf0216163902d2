# cython: language_level=3, boundscheck=False, wraparound=False
"""DTS's messages, read in place: an Envelope's parts, and the entries of assembled Entries, one after another.

Protobuf's generated classes make objects of a whole message at once: some gigabytes for a split one of 512 MB, and more than
the time that a row may take. Here only the header of one entry at a time becomes objects. Numbers of fields and enums:
``protos/dts/subscription.proto``.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from services.dts_decoder.wire cimport LENGTH_DELIMITED, VARINT, Cursor, Field, read_field, require

DML_EVENT = 2
"""``event_kind`` of an entry with rows; the others are the numbers of Event's fields too."""

cdef enum:
    _KINDS = 7
    _DML_EVENT = 2


def read_envelope(bytes value not None) -> tuple[int, int, int, int, int]:
    """Version, total, index, and where in ``value`` the data begins and ends. Raises ValueError: it is no Envelope."""
    cdef Cursor cursor = Cursor(<const uint8_t*>PyBytes_AS_STRING(value), 0, PyBytes_GET_SIZE(value))
    cdef Field field
    cdef int32_t version = 0
    cdef uint32_t total = 0
    cdef uint32_t index = 0
    cdef Py_ssize_t begin = 0
    cdef Py_ssize_t end = 0
    while cursor.place < cursor.end:
        read_field(&cursor, &field)
        if field.number == 1:
            require(&field, VARINT)
            version = <int32_t>field.value
        elif field.number == 2:
            require(&field, VARINT)
            total = <uint32_t>field.value
        elif field.number == 3:
            require(&field, VARINT)
            index = <uint32_t>field.value
        elif field.number == 4:
            require(&field, LENGTH_DELIMITED)
            begin, end = field.begin, field.end
    return version, total, index, begin, end


cdef class EntryReader:
    """Walks the entries of serialised Entries. ``data`` is bytes, or a mapped file of any size.

    After ``advance`` the attributes are those of the entry's header; names are UTF-8, not checked.
    """

    def __cinit__(self, const uint8_t[::1] data not None) -> None:
        self._view = data
        self.cursor.data = &data[0] if data.shape[0] else NULL
        self.cursor.place = 0
        self.cursor.end = data.shape[0]
        self.file_name = self.gtid = self.schema_name = self.table_name = b""
        self.entries = 0

    @property
    def place(self) -> int:
        """Behind the entry that was read last."""
        return self.cursor.place

    def advance(self) -> bool:
        """Go to the next entry; False at the end.

        Raises:
            ValueError: there is no entry; nothing behind this place can be read.
        """
        cdef Field field
        cdef Cursor entry
        cdef bint has_header = False
        self.event_kind = 0
        self.event_begin = self.event_end = 0
        while self.cursor.place < self.cursor.end:
            self.entry_begin = self.cursor.place
            read_field(&self.cursor, &field)
            if field.number == 1:
                require(&field, LENGTH_DELIMITED)
                break
        else:
            return False
        self.entry_end = field.end
        self.entries += 1
        entry.data, entry.place, entry.end = self.cursor.data, field.begin, field.end
        while entry.place < entry.end:
            read_field(&entry, &field)
            if field.number == 1:
                require(&field, LENGTH_DELIMITED)
                self._read_header(field.begin, field.end)
                has_header = True
            elif field.number == 2:
                require(&field, LENGTH_DELIMITED)
                self._read_event(field.begin, field.end)
        if not has_header:
            raise ValueError("an entry has no header")
        return True

    cdef int _read_header(self, Py_ssize_t begin, Py_ssize_t end) except -1:
        cdef Cursor header = Cursor(self.cursor.data, begin, end)
        cdef Field field
        cdef uint64_t numbers[12]
        cdef int nth
        for nth in range(12):
            numbers[nth] = 0
        # proto3 leaves empty texts out: what is not met again is empty.
        cdef bint has_file = False, has_gtid = False, has_schema = False, has_table = False
        while header.place < header.end:
            read_field(&header, &field)
            if field.number in (1, 2, 3, 4, 5, 7, 11):
                require(&field, VARINT)
                numbers[field.number] = field.value
            elif field.number == 6:
                self.file_name = self._text(&field, self.file_name)
                has_file = True
            elif field.number == 8:
                self.gtid = self._text(&field, self.gtid)
                has_gtid = True
            elif field.number == 9:
                self.schema_name = self._text(&field, self.schema_name)
                has_schema = True
            elif field.number == 10:
                self.table_name = self._text(&field, self.table_name)
                has_table = True
        if not has_file:
            self.file_name = b""
        if not has_gtid:
            self.gtid = b""
        if not has_schema:
            self.schema_name = b""
        if not has_table:
            self.table_name = b""
        self.version = <int32_t>numbers[1]
        self.source_type = <int32_t>numbers[2]
        self.message_type = <int32_t>numbers[3]
        self.timestamp_s = <uint32_t>numbers[4]
        self.server_id = <int64_t>numbers[5]
        self.position = numbers[7]
        self.seq_id = numbers[11]
        return 0

    cdef int _read_event(self, Py_ssize_t begin, Py_ssize_t end) except -1:
        cdef Cursor event = Cursor(self.cursor.data, begin, end)
        cdef Field field
        while event.place < event.end:
            read_field(&event, &field)
            if 1 <= field.number <= _KINDS:
                require(&field, LENGTH_DELIMITED)
                if self.event_kind:
                    raise ValueError("an entry has more than one event")
                self.event_kind = field.number
                self.event_begin, self.event_end = field.begin, field.end
        return 0

    cdef bytes _text(self, Field* field, bytes last):
        """The field's bytes; the same object as the last one where they are equal, as most are."""
        require(field, LENGTH_DELIMITED)
        cdef Py_ssize_t size = field.end - field.begin
        cdef const char* text = <const char*>self.cursor.data + field.begin
        if size == PyBytes_GET_SIZE(last) and memcmp(text, PyBytes_AS_STRING(last), size) == 0:
            return last
        return PyBytes_FromStringAndSize(text, size)

    def event(self) -> bytes:
        """The event of the entry, serialised; for the small ones. Copies."""
        return self.piece(self.event_begin, self.event_end)

    def piece(self, Py_ssize_t begin, Py_ssize_t end) -> bytes:
        """A copy of some of the data."""
        if not 0 <= begin <= end <= self.cursor.end:
            raise IndexError("outside the data")
        return PyBytes_FromStringAndSize(<const char*>self.cursor.data + begin, end - begin)

    def read_dml(self) -> tuple[int, bytes, int]:
        """Of an entry with rows: its DMLType, its columns as they are serialised, and where its rows begin.

        What stands behind the first row is not looked at here: a large event is read once, from front to end.
        """
        cdef Cursor event = Cursor(self.cursor.data, self.event_begin, self.event_end)
        cdef Field field
        cdef int64_t dml_type = 0
        cdef Py_ssize_t columns_begin = -1
        cdef Py_ssize_t columns_end = 0
        cdef Py_ssize_t begin
        cdef bytes columns = b""
        if self.event_kind != _DML_EVENT:
            raise ValueError("an entry of rows has another event")
        while event.place < event.end:
            begin = event.place
            read_field(&event, &field)
            if field.number == 3:
                event.place = begin
                break
            if field.number == 1:
                require(&field, VARINT)
                dml_type = <int32_t>field.value
            elif field.number == 2:
                require(&field, LENGTH_DELIMITED)
                if columns_begin >= 0 and begin != columns_end:
                    columns += self.piece(columns_begin, columns_end)
                    columns_begin = begin
                elif columns_begin < 0:
                    columns_begin = begin
                columns_end = field.end
        if columns_begin >= 0:
            columns += self.piece(columns_begin, columns_end)
        return dml_type, columns, event.place

    def skip_rows(self, Py_ssize_t place, int rows) -> tuple[int, int]:
        """Pass over ``rows`` rows of the event from ``place`` on, or as many as there are; where it stands then, and how many
        they were."""
        cdef Cursor event = Cursor(self.cursor.data, place, self.event_end)
        cdef Field field
        cdef int skipped = 0
        if not self.event_begin <= place <= self.event_end:
            raise IndexError("outside the entry")
        while event.place < event.end and skipped < rows:
            read_field(&event, &field)
            skipped += field.number == 3
        return event.place, skipped
