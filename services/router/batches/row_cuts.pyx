# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The columns of a run's rows, cut out of its bytes where they lie: once for all tenants that look at them.

Events are Debezium's JSON as the readers write it: ``{"before":…,"after":…`` without blanks, each image null or an object of
the table's columns in their order. Any other JSON is as right, and is left to those who read all of it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from libs.events.run_rows cimport Bytes, reserve
from libs.formats.json_text cimport write_literal
from services.router.batches.changes cimport Run, Span

from libs.events import batch

cdef enum:
    _ODD = -1  # in the place of an end: it is not as the readers write it
    _NO_IMAGE = -1  # in the place of a size: null
    _FIRST_PRINTED = 0x20

cdef char _OP_CREATE = batch.OP_CREATE
cdef char _OP_READ = batch.OP_READ
cdef char _OP_UPDATE = batch.OP_UPDATE
cdef char _OP_DELETE = batch.OP_DELETE

KEPT = 0
LEFT_OUT = 1
MASKED = 2
cdef enum:
    _KEPT = 0
    _LEFT_OUT = 1
    _MASKED = 2


cdef class RowCuts:
    """The images of a run's rows. ``is_plain`` says whether they can be cut: else it has nothing to give."""

    cdef Run _run
    cdef Span* _images  # of each row, before and after
    cdef Span* _cells  # of one image, by column
    cdef tuple _names
    cdef Py_ssize_t _count
    cdef readonly bint is_plain

    def __init__(self, Run run not None, tuple names not None) -> None:
        """``names``: the table's columns in their order, each as JSON text with the colon after it."""
        cdef Py_ssize_t row
        cdef Span* span
        cdef const char* ops = PyBytes_AS_STRING(run.ops)
        self._run, self._names, self._count = run, names, len(names)
        free(self._images)
        free(self._cells)
        self._images = <Span*>calloc(max(1, 2 * run.count), sizeof(Span))
        self._cells = <Span*>calloc(max(1, self._count), sizeof(Span))
        if self._images == NULL or self._cells == NULL:
            raise MemoryError
        self.is_plain = False
        for row in range(run.count):
            span = &run.value_spans[row]
            if not _read_event(run.data, span.begin, span.begin + span.size, &self._images[2 * row]):
                return
            if not _has_images(ops[row], &self._images[2 * row]):
                return
        self.is_plain = True

    def __dealloc__(self):
        free(self._images)
        free(self._cells)

    def values(self, Py_ssize_t column):
        """A column's values as JSON text, before and after each row; None stands for an image that is not there. None instead
        of both: an image lacks the column, or is not as readers write it."""
        cdef list befores = [], afters = []
        cdef Py_ssize_t number
        cdef Span* image
        cdef Span* cell
        if column < 0 or column >= self._count:
            raise IndexError("the table has no such column")
        for number in range(2 * self._run.count):
            image = &self._images[number]
            value = None
            if image.size != _NO_IMAGE:
                if not self._cut(image):
                    return None
                cell = &self._cells[column]
                if cell.size == 0:
                    return None
                value = PyBytes_FromStringAndSize(self._run.data + cell.begin, cell.size)
            (afters if number & 1 else befores).append(value)
        return befores, afters

    def pieces(self, bytes actions not None, tuple openings not None):
        """Each event in pieces: a text that all get, a value to be masked, a text, and so on; the last is a text. Of both images
        the same columns are masked, in the table's order.

        ``actions``: for each column KEPT, LEFT_OUT or MASKED; ``openings``: what stands in its value's front, as ``names``. None
        as ``values``.
        """
        cdef list rows = []
        cdef list pieces
        cdef Bytes text
        cdef Py_ssize_t row
        if PyBytes_GET_SIZE(actions) != self._count or len(openings) != self._count:
            raise IndexError("the table has other columns")
        text.data, text.size, text.capacity = NULL, 0, 0
        try:
            for row in range(self._run.count):
                pieces = self._pieces_of(row, PyBytes_AS_STRING(actions), openings, &text)
                if pieces is None:
                    return None
                rows.append(pieces)
        finally:
            free(text.data)
        return rows

    cdef list _pieces_of(self, Py_ssize_t row, const char* actions, tuple openings, Bytes* text):
        cdef list pieces = []
        cdef const char* data = self._run.data
        cdef Py_ssize_t done = self._run.value_spans[row].begin, end = done + self._run.value_spans[row].size, column
        cdef Span* image
        cdef Span* cell
        cdef bytes opening
        cdef bint is_first
        cdef int side
        for side in range(2):
            image = &self._images[2 * row + side]
            if image.size == _NO_IMAGE:
                continue
            if not self._cut(image):
                return None
            _write(text, data + done, image.begin + 1 - done)
            is_first = True
            for column in range(self._count):
                cell = &self._cells[column]
                if cell.size == 0:
                    if actions[column] == _MASKED:
                        return None
                    continue
                if actions[column] == _LEFT_OUT:
                    continue
                if not is_first:
                    _write(text, b",", 1)
                is_first = False
                opening = <bytes?>openings[column]
                _write(text, PyBytes_AS_STRING(opening), PyBytes_GET_SIZE(opening))
                if actions[column] == _MASKED:
                    pieces.append(PyBytes_FromStringAndSize(text.data, text.size))
                    pieces.append(PyBytes_FromStringAndSize(data + cell.begin, cell.size))
                    text.size = 0
                else:
                    _write(text, data + cell.begin, cell.size)
            done = image.begin + image.size - 1  # the brace that closes
        _write(text, data + done, end - done)
        pieces.append(PyBytes_FromStringAndSize(text.data, text.size))
        text.size = 0
        return pieces

    cdef bint _cut(self, Span* image) except -1:
        """Find each column's value; of one that is not there the size is 0. False: it is not as readers write it."""
        cdef const char* data = self._run.data
        cdef Py_ssize_t place = image.begin + 1, end = image.begin + image.size, begin, column = 0, other
        cdef bytes name
        while True:
            while True:
                if column == self._count:
                    return False
                name = <bytes?>self._names[column]
                if _begins(data, place, end, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)):
                    break
                self._cells[column].size = 0
                column += 1
            begin = place + PyBytes_GET_SIZE(name)
            place = _value_end(data, begin, end)
            if place == _ODD:
                return False
            self._cells[column] = Span(begin, place - begin)
            column += 1
            if place + 1 == end and data[place] == b"}":
                break
            if place >= end or data[place] != b",":
                return False
            place += 1
        for other in range(column, self._count):
            self._cells[other].size = 0
        return True


