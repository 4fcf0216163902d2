# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""See ``row_images.pxd``."""

from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free

from libs.formats.json_text cimport write_integer, write_literal
from libs.events.run_rows cimport Bytes, RunRows, reserve

from libs.events import batch
from libs.events.envelope import AFTER, AFTER_NULL, BEFORE, BEFORE_NULL_AFTER

cdef uint8_t _OP_UPDATE = batch.OP_UPDATE
cdef uint8_t _OP_READ = batch.OP_READ
cdef uint8_t _OP_KEY_CHANGE_DELETE = batch.OP_KEY_CHANGE_DELETE
cdef uint8_t _OP_KEY_CHANGE_CREATE = batch.OP_KEY_CHANGE_CREATE
cdef Text _BEFORE = text_of(BEFORE)
cdef Text _AFTER = text_of(AFTER)
cdef Text _AFTER_NULL = text_of(AFTER_NULL)
cdef Text _BEFORE_NULL_AFTER = text_of(BEFORE_NULL_AFTER)
cdef Text _NOTHING = text_of(b"")

cdef enum:
    _LONGEST_NUMBER = 24
    _KEPT_IMAGE_BYTES = 4_000_000


cdef class EventFrame:

    def __init__(self, bytes source not None, bytes behind_place not None, ends, bytes behind_numbers=None) -> None:
        """``source``: from ``,"source":`` to the row's place in it; ``behind_place``: from there to the end of the event, or
        to its number in the transaction, where ``behind_numbers`` is given: the text after the numbers. ``ends``: of a
        create,
        an update, a delete and, where there are any, a read."""
        cdef int nth
        self.held = (source, behind_place, behind_numbers, *ends)
        self._source = text_of(source)
        self._behind_place = text_of(behind_place)
        self._behind_numbers = text_of(behind_numbers or b"")
        for nth in range(4):
            self._ends[nth] = text_of(ends[nth] if nth < len(ends) else b"")
        self._is_numbered = behind_numbers is not None
        self.total_order = self.collection_order = 0


cdef class RowImages:

    def __init__(self, names, key_places) -> None:
        """``names``: the columns' names as JSON text; ``key_places``: the columns of the key, in its order."""
        cdef int nth
        free(self.cells)
        free(self._key_cells)
        self.cells = <Cell*>calloc(max(1, len(names)), sizeof(Cell))
        self._key_cells = <KeyCell*>calloc(max(1, len(key_places)), sizeof(KeyCell))
        if self.cells == NULL or self._key_cells == NULL:
            raise MemoryError
        self.column_count, self._key_count = len(names), len(key_places)
        self._openings = _openings(names)
        self._key_openings = _openings([names[place] for place in key_places])
        for nth in range(self.column_count):
            self.cells[nth].opening = text_of(self._openings[nth])
            self.cells[nth].is_key = nth in key_places
        for nth in range(self._key_count):
            self._key_cells[nth].opening = text_of(self._key_openings[nth])
            self._key_cells[nth].column = key_places[nth]

    def __dealloc__(self):
        free(self.cells)
        free(self._key_cells)
        free(self.images.data)
        free(self.key.data)
        free(self.old_key.data)
        free(self.place_in_source.data)

    cdef int end_image(self) except -1:
        cdef Bytes* key = &self.key
        cdef KeyCell* key_cell
        cdef Py_ssize_t begin, size
        cdef int nth
        reserve(&self.images, 2)
        write_literal(&self.images, b"}" if self.column_count else b"{}", 1 if self.column_count else 2)
        self.key, self.old_key = self.old_key, self.key
        key.size = 0
        if self._key_count == 0:
            return 0
        for nth in range(self._key_count):
            key_cell = &self._key_cells[nth]
            begin = self.cells[key_cell.column].json_begin
            size = self.cells[key_cell.column].json_end - begin
            reserve(key, key_cell.opening.size + size + 1)
            write_literal(key, key_cell.opening.data, key_cell.opening.size)
            write_literal(key, self.images.data + begin, size)
        write_literal(key, b"}", 1)
        return 0

    cdef int add(
        self, RunRows run, EventFrame frame, uint8_t op, Py_ssize_t before_size, bint has_before, bint has_after
    ) except -1:
        cdef int events = 1
        if op == _OP_UPDATE and self.has_new_key():
            _add_event(self, run, frame, _OP_KEY_CHANGE_DELETE, &self.old_key, before_size, True, False)
            _add_event(self, run, frame, _OP_KEY_CHANGE_CREATE, &self.key, before_size, False, True)
            events = 2
        else:
            _add_event(self, run, frame, op, &self.key, before_size, has_before, has_after)
        if self.images.capacity > _KEPT_IMAGE_BYTES:  # a single large row should not stay in memory
            free(self.images.data)
            self.images.data = NULL
            self.images.size = self.images.capacity = 0
        return events


cdef int _add_event(
    RowImages row, RunRows run, EventFrame frame, uint8_t op, Bytes* key, Py_ssize_t before_size, bint has_before,
    bint has_after
) except -1:
    cdef char[2 * _LONGEST_NUMBER + 32] number_bytes
    cdef Bytes numbers
    cdef Text before, after, opening, joint
    cdef Text* end
    if not has_before:
        opening, joint, end = _BEFORE_NULL_AFTER, _NOTHING, &frame._ends[3 if op == _OP_READ else 0]
    elif has_after:
        opening, joint, end = _BEFORE, _AFTER, &frame._ends[1]
    else:
        opening, joint, end = _BEFORE, _AFTER_NULL, &frame._ends[2]
    before = Text(row.images.data, before_size if has_before else 0)
    after = Text(row.images.data + before_size, row.images.size - before_size if has_after else 0)
    numbers.data, numbers.size, numbers.capacity = number_bytes, 0, sizeof(number_bytes)
    if frame._is_numbered:
        frame.total_order += 1
        frame.collection_order += 1
        write_integer(&numbers, frame.total_order)
        write_literal(&numbers, b',"data_collection_order":', 25)
        write_integer(&numbers, frame.collection_order)
    run.begin_row(
        op, key.data, key.size,
        opening.size + before.size + joint.size + after.size + frame._source.size + row.place_in_source.size
        + frame._behind_place.size + numbers.size + frame._behind_numbers.size + end.size,
    )
    run.add_part(opening.data, opening.size)
    run.add_part(before.data, before.size)
    run.add_part(joint.data, joint.size)
    run.add_part(after.data, after.size)
    run.add_part(frame._source.data, frame._source.size)
    run.add_part(row.place_in_source.data, row.place_in_source.size)
    run.add_part(frame._behind_place.data, frame._behind_place.size)
    run.add_part(numbers.data, numbers.size)
    run.add_part(frame._behind_numbers.data, frame._behind_numbers.size)
    run.add_part(end.data, end.size)
    return 0


cdef tuple _openings(names):
    return tuple([(b"," if nth else b"{") + name + b":" for nth, name in enumerate(names)])
