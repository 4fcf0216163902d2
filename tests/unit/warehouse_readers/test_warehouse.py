"""SQL over Iceberg tables, without Spark."""

import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from libs.errors import InvalidSettings
from libs.mesh.home import Home, home_at
from libs.sink_state.progress import ReachedPosition, encode_positions
from libs.warehouse_readers.warehouse import (
    IcebergWarehouse,
    QueryFailed,
    open_catalog,
    rows_of,
    run_query,
    sorted_rows,
    tables_of,
)
from tests.unit.warehouse_readers.warehouse_files import write_table

NOON = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Tables that are read only: to write them takes ten times as long as to ask for them."""
    return filled(tmp_path_factory.mktemp("home"))


@pytest.fixture
def own_home(tmp_path: Path) -> Home:
    """The same, to be written to."""
    return filled(tmp_path)


def filled(folder: Path) -> Home:
    """Two tenants; ``acme`` has ``orders`` of two sources, and ``Customers``."""
    made = home_at(folder)
    noons = pa.array([NOON] * 3, pa.timestamp("us", "UTC"))
    orders = pa.table({"id": [3, 1, 2], "name": ["c", "a", "B"], "placed_at": noons})
    write_table(made, "acme", "shop", "shop.orders", orders)
    write_table(made, "acme", "crm", "crm.orders", orders.slice(0, 1))
    write_table(made, "acme", "shop", "shop.Customers", orders.slice(0, 2))
    write_table(made, "globex", "shop", "shop.orders", orders.slice(0, 1))
    return made


def ask(home: Home, tenant: str, sql: str) -> list[tuple[object, ...]]:
    warehouse = IcebergWarehouse(home.catalog_file, home.warehouse_dir)
    answer = run_query(warehouse, tables_of(warehouse.tables(), tenant), sql)
    return [row for batch in answer.to_batches() for row in rows_of(batch)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT count(*) FROM shop.orders", 3),
        ("SELECT count(*) FROM crm.orders", 1),
        ('SELECT count(*) FROM "crm.crm".orders', 1),
        ("SELECT count(*) FROM customers", 2),
        ("FROM shop.orders a JOIN shop.orders b USING (id) SELECT count(*)", 3),
    ],
)
def test_tables_are_called_as_in_the_source(home: Home, sql: str, expected: int) -> None:
    """By table, by database and table, by source; in any case; as often as one likes."""
    assert ask(home, "acme", sql) == [(expected,)]


def test_tables_whose_names_differ_in_case_alone_are_told_apart_by_quotes(own_home: Home) -> None:
    """DuckDB takes ``b2_t`` and ``B2_T`` for one name, and ``"b2_t"`` and ``"B2_T"`` too."""
    for name, rows in (("shop.b2_t", 1), ("shop.B2_T", 2), ("SHOP.b2_t", 3)):
        write_table(own_home, "acme", "shop", name, pa.table({"id": list(range(rows)), "b2_t": ['"B2_T"'] * rows}))

    assert ask(own_home, "acme", 'SELECT count(*) FROM "shop"."b2_t"') == [(1,)]
    assert ask(own_home, "acme", 'SELECT count(*), min(b2_t) FROM "shop"."B2_T"') == [(2, '"B2_T"')]
    assert ask(own_home, "acme", 'SELECT count(*) FROM "shop.SHOP"."b2_t" WHERE b2_t = \'"B2_T"\'') == [(3,)]
    with pytest.raises(QueryFailed, match="in quotes"):
        ask(own_home, "acme", "SELECT count(*) FROM b2_t")
    assert ask(own_home, "acme", 'SELECT count(*) FROM "shop".orders') == [(3,)]


def test_a_tenant_sees_its_own_tables_only(home: Home) -> None:
    """The same name is another table for another tenant."""
    assert ask(home, "globex", "SELECT count(*) FROM orders") == [(1,)]
    with pytest.raises(QueryFailed, match=r"shop\.orders"):
        ask(home, "globex", "SELECT * FROM customers")


def test_times_are_shown_in_utc(home: Home) -> None:
    """In any zone of the machine."""
    assert ask(home, "globex", "SELECT placed_at FROM orders") == [(NOON.replace(tzinfo=None),)]


def test_a_tenants_progress_is_what_its_commits_say(own_home: Home) -> None:
    """By table and source partition, of the newest commit of rows; other commits say nothing, and a tenant sees
    its own alone."""
    positions = tuple(
        ReachedPosition(source_partition=shard, order="0:8", position={"vgtid": f"of {shard}"})
        for shard in ("-80", "80-")
    )
    commit(own_home, "shop.orders", {**REACHED, "headwater.positions": encode_positions(positions).decode()})
    commit(own_home, "shop.orders", {})
    commit(own_home, "shop.Customers", {"headwater.batch": "q:3"})

    orders = ask(own_home, "acme", "SELECT * FROM _headwater_progress WHERE \"table\" = 'shop.orders'")
    customers = ask(own_home, "acme", "SELECT source_partition, batch FROM _headwater_progress WHERE batch = 'q:3'")

    said = ("0:9", NOON.replace(tzinfo=None), '{"0":5}', "q:4")
    assert [row[:9] for row in orders] == [
        ("shop.orders", "shop", "-80", '{"vgtid":"of -80"}', "0:8", *said),
        ("shop.orders", "shop", "80-", '{"vgtid":"of 80-"}', "0:8", *said),
    ]
    assert customers == [(None, "q:3")]
    assert ask(own_home, "globex", "FROM _headwater_progress") == []


REACHED = {
    "headwater.batch": "q:4",
    "headwater.order": "0:9",
    "headwater.committed-at-us": str(int(NOON.timestamp()) * 1_000_000),
    "headwater.offsets": '{"0":5}',
}


def commit(home: Home, table: str, summary: dict[str, str]) -> None:
    """One more snapshot of a table of ``acme``."""
    catalog = open_catalog(home.catalog_file, home.warehouse_dir)
    found = catalog.load_table(("acme", "shop", *table.split(".")))
    found.append(found.scan().to_arrow().slice(0, 0), snapshot_properties=summary)
    catalog.close()


@pytest.mark.parametrize(
    "sql", ["SELEC 1", "SELECT nix FROM shop.orders", "SELECT * FROM orders", "CREATE TABLE t (a INT)", ""]
)
def test_wrong_sql_is_told_with_the_tables_there_are(home: Home, sql: str) -> None:
    """Never a traceback; a name of two tables is not guessed."""
    with pytest.raises(QueryFailed):
        ask(home, "acme", sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name FROM shop.orders WHERE id = 3;",
        "FROM shop.orders SELECT name LIMIT 1",
        "WITH o AS (SELECT * FROM shop.orders) SELECT name FROM o WHERE id = 3",
        "VALUES ('c')",
    ],
)
def test_every_form_of_a_query_is_answered(home: Home, sql: str) -> None:
    """A statement that begins with another word than SELECT may be a query all the same."""
    assert ask(home, "acme", sql) == [("c",)]


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE t (a INT)",
        "COPY (SELECT 1) TO '{file}'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}'",
        "SELECT 1; COPY (SELECT 1) TO '{file}'",
        "WITH t AS (SELECT 1 AS id) DELETE FROM shop.orders USING t",
    ],
)
def test_a_statement_that_writes_is_refused_before_it_runs(home: Home, tmp_path: Path, sql: str) -> None:
    """Also where a query stands in front of it or within it."""
    file = tmp_path / "written.csv"

    with pytest.raises(QueryFailed, match=r"write (a|one) SELECT"):
        ask(home, "acme", sql.format(file=file))

    assert not file.exists()


def test_an_unknown_tenant_is_told_the_nearest(home: Home) -> None:
    """With the tenants that have tables."""
    with pytest.raises(InvalidSettings, match="did you mean 'globex'"):
        ask(home, "globx", "SELECT 1")


def test_a_home_without_tables_is_told(tmp_path: Path) -> None:
    """Before the sink's first commit, and in a wrong folder."""
    with pytest.raises(InvalidSettings, match="no table yet"):
        open_catalog(home_at(tmp_path).catalog_file, home_at(tmp_path).warehouse_dir)


