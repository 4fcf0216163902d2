"""Row filters against SQLite, and the rules that SQLite does not share with MySQL."""

import base64
import sqlite3
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.errors import InvalidEvent
from libs.tenants.row_filter import InvalidCondition, compile_filter, condition_mistakes
from libs.types.table import Column, TableId, TableSchema
from libs.types.value import UNAVAILABLE_VALUE, LogicalKind, LogicalType
from tests.marks import examples


def column(name: str, kind: LogicalKind, source_type: str = "", *, scale: int = 0) -> Column:
    """A column of a kind."""
    logical_type = LogicalType(kind=kind, scale=scale, precision=8)
    return Column(name=name, source_type=source_type or kind.value, logical_type=logical_type)


TABLE = TableSchema(
    table_id=TableId(database="shop", table="orders"),
    columns=(
        column("id", LogicalKind.INT32),
        column("a", LogicalKind.INT32),
        column("b", LogicalKind.INT32),
        column("name", LogicalKind.STRING),
        column("total", LogicalKind.DECIMAL, "decimal(12,2)", scale=2),
        column("ratio", LogicalKind.FLOAT64),
        column("big", LogicalKind.INT64, "bigint unsigned"),
        column("day", LogicalKind.DATE),
        column("at", LogicalKind.TIMESTAMP_MS),
        column("at_us", LogicalKind.TIMESTAMP_US),
        column("zoned", LogicalKind.ZONED_TIMESTAMP),
        column("clock", LogicalKind.MICRO_TIME),
        column("flag", LogicalKind.BOOLEAN),
        column("bits", LogicalKind.BITS),
        column("raw", LogicalKind.BYTES),
        column("doc", LogicalKind.JSON),
        column("shape", LogicalKind.GEOMETRY),
        column("year", LogicalKind.YEAR),
        column("single", LogicalKind.FLOAT32),
        column("tiny", LogicalKind.INT8),
        column("number", LogicalKind.VARIABLE_SCALE_DECIMAL),
        column("took", LogicalKind.MICRO_DURATION),
        column("span", LogicalKind.INTERVAL),
        column("page", LogicalKind.XML),
    ),
)


def decimal_wire(text: str) -> str:
    """``12.50`` as Connect's Decimal of scale 2."""
    unscaled = int(Decimal(text) * 100)
    return base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)).decode()


def matches(where: str, **row: object) -> bool:
    """Whether a row passes; columns that are not given are NULL."""
    wire = {item.name: row.get(item.name) for item in TABLE.columns}
    return compile_filter(where, TABLE).matches(wire)


def mistake(where: str) -> str:
    """Why a condition is refused for the table."""
    with pytest.raises(InvalidCondition) as caught:
        compile_filter(where, TABLE)
    return str(caught.value)


# --- against another implementation -------------------------------------------------------------------------------------

numbers = st.integers(-3, 3)
texts = st.text(alphabet="aAb%_", max_size=3)


def numeric(depth: int) -> st.SearchStrategy[str]:
    """Numeric expressions, integers only: SQLite divides these as integers, so without ``/``."""
    leaf = st.one_of(st.sampled_from(["a", "b"]), numbers.map(lambda n: f"({n})"))
    if depth == 0:
        return leaf
    deeper = numeric(depth - 1)
    return st.one_of(leaf, st.tuples(deeper, st.sampled_from("+-*"), deeper).map(lambda t: f"({t[0]} {t[1]} {t[2]})"))


def quoted(text: str) -> str:
    """A literal of both dialects."""
    return f"'{text}'"


atoms = st.one_of(
    st.tuples(numeric(1), st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), numeric(1)).map(" ".join),
    st.tuples(
        numeric(1), st.sampled_from(["", "NOT "]), st.lists(st.one_of(numbers.map(str), st.just("NULL")), min_size=1)
    ).map(lambda t: f"{t[0]} {t[1]}IN ({', '.join(t[2])})"),
    st.tuples(numeric(1), st.sampled_from(["", "NOT "]), numbers, numbers).map(
        lambda t: f"{t[0]} {t[1]}BETWEEN {t[2]} AND {t[3]}"
    ),
    st.tuples(st.sampled_from(["=", "<>", "<", ">="]), texts).map(lambda t: f"name {t[0]} {quoted(t[1])}"),
    st.tuples(st.sampled_from(["", "NOT "]), texts).map(lambda t: f"name {t[0]}LIKE {quoted(t[1])} ESCAPE '!'"),
    st.tuples(st.sampled_from(["a", "name"]), st.sampled_from(["", "NOT "])).map(lambda t: f"{t[0]} IS {t[1]}NULL"),
    st.tuples(numeric(0), st.sampled_from(["TRUE", "FALSE", "NOT TRUE", "NOT FALSE"])).map(
        lambda t: f"{t[0]} IS {t[1]}"
    ),
)
conditions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
        inner.map(lambda condition: f"NOT ({condition})"),
    ),
    max_leaves=6,
)


