"""The compiled decoder of SQL_REDO against the plain reading, and the events that it writes."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.events.batch import OP_CREATE, OP_DELETE, OP_KEY_CHANGE_CREATE, OP_KEY_CHANGE_DELETE, OP_UPDATE
from libs.events.envelope import OracleSourceBlock, event_tail
from libs.events.run_rows import RunRows
from libs.formats.connect_schema import EnvelopeForm, value_schema
from libs.oracle.logical import column, in_value_modes
from libs.oracle.redo import OracleFrame, RedoDecoder
from libs.oracle.redo_rows import PlainRows, RedoRow, UnloggedValue, failure_reason, redo_decoder
from libs.oracle.redo_values import UnreadableRedo
from libs.oracle.values import UnwritableValue
from libs.types.table import TableId, TableSchema
from libs.types.value import UNAVAILABLE_VALUE
from libs.types.value_modes import BinaryMode, DecimalMode, OracleValueModes, TimePrecision, ZeroScaleMode

COLUMNS = {
    "ID": "NUMBER(9,0)",
    "Name": "VARCHAR2(40)",
    "WHERE": "NUMBER(12,2)",
    "a b": "NUMBER",
    "COL,1": "DATE",
    "X)Y": "TIMESTAMP(9)",
    "列": "RAW(16)",
    "A'B": "NVARCHAR2(40)",
    "T": "TIMESTAMP(3) WITH TIME ZONE",
    "F": "BINARY_DOUBLE",
    "DOC": "CLOB",
    "I": "INTERVAL DAY(2) TO SECOND(6)",
}
KINDS = list(COLUMNS)


def table(modes: OracleValueModes | None = None, **types: str) -> TableSchema:
    """A table of columns by name, whose key is the first. INTCOL# 2 is of an unused column."""
    columns = tuple(
        msgspec.structs.replace(column(name, source_type), number=nth + (nth > 1))
        for nth, (name, source_type) in enumerate((types or COLUMNS).items(), start=1)
    )
    schema = TableSchema(
        table_id=TableId(database="SHOP", table="T"), columns=columns, key=(columns[0].name,), version=1
    )
    return in_value_modes(schema, modes or OracleValueModes())


ORDERS = table(ID="NUMBER(9,0)", NM="VARCHAR2(20)", AMT="NUMBER(12,2)", AT="TIMESTAMP(6)", DOC="CLOB")
MODES = (
    OracleValueModes(),
    OracleValueModes(
        time_precision=TimePrecision.NANOSECONDS,
        decimal=DecimalMode.STRING,
        binary=BinaryMode.HEX,
        zero_scale_numbers=ZeroScaleMode.INTEGER,
    ),
    OracleValueModes(time_precision=TimePrecision.MICROSECONDS, decimal=DecimalMode.DOUBLE, binary=BinaryMode.BASE64),
    OracleValueModes(time_precision=TimePrecision.ISO_STRING),
)

# --- random statements ------------------------------------------------------------------------------------------------

TEXTS = st.one_of(
    st.sampled_from(
        ["", "x", "O'Neil", "' and \"ID\" = '1", "),(", ";", "; ", '"q"', "\n\t\\", "NULL", "😀", "''", " where "]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)
NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.decimals(-(10**12), 10**12, allow_nan=False, places=2).map(lambda number: format(number, "f")),
    st.sampled_from(
        ["0", "-0", ".5", "-.05", "1E125", "-1E-130", "007", "5.", "1.500", "", "-", ".", "1,5", "999999999999999999"]
    ),
    st.integers(-(10**9), 10**9).map(str),
)
CLOCKS = st.builds(
    "{:04d}-{:02d}-{:02d} {:02d}:{:02d}:{:02d}{}".format,
    st.integers(0, 9999),
    st.integers(0, 13),
    st.integers(0, 32),
    st.integers(0, 24),
    st.integers(0, 60),
    st.integers(0, 60),
    st.sampled_from(["", ".", ".5", ".123456", ".123456789", ".1234567891"]),
)


def quoted(text: str) -> str:
    """As SQL has it."""
    return "'" + text.replace("'", "''") + "'"


