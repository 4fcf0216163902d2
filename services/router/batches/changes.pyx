# cython: language_level=3, boundscheck=False, wraparound=False
"""A ChangeBatch as its rows lie in the bytes: keys and values become Python's only where somebody looks at them.

Protobuf's own classes copy each key and value twice. Wire form: Protocol Buffers, "Encoding"; all but runs goes through the
generated classes.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, realloc

from libs.events.wire cimport LENGTH_DELIMITED, VARINT, Cursor, Field, read_field, require
from protos.headwater.changes.v1 import change_batch_pb2

cdef enum:
    _FIRST_CAPACITY = 4

cdef int _ENTRIES = change_batch_pb2.ChangeBatch.ENTRIES_FIELD_NUMBER
cdef int _RUN = change_batch_pb2.Entry.RUN_FIELD_NUMBER
cdef int _DATABASE = change_batch_pb2.Run.DATABASE_FIELD_NUMBER
cdef int _TABLE = change_batch_pb2.Run.TABLE_FIELD_NUMBER
cdef int _SCHEMA_VERSION = change_batch_pb2.Run.SCHEMA_VERSION_FIELD_NUMBER
cdef int _TRANSACTION_ID = change_batch_pb2.Run.TRANSACTION_ID_FIELD_NUMBER
cdef int _EPOCH = change_batch_pb2.Run.EPOCH_FIELD_NUMBER
cdef int _RANK = change_batch_pb2.Run.RANK_FIELD_NUMBER
cdef int _FIRST_TX_ORDINAL = change_batch_pb2.Run.FIRST_TX_ORDINAL_FIELD_NUMBER
cdef int _COMMITTED_AT_US = change_batch_pb2.Run.COMMITTED_AT_US_FIELD_NUMBER
cdef int _IS_SNAPSHOT = change_batch_pb2.Run.IS_SNAPSHOT_FIELD_NUMBER
cdef int _OPS = change_batch_pb2.Run.OPS_FIELD_NUMBER
cdef int _KEYS = change_batch_pb2.Run.KEYS_FIELD_NUMBER
cdef int _VALUES = change_batch_pb2.Run.VALUES_FIELD_NUMBER
cdef int _FOR_TENANTS = change_batch_pb2.Run.FOR_TENANTS_FIELD_NUMBER


cdef class Run:
    """Consecutive rows of one table, schema version and transaction: the names of ``change_batch.proto``."""

    def __cinit__(self):
        self.database = self.table = self.transaction_id = self.rank = ""
        self.ops = b""
        self.for_tenants = ()

    def __dealloc__(self):
        free(self.key_spans)
        free(self.value_spans)

    def __len__(self) -> int:
        return self.count

    @property
    def keys(self) -> list[bytes]:
        """The key of each row, copied."""
        return self._pieces(self.key_spans)

    @property
    def values(self) -> list[bytes]:
        """The value of each row, copied."""
        return self._pieces(self.value_spans)

    cdef list _pieces(self, Span* spans):
        cdef Py_ssize_t row
        return [PyBytes_FromStringAndSize(self.data + spans[row].begin, spans[row].size) for row in range(self.count)]

    cdef str _text(self, Py_ssize_t begin, Py_ssize_t end):
        return PyUnicode_DecodeUTF8(self.data + begin, end - begin, NULL)

    cdef int _read(self, Py_ssize_t begin, Py_ssize_t end) except -1:
        cdef Cursor cursor = Cursor(<const uint8_t*>self.data, begin, end)
        cdef Field field
        cdef Py_ssize_t keys = 0, values = 0, key_capacity = 0, value_capacity = 0
        while cursor.place < end:
            read_field(&cursor, &field)
            if field.number == _VALUES:
                require(&field, LENGTH_DELIMITED)
                _keep(&self.value_spans, &value_capacity, values, &field)
                values += 1
                self.largest_value = max(self.largest_value, field.end - field.begin)
            elif field.number == _KEYS:
                require(&field, LENGTH_DELIMITED)
                _keep(&self.key_spans, &key_capacity, keys, &field)
                keys += 1
                self.largest_key = max(self.largest_key, field.end - field.begin)
            elif field.number in (_DATABASE, _TABLE, _TRANSACTION_ID, _RANK, _OPS):
                require(&field, LENGTH_DELIMITED)
                if field.number == _OPS:
                    self.ops = self._payload[field.begin:field.end]
                elif field.number == _DATABASE:
                    self.database = self._text(field.begin, field.end)
                elif field.number == _TABLE:
                    self.table = self._text(field.begin, field.end)
                elif field.number == _TRANSACTION_ID:
                    self.transaction_id = self._text(field.begin, field.end)
                else:
                    self.rank = self._text(field.begin, field.end)
            elif field.number == _FOR_TENANTS:
                require(&field, LENGTH_DELIMITED)
                self.for_tenants = (*self.for_tenants, self._text(field.begin, field.end))
            elif field.number in (_SCHEMA_VERSION, _EPOCH, _FIRST_TX_ORDINAL, _COMMITTED_AT_US, _IS_SNAPSHOT):
                require(&field, VARINT)
                if field.number == _SCHEMA_VERSION:
                    self.schema_version = <unsigned int>field.value
                elif field.number == _EPOCH:
                    self.epoch = <unsigned int>field.value
                elif field.number == _FIRST_TX_ORDINAL:
                    self.first_tx_ordinal = field.value
                elif field.number == _COMMITTED_AT_US:
                    self.committed_at_us = <long long>field.value
                else:
                    self.is_snapshot = field.value != 0
        self.count = PyBytes_GET_SIZE(self.ops)
        if keys != self.count or values != self.count:
            raise ValueError(f"a run of {self.count} operations has {keys} keys and {values} values")
        return 0


cdef int _keep(Span** spans, Py_ssize_t* capacity, Py_ssize_t count, Field* field) except -1:
    """The place of one more, after ``count`` of them."""
    cdef Span* grown
    if count == capacity[0]:
        capacity[0] = max(2 * count, <Py_ssize_t>_FIRST_CAPACITY)
        grown = <Span*>realloc(spans[0], capacity[0] * sizeof(Span))
        if grown == NULL:
            raise MemoryError
        spans[0] = grown
    spans[0][count] = Span(field.begin, field.end - field.begin)
    return 0


def read_entries(bytes payload not None) -> tuple[bytes, list[object]]:
    """A ChangeBatch's fields without its entries, as bytes, and its entries: ``Run`` as here, all others protobuf's.

    Raises:
        ValueError, DecodeError: it is no ChangeBatch.
    """
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(payload)
    cdef Cursor cursor = Cursor(data, 0, PyBytes_GET_SIZE(payload))
    cdef Field field
    cdef Py_ssize_t begin
    cdef list head = [], entries = []
    while cursor.place < cursor.end:
        begin = cursor.place
        read_field(&cursor, &field)
        if field.number != _ENTRIES:
            head.append(payload[begin:cursor.place])
            continue
        require(&field, LENGTH_DELIMITED)
        entries.append(_read_entry(payload, data, field.begin, field.end))
    return b"".join(head), entries


cdef object _read_entry(bytes payload, const uint8_t* data, Py_ssize_t begin, Py_ssize_t end):
    cdef Cursor cursor = Cursor(data, begin, end)
    cdef Field field
    cdef Run run
    if begin < end:
        read_field(&cursor, &field)
        if field.number == _RUN and cursor.place == end:
            require(&field, LENGTH_DELIMITED)
            run = Run.__new__(Run)
            run._payload = payload
            run.data = <const char*>data
            run._read(field.begin, field.end)
            return run
    entry = change_batch_pb2.Entry.FromString(payload[begin:end])
    kind = entry.WhichOneof("entry")
    if kind is None or kind == "run":
        raise ValueError("an entry of a ChangeBatch holds several things, or none")
    return getattr(entry, kind)
