"""Tables found by patterns are those that a look at each of them finds."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.tenants.known_tables import KnownTables
from libs.tenants.view import is_selected
from libs.types.patterns import matches_column, matches_table
from libs.types.table import Column, FormerName, TableId, TableSchema
from libs.types.tenant import SourceSelection
from libs.types.value import LogicalKind, LogicalType

TEXT = LogicalType(kind=LogicalKind.STRING)
NAMES = st.text("aAbkKsS._1éßſ\u212aİı\n", min_size=1, max_size=3)
PATTERNS = st.one_of(
    NAMES.map(re.escape),
    st.builds("{}.*".format, NAMES.map(re.escape)),
    st.sampled_from(
        (
            ".*",
            r"(?i)a.*",
            "(a|b).*",
            "[a-k].*",
            r".*\.a",
            r"a?b.*",
            r"a{2}.*",
            "",
            r"\w+\.\w+\.K",
            "a|b.*",
            r".*(?-i:A)",
            r"a(?-i:K).*",
        )
    ),
)


@st.composite
def tables(draw: st.DrawFn) -> list[TableSchema]:
    def column(name: str) -> Column:
        former = tuple(FormerName(name=each, last_version=1) for each in draw(st.lists(NAMES, max_size=1)))
        return Column(name=name, source_type="text", logical_type=TEXT, former_names=former)

    ids = draw(st.lists(st.builds(TableId, database=NAMES, table=NAMES), max_size=8, unique=True))
    return [
        TableSchema(
            table_id=table_id, columns=tuple(map(column, draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))))
        )
        for table_id in ids
    ]


@given(tables(), st.lists(PATTERNS, max_size=3), st.lists(PATTERNS, max_size=2))
def test_selected_tables_are_those_that_each_look_finds(
    found: list[TableSchema], include: list[str], exclude: list[str]
) -> None:
    """In the order in which they were given."""
    selection = SourceSelection(name="shop", include_tables=tuple(include), exclude_tables=tuple(exclude))

    selected = KnownTables(found).selected(selection)

    assert selected == [table for table in found if is_selected(selection, table.table_id)]


@given(tables(), PATTERNS)
def test_names_are_found_as_a_look_at_each_finds_them(found: list[TableSchema], pattern: str) -> None:
    """Columns without case, as MySQL compares them, with the letters that ``re`` takes for the same."""
    known = KnownTables(found)
    columns = [f"{table.table_id}.{name}" for table in found for column in table.columns for name in column.all_names]

    assert known.has_table(pattern) == any(matches_table(pattern, str(table.table_id)) for table in found)
    assert known.has_column(pattern) == any(matches_column(pattern, name) for name in columns)


@pytest.mark.parametrize("pattern", [r"shop\.orders\.K", r"SHOP\.orders\.k", "shop\\.orders\\.\u212a"])
def test_a_letter_beyond_ascii_is_found_by_the_one_that_it_equals(pattern: str) -> None:
    """The sign of Kelvin is a k for ``re``, and its name stands elsewhere in an order."""
    column = Column(name="\u212a", source_type="text", logical_type=TEXT)
    known = KnownTables([TableSchema(table_id=TableId(database="shop", table="orders"), columns=(column,))])

    assert known.has_column(pattern)
