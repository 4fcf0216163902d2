# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The records of a batch, encoded as they come, and the headers of a run's rows: what is done for each record, compiled.

The form of a record: Kafka documentation, "Message Format", https://kafka.apache.org/documentation/#record. Its numbers are
zigzag varints (Protocol Buffers, "Encoding").
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from cpython.sequence cimport PySequence_Fast, PySequence_Fast_GET_SIZE, PySequence_Fast_ITEMS
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from services.router.batches.changes cimport Run, Span
from services.router.records.partitioner cimport partition_of

cdef enum:
    _NULL = -1  # in the place of a length
    _ORDINAL_DIGITS = 10
    _FIRST_PIECE_BYTES = 4096
    _PIECE_BYTES = 65536  # a block of an lz4 frame, and small enough for the processor's cache
    _LONGEST_VARINT = 10
    _DELETE = 100  # 'd' of ``Run.ops``

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


cdef inline void _put_ordinal(char* place, Py_ssize_t ordinal) noexcept:
    """In ten digits."""
    cdef int digit
    for digit in range(_ORDINAL_DIGITS - 1, -1, -1):
        place[digit] = <char>(48 + ordinal % 10)  # 48: the digit 0 in ASCII
        ordinal //= 10


cdef int _check_ordinals(Py_ssize_t first, Py_ssize_t count) except -1:
    if first < 0 or first + count > 10_000_000_000:
        raise OverflowError("an ordinal has ten digits at most")
    return 0


# --- columns --------------------------------------------------------------------------------------------------------


cdef inline bint _is_framed(object item) noexcept:
    return item is None or isinstance(item, bytes)


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
    cdef Py_ssize_t before_size = PyBytes_GET_SIZE(before), behind_size = PyBytes_GET_SIZE(behind), ordinal
    cdef char* place
    cdef bytes headers
    cdef list rows = []
    _check_ordinals(first, count)
    for ordinal in range(first, first + count):
        headers = PyBytes_FromStringAndSize(NULL, before_size + _ORDINAL_DIGITS + behind_size)
        place = PyBytes_AS_STRING(headers)
        memcpy(place, PyBytes_AS_STRING(before), before_size)
        _put_ordinal(place + before_size, ordinal)
        memcpy(place + before_size + _ORDINAL_DIGITS, PyBytes_AS_STRING(behind), behind_size)
        rows.append(headers)
    return rows


# --- rows in place --------------------------------------------------------------------------------------------------


