"""A pattern that matches nothing holds nothing back: it is a mistake, unless the document says that it may."""

import msgspec
import pytest

from libs.tenants.idle_patterns import idle_pattern_mistake, idle_patterns
from libs.tenants.known_tables import KnownTables
from libs.types.table import Column, FormerName, TableId, TableSchema
from libs.types.tenant import SourceSelection
from libs.types.value import LogicalKind, LogicalType

TEXT = LogicalType(kind=LogicalKind.STRING)


def table(name: str, *columns: Column) -> TableSchema:
    return TableSchema(table_id=TableId(database="shop", table=name), columns=columns)


def column(name: str, *former: str) -> Column:
    names = tuple(FormerName(name=each, last_version=1) for each in former)
    return Column(name=name, source_type="text", logical_type=TEXT, former_names=names)


TABLES = (table("customers", column("Email"), column("note_2", "note")), table("orders", column("total")))


def idle(**selection: object) -> list[tuple[str, str]]:
    found = msgspec.convert({"name": "shop", **selection}, SourceSelection)
    return [(each.place, each.pattern) for each in idle_patterns(found, KnownTables(TABLES))]


def test_each_list_is_held_against_tables_and_columns() -> None:
    """Masks without the database, a misspelled exclusion, a filter and a rename of nothing."""
    assert idle(
        exclude_tables=[r"shop\.orders", r"shop\.oders"],
        row_filters=[{"tables": "orders", "where": "total = 1"}],
        exclude_columns=[r"shop\.orders\.totl"],
        masks=[{"columns": r"customers\.email", "set_null": True}],
        rename_columns=[{"columns": r"shop\.orders\.sum", "to": "s"}],
    ) == [
        ("exclude_tables[1]", r"shop\.oders"),
        ("row_filters[0].tables", "orders"),
        ("exclude_columns[0]", r"shop\.orders\.totl"),
        ("masks[0].columns", r"customers\.email"),
        ("rename_columns[0].columns", r"shop\.orders\.sum"),
    ]


@pytest.mark.parametrize("pattern", [r"shop\.customers\.email", r".*\.EMAIL", r"shop\.customers\.note"])
def test_columns_match_without_case_and_by_former_names(pattern: str) -> None:
    """As the router hides them."""
    assert idle(exclude_columns=[pattern]) == []


def test_what_is_included_may_match_nothing() -> None:
    """It delivers nothing, which everybody sees."""
    assert idle(include_tables=[r"shop\.later"], include_columns=[r"shop\.later\.id"]) == []


def test_a_pattern_that_is_named_may_match_nothing() -> None:
    """Word for word; the others may not."""
    masks = [{"columns": r"shop\.later\.ssn", "set_null": True}, {"columns": r"shop\.later\.dob", "set_null": True}]

    assert idle(masks=masks, may_match_nothing=[r"shop\.later\.ssn"]) == [("masks[1].columns", r"shop\.later\.dob")]


def test_the_mistake_says_what_to_write() -> None:
    (found,) = idle_patterns(SourceSelection(name="shop", exclude_columns=("email",)), KnownTables(TABLES))

    says = idle_pattern_mistake(found)

    assert says.startswith("exclude_columns[0]: 'email' matches no database.table.column of the source: ")
    assert "may_match_nothing" in says
