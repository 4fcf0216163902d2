"""What is Delta's own in its sink; the promises of every sink are in ``tests/contract/test_sinks.py``."""

import pytest
from deltalake import DeltaTable

from libs.mysql.logical import column
from libs.testing.sink_contract import ID, RowChange, gone, put, table
from libs.types.table import TableSchema
from libs.warehouse.delta import is_wider
from spark.sinks.delta.sink import open_sink
from tests.contract.sink_harness import WarehouseHarness
from tests.contract.test_sinks import delta_rows
from tests.spark_session import shared_spark

pytestmark = pytest.mark.integration


def features(harness: WarehouseHarness, schema: TableSchema) -> set[str]:
    """What a reader of the table must know."""
    place = "/".join((shared_spark().delta.warehouse_dir, *harness.place(schema).identifier))
    return set(DeltaTable(place).protocol().reader_features or ())


def test_a_table_asks_of_readers_only_what_it_needs() -> None:
    """Deletion vectors and mapped names from the start; wider types only once a column was widened."""
    shared = shared_spark()
    sink = open_sink(shared.delta)
    harness = WarehouseHarness(shared.session, sink, lambda place: delta_rows(shared.delta, place), "delta-own")
    number = column("n", "int")
    narrow, wide = table(ID, number), table(ID, column("n", "bigint unsigned"), version=2)

    harness.apply(narrow, RowChange("c", 1, {"id": 1, "n": 1}), RowChange("c", 1, {"id": 2, "n": 2}))
    harness.apply(narrow, gone(2, 1), put(2, 3, None, n=3))
    before = features(harness, narrow)
    harness.apply(wide, RowChange("c", 3, {"id": 4, "n": -1}))

    assert {"deletionVectors", "columnMapping"} <= before
    assert "typeWidening" not in before
    assert "typeWidening" in features(harness, wide)
    assert sorted(int(str(row["n"])) for row in harness.rows(wide)) == [2, 3, 2**64 - 1]


def test_what_is_wider_holds_every_value() -> None:
    """A type that is a digit too small is not."""
    assert is_wider("decimal(10,0)", "int")
    assert not is_wider("decimal(9,0)", "int")
    assert not is_wider("decimal(19,0)", "bigint")
    assert not is_wider("decimal(12,3)", "decimal(12,2)")
    assert not is_wider("string", "int")
