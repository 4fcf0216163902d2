# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""ROW events of a VStream → Debezium events in a run, without a Python object a row.

Values come as MySQL prints them, with all values of a row side by side and their lengths apart. ``RowChangesDecoder`` is
made once for each version of a table, whichever shard it is of, from a ``Reading`` for each column (``fields``). Types that are
rare or intricate (``Reading.kind`` CONVERTED) are converted by a Python function each.

Messages: ``protos/vitess/binlogdata.proto`` (RowEvent, RowChange), ``query.proto`` (Row). Wire forms: ``libs.types.value``.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp

from libs.formats.json_text cimport (
    append, write_base64, write_integer, write_literal, write_text, write_unscaled,
)
from libs.formats.row_images cimport ENVELOPE_BYTES, Cell, EventFrame, RowImages
from libs.events.run_rows cimport Bytes, RunRows, reserve
from libs.mysql.printed_values cimport (
    OTHER, ZERO, Printed, is_integer, read_decimal, read_time_us, write_date, write_datetime, write_double, write_single,
    write_utc_timestamp,
)
from services.vstream_reader.vevents cimport Field, VEvents, next_field, varint

from libs.events import batch
from protos.vitess import binlogdata_pb2, query_pb2

cdef uint8_t _OP_CREATE = batch.OP_CREATE
cdef uint8_t _OP_UPDATE = batch.OP_UPDATE
cdef uint8_t _OP_DELETE = batch.OP_DELETE
cdef uint8_t _OP_READ = batch.OP_READ
cdef int _ROW = binlogdata_pb2.ROW
cdef int _TABLE_NAME = binlogdata_pb2.RowEvent.TABLE_NAME_FIELD_NUMBER
cdef int _ROW_CHANGES = binlogdata_pb2.RowEvent.ROW_CHANGES_FIELD_NUMBER
cdef int _SHARD = binlogdata_pb2.RowEvent.SHARD_FIELD_NUMBER
cdef int _BEFORE = binlogdata_pb2.RowChange.BEFORE_FIELD_NUMBER
cdef int _AFTER = binlogdata_pb2.RowChange.AFTER_FIELD_NUMBER
cdef int _DATA_COLUMNS = binlogdata_pb2.RowChange.DATA_COLUMNS_FIELD_NUMBER
cdef int _JSON_PARTIAL_VALUES = binlogdata_pb2.RowChange.JSON_PARTIAL_VALUES_FIELD_NUMBER
cdef int _BITMAP_COLUMNS = binlogdata_pb2.RowChange.Bitmap.COLS_FIELD_NUMBER
cdef int _LENGTHS = query_pb2.Row.LENGTHS_FIELD_NUMBER
cdef int _VALUES = query_pb2.Row.VALUES_FIELD_NUMBER

cdef enum:
    _INTEGER = 0
    _UNSIGNED
    _DOUBLE
    _SINGLE
    _DECIMAL
    _TEXT
    _BINARY
    _JSON
    _DATE
    _TIME
    _DATETIME
    _TIMESTAMP
    _CONVERTED

# The same for Python, which makes readings of them.
INTEGER, UNSIGNED, DOUBLE, SINGLE, DECIMAL = _INTEGER, _UNSIGNED, _DOUBLE, _SINGLE, _DECIMAL
TEXT, BINARY, JSON, DATE, TIME = _TEXT, _BINARY, _JSON, _DATE, _TIME
DATETIME, TIMESTAMP, CONVERTED = _DATETIME, _TIMESTAMP, _CONVERTED

cdef enum:
    _LENGTH_DELIMITED = 2
    _LONGEST_NUMBER = 24
    _FIRST_LENGTHS = 64
    _SAFE_DIGITS = 18  # so many always fit into 64 bits

cdef struct Column:
    int kind
    Py_ssize_t padded_bytes  # shorter values of a BINARY(n) are converted
    int64_t units_per_s
    int precision  # of a decimal, beyond which it is converted
    int scale
    const char* zero  # what a zero date is in JSON
    Py_ssize_t zero_size
    const char* unavailable  # what stands for a value that the log does not hold
    Py_ssize_t unavailable_size
    bint is_optional

