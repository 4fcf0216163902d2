"""``headwater check`` finds planted faults: a check that finds nothing must also be able to find something.

The source is a real MySQL, the tables are real Iceberg files. No service runs: the rows that they would have delivered are
written here, right or with one fault.
"""

import dataclasses
import hashlib
import itertools
import json
import re
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from libs.check import run
from libs.check.compare import MISSING
from libs.check.compared import stack_compared
from libs.check.run import CheckReport, check
from libs.mesh.documents import read_documents
from libs.mesh.home import Home, home_at
from libs.sink_state.progress import ParkedTable, SinkProgress, TableProgress, encode_sink_progress
from libs.types.warehouse import WarehouseTable
from libs.warehouse_readers import warehouse
from libs.warehouse_readers.iceberg_variants import VariantsUnreadable
from tests.conftest import MysqlServer
from tests.headwater_command import HeadwaterCommand, write_shop
from tests.unit.warehouse_readers.warehouse_files import write_table

EMAILS = ("a@example.org", None, "B@example.org", "ä@example.org")
HUGE = 2**64 - 1
COMMAND_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Shop:
    """A database of one table, and the home of a stack that would follow it."""

    home: Home
    database: str

    def deliver(self, tenant: str, rows: pa.Table, *, is_new: bool = True) -> None:
        """Write the rows that ``tenant`` got of the table."""
        write_table(self.home, tenant, "shop", f"{self.database}.orders", rows, is_new=is_new)

    def check(self, tenant: str) -> CheckReport:
        """As the command does with the stack down."""
        return check(stack_compared(self.home, read_documents(self.home), is_up=False), [tenant], limit=10)


@pytest.fixture
def shop(mysql_server: MysqlServer, unique_name: Callable[[str], str], tmp_path: Path) -> Shop:
    """Four orders of two owners; ``acme`` gets all, ``globex`` its own with hashed e-mails and without notes."""
    database = unique_name("check")
    mysql_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.orders (code VARCHAR(10) PRIMARY KEY, owner VARCHAR(10) NOT NULL, email VARCHAR(40), "
        "points BIGINT UNSIGNED NOT NULL, rate FLOAT, note TEXT)",
    )
    with mysql_server.connect(database) as connection, connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO orders VALUES (%s, %s, %s, %s, 0.1, 'x')",
            [
                (code, owner, email, HUGE - number)
                for number, (code, owner, email) in enumerate(
                    zip(("b", "A", "é", "Z"), ("globex", "acme", "acme", "globex"), EMAILS, strict=True)
                )
            ],
        )
    home = home_at(tmp_path / "home")
    write_shop(home, mysql_server, database, {"acme": "{mode: mirror}", "log": "{mode: append}"})
    selection = f"name: shop, include_tables: ['{database}\\..*']"
    (home.tenants_dir / "globex.yaml").write_text(
        f"tenant: globex\nsources:\n  - {{{selection}, exclude_columns: ['.*\\.note'],\n"
        f"     row_filters: [{{tables: '.*', where: \"owner = 'globex'\"}}],\n"
        "     masks: [{columns: '.*\\.email', hash: {salt: pepper}}]}\n"
    )
    return Shop(home, database)


def rows(codes: Sequence[str] = ("b", "A", "é", "Z"), **instead: Any) -> pa.Table:
    """The orders as a sink that made no mistake holds them; ``instead`` replaces whole columns."""
    everything = {
        "code": ["b", "A", "é", "Z"],
        "owner": ["globex", "acme", "acme", "globex"],
        "email": list(EMAILS),
        "points": pa.array([HUGE - number for number in range(4)], pa.decimal128(20, 0)),
        "rate": pa.array([0.1] * 4, pa.float32()),
        "note": ["x"] * 4,
        **instead,
    }
    table = pa.table(everything)
    return table.filter(pa.array([code in codes for code in table["code"].to_pylist()]))


def hashed(email: str | None, salt: str = "pepper") -> str | None:
    return None if email is None else hashlib.sha256((salt + email).encode()).hexdigest()


def globex_rows(salt: str = "pepper", codes: Sequence[str] = ("b", "Z")) -> pa.Table:
    return rows(codes, email=[hashed(email, salt) for email in EMAILS]).drop_columns(["note"])


