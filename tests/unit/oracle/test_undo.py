"""Partial rollbacks, against row sequences that others recorded from real servers (``tests/golden/oracle``)."""

import json
import re
from pathlib import Path

import pytest

from libs.oracle.log_rows import LogRow, Operation
from libs.oracle.undo import UndoContradiction, changes_left

RECORDED = Path("tests/golden/oracle")
SEQUENCES: dict[str, str] = json.loads((RECORDED / "lob_sequences.json").read_text(encoding="utf-8"))["sequences"]
TRANSACTIONS = json.loads((RECORDED / "oracdc_transactions.json").read_text(encoding="utf-8"))
OPERATIONS = {
    "I": Operation.INSERT,
    "U": Operation.UPDATE,
    "D": Operation.DELETE,
    "S": Operation.LOB_LOCATOR,
    "L": Operation.LOB_WRITE,
    "T": Operation.LOB_TRIM,
    "X": Operation.XML_BEGIN,
    "x": Operation.XML_WRITE,
    "y": Operation.XML_END,
    "E": Operation.LONG_TEXT_BEGIN,
    "e": Operation.LONG_TEXT_WRITE,
    "N": Operation.INTERNAL,
}


def recorded_row(token: str) -> LogRow:
    """``!U:B``: a row of lob_sequences.json."""
    found = re.fullmatch(r"(!?)([A-Za-z])(1?)(?:\((\w+)\))?:(.)", token)
    assert found is not None, token
    return LogRow(
        OPERATIONS[found[2]],
        object_id=1,
        row_id=None if found[5] == "-" else found[5],
        is_undo=found[1] == "!",
        sequence=1 if found[3] else 2,
        column=found[4] or "",
    )


def recorded_transaction(name: str) -> list[LogRow]:
    return [
        LogRow(
            Operation[row["op"]],
            row["object"],
            row["row_id"],
            is_undo=bool(row["rollback"]),
            rs_id=row["rs_id"],
            is_temporary=row["temporary"],
        )
        for row in TRANSACTIONS[name]
    ]


@pytest.mark.parametrize("nth", SEQUENCES)
def test_what_stands_before_the_slash_is_left_of_a_recorded_sequence(nth: str) -> None:
    tokens = SEQUENCES[nth].split()
    slash = tokens.index("/")
    rows = [recorded_row(token) for token in tokens if token != "/"]
    expected = [place for place in range(slash) if rows[place].operation is not Operation.INTERNAL]

    left = changes_left(rows)

    assert [place for group in left for place in group.nths] == expected


def test_of_a_transaction_with_undo_across_tables_the_first_insert_is_left() -> None:
    rows = recorded_transaction("31001100981F2000")

    left = changes_left(rows)

    first = next(group for group in left if group.object_id == 175_071 and group.operation is Operation.INSERT)
    undone = sum(row.is_undo for row in rows)
    temporary = sum(row.is_temporary for row in rows)
    assert first.rs_id == "0x0031f7.008fe16a.0188"
    assert undone == 57
    assert len(left) == len(rows) - temporary - 2 * undone


def test_rows_of_temporary_tables_break_the_order_unless_they_are_passed_over() -> None:
    rows = [row._replace(is_temporary=False) for row in recorded_transaction("31001100981F2000")]

    with pytest.raises(UndoContradiction, match="not the newest"):
        changes_left(rows)


def test_of_a_transaction_that_took_everything_back_nothing_is_left() -> None:
    assert changes_left(recorded_transaction("1F000D00FB0D2600")) == []


def test_rows_of_one_redo_record_are_taken_back_in_any_order() -> None:
    inserted = [LogRow(Operation.INSERT, 1, row_id, rs_id="0x01.02.03") for row_id in "ABC"]
    undone = [LogRow(Operation.DELETE, 1, row_id, is_undo=True) for row_id in "BCA"]

    assert changes_left([*inserted, *undone]) == []
    with pytest.raises(UndoContradiction, match=r"row 3 \(DELETE, RS_ID unknown\)"):
        changes_left([*(row._replace(rs_id="") for row in inserted), *undone])


@pytest.mark.parametrize(
    ("tokens", "because"),
    [
        ("!D:B", "where none is left"),
        ("I:B !U:B", "not the newest"),
        ("I:B !D:C", "not the newest"),
        ("I:B L:B", "no row began"),
    ],
)
def test_rows_that_do_not_fit_each_other_are_a_contradiction(tokens: str, because: str) -> None:
    with pytest.raises(UndoContradiction, match=because):
        changes_left(recorded_row(token) for token in tokens.split())
