"""Properties of Delta's own in its sink; the promises of every sink are in ``tests/contract/test_sinks.py``."""

import itertools
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable

from libs.mesh.home import Home
from libs.mysql.logical import column
from libs.testing.sink_contract import ID, NOTE, RowChange, gone, put, table
from libs.types.table import FormerName, TableSchema
from libs.types.tenant import SinkMode
from libs.warehouse.delta import is_wider
from libs.warehouse_readers.delta import DeltaWarehouse, UnreadableTable, delta_progress
from spark.sinks.delta.sink import open_sink
from spark.sinks.port import Sink, TableRefused
from tests.contract.sink_harness import REACHED, WarehouseHarness
from tests.contract.test_sinks import delta_rows
from tests.spark_session import shared_spark

pytestmark = pytest.mark.rest(because="the gate has Delta in contract/test_sinks.py and faults/test_sink_kills.py")
NOTE_BEFORE = FormerName(name="note", last_version=2)


def features(harness: WarehouseHarness, schema: TableSchema) -> set[str]:
    """The features that a reader of the table must know."""
    place = "/".join((shared_spark().delta.warehouse_dir, *harness.place(schema).identifier))
    return set(DeltaTable(place).protocol().reader_features or ())


def test_a_table_asks_of_readers_only_what_it_needs() -> None:
    """Deletion vectors and mapped names; wider types only where a table is not written again when a column has widened."""
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
    assert "typeWidening" not in features(harness, wide)
    assert sorted(int(str(row["n"])) for row in harness.rows(wide)) == [2, 3, 2**64 - 1]


def test_a_wide_table_is_opened_by_whoever_reads_delta() -> None:
    """Neither mapped names nor deletion vectors: delta-rs' way into pandas, Polars and daft opens no other. A change that
    needs mapped names is refused by name."""
    shared = shared_spark()
    sink = open_sink(msgspec.structs.replace(shared.delta, wide=(r"shop\..*",)))
    harness = WarehouseHarness(shared.session, sink, lambda place: delta_rows(shared.delta, place), "delta-wide")
    narrow, wide = table(), table(ID, NOTE, column("n", "bigint", default_expression="5"), version=2)
    harness.apply(narrow, put(1, 1, "one"), put(1, 2, "two"), put(1, 3, "three"))
    harness.apply(narrow, put(2, 2, "zwei"), gone(2, 3))
    harness.apply(wide, put(3, 4, "four", n=4))

    place = "/".join((shared.delta.warehouse_dir, *harness.place(wide).identifier))
    rows = DeltaTable(place).to_pyarrow_table().select(["id", "note", "n"]).sort_by("id").to_pylist()

    assert rows == [
        {"id": 1, "note": "one", "n": 5},
        {"id": 2, "note": "zwei", "n": 5},
        {"id": 4, "note": "four", "n": 4},
    ]
    assert not features(harness, wide)
    renamed = table(ID, msgspec.structs.replace(NOTE, name="text", former_names=(NOTE_BEFORE,)), version=3)
    with pytest.raises(TableRefused, match=r"note is text now.*column_renamed"):
        harness.apply(renamed, RowChange("u", 4, {"id": 1, "text": "uno"}))
    with pytest.raises(TableRefused, match="'a space' needs mapped names"):
        harness.apply(table(ID, column("a space", "int"), name="odd"), RowChange("c", 1, {"id": 1, "a space": 1}))


