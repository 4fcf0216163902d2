# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""DTS's rows → Debezium events in a run, without a Python object a row.

``RowChangeDecoder`` is made once for each table version and set of columns (``values.row_change_decoder``). It reads the values
of a row from the message's bytes, writes their JSON, then puts the envelope around the images and the whole straight into
the run's protobuf form, as ``libs.mysql.row_events`` does for the binlog. What is frequent is written here: numbers, text, bytes,
dates and times as DTS always prints them. Every other type, and whatever is printed otherwise, is converted by a Python function
for each column, which also says what is wrong with it.

JSON is as orjson writes it, so that a row of the snapshot is equal.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, strlen

from libs.events.json_text cimport (
    append, days_since_1970, write_base64, write_integer, write_literal, write_text
)
from libs.events.run_rows cimport Bytes, RunRows, reserve
from services.dts_decoder.messages cimport EntryReader
from services.dts_decoder.wire cimport LENGTH_DELIMITED, VARINT, Cursor, Field, read_field, require

from libs.events import batch
from libs.events.envelope import AFTER, AFTER_NULL, BEFORE, BEFORE_NULL_AFTER
from libs.types.value import UNAVAILABLE_VALUE
from protos.dts import subscription_pb2

cdef uint8_t _OP_CREATE = batch.OP_CREATE
cdef uint8_t _OP_UPDATE = batch.OP_UPDATE
cdef uint8_t _OP_DELETE = batch.OP_DELETE
cdef uint8_t _OP_KEY_CHANGE_DELETE = batch.OP_KEY_CHANGE_DELETE
cdef uint8_t _OP_KEY_CHANGE_CREATE = batch.OP_KEY_CHANGE_CREATE
cdef bytes _BEFORE = BEFORE
cdef bytes _AFTER = AFTER
cdef bytes _AFTER_NULL = AFTER_NULL
cdef bytes _BEFORE_NULL_AFTER = BEFORE_NULL_AFTER
cdef bytes _UNAVAILABLE = b'"' + UNAVAILABLE_VALUE.encode() + b'"'
cdef int _INSERT = subscription_pb2.DML_TYPE_INSERT
cdef int _UPDATE = subscription_pb2.DML_TYPE_UPDATE
cdef int _DELETE = subscription_pb2.DML_TYPE_DELETE
cdef int _NIL = subscription_pb2.DATA_TYPE_NIL
cdef int _INT8 = subscription_pb2.DATA_TYPE_INT8
cdef int _UINT64 = subscription_pb2.DATA_TYPE_UINT64
cdef int _BYTES_TYPE = subscription_pb2.DATA_TYPE_BYTES
cdef int _DECIMAL_TYPE = subscription_pb2.DATA_TYPE_DECIMAL
cdef int _STRING_TYPE = subscription_pb2.DATA_TYPE_STRING
cdef int _NA = subscription_pb2.DATA_TYPE_NA

ENVELOPE_BYTES = 500
"""Of a row's event beside its images, roughly."""
cdef Py_ssize_t _ENVELOPE_BYTES = ENVELOPE_BYTES

cdef enum:
    _INTEGER = 0
    _TEXT
    _BINARY
    _DOUBLE
    _DECIMAL
    _DATE
    _DATETIME
    _TIMESTAMP
    _CONVERTED

# The same for Python, which makes readings of them.
INTEGER, TEXT, BINARY, DOUBLE, DECIMAL = _INTEGER, _TEXT, _BINARY, _DOUBLE, _DECIMAL
DATE, DATETIME, TIMESTAMP, CONVERTED = _DATE, _DATETIME, _TIMESTAMP, _CONVERTED

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, object overflow) except? -1.0
    char* PyOS_double_to_string(double number, char format, int precision, int flags, int* type) except NULL
    void PyMem_Free(void* memory)
    int Py_DTSF_ADD_DOT_0

cdef enum:
    _LONGEST_NUMBER = 24
    _LONGEST_DOUBLE = 32
    _LONGEST_TIMESTAMP = 40
    _DATE_SIZE = 10  # 2021-05-17
    _CLOCK_SIZE = 19  # 2021-05-17 07:22:42
    _ZONE_SIZE = 7  # a space and +00:00
    _SAFE_DIGITS = 18  # so many always fit into 64 bits
    _KEPT_IMAGE_BYTES = 4_000_000

