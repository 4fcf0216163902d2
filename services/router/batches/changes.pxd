cdef struct Span:
    Py_ssize_t begin
    Py_ssize_t size


cdef class Run:
    cdef bytes _payload
    cdef const char* data  # the payload's
    cdef Span* key_spans
    cdef Span* value_spans
    cdef Py_ssize_t count
    cdef readonly str database
    cdef readonly str table
    cdef readonly unsigned int schema_version
    cdef readonly str transaction_id
    cdef readonly unsigned int epoch
    cdef readonly str rank
    cdef readonly unsigned long long first_tx_ordinal
    cdef readonly long long committed_at_us
    cdef readonly bint is_snapshot
    cdef readonly bytes ops
    cdef readonly tuple for_tenants
    cdef readonly Py_ssize_t largest_key
    cdef readonly Py_ssize_t largest_value
    cdef int _read(self, Py_ssize_t begin, Py_ssize_t end) except -1
    cdef str _text(self, Py_ssize_t begin, Py_ssize_t end)
    cdef list _pieces(self, Span* spans)
