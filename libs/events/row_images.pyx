# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""See ``row_images.pxd``."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from libs.events.json_text cimport write_integer, write_literal
from libs.events.run_rows cimport Bytes, RunRows, reserve

from libs.events import batch
from libs.events.envelope import AFTER, AFTER_NULL, BEFORE, BEFORE_NULL_AFTER

cdef uint8_t _OP_UPDATE = batch.OP_UPDATE
cdef uint8_t _OP_DELETE = batch.OP_DELETE
cdef uint8_t _OP_READ = batch.OP_READ
cdef uint8_t _OP_KEY_CHANGE_DELETE = batch.OP_KEY_CHANGE_DELETE
cdef uint8_t _OP_KEY_CHANGE_CREATE = batch.OP_KEY_CHANGE_CREATE
cdef bytes _BEFORE = BEFORE
cdef bytes _AFTER = AFTER
cdef bytes _AFTER_NULL = AFTER_NULL
cdef bytes _BEFORE_NULL_AFTER = BEFORE_NULL_AFTER

cdef enum:
    _LONGEST_NUMBER = 24
    _KEPT_IMAGE_BYTES = 4_000_000


cdef class EventFrame:

    def __init__(self, bytes source not None, ends, bytes behind_numbers=None) -> None:
        """``source``: from ``,"source":`` to the end of the event, or to its number in the transaction where
        ``behind_numbers`` is given: what follows the numbers. ``ends``: of a create, an update, a delete and a read."""
        self._source = source
        self._behind_numbers = behind_numbers or b""
        self._ends = tuple(ends)
        self._is_numbered = behind_numbers is not None
        self.total_order = self.collection_order = 0


