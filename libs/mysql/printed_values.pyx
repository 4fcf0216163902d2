# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""See ``printed_values.pxd``."""

from libc.float cimport FLT_MAX, LDBL_MANT_DIG
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from libs.events.run_rows cimport Bytes, reserve
from libs.formats.json_text cimport append, days_since_1970, write_integer, write_literal

from orjson import dumps

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, object overflow) except? -1.0

cdef enum:
    _LONGEST_DOUBLE = 32
    _LONGEST_UNSIGNED = 20
    _LONGEST_INTEGER = 24  # as JSON
    _LONGEST_TIMESTAMP = 40  # as JSON
    _SAFE_DIGITS = 18  # so many always fit into 64 bits
    _DATE_SIZE = 10  # 2021-05-17
    _CLOCK_SIZE = 8  # 07:22:42
    _FRACTION_DIGITS = 6
    _DAY_S = 86400

cdef uint64_t _MOST_EXACT = 1 << 53  # up to here every integer is a double
cdef double[19] _POWERS_OF_10 = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18
]


# --- numbers ------------------------------------------------------------------------------------------------------------

cdef bint is_integer(const uint8_t* text, Py_ssize_t size) noexcept:
    cdef bint is_negative = size > 0 and text[0] == b"-"
    cdef Py_ssize_t nth
    for nth in range(is_negative, size):
        if not 48 <= text[nth] <= 57:
            return False
    return size > is_negative


cdef bint read_unsigned(const uint8_t* text, Py_ssize_t size, uint64_t* number) noexcept:
    cdef uint64_t read = 0
    cdef Py_ssize_t nth
    if not 0 < size <= _LONGEST_UNSIGNED:
        return False
    for nth in range(size):
        if not 48 <= text[nth] <= 57:
            return False
        read = 10 * read + (text[nth] - 48)
    number[0] = read
    return True


cdef bint read_unscaled(const uint8_t* text, Py_ssize_t size, int64_t* unscaled) noexcept:
    cdef bint is_negative = size > 0 and text[0] == b"-"
    cdef bint has_point = False
    cdef int digits = 0
    cdef int64_t number = 0
    cdef Py_ssize_t nth
    for nth in range(is_negative, size):
        if 48 <= text[nth] <= 57:
            number = 10 * number + (text[nth] - 48)
            digits += 1
        elif text[nth] == b"." and not has_point:
            has_point = True
        else:
            return False
        if digits > _SAFE_DIGITS:
            return False
    unscaled[0] = -number if is_negative else number
    return digits > 0


cdef bint read_decimal(const uint8_t* text, Py_ssize_t size, int precision, int scale, int64_t* unscaled) noexcept:
    cdef Py_ssize_t nth
    cdef bint is_negative = size > 0 and text[0] == b"-"
    cdef int64_t number = 0
    cdef bint has_digit = False
    cdef int whole = 0
    cdef int fraction = -1  # digits after the point; -1: before it
    for nth in range(is_negative, size):
        if text[nth] == b"." and fraction < 0:
            fraction = 0
        elif 48 <= text[nth] <= 57:
            has_digit = True
            number = 10 * number + (text[nth] - 48)
            if fraction >= 0:
                fraction += 1
            elif number:  # zeros in front do not count
                whole += 1
        else:
            return False
        if whole + max(fraction, 0) > _SAFE_DIGITS:
            return False
    if not has_digit or max(fraction, 0) != scale or whole > precision - scale:
        return False
    unscaled[0] = -number if is_negative else number
    return True


cdef bint _divided(uint64_t digits, int fraction, double* quotient) noexcept:
    """The double nearest to ``digits`` / 10 ** ``fraction``. False: it takes more than a division to know it."""
    cdef long double longer
    cdef long double beside
    if digits <= _MOST_EXACT:
        # Both are doubles without a remainder, so their quotient is rounded once: it is the nearest (Clinger, 1990).
        quotient[0] = <double>digits / _POWERS_OF_10[fraction]
        return True
    if LDBL_MANT_DIG < 64:
        return False
    # The same with eleven bits more, in which every uint64_t has room; and then rounded once more, to a double. That is the
    # nearest too, unless the quotient seems to lie halfway between two doubles: the digits that were rounded away would
    # decide.
    longer = <long double>digits / <long double>_POWERS_OF_10[fraction]
    quotient[0] = <double>longer
    beside = longer + (longer - quotient[0])
    return longer == quotient[0] or <double>beside != beside


