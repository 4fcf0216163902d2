"""The filter by which a merge leaves out rows that have none of its keys: the merged table is the same as without."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import pytest

from libs.mysql.logical import column
from libs.testing.sink_contract import NOTE, RowChange, put, source_rows, table
from libs.types.table import Column
from libs.types.tenant import Deletes, SinkMode
from spark.sinks.iceberg import sink as iceberg_sink
from spark.sinks.iceberg.key_filter import key_filter
from tests.contract.sink_harness import WarehouseHarness
from tests.marks import gate
from tests.spark_session import SharedSpark

STORED = 40
SHOP = column("shop", "varchar(5)", charset="utf8mb4")  # part of the key, and may be NULL
IDS: Final[Mapping[str, tuple[Column, Sequence[Any]]]] = {
    "int": (column("id", "int", is_optional=False), range(STORED)),
    "unsigned": (column("id", "bigint unsigned", is_optional=False), [2**63 - 1 - each for each in range(STORED)]),
    "text": (
        column("id", "varchar(20)", is_optional=False, charset="utf8mb4"),
        [f"😀 it's \\{each}" for each in range(STORED)],
    ),
    "date": (column("id", "date", is_optional=False), range(STORED)),
    "double": (column("id", "double", is_optional=False), [each / 2 for each in range(STORED)]),
}
"""By name: a column, and keys of it."""
GATE: Final = [*zip(IDS, itertools.cycle(Deletes), strict=False)]
"""For the product of types with deletes, of which a filter knows nothing."""


@pytest.fixture
def filters(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The filter of each merge that asked for one."""
    given: list[str | None] = []

    def noted(*arguments: Any) -> str | None:
        given.append(key_filter(*arguments))
        return given[-1]

    monkeypatch.setattr(iceberg_sink, "key_filter", noted)
    return given


@pytest.mark.parametrize(
    ("name", "deletes"),
    gate(
        GATE,
        [(name, deletes) for name in IDS for deletes in Deletes],
        because="the gate has every type of key, and both treatments of deleted rows",
    ),
)
def test_rows_come_out_the_same(shared: SharedSpark, filters: list[str | None], name: str, deletes: Deletes) -> None:
    """An update, a delete, a row that comes back, new ones, and one that is older than the stored one. By a fraction nothing is
    filtered."""
    id_column, ids = IDS[name]
    orders = table(id_column, SHOP, NOTE, key=("id", "shop"))
    shops = [None if number % 2 else "a" for number in range(STORED)]

    def of(rank: int, number: int, note: str, op: str = "u") -> RowChange:
        return RowChange(op, rank, {"id": ids[number], "shop": shops[number], "note": note})

    harness = harness_of(shared, f"filter-{name}-{deletes.value}", at_rows=1)
    harness.apply(orders, *(of(10, number, f"first {number}") for number in range(STORED)), deletes=deletes)
    stored = {row["note"]: row["id"] for row in source_rows(harness, orders)}
    harness.apply(orders, of(11, 0, "second"), of(11, 1, "gone", "d"), deletes=deletes)
    harness.apply(orders, of(12, 1, "again"), of(9, 2, "old"), of(11, 39, "gone", "d"), deletes=deletes)
    harness.apply(orders, put(13, ids[3], "new", shop="b"), put(13, ids[4], "new", shop="b"), deletes=deletes)

    assert [each is not None for each in filters] == 3 * [name != "double"]
    assert len(stored) == STORED
    changed = {0: "second", 1: "again", 39: "first 39" if deletes is Deletes.SOFT else None}
    rows = {(stored[f"first {n}"], shops[n]): changed.get(n, f"first {n}") for n in range(STORED)}
    rows |= {(stored[f"first {n}"], "b"): "new" for n in (3, 4)}
    found = [(row["id"], row["shop"], row["note"]) for row in source_rows(harness, orders)]
    assert sorted(found, key=repr) == sorted(((*key, note) for key, note in rows.items() if note), key=repr)


def harness_of(shared: SharedSpark, tenant: str, *, at_rows: int) -> WarehouseHarness:
    sink = iceberg_sink.IcebergSink(msgspec.structs.replace(shared.iceberg, filter_merges_at_rows=at_rows))
    return WarehouseHarness(shared.session, sink, shared.rows, tenant)


def test_a_table_of_few_rows_is_merged_without(shared: SharedSpark, filters: list[str | None]) -> None:
    orders = table()
    harness = harness_of(shared, "filter-few", at_rows=3)
    harness.apply(orders, put(1, 1, "first"), put(1, 2, "first"))

    harness.apply(orders, put(2, 2, "second"))

    assert filters == []
    assert [row["note"] for row in source_rows(harness, orders)] == ["first", "second"]


def test_a_filter_lets_through_what_has_a_key_and_little_else(shared: SharedSpark) -> None:
    """A hundredth of the others."""
    orders = table()
    harness = WarehouseHarness(shared.session, shared.sink, shared.rows, "key-filter-share")
    harness.apply(orders, *(put(1, number, "first") for number in range(2_000)))
    stored = shared.session.table(harness.place(orders).quoted())
    wanted = harness.sink_table(orders, SinkMode.MIRROR, Deletes.HARD)
    wanted = dataclasses.replace(wanted, changes=100)

    condition = key_filter(shared.session, stored, wanted, stored.where("id >= 1900"))

    assert condition is not None
    passed = {row["id"] for row in stored.alias("t").where(condition).collect()}
    assert passed >= set(range(1_900, 2_000))
    assert len(passed) < 200


def test_a_batch_whose_rows_are_all_set_aside_is_merged_too(shared: SharedSpark) -> None:
    """Each of its keys is parked: nothing is left for the table, which notes the batch all the same."""
    orders = table()
    harness = WarehouseHarness(shared.session, shared.sink, shared.rows, "key-filter-empty")
    harness.apply(orders, put(1, 1, "first"))
    stored = shared.session.table(harness.place(orders).quoted())
    wanted = dataclasses.replace(harness.sink_table(orders, SinkMode.MIRROR, Deletes.HARD), changes=3)

    condition = key_filter(shared.session, stored, wanted, stored.where("false"))

    assert condition is not None
    assert stored.alias("t").where(condition).count() == 0


def test_a_batch_that_says_no_keys_or_too_many_has_none(shared: SharedSpark) -> None:
    orders = table()
    harness = WarehouseHarness(shared.session, shared.sink, shared.rows, "key-filter-none")
    harness.apply(orders, put(1, 1, "first"))
    stored = shared.session.table(harness.place(orders).quoted())
    wanted = harness.sink_table(orders, SinkMode.MIRROR, Deletes.HARD)
    counts = (0, 2_000_001)

    found = [
        key_filter(shared.session, stored, dataclasses.replace(wanted, changes=changes), stored) for changes in counts
    ]

    assert found == [None, None]
