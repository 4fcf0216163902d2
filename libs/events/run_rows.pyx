# cython: language_level=3, boundscheck=False, wraparound=False
"""The rows of a run, put into protobuf's wire form as they come: no Python object a row.

A reader's decoder writes a row's key and value straight after those that are there (``begin_row`` and ``add_part``); a
reader that has them as ``bytes`` calls ``append``. Wire form: Protocol Buffers, "Encoding": before each key and value stand
its field's tag and its length.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from protos.headwater.changes.v1.change_batch_pb2 import Run

cdef enum:
    _LENGTH_DELIMITED = 2  # the wire type of bytes, text and messages
    _LONGEST_OPENING = 11  # a tag of one byte and a length of at most ten
    _FIRST_CAPACITY = 4096
    _LARGE_BYTES = 65_536
    _MOST_RESERVED_BYTES = 2_000_000

cdef Py_ssize_t _usual_bytes = 0
"""Of the values of the run before, and some more: the next one reserves so many. A buffer that grows is copied each time that
it
doubles."""

# One byte each, as long as the fields' numbers are below 16.
cdef unsigned char _KEY_TAG = Run.KEYS_FIELD_NUMBER << 3 | _LENGTH_DELIMITED
cdef unsigned char _VALUE_TAG = Run.VALUES_FIELD_NUMBER << 3 | _LENGTH_DELIMITED


cdef int grow(Bytes* bytes_, Py_ssize_t needed) except -1:
    cdef Py_ssize_t capacity = max(2 * bytes_.capacity, bytes_.size + needed, <Py_ssize_t>_FIRST_CAPACITY)
    cdef char* data = <char*>realloc(bytes_.data, capacity)
    if data == NULL:
        raise MemoryError
    bytes_.data = data
    bytes_.capacity = capacity
    return 0


cdef inline void _open(Bytes* bytes_, unsigned char tag, Py_ssize_t size) noexcept:
    """The tag and the length: seven bits a byte, the lowest first; the eighth says that more follow."""
    cdef char* place = bytes_.data + bytes_.size
    place[0] = <char>tag
    place += 1
    while size > 0x7F:
        place[0] = <char>(size & 0x7F | 0x80)
        place += 1
        size >>= 7
    place[0] = <char>size
    bytes_.size = place + 1 - bytes_.data


cdef list _payloads(Bytes* bytes_):
    cdef list payloads = []
    cdef Py_ssize_t place = 0
    cdef Py_ssize_t size
    cdef int shift
    while place < bytes_.size:
        place += 1  # the tag
        size = shift = 0
        while True:
            size |= (<Py_ssize_t>bytes_.data[place] & 0x7F) << shift
            shift += 7
            place += 1
            if not bytes_.data[place - 1] & 0x80:
                break
        payloads.append(PyBytes_FromStringAndSize(bytes_.data + place, size))
        place += size
    return payloads


cdef class RunRows:
    """Operations, keys and values of a run's rows, in log order."""

    def __dealloc__(self):
        global _usual_bytes
        if self._values.size:
            _usual_bytes = min(self._values.size + self._values.size // 8, <Py_ssize_t>_MOST_RESERVED_BYTES)
        free(self._ops.data)
        free(self._keys.data)
        free(self._values.data)

    def __len__(self) -> int:
        return self._ops.size

    def append(self, int op, bytes key not None, bytes value not None) -> None:
        """One row: an operation of ``change_batch.proto``, Debezium's key (``b""`` for a table without one) and value."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(value)
        self.begin_row(<unsigned char>op, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), size)
        self.add_part(PyBytes_AS_STRING(value), size)

    cdef int begin_row(
        self, unsigned char op, const char* key, Py_ssize_t key_size, Py_ssize_t value_size
    ) except -1:
        reserve(&self._ops, 1)
        reserve(&self._keys, _LONGEST_OPENING + key_size)
        if self._values.data == NULL:
            grow(&self._values, max(_usual_bytes, _LONGEST_OPENING + value_size))
        reserve(&self._values, _LONGEST_OPENING + value_size)
        self._ops.data[self._ops.size] = <char>op
        self._ops.size += 1
        _open(&self._keys, _KEY_TAG, key_size)
        memcpy(self._keys.data + self._keys.size, key, key_size)
        self._keys.size += key_size
        _open(&self._values, _VALUE_TAG, value_size)
        return 0

    def keys(self) -> list[bytes]:
        """The key of each row. For the few who look into a run; its way goes by ``encoded``."""
        return _payloads(&self._keys)

    def values(self) -> list[bytes]:
        """The value of each row."""
        return _payloads(&self._values)

    @property
    def ops(self) -> bytes:
        """One byte a row."""
        return PyBytes_FromStringAndSize(self._ops.data, self._ops.size)

    @property
    def size_bytes(self) -> int:
        """Of keys and values in their wire form."""
        return self._keys.size + self._values.size

    @property
    def is_large(self) -> bool:
        """Worth keeping for ``joined``, which saves the copy that ``encoded`` makes. The buffers of a small run are larger than it."""
        return self._keys.size + self._values.size >= _LARGE_BYTES

    def encoded(self) -> bytes:
        """Keys and values: fields of a ``Run``, to follow its others."""
        return joined((self,))


def joined(tuple parts not None) -> bytes:
    """All parts one after another: bytes, and the ``encoded`` form of each ``RunRows``, which is copied this once."""
    cdef Py_ssize_t size = 0
    cdef bytes whole
    cdef char* place
    cdef RunRows run
    for part in parts:
        size += part.size_bytes if isinstance(part, RunRows) else PyBytes_GET_SIZE(<bytes?>part)
    whole = PyBytes_FromStringAndSize(NULL, size)
    place = PyBytes_AS_STRING(whole)
    for part in parts:
        if isinstance(part, RunRows):
            run = part
            memcpy(place, run._keys.data, run._keys.size)
            memcpy(place + run._keys.size, run._values.data, run._values.size)
            place += run._keys.size + run._values.size
        else:
            memcpy(place, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))
            place += PyBytes_GET_SIZE(part)
    return whole