@settings(max_examples=examples(400))
@given(
    conditions,
    st.one_of(st.none(), numbers),
    st.one_of(st.none(), numbers),
    st.one_of(st.none(), texts),
)
def test_filter_agrees_with_sqlite(where: str, a: int | None, b: int | None, name: str | None) -> None:
    """A row passes exactly when SQLite selects it: comparisons, NULLs, IN, BETWEEN, LIKE, arithmetic, AND OR NOT."""
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA case_sensitive_like = ON")
    database.execute("CREATE TABLE orders (a INTEGER, b INTEGER, name TEXT)")
    database.execute("INSERT INTO orders VALUES (?, ?, ?)", (a, b, name))
    selected = database.execute(f"SELECT COUNT(*) FROM orders WHERE {where}").fetchone()[0] == 1
    database.close()

    assert matches(where, a=a, b=b, name=name) == selected


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "row", "expected"),
    [
        ("total = 12.5", {"total": decimal_wire("12.50")}, True),
        ("total > 12.49 AND total < 12.51", {"total": decimal_wire("12.50")}, True),
        ("total BETWEEN -1 AND 0", {"total": decimal_wire("-0.50")}, True),
        ("total * 3 = 37.5", {"total": decimal_wire("12.50")}, True),
        ("ratio = 0.1", {"ratio": 0.1}, True),
        ("ratio + a > 1.05", {"ratio": 0.1, "a": 1}, True),
        ("big > 18446744073709551614", {"big": -1}, True),
        ("day >= '2024-02-29'", {"day": 19782}, True),
        ("day < '2024-02-29'", {"day": 19782}, False),
        ("day = DATE '2024-02-29'", {"day": 19782}, True),
        ("at = '2024-02-29 12:34:56.789'", {"at": 1709210096789}, True),
        ("at >= day", {"at": 1709210096789, "day": 19782}, True),
        ("at_us < '1970-01-01'", {"at_us": -1}, True),
        ("zoned = '2024-02-29 12:34:56.789'", {"zoned": "2024-02-29T12:34:56.789Z"}, True),
        ("zoned = at", {"zoned": "2024-02-29T12:34:56.789Z", "at": 1709210096789}, True),
        ("clock > '23:59:59.999999'", {"clock": 86_400_000_000}, True),
        ("clock < '-00:00:01'", {"clock": -2_000_000}, True),
        ("flag", {"flag": True}, True),
        ("flag = FALSE", {"flag": False}, True),
        ("bits = b'101'", {"bits": base64.b64encode(b"\x05\x00").decode()}, True),
        ("raw = x'00FF'", {"raw": base64.b64encode(b"\x00\xff").decode()}, True),
        ("raw = 'abc'", {"raw": base64.b64encode(b"abc").decode()}, True),
        ("doc IS NOT NULL", {"doc": "{}"}, True),
        ("a / b = 0.5", {"a": 1, "b": 2}, True),
        ("a / b = 0.6667", {"a": 2, "b": 3}, True),
        ("a / b * b = a", {"a": 1, "b": 3}, False),
        ("total / b = 0.285714", {"total": decimal_wire("2.00"), "b": 7}, True),
        ("a / b / b = 0.1111", {"a": 1, "b": 3}, True),
        ("a / b IS NULL", {"a": 1, "b": 0}, True),
        ("a <=> NULL", {}, True),
        ("a <=> b", {"a": 1, "b": 1}, True),
        ("a <=> 1", {}, False),
        ("NOT a <=> 1", {}, True),
        ("(a = 1) = (b = 2)", {"a": 1, "b": 2}, True),
        ("name LIKE '50\\%%'", {"name": "50% off"}, True),
        ("name LIKE '50\\%%'", {"name": "500"}, False),
        ("name NOT LIKE 'A%'", {"name": "acme"}, True),
        ("name LIKE 'a_c'", {"name": "a\nc"}, True),
        ("name = 'it''s'", {"name": "it's"}, True),
        ("`Name` = 'x' AND ORDERS.id = 1", {"name": "x", "id": 1}, True),
        ("single = 0.1", {"single": 0.1}, False),
        ("single > 0.1", {"single": 0.1}, True),
        ("single = 1.5", {"single": 1.5}, True),
        ("year = 2024", {"year": 2024}, True),
        ("year > 0", {"year": 2024}, True),
        ("a = 1 -- OR TRUE", {"a": 2}, False),
        ("a = 1 /* OR TRUE */", {"a": 2}, False),
        ("name = '/*! x */'", {"name": "/*! x */"}, True),
        ("TRUE", {}, True),
        ("NULL", {}, False),
    ],
)
def test_values_are_compared_by_what_they_are(where: str, row: dict[str, object], expected: bool) -> None:
    """Each logical type is compared as the value it stands for, not as the text or number it travels as."""
    assert matches(where, **row) is expected