def masked_values(list rows not None, tuple masks not None, places=None) -> list:
    """Events of their ``pieces``, with ``masks`` over the values, one for each masked column; ``places``: of these rows alone.
    Raises as the masks do."""
    cdef list values = []
    cdef list pieces
    cdef list parts
    cdef Py_ssize_t nth, count = len(masks)
    for pieces in rows if places is None else [rows[place] for place in places]:
        if len(pieces) == 1:
            values.append(pieces[0])
            continue
        parts = pieces.copy()
        for nth in range(1, len(pieces), 2):
            parts[nth] = masks[(nth >> 1) % count](pieces[nth])
        values.append(b"".join(parts))
    return values


cdef int _write(Bytes* text, const char* data, Py_ssize_t size) except -1:
    reserve(text, size)
    write_literal(text, data, size)
    return 0


cdef inline bint _begins(const char* data, Py_ssize_t place, Py_ssize_t end, const char* text, Py_ssize_t size) noexcept:
    return end - place >= size and memcmp(data + place, text, size) == 0


cdef bint _has_images(char op, Span* images) noexcept:
    """Those that an event of the operation has; False of an operation that is looked at otherwise."""
    cdef bint has_before = images[0].size != _NO_IMAGE, has_after = images[1].size != _NO_IMAGE
    if op == _OP_UPDATE:
        return has_before and has_after
    if op == _OP_DELETE:
        return has_before and not has_after
    return (op == _OP_CREATE or op == _OP_READ) and has_after and not has_before


cdef bint _read_event(const char* data, Py_ssize_t place, Py_ssize_t end, Span* images) noexcept:
    """Where its images lie; False: it is not as readers write it. Each bracket, text and number of it is looked at."""
    cdef Py_ssize_t begin
    if not _begins(data, place, end, b'{"before":', 10):
        return False
    place = _image_end(data, place + 10, end, &images[0])
    if place == _ODD or not _begins(data, place, end, b',"after":', 9):
        return False
    place = _image_end(data, place + 9, end, &images[1])
    if place == _ODD:
        return False
    while place < end and data[place] == b",":
        begin = place + 1
        if _begins(data, begin, end, b'"before"', 8) or _begins(data, begin, end, b'"after"', 7):
            return False
        place = _text_end(data, begin, end)
        if place == _ODD or place >= end or data[place] != b":":
            return False
        place = _value_end(data, place + 1, end)
        if place == _ODD:
            return False
    return place + 1 == end and data[place] == b"}"


cdef Py_ssize_t _image_end(const char* data, Py_ssize_t place, Py_ssize_t end, Span* image) noexcept:
    cdef Py_ssize_t behind = _value_end(data, place, end)
    if behind == _ODD:
        return _ODD
    if data[place] == b"{":
        image[0] = Span(place, behind - place)
    elif data[place] == b"n":
        image[0] = Span(place, _NO_IMAGE)
    else:
        return _ODD
    return behind


cdef Py_ssize_t _text_end(const char* data, Py_ssize_t place, Py_ssize_t end) noexcept:
    """After the quotes that close a text of JSON."""
    if place >= end or data[place] != b'"':
        return _ODD
    place += 1
    while place < end:
        if data[place] == b'"':
            return place + 1
        if data[place] == b"\\":
            place += 1
        elif <unsigned char>data[place] < _FIRST_PRINTED:
            return _ODD
        place += 1
    return _ODD


cdef Py_ssize_t _value_end(const char* data, Py_ssize_t place, Py_ssize_t end) noexcept:
    """After a value of JSON without blanks."""
    cdef Py_ssize_t depth = 0
    while place < end:
        if data[place] == b'"':
            place = _text_end(data, place, end)
            if place == _ODD:
                return _ODD
            if depth and place < end and data[place] == b":":
                place += 1
                continue
        elif data[place] == b"{" or data[place] == b"[":
            depth += 1
            place += 1
            if place < end and data[place] != b"}" and data[place] != b"]":
                continue
        else:
            place = _word_end(data, place, end)
            if place == _ODD:
                return _ODD
        while depth and place < end and (data[place] == b"}" or data[place] == b"]"):
            depth -= 1
            place += 1
        if depth == 0:
            return place
        if place >= end or data[place] != b",":
            return _ODD
        place += 1
    return _ODD


cdef Py_ssize_t _word_end(const char* data, Py_ssize_t place, Py_ssize_t end) noexcept:
    """After a number, or one of JSON's three words."""
    cdef Py_ssize_t begin = place
    if _begins(data, place, end, b"null", 4) or _begins(data, place, end, b"true", 4):
        return place + 4
    if _begins(data, place, end, b"false", 5):
        return place + 5
    while place < end and (
        b"0" <= data[place] <= b"9" or data[place] == b"-" or data[place] == b"+" or data[place] == b"."
        or data[place] == b"e" or data[place] == b"E"
    ):
        place += 1
    return place if place > begin else _ODD