cdef struct Column:
    int kind
    bint is_key
    int64_t lowest
    int64_t highest
    Py_ssize_t padded_bytes
    int precision
    int scale  # digits behind the point, of a number or a second
    int units_per_s
    const char* opening  # ``,"name":``
    Py_ssize_t opening_size

cdef struct Cell:
    int data_type
    Field charset
    Field sv
    Field bv


cdef class RowFrame:
    """What the values of a run's events have around their images."""

    cdef bytes _source, _middle, _create_end, _update_end, _delete_end
    cdef bint _is_numbered
    cdef public int64_t total_order
    """Of the transaction's last event; counted only where events carry the transaction block."""
    cdef public int64_t collection_order
    """Of the transaction's last event in this table."""

    def __init__(self, bytes source not None, bytes middle not None, ends, bint is_numbered) -> None:
        """``source``: from ``,"source":`` to the row's number; ``middle``: behind it; ``ends``: of a create, an update and a
        delete. Numbered: the event's numbers in its transaction stand between middle and end."""
        self._source = source
        self._middle = middle
        self._create_end, self._update_end, self._delete_end = ends
        self._is_numbered = is_numbered
        self.total_order = self.collection_order = 0


cdef class RowChangeDecoder:
    """Decodes the rows of one table version under one set of columns."""

    cdef Column* _columns
    cdef int _column_count
    cdef tuple _openings, _converters, _nulls, _key_openings, _key_places
    cdef object _to_utf8
    cdef dict _charsets
    cdef Bytes _images, _key, _old_key, _place
    cdef Py_ssize_t* _key_begins
    cdef Py_ssize_t* _key_ends
    cdef readonly int column
    """Where decoding stands: the column, and the row of its event. After an error, where it happened."""
    cdef public int row
    cdef readonly Py_ssize_t row_begin
    """Where the serialised row begins that was read last."""
    cdef readonly Py_ssize_t place
    """Behind the row that was read last, also where it could not be decoded: decoding may go on from here."""

    def __cinit__(self, readings, names, key_places, to_utf8) -> None:
        count = len(readings)
        self._columns = <Column*>malloc(max(1, count) * sizeof(Column))
        self._key_begins = <Py_ssize_t*>malloc(max(1, count) * sizeof(Py_ssize_t))
        self._key_ends = <Py_ssize_t*>malloc(max(1, count) * sizeof(Py_ssize_t))
        if self._columns == NULL or self._key_begins == NULL or self._key_ends == NULL:
            raise MemoryError

    def __init__(self, readings, names, key_places, to_utf8) -> None:
        """One of ``readings`` and of ``names`` (JSON text) a column; ``key_places``: the columns of the key, in its order.
        ``to_utf8``: (charset, whether the column has one of its own, its number) → None where bytes are UTF-8 as they are,
        else a function that makes UTF-8 of them."""
        cdef int index
        cdef Column* column
        self._column_count = len(readings)
        self._openings = _openings(names)
        self._key_places = tuple(key_places)
        self._key_openings = _openings([names[place] for place in key_places])
        self._converters = tuple(reading.convert for reading in readings)
        self._nulls = tuple(reading.null for reading in readings)
        self._to_utf8 = to_utf8
        self._charsets = {}
        for index in range(self._column_count):
            reading = readings[index]
            column = &self._columns[index]
            column.kind = reading.kind
            column.is_key = index in key_places
            column.lowest, column.highest = reading.lowest, reading.highest
            column.padded_bytes = reading.padded_bytes
            column.precision, column.scale = reading.precision, reading.scale
            column.units_per_s = reading.units_per_s
            column.opening = PyBytes_AS_STRING(self._openings[index])
            column.opening_size = PyBytes_GET_SIZE(self._openings[index])

    def __dealloc__(self):
        free(self._columns)
        free(self._key_begins)
        free(self._key_ends)
        free(self._images.data)
        free(self._key.data)
        free(self._old_key.data)
        free(self._place.data)

    def decode(
        self, RowFrame frame not None, RunRows run not None, EntryReader entry not None, int dml_type, Py_ssize_t place,
        Py_ssize_t room,
    ) -> tuple[int, int]:
        """Add the rows of ``entry`` from ``place`` on to ``run``, until its end or until ``room`` (bytes) is used up.

        ``place`` of this object tells afterwards where to go on; the end of the event means that all is done. An update whose
        key changed becomes two, as Debezium writes it. Rows before a bad one have been added when this raises; decoding may
        go on behind it.

        Returns the row events added, and the room that is left.

        Raises:
            ValueError, and whatever a converter raises: ``row`` and ``column`` tell the place; ``column`` is -1 where the
            row as a whole is wrong.
        """
        cdef Cursor event = Cursor(entry.cursor.data, place, entry.event_end)
        cdef Field field
        cdef int added = 0
        cdef int events
        if not entry.event_begin <= place <= entry.event_end:
            raise IndexError("outside the entry")
        self.place = place
        while event.place < event.end and room >= 0:
            self.column = -1
            self.row_begin = event.place
            read_field(&event, &field)
            if field.number == 3:
                require(&field, LENGTH_DELIMITED)
                self.place = event.place
                events = self._decode_row(frame, run, dml_type, event.data, field.begin, field.end)
                added += events
                room -= field.end - field.begin + events * _ENVELOPE_BYTES
                self.row += 1
            elif field.number <= 2:
                raise ValueError("columns stand behind rows")
            self.place = event.place
        if self._images.capacity > _KEPT_IMAGE_BYTES:  # a single large row should not stay in memory
            free(self._images.data)
            self._images.data = NULL
            self._images.size = self._images.capacity = 0
        return added, room

    cdef int _decode_row(
        self, RowFrame frame, RunRows run, int dml_type, const uint8_t* data, Py_ssize_t begin, Py_ssize_t end
    ) except -1:
        cdef Py_ssize_t before_size
        self._images.size = 0
        self._write_place(frame)
        if dml_type == _INSERT:
            self._write_image(data, begin, end, 2, &self._key)
            self._require_none(data, begin, end, 1)
            self._add(run, frame, _OP_CREATE, &self._key, 0, False, True)
        elif dml_type == _DELETE:
            self._write_image(data, begin, end, 1, &self._key)
            self._require_none(data, begin, end, 2)
            self._add(run, frame, _OP_DELETE, &self._key, self._images.size, True, False)
        elif dml_type == _UPDATE:
            self._write_image(data, begin, end, 1, &self._old_key)
            before_size = self._images.size
            self._write_image(data, begin, end, 2, &self._key)
            if self._key_is_unchanged():
                self._add(run, frame, _OP_UPDATE, &self._key, before_size, True, True)
                return 1
            self._add(run, frame, _OP_KEY_CHANGE_DELETE, &self._old_key, before_size, True, False)
            self._add(run, frame, _OP_KEY_CHANGE_CREATE, &self._key, before_size, False, True)
            return 2
        else:
            raise ValueError("an unknown kind of row change")
        return 1

    # --- one image

    cdef int _require_none(self, const uint8_t* data, Py_ssize_t begin, Py_ssize_t end, int number) except -1:
        cdef Cursor row = Cursor(data, begin, end)
        cdef Field field
        while row.place < row.end:
            read_field(&row, &field)
            if field.number == number:
                self.column = -1
                raise ValueError("an INSERT has old values, or a DELETE new ones")
        return 0

    cdef int _write_image(
        self, const uint8_t* data, Py_ssize_t begin, Py_ssize_t end, int number, Bytes* key
    ) except -1:
        """Write the values in the row's fields ``number`` as a JSON object behind the images, and their key."""
        cdef Cursor row = Cursor(data, begin, end)
        cdef Field field
        cdef Cell cell
        cdef Bytes* out = &self._images
        cdef Column* column
        cdef int index = 0
        reserve(out, 2)
        if self._column_count == 0:
            write_literal(out, b"{", 1)
        while row.place < row.end:
            self.column = -1
            read_field(&row, &field)
            if field.number != number:
                continue
            require(&field, LENGTH_DELIMITED)
            if index == self._column_count:
                raise ValueError("a row has more values than there are columns")
            self.column = index
            column = &self._columns[index]
            reserve(out, column.opening_size + 8)
            write_literal(out, column.opening, column.opening_size)
            if column.is_key:
                self._key_begins[index] = out.size
            _read_cell(&cell, data, field.begin, field.end)
            self._write_cell(column, &cell, data)
            if column.is_key:
                self._key_ends[index] = out.size
            index += 1
        self.column = -1
        if index != self._column_count:
            raise ValueError("a row has fewer values than there are columns")
        reserve(out, 1)
        write_literal(out, b"}", 1)
        self._write_key(key)
        return 0

    cdef int _write_key(self, Bytes* key) except -1:
        cdef Py_ssize_t size
        cdef int place
        cdef bytes opening
        key.size = 0
        if not self._key_places:
            return 0
        for nth in range(len(self._key_places)):
            place = self._key_places[nth]
            opening = self._key_openings[nth]
            size = self._key_ends[place] - self._key_begins[place]
            reserve(key, PyBytes_GET_SIZE(opening) + size + 1)
            write_literal(key, PyBytes_AS_STRING(opening), PyBytes_GET_SIZE(opening))
            write_literal(key, self._images.data + self._key_begins[place], size)
        write_literal(key, b"}", 1)
        return 0

    cdef inline bint _key_is_unchanged(self) noexcept:
        return self._key.size == self._old_key.size and (
            self._key.size == 0 or memcmp(self._key.data, self._old_key.data, self._key.size) == 0
        )

    # --- one cell

    cdef int _write_cell(self, Column* column, Cell* cell, const uint8_t* data) except -1:
        cdef Bytes* out = &self._images
        cdef Field* value = &cell.bv
        cdef const uint8_t* raw
        cdef Py_ssize_t size
        cdef bytes utf8
        if cell.data_type == _NIL:
            if cell.sv.number or cell.bv.number:
                raise ValueError("a value without a type")
            append(out, <bytes>self._nulls[self.column])
            return 0
        if cell.data_type == _NA:
            if column.is_key:
                raise ValueError("the value of a key column is not in the message")
            append(out, _UNAVAILABLE)
            return 0
        if _INT8 <= cell.data_type < _BYTES_TYPE or cell.data_type == _DECIMAL_TYPE:
            value = &cell.sv
            if value.number == 0 or value.begin == value.end:
                raise ValueError("a number without digits")
        elif cell.data_type != _STRING_TYPE and cell.data_type != _BYTES_TYPE:
            raise ValueError("an unknown DataType")
        elif cell.bv.number == 0 and cell.sv.number:
            raise ValueError("text in the place of numbers")
        raw, size = data + value.begin, value.end - value.begin
        if column.kind == _INTEGER:
            if not _INT8 <= cell.data_type <= _UINT64:
                raise ValueError("not an integer")
            return self._write_integer(column, raw, size)
        if column.kind == _BINARY:
            if cell.data_type != _STRING_TYPE and cell.data_type != _BYTES_TYPE:
                raise ValueError("not bytes")
            if size < column.padded_bytes:
                return self._write_converted(raw, size)
            return write_base64(out, raw, size)
        if cell.data_type == _STRING_TYPE or (cell.data_type == _BYTES_TYPE and column.kind == _TEXT):
            utf8 = self._as_utf8(cell, data, raw, size)
            if utf8 is not None:
                raw, size = <const uint8_t*>PyBytes_AS_STRING(utf8), PyBytes_GET_SIZE(utf8)
        elif column.kind == _TEXT:
            raise ValueError("not text")
        if column.kind == _TEXT:
            if not write_text(out, raw, size):
                PyUnicode_DecodeUTF8(<const char*>raw, size, NULL)  # raises where it is not
            return 0
        if self._write_usual(column, cell.data_type, raw, size):
            return 0
        return self._write_converted(raw, size)

    cdef bint _write_usual(self, Column* column, int data_type, const uint8_t* raw, Py_ssize_t size) except -1:
        """Write a value in the print that DTS always uses; False: it is another, or wrong."""
        cdef Bytes* out = &self._images
        cdef int64_t number = 0
        if column.kind == _DECIMAL:
            return _read_decimal(column, raw, size, &number) and _write_unscaled(out, number)
        if column.kind == _DOUBLE:
            return _write_double(out, raw, size)
        if column.kind == _DATE:
            if size != _DATE_SIZE or not _read_date(raw, &number):
                return False
            reserve(out, _LONGEST_NUMBER)
            write_integer(out, number)
            return True
        if column.kind == _DATETIME:
            return _write_datetime(out, column, raw, size)
        if column.kind == _TIMESTAMP:
            return _write_timestamp(out, column, raw, size)
        return False

    cdef int _write_integer(self, Column* column, const uint8_t* digits, Py_ssize_t size) except -1:
        cdef bint is_negative = digits[0] == b"-"
        cdef int64_t number = 0
        cdef Py_ssize_t nth
        if size - is_negative > _SAFE_DIGITS:
            return self._write_converted(digits, size)
        if size == is_negative:
            raise ValueError("a number without digits")
        for nth in range(is_negative, size):
            if not 48 <= digits[nth] <= 57:
                raise ValueError("not an integer")
            number = 10 * number + (digits[nth] - 48)
        if is_negative:
            number = -number
        if not column.lowest <= number <= column.highest:
            raise ValueError("a number that its column cannot hold")
        reserve(&self._images, _LONGEST_NUMBER)
        write_integer(&self._images, number)
        return 0

    cdef bytes _as_utf8(self, Cell* cell, const uint8_t* data, const uint8_t* raw, Py_ssize_t size):
        """None: the bytes are UTF-8 as they are, or should be."""
        cdef Py_ssize_t charset_size = cell.charset.end - cell.charset.begin if cell.charset.number else 0
        cdef const char* charset = <const char*>data + cell.charset.begin
        cdef Py_ssize_t nth
        if charset_size == 4 and memcmp(charset, b"utf8", 4) == 0:
            return None
        if charset_size == 7 and memcmp(charset, b"utf8mb4", 7) == 0:
            return None
        cdef bytes name = PyBytes_FromStringAndSize(charset, charset_size)
        key = (name, self.column)
        convert = self._charsets.get(key, self)
        if convert is self:
            if len(self._charsets) > 10_000:  # a message made to fill memory
                self._charsets.clear()
            convert = self._charsets[key] = self._to_utf8(name, self.column)
        if convert is None:
            return None
        return convert(PyBytes_FromStringAndSize(<const char*>raw, size))

    cdef int _write_converted(self, const uint8_t* cell, Py_ssize_t size) except -1:
        cdef bytes text = self._converters[self.column](PyBytes_FromStringAndSize(<const char*>cell, size))
        append(&self._images, text)
        return 0

    # --- one event

    cdef int _write_place(self, RowFrame frame) except -1:
        """``,"source":{…,"row":0`` and what follows up to the numbers or the end."""
        cdef Bytes* out = &self._place
        out.size = 0
        append(out, frame._source)
        reserve(out, _LONGEST_NUMBER)
        write_integer(out, self.row)
        append(out, frame._middle)
        return 0

    cdef int _add(
        self, RunRows run, RowFrame frame, uint8_t op, Bytes* key, Py_ssize_t before_size, bint has_before, bint has_after
    ) except -1:
        """One event of the images at hand: the first ``before_size`` bytes are the row before, the rest the row after."""
        cdef char[2 * _LONGEST_NUMBER + 32] number_bytes
        cdef Bytes numbers
        cdef bytes opening, joint
        cdef bytes tail = frame._update_end
        if not has_before:
            opening, joint, tail = _BEFORE_NULL_AFTER, b"", frame._create_end
        elif has_after:
            opening, joint = _BEFORE, _AFTER
        else:
            opening, joint, tail = _BEFORE, _AFTER_NULL, frame._delete_end
        numbers.data, numbers.size, numbers.capacity = number_bytes, 0, sizeof(number_bytes)
        if frame._is_numbered:
            frame.total_order += 1
            frame.collection_order += 1
            write_integer(&numbers, frame.total_order)
            write_literal(&numbers, b',"data_collection_order":', 25)
            write_integer(&numbers, frame.collection_order)
            write_literal(&numbers, b"}", 1)
        cdef Py_ssize_t after_size = self._images.size - before_size
        run.begin_row(
            op, key.data, key.size,
            PyBytes_GET_SIZE(opening) + has_before * before_size + PyBytes_GET_SIZE(joint) + has_after * after_size
            + self._place.size + numbers.size + PyBytes_GET_SIZE(tail),
        )
        run.add_part(PyBytes_AS_STRING(opening), PyBytes_GET_SIZE(opening))
        if has_before:
            run.add_part(self._images.data, before_size)
        run.add_part(PyBytes_AS_STRING(joint), PyBytes_GET_SIZE(joint))
        if has_after:
            run.add_part(self._images.data + before_size, after_size)
        run.add_part(self._place.data, self._place.size)
        run.add_part(numbers.data, numbers.size)
        run.add_part(PyBytes_AS_STRING(tail), PyBytes_GET_SIZE(tail))
        return 0


