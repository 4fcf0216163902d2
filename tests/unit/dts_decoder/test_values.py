"""Values as DTS prints them, in the form that their column has by every road; by usual prints and by odd ones."""

import base64
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from libs.errors import UndecodableValue
from libs.mysql.ddl import apply_ddl
from libs.mysql.logical import column, in_value_modes
from libs.mysql.row_key import row_key
from libs.types.table import TableId, TableSchema
from libs.types.value_modes import BinaryMode, DecimalMode, TimePrecision, UnsignedBigintMode, ValueModes
from protos.dts import subscription_pb2 as pb
from services.dts_decoder.values import DtsColumn, schema_of_columns
from tests.unit.dts_decoder.topic import begin, decode, dml, whole

NUMBER, STRING, BYTES = pb.DATA_TYPE_INT64, pb.DATA_TYPE_STRING, pb.DATA_TYPE_BYTES
MODES = ValueModes(
    time_precision=TimePrecision.ISO_STRING,
    decimal=DecimalMode.STRING,
    unsigned_bigint=UnsignedBigintMode.PRECISE,
    binary=BinaryMode.HEX,
)


def read(
    source_type: str,
    cell: pb.Data,
    *,
    charset: str = "utf8mb4",
    is_optional: bool = True,
    modes: ValueModes | None = None,
) -> Any:
    """The value in the event of a row that has it."""
    one = column("c", source_type, charset=charset, is_optional=is_optional)
    schema = TableSchema(table_id=TableId(database="shop", table="orders"), columns=(one,))
    if modes is not None:
        schema = in_value_modes(schema, modes)
    columns = [pb.Column(name="c", originalType=source_type)]
    made = decode([whole(begin(), dml([pb.RowChange(newColumns=[cell])], columns=columns))], schemas=[schema])
    return made.rows[0][2]["after"]["c"]


def sv(text: str, kind: int = NUMBER) -> pb.Data:
    return pb.Data(dataType=kind, sv=text)  # type: ignore[arg-type]


def bv(value: str | bytes, charset: str = "utf8mb4", kind: int = STRING) -> pb.Data:
    return pb.Data(dataType=kind, charset=charset, bv=value.encode() if isinstance(value, str) else value)  # type: ignore[arg-type]


def decimal(unscaled: int, size: int) -> str:
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()


@pytest.mark.parametrize(
    ("source_type", "cell", "value"),
    [
        ("int zerofill", sv("0000000042"), 42),
        ("bigint unsigned", sv("18446744073709551615", pb.DATA_TYPE_UINT64), -1),
        ("year", sv("0"), 0),
        ("bit(1)", sv("1"), True),
        ("bit(10)", sv("513"), base64.b64encode(b"\x01\x02").decode()),
        ("bit(64)", sv("-1"), base64.b64encode(b"\xff" * 8).decode()),
        ("float", sv("1.1", pb.DATA_TYPE_FLOAT32), 1.1),
        ("float", sv("3.4028235e+38", pb.DATA_TYPE_FLOAT32), 3.4028235e38),
        ("double", sv("1e+06", pb.DATA_TYPE_FLOAT64), 1e6),
        ("double", sv("-1.5e-05", pb.DATA_TYPE_FLOAT64), -1.5e-05),
        ("double", sv("-0", pb.DATA_TYPE_FLOAT64), -0.0),
        ("decimal(10,2)", sv("-0.01", pb.DATA_TYPE_DECIMAL), decimal(-1, 1)),
        ("decimal(10,2)", sv("12.5", pb.DATA_TYPE_DECIMAL), decimal(1250, 2)),
        ("decimal(10,2)", sv("1.25e+01", pb.DATA_TYPE_DECIMAL), decimal(1250, 2)),
        ("date", bv("1969-12-31"), -1),
        ("date", bv("0000-00-00"), None),
        ("time(6)", bv("-838:59:58.999999"), -3020398999999),
        ("datetime", bv("1970-01-01 00:00:01"), 1000),
        ("datetime(3)", bv("1969-12-31 23:59:59.999"), -1),
        ("datetime(6)", bv("1970-01-01 00:00:00.000001"), 1),
        ("timestamp(3)", bv("2021-05-17 07:22:42.500 +00:00"), "2021-05-17T07:22:42.500Z"),
        ("timestamp", bv("2021-05-17 07:22:42 +08:00"), "2021-05-16T23:22:42Z"),
        ("timestamp", bv("0000-00-00 00:00:00 +00:00"), None),
        ("enum('a','b')", bv("b"), "b"),
        ("json", bv('{"a": [1, "x, y"]}', kind=BYTES), '{"a":[1,"x, y"]}'),
        ("varchar(9)", bv("漢字".encode("gbk"), "gbk"), "漢字"),
        ("varchar(9)", bv("𠀀".encode("gb18030"), "gb18030"), "𠀀"),
        ("varchar(9)", bv(b"caf\xe9", "latin1"), "café"),
        ("varchar(9)", bv('a"\\\n\x01'), 'a"\\\n\x01'),
        ("text", bv("żółć", kind=BYTES), "żółć"),
        ("varbinary(9)", bv(b"\x00\xff", "binary"), base64.b64encode(b"\x00\xff").decode()),
        ("binary(4)", bv(b"\x01", "binary"), base64.b64encode(b"\x01\0\0\0").decode()),
        ("varchar(9)", pb.Data(dataType=STRING, charset="utf8"), ""),
    ],
)
def test_a_print_becomes_its_value(source_type: str, cell: pb.Data, value: Any) -> None:
    """Time zones, scientific notation, charsets, zero dates, and the widths of bits."""
    assert read(source_type, cell) == value