def test_decimals_keep_all_their_digits() -> None:
    """Sixty-five digits do not become a float or twenty-eight digits."""
    digits = "9" * 35
    unscaled = int(digits + "01")
    wire = base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)).decode()

    assert matches(f"total = {digits}.01", total=wire)
    assert not matches(f"total = {digits}.02", total=wire)
    assert matches(f"-total = -{digits}.01", total=wire)
    assert matches(f"total - 0.01 = {digits}", total=wire)


def test_oracle_values_are_compared_by_what_they_are() -> None:
    """A number of its own scale, a moment with an offset, nanoseconds or a year before 1, a NaN, an interval."""
    thousandth = {"scale": 3, "value": base64.b64encode(b"\x01").decode()}

    assert matches("number = 0.001 AND number < 0.0011", number=thousandth)
    assert matches("number > 999", number={"scale": -3, "value": "AQ=="})
    assert matches("zoned = '2024-01-31 22:00:00.123456'", zoned="2024-02-01T03:30:00.123456789+05:30")
    assert matches("zoned = '2024-02-01 03:00:00'", zoned="2024-02-01T00:00:00-03:00")
    assert matches("zoned < '0000-01-01'", zoned="-4711-01-01T00:00:00Z")
    assert not matches("ratio > 1", ratio="NaN")
    assert matches("ratio > 1 AND single < 0", ratio="Infinity", single="-Infinity")
    assert matches("tiny = -1 AND took = '26:00:00'", tiny=-1, took=93_600_000_000)
    assert matches("span = 'P0Y0M1DT0H0M0S' AND page IS NOT NULL", span="P0Y0M1DT0H0M0S", page="<a/>")


def test_only_columns_that_are_named_are_needed() -> None:
    """The predicate says which columns it reads, so nothing else is decoded."""
    assert compile_filter("a = 1 OR NAME LIKE 'x'", TABLE).columns == ("a", "name")


def test_value_that_the_log_does_not_hold_is_no_answer() -> None:
    """A condition over an unavailable value cannot be decided; the event is set aside."""
    with pytest.raises(InvalidEvent, match="does not hold column 'name'"):
        matches("name = 'x'", name=UNAVAILABLE_VALUE)


