# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""SQL_REDO → Debezium events in a run, without a Python object a value.

``RedoDecoder`` is made once for each table version (``redo_rows.redo_decoder``). It reads a statement once: each value is a
span of the text. Then it writes the images, in the order of the schema. It takes the one spelling that LogMiner usually
has: lower-case keywords, single spaces, quoted names in the order of the table. Any other statement goes to
``redo_rows.PlainRows``, which reads all forms, and which says why one cannot be read. Both write the same JSON.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_Check, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy

from libs.formats.json_text cimport (
    append, days_since_1970, floor_divided, write_base64, write_integer, write_literal, write_text, write_unscaled,
)
from libs.formats.row_images cimport EventFrame, RowImages, Text, text_of
from libs.events.run_rows cimport Bytes, RunRows, reserve

from libs.events import batch

cdef uint8_t _OP_CREATE = batch.OP_CREATE
cdef uint8_t _OP_UPDATE = batch.OP_UPDATE
cdef uint8_t _OP_DELETE = batch.OP_DELETE

cdef enum:
    _INTEGER = 0
    _DECIMAL
    _OWN_SCALE
    _MOMENT
    _TEXT
    _BINARY
    _CONVERTED

# The same for Python, which makes readings of them.
INTEGER, DECIMAL, OWN_SCALE, MOMENT = _INTEGER, _DECIMAL, _OWN_SCALE, _MOMENT
TEXT, BINARY, CONVERTED = _TEXT, _BINARY, _CONVERTED

cdef enum Form:
    ABSENT = 0  # the clause does not name the column
    NULL_VALUE
    QUOTED
    DOUBLED  # a quoted text in which a quote is doubled
    CALL  # a call, several terms, a number
    NOT_LOGGED

cdef enum:
    _LONGEST_NUMBER = 40
    _SAFE_DIGITS = 18  # so many always fit into 64 bits
    _MOMENT_SIZE = 19  # 2021-05-17 07:22:42
    _FRACTION_DIGITS = 9
    _PIECES = 10
    _ROW_SIZE = 8
    _NEAR = 12

cdef int64_t[19] _POWERS_OF_10
cdef int64_t _power = 1
cdef int _nth
for _nth in range(19):
    _POWERS_OF_10[_nth] = _power
    _power *= 10 if _nth < 18 else 1

# By byte, because the branches of a comparison are not to be foreseen in such texts.
cdef uint8_t[256] _HEX_DIGITS  # 255: it is none
cdef bint[256] _OF_WORD  # a letter of ASCII, a digit, or one of _.$#+-
cdef int _byte
for _byte in range(256):
    _HEX_DIGITS[_byte] = int(chr(_byte), 16) if chr(_byte) in "0123456789abcdefABCDEF" else 255
    _OF_WORD[_byte] = _byte < 128 and (chr(_byte).isalnum() or chr(_byte) in "_.$#+-")

cdef struct Column:
    int kind
    int most_digits
    int scale
    int64_t unit_ns
    int64_t per_second
    const char* name  # between its quotes
    Py_ssize_t name_size
    const char* unavailable  # NULL: the row fails
    Py_ssize_t unavailable_size
    bint is_large

cdef struct Span:
    Form form
    Py_ssize_t begin
    Py_ssize_t end


cdef struct Scan:  # a statement, and the places of its values
    const char* sql
    Py_ssize_t size
    Column* columns
    int column_count
    int next  # the column that the text most likely names next
    Span* before
    Span* after


cdef class OracleFrame(EventFrame):
    """An EventFrame of rows that differ in their time, SCN and place in the log."""

    cdef Text[_PIECES] _pieces
    cdef Bytes _times
    """From the block's time to the SCN, of a row at ``_times_us``; empty: of none yet."""
    cdef int64_t _times_us

    def __dealloc__(self):
        free(self._times.data)

    def __init__(self, pieces, bytes behind_source not None, ends, bytes behind_numbers=None) -> None:
        """``pieces``: of ``OracleSourceBlock``; ``behind_source``: from the end of the block to the numbers, if there are any,
        else to the end of the event."""
        cdef int nth
        if len(pieces) != _PIECES:
            raise ValueError("not the pieces of an OracleSourceBlock")
        first = b',"source":' + pieces[0]
        EventFrame.__init__(self, first, behind_source, ends, behind_numbers)
        self.held = (self.held, tuple(pieces))
        for nth in range(_PIECES):
            self._pieces[nth] = text_of(pieces[nth])


