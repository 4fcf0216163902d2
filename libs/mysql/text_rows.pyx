# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Rows of a snapshot's SELECT → Debezium ``r`` events in a run, without a Python object a row.

The text protocol sends each value as its printed text after a length (MySQL manual, "Text Resultset Row").
``TextRowsDecoder`` is made once for each table version from a ``TextReading`` for each column
(``text_row.text_rows_decoder``). Common forms are read here; the rest (``CONVERTED``) by the Python function that decides
its form. Both end in the wire form that the log's rows have, byte for byte.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcpy

from libs.formats.json_text cimport append, write_base64, write_integer, write_literal, write_text, write_unscaled
from libs.formats.row_images cimport EventFrame, RowImages
from libs.events.run_rows cimport Bytes, RunRows, reserve
from libs.mysql.packets cimport Packets
from libs.mysql.printed_values cimport (
    OTHER, ZERO, Printed, is_integer, is_shortest_double, read_unscaled, read_unsigned, write_date, write_datetime,
    write_utc_timestamp,
)

from libs.events import batch

cdef uint8_t _OP_READ = batch.OP_READ

cdef enum:
    _INTEGER = 0
    _WRAPPED
    _DOUBLE
    _DECIMAL
    _DATE
    _DATETIME
    _TIMESTAMP
    _TEXT
    _BINARY
    _CONVERTED

# The same for Python, which makes readings of them.
INTEGER, WRAPPED, DOUBLE, DECIMAL, DATE = _INTEGER, _WRAPPED, _DOUBLE, _DECIMAL, _DATE
DATETIME, TIMESTAMP, TEXT, BINARY, CONVERTED = _DATETIME, _TIMESTAMP, _TEXT, _BINARY, _CONVERTED

cdef enum:
    _NULL = 0xFB
    _LONGEST_NUMBER = 32

cdef struct Column:
    int kind
    int64_t units_per_s
    const char* zero  # a zero date in JSON
    Py_ssize_t zero_size
    const char* null  # NULL in JSON
    Py_ssize_t null_size


cdef class TextRowsDecoder(RowImages):
    """Decodes the rows of ``SELECT select_list(schema)`` of one table version."""

    cdef Column* _columns
    cdef tuple _zeros, _nulls, _converters
    cdef readonly int column
    """Where decoding stands; after an error, where it happened."""

    def __cinit__(self, readings, names, key_places) -> None:
        self._columns = <Column*>malloc(max(1, len(readings)) * sizeof(Column))
        if self._columns == NULL:
            raise MemoryError

    def __init__(self, readings, names, key_places) -> None:
        """One of ``readings`` and of ``names`` (JSON text) a column; ``key_places``: the columns of the key, in its order."""
        cdef int index
        cdef Column* column
        RowImages.__init__(self, names, key_places)
        self._zeros = tuple(reading.zero for reading in readings)
        self._nulls = tuple(reading.null for reading in readings)
        self._converters = tuple(reading.convert for reading in readings)
        for index in range(self.column_count):
            column = &self._columns[index]
            column.kind = readings[index].kind
            column.units_per_s = readings[index].units_per_s
            column.zero = PyBytes_AS_STRING(self._zeros[index])
            column.zero_size = PyBytes_GET_SIZE(self._zeros[index])
            column.null = PyBytes_AS_STRING(self._nulls[index])
            column.null_size = PyBytes_GET_SIZE(self._nulls[index])

    def __dealloc__(self):
        free(self._columns)

    def decode(
        self, EventFrame frame not None, RunRows run not None, Packets packets not None, Py_ssize_t nth, Py_ssize_t end,
        Py_ssize_t room,
    ) -> int:
        """Add the rows in ``packets[nth:end]`` to ``run``, until ``room`` bytes are used up.

        Returns the number of the packet that it stopped before; at least one row is added.

        Raises:
            ValueError, and each error of a converter: ``column`` names the place.
        """
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(packets.data)
        cdef Py_ssize_t before
        if not 0 <= nth <= end <= packets.count:
            raise IndexError(nth)
        while nth < end:
            before = run.value_bytes()
            self._write_row(data, packets.places[nth].begin, packets.places[nth].end)
            self.add(run, frame, _OP_READ, 0, False, True)
            nth += 1
            room -= run.value_bytes() - before
            if room <= 0:
                break
        return nth

    def row(self, bytes packet not None) -> tuple[bytes, bytes]:
        """One row by itself: its image and its key, as JSON. Raises as ``decode``."""
        self._write_row(<const uint8_t*>PyBytes_AS_STRING(packet), 0, PyBytes_GET_SIZE(packet))
        return (
            PyBytes_FromStringAndSize(self.images.data, self.images.size),
            PyBytes_FromStringAndSize(self.key.data, self.key.size),
        )

    # --- one row

    cdef int _write_row(self, const uint8_t* data, Py_ssize_t place, Py_ssize_t end) except -1:
        cdef Bytes* out = &self.images
        cdef Column* column
        cdef Py_ssize_t size
        cdef int index, width
        self.begin_row()
        self.column = 0
        for index in range(self.column_count):
            self.column = index
            column = &self._columns[index]
            if place >= end:
                raise _cut_off()
            size = data[place]
            place += 1
            if size > _NULL:
                width = 8 if size == 0xFE else <int>size - 0xFA
                if end - place < width:
                    raise _cut_off()
                size = 0
                memcpy(&size, data + place, width)  # MySQL and we run on little-endian machines alike
                place += width
            self.begin_cell(index, column.null_size)
            if size == _NULL and data[place - 1] == _NULL:
                write_literal(out, column.null, column.null_size)
            else:
                if size < 0 or end - place < size:
                    raise _cut_off()
                self._write_cell(column, data + place, size)
                place += size
            self.end_cell(index)
        return self.end_image()

    cdef int _write_cell(self, Column* column, const uint8_t* cell, Py_ssize_t size) except -1:
        cdef Bytes* out = &self.images
        if column.kind == _TEXT:
            if not write_text(out, cell, size):
                PyUnicode_DecodeUTF8(<char*>cell, size, NULL)  # raises where it is not
            return 0
        if column.kind == _BINARY:
            return write_base64(out, cell, size)
        if size < _LONGEST_NUMBER and self._write_usual(column, cell, size):
            return 0
        cdef bytes text = self._converters[self.column](PyBytes_FromStringAndSize(<const char*>cell, size))
        append(out, text)
        return 0

    cdef bint _write_usual(self, Column* column, const uint8_t* cell, Py_ssize_t size) except -1:
        """Write a number, date or time in the print that is usual for its column; False: it is another."""
        cdef Bytes* out = &self.images
        cdef Printed moment = OTHER
        cdef uint64_t wrapped = 0
        cdef int64_t unscaled = 0
        reserve(out, 2 * _LONGEST_NUMBER + column.zero_size)
        if column.kind == _INTEGER:
            if not is_integer(cell, size) or (cell[0] == 48 and size > 1):
                return False
            write_literal(out, <const char*>cell, size)
            return True
        if column.kind == _WRAPPED:
            if not read_unsigned(cell, size, &wrapped):
                return False
            write_integer(out, <int64_t>wrapped)
            return True
        if column.kind == _DOUBLE:
            if not is_shortest_double(cell, size):
                return False
            write_literal(out, <const char*>cell, size)
            if memchr(cell, 46, size) == NULL:
                write_literal(out, b".0", 2)
            return True
        if column.kind == _DECIMAL:
            if not read_unscaled(cell, size, &unscaled):
                return False
            write_unscaled(out, unscaled)
            return True
        if column.kind == _DATE:
            moment = write_date(out, cell, size)
        elif column.kind == _DATETIME:
            moment = write_datetime(out, cell, size, column.units_per_s)
        elif column.kind == _TIMESTAMP:
            moment = write_utc_timestamp(out, cell, size)
        if moment == ZERO:
            write_literal(out, column.zero, column.zero_size)
        return moment != OTHER


