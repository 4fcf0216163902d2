# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""DTS's rows → Debezium events in a run, without a Python object a row.

``RowChangeDecoder`` is made once for each table version and set of columns (``values.row_change_decoder``). It reads the values
of a row from the message's bytes, writes their JSON, then puts the envelope around the images and the whole straight into
the run's protobuf form, as ``libs.mysql.row_events`` does for the binlog. Frequent forms are written here: numbers, text,
bytes, dates and times as DTS always prints them. Every other type, and any other print, is converted by a
Python function for each column, which also names the mistake in it.

JSON is as orjson writes it, so that a row of the snapshot is equal.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from libs.formats.json_text cimport (
    append, write_base64, write_integer, write_literal, write_text, write_unscaled, write_unsigned,
)
from libs.formats.row_images cimport ENVELOPE_BYTES, EventFrame, RowImages, Text, text_of
from libs.formats.row_images cimport Cell as ImageCell
from libs.events.run_rows cimport Bytes, RunRows, reserve
from libs.mysql.printed_values cimport (
    WRITTEN, read_decimal, write_date, write_datetime, write_double, write_utc_timestamp,
)
from services.dts_decoder.messages cimport EntryReader
from libs.events.wire cimport LENGTH_DELIMITED, VARINT, Cursor, Field, read_field, require

from libs.events import batch
from libs.types.value import UNAVAILABLE_VALUE
from protos.dts import subscription_pb2

cdef uint8_t _OP_CREATE = batch.OP_CREATE
cdef uint8_t _OP_UPDATE = batch.OP_UPDATE
cdef uint8_t _OP_DELETE = batch.OP_DELETE
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

cdef enum:
    _LONGEST_NUMBER = 24
    _MOMENT_SIZE = 19  # 2021-05-17 07:22:42
    _ZONE_SIZE = 7  # a space and +00:00
    _SAFE_DIGITS = 18  # so many always fit into 64 bits

cdef struct Column:
    int kind
    int64_t lowest
    int64_t highest
    Py_ssize_t padded_bytes
    int precision
    int scale  # digits after the point, of a number or a second
    int units_per_s

cdef struct Cell:
    int data_type
    Field charset
    Field sv
    Field bv


cdef class EntryFrame(EventFrame):
    """An EventFrame of entries that differ in their time, their number and their position."""

    cdef Text _behind_ms, _behind_sequence, _behind_us, _behind_times

    def __init__(self, pieces, bytes behind_place not None, ends, bytes behind_numbers=None) -> None:
        """``pieces``: of ``MysqlSourceBlock``; ``behind_place``: after the row's number."""
        source, *between = pieces
        EventFrame.__init__(self, b',"source":' + source, behind_place, ends, behind_numbers)
        self.held = (self.held, between)
        self._behind_ms, self._behind_sequence = text_of(between[0]), text_of(between[1])
        self._behind_us, self._behind_times = text_of(between[2]), text_of(between[3])


