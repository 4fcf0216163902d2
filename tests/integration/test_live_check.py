"""``headwater check`` on a stack that runs: a large table in chunks, a row that broke, a table that is parked."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from libs.local.warehouse import load_table, open_catalog
from libs.types.table import TableId
from libs.types.warehouse import warehouse_table
from tests.conftest import MysqlServer
from tests.headwater_command import HeadwaterCommand, headwater_in, write_shop
from tests.live_rows import make_orders_and_notes

pytestmark = pytest.mark.rest(
    because="a whole stack; test_check_in_chunks.py and test_check_again.py show it without one"
)

UP_TIMEOUT_S = 600.0
COMMAND_TIMEOUT_S = 400.0
ROWS = 300
SINK = "{trigger_s: 1, schema_changes: {rules: [{tables: '.*\\.notes', changes: [column_added], policy: exception}]}}"


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> str:
    """Orders, and notes beside them whose columns may not change."""
    name = unique_name("checked")
    make_orders_and_notes(mysql_server, name, orders=ROWS)
    return name


@pytest.fixture
def headwater(mysql_server: MysqlServer, database: str, tmp_path: Path) -> Iterator[HeadwaterCommand]:
    """A stack that runs, with one source and one tenant."""
    with headwater_in(tmp_path / "home") as command:
        write_shop(command.home, mysql_server, database, {"acme": SINK})
        exit_code, said = command.run("up", "--detach", timeout_s=UP_TIMEOUT_S)
        assert exit_code == 0, said + command.logs()
        yield command


@pytest.mark.timeout(1_800)
def test_a_large_table_is_mended_chunk_by_chunk_beside_one_that_is_parked(
    headwater: HeadwaterCommand, mysql_server: MysqlServer, database: str, tmp_path: Path
) -> None:
    """Each chunk is waited for, repaired and told of by itself, while rows come; the parked table is told of at once."""
    exit_code, said = headwater.run("check", "acme", "--timeout", "300", timeout_s=COMMAND_TIMEOUT_S)
    assert exit_code == 0, said + headwater.logs()
    mysql_server.execute(
        f"ALTER TABLE {database}.notes ADD COLUMN text TEXT", f"INSERT INTO {database}.notes VALUES (2, 'x')"
    )
    parked_in_the_end(headwater, database)
    table = load_table(
        open_catalog(headwater.home), warehouse_table("acme", "shop", TableId(database=database, table="orders"))
    )
    assert table is not None
    table.delete("id >= 150 and id < 153")

    exit_code, said = headwater.run("check", "acme", "--timeout", "380", timeout_s=COMMAND_TIMEOUT_S)
    assert exit_code == 1, said + headwater.logs()
    assert re.search(rf"^acme +{database}\.notes .* NOT COMPARED$", said, re.M), said
    assert "    parked, last written at " in said
    assert said.count("is in the source, not in the warehouse") == 3, said
    assert "3 difference(s), 1 table(s) not compared" in said

    report = tmp_path / "report.jsonl"
    options = ("--every", "1", "--share", "0.9", "--chunk-rows", "100", "--repair", "--report", str(report))
    with headwater.start("check", "acme", *options, "--timeout", "380") as command:
        assert command.stdout is not None
        told = []
        for number, line in enumerate(iter(command.stdout.readline, ""), start=1):
            told.append(line)
            mysql_server.execute(f"INSERT INTO {database}.orders VALUES ({ROWS + number}, 'meanwhile')")
            if line.startswith("not compared: 1 of 2 tables"):
                break
        command.terminate()
        command.communicate(timeout=COMMAND_TIMEOUT_S)

    said = "".join(told)
    assert "read again: 3 row(s)" in said, said + headwater.logs()
    assert re.search(r"DIFFERENT, id behind 100 up to 200$", said, re.M), said
    assert re.search(rf"^acme +{database}\.orders +3\d\d rows x +2 columns  equal, [45] chunks$", said, re.M), said
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    chunks = [line["chunk"]["up_to"] for line in lines if line["chunk"] is not None]
    assert chunks[:5] == [[100], [200], [200], [300], *chunks[4:5]]
    assert [line["rows_different"] for line in lines if line["chunk"] is not None][:4] == [0, 3, 0, 0]
    assert any(line["not_compared"] for line in lines)


def parked_in_the_end(headwater: HeadwaterCommand, database: str) -> None:
    """Returns once ``status`` says so."""
    deadline_s = time.monotonic() + COMMAND_TIMEOUT_S
    while True:
        exit_code, said = headwater.run("status", timeout_s=COMMAND_TIMEOUT_S)
        if exit_code == 0 and re.search(rf"sink +shop: {database}\.notes .*parked: ", said):
            return
        assert time.monotonic() < deadline_s, said + headwater.logs()
        time.sleep(1.0)
