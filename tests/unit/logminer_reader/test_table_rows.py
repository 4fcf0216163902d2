"""A change as events: key changes, columns that the log numbers, values that it lacks."""

import json

import msgspec
import pytest

from libs.events.batch import OP_CREATE, OP_DELETE, OP_KEY_CHANGE_CREATE, OP_KEY_CHANGE_DELETE, OP_UPDATE
from libs.oracle.log_rows import Operation
from libs.oracle.logical import column
from libs.oracle.redo_values import NOT_LOGGED, Expression, Quoted, RedoValue
from libs.types.table import TableId, TableSchema
from services.logminer_reader.row_changes import RowChange
from services.logminer_reader.table_rows import TableRows, UnreadableColumn
from services.logminer_reader.transactions import StoredRow

SCHEMA = TableSchema(
    table_id=TableId(database="SHOP", table="ORDERS"),
    columns=tuple(
        msgspec.structs.replace(column(name, kind, charset="AL32UTF8"), number=number)
        for number, name, kind in ((1, "ID", "NUMBER(9,0)"), (2, "NM", "VARCHAR2(20)"), (4, "DOC", "CLOB"))
    ),
    key=("ID",),
    version=3,
)
ROW = StoredRow(1, 1, " 0x1.2.3 ", 0, 1, False, 0, 7, 1, "A", 0, 1, "")


def events(
    operation: Operation, before: dict[str, RedoValue], after: dict[str, RedoValue], unavailable: str | None = "?"
) -> list[tuple[int, object, object, object]]:
    found = TableRows(SCHEMA, unavailable).events(RowChange(ROW, operation, "A", before, after))
    return [(event.op, *(json.loads(each) for each in (event.key, event.before, event.after))) for event in found]


def test_an_insert_has_no_row_before() -> None:
    after = {"ID": Quoted("1"), "NM": None, "DOC": Quoted("é")}

    assert events(Operation.INSERT, {}, after) == [(OP_CREATE, {"ID": 1}, None, {"ID": 1, "NM": None, "DOC": "é"})]


def test_an_update_keeps_the_columns_that_it_did_not_set() -> None:
    before = {"ID": Quoted("1"), "NM": Quoted("old")}

    assert events(Operation.UPDATE, before, {"NM": Quoted("new")}) == [
        (OP_UPDATE, {"ID": 1}, {"ID": 1, "NM": "old", "DOC": "?"}, {"ID": 1, "NM": "new", "DOC": "?"})
    ]


def test_a_new_key_is_a_delete_and_a_create() -> None:
    """Fault 33."""
    before = {"ID": Quoted("1"), "NM": Quoted("x")}

    assert events(Operation.UPDATE, before, {"ID": Quoted("2")}) == [
        (OP_KEY_CHANGE_DELETE, {"ID": 1}, {"ID": 1, "NM": "x", "DOC": "?"}, None),
        (OP_KEY_CHANGE_CREATE, {"ID": 2}, None, {"ID": 2, "NM": "x", "DOC": "?"}),
    ]


def test_columns_that_the_log_numbers_have_the_names_of_their_version() -> None:
    """Faults 29 and 31: column 3 was made unused, so DOC is still the fourth."""
    before = {"COL 1": Expression("HEXTORAW('c109')"), "COL 2": Expression("HEXTORAW('7465737435')"), "COL 3": None}

    assert events(Operation.DELETE, before, {}) == [
        (OP_DELETE, {"ID": 8}, {"ID": 8, "NM": "test5", "DOC": "?"}, None),
    ]


@pytest.mark.parametrize(
    ("after", "column_name"),
    [
        ({"ID": Quoted("1"), "NM": Quoted("x"), "OTHER": Quoted("1")}, "OTHER"),
        ({"ID": Quoted("1"), "NM": Quoted("x"), "COL 9": Quoted("1")}, "COL 9"),
        ({"ID": Quoted("one"), "NM": None}, "ID"),
    ],
)
def test_a_value_that_fits_no_column_fails_by_its_name(after: dict[str, RedoValue], column_name: str) -> None:
    with pytest.raises(UnreadableColumn) as caught:
        events(Operation.INSERT, {}, after)

    assert caught.value.column == column_name


@pytest.mark.parametrize("after", [{"DOC": NOT_LOGGED}, {}])
def test_a_value_that_the_log_lacks_is_never_null(after: dict[str, RedoValue]) -> None:
    """Fault 21."""
    before = {"ID": Quoted("1"), "NM": Quoted("x")}

    [(_, _, _, row)] = events(Operation.UPDATE, before, after)
    assert row == {"ID": 1, "NM": "x", "DOC": "?"}
    with pytest.raises(UnreadableColumn, match="SUPPLEMENTAL LOG DATA"):
        events(Operation.UPDATE, before, after, unavailable=None)


def test_a_key_that_the_log_lacks_is_no_placeholder() -> None:
    with pytest.raises(UnreadableColumn, match="SUPPLEMENTAL LOG DATA"):
        events(Operation.DELETE, {"NM": Quoted("x")}, {})


def test_a_change_without_values_fails_by_its_name() -> None:
    with pytest.raises(UnreadableColumn, match="UNSUPPORTED"):
        events(Operation.UNSUPPORTED, {}, {})