cdef struct Bits:
    const uint8_t* data  # NULL: all ones
    Py_ssize_t size


class ValueAbsent(ValueError):
    """The log does not hold a value of a column, and nothing can stand for it."""


class ImagesAbsent(ValueError):
    """A row change has neither a row before nor a row after."""


cdef class RowChangesDecoder(RowImages):
    """Decodes the rows of one table version."""

    cdef object __weakref__
    cdef Column* _columns
    cdef tuple _zeros, _unavailables, _converters
    cdef int64_t* _lengths
    cdef Py_ssize_t _lengths_capacity
    cdef Bytes _scratch
    cdef readonly int column
    """Where decoding stands: the column, and the row among those of the call. After an error, where it happened."""
    cdef readonly int row
    cdef readonly int cells
    """How many values the row has that was read last."""
    cdef readonly Py_ssize_t event
    """The number of the event that was read last."""
    cdef Field _change  # the row change that was read last
    cdef int _nth_change, _begin_at  # its number in its event; at which one the next call begins

    def __cinit__(self, readings, names, key_places) -> None:
        self._columns = <Column*>malloc(max(1, len(readings)) * sizeof(Column))
        self._lengths_capacity = _FIRST_LENGTHS
        self._lengths = <int64_t*>malloc(_FIRST_LENGTHS * sizeof(int64_t))
        if self._columns == NULL or self._lengths == NULL:
            raise MemoryError

    def __init__(self, readings, names, key_places) -> None:
        """One of ``readings`` and of ``names`` (JSON text) a column; ``key_places``: the columns of the key, in its order."""
        cdef int index
        cdef Column* column
        RowImages.__init__(self, names, key_places)
        self._zeros = tuple(reading.zero for reading in readings)
        self._unavailables = tuple(reading.unavailable for reading in readings)
        self._converters = tuple(reading.convert for reading in readings)
        for index in range(self.column_count):
            column = &self._columns[index]
            column.kind = readings[index].kind
            column.padded_bytes = readings[index].padded_bytes
            column.units_per_s = readings[index].units_per_s
            column.precision, column.scale = readings[index].precision, readings[index].scale
            column.zero = PyBytes_AS_STRING(self._zeros[index])
            column.zero_size = PyBytes_GET_SIZE(self._zeros[index])
            column.unavailable = PyBytes_AS_STRING(self._unavailables[index])
            column.unavailable_size = PyBytes_GET_SIZE(self._unavailables[index])
            column.is_optional = readings[index].is_optional

    def __dealloc__(self):
        free(self._columns)
        free(self._lengths)
        free(self._scratch.data)

    def decode(
        self, EventFrame frame not None, RunRows run not None, VEvents events not None, Py_ssize_t nth,
        bytes table_name not None, bytes shard not None, bint is_copy, Py_ssize_t room,
    ) -> tuple[int, int, int]:
        """Add the rows of ``events[nth]`` and of those after it to ``run``, as long as they are of that table and shard, as
        ROW events name them.

        Stops before the first event that is no such ROW, and when ``room`` is used up (bytes). Rows that are
        copied become reads. Rows before a bad one have been added when this raises.

        Returns the number of the event that it stopped before, the row events added, and the room that is left.

        Raises:
            ValueError, and whatever a converter raises: ``row``, ``column`` and ``cells`` give the place.
        """
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(events.data)
        cdef int decoded = 0
        cdef int added
        # A VGTID of hundreds of shards stands in each row, and is far larger than the row.
        cdef Py_ssize_t shared = frame._source.size + frame._behind_place.size + frame._behind_numbers.size
        self.row = 0
        while nth < events.count and events.events[nth].kind == _ROW and room >= 0:
            if not _is_of(table_name, shard, data, events.events[nth].payload_begin, events.events[nth].payload_end):
                break
            self.event = nth
            added = self._decode_event(
                frame, run, data, events.events[nth].payload_begin, events.events[nth].payload_end, is_copy
            )
            decoded += added
            room -= events.events[nth].end - events.events[nth].begin + added * max(shared, <Py_ssize_t>ENVELOPE_BYTES)
            nth += 1
        return nth, decoded, room

    cdef int _decode_event(
        self, EventFrame frame, RunRows run, const uint8_t* data, Py_ssize_t place, Py_ssize_t end, bint is_copy
    ) except -1:
        """The row changes of a RowEvent; returns how many events they make."""
        cdef Field field
        cdef int events = 0
        cdef int begin_at = self._begin_at
        self._begin_at = self._nth_change = 0
        while place < end:
            place = next_field(data, place, end, &field)
            if field.number == _ROW_CHANGES:
                if self._nth_change >= begin_at:
                    self._change = field
                    events += self._decode_change(frame, run, data, field.begin, field.end, is_copy)
                self._nth_change += 1
                self.row += 1
        return events

    def pass_over(self, VEvents events not None) -> bytes:
        """After ``decode`` failed: the RowChange that it failed at. The next call, with ``event`` first, goes on behind it."""
        self._begin_at = self._nth_change + 1
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(events.data) + self._change.begin, self._change.end - self._change.begin)

    cdef int _decode_change(
        self, EventFrame frame, RunRows run, const uint8_t* data, Py_ssize_t place, Py_ssize_t end, bint is_copy
    ) except -1:
        cdef Field field, before, after
        cdef Bits present, partial, all_ones
        cdef Py_ssize_t before_size
        cdef bint has_before = False
        cdef bint has_after = False
        self.column = 0
        present.data = partial.data = all_ones.data = NULL
        present.size = partial.size = all_ones.size = 0
        while place < end:
            place = next_field(data, place, end, &field)
            if field.number == _BEFORE:
                has_before, before = True, field
            elif field.number == _AFTER:
                has_after, after = True, field
            elif field.number == _DATA_COLUMNS:
                _read_bitmap(data, &field, &present)
            elif field.number == _JSON_PARTIAL_VALUES:
                _read_bitmap(data, &field, &partial)
        if not (has_before or has_after):
            raise ImagesAbsent
        self.begin_row()
        if has_before:
            # vtgate says of the row after only what it lacks: what that lacks did not change, and the row before lacks it too.
            self._write_image(data, before.begin, before.end, &all_ones, &all_ones, &present, False, False)
        before_size = self.images.size
        if has_after:
            self._write_image(data, after.begin, after.end, &present, &partial, &all_ones, has_before, not has_before)
        if has_before and has_after:
            if self.lacking >= 0 and self.has_new_key():
                self.column = self.lacking
                raise ValueAbsent  # the row of the new key is a new one, of which no reader has a value to keep
            return self.add(run, frame, _OP_UPDATE, before_size, True, True)
        if has_after:
            return self.add(run, frame, _OP_READ if is_copy else _OP_CREATE, 0, False, True)
        return self.add(run, frame, _OP_DELETE, before_size, True, False)

    # --- one image

    cdef int _write_image(
        self, const uint8_t* data, Py_ssize_t place, Py_ssize_t end, Bits* present, Bits* partial, Bits* known,
        bint is_after, bint is_new
    ) except -1:
        """The Row between ``place`` and ``end`` as a JSON object after the images, and its key.

        Not in the log: a column that is not in ``present``; one that is not in ``known`` and has none. One in ``partial`` that has
        a value tells a change of a document. Raises ValueAbsent for it.

        ``is_after``: what the image lacks did not change; it is what the image before has. ``is_new``: of a row that is inserted;
        a text, document or bytes that the statement does not name is NULL, as its default is."""
        cdef Field field
        cdef Column* column
        cdef Cell cell
        cdef const uint8_t* values = data
        cdef Py_ssize_t values_size = 0
        cdef Py_ssize_t at = 0
        cdef int64_t length
        cdef Py_ssize_t begin, end_before
        cdef int index
        self.cells = 0
        self.column = 0
        while place < end:
            place = next_field(data, place, end, &field)
            if field.number == _LENGTHS:
                self._read_lengths(data, &field)
            elif field.number == _VALUES:
                values, values_size = data + field.begin, field.end - field.begin
        if self.cells != self.column_count:
            raise ValueError("a row has another number of values than its table has columns")
        for index in range(self.column_count):
            self.column = index
            column = &self._columns[index]
            length = self._lengths[index]
            cell = (<RowImages>self).cells[index]  # of the image before
            self.begin_cell(index, _LONGEST_NUMBER + 16 + column.unavailable_size + column.zero_size)
            if partial.data != NULL and length >= 0 and _partial_bit(partial, index):
                raise ValueAbsent  # it changed: a placeholder would say that it did not
            if not _bit(present, index):
                if is_after:
                    self._write_unchanged(column, index, &cell)
                elif is_new and column.is_optional and column.unavailable_size:
                    write_literal(&self.images, b"null", 4)
                else:
                    self._write_unavailable(column)
                at += max(length, 0)
            elif length < 0 and not _bit(known, index):
                self._write_unavailable(column)
            elif length < 0:
                write_literal(&self.images, b"null", 4)
            else:
                if length > values_size - at:
                    raise ValueError("a row's values end before their lengths do")
                self._write_cell(column, values + at, length)
                at += length
            self.end_cell(index)
        self.end_image()
        return 0

    cdef int _write_unavailable(self, Column* column) except -1:
        if column.unavailable_size == 0:
            raise ValueAbsent
        write_literal(&self.images, column.unavailable, column.unavailable_size)
        return 0

    cdef int _write_unchanged(self, Column* column, int index, Cell* before) except -1:
        cdef Py_ssize_t size = before.json_end - before.json_begin
        cdef const char* text = self.images.data + before.json_begin
        if size == column.unavailable_size and memcmp(text, column.unavailable, size) == 0:
            self.lacking = index
        return self.copy_cell(before.json_begin, before.json_end)

    cdef int _read_lengths(self, const uint8_t* data, Field* field) except -1:
        """sint64, packed or one by one."""
        cdef uint64_t value
        cdef Py_ssize_t place = field.begin
        while place < field.end:
            place = varint(data, place, field.end, &value)
            if self.cells == self._lengths_capacity:
                self._lengths_capacity *= 2
                lengths = <int64_t*>realloc(self._lengths, self._lengths_capacity * sizeof(int64_t))
                if lengths == NULL:
                    raise MemoryError
                self._lengths = lengths
            self._lengths[self.cells] = <int64_t>(value >> 1) ^ -<int64_t>(value & 1)
            self.cells += 1
        return 0

    # --- one cell

    cdef int _write_cell(self, Column* column, const uint8_t* cell, Py_ssize_t size) except -1:
        cdef Bytes* out = &self.images
        if column.kind == _INTEGER:
            _copy_integer(out, cell, size)
        elif column.kind == _TEXT:
            if not write_text(out, cell, size):
                PyUnicode_DecodeUTF8(<const char*>cell, size, NULL)  # raises where it is not UTF-8
        elif column.kind == _BINARY and size >= column.padded_bytes:
            write_base64(out, cell, size)
        elif column.kind == _JSON:
            self._write_json(cell, size)
        elif column.kind == _TIME:
            write_integer(out, _time_us(cell, size))
        elif column.kind == _DATE or column.kind == _DATETIME or column.kind == _TIMESTAMP:
            _write_moment(out, column, cell, size)
        elif not _write_usual_number(out, column, cell, size):
            append(out, self._converters[self.column](PyBytes_FromStringAndSize(<const char*>cell, size)))
        return 0

    cdef int _write_json(self, const uint8_t* cell, Py_ssize_t size) except -1:
        """A document as text, without the space that MySQL prints behind commas and colons: a stream's has none."""
        cdef Bytes* scratch = &self._scratch
        cdef Py_ssize_t place = 0
        cdef bint is_inside = False
        cdef uint8_t byte
        scratch.size = 0
        reserve(scratch, size)
        while place < size:
            byte = cell[place]
            if byte == c"\\" and is_inside and place + 1 < size:
                scratch.data[scratch.size] = <char>byte
                scratch.size += 1
                place += 1
                byte = cell[place]
            elif byte == c'"':
                is_inside = not is_inside
            elif byte == c" " and not is_inside:
                place += 1
                continue
            scratch.data[scratch.size] = <char>byte
            scratch.size += 1
            place += 1
        if not write_text(&self.images, <const uint8_t*>scratch.data, scratch.size):
            PyUnicode_DecodeUTF8(scratch.data, scratch.size, NULL)
        return 0


