"""Protobuf's wire form, read in place (Protocol Buffers, "Encoding"); for compiled modules."""

from libc.stdint cimport uint8_t, uint64_t

cdef enum:
    VARINT = 0
    FIXED64 = 1
    LENGTH_DELIMITED = 2
    FIXED32 = 5


cdef struct Cursor:
    const uint8_t* data
    Py_ssize_t place
    Py_ssize_t end


cdef struct Field:
    int number
    int wire_type
    uint64_t value  # of a VARINT
    Py_ssize_t begin  # of a LENGTH_DELIMITED, within the cursor's data
    Py_ssize_t end


cdef inline int read_varint(Cursor* cursor, uint64_t* number) except -1:
    cdef uint64_t read = 0
    cdef int shift = 0
    cdef uint8_t byte
    while cursor.place < cursor.end:
        byte = cursor.data[cursor.place]
        cursor.place += 1
        if shift < 64:
            read |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            number[0] = read
            return 0
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than ten bytes")
    raise ValueError("it ends in the middle of a number")


cdef inline int read_field(Cursor* cursor, Field* field) except -1:
    """The next field; the cursor stands behind it afterwards. Raises ValueError where it is none, or reaches too far."""
    cdef uint64_t tag = 0
    cdef uint64_t size = 0
    read_varint(cursor, &tag)
    if tag >> 3 == 0 or tag >> 3 > 0x1FFFFFFF:
        raise ValueError("a field has a number that no field may have")
    field.number = <int>(tag >> 3)
    field.wire_type = <int>(tag & 7)
    field.value = 0
    field.begin = field.end = cursor.place
    if field.wire_type == VARINT:
        read_varint(cursor, &field.value)
        return 0
    if field.wire_type == LENGTH_DELIMITED:
        read_varint(cursor, &size)
    elif field.wire_type == FIXED64:
        size = 8
    elif field.wire_type == FIXED32:
        size = 4
    else:
        raise ValueError("a field has a type that no field has")
    if size > <uint64_t>(cursor.end - cursor.place):
        raise ValueError("a field reaches beyond its message")
    field.begin = cursor.place
    field.end = cursor.place = cursor.place + <Py_ssize_t>size
    return 0


cdef inline int require(Field* field, int wire_type) except -1:
    """A known field has its type. (Protobuf would pass over it; here it is a sign of damage.)"""
    if field.wire_type != wire_type:
        raise ValueError("a field is not of its type")
    return 0
