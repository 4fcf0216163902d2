"""``headwater check``, ``status`` and ``validate`` on a keyspace: asked through the stand-in for vtgate over real shards.

The tables are real Iceberg files. No service runs: the rows that they would have delivered are written here, right or with one
fault.
"""

import datetime
import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from libs.check import checksums, vitess_rows
from libs.check.compared import stack_compared
from libs.check.projection import ExpectedColumn, ExpectedTable
from libs.check.rounds import Piece, next_chunk, with_chunk
from libs.check.run import CheckReport, check
from libs.check.source import asked
from libs.errors import AccessDenied, SourceUnavailable
from libs.mesh.documents import VitessDocument, VtgateDocument, read_documents
from libs.mesh.home import Home, home_at, write_examples
from libs.mesh.vtgate import Vtgate
from libs.mysql.gtid import GtidSet
from libs.mysql.preflight import PreflightReport
from libs.operations.preflight import preflight
from libs.operations.status import ShardStatus, SourceStatus, with_source_lag
from libs.stand_ins.vtgate.client import execute
from libs.stand_ins.vtgate.cluster import on_every_shard
from libs.stand_ins.vtgate.service import Security, VtgateServer
from tests.conftest import StartVtgate
from tests.unit.warehouse_readers.warehouse_files import write_table

COUNT = 25
TABLES = (
    "CREATE TABLE orders (code VARCHAR(20) CHARACTER SET utf8mb4 NOT NULL, id BIGINT NOT NULL, owner VARCHAR(9), points BIGINT "
    "UNSIGNED, rate FLOAT, raw BINARY(3), seen TIMESTAMP(6) NULL, opens TIME(3), due DATE, PRIMARY KEY (code, id))",
    "CREATE TABLE log_lines (id BIGINT, line TEXT)",
)


def code(number: int) -> str:
    """Whose order by code point is not that of its collation."""
    return ("a", "B", "é", "Z")[number % 4] + ("'" if number % 5 == 0 else "")


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@pytest.fixture
def vtgate(start_vtgate: StartVtgate) -> VtgateServer:
    """Orders in two shards, and lines in a table without a key."""
    server = start_vtgate()
    keyspace = server.topology.keyspaces[0].name
    on_every_shard(server.topology, keyspace, TABLES)
    orders = ", ".join(
        f"({quoted(code(n))}, {n}, '{('acme', 'globex')[n % 2]}', {2**64 - 1 - n}, {n / 3!r}, 'x', "
        "'2024-01-02 03:04:05.25', '-12:34:56.5', '2024-02-29')"
        for n in range(COUNT)
    )
    columns = "code, id, owner, points, rate, raw, seen, opens, due"
    execute(server, f"INSERT INTO orders ({columns}) VALUES {orders}", keyspace)
    lines = ", ".join(f"({n % 3}, 'same')" for n in range(COUNT))
    execute(server, f"INSERT INTO log_lines (id, line) VALUES {lines}", keyspace)
    return server