cdef bint _read_double(const uint8_t* text, Py_ssize_t size, double* number) except -1:
    cdef char[_LONGEST_DOUBLE] copied
    cdef char* end = NULL
    cdef Py_ssize_t nth
    cdef bint is_negative = size > 0 and text[0] == b"-"
    cdef uint64_t digits = 0
    cdef int whole = 0
    cdef int fraction = -1  # digits after the point; -1: before it
    if size >= _LONGEST_DOUBLE:
        return False
    for nth in range(is_negative, size):
        if 48 <= text[nth] <= 57:
            if whole + max(fraction, 0) < _SAFE_DIGITS:
                digits = 10 * digits + (text[nth] - 48)
            if fraction >= 0:
                fraction += 1
            else:
                whole += 1
        elif text[nth] == b"." and fraction < 0:
            fraction = 0
        else:
            return False
    fraction = max(fraction, 0)
    if whole + fraction == 0:
        return False
    if whole + fraction <= _SAFE_DIGITS and _divided(digits, fraction, number):
        if is_negative:
            number[0] = -number[0]
        return True
    memcpy(copied, text, size)
    copied[size] = 0
    number[0] = PyOS_string_to_double(copied, &end, None)
    return end == copied + size


cdef bint write_double(Bytes* out, const uint8_t* text, Py_ssize_t size) except -1:
    cdef double number
    if not _read_double(text, size, &number):
        return False
    append(out, <bytes>dumps(number))
    return True


cdef bint write_single(Bytes* out, const uint8_t* text, Py_ssize_t size) except -1:
    cdef double number
    if not _read_double(text, size, &number) or abs(number) > FLT_MAX:
        return False
    append(out, <bytes>dumps(<double><float>number))
    return True


cdef bint is_shortest_double(const uint8_t* text, Py_ssize_t size) noexcept:
    """MySQL's shortest digits are also orjson's where neither writes an exponent."""
    cdef Py_ssize_t begin = 1 if size and text[0] == 45 else 0
    cdef Py_ssize_t point = begin
    while point < size and 48 <= text[point] <= 57:
        point += 1
    if point == begin or point - begin > 15:
        return False
    if text[begin] == 48 and point - begin > 1:
        return False  # no JSON
    if point == size:
        return True
    cdef Py_ssize_t place = point + 1
    if text[point] != 46 or place == size:
        return False
    while place < size and 48 <= text[place] <= 57:
        place += 1
    # Below 0.001 the two differ in when they begin to write an exponent.
    return place == size and not (
        point - begin == 1 and text[begin] == 48 and size - point > 3
        and text[point + 1] == 48 and text[point + 2] == 48 and text[point + 3] == 48
    )


# --- dates and times ----------------------------------------------------------------------------------------------------

cdef inline int _two(const uint8_t* text) noexcept:
    """Two digits; far below 0 where they are none."""
    if 48 <= text[0] <= 57 and 48 <= text[1] <= 57:
        return 10 * (text[0] - 48) + (text[1] - 48)
    return -100_000


cdef Printed _read_date(const uint8_t* text, int64_t* days) noexcept:
    """Of ``_DATE_SIZE`` bytes."""
    cdef int year = 100 * _two(text) + _two(text + 2)
    cdef int month = _two(text + 5)
    cdef int day = _two(text + 8)
    if year < 0 or not 0 <= month <= 12 or not 0 <= day <= 31 or text[4] != b"-" or text[7] != b"-":
        return OTHER
    if month == 0 or day == 0:
        return ZERO
    days[0] = days_since_1970(year, month, day)
    return WRITTEN


