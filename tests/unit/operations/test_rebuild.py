"""Which moment ``headwater rebuild --as-of`` names."""

import pytest

from libs.errors import InvalidSettings
from libs.operations.rebuild import parse_moment
from libs.sink_state.progress import ReachedPosition, TableProgress
from libs.types.order import EventOrder

HOST, OTHER = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "3e11fa47-71ca-11e1-9e33-c80aa9429563"


def reached(rank: int, *, epoch: int = 0, **position: str | int) -> TableProgress:
    order = EventOrder(epoch=epoch, rank=rank, tx_ordinal=3).sort_key()
    place = ReachedPosition(source_partition="", order=order, position=position)
    return TableProgress(
        topic="log.shop.shop.orders",
        source="shop",
        table="shop.orders",
        warehouse_table="log.shop.shop.orders",
        rows=1,
        order=order,
        committed_at_us=0,
        positions=(place,),
    )


WITH_GTIDS = reached(4_800, gtid=f"{HOST}:4800", file="binlog.000007", pos=9_000)
BY_FILE = reached(7 << 40 | 9_000, gtid="", file="binlog.000007", pos=9_000)


def test_a_time_and_an_order_are_moments_of_any_source() -> None:
    assert parse_moment("2026-11-21T10:00:00+00:00", BY_FILE).at_us == 1_795_255_200_000_000
    assert parse_moment("0.4711.3", WITH_GTIDS).order == EventOrder(epoch=0, rank=4_711, tx_ordinal=3).sort_key()


@pytest.mark.parametrize(
    ("text", "table", "rank"),
    [
        (f"{HOST}:1-4711", WITH_GTIDS, 4_711),
        (f"{HOST}:1-4000,\n{OTHER}:1-11:20", WITH_GTIDS, 4_012),
        ("binlog.000007:157", BY_FILE, 7 << 40 | 156),
    ],
)
def test_a_place_in_the_log_is_behind_every_event_before_it(text: str, table: TableProgress, rank: int) -> None:
    """And before every event that follows it."""
    found = parse_moment(text, table).order

    assert found is not None
    assert EventOrder(epoch=0, rank=rank, tx_ordinal=999_999).sort_key() < found
    assert found < EventOrder(epoch=0, rank=rank + 1, tx_ordinal=1).sort_key()  # the first event of a transaction


@pytest.mark.parametrize(
    ("text", "table", "because"),
    [
        ("yesterday", WITH_GTIDS, "is no moment"),
        (f"{HOST}:1-x", WITH_GTIDS, "is no set of GTIDs"),
        (f"{HOST}:x", WITH_GTIDS, "names no transaction"),
        (f"{HOST}:1-5000", WITH_GTIDS, "is further on"),
        (f"{HOST}:1-7", BY_FILE, "the source has no GTIDs"),
        ("binlog.000007:157", WITH_GTIDS, "write gtid_executed"),
        (f"{HOST}:1-7", reached(9, vgtid="[]"), "needs a source that has one"),
        (f"{HOST}:1-7", reached(9, epoch=1, gtid=f"{HOST}:9", file="binlog.000007", pos=9), "copied again"),
    ],
)
def test_what_names_no_moment_of_the_source_is_refused(text: str, table: TableProgress, because: str) -> None:
    with pytest.raises(InvalidSettings, match=because):
        parse_moment(text, table)