cdef tuple _openings(names):
    return tuple([(b"," if nth else b"{") + name + b":" for nth, name in enumerate(names)])


# --- values in their usual print; False where it is another ---------------------------------------------------------------

cdef bint _read_decimal(Column* column, const uint8_t* text, Py_ssize_t size, int64_t* unscaled) noexcept:
    """``-12.50`` with all digits of the scale, no more digits than fit into 64 bits."""
    cdef Py_ssize_t nth = 0
    cdef bint is_negative = size > 0 and text[0] == b"-"
    cdef int64_t number = 0
    cdef int whole = 0
    cdef int fraction = -1  # digits behind the point; -1: before it
    for nth in range(is_negative, size):
        if text[nth] == b"." and fraction < 0:
            fraction = 0
        elif 48 <= text[nth] <= 57:
            number = 10 * number + (text[nth] - 48)
            if fraction >= 0:
                fraction += 1
            elif number:  # zeros in front do not count
                whole += 1
        else:
            return False
        if whole + fraction > _SAFE_DIGITS:
            return False
    if size == is_negative or max(fraction, 0) != column.scale or whole > column.precision - column.scale:
        return False
    unscaled[0] = -number if is_negative else number
    return True


cdef bint _write_unscaled(Bytes* out, int64_t unscaled) except -1:
    """Connect's Decimal: the shortest big-endian two's complement, in base64."""
    cdef uint8_t[8] stored
    cdef int size = 1
    cdef int nth
    while size < 8 and not -(<int64_t>1 << (8 * size - 1)) <= unscaled < <int64_t>1 << (8 * size - 1):
        size += 1
    for nth in range(size):
        stored[nth] = <uint8_t>(unscaled >> 8 * (size - 1 - nth) & 0xFF)
    write_base64(out, stored, size)
    return True