def test_a_right_warehouse_has_no_difference(shop: Shop) -> None:
    """Every column, keys that sort otherwise under the collation, NULL, unsigned numbers, FLOAT digits."""
    shop.deliver("acme", rows())
    shop.deliver("globex", globex_rows())

    everything, filtered = shop.check("acme"), shop.check("globex")

    assert (everything.differences, everything.rows_compared, everything.cells_compared) == (0, 4, 24)
    assert (filtered.differences, filtered.rows_compared, filtered.cells_compared) == (0, 2, 10)
    assert not everything.source_moved
    assert [(each.is_summed, each.rows_read) for each in (*everything.tables, *filtered.tables)] == [(True, 0)] * 2


@pytest.mark.parametrize(("columns", "is_told"), [("code|owner", False), ("owner", True)])
def test_a_key_that_rows_share_is_told_of(shop: Shop, columns: str, is_told: bool) -> None:
    """Of three rows of one owner a mirror that is keyed by owners holds one."""
    path = shop.home.sources_dir / "shop.yaml"
    path.write_text(f"{path.read_text()}key_columns: [{{tables: '.*\\.orders', columns: '{columns}'}}]\n")
    shop.deliver("acme", rows())

    report = shop.check("acme")

    told = f"shop: key_columns gives {shop.database}.orders the key owner: "
    assert report.differences == 0
    assert any(note.startswith(told) for note in report.notes) == is_told


