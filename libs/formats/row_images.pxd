"""Rows on their way to events, for the compiled decoders of every source: the images of a row and its key, and the envelope
around them."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from libs.events.run_rows cimport Bytes, RunRows, reserve


cdef enum:
    ENVELOPE_BYTES = 500  # of an event beside its images, roughly


cdef struct Text:
    const char* data
    Py_ssize_t size


cdef inline Text text_of(bytes held):
    """Points into ``held``, which has to be kept."""
    return Text(PyBytes_AS_STRING(held), PyBytes_GET_SIZE(held))


cdef class EventFrame:
    """What the values of a run's events have around their images."""

    cdef object held
    """What the texts point into."""
    cdef Text _source, _behind_place, _behind_numbers
    cdef Text[4] _ends
    cdef bint _is_numbered
    cdef public int64_t total_order
    """Of the transaction's last event; counted only where events carry the transaction block."""
    cdef public int64_t collection_order
    """Of the transaction's last event in this table."""


cdef struct Cell:
    Text opening  # ``,"name":``
    Py_ssize_t json_begin  # in the images
    Py_ssize_t json_end
    bint is_key


cdef struct KeyCell:
    Text opening
    int column


cdef class RowImages:
    """The images of one row at a time, of one table version.

    For each row: ``begin_row``; for each image, ``begin_cell``, the cell's JSON, ``end_cell`` for each column, ``end_image``;
    the row's ``place_in_source``, where the source's events have one; ``add``.
    """

    cdef Bytes images
    """The image before, if there is one, and the image after."""
    cdef Bytes key
    cdef Bytes old_key
    cdef Bytes place_in_source
    """What stands in this row's source block between the frame's ``source`` and ``behind_place``."""
    cdef int column_count
    cdef Cell* cells
    cdef tuple _openings, _key_openings
    cdef KeyCell* _key_cells
    cdef int _key_count
    cdef int lacking
    """A column of the row after of which neither image holds the value; -1: there is none."""

    cdef inline void begin_row(self) noexcept:
        self.images.size = 0
        self.lacking = -1

    cdef inline int copy_cell(self, Py_ssize_t begin, Py_ssize_t end) except -1:
        """Write what stands at that place of the images once more."""
        reserve(&self.images, end - begin)
        memcpy(self.images.data + self.images.size, self.images.data + begin, end - begin)
        self.images.size += end - begin
        return 0

    cdef inline bint has_new_key(self) noexcept:
        """Whether the two images at hand have different keys: the row after is a new row to whoever reads the events."""
        return self.key.size != self.old_key.size or (
            self.key.size > 0 and memcmp(self.key.data, self.old_key.data, self.key.size) != 0
        )

    cdef inline int begin_cell(self, int index, Py_ssize_t room) except -1:
        """Write ``,"name":``; the cell's JSON is to follow in ``images``, which has ``room`` for it."""
        cdef Cell* cell = &self.cells[index]
        reserve(&self.images, cell.opening.size + room)
        memcpy(self.images.data + self.images.size, cell.opening.data, cell.opening.size)
        self.images.size += cell.opening.size
        cell.json_begin = self.images.size
        return 0

    cdef inline void end_cell(self, int index) noexcept:
        self.cells[index].json_end = self.images.size

    cdef int end_image(self) except -1
    """Close the image, and write its key; the key before becomes ``old_key``."""

    cdef int add(
        self, RunRows run, EventFrame frame, uint8_t op, Py_ssize_t before_size, bint has_before, bint has_after
    ) except -1
    """One event of the images at hand: the first ``before_size`` bytes are the row before, the rest the row after. An update
    whose key changed becomes two, as Debezium writes it: delete of the old key, create of the new. Returns how many."""
