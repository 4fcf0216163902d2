"""Values of the log and of the driver as JSON, beside Debezium's converters and ``a_oracle_logminer``."""

import base64
import datetime
import json
import math
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import oracledb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.formats.connect_schema import connect_field
from libs.oracle.internal_values import DaySecondInterval, OracleTimestamp, YearMonthInterval, ZonedOracleTimestamp
from libs.oracle.logical import column, in_value_modes
from libs.oracle.printed_values import driver_reader, redo_reader
from libs.oracle.redo_values import NOT_LOGGED, Expression, Quoted, RedoValue, UnreadableRedo
from libs.oracle.values import UnwritableValue, date_of_days, days_since_1970, json_writer
from libs.stand_ins.oracle import cells
from libs.types.table import Column, TableId, TableSchema
from libs.types.value_modes import OracleValueModes, TimePrecision
from tests.unit.oracle.debezium_answers import ANSWERS, Answer, modes_of


def of_type(source_type: str, modes: OracleValueModes | None = None) -> Column:
    """A column in handling modes."""
    table = TableSchema(table_id=TableId(database="S", table="T"), columns=(column("C", source_type),))
    return in_value_modes(table, modes or OracleValueModes()).columns[0]


def printed(literal: str) -> RedoValue:
    """A literal as the connector's parser hands it on: a quoted text has lost its quotes."""
    if literal.startswith(("TO_", "HEXTORAW(", "UNISTR(", "EMPTY_")):
        return Expression(literal)
    return Quoted(literal)


def written(of: Column, value: RedoValue) -> Any:
    """Through SQL_REDO to JSON."""
    return json.loads(json_writer(of)(redo_reader(of)(value)))


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_value_is_that_of_debezium(answer: Answer) -> None:
    """Every type in every mode, value for value."""
    of = of_type(answer.source_type, modes_of(answer.config))

    assert written(of, printed(answer.literal)) == answer.json


@pytest.mark.parametrize(
    ("source_type", "text", "expected"),
    [
        ("BINARY_DOUBLE", "Nan", "NaN"),
        ("BINARY_FLOAT", "Inf", "Infinity"),
        ("BINARY_DOUBLE", "-Inf", "-Infinity"),
        ("BINARY_FLOAT", "3.40282347E+038", 3.4028235e38),
        ("DATE", "TO_DATE('-4712-01-01 00:00:00', 'SYYYY-MM-DD HH24:MI:SS')", -210_831_897_600_000),
        ("DATE", "TO_DATE(' 2022-01-01 00:00:00', 'SYYYY-MM-DD HH24:MI:SS')", 1_640_995_200_000),
        ("DATE", "TO_DATE('0001-01-01 00:00:00', 'SYYYY-MM-DD HH24:MI:SS')", -62_135_596_800_000),
        ("DATE", "TO_DATE('-0001-12-31 00:00:00', 'SYYYY-MM-DD HH24:MI:SS')", -62_135_683_200_000),
        (
            "TIMESTAMP(6) WITH TIME ZONE",
            "TO_TIMESTAMP_TZ('2022-03-27 12:34:56.007890 Europe/Prague')",
            "2022-03-27T12:34:56.007890+02:00",
        ),
        (
            "TIMESTAMP(0) WITH TIME ZONE",
            "TO_TIMESTAMP_TZ('2022-10-30 02:30:00. Europe/Prague CET')",
            "2022-10-30T02:30:00+01:00",
        ),
        (
            "TIMESTAMP(0) WITH TIME ZONE",
            "TO_TIMESTAMP_TZ('2022-10-30 02:30:00. Europe/Prague CEST')",
            "2022-10-30T02:30:00+02:00",
        ),
        (
            "TIMESTAMP(6) WITH TIME ZONE",
            "TO_TIMESTAMP_TZ('27-MAR-22 12.34.56.007890 AM -01:00')",
            "2022-03-27T00:34:56.007890-01:00",
        ),
        (
            "TIMESTAMP(6) WITH LOCAL TIME ZONE",
            "TO_TIMESTAMP('2022-03-27 12:34:56.007890')",
            "2022-03-27T12:34:56.007890Z",
        ),
        ("INTERVAL DAY(2) TO SECOND(9)", "TO_DSINTERVAL('-05 10:11:12.000001999')", -468_672_000_001),
        ("CLOB", "EMPTY_CLOB()", ""),
        ("BLOB", "EMPTY_BLOB()", ""),
        ("RAW(4)", "HEXTORAW('')", ""),
        ("XMLTYPE", "XMLTYPE('<a b=\"it''s\">x</a>')", '<a b="it\'s">x</a>'),
        ("JSON", "/* JSON */ '{\"a\": 1}'", '{"a": 1}'),
        ("NUMBER", "HEXTORAW('c109')", {"scale": 0, "value": "CA=="}),
        ("VARCHAR2(20)", "HEXTORAW('7465737435')", "test5"),
        ("NVARCHAR2(20)", "HEXTORAW('5217')", "列"),
    ],
)
def test_value_that_debezium_lacks_has_a_form(source_type: str, text: str, expected: Any) -> None:
    """Years before 1, regions, NaN, empty LOBs and storage formats."""
    value = Quoted(text) if text[:3] in ("Nan", "Inf", "-In", "3.4") else Expression(text)

    assert written(of_type(source_type), value) == expected


