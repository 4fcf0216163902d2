"""One text of a row, as SQL."""

import duckdb

from libs.check.canonical_text import ColumnText, End, fingerprint, row_texts
from libs.warehouse_readers.warehouse import SqlDialect

MOST_COLUMNS = 4_096
"""Of a table of MySQL's (manual, "Limits on Table Column Count and Row Size")."""


def test_a_row_of_as_many_columns_as_there_may_be_has_a_text() -> None:
    """A chain as long as the table is wide is deeper than databases allow: DuckDB has 1,000."""
    columns = [ColumnText(f"c{n}", f"'{n}'", has_commas=n % 2 == 0) for n in range(MOST_COLUMNS)]

    _, text = row_texts(columns, SqlDialect.DUCKDB)
    [found] = duckdb.execute(f"SELECT {text}").fetchall()

    assert found[0] == ",".join(f"{len(str(n))}:{n}" if n % 2 == 0 else str(n) for n in range(MOST_COLUMNS))
    assert duckdb.execute(f"SELECT {fingerprint(text, End.DUCKDB)}").fetchone() is not None
