"""Oracle's storage formats, against ``DUMP``'s prints of known values."""

import math
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.oracle.internal_values import (
    DaySecondInterval,
    OracleTimestamp,
    YearMonthInterval,
    read_binary_double,
    read_binary_float,
    read_date,
    read_day_second,
    read_number,
    read_year_month,
    read_zoned_timestamp,
)
from libs.oracle.redo_values import UnreadableRedo


@pytest.mark.parametrize(
    ("dumped", "number"),
    [
        ([128], "0"),
        ([193, 2], "1"),
        ([193, 9], "8"),
        ([194, 2], "100"),
        ([194, 2, 24, 46], "123.45"),
        ([61, 100, 78, 56, 102], "-123.45"),
        ([62, 100, 102], "-1"),
        ([192, 51], "0.5"),
        ([63, 96, 102], "-0.05"),
        ([255, 11], "1E+125"),
        ([128, 2], "1E-130"),
        ([128, 92], "9.1E-129"),
        ([255, 101], "Infinity"),
        ([0], "-Infinity"),
    ],
)
def test_a_number_is_exact(dumped: list[int], number: str) -> None:
    assert read_number(bytes(dumped)) == Decimal(number)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**34), max_value=10**34))
def test_any_number_that_is_stored_is_read(number: Decimal) -> None:
    assert read_number(stored(number)) == number


def stored(number: Decimal) -> bytes:
    """The bytes that Oracle stores, by the manual's words: base 100, digits one too high, a negative number's turned around."""
    if number == 0:
        return b"\x80"
    digits = f"{number.copy_abs():f}"
    whole, _point, fraction = digits.partition(".")
    whole = whole.lstrip("0")
    whole = whole.zfill(len(whole) + len(whole) % 2)
    fraction = fraction.rstrip("0")
    fraction = fraction.ljust(len(fraction) + len(fraction) % 2, "0")
    pairs = [int((whole + fraction)[at : at + 2]) for at in range(0, len(whole + fraction), 2)]
    exponent = len(whole) // 2 - 1
    while pairs[0] == 0:
        pairs, exponent = pairs[1:], exponent - 1
    while pairs[-1] == 0:
        pairs = pairs[:-1]
    if number > 0:
        return bytes([193 + exponent, *(pair + 1 for pair in pairs)])
    return bytes([62 - exponent, *(101 - pair for pair in pairs), 102])


@pytest.mark.parametrize(
    ("dumped", "moment"),
    [
        ([120, 122, 3, 27, 13, 35, 57], OracleTimestamp(2022, 3, 27, 12, 34, 56)),
        ([119, 199, 12, 31, 24, 60, 60, 59, 154, 201, 255], OracleTimestamp(1999, 12, 31, 23, 59, 59, 999_999_999)),
        ([53, 88, 1, 1, 1, 1, 1], OracleTimestamp(-4711, 1, 1, 0, 0, 0)),
        ([199, 199, 12, 31, 1, 1, 1], OracleTimestamp(9999, 12, 31, 0, 0, 0)),
    ],
)
def test_a_date_has_its_century_and_year_apart(dumped: list[int], moment: OracleTimestamp) -> None:
    assert read_date(bytes(dumped)) == moment


def test_a_zoned_timestamp_is_stored_in_utc() -> None:
    stored_bytes = bytes([120, 122, 3, 27, 11, 35, 57, 0, 0, 0, 0, 22, 90])

    assert read_zoned_timestamp(stored_bytes) == (OracleTimestamp(2022, 3, 27, 10, 34, 56), 150)


def test_a_region_is_no_offset() -> None:
    with pytest.raises(UnreadableRedo, match="not the number of a region at character 11"):
        read_zoned_timestamp(bytes([120, 122, 3, 27, 11, 35, 57, 0, 0, 0, 0, 0x81, 60]))


def test_intervals_have_a_sign() -> None:
    assert read_year_month(bytes([128, 0, 0, 3, 66])) == YearMonthInterval(42)
    assert read_year_month(bytes([127, 255, 255, 253, 54])) == YearMonthInterval(-42)
    assert read_day_second(bytes([128, 0, 0, 1, 62, 63, 64, 157, 205, 101, 0])) == DaySecondInterval(93_784_500_000_000)


@given(st.floats(allow_nan=False), st.floats(allow_nan=False, width=32))
def test_binary_numbers_keep_every_bit(double: float, single: float) -> None:
    assert read_binary_double(turned(struct.pack(">d", double))) == double
    assert read_binary_float(turned(struct.pack(">f", single))) == single
    assert math.isnan(read_binary_double(turned(struct.pack(">d", math.nan))))


def turned(bits: bytes) -> bytes:
    return bytes(byte ^ 0xFF for byte in bits) if bits[0] & 0x80 else bytes([bits[0] | 0x80]) + bits[1:]


@pytest.mark.parametrize("read", [read_number, read_date, read_zoned_timestamp, read_year_month, read_day_second])
@pytest.mark.parametrize("data", [b"", b"\xc1", b"\xc1\x00\x00", bytes(7)])
def test_other_bytes_are_refused(read: object, data: bytes) -> None:
    with pytest.raises(UnreadableRedo):
        read(data)  # type: ignore[operator]
