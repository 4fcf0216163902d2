"""What other compiled modules may call of ``run_rows``."""

from libc.string cimport memcpy


cdef struct Bytes:
    char* data
    Py_ssize_t size
    Py_ssize_t capacity


cdef int grow(Bytes* bytes_, Py_ssize_t needed) except -1


cdef inline int reserve(Bytes* bytes_, Py_ssize_t needed) except -1:
    """Room for ``needed`` bytes more."""
    if bytes_.capacity - bytes_.size < needed:
        grow(bytes_, needed)
    return 0


cdef class RunRows:
    cdef Bytes _ops
    cdef Bytes _keys
    cdef Bytes _values

    cdef int begin_row(
        self, unsigned char op, const char* key, Py_ssize_t key_size, Py_ssize_t value_size
    ) except -1
    """A row whose value follows by ``add_part``: exactly ``value_size`` bytes of it."""

    cdef inline void add_part(self, const char* part, Py_ssize_t size) noexcept:
        memcpy(self._values.data + self._values.size, part, size)
        self._values.size += size

    cdef inline Py_ssize_t value_bytes(self) noexcept:
        return self._values.size