def test_rows_come_in_key_order_by_code_point(home: Home, tmp_path: Path) -> None:
    """As the source's side sorts: capitals before small letters, no collation."""
    catalog = open_catalog(home.catalog_file, home.warehouse_dir)
    table = catalog.load_table(("acme", "shop", "shop", "orders"))

    names = [
        name for batch in sorted_rows(table, ["name"], ["name"], temporary_dir=tmp_path) for (name,) in rows_of(batch)
    ]

    assert names == ["B", "a", "c"]


def test_of_an_append_table_the_newest_row_of_each_key_counts(tmp_path: Path) -> None:
    """A key whose newest change is a delete has no row."""
    home = home_at(tmp_path)
    changes = pa.table(
        {
            "id": [1, 1, 2, 2, 3],
            "v": ["old", "new", "was", "was", "only"],
            "_headwater_op": ["c", "u", "c", "d", "r"],
            "_headwater_order": ["1", "2", "1", "3", "1"],
        }
    )
    write_table(home, "acme", "shop", "shop.log", changes)
    table = open_catalog(home.catalog_file, home.warehouse_dir).load_table(("acme", "shop", "shop", "log"))

    batches = sorted_rows(
        table, ["id", "v"], ["id"], latest_by=("_headwater_order", "_headwater_op"), temporary_dir=tmp_path
    )

    assert [row[:2] for batch in batches for row in rows_of(batch)] == [(1, "new"), (3, "only")]
