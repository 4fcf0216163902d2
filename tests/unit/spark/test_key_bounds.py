"""The work that a batch's keys spare: merges where there is nothing to merge with, and files that hold none of them."""

from pathlib import Path
from urllib.parse import urlparse

import pytest
from deltalake import DeltaTable

from libs.events.delivered_schema import DeliveredSchema
from libs.mysql.logical import column
from libs.testing.sink_contract import NOTE, RowChange, gone, put, source_rows, table
from libs.types.table import Column, TableSchema
from spark.batch.table_batch import TableBatch, are_first, key_bounds
from spark.sinks.delta.sink import open_sink as open_delta_sink
from spark.sinks.port import KeyBounds
from spark.transforms.survey import survey
from spark.transforms.warehouse_columns import TableColumn
from tests.contract.sink_harness import WarehouseHarness
from tests.contract.test_sinks import delta_rows
from tests.marks import rest
from tests.spark_session import SharedSpark
from tests.unit.spark.events import Change, events, orders_schema

IDS = (3, 12, 7)
COLUMNS = {"id": TableColumn("int"), "note": TableColumn("string")}


def change(op: str, key: object, rank: int = 1) -> Change:
    row = {"id": key, "note": "x"}
    return Change(op=op, rank=rank, before=row if op == "d" else None, after=None if op == "d" else row)


def bounds(
    shared: SharedSpark, changes: list[Change], schema: DeliveredSchema, stored_type: str = "int"
) -> KeyBounds | None:
    columns = {**COLUMNS, "id": TableColumn(stored_type)}
    return key_bounds(batch_of(shared, changes, schema), columns, schema.table_schema.key)


def batch_of(shared: SharedSpark, changes: list[Change], schema: DeliveredSchema) -> TableBatch:
    _, slices, _ = survey(events(shared.session, schema.topic, changes))
    versions = {schema.table_schema.version: schema}
    return TableBatch(schema.topic, slices, shared.session.range(0), versions, None, is_passed_over=False)


@pytest.mark.parametrize(("ops", "first"), [("crc", True), ("rrr", True), ("cuc", False), ("crd", False)])
def test_bounds_are_those_of_every_event(shared: SharedSpark, ops: str, first: bool) -> None:
    batch = batch_of(shared, [change(op, key) for op, key in zip(ops, IDS, strict=True)], orders_schema())

    assert key_bounds(batch, COLUMNS, ("id",)) == KeyBounds("id", 3, 12)
    assert are_first(batch) == first


ID = column("id", "int", is_optional=False)
UNSIGNED = column("id", "bigint unsigned", is_optional=False)
CODE = column("id", "varchar(9)", is_optional=False, charset="utf8mb4")


@pytest.mark.parametrize(
    ("key", "ids", "stored_type", "expected"),
    [
        (ID, (-5, 2), "bigint", (-5, 2)),
        (ID, (1, 2), "string", None),  # a table that keeps the source's type of before
        (UNSIGNED, (1, 2**63 - 1), "decimal(20,0)", (1, 2**63 - 1)),
        (UNSIGNED, (1, 2**64 - 1), "decimal(20,0)", None),
        (CODE, ("a", "b:7"), "string", None),
    ],
)
def test_a_key_that_is_no_whole_number_in_the_table_has_no_bounds(
    shared: SharedSpark, key: Column, ids: tuple[object, ...], stored_type: str, expected: tuple[int, int] | None
) -> None:
    """A BIGINT UNSIGNED above 2**63-1 is negative in its event, and the table has it as it was."""
    wire = [each - 2**64 if isinstance(each, int) and each >= 2**63 else each for each in ids]

    found = bounds(shared, [change("c", each) for each in wire], orders_schema(key, NOTE), stored_type)

    assert (None if found is None else (found.least, found.greatest)) == expected


def test_neither_a_key_of_two_columns_nor_a_truncation_has_bounds(shared: SharedSpark) -> None:
    pair = orders_schema(ID, column("n", "int", is_optional=False), key=("id", "n"))
    changes = [Change(op="c", rank=1, after={"id": 1, "n": 2}, key={"id": 1, "n": 2})]

    assert bounds(shared, changes, pair) is None
    assert bounds(shared, [change("c", 1), Change(op="t", rank=2)], orders_schema()) is None


@pytest.fixture(params=["iceberg", *rest("delta", because="the gate shows it on Iceberg")])
def harness(request: pytest.FixtureRequest, shared: SharedSpark) -> WarehouseHarness:
    if request.param == "iceberg":
        return WarehouseHarness(shared.session, shared.sink, shared.rows, "bounds")
    sink = open_delta_sink(shared.delta)
    return WarehouseHarness(shared.session, sink, lambda place: delta_rows(shared.delta, place), "bounds")


def data_files(harness: WarehouseHarness, shared: SharedSpark, orders: TableSchema) -> set[Path]:
    place = harness.place(orders)
    if harness.kind == "delta":
        uris = DeltaTable("/".join((shared.delta.warehouse_dir, *place.identifier))).file_uris()
    else:
        uris = [row[0] for row in shared.session.sql(f"SELECT file_path FROM {place.quoted()}.files").collect()]
    return {Path(urlparse(uri).path) for uri in uris}


def test_files_that_hold_none_of_the_keys_are_not_opened(harness: WarehouseHarness, shared: SharedSpark) -> None:
    """Shown by their being away: neither for new rows, which are appended, nor for updates; others are missed."""
    orders = table()
    harness.apply(orders, *(RowChange("r", 1, {"id": key, "note": "first"}) for key in (1, 2)))
    files = data_files(harness, shared, orders)
    for path in files:
        path.rename(path.with_suffix(".away"))
    try:
        harness.apply(orders, *(RowChange("c", 2, {"id": key, "note": "new"}) for key in (3, 4)))
        harness.apply(orders, put(3, 3, "again"), gone(3, 4))
        with pytest.raises(Exception, match="|".join(path.name for path in files)):
            harness.apply(orders, RowChange("c", 4, {"id": 2, "note": "late"}))
    finally:
        for path in files:
            path.with_suffix(".away").rename(path)

    assert source_rows(harness, orders) == [
        {"id": 1, "note": "first"},
        {"id": 2, "note": "first"},
        {"id": 3, "note": "again"},
    ]


def test_new_rows_among_those_that_are_there_are_merged(harness: WarehouseHarness) -> None:
    """A copy that is taken again, and a key that is put in again, find their rows."""
    orders = table(name="again")
    harness.apply(orders, *(RowChange("r", 1, {"id": key, "note": "first"}) for key in (1, 5)))

    harness.apply(orders, *(RowChange("c", 2, {"id": key, "note": "second"}) for key in (5, 6)))
    harness.apply(orders, *(RowChange("r", 0, {"id": key, "note": "older"}) for key in (2, 5)))

    assert source_rows(harness, orders) == [
        {"id": 1, "note": "first"},
        {"id": 2, "note": "older"},
        {"id": 5, "note": "second"},
        {"id": 6, "note": "second"},
    ]
