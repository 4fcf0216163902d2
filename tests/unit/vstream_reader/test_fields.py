"""How a column's values are read."""

import tracemalloc

import pytest

from libs.mysql.logical import column
from libs.types.table import TableId, TableSchema
from services.vstream_reader.fields import columns_with_doubtful_members, reading

_VALUES = 2_000
_LARGEST_ENTRY_BYTES = 500
"""A value's text, its JSON, and its share of a dictionary that was just made larger: about 250."""


@pytest.mark.parametrize("column_type", ["double", "decimal(12,2)", "bigint unsigned"])
def test_a_value_that_is_kept_takes_little_memory(column_type: str) -> None:
    convert = reading(column("c", column_type), has_text_members=True).convert
    assert convert is not None

    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(_VALUES):
            convert(b"%d.25" % number if column_type != "bigint unsigned" else b"%d" % number)
        kept_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert kept_bytes < _VALUES * _LARGEST_ENTRY_BYTES


def test_members_that_vtgate_may_not_have_named_as_they_are() -> None:
    """MySQL keeps COLUMN_TYPE in utf8mb3: a member beyond it comes as question marks, in the values of the log too."""
    columns = (
        column("mood", "enum('calm','?')", charset="utf8mb4"),
        column("marks", "set('a','b?')", charset="utf8mb4"),
        column("plain", "enum('calm','glad')", charset="utf8mb4"),
        column("narrow", "enum('calm','?')", charset="latin1"),
        column("note", "varchar(9)", charset="utf8mb4"),
    )

    schema = TableSchema(table_id=TableId(database="ks", table="t"), columns=columns)

    assert columns_with_doubtful_members(schema) == ("mood", "marks")
