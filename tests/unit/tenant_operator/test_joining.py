"""Which tenants join, the notes of it in the tenant's record, and requests that cannot be met."""

from dataclasses import replace

from libs.config.connections import GrpcClientSettings
from libs.types.table import TableId
from libs.types.tenant import TenantSpec
from services.tenant_operator.joining import (
    NOTHING_NOTICED,
    Joining,
    asked,
    asks_for_tables,
    begun,
    captured,
    joining_mistakes,
    listed,
    must_wait,
    noticed,
)
from services.tenant_operator.judge import parse_document
from services.tenant_operator.objects import (
    JOINING_KEY,
    known_sources,
    record_manifest,
    sources_manifest,
    tenant_record,
)
from services.tenant_operator.settings import CapturedSource, JoiningSettings
from tests.unit.tenant_operator.tenants import record

ORDERS, ITEMS = (TableId(database="shop", table=name) for name in ("orders", "items"))
SETTINGS = JoiningSettings(
    schema_history=GrpcClientSettings(address="history:7000"),
    sources=(CapturedSource(name="shop", kind="mysql"), CapturedSource(name="ledger", kind="dts")),
)
ON_JOINING = "snapshot: {on_joining: true}\n"


def spec_of(tables: str = ".*", more: str = ON_JOINING, source: str = "shop", masks: str = "[]") -> TenantSpec:
    text = f"tenant: acme\nsources: [{{name: {source}, include_tables: ['{tables}'], masks: {masks}}}]\n{more}"
    spec, mistakes = parse_document(text)
    assert spec is not None, mistakes
    return spec


def looked(known: Joining, spec: TenantSpec, number: int = 1) -> Joining:
    tables = dict.fromkeys(asks_for_tables(known, spec), (ORDERS, ITEMS))
    return noticed(known, spec, tables, ids=[str(number)], now_s=1_000)


def test_a_new_tenant_joins_all_that_it_sees_and_later_what_it_sees_more() -> None:
    first = looked(NOTHING_NOTICED, spec_of(r"shop\.orders"))
    [copy] = first.noticed.due
    wider = looked(asked(first, copy), spec_of(), number=2)

    assert copy.tables == ("shop.orders",)
    assert [(each.signal_id, each.tables) for each in wider.noticed.due] == [("joining-2", ("shop.items",))]
    assert looked(wider, spec_of(), number=3) == wider


def test_who_is_there_before_a_source_is_known_does_not_join_it() -> None:
    there = begun(NOTHING_NOTICED, spec_of(), {"shop"})

    assert asks_for_tables(there, spec_of()) == []
    assert looked(there, spec_of()) == there


def test_turning_it_on_is_no_joining() -> None:
    off = looked(NOTHING_NOTICED, spec_of(r"shop\.orders", more=""))

    assert off.noticed.due == ()
    assert asks_for_tables(off, spec_of(r"shop\.orders")) == []


def test_what_was_asked_for_last_is_told() -> None:
    first = looked(NOTHING_NOTICED, spec_of())
    done = asked(first, first.noticed.due[0])

    assert done.noticed.due == ()
    assert listed(done.asked) == "shop.items, shop.orders of shop (signal joining-1)"


def test_of_many_tables_the_first_are_told() -> None:
    tables = [TableId(database="shop", table=f"t{number:02}") for number in range(23)]
    first = noticed(NOTHING_NOTICED, spec_of(), {"shop": tables}, ids=["1"], now_s=1)
    done = asked(first, first.noticed.due[0])

    assert len(first.noticed.due[0].tables) == 23
    assert listed(done.asked).endswith("shop.t18, shop.t19 and 3 more of shop (signal joining-1)")


def test_rows_wait_for_the_keys_of_masks() -> None:
    masked = spec_of(masks="[{columns: '.*', hmac: {key_from: {file: pii}}}]")
    plain, with_key = looked(NOTHING_NOTICED, spec_of()), looked(NOTHING_NOTICED, masked)

    assert not must_wait(plain, spec_of(), SETTINGS, now_s=1_000)
    assert must_wait(with_key, masked, SETTINGS, now_s=1_119)
    assert not must_wait(with_key, masked, SETTINGS, now_s=1_120)


def test_a_source_reads_what_its_own_patterns_let_through() -> None:
    source = CapturedSource(name="shop", kind="mysql", include_tables=(r"shop\..*",), exclude_tables=(r"shop\.items",))

    assert captured(source, (ORDERS, ITEMS, TableId(database="crm", table="people"))) == (ORDERS,)


def test_what_nobody_can_be_asked_for_is_a_mistake_only_where_it_is_asked_for() -> None:
    assert joining_mistakes(spec_of(), SETTINGS) == []
    assert joining_mistakes(spec_of(source="crm", more=""), None) == []
    [unknown] = joining_mistakes(spec_of(source="crm"), SETTINGS)
    [subscription] = joining_mistakes(spec_of(source="ledger"), SETTINGS)

    assert "'crm' is no source of this mesh (ledger, shop)" in unknown
    assert "'ledger' is a DTS subscription" in subscription


def test_the_record_keeps_what_was_noticed() -> None:
    before = record("acme", joining=looked(NOTHING_NOTICED, spec_of()))
    manifest = record_manifest(before, "headwater")

    assert tenant_record(manifest) == before
    assert JOINING_KEY not in record_manifest(replace(before, joining=NOTHING_NOTICED), "headwater")["data"]


def test_a_record_that_cannot_be_read_joins_anew() -> None:
    manifest = record_manifest(record("acme", joining=looked(NOTHING_NOTICED, spec_of())), "headwater")
    manifest["data"][JOINING_KEY] = "{"

    assert tenant_record(manifest).joining == NOTHING_NOTICED


def test_sources_are_known_from_one_look_to_the_next() -> None:
    assert known_sources(sources_manifest({"shop", "crm"}, "headwater")) == {"shop", "crm"}
    assert known_sources(None) == set()