cdef bint _is_of(bytes table_name, bytes shard, const uint8_t* data, Py_ssize_t place, Py_ssize_t end) except -1:
    """Whether a RowEvent is of that table and shard."""
    cdef Field field
    cdef bint has_table = False
    cdef bint has_shard = PyBytes_GET_SIZE(shard) == 0
    while place < end:
        place = next_field(data, place, end, &field)
        if field.number == _TABLE_NAME:
            has_table = _equal(table_name, data, &field)
        elif field.number == _SHARD:
            has_shard = _equal(shard, data, &field)
    return has_table and has_shard


cdef inline bint _equal(bytes text, const uint8_t* data, Field* field) noexcept:
    return PyBytes_GET_SIZE(text) == field.end - field.begin and (
        memcmp(PyBytes_AS_STRING(text), data + field.begin, field.end - field.begin) == 0
    )


cdef int _read_bitmap(const uint8_t* data, Field* message, Bits* bits) except -1:
    cdef Field field
    cdef Py_ssize_t place = message.begin
    while place < message.end:
        place = next_field(data, place, message.end, &field)
        if field.number == _BITMAP_COLUMNS:
            bits.data, bits.size = data + field.begin, field.end - field.begin
    return 0


cdef inline bint _bit(Bits* bits, int index) noexcept:
    """Whether a column is in the image; without a bitmap all are."""
    return bits.data == NULL or (index >> 3 < bits.size and bits.data[index >> 3] >> (index & 7) & 1)