VALUES = st.one_of(
    st.just("NULL"),
    st.just("Unsupported Type"),
    TEXTS.map(quoted),
    NUMBERS.map(quoted),
    NUMBERS.filter(bool),
    CLOCKS.map(lambda clock: f"TO_DATE({quoted(clock)}, 'YYYY-MM-DD HH24:MI:SS')"),
    CLOCKS.map(lambda clock: f"TO_TIMESTAMP({quoted(clock)})"),
    CLOCKS.map(lambda clock: f"TO_DATE({quoted(' ' + clock)}, 'SYYYY-MM-DD HH24:MI:SS')"),
    CLOCKS.map(lambda clock: f"TO_TIMESTAMP_TZ({quoted(clock + ' +02:00')})"),
    st.binary(max_size=20).map(lambda data: f"HEXTORAW('{data.hex()}')"),
    st.sampled_from(
        [
            "HEXTORAW('0')", "HEXTORAW('zz')", "EMPTY_CLOB()", "UNISTR('\\0412\\044B')", "'a' || 'b'", "NULLIF('a')",
            "UNISTR('a\\0412') || UNISTR('b''c')", "TO_DSINTERVAL('+05 10:11:12.000000')", "TO_DATE('x", "'x", "'x'y'",
            "TO_DATE('2022-01-01 00:00:00', 'it''s')", "Nan", "/* JSON */ '{}'",
        ]
    ),
)  # fmt: skip
DAYS = st.builds(
    "{:04d}-{:02d}-{:02d} {:02d}:{:02d}:{:02d}".format,
    st.integers(0, 9999),
    *(st.integers(low, high) for low, high in ((1, 12), (1, 31), (0, 23), (0, 59), (0, 59))),
)
FRACTIONS = st.one_of(st.just(""), st.integers(0, 999_999_999).map(lambda nanoseconds: f".{nanoseconds:09d}"))
OWN_NUMBERS = st.one_of(
    st.integers(-(10**18), 10**18).map(str),
    st.decimals(-(10**9), 10**9, allow_nan=False, places=6).map(lambda number: format(number, "f")),
    st.sampled_from(["0", ".5", "-.05", "1E125", "-1E-130", "1.500", "999999999999999999", "1234567890123456789"]),
)
FITTING = {
    "ID": st.integers(-(10**9) + 1, 10**9 - 1).map(lambda number: quoted(str(number))),
    "Name": TEXTS.map(quoted),
    "WHERE": st.decimals(-(10**9), 10**9, allow_nan=False, places=2).map(lambda number: quoted(format(number, "f"))),
    "a b": OWN_NUMBERS.map(quoted),
    "COL,1": DAYS.map(lambda day: f"TO_DATE({quoted(day)}, 'YYYY-MM-DD HH24:MI:SS')"),
    "X)Y": st.builds("TO_TIMESTAMP('{}{}')".format, DAYS, FRACTIONS),
    "列": st.binary(max_size=20).map(lambda data: f"HEXTORAW('{data.hex()}')"),
    "A'B": st.sampled_from(["UNISTR('\\0412\\044B')", "UNISTR('a\\0412') || UNISTR('b''c')", "'plain'", "'列'"]),
    "T": st.builds("TO_TIMESTAMP_TZ('{}{} -03:30')".format, DAYS, FRACTIONS),
    "F": st.sampled_from(["'1.5E+002'", "-2.25E-003", "'Nan'", "'-Inf'"]),
    "DOC": TEXTS.map(quoted),
    "I": st.just("TO_DSINTERVAL('-05 10:11:12.000001')"),
}


