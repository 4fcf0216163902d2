"""Each MySQL type through Spark: no value changes on the way. ``tests/contract/test_sinks.py`` goes on into the warehouses."""

import datetime
import json
import random
from decimal import Context, Decimal
from typing import Any

import msgspec
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, StructField, StructType

from libs.mysql.logical import column, in_value_modes
from libs.mysql.values import binary_writer, moment_writer, time_writer
from libs.oracle.logical import column as oracle_column
from libs.types.table import Column, TableSchema
from libs.types.value import LogicalKind
from libs.types.value_modes import BinaryMode, DecimalMode, TimePrecision, UnsignedBigintMode, ValueModes
from libs.warehouse.spark_types import spark_type
from spark.jvm.errors import MALFORMED_RECORD, described, has_condition
from spark.kafka.read_topics import events_of
from spark.transforms.local_rows import local_rows
from spark.transforms.parse_events import parse_events
from spark.transforms.parsed_row import parsed_row
from spark.transforms.value_types import decoded, row_type
from tests.contract.recorded_values import scaled
from tests.spark_session import SharedSpark
from tests.unit.events.golden import table_schemas
from tests.unit.spark.events import RECORD_COLUMNS, record

FORMS: list[tuple[str, Any, str]] = [
    ("date", datetime.date(2024, 2, 29), "connect"),
    ("date", datetime.date(1, 1, 1), "isostring"),
    ("time", -(838 * 3600 + 59 * 60 + 59) * 1_000_000, "adaptive"),
    ("time(6)", -1, "isostring"),
    ("time(6)", 433_800_500_000, "isostring"),
    ("time(6)", -3_600_500_000, "nanoseconds"),
    ("time(3)", 86_399_999_000, "connect"),
    ("datetime(6)", datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999), "nanoseconds"),
    ("datetime(6)", datetime.datetime(2261, 12, 31, 23, 59, 59, 999_999), "nanoseconds"),
    ("datetime(6)", datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999), "isostring"),
    ("datetime(3)", datetime.datetime(1000, 1, 1, 0, 0, 0, 1000), "connect"),
]


def test_a_handling_mode_changes_the_event_and_not_the_table(shared: SharedSpark) -> None:
    """In every form in which a time travels, the warehouse has the same type and value."""
    usual = [column("c", source_type) for source_type, _, _ in FORMS]
    items = [
        _in_modes(item, ValueModes(time_precision=TimePrecision(precision)))
        for item, (_, _, precision) in zip(usual, FORMS, strict=True)
    ]
    wires = [_written(item, stored) for item, (_, stored, _) in zip(items, FORMS, strict=True)]
    names = [f"w{place}" for place in range(len(items))]
    of_wires = StructType([StructField(name, _json_type(item)) for name, item in zip(names, items, strict=True)])
    frame = local_rows(shared.session, [wires, [None] * len(items)], of_wires)

    found = frame.select(*(decoded(item, frame[name]) for name, item in zip(names, items, strict=True))).collect()

    assert [spark_type(item) for item in items] == [spark_type(item) for item in usual]
    assert [[*row] for row in found] == [[stored for _, stored, _ in FORMS], [None] * len(items)]


@pytest.mark.parametrize("binary", list(BinaryMode))
def test_bytes_arrive_from_every_text_form(shared: SharedSpark, binary: BinaryMode) -> None:
    """base64 with both alphabets and hexadecimal digits are the same bytes."""
    item = _in_modes(column("c", "blob"), ValueModes(binary=binary))
    stored = bytes(range(256)) + b"\xfb\xff"
    text = binary_writer(item.logical_type.kind)(stored)
    frame = local_rows(shared.session, [(json.dumps({"c": text}),)], "image string")
    parsed = frame.select(parsed_row(shared.session, sf.col("image"), row_type([item])).alias("row"))

    [(found,)] = parsed.select(decoded(item, sf.col("row.c"))).collect()

    assert bytes(found) == stored
    assert spark_type(item) == "binary"


def test_decimals_as_text_are_the_decimals_they_were(shared: SharedSpark) -> None:
    """``decimal: string`` loses nothing, and neither does ``unsigned_bigint: precise``."""
    texts = ["-123.45", "0.00", "99999999.99"]
    item = _in_modes(column("d", "decimal(10,2)"), ValueModes(decimal=DecimalMode.STRING))
    long = _in_modes(column("d", "decimal(65,30)"), ValueModes(decimal=DecimalMode.STRING))
    unsigned = _in_modes(column("n", "bigint unsigned"), ValueModes(unsigned_bigint=UnsignedBigintMode.PRECISE))

    assert _decoded(shared, item, texts) == [Decimal(text) for text in texts]
    assert _decoded(shared, long, ["1." + "0" * 30]) == ["1." + "0" * 30]
    assert _decoded(shared, unsigned, [_wire(2**64 - 1)]) == [Decimal(2**64 - 1)]


