"""A stack whose tenants' tables are in PostgreSQL: ``up`` runs the server, ``check`` and ``query`` read it."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from libs.mesh.state import read_ports
from libs.servers.postgresql_server import connection_settings
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
    """A row of most types, and one of NULLs."""
    name = unique_name("livepg")
    make_orders_of_most_types(mysql_server, name)
    return name


@pytest.fixture
def headwater(mysql_server: MysqlServer, database: str, tmp_path: Path) -> Iterator[HeadwaterCommand]:
    """A home with one source, a mirror, a log and a history; nothing runs."""
    with headwater_in(tmp_path / "home") as command:
        sinks = {
            "acme": "{warehouse: postgresql, trigger_s: 1}",
            "log": "{warehouse: postgresql, mode: append, images: before_and_after, trigger_s: 1}",
            "past": "{warehouse: postgresql, mode: history, trigger_s: 1}",
        }
        write_shop(command.home, mysql_server, database, sinks)
        yield command


@pytest.mark.timeout(1800)
def test_check_and_query_read_a_tenants_postgresql(
    headwater: HeadwaterCommand, mysql_server: MysqlServer, database: str
) -> None:
    """Rows of both modes equal the source, planted faults are found, and SQL only reads."""
    exit_code, said = headwater.run("up", "--detach", timeout_s=UP_TIMEOUT_S)
    assert exit_code == 0, said
    assert re.search(r"^\S+  postgresql +up *$", said, re.M), said
    mysql_server.execute(
        f"UPDATE {database}.orders SET note = 'changed' WHERE code = 'b'",
        f"INSERT INTO {database}.orders (code) VALUES ('gone')",
        f"DELETE FROM {database}.orders WHERE code = 'gone'",
    )

    exit_code, said = headwater.run_here("check", "--timeout", "400")
    assert exit_code == 0, said
    for tenant in ("acme", "log", "past"):
        assert re.search(rf"^{tenant} +{database}\.orders +3 rows x 16 columns  equal$", said, re.M), said
    # Values of every other type that the sink wrote have the same text as at the source.
    assert said.count("    read in every row, because their types have no checksum: flags, place\n") == 3, said
    assert "compared by checksums; 9 row(s) read one by one" in said, said

    logged = "SELECT _headwater_image, note FROM orders WHERE _headwater_op = 'u' ORDER BY 1"
    exit_code, said = headwater.run_here("query", "log", logged, "--format", "csv")
    assert (exit_code, said) == (0, "_headwater_image,note\nafter,changed\nbefore,plain\n")

    rebuild_the_copy(headwater, database)

    versions = "SELECT note, is_current FROM orders WHERE code = 'b' ORDER BY valid_from"
    exit_code, said = headwater.run_here("query", "past", versions, "--format", "csv")
    assert (exit_code, said) == (0, "note,is_current\nplain,false\nchanged,true\n")

    sql = "SELECT code, big, points FROM orders ORDER BY code"
    exit_code, said = headwater.run_here("query", "acme", sql, "--format", "csv")
    assert exit_code == 0, said
    big = "-12345678901234567890123456789012345.000000000000000000000000000001"
    assert said.splitlines()[-1] == f"é,{big},18446744073709551615"
    exit_code, said = headwater.run_here("query", "log")
    assert exit_code == 0, said
    assert re.search(rf"{database}\.orders", re.sub(r"\s", "", said)), said
    exit_code, said = headwater.run_here("query", "acme", "DELETE FROM orders")
    assert exit_code != 0
    assert "read only" in said

    refuse_and_replay(headwater, mysql_server, database)

    where = connection_settings(read_ports(headwater.home)["postgresql"])
    with psycopg.connect(host=where.host, port=where.port, dbname=where.database, user=where.user) as connection:
        connection.execute(f"UPDATE \"acme_shop_{database}\".orders SET points = 2 WHERE code = 'b'")
        connection.execute(f"DELETE FROM \"acme_shop_{database}\".orders WHERE code = 'é'")
    report = headwater.home.root / "report.jsonl"
    with written_to(mysql_server, database):
        exit_code, said = headwater.run_here("check", "acme", "--timeout", "400", "--report", str(report))
        assert exit_code == 1, said
        assert "points: source 1, warehouse 2" in said
        assert "code='é': is in the source, not in the warehouse" in said
        assert said.endswith(": 2 difference(s)\n"), said

        exit_code, said = headwater.run_here("check", "acme", "--repair", "--timeout", "400", "--report", str(report))
        assert exit_code == 0, said
        assert "read again: 2 row(s)" in said
        assert said.endswith(": 0 difference(s)\n"), said
    told = [json.loads(line) for line in report.read_text().splitlines()]
    assert [line["rows_different"] for line in told if line["tenant"] == "acme"] == [2, 2, 0]
    assert all(line["is_sure"] for line in told if line["rows_different"])

    exit_code, said = headwater.run("down", timeout_s=COMMAND_TIMEOUT_S)
    assert (exit_code, said) == (0, "stopping …\nstopped\n")
    assert headwater.left_over() == []
    exit_code, said = headwater.run_here("query", "acme", "SELECT 1")
    assert exit_code != 0
    assert "does not answer" in said


def refuse_and_replay(headwater: HeadwaterCommand, mysql_server: MysqlServer, database: str) -> None:
    """A text that PostgreSQL has no form for: its row waits as a dead letter, until it is mended at the source."""
    mysql_server.execute(
        f"INSERT INTO {database}.orders (code, note) VALUES ('nul', CONCAT('se', CHAR(0), 'cret')), ('next', 'fine')"
    )
    exit_code, said = headwater.run_here("check", "acme", "--timeout", "400")
    assert exit_code == 1, said
    assert re.search(r"nul", said), said
    assert "next" not in said
    exit_code, said = headwater.run_here("dead-letter", "list", "acme")
    assert exit_code == 0, said
    found = re.search(rf"^shop: {database}\.orders +sink +parked +1 +1 +\S+ \S+ +(\d+) +a text holds", said, re.M)
    assert found, said
    exit_code, said = headwater.run_here("dead-letter", "show", "acme", found[1])
    assert exit_code == 0, said
    assert re.search(r"^event +\S+ +INSERT +code='nul'  note=", said, re.M), said
    exit_code, said = headwater.run_here("status")
    assert "1 key(s) parked with 1 dead letter(s): `headwater dead-letter list acme`" in " ".join(said.split()), said

    mysql_server.execute(f"UPDATE {database}.orders SET note = 'mended' WHERE code = 'nul'")
    exit_code, said = headwater.run_here("check", "acme", "--timeout", "400")
    assert exit_code == 1, said
    exit_code, said = headwater.run_here("dead-letter", "replay", "acme")
    assert (exit_code, said) == (0, f"acme.shop.{database}.orders: 1 of 1 key(s) taken up\n")
    exit_code, said = headwater.run_here("check", "acme", "--timeout", "400")
    assert exit_code == 0, said
    exit_code, said = headwater.run_here("dead-letter", "replay", "acme")
    assert (exit_code, said) == (0, "no key is parked\n")


def rebuild_the_copy(headwater: HeadwaterCommand, database: str) -> None:
    """The log's table as the copy of the source had it, before the update."""
    copied = "SELECT max(_headwater_order) AS o FROM orders WHERE _headwater_op = 'r'"
    exit_code, said = headwater.run_here("query", "log", copied, "--format", "csv")
    assert exit_code == 0, said
    command = ("rebuild", "log", "orders", "--as-of", said.split()[-1], "--into", "copied")
    exit_code, said = headwater.run_here(*command)
    assert exit_code == 0, said
    assert f"log.shop.{database}.copied: 3 row(s) as of order " in said
    assert ": 2 as they were, 1 changed since, 0 gone since, 0 come since\n" in said
    columns = 'code, note, points, big, rate, doc, raw, flags, day, "at", local, span, place, ok, mood, y'
    answers = []
    for sql in (
        f"SELECT {columns} FROM copied ORDER BY code",
        f"SELECT {columns} FROM orders WHERE _headwater_op = 'r' ORDER BY code",
    ):
        exit_code, said = headwater.run_here("query", "log", sql, "--format", "csv")
        assert exit_code == 0, said
        answers.append(said)
    assert answers[0] == answers[1]
    exit_code, said = headwater.run_here(*command)
    assert exit_code == 2, said
    assert "there is such a table already; choose another name" in said
