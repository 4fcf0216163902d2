"""The short way of a copied value gives the very bytes that the long way gives."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from libs.oracle.logical import column
from libs.oracle.printed_values import driver_reader
from libs.oracle.values import json_writer
from libs.types.table import Column
from services.logminer_reader.copied_cells import cell_writer
from tests.marks import examples

fractions = st.one_of(st.just(""), st.integers(0, 999_999_999).map(lambda number: f".{number:09}"))
zeros = st.sampled_from(["0", "-0", "00", "007", "-5", ".5", "-.5", "1E+20", "12345678901234567890", "", " 1", "٣"])


def both(of: Column, value: Any) -> tuple[Any, Any]:
    """Short and long way; an error's type where there is one."""
    read, write = driver_reader(of), json_writer(of)
    found: list[Any] = []
    for way in (cell_writer(of), lambda each: write(read(each))):
        try:
            found.append(way(value))
        except (ValueError, TypeError, ArithmeticError) as error:
            found.append(type(error))
    return found[0], found[1]


@settings(max_examples=examples(200), deadline=None)
@given(
    st.sampled_from(["NUMBER(2)", "NUMBER(4)", "NUMBER(9)", "NUMBER(18)"]),
    st.one_of(st.none(), st.integers(-(10**20), 10**20).map(str), st.integers(-99, 99).map(str), zeros),
)
def test_integers(source_type: str, value: str | None) -> None:
    short, long = both(column("C", source_type), value)
    assert short == long


@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from(["DATE", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)"]),
    st.one_of(
        st.none(), st.tuples(st.datetimes(), fractions).map(lambda both: f" {both[0]:%Y-%m-%d %H:%M:%S}{both[1]}")
    ),
)
def test_moments(source_type: str, value: str | None) -> None:
    short, long = both(column("C", source_type), value)
    assert short == long


@pytest.mark.parametrize(
    "value",
    [
        " 1969-12-31 23:59:59.999999999",
        "-4712-01-01 00:00:00",
        " 0001-01-01 00:00:00",
        " 9999-12-31 23:59:59.5",
        " 2024",
    ],
)
@pytest.mark.parametrize("source_type", ["DATE", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)"])
def test_moments_at_the_ends(source_type: str, value: str) -> None:
    short, long = both(column("C", source_type), value)
    assert short == long


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts(value: str | None) -> None:
    short, long = both(column("C", "VARCHAR2(100)"), value)
    assert short == long