cdef class PassedRows:
    """A run's rows that pass as they are: each a record, with what stands around its key, its value and its ordinal."""

    cdef Run _run
    cdef const char* _ops
    cdef bint _has_tombstones
    cdef Py_ssize_t _first
    cdef bytes _key_prefix
    cdef bytes _value_prefix
    cdef bytes _before
    cdef bytes _behind
    cdef Py_ssize_t* _places  # of the rows, in the run; NULL: all of it
    cdef Py_ssize_t _count

    def __init__(
        self,
        Run run not None,
        *,
        bytes before not None,
        bytes behind not None,
        bint tombstones,
        bytes key_prefix not None = b"",
        bytes value_prefix not None = b"",
    ) -> None:
        """``before`` and ``behind`` the ordinal stand a row's headers, as ``join_headers`` writes them; a prefix has a brace
        that closes behind key or value. With ``tombstones``, one stands behind each delete.

        Raises:
            OverflowError: an ordinal has more than ten digits.
        """
        _check_ordinals(run.first_tx_ordinal, 1 if run.is_snapshot else run.count)
        self._count = run.count
        self._run = run
        self._ops = PyBytes_AS_STRING(run.ops)
        self._first = run.first_tx_ordinal
        self._before, self._behind = before, behind
        self._key_prefix, self._value_prefix = key_prefix, value_prefix
        self._has_tombstones = tombstones

    def __dealloc__(self):
        free(self._places)

    def at(self, places) -> "PassedRows":
        """Of all rows, those at these places of the run, in this order. Raises IndexError where the run has no such row."""
        cdef PassedRows some = PassedRows.__new__(PassedRows)
        cdef Py_ssize_t nth = 0, place
        some._run, some._ops, some._first = self._run, self._ops, self._first
        some._before, some._behind = self._before, self._behind
        some._key_prefix, some._value_prefix = self._key_prefix, self._value_prefix
        some._has_tombstones = self._has_tombstones
        some._count = len(places)
        some._places = <Py_ssize_t*>malloc(max(1, some._count) * sizeof(Py_ssize_t))
        if some._places == NULL:
            raise MemoryError
        for nth in range(some._count):
            place = places[nth]
            if place < 0 or place >= self._run.count:
                raise IndexError("a run has no row at this place")
            some._places[nth] = place
        return some

    def __len__(self) -> int:
        return self._count

    cdef inline Py_ssize_t _row(self, Py_ssize_t nth) noexcept:
        """Its place in the run."""
        return nth if self._places == NULL else self._places[nth]

    @property
    def payload_bytes(self) -> int:
        """Of keys and values, as they will be written."""
        cdef Py_ssize_t nth, row, key_size, size = 0
        for nth in range(self._count):
            row = self._row(nth)
            key_size = self._key_size(row)
            if key_size != _NULL:
                size += 2 * key_size if self._is_followed(row) else key_size
            size += self._value_size(row)
        return size

    cdef inline bint _is_followed(self, Py_ssize_t row) noexcept:
        """By a tombstone."""
        return self._has_tombstones and self._ops[row] == _DELETE

    cdef inline Py_ssize_t _key_size(self, Py_ssize_t row) noexcept:
        cdef Py_ssize_t size = self._run.key_spans[row].size
        if size == 0:
            return _NULL
        return size + PyBytes_GET_SIZE(self._key_prefix) + 1 if PyBytes_GET_SIZE(self._key_prefix) else size

    cdef inline Py_ssize_t _value_size(self, Py_ssize_t row) noexcept:
        cdef Py_ssize_t size = self._run.value_spans[row].size
        return size + PyBytes_GET_SIZE(self._value_prefix) + 1 if PyBytes_GET_SIZE(self._value_prefix) else size

    def kafka_partitions(self, Py_ssize_t count, Py_ssize_t of_keyless) -> bytes:
        """For each row the number of its Kafka partition, of ``count``, for ``BatchRecords.add_rows``."""
        cdef bytes numbers = PyBytes_FromStringAndSize(NULL, self._count * sizeof(int32_t))
        cdef int32_t* number = <int32_t*>PyBytes_AS_STRING(numbers)
        cdef Py_ssize_t row
        cdef Span* span
        cdef bytes key
        for row in range(self._count):
            span = &self._run.key_spans[self._row(row)]
            if span.size == 0:
                number[row] = <int32_t>of_keyless
            elif PyBytes_GET_SIZE(self._key_prefix) == 0:
                number[row] = <int32_t>partition_of(self._run.data + span.begin, span.size, count)
            else:
                key = self._key_prefix + self._run.data[span.begin:span.begin + span.size] + b"}"
                number[row] = <int32_t>partition_of(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), count)
        return numbers


# --- batches --------------------------------------------------------------------------------------------------------