@st.composite
def statements(draw: st.DrawFn) -> str:
    """As LogMiner may write them: two of three with values that fit alone, one in four in another order or spelling."""
    has_odd_values = not draw(st.integers(0, 2))
    is_unusual = not draw(st.integers(0, 3))
    names = [name for name in KINDS if draw(st.integers(0, 9))]
    if is_unusual:
        names = draw(st.permutations([*names, draw(st.sampled_from([*KINDS, "COL 3", "SYS_NC00005$", "GONE"]))]))

    def value(name: str) -> str:
        fitting = FITTING.get(name)
        if fitting is None or (has_odd_values and not draw(st.integers(0, 3))):
            return draw(VALUES)
        return draw(st.one_of(st.just("NULL"), fitting))

    def conditions() -> str:
        pairs = [(name, value(name)) for name in names]
        texts = [f'"{name}" IS NULL' if text == "NULL" else f'"{name}" = {text}' for name, text in pairs]
        return " where " + " and ".join(texts) if texts else ""

    space = draw(st.sampled_from(["", " "])) if is_unusual else ""
    end = draw(st.sampled_from(["", " ;", ";;"])) if is_unusual else ";"
    match draw(st.sampled_from(["i", "u", "d"])):
        case "i":
            values = f",{space}".join(value(name) for name in names)
            return 'insert into "SHOP"."T"(' + ",".join(f'"{name}"' for name in names) + f") values ({values}){end}"
        case "u":
            changed = names[: draw(st.integers(0, len(names)))]
            return (
                'update "SHOP"."T" set '
                + ", ".join(f'"{name}" = {value(name)}' for name in changed)
                + conditions()
                + end
            )
        case _:
            return 'delete from "SHOP"."T"' + conditions() + end


def outcome(read: Any, *arguments: Any) -> Any:
    """The result, or the class of the error."""
    try:
        return read(*arguments)
    except (UnreadableRedo, UnwritableValue, UnloggedValue, UnicodeDecodeError) as error:
        return type(error)


def plain_images(rows: PlainRows, schema: TableSchema, sql: bytes) -> Any:
    """The plain reading as ``RedoDecoder.decoded`` has it."""
    op, before, after = rows.read(sql)

    def image(cells: list[bytes] | None) -> bytes | None:
        if cells is None:
            return None
        members = (
            msgspec.json.encode(each.name) + b":" + cell for each, cell in zip(schema.columns, cells, strict=True)
        )
        return b"{" + b",".join(members) + b"}"

    def key(cells: list[bytes]) -> bytes:
        return b"{" + msgspec.json.encode(schema.columns[0].name) + b":" + cells[0] + b"}"

    old_key = key(before) if op == OP_UPDATE and before is not None else b""
    return op, image(before), image(after), old_key, key(after if after is not None else before or [])


@pytest.mark.parametrize("modes", MODES)
@pytest.mark.parametrize("unavailable", [None, UNAVAILABLE_VALUE])
@settings(max_examples=60)
@given(sql=statements())
def test_compiled_reading_is_the_plain_one(modes: OracleValueModes, unavailable: str | None, sql: str) -> None:
    """Byte for byte, and error for error."""
    schema = table(modes)
    rows = PlainRows(schema, unavailable=unavailable)
    decoder = redo_decoder(schema, unavailable=unavailable)

    assert outcome(decoder.decoded, sql.encode()) == outcome(plain_images, rows, schema, sql.encode())


def test_usual_statements_are_read_compiled() -> None:
    """A test that compared the plain reading with itself would hold nothing."""
    decoder = redo_decoder(table(), unavailable=UNAVAILABLE_VALUE)
    sqls = (
        """insert into "SHOP"."T"("ID","Name","WHERE","a b","COL,1","X)Y","列","A'B") values ('7','it''s',NULL,'.5',"""
        """TO_DATE('2022-03-27 01:02:03', 'YYYY-MM-DD HH24:MI:SS'),TO_TIMESTAMP('2022-03-27 01:02:03.5'),HEXTORAW('0aff'),"""
        """UNISTR('\\5217') || UNISTR('z'));""",
        """update "SHOP"."T" set "WHERE" = '1.50' where "ID" = '7' and "Name" IS NULL and "F" = '1.5E+002';""",
        """delete from "SHOP"."T" where "ID" = '7' and "DOC" = Unsupported Type;""",
    )

    for sql in sqls:
        decoder.decoded(sql.encode())

    assert decoder.plain_rows == 0


CASES = json.loads(Path("tests/golden/cases/a_oracle_logminer.json").read_text(encoding="utf-8"))["cases"]


@pytest.mark.parametrize(
    "case", [each for each in CASES if each["kind"].startswith("dml")], ids=lambda case: case["id"]
)
def test_recorded_statements_are_read_alike(case: Any) -> None:
    """The texts of Debezium's tests, over columns of text."""
    names = [each if isinstance(each, str) else each["name"] for each in case["columns"]]
    schema = table(None, **dict.fromkeys(names, "VARCHAR2(4000)"))
    rows = PlainRows(schema, unavailable=UNAVAILABLE_VALUE)
    decoder = redo_decoder(schema, unavailable=UNAVAILABLE_VALUE)
    sql = case["sql"].encode()

    assert outcome(decoder.decoded, sql) == outcome(plain_images, rows, schema, sql)


