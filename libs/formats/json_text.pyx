# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""See ``json_text.pxd``. JSON is written as orjson writes it, byte for byte, so that rows from either are equal."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from libs.events.run_rows cimport Bytes, reserve

cdef enum:
    _LONGEST_ESCAPE = 6
    _ESCAPED_AT_ONCE = 4096


cdef void write_integer(Bytes* out, int64_t number) noexcept:
    if number < 0:
        out.data[out.size] = b"-"
        out.size += 1
        write_unsigned(out, 0 - <uint64_t>number)
    else:
        write_unsigned(out, <uint64_t>number)


cdef void write_unsigned(Bytes* out, uint64_t number) noexcept:
    cdef char[20] digits
    cdef int begin = 20
    while True:
        begin -= 1
        digits[begin] = <char>(48 + number % 10)
        number //= 10
        if number == 0:
            break
    memcpy(out.data + out.size, digits + begin, 20 - begin)
    out.size += 20 - begin


cdef const char* _HEX = b"0123456789abcdef"


cdef bint _write_escaped(Bytes* out, const uint8_t* cell, Py_ssize_t size) noexcept:
    """The inside of a JSON string, with orjson's escapes. False: there was a byte beyond ASCII; all were written as they are."""
    cdef char* to = out.data + out.size
    cdef Py_ssize_t place = 0
    cdef uint64_t word = 0
    cdef uint64_t odd
    cdef uint8_t seen = 0
    cdef uint8_t byte
    while place < size:
        if size - place >= 8:
            # Eight at once, as most are plain: the high bits of ``odd`` mark bytes below a space, quotes and backslashes.
            memcpy(&word, cell + place, 8)
            odd = (
                ((word - 0x2020202020202020ULL) & ~word)
                | ((word ^ 0x2222222222222222ULL) - 0x0101010101010101ULL) & ~(word ^ 0x2222222222222222ULL)
                | ((word ^ 0x5C5C5C5C5C5C5C5CULL) - 0x0101010101010101ULL) & ~(word ^ 0x5C5C5C5C5C5C5C5CULL)
            ) & 0x8080808080808080ULL
            if not odd:
                memcpy(to, cell + place, 8)
                to += 8
                place += 8
                seen |= (word & 0x8080808080808080ULL) != 0
                continue
        byte = cell[place]
        place += 1
        seen |= byte >> 7
        if byte >= 0x20 and byte != 0x22 and byte != 0x5C:
            to[0] = <char>byte
            to += 1
            continue
        to[0] = b"\\"
        if byte == 0x22 or byte == 0x5C:
            to[1] = <char>byte
        elif byte == 0x0A:
            to[1] = b"n"
        elif byte == 0x0D:
            to[1] = b"r"
        elif byte == 0x09:
            to[1] = b"t"
        elif byte == 0x08:
            to[1] = b"b"
        elif byte == 0x0C:
            to[1] = b"f"
        else:
            memcpy(to + 1, b"u00", 3)
            to[4] = _HEX[byte >> 4]
            to[5] = _HEX[byte & 15]
            to += 4
        to += 2
    out.size = to - out.data
    return not seen


cdef bint write_text(Bytes* out, const uint8_t* cell, Py_ssize_t size) except -1:
    cdef bint is_ascii = True
    cdef Py_ssize_t place = 0
    cdef Py_ssize_t part
    reserve(out, 2)
    write_literal(out, b'"', 1)
    while place < size:
        part = min(size - place, <Py_ssize_t>_ESCAPED_AT_ONCE)
        reserve(out, _LONGEST_ESCAPE * part + 1)
        is_ascii &= _write_escaped(out, cell + place, part)
        place += part
    write_literal(out, b'"', 1)
    return is_ascii


cdef const char* _BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef int write_base64(Bytes* out, const uint8_t* cell, Py_ssize_t size) except -1:
    reserve(out, 4 * (size // 3 + 1) + 2)
    cdef char* to = out.data + out.size
    cdef Py_ssize_t place = 0
    cdef uint32_t three
    to[0] = b'"'
    to += 1
    while size - place >= 3:
        three = cell[place] << 16 | cell[place + 1] << 8 | cell[place + 2]
        to[0] = _BASE64[three >> 18]
        to[1] = _BASE64[three >> 12 & 63]
        to[2] = _BASE64[three >> 6 & 63]
        to[3] = _BASE64[three & 63]
        to += 4
        place += 3
    if size > place:
        three = cell[place] << 16 | (cell[place + 1] << 8 if size - place == 2 else 0)
        to[0] = _BASE64[three >> 18]
        to[1] = _BASE64[three >> 12 & 63]
        to[2] = _BASE64[three >> 6 & 63] if size - place == 2 else b"="
        to[3] = b"="
        to += 4
    to[0] = b'"'
    out.size = to + 1 - out.data
    return 0


cdef int write_unscaled(Bytes* out, int64_t unscaled) except -1:
    cdef uint8_t[8] stored
    cdef int size = 1
    cdef int index
    while size < 8 and not -(<int64_t>1 << (8 * size - 1)) <= unscaled < <int64_t>1 << (8 * size - 1):
        size += 1
    for index in range(size):
        stored[index] = <uint8_t>(unscaled >> 8 * (size - 1 - index) & 0xFF)
    return write_base64(out, stored, size)


cdef int64_t days_since_1970(int64_t year, int64_t month, int64_t day) noexcept:
    cdef int64_t shifted = year - (month <= 2)
    cdef int64_t era = floor_divided(shifted, 400)
    cdef int64_t year_of_era = shifted - era * 400
    cdef int64_t day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    cdef int64_t day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * 146097 + day_of_era - 719468
