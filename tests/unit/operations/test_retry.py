"""Which parked tables ``headwater retry`` asks for."""

import pytest

from libs.errors import InvalidSettings
from libs.mesh.parked import SinkTable, Standing
from libs.operations.retry import choose_parked
from libs.sink_state.wake import Wake, decode_wake, encode_wake


def table(name: str, standing: Standing, source: str = "shop") -> SinkTable:
    return SinkTable(f"acme.{source}.{name}", source, name, standing)


ORDERS, ITEMS = table("shop.orders", Standing.PARKED), table("shop.items", Standing.PARKED)
VISITS, USERS = table("shop.visits", Standing.WRITTEN), table("shop.users", Standing.CATCHING_UP)
TABLES = (ORDERS, VISITS, USERS, ITEMS)


def test_all_that_are_parked_are_meant_where_none_is_named() -> None:
    chosen = choose_parked(TABLES, "acme", ())

    assert (chosen.parked, chosen.catching_up, chosen.not_parked) == ((ITEMS, ORDERS), (USERS,), ())
    assert choose_parked((), "acme", ()).parked == ()


def test_tables_whose_standing_is_not_seen_are_asked_for_too() -> None:
    """Of a mesh elsewhere: the sink leaves those alone that are not parked."""
    unseen = [SinkTable(each.topic, each.source, each.table, Standing.UNSEEN) for each in TABLES]

    of_all, of_one = choose_parked(unseen, "acme", ()), choose_parked(unseen, "acme", ("visits",))

    assert [each.table for each in of_all.parked] == ["shop.items", "shop.orders", "shop.users", "shop.visits"]
    assert [each.table for each in of_one.parked] == ["shop.visits"]
    assert not of_all.is_seen
    assert choose_parked(TABLES, "acme", ()).is_seen


def test_what_is_named_and_not_parked_is_told_apart() -> None:
    """Named twice, a table is meant once."""
    chosen = choose_parked(TABLES, "acme", ("orders", "shop.orders", "visits", "shop.shop.users"))

    assert (chosen.parked, chosen.catching_up, chosen.not_parked) == ((ORDERS,), (USERS,), (VISITS,))


def test_every_name_that_is_no_table_is_told_with_the_nearest() -> None:
    with pytest.raises(InvalidSettings) as refused:
        choose_parked(TABLES, "acme", ("ordrs", "items", "shop.itms"))

    assert len(refused.value.mistakes) == 2
    assert "table ordrs: " in refused.value.mistakes[0]
    assert "did you mean 'orders'?" in refused.value.mistakes[0]
    assert "did you mean 'shop.items'?" in refused.value.mistakes[1]


def test_a_wake_that_asks_for_nothing_is_what_sinks_have_written_ever_since() -> None:
    assert encode_wake(Wake()) == b"{}"
    assert decode_wake(b"{}").retried_topics == ()
    wake = Wake(retried_topics=("acme.shop.shop.orders",))
    assert decode_wake(encode_wake(wake)) == wake
