"""Documents as VARIANT: all that one says is there again, or it is refused."""

import json
import math
from decimal import Context, Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as sf

from libs.mysql.logical import column
from libs.types.table import TableSchema
from libs.warehouse.json_variants import with_variants
from spark.jvm.errors import MALFORMED_RECORD, described, has_condition
from spark.transforms.local_rows import local_rows
from spark.transforms.parsed_variant import parsed_variant
from spark.transforms.unfit_values import UNFIT_COLUMN, find_unfit
from spark.transforms.warehouse_columns import TableColumn
from tests.spark_session import SharedSpark
from tests.unit.spark.events import ORDERS, Change, delivered, events

HELD = (
    *("null", "true", "false", '""', "{}", "[]", "0", "-0.0", "127", "-128", "2147483648", "9223372036854775807"),
    *("-9223372036854775808", "18446744073709551615", "1" * 38, f"-0.{'1' * 38}", "1.50", f"12345678901.{'0' * 30}"),
    # Doubles as MySQL prints them: fewer digits than Java does, and more.
    *("1e300", "5e-324", "1.7976931348623157e308", "2.2250738585072014e-308", "5.684341886080802e-14", "1e20", "0e0"),
    *('"2024-01-02 03:04:05.000006"', '"base64:type15:AAEC"', '"\\ud83d\\ude00\\u0000\\n\\"\\\\/"', '{"é\\"": {"": [[], {}]}}'),
    '{"b": 1, "a": [true, null, "x"], "aa": 2}',
    "[" * 100 + "1" + "]" * 100,
    json.dumps("x" * 21_000_000),
)  # fmt: skip
REFUSED = (
    *("1" * 39, f"0.{'1' * 39}", "1" * 1_500, "1e400", "1e-400", "-1e99999999999", "1.23456789012345678901e300"),
    *('{"a": [1, {"b": %s1}]}' % ("3" * 40), '{"a": 1, "a": 2}'),
    *("", "{", "1 2", "{} {}", "NaN", "'x'", "nothing", '{"a": 1,}'),
)  # fmt: skip


def texts_of(shared: SharedSpark, documents: list[str | None], *, is_strict: bool) -> list[str | None]:
    """Spark's prints of them."""
    rows = local_rows(shared.session, list(enumerate(documents)), "id int, doc string")
    parsed = rows.select("id", sf.to_json(parsed_variant(sf.col("doc"), is_strict=is_strict)).alias("text"))
    return [row.text for row in parsed.orderBy("id").collect()]


EXACT = Context(prec=2_000)


def document(text: str | None) -> object:
    return None if text is None else (json.loads(text, parse_float=Decimal),)


def as_double(text: str) -> object:
    return (json.loads(text),)


def test_what_a_variant_holds_is_there_again(shared: SharedSpark) -> None:
    """Each number by its value: the digits, or the double that they are the text of."""
    found = texts_of(shared, [*HELD, None], is_strict=True)

    assert found.pop() is None
    for told, text in zip(HELD, found, strict=True):
        assert text is not None
        assert document(text) == document(told) or ("e" in told and as_double(text) == as_double(told)), told[:60]


def test_what_it_does_not_hold_is_refused(shared: SharedSpark) -> None:
    """By the condition of a row that cannot be read; its text is nowhere in the error."""
    assert texts_of(shared, list(REFUSED), is_strict=False) == [None] * len(REFUSED)
    for told in ("1" * 39, '{"a": 1, "a": 2}', "{"):
        with pytest.raises(Exception) as failed:
            texts_of(shared, [told], is_strict=True)
        assert has_condition(failed.value, MALFORMED_RECORD)
        assert told not in described(failed.value)
        assert told not in str(failed.value)


NUMBERS = st.one_of(
    st.integers(-(10**45), 10**45).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=None).map(lambda number: f"{number:f}"),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.tuples(st.integers(-(10**20), 10**20), st.integers(-400, 400)).map(lambda parts: f"{parts[0]}e{parts[1]}"),
)


@settings(
    max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(st.lists(NUMBERS, min_size=50, max_size=50))
def test_no_number_becomes_another(shared: SharedSpark, numbers: list[str]) -> None:
    """Property: it is the given number, or the double of which the given text is less than one unit of its last digit away, or
    refused; and refused is none that a decimal of 38 digits or a double holds."""
    for told, text in zip(numbers, texts_of(shared, list(numbers), is_strict=False), strict=True):
        exact, double = Decimal(told), float(told)
        unit = Decimal((0, (1,), int(exact.normalize(EXACT).as_tuple().exponent)))
        is_double = math.isfinite(double) and abs(EXACT.subtract(Decimal(double), exact)) < unit
        if text is None:
            assert not is_double
            assert "e" in told or len(exact.as_tuple().digits) > 38 or int(exact.as_tuple().exponent) < -38
        elif Decimal(text) != exact:
            assert is_double
            assert float(text) == double


SCHEMA = with_variants(
    TableSchema(
        table_id=ORDERS,
        columns=(
            column("id", "int", is_optional=False),
            column("doc", "json"),
            column("note", "text", charset="utf8mb4"),
        ),
        key=("id",),
        version=1,
    ),
    [".*"],
)


def test_a_document_that_does_not_fit_is_found(shared: SharedSpark) -> None:
    """Its column is named, with any values in the others."""
    schema = delivered("acme", SCHEMA)
    columns = {"id": TableColumn("int"), "doc": TableColumn("variant"), "note": TableColumn("string")}
    documents = ['{"a": 1}', None, "null", "9" * 39, "{", '"text"']
    changes = [
        Change("c", rank, after={"id": rank, "doc": told, "note": "9" * 39}) for rank, told in enumerate(documents)
    ]

    found = events(shared.session, schema.topic, changes).transform(find_unfit(columns, SCHEMA))

    rows = sorted(found.collect(), key=lambda row: row["order"])
    assert [row[UNFIT_COLUMN] for row in rows] == [None, None, None, ["doc"], ["doc"], None]
