# cython: language_level=3, boundscheck=False, wraparound=False
"""DTS's messages, read in place: an Envelope's parts, and the entries of assembled Entries, one after another.

Protobuf's generated classes make objects of a whole message at once: some gigabytes for a split one of 512 MB, and more than
the time that a row may take. Here only the header of one entry at a time becomes objects. Numbers of fields and enums:
``protos/dts/subscription.proto``.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

from libs.events.wire cimport LENGTH_DELIMITED, VARINT, Cursor, Field, read_field, require

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
        self.file_name = self.gtid = self.schema_name = self.table_name = self.columns = b""
        self.entries = 0

    @property
    def place(self) -> int:
        """After the entry that was read last."""
        return self.cursor.place

    def advance(self) -> bool:
        """Go to the next entry; False at the end.

        Raises:
            ValueError: there is no entry; nothing after this place can be read.
        """
        cdef Entry entry
        self.event_kind = 0
        self.event_begin = self.event_end = 0
        self.entry_begin = self.cursor.place
        if not self._read_entry(&self.cursor, &entry):
            return False
        if not entry.has_header:
            raise ValueError("an entry has no header")
        self._take_numbers(&entry)
        self.file_name = self._text(&entry.header.file_name, self.file_name)
        self.gtid = self._text(&entry.header.gtid, self.gtid)
        self.schema_name = self._text(&entry.header.schema_name, self.schema_name)
        self.table_name = self._text(&entry.header.table_name, self.table_name)
        return True

    cdef bint go_on(self) except -1:
        cdef Cursor cursor = self.cursor
        cdef Entry entry
        cdef Header* header = &entry.header
        cdef int64_t dml_type
        cdef Py_ssize_t begin, end, rows_begin
        try:
            if not self._read_entry(&cursor, &entry) or not entry.has_header or entry.event_kind != _DML_EVENT:
                return False
            if (
                header.message_type != self.message_type or header.source_type != self.source_type
                or header.server_id != self.server_id or not self._is(&header.gtid, self.gtid)
                or not self._is(&header.table_name, self.table_name) or not self._is(&header.schema_name, self.schema_name)
                or not self._is(&header.file_name, self.file_name)
            ):
                return False
            rows_begin = _read_dml(cursor.data, entry.event_begin, entry.event_end, &dml_type, &begin, &end)
        except ValueError:  # reported when it is met in the ordinary way
            return False
        if not self._are_columns(begin, end):
            return False
        self.cursor.place = cursor.place
        self._take_numbers(&entry)
        self.dml_type = <int>dml_type
        self.rows_begin = rows_begin
        return True

    cdef int _read_entry(self, Cursor* cursor, Entry* entry) except -1:
        """False: there is none."""
        cdef Field field
        cdef Cursor inner
        entry.has_header = False
        entry.event_kind = 0
        entry.event_begin = entry.event_end = 0
        while cursor.place < cursor.end:
            entry.begin = cursor.place
            read_field(cursor, &field)
            if field.number == 1:
                require(&field, LENGTH_DELIMITED)
                break
        else:
            return False
        entry.end = field.end
        inner = Cursor(cursor.data, field.begin, field.end)
        while inner.place < inner.end:
            read_field(&inner, &field)
            if field.number == 1:
                require(&field, LENGTH_DELIMITED)
                self._read_header(field.begin, field.end, &entry.header)
                entry.has_header = True
            elif field.number == 2:
                require(&field, LENGTH_DELIMITED)
                self._read_event(field.begin, field.end, entry)
        return True

    cdef int _read_header(self, Py_ssize_t begin, Py_ssize_t end, Header* header) except -1:
        cdef Cursor cursor = Cursor(self.cursor.data, begin, end)
        cdef Field field
        cdef uint64_t numbers[12]
        memset(numbers, 0, sizeof(numbers))
        memset(header, 0, sizeof(Header))  # proto3 leaves out empty fields
        while cursor.place < cursor.end:
            read_field(&cursor, &field)
            if field.number in (1, 2, 3, 4, 5, 7, 11):
                require(&field, VARINT)
                numbers[field.number] = field.value
            elif field.number == 6:
                require(&field, LENGTH_DELIMITED)
                header.file_name = field
            elif field.number == 8:
                require(&field, LENGTH_DELIMITED)
                header.gtid = field
            elif field.number == 9:
                require(&field, LENGTH_DELIMITED)
                header.schema_name = field
            elif field.number == 10:
                require(&field, LENGTH_DELIMITED)
                header.table_name = field
        header.version = <int32_t>numbers[1]
        header.source_type = <int32_t>numbers[2]
        header.message_type = <int32_t>numbers[3]
        header.timestamp_s = <uint32_t>numbers[4]
        header.server_id = <int64_t>numbers[5]
        header.position = numbers[7]
        header.seq_id = numbers[11]
        return 0

    cdef int _read_event(self, Py_ssize_t begin, Py_ssize_t end, Entry* entry) except -1:
        cdef Cursor event = Cursor(self.cursor.data, begin, end)
        cdef Field field
        while event.place < event.end:
            read_field(&event, &field)
            if 1 <= field.number <= _KINDS:
                require(&field, LENGTH_DELIMITED)
                if entry.event_kind:
                    raise ValueError("an entry has more than one event")
                entry.event_kind = field.number
                entry.event_begin, entry.event_end = field.begin, field.end
        return 0

    cdef void _take_numbers(self, Entry* entry) noexcept:
        cdef Header* header = &entry.header
        self.version, self.source_type, self.message_type = header.version, header.source_type, header.message_type
        self.timestamp_s, self.server_id = header.timestamp_s, header.server_id
        self.position, self.seq_id = header.position, header.seq_id
        self.entry_begin, self.entry_end = entry.begin, entry.end
        self.event_kind, self.event_begin, self.event_end = entry.event_kind, entry.event_begin, entry.event_end
        self.entries += 1

    cdef bint _is(self, Field* field, bytes text) noexcept:
        cdef Py_ssize_t size = field.end - field.begin
        return size == PyBytes_GET_SIZE(text) and (
            memcmp(self.cursor.data + field.begin, PyBytes_AS_STRING(text), size) == 0
        )

    cdef bytes _text(self, Field* field, bytes last):
        """The field's bytes; the same object as the last one where they are equal, as most are."""
        if self._is(field, last):
            return last
        return self.piece(field.begin, field.end)

    def event(self) -> bytes:
        """The event of the entry, serialised; for the small ones. Copies."""
        return self.piece(self.event_begin, self.event_end)

    def piece(self, Py_ssize_t begin, Py_ssize_t end) -> bytes:
        """A copy of some of the data."""
        if not 0 <= begin <= end <= self.cursor.end:
            raise IndexError("outside the data")
        return PyBytes_FromStringAndSize(<const char*>self.cursor.data + begin, end - begin)

    def read_dml(self) -> None:
        """Of an entry with rows, read its ``dml_type``, its ``columns`` and where its rows begin. Raises ValueError.

        Later rows than the first are not looked at here: a large event is read once, from front to end.
        """
        cdef int64_t dml_type
        cdef Py_ssize_t begin, end
        if self.event_kind != _DML_EVENT:
            raise ValueError("an entry of rows has another event")
        self.rows_begin = _read_dml(self.cursor.data, self.event_begin, self.event_end, &dml_type, &begin, &end)
        self.dml_type = <int>dml_type
        if end < 0:
            self.columns = self._gathered_columns()
        elif not self._are_columns(begin, end):
            self.columns = self.piece(begin, end)

    cdef bint _are_columns(self, Py_ssize_t begin, Py_ssize_t end) noexcept:
        return end - begin == PyBytes_GET_SIZE(self.columns) and (
            memcmp(self.cursor.data + begin, PyBytes_AS_STRING(self.columns), end - begin) == 0
        )

    cdef bytes _gathered_columns(self):
        """Columns with something between them, which protobuf allows."""
        cdef Cursor event = Cursor(self.cursor.data, self.event_begin, self.rows_begin)
        cdef Field field
        cdef Py_ssize_t begin
        columns = []
        while event.place < event.end:
            begin = event.place
            read_field(&event, &field)
            if field.number == 2:
                columns.append(self.piece(begin, field.end))
        return b"".join(columns)

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


cdef Py_ssize_t _read_dml(
    const uint8_t* data, Py_ssize_t begin, Py_ssize_t end, int64_t* dml_type, Py_ssize_t* columns_begin,
    Py_ssize_t* columns_end
) except -1:
    """Where the rows of a DMLEvent begin. ``columns_end`` -1: the columns do not stand together."""
    cdef Cursor event = Cursor(data, begin, end)
    cdef Field field
    cdef bint has_columns = False
    dml_type[0] = 0
    columns_begin[0] = columns_end[0] = begin
    while event.place < event.end:
        begin = event.place
        read_field(&event, &field)
        if field.number == 3:
            return begin
        if field.number == 1:
            require(&field, VARINT)
            dml_type[0] = <int32_t>field.value
        elif field.number == 2:
            require(&field, LENGTH_DELIMITED)
            if not has_columns:
                columns_begin[0] = begin
                has_columns = True
            elif begin != columns_end[0]:
                field.end = -1
            columns_end[0] = field.end
    return event.place
