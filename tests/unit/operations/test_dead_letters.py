"""The advice for letters that no replay takes up."""

from typing import Any

from libs.events.dead_letter import DeadLetter, SetAsideBy
from libs.operations.dead_letters import StoredLetter, keys_to_replay, router_remedies
from libs.sink_state.parked_keys import TenantParkedKeys
from libs.types.order import EventOrder


def stored(table: str = "orders", op: str = "c", **fields: Any) -> StoredLetter:
    letter = DeadLetter(
        tenant="acme",
        topic=f"acme.s.shop.{table}",
        reason="cannot compare",
        source="s",
        database="shop",
        table=table,
        schema_version=1,
        op=op,
        order=EventOrder(epoch=0, rank=1, tx_ordinal=1),
        **fields,
    )
    return StoredLetter(1, 1, letter, (), True)


def test_rows_are_read_anew_for_the_tenant_alone() -> None:
    [told] = router_remedies("acme", [stored(), stored(op="u")])

    assert told == (
        "s.shop.orders: 2 events set aside by the router, which no replay takes up; once the cause is mended, "
        "`headwater tenant snapshot acme s.shop.orders` reads its rows again"
    )


def test_a_delete_takes_a_resync() -> None:
    [told] = router_remedies("acme", [stored(op="d")])

    assert told.endswith("deletes among them, which only `headwater resync acme s.shop.orders` brings to a mirror")


def test_neither_the_sinks_letters_nor_other_tables_nor_statements_count() -> None:
    sinks = stored(set_aside_by=SetAsideBy.SINK, event_kafka_partition=0, event_offset=1)

    told = router_remedies("acme", [sinks, stored("items"), stored(op="")], ["acme.s.shop.orders"])

    assert told == []


def test_where_parked_keys_are_not_seen_all_of_each_table_with_letters_of_the_sink_are_meant() -> None:
    letters = [
        stored(set_aside_by=SetAsideBy.SINK, event_kafka_partition=0, event_offset=1),
        stored("items", set_aside_by=SetAsideBy.SINK, event_kafka_partition=0, event_offset=2),
        stored("users"),
    ]

    assert keys_to_replay(None, letters, None) == {"acme.s.shop.items": (), "acme.s.shop.orders": ()}
    assert keys_to_replay(None, letters, ["acme.s.shop.orders", "acme.s.shop.users"]) == {"acme.s.shop.orders": ()}
    assert keys_to_replay(TenantParkedKeys(tenant="acme"), letters, None) == {}