cdef class BatchRecords:
    """The records of one batch, encoded as they come; all have the batch's timestamp.

    Whenever a piece is full, ``take_piece`` makes bytes of it: compressed ones, if a codec can do that piece by piece.
    """

    cdef bytearray _piece
    cdef char* _data  # the piece's
    cdef Py_ssize_t _used
    cdef Py_ssize_t _capacity
    cdef list _pieces
    cdef object _take_piece
    cdef Py_ssize_t _kept_bytes  # of the pieces
    cdef Py_ssize_t _most_bytes
    cdef Py_ssize_t _most_kept_bytes
    cdef Py_ssize_t _most_records
    cdef readonly Py_ssize_t record_count
    cdef readonly Py_ssize_t size_bytes

    def __init__(
        self, take_piece, *, Py_ssize_t most_bytes, Py_ssize_t most_kept_bytes, Py_ssize_t most_records
    ) -> None:
        """``take_piece`` gets a memoryview that is good for that call only.

        The batch takes no more than so many bytes, no more than so many once its pieces are taken, and so many records; a
        first record of any size, with its tombstone, aside.
        """
        self._take_piece = take_piece
        self._most_bytes = most_bytes
        self._most_kept_bytes = most_kept_bytes
        self._most_records = most_records
        self._pieces = []
        self._piece = bytearray()

    def __len__(self) -> int:
        return self.record_count

    def copy(self) -> "BatchRecords":
        """The same records so far."""
        cdef BatchRecords copied = BatchRecords(
            self._take_piece,
            most_bytes=self._most_bytes,
            most_kept_bytes=self._most_kept_bytes,
            most_records=self._most_records,
        )
        copied._pieces = self._pieces.copy()
        copied._piece = bytearray(self._piece)
        copied._data = PyByteArray_AS_STRING(copied._piece)
        copied._used, copied._capacity, copied._kept_bytes = self._used, self._capacity, self._kept_bytes
        copied.record_count, copied.size_bytes = self.record_count, self.size_bytes
        return copied

    def take_pieces(self) -> list:
        """All pieces, as ``take_piece`` made them; from now on it holds nothing."""
        if self._used:
            self._end_piece()
        pieces, self._pieces = self._pieces, []
        self._piece = bytearray()
        self._data = NULL
        self._capacity = self._kept_bytes = 0
        self.record_count = self.size_bytes = 0
        return pieces

    def add_columns(self, keys, values, headers, Py_ssize_t start) -> int:
        """Records from ``start`` on, as many as fit; gives the place of the first that does not.

        Keys and values are bytes or None, headers bytes as ``join_headers`` writes them.

        Raises:
            TypeError, IndexError: the columns are something else.
        """
        keys, values, headers = (PySequence_Fast(column, "a column is a list") for column in (keys, values, headers))
        cdef PyObject** key = PySequence_Fast_ITEMS(keys)
        cdef PyObject** value = PySequence_Fast_ITEMS(values)
        cdef PyObject** header = PySequence_Fast_ITEMS(headers)
        cdef Py_ssize_t place, count = len(values), key_size, value_size, size
        if start < 0 or len(keys) != count or len(headers) != count:
            raise IndexError("the columns are not of one length")
        for place in range(start, count):
            if not (_is_framed(<object>key[place]) and _is_framed(<object>value[place])):
                raise TypeError("keys and values are bytes or None")
            if not isinstance(<object>header[place], bytes):
                raise TypeError("headers are bytes")
            key_size = _NULL if <object>key[place] is None else PyBytes_GET_SIZE(<object>key[place])
            value_size = _NULL if <object>value[place] is None else PyBytes_GET_SIZE(<object>value[place])
            size = _record_size(self.record_count, key_size, value_size, PyBytes_GET_SIZE(<object>header[place]))
            if not self._has_room(1, _varint_size(size) + size):
                return place
            self._begin_record(size)
            self._put_number(key_size)
            if key_size > 0:
                self._put(PyBytes_AS_STRING(<object>key[place]), key_size)
            self._put_number(value_size)
            if value_size > 0:
                self._put(PyBytes_AS_STRING(<object>value[place]), value_size)
            self._put(PyBytes_AS_STRING(<object>header[place]), PyBytes_GET_SIZE(<object>header[place]))
        return count

    def add_rows(self, PassedRows rows not None, Py_ssize_t start, bytes kafka_partitions=None, int number=0) -> int:
        """Rows from ``start`` on, as many as fit; gives the first that does not. A delete and its tombstone go together.

        With ``kafka_partitions``, as ``rows.kafka_partitions`` gave them: the rows of that ``number`` alone.
        """
        cdef Py_ssize_t nth, row, count = rows._count, key_size, value_size, size, taken, headers_size, ordinal
        cdef const int32_t* numbers = NULL
        cdef bint is_followed
        if start < 0:
            raise IndexError("a run has no row before its first")
        if kafka_partitions is not None:
            if PyBytes_GET_SIZE(kafka_partitions) != count * <Py_ssize_t>sizeof(int32_t):
                raise IndexError("the Kafka partitions are of other rows")
            numbers = <const int32_t*>PyBytes_AS_STRING(kafka_partitions)
        headers_size = PyBytes_GET_SIZE(rows._before) + _ORDINAL_DIGITS + PyBytes_GET_SIZE(rows._behind)
        for nth in range(start, count):
            if numbers != NULL and numbers[nth] != number:
                continue
            row = rows._row(nth)
            key_size, value_size, is_followed = rows._key_size(row), rows._value_size(row), rows._is_followed(row)
            size = _record_size(self.record_count, key_size, value_size, headers_size)
            taken = _varint_size(size) + size
            if is_followed:  # at most a byte each longer, for the place in the batch and the length
                taken += _record_size(self.record_count + 1, key_size, _NULL, headers_size) + _LONGEST_VARINT
            if not self._has_room(1 + is_followed, taken):
                return nth
            ordinal = rows._first + (0 if rows._run.is_snapshot else row)
            self._begin_record(size)
            self._put_key(rows, row, key_size)
            self._put_value(rows, row, value_size)
            self._put_headers(rows, ordinal)
            if is_followed:
                self._begin_record(_record_size(self.record_count, key_size, _NULL, headers_size))
                self._put_key(rows, row, key_size)
                self._put_number(_NULL)
                self._put_headers(rows, ordinal)
        return count

    cdef inline bint _has_room(self, Py_ssize_t records, Py_ssize_t size) noexcept:
        return self.record_count == 0 or (
            self.record_count + records <= self._most_records
            and self.size_bytes + size <= self._most_bytes
            and self._kept_bytes + self._used + size <= self._most_kept_bytes
        )

    cdef int _put_key(self, PassedRows rows, Py_ssize_t row, Py_ssize_t size) except -1:
        self._put_number(size)
        if size != _NULL:
            self._put_between(rows._key_prefix, rows._run.data, &rows._run.key_spans[row])
        return 0

    cdef int _put_value(self, PassedRows rows, Py_ssize_t row, Py_ssize_t size) except -1:
        self._put_number(size)
        return self._put_between(rows._value_prefix, rows._run.data, &rows._run.value_spans[row])

    cdef int _put_between(self, bytes prefix, const char* data, Span* span) except -1:
        if PyBytes_GET_SIZE(prefix):
            self._put(PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
            self._put(data + span.begin, span.size)
            return self._put(b"}", 1)
        return self._put(data + span.begin, span.size)

    cdef int _put_headers(self, PassedRows rows, Py_ssize_t ordinal) except -1:
        cdef char[_ORDINAL_DIGITS] digits
        _put_ordinal(digits, ordinal)
        self._put(PyBytes_AS_STRING(rows._before), PyBytes_GET_SIZE(rows._before))
        self._put(digits, _ORDINAL_DIGITS)
        return self._put(PyBytes_AS_STRING(rows._behind), PyBytes_GET_SIZE(rows._behind))

    cdef int _begin_record(self, Py_ssize_t size) except -1:
        """Its length, of ``size`` bytes behind it, attributes, timestamp and place in the batch."""
        cdef char[2] nothing = [0, 0]
        self._put_number(size)
        self._put(nothing, 2)
        self._put_number(self.record_count)
        self.record_count += 1
        self.size_bytes += _varint_size(size) + size
        return 0

    cdef inline int _put_number(self, Py_ssize_t number) except -1:
        cdef char[_LONGEST_VARINT] encoded
        return self._put(encoded, _put_varint(encoded, number) - encoded)

    cdef inline int _put(self, const char* data, Py_ssize_t size) except -1:
        if size > self._capacity - self._used:
            return self._put_in_parts(data, size)
        memcpy(self._data + self._used, data, size)
        self._used += size
        return 0

    cdef int _put_in_parts(self, const char* data, Py_ssize_t size) except -1:
        """The piece grows, up to its most; then it is a piece."""
        cdef Py_ssize_t part
        while size:
            if self._used == self._capacity:
                if self._capacity < _PIECE_BYTES:
                    self._grow(size)
                else:
                    self._end_piece()
            part = min(size, self._capacity - self._used)
            memcpy(self._data + self._used, data, part)
            self._used += part
            data += part
            size -= part
        return 0

    cdef int _grow(self, Py_ssize_t needed) except -1:
        self._capacity = min(max(2 * self._capacity, self._used + needed, _FIRST_PIECE_BYTES), _PIECE_BYTES)
        PyByteArray_Resize(self._piece, self._capacity)
        self._data = PyByteArray_AS_STRING(self._piece)
        return 0

    cdef int _end_piece(self) except -1:
        view = memoryview(self._piece)
        cdef bytes piece = self._take_piece(view[: self._used])
        view.release()
        self._pieces.append(piece)
        self._kept_bytes += PyBytes_GET_SIZE(piece)
        self._used = 0
        return 0


cdef inline Py_ssize_t _record_size(
    Py_ssize_t offset, Py_ssize_t key_size, Py_ssize_t value_size, Py_ssize_t headers_size
) noexcept:
    """Behind the record's length; attributes and timestamp are a byte each."""
    return (
        2 + _varint_size(offset) + _varint_size(key_size) + max(key_size, 0) + _varint_size(value_size)
        + max(value_size, 0) + headers_size
    )