def test_value_of_another_type_is_set_aside() -> None:
    """A value that does not fit its column is an invalid event, reported without the value."""
    with pytest.raises(InvalidEvent) as caught:
        matches("zoned > '2024-01-01'", zoned="secret")

    assert "secret" not in str(caught.value)


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "part"),
    [
        ("totl > 1", "did you mean 'total'?"),
        ("lower(name) = 'x'", "a function is not supported"),
        ("a IN (SELECT 1)", "query is not supported"),
        ("a IN (1.0, 18446744073709551615)", "for another number"),
        ("a % 2 = 0", "MOD is not supported"),
        ("a = 'x'", "cannot compare a number with text"),
        ("name = 5", "cannot compare text with a number"),
        ("name", "is text, not a condition"),
        ("day = 'yesterday'", "'yesterday' is not a date or time"),
        ("day = '2024-13-01'", "is not a date or time"),
        ("clock = '25'", "is not a time of day"),
        ("doc = '{}'", "can only be tested with IS NULL"),
        ("shape IS NULL", "cannot be used in a condition"),
        ("customers.id = 1", "only columns of the row's own table"),
        ("a LIKE '1%'", "LIKE takes text"),
        ("name LIKE name", "pattern in quotes"),
        ("name + 1 > 2", "cannot calculate with name"),
        ("CAST(name AS DATE) = day", "a conversion is not supported"),
        ("a = @b", "not supported"),
        ("a XOR b", "not supported"),
        ("name = _utf8'x'", "not supported"),
        ("a = " + "9" * 5_001, "more than 65 digits"),
        ("a = 1" + "0" * 400, "more than 65 digits"),
        ("ratio = 1" + "0" * 400, "more than 65 digits"),
        ("ratio = 1e400", "larger than any number"),
        ("ratio = b'" + "1" * 7_000 + "'", "more than 64 bits"),
        ("a = 1e", "is no number"),
        ("day > '2024-13-99'", "is not a date or time"),
        ("day > DATE '2023-02-29'", "is not a date or time"),
        ("year = 24", "a year has four digits"),
        ("1.5 < year", "a year has four digits"),
        ("year BETWEEN 1 AND 2024", "a year has four digits"),
        ("a = 1 /*! OR TRUE */", "whose text MySQL runs"),
        ("/*!80000 NOT */ a = 1", "whose text MySQL runs"),
        ("!!(a = 1)", "which MySQL takes for one !"),
    ],
)
def test_mistake_names_the_place_and_the_remedy(where: str, part: str) -> None:
    """A condition that cannot be evaluated is refused, never taken to mean something else."""
    assert part in mistake(where)


def test_all_mistakes_are_told_at_once() -> None:
    """Three faults in one condition are three mistakes."""
    with pytest.raises(InvalidCondition) as caught:
        compile_filter("totl > 1 AND a = 'x' OR lower(name) = 'y'", TABLE)

    assert len(caught.value.mistakes) == 3


@pytest.mark.parametrize(
    "where",
    ["a =", "", "a = 1; DROP TABLE orders", "SELECT 1", "a b c", "(" * 3000 + "a" + ")" * 3000, "a = 1" + " " * 9000],
)
def test_what_is_no_single_condition_is_refused_without_a_table(where: str) -> None:
    """Syntax and size are judged when the document is loaded, before any table is known."""
    assert condition_mistakes(where)


def test_good_condition_has_no_mistakes_without_a_table() -> None:
    """Columns are not judged before a table is known."""
    assert condition_mistakes("anything = 1 AND other LIKE 'x%' OR more BETWEEN '2024-01-01' AND NULL") == []


def test_sql_parser_is_not_loaded_before_a_filter_wants_it() -> None:
    """It takes 29 MB."""
    check = (
        "import sys, services.router.service as service\n"
        "assert 'sqlglot' not in sys.modules\n"
        "assert service.condition_mistakes('a = 1') == [] and 'sqlglot' in sys.modules"
    )

    subprocess.run([sys.executable, "-c", check], check=True, cwd=Path(__file__).parents[3])


@pytest.mark.parametrize(
    "where",
    [
        "(" * 300 + "a = 1" + ")" * 300,
        "NOT " * 300 + "a = 1",
        "1" + " + 1" * 300 + " = 1",
        "(" * 3_000,
        "- " * 3_000 + "1",
    ],
)
def test_deep_conditions_are_refused(where: str) -> None:
    """Before a row meets them, and not by how much of Python's stack is left."""
    assert condition_mistakes(where)[0].startswith("is nested")


def test_long_flat_conditions_are_taken() -> None:
    """Only depth costs."""
    assert condition_mistakes(" OR ".join(f"a = {number}" for number in range(600))) == []


def test_like_comes_back_from_any_text() -> None:
    """A regular expression in its place would try for hours."""
    like = compile_filter(f"name LIKE '{'%a' * 60}b'", TABLE)

    assert not like.matches({"name": "a" * 100_000})
    assert like.matches({"name": "a" * 100_000 + "b"})
