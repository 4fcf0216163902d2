"""A transaction's rows as its changes: recorded forms of rows of large values, undo, and texts that cannot be read."""

from collections.abc import Sequence
from datetime import datetime

import pytest

from libs.oracle.log_rows import NO_ROW_ID, Operation
from libs.oracle.redo_values import NOT_LOGGED, Expression, Quoted, RedoValue, UnreadableRedo
from libs.oracle.undo import UndoContradiction
from services.logminer_reader.mined_rows import MinedRow
from services.logminer_reader.row_changes import RowChange, row_changes, values_of
from services.logminer_reader.transactions import OpenTransactions

XID = bytes(8)
INSERT = """insert into "SHOP"."FILES"("ID","DOC") values ('1',EMPTY_CLOB());"""
LOCATOR = (
    "DECLARE \n loc_c CLOB; \n buf_c VARCHAR2(6174); \n loc_b BLOB; \n buf_b RAW(6174); \n loc_nc NCLOB; \n"
    ' buf_nc NVARCHAR2(6174); \nBEGIN\n select "DOC" into loc_c from "SHOP"."FILES" where "ID" = \'1\' for update;'
)
LAST = """update "SHOP"."FILES" set "DOC" = EMPTY_CLOB() where "ID" = '1';"""
Row = tuple[Operation, str, str]
"""Operation, ROW_ID and text; ``!`` before the text: it takes another one back."""


def write(text: str, offset: int = 1) -> str:
    return f" buf_c := '{text}'; \n  dbms_lob.write(loc_c, {len(text)}, {offset}, buf_c);\n"


def mined(nth: int, row: Row, *, goes_on: bool = False) -> MinedRow:
    operation, row_id, text = row
    return MinedRow(
        scn=100 + nth,
        xid=XID,
        thread=1,
        rs_id=f" 0x000001.{nth:08x}.0010 ",
        ssn=0,
        operation=operation.value,
        is_undo=int(text.startswith("!")),
        goes_on=int(goes_on),
        status=0,
        object_id=7,
        object_version=1,
        row_id=row_id,
        timestamp=datetime(2026, 1, 1),
        user="APP",
        sequence=2,
        owner="SHOP",
        table="FILES",
        info=None,
        sql=text.removeprefix("!"),
    )


def changes(rows: Sequence[Row]) -> list[RowChange]:
    transactions = OpenTransactions(None, memory_bytes=100)
    for nth, row in enumerate(rows):
        transactions.add(mined(nth, row))
    transaction = transactions.ended(XID, 1_000)
    assert transaction is not None
    found = list(row_changes(transaction))
    transaction.close()
    return found


def test_an_insert_and_the_pieces_of_its_lob_are_one_change() -> None:
    (change,) = changes(
        [
            (Operation.INSERT, NO_ROW_ID, INSERT),
            (Operation.LOB_LOCATOR, NO_ROW_ID, LOCATOR),
            (Operation.LOB_WRITE, NO_ROW_ID, write("one ")),
            (Operation.LOB_WRITE, NO_ROW_ID, write("two", 5)),
            (Operation.UPDATE, "AAAR7MAAEAAAACXAAA", LAST),
        ]
    )

    assert (change.operation, change.row_id) == (Operation.INSERT, "AAAR7MAAEAAAACXAAA")
    assert values_of(change).after == {"ID": Quoted("1"), "DOC": Quoted("one two")}
    assert values_of(change).before == {}


def test_the_last_row_of_an_insert_has_its_small_lob() -> None:
    """A LOB within the row comes in the UPDATE that ends the change."""
    last = LAST.replace("EMPTY_CLOB()", "'small'")

    (change,) = changes([(Operation.INSERT, NO_ROW_ID, INSERT), (Operation.UPDATE, "A", last)])

    assert values_of(change).after == {"ID": Quoted("1"), "DOC": Quoted("small")}


