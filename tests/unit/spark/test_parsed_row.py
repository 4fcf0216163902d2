"""Rows read from bytes are those that Spark's ``from_json`` reads, or fail as there, but for cases that the module names."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from spark.jvm.errors import MALFORMED_RECORD, has_condition
from spark.transforms.local_rows import local_rows
from spark.transforms.parse_events import parse_events
from spark.transforms.parsed_row import parsed_row
from spark.transforms.unfit_values import UNFIT_COLUMN, find_unfit
from spark.transforms.warehouse_columns import TableColumn
from tests.spark_session import SharedSpark
from tests.unit.spark.events import Change, events, orders_schema

TYPE = (
    "tiny tinyint, small smallint, whole int, big bigint, single float, real double, text string, bytes binary, is_so boolean, "
    "number decimal(38,10), at timestamp, `a.b c` string, part struct<x: double, wkb: binary, name: string>"
)
PLAIN = "is_so boolean, whole int, big bigint, single float, real double, `a.b c` string, text string, bytes binary"
"""Types whose values are taken as they come; of others Spark's own reader is asked."""
TEXTS = st.text(max_size=40)
WHOLE = st.integers(-(2**63), 2**63 - 1)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "tiny": st.none() | st.integers(-128, 127),
        "small": st.integers(-(2**15), 2**15 - 1),
        "whole": st.none() | st.integers(-(2**31), 2**31 - 1),
        "big": WHOLE,
        "single": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "real": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "text": st.none() | TEXTS,
        "bytes": st.sampled_from(["", "AA==", "+/8=", "AAEC"]),
        "is_so": st.booleans(),
        "number": st.none() | st.integers(-(10**27), 10**27),
        "at": st.sampled_from(["2026-11-21T05:29:36.114628Z", "1999-12-31T23:59:59+02:00", None]),
        "a.b c": TEXTS,
        "part": st.none() | st.fixed_dictionaries({"x": st.floats(-1e9, 1e9), "wkb": st.just("AQ=="), "name": TEXTS}),
        "unknown": st.recursive(
            st.none() | st.booleans() | TEXTS, lambda inner: st.lists(inner, max_size=3), max_leaves=5
        ),
    },
)
ODD = (
    *("", "null", "{", "not an event", '{"whole":1', '{"whole":1}}', "[]", '[{"whole":1}]', '"x"', "7"),
    *("{'whole':1}", '{"whole":1,}', '{"whole":01}', '{"whole":1 "big":2}', '{"text":"a\nb"}', '{"text":"\\x"}'),
    *('{"whole":"1"}', '{"whole":1.5}', '{"whole":2147483648}', '{"tiny":128}', '{"big":9223372036854775808}'),
    *('{"whole":1} {}', '{"is_so":1}', '{"real":"x"}', '{"bytes":7}', '{"at":"yesterday"}', '{"part":[1]}', '{"whole":NaN}',),
    '{"number":"x"}', '{"whole":1,"whole":2}', '{"whole":1,"whole":null}', '{"bytes":"_"}', '{"text":"a"', '{"real":1e999}',
    '{"real":7,"single":1e-60,"big":-0}', '{"bytes":""}', '{"text":""}', '{"whole":""}', '{"unknown":[1,{"whole":2}],"big":3}',
)  # fmt: skip


def read(shared: SharedSpark, texts: list[str | None], kind: str, of_type: str = TYPE) -> list[Row | None]:
    frame = local_rows(shared.session, list(enumerate(texts)), "place int, image string")
    row = (
        sf.from_json("image", of_type, {"mode": "FAILFAST"})
        if kind == "from_json"
        else parsed_row(shared.session, sf.col("image"), StructType.fromDDL(of_type))
    )
    return [each.row for each in sorted(frame.select("place", row.alias("row")).collect(), key=lambda each: each.place)]


@pytest.mark.parametrize("of_type", [TYPE, PLAIN])
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(rows=st.lists(ROWS, min_size=30, max_size=60))
def test_a_row_is_what_from_json_makes_of_it(shared: SharedSpark, of_type: str, rows: list[dict[str, Any]]) -> None:
    """With any values present or absent, with escapes and without, and with spaces between."""
    texts: list[str | None] = [
        json.dumps(row, ensure_ascii=place % 2 == 0, separators=(",", ":") if place % 3 else (" , ", " : "))
        for place, row in enumerate(rows)
    ]
    texts += [None, "{}", " {} "]

    assert read(shared, texts, "parsed_row", of_type) == read(shared, texts, "from_json", of_type)


@pytest.mark.parametrize("of_type", [TYPE, PLAIN])
@pytest.mark.parametrize("text", ODD)
def test_what_from_json_refuses_is_refused(shared: SharedSpark, text: str, of_type: str) -> None:
    """By the same condition, by which a batch knows that a row is the cause. A row that ``from_json`` takes is taken."""
    found = []
    for kind in ("parsed_row", "from_json"):
        try:
            found.append(read(shared, [text], kind, of_type))
        except (PySparkException, Py4JJavaError) as error:
            found.append([has_condition(error, MALFORMED_RECORD)])

    assert found[0] == found[1]


def test_what_is_no_text_stands_in_a_text_as_in_the_event(shared: SharedSpark) -> None:
    """``from_json`` would write 1.0E5 and leave out the spaces."""
    texts: list[str | None] = ['{"whole":1,"text":1e5,"big":2}', '{"text": {"a": [1, true, "é"]} }', '{"text":-0.10}']

    found = read(shared, texts, "parsed_row")

    assert [each and each.text for each in found] == ["1e5", '{"a": [1, true, "é"]}', "-0.10"]
    assert [each and each.big for each in found] == [2, None, None]


def test_no_name_of_a_column_is_spark_s_own(shared: SharedSpark) -> None:
    """``from_json`` has one for rows that it cannot read."""
    of_table = StructType.fromDDL("_corrupt_record int, whole int")
    frame = local_rows(shared.session, [('{"_corrupt_record":7,"whole":1}',)], "image string")

    [[found]] = frame.select(parsed_row(shared.session, sf.col("image"), of_table)).collect()

    assert tuple(found) == (7, 1)


def test_bytes_that_are_no_text_are_refused(shared: SharedSpark) -> None:
    """And found as an unfit row, of which a dead letter is made."""
    schema = orders_schema()
    changes = [Change("c", rank, after={"id": rank, "note": note}) for rank, note in ((1, "good"), (2, "é"))]
    frame = events(shared.session, schema.topic, changes).withColumn(
        "image", sf.expr("replace(image, 'é', cast(X'FFFE' AS string))")
    )
    with pytest.raises((PySparkException, Py4JJavaError)) as refused:
        frame.transform(parse_events(schema.table_schema)).collect()
    unfit = frame.transform(find_unfit({"id": TableColumn("int"), "note": TableColumn("string")}, schema.table_schema))

    assert has_condition(refused.value, MALFORMED_RECORD)
    assert [row[0] for row in unfit.orderBy("order").select(UNFIT_COLUMN).collect()] == [None, []]