# --- values that the log lacks ----------------------------------------------------------------------------------------

LACKING = """update "SHOP"."T" set "NM" = 'a' where "ID" = '1' and "NM" = 'b' and "AMT" = '1' and "AT" IS NULL;"""


INSERTED = """insert into "SHOP"."T"("ID","NM") values ('1','');"""


@pytest.mark.parametrize("sql", [LACKING, INSERTED])
def test_large_column_that_was_not_printed_is_unavailable(sql: str) -> None:
    """A WHERE clause never has it, and an INSERT's pieces may be lost: it is never NULL."""
    decoder = redo_decoder(ORDERS, unavailable=UNAVAILABLE_VALUE)
    _, before, after, _, _ = decoder.decoded(sql.encode())

    assert decoder.plain_rows == 0
    assert all(json.loads(image)["DOC"] == UNAVAILABLE_VALUE for image in (before, after) if image)
    with pytest.raises(UnloggedValue) as caught:
        redo_decoder(ORDERS).decoded(sql.encode())
    assert caught.value.column == "DOC"


@pytest.mark.parametrize(
    ("sql", "lacks"),
    [
        (LACKING.replace(""" and "AMT" = '1'""", ""), "AMT"),
        (LACKING.replace(""""ID" = '1' and """, ""), "ID"),
        (LACKING.replace("set \"NM\" = 'a'", 'set "NM" = Unsupported Type'), "NM"),
        ("""delete from "SHOP"."T" where ROWID = 'AAAR3sAAEAAAACXAAA';""", "ID"),
    ],
)
def test_lacking_column_is_named_with_the_remedy(sql: str, lacks: str) -> None:
    """The new value of ``Unsupported Type`` is never the old one."""
    decoder = redo_decoder(ORDERS)
    with pytest.raises(UnloggedValue) as caught:
        decoder.decoded(sql.encode())

    assert caught.value.column == decoder.column == lacks
    assert 'ALTER TABLE "SHOP"."T" ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS' in failure_reason(
        ORDERS, decoder.column, caught.value
    )


def test_placeholder_stands_for_all_but_the_key() -> None:
    """``values.unavailable_placeholder``: an update is not delivered under a key that nobody knows."""
    decoder = redo_decoder(ORDERS, unavailable="gone")
    sql = """update "SHOP"."T" set "AMT" = Unsupported Type where "ID" = '1';"""

    _, before, after, _, key = decoder.decoded(sql.encode())

    assert json.loads(before or b"") == {"ID": 1, "NM": "gone", "AMT": "gone", "AT": "gone", "DOC": "gone"}
    assert json.loads(after or b"")["AMT"] == "gone"
    assert key == b'{"ID":1}'
    with pytest.raises(UnloggedValue):
        decoder.decoded(b"""delete from "SHOP"."T" where "NM" = 'a';""")


def test_insert_without_a_column_has_null() -> None:
    """LogMiner leaves out columns at the end that are NULL."""
    _, _, after, _, _ = redo_decoder(ORDERS, unavailable="?").decoded(INSERTED.encode())

    assert json.loads(after or b"") == {"ID": 1, "NM": "", "AMT": None, "AT": None, "DOC": "?"}


def test_rows_of_another_dictionary_are_read_by_number() -> None:
    """``COL n`` counts hidden columns too; the values are in Oracle's storage format."""
    decoder = redo_decoder(ORDERS, unavailable="?")
    values = "HEXTORAW('c109'),NULL,HEXTORAW('7465737435')"
    sql = f"""insert into "UNKNOWN"."OBJ# 73196"("COL 1","COL 2","COL 3") values ({values});"""

    _, _, after, _, _ = decoder.decoded(sql.encode())

    assert json.loads(after or b"") == {"ID": 8, "NM": "test5", "AMT": None, "AT": None, "DOC": "?"}


