"""``headwater check --mesh`` on a mesh that runs: it reaches Kafka, the source and the warehouse, and no home."""

import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from libs.local.home import home_at
from libs.local.plan import kafka_address
from libs.local.ports import LOOPBACK
from libs.local.state import read_ports
from libs.local.warehouse import load_table, open_catalog
from libs.types.table import TableId
from libs.types.warehouse import warehouse_table
from tests.conftest import MysqlServer
from tests.headwater_command import HeadwaterCommand, headwater_in, write_shop
from tests.live_rows import make_orders_and_notes

pytestmark = pytest.mark.rest(because="a whole stack; the gate shows `check` and `--mesh` without one")

UP_TIMEOUT_S = 600.0
COMMAND_TIMEOUT_S = 500.0
ROWS = 300


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> str:
    """Orders, and a table beside them."""
    name = unique_name("elsewhere")
    make_orders_and_notes(mysql_server, name, orders=ROWS)
    return name


@pytest.fixture
def mesh(mysql_server: MysqlServer, database: str, tmp_path: Path) -> Iterator[HeadwaterCommand]:
    """A stack that runs, with one source and one tenant."""
    with headwater_in(tmp_path / "home") as command:
        write_shop(command.home, mysql_server, database, {"acme": "{trigger_s: 1}"})
        exit_code, said = command.run("up", "--detach", timeout_s=UP_TIMEOUT_S)
        assert exit_code == 0, said + command.logs()
        yield command


@pytest.fixture
def elsewhere(mesh: HeadwaterCommand, tmp_path: Path) -> Iterator[HeadwaterCommand]:
    """The command where there is no home."""
    command = HeadwaterCommand(home_at(tmp_path / "nowhere"))
    try:
        yield command
    finally:
        command.kill_all()


@pytest.fixture
def file(mesh: HeadwaterCommand, mysql_server: MysqlServer, tmp_path: Path) -> Path:
    """What is told of the mesh."""
    told = {
        "kafka": {"bootstrap_servers": kafka_address(read_ports(mesh.home))},
        "sources": {"shop": {"database": {"host": mysql_server.host, "port": mysql_server.port, "user": "root"}}},
        "warehouses": {
            "iceberg": {
                "warehouse_dir": mesh.home.warehouse_dir.as_uri(),
                "catalog": {"kind": "sqlite", "file": str(mesh.home.catalog_file)},
            }
        },
        "tenants_dir": str(mesh.home.tenants_dir),
    }
    path = tmp_path / "mesh.yaml"
    path.write_text(yaml.safe_dump(told))
    return path


def break_rows(mesh: HeadwaterCommand, database: str, condition: str) -> None:
    table = load_table(
        open_catalog(mesh.home), warehouse_table("acme", "shop", TableId(database=database, table="orders"))
    )
    assert table is not None
    table.delete(condition)


def told_in_the_end(address: str, line: str) -> None:
    """Prometheus is shown ``line``, sooner or later."""
    deadline_s = time.monotonic() + COMMAND_TIMEOUT_S
    while True:
        with urllib.request.urlopen(address, timeout=60) as answer:
            page = answer.read().decode()
        if line in page:
            return
        assert time.monotonic() < deadline_s, page
        time.sleep(0.5)


@pytest.mark.timeout(1_800)
def test_a_row_that_broke_is_found_told_of_and_repaired(
    mesh: HeadwaterCommand, elsewhere: HeadwaterCommand, file: Path, mysql_server: MysqlServer, database: str
) -> None:
    """While the source is written to; by a command that goes on, and by one that ends."""
    mesh_option = ("--mesh", str(file), "--timeout", "400")
    mysql_server.execute(f"UPDATE {database}.orders SET note = 'changed' WHERE id % 7 = 0")
    exit_code, said = elsewhere.run("check", "acme", *mesh_option, timeout_s=COMMAND_TIMEOUT_S)
    assert exit_code == 0, said + mesh.logs()
    assert re.search(rf"^acme +{database}\.orders +{ROWS} rows x +2 columns  equal$", said, re.M), said
    assert f"{database}.notes" in said

    break_rows(mesh, database, "id >= 10 and id < 13")
    mysql_server.execute(f"UPDATE {database}.orders SET note = 'later' WHERE id > 290")
    only = ("--table", rf"{database}\.orders")
    exit_code, said = elsewhere.run("check", "acme", *mesh_option, *only, timeout_s=COMMAND_TIMEOUT_S)
    assert exit_code == 1, said + mesh.logs()
    assert said.count("is in the source, not in the warehouse") == 3, said
    assert f"{database}.notes" not in said

    labels = f'{{source="shop",table="{database}.orders",tenant="acme"}}'
    command = (
        "check",
        *mesh_option,
        *only,
        "--every",
        "1",
        "--share",
        "0.9",
        "--metrics-host",
        LOOPBACK,
        "--metrics-port",
        "0",
    )
    with elsewhere.start(*command) as watching:
        assert watching.stdout is not None
        [address] = [line.split()[1] for line in [watching.stdout.readline()] if line.startswith("metrics: ")]
        told_in_the_end(address, f"headwater_check_different_rows{labels} 3.0")
        exit_code, said = elsewhere.run("check", "acme", *mesh_option, "--repair", timeout_s=COMMAND_TIMEOUT_S)
        assert exit_code == 0, said + mesh.logs()
        assert "read again: 3 row(s)" in said
        told_in_the_end(address, f"headwater_check_different_rows{labels} 0.0")
        watching.terminate()
        said, _ = watching.communicate(timeout=COMMAND_TIMEOUT_S)
    assert watching.returncode == 0, said