cdef object _cut_off():
    return ValueError("a row ends before its columns do: the table has changed since its schema was read")


# --- checksums ------------------------------------------------------------------------------------------------------------

cdef uint32_t[256] _CRC


cdef void _fill_crc() noexcept:
    """CRC-32 as MySQL's CRC32 has it (ISO 3309), a byte at a time."""
    cdef uint32_t index, remainder
    cdef int bit
    for index in range(256):
        remainder = index
        for bit in range(8):
            remainder = remainder >> 1 ^ (0xEDB88320U if remainder & 1 else 0)
        _CRC[index] = remainder


_fill_crc()


cdef inline uint32_t _crc32(uint32_t before, const uint8_t* data, Py_ssize_t size) noexcept:
    """Of what ``before`` is the CRC-32 of, with ``data`` after it."""
    cdef uint32_t remainder = ~before
    cdef Py_ssize_t index
    for index in range(size):
        remainder = remainder >> 8 ^ _CRC[(remainder ^ data[index]) & 0xFF]
    return ~remainder


def row_checksum(bytes packet not None, bytes is_summed not None) -> int:
    """The number that ``text_row.checksum_expression`` has for a row. ``is_summed``: a byte for each of its first columns, 0 for
    those that are left out.

    Raises ValueError: the row has fewer.
    """
    cdef const uint8_t* summed = <const uint8_t*>PyBytes_AS_STRING(is_summed)
    cdef int columns = <int>PyBytes_GET_SIZE(is_summed)
    cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(packet)
    cdef Py_ssize_t place = 0, end = PyBytes_GET_SIZE(packet), size
    cdef uint32_t checksum = 0, of_cell
    cdef uint8_t[10] digits
    cdef int index, width, begin
    cdef bint has_begun = False
    for index in range(columns):
        if place >= end:
            raise _cut_off()
        if summed[index] and has_begun:
            checksum = _crc32(checksum, <const uint8_t*>b",", 1)
        has_begun |= summed[index] != 0
        size = data[place]
        place += 1
        if size == _NULL:
            if summed[index]:
                checksum = _crc32(checksum, <const uint8_t*>b"-", 1)
            continue
        if size > _NULL:
            width = 8 if size == 0xFE else <int>size - 0xFA
            if end - place < width:
                raise _cut_off()
            size = 0
            memcpy(&size, data + place, width)
            place += width
        if size < 0 or end - place < size:
            raise _cut_off()
        place += size
        if not summed[index]:
            continue
        of_cell = _crc32(0, data + place - size, size)
        begin = 10
        while True:
            begin -= 1
            digits[begin] = <uint8_t>(48 + of_cell % 10)
            of_cell //= 10
            if of_cell == 0:
                break
        checksum = _crc32(checksum, digits + begin, 10 - begin)
    return checksum
