"""``headwater resync`` as a user types it: a warehouse that somebody wrote into is the source's again, while all goes on."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from libs.mesh.resync_notes import running_resyncs
from libs.mesh.state import read_ports
from libs.servers.postgresql_server import connection_settings
from libs.types.table import TableId
from libs.types.warehouse import warehouse_table
from libs.warehouse_readers.warehouse import load_table, open_catalog
from tests.conftest import MysqlServer
from tests.headwater_command import HeadwaterCommand, headwater_in, write_shop
from tests.waiting import wait_until

pytestmark = pytest.mark.rest(because="a whole stack; the gate shows the resync in test_resync.py")

UP_TIMEOUT_S = 600.0
COMMAND_TIMEOUT_S = 400.0
ROWS = 3_000  # more than a chunk


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> str:
    name = unique_name("resync")
    rows = ", ".join(f"({number}, 'note {number}')" for number in range(1, ROWS + 1))
    mysql_server.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.orders (id INT PRIMARY KEY, note VARCHAR(40))",
        f"INSERT INTO {name}.orders VALUES {rows}",
    )
    return name


@pytest.fixture
def headwater(mysql_server: MysqlServer, database: str, tmp_path: Path) -> Iterator[HeadwaterCommand]:
    """A home with one source, a mirror in Iceberg, one in PostgreSQL, a log and a history; nothing runs."""
    with headwater_in(tmp_path / "home") as command:
        sinks = {
            "acme": "{trigger_s: 1}",
            "globex": "{warehouse: postgresql, deletes: soft, trigger_s: 1}",
            "log": "{mode: append, trigger_s: 1}",
            "past": "{mode: history, trigger_s: 1}",
        }
        write_shop(command.home, mysql_server, database, sinks)
        yield command


def damage_iceberg(headwater: HeadwaterCommand, database: str, tenant: str) -> None:
    """Rows go, some are there twice, and one comes that the source does not have; in a log only its topic could show that."""
    place = warehouse_table(tenant, "shop", TableId(database=database, table="orders"))
    table = load_table(open_catalog(headwater.home.catalog_file, headwater.home.warehouse_dir), place)
    assert table is not None
    schema = table.schema().as_arrow()
    rows = table.scan(limit=1).to_arrow()
    phantom = rows.set_column(0, rows.schema.field(0), pa.array([999_999], rows.schema.field(0).type))
    twice = table.scan("id > 2990").to_arrow()
    table.delete("id < 50")
    table.append((twice if tenant == "log" else phantom).cast(schema))


def damage_postgresql(headwater: HeadwaterCommand, database: str) -> None:
    settings = connection_settings(read_ports(headwater.home)["postgresql"])
    with psycopg.connect(
        host=settings.host, port=settings.port, dbname=settings.database, user=settings.user, autocommit=True
    ) as connection:
        place = f'"globex_shop_{database}".orders'
        connection.execute(f"CREATE VIEW names AS SELECT id, note FROM {place}")
        connection.execute(f"UPDATE {place} SET note = 'wrong', _headwater_order = '9999999999.x' WHERE id < 50")
        connection.execute(f"DELETE FROM {place} WHERE id BETWEEN 100 AND 120")


@pytest.mark.timeout(1500)
def test_a_damaged_table_is_the_sources_again(
    headwater: HeadwaterCommand, mysql_server: MysqlServer, database: str
) -> None:
    """The command is killed on its way, and taken up; rows committed meanwhile are there, in a log and a history too."""
    exit_code, said = headwater.run("up", "--detach", timeout_s=UP_TIMEOUT_S)
    assert exit_code == 0, said + headwater.logs()
    for tenant in ("acme", "globex", "log", "past"):
        line = re.compile(rf"^{tenant} +sink +shop: {database}.orders +{ROWS:,} ", re.M)
        wait_until(
            lambda line=line: line.search(headwater.run_here("status")[1]),  # type: ignore[misc]
            because=f"the sink has the rows of {tenant}",
            within_s=COMMAND_TIMEOUT_S,
            pause_s=1.0,
        )
    for tenant in ("acme", "log", "past"):
        damage_iceberg(headwater, database, tenant)
    damage_postgresql(headwater, database)
    exit_code, said = headwater.run_here("check")
    assert exit_code == 1, said

    with headwater.start("resync", "acme", "orders") as running:
        deadline_s = time.monotonic() + COMMAND_TIMEOUT_S
        while not running_resyncs(headwater.home.data_dir, "acme") and time.monotonic() < deadline_s:
            time.sleep(0.05)
        running.kill()
    mysql_server.execute(
        f"UPDATE {database}.orders SET note = 'changed' WHERE id % 7 = 0",
        f"DELETE FROM {database}.orders WHERE id % 11 = 0",
        f"INSERT INTO {database}.orders VALUES (5000, 'new')",
    )
    _, said = headwater.run_here("status")
    assert re.search(r"^acme +sink .*resync since \d\d:\d\d:\d\d: copying the source's rows", said, re.M), said
    for tenant in ("acme", "globex", "log", "past"):
        exit_code, said = headwater.run_here("resync", tenant, "orders")
        assert exit_code == 0, said + headwater.logs()
        assert f"{database}.orders: built again from " in said
        assert ("continuing it" in said) is (tenant == "acme")

    assert running_resyncs(headwater.home.data_dir, "acme") == {}
    exit_code, said = headwater.run_here("check")
    assert exit_code == 0, said
    assert "0 difference(s)" in said
    exit_code, said = headwater.run("down", timeout_s=COMMAND_TIMEOUT_S)
    assert exit_code == 0, said