def test_a_table_that_was_widened_is_written_anew_once_it_may_be() -> None:
    """Not where the settings spare it; a rewrite that was cut off, or an earlier release, is made up for by the next batch."""
    shared = shared_spark()
    spared = open_sink(msgspec.structs.replace(shared.delta, rewrites_widened=False))
    narrow = table(ID, column("n", "int"))
    wide, wider = (table(ID, column("n", kind), version=v) for v, kind in ((2, "bigint"), (3, "bigint unsigned")))

    def harness(sink: Sink) -> WarehouseHarness:
        return WarehouseHarness(shared.session, sink, lambda place: delta_rows(shared.delta, place), "delta-widened")

    harness(spared).apply(narrow, RowChange("c", 1, {"id": 1, "n": 1}), batch_id=1)
    harness(spared).apply(wide, RowChange("c", 2, {"id": 2, "n": 2**40}), batch_id=2)
    assert "typeWidening" in features(harness(spared), wide)
    home = Home(Path(shared.delta.warehouse_dir).parent)
    stored = DeltaWarehouse(home.delta_dir).load(harness(spared).place(wide))
    assert stored is not None
    with pytest.raises(UnreadableTable, match=r"typeWidening.*rewrites_widened"):
        stored.rows()

    anew = harness(open_sink(shared.delta))
    assert not anew.apply(wide, batch_id=2)
    anew.apply(wide, RowChange("c", 3, {"id": 3, "n": 3}), batch_id=3)
    assert "typeWidening" not in features(anew, wide)
    anew.apply(wider, RowChange("c", 4, {"id": 4, "n": -1}), batch_id=4)
    assert "typeWidening" not in features(anew, wider)
    assert anew.is_applied(wide, 4)
    rows = {row["id"]: int(str(row["n"])) for row in anew.rows(wider)}
    assert rows == {1: 1, 2: 2**40, 3: 3, 4: 2**64 - 1}


def test_each_commit_says_how_far_the_table_got() -> None:
    """First rows, a merge, a table built again; no other commit. Each table of a batch reports its own progress."""
    shared = shared_spark()
    sink = open_sink(shared.delta)
    harness = WarehouseHarness(shared.session, sink, lambda place: delta_rows(shared.delta, place), "delta-told")
    orders, items = table(), table(name="items")

    def told(schema: TableSchema) -> list[dict[str, object]]:
        place = "/".join((shared.delta.warehouse_dir, *harness.place(schema).identifier))
        return list(delta_progress(DeltaTable(place)))

    found = []
    for batch_id in (1, 2):
        harness.apply(orders, put(batch_id, 1, f"at {batch_id}"), batch_id=batch_id)
        found += told(orders)
    harness.apply_resync(orders, put(3, 1, "at 3"), batch_id=3)
    harness.maintain(orders)
    found += told(orders)
    harness.apply_at_once([(orders, [put(4, 1, "at 4")]), (items, [put(4, 1, "at 4")])])

    assert [str(each["batch"]).rpartition(":")[2] for each in found] == ["1", "2", "3"]
    [position] = REACHED.positions
    for each in (*found, *told(orders), *told(items)):
        assert each["order"] == REACHED.order
        assert each["offsets"] == '{"0": 5, "1": 7}'
        assert each["source_partition"] == position.source_partition
        assert each["position_order"] == position.order
    [one], [other] = told(orders), told(items)
    assert one["batch"] == other["batch"]


def test_files_that_nobody_needs_go_after_so_many_commits() -> None:
    """The number of the last commit does not matter: VACUUM itself makes two. A job that starts again goes on counting."""
    shared = shared_spark()
    settings = msgspec.structs.replace(shared.delta, vacuum_every_commits=2, optimize_at_files=1_000)
    log = table(ID, column("n", "int"))
    ranks = itertools.count(1)

    def harness() -> WarehouseHarness:
        return WarehouseHarness(
            shared.session, open_sink(settings), lambda place: delta_rows(shared.delta, place), "delta-vacuum"
        )

    def commit(job: WarehouseHarness) -> int:
        rank = next(ranks)
        job.apply(log, RowChange("c", rank, {"id": rank, "n": rank}), mode=SinkMode.APPEND, batch_id=rank)
        job.maintain(log)
        place = "/".join((settings.warehouse_dir, *job.place(log).identifier))
        return sum(entry["operation"] == "VACUUM END" for entry in DeltaTable(place).history())

    first = harness()
    vacuums = [commit(first) for _ in range(2)]
    second = harness()
    second.maintain(log)
    vacuums += [commit(second) for _ in range(2)]

    assert vacuums == [0, 1, 1, 2]


@pytest.mark.gate
def test_what_is_wider_holds_every_value() -> None:
    """A type that is a digit too small is not."""
    assert is_wider("decimal(10,0)", "int")
    assert not is_wider("decimal(9,0)", "int")
    assert not is_wider("decimal(19,0)", "bigint")
    assert not is_wider("decimal(12,3)", "decimal(12,2)")
    assert not is_wider("string", "int")
