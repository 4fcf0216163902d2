"""``headwater init URL`` at a real MySQL: its account may follow the database, and no more."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from libs.mesh.home import Home, home_at
from libs.mysql.grants import FOLLOWING, LOCKING
from tests import mysql_client
from tests.conftest import MysqlServer
from tests.headwater_command import run_here
from tests.page_blocks import ROOT, blocks_of, reader_in

README = ROOT / "README.md"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return home_at(tmp_path / "home")


@pytest.fixture
def user(mysql_server: MysqlServer, database: str) -> Iterator[str]:
    """The name of an account that is not there yet."""
    mysql_server.execute("CREATE TABLE orders (id INT PRIMARY KEY, total INT)", database=database)
    name = f"i{database[-12:]}"
    yield name
    mysql_server.execute(f"DROP USER IF EXISTS {name}")


def init(home: Home, server: MysqlServer, database: str, account: str, *options: str) -> Result:
    url = f"mysql://{account}@{server.host}:{server.port}/{database}"
    return run_here("init", url, "--source", "shop", *options, "--home", str(home.root))


def run_as_root(statements: Path, server: MysqlServer, folder: Path) -> None:
    """As the printed command does."""
    mysql_client.put_into(folder)
    command = [str(folder / "mysql"), "-h", server.host, "-P", str(server.port), "-u", "root", "-p"]
    with statements.open() as text:
        subprocess.run(command, stdin=text, check=True, timeout=180)


def test_a_new_account_follows_the_database_after_the_printed_statements(
    home: Home, mysql_server: MysqlServer, database: str, user: str, tmp_path: Path
) -> None:
    """The first run finds no account, and says how it is made. The second one finds nothing missing, no warning of grants."""
    first = init(home, mysql_server, database, user)
    statements = home.sources_dir / "shop.sql"

    assert first.exit_code == 0, first.output
    assert f"CREATE USER IF NOT EXISTS '{user}'@'%' IDENTIFIED BY '…';" in first.output
    assert f"mysql -h {mysql_server.host} -P {mysql_server.port} -u root -p < {statements}" in first.output
    assert statements.stat().st_mode & 0o077 == 0

    run_as_root(statements, mysql_server, tmp_path)
    second = init(home, mysql_server, database, user)

    assert second.exit_code == 0, second.output
    assert "shop: the server can be followed" in second.output
    assert "lacks" not in second.output
    assert "RELOAD" not in second.output
    grants = [row[0] for row in mysql_server.execute(f"SHOW GRANTS FOR {user}")]
    account = f"TO `{user}`@`%`"
    static = ", ".join(privilege.name for privilege in FOLLOWING)
    assert grants == [
        f"GRANT {static} ON *.* {account}",
        f"GRANT {LOCKING.name} ON *.* {account}",
        f"GRANT SELECT ON `{database}`.* {account}",
    ]


def test_the_documents_have_no_mistake_and_name_the_database(
    home: Home, mysql_server: MysqlServer, database: str, user: str
) -> None:
    assert init(home, mysql_server, database, "root:", "--tenant", "globex").exit_code == 0

    validated = run_here("validate", "shop", "--home", str(home.root))

    assert validated.exit_code == 0, validated.output
    assert "no mistakes: 1 source(s) (shop), 1 tenant(s) (globex)" in validated.output
    tenant = yaml.safe_load((home.tenants_dir / "globex.yaml").read_text())
    assert tenant["sources"] == [{"name": "shop", "include_tables": [rf"{database}\..*"]}]


def test_what_is_there_stays(home: Home, mysql_server: MysqlServer, database: str, user: str) -> None:
    """A second run writes over neither document; another server does not get the first one's name."""
    init(home, mysql_server, database, "root:")
    source, tenant = home.sources_dir / "shop.yaml", home.tenants_dir / "acme.yaml"
    source.write_text(source.read_text() + "# mine\n")
    tenant.write_text(tenant.read_text() + "# mine too\n")

    again = init(home, mysql_server, database, "root:")
    elsewhere = run_here("init", "mysql://root@nowhere/shop", "--home", str(home.root))

    assert again.exit_code == 0
    assert f"kept {source}, which was there already" in again.output
    assert source.read_text().endswith("# mine\n")
    assert tenant.read_text().endswith("# mine too\n")
    assert elsewhere.exit_code == 2
    assert "follows another server already" in elsewhere.output


def test_a_silent_server_leaves_nothing_written(home: Home, unused_tcp_port: int) -> None:
    result = run_here("init", f"mysql://root@127.0.0.1:{unused_tcp_port}/shop", "--home", str(home.root))

    assert result.exit_code == 1
    assert not home.root.exists()


def test_an_empty_database_is_a_fault_with_its_remedy(
    home: Home, mysql_server: MysqlServer, database: str, user: str
) -> None:
    mysql_server.execute("DROP TABLE orders", database=database)

    result = init(home, mysql_server, database, "root:")

    assert result.exit_code == 2
    assert "include_tables matches no table" in result.output
    assert "ask again by `headwater validate shop" in result.output


def test_readmes_first_commands_run_as_they_stand(mysql_server: MysqlServer, tmp_path: Path) -> None:
    """``init``, then the statements by ``mysql``: word by word but for the port. The account is let in then."""
    mysql_server.execute("CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY)")
    block = next(block for block in blocks_of(README) if " init mysql://" in block.text)
    typed = "".join(block.text.splitlines(keepends=True)[:2])
    reader = reader_in(tmp_path / "reader", mysql_server.host, mysql_server.port, os.environ)
    mysql_client.put_into(tmp_path / "reader-programs")
    try:
        reader.types(typed, timeout_s=180)
        validated = run_here("validate", "shop", "--home", str(tmp_path / "reader" / ".headwater"))
    finally:
        mysql_server.execute("DROP DATABASE shop", "DROP USER IF EXISTS headwater")

    assert validated.exit_code == 0, validated.output
    assert "shop: the server can be followed" in validated.output