@pytest.fixture
def home(vtgate: VtgateServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The home of a stack that would follow the keyspace; a page is a few rows, so that there are many."""
    monkeypatch.setattr(vitess_rows, "PAGE_ROWS", 4)
    keyspace = vtgate.topology.keyspaces[0].name
    made = home_at(tmp_path / "home")
    write_examples(made)
    (made.sources_dir / "shop.yaml").write_text(
        f"kind: vitess\nvtgate: {{port: {vtgate.port}}}\nkeyspace: {keyspace}\ninclude_tables: ['{keyspace}\\..*']\n"
    )
    selection = f"name: shop, include_tables: ['{keyspace}\\..*']"
    (made.tenants_dir / "acme.yaml").write_text(f"tenant: acme\nsources: [{{{selection}}}]\n")
    (made.tenants_dir / "globex.yaml").write_text(
        f"tenant: globex\nsources:\n  - {{name: shop, include_tables: ['{keyspace}\\.orders'],\n"
        f"     row_filters: [{{tables: '.*', where: \"owner = 'globex'\"}}]}}\n"
    )
    return made


def keyspace_of(home: Home) -> str:
    document = read_documents(home).sources["shop"]
    assert isinstance(document, VitessDocument)
    return document.keyspace


def deliver(home: Home, tenant: str, numbers: range, **instead: Any) -> None:
    """The orders as a sink that made no mistake holds them; ``instead`` replaces whole columns."""
    moment = datetime.datetime(2024, 1, 2, 3, 4, 5, 250_000, tzinfo=datetime.UTC)
    columns = {
        "code": [code(number) for number in numbers],
        "id": pa.array(numbers, pa.int64()),
        "owner": [("acme", "globex")[number % 2] for number in numbers],
        "points": pa.array([2**64 - 1 - number for number in numbers], pa.decimal128(20, 0)),
        # As the reader delivers values that VStream copied: six digits, as the nearest FLOAT.
        "rate": pa.array([float(f"{number / 3:.6g}") for number in numbers], pa.float32()),
        "raw": pa.array([b"x\0\0"] * len(numbers), pa.binary()),
        "seen": pa.array([moment] * len(numbers), pa.timestamp("us", tz="UTC")),
        "opens": pa.array([-(12 * 3600 + 34 * 60 + 56.5) * 1e6] * len(numbers), pa.int64()),
        "due": pa.array([19782] * len(numbers), pa.int32()).cast(pa.date32()),
        **instead,
    }
    write_table(home, tenant, "shop", f"{keyspace_of(home)}.orders", pa.table(columns))


def deliver_lines(home: Home, count: int = COUNT) -> None:
    lines = pa.table({"id": pa.array([n % 3 for n in range(count)], pa.int64()), "line": ["same"] * count})
    write_table(home, "acme", "shop", f"{keyspace_of(home)}.log_lines", lines)


def checked(home: Home, tenant: str) -> CheckReport:
    return check(stack_compared(home, read_documents(home), is_up=False), [tenant], limit=10)


def test_the_rows_of_all_shards_are_compared(home: Home) -> None:
    """By checksums of both shards, floats page by page in key order; under a row filter; without a key too."""
    deliver(home, "acme", range(COUNT))
    deliver(home, "globex", range(1, COUNT, 2))
    deliver_lines(home)

    everything, filtered = checked(home, "acme"), checked(home, "globex")

    assert (everything.differences, everything.rows_compared) == (0, 2 * COUNT), everything
    assert (filtered.differences, filtered.rows_compared) == (0, COUNT // 2), filtered
    assert not everything.source_moved
    by_table = {str(each.table.table_id).rpartition(".")[2]: each for each in everything.tables}
    assert (by_table["orders"].is_summed, by_table["orders"].read_columns) == (True, ("rate",))
    assert (by_table["log_lines"].is_summed, filtered.tables[0].is_summed) == (False, True)


def test_a_fault_of_either_shard_is_found_by_its_part(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """As reading all rows does: sums of shards are added up before they are compared."""
    monkeypatch.setattr(checksums, "ROWS_OF_A_PART", 1)
    owners = [("acme", "globex")[number % 2] for number in range(COUNT)]
    deliver(home, "acme", range(COUNT), owner=[*owners[:4], "nobody", "nobody", *owners[6:]])
    deliver_lines(home)

    by_sums, by_rows = (
        check(stack_compared(home, read_documents(home), is_up=False), ["acme"], limit=10, reads_all=reads_all)
        for reads_all in (False, True)
    )

    assert [each.comparison.first for each in by_sums.tables] == [each.comparison.first for each in by_rows.tables]
    assert by_sums.differences == by_rows.differences == 2
    assert any(each.is_summed for each in by_sums.tables)


def test_each_fault_is_found(home: Home) -> None:
    """A value, a row of either shard that is missing, a line too few where there is no key."""
    deliver(home, "acme", range(1, COUNT), raw=pa.array([b"y\0\0", *[b"x\0\0"] * (COUNT - 2)], pa.binary()))
    deliver_lines(home, COUNT - 1)

    report = checked(home, "acme")

    found = {str(each.table.table_id).rpartition(".")[2]: each.comparison.first for each in report.tables}
    assert report.differences == 3
    assert {(first.key, first.column) for first in found["orders"]} == {((code(0), 0), None), ((code(1), 1), "raw")}
    assert [first.source for first in found["log_lines"]] == [(0, "same")]


def test_chunks_hold_the_rows_of_all_shards_between_two_keys(home: Home, vtgate: VtgateServer) -> None:
    """No more than are asked for together; a row that differs is found in its own."""
    keyspace, ids = keyspace_of(home), range(1, 42)
    on_every_shard(vtgate.topology, keyspace, ("CREATE TABLE items (id BIGINT PRIMARY KEY, v INT)",))
    execute(vtgate, f"INSERT INTO items (id, v) VALUES {', '.join(f'({n}, {n})' for n in ids)}", keyspace)
    held = {"id": pa.array(ids, pa.int64()), "v": pa.array([n if n != 30 else 0 for n in ids], pa.int32())}
    write_table(home, "acme", "shop", f"{keyspace}.items", pa.table(held))
    mesh, piece = stack_compared(home, read_documents(home), is_up=False), Piece("shop", f"{keyspace}.items")

    begun, found = None, []
    while begun is None or begun.up_to:
        of_next = next_chunk(mesh, ["acme"], piece, begun, 10)
        assert of_next is not None
        chunk, _ = of_next
        report = check(mesh, ["acme"], tables=[rf"{keyspace}\.items"], limit=10, chunk=chunk)
        begun = with_chunk(piece, begun, *of_next, report)
        found += report.tables

    assert [each.comparison.first[0].key for each in found if each.comparison.rows_different] == [(30,)]
    assert sum(each.comparison.rows_compared for each in found) == len(ids)
    assert all(each.comparison.rows_compared <= 10 for each in found)
    assert len(found) <= 9


def test_a_keyspace_tells_where_it_stands(home: Home, vtgate: VtgateServer) -> None:
    """Every shard by name, one transaction more after a write to it; lag is counted by these."""
    keyspace = keyspace_of(home)
    with asked(read_documents(home).sources["shop"]) as source:
        before = source.executed()
        execute(vtgate, "UPDATE orders SET owner = 'other' WHERE id = 1", keyspace)
        after = source.executed()

    changed = {shard: after[shard].subtract(before[shard]).transaction_count() for shard in after}
    written_to = vtgate.topology.shard_of(keyspace, 1).name
    assert changed == {"-80": 0, "80-": 0, written_to: 1}


def test_status_says_how_far_each_shard_is_behind(home: Home, vtgate: VtgateServer) -> None:
    """The transactions that each shard has committed after the position that is published."""
    keyspace = keyspace_of(home)
    serving = vtgate.topology.serving(keyspace)
    token = [{"keyspace": keyspace, "shard": shard.name, "gtid": shard.primary.position()} for shard in serving]
    status = SourceStatus(
        source="shop",
        source_partition="0",
        state="streaming",
        position=json.dumps({"vgtid": token}),
        shards=tuple(_shard_status(entry["shard"], entry["gtid"]) for entry in token),
    )
    for _ in range(3):
        serving[1].primary.execute("INSERT INTO log_lines VALUES (99, 'later')")

    (behind,) = with_source_lag([status], read_documents(home).sources)

    assert {shard.shard: shard.lag_transactions for shard in behind.shards} == {"-80": 0, "80-": 3}
    assert behind.lag_transactions == 3

    two = [
        msgspec.structs.replace(
            status,
            source_partition=f"task{number}_2_0",
            position=json.dumps({"vgtid": [entry]}),
            shards=(_shard_status(entry["shard"], entry["gtid"]),),
        )
        for number, entry in enumerate(token)
    ]
    assert [each.lag_transactions for each in with_source_lag(two, read_documents(home).sources)] == [0, 3]


def _shard_status(name: str, position: str) -> ShardStatus:
    return ShardStatus(
        shard=name,
        position=position,
        epoch=1,
        committed_at_us=0,
        lag_s=0.0,
        transactions=0,
        rows=0,
        rows_copied=0,
        is_copying=False,
        is_ended=False,
    )


def test_validate_asks_vtgate(home: Home) -> None:
    """A keyspace that is there, one that is not, and patterns that match nothing."""
    document = read_documents(home).sources["shop"]
    assert isinstance(document, VitessDocument)

    def report(*, has_begun: bool = False, **changes: Any) -> PreflightReport:
        told = {name: getattr(document, name) for name in document.__struct_fields__}
        return preflight(VitessDocument(**{**told, **changes}), has_begun=has_begun)

    def faults(**changes: Any) -> str:
        return "".join(f"{fault.what}; {fault.mend}" for fault in report(**changes).faults)

    assert faults() == ""
    assert f"did you mean '{document.keyspace}'?" in faults(keyspace=document.keyspace + "x")
    assert faults(tasks=2) == ""
    assert "3 tasks are to read 2 shard(s)" in faults(tasks=3)
    assert "matches no table" in faults(include_tables=("nowhere\\..*",))
    assert faults(shards=("-80",)) == ""
    assert "has no shard '-8'; did you mean '-80'? Correct 'shards'" in faults(shards=("-8", "80-"))
    resharded = report(shards=("-",), tasks=2, has_begun=True)
    assert resharded.faults == ()
    assert [warning.what for warning in resharded.warnings] == [f"keyspace {document.keyspace} has no shard '-'"]


def test_the_source_is_the_shards_that_its_document_names(home: Home, vtgate: VtgateServer) -> None:
    """Commits of others are not waited for, and their rows are not compared."""
    path = home.sources_dir / "shop.yaml"
    path.write_text(path.read_text() + "shards: ['80-']\n")
    document = read_documents(home).sources["shop"]
    first, second = vtgate.topology.serving(keyspace_of(home))

    with asked(document) as answering:
        executed = answering.executed()
        orders = next(table for table in answering.tables() if table.table_id.table == "orders")
        columns = tuple(
            ExpectedColumn(name, kind, None, name) for name, kind in (("code", "varchar"), ("id", "bigint"))
        )
        found = [
            int(row[1]) for row in answering.rows(ExpectedTable(orders.table_id, orders.key, columns, None), columns)
        ]

    assert executed.keys() == {"80-"}
    assert sorted(found) == sorted(int(str(row[0])) for row in second.primary.execute("SELECT id FROM orders"))
    assert len(found) < COUNT
    assert first.primary.execute("SELECT 1 FROM orders LIMIT 1")


def test_commands_send_the_headers_of_the_document(vtgate: VtgateServer) -> None:
    """A proxy before vtgate may want them of everybody."""
    with Vtgate(VtgateDocument(port=vtgate.port, headers={"x-region": "eu"})) as client:
        client.keyspaces()

    assert vtgate.headers[-1]["x-region"] == "eu"


def test_who_may_not_ask_is_told_so(start_vtgate: StartVtgate) -> None:
    """By the setting to correct; and a vtgate that is not there is another matter."""
    guarded = start_vtgate(security=Security(users={"vitess": "secret"}))

    with (
        Vtgate(VtgateDocument(port=guarded.port, user="vitess")) as denied,
        pytest.raises(AccessDenied, match="password"),
    ):
        denied.keyspaces()
    with Vtgate(VtgateDocument(port=1)) as absent, pytest.raises(SourceUnavailable, match=r"127\.0\.0\.1:1"):
        absent.keyspaces()


def test_positions_are_whole_sets(home: Home, vtgate: VtgateServer) -> None:
    """As MySQL has them, without Vitess's flavour before them."""
    keyspace = keyspace_of(home)
    with Vtgate(VtgateDocument(port=vtgate.port)) as client:
        executed = client.executed(keyspace)

    for shard in vtgate.topology.serving(keyspace):
        text = str(shard.primary.execute("SELECT @@GLOBAL.gtid_executed")[0][0])
        assert executed[shard.name] == GtidSet.parse(text.replace("\n", ""))
