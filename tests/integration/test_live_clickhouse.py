"""A stack whose tenants' tables are in a ClickHouse of the owner's: commands that read a warehouse, or empty it, do it
there."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from libs.clickhouse.names import literal
from tests.clickhouse import ClickhouseServer
from tests.conftest import MysqlServer
from tests.headwater_command import HeadwaterCommand, headwater_in, write_shop
from tests.live_rows import make_orders_of_most_types, written_to

pytestmark = pytest.mark.rest(
    because="a whole stack; the gate shows the warehouse by its sink, and the commands by the demo"
)

UP_TIMEOUT_S = 600.0
COMMAND_TIMEOUT_S = 400.0


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> str:
    """A row of most types, one of NULLs, and a plain one."""
    name = unique_name("livech")
    make_orders_of_most_types(mysql_server, name)
    return name


@pytest.fixture
def headwater(
    mysql_server: MysqlServer, clickhouse_server: ClickhouseServer, database: str, tmp_path: Path
) -> Iterator[HeadwaterCommand]:
    """A home with one source, a mirror, a log and a history; nothing runs."""
    with headwater_in(tmp_path / "home") as command:
        sinks = {
            "acme": "{warehouse: clickhouse, trigger_s: 1}",
            "log": "{warehouse: clickhouse, mode: append, images: before_and_after, trigger_s: 1}",
            "past": "{warehouse: clickhouse, mode: history, trigger_s: 1}",
        }
        write_shop(command.home, mysql_server, database, sinks)
        command.home.warehouses_file.write_text(f"clickhouse: {{port: {clickhouse_server.port}}}\n")
        yield command


@pytest.mark.timeout(1800)
def test_check_query_rebuild_and_erase_work_on_a_tenants_clickhouse(
    headwater: HeadwaterCommand, mysql_server: MysqlServer, clickhouse_server: ClickhouseServer, database: str
) -> None:
    """Rows of all modes equal the source, planted faults are found and mended, and one tenant goes whole."""

    def run(*arguments: str, exits: int = 0, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        if arguments[0] in ("up", "down"):
            exit_code, said = headwater.run(*arguments, timeout_s=timeout_s)
        else:
            exit_code, said = headwater.run_here(*arguments)
        assert exit_code == exits, said
        return said

    run("up", "--detach", timeout_s=UP_TIMEOUT_S)
    mysql_server.execute(
        f"UPDATE {database}.orders SET note = 'changed' WHERE code = 'b'",
        f"INSERT INTO {database}.orders (code) VALUES ('gone')",
        f"DELETE FROM {database}.orders WHERE code = 'gone'",
    )

    said = run("check", "--timeout", "400")
    for tenant in ("acme", "log", "past"):
        assert re.search(rf"^{tenant} +{database}\.orders +3 rows x 16 columns  equal$", said, re.M), said
    # Values of every other type that the sink wrote have the same text as at the source.
    assert said.count("    read in every row, because their types have no checksum: flags, place\n") == 3, said

    sql = "SELECT code, big, points FROM orders ORDER BY code"
    big = "-12345678901234567890123456789012345.000000000000000000000000000001"
    assert run("query", "acme", sql, "--format", "csv").splitlines()[-1] == f"é,{big},18446744073709551615"
    versions = "SELECT note, is_current FROM orders WHERE code = 'b' ORDER BY valid_from"
    assert run("query", "past", versions, "--format", "csv") == "note,is_current\nplain,false\nchanged,true\n"
    progress = 'SELECT "table", source FROM _headwater_progress'
    assert run("query", "acme", progress, "--format", "csv") == f"table,source\n{database}.orders,shop\n"
    assert "read only" in run("query", "acme", "DELETE FROM orders", exits=1)

    copied = "SELECT max(_headwater_order) AS o FROM orders WHERE _headwater_op = 'r'"
    order = run("query", "log", copied, "--format", "csv").split()[-1]
    said = run("rebuild", "log", "orders", "--as-of", order, "--into", "copied")
    assert f"log.shop.{database}.copied: 3 row(s) as of order " in said
    assert ": 2 as they were, 1 changed since, 0 gone since, 0 come since\n" in said
    note = run("query", "log", "SELECT note FROM copied WHERE code = 'b'", "--format", "csv")
    assert note == "note\nplain\n"

    place = f"`acme_shop_{database}`.orders"
    clickhouse_server.execute(
        f"ALTER TABLE {place} UPDATE points = 2 WHERE code = 'b' SETTINGS mutations_sync = 1",
        f"ALTER TABLE {place} DELETE WHERE code = 'é' SETTINGS mutations_sync = 1",
    )
    with written_to(mysql_server, database):
        said = run("check", "acme", "--timeout", "400", exits=1)
        assert "points: source 1, warehouse 2" in said
        assert "code='é': is in the source, not in the warehouse" in said
        assert said.endswith(": 2 difference(s)\n"), said
        said = run("check", "acme", "--repair", "--timeout", "400")
        assert "read again: 2 row(s)" in said
        assert said.endswith(": 0 difference(s)\n"), said
    run("resync", "acme", "orders")
    run("check", "acme", "--timeout", "400")

    said = run("erase", "log", "--dry-run")
    assert f"`log_shop_{database}`.`orders`" in said and f"`log_shop_{database}`.`copied`" in said, said
    run("erase", "log", "--yes", "log")
    left = f"SELECT concat(database, '.', name) FROM system.tables WHERE position(comment, {literal(database)}) > 0"
    assert sorted(clickhouse_server.rows(left)) == [
        (f"acme_shop_{database}.orders",),
        (f"past_shop_{database}.orders",),
    ]
    noted = f"SELECT name FROM headwater.batches FINAL WHERE position(name, {literal(database)}) > 0 ORDER BY name"
    assert clickhouse_server.rows(noted) == [(f"acme.shop.{database}.orders",), (f"past.shop.{database}.orders",)]

    clickhouse_server.kill()
    try:
        said = run("query", "acme", "SELECT 1 FROM orders", exits=1)
        assert "does not answer; check host and port" in said
    finally:
        clickhouse_server.restart()
    assert run("down") == "stopping …\nstopped\n"
    assert headwater.left_over() == []
