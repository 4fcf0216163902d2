"""Row images → JSON: every type against Python's own reading of the stored bytes, and bytes that are damaged."""

import base64
import datetime
import decimal
import itertools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.errors import UndecodableValue
from libs.events.run_rows import RunRows
from libs.formats.row_images import EventFrame
from libs.mysql import binlog_events
from libs.mysql.ddl import show_create_to_schema
from libs.mysql.packets import Packets
from libs.mysql.row_events import RowsDecoder
from libs.mysql.row_image import rows_decoder, undecodable, wire_columns
from libs.types.table import TableId, TableSchema
from protos.headwater.changes.v1.change_batch_pb2 import Run
from tests.marks import examples

NUMBER = b"\x05\0\0\0\0\0"
EPOCH = datetime.datetime(1970, 1, 1)
TABLE_MAP = NUMBER + b" the table map"
ENOUGH = 1 << 30


@dataclass(frozen=True)
class Cell:
    """A column type with the table map's bytes for it, and how the log stores a value."""

    declared: str
    wire_type: int
    metadata: bytes
    stored: Callable[[Any], bytes]
    expected: Callable[[Any], object]
    values: st.SearchStrategy[Any]


def same(value: Any) -> Any:
    return value


def integer(declared: str, wire_type: int, size: int, *, unsigned: bool = False) -> Cell:
    low, high = (0, 256**size - 1) if unsigned else (-(256**size) // 2, 256**size // 2 - 1)
    return Cell(
        declared,
        wire_type,
        b"",
        lambda value: value.to_bytes(size, "little", signed=not unsigned),
        # bigint unsigned wraps, as Debezium's long does
        lambda value: value - 2**64 if size == 8 and value >= 2**63 else value,
        st.integers(low, high),
    )


def text(declared: str, metadata: bytes, codec: str, values: st.SearchStrategy[str], wire_type: int = 15) -> Cell:
    length_bytes = 1 if wire_type == 15 else metadata[0]

    def stored(value: str) -> bytes:
        encoded = value.encode(codec)
        return len(encoded).to_bytes(length_bytes, "little") + encoded

    return Cell(declared, wire_type, metadata, stored, same, values)


def stored_decimal(precision: int, scale: int) -> Callable[[int], bytes]:
    def stored(unscaled: int) -> bytes:
        digits = f"{abs(unscaled):0{precision}d}"
        whole, fraction = digits[: precision - scale], digits[precision - scale :]
        first = len(whole) % 9
        groups = [whole[:first], *(whole[at : at + 9] for at in range(first, len(whole), 9))]
        groups += [fraction[at : at + 9] for at in range(0, len(fraction), 9)]
        data = b"".join(int(group).to_bytes((len(group) * 4 + 8) // 9, "big") for group in groups if group)
        if unscaled < 0:
            data = bytes(byte ^ 0xFF for byte in data)
        return bytes([data[0] ^ 0x80]) + data[1:]

    return stored


def connect_decimal(unscaled: int) -> str:
    size = 1
    while not -(1 << 8 * size - 1) <= unscaled < 1 << 8 * size - 1:
        size += 1
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()


def decimals(precision: int, scale: int) -> Cell:
    most = 10**precision - 1
    return Cell(
        f"decimal({precision},{scale})",
        246,
        bytes((precision, scale)),
        stored_decimal(precision, scale),
        connect_decimal,
        st.integers(-most, most)
        | st.sampled_from([number for number in (0, 127, 128, -128, -129, most, -most) if abs(number) <= most]),
    )


def fraction(us: int, digits: int) -> bytes:
    size = (digits + 1) // 2
    return (us // 10 ** (6 - 2 * size)).to_bytes(size, "big")


def rounded(us: int, digits: int) -> int:
    return us // 10 ** (6 - digits) * 10 ** (6 - digits)


def datetimes(digits: int) -> Cell:
    def stored(value: datetime.datetime) -> bytes:
        packed = (value.year * 13 + value.month) << 22 | value.day << 17 | value.hour << 12
        packed |= value.minute << 6 | value.second
        return (packed + 0x8000000000).to_bytes(5, "big") + fraction(rounded(value.microsecond, digits), digits)

    def expected(value: datetime.datetime) -> int:
        us = (value.replace(microsecond=rounded(value.microsecond, digits)) - EPOCH) // datetime.timedelta(
            microseconds=1
        )
        return us if digits > 3 else us // 1000

    return Cell(f"datetime({digits})", 18, bytes((digits,)), stored, expected, st.datetimes())


def timestamps(digits: int) -> Cell:
    def stored(value: int) -> bytes:
        us = rounded(value % 1_000_000, digits)
        return (value // 1_000_000).to_bytes(4, "big") + fraction(us, digits)

    def expected(value: int) -> str:
        moment = EPOCH + datetime.timedelta(seconds=value // 1_000_000)
        ending = f".{value % 1_000_000:06d}"[: digits + 1] if digits else ""
        return f"{moment.isoformat()}{ending}Z"

    highest = (2**32 - 1) * 1_000_000
    return Cell(f"timestamp({digits})", 17, bytes((digits,)), stored, expected, st.integers(1_000_000, highest))


def times(digits: int) -> Cell:
    def stored(us: int) -> bytes:
        size = (digits + 1) // 2
        magnitude = abs(us)
        seconds = magnitude // 1_000_000
        packed = (seconds // 3600) << 12 | (seconds // 60 % 60) << 6 | seconds % 60
        packed = packed << 8 * size | int.from_bytes(fraction(rounded(magnitude % 1_000_000, digits), digits), "big")
        return ((0x800000 << 8 * size) + (packed if us >= 0 else -packed)).to_bytes(3 + size, "big")

    def expected(us: int) -> int:
        magnitude = rounded(abs(us), digits)
        return magnitude if us >= 0 else -magnitude

    longest = (838 * 3600 + 59 * 60 + 59) * 1_000_000
    return Cell(f"time({digits})", 19, bytes((digits,)), stored, expected, st.integers(-longest, longest))


def stored_date(value: datetime.date) -> bytes:
    return (value.year << 9 | value.month << 5 | value.day).to_bytes(3, "little")


def blob(value: bytes) -> bytes:
    return len(value).to_bytes(2, "little") + value


def base64_of(value: bytes) -> str:
    return base64.b64encode(value).decode()


plain_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
CELLS = (
    integer("tinyint", 1, 1),
    integer("tinyint unsigned", 1, 1, unsigned=True),
    integer("smallint", 2, 2),
    integer("smallint unsigned", 2, 2, unsigned=True),
    integer("mediumint", 9, 3),
    integer("mediumint unsigned", 9, 3, unsigned=True),
    integer("int", 3, 4),
    integer("int unsigned", 3, 4, unsigned=True),
    integer("bigint", 8, 8),
    integer("bigint unsigned", 8, 8, unsigned=True),
    Cell("double", 5, b"\x08", lambda value: struct.pack("<d", value), same, st.floats(allow_nan=False, allow_infinity=False)),
    Cell(
        "float", 4, b"\x04", lambda value: struct.pack("<f", value), same,
        st.integers(-9999, 9999).map(lambda number: number / 8),
    ),
    Cell("year", 13, b"", lambda value: bytes((value - 1900 if value else 0,)), same, st.just(0) | st.integers(1901, 2155)),
    Cell("bit(1)", 16, b"\x01\x00", lambda value: bytes((value,)), same, st.booleans()),
    Cell("bit(12)", 16, b"\x04\x01", lambda value: value.to_bytes(2, "big"),
         lambda value: base64_of(value.to_bytes(2, "little")), st.integers(0, 4095)),
    Cell("enum('a','b\\\"c','ü')", 254, b"\xf7\x01", lambda value: bytes((value,)),
         lambda value: ("", "a", 'b"c', "ü")[value], st.integers(0, 3)),
    Cell("set('a','b','c')", 254, b"\xf8\x01", lambda value: bytes((value,)),
         lambda value: ",".join(itertools.compress("abc", (value & 1, value & 2, value & 4))), st.integers(0, 7)),
    *(decimals(*form) for form in ((1, 0), (5, 5), (9, 0), (10, 2), (18, 0), (18, 4), (18, 9), (19, 4), (38, 10), (65, 30))),
    Cell("date", 10, b"", stored_date, lambda value: (value - EPOCH.date()).days, st.dates()),
    *(datetimes(digits) for digits in range(7)),
    *(timestamps(digits) for digits in range(7)),
    *(times(digits) for digits in range(7)),
    text("varchar(60)", b"\xf0\x00", "utf-8", plain_text),
    text("varchar(60) character set latin1", b"\x3c\x00", "cp1252", st.text("abc\\\"\n\x01éÿ€", max_size=60)),
    text("varchar(60) character set gbk", b"\x78\x00", "gbk", st.text("abc\\\"\n中文字", max_size=60)),
    text("longtext", b"\x04", "utf-8", plain_text.map(lambda value: value * 200), wire_type=252),
    Cell("blob", 252, b"\x02", blob, base64_of, st.binary(max_size=200)),
    Cell("varbinary(50)", 15, b"\x32\x00", lambda value: bytes((len(value),)) + value, base64_of, st.binary(max_size=50)),
    # The log drops a BINARY's zero bytes at the end.
    Cell("binary(4)", 254, b"\xfe\x04", lambda value: bytes((len(value.rstrip(b"\0")),)) + value.rstrip(b"\0"),
         base64_of, st.binary(min_size=4, max_size=4) | st.just(b"a\0\0\0")),
    Cell("json", 245, b"\x04", lambda value: struct.pack("<IBh", 3, 0x05, value), str, st.integers(-(2**15), 2**15 - 1)),
)  # fmt: skip


def table(columns: Sequence[str], key: Sequence[int] = ()) -> TableSchema:
    parts = [f"`c{nth}` {declared} NULL" for nth, declared in enumerate(columns)]
    parts += [f"PRIMARY KEY ({', '.join(f'c{nth}' for nth in key)})"] if key else []
    statement = f"CREATE TABLE t ({', '.join(parts)})".replace(" NULL", "" if key else " NULL")
    return show_create_to_schema(TableId(database="d", table="t"), statement, "utf8mb4")


def decoder_of(
    cells: Sequence[Cell], key: Sequence[int] = (), *, unavailable: str | None = None
) -> tuple[TableSchema, RowsDecoder]:
    schema = table([cell.declared for cell in cells], key)
    types, metadata = bytes(cell.wire_type for cell in cells), b"".join(cell.metadata for cell in cells)
    return schema, rows_decoder(schema, wire_columns(types, metadata), unavailable=unavailable)


def image(cells: Sequence[Cell], values: Sequence[Any]) -> bytes:
    nulls = sum(1 << nth for nth, value in enumerate(values) if value is None)
    parts = [cell.stored(value) for cell, value in zip(cells, values, strict=True) if value is not None]
    return nulls.to_bytes((len(cells) + 7) // 8, "little") + b"".join(parts)


def event(kind: int, columns: int, images: bytes, *, end_position: int = 1000, present: bytes | None = None) -> bytes:
    bitmap = present if present is not None else b"\xff" * ((columns + 7) // 8)
    bitmaps = bitmap * (2 if kind == binlog_events.UPDATE_ROWS else 1)
    body = NUMBER + b"\0\0\x02\0" + bytes((columns,)) + bitmaps + images
    return struct.pack("<IBIIIH", 0, kind, 1, 19 + len(body), end_position, 0) + body


def table_map(content: bytes = TABLE_MAP) -> bytes:
    return struct.pack("<IBIIIH", 0, binlog_events.TABLE_MAP, 1, 19 + len(content), 0, 0) + content


def packets(*events: bytes) -> Packets:
    ends = list(itertools.accumulate(map(len, events)))
    return Packets(b"".join(events), zip([0, *ends[:-1]], ends, strict=True))


def frame() -> EventFrame:
    return EventFrame(b',"source":{"pos":', b"}", (b',"op":"c"}', b',"op":"u"}', b',"op":"d"}'))


def rows_of(run: RunRows) -> list[tuple[str, bytes, dict[str, Any]]]:
    parsed = Run.FromString(run.encoded())
    return [
        (chr(op), key, orjson.loads(value)) for op, key, value in zip(run.ops, parsed.keys, parsed.values, strict=True)
    ]


def decode(decoder: RowsDecoder, *events: bytes, room: int = ENOUGH) -> tuple[int, int, int, RunRows]:
    run = RunRows()
    nth, decoded, left = decoder.decode(frame(), run, packets(*events), 0, NUMBER, TABLE_MAP, 0, room)
    return nth, decoded, left, run


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.declared)
@settings(max_examples=examples(100))
@given(data=st.data())
def test_each_type_has_its_wire_form(cell: Cell, data: st.DataObject) -> None:
    values = data.draw(st.lists(cell.values | st.none(), min_size=1, max_size=3))
    cells = [cell] * len(values)
    _, decoder = decoder_of(cells)
    *_, run = decode(decoder, event(binlog_events.WRITE_ROWS, len(cells), image(cells, values)))
    [(op, key, value)] = rows_of(run)
    expected = {f"c{nth}": None if item is None else cell.expected(item) for nth, item in enumerate(values)}
    assert (op, key) == ("c", b"")
    assert value["after"] == expected
    # byte for byte as orjson writes it
    assert orjson.dumps(expected) in Run.FromString(run.encoded()).values[0]


@pytest.mark.parametrize(
    ("declared", "wire_type", "metadata", "size", "zero", "null"),
    [
        ("date not null", 10, b"", 3, 0, None),
        ("datetime(3) not null", 18, b"\x03", 7, 0, None),
        ("timestamp(2) not null default now(2)", 17, b"\x02", 5, "1970-01-01T00:00:00Z", None),
    ],
)
def test_zero_dates_are_null_or_the_epoch(
    declared: str, wire_type: int, metadata: bytes, size: int, zero: object, null: object
) -> None:
    stored = b"\x80".ljust(size, b"\0") if wire_type == 18 else bytes(size)
    for form, expected in ((declared, zero), (declared.split(" not null")[0] + " null", null)):
        schema = show_create_to_schema(TableId(database="d", table="t"), f"CREATE TABLE t (c0 {form})", "utf8mb4")
        decoder = rows_decoder(schema, wire_columns(bytes((wire_type,)), metadata))
        *_, run = decode(decoder, event(binlog_events.WRITE_ROWS, 1, b"\0" + stored))
        assert rows_of(run)[0][2]["after"] == {"c0": expected}


ID, NAME = integer("int", 3, 4), text("varchar(60)", b"\xf0\x00", "utf-8", plain_text)
PAIR = (ID, NAME)


def test_update_of_a_key_is_a_delete_and_a_create() -> None:
    _, decoder = decoder_of(PAIR, key=(1, 0))
    images = image(PAIR, (1, "a")) + image(PAIR, (1, "b")) + image(PAIR, (1, "b")) + image(PAIR, (1, "b"))
    nth, decoded, _, run = decode(decoder, event(binlog_events.UPDATE_ROWS, 2, images))
    assert (nth, decoded) == (1, 3)
    assert [(op, key, value["before"], value["after"], value["op"]) for op, key, value in rows_of(run)] == [
        ("D", b'{"c1":"a","c0":1}', {"c0": 1, "c1": "a"}, None, "d"),
        ("C", b'{"c1":"b","c0":1}', None, {"c0": 1, "c1": "b"}, "c"),
        ("u", b'{"c1":"b","c0":1}', {"c0": 1, "c1": "b"}, {"c0": 1, "c1": "b"}, "u"),
    ]


def test_position_and_row_number_stand_in_the_source() -> None:
    _, decoder = decoder_of(PAIR)
    written = event(binlog_events.WRITE_ROWS, 2, image(PAIR, (1, "a")) + image(PAIR, (2, "b")), end_position=5000)
    *_, run = decode(decoder, written)
    assert [value["source"] for *_, value in rows_of(run)] == [
        {"pos": 5000 - len(written), "row": number} for number in (0, 1)
    ]


def test_numbers_count_through_the_events_of_a_transaction() -> None:
    _, decoder = decoder_of(PAIR, key=(0,))
    numbered = EventFrame(b',"source":{"pos":', b'},"transaction":{"total_order":', (b"}", b"}", b"}"), b"}")
    numbered.total_order, numbered.collection_order = 10, 3
    run = RunRows()
    moved = image(PAIR, (1, "a")) + image(PAIR, (2, "a"))
    log = packets(
        event(binlog_events.DELETE_ROWS, 2, image(PAIR, (9, "z"))), event(binlog_events.UPDATE_ROWS, 2, moved)
    )
    decoder.decode(numbered, run, log, 0, NUMBER, TABLE_MAP, 0, ENOUGH)
    assert [value["transaction"] for *_, value in rows_of(run)] == [
        {"total_order": 11, "data_collection_order": 4},
        {"total_order": 12, "data_collection_order": 5},
        {"total_order": 13, "data_collection_order": 6},
    ]
    assert (numbered.total_order, numbered.collection_order) == (13, 6)


def test_goes_on_over_equal_table_maps_and_stops_before_anything_else() -> None:
    _, decoder = decoder_of(PAIR)
    row = event(binlog_events.WRITE_ROWS, 2, image(PAIR, (1, "a")))
    commit = struct.pack("<IBIIIH", 0, binlog_events.XID, 1, 27, 0, 0) + bytes(8)
    other_table = row[:19] + b"\x06" + row[20:]
    for stop in (commit, table_map(NUMBER + b" another one "), other_table, b"", b"short"):
        nth, decoded, _, _ = decode(decoder, row, table_map(), row, stop, row)
        assert (nth, decoded) == (3, 2)


def test_stops_when_the_room_is_used_up() -> None:
    _, decoder = decoder_of(PAIR)
    row = event(binlog_events.WRITE_ROWS, 2, image(PAIR, (1, "a")))
    nth, decoded, left, _ = decode(decoder, *[row] * 10, room=1500)
    assert (nth, decoded) == (3, 3)
    assert left < 0


def test_columns_that_an_image_lacks_are_unavailable_or_unchanged() -> None:
    _, decoder = decoder_of(PAIR, key=(0,), unavailable="__debezium_unavailable_value")
    before, after = b"\xfe" + ID.stored(1), b"\xfe" + NAME.stored("b")
    bitmaps = b"\x01\x02"  # before: the key; after: the name
    body = NUMBER + b"\0\0\x02\0\x02" + bitmaps + before + after
    update = struct.pack("<IBIIIH", 0, binlog_events.UPDATE_ROWS, 1, 19 + len(body), 1000, 0) + body
    *_, run = decode(decoder, update)
    [(op, key, value)] = rows_of(run)
    assert (op, key) == ("u", b'{"c0":1}')
    assert value["before"] == {"c0": 1, "c1": "__debezium_unavailable_value"}
    assert value["after"] == {"c0": 1, "c1": "b"}
    # the bits beyond the last column are as they happen to be
    whole = event(binlog_events.WRITE_ROWS, 2, image(PAIR, (1, "a")), present=b"\x03")
    assert decode(decoder, whole)[:2] == (1, 1)


@pytest.mark.parametrize("unavailable", [None, "x"])
def test_a_key_that_the_log_lacks_is_an_error(unavailable: str | None) -> None:
    _, decoder = decoder_of(PAIR, key=(0,), unavailable=unavailable)
    row = event(binlog_events.DELETE_ROWS, 2, b"\0" + NAME.stored("x"), present=b"\x02")
    with pytest.raises(ValueError, match="binlog_row_image"):
        decode(decoder, row)


def test_decoding_goes_on_behind_a_row_that_was_passed_over() -> None:
    """Rows before it have been added, rows after it come with the next call, and its bytes are handed out."""
    _, decoder = decoder_of(PAIR)
    good, bad, last = image(PAIR, (1, "a")), b"\0" + ID.stored(2) + b"\x02\xc3\x28", image(PAIR, (3, "c"))
    log = packets(event(binlog_events.WRITE_ROWS, 2, good + bad + last), event(binlog_events.WRITE_ROWS, 2, good))
    run = RunRows()
    with pytest.raises(ValueError):
        decoder.decode(frame(), run, log, 0, NUMBER, TABLE_MAP, 0, ENOUGH)
    assert (decoder.added, decoder.event, decoder.row, decoder.column) == (1, 0, 1, 1)
    assert decoder.pass_over(log, 0) == (bad, True)
    nth, added, _ = decoder.decode(frame(), run, log, 0, NUMBER, TABLE_MAP, 0, ENOUGH)
    assert (nth, added) == (2, 2)
    assert [value["after"]["c0"] for *_, value in rows_of(run)] == [1, 3, 1]
    assert [value["source"]["row"] for *_, value in rows_of(run)] == [0, 2, 0]


def test_a_row_without_an_end_takes_the_rest_of_its_event_along() -> None:
    _, decoder = decoder_of(PAIR)
    cut = b"\0" + ID.stored(1) + b"\xff" + b"abc"
    log = packets(event(binlog_events.WRITE_ROWS, 2, cut))
    with pytest.raises(ValueError):
        decoder.decode(frame(), RunRows(), log, 0, NUMBER, TABLE_MAP, 0, ENOUGH)
    assert decoder.pass_over(log, 0) == (cut, False)
    # cut off before its first row: nothing of an earlier event is taken for it
    short = struct.pack("<IBIIIH", 0, binlog_events.UPDATE_ROWS, 1, 30, 0, 0) + NUMBER + b"\0\0\x02\0\x02"
    with pytest.raises(ValueError):
        decoder.decode(frame(), RunRows(), packets(short), 0, NUMBER, TABLE_MAP, 0, ENOUGH)
    assert decoder.pass_over(packets(short), 0)[1] is False


@pytest.mark.parametrize(
    ("cell", "stored"),
    [
        (text("varchar(60)", b"\xf0\x00", "utf-8", plain_text), b"\x02\xc3\x28"),
        (text("varchar(60)", b"\xf0\x00", "utf-8", plain_text), b"\x03\xed\xa0\x80"),  # half of a surrogate pair
        (decimals(10, 2), b"\x85\xff\xff\xff\xff"),
        (CELLS[15], b"\x04"),  # an ENUM beyond its members
        (CELLS[-1], b"\x03\0\0\0\xff\0\0"),  # no JSON
        (text("longtext", b"\x04", "utf-8", plain_text, wire_type=252), b"\xff\xff\xff\xff"),
        (ID, b"\x01\x02"),
    ],
)
def test_damaged_values_are_told_by_row_and_column(cell: Cell, stored: bytes) -> None:
    cells = (ID, cell)
    schema, decoder = decoder_of(cells)
    images = image(cells, (1, None)) + b"\0" + ID.stored(2) + stored
    with pytest.raises((ValueError, UndecodableValue)) as failed:
        decode(decoder, event(binlog_events.WRITE_ROWS, 2, images))
    told = str(undecodable(schema, decoder, failed.value))
    assert "d.t.c1 at row 1: the stored bytes " in told


@given(st.binary(max_size=200), st.sampled_from((30, 31, 32, 19)), st.integers(0, 8))
def test_rubbish_never_reads_beyond_its_event(rubbish: bytes, kind: int, checksum_bytes: int) -> None:
    cells = (ID, NAME, CELLS[2], decimals(10, 2), datetimes(6), text("longtext", b"\x04", "utf-8", plain_text, 252))
    _, decoder = decoder_of(cells)
    log = packets(event(kind, 6, rubbish))
    try:
        _, decoded, _ = decoder.decode(frame(), run := RunRows(), log, 0, NUMBER, TABLE_MAP, checksum_bytes, ENOUGH)
    except ValueError:
        return
    assert len(rows_of(run)) == decoded


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 9)), max_size=12), st.integers(1, 4))
def test_how_the_log_is_cut_changes_nothing(changes: list[tuple[int, int, int]], at_once: int) -> None:
    _, decoder = decoder_of(PAIR, key=(0,))
    events = []
    for kind, old, new in changes:
        images = image(PAIR, (old, "o")) + (image(PAIR, (new, "n")) if kind == 1 else b"")
        events += [table_map(), event(30 + kind, 2, images)]
    whole = decode(decoder, *events)[3] if events else RunRows()
    run = RunRows()
    for start in range(0, len(events), at_once):
        log = packets(*events[start : start + at_once])
        nth, _, _ = decoder.decode(frame(), run, log, 0, NUMBER, TABLE_MAP, 0, ENOUGH)
        assert nth == len(log)
    assert rows_of(run) == rows_of(whole)


def test_a_decimal_of_18_digits_is_exact() -> None:
    cell = decimals(18, 2)
    _, decoder = decoder_of([cell])
    *_, run = decode(decoder, event(binlog_events.WRITE_ROWS, 1, image([cell], (-(10**18) + 1,))))
    unscaled = int.from_bytes(base64.b64decode(rows_of(run)[0][2]["after"]["c0"]), "big", signed=True)
    assert decimal.Decimal(unscaled).scaleb(-2) == decimal.Decimal("-9999999999999999.99")
