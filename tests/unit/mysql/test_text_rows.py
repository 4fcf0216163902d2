"""Compiled reading of printed rows gives, byte for byte, the values of the Python converters."""

import dataclasses
import zlib
from collections.abc import Sequence

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from libs.events.run_rows import RunRows
from libs.formats.row_images import EventFrame
from libs.mysql import text_row, text_rows
from libs.mysql.ddl import show_create_to_schema
from libs.mysql.packets import Packets
from libs.mysql.text_row import row_cells, text_rows_decoder
from libs.mysql.text_rows import TextRowsDecoder, row_checksum
from libs.types.table import TableId, TableSchema
from tests.marks import examples

COLUMNS = {
    "small": ("smallint NOT NULL", st.integers(-(2**15), 2**15 - 1).map(str)),
    "zero_filled": ("int(6) unsigned zerofill", st.integers(0, 2**32 - 1).map(lambda n: f"{n:06d}")),
    "big": ("bigint unsigned", st.integers(0, 2**64 - 1).map(str)),
    "yr": ("year", st.sampled_from(("0000", "1901", "2155"))),
    "amount": (
        "decimal(18,4)",
        st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: f"{'-' * (n < 0)}{abs(n) // 10**4}.{abs(n) % 10**4:04d}"),
    ),
    "wide": ("decimal(40,0)", st.integers(-(10**40) + 1, 10**40 - 1).map(str)),
    "dbl": (
        "double",
        st.floats(allow_nan=False, allow_infinity=False).map(lambda n: repr(n).removesuffix(".0").replace("e+", "e"))
        | st.decimals(-1000, 1000, places=5).map(lambda n: repr(float(n)).removesuffix(".0")),
    ),
    "day": (
        "date",
        st.dates().map(lambda d: d.isoformat()) | st.sampled_from(("0000-00-00", "2024-02-31", "2024-00-10")),
    ),
    "moment": (
        "datetime(3)",
        st.datetimes().map(lambda d: f"{d:%H:%M:%S}.{d.microsecond // 1000:03d}").map(lambda t: f"2024-02-29 {t}"),
    ),
    "fine": (
        "datetime(6)",
        st.datetimes().map(lambda d: d.isoformat(" ", "microseconds")) | st.just("0000-00-00 00:00:00.000000"),
    ),
    "plain": (
        "datetime NOT NULL",
        st.datetimes().map(lambda d: d.isoformat(" ", "seconds")) | st.just("0000-00-00 00:00:00"),
    ),
    "stamp": (
        "timestamp(6) NULL",
        st.datetimes().map(lambda d: d.isoformat(" ", "microseconds")) | st.just("0000-00-00 00:00:00.000000"),
    ),
    "clock": ("time(2)", st.sampled_from(("-838:59:59.00", "00:00:00.01", "12:34:56.78"))),
    "words": ("varchar(300) CHARACTER SET utf8mb3", st.text(max_size=300)),
    "raw": ("varbinary(300)", st.binary(max_size=300)),
    "choice": ("enum('a','b\\'c','ż')", st.sampled_from(("", "a", "b'c", "ż"))),
    "some": ("set('x','y')", st.sampled_from(("", "x", "x,y"))),
    "doc": ("json", st.sampled_from(('{"a": [1, "b: c, d"]}', "null", "[]"))),
}
DEFINITION = ", ".join(f"`{name}` {kind}" for name, (kind, _) in COLUMNS.items())
SCHEMA = show_create_to_schema(
    TableId(database="s", table="t"), f"CREATE TABLE `t` ({DEFINITION}, PRIMARY KEY (`words`, `small`))", "utf8mb4"
)
ROWS = st.tuples(
    *(values if name in ("words", "small") else st.none() | values for name, (_, values) in COLUMNS.items())
)


@settings(max_examples=examples(400))
@given(row=ROWS)
def test_compiled_and_converted_values_are_equal(row: Sequence[str | bytes | None]) -> None:
    packet = printed(row)

    assert text_rows_decoder(SCHEMA).row(packet) == converting_decoder(SCHEMA).row(packet)
    assert [cell if cell is None or isinstance(cell, bytes) else cell.encode() for cell in row] == row_cells(packet)


@settings(max_examples=200)
@given(row=ROWS)
def test_the_checksum_of_a_row_is_that_of_its_columns_checksums(row: Sequence[str | bytes | None]) -> None:
    """As ``checksum_expression`` says; columns after the counted ones are passed over."""
    packet = printed(row)
    each = [b"-" if cell is None else b"%d" % zlib.crc32(cell) for cell in row_cells(packet)]

    assert row_checksum(packet, b"\1" * len(each)) == zlib.crc32(b",".join(each))
    assert row_checksum(packet, b"\1\1\1") == zlib.crc32(b",".join(each[:3]))
    assert row_checksum(packet, b"\0\1\0\1") == zlib.crc32(b",".join((each[1], each[3])))
    with pytest.raises(ValueError, match="ends before its columns do"):
        row_checksum(packet, b"\1" * (len(each) + 1))


