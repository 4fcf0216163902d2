"""What other compiled modules may read of ``packets``."""


cdef struct Place:
    Py_ssize_t begin
    Py_ssize_t end


cdef class Packets:
    cdef readonly bytes data
    cdef Place* places
    cdef Py_ssize_t count
    cdef Py_ssize_t _capacity

    cdef int add(self, Py_ssize_t begin, Py_ssize_t end) except -1
