"""A newcomer: an empty home, an empty folder, the wheel, a MySQL that others set up, and five typed commands to a first row."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from libs.mesh.home import home_at
from libs.setup.cache import cache_dir
from libs.setup.python_packages import uv_program
from tests import mysql_client
from tests.conftest import MysqlServer, start_mysql_in
from tests.headwater_command import MARK, HeadwaterCommand
from tests.page_blocks import ROOT, Reader, blocks_of

TABLES = 15
MOST_COMMANDS = 5
BUILD_TIMEOUT_S = 900.0
COMMANDS_TIMEOUT_S = 1_500.0
# Of the environment a newcomer has only how this machine reaches its registries, and the speech of its terminal.
_OF_THE_MACHINE = re.compile("SSL_.*|.*_CA_BUNDLE|PIP_.*|UV_.*|.*_proxy|LANG|TERM|TMPDIR", re.IGNORECASE)

pytestmark = [
    pytest.mark.rest(
        because="test_wheel.py looks into the wheel; test_init.py and test_live_stack.py type the commands"
    ),
    pytest.mark.timeout(3_000),
]


@dataclass(frozen=True, slots=True)
class Newcomer:
    """With an empty home, and of Headwater a wheel and the README alone."""

    reader: Reader
    wheel: Path
    python: Path

    def types(self, command: str) -> str:
        """The output. A command that fails fails the test."""
        return self.reader.types(command, timeout_s=COMMANDS_TIMEOUT_S)


@pytest.fixture(scope="module")
def foreign_mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MysqlServer]:
    """A server of somebody's: fifteen tables of two rows, with the usual types, and one that nobody wrote to."""
    with ExitStack() as servers:
        server = start_mysql_in(tmp_path_factory.mktemp("foreign"), servers)
        columns = (
            "id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(40), price DECIMAL(10,2), made DATETIME(3), more JSON"
        )
        rows = "('first', 19.90, '2026-11-29 10:00:00', '{\"a\": 1}'), ('second', NULL, NULL, NULL)"
        server.execute("CREATE DATABASE shop")
        for number in range(TABLES):
            server.execute(f"CREATE TABLE shop.table_{number} ({columns})")
            if number:
                server.execute(f"INSERT INTO shop.table_{number} (name, price, made, more) VALUES {rows}")
        yield server


@pytest.fixture(params=["3.11", "3.13"])
def newcomer(request: pytest.FixtureRequest, foreign_mysql: MysqlServer, tmp_path: Path) -> Iterator[Newcomer]:
    """In the end nothing that was started runs."""
    python = python_of(request.param)
    home, folder, programs = (tmp_path / name for name in ("home", "folder", "programs"))
    for each in (home, folder, programs):
        each.mkdir()
    uv = uv_program(cache_dir())
    (programs / "uv").symlink_to(uv)
    mysql_client.put_into(programs)
    stack = HeadwaterCommand(home_at(folder / ".headwater"))
    kept = {name: value for name, value in os.environ.items() if _OF_THE_MACHINE.fullmatch(name)}
    environ = {
        **kept,
        "HOME": str(home),
        "PATH": f"{home}/.local/bin:{programs}:/usr/bin:/bin",
        "COLUMNS": "80",
        # The registries' own files, kept for the next run.
        "UV_CACHE_DIR": str(cache_dir() / "newcomer"),
        MARK: stack.mark,
    }
    bring_maven_settings(home)
    try:
        reader = Reader(folder, environ, foreign_mysql.host, foreign_mysql.port)
        yield Newcomer(reader, build_wheel(uv, python, tmp_path / "dist", environ), python)
    finally:
        stack.kill_all()
        foreign_mysql.execute("DROP USER IF EXISTS headwater")


def test_five_commands_lead_from_a_wheel_to_a_first_row(newcomer: Newcomer) -> None:
    """The first installs the wheel, the others are README's. ``check`` waits for the copy; a query then shows the rows."""
    install = f"uv tool install --quiet --python {newcomer.python} {newcomer.wheel}"
    typed = [install, *readmes_commands()]
    said = [newcomer.types(command) for command in typed]
    rows = newcomer.types('headwater query acme "SELECT * FROM table_7 ORDER BY id" --json').splitlines()

    assert len(typed) <= MOST_COMMANDS
    compared = re.findall(r"^acme +shop\.table_\d+ +([02]) rows x +5 columns +equal$", said[-1], re.M)
    assert sorted(compared) == ["0", *["2"] * (TABLES - 1)], said[-1]
    assert [json.loads(row)["name"] for row in rows] == ["first", "second"]
    up = said[-2]
    assert re.search(r"^  headwater query acme \"SELECT \* FROM table_\d+ LIMIT 5\"$", up, re.M), up


def readmes_commands() -> list[str]:
    """Up to the one that shows that rows have come, as somebody without a checkout types them."""
    block = next(block for block in blocks_of(ROOT / "README.md") if " init mysql://" in block.text)
    commands = block.text.replace("./headwater", "headwater").splitlines()
    return commands[: 1 + commands.index("headwater check acme")]


def python_of(release: str) -> Path:
    """A Python of ``release`` that this machine has; without one the test is skipped, and says so."""
    versions = Path.home() / ".pyenv" / "versions"
    candidates = [shutil.which(f"python{release}"), *(str(each) for each in versions.glob(f"{release}.*/bin/python3"))]
    for each in filter(None, candidates):
        asked = subprocess.run(
            [each, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=False
        )
        if asked.returncode == 0:
            return Path(asked.stdout.strip())
    pytest.skip(f"Python {release} is not on this machine")


def build_wheel(uv: Path, python: Path, folder: Path, environ: Mapping[str, str]) -> Path:
    """As ``make wheel``, for another Python than the tests' too."""
    command = [str(uv), "build", "--quiet", "--wheel", "--python", str(python), "--out-dir", str(folder), str(ROOT)]
    built = subprocess.run(
        command, env=dict(environ), capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def bring_maven_settings(home: Path) -> None:
    """The machine's way to its jars, as its users have it."""
    settings = Path.home() / ".m2" / "settings.xml"
    if settings.exists():
        (home / ".m2").mkdir()
        shutil.copyfile(settings, home / ".m2" / "settings.xml")