cdef bint _write_double(Bytes* out, const uint8_t* text, Py_ssize_t size) except -1:
    """The shortest digits that are the number; very large and very small ones, whose exponents orjson writes otherwise than
    Python does, are left to it."""
    cdef char[_LONGEST_DOUBLE] copied
    cdef char* end = NULL
    cdef char* printed
    cdef Py_ssize_t nth
    cdef double number
    if size >= _LONGEST_DOUBLE or size == 0:
        return False
    for nth in range(size):
        if not (48 <= text[nth] <= 57 or text[nth] == b"." or text[nth] == b"-" and nth == 0):
            return False
        copied[nth] = <char>text[nth]
    copied[size] = 0
    number = PyOS_string_to_double(copied, &end, None)
    if end != copied + size or not (number == 0 or 1e-4 <= abs(number) < 1e15):
        return False
    printed = PyOS_double_to_string(number, b"r", 0, Py_DTSF_ADD_DOT_0, NULL)
    reserve(out, _LONGEST_DOUBLE)
    write_literal(out, printed, strlen(printed))
    PyMem_Free(printed)
    return True


cdef inline int _two(const uint8_t* text) noexcept:
    """Two digits; negative where they are none."""
    if 48 <= text[0] <= 57 and 48 <= text[1] <= 57:
        return 10 * (text[0] - 48) + (text[1] - 48)
    return -1000


