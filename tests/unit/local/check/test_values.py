"""Canonical values, from MySQL's text and from Arrow."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from libs.local.check.values import from_arrow, from_mysql_text

PAIRS = [
    ("bigint", "18446744073709551615", pa.decimal128(20, 0), Decimal("18446744073709551615")),
    ("tinyint", "-1", pa.int32(), -1),
    ("decimal", "-0.50", pa.decimal128(12, 2), Decimal("-0.50")),
    ("float", "0.10000000149011612", pa.float32(), 0.1),
    ("double", "1e-300", pa.float64(), 1e-300),
    ("varchar", "Ⅻ 😀", pa.string(), "Ⅻ 😀"),
    ("binary", b"a\x00\x00", pa.large_binary(), b"a\x00\x00"),
    ("date", "1969-12-31", pa.date32(), datetime.date(1969, 12, 31)),
    ("time", "-838:59:58.000001", pa.int64(), -3020398000001),
    ("datetime", "2024-02-29 23:59:59.000001", pa.timestamp("us"), datetime.datetime(2024, 2, 29, 23, 59, 59, 1)),
    (
        "timestamp",
        "2024-01-01 00:00:00.250",
        pa.timestamp("us", "UTC"),
        datetime.datetime(2024, 1, 1, 0, 0, 0, 250_000, tzinfo=datetime.UTC),
    ),
    ("json", '{"a": [1, 2.5, null], "b": "ß"}', pa.string(), '{"b":"ß","a":[1,2.5,null]}'),
    ("enum", "ünïque", pa.string(), "ünïque"),
    ("year", "2024", pa.int32(), 2024),
    ("bit", "5", pa.binary(), b"\x05\x00"),
]


@pytest.mark.parametrize(("data_type", "text", "arrow_type", "stored"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_both_ways_lead_to_one_value(data_type: str, text: Any, arrow_type: pa.DataType, stored: Any) -> None:
    """What MySQL prints and what the warehouse holds for it are equal."""
    to_canonical = from_mysql_text(data_type)
    of_arrow = from_arrow(data_type, arrow_type)
    value = pa.array([stored], arrow_type).to_pylist()[0]

    left = text if to_canonical is None else to_canonical(text)
    right = value if of_arrow is None else of_arrow(value)

    assert left == right


@pytest.mark.parametrize(
    ("data_type", "text", "arrow_type", "stored"),
    [
        ("bigint", "18446744073709551615", pa.int64(), -1),
        ("double", "0.1", pa.float64(), 0.1000000149011612),
        ("binary", b"a\x00", pa.binary(), b"a"),
        ("varchar", "a ", pa.string(), "a"),
        ("datetime", "2024-01-01 00:00:00.000001", pa.timestamp("us"), datetime.datetime(2024, 1, 1)),
        ("json", '{"a": 1}', pa.string(), '{"a": "1"}'),
        ("time", "24:00:00", pa.int64(), 0),
    ],
)
def test_near_values_stay_apart(data_type: str, text: Any, arrow_type: pa.DataType, stored: Any) -> None:
    """A wrapped BIGINT, a float's digits, lost zeros, spaces and microseconds are differences."""
    to_canonical = from_mysql_text(data_type)
    of_arrow = from_arrow(data_type, arrow_type)

    left = text if to_canonical is None else to_canonical(text)
    right = stored if of_arrow is None else of_arrow(stored)

    assert left != right


def test_a_column_of_another_type_is_refused() -> None:
    """A DATE in a text column is a fault of the sink, not something to convert."""
    with pytest.raises(TypeError, match="date"):
        from_arrow("date", pa.string())
