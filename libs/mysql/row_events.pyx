# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Rows events of the binlog → Debezium events in a run, without a Python object a row.

Decoding is the whole cost of following a log, so this module is compiled. ``RowsDecoder`` is made once for each table version
from a ``Reading`` for each column (``row_image.rows_decoder``); it reads the cells of an image from the event's bytes and writes
their JSON, then puts the envelope around the images and the whole straight into the run's protobuf form. Types that are rare
or intricate (``Reading.kind`` CONVERTED: JSON, FLOAT, SET, long decimals …) are converted by a Python function each, so that
each type's form is decided in one place.

Layout of images: MySQL source ``libbinlogevents/include/rows_event.h`` and ``sql/field.cc`` (``pack``); packed times:
``sql-common/my_time.cc``; binary decimals: ``strings/decimal.cc``. Wire forms: ``libs.types.value``. JSON is written as
orjson writes it, byte for byte: a snapshot's rows, which it encodes, are equal.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from libs.formats.json_text cimport (
    append as _append,
    days_since_1970 as _days_since_1970,
    floor_divided as _floor_divided,
    write_base64 as _write_base64,
    write_digits as _write_digits,
    write_integer as _write_integer,
    write_literal as _write_literal,
    write_text as _write_text,
    write_unscaled as _write_unscaled,
)
from libs.formats.row_images cimport ENVELOPE_BYTES, EventFrame, RowImages
from libs.events.run_rows cimport Bytes, RunRows, reserve
from libs.mysql.packets cimport Packets

from libs.events import batch
from libs.mysql import binlog_events
from libs.mysql.values import UnwritableValue

cdef uint8_t _OP_CREATE = batch.OP_CREATE
cdef uint8_t _OP_UPDATE = batch.OP_UPDATE
cdef uint8_t _OP_DELETE = batch.OP_DELETE
_LACKING = (
    "the row image in the log lacks this column: set binlog_row_image = FULL globally and in every session, then snapshot the "
    "table again; or name a values.unavailable_placeholder"
)
_NEW_KEY_LACKING = (
    "the row's key changed, and the row image in the log lacks this column, so that the row of the new key is not known: set "
    "binlog_row_image = FULL globally and in every session, then `headwater resync` the table of each tenant"
)
_CHANGED_UNSEEN = (
    "the row image in the log has a change to a part of this document, and lacks the document: set binlog_row_image = FULL, or "
    "binlog_row_value_options = '', globally and in every session, then snapshot the table again"
)
cdef int _WRITE_ROWS = binlog_events.WRITE_ROWS
cdef int _UPDATE_ROWS = binlog_events.UPDATE_ROWS
cdef int _DELETE_ROWS = binlog_events.DELETE_ROWS
cdef int _PARTIAL_UPDATE_ROWS = binlog_events.PARTIAL_UPDATE_ROWS
cdef int _TABLE_MAP = binlog_events.TABLE_MAP
cdef Py_ssize_t _EVENT_HEADER_BYTES = binlog_events.HEADER_BYTES
cdef Py_ssize_t _KIND_OFFSET = binlog_events.KIND_OFFSET
cdef Py_ssize_t _END_OFFSET = binlog_events.END_OFFSET
cdef Py_ssize_t _TABLE_ID_BYTES = binlog_events.TABLE_ID_BYTES
cdef Py_ssize_t _ROWS_POST_HEADER_BYTES = binlog_events.ROWS_POST_HEADER_BYTES

cdef enum:
    _INTEGER = 0
    _UNSIGNED
    _BOOLEAN
    _YEAR
    _ENUM
    _DECIMAL
    _DECIMAL_TEXT
    _DATE
    _TIME
    _DATETIME
    _TIMESTAMP
    _TEXT
    _BINARY
    _CONVERTED

# The same for Python, which makes readings of them.
INTEGER, UNSIGNED, BOOLEAN, YEAR, ENUM = _INTEGER, _UNSIGNED, _BOOLEAN, _YEAR, _ENUM
DECIMAL, DECIMAL_TEXT, DATE, TIME, DATETIME, TIMESTAMP = _DECIMAL, _DECIMAL_TEXT, _DATE, _TIME, _DATETIME, _TIMESTAMP
TEXT, BINARY, CONVERTED = _TEXT, _BINARY, _CONVERTED

