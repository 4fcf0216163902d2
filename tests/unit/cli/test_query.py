"""Rows of a query on a terminal."""

import datetime
import io
from decimal import Decimal

import pyarrow as pa

from libs.cli.console import PlainConsole
from libs.cli.query import show_table

MOMENT = datetime.datetime(2026, 11, 29, 19, 21, 44, 712_265)


def shown(answer: pa.Table, width: int) -> list[str]:
    page = io.StringIO()
    show_table(answer, 200, PlainConsole(file=page, width=width))
    return page.getvalue().splitlines()


def test_rows_that_fit_are_a_table_in_which_texts_fold_and_numbers_do_not() -> None:
    note = "a note that takes more than one line of the table's column for notes"
    lines = shown(pa.table({"id": [123_456_789], "total": [Decimal("1234567.89")], "note": [note], "at": [MOMENT]}), 80)

    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert all(value in text for value in ("123456789", "1234567.89", "2026-11-29 19:21:44.712265"))
    assert lines[-1] == "1 row(s)"


def test_a_row_of_many_columns_is_shown_by_itself_with_a_line_a_column() -> None:
    """A table of them would have columns of two characters."""
    row = {f"column_{n:02}": [123_456_789 + n] for n in range(17)} | {"details": [None], "at": [MOMENT]}
    lines = shown(pa.table(row), 80)

    assert lines[0] == "row 1"
    assert lines[1] == "  column_00  123456789"
    assert lines[17] == "  column_16  123456805"
    assert lines[18:] == ["  details    NULL", "  at         2026-11-29 19:21:44.712265", "1 row(s)"]