cdef inline bint _partial_bit(Bits* bits, int index) noexcept:
    return index >> 3 < bits.size and bits.data[index >> 3] >> (index & 7) & 1


# --- numbers, dates and times as MySQL prints them ------------------------------------------------------------------------

cdef object _malformed(str what):
    return ValueError(f"a value is no {what}")


cdef bint _write_usual_number(Bytes* out, Column* column, const uint8_t* cell, Py_ssize_t size) except -1:
    """False: the column is of another kind, or the number is printed otherwise than MySQL mostly does, or long, or wrong."""
    cdef int64_t number
    if column.kind == _DOUBLE:
        return write_double(out, cell, size)
    if column.kind == _SINGLE:
        return write_single(out, cell, size)
    if column.kind == _DECIMAL:
        if not read_decimal(cell, size, column.precision, column.scale, &number):
            return False
        write_unscaled(out, number)
        return True
    if column.kind == _UNSIGNED and 0 < size <= _SAFE_DIGITS and cell[0] != c"-":
        _copy_integer(out, cell, size)
        return True
    return False


cdef int _copy_integer(Bytes* out, const uint8_t* cell, Py_ssize_t size) except -1:
    """Digits as they are, without the zeros that a ZEROFILL column has in front."""
    cdef Py_ssize_t place = 0
    if not is_integer(cell, size):
        raise _malformed("integer")
    reserve(out, size)
    if cell[0] == c"-":
        write_literal(out, b"-", 1)
        place = 1
    while place < size - 1 and cell[place] == 48:
        place += 1
    write_literal(out, <const char*>cell + place, size - place)
    return 0


cdef int _write_moment(Bytes* out, Column* column, const uint8_t* cell, Py_ssize_t size) except -1:
    cdef Printed moment
    if column.kind == _DATE:
        moment = write_date(out, cell, size)
    elif column.kind == _DATETIME:
        moment = write_datetime(out, cell, size, column.units_per_s)
    else:
        moment = write_utc_timestamp(out, cell, size)
    if moment == OTHER:
        raise _malformed("date or time")
    if moment == ZERO:
        reserve(out, column.zero_size)
        write_literal(out, column.zero, column.zero_size)
    return 0


cdef int64_t _time_us(const uint8_t* cell, Py_ssize_t size) except? -1:
    cdef int64_t us = 0
    if not read_time_us(cell, size, &us):
        raise _malformed("time")
    return us
