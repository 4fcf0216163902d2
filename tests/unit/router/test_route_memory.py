"""Which tenants see which table, as documents change: as each tenant's patterns say, one by one."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.tenants.view import is_selected
from libs.types.patterns import literal_prefix
from libs.types.table import Column, TableId, TableSchema
from libs.types.tenant import ColumnMask, HashMask, RowFilter, SourceSelection, TenantSpec
from libs.types.value import LogicalKind, LogicalType
from services.router.routes import match
from services.router.routes.book import RouteBook, RouteView
from services.router.routes.memory import _MOST_CHANGES, RouteMemory, SeenTables
from services.router.routes.topic_claims import TopicClaims
from tests.marks import examples

PATTERNS = [
    r".*",
    r"shop\..*",
    r"shop\.orders",
    r"shop\.orders_.*",
    r"sh.p\.orders",
    r"(shop|stock)\.orders",
    r"shop\.orders|stock\.items",
    r"(?i)SHOP\.orders",
    r"(?x) shop \. orders",
    r"(?i:SHOP)\.orders",
    r"shop\.orders?",
    r"shop\.(orders|orders_old)",
    r"\x73hop\.orders",
    r"",
    r"s{1,2}hop\.orders",
    r"^shop\.orders$",
    r"(",
]
TABLES = [
    TableId(database=database, table=table)
    for database in ("shop", "SHOP", "stock")
    for table in ("orders", "order", "orders_old", "items", "")
]
patterns = st.lists(st.sampled_from(PATTERNS), max_size=2).map(tuple)
documents = st.dictionaries(st.sampled_from("abcd"), st.tuples(patterns, patterns), max_size=4)


def selection(include: tuple[str, ...], exclude: tuple[str, ...] = ()) -> SourceSelection:
    """Of one source."""
    return SourceSelection(name="s", include_tables=include, exclude_tables=exclude)


def sees(chosen: SourceSelection, table_id: TableId) -> bool:
    """A table that cannot be judged counts as seen."""
    try:
        return is_selected(chosen, table_id)
    except re.error:
        return True


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(documents, st.lists(st.sampled_from(TABLES), max_size=6)), min_size=1, max_size=6))
def test_it_is_each_tenants_own_patterns_that_say_who_sees_a_table(steps: list[tuple[dict[str, Any], Any]]) -> None:
    """Also of a table that was looked at some changes ago."""
    seen = SeenTables()
    for of_tenants, looks in steps:
        selections = {tenant: selection(*both) for tenant, both in of_tenants.items()}
        seen.take(selections)
        for table_id in looks:
            wanted = tuple(sorted(tenant for tenant, own in selections.items() if sees(own, table_id)))
            assert seen.who(table_id) == wanted


def test_a_table_that_was_not_looked_at_for_long_is_found_anew() -> None:
    seen = SeenTables()
    seen.take({"a": selection((".*",))})
    assert seen.who(TABLES[0]) == ("a",)

    for number in range(_MOST_CHANGES + 2):
        seen.take({"b": selection((rf"shop\..*|{number}",))})

    assert seen.who(TABLES[0]) == ("b",)


@pytest.mark.parametrize("pattern", [each for each in PATTERNS if each != "("])
def test_what_a_pattern_is_for_begins_as_its_literal_prefix_says(pattern: str) -> None:
    prefix = literal_prefix(pattern)

    for name in map(str, TABLES):
        assert name.startswith(prefix) or re.fullmatch(pattern, name, re.DOTALL) is None


def test_a_document_that_changed_has_no_others_conditions_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*(f"t{number}" for number in range(5)), "masked"]
    table = TableSchema(
        table_id=TABLES[0],
        columns=tuple(
            Column(name=name, source_type="text", logical_type=LogicalType(kind=LogicalKind.STRING))
            for name in ("k", "v")
        ),
        key=("k",),
        version=1,
    )
    compiled: list[str] = []
    compile_projection = match.compile_projection

    def counted(*arguments: Any) -> Any:
        compiled.append(arguments[1].row_filters[0].where)
        return compile_projection(*arguments)

    monkeypatch.setattr(match, "compile_projection", counted)

    def book_of(changed: str | None) -> RouteView:
        specs = [
            TenantSpec(
                tenant=name,
                sources=(
                    SourceSelection(
                        name="s",
                        row_filters=(RowFilter(tables=".*", where=f"v = '{name}{'!' if name == changed else ''}'"),),
                        masks=(ColumnMask(columns=r".*\.v", hash=HashMask(salt="x")),) if name == "masked" else (),
                    ),
                ),
                sink=None,
            )
            for name in names
        ]
        return RouteBook("s", specs, lambda *_: table, TopicClaims(), memory=memory).view()

    memory = RouteMemory()
    first = book_of(None).routes("shop", "orders", 1)
    compiled.clear()

    second = book_of("t3").routes("shop", "orders", 1)

    assert compiled == ["v = 't3!'"]
    assert [group.targets for group in first.groups] == [group.targets for group in second.groups]
    assert first.groups[0].projection is second.groups[0].projection