@pytest.mark.parametrize("name", ["GONE", "COL 9"])
def test_column_that_the_version_lacks_fails_by_its_name(name: str) -> None:
    """It may be a new one: rows are not delivered without it."""
    decoder = redo_decoder(ORDERS, unavailable="?")
    with pytest.raises(UnreadableRedo):
        decoder.decoded(f"""insert into "SHOP"."T"("ID","{name}") values ('1','2');""".encode())

    assert decoder.column == name


def test_bad_value_is_named_without_the_value() -> None:
    """The reason goes into logs and dead letters: it names the column and holds no value."""
    decoder = redo_decoder(ORDERS, unavailable="?")
    reasons = []
    for value in ("'secret'", "TO_DATE('secret')", "'1.234'"):
        with pytest.raises((UnreadableRedo, UnwritableValue)) as caught:
            decoder.decoded(f"""insert into "SHOP"."T"("ID","AMT") values ('1',{value});""".encode())
        assert decoder.column == "AMT"
        reasons.append(failure_reason(ORDERS, decoder.column, caught.value))

    assert all(reason.startswith("column AMT: ") for reason in reasons)
    assert not any("secret" in reason or "1.234" in reason for reason in reasons)


# --- events ---------------------------------------------------------------------------------------------------------

ENDS = [event_tail(op, 1_700_000_000_000_000_000) for op in "cudr"]
BLOCK = OracleSourceBlock("ora", "ORCLPDB1", "SHOP", "T")


def frame(*, is_numbered: bool = False) -> OracleFrame:
    """Of a transaction."""
    pieces = BLOCK.pieces(
        snapshot=b'"false"',
        transaction_id="0a00070084220000",
        commit_scn=7_102_933,
        user="SHOP",
        commit_ts_ms=1_700_000_001_000,
        start_scn=7_102_900,
        start_ts_ms=1_700_000_000_000,
    )
    if is_numbered:
        return OracleFrame(pieces, b',"transaction":{"id":"x","total_order":', ENDS, b"}")
    return OracleFrame(pieces, b',"transaction":null', ENDS)


def redo(sql: str, ordinal: int = 1) -> RedoRow:
    """A row of the log."""
    return RedoRow(
        sql.encode(), 2**60, 1_700_000_000_123_456, 2, 3, b"0x0031f7.008fe16a.0188", b"AAAR3sAAEAAAACXAAA", ordinal
    )


INSERT = """insert into "SHOP"."T"("ID","NM","AMT","DOC") values ('1','a','1.5',NULL);"""
NEW_KEY = """update "SHOP"."T" set "ID" = '2' where "ID" = '1' and "NM" = 'a' and "AMT" = '1.5' and "AT" IS NULL;"""
DELETE = """delete from "SHOP"."T" where "ID" = '2' and "NM" = 'a' and "AMT" = '1.5' and "AT" IS NULL;"""


def orders_decoder() -> RedoDecoder:
    """With a text for values that the log lacks."""
    return redo_decoder(ORDERS, unavailable=UNAVAILABLE_VALUE)


def events(decoder: RedoDecoder, of: OracleFrame, rows: list[RedoRow]) -> tuple[bytes, list[Any], list[Any]]:
    """Operations, keys and values of the run."""
    run = RunRows()
    assert decoder.decode(of, run, rows, 0, len(rows), 1_000_000) == len(rows)
    return run.ops, list(map(json.loads, run.keys())), list(map(json.loads, run.values()))


def test_event_has_the_members_of_debezium_in_its_order() -> None:
    """Source block by its own schema (``tests/golden/oracle``), SCNs as text."""
    recorded = json.loads(Path("tests/golden/oracle/source_block_schema.json").read_text(encoding="utf-8"))
    built = value_schema("ora", ORDERS, EnvelopeForm(connector="oracle"))

    ops, keys, [value] = events(orders_decoder(), frame(), [redo(INSERT)])

    [source] = [field for field in built["fields"] if field["field"] == "source"]
    assert {**recorded, "field": "source"} == source
    assert list(value["source"]) == [field["field"] for field in recorded["fields"]]
    assert value["source"] == {
        "version": "0.1.0",
        "connector": "oracle",
        "name": "ora",
        "ts_ms": 1_700_000_000_123,
        "snapshot": "false",
        "db": "ORCLPDB1",
        "sequence": None,
        "ts_us": 1_700_000_000_123_456,
        "ts_ns": 1_700_000_000_123_456_000,
        "schema": "SHOP",
        "table": "T",
        "txId": "0a00070084220000",
        "scn": str(2**60),
        "commit_scn": "7102933",
        "lcr_position": None,
        "rs_id": "0x0031f7.008fe16a.0188",
        "ssn": 3,
        "redo_thread": 2,
        "user_name": "SHOP",
        "redo_sql": None,
        "row_id": "AAAR3sAAEAAAACXAAA",
        "commit_ts_ms": 1_700_000_001_000,
        "start_scn": "7102900",
        "start_ts_ms": 1_700_000_000_000,
        "txSeq": 1,
    }
    assert (ops, keys) == (bytes([OP_CREATE]), [{"ID": 1}])
    assert value["after"] == {"ID": 1, "NM": "a", "AMT": "AJY=", "AT": None, "DOC": None}
    assert (value["before"], value["op"], value["transaction"]) == (None, "c", None)