@pytest.mark.parametrize("day", ["0000-01-01", "0000-02-29", "0000-03-01", "0001-01-01"])
def test_day_of_year_0_is_that_day(day: str) -> None:
    """MySQL stores years from 0 on. The months before March of year 0 are counted from a year below 0."""
    schema = show_create_to_schema(
        TableId(database="s", table="t"), "CREATE TABLE `t` (`d` date, `m` datetime(6))", "utf8mb4"
    )
    packet = b"".join(bytes([len(text)]) + text.encode() for text in (day, f"{day} 00:00:01.000001"))

    assert text_rows_decoder(schema).row(packet) == converting_decoder(schema).row(packet)


NUMBERS_AND_TIMES = ("small", "zero_filled", "big", "amount", "dbl", "day", "moment", "fine", "stamp")


@settings(max_examples=examples(400))
@example(name="dbl", cell="0000001.50")
@given(
    name=st.sampled_from(NUMBERS_AND_TIMES),
    cell=st.text(alphabet="0123456789-:. ,a", max_size=28)
    | st.sampled_from(("1,2", "--1", "1.2.3", "2024-13-01", "2024-02-29 25:00:00.000", "2024-02-29T01:02:03.000000")),
)
def test_a_print_that_is_not_mysqls_is_never_guessed(name: str, cell: str) -> None:
    """A server, or a proxy, may send any bytes. The compiled reading is the converter's, or an error as there."""
    row = [
        cell if column == name else "a" if column == "words" else "1" if column == "small" else None
        for column in COLUMNS
    ]
    if name != "small":
        row = ["1" if column == "small" else value for column, value in zip(COLUMNS, row, strict=True)]
    packet = printed(row)

    try:
        expected = converting_decoder(SCHEMA).row(packet)
    except ValueError:
        with pytest.raises(ValueError):
            text_rows_decoder(SCHEMA).row(packet)
    else:
        assert text_rows_decoder(SCHEMA).row(packet) == expected


def test_rows_become_events_until_the_room_is_used_up() -> None:
    """At least one row; the caller goes on after the last."""
    schema = show_create_to_schema(
        TableId(database="s", table="t"),
        "CREATE TABLE `t` (`id` int NOT NULL, `v` text, PRIMARY KEY (`id`))",
        "utf8mb4",
    )
    rows = [printed((str(number), "x" * 70_000)) for number in range(5)]
    data = b"".join(rows)
    packets = Packets(data, [(sum(map(len, rows[:n])), sum(map(len, rows[: n + 1]))) for n in range(5)])
    run = RunRows()
    frame = EventFrame(b',"source":7', b"", (b"", b"", b"", b',"op":"r"}'))

    assert text_rows_decoder(schema).decode(frame, run, packets, 0, 5, 100_000) == 2
    assert text_rows_decoder(schema).decode(frame, run, packets, 2, 4, 10**9) == 4

    assert run.keys() == [b'{"id":%d}' % number for number in range(4)]
    assert orjson.loads(run.values()[3]) == {
        "before": None,
        "after": {"id": 3, "v": "x" * 70_000},
        "source": 7,
        "op": "r",
    }
    assert run.ops == b"rrrr"


@pytest.mark.parametrize("cut", [0, 1, 5])
def test_a_row_that_ends_too_early_is_refused(cut: int) -> None:
    """Never read past it: the table has other columns than the schema says."""
    schema = show_create_to_schema(TableId(database="s", table="t"), "CREATE TABLE `t` (`a` text, `b` text)", "utf8mb4")

    with pytest.raises(ValueError, match="ends before its columns do"):
        text_rows_decoder(schema).row(printed(("abc", "defg"))[: cut or 4])


def converting_decoder(schema: TableSchema) -> TextRowsDecoder:
    readings = [
        dataclasses.replace(text_row._reading(column), kind=text_rows.CONVERTED, null=text_row._null(column))
        for column in schema.columns
    ]
    names = [column.name for column in schema.columns]
    return TextRowsDecoder(readings, [orjson.dumps(name) for name in names], [names.index(name) for name in schema.key])


def printed(row: Sequence[str | bytes | None]) -> bytes:
    """The row as MySQL's text protocol sends it."""
    cells = []
    for value in row:
        if value is None:
            cells.append(b"\xfb")
            continue
        cell = value if isinstance(value, bytes) else value.encode()
        size = len(cell)
        length = (
            bytes([size])
            if size < 251
            else b"\xfc" + size.to_bytes(2, "little")
            if size < 1 << 16
            else b"\xfd" + size.to_bytes(3, "little")
        )
        cells.append(length + cell)
    return b"".join(cells)