@pytest.mark.parametrize(
    ("source_type", "cell", "value"),
    [
        ("date", bv("2024-02-29"), "2024-02-29Z"),
        ("time(1)", bv("01:02:03.5"), "01:02:03.5Z"),
        ("datetime(3)", bv("2024-02-29 01:02:03.500"), "2024-02-29T01:02:03.5Z"),
        ("decimal(10,2)", sv("-12.50", pb.DATA_TYPE_DECIMAL), "-12.50"),
        ("bigint unsigned", sv("255", pb.DATA_TYPE_UINT64), decimal(255, 2)),
        ("binary(3)", bv(b"\xab", "binary"), "ab0000"),
        ("blob", bv(b"\xab", kind=BYTES), "ab"),
    ],
)
def test_handling_modes_hold(source_type: str, cell: pb.Data, value: Any) -> None:
    """The schema's logical type decides, as in the binlog reader."""
    assert read(source_type, cell, modes=MODES) == value


@pytest.mark.parametrize(
    ("source_type", "cell"),
    [
        ("tinyint", sv("128")),
        ("tinyint unsigned", sv("-1")),
        ("bigint", sv("9223372036854775808")),
        ("year", sv("2156")),
        ("bit(1)", sv("2")),
        ("decimal(4,2)", sv("100.00", pb.DATA_TYPE_DECIMAL)),
        ("decimal(4,2)", sv("1.234", pb.DATA_TYPE_DECIMAL)),
        ("decimal(4,2)", sv("1e999999", pb.DATA_TYPE_DECIMAL)),
        ("decimal(4,2)", sv("NaN", pb.DATA_TYPE_DECIMAL)),
        ("double", sv("inf", pb.DATA_TYPE_FLOAT64)),
        ("double", sv("1,5", pb.DATA_TYPE_FLOAT64)),
        ("date", bv("2024-13-01x")),
        ("datetime", bv("yesterday")),
        ("timestamp", bv("2021-05-17 07:22:42")),
        ("timestamp", bv("2021-05-17 07:22:42.5 +00:00")),
        ("json", bv("{", kind=BYTES)),
        ("int", bv("5")),
        ("varchar(9)", sv("5")),
        ("varchar(9)", bv(b"\xe9")),
        ("geometry", bv(b"\x00", kind=BYTES)),
    ],
)
def test_what_does_not_fit_is_refused(source_type: str, cell: pb.Data) -> None:
    """Named, never replaced or cut."""
    with pytest.raises(UndecodableValue, match=r"shop\.orders\.c: row 0"):
        read(source_type, cell)


@given(st.integers(-(10**18) + 1, 10**18 - 1))
def test_every_decimal_is_exact(unscaled: int) -> None:
    """In compiled code as by Python's own arithmetic."""
    digits = f"{abs(unscaled):03d}"
    text = f"{'-' if unscaled < 0 else ''}{digits[:-2]}.{digits[-2:]}"

    found = base64.b64decode(read("decimal(18,2)", sv(text, pb.DATA_TYPE_DECIMAL)))

    assert int.from_bytes(found, "big", signed=True) == unscaled


@given(st.integers(-(10**20) + 1, 10**20 - 1))
@example(2**63 - 1)
@example(2**63)
@example(-(2**63) - 1)
@example(10**19 - 1)
def test_every_whole_decimal_is_exact(unscaled: int) -> None:
    """Also with so many digits that some fit into 64 bits, and some do not."""
    found = base64.b64decode(read("decimal(20,0)", sv(str(unscaled), pb.DATA_TYPE_DECIMAL)))

    assert int.from_bytes(found, "big", signed=True) == unscaled


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_is_the_same_number(number: float) -> None:
    """With any exponent."""
    assert read("double", sv(repr(number), pb.DATA_TYPE_FLOAT64)) == number


@given(st.text(max_size=40))
def test_every_text_is_the_same_text(text: str) -> None:
    """With all its escapes."""
    assert read("varchar(200)", bv(text.encode("utf-8", "surrogatepass").decode("utf-8", "replace"))) == text.encode(
        "utf-8", "surrogatepass"
    ).decode("utf-8", "replace")


def test_a_table_learned_from_its_rows_keeps_its_key_when_it_is_altered() -> None:
    orders = TableId(database="shop", table="orders")
    told = [DtsColumn("id", "int", is_key=True), DtsColumn("note", "text", is_key=False)]
    learned = schema_of_columns(TableSchema(table_id=orders, columns=()), told)

    [change] = apply_ddl({orders: learned}, "shop", "ALTER TABLE orders ADD COLUMN n int")

    assert change.schema is not None
    assert row_key(learned) == learned.key == change.schema.key == row_key(change.schema) == ("id",)