def test_interval_keeps_its_nanoseconds_as_text() -> None:
    """Debezium reads the nine digits as microseconds."""
    of = of_type("INTERVAL DAY(2) TO SECOND(9)", modes_of({"interval.handling.mode": "string"}))

    assert written(of, Expression("TO_DSINTERVAL('-05 10:11:12.000000001')")) == "P0Y0M-5DT-10H-11M-12.000000001S"


@pytest.mark.parametrize("source_type", ["NUMBER", "DATE", "RAW(4)", "TIMESTAMP(6) WITH TIME ZONE", "CLOB", "XMLTYPE"])
def test_null_is_null_and_what_the_log_lacks_is_not(source_type: str) -> None:
    """``Unsupported Type`` never becomes NULL in silence."""
    of = of_type(source_type)

    assert written(of, None) is None
    with pytest.raises(UnreadableRedo):
        redo_reader(of)(NOT_LOGGED)


@pytest.mark.parametrize(
    ("source_type", "value"),
    [
        ("NUMBER(5,0)", Quoted("12,5")),
        ("DATE", Quoted("yesterday")),
        ("DATE", Expression("TO_DATE('2022-13-01 00:00:00')")),
        ("DATE", Expression("TO_TIMESTAMP_TZ('2022-03-27 12:34:56 +02:00')")),
        ("TIMESTAMP(6) WITH TIME ZONE", Expression("TO_TIMESTAMP_TZ('2022-03-27 12:34:56 Atlantis')")),
        ("RAW(4)", Quoted("0aff")),
        ("BOOLEAN", Quoted("maybe")),
        ("INTERVAL YEAR(2) TO MONTH", Quoted("long")),
        ("INTERVAL DAY(2) TO SECOND(6)", Quoted("long")),
        ("VARCHAR2(4)", Expression("HEXTORAW('ff')")),
        ("VARCHAR2(4)", Expression("SYSDATE")),
    ],
)
def test_another_form_is_refused(source_type: str, value: RedoValue) -> None:
    """Nothing is guessed, and nothing becomes NULL."""
    with pytest.raises(UnreadableRedo):
        redo_reader(of_type(source_type))(value)


def test_value_beyond_its_form_is_refused() -> None:
    """A year beyond 64 bits of nanoseconds, digits beyond a NUMBER(p,s)."""
    nanoseconds = of_type("DATE", OracleValueModes(time_precision=TimePrecision.NANOSECONDS))

    for of, text in (
        (nanoseconds, "2262-05-31 00:00:00"),
        (of_type("NUMBER(5,2)"), "1.234"),
        (of_type("NUMBER(2,0)"), "128"),
    ):
        with pytest.raises(UnwritableValue):
            written(of, Quoted(text))


@given(st.integers(days_since_1970(-4711, 1, 1), days_since_1970(9999, 12, 31)))
def test_days_are_turned_back(days: int) -> None:
    """Over all years that Oracle has."""
    assert days_since_1970(*date_of_days(days)) == days