cdef class RowImages:

    def __init__(self, names, key_places) -> None:
        """``names``: the columns' names as JSON text; ``key_places``: the columns of the key, in its order."""
        cdef int index
        count = max(1, len(names))
        self._free_columns()
        self._opening_texts = <const char**>malloc(count * sizeof(char*))
        self._opening_sizes = <Py_ssize_t*>malloc(count * sizeof(Py_ssize_t))
        self._is_key = <bint*>malloc(count * sizeof(bint))
        self._key_begins = <Py_ssize_t*>malloc(count * sizeof(Py_ssize_t))
        self._key_ends = <Py_ssize_t*>malloc(count * sizeof(Py_ssize_t))
        if not (self._opening_texts and self._opening_sizes and self._is_key and self._key_begins and self._key_ends):
            raise MemoryError
        self.column_count = len(names)
        self._openings = _openings(names)
        self._key_places = tuple(key_places)
        self._key_openings = _openings([names[place] for place in key_places])
        for index in range(self.column_count):
            self._opening_texts[index] = PyBytes_AS_STRING(self._openings[index])
            self._opening_sizes[index] = PyBytes_GET_SIZE(self._openings[index])
            self._is_key[index] = index in key_places

    def __dealloc__(self):
        self._free_columns()
        free(self.images.data)
        free(self.key.data)
        free(self.old_key.data)

    cdef void _free_columns(self) noexcept:
        free(self._opening_texts)
        free(self._opening_sizes)
        free(self._is_key)
        free(self._key_begins)
        free(self._key_ends)

    cdef int begin_cell(self, int index) except -1:
        cdef Py_ssize_t size = self._opening_sizes[index]
        reserve(&self.images, size)
        memcpy(self.images.data + self.images.size, self._opening_texts[index], size)
        self.images.size += size
        if self._is_key[index]:
            self._key_begins[index] = self.images.size
        return 0

    cdef int end_image(self) except -1:
        cdef Bytes* key
        cdef Py_ssize_t size
        cdef int place
        cdef bytes opening
        reserve(&self.images, 1)
        self.images.data[self.images.size] = b"}"
        self.images.size += 1
        self.key, self.old_key = self.old_key, self.key
        key = &self.key
        key.size = 0
        if not self._key_places:
            return 0
        for nth in range(len(self._key_places)):
            place = self._key_places[nth]
            opening = self._key_openings[nth]
            size = self._key_ends[place] - self._key_begins[place]
            reserve(key, PyBytes_GET_SIZE(opening) + size + 1)
            memcpy(key.data + key.size, PyBytes_AS_STRING(opening), PyBytes_GET_SIZE(opening))
            key.size += PyBytes_GET_SIZE(opening)
            memcpy(key.data + key.size, self.images.data + self._key_begins[place], size)
            key.size += size
        key.data[key.size] = b"}"
        key.size += 1
        return 0

    cdef int add(
        self, RunRows run, EventFrame frame, uint8_t op, Py_ssize_t before_size, bint has_before, bint has_after
    ) except -1:
        cdef int events = 1
        if op == _OP_UPDATE and not self._key_is_unchanged():
            self._add_event(run, frame, _OP_KEY_CHANGE_DELETE, &self.old_key, before_size, True, False)
            self._add_event(run, frame, _OP_KEY_CHANGE_CREATE, &self.key, before_size, False, True)
            events = 2
        else:
            self._add_event(run, frame, op, &self.key, before_size, has_before, has_after)
        if self.images.capacity > _KEPT_IMAGE_BYTES:  # a single large row should not stay in memory
            free(self.images.data)
            self.images.data = NULL
            self.images.size = self.images.capacity = 0
        return events

    cdef bint _key_is_unchanged(self) noexcept:
        return self.key.size == self.old_key.size and (
            self.key.size == 0 or memcmp(self.key.data, self.old_key.data, self.key.size) == 0
        )

    cdef int _add_event(
        self, RunRows run, EventFrame frame, uint8_t op, Bytes* key, Py_ssize_t before_size, bint has_before, bint has_after
    ) except -1:
        cdef char[2 * _LONGEST_NUMBER + 32] number_bytes
        cdef Bytes numbers
        cdef bytes opening, joint, end
        if not has_before:
            opening, joint = _BEFORE_NULL_AFTER, b""
            end = frame._ends[3 if op == _OP_READ else 0]
        elif has_after:
            opening, joint, end = _BEFORE, _AFTER, frame._ends[1]
        else:
            opening, joint, end = _BEFORE, _AFTER_NULL, frame._ends[2]
        numbers.data, numbers.size, numbers.capacity = number_bytes, 0, sizeof(number_bytes)
        if frame._is_numbered:
            frame.total_order += 1
            frame.collection_order += 1
            write_integer(&numbers, frame.total_order)
            write_literal(&numbers, b',"data_collection_order":', 25)
            write_integer(&numbers, frame.collection_order)
        cdef Py_ssize_t after_size = self.images.size - before_size
        run.begin_row(
            op, key.data, key.size,
            PyBytes_GET_SIZE(opening) + has_before * before_size + PyBytes_GET_SIZE(joint) + has_after * after_size
            + PyBytes_GET_SIZE(frame._source) + numbers.size + PyBytes_GET_SIZE(frame._behind_numbers)
            + PyBytes_GET_SIZE(end),
        )
        run.add_part(PyBytes_AS_STRING(opening), PyBytes_GET_SIZE(opening))
        if has_before:
            run.add_part(self.images.data, before_size)
        run.add_part(PyBytes_AS_STRING(joint), PyBytes_GET_SIZE(joint))
        if has_after:
            run.add_part(self.images.data + before_size, after_size)
        run.add_part(PyBytes_AS_STRING(frame._source), PyBytes_GET_SIZE(frame._source))
        run.add_part(numbers.data, numbers.size)
        run.add_part(PyBytes_AS_STRING(frame._behind_numbers), PyBytes_GET_SIZE(frame._behind_numbers))
        run.add_part(PyBytes_AS_STRING(end), PyBytes_GET_SIZE(end))
        return 0


cdef tuple _openings(names):
    return tuple([(b"," if nth else b"{") + name + b":" for nth, name in enumerate(names)])
