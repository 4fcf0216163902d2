"""Which tables join a tenant, from the notes on it and from its document of now."""

from collections.abc import Iterator

import pytest

from libs.source.joining import NOBODY, DueCopy, NoticedTenant, begins_with, changed_sources, notice, sent
from libs.source.signals import ExecuteSnapshot, matches, parse_signal, snapshot_for_tenant
from libs.types.table import TableId
from libs.types.tenant import SourceSelection, TenantSnapshot, TenantSpec

ORDERS, ITEMS, PEOPLE = (TableId(database="shop", table=name) for name in ("orders", "items", "people"))
CAPTURED = {"shop": (ORDERS, ITEMS, PEOPLE), "crm": (TableId(database="crm", table="notes"),)}


def tenant(*includes: str, on_joining: bool = True, excludes: tuple[str, ...] = (), source: str = "shop") -> TenantSpec:
    """A tenant of one source."""
    selection = SourceSelection(name=source, include_tables=includes or (".*",), exclude_tables=excludes)
    return TenantSpec(tenant="acme", sources=(selection,), snapshot=TenantSnapshot(on_joining=on_joining))


def noticed(known: NoticedTenant, spec: TenantSpec, ids: Iterator[str] | None = None) -> NoticedTenant:
    """With the ids ``joining-0``, ``joining-1``, …"""
    numbers = ids or iter(map(str, range(9)))
    return notice(known, spec, CAPTURED, lambda: next(numbers))


def due(known: NoticedTenant) -> list[tuple[str, ...]]:
    """The tables of each copy."""
    return [copy.tables for copy in known.due]


def test_a_new_tenant_joins_all_that_it_sees() -> None:
    known = noticed(NOBODY, tenant(r"shop\.(orders|items)"))

    assert known.due == (DueCopy(signal_id="joining-0", source="shop", tables=("shop.items", "shop.orders")),)


def test_a_tenant_that_was_there_before_its_source_was_read_joins_nothing() -> None:
    spec = tenant()
    known = begins_with(NOBODY, spec, ["shop", "another"])

    assert changed_sources(known, spec) == []
    assert noticed(known, spec).due == ()


def test_of_an_old_tenant_only_what_it_did_not_see_joins() -> None:
    known = begins_with(NOBODY, tenant(r"shop\.orders"), ["shop"])

    assert due(noticed(known, tenant(r"shop\.orders", r"shop\.people"))) == [("shop.people",)]


def test_a_table_that_is_excluded_no_more_joins() -> None:
    known = begins_with(NOBODY, tenant(excludes=(r"shop\.people",)), ["shop"])

    assert due(noticed(known, tenant())) == [("shop.people",)]


def test_a_further_source_joins_whole() -> None:
    known = begins_with(NOBODY, tenant(), ["shop"])
    both = TenantSpec(
        tenant="acme",
        sources=(SourceSelection(name="shop"), SourceSelection(name="crm")),
        snapshot=TenantSnapshot(on_joining=True),
    )

    assert changed_sources(known, both) == ["crm"]
    assert [(copy.source, copy.tables) for copy in noticed(known, both).due] == [("crm", ("crm.notes",))]


def test_without_the_setting_nothing_joins_and_turning_it_on_is_no_joining() -> None:
    """Tables that a tenant has had for long are not copied to it because of a setting for new ones."""
    off = noticed(NOBODY, tenant(r"shop\.orders", on_joining=False))
    on = tenant(r"shop\.orders")

    assert off.due == ()
    assert changed_sources(off, on) == []
    assert due(noticed(off, tenant())) == [("shop.items", "shop.people")]


def test_the_same_tables_by_other_patterns_join_nothing() -> None:
    known = begins_with(NOBODY, tenant(r"shop\.orders"), ["shop"])
    rewritten = tenant("shop[.]orders")

    assert changed_sources(known, rewritten) == ["shop"]
    assert noticed(known, rewritten).due == ()
    assert changed_sources(noticed(known, rewritten), rewritten) == []


def test_a_table_that_went_and_comes_back_joins_again() -> None:
    """Between the two the tenant saw none of its changes."""
    known = begins_with(NOBODY, tenant(), ["shop"])
    away = noticed(known, tenant(excludes=(r"shop\.people",)))

    assert away.due == ()
    assert due(noticed(away, tenant())) == [("shop.people",)]


def test_what_is_due_stays_so_until_it_is_sent() -> None:
    ids = iter("ab")
    known = noticed(noticed(NOBODY, tenant(r"shop\.orders"), ids), tenant(r"shop\.(orders|items)"), ids)

    assert [copy.signal_id for copy in known.due] == ["joining-a", "joining-b"]
    left = sent(known, known.due[0])
    assert due(left) == [("shop.items",)]
    assert sent(left, left.due[0]) == NoticedTenant(seen=known.seen)


@pytest.mark.parametrize("name", ["shop.orders", "shop.a-b", "shop.a b", "shop.price$list", "shop.x(y)*"])
def test_the_signal_means_the_table_and_nobody_else(name: str) -> None:
    signal = parse_signal(snapshot_for_tenant("joining-1", "acme", [name]))

    assert isinstance(signal, ExecuteSnapshot)
    assert (signal.signal_id, signal.for_tenants) == ("joining-1", ("acme",))
    assert matches(signal.tables[0], name)
    assert not matches(signal.tables[0], name.replace(".", "x"))