cdef bint _read_clock_us(const uint8_t* text, Py_ssize_t size, int64_t* us) noexcept:
    """``12:34:56.789`` from ``text`` to its end; no hour above 23."""
    cdef int hour, minute, second
    if size < _CLOCK_SIZE or text[2] != b":" or text[5] != b":":
        return False
    hour, minute, second = _two(text), _two(text + 3), _two(text + 6)
    if not 0 <= hour <= 23 or not 0 <= minute <= 59 or not 0 <= second <= 59:
        return False
    us[0] = 1_000_000 * <int64_t>(3600 * hour + 60 * minute + second)
    return _add_fraction_us(text + _CLOCK_SIZE, size - _CLOCK_SIZE, us)


cdef bint _add_fraction_us(const uint8_t* text, Py_ssize_t size, int64_t* us) noexcept:
    """``.789``; nothing is none."""
    cdef int64_t fraction = 0
    cdef Py_ssize_t nth
    if size == 0:
        return True
    if text[0] != b"." or not 1 < size <= 1 + _FRACTION_DIGITS:
        return False
    for nth in range(1, 1 + _FRACTION_DIGITS):
        fraction *= 10
        if nth < size:
            if not 48 <= text[nth] <= 57:
                return False
            fraction += text[nth] - 48
    us[0] += fraction
    return True


cdef Printed _read_moment(const uint8_t* text, Py_ssize_t size, int64_t* days, int64_t* us) noexcept:
    """A date, a space and a clock time."""
    cdef Printed date
    if size <= _DATE_SIZE or text[_DATE_SIZE] != b" ":
        return OTHER
    date = _read_date(text, days)
    if date == OTHER or not _read_clock_us(text + _DATE_SIZE + 1, size - _DATE_SIZE - 1, us):
        return OTHER
    return date


cdef Printed write_date(Bytes* out, const uint8_t* text, Py_ssize_t size) except? OTHER:
    cdef int64_t days = 0
    cdef Printed date = _read_date(text, &days) if size == _DATE_SIZE else OTHER
    if date == WRITTEN:
        reserve(out, _LONGEST_INTEGER)
        write_integer(out, days)
    return date


cdef Printed write_datetime(Bytes* out, const uint8_t* text, Py_ssize_t size, int64_t units_per_s) except? OTHER:
    cdef int64_t days = 0
    cdef int64_t us = 0
    cdef Printed moment = _read_moment(text, size, &days, &us)
    if moment != WRITTEN:
        return moment
    reserve(out, _LONGEST_INTEGER)
    # The time of a day is never negative, so the division cuts down, before 1970 too.
    if units_per_s > 1_000_000:
        us *= units_per_s // 1_000_000
    else:
        us //= 1_000_000 // units_per_s
    write_integer(out, days * _DAY_S * units_per_s + us)
    return WRITTEN


cdef Printed write_utc_timestamp(Bytes* out, const uint8_t* text, Py_ssize_t size) except? OTHER:
    cdef int64_t days = 0
    cdef int64_t us = 0
    cdef Printed moment = _read_moment(text, size, &days, &us)
    if moment != WRITTEN:
        return moment
    reserve(out, _LONGEST_TIMESTAMP)
    write_literal(out, b'"', 1)
    write_literal(out, <const char*>text, size)
    out.data[out.size - size + _DATE_SIZE] = b"T"
    write_literal(out, b'Z"', 2)
    return WRITTEN


cdef bint read_time_us(const uint8_t* text, Py_ssize_t size, int64_t* us) noexcept:
    cdef bint is_negative = size > 0 and text[0] == b"-"
    cdef Py_ssize_t colon = is_negative
    cdef int64_t hours = 0
    cdef int minute, second
    while colon < size and 48 <= text[colon] <= 57 and colon - is_negative < 4:
        hours = 10 * hours + (text[colon] - 48)
        colon += 1
    if colon - is_negative < 2 or size < colon + 6 or text[colon] != b":" or text[colon + 3] != b":":
        return False
    minute, second = _two(text + colon + 1), _two(text + colon + 4)
    if not 0 <= minute <= 59 or not 0 <= second <= 59:
        return False
    us[0] = 1_000_000 * ((hours * 60 + minute) * 60 + second)
    if not _add_fraction_us(text + colon + 6, size - colon - 6, us):
        return False
    if is_negative:
        us[0] = -us[0]
    return True
