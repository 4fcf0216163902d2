"""``headwater init oracle://…`` at the stand-in: its account may follow the database, and no more."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from libs.mesh.home import Home, home_at
from libs.oracle.grants import create_user, grant_statements
from libs.stand_ins.oracle.answers import Column, OracleType
from libs.stand_ins.oracle.database import ModelDatabase
from libs.stand_ins.oracle.model import Model
from libs.stand_ins.oracle.server import Listener, listening
from tests.headwater_command import run_here

USER = "c##headwater"
OBJECT = re.compile(r"GRANT (?:SELECT|EXECUTE) ON SYS\.(\S+) TO (\S+) CONTAINER=ALL")
PASSWORD = re.compile(r'IDENTIFIED BY "(.*)"')


class Administered(ModelDatabase):
    """A database whose accounts come from statements, as an administrator runs them."""

    def __init__(self, model: Model) -> None:
        self.users: dict[str, str] = {}
        self.granted: dict[str, set[str]] = {}
        super().__init__(model, self.users, grants=self.granted)

    def run(self, statements: str) -> None:
        """CREATE USER and GRANT, no others."""
        for statement in filter(None, (line.strip().rstrip(";") for line in statements.splitlines())):
            if statement.startswith("CREATE USER"):
                found = PASSWORD.search(statement)
                assert found is not None
                self.users[statement.split()[2].upper()] = found[1]
            elif (grant := OBJECT.fullmatch(statement)) is not None:
                self._objects(grant[2]).add(grant[1].replace("V_$", "V$"))
            elif "FLASHBACK ANY TABLE" in statement:
                tables = {f"{owner}.{name}" for owner, name in self.model.tables}
                self._objects(USER).update(tables)
            else:
                assert statement.startswith("--"), statement

    def _objects(self, user: str) -> set[str]:
        """Those that a user may see; one is everybody's."""
        return self.granted.setdefault(user.upper(), {"NLS_DATABASE_PARAMETERS"})


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return home_at(tmp_path / "home")


@pytest.fixture
def database() -> Administered:
    model = Model()
    model.create("ERP", "ORDERS", [Column("ID", OracleType.NUMBER, 22, 9, 0)], ["ID"])
    return Administered(model)


@pytest.fixture
def listener(database: Administered) -> Iterator[Listener]:
    with listening(database) as found:
        yield found


def init(home: Home, listener: Listener, schema: str = "/ERP", account: str = USER, *options: str) -> Result:
    url = f"oracle://{account.replace('#', '%23')}@127.0.0.1:{listener.port}/ORCLCDB{schema}"
    return run_here("init", url, "--source", "erp", *options, "--home", str(home.root))


def test_a_new_account_follows_the_database_after_the_printed_statements(
    home: Home, database: Administered, listener: Listener
) -> None:
    """The first run finds no account, and says how it is made. The second one finds no grant missing."""
    first = init(home, listener)
    statements = home.sources_dir / "erp.sql"

    assert first.exit_code == 0, first.output
    assert f'CREATE USER {USER} IDENTIFIED BY "…" CONTAINER=ALL;' in first.output
    assert f"sqlplus sys@//127.0.0.1:{listener.port}/ORCLCDB as sysdba @{statements}" in first.output
    assert statements.stat().st_mode & 0o077 == 0

    database.run(statements.read_text())
    second = init(home, listener)

    assert second.exit_code == 0, second.output
    assert "erp: the server can be followed" in second.output
    assert "GRANT" not in second.stderr


def test_the_pre_flight_misses_each_object_by_its_name(home: Home, database: Administered, listener: Listener) -> None:
    """The statements give nothing that is not asked for, but rows of LogMiner and figures for a warning."""
    init(home, listener)
    lines = (home.sources_dir / "erp.sql").read_text().splitlines()
    database.run("\n".join(line for line in lines if " ON SYS." not in line))

    second = init(home, listener)

    assert second.exit_code == 2, second.output
    objects = {found[1] for line in lines if (found := OBJECT.match(line))}
    missed = set(re.findall(r"ON SYS\.(\S+) TO", second.stderr))
    assert objects - missed == {"V_$LOGMNR_CONTENTS", "V_$UNDOSTAT"}


def test_the_documents_have_no_mistake_and_name_the_schema(
    home: Home, database: Administered, listener: Listener
) -> None:
    init(home, listener)
    database.run((home.sources_dir / "erp.sql").read_text())

    validated = run_here("validate", "erp", "--home", str(home.root))

    assert validated.exit_code == 0, validated.output
    tenant = yaml.safe_load((home.tenants_dir / "acme.yaml").read_text())
    assert tenant["sources"] == [{"name": "erp", "include_tables": [r"ERP\..*"]}]


def test_what_is_there_stays(home: Home, listener: Listener) -> None:
    """Another service does not get the first one's name."""
    init(home, listener)
    source = home.sources_dir / "erp.yaml"
    source.write_text(source.read_text() + "# mine\n")

    again = init(home, listener)
    elsewhere = run_here("init", "oracle://u@nowhere/OTHER", "--source", "erp", "--home", str(home.root))

    assert again.exit_code == 0, again.output
    assert source.read_text().endswith("# mine\n")
    assert elsewhere.exit_code == 2
    assert "follows another server already" in elsewhere.output


def test_tls_is_refused_by_name(home: Home, listener: Listener) -> None:
    result = init(home, listener, "/ERP", USER, "--tls-ca-file", "db.pem")
    assert result.exit_code == 2
    assert "TCPS" in result.output
    assert not home.root.exists()


@pytest.mark.parametrize(
    ("user", "expected"),
    [("c##hw", " CONTAINER=ALL"), ("hw", "")],
)
def test_a_common_user_is_one_of_all_containers(user: str, expected: str) -> None:
    assert create_user(user, "pw") == f'CREATE USER {user} IDENTIFIED BY "pw"{expected}'
    assert ("SET CONTAINER" in grant_statements(user)[0]) is bool(expected)


@pytest.mark.parametrize(("user", "password"), [("a b", "x"), ("u", 'a"b'), ("u", ""), ("u", "x" * 31), ("u", "a\nb")])
def test_no_statement_has_an_odd_name_or_password(user: str, password: str) -> None:
    with pytest.raises(ValueError, match=r"a user's name|a password"):
        create_user(user, password)