cdef bint _read_date(const uint8_t* text, int64_t* days) noexcept:
    """``2021-05-17``; not zero dates."""
    cdef int century = _two(text)
    cdef int year = _two(text + 2)
    cdef int month = _two(text + 5)
    cdef int day = _two(text + 8)
    if century < 0 or year < 0 or not 1 <= month <= 12 or not 1 <= day <= 31 or text[4] != b"-" or text[7] != b"-":
        return False
    days[0] = days_since_1970(100 * century + year, month, day)
    return True


cdef bint _read_clock(const uint8_t* text, int64_t* seconds) noexcept:
    """`` 07:22:42``."""
    cdef int hour = _two(text + 1)
    cdef int minute = _two(text + 4)
    cdef int second = _two(text + 7)
    if text[0] != b" " or text[3] != b":" or text[6] != b":":
        return False
    if not 0 <= hour <= 23 or not 0 <= minute <= 59 or not 0 <= second <= 59:
        return False
    seconds[0] = 3600 * hour + 60 * minute + second
    return True


cdef bint _write_datetime(Bytes* out, Column* column, const uint8_t* text, Py_ssize_t size) except -1:
    """With as many digits of the second as the column has."""
    cdef int64_t days = 0
    cdef int64_t seconds = 0
    cdef int64_t us = 0
    cdef int nth
    if size != _CLOCK_SIZE + (column.scale + 1 if column.scale else 0):
        return False
    if not _read_date(text, &days) or not _read_clock(text + _DATE_SIZE, &seconds):
        return False
    if column.scale:
        if text[_CLOCK_SIZE] != b".":
            return False
        for nth in range(6):
            us *= 10
            if nth < column.scale:
                if not 48 <= text[_CLOCK_SIZE + 1 + nth] <= 57:
                    return False
                us += text[_CLOCK_SIZE + 1 + nth] - 48
    reserve(out, _LONGEST_NUMBER)
    write_integer(out, (86400 * days + seconds) * column.units_per_s + us * column.units_per_s // 1_000_000)
    return True


cdef bint _write_timestamp(Bytes* out, Column* column, const uint8_t* text, Py_ssize_t size) except -1:
    """In UTC, with as many digits of the second as the column has; its text is nearly the wire form already."""
    cdef int64_t ignored = 0
    cdef Py_ssize_t clock_size = _CLOCK_SIZE + (column.scale + 1 if column.scale else 0)
    cdef Py_ssize_t nth
    if size != clock_size + _ZONE_SIZE or memcmp(text + clock_size, b" +00:00", _ZONE_SIZE) != 0:
        return False
    if not _read_date(text, &ignored) or not _read_clock(text + _DATE_SIZE, &ignored):
        return False
    for nth in range(_CLOCK_SIZE, clock_size):
        if not (text[nth] == b"." if nth == _CLOCK_SIZE else 48 <= text[nth] <= 57):
            return False
    reserve(out, _LONGEST_TIMESTAMP)
    write_literal(out, b'"', 1)
    write_literal(out, <const char*>text, _DATE_SIZE)
    write_literal(out, b"T", 1)
    write_literal(out, <const char*>text + _DATE_SIZE + 1, clock_size - _DATE_SIZE - 1)
    write_literal(out, b'Z"', 2)
    return True


cdef int _read_cell(Cell* cell, const uint8_t* data, Py_ssize_t begin, Py_ssize_t end) except -1:
    cdef Cursor cursor = Cursor(data, begin, end)
    cdef Field field
    cell.data_type = 0
    cell.charset.number = cell.sv.number = cell.bv.number = 0
    cell.charset.begin = cell.charset.end = cell.sv.begin = cell.sv.end = cell.bv.begin = cell.bv.end = 0
    while cursor.place < cursor.end:
        read_field(&cursor, &field)
        if field.number == 1:
            require(&field, VARINT)
            cell.data_type = <int>min(field.value, <uint64_t>1_000_000)
        elif field.number == 2:
            require(&field, LENGTH_DELIMITED)
            cell.charset = field
        elif field.number == 3:
            require(&field, LENGTH_DELIMITED)
            cell.sv = field
        elif field.number == 4:
            require(&field, LENGTH_DELIMITED)
            cell.bv = field
    return 0