def test_a_decimal_of_65_digits_is_exact_text(shared: SharedSpark) -> None:
    """DECIMAL(65,30), beyond any warehouse's decimal, keeps every digit and its sign."""
    item = column("d", "decimal(65,30)")
    chance = random.Random(3)
    edges = [0, 1, -1, 10**30, -(10**30), 10**65 - 1, 1 - 10**65, 255, 256, -128, -129, 2**200, -(2**200)]
    unscaled = edges + [chance.randrange(-(10**65), 10**65) for _ in range(50)]

    texts = _decoded(shared, item, [_wire(number) for number in unscaled])

    assert texts == [f"{scaled(number, 30):f}" for number in unscaled]


def test_oracle_number_is_exact_whatever_its_scale(shared: SharedSpark) -> None:
    """A NUMBER without a scale is text with all digits; one of a negative scale, or of more scale than digits, is a decimal."""
    number = oracle_column("n", "NUMBER")
    texts = ["0", "-123.456", "1" + "0" * 125, "0." + "0" * 129 + "1", "99999999999999999999999999999999999999"]
    wires = [(_exponent(text), _wire(int(Decimal(text).scaleb(_exponent(text), Context(prec=200))))) for text in texts]
    hundreds, small = oracle_column("h", "NUMBER(18,-2)"), oracle_column("s", "NUMBER(2,5)")

    assert _decoded(shared, number, [*wires, None]) == [*texts, None]
    assert _decoded(shared, hundreds, [_wire(99), _wire(-(10**18) + 1)]) == [Decimal(9900), Decimal(-(10**20) + 100)]
    assert _decoded(shared, small, [_wire(99)]) == [Decimal("0.00099")]
    assert (spark_type(number), spark_type(hundreds), spark_type(small)) == ("string", "decimal(20,0)", "decimal(5,5)")
    with pytest.raises((PySparkException, Py4JJavaError)):
        _decoded(shared, number, [(2**30, _wire(1))])
    assert _decoded(shared, number, [(2**30, _wire(1)), (0, bytearray())], is_strict=False) == [None, None]


def test_moment_with_an_offset_and_one_of_nanoseconds_is_that_moment(shared: SharedSpark) -> None:
    """Oracle's TIMESTAMP(9) WITH TIME ZONE. No warehouse has nanoseconds: they are cut off."""
    item = oracle_column("c", "TIMESTAMP(9) WITH TIME ZONE")
    frame = local_rows(
        shared.session, [("2026-11-21T05:29:36.123456789+05:30",), ("-4711-01-01T00:00:00Z",)], "w string"
    )

    found = frame.select(sf.unix_micros(decoded(item, sf.col("w")))).collect()

    assert [micros for (micros,) in found] == [1_795_219_176_123_456, -210_831_897_600_000_000]


def test_numbers_without_digits_are_read(shared: SharedSpark) -> None:
    """Oracle's BINARY_DOUBLE has NaN and infinities, which JSON holds as texts."""
    item = oracle_column("c", "BINARY_DOUBLE")
    images = [(json.dumps({"c": text}),) for text in ("NaN", "Infinity", "-Infinity", 1.5)]
    frame = local_rows(shared.session, images, "image string")
    parsed = frame.select(parsed_row(shared.session, sf.col("image"), row_type([item])).alias("row"))

    found = [str(value) for (value,) in parsed.select(decoded(item, sf.col("row.c"))).collect()]

    assert found == ["nan", "inf", "-inf", "1.5"]


def test_decimals_up_to_38_digits_are_exact(shared: SharedSpark) -> None:
    """Every length of the unscaled bytes is read, negative ones too."""
    chance = random.Random(5)
    unscaled = [sign * chance.randrange(10**digits) for digits in range(1, 39) for sign in (1, -1)]
    values = _decoded(shared, column("d", "decimal(38,10)"), [_wire(number) for number in unscaled])

    assert values == [scaled(number, 10) for number in unscaled]


@pytest.mark.parametrize(
    ("source_type", "wire"),
    [
        ("decimal(4,2)", (10_000).to_bytes(2, "big")),
        ("decimal(4,2)", (-10_000).to_bytes(2, "big", signed=True)),
        ("decimal(4,2)", (10**30).to_bytes(16, "big")),
        ("decimal(38,2)", (10**38).to_bytes(17, "big")),
        ("decimal(4,2)", b""),
        ("timestamp(6)", "2026-02-29T00:00:00Z"),
        ("timestamp(6)", "2026-01-01T24:00:00Z"),
        ("timestamp(6)", "yesterday"),
        ("timestamp(6)", "2026-01-01T00:00:00.Zero"),
    ],
)
def test_what_is_no_such_value_fails_or_is_null(shared: SharedSpark, source_type: str, wire: Any) -> None:
    """It fails where rows are written, and is NULL where the cause is looked for."""
    item = column("c", source_type)
    wire = bytearray(wire) if isinstance(wire, bytes) else wire

    with pytest.raises((PySparkException, Py4JJavaError)):
        _decoded(shared, item, [wire])
    assert _decoded(shared, item, [wire], is_strict=False) == [None]