cdef class RedoDecoder(RowImages):
    """Decodes the rows of one table version."""

    cdef Column* _columns
    cdef Scan _scan
    cdef Bytes _unquoted
    cdef tuple _readings, _column_names
    cdef readonly object plain
    """The ``PlainRows``."""
    cdef int _place
    """The column at hand."""
    cdef readonly object column
    """After an error: the name of the column where it happened; None: the statement itself is wrong."""
    cdef readonly Py_ssize_t row
    """The row at hand, also after an error."""
    cdef readonly int64_t plain_rows
    """Rows that were read by ``PlainRows``, since this decoder was made."""

    def __cinit__(self, readings, names, column_names, key_places, plain) -> None:
        cdef Py_ssize_t count = max(1, len(readings))
        self._columns = <Column*>malloc(count * sizeof(Column))
        self._scan.columns, self._scan.column_count = self._columns, len(readings)
        self._scan.before = <Span*>malloc(count * sizeof(Span))
        self._scan.after = <Span*>malloc(count * sizeof(Span))
        if self._columns == NULL or self._scan.before == NULL or self._scan.after == NULL:
            raise MemoryError

    def __init__(self, readings, names, column_names, key_places, plain) -> None:
        """One of ``readings``, of ``names`` (JSON text) and of ``column_names`` (UTF-8) a column; ``key_places``: the columns of
        the key, in its order; ``plain``: a ``PlainRows``."""
        cdef int index
        cdef Column* column
        RowImages.__init__(self, names, key_places)
        self._readings, self._column_names = tuple(readings), tuple(column_names)
        self.plain = plain
        for index in range(self.column_count):
            reading = self._readings[index]
            column = &self._columns[index]
            column.kind, column.most_digits, column.scale = reading.kind, reading.most_digits, reading.scale
            column.unit_ns, column.is_large = reading.unit_ns, reading.is_large
            column.name = PyBytes_AS_STRING(self._column_names[index])
            column.name_size = PyBytes_GET_SIZE(self._column_names[index])
            column.per_second = 1_000_000_000 // column.unit_ns
            column.unavailable, column.unavailable_size = NULL, 0
            if reading.unavailable is not None:
                column.unavailable = PyBytes_AS_STRING(reading.unavailable)
                column.unavailable_size = PyBytes_GET_SIZE(reading.unavailable)

    def __dealloc__(self):
        free(self._columns)
        free(self._scan.before)
        free(self._scan.after)
        free(self._unquoted.data)

    def decode(
        self, OracleFrame frame not None, RunRows run not None, rows, Py_ssize_t nth, Py_ssize_t end, Py_ssize_t room
    ) -> int:
        """Add the events of ``rows[nth:end]`` (of ``RedoRow``) to ``run``, until ``room`` bytes are used up.

        Returns the number of the row that it stopped before; at least one row is added. Rows before a bad one have been
        added when this raises; decoding may go on after it.

        Raises:
            As ``PlainRows.read``. ``row`` and ``column`` are then the place of the error.
        """
        cdef Py_ssize_t filled
        cdef Py_ssize_t before_size = 0
        cdef uint8_t op
        if not 0 <= nth <= end <= len(rows):
            raise IndexError(nth)
        while nth < end:
            self.row = nth
            filled = run.value_bytes()
            row = _checked(rows[nth])
            op = self._write_row(<bytes?><object>PyTuple_GET_ITEM(row, 0), &before_size)
            self._write_place(frame, row)
            self.add(run, frame, op, before_size, op != _OP_CREATE, op != _OP_DELETE)
            nth += 1
            room -= run.value_bytes() - filled
            if room <= 0:
                break
        return nth

    def add_cells(self, OracleFrame frame not None, RunRows run not None, uint8_t op, row, before, after) -> None:
        """Add a change whose cells are at hand, as ``PlainRows`` gives them. ``row``: a ``RedoRow``; its text does not count."""
        cdef Py_ssize_t before_size = self._write_cells(before, after)
        self._write_place(frame, _checked(row))
        self.add(run, frame, op, before_size, before is not None, after is not None)

    def decoded(self, bytes sql not None) -> tuple:
        """Operation, image before, image after, key before and key of one statement by itself. Raises as ``decode``."""
        cdef Py_ssize_t before_size = 0
        cdef uint8_t op = self._write_row(sql, &before_size)
        images = PyBytes_FromStringAndSize(self.images.data, self.images.size)
        return (
            op,
            None if op == _OP_CREATE else images[:before_size],
            None if op == _OP_DELETE else images[before_size:],
            PyBytes_FromStringAndSize(self.old_key.data, self.old_key.size) if op == _OP_UPDATE else b"",
            PyBytes_FromStringAndSize(self.key.data, self.key.size),
        )

    # --- one row

    cdef uint8_t _write_row(self, bytes sql, Py_ssize_t* before_size) except 0:
        """Images and key; returns the operation."""
        cdef uint8_t op
        self._scan.sql, self._scan.size = PyBytes_AS_STRING(sql), PyBytes_GET_SIZE(sql)
        op = _read_statement(&self._scan)
        if op == 0 or not self._has_written_images(op, before_size):
            self.plain_rows += 1
            try:
                op, before, after = self.plain.read(sql)
            except (ValueError, ArithmeticError):
                self.column = self.plain.column
                raise
            before_size[0] = self._write_cells(before, after)
        return op

    cdef bint _has_written_images(self, uint8_t op, Py_ssize_t* before_size) except -1:
        """False: a value is wrong, and ``PlainRows`` says why."""
        cdef Span* beneath = self._scan.before if op == _OP_UPDATE else NULL
        self.begin_row()
        try:
            if op != _OP_CREATE and not self._write_image(self._scan.before, NULL):
                return False
            before_size[0] = self.images.size
            return op == _OP_DELETE or self._write_image(self._scan.after, beneath)
        except (ValueError, ArithmeticError):
            return False

    cdef Py_ssize_t _write_cells(self, before, after) except -1:
        """Returns the size of the image before."""
        cdef Py_ssize_t before_size
        cdef int index
        self.begin_row()
        if before is not None:
            self._write_cell_list(before)
        before_size = self.images.size
        if after is not None:
            self._write_cell_list(after)
        return before_size

    cdef int _write_cell_list(self, cells) except -1:
        cdef int index
        cdef bytes cell
        if len(cells) != self.column_count:
            raise ValueError("one cell a column is wanted")
        for index in range(self.column_count):
            cell = cells[index]
            self.begin_cell(index, 0)
            append(&self.images, cell)
            self.end_cell(index)
        return self.end_image()

    cdef int _write_place(self, OracleFrame frame, row) except -1:
        """The rest of the source block, from its time on. ``row`` is checked."""
        cdef Bytes* out = &self.place_in_source
        cdef int64_t scn = <object>PyTuple_GET_ITEM(row, 1)
        cdef int64_t ssn = <object>PyTuple_GET_ITEM(row, 4)
        cdef int64_t thread = <object>PyTuple_GET_ITEM(row, 3)
        cdef int64_t ordinal = <object>PyTuple_GET_ITEM(row, 7)
        out.size = 0
        self._write_times(frame, <object>PyTuple_GET_ITEM(row, 2))
        reserve(out, _LONGEST_NUMBER)
        write_integer(out, scn)
        write_literal(out, b'"', 1)
        _put(out, &frame._pieces[4])
        self._write_name(<bytes?><object>PyTuple_GET_ITEM(row, 5))
        _put(out, &frame._pieces[5])
        reserve(out, _LONGEST_NUMBER)
        write_integer(out, ssn)
        _put(out, &frame._pieces[6])
        reserve(out, _LONGEST_NUMBER)
        write_integer(out, thread)
        _put(out, &frame._pieces[7])
        self._write_name(<bytes?><object>PyTuple_GET_ITEM(row, 6))
        _put(out, &frame._pieces[8])
        reserve(out, _LONGEST_NUMBER)
        write_integer(out, ordinal)
        _put(out, &frame._pieces[9])
        return 0

    cdef int _write_times(self, OracleFrame frame, int64_t time_us) except -1:
        """Up to the quote before the SCN. Most rows of a transaction have one time, so its text is kept with the frame."""
        cdef Bytes* out = &self.place_in_source
        cdef Bytes* kept = &frame._times
        cdef int nth
        if kept.size == 0 or frame._times_us != time_us:
            kept.size = 0
            for nth in range(1, 4):
                reserve(kept, _LONGEST_NUMBER)
                write_integer(kept, time_us * 1000 if nth == 3 else time_us if nth == 2 else floor_divided(time_us, 1000))
                _put(kept, &frame._pieces[nth])
            reserve(kept, 1)
            write_literal(kept, b'"', 1)
            frame._times_us = time_us
        reserve(out, kept.size)
        write_literal(out, kept.data, kept.size)
        return 0

    cdef int _write_name(self, bytes name) except -1:
        if PyBytes_GET_SIZE(name) == 0:
            return append(&self.place_in_source, b"null")
        write_text(&self.place_in_source, <const uint8_t*>PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
        return 0

    # --- images

    cdef bint _write_image(self, Span* spans, Span* beneath) except -1:
        """``beneath``: the spans of the image at hand, whose cells stand for columns that ``spans`` lack. False: the row lacks a
        value that it needs, or holds one that is no UTF-8."""
        cdef int index
        cdef Py_ssize_t begin = 0, end = 0
        cdef Span* span
        cdef Column* column
        for index in range(self.column_count):
            self._place = index
            span, column = &spans[index], &self._columns[index]
            if span.form == ABSENT and beneath != NULL:
                begin, end = self.cells[index].json_begin, self.cells[index].json_end
                self.begin_cell(index, end - begin)
                self.copy_cell(begin, end)
            else:
                self.begin_cell(index, column.unavailable_size + 4)
                if span.form == NULL_VALUE or (span.form == ABSENT and spans == self._scan.after and not column.is_large):
                    write_literal(&self.images, b"null", 4)
                elif span.form == ABSENT or span.form == NOT_LOGGED:
                    if column.unavailable == NULL:
                        return False
                    write_literal(&self.images, column.unavailable, column.unavailable_size)
                elif not self._write_value(column, span):
                    return False
            self.end_cell(index)
        self.end_image()
        return True

    cdef bint _write_value(self, Column* column, Span* span) except -1:
        cdef const uint8_t* text = <const uint8_t*>self._scan.sql + span.begin
        cdef Py_ssize_t size = span.end - span.begin
        cdef bint is_written = False
        if span.form == QUOTED or span.form == DOUBLED:
            if column.kind == _TEXT:
                return self._write_quoted(text + 1, size - 2, span.form == DOUBLED)
            if size <= _LONGEST_NUMBER:
                is_written = _write_number(&self.images, column, text + 1, size - 2)
        elif column.kind == _MOMENT:
            is_written = _write_moment(&self.images, column, text, size)
        elif column.kind == _BINARY:
            is_written = _write_bytes(&self.images, &self._unquoted, text, size)
        if not is_written:
            append(&self.images, <bytes>self.plain.convert(self._place, PyBytes_FromStringAndSize(<const char*>text, size)))
        return True

    cdef bint _write_quoted(self, const uint8_t* text, Py_ssize_t size, bint has_doubled) except -1:
        """False: it is no UTF-8."""
        cdef Bytes* out = &self._unquoted
        cdef const uint8_t* quote
        cdef const uint8_t* end = text + size
        cdef Py_ssize_t part
        if has_doubled:
            out.size = 0
            reserve(out, size)
            while text < end:
                quote = <const uint8_t*>memchr(text, b"'", end - text)
                part = (end if quote == NULL else quote + 1) - text
                memcpy(out.data + out.size, text, part)
                out.size += part
                text += part + (quote != NULL)
            text, size = <const uint8_t*>out.data, out.size
        if not write_text(&self.images, text, size):
            try:
                PyUnicode_DecodeUTF8(<const char*>text, size, NULL)
            except UnicodeDecodeError:
                return False
        return True


cdef inline object _checked(row):
    """A ``RedoRow``: its items are taken as those of a plain tuple."""
    if not PyTuple_Check(row) or PyTuple_GET_SIZE(row) != _ROW_SIZE:
        raise TypeError("not a RedoRow")
    return row


# --- the statement: each step returns the place after it, or -1 where the text is another ----------------------------


cdef uint8_t _read_statement(Scan* scan) noexcept:
    """The spans of its values; 0: it is not written as usual."""
    cdef Py_ssize_t at
    cdef int index
    for index in range(scan.column_count):
        scan.before[index].form = ABSENT
        scan.after[index].form = ABSENT
    if _is_at(scan, 0, b"insert into ", 12):
        at = _inserted(scan, _after_table(scan, 12))
        return _OP_CREATE if _is_end(scan, at) else 0
    if _is_at(scan, 0, b"update ", 7):
        at = _assignments(scan, _after_table(scan, 7))
        at = _conditions(scan, at)
        return _OP_UPDATE if _is_end(scan, at) else 0
    if _is_at(scan, 0, b"delete from ", 12):
        at = _conditions(scan, _after_table(scan, 12))
        return _OP_DELETE if _is_end(scan, at) else 0
    return 0


cdef inline bint _is_at(Scan* scan, Py_ssize_t at, const char* text, Py_ssize_t size) noexcept:
    return 0 <= at and size <= scan.size - at and memcmp(scan.sql + at, text, size) == 0


cdef inline bint _is_end(Scan* scan, Py_ssize_t at) noexcept:
    return at == scan.size or (at == scan.size - 1 and scan.sql[at] == b";")


cdef Py_ssize_t _after_table(Scan* scan, Py_ssize_t at) noexcept:
    """``"OWNER"."TABLE"``, or ``"TABLE"``."""
    at = _after_name(scan, at)
    return _after_name(scan, at + 1) if _is_at(scan, at, b".", 1) else at


cdef inline Py_ssize_t _after_name(Scan* scan, Py_ssize_t at) noexcept:
    cdef const char* quote
    if not _is_at(scan, at, b'"', 1):
        return -1
    quote = <const char*>memchr(scan.sql + at + 1, b'"', scan.size - at - 1)
    return -1 if quote == NULL or quote == scan.sql + at + 1 else quote - scan.sql + 1


cdef inline int _column_at(Scan* scan, Py_ssize_t at, Py_ssize_t* end) noexcept:
    """The column whose quoted name stands there, and the place after it; -1: there is none of that name.

    It is most often the column after the one before: then no search for the quote is needed.
    """
    cdef Column* column = &scan.columns[scan.next]
    cdef int index
    if scan.next < scan.column_count and at >= 0 and column.name_size + 2 <= scan.size - at:
        if (
            scan.sql[at] == b'"' and scan.sql[at + column.name_size + 1] == b'"'
            and memcmp(column.name, scan.sql + at + 1, column.name_size) == 0
        ):
            end[0] = at + column.name_size + 2
            scan.next += 1
            return scan.next - 1
    end[0] = _after_name(scan, at)
    if end[0] < 0:
        return -1
    for index in range(scan.column_count):
        column = &scan.columns[index]
        if column.name_size == end[0] - at - 2 and memcmp(column.name, scan.sql + at + 1, column.name_size) == 0:
            scan.next = index + 1
            return index
    return -1


cdef Py_ssize_t _inserted(Scan* scan, Py_ssize_t at) noexcept:
    """``("A","B") values ('1',NULL)``: names and values are walked together."""
    cdef Py_ssize_t name, value, end
    cdef const char* quote
    cdef int index
    if not _is_at(scan, at, b'("', 2):
        return -1
    name = at + 1
    value = name
    while True:  # to the end of the names
        value = _after_name(scan, value)
        if value < 0:
            return -1
        if _is_at(scan, value, b',"', 2):
            value += 1
            continue
        break
    if not _is_at(scan, value, b") values (", 10):
        return -1
    value += 10
    scan.next = 0
    while True:
        index = _column_at(scan, name, &end)
        if index < 0 or scan.after[index].form != ABSENT:
            return -1
        value = _read_value(scan, value, &scan.after[index])
        if value < 0:
            return -1
        if scan.sql[end] == b",":
            if not _is_at(scan, value, b",", 1):
                return -1
            name, value = end + 1, value + 1
            continue
        return value + 1 if _is_at(scan, value, b")", 1) else -1


cdef Py_ssize_t _assignments(Scan* scan, Py_ssize_t at) noexcept:
    """`` set "A" = '1', "B" = NULL``."""
    cdef Py_ssize_t end
    cdef int index
    if not _is_at(scan, at, b" set ", 5):
        return -1
    at += 5
    scan.next = 0
    while True:
        index = _column_at(scan, at, &end)
        if index < 0 or scan.after[index].form != ABSENT or not _is_at(scan, end, b" = ", 3):
            return -1
        at = _read_value(scan, end + 3, &scan.after[index])
        if not _is_at(scan, at, b", ", 2):
            return at
        at += 2


cdef Py_ssize_t _conditions(Scan* scan, Py_ssize_t at) noexcept:
    """`` where "A" = '1' and "B" IS NULL``."""
    cdef Py_ssize_t end
    cdef int index
    if not _is_at(scan, at, b" where ", 7):
        return -1
    at += 7
    scan.next = 0
    while True:
        index = _column_at(scan, at, &end)
        if index < 0 or scan.before[index].form != ABSENT:
            return -1
        if _is_at(scan, end, b" = ", 3):
            at = _read_value(scan, end + 3, &scan.before[index])
        elif _is_at(scan, end, b" IS NULL", 8):
            scan.before[index].form = NULL_VALUE
            at = end + 8
        else:
            return -1
        if not _is_at(scan, at, b" and ", 5):
            return at
        at += 5


cdef inline Py_ssize_t _read_value(Scan* scan, Py_ssize_t at, Span* span) noexcept:
    cdef Form form = QUOTED
    cdef Py_ssize_t end
    if _is_at(scan, at, b"'", 1):
        end = _after_quoted(scan, at, &form)
    elif _is_at(scan, at, b"NULL", 4) and not _is_of_word(scan.sql, at + 4, scan.size):
        form, end = NULL_VALUE, at + 4
    elif _is_at(scan, at, b"Unsupported Type", 16):
        form, end = NOT_LOGGED, at + 16
    else:
        form, end = CALL, _after_call(scan, at)
    while _is_at(scan, end, b" || ", 4):
        if form == NULL_VALUE or form == NOT_LOGGED:
            return -1
        form = CALL
        end = _after_quoted(scan, end + 4, NULL) if _is_at(scan, end + 4, b"'", 1) else _after_call(scan, end + 4)
    span.form, span.begin, span.end = form, at, end
    return end


cdef inline Py_ssize_t _after_quoted(Scan* scan, Py_ssize_t at, Form* form) noexcept:
    """A doubled quote is noted."""
    cdef const char* quote
    cdef Py_ssize_t near
    at += 1
    while True:
        near = min(at + _NEAR, scan.size)
        while at < near and scan.sql[at] != b"'":  # most values are short
            at += 1
        if at == near:
            quote = <const char*>memchr(scan.sql + at, b"'", scan.size - at)
            if quote == NULL:
                return -1
            at = quote - scan.sql
        at += 1
        if at >= scan.size or scan.sql[at] != b"'":
            return at
        at += 1
        if form != NULL:
            form[0] = DOUBLED


cdef Py_ssize_t _after_call(Scan* scan, Py_ssize_t at) noexcept:
    """A word or a number, and the brackets after it."""
    cdef Py_ssize_t begin = at
    cdef int depth = 0
    cdef char letter
    while _is_of_word(scan.sql, at, scan.size):
        at += 1
    if at == begin:
        return -1
    if not _is_at(scan, at, b"(", 1):
        return at
    while at < scan.size:
        letter = scan.sql[at]
        if letter == b"'":
            at = _after_quoted(scan, at, NULL)
            if at < 0:
                return -1
            continue
        at += 1
        depth += (letter == b"(") - (letter == b")")
        if depth == 0:
            return at
    return -1


# --- values ------------------------------------------------------------------------------------------------------------

cdef bint _write_number(Bytes* out, Column* column, const uint8_t* text, Py_ssize_t size) except -1:
    """False: it is written otherwise, has too many digits, or is no number."""
    cdef int64_t number = 0
    cdef int whole = 0
    cdef int fraction = -1  # digits after the point; -1: before it
    cdef Py_ssize_t nth
    cdef bint is_negative = size > 0 and text[0] == b"-"
    if column.kind > _OWN_SCALE:
        return False
    for nth in range(is_negative, size):
        if 48 <= text[nth] <= 57:
            if whole + max(fraction, 0) >= _SAFE_DIGITS:
                return False
            number = 10 * number + (text[nth] - 48)
            if fraction >= 0:
                fraction += 1
            else:
                whole += 1
        elif text[nth] == b"." and fraction < 0:
            fraction = 0
        else:
            return False
    if whole + fraction < 1 or fraction == 0:  # nothing, or a point at the end
        return False
    fraction = max(fraction, 0)
    if is_negative:
        number = -number
    while fraction > 0 and number % 10 == 0:
        number //= 10
        fraction -= 1
    reserve(out, 2 * _LONGEST_NUMBER)
    if column.kind == _INTEGER:
        if fraction or whole > column.most_digits:
            return False
        write_integer(out, number)
    elif column.kind == _DECIMAL:
        if fraction > column.scale or whole + column.scale > _SAFE_DIGITS:
            return False
        write_unscaled(out, number * _POWERS_OF_10[column.scale - fraction])
    else:
        write_literal(out, b'{"scale":', 9)
        write_integer(out, fraction)
        write_literal(out, b',"value":', 9)
        write_unscaled(out, number)
        append(out, b"}")
    return True


cdef bint _write_moment(Bytes* out, Column* column, const uint8_t* text, Py_ssize_t size) except -1:
    """``TO_DATE('2022-03-27 01:02:03', 'YYYY-MM-DD HH24:MI:SS')``, ``TO_TIMESTAMP('2022-03-27 01:02:03.5')``. False: it is
    written otherwise, or does not fit into 64 bits of nanoseconds."""
    cdef const uint8_t* end = text + size
    cdef int year, month, day, hour, minute, second
    cdef int64_t fraction = 0
    cdef int64_t seconds
    cdef int digits = 0
    if size > 12 and memcmp(text, b"TO_DATE('", 9) == 0:
        text += 9
    elif size > 17 and memcmp(text, b"TO_TIMESTAMP('", 14) == 0:
        text += 14
    else:
        return False
    if text[0] == b" ":
        text += 1
    if end - text < _MOMENT_SIZE + 2:
        return False
    if text[4] != b"-" or text[7] != b"-" or text[10] != b" " or text[13] != b":" or text[16] != b":":
        return False
    year, month, day = 100 * _two(text) + _two(text + 2), _two(text + 5), _two(text + 8)
    hour, minute, second = _two(text + 11), _two(text + 14), _two(text + 17)
    if year < 0 or not 1 <= month <= 12 or not 1 <= day <= 31:
        return False
    if not 0 <= hour <= 23 or not 0 <= minute <= 59 or not 0 <= second <= 59:
        return False
    text += _MOMENT_SIZE
    if text[0] == b".":
        text += 1
        while text < end and 48 <= text[0] <= 57 and digits < _FRACTION_DIGITS:
            fraction = 10 * fraction + (text[0] - 48)
            digits += 1
            text += 1
    if not _is_end_of_call(text, end):
        return False
    if column.unit_ns == 1 and not 1700 <= year <= 2200:
        return False
    reserve(out, _LONGEST_NUMBER)
    if fraction:
        fraction = fraction * _POWERS_OF_10[_FRACTION_DIGITS - digits] // column.unit_ns
    seconds = days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second
    write_integer(out, seconds * column.per_second + fraction)
    return True


cdef bint _write_bytes(Bytes* out, Bytes* scratch, const uint8_t* text, Py_ssize_t size) except -1:
    """``HEXTORAW('0aff')``. False: it is written otherwise."""
    cdef Py_ssize_t digits = size - 12
    cdef Py_ssize_t nth
    cdef uint8_t high, low
    cdef uint8_t seen = 0
    if digits < 0 or digits & 1 or memcmp(text, b"HEXTORAW('", 10) != 0 or memcmp(text + size - 2, b"')", 2) != 0:
        return False
    text += 10
    scratch.size = 0
    reserve(scratch, digits // 2 + 1)
    for nth in range(0, digits, 2):
        high, low = _HEX_DIGITS[text[nth]], _HEX_DIGITS[text[nth + 1]]
        seen |= high | low
        scratch.data[nth // 2] = <char>(high << 4 | low)
    if seen > 15:
        return False
    write_base64(out, <const uint8_t*>scratch.data, digits // 2)
    return True


cdef inline int _put(Bytes* out, Text* piece) except -1:
    reserve(out, piece.size)
    write_literal(out, piece.data, piece.size)
    return 0


cdef inline bint _is_of_word(const char* text, Py_ssize_t at, Py_ssize_t size) noexcept:
    return 0 <= at < size and _OF_WORD[<uint8_t>text[at]]


cdef inline int _two(const uint8_t* text) noexcept:
    """Two digits; far below 0 where they are none."""
    if 48 <= text[0] <= 57 and 48 <= text[1] <= 57:
        return 10 * (text[0] - 48) + (text[1] - 48)
    return -100_000


cdef bint _is_end_of_call(const uint8_t* text, const uint8_t* end) noexcept:
    """``')``, or ``', 'a format')``."""
    if end - text == 2:
        return memcmp(text, b"')", 2) == 0
    if end - text < 6 or memcmp(text, b"', '", 4) != 0 or memcmp(end - 2, b"')", 2) != 0:
        return False
    return memchr(text + 4, b"'", end - text - 6) == NULL
