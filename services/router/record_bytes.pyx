# cython: language_level=3, boundscheck=False, wraparound=False
"""What is done for each record of a batch, compiled: its frame around key, value and headers, and the headers of a run's rows.

The form of a record: Kafka documentation, "Message Format", https://kafka.apache.org/documentation/#record. Its numbers are
zigzag varints (Protocol Buffers, "Encoding").
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from cpython.sequence cimport PySequence_Fast, PySequence_Fast_GET_SIZE, PySequence_Fast_ITEMS
from libc.string cimport memcpy

cdef enum:
    _NULL = -1  # in the place of a length
    _ORDINAL_DIGITS = 10


cdef inline Py_ssize_t _varint_size(Py_ssize_t number) noexcept:
    """Of a number from -1 on."""
    cdef size_t rest = <size_t>number << 1 if number >= 0 else 1
    cdef Py_ssize_t size = 1
    while rest > 0x7F:
        rest >>= 7
        size += 1
    return size


cdef inline char* _put_varint(char* place, Py_ssize_t number) noexcept:
    """Behind ``place``; gives the end."""
    cdef size_t rest = <size_t>number << 1 if number >= 0 else 1
    while rest > 0x7F:
        place[0] = <char>(rest & 0x7F | 0x80)
        place += 1
        rest >>= 7
    place[0] = <char>rest
    return place + 1


cdef inline bint _is_framed(object item) noexcept:
    return item is None or isinstance(item, bytes)


cdef inline Py_ssize_t _framed_size(object item) noexcept:
    """Of a key or a value with its length before it."""
    if item is None:
        return _varint_size(_NULL)
    return _varint_size(PyBytes_GET_SIZE(item)) + PyBytes_GET_SIZE(item)


cdef inline char* _put_framed(char* place, object item) noexcept:
    if item is None:
        return _put_varint(place, _NULL)
    place = _put_varint(place, PyBytes_GET_SIZE(item))
    memcpy(place, PyBytes_AS_STRING(item), PyBytes_GET_SIZE(item))
    return place + PyBytes_GET_SIZE(item)


cdef inline Py_ssize_t _record_size(Py_ssize_t offset, object key, object value, object headers) noexcept:
    """Behind the record's length; attributes and timestamp are a byte each."""
    return 2 + _varint_size(offset) + _framed_size(key) + _framed_size(value) + PyBytes_GET_SIZE(headers)


def encode_records(keys, values, headers, Py_ssize_t start, Py_ssize_t end):
    """Records ``start`` to ``end`` of a batch's columns, one behind the other; all have the batch's timestamp.

    Keys and values are bytes or None, headers bytes as ``join_headers`` writes them.

    Raises:
        TypeError, IndexError: the columns are something else.
    """
    keys, values, headers = (PySequence_Fast(column, "a column is a list") for column in (keys, values, headers))
    cdef PyObject** key = PySequence_Fast_ITEMS(keys)
    cdef PyObject** value = PySequence_Fast_ITEMS(values)
    cdef PyObject** header = PySequence_Fast_ITEMS(headers)
    cdef Py_ssize_t offset, size = 0, record_size
    cdef char* place
    cdef bytes encoded
    if start < 0 or end > min(len(keys), len(values), len(headers)):
        raise IndexError("the columns are shorter")
    for offset in range(start, end):
        if not (_is_framed(<object>key[offset]) and _is_framed(<object>value[offset])):
            raise TypeError("keys and values are bytes or None")
        if not isinstance(<object>header[offset], bytes):
            raise TypeError("headers are bytes")
        record_size = _record_size(offset, <object>key[offset], <object>value[offset], <object>header[offset])
        size += _varint_size(record_size) + record_size
    encoded = PyBytes_FromStringAndSize(NULL, size)
    place = PyBytes_AS_STRING(encoded)
    for offset in range(start, end):
        record_size = _record_size(offset, <object>key[offset], <object>value[offset], <object>header[offset])
        place = _put_varint(place, record_size)
        place[0] = place[1] = 0
        place = _put_varint(place + 2, offset)
        place = _put_framed(place, <object>key[offset])
        place = _put_framed(place, <object>value[offset])
        size = PyBytes_GET_SIZE(<object>header[offset])
        memcpy(place, PyBytes_AS_STRING(<object>header[offset]), size)
        place += size
    return encoded


def total_size(column):
    """Bytes of keys or values; None has none. Raises TypeError where an item is neither."""
    column = PySequence_Fast(column, "a column is a list")
    cdef PyObject** item = PySequence_Fast_ITEMS(column)
    cdef Py_ssize_t place, size = 0
    for place in range(PySequence_Fast_GET_SIZE(column)):
        if not _is_framed(<object>item[place]):
            raise TypeError("keys and values are bytes or None")
        if <object>item[place] is not None:
            size += PyBytes_GET_SIZE(<object>item[place])
    return size


def ordinal_headers(bytes before not None, bytes behind not None, Py_ssize_t first, Py_ssize_t count):
    """For each of ``count`` rows: ``before``, its ordinal in ten digits, counted from ``first`` on, and ``behind``.

    Raises:
        OverflowError: an ordinal has more digits.
    """
    cdef Py_ssize_t before_size = PyBytes_GET_SIZE(before), behind_size = PyBytes_GET_SIZE(behind), ordinal, rest
    cdef char* place
    cdef bytes headers
    cdef int digit
    cdef list rows = []
    if first < 0 or first + count > 10_000_000_000:
        raise OverflowError("an ordinal has ten digits at most")
    for ordinal in range(first, first + count):
        headers = PyBytes_FromStringAndSize(NULL, before_size + _ORDINAL_DIGITS + behind_size)
        place = PyBytes_AS_STRING(headers)
        memcpy(place, PyBytes_AS_STRING(before), before_size)
        place += before_size
        rest = ordinal
        for digit in range(_ORDINAL_DIGITS - 1, -1, -1):
            place[digit] = <char>(48 + rest % 10)  # 48: the digit 0 in ASCII
            rest //= 10
        memcpy(place + _ORDINAL_DIGITS, PyBytes_AS_STRING(behind), behind_size)
        rows.append(headers)
    return rows