TIMES = [
    *("1970-01-01T00:00:00Z", "2024-02-29T23:59:59Z", "2038-01-19T03:14:07.999999Z", "2026-11-21T05:29:36.1Z"),
    *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.000001Z", "2000-02-29T12:00:00.120Z"),
    *("1900-03-01T00:00:00Z", "2026-11-21T05:29:36+02:00", "2026-11-21 05:29:36", "2026-11-21", "2026-11-21T05:29:36.1234567Z"),
    *("2026-2-3T4:5:6Z", "2026-11-21T05:29Z", "2026-11-21T05:29:36.Z", "+12026-01-01T00:00:00Z", " 2026-11-21T05:29:36Z "),
]  # fmt: skip


def test_a_time_with_a_zone_is_what_spark_s_cast_makes_of_it(shared: SharedSpark) -> None:
    """However it is written; as a number, for Python has no year 12026."""
    frame = local_rows(shared.session, [(text,) for text in TIMES], "w string")
    item = column("c", "timestamp(6)")
    ours, theirs = decoded(item, sf.col("w"), is_strict=False), sf.col("w").try_cast("timestamp")

    found = frame.select(sf.unix_micros(ours), sf.unix_micros(theirs)).collect()

    assert [ours for ours, _ in found] == [theirs for _, theirs in found]
    assert sum(ours is not None for ours, _ in found) >= 14


def test_a_wrapped_bigint_unsigned_is_the_number_it_was(shared: SharedSpark) -> None:
    """Debezium hands on BIGINT UNSIGNED as a signed number; the warehouse has it as it was."""
    numbers = [0, 1, 2**63 - 1, 2**63, 2**64 - 1]
    wrapped = [number - 2**64 if number >= 2**63 else number for number in numbers]

    assert _decoded(shared, column("n", "bigint unsigned"), wrapped) == numbers


def test_a_value_that_does_not_fit_fails_instead_of_becoming_null(shared: SharedSpark) -> None:
    """Silent NULLs would be lost values."""
    schema = TableSchema(table_id=next(iter(table_schemas("fresh"))).table_id, columns=(column("n", "int"),))
    value = {"before": None, "after": {"n": 2**40}, "source": {"ts_us": 1}, "op": "c"}
    found = events_of(local_rows(shared.session, [record("t", value)], RECORD_COLUMNS))

    parsed = found.transform(parse_events(schema))
    with pytest.raises(Exception) as failed:
        parsed.collect()

    assert has_condition(failed.value, MALFORMED_RECORD)
    assert "1099511627776" not in described(failed.value)


def test_every_kind_has_a_type() -> None:
    """A logical kind that is added to the model cannot be forgotten here."""
    for kind in LogicalKind:
        item = Column(name="c", source_type="x", logical_type=_logical(kind))

        assert spark_type(item)
        assert len(row_type([item]).fields) == 1


_ANY = next(iter(table_schemas("fresh"))).table_id


def _logical(kind: LogicalKind) -> Any:
    example = column("c", "decimal(4,2)").logical_type
    return msgspec.structs.replace(example, kind=kind)


def _in_modes(item: Column, modes: ValueModes) -> Column:
    return in_value_modes(TableSchema(table_id=_ANY, columns=(item,)), modes).columns[0]


def _written(item: Column, stored: Any) -> Any:
    """The wire form that a reader writes of a date, a datetime, or the microseconds of a time."""
    kind = item.logical_type.kind
    match stored:
        case int():
            return time_writer(kind)(stored)
        case datetime.datetime():
            clock_us = ((stored.hour * 60 + stored.minute) * 60 + stored.second) * 1_000_000 + stored.microsecond
            return moment_writer(kind, is_optional=True)((stored.year, stored.month, stored.day, clock_us))
        case _:
            return moment_writer(kind, is_optional=True)((stored.year, stored.month, stored.day, 0))


def _decoded(shared: SharedSpark, item: Column, wire: list[Any], *, is_strict: bool = True) -> list[Any]:
    """Wire values through ``from_json``'s type and ``decoded``."""
    frame = local_rows(shared.session, [(value,) for value in wire], StructType([StructField("w", _json_type(item))]))
    return [row[0] for row in frame.select(decoded(item, frame["w"], is_strict=is_strict)).collect()]


def _json_type(item: Column) -> DataType:
    return row_type([item]).fields[0].dataType


def _exponent(text: str) -> int:
    """Digits after the point."""
    return len(text.partition(".")[2])


def _wire(number: int) -> bytearray:
    return bytearray(number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True))