def test_a_lob_that_was_written_anew_is_an_update() -> None:
    rows = [(Operation.UPDATE, NO_ROW_ID, LAST), (Operation.LOB_LOCATOR, NO_ROW_ID, LOCATOR)]

    (change,) = changes([*rows, (Operation.LOB_WRITE, NO_ROW_ID, write("new")), (Operation.UPDATE, "A", LAST)])

    assert (change.operation, values_of(change).before) == (Operation.UPDATE, {"ID": Quoted("1")})
    assert values_of(change).after == {"DOC": Quoted("new")}


@pytest.mark.parametrize(
    ("operation", "text"),
    [(Operation.LOB_WRITE, write("x", 9)), (Operation.LOB_TRIM, "dbms_lob.trim(loc_c, 4);")],
)
def test_a_piece_of_a_lob_that_is_not_known_leaves_it_unknown(operation: Operation, text: str) -> None:
    """Never the piece alone, and never NULL."""
    (change,) = changes([(Operation.LOB_LOCATOR, "A", LOCATOR), (operation, "A", text)])

    assert (change.operation, values_of(change).before) == (Operation.UPDATE, {"ID": Quoted("1")})
    assert values_of(change).after == {"DOC": NOT_LOGGED}


def test_a_lob_that_was_undone_leaves_the_one_before() -> None:
    """Recorded sequence 8, with a text: the connector of Debezium 3.6.1 gives no event at all."""
    undone = LAST.replace("EMPTY_CLOB()", "'undone'")

    (change,) = changes(
        [
            (Operation.INSERT, NO_ROW_ID, INSERT),
            (Operation.UPDATE, "A", LAST.replace("EMPTY_CLOB()", "'before'")),
            (Operation.UPDATE, NO_ROW_ID, undone),
            (Operation.UPDATE, "A", undone),
            (Operation.UPDATE, "A", "!update SHOP"),
        ]
    )

    assert (change.operation, values_of(change).after["DOC"]) == (Operation.INSERT, Quoted("before"))


def test_rows_of_temporary_tables_are_no_changes() -> None:
    text = "/* No SQL_REDO for temporary tables */"

    assert changes([(Operation.DELETE, "A", text), (Operation.DELETE, "A", text)]) == []


def test_an_undo_that_fits_nothing_is_a_contradiction() -> None:
    rows = [(Operation.INSERT, "A", INSERT), (Operation.DELETE, "B", "!delete")]

    with pytest.raises(UndoContradiction, match="RS_ID"):
        changes(rows)


def test_a_text_that_is_cut_fails_alone() -> None:
    """Not NULL, and no other row fails with it."""
    cut = """insert into "SHOP"."FILES"("ID","NM") values ('1','uncl"""

    first, second = changes([(Operation.INSERT, "A", cut), (Operation.INSERT, "B", INSERT)])

    with pytest.raises(UnreadableRedo):
        values_of(first)
    assert values_of(second).after["ID"] == Quoted("1")


@pytest.mark.parametrize("value", ["it''s", "a" * 4_100])
def test_pieces_of_a_text_are_one_statement(value: str) -> None:
    text = f"""insert into "SHOP"."FILES"("ID","NM") values ('1','{value}');"""
    transactions = OpenTransactions(None, memory_bytes=1 << 20)
    for nth in range(0, len(text), 40):
        transactions.add(mined(0, (Operation.INSERT, "A", text[nth : nth + 40]), goes_on=nth + 40 < len(text)))
    transaction = transactions.ended(XID, 1_000)
    assert transaction is not None

    (change,) = row_changes(transaction)

    expected: RedoValue = Quoted(value.replace("''", "'"))
    assert values_of(change).after == {"ID": Quoted("1"), "NM": expected}


def test_bytes_come_as_the_log_prints_them() -> None:
    locator = LOCATOR.replace("into loc_c", "into loc_b")
    data = " buf_b := HEXTORAW('00ff'); \n  dbms_lob.write(loc_b, 2, 1, buf_b);\n"
    insert = INSERT.replace("EMPTY_CLOB", "EMPTY_BLOB")
    rows = [(Operation.INSERT, NO_ROW_ID, insert), (Operation.LOB_LOCATOR, NO_ROW_ID, locator)]

    (change,) = changes([*rows, (Operation.LOB_WRITE, NO_ROW_ID, data)])

    assert values_of(change).after["DOC"] == Expression("HEXTORAW('00ff')")