def test_a_table_that_cannot_be_read_is_told_of_beside_the_others(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog gives no file of one with VARIANT columns: the run goes on."""
    shop.deliver("acme", rows())
    shop.deliver("globex", globex_rows())
    mesh = stack_compared(shop.home, read_documents(shop.home), is_up=False)
    load = warehouse.load_table

    def load_but_acmes(catalog: Catalog, place: WarehouseTable) -> Table | None:
        if place.namespace[0] == "acme":
            raise VariantsUnreadable("acme's has VARIANT columns; ask Spark")
        return load(catalog, place)

    monkeypatch.setattr(warehouse, "load_table", load_but_acmes)
    report = check(mesh, ["acme", "globex"], limit=10)

    assert [table.faults for table in report.tables] == [
        ("it cannot be compared: acme's has VARIANT columns; ask Spark",),
        (),
    ]
    assert (report.differences, report.rows_compared) == (1, 2)


def test_a_table_that_no_reader_reads_is_not_compared(shop: Shop) -> None:
    """Nor one that nobody asked for."""
    shop.deliver("acme", rows(("b",)))
    mesh = stack_compared(shop.home, read_documents(shop.home), is_up=False)
    others = check(mesh, ["acme"], tables=[r".*\.notes"], limit=10)
    asked_for = check(mesh, ["acme"], tables=[r".*\.notes", r".*\.orders"], limit=10)
    path = shop.home.sources_dir / "shop.yaml"
    path.write_text(f"{path.read_text()}exclude_tables: ['.*\\.orders']\n")

    assert shop.check("acme").tables == ()
    assert (others.tables, asked_for.differences) == ((), 3)


def test_a_warehouse_under_adjusted_names_is_compared_under_them(shop: Shop, mysql_server: MysqlServer) -> None:
    """The source is asked by its names, the warehouse by the tenant's; a column under its old name is missing."""
    mysql_server.execute(
        f"ALTER TABLE {shop.database}.orders RENAME COLUMN code TO `order-code`, RENAME COLUMN note TO `no.te`"
    )
    document = shop.home.tenants_dir / "acme.yaml"
    document.write_text(document.read_text() + "format: {field_names: avro}\n")
    held = rows().rename_columns({"code": "order_code", "note": "no_te"})
    shop.deliver("acme", held)
    shop.deliver("log", held)

    adjusted, plain = shop.check("acme"), shop.check("log")

    assert (adjusted.differences, adjusted.rows_compared, adjusted.cells_compared) == (0, 4, 24)
    assert plain.tables[0].faults == (
        "column order-code is missing in the warehouse",
        "column no.te is missing in the warehouse",
        "the warehouse lacks a column of the key: no row can be compared",
    )


Plant = Callable[[], pa.Table]


@pytest.mark.promise("check")
@pytest.mark.parametrize(
    ("plant", "key", "column"),
    [
        (lambda: rows(("b", "A", "Z")), ("é",), None),
        (lambda: pa.concat_tables([rows(), rows(("A",))]), ("A",), None),
        (lambda: rows(email=["a@example.org", "", *EMAILS[2:]]), ("A",), "email"),
        (lambda: rows(email=["a@example.org", None, "b@example.org", EMAILS[3]]), ("é",), "email"),
        (lambda: rows(points=pa.array([-1, HUGE - 1, HUGE - 2, HUGE - 3], pa.decimal128(20, 0))), ("b",), "points"),
        (lambda: rows(rate=pa.array([0.1, 0.1, 0.1, 0.10000001], pa.float32())), ("Z",), "rate"),
    ],
    ids=["lost", "twice", "empty for NULL", "another case", "wrapped number", "last digit"],
)
def test_each_planted_fault_is_found_where_it_is(shop: Shop, plant: Plant, key: tuple[str], column: str | None) -> None:
    """One difference, at its key and column: no more and no less."""
    shop.deliver("acme", plant())

    (table,) = shop.check("acme").tables

    assert [(each.key, each.column) for each in table.comparison.first] == [(key, column)]
    assert table.comparison.rows_different == 1


def test_a_column_whose_type_changed_is_told_by_name(shop: Shop, mysql_server: MysqlServer) -> None:
    """Earlier values are in it, later ones in the column beside it."""
    mysql_server.execute(
        f"UPDATE {shop.database}.orders SET note = NULL", f"ALTER TABLE {shop.database}.orders MODIFY note DATE"
    )
    shop.deliver("acme", rows(note__v_date=pa.array([None] * 4, pa.date32())))

    (table,) = shop.check("acme").tables

    assert table.faults == (
        "column note: a MySQL date cannot stand in a column of type string; values after its change of type are in "
        "note__v_date",
    )


def test_a_row_behind_the_filter_is_a_leak(shop: Shop) -> None:
    """Of another owner: it must not be there, however right its values are."""
    shop.deliver("globex", globex_rows(codes=("b", "A", "Z")))

    (table,) = shop.check("globex").tables

    assert [(each.key, each.source is MISSING) for each in table.comparison.first] == [(("A",), True)]


def test_an_unmasked_or_wrongly_salted_value_is_found(shop: Shop) -> None:
    """The hash is computed again, with the tenant's salt."""
    shop.deliver("globex", globex_rows(salt="salt"))

    (table,) = shop.check("globex").tables

    assert [each.column for each in table.comparison.first] == ["email", "email"]


@pytest.mark.parametrize(
    ("mask", "held"),
    [
        ("constant: 'it''s'", ["it's"] * 4),
        ("set_null: true", [None] * 4),
        ("truncate_chars: 1", ["a", None, "B", "ä"]),
        ("keep_last: 12", ["*@example.org", None, "*@example.org", "*@example.org"]),
        ("keep_last: 99", ["*" * 13, None, "*" * 13, "*" * 13]),
        ("hash: {salt: ä, algorithm: sha512}", None),
    ],
)
def test_masks_without_a_key_are_made_anew_by_the_source(shop: Shop, mask: str, held: list[str | None] | None) -> None:
    """And compared by checksums; a value that was left in the clear is found."""
    document = shop.home.tenants_dir / "acme.yaml"
    document.write_text(document.read_text().replace("}]", f", masks: [{{columns: '.*\\.email', {mask}}}]}}]"))
    digests = [each and hashlib.sha512(f"ä{each}".encode()).hexdigest() for each in EMAILS]
    masked = digests if held is None else held
    shop.deliver("acme", rows(email=pa.array(masked, pa.string())))

    [table] = shop.check("acme").tables

    assert (table.comparison.rows_different, table.is_summed, table.rows_read) == (0, True, 0)
    shop.deliver("acme", rows(email=[EMAILS[0], *masked[1:]]), is_new=False)
    [table] = shop.check("acme").tables
    assert [each.column for each in table.comparison.first] == ["email"]


def test_an_excluded_column_that_arrived_is_found(shop: Shop) -> None:
    """Its rows may be right: the column must not be there."""
    shop.deliver("globex", rows(("b", "Z"), email=[hashed(email) for email in EMAILS]))

    report = shop.check("globex")

    assert report.differences == 1
    assert "note must not be" in report.tables[0].faults[0]


def test_a_column_that_did_not_arrive_is_found(shop: Shop) -> None:
    """An ADD COLUMN that the sink missed."""
    shop.deliver("acme", rows().drop_columns(["rate"]))

    report = shop.check("acme")

    assert report.differences == 1
    assert "rate is missing" in report.tables[0].faults[0]


def test_every_turn_is_told_to_prometheus(shop: Shop) -> None:
    """By the command itself, over HTTP: a row that differs, and how many were compared."""
    shop.deliver("acme", rows(("b", "A", "Z")))
    with HeadwaterCommand(shop.home).start("check", "acme", "--every", "1", "--metrics-port", "0") as command:
        try:
            assert command.stdout is not None
            output = iter(command.stdout.readline, "")
            [address] = [line.split()[1] for line in [next(output)] if line.startswith("metrics: ")]
            assert any("1 difference(s)" in line for line in output)
            assert any("1 difference(s)" in line for line in output)  # the second turn: the first has been recorded
            with urllib.request.urlopen(address, timeout=60) as answer:
                page = answer.read().decode()
        finally:
            command.kill()

    labels = f'{{source="shop",table="{shop.database}.orders",tenant="acme"}}'
    assert f"headwater_check_different_rows{labels} 1.0" in page
    assert f"headwater_check_compared_rows{labels} 4.0" in page
    assert "headwater_check_failed_turns_total 0.0" in page


def test_a_turn_that_is_spread_goes_table_by_table_and_on_where_it_was(
    shop: Shop, mysql_server: MysqlServer, tmp_path: Path
) -> None:
    """After a restart the tables come that were not done, and then all from the first on."""
    mysql_server.execute(
        f"CREATE TABLE {shop.database}.items (id INT PRIMARY KEY)", f"INSERT INTO {shop.database}.items VALUES (1)"
    )
    shop.deliver("acme", rows())
    place = tmp_path / "place.json"
    place.write_text(json.dumps({"last": {"source": "shop", "table": f"{shop.database}.items"}}))
    options = ("--every", "1", "--share", "0.9", "--resume-file", str(place), "--metrics-port", "0")
    compared: list[str] = []
    with HeadwaterCommand(shop.home).start("check", "acme", *options) as command:
        try:
            assert command.stdout is not None
            output = iter(command.stdout.readline, "")
            [address] = [line.split()[1] for line in [next(output)] if line.startswith("metrics: ")]
            for line in output:
                if line.startswith("acme "):
                    compared.append(line.split()[1].rpartition(".")[2])
                if len(compared) == 3:
                    break
            assert any("rows (" in line for line in output)
            told = json.loads(place.read_text())["last"] if place.exists() else None
            with urllib.request.urlopen(address, timeout=60) as answer:
                page = answer.read().decode()
        finally:
            command.kill()

    assert compared == ["orders", "items", "orders"]
    assert told in (None, *({"source": "shop", "table": f"{shop.database}.{name}"} for name in ("items", "orders")))
    different = {"items": 1, "orders": 0}
    for table, count in different.items():
        labels = f'{{source="shop",table="{shop.database}.{table}",tenant="acme"}}'
        assert f"headwater_check_different_rows{labels} {count}.0" in page


PARKED = ParkedTable(because="column note: its type changed; choose a policy", from_offsets={0: 3}, to_offsets={0: 9})


def test_a_parked_table_is_told_of_and_not_compared(shop: Shop, mysql_server: MysqlServer, tmp_path: Path) -> None:
    """The others are; the command exits as with a difference, and the report says why."""
    mysql_server.execute(
        f"CREATE TABLE {shop.database}.items (id INT PRIMARY KEY)", f"INSERT INTO {shop.database}.items VALUES (1)"
    )
    shop.deliver("acme", rows(("b",)))
    write_table(shop.home, "acme", "shop", f"{shop.database}.items", pa.table({"id": pa.array([1], pa.int32())}))
    table = TableProgress(
        topic="t",
        source="shop",
        table=f"{shop.database}.orders",
        warehouse_table="w",
        parked=PARKED,
        written_at_us=1_700_000_000_000_000,
    )
    progress = shop.home.sink_dir / "progress" / "acme.json"
    progress.parent.mkdir(parents=True)
    progress.write_bytes(encode_sink_progress(SinkProgress(tenant="acme", tables={"t": table})))
    report_file = tmp_path / "report.jsonl"

    exit_code, said = HeadwaterCommand(shop.home).run_here("check", "acme", "--report", str(report_file))

    assert exit_code == 1, said
    assert re.search(rf"^acme +{shop.database}\.items +1 rows x +1 columns  equal$", said, re.M), said
    assert re.search(rf"^acme +{shop.database}\.orders .* NOT COMPARED$", said, re.M), said
    why = f"parked, last written at 2023-11-14T22:13:20+00:00: {PARKED.because}"
    assert why in said
    assert "0 difference(s), 1 table(s) not compared" in said
    lines = [json.loads(line) for line in report_file.read_text().splitlines()]
    assert [(line["table"].rpartition(".")[2], line["not_compared"]) for line in lines] == [
        ("items", None),
        ("orders", why),
    ]
    with HeadwaterCommand(shop.home).start("check", "acme", "--every", "1") as command:
        try:
            assert command.stdout is not None
            said = next(line for line in iter(command.stdout.readline, "") if line.startswith("not compared: "))
        finally:
            command.kill()
    assert said == f"not compared: 1 table(s), the first because acme: {shop.database}.orders: {why}\n"


@pytest.mark.parametrize("parks", [True, False])
def test_a_table_that_is_parked_before_the_second_look_is_not_judged(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, parks: bool
) -> None:
    """It does not hold the moment that was waited for."""
    shop.deliver("acme", rows(("b", "A", "Z")))
    monkeypatch.setattr(run, "wait_until_caught_up", lambda *_, **__: None)
    later = {("shop", f"{shop.database}.orders"): "parked: x"} if parks else {}
    seen: Iterator[dict[tuple[str, str], str]] = itertools.chain([{}], itertools.repeat(later))
    mesh = dataclasses.replace(
        stack_compared(shop.home, read_documents(shop.home), is_up=True), parked=lambda _: next(seen)
    )

    [table] = check(mesh, ["acme"], limit=10).tables

    assert (table.not_compared, table.comparison.rows_different) == (("parked: x", 0) if parks else ("", 1))


def test_a_table_that_never_arrived_lacks_every_row(shop: Shop) -> None:
    """Another tenant's table does not stand in for it."""
    shop.deliver("globex", globex_rows())

    assert shop.check("acme").differences == 4


@pytest.mark.parametrize(
    ("sink", "marks"),
    [
        ("{deletes: soft}", {"_headwater_deleted": [False] * 4 + [True]}),
        ("{mode: history}", {"is_current": [True] * 4 + [False], "valid_from": ["2026"] * 5}),
    ],
    ids=["soft deletes", "history"],
)
def test_rows_that_are_no_more_are_not_compared(shop: Shop, sink: str, marks: dict[str, list[object]]) -> None:
    """Those that are marked deleted, and versions that ended; a row that is marked and should not be shows."""
    document = shop.home.tenants_dir / "acme.yaml"
    document.write_text(document.read_text().replace("sink: {mode: mirror}", f"sink: {sink}"))
    stored = pa.concat_tables([rows(), rows(("Z",), note=["old"] * 4)])
    for name, values in marks.items():
        stored = stored.append_column(name, pa.array(values))
    shop.deliver("acme", stored)

    (table,) = shop.check("acme").tables

    assert (table.comparison.first, table.faults) == ([], ())
    assert (table.is_summed, table.rows_read) == (True, 0)


def test_entries_of_a_log_are_not_filled_for_a_column_that_came_later(shop: Shop, mysql_server: MysqlServer) -> None:
    """They have NULL in it, as a log promises: the server gave the rows a value without an event. A newer entry's value, and
    NULL in a column that takes it, are compared."""
    mysql_server.execute("ALTER TABLE orders ADD grade INT NOT NULL DEFAULT 7", database=shop.database)
    changes = rows(note=["x", None, "x", "x"]).append_column("grade", pa.array([None, None, 7, 8], pa.int32()))
    changes = changes.append_column("_headwater_op", pa.array(["c"] * 4))
    changes = changes.append_column("_headwater_image", pa.array(["after"] * 4))
    shop.deliver("log", changes.append_column("_headwater_order", pa.array(["1"] * 4)))

    (table,) = shop.check("log").tables

    different = sorted((each.key, each.column, each.source, each.warehouse) for each in table.comparison.first)
    assert different == [(("A",), "note", "x", None), (("Z",), "grade", 7, 8)]


@pytest.mark.parametrize(("last_operation", "found"), [("d", []), ("u", [("gone",)])], ids=["deleted", "delete lost"])
def test_an_append_table_is_judged_by_its_newest_rows(shop: Shop, last_operation: str, found: list[tuple[str]]) -> None:
    """The log of changes, folded up, is the source, rows before updates aside; a delete that is missing shows."""
    old = rows(("b", "A"), email=["old", "old", *EMAILS[2:]])
    gone = rows(("Z",)).set_column(0, "code", pa.array(["gone"]))
    changes = pa.concat_tables([old, rows(), gone, old, gone])
    operations = ["r", "r", "u", "u", "c", "c", "c", "u", "u", last_operation]
    changes = changes.append_column("_headwater_op", pa.array(operations))
    images = [*["after"] * 7, "before", "before", "before" if last_operation == "d" else "after"]
    changes = changes.append_column("_headwater_image", pa.array(images))
    orders = ["1", "1", "2", "2", "2", "2", "1", "2", "2", "3"]
    shop.deliver("log", changes.append_column("_headwater_order", pa.array(orders)))

    (table,) = shop.check("log").tables

    assert [each.key for each in table.comparison.first] == found
    assert (table.is_summed, table.rows_read) == (True, len(found))
