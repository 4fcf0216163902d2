"""Which parked tables ``headwater retry`` asks for."""

import msgspec
import pytest

from libs.errors import InvalidSettings
from libs.operations.retry import choose_parked
from libs.sink_state.progress import ParkedTable, SinkProgress, TableProgress
from libs.sink_state.wake import Wake, decode_wake, encode_wake

WAITS = ParkedTable(because="no key; add one", from_offsets={0: 1}, to_offsets={0: 5})
CATCHES_UP = msgspec.structs.replace(WAITS, is_catching_up=True)


def table(name: str, parked: ParkedTable | None = None, source: str = "shop") -> TableProgress:
    place = f"acme.{source}.{name}"
    return TableProgress(topic=place, source=source, table=name, warehouse_table=place, parked=parked)


ORDERS, ITEMS = table("shop.orders", WAITS), table("shop.items", WAITS)
VISITS, USERS = table("shop.visits"), table("shop.users", CATCHES_UP)
PROGRESS = SinkProgress(tenant="acme", tables={each.topic: each for each in (ORDERS, VISITS, USERS, ITEMS)})


def test_all_that_are_parked_are_meant_where_none_is_named() -> None:
    chosen = choose_parked(PROGRESS, "acme", ())

    assert (chosen.parked, chosen.catching_up, chosen.not_parked) == ((ITEMS, ORDERS), (USERS,), ())
    assert choose_parked(None, "acme", ()).parked == ()


def test_what_is_named_and_not_parked_is_told_apart() -> None:
    """Named twice, a table is meant once."""
    chosen = choose_parked(PROGRESS, "acme", ("orders", "shop.orders", "visits", "shop.shop.users"))

    assert (chosen.parked, chosen.catching_up, chosen.not_parked) == ((ORDERS,), (USERS,), (VISITS,))


def test_every_name_that_is_no_table_is_told_with_the_nearest() -> None:
    with pytest.raises(InvalidSettings) as refused:
        choose_parked(PROGRESS, "acme", ("ordrs", "items", "shop.itms"))

    assert len(refused.value.mistakes) == 2
    assert "table ordrs: " in refused.value.mistakes[0]
    assert "did you mean 'orders'?" in refused.value.mistakes[0]
    assert "did you mean 'shop.items'?" in refused.value.mistakes[1]


def test_a_wake_that_asks_for_nothing_is_what_sinks_have_written_ever_since() -> None:
    assert encode_wake(Wake()) == b"{}"
    assert decode_wake(b"{}").retried_topics == ()
    wake = Wake(retried_topics=("acme.shop.shop.orders",))
    assert decode_wake(encode_wake(wake)) == wake
