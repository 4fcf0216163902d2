"""``headwater check --mesh`` where the Iceberg tables are listed in a REST catalog, or in PostgreSQL: each a real one."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from libs.mesh.home import home_at
from libs.mesh.processes import kafka_address
from libs.mesh.state import read_ports
from libs.servers.process import stop
from libs.types.table import TableId
from libs.types.warehouse import warehouse_table
from tests import own_network
from tests.conftest import MysqlServer, PostgresqlServer
from tests.headwater_command import HeadwaterCommand, headwater_in, write_shop
from tests.integration.test_iceberg_catalogs import Known, postgresql_catalog, rest_catalog
from tests.live_rows import make_orders_and_notes
from tests.sink_job import LIFE_TIMEOUT_S, STOP_TIMEOUT_S, SinkJob
from tests.waiting import wait_until

pytestmark = pytest.mark.rest(
    because="a stack on a REST catalog; the gate shows the catalog by a job and `check` on Iceberg"
)

UP_TIMEOUT_S = 600.0
ROWS = 300
IS_LISTING = "SELECT to_regclass('iceberg_tables') IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Mesh:
    """A stack without a sink, whose tenant's tables a job writes into a catalog of its own."""

    stack: HeadwaterCommand
    job: SinkJob
    catalog: Known
    told: dict[str, Any]
    """The file for ``--mesh``."""
    environ: dict[str, str]
    """Secrets for it."""


def reader_of(server: PostgresqlServer, name: str) -> None:
    """A user who may read the catalog and nothing else, wherever the server's owner has it: in a schema of that user's name, if
    there is one."""
    [(schema,)] = server.execute(
        "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'iceberg_tables'::regclass"
    )
    server.execute(
        f"CREATE ROLE {name} LOGIN PASSWORD 'r3ad'",
        f"ALTER ROLE {name} SET search_path = {schema}",
        f"GRANT USAGE ON SCHEMA {schema} TO {name}",
        f"GRANT SELECT ON iceberg_tables TO {name}",
    )


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: Callable[[str], str]) -> str:
    """Orders, and a table beside them."""
    name = unique_name("catalogs")
    make_orders_and_notes(mysql_server, name, orders=ROWS)
    return name


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def mesh(
    kind: str,
    mysql_server: MysqlServer,
    postgresql_server: PostgresqlServer,
    database: str,
    servers: ExitStack,
    tmp_path: Path,
) -> Iterator[Mesh]:
    """The tenants' folder that the check reads is the job's, whose document has a sink."""
    if kind == "rest" and (reason := own_network.why_not()):
        pytest.skip(f"its server listens on all interfaces, and may have no network of its own here: {reason}")
    catalog = rest_catalog(tmp_path, servers) if kind == "rest" else postgresql_catalog(postgresql_server)
    iceberg = {"warehouse_dir": (tmp_path / "warehouse").as_uri(), **catalog.settings}
    with headwater_in(tmp_path / "home") as stack:
        write_shop(stack.home, mysql_server, database, {"acme": "null"})
        (tmp_path / "tenants").mkdir()
        document = (stack.home.tenants_dir / "acme.yaml").read_text()
        (tmp_path / "tenants" / "acme.yaml").write_text(document.replace("sink: null", "sink: {trigger_s: 1}"))
        exit_code, said = stack.run("up", "--detach", timeout_s=UP_TIMEOUT_S)
        assert exit_code == 0, said + stack.logs()
        kafka = kafka_address(read_ports(stack.home))
        job = SinkJob(tmp_path, kafka, "iceberg", iceberg, lambda _: [], environ=catalog.environ)
        job.start()
        if kind == "jdbc":  # a database without the list of tables is reported at once
            wait_until(
                lambda: postgresql_server.execute(IS_LISTING) == [(True,)],
                because="the job makes the list of tables",
                seen=job.running.log_path.read_text,
            )
        told = {
            "kafka": {"bootstrap_servers": kafka},
            "sources": {"shop": {"database": {"host": mysql_server.host, "port": mysql_server.port, "user": "root"}}},
            "warehouses": {"iceberg": iceberg},
            "tenants_dir": str(tmp_path / "tenants"),
        }
        yield Mesh(stack, job, catalog, told, catalog.environ)
        stop(job.running, STOP_TIMEOUT_S)


def break_rows(mesh: Mesh, database: str) -> None:
    place = warehouse_table("acme", "shop", TableId(database=database, table="orders"))
    with mesh.catalog.load(place) as table:
        table.delete("id >= 10 and id < 13")


@pytest.mark.timeout(2 * LIFE_TIMEOUT_S)
@pytest.mark.parametrize("kind", ["rest", "jdbc"])
def test_a_row_that_broke_is_found_and_repaired_by_another_catalog(
    kind: str,
    mesh: Mesh,
    mysql_server: MysqlServer,
    postgresql_server: PostgresqlServer,
    database: str,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a user who may only read; a secret that is wrong, and a catalog that is away, are reported by name."""
    elsewhere, file = HeadwaterCommand(home_at(tmp_path / "nowhere")), tmp_path / "mesh.yaml"
    for name, value in mesh.environ.items():
        monkeypatch.setenv(name, value)

    def check(*more: str, **catalog: str) -> tuple[int, str]:
        iceberg = mesh.told["warehouses"]["iceberg"]
        changed = {"iceberg": {**iceberg, "catalog": {**iceberg["catalog"], **catalog}}}
        file.write_text(yaml.safe_dump({**mesh.told, "warehouses": changed}))
        options = ("--mesh", str(file), "--timeout", "400", *more)
        return elsewhere.run_here("check", "acme", *options)

    mysql_server.execute(f"UPDATE {database}.orders SET note = 'changed' WHERE id % 7 = 0")
    exit_code, said = check()
    assert exit_code == 0, said + mesh.stack.logs()
    assert re.search(rf"^acme +{database}\.orders +{ROWS} rows x +2 columns  equal$", said, re.M), said
    break_rows(mesh, database)
    only = ("--table", rf"{database}\.orders")
    if kind == "jdbc":
        user = unique_name("checker")
        reader_of(postgresql_server, user)
        monkeypatch.setenv("HEADWATER_WAREHOUSES__ICEBERG__CATALOG__PASSWORD", "r3ad")
        exit_code, said = check(*only, user=user)
    else:
        exit_code, said = check(*only)
    assert exit_code == 1, said + mesh.stack.logs()
    assert said.count("is in the source, not in the warehouse") == 3, said

    exit_code, said = check("--repair")
    assert exit_code == 0, said + mesh.stack.logs()
    assert "read again: 3 row(s)" in said

    away = "http://127.0.0.1:1" if kind == "rest" else "jdbc:postgresql://127.0.0.1:1/headwater"
    exit_code, said = check(uri=away)
    assert exit_code != 0
    assert f"the catalog of Iceberg tables ({kind}, {away}) does not answer" in said, said
    if kind == "jdbc":
        empty = unique_name("empty")
        postgresql_server.execute(f"CREATE SCHEMA {empty}")
        exit_code, said = check(uri=f"{mesh.told['warehouses']['iceberg']['catalog']['uri']}?currentSchema={empty}")
        assert exit_code != 0
        assert "has no list of tables that this user sees: relation" in said, said
        exit_code, said = check(user=unique_name("nobody"))
    else:
        monkeypatch.setenv("HEADWATER_WAREHOUSES__ICEBERG__CATALOG__CREDENTIAL", "headwater:wrong")
        exit_code, said = check()
    assert exit_code != 0
    assert "refuses: " in said, said
    assert "look at warehouses.iceberg.catalog and its secrets" in said
    assert "Traceback" not in said