def test_a_moment_before_1970_is_in_the_millisecond_that_it_is_in() -> None:
    """A database's clock may stand there. Milliseconds are rounded down, as ``//`` does in Python."""
    for time_us in (-1, -999, -1_000, -1_001, 1_999):
        row = RedoRow(INSERT.encode(), 2**60, time_us, 2, 3, b"0x0031f7.008fe16a.0188", b"AAAR3sAAEAAAACXAAA", 1)

        _, _, [value] = events(orders_decoder(), frame(), [row])

        assert value["source"]["ts_ms"] == time_us // 1_000


def test_block_of_a_snapshot_has_the_same_members() -> None:
    """No transaction brought the row."""
    block = json.loads(BLOCK.filled(snapshot=b'"true"', time_us=5_000_001, scn=77))
    recorded = json.loads(Path("tests/golden/oracle/source_block_schema.json").read_text(encoding="utf-8"))

    assert list(block) == [field["field"] for field in recorded["fields"]]
    assert (block["ts_ms"], block["ts_ns"], block["scn"], block["snapshot"]) == (5_000, 5_000_001_000, "77", "true")
    assert block["txSeq"] is block["commit_scn"] is block["row_id"] is None


def test_new_key_is_a_delete_and_a_create() -> None:
    """As in every reader; the two are adjacent, and counted by the transaction block."""
    rows = [redo(INSERT), redo(NEW_KEY, 2), redo(DELETE, 3)]

    ops, keys, values = events(orders_decoder(), frame(is_numbered=True), rows)

    assert ops == bytes([OP_CREATE, OP_KEY_CHANGE_DELETE, OP_KEY_CHANGE_CREATE, OP_DELETE])
    assert [key["ID"] for key in keys] == [1, 1, 2, 2]
    assert [value["transaction"]["total_order"] for value in values] == [1, 2, 3, 4]
    assert [value["source"]["txSeq"] for value in values] == [1, 2, 2, 3]


def test_cells_of_a_merged_change_give_the_same_event() -> None:
    """The road of rows whose LOBs were put together, or that were read again."""
    decoder = orders_decoder()
    direct, by_cells = RunRows(), RunRows()
    rows = [redo(INSERT), redo(NEW_KEY, 2), redo(DELETE, 3)]

    decoder.decode(frame(), direct, rows, 0, 3, 1_000_000)
    of = frame()
    for row in rows:
        decoder.add_cells(of, by_cells, *_op_and_row(decoder, row))

    assert direct.encoded() == by_cells.encoded()


def _op_and_row(decoder: RedoDecoder, row: RedoRow) -> Any:
    op, before, after = decoder.plain.read(row.sql)
    return op, row, before, after


def test_decoding_stops_when_the_room_is_used_and_at_a_bad_row() -> None:
    """Rows before a bad one are there, and the place of the bad one is known."""
    decoder, run = orders_decoder(), RunRows()
    rows = [redo(INSERT), redo(INSERT), redo("""insert into "SHOP"."T"("ID","NM") values ('1','uncl"""), redo(DELETE)]

    assert decoder.decode(frame(), run, rows, 0, 4, 1) == 1
    with pytest.raises(UnreadableRedo):
        decoder.decode(frame(), run, rows, 1, 4, 1_000_000)

    assert decoder.row == 2
    assert len(run) == 2
    assert decoder.decode(frame(), run, rows, 3, 4, 1_000_000) == 4
