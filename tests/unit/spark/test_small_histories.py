"""Small histories are merged without a query, and hold what a query would have written."""

import random
from pathlib import Path

import pytest

from libs.mysql.logical import column
from libs.types.tenant import SinkMode
from spark.batch.phases import WriteSplit
from spark.batch.small_tables import ByQuery
from tests.marks import rest
from tests.spark_session import SharedSpark
from tests.unit.spark.events import Change, orders_schema
from tests.unit.spark.test_small_tables import ID, NOTE, Tenant, gone, put

SEEN = column("seen", "int")
PART = column("part", "double")
SCHEMA = orders_schema(ID, NOTE, SEEN, PART)


def random_batch(chance: random.Random, rank: int) -> list[Change]:
    """Changes of few keys, in order, some of them twice: of tracked columns and of others, deletes, and rows that come back."""
    batch = []
    for _ in range(chance.randrange(1, 20)):
        rank += 1
        key = chance.randrange(8)
        if chance.random() < 0.25:
            batch.append(gone(rank, key, seen=0, part=0.0))
        else:
            note = chance.choice([None, "", "näïve 𝄞", "same"])
            part = chance.choice([None, 0.0, -0.0, 1.5])
            batch.append(put(rank, key, note, op=chance.choice("cu"), seen=chance.randrange(3), part=part))
    shuffled = [*batch, *chance.choices(batch, k=2)]
    chance.shuffle(shuffled)
    return shuffled


@pytest.mark.parametrize("format_version", [2, *rest(3, because="the gate shows it of the usual format")])
def test_the_same_changes_give_the_same_history(shared: SharedSpark, tmp_path: Path, format_version: int) -> None:
    """Batch after batch, each by both ways; versions of all columns but one, which a change only writes over."""
    chance, rank = random.Random(11), 1
    tracked = ("shop.orders.note", "shop.orders.part")
    by_hand, by_query = (
        Tenant(
            shared,
            tmp_path / name,
            SCHEMA,
            format_version=format_version,
            mode=SinkMode.HISTORY,
            tracked_columns=tracked,
        )
        for name in ("hand", "query")
    )
    for _ in range(4):
        batch = random_batch(chance, rank)
        rank = max(change.rank for change in batch)

        assert isinstance(by_hand.apply(batch, at_hand=True), WriteSplit)
        by_query.apply(batch, at_hand=False)

        assert by_hand.rows() == by_query.rows()
    assert any(not row["is_current"] for row in by_hand.rows())


def test_what_is_late_or_not_whole_goes_by_a_query(shared: SharedSpark, tmp_path: Path) -> None:
    """A change as old as the table's newest may be one of an ended version; so may any, if nobody knows the table's newest."""
    tenant = Tenant(shared, tmp_path, SCHEMA, mode=SinkMode.HISTORY)
    more = {"seen": 1, "part": None}

    assert isinstance(tenant.apply([put(10, 1, "ten", **more)], at_hand=True), WriteSplit)
    assert tenant.apply([put(5, 1, "five", **more)], at_hand=True) is ByQuery.EVENTS
    tenant._known_order = ""
    assert tenant.apply([put(20, 1, "twenty", **more)], at_hand=True) is ByQuery.TABLE
    assert tenant.apply([Change(op="t", rank=30)], at_hand=True) is ByQuery.EVENTS

    versions = sorted((row["note"], row["is_current"]) for row in tenant.rows())
    assert versions == [("five", False), ("ten", False), ("twenty", False)]
