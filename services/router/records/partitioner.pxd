from libc.stdint cimport uint32_t


cdef uint32_t hash_of(const char* key, Py_ssize_t size) noexcept nogil
cdef Py_ssize_t partition_of(const char* key, Py_ssize_t size, Py_ssize_t count) noexcept nogil