cdef enum:
    _LONGEST_NUMBER = 24
    _LONGEST_TIMESTAMP = 32
    _MAX_DECIMAL_GROUPS = 4

MAX_DECIMAL_DIGITS = 18
"""Decimals of more digits do not fit into 64 bits: they are CONVERTED."""

cdef struct Column:
    int kind
    int size  # bytes of a fixed-width value, or of the length that opens a variable one
    bint is_variable
    bint is_nullable  # NULL is null in JSON
    Py_ssize_t padded_bytes  # shorter values of a BINARY(n) are converted
    int fraction_bytes
    int fractional_digits
    int units_per_s
    int decimal_groups
    int group_bytes[_MAX_DECIMAL_GROUPS]
    int64_t group_weight[_MAX_DECIMAL_GROUPS]
    int decimal_scale
    const char* zero  # a zero date in JSON
    Py_ssize_t zero_size


cdef class RowsDecoder(RowImages):
    """Decodes the rows events of one table version, for one layout of the binlog."""

    cdef Column* _columns
    cdef tuple _nulls, _zeros, _members, _converters, _mergers, _defaults
    cdef bytes _unavailable
    cdef int _json_count
    cdef list _ranges
    cdef list _stored
    cdef int _bitmap_bytes
    cdef readonly int column
    """Where decoding stands: the column, and the row of its event. After an error, where it happened."""
    cdef readonly int row
    cdef readonly int64_t position
    """The place of the rows event in the log's file."""
    cdef readonly Py_ssize_t event
    """The number of the rows event among those that were given."""
    cdef readonly int64_t added
    """Row events that the last call of ``decode`` added before it ended or failed."""
    cdef Py_ssize_t _row_begin  # where the row's images begin in the data; 0: before the event's first
    cdef Py_ssize_t _begin_at  # where the next call goes on within its first event; 0: at its beginning

    def __cinit__(self, readings, names, key_places, unavailable) -> None:
        self._columns = <Column*>malloc(max(1, len(readings)) * sizeof(Column))
        if self._columns == NULL:
            raise MemoryError

    def __init__(self, readings, names, key_places, bytes unavailable) -> None:
        """One of ``readings`` and of ``names`` (JSON text) a column; ``key_places``: the columns of the key, in its order;
        ``unavailable``: JSON of a value that the log does not hold; None: such a row is an error."""
        cdef int index
        cdef Column* column
        RowImages.__init__(self, names, key_places)
        self._bitmap_bytes = (self.column_count + 7) // 8
        self._nulls = tuple(reading.null for reading in readings)
        self._zeros = tuple(reading.zero for reading in readings)
        self._members = tuple(reading.members for reading in readings)
        self._mergers = tuple(reading.merge for reading in readings)
        self._defaults = tuple(reading.default for reading in readings)
        self._json_count = sum(reading.merge is not None for reading in readings)
        self._unavailable = unavailable
        self._ranges = [None] * self.column_count
        self._stored = [None] * self.column_count
        self._converters = tuple(reading.convert for reading in readings)
        for index in range(self.column_count):
            reading = readings[index]
            column = &self._columns[index]
            column.kind = reading.kind
            column.size = reading.size
            column.is_variable = reading.is_variable
            column.padded_bytes = reading.padded_bytes
            column.fractional_digits = reading.fractional_digits
            column.fraction_bytes = (reading.fractional_digits + 1) // 2
            column.units_per_s = reading.units_per_s
            column.decimal_groups = len(reading.decimal_groups)
            column.decimal_scale = reading.decimal_scale
            for group, (size, weight) in enumerate(reading.decimal_groups):
                column.group_bytes[group] = size
                column.group_weight[group] = weight
            column.is_nullable = reading.null == b"null"
            column.zero = PyBytes_AS_STRING(self._zeros[index])
            column.zero_size = PyBytes_GET_SIZE(self._zeros[index])

    def __dealloc__(self):
        free(self._columns)

    def decode(
        self, EventFrame frame not None, RunRows run not None, Packets events not None, Py_ssize_t nth, bytes number not None,
        bytes table_map not None, int checksum_bytes, Py_ssize_t room,
    ) -> tuple[int, int, int]:
        """Add the rows of ``events[nth]`` and of those after it to ``run``, as long as they are this table's.

        Stops before the first event that is neither a rows event of the table ``number`` nor
        a table map equal to ``table_map``, and when ``room`` is used up: bytes, counting ``ENVELOPE_BYTES`` an event. An
        update whose key changed becomes two, as Debezium writes it: delete of the old key, create of the new. Rows before a
        bad one have been added when this raises.

        Returns the number of the event that it stopped before, the row events added, and the room that is left.

        Raises:
            ValueError, and each error of a converter: ``position``, ``row`` and ``column`` hold the place.
        """
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(events.data)
        cdef Py_ssize_t body, end, size
        cdef int kind
        cdef int64_t added_before
        self.added = 0
        while nth < events.count and room >= 0:
            body = events.places[nth].begin + _EVENT_HEADER_BYTES
            end = events.places[nth].end - checksum_bytes
            if end - body < _ROWS_POST_HEADER_BYTES + 2:
                break
            kind = data[body - _EVENT_HEADER_BYTES + _KIND_OFFSET]
            if kind == _TABLE_MAP:
                size = PyBytes_GET_SIZE(table_map)
                if end - body != size or memcmp(data + body, PyBytes_AS_STRING(table_map), size) != 0:
                    break
                nth += 1
                continue
            if kind != _WRITE_ROWS and kind != _UPDATE_ROWS and kind != _DELETE_ROWS and kind != _PARTIAL_UPDATE_ROWS:
                break
            if memcmp(data + body, PyBytes_AS_STRING(number), _TABLE_ID_BYTES) != 0:
                break
            size = end + checksum_bytes - events.places[nth].begin
            self.position = <int64_t>_little_endian(data + body - _EVENT_HEADER_BYTES + _END_OFFSET, 4) - size
            self.event = nth
            self.column = 0
            self._row_begin = 0
            if not self._begin_at:
                self.row = 0
            added_before = self.added
            body = self._bitmaps_begin(kind, data, body, end)
            if kind != _PARTIAL_UPDATE_ROWS and self._are_whole(kind, data + body):
                body += self._bitmap_bytes * (2 if kind == _UPDATE_ROWS else 1)
                self._decode_event(frame, run, kind, data, body, end)
            else:
                self._decode_scarce_event(frame, run, kind, data, body, end)
            room -= size + (self.added - added_before) * ENVELOPE_BYTES
            nth += 1
        return nth, self.added, room

    def pass_over(self, Packets events not None, int checksum_bytes) -> tuple[bytes, bool]:
        """After ``decode`` failed: the bytes of the row that it failed at, and whether more rows of its event follow it.

        If so, the next call of ``decode``, with the same event first, goes on there. Where the row's end cannot be found, the
        bytes are those of the rest of the event.
        """
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(events.data)
        cdef Py_ssize_t body = events.places[self.event].begin + _EVENT_HEADER_BYTES
        cdef Py_ssize_t end = events.places[self.event].end - checksum_bytes
        cdef int kind = data[body - _EVENT_HEADER_BYTES + _KIND_OFFSET]
        cdef Py_ssize_t begin = self._row_begin
        cdef Py_ssize_t place = begin
        cdef const uint8_t* present
        if begin == 0:  # it failed before the first row
            begin, place = body, end
        try:
            present = data + self._bitmaps_begin(kind, data, body, end)
            place = self._skimmed(data, place, end, present, False)
            if kind == _UPDATE_ROWS or kind == _PARTIAL_UPDATE_ROWS:
                place = self._skimmed(data, place, end, present + self._bitmap_bytes, kind == _PARTIAL_UPDATE_ROWS)
        except ValueError:
            place = end
        self._begin_at = place if place < end else 0
        self.row += 1
        return PyBytes_FromStringAndSize(<const char*>data + begin, place - begin), place < end

    cdef Py_ssize_t _skimmed(
        self, const uint8_t* data, Py_ssize_t place, Py_ssize_t end, const uint8_t* present, bint has_options
    ) except -1:
        """Where the image at ``place`` ends, by its cells' sizes alone."""
        cdef const uint8_t* partial = NULL
        cdef const uint8_t* nulls
        cdef int index, nth_present = 0, nth_json = 0, count = 0
        cdef Py_ssize_t size
        cdef bint is_partial
        for index in range(self.column_count):
            count += present[index >> 3] >> (index & 7) & 1
        if has_options:
            if place >= end:
                raise _too_short()
            if data[place] & 1:
                partial = data + place + 1
                place += (self._json_count + 7) // 8
            place += 1
        nulls = data + place
        place += (count + 7) // 8
        if place > end:
            raise _too_short()
        for index in range(self.column_count):
            is_partial = False
            if self._mergers[index] is not None:
                is_partial = partial != NULL and partial[nth_json >> 3] >> (nth_json & 7) & 1
                nth_json += 1
            if not present[index >> 3] >> (index & 7) & 1:
                continue
            nth_present += 1
            if nulls[nth_present - 1 >> 3] >> (nth_present - 1 & 7) & 1:
                continue
            size = 4 if is_partial else self._columns[index].size
            if end - place < size:
                raise _too_short()
            if is_partial or self._columns[index].is_variable:
                size += <Py_ssize_t>_little_endian(data + place, size)
            if end - place < size:
                raise _too_short()
            place += size
        return place

    cdef Py_ssize_t _bitmaps_begin(self, int kind, const uint8_t* data, Py_ssize_t place, Py_ssize_t end) except -1:
        """Where the bitmaps of the columns present begin, in the rows event whose body is at ``place``."""
        place += _ROWS_POST_HEADER_BYTES
        place += data[place] | data[place + 1] << 8  # the extra data's length counts itself
        place += 1 if self.column_count < 251 else 3  # the number of columns, a length-encoded integer
        if end - place < self._bitmap_bytes * (2 if kind == _UPDATE_ROWS or kind == _PARTIAL_UPDATE_ROWS else 1):
            raise _too_short()
        return place

    cdef bint _are_whole(self, int kind, const uint8_t* present) noexcept:
        """All columns are in the images."""
        cdef int image, index
        for image in range(2 if kind == _UPDATE_ROWS else 1):
            for index in range(self.column_count // 8):
                if present[index] != 0xFF:
                    return False
            if ~present[self.column_count // 8] & ((1 << self.column_count % 8) - 1):
                return False
            present += self._bitmap_bytes
        return True

    cdef int _decode_event(
        self, EventFrame frame, RunRows run, int kind, const uint8_t* bytes_, Py_ssize_t place, Py_ssize_t end
    ) except -1:
        """Add the rows whose images lie between ``place`` and ``end``."""
        cdef Py_ssize_t before_size
        if self._begin_at:
            place, self._begin_at = self._begin_at, 0
        while place < end:
            self._row_begin = place
            self.begin_row()
            self._write_place()
            place = self._write_image(bytes_, place, end)
            if kind == _UPDATE_ROWS:
                before_size = self.images.size
                place = self._write_image(bytes_, place, end)
                self.added += self.add(run, frame, _OP_UPDATE, before_size, True, True)
            elif kind == _WRITE_ROWS:
                self.added += self.add(run, frame, _OP_CREATE, 0, False, True)
            else:
                self.added += self.add(run, frame, _OP_DELETE, self.images.size, True, False)
            self.row += 1
        return 0

    cdef int _decode_scarce_event(
        self, EventFrame frame, RunRows run, int kind, const uint8_t* data, Py_ssize_t place, Py_ssize_t end
    ) except -1:
        """``_decode_event`` for images that lack columns (``binlog_row_image`` other than FULL) or hold a JSON document as
        changes to the one before (``binlog_row_value_options``). ``place``: of the bitmaps. Rare, so that plainness counts."""
        cdef bint is_update = kind == _UPDATE_ROWS or kind == _PARTIAL_UPDATE_ROWS
        cdef const uint8_t* present = data + place
        cdef const uint8_t* present_after = present + self._bitmap_bytes
        cdef Py_ssize_t before_size
        place += self._bitmap_bytes * (2 if is_update else 1)
        if self._begin_at:
            place, self._begin_at = self._begin_at, 0
        while True:  # an image without columns has no bytes; the server writes no second one into its event
            self._row_begin = place
            self.begin_row()
            self._write_place()
            place = self._write_scarce_image(data, place, end, present, kind == _WRITE_ROWS, False, False)
            if is_update:
                before_size = self.images.size
                place = self._write_scarce_image(
                    data, place, end, present_after, False, True, kind == _PARTIAL_UPDATE_ROWS
                )
                if self.lacking >= 0 and self.has_new_key():
                    self.column = self.lacking
                    raise UnwritableValue(_NEW_KEY_LACKING)
                self.added += self.add(run, frame, _OP_UPDATE, before_size, True, True)
            elif kind == _WRITE_ROWS:
                self.added += self.add(run, frame, _OP_CREATE, 0, False, True)
            else:
                self.added += self.add(run, frame, _OP_DELETE, self.images.size, True, False)
            self.row += 1
            if place >= end:
                return 0

    cdef Py_ssize_t _write_scarce_image(
        self, const uint8_t* data, Py_ssize_t place, Py_ssize_t end, const uint8_t* present, bint is_new, bint is_after,
        bint has_options
    ) except -1:
        """``_write_image`` of the columns that ``present`` has. A column that the image of a new row lacks has its default. One
        that an image after a change lacks did not change: it is copied from the image before. A value that neither holds is
        unavailable."""
        cdef Bytes* out = &self.images
        cdef Column* column
        cdef const uint8_t* partial = NULL
        cdef const uint8_t* nulls
        cdef int index, nth_present = 0, nth_json = 0, count = 0
        cdef Py_ssize_t begin, cell, size
        cdef bint is_partial
        self.column = 0
        for index in range(self.column_count):
            count += present[index >> 3] >> (index & 7) & 1
        if has_options:
            if place >= end:
                raise _too_short()
            if data[place] & 1:  # PARTIAL_JSON; a bit for each JSON column of the table
                partial = data + place + 1
                place += (self._json_count + 7) // 8
            place += 1
        nulls = data + place
        place += (count + 7) // 8
        if place > end:
            raise _too_short()
        for index in range(self.column_count):
            self.column = index
            column = &self._columns[index]
            is_partial = False
            if self._mergers[index] is not None:
                is_partial = partial != NULL and partial[nth_json >> 3] >> (nth_json & 7) & 1
                nth_json += 1
            self.begin_cell(index, 0)
            begin = out.size
            if not present[index >> 3] >> (index & 7) & 1:
                before = self._ranges[index] if is_after else self._defaults[index] if is_new else None
                # Of a new row nothing is kept that a placeholder could leave as it is.
                if before is None and (is_new or self.cells[index].is_key or self._unavailable is None):
                    raise UnwritableValue(_LACKING)
                if before is None and is_after:
                    self.lacking = index
                _append(out, self._unavailable if before is None else before)
                if not is_after:
                    self._ranges[index] = self._stored[index] = None
            elif nulls[nth_present >> 3] >> (nth_present & 7) & 1:
                _append(out, <bytes>self._nulls[index])
                nth_present += 1
                if not is_after:
                    self._stored[index] = None
            else:
                nth_present += 1
                cell = place
                if is_partial:
                    place = self._write_changed_json(data, place, end)
                else:
                    place = self._write_cell(column, data, place, end)
                if not is_after and self._mergers[index] is not None:
                    size = column.size
                    self._stored[index] = PyBytes_FromStringAndSize(<const char*>data + cell + size, place - cell - size)
            if not is_after and present[index >> 3] >> (index & 7) & 1:
                self._ranges[index] = PyBytes_FromStringAndSize(out.data + begin, out.size - begin)
            self.end_cell(index)
        self.end_image()
        return place

    cdef Py_ssize_t _write_changed_json(self, const uint8_t* data, Py_ssize_t place, Py_ssize_t end) except -1:
        """A JSON column as changes to the document before, after a length of four bytes."""
        cdef Py_ssize_t size
        if end - place < 4:
            raise _too_short()
        size = <Py_ssize_t>_little_endian(data + place, 4)
        place += 4
        if end - place < size:
            raise _too_short()
        before = self._stored[self.column]
        if before is None:  # a placeholder would say that nothing changed
            raise UnwritableValue(_CHANGED_UNSEEN)
        merge = self._mergers[self.column]
        _append(&self.images, merge(before, PyBytes_FromStringAndSize(<const char*>data + place, size)))
        return place + size

    # --- one image

    cdef Py_ssize_t _write_image(self, const uint8_t* data, Py_ssize_t place, Py_ssize_t end) except -1:
        """Write the row at ``place`` as a JSON object after the images, and its key; returns where the next one begins."""
        cdef const uint8_t* nulls = data + place
        cdef Bytes* out = &self.images
        cdef Column* column
        cdef int index
        self.column = 0
        place += self._bitmap_bytes
        if place > end:
            raise _too_short()
        for index in range(self.column_count):
            self.column = index
            column = &self._columns[index]
            self.begin_cell(index, 8)
            if nulls[index >> 3] >> (index & 7) & 1:
                if column.is_nullable:
                    memcpy(out.data + out.size, b"null", 4)
                    out.size += 4
                else:
                    _append(out, <bytes>self._nulls[index])
            else:
                place = self._write_cell(column, data, place, end)
            self.end_cell(index)
        self.end_image()
        return place

    # --- one cell

    cdef Py_ssize_t _write_cell(
        self, Column* column, const uint8_t* data, Py_ssize_t place, Py_ssize_t end
    ) except -1:
        cdef Bytes* out = &self.images
        cdef Py_ssize_t size = column.size
        if end - place < size:
            raise _too_short()
        if column.is_variable:
            size = <Py_ssize_t>_little_endian(data + place, column.size)
            place += column.size
            if end - place < size:
                raise _too_short()
        cdef const uint8_t* cell = data + place
        if column.kind == _TEXT:
            self._write_text(cell, size)
            return place + size
        if column.kind == _BINARY:
            if size < column.padded_bytes:
                self._write_converted(cell, size)
            else:
                _write_base64(out, cell, size)
            return place + size
        reserve(out, _LONGEST_TIMESTAMP + column.zero_size)
        if column.kind == _INTEGER:
            _write_integer(out, _sign_extended(_little_endian(cell, size), size))
        elif column.kind == _UNSIGNED:
            _write_integer(out, <int64_t>_little_endian(cell, size))
        elif column.kind == _BOOLEAN:
            if cell[0]:
                _write_literal(out, b"true", 4)
            else:
                _write_literal(out, b"false", 5)
        elif column.kind == _YEAR:
            _write_integer(out, 1900 + cell[0] if cell[0] else 0)
        elif column.kind == _ENUM:
            self._write_member(_little_endian(cell, size))
        elif column.kind == _DECIMAL:
            _write_decimal(out, column, cell)
        elif column.kind == _DATE:
            _write_date(out, column, cell)
        elif column.kind == _TIME:
            _write_time(out, column, cell)
        elif column.kind == _DATETIME:
            _write_datetime(out, column, cell)
        elif column.kind == _TIMESTAMP:
            _write_timestamp(out, column, cell)
        elif column.kind == _DECIMAL_TEXT:
            _write_decimal_text(out, column, cell)
        else:
            self._write_converted(cell, size)
        return place + size

    cdef int _write_text(self, const uint8_t* cell, Py_ssize_t size) except -1:
        """Text as a JSON string. UTF-8 passes as it is once it is known to be UTF-8; another charset is converted, unless it
        is all ASCII."""
        cdef Bytes* out = &self.images
        cdef Py_ssize_t begin = out.size
        if _write_text(out, cell, size):
            return 0
        if self._converters[self.column] is None:
            PyUnicode_DecodeUTF8(<char*>cell, size, NULL)  # raises where it is not
        else:
            out.size = begin
            self._write_converted(cell, size)
        return 0

    cdef int _write_converted(self, const uint8_t* cell, Py_ssize_t size) except -1:
        cdef bytes text = self._converters[self.column](PyBytes_FromStringAndSize(<const char*>cell, size))
        _append(&self.images, text)
        return 0

    cdef int _write_member(self, uint64_t index) except -1:
        cdef tuple members = self._members[self.column]
        if index >= <uint64_t>len(members):
            raise ValueError("an ENUM's index is beyond its members")
        _append(&self.images, members[index])
        return 0

    # --- one event

    cdef int _write_place(self) except -1:
        """``4,"row":0``: the event's position, and the row's number in it."""
        cdef Bytes* out = &self.place_in_source
        out.size = 0
        reserve(out, 2 * _LONGEST_NUMBER + 8)
        _write_integer(out, self.position)
        _write_literal(out, b',"row":', 7)
        _write_integer(out, self.row)
        return 0


cdef object _too_short():
    return ValueError("the rows do not end where their event ends; the log is damaged or the schema is wrong")


# --- numbers -----------------------------------------------------------------------------------------------------------

cdef inline uint64_t _little_endian(const uint8_t* cell, Py_ssize_t size) noexcept:
    cdef uint64_t number = 0
    memcpy(&number, cell, size)  # MySQL and we run on little-endian machines alike
    return number


cdef inline uint64_t _big_endian(const uint8_t* cell, Py_ssize_t size) noexcept:
    cdef uint64_t number = 0
    cdef Py_ssize_t index
    for index in range(size):
        number = number << 8 | cell[index]
    return number


cdef inline int64_t _sign_extended(uint64_t number, Py_ssize_t size) noexcept:
    cdef int shift = 64 - 8 * <int>size
    return (<int64_t>(number << shift)) >> shift


# --- decimals -----------------------------------------------------------------------------------------------------------

cdef inline int64_t _unscaled(Column* column, const uint8_t* cell) except? -1:
    """Groups of nine digits take four bytes each, the odd digits at both ends fewer; the first bit is the inverted sign and a
    negative number has all bits inverted."""
    cdef uint8_t mask = 0 if cell[0] & 0x80 else 0xFF
    cdef int64_t unscaled = 0
    cdef int64_t group
    cdef int nth, index
    cdef int place = 0
    for nth in range(column.decimal_groups):
        group = 0
        for index in range(column.group_bytes[nth]):
            group = group << 8 | (cell[place] ^ mask ^ (0x80 if place == 0 else 0)) & 0xFF
            place += 1
        if group >= column.group_weight[nth]:
            raise ValueError("a DECIMAL holds more digits than its type")
        unscaled = unscaled * column.group_weight[nth] + group
    return -unscaled if mask else unscaled


cdef int _write_decimal(Bytes* out, Column* column, const uint8_t* cell) except -1:
    """Connect's Decimal."""
    return _write_unscaled(out, _unscaled(column, cell))


cdef int _write_decimal_text(Bytes* out, Column* column, const uint8_t* cell) except -1:
    """``"-123.45"``, with all digits of the scale and at least one before the point."""
    cdef int64_t unscaled = _unscaled(column, cell)
    cdef uint64_t rest = <uint64_t>unscaled
    cdef char[24] digits
    cdef int begin = 24
    cdef int written = 0
    if unscaled < 0:
        rest = 0 - rest
    while rest or written <= column.decimal_scale:
        if written == column.decimal_scale and written:
            begin -= 1
            digits[begin] = b"."
        begin -= 1
        digits[begin] = <char>(48 + rest % 10)
        rest //= 10
        written += 1
    _write_literal(out, b'"', 1)
    if unscaled < 0:
        _write_literal(out, b"-", 1)
    memcpy(out.data + out.size, digits + begin, 24 - begin)
    out.size += 24 - begin
    _write_literal(out, b'"', 1)
    return 0


# --- dates and times ----------------------------------------------------------------------------------------------------

cdef void _write_date(Bytes* out, Column* column, const uint8_t* cell) noexcept:
    """DATE's three bytes (day 5 bits, month 4, year 15) → days since 1970."""
    cdef uint64_t packed = _little_endian(cell, 3)
    cdef int64_t day = packed & 31
    cdef int64_t month = packed >> 5 & 15
    if month and day:
        _write_integer(out, _days_since_1970(packed >> 9, month, day))
    else:
        _write_literal(out, column.zero, column.zero_size)


cdef int64_t _time_us(const uint8_t* cell, int fraction_bytes) noexcept:
    """TIME2: 24 bits offset by 0x800000 (hour 10, minute 6, second 6); with a fraction the whole is one number of that many
    more bytes, and a negative value its two's complement."""
    cdef int bits = 8 * fraction_bytes
    cdef int64_t packed = <int64_t>_big_endian(cell, 3 + fraction_bytes) - (<int64_t>0x800000 << bits)
    cdef int64_t magnitude = -packed if packed < 0 else packed
    cdef int64_t clock = magnitude >> bits
    cdef int64_t us = ((clock >> 12) * 3600 + (clock >> 6 & 63) * 60 + (clock & 63)) * 1_000_000
    us += (magnitude & ((<int64_t>1 << bits) - 1)) * _fraction_us(fraction_bytes)
    return -us if packed < 0 else us


cdef inline void _write_time(Bytes* out, Column* column, const uint8_t* cell) noexcept:
    """TIME2 → microseconds, or milliseconds of a TIME that has no finer digits."""
    cdef int64_t us = _time_us(cell, column.fraction_bytes)
    _write_integer(out, us if column.units_per_s == 1_000_000 else us // 1000)


cdef inline int64_t _fraction_us(int fraction_bytes) noexcept:
    """The worth of one unit of a stored fraction: its bytes hold 2, 4 or 6 digits."""
    return 10_000 if fraction_bytes == 1 else 100 if fraction_bytes == 2 else 1


cdef void _write_datetime(Bytes* out, Column* column, const uint8_t* cell) noexcept:
    """DATETIME2 → milliseconds or microseconds since 1970. 40 bits: sign, year * 13 + month (17), day (5), hour (5),
    minute (6), second (6); then the fraction."""
    cdef uint64_t packed = _big_endian(cell, 5)
    cdef int64_t year_month = <int64_t>(packed >> 22) - (0x8000000000 >> 22)
    cdef int64_t day = packed >> 17 & 31
    cdef int64_t month = year_month - 13 * _floor_divided(year_month, 13)
    if not (month and day):
        _write_literal(out, column.zero, column.zero_size)
        return
    cdef int64_t seconds = (
        _days_since_1970(_floor_divided(year_month, 13), month, day) * 86400
        + (packed >> 12 & 31) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)
    )
    cdef int64_t fraction = <int64_t>_big_endian(cell + 5, column.fraction_bytes) * _fraction_us(column.fraction_bytes)
    _write_integer(out, seconds * column.units_per_s + fraction * column.units_per_s // 1_000_000)


cdef void _write_timestamp(Bytes* out, Column* column, const uint8_t* cell) noexcept:
    """TIMESTAMP2 (seconds UTC, then the fraction) → ISO 8601 text with as many digits of the second as the column."""
    cdef uint64_t seconds = _big_endian(cell, 4)
    cdef uint64_t fraction = _big_endian(cell + 4, column.fraction_bytes)
    if seconds == 0 and fraction == 0:
        _write_literal(out, column.zero, column.zero_size)
        return
    # Civil from days, with years that begin in March (see values.days_since_1970); a TIMESTAMP lies in 1970 to 2106.
    cdef uint32_t days = <uint32_t>(seconds // 86400) + 719468
    cdef uint32_t clock = <uint32_t>(seconds % 86400)
    cdef uint32_t day_of_era = days % 146097
    cdef uint32_t year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    cdef uint32_t day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    cdef uint32_t march_month = (5 * day_of_year + 2) // 153
    cdef uint32_t month = march_month + 3 if march_month < 10 else march_month - 9
    _write_literal(out, b'"', 1)
    _write_digits(out, year_of_era + days // 146097 * 400 + (month <= 2), 4)
    _write_literal(out, b"-", 1)
    _write_digits(out, month, 2)
    _write_literal(out, b"-", 1)
    _write_digits(out, day_of_year - (153 * march_month + 2) // 5 + 1, 2)
    _write_literal(out, b"T", 1)
    _write_digits(out, clock // 3600, 2)
    _write_literal(out, b":", 1)
    _write_digits(out, clock // 60 % 60, 2)
    _write_literal(out, b":", 1)
    _write_digits(out, clock % 60, 2)
    if column.fractional_digits:
        _write_literal(out, b".", 1)
        _write_digits(out, <uint32_t>fraction * <uint32_t>_fraction_us(column.fraction_bytes), 6)
        out.size -= 6 - column.fractional_digits
    _write_literal(out, b'Z"', 2)