cdef class RowChangeDecoder(RowImages):
    """Decodes the rows of one table version under one set of columns."""

    cdef Column* _columns
    cdef tuple _converters, _nulls
    cdef object _to_utf8
    cdef dict _charsets
    cdef readonly int column
    """Where decoding stands: the column, and the row of its event. After an error, where it happened."""
    cdef public int row
    cdef public int64_t rows_read
    """Rows that were taken since this decoder was made."""
    cdef public Py_ssize_t room
    """Bytes that the run at hand may still grow by; the opener of a run sets it."""
    cdef Py_ssize_t _entry_place_size
    cdef readonly Py_ssize_t row_begin
    """Where the serialised row begins that was read last."""
    cdef readonly Py_ssize_t place
    """After the row that was read last, also where it could not be decoded: decoding may go on from here."""

    def __cinit__(self, readings, names, key_places, to_utf8) -> None:
        self._columns = <Column*>malloc(max(1, len(readings)) * sizeof(Column))
        if self._columns == NULL:
            raise MemoryError

    def __init__(self, readings, names, key_places, to_utf8) -> None:
        """One of ``readings`` and of ``names`` (JSON text) a column; ``key_places``: the columns of the key, in its order.
        ``to_utf8``: (charset, whether the column has one of its own, its number) → None where bytes are UTF-8 as they are,
        else a function that makes UTF-8 of them."""
        cdef int index
        cdef Column* column
        RowImages.__init__(self, names, key_places)
        self._converters = tuple(reading.convert for reading in readings)
        self._nulls = tuple(reading.null for reading in readings)
        self._to_utf8 = to_utf8
        self._charsets = {}
        for index in range(self.column_count):
            reading = readings[index]
            column = &self._columns[index]
            column.kind = reading.kind
            column.lowest, column.highest = reading.lowest, reading.highest
            column.padded_bytes = reading.padded_bytes
            column.precision, column.scale = reading.precision, reading.scale
            column.units_per_s = reading.units_per_s

    def __dealloc__(self):
        free(self._columns)

    def decode(
        self, EntryFrame frame not None, RunRows run not None, EntryReader entry not None, Py_ssize_t place
    ) -> None:
        """Add the rows of ``entry`` from ``place`` on to ``run``, and those of the entries after it, as long as they are of
        the same table, under the same columns and of the same transaction; ``entry`` goes on with them. Stops when ``room``
        is used up.

        ``place`` of this object is afterwards the place to go on; the end of the event means that all is done. An update
        whose key changed becomes two, as Debezium writes it. Rows before a bad one have been added when this raises; decoding
        may go on after it, unless ``place`` is still ``row_begin``.

        Raises:
            ValueError, and whatever a converter raises: ``row`` and ``column`` give the place; ``column`` is -1 where the
            row as a whole is wrong.
        """
        if not entry.event_begin <= place <= entry.event_end:
            raise IndexError("outside the entry")
        while True:
            self._write_entry_place(frame, entry)
            self._decode_entry(frame, run, entry, place)
            if self.room < 0 or not entry.go_on():
                break
            self.row = 0
            place = entry.rows_begin

    cdef int _decode_entry(self, EntryFrame frame, RunRows run, EntryReader entry, Py_ssize_t place) except -1:
        cdef Cursor event = Cursor(entry.cursor.data, place, entry.event_end)
        cdef Field field
        cdef int events
        self.place = place
        while event.place < event.end and self.room >= 0:
            self.column = -1
            self.row_begin = event.place
            read_field(&event, &field)
            if field.number == 3:
                require(&field, LENGTH_DELIMITED)
                self.place = event.place
                events = self._decode_row(frame, run, entry.dml_type, event.data, field.begin, field.end)
                self.room -= field.end - field.begin + events * ENVELOPE_BYTES
                self.row += 1
                self.rows_read += 1
            elif field.number <= 2:
                raise ValueError("columns come after rows")
            self.place = event.place
        return 0

    cdef int _decode_row(
        self, EventFrame frame, RunRows run, int dml_type, const uint8_t* data, Py_ssize_t begin, Py_ssize_t end
    ) except -1:
        """Returns how many events the row makes."""
        cdef Py_ssize_t before_size
        self.begin_row()
        self._write_place()
        if dml_type == _INSERT:
            self._write_image(data, begin, end, 2, False)
            if self.lacking >= 0:
                self.column = self.lacking
                raise ValueError("the value of a column of a new row is not in the message")
            self._require_none(data, begin, end, 1)
            return self.add(run, frame, _OP_CREATE, 0, False, True)
        if dml_type == _DELETE:
            self._write_image(data, begin, end, 1, False)
            self._require_none(data, begin, end, 2)
            return self.add(run, frame, _OP_DELETE, self.images.size, True, False)
        if dml_type == _UPDATE:
            self._write_image(data, begin, end, 1, False)
            before_size = self.images.size
            self.lacking = -1
            self._write_image(data, begin, end, 2, True)
            if self.lacking >= 0 and self.has_new_key():
                self.column = self.lacking
                raise ValueError("the row's key changed, and the value of a column of the new row is not in the message")
            return self.add(run, frame, _OP_UPDATE, before_size, True, True)
        raise ValueError("an unknown kind of row change")

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

    cdef int _write_image(self, const uint8_t* data, Py_ssize_t begin, Py_ssize_t end, int number, bint is_after) except -1:
        """Write the values in the row's fields ``number`` as a JSON object after the images, and their key. ``is_after``: a
        value that is not there did not change, and is that of the image before."""
        cdef Cursor row = Cursor(data, begin, end)
        cdef Field field
        cdef Cell cell
        cdef ImageCell before
        cdef const char* text
        cdef Py_ssize_t size
        cdef int index = 0
        while row.place < row.end:
            self.column = -1
            read_field(&row, &field)
            if field.number != number:
                continue
            require(&field, LENGTH_DELIMITED)
            if index == self.column_count:
                raise ValueError("a row has more values than there are columns")
            self.column = index
            before = self.cells[index]
            self.begin_cell(index, 0)
            _read_cell(&cell, data, field.begin, field.end)
            if is_after and cell.data_type == _NA:
                size = before.json_end - before.json_begin
                text = self.images.data + before.json_begin
                if size == PyBytes_GET_SIZE(_UNAVAILABLE) and memcmp(text, PyBytes_AS_STRING(_UNAVAILABLE), size) == 0:
                    self.lacking = index
                self.copy_cell(before.json_begin, before.json_end)
            else:
                self._write_cell(&self._columns[index], &cell, data)
            self.end_cell(index)
            index += 1
        self.column = -1
        if index != self.column_count:
            raise ValueError("a row has fewer values than there are columns")
        return self.end_image()

    # --- one cell

    cdef int _write_cell(self, Column* column, Cell* cell, const uint8_t* data) except -1:
        cdef Bytes* out = &self.images
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
            if self.cells[self.column].is_key:
                raise ValueError("the value of a key column is not in the message")
            self.lacking = self.column
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
        cdef Bytes* out = &self.images
        cdef int64_t number = 0
        cdef Py_ssize_t moment_size
        if column.kind == _DECIMAL:
            if not read_decimal(raw, size, column.precision, column.scale, &number):
                return False
            write_unscaled(out, number)
            return True
        if column.kind == _DOUBLE:
            return write_double(out, raw, size)
        if column.kind == _DATE:
            return write_date(out, raw, size) == WRITTEN
        # With as many digits of the second as the column has.
        moment_size = _MOMENT_SIZE + (column.scale + 1 if column.scale else 0)
        if column.kind == _DATETIME:
            return size == moment_size and write_datetime(out, raw, size, column.units_per_s) == WRITTEN
        if column.kind == _TIMESTAMP:
            if size != moment_size + _ZONE_SIZE or memcmp(raw + moment_size, b" +00:00", _ZONE_SIZE) != 0:
                return False
            return write_utc_timestamp(out, raw, moment_size) == WRITTEN
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
        reserve(&self.images, _LONGEST_NUMBER)
        write_integer(&self.images, number)
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
        append(&self.images, text)
        return 0

    # --- one event

    cdef int _write_entry_place(self, EntryFrame frame, EntryReader entry) except -1:
        """``1700000000000,…,"pos":4,"row":``: what of the source block is the entry's own, up to the row's number."""
        cdef Bytes* out = &self.place_in_source
        out.size = 0
        reserve(
            out, frame._behind_ms.size + frame._behind_sequence.size + frame._behind_us.size + frame._behind_times.size
            + 6 * _LONGEST_NUMBER + 32,
        )
        write_integer(out, entry.timestamp_s * 1000)
        write_literal(out, frame._behind_ms.data, frame._behind_ms.size)
        write_literal(out, b'"', 1)
        write_unsigned(out, entry.seq_id)
        write_literal(out, b'"', 1)
        write_literal(out, frame._behind_sequence.data, frame._behind_sequence.size)
        write_integer(out, entry.timestamp_s * 1_000_000)
        write_literal(out, frame._behind_us.data, frame._behind_us.size)
        write_integer(out, entry.timestamp_s * 1_000_000_000)
        write_literal(out, frame._behind_times.data, frame._behind_times.size)
        write_unsigned(out, entry.position)
        write_literal(out, b',"row":', 7)
        self._entry_place_size = out.size
        return 0

    cdef void _write_place(self) noexcept:
        """The row's number, for which ``_write_entry_place`` has left room."""
        self.place_in_source.size = self._entry_place_size
        write_integer(&self.place_in_source, self.row)


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