numbers = st.builds(
    lambda sign, digits, exponent: Decimal((sign, tuple(map(int, str(digits))), exponent)),
    st.integers(0, 1),
    st.integers(0, 10**38 - 1),
    st.integers(-120, 85),
)


@given(numbers)
def test_number_is_one_on_every_road(number: Decimal) -> None:
    """The log's text, the storage format and the driver's Decimal give equal JSON, and it is the number."""
    of = of_type("NUMBER")
    texts = {format(number, "f"), format(number, "E")}
    stored = Expression(f"HEXTORAW('{cells.number(number).hex()}')")

    found = {json_writer(of)(redo_reader(of)(value)) for value in (*map(Quoted, texts), stored)}
    found.add(json_writer(of)(driver_reader(of)(number)))

    assert len(found) == 1
    wire = json.loads(found.pop())
    integer = int.from_bytes(base64.b64decode(wire["value"]), "big", signed=True)
    assert Decimal(integer).scaleb(-wire["scale"], Context(prec=300)) == number


@given(st.datetimes())
def test_moment_is_one_on_every_road(moment: datetime.datetime) -> None:
    """A TIMESTAMP(6) of the log, in its storage format, and of the driver."""
    of = of_type("TIMESTAMP(6)")
    text = f"{moment:%m-%d %H:%M:%S.%f}"
    values = (
        Expression(f"TO_TIMESTAMP('{moment.year:04d}-{text}')"),
        Expression(f"HEXTORAW('{cells.timestamp(moment).hex()}')"),
    )

    found = {json_writer(of)(redo_reader(of)(value)) for value in values}
    found.add(json_writer(of)(driver_reader(of)(moment)))

    assert len(found) == 1


def test_driver_objects_are_read() -> None:
    """Each Python type that python-oracledb gives."""
    interval: Any = oracledb.IntervalYM(years=-3, months=-6)

    assert driver_reader(of_type("INTERVAL YEAR(2) TO MONTH"))(interval) == YearMonthInterval(-42)
    span = datetime.timedelta(days=-1, microseconds=1)
    assert driver_reader(of_type("INTERVAL DAY(2) TO SECOND(6)"))(span) == DaySecondInterval(-86_399_999_999_000)
    assert driver_reader(of_type("BINARY_DOUBLE"))(1) == 1.0
    assert math.isnan(float(str(driver_reader(of_type("BINARY_FLOAT"))(math.nan))))
    assert driver_reader(of_type("NUMBER(9,0)"))(7) == Decimal(7)
    assert driver_reader(of_type("NUMBER"))(0.1) == Decimal("0.1")
    zoned = of_type("TIMESTAMP(6) WITH TIME ZONE")
    assert driver_reader(zoned)("2022-03-27 12:34:56.5 +01:00") == ZonedOracleTimestamp(
        OracleTimestamp(2022, 3, 27, 11, 34, 56, 500_000_000), 60
    )
    with pytest.raises(TypeError):
        driver_reader(of_type("DATE"))(object())


def test_recorded_conversions_have_their_schema() -> None:
    """The cases of ``a_oracle_logminer``, schema and value."""
    cases = json.loads(Path("tests/golden/cases/a_oracle_logminer.json").read_text(encoding="utf-8"))["cases"]
    checked = 0
    for case in cases:
        expect = case.get("expect", {})
        if case["kind"] != "value" or "schema_type" not in expect or case["id"] in LEFT_OUT:
            continue
        config = dict(case.get("config", {}))
        of = of_type(source_type_of(case), modes_of(config))
        field = connect_field(of)
        types = {"float32": "float", "float64": "double"}
        assert (field["type"], field.get("name")) == (
            types.get(expect["schema_type"], expect["schema_type"]),
            expect["schema_name"],
        ), case["id"]
        written(of, printed(case["literal"]))
        checked += 1
    assert checked > 35


LEFT_OUT = {"value-timestampltz"}
"""The connector hands on the text of the call; the moment is tested above."""


def source_type_of(case: Any) -> str:
    """A case's type with its digits."""
    if case["type"] == "NUMBER" and "scale" in case:
        return f"NUMBER({case['length']},{case['scale']})"
    return f"{case['type']}({case['length']})" if case["type"] in ("VARCHAR2", "RAW") else str(case["type"])
