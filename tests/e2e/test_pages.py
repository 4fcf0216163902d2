"""The commands of README's and the tutorial's blocks, typed as they stand, at a real MySQL."""

import os
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from libs.mesh.home import home_at
from tests import mysql_client
from tests.conftest import MysqlServer
from tests.headwater_command import MARK, HeadwaterCommand
from tests.page_blocks import ROOT, Reader, blocks_of, reader_in

BLOCK_TIMEOUT_S = 900.0
TOLD_IN_ORDER = (
    "tutorial.md",
    "howto/add-a-tenant.md",
    "howto/mask-a-column.md",
    "howto/fill-a-late-table.md",
    "howto/back-up-and-restore.md",
    "howto/rotate-passwords.md",
)

pytestmark = [
    pytest.mark.rest(because="test_init.py types README's first two commands; test_live_stack.py has the others"),
    pytest.mark.timeout(1_800),
]


@contextmanager
def reader_with(server: MysqlServer, folder: Path) -> Iterator[Reader]:
    """A reader with a ``mysql`` of the tests' own; in the end nothing that was started runs."""
    command = HeadwaterCommand(home_at(folder / ".headwater"))
    reader = reader_in(folder, server.host, server.port, {**os.environ, MARK: command.mark})
    mysql_client.put_into(folder.parent / f"{folder.name}-programs")
    try:
        yield reader
    finally:
        command.kill_all()


def test_readmes_own_database_runs_as_it_stands(mysql_server: MysqlServer, tmp_path: Path) -> None:
    mysql_server.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, total DECIMAL(10,2))",
        "INSERT INTO shop.orders VALUES (1, 19.90), (2, 5.00)",
    )
    block = next(block for block in blocks_of(ROOT / "README.md") if " init mysql://" in block.text)
    try:
        with reader_with(mysql_server, tmp_path / "readme") as reader:
            said = reader.types(block.text, timeout_s=BLOCK_TIMEOUT_S)
    finally:
        mysql_server.execute("DROP DATABASE shop", "DROP USER IF EXISTS headwater")

    assert 'headwater query acme "SELECT * FROM orders LIMIT 5"' in said
    assert re.search(r"^acme +shop\.orders +2 rows x +2 columns +equal$", said, re.M)
    assert "shop.orders" in said.rpartition("difference(s)")[2]


def test_the_tutorial_and_its_tasks_run_as_they_stand(mysql_server: MysqlServer, tmp_path: Path) -> None:
    """Every block that the pages mark as run, in their order, on one stack."""
    pages = [ROOT / "docs" / name for name in TOLD_IN_ORDER]
    said: dict[str, list[str]] = {}
    try:
        with reader_with(mysql_server, tmp_path / "tutorial") as reader:
            for page in pages:
                blocks = [block for block in blocks_of(page) if block.is_run]
                said[page.name] = [reader.types(block.text, timeout_s=BLOCK_TIMEOUT_S) for block in blocks]
            with tarfile.open(reader.folder / "headwater-documents.tar") as archive:
                archived = set(archive.getnames())
            again = reader.types("headwater status || true", timeout_s=BLOCK_TIMEOUT_S)
    finally:
        mysql_server.execute("DROP DATABASE IF EXISTS shop", "DROP USER IF EXISTS headwater")

    tutorial = "\n".join(said["tutorial.md"])
    assert re.search(r"^│  2 │ +1 │ new +│ +5\.00 │$", tutorial, re.M)
    assert re.search(r"^│  4 │ +2 │ new +│ +42\.50 │$", said["tutorial.md"][-2], re.M)
    assert " 5.00 " not in said["tutorial.md"][-2]
    assert "READ    id=1" in said["tutorial.md"][-1]
    assert "tenant globex: version 1 is in force" in said["add-a-tenant.md"][-1]
    assert "masked: hash sha256" in said["mask-a-column.md"][0]
    assert "sent execute-snapshot" in said["fill-a-late-table.md"][0]
    assert archived >= {"sources/shop.yaml", "tenants/acme.yaml", "tenants/globex.yaml", "keys"}
    assert "stack up" in again
