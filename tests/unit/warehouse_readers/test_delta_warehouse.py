"""SQL over Delta tables and their rows in order, without Spark."""

import datetime
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from libs.errors import InvalidSettings
from libs.mesh.home import Home, home_at
from libs.types.table import TableId
from libs.types.warehouse import warehouse_table
from libs.warehouse_readers.delta import DeltaWarehouse
from libs.warehouse_readers.warehouse import rows_of, run_query, tables_of

NOON = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
ORDERS = pa.table(
    {
        "id": pa.array([3, 1, 2, 1], pa.int32()),
        'odd `name"': ["c", "a", "B", None],
        "raw": pa.array([b"\x00", b"", None, b"x"], pa.binary()),
        "total": pa.array([Decimal("1.50")] * 4, pa.decimal128(12, 2)),
        "placed_at": pa.array([NOON] * 4, pa.timestamp("us", "UTC")),
        "op": ["c", "c", "d", "u"],
        "order": ["1", "2", "3", "4"],
    }
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Two tenants' tables, and a folder that is none."""
    made = home_at(tmp_path)
    for tenant, rows in (("acme", ORDERS), ("globex", ORDERS.slice(0, 1))):
        table_id = TableId(database="shop", table="orders")
        place = warehouse_table(tenant, "shop", table_id)
        folder = made.delta_dir.joinpath(*place.identifier)
        folder.mkdir(parents=True)
        write_deltalake(str(folder), rows)
        note_properties(folder, {"headwater.source": "shop", "headwater.table": str(table_id)})
    (made.delta_dir / "acme" / "shop" / "shop" / "begun").mkdir()
    return made


def note_properties(folder: Path, noted: dict[str, str]) -> None:
    """delta-rs itself writes no others than Delta's own."""
    first = folder / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"] = noted
    first.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def test_tables_are_found_by_what_the_sink_noted(home: Home) -> None:
    """A tenant sees its own."""
    warehouse = DeltaWarehouse(home.delta_dir)
    acme, globex = (tables_of(warehouse.tables(), tenant) for tenant in ("acme", "globex"))

    assert [table.names for table in acme] == [("orders", "shop.orders", "shop.shop.orders")]
    for tables, counted in ((acme, (4, 3)), (globex, (1, 3))):
        answer = run_query(warehouse, tables, "SELECT count(*), max(id) FROM orders")
        assert [row for batch in answer.to_batches() for row in rows_of(batch)] == [counted]


def test_rows_come_sorted_and_chosen(home: Home) -> None:
    """Of a log the newest of each key that is no delete, or those that meet a condition."""
    stored = DeltaWarehouse(home.delta_dir).load(
        warehouse_table("acme", "shop", TableId(database="shop", table="orders"))
    )
    assert stored is not None
    columns = ("id", 'odd `name"', "raw", "total")

    newest = stored.sorted_rows(columns, ("id",), latest_by=("order", "op"), temporary_dir=home.root)
    some = stored.sorted_rows(("id",), ("id",), where="op = 'c'", temporary_dir=home.root)

    assert [row[:4] for batch in newest for row in rows_of(batch)] == [
        (1, None, b"x", Decimal("1.50")),
        (3, "c", b"\x00", Decimal("1.50")),
    ]
    assert [row for batch in some for row in rows_of(batch)] == [(1,), (3,)]
    assert (stored.count(), stored.columns) == (4, tuple(ORDERS.column_names))
    assert stored.rows()["placed_at"].to_pylist() == [NOON] * 4


def test_a_table_that_is_not_there_is_none(home: Home) -> None:
    """And a warehouse without any says so."""
    assert (
        DeltaWarehouse(home.delta_dir).load(warehouse_table("acme", "shop", TableId(database="shop", table="begun")))
        is None
    )
    with pytest.raises(InvalidSettings, match="there is no table yet"):
        DeltaWarehouse(home_at(home.root / "elsewhere").delta_dir)
