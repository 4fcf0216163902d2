"""The metrics of a turn of ``check --every``."""

import dataclasses

from prometheus_client import REGISTRY

from libs.check.compare import Comparison
from libs.check.metrics import record_tables, record_turn
from libs.check.projection import ExpectedTable
from libs.check.run import CheckReport, TableCheck
from libs.types.table import TableId


def checked(table: str, *, different: int = 0, faults: tuple[str, ...] = ()) -> TableCheck:
    expected = ExpectedTable(TableId(database="shop", table=table), ("id",), (), None)
    comparison = Comparison(rows_compared=1000, rows_different=different)
    return TableCheck("acme", "src", expected, comparison, (), faults, undecided=2, rows_read=40)


def value_of(name: str, table: str) -> float | None:
    labels = {"tenant": "acme", "source": "src", "table": f"shop.{table}"}
    return REGISTRY.get_sample_value(f"headwater_check_{name}", labels)


def test_each_turn_replaces_the_last() -> None:
    """A table that is gone has no samples any more; a fault of a whole table counts as a difference."""
    record_turn(CheckReport((checked("orders", different=3), checked("gone")), False), took_s=1.5, ended_at_s=99.0)
    record_turn(CheckReport((checked("orders", different=1, faults=("a",)),), False), took_s=2.5, ended_at_s=100.0)

    names = ("compared_rows", "read_rows", "different_rows", "undecided_rows")
    assert [value_of(name, "orders") for name in names] == [1000, 40, 2, 2]
    assert [value_of(name, "gone") for name in names] == [None] * 4
    assert REGISTRY.get_sample_value("headwater_check_seconds") == 2.5
    assert REGISTRY.get_sample_value("headwater_check_ended_timestamp_seconds") == 100.0


def test_a_table_of_a_turn_that_goes_on_leaves_the_others_as_they_are() -> None:
    record_turn(CheckReport((checked("orders", different=3), checked("items")), False), took_s=1.5, ended_at_s=99.0)

    record_tables(CheckReport((checked("orders"),), False))

    assert [value_of("different_rows", table) for table in ("orders", "items")] == [0, 0]
    assert value_of("compared_rows", "items") == 1000
    assert REGISTRY.get_sample_value("headwater_check_ended_timestamp_seconds") == 99.0


def test_of_a_table_that_is_not_compared_stays_what_is_known() -> None:
    record_tables(CheckReport((checked("orders", different=3),), False))

    waits = dataclasses.replace(checked("orders"), not_compared="parked: x")
    record_tables(CheckReport((waits,), False))

    assert value_of("different_rows", "orders") == 3
