# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A VStreamResponse as its events lie in the bytes: nothing is made of a ROW event before its row is written as JSON.

Wire form: Protocol Buffers, "Encoding"; the messages are those of ``protos/vitess/binlogdata.proto``. All that is no row goes
through the generated classes.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp

from protos.vitess import binlogdata_pb2, vtgate_pb2

cdef int _EVENTS = vtgate_pb2.VStreamResponse.EVENTS_FIELD_NUMBER
cdef int _TYPE = binlogdata_pb2.VEvent.TYPE_FIELD_NUMBER
cdef int _TIMESTAMP = binlogdata_pb2.VEvent.TIMESTAMP_FIELD_NUMBER
cdef int _ROW_EVENT = binlogdata_pb2.VEvent.ROW_EVENT_FIELD_NUMBER
cdef int _FIELD_EVENT = binlogdata_pb2.VEvent.FIELD_EVENT_FIELD_NUMBER
cdef int _VGTID_EVENT = binlogdata_pb2.VEvent.VGTID_FIELD_NUMBER
cdef int _JOURNAL_EVENT = binlogdata_pb2.VEvent.JOURNAL_FIELD_NUMBER
cdef int _ROW = binlogdata_pb2.ROW
cdef int _TABLE_NAME = binlogdata_pb2.RowEvent.TABLE_NAME_FIELD_NUMBER
cdef int _SHARD = binlogdata_pb2.RowEvent.SHARD_FIELD_NUMBER
cdef int _SHARD_GTIDS = binlogdata_pb2.VGtid.SHARD_GTIDS_FIELD_NUMBER

cdef enum:
    _FIRST_CAPACITY = 64


cdef int refuse() except -1:
    raise ValueError("a message of vtgate ends before its fields do")


cdef Py_ssize_t long_varint(const uint8_t* data, Py_ssize_t place, Py_ssize_t end, uint64_t* value) except -1:
    cdef int shift = 0
    value[0] = 0
    while place < end and shift < 64:
        value[0] |= <uint64_t>(data[place] & 0x7F) << shift
        if data[place] < 0x80:
            return place + 1
        shift += 7
        place += 1
    return refuse()


cdef class VEvents:
    """The events of one VStreamResponse, by their number."""

    def __init__(self, bytes data not None) -> None:
        """Raises ValueError: the bytes are no VStreamResponse."""
        cdef const uint8_t* bytes_ = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef Py_ssize_t place = 0
        cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
        cdef Field field
        self.data = data
        while place < end:
            place = next_field(bytes_, place, end, &field)
            if field.number == _EVENTS and field.wire_type == LENGTH_DELIMITED:
                self._add(bytes_, field.begin, field.end)

    def __dealloc__(self):
        free(self.events)

    cdef int _add(self, const uint8_t* data, Py_ssize_t begin, Py_ssize_t end) except -1:
        cdef VEvent* events
        cdef VEvent* event
        cdef Field field
        cdef Py_ssize_t place = begin
        if self.count == self._capacity:
            self._capacity = max(2 * self._capacity, <Py_ssize_t>_FIRST_CAPACITY)
            events = <VEvent*>realloc(self.events, self._capacity * sizeof(VEvent))
            if events == NULL:
                raise MemoryError
            self.events = events
        event = &self.events[self.count]
        event.kind = 0
        event.timestamp = 0
        event.begin, event.end = begin, end
        event.payload_begin = event.payload_end = 0
        while place < end:
            place = next_field(data, place, end, &field)
            if field.number == _TYPE:
                event.kind = <int>field.value
            elif field.number == _TIMESTAMP:
                event.timestamp = <int64_t>field.value
            elif (
                field.number == _ROW_EVENT or field.number == _FIELD_EVENT or field.number == _VGTID_EVENT
                or field.number == _JOURNAL_EVENT
            ):
                event.payload_begin, event.payload_end = field.begin, field.end
        self.count += 1
        return 0

    def __len__(self) -> int:
        return self.count

    cdef int _check(self, Py_ssize_t nth) except -1:
        if not 0 <= nth < self.count:
            raise IndexError(nth)
        return 0

    def kind(self, Py_ssize_t nth) -> int:
        """A ``binlogdata.VEventType``."""
        self._check(nth)
        return self.events[nth].kind

    def timestamp(self, Py_ssize_t nth) -> int:
        """Seconds since 1970; 0 with rows that are copied."""
        self._check(nth)
        return self.events[nth].timestamp

    def payload(self, Py_ssize_t nth) -> bytes:
        """The RowEvent, FieldEvent, VGtid or Journal inside, serialised; empty where there is none."""
        self._check(nth)
        return self.data[self.events[nth].payload_begin : self.events[nth].payload_end]

    def event(self, Py_ssize_t nth) -> bytes:
        """The whole VEvent, serialised."""
        self._check(nth)
        return self.data[self.events[nth].begin : self.events[nth].end]

    def row_table(self, Py_ssize_t nth) -> tuple[bytes, bytes]:
        """``table_name`` and ``shard`` of a ROW event."""
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(self.data)
        cdef Field field
        cdef bytes table = b""
        cdef bytes shard = b""
        self._check(nth)
        cdef Py_ssize_t place = self.events[nth].payload_begin
        cdef Py_ssize_t end = self.events[nth].payload_end
        while place < end:
            place = next_field(data, place, end, &field)
            if field.number == _TABLE_NAME:
                table = self.data[field.begin : field.end]
            elif field.number == _SHARD:
                shard = self.data[field.begin : field.end]
        return table, shard

    def behind_rows(self, Py_ssize_t nth) -> int:
        """The first event from ``nth`` on that is no ROW, or the number of events."""
        while nth < self.count and self.events[nth].kind == _ROW:
            nth += 1
        return nth


def shard_gtids(bytes vgtid not None, list before not None) -> tuple[list[bytes], list[int]]:
    """The shards of a serialised VGtid, serialised each, and the places of those that are not as in ``before``.

    One transaction changes one shard: the others are the very objects of ``before``, so nothing is made of them again.
    """
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(vgtid)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(vgtid)
    cdef Py_ssize_t place = 0
    cdef Py_ssize_t nth = 0
    cdef Py_ssize_t known = len(before)
    cdef bytes old
    cdef Field field
    shards = []
    changed = []
    while place < end:
        place = next_field(data, place, end, &field)
        if field.number != _SHARD_GTIDS:
            continue
        if nth < known:
            old = before[nth]
            if PyBytes_GET_SIZE(old) == field.end - field.begin and memcmp(
                PyBytes_AS_STRING(old), data + field.begin, field.end - field.begin
            ) == 0:
                shards.append(old)
                nth += 1
                continue
        shards.append(PyBytes_FromStringAndSize(<const char*>data + field.begin, field.end - field.begin))
        changed.append(nth)
        nth += 1
    return shards, changed
