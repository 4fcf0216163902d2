"""Canonical values, from MySQL's text and from Arrow."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from libs.check.values import from_arrow, from_mysql_text

PAIRS = [
    ("bigint", "18446744073709551615", pa.decimal128(20, 0), Decimal("18446744073709551615")),
    ("tinyint", "-1", pa.int32(), -1),
    ("decimal", "-0.50", pa.decimal128(12, 2), Decimal("-0.50")),
    (
        "decimal",
        "-1" + "0" * 34 + ".000000000000000000000000000001",
        pa.string(),
        "-1" + "0" * 34 + "." + "0" * 29 + "1",
    ),
    ("decimal", "9999999999.99", pa.float64(), 9999999999.99),
    ("float", "0.10000000149011612", pa.float32(), 0.1),
    ("float", "1.100000023841858", pa.float64(), 1.1),
    ("double", "1e-300", pa.float64(), 1e-300),
    ("varchar", "Ⅻ 😀", pa.string(), "Ⅻ 😀"),
    ("binary", b"a\x00\x00", pa.large_binary(), b"a\x00\x00"),
    ("date", "1969-12-31", pa.date32(), datetime.date(1969, 12, 31)),
    ("date", "2023-02-31", pa.date32(), datetime.date(2023, 3, 3)),
    ("time", "-838:59:58.000001", pa.int64(), -3020398000001),
    ("datetime", "2024-02-29 23:59:59.000001", pa.timestamp("us"), datetime.datetime(2024, 2, 29, 23, 59, 59, 1)),
    (
        "timestamp",
        "2024-01-01 00:00:00.250",
        pa.timestamp("us", "UTC"),
        datetime.datetime(2024, 1, 1, 0, 0, 0, 250_000, tzinfo=datetime.UTC),
    ),
    ("json", '{"a": [1, 2.5, null], "b": "ß"}', pa.string(), '{"b":"ß","a":[1,2.5,null]}'),
    ("json", "null", pa.string(), "null"),
    ("enum", "ünïque", pa.string(), "ünïque"),
    ("year", "2024", pa.int32(), 2024),
    ("bit", "5", pa.binary(), b"\x05\x00"),
]


@pytest.mark.parametrize(
    ("data_type", "text", "arrow_type", "stored"), PAIRS, ids=[f"{pair[0]} {pair[2]}" for pair in PAIRS]
)
def test_both_ways_lead_to_one_value(data_type: str, text: Any, arrow_type: pa.DataType, stored: Any) -> None:
    """MySQL's printed value and the warehouse's stored one are equal."""
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
        ("json", '{"a": [1, 0]}', pa.string(), '{"a": [true, 0]}'),
        ("json", "0", pa.string(), "false"),
        ("time", "24:00:00", pa.int64(), 0),
        ("decimal", "0.12345678901234567", pa.float64(), 0.12345678901234567),
    ],
)
def test_near_values_stay_apart(data_type: str, text: Any, arrow_type: pa.DataType, stored: Any) -> None:
    """A wrapped BIGINT, a float's digits, lost zeros, spaces and microseconds are differences."""
    to_canonical = from_mysql_text(data_type)
    of_arrow = from_arrow(data_type, arrow_type)

    left = text if to_canonical is None else to_canonical(text)
    right = stored if of_arrow is None else of_arrow(stored)

    assert left != right


@pytest.mark.parametrize(
    ("data_type", "text", "epoch"),
    [
        ("date", "0000-00-00", datetime.date(1970, 1, 1)),
        ("date", "2024-00-10", datetime.date(1970, 1, 1)),
        ("datetime", "2024-01-00 10:00:00", datetime.datetime(1970, 1, 1)),
        ("timestamp", "0000-00-00 00:00:00.000000", datetime.datetime(1970, 1, 1)),
    ],
)
def test_a_date_that_is_none_is_null_or_the_epoch(data_type: str, text: str, epoch: object) -> None:
    """As the readers have it, by whether the column may be NULL."""
    optional, required = (from_mysql_text(data_type, is_optional=answer) for answer in (True, False))

    assert optional is not None
    assert required is not None
    assert (optional(text), required(text)) == (None, epoch)


def test_a_document_that_is_null_is_not_null() -> None:
    """It is a value; a person sees it as it is written."""
    to_canonical = from_mysql_text("json")

    assert to_canonical is not None
    assert to_canonical("null") is not None
    assert repr(to_canonical("null")) == "null"


def test_a_column_of_another_type_is_refused() -> None:
    """A DATE in a text column is a fault of the sink, not something to convert."""
    with pytest.raises(TypeError, match="date"):
        from_arrow("date", pa.string())
